//! Doctor.
use std::time::Duration;
use crate::args::Common;
use crate::exit::{Code, Failure};
pub(crate) async fn doctor(_common: &Common, _older_than: Duration) -> Result<Code, Failure> { Ok(0) }
