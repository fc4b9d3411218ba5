//! `run` of several locks, of a shared lock, and of permits.

use tag_lock::{LockClient, LockState};

use crate::processes::Running;
use crate::rig::{PROGRAM, Ran, Scratch, run, tag_lock, until_lock, until_true};
use crate::server::TestDatabase;
use crate::support::{connected, patient};

/// Writes a file of its own name's first argument, and goes on until the file `go` is there; then ends with the second one.
const UNTIL_GO: &str =
    r#"echo "${TAG_LOCK_SLOT-none}" >"$0"; while [ ! -e go ]; do sleep 0.05; done; exit "$1""#;

/// What COMMAND finds of its lock.
pub(crate) const TOLD: &str = "env | grep -E '^TAG_LOCK_(NAME|FENCING_TOKEN|SLOT)' | sort";

/// Starts a `run` that goes on until the file `go` is there, and waits until it has begun: it has written the file `name`.
pub(crate) fn begin(
    database: &TestDatabase,
    scratch: &Scratch,
    options: &[&str],
    name: &str,
    code: &str,
) -> (Running, String) {
    begin_at(&database.url, scratch, options, name, code)
}

pub(crate) fn begin_at(
    url: &str,
    scratch: &Scratch,
    options: &[&str],
    name: &str,
    code: &str,
) -> (Running, String) {
    let mut command = tag_lock(url);
    let command = command.arg("run").args(options);
    let command = command.args(["--", "sh", "-c", UNTIL_GO, name, code]);
    let running = Running::start(command.current_dir(scratch.path()));
    let slot = scratch.line(name);
    (running, slot)
}

pub(crate) fn go(scratch: &Scratch) {
    std::fs::write(scratch.path().join("go"), "").unwrap();
}

pub(crate) fn must_be(ran: &Ran, code: i32, said: &str) {
    assert!(
        ran.code == code && ran.err.contains(said),
        "{ran:?} is not {code}, {said}"
    );
}

