//! The texts of what decides and what changes, for each set of verbs. There are some dozens, and a packet needs two or three of
//! them. In the texts `t` is the row and `v` the list; see [`super::change`].

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use super::operation::Verb;
use super::{NOW, NOW_MICROS};

/// One expression for several verbs: for each of them what `say` gives, and `otherwise` for those for which it gives nothing.
fn by_verb(verbs: &[Verb], say: impl Fn(Verb) -> Option<String>, otherwise: &str) -> String {
    let said: Vec<Option<String>> = verbs.iter().map(|verb| say(*verb)).collect();
    match said.first() {
        Some(Some(first)) if said.iter().all(|other| other.as_ref() == Some(first)) => {
            first.clone()
        }
        _ if said.iter().all(Option::is_none) => otherwise.to_owned(),
        _ => {
            let mut text = String::from("CASE v.verb");
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

static TEXTS: LazyLock<RwLock<HashMap<Key, Arc<str>>>> = LazyLock::new(RwLock::default);

/// Which text, and for which verbs (a bit each).
type Key = (Text, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Text {
    /// For a single row or several, with this mark.
    Decision(bool, &'static str),
    Assignments,
}

fn text(text: Text, verbs: &[Verb], write: impl FnOnce() -> String) -> Arc<str> {
    let set = verbs.iter().fold(0, |set, verb| set | 1 << *verb as u32);
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
        // So are the levels of an owner, of which those that are dead do not count.
        let becomes = |column: &str| {
            let levels = verbs.contains(&Verb::ReleaseLevel) && column == "count";
            let old = if levels {
                let (verb, levels) = (Verb::ReleaseLevel as u8, now(&Verb::levels()));
                format!("IF(v.verb={verb},{levels},t.count)")
            } else {
                format!("t.{column}")
            };
            let count = verbs.contains(&Verb::Count) && matches!(column, "count" | "previous");
            match Verb::Count.value_of(column).filter(|_| count) {
                Some(value) => {
                    let (verb, value) = (Verb::Count as u8, now(&value));
                    format!("IF(v.verb={verb} AND {granted},{value},{old})")
                }
                None => old,
            }
        };
        let state = super::packet::state("", becomes);
        // Of one row it is the same, and cheaper.
        let all = if single { "MAX" } else { "GROUP_CONCAT" };
        // A shared hold and its door have one fencing token, above all before.
        let (highest, fence) = if verbs.contains(&Verb::Share) {
            (",COALESCE(MAX(t.fence),0)", ",@tag_lock_fence")
        } else {
            ("", "")
        };
        format!(
            "SELECT {marked},{NOW},{NOW_MICROS},COALESCE({all}(IF({granted},v.position,NULL)),''),\
             CONCAT({NOW_MICROS},';',COALESCE({all}({state}),'')){highest} \
             INTO @tag_lock_decided,@tag_lock_now,@tag_lock_micros,@tag_lock_granted,@tag_lock_rows{fence}"
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
