//! A Redis gate in front of a hot stock: `scripts/with-mysql cargo run --release -p race --example two_tiers`
//!
//! Pattern: the gate only sheds load, and decides nothing. It knows about how many pieces are left, and sends those away who come when there are none;
//! MySQL decides about the others. What the gate says wrongly costs a wasted try, or a piece that is sold later; never a piece too many. So
//! it may lose its memory, be restored from an old snapshot, or be away.
//!
//! It prints what the gate saves, beside the counter alone, which is enough for most: see docs/patterns.md.

use std::error::Error;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Client, Script};
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{Connection, Row};
use tag_lock::{Counter, LockClient};
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PIECES: i64 = 1_000;
const BUYERS: u32 = 102_400;
const TASKS: u32 = 256;
const KEY: &str = "gate:stock";

/// Lets so many through as it believes to be left; all, if it knows nothing.
const PASS: &str = "local left = redis.call('get', KEYS[1]) \
                    if not left then return 1 end \
                    if tonumber(left) <= 0 then return 0 end \
                    redis.call('decr', KEYS[1]) return 1";

/// Counts a place that was given back, if it still knows something: a key that a plain `incr` made would have no end, and keep all but one away.
const GIVE_BACK: &str = "if redis.call('exists', KEYS[1]) == 0 then return 0 end \
                         return redis.call('incr', KEYS[1])";

/// The first tier.
#[derive(Clone)]
struct Gate {
    connection: MultiplexedConnection,
    pass: Arc<Script>,
    give_back: Arc<Script>,
}

impl Gate {
    async fn connect(address: &str) -> Result<Self> {
        let client = Client::open(address)?;
        Ok(Self {
            connection: client.get_multiplexed_async_connection().await?,
            pass: Arc::new(Script::new(PASS)),
            give_back: Arc::new(Script::new(GIVE_BACK)),
        })
    }

    /// Whether a try is worth while. A gate that does not answer lets everybody through.
    async fn passes(&self) -> bool {
        let mut connection = self.connection.clone();
        let passes = self
            .pass
            .key(KEY)
            .invoke_async::<i64>(&mut connection)
            .await;
        passes.map_or(true, |passes| passes == 1)
    }

    /// What is left, as MySQL has said.
    async fn set(&self, left: i64) -> Result<()> {
        let mut connection = self.connection.clone();
        let mut set = redis::cmd("SET");
        // It forgets what it was told long ago: then it lets through, and MySQL says what is so.
        set.arg(KEY).arg(left).arg("EX").arg(60);
        Ok(set.query_async(&mut connection).await?)
    }

    async fn forget(&self) -> Result<()> {
        let mut connection = self.connection.clone();
        Ok(redis::cmd("DEL")
            .arg(KEY)
            .query_async(&mut connection)
            .await?)
    }

    /// A try that took a place, and of which nobody knows what it came to.
    async fn give_back(&self) -> Result<()> {
        let mut connection = self.connection.clone();
        let _left: i64 = self
            .give_back
            .key(KEY)
            .invoke_async(&mut connection)
            .await?;
        Ok(())
    }
}

/// Buys a piece. Whether there was one, and whether MySQL was asked.
async fn buy(gate: Option<&Gate>, stock: &Counter) -> Result<(bool, bool)> {
    if let Some(gate) = gate
        && !gate.passes().await
    {
        return Ok((false, false));
    }
    match (stock.add_within(-1, 0..).await, gate) {
        (Ok(Some(_)), _) => Ok((true, true)),
        (Ok(None), Some(gate)) => {
            gate.set(0).await?;
            Ok((false, true))
        }
        (Ok(None), None) => Ok((false, true)),
        (Err(error), gate) => {
            if let Some(gate) = gate {
                gate.give_back().await?;
            }
            Err(error.into())
        }
    }
}

/// What a sale came to.
struct Sale {
    sold: u64,
    tries: u64,
    took: Duration,
    statements: i64,
}

