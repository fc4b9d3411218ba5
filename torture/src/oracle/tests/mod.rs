//! The oracle judged: histories of a simulated lock and a simulated counter pass, and each kind of damage is found.

mod broken;
mod election;
mod jobs;
mod order;
mod overrunning;
mod permits;
mod shared;
mod simulated;
mod stopped;
mod together;

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

use self::broken::BREAKAGES;
use self::simulated::World;
use super::{Case, Kind, Rules, Verdict, judge};
use crate::history::{Event, FinalState, Invocation, Log, Record};

/// What waiters may wait beyond the ttl.
const SLACK: u64 = 50_000_000;
/// How often others may have a lock while one waits for it.
const PASSED_OVER: u64 = 20;
/// By how much what is in order is clearly apart: more than a simulated history lasts, whose tasks have a client each.
const APART: u64 = 1_000_000_000_000;
/// By how much a call may take longer than it said.
const ENDS_WITHIN: u64 = 30_000_000;

fn verdict(world: &World) -> Verdict {
    judge(&Case {
        logs: &world.logs,
        last: &world.last,
        unavailable: &world.unavailable,
        rules: Rules {
            served_within: Some(SLACK),
            passed_over: Some(PASSED_OVER),
            in_order_within: Some(APART),
            ends_within: Some(ENDS_WITHIN),
            ..Rules::default()
        },
    })
}

fn found(world: &World, kind: Kind) -> bool {
    verdict(world).violations.contains_key(&kind)
}

/// A record of the one task of the one worker.
fn record(name: &str, (invoked, returned): (u64, u64), event: Event) -> Record {
    Record {
        worker: 1,
        task: 1,
        name: name.into(),
        invoked,
        returned,
        event,
    }
}

type Kinds = Vec<Kind>;

/// The kinds of what is found, where this was logged, and this began and has no end on file.
fn kinds(records: &[Record], open: &[Invocation]) -> Kinds {
    kinds_of(records, open, &FinalState::default())
}

fn kinds_of(records: &[Record], open: &[Invocation], last: &FinalState) -> Kinds {
    let log = Log {
        worker: 1,
        records: records.to_vec(),
        open: open.to_vec(),
        complete: true,
        apart: false,
    };
    let verdict = judge(&Case {
        logs: &[log],
        last,
        unavailable: &[],
        rules: Rules {
            served_within: Some(SLACK),
            ..Rules::default()
        },
    });
    verdict.violations.into_keys().collect()
}

#[test]
fn every_kind_of_finding_has_a_breakage() {
    for (name, kind, damage) in BREAKAGES {
        let mut caught = 0;
        for seed in 0..8 {
            let mut world = World::simulate(seed, 60);
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            if damage(&mut world, &mut random).is_some() {
                assert!(
                    found(&world, *kind),
                    "{name}, seed {seed}: {:#?}",
                    verdict(&world)
                );
                caught += 1;
            }
        }
        assert!(caught > 0, "{name} could never be done");
    }
}

#[test]
fn a_long_history_is_judged_in_a_moment() {
    let world = World::simulate(7, 20_000);
    // Of this thread's processor: what else the machine does is not the oracle's.
    let processor = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_sec;
    let begin = processor();
    let verdict = verdict(&world);
    assert_eq!(verdict.findings, []);
    for what in [
        "holds",
        "sections",
        "additions",
        "transfers",
        "waits",
        "windows",
    ] {
        assert!(
            verdict.checked.get(what).is_some_and(|count| *count > 50),
            "{what}: {verdict:?}"
        );
    }
    let took = processor() - begin;
    assert!(took < 60, "{took} s");
}

#[test]
fn the_rules_switch_checks_off() {
    let mut world = World::simulate(3, 60);
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let overlap = BREAKAGES
        .iter()
        .find(|(_, kind, _)| *kind == Kind::HoldsOverlap);
    let (_, _, damage) = overlap.expect("there is one");
    damage(&mut world, &mut random).expect("it can be done");
    let stepped = judge(&Case {
        logs: &world.logs,
        last: &world.last,
        unavailable: &world.unavailable,
        rules: Rules {
            leases_exclude: false,
            ..Rules::default()
        },
    });
    assert_eq!(stepped.findings, []);
}

#[test]
fn nothing_is_nothing() {
    let verdict = verdict(&World::default());
    assert_eq!((verdict.violations(), verdict.findings), (0, vec![]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn correct_histories_pass(seed: u64, length in 1_usize..150) {
        let verdict = verdict(&World::simulate(seed, length));
        prop_assert_eq!(verdict.findings, vec![]);
    }

    #[test]
    fn damaged_histories_do_not(seed: u64, breakage in 0..BREAKAGES.len()) {
        let mut world = World::simulate(seed, 80);
        let (name, kind, damage) = BREAKAGES[breakage];
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        prop_assume!(damage(&mut world, &mut random).is_some());
        prop_assert!(found(&world, kind), "{}: {:#?}", name, verdict(&world));
    }
}
