//! What holds of every packet, whatever names and numbers go into it.

use std::sync::Arc;

use proptest::prelude::*;

use super::dialect::Dialect;
use super::literal;
use super::operation::{
    Acquire, Count, CounterChange, Delete, ForceRelease, Init, Once, Operation, Release, Renew,
    Touch, Want,
};
use super::packet::{Batch, Mode, RowOperation, StripeUse, read, write};
use super::prepared::Prepared;
use super::row::RowKey;
use super::script::Proof;
use crate::name::Name;
use crate::sql::wish::GivesWay;
use crate::token::Token;

fn name() -> impl Strategy<Value = Name> {
    // Any text; whatever quotes, ends or comments out.
    let text = prop_oneof![any::<String>(), "[';\\\\\"`#/* -]{1,20}x"];
    text.prop_filter_map("no name", |text| Name::new(&text).ok())
}

fn operation() -> impl Strategy<Value = Operation> {
    let number = any::<i64>;
    let fence = any::<u64>;
    prop_oneof![
        (
            number(),
            1_u32..=65_536,
            any::<bool>(),
            number(),
            any::<String>(),
            any::<String>()
        )
            .prop_map(|(ttl, block, reentrant, mark, description, held_by)| {
                Operation::Acquire(Acquire {
                    token: Token::random(),
                    ttl,
                    block,
                    level: reentrant.then_some(mark),
                    gives_way: GivesWay::of(mark % 2 != 0),
                    idles: false,
                    queues: false,
                    description: Arc::from(description),
                    held_by: Arc::from(held_by),
                })
            }),
        (fence(), fence(), number(), any::<bool>(), number()).prop_map(
            |(fence, used, hold, reentrant, mark)| Operation::Release(Release {
                token: Token::random(),
                fence,
                used,
                hold,
                level: reentrant.then_some(mark),
                until: 0,
                queues: true,
                finishes: !reentrant && mark % 2 == 0,
            })
        ),
        (fence(), number()).prop_map(|(fence, ttl)| Operation::Renew(Renew {
            token: Token::random(),
            fence,
            ttl,
            until: None,
        })),
        fence().prop_map(|fence| Operation::ForceRelease(ForceRelease {
            token: Token::random(),
            fence,
        })),
        number().prop_map(|wait| Operation::Want(Want { wait })),
        (
            number(),
            number(),
            number(),
            any::<u32>(),
            number(),
            number(),
            any::<bool>()
        )
            .prop_map(
                |(low, high, step, times, edge, window, restart)| Operation::Count(Count {
                    token: Token::random(),
                    low,
                    high,
                    change: CounterChange::Add { step, times, edge },
                    window,
                    restart,
                })
            ),
        (name(), number(), number(), number()).prop_map(|(counter, delta, from, to)| {
            Operation::Once(Once {
                token: Token::random(),
                counter: RowKey::counter(counter),
                delta,
                from,
                to,
                window: 0,
                retention: 1,
            })
        }),
        Just(Operation::Touch(Touch)),
        (number(), number()).prop_map(|(value, window)| Operation::Init(Init {
            token: Token::random(),
            value,
            window,
        })),
        Just(Operation::Delete(Delete {
            token: Token::random(),
        })),
    ]
}

fn row() -> impl Strategy<Value = RowOperation> {
    let stripes = prop::sample::select(vec![StripeUse::None, StripeUse::Try, StripeUse::Wait]);
    (name(), operation(), any::<bool>(), stripes).prop_map(|(name, operation, create, stripes)| {
        let key = match &operation {
            Operation::Count(_) | Operation::Init(_) | Operation::Delete(_) => {
                RowKey::counter(name)
            }
            Operation::Once(_) => RowKey::once(name),
            _ => RowKey::lock(name),
        };
        RowOperation {
            key,
            operation,
            create: create && stripes != StripeUse::None,
            stripes,
            group: 0,
        }
    })
}

