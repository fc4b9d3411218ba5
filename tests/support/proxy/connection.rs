//! One connection: two sockets, moved by one task, so that dropping the task closes both.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use tokio::net::TcpStream;

use super::dialogue::{Dialogue, Standing};
use super::gate::Barrier;
use super::pipe::Flow;
use super::state::{Shared, locked};

const BUFFER: usize = 64 * 1024;

pub(super) struct Connection {
    client: TcpStream,
    server: TcpStream,
    dialogue: Dialogue,
    _open: OpenConnection,
}

/// Counts itself among the open connections.
struct OpenConnection(Arc<Shared>);

/// What a look at a socket brought.
enum Read {
    Bytes(usize),
    Nothing,
    Closed,
}

impl Connection {
    /// Connects to the server; a server that is not there shows as a connection closed at once.
    pub(super) async fn open(client: TcpStream, shared: &Arc<Shared>) -> io::Result<Self> {
        let upstream = locked(&shared.upstream).clone();
        let server = TcpStream::connect(upstream).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let mut number = 0;
        shared.count(|counters| {
            counters.connections += 1;
            number = counters.connections;
        });
        shared.open.send_modify(|open| *open += 1);
        let dialogue = Dialogue::new(shared, number);
        Ok(Self {
            client,
            server,
            dialogue,
            _open: OpenConnection(Arc::clone(shared)),
        })
    }

    /// Runs until both sides are closed. `cuts` is how often all connections had been cut when this one came.
    pub(super) async fn run(mut self, shared: &Shared, cuts: u64) {
        let mut switches = shared.switches.subscribe();
        let mut buffer = vec![0; BUFFER];
        loop {
            let now = *switches.borrow_and_update();
            match self.dialogue.standing {
                _ if now.cuts != cuts => return,
                Standing::Cut => return,
                Standing::Reset => {
                    // Without lingering, the close that follows sends RST. Where that is refused, it is a plain close.
                    let _ = self.client.set_zero_linger();
                    return;
                }
                Standing::Open | Standing::Draining | Standing::Frozen => {}
            }
            let moves = !now.paused && self.dialogue.standing != Standing::Frozen;
            let Dialogue {
                to_server,
                to_client,
                held_command,
                held_reply,
                ..
            } = &self.dialogue;
            tokio::select! {
                changed = switches.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                _ = self.client.readable(), if moves && self.dialogue.hears_client() => {
                    match read(&self.client, &mut buffer) {
                        Read::Bytes(count) => self.dialogue.client_sent(&buffer[..count]),
                        Read::Nothing => {}
                        Read::Closed => self.dialogue.client_closed(),
                    }
                }
                _ = self.server.readable(), if moves && self.dialogue.hears_server() => {
                    match read(&self.server, &mut buffer) {
                        Read::Bytes(count) => self.dialogue.server_sent(&buffer[..count]),
                        Read::Nothing => {}
                        Read::Closed => self.dialogue.server_closed(),
                    }
                }
                () = to_server.ready(&self.server), if moves => {
                    match self.dialogue.to_server.advance(&self.server) {
                        Ok(Flow::Open) => {}
                        Err(_) if self.dialogue.standing == Standing::Open => {
                            // What the server said before it closed is still to be read; then comes its end.
                            self.dialogue.to_server.clear();
                        }
                        Ok(Flow::Ended) | Err(_) => return,
                    }
                }
                () = to_client.ready(&self.client), if moves => {
                    match self.dialogue.to_client.advance(&self.client) {
                        Ok(Flow::Open) => {}
                        Err(_) if self.dialogue.standing == Standing::Open => self.dialogue.client_closed(),
                        Ok(Flow::Ended) | Err(_) => return,
                    }
                }
                () = lifted(held_command.as_ref().map(|held| &held.barrier)), if held_command.is_some() => {
                    self.dialogue.release_command();
                }
                () = lifted(held_reply.as_ref().map(|held| &held.barrier)), if held_reply.is_some() => {
                    self.dialogue.release_reply();
                }
            }
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

async fn lifted(barrier: Option<&Barrier>) {
    if let Some(barrier) = barrier {
        barrier.lifted().await;
    }
}

fn read(stream: &TcpStream, buffer: &mut [u8]) -> Read {
    match stream.try_read(buffer) {
        Ok(0) => Read::Closed,
        Ok(count) => Read::Bytes(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Read::Nothing,
        Err(_) => Read::Closed,
    }
}
