//! What each operation says of a row.

use std::sync::Arc;

use super::*;
use crate::sql::reply::{ACTIVE, DONE, FREE, KEPT, SHARED};
use crate::sql::wish::GivesWay;
use crate::token::Token;

const HELD: RowState = RowState {
    at: 0,
    granted: false,
    status: ACTIVE,
    mine: false,
    fence: 100,
    remaining: 1_000,
    previous: 7,
    count: 1,
    wanted: 0,
    client: 0,
};

fn acquire(reentrant: bool) -> Operation {
    Operation::Acquire(Acquire {
        token: Token::random(),
        ttl: 1,
        block: 1,
        level: reentrant.then_some(7),
        gives_way: GivesWay::TO_ALL,
        idles: false,
        queues: false,
        description: Arc::from(""),
        held_by: Arc::from(""),
    })
}

fn count(low: i64, high: i64) -> Operation {
    Operation::Count(Count {
        token: Token::random(),
        low,
        high,
        change: CounterChange::Set { value: 0 },
        window: 0,
        restart: false,
    })
}

#[test]
fn an_acquire_is_told_by_its_token() {
    let mine = RowState { mine: true, ..HELD };
    let granted = Outcome::Granted {
        fence: 100,
        remaining: 1_000,
        until: 1_000,
        wanted: 0,
    };
    assert_eq!(acquire(false).judge(Some(&mine)), Judgment::Final(granted));
    // Its own batch tells of a level, and nothing else.
    assert_eq!(acquire(true).judge(Some(&mine)), Judgment::Busy);
    assert_eq!(
        acquire(false).judge(Some(&HELD)),
        Judgment::Final(Outcome::Held(HELD))
    );
    assert_eq!(acquire(false).judge(None), Judgment::Missing);
}

#[test]
fn an_acquire_that_nothing_speaks_against_was_skipped() {
    let expired = RowState {
        remaining: 0,
        ..HELD
    };
    let free = RowState {
        status: FREE,
        ..HELD
    };
    let other_level = RowState {
        mine: true,
        previous: 8,
        ..HELD
    };
    assert_eq!(acquire(false).judge(Some(&expired)), Judgment::Busy);
    assert_eq!(acquire(false).judge(Some(&free)), Judgment::Busy);
    assert_eq!(acquire(true).judge(Some(&other_level)), Judgment::Busy);
}

#[test]
fn a_minimum_hold_refuses() {
    let kept = RowState {
        status: KEPT,
        ..HELD
    };
    assert_eq!(
        acquire(false).judge(Some(&kept)),
        Judgment::Final(Outcome::Held(kept))
    );
}

#[test]
fn a_release_is_told_by_what_it_left() {
    let release = Operation::Release(Release {
        token: Token::random(),
        fence: 100,
        used: 98,
        hold: 0,
        level: None,
        until: 0,
        queues: true,
        finishes: false,
    });
    let free = RowState {
        mine: true,
        status: FREE,
        fence: 98,
        ..HELD
    };
    assert_eq!(release.judge(Some(&free)), Judgment::Final(released(&free)));
    let skipped = RowState {
        mine: true,
        previous: 1,
        ..HELD
    };
    assert_eq!(release.judge(Some(&skipped)), Judgment::Busy);
    assert_eq!(
        release.judge(Some(&HELD)),
        Judgment::Final(Outcome::NotHeld)
    );
    assert_eq!(release.judge(None), Judgment::Final(Outcome::NotHeld));
}

#[test]
fn a_renewal_trusts_what_stands_in_the_row() {
    let renew = Operation::Renew(Renew {
        token: Token::random(),
        fence: 100,
        ttl: 5,
        until: None,
    });
    let mine = RowState { mine: true, ..HELD };
    assert_eq!(
        renew.judge(Some(&mine)),
        Judgment::Final(Outcome::Leased {
            remaining: 1_000,
            until: 1_000,
            wanted: 0,
            renewed: false
        })
    );
    for lost in [
        HELD,
        RowState {
            mine: true,
            remaining: 0,
            ..HELD
        },
        RowState {
            mine: true,
            fence: 101,
            ..HELD
        },
    ] {
        assert_eq!(renew.judge(Some(&lost)), Judgment::Final(Outcome::NotHeld));
    }
}

