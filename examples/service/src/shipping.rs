//! Shipping: one instance does it at a time, so that parcels leave in the order of the orders.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use tag_lock::LeaseView;
use tokio_util::sync::CancellationToken;

use crate::{Fallible, Shop, repeat};

const ELECTION: &str = "shipper";

/// Leads whenever it can, and ships while it does. When the service stops it resigns, and another instance goes on at once.
pub(crate) async fn run(shop: Shop, stop: CancellationToken) -> Fallible<()> {
    let election = shop.locks.election(ELECTION);
    let work = async |leadership: LeaseView| {
        let pause = Duration::from_millis(20);
        let once = || ship(&shop, &leadership);
        repeat("a parcel was not shipped", pause, &stop, once).await;
        Fallible::Ok(())
    };
    let leads = election.lead(&shop.address, work);
    stop.run_until_cancelled(leads).await.unwrap_or(Ok(()))
}

/// Who ships.
pub(crate) async fn get(State(shop): State<Shop>) -> (StatusCode, String) {
    match shop.locks.inspect(ELECTION).await {
        Ok(Some(info)) => (StatusCode::OK, info.description),
        Ok(None) => (StatusCode::OK, String::new()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

/// Ships the next parcels. An instance that was overtaken, after a pause of its machine, say, cannot commit here.
async fn ship(shop: &Shop, leadership: &LeaseView) -> Fallible<()> {
    let mut tx = shop.pool.begin().await?;
    leadership.verify_in(&mut tx).await?;
    let sql =
        "UPDATE shop_order SET shipped_by = ? WHERE shipped_by IS NULL ORDER BY number LIMIT 10";
    sqlx::query(sql)
        .bind(leadership.fencing_token())
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}
