//! A batch of many rows writes to each what was asked for it, whatever its name, however its values are spread, and whether
//! or not the server lends its account the numbers that spare the list (MariaDB's SEQUENCE engine).

use std::collections::BTreeMap;

use futures_util::future::join_all;
use sqlx::{AssertSqlSafe, Row};
use tag_lock::LockGuard;

use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, connect, connected, is_mariadb, patient, run, server_url};

/// Names that a careless list would cut, pad, fold or confuse.
fn names() -> Vec<String> {
    let mut names: Vec<String> = [
        "a",
        "A",
        "á",
        "a\u{301}",
        " a",
        "  a",
        "a\u{a0}",
        "a\t",
        "a\u{1}",
        "\u{1}",
        "a\0",
        "0",
        "00",
        "1",
        "-1",
        "01",
        "1e0",
        "'",
        "''",
        "\\",
        "\"",
        "`",
        "--",
        "?",
        "v.seq",
        "%",
        "_",
        "ä",
        "ß",
        "ss",
        "ı",
        "i",
        "İ",
        "💥",
        "🎁",
        "center_lock_00",
    ]
    .map(str::to_owned)
    .to_vec();
    for length in [2, 31, 63, 64, 65, 127, 254, 255] {
        names.push("n".repeat(length));
        names.push("💥".repeat(length));
        names.push(format!("{} n", "é".repeat(length - 2)));
    }
    names
}

/// Those that are packed, since padding does not make them much longer.
fn short_names() -> Vec<String> {
    let mut names = names();
    names.retain(|name| name.len() <= 64);
    names
}

/// Descriptions of any length; in the first round with spaces where they count.
fn description(row: usize, round: usize) -> String {
    let text = match (row + round) % 5 {
        0 => String::new(),
        1 => " ".repeat(row % 7),
        2 => format!("ends in spaces{}", " ".repeat(row % 3)),
        3 => "💥".repeat(row % 9),
        _ => format!("row {row}"),
    };
    if round > 0 {
        return text.trim_end().to_owned();
    }
    text
}

/// What is added to a row's counter, one after the other: of any sign and length.
fn steps(row: usize) -> [i64; 3] {
    let row = i64::try_from(row).unwrap();
    let large = 10_i64.pow(u32::try_from(row % 18).unwrap());
    [
        row + 1,
        -large,
        if row % 11 == 0 { i64::MAX } else { large },
    ]
}

#[tokio::test]
async fn each_row_has_what_was_asked_for_it() {
    let database = TestDatabase::new().await;
    let used = check(&database, &database.url, &short_names()).await;
    assert_eq!(used, is_mariadb(), "the numbers are there, and used");
    database.remove().await;
}

#[tokio::test]
async fn also_among_names_of_very_different_lengths() {
    let database = TestDatabase::new().await;
    check(&database, &database.url, &names()).await;
    database.remove().await;
}

#[tokio::test]
async fn also_without_the_numbers() {
    let database = TestDatabase::new().await;
    let mut root = connect(&server_url()).await;
    let user = format!("few{:08x}", rand::random::<u32>());
    let mut account = vec![format!("CREATE USER '{user}'@'%' IDENTIFIED BY '{user}'")];
    for table in ["t_tag_lock", "t_tag_lock_lane"] {
        let table = format!("{}.{table}", database.name);
        account.push(format!(
            "GRANT SELECT, INSERT, UPDATE ON {table} TO '{user}'@'%'"
        ));
    }
    for sql in account {
        run(&mut root, &sql).await;
    }
    let (_, behind) = database.url.split_once('@').unwrap();
    let url = format!("mysql://{user}:{user}@{behind}");
    let used = check(&database, &url, &short_names()).await;
    assert!(!used, "the account may not read them");
    run(&mut root, &format!("DROP USER '{user}'@'%'")).await;
    database.remove().await;
}

/// Takes, changes and frees all names at once, again and again; whether it was done with the numbers.
async fn check(database: &TestDatabase, url: &str, names: &[String]) -> bool {
    let proxy = Proxy::before(url).await.unwrap();
    proxy.record(true);
    let client = connected(patient(&proxy.url(url)).lanes(1)).await;
    let mut values = vec![0_i128; names.len()];
    for round in 0..3 {
        let take = async |row: usize| -> LockGuard {
            let request = client
                .lock(&names[row])
                .description(description(row, round));
            request.try_acquire().await.unwrap().expect("it is free")
        };
        let guards = join_all((0..names.len()).map(take)).await;
        let expected = names.iter().enumerate();
        let expected: BTreeMap<String, String> = expected
            .map(|(row, name)| (name.clone(), description(row, round)))
            .collect();
        assert_eq!(
            rows(database, "description", "kind = 1 AND status = 1").await,
            expected
        );
        let fences = guards.iter().map(|guard| guard.fencing_token().to_string());
        let in_rows = rows(database, "fence", "kind = 1").await;
        for (fence, name) in fences.zip(names) {
            // A grant reserves a block of tokens, of which this is the first.
            let (last, first): (u64, u64) =
                (in_rows[name].parse().unwrap(), fence.parse().unwrap());
            assert!(
                first <= last && last - first < 65_536,
                "{name}: {first} {last}"
            );
        }
        // Some stay; the others are free in between.
        let freed = guards.into_iter().enumerate().map(async |(row, guard)| {
            if row % 3 != round {
                return guard.release().await.unwrap();
            }
            assert!(
                client
                    .lock(&names[row])
                    .try_acquire()
                    .await
                    .unwrap()
                    .is_none()
            );
            guard
                .extend(std::time::Duration::from_secs(60))
                .await
                .unwrap();
            guard.release().await.unwrap();
        });
        join_all(freed).await;
        assert!(
            rows(database, "description", "kind = 1 AND status <> 0")
                .await
                .is_empty()
        );

        let added = names
            .iter()
            .enumerate()
            .map(async |(row, name)| client.counter(name).add(steps(row)[round]).await.ok());
        for (row, told) in join_all(added).await.into_iter().enumerate() {
            let sum = values[row] + i128::from(steps(row)[round]);
            match i64::try_from(sum) {
                Ok(fits) => {
                    assert_eq!(told, Some(fits), "{:?}", names[row]);
                    values[row] = sum;
                }
                Err(_) => assert_eq!(told, None, "{:?} leaves the 64 bits", names[row]),
            }
        }
        let expected = names.iter().zip(&values);
        let expected: BTreeMap<String, String> = expected
            .map(|(name, value)| (name.clone(), value.to_string()))
            .collect();
        assert_eq!(rows(database, "count", "kind = 2").await, expected);
    }
    let recorded = proxy.take_recorded();
    recorded.iter().any(|command| {
        command
            .sql
            .as_ref()
            .is_some_and(|sql| sql.contains("seq_0_to_1023 v"))
    })
}

/// A column of some rows, by name.
async fn rows(database: &TestDatabase, column: &str, which: &str) -> BTreeMap<String, String> {
    let mut connection = database.connection().await;
    let sql =
        format!("SELECT lock_name, CONVERT({column} USING utf8mb4) FROM t_tag_lock WHERE {which}");
    let rows = sqlx::raw_sql(AssertSqlSafe(sql))
        .fetch_all(&mut connection)
        .await
        .unwrap();
    rows.iter()
        .map(|row| {
            (
                row.try_get_unchecked(0).unwrap(),
                row.try_get_unchecked(1).unwrap(),
            )
        })
        .collect()
}
