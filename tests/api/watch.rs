//! `LockClient::watch`: how things stand, then each change.

use std::time::{Duration, Instant};

use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, connected, eventually, patient};
use futures_util::StreamExt;
use sqlx::{AssertSqlSafe, Row};
use tag_lock::{AtClose, Error, Holder, LockClient, LockGuard, LockWatch};
use tokio::time::timeout;

const HOUR: Duration = Duration::from_secs(3_600);
/// Far more than a look takes.
const SOON: Duration = Duration::from_secs(60);
/// Some looks.
const A_WHILE: Duration = Duration::from_millis(600);

async fn acquire(client: &LockClient, name: &str) -> LockGuard {
    let request = client.lock(name).ttl(HOUR).description("work");
    request.acquire().await.expect("acquires")
}

async fn next(watch: &mut LockWatch) -> Option<Holder> {
    let told = timeout(SOON, watch.next()).await;
    told.expect("told").expect("open").expect("no error")
}

async fn quiet(watch: &mut LockWatch) {
    let told = timeout(A_WHILE, watch.next()).await;
    assert!(told.is_err(), "{told:?}");
}

#[tokio::test]
async fn it_begins_with_how_things_stand_and_tells_each_change() {
    let database = TestDatabase::new().await;
    let (watches, holds) = (database.client().await, database.client().await);
    let mut never = watches.watch("never").expect("a name");
    assert_eq!(next(&mut never).await, None);
    let guard = acquire(&holds, "a").await;
    let mut watch = watches.watch("a").expect("a name");
    let holder = next(&mut watch).await.expect("held");
    assert_eq!(holder.description, "work");
    assert!(holder.highest_fencing_token >= guard.fencing_token());
    let info = holds.inspect("a").await.expect("inspects").expect("a row");
    assert_eq!(
        (&holder.held_by, holder.until),
        (&info.held_by, info.deadline)
    );
    assert!(
        (holder.until - holder.since).to_std().expect("later") <= HOUR + Duration::from_secs(1)
    );
    assert!(!holder.is_kept);
    // A renewal is no change.
    guard.extend(2 * HOUR).await.expect("extends");
    quiet(&mut watch).await;
    guard.release().await.expect("releases");
    assert_eq!(next(&mut watch).await, None);
    let kept = holds
        .lock("a")
        .hold_at_least(HOUR)
        .acquire()
        .await
        .expect("acquires");
    let second = next(&mut watch).await.expect("held");
    assert!(
        second.highest_fencing_token > holder.highest_fencing_token && second.since >= holder.since
    );
    kept.release().await.expect("releases");
    assert!(next(&mut watch).await.expect("taken").is_kept);
    assert!(watches.force_release("a").await.expect("an answer"));
    assert_eq!(next(&mut watch).await, None);
    // A lease that ends by itself.
    let short = holds
        .lock("a")
        .ttl(Duration::from_millis(300))
        .auto_renew(false);
    let short = short.acquire().await.expect("acquires");
    if next(&mut watch).await.is_some() {
        assert_eq!(next(&mut watch).await, None);
    }
    drop(short);
    quiet(&mut never).await;
    database.remove().await;
}

/// Whoever begins to watch what others watch already is told how things stand now, not how they stood at the last look.
#[tokio::test]
async fn the_first_item_is_not_older_than_the_watch() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut before = client.watch("a").expect("a name");
    assert_eq!(next(&mut before).await, None);
    for _ in 0..20 {
        let guard = acquire(&client, "a").await;
        assert!(
            next(&mut client.watch("a").expect("a name"))
                .await
                .is_some()
        );
        guard.release().await.expect("releases");
        assert!(
            next(&mut client.watch("a").expect("a name"))
                .await
                .is_none()
        );
    }
    database.remove().await;
}

#[tokio::test]
async fn a_hundred_watches_cost_one_query_and_none_cost_nothing() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let client = connected(patient(&proxy.url(&database.url))).await;
    let names = |number| format!("lock:{}", number % 50);
    let mut watches: Vec<LockWatch> = (0..100)
        .map(|n| client.watch(&names(n)).expect("a name"))
        .collect();
    for watch in &mut watches {
        assert_eq!(next(watch).await, None);
    }
    let (before, since) = (proxy.round_trips(), Instant::now());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (looks, took) = (proxy.round_trips() - before, since.elapsed());
    assert!(
        u128::from(looks) <= took.as_millis() / 100 + 1,
        "{looks} round trips in {took:?}"
    );
    eventually("it looks", async || proxy.round_trips() > before).await;
    let guard = acquire(&client, "lock:7").await;
    for watch in watches.iter_mut().filter(|watch| watch.name() == "lock:7") {
        assert!(next(watch).await.is_some());
    }
    drop(watches);
    eventually("nobody watches", async || {
        let before = proxy.round_trips();
        tokio::time::sleep(A_WHILE).await;
        proxy.round_trips() == before
    })
    .await;
    guard.release().await.expect("releases");
    database.remove().await;
}

