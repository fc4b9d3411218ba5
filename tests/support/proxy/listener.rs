//! Accepts connections, and owns their tasks: when it is dropped, all sockets close.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::connection::Connection;
use super::state::Shared;

/// Out of file descriptors, `accept` fails at once and again.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let mut switches = shared.switches.subscribe();
    loop {
        let now = *switches.borrow_and_update();
        tokio::select! {
            changed = switches.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            Some(_) = connections.join_next() => {}
            // While the proxy is paused, the kernel completes connections and nobody greets them.
            accepted = listener.accept(), if !now.paused => match accepted {
                Ok(_) if now.refusing => {}
                Ok((client, _)) => {
                    let shared = Arc::clone(&shared);
                    connections.spawn(async move {
                        if let Ok(connection) = Connection::open(client, &shared).await {
                            connection.run(&shared, now.cuts).await;
                        }
                    });
                }
                Err(_) => sleep(AFTER_FAILURE).await,
            }
        }
    }
}
