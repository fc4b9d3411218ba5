//! Locking stripes.

use super::column::Column;
use super::list::{List, Query};
use super::script::Script;
use crate::mutant::{self, Mutant};
use crate::stripe::{Stripe, StripeSet};

/// The mark of the packet that has waited for its stripes.
const LOCKED: &str = "@tag_lock_locked";
/// The mark of the packet that has tried to get stripes.
const TRIED: &str = "@tag_lock_tried";
/// The stripes that a packet has locked, with commas between.
pub(super) const GOT: &str = "@tag_lock_stripes";

impl Script<'_> {
    /// Locks stripes in ascending order, and waits for them.
    pub(super) fn lock_stripes_of(&mut self, stripes: StripeSet) {
        self.stripes(stripes, " FOR UPDATE", LOCKED, None);
    }

    /// Locks those stripes that are free. `waited`: some are locked already.
    pub(super) fn try_stripes_of(&mut self, stripes: StripeSet, waited: bool) {
        let others = waited.then_some(GOT);
        self.stripes(stripes, " FOR UPDATE SKIP LOCKED", TRIED, others);
    }

    /// Locks stripes, and lists those that it has locked behind `others`.
    fn stripes(&mut self, stripes: StripeSet, lock: &str, variable: &str, others: Option<&str>) {
        let stripes: Vec<Stripe> = stripes.iter().collect();
        if stripes.is_empty() {
            return;
        }
        let lock = if mutant::on(Mutant::StripeUnlocked) {
            ""
        } else {
            lock
        };
        let mark = self.mark();
        let list = List::new(&[Column::Name, Column::Mark], &stripes, |row, stripe| {
            row.text(Column::Name, &stripe.to_string())
                .number(Column::Mark, mark)
        });
        // Of one row it is the same, and cheaper.
        let all = if stripes.len() == 1 {
            "MAX"
        } else {
            "GROUP_CONCAT"
        };
        let names = match others {
            None => format!("COALESCE({all}(t.lock_name),'')"),
            Some(others) => format!("CONCAT_WS(',',{others},{all}(t.lock_name))"),
        };
        let marked = self.marked();
        self.statement(|script| {
            list.all().query(
                script,
                Query {
                    // The aggregate makes one row of them, also of none.
                    select: &format!("SELECT {marked},{names} INTO {variable},{GOT}"),
                    table: "t_tag_lock t FORCE INDEX(PRIMARY)",
                    key: "t.lock_name=v.name AND t.kind=0 AND t.slot=0",
                    tail: lock,
                    ..Query::default()
                },
            );
        });
        self.require_mark(variable);
    }
}
