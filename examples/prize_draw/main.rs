//! A prize draw: `scripts/with-mysql cargo run --release --example prize_draw`
//!
//! A thousand prizes, two thousand participants, and every one of them clicks twice: the second click reaches another
//! process at about the same time. Four processes with 250 tasks each answer the clicks. Nobody may win twice, and
//! exactly the prizes in stock may be given out.
//!
//! First the careless way, plain SQL that reads, decides, and writes. Then the same with tag-lock: a lock for each
//! participant, and a bounded counter for the stock. Fails if that gives out one prize too many, or one too few. (No process dies
//! here: `fair.rs` says what would be if one did, and which example is for that.)

mod audit;
mod careless;
mod fair;
mod office;
mod progress;
mod report;
mod tally;
mod worker;

use std::process::ExitCode;

use tally::Tally;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

const PRIZES: i64 = 1_000;
const PARTICIPANTS: u32 = 2_000;
const PROCESSES: u32 = 4;
const TASKS: u32 = 250;

/// How to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Careless,
    TagLock,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Careless => "read, decide, write",
            Self::TagLock => "tag-lock",
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match worker::role() {
        Some(role) => worker::run(role).await,
        None => draw_both_ways().await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("prize_draw: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn draw_both_ways() -> Result<()> {
    let office = office::open(&url()?).await?;
    let mut rows = Vec::new();
    for way in [Way::Careless, Way::TagLock] {
        office.stock_up().await?;
        let (tally, elapsed) = worker::run_all(way).await?;
        rows.push((way, tally, elapsed, office.books(way).await?));
    }
    office.close().await?;
    print!("{}", report::table(&rows));
    let (_, tally, _, books) = &rows[1];
    audit::check(tally, books)?;
    println!("tag-lock gave out exactly {PRIZES} prizes, to {PRIZES} different participants.");
    Ok(())
}

fn url() -> Result<String> {
    std::env::var("DATABASE_URL").map_err(|_| {
        "no server: run `scripts/with-mysql cargo run --release --example prize_draw`".into()
    })
}
