//! `list`, `inspect` and `release` of permits of semaphores and of slots of jobs.

use tag_lock::{Error, RunOnce};

use crate::rig::{ran, run, tag_lock};
use crate::run_kinds::holder;
use crate::server::TestDatabase;

#[tokio::test(flavor = "multi_thread")]
async fn permits_are_listed_and_freed() {
    let database = TestDatabase::new().await;
    let client = holder(&database).await;
    assert_eq!(
        run(&database, &["list", "api", "--permits"]).out,
        "no permit is taken\n"
    );
    let api = client.semaphore("api", 3);
    let permits = [api.acquire().await.unwrap(), api.acquire().await.unwrap()];
    // Of another semaphore, and a lock that is called like one.
    let _other = client.semaphore("api2", 1).acquire().await.unwrap();
    let _lock = client.lock("api#1").acquire().await.unwrap();
    let listed = || {
        let listed = run(&database, &["list", "api", "--permits", "--json"]).json();
        let listed = listed.as_array().unwrap().clone();
        let names = listed.iter().map(|permit| {
            assert_eq!(permit["state"], "held");
            permit["name"].as_str().unwrap().to_owned()
        });
        names.collect::<Vec<_>>()
    };
    let mut slots = permits.each_ref().map(|permit| permit.slot());
    slots.sort_unstable();
    assert_eq!(listed(), slots.map(|slot| format!("api#{slot}")));
    let table = run(&database, &["list", "api", "--permits"]).out;
    assert_eq!(table.lines().count(), 3, "{table}");

    let first = slots[0].to_string();
    let release = ["release", "api", "--force", "--permit", &first];
    let freed = run(&database, &[&release[..], &["--json"]].concat());
    assert_eq!((freed.code, &freed.json()["released"]), (0, &true.into()));
    assert_eq!(freed.json()["name"], format!("api#{first}"));
    assert!(!freed.json()["was_held_by"].as_str().unwrap().is_empty());
    assert_eq!(listed(), [format!("api#{}", slots[1])]);
    assert_eq!(run(&database, &release).code, 3);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_of_jobs_are_listed_shown_and_freed() {
    let database = TestDatabase::new().await;
    let client = holder(&database).await;
    let run = |arguments: &[&str]| run(&database, arguments);
    assert!(
        run(&["list", "invoices", "--slots"])
            .out
            .starts_with("no slot is done")
    );
    let never = run(&["inspect", "invoices", "--once", "1"]);
    assert_eq!(
        (never.code, never.out.as_str()),
        (3, "invoices@1 was never taken\n")
    );
    // More than a page of them.
    for slot in 0..501 {
        let slot = client.job("invoices").slot(format!("{slot:03}"));
        let ran = slot.run_once(async |_| Ok::<_, Error>(())).await.unwrap();
        assert!(matches!(ran, RunOnce::Done(())), "{ran:?}");
    }
    // In the server's order it comes behind all of them, and before what else begins with `invoicesA`.
    let other = client.job("invoicesA\t").slot("1");
    let ran = other.run_once(async |_| Ok::<_, Error>(())).await.unwrap();
    assert!(matches!(ran, RunOnce::Done(())), "{ran:?}");
    let at_work = client.job("invoices").slot("later");
    let (begun, is_begun) = tokio::sync::oneshot::channel();
    let working = tokio::spawn(async move {
        let work = async |_| {
            let _ = begun.send(());
            std::future::pending::<Result<(), Error>>().await
        };
        at_work.run_once(work).await
    });
    is_begun.await.unwrap();
    let listed = run(&["list", "invoices", "--slots", "--json"]).json();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 502);
    let last = &listed[501];
    assert_eq!(
        (&last["name"], &last["state"]),
        (&"invoices@later".into(), &"held".into())
    );
    assert!(listed[..501].iter().all(|slot| slot["state"] == "done"));
    let shown = run(&["inspect", "invoices", "--once", "007"]).out;
    assert!(
        shown.contains("done: nobody runs it again") && shown.contains("held last by"),
        "{shown}"
    );
    assert!(!shown.contains("ends"), "{shown}");

    let freed = run(&["release", "invoices", "--force", "--once", "007"]);
    assert!(
        freed.code == 0 && freed.out.contains("had done it"),
        "{freed:?}"
    );
    assert!(!client.job("invoices").slot("007").is_done().await.unwrap());
    assert_eq!(
        run(&["release", "invoices", "--force", "--once", "007"]).code,
        3
    );
    let again = run(&["run", "invoices", "--once", "007", "--", "echo", "again"]);
    assert_eq!((again.code, again.out.as_str()), (0, "again\n"));
    working.abort();
    database.remove().await;
}

#[test]
fn kinds_that_contradict_each_other_are_refused() {
    for arguments in [
        &["list", "--permits"][..],
        &["list", "--slots"],
        &["list", "a", "--permits", "--slots"],
        &["release", "a", "--force", "--once", "1", "--permit", "1"],
        &["release", "a", "--force", "--permit", "1024"],
        &["release", "a", "--permit", "1"],
    ] {
        let refused = ran(tag_lock("mysql://localhost/shop").args(arguments));
        assert_eq!(refused.code, 2, "{arguments:?}: {refused:?}");
    }
}
