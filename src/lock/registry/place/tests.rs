use std::sync::Weak;

use tokio::sync::oneshot;

use super::*;
use crate::clock::micros;
use crate::lock::registry::turn::Turn;
use crate::lock::terms::Terms;
use crate::name::Name;
use crate::sql::reply::{ACTIVE, FREE};
use crate::sql::row::RowKey;
use crate::timing::{
    ANSWER, GIVE_WAY, GIVE_WAY_TO_FAR, GIVE_WAY_TO_STANDBY, LONG_WAIT, LONGEST_WAIT, LOOK,
    LOOK_STANDING_BY, STAND_BY_AFTER, URGENT, WAITED_SINCE, WANT, WANT_AGAIN, WANT_STANDING_BY,
    WANT_URGENTLY,
};
use crate::token::Token;

mod lingering;
mod patience;

type Answers = oneshot::Receiver<Result<Option<Turn>, Error>>;

const TTL: Duration = Duration::from_secs(30);
const OTHER: u32 = 2;

fn terms(owner: Option<&str>) -> Terms {
    Terms {
        ttl: TTL,
        auto_renew: true,
        passes: true,
        hold_at_least: Duration::ZERO,
        max_hold: None,
        linger: Duration::ZERO,
        description: Arc::from(""),
        owner: owner.map(Token::of_text),
    }
}

/// A row that somebody holds, as an answer shows it, or a look.
fn held(fence: u64, client: u32) -> RowState {
    RowState {
        at: 0,
        granted: false,
        status: ACTIVE,
        mine: false,
        fence,
        remaining: 1_000_000,
        previous: 0,
        count: 1,
        wanted: 0,
        client,
    }
}

fn lease(terms: Terms, fence: u64) -> Arc<Lease> {
    let name = Name::new("l").expect("a name");
    let found = (Moment::now(), micros(TTL), 0);
    let token = terms.owner.unwrap_or_else(Token::random);
    let lease = Lease::new(
        Weak::new(),
        RowKey::lock(name),
        (token, fence),
        terms,
        found,
        false,
    );
    Arc::new(lease)
}

/// A place, and what it wants done.
struct Scene {
    place: Place,
    actions: Vec<Action>,
    now: Moment,
    ids: u64,
}

impl Scene {
    fn new() -> Self {
        let now = Moment::now();
        Self {
            place: Place::new(1, now, None),
            actions: Vec::new(),
            now,
            ids: 0,
        }
    }

    fn waiter(&mut self, owner: Option<&str>) -> (Waiter, Answers) {
        let (reply, answers) = oneshot::channel();
        self.ids += 1;
        let waiter = Waiter {
            id: self.ids,
            terms: terms(owner),
            once: false,
            asks: false,
            until: None,
            reply,
        };
        (waiter, answers)
    }

    fn enter(&mut self, waiter: Waiter) -> bool {
        let entered = self.place.enter(waiter, self.now, &mut self.actions);
        entered.is_none()
    }

    /// A task that waits for as long as it takes.
    fn wait(&mut self, owner: Option<&str>) -> Answers {
        let (waiter, answers) = self.waiter(owner);
        assert!(self.enter(waiter), "it waits");
        answers
    }

    /// A task that does not wait; whether it is told later.
    fn try_once(&mut self, owner: Option<&str>) -> (bool, Answers) {
        let (mut waiter, answers) = self.waiter(owner);
        waiter.once = true;
        waiter.until = Some(self.now);
        (self.enter(waiter), answers)
    }

    /// The acquires that are to be sent: for whom past the queue, and of which owner.
    fn asked(&mut self) -> Vec<(Option<u64>, Option<Token>)> {
        let mut asked = Vec::new();
        self.actions.retain(|action| {
            if let Action::Ask(question) = action {
                asked.push((question.entrant, question.terms.owner));
            }
            !matches!(action, Action::Ask(_) | Action::Waits)
        });
        asked
    }

    fn refused(&mut self, row: &RowState) {
        self.place.refused(Some(row), self.now, &mut self.actions);
    }

    fn looked(&mut self, row: &RowState) {
        self.place.looked(Some(row), self.now, &mut self.actions);
    }

