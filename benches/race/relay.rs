//! A relay that makes a server distant: each direction arrives a fixed time later, in order, at full bandwidth.
//!
//! Threads, not tasks: `thread::sleep` is exact to some 60 µs, tokio's timers to a millisecond.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::contestants::Result;

/// A listening relay; it takes no more connections once dropped.
pub struct Relay {
    address: SocketAddr,
    closed: Arc<AtomicBool>,
}

impl Relay {
    /// Listens on a free port for connections to `host:port`, which get `delay` in each direction.
    pub fn start(host: &str, port: u16, delay: Duration) -> Result<Self> {
        let target = (host, port)
            .to_socket_addrs()?
            .next()
            .ok_or("the server's host has no address")?;
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let closed = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&closed);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                // A client whose connection cannot be passed on sees it closed.
                let _ = connect(client, target, delay);
            }
        });
        Ok(Self { address, closed })
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

fn connect(client: TcpStream, target: SocketAddr, delay: Duration) -> std::io::Result<()> {
    let server = TcpStream::connect(target)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    forward(client.try_clone()?, server.try_clone()?, delay);
    forward(server, client, delay);
    Ok(())
}

/// Passes on what comes, `delay` after it came.
fn forward(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if sender
                .send((Instant::now() + delay, buffer[..length].to_vec()))
                .is_err()
            {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
