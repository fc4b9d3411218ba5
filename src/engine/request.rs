//! What callers ask of a row, and who is told.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::outcome::Answer;
use super::pending::UnderWay;
use super::stage::{How, Stage};
use crate::clock::Moment;
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::quietly::quietly;
use crate::sql::operation::{Once, Operation};
use crate::sql::reply::RowState;
use crate::sql::row::RowKey;

/// What a caller asks of a row.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// An operation that stands alone.
    Operation(Operation),
    /// Adds to a counter; the window in microseconds, 0 for none.
    Add { delta: i64, window: i64 },
    /// Adds to a counter if the result lies within `low..=high`.
    AddWithin {
        delta: i64,
        low: i64,
        high: i64,
        window: i64,
    },
}

impl Request {
    pub(super) fn merges_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Add { window: a, .. }, Self::Add { window: b, .. }) => a == b,
            (
                Self::AddWithin {
                    delta,
                    low,
                    high,
                    window,
                },
                Self::AddWithin {
                    delta: d,
                    low: l,
                    high: h,
                    window: w,
                },
            ) => {
                (low, high, window) == (l, h, w)
                    && (delta == d || mutant::on(Mutant::UnequalDeltasMerged))
            }
            _ => false,
        }
    }

    /// Whether it gives something back: that is still taken while a client closes.
    pub(crate) fn is_release(&self) -> bool {
        matches!(self, Self::Operation(Operation::Release(_)))
    }

    /// If it was carried out, somebody holds a lock.
    pub(crate) fn acquires(&self) -> bool {
        matches!(self, Self::Operation(Operation::Acquire(_)))
    }

    pub(crate) fn once(&self) -> Option<&Once> {
        match self {
            Self::Operation(operation) => operation.once(),
            _ => None,
        }
    }

    /// The other row that it changes.
    pub(crate) fn second(&self) -> Option<&RowKey> {
        self.once().map(|once| &once.counter)
    }

    pub(crate) fn is_urgent(&self) -> bool {
        matches!(self, Self::Operation(operation) if operation.is_urgent())
    }

    /// Whether it may wait where others wait for its stripe.
    pub(crate) fn may_stand_in_line(&self) -> bool {
        match self {
            Self::Operation(operation) => operation.creates(),
            _ => true,
        }
    }

    /// Whether it stands in line at its row when a transaction holds that.
    pub(crate) fn queues(&self) -> bool {
        matches!(self, Self::Operation(Operation::Acquire(acquire)) if acquire.queues)
    }

    /// Where it begins.
    fn first_stage(&self) -> Stage {
        match self {
            // The row of an id is new, as a rule.
            Self::Operation(Operation::Once(_)) => Stage::Create,
            _ => Stage::Try,
        }
    }
}

/// Who is told.
pub(crate) enum ReplyTo {
    /// A caller who waits.
    Caller(oneshot::Sender<Result<Answer, Error>>),
    /// The client itself. It runs in the lane, so that a grant reaches its lock without a detour.
    Client(Callback),
}

impl ReplyTo {
    pub(crate) fn client(told: impl FnOnce(Result<Answer, Error>) + Send + 'static) -> Self {
        Self::Client(Callback(Some(Box::new(told))))
    }

    pub(crate) fn send(self, result: Result<Answer, Error>) {
        match self {
            // The caller may have gone away; what was asked for has happened all the same.
            Self::Caller(channel) => drop(channel.send(result)),
            Self::Client(mut callback) => callback.run(result),
        }
    }
}

/// Runs once, whatever happens: if it is dropped (a lane has panicked, a runtime has ended), it is
/// told that the client is closed.
pub(crate) struct Callback(Option<Told>);

type Told = Box<dyn FnOnce(Result<Answer, Error>) + Send>;

