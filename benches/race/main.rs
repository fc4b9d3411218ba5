//! The race: locks and counters of many kinds on one MySQL or MariaDB server, measured in one run.
//!
//! `DATABASE_URL=mysql://… cargo bench -p race -- --help` says how to run it.
//!
//! - `contestants/`: what is raced, one in each file, behind one trait;
//! - `scenarios/`: what they have to do;
//! - `heat.rs`, `racer.rs`, `worker.rs`: the loops that are measured, in this process and in others;
//! - `race.rs`, `stage.rs`, `status.rs`: rounds, and what the server counts;
//! - `record.rs`, `table.rs`, `plot.rs`, `summary.rs`: the figures, as JSON, as a table, as a picture of all and of four.

#![allow(
    unreachable_pub,
    reason = "a program has no public interface; `pub` says what a module offers"
)]

mod arena;
mod bulk;
mod contestants;
mod dice;
mod heat;
mod human;
mod mysql_error;
mod names;
mod options;
mod pause;
mod plot;
mod progress;
mod race;
mod racer;
mod record;
mod redis_servers;
mod relay;
mod samples;
mod scenarios;
mod slice;
mod stage;
mod status;
mod summary;
mod table;
mod tally;
mod token;
mod worker;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use contestants::Result;
use contestants::roster::roster;
use options::{Command, Options, USAGE};

#[tokio::main]
async fn main() -> ExitCode {
    if std::env::args()
        .nth(1)
        .is_some_and(|argument| argument == worker::ARGUMENT)
    {
        return exit(worker::run().await);
    }
    let known: Vec<&str> = roster().iter().map(|entry| entry.profile.name).collect();
    match options::parse(std::env::args().skip(1), &known) {
        Ok(Command::Race(options)) => exit(run(&options).await),
        Ok(Command::Help) => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Ok(Command::List) => {
            println!(
                "scenarios:   {}\ncontestants: {}",
                scenarios::SCENARIOS.join(", "),
                known.join(", ")
            );
            ExitCode::SUCCESS
        }
        Ok(Command::Nothing) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::from(2)
        }
    }
}

fn exit(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("race: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<()> {
    let url = std::env::var("DATABASE_URL").map_err(
        |_| "DATABASE_URL is not set; it names a MySQL or MariaDB database for the race's tables",
    )?;
    // Before the race: it would be lost for a wrong path.
    let (mut json, mut picture) = (create(&options.json)?, create(&options.plot)?);
    let mut summary = create(&options.summary)?;
    let results = race::run(&url, options).await?;
    println!("{}", results.server);
    table::print(&results.cells, &results.records);
    if let Some(file) = &mut json {
        for record in results.records.iter().flatten() {
            writeln!(file, "{}", record.json())?;
        }
    }
    if let Some(file) = &mut picture {
        file.write_all(plot::draw(&results).as_bytes())?;
    }
    if let Some(file) = &mut summary {
        file.write_all(summary::draw(&results).as_bytes())?;
    }
    Ok(())
}

fn create(path: &Option<PathBuf>) -> Result<Option<File>> {
    let create = |path: &PathBuf| {
        File::create(path).map_err(|error| format!("{} cannot be written: {error}", path.display()))
    };
    Ok(path.as_ref().map(create).transpose()?)
}