    /// The first waiter is granted the lock.
    fn granted(&mut self, owner: Option<&str>, answers: &mut Answers) -> Turn {
        let lease = lease(terms(owner), 1_000_000);
        self.place.granted(lease, self.now, &mut self.actions);
        turn(answers)
    }

    /// Its holder is done, and the release is known.
    fn release(&mut self, turn: Turn) {
        self.release_to(turn, Duration::ZERO, None);
    }

    /// The same; the row tells that another process is known to wait for so long still, and has this fence.
    fn release_to(&mut self, turn: Turn, wanted: Duration, fence: Option<u64>) {
        let lease = Arc::clone(&turn.lease);
        turn.disarm();
        let over = self
            .place
            .end_turn(&lease, true, self.now, &mut self.actions);
        assert_eq!(over, TurnOver::Over);
        self.place
            .released(wanted, fence, self.now, &mut self.actions);
    }

    fn over(&mut self, id: u64) -> Leaving {
        self.place.time_is_over(id, self.now, &mut self.actions)
    }
}

fn turn(answers: &mut Answers) -> Turn {
    let answer = answers.try_recv().expect("told").expect("no error");
    answer.expect("a turn")
}

fn owner(owner: &str) -> Token {
    Token::of_text(owner)
}

/// However short it waits, a task that is alone makes an attempt: that others were refused before says nothing.
#[test]
fn who_comes_after_all_have_gone_asks() {
    let mut scene = Scene::new();
    let first = scene.wait(None);
    assert_eq!(scene.asked(), [(None, None)]);
    scene.refused(&held(7, 0));
    assert!(matches!(scene.place.state, State::Watching));
    // Behind somebody who waits, one looks with him.
    scene.actions.clear();
    let second = scene.wait(None);
    assert!(matches!(scene.actions[..], [Action::Waits]));
    scene.actions.clear();
    for id in [1, 2] {
        assert_eq!(scene.over(id), Leaving::Left { seen: true });
    }
    assert!(
        matches!(scene.actions[..], [Action::NoLongerWant]),
        "{:?}",
        scene.actions
    );
    scene.actions.clear();
    let third = scene.wait(None);
    assert_eq!(scene.asked(), [(None, None)]);
    drop((first, second, third));
}

/// The lock is promised to another process, and a task has less time than that has: it asks, since the other may be gone.
#[test]
fn a_short_wait_asks_at_least_once() {
    for (wait, asks) in [(GIVE_WAY / 3, true), (GIVE_WAY * 3, false)] {
        let mut scene = Scene::new();
        let mut answers = scene.wait(None);
        scene.asked();
        let turn = scene.granted(None, &mut answers);
        scene.release_to(turn, Duration::from_secs(5), Some(5));
        assert!(matches!(scene.place.state, State::Watching), "it gives way");
        let (mut waiter, _answers) = scene.waiter(None);
        waiter.until = Some(scene.now.after(wait));
        assert!(scene.enter(waiter));
        assert_eq!(!scene.asked().is_empty(), asks, "{wait:?}");
    }
}

#[test]
fn owners_wait_in_one_queue_and_are_asked_for_one_by_one() {
    let mut scene = Scene::new();
    let names: Vec<String> = (0..10).map(|number| format!("owner {number}")).collect();
    let answers: Vec<Answers> = names.iter().map(|name| scene.wait(Some(name))).collect();
    for (name, mut answers) in names.iter().zip(answers) {
        assert_eq!(scene.asked(), [(None, Some(owner(name)))], "in their order");
        let turn = scene.granted(Some(name), &mut answers);
        assert!(scene.asked().is_empty());
        scene.release(turn);
    }
    assert!(scene.place.is_done());
}

