//! Damage to the values of counters.

use std::sync::Arc;

use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use rand::seq::IndexedMutRandom;

use super::super::simulated::World;
use super::places::{at, pick};
use crate::history::{Event, Outcome, Record};

/// The value of an acknowledged addition to this counter.
fn told<'r>(record: &'r mut Record, name: &str) -> Option<&'r mut i64> {
    match &mut record.event {
        Event::Added {
            value: Some(value),
            outcome: Outcome::Done,
            ..
        } if &*record.name == name => Some(value),
        _ => None,
    }
}

pub(super) fn old_value_read(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let place = pick(world, random, |r| {
        &*r.name == "read"
            && matches!(r.event, Event::Added { delta: 0, value: Some(value), .. } if value > 0)
    })?;
    if let Event::Added { value, .. } = &mut at(world, place).event {
        *value = Some(0);
    }
    Some(())
}

pub(super) fn addition_lost(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let last = world.last.counters.choose_mut(random)?;
    last.1 = -1_000_000;
    Some(())
}

pub(super) fn addition_doubled(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let last = world.last.counters.choose_mut(random)?;
    last.1 += 1_000_000;
    Some(())
}

pub(super) fn value_twice(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    let mut values = world.records().filter_map(|record| told(record, "tickets"));
    let first = *values.next()?;
    *values.next()? = first;
    Some(())
}

pub(super) fn values_skipped(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let by = random.random_range(1_000..2_000);
    let values = world.records().filter_map(|record| told(record, "tickets"));
    *values.max_by_key(|value| **value)? += by;
    Some(())
}

pub(super) fn walk_changed(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    // More values than ambiguous additions could make up for.
    for (count, value) in world
        .records()
        .filter_map(|record| told(record, "stock"))
        .enumerate()
    {
        *value = 1_000 * i64::try_from(count).ok()? + random.random_range(0..99);
    }
    let many = world
        .records()
        .filter_map(|record| told(record, "stock"))
        .count()
        > 40;
    many.then_some(())
}

/// Of two additions of one delta, of which one had returned before the other began.
pub(super) fn values_swapped(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let value_of = |record: &Record| told(&mut record.clone(), "tickets").copied();
    let first = pick(world, random, |r| value_of(r).is_some())?;
    let one = at(world, first).clone();
    let value = value_of(&one)?;
    let second = pick(world, random, |r| {
        value_of(r).is_some_and(|other| other != value) && r.invoked > one.returned
    })?;
    let other = std::mem::replace(told(at(world, second), "tickets")?, value);
    *told(at(world, first), "tickets")? = other;
    Some(())
}

pub(super) fn out_of_reach(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    let mut values = world.records().filter_map(|record| told(record, "stock"));
    *values.next()? += 1_000_000;
    Some(())
}

pub(super) fn walk_swapped(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    // Ambiguous additions might explain it.
    for log in &mut world.logs {
        let open = log.open.iter().any(|open| &*open.name == "stock");
        let unknown = |r: &Record| {
            matches!(
                r.event,
                Event::Added {
                    outcome: Outcome::Unknown,
                    ..
                }
            )
        };
        if open
            || log
                .records
                .iter()
                .any(|r| &*r.name == "stock" && unknown(r))
        {
            return None;
        }
    }
    // Nor may another order explain it: four more additions, each of them alone, that leave it as it was.
    let name: Arc<str> = Arc::from("stock");
    let last = world.last.counters.iter().find(|(of, _)| *of == name)?.1;
    let after = world.records().map(|record| record.returned).max()?;
    let delta = if last < 6 { 1 } else { -1 };
    let swapped = [
        (delta, last + 2 * delta),
        (delta, last + delta),
        (-delta, last + delta),
        (-delta, last),
    ];
    for ((delta, value), step) in swapped.into_iter().zip(1..) {
        world.logs[0].records.push(Record {
            worker: 0,
            task: 0,
            name: Arc::clone(&name),
            invoked: after + step * 10,
            returned: after + step * 10 + 5,
            event: Event::Added {
                delta,
                low: Some(0),
                high: Some(12),
                value: Some(value),
                outcome: Outcome::Done,
            },
        });
    }
    Some(())
}

pub(super) fn below_its_bound(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let place = pick(world, random, |r| told(&mut r.clone(), "stock").is_some())?;
    *told(at(world, place), "stock")? = -1;
    Some(())
}

pub(super) fn no_room(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let refused = |r: &Record| {
        matches!(
            r.event,
            Event::Added {
                outcome: Outcome::Refused,
                ..
            }
        )
    };
    let place = pick(world, random, refused)?;
    if let Event::Added { low, high, .. } = &mut at(world, place).event {
        (*low, *high) = (Some(-1_000_000), Some(1_000_000));
    }
    Some(())
}
