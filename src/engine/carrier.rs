//! The link of those who want several rows at once: it carries one packet at a time, as lanes carry batches.
//!
//! What becomes of a request stands in [`super::together`], and which go together in one packet in [`super::load`]. A packet may wait for the
//! stripes of all rows that it creates, so no lane sends it. Those that wait for a row that a transaction may hold have carriers of their own,
//! which take one at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::WAITING;
use super::backoff::Backoff;
use super::gather::MAX_ROWS;
use super::link::{Link, Numbered, Sent};
use super::load::{Load, Room, take};
use super::shared::Shared;
use super::supervise::survives;
use crate::clock::Moment;
use crate::error::Error;
use crate::sql::packet::{Mode, RowOperation, StripeUse};
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

/// Where packets are handed over.
#[derive(Clone)]
pub(super) struct Carriers {
    /// Of those that wait for no row.
    plain: mpsc::UnboundedSender<Errand>,
    waiting: mpsc::UnboundedSender<Errand>,
    /// One for each carrier of those that wait.
    places: Arc<Semaphore>,
}

impl Carriers {
    /// A place for a packet that waits for a row, if one is free: then no other one stands before it.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Hands a packet over; false if none is sent any more.
    pub(super) fn send(&self, errand: Errand) -> bool {
        let carriers = match errand.mode {
            Mode::Queue => &self.waiting,
            _ => &self.plain,
        };
        carriers.send(errand).is_ok()
    }
}

impl Errand {
    fn tell(self, sent: Sent) {
        // Who asked may have gone away.
        drop(self.told.send(sent.into()));
    }

    /// Its packet may have run: it finds out about its own rows.
    fn lose(self, numbered: Numbered) {
        let rows = self.rows.len();
        self.tell(Sent::Unknown(Numbered { rows, ..numbered }));
    }
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
    errands: Arc<Mutex<mpsc::UnboundedReceiver<Errand>>>,
    /// Others take of the same errands: it takes one at a time.
    one_of_several: bool,
    /// What came while a packet was under way, in its order.
    waiting: VecDeque<Errand>,
    link: Link,
    /// What it carries.
    carries: Vec<Errand>,
    /// So many go together at most: fewer after a packet that the server undid, since one of them may be the reason.
    most: usize,
    conflicts: Backoff,
}

/// Starts them, for as long as anybody may send.
pub(super) fn start(shared: &Arc<Shared>) -> Carriers {
    Carriers {
        plain: start_some(shared, 1),
        waiting: start_some(shared, WAITING),
        places: Arc::new(Semaphore::new(WAITING)),
    }
}

