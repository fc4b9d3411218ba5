//! The packet of each operation as each server gets it, in files for people to read: `src/sql/golden/SERVER/OPERATION.sql`.
//!
//! Of the second packet of a session, so that what is prepared is shown too. Only line breaks and indentation are added, a
//! prepared text stands without its quotes, and the packet's mark is `:mark`. With `TAG_LOCK_GOLDEN=write` the test writes
//! the files: read the difference before you commit it.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use super::dialect::Dialect;
use super::operation::{
    Acquire, Close, Count, CounterChange, Delete, Downgrade, Drain, ForceRelease, Init, Once, Open,
    Operation, Release, Renew, Share, Touch, Want,
};
use super::packet::{self, Batch, Mode, RowOperation, StripeUse};
use super::prepared::Prepared;
use super::purge::{self, Doomed};
use super::row::{Kind, RowKey};
use super::script::{Packet, Proof};
use crate::name::Name;
use crate::sql::wish::GivesWay;
use crate::stripe::Stripe;
use crate::token::Token;

const SERVERS: [(&str, Dialect); 2] = [
    ("mariadb", Dialect::MariaDb { sequences: true }),
    ("mysql", Dialect::MySql),
];

fn name(name: &str) -> Name {
    Name::new(name).expect("a name")
}

fn row(key: RowKey, operation: Operation) -> RowOperation {
    RowOperation {
        key,
        operation,
        create: false,
        stripes: StripeUse::None,
        group: 0,
    }
}

fn lock(of: &str, operation: Operation) -> RowOperation {
    row(RowKey::lock(name(of)), operation)
}

fn acquire(level: Option<i64>) -> Operation {
    Operation::Acquire(Acquire {
        token: Token::of_text("holder"),
        ttl: 30_000_000,
        block: 65_536,
        level,
        gives_way: GivesWay::TO_ALL,
        idles: false,
        queues: false,
        description: Arc::from("nightly"),
        held_by: Arc::from("web-1/4711"),
    })
}

fn release(level: Option<i64>) -> Operation {
    Operation::Release(Release {
        token: Token::of_text("holder"),
        fence: 1_790_000_000_065_536,
        used: 1_790_000_000_000_001,
        hold: 0,
        level,
        until: level.map_or(0, |_| 1_790_000_030_000_000),
        queues: true,
        finishes: false,
    })
}

fn renew(until: Option<i64>) -> Operation {
    Operation::Renew(Renew {
        token: Token::of_text("holder"),
        fence: 1_790_000_000_065_536,
        ttl: 30_000_000,
        until,
    })
}

fn count(change: CounterChange) -> RowOperation {
    let operation = Operation::Count(Count {
        token: Token::of_text("change"),
        low: 1,
        high: i64::MAX,
        change,
        window: 0,
        restart: false,
    });
    row(RowKey::counter(name("prize")), operation)
}

/// The row of one shared hold.
fn hold(operation: Operation) -> RowOperation {
    row(RowKey::shared(name("job"), 4711), operation)
}

/// The batches of shared holds, by the names of their files.
fn shared() -> Vec<(&'static str, Mode, Vec<RowOperation>)> {
    let share = || {
        hold(Operation::Share(Share {
            token: Token::of_text("holder"),
            ttl: 30_000_000,
            description: Arc::from("nightly"),
            held_by: Arc::from("web-1/4711"),
        }))
    };
    let open = || {
        lock(
            "job",
            Operation::Open(Open {
                gives_way: GivesWay::TO_ALL,
            }),
        )
    };
    let created = |row| RowOperation {
        create: true,
        stripes: StripeUse::Try,
        ..row
    };
    let downgrade = Operation::Downgrade(Downgrade {
        token: Token::of_text("writer"),
        fence: 1_790_000_000_065_536,
    });
    let shut = match acquire(None) {
        Operation::Acquire(acquire) => Operation::Shut(acquire),
        other => other,
    };
    let close = |forced| lock("job", Operation::Close(Close { forced }));
    let drain = Operation::Drain(Drain { wait: 1_000_000 });
    vec![
        ("share", Mode::Together, vec![open(), share()]),
        ("share-and-wait", Mode::Queue, vec![open(), share()]),
        (
            "share-new-name",
            Mode::Together,
            vec![created(open()), created(share())],
        ),
        (
            "downgrade",
            Mode::Together,
            vec![lock("job", downgrade), share()],
        ),
        ("shut", Mode::Shut, vec![lock("job", shut)]),
        ("close", Mode::Shut, vec![close(false)]),
        ("force-close", Mode::Shut, vec![close(true)]),
        ("drain", Mode::Skip, vec![lock("job", drain)]),
        ("renew-shared", Mode::Skip, vec![hold(renew(None))]),
        ("release-shared", Mode::Skip, vec![hold(release(None))]),
    ]
}

