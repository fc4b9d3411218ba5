//! One direction of a connection: bytes that are under way, each with the moment at which they arrive.
//!
//! Bytes enter with their own arrival time and never overtake each other, so a delay of 10 ms is that of a long wire:
//! a hundred packets that were sent together arrive together, 10 ms later.

use std::collections::VecDeque;
use std::future::pending;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::state::{Link, Shared, locked};

/// Bytes that have arrived but that the reader does not take: beyond this many, the sender is not read either. Little
/// more than a socket's own buffer, so that a client which does not read blocks the server almost as without a proxy.
const WINDOW: usize = 256 * 1024;
/// How many chunks one system call writes.
const SLICES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

pub(super) struct Pipe {
    shared: Arc<Shared>,
    direction: Direction,
    random: StdRng,
    chunks: VecDeque<Chunk>,
    /// How much of the first chunk was written.
    written: usize,
    queued: usize,
    /// The end of the stream arrives here, behind all chunks.
    end: Option<Instant>,
    last_due: Instant,
}

struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

/// What remains to be done with a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Open,
    /// All has arrived, the end included.
    Ended,
}

impl Pipe {
    pub(super) fn new(shared: Arc<Shared>, direction: Direction, seed: u64) -> Self {
        Self {
            shared,
            direction,
            random: StdRng::seed_from_u64(seed),
            chunks: VecDeque::new(),
            written: 0,
            queued: 0,
            end: None,
            last_due: Instant::now(),
        }
    }

    pub(super) fn push(&mut self, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let due = self.next_due();
        self.queued += bytes.len();
        self.chunks.push_back(Chunk { due, bytes });
    }

    /// Lets the end of the stream follow what is under way.
    pub(super) fn end(&mut self) {
        let due = self.next_due();
        self.end.get_or_insert(due);
    }

    /// Loses what is under way.
    pub(super) fn clear(&mut self) {
        self.chunks.clear();
        self.written = 0;
        self.queued = 0;
    }

    /// Whether the reader lags so far behind that the sender has to wait.
    pub(super) fn is_congested(&self) -> bool {
        self.queued > WINDOW
            && self
                .chunks
                .front()
                .is_some_and(|chunk| chunk.due <= Instant::now())
    }

    /// Waits until [`advance`](Self::advance) has something to do.
    pub(super) async fn ready(&self, stream: &TcpStream) {
        match (self.chunks.front(), self.end) {
            (Some(chunk), _) => {
                sleep_until(chunk.due).await;
                // An error is met again, and told, by the write.
                let _ = stream.writable().await;
            }
            (None, Some(end)) => sleep_until(end).await,
            (None, None) => pending().await,
        }
    }

    /// Writes what has arrived, as far as the socket takes it.
    pub(super) fn advance(&mut self, stream: &TcpStream) -> io::Result<Flow> {
        loop {
            let now = Instant::now();
            let due = self
                .chunks
                .iter()
                .take(SLICES)
                .take_while(|chunk| chunk.due <= now);
            let mut slices: Vec<_> = due.map(|chunk| IoSlice::new(&chunk.bytes)).collect();
            let mut unwritten = slices.as_mut_slice();
            if unwritten.is_empty() {
                let ended = self.chunks.is_empty() && self.end.is_some_and(|end| end <= now);
                return Ok(if ended { Flow::Ended } else { Flow::Open });
            }
            IoSlice::advance_slices(&mut unwritten, self.written);
            match stream.try_write_vectored(unwritten) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.wrote(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Flow::Open),
                Err(error) => return Err(error),
            }
        }
    }

    fn wrote(&mut self, count: usize) {
        self.queued -= count;
        self.written += count;
        while let Some(chunk) = self.chunks.front()
            && self.written >= chunk.bytes.len()
        {
            self.written -= chunk.bytes.len();
            self.chunks.pop_front();
        }
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.shared.count(|counters| match self.direction {
            Direction::ToServer => counters.bytes_to_server += count,
            Direction::ToClient => counters.bytes_to_client += count,
        });
    }

    fn next_due(&mut self) -> Instant {
        let Link {
            to_server,
            to_client,
            jitter,
        } = *locked(&self.shared.link);
        let delay = match self.direction {
            Direction::ToServer => to_server,
            Direction::ToClient => to_client,
        };
        let jitter = if jitter.is_zero() {
            Duration::ZERO
        } else {
            jitter.mul_f64(self.random.random())
        };
        // The order stays when the delay shrinks.
        self.last_due = self.last_due.max(Instant::now() + delay + jitter);
        self.last_due
    }
}