fn start_some(shared: &Arc<Shared>, how_many: usize) -> mpsc::UnboundedSender<Errand> {
    let (sender, errands) = mpsc::unbounded_channel();
    let errands = Arc::new(Mutex::new(errands));
    // The server ends a wait for a stripe or a row before: an outcome that is known.
    let limit = shared.options.packet_limit + LOCK_WAIT;
    for _ in 0..how_many {
        let carrier = Carrier {
            link: Link::new(Arc::clone(shared), limit),
            shared: Arc::clone(shared),
            errands: Arc::clone(&errands),
            one_of_several: how_many > 1,
            waiting: VecDeque::new(),
            carries: Vec::new(),
            most: MAX_ROWS,
            conflicts: Backoff::conflict(),
        };
        let closed = shared.closed.clone();
        shared.spawn_helper(async move {
            let _ = closed.run_until_cancelled(carrier.run()).await;
        });
    }
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
        // Without a packet under way nothing was sent: dropping the errand tells that to who asked.
        for errand in self.carries.drain(..) {
            if let Some(numbered) = under_way {
                errand.lose(numbered);
            }
        }
    }

    async fn work(&mut self) {
        loop {
            if self.waiting.is_empty() {
                let errands = Arc::clone(&self.errands);
                let next = async { errands.lock().await.recv().await };
                let errand = tokio::select! {
                    biased;
                    errand = next => errand,
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
                self.waiting.push_back(errand);
            }
            self.take_all();
            let closing = self.shared.closing.is_cancelled();
            self.waiting.retain(|errand| {
                !closing && !errand.given_up.is_cancelled() && !errand.expires.has_passed()
            });
            let rows = self.waiting.iter().map(|errand| errand.rows.len()).sum();
            let room = Room {
                errands: self.most,
                rows: self.link.rows(rows),
                bytes: self.link.room(),
            };
            self.carries = take(&mut self.waiting, room);
            self.carry().await;
            self.link.pass_on();
        }
    }

    /// Takes what has come meanwhile.
    fn take_all(&mut self) {
        if !self.one_of_several
            && let Ok(mut errands) = self.errands.try_lock()
        {
            while let Ok(errand) = errands.try_recv() {
                self.waiting.push_back(errand);
            }
        }
    }

    async fn carry(&mut self) {
        let Some(mode) = self.carries.first().map(|errand| errand.mode) else {
            return;
        };
        let load = Load::of(&self.carries);
        match self.link.send(&load.rows, mode).await {
            Sent::Ran { reply, late, sent } => {
                self.shared.reached();
                self.most = (self.most * 2).min(MAX_ROWS);
                self.conflicts.reset();
                let looks = |(number, errand): (usize, &Errand)| {
                    errand.looks && load.part(number, &reply.rows).contains(&None)
                };
                let seen = if self.carries.iter().enumerate().any(looks) {
                    self.link.read(&load.rows).await
                } else {
                    None
                };
                let lacks_stripe = self.lacks_stripe(&load.rows, seen.as_ref()).await;
                for (number, errand) in self.carries.drain(..).enumerate() {
                    let part = |reply: &Reply| Reply {
                        server_now: reply.server_now,
                        rows: load.part(number, &reply.rows),
                    };
                    let reply = part(&reply);
                    let looks = errand.looks && reply.rows.contains(&None);
                    let carried = Carried {
                        seen: seen.as_ref().filter(|_| looks).map(part),
                        lacks_stripe: lacks_stripe && looks,
                        sent: Sent::Ran { reply, late, sent },
                    };
                    drop(errand.told.send(carried));
                }
                self.link.has_concluded();
            }
            Sent::Unknown(numbered) => {
                self.link.give_up_identity();
                for errand in self.carries.drain(..) {
                    errand.lose(numbered);
                }
            }
            Sent::RolledBack {
                meaning,
                error,
                locked,
            } => self.rolled_back(meaning, error, locked).await,
            Sent::Offline(cause) => {
                self.link.close();
                if !cause.is_hopeless() {
                    self.shared.unreachable(&cause);
                }
                for errand in self.carries.drain(..) {
                    errand.tell(Sent::Offline(cause.clone()));
                }
            }
        }
    }

    /// The server has undone the packet.
    async fn rolled_back(&mut self, meaning: Meaning, error: sqlx::Error, locked: bool) {
        let away = matches!(meaning, Meaning::ReadOnly | Meaning::Gone);
        if away {
            // Another server may take it.
            self.link.close();
            self.shared.unreachable(&error);
        }
        let several = self.carries.len();
        if several == 1 {
            if let Some(errand) = self.carries.pop() {
                errand.tell(Sent::RolledBack {
                    meaning,
                    error,
                    locked,
                });
            }
        } else if away {
            let cause = Error::from_sqlx(error);
            for errand in self.carries.drain(..) {
                errand.tell(Sent::Offline(cause.clone()));
            }
        } else {
            // One of them may be the reason: half of them, until it stands alone.
            self.most = several / 2;
            for errand in self.carries.drain(..).rev() {
                self.waiting.push_front(errand);
            }
            tokio::time::sleep(self.conflicts.delay()).await;
        }
    }

    /// Whether the stripe is gone of a row that is missing although the packet has waited for that.
    async fn lacks_stripe(&mut self, rows: &[RowOperation], seen: Option<&Reply>) -> bool {
        let seen = seen.map(|seen| seen.rows.iter()).into_iter().flatten();
        let missing = |(row, seen): &(&RowOperation, &Option<RowState>)| {
            row.create && row.stripes == StripeUse::Wait && seen.is_none()
        };
        match rows.iter().zip(seen).find(missing) {
            Some((row, _)) => !self.link.has_stripe(&row.key).await,
            None => false,
        }
    }
}
