//! Additions that were doubled, forgotten or refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use tag_lock::Error;

use crate::support::proxy::{Command, Fault, FaultKind, Proxy, Upstream};
use crate::support::{TestDatabase, connected, is_batch, patient, run};

type Flag = Arc<AtomicBool>;

/// A lane whose row is gone must not run a batch without a number, and then again.
#[tokio::test]
async fn a_lane_without_its_row_doubles_nothing() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let counter = client.counter("a");
    let mut connection = database.connection().await;
    for value in 1..=5 {
        assert_eq!(counter.add(1).await.unwrap(), value);
        run(&mut connection, "DELETE FROM t_tag_lock_lane").await;
        client
            .lock("a")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        run(&mut connection, "DELETE FROM t_tag_lock_lane").await;
    }
    assert_eq!(counter.get().await.unwrap(), 5);
    database.remove().await;
}

/// Nobody knows whether a batch ran whose lane's row was deleted, also when the settlement is asked twice. It ran, and others went on from
/// there: it must not undo what they did.
#[tokio::test]
async fn a_batch_without_a_proof_is_not_run_again() {
    for change in ["add", "init", "delete"] {
        without_a_proof(change).await;
    }
}

async fn without_a_proof(change: &'static str) {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(patient(&proxy.url(&database.url))).await;
    let counter = client.counter("a");
    assert_eq!(counter.add(1).await.unwrap(), 1);
    if change == "init" {
        assert_eq!(counter.delete().await.unwrap(), Some(1));
    }
    let contains = |command: &Command, text: &[u8]| {
        let sql = command.sql().unwrap_or_default();
        sql.windows(text.len()).any(|part| part == text)
    };
    // The batch is committed, no settlement gets through before the lane's row is gone, and then the reply to the first
    // one is lost.
    let (cut, deleted, fenced) = (Flag::default(), Flag::default(), Flag::default());
    proxy.on_command({
        let (cut, deleted, fenced) = (cut.clone(), deleted.clone(), fenced.clone());
        move |command| {
            if contains(command, b"seq=GREATEST(seq,") && !deleted.load(SeqCst) {
                Fault::CutBefore
            } else if (is_batch(command) && !cut.swap(true, SeqCst))
                || (contains(command, b"(id,seq,results,") && !fenced.swap(true, SeqCst))
            {
                Fault::CutAfter(Upstream::Replied)
            } else {
                Fault::Pass
            }
        }
    });
    let changing = tokio::spawn({
        let counter = counter.clone();
        async move {
            match change {
                "init" => counter.init(5).await.map(|_| ()),
                "delete" => counter.delete().await.map(|_| ()),
                _ => counter.add(1).await.map(|_| ()),
            }
        }
    });
    let mut connection = database.connection().await;
    while proxy.counters().faults(FaultKind::CutBefore) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let others = database.client().await.counter("a");
    let left = match change {
        "init" => {
            assert_eq!(others.delete().await.unwrap(), Some(5));
            None
        }
        "delete" => {
            assert!(others.init(9).await.unwrap());
            Some(9)
        }
        _ => Some(others.add(1).await.unwrap()),
    };
    run(&mut connection, "DELETE FROM t_tag_lock_lane").await;
    deleted.store(true, SeqCst);
    let changed = changing.await.unwrap();
    assert!(
        matches!(changed, Err(Error::OutcomeUnknown { .. })),
        "{change}: {changed:?}"
    );
    assert!(fenced.load(SeqCst));
    assert_eq!(counter.get_if_set().await.unwrap(), left, "{change}");
    database.remove().await;
}

/// An id that is forgotten at once would be run again and again.
#[tokio::test]
async fn a_retention_that_is_too_short_is_refused() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let counter = client.counter("a").retention(Duration::from_micros(1));
    let result = counter.add_once("id", 1).await;
    assert!(
        matches!(result, Err(Error::InvalidOption { .. })),
        "{result:?}"
    );
    assert_eq!(counter.get().await.unwrap(), 0);
    database.remove().await;
}

/// The arithmetic of merged bounded additions must not leave its type.
#[tokio::test]
async fn giant_bounded_steps_merge() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    client.counter("a").set(i64::MIN).await.unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.counter("a").add_within(1 << 62, ..).await })
        })
        .collect();
    let mut values = Vec::new();
    for task in tasks {
        values.push(task.await.unwrap().unwrap());
    }
    values.sort_unstable();
    assert_eq!(values, [None, Some(-(1 << 62)), Some(0), Some(1 << 62)],);
    database.remove().await;
}
