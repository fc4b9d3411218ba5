//! What `top` has seen: who holds what, what others want, both for how long at least, and how often locks change hands.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use tag_lock::{LockInfo, Urgency};

use crate::output;

/// Over how long grants are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// A lock that was seen wanted is still wanted if it is so again within this time: a grant ends the wish, and whoever waits on writes it again.
const GAP: Duration = Duration::from_millis(2_500);

/// A lock in one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) name: String,
    pub(super) state: &'static str,
    pub(super) held_by: String,
    pub(super) description: String,
    pub(super) remaining: Duration,
    pub(super) fencing_token: u64,
    /// How pressingly somebody waits for it.
    pub(super) wish: Option<Urgency>,
}

impl From<&LockInfo> for Seen {
    fn from(lock: &LockInfo) -> Self {
        Self {
            name: output::plain(&lock.name),
            state: output::state(lock.state),
            held_by: output::plain(&lock.held_by),
            description: output::plain(&lock.description),
            remaining: lock.remaining,
            fencing_token: lock.highest_fencing_token,
            wish: lock.wish.map(|wish| wish.urgency),
        }
    }
}

/// That somebody waits for a lock, whoever that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// When it was seen first, and last.
    pub(super) since: Instant,
    last: Instant,
    /// It was there at the first look: somebody may have waited for much longer.
    pub(super) is_older: bool,
}

/// A lock that is taken.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) lock: Seen,
    /// When this hold was seen first.
    pub(super) since: Instant,
    /// It was there at the first look: it may have been held for much longer.
    pub(super) is_older: bool,
    wanted: Option<Wanted>,
}

impl Row {
    /// Since when it was seen wanted, if it is wanted now.
    pub(super) fn wanted(&self) -> Option<Wanted> {
        self.wanted.filter(|_| self.lock.wish.is_some())
    }
}

/// The holds that a look found and that were not there before.
#[derive(Clone, Copy, Debug)]
struct Grants {
    at: Instant,
    all: usize,
    /// Those of a lock that was wanted when it was seen last.
    waited_for: usize,
}

#[derive(Debug)]
pub(super) struct Model {
    began: Instant,
    rows: BTreeMap<String, Row>,
    /// Those that were wanted when they were seen last, and are free: whoever waits takes them, if he has not gone.
    freed: BTreeMap<String, Row>,
    has_looked: bool,
    grants: VecDeque<Grants>,
    trouble: Option<String>,
}

