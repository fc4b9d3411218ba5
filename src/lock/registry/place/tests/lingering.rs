//! Leases that idle.

use super::*;

/// A grant of a lease that may idle, and the place that has it.
fn scene() -> (Scene, Turn) {
    let mut scene = Scene::new();
    let (mut waiter, mut answers) = scene.waiter(None);
    waiter.terms = lingering();
    assert!(scene.enter(waiter));
    let lease = lease(lingering(), 1_000_000);
    scene.place.granted(lease, scene.now, &mut scene.actions);
    scene.actions.clear();
    (scene, turn(&mut answers))
}

fn lingering() -> Terms {
    Terms {
        linger: TTL,
        ..terms(None)
    }
}

fn over(scene: &mut Scene, turn: Turn, hears: bool) -> (Arc<Lease>, TurnOver) {
    let lease = Arc::clone(&turn.lease);
    turn.disarm();
    let now = scene.now;
    let over = scene.place.end_turn(&lease, hears, now, &mut scene.actions);
    (lease, over)
}

fn releases(scene: &Scene) -> bool {
    matches!(
        scene.actions[..],
        [Action::Release { announce: true, .. }, ..]
    )
}

#[test]
fn it_is_taken_again_as_the_next_turn() {
    let (mut scene, turn) = scene();
    let first = turn.fence;
    let (lease, end) = over(&mut scene, turn, true);
    assert_eq!(end, TurnOver::Lingers);
    assert!(scene.actions.is_empty());
    let again = scene.place.take(&lingering(), true, scene.now);
    let again = again.expect("it idled");
    assert_eq!(again.fence, first + 1);
    assert!(scene.place.take(&lingering(), true, scene.now).is_none());
    let (_, end) = over(&mut scene, again, true);
    assert_eq!(end, TurnOver::Lingers);
    assert!(!lease.has_ended());
}

#[test]
fn what_cannot_be_relied_on_is_given_back() {
    let mut other = lingering();
    other.ttl /= 2;
    for (terms, hears, wanted, later) in [
        (other, true, false, Duration::ZERO),
        (terms(None), true, false, Duration::ZERO),
        (lingering(), false, false, Duration::ZERO),
        (lingering(), true, true, Duration::ZERO),
        // Less than a third of it is left.
        (lingering(), true, false, TTL * 7 / 10),
    ] {
        let (mut scene, turn) = scene();
        let (lease, end) = over(&mut scene, turn, true);
        assert_eq!(end, TurnOver::Lingers);
        lease.set_wanted(wanted);
        scene.now = scene.now.after(later);
        assert!(scene.place.take(&terms, hears, scene.now).is_none());
        let (mut waiter, _answers) = scene.waiter(None);
        waiter.terms = terms;
        assert!(scene.enter(waiter), "it waits for the release");
        assert!(releases(&scene), "{:?}", scene.actions);
        assert!(lease.has_ended());
    }
}

#[test]
fn what_is_wanted_or_used_or_not_heard_of_does_not_idle() {
    let (mut wanted, turn) = scene();
    turn.lease.set_wanted(true);
    assert_eq!(over(&mut wanted, turn, true).1, TurnOver::Over);
    let (mut used, turn) = scene();
    assert!(turn.lease.use_in_transaction(turn.fence));
    assert_eq!(over(&mut used, turn, true).1, TurnOver::Over);
    let (mut deaf, turn) = scene();
    assert_eq!(over(&mut deaf, turn, false).1, TurnOver::Over);
    for scene in [wanted, used, deaf] {
        assert!(releases(&scene));
    }
}

/// Its acquire is refused by the lease that idles here.
#[test]
fn an_owner_that_asks_past_the_queue_does_not_wait_for_what_idles() {
    let (mut scene, turn) = scene();
    let (mut lease, end) = over(&mut scene, turn, true);
    assert_eq!(end, TurnOver::Lingers);
    let again = scene.place.take(&lingering(), true, scene.now);
    let (waiter, _answers) = scene.waiter(Some("o"));
    let now = scene.now;
    scene
        .place
        .ask_for(waiter, Asking::New, now, &mut scene.actions);
    let (_, end) = over(&mut scene, again.expect("it idled"), true);
    assert_eq!(end, TurnOver::Over, "somebody asks");
    assert!(lease.has_ended());
    // It came to idle while the answer was on its way.
    (scene, lease) = {
        let (mut scene, turn) = self::scene();
        let (lease, _) = over(&mut scene, turn, true);
        (scene, lease)
    };
    let (waiter, _answers) = scene.waiter(Some("o"));
    let id = waiter.id;
    scene
        .place
        .ask_for(waiter, Asking::New, now, &mut scene.actions);
    scene.actions.clear();
    let row = held(lease.fence, 1);
    scene
        .place
        .not_entered(id, Some(&row), now, &mut scene.actions);
    assert!(lease.has_ended(), "{:?}", scene.actions);
}
