//! The history by name, with what belongs together put together.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::history::{Event, Invocation, Log, Operation, Outcome, Record};

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
}

impl<'h> History<'h> {
    /// Acquires that were granted, or told that the lock is held.
    pub(super) fn waits(&self) -> impl Iterator<Item = &'h Record> {
        let granted = self.holds.iter().map(|hold| hold.grant);
        granted.chain(self.refusals.iter().filter_map(|refusal| {
            let told = refusal.outcome == Outcome::Refused;
            refusal.record.filter(|_| told)
        }))
    }
}

/// A lock that was granted.
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
pub(super) struct Refusal<'h> {
    pub(super) record: Option<&'h Record>,
    pub(super) worker: u32,
    pub(super) invoked: u64,
    pub(super) returned: u64,
    pub(super) outcome: Outcome,
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
            let mut holds: HashMap<(&str, u64), usize> = HashMap::new();
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
        holds: &mut HashMap<(&'h str, u64), usize>,
    ) {
        if let Event::Granted { ttl, .. } = record.event {
            self.longest_ttl = self.longest_ttl.max(ttl);
        }
        let history = self.name(&record.name);
        let (invoked, returned) = (record.invoked, record.returned);
        match record.event {
            Event::Granted { token, ttl } => {
                holds.insert((&record.name, token), history.holds.len());
                history.holds.push(Hold {
                    grant: record,
                    token,
                    ttl,
                    end: None,
                    trusted_until: returned,
                    release: None,
                    last_sign,
                });
            }
            Event::HeldUntil {
                token,
                trusted_until,
            } => {
                if let Some(hold) = holds.get(&(&*record.name, token)) {
                    let hold = &mut history.holds[*hold];
                    hold.end = Some(record);
                    hold.trusted_until = trusted_until.max(hold.grant.returned);
                }
            }
            Event::Released { token, outcome } => {
                if let Some(hold) = holds.get(&(&*record.name, token)) {
                    history.holds[*hold].release = Some((record, outcome));
                }
            }
            Event::NotGranted { outcome } => history.refusals.push(Refusal {
                record: Some(record),
                worker: record.worker,
                invoked,
                returned,
                outcome,
            }),
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
            Operation::Acquire => history.refusals.push(Refusal {
                record: None,
                worker: open.worker,
                invoked,
                returned: last_sign,
                outcome: Outcome::Unknown,
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
