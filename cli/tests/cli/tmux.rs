//! A terminal as a person has one: tmux makes it. Keys are sent to it, its window gets another size, and what it shows is read.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::rig::{PATIENCE, PROGRAM, Scratch, ran, tag_lock, unspoilt};
use crate::server::TestDatabase;

/// What the shell reads when it begins.
const PROFILE: &str = "profile";

/// The path of tmux, which a script brings where there is none.
fn find() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/find-tmux");
    let found = ran(&mut Command::new(script));
    assert!(
        found.code == 0,
        "`top` is tested in tmux, and scripts/find-tmux brings none:\n{}",
        found.err
    );
    PathBuf::from(found.out.trim_end())
}

/// A shell in a terminal, in which `$T` is the program, in a directory of its own.
pub(crate) struct Tmux {
    program: PathBuf,
    pub(crate) scratch: Scratch,
}

impl Tmux {
    pub(crate) fn open(database: &TestDatabase, columns: u16, lines: u16) -> Self {
        let tmux = Self {
            program: find(),
            scratch: Scratch::new(),
        };
        // The same prompt, whoever runs the tests.
        std::fs::write(tmux.scratch.path().join(PROFILE), "PS1='$ '\n").unwrap();
        let mut command = unspoilt(tmux.program.to_str().unwrap());
        let program = tag_lock(&database.url);
        command
            .envs(
                program
                    .get_envs()
                    .filter_map(|(key, value)| Some((key, value?))),
            )
            .env("T", PROGRAM)
            .env("LC_ALL", "C.UTF-8")
            .env("ENV", tmux.scratch.path().join(PROFILE))
            .args(["-f", "/dev/null", "new-session", "-d"])
            .args(["-x", &columns.to_string(), "-y", &lines.to_string()])
            .arg("/bin/sh");
        tmux.tell(&mut command);
        tmux.until_shown("$");
        tmux
    }

    /// Runs tmux, whose server is this terminal's own: the path of its socket is short, wherever the directory is.
    fn tell(&self, command: &mut Command) -> String {
        let told = ran(command
            .current_dir(self.scratch.path())
            .env("TMUX_TMPDIR", ".")
            .env_remove("TMUX"));
        assert_eq!(told.code, 0, "{command:?}: {told:?}");
        told.out
    }

    fn ask(&self, arguments: &[&str]) -> String {
        self.tell(Command::new(&self.program).arg("-u").args(arguments))
    }

    /// Presses keys by their names: `q`, `Down`, `C-c`.
    pub(crate) fn press(&self, keys: &[&str]) {
        self.ask(&[&["send-keys"], keys].concat());
    }

    /// Types a line.
    pub(crate) fn enter(&self, line: &str) {
        self.ask(&["send-keys", "-l", line]);
        self.press(&["Enter"]);
    }

    pub(crate) fn resize(&self, columns: u16, lines: u16) {
        let (columns, lines) = (columns.to_string(), lines.to_string());
        self.ask(&["resize-window", "-x", &columns, "-y", &lines]);
    }

    /// What stands on the screen, line by line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let shown = self.ask(&["capture-pane", "-p"]);
        shown
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    /// Whether a program has the screen for itself, and whether the cursor is to be seen.
    pub(crate) fn modes(&self) -> (bool, bool) {
        let modes = self.ask(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        let (alternate, cursor) = modes.trim_end().split_once(' ').expect("two modes");
        (alternate == "1", cursor == "1")
    }

    /// Waits until the screen is so, and gives it.
    pub(crate) fn until(
        &self,
        what: &str,
        mut is_so: impl FnMut(&[String]) -> bool,
    ) -> Vec<String> {
        let start = Instant::now();
        loop {
            let lines = self.lines();
            if is_so(&lines) {
                return lines;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "never: {what} on the screen, which shows\n{}",
                lines.join("\n")
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    pub(crate) fn until_shown(&self, text: &str) -> Vec<String> {
        self.until(text, |lines| lines.iter().any(|line| line.contains(text)))
    }
}

impl Tmux {
    /// Takes the terminal away, as a window that is closed or a line that drops.
    pub(crate) fn vanish(&self) {
        let mut command = Command::new(&self.program);
        command
            .current_dir(self.scratch.path())
            .env("TMUX_TMPDIR", ".");
        let _ = command.env_remove("TMUX").arg("kill-server").output();
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // Its shell, and what that runs, end with it.
        self.vanish();
    }
}