#[test]
fn a_counter_within_its_bounds_was_skipped() {
    let row = RowState { count: 5, ..HELD };
    assert_eq!(count(0, 10).judge(Some(&row)), Judgment::Busy);
    assert_eq!(
        count(6, 10).judge(Some(&row)),
        Judgment::Final(Outcome::OutOfBounds { value: 5 })
    );
    let ended = RowState {
        remaining: -1,
        ..row
    };
    assert_eq!(
        count(6, 10).judge(Some(&ended)),
        Judgment::Final(Outcome::OutOfBounds { value: 0 })
    );
    let mine = RowState { mine: true, ..row };
    assert_eq!(
        count(6, 10).judge(Some(&mine)),
        Judgment::Final(Outcome::Counted {
            previous: 7,
            value: 5
        })
    );
}

/// A row is created with a deadline at the beginning of time, and a deleted counter gets it back.
#[test]
fn a_counter_that_was_never_set_is_told_from_one_at_0() {
    let unset = RowState {
        at: 5_000,
        remaining: -5_000,
        ..HELD
    };
    let at_0 = RowState { count: 0, ..HELD };
    let token = Token::random;
    let init = |row: Option<RowState>| {
        let (token, value, window) = (token(), 9, 0);
        let init = Init {
            token,
            value,
            window,
        };
        Operation::Init(init).judge(row.as_ref())
    };
    let delete =
        |row: Option<RowState>| Operation::Delete(Delete { token: token() }).judge(row.as_ref());
    let counted = |previous, value| Judgment::Final(Outcome::Counted { previous, value });
    assert_eq!(init(None), Judgment::Missing);
    assert_eq!(init(Some(unset)), Judgment::Busy);
    let refused = Judgment::Final(Outcome::OutOfBounds { value: 0 });
    assert_eq!(init(Some(at_0)), refused);
    assert_eq!(delete(None), Judgment::Final(Outcome::NotSet));
    assert_eq!(delete(Some(unset)), Judgment::Final(Outcome::NotSet));
    assert_eq!(delete(Some(at_0)), Judgment::Busy);
    // Carried out, by the row before; or before, by the row as it is.
    let granted = |row| RowState {
        granted: true,
        ..row
    };
    assert_eq!(init(Some(granted(unset))), counted(0, 9));
    let five = RowState { count: 5, ..HELD };
    assert_eq!(delete(Some(granted(five))), counted(5, 0));
    let mine = |row| RowState { mine: true, ..row };
    assert_eq!(init(Some(mine(HELD))), counted(0, 9));
    assert_eq!(delete(Some(mine(unset))), counted(7, 0));
}

#[test]
fn what_is_granted_follows_from_the_row_before() {
    let granted = RowState {
        at: 5_000,
        granted: true,
        remaining: -1,
        wanted: 3,
        ..HELD
    };
    let outcome = |operation: &Operation, row: RowState| match operation.judge(Some(&row)) {
        Judgment::Final(outcome) => outcome,
        other => panic!("{other:?}"),
    };
    let grant = |fence, remaining| Outcome::Granted {
        fence,
        remaining,
        until: 5_000 + remaining,
        wanted: 3,
    };
    // One above the time or the row's fence, by the server's arithmetic; the ttl from now on.
    assert_eq!(outcome(&acquire(false), granted), grant(5_001, 1));
    let ahead = RowState {
        fence: 9_000,
        ..granted
    };
    assert_eq!(outcome(&acquire(true), ahead), grant(9_001, 1));
    // One level deeper keeps the grant, and never shortens the lease.
    let deeper = RowState {
        mine: true,
        remaining: 700,
        ..granted
    };
    assert_eq!(outcome(&acquire(true), deeper), grant(100, 700));
    let ended = RowState {
        mine: true,
        ..granted
    };
    assert_eq!(outcome(&acquire(true), ended), grant(5_001, 1));
    let release = |level| {
        Operation::Release(Release {
            token: Token::random(),
            fence: 100,
            used: 98,
            hold: 0,
            level,
            until: 0,
            queues: true,
            finishes: false,
        })
    };
    let released = |fence| Outcome::Released {
        fence,
        wanted: 3,
        done: false,
    };
    let twice = RowState {
        count: 2,
        ..granted
    };
    assert_eq!(outcome(&release(None), granted), released(98));
    assert_eq!(outcome(&release(Some(1)), granted), released(98));
    assert_eq!(outcome(&release(Some(1)), twice), released(100));
    let renew = Operation::Renew(Renew {
        token: Token::random(),
        fence: 100,
        ttl: 5,
        until: None,
    });
    for (remaining, then) in [(2, 5), (9, 9)] {
        let leased = Outcome::Leased {
            remaining: then,
            until: 5_000 + then,
            wanted: 3,
            renewed: true,
        };
        let row = RowState {
            remaining,
            ..granted
        };
        assert_eq!(outcome(&renew, row), leased);
    }
    let counted = Outcome::Counted {
        previous: 7,
        value: 1,
    };
    assert_eq!(outcome(&count(0, 10), granted), counted);
}

