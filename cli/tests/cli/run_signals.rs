//! `run`: signals that are sent to the program.

use rustix::process::Signal;
use tag_lock::LockState;

use crate::processes::{Running, until_dead, until_stopped};
use crate::rig::{PROGRAM, Scratch, run, tag_lock, unspoilt, until_lock, until_true};
use crate::server::TestDatabase;

#[tokio::test(flavor = "multi_thread")]
async fn signals_are_passed_on() {
    let database = TestDatabase::new().await;
    for (signal, name, code) in [
        (Signal::INT, "INT", 31),
        (Signal::TERM, "TERM", 32),
        (Signal::HUP, "HUP", 33),
    ] {
        let scratch = Scratch::new();
        // COMMAND decides what becomes of it. A shell's background jobs ignore SIGINT, so this child is another one.
        let script = format!(
            "trap 'echo {name} >told; exit {code}' {name}; echo $$ >outer; while :; do sleep 0.05; done"
        );
        let mut command = tag_lock(&database.url);
        let running = Running::start(
            command
                .args(["run", "job", "--", "sh", "-c", &script])
                .current_dir(scratch.path()),
        );
        scratch.pid("outer");
        running.send(signal);
        let ran = running.ended();
        assert_eq!(ran.code, code, "{ran:?}");
        assert_eq!(scratch.line("told"), name);
        until_lock(&database, "job", LockState::Free).await;
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_reaches_what_the_command_started() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let script = "sh -c 'echo $$ >inner; exec sleep 1000' & echo $$ >outer; wait";
    let mut command = tag_lock(&database.url);
    let running = Running::start(
        command
            .args(["run", "job", "--", "sh", "-c", script])
            .current_dir(scratch.path()),
    );
    let (outer, inner) = (scratch.pid("outer"), scratch.pid("inner"));
    running.send(Signal::TERM);
    assert_eq!(running.ended().code, 143);
    until_dead(outer);
    until_dead(inner);
    assert_eq!(
        run(&database, &["run", "job", "--no-wait", "--", "true"]).code,
        0
    );
    database.remove().await;
}

/// It hears it only when it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_reaches_a_command_that_is_stopped() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let script = "trap 'exit 21' TERM; echo $$ >outer; kill -STOP $$; while :; do sleep 0.05; done";
    let mut command = tag_lock(&database.url);
    let running = Running::start(
        command
            .args(["run", "job", "--", "sh", "-c", script])
            .current_dir(scratch.path()),
    );
    let outer = scratch.pid("outer");
    until_stopped(outer);
    running.send(Signal::TERM);
    assert_eq!(running.ended().code, 21);
    database.remove().await;
}

/// A COMMAND that stays after a signal keeps the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ignores_a_signal_goes_on() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let script = "trap 'echo told >told' TERM; echo $$ >outer; while [ ! -e go ]; do sleep 0.05; done; exit 5";
    let mut command = tag_lock(&database.url);
    let running = Running::start(
        command
            .args(["run", "job", "--", "sh", "-c", script])
            .current_dir(scratch.path()),
    );
    scratch.pid("outer");
    running.send(Signal::TERM);
    assert_eq!(scratch.line("told"), "told");
    assert_eq!(
        run(&database, &["run", "job", "--no-wait", "--", "true"]).code,
        75
    );
    std::fs::write(scratch.path().join("go"), "").unwrap();
    assert_eq!(running.ended().code, 5);
    database.remove().await;
}

/// What was ignored when the program began is ignored by COMMAND, too: `nohup tag-lock run …`.
#[tokio::test(flavor = "multi_thread")]
async fn what_nohup_ignores_stays_ignored() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let script = "grep SigIgn: /proc/self/status >ignored; echo $$ >outer; while [ ! -e go ]; do sleep 0.05; done";
    let program = tag_lock(&database.url);
    let mut command = unspoilt("nohup");
    command
        .arg(PROGRAM)
        .args(["run", "job", "--", "sh", "-c", script])
        .current_dir(scratch.path());
    command.envs(
        program
            .get_envs()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    let running = Running::start(&mut command);
    scratch.pid("outer");
    let ignored = scratch.line("ignored");
    let mask = u64::from_str_radix(ignored.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert_eq!(mask & 1, 1, "{ignored}");
    running.send(Signal::HUP);
    std::fs::write(scratch.path().join("go"), "").unwrap();
    assert_eq!(running.ended().code, 0);
    database.remove().await;
}

/// Before COMMAND runs, a signal ends the program, and nothing is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_wait() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let guard = client.lock("job").acquire().await.unwrap();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut command = tag_lock(&database.url);
        let running = Running::start(command.args(["run", "job", "--", "echo", "ran"]));
        // It has connected, or has not yet: it ends all the same. Its handlers have to be there.
        until_true("the handlers", || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid()))
                .unwrap_or_default();
            let caught = status
                .lines()
                .find_map(|line| line.strip_prefix("SigCgt:"))
                .unwrap_or_default();
            u64::from_str_radix(caught.trim(), 16)
                .is_ok_and(|mask| mask & 0b100_0000_0000_0010 == 0b100_0000_0000_0010)
        });
        running.send(signal);
        let ran = running.ended();
        assert_eq!((ran.code, ran.out.as_str()), (code, ""));
    }
    guard.release().await.unwrap();
    database.remove().await;
}

/// Some programs start others with SIGCHLD ignored: then the kernel forgets how a child ended.
#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_is_known_where_children_are_ignored() {
    let database = TestDatabase::new().await;
    let program = tag_lock(&database.url);
    let mut command = unspoilt("env");
    command.arg("--ignore-signal=CHLD").arg(PROGRAM);
    command.args(["run", "job", "--", "sh", "-c", "exit 7"]);
    command.envs(
        program
            .get_envs()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    let ran = Running::start(&mut command).ended();
    assert_eq!(ran.code, 7, "{ran:?}");
    database.remove().await;
}
