//! Who goes next: of the clients that wait for one name, the one whose last turn is longest ago asks at
//! once when the lock becomes free; each other one a moment later for every client before it.
//!
//! Every client sees the same holders come and go when it looks at the row, so all agree on the order
//! without a word. Those that have had no turn nobody else knows: such a newcomer asks the sooner the more turns it has seen while it
//! waited, and says in its wish how many those are; who has seen fewer lets it go first, unless the row tells of a more
//! urgent wish in its place.

use std::time::Duration;

use crate::clock::Moment;
use crate::mutant::{self, Mutant};
use crate::timing::MOST_TURNS;

/// By how much a client asks later for each that it lets go first: longer than the pause between two
/// looks, and than an acquire takes.
const COURTESY: Duration = Duration::from_millis(10);
/// What is shorter is nothing beside a round trip.
const LEAST: Duration = Duration::from_micros(500);
/// A newcomer is likely to be one of several, of which the next has a turn within so many turns.
const NEWCOMERS: u32 = 8;
/// A newcomer that has seen so many turns of others has waited for longer than the client whose turn was the last but one.
const OVERDUE: u32 = 2;
/// No client lets others go first for longer.
const MOST: Duration = Duration::from_millis(150);
/// A client that was let go first this often and did not come does not wait any more.
const PASSED_OVER: u32 = 3;

/// Another client that was seen to hold the lock.
#[derive(Debug)]
struct Other {
    client: u32,
    /// When its last turn was seen.
    turn: Moment,
    /// How many turns of clients behind it there were since.
    passed_over: u32,
}

/// The order of the clients that wait for one name, as one of them sees it.
#[derive(Debug)]
pub(crate) struct Rotation {
    /// Ourselves.
    client: u32,
    /// Our own last turn, if there was one.
    own: Option<Moment>,
    others: Vec<Other>,
    /// Whose turn was seen last.
    last: u32,
    /// Those before us were let go first this time.
    courteous: bool,
    /// How many turns of others there were since ours, or since we came.
    seen: u32,
    /// We have had no turn, and others wait who have had none: that is likely for so many turns more.
    newcomers: u32,
    /// How many turns a newcomer has seen, as the row says: the one that has seen most.
    newcomer: u32,
    /// How often a newcomer was let go first since a client had a turn that was not known.
    let_first: u32,
}

impl Rotation {
    pub(crate) fn new(client: u32) -> Self {
        Self {
            client,
            own: None,
            others: Vec::new(),
            last: client,
            courteous: false,
            seen: 0,
            newcomers: 0,
            newcomer: 0,
            let_first: 0,
        }
    }

    /// Others waited already when we came; who, nobody says.
    pub(crate) fn came_later(&mut self) {
        if self.is_newcomer() && !mutant::on(Mutant::NewcomersOvertake) {
            self.newcomers = NEWCOMERS;
        }
    }

    /// We have had no turn.
    pub(crate) fn is_newcomer(&self) -> bool {
        self.own.is_none()
    }

    /// We have had no turn, though others have had theirs since we came: how many, for our wish to say.
    pub(crate) fn overdue(&self) -> Option<u32> {
        let overdue = self.is_newcomer() && self.seen >= OVERDUE;
        (overdue && !mutant::on(Mutant::NewcomersOvertake)).then_some(self.seen.min(MOST_TURNS))
    }

    /// The row says that a newcomer has seen so many turns, at least.
    pub(crate) fn newcomer_has_seen(&mut self, turns: u32) {
        if !mutant::on(Mutant::NewcomersOvertake) {
            self.newcomer = turns;
        }
    }

    /// A newcomer waits that has waited for longer than we have; and it comes when it is let go first.
    fn is_behind_newcomer(&self) -> bool {
        self.newcomer > self.seen && self.let_first < PASSED_OVER
    }

    /// Our own turn begins.
    pub(crate) fn own_turn(&mut self, now: Moment) {
        self.pass_over(self.own);
        self.own = Some(now);
        self.last = self.client;
        self.courteous = false;
        (self.seen, self.newcomers) = (0, 0);
    }

    /// This client was seen to hold the lock, or to have held it last.
    pub(crate) fn saw(&mut self, client: u32, now: Moment) {
        if client == self.last || client == self.client {
            return;
        }
        let position = self.others.iter().position(|other| other.client == client);
        let before = position.map(|position| self.others.swap_remove(position).turn);
        if before.is_none() {
            self.let_first = 0;
        }
        // A newcomer may have come late: who is still let go first after some of those is not there.
        self.pass_over(Some(before.unwrap_or(now)));
        self.seen = self.seen.saturating_add(1);
        self.newcomers = self.newcomers.saturating_sub(1);
        self.others.push(Other {
            client,
            turn: now,
            passed_over: 0,
        });
        self.last = client;
        self.courteous = false;
    }

