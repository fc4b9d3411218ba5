//! The torture rig's program.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tag_lock_torture::options::{Command, Options};
use tag_lock_torture::server::Servers;
use tag_lock_torture::{case, mutant_build, mutants, run, worker};

/// The status of a run that found something.
const FOUND: u8 = 1;
/// The status of a run that failed.
const FAILED: u8 = 2;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let options = Options::parse();
    match work(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FOUND),
        Err(error) => {
            eprintln!("torture: {error}");
            ExitCode::from(FAILED)
        }
    }
}

/// Whether nothing was found.
fn work(options: Options) -> Result<bool, Failure> {
    match options.command {
        Some(Command::Worker { directory, worker }) => {
            runtime()?.block_on(worker::run(&directory, worker))?;
            Ok(true)
        }
        Some(Command::Judge { directory }) => {
            let judged = case::judge(&directory)?;
            judged.write(&directory)?;
            for line in judged.lines() {
                println!("violation: {line}");
            }
            println!(
                "violations: {}, checked: {}",
                judged.violations(),
                judged.verdict.checked()
            );
            Ok(judged.violations() == 0)
        }
        Some(Command::Mutants { names, limit, seed }) => {
            if !mutant_build::is_this() {
                return Err(mutant_build::become_it(None).into());
            }
            #[cfg(tag_lock_mutants)]
            let all = tag_lock::MUTANTS;
            #[cfg(not(tag_lock_mutants))]
            let all = &[];
            let limit = Duration::from_secs(limit);
            let version = runtime()?.block_on(async {
                let servers = Servers::from_environment()?;
                Ok::<_, Failure>(servers.writer().version().await?)
            })?;
            Ok(mutants::run(all, &names, limit, seed, &version)?)
        }
        None => {
            let run = options.run;
            if run.mutant.is_some() && !mutant_build::is_this() {
                return Err(mutant_build::become_it(run.mutant.as_deref()).into());
            }
            let report = runtime()?.block_on(run::run(&run))?;
            print!("{report}");
            println!("{}", report.last_line());
            Ok(report.violations == 0)
        }
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}
