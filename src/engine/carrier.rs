//! The link of those who want several rows at once: it carries one packet at a time, for one of them, as lanes carry batches.
//!
//! What becomes of a request stands in [`super::together`]. A packet may wait for the stripes of all rows that it creates, so no lane
//! sends it.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::link::{Link, Sent};
use super::shared::Shared;
use super::supervise::survives;
use crate::clock::Moment;
use crate::sql::packet::{Mode, RowOperation, Stripes};
use crate::sql::reply::{Reply, RowState};
use crate::sql::server_error::Meaning;
use crate::timing::{IDLE_WAITING, LOCK_WAIT};

/// A packet to be carried: the operations on these rows are carried out, all or none.
pub(super) struct Errand {
    pub(super) rows: Vec<RowOperation>,
    pub(super) mode: Mode,
    /// Rows that it does not have are read then, without a lock.
    pub(super) looks: bool,
    /// It is not sent after this, or when nobody wants it any more.
    pub(super) expires: Moment,
    pub(super) given_up: CancellationToken,
    /// Who asked may have gone away. He hears nothing of what was not sent.
    pub(super) told: oneshot::Sender<Carried>,
}

/// What became of it.
pub(super) struct Carried {
    pub(super) sent: Sent,
    /// All rows as they were read behind the packet, if that did not have all of them.
    pub(super) seen: Option<Reply>,
    /// A row could not be created, since its stripe is missing.
    pub(super) lacks_stripe: bool,
}

impl From<Sent> for Carried {
    fn from(sent: Sent) -> Self {
        Self {
            sent,
            seen: None,
            lacks_stripe: false,
        }
    }
}

struct Carrier {
    shared: Arc<Shared>,
    errands: mpsc::UnboundedReceiver<Errand>,
    link: Link,
    /// Who waits to hear what became of the packet that it carries.
    carries: Option<oneshot::Sender<Carried>>,
}

/// Starts it, for as long as anybody may send.
pub(super) fn start(shared: &Arc<Shared>) -> mpsc::UnboundedSender<Errand> {
    let (sender, errands) = mpsc::unbounded_channel();
    // The server ends a wait for a stripe before: an outcome that is known.
    let limit = shared.options.packet_limit + LOCK_WAIT;
    let carrier = Carrier {
        link: Link::new(Arc::clone(shared), limit),
        shared: Arc::clone(shared),
        errands,
        carries: None,
    };
    let closed = shared.closed.clone();
    shared.spawn_helper(async move {
        let _ = closed.run_until_cancelled(carrier.run()).await;
    });
    sender
}

impl Carrier {
    async fn run(mut self) {
        let mut pauses = Backoff::connecting();
        while !survives("the carrier of groups", self.work()).await {
            self.recover();
            tokio::time::sleep(pauses.delay()).await;
        }
    }

    /// After a panic: who waits settles what may have run.
    fn recover(&mut self) {
        let under_way = self.link.under_way();
        self.link.give_up_identity();
        // Without a packet under way it hears that there was none.
        if let (Some(carries), Some(numbered)) = (self.carries.take(), under_way) {
            drop(carries.send(Sent::Unknown(numbered).into()));
        }
    }

    async fn work(&mut self) {
        loop {
            let errand = tokio::select! {
                biased;
                errand = self.errands.recv() => errand,
                () = self.shared.pool.wanted(), if self.link.is_open() => {
                    self.link.pass_on();
                    continue;
                }
                () = tokio::time::sleep(IDLE_WAITING), if self.link.is_open() => {
                    self.link.close();
                    continue;
                }
            };
            let Some(errand) = errand else {
                return;
            };
            self.carry(errand).await;
            self.link.pass_on();
        }
    }

    async fn carry(&mut self, errand: Errand) {
        let Errand {
            rows,
            mode,
            looks,
            expires,
            given_up,
            told,
        } = errand;
        let closing = self.shared.closing.is_cancelled();
        if closing || given_up.is_cancelled() || expires.has_passed() {
            return;
        }
        self.carries = Some(told);
        let mut carried = Carried::from(self.link.send(&rows, mode).await);
        match &carried.sent {
            Sent::Ran { reply, .. } => {
                self.shared.reached();
                if looks && reply.rows.contains(&None) {
                    carried.seen = self.link.read(&rows).await;
                    carried.lacks_stripe = self.lacks_stripe(&rows, carried.seen.as_ref()).await;
                }
                self.link.has_concluded();
            }
            Sent::Unknown(_) => self.link.give_up_identity(),
            // Another server may take it.
            Sent::RolledBack {
                meaning: Meaning::ReadOnly | Meaning::Gone,
                error,
                ..
            } => {
                self.link.close();
                self.shared.unreachable(error);
            }
            Sent::RolledBack { .. } => {}
            Sent::Offline(cause) => {
                self.link.close();
                if !cause.is_hopeless() {
                    self.shared.unreachable(cause);
                }
            }
        }
        if let Some(told) = self.carries.take() {
            drop(told.send(carried));
        }
    }

    /// Whether the stripe is gone of a row that is missing although the packet has waited for that.
    async fn lacks_stripe(&mut self, rows: &[RowOperation], seen: Option<&Reply>) -> bool {
        let seen = seen.map(|seen| seen.rows.iter()).into_iter().flatten();
        let missing = |(row, seen): &(&RowOperation, &Option<RowState>)| {
            row.create && row.stripes == Stripes::Wait && seen.is_none()
        };
        match rows.iter().zip(seen).find(missing) {
            Some((row, _)) => !self.link.has_stripe(&row.key).await,
            None => false,
        }
    }
}
