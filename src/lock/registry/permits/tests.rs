use std::sync::Weak;

use tokio::sync::oneshot;

use super::*;
use crate::clock::micros;
use crate::lock::registry::turn::Turn;
use crate::name::Name;
use crate::sql::reply::{ACTIVE, FREE};
use crate::sql::row::RowKey;
use crate::sql::wish::GivesWay;
use crate::token::Token;

type Answers = oneshot::Receiver<Result<Option<Turn>, Error>>;

const TTL: Duration = Duration::from_secs(30);

fn terms() -> Terms {
    Terms {
        ttl: TTL,
        auto_renew: true,
        passes: true,
        hold_at_least: Duration::ZERO,
        max_hold: None,
        linger: Duration::ZERO,
        description: Arc::from(""),
        owner: None,
    }
}

fn lease(fence: u64) -> Arc<Lease> {
    let name = Name::new("s#0").expect("a name");
    let found = (Moment::now(), micros(TTL), 0);
    let grant = (Token::random(), fence);
    let lease = Lease::new(
        Weak::new(),
        RowKey::permit(name),
        grant,
        terms(),
        found,
        false,
    );
    Arc::new(lease)
}

fn row(status: u8, remaining: Duration, free_for: Duration, wanted: Duration) -> RowState {
    RowState {
        at: 0,
        granted: false,
        status,
        mine: false,
        fence: 7,
        remaining: micros(remaining) - micros(free_for),
        previous: 0,
        count: 1,
        wanted: micros(wanted),
        client: 2,
    }
}

fn held() -> Option<RowState> {
    Some(row(ACTIVE, TTL, Duration::ZERO, Duration::ZERO))
}

/// It was released this moment.
fn free(wanted: Duration) -> Option<RowState> {
    Some(row(FREE, Duration::ZERO, Duration::from_millis(1), wanted))
}

/// A semaphore as one client sees it, and what it wants done.
struct Client {
    permits: Permits,
    now: Moment,
    actions: Vec<Action>,
    id: u64,
}

impl Client {
    fn new(slots: usize) -> Self {
        let now = Moment::now();
        Self {
            permits: Permits::new(slots, 5, now),
            now,
            actions: Vec::new(),
            id: 0,
        }
    }

    fn enters(&mut self, once: bool) -> Answers {
        self.enters_on(terms(), once)
    }

    fn enters_on(&mut self, terms: Terms, once: bool) -> Answers {
        let (reply, receiver) = oneshot::channel();
        self.id += 1;
        let waiter = Waiter {
            id: self.id,
            terms,
            once,
            asks: false,
            until: None,
            reply,
        };
        self.permits.enter(waiter, self.now, &mut self.actions);
        receiver
    }

    /// The slots that it asks for now, and whether it lets all others go first.
    fn asks(&mut self) -> Vec<(usize, bool)> {
        let actions = std::mem::take(&mut self.actions).into_iter();
        actions
            .filter_map(|action| match action {
                Action::Ask(question) => {
                    Some((question.slot, question.gives_way == GivesWay::TO_ALL))
                }
                _ => None,
            })
            .collect()
    }

    fn grant(&mut self, slot: usize) -> Arc<Lease> {
        let lease = lease(1_000_000);
        let granted = Arc::clone(&lease);
        let actions = &mut self.actions;
        self.permits.granted(slot, granted, self.now, actions);
        lease
    }

    fn refuse(&mut self, slot: usize) {
        self.permits.refused(slot, self.now, &mut self.actions);
    }

    fn looks(&mut self, row: impl Fn(usize) -> Option<RowState>) {
        assert!(self.permits.next_look().is_some(), "{:?}", self.permits);
        let look = self.permits.begin_look();
        let rows: Vec<_> = look.slots.iter().map(|slot| row(*slot)).collect();
        let actions = &mut self.actions;
        self.permits.looked(&look, &rows, self.now, actions);
    }

    fn wishes(&mut self) -> Vec<(usize, Duration)> {
        let actions = std::mem::take(&mut self.actions).into_iter();
        actions
            .filter_map(|action| match action {
                Action::Want(slot, wait) => Some((slot, wait)),
                _ => None,
            })
            .collect()
    }
}

fn has_turn(answers: &mut Answers) -> bool {
    match answers.try_recv() {
        Ok(Ok(Some(turn))) => {
            turn.disarm();
            true
        }
        _ => false,
    }
}

fn is_refused(answers: &mut Answers) -> bool {
    matches!(answers.try_recv(), Ok(Ok(None)))
}

