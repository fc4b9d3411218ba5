//! How requests for one row become one operation.
//!
//! Additions to one counter merge: plain ones into their sum, bounded ones if delta and range are
//! equal. Each caller's own value follows from the row's value before and after, in the order in
//! which the requests came.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::outcome::{Answer, Outcome};
use super::request::{Course, Member, Request};
use super::stage::Stage;
use crate::clock::Moment;
use crate::error::Error;
use crate::range::start_range;
use crate::sql::operation::{Count, CounterChange, Operation};
use crate::sql::packet::{self, RowOperation, StripeUse};
use crate::sql::row::{Kind, RowKey};
use crate::stripe::StripeSet;
use crate::token::Token;

/// The most requests that one operation carries.
const MAX_MERGED: usize = 65_536;

/// The requests that make up one operation on one row.
pub(crate) struct Group {
    pub(crate) key: RowKey,
    pub(crate) members: Vec<Member>,
    pub(crate) operation: Operation,
    pub(crate) course: Course,
}

impl Group {
    /// Takes the first of `waiting`, and with it all that merge with it.
    pub(crate) fn take(key: RowKey, waiting: &mut VecDeque<Member>) -> Option<Self> {
        let first = waiting.pop_front()?;
        let mut sums = Sums::default();
        let merges = !first.alone && !matches!(first.request, Request::Operation(_));
        if let Request::Add { delta, .. } = first.request {
            sums.add(delta);
        }
        let mut members = vec![first];
        if merges && !waiting.is_empty() {
            let mut rest = VecDeque::new();
            for member in waiting.drain(..) {
                let fits = !member.alone
                    && members.len() < MAX_MERGED
                    && members[0].request.merges_with(&member.request)
                    && match member.request {
                        Request::Add { delta, .. } => sums.add(delta),
                        _ => true,
                    };
                if fits {
                    members.push(member);
                } else {
                    rest.push_back(member);
                }
            }
            *waiting = rest;
        }
        let operation = operation(&members, &sums);
        Some(Self {
            key,
            course: members
                .iter()
                .map(|member| member.course)
                .reduce(Course::with)
                .unwrap_or_default(),
            members,
            operation,
        })
    }

    /// The rows that it changes.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &RowKey> {
        std::iter::once(&self.key).chain(self.operation.second())
    }

    /// The order in which all packets have their rows: by the counter that several share, by kind, by name, by slot.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        fn rank(group: &Group) -> (Option<&str>, (Kind, &str, u32)) {
            let counter = group.operation.second().map(|key| key.name.as_str());
            (counter, group.key.order())
        }
        rank(self).cmp(&rank(other))
    }

    /// The stripes of its rows.
    pub(crate) fn stripes(&self) -> StripeSet {
        self.keys().map(RowKey::stripe).collect()
    }

    /// Whether a packet that waits for these stripes waits for all of its own.
    pub(crate) fn is_within(&self, stripes: Option<StripeSet>) -> bool {
        stripes.is_some_and(|stripes| self.stripes().without(stripes).is_empty())
    }

    /// An upper bound of the bytes that it adds to a packet.
    pub(crate) fn weight(&self) -> usize {
        packet::weight(&self.key, &self.operation)
    }

    /// What it is in a packet: `waits` if that waits for its stripes.
    pub(crate) fn row(&self, waits: bool) -> RowOperation {
        RowOperation {
            key: self.key.clone(),
            operation: self.operation.clone(),
            create: self.course.stage.creates(),
            stripes: match self.course.stage {
                Stage::Stripe { .. } if waits => StripeUse::Wait,
                Stage::Create | Stage::Stripe { .. } => StripeUse::Try,
                Stage::Try | Stage::Row => StripeUse::None,
            },
            group: 0,
        }
    }

    /// It goes to another stage, or runs again at its own.
    pub(crate) fn go(&mut self, stage: Stage) {
        if stage != self.course.stage {
            self.course.tries = 0;
            self.course.guessed = false;
        }
        self.course.stage = stage;
        self.course.locked |= stage == Stage::Row;
    }

    /// Takes out the members that nobody wants any more: their time is over, or they were answered.
    pub(crate) fn take_expired(&mut self, now: Moment) -> Vec<Member> {
        let stays = |member: &Member| member.expires > now && member.reply.is_some();
        if self.members.iter().all(stays) {
            return Vec::new();
        }
        let (fresh, expired): (Vec<Member>, Vec<Member>) = self.members.drain(..).partition(stays);
        self.members = fresh;
        if self.members.is_empty() {
            return expired;
        }
        let mut sums = Sums::default();
        let fits = self.members.iter().all(|member| match member.request {
            Request::Add { delta, .. } => sums.add(delta),
            _ => true,
        });
        if !fits {
            // Without those that left, the sums reach too far. No value admits them then, and each runs alone.
            sums = Sums::impossible();
        }
        self.operation = operation(&self.members, &sums);
        expired
    }

    /// Tells every member its own outcome. Gives back those that must run again, each alone,
    /// because together they left the 64 bits.
    pub(crate) fn finish(mut self, outcome: &Outcome, sent: Moment, settled: bool) -> Vec<Member> {
        let answer = |outcome| {
            Ok(Answer {
                outcome,
                sent,
                settled,
            })
        };
        match (&self.members[0].request, outcome) {
            (Request::Add { .. }, Outcome::Counted { previous, .. }) => {
                let mut value = i128::from(*previous);
                for member in &mut self.members {
                    if let Request::Add { delta, .. } = member.request {
                        let before = value;
                        value += i128::from(delta);
                        member.finish(answer(Outcome::Counted {
                            previous: clamp(before),
                            value: clamp(value),
                        }));
                    }
                }
            }
            (Request::Add { .. }, Outcome::OutOfBounds { .. }) if self.members.len() > 1 => {
                for member in &mut self.members {
                    member.alone = true;
                }
                return self.members;
            }
            (Request::AddWithin { delta, .. }, Outcome::Counted { previous, value }) => {
                let delta = *delta;
                let (mut before, end) = (i128::from(*previous), i128::from(*value));
                for member in &mut self.members {
                    let applied = delta == 0 || before != end;
                    let result = if applied {
                        let after = before + i128::from(delta);
                        let counted = Outcome::Counted {
                            previous: clamp(before),
                            value: clamp(after),
                        };
                        before = after;
                        counted
                    } else {
                        Outcome::OutOfBounds { value: *value }
                    };
                    member.finish(answer(result));
                }
            }
            _ => {
                for member in &mut self.members {
                    member.finish(answer(outcome.clone()));
                }
            }
        }
        Vec::new()
    }

    pub(crate) fn fail(mut self, error: &Error) {
        for member in &mut self.members {
            member.finish(Err(error.clone()));
        }
    }
}

