//! Counters from the command line.

use std::ops::RangeInclusive;

use serde_json::{Value, json};
use tag_lock::LockClient;

use crate::args::{Common, Counted, Counter, Once};
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
}

pub(crate) async fn counter(common: &Common, command: &Counter) -> Result<Code, Failure> {
    let client = common.client().await?;
    let (name, answer) = carry_out(&client, command).await?;
    let code = match answer {
        Answer::OutOfRange | Answer::Found(_) => NO,
        Answer::Value(_) | Answer::Previous(_) => DONE,
    };
    if common.json {
        let (value, previous, found) = match answer {
            Answer::Value(value) => (Some(value), None, None),
            Answer::Previous(value) => (None, Some(value), None),
            Answer::OutOfRange => (None, None, None),
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
    }
    Ok(code)
}

async fn carry_out<'a>(
    client: &LockClient,
    command: &'a Counter,
) -> Result<(&'a str, Answer), Failure> {
    Ok(match command {
        Counter::Get { name } => (name, Answer::Value(client.counter(name).get().await?)),
        Counter::Add {
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
        Counter::AddWithin {
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
        Counter::Set { counter, value } => {
            let previous = handle(client, counter, None).set(*value).await?;
            (&counter.name, Answer::Previous(previous))
        }
        Counter::CompareExchange {
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
        Counter::Reset { counter } => (
            &counter.name,
            Answer::Previous(handle(client, counter, None).reset().await?),
        ),
    })
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
