//! Counters from the command line.

use std::ops::RangeInclusive;

use serde_json::{Value, json};
use tag_lock::{CounterInfo, LockClient};

use crate::args::{Common, Counted, Counter, Once, OneCounter};
use crate::exit::{Code, DONE, Failure, NO, tell};
use crate::output::{self, plain};

/// What came of it.
enum Answer {
    /// The value after the change, or the one that was read.
    Value(i64),
    /// The value before the change.
    Previous(i64),
    /// The value would leave its range: nothing was changed.
    OutOfRange,
    /// The value was another one: nothing was changed.
    Found(i64),
    /// The counter was never set.
    NotSet,
}

/// How many counters one query shows.
const PAGE: u32 = 1_000;

pub(crate) async fn counter(common: &Common, command: &Counter) -> Result<Code, Failure> {
    let client = common.client().await?;
    let command = match command {
        Counter::One(command) => command,
        Counter::List { prefix } => return list(common, &client, prefix).await,
    };
    let (name, answer) = carry_out(&client, command).await?;
    let code = match answer {
        Answer::OutOfRange | Answer::Found(_) | Answer::NotSet => NO,
        Answer::Value(_) | Answer::Previous(_) => DONE,
    };
    if common.json {
        let (value, previous, found) = match answer {
            Answer::Value(value) => (Some(value), None, None),
            Answer::Previous(value) => (None, Some(value), None),
            Answer::OutOfRange | Answer::NotSet => (None, None, None),
            Answer::Found(value) => (None, None, Some(value)),
        };
        let mut document = json!({ "name": name, "done": code == DONE });
        for (field, value) in [("value", value), ("previous", previous), ("found", found)] {
            if let Some(value) = value {
                document[field] = Value::from(value);
            }
        }
        output::json(&document)?;
        return Ok(code);
    }
    match answer {
        Answer::Value(value) | Answer::Previous(value) => output::line(&value.to_string())?,
        Answer::OutOfRange => tell(
            &format!("{} would leave its range: nothing was changed", plain(name)),
            false,
        ),
        Answer::Found(value) => tell(
            &format!("{} is {value}: nothing was changed", plain(name)),
            false,
        ),
        Answer::NotSet => tell(&format!("{} was never set", plain(name)), false),
    }
    Ok(code)
}

async fn carry_out<'a>(
    client: &LockClient,
    command: &'a OneCounter,
) -> Result<(&'a str, Answer), Failure> {
    Ok(match command {
        OneCounter::Get { name } => (name, Answer::Value(client.counter(name).get().await?)),
        OneCounter::Add {
            counter,
            delta,
            once,
        } => {
            let handle = handle(client, counter, Some(once));
            let value = match &once.id {
                Some(id) => handle.add_once(id, *delta).await?,
                None => handle.add(*delta).await?,
            };
            (&counter.name, Answer::Value(value))
        }
        OneCounter::AddWithin {
            counter,
            delta,
            min,
            max,
            once,
        } => {
            let handle = handle(client, counter, Some(once));
            let range: RangeInclusive<i64> = min.unwrap_or(i64::MIN)..=max.unwrap_or(i64::MAX);
            let value = match &once.id {
                Some(id) => handle.add_once_within(id, *delta, range).await?,
                None => handle.add_within(*delta, range).await?,
            };
            (
                &counter.name,
                value.map_or(Answer::OutOfRange, Answer::Value),
            )
        }
        OneCounter::Set { counter, value } => {
            let previous = handle(client, counter, None).set(*value).await?;
            (&counter.name, Answer::Previous(previous))
        }
        OneCounter::CompareExchange {
            counter,
            expected,
            new,
        } => {
            let answer = handle(client, counter, None)
                .compare_exchange(*expected, *new)
                .await?;
            (
                &counter.name,
                answer.map_or_else(Answer::Found, Answer::Previous),
            )
        }
        OneCounter::Reset { counter } => (
            &counter.name,
            Answer::Previous(handle(client, counter, None).reset().await?),
        ),
        OneCounter::Init { counter, value } => {
            let handle = handle(client, counter, None);
            let answer = loop {
                if handle.init(*value).await? {
                    break Answer::Value(*value);
                }
                // Unless somebody has deleted it since.
                if let Some(found) = handle.get_if_set().await? {
                    break Answer::Found(found);
                }
            };
            (&counter.name, answer)
        }
        OneCounter::Delete { name } => {
            let previous = client.counter(name).delete().await?;
            (name, previous.map_or(Answer::NotSet, Answer::Previous))
        }
    })
}

/// Lists the counters whose names begin so, all pages.
async fn list(common: &Common, client: &LockClient, prefix: &str) -> Result<Code, Failure> {
    let mut counters: Vec<CounterInfo> = Vec::new();
    loop {
        let after = counters.last().map(|counter| counter.name.as_str());
        let page = client.list_counters(prefix, after, PAGE).await?;
        let last = page.len() < PAGE as usize;
        counters.extend(page);
        if last {
            break;
        }
    }
    if common.json {
        let document = counters.iter().map(|counter| {
            json!({
                "name": counter.name,
                "value": counter.value,
                "window_ends": counter.window_ends.map(output::rfc3339),
                "modified": output::rfc3339(counter.modified),
            })
        });
        output::json(&document.collect::<Vec<Value>>())?;
        return Ok(DONE);
    }
    if counters.is_empty() {
        output::line("no counter is set")?;
        return Ok(DONE);
    }
    let rows: Vec<Vec<String>> = counters
        .iter()
        .map(|counter| {
            let window_ends = counter.window_ends.map(output::clock_time);
            vec![
                plain(&counter.name),
                counter.value.to_string(),
                window_ends.unwrap_or_default(),
                output::clock_time(counter.modified),
            ]
        })
        .collect();
    output::table(&["NAME", "VALUE", "WINDOW ENDS", "CHANGED LAST"], &rows)?;
    Ok(DONE)
}

fn handle(client: &LockClient, counted: &Counted, once: Option<&Once>) -> tag_lock::Counter {
    let mut counter = client.counter(&counted.name);
    if let Some(window) = counted.window {
        counter = counter.window(window);
    }
    if let Some(retention) = once.and_then(|once| once.retention) {
        counter = counter.retention(retention);
    }
    counter
}
