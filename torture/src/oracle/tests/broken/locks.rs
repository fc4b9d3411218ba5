//! Damage to holds, tokens, and what was done under them.

use std::sync::Arc;

use rand::rngs::ChaCha8Rng;

use super::super::SLACK;
use super::super::simulated::{TTL, World};
use super::places::{at, next_trusted, pick, token_of};
use crate::history::{Event, Log, Outcome, Record};

pub(super) fn trusted_too_long(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let place = pick(world, random, |r| {
        matches!(r.event, Event::HeldUntil { .. })
    })?;
    let record = at(world, place).clone();
    let Event::HeldUntil { token, .. } = record.event else {
        return None;
    };
    let next = next_trusted(world, &record.name, token)?;
    at(world, place).event = Event::HeldUntil {
        token,
        trusted_until: next.returned + 1,
    };
    Some(())
}

/// One more worker waits for all the time, and is told in the end that the lock is held.
pub(super) fn starves(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    // Not the lock that one task has for itself: all of its turns could be of one lease.
    let many = |r: &Record| token_of(r).is_some() && r.name.starts_with("lock:");
    let place = pick(world, random, many)?;
    let name = Arc::clone(&at(world, place).name);
    let grants = world
        .records()
        .filter(|record| record.name == name && token_of(record).is_some());
    let times: Vec<u64> = grants.map(|record| record.returned).collect();
    if times.len() < 40 {
        return None;
    }
    let worker = u32::try_from(world.logs.len()).ok()?;
    let record = Record {
        worker,
        task: 0,
        name,
        invoked: *times.iter().min()? - 1,
        returned: *times.iter().max()?,
        event: Event::NotGranted {
            outcome: Outcome::Refused,
        },
    };
    world.logs.push(Log {
        worker,
        records: vec![record],
        complete: true,
        ..Log::default()
    });
    Some(())
}

pub(super) fn one_token_twice(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let place = pick(world, random, |r| token_of(r).is_some())?;
    let record = at(world, place).clone();
    let next = next_trusted(world, &record.name, token_of(&record)?)?;
    at(world, place).event = next.event;
    Some(())
}

pub(super) fn tokens_swapped(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let first = pick(world, random, |r| token_of(r).is_some())?;
    let one = at(world, first).clone();
    let second = pick(world, random, |r| {
        r.name == one.name && token_of(r).is_some() && r.invoked > one.returned
    })?;
    let event = std::mem::replace(&mut at(world, second).event, one.event);
    at(world, first).event = event;
    Some(())
}

pub(super) fn row_behind(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let place = pick(world, random, |r| token_of(r).is_some())?;
    let record = at(world, place).clone();
    let mut fences = world.last.fences.iter_mut();
    fences.find(|(name, _)| *name == record.name)?.1 = token_of(&record)? - 1;
    Some(())
}

pub(super) fn stale_write(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let place = pick(world, random, |r| {
        matches!(
            r.event,
            Event::FencedWrite {
                accepted: false,
                ..
            }
        )
    })?;
    if let Event::FencedWrite { accepted, .. } = &mut at(world, place).event {
        *accepted = true;
    }
    Some(())
}

pub(super) fn resource_goes_back(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    let (name, token) = world.last.accepted.first()?.clone();
    world
        .last
        .accepted
        .push((Arc::clone(&name), token + 1_000_000));
    world.last.accepted.push((name, token));
    Some(())
}

pub(super) fn write_refused(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    let writes = world
        .records()
        .filter(|r| matches!(r.event, Event::FencedWrite { accepted: true, .. }));
    let newest = writes.max_by_key(|record| (Arc::clone(&record.name), record.returned))?;
    if let Event::FencedWrite { accepted, .. } = &mut newest.event {
        *accepted = false;
    }
    Some(())
}

pub(super) fn update_lost(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    // Of a hold with a trusted end, and not the late section of one that was lost.
    let place = pick(
        world,
        random,
        |r| matches!(r.event, Event::Section { wrote, .. } if wrote % 10 == 0),
    )?;
    if let Event::Section { read, .. } = &mut at(world, place).event {
        *read = u64::MAX;
    }
    Some(())
}

/// Behind everything, when nobody holds anything any more.
fn quiet(world: &mut World) -> u64 {
    world
        .records()
        .map(|record| record.returned)
        .max()
        .unwrap_or_default()
        + 3 * TTL
}

fn add_to_lock(world: &mut World, (invoked, returned): (u64, u64), event: Event) {
    world.logs[0].records.push(Record {
        worker: 0,
        task: 9,
        name: Arc::from("lock:a"),
        invoked,
        returned,
        event,
    });
}

pub(super) fn nobody_gets_it(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    pick(world, random, |r| {
        &*r.name == "lock:a" && token_of(r).is_some()
    })?;
    let from = quiet(world);
    let refused = Event::NotGranted {
        outcome: Outcome::Refused,
    };
    add_to_lock(world, (from, from + TTL + SLACK + 1), refused);
    Some(())
}

pub(super) fn free_lock_refused(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    pick(world, random, |r| {
        &*r.name == "lock:a" && token_of(r).is_some()
    })?;
    let from = quiet(world);
    let refused = Event::NotGranted {
        outcome: Outcome::Refused,
    };
    add_to_lock(world, (from, from + 1_000), refused);
    Some(())
}

pub(super) fn release_undone(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let place = pick(world, random, |r| {
        let done = Outcome::Done;
        matches!(r.event, Event::Released { outcome, .. } if outcome == done) && &*r.name == "alone"
    })?;
    let release = at(world, place).clone();
    world.logs[place.0].records.push(Record {
        invoked: release.returned + 1,
        returned: release.returned + 2,
        event: Event::NotGranted {
            outcome: Outcome::Refused,
        },
        ..release
    });
    Some(())
}

pub(super) fn late_release(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let done = |r: &Record| {
        matches!(
            r.event,
            Event::Released {
                outcome: Outcome::Done,
                ..
            }
        )
    };
    let place = pick(world, random, done)?;
    let record = at(world, place).clone();
    let Event::Released { token, .. } = record.event else {
        return None;
    };
    // Where nobody knows whether a transaction has released the lock before, it may be late.
    let maybe = |r: &Record| match r.event {
        Event::Transfer {
            token: of, outcome, ..
        } => {
            let open = matches!(outcome, Outcome::Unknown | Outcome::Lost);
            of == token && r.name == record.name && open
        }
        _ => false,
    };
    if world.records().any(|record| maybe(record)) {
        return None;
    }
    let next = next_trusted(world, &record.name, token)?;
    let late = at(world, place);
    late.invoked = next.returned + 1;
    late.returned = next.returned + 2;
    Some(())
}

pub(super) fn lease_without_end(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    world.last.held.push(Arc::from("lock:a"));
    Some(())
}