impl Model {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            rows: BTreeMap::new(),
            freed: BTreeMap::new(),
            has_looked: false,
            grants: VecDeque::new(),
            trouble: None,
        }
    }

    /// Takes in what is taken now.
    pub(super) fn look(&mut self, locks: Vec<Seen>, now: Instant) {
        let mut before = std::mem::take(&mut self.rows);
        let (mut all, mut waited_for) = (0, 0);
        self.freed.retain(|_, row| {
            let last = row.wanted.map(|wanted| wanted.last);
            last.is_some_and(|last| now.duration_since(last) <= GAP)
        });
        for lock in locks {
            let freed = self.freed.remove(&lock.name);
            let known = before.remove(&lock.name).or(freed);
            let wanted = self.wanted(&lock, known.as_ref(), now);
            let was_wanted = known.as_ref().is_some_and(|row| row.lock.wish.is_some());
            let same = known.filter(|row| row.lock.fencing_token == lock.fencing_token);
            let (since, is_older) = match same {
                Some(row) => (row.since, row.is_older),
                None => {
                    all += usize::from(self.has_looked);
                    waited_for += usize::from(was_wanted);
                    (now, !self.has_looked)
                }
            };
            self.rows.insert(
                lock.name.clone(),
                Row {
                    lock,
                    since,
                    is_older,
                    wanted,
                },
            );
        }
        let wanted = before.into_iter().filter(|(_, row)| row.wanted().is_some());
        self.freed.extend(wanted);
        self.has_looked = true;
        self.trouble = None;
        self.grants.push_back(Grants {
            at: now,
            all,
            waited_for,
        });
        while self
            .grants
            .front()
            .is_some_and(|grants| now.duration_since(grants.at) > WINDOW)
        {
            self.grants.pop_front();
        }
    }

    /// Since when a lock is wanted that was known so.
    fn wanted(&self, lock: &Seen, known: Option<&Row>, now: Instant) -> Option<Wanted> {
        let before = known.and_then(|row| {
            let was = row.lock.wish.is_some();
            row.wanted
                .filter(|wanted| was || now.duration_since(wanted.last) <= GAP)
        });
        if lock.wish.is_none() {
            return before;
        }
        Some(match before {
            Some(wanted) => Wanted {
                last: now,
                ..wanted
            },
            None => Wanted {
                since: now,
                last: now,
                is_older: !self.has_looked,
            },
        })
    }

    /// There was no answer.
    pub(super) fn fail(&mut self, trouble: String) {
        self.trouble = Some(trouble);
    }

    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// In the order of their names.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// How many locks are taken, and how many of them somebody wants.
    pub(super) fn counts(&self) -> (usize, usize) {
        let wanted = self.rows().filter(|row| row.wanted().is_some());
        (self.rows.len(), wanted.count())
    }

    /// The lock that has been wanted for longest.
    pub(super) fn longest(&self) -> Option<Wanted> {
        self.rows()
            .filter_map(Row::wanted)
            .min_by_key(|wanted| wanted.since)
    }

    /// Grants a second that were seen, and how many of them were of locks that were wanted: a lock that changed hands twice between two looks did so
    /// once, as far as that shows.
    pub(super) fn grants_a_second(&self, now: Instant) -> (f64, f64) {
        let time = now
            .duration_since(self.began)
            .min(WINDOW)
            .as_secs_f64()
            .max(1.0);
        let a_second = |of: fn(&Grants) -> usize| {
            let grants: usize = self.grants.iter().map(of).sum();
            f64::from(u32::try_from(grants).unwrap_or(u32::MAX)) / time
        };
        (
            a_second(|grants| grants.all),
            a_second(|grants| grants.waited_for),
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::top) fn lock(name: &str, fencing_token: u64) -> Seen {
        Seen {
            name: name.to_owned(),
            state: "held",
            held_by: format!("host/{fencing_token}"),
            description: "nightly".to_owned(),
            remaining: Duration::from_secs(29),
            fencing_token,
            wish: None,
        }
    }

    pub(in crate::top) fn wanted(name: &str, fencing_token: u64) -> Seen {
        Seen {
            wish: Some(Urgency::Waits),
            ..lock(name, fencing_token)
        }
    }

    #[test]
    fn a_hold_is_as_old_as_its_token() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut model = Model::new(began);
        model.look(vec![lock("a", 1), lock("b", 1)], began);
        model.look(vec![lock("a", 1), lock("b", 2), lock("c", 1)], at(1));
        model.look(vec![lock("a", 1), lock("b", 2)], at(2));
        let rows: Vec<(&str, Instant, bool)> = model
            .rows()
            .map(|row| (row.lock.name.as_str(), row.since, row.is_older))
            .collect();
        assert_eq!(rows, [("a", began, true), ("b", at(1), false)]);
    }

    #[test]
    fn grants_are_counted_from_the_second_look_on() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut model = Model::new(began);
        model.look(vec![lock("a", 1), lock("b", 1)], began);
        assert_eq!(model.grants_a_second(began), (0.0, 0.0));
        model.look(vec![wanted("a", 2), lock("b", 2)], at(4));
        assert_eq!(model.grants_a_second(at(4)), (0.5, 0.0));
        // One of a lock that somebody waited for.
        model.look(vec![lock("a", 3), lock("b", 3)], at(8));
        assert_eq!(model.grants_a_second(at(8)), (0.5, 0.125));
        // Also if it was seen free in between, for a moment.
        model.look(vec![wanted("b", 3)], at(9));
        model.look(Vec::new(), at(10));
        model.look(vec![lock("b", 4)], at(11));
        assert_eq!(model.grants_a_second(at(11)), (0.5, 0.2));
        model.look(vec![wanted("b", 4)], at(12));
        model.look(Vec::new(), at(13));
        model.look(vec![lock("a", 3), lock("b", 5)], at(16));
        assert_eq!(model.grants_a_second(at(16)), (0.5, 0.2));
        // What is longer ago than the window does not count.
        model.look(vec![lock("a", 3), lock("b", 5)], at(40));
        assert_eq!(model.grants_a_second(at(40)), (0.0, 0.0));
    }

    #[test]
    fn a_lock_is_wanted_since_that_was_seen_first() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut model = Model::new(began);
        let wanted_since = |model: &Model| {
            let longest = model.longest();
            longest.map(|wanted| (wanted.since, wanted.is_older))
        };
        model.look(vec![lock("a", 1), wanted("b", 1)], began);
        assert_eq!(model.counts(), (2, 1));
        assert_eq!(wanted_since(&model), Some((began, true)));
        model.look(vec![wanted("a", 1), lock("b", 1)], at(10));
        assert_eq!(wanted_since(&model), Some((at(10), false)));
        // However long it is between two looks.
        model.look(vec![wanted("a", 1)], at(30));
        assert_eq!(wanted_since(&model), Some((at(10), false)));
        // A grant, behind which those who wait on say so again.
        model.look(vec![lock("a", 2)], at(31));
        assert_eq!((model.counts(), wanted_since(&model)), ((1, 0), None));
        model.look(vec![wanted("a", 2)], at(32));
        assert_eq!(wanted_since(&model), Some((at(10), false)));
        // Nobody waited for a while.
        model.look(vec![lock("a", 2)], at(33));
        model.look(vec![lock("a", 2)], at(34));
        model.look(vec![lock("a", 2)], at(35));
        model.look(vec![wanted("a", 2)], at(36));
        assert_eq!(wanted_since(&model), Some((at(36), false)));
    }

    #[test]
    fn trouble_ends_with_an_answer() {
        let mut model = Model::new(Instant::now());
        model.fail("away".to_owned());
        assert_eq!(model.trouble(), Some("away"));
        model.look(Vec::new(), Instant::now());
        assert_eq!(model.trouble(), None);
    }
}
