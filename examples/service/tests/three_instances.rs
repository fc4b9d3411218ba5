//! Three instances of the service beside each other: customers order from all of them, one is killed, the others are told to stop.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

const STOCK: i64 = 60;
/// Histograms that are there as soon as the service works.
const MEASURED: [&str; 2] = [
    "tag_lock_acquire_seconds_bucket",
    "tag_lock_commit_seconds_bucket",
];

struct Instance {
    process: Child,
    address: String,
}

impl Instance {
    async fn start(url: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_service"))
            .env("DATABASE_URL", url)
            .env("LISTEN", "127.0.0.1:0")
            .env("STOCK", STOCK.to_string())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines.next_line().await.unwrap();
        let address = address.expect("an instance says where it listens");
        Self { process, address }
    }

    fn tell(&self, signal: Signal) {
        let process = i32::try_from(self.process.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(process).unwrap(), signal).unwrap();
    }
}

/// The status and the body of what an instance answers; `None` if it is gone.
async fn request(address: &str, method: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

async fn number(connection: &mut MySqlConnection, sql: &str) -> i64 {
    let sql = AssertSqlSafe(sql.to_owned());
    let row = sqlx::query(sql).fetch_one(connection).await.unwrap();
    row.try_get(0).unwrap()
}

/// Asks until it is so.
async fn until(connection: &mut MySqlConnection, sql: &str, expected: i64) {
    while number(connection, sql).await != expected {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Customers order, each from every instance, at once; how many orders were placed, by those that answered.
async fn orders(instances: &[&Instance], customers: std::ops::Range<i64>) -> i64 {
    let mut requests = JoinSet::new();
    for customer in customers {
        for instance in instances {
            let (address, path) = (instance.address.clone(), format!("/orders/{customer}"));
            requests.spawn(async move { request(&address, "POST", &path).await });
        }
    }
    let mut placed = 0;
    while let Some(answer) = requests.join_next().await {
        placed += i64::from(answer.unwrap().is_some_and(|(status, _)| status == 201));
    }
    placed
}

/// The series that the dashboard and the alerts of tag-lock ask for.
fn asked_for() -> BTreeSet<String> {
    let dashboard: Value =
        serde_json::from_str(include_str!("../../../docs/grafana-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let shown: Vec<&str> = targets
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    let alerts = include_str!("../../../docs/prometheus-alerts.yml");
    let alerts = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "));
    let all = shown
        .into_iter()
        .chain(alerts)
        .collect::<Vec<_>>()
        .join(" ");
    let words = all.split(|character: char| !character.is_ascii_lowercase() && character != '_');
    let series: BTreeSet<String> = words
        .filter(|word| word.starts_with("tag_lock_"))
        .map(str::to_owned)
        .collect();
    assert!(series.len() > 10, "{series:?}");
    series
}

#[tokio::test]
async fn a_killed_instance_costs_no_order_and_no_report() {
    let base: MySqlConnectOptions = std::env::var("DATABASE_URL").unwrap().parse().unwrap();
    let name = format!("service_{}", std::process::id());
    let mut connection = base.connect().await.unwrap();
    for sql in ["DROP DATABASE IF EXISTS", "CREATE DATABASE"] {
        let sql = AssertSqlSafe(format!("{sql} {name}"));
        connection.execute(sqlx::raw_sql(sql)).await.unwrap();
    }
    let options = base.database(&name);
    let url = options.to_url_lossy().to_string();
    let mut connection = options.connect().await.unwrap();

    let mut instances = vec![
        Instance::start(&url).await,
        Instance::start(&url).await,
        Instance::start(&url).await,
    ];
    // Each customer asks three instances at once, and gets one order.
    let all: Vec<&Instance> = instances.iter().collect();
    assert_eq!(orders(&all, 0..20).await, 20);
    let unshipped = "SELECT COUNT(*) FROM shop_order WHERE shipped_by IS NULL";
    until(&mut connection, unshipped, 0).await;

    // Prometheus finds what the dashboard and the alerts ask for.
    // Who ships has acquired something.
    let (_, shipper) = request(&instances[0].address, "GET", "/shipper")
        .await
        .unwrap();
    let (status, scraped) = request(&shipper, "GET", "/metrics").await.unwrap();
    assert_eq!(status, 200);
    for series in asked_for() {
        let (counted, labelled) = (format!("{series} "), format!("{series}{{"));
        let is_there = scraped
            .lines()
            .any(|line| line.starts_with(&counted) || line.starts_with(&labelled));
        // What nobody has measured yet has no buckets. Leases were acquired, and packets committed.
        let is_measured = !series.ends_with("_bucket") || MEASURED.contains(&series.as_str());
        assert!(is_there || !is_measured, "{series} is not in {scraped}");
    }

    // The one that ships is killed while others order.
    let (_, shipper) = request(&instances[0].address, "GET", "/shipper")
        .await
        .unwrap();
    let leads = instances.iter().position(|each| each.address == shipper);
    let mut killed = instances.swap_remove(leads.expect("an instance ships"));
    let others: Vec<&Instance> = instances.iter().collect();
    let (placed, ()) = tokio::join!(orders(&others, 20..40), async {
        orders(&[&killed], 40..45).await;
        killed.process.kill().await.unwrap();
    });
    assert_eq!(placed, 20);
    // More than there is.
    orders(&others, 45..200).await;
    let orders_of = "SELECT COUNT(*) FROM shop_order";
    assert_eq!(number(&mut connection, orders_of).await, STOCK);
    // Another one goes on where the killed one was.
    until(&mut connection, unshipped, 0).await;

    // Told to stop, the others end in good order, and leave nothing behind.
    for instance in &instances {
        instance.tell(Signal::TERM);
    }
    for instance in &mut instances {
        assert!(instance.process.wait().await.unwrap().success());
    }
    let held = "SELECT COUNT(*) FROM t_tag_lock WHERE kind = 1 AND status <> 0 AND deadline > UTC_TIMESTAMP(6)";
    assert_eq!(number(&mut connection, held).await, 0);

    let customers = "SELECT COUNT(DISTINCT customer) FROM shop_order";
    assert_eq!(number(&mut connection, customers).await, STOCK);
    let last = "SELECT MAX(number) FROM shop_order";
    assert_eq!(
        number(&mut connection, last).await,
        STOCK,
        "numbers without holes"
    );
    let disorder = "SELECT COUNT(*) FROM shop_order a JOIN shop_order b \
                    ON a.number < b.number AND a.shipped_by > b.shipped_by";
    assert_eq!(number(&mut connection, disorder).await, 0);
    let reports = number(&mut connection, "SELECT COUNT(*) FROM shop_report").await;
    let done = "SELECT COUNT(*) FROM t_tag_lock WHERE kind = 4 AND status = 4";
    assert_eq!(number(&mut connection, done).await, reports);
    assert!(reports > 0);
    let sql = AssertSqlSafe(format!("DROP DATABASE {name}"));
    connection.execute(sqlx::raw_sql(sql)).await.unwrap();
    connection.close().await.unwrap();
}
