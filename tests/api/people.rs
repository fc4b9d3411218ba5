//! What people ask takes as long as it takes, and delays nobody who waits for a lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support;
use crate::support::proxy::{Command, Fault, Gate, Hold, Proxy};
use crate::support::{TestDatabase, connected, run};
use tag_lock::LockClient;

fn contains(command: &Command, text: &[u8]) -> bool {
    let sql = command.sql().unwrap_or_default();
    sql.windows(text.len()).any(|part| part == text)
}

/// A list whose answer does not come; and meanwhile a lock passes from one client to another, and a counter is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_delays_nobody() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let holder = database.client().await;
    let client = connected(support::patient(&proxy.url(&database.url))).await;
    holder.counter("n").add(3).await.unwrap();
    let gate = Gate::new();
    let held = gate.clone();
    proxy.on_command(move |command: &Command| {
        if contains(command, b"ORDER BY lock_name") {
            Fault::HoldReply(Hold::Until(held.clone()))
        } else {
            Fault::Pass
        }
    });
    let other = client.clone();
    let list = tokio::spawn(async move { other.list("", None, 10).await });
    gate.reached().await;
    for _ in 0..3 {
        let guard = holder.lock("l").acquire().await.unwrap();
        let other = client.clone();
        let waiter = tokio::spawn(async move { other.lock("l").acquire().await });
        tokio::time::sleep(Duration::from_millis(200)).await;
        guard.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(client.counter("n").get().await.unwrap(), 3);
    }
    assert!(!list.is_finished());
    gate.open();
    assert_eq!(list.await.unwrap().unwrap(), []);
    database.remove().await;
}

/// However many rows there are, one query looks at few of them; and each lock that is taken is found.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_many_rows_looks_at_few_at_a_time() {
    const ROWS: usize = 25_000;
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    for rows in (0..ROWS).collect::<Vec<_>>().chunks(1_000) {
        let rows: Vec<String> = rows
            .iter()
            .map(|row| {
                format!(
                    "('name {row:06}',{},0,UTC_TIMESTAMP(6),UTC_TIMESTAMP(6))",
                    1 + row % 2
                )
            })
            .collect();
        let insert = "INSERT INTO t_tag_lock (lock_name,kind,slot,create_time,modify_time) VALUES";
        run(&mut connection, &format!("{insert} {}", rows.join(","))).await;
    }
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(support::patient(&proxy.url(&database.url))).await;
    let mut names: Vec<String> = [0, 9_998, 10_000, 10_001, 19_999, 24_998]
        .map(|row| format!("name {row:06}"))
        .into();
    names.extend(["a".to_owned(), "zz".to_owned()]);
    names.sort();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(client.lock(name).acquire().await.unwrap());
    }
    let queries = std::sync::Arc::<AtomicUsize>::default();
    let counted = std::sync::Arc::clone(&queries);
    proxy.on_command(move |command: &Command| {
        let lists = contains(command, b"status<>0") && contains(command, b"ORDER BY lock_name");
        counted.fetch_add(usize::from(lists), Ordering::SeqCst);
        Fault::Pass
    });
    let start = Instant::now();
    let all = client.list("", None, 100).await.unwrap();
    println!("a list of {ROWS} rows took {:?}", start.elapsed());
    let found: Vec<&str> = all.iter().map(|lock| lock.name.as_str()).collect();
    assert_eq!(found, names);
    assert_eq!(
        queries.load(Ordering::SeqCst),
        3,
        "one for each ten thousand rows"
    );
    // In pages of any length it is the same.
    for limit in [1, 2, 3, 5] {
        let mut paged: Vec<String> = Vec::new();
        loop {
            let page = client
                .list("", paged.last().map(String::as_str), limit)
                .await
                .unwrap();
            assert!(page.len() <= usize::try_from(limit).unwrap());
            if page.is_empty() {
                break;
            }
            paged.extend(page.into_iter().map(|lock| lock.name));
        }
        assert_eq!(paged, names);
    }
    assert_eq!(client.list("", None, 0).await.unwrap(), []);
    // Of a prefix it looks at those alone that begin so.
    queries.store(0, Ordering::SeqCst);
    let some = client.list("name 0199", None, 100).await.unwrap();
    assert_eq!(some.len(), 1);
    assert_eq!(some[0].name, "name 019999");
    assert_eq!(queries.load(Ordering::SeqCst), 1);
    drop(guards);
    let _: LockClient = client;
    database.remove().await;
}
