//! Replies that are lost, packets that come late, and holders that die.

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use rustix::process::Signal;
use tag_lock::{Error, LockClient};
use tokio::time::timeout;

use super::{TTL, held};
use crate::support::proxy::{Command, Fault, Gate, Hold, Proxy, Upstream, once};
use crate::support::{TestDatabase, connected, eventually, signal, spawn_worker};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// No request's time is over while the test runs.
const PATIENT: Duration = Duration::from_secs(1_800);
const LONG: Duration = Duration::from_secs(120);

/// Whether a command is the packet of a group.
fn is_group(command: &Command) -> bool {
    let sql = command.sql().unwrap_or_default();
    let part = b"SET @tag_lock_granted=IF(LENGTH";
    sql.windows(part.len()).any(|window| window == part)
}

async fn through(proxy: &Proxy, database: &TestDatabase) -> LockClient {
    let options = proxy.url(&database.url).parse().expect("a URL");
    connected(LockClient::builder(options).request_timeout(PATIENT)).await
}

/// Each way to lose a packet or its reply: it is found out for the whole group, and the caller does not notice.
#[tokio::test]
async fn a_lost_reply_is_found_out() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let (client, other) = (through(&proxy, &database).await, database.client().await);
    let mut last = 0;
    for fault in [
        Fault::CutAfter(Upstream::Forwarded),
        Fault::CutAfter(Upstream::FirstByte),
        Fault::CutAfter(Upstream::Replied),
        Fault::TruncateReply,
        Fault::CutBefore,
        Fault::Truncate,
        Fault::Reset,
    ] {
        // Granted by the packet whose reply is lost, or by the next one.
        let faults = proxy.counters().all_faults();
        proxy.on_command(once(is_group, fault.clone()));
        let guard = client.lock_all(NAMES).ttl(TTL).acquire();
        let guard = timeout(LONG, guard).await.expect("healed").expect("healed");
        assert_eq!(proxy.counters().all_faults(), faults + 1, "{fault:?}");
        assert_eq!(held(&other, &NAMES).await, NAMES, "{fault:?}");
        for (_, token) in guard.fencing_tokens() {
            assert!(token > last, "{fault:?}: tokens rise");
        }
        last = guard
            .fencing_tokens()
            .map(|(_, token)| token)
            .max()
            .expect("some");
        guard.release().await.expect("ours");
        assert!(held(&other, &NAMES).await.is_empty(), "{fault:?}");

        // Refused by it.
        let single = other.lock("b").ttl(TTL).acquire().await.expect("acquires");
        proxy.on_command(once(is_group, fault.clone()));
        let guard = client.lock_all(NAMES).ttl(TTL).try_acquire();
        let guard = timeout(LONG, guard)
            .await
            .expect("healed")
            .expect("an answer");
        assert!(guard.is_none());
        assert_eq!(held(&other, &NAMES).await, ["b"], "{fault:?}");
        single.release().await.expect("ours");

        // Nobody waits for it any more.
        proxy.on_command(once(is_group, fault.clone()));
        let acquire = client.lock_all(NAMES).ttl(TTL).acquire();
        drop(timeout(Duration::from_millis(2), acquire).await);
        client
            .counter("a lane's round trip")
            .add(1)
            .await
            .expect("adds");
        eventually("nothing leaks", async || {
            held(&other, &NAMES).await.is_empty()
        })
        .await;
        proxy.pass_all();
    }
    database.remove().await;
}

/// The server is out of reach for longer than the request's time: the caller is told so, and when it is settled, nothing is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_outcome_is_settled_in_the_background() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let options = proxy.url(&database.url).parse().expect("a URL");
    // Short, since the test waits for their ends.
    let builder = LockClient::builder(options)
        .packet_timeout(Duration::from_secs(1))
        .request_timeout(Duration::from_secs(2));
    let (client, other) = (connected(builder).await, database.client().await);
    // A session that was given up lives on, with what was sent to it.
    proxy.ignore_kills(true);
    for committed in [true, false] {
        let gate = Gate::new();
        let hold = gate.clone();
        proxy.on_command(move |command| {
            let held = Hold::Until(hold.clone());
            match (is_group(command), committed) {
                (true, true) => Fault::HoldReply(held),
                (true, false) => Fault::HoldCommand(held),
                _ => Fault::Pass,
            }
        });
        let task = tokio::spawn(client.lock_all(NAMES).ttl(TTL).try_acquire());
        timeout(LONG, gate.reached()).await.expect("it was sent");
        proxy.refuse(true);
        match timeout(LONG, task).await.expect("told").expect("no panic") {
            Err(Error::OutcomeUnknown { name }) => assert_eq!(name, "a"),
            Err(Error::Unreachable { .. }) => {}
            result => panic!("{result:?}"),
        }
        proxy.pass_all();
        proxy.refuse(false);
        if committed {
            eventually("what was granted is given back", async || {
                held(&other, &NAMES).await.is_empty()
            })
            .await;
            gate.open();
        } else {
            let guard = timeout(LONG, client.lock_all(NAMES).ttl(TTL).acquire()).await;
            let guard = guard.expect("in time").expect("acquires");
            // The packet that comes late changes nothing.
            gate.open();
            timeout(LONG, gate.answered())
                .await
                .expect("the server has it");
            assert!(guard.is_held());
            guard.release().await.expect("ours");
            eventually("nothing runs late", async || {
                held(&other, &NAMES).await.is_empty()
            })
            .await;
        }
    }
    database.remove().await;
}

