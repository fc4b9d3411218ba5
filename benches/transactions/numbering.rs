//! What it costs that a batch runs exactly once: a packet of the library's, and the same addition without it, on one
//! connection.

use std::time::Instant;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};
use tag_lock::LockClient;

use crate::Result;
use crate::database::{Database, connect, run};
use crate::figures::{Figures, median};
use crate::options::Options;
use crate::proxy::{Proxy, Recorded};

/// The row of the counter.
const COUNTER: &str = "lock_name='bench' AND kind=2 AND slot=0";
/// The first packets create the row, and prepare what the others send.
const ADDITIONS: usize = 6;

/// A packet that can be sent again and again.
struct Packet {
    /// Its text in words and what stands between them. A number that is one more in each packet has its value as well.
    pieces: Vec<(String, Option<u64>)>,
    /// How often it was sent since it was recorded.
    sent: u64,
}

impl Packet {
    /// From two that a lane has sent one after the other. What rose by one is what the lane counts; whatever else
    /// differs, as tokens do, stays as it was in the last one.
    fn of(before: &str, last: &str) -> Result<Self> {
        let (old, new) = (cut(before), cut(last));
        let pieces: Vec<(String, Option<u64>)> = old
            .iter()
            .zip(&new)
            .map(|(old, new)| (new.clone(), risen(old, new)))
            .collect();
        if old.len() != new.len() || pieces.iter().all(|(_, number)| number.is_none()) {
            return Err(format!("not two packets of one kind: {before} | {last}").into());
        }
        Ok(Self { pieces, sent: 0 })
    }

    /// The text of the next one.
    fn next(&mut self) -> String {
        self.sent += 1;
        let piece = |(text, number): &(String, Option<u64>)| match number {
            Some(number) => (number + self.sent).to_string(),
            None => text.clone(),
        };
        self.pieces.iter().map(piece).collect()
    }
}

/// The second number, if it is one more than the first.
fn risen(old: &str, new: &str) -> Option<u64> {
    let (old, new): (u64, u64) = (old.parse().ok()?, new.parse().ok()?);
    (new.checked_sub(old) == Some(1)).then_some(new)
}

/// Words and what stands between them, in turns.
fn cut(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut in_word = false;
    for character in text.chars() {
        let is_word = character.is_ascii_alphanumeric();
        if is_word != in_word {
            pieces.push(String::new());
            in_word = is_word;
        }
        pieces.last_mut().unwrap().push(character);
    }
    pieces
}

/// Measures additions of one packet each.
pub async fn measure(database: &Database, options: &Options, figures: &mut Figures) -> Result<()> {
    let (opening, mut packet) = record(database).await?;
    let mut connection = connect(&database.url).await?;
    for sql in opening {
        run(&mut connection, &sql).await?;
    }
    let unnumbered = unnumbered(&mut connection).await?;
    println!("unnumbered: {unnumbered}\n");
    let (mut numbered_rates, mut unnumbered_rates) = (Vec::new(), Vec::new());
    let mut sent = value(&mut connection).await?;
    for _ in 0..options.heats {
        for with_number in [true, false] {
            let start = Instant::now();
            let mut count = 0_u32;
            while start.elapsed() < options.heat {
                if with_number {
                    run(&mut connection, &packet.next()).await?;
                } else {
                    run(&mut connection, &unnumbered).await?;
                }
                count += 1;
            }
            sent += i64::from(count);
            let rate = f64::from(count) / start.elapsed().as_secs_f64();
            if with_number {
                &mut numbered_rates
            } else {
                &mut unnumbered_rates
            }
            .push(rate);
        }
    }
    let added = value(&mut connection).await?;
    if added != sent {
        return Err(format!("the counter stands at {added} after {sent} additions").into());
    }
    figures.note("adds_per_second", median(numbered_rates));
    figures.note("adds_per_second_unnumbered", median(unnumbered_rates));
    Ok(())
}

/// Has the library add to a counter through the proxy, and takes what its lane has sent: what opens its session, and its
/// packet.
async fn record(database: &Database) -> Result<(Vec<String>, Packet)> {
    let proxy = Proxy::before(&database.url).await?;
    let client = LockClient::builder(proxy.url(&database.url).parse()?)
        .lanes(1)
        .connect()
        .await?;
    proxy.record(true);
    for _ in 0..ADDITIONS {
        client.counter("bench").add(1).await?;
    }
    let sent = proxy.take_recorded();
    client.close(tag_lock::AtClose::Release).await;
    let is_packet = |one: &&Recorded| one.sql.as_ref().is_some_and(|sql| sql.contains("COMMIT"));
    let last = sent.iter().rfind(is_packet);
    let lane = last.ok_or("no packet was recorded")?.connection;
    let of_lane = || sent.iter().filter(|one| one.connection == lane);
    let packets: Vec<&str> = of_lane()
        .filter(is_packet)
        .filter_map(|one| one.sql.as_deref())
        .collect();
    let [.., before, last] = packets[..] else {
        return Err("a single packet was recorded".into());
    };
    println!("numbered:   {last}");
    let opening = of_lane()
        .filter_map(|one| one.sql.as_deref())
        .flat_map(statements)
        .filter(|sql| sql.starts_with("SET SESSION") || sql.starts_with("PREPARE"))
        .collect();
    Ok((opening, Packet::of(before, last)?))
}

/// The statements of a text.
fn statements(sql: &str) -> Vec<String> {
    let mut statements = vec![String::new()];
    let mut quoted = false;
    for character in sql.chars() {
        quoted ^= character == '\'';
        match (character, quoted) {
            (';', false) => statements.push(String::new()),
            _ => statements.last_mut().unwrap().push(character),
        }
    }
    statements
}

/// The same addition by hand, in one packet too: locked, decided, changed, committed, answered.
async fn unnumbered(connection: &mut MySqlConnection) -> Result<String> {
    let (begin, end) = if is_mariadb(connection).await? {
        ("BEGIN NOT ATOMIC ", ";END")
    } else {
        ("", "")
    };
    Ok(format!(
        "{begin}SELECT count INTO @bench FROM t_tag_lock WHERE {COUNTER} FOR UPDATE;\
         UPDATE t_tag_lock SET previous=count,count=count+1,modify_time=UTC_TIMESTAMP(6) \
         WHERE {COUNTER};\
         COMMIT;SELECT @bench+1{end}"
    ))
}

async fn is_mariadb(connection: &mut MySqlConnection) -> Result<bool> {
    let row = sqlx::raw_sql("SELECT VERSION()")
        .fetch_one(connection)
        .await?;
    Ok(row.try_get_unchecked::<String, _>(0)?.contains("MariaDB"))
}

async fn value(connection: &mut MySqlConnection) -> Result<i64> {
    let row = sqlx::raw_sql(AssertSqlSafe(format!(
        "SELECT CAST(count AS SIGNED) FROM t_tag_lock WHERE {COUNTER}"
    )))
    .fetch_one(connection)
    .await?;
    Ok(row.try_get_unchecked(0)?)
}
