//! Gates: where a packet waits until a test lets it go, and where a test waits until the packet is there.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How long something is withheld.
#[derive(Debug, Clone)]
pub enum Hold {
    /// For this time.
    For(Duration),
    /// Until the gate opens.
    Until(Gate),
}

/// A gate, closed at first; clones are the same gate. Opened, it stays open.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    state: Arc<watch::Sender<State>>,
}

#[derive(Debug, Default)]
struct State {
    open: bool,
    arrived: u64,
    answered: u64,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everything pass that waits here or comes later.
    pub fn open(&self) {
        self.state.send_modify(|state| state.open = true);
    }

    /// Waits until the gate is open.
    pub async fn opened(&self) {
        self.wait(|state| state.open).await;
    }

    /// Waits until a command or a reply has come to this gate. A reply has when it is here to its last byte, so that
    /// the server is done with its command.
    pub async fn reached(&self) {
        self.reached_by(1).await;
    }

    /// Waits until `count` commands or replies have come to this gate.
    pub async fn reached_by(&self, count: u64) {
        self.wait(|state| state.arrived >= count).await;
    }

    /// Waits until the server has answered a command that this gate had held.
    pub async fn answered(&self) {
        self.wait(|state| state.answered >= 1).await;
    }

    fn arrive(&self) {
        self.state.send_modify(|state| state.arrived += 1);
    }

    fn answer(&self) {
        self.state.send_modify(|state| state.answered += 1);
    }

    async fn wait(&self, reached: impl FnMut(&State) -> bool) {
        // The sender cannot be gone: it is in `self`.
        let _ = self.state.subscribe().wait_for(reached).await;
    }
}

/// A hold that has begun.
#[derive(Debug, Clone)]
pub(super) enum Barrier {
    Time(Instant),
    Gate(Gate),
}

impl Barrier {
    pub(super) fn begin(hold: Hold) -> Self {
        match hold {
            Hold::For(time) => Self::Time(Instant::now() + time),
            Hold::Until(gate) => {
                gate.arrive();
                Self::Gate(gate)
            }
        }
    }

    pub(super) async fn lifted(&self) {
        match self {
            Self::Time(instant) => sleep_until(*instant).await,
            Self::Gate(gate) => gate.opened().await,
        }
    }

    /// Tells the gate that the server has answered what was held here.
    pub(super) fn answered(&self) {
        if let Self::Gate(gate) = self {
            gate.answer();
        }
    }
}