/// One of them is freed by force before the client knows of its grant: the others are given back, and all are taken anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_which_a_part_is_gone_is_none() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let (client, other) = (through(&proxy, &database).await, database.client().await);
    // The rows are there.
    let first = client
        .lock_all(NAMES)
        .ttl(TTL)
        .acquire()
        .await
        .expect("acquires");
    first.release().await.expect("ours");
    let gate = Gate::new();
    let held_back = Fault::HoldReply(Hold::Until(gate.clone()));
    proxy.on_command(once(is_group, held_back));
    let task = tokio::spawn(client.lock_all(NAMES).ttl(TTL).acquire());
    timeout(LONG, gate.reached())
        .await
        .expect("it was carried out");
    let granted = other.inspect("a").await.expect("inspects").expect("a row");
    assert!(other.force_release("b").await.expect("an answer"));
    let single = other.lock("b").ttl(TTL).acquire().await.expect("acquires");
    proxy.cut_all();
    eventually("the others are given back", async || {
        held(&other, &NAMES).await == ["b"]
    })
    .await;
    assert!(!task.is_finished());
    single.release().await.expect("ours");
    let guard = timeout(LONG, task)
        .await
        .expect("its turn")
        .expect("no panic");
    let guard = guard.expect("acquires");
    assert!(guard.fencing_token("a") > Some(granted.highest_fencing_token));
    assert_eq!(held(&other, &NAMES).await, NAMES);
    guard.release().await.expect("ours");
    assert!(held(&other, &NAMES).await.is_empty());
    gate.open();
    database.remove().await;
}

/// A process that dies keeps them for its ttl, and no longer.
#[tokio::test]
async fn a_dead_holders_locks_are_had_after_their_ttl() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let variables = [("HOLDER_URL", database.url.clone())];
    let mut process = spawn_worker("holder_of_several", &variables);
    let mut output = BufReader::new(process.stdout.take().expect("its output"));
    let mut line = String::new();
    while !line.contains("held ") {
        line.clear();
        let length = output.read_line(&mut line).expect("its output");
        assert!(length > 0, "the holder ended early");
    }
    let token: u64 = line
        .rsplit(' ')
        .next()
        .expect("a token")
        .trim()
        .parse()
        .expect("a token");
    signal(&process, Signal::KILL);
    process.wait().expect("it ends");
    assert!(
        client
            .lock_all(NAMES)
            .try_acquire()
            .await
            .expect("an answer")
            .is_none()
    );
    let guard = timeout(LONG, client.lock_all(NAMES).acquire()).await;
    let guard = guard.expect("its leases end").expect("acquires");
    assert!(guard.fencing_tokens().all(|(_, next)| next > token));
    guard.release().await.expect("ours");
    database.remove().await;
}

/// Takes several locks, says so, and waits to be killed.
#[tokio::test]
#[ignore = "the test of dead holders starts it"]
async fn holder_of_several() {
    let url = std::env::var("HOLDER_URL").expect("only a test starts this");
    let client = connected(crate::support::patient(&url)).await;
    let request = client.lock_all(NAMES).ttl(Duration::from_secs(4));
    let guard = request.acquire().await.expect("acquires");
    let token = guard
        .fencing_tokens()
        .map(|(_, token)| token)
        .max()
        .expect("some");
    let mut out = std::io::stdout().lock();
    writeln!(out, "held {token}").expect("the test listens");
    out.flush().expect("the test listens");
    drop(out);
    tokio::time::sleep(LONG).await;
    drop(guard);
}