#[test]
fn each_waiter_has_a_question_as_long_as_slots_may_be_free() {
    let mut client = Client::new(2);
    let mut waiters: Vec<_> = (0..3).map(|_| client.enters(false)).collect();
    let mut asked = client.asks();
    asked.sort_unstable();
    assert_eq!(asked, [(0, true), (1, true)]);
    let one = client.grant(1);
    let _other = client.grant(0);
    assert!(has_turn(&mut waiters[0]) && has_turn(&mut waiters[1]));
    assert!(client.asks().is_empty());
    assert!(client.permits.next_look().is_none(), "all are ours");
    // It passes on without a statement.
    let actions = &mut client.actions;
    let over = client.permits.end_turn(1, &one, client.now, actions);
    assert_eq!(over, TurnOver::HandedOn);
    assert!(has_turn(&mut waiters[2]));
    let actions = &mut client.actions;
    let over = client.permits.end_turn(1, &one, client.now, actions);
    assert_eq!(over, TurnOver::Over);
    assert!(matches!(&client.actions[..], [Action::Release(_)]));
    client
        .permits
        .released(1, false, client.now, &mut client.actions);
    let _next = client.enters(false);
    assert_eq!(client.asks(), [(1, true)], "what we released is known");
}

#[test]
fn who_does_not_wait_is_told_when_it_is_certain() {
    let mut client = Client::new(3);
    let mut once = client.enters(true);
    let asked = client.asks();
    assert_eq!(asked.len(), 1, "by guess");
    client.refuse(asked[0].0);
    assert!(!is_refused(&mut once), "others may be free");
    client.looks(|slot| {
        if slot == 2 {
            free(Duration::ZERO)
        } else {
            held()
        }
    });
    assert_eq!(client.asks(), [(2, true)]);
    client.refuse(2);
    assert!(is_refused(&mut once), "it was sooner gone");
    // The next one is not told by an old look.
    let mut once = client.enters(true);
    assert!(client.asks().is_empty());
    client.looks(|_| held());
    assert!(client.wishes().is_empty(), "nobody waits");
    assert!(is_refused(&mut once));
    assert!(client.permits.is_done());
}

#[test]
fn a_look_that_began_before_a_waiter_came_does_not_tell_it() {
    let mut client = Client::new(1);
    let mut first = client.enters(true);
    client.refuse(0);
    let look = client.permits.begin_look();
    let mut second = client.enters(true);
    let actions = &mut client.actions;
    client.permits.looked(&look, &[held()], client.now, actions);
    assert!(is_refused(&mut first));
    assert!(!is_refused(&mut second));
    client.looks(|_| held());
    assert!(is_refused(&mut second));
}

#[test]
fn a_waiter_wishes_what_is_taken_and_takes_back_what_it_wished() {
    let mut client = Client::new(4);
    let mut waiter = client.enters(false);
    let slot = client_slot(&client.permits);
    client.refuse(slot);
    client.actions.clear();
    let others = Some(row(ACTIVE, TTL, Duration::ZERO, WANT));
    client.looks(|slot| if slot == 3 { others } else { held() });
    assert_eq!(client.wishes(), [(0, WANT), (1, WANT), (2, WANT)]);
    client.now = client.now.after(Duration::from_millis(5));
    client.looks(|_| held());
    assert_eq!(
        client.wishes(),
        [(3, WANT)],
        "the others were told a moment ago"
    );
    // Whoever waited need not let those go first who did.
    client.looks(|slot| if slot == 1 { free(WANT) } else { held() });
    assert_eq!(client.asks(), [(1, false)]);
    client.grant(1);
    assert!(has_turn(&mut waiter));
    let none = Duration::ZERO;
    assert_eq!(client.wishes(), [(0, none), (2, none), (3, none)]);
}

fn client_slot(permits: &Permits) -> usize {
    let asking = |slot: &Slot| matches!(slot, Slot::Asking);
    permits.slots.iter().position(asking).expect("it asks")
}

#[test]
fn what_is_left_to_others_is_left_for_a_moment() {
    let mut client = Client::new(1);
    let mut first = client.enters(false);
    let lease = client.grant(0);
    assert!(has_turn(&mut first));
    let mut second = client.enters(false);
    lease.set_wanted(true);
    client.now = client.now.after(2 * SLICE);
    client.actions.clear();
    let actions = &mut client.actions;
    let over = client.permits.end_turn(0, &lease, client.now, actions);
    assert_eq!(
        over,
        TurnOver::Over,
        "for others, not for the one who waits here"
    );
    client
        .permits
        .released(0, true, client.now, &mut client.actions);
    assert!(client.asks().is_empty());
    client.looks(|_| free(WANT));
    assert!(client.asks().is_empty(), "they have it next");
    let late = Some(row(FREE, Duration::ZERO, SLICE * 2, WANT));
    client.looks(|_| late);
    assert_eq!(client.asks(), [(0, true)], "they did not come");
    client.grant(0);
    assert!(has_turn(&mut second));
}

#[test]
fn a_grant_that_nobody_takes_is_given_back() {
    let mut client = Client::new(1);
    let waiter = client.enters(false);
    assert!(client.permits.leave(1, client.now, &mut client.actions));
    assert!(!client.permits.leave(1, client.now, &mut client.actions));
    drop(waiter);
    client.actions.clear();
    let lease = client.grant(0);
    assert!(lease.has_ended());
    assert!(matches!(&client.actions[..], [Action::Release(_)]));
    assert!(!client.permits.is_done());
    client
        .permits
        .released(0, false, client.now, &mut client.actions);
    assert!(client.permits.is_done());
}

