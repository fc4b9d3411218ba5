//! What a packet can do to one row: a file for each operation, with what it carries, when it is granted, what the row becomes,
//! and how its answer is read. Durations are microseconds by the server's clock.
//!
//! In the templates `t` is the row as it is, `v.ttl` the column `ttl` of the operation's list ([`super::column`]), `{at}` the time at which
//! it is decided, and `{micros}` the same in microseconds since 1970. A column's value may read columns that stand behind it in the
//! list of assignments, and itself, but none before it: the server assigns from left to right.
//!
//! To add an operation: write its file, name it here ([`Operation`], [`Verb`], [`STATEMENTS`]), show its packet in
//! `golden.rs`, and name the columns of its list that are new in `column.rs`.

mod acquire;
mod count;
mod delete;
mod force_release;
mod init;
#[cfg(test)]
mod judging;
mod level;
mod once;
mod release;
mod renew;
mod share;
mod want;

pub(crate) use self::acquire::Acquire;
pub(crate) use self::count::{Count, CounterChange};
pub(crate) use self::delete::Delete;
pub(crate) use self::force_release::ForceRelease;
pub(crate) use self::init::Init;
pub(crate) use self::once::Once;
pub(crate) use self::release::Release;
pub(crate) use self::renew::Renew;
pub(crate) use self::share::{Close, Downgrade, Drain, Open, Share};
pub(crate) use self::want::Want;

use super::NOW;
use super::column::Column;
use super::list::ListRow;
use super::outcome::{Judgment, Outcome};
use super::reply::RowState;
use super::row::RowKey;
use crate::token::Token;

/// Creates the row, or says that it is in use, so that no purge takes it.
#[derive(Clone, Debug)]
pub(crate) struct Touch;

/// One change of one row.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Acquire(Acquire),
    Release(Release),
    Renew(Renew),
    ForceRelease(ForceRelease),
    Want(Want),
    Count(Count),
    Once(Once),
    Touch(Touch),
    Init(Init),
    Delete(Delete),
    Open(Open),
    Downgrade(Downgrade),
    Share(Share),
    /// An acquire that also takes a door that was held shared.
    Shut(Acquire),
    Close(Close),
    Drain(Drain),
}

/// What columns become, in the order in which they are assigned.
pub(super) type Assignments = Vec<(&'static str, String)>;

/// If the row is there.
const THERE: &str = "t.slot=0";

/// The time that lies so many microseconds ahead.
fn until(microseconds: &str) -> String {
    format!("TIMESTAMPADD(MICROSECOND,{microseconds},{NOW})")
}

fn released(row: &RowState) -> Outcome {
    Outcome::Released {
        fence: row.fence,
        wanted: row.wanted,
        done: row.is_done(),
    }
}

/// What is done to a row. The number stands in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Acquire = 1,
    AcquireLevel,
    Release,
    ReleaseLevel,
    Renew,
    RenewLevel,
    ForceRelease,
    Want,
    Count,
    Touch,
    Finish,
    Init,
    Delete,
    Open,
    Downgrade,
    Share,
    Shut,
    Close,
    ForceClose,
    Drain,
}

/// The verbs that one statement carries out: no two whose assignments would have to stand in different orders.
pub(super) const STATEMENTS: [&[Verb]; 19] = [
    &[Verb::Acquire, Verb::Release],
    &[Verb::AcquireLevel],
    &[Verb::ReleaseLevel],
    &[Verb::Renew],
    &[Verb::RenewLevel],
    &[Verb::ForceRelease],
    &[Verb::Want],
    &[Verb::Count],
    &[Verb::Touch],
    &[Verb::Finish],
    &[Verb::Init],
    &[Verb::Delete],
    &[Verb::Open],
    &[Verb::Downgrade],
    &[Verb::Share],
    &[Verb::Shut],
    &[Verb::Close],
    &[Verb::ForceClose],
    &[Verb::Drain],
];

