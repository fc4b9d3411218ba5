//! Damage to what transactions did under a lock.

use rand::rngs::ChaCha8Rng;
use rand::seq::IndexedRandom;

use super::super::simulated::World;
use super::places::{at, next_trusted, pick};
use crate::history::{Committed, Event, Outcome, Record};

/// A transfer whose commit was acknowledged.
fn is_done(record: &Record) -> bool {
    matches!(
        record.event,
        Event::Transfer {
            outcome: Outcome::Done,
            ..
        }
    )
}

pub(super) fn money_from_nowhere(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    pick(world, random, |r| {
        &*r.name == "lock:a" && matches!(r.event, Event::Transfer { .. })
    })?;
    let mut accounts = world.last.accounts.iter_mut();
    accounts.find(|(name, _)| &**name == "lock:a")?.1[0] += 1;
    Some(())
}

pub(super) fn transfer_lost(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let place = pick(world, random, is_done)?;
    let (worker, invoked) = (at(world, place).worker, at(world, place).invoked);
    let same = |one: &Committed| (one.worker, one.invoked) == (worker, invoked);
    world.last.transfers.retain(|one| !same(one));
    Some(())
}

pub(super) fn transfer_doubled(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let one = world.last.transfers.choose(random)?.clone();
    world.last.transfers.push(one);
    Some(())
}

pub(super) fn transfer_that_failed(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let place = pick(world, random, is_done)?;
    if let Event::Transfer { outcome, .. } = &mut at(world, place).event {
        *outcome = Outcome::Lost;
    }
    Some(())
}

pub(super) fn late_commit(world: &mut World, random: &mut ChaCha8Rng) -> Option<()> {
    let place = pick(world, random, is_done)?;
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

pub(super) fn commits_swapped(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    let transfers = &mut world.last.transfers;
    let first = transfers.first()?.clone();
    let other = transfers
        .iter()
        .position(|one| one.name == first.name && one.token > first.token)?;
    transfers.swap(0, other);
    Some(())
}

pub(super) fn deadlock(world: &mut World, _: &mut ChaCha8Rng) -> Option<()> {
    world.last.deadlocks = 1;
    Some(())
}
