//! A shop, as a service of several instances: `scripts/with-mysql cargo run -p service`
//!
//! - `orders.rs`: each customer has at most one order, and no piece is sold twice (`lock_in`, `add_within_in`).
//! - `reports.rs`: once for each minute, on one of the instances, the orders are counted (`job`, `finish_in`).
//! - `shipping.rs`: one instance at a time ships what was ordered, in order (`election`, `verify_in`).
//! - `GET /metrics`: what the library counts, for Prometheus.
//!
//! It ends when it gets SIGTERM or SIGINT: it takes no more requests, answers those that it has, ends its work, and gives back its locks, so that the others
//! go on at once. If it is killed instead, they go on when its leases have ended.
//!
//! `DATABASE_URL` says where the data are, `LISTEN` where it listens (127.0.0.1:3000), and `STOCK` how many pieces there are at first (1000).

mod orders;
mod reports;
mod shipping;

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use sqlx::Executor;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use tag_lock::{AtClose, LockClient};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What all parts of the service have.
#[derive(Clone)]
struct Shop {
    pool: MySqlPool,
    locks: LockClient,
    /// Who leads tells where it can be reached.
    address: String,
}

/// Buckets for what takes from a millisecond to a minute.
const SECONDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
];

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Fallible<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    // Before the client, which begins its counters at zero.
    let metrics = metrics()?;
    let url = std::env::var("DATABASE_URL")?;
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(listen).await?;
    let address = listener.local_addr()?.to_string();
    let shop = Shop {
        pool: connect(&url).await?,
        // Leases end five seconds after an instance was killed.
        locks: LockClient::builder(url.parse()?)
            .default_ttl(Duration::from_secs(5))
            .holder(&address)
            .connect()
            .await?,
        address,
    };
    prepare(&shop).await?;

    let stop = CancellationToken::new();
    let mut work = JoinSet::new();
    let router = Router::new()
        .route("/orders/{customer}", post(orders::post))
        .route("/stock", get(orders::stock))
        .route("/shipper", get(shipping::get))
        .route("/metrics", get(async move || metrics.render()))
        .with_state(shop.clone());
    let stopped = stop.clone().cancelled_owned();
    work.spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(stopped);
        Ok(served.await?)
    });
    work.spawn(reports::run(shop.clone(), stop.clone()));
    work.spawn(shipping::run(shop.clone(), stop.clone()));
    println!("{}", shop.address);

    let ended = until_told_to_stop(&mut work).await;
    stop.cancel();
    // What is under way comes to its end.
    while let Some(part) = work.join_next().await {
        part??;
    }
    shop.locks.close(AtClose::Release).await;
    shop.pool.close().await;
    ended
}

/// Collects what is counted and measured, until somebody asks for it. The dashboard and the alerts of tag-lock want buckets.
fn metrics() -> Fallible<PrometheusHandle> {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    Ok(PrometheusBuilder::new()
        .set_buckets_for_metric(seconds, &SECONDS)?
        .install_recorder()?)
}

/// Counters that change with the orders want READ COMMITTED: others change them between the first read and the change.
async fn connect(url: &str) -> Fallible<MySqlPool> {
    let options = MySqlPoolOptions::new().after_connect(|connection, _| {
        Box::pin(async move {
            let isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
            connection.execute(isolation).await?;
            Ok(())
        })
    });
    Ok(options.connect(url).await?)
}

/// Waits for a signal, or for the first part that ends by itself, which none should.
async fn until_told_to_stop(work: &mut JoinSet<Fallible<()>>) -> Fallible<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        Some(part) = work.join_next() => {
            part??;
            Err("a part of the service has ended".into())
        }
    }
}

/// The tables of the locks and of the shop, and its stock, once: instances may start together.
async fn prepare(shop: &Shop) -> Fallible<()> {
    shop.locks.migrate().await?;
    let tables = [
        "CREATE TABLE IF NOT EXISTS shop_order (number BIGINT PRIMARY KEY, customer VARCHAR(64) NOT NULL, \
         shipped_by BIGINT NULL, KEY (customer))",
        "CREATE TABLE IF NOT EXISTS shop_report (slot VARCHAR(32) PRIMARY KEY, orders BIGINT NOT NULL)",
    ];
    for table in tables {
        sqlx::query(table).execute(&shop.pool).await?;
    }
    let stock = std::env::var("STOCK").map_or(Ok(1_000), |stock| stock.parse())?;
    shop.locks.counter("stock").init(stock).await?;
    Ok(())
}

/// Repeats it, with a pause, until the service stops. What fails is tried again.
async fn repeat<F: Future<Output = Fallible<()>>>(
    what: &str,
    pause: Duration,
    stop: &CancellationToken,
    mut once: impl FnMut() -> F,
) {
    while !stop.is_cancelled() {
        if let Err(error) = once().await {
            tracing::warn!(%error, "{what}");
        }
        stop.run_until_cancelled(tokio::time::sleep(pause)).await;
    }
}
