//! On a terminal: COMMAND has it while it runs.

use crate::rig::Scratch;
use crate::support::TestDatabase;
use crate::terminal::Terminal;

#[tokio::test(flavor = "multi_thread")]
async fn the_command_has_the_terminal_and_gives_it_back() {
    let database = TestDatabase::new().await;
    let line = "\"$T\" run job -- sh -c 'echo ready; read x; echo \"got $x\"; exit 7'; echo \"code $?\"; read y; echo \"then $y\"";
    let mut terminal = Terminal::run(&database, line);
    terminal.until_shown("ready");
    terminal.press("hello\n");
    terminal.until_shown("got hello");
    terminal.until_shown("code 7");
    terminal.press("again\n");
    terminal.until_shown("then again");
    assert_eq!(terminal.exit_code(), 0);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_stop_and_end_reach_the_command() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    // Who writes without having the terminal is stopped: what `run` says must not stop it.
    let line = format!(
        "stty tostop; cd '{}'; \"$T\" run job -- sh -c 'trap \"exit 9\" INT; echo ready; while :; do sleep 0.05; done'; echo \"code $?\"",
        scratch.path().display()
    );
    let mut terminal = Terminal::run(&database, &line);
    terminal.until_shown("ready");
    terminal.press("\u{1a}");
    terminal.until_shown("the command goes on");
    terminal.press("\u{3}");
    terminal.until_shown("code 9");
    assert_eq!(terminal.exit_code(), 0);
    database.remove().await;
}

/// Ctrl-Z comes while the command starts a program by vfork(2): then it waits, and is not stopped itself.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn who_is_stopped_while_it_starts_a_program_goes_on() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let source = scratch.path().join("vfork.c");
    std::fs::write(&source, include_str!("vfork.c")).unwrap();
    let mut compile = std::process::Command::new("cc");
    compile.arg("-o").arg(scratch.path().join("starts"));
    assert!(compile.arg(&source).status().expect("cc").success());
    let line = format!(
        "cd '{}'; \"$T\" run job -- ./starts; echo \"code $?\"",
        scratch.path().display()
    );
    let terminal = Terminal::run(&database, &line);
    terminal.until_shown("it begins");
    terminal.until_shown("the command goes on");
    terminal.until_shown("it has gone on");
    terminal.until_shown("code 7");
    assert_eq!(terminal.exit_code(), 0);
    database.remove().await;
}
