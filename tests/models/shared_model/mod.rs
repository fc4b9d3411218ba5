//! Shared and exclusive holds of one name, by all ways in which packets can meet: no server is needed.
//!
//! The rules stand in `docs/design.md`. With all of them no exclusive hold ever stands beside a shared one that is active, and the door
//! can always be opened again. Without any one of them the model finds how that ends.

mod model;
mod search;

use self::model::{Door, Kind, RULES, Rules, State};
use self::search::Graph;

/// The way to a broken state.
fn breaks(rules: &Rules) -> Option<Vec<State>> {
    let (graph, broken) = Graph::of(rules, 2, 2, State::is_broken);
    broken.map(|at| graph.way(at))
}

#[track_caller]
fn is_needed(rules: Rules) {
    let way = breaks(&rules).expect("without the rule a writer stands beside a reader");
    assert!(way.len() > 2 && way.last().is_some_and(State::is_broken));
}

/// With so many readers and writers, and an operator and a purge beside them. How many states there are.
fn is_exclusive(readers: usize, writers: usize) -> usize {
    let (graph, broken) = Graph::of(&RULES, readers, writers, State::is_broken);
    let way = broken.map(|at| graph.way(at));
    assert!(way.is_none(), "{readers} and {writers}: {way:#?}");
    // It is not kept by granting nothing.
    let any = |wanted: fn(&State) -> bool| graph.states.iter().any(wanted);
    assert!(any(State::is_held_exclusively));
    assert!(any(|state| state
        .rows
        .iter()
        .filter(|row| row.runs())
        .count()
        > 1));
    graph.states.len()
}

#[test]
fn no_exclusive_hold_stands_beside_a_shared_one() {
    for (readers, writers, least) in [(2, 2, 2_500), (3, 1, 1_000), (3, 2, 10_000)] {
        let states = is_exclusive(readers, writers);
        println!("{readers} readers, {writers} writers: {states} states");
        assert!(states > least, "{states}: a part of the model is gone");
    }
}

/// Whatever happened: when transactions end and leases do, a writer gets in, though no reader does anything any more.
#[test]
fn a_door_can_always_be_opened_again() {
    let (graph, _) = Graph::of(&RULES, 3, 2, |_| false);
    let stuck = graph.stuck(State::is_held_exclusively, |_, kind| kind == Kind::Goes);
    assert_eq!(stuck.map(|at| graph.way(at)), None);
    // And readers get in.
    let shared = |state: &State| state.rows.iter().any(|row| row.runs());
    let stuck = graph.stuck(shared, |_, kind| matches!(kind, Kind::Goes | Kind::Enters));
    assert_eq!(stuck.map(|at| graph.way(at)), None);
}

/// Nobody enters beside a wish: whoever holds ends, and a writer is next.
#[test]
fn a_writer_that_wishes_comes_when_the_readers_end() {
    let enters = |rules: &Rules| {
        let (graph, _) = Graph::of(rules, 2, 1, |_| false);
        graph.edges.iter().any(|(from, kind, _)| {
            let from = &graph.states[*from as usize];
            *kind == Kind::Enters && from.wish && matches!(from.door, Door::Shared { .. })
        })
    };
    assert!(!enters(&RULES));
    assert!(enters(&Rules {
        honours_wish: false,
        ..RULES
    }));
}

/// A renewal that is under way revives a lease that has ended by the rows as they are committed.
#[test]
fn to_count_without_locks_is_not_enough() {
    is_needed(Rules {
        locks_rows: false,
        ..RULES
    });
}

#[test]
fn to_count_before_the_locks_is_not_enough() {
    is_needed(Rules {
        counts_last: false,
        ..RULES
    });
}

#[test]
fn a_shared_row_needs_the_door_to_become_active() {
    is_needed(Rules {
        activates_behind_door: false,
        ..RULES
    });
}

/// Nobody counts down for a process that died.
#[test]
fn a_count_in_the_door_leaves_it_shut() {
    let rules = Rules {
        counts_rows: false,
        ..RULES
    };
    let (graph, _) = Graph::of(&rules, 2, 1, |_| false);
    let stuck = graph.stuck(State::is_held_exclusively, |_, kind| kind == Kind::Goes);
    let way = stuck
        .map(|at| graph.way(at))
        .expect("a door that stays shut");
    let last = way.last().expect("a state");
    assert!(
        last.count > 0 && matches!(last.door, Door::Shared { .. }),
        "{last:?}"
    );
}

#[test]
fn the_deadline_of_a_shared_door_must_not_come() {
    is_needed(Rules {
        door_never_ends: false,
        ..RULES
    });
}

/// The holder's own transaction revives a lease that has ended, unless somebody has freed its row.
#[test]
fn a_writer_has_to_free_what_has_ended() {
    is_needed(Rules {
        frees_rows: false,
        ..RULES
    });
}

#[test]
fn a_forced_release_frees_all_or_nothing() {
    is_needed(Rules {
        forced_needs_all: false,
        ..RULES
    });
}