impl Callback {
    fn run(&mut self, result: Result<Answer, Error>) {
        if let Some(told) = self.0.take() {
            // What it tells the application may panic; the others in its batch hear their answers all the same.
            quietly(|| told(result));
        }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        self.run(Err(Error::Closed));
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Course {
    pub(crate) stage: Stage,
    /// How often it was tried again since its row was seen to be locked.
    pub(crate) tries: u8,
    /// It has waited for its row or its stripe, and somebody held that.
    pub(crate) locked: bool,
    /// Its row is taken to be missing, and nobody has looked.
    pub(crate) guessed: bool,
    /// A packet passed over its row or its stripe, since somebody held that.
    pub(crate) passed_over: bool,
    /// A packet that was to create its row did not have its stripe, as a rule since others created theirs.
    pub(crate) not_created: bool,
    /// It goes over the connection that is there for renewals whose lane does not answer.
    pub(crate) rescue: bool,
}

impl Default for Course {
    fn default() -> Self {
        Self {
            stage: Stage::Try,
            tries: 0,
            locked: false,
            guessed: false,
            passed_over: false,
            not_created: false,
            rescue: false,
        }
    }
}

impl Course {
    /// That of an operation which does what both ask for.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            stage: self.stage.max(other.stage),
            tries: self.tries.max(other.tries),
            locked: self.locked || other.locked,
            guessed: self.guessed || other.guessed,
            passed_over: self.passed_over || other.passed_over,
            not_created: self.not_created || other.not_created,
            rescue: self.rescue && other.rescue,
        }
    }

    /// Takes in what was seen of its row at this stage, if that is not its answer.
    pub(super) fn note(&mut self, stage: Stage, how: How, row: Option<&RowState>) {
        match (row, stage) {
            // The packet did not have the row, and a read then found it: somebody had it locked.
            (Some(_), _) => self.passed_over |= how == How::Look,
            // It may be missing: that is no lock.
            (None, Stage::Try) => {}
            (None, Stage::Create) => self.not_created = true,
            (None, Stage::Stripe { .. } | Stage::Row) => self.passed_over = true,
        }
    }

    /// Whether a lock was seen that is in its way, and not only for the moment in which others create their rows.
    pub(super) fn is_blocked(self) -> bool {
        self.locked || self.passed_over
    }
}

/// A request that waits for its batch, or runs in one.
pub(crate) struct Member {
    pub(crate) request: Request,
    /// After this nobody wants it any more, and it fails if it has not been sent.
    pub(crate) expires: Moment,
    pub(crate) reply: Option<ReplyTo>,
    /// It does not merge: together with others it overflowed.
    pub(crate) alone: bool,
    pub(crate) course: Course,
    /// Its part of the engine's capacity, given back as it is answered.
    pub(crate) capacity: Option<OwnedSemaphorePermit>,
    /// The engine's lanes go on as long as this is here.
    pub(super) under_way: Option<UnderWay>,
}

impl Member {
    pub(crate) fn new(request: Request, expires: Moment, reply: Option<ReplyTo>) -> Self {
        let stage = request.first_stage();
        Self {
            request,
            expires,
            reply,
            alone: false,
            course: Course {
                stage,
                ..Course::default()
            },
            capacity: None,
            under_way: None,
        }
    }

    /// Answers a caller whose time is over. The client itself waits for the truth, however late.
    pub(crate) fn give_up(&mut self, now: Moment, error: impl FnOnce() -> Error) {
        if self.expires <= now && matches!(self.reply, Some(ReplyTo::Caller(_))) {
            self.finish(Err(error()));
        }
    }

    pub(crate) fn finish(&mut self, result: Result<Answer, Error>) {
        self.capacity = None;
        if let Some(reply) = self.reply.take() {
            reply.send(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_that_create_their_rows_are_no_lock() {
        let noted = |stage| {
            let mut course = Course::default();
            course.note(stage, How::Packet, None);
            course
        };
        assert!(!noted(Stage::Try).is_blocked());
        let course = noted(Stage::Create);
        assert!(!course.is_blocked() && course.not_created);
        assert!(noted(Stage::Stripe { create: true }).is_blocked());
        assert!(noted(Stage::Row).is_blocked());
    }

    #[test]
    fn a_row_that_was_not_had_and_is_there_is_locked() {
        for (how, blocked) in [(How::Packet, false), (How::Look, true)] {
            let mut course = Course::default();
            course.note(Stage::Create, how, Some(&RowState::HELD));
            assert_eq!(course.is_blocked(), blocked, "{how:?}");
        }
    }
}