impl Verb {
    /// Whether it is granted, from the row as it is.
    pub(super) fn condition(self) -> String {
        match self {
            Self::Acquire => Acquire::condition(false),
            Self::AcquireLevel => Acquire::condition(true),
            Self::Release | Self::Finish => Release::condition(false),
            Self::ReleaseLevel => Release::condition(true),
            Self::Renew => Renew::condition(false),
            Self::RenewLevel => Renew::condition(true),
            Self::ForceRelease => ForceRelease::condition(),
            Self::Count => Count::condition(),
            Self::Init => Init::condition(),
            Self::Delete => Delete::condition(),
            Self::Want | Self::Touch => THERE.into(),
            Self::Open => Open::condition(),
            Self::Downgrade => Downgrade::condition(),
            Self::Share => Share::condition(),
            Self::Shut => share::shuts(),
            Self::Close => Close::condition(false),
            Self::ForceClose => Close::condition(true),
            Self::Drain => Drain::condition(),
        }
    }

    /// What the row's columns become.
    pub(super) fn assignments(self) -> Assignments {
        match self {
            Self::Acquire | Self::Shut => Acquire::assignments(false),
            Self::AcquireLevel => Acquire::assignments(true),
            Self::Release => Release::assignments(false),
            Self::ReleaseLevel => Release::assignments(true),
            Self::Renew => Renew::assignments(false),
            Self::RenewLevel => Renew::assignments(true),
            Self::ForceRelease => ForceRelease::assignments(),
            Self::Want => Want::assignments(),
            Self::Count => Count::assignments(),
            Self::Touch => vec![],
            Self::Finish => Release::finished(),
            Self::Init => Init::assignments(),
            Self::Delete => Delete::assignments(),
            Self::Open => Open::assignments(),
            Self::Downgrade => Downgrade::assignments(),
            Self::Share => Share::assignments(),
            Self::Close => Close::assignments(false),
            Self::ForceClose => Close::assignments(true),
            Self::Drain => Drain::assignments(),
        }
    }

    /// How many levels of an owner there are.
    pub(super) fn levels() -> String {
        level::count()
    }

    /// What one of the columns becomes.
    pub(super) fn value_of(self, column: &str) -> Option<String> {
        let mut values = self.assignments().into_iter();
        let value = values.find(|(assigned, _)| *assigned == column);
        value.map(|(_, value)| value)
    }
}

impl Operation {
    /// `None` for an operation with a statement of its own.
    pub(super) fn verb(&self) -> Option<Verb> {
        Some(match self {
            Self::Acquire(acquire) if acquire.level.is_some() => Verb::AcquireLevel,
            Self::Acquire(_) => Verb::Acquire,
            Self::Release(release) if release.level.is_some() => Verb::ReleaseLevel,
            Self::Release(release) if release.finishes => Verb::Finish,
            Self::Release(_) => Verb::Release,
            Self::Renew(renew) if renew.until.is_some() => Verb::RenewLevel,
            Self::Renew(_) => Verb::Renew,
            Self::ForceRelease(_) => Verb::ForceRelease,
            Self::Want(_) => Verb::Want,
            Self::Count(_) => Verb::Count,
            Self::Once(_) => return None,
            Self::Touch(_) => Verb::Touch,
            Self::Init(_) => Verb::Init,
            Self::Delete(_) => Verb::Delete,
            Self::Open(_) => Verb::Open,
            Self::Downgrade(_) => Verb::Downgrade,
            Self::Share(_) => Verb::Share,
            Self::Shut(_) => Verb::Shut,
            Self::Close(close) if close.forced => Verb::ForceClose,
            Self::Close(_) => Verb::Close,
            Self::Drain(_) => Verb::Drain,
        })
    }

