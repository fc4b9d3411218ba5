//! `LockClient::lock_in` and `try_lock_in`: a lock that lives as long as the caller's transaction.

use std::sync::Arc;
use std::time::Duration;

use crate::support;
use crate::support::proxy::{Fault, Gate, Hold, Proxy, once};
use crate::support::{
    TestDatabase, connected, eventually, is_mariadb, no_deadlocks_since, number, run,
    server_deadlocks,
};
use futures_util::future::join_all;
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use tag_lock::{Error, LockClient, TransactionLock};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

async fn begin(connection: &mut MySqlConnection, level: &str) {
    let sql = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}; START TRANSACTION");
    run(connection, &sql).await;
}

async fn take(
    client: &LockClient,
    connection: &mut MySqlConnection,
    name: &str,
) -> TransactionLock {
    client.lock_in(connection, name).await.expect("locks")
}

async fn is_free(client: &LockClient, name: &str) -> bool {
    match client.lock(name).try_acquire().await.expect("an answer") {
        Some(guard) => {
            guard.release().await.expect("releases");
            true
        }
        None => false,
    }
}

#[tokio::test]
async fn the_end_of_the_transaction_frees_it() {
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    let mut last = 0;
    for level in LEVELS {
        for end in ["COMMIT", "ROLLBACK", "the connection"] {
            let mut connection = database.connection().await;
            begin(&mut connection, level).await;
            let lock = take(&client, &mut connection, "a").await;
            assert_eq!(lock.name, "a");
            assert!(lock.fencing_token > last, "{level}: the token rises");
            assert!(!is_free(&other, "a").await, "{level}: held");
            assert!(
                !is_free(&client, "a").await,
                "{level}: held in the same process"
            );
            // A rolled back lock's token may be given out again: nothing was written under it.
            if end == "COMMIT" {
                last = lock.fencing_token;
            }
            if end == "the connection" {
                drop(connection);
                eventually("freed by the disconnect", async || {
                    is_free(&other, "a").await
                })
                .await;
            } else {
                run(&mut connection, end).await;
                assert!(is_free(&other, "a").await, "{level}: freed by {end}");
            }
        }
    }
}

#[tokio::test]
async fn it_waits_for_another_transaction_and_try_does_not() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    for level in LEVELS {
        let mut first = database.connection().await;
        begin(&mut first, level).await;
        let lock = take(&client, &mut first, "a").await;

        let mut second = database.connection().await;
        run(&mut second, "SET innodb_lock_wait_timeout=1").await;
        begin(&mut second, level).await;
        let none = client
            .try_lock_in(&mut second, "a")
            .await
            .expect("an answer");
        assert_eq!(none, None, "{level}");
        let busy = client.lock_in(&mut second, "a").await;
        assert!(matches!(busy, Err(Error::Busy { .. })), "{level}: {busy:?}");
        run(&mut second, "ROLLBACK; SET innodb_lock_wait_timeout=50").await;

        let waiting = {
            let (client, level) = (client.clone(), level.to_owned());
            tokio::spawn(async move {
                begin(&mut second, &level).await;
                let lock = take(&client, &mut second, "a").await;
                run(&mut second, "COMMIT").await;
                lock
            })
        };
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!waiting.is_finished(), "{level}: it waits");
        run(&mut first, "COMMIT").await;
        let next = waiting.await.expect("the second transaction");
        assert!(next.fencing_token > lock.fencing_token, "{level}");
        begin(&mut first, level).await;
        let free = client
            .try_lock_in(&mut first, "a")
            .await
            .expect("an answer");
        assert!(free.expect("free").fencing_token > next.fencing_token);
        run(&mut first, "COMMIT").await;
    }
}

