//! What the oracle found, and how much it looked at.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::history::Record;

/// So many findings of one kind are kept in full; the others are counted.
const KEPT: usize = 20;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Two holders trusted their leases of one name at the same time.
    HoldsOverlap,
    /// Two grants of one name have the same token.
    TokenRepeated,
    /// A grant that came after another has no greater token.
    TokenFell,
    /// A write was accepted although one with a newer token had been accepted before.
    StaleWriteAccepted,
    /// A write was refused although nobody had written with a newer token.
    WriteRefused,
    /// A critical section did not find what the one before it had left.
    LostUpdate,
    /// A lock could not be had although nobody held it.
    NotServed,
    /// A worker waited for a lock while others had it again and again.
    Overtaken,
    /// A task had a lock before another one of its client that had asked long before.
    OutOfTurn,
    /// A call took longer than it had said it would.
    EndedLate,
    /// A lock is refused although its last holder's release was acknowledged, and nobody else may have it.
    ReleaseUndone,
    /// A lock is still held although all its holders are gone.
    LeaseOutlived,
    /// The sum of a counter is not that of what was added.
    WrongSum,
    /// Additions returned values that no order of them explains.
    WrongValue,
    /// An addition does not see one that had returned before it began.
    ValueOutOfOrder,
    /// A counter left its bounds.
    OutOfBounds,
    /// An addition was refused although there was room.
    RefusedWithRoom,
    /// Money appeared or vanished.
    WrongBalance,
    /// A transaction that was acknowledged is missing, or one that was refused is there.
    WrongLedger,
    /// A transaction was committed although a newer holder had been granted the lock before.
    StaleCommit,
    /// A slot of a job was run twice to its end, or was begun when it was known to be done.
    RanTwice,
    /// A slot is said to be done, and nobody can have done it.
    NeverDone,
    /// A permit has a slot that its semaphore does not have.
    SlotOutside,
    /// More permits of a semaphore were trusted at once than it has.
    TooManyPermits,
    /// Of several locks that were asked for at once some were granted, and others were not.
    GrantedInPart,
    /// A leader was seen with a value that is another one's.
    WrongLeader,
    /// The work of a leader went on when its lease had ended.
    WorkedOn,
    /// What was read under a shared hold is not what was written under the exclusive hold before it.
    WrongRead,
    /// Somebody had a lock for itself between an exclusive hold and the shared one that was made of it.
    DowngradeGap,
    /// The linearizability checker found no order for a window.
    NotLinearizable,
    /// The server reported deadlocks.
    Deadlock,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HoldsOverlap => "holds overlap",
            Self::TokenRepeated => "token repeated",
            Self::TokenFell => "token fell",
            Self::StaleWriteAccepted => "stale write accepted",
            Self::WriteRefused => "write refused",
            Self::LostUpdate => "lost update",
            Self::NotServed => "not served",
            Self::Overtaken => "overtaken",
            Self::OutOfTurn => "out of turn",
            Self::EndedLate => "ended late",
            Self::ReleaseUndone => "release undone",
            Self::LeaseOutlived => "lease outlived",
            Self::WrongSum => "wrong sum",
            Self::WrongValue => "wrong value",
            Self::ValueOutOfOrder => "value out of order",
            Self::OutOfBounds => "out of bounds",
            Self::RefusedWithRoom => "refused with room",
            Self::WrongBalance => "wrong balance",
            Self::WrongLedger => "wrong ledger",
            Self::StaleCommit => "stale commit",
            Self::RanTwice => "ran twice",
            Self::NeverDone => "never done",
            Self::SlotOutside => "slot outside",
            Self::TooManyPermits => "too many permits",
            Self::GrantedInPart => "granted in part",
            Self::WrongLeader => "wrong leader",
            Self::WorkedOn => "worked on",
            Self::WrongRead => "wrong read",
            Self::DowngradeGap => "downgrade with a gap",
            Self::NotLinearizable => "not linearizable",
            Self::Deadlock => "deadlock",
        })
    }
}

/// One violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub kind: Kind,
    /// The lock's or counter's name; empty where it is about the server.
    pub name: Arc<str>,
    /// What happened, for people. Times are seconds since the first record.
    pub sentence: String,
    /// The records concerned.
    pub records: Vec<Record>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.kind, self.name, self.sentence)
    }
}

/// What came out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The violations, the first ones of each kind.
    pub findings: Vec<Finding>,
    /// How many there are, by kind.
    pub violations: BTreeMap<Kind, u64>,
    /// How many of what was checked.
    pub checked: BTreeMap<&'static str, u64>,
    /// The longest time in nanoseconds for which somebody waited for a lock that nobody held, as far as it is longer than
    /// the check can tell from nothing; and for which one.
    pub worst_wait: Option<(u64, Arc<str>)>,
    /// How often others had a lock while a worker waited for it, at the most.
    pub most_passed_over: u64,
    /// The longest time in nanoseconds by which a call took longer than it had said it would.
    pub most_overrun: u64,
    /// The longest time in nanoseconds after which others were still let in to read, while somebody waited to write.
    pub readers_let_in: u64,
}

impl Verdict {
    /// The number of violations.
    pub fn violations(&self) -> u64 {
        self.violations.values().sum()
    }

    /// The number of all checks.
    pub fn checked(&self) -> u64 {
        self.checked.values().sum()
    }
}

/// Collects the findings.
pub(super) struct Findings {
    begin: u64,
    name: Arc<str>,
    verdict: Verdict,
}

impl Findings {
    pub(super) fn new(begin: u64) -> Self {
        Self {
            begin,
            name: Arc::from(""),
            verdict: Verdict::default(),
        }
    }

    /// What follows is about this name.
    pub(super) fn about(&mut self, name: &Arc<str>) -> &mut Self {
        self.name = Arc::clone(name);
        self
    }

    pub(super) fn checked(&mut self, what: &'static str, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        *self.verdict.checked.entry(what).or_default() += count;
    }

    pub(super) fn add<'r>(
        &mut self,
        kind: Kind,
        sentence: impl FnOnce(&Self) -> String,
        records: impl IntoIterator<Item = &'r Record>,
    ) {
        let count = self.verdict.violations.entry(kind).or_default();
        *count += 1;
        if *count > KEPT as u64 {
            return;
        }
        let finding = Finding {
            kind,
            name: Arc::clone(&self.name),
            sentence: sentence(self),
            records: records.into_iter().cloned().collect(),
        };
        self.verdict.findings.push(finding);
    }

    pub(super) fn waited(&mut self, time: u64) {
        if self
            .verdict
            .worst_wait
            .as_ref()
            .is_none_or(|(worst, _)| *worst < time)
        {
            self.verdict.worst_wait = Some((time, Arc::clone(&self.name)));
        }
    }

    pub(super) fn passed_over(&mut self, turns: u64) {
        self.verdict.most_passed_over = self.verdict.most_passed_over.max(turns);
    }

    pub(super) fn overran(&mut self, time: u64) {
        self.verdict.most_overrun = self.verdict.most_overrun.max(time);
    }

    pub(super) fn readers_let_in(&mut self, time: u64) {
        self.verdict.readers_let_in = self.verdict.readers_let_in.max(time);
    }

    /// An instant, for people.
    pub(super) fn at(&self, instant: u64) -> Seconds {
        Seconds(instant.saturating_sub(self.begin))
    }

    pub(super) fn into_verdict(self) -> Verdict {
        self.verdict
    }
}

/// Nanoseconds, shown as seconds.
pub(super) struct Seconds(pub(super) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0 / 1_000;
        write!(f, "{}.{:06} s", micros / 1_000_000, micros % 1_000_000)
    }
}