pub(crate) async fn holder(database: &TestDatabase) -> LockClient {
    connected(patient(&database.url).holder("other")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn several_locks_are_taken_all_or_none() {
    let database = TestDatabase::new().await;
    let client = holder(&database).await;
    let guard = client.lock("b").acquire().await.unwrap();
    let some = run(
        &database,
        &["run", "a", "b", "--no-wait", "--", "echo", "ran"],
    );
    must_be(&some, 75, "one of the locks \"a\", \"b\" is taken");
    let late = run(
        &database,
        &["run", "a", "b", "--wait", "100ms", "--", "echo", "ran"],
    );
    must_be(&late, 75, "timed out waiting for lock \"b\"");
    assert_eq!((some.out.as_str(), late.out.as_str()), ("", ""));
    until_true("a is free again", || {
        run(&database, &["list", "a", "--json"]).out == "[]\n"
    });
    guard.release().await.unwrap();

    let script = format!("{TOLD}; '{PROGRAM}' list --json");
    let all = run(
        &database,
        &["run", "b", "a", "b", "--", "sh", "-c", &script],
    );
    must_be(&all, 0, "");
    let lines: Vec<&str> = all.out.lines().collect();
    let (tokens, rest) = lines.split_at(3);
    let token = |at: usize, number: u32| -> u64 {
        let head = format!("TAG_LOCK_FENCING_TOKEN_{number}=");
        let token = tokens[at].strip_prefix(&head);
        token
            .unwrap_or_else(|| panic!("{lines:?}"))
            .parse()
            .unwrap()
    };
    assert_eq!(
        token(0, 1),
        token(2, 3),
        "a name has one token however often it was given"
    );
    assert!(token(0, 1) > 0 && token(1, 2) > 0);
    let (names, held) = rest.split_at(3);
    assert_eq!(
        names,
        [
            "TAG_LOCK_NAME_1=b",
            "TAG_LOCK_NAME_2=a",
            "TAG_LOCK_NAME_3=b"
        ]
    );
    let held: serde_json::Value = serde_json::from_str(held[0]).unwrap();
    let held: Vec<(&str, &str)> = held
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| {
            (
                lock["name"].as_str().unwrap(),
                lock["state"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(held, [("a", "held"), ("b", "held")]);
    for name in ["a", "b"] {
        until_lock(&database, name, LockState::Free).await;
    }
    database.remove().await;
}

/// Some take them one way round, some the other: none waits for ever, and no two run at once.
#[tokio::test(flavor = "multi_thread")]
async fn several_locks_in_any_order() {
    const RUNS: usize = 8;
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("n"), "0").unwrap();
    let script = "n=$(cat n); mkdir alone || exit 1; sleep 0.1; echo $((n + 1)) >n; rmdir alone";
    let orders = [["a", "b"], ["b", "a"], ["b", "c"], ["a", "b"]];
    let runs: Vec<Running> = (0..RUNS)
        .map(|number| {
            let mut command = tag_lock(&database.url);
            let command = command.arg("run").args(orders[number % orders.len()]);
            Running::start(
                command
                    .args(["--", "sh", "-c", script])
                    .current_dir(scratch.path()),
            )
        })
        .collect();
    for run in runs {
        must_be(&run.ended(), 0, "");
    }
    assert_eq!(scratch.line("n"), RUNS.to_string());
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_lock_of_several_that_is_lost_ends_the_command() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let options = ["a", "b", "c", "--ttl", "9s", "--grace", "2m"];
    let (running, _) = begin(&database, &scratch, &options, "pid", "0");
    must_be(&run(&database, &["release", "--force", "b"]), 0, "");
    must_be(
        &running.ended(),
        79,
        "one of the locks \"a\", \"b\", \"c\" was lost",
    );
    for name in ["a", "b", "c"] {
        until_lock(&database, name, LockState::Free).await;
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_hold_a_lock_shared_or_one_alone() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let (first, _) = begin(&database, &scratch, &["prices", "--shared"], "first", "0");
    let (second, _) = begin(&database, &scratch, &["prices", "--shared"], "second", "4");
    let shown = run(&database, &["inspect", "prices"]);
    assert!(
        shown.out.contains("shared: others") && shown.out.contains("shared holds         2"),
        "{shown:?}"
    );
    let json = run(&database, &["inspect", "prices", "--json"]).json();
    assert_eq!(
        (&json["state"], &json["depth"]),
        (&"shared".into(), &2.into()),
        "{json}"
    );
    must_be(
        &run(&database, &["run", "prices", "--no-wait", "--", "true"]),
        75,
        "is taken",
    );
    go(&scratch);
    assert_eq!((first.ended().code, second.ended().code), (0, 4));

    std::fs::remove_file(scratch.path().join("go")).unwrap();
    let (alone, _) = begin(&database, &scratch, &["prices"], "alone", "0");
    let reader = run(
        &database,
        &["run", "prices", "--shared", "--no-wait", "--", "true"],
    );
    must_be(
        &reader,
        75,
        "the lock \"prices\" is taken, or somebody waits to have it alone",
    );
    let told = Running::start(
        tag_lock(&database.url).args(["run", "prices", "--shared", "--", "sh", "-c", TOLD]),
    );
    go(&scratch);
    assert_eq!(alone.ended().code, 0);
    let told = told.ended();
    assert!(
        told.out.contains("\nTAG_LOCK_NAME=prices\n") && told.out.lines().count() == 2,
        "{told:?}"
    );
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_lock_is_watched() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let (first, _) = begin(&database, &scratch, &["prices", "--shared"], "first", "0");
    let (second, _) = begin(&database, &scratch, &["prices", "--shared"], "second", "0");
    let mut watch = tag_lock(&database.url);
    let out = std::fs::File::create(scratch.path().join("seen")).unwrap();
    watch
        .args(["watch", "prices", "--every", "20ms"])
        .stdout(out);
    let mut watch = watch.spawn().unwrap();
    let seen = scratch.line("seen");
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(
        seen.contains("Z  shared by 2 holds, one of them of "),
        "{seen}"
    );
    go(&scratch);
    assert_eq!((first.ended().code, second.ended().code), (0, 0));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_run_at_once_and_no_more() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let options = ["api", "--permits", "2"];
    let (first, one) = begin(&database, &scratch, &options, "first", "0");
    let (second, other) = begin(&database, &scratch, &options, "second", "0");
    let mut slots = [one, other];
    slots.sort();
    assert_eq!(slots, ["0", "1"]);
    let third = run(
        &database,
        &["run", "api", "--permits", "2", "--no-wait", "--", "true"],
    );
    must_be(&third, 75, "all 2 permits of \"api\" are taken");
    let late = run(
        &database,
        &[
            "run",
            "api",
            "--permits",
            "2",
            "--wait",
            "100ms",
            "--",
            "true",
        ],
    );
    must_be(&late, 75, "timed out waiting");
    // The lock of the same name is something else.
    must_be(
        &run(&database, &["run", "api", "--no-wait", "--", "true"]),
        0,
        "",
    );
    let waiting = Running::start(tag_lock(&database.url).args([
        "run",
        "api",
        "--permits",
        "2",
        "--",
        "sh",
        "-c",
        TOLD,
    ]));
    go(&scratch);
    assert_eq!((first.ended().code, second.ended().code), (0, 0));
    let told = waiting.ended();
    let lines: Vec<&str> = told.out.lines().collect();
    assert!(
        lines.len() == 3
            && lines[0].starts_with("TAG_LOCK_FENCING_TOKEN=")
            && lines[1] == "TAG_LOCK_NAME=api"
            && ["TAG_LOCK_SLOT=0", "TAG_LOCK_SLOT=1"].contains(&lines[2]),
        "{told:?}"
    );
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_is_freed_by_force_ends_its_command() {
    let database = TestDatabase::new().await;
    let client = holder(&database).await;
    let scratch = Scratch::new();
    let options = [
        "api",
        "--permits",
        "1",
        "--ttl",
        "9s",
        "--grace",
        "2m",
        "--lost-exit-code",
        "42",
    ];
    let (running, _) = begin(&database, &scratch, &options, "pid", "0");
    assert!(client.semaphore("api", 1).force_release(0).await.unwrap());
    must_be(
        &running.ended(),
        42,
        "the permit of the semaphore \"api\" was lost",
    );
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_inside_a_run_is_told_of_its_own_lock_only() {
    let database = TestDatabase::new().await;
    let inner = format!("'{PROGRAM}' run a b -- sh -c \"$0\"");
    let outer = ["run", "outer", "--once", "1", "--", "sh", "-c"];
    let ran = run(&database, &[&outer[..], &[&inner, TOLD]].concat());
    let names: Vec<&str> = ran
        .out
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    let expected = [
        "TAG_LOCK_FENCING_TOKEN_1",
        "TAG_LOCK_FENCING_TOKEN_2",
        "TAG_LOCK_NAME_1",
        "TAG_LOCK_NAME_2",
    ];
    assert_eq!(names, expected, "{ran:?}");
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_contradict_each_other_are_refused() {
    for (options, said) in [
        (
            &["a", "b", "--shared"][..],
            "--shared is for one name, and 2 are given",
        ),
        (&["a", "b", "--permits", "2"], "--permits is for one name"),
        (&["a", "b", "--once", "1"], "--once is for one name"),
        (
            &["a", "b", "--hold-at-least", "1m"],
            "--hold-at-least is for one name",
        ),
        (&["a", "--shared", "--permits", "2"], "cannot be used with"),
        (&["a", "--shared", "--once", "1"], "cannot be used with"),
        (
            &["a", "--permits", "2", "--once", "1"],
            "cannot be used with",
        ),
        (
            &["a", "--permits", "2", "--hold-at-least", "1m"],
            "cannot be used with",
        ),
        (
            &["a", "--once", "1", "--hold-at-least", "1m"],
            "cannot be used with",
        ),
        (&["a", "--permits", "0"], "1..=1024"),
        (&["a", "--permits", "1025"], "1..=1024"),
        (&["a", "--done-exit-code", "1"], "--once"),
    ] {
        let ran = crate::rig::ran(
            tag_lock("mysql://u@127.0.0.1:1/d")
                .arg("run")
                .args(options)
                .args(["--", "true"]),
        );
        must_be(&ran, 2, said);
    }
}
