//! Over TLS a packet is one record: the kernel keeps back what comes behind the first until the server has acknowledged that, which takes
//! it 40 ms (src/engine/record.rs).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support;
use crate::support::TestDatabase;
use futures_util::future::join_all;
use tag_lock::{Error, LockClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// More than fit into a record.
const TASKS: usize = 256;
const ROUNDS: usize = 20;
/// A machine on which packets take longer shows nothing.
const SLOW: Duration = Duration::from_millis(10);
const ATTEMPTS: u32 = 5;

/// What a client asks for before TLS begins, with its head.
const TLS_REQUEST: usize = 36;
/// The kind of a record with data, and the length of a record's head.
const DATA: u8 = 23;
const HEAD: usize = 5;
/// So many answers belong to the making of a connection.
const CONNECTING: u64 = 12;

/// What went to the server.
#[derive(Default)]
struct Seen {
    packets: AtomicU64,
    /// Those of more than one record.
    long: AtomicU64,
    /// Those of one that took so long that the client does better to send several.
    slow: AtomicU64,
}

/// One connection: answers of the server, and records since the last one.
#[derive(Default)]
struct Wire {
    answers: AtomicU64,
    records: AtomicU64,
    /// When the first of them went.
    began: Mutex<Option<Instant>>,
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut each: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        each(&buffer[..length]);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// Forwards connections to a server, and looks at the records.
async fn watch(server: String, seen: Arc<Seen>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let upstream = TcpStream::connect(&server).await.unwrap();
            for socket in [&client, &upstream] {
                socket.set_nodelay(true).unwrap();
            }
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = upstream.into_split();
            let wire = Arc::new(Wire::default());
            let (there, back) = (Arc::clone(&wire), wire);
            let (seen, answered) = (Arc::clone(&seen), Arc::clone(&seen));
            let mut bytes = Vec::new();
            let mut skipped = 0;
            tokio::spawn(forward(from_client, to_server, move |more| {
                let rest = TLS_REQUEST - skipped;
                let skip = rest.min(more.len());
                skipped += skip;
                bytes.extend_from_slice(&more[skip..]);
                while let Some(&[kind, _, _, high, low]) = bytes.first_chunk::<HEAD>() {
                    let end = HEAD + usize::from(u16::from_be_bytes([high, low]));
                    if bytes.len() < end {
                        break;
                    }
                    bytes.drain(..end);
                    if kind != DATA || there.answers.load(Ordering::SeqCst) < CONNECTING {
                        continue;
                    }
                    there.began.lock().unwrap().get_or_insert_with(Instant::now);
                    match there.records.fetch_add(1, Ordering::SeqCst) {
                        0 => seen.packets.fetch_add(1, Ordering::SeqCst),
                        1 => seen.long.fetch_add(1, Ordering::SeqCst),
                        _ => 0,
                    };
                }
            }));
            tokio::spawn(forward(from_server, to_client, move |_| {
                back.answers.fetch_add(1, Ordering::SeqCst);
                let began = back.began.lock().unwrap().take();
                let took = began.map(|began| began.elapsed()).unwrap_or_default();
                if back.records.swap(0, Ordering::SeqCst) == 1 && took > SLOW {
                    answered.slow.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
    });
    port
}

async fn load(client: &LockClient) {
    join_all((0..TASKS).map(async |task| {
        for _ in 0..ROUNDS {
            let guard = client.lock(&format!("order:{task}")).acquire().await;
            guard.unwrap().release().await.unwrap();
        }
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_is_one_record() {
    let database = TestDatabase::new().await;
    let cipher = sqlx::query_as::<_, (String, String)>("SHOW SESSION STATUS LIKE 'Ssl_cipher'");
    let (_, cipher) = cipher
        .fetch_one(&mut database.connection().await)
        .await
        .unwrap();
    let (head, rest) = database.url.split_once('@').unwrap();
    let (server, name) = rest.split_once('/').unwrap();
    let seen = Arc::new(Seen::default());
    let port = watch(server.to_owned(), Arc::clone(&seen)).await;
    let url = format!("{head}@127.0.0.1:{port}/{name}?ssl-mode=REQUIRED");
    let client = support::patient(&url).connect().await;
    if cipher.is_empty() {
        // This server has no TLS, and says so.
        assert!(
            matches!(client, Err(Error::Unreachable { .. })),
            "{client:?}"
        );
        database.remove().await;
        return;
    }
    let client = client.unwrap();
    load(&client).await;
    let mut shown = false;
    for _ in 0..ATTEMPTS {
        for count in [&seen.packets, &seen.long, &seen.slow] {
            count.store(0, Ordering::SeqCst);
        }
        load(&client).await;
        let [packets, long, slow] =
            [&seen.packets, &seen.long, &seen.slow].map(|count| count.load(Ordering::SeqCst));
        println!("{packets} packets, {long} of more than one record, {slow} slow; {cipher}");
        // After each of those a few packets are long.
        if slow * 50 <= packets {
            assert!(packets > 0 && long * 4 < packets, "{long} of {packets}");
            shown = true;
            break;
        }
    }
    if !shown {
        eprintln!("too slow a machine to show how long packets are over TLS");
    }
    client.close(tag_lock::AtClose::Release).await;
    database.remove().await;
}
