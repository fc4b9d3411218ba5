//! What is promised of one request at a time.

use std::time::Duration;

use sqlx::Connection;
use tag_lock::{AtClose, Error, LockState};

use super::{HOUR, shared};
use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, connected, eventually, number, patient, run};

#[tokio::test(flavor = "multi_thread")]
async fn shared_holds_stand_beside_each_other_and_exclude_an_exclusive_one() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let first = shared(&one, "l").acquire().await.unwrap();
    let second = shared(&other, "l").acquire().await.unwrap();
    assert!(first.is_held() && second.is_held());
    assert!(second.fencing_token() > first.fencing_token());
    for client in [&one, &other] {
        let writer = client.lock("l").try_acquire().await.unwrap();
        assert!(writer.is_none(), "a writer beside readers");
        let several = client.lock_all(["l", "other"]).try_acquire().await.unwrap();
        assert!(several.is_none(), "several locks beside readers");
    }
    let mut connection = database.connection().await;
    let mut tx = connection.begin().await.unwrap();
    assert!(one.try_lock_in(&mut tx, "l").await.unwrap().is_none());
    tx.rollback().await.unwrap();
    first.release().await.unwrap();
    assert!(one.lock("l").try_acquire().await.unwrap().is_none());
    let token = second.fencing_token();
    second.release().await.unwrap();
    let writer = one.lock("l").ttl(HOUR).try_acquire().await.unwrap();
    let writer = writer.expect("nobody reads");
    assert!(writer.fencing_token() > token);
    assert!(shared(&other, "l").try_acquire().await.unwrap().is_none());
    let waits = shared(&other, "l").wait(Duration::from_millis(300));
    let error = waits.acquire().await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let token = writer.fencing_token();
    writer.release().await.unwrap();
    let reader = shared(&other, "l").acquire().await.unwrap();
    assert!(reader.fencing_token() > token);
    reader.release().await.unwrap();
    database.remove().await;
}

/// One above the other, though all of it is a matter of milliseconds.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_from_hold_to_hold() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut last = 0;
    for _ in 0..20 {
        let writer = client.lock("l").ttl(HOUR).acquire().await.unwrap();
        assert!(writer.fencing_token() > last);
        last = writer.fencing_token();
        let reader = writer.downgrade().await.unwrap();
        assert!(reader.fencing_token() > last);
        last = reader.fencing_token();
        reader.release().await.unwrap();
        let reader = shared(&client, "l").acquire().await.unwrap();
        assert!(reader.fencing_token() > last);
        last = reader.fencing_token();
        let holds = shared(&client, "l").holds().await.unwrap();
        assert_eq!(holds[0].highest_fencing_token, last, "it stands in its row");
        reader.release().await.unwrap();
    }
    database.remove().await;
}

/// Each of those who want the lock for themselves frees a door behind which nobody is left.
#[tokio::test(flavor = "multi_thread")]
async fn everybody_opens_a_door_that_was_held_shared() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let reads = async || {
        let reader = shared(&client, "l").acquire().await.unwrap();
        reader.release().await.unwrap();
        let mut connection = database.connection().await;
        let door = "SELECT status FROM t_tag_lock WHERE lock_name='l' AND kind=1";
        assert_eq!(number(&mut connection, door).await, 3);
    };
    reads().await;
    let guard = client.lock("l").try_acquire().await.unwrap().unwrap();
    guard.release().await.unwrap();
    reads().await;
    let owner = client.lock("l").owner("me").try_acquire().await.unwrap();
    owner.unwrap().release().await.unwrap();
    reads().await;
    let several = client.lock_all(["l", "m"]).try_acquire().await.unwrap();
    several.unwrap().release().await.unwrap();
    for tries in [false, true] {
        reads().await;
        let mut connection = database.connection().await;
        let mut tx = connection.begin().await.unwrap();
        if tries {
            assert!(client.try_lock_in(&mut tx, "l").await.unwrap().is_some());
        } else {
            client.lock_in(&mut tx, "l").await.unwrap();
        }
        tx.commit().await.unwrap();
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_lets_others_read_and_nobody_write() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let writer = one.lock("l").ttl(HOUR).acquire().await.unwrap();
    let token = writer.fencing_token();
    let reader = writer.downgrade().await.unwrap();
    assert!(reader.is_held() && reader.fencing_token() > token);
    let second = shared(&other, "l").try_acquire().await.unwrap();
    let second = second.expect("readers stand beside each other");
    assert!(other.lock("l").try_acquire().await.unwrap().is_none());
    reader.release().await.unwrap();
    assert!(one.lock("l").try_acquire().await.unwrap().is_none());
    second.release().await.unwrap();
    let writer = other.lock("l").try_acquire().await.unwrap();
    writer.expect("nobody reads").release().await.unwrap();
    database.remove().await;
}

