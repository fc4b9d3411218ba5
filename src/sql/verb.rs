//! What can be done to a row: when it is granted, and what its columns become. In the texts `t` is the row and `v` the
//! list; see [`super::change`].

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use super::operation::Operation;
use super::{FOREVER, NOW, NOW_MICROS};
use crate::mutant::{self, Mutant};
use crate::timing::GIVE_WAY;

/// A lock's row is held by the same owner.
const MINE: &str = "(t.holder=v.d AND t.status=1 AND t.deadline>{at})";
/// A counter's value, 0 where its window has ended. The arithmetic is DECIMAL, so that no intermediate value leaves its
/// type (error 1690); that the result fits is what the bounds say.
const VALUE: &str = "CAST(IF(t.deadline<={at},0,t.count) AS DECIMAL(30,0))";

/// A grant answers the wish; whoever waits on repeats it. So nobody lets somebody go first who has gone.
const WISH_ANSWERED: &str = "{at}";

/// What else an acquire asks for that gives way (`v.p`): nobody waits, or the lock has been free for long enough for him to come.
fn give_way() -> String {
    format!(
        " AND (v.p=0 OR t.wanted_until<={{at}} OR t.deadline<=TIMESTAMPADD(MICROSECOND,-{},{{at}}))",
        GIVE_WAY.as_micros()
    )
}

/// What is done to a row. The number stands in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Acquire = 1,
    AcquireLevel,
    Release,
    ReleaseLevel,
    Renew,
    ForceRelease,
    Want,
    Count,
    Touch,
}

/// The verbs that one statement carries out: no two whose assignments would have to stand in different orders.
pub(super) const STATEMENTS: [&[Verb]; 8] = [
    &[Verb::Acquire, Verb::Release],
    &[Verb::AcquireLevel],
    &[Verb::ReleaseLevel],
    &[Verb::Renew],
    &[Verb::ForceRelease],
    &[Verb::Want],
    &[Verb::Count],
    &[Verb::Touch],
];

impl Verb {
    /// `None` for an operation with a statement of its own.
    pub(super) fn of(operation: &Operation) -> Option<Self> {
        Some(match operation {
            Operation::Acquire(acquire) if acquire.level.is_some() => Self::AcquireLevel,
            Operation::Acquire(_) => Self::Acquire,
            Operation::Release(release) if release.level.is_some() => Self::ReleaseLevel,
            Operation::Release(_) => Self::Release,
            Operation::Renew(_) => Self::Renew,
            Operation::ForceRelease(_) => Self::ForceRelease,
            Operation::Want(_) => Self::Want,
            Operation::Count(_) => Self::Count,
            Operation::Once(_) => return None,
            Operation::Touch(_) => Self::Touch,
        })
    }

    /// What one of its columns becomes.
    fn value_of(self, column: &str) -> Option<String> {
        let mut values = self.assignments().into_iter();
        let value = values.find(|(assigned, _)| *assigned == column);
        value.map(|(_, value)| value)
    }

    /// Whether it is granted, from the row `t` as it is.
    fn condition(self) -> String {
        let ended = if mutant::on(Mutant::DeadlineReversed) {
            ">"
        } else {
            "<="
        };
        let free = format!(
            "{{micros}}<=v.t AND ((t.status=0 OR t.deadline{ended}{{at}}){}",
            give_way()
        );
        match self {
            // Free, expired,
            Self::Acquire => format!("{free})"),
            // or held by the same owner.
            Self::AcquireLevel => format!("{free} OR {MINE})"),
            Self::Release | Self::ReleaseLevel if mutant::on(Mutant::ReleaseOfOthers) => {
                "t.status=1".into()
            }
            Self::Release | Self::ReleaseLevel => {
                "t.holder=v.d AND t.status=1 AND t.fence=v.f".into()
            }
            Self::Renew if mutant::on(Mutant::RenewalAfterRelease) => "t.holder=v.d".into(),
            // A lease that has ended is not revived.
            Self::Renew => "t.holder=v.d AND t.status=1 AND t.fence=v.f AND t.deadline>{at}".into(),
            Self::ForceRelease => "t.status<>0 AND t.fence=v.f".into(),
            Self::Count if mutant::on(Mutant::RangeUnchecked) => "t.slot=0".into(),
            Self::Count => format!("{VALUE} BETWEEN v.l AND v.u"),
            // If it is there.
            Self::Want | Self::Touch => "t.slot=0".into(),
        }
    }

