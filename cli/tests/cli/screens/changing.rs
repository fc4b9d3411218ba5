//! What changes in a screen from run to run.

use std::sync::LazyLock;

use regex::Regex;

/// What is found, and what stands for it when two screens are compared. Each rule works on what those before it have left.
const RULES: [(&str, &str); 18] = [
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"127\.0\.0\.1:\d+/\w+", "SERVER"),
    // Who holds a lock: the machine, and the number of the process.
    (r"\b[\w.-]+/\d+\b", "HOLDER"),
    (r"\b\d{16}\b", "TOKEN"),
    (
        r#""remaining_seconds":[\d.]+"#,
        "\"remaining_seconds\":NUMBER",
    ),
    (r"\b\d+\.\d ms (behind|ahead of)", "DURATION from"),
    (r"\b\d+(\.\d+)? ?(ms|[smhd])( \d+[smh])?\b", "DURATION"),
    (
        r#""wanted_remaining_seconds":[\d.]+"#,
        "\"wanted_remaining_seconds\":NUMBER",
    ),
    (r"\b\d+\.\d grants", "NUMBER grants"),
    (r"\b\d+\.\d waited for", "NUMBER waited for"),
    // Who waits is far from a server whose answers take more than 37 ms, as those of a busy machine do, and wishes urgently after a second.
    (r"\b(urgently, )?by somebody who waits", "by WISH"),
    (r"\b(yes|urgently)\b", "WISH"),
    (r"> DURATION !", "> DURATION"),
    (r"&gt; DURATION !", "&gt; DURATION"),
    (r#""wanted":"(waits|urgent)""#, "\"wanted\":\"WISH\""),
    // Which one it is, chance says.
    (r"\bpermit \d+", "permit NUMBER"),
    (r"\b\d+\.\d+\.\d+(-\d\S*)?", "VERSION"),
    // Columns are as wide as what stands in them.
    (r" {2,}", "  "),
];

static COMPILED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let rules = RULES.iter();
    rules
        .map(|(found, put)| (Regex::new(found).expect("a rule"), *put))
        .collect()
});

/// A screen without what changes. What was typed stays as it is.
pub(crate) fn steady(screen: &str) -> String {
    let lines = screen.lines().map(|line| {
        if line.starts_with("$ ") {
            return line.to_owned();
        }
        COMPILED.iter().fold(line.to_owned(), |line, (found, put)| {
            found.replace_all(&line, *put).trim_end().to_owned()
        })
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether two screens are the same, but for what changes.
pub(crate) fn same(one: &str, other: &str) -> bool {
    steady(one) == steady(other)
}

/// The lines in which the first screen is not the other one.
pub(crate) fn differences(one: &str, other: &str) -> String {
    let (one, other) = (steady(one), steady(other));
    let differs = |line: &&str| !other.lines().any(|known| known == *line);
    one.lines().filter(differs).collect::<Vec<_>>().join("\n")
}

/// The server's address in a picture: that of the machine on which the picture was made is nobody's.
pub(crate) fn anywhere(text: &str) -> String {
    let server = &COMPILED[1].0;
    server.replace_all(text, "127.0.0.1:3306/shop").into_owned()
}

#[test]
fn screens_differ_in_what_does_not_change() {
    let held =
        "$ tag-lock run a --wait 1s\nnightly  held   vm/7554  6.7s  1795413793371094  sleep\n";
    let later =
        "$ tag-lock run a --wait 1s\nnightly  held   db-1/99  26s   1795413793386201  sleep\n";
    assert!(same(held, later));
    for (word, other) in [
        ("nightly", "hourly"),
        ("held", "kept"),
        ("sleep", "true"),
        ("1s", "2s"),
    ] {
        assert!(!same(held, &later.replacen(word, other, 1)), "{word}");
    }
    let near = "nightly  held   db-1/99  26s  yes       token";
    assert!(same(near, &near.replace("yes     ", "urgently")));
    assert!(!same(near, &near.replace("yes     ", "for long")));
    assert!(!same(near, &near.replace("yes     ", "        ")));
    assert!(same(
        "wanted  by somebody who waits",
        "wanted  urgently, by somebody who waits"
    ));
    assert!(!same(
        "wanted  by somebody who waits",
        "wanted  for long, by somebody who waits"
    ));
    assert!(same(r#""wanted":"waits""#, r#""wanted":"urgent""#));
    assert!(!same(r#""wanted":"waits""#, r#""wanted":null"#));
    let now = "2026-11-23T06:03:18Z  free, last held by vm/7554";
    let then = "2027-01-01T00:00:00Z  free, last held by vm/1";
    assert!(same(now, then));
    assert!(!same("(exit code 7)", "(exit code 75)"));
    assert!(same(
        "the clock is 0.1 ms behind this machine's",
        "the clock is 12.0 ms ahead of this machine's"
    ));
    assert!(!same("5 problems", "6 problems"));
}