#[tokio::test]
async fn it_respects_leases_and_leases_respect_it() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    // It waits for a lease as long as for a request: a second, and ten where a machine needs them.
    let hasty = async |seconds| {
        let limit = Duration::from_secs(seconds);
        let builder = LockClient::builder(database.url.parse().expect("a URL"));
        connected(builder.packet_timeout(limit).request_timeout(limit)).await
    };
    for level in LEVELS {
        let mut connection = database.connection().await;
        let lease = client.lock("a").acquire().await.expect("acquires");
        begin(&mut connection, level).await;
        let none = client
            .try_lock_in(&mut connection, "a")
            .await
            .expect("an answer");
        assert_eq!(none, None, "{level}");
        let mut refused = hasty(1).await.lock_in(&mut connection, "a").await;
        if matches!(
            refused,
            Err(Error::Unreachable { .. } | Error::OutcomeUnknown { .. } | Error::Busy { .. })
        ) {
            run(&mut connection, "ROLLBACK").await;
            begin(&mut connection, level).await;
            refused = hasty(10).await.lock_in(&mut connection, "a").await;
        }
        assert!(
            matches!(refused, Err(Error::Timeout { .. })),
            "{level}: {refused:?}"
        );
        // The holder is not kept from its row, not even before the rollback.
        lease
            .extend(Duration::from_secs(60))
            .await
            .expect("extends");
        let fence = lease.fencing_token();
        let releasing = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            lease.release().await.expect("releases");
        });
        let lock = take(&client, &mut connection, "a").await;
        releasing.await.expect("the holder");
        assert!(
            lock.fencing_token > fence,
            "{level}: it rises from lease to transaction"
        );

        let waiting = {
            let client = client.clone();
            tokio::spawn(async move { client.lock("a").acquire().await.expect("acquires") })
        };
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(
            !waiting.is_finished(),
            "{level}: a lease waits for the transaction"
        );
        run(&mut connection, "COMMIT").await;
        let lease = waiting.await.expect("the waiter");
        assert!(
            lease.fencing_token() > lock.fencing_token,
            "{level}: and back"
        );
        lease.release().await.expect("releases");
    }
}

/// A lease that has ended does not keep a transaction out, however it ended.
#[tokio::test]
async fn an_expired_lease_is_no_hindrance() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    for level in LEVELS {
        let ttl = Duration::from_millis(100);
        let lease = client.lock(level).ttl(ttl).auto_renew(false);
        let lease = lease.acquire().await.expect("acquires");
        begin(&mut connection, level).await;
        let lock = take(&client, &mut connection, level).await;
        assert!(lock.fencing_token > lease.fencing_token());
        assert!(!lease.is_held());
        run(&mut connection, "COMMIT").await;
        let refused = lease.release().await;
        assert!(
            matches!(refused, Err(Error::LockLost { .. })),
            "{refused:?}"
        );
    }
}

/// Both kinds at once, each reading, thinking, and writing what it has read: no update is lost, and
/// tokens rise in the order of the writes.
#[tokio::test(flavor = "multi_thread")]
async fn both_kinds_exclude_each_other() {
    const TASKS: i64 = 12;
    const TIMES: i64 = 10;
    let database = Arc::new(TestDatabase::new().await);
    let tables = "CREATE TABLE total (n INT); INSERT INTO total VALUES (0); \
                  CREATE TABLE journal (id INT AUTO_INCREMENT PRIMARY KEY, fence BIGINT)";
    run(&mut database.connection().await, tables).await;
    let clients = [database.client().await, database.client().await];
    let deadlocks = server_deadlocks().await;
    let task = |task: i64| {
        let database = Arc::clone(&database);
        let place = usize::try_from(task).expect("small");
        let client = clients[place % 2].clone();
        let level = LEVELS[place % LEVELS.len()];
        async move {
            let mut connection = database.connection().await;
            for time in 0..TIMES {
                let mut guard = None;
                let fence = if (task + time) % 3 == 0 {
                    let held = client.lock("a").acquire().await.expect("acquires");
                    let fence = held.fencing_token();
                    guard = Some(held);
                    fence
                } else {
                    loop {
                        begin(&mut connection, level).await;
                        match client.lock_in(&mut connection, "a").await {
                            Ok(lock) => break lock.fencing_token,
                            Err(Error::Timeout { .. }) => run(&mut connection, "ROLLBACK").await,
                            Err(error) => panic!("{level}: {error}"),
                        }
                    }
                };
                let n = number(&mut connection, "SELECT n FROM total").await;
                tokio::task::yield_now().await;
                let write = format!(
                    "INSERT INTO journal (fence) VALUES ({fence}); UPDATE total SET n = {}",
                    n + 1
                );
                run(&mut connection, &write).await;
                match guard {
                    Some(guard) => guard.release().await.expect("releases"),
                    None => run(&mut connection, "COMMIT").await,
                }
            }
        }
    };
    join_all((0..TASKS).map(task).map(tokio::spawn))
        .await
        .into_iter()
        .for_each(|task| task.expect("a task"));
    let mut connection = database.connection().await;
    let total = number(&mut connection, "SELECT n FROM total").await;
    assert_eq!(total, TASKS * TIMES, "no update was lost");
    let falling = "SELECT COUNT(*) FROM journal a JOIN journal b ON b.id = \
                   (SELECT MIN(id) FROM journal c WHERE c.id > a.id) WHERE b.fence <= a.fence";
    assert_eq!(number(&mut connection, falling).await, 0, "tokens rise");
    no_deadlocks_since(deadlocks).await;
}

