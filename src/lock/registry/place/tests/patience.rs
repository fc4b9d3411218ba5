//! Those who are far away, and those who have waited for long.

use super::*;
use crate::sql::wish::{GivesWay, first_turn, turns_seen};

/// What a look tells is over when an acquire comes there.
#[test]
fn who_is_far_from_the_server_asks_instead_of_looking() {
    for (distance, looks) in [(Duration::from_millis(1), 20), (GIVE_WAY, 2)] {
        let mut scene = Scene::new();
        let _first = scene.wait(None);
        scene.refused(&held(7, 0));
        scene.asked();
        let mut looked = 0;
        for _ in 0..20 {
            let next = scene.place.next_look().expect("it watches");
            scene.now = next.max(scene.now);
            if scene.place.is_due(distance, scene.now, &mut scene.actions) {
                looked += 1;
                scene.looked(&held(7, OTHER));
            } else {
                assert_eq!(scene.asked(), [(None, None)]);
                scene.refused(&held(7, 0));
            }
        }
        assert_eq!(looked, looks, "{distance:?}");
    }
}

/// A client far away finds a lock free by chance alone: when it has waited for long it says so, and those nearby let it go first.
#[test]
fn who_is_far_away_and_has_waited_for_long_goes_before_those_nearby() {
    let mut far = Scene::new();
    let waiting = far.wait(None);
    far.refused(&held(7, 0));
    assert!(!far.place.is_due(GIVE_WAY, far.now, &mut far.actions));
    let long = WANT_URGENTLY + LONG_WAIT + WANT_AGAIN;
    for (after, wait) in [(WANT_AGAIN, WANT), (LONG_WAIT, long)] {
        far.now = far.now.after(after);
        far.actions.clear();
        far.refused(&held(8, 0));
        let wishes = matches!(far.actions[..], [.., Action::Want(wish, _)] if wish == wait);
        assert!(wishes, "{after:?}: {:?}", far.actions);
        far.place.is_due(GIVE_WAY, far.now, &mut far.actions);
    }
    let row = |free_for: Duration| RowState {
        status: FREE,
        remaining: -micros(free_for),
        wanted: micros(WANT_URGENTLY),
        ..held(9, 0)
    };
    let mut near = Scene::new();
    let beside = near.wait(None);
    near.refused(&held(9, 0));
    near.looked(&held(9, 5));
    near.asked();
    near.looked(&row(Duration::from_millis(1)));
    assert_eq!(near.asked(), [], "it lets the other one go first");
    near.now = near.now.after(GIVE_WAY_TO_FAR);
    near.looked(&row(GIVE_WAY_TO_FAR));
    assert_eq!(near.asked(), [(None, None)], "it did not come");
    drop((waiting, beside));
}

/// Of two that are far away and have waited for long, the one that has waited longer is not overtaken by the other again and again.
#[test]
fn of_those_who_are_far_away_the_one_who_has_waited_longest_goes_first() {
    let waits = |waited: Duration, known: Duration| {
        let mut far = Scene::new();
        let waiting = far.wait(None);
        far.refused(&held(7, 0));
        assert!(!far.place.is_due(GIVE_WAY, far.now, &mut far.actions));
        far.now = far.now.after(waited);
        far.actions.clear();
        far.refused(&RowState {
            wanted: micros(known),
            ..held(8, 0)
        });
        let wish = match far.actions[..] {
            [.., Action::Want(wish, _)] => Some(wish),
            _ => None,
        };
        far.actions.clear();
        far.place.is_due(GIVE_WAY, far.now, &mut far.actions);
        let asks = match &far.actions[..] {
            [Action::Ask(question)] => Some(question.gives_way),
            _ => None,
        };
        drop(waiting);
        (wish, asks)
    };
    let (short, long) = (LONG_WAIT, 3 * LONG_WAIT);
    // The others know of a short wait: it is told how long this one is.
    let wish = WANT_URGENTLY + long;
    let asks = Some(GivesWay::to_longer_than(wish));
    assert_eq!(waits(long, WANT_URGENTLY + short), (Some(wish), asks));
    assert_eq!(waits(long, wish - WAITED_SINCE), (None, asks));
    // They know of a longer one than this.
    assert_eq!(waits(short, wish - WAITED_SINCE), (None, None));
    // Who has not waited for long gives way to anybody who has.
    let (_, asks) = waits(LONG_WAIT / 2, WANT);
    assert_eq!(asks, Some(GivesWay::to_longer_than(URGENT)));
    // However long somebody waits, he does not seem to stand by.
    let (longest, _) = waits(2 * LONGEST_WAIT, WANT_URGENTLY);
    assert_eq!(longest, Some(WANT_URGENTLY + LONGEST_WAIT));
}