/// A row more for each would slow down all who want the lock for themselves.
#[tokio::test(flavor = "multi_thread")]
async fn downgrades_leave_one_row() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(patient(&proxy.url(&database.url))).await;
    for round in 0..5 {
        let writer = client.lock("l").ttl(HOUR).acquire().await.unwrap();
        let before = proxy.counters();
        let reader = writer.downgrade().await.unwrap();
        let packets = proxy.counters().since(&before).commits;
        assert!(round == 0 || packets == 1, "{packets} packets");
        reader.release().await.unwrap();
    }
    let mut connection = database.connection().await;
    let rows = "SELECT COUNT(*) FROM t_tag_lock WHERE kind = 6";
    assert_eq!(number(&mut connection, rows).await, 1);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_joins_what_was_an_exclusive_hold_that_idles() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let idles = client.lock("l").ttl(HOUR).linger(HOUR);
    let reader = idles.acquire().await.unwrap().downgrade().await.unwrap();
    let joins = shared(&client, "l").acquire().await.unwrap();
    assert_eq!(joins.fencing_token(), reader.fencing_token(), "one lease");
    reader.release().await.unwrap();
    assert!(joins.is_held());
    joins.release().await.unwrap();
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_meaning_is_refused() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let option = |error: &Error| match error {
        Error::InvalidOption { option, .. } => *option,
        other => panic!("{other}"),
    };
    let owner = client.lock("l").owner("me");
    let error = owner.clone().shared().acquire().await.unwrap_err();
    assert_eq!(option(&error), "owner");
    let linger = client.lock("l").linger(HOUR).shared();
    assert_eq!(option(&linger.acquire().await.unwrap_err()), "linger");
    let error = owner
        .acquire()
        .await
        .unwrap()
        .downgrade()
        .await
        .unwrap_err();
    assert_eq!(option(&error), "owner");
    let joint = shared(&client, "m").acquire().await.unwrap();
    let mut connection = database.connection().await;
    let mut tx = connection.begin().await.unwrap();
    let error = joint.verify_in(&mut tx).await.unwrap_err();
    assert_eq!(option(&error), "apart");
    tx.rollback().await.unwrap();
    joint.release().await.unwrap();
    database.remove().await;
}

/// The row of the hold stays locked in the transaction: a writer passes it over, and is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_verified_hold_outlives_its_lease_until_the_commit() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let request = one.lock("l").ttl(Duration::from_secs(20)).auto_renew(false);
    let reader = request.shared().apart().acquire().await.unwrap();
    let mut connection = database.connection().await;
    let mut tx = connection.begin().await.unwrap();
    reader.verify_in(&mut tx).await.unwrap();
    tokio::time::timeout(HOUR, reader.lost()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        other.lock("l").try_acquire().await.unwrap().is_none(),
        "a writer beside a transaction that has verified"
    );
    tx.commit().await.unwrap();
    let writer = other.lock("l").acquire().await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    assert!(reader.verify_in(&mut tx).await.is_err());
    tx.rollback().await.unwrap();
    writer.release().await.unwrap();
    let reader = shared(&one, "l").apart().acquire().await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    reader.release_in(&mut tx).await.unwrap();
    assert!(other.lock("l").try_acquire().await.unwrap().is_none());
    tx.commit().await.unwrap();
    let writer = other.lock("l").try_acquire().await.unwrap();
    writer
        .expect("released by the commit")
        .release()
        .await
        .unwrap();
    drop(reader);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_see_who_holds_it() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let held = |name: &'static str| one.lock(name).ttl(HOUR).shared();
    let first = held("l").description("reads").acquire().await.unwrap();
    let second = shared(&other, "l").acquire().await.unwrap();
    let info = one.inspect("l").await.unwrap().expect("it has a row");
    assert_eq!((info.state, info.depth), (LockState::Shared, 2));
    assert!(info.remaining > HOUR / 2 && !info.held_by.is_empty());
    let listed = one.list("", None, 10).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].state, LockState::Shared);
    let holds = held("l").holds().await.unwrap();
    assert_eq!(holds.len(), 2);
    assert!(holds.iter().any(|hold| hold.description == "reads"));
    let mut watch = one.watch("l").unwrap();
    let holder = watch.next().await.unwrap().unwrap().expect("it is held");
    assert!(holder.is_shared);
    first.release().await.unwrap();
    second.release().await.unwrap();
    while watch.next().await.unwrap().unwrap().is_some() {}
    let info = one.inspect("l").await.unwrap().expect("it has a row");
    assert_eq!((info.state, info.depth), (LockState::Free, 0));
    assert_eq!(one.list("", None, 10).await.unwrap(), vec![]);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_release_ends_all_shared_holds_or_none() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let brief = |client: &tag_lock::LockClient| client.lock("l").ttl(Duration::from_secs(30));
    let first = brief(&one).shared().acquire().await.unwrap();
    let second = brief(&other).shared().acquire().await.unwrap();
    // A transaction has one of the rows locked.
    let mut connection = database.connection().await;
    let mut tx = connection.begin().await.unwrap();
    let one_row = "SELECT fence FROM t_tag_lock WHERE lock_name='l' AND kind=6 LIMIT 1 FOR UPDATE";
    number(&mut tx, one_row).await;
    let error = one.force_release("l").await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    tx.rollback().await.unwrap();
    assert!(other.lock("l").try_acquire().await.unwrap().is_none());
    assert!(one.force_release("l").await.unwrap());
    let writer = one.lock("l").ttl(HOUR).try_acquire().await.unwrap();
    let writer = writer.expect("freed by force");
    first.lost().await;
    second.lost().await;
    assert!(matches!(first.release().await, Err(Error::LockLost { .. })));
    assert!(writer.is_held());
    writer.release().await.unwrap();
    assert!(!one.force_release("l").await.unwrap());
    database.remove().await;
}

