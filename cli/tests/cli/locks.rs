//! `list`, `inspect`, `watch` and `release`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tag_lock::LockClient;

use crate::rig::{PROGRAM, Scratch, run, tag_lock, unspoilt, until_true};
use crate::server::TestDatabase;
use crate::support::{connected, patient};

async fn holder(database: &TestDatabase) -> LockClient {
    connected(patient(&database.url).holder("billing-3")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_taken_is_listed() {
    let database = TestDatabase::new().await;
    let none = run(&database, &["list"]);
    assert_eq!((none.code, none.out.as_str()), (0, "no lock is taken\n"));
    assert_eq!(
        run(&database, &["list", "--json"]).json(),
        Value::Array(Vec::new())
    );
    let client = holder(&database).await;
    let mut guards = Vec::new();
    for name in [
        "job:a",
        "job:b",
        "jo",
        "job",
        "jp",
        "a",
        "Job:a",
        "job:\u{1}",
        "größe",
    ] {
        guards.push(
            client
                .lock(name)
                .description("nightly")
                .acquire()
                .await
                .unwrap(),
        );
    }
    let names = |arguments: &[&str]| -> Vec<String> {
        let ran = run(&database, &[&["list", "--json"], arguments].concat());
        let json = ran.json();
        json.as_array()
            .unwrap()
            .iter()
            .map(|lock| lock["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&[]).len(), 9);
    assert_eq!(names(&["job:"]), ["job:\u{1}", "job:a", "job:b"]);
    assert_eq!(names(&["job"]), ["job", "job:\u{1}", "job:a", "job:b"]);
    assert_eq!(names(&["jo"]).len(), 5);
    assert_eq!(names(&["nothing"]), [""; 0]);
    let table = run(&database, &["list", "gr"]);
    let lines: Vec<&str> = table.out.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("NAME   STATE  HELD BY    LEFT"),
        "{table:?}"
    );
    assert!(
        lines[1].starts_with("größe  held   billing-3  ") && lines[1].ends_with("nightly"),
        "{table:?}"
    );
    // Nothing that steers a terminal is printed.
    assert!(run(&database, &["list", "job:"]).out.contains(r"job:\u{1}"));
    drop(guards);
    database.remove().await;
}

/// Pages are longer than one query gives.
#[tokio::test(flavor = "multi_thread")]
async fn many_locks_are_listed() {
    let database = TestDatabase::new().await;
    let client = holder(&database).await;
    let acquired = (0..1_100).map(|lock| {
        client
            .lock(&format!("job:{lock:04}"))
            .ttl(Duration::from_secs(3_600))
            .acquire()
    });
    let guards = futures_util::future::join_all(acquired).await;
    assert!(guards.iter().all(Result::is_ok));
    assert_eq!(
        run(&database, &["list", "--json"])
            .json()
            .as_array()
            .unwrap()
            .len(),
        1_100
    );
    assert_eq!(
        run(&database, &["list", "job:10", "--json"])
            .json()
            .as_array()
            .unwrap()
            .len(),
        100
    );
    drop(guards);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_shown() {
    let database = TestDatabase::new().await;
    let never = run(&database, &["inspect", "job"]);
    assert_eq!(
        (never.code, never.out.as_str()),
        (3, "job was never taken\n")
    );
    assert_eq!(
        run(&database, &["inspect", "job", "--json"]).json()["state"],
        "never_taken"
    );
    let client = holder(&database).await;
    let request = client
        .lock("job")
        .description("nightly")
        .ttl(Duration::from_secs(600));
    let guard = request.acquire().await.unwrap();
    let held = run(&database, &["inspect", "job"]);
    assert_eq!(held.code, 0);
    for part in ["held", "billing-3", "nightly", "ends unless renewed"] {
        assert!(held.out.contains(part), "{part}: {held:?}");
    }
    let json = run(&database, &["inspect", "job", "--json"]).json();
    assert_eq!(
        (&json["state"], &json["held_by"]),
        (&"held".into(), &"billing-3".into())
    );
    assert!(
        json["remaining_seconds"].as_f64().unwrap() > 1.0
            && json["highest_fencing_token"].as_u64().unwrap() > 0,
        "{json}"
    );
    guard.release().await.unwrap();
    let free = run(&database, &["inspect", "job"]);
    assert!(
        free.code == 0 && free.out.contains("free") && free.out.contains("held last by"),
        "{free:?}"
    );
    let invalid = run(&database, &["inspect", "a "]);
    assert!(
        invalid.code == 2 && invalid.err.contains("invalid name"),
        "{invalid:?}"
    );
    database.remove().await;
}

/// The column WANTED of each lock in a list, by its head.
fn wanted_in_list(out: &str) -> Vec<String> {
    let head = out.lines().next().unwrap();
    let (from, to) = (head.find("WANTED").unwrap(), head.find("HIGHEST").unwrap());
    let rows = out.lines().skip(1);
    rows.map(|row| row[from..to].trim().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_somebody_waits_for_is_wanted() {
    let database = TestDatabase::new().await;
    let (client, other) = (holder(&database).await, holder(&database).await);
    let wanted = client.lock("a").acquire().await.unwrap();
    let unwanted = client.lock("b").acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock("a").shared().acquire());
    until_true("a wish", || {
        let json = run(&database, &["inspect", "a", "--json"]).json();
        !json["wanted"].is_null()
    });
    let list = run(&database, &["list"]);
    assert_eq!(wanted_in_list(&list.out), ["urgently", ""], "{list:?}");
    let json = run(&database, &["list", "--json"]).json();
    assert_eq!(json[0]["wanted"], "urgent", "{json}");
    let seconds = json[0]["wanted_remaining_seconds"].as_f64().unwrap();
    assert!(seconds > 20.0 && seconds <= 90.0, "{json}");
    let until = json[0]["wanted_until"].as_str().unwrap();
    assert!(until > json[0]["modified"].as_str().unwrap(), "{json}");
    for field in ["wanted", "wanted_until", "wanted_remaining_seconds"] {
        assert!(
            json[1][field].is_null() && json[1].get(field).is_some(),
            "{json}"
        );
    }
    for (name, words) in [
        ("a", "urgently, by somebody who waits"),
        ("b", "by nobody, as far as"),
    ] {
        let shown = run(&database, &["inspect", name]);
        assert!(shown.out.contains(words), "{shown:?}");
    }
    wanted.release().await.unwrap();
    drop((waiting.await.unwrap().unwrap(), unwanted));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_freed_by_force() {
    let database = TestDatabase::new().await;
    let client = holder(&database).await;
    assert_eq!(run(&database, &["release", "job"]).code, 2);
    let none = run(&database, &["release", "--force", "job"]);
    assert_eq!((none.code, none.out.as_str()), (3, "job was not taken\n"));
    let guard = client.lock("job").acquire().await.unwrap();
    let freed = run(&database, &["release", "--force", "job"]);
    assert!(
        freed.code == 0 && freed.out.starts_with("job is free; billing-3 is told"),
        "{freed:?}"
    );
    let again = client.lock("other").acquire().await.unwrap();
    let json = run(&database, &["release", "--force", "other", "--json"]).json();
    assert_eq!(
        (&json["released"], &json["was_held_by"]),
        (&true.into(), &"billing-3".into())
    );
    drop((guard, again));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_printed_as_they_happen() {
    let database = TestDatabase::new().await;
    let client = holder(&database).await;
    let mut watch = tag_lock(&database.url)
        .args(["watch", "job", "--json", "--every", "20ms"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut seen = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(seen()["lock"]["state"], "never_taken");
    // It is renewed meanwhile, which is no change.
    let guard = client
        .lock("job")
        .ttl(Duration::from_secs(6))
        .acquire()
        .await
        .unwrap();
    let first = seen();
    assert_eq!(
        (&first["lock"]["state"], &first["lock"]["held_by"]),
        (&"held".into(), &"billing-3".into())
    );
    tokio::time::sleep(Duration::from_secs(3)).await;
    // On a machine that is too busy to renew it, the lease has ended; then it is seen as free, too.
    let _ = guard.release().await;
    assert_eq!(seen()["lock"]["state"], "free");
    let guard = client.lock("job").acquire().await.unwrap();
    let second = seen();
    assert_eq!(second["lock"]["state"], "held");
    assert!(
        second["lock"]["highest_fencing_token"].as_u64()
            > first["lock"]["highest_fencing_token"].as_u64()
    );
    drop(guard);
    watch.kill().unwrap();
    watch.wait().unwrap();
    database.remove().await;
}

/// `tag-lock list | head -1` is no error.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_may_leave() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let script = "\"$0\" watch job --every 20ms 2>err | head -n 1";
    let mut command = unspoilt("sh");
    let program = tag_lock(&database.url);
    command
        .args(["-c", script])
        .arg(PROGRAM)
        .current_dir(scratch.path());
    command.envs(
        program
            .get_envs()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    command.stdout(Stdio::piped());
    let client = holder(&database).await;
    let mut running = command.spawn().unwrap();
    let mut first = String::new();
    BufReader::new(running.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.contains("was never taken"), "{first}");
    // Its next line meets nobody.
    let guard = client.lock("job").acquire().await.unwrap();
    running.wait().unwrap();
    assert_eq!(scratch.read("err").as_deref(), Some(""));
    drop(guard);
    database.remove().await;
}

/// Of shared holds that have ended it is not known which one was the last.
#[tokio::test(flavor = "multi_thread")]
async fn who_held_it_shared_last_is_not_made_up() {
    let database = TestDatabase::new().await;
    let ran = run(&database, &["run", "job", "--shared", "--", "true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let shown = run(&database, &["inspect", "job"]);
    assert!(
        shown.out.contains("free") && !shown.out.contains("held last by"),
        "{shown:?}"
    );
    database.remove().await;
}

/// Somebody else wrote the description.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_does_not_steer_the_terminal() {
    let database = TestDatabase::new().await;
    let client = holder(&database).await;
    let lock = client.lock("job").description("two\nlines \u{1b}[2J");
    let guard = lock.acquire().await.unwrap();
    let ran = run(&database, &["run", "job", "--wait", "100ms", "--", "true"]);
    assert_eq!(ran.code, 75, "{ran:?}");
    assert!(
        ran.err.contains("two") && !ran.err.contains('\u{1b}') && ran.err.lines().count() == 1,
        "{ran:?}"
    );
    drop(guard);
    database.remove().await;
}

/// Whoever finds them wrong: a script tells a mistake from a server that is away.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_the_library_refuses_are_wrong() {
    let database = TestDatabase::new().await;
    for arguments in [
        &["run", "", "--", "true"][..],
        &["run", "job", "--ttl", "1ms", "--", "true"],
        &["run", "job", "--ttl", "11y", "--", "true"],
        &["run", "a@b", "--once", "slot", "--", "true"],
        &["purge", "--older-than", "59m"],
        &["doctor", "--older-than", "1m"],
        &["counter", "add", "n", "--window", "11y"],
        &["counter", "add", "n", "--once", "id", "--retention", "1s"],
        &[
            "counter",
            "add-within",
            "n",
            "1",
            "--min",
            "5",
            "--max",
            "1",
        ],
        &["list", "--request-timeout", "11y"],
    ] {
        let ran = run(&database, arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
    }
    database.remove().await;
}