#[test]
fn the_owner_that_holds_goes_past_the_queue_and_others_do_not() {
    let mut scene = Scene::new();
    let mut first = scene.wait(Some("a"));
    let outer = scene.granted(Some("a"), &mut first);
    scene.asked();
    let _other = scene.wait(Some("b"));
    let _plain = scene.wait(None);
    assert!(scene.asked().is_empty());
    let mut deeper = scene.wait(Some("a"));
    assert_eq!(scene.asked(), [(Some(4), Some(owner("a")))]);
    let level = lease(terms(Some("a")), 1_000_000);
    scene.place.entered(4, level, scene.now, &mut scene.actions);
    let inner = turn(&mut deeper);
    // Whichever level ends first: the lock is the next one's only after both.
    let lease = Arc::clone(&outer.lease);
    outer.disarm();
    let over = scene
        .place
        .end_turn(&lease, true, scene.now, &mut scene.actions);
    assert_eq!(over, TurnOver::Over);
    assert!(
        matches!(
            scene.actions[..],
            [Action::Release {
                announce: false,
                ..
            }]
        ),
        "{:?}",
        scene.actions
    );
    scene.actions.clear();
    scene.release(inner);
    assert_eq!(scene.asked(), [(None, Some(owner("b")))]);
}

#[test]
fn an_owner_whose_other_process_holds_the_lock_goes_past_the_queue() {
    let mut scene = Scene::new();
    let _first = scene.wait(None);
    scene.asked();
    scene.refused(&held(7, 0));
    let _second = scene.wait(Some("a"));
    assert!(
        scene.asked().is_empty(),
        "it is not known who holds the lock"
    );
    scene.looked(&held(7, OTHER));
    assert!(scene.asked().is_empty(), "somebody else");
    scene.looked(&held(8, owner("a").client()));
    assert_eq!(scene.asked(), [(Some(2), Some(owner("a")))]);
    // It was another owner, whose token begins alike: it is not asked for again.
    scene
        .place
        .not_entered(2, Some(&held(8, 0)), scene.now, &mut scene.actions);
    scene.looked(&held(8, owner("a").client()));
    assert!(scene.asked().is_empty());
}

#[test]
fn a_level_that_nobody_waits_for_any_more_is_given_back() {
    let mut scene = Scene::new();
    let mut first = scene.wait(Some("a"));
    let outer = scene.granted(Some("a"), &mut first);
    drop(scene.wait(Some("a")));
    assert!(scene.place.leave(2, scene.now, &mut scene.actions));
    scene.actions.clear();
    let level = lease(terms(Some("a")), 1_000_000);
    scene.place.entered(2, level, scene.now, &mut scene.actions);
    assert!(matches!(
        scene.actions[..],
        [Action::Release {
            announce: false,
            ..
        }]
    ));
    scene.release(outer);
    assert!(scene.place.is_done());
}

#[test]
fn what_a_lease_is_described_by_does_not_keep_it_from_passing_on() {
    let mut scene = Scene::new();
    let mut first = scene.wait(None);
    let (mut other, mut second) = scene.waiter(None);
    other.terms.description = Arc::from("another task");
    assert!(scene.enter(other));
    let held = scene.granted(None, &mut first);
    scene.actions.clear();
    let lease = Arc::clone(&held.lease);
    held.disarm();
    let over = scene
        .place
        .end_turn(&lease, true, scene.now, &mut scene.actions);
    assert_eq!(over, TurnOver::HandedOn);
    turn(&mut second).disarm();
}

/// Nothing is known of the lock yet: who does not wait takes the answer that is on its way to somebody else.
#[test]
fn an_attempt_beside_the_first_one_has_its_answer() {
    let mut scene = Scene::new();
    let mut first = scene.wait(None);
    let (waits, mut tried) = scene.try_once(None);
    assert!(waits);
    assert_eq!(scene.asked().len(), 1);
    let granted = scene.granted(None, &mut first);
    assert!(tried.try_recv().expect("told").expect("no error").is_none());
    let (waits, _) = scene.try_once(None);
    assert!(!waits, "it is held");
    scene.release(granted);
}

#[test]
fn a_wait_that_is_over_knows_whether_the_lock_was_seen() {
    let mut scene = Scene::new();
    let _first = scene.wait(None);
    let _second = scene.wait(None);
    assert_eq!(scene.over(2), Leaving::Stays(scene.now), "no answer yet");
    scene.refused(&held(7, 0));
    let _third = scene.wait(None);
    assert_eq!(scene.over(1), Leaving::Left { seen: true });
    scene.now = scene.now.after(ANSWER * 2);
    assert_eq!(scene.over(3), Leaving::Left { seen: false });
}

#[test]
fn a_lock_that_became_free_is_asked_for() {
    let mut scene = Scene::new();
    let _first = scene.wait(None);
    scene.asked();
    scene.refused(&held(7, 0));
    let mut free = held(7, OTHER);
    free.status = FREE;
    scene.looked(&free);
    assert_eq!(scene.asked(), [(None, None)]);
}

