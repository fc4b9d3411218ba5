//! How the server reads the table for each statement of a packet.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};
use tag_lock::{LockClient, LockGuard};

use super::rig::{LOCK, Rig, hex, name};
use crate::support::packets::statements_of;
use crate::support::{eventually, number};

#[tokio::test]
async fn plans_of_a_small_table() {
    plans(60, 59).await;
}

#[tokio::test]
async fn plans_of_a_large_table() {
    plans(60_000, 1_000).await;
}

/// Whatever an operation's packet is joined from, the table is read by the whole primary key, row by row.
async fn plans(rows: usize, batch: usize) {
    let mut rig = Rig::with_rows(rows).await;
    // From the first packet on, which prepares what the later ones execute.
    rig.proxy.record(true);
    // One row, many rows, and rows that must be created.
    let new = rows + batch;
    for names in [0..1, 0..batch, rows..new, new..new + 1] {
        every_operation(&rig, &names.map(name).collect::<Vec<_>>()).await;
    }
    let mut prepared = HashMap::new();
    let mut statements = Vec::new();
    for command in rig.proxy.take_recorded() {
        // Not the registration of a lane, which names no row of the table.
        let sql = command.sql.unwrap_or_default();
        if sql.contains(";COMMIT;SELECT ") && !sql.contains("'registered'") {
            let known = prepared.entry(command.connection).or_default();
            statements.extend(statements_of(&sql, known));
        }
    }
    let sequence = "seq_0_to_1023 v";
    println!(
        "{} lists are numbers",
        statements
            .iter()
            .filter(|sql| sql.contains(sequence))
            .count()
    );
    for part in [
        // The decision; acquire, release, renewal, release by force, want, counter; creation; stripes.
        "@tag_lock_granted,@tag_lock_rows FROM v STRAIGHT_JOIN t_tag_lock t ",
        "@tag_lock_granted,@tag_lock_rows FROM t_tag_lock t ",
        // A single row.
        "INSERT INTO t_tag_lock (lock_name,kind,slot) SELECT _utf8mb4",
        "t_tag_lock.modify_time=UTC_TIMESTAMP(6),t_tag_lock.fence=GREATEST(",
        "t_tag_lock.modify_time=UTC_TIMESTAMP(6),t_tag_lock.fence=1",
        "t_tag_lock.modify_time=UTC_TIMESTAMP(6),t_tag_lock.deadline=GREATEST(",
        "t_tag_lock.modify_time=UTC_TIMESTAMP(6),t_tag_lock.holder=",
        "t_tag_lock.modify_time=UTC_TIMESTAMP(6),t_tag_lock.wanted_until=",
        "t_tag_lock.modify_time=UTC_TIMESTAMP(6),t_tag_lock.previous=",
        "(lock_name,kind,slot,fence,create_time,modify_time)",
        &hex("center_lock"),
    ] {
        // Of what is cut from a string, `cut` says that it is a column of the list.
        let recorded = statements.iter().any(|sql| {
            let sql = sql.replace(sequence, "v");
            sql.contains(part) || sql.replace("CAST(SUBSTR(", "1").contains(part)
        });
        assert!(recorded, "no statement with {part} was recorded");
    }
    let mut reads = 0;
    for sql in &statements {
        let of_it = check_plan(&mut rig.foreign, sql).await;
        // Several rows are changed one by one, each by what an insert finds in its place.
        let change = sql.starts_with("INSERT INTO t_tag_lock (lock_name,kind,slot) ");
        // A single row that is to be created is there by now, which the plan of it says before it reads.
        let creation = sql.contains("fence,create_time,modify_time) SELECT _utf8mb4");
        assert!(creation || change == (of_it == 0), "{sql}");
        reads += of_it;
    }
    let count = statements.len();
    println!("{rows} rows: {count} statements with {reads} reads of a table");
    rig.remove().await;
}

