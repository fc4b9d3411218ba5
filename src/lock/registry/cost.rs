//! What a turn in memory costs; see [`crate::cost`].

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use super::lease::Lease;
use super::place::{Action, Place, State, TurnOver, Waiter};
use crate::clock::{Moment, micros};
use crate::cost::{allocations, at_most};
use crate::lock::terms::Terms;
use crate::name::Name;
use crate::sql::row::RowKey;
use crate::token::Token;

const TTL: Duration = Duration::from_secs(3_600);

#[test]
fn a_turn_passes_with_one_allocation_or_two() {
    let now = Moment::now();
    let terms = Terms {
        ttl: TTL,
        auto_renew: true,
        passes: true,
        hold_at_least: Duration::ZERO,
        max_hold: None,
        linger: Duration::ZERO,
        description: Arc::from(""),
        owner: None,
    };
    let name = Name::new("hot").expect("a name");
    let grant = (Token::random(), 1_000_000);
    let held = (now, micros(TTL), 0);
    let lease = Lease::new(
        Weak::new(),
        RowKey::lock(name),
        grant,
        terms.clone(),
        held,
        false,
    );
    let lease = Arc::new(lease);
    let mut place = Place::new(1, now, None);
    place.state = State::Held(Arc::clone(&lease));
    let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..1_000).map(|_| oneshot::channel()).unzip();
    let mut actions = Vec::with_capacity(1_000);
    let (allocations, ()) = allocations(|| {
        for (id, reply) in (0..).zip(senders) {
            let waiter = Waiter {
                id,
                terms: terms.clone(),
                once: false,
                asks: false,
                until: None,
                reply,
            };
            assert!(place.enter(waiter, now, &mut actions).is_none());
        }
        for receiver in &mut receivers {
            let over = place.end_turn(&lease, true, now, &mut actions);
            assert_eq!(over, TurnOver::HandedOn);
            let turn = receiver.try_recv().expect("told").expect("no error");
            turn.expect("a turn").disarm();
        }
    });
    let waits = |action: &Action| matches!(action, Action::Waits);
    assert!(actions.iter().all(waits), "{actions:?}");
    // The signal of each turn, and the tree that it stands in.
    at_most("allocations of 1,000 turns", allocations, 1_100);
}
