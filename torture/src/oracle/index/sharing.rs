//! The shared holds of one lock, and what was read under them.

use std::collections::HashMap;

use super::{Hold, Refusal};
use crate::history::{Event, Invocation, Outcome, Record};

/// What happened to the shared holds of one lock.
#[derive(Default)]
pub(in crate::oracle) struct Sharing<'h> {
    /// In no order until they are [sorted](Self::sort): then by the instant of the grant.
    pub(in crate::oracle) holds: Vec<Share<'h>>,
    pub(in crate::oracle) refusals: Vec<Refusal<'h>>,
    /// Which hold a worker's task has had last with a token: tasks that have one lease together have one token.
    latest: HashMap<(u32, u32, u64), usize>,
}

/// A shared hold that was granted.
pub(in crate::oracle) struct Share<'h> {
    pub(in crate::oracle) hold: Hold<'h>,
    /// The token of the exclusive hold that was made this one; 0: of none.
    pub(in crate::oracle) from: u64,
    /// What was read under it.
    pub(in crate::oracle) readings: Vec<Reading<'h>>,
}

/// What was read twice under one hold.
#[derive(Clone, Copy)]
pub(in crate::oracle) struct Reading<'h> {
    pub(in crate::oracle) record: &'h Record,
    pub(in crate::oracle) found: u64,
    pub(in crate::oracle) again: u64,
    /// Of a transaction that verified the hold: when its COMMIT was sent, and what was said of it.
    pub(in crate::oracle) transaction: Option<(u64, Outcome)>,
}

impl<'h> Sharing<'h> {
    pub(in crate::oracle) fn is_empty(&self) -> bool {
        self.holds.is_empty() && self.refusals.is_empty()
    }

    /// Requests that were granted, or told that the lock is held. Who makes its exclusive hold a shared one does not wait.
    pub(in crate::oracle) fn waits(&self) -> impl Iterator<Item = &'h Record> {
        let granted = self.holds.iter().filter(|share| share.from == 0);
        let granted = granted.map(|share| share.hold.grant);
        granted.chain(self.refusals.iter().filter_map(|refusal| {
            let told = refusal.outcome == Outcome::Refused;
            refusal.record.filter(|_| told)
        }))
    }

    pub(super) fn record(&mut self, record: &'h Record, last_sign: u64) {
        let key = |token| (record.worker, record.task, token);
        match record.event {
            Event::Shared { token, ttl, from } => {
                self.latest.insert(key(token), self.holds.len());
                self.holds.push(Share {
                    hold: Hold {
                        grant: record,
                        token,
                        ttl,
                        end: None,
                        trusted_until: record.returned,
                        release: None,
                        last_sign,
                        together: false,
                    },
                    from,
                    readings: Vec::new(),
                });
            }
            Event::NotShared { outcome } => self.refusals.push(Refusal {
                record: Some(record),
                worker: record.worker,
                invoked: record.invoked,
                returned: record.returned,
                outcome,
                together: false,
            }),
            Event::HeldUntil {
                token,
                trusted_until,
            } => {
                if let Some(share) = self.of(key(token)) {
                    share.hold.end = Some(record);
                    share.hold.trusted_until = trusted_until.max(share.hold.grant.returned);
                }
            }
            Event::Released { token, outcome } => {
                if let Some(share) = self.of(key(token)) {
                    share.hold.release = Some((record, outcome));
                }
            }
            Event::Looked {
                token,
                found,
                again,
            } => self.read(key(token), record, (found, again), None),
            Event::Vouched {
                token,
                found,
                again,
                committing,
                outcome,
            } => self.read(
                key(token),
                record,
                (found, again),
                Some((committing, outcome)),
            ),
            _ => {}
        }
    }

    fn read(
        &mut self,
        key: (u32, u32, u64),
        record: &'h Record,
        (found, again): (u64, u64),
        transaction: Option<(u64, Outcome)>,
    ) {
        if let Some(share) = self.of(key) {
            share.readings.push(Reading {
                record,
                found,
                again,
                transaction,
            });
        }
    }

    fn of(&mut self, key: (u32, u32, u64)) -> Option<&mut Share<'h>> {
        self.holds.get_mut(*self.latest.get(&key)?)
    }

    pub(super) fn open(&mut self, open: &'h Invocation, last_sign: u64) {
        self.refusals.push(Refusal {
            record: None,
            worker: open.worker,
            invoked: open.invoked,
            returned: last_sign,
            outcome: Outcome::Unknown,
            together: false,
        });
    }

    pub(super) fn sort(&mut self) {
        self.latest.clear();
        self.holds.sort_by_key(|share| share.hold.grant.returned);
    }
}
