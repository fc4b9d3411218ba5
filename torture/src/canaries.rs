//! Checks of one cause and one effect each, before anything is broken: what a random load would meet seldom, or would
//! not tell apart from a slow server.

use std::time::{Duration, Instant};

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{ConnectOptions, Connection};
use tag_lock::{AtClose, Error, LockClient};
use tokio::sync::Mutex;

use crate::bank::run;
use crate::faults::Failure;

/// A name, and the stripe that every version of the library puts it under.
const PINNED: (&str, &str) = ("job", "center_lock_84");
/// How long something has to stay undone until it counts as held up.
const HELD_UP: Duration = Duration::from_millis(400);
/// How long something may take that nothing holds up.
const AT_ONCE: Duration = Duration::from_millis(900);
/// By then a guard that was dropped has given its lease back, or hardly.
const SOON: Duration = Duration::from_millis(20);
/// Who asks so much later has asked later.
const APART: Duration = Duration::from_millis(100);
/// How long a transaction keeps its row: longer than every time limit of a row's lock.
const KEPT: Duration = Duration::from_secs(3);
/// How long a canary may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// What depends on the machine being quick is tried again before it is a finding.
const ATTEMPTS: u32 = 12;
/// An hour, in the microseconds that tokens are made of.
const HOUR: u64 = 3_600_000_000;

/// Sends canaries until one of them finds something, which is returned; an error or a wait without end is a finding
/// too, since nothing is broken yet.
pub async fn send(options: &MySqlConnectOptions) -> Option<String> {
    if let Some(finding) = heard("release", release(options)).await {
        return Some(finding);
    }
    if let Some(finding) = heard("stripe", stripe(options)).await {
        return Some(finding);
    }
    if let Some(finding) = heard("row", row(options)).await {
        return Some(finding);
    }
    if let Some(finding) = heard("floor", floor(options)).await {
        return Some(finding);
    }
    if let Some(finding) = heard("verification", verification(options)).await {
        return Some(finding);
    }
    if let Some(finding) = heard("idle", idle(options)).await {
        return Some(finding);
    }
    if let Some(finding) = heard("level", level(options)).await {
        return Some(finding);
    }
    heard("order", order(options)).await
}

async fn heard(
    name: &str,
    canary: impl Future<Output = Result<Option<String>, Failure>>,
) -> Option<String> {
    match tokio::time::timeout(PATIENCE, canary).await {
        Ok(Ok(None)) => None,
        Ok(Ok(Some(finding))) => Some(format!("canary {name}: {finding}")),
        Ok(Err(error)) => Some(format!("canary {name}: {error}")),
        Err(_) => Some(format!("canary {name}: no answer within {PATIENCE:?}")),
    }
}

async fn client(options: &MySqlConnectOptions) -> Result<LockClient, Error> {
    // One lane, so that all names share it.
    LockClient::builder(options.clone())
        .lanes(1)
        .connect()
        .await
}

/// A lock that somebody else has taken is not released by its last holder; one that was released stays free.
async fn release(options: &MySqlConnectOptions) -> Result<Option<String>, Failure> {
    let (first, second) = (client(options).await?, client(options).await?);
    let lock = || first.lock("canary-release");
    let ended = lock().ttl(HELD_UP).auto_renew(false).acquire().await?;
    let held = second.lock("canary-release").acquire().await?;
    // Lost, as it has to be; what counts is what the table says.
    drop(ended.release().await);
    if lock().try_acquire().await?.is_some() {
        let finding = "a holder whose lease had ended released the lock of the next one";
        return Ok(Some(finding.to_owned()));
    }
    held.release().await?;
    tokio::time::sleep(HELD_UP).await;
    let Some(free) = lock().try_acquire().await? else {
        return Ok(Some("a lock that was released is held".to_owned()));
    };
    free.release().await?;
    for client in [first, second] {
        client.close(AtClose::Release).await;
    }
    Ok(None)
}

