//! Names: whatever a name consists of, it is a lock and a counter of its own, or a clear error; also on
//! servers whose default `sql_mode` changes what a string literal means, or cuts what does not fit.
//!
//! `TAG_LOCK_TEST_ROUNDS` multiplies the number of cases.

use std::collections::BTreeSet;

use crate::support::alone::Global;
use crate::support::{TestDatabase, alone};
use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use tag_lock::{Error, LockClient, LockGuard, LockState};

/// Names that tend to be mistaken for each other, or for something else.
fn awkward() -> Vec<String> {
    let mut names: Vec<String> = [
        "a",
        "A",
        "á",
        "a\u{301}",
        "ä",
        "ａ",
        "é",
        "e\u{301}",
        "E\u{301}",
        "ß",
        "ss",
        "ẞ",
        "ı",
        "i",
        "I",
        "İ",
        "σ",
        "ς",
        "'",
        "''",
        "\\'",
        "\\",
        "\\\\",
        "\"",
        "`",
        "%",
        "_",
        "a%",
        "a_",
        "?",
        ":a",
        "$1",
        "--",
        "#",
        "/*",
        "*/",
        ";",
        "';DROP TABLE t_tag_lock;--",
        "x'41'",
        "0x41",
        "NULL",
        "0",
        "00",
        "\0",
        "a\0",
        "a\0b",
        "\0a",
        "\n",
        "\r\n",
        "\t",
        "a\t",
        " a",
        "  a",
        "a b",
        "a  b",
        "a\u{a0}",
        "a\u{3000}",
        "a\u{200b}",
        "\u{feff}a",
        "\u{1a}",
        "\u{7f}",
        "😀",
        "😁",
        "👩‍🚀",
        "👩",
        "🎁",
        "𝒜",
        "\u{10ffff}",
        "\u{ffff}",
        "\u{fffd}",
        "中文",
        "ñandú",
        "center_lock_07",
        "center_lock_7",
        "CENTER_LOCK_07",
        "center_lock_99",
        "t_tag_lock",
        "",
        " ",
        "a ",
        "a\t ",
        "😀 ",
    ]
    .map(str::to_owned)
    .into();
    for character in ["a", "é", "😀"] {
        for length in [254, 255, 256] {
            names.push(character.repeat(length));
        }
    }
    // The same but for the last character.
    names.push(format!("{}b", "a".repeat(254)));
    names.push(format!("{}b", "a".repeat(255)));
    names.push(format!("{} ", "a".repeat(255)));
    names
}

/// Names of few characters, so that they are often near each other.
fn name() -> impl Strategy<Value = String> {
    let near = prop::sample::select(vec![
        'a', 'A', 'é', 'e', '\u{301}', ' ', '\0', '\\', '\'', '"', '😀', '\t', '%', '\u{a0}',
    ]);
    let any = prop::char::any();
    let character = prop_oneof![3 => near.boxed(), 1 => any.boxed()];
    let length = prop_oneof![8 => 0..6_usize, 1 => 253..258_usize];
    length.prop_flat_map(move |length| {
        prop::collection::vec(character.clone(), length)
            .prop_map(|characters| characters.into_iter().collect())
    })
}

fn is_valid(name: &str) -> bool {
    (1..=255).contains(&name.chars().count()) && !name.ends_with(' ')
}

/// Takes them all at once, in one client; another one sees each as it is.
async fn check(names: &BTreeSet<String>, a: &LockClient, b: &LockClient) {
    let (valid, invalid): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| is_valid(name));
    for name in invalid {
        let refused = [
            a.lock(name).try_acquire().await.unwrap_err(),
            a.counter(name).add(1).await.unwrap_err(),
            a.counter(name).get().await.unwrap_err(),
            a.inspect(name).await.unwrap_err(),
            a.force_release(name).await.unwrap_err(),
        ];
        for error in refused {
            assert!(
                matches!(error, Error::InvalidName { .. }),
                "{name:?}: {error}"
            );
        }
    }
    let taking: Vec<_> = valid
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let (a, name) = (a.clone(), (*name).clone());
            tokio::spawn(async move {
                let request = a.lock(&name).description(name.clone());
                let guard = request.try_acquire().await.unwrap();
                let delta = i64::try_from(number).unwrap() + 1;
                (guard, a.counter(&name).add(delta).await.unwrap())
            })
        })
        .collect();
    let mut guards = Vec::new();
    for (number, (task, name)) in taking.into_iter().zip(&valid).enumerate() {
        let (guard, sum) = task.await.unwrap();
        guards.push(guard.unwrap_or_else(|| panic!("{name:?} is held as some other name")));
        let expected = i64::try_from(number).unwrap() + 1;
        assert_eq!(sum, expected, "{name:?} counts as some other name");
    }
    let looking = valid.iter().map(async |name| {
        let second = b.lock(name).try_acquire().await.unwrap();
        assert!(second.is_none(), "{name:?} was taken twice");
        let info = b.inspect(name).await.unwrap().unwrap();
        assert_eq!((&info.name, &info.description), (*name, *name));
        assert_eq!(info.state, LockState::Held);
    });
    join_all(looking).await;
    // One page after the other, each name once.
    let mut listed: Vec<String> = Vec::new();
    loop {
        let page = b
            .list("", listed.last().map(String::as_str), 7)
            .await
            .unwrap();
        if page.is_empty() {
            break;
        }
        listed.extend(page.into_iter().map(|info| info.name));
        assert!(listed.len() <= valid.len(), "a name was listed twice");
    }
    let listed: BTreeSet<&String> = listed.iter().collect();
    let expected = valid.iter().copied().collect();
    let differing: Vec<_> = listed.symmetric_difference(&expected).collect();
    assert!(
        differing.is_empty(),
        "not listed, or too much: {differing:?}"
    );
    let releasing = join_all(guards.into_iter().map(LockGuard::release));
    for released in releasing.await {
        released.unwrap();
    }
    let resetting = valid.iter().map(async |name| {
        let counter = a.counter(name);
        assert!(counter.reset().await.unwrap() > 0, "{name:?}");
        assert_eq!(counter.get().await.unwrap(), 0, "{name:?}");
    });
    join_all(resetting).await;
}

fn rounds() -> u32 {
    let rounds = std::env::var("TAG_LOCK_TEST_ROUNDS");
    rounds.map_or(1, |rounds| rounds.parse().expect("a number"))
}

/// The awkward names, and sets of random ones.
fn cases() -> Vec<BTreeSet<String>> {
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::default()
    });
    let some = prop::collection::btree_set(name(), 1..40);
    let mut cases = vec![awkward().into_iter().collect()];
    for _ in 0..3 * rounds() {
        cases.push(some.new_tree(&mut runner).unwrap().current());
    }
    cases
}

async fn check_all(cases: Vec<BTreeSet<String>>) {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    for names in cases {
        check(&names, &a, &b).await;
    }
    database.remove().await;
}

/// One test, since the mode is the whole server's. A client takes it over when it connects.
#[tokio::test(flavor = "multi_thread")]
async fn each_is_its_own_under_every_sql_mode() {
    let _alone = alone().await;
    check_all(cases()).await;
    let modes = [
        "NO_BACKSLASH_ESCAPES",
        "",
        "ANSI,STRICT_ALL_TABLES,PAD_CHAR_TO_FULL_LENGTH",
    ];
    for mode in modes {
        println!("under sql_mode {mode:?}");
        let _mode = Global::set("sql_mode", &format!("'{mode}'")).await;
        check_all(cases()).await;
    }
}
