//! One name, wanted by 4 processes of 16 tasks each: every process gets its share, and no task waits for
//! more than three rounds; than six on a machine whose commits take longer than clients let others go first.
//!
//! `TAG_LOCK_TEST_SECONDS` is how long each of the two runs lasts (6); on a machine that is late, longer ones follow.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::lateness::Lateness;
use crate::support::{TestDatabase, alone, connected, patient, spawn_worker};
use tag_lock::AtClose;
use tokio::task::JoinSet;

const PROCESSES: usize = 4;
const TASKS: usize = 16;
const ROUNDS: usize = 3;
/// By so much a client asks later for each that it lets go first: where a commit takes longer, they do not keep their order.
const COURTESY: Duration = Duration::from_millis(10);
/// How long after a pause the order of turns may still be another one, in nanoseconds.
const AFTERMATH: u64 = 500_000_000;
/// So many turns are enough to judge by.
const ENOUGH: usize = PROCESSES * 2;
/// Waits that are shorter are within one process's turn.
const SHORT_WAIT: u64 = 5_000_000;

fn seconds() -> u64 {
    let seconds = std::env::var("TAG_LOCK_TEST_SECONDS").ok();
    seconds.map_or(6, |seconds| seconds.parse().expect("a number of seconds"))
}

/// Nanoseconds that all processes read alike.
fn monotonic() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).expect("after the start");
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).expect("below a second")
}

/// One process has the lock, and passes it on among its tasks.
#[derive(Clone, Copy, Debug)]
struct Turn {
    process: usize,
    began: u64,
    ended: u64,
    grants: u64,
}

/// A task waits from the first to the second.
#[derive(Clone, Copy, Debug)]
struct Wait(u64, u64);

#[tokio::test]
async fn each_process_gets_its_share_of_a_lock_that_is_not_held() {
    compete(Duration::ZERO).await;
}

#[tokio::test]
async fn each_process_gets_its_share_of_a_lock_that_is_held_for_5_ms() {
    compete(Duration::from_millis(5)).await;
}

/// How often they compete, each time for twice as long.
const ATTEMPTS: u32 = 5;

async fn compete(hold: Duration) {
    let _alone = alone().await;
    for attempt in 1.. {
        let length = Duration::from_secs(seconds() << (attempt - 1));
        let Err(unfair) = compete_for(hold, length).await else {
            return;
        };
        // Who is stopped misses turns, and where the server is, few have one.
        let excused = unfair.too_few || unfair.late > length / 10;
        println!("{}; late by {:?}", unfair.what, unfair.late);
        assert!(excused && attempt < ATTEMPTS, "{}", unfair.what);
    }
}

/// What is not as it should be.
struct Unfair {
    what: String,
    /// By how much the server, the machine or one of the processes was late.
    late: Duration,
    /// There were too few turns to judge by.
    too_few: bool,
}

