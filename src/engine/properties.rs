//! What holds of every row that a server may answer with, and of every order in which requests come.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::group::Group;
use super::manner::PacketWait;
use super::outcome::{Judgment, Outcome};
use super::queue::LaneQueue;
use super::request::{Member, Request};
use super::server_clock::ServerClock;
use super::stage::LaneKind;
use super::waiting::{Limits, Waiting};
use crate::clock::Moment;
use crate::name::Name;
use crate::sql::operation::{
    Acquire, Count, CounterChange, Delete, ForceRelease, Init, Once, Operation, Release, Renew,
    Touch, Want,
};
use crate::sql::reply::{Reply, RowState};
use crate::sql::row::RowKey;
use crate::sql::wish::GivesWay;
use crate::stripe::StripeSet;
use crate::token::Token;

fn counter(name: &str) -> RowKey {
    RowKey::counter(Name::new(name).expect("a name"))
}

fn operation() -> impl Strategy<Value = Operation> {
    let token = Token::random;
    prop_oneof![
        (any::<bool>(), any::<i64>()).prop_map(move |(reentrant, mark)| Operation::Acquire(
            Acquire {
                token: token(),
                ttl: 1,
                block: 1,
                level: reentrant.then_some(mark),
                gives_way: GivesWay::TO_ALL,
                idles: false,
                queues: false,
                description: Arc::from(""),
                held_by: Arc::from(""),
            }
        )),
        (any::<u64>(), any::<u64>()).prop_map(move |(fence, used)| {
            Operation::Release(Release {
                token: token(),
                fence,
                used,
                hold: 0,
                level: None,
                until: 0,
                queues: true,
                finishes: used % 2 == 0,
            })
        }),
        any::<u64>().prop_map(move |fence| Operation::Renew(Renew {
            token: token(),
            fence,
            ttl: 1,
            until: None,
        })),
        any::<u64>().prop_map(move |fence| Operation::ForceRelease(ForceRelease {
            token: token(),
            fence
        })),
        (any::<i64>(), any::<i64>(), any::<i64>()).prop_map(move |(low, high, step)| {
            Operation::Count(Count {
                token: token(),
                low,
                high,
                change: CounterChange::Add {
                    step,
                    times: 1,
                    edge: 0,
                },
                window: 0,
                restart: false,
            })
        }),
        any::<i64>().prop_map(move |delta| Operation::Once(Once {
            token: token(),
            counter: counter("c"),
            delta,
            from: i64::MIN,
            to: i64::MAX,
            window: 0,
            retention: 1,
        })),
        Just(Operation::Want(Want { wait: 1 })),
        Just(Operation::Touch(Touch)),
        any::<i64>().prop_map(move |value| Operation::Init(Init {
            token: token(),
            value,
            window: 0,
        })),
        Just(Operation::Delete(Delete { token: token() })),
    ]
}

fn state() -> impl Strategy<Value = RowState> {
    let numbers = (
        any::<u64>(),
        any::<i64>(),
        any::<i64>(),
        any::<i64>(),
        any::<i64>(),
    );
    (
        (any::<i64>(), any::<bool>(), prop::bool::weighted(0.25)),
        0_u8..5,
        any::<bool>(),
        numbers,
    )
        .prop_map(|((at, granted, unset), status, mine, numbers)| {
            let (fence, remaining, previous, count, wanted) = numbers;
            RowState {
                at,
                granted,
                status,
                mine,
                fence,
                // Of a counter that was never set, the deadline is what a row is created with.
                remaining: if unset {
                    at.saturating_neg()
                } else {
                    remaining
                },
                previous,
                count,
                wanted,
                client: 0,
            }
        })
}

