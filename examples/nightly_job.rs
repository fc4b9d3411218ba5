//! Once a night, on however many machines: `scripts/with-mysql cargo run --example nightly_job`
//!
//! Three machines start the job of each night, at times of their own: their clocks differ by more than the job takes, and one asks again an
//! hour later. A machine that fails in the middle leaves the night to the next one that asks. What the job writes and the record that its night
//! is done are one transaction, so that each night is booked exactly once, whatever happens in between.

use std::error::Error;

use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use tag_lock::{JobLease, LockClient, RunOnce};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = MySqlPoolOptions::new().connect(&url).await?;
    let mut machines = Vec::new();
    for machine in 0..3 {
        let builder = LockClient::builder(url.parse()?).holder(format!("machine {machine}"));
        machines.push(builder.connect().await?);
    }
    machines[0].migrate().await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS example_interest (night VARCHAR(10), machine INT)")
        .execute(&pool)
        .await?;
    sqlx::query("DELETE FROM example_interest")
        .execute(&pool)
        .await?;

    let nights = ["2026-11-21", "2026-11-22", "2026-11-23"];
    for (number, night) in nights.into_iter().enumerate() {
        machines[0].job("interest").slot(night).reset().await?;
        // One after the other: for a lock alone, the second one would come when the first has long released it.
        for attempt in 0..4 {
            let machine = (number + attempt) % 3;
            let fails = attempt == 0;
            let work = async |lease: JobLease| book(&pool, &lease, machine, fails).await;
            match machines[machine]
                .job("interest")
                .slot(night)
                .run_once(work)
                .await
            {
                Ok(RunOnce::Done(())) => println!("{night}: machine {machine} has booked it"),
                Ok(RunOnce::AlreadyDone) => println!("{night}: machine {machine} finds it done"),
                Ok(RunOnce::Busy) => {
                    println!("{night}: machine {machine} leaves it to another one")
                }
                Err(error) => println!("{night}: machine {machine} fails: {error}"),
            }
        }
    }
    let booked: Vec<String> =
        sqlx::query_scalar("SELECT night FROM example_interest ORDER BY night")
            .fetch_all(&pool)
            .await?;
    assert_eq!(booked, nights);
    for slot in machines[0].job("interest").list(None, 10).await? {
        println!("{}: {:?}, by {}", slot.name, slot.state, slot.held_by);
    }
    Ok(())
}

async fn book(pool: &MySqlPool, lease: &JobLease, machine: usize, fails: bool) -> Result<()> {
    let mut tx = pool.begin().await?;
    lease.finish_in(&mut tx).await?;
    sqlx::query("INSERT INTO example_interest VALUES (?, ?)")
        .bind(lease.slot())
        .bind(i64::try_from(machine)?)
        .execute(&mut *tx)
        .await?;
    if fails {
        return Err("out of memory, say".into());
    }
    Ok(tx.commit().await?)
}