/// A lease that is granted between the look at the row and the transaction's statement: the answer comes at
/// once, since under REPEATABLE READ the row stays locked until the rollback, and its holder would wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_gets_in_between_is_told_at_once() {
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    for level in LEVELS {
        let proxy = Proxy::before(&database.url).await.expect("a proxy");
        let mut connection = support::connect(&proxy.url(&database.url)).await;
        begin(&mut connection, level).await;
        let gate = Gate::new();
        let update = |command: &support::proxy::Command| command.contains_word("UPDATE");
        proxy.on_command(once(update, Fault::HoldCommand(Hold::Until(gate.clone()))));
        let same = client.clone();
        let asking = tokio::spawn(async move {
            let answer = same.lock_in(&mut connection, "a").await;
            (answer, connection)
        });
        gate.reached().await;
        let lease = other.lock("a").acquire().await.expect("acquires");
        gate.open();
        let (answer, mut connection) = asking.await.expect("a task");
        assert!(
            matches!(answer, Err(Error::Timeout { .. })),
            "{level}: {answer:?}"
        );
        run(&mut connection, "ROLLBACK").await;
        let fence = lease.fencing_token();
        lease.release().await.expect("not hindered");
        begin(&mut connection, level).await;
        let lock = take(&client, &mut connection, "a").await;
        assert!(lock.fencing_token > fence);
        run(&mut connection, "COMMIT").await;
    }
}

/// How many record locks the transaction of `connection` has on the library's table, as another
/// connection sees it.
async fn locked_rows(database: &TestDatabase, connection: &mut MySqlConnection) -> i64 {
    let id = number(connection, "SELECT CONNECTION_ID()").await;
    let sql = if is_mariadb() {
        // All record locks of the transaction; gap locks count.
        format!(
            "SELECT trx_rows_locked FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id={id}"
        )
    } else {
        // Not by thread: a page that is split hands its locks to the thread that split it.
        let locks = format!(
            "FROM performance_schema.data_locks WHERE lock_type='RECORD' AND engine_transaction_id=\
             (SELECT trx_id FROM information_schema.innodb_trx WHERE trx_mysql_thread_id={id})"
        );
        let mut observer = database.connection().await;
        let other = format!("SELECT COUNT(*) {locks} AND lock_mode<>'X,REC_NOT_GAP'");
        assert_eq!(number(&mut observer, &other).await, 0, "no gap is locked");
        format!("SELECT COUNT(*) {locks}")
    };
    // MariaDB's table is a copy, made anew when nobody has read it for 100 ms.
    tokio::time::sleep(Duration::from_millis(150)).await;
    number(&mut database.connection().await, &sql).await
}

