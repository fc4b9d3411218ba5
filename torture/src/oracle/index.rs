//! The history by name, with what belongs together put together.

mod sharing;

pub(super) use sharing::{Reading, Share, Sharing};

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::history::{Event, Invocation, Log, Operation, Outcome, Record};
use crate::setup;

/// All names' histories.
pub(super) struct Histories<'h> {
    pub(super) names: BTreeMap<Arc<str>, History<'h>>,
    /// The first instant.
    pub(super) begin: u64,
    pub(super) longest_ttl: u64,
}

/// What happened to one name.
#[derive(Default)]
pub(super) struct History<'h> {
    /// By the instant of the grant.
    pub(super) holds: Vec<Hold<'h>>,
    pub(super) refusals: Vec<Refusal<'h>>,
    pub(super) sections: Vec<Section<'h>>,
    pub(super) writes: Vec<Write<'h>>,
    pub(super) additions: Vec<Addition<'h>>,
    pub(super) transfers: Vec<Transfer<'h>>,
    pub(super) attempts: Vec<Attempt<'h>>,
    /// Of a semaphore.
    pub(super) permits: Vec<Permit<'h>>,
    /// It is the slot of a semaphore: who waits does so for any of them.
    pub(super) is_slot: bool,
    pub(super) election: Election<'h>,
    pub(super) sharing: Sharing<'h>,
}

impl<'h> History<'h> {
    /// Acquires of this lock alone that were granted, or told that it is held.
    pub(super) fn waits(&self) -> impl Iterator<Item = &'h Record> {
        let granted = self.holds.iter().filter(|hold| !hold.together);
        let granted = granted.map(|hold| hold.grant);
        granted.chain(self.refusals.iter().filter_map(|refusal| {
            let told = refusal.outcome == Outcome::Refused && !refusal.together;
            refusal.record.filter(|_| told)
        }))
    }
}

/// A lock that was granted.
#[derive(Clone, Copy)]
pub(super) struct Hold<'h> {
    pub(super) grant: &'h Record,
    pub(super) token: u64,
    pub(super) ttl: u64,
    /// The end of its work, as the holder knew it.
    pub(super) end: Option<&'h Record>,
    /// Until when it trusted the lease; the instant of the grant if it never did.
    pub(super) trusted_until: u64,
    pub(super) release: Option<(&'h Record, Outcome)>,
    /// The last thing that its worker wrote.
    pub(super) last_sign: u64,
    /// It was asked for together with others: who waits for these may hold it already.
    pub(super) together: bool,
}

impl Hold<'_> {
    /// The instant from which its holder claims nothing any more.
    pub(super) fn over(&self) -> u64 {
        match (self.release, self.end) {
            (Some((release, _)), _) => release.returned,
            (None, Some(end)) => end.returned,
            (None, None) => self.last_sign,
        }
    }

    pub(super) fn worker(&self) -> u32 {
        self.grant.worker
    }
}

/// An acquire that was not granted, as far as anybody knows.
#[derive(Clone, Copy)]
pub(super) struct Refusal<'h> {
    pub(super) record: Option<&'h Record>,
    pub(super) worker: u32,
    pub(super) invoked: u64,
    pub(super) returned: u64,
    pub(super) outcome: Outcome,
    /// It was asked for together with others.
    pub(super) together: bool,
}

/// A permit of a semaphore that was granted: its hold is in the history of its slot.
pub(super) struct Permit<'h> {
    pub(super) record: &'h Record,
    /// How many the semaphore has.
    pub(super) permits: u32,
    /// For how many the task had asked at once.
    pub(super) count: u32,
    pub(super) slot: u32,
}

/// What was said of an election.
#[derive(Default)]
pub(super) struct Election<'h> {
    pub(super) leaders: Vec<Leader<'h>>,
    /// What observers were told: the record, token, and value.
    pub(super) seen: Vec<(&'h Record, u64, u64)>,
    /// Work that went on: the record, token, and steps.
    pub(super) worked_on: Vec<(&'h Record, u64, u64)>,
}

/// Somebody who led.
pub(super) struct Leader<'h> {
    pub(super) record: &'h Record,
    pub(super) token: u64,
    pub(super) value: u64,
    /// It campaigned with its value this once.
    pub(super) once: bool,
}

/// Work on the unprotected value.
pub(super) struct Section<'h> {
    pub(super) record: Option<&'h Record>,
    pub(super) worker: u32,
    pub(super) token: u64,
    pub(super) read: u64,
    pub(super) wrote: u64,
    pub(super) invoked: u64,
    /// The end of time if it has no end on file.
    pub(super) returned: u64,
}