    /// What its columns become, in the order in which they are assigned.
    fn assignments(self) -> Vec<(&'static str, String)> {
        let until = |operand: &str| format!("TIMESTAMPADD(MICROSECOND,{operand},{NOW})");
        let fence = if mutant::on(Mutant::FenceNotRaised) {
            "GREATEST(t.fence,v.b)"
        } else {
            "GREATEST(t.fence,{micros})+v.b"
        };
        match self {
            Self::Acquire => vec![
                ("fence", fence.into()),
                ("wanted_until", WISH_ANSWERED.into()),
                ("deadline", until("v.w")),
                ("status", "1".into()),
                ("count", "1".into()),
                ("previous", "v.q".into()),
                ("holder", "v.d".into()),
                ("description", "v.x".into()),
                ("held_by", "v.a".into()),
            ],
            Self::AcquireLevel => vec![
                ("count", format!("IF({MINE},t.count+1,1)")),
                ("fence", format!("IF({MINE},t.fence,{fence})")),
                (
                    "wanted_until",
                    format!("IF({MINE},t.wanted_until,{WISH_ANSWERED})"),
                ),
                (
                    "deadline",
                    format!("IF({MINE},GREATEST(t.deadline,{0}),{0})", until("v.w")),
                ),
                ("status", "1".into()),
                ("previous", "v.q".into()),
                ("holder", "v.d".into()),
                ("description", "v.x".into()),
                ("held_by", "v.a".into()),
            ],
            Self::Release => vec![
                ("fence", "v.g".into()),
                ("deadline", until("v.h")),
                ("status", "IF(v.h>0,2,0)".into()),
                ("count", "0".into()),
                ("previous", "v.q".into()),
            ],
            // Takes one level off; the last one frees the lock.
            Self::ReleaseLevel => vec![
                ("fence", "IF(t.count>1,t.fence,v.g)".into()),
                (
                    "deadline",
                    format!("IF(t.count>1,t.deadline,{})", until("v.h")),
                ),
                ("status", "IF(t.count>1,1,IF(v.h>0,2,0))".into()),
                ("count", "IF(t.count>1,t.count-1,0)".into()),
                ("previous", "v.q".into()),
            ],
            Self::Renew => {
                // Never to an earlier time.
                let mut values =
                    vec![("deadline", format!("GREATEST(t.deadline,{})", until("v.w")))];
                if mutant::on(Mutant::RenewalAfterRelease) {
                    values.push(("status", "1".into()));
                    values.push(("fence", "v.f".into()));
                }
                values
            }
            // The holder's token is replaced: a later release of the old guard finds that the lock is not its own.
            Self::ForceRelease => vec![
                ("holder", "v.d".into()),
                ("status", "0".into()),
                ("count", "0".into()),
                ("deadline", NOW.into()),
            ],
            Self::Want => vec![(
                "wanted_until",
                format!("GREATEST(t.wanted_until,{})", until("v.w")),
            )],
            Self::Count => vec![
                ("previous", VALUE.into()),
                (
                    "count",
                    format!(
                        "v.c*{VALUE}+CAST(v.s AS DECIMAL(30,0))*IF(v.m=1,1,\
                         LEAST(ABS({VALUE}-v.e),v.m*ABS(CAST(v.s AS DECIMAL(30,0)))) \
                         DIV ABS(CAST(v.s AS DECIMAL(30,0))))"
                    ),
                ),
                (
                    "deadline",
                    format!(
                        "IF(v.z=1 OR t.deadline<={{at}} OR (v.w>0 AND t.deadline={FOREVER}),\
                         IF(v.w>0,{},{FOREVER}),t.deadline)",
                        until("v.w")
                    ),
                ),
                ("status", "1".into()),
                ("holder", "v.d".into()),
            ],
            Self::Touch => vec![],
        }
    }
}