/// All buyers come, in so many tasks.
async fn sale(gate: Option<&Gate>, stock: &Counter, server: &mut MySqlConnection) -> Result<Sale> {
    let (sold, tries) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let before = statements(server).await?;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (gate, stock) = (gate.cloned(), stock.clone());
        let (sold, tries) = (Arc::clone(&sold), Arc::clone(&tries));
        tasks.spawn(async move {
            for _ in 0..BUYERS / TASKS {
                let (bought, asked) = buy(gate.as_ref(), &stock).await?;
                sold.fetch_add(u64::from(bought), Ordering::Relaxed);
                tries.fetch_add(u64::from(asked), Ordering::Relaxed);
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(Sale {
        sold: sold.load(Ordering::Relaxed),
        tries: tries.load(Ordering::Relaxed),
        took: began.elapsed(),
        statements: statements(server).await? - before,
    })
}

/// How many statements the server has carried out.
async fn statements(server: &mut MySqlConnection) -> Result<i64> {
    let sql = "SHOW GLOBAL STATUS LIKE 'Queries'";
    let row: MySqlRow = sqlx::raw_sql(sql).fetch_one(server).await?;
    let value: String = row.try_get_unchecked(1)?;
    Ok(value.parse()?)
}

fn show(what: &str, sale: &Sale) {
    let per_second = f64::from(BUYERS) / sale.took.as_secs_f64();
    println!(
        "{what:<44} {:>6} sold {:>8} tries in MySQL {:>9} statements {per_second:>10.0} buyers/s",
        sale.sold, sale.tries, sale.statements
    );
}

/// A Redis server of this program's own.
struct Redis {
    child: Child,
    address: String,
}

impl Redis {
    async fn start() -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/find-redis");
        let found = Command::new(script).stderr(Stdio::inherit()).output()?;
        let program = String::from_utf8(found.stdout)?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let child = Command::new(program.trim_end())
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()?;
        let redis = Self {
            child,
            address: format!("redis://127.0.0.1:{port}"),
        };
        for _ in 0..100 {
            if Gate::connect(&redis.address).await.is_ok() {
                return Ok(redis);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err("redis-server does not answer".into())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("DATABASE_URL")?;
    let locks = LockClient::connect(&url).await?;
    locks.migrate().await?;
    let mut server = MySqlConnection::connect(&url).await?;
    let redis = Redis::start().await?;
    let gate = Gate::connect(&redis.address).await?;
    let stock = locks.counter("stock:hot");
    println!("{PIECES} pieces, {BUYERS} buyers in {TASKS} tasks of one process");

    // In turns, since machines are noisy.
    for _ in 0..3 {
        stock.set(PIECES).await?;
        let alone = sale(None, &stock, &mut server).await?;
        show("the counter alone", &alone);
        stock.set(PIECES).await?;
        gate.set(PIECES).await?;
        let gated = sale(Some(&gate), &stock, &mut server).await?;
        show("behind a gate", &gated);
        assert_eq!(alone.sold + gated.sold, 2 * PIECES.unsigned_abs());
    }

    // The gate is wrong.
    stock.set(PIECES).await?;
    gate.set(10 * PIECES).await?;
    let generous = sale(Some(&gate), &stock, &mut server).await?;
    show("a gate that believes in ten times as many", &generous);
    stock.set(PIECES).await?;
    gate.forget().await?;
    let forgetful = sale(Some(&gate), &stock, &mut server).await?;
    show("a gate that has lost its memory", &forgetful);
    stock.set(PIECES).await?;
    gate.set(PIECES / 2).await?;
    let strict = sale(Some(&gate), &stock, &mut server).await?;
    show("a gate that believes in half as many", &strict);
    for sale in [&generous, &forgetful] {
        assert_eq!(sale.sold, PIECES.unsigned_abs(), "never one too many");
    }
    assert_eq!(strict.sold, (PIECES / 2).unsigned_abs());
    // Now and then somebody tells it what MySQL has.
    gate.set(stock.get().await?).await?;
    let rest = sale(Some(&gate), &stock, &mut server).await?;
    show("the same, told what is left", &rest);
    assert_eq!(strict.sold + rest.sold, PIECES.unsigned_abs());
    // A place that is given back behind the end of the key is no news: the gate still lets everybody through.
    gate.forget().await?;
    gate.give_back().await?;
    for _ in 0..3 {
        assert!(gate.passes().await, "a gate that knows nothing");
    }
    Ok(())
}
