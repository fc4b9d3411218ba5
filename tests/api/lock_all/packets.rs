//! Requests that travel together: each is granted or refused as a whole, whatever becomes of the others.

use std::time::Duration;

use futures_util::future::join_all;
use tag_lock::{LockAllGuard, LockClient};

use super::{TTL, held};
use crate::support::proxy::{Command, Fault, Gate, Hold, Proxy, Upstream, once};
use crate::support::{TestDatabase, connected, eventually, run};

const REQUESTS: usize = 32;
/// Those of them of which somebody else holds a name.
const REFUSED: [usize; 2] = [3, 7];
/// No request's time is over while the test runs.
const PATIENT: Duration = Duration::from_secs(1_800);

/// Whether a command is a packet of more than one group.
fn is_of_several(command: &Command) -> bool {
    let sql = command.sql().unwrap_or_default();
    let part = b"SET @tag_lock_granted=CONCAT_WS";
    sql.windows(part.len()).any(|window| window == part)
}

/// Whether a command is the packet of a group, or of several.
fn is_together(command: &Command) -> bool {
    let sql = command.sql().unwrap_or_default();
    let part = b"SET @tag_lock_granted=";
    sql.windows(part.len()).any(|window| window == part)
}

/// Their names do not stand next to each other in the order of packets.
fn names(request: usize) -> [String; 3] {
    ["first", "second", "third"].map(|which| format!("{which}:{request}"))
}

/// A client behind a proxy, whose next group keeps the link busy until the gate opens: those that come meanwhile travel together.
async fn behind_a_gate(database: &TestDatabase) -> (Proxy, LockClient) {
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let options = proxy.url(&database.url).parse().expect("a URL");
    let builder = LockClient::builder(options).request_timeout(PATIENT);
    let client = connected(builder).await;
    // The link is open, and its lane has a row.
    let group = client.lock_all(["open", "the link"]).acquire().await;
    group.expect("granted").release().await.expect("ours");
    (proxy, client)
}

/// Sends all requests while another one is under way, and lets `fault` happen to the first packet of several. Those that cannot be granted do
/// not wait.
async fn all_at_once(
    proxy: &Proxy,
    client: &LockClient,
    fault: Fault,
) -> Vec<Option<LockAllGuard>> {
    let gate = Gate::new();
    let hold = Fault::HoldCommand(Hold::Until(gate.clone()));
    proxy.on_command(once(is_together, hold));
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.lock_all(["in", "the way"]).acquire().await }
    });
    gate.reached().await;
    let requests: Vec<_> = (0..REQUESTS)
        .map(|request| {
            let client = client.clone();
            tokio::spawn(async move {
                let all = client.lock_all(names(request)).ttl(TTL);
                if REFUSED.contains(&request) {
                    all.try_acquire().await
                } else {
                    all.acquire().await.map(Some)
                }
            })
        })
        .collect();
    // Most of them are there by then; those that come later travel with the next packet.
    tokio::time::sleep(Duration::from_millis(300)).await;
    proxy.on_command(once(is_of_several, fault));
    gate.open();
    let first = first.await.expect("ends").expect("granted");
    let guards = join_all(requests).await.into_iter();
    let guards = guards.map(|guard| guard.expect("ends").expect("an answer"));
    let guards = guards.collect();
    first.release().await.expect("ours");
    proxy.pass_all();
    guards
}

#[tokio::test(flavor = "multi_thread")]
async fn each_is_granted_or_refused_as_a_whole() {
    let database = TestDatabase::new().await;
    let (proxy, client) = behind_a_gate(&database).await;
    let other = database.client().await;
    let mut last = 0;
    for fault in [
        Fault::Pass,
        Fault::Pass,
        Fault::CutAfter(Upstream::Forwarded),
        Fault::CutAfter(Upstream::Replied),
        Fault::TruncateReply,
        Fault::CutBefore,
        Fault::Reset,
    ] {
        let mut single = Vec::new();
        for (request, which) in REFUSED.into_iter().zip([1, 2]) {
            let name = &names(request)[which];
            single.push(other.lock(name).ttl(TTL).acquire().await.expect("acquires"));
        }
        let faults = proxy.counters().all_faults();
        proxy.record(true);
        let guards = all_at_once(&proxy, &client, fault.clone()).await;
        let packets = proxy.take_recorded();
        // The gate is one of them.
        let expected = faults + 1 + u64::from(fault.kind().is_some());
        assert_eq!(proxy.counters().all_faults(), expected, "{fault:?}");
        let sent = packets.iter().filter(|packet| {
            let sql = packet.sql.as_deref().unwrap_or_default();
            sql.contains("SET @tag_lock_granted=")
        });
        let sent = sent.count();
        assert!(sent < REQUESTS / 2, "{fault:?}: {sent} packets");
        let before = last;
        for (request, guard) in guards.iter().enumerate() {
            let names = names(request);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let is = held(&other, &names).await;
            match REFUSED.iter().position(|refused| *refused == request) {
                Some(which) => {
                    assert!(guard.is_none(), "{fault:?}: {request}");
                    assert_eq!(is, [names[which + 1]], "{fault:?}: {request}");
                }
                None => assert_eq!(is, names, "{fault:?}: {request}"),
            }
            for (_, token) in guard.iter().flat_map(LockAllGuard::fencing_tokens) {
                assert!(token > before, "{fault:?}: tokens rise");
                last = last.max(token);
            }
        }
        for guard in guards.into_iter().flatten() {
            guard.release().await.expect("ours");
        }
        for guard in single {
            guard.release().await.expect("ours");
        }
    }
    for request in 0..REQUESTS {
        let names = names(request);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        eventually("nothing leaks", async || {
            held(&other, &names).await.is_empty()
        })
        .await;
    }
    database.remove().await;
}

/// A name that the server cannot take displeases it as a whole packet; the others are granted all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_packet_that_is_undone_is_halved() {
    let database = TestDatabase::new().await;
    let (proxy, client) = behind_a_gate(&database).await;
    drop(all_at_once(&proxy, &client, Fault::Pass).await);
    // Whatever is about this name fails, as by a trigger of the application's.
    let mut connection = database.connection().await;
    let trigger = "CREATE TRIGGER refuses BEFORE UPDATE ON t_tag_lock FOR EACH ROW \
                   BEGIN IF NEW.lock_name = 'second:5' AND NEW.status = 1 THEN \
                   SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1644; END IF; END";
    run(&mut connection, trigger).await;
    let requests = (0..REQUESTS).map(|request| client.lock_all(names(request)).ttl(TTL).acquire());
    for (request, guard) in join_all(requests).await.into_iter().enumerate() {
        assert_eq!(guard.is_err(), request == 5, "{request}");
    }
    database.remove().await;
}