/// Exactly one row is locked, and no gap: names right before and behind it, and the counters and locks
/// of strangers, are created while the transaction is open. So it is when the lock was refused.
#[tokio::test]
async fn one_row_is_locked_and_no_gap() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let deadlocks = server_deadlocks().await;
    for (number, level) in LEVELS.into_iter().enumerate() {
        let name = format!("m{number}");
        let mut connection = database.connection().await;
        let mut refused = database.connection().await;
        begin(&mut connection, level).await;
        begin(&mut refused, level).await;
        take(&client, &mut connection, &name).await;
        assert_eq!(locked_rows(&database, &mut connection).await, 1, "{level}");
        let none = client
            .try_lock_in(&mut refused, &name)
            .await
            .expect("an answer");
        assert_eq!(none, None);
        neighbours(&client, &name, "behind a lock").await;
        run(&mut refused, "ROLLBACK").await;
        run(&mut connection, "COMMIT").await;

        begin(&mut connection, level).await;
        let free = client
            .try_lock_in(&mut connection, &name)
            .await
            .expect("an answer");
        assert!(free.is_some());
        assert_eq!(
            locked_rows(&database, &mut connection).await,
            1,
            "{level}: try"
        );
        neighbours(&client, &name, "behind a try").await;
        run(&mut connection, "COMMIT").await;

        let lease = client.lock(&name).acquire().await.expect("acquires");
        begin(&mut connection, level).await;
        lease.verify_in(&mut connection).await.expect("ours");
        assert_eq!(
            locked_rows(&database, &mut connection).await,
            1,
            "{level}: verify"
        );
        neighbours(&client, &name, "behind a verification").await;
        lease.release_in(&mut connection).await.expect("ours");
        assert_eq!(
            locked_rows(&database, &mut connection).await,
            1,
            "{level}: release"
        );
        neighbours(&client, &name, "behind a release").await;
        run(&mut connection, "COMMIT").await;
        drop(lease);

        begin(&mut connection, level).await;
        let counter = client.counter(&name);
        counter.add_in(&mut connection, 1).await.expect("adds");
        counter.get_in(&mut connection).await.expect("reads");
        let none = counter
            .add_within_in(&mut connection, 1, 100..)
            .await
            .expect("an answer");
        assert_eq!(none, None);
        assert_eq!(
            locked_rows(&database, &mut connection).await,
            1,
            "{level}: counter"
        );
        neighbours(&client, &name, "behind a counter").await;
        run(&mut connection, "COMMIT").await;
        connection.close().await.expect("closes");
    }
    no_deadlocks_since(deadlocks).await;
}

/// Creates rows of new names on both sides of `name`. With the gap locked, it would not end.
async fn neighbours(client: &LockClient, name: &str, what: &str) {
    for number in 0..4 {
        // Before: '!' stands below all letters and digits; behind: the name is a prefix.
        let before = format!("{}!{name} {what} {number}", &name[..1]);
        let behind = format!("{name}!{what} {number}");
        for new in [before, behind] {
            assert_eq!(client.counter(&new).add(1).await.expect("adds"), 1);
            assert!(is_free(client, &new).await);
        }
    }
}