/// Every batch that is shown, by the name of its file.
fn batches() -> Vec<(&'static str, Mode, Vec<RowOperation>)> {
    let skip = |name, row| (name, Mode::Skip, vec![row]);
    let force = ForceRelease {
        token: Token::of_text("operator"),
        fence: 1_790_000_000_065_536,
    };
    let once = Once {
        token: Token::of_text("order 7"),
        counter: RowKey::counter(name("prize")),
        delta: -1,
        from: 1,
        to: i64::MAX,
        window: 0,
        retention: 86_400_000_000,
    };
    let add = CounterChange::Add {
        step: -1,
        times: 3,
        edge: 0,
    };
    let created = RowOperation {
        create: true,
        stripes: StripeUse::Try,
        ..lock("job", acquire(None))
    };
    let crowded = RowOperation {
        stripes: StripeUse::Wait,
        ..lock("job", acquire(None))
    };
    let finish = match release(None) {
        Operation::Release(release) => Operation::Release(Release {
            finishes: true,
            ..release
        }),
        other => other,
    };
    let finish = row(RowKey::job(name("invoices@2026-11-22")), finish);
    let init = Init {
        token: Token::of_text("change"),
        value: 1_000,
        window: 0,
    };
    let delete = Delete {
        token: Token::of_text("change"),
    };
    let prize = || RowKey::counter(name("prize"));
    let of = |key: &str, row: RowOperation| RowOperation {
        key: RowKey::counter(name(key)),
        ..row
    };
    let windowed = Init {
        window: 3_600_000_000,
        value: i64::MIN,
        ..init.clone()
    };
    let init = row(prize(), Operation::Init(init));
    let delete = row(prize(), Operation::Delete(delete));
    let several_counters = vec![
        of("prize:1", init.clone()),
        of("prize:2", row(prize(), Operation::Init(windowed))),
        of("prize:3", delete.clone()),
        of("prize:4", count(add)),
        of("prize:5", count(CounterChange::Set { value: 10 })),
    ];
    let several = vec![
        lock("job:1", acquire(None)),
        lock("job:2", acquire(None)),
        lock("job:3", release(None)),
        lock("job:4", renew(None)),
    ];
    let together = vec![
        lock("account:1", acquire(None)),
        lock("account:2", acquire(None)),
    ];
    let together_new = vec![
        lock("account:1", acquire(None)),
        RowOperation {
            create: true,
            stripes: StripeUse::Try,
            ..lock("account:2", acquire(None))
        },
    ];
    let of = |account, group| RowOperation {
        group,
        ..lock(account, acquire(None))
    };
    let several_together = vec![
        of("account:1", 0),
        of("account:2", 1),
        of("account:3", 1),
        of("account:4", 0),
    ];
    let several_levels = vec![
        lock("job:1", acquire(Some(7))),
        lock("job:2", release(Some(8))),
        lock("job:3", release(None)),
        lock("job:4", renew(Some(1_790_000_030_000_000))),
        lock("job:5", renew(Some(1_790_000_031_000_000))),
    ];
    vec![
        skip("acquire", lock("job", acquire(None))),
        skip("acquire-new-name", created),
        skip("acquire-behind-its-stripe", crowded),
        (
            "acquire-and-wait",
            Mode::Wait,
            vec![lock("job", acquire(None))],
        ),
        skip("acquire-level", lock("job", acquire(Some(7)))),
        skip("release", lock("job", release(None))),
        skip("release-level", lock("job", release(Some(7)))),
        skip("finish", finish),
        skip("renew", lock("job", renew(None))),
        skip(
            "renew-level",
            lock("job", renew(Some(1_790_000_030_000_000))),
        ),
        skip("force-release", lock("job", Operation::ForceRelease(force))),
        skip(
            "want",
            lock("job", Operation::Want(Want { wait: 1_000_000 })),
        ),
        skip("touch", lock("job", Operation::Touch(Touch))),
        skip("add", count(add)),
        skip("set", count(CounterChange::Set { value: 10 })),
        skip("init", init),
        skip("delete", delete),
        skip(
            "add-once",
            RowOperation {
                create: true,
                stripes: StripeUse::Try,
                ..row(RowKey::once(name("order:7")), Operation::Once(once))
            },
        ),
        ("several", Mode::Skip, several),
        ("several-counters", Mode::Skip, several_counters),
        ("together", Mode::Together, together),
        ("together-new-names", Mode::Together, together_new),
        ("several-together", Mode::Together, several_together),
        ("several-levels", Mode::Skip, several_levels),
    ]
}

