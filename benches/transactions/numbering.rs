//! What the number of a batch costs: the same packet with and without it, on one connection.

use std::time::Instant;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};
use tag_lock::LockClient;

use crate::Result;
use crate::database::{Database, connect, run};
use crate::figures::{Figures, median};
use crate::options::Options;
use crate::proxy::Proxy;

/// What stands before the number of a batch.
const NUMBER: &str = "seq=IF(seq=";

/// A packet of the library's, cut where its number stands.
struct Recorded {
    /// The settings of the lane's session. Its row is there: it was registered when the packet was recorded.
    opening: Vec<String>,
    /// Up to the number, with `{N}` and `{N-1}` in its place.
    numbering: String,
    after: String,
    /// Without its number and without the record.
    unnumbered: String,
    /// The number of the next batch.
    next: u64,
}

/// Measures additions of one packet each.
pub async fn measure(database: &Database, options: &Options, figures: &mut Figures) -> Result<()> {
    let mut recorded = record(database).await?;
    println!("numbered:   {}{}", recorded.numbering, recorded.after);
    println!("unnumbered: {}\n", recorded.unnumbered);
    let mut connection = connect(&database.url).await?;
    for sql in std::mem::take(&mut recorded.opening) {
        run(&mut connection, &sql).await?;
    }
    let (mut numbered, mut unnumbered) = (Vec::new(), Vec::new());
    let mut sent = value(&mut connection).await?;
    for _ in 0..options.heats {
        for with_number in [true, false] {
            let start = Instant::now();
            let mut count = 0_u32;
            while start.elapsed() < options.heat {
                send(&mut connection, &mut recorded, with_number).await?;
                count += 1;
            }
            sent += i64::from(count);
            let rate = f64::from(count) / start.elapsed().as_secs_f64();
            if with_number {
                &mut numbered
            } else {
                &mut unnumbered
            }
            .push(rate);
        }
    }
    let added = value(&mut connection).await?;
    if added != sent {
        return Err(format!("the counter stands at {added} after {sent} additions").into());
    }
    figures.note("adds_per_second", median(numbered));
    figures.note("adds_per_second_unnumbered", median(unnumbered));
    Ok(())
}

async fn send(
    connection: &mut MySqlConnection,
    recorded: &mut Recorded,
    with_number: bool,
) -> Result<()> {
    if !with_number {
        return run(connection, &recorded.unnumbered).await;
    }
    let number = recorded.next;
    recorded.next += 1;
    let sql = recorded
        .numbering
        .replace("{N-1}", &(number - 1).to_string())
        .replace("{N}", &number.to_string());
    run(connection, &(sql + &recorded.after)).await
}

/// Has the library add to a counter through the proxy, and takes what its lane has sent.
async fn record(database: &Database) -> Result<Recorded> {
    let proxy = Proxy::before(&database.url).await?;
    let client = LockClient::builder(proxy.url(&database.url).parse()?)
        .lanes(1)
        .connect()
        .await?;
    proxy.record(true);
    // The first addition creates the row; the second one's packet is the usual one.
    client.counter("bench").add(1).await?;
    client.counter("bench").add(1).await?;
    let sent = proxy.take_recorded();
    client.close(tag_lock::AtClose::Release).await;
    let is_batch = |sql: &str| sql.contains(NUMBER);
    let last = sent
        .iter()
        .rev()
        .find(|one| one.sql.as_deref().is_some_and(is_batch));
    let last = last.ok_or("no packet was recorded")?;
    let of_lane = sent.iter().filter(|one| one.connection == last.connection);
    let opening: Vec<String> = of_lane
        .filter_map(|one| one.sql.clone())
        .filter(|sql| sql.starts_with("SET SESSION") && !is_batch(sql))
        .collect();
    let packet = last.sql.clone().ok_or("a packet without text")?;
    // The lane that was recorded goes on from here, under the bench's hand.
    let (_, rest) = packet.split_once(NUMBER).ok_or("no number")?;
    let digits = |text: &str| -> String { text.chars().take_while(char::is_ascii_digit).collect() };
    let old = digits(rest);
    let rest = rest.strip_prefix(&format!("{old},")).ok_or("no number")?;
    let number = digits(rest);
    let end = packet.find(rest).ok_or("no number")?;
    let (head, after) = packet.split_at(end + number.len());
    // The number stands there twice: for a lane whose row is missing, and for the others.
    let numbering = head
        .replace(
            &format!("{NUMBER}{old},{number}"),
            &format!("{NUMBER}{{N-1}},{{N}}"),
        )
        .replace(&format!(",{number},UTC"), ",{N},UTC");
    Ok(Recorded {
        opening,
        numbering,
        after: after.to_owned(),
        unnumbered: without_number(&packet),
        next: number.parse::<u64>()? + 1,
    })
}

/// Leaves out the lane's row: the number at the head, and the record at the end, whose text is read directly instead.
fn without_number(packet: &str) -> String {
    let mut statements: Vec<String> = Vec::new();
    // Literals are hexadecimal: no `;` stands in a name. One stands between quotes in the record, as `';'`.
    for statement in packet.replace("';'", "\u{0}").split(';') {
        let statement = statement.replace('\u{0}', "';'");
        if statement.contains(NUMBER) || statement.starts_with("SELECT results FROM") {
            continue;
        }
        match statement.strip_prefix("UPDATE t_tag_lock_lane SET results=(") {
            Some(record) => {
                let end = record.rfind(") WHERE id=").unwrap_or(record.len());
                statements.push(record[..end].to_owned());
            }
            None => statements.push(statement),
        }
    }
    statements.join(";")
}

async fn value(connection: &mut MySqlConnection) -> Result<i64> {
    let sql = "SELECT CAST(count AS SIGNED) FROM t_tag_lock WHERE lock_name='bench' AND kind=2 AND slot=0";
    let row = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .fetch_one(connection)
        .await?;
    Ok(row.try_get_unchecked(0)?)
}