    /// Somebody whose last turn was at `turn` has one: those who waited longer were passed over.
    fn pass_over(&mut self, turn: Option<Moment>) {
        for other in &mut self.others {
            if turn.is_some_and(|turn| other.turn < turn) {
                other.passed_over += 1;
            }
        }
        if !mutant::on(Mutant::NewcomersOvertake) {
            self.others.retain(|other| other.passed_over < PASSED_OVER);
        }
    }

    /// How many clients that have had turns have waited longer than we have.
    fn ahead(&self) -> usize {
        let before = |own: Moment| self.others.iter().filter(|other| other.turn < own).count();
        self.own.map_or(0, before)
    }

    /// It is likely that nobody has waited longer than we have.
    pub(crate) fn is_next(&self) -> bool {
        let known = self.newcomers == 0 || self.seen >= PASSED_OVER;
        self.ahead() == 0 && known && !self.is_behind_newcomer()
    }

    /// The lock is free. How long to let those go first that have waited longer; once each time.
    pub(crate) fn courtesy(&mut self) -> Option<Duration> {
        if self.courteous {
            return None;
        }
        let courtesy = if !self.is_newcomer() {
            let ahead = self.ahead() + usize::from(self.is_behind_newcomer());
            let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
            COURTESY.saturating_mul(ahead).min(MOST)
        } else if self.is_behind_newcomer() || (self.newcomers > 0 && self.newcomer == 0) {
            COURTESY / (1 << (self.seen / 2).min(16))
        } else {
            Duration::ZERO
        };
        self.let_first += u32::from(self.is_behind_newcomer());
        self.courteous = courtesy >= LEAST;
        self.courteous.then_some(courtesy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: i64) -> Moment {
        Moment::from_micros(time)
    }

    /// Others waited already when it came.
    fn newcomer(client: u32) -> Rotation {
        let mut rotation = Rotation::new(client);
        rotation.came_later();
        rotation
    }

    /// What the row says of newcomers, as all see it at their looks.
    fn look<'a>(clients: impl Iterator<Item = &'a mut Rotation>) {
        let mut clients: Vec<_> = clients.collect();
        let most = clients.iter().filter_map(|client| client.overdue()).max();
        for client in &mut clients {
            client.newcomer_has_seen(most.unwrap_or_default());
        }
    }

    /// By how much a client is late by chance: up to 8 ms.
    fn late(round: u32, place: usize, seed: u32) -> Duration {
        let dice = crc32fast::hash(format!("{seed} {round} {place}").as_bytes());
        Duration::from_micros((dice % 8_000).into())
    }

    #[test]
    fn two_clients_take_turns_without_a_pause() {
        let mut rotation = Rotation::new(9);
        for time in 0..10 {
            rotation.own_turn(at(2 * time));
            rotation.saw(7, at(2 * time + 1));
            assert_eq!(rotation.courtesy(), None);
        }
    }

    #[test]
    fn who_waited_longer_goes_first() {
        let mut rotation = Rotation::new(9);
        assert_eq!(rotation.courtesy(), None, "a newcomer");
        rotation.saw(1, at(1));
        rotation.saw(2, at(2));
        rotation.saw(3, at(3));
        rotation.own_turn(at(4));
        rotation.saw(1, at(5));
        assert_eq!(rotation.courtesy(), Some(COURTESY * 2));
        assert_eq!(rotation.courtesy(), None, "once");
        rotation.saw(2, at(6));
        assert_eq!(rotation.courtesy(), Some(COURTESY));
        rotation.saw(2, at(7));
        assert_eq!(rotation.courtesy(), None, "the same turn");
        rotation.saw(3, at(8));
        assert_eq!(rotation.courtesy(), None, "ours");
    }

    #[test]
    fn who_does_not_come_is_not_waited_for() {
        let mut rotation = Rotation::new(9);
        rotation.saw(1, at(1));
        rotation.saw(2, at(2));
        let mut pauses = 0;
        for time in 1..10 {
            rotation.own_turn(at(10 * time));
            rotation.saw(2, at(10 * time + 1));
            pauses += u32::from(rotation.courtesy().is_some());
        }
        assert!((1..=PASSED_OVER).contains(&pauses), "{pauses}");
    }

    /// Two clients take turns, and a newcomer is too far away to come while it is let go first.
    #[test]
    fn a_newcomer_that_does_not_come_is_not_waited_for() {
        let mut rotation = Rotation::new(9);
        rotation.own_turn(at(0));
        rotation.saw(2, at(1));
        let mut pauses = 0;
        for time in 1..10 {
            rotation.own_turn(at(10 * time));
            rotation.saw(2, at(10 * time + 1));
            rotation.newcomer_has_seen(MOST_TURNS);
            pauses += u32::from(rotation.courtesy().is_some());
        }
        assert_eq!(pauses, PASSED_OVER);
        // Another one has come.
        rotation.saw(3, at(100));
        assert_eq!(rotation.courtesy(), Some(COURTESY));
    }