/// Every packet that is shown, by the name of its file.
fn packets(dialect: Dialect) -> Vec<(&'static str, Packet)> {
    let lane = Token::of_text("lane");
    let mut packets: Vec<(&str, Packet)> = batches()
        .into_iter()
        .chain(shared())
        .map(|(name, mode, rows)| {
            let batch = Batch {
                lane,
                number: 42,
                rows: &rows,
                mode,
                not_after: 1_790_000_005_000_000,
            };
            let mut prepared = Prepared::default();
            packet::write(&batch, dialect, &mut prepared);
            (name, packet::write(&batch, dialect, &mut prepared))
        })
        .collect();
    let doomed = Doomed {
        name: "job".to_owned(),
        kind: Kind::Lock,
        slot: 0,
        stripe: Stripe::of(&name("job")),
        fence: 1_790_000_000_000_001,
    };
    let day = 86_400_000_000;
    packets.push(("register-lane", packet::register_lane(lane, dialect)));
    packets.push(("settle-lane", packet::settle_lane(lane, 42, dialect)));
    packets.push(("purge", purge::step(&[doomed], day, dialect)));
    let close = purge::close(&name("job"), 1_790_000_000_000_001, day, dialect);
    packets.push(("purge-door", close));
    packets.push((
        "purge-lane",
        purge::delete_lane(lane.as_bytes(), day, dialect),
    ));
    packets
}

/// What begins a line, where it stands outside of parentheses.
const CLAUSES: [&str; 14] = [
    "SELECT ",
    "INTO @",
    "FROM ",
    "STRAIGHT_JOIN ",
    "LEFT JOIN ",
    "ON ",
    "WHERE ",
    "AND ",
    "VALUES ",
    "SET ",
    "FOR UPDATE",
    "USING ",
    "THEN ",
    "ELSE ",
];

/// A statement with one clause a line, and one assignment or column a line.
fn clauses(statement: &str) -> String {
    let mut text = String::new();
    let (mut depth, mut quoted, mut between) = (0, false, false);
    for (at, character) in statement.char_indices() {
        let word = at > 0 && statement[..at].ends_with(' ');
        if depth == 0 && !quoted && word && !between {
            let rest = &statement[at..];
            if CLAUSES.iter().any(|clause| rest.starts_with(clause)) {
                text.truncate(text.trim_end().len());
                text.push_str("\n  ");
            }
        }
        if !quoted && word {
            between = (between || statement[at..].starts_with("BETWEEN "))
                && !statement[at..].starts_with("AND ");
        }
        match character {
            '\'' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        text.push(character);
        if character == ',' && depth == 0 && !quoted {
            text.push_str("\n    ");
        }
    }
    text
}

/// The statements of a text: it is cut at each `;` that stands in no literal.
fn statements(sql: &str) -> Vec<String> {
    let mut statements = vec![String::new()];
    let mut quoted = false;
    for character in sql.chars() {
        quoted ^= character == '\'';
        match statements.last_mut() {
            Some(last) if character != ';' || quoted => last.push(character),
            _ => statements.push(String::new()),
        }
    }
    statements
}

/// The packet with line breaks.
fn readable(packet: &Packet) -> String {
    let mut sql = packet.sql.clone();
    if let Some(mark) = mark(packet) {
        sql = sql.replace(&mark, ":mark");
    }
    let mut text = String::new();
    for statement in statements(&sql) {
        let statement = match statement.strip_prefix("PREPARE ") {
            Some(prepared) => {
                let (name, quoted) = prepared.split_once(" FROM ").expect("a text");
                let inner = quoted.trim_matches('\'').replace("''", "'");
                format!("PREPARE {name} FROM '\n{}'", clauses(&inner))
            }
            None => match statement.strip_prefix("BEGIN NOT ATOMIC ") {
                Some(first) => format!("BEGIN NOT ATOMIC\n{}", clauses(first)),
                None => clauses(&statement),
            },
        };
        let _ = write!(text, "{statement};\n\n");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// The packet's mark as it stands in its text.
fn mark(packet: &Packet) -> Option<String> {
    match packet.proof {
        Proof::Mark(mark) => Some(mark.to_string()),
        Proof::Result(_) => {
            let (_, behind) = packet.sql.split_once("SET completion_type=IF(@")?;
            let (_, mark) = behind.split_once('=')?;
            let digits = mark.find(|c: char| !c.is_ascii_digit())?;
            Some(mark[..digits].to_owned())
        }
    }
}

#[test]
fn packets_are_what_people_have_read() {
    let write = std::env::var("TAG_LOCK_GOLDEN").as_deref() == Ok("write");
    let mut different = Vec::new();
    for (server, dialect) in SERVERS {
        let directory =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("src/sql/golden/{server}"));
        let mut expected: Vec<PathBuf> = Vec::new();
        for (name, packet) in packets(dialect) {
            let path = directory.join(format!("{name}.sql"));
            let text = readable(&packet);
            if write {
                std::fs::create_dir_all(&directory).expect("a directory");
                std::fs::write(&path, &text).expect("a file");
            }
            let golden = std::fs::read_to_string(&path).unwrap_or_default();
            if golden != text {
                different.push(format!("{}:\n{text}", path.display()));
            }
            expected.push(path);
        }
        for file in std::fs::read_dir(&directory).expect("a directory") {
            let file = file.expect("a file").path();
            assert!(
                expected.contains(&file),
                "{} is no packet's",
                file.display()
            );
        }
    }
    assert!(
        different.is_empty(),
        "these packets are not as their files say; if they should be as they are, run this test with \
         TAG_LOCK_GOLDEN=write, and read the difference:\n{}",
        different.join("\n")
    );
}
