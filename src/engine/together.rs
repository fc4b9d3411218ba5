//! Several rows at once, all or none: several locks; or a shared hold and its door. And one door that is to be shut.
//!
//! Each request runs in a task of its own, which sends its packets through the [carrier](super::carrier) until one of them says what
//! became of it. A packet grants all or nothing, in one transaction; so a request that was refused holds nothing, and one whose reply
//! was lost is settled as a whole: its token stands in all rows, or in none.
//!
//! ```text
//!   send ──▶ all granted ───────────────────────────────▶ granted
//!    ▲       one is somebody else's ────────────────────▶ refused
//!    ├────── some are missing: the next packet creates them
//!    └────── some were passed over: again as a whole, after a pause with jitter; a shared hold that is waited for waits for its door first
//! ```
//!
//! Two requests that each have one half and pass over the other would go on for ever without the jitter.

mod course;
mod patience;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::sync::CancellationToken;

use self::course::TogetherCourse;
pub(crate) use self::patience::RowPatience;
use super::backoff::Backoff;
use super::carrier::{Carried, Carriers, Errand};
use super::link::{Numbered, Sent};
use super::outcome::{Judgment, Outcome};
use super::request::{Member, ReplyTo, Request};
use super::settle::{Settled, attempt};
use super::shared::Shared;
use super::supervise::survives;
use crate::clock::Moment;
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::quietly::quietly;
use crate::sql::operation::{Operation, Release};
use crate::sql::packet::{Mode, RowOperation};
use crate::sql::reply::RowState;
use crate::sql::row::RowKey;
use crate::sql::server_error::{Meaning, code_of};
use crate::telemetry;

/// Asks for several rows, all or none.
pub(crate) struct Together {
    /// In the order of all packets, each once; those that have a token have one.
    pub(crate) rows: Vec<(RowKey, Operation)>,
    pub(crate) mode: Mode,
    /// It may wait for the first row, when that was passed over: [`Mode::Queue`].
    pub(crate) patience: Option<Arc<RowPatience>>,
    /// After this nothing is sent any more.
    pub(crate) expires: Moment,
    /// Nobody wants it any more.
    pub(crate) given_up: CancellationToken,
    /// Is told what came of it. It runs in the request's task.
    pub(crate) told: Box<dyn FnOnce(Result<Taken, Error>) + Send>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All are ours: what the rows say that [tell](Operation::tells), in their order, by a packet that was sent then.
    Granted(Vec<Outcome>, Moment),
    /// Nothing was taken. The rows as they were seen; `None` where one was passed over.
    Refused(Vec<Option<RowState>>),
}

/// What is known of the rows after a packet, or after a look at them.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// All are ours.
    Granted(Vec<Outcome>),
    /// These are ours, by position and fence, and others are not: they were freed by force while nobody knew of the grant.
    Part(Vec<(usize, u64)>),
    /// Somebody else has one of them, or has it next.
    Held,
    /// Nothing speaks against it. Those at these positions were not had.
    Open(Vec<usize>),
}

/// Judges a request by its rows.
fn judge(rows: &[(RowKey, Operation)], states: &[Option<RowState>]) -> Seen {
    let fences = states.iter().flatten().map(|state| state.fence);
    let highest = fences.max().unwrap_or_default();
    let mut granted = Vec::new();
    let mut ours = Vec::new();
    let mut open = Vec::new();
    let mut held = false;
    for (position, (_, operation)) in rows.iter().enumerate() {
        let state = states.get(position).and_then(Option::as_ref);
        match (operation.judge_among(state, highest), state) {
            (
                Judgment::Final(
                    outcome @ Outcome::Granted {
                        fence, remaining, ..
                    },
                ),
                _,
            ) if remaining > 0 => {
                granted.push(outcome);
                ours.push((position, fence));
            }
            (Judgment::Final(outcome @ Outcome::Released { .. }), Some(_)) => granted.push(outcome),
            (_, Some(state)) => held |= !state.granted && operation.is_refused_by(state),
            (_, None) => open.push(position),
        }
    }
    if mutant::on(Mutant::GroupUnchecked) && !granted.is_empty() {
        return Seen::Granted(as_if_all_were(rows, states));
    }
    let tell = rows.iter().filter(|(_, operation)| operation.tells());
    if granted.len() == tell.count() {
        Seen::Granted(granted)
    } else if !ours.is_empty() {
        Seen::Part(ours)
    } else if held {
        Seen::Held
    } else {
        Seen::Open(open)
    }
}