    /// Clients that live for one turn, as command-line tools do, eight at a time, beside one that lasts: it has its share, and
    /// who comes later does not have more.
    #[test]
    fn clients_that_live_for_one_turn_do_not_starve_one_that_lasts() {
        let mut clients: Vec<Rotation> = (0..8).map(newcomer).collect();
        clients.push(newcomer(8));
        let mut turns = 0;
        for round in 0..1_000_u32 {
            look(clients.iter_mut());
            let delays = clients.iter_mut().enumerate().map(|(place, rotation)| {
                let dice = crc32fast::hash(format!("{round} {place}").as_bytes());
                (rotation.courtesy().unwrap_or_default(), dice, place)
            });
            let (_, _, next) = delays.min().expect("nine");
            let now = at(i64::from(round) + 1);
            let winner = clients[next].client;
            for (place, rotation) in clients.iter_mut().enumerate() {
                if place != next {
                    rotation.saw(winner, now);
                }
            }
            if winner == 8 {
                turns += 1;
                clients[next].own_turn(now);
            } else {
                clients[next] = newcomer(round + 9);
            }
        }
        assert!((80..160).contains(&turns), "{turns} of 1,000, of nine");
    }

    /// Nine clients that live for one turn, each of which is a few milliseconds late by chance: nobody waits for more than four rounds, and one of
    /// a hundred for more than two.
    #[test]
    fn clients_that_live_for_one_turn_come_about_in_the_order_in_which_they_asked() {
        let mut clients: Vec<(Rotation, u32)> =
            (0..9).map(|client| (newcomer(client), 0)).collect();
        let mut waits = Vec::new();
        for round in 0..10_000_u32 {
            look(clients.iter_mut().map(|(rotation, _)| rotation));
            let delays = clients
                .iter_mut()
                .enumerate()
                .map(|(place, (rotation, _))| {
                    let late = late(round, place, 0);
                    (rotation.courtesy().unwrap_or_default() + late, place)
                });
            let (_, next) = delays.min().expect("nine");
            let winner = clients[next].0.client;
            for (rotation, _) in &mut clients {
                rotation.saw(winner, at(i64::from(round) + 1));
            }
            let (_, came) = std::mem::replace(&mut clients[next], (newcomer(round + 9), round + 1));
            waits.push(round - came);
        }
        waits.sort_unstable();
        assert!(
            waits[9_900] <= 18 && waits[9_999] <= 36,
            "{:?}",
            &waits[9_900..]
        );
    }

    /// Also one that came in the moment in which no wish was known.
    #[test]
    fn a_newcomer_lets_one_go_first_that_has_seen_more() {
        let mut rotation = Rotation::new(9);
        rotation.saw(1, at(1));
        rotation.newcomer_has_seen(2);
        assert_eq!(rotation.courtesy(), Some(COURTESY));
        rotation.saw(2, at(2));
        assert_eq!(rotation.courtesy(), None, "it has seen as many");
    }

    /// Four clients that begin at once, each of which is a few milliseconds late by chance: two do not take turns while the other two wait for their first.
    #[test]
    fn who_has_had_a_turn_lets_newcomers_go_first() {
        for seed in 0..1_000 {
            let mut clients: Vec<Rotation> = (0..4).map(Rotation::new).collect();
            for client in &mut clients[1..] {
                client.came_later();
            }
            let mut next = 0;
            let mut turns = 0;
            while clients.iter().any(Rotation::is_newcomer) {
                turns += 1;
                for (place, client) in clients.iter_mut().enumerate() {
                    let now = at(turns.into());
                    if place == next {
                        client.own_turn(now);
                    } else {
                        client.saw(u32::try_from(next).expect("small"), now);
                    }
                }
                look(clients.iter_mut());
                let holder = next;
                let delays = clients.iter_mut().enumerate().map(|(place, client)| {
                    let late = late(turns, place, seed);
                    (client.courtesy().unwrap_or_default() + late, place)
                });
                let others = delays.filter(|(_, place)| *place != holder);
                next = others.min().expect("three").1;
            }
            assert!(turns <= 6, "the last newcomer's turn was turn {turns}");
        }
    }

    /// Four clients that each follow their own view, one of them sometimes late: nobody is left out for long.
    #[test]
    fn all_get_their_turns() {
        let mut clients: Vec<Rotation> = (0..4).map(Rotation::new).collect();
        let mut turns = [0; 4];
        for round in 0..1_000_i64 {
            let late = usize::try_from(round * 7 % 11).expect("small");
            let delays = clients.iter_mut().enumerate().map(|(client, rotation)| {
                let pause = rotation.courtesy().unwrap_or_default();
                let late = if client == late {
                    COURTESY * 3
                } else {
                    Duration::ZERO
                };
                (pause + late, client)
            });
            let (_, next) = delays.min().expect("four");
            turns[next] += 1;
            for (client, rotation) in clients.iter_mut().enumerate() {
                if client == next {
                    rotation.own_turn(at(round + 1));
                } else {
                    rotation.saw(u32::try_from(next).expect("small"), at(round + 1));
                }
            }
        }
        assert!(turns.iter().all(|turns| *turns > 200), "{turns:?}");
    }
}
