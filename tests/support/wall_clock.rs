//! A wall clock that can be stepped, for one process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HOUR: i64 = 3_600;

/// The library to preload, and the file with the step.
pub struct Clock {
    step: fs::File,
    /// As the process sees the directory.
    seen: PathBuf,
    directory: PathBuf,
}

impl Clock {
    /// For a process that sees the same files as this one.
    pub fn here() -> Self {
        let name = format!("tag-lock-clock-{:016x}", rand::random::<u64>());
        let directory = std::env::temp_dir().join(name);
        Self::at(&directory, &directory)
    }

    /// In `directory`, which the process sees as `seen`.
    pub fn at(directory: &Path, seen: &Path) -> Self {
        fs::create_dir(directory).expect("a directory");
        let source = directory.join("wall_clock.c");
        fs::write(&source, include_str!("wall_clock.c")).expect("a file");
        let status = Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .arg(directory.join("wall_clock.so"))
            .arg(source)
            .args(["-ldl", "-lpthread"])
            .status()
            .expect("cc, which links these tests, compiles C");
        assert!(status.success(), "cc failed");
        let step = directory.join("step");
        fs::write(&step, 0_i64.to_ne_bytes()).expect("a file");
        let step = fs::OpenOptions::new()
            .write(true)
            .open(step)
            .expect("the file");
        Self {
            step,
            seen: seen.to_owned(),
            directory: directory.to_owned(),
        }
    }

    /// What the process needs in its environment.
    pub fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [
            ("LD_PRELOAD", self.seen.join("wall_clock.so")),
            ("WALL_CLOCK_FILE", self.seen.join("step")),
        ]
    }

    /// From now on the process's clock is this far from the true one.
    pub fn step(&self, seconds: i64) {
        self.step
            .write_all_at(&seconds.to_ne_bytes(), 0)
            .expect("the file");
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        // It is in a directory for temporary files in any case.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The private server, started again with a clock that can be stepped; started again without when dropped.
pub struct SteppedServer {
    clock: Clock,
    directory: PathBuf,
}

impl SteppedServer {
    pub fn start() -> Self {
        let directory = PathBuf::from(
            std::env::var_os("TAG_LOCK_SERVER_DIR")
                .expect("this test restarts the server: run it with `scripts/with-mysql`"),
        );
        // The server may see its directory under another path.
        let settings = fs::read_to_string(directory.join("settings")).expect("its settings");
        let setting = |name: &str| {
            let start = format!("declare -- {name}=\"");
            let line = settings.lines().find_map(|line| line.strip_prefix(&start));
            line.and_then(|rest| rest.strip_suffix('"'))
                .expect("a setting")
                .to_owned()
        };
        assert_eq!(
            setting("CONTAINER"),
            "",
            "the clock of a container cannot be stepped: install a server"
        );
        let seen = PathBuf::from(setting("INSIDE"));
        let name = "wall_clock";
        let clock = Clock::at(&directory.join(name), &seen.join(name));
        run(&directory, "stop", &[]);
        run(&directory, "start", &clock.variables());
        Self { clock, directory }
    }

    /// From now on the server's clock is this far from the true one.
    pub fn step(&self, seconds: i64) {
        self.clock.step(seconds);
    }
}

impl Drop for SteppedServer {
    fn drop(&mut self) {
        self.clock.step(0);
        run(&self.directory, "stop", &[]);
        run(&self.directory, "start", &[]);
    }
}

fn run(directory: &Path, script: &str, variables: &[(&str, PathBuf)]) {
    let mut command = Command::new(directory.join(script));
    command.envs(variables.iter().map(|(key, value)| (key, value)));
    // Programs outside the server's tree do not find the library, and complain.
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script} failed: {said}");
}
