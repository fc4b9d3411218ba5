//! The command `tag-lock`: locks and counters in MySQL or MariaDB for operators, cron and scripts.
//!
//! - [`args`]: the command line. [`exit`]: exit codes and errors. [`output`]: tables and JSON.
//! - [`run`]: a program under a lock. [`commands`]: what asks, and prints the answer. [`doctor`]: whether a server is fit.
//!   [`top`]: the live screen.

#[cfg(not(unix))]
compile_error!("tag-lock needs process groups and signals: it runs on Unix only");

mod args;
mod commands;
mod connection;
mod doctor;
mod exit;
mod output;
mod redact;
mod run;
mod top;

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::args::{Arguments, Command};
use crate::exit::{Code, FAILED, Failure, RUN_FAILED, USAGE};

fn main() -> ExitCode {
    // What `run` starts of this program itself.
    if let Some(code) = run::helper(std::env::args_os()) {
        return code.into();
    }
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(error) => return refused(&error).into(),
    };
    let is_run = matches!(arguments.command, Command::Run(_));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = match runtime {
        // On this thread: what `run` starts is tied to the life of the thread that starts it.
        Ok(runtime) => runtime.block_on(carry_out(&arguments)),
        Err(error) => Err(error.into()),
    };
    let code = result.unwrap_or_else(|failure| {
        failure.tell(arguments.common.json);
        failure.exit_code(if is_run { RUN_FAILED } else { FAILED })
    });
    code.into()
}

async fn carry_out(arguments: &Arguments) -> Result<Code, Failure> {
    let common = &arguments.common;
    match &arguments.command {
        Command::Run(run) => run::run(common, run).await,
        Command::List {
            prefix,
            permits,
            slots,
        } => {
            let name = prefix.as_deref().unwrap_or_default();
            commands::list(common, name, *permits, *slots).await
        }
        Command::Inspect { name, slot } => commands::inspect(common, name, slot.as_deref()).await,
        Command::Watch { name, every } => commands::watch(common, name, *every).await,
        Command::Release {
            name,
            slot,
            permit,
            force: _,
        } => commands::release(common, name, slot.as_deref(), *permit).await,
        Command::Counter(counter) => commands::counter(common, counter).await,
        Command::Migrate => commands::migrate(common).await,
        Command::Purge { older_than } => commands::purge(common, *older_than).await,
        Command::Doctor { older_than } => doctor::doctor(common, *older_than).await,
        Command::Top { prefix, every } => {
            top::top(common, prefix.as_deref().unwrap_or_default(), *every).await
        }
        Command::Completions { shell } => commands::completions(*shell),
        Command::Man { into } => commands::man(into.as_deref()),
    }
}

/// Tells what is wrong with the arguments, or what was asked for by `--help`. An address may stand in the wrong place.
fn refused(error: &clap::Error) -> Code {
    let text = error.render().to_string();
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return match exit::raw_to_stdout(text.as_bytes()) {
            Ok(()) | Err(Failure::NobodyReads) => exit::DONE,
            Err(failure) => {
                failure.tell(false);
                FAILED
            }
        };
    }
    exit::raw_to_stderr(&redact::redacted_usage(&text));
    USAGE
}