async fn compete_for(hold: Duration, length: Duration) -> Result<(), Unfair> {
    let (instant, origin) = (Instant::now(), monotonic());
    let lateness = Lateness::watch();
    let database = TestDatabase::new().await;
    let mut workers: Vec<Child> = (0..PROCESSES)
        .map(|_| {
            let variables = [
                ("FAIRNESS_URL", database.url.clone()),
                ("FAIRNESS_HOLD", hold.as_millis().to_string()),
            ];
            spawn_worker("competitor", &variables)
        })
        .collect();
    let mut outputs: Vec<_> = workers
        .iter_mut()
        .map(|worker| BufReader::new(worker.stdout.take().expect("its output")).lines())
        .collect();
    // All are ready before any of them starts.
    for output in &mut outputs {
        assert!(output.any(|line| line.expect("its output").contains("ready")));
    }
    let start = monotonic();
    let end = start + u64::try_from(length.as_nanos()).expect("a short time");
    for worker in &mut workers {
        let mut input = worker.stdin.take().expect("its input");
        writeln!(input, "{end}").expect("it listens");
    }
    let (mut turns, mut waits) = (Vec::new(), Vec::new());
    let (mut late, mut pauses) = (Duration::ZERO, Vec::new());
    for (process, output) in outputs.into_iter().enumerate() {
        for line in output {
            let line = line.expect("its output");
            read(&line, process, &mut turns, &mut waits);
            if let Some(pause) = line.strip_prefix("pause ") {
                let (from, to) = pause.split_once(' ').expect("two numbers");
                let pause = (from.parse().expect("a time"), to.parse().expect("a time"));
                late += Duration::from_nanos(pause.1 - pause.0);
                pauses.push(pause);
            }
        }
    }
    let late = late.max(lateness.so_far());
    let nanos = |time: Instant| origin + u64::try_from((time - instant).as_nanos()).expect("short");
    let periods = lateness.periods().into_iter();
    pauses.extend(periods.map(|(from, to)| (nanos(from), nanos(to))));
    for mut worker in workers {
        assert!(
            worker.wait().expect("it ended").success(),
            "a competitor failed"
        );
    }
    let turns = joined(turns);
    // Who waited while the server or a process stood still, or just after that, waited for more than others' turns.
    waits.retain(|Wait(asked, granted)| {
        let beside = |(from, to): &(u64, u64)| granted < from || to + AFTERMATH < *asked;
        pauses.iter().all(beside)
    });
    let rounds = if lateness.longest() > COURTESY {
        2 * ROUNDS
    } else {
        ROUNDS
    };
    let verdict = judge(hold, &turns, &waits, (start, end), rounds);
    database.remove().await;
    verdict.map_err(|what| Unfair {
        what,
        late,
        too_few: turns.len() < ENOUGH || waits.is_empty(),
    })
}

fn read(line: &str, process: usize, turns: &mut Vec<Turn>, waits: &mut Vec<Wait>) {
    let numbers = || {
        let words = line.split(' ').skip(1);
        words
            .map(|word| word.parse().expect("a number"))
            .collect::<Vec<u64>>()
    };
    if line.starts_with("turn ") {
        let [began, ended, grants] = numbers()[..] else {
            panic!("{line}")
        };
        turns.push(Turn {
            process,
            began,
            ended,
            grants,
        });
    } else if line.starts_with("wait ") {
        let [asked, granted] = numbers()[..] else {
            panic!("{line}")
        };
        waits.push(Wait(asked, granted));
    }
}

/// In order; leases that a process had one after the other, with no one between them, are one turn.
fn joined(mut turns: Vec<Turn>) -> Vec<Turn> {
    turns.sort_by_key(|turn| turn.began);
    let mut joined: Vec<Turn> = Vec::new();
    for turn in turns {
        match joined.last_mut() {
            Some(last) if last.process == turn.process => {
                last.ended = turn.ended;
                last.grants += turn.grants;
            }
            Some(last) => {
                assert!(
                    last.ended <= turn.began,
                    "two processes held it: {last:?} {turn:?}"
                );
                joined.push(turn);
            }
            None => joined.push(turn),
        }
    }
    joined
}

/// Says what is unfair.
fn judge(
    hold: Duration,
    turns: &[Turn],
    waits: &[Wait],
    (start, end): (u64, u64),
    rounds: usize,
) -> Result<(), String> {
    let mut grants = [0; PROCESSES];
    for turn in turns {
        grants[turn.process] += turn.grants;
    }
    let all: u64 = grants.iter().sum();
    // How many turns other processes, and its own, began while a task waited.
    let turns_within = |wait: &Wait| {
        let before = |time| turns.partition_point(|turn| turn.began <= time);
        before(wait.1) - before(wait.0)
    };
    let most = waits.iter().map(turns_within).max().unwrap_or_default();
    let longest = waits
        .iter()
        .map(|wait| wait.1 - wait.0)
        .max()
        .unwrap_or_default();
    let length = (end - start) / u64::try_from(turns.len().max(1)).expect("few");
    println!(
        "hold {hold:?}: {grants:?} grants in {} turns of {:?}; the longest wait was {:?}, over {most} turns",
        turns.len(),
        Duration::from_nanos(length),
        Duration::from_nanos(longest),
    );
    if turns.len() < ENOUGH || waits.is_empty() {
        return Err(format!(
            "{} turns and {} waits are too few to judge by",
            turns.len(),
            waits.len()
        ));
    }
    let least = grants.iter().min().copied().unwrap_or_default();
    let share = all / u64::try_from(PROCESSES).expect("few");
    if least * 2 < share {
        return Err(format!(
            "the process served least got {least} of an equal share of {share}"
        ));
    }
    // Where a turn is too short for a third of the tasks, the queue of a process needs more rounds than three.
    let per_turn = usize::try_from(all).expect("fits") / turns.len();
    let rounds = rounds.max(TASKS.div_ceil(per_turn.max(1)) + 1);
    if most > rounds * PROCESSES {
        return Err(format!(
            "a task waited for {most} turns, which is more than {rounds} rounds"
        ));
    }
    Ok(())
}