/// A write to the resource that checks tokens.
pub(super) struct Write<'h> {
    pub(super) record: Option<&'h Record>,
    pub(super) token: u64,
    pub(super) invoked: u64,
    pub(super) returned: u64,
    /// `None`: nobody knows.
    pub(super) accepted: Option<bool>,
}

/// An addition to a counter.
#[derive(Clone, Copy)]
pub(super) struct Addition<'h> {
    pub(super) record: Option<&'h Record>,
    pub(super) delta: i64,
    pub(super) low: Option<i64>,
    pub(super) high: Option<i64>,
    pub(super) value: Option<i64>,
    pub(super) invoked: u64,
    /// The end of time if its outcome is not known.
    pub(super) returned: u64,
    pub(super) outcome: Outcome,
}

impl Addition<'_> {
    /// Whether it may have happened, or not.
    pub(super) fn is_ambiguous(&self) -> bool {
        match self.outcome {
            Outcome::Done => self.value.is_none(),
            Outcome::Refused | Outcome::Failed => false,
            Outcome::Lost | Outcome::Unknown => true,
        }
    }
}

/// A business transaction.
pub(super) struct Transfer<'h> {
    pub(super) record: Option<&'h Record>,
    pub(super) worker: u32,
    pub(super) task: u32,
    pub(super) token: u64,
    pub(super) amount: i64,
    pub(super) invoked: u64,
    pub(super) committing: u64,
    pub(super) outcome: Outcome,
}

/// An attempt at a slot of a job.
pub(super) struct Attempt<'h> {
    pub(super) record: Option<&'h Record>,
    pub(super) worker: u32,
    pub(super) task: u32,
    /// 0: the work did not begin. `None`: nobody knows.
    pub(super) token: Option<u64>,
    pub(super) booked: bool,
    /// It was said that the slot is done.
    pub(super) done: bool,
    pub(super) invoked: u64,
    /// The end of time if it has no end on file.
    pub(super) returned: u64,
    pub(super) outcome: Outcome,
}

impl<'h> Histories<'h> {
    pub(super) fn of(logs: &'h [Log]) -> Self {
        let mut all = Self {
            names: BTreeMap::new(),
            begin: u64::MAX,
            longest_ttl: 0,
        };
        for log in logs {
            let last_sign = log
                .records
                .iter()
                .map(|record| record.returned)
                .chain(log.open.iter().map(|open| open.invoked))
                .max()
                .unwrap_or_default();
            // Holds of one worker by name and token.
            let mut holds: HashMap<(Arc<str>, u64), usize> = HashMap::new();
            for record in &log.records {
                all.begin = all.begin.min(record.invoked);
                all.record(record, last_sign, &mut holds);
            }
            for open in &log.open {
                all.begin = all.begin.min(open.invoked);
                all.open(open, last_sign);
            }
        }
        for history in all.names.values_mut() {
            history.holds.sort_by_key(|hold| hold.grant.returned);
            history.sharing.sort();
        }
        all
    }

    /// How many names are locks.
    pub(super) fn locks(&self) -> usize {
        let locks = self.names.values();
        locks.filter(|history| !history.holds.is_empty()).count()
    }

