//! What `top` has seen: who holds what, for how long at least, and how often locks change hands.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use tag_lock::LockInfo;

use crate::output;

/// Over how long grants are counted.
const WINDOW: Duration = Duration::from_secs(10);

/// A lock in one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) name: String,
    pub(super) state: &'static str,
    pub(super) held_by: String,
    pub(super) description: String,
    pub(super) remaining: Duration,
    pub(super) fencing_token: u64,
}

impl From<&LockInfo> for Seen {
    fn from(lock: &LockInfo) -> Self {
        Self {
            name: output::plain(&lock.name),
            state: output::state(lock.state),
            held_by: output::plain(&lock.held_by),
            description: output::plain(&lock.description),
            remaining: lock.remaining,
            fencing_token: lock.fencing_token,
        }
    }
}

/// A lock that is taken.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) lock: Seen,
    /// When this hold was seen first.
    pub(super) since: Instant,
    /// It was there at the first look: it may have been held for much longer.
    pub(super) is_older: bool,
}

#[derive(Debug)]
pub(super) struct Model {
    began: Instant,
    rows: BTreeMap<String, Row>,
    has_looked: bool,
    /// Looks, and how many holds each one found that were not there before.
    grants: VecDeque<(Instant, usize)>,
    trouble: Option<String>,
}

impl Model {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            rows: BTreeMap::new(),
            has_looked: false,
            grants: VecDeque::new(),
            trouble: None,
        }
    }

    /// Takes in what is taken now.
    pub(super) fn look(&mut self, locks: Vec<Seen>, now: Instant) {
        let mut before = std::mem::take(&mut self.rows);
        let mut granted = 0;
        for lock in locks {
            let same = before
                .remove(&lock.name)
                .filter(|row| row.lock.fencing_token == lock.fencing_token);
            let (since, is_older) = match same {
                Some(row) => (row.since, row.is_older),
                None => {
                    granted += usize::from(self.has_looked);
                    (now, !self.has_looked)
                }
            };
            self.rows.insert(
                lock.name.clone(),
                Row {
                    lock,
                    since,
                    is_older,
                },
            );
        }
        self.has_looked = true;
        self.trouble = None;
        self.grants.push_back((now, granted));
        while self
            .grants
            .front()
            .is_some_and(|(at, _)| now.duration_since(*at) > WINDOW)
        {
            self.grants.pop_front();
        }
    }

    /// There was no answer.
    pub(super) fn fail(&mut self, trouble: String) {
        self.trouble = Some(trouble);
    }

    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Those that are held longest come first.
    pub(super) fn rows(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.values().collect();
        rows.sort_by_key(|row| row.since);
        rows
    }

    /// Grants a second that were seen: a lock that changed hands twice between two looks did so once, as far as that shows.
    pub(super) fn grants_a_second(&self, now: Instant) -> f64 {
        let time = now
            .duration_since(self.began)
            .min(WINDOW)
            .as_secs_f64()
            .max(1.0);
        let grants: usize = self.grants.iter().map(|(_, granted)| granted).sum();
        f64::from(u32::try_from(grants).unwrap_or(u32::MAX)) / time
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
            .into_iter()
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
        assert_eq!(model.grants_a_second(began), 0.0);
        model.look(vec![lock("a", 2), lock("b", 2)], at(4));
        assert_eq!(model.grants_a_second(at(4)), 0.5);
        // What is longer ago than the window does not count.
        model.look(vec![lock("a", 2), lock("b", 2)], at(20));
        assert_eq!(model.grants_a_second(at(20)), 0.0);
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
