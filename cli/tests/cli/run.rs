//! `run`: what COMMAND gets, what comes back, and that only one runs.

use std::io::Write;
use std::process::{Command, Stdio};

use tag_lock::LockState;

use crate::processes::Running;
use crate::rig::{Scratch, ran, run, tag_lock, unspoilt, until_lock};
use crate::server::TestDatabase;

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_is_the_commands() {
    let database = TestDatabase::new().await;
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
    ] {
        let ran = run(&database, &["run", "job", "--", "sh", "-c", script]);
        assert_eq!((ran.code, ran.err.as_str()), (code, ""), "{script}");
    }
    let missing = run(&database, &["run", "job", "--", "/nowhere/to/be/found"]);
    assert!(
        missing.code == 127 && missing.err.contains("cannot be run"),
        "{missing:?}"
    );
    let directory = run(&database, &["run", "job", "--", "/tmp"]);
    assert_eq!(directory.code, 126, "{directory:?}");
    let for_programs = run(&database, &["run", "job", "--json", "--", "/tmp"]);
    let told: serde_json::Value = serde_json::from_str(&for_programs.err).unwrap();
    let message = told["error"]["message"].as_str().unwrap();
    assert!(message.contains("/tmp cannot be run"), "{for_programs:?}");
    until_lock(&database, "job", LockState::Free).await;
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_is_told_the_lock_and_its_token() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let script = r#"printf '%s %s %s\n' "$TAG_LOCK_NAME" "$TAG_LOCK_FENCING_TOKEN" "$1""#;
    let mut last = 0;
    for _ in 0..2 {
        let ran = run(
            &database,
            &["run", "a job", "--", "sh", "-c", script, "sh", "it's $HOME"],
        );
        assert_eq!(ran.code, 0, "{ran:?}");
        let words = ran.out.strip_prefix("a job ").expect("the name");
        let (token, argument) = words.trim_end().split_once(' ').expect("the token");
        assert_eq!(argument, "it's $HOME");
        let token: u64 = token.parse().expect("a token");
        assert!(token > last);
        last = token;
    }
    let lock = client
        .inspect("a job")
        .await
        .unwrap()
        .expect("it was taken");
    assert_eq!(
        (lock.state, lock.description.as_str()),
        (LockState::Free, "sh")
    );
    assert!(lock.highest_fencing_token >= last);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_begins_as_others_do() {
    let database = TestDatabase::new().await;
    // No signal is ignored or held off, and what is written goes where it would go without the lock.
    let script = "grep -E '^Sig(Blk|Ign):' /proc/self/status; cat";
    let printed = |command: &mut Command| {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(b"passed on\n")
            .unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let usual = printed(unspoilt("sh").args(["-c", script]));
    assert!(usual.ends_with("passed on\n"), "{usual}");
    assert_eq!(
        printed(tag_lock(&database.url).args(["run", "job", "--", "sh", "-c", script])),
        usual
    );
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_taken_is_a_conflict() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let guard = client.lock("job").acquire().await.unwrap();
    let scratch = Scratch::new();
    let ran_at = scratch.path().join("ran");
    let touch = ["--", "touch", ran_at.to_str().unwrap()];
    for (options, code) in [
        (&["--no-wait"][..], 75),
        (&["--wait", "100ms"], 75),
        (&["--no-wait", "--conflict-exit-code", "9"], 9),
    ] {
        let ran = run(&database, &[&["run", "job"], options, &touch].concat());
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(
            ran.err.starts_with("tag-lock: ") && ran.err.contains("\"job\""),
            "{ran:?}"
        );
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    }
    assert!(!ran_at.exists());
    // One that waits gets it.
    let waiting = Running::start(
        tag_lock(&database.url)
            .args(["run", "job", "--wait", "2m"])
            .args(touch),
    );
    guard.release().await.unwrap();
    assert_eq!(waiting.ended().code, 0);
    assert!(ran_at.exists());
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_commands_never_run_at_once() {
    const RUNS: usize = 8;
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("n"), "0").unwrap();
    // An increment with time in the middle of it: two at once would lose one.
    let script = "n=$(cat n); mkdir alone || exit 1; sleep 0.1; echo $((n + 1)) >n; rmdir alone";
    let runs: Vec<Running> = (0..RUNS)
        .map(|_| {
            let mut command = tag_lock(&database.url);
            Running::start(
                command
                    .args(["run", "job", "--", "sh", "-c", script])
                    .current_dir(scratch.path()),
            )
        })
        .collect();
    for run in runs {
        let ran = run.ended();
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    assert_eq!(scratch.line("n"), RUNS.to_string());
    database.remove().await;
}

/// A job that several machines start at about the same time.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_stays_taken_for_its_minimum() {
    let database = TestDatabase::new().await;
    let first = run(
        &database,
        &[
            "run",
            "nightly",
            "--no-wait",
            "--hold-at-least",
            "1h",
            "--",
            "echo",
            "ran",
        ],
    );
    assert_eq!((first.code, first.out.as_str()), (0, "ran\n"));
    until_lock(&database, "nightly", LockState::Kept).await;
    let second = run(
        &database,
        &[
            "run",
            "nightly",
            "--no-wait",
            "--hold-at-least",
            "1h",
            "--",
            "echo",
            "ran",
        ],
    );
    assert_eq!((second.code, second.out.as_str()), (75, ""));
    // Nobody holds it any more whom a renewal could tell.
    let freed = run(&database, &["release", "--force", "nightly"]);
    assert!(
        freed.code == 0 && freed.out.ends_with("had released it, and it was kept\n"),
        "{freed:?}"
    );
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said_before_anything_runs() {
    let database = TestDatabase::empty().await;
    let ran_first = run(&database, &["run", "job", "--", "echo", "ran"]);
    assert_eq!((ran_first.code, ran_first.out.as_str()), (125, ""));
    assert!(
        ran_first.err.contains("run `tag-lock migrate` once"),
        "{ran_first:?}"
    );
    let away = ran(tag_lock("mysql://u@127.0.0.1:1/d").args(["run", "job", "--", "echo", "ran"]));
    assert_eq!((away.code, away.out.as_str()), (125, ""));
    assert!(away.err.contains("cannot be reached"), "{away:?}");
    for arguments in [
        &["run", "job"][..],
        &["run", "job", "--wait", "1s", "--no-wait", "--", "true"],
        &["run", "--", "true"],
    ] {
        assert_eq!(run(&database, arguments).code, 2, "{arguments:?}");
    }
    let short = run(
        &database,
        &["run", "job", "--ttl", "1ms", "--", "echo", "ran"],
    );
    assert!(
        short.code == 2 && short.err.contains("at least 50ms"),
        "{short:?}"
    );
    database.remove().await;
}
