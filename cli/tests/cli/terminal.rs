//! A terminal of a test's own: `script`, of util-linux, makes it.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::rig::{PATIENCE, PROGRAM, tag_lock, unspoilt, until};
use crate::server::TestDatabase;

/// A program on a terminal of its own, and what it has printed there so far.
pub(crate) struct Terminal {
    script: Child,
    keys: ChildStdin,
    printed: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Runs a line of a shell, in which `$T` is the program.
    pub(crate) fn run(database: &TestDatabase, line: &str) -> Self {
        let program = tag_lock(&database.url);
        let mut command = unspoilt("script");
        command.args(["-q", "-e", "-c", line, "/dev/null"]);
        command.envs(
            program
                .get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        );
        command
            .env("T", PROGRAM)
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = command.spawn().expect("`script` is there");
        let keys = script.stdin.take().expect("its keys");
        let mut out = script.stdout.take().expect("its screen");
        let printed = Arc::<Mutex<Vec<u8>>>::default();
        let screen = Arc::clone(&printed);
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                screen.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self {
            script,
            keys,
            printed,
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// All that was printed so far, with what steers the terminal.
    pub(crate) fn printed(&self) -> Vec<u8> {
        self.printed.lock().unwrap().clone()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.printed()).into_owned()
    }

    pub(crate) fn until_shown(&self, text: &str) {
        let start = Instant::now();
        while !self.text().contains(text) {
            assert!(
                start.elapsed() < PATIENCE,
                "never: {text:?} on the screen, which shows {:?}",
                self.text()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn exit_code(mut self) -> i32 {
        until("the end", || self.script.try_wait().unwrap())
            .code()
            .unwrap_or(-1)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}
