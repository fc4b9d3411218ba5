//! Each fault, against a real server.

use std::io::ErrorKind;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, Error, Row, raw_sql};
use tokio::time::{Instant, timeout};

use super::rig::{Rig, patiently, run};
use crate::support::proxy::{
    Command, CommandKind, Fault, FaultKind, Gate, Hold, RandomFaults, Upstream, once,
};

fn at_commit(fault: Fault) -> impl Fn(&Command) -> Fault + Send + Sync + 'static {
    once(Command::contains_commit, fault)
}

#[tokio::test]
async fn cut_before_nothing_is_committed() {
    let mut rig = Rig::start("cut_before").await;
    for fault in [Fault::CutBefore, Fault::Truncate, Fault::Reset] {
        // The whole transaction in one packet, and a `COMMIT` of its own.
        let mut connection = rig.connect().await;
        rig.proxy.on_command(at_commit(fault.clone()));
        run(&mut connection, rig.add_one())
            .await
            .expect_err("a cut connection");

        let mut connection = rig.connect().await;
        rig.proxy.on_command(at_commit(fault.clone()));
        let mut transaction = connection.begin().await.expect("a transaction");
        let update = format!("UPDATE {} SET n = n + 1", rig.table);
        raw_sql(AssertSqlSafe(update))
            .execute(&mut *transaction)
            .await
            .expect("an update");
        patiently(transaction.commit())
            .await
            .expect_err("a cut connection");
        drop(connection);

        assert_eq!(rig.number_at_rest().await, 0, "{fault:?}");
        assert_eq!(
            rig.proxy.counters().faults(fault.kind().expect("a fault")),
            2
        );
    }
    assert_eq!(rig.proxy.counters().commits, 0);
    rig.finish().await;
}

#[tokio::test]
async fn cut_after_all_is_committed() {
    let mut rig = Rig::start("cut_after").await;
    let mut expected = 0;
    for fault in [
        Fault::CutAfter(Upstream::Forwarded),
        Fault::CutAfter(Upstream::FirstByte),
        Fault::CutAfter(Upstream::Replied),
        Fault::TruncateReply,
    ] {
        for delay in [Duration::ZERO, Duration::from_millis(20)] {
            rig.proxy.set_delay(delay, delay);
            let mut connection = rig.connect().await;
            rig.proxy.on_command(at_commit(fault.clone()));
            let error = run(&mut connection, rig.add_one())
                .await
                .expect_err("a lost reply");
            assert!(matches!(error, Error::Io(_)), "{error:?}");
            expected += 1;
            rig.settles_at(expected).await;

            let mut connection = rig.connect().await;
            rig.proxy.on_command(at_commit(fault.clone()));
            let mut transaction = connection.begin().await.expect("a transaction");
            let update = format!("UPDATE {} SET n = n + 1", rig.table);
            raw_sql(AssertSqlSafe(update))
                .execute(&mut *transaction)
                .await
                .expect("an update");
            patiently(transaction.commit())
                .await
                .expect_err("a lost reply");
            expected += 1;
            if matches!(
                fault,
                Fault::CutAfter(Upstream::Replied) | Fault::TruncateReply
            ) {
                assert_eq!(
                    rig.number().await,
                    expected,
                    "the server was done before the cut"
                );
            }
            rig.settles_at(expected).await;
        }
    }
    let counters = rig.proxy.counters();
    assert_eq!(counters.faults(FaultKind::CutAfter), 12);
    assert_eq!(counters.commits, 16);
    rig.finish().await;
}

#[tokio::test]
async fn undone_is_acknowledged_and_never_runs() {
    let mut rig = Rig::start("undone").await;
    let mut connection = rig.connect().await;
    let update = format!("UPDATE {} SET n = n + 1", rig.table);
    let mut transaction = connection.begin().await.expect("a transaction");
    rig.proxy.on_command(once(
        |command| command.contains_word("UPDATE"),
        Fault::Undone,
    ));
    for affected in [0, 1] {
        let done = raw_sql(AssertSqlSafe(update.clone()))
            .execute(&mut *transaction)
            .await
            .expect("an acknowledgement");
        assert_eq!((done.rows_affected(), done.last_insert_id()), (affected, 0));
    }
    transaction.commit().await.expect("commits");
    assert_eq!(rig.number().await, 1);
    assert_eq!(rig.proxy.counters().faults(FaultKind::Undone), 1);
    rig.finish().await;
}