    fn name(&mut self, name: &Arc<str>) -> &mut History<'h> {
        if !self.names.contains_key(name) {
            self.names.insert(Arc::clone(name), History::default());
        }
        self.names.entry(Arc::clone(name)).or_default()
    }

    fn record(
        &mut self,
        record: &'h Record,
        last_sign: u64,
        holds: &mut HashMap<(Arc<str>, u64), usize>,
    ) {
        let together = match record.event {
            Event::Together { .. } => true,
            Event::Permit { count, .. } => count > 1,
            _ => false,
        };
        let mut granted = |all: &mut Self, name: &Arc<str>, token: u64, ttl: u64| {
            all.longest_ttl = all.longest_ttl.max(ttl);
            let history = all.name(name);
            holds.insert((Arc::clone(name), token), history.holds.len());
            history.holds.push(Hold {
                grant: record,
                token,
                ttl,
                end: None,
                trusted_until: record.returned,
                release: None,
                last_sign,
                together,
            });
        };
        match record.event {
            Event::Granted { token, ttl } => return granted(self, &record.name, token, ttl),
            Event::Together { token, ttl, .. } if token > 0 => {
                return granted(self, &record.name, token, ttl);
            }
            Event::Permit {
                permits,
                count,
                slot,
                token,
                ttl,
            } => {
                let name = setup::slot(&record.name, slot).into();
                granted(self, &name, token, ttl);
                self.name(&name).is_slot = true;
                return self.name(&record.name).permits.push(Permit {
                    record,
                    permits,
                    count,
                    slot,
                });
            }
            Event::Shared { ttl, .. } => self.longest_ttl = self.longest_ttl.max(ttl),
            _ => {}
        }
        let history = self.name(&record.name);
        let (invoked, returned) = (record.invoked, record.returned);
        match record.event {
            Event::Granted { .. } | Event::Permit { .. } | Event::Overran { .. } => {}
            Event::Shared { .. }
            | Event::NotShared { .. }
            | Event::Looked { .. }
            | Event::Vouched { .. } => history.sharing.record(record, last_sign),
            Event::Leads { token, value, once } => history.election.leaders.push(Leader {
                record,
                token,
                value,
                once,
            }),
            Event::Seen { token, value } => history.election.seen.push((record, token, value)),
            Event::WorkedOn { token, steps } => {
                history.election.worked_on.push((record, token, steps));
            }
            Event::HeldUntil {
                token,
                trusted_until,
            } => {
                if let Some(hold) = holds.get(&(Arc::clone(&record.name), token)) {
                    let hold = &mut history.holds[*hold];
                    hold.end = Some(record);
                    hold.trusted_until = trusted_until.max(hold.grant.returned);
                } else {
                    history.sharing.record(record, last_sign);
                }
            }
            Event::Released { token, outcome } => {
                if let Some(hold) = holds.get(&(Arc::clone(&record.name), token)) {
                    history.holds[*hold].release = Some((record, outcome));
                } else {
                    history.sharing.record(record, last_sign);
                }
            }
            Event::NotGranted { outcome } | Event::Together { outcome, .. } => {
                history.refusals.push(Refusal {
                    record: Some(record),
                    worker: record.worker,
                    invoked,
                    returned,
                    outcome,
                    together,
                });
            }
            Event::Section { token, read, wrote } => history.sections.push(Section {
                record: Some(record),
                worker: record.worker,
                token,
                read,
                wrote,
                invoked,
                returned,
            }),
            Event::FencedWrite { token, accepted } => history.writes.push(Write {
                record: Some(record),
                token,
                invoked,
                returned,
                accepted: Some(accepted),
            }),
            Event::Added {
                delta,
                low,
                high,
                value,
                outcome,
            } => {
                let addition = Addition {
                    record: Some(record),
                    delta,
                    low,
                    high,
                    value,
                    invoked,
                    returned,
                    outcome,
                };
                history.additions.push(Addition {
                    returned: if addition.is_ambiguous() {
                        u64::MAX
                    } else {
                        returned
                    },
                    ..addition
                });
            }
            Event::Transfer {
                token,
                amount,
                committing,
                outcome,
            } => history.transfers.push(Transfer {
                record: Some(record),
                worker: record.worker,
                task: record.task,
                token,
                amount,
                invoked,
                committing,
                outcome,
            }),
            Event::Attempt {
                token,
                booked,
                done,
                outcome,
            } => history.attempts.push(Attempt {
                record: Some(record),
                worker: record.worker,
                task: record.task,
                token: Some(token),
                booked,
                done,
                invoked,
                returned,
                outcome,
            }),
        }
    }

    fn open(&mut self, open: &'h Invocation, last_sign: u64) {
        let history = self.name(&open.name);
        let invoked = open.invoked;
        match open.operation {
            Operation::Share => history.sharing.open(open, last_sign),
            Operation::Acquire | Operation::Together => history.refusals.push(Refusal {
                record: None,
                worker: open.worker,
                invoked,
                returned: last_sign,
                outcome: Outcome::Unknown,
                together: open.operation == Operation::Together,
            }),
            Operation::Section { token, read, wrote } => history.sections.push(Section {
                record: None,
                worker: open.worker,
                token,
                read,
                wrote,
                invoked,
                returned: u64::MAX,
            }),
            Operation::FencedWrite { token } => history.writes.push(Write {
                record: None,
                token,
                invoked,
                returned: u64::MAX,
                accepted: None,
            }),
            Operation::Add { delta, low, high } => history.additions.push(Addition {
                record: None,
                delta,
                low,
                high,
                value: None,
                invoked,
                returned: u64::MAX,
                outcome: Outcome::Unknown,
            }),
            Operation::Transfer { token, amount } => history.transfers.push(Transfer {
                record: None,
                worker: open.worker,
                task: open.task,
                token,
                amount,
                invoked,
                committing: 0,
                outcome: Outcome::Unknown,
            }),
            Operation::Attempt { booked } => history.attempts.push(Attempt {
                record: None,
                worker: open.worker,
                task: open.task,
                token: None,
                booked,
                done: false,
                invoked,
                returned: u64::MAX,
                outcome: Outcome::Unknown,
            }),
        }
    }
}
