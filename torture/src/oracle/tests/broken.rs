//! Damage to a correct history, one for each thing that the oracle must find. `None`: there was nothing to damage.

use std::sync::Arc;

use rand::Rng;
use rand::seq::{IndexedMutRandom, IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::SLACK;
use super::simulated::{TTL, World};
use crate::history::{Event, Outcome, Record};
use crate::oracle::Kind;

type Damage = fn(&mut World, &mut ChaCha8Rng) -> Option<()>;

pub(super) const BREAKAGES: &[(&str, Kind, Damage)] = &[
    ("trusted too long", Kind::HoldsOverlap, trusted_too_long),
    ("one token twice", Kind::TokenRepeated, one_token_twice),
    ("tokens swapped", Kind::TokenFell, tokens_swapped),
    ("a row behind its grants", Kind::TokenFell, row_behind),
    (
        "a stale write accepted",
        Kind::StaleWriteAccepted,
        stale_write,
    ),
    (
        "a resource that goes back",
        Kind::StaleWriteAccepted,
        resource_goes_back,
    ),
    ("a write refused", Kind::WriteRefused, write_refused),
    ("an update lost", Kind::LostUpdate, update_lost),
    ("a lock that nobody gets", Kind::NotServed, nobody_gets_it),
    ("a free lock refused", Kind::NotServed, free_lock_refused),
    ("a release undone", Kind::ReleaseUndone, release_undone),
    ("an old value read", Kind::ValueOutOfOrder, old_value_read),
    (
        "a lease without end",
        Kind::LeaseOutlived,
        lease_without_end,
    ),
    ("an addition lost", Kind::WrongSum, addition_lost),
    ("additions doubled", Kind::WrongSum, addition_doubled),
    ("a value twice", Kind::WrongValue, value_twice),
    ("values skipped", Kind::WrongValue, values_skipped),
    ("values of a walk changed", Kind::WrongValue, walk_changed),
    ("values swapped", Kind::ValueOutOfOrder, values_swapped),
    (
        "a value of a walk out of reach",
        Kind::ValueOutOfOrder,
        out_of_reach,
    ),
    (
        "values of a walk swapped",
        Kind::NotLinearizable,
        walk_swapped,
    ),
    (
        "a release after the next grant",
        Kind::NotLinearizable,
        late_release,
    ),
    ("below its bound", Kind::OutOfBounds, below_its_bound),
    ("no room", Kind::RefusedWithRoom, no_room),
    ("money from nowhere", Kind::WrongBalance, money_from_nowhere),
    ("a transfer lost", Kind::WrongLedger, transfer_lost),
    ("a transfer doubled", Kind::WrongLedger, transfer_doubled),
    (
        "a transfer that failed",
        Kind::WrongLedger,
        transfer_that_failed,
    ),
    ("a commit behind a grant", Kind::StaleCommit, late_commit),
    ("commits swapped", Kind::StaleCommit, commits_swapped),
    ("a deadlock", Kind::Deadlock, deadlock),
];

/// One of the records that match, by its place in its log.
fn pick(
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

fn at(world: &mut World, (log, place): (usize, usize)) -> &mut Record {
    &mut world.logs[log].records[place]
}

fn token_of(record: &Record) -> Option<u64> {
    match record.event {
        Event::Granted { token, .. } => Some(token),
        _ => None,
    }
}

/// The next grant of the name that was trusted for a while.
fn next_trusted(world: &mut World, name: &str, after: u64) -> Option<Record> {
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

fn trusted_too_long(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
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

fn one_token_twice(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let place = pick(world, random, |r| token_of(r).is_some())?;
    let record = at(world, place).clone();
    let next = next_trusted(world, &record.name, token_of(&record)?)?;
    at(world, place).event = next.event;
    Some(())
}

fn tokens_swapped(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let first = pick(world, random, |r| token_of(r).is_some())?;
    let one = at(world, first).clone();
    let second = pick(world, random, |r| {
        r.name == one.name && token_of(r).is_some() && r.invoked > one.returned
    })?;
    let event = std::mem::replace(&mut at(world, second).event, one.event);
    at(world, first).event = event;
    Some(())
}

fn row_behind(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let place = pick(world, random, |r| token_of(r).is_some())?;
    let record = at(world, place).clone();
    let mut fences = world.last.fences.iter_mut();
    fences.find(|(name, _)| *name == record.name)?.1 = token_of(&record)? - 1;
    Some(())
}

fn stale_write(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
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

fn resource_goes_back(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    let (name, token) = world.last.accepted.first()?.clone();
    world
        .last
        .accepted
        .push((Arc::clone(&name), token + 1_000_000));
    world.last.accepted.push((name, token));
    Some(())
}

fn write_refused(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    let writes = world
        .records()
        .filter(|r| matches!(r.event, Event::FencedWrite { accepted: true, .. }));
    let newest = writes.max_by_key(|record| (Arc::clone(&record.name), record.returned))?;
    if let Event::FencedWrite { accepted, .. } = &mut newest.event {
        *accepted = false;
    }
    Some(())
}

fn update_lost(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
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

fn nobody_gets_it(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
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

fn free_lock_refused(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
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

fn release_undone(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
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

fn old_value_read(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let place = pick(world, random, |r| {
        &*r.name == "read"
            && matches!(r.event, Event::Added { delta: 0, value: Some(value), .. } if value > 0)
    })?;
    if let Event::Added { value, .. } = &mut at(world, place).event {
        *value = Some(0);
    }
    Some(())
}

fn lease_without_end(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    world.last.held.push(Arc::from("lock:a"));
    Some(())
}

fn addition_lost(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let last = world.last.counters.choose_mut(random)?;
    last.1 = -1_000_000;
    Some(())
}

fn addition_doubled(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let last = world.last.counters.choose_mut(random)?;
    last.1 += 1_000_000;
    Some(())
}

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

fn value_twice(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    let mut values = world.records().filter_map(|record| told(record, "tickets"));
    let first = *values.next()?;
    *values.next()? = first;
    Some(())
}

fn values_skipped(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let by = random.random_range(1_000..2_000);
    let values = world.records().filter_map(|record| told(record, "tickets"));
    *values.max_by_key(|value| **value)? += by;
    Some(())
}

fn walk_changed(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
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
fn values_swapped(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
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

fn out_of_reach(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    let mut values = world.records().filter_map(|record| told(record, "stock"));
    *values.next()? += 1_000_000;
    Some(())
}

fn walk_swapped(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
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

fn late_release(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
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
    let next = next_trusted(world, &record.name, token)?;
    let late = at(world, place);
    late.invoked = next.returned + 1;
    late.returned = next.returned + 2;
    Some(())
}

fn below_its_bound(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let place = pick(world, random, |r| told(&mut r.clone(), "stock").is_some())?;
    *told(at(world, place), "stock")? = -1;
    Some(())
}

fn no_room(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
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

fn money_from_nowhere(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    pick(world, random, |r| {
        &*r.name == "lock:a" && matches!(r.event, Event::Transfer { .. })
    })?;
    let mut accounts = world.last.accounts.iter_mut();
    accounts.find(|(name, _)| &**name == "lock:a")?.1[0] += 1;
    Some(())
}

fn transfer_lost(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let done = |r: &Record| {
        matches!(
            r.event,
            Event::Transfer {
                outcome: Outcome::Done,
                ..
            }
        )
    };
    let place = pick(world, random, done)?;
    let (worker, invoked) = (at(world, place).worker, at(world, place).invoked);
    let same = |one: &crate::history::Committed| (one.worker, one.invoked) == (worker, invoked);
    world.last.transfers.retain(|one| !same(one));
    Some(())
}

fn transfer_doubled(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let one = world.last.transfers.choose(random)?.clone();
    world.last.transfers.push(one);
    Some(())
}

fn transfer_that_failed(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let done = |r: &Record| {
        matches!(
            r.event,
            Event::Transfer {
                outcome: Outcome::Done,
                ..
            }
        )
    };
    let place = pick(world, random, done)?;
    if let Event::Transfer { outcome, .. } = &mut at(world, place).event {
        *outcome = Outcome::Lost;
    }
    Some(())
}

fn late_commit(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let done = |r: &Record| {
        matches!(
            r.event,
            Event::Transfer {
                outcome: Outcome::Done,
                ..
            }
        )
    };
    let place = pick(world, random, done)?;
    let record = at(world, place).clone();
    let Event::Transfer { token, .. } = record.event else {
        return None;
    };
    let next = next_trusted(world, &record.name, token)?;
    if let Event::Transfer { committing, .. } = &mut at(world, place).event {
        *committing = next.returned + 1;
    }
    Some(())
}

fn commits_swapped(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    let transfers = &mut world.last.transfers;
    let first = transfers.first()?.clone();
    let other = transfers
        .iter()
        .position(|one| one.name == first.name && one.token > first.token)?;
    transfers.swap(0, other);
    Some(())
}

fn deadlock(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    world.last.deadlocks = 1;
    Some(())
}