/// What a mutant believes: whoever was granted one lock has all.
fn as_if_all_were(rows: &[(RowKey, Operation)], states: &[Option<RowState>]) -> Vec<Outcome> {
    let believed = |((_, operation), state): (&(RowKey, Operation), &Option<RowState>)| match (
        operation.judge(state.as_ref()),
        operation,
    ) {
        (Judgment::Final(outcome @ Outcome::Granted { .. }), _) => Some(outcome),
        (_, Operation::Acquire(acquire)) => Some(Outcome::Granted {
            fence: state.map_or(1, |state| state.fence + 1),
            remaining: acquire.ttl,
            until: state.map_or(0, |state| state.at) + acquire.ttl,
            wanted: 0,
        }),
        _ => None,
    };
    rows.iter().zip(states).filter_map(believed).collect()
}

/// A request on its way.
struct Task {
    shared: Arc<Shared>,
    carriers: Carriers,
    rows: Vec<(RowKey, Operation)>,
    mode: Mode,
    patience: Option<Arc<RowPatience>>,
    expires: Moment,
    given_up: CancellationToken,
    course: TogetherCourse,
    /// A packet of its that may have run.
    unsettled: Option<Numbered>,
    /// Why the last attempt came to nothing.
    cause: Option<Error>,
    pauses: Backoff,
    connecting: Backoff,
    result: Option<Result<Taken, Error>>,
}

/// Runs a request until it is known what became of it, however long that takes if a packet may have run.
pub(super) async fn run(shared: Arc<Shared>, carriers: Carriers, together: Together) {
    let Together {
        rows,
        mode,
        patience,
        expires,
        given_up,
        told,
    } = together;
    // The engine's lanes go on until the releases have been sent that may follow.
    let _under_way = shared.enter();
    let mut task = Task {
        shared,
        carriers,
        rows,
        mode,
        patience,
        expires,
        given_up,
        course: TogetherCourse::default(),
        unsettled: None,
        cause: None,
        pauses: Backoff::conflict(),
        connecting: Backoff::connecting(),
        result: None,
    };
    let mut pauses = Backoff::connecting();
    while !survives("a request for several locks", task.work()).await {
        tokio::time::sleep(pauses.delay()).await;
    }
    let result = task.result.take().unwrap_or(Err(Error::Closed));
    quietly(|| told(result));
}

impl Task {
    async fn work(&mut self) {
        while self.result.is_none() {
            self.result = self.step().await;
        }
    }

    /// Sends a packet, or settles one; what the request came to, if that is known then.
    async fn step(&mut self) -> Option<Result<Taken, Error>> {
        if let Some(numbered) = self.unsettled {
            let settled = self.settle(numbered).await;
            if settled.is_none() {
                self.pause().await;
            }
            return settled;
        }
        if let Some(why) = self.ends() {
            return Some(why);
        }
        let every_stripe = self.shared.options.every_stripe;
        let first = self.course == TogetherCourse::default();
        let (told, carried) = oneshot::channel();
        let place = self.place_in_the_queue();
        let mode = place.as_ref().map_or(self.mode, |_| Mode::Queue);
        let errand = Errand {
            rows: self.course.rows(&self.rows, every_stripe),
            mode,
            looks: !first,
            expires: self.expires,
            given_up: self.given_up.clone(),
            told,
        };
        if !self.carriers.send(errand) {
            return Some(Err(Error::Closed));
        }
        // Without an answer nothing was sent.
        let carried = carried.await;
        if place.is_some()
            && let Some(patience) = &self.patience
        {
            patience.end_to_queue();
        }
        drop(place);
        let Ok(carried) = carried else {
            self.pause().await;
            return None;
        };
        self.carried(carried, mode, first).await
    }

