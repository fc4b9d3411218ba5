//! This program again, as a process of its own.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::{Result, handover, idle, leaders, many, permits, readers, storm, takeover};

const WORK: &str = "TAG_LOCK_LEASES_WORK";
const URL: &str = "TAG_LOCK_LEASES_URL";
const NAME: &str = "TAG_LOCK_LEASES_NAME";
const COUNT: &str = "TAG_LOCK_LEASES_COUNT";
const MILLISECONDS: &str = "TAG_LOCK_LEASES_MILLISECONDS";

/// What a worker is to do.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) part: &'static str,
    pub(crate) url: String,
    /// Of the lock or locks.
    pub(crate) name: String,
    pub(crate) count: usize,
    pub(crate) time: Duration,
}

impl Work {
    /// The work of this process, if it is a worker.
    pub(crate) fn of_environment() -> Result<Option<Self>> {
        let Ok(part) = std::env::var(WORK) else {
            return Ok(None);
        };
        let part = match part.as_str() {
            "handover" => "handover",
            "idle" => "idle",
            "leaders" => "leaders",
            "many" => "many",
            "permits" => "permits",
            "readers" => "readers",
            "storm" => "storm",
            "takeover" => "takeover",
            _ => return Err("unknown work".into()),
        };
        Ok(Some(Self {
            part,
            url: std::env::var(URL)?,
            name: std::env::var(NAME)?,
            count: std::env::var(COUNT)?.parse()?,
            time: Duration::from_millis(std::env::var(MILLISECONDS)?.parse()?),
        }))
    }

    /// Starts a process for it.
    pub(crate) fn start(&self) -> Result<Worker> {
        let mut process = Command::new(std::env::current_exe()?)
            .env(WORK, self.part)
            .env(URL, &self.url)
            .env(NAME, &self.name)
            .env(COUNT, self.count.to_string())
            .env(MILLISECONDS, self.time.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().ok_or("a worker has no output")?;
        Ok(Worker {
            process,
            lines: BufReader::new(output).lines(),
        })
    }
}

/// A running worker.
pub(crate) struct Worker {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Its next line of output.
    pub(crate) async fn line(&mut self) -> Result<Option<String>> {
        Ok(self.lines.next_line().await?)
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<()> {
        Ok(self.process.start_kill()?)
    }

    /// Ends its input, and waits for its end.
    pub(crate) async fn end(mut self) -> Result<()> {
        drop(self.process.stdin.take());
        self.ended().await
    }

    /// Waits for its end.
    pub(crate) async fn ended(mut self) -> Result<()> {
        self.process.wait().await?;
        Ok(())
    }

    /// The rest of its output, after its end.
    pub(crate) async fn rest(mut self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        while let Some(line) = self.line().await? {
            lines.push(line);
        }
        if !self.process.wait().await?.success() {
            return Err("a worker failed".into());
        }
        Ok(lines)
    }
}

pub(crate) async fn run(work: Work) -> Result<()> {
    match work.part {
        "handover" => handover::work(work).await,
        "idle" => idle::work(work).await,
        "leaders" => leaders::work(work).await,
        "many" => many::work(work).await,
        "permits" => permits::work(work).await,
        "readers" => readers::work(work).await,
        "storm" => storm::work(work).await,
        _ => takeover::work(work).await,
    }
}
