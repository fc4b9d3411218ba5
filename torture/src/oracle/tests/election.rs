//! Elections: a correct history passes, and each kind of damage is found.

use super::{Kinds, record};
use crate::history::{Event, Record};
use crate::oracle::Kind;

const NAME: &str = "election:0";

/// Whoever leads from an instant on, until another one.
fn leads(from: u64, to: u64, (token, value): (u64, u64), once: bool) -> Vec<Record> {
    let granted = Event::Granted { token, ttl: 100 };
    let held = Event::HeldUntil {
        token,
        trusted_until: to,
    };
    let leads = Event::Leads { token, value, once };
    vec![
        record(NAME, (from - 1, from), granted),
        record(NAME, (from, from), leads),
        record(NAME, (to, to), held),
    ]
}

fn seen(at: u64, token: u64, value: u64) -> Vec<Record> {
    vec![record(NAME, (at, at), Event::Seen { token, value })]
}

fn kinds(records: &[Vec<Record>]) -> Kinds {
    super::kinds(&records.concat(), &[])
}

#[test]
fn what_is_as_it_should_be_passes() {
    let history = [
        leads(2, 9, (7, 100), true),
        seen(5, 7, 100),
        leads(11, 19, (8, 200), false),
        seen(15, 8, 200),
        // It leads with its value again, was granted that before it could say so, and another one had given up.
        leads(21, 29, (10, 200), false),
        seen(20, 9, 200),
        seen(30, 11, 300),
        // It had been elected before, and heard of it too late.
        seen(31, 12, 400),
        leads(35, 39, (13, 400), true),
    ];
    assert_eq!(kinds(&history), []);
}

#[test]
fn a_value_of_another_leader_is_found() {
    let leaders = [leads(2, 9, (7, 100), true), leads(11, 19, (8, 200), true)].concat();
    for wrong in [seen(15, 8, 100), seen(15, 8, 300), seen(25, 9, 100)] {
        assert_eq!(kinds(&[leaders.clone(), wrong]), [Kind::WrongLeader]);
    }
}

#[test]
fn two_leaders_are_found() {
    let history = [leads(2, 19, (7, 100), true), leads(11, 29, (8, 200), true)];
    let overlap = [Kind::HoldsOverlap, Kind::NotLinearizable];
    assert_eq!(kinds(&history), overlap);
}

#[test]
fn work_that_goes_on_is_found() {
    let on = Event::WorkedOn {
        token: 7,
        steps: 41,
    };
    let history = [
        leads(2, 9, (7, 100), false),
        vec![record(NAME, (30, 30), on)],
    ];
    assert_eq!(kinds(&history), [Kind::WorkedOn]);
}
