//! What holds for the whole proxy: delays, pauses, cuts, and the counters.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, Row, raw_sql};
use tokio::time::{Instant, timeout};

use super::rig::{Rig, patiently, run};
use crate::support::proxy::{CommandKind, Fault, Gate, Hold, once};

#[tokio::test]
async fn a_delay_lengthens_each_round_trip() {
    let rig = Rig::start("delay").await;
    let mut connection = rig.connect().await;
    rig.proxy
        .set_delay(Duration::from_millis(30), Duration::from_millis(20));
    rig.proxy.set_jitter(Duration::from_millis(5));
    let begun = Instant::now();
    for _ in 0..3 {
        patiently(connection.ping()).await.expect("a ping");
    }
    assert!(
        begun.elapsed() >= Duration::from_millis(150),
        "{:?}",
        begun.elapsed()
    );
    rig.finish().await;
}

#[tokio::test]
async fn a_delay_is_that_of_a_wire_not_of_each_packet() {
    let rig = Rig::start("pipeline").await;
    let mut connection = rig.connect().await;
    rig.proxy
        .set_delay(Duration::from_millis(20), Duration::from_millis(20));
    // 10,000 rows are as many packets, in many reads: one by one they would take 200 s.
    let ten = "(SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
        UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
    let many = format!("SELECT REPEAT('x', 200) FROM {ten} a, {ten} b, {ten} c, {ten} d");
    let begun = Instant::now();
    let rows = patiently(raw_sql(AssertSqlSafe(many)).fetch_all(&mut connection)).await;
    let rows = rows.expect("rows");
    assert_eq!(rows.len(), 10_000);
    assert!(rows.iter().all(|row| row.get::<String, _>(0).len() == 200));
    assert!(begun.elapsed() >= Duration::from_millis(40));
    assert!(
        begun.elapsed() < Duration::from_secs(100),
        "{:?}",
        begun.elapsed()
    );
    rig.finish().await;
}

#[tokio::test]
async fn a_pause_loses_nothing() {
    let mut rig = Rig::start("pause").await;
    let mut connection = rig.connect().await;
    rig.proxy.pause();
    let sql = rig.add_one();
    let mut client = tokio::spawn(async move { run(&mut connection, sql).await });
    timeout(Duration::from_millis(100), &mut client)
        .await
        .expect_err("no answer");
    assert_eq!(rig.number().await, 0);
    rig.proxy.resume();
    patiently(client).await.expect("a task").expect("a reply");
    assert_eq!(rig.number().await, 1);
    rig.finish().await;
}

#[tokio::test]
async fn cut_all_reaches_paused_and_waiting_connections() {
    let mut rig = Rig::start("cut_all").await;
    let gate = Gate::new();
    rig.proxy.on_command(once(
        |command| command.contains_commit(),
        Fault::HoldReply(Hold::Until(gate.clone())),
    ));
    let (mut waiting, mut idle) = (rig.connect().await, rig.connect().await);
    let sql = rig.add_one();
    let client = tokio::spawn(async move { run(&mut waiting, sql).await });
    patiently(gate.reached()).await;
    rig.proxy.pause();
    assert_eq!(rig.proxy.open_connections(), 2);
    rig.proxy.cut_all();
    patiently(rig.proxy.all_closed()).await;
    patiently(client)
        .await
        .expect("a task")
        .expect_err("a cut connection");
    patiently(idle.ping()).await.expect_err("a cut connection");
    rig.proxy.resume();
    patiently(rig.connect().await.ping())
        .await
        .expect("a new connection");
    assert_eq!(rig.number().await, 1);
    rig.finish().await;
}

#[tokio::test]
async fn refuse_turns_away_new_connections_only() {
    let rig = Rig::start("refuse").await;
    let mut connection = rig.connect().await;
    rig.proxy.refuse(true);
    rig.try_connect().await.expect_err("a refused connection");
    patiently(connection.ping())
        .await
        .expect("the old connection");
    rig.proxy.refuse(false);
    rig.connect().await;
    rig.finish().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_closes_and_dropping_closes() {
    let rig = Rig::start("gone").await;
    let mut connection = rig.connect().await;
    rig.proxy.set_upstream("127.0.0.1:1");
    rig.try_connect().await.expect_err("no server");
    patiently(connection.ping())
        .await
        .expect("the old connection");
    rig.finish().await;
    patiently(connection.ping()).await.expect_err("no proxy");
}

#[tokio::test]
async fn round_trips_are_counted_and_recorded() {
    let rig = Rig::start("counters").await;
    let mut connection = rig.connect().await;
    let before = rig.proxy.counters();
    rig.proxy.record(true);
    run(&mut connection, rig.add_one()).await.expect("a reply");
    patiently(connection.ping()).await.expect("a ping");
    let select = sqlx::query("SELECT ?").persistent(false).bind(1);
    patiently(select.fetch_one(&mut connection))
        .await
        .expect("a row");
    patiently(connection.close()).await.expect("a farewell");
    patiently(rig.proxy.all_closed()).await;

    let recorded = rig.proxy.take_recorded();
    let kinds: Vec<_> = recorded.iter().map(|command| command.kind).collect();
    let expected = [
        CommandKind::Query,
        CommandKind::Ping,
        CommandKind::Prepare,
        CommandKind::Execute,
        CommandKind::CloseStatement,
        CommandKind::Quit,
    ];
    assert_eq!(kinds, expected);
    assert_eq!(recorded[0].sql, Some(rig.add_one()));
    assert_eq!(recorded[3].sql.as_deref(), Some("SELECT ?"));
    assert!(recorded.iter().all(|command| command.connection == 1));

    let counters = rig.proxy.counters().since(&before);
    assert_eq!(
        (counters.commands, counters.round_trips, counters.commits),
        (6, 4, 1)
    );
    assert!(counters.bytes_to_server > 150 && counters.bytes_to_client > 50);
    assert_eq!(rig.proxy.take_recorded(), []);
    rig.finish().await;
}