/// A name that is new is not granted while somebody else has its stripe.
async fn stripe(options: &MySqlConnectOptions) -> Result<Option<String>, Failure> {
    let (name, stripe) = PINNED;
    let client = client(options).await?;
    let mut other = options.connect().await?;
    let lock = format!(
        "START TRANSACTION; SELECT 1 FROM t_tag_lock WHERE lock_name = '{stripe}' AND kind = 0 AND slot = 0 FOR UPDATE"
    );
    run(&mut other, &lock).await?;
    let mut acquire = std::pin::pin!(client.lock(name).acquire());
    let early = tokio::time::timeout(HELD_UP, &mut acquire).await;
    run(&mut other, "ROLLBACK").await?;
    let finding = match early {
        Ok(_) => Some(format!("{name:?} was granted while {stripe} was locked")),
        Err(_) => {
            acquire.await?.release().await?;
            None
        }
    };
    client.close(AtClose::Release).await;
    Ok(finding)
}

/// A row that a transaction holds delays nobody who wants another row of the same lane.
async fn row(options: &MySqlConnectOptions) -> Result<Option<String>, Failure> {
    let mut slowest = Duration::ZERO;
    for _ in 0..ATTEMPTS {
        slowest = beside_a_held_row(options).await?;
        if slowest < AT_ONCE {
            return Ok(None);
        }
    }
    Ok(Some(format!(
        "beside a row that a transaction held, another one took {slowest:?}"
    )))
}

async fn beside_a_held_row(options: &MySqlConnectOptions) -> Result<Duration, Failure> {
    let client = client(options).await?;
    let mut other: MySqlConnection = options.connect().await?;
    // Both rows are there.
    for name in ["canary-held", "canary-free"] {
        client.lock(name).acquire().await?.release().await?;
    }
    let mut transaction = other.begin().await?;
    run(
        &mut transaction,
        "SELECT 1 FROM t_tag_lock WHERE lock_name = 'canary-held' AND kind = 1 AND slot = 0 FOR UPDATE",
    )
    .await?;
    let wanting = {
        let client = client.clone();
        tokio::spawn(async move { client.lock("canary-held").acquire().await?.release().await })
    };
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    while began.elapsed() < KEPT {
        let asked = Instant::now();
        client
            .lock("canary-free")
            .acquire()
            .await?
            .release()
            .await?;
        slowest = slowest.max(asked.elapsed());
    }
    transaction.rollback().await?;
    wanting.await??;
    client.close(AtClose::Release).await;
    Ok(slowest)
}

/// Tokens rise across a purge, also when the server's clock is behind them.
async fn floor(options: &MySqlConnectOptions) -> Result<Option<String>, Failure> {
    let client = client(options).await?;
    let mut other = options.connect().await?;
    let token = async || -> Result<u64, Error> {
        let guard = client.lock("canary-floor").acquire().await?;
        let token = guard.fencing_token();
        guard.release().await?;
        Ok(token)
    };
    let first = token().await?;
    let change = |what: &str| {
        format!(
            "UPDATE t_tag_lock SET {what} WHERE lock_name = 'canary-floor' AND kind = 1 AND slot = 0 AND status = 0"
        )
    };
    // As if the clock had been an hour ahead when the last token was given out.
    run(&mut other, &change(&format!("fence = fence + {HOUR}"))).await?;
    let raised = token().await?;
    run(
        &mut other,
        &change("modify_time = modify_time - INTERVAL 2 HOUR"),
    )
    .await?;
    let purged = client.purge(Duration::from_secs(3_600)).await?;
    let last = token().await?;
    client.close(AtClose::Release).await;
    if purged.rows == 0 {
        return Err("the canary for the floor of tokens was not purged".into());
    }
    Ok((raised <= first || last <= raised)
        .then(|| format!("the tokens {first}, {raised} and, after a purge, {last} do not rise")))
}

