//! Finding out what became of a batch whose reply was lost.
//!
//! The settlement moves the lane's number past the batch, so that a packet which is still on its way
//! can never run, and so learns whether it has run. It waits while the packet runs, since that holds
//! the lane's row. Only a settlement whose own commit was acknowledged is believed; running it again
//! changes nothing.

use std::sync::Arc;
use std::time::Duration;

use super::backoff::Backoff;
use super::group::Group;
use super::outcome::Outcome;
use super::pool::Connection;
use super::session::Failure;
use super::shared::Shared;
use super::stage::{Case, How, Next, next};
use crate::clock::Moment;
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::sql::packet::{self, FENCED, GONE, RowOperation};
use crate::sql::reply::Reply;
use crate::token::Token;

/// The pause between two attempts while the client closes.
const CLOSING: Duration = Duration::from_millis(50);

/// A batch whose outcome is unknown.
pub(crate) struct Unsettled {
    pub(crate) lane: Token,
    pub(crate) number: u64,
    pub(crate) batch: Vec<Group>,
    pub(crate) sent: Moment,
}

/// What became of it.
enum Settled {
    /// It never ran and never can.
    Fenced,
    /// Its outcomes: as they were recorded with it, or from the rows as they are now.
    Committed { reply: Reply, recorded: bool },
    /// The lane's row is gone, and with it the proof. It can run no more.
    NoProof,
}

/// Settles until it is settled, however long that takes, as long as there is a client.
pub(crate) async fn settle(shared: Arc<Shared>, mut unsettled: Unsettled) {
    let mut backoff = Backoff::connecting();
    let mut session = None;
    let settled = loop {
        let rows = unsettled.batch.iter().map(|group| group.row(false));
        let rows = rows.collect();
        let lane = (unsettled.lane, unsettled.number);
        match attempt(&shared, &mut session, lane, rows).await {
            Ok(settled) => break settled,
            Err(error) => {
                tracing::warn!(%error, batch = unsettled.number, "not settled yet; trying again");
                session = None;
                let now = Moment::now();
                for group in &mut unsettled.batch {
                    let name = group.key.name.to_string();
                    for member in &mut group.members {
                        member.give_up(now, || Error::OutcomeUnknown { name: name.clone() });
                    }
                }
                // The client is gone, and nobody wants to know any more.
                let over = |group: &Group| group.members.iter().all(|member| member.expires <= now);
                if shared.closed.is_cancelled() && unsettled.batch.iter().all(over) {
                    for group in unsettled.batch {
                        let name = group.key.name.to_string();
                        group.fail(&Error::OutcomeUnknown { name });
                    }
                    return;
                }
                // A client that closes waits for this: at most a moment between two attempts.
                let closing = shared.closing.is_cancelled();
                let delay = backoff.delay();
                tokio::select! {
                    () = tokio::time::sleep(if closing { delay.min(CLOSING) } else { delay }) => {}
                    () = shared.closing.cancelled(), if !closing => {}
                }
            }
        }
    };
    drop(session.and_then(|session| shared.pool.pass_on(session)));
    match settled {
        Settled::Fenced if mutant::on(Mutant::FencedIsDone) => {
            let outcome = Outcome::Counted {
                previous: 0,
                value: 0,
            };
            for group in unsettled.batch {
                group.finish(&outcome, unsettled.sent, true);
            }
        }
        Settled::Fenced => shared.put(unsettled.batch, None),
        Settled::Committed { reply, recorded } => {
            for (mut group, row) in unsettled.batch.into_iter().zip(&reply.rows) {
                // What was recorded without its row was passed over, and has changed nothing.
                let next = (!recorded || row.is_some()).then(|| {
                    next(Case {
                        operation: &group.operation,
                        stage: group.course.stage,
                        tries: group.course.tries,
                        row: row.as_ref(),
                        how: if recorded { How::Packet } else { How::Lost },
                        late: false,
                    })
                });
                match next {
                    Some(Next::Answer(outcome)) => {
                        shared.answer(group, &outcome, unsettled.sent, !recorded);
                    }
                    Some(Next::Go(stage)) => {
                        group.go(stage);
                        shared.put([group], None);
                    }
                    _ => shared.put([group], None),
                }
            }
        }
        Settled::NoProof => {
            for group in unsettled.batch {
                if group.operation.is_repeatable() {
                    shared.put([group], None);
                } else {
                    let name = group.key.name.to_string();
                    group.fail(&Error::OutcomeUnknown { name });
                }
            }
        }
    }
}

async fn attempt(
    shared: &Shared,
    session: &mut Option<Connection>,
    (lane, number): (Token, u64),
    rows: Vec<RowOperation>,
) -> Result<Settled, sqlx::Error> {
    let session = match session {
        Some(session) => session,
        none => none.insert(shared.pool.get(shared.options.packet_limit).await?),
    };
    let packet = packet::settle_lane(lane, number, session.dialect);
    // Complete only if its COMMIT was acknowledged.
    let answer = session.packet(packet).await.map_err(Failure::into_error)?;
    let answer = answer.unwrap_or_default();
    // Those of an earlier batch, if this one records none.
    let results = answer
        .split_once(';')
        .filter(|(of, _)| of.parse() == Ok(number) || mutant::on(Mutant::SettlementUnchecked))
        .map(|(_, results)| results);
    if results == Some(FENCED) {
        return Ok(Settled::Fenced);
    }
    if results == Some(GONE) {
        return Ok(Settled::NoProof);
    }
    let recorded = rows.iter().any(|row| row.operation.needs_record());
    let text = if recorded {
        results.map(str::to_owned)
    } else {
        let read = packet::read(&rows, session.dialect);
        session.query(format!("{read};COMMIT")).await?
    };
    text.and_then(|text| Reply::decode(&text, rows.len()))
        .map(|reply| Settled::Committed { reply, recorded })
        .ok_or_else(|| sqlx::Error::Protocol("a batch's results cannot be read".into()))
}
