//! Whether a counter is there: it is begun once, is listed, and is deleted with a value that is known, whatever else is done to it
//! at the same time, and whatever becomes of the reply.

use std::time::Duration;

use crate::support::proxy::{Fault, Proxy, Upstream, once};
use crate::support::{TestDatabase, connected, is_batch, number, patient, run};
use futures_util::future::join_all;
use sqlx::{Connection, Row};
use tag_lock::{CounterInfo, Error};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_is_begun_once() {
    let database = TestDatabase::new().await;
    let clients = [database.client().await, database.client().await];
    for name in ["fresh", "used"] {
        if name == "used" {
            assert_eq!(clients[0].counter(name).add(1).await.unwrap(), 1);
            assert_eq!(clients[1].counter(name).delete().await.unwrap(), Some(1));
        }
        let begin = (0..40).map(|number| {
            let counter = clients[number % 2].counter(name);
            tokio::spawn(async move {
                let value = 100 + i64::try_from(number).unwrap();
                counter.init(value).await.unwrap().then_some(value)
            })
        });
        let told: Vec<i64> = join_all(begin)
            .await
            .into_iter()
            .flat_map(Result::unwrap)
            .collect();
        assert_eq!(told.len(), 1, "{name}: {told:?}");
        let counter = clients[0].counter(name);
        assert_eq!(counter.get_if_set().await.unwrap(), Some(told[0]));
        assert!(!clients[1].counter(name).init(7).await.unwrap());
        assert_eq!(counter.get().await.unwrap(), told[0]);
    }
    database.remove().await;
}

/// What changes nothing sets nothing.
#[tokio::test]
async fn what_was_refused_did_not_set_it() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let n = client.counter("n");
    assert_eq!(n.get_if_set().await.unwrap(), None);
    assert_eq!(n.delete().await.unwrap(), None);
    assert_eq!(n.add_within(-1, 0..).await.unwrap(), None);
    assert_eq!(n.compare_exchange(5, 6).await.unwrap(), Err(0));
    assert_eq!(n.add_once_within("click", -1, 0..).await.unwrap(), None);
    let mut connection = database.connection().await;
    let mut transaction = connection.begin().await.unwrap();
    assert_eq!(n.add_in(&mut transaction, 3).await.unwrap(), 3);
    transaction.rollback().await.unwrap();
    assert_eq!(n.get_if_set().await.unwrap(), None);
    assert_eq!(n.delete().await.unwrap(), None);
    assert_eq!(client.list_counters("", None, 10).await.unwrap(), []);
    // What changes it by nothing does.
    assert_eq!(n.add(0).await.unwrap(), 0);
    assert_eq!(n.get_if_set().await.unwrap(), Some(0));
    assert!(!n.init(1).await.unwrap());
    assert_eq!(n.delete().await.unwrap(), Some(0));
    assert!(n.init(i64::MIN).await.unwrap());
    assert_eq!(n.delete().await.unwrap(), Some(i64::MIN));
    assert!(n.init(0).await.unwrap());
    assert_eq!(n.add(2).await.unwrap(), 2);
    database.remove().await;
}

#[tokio::test]
async fn ids_outlive_the_counter() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let n = client.counter("n");
    assert_eq!(n.add_once("order 7", 5).await.unwrap(), 5);
    assert_eq!(n.add(2).await.unwrap(), 7);
    assert_eq!(n.delete().await.unwrap(), Some(7));
    assert_eq!(n.add_once("order 7", 5).await.unwrap(), 5, "a repeat");
    assert_eq!(n.get_if_set().await.unwrap(), None);
    assert_eq!(n.add_once("order 8", 5).await.unwrap(), 5);
    assert_eq!(n.get_if_set().await.unwrap(), Some(5));
    database.remove().await;
}

/// What is deleted, and what is left in the end, is all that was added.
#[tokio::test(flavor = "multi_thread")]
async fn no_addition_is_lost_to_a_deletion() {
    let database = TestDatabase::new().await;
    let clients = [database.client().await, database.client().await];
    let counter = |of: usize| clients[of % 2].counter("n");
    let adding = (0..40).map(|of| {
        let counter = counter(of);
        tokio::spawn(async move {
            for _ in 0..20 {
                counter.add(1).await.unwrap();
            }
            0
        })
    });
    let deleting = (0..4).map(|of| {
        let counter = counter(of);
        tokio::spawn(async move {
            let mut deleted = 0;
            for _ in 0..20 {
                deleted += counter.delete().await.unwrap().unwrap_or_default();
            }
            deleted
        })
    });
    let done = join_all(adding.chain(deleting)).await;
    let deleted: i64 = done.into_iter().map(Result::unwrap).sum();
    assert_eq!(deleted + counter(0).get().await.unwrap(), 800);
    database.remove().await;
}