    /// Writes what it carries into its row of the list.
    pub(super) fn write<'l>(&self, row: ListRow<'l>, not_after: i64) -> ListRow<'l> {
        let row = row.bytes(Column::Token, self.token().as_bytes());
        match self {
            Self::Acquire(acquire) | Self::Shut(acquire) => acquire.write(row, not_after),
            Self::Open(open) => open.write(row, not_after),
            Self::Downgrade(downgrade) => downgrade.write(row, not_after),
            Self::Share(share) => share.write(row),
            Self::Drain(drain) => drain.write(row),
            Self::Release(release) => release.write(row),
            Self::Renew(renew) => renew.write(row),
            Self::ForceRelease(force) => force.write(row),
            Self::Want(want) => want.write(row),
            Self::Count(count) => count.write(row),
            Self::Init(init) => init.write(row),
            Self::Delete(delete) => delete.write(row),
            Self::Once(_) | Self::Touch(_) | Self::Close(_) => row,
        }
    }

    /// Judges it by its row: as the batch found it and decided, or as it was read later.
    pub(crate) fn judge(&self, row: Option<&RowState>) -> Judgment {
        let Some(row) = row else {
            return match self {
                operation if operation.creates() => Judgment::Missing,
                Self::Renew(_) | Self::Release(_) | Self::ForceRelease(_) | Self::Downgrade(_) => {
                    Judgment::Final(Outcome::NotHeld)
                }
                Self::Delete(_) => Judgment::Final(Outcome::NotSet),
                _ => Judgment::Final(Outcome::Done),
            };
        };
        if row.granted {
            return Judgment::Final(self.carried_out(row));
        }
        match self {
            Self::Acquire(acquire) | Self::Shut(acquire) => acquire.judge(row),
            Self::Open(open) => open.judge(row),
            Self::Downgrade(downgrade) => downgrade.judge(row),
            Self::Share(share) => share.judge(row),
            Self::Close(close) => close.judge(row),
            Self::Release(release) => release.judge(row),
            Self::Renew(renew) => renew.judge(row),
            Self::ForceRelease(force) => force.judge(row),
            Self::Count(count) => count.judge(row),
            Self::Init(init) => init.judge(row),
            Self::Delete(delete) => delete.judge(row),
            Self::Once(once) => once.judge(row),
            Self::Want(want) => want.judge(row),
            Self::Drain(drain) => drain.judge(row),
            Self::Touch(_) => Judgment::Final(Outcome::Done),
        }
    }

    /// The same of one of several rows that are had together, of whose fences one is the `highest`.
    pub(crate) fn judge_among(&self, row: Option<&RowState>, highest: u64) -> Judgment {
        match (self, row) {
            (Self::Share(share), Some(row)) if row.granted => {
                Judgment::Final(share.granted(row, highest))
            }
            _ => self.judge(row),
        }
    }

    /// What it came to when it was granted, from the row before it; see [`super::reply`].
    fn carried_out(&self, row: &RowState) -> Outcome {
        match self {
            Self::Acquire(acquire) | Self::Shut(acquire) => acquire.carried_out(row),
            Self::Share(share) => share.granted(row, row.fence),
            Self::Release(release) => release.carried_out(row),
            Self::Renew(renew) => renew.carried_out(row),
            Self::ForceRelease(_) | Self::Close(_) => released(row),
            Self::Count(_) | Self::Once(_) => Outcome::Counted {
                previous: row.previous,
                value: row.count,
            },
            Self::Init(init) => init.carried_out(),
            Self::Delete(delete) => delete.carried_out(row),
            Self::Want(_)
            | Self::Touch(_)
            | Self::Open(_)
            | Self::Downgrade(_)
            | Self::Drain(_) => Outcome::Done,
        }
    }

    /// What `holder` is compared with.
    pub(crate) fn token(&self) -> Token {
        match self {
            Self::Acquire(acquire) | Self::Shut(acquire) => acquire.token,
            Self::Downgrade(downgrade) => downgrade.token,
            Self::Share(share) => share.token,
            Self::Release(release) => release.token,
            Self::Renew(renew) => renew.token,
            Self::ForceRelease(force) => force.token,
            Self::Count(count) => count.token,
            Self::Init(init) => init.token,
            Self::Delete(delete) => delete.token,
            Self::Once(once) => once.token,
            Self::Want(_) | Self::Touch(_) | Self::Open(_) | Self::Close(_) | Self::Drain(_) => {
                Token::NONE
            }
        }
    }

    pub(crate) fn once(&self) -> Option<&Once> {
        match self {
            Self::Once(once) => Some(once),
            _ => None,
        }
    }

    /// The other row that it changes.
    pub(crate) fn second(&self) -> Option<&RowKey> {
        self.once().map(|once| &once.counter)
    }

    /// Whether a missing row is to be created for it.
    pub(crate) fn creates(&self) -> bool {
        matches!(
            self,
            Self::Acquire(_)
                | Self::Count(_)
                | Self::Once(_)
                | Self::Touch(_)
                | Self::Open(_)
                | Self::Share(_)
                | Self::Shut(_)
                | Self::Init(_)
        )
    }

    /// Of a request for several rows: whether its row tells, whenever it is read, what became of it. Of those whose row does not,
    /// another one of their packet does.
    pub(crate) fn tells(&self) -> bool {
        !matches!(self, Self::Open(_) | Self::Downgrade(_))
    }

    /// Of a request for several rows: whether the row that was had, and to which nothing was done, speaks against it.
    pub(crate) fn is_refused_by(&self, row: &RowState) -> bool {
        match self {
            Self::Acquire(acquire) | Self::Shut(acquire) => !row.admits(acquire.gives_way),
            Self::Open(open) => open.is_refused_by(row),
            Self::Downgrade(downgrade) => downgrade.is_refused_by(row),
            Self::Share(_) => !row.is_free(),
            Self::Close(close) => close.is_refused_by(row),
            _ => false,
        }
    }

    /// Whether the outcome cannot be read from the row once others have changed it, and so must be
    /// written down with the batch.
    pub(crate) fn needs_record(&self) -> bool {
        match self {
            Self::Acquire(acquire) => acquire.level.is_some(),
            // Nothing tells an owner's levels apart later on. Any other release is told by the fence that it left
            // as long as nobody has acquired the lock since; its lease knows the rest.
            Self::Release(release) => release.level.is_some(),
            // An id's row says nothing any more once its retention has ended.
            Self::ForceRelease(_)
            | Self::Count(_)
            | Self::Once(_)
            | Self::Init(_)
            | Self::Delete(_) => true,
            // What was freed by force may be held again by the time that somebody reads the row.
            Self::Close(close) => close.forced,
            Self::Renew(_)
            | Self::Want(_)
            | Self::Touch(_)
            | Self::Open(_)
            | Self::Downgrade(_)
            | Self::Share(_)
            | Self::Shut(_)
            | Self::Drain(_) => false,
        }
    }

    /// Whether it may run again although it may have run: its token says what it has done.
    pub(crate) fn is_repeatable(&self) -> bool {
        match self {
            Self::Acquire(acquire) => acquire.level.is_none(),
            Self::Release(release) => release.level.is_none(),
            Self::Renew(_)
            | Self::Want(_)
            | Self::Touch(_)
            | Self::Open(_)
            | Self::Downgrade(_)
            | Self::Share(_)
            | Self::Shut(_)
            | Self::Drain(_) => true,
            Self::ForceRelease(_)
            | Self::Count(_)
            | Self::Once(_)
            | Self::Init(_)
            | Self::Delete(_) => false,
            Self::Close(close) => !close.forced,
        }
    }

    /// Whether it must not wait behind new work: a lease depends on it, or a waiter does.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(self, Self::Renew(_) | Self::Release(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_assignment_reads_what_one_before_it_assigned() {
        for verbs in STATEMENTS {
            for verb in verbs {
                let mut assigned: Vec<&str> = Vec::new();
                for (column, value) in verb.assignments() {
                    for before in &assigned {
                        assert!(
                            !value.contains(&format!("t.{before}")),
                            "{verb:?}: {column} reads {before}"
                        );
                    }
                    assigned.push(column);
                }
            }
        }
        // Carried out together, whatever their order: they read nothing but what they assign themselves.
        for verb in STATEMENTS[0] {
            for (column, value) in verb.assignments() {
                let mut read = value.match_indices("t.").map(|(at, _)| &value[at + 2..]);
                assert!(
                    read.all(|read| read.starts_with(column)),
                    "{verb:?}: {value}"
                );
            }
        }
    }
}
