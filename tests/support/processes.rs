//! Processes of a test's own: this program, started again for one test.

use std::panic::Location;
use std::process::{Child, Command, Stdio};

use futures_util::future::join_all;

/// What a process that runs a part of a test finds in its environment.
const PART: &str = "TAG_LOCK_TEST_PART";

/// Starts this test program again as a worker process that runs only the ignored test `name` of the caller's module,
/// with `variables` in its environment. Its standard output is piped.
#[track_caller]
pub fn spawn_worker(name: &str, variables: &[(&str, String)]) -> Child {
    let mut command = worker(name);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    for (key, value) in variables {
        command.env(key, value);
    }
    command.spawn().expect("starts a worker")
}

/// The command that runs only the ignored test `name` of the caller's module.
#[track_caller]
pub fn worker(name: &str) -> Command {
    let mut command = only(&path_of(Location::caller(), name));
    command.arg("--ignored");
    command
}

/// Runs the caller, the test `name`, in a process of its own, for what is set once in a process. Returns `true` when that
/// process has ended well: then there is nothing left to do. In that process it returns `false`.
#[track_caller]
pub fn in_own_process(name: &str) -> impl Future<Output = bool> {
    let path = path_of(Location::caller(), name);
    async move { part_of(path, &[""]).await.is_none() }
}

/// Runs the caller, the test `name`, in a process of its own for each of `parts`, at once. Returns `None` when all
/// have ended well: then there is nothing left to do. In those processes it returns their part.
#[track_caller]
pub fn in_own_processes(name: &str, parts: &[&str]) -> impl Future<Output = Option<String>> {
    part_of(path_of(Location::caller(), name), parts)
}

async fn part_of(path: String, parts: &[&str]) -> Option<String> {
    if let Ok(part) = std::env::var(PART) {
        return Some(part);
    }
    let running = parts.iter().map(async |part| {
        let mut command = tokio::process::Command::from(only(&path));
        let command = command.env(PART, part).stdin(Stdio::null());
        let output = command.kill_on_drop(true).output().await.expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        println!("{said}");
        assert!(
            output.status.success() && said.contains("1 passed"),
            "the process of {path} {part}: {}\n{said}\n{complained}",
            output.status
        );
    });
    join_all(running).await;
    None
}

/// The command that runs only the test with this path.
fn only(path: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args([path, "--exact", "--nocapture", "--test-threads=1"]);
    command
}

/// The path of the test `name` of the module in `tests/PROGRAM/MODULE.rs` or `tests/PROGRAM/MODULE/mod.rs`.
fn path_of(caller: &Location, name: &str) -> String {
    let module = caller.file().trim_end_matches(".rs");
    let module = module.trim_end_matches("/mod");
    let parts = module
        .split('/')
        .skip_while(|part| *part != "tests")
        .skip(2);
    parts.chain([name]).collect::<Vec<_>>().join("::")
}