/// A holder who does not know yet that the lock is another's cannot commit.
async fn verification(options: &MySqlConnectOptions) -> Result<Option<String>, Failure> {
    let (first, second) = (client(options).await?, client(options).await?);
    let mut application = options.connect().await?;
    let stale = first.lock("canary-verify").acquire().await?;
    second.force_release("canary-verify").await?;
    let current = second.lock("canary-verify").acquire().await?;
    let mut transaction = application.begin().await?;
    let verified = stale.verify_in(&mut transaction).await;
    transaction.rollback().await?;
    current.release().await?;
    drop(stale);
    first.close(AtClose::Release).await;
    second.close(AtClose::Release).await;
    match verified {
        Err(Error::LockLost { .. }) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(Some(
            "a holder verified a lock that another one held".to_owned(),
        )),
    }
}

/// An owner holds its lock until its first level ends, although a later one of another client has ended.
async fn level(options: &MySqlConnectOptions) -> Result<Option<String>, Failure> {
    let (first, second) = (client(options).await?, client(options).await?);
    let enter = |client: &LockClient| client.lock("canary-level").owner("canary").acquire();
    let outer = enter(&first).await?;
    enter(&second).await?.release().await?;
    let other = second.lock("canary-level").try_acquire().await?;
    let finding = match other {
        Some(_) => Some("an owner's lock was granted while its first level lasted".to_owned()),
        None => {
            outer.release().await?;
            None
        }
    };
    for client in [first, second] {
        client.close(AtClose::Release).await;
    }
    Ok(finding)
}

/// Owners of one client have a lock in the order in which they asked for it.
async fn order(options: &MySqlConnectOptions) -> Result<Option<String>, Failure> {
    let mut served = Vec::new();
    for _ in 0..ATTEMPTS {
        served = served_owners(options).await?;
        if served.is_sorted() {
            return Ok(None);
        }
    }
    Ok(Some(format!(
        "owners that asked one after the other had the lock in the order {served:?}"
    )))
}

/// Who had the lock, by the order in which they asked while it was held.
async fn served_owners(options: &MySqlConnectOptions) -> Result<Vec<u32>, Failure> {
    let client = client(options).await?;
    let held = client.lock("canary-order").acquire().await?;
    let served = Mutex::new(Vec::new());
    let owner = async |place: u32| {
        tokio::time::sleep(APART * place).await;
        let lock = client.lock("canary-order").owner(place.to_string());
        let guard = lock.acquire().await?;
        served.lock().await.push(place);
        guard.release().await?;
        Ok::<(), Failure>(())
    };
    let free = async {
        tokio::time::sleep(APART * 4).await;
        Ok(held.release().await?)
    };
    tokio::try_join!(owner(0), owner(1), owner(2), free)?;
    client.close(AtClose::Release).await;
    Ok(served.into_inner())
}

/// A lease that a transaction has used does not idle: nobody is granted the lock while that transaction is open.
async fn idle(options: &MySqlConnectOptions) -> Result<Option<String>, Failure> {
    let client = LockClient::builder(options.clone())
        .lanes(1)
        .linger(KEPT)
        .connect()
        .await?;
    let mut application = options.connect().await?;
    let mut granted = false;
    for _ in 0..ATTEMPTS {
        // While one lease idles the client hears its bell, and others may.
        let other = client.lock("canary-idles").acquire().await?;
        other.release().await?;
        let guard = client.lock("canary-idle").acquire().await?;
        let mut transaction = application.begin().await?;
        guard.verify_in(&mut transaction).await?;
        drop(guard);
        tokio::time::sleep(SOON).await;
        // It may also say that the row is locked.
        let again = client.lock("canary-idle").try_acquire().await;
        transaction.rollback().await?;
        if matches!(again, Ok(Some(_))) {
            granted = true;
            break;
        }
    }
    client.close(AtClose::Release).await;
    Ok(granted
        .then(|| "a lock was granted while the transaction of its last holder was open".to_owned()))
}
