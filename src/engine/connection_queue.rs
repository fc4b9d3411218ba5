//! Who has a connection and who waits for one: decisions only.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::oneshot;

use super::session::SessionId;
use crate::clock::Moment;

/// How long after a refusal no further connection is tried while there is one to share.
const REFUSED: Duration = Duration::from_secs(1);

/// Who has a connection and who waits for one, as plain data.
#[derive(Debug)]
pub(super) struct ConnectionQueue<C> {
    /// How many connections there are; one that is being opened counts.
    open: usize,
    /// How many of them are being opened.
    opening: usize,
    /// How many there may be.
    most: usize,
    /// When the server last refused one.
    refused: Option<Moment>,
    waiting: VecDeque<oneshot::Sender<C>>,
    /// Sessions that were given up, and that the server may still have.
    given_up: Vec<SessionId>,
    /// How many of `open` were given up: those, and the ones about which a connection asks the server just now.
    lingering: usize,
    /// When they were last asked for.
    asked_for: Option<Moment>,
}

/// What somebody does who wants a connection.
#[derive(Debug)]
pub(super) enum ConnectionTurn<C> {
    /// Opens one; it is counted already.
    Open,
    /// Waits until he is given one, or until the sender is dropped: then he asks again.
    Wait(oneshot::Receiver<C>),
}

/// What becomes of a connection between two packets.
#[derive(Debug)]
pub(super) enum Spare<C> {
    Keep,
    /// There are more than the account can spare.
    Close,
    /// The first in line is given it; if he has gone away, the next one.
    Give(oneshot::Sender<C>),
}

impl<C> ConnectionQueue<C> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            open: 0,
            opening: 0,
            most,
            refused: None,
            waiting: VecDeque::new(),
            given_up: Vec::new(),
            lingering: 0,
            asked_for: None,
        }
    }

    /// Whether one more may be opened: the first one always, since nobody else could be given its place.
    /// And now and then one that asks whether those that were given up have ended.
    pub(super) fn admits(&self, now: Moment) -> bool {
        let asks =
            !self.given_up.is_empty() && self.asked_for.is_none_or(|at| now.since(at) >= REFUSED);
        let alone = self.open == self.lingering && self.open <= self.most;
        alone || !self.is_short(now) || asks
    }

    /// Whether a connection that has just been opened may be used: not one that came only to ask whether others have ended.
    pub(super) fn may_stay(&self) -> bool {
        let alone = self.open == self.lingering + 1;
        self.open <= self.most + usize::from(alone)
    }

    /// A session was given up while it carried something.
    pub(super) fn give_up(&mut self, session: SessionId) {
        self.given_up.push(session);
        self.lingering += 1;
    }

    /// Those that were given up, for a connection that ends them.
    pub(super) fn take_given_up(&mut self, now: Moment) -> Vec<SessionId> {
        self.asked_for = Some(now);
        std::mem::take(&mut self.given_up)
    }

    /// Of `asked` sessions the server still has these.
    pub(super) fn still_there(&mut self, asked: usize, left: Vec<SessionId>, now: Moment) {
        self.lingering -= asked - left.len();
        for _ in left.len()..asked {
            self.leave(now);
        }
        self.given_up.extend(left);
    }

    /// Whether those who have a connection share it with the others.
    pub(super) fn is_short(&self, now: Moment) -> bool {
        let refused = self.refused.is_some_and(|at| now.since(at) < REFUSED);
        refused || self.open.max(1) >= self.most
    }

    pub(super) fn ask(&mut self, now: Moment) -> ConnectionTurn<C> {
        if self.admits(now) {
            if self.is_short(now) && self.lingering > 0 {
                // This connection will ask whether the sessions that were given up have ended: no other needs to for a while.
                self.asked_for = Some(now);
            }
            self.open += 1;
            self.opening += 1;
            return ConnectionTurn::Open;
        }
        self.stand()
    }

    pub(super) fn stand(&mut self) -> ConnectionTurn<C> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.push_back(sender);
        ConnectionTurn::Wait(receiver)
    }

    /// One that was being opened is there.
    pub(super) fn opened(&mut self, most: usize) {
        self.opening -= 1;
        self.most = most;
    }

    /// One that was being opened is not to be had.
    pub(super) fn failed(&mut self, now: Moment) {
        self.opening -= 1;
        self.leave(now);
    }

    /// What somebody does whom the server has refused one. `None` if there is no other that could be shared.
    pub(super) fn refused(&mut self, now: Moment) -> Option<ConnectionTurn<C>> {
        self.refused = Some(now);
        self.failed(now);
        (self.open > self.opening + self.lingering).then(|| self.stand())
    }

    /// A connection is gone: the first in line may open one in its place.
    pub(super) fn leave(&mut self, now: Moment) {
        self.open -= 1;
        if self.admits(now) {
            self.waiting.retain(|waiting| !waiting.is_closed());
            self.waiting.pop_front();
        }
    }

    /// What becomes of a connection that can be spared for a moment.
    pub(super) fn spare(&mut self) -> Spare<C> {
        if self.open > self.most {
            return Spare::Close;
        }
        self.waiting.pop_front().map_or(Spare::Keep, Spare::Give)
    }

    /// Whether somebody waits.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.iter().any(|waiting| !waiting.is_closed())
    }
}