/// One of few rows, some of which are an id with its counter.
fn request() -> impl Strategy<Value = (RowKey, Request)> {
    (0..4_u32, 0..4_u32, any::<bool>()).prop_map(|(row, other, urgent)| {
        let name = |number: u32| Name::new(&format!("n{number}")).expect("a name");
        match (row, urgent) {
            (0, _) => {
                let counter = RowKey::counter(name(other));
                let once = Once {
                    token: Token::random(),
                    counter,
                    delta: 1,
                    from: i64::MIN,
                    to: i64::MAX,
                    window: 0,
                    retention: 1,
                };
                (
                    RowKey::once(name(other)),
                    Request::Operation(Operation::Once(once)),
                )
            }
            (row, true) => {
                let renew = Renew {
                    token: Token::random(),
                    fence: 1,
                    ttl: 1,
                    until: None,
                };
                (
                    RowKey::lock(name(row)),
                    Request::Operation(Operation::Renew(renew)),
                )
            }
            (row, false) => (
                RowKey::counter(name(row)),
                Request::Add {
                    delta: 1,
                    window: 0,
                },
            ),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Nothing that stands in a row of somebody else's says that the operation was carried out, unless its batch did.
    #[test]
    fn only_an_own_row_says_yes(operation in operation(), row in prop::option::of(state())) {
        let verdict = operation.judge(row.as_ref());
        let mine = row.is_some_and(|row| row.mine);
        let granted = row.is_some_and(|row| row.granted);
        if let Judgment::Final(
            Outcome::Granted { .. } | Outcome::Released { .. } | Outcome::Leased { .. } | Outcome::Counted { .. },
        ) = &verdict {
            prop_assert!(mine || granted, "{operation:?}: {verdict:?}");
        }
        if let (Judgment::Final(Outcome::Leased { .. }), Some(row)) = (&verdict, row) {
            prop_assert!(row.remaining > 0 || granted);
        }
        // What runs again may do so: it changed nothing, or creates its row.
        if verdict == Judgment::Missing {
            prop_assert!(row.is_none() && operation.creates());
        }
    }

    /// Numbers of any size are decoded as they are, and a counter's members are told without a panic.
    #[test]
    fn any_row_is_decoded_as_it_is(row in state(), now: i64, deltas in prop::collection::vec(any::<i64>(), 1..5)) {
        let text = format!(
            "{};{now};0 {} {} {} {} {} {} {}",
            if row.granted { "0" } else { "" }, row.status, u8::from(row.mine), row.fence, row.remaining, row.previous, row.count, row.wanted
        );
        let reply = Reply::decode(&text, 1).expect("a reply");
        let row = RowState { at: now, ..row };
        prop_assert_eq!((reply.server_now, reply.rows), (now, vec![Some(row)]));
        for low in [None, Some(i64::MIN)] {
            let mut waiting = deltas.iter().map(|delta| member(match low {
                None => Request::Add { delta: *delta, window: 0 },
                Some(low) => Request::AddWithin { delta: *delta, low, high: i64::MAX, window: 0 },
            })).collect();
            while let Some(group) = Group::take(counter("c"), &mut waiting) {
                let outcome = Outcome::Counted { previous: row.previous, value: row.count };
                group.finish(&outcome, Moment::now(), false);
            }
        }
    }

    #[test]
    fn any_clock_of_the_servers_is_taken(readings in prop::collection::vec((any::<i64>(), 0..5_000_u64), 0..8)) {
        let clock = ServerClock::default();
        let sent = Moment::now();
        for (server_now, milliseconds) in readings {
            let received = sent.after(Duration::from_millis(milliseconds));
            let _ = clock.observe(server_now, sent, received);
            let _ = clock.ahead(Duration::from_secs(1));
        }
    }

    /// Every request leaves the queue once, no batch has two operations on one row, and none is larger
    /// than it may be.
    #[test]
    fn a_batch_has_one_operation_for_each_row(
        requests in prop::collection::vec(request(), 0..40),
        rows in 1_usize..5,
        put_back in prop::collection::vec(any::<bool>(), 40),
    ) {
        let mut waiting = Waiting::new(LaneKind::NeverWaits);
        let mut expected: HashMap<RowKey, usize> = HashMap::new();
        for (key, request) in &requests {
            waiting.push(key.clone(), member(request.clone()));
            *expected.entry(key.clone()).or_default() += 1;
        }
        let limits = Limits { rows, bytes: 1 << 20, wait: PacketWait::Nothing };
        let mut again = put_back.into_iter();
        loop {
            let batch = waiting.take(limits);
            if batch.is_empty() {
                break;
            }
            prop_assert!(batch.len() <= rows);
            let mut changed = HashSet::new();
            for group in batch {
                prop_assert!(changed.insert(group.key.clone()), "{:?} twice", group.key);
                if let Some(second) = group.operation.second() {
                    prop_assert!(changed.insert(second.clone()), "{second:?} twice");
                }
                if again.next() == Some(true) {
                    waiting.put_back(group);
                    continue;
                }
                let left = expected.get_mut(&group.key).expect("it was asked for");
                *left -= group.members.len();
            }
        }
        prop_assert!(expected.values().all(|left| *left == 0), "{expected:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Where two lanes serve one queue, they are never at one row, and every request is carried out once.
    #[test]
    fn two_lanes_are_never_at_one_row(
        requests in prop::collection::vec(request(), 0..40),
        steps in prop::collection::vec((0_usize..2, 0_u32..3, 1_usize..5), 0..80),
    ) {
        let queue = LaneQueue::new(LaneKind::WaitsForRow, Arc::default());
        queue.enter();
        queue.enter();
        for (key, request) in &requests {
            queue.push(key.clone(), member(request.clone()));
        }
        let mut at: [Vec<Group>; 2] = Default::default();
        let mut done = 0;
        let mut step = |lane: usize, outcome: u32, rows: usize| {
            if at[lane].is_empty() {
                at[lane] = queue.take(Limits { rows, bytes: 1 << 20, wait: PacketWait::Nothing }).unwrap_or_default();
            } else {
                let groups = std::mem::take(&mut at[lane]);
                let keys: Vec<RowKey> = groups.iter().flat_map(Group::keys).cloned().collect();
                if outcome == 0 {
                    queue.join(groups, true);
                } else {
                    done += groups.iter().map(|group| group.members.len()).sum::<usize>();
                }
                queue.leave_rows(&keys);
            }
            let mut keys = HashSet::new();
            let all = at.iter().flatten().flat_map(Group::keys).all(|key| keys.insert(key.clone()));
            (all, done, at.iter().all(Vec::is_empty))
        };
        for (lane, outcome, rows) in steps {
            prop_assert!(step(lane, outcome, rows).0, "two lanes at one row");
        }
        let mut last = (true, 0, false);
        for round in 0..400 {
            last = step(round % 2, 1, 1);
            prop_assert!(last.0, "two lanes at one row");
        }
        prop_assert_eq!(last, (true, requests.len(), true));
    }

    /// Where two lanes wait for stripes, they are never at one stripe; what comes while a packet waits for all of its own waits for that
    /// packet; and every request is carried out once.
    #[test]
    fn two_lanes_are_never_at_one_stripe(
        requests in prop::collection::vec(request(), 0..40),
        steps in prop::collection::vec((0_usize..2, any::<bool>(), 0_usize..3, 1_usize..5), 0..80),
    ) {
        let mut waiting = Waiting::new(LaneKind::WaitsForStripe);
        for (key, request) in &requests {
            waiting.push(key.clone(), member(request.clone()));
        }
        let mut at: [(Vec<Group>, PacketWait); 2] = Default::default();
        let mut done = 0;
        let mut step = |lane: usize, again: bool, wait: PacketWait, rows: usize| -> Result<bool, TestCaseError> {
            let groups = std::mem::take(&mut at[lane].0);
            if groups.is_empty() {
                let (other, its) = &at[1 - lane];
                let all = !other.is_empty() && *its == PacketWait::All;
                let batch = waiting.take(Limits { rows, bytes: 1 << 20, wait });
                let urgent = batch.iter().all(|group| group.members[0].request.is_urgent());
                prop_assert!(urgent || !all, "beside one that waits for all");
                let stripes = |groups: &[Group]| groups.iter().map(Group::stripes).reduce(StripeSet::with).unwrap_or_default();
                prop_assert!(!stripes(&batch).meets(stripes(other)), "two lanes at one stripe");
                // Renewals beside that one do not keep the others from going on.
                at[lane] = (batch, if all { PacketWait::Nothing } else { wait });
            } else {
                let keys: Vec<RowKey> = groups.iter().flat_map(Group::keys).cloned().collect();
                for group in groups {
                    if again {
                        waiting.join(group, true);
                    } else {
                        done += group.members.len();
                    }
                }
                waiting.leave_rows(&keys);
            }
            Ok(done == requests.len())
        };
        for (lane, again, wait, rows) in steps {
            step(lane, again, [PacketWait::All, PacketWait::First, PacketWait::Nothing][wait], rows)?;
        }
        let mut over = requests.is_empty();
        for round in 0..400 {
            over = step(round % 2, false, PacketWait::First, 1)?;
        }
        prop_assert!(over, "something was not carried out");
    }
}

/// Beside a packet that waits for all of its stripes another lane takes renewals, if those are of other stripes, and nothing else.
#[test]
fn renewals_do_not_wait_for_the_stripes_of_others() {
    let mut waiting = Waiting::new(LaneKind::WaitsForStripe);
    let key = |name: &str| RowKey::lock(Name::new(name).expect("a name"));
    let renewal = || {
        Request::Operation(Operation::Renew(Renew {
            token: Token::random(),
            fence: 1,
            ttl: 1,
            until: None,
        }))
    };
    let touch = || Request::Operation(Operation::Touch(Touch));
    let limits = Limits {
        rows: 16,
        bytes: 1 << 20,
        wait: PacketWait::All,
    };
    let (first, other, third) = (key("a"), key("b"), key("c"));
    assert!(first.stripe() != other.stripe() && first.stripe() != third.stripe());
    waiting.push(first.clone(), member(touch()));
    assert_eq!(waiting.take(limits).len(), 1);
    waiting.push(third.clone(), member(touch()));
    waiting.push(other.clone(), member(renewal()));
    waiting.push(first.clone(), member(renewal()));
    let batch = waiting.take(limits);
    let keys: Vec<&RowKey> = batch.iter().map(|group| &group.key).collect();
    assert_eq!(keys, [&other]);
    // The first one may go on, though that renewal is still under way.
    waiting.leave_rows(std::slice::from_ref(&first));
    let mut keys: Vec<RowKey> = waiting
        .take(limits)
        .into_iter()
        .map(|group| group.key)
        .collect();
    keys.sort_by(|one, two| one.name.as_str().cmp(two.name.as_str()));
    assert_eq!(keys, [first, third]);
}

/// Renewals of a row whose other requests never come to an end leave nothing behind.
#[test]
fn urgent_requests_do_not_heap_up_beside_others_that_stay() {
    let key = RowKey::lock(Name::new("busy").expect("a name"));
    let once = |urgent: bool| {
        Request::Operation(if urgent {
            Operation::Renew(Renew {
                token: Token::random(),
                fence: 1,
                ttl: 1,
                until: None,
            })
        } else {
            Operation::Touch(Touch)
        })
    };
    let mut waiting = Waiting::new(LaneKind::NeverWaits);
    for _ in 0..5 {
        waiting.push(key.clone(), member(once(false)));
    }
    let limits = Limits {
        rows: 16,
        bytes: 1 << 20,
        wait: PacketWait::Nothing,
    };
    for _ in 0..100 {
        waiting.push(key.clone(), member(once(true)));
        waiting.push(key.clone(), member(once(false)));
        for _ in 0..2 {
            assert_eq!(waiting.take(limits).len(), 1);
        }
    }
    assert!(
        waiting.rows() <= 2,
        "{} entries for one row",
        waiting.rows()
    );
}

fn member(request: Request) -> Member {
    Member::new(request, Moment::now().after(Duration::from_secs(60)), None)
}