/// Who has waited for long for a lock that stays as it is looks seldom, once all know; and goes first when it is free.
#[test]
fn who_stands_by_looks_once_a_second() {
    // Whether others waited already says nothing about whose wish stands in the row later.
    for wanted in [0, micros(WANT)] {
        stands_by(wanted);
    }
}

fn stands_by(wanted: i64) {
    let mut scene = Scene::new();
    let waiting = scene.wait(None);
    scene.refused(&RowState {
        wanted,
        ..held(7, 0)
    });
    scene.asked();
    let began = scene.now;
    let mut row = held(7, OTHER);
    let (mut wished, mut known) = (None, false);
    while scene.now.since(began) < STAND_BY_AFTER * 2 {
        let next = scene.place.next_look().expect("it watches");
        let pause = next.since(scene.now);
        if known {
            assert!(pause <= LOOK_STANDING_BY);
            assert_eq!(next, next.rounded_down(LOOK_STANDING_BY));
        } else {
            assert!(pause <= LOOK, "the others do not know");
        }
        scene.now = next.max(scene.now);
        scene.actions.clear();
        scene.looked(&row);
        known = row.is_wanted_by_standby();
        if let [Action::Want(wait, _)] = scene.actions[..] {
            // The server says so from the next look on.
            (row.wanted, wished) = (micros(wait), Some(wait));
        }
    }
    assert_eq!(wished, Some(WANT_STANDING_BY));
    let free = |free_for: Duration| RowState {
        status: FREE,
        remaining: -micros(free_for),
        wanted: micros(WANT_STANDING_BY),
        ..held(8, 0)
    };
    scene.actions.clear();
    scene.looked(&free(LOOK_STANDING_BY));
    if wanted > 0 {
        // It came later than another one, and is courteous for a moment.
        assert_eq!(scene.asked(), []);
        let next = scene.place.next_look().expect("it watches");
        assert!(next.since(scene.now) < LOOK / 2);
        scene.now = next;
        scene.looked(&free(LOOK_STANDING_BY + LOOK));
    }
    assert_eq!(scene.asked(), [(None, None)]);
    // One that has waited for a moment only lets it go first, for so long as it takes.
    let mut newer = Scene::new();
    let beside = newer.wait(None);
    newer.refused(&held(7, 0));
    newer.looked(&held(7, OTHER));
    newer.asked();
    newer.looked(&free(GIVE_WAY * 2));
    assert_eq!(newer.asked(), []);
    newer.now = newer.now.after(GIVE_WAY_TO_STANDBY);
    newer.looked(&free(GIVE_WAY_TO_STANDBY));
    assert_eq!(newer.asked(), [(None, None)], "it did not come");
    drop((waiting, beside));
}

/// Who has had no turn says how many of others it has seen. Who has had one since lets it go first; who has waited for as long does not.
#[test]
fn a_newcomer_that_has_waited_longer_goes_before_who_has_had_a_turn() {
    let mut newcomer = Scene::new();
    let waiting = newcomer.wait(None);
    newcomer.refused(&held(7, 0));
    newcomer.asked();
    let mut said = Vec::new();
    let mut row = held(7, OTHER);
    for turn in 0..12 {
        // A grant answers the wish; the next look is a moment later.
        row = held(row.fence + 1, OTHER + turn % 2);
        for _ in 0..3 {
            newcomer.now = newcomer.now.after(WANT_AGAIN);
            newcomer.actions.clear();
            newcomer.looked(&row);
            if let [Action::Want(wish, _)] = newcomer.actions[..] {
                row.wanted = micros(wish);
                said.push(turns_seen(wish));
            }
        }
    }
    assert_eq!(said, [0, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9]);

    for (seen, waits) in [(1, false), (2, true)] {
        let mut scene = Scene::new();
        let mut answers = scene.wait(None);
        scene.asked();
        let turn = scene.granted(None, &mut answers);
        scene.release_to(turn, WANT, Some(5));
        let again = scene.wait(None);
        let row = |status, fence| RowState {
            status,
            wanted: micros(first_turn(seen)),
            ..held(fence, OTHER)
        };
        scene.looked(&row(ACTIVE, 20));
        scene.asked();
        scene.looked(&row(FREE, 20));
        assert_eq!(scene.asked().is_empty(), waits, "{seen} turns");
        drop(again);
    }
    drop(waiting);
}
