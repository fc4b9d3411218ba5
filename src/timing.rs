//! Times that depend on each other, and what must be longer than what.

use std::time::Duration;

/// Nothing lasts longer: an interval that leaves the calendar would be NULL.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(10 * 365 * 86_400);

/// `innodb_lock_wait_timeout` of our sessions. A stripe is held for one packet: who waits longer waits for somebody who hangs.
pub(crate) const SERVER_LOCK_WAIT: Duration = Duration::from_secs(1);
/// How long a packet that waits for a row or a stripe may wait: the servers look at their limit once a second.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(3);
/// `wait_timeout` of our sessions between two packets.
pub(crate) const SERVER_IDLE: Duration = Duration::from_secs(28_800);

/// A connection that was idle for longer is made anew: what stands between may have forgotten it.
pub(crate) const IDLE: Duration = Duration::from_secs(60);
/// A connection that waits for locks is closed when nothing waited for so long.
pub(crate) const IDLE_WAITING: Duration = Duration::from_secs(10);
/// A lane that slept longer registers again, since a purge may have taken its row.
pub(crate) const REGISTRATION: Duration = Duration::from_secs(3_600);
/// A purge takes the rows of lanes that nobody has used for so long.
pub(crate) const LANE_AGE: Duration = Duration::from_secs(86_400);

/// A request whose wait is over has an answer within this time of its question, or is told that there is none.
pub(crate) const ANSWER: Duration = Duration::from_secs(1);
/// An answer to a question of those who wait that takes longer than this may be one that never comes.
pub(crate) const SOON: Duration = Duration::from_millis(1_250);
/// For so long after such an answer the server may be slow.
pub(crate) const SLOW: Duration = Duration::from_secs(10);
/// How late a lane may be to say that a request's time is over.
pub(crate) const LATE: Duration = Duration::from_secs(1);
/// What a lane has left to another one it takes back after this time: that one's packet has not come back. (What came while that packet
/// had rows of the same lane waits for it.)
pub(crate) const LEFT: Duration = Duration::from_millis(500);
/// The pause between two looks at a row that a transaction holds, where connections are shared.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The longest pause between two looks at a lock that somebody waits for.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// How long a process keeps a lock in memory while another one waits for it.
pub(crate) const SLICE: Duration = Duration::from_millis(100);
/// How long whoever does not wait yet lets those go first that wait, after each release.
pub(crate) const GIVE_WAY: Duration = Duration::from_millis(150);
/// How long others let somebody go first who is far away and has waited for long, after each release: he says so, has that answered, and asks.
pub(crate) const GIVE_WAY_TO_FAR: Duration = Duration::from_millis(400);
/// A server that answers no sooner is asked for a lock rather than looked at: a look and then an acquire would come too late.
pub(crate) const FAR: Duration = Duration::from_millis(37);
/// For how long a waiting process is known to wait.
pub(crate) const WANT: Duration = Duration::from_secs(10);
/// A process that has had no turn is known to wait for so much longer for each turn of others that it has seen, up to so many turns. It says so
/// again when its wish tells of two turns less.
pub(crate) const PER_TURN: Duration = Duration::from_secs(1);
pub(crate) const MOST_TURNS: u32 = 9;
/// A client far away that has waited for so long wishes urgently: those nearby let it go first, or it would find the lock free by chance
/// alone.
pub(crate) const LONG_WAIT: Duration = Duration::from_secs(1);
/// An urgent wish is known for so long, and for as much longer as the client has waited: who has waited longest goes first.
pub(crate) const WANT_URGENTLY: Duration = Duration::from_secs(60);
/// Who has waited for longer than this has waited for so long.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// An urgent wish is repeated when it tells of so much less waiting than there was.
pub(crate) const WAITED_SINCE: Duration = Duration::from_secs(1);
/// A wish that is known for longer than this is urgent.
pub(crate) const URGENT: Duration = Duration::from_secs(20);
/// Who has seen nothing change for so long stands by: it looks seldom, once the others know that.
pub(crate) const STAND_BY_AFTER: Duration = Duration::from_secs(30);
/// The pause between two looks of who stands by.
pub(crate) const LOOK_STANDING_BY: Duration = Duration::from_secs(1);
/// How long those who come later let somebody go first who stands by, after each release.
pub(crate) const GIVE_WAY_TO_STANDBY: Duration = Duration::from_millis(1_500);
/// The wish of who stands by is known for so long.
pub(crate) const WANT_STANDING_BY: Duration = Duration::from_secs(300);
/// A wish that is known for longer than this is of somebody who stands by.
pub(crate) const STANDBY: Duration = Duration::from_secs(120);
/// A wish is not repeated sooner.
pub(crate) const WANT_AGAIN: Duration = Duration::from_millis(20);

