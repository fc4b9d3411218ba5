//! What leases cost, and how fast they change hands: hand-overs in memory and between processes, many
//! leases held for long, many tasks that wait, and holders that are killed; several locks at once, readers,
//! permits and leaders.
//!
//! ```text
//! scripts/with-mysql cargo bench --bench leases
//! scripts/with-mysql cargo bench --bench leases -- --quick          within three minutes
//! scripts/with-mysql cargo bench --bench leases -- --brief          shows that it runs; measures nothing
//! scripts/with-mysql cargo bench --bench leases -- --json FILE      one object a figure and line
//! scripts/with-mysql cargo bench --bench leases -- --only many      one part: hot, handover, takeover,
//!                                                                   waiting, idle, transfers, storm, readers,
//!                                                                   permits, leaders or many
//! ```

mod clock;
mod database;
mod figures;
mod handover;
mod hot;
mod idle;
mod leaders;
mod many;
mod options;
mod permits;
mod process;
mod readers;
mod storm;
mod takeover;
mod transfers;
mod waiting;
mod worker;

#[path = "../../tests/support/proxy/mod.rs"]
mod proxy;

use crate::database::Database;
use crate::figures::Figures;
use crate::options::Options;

/// Whatever stops the benchmark.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    if let Some(work) = worker::Work::of_environment()? {
        return worker::run(work).await;
    }
    let options = Options::of_arguments(std::env::args().skip(1))?;
    let mut figures = Figures::new(options.json.as_deref())?;
    let database = Database::create().await?;
    let result = run(&options, &database, &mut figures).await;
    database.remove().await?;
    figures.print();
    result
}

async fn run(options: &Options, database: &Database, figures: &mut Figures) -> Result<()> {
    if options.runs("hot") {
        hot::run(options, database, figures).await?;
    }
    if options.runs("handover") {
        handover::run(options, database, figures).await?;
    }
    if options.runs("takeover") {
        takeover::run(options, database, figures).await?;
    }
    if options.runs("waiting") {
        waiting::run(options, database, figures).await?;
    }
    if options.runs("idle") {
        idle::run(options, database, figures).await?;
    }
    if options.runs("transfers") {
        transfers::run(options, database, figures).await?;
    }
    if options.runs("storm") {
        storm::run(options, database, figures).await?;
    }
    if options.runs("readers") {
        readers::run(options, database, figures).await?;
    }
    if options.runs("permits") {
        permits::run(options, database, figures).await?;
    }
    if options.runs("leaders") {
        leaders::run(options, database, figures).await?;
    }
    if options.runs("many") {
        many::run(options, database, figures).await?;
    }
    Ok(())
}