/// Each kind of operation that a packet can have, all at once for all names.
async fn every_operation(rig: &Rig, names: &[String]) {
    let client = &rig.client;
    let acquire = || join_all(names.iter().map(|name| client.lock(name).try_acquire()));
    let guards: Vec<LockGuard> = acquire()
        .await
        .into_iter()
        .map(|guard| guard.unwrap().unwrap())
        .collect();
    let extended = guards
        .iter()
        .map(|guard| guard.extend(Duration::from_secs(60)));
    assert!(join_all(extended).await.iter().all(Result::is_ok));
    // Another process says in the row that it waits.
    let other = LockClient::connect(&rig.proxy.url(&rig.database.url))
        .await
        .unwrap();
    let wanted = names[0].clone();
    let waiting =
        tokio::spawn(async move { other.lock(&wanted).acquire().await.unwrap().release().await });
    let sql = format!(
        "SELECT COUNT(*) FROM t_tag_lock WHERE lock_name = '{}' AND kind = {LOCK} AND wanted_until > UTC_TIMESTAMP(6)",
        names[0]
    );
    eventually("the row says that somebody waits", async || {
        let mut connection = rig.database.connection().await;
        number(&mut connection, &sql).await == 1
    })
    .await;
    let released = join_all(guards.into_iter().map(LockGuard::release)).await;
    assert!(released.iter().all(Result::is_ok));
    waiting.await.unwrap().unwrap();
    let guards = acquire().await;
    let freed = join_all(names.iter().map(|name| client.force_release(name))).await;
    assert!(freed.into_iter().all(|freed| freed.unwrap()));
    drop(guards);
    let counters = || names.iter().map(|name| client.counter(name));
    join_all(counters().map(async |counter| counter.add(1).await.unwrap())).await;
    join_all(counters().map(async |counter| counter.add_within(1, 0..9).await.unwrap())).await;
    join_all(counters().map(async |counter| counter.set(7).await.unwrap())).await;
}

/// Explains a statement; how often it reads the table.
async fn check_plan(connection: &mut MySqlConnection, sql: &str) -> usize {
    // As if all were granted; otherwise a plan says that nothing is to be done.
    let one = sql.starts_with("UPDATE t_tag_lock t ");
    let granted = match sql.split_once(" AND FIND_IN_SET(") {
        Some((granted, _)) if one => granted.to_owned(),
        _ => sql.replace(
            "(LENGTH(@tag_lock_granted)=",
            "(1 OR LENGTH(@tag_lock_granted)=",
        ),
    };
    let plan = sqlx::raw_sql(AssertSqlSafe(format!(
        "EXPLAIN FORMAT=TRADITIONAL {granted}"
    )))
    .fetch_all(connection)
    .await
    .unwrap_or_else(|error| panic!("EXPLAIN {sql}: {error}"));
    let mut reads = 0;
    for row in plan {
        let column = |name: &str| {
            row.try_get_unchecked::<Option<String>, _>(name)
                .unwrap()
                .unwrap_or_default()
        };
        let (table, access) = (column("table"), column("type"));
        let statement: String = sql.chars().take(2_000).collect();
        let shown = format!(
            "{} {table} {access} {} {} {}: {statement}",
            column("select_type"),
            column("key"),
            column("key_len"),
            column("Extra")
        );
        // The list of literals, the rows decided from it, and the target of an insert are no reads of the table.
        if table.starts_with('<')
            || table == "v"
            || table == "k"
            || table.is_empty()
            || column("select_type") == "INSERT"
        {
            continue;
        }
        reads += 1;
        let single = match access.as_str() {
            "eq_ref" | "const" => true,
            // A plain update shows the equality with its whole key so.
            "range" => sql.starts_with("UPDATE ") && column("rows") == "1",
            _ => false,
        };
        assert!(single && column("key") == "PRIMARY", "{shown}");
        // 255 characters of 4 bytes with their length, kind and slot; or the id of a lane.
        let lane = table == "t_tag_lock_lane";
        let whole = if lane { "16" } else { "1027" };
        assert_eq!(column("key_len"), whole, "{shown}");
    }
    reads
}
