//! The tasks of this process that wait for one name, in the order in which they asked.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::error::Error;
use crate::lock::registry::lease::Lease;
use crate::lock::registry::turn::Turn;
use crate::lock::terms::Terms;
use crate::mutant::{self, Mutant};

/// A task that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) id: u64,
    pub(crate) terms: Terms,
    /// It takes the next answer, whatever it is.
    pub(crate) once: bool,
    /// It asked at once, and has had no answer.
    pub(crate) asks: bool,
    /// How long it waits.
    pub(crate) until: Option<Moment>,
    pub(crate) reply: oneshot::Sender<Result<Option<Turn>, Error>>,
}

impl Waiter {
    /// Gives it a turn. Who went away in this moment gives it back: false.
    pub(super) fn take(self, turn: Turn) -> bool {
        match self.reply.send(Ok(Some(turn))) {
            Ok(()) => true,
            Err(Ok(Some(turn))) => {
                turn.disarm();
                false
            }
            Err(_) => false,
        }
    }

    /// The lock is not to be had. Who asked may have gone away.
    pub(super) fn refuse(self) {
        drop(self.reply.send(Ok(None)));
    }

    pub(crate) fn fail(self, error: &Error) {
        drop(self.reply.send(Err(error.clone())));
    }
}

/// Those that wait, by the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Queue(VecDeque<Waiter>);

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn first(&self) -> Option<&Waiter> {
        self.0.front()
    }

    pub(super) fn all(&self, which: impl Fn(&Waiter) -> bool) -> bool {
        self.0.iter().all(which)
    }

    pub(super) fn is_first(&self, id: u64) -> bool {
        self.first().is_some_and(|first| first.id == id)
    }

    /// Somebody new, or somebody who comes back to where it stood.
    pub(crate) fn push(&mut self, waiter: Waiter) {
        let mut place = self.0.partition_point(|other| other.id < waiter.id);
        if mutant::on(Mutant::OwnersReversed) && waiter.terms.owner.is_some() {
            place = place.min(1);
        }
        self.0.insert(place, waiter);
    }

    pub(super) fn first_mut(&mut self) -> Option<&mut Waiter> {
        self.0.front_mut()
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Waiter> {
        self.0.iter_mut().find(|waiter| waiter.id == id)
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Waiter> {
        let position = self.0.iter().position(|waiter| waiter.id == id)?;
        self.0.remove(position)
    }

    /// Takes out those that are to be asked for on their own.
    pub(super) fn take(&mut self, which: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        if !self.0.iter().any(&which) {
            return Vec::new();
        }
        let (taken, left) = std::mem::take(&mut self.0).into_iter().partition(which);
        self.0 = left;
        Vec::from(taken)
    }

    /// Gives the current turn to the first waiter that takes it on the lease's terms.
    pub(super) fn hand(&mut self, lease: &Arc<Lease>) -> bool {
        while self
            .first()
            .is_some_and(|first| first.terms.share(&lease.terms))
        {
            if let Some(first) = self.0.pop_front()
                && first.take(Turn::current(lease))
            {
                return true;
            }
        }
        false
    }

    /// Those who take the next answer, whatever it is, learn that the lock is not to be had.
    pub(super) fn refuse_once(&mut self) {
        for waiter in self.take(|waiter| waiter.once) {
            waiter.refuse();
        }
    }

    /// The same when there was no answer to rely on.
    pub(super) fn fail_once(&mut self, error: &Error) {
        for waiter in self.take(|waiter| waiter.once) {
            waiter.fail(error);
        }
    }

    pub(crate) fn fail(&mut self, error: &Error) {
        for waiter in self.0.drain(..) {
            waiter.fail(error);
        }
    }
}

/// What a queue for several permits asks besides.
impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn nth(&self, position: usize) -> Option<&Waiter> {
        self.0.get(position)
    }

    /// All but the first `many`.
    pub(crate) fn behind(&self, many: usize) -> impl Iterator<Item = &Waiter> {
        self.0.iter().skip(many)
    }

    pub(crate) fn position(&mut self, id: u64) -> Option<(usize, &mut Waiter)> {
        let mut all = self.0.iter_mut().enumerate();
        all.find(|(_, waiter)| waiter.id == id)
    }

    /// Where the first waiter stands that a lease serves.
    pub(crate) fn first_to_share(&self, lease: &Lease) -> Option<usize> {
        self.0
            .iter()
            .position(|waiter| waiter.terms.share(&lease.terms))
    }

    /// Gives the current turn to the first waiter that it serves and that takes it.
    pub(crate) fn hand_to_any(&mut self, lease: &Arc<Lease>) -> bool {
        while let Some(position) = self.first_to_share(lease) {
            if let Some(waiter) = self.0.remove(position)
                && waiter.take(Turn::current(lease))
            {
                return true;
            }
        }
        false
    }

    /// These, of all but the first `many`, learn that nothing is to be had.
    pub(crate) fn refuse_behind(&mut self, many: usize, which: impl Fn(&Waiter) -> bool) {
        let mut position = many;
        while let Some(waiter) = self.0.get(position) {
            if !which(waiter) {
                position += 1;
            } else if let Some(waiter) = self.0.remove(position) {
                waiter.refuse();
            }
        }
    }

    /// Those up to this number are told.
    pub(crate) fn fail_until(&mut self, last: u64, error: &Error) {
        while let Some(first) = self.first()
            && first.id <= last
        {
            if let Some(first) = self.0.pop_front() {
                first.fail(error);
            }
        }
    }
}
