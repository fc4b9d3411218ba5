//! Orders: at most one for each customer, numbered without holes, and never more than there are pieces.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use sqlx::Row;

use crate::{Fallible, Shop};

/// What came of an order.
enum Order {
    Placed {
        number: i64,
    },
    /// This customer has one.
    Twice,
    SoldOut,
}

pub(crate) async fn post(
    State(shop): State<Shop>,
    Path(customer): Path<String>,
) -> (StatusCode, String) {
    // In a task of its own: if the customer hangs up, axum drops this handler, and the transaction is not cut off in the middle.
    let order = tokio::spawn({
        let customer = customer.clone();
        async move { place(&shop, &customer).await }
    });
    match order.await.map_err(Into::into).flatten() {
        Ok(Order::Placed { number }) => (StatusCode::CREATED, number.to_string()),
        Ok(Order::Twice) => (StatusCode::CONFLICT, "you have an order".to_owned()),
        Ok(Order::SoldOut) => (StatusCode::GONE, "sold out".to_owned()),
        Err(error) => {
            tracing::warn!(%error, customer, "an order failed");
            (StatusCode::SERVICE_UNAVAILABLE, "try again".to_owned())
        }
    }
}

pub(crate) async fn stock(State(shop): State<Shop>) -> (StatusCode, String) {
    match shop.locks.counter("stock").get().await {
        Ok(left) => (StatusCode::OK, left.to_string()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

/// One transaction: it is all there when it is committed, and nothing of it otherwise.
async fn place(shop: &Shop, customer: &str) -> Fallible<Order> {
    let mut tx = shop.pool.begin().await?;
    // One request of a customer's at a time, on all instances: what is read next is what the one before has left.
    let name = format!("customer:{customer}");
    shop.locks.lock_in(&mut tx, &name).await?;
    let orders = "SELECT COUNT(*) FROM shop_order WHERE customer = ?";
    let orders = sqlx::query(orders)
        .bind(customer)
        .fetch_one(&mut *tx)
        .await?;
    if orders.try_get::<i64, _>(0)? > 0 {
        return Ok(Order::Twice);
    }
    // Last: all customers want these two, so they are held for as short as can be.
    let stock = shop.locks.counter("stock");
    if stock.add_within_in(&mut tx, -1, 0..).await?.is_none() {
        return Ok(Order::SoldOut);
    }
    let number = shop.locks.counter("order").add_in(&mut tx, 1).await?;
    sqlx::query("INSERT INTO shop_order (number, customer) VALUES (?, ?)")
        .bind(number)
        .bind(customer)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(Order::Placed { number })
}
