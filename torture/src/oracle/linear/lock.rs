//! A lock with rising tokens.

use std::collections::HashMap;

use porcupine_rs::Model;

use super::super::finding::Findings;
use super::super::index::{History, Hold};
use super::{SIZE, operation, search, spread};
use crate::history::Outcome;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    last: u64,
    held: bool,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The lock is granted with this token.
    Grant(u64),
    /// The hold with this token ends: by its release, or because nobody trusts it any more and its lease runs out.
    End(u64),
}

#[derive(Debug, Clone, Copy)]
struct Lock;

impl Model for Lock {
    type State = State;
    type Op = Step;
    type Metadata = ();

    fn init() -> State {
        State {
            last: 0,
            held: false,
        }
    }

    fn step(state: &State, step: &Step) -> (bool, State) {
        match *step {
            Step::Grant(token) => (
                !state.held && token > state.last,
                State {
                    last: token,
                    held: true,
                },
            ),
            Step::End(token) => (
                state.held && token == state.last,
                State {
                    held: false,
                    ..*state
                },
            ),
        }
    }
}

/// Checks up to so many windows; how many there were.
pub(super) fn check(history: &History<'_>, windows: usize, findings: &mut Findings) -> usize {
    if windows == 0 || history.holds.is_empty() {
        return 0;
    }
    // Transactions of which nobody knows whether they have committed, and when that was asked for: they may have released the lock.
    let open = history.transfers.iter().filter(|transfer| {
        matches!(transfer.outcome, Outcome::Unknown | Outcome::Lost) && transfer.committing > 0
    });
    let open: HashMap<u64, u64> = open
        .map(|transfer| (transfer.token, transfer.committing))
        .collect();
    let mut holds: Vec<&Hold<'_>> = history.holds.iter().collect();
    holds.sort_by_key(|hold| hold.token);
    let mut count = 0;
    for begin in spread(holds.len(), windows) {
        let end = holds.len().min(begin + SIZE);
        let mut operations = Vec::with_capacity(2 * SIZE);
        for hold in &holds[begin..end] {
            let grant = hold.grant;
            let step = Step::Grant(hold.token);
            operations.push(operation::<Lock>(step, grant.invoked, grant.returned));
            let (from, to) = match hold.release {
                Some((release, Outcome::Done)) => {
                    let before = open.get(&hold.token).copied().unwrap_or(u64::MAX);
                    (release.invoked.min(before), release.returned)
                }
                // Its lease ran out at some time after the holder trusted it last.
                _ if hold.trusted_until > grant.returned => (hold.trusted_until, u64::MAX),
                // Never trusted: its worker may have been stopped while the grant was on its way, and been told of it
                // when others had held the lock since.
                _ => (grant.invoked, u64::MAX),
            };
            operations.push(operation(Step::End(hold.token), from, to));
        }
        search(&operations, "lock", findings);
        count += 1;
    }
    count
}
