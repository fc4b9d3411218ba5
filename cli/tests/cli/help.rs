//! What is generated from the command line's definition, and what documents it.

use std::process::Command;

use crate::rig::{Ran, Scratch, ran};

const COMMANDS: [&str; 12] = [
    "run",
    "list",
    "inspect",
    "watch",
    "release",
    "counter",
    "migrate",
    "purge",
    "doctor",
    "top",
    "completions",
    "man",
];

/// None of this needs a server.
fn tag_lock(arguments: &[&str]) -> Ran {
    ran(Command::new(env!("CARGO_BIN_EXE_tag-lock"))
        .args(arguments)
        .env_remove("DATABASE_URL"))
}

#[test]
fn help_names_each_command_and_the_exit_codes() {
    let help = tag_lock(&["--help"]);
    assert_eq!(help.code, 0);
    for command in COMMANDS {
        assert!(
            help.out.contains(&format!("\n  {command} ")),
            "{command}: {}",
            help.out
        );
        assert_eq!(tag_lock(&[command, "--help"]).code, 0);
    }
    assert!(help.out.contains("Exit codes:"));
    let run = tag_lock(&["run", "--help"]).out;
    for code in ["75 ", "79 ", "125 ", "126 ", "127 "] {
        assert!(run.contains(&format!("\n  {code}")), "{code}: {run}");
    }
    assert_eq!(tag_lock(&[]).code, 2);
    assert_eq!(
        tag_lock(&["--version"]).out,
        format!("tag-lock {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn the_document_has_each_command() {
    let document = include_str!("../../../docs/cli.md");
    for command in COMMANDS {
        assert!(document.contains(&format!("`{command}")), "{command}");
    }
}

#[test]
fn shells_get_their_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = tag_lock(&["completions", shell]);
        assert!(ran.code == 0 && ran.out.contains("add-within"), "{shell}");
    }
    assert_eq!(tag_lock(&["completions", "tcsh"]).code, 2);
}

/// As a shell asks for them, behind commands too.
#[test]
fn bash_completes_behind_commands() {
    for (line, expected) in [
        ("cou", "counter"),
        ("counter compa", "compare-exchange"),
        ("list --perm", "--permits"),
    ] {
        let last = line.split(' ').next_back().unwrap();
        let script = format!(
            "source <(\"$T\" completions bash); COMP_WORDS=(tag-lock {line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             $(complete -p tag-lock | sed 's/.*-F //; s/ .*//') tag-lock '{last}' x; echo \"${{COMPREPLY[@]}}\""
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &script]);
        let completed = ran(bash.env("T", env!("CARGO_BIN_EXE_tag-lock")));
        assert_eq!(completed.out.trim(), expected, "{completed:?}");
    }
}

/// What cannot be written is an error.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told() {
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["man"],
        &["completions", "bash"],
    ] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tag-lock"));
        let ended = command.args(arguments).stdout(full).output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}");
        assert!(!ended.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn there_are_manual_pages() {
    let page = tag_lock(&["man"]);
    assert!(
        page.code == 0 && page.out.contains(".TH tag-lock 1"),
        "{}",
        page.out
    );
    let scratch = Scratch::new();
    let written = tag_lock(&["man", "--into", scratch.path().to_str().unwrap()]);
    assert_eq!(written.code, 0, "{written:?}");
    for page in [
        "tag-lock.1",
        "tag-lock-run.1",
        "tag-lock-counter-add-within.1",
    ] {
        assert!(
            scratch.read(page).is_some_and(|text| text.contains(".TH")),
            "{page}"
        );
    }
    let nowhere = tag_lock(&["man", "--into", "/nowhere/to/be/found"]);
    assert!(
        nowhere.code == 1 && nowhere.err.contains("/nowhere/to/be/found"),
        "{nowhere:?}"
    );
}

#[test]
fn the_live_screen_needs_a_terminal() {
    let ran = tag_lock(&["--url", "mysql://u@127.0.0.1:1/d", "top"]);
    assert!(
        ran.code == 1 && ran.err.contains("needs a terminal"),
        "{ran:?}"
    );
}
