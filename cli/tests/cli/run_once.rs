//! `run --once`: slots of jobs, which are done once.

use rustix::process::Signal;

use crate::processes::{Running, lives, until_dead};
use crate::rig::{Scratch, run, tag_lock};
use crate::run_kinds::{TOLD, begin, begin_at, go, holder, must_be};
use crate::server::TestDatabase;
use crate::support::proxy::Proxy;

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_is_done_once() {
    let database = TestDatabase::new().await;
    let client = holder(&database).await;
    let slot = client.job("invoices").slot("2026-11-23");
    let once = |options: &[&str], script: &str| {
        let head = ["run", "invoices", "--once", "2026-11-23"];
        run(
            &database,
            &[&head[..], options, &["--", "sh", "-c", script]].concat(),
        )
    };
    // What fails is not done.
    must_be(&once(&[], "exit 7"), 7, "");
    must_be(&once(&[], "kill -TERM $$"), 143, "");
    assert_eq!(
        run(
            &database,
            &["run", "invoices", "--once", "2026-11-23", "--", "/nowhere"]
        )
        .code,
        127
    );
    assert!(!slot.is_done().await.unwrap());
    let first = once(&[], TOLD);
    must_be(&first, 0, "");
    assert!(
        first
            .out
            .ends_with("\nTAG_LOCK_NAME=invoices\nTAG_LOCK_SLOT=2026-11-23\n"),
        "{first:?}"
    );
    assert!(slot.is_done().await.unwrap());
    let again = once(&[], "echo ran");
    must_be(
        &again,
        0,
        "the slot \"2026-11-23\" of the job \"invoices\" is done already",
    );
    let told = once(&["--no-wait", "--done-exit-code", "9"], "echo ran");
    must_be(&told, 9, "is done already");
    assert_eq!((again.out.as_str(), told.out.as_str()), ("", ""));
    // Another slot is another one.
    assert_eq!(
        run(
            &database,
            &[
                "run",
                "invoices",
                "--once",
                "2026-11-24",
                "--",
                "echo",
                "ran"
            ]
        )
        .out,
        "ran\n"
    );
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_slot_runs_it_if_the_other_fails() {
    for (code, out) in [("5", "ran\n"), ("0", "")] {
        let database = TestDatabase::new().await;
        let scratch = Scratch::new();
        let (first, _) = begin(&database, &scratch, &["job", "--once", "1"], "first", code);
        let busy = run(
            &database,
            &["run", "job", "--once", "1", "--no-wait", "--", "true"],
        );
        must_be(
            &busy,
            75,
            "the slot \"1\" of the job \"job\" is not done, and somebody else is at it",
        );
        let busy = run(
            &database,
            &["run", "job", "--once", "1", "--wait", "100ms", "--", "true"],
        );
        must_be(&busy, 75, "somebody else is at it");
        let waiting = Running::start(
            tag_lock(&database.url).args(["run", "job", "--once", "1", "--", "echo", "ran"]),
        );
        go(&scratch);
        assert_eq!(first.ended().code.to_string(), code);
        let waited = waiting.ended();
        assert_eq!((waited.code, waited.out.as_str()), (0, out), "{waited:?}");
        database.remove().await;
    }
}

/// A signal is COMMAND's: what it ended is not done.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_whose_command_was_ended_is_not_done() {
    let database = TestDatabase::new().await;
    let client = holder(&database).await;
    let scratch = Scratch::new();
    let slot = client.job("job").slot("1");
    let (running, _) = begin(&database, &scratch, &["job", "--once", "1"], "first", "0");
    running.send(Signal::TERM);
    assert_eq!(running.ended().code, 143);
    // Somebody takes the slot away: the group is ended, and what it did is not recorded.
    let options = ["job", "--once", "1", "--ttl", "9s", "--grace", "2m"];
    let (running, _) = begin(&database, &scratch, &options, "second", "0");
    assert!(slot.reset().await.unwrap());
    must_be(
        &running.ended(),
        79,
        "the slot \"1\" of the job \"job\" was lost",
    );
    assert!(!slot.is_done().await.unwrap());
    // The program dies: so does its command, and another one may take the slot.
    let script = "echo $$ >pid; while :; do sleep 0.05; done";
    let mut command = tag_lock(&database.url);
    let command = command.args([
        "run", "job", "--once", "1", "--ttl", "6s", "--", "sh", "-c", script,
    ]);
    let running = Running::start(command.current_dir(scratch.path()));
    let pid = scratch.pid("pid");
    assert!(lives(pid));
    running.send(Signal::KILL);
    running.ended();
    until_dead(pid);
    must_be(
        &run(&database, &["run", "job", "--once", "1", "--", "true"]),
        0,
        "",
    );
    assert!(slot.is_done().await.unwrap());
    database.remove().await;
}

/// COMMAND has succeeded, and nobody can be told: that is no success.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_could_not_be_recorded_is_told() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let scratch = Scratch::new();
    // Long enough for the slow to begin in, short enough to wait for its end.
    let options = [
        "job",
        "--once",
        "1",
        "--ttl",
        "1h",
        "--request-timeout",
        "5s",
    ];
    let (running, _) = begin_at(&proxy.url(&database.url), &scratch, &options, "first", "0");
    proxy.refuse(true);
    proxy.cut_all();
    go(&scratch);
    must_be(
        &running.ended(),
        79,
        "the slot \"1\" of the job \"job\" may not be recorded as done, and be run again",
    );
    database.remove().await;
}