#[tokio::test]
async fn cut_after_reaches_the_server_though_the_client_is_gone() {
    let mut rig = Rig::start("cut_after_gone").await;
    let mut connection = rig.connect().await;
    rig.proxy
        .set_delay(Duration::from_millis(100), Duration::ZERO);
    rig.proxy
        .on_command(at_commit(Fault::CutAfter(Upstream::Replied)));
    // So slow that a server's side closed too early would show.
    let sql = format!("DO SLEEP(0.2); {}", rig.add_one());
    let waited = timeout(Duration::from_millis(20), run(&mut connection, sql)).await;
    assert!(waited.is_err(), "the command is still under way");
    drop(connection);
    patiently(rig.proxy.all_closed()).await;
    assert_eq!(rig.number().await, 1);
    rig.finish().await;
}

#[tokio::test]
async fn reset_is_a_reset() {
    let rig = Rig::start("reset").await;
    let mut connection = rig.connect().await;
    rig.proxy.on_command(at_commit(Fault::Reset));
    match run(&mut connection, rig.add_one()).await {
        Err(Error::Io(error)) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        other => panic!("{other:?}"),
    }
    rig.finish().await;
}

#[tokio::test]
async fn a_held_reply_is_held_whole_and_passes_later() {
    let mut rig = Rig::start("hold_reply").await;
    let mut connection = rig.connect().await;
    let gate = Gate::new();
    rig.proxy
        .on_command(at_commit(Fault::HoldReply(Hold::Until(gate.clone()))));
    let (before, _) = (
        rig.proxy.counters(),
        patiently(connection.ping()).await.expect("a ping"),
    );
    let sql = rig.add_one();
    let client = tokio::spawn(async move { run(&mut connection, sql).await });
    patiently(gate.reached()).await;
    assert_eq!(rig.number().await, 1, "the server is done");
    let so_far = rig.proxy.counters().since(&before);
    assert_eq!(
        so_far.bytes_to_client, 11,
        "the ping's answer, and no byte of the other"
    );
    assert!(!client.is_finished());
    gate.open();
    patiently(client).await.expect("a task").expect("a reply");
    rig.finish().await;
}

#[tokio::test]
async fn a_held_command_runs_after_its_client_is_gone() {
    let mut rig = Rig::start("hold_command").await;
    let mut connection = rig.connect().await;
    let gate = Gate::new();
    rig.proxy
        .on_command(at_commit(Fault::HoldCommand(Hold::Until(gate.clone()))));
    let sql = rig.add_one();
    let client = tokio::spawn(async move { run(&mut connection, sql).await });
    patiently(gate.reached()).await;
    client.abort();
    client.await.expect_err("a client that was stopped");

    // Others go on meanwhile.
    run(&mut rig.connect().await, rig.add_one())
        .await
        .expect("a reply");
    assert_eq!(rig.number().await, 1);
    // The other one closes, and the server's side of this one is kept.
    patiently(rig.proxy.down_to(1)).await;
    assert_eq!(rig.proxy.open_connections(), 1);
    gate.open();
    patiently(gate.answered()).await;
    assert_eq!(rig.number().await, 2);
    patiently(rig.proxy.all_closed()).await;
    rig.finish().await;
}

#[tokio::test]
async fn a_held_command_whose_client_waits_is_only_late() {
    let mut rig = Rig::start("hold_for").await;
    let mut connection = rig.connect().await;
    let hold = Duration::from_millis(50);
    let begun = Instant::now();
    rig.proxy
        .on_command(at_commit(Fault::HoldCommand(Hold::For(hold))));
    run(&mut connection, rig.add_one())
        .await
        .expect("a late reply");
    rig.proxy
        .on_command(at_commit(Fault::HoldReply(Hold::For(hold))));
    run(&mut connection, rig.add_one())
        .await
        .expect("a late reply");
    assert!(begun.elapsed() >= 2 * hold);
    assert_eq!(rig.number().await, 2);
    rig.finish().await;
}

#[tokio::test]
async fn half_open_is_silence() {
    let mut rig = Rig::start("half_open").await;
    let mut connection = rig.connect().await;
    rig.proxy.on_command(at_commit(Fault::HalfOpen));
    let sql = rig.add_one();
    let mut client = tokio::spawn(async move { run(&mut connection, sql).await });
    timeout(Duration::from_millis(100), &mut client)
        .await
        .expect_err("no answer");
    client.abort();
    assert_eq!(rig.number().await, 0);
    assert_eq!(
        rig.proxy.open_connections(),
        1,
        "not even the client's end passes"
    );
    rig.proxy.cut_all();
    assert_eq!(rig.number_at_rest().await, 0);
    rig.finish().await;
}