/// The statements of a text. A `;` stands between them, and otherwise only as the literal `';'` that a
/// reply begins with.
fn statements(sql: &str) -> Vec<String> {
    let sql = sql.replace("';'", "<>");
    sql.split(';').map(str::to_owned).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_of_a_users_reaches_the_server_as_itself(text: String) {
        let mut sql = String::new();
        literal::text(&mut sql, &text);
        let digits = sql.strip_prefix("_utf8mb4 x'").and_then(|rest| rest.strip_suffix('\''));
        let digits = digits.expect("a literal");
        let pairs: Vec<&[u8]> = digits.as_bytes().chunks(2).collect();
        let bytes: Vec<u8> = pairs
            .into_iter()
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("a byte"))
            .collect();
        prop_assert_eq!(bytes, text.as_bytes());
    }

    #[test]
    fn a_packet_ends_its_transaction_whatever_is_in_it(
        rows in prop::collection::vec(row(), 1..6),
        number in 1..u64::MAX,
        not_after: i64,
        wait: bool,
        mariadb: bool,
        sequences: bool,
        full: bool,
    ) {
        let mut rows = rows;
        if rows.iter().any(|row| row.stripes == StripeUse::Wait) {
            // What is tried comes behind what is waited for: here, nothing is.
            for row in rows.iter_mut().filter(|row| row.stripes == StripeUse::Try) {
                row.stripes = StripeUse::Wait;
            }
        }
        let dialect = if mariadb { Dialect::MariaDb { sequences } } else { Dialect::MySql };
        let mode = if wait { Mode::Wait } else { Mode::Skip };
        let lane = Token::random();
        let mut prepared = Prepared::default();
        if full {
            prepared.switch_off();
        }
        let batch = Batch { lane, number, rows: &rows, mode, not_after };
        let unprepared = write(&batch, dialect, &mut prepared);
        prop_assert!(!unprepared.sql.contains("EXECUTE") && !unprepared.sql.contains('?'));
        let first = write(&batch, dialect, &mut prepared);
        let packet = write(&batch, dialect, &mut prepared);
        let preparing = first.sql.matches("PREPARE").count();
        prop_assert_eq!(preparing > 0, !full);
        prop_assert!(!packet.sql.contains(['?', '\\', '"', '`', '#']));
        prop_assert!(first.sql.is_ascii() && !first.sql.contains("--") && !first.sql.contains("/*"));
        let statements = statements(&packet.sql);
        // Whatever its session did before, it is one transaction.
        let begins = statements[0].trim_start_matches("BEGIN NOT ATOMIC ");
        prop_assert!(begins.starts_with("SET @tag_lock_changed=NULL,autocommit=0"), "{}", begins);
        let commit = statements.iter().position(|one| one == "COMMIT").expect("it commits");
        match (first.proof, packet.proof) {
            // Each statement is answered, those that prepare as well.
            (Proof::Result(first), Proof::Result(result)) => {
                prop_assert!(!mariadb && first == result + preparing && result == commit);
                let check = &statements[commit - 1];
                prop_assert!(check.starts_with("SET completion_type=IF(@"), "{}", check);
            }
            (Proof::Mark(first), Proof::Mark(mark)) => {
                prop_assert!(mariadb && first != mark);
                let check = &statements[commit - 1];
                prop_assert!(check.starts_with("IF @"), "{}", check);
                prop_assert!(check.ends_with(&format!(" THEN SET @tag_lock_mark={mark}")), "{}", check);
                prop_assert_eq!(statements.last().map(String::as_str), Some("END"));
            }
            proofs => prop_assert!(false, "{:?}", proofs),
        }
        // Nothing is answered before.
        let answers = |one: &String| one.starts_with("SELECT ") && !one.contains(" INTO ");
        prop_assert_eq!(statements.iter().position(answers), Some(commit + 1));
        prop_assert_eq!(statements.iter().filter(|one| *one == "COMMIT").count(), 1);
        prop_assert!(statements.iter().all(|one| !one.is_empty()));
        let weight: usize = rows.iter().map(RowOperation::weight).sum();
        prop_assert!(first.sql.len() <= weight + 16_384, "{} bytes where {} were expected", first.sql.len(), weight);
        // Where rows are waited for, nothing else is.
        let stripes = first.sql.contains("kind=0");
        prop_assert_eq!(stripes, !wait && rows.iter().any(|row| row.stripes != StripeUse::None));
        let text = read(&rows, dialect);
        prop_assert_eq!(self::statements(&text).len(), 1);
    }
}