/// A transaction has locked the row of a lock that the owner holds: nobody else's end would ever let it in.
#[test]
fn an_owner_whose_row_is_locked_asks_again() {
    let mut scene = Scene::new();
    let mut answers = scene.wait(Some("o"));
    scene.asked();
    let _outer = scene.granted(Some("o"), &mut answers);
    let mut answers = scene.wait(Some("o"));
    let id = scene.ids;
    assert_eq!(scene.asked(), [(Some(id), Some(owner("o")))]);
    scene
        .place
        .not_entered(id, None, scene.now, &mut scene.actions);
    assert_eq!(scene.asked(), [(Some(id), Some(owner("o")))]);
    let lease = lease(terms(Some("o")), 1_000_000);
    scene
        .place
        .entered(id, lease, scene.now, &mut scene.actions);
    turn(&mut answers).disarm();
}

/// The lock stays with a deeper level that was granted meanwhile: who does not wait is told so.
#[test]
fn an_attempt_during_a_release_is_refused_when_another_level_is_left() {
    let mut scene = Scene::new();
    let mut first = scene.wait(Some("a"));
    let outer = scene.granted(Some("a"), &mut first);
    let mut deeper = scene.wait(Some("a"));
    let ended = Arc::clone(&outer.lease);
    outer.disarm();
    let over = scene
        .place
        .end_turn(&ended, true, scene.now, &mut scene.actions);
    assert_eq!(over, TurnOver::Over);
    let (waits, mut tried) = scene.try_once(None);
    assert!(waits, "the lock may be free in a moment");
    let level = lease(terms(Some("a")), 1_000_000);
    scene.place.entered(2, level, scene.now, &mut scene.actions);
    scene
        .place
        .released(Duration::ZERO, None, scene.now, &mut scene.actions);
    assert!(tried.try_recv().expect("told").expect("no error").is_none());
    turn(&mut deeper).disarm();
}

/// A place that has gone on since its look was due keeps what it has.
#[test]
fn a_look_that_is_due_does_not_take_a_lease_away() {
    let mut scene = Scene::new();
    let mut first = scene.wait(None);
    let _second = scene.wait(None);
    let held = scene.granted(None, &mut first);
    scene.asked();
    assert!(!scene.place.is_due(GIVE_WAY, scene.now, &mut scene.actions));
    assert!(scene.asked().is_empty());
    assert!(matches!(scene.place.state, State::Held(_)));
    held.disarm();
}

/// A level that came too late to be trusted is given back, and its waiter goes on.
#[test]
fn who_is_granted_too_late_past_the_queue_waits_on() {
    let mut scene = Scene::new();
    let mut first = scene.wait(Some("a"));
    let outer = scene.granted(Some("a"), &mut first);
    let mut deeper = scene.wait(Some("a"));
    let late = lease(terms(Some("a")), 1_000_000);
    late.lose();
    scene.place.entered(2, late, scene.now, &mut scene.actions);
    assert!(deeper.try_recv().is_err(), "no answer yet");
    assert_eq!(
        scene.over(2),
        Leaving::Left { seen: true },
        "it stands in line"
    );
    outer.disarm();
}

/// A grant that is over when it is heard of is no refusal, but to who asked for one answer behind a task of ours that waits on.
#[test]
fn a_late_grant_refuses_only_who_stands_behind_one_that_waits_on() {
    let late = || {
        let late = lease(terms(None), 1_000_000);
        late.lose();
        late
    };
    let mut scene = Scene::new();
    let (_, mut alone) = scene.try_once(None);
    scene.place.granted(late(), scene.now, &mut scene.actions);
    let told = alone.try_recv().expect("told");
    assert!(matches!(told, Err(Error::Unreachable { .. })));
    let mut scene = Scene::new();
    let mut patient = scene.wait(None);
    let (_, mut behind) = scene.try_once(None);
    scene.place.granted(late(), scene.now, &mut scene.actions);
    let told = behind.try_recv().expect("told");
    assert!(told.expect("no error").is_none());
    assert!(patient.try_recv().is_err(), "no answer yet");
}
