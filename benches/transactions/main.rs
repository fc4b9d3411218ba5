//! What exactly-once and `verify_in` cost.
//!
//! `DATABASE_URL=mysql://… cargo bench --bench transactions -- [--quick] [--json FILE]`
//!
//! - `numbering`: what it costs that a batch runs exactly once. A packet that the library has sent is taken from the proxy
//!   and sent by hand, on one connection; the numbers that rise from packet to packet, the batch's among them, the bench
//!   raises as a lane does. Beside it the same addition without the number, without the record of results, and without the
//!   check before the `COMMIT`, in one packet as well. The two take turns, in heats.
//! - `verification`: what `verify_in` costs in a transaction that updates one row: its round trips as the proxy counts
//!   them, and transactions a second with and without, straight to the server, in heats that take turns.
//!
//! The JSON file gets one line for each figure: `{"figure": NAME, "value": NUMBER}`.

#![allow(
    unreachable_pub,
    reason = "a program has no public interface; `pub` says what a module offers"
)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a benchmark"
)]

mod database;
mod figures;
mod numbering;
mod options;
#[path = "../../tests/support/proxy/mod.rs"]
mod proxy;
mod verification;

use std::error::Error;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let Some(options) = options::parse(std::env::args().skip(1))? else {
        return Ok(());
    };
    let mut figures = figures::Figures::default();
    let database = database::Database::create().await?;
    numbering::measure(&database, &options, &mut figures).await?;
    verification::measure(&database, &options, &mut figures).await?;
    database.remove().await?;
    figures.write(options.json.as_deref())?;
    Ok(())
}