/// One expression for several verbs: for each of them what `say` gives, and `otherwise` for those for which it gives nothing.
fn by_verb(verbs: &[Verb], say: impl Fn(Verb) -> Option<String>, otherwise: &str) -> String {
    let said: Vec<Option<String>> = verbs.iter().map(|verb| say(*verb)).collect();
    match said.first() {
        Some(Some(first)) if said.iter().all(|other| other.as_ref() == Some(first)) => {
            first.clone()
        }
        _ if said.iter().all(Option::is_none) => otherwise.to_owned(),
        _ => {
            let mut text = String::from("CASE v.o");
            for (verb, said) in verbs.iter().zip(said) {
                if let Some(said) = said {
                    text.push_str(&format!(" WHEN {} THEN {said}", *verb as u8));
                }
            }
            format!("{text} ELSE {otherwise} END")
        }
    }
}

/// Replaces the time at which it is decided: the statement's own, or the one that it left.
fn timed(template: &str, at: &str, micros: &str) -> String {
    template.replace("{at}", at).replace("{micros}", micros)
}

/// The texts for each set of verbs. There are some dozens, and a packet needs two or three of them.
static TEXTS: LazyLock<RwLock<HashMap<Key, Arc<str>>>> = LazyLock::new(RwLock::default);

/// Which text, and for which verbs (a bit each).
type Key = (Text, u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Text {
    /// For a single row or several, with this mark.
    Decision(bool, &'static str),
    Assignments,
}

fn text(text: Text, verbs: &[Verb], write: impl FnOnce() -> String) -> Arc<str> {
    let set = verbs.iter().fold(0, |set, verb| set | 1 << *verb as u16);
    let key = (text, set);
    let known = TEXTS.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.get(&key) {
        return Arc::clone(known);
    }
    drop(known);
    let mut texts = TEXTS.write().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(texts.entry(key).or_insert_with(|| write().into()))
}

/// Selects what becomes of the rows of a list, which is a single one or several; and `marked`, the packet's mark.
pub(super) fn decision(verbs: &[Verb], single: bool, marked: &'static str) -> Arc<str> {
    text(Text::Decision(single, marked), verbs, || {
        let now = |template: &str| timed(template, NOW, NOW_MICROS);
        let granted = now(&by_verb(verbs, |verb| Some(verb.condition()), "0"));
        // What becomes of a counter, with its arithmetic, is told from here; the rest follows from the row before.
        let becomes = |column: &str| {
            let old = format!("t.{column}");
            let count = verbs.contains(&Verb::Count) && matches!(column, "count" | "previous");
            match Verb::Count.value_of(column).filter(|_| count) {
                Some(value) => {
                    let (verb, value) = (Verb::Count as u8, now(&value));
                    format!("IF(v.o={verb} AND {granted},{value},{old})")
                }
                None => old,
            }
        };
        let state = super::packet::state("", becomes);
        // Of one row it is the same, and cheaper.
        let all = if single { "MAX" } else { "GROUP_CONCAT" };
        format!(
            "SELECT {marked},{NOW},{NOW_MICROS},COALESCE({all}(IF({granted},v.i,NULL)),''),\
             CONCAT({NOW_MICROS},';',COALESCE({all}({state}),'')) \
             INTO @tag_lock_decided,@tag_lock_now,@tag_lock_micros,@tag_lock_granted,@tag_lock_rows"
        )
    })
}

/// Assigns what becomes of the rows' columns.
pub(super) fn assignments(verbs: &[Verb]) -> Arc<str> {
    text(Text::Assignments, verbs, || {
        let mut columns: Vec<&str> = Vec::new();
        for (column, _) in verbs.iter().flat_map(|verb| verb.assignments()) {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        let mut text = format!("t_tag_lock.modify_time={NOW}");
        for column in columns {
            let value = by_verb(verbs, |verb| verb.value_of(column), &format!("t.{column}"));
            let value = timed(&value, "@tag_lock_now", "@tag_lock_micros");
            let value = value.replace("t.", "t_tag_lock.");
            text.push_str(&format!(",t_tag_lock.{column}={value}"));
        }
        text
    })
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