/// For so long a writer is known to wish that no shared hold begins; it says so again at its looks.
pub(crate) const DRAIN: Duration = Duration::from_secs(1);
/// No writer is known to wish it for longer: what says so is of a clock that has gone back since.
pub(crate) const LONGEST_WISH: Duration = Duration::from_secs(2);
/// For so long shared holds begin whatever writers wish, after an exclusive one.
pub(crate) const READERS_TURN: Duration = Duration::from_millis(120);
/// The longest pause between two looks of who waits for a shared hold.
pub(crate) const LOOK_TO_READ: Duration = Duration::from_millis(70);
/// How often a process that holds a lock shared looks whether a writer waits.
pub(crate) const LOOK_FOR_WRITERS: Duration = Duration::from_millis(40);

/// The pause between two readings of the client's bell, for a while after it was rung; and otherwise, while leases may idle.
pub(crate) const TICK: Duration = Duration::from_millis(5);
pub(crate) const TICK_AT_REST: Duration = Duration::from_millis(12);
/// An idle lease is taken again if the last reading of the bell that was answered was sent within this time.
pub(crate) const HEARD: Duration = Duration::from_millis(60);
/// After somebody has rung, the client hears better for so long.
pub(crate) const LIVELY: Duration = Duration::from_millis(250);

const fn longer(long: Duration, short: Duration) -> bool {
    long.as_micros() > short.as_micros()
}

const _: () = {
    assert!(
        longer(SOON, SERVER_LOCK_WAIT),
        "the server tells who reads a locked table before its connection is given up"
    );
    assert!(
        longer(LOCK_WAIT, SERVER_LOCK_WAIT.saturating_mul(2)),
        "the server ends a wait before the client gives the packet up, so that its outcome is known"
    );
    assert!(
        longer(GIVE_WAY, LOOK),
        "whoever waits looks at least once while the others give way"
    );
    assert!(
        !longer(FAR.saturating_mul(2), GIVE_WAY),
        "who looks and then asks comes while the others give way"
    );
    assert!(
        longer(ANSWER, LOOK.saturating_mul(5)),
        "a lock that is looked at counts as seen"
    );
    assert!(
        longer(ANSWER, LEFT),
        "what was left to a lane that stands still is taken back in time for an answer"
    );
    assert!(
        longer(WANT, GIVE_WAY.saturating_mul(8)),
        "a wish outlives many turns"
    );
    assert!(
        longer(
            URGENT,
            WANT.saturating_add(PER_TURN.saturating_mul(MOST_TURNS))
        ),
        "an urgent wish is told from any other"
    );
    assert!(
        longer(WANT_URGENTLY, URGENT.saturating_mul(2)),
        "an urgent wish stays so for a while"
    );
    assert!(
        longer(STANDBY, WANT_URGENTLY.saturating_add(LONGEST_WAIT))
            && longer(WANT_STANDING_BY, STANDBY.saturating_mul(2)),
        "who stands by is told from who wishes urgently"
    );
    assert!(
        longer(
            GIVE_WAY_TO_STANDBY,
            LOOK_STANDING_BY.saturating_add(FAR.saturating_mul(4))
        ),
        "who stands by looks, and asks, while the others give way"
    );
    assert!(
        longer(HEARD, TICK_AT_REST.saturating_mul(2)),
        "a reading that is late by one does not end all that idles"
    );
    assert!(
        longer(DRAIN, LOOK.saturating_mul(5)),
        "a writer that looks keeps its wish up"
    );
    assert!(
        longer(LONGEST_WISH, DRAIN) && longer(LONGEST_WISH, GIVE_WAY),
        "what is said just now is believed"
    );
    assert!(
        longer(DRAIN, LOOK_FOR_WRITERS.saturating_mul(8)),
        "those who hold a lock shared hear of a writer while its wish is up"
    );
    assert!(
        longer(READERS_TURN, LOOK_TO_READ),
        "whoever waits for a shared hold looks at least once in the readers' turn"
    );
    assert!(
        longer(SLICE, WANT_AGAIN),
        "a wish is repeated within a turn"
    );
    assert!(
        longer(LANE_AGE, REGISTRATION.saturating_mul(2)),
        "no lane that is used is purged"
    );
    assert!(
        longer(SERVER_IDLE, IDLE.saturating_mul(2)),
        "we close idle connections first"
    );
};
