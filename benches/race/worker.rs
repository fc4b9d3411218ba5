//! A part of a heat in a process of its own: this program, run again.
//!
//! The parent writes two lines to the worker's input, the arena and the orders; the worker connects and answers
//! `ready`; the parent writes when the window opens and closes, in microseconds since 1970; the worker answers with
//! its tally and ends.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, timeout};

use crate::arena::Arena;
use crate::contestants::Result;
use crate::contestants::roster::{Entry, roster};
use crate::heat::{Heat, Work, unix_us};
use crate::names::Names;
use crate::tally::Tally;

/// The argument that makes this program a worker.
pub const ARGUMENT: &str = "--worker";

/// How long a worker may take to connect, or to report after its window.
const PATIENCE: Duration = Duration::from_secs(30);

/// A worker process, connected and waiting; killed when dropped.
pub struct Worker {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts a worker that will do `heat`'s work, and waits until it is connected.
    pub async fn start(entry: &Entry, arena: &Arena, heat: &Heat) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut input = child.stdin.take().ok_or("a worker without input")?;
        let output = BufReader::new(child.stdout.take().ok_or("a worker without output")?).lines();
        let orders = encode(entry.profile.name, heat);
        input
            .write_all(format!("{}\n{orders}\n", arena.encode()).as_bytes())
            .await?;
        let mut worker = Self {
            child,
            input,
            output,
        };
        match worker.line().await?.as_str() {
            "ready" => Ok(worker),
            refusal => Err(refusal.to_owned().into()),
        }
    }

    /// Starts the work; it counts from `start` to `end`.
    pub async fn go(&mut self, start: Instant, end: Instant) -> Result<()> {
        let order = format!("{} {}\n", to_unix_us(start), to_unix_us(end));
        Ok(self.input.write_all(order.as_bytes()).await?)
    }

    /// What it did, after the window.
    pub async fn tally(&mut self) -> Result<Tally> {
        let line = self.line().await?;
        Ok(Tally::decode(&line).ok_or_else(|| format!("a worker said: {line}"))?)
    }

    /// Its process id.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Ends it at once.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    async fn line(&mut self) -> Result<String> {
        let line = timeout(PATIENCE, self.output.next_line()).await??;
        Ok(line.ok_or("a worker ended early")?)
    }
}

/// The whole life of a worker process.
pub async fn run() -> Result<()> {
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let arena = input
        .next_line()
        .await?
        .and_then(|line| Arena::decode(&line))
        .ok_or("no arena")?;
    let (entry, heat) = input
        .next_line()
        .await?
        .and_then(|line| decode(&line))
        .ok_or("no orders")?;
    let racer = match entry.open(&Arc::new(arena), heat.tasks).await {
        Ok(racer) => racer,
        Err(error) => {
            println!("{error}");
            return Ok(());
        }
    };
    println!("ready");
    let window = input.next_line().await?.ok_or("no window")?;
    let (start, end) = window.split_once(' ').ok_or("no window")?;
    let heat = Heat {
        start: to_instant(start.parse()?),
        end: to_instant(end.parse()?),
        ..heat
    };
    let tally = racer.heat(heat).await;
    println!("{}", tally.encode());
    racer.close().await;
    Ok(())
}

fn encode(contestant: &str, heat: &Heat) -> String {
    let work = match heat.work {
        Work::Add => "add".to_owned(),
        Work::Pair { hold, rest } => format!("{}:{}", hold.as_micros(), rest.as_micros()),
    };
    let names = match heat.names {
        Names::One => "one",
        Names::Fresh => "fresh",
        Names::Own | Names::Filled(_) => "own",
    };
    format!(
        "{contestant} {work} {names} {} {}",
        heat.tasks, heat.process
    )
}

fn decode(line: &str) -> Option<(Entry, Heat)> {
    let mut fields = line.split(' ');
    let contestant = fields.next()?;
    let entry = roster()
        .into_iter()
        .find(|entry| entry.profile.name == contestant)?;
    let work = match fields.next()? {
        "add" => Work::Add,
        pair => {
            let (hold, rest) = pair.split_once(':')?;
            let time = |us: &str| us.parse().ok().map(Duration::from_micros);
            Work::Pair {
                hold: time(hold)?,
                rest: time(rest)?,
            }
        }
    };
    let names = match fields.next()? {
        "one" => Names::One,
        "fresh" => Names::Fresh,
        _ => Names::Own,
    };
    let mut heat = Heat::new(
        work,
        names,
        fields.next()?.parse().ok()?,
        Duration::ZERO,
        Duration::ZERO,
    );
    heat.process = fields.next()?.parse().ok()?;
    Some((entry, heat))
}

fn to_unix_us(instant: Instant) -> u64 {
    let ahead = instant.saturating_duration_since(Instant::now());
    unix_us() + u64::try_from(ahead.as_micros()).unwrap_or(0)
}

fn to_instant(unix: u64) -> Instant {
    Instant::now() + Duration::from_micros(unix.saturating_sub(unix_us()))
}
