//! Reading the protocol, and the hooks: without a server.

use crate::support::proxy::{
    Capabilities, Command, CommandKind, Fault, FaultKind, Framing, Login, Packet, Progress, Proxy,
    RandomFaults, Reply, nth, once,
};

/// A packet in as many frames as it needs.
fn packet(payload: &[u8]) -> Packet {
    let mut framing = Framing::default();
    framing.feed(&wire(payload));
    framing.next_packet().expect("a whole packet")
}

fn wire(payload: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    let mut rest = payload;
    loop {
        let (frame, after) = rest.split_at(rest.len().min(0xFF_FFFF));
        let length = u32::try_from(frame.len()).expect("24 bits").to_le_bytes();
        wire.extend([length[0], length[1], length[2], 0]);
        wire.extend(frame);
        if frame.len() < 0xFF_FFFF {
            return wire;
        }
        rest = after;
    }
}

fn ends_after(kind: CommandKind, deprecate_eof: bool, payloads: &[&[u8]]) -> Option<usize> {
    let mut reply = Reply::to(kind, Capabilities::with_deprecate_eof(deprecate_eof));
    payloads
        .iter()
        .position(|payload| reply.accept(&packet(payload)) == Progress::Ended)
        .map(|index| index + 1)
}

fn query(sql: &str) -> Command {
    Command::new(1, CommandKind::Query, Some(sql.as_bytes()))
}

const OK: &[u8] = &[0, 1, 0, 2, 0, 0, 0];
const OK_AND_MORE: &[u8] = &[0, 0xFC, 0x10, 0x27, 0, 0x0A, 0, 0, 0];
const LAST_OK: &[u8] = &[0xFE, 0, 0, 2, 0, 0, 0];
const LAST_OK_AND_MORE: &[u8] = &[0xFE, 0, 0, 0x0A, 0, 0, 0];
const EOF: &[u8] = &[0xFE, 0, 0, 2, 0];
const EOF_AND_MORE: &[u8] = &[0xFE, 0, 0, 0x0A, 0];
const EOF_AND_CURSOR: &[u8] = &[0xFE, 0, 0, 0x42, 0];
const ERROR: &[u8] = &[0xFF, 0x18, 0x04, b'#', b'2', b'3', b'0', b'0', b'0'];
const COLUMN: &[u8] = &[3, b'd', b'e', b'f'];
const ROW: &[u8] = &[1, b'7'];

#[test]
fn packets_are_found_in_any_pieces() {
    let mut bytes = wire(b"first");
    bytes.extend(wire(b""));
    bytes.extend(wire(b"third"));
    for size in 1..bytes.len() {
        let mut framing = Framing::default();
        let mut found = Vec::new();
        for piece in bytes.chunks(size) {
            framing.feed(piece);
            found.extend(std::iter::from_fn(|| framing.next_packet()));
        }
        let payloads: Vec<_> = found.iter().map(Packet::payload).collect();
        assert_eq!(payloads, [b"first".to_vec(), Vec::new(), b"third".to_vec()]);
        assert_eq!(framing.buffered(), 0);
    }
}

#[test]
fn a_payload_of_several_frames_is_one_packet() {
    for length in [0xFF_FFFE, 0xFF_FFFF, 0x100_0000, 2 * 0xFF_FFFF] {
        let payload = vec![7; length];
        let mut framing = Framing::default();
        framing.feed(&wire(&payload));
        framing.feed(&wire(b"next")[..6]);
        let found = framing.next_packet().expect("a whole packet");
        assert_eq!(found.is_continued(), length >= 0xFF_FFFF);
        assert!(found.payload() == payload && found.wire() == wire(&payload));
        assert_eq!(framing.next_packet(), None);
        assert_eq!(framing.take_rest(), wire(b"next")[..6]);
    }
}

#[test]
fn a_reply_ends_where_it_ends() {
    use CommandKind::{Execute, Fetch, FieldList, Ping, Prepare, Query};
    let column_counts = &[2][..];
    let prepared = &[0, 1, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0][..];
    let prepared_nothing = &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..];
    let rows = [column_counts, COLUMN, COLUMN, ROW, ROW, LAST_OK];
    let rows_with_eof = [column_counts, COLUMN, COLUMN, EOF, ROW, EOF];
    let long_column = [&[0xFE, 0, 0, 0, 1, 0, 0, 0, 0][..], &vec![b'x'; 0x100_0000]].concat();

    assert_eq!(ends_after(Query, true, &[OK]), Some(1));
    assert_eq!(ends_after(Query, true, &[ERROR]), Some(1));
    assert_eq!(ends_after(Ping, true, &[OK]), Some(1));
    assert_eq!(ends_after(Query, true, &rows), Some(6));
    assert_eq!(
        ends_after(Query, true, &[column_counts, COLUMN, COLUMN, LAST_OK]),
        Some(4)
    );
    assert_eq!(
        ends_after(Query, true, &[column_counts, COLUMN, COLUMN, ROW, ERROR]),
        Some(5)
    );
    assert_eq!(ends_after(Query, false, &rows_with_eof), Some(6));
    assert_eq!(
        ends_after(Execute, false, &[&[1], COLUMN, EOF_AND_CURSOR]),
        Some(3)
    );
    assert_eq!(ends_after(Fetch, false, &[ROW, ROW, EOF]), Some(3));
    assert_eq!(
        ends_after(FieldList, false, &[COLUMN, COLUMN, EOF]),
        Some(3)
    );

    let several = [
        OK_AND_MORE,
        &[1],
        COLUMN,
        ROW,
        LAST_OK_AND_MORE,
        &[1],
        COLUMN,
        LAST_OK_AND_MORE,
        OK,
    ];
    assert_eq!(ends_after(Query, true, &several), Some(9));
    let several_with_eof = [OK_AND_MORE, &[1], COLUMN, EOF, ROW, EOF_AND_MORE, ERROR];
    assert_eq!(ends_after(Query, false, &several_with_eof), Some(7));

    let very_long = [&[1][..], COLUMN, &long_column, LAST_OK];
    assert_eq!(
        ends_after(Query, true, &very_long),
        Some(4),
        "a long row is not the end"
    );

    assert_eq!(
        ends_after(Prepare, true, &[prepared, COLUMN, COLUMN, COLUMN]),
        Some(4)
    );
    let prepared_with_eof = [prepared, COLUMN, COLUMN, EOF, COLUMN, EOF];
    assert_eq!(ends_after(Prepare, false, &prepared_with_eof), Some(6));
    assert_eq!(ends_after(Prepare, true, &[prepared_nothing]), Some(1));
    assert_eq!(ends_after(Prepare, true, &[ERROR]), Some(1));
}