#[tokio::test]
async fn an_outage_is_ridden_out() {
    let database = TestDatabase::new().await;
    let (holds, proxy) = (
        database.client().await,
        Proxy::before(&database.url).await.expect("a proxy"),
    );
    let client = connected(patient(&proxy.url(&database.url))).await;
    let mut watch = client.watch("a").expect("a name");
    assert_eq!(next(&mut watch).await, None);
    proxy.refuse(true);
    proxy.cut_all();
    let guard = acquire(&holds, "a").await;
    quiet(&mut watch).await;
    proxy.refuse(false);
    assert!(next(&mut watch).await.is_some());
    guard.release().await.expect("releases");
    assert_eq!(next(&mut watch).await, None);
    database.remove().await;
}

#[tokio::test]
async fn what_cannot_be_mended_is_told_once() {
    let database = TestDatabase::empty().await;
    let client = database.client().await;
    let mut watch = client.watch("a").expect("a name");
    let told = timeout(SOON, watch.next()).await.expect("told");
    assert!(
        matches!(told, Some(Err(Error::NotMigrated { .. }))),
        "{told:?}"
    );
    quiet(&mut watch).await;
    client.migrate().await.expect("migrates");
    assert_eq!(next(&mut watch).await, None);
    assert!(matches!(client.watch(""), Err(Error::InvalidName { .. })));
    database.remove().await;
}

/// The stream is one of `futures`, ends with the client, and goes on ending.
#[tokio::test]
async fn it_ends_when_the_client_is_closed() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut one = client.watch("a").expect("a name");
    let mut two = client
        .watch("b")
        .expect("a name")
        .map(|told| told.expect("no error").is_some());
    assert_eq!(
        timeout(SOON, StreamExt::next(&mut two))
            .await
            .expect("told"),
        Some(false)
    );
    client.close(AtClose::Release).await;
    assert_eq!(
        timeout(SOON, StreamExt::next(&mut two))
            .await
            .expect("ended"),
        None
    );
    while let Some(told) = timeout(SOON, one.next()).await.expect("ended") {
        assert_eq!(told.expect("no error"), None);
    }
    assert!(one.next().await.is_none());
    let mut late = client.watch("a").expect("a name");
    assert!(timeout(SOON, late.next()).await.expect("ended").is_none());
    database.remove().await;
}

#[tokio::test]
async fn names_are_told_apart() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let names = [
        "a",
        "A",
        "\u{e4}",
        "\u{1f381}",
        "a'b\\\0c",
        "center_lock_00",
    ];
    for name in names {
        let mut watches: Vec<LockWatch> = names
            .iter()
            .map(|name| client.watch(name).expect("a name"))
            .collect();
        let guard = acquire(&client, name).await;
        for watch in &mut watches {
            let mine = watch.name() == name;
            let mut held = next(watch).await.is_some();
            // The first look may have been before the grant.
            if mine && !held {
                held = next(watch).await.is_some();
            }
            assert_eq!(held, mine, "{name:?}, {:?}", watch.name());
        }
        guard.release().await.expect("releases");
    }
    database.remove().await;
}

/// A look reads the rows that it names, one by one, however many others there are.
#[tokio::test]
async fn rows_are_found_by_their_keys() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let client = connected(patient(&proxy.url(&database.url))).await;
    proxy.record(true);
    let mut watches = Vec::new();
    for number in 0..50 {
        let name = format!("lock:{number}");
        acquire(&client, &name)
            .await
            .release()
            .await
            .expect("releases");
        watches.push(client.watch(&name).expect("a name"));
    }
    for watch in &mut watches {
        assert_eq!(next(watch).await, None);
    }
    let recorded = proxy.take_recorded();
    let mut looks = recorded.into_iter().filter_map(|recorded| recorded.sql);
    let look = looks.find(|sql| sql.contains(" COLLATE utf8mb4_bin AS name"));
    // The first one switches autocommit on.
    let look = look.expect("a look").replace("SET autocommit=1;", "");
    let mut connection = database.connection().await;
    let plan = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN FORMAT=TRADITIONAL {look}")));
    let plan = plan.fetch_all(&mut connection).await.expect("a plan");
    let access: Vec<String> = plan
        .iter()
        .filter(|row| {
            row.try_get_unchecked::<Option<String>, _>("table")
                .expect("a column")
                .as_deref()
                == Some("t")
        })
        .map(|row| row.try_get_unchecked("type").expect("a column"))
        .collect();
    assert_eq!(access.len(), 1);
    assert!(
        matches!(access[0].as_str(), "eq_ref" | "const"),
        "{access:?}: {look}"
    );
    database.remove().await;
}