/// What a renewal that was passed over finds in the row may be another level's.
#[test]
fn the_renewal_of_a_level_trusts_only_what_it_has_done() {
    let renew = |until| {
        Operation::Renew(Renew {
            token: Token::random(),
            fence: 100,
            ttl: 5,
            until: Some(until),
        })
    };
    let mine = RowState { mine: true, ..HELD };
    let left = |remaining| {
        Judgment::Final(Outcome::Leased {
            remaining,
            until: remaining,
            wanted: 0,
            renewed: false,
        })
    };
    assert_eq!(renew(1).judge(Some(&mine)), left(1));
    assert_eq!(renew(2_000).judge(Some(&mine)), left(1_000));
    let ended = Judgment::Final(Outcome::NotHeld);
    assert_eq!(renew(0).judge(Some(&mine)), ended);
    assert_eq!(renew(1).judge(Some(&HELD)), ended);
}

#[test]
fn a_wish_that_is_taken_back_is_gone() {
    let wanted = RowState { wanted: 5, ..HELD };
    let says = |wait, row| Operation::Want(Want { wait }).judge(Some(&row));
    assert_eq!(says(0, wanted), Judgment::Busy);
    let written = RowState {
        granted: true,
        ..wanted
    };
    assert_eq!(says(0, written), Judgment::Final(Outcome::Done));
    assert_eq!(says(0, HELD), Judgment::Final(Outcome::Done));
    assert_eq!(says(5, HELD), Judgment::Final(Outcome::Done));
}

/// The slot of a job that was finished: by this operation, or before by a transaction of the holder's.
#[test]
fn a_writers_wish_that_was_not_written_is_written_again() {
    let drain = Operation::Drain(Drain { wait: 1_000_000 });
    let door = RowState {
        status: SHARED,
        remaining: i64::MAX,
        ..HELD
    };
    let done = Judgment::Final(Outcome::Done);
    for (count, expected) in [(0, Judgment::Busy), (100_000, Judgment::Busy)] {
        let row = RowState { count, ..door };
        assert_eq!(drain.judge(Some(&row)), expected);
    }
    let known = RowState {
        count: 900_000,
        ..door
    };
    assert_eq!(drain.judge(Some(&known)), done);
    assert_eq!(drain.judge(Some(&HELD)), done, "nobody holds it shared");
    assert_eq!(drain.judge(None), done);
}

#[test]
fn a_finish_is_told_by_the_record_that_it_left() {
    let release = |finishes| {
        Operation::Release(Release {
            token: Token::random(),
            fence: 100,
            used: 100,
            hold: 0,
            level: None,
            until: 0,
            queues: true,
            finishes,
        })
    };
    let told = |done| {
        Judgment::Final(Outcome::Released {
            fence: 100,
            wanted: 0,
            done,
        })
    };
    let mine = RowState { mine: true, ..HELD };
    let done = RowState {
        status: DONE,
        ..mine
    };
    let free = RowState {
        status: FREE,
        ..mine
    };
    assert_eq!(release(true).judge(Some(&done)), told(true));
    assert_eq!(release(false).judge(Some(&done)), told(true));
    assert_eq!(release(false).judge(Some(&free)), told(false));
    // Freed by force, run and finished by another, or deleted: it is not this one's record.
    for lost in [
        free,
        HELD,
        RowState {
            mine: false,
            ..done
        },
        RowState { fence: 101, ..done },
    ] {
        assert_eq!(
            release(true).judge(Some(&lost)),
            Judgment::Final(Outcome::NotHeld)
        );
    }
    assert_eq!(release(true).judge(None), Judgment::Final(Outcome::NotHeld));
    assert_eq!(release(true).judge(Some(&mine)), Judgment::Busy);
    let granted = RowState {
        granted: true,
        ..mine
    };
    assert_eq!(release(true).judge(Some(&granted)), told(true));
    // Nobody else acquires it, renews it, or takes it for free.
    let others = RowState {
        mine: false,
        remaining: i64::MAX,
        ..done
    };
    assert_eq!(
        acquire(false).judge(Some(&others)),
        Judgment::Final(Outcome::Held(others))
    );
    assert!(!others.is_free() && !others.admits(GivesWay::TO_NONE) && others.is_done());
}
