//! `run`: what becomes of COMMAND, and of the lock, when the lock is lost or the program dies.

use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tag_lock::LockState;

use crate::processes::{Running, lives, send, until_dead, watchman_of};
use crate::rig::{PATIENCE, Scratch, run, tag_lock, until_lock, until_true};
use crate::server::TestDatabase;
use crate::support::proxy::Proxy;

/// COMMAND with a child of its own. Each writes its process id, and into another file that SIGTERM came.
const TWO: &str = "
    sh -c 'trap \"echo told >inner.told; exit 0\" TERM; echo $$ >inner; while :; do sleep 0.05; done' &
    trap 'echo told >outer.told; exit 0' TERM
    echo $$ >outer
    while :; do sleep 0.05; done";

/// The same, and neither ends by SIGTERM.
const TWO_STUBBORN: &str = "
    sh -c 'trap \"echo told >inner.told\" TERM; echo $$ >inner; while :; do sleep 0.05; done' &
    trap 'echo told >outer.told' TERM
    echo $$ >outer
    while :; do sleep 0.05; done";

fn start(url: &str, options: &[&str], script: &str, scratch: &Scratch) -> Running {
    let mut command = tag_lock(url);
    let command = command
        .args(["run", "job"])
        .args(options)
        .args(["--", "sh", "-c", script]);
    Running::start(command.current_dir(scratch.path()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_freed_by_force_ends_the_whole_group() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let running = start(
        &database.url,
        &["--ttl", "9s", "--grace", "2m"],
        TWO,
        &scratch,
    );
    let (outer, inner) = (scratch.pid("outer"), scratch.pid("inner"));
    let freed = run(&database, &["release", "--force", "job"]);
    assert_eq!(freed.code, 0, "{freed:?}");
    let ran = running.ended();
    assert_eq!(ran.code, 79, "{ran:?}");
    assert!(
        ran.err
            .starts_with("tag-lock: the lock \"job\" was lost: the command is ended\n"),
        "{ran:?}"
    );
    assert_eq!(
        (scratch.line("outer.told"), scratch.line("inner.told")),
        ("told".into(), "told".into())
    );
    assert!(!lives(outer) && !lives(inner));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_end_is_killed_after_the_grace() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let options = ["--ttl", "9s", "--grace", "5s", "--lost-exit-code", "42"];
    let running = start(&database.url, &options, TWO_STUBBORN, &scratch);
    let (outer, inner) = (scratch.pid("outer"), scratch.pid("inner"));
    assert_eq!(run(&database, &["release", "--force", "job"]).code, 0);
    assert_eq!(scratch.line("outer.told"), "told");
    let told = Instant::now();
    assert_eq!(scratch.line("inner.told"), "told");
    assert_eq!(running.ended().code, 42);
    assert!(!lives(outer) && !lives(inner));
    // From the file to here it is less than the whole grace, by as much as the file was late.
    println!("killed {:?} after they were told", told.elapsed());
    database.remove().await;
}

/// COMMAND ends before anybody noticed: that is told, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_that_is_found_at_the_end_is_a_loss() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let script = "echo $$ >outer; while [ ! -e go ]; do sleep 0.05; done";
    let running = start(&database.url, &["--ttl", "1h"], script, &scratch);
    scratch.pid("outer");
    assert_eq!(run(&database, &["release", "--force", "job"]).code, 0);
    std::fs::write(scratch.path().join("go"), "").unwrap();
    let ran = running.ended();
    assert_eq!(ran.code, 79, "{ran:?}");
    assert!(
        ran.err
            .contains("was not held any more when the command ended"),
        "{ran:?}"
    );
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_killed_leaves_nothing_behind() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let running = start(
        &database.url,
        &["--ttl", "15s", "--grace", "2m"],
        TWO_STUBBORN,
        &scratch,
    );
    let (outer, inner) = (scratch.pid("outer"), scratch.pid("inner"));
    let watchman = watchman_of(running.pid());
    until_lock(&database, "job", LockState::Held).await;
    running.send(Signal::KILL);
    running.ended();
    // They are asked first, and are dead when the lease has ended.
    assert_eq!(
        (scratch.line("outer.told"), scratch.line("inner.told")),
        ("told".into(), "told".into())
    );
    until_dead(outer);
    until_dead(inner);
    until_dead(watchman);
    until_lock(&database, "job", LockState::Free).await;
    assert_eq!(
        run(&database, &["run", "job", "--no-wait", "--", "true"]).code,
        0
    );
    database.remove().await;
}

/// Both of ours are killed: the kernel tells COMMAND.
#[tokio::test(flavor = "multi_thread")]
async fn the_command_does_not_outlive_the_program() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let running = start(&database.url, &["--ttl", "6s"], TWO, &scratch);
    let (outer, inner) = (scratch.pid("outer"), scratch.pid("inner"));
    let watchman = watchman_of(running.pid());
    // While the program is stopped it starts no other one.
    running.send(Signal::STOP);
    send(watchman, Signal::KILL);
    running.send(Signal::KILL);
    until_dead(outer);
    assert_eq!(scratch.line("outer.told"), "told");
    send(inner, Signal::KILL);
    running.ended();
    until_lock(&database, "job", LockState::Free).await;
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_program_loses_its_lock_and_its_command() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let running = start(
        &database.url,
        &["--ttl", "6s", "--grace", "200ms"],
        TWO_STUBBORN,
        &scratch,
    );
    let (outer, inner) = (scratch.pid("outer"), scratch.pid("inner"));
    watchman_of(running.pid());
    running.send(Signal::STOP);
    // The watchman sees to it, while the program is still stopped. (COMMAND is not waited for until that runs again.)
    until_dead(outer);
    until_dead(inner);
    until_lock(&database, "job", LockState::Free).await;
    let other = run(&database, &["run", "job", "--", "true"]);
    assert_eq!(other.code, 0, "{other:?}");
    running.send(Signal::CONT);
    let ran = running.ended();
    assert_eq!(ran.code, 79, "{ran:?}");
    assert!(ran.err.contains("was lost"), "{ran:?}");
    database.remove().await;
}