/// What a process says of its own turns: grants whose tokens follow each other.
#[derive(Default)]
struct Said {
    turns: Vec<(u64, u64, u64)>,
    last_token: u64,
    waits: Vec<Wait>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "one of the processes of the other tests"]
async fn competitor() {
    let variable = |name| std::env::var(name).expect("only a test starts this");
    let hold = Duration::from_millis(variable("FAIRNESS_HOLD").parse().expect("a number"));
    let client = connected(patient(&variable("FAIRNESS_URL"))).await;
    // Connections are opened before the start.
    let warm = client
        .lock(&format!("warm {}", std::process::id()))
        .acquire()
        .await;
    warm.expect("a lock").release().await.expect("it was held");
    println!("\nready");
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .expect("the test speaks");
    let end: u64 = line.trim().parse().expect("a time");

    let pauses = std::thread::spawn(move || pauses(end));
    let said = Arc::<Mutex<Said>>::default();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (client, said) = (client.clone(), Arc::clone(&said));
        tasks.spawn(async move {
            loop {
                let asked = monotonic();
                if asked >= end {
                    return;
                }
                let guard = client.lock("fair").acquire().await.expect("a lock");
                let granted = monotonic();
                if !hold.is_zero() {
                    tokio::time::sleep(hold).await;
                }
                note(
                    &mut said.lock().expect("no panic"),
                    guard.fencing_token(),
                    asked,
                    granted,
                );
                guard.release().await.expect("it was held");
            }
        });
    }
    tasks.join_all().await;
    client.close(AtClose::Release).await;
    let said = said.lock().expect("no panic");
    let mut text = String::new();
    for (began, ended, grants) in &said.turns {
        writeln!(text, "turn {began} {ended} {grants}").expect("a string");
    }
    for Wait(asked, granted) in &said.waits {
        writeln!(text, "wait {asked} {granted}").expect("a string");
    }
    for (from, to) in pauses.join().expect("no panic") {
        writeln!(text, "pause {from} {to}").expect("a string");
    }
    println!("{text}");
}

/// When this process did not run until `end`, though it wanted to.
fn pauses(end: u64) -> Vec<(u64, u64)> {
    let mut pauses = Vec::new();
    let mut before = monotonic();
    while before < end {
        std::thread::sleep(Duration::from_millis(20));
        let now = monotonic();
        if now - before > 50_000_000 {
            pauses.push((before, now));
        }
        before = now;
    }
    pauses
}

/// Takes in one grant while the lock is held.
fn note(said: &mut Said, token: u64, asked: u64, granted: u64) {
    let follows = said.last_token + 1 == token;
    assert!(token > said.last_token, "a token did not rise");
    said.last_token = token;
    let now = monotonic();
    match said.turns.last_mut() {
        Some(turn) if follows => {
            turn.1 = now;
            turn.2 += 1;
        }
        _ => said.turns.push((granted, now, 1)),
    }
    if granted - asked > SHORT_WAIT {
        said.waits.push(Wait(asked, granted));
    }
}
