//! A resource that checks fencing tokens, as a store behind a lock would: it remembers the highest token of each name,
//! and refuses lower ones. It runs in the run's own process, which no fault stops.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What it accepted.
#[derive(Debug, Default)]
struct Store {
    highest: HashMap<Arc<str>, u64>,
    accepted: Vec<(Arc<str>, u64)>,
}

/// The running resource; it ends when it is dropped.
#[derive(Debug)]
pub struct Resource {
    address: SocketAddr,
    store: Arc<Mutex<Store>>,
    task: tokio::task::JoinHandle<()>,
}

impl Resource {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// If it cannot listen.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let store = Arc::<Mutex<Store>>::default();
        let shared = Arc::clone(&store);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Ok(Self {
            address,
            store,
            task,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it accepted so far, in order.
    #[must_use]
    pub fn accepted(&self) -> Vec<(Arc<str>, u64)> {
        locked(&self.store).accepted.clone()
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Each line is a name and a token; the answer is 1 or 0.
async fn serve(stream: TcpStream, store: Arc<Mutex<Store>>) {
    let _ = stream.set_nodelay(true);
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    // A worker that is gone needs no answer.
    while let Ok(1..) = stream.read_line(&mut line).await {
        let Some(accepted) = locked(&store).write(&line) else {
            return;
        };
        let answer = if accepted { b"1\n" } else { b"0\n" };
        if stream.write_all(answer).await.is_err() {
            return;
        }
        line.clear();
    }
}

impl Store {
    fn write(&mut self, line: &str) -> Option<bool> {
        let (name, token) = line.strip_suffix('\n')?.split_once(' ')?;
        let token: u64 = token.parse().ok()?;
        let known = self.highest.get_key_value(name);
        if known.is_some_and(|(_, highest)| token < *highest) {
            return Some(false);
        }
        let name = known.map_or_else(|| Arc::from(name), |(name, _)| Arc::clone(name));
        self.highest.insert(Arc::clone(&name), token);
        self.accepted.push((name, token));
        Some(true)
    }
}

fn locked(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_tokens_are_refused() {
        let mut store = Store::default();
        let said: Vec<_> = [
            "a 5\n", "a 5\n", "a 4\n", "b 1\n", "a 6\n", "a 5\n", "a", "a x\n",
        ]
        .map(|line| store.write(line))
        .into();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(said, [yes, yes, no, yes, yes, no, None, None]);
    }
}