/// Nobody watches: the program itself sees the loss when it runs again.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_wakes_sees_the_loss() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let running = start(
        &database.url,
        &["--ttl", "6s", "--grace", "2m"],
        TWO,
        &scratch,
    );
    let (outer, inner) = (scratch.pid("outer"), scratch.pid("inner"));
    let watchman = watchman_of(running.pid());
    running.send(Signal::STOP);
    send(watchman, Signal::KILL);
    until_lock(&database, "job", LockState::Free).await;
    assert!(lives(outer) && lives(inner));
    running.send(Signal::CONT);
    let ran = running.ended();
    assert_eq!(ran.code, 79, "{ran:?}");
    assert_eq!(
        (scratch.line("outer.told"), scratch.line("inner.told")),
        ("told".into(), "told".into())
    );
    assert!(!lives(outer) && !lives(inner));
    database.remove().await;
}

/// Many programs take a second SIGTERM as "at once".
#[tokio::test(flavor = "multi_thread")]
async fn the_command_is_asked_once() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let script =
        "trap 'echo told >>told' TERM; echo $$ >outer; while [ ! -e go ]; do sleep 0.05; done";
    let running = start(
        &database.url,
        &["--ttl", "6s", "--grace", "2m"],
        script,
        &scratch,
    );
    scratch.pid("outer");
    assert_eq!(run(&database, &["release", "--force", "job"]).code, 0);
    assert_eq!(scratch.line("told"), "told");
    // By now the watchman knows that the lease has ended.
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(scratch.read("told").as_deref(), Some("told\n"));
    std::fs::write(scratch.path().join("go"), "").unwrap();
    let ran = running.ended();
    assert_eq!(ran.code, 79, "{ran:?}");
    database.remove().await;
}