/// An end found too late would hold the reply forever, one found too early would leave packets that no command asked
/// for, which `finish` looks for.
#[tokio::test]
async fn every_end_of_a_reply_is_found() {
    let mut rig = Rig::start("ends").await;
    rig.proxy
        .on_command(|_| Fault::HoldReply(Hold::For(Duration::ZERO)));
    let mut connection = rig.connect().await;
    for round in 1..=3 {
        let several = format!(
            "SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2, 'y'; {}; SELECT NULL FROM {} WHERE FALSE; \
             SET @a = 1; SELECT REPEAT('z', 300000) AS long_one",
            rig.add_one(),
            rig.table
        );
        let results = patiently(raw_sql(AssertSqlSafe(several)).fetch_all(&mut connection)).await;
        let results = results.expect("all results");
        assert_eq!(results.len(), 4);
        assert_eq!(results[2].get::<i64, _>(0), round);
        assert_eq!(results[3].get::<String, _>(0).len(), 300_000);

        let stops = format!(
            "SELECT 1; INSERT INTO {} VALUES (1, 1); SELECT 2",
            rig.table
        );
        let error = run(&mut connection, stops)
            .await
            .expect_err("a duplicate key");
        assert!(matches!(error, Error::Database(_)), "{error:?}");

        // Prepared at first, then run from the cache; with and without parameters and columns.
        let n: i64 = patiently(
            sqlx::query_scalar(AssertSqlSafe(format!(
                "SELECT n FROM {} WHERE id = ?",
                rig.table
            )))
            .bind(1)
            .fetch_one(&mut connection),
        )
        .await
        .expect("a row");
        assert_eq!(n, round);
        let touch = sqlx::query("DO 1").execute(&mut connection);
        patiently(touch).await.expect("nothing to do");
        patiently(connection.ping()).await.expect("a ping");
    }
    let counters = rig.proxy.counters();
    assert_eq!(counters.faults(FaultKind::HoldReply), counters.commands);
    assert_eq!(rig.number().await, 3);
    rig.finish().await;
}

#[tokio::test]
async fn a_procedure_that_is_executed_sends_several_results() {
    let rig = Rig::start("procedure").await;
    rig.proxy
        .on_command(|_| Fault::HoldReply(Hold::For(Duration::ZERO)));
    let mut connection = rig.connect().await;
    let name = &rig.table;
    run(
        &mut connection,
        format!("DROP PROCEDURE IF EXISTS {name}; CREATE PROCEDURE {name}() BEGIN SELECT 1; SELECT 2; END"),
    )
    .await
    .expect("a procedure");
    rig.proxy.record(true);
    for _ in 0..2 {
        let call = sqlx::query(AssertSqlSafe(format!("CALL {name}()")));
        let rows = patiently(call.fetch_all(&mut connection))
            .await
            .expect("two results");
        assert_eq!(rows.len(), 2);
    }
    let recorded = rig.proxy.take_recorded();
    let kinds: Vec<_> = recorded.iter().map(|command| command.kind).collect();
    assert_eq!(
        kinds,
        [
            CommandKind::Prepare,
            CommandKind::Execute,
            CommandKind::Execute
        ]
    );
    assert!(
        recorded
            .iter()
            .all(|command| command.sql == Some(format!("CALL {name}()")))
    );
    run(&mut connection, format!("DROP PROCEDURE {name}"))
        .await
        .expect("no procedure");
    rig.finish().await;
}

#[tokio::test]
async fn a_storm_of_cuts_loses_nothing_acknowledged() {
    let mut rig = Rig::start("storm").await;
    let faults = RandomFaults::new(1)
        .with(0.1, Fault::CutBefore)
        .with(0.1, Fault::CutAfter(Upstream::Forwarded))
        .with(0.1, Fault::CutAfter(Upstream::Replied))
        .with(0.1, Fault::TruncateReply)
        .with(0.1, Fault::Truncate)
        .only(Command::contains_commit);
    rig.proxy.on_command(faults.into_hook());
    let (mut acknowledged, mut unknown) = (0, 0);
    let mut connection = rig.connect().await;
    for _ in 0..300 {
        if run(&mut connection, rig.add_one()).await.is_ok() {
            acknowledged += 1;
        } else {
            unknown += 1;
            connection = rig.connect().await;
        }
    }
    drop(connection);
    let counters = rig.proxy.counters();
    let committed_unheard =
        counters.faults(FaultKind::CutAfter) + counters.faults(FaultKind::TruncateReply);
    assert_eq!(counters.all_faults(), unknown);
    let expected = i64::try_from(acknowledged + committed_unheard).expect("a small number");
    rig.settles_at(expected).await;
    assert_eq!(rig.number_at_rest().await, expected);
    rig.finish().await;
}
