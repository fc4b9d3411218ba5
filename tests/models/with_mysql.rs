//! `scripts/with-mysql` touches no server that it did not start, unless it is told to.

use std::path::Path;
use std::process::Command;

/// What a user of sqlx has exported; nothing answers there.
const THEIRS: &str = "mysql://theirs:hidden-1@192.0.2.1:3306/theirs";
/// What a user names for this.
const NAMED: &str = "mysql://named:hidden-2@192.0.2.2:3306/named";

/// Prints what COMMAND gets.
const SHOW: &str = "echo \"$DATABASE_URL ${TAG_LOCK_SERVER_DIR-none} ${TAG_LOCK_NODE_URLS-none} \
     ${TAG_LOCK_NODE_DIRS-none}\"; exit 7";

/// How the script ended.
struct Ran {
    code: Option<i32>,
    /// The words that COMMAND printed.
    out: Vec<String>,
    err: String,
}

/// Runs the script where other servers are in the environment, and `variables`.
fn with_mysql(variables: &[(&str, &str)]) -> Ran {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/with-mysql");
    let output = Command::new(script)
        .args(["sh", "-c", SHOW])
        .env_remove("TAG_LOCK_USE_SERVER")
        .env("DATABASE_URL", THEIRS)
        .env("TAG_LOCK_SERVER_DIR", "/their-directory")
        .env("TAG_LOCK_NODE_URLS", THEIRS)
        .env("TAG_LOCK_NODE_DIRS", "/their-directory")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran {
        code: output.status.code(),
        out: text(output.stdout)
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        err: text(output.stderr),
    }
}

#[test]
fn a_server_in_the_environment_is_left_alone() {
    let ran = with_mysql(&[]);
    assert_eq!(ran.code, Some(7), "{}", ran.err);
    let [url, directory, nodes @ ..] = ran.out.as_slice() else {
        panic!("{:?}", ran.out)
    };
    assert!(url.starts_with("mysql://tag_lock:"), "{url}");
    assert!(url.contains("@127.0.0.1:"), "{url}");
    assert_ne!(directory, "/their-directory");
    assert!(!Path::new(directory).exists(), "it is removed afterwards");
    // Of a cluster these are its own.
    let theirs = |word: &String| word.contains("their");
    assert!(!nodes.iter().any(theirs), "{nodes:?}");
}

#[test]
fn a_server_that_is_named_is_used() {
    let ran = with_mysql(&[("TAG_LOCK_USE_SERVER", NAMED), ("TAG_LOCK_SERVER", "")]);
    assert_eq!(ran.code, Some(7), "{}", ran.err);
    assert_eq!(ran.out, [NAMED, "none", "none", "none"]);
    assert!(ran.err.contains("TAG_LOCK_USE_SERVER"), "{}", ran.err);
    assert!(!ran.err.contains("hidden"), "{}", ran.err);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let no_url = [("TAG_LOCK_USE_SERVER", "hidden-3"), ("TAG_LOCK_SERVER", "")];
    let both = [
        ("TAG_LOCK_USE_SERVER", NAMED),
        ("TAG_LOCK_SERVER", "mariadb"),
    ];
    for (variables, hint) in [
        (no_url, "mysql://user:password@host"),
        (both, "unset one of them"),
    ] {
        let ran = with_mysql(&variables);
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert!(ran.out.is_empty(), "COMMAND ran: {:?}", ran.out);
        assert!(ran.err.contains(hint), "{}", ran.err);
        assert!(!ran.err.contains("hidden"), "{}", ran.err);
    }
}