/// The program was stopped, so that the watchman asked; then it goes on, and the grace is not over.
#[tokio::test(flavor = "multi_thread")]
async fn the_command_is_asked_once_by_a_program_that_was_stopped() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let script =
        "trap 'echo told >>told' TERM; echo $$ >outer; while [ ! -e go ]; do sleep 0.05; done";
    let options = ["--ttl", "3s", "--grace", "2m"];
    let running = start(&database.url, &options, script, &scratch);
    scratch.pid("outer");
    running.send(Signal::STOP);
    assert_eq!(scratch.line("told"), "told");
    running.send(Signal::CONT);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(scratch.read("told").as_deref(), Some("told\n"));
    std::fs::write(scratch.path().join("go"), "").unwrap();
    let ran = running.ended();
    assert_eq!(ran.code, 79, "{ran:?}");
    database.remove().await;
}

/// The lease ends before the grace does: then it may be somebody else's.
#[tokio::test(flavor = "multi_thread")]
async fn a_grace_of_months_does_not_outlast_the_lease() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let running = start(
        &database.url,
        &["--ttl", "6s", "--grace", "60d"],
        TWO_STUBBORN,
        &scratch,
    );
    let (outer, inner) = (scratch.pid("outer"), scratch.pid("inner"));
    watchman_of(running.pid());
    running.send(Signal::KILL);
    running.ended();
    until_dead(outer);
    until_dead(inner);
    database.remove().await;
}

/// The watchman is killed, and then the program is stopped: there is another watchman.
#[tokio::test(flavor = "multi_thread")]
async fn another_watchman_takes_over() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let running = start(
        &database.url,
        &["--ttl", "6s", "--grace", "200ms"],
        TWO_STUBBORN,
        &scratch,
    );
    let (outer, inner) = (scratch.pid("outer"), scratch.pid("inner"));
    let first = watchman_of(running.pid());
    send(first, Signal::KILL);
    until_true("another watchman", || watchman_of(running.pid()) != first);
    running.send(Signal::STOP);
    until_dead(outer);
    until_dead(inner);
    running.send(Signal::CONT);
    assert_eq!(running.ended().code, 79);
    database.remove().await;
}

/// What is sent to the program's group does not reach the watchman; and in the instant before that is so, COMMAND has not begun.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_stopped_at_once_is_watched() {
    let database = TestDatabase::new().await;
    for _ in 0..5 {
        let scratch = Scratch::new();
        let mut command = tag_lock(&database.url);
        let command = command.args(["run", "job", "--ttl", "3s", "--grace", "0s", "--"]);
        let command = command.args(["sh", "-c", "echo $$ >outer; exec sleep 1000"]);
        let running = Running::start(command.current_dir(scratch.path()).process_group(0));
        let pid = running.pid();
        let children = || {
            let all = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let all = all.unwrap_or_default();
            all.split_whitespace().count()
        };
        let began = Instant::now();
        while children() < 2 {
            assert!(began.elapsed() < PATIENCE, "never: two children");
        }
        let group = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process_group(group, Signal::TSTP).unwrap();
        until_lock(&database, "job", LockState::Free).await;
        until_true("the end of the command", || {
            let outer = scratch.read("outer");
            outer.is_none_or(|pid| pid.trim().parse().is_ok_and(|pid| !lives(pid)))
        });
        running.send(Signal::CONT);
        assert_eq!(running.ended().code, 79);
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_reached_costs_the_lock() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let scratch = Scratch::new();
    let running = start(&proxy.url(&database.url), &["--ttl", "6s"], TWO, &scratch);
    let (outer, inner) = (scratch.pid("outer"), scratch.pid("inner"));
    proxy.refuse(true);
    proxy.cut_all();
    until_true("SIGTERM", || scratch.read("outer.told").is_some());
    // The lock can still not be freed: the program ends all the same, by its own time limits.
    proxy.refuse(false);
    let ran = running.ended();
    assert_eq!(ran.code, 79, "{ran:?}");
    assert!(!lives(outer) && !lives(inner));
    database.remove().await;
}

/// A lease that is renewed goes on for as long as COMMAND does, and its watchman leaves it alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_may_take_longer_than_the_ttl() {
    let database = TestDatabase::new().await;
    let begun = Instant::now();
    let ran = run(
        &database,
        &["run", "job", "--ttl", "9s", "--", "sleep", "11"],
    );
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(begun.elapsed() >= Duration::from_secs(11));
    database.remove().await;
}