/// A process whose tasks pass the lock on in memory lets it go for a transaction that waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn turns_in_memory_give_way() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.client().await, database.client().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let here = here.clone();
        tasks.spawn(async move {
            loop {
                let guard = here.lock("l").acquire().await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
                drop(guard);
            }
        });
    }
    let mut connection = database.connection().await;
    let locking = async {
        loop {
            let mut transaction = connection.begin().await.unwrap();
            match there.lock_in(&mut transaction, "l").await {
                Ok(_) => return transaction.commit().await.unwrap(),
                // Somebody was faster.
                Err(Error::Timeout { .. } | Error::Busy { .. }) => {
                    transaction.rollback().await.unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    let locked = tokio::time::timeout(Duration::from_secs(60), locking).await;
    locked.expect("its turn");
    tasks.shutdown().await;
    database.remove().await;
}

/// What stands in the row of the lock `w`: for how many seconds still somebody wants it, and for how long it has been free.
async fn wanted_and_free_for(connection: &mut MySqlConnection) -> (i64, i64) {
    let seconds = |value: &str| {
        format!(
            "SELECT TIMESTAMPDIFF(SECOND,{value}) FROM t_tag_lock WHERE lock_name='w' AND kind=1"
        )
    };
    let wanted = number(connection, &seconds("UTC_TIMESTAMP(6),wanted_until")).await;
    (
        wanted,
        number(connection, &seconds("deadline,UTC_TIMESTAMP(6)")).await,
    )
}

/// A transaction's turn is one like any other: others leave the lock alone for a moment after it, if somebody waits. If it has said itself that it
/// waits, that is answered; but not a wish that is urgent, and for which others make way just now. A wish for which they made way in vain goes,
/// unless another transaction took the lock in that time: then who waits could not come.
#[tokio::test(flavor = "multi_thread")]
async fn a_transactions_turn_is_one_like_any_other() {
    const HOUR: i64 = 3_600;
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut observer = database.connection().await;
    let update = |command: &support::proxy::Command| command.contains_word("UPDATE");
    // Whether the transaction waits; for how long the lock is wanted, how long ago it was released, in seconds; whether another transaction has it
    // meanwhile; whether the wish stays.
    let cases = [
        (true, 10, HOUR, false, false),
        (true, 10, -HOUR, false, false),
        (true, 70, HOUR, false, false),
        (true, 70, HOUR, true, true),
        (true, 70, -HOUR, false, true),
        (true, 300, -HOUR, false, true),
        (false, 10, -HOUR, false, true),
        (false, 70, -HOUR, false, true),
        // Others have left it alone for long, and nobody came.
        (false, 10, HOUR, false, false),
        (false, 300, HOUR, false, false),
        (false, 10, HOUR, true, true),
        (false, 300, HOUR, true, true),
    ];
    for (waits, wish, free_for, another, stays) in cases {
        for tries in [false, true] {
            if tries && waits {
                continue;
            }
            let what = format!("{waits}, {tries}, {wish} s, {free_for} s, {another}");
            eventually("it is free", || is_free(&client, "w")).await;
            let held = if waits {
                Some(client.lock("w").acquire().await.expect("acquires"))
            } else {
                None
            };
            let proxy = Proxy::before(&database.url).await.expect("a proxy");
            let mut connection = support::connect(&proxy.url(&database.url)).await;
            begin(&mut connection, "READ COMMITTED").await;
            let gate = Gate::new();
            proxy.on_command(once(update, Fault::HoldCommand(Hold::Until(gate.clone()))));
            let same = client.clone();
            let locking = tokio::spawn(async move {
                if tries {
                    let lock = same.try_lock_in(&mut connection, "w").await;
                    lock.expect("an answer").expect("locks");
                } else {
                    same.lock_in(&mut connection, "w").await.expect("locks");
                }
                run(&mut connection, "COMMIT").await;
            });
            if let Some(held) = held {
                while wanted_and_free_for(&mut observer).await.0 <= 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                held.release().await.expect("releases");
            }
            // It has looked.
            gate.reached().await;
            let more = u8::from(another);
            let sql = format!(
                "UPDATE t_tag_lock SET wanted_until=UTC_TIMESTAMP(6)+INTERVAL {wish} SECOND,fence=fence+{more},\
                 deadline=UTC_TIMESTAMP(6)-INTERVAL {free_for} SECOND WHERE lock_name='w' AND kind=1"
            );
            run(&mut observer, &sql).await;
            gate.open();
            locking.await.expect("a task");
            let (wanted, free) = wanted_and_free_for(&mut observer).await;
            assert_eq!(wanted > 0, stays, "{what}: wanted for {wanted} s");
            assert!(free < HOUR, "{what}: free for {free} s");
            let sql = "UPDATE t_tag_lock SET wanted_until='1970-01-01',deadline='1970-01-02' WHERE lock_name='w'";
            run(&mut observer, sql).await;
        }
    }
    database.remove().await;
}

/// A lease that its holder has not given back ends by its deadline, and that stays as it is when a transaction takes the lock.
#[tokio::test]
async fn the_deadline_of_a_dead_lease_stays() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    let ttl = Duration::from_millis(100);
    let lease = client.lock("w").ttl(ttl).auto_renew(false);
    std::mem::forget(lease.acquire().await.expect("acquires"));
    run(
        &mut connection,
        "UPDATE t_tag_lock SET deadline=UTC_TIMESTAMP(6)-INTERVAL 1 HOUR WHERE lock_name='w'",
    )
    .await;
    for waits in [true, false] {
        begin(&mut connection, "READ COMMITTED").await;
        if waits {
            take(&client, &mut connection, "w").await;
        } else {
            let lock = client.try_lock_in(&mut connection, "w").await;
            lock.expect("an answer").expect("locks");
        }
        run(&mut connection, "COMMIT").await;
        let (_, free) = wanted_and_free_for(&mut connection).await;
        assert!(free >= 3_600, "free for {free} s");
    }
    database.remove().await;
}
