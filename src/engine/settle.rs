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
use super::link::Numbered;
use super::outcome::Outcome;
use super::pool::Connection;
use super::session::Failure;
use super::shared::Shared;
use super::stage::{Case, How, Next, next};
use super::supervise::survives;
use crate::clock::Moment;
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::sql::packet::{self, FENCED, GONE, RowOperation};
use crate::sql::reply::{Reply, RowState};
use crate::sql::server_error::code_of;
use crate::telemetry;

/// The pause between two attempts while the client closes.
const CLOSING: Duration = Duration::from_millis(50);

/// What of a batch has an unknown outcome.
pub(crate) struct Unsettled {
    pub(super) numbered: Numbered,
    /// With their positions in the packet.
    pub(super) batch: Vec<(usize, Group)>,
}

/// What became of it.
pub(super) enum Settled {
    /// It never ran and never can.
    Fenced,
    /// Its rows, by their positions: as they were recorded with it, or as they are now.
    Committed {
        rows: Vec<Option<RowState>>,
        recorded: bool,
    },
    /// The lane's row is gone, and with it the proof. It can run no more.
    NoProof,
}

/// Settles until it is settled, however long that takes, as long as there is a client.
pub(crate) async fn settle(shared: Arc<Shared>, mut unsettled: Unsettled) {
    let mut pauses = Backoff::connecting();
    loop {
        // What a panic leaves is settled again.
        if survives("a settlement", work(&shared, &mut unsettled)).await {
            return;
        }
        tokio::time::sleep(pauses.delay()).await;
    }
}

async fn work(shared: &Arc<Shared>, unsettled: &mut Unsettled) {
    let mut backoff = Backoff::connecting();
    let mut session = None;
    let settled = loop {
        let left: Vec<(usize, RowOperation)> = unsettled
            .batch
            .iter()
            .map(|(position, group)| (*position, group.row(false)))
            .collect();
        match attempt(shared, &mut session, unsettled.numbered, &left).await {
            Ok(settled) => {
                shared.reached();
                break settled;
            }
            Err(error) => {
                telemetry::not_settled(unsettled.numbered.number, &error);
                // What the server itself says shows that it is there: somebody has locked the lane's row, say.
                if code_of(&error).is_none() {
                    shared.unreachable(&error);
                }
                session = None;
                let now = Moment::now();
                for (_, group) in &mut unsettled.batch {
                    let name = group.key.name.to_string();
                    for member in &mut group.members {
                        member.give_up(now, || Error::OutcomeUnknown { name: name.clone() });
                    }
                }
                let closing = shared.closing.is_cancelled();
                // While the client closes, it gives up when the time of all requests is over. But as long as it may find a granted lock, it goes on: that
                // lock is released then.
                let over = |group: &Group| {
                    let mut members = group.members.iter();
                    members.all(|member| member.expires <= now && !member.request.acquires())
                };
                if closing && unsettled.batch.iter().all(|(_, group)| over(group)) {
                    for (_, group) in unsettled.batch.drain(..) {
                        let name = group.key.name.to_string();
                        group.fail(&Error::OutcomeUnknown { name });
                    }
                    return;
                }
                // A client that closes waits for this: at most a moment between two attempts.
                let delay = backoff.delay();
                tokio::select! {
                    () = tokio::time::sleep(if closing { delay.min(CLOSING) } else { delay }) => {}
                    () = shared.closing.cancelled(), if !closing => {}
                }
            }
        }
    };
    drop(session.and_then(|session| shared.pool.pass_on(session)));
    while let Some((position, group)) = unsettled.batch.pop() {
        conclude(shared, group, position, &settled, unsettled.numbered.sent);
    }
}

/// Tells a group what became of it, or lets it run again.
fn conclude(shared: &Shared, mut group: Group, position: usize, settled: &Settled, sent: Moment) {
    match settled {
        Settled::Fenced if mutant::on(Mutant::FencedIsDone) => {
            let outcome = Outcome::Counted {
                previous: 0,
                value: 0,
            };
            group.finish(&outcome, sent, true);
        }
        Settled::Fenced => shared.put([group], None),
        Settled::Committed { rows, recorded } => {
            let row = rows.get(position).and_then(Option::as_ref);
            // A record without its row: the packet passed over the row, and has changed nothing.
            let next = (!recorded || row.is_some()).then(|| {
                next(Case {
                    operation: &group.operation,
                    stage: group.course.stage,
                    tries: group.course.tries,
                    row,
                    how: if *recorded { How::Packet } else { How::Lost },
                    late: false,
                    others_create: shared.others_create(),
                })
            });
            match next {
                Some(Next::Answer(outcome)) => shared.answer(group, &outcome, sent, !recorded),
                Some(Next::Go(stage)) => {
                    group.go(stage);
                    shared.put([group], None);
                }
                _ => shared.put([group], None),
            }
        }
        Settled::NoProof if group.operation.is_repeatable() => shared.put([group], None),
        Settled::NoProof => {
            let name = group.key.name.to_string();
            group.fail(&Error::OutcomeUnknown { name });
        }
    }
}

/// Settles a batch once, and finds out about those of its rows that are `left`, with their positions.
pub(super) async fn attempt(
    shared: &Shared,
    session: &mut Option<Connection>,
    numbered: Numbered,
    left: &[(usize, RowOperation)],
) -> Result<Settled, sqlx::Error> {
    let session = match session {
        Some(session) => session,
        none => none.insert(shared.pool.get(shared.options.packet_limit).await?),
    };
    let Numbered {
        lane, number, rows, ..
    } = numbered;
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
    let recorded = left.iter().any(|(_, row)| row.operation.needs_record());
    let unreadable = || sqlx::Error::Protocol("a batch's results cannot be read".into());
    if recorded {
        let reply = results.and_then(|text| Reply::decode(text, rows));
        let rows = reply.ok_or_else(unreadable)?.rows;
        return Ok(Settled::Committed { rows, recorded });
    }
    let operations: Vec<RowOperation> = left.iter().map(|(_, row)| row.clone()).collect();
    let read = packet::read(&operations, session.dialect);
    let text = session.query(format!("{read};COMMIT")).await?;
    let seen = text.and_then(|text| Reply::decode(&text, left.len()));
    let seen = seen.ok_or_else(unreadable)?.rows;
    let mut rows = vec![None; rows];
    for ((position, _), row) in left.iter().zip(seen) {
        rows[*position] = row;
    }
    Ok(Settled::Committed { rows, recorded })
}
