//! A server that takes packets of 64 KB at most. The limit is the whole server's.

use std::time::Duration;

use crate::support::alone::Global;
use crate::support::{TestDatabase, alone};
use tokio::task::JoinSet;

const NAMES: usize = 600;

/// As long as a name can be, in bytes too.
fn name(number: usize) -> String {
    format!("{}{number:05}", "🎁".repeat(250))
}

#[tokio::test(flavor = "multi_thread")]
async fn more_work_than_fits_into_one_is_split() {
    let _alone = alone().await;
    let database = TestDatabase::new().await;
    let _small = Global::set("max_allowed_packet", "65536").await;
    let client = database.client().await;
    let worked = async {
        // All at once, before the client has sent anything.
        let mut tasks = JoinSet::new();
        for task in 0..NAMES {
            let client = client.clone();
            tasks.spawn(async move {
                let name = name(task);
                let lock = client.lock(&name).description("🎁".repeat(255));
                let guard = lock.wait(Duration::from_secs(120)).acquire().await?;
                let values = [
                    client.counter(&name).add(1).await?,
                    client.counter(&name).add(1).await?,
                    client.counter(&name).get().await?,
                ];
                guard.release().await?;
                Ok::<_, tag_lock::Error>(values)
            });
        }
        tasks.join_all().await
    };
    for values in worked.await {
        assert_eq!(values.unwrap(), [1, 2, 2]);
    }
    database.remove().await;
}
