//! No password is printed, whatever is wrong.

use crate::rig::{Ran, ran, tag_lock};
use crate::server::TestDatabase;
use crate::support::account::Account;
use crate::support::server_url;

const SECRET: &str = "hunter2secret";

/// All that a user may ask for that needs a server.
const COMMANDS: [&[&str]; 12] = [
    &["run", "job", "--", "true"],
    &["list"],
    &["inspect", "job"],
    &["watch", "job"],
    &["release", "--force", "job"],
    &["counter", "get", "n"],
    &["counter", "add-within", "n", "1", "--max", "5"],
    &["migrate"],
    &["purge", "--older-than", "1d"],
    &["doctor"],
    &["--json", "doctor"],
    &["--json", "list"],
];

fn check(ran: &Ran, failed: bool) {
    assert!(
        !ran.out.contains(SECRET) && !ran.err.contains(SECRET),
        "{ran:?}"
    );
    assert_eq!(ran.code != 0, failed, "{ran:?}");
}

/// The server's address with another account.
fn with(user: &str, password: &str) -> String {
    let url = server_url();
    let (_, host) = url.rsplit_once('@').unwrap();
    format!("mysql://{user}:{password}@{host}")
}

#[test]
fn a_wrong_password_is_not_printed() {
    for command in COMMANDS {
        let ran = ran(tag_lock(&with("tag_lock", SECRET)).args(command));
        check(&ran, true);
        assert!(ran.err.contains("access denied"), "{ran:?}");
        assert_eq!(
            (ran.out.as_str(), ran.err.lines().count()),
            ("", 1),
            "{ran:?}"
        );
    }
}

#[test]
fn an_address_that_is_wrong_is_not_printed() {
    for url in [
        format!("mysql://u:{SECRET}@127.0.0.1:1/d"),
        format!("mysql://u:{SECRET}@127.0.0.1:port/d"),
        format!("mysql://u:{SECRET}@127.0.0.1:99999/d"),
        format!("mysql://u:{SECRET}@no-such-host.invalid/d"),
        format!("mysql://u:{SECRET}@127.0.0.1"),
        format!("mysql://u:{SECRET}@127.0.0.1:1/d?no-such-option=1"),
        format!("mysql://u:%ZZ{SECRET}@127.0.0.1:1/d?ssl-mode=no-such-mode"),
        format!("mysql://u:{SECRET}@[::zz]/d"),
        format!("mysql:/u:{SECRET}@h/d"),
        format!("postgres://u:{SECRET}@h/d"),
        format!("u:{SECRET}@h/d"),
    ] {
        for command in [
            &["list"][..],
            &["--json", "list"],
            &["doctor"],
            &["run", "job", "--", "true"],
        ] {
            // It may take that long, to find out that nobody is there.
            let ran_here = ran(tag_lock(&url)
                .env("TAG_LOCK_REQUEST_TIMEOUT", "20s")
                .args(command));
            check(&ran_here, true);
            let given = ran(tag_lock("")
                .env_remove("DATABASE_URL")
                .args(["--url", &url])
                .args(command));
            check(&given, true);
            assert_eq!(
                given.code,
                if command[0] == "run" { 125 } else { 1 },
                "{given:?}"
            );
        }
    }
}

#[test]
fn an_address_in_the_wrong_place_is_not_printed() {
    let url = with("tag_lock", SECRET);
    for arguments in [
        &[url.as_str()][..],
        &[&url, "list"],
        &["list", "job", &url],
        &["--ulr", &url, "list"],
        &["--json", "purge", "--older-than", &url],
        &["counter", "add", "n", &url],
        &["run", "job", &url],
        &["--request-timeout", &url, "list"],
    ] {
        let ran = ran(tag_lock(&url).args(arguments));
        check(&ran, true);
        assert_eq!(ran.code, 2, "{ran:?}");
    }
    // A shell, a configuration or a mistake may make of an address what is none.
    for word in [
        format!("mysql://u:a'{SECRET}@h/d"),
        format!("mysql://u:a\"b {SECRET}@h/d"),
        format!("mysql:u:{SECRET}@h/d"),
        format!("//u:{SECRET}@h/d"),
        format!("u:{SECRET}@h/d"),
    ] {
        for arguments in [
            &[word.as_str()][..],
            &["doctor", &word],
            &["run", "job", "--ttl", &word, "--", "true"],
            &["run", "job", &format!("--ttl={word}"), "--", "true"],
        ] {
            let ran = ran(tag_lock(&url).args(arguments));
            check(&ran, true);
            assert_eq!(ran.code, 2, "{ran:?}");
        }
    }
    // It would be stored as a name, and shown to all.
    for arguments in [
        &["inspect", &url][..],
        &["watch", &url],
        &["release", "--force", &url],
        &["run", &url, "--", "true"],
        &["counter", "get", &url],
        &["counter", "add", &url],
    ] {
        let ran = ran(tag_lock(&url).args(arguments));
        check(&ran, true);
        assert!(ran.code == 2 && ran.err.contains("--url"), "{ran:?}");
    }
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["help", "list"],
        &["man"],
        &["completions", "bash"],
    ] {
        check(&ran(tag_lock(&url).args(arguments)), false);
    }
}

#[test]
fn a_server_that_was_not_named_is_asked_for() {
    let ran = ran(tag_lock("").env_remove("DATABASE_URL").arg("list"));
    assert!(
        ran.code == 1 && ran.err.contains("set DATABASE_URL, or give --url"),
        "{ran:?}"
    );
}

/// Nor is the right one, by whatever works.
#[tokio::test(flavor = "multi_thread")]
async fn a_right_password_is_not_printed() {
    let database = TestDatabase::new().await;
    let account = Account::new("").await;
    account.grant("ALL", &database).await;
    let (head, _) = with(&account.name, &account.password)
        .rsplit_once('/')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    let url = format!("{head}/{}", database.name);
    for command in COMMANDS.iter().filter(|command| command[0] != "watch") {
        let ran = ran(tag_lock(&url).args(*command));
        assert!(
            !ran.out.contains(&account.password) && !ran.err.contains(&account.password),
            "{ran:?}"
        );
        assert_ne!(ran.code, 2, "{ran:?}");
    }
    account.remove().await;
    database.remove().await;
}
