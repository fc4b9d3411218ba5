//! The places of all names that this client has to do with.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::place::{Place, Unanswered};
use crate::clock::Moment;
use crate::name::Name;

/// More of them are looked through for those that are of no use any more.
const MOST_UNANSWERED: usize = 1_024;

/// All places.
#[derive(Default)]
pub(super) struct Places {
    map: HashMap<Name, Place>,
    /// Those that look at their row from time to time.
    watching: HashSet<Name>,
    /// What places knew that are gone, as long as it is of use.
    unanswered: HashMap<Name, Unanswered>,
    closed: bool,
}

impl Places {
    /// Changes a place, if there is one, and keeps the books about it.
    pub(super) fn change<T>(
        &mut self,
        name: &Name,
        change: impl FnOnce(&mut Place) -> T,
    ) -> Option<T> {
        let place = self.map.get_mut(name)?;
        let watched = place.next_look().is_some();
        let result = change(place);
        let watching = place.next_look().is_some();
        if place.is_done() {
            let unanswered = place.unanswered();
            self.map.remove(name);
            self.remember(name, unanswered);
        }
        if watching && !watched {
            self.watching.insert(name.clone());
        } else if watched && !watching {
            self.watching.remove(name);
        }
        Some(result)
    }

    /// Changes the place of a name, which is made if there is none; `None` if the client is closed.
    pub(super) fn change_or_make<T>(
        &mut self,
        name: &Name,
        client: u32,
        now: Moment,
        change: impl FnOnce(&mut Place) -> T,
    ) -> Option<T> {
        if self.closed {
            return None;
        }
        if let Entry::Vacant(vacant) = self.map.entry(name.clone()) {
            vacant.insert(Place::new(client, now, self.unanswered.remove(name)));
        }
        self.change(name, change)
    }

    fn remember(&mut self, name: &Name, unanswered: Unanswered) {
        let now = Moment::now();
        if unanswered.is_over(now) {
            return;
        }
        if self.unanswered.len() >= MOST_UNANSWERED {
            self.unanswered.retain(|_, other| !other.is_over(now));
        }
        self.unanswered.insert(name.clone(), unanswered);
    }

    /// The names to look at now, and when to look next.
    pub(super) fn due(&self, now: Moment) -> (Vec<Name>, Option<Moment>) {
        let mut due = Vec::new();
        let mut next: Option<Moment> = None;
        for name in &self.watching {
            let Some(at) = self.map.get(name).and_then(Place::next_look) else {
                continue;
            };
            if at <= now {
                due.push(name.clone());
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        (due, next)
    }

    /// There are no places from here on; gives out those that there were. `None` if it was closed before.
    pub(super) fn close(&mut self) -> Option<impl Iterator<Item = Place> + use<>> {
        let before = std::mem::replace(&mut self.closed, true);
        self.watching.clear();
        (!before).then(|| std::mem::take(&mut self.map).into_values())
    }
}