#[test]
fn a_request_for_tls_is_told_from_a_login() {
    let mut greeting = b"\x0a9.7.4\0".to_vec();
    greeting.extend([0; 13]);
    greeting.extend([0xFF, 0xFF, 45, 2, 0, 0xFF, 0xFF]);
    let server = Capabilities::of_greeting(&packet(&greeting)).expect("a greeting");
    assert!(server.deprecates_eof());
    assert_eq!(Capabilities::of_greeting(&packet(ERROR)), None);

    let login = |flags: u32, length: usize| {
        let mut payload = flags.to_le_bytes().to_vec();
        payload.resize(length, 0);
        Login::of(&packet(&payload), server)
    };
    let (ssl, compress, deprecate_eof) = (1 << 11, 1 << 5, 1 << 24);
    assert_eq!(login(ssl, 32), Login::Unreadable);
    assert_eq!(login(compress, 60), Login::Unreadable);
    let plain = Login::Plain(Capabilities::with_deprecate_eof(true));
    assert_eq!(login(deprecate_eof, 60), plain);
}

#[test]
fn commit_is_a_word_of_what_runs() {
    for sql in [
        "COMMIT",
        "commit",
        "UPDATE t SET a = 1;CoMmIt; SELECT 1",
        "/*x*/commit/*x*/",
    ] {
        assert!(query(sql).contains_commit(), "{sql}");
    }
    for sql in [
        "SET autocommit = 0",
        "SELECT committed",
        "SELECT _commit",
        "COMMI",
        "",
    ] {
        assert!(!query(sql).contains_commit(), "{sql}");
    }
    assert!(!Command::new(1, CommandKind::Prepare, Some(b"COMMIT")).contains_commit());
    assert!(Command::new(1, CommandKind::Execute, Some(b"COMMIT")).contains_commit());
}

#[tokio::test]
async fn a_url_keeps_all_but_its_address() {
    let proxy = Proxy::start("127.0.0.1:1").await.expect("a proxy");
    let addr = proxy.addr();
    for (given, expected) in [
        (
            "mysql://root@localhost/db",
            format!("mysql://root@{addr}/db?ssl-mode=DISABLED"),
        ),
        ("mysql://u:p%40@h:1/d?charset=utf8mb4", {
            format!("mysql://u:p%40@{addr}/d?charset=utf8mb4&ssl-mode=DISABLED")
        }),
        (
            "mysql://[::1]:3306/d?ssl-mode=required",
            format!("mysql://{addr}/d?ssl-mode=required"),
        ),
        (
            "mysql://u:p@h?socket=/tmp/s",
            format!("mysql://u:p@{addr}?ssl-mode=DISABLED"),
        ),
    ] {
        assert_eq!(proxy.url(given), expected);
    }
}

#[test]
fn random_faults_repeat_with_their_seed() {
    let draw = |seed| {
        let hook = RandomFaults::new(seed)
            .with(0.2, Fault::CutBefore)
            .with(0.3, Fault::Reset)
            .only(Command::contains_commit)
            .into_hook();
        assert_eq!(hook(&query("SELECT 1")).kind(), None);
        (0..1000)
            .map(|_| hook(&query("COMMIT")).kind())
            .collect::<Vec<_>>()
    };
    let drawn = draw(7);
    assert_eq!(drawn, draw(7));
    assert_ne!(drawn, draw(8));
    let count = |kind| drawn.iter().filter(|drawn| **drawn == Some(kind)).count();
    assert!((140..260).contains(&count(FaultKind::CutBefore)));
    assert!((230..370).contains(&count(FaultKind::Reset)));
}

#[test]
fn a_hook_can_choose_one_command() {
    let first = once(Command::contains_commit, Fault::CutBefore);
    let third = nth(3, |_| true, Fault::Reset);
    let sqls = ["SELECT 1", "COMMIT", "COMMIT", "COMMIT"];
    let kinds = |hook: &dyn Fn(&Command) -> Fault| sqls.map(|sql| hook(&query(sql)).kind());
    assert_eq!(
        kinds(&first),
        [None, Some(FaultKind::CutBefore), None, None]
    );
    assert_eq!(kinds(&third), [None, None, Some(FaultKind::Reset), None]);
}
