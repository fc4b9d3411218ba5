//! What goes together in one packet of those who want several rows, all or none: decisions only.

use std::collections::{HashSet, VecDeque};

use super::carrier::Errand;
use crate::sql::operation::Operation;
use crate::sql::packet::{Mode, RowOperation, StripeUse};
use crate::sql::row::RowKey;

/// How large a packet may become.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) errands: usize,
    pub(super) rows: usize,
    /// Estimated bytes.
    pub(super) bytes: usize,
}

/// Whether it goes with others: it is about locks, and waits for no stripe.
fn goes_with_others(errand: &Errand) -> bool {
    let plain = |row: &RowOperation| {
        matches!(row.operation, Operation::Acquire(_)) && row.stripes != StripeUse::Wait
    };
    errand.mode == Mode::Together && errand.rows.iter().all(plain)
}

/// Takes the first of those that wait, and others that go with it: no two of them want the same row, and nobody is passed by somebody who
/// came later and wants one of his.
pub(super) fn take(waiting: &mut VecDeque<Errand>, room: Room) -> Vec<Errand> {
    let Some(first) = waiting.pop_front() else {
        return Vec::new();
    };
    if !goes_with_others(&first) {
        return vec![first];
    }
    let weight = |errand: &Errand| -> usize { errand.rows.iter().map(RowOperation::weight).sum() };
    let (mut rows, mut bytes) = (first.rows.len(), weight(&first));
    let keys = |errand: &Errand| -> Vec<RowKey> {
        let rows = errand.rows.iter();
        rows.map(|row| row.key.clone()).collect()
    };
    let mut claimed: HashSet<RowKey> = keys(&first).into_iter().collect();
    let mut load = vec![first];
    let mut left = VecDeque::new();
    for errand in waiting.drain(..) {
        let keys = keys(&errand);
        let fits = load.len() < room.errands
            && rows + errand.rows.len() <= room.rows
            && bytes + weight(&errand) <= room.bytes
            && goes_with_others(&errand)
            && !keys.iter().any(|key| claimed.contains(key));
        claimed.extend(keys);
        if fits {
            rows += errand.rows.len();
            bytes += weight(&errand);
            load.push(errand);
        } else {
            left.push_back(errand);
        }
    }
    *waiting = left;
    load
}

/// The rows of several errands in the order of all packets, and whose each is.
pub(super) struct Load {
    pub(super) rows: Vec<RowOperation>,
    /// By position in the packet.
    owners: Vec<usize>,
}

impl Load {
    pub(super) fn of(errands: &[Errand]) -> Self {
        let mut rows: Vec<RowOperation> = Vec::new();
        for (errand, group) in errands.iter().zip(0..) {
            let of_it = errand.rows.iter().cloned();
            rows.extend(of_it.map(|row| RowOperation { group, ..row }));
        }
        // It leaves the order of a single errand as it is.
        if errands.len() > 1 {
            rows.sort_by(|one, other| one.key.order().cmp(&other.key.order()));
        }
        let owners = rows.iter().map(|row| row.group as usize).collect();
        Self { rows, owners }
    }

    /// Those of `all` that are about an errand's rows.
    pub(super) fn part<T: Copy>(&self, errand: usize, all: &[T]) -> Vec<T> {
        let of_it = self.owners.iter().zip(all);
        let of_it = of_it.filter(|(owner, _)| **owner == errand);
        of_it.map(|(_, one)| *one).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::oneshot;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::clock::Moment;
    use crate::name::Name;
    use crate::sql::operation::{Acquire, Close};
    use crate::sql::wish::GivesWay;
    use crate::token::Token;

    const ROOM: Room = Room {
        errands: 10,
        rows: 10,
        bytes: 1 << 20,
    };

    fn errand(names: &[&str]) -> Errand {
        let row = |name: &&str| RowOperation {
            key: RowKey::lock(Name::new(name).expect("a name")),
            operation: Operation::Acquire(Acquire {
                token: Token::random(),
                ttl: 1,
                block: 1,
                level: None,
                gives_way: GivesWay::TO_NONE,
                idles: false,
                queues: false,
                description: Arc::from(""),
                held_by: Arc::from(""),
            }),
            create: false,
            stripes: StripeUse::None,
            group: 0,
        };
        Errand {
            rows: names.iter().map(row).collect(),
            mode: Mode::Together,
            looks: false,
            expires: Moment::now(),
            given_up: CancellationToken::new(),
            told: oneshot::channel().0,
        }
    }

    fn names(errand: &Errand) -> String {
        let names = errand.rows.iter().map(|row| row.key.name.as_str());
        names.collect::<Vec<_>>().join(" ")
    }

    fn taken(waiting: &mut VecDeque<Errand>, room: Room) -> Vec<String> {
        take(waiting, room).iter().map(names).collect()
    }

    #[test]
    fn those_go_together_that_want_different_rows() {
        let all = [
            &["a", "d"][..],
            &["b", "c"],
            &["d", "e"],
            &["e", "f"],
            &["g"],
        ];
        let mut waiting: VecDeque<_> = all.into_iter().map(errand).collect();
        // The third wants what the first wants, and the fourth came behind the third.
        assert_eq!(taken(&mut waiting, ROOM), ["a d", "b c", "g"]);
        assert_eq!(taken(&mut waiting, ROOM), ["d e"]);
        assert_eq!(taken(&mut waiting, ROOM), ["e f"]);
        assert!(take(&mut waiting, ROOM).is_empty());
    }

    #[test]
    fn a_packet_has_room_for_some() {
        let all = || -> VecDeque<_> { [&["a", "b"][..], &["c", "d"], &["e"]].map(errand).into() };
        let rows = Room { rows: 3, ..ROOM };
        assert_eq!(taken(&mut all(), rows), ["a b", "e"]);
        let errands = Room { errands: 2, ..ROOM };
        assert_eq!(taken(&mut all(), errands), ["a b", "c d"]);
        let bytes = Room { bytes: 0, ..ROOM };
        assert_eq!(taken(&mut all(), bytes), ["a b"]);
    }

    #[test]
    fn who_waits_for_stripes_or_shuts_a_door_goes_alone() {
        let mut waits = errand(&["b"]);
        waits.rows[0].stripes = StripeUse::Wait;
        let mut shuts = errand(&["c"]);
        shuts.mode = Mode::Shut;
        let mut closes = errand(&["d"]);
        closes.rows[0].operation = Operation::Close(Close { forced: false });
        let mut waiting = VecDeque::from([errand(&["a"]), waits, shuts, closes, errand(&["e"])]);
        assert_eq!(taken(&mut waiting, ROOM), ["a", "e"]);
        for alone in ["b", "c", "d"] {
            assert_eq!(taken(&mut waiting, ROOM), [alone]);
        }
    }

    #[test]
    fn each_has_its_part_of_what_the_rows_came_to() {
        let errands = [errand(&["a", "d"]), errand(&["b", "c", "e"])];
        let load = Load::of(&errands);
        let sorted: Vec<&str> = load.rows.iter().map(|row| row.key.name.as_str()).collect();
        assert_eq!(sorted, ["a", "b", "c", "d", "e"]);
        let groups: Vec<u32> = load.rows.iter().map(|row| row.group).collect();
        assert_eq!(groups, [0, 1, 1, 0, 1]);
        assert_eq!(load.part(0, &[1, 2, 3, 4, 5]), [1, 4]);
        assert_eq!(load.part(1, &[1, 2, 3, 4, 5]), [2, 3, 5]);
    }
}