/// Whether it was set before or not: whoever deletes waits for the transaction that may set it.
#[tokio::test(flavor = "multi_thread")]
async fn an_addition_in_an_open_transaction_is_deleted_with_the_rest() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    for (name, before) in [("set", Some(10)), ("unset", None), ("deleted", None)] {
        let n = client.counter(name);
        if let Some(before) = before {
            n.set(before).await.unwrap();
        }
        if name == "deleted" {
            n.set(3).await.unwrap();
            assert_eq!(n.delete().await.unwrap(), Some(3));
        }
        for ends in ["rollback", "commit"] {
            let mut transaction = connection.begin().await.unwrap();
            let sum = before.unwrap_or_default() + 5;
            assert_eq!(n.add_in(&mut transaction, 5).await.unwrap(), sum);
            let deletes = tokio::spawn({
                let n = n.clone();
                async move { n.delete().await.unwrap() }
            });
            // Others go on meanwhile: it has been passed over again and again by then.
            for _ in 0..50 {
                client.counter("m").add(1).await.unwrap();
            }
            assert!(!deletes.is_finished(), "{name}, {ends}");
            let left = if ends == "commit" {
                transaction.commit().await.unwrap();
                Some(sum)
            } else {
                transaction.rollback().await.unwrap();
                before
            };
            assert_eq!(deletes.await.unwrap(), left, "{name}, {ends}");
            assert_eq!(n.get_if_set().await.unwrap(), None);
            if let Some(before) = before {
                n.set(before).await.unwrap();
            }
        }
        n.delete().await.unwrap();
        // The row is still there for transactions.
        let mut transaction = connection.begin().await.unwrap();
        assert_eq!(n.add_in(&mut transaction, 4).await.unwrap(), 4);
        transaction.commit().await.unwrap();
        assert_eq!(n.get_if_set().await.unwrap(), Some(4));
    }
    database.remove().await;
}

/// Each way to lose a reply, of a name that is new and of one that is there: the caller does not notice, and neither happens twice.
#[tokio::test]
async fn a_lost_reply_is_healed() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let client = connected(patient(&proxy.url(&database.url))).await;
    // Whoever keeps meeting new names creates their rows with the first packet.
    for number in 0..20 {
        assert!(
            client
                .counter(&format!("new:{number}"))
                .init(0)
                .await
                .unwrap()
        );
    }
    for (value, fault) in (7..).zip([
        Fault::CutAfter(Upstream::Forwarded),
        Fault::CutAfter(Upstream::FirstByte),
        Fault::CutAfter(Upstream::Replied),
        Fault::TruncateReply,
        Fault::CutBefore,
        Fault::Truncate,
        Fault::Reset,
    ]) {
        let n = client.counter(&format!("n:{value}"));
        let struck = proxy.counters().all_faults();
        proxy.on_command(once(is_batch, fault.clone()));
        assert!(n.init(value).await.unwrap(), "{fault:?}");
        assert_eq!(n.get_if_set().await.unwrap(), Some(value), "{fault:?}");
        proxy.on_command(once(is_batch, fault.clone()));
        assert!(!n.init(-value).await.unwrap(), "{fault:?}");
        proxy.on_command(once(is_batch, fault.clone()));
        assert_eq!(n.delete().await.unwrap(), Some(value), "{fault:?}");
        proxy.on_command(once(is_batch, fault.clone()));
        assert_eq!(n.delete().await.unwrap(), None, "{fault:?}");
        assert_eq!(proxy.counters().all_faults(), struck + 4, "{fault:?}");
    }
    database.remove().await;
}

fn values(counters: &[CounterInfo]) -> Vec<(&str, i64)> {
    let told = counters.iter();
    told.map(|counter| (counter.name.as_str(), counter.value))
        .collect()
}

/// Names that a careless prefix would fold, pad, or take for a pattern.
#[tokio::test]
async fn counters_and_locks_are_listed_by_prefix() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let long = format!("{}x", "n".repeat(254));
    let names = [
        "a",
        "A",
        "á",
        "a b",
        "a  b",
        "ab",
        "a\u{1}",
        "a\0\0",
        "a\u{10ffff}z",
        "b",
        "%",
        "_",
        "a%",
        "a\\",
        "'",
        "🎁",
        &long,
    ];
    let mut guards = Vec::new();
    for name in names {
        assert!(client.counter(name).init(1).await.unwrap(), "{name:?}");
        // A lock of the same name is something else.
        guards.push(client.lock(name).acquire().await.unwrap());
    }
    // What nobody holds is not listed.
    let free = client.lock("a free").acquire().await.unwrap();
    free.release().await.unwrap();
    assert!(client.counter("a gone").init(1).await.unwrap());
    client.counter("a gone").delete().await.unwrap();
    let mut connection = database.connection().await;
    let ordered = "SELECT lock_name FROM t_tag_lock WHERE kind = 2 ORDER BY lock_name";
    let ordered = sqlx::raw_sql(ordered).fetch_all(&mut connection).await;
    let ordered: Vec<String> = ordered
        .unwrap()
        .iter()
        .map(|row| row.try_get_unchecked(0).unwrap())
        .filter(|name| name != "a gone")
        .collect();
    assert_eq!(ordered.len(), names.len());
    for prefix in [
        "",
        "a",
        "a ",
        "a  ",
        "A",
        "á",
        "b",
        "%",
        "_",
        "a%",
        "a\\",
        "'",
        "🎁",
        "n",
        &long,
        "a\0",
        "none",
        &"n".repeat(255),
        &"n".repeat(256),
        // More than the server takes in one packet.
        &"n".repeat(20 << 20),
    ] {
        let shown: String = prefix.chars().take(300).collect();
        let expected: Vec<&String> = ordered
            .iter()
            .filter(|name| name.starts_with(prefix))
            .collect();
        for limit in [1, 2, 100] {
            let mut listed = Vec::new();
            let mut after: Option<String> = None;
            loop {
                let page = client
                    .list_counters(prefix, after.as_deref(), limit)
                    .await
                    .unwrap();
                let Some(last) = page.last() else { break };
                assert!(page.len() <= usize::try_from(limit).unwrap());
                after = Some(last.name.clone());
                listed.extend(page.into_iter().map(|counter| counter.name));
            }
            let listed: Vec<&String> = listed.iter().collect();
            assert_eq!(listed, expected, "{shown:?}, {limit} at a time");
            let mut locks: Vec<String> = Vec::new();
            loop {
                let after = locks.last().map(String::as_str);
                let page = client.list(prefix, after, limit).await.unwrap();
                if page.is_empty() {
                    break;
                }
                assert!(page.len() <= usize::try_from(limit).unwrap());
                locks.extend(page.into_iter().map(|lock| lock.name));
            }
            let locks: Vec<&String> = locks.iter().collect();
            assert_eq!(locks, expected, "locks: {shown:?}, {limit} at a time");
        }
    }
    let too_long = "a".repeat(1 << 20);
    let listed = client.list_counters(&too_long, None, 1).await.unwrap();
    assert!(listed.is_empty(), "no name is so long");
    drop(guards);
    database.remove().await;
}

