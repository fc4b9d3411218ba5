//! On a terminal: COMMAND has it while it runs, and `top` draws on it. `script`, of util-linux, is the terminal.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};

use crate::rig::{PROGRAM, Scratch, tag_lock, unspoilt, until, until_true};
use crate::support::TestDatabase;

/// A program on a terminal of its own, and what it has printed there so far.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    printed: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Runs a line of a shell, in which `$T` is the program.
    fn run(database: &TestDatabase, line: &str) -> Self {
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

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.printed.lock().unwrap()).into_owned()
    }

    fn until_shown(&self, text: &str) {
        until_true(&format!("{text:?} on the screen"), || {
            self.text().contains(text)
        });
    }

    fn exit_code(mut self) -> i32 {
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

#[tokio::test(flavor = "multi_thread")]
async fn the_command_has_the_terminal_and_gives_it_back() {
    let database = TestDatabase::new().await;
    let line = "\"$T\" run job -- sh -c 'echo ready; read x; echo \"got $x\"; exit 7'; echo \"code $?\"; read y; echo \"then $y\"";
    let mut terminal = Terminal::run(&database, line);
    terminal.until_shown("ready");
    terminal.press("hello\n");
    terminal.until_shown("got hello");
    terminal.until_shown("code 7");
    terminal.press("again\n");
    terminal.until_shown("then again");
    assert_eq!(terminal.exit_code(), 0);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_stop_and_end_reach_the_command() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    // Who writes without having the terminal is stopped: what `run` says must not stop it.
    let line = format!(
        "stty tostop; cd '{}'; \"$T\" run job -- sh -c 'trap \"exit 9\" INT; echo ready; while :; do sleep 0.05; done'; echo \"code $?\"",
        scratch.path().display()
    );
    let mut terminal = Terminal::run(&database, &line);
    terminal.until_shown("ready");
    terminal.press("\u{1a}");
    terminal.until_shown("the command goes on");
    terminal.press("\u{3}");
    terminal.until_shown("code 9");
    assert_eq!(terminal.exit_code(), 0);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_live_screen_shows_what_is_taken() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let first = client.lock("job:first").acquire().await.unwrap();
    let mut terminal = Terminal::run(
        &database,
        "stty cols 100 rows 10; \"$T\" top job: --every 100ms; echo \"code $?\"",
    );
    terminal.until_shown("job:first");
    let second = client.lock("job:second").acquire().await.unwrap();
    terminal.until_shown("job:second");
    terminal.press("q");
    terminal.until_shown("code 0");
    let text = terminal.text();
    assert!(!text.contains(&database.url), "{text}");
    assert_eq!(terminal.exit_code(), 0);
    drop((first, second));
    database.remove().await;
}