    /// A place among those whose packets wait for a row, if the next one is to do so. Each has a connection to itself, so there are few; whoever finds
    /// none asks again after a pause.
    fn place_in_the_queue(&self) -> Option<OwnedSemaphorePermit> {
        let patience = self.patience.as_ref()?;
        let may_wait = self.course.was_passed_over()
            && !self.shared.options.every_stripe
            && !self.shared.pool.is_short();
        if !may_wait {
            return None;
        }
        let place = self.carriers.place()?;
        patience.begin_to_queue().then_some(place)
    }

    /// Why it is sent no more.
    fn ends(&mut self) -> Option<Result<Taken, Error>> {
        if self.shared.closing.is_cancelled() {
            return Some(Err(Error::Closed));
        }
        if self.given_up.is_cancelled() {
            return Some(Ok(Taken::Refused(Vec::new())));
        }
        let name = || self.rows.first().map(|(key, _)| key.name.to_string());
        self.expires.has_passed().then(|| {
            let name = name().unwrap_or_default();
            Err(self.cause.take().unwrap_or(Error::Overloaded { name }))
        })
    }

    async fn carried(
        &mut self,
        carried: Carried,
        mode: Mode,
        first: bool,
    ) -> Option<Result<Taken, Error>> {
        match carried.sent {
            Sent::Ran { reply, late, sent } => {
                self.cause = None;
                let seen = judge(&self.rows, &reply.rows);
                let Seen::Open(not_had) = seen else {
                    return self.conclude(reply.rows, true, &[], sent).await;
                };
                // As a rule they are missing; if they are locked, the next packet looks.
                if first && self.course.guess(not_had) {
                    return None;
                }
                if carried.lacks_stripe {
                    let source = sqlx::Error::RowNotFound.into();
                    return Some(Err(Error::NotMigrated { source }));
                }
                if late {
                    // Refused by a clock that has been corrected since.
                    self.pause().await;
                    return None;
                }
                match carried.seen {
                    Some(seen) => {
                        let states = merged(&reply.rows, &seen.rows);
                        self.conclude(states, true, &reply.rows, sent).await
                    }
                    None => {
                        let had_all = !reply.rows.contains(&None);
                        self.conclude(reply.rows, had_all, &[], sent).await
                    }
                }
            }
            Sent::Unknown(numbered) => {
                self.unsettled = Some(numbered);
                None
            }
            // A transaction keeps the row for longer than a packet waits.
            Sent::RolledBack { locked: true, .. } if mode == Mode::Queue => {
                Some(Ok(Taken::Refused(vec![None; self.rows.len()])))
            }
            Sent::RolledBack { meaning, error, .. } => {
                match meaning {
                    Meaning::Conflict => telemetry::conflict(&error),
                    Meaning::ReadOnly | Meaning::Gone => {}
                    Meaning::Hopeless | Meaning::Refused | Meaning::NumberUsed => {
                        return Some(Err(Error::from_sqlx(error)));
                    }
                }
                self.cause = Some(Error::from_sqlx(error));
                if meaning == Meaning::Conflict {
                    self.pause().await;
                } else {
                    let delay = self.connecting.delay();
                    self.rest(delay).await;
                }
                None
            }
            Sent::Offline(cause) if cause.is_hopeless() => Some(Err(cause)),
            Sent::Offline(cause) => {
                self.cause = Some(cause);
                let delay = self.connecting.delay();
                self.rest(delay).await;
                None
            }
        }
    }

