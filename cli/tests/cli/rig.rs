//! How the tests start the program, and what they wait for.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tag_lock::LockState;

use crate::server::TestDatabase;

/// No test is to fail because the machine is slow: what it waits for comes sooner, or never.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_tag-lock");

/// A program that ignores no signal when it starts, whatever those do that started the tests: what a shell runs in the background ignores
/// SIGINT.
pub(crate) fn unspoilt(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT", program]);
    command
}

/// The program, for the server of this address.
pub(crate) fn tag_lock(url: &str) -> Command {
    let mut command = unspoilt(PROGRAM);
    command
        .env("DATABASE_URL", url)
        .env("TAG_LOCK_REQUEST_TIMEOUT", "2m")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

/// What a run of the program came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The JSON document that it printed.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs a command to its end.
pub(crate) fn ran(command: &mut Command) -> Ran {
    Ran::of(&command.output().expect("starts"))
}

/// Runs the program with these arguments.
pub(crate) fn run(database: &TestDatabase, arguments: &[&str]) -> Ran {
    ran(tag_lock(&database.url).args(arguments))
}

/// A directory of a test's own.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("cli-{:016x}", rand::random::<u64>()));
        std::fs::create_dir_all(&path).expect("makes a directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// What stands in a file, once it has a whole line.
    pub(crate) fn line(&self, file: &str) -> String {
        until(&format!("a line in {file}"), || {
            self.read(file).filter(|text| text.ends_with('\n'))
        })
        .trim_end()
        .to_owned()
    }

    pub(crate) fn read(&self, file: &str) -> Option<String> {
        std::fs::read_to_string(self.0.join(file)).ok()
    }

    /// Waits until a process has written its process id into a file.
    pub(crate) fn pid(&self, file: &str) -> i32 {
        self.line(file).parse().expect("a process id")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until something is there.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until something holds.
pub(crate) fn until_true(what: &str, mut look: impl FnMut() -> bool) {
    until(what, || look().then_some(()));
}

/// Waits until a lock is in a state.
pub(crate) async fn until_lock(database: &TestDatabase, name: &str, state: LockState) {
    let client = database.client().await;
    let start = Instant::now();
    while client
        .inspect(name)
        .await
        .expect("inspects")
        .map(|lock| lock.state)
        != Some(state)
    {
        assert!(start.elapsed() < PATIENCE, "never {state:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