/// Tasks that have one lease together: who has released is not told what becomes of it.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_released_is_told_of_no_loss() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let request = client.lock("l").ttl(Duration::from_secs(3)).shared();
    let first = request.clone().acquire().await.unwrap();
    let second = request.acquire().await.unwrap();
    assert_eq!(first.fencing_token(), second.fencing_token(), "one lease");
    let (signal, view) = (first.cancellation_token(), first.view());
    let their_signal = second.cancellation_token();
    first.release().await.unwrap();
    assert!(client.force_release("l").await.unwrap());
    second.lost().await;
    assert!(their_signal.is_cancelled());
    assert!(!signal.is_cancelled(), "it was released before");
    let lost = tokio::time::timeout(Duration::from_millis(50), view.lost());
    assert!(lost.await.is_err(), "it was released before");
    assert!(matches!(
        second.release().await,
        Err(Error::LockLost { .. })
    ));
    database.remove().await;
}

/// What was freed by force is joined no more, though nobody here was told yet.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_joins_for_long_what_was_freed_by_force() {
    let database = TestDatabase::new().await;
    let (client, operator) = (database.client().await, database.client().await);
    let held = shared(&client, "l").acquire().await.unwrap();
    assert!(operator.force_release("l").await.unwrap());
    eventually("a new hold begins", async || {
        let reader = shared(&client, "l").acquire().await.unwrap();
        let is_new = reader.fencing_token() > held.fencing_token();
        drop(reader.release().await);
        is_new
    })
    .await;
    assert!(matches!(held.release().await, Err(Error::LockLost { .. })));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_takes_what_has_ended_and_nothing_else() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let held = shared(&client, "held").acquire().await.unwrap();
    let ended = shared(&client, "ended").acquire().await.unwrap();
    let token = ended.fencing_token();
    ended.release().await.unwrap();
    let mut connection = database.connection().await;
    let old = "UPDATE t_tag_lock SET modify_time=UTC_TIMESTAMP(6) - INTERVAL 2 HOUR WHERE kind<>0";
    run(&mut connection, old).await;
    client.purge(HOUR).await.unwrap();
    let rows = "SELECT COUNT(*) FROM t_tag_lock WHERE kind<>0 AND lock_name=";
    assert_eq!(number(&mut connection, &format!("{rows}'held'")).await, 2);
    assert_eq!(number(&mut connection, &format!("{rows}'ended'")).await, 0);
    assert!(held.is_held());
    assert!(client.lock("held").try_acquire().await.unwrap().is_none());
    let writer = client.lock("ended").try_acquire().await.unwrap().unwrap();
    assert!(writer.fencing_token() > token, "tokens went back");
    writer.release().await.unwrap();
    held.release().await.unwrap();
    database.remove().await;
}

/// A closed client keeps what its tasks have together until the last of them is done with it, and that one alone releases it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_a_close_the_last_task_releases() {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    for round in 0..20 {
        let name = format!("l{round}");
        let client = database.client().await;
        let first = shared(&client, &name).acquire().await.unwrap();
        let others = [
            shared(&client, &name).acquire().await.unwrap(),
            shared(&client, &name).acquire().await.unwrap(),
        ];
        let held = format!(
            "SELECT COUNT(*) FROM t_tag_lock WHERE kind=6 AND status=1 AND lock_name='{name}'"
        );
        client.close(AtClose::Keep).await;
        first.release().await.unwrap();
        assert_eq!(number(&mut connection, &held).await, 1, "others have it");
        // At once.
        let ends = others.map(|guard| tokio::spawn(guard.release()));
        for end in ends {
            let ended = end.await.unwrap();
            assert!(!matches!(ended, Err(Error::LockLost { .. })), "{ended:?}");
        }
    }
    database.remove().await;
}
