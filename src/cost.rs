//! What the pure parts cost, by fixed work: bytes and statements for the server to parse, allocations of
//! our own. No clock: the numbers are the same on every machine, so that a change which makes
//! something dearer is seen at once. Where one is raised on purpose, raise it here.

use std::sync::Arc;

use allocation_counter::measure;

use crate::name::Name;
use crate::sql::dialect::Dialect;
use crate::sql::operation::{Acquire, Operation, Release, Want};
use crate::sql::packet::{self, Batch, Mode, RowOperation, StripeUse};
use crate::sql::prepared::Prepared;
use crate::sql::reply::Reply;
use crate::sql::row::RowKey;
use crate::sql::script::{Packet, Proof};
use crate::sql::wish::GivesWay;
use crate::token::Token;

/// What `work` allocates, and what it returns.
pub(crate) fn allocations<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let (mut work, mut result) = (Some(work), None);
    let counted = measure(|| result = work.take().map(|work| work()));
    (counted.count_total, result.expect("it ran"))
}

fn rows(number: usize, operation: impl Fn() -> Operation) -> Vec<RowOperation> {
    (0..number)
        .map(|number| RowOperation {
            key: RowKey::lock(Name::new(&format!("order:{number:08}")).expect("a name")),
            operation: operation(),
            create: false,
            stripes: StripeUse::None,
            group: 0,
        })
        .collect()
}

fn acquire() -> Operation {
    Operation::Acquire(Acquire {
        token: Token::random(),
        ttl: 30_000_000,
        block: 65_536,
        level: None,
        gives_way: GivesWay::TO_ALL,
        idles: false,
        queues: false,
        description: Arc::from("nightly report"),
        held_by: Arc::from("web-1/4711"),
    })
}

fn release() -> Operation {
    Operation::Release(Release {
        token: Token::random(),
        fence: 1_790_000_000_000_000,
        used: 1_790_000_000_000_000 - 65_535,
        hold: 0,
        level: None,
        until: 0,
        queues: true,
        finishes: false,
    })
}

/// In a session that has sent such a packet before.
fn write(rows: &[RowOperation], prepared: &mut Prepared) -> Packet {
    let batch = Batch {
        lane: Token::random(),
        number: 1_000_000,
        rows,
        mode: Mode::Skip,
        not_after: 1_790_000_000_000_000,
    };
    packet::write(&batch, Dialect::MariaDb { sequences: true }, prepared)
}

/// A figure that may fall, and not rise.
pub(crate) fn at_most(what: &str, figure: u64, limit: u64) {
    println!("{what}: {figure} of {limit}");
    assert!(figure <= limit, "{what} is {figure}, more than {limit}");
}

fn len(packet: &Packet) -> u64 {
    u64::try_from(packet.sql.len()).expect("small")
}

#[test]
fn a_packet_for_one_lock_is_three_prepared_statements() {
    for (what, rows) in [("acquire", rows(1, acquire)), ("release", rows(1, release))] {
        let mut prepared = Prepared::default();
        write(&rows, &mut prepared);
        let first = write(&rows, &mut prepared);
        assert_eq!(first.sql.matches("PREPARE").count(), 3, "{}", first.sql);
        let (allocations, packet) = allocations(|| write(&rows, &mut prepared));
        assert!(matches!(packet.proof, Proof::Mark(_)), "{}", packet.sql);
        assert_eq!(packet.sql.matches("EXECUTE").count(), 3, "{}", packet.sql);
        // What is unset, those that are prepared, the check, the mark, the COMMIT, and the answer or an error.
        let statements = packet.sql.replace("';'", "").matches(';').count();
        assert_eq!(statements, 9, "{}", packet.sql);
        at_most(&format!("bytes of one {what}"), len(&packet), 775);
        at_most(&format!("allocations of one {what}"), allocations, 27);
    }
}

#[test]
fn what_is_prepared_does_not_depend_on_the_size_of_a_batch() {
    let want = || Operation::Want(Want { wait: 1 });
    let mixed = |number| [rows(number, acquire), rows(1, want)].concat();
    let mut prepared = Prepared::default();
    write(&mixed(2), &mut prepared);
    write(&mixed(2), &mut prepared);
    for number in 3..20 {
        let packet = write(&mixed(number), &mut prepared);
        assert!(!packet.sql.contains("PREPARE"), "{}", packet.sql);
    }
}

#[test]
fn a_further_row_of_a_packet_is_two_lookups() {
    for (what, operation, limit) in [
        ("acquire", acquire as fn() -> Operation, 130),
        ("release", release, 160),
    ] {
        let (few, many) = (rows(100, operation), rows(200, operation));
        let mut prepared = Prepared::default();
        write(&few, &mut prepared);
        write(&few, &mut prepared);
        let (allocations_few, packet_few) = allocations(|| write(&few, &mut prepared));
        let (allocations_many, packet_many) = allocations(|| write(&many, &mut prepared));
        let bytes = len(&packet_many) - len(&packet_few);
        at_most(&format!("bytes of 100 more {what}s"), bytes, 100 * limit);
        let more = allocations_many - allocations_few;
        at_most(&format!("allocations of 100 more {what}s"), more, 10);
    }
}

#[test]
fn a_reply_is_decoded_without_allocations_for_its_rows() {
    let rows: Vec<String> = (0..1_000)
        .map(|row| format!("{row} 1 1 1790000000000000 29999000 0 1 0"))
        .collect();
    let granted: Vec<String> = (0..1_000).map(|row| row.to_string()).collect();
    let text = format!("{};1790000000000000;{}", granted.join(","), rows.join(","));
    let (allocations, reply) = allocations(|| Reply::decode(&text, 1_000));
    assert_eq!(reply.expect("a reply").rows.len(), 1_000);
    at_most("allocations of decoding 1,000 rows", allocations, 2);
}
