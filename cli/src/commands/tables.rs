//! The tables: making them, and keeping them small.

use std::time::Duration;

use serde_json::json;

use crate::args::Common;
use crate::exit::{Code, DONE, Failure};
use crate::output;

/// Creates the tables, or brings them up to date.
pub(crate) async fn migrate(common: &Common) -> Result<Code, Failure> {
    common.client().await?.migrate().await?;
    if common.json {
        output::json(&json!({ "migrated": true }))?;
    } else {
        output::line("the tables are up to date")?;
    }
    Ok(DONE)
}

/// Deletes what nobody has used for long.
pub(crate) async fn purge(common: &Common, older_than: Duration) -> Result<Code, Failure> {
    let purged = common.client().await?.purge(older_than).await?;
    if common.json {
        output::json(&json!({ "rows": purged.rows, "lanes": purged.lanes }))?;
    } else {
        output::line(&format!(
            "deleted {} rows, and {} of clients that are gone",
            purged.rows, purged.lanes
        ))?;
    }
    Ok(DONE)
}
