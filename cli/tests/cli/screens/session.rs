//! Somebody at a terminal, who types one line after the other.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sqlx::mysql::MySqlConnection;

use crate::rig::{PROGRAM, Scratch, tag_lock, unspoilt, until};
use crate::server::TestDatabase;
use crate::support::number;

/// What all lines print goes into this file, as it would on a screen.
const SCREEN: &str = "screen";
/// But what a `watch` in the background prints: it comes to the screen behind the line that brought it, whichever was faster.
const WATCHED: &str = "watched";

/// How many locks, permits, slots of jobs, and shared holds are held.
const HELD: &str = "SELECT COUNT(*) FROM t_tag_lock WHERE kind IN (1,4,5,6) AND status=1 AND deadline>UTC_TIMESTAMP(6)";
/// How many locks somebody waits for.
const WANTED: &str =
    "SELECT COUNT(*) FROM t_tag_lock WHERE kind=1 AND wanted_until>UTC_TIMESTAMP(6)";

/// Programs that the screens run under locks.
const PROGRAMS: [(&str, &str); 4] = [
    (
        "send-invoices",
        "echo \"invoices of ${TAG_LOCK_SLOT:-today} sent\"",
    ),
    (
        "call-partner",
        "echo \"a call under permit $TAG_LOCK_SLOT\"",
    ),
    (
        "transfer",
        "echo \"from $TAG_LOCK_NAME_1 to $TAG_LOCK_NAME_2\"",
    ),
    ("import-prices", "exec sleep 600"),
];

pub(crate) struct Session {
    scratch: Scratch,
    url: String,
    connection: MySqlConnection,
    /// What goes on in the background.
    running: Vec<Child>,
    /// How many changes a `watch` has printed that are on the screen; none if there is no `watch`.
    changes: Option<usize>,
}

impl Session {
    pub(crate) async fn begin(database: &TestDatabase) -> Self {
        let scratch = Scratch::new();
        for (name, script) in PROGRAMS {
            let path = scratch.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink(PROGRAM, scratch.path().join("tag-lock")).unwrap();
        Self {
            scratch,
            url: database.url.clone(),
            connection: database.connection().await,
            running: Vec::new(),
            changes: None,
        }
    }

    /// Types a line, and waits for what it does: for the end of a program, or for the lock of one that goes on in the background, or for the wish of
    /// one that waits there. If changes are watched there, each line brings one.
    pub(crate) async fn enter(&mut self, line: &str) {
        self.print(&format!("$ {line}\n"));
        match line.strip_suffix(" &") {
            Some(line) => {
                let is_watch = line.contains("tag-lock watch");
                let counts = if line.contains(" --wait ") {
                    WANTED
                } else {
                    HELD
                };
                let before = self.count(counts).await;
                let mut shell = self.shell(&format!("exec {line}"));
                if is_watch {
                    shell.stdout(self.file(WATCHED));
                    self.changes = Some(0);
                }
                self.running.push(shell.spawn().unwrap());
                if !is_watch {
                    self.until(counts, before + 1).await;
                }
            }
            None => {
                // So that no shell has a word of its own to say of the end.
                let ended = self.shell(&format!("exec {line}")).status().unwrap();
                match (ended.code(), ended.signal()) {
                    (Some(0), _) => {}
                    (Some(code), _) => self.print(&format!("(exit code {code})\n")),
                    (None, signal) => self.print(&format!(
                        "(ended by signal {})\n",
                        signal.unwrap_or_default()
                    )),
                }
            }
        }
        if let Some(seen) = self.changes {
            let change = until("a change is seen", || {
                let watched = self.scratch.read(WATCHED)?;
                let line = watched.lines().nth(seen)?;
                watched.ends_with('\n').then(|| line.to_owned())
            });
            self.print(&format!("{change}\n"));
            self.changes = Some(seen + 1);
        }
    }

    /// Ends what goes on, and gives what was printed before.
    pub(crate) fn end(mut self) -> String {
        let screen = self.scratch.read(SCREEN).unwrap();
        for running in &mut self.running {
            let pid = i32::try_from(running.id()).ok().and_then(Pid::from_raw);
            let _ = kill_process(pid.unwrap(), Signal::TERM);
            running.wait().unwrap();
        }
        self.running.clear();
        screen
    }

    fn shell(&self, line: &str) -> Command {
        let program = tag_lock(&self.url);
        let mut shell = unspoilt("sh");
        shell
            .args(["-c", line])
            .current_dir(self.scratch.path())
            .envs(
                program
                    .get_envs()
                    .filter_map(|(key, value)| Some((key, value?))),
            )
            .env(
                "PATH",
                format!(
                    "{}:{}",
                    self.scratch.path().display(),
                    std::env::var("PATH").unwrap()
                ),
            )
            .stdin(std::process::Stdio::null())
            .stdout(self.file(SCREEN))
            .stderr(self.file(SCREEN));
        shell
    }

    fn file(&self, name: &str) -> File {
        let path = self.scratch.path().join(name);
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap()
    }

    fn print(&self, text: &str) {
        self.file(SCREEN).write_all(text.as_bytes()).unwrap();
    }

    async fn count(&mut self, sql: &str) -> i64 {
        number(&mut self.connection, sql).await
    }

    async fn until(&mut self, sql: &str, count: i64) {
        while self.count(sql).await < count {
            for running in &mut self.running {
                let ended = running.try_wait().unwrap();
                assert!(
                    ended.is_none(),
                    "a program in the background has ended: {ended:?}"
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for running in &mut self.running {
            let _ = running.kill();
            let _ = running.wait();
        }
    }
}