/// How many connections a client takes of those that its account may have (0: as many as it likes): half of them, so that a
/// second process and the application find some too.
pub(super) fn most(account_limit: i64) -> usize {
    match usize::try_from(account_limit) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(limit) => (limit / 2).max(1),
    }
}

/// How many connections a client with so many lanes has at the most, those counted that it gave up and that the server still has. Where
/// all of them were given up it opens one more; and one more, now and then, that only asks whether others have ended.
pub(super) fn client_most(lanes: usize) -> usize {
    2 * lanes + 12
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_of_what_the_account_may_have() {
        for (limit, half) in [
            (1, 1),
            (2, 1),
            (3, 1),
            (4, 2),
            (9, 4),
            (-1, usize::MAX),
            (0, usize::MAX),
        ] {
            assert_eq!(most(limit), half, "of {limit}");
        }
    }

    #[test]
    fn after_a_refusal_what_there_is_is_shared_for_a_while() {
        let now = Moment::now();
        let mut line = ConnectionQueue::<u32>::new(usize::MAX);
        assert!(matches!(line.ask(now), ConnectionTurn::Open));
        line.opened(usize::MAX);
        assert!(matches!(line.ask(now), ConnectionTurn::Open));
        let Some(ConnectionTurn::Wait(mut given)) = line.refused(now) else {
            panic!("the other one is not shared");
        };
        assert!(
            matches!(line.ask(now), ConnectionTurn::Wait(_)),
            "it was refused a moment ago"
        );
        let Spare::Give(first) = line.spare() else {
            panic!("nobody is first");
        };
        assert_eq!(first.send(7), Ok(()));
        assert_eq!(given.try_recv(), Ok(7));
        assert!(matches!(line.ask(now.after(REFUSED)), ConnectionTurn::Open));
    }

    #[test]
    fn who_is_alone_is_told_what_the_server_said() {
        let now = Moment::now();
        let mut line = ConnectionQueue::<u32>::new(1);
        assert!(matches!(line.ask(now), ConnectionTurn::Open));
        let ConnectionTurn::Wait(mut given) = line.ask(now) else {
            panic!("there is one already");
        };
        assert!(line.refused(now).is_none());
        // And the next one asks the server himself.
        let woken = oneshot::error::TryRecvError::Closed;
        assert_eq!(given.try_recv(), Err(woken));
        assert!(matches!(line.ask(now), ConnectionTurn::Open));
    }

    /// Each that may be used is given up, as where no `COMMIT` comes to its end; the server keeps them all.
    #[test]
    fn few_are_left_where_all_of_them_hang() {
        for most in 1..6 {
            let mut now = Moment::now();
            let mut line = ConnectionQueue::<u32>::new(most);
            let (mut left, mut highest) = (0, 0);
            for _ in 0..1_000 {
                now = now.after(REFUSED / 10);
                let ConnectionTurn::Open = line.ask(now) else {
                    continue;
                };
                line.opened(most);
                highest = highest.max(line.open);
                let asked = line.take_given_up(now);
                line.still_there(asked.len(), asked, now);
                if line.may_stay() {
                    left += 1;
                    line.give_up(SessionId::of(left));
                } else {
                    line.leave(now);
                }
            }
            assert_eq!((line.open, highest), (most + 1, most + 2), "of {most}");
        }
    }

    #[test]
    fn what_is_only_being_opened_is_not_waited_for() {
        let now = Moment::now();
        let mut line = ConnectionQueue::<u32>::new(usize::MAX);
        assert!(matches!(line.ask(now), ConnectionTurn::Open));
        assert!(matches!(line.ask(now), ConnectionTurn::Open));
        assert!(
            line.refused(now).is_none(),
            "the other one may be refused as well"
        );
        assert!(line.refused(now).is_none());
        assert_eq!((line.open, line.opening), (0, 0));
    }

    /// What a task of the model does with connections.
    enum Task {
        Out,
        Opening,
        Waiting(oneshot::Receiver<()>),
        Has,
    }

    proptest! {
        /// Tasks that want connections again and again, a server that has a few, and connections that break.
        #[test]
        fn everybody_has_his_turn(
            tasks in 1_usize..6, server in 1_usize..5, account in 0_i64..8, steps in prop::collection::vec((0_usize..6, 0..10), 400..800)
        ) {
            let mut line = ConnectionQueue::new(most(account));
            let mut now = Moment::now();
            let mut all: Vec<Task> = (0..tasks).map(|_| Task::Out).collect();
            let mut served = vec![0; tasks];
            let ask = |line: &mut ConnectionQueue<()>, now| match line.ask(now) {
                ConnectionTurn::Open => Task::Opening,
                ConnectionTurn::Wait(given) => Task::Waiting(given),
            };
            for (who, chance) in steps {
                now = now.after(REFUSED / 20);
                let who = who % tasks;
                let had = line.open - line.opening;
                all[who] = match std::mem::replace(&mut all[who], Task::Out) {
                    Task::Out => ask(&mut line, now),
                    Task::Opening if had < server => {
                        line.opened(most(account));
                        Task::Has
                    }
                    Task::Opening => match line.refused(now) {
                        Some(ConnectionTurn::Wait(given)) => Task::Waiting(given),
                        _ => Task::Out,
                    },
                    Task::Waiting(mut given) => match given.try_recv() {
                        Ok(()) => Task::Has,
                        Err(oneshot::error::TryRecvError::Closed) => ask(&mut line, now),
                        Err(oneshot::error::TryRecvError::Empty) => Task::Waiting(given),
                    },
                    Task::Has => {
                        served[who] += 1;
                        // Now and then it breaks.
                        let spare = if chance == 0 { Spare::Close } else { line.spare() };
                        match spare {
                            Spare::Keep => Task::Has,
                            Spare::Give(first) => {
                                prop_assert_eq!(first.send(()), Ok(()));
                                Task::Out
                            }
                            Spare::Close => {
                                line.leave(now);
                                Task::Out
                            }
                        }
                    }
                };
                let given = all.iter_mut().filter(|task| match task {
                    Task::Waiting(given) => !given.is_empty(),
                    Task::Opening | Task::Has => true,
                    Task::Out => false,
                });
                prop_assert_eq!(line.open, given.count());
                prop_assert!(line.open <= line.most);
            }
            prop_assert!(served.iter().all(|&served| served > 0), "{:?}", served);
        }
    }
}