    /// Goes by what the rows say. `looked`: those that are not there are missing. `had`: those that the packet had, if they were read behind it.
    async fn conclude(
        &mut self,
        states: Vec<Option<RowState>>,
        looked: bool,
        had: &[Option<RowState>],
        sent: Moment,
    ) -> Option<Result<Taken, Error>> {
        match judge(&self.rows, &states) {
            Seen::Granted(grants) => return Some(Ok(Taken::Granted(grants, sent))),
            Seen::Held => return Some(Ok(Taken::Refused(states))),
            Seen::Part(ours) => {
                // Whoever asks again does so with another token.
                self.give_back(&ours);
                return Some(Ok(Taken::Refused(states)));
            }
            Seen::Open(missing) => {
                let missing = if looked {
                    missing
                } else {
                    self.course.missing.clone()
                };
                self.course.guessed = false;
                if !self.course.again(missing) {
                    let was_had = |at: usize| had.get(at).is_none_or(Option::is_some);
                    let states = states.into_iter().enumerate();
                    let states = states.map(|(at, state)| state.filter(|_| was_had(at)));
                    return Some(Ok(Taken::Refused(states.collect())));
                }
            }
        }
        self.pause().await;
        None
    }

    /// Finds out what became of a packet whose reply was lost.
    async fn settle(&mut self, numbered: Numbered) -> Option<Result<Taken, Error>> {
        let rows: Vec<(usize, RowOperation)> = self
            .course
            .rows(&self.rows, false)
            .into_iter()
            .enumerate()
            .collect();
        let mut backoff = Backoff::connecting();
        let mut session = None;
        let settled = loop {
            match attempt(&self.shared, &mut session, numbered, &rows).await {
                Ok(settled) => break settled,
                Err(error) => {
                    telemetry::not_settled(numbered.number, &error);
                    if code_of(&error).is_none() {
                        self.shared.unreachable(&error);
                    }
                    session = None;
                    tokio::time::sleep(backoff.delay()).await;
                }
            }
        };
        self.shared.reached();
        drop(session.and_then(|session| self.shared.pool.pass_on(session)));
        self.unsettled = None;
        match settled {
            Settled::Committed { rows, .. } => {
                let sent = numbered.sent;
                match judge(&self.rows, &rows) {
                    Seen::Granted(grants) => Some(Ok(Taken::Granted(grants, sent))),
                    Seen::Part(ours) => {
                        self.give_back(&ours);
                        Some(Ok(Taken::Refused(rows)))
                    }
                    // It was refused, or all were freed by force since: it runs again.
                    Seen::Held | Seen::Open(_) => None,
                }
            }
            // Its token says what it has done when it runs again.
            Settled::Fenced | Settled::NoProof => None,
        }
    }

    /// Frees what is left of a grant of which a part is lost.
    fn give_back(&self, ours: &[(usize, u64)]) {
        for (position, fence) in ours {
            let Some((key, operation)) = self.rows.get(*position) else {
                continue;
            };
            let release = Request::Operation(Operation::Release(Release {
                token: operation.token(),
                fence: *fence,
                used: *fence,
                hold: 0,
                level: None,
                until: 0,
                queues: true,
                finishes: false,
            }));
            let expires = Moment::now().after(self.shared.options.request_limit);
            let member = Member::new(release, expires, Some(ReplyTo::client(drop)));
            self.shared.push(key.clone(), member);
        }
    }

    /// The pause before the next packet.
    async fn pause(&mut self) {
        let delay = self.pauses.delay();
        self.rest(delay).await;
    }

    /// Waits; it ends sooner if nobody wants another packet any more.
    async fn rest(&self, delay: Duration) {
        tokio::select! {
            () = tokio::time::sleep(delay.min(self.expires.left())) => {}
            () = self.given_up.cancelled() => {}
            () = self.shared.closing.cancelled() => {}
        }
    }
}

/// The rows as a packet found them, and those that it did not have as they were seen.
fn merged(found: &[Option<RowState>], seen: &[Option<RowState>]) -> Vec<Option<RowState>> {
    let seen = seen.iter().chain(std::iter::repeat(&None));
    found
        .iter()
        .zip(seen)
        .map(|(found, seen)| found.or(*seen))
        .collect()
}

#[cfg(test)]
mod tests;