/// The running sums of additions: where the value is between the first and the last.
#[derive(Default)]
struct Sums {
    total: i128,
    lowest: i128,
    highest: i128,
}

impl Sums {
    /// Sums that no value admits.
    fn impossible() -> Self {
        Self {
            total: 0,
            lowest: -(1 << 65),
            highest: 1 << 65,
        }
    }

    /// Adds `delta`, unless the sums would then reach further than a counter can.
    fn add(&mut self, delta: i64) -> bool {
        let total = self.total + i128::from(delta);
        let (lowest, highest) = (self.lowest.min(total), self.highest.max(total));
        if highest - lowest > i128::from(i64::MAX) {
            // One addition always fits by itself.
            if self.total == 0 && self.lowest == 0 && self.highest == 0 {
                (self.total, self.lowest, self.highest) = (total, lowest, highest);
                return true;
            }
            return false;
        }
        (self.total, self.lowest, self.highest) = (total, lowest, highest);
        true
    }
}

/// The one operation that does what all members ask for.
fn operation(members: &[Member], sums: &Sums) -> Operation {
    let count = |low: i128, high: i128, change, window| {
        Operation::Count(Count {
            token: Token::random(),
            low: clamp(low),
            high: clamp(high),
            change,
            window,
            restart: false,
        })
    };
    match &members[0].request {
        Request::Operation(operation) => operation.clone(),
        Request::Add { window, .. } => count(
            i128::from(i64::MIN) - sums.lowest,
            i128::from(i64::MAX) - sums.highest,
            CounterChange::Add {
                step: clamp(sums.total),
                times: 1,
                edge: 0,
            },
            *window,
        ),
        Request::AddWithin {
            delta,
            low,
            high,
            window,
        } => {
            // A range that no value reaches stays one.
            let (from, to) = start_range(*delta, *low, *high).unwrap_or((1, 0));
            count(
                i128::from(from),
                i128::from(to),
                CounterChange::Add {
                    step: *delta,
                    times: if *delta == 0 {
                        1
                    } else {
                        u32::try_from(members.len()).unwrap_or(u32::MAX)
                    },
                    edge: if *delta < 0 { *low } else { *high },
                },
                *window,
            )
        }
    }
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use proptest::prelude::*;
    use tokio::sync::oneshot;

    use super::super::request::ReplyTo;
    use super::*;
    use crate::name::Name;

    /// Microseconds; what expires sooner has expired.
    const NOW: i64 = 1_000;

    /// What the server does to a counter's row, as the packet's statement says it.
    fn execute(operation: &Operation, value: &mut i64) -> Outcome {
        let Operation::Count(count) = operation else {
            panic!("not a counter's: {operation:?}")
        };
        let previous = *value;
        if !(count.low..=count.high).contains(&previous) {
            return Outcome::OutOfBounds { value: previous };
        }
        let after = match count.change {
            CounterChange::Set { value } => i128::from(value),
            CounterChange::Add { step, times: 1, .. } => i128::from(previous) + i128::from(step),
            CounterChange::Add { step, times, edge } => {
                let room = (i128::from(previous) - i128::from(edge)).abs();
                let step = i128::from(step);
                let applied = (room / step.abs()).min(i128::from(times));
                i128::from(previous) + step * applied
            }
        };
        *value = i64::try_from(after).expect("the bounds keep it within 64 bits");
        Outcome::Counted {
            previous,
            value: *value,
        }
    }

    /// What one request alone does to a value.
    fn model(request: &Request, value: &mut i64) -> Outcome {
        let previous = *value;
        let after = match request {
            Request::Add { delta, .. } => previous.checked_add(*delta),
            Request::AddWithin {
                delta, low, high, ..
            } => previous
                .checked_add(*delta)
                .filter(|after| (low..=high).contains(&after)),
            Request::Operation(operation) => return execute(operation, value),
        };
        match after {
            Some(after) => {
                *value = after;
                Outcome::Counted {
                    previous,
                    value: after,
                }
            }
            None => Outcome::OutOfBounds { value: previous },
        }
    }

    fn set(value: i64) -> Request {
        Request::Operation(Operation::Count(Count {
            token: Token::random(),
            low: i64::MIN,
            high: i64::MAX,
            change: CounterChange::Set { value },
            window: 0,
            restart: false,
        }))
    }

    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![
            6 => -4..=4_i64,
            1 => prop::sample::select(vec![i64::MIN, i64::MIN + 1, i64::MAX, 1 << 62, -1 << 62]),
            1 => any::<i64>(),
        ]
    }

    fn request() -> impl Strategy<Value = Request> {
        let within = |delta, low, high, window| Request::AddWithin {
            delta,
            low,
            high,
            window,
        };
        prop_oneof![
            6 => (number(), 0..2_i64).prop_map(|(delta, window)| Request::Add { delta, window }),
            // Few kinds, so that many merge.
            4 => prop::sample::select(vec![(-1, 0, i64::MAX), (3, -2, 5), (1 << 62, i64::MIN, i64::MAX)])
                .prop_map(move |(delta, low, high)| within(delta, low, high, 0)),
            2 => (number(), number(), number())
                .prop_map(move |(delta, a, b)| within(delta, a.min(b), a.max(b), 0)),
            1 => number().prop_map(set),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Groups tell each member what it would have been told alone, one after the other in the
        /// order in which the groups finish; also when some leave between taking and running.
        #[test]
        fn groups_do_what_their_members_would(
            start in number(),
            requests in prop::collection::vec((request(), prop::bool::weighted(0.1)), 1..24),
        ) {
            let now = Moment::from_micros(NOW);
            let key = RowKey::counter(Name::new("n").expect("a name"));
            let mut receivers = HashMap::new();
            let mut waiting = VecDeque::new();
            for (number, (request, leaves)) in (1..).zip(&requests) {
                let (sender, receiver) = oneshot::channel();
                receivers.insert(number, receiver);
                // Also says later which one it is.
                let expires = Moment::from_micros(if *leaves { number } else { NOW + number });
                let reply = Some(ReplyTo::Caller(sender));
                waiting.push_back(Member::new(request.clone(), expires, reply));
            }
            let (mut row, mut value) = (start, start);
            while let Some(mut group) = Group::take(key.clone(), &mut waiting) {
                for mut expired in group.take_expired(now) {
                    expired.finish(Err(Error::Closed));
                    let mut receiver = receivers
                        .remove(&expired.expires.as_micros())
                        .expect("told once");
                    prop_assert!(matches!(receiver.try_recv(), Ok(Err(Error::Closed))));
                }
                if group.members.is_empty() {
                    continue;
                }
                let members: Vec<_> = group
                    .members
                    .iter()
                    .map(|member| (member.expires.as_micros() - NOW, member.request.clone()))
                    .collect();
                let outcome = execute(&group.operation, &mut row);
                let again = group.finish(&outcome, now, false);
                if !again.is_empty() {
                    prop_assert_eq!(again.len(), members.len());
                    prop_assert_eq!(row, value, "changed, and runs again");
                    waiting.extend(again);
                    continue;
                }
                for (number, request) in members {
                    let expected = match model(&request, &mut value) {
                        // Others of the group may have run in between: which value was in the way
                        // is that of the end.
                        Outcome::OutOfBounds { .. } => Outcome::OutOfBounds { value: row },
                        counted => counted,
                    };
                    let mut receiver = receivers.remove(&number).expect("told once");
                    let told = receiver.try_recv().expect("told").expect("no error");
                    prop_assert_eq!(told.outcome, expected, "{:?}", request);
                }
                prop_assert_eq!(row, value);
            }
            prop_assert!(receivers.is_empty(), "somebody was not told");
        }
    }
}
