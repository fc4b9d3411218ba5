//! What becomes of the requests of a packet that was committed.

use super::Lane;
use crate::clock::Moment;
use crate::engine::group::Group;
use crate::engine::stage::{Case, How, Next, Stage, next};
use crate::error::Error;
use crate::sql::reply::{Reply, RowState};
use crate::stripe::StripeSet;

impl Lane {
    /// Ends the groups of a batch that was committed, or sends them to where they can end.
    /// `waited`: the stripes for which its packet waited, if it did.
    pub(super) async fn conclude(
        &mut self,
        waited: Option<StripeSet>,
        reply: Reply,
        late: bool,
        sent: Moment,
    ) {
        let mut look = Vec::new();
        // From the end, so that the others keep their positions in the packet.
        while let Some(group) = self.batch.pop() {
            let row = reply.rows.get(self.batch.len()).and_then(Option::as_ref);
            let how = match self.manner.had(&group, waited) {
                true => How::Packet,
                false => How::Glance,
            };
            self.shared.note_crowd(&group, row, reply.server_now);
            let looked = self.proceed(group, row, how, late, sent);
            look.extend(looked);
        }
        self.link.has_concluded();
        if look.is_empty() {
            return;
        }
        // The packet did nothing for these, and does not say why: their rows do, which are read without a lock. They can run again.
        self.batch = look;
        let rows: Vec<_> = self.batch.iter().map(|group| group.row(false)).collect();
        let Some(reply) = self.link.read(&rows).await else {
            let batch = std::mem::take(&mut self.batch);
            self.shared.put(batch, Some(self.kind));
            return;
        };
        while let Some(group) = self.batch.pop() {
            let row = reply.rows.get(self.batch.len()).and_then(Option::as_ref);
            let Some(mut group) = self.proceed(group, row, How::Look, late, sent) else {
                continue;
            };
            if self.link.has_stripe(&group.key).await {
                // It was there, and a purge has taken it since.
                group.go(Stage::Create);
                self.shared.put([group], Some(self.kind));
            } else {
                group.fail(&Error::NotMigrated {
                    source: sqlx::Error::RowNotFound.into(),
                });
            }
        }
    }

    /// Does what comes next for a group; gives it back if more must be known.
    fn proceed(
        &self,
        mut group: Group,
        row: Option<&RowState>,
        how: How,
        late: bool,
        sent: Moment,
    ) -> Option<Group> {
        let case = Case {
            operation: &group.operation,
            stage: group.course.stage,
            tries: group.course.tries,
            row,
            how,
            late,
            others_create: self.shared.others_create(),
        };
        let next = next(case);
        group.course.note(case.stage, how, row);
        match next {
            Next::Answer(outcome) => self.shared.answer(group, &outcome, sent, false),
            Next::Go(_) if group.course.guessed => {
                // Its row was only guessed to be missing. This packet takes the place of the first attempt, at `Stage::Try`, that it
                // skipped: it stays at its stage.
                group.course.guessed = false;
                self.shared.put([group], Some(self.kind));
            }
            Next::Go(stage) => {
                group.go(stage);
                self.shared.put([group], Some(self.kind));
            }
            Next::Retry => {
                group.course.tries += 1;
                self.shared.put([group], Some(self.kind));
            }
            Next::Look | Next::FindStripe => return Some(group),
        }
        None
    }
}