/// It would never have a permit as long as the others pass theirs on.
#[test]
fn who_asks_on_other_terms_is_not_passed_over() {
    let mut client = Client::new(1);
    let mut first = client.enters(false);
    let slot = client.asks()[0].0;
    let lease = client.grant(slot);
    assert!(has_turn(&mut first));
    let max_hold = Some(TTL);
    let (_others, _ours) = (
        client.enters_on(
            Terms {
                max_hold,
                ..terms()
            },
            false,
        ),
        client.enters(false),
    );
    client.actions.clear();
    let (now, actions) = (client.now, &mut client.actions);
    let over = client.permits.end_turn(slot, &lease, now, actions);
    assert!(matches!(over, TurnOver::Over), "{over:?}");
    client
        .permits
        .released(slot, false, now, &mut client.actions);
    let asked = client.actions.iter().find_map(|action| match action {
        Action::Ask(question) => Some(question.terms.max_hold),
        _ => None,
    });
    assert_eq!(asked, Some(max_hold));
}

/// One of them may have what is released; the others need not wait for that.
#[test]
fn who_does_not_wait_is_not_kept_by_releases() {
    let mut client = Client::new(1);
    let mut first = client.enters(false);
    let slot = client.asks()[0].0;
    let lease = client.grant(slot);
    assert!(has_turn(&mut first));
    let (now, actions) = (client.now, &mut client.actions);
    let over = client.permits.end_turn(slot, &lease, now, actions);
    assert!(matches!(over, TurnOver::Over), "{over:?}");
    let (mut next, mut last) = (client.enters(true), client.enters(true));
    assert!(is_refused(&mut last) && !is_refused(&mut next));
}

/// Nobody is to let us go first where there is one for us.
#[test]
fn nothing_is_wished_where_enough_is_free() {
    let mut client = Client::new(3);
    let _first = client.enters(false);
    let slot = client.asks()[0].0;
    client.refuse(slot);
    let is_free = |at: usize| at == (slot + 1) % 3;
    client.looks(|at| {
        if is_free(at) {
            free(Duration::ZERO)
        } else {
            held()
        }
    });
    assert_eq!(client.wishes(), []);
}

#[test]
fn a_lost_slot_is_asked_for_again_and_its_late_end_frees_nothing() {
    let mut client = Client::new(1);
    let mut first = client.enters(false);
    let old = client.grant(0);
    assert!(has_turn(&mut first));
    let mut second = client.enters(false);
    client.actions.clear();
    assert!(old.lose());
    client
        .permits
        .lost(0, &old, client.now, &mut client.actions);
    assert_eq!(client.asks(), [(0, true)]);
    let new = client.grant(0);
    assert!(has_turn(&mut second));
    let actions = &mut client.actions;
    let over = client.permits.end_turn(0, &old, client.now, actions);
    assert_eq!(over, TurnOver::Over);
    assert!(new.is_held() && client.permits.is_current(0, &new));
}

#[test]
fn a_time_that_is_over_ends_a_wait() {
    let mut client = Client::new(1);
    let mut waiter = client.enters(false);
    let actions = &mut client.actions;
    let over = client.permits.time_is_over(1, client.now, actions);
    assert!(
        matches!(over, Leaving::Stays(_)),
        "its question is on its way"
    );
    client.refuse(0);
    client.looks(|_| held());
    assert!(is_refused(&mut waiter));
    let _waiter = client.enters(false);
    client.looks(|_| held());
    let actions = &mut client.actions;
    let over = client.permits.time_is_over(2, client.now, actions);
    assert_eq!(over, Leaving::Left { seen: true });
    let actions = &mut client.actions;
    let over = client.permits.time_is_over(2, client.now, actions);
    assert_eq!(over, Leaving::Answered);
}

#[test]
fn a_failure_is_told_to_those_who_had_come() {
    let mut client = Client::new(2);
    let mut early = client.enters(false);
    let question = Question {
        slot: client_slot(&client.permits),
        terms: terms(),
        gives_way: GivesWay::TO_ALL,
        last: 1,
    };
    let mut late = client.enters(false);
    client.actions.clear();
    let actions = &mut client.actions;
    let error = Error::Closed;
    client
        .permits
        .failed(&question, &error, client.now, actions);
    assert!(matches!(early.try_recv(), Ok(Err(Error::Closed))));
    assert!(late.try_recv().is_err());
    client.permits.close();
    assert!(matches!(late.try_recv(), Ok(Err(Error::Closed))));
}

#[test]
fn looks_are_rarer_the_longer_nothing_changes_and_the_more_slots_there_are() {
    let mut client = Client::new(1);
    let _waiter = client.enters(false);
    client.refuse(0);
    client.looks(|_| held());
    let pause = |client: &Client, later| client.permits.pause(client.now.after(later));
    assert!(pause(&client, Duration::ZERO) < Duration::from_millis(3));
    assert_eq!(pause(&client, Duration::from_secs(60)), LOOK);
    let many = Client::new(1_024);
    let shortest = pause(&many, Duration::ZERO);
    assert!(shortest > Duration::from_millis(30) && shortest < LOOK);
}
