//! On what terms a lock is asked for and held.

use std::sync::Arc;
use std::time::Duration;

use crate::token::Token;

/// How many fencing tokens a grant reserves for turns in memory.
const BLOCK: u32 = 65_536;

/// On what terms a lock is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) auto_renew: bool,
    /// Whether it may pass from task to task in memory, if the rest allows it.
    pub(crate) passes: bool,
    pub(crate) hold_at_least: Duration,
    pub(crate) max_hold: Option<Duration>,
    /// How long a released lease idles; zero: not at all.
    pub(crate) linger: Duration,
    pub(crate) description: Arc<str>,
    pub(crate) owner: Option<Token>,
}

impl Terms {
    /// Whether a lease on these terms may pass from task to task in memory.
    pub(crate) fn may_pass(&self) -> bool {
        self.passes
            && self.auto_renew
            && self.owner.is_none()
            && self.hold_at_least.is_zero()
            && self.max_hold.is_none()
    }

    /// Whether a lease on these terms may idle.
    pub(crate) fn may_linger(&self) -> bool {
        !self.linger.is_zero() && self.may_pass()
    }

    /// Whether the server is asked about the lease before it ends: to renew it; or, of a level that is not renewed, whether
    /// the owner's others keep it.
    pub(crate) fn is_asked_about(&self) -> bool {
        self.auto_renew || self.owner.is_some()
    }

    /// Whether a lease on those terms serves a request on these: what a request is described by does not count.
    pub(crate) fn share(&self, those: &Self) -> bool {
        let Self {
            ttl,
            auto_renew,
            passes,
            hold_at_least,
            max_hold,
            linger,
            description: _,
            owner,
        } = self;
        (*ttl, *auto_renew, *hold_at_least) == (those.ttl, those.auto_renew, those.hold_at_least)
            && *passes == those.passes
            // What does not pass on is described as its holder asked.
            && (*passes || self.description == those.description)
            && (*max_hold, *owner, *linger) == (those.max_hold, those.owner, those.linger)
    }

    /// How long the lease is that is asked for.
    pub(crate) fn lease(&self) -> Duration {
        let longest = self.max_hold.unwrap_or(Duration::MAX);
        // A lease that ended before the minimum hold would free the lock too early.
        self.ttl.max(self.hold_at_least).min(longest)
    }

    /// How many fencing tokens the grant reserves.
    pub(crate) fn block(&self) -> u32 {
        if self.may_pass() { BLOCK } else { 1 }
    }
}

/// How long a task waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Not,
    For(Duration),
    Forever,
}
