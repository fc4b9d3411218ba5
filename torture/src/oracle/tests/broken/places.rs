//! Finds what is to be damaged.

use rand::rngs::ChaCha8Rng;
use rand::seq::IndexedRandom;

use super::super::simulated::World;
use crate::history::{Event, Record};

/// One of the records that match, by its place in its log.
pub(super) fn pick(
    world: &mut World,
    random: &mut ChaCha8Rng,
    matches: impl Fn(&Record) -> bool,
) -> Option<(usize, usize)> {
    let mut places = Vec::new();
    for (log, of) in world.logs.iter().enumerate() {
        let records = of.records.iter().enumerate();
        places.extend(
            records
                .filter(|(_, r)| matches(r))
                .map(|(place, _)| (log, place)),
        );
    }
    places.choose(random).copied()
}

pub(super) fn at(world: &mut World, (log, place): (usize, usize)) -> &mut Record {
    &mut world.logs[log].records[place]
}

pub(super) fn token_of(record: &Record) -> Option<u64> {
    match record.event {
        Event::Granted { token, .. } => Some(token),
        _ => None,
    }
}

/// The next grant of the name that was trusted for a while.
pub(super) fn next_trusted(world: &mut World, name: &str, after: u64) -> Option<Record> {
    let ended: Vec<u64> = world
        .records()
        .filter(|record| &*record.name == name)
        .filter_map(|record| match record.event {
            Event::HeldUntil { token, .. } => Some(token),
            _ => None,
        })
        .collect();
    let grants = world.records().filter(|record| &*record.name == name);
    grants
        .filter(|record| {
            token_of(record).is_some_and(|token| token > after && ended.contains(&token))
        })
        .min_by_key(|record| token_of(record))
        .cloned()
}
