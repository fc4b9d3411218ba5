//! On a terminal: COMMAND has it while it runs.

use rustix::process::Signal;
use tag_lock::LockState;

use crate::processes::{send, until_stopped};
use crate::rig::{Scratch, until_lock};
use crate::server::TestDatabase;
use crate::terminal::Terminal;
use crate::tmux::Tmux;

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

/// It reads a pipe, and asks the terminal for something: a password, say.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_a_pipeline_gets_the_terminal_when_it_asks() {
    let database = TestDatabase::new().await;
    let line = "echo data | \"$T\" run job -- sh -c 'read x; echo \"piped $x\"; read x </dev/tty; echo \"got $x\"'; \
        read y; echo \"then $y\"";
    let mut terminal = Terminal::run(&database, line);
    terminal.until_shown("piped data");
    terminal.press("hello\n");
    terminal.until_shown("got hello");
    terminal.press("again\n");
    terminal.until_shown("then again");
    assert_eq!(terminal.exit_code(), 0);
    database.remove().await;
}

/// A pager reads keys from the terminal while COMMAND runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_pager_behind_the_command_keeps_the_terminal() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let line = format!(
        "cd '{}'; \"$T\" run job -- sh -c 'echo begun >begun; while [ ! -e go ]; do sleep 0.05; done; echo all' \
         | (while [ ! -e begun ]; do sleep 0.05; done; echo ready; read x </dev/tty; echo \"key $x\"; echo >go; cat)",
        scratch.path().display()
    );
    let mut terminal = Terminal::run(&database, &line);
    terminal.until_shown("ready");
    terminal.press("page\n");
    terminal.until_shown("key page");
    terminal.until_shown("all");
    assert_eq!(terminal.exit_code(), 0);
    database.remove().await;
}

/// A script starts it beside others, and reads the terminal itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_starts_it_beside_others_keeps_the_terminal() {
    let database = TestDatabase::new().await;
    let scratch = Scratch::new();
    let line = format!(
        "cd '{}'; \"$T\" run job -- sh -c 'echo begun >begun; while [ ! -e go ]; do sleep 0.05; done' & \
         while [ ! -e begun ]; do sleep 0.05; done; echo ready; read x; echo \"key $x\"; echo >go; wait; echo all",
        scratch.path().display()
    );
    let mut terminal = Terminal::run(&database, &line);
    terminal.until_shown("ready");
    terminal.press("page\n");
    terminal.until_shown("key page");
    terminal.until_shown("all");
    assert_eq!(terminal.exit_code(), 0);
    database.remove().await;
}

/// Somebody stopped `run`, and the shell brings it back: COMMAND has the terminal again; or it goes on in the background, and the shell keeps
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_stopped_goes_on_with_the_terminal_or_without() {
    let database = TestDatabase::new().await;
    for (brings_back, command) in [
        (
            "fg",
            "while [ ! -e go ]; do sleep 0.05; done; read x; echo \"got $x\"",
        ),
        ("bg", "while [ ! -e go ]; do sleep 0.05; done"),
    ] {
        let tmux = Tmux::open(&database, 120, 24);
        let scratch = &tmux.scratch;
        tmux.enter(&format!(
            "\"$T\" run job --ttl 90s -- sh -c 'echo $PPID >pid; {command}'"
        ));
        send(scratch.pid("pid"), Signal::STOP);
        tmux.until_shown("Stopped");
        tmux.enter(brings_back);
        std::fs::write(scratch.path().join("go"), "").unwrap();
        if brings_back == "fg" {
            tmux.enter("hello");
            tmux.until_shown("got hello");
        } else {
            until_lock(&database, "job", LockState::Free).await;
        }
        tmux.enter("echo the shell is $((6 * 7))");
        tmux.until_shown("the shell is 42");
    }
    database.remove().await;
}

/// It had the terminal, and was sent to the background: it waits for it, as any program would, and is told of once.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_sent_to_the_background_waits_for_the_terminal() {
    let database = TestDatabase::new().await;
    let tmux = Tmux::open(&database, 120, 24);
    tmux.enter(
        "\"$T\" run job -- sh -c 'echo $PPID >pid; while [ ! -e go ]; do sleep 0.05; done; read x; echo \"got $x\"'",
    );
    send(tmux.scratch.pid("pid"), Signal::STOP);
    tmux.until_shown("Stopped");
    tmux.enter("bg");
    std::fs::write(tmux.scratch.path().join("go"), "").unwrap();
    tmux.until_shown("bring this job to the foreground");
    tmux.enter("fg");
    tmux.enter("hello");
    tmux.until_shown("got hello");
    let shown = tmux.lines().join("\n");
    assert!(!shown.contains("goes on"), "{shown}");
    database.remove().await;
}

/// It was begun in the background, reads, and is stopped for that; then it is brought to the foreground.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_comes_to_the_foreground_has_the_terminal() {
    let database = TestDatabase::new().await;
    let tmux = Tmux::open(&database, 120, 24);
    tmux.enter("\"$T\" run job -- sh -c 'read x; echo \"got $x\"' &");
    tmux.until_shown("bring this job to the foreground");
    tmux.enter("fg");
    tmux.enter("hello");
    tmux.until_shown("got hello");
    tmux.enter("echo \"code $?\"");
    tmux.until_shown("code 0");
    database.remove().await;
}

/// COMMAND has had the terminal; then a neighbour asks for it, and has to wait: `run` is not stopped with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_that_asks_later_costs_no_lock() {
    let database = TestDatabase::new().await;
    let tmux = Tmux::open(&database, 120, 24);
    // dash does not notice that a stopped process goes on: if `run` ends before the neighbour, dash takes the job for a stopped
    // one, and takes its terminal.
    tmux.enter("exec bash --norc --noprofile");
    tmux.until_shown("bash-");
    tmux.enter(
        "\"$T\" run job -- sh -c 'read x </dev/tty; echo \"got $x\" >&2; echo >had; while [ ! -e go ]; do sleep 0.05; done' | \
         sh -c 'echo $$ >pid; while [ ! -e had ]; do sleep 0.05; done; read y </dev/tty; echo \"neighbour $y\"'",
    );
    tmux.enter("first");
    tmux.until_shown("got first");
    until_stopped(tmux.scratch.pid("pid"));
    std::fs::write(tmux.scratch.path().join("go"), "").unwrap();
    tmux.enter("second");
    tmux.until_shown("neighbour second");
    let shown = tmux.lines().join("\n");
    assert!(
        !shown.contains("was lost") && !shown.contains("Stopped"),
        "{shown}"
    );
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
