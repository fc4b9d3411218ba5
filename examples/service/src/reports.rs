//! A report for each minute, written by whichever instance comes first, exactly once.

use std::time::Duration;

use chrono::Utc;
use tokio_util::sync::CancellationToken;

use crate::{Fallible, Shop, repeat};

/// Asks for the minute's report now and then: who asks when it is written hears that it is.
pub(crate) async fn run(shop: Shop, stop: CancellationToken) -> Fallible<()> {
    let pause = Duration::from_millis(500);
    repeat("a report failed", pause, &stop, || report(&shop)).await;
    Ok(())
}

async fn report(shop: &Shop) -> Fallible<()> {
    let slot = Utc::now().format("%Y-%m-%dT%H:%M").to_string();
    let work = async |lease: tag_lock::JobLease| {
        let mut tx = shop.pool.begin().await?;
        let sql = "INSERT INTO shop_report (slot, orders) SELECT ?, COUNT(*) FROM shop_order";
        sqlx::query(sql).bind(&slot).execute(&mut *tx).await?;
        // The slot is done if the report is there, and the report is there if the slot is done.
        lease.finish_in(&mut tx).await?;
        tx.commit().await?;
        Fallible::Ok(())
    };
    let done = shop.locks.job("report").slot(&slot).run_once(work).await?;
    tracing::debug!(slot, ?done, "report");
    Ok(())
}