/// A list reads ten thousand rows in a query, whatever they are, and goes on behind them.
#[tokio::test]
async fn a_list_goes_on_behind_many_other_rows() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    for name in ["n:0", "n:9"] {
        assert!(client.counter(name).init(4).await.unwrap());
    }
    let mut connection = database.connection().await;
    let digit = "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 \
                 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
    let locks = format!(
        "INSERT INTO t_tag_lock (lock_name, kind) SELECT CONCAT('n:1', a.d, b.d, c.d, e.d, f.d), 1 \
         FROM {digit} a, {digit} b, {digit} c, {digit} e, (SELECT 0 d UNION ALL SELECT 1) f"
    );
    run(&mut connection, &locks).await;
    let listed = client.list_counters("n:", None, 10).await.unwrap();
    assert_eq!(values(&listed), [("n:0", 4), ("n:9", 4)]);
    let listed = client.list_counters("n:1", None, 10).await.unwrap();
    assert_eq!(listed, []);
    database.remove().await;
}

#[tokio::test]
async fn windows_are_shown_and_begin_anew() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let n = client.counter("n").window(HOUR);
    assert!(n.init(3).await.unwrap());
    assert_eq!(client.counter("m").add(1).await.unwrap(), 1);
    let listed = client.list_counters("", None, 10).await.unwrap();
    assert_eq!(values(&listed), [("m", 1), ("n", 3)]);
    assert_eq!(listed[0].window_ends, None);
    let ends = listed[1].window_ends.expect("a window");
    let left = ends - listed[1].modified;
    assert!((3_590..=3_600).contains(&left.num_seconds()), "{left}");
    let mut connection = database.connection().await;
    let end = "UPDATE t_tag_lock SET deadline = '2020-01-01' WHERE lock_name = 'n' AND kind = 2";
    run(&mut connection, end).await;
    // It has ended, and was set all the same.
    let listed = client.list_counters("n", None, 10).await.unwrap();
    assert_eq!(values(&listed), [("n", 0)]);
    assert!(!n.init(5).await.unwrap());
    assert_eq!(n.delete().await.unwrap(), Some(0));
    assert!(n.init(5).await.unwrap());
    database.remove().await;
}

#[tokio::test]
async fn a_purge_takes_what_was_deleted() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    for name in ["gone", "there"] {
        assert!(client.counter(name).init(5).await.unwrap());
    }
    client.counter("gone").delete().await.unwrap();
    let mut connection = database.connection().await;
    let age = "UPDATE t_tag_lock SET modify_time = modify_time - INTERVAL 2 HOUR WHERE kind = 2";
    run(&mut connection, age).await;
    assert_eq!(client.purge(HOUR).await.unwrap().rows, 1);
    let left = "SELECT COUNT(*) FROM t_tag_lock WHERE kind = 2";
    assert_eq!(number(&mut connection, left).await, 1);
    assert_eq!(client.counter("there").get_if_set().await.unwrap(), Some(5));
    assert!(client.counter("gone").init(6).await.unwrap());
    database.remove().await;
}

#[tokio::test]
async fn what_cannot_be_is_refused() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    for name in ["", "a ", &"n".repeat(256)] {
        let counter = client.counter(name);
        for told in [
            counter.init(1).await.err(),
            counter.delete().await.err(),
            counter.get_if_set().await.err(),
        ] {
            assert!(matches!(told, Some(Error::InvalidName { .. })), "{told:?}");
        }
    }
    database.remove().await;
}
