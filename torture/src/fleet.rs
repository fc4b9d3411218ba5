//! The worker processes, each behind a proxy of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::proxy::Proxy;
use crate::setup;
use crate::wall_clock::Clock;
use crate::wire::Wire;

/// Where workers run, one at a time: its proxy and its clock outlive them.
pub struct Slot {
    /// What its worker's packets pass.
    pub wire: Wire,
    /// The wall clock of its workers, if it can be shifted.
    pub clock: Option<Clock>,
    /// Which place it is.
    pub number: u32,
    /// How far away from the server it is, there and back.
    distance: Duration,
    url: String,
    running: Mutex<Option<Running>>,
    done: Mutex<Progress>,
}

struct Running {
    worker: u32,
    child: Child,
}

/// How far workers are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Critical sections.
    pub sections: u64,
    /// Acknowledged increments.
    pub increments: u64,
    /// Operations of all kinds.
    pub operations: u64,
}

/// All workers of a run.
pub struct Fleet {
    /// Where they run.
    pub slots: Vec<Arc<Slot>>,
    directory: PathBuf,
    /// One worker after the other is of the next of these.
    programs: Vec<PathBuf>,
    next: AtomicU32,
    findings: Mutex<Vec<String>>,
}

impl Fleet {
    /// No workers yet. If there is another program `beside` this one, every second worker is to be one of its.
    ///
    /// # Errors
    ///
    /// If one of the programs cannot be found.
    pub fn new(directory: &Path, beside: Option<&Path>) -> io::Result<Self> {
        let mut programs = vec![std::env::current_exe()?];
        if let Some(beside) = beside {
            let found = beside.canonicalize();
            programs.push(found.map_err(|error| {
                let name = beside.display();
                io::Error::new(error.kind(), format!("{name}, given as --beside: {error}"))
            })?);
        }
        Ok(Self {
            slots: Vec::new(),
            directory: directory.to_owned(),
            programs,
            next: AtomicU32::new(1),
            findings: Mutex::default(),
        })
    }

    /// Adds a place for a worker, so far away from the server of a URL, there and back.
    pub fn add(
        &mut self,
        proxy: Proxy,
        database_url: &str,
        clock: Option<Clock>,
        distance: Duration,
    ) {
        let number = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let slot = Slot {
            url: proxy.url(database_url),
            wire: Wire::new(proxy),
            clock,
            number,
            distance,
            running: Mutex::default(),
            done: Mutex::default(),
        };
        slot.is_as_far_as_ever();
        self.slots.push(Arc::new(slot));
    }

    /// Starts a worker.
    ///
    /// # Errors
    ///
    /// If the process cannot be started.
    pub fn start(&self, slot: &Arc<Slot>) -> io::Result<()> {
        let worker = self.next.fetch_add(1, Ordering::Relaxed);
        let program = &self.programs[worker as usize % self.programs.len()];
        let mut command = Command::new(program);
        command
            .arg("worker")
            .arg(&self.directory)
            .arg(worker.to_string())
            .env(setup::URL, &slot.url)
            .env(setup::SLOT, slot.number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        if let Some(clock) = &slot.clock {
            command.envs(clock.variables());
        }
        slot.wire.belongs_to(worker);
        let mut child = command.spawn()?;
        if let Some(output) = child.stdout.take() {
            let slot = Arc::clone(slot);
            tokio::spawn(follow(slot, BufReader::new(output).lines()));
        }
        *locked(&slot.running) = Some(Running { worker, child });
        Ok(())
    }

    /// The workers so far, those that were killed included.
    #[must_use]
    pub fn workers(&self) -> u32 {
        self.next.load(Ordering::Relaxed) - 1
    }

    /// How far they are, all together.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let mut all = Progress::default();
        for slot in &self.slots {
            all.add(slot.progress());
        }
        all
    }

    /// A worker that ended although nobody wanted it to is a finding, and is replaced.
    ///
    /// # Errors
    ///
    /// If a replacement cannot be started.
    pub fn replace_the_ended(&self) -> io::Result<()> {
        for slot in &self.slots {
            let ended = {
                let mut running = locked(&slot.running);
                let status = match running.as_mut() {
                    Some(running) => running.child.try_wait()?,
                    None => None,
                };
                status.and_then(|status| Some((running.take()?.worker, status)))
            };
            if let Some((worker, status)) = ended {
                self.find(format!("worker {worker} ended by itself: {status}"));
                self.start(slot)?;
            }
        }
        Ok(())
    }

    /// Tells all workers to end that run now; whoever replaces one that is killed goes on until [`finish`](Self::finish).
    pub fn dismiss(&self) {
        for slot in &self.slots {
            if let Some(running) = locked(&slot.running).as_mut() {
                drop(running.child.stdin.take());
            }
        }
    }

    /// Lets all workers end, and waits for them; those that do not are killed, and are findings.
    pub async fn finish(&self, patience: Duration) {
        let ends = self.slots.iter().map(|slot| async move {
            let Some(Running { worker, mut child }) = locked(&slot.running).take() else {
                return;
            };
            drop(child.stdin.take());
            match tokio::time::timeout(patience, child.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => self.find(format!("worker {worker} failed at its end: {status}")),
                Ok(Err(error)) => self.find(format!("worker {worker} cannot be waited for: {error}")),
                Err(_) => {
                    self.find(format!(
                        "worker {worker} did not end within {patience:?} after all faults were mended"
                    ));
                    let _ = child.kill().await;
                }
            }
        });
        futures_util::future::join_all(ends).await;
    }

    /// What workers did that no fault explains.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        locked(&self.findings).clone()
    }

    fn find(&self, finding: String) {
        locked(&self.findings).push(finding);
    }
}

impl Slot {
    /// Its link takes no longer than its distance says.
    pub fn is_as_far_as_ever(&self) {
        let way = self.distance / 2;
        self.wire.proxy.set_delay(way, way);
        self.wire.proxy.set_jitter(Duration::ZERO);
    }

    /// Sends a signal to its worker. Whether there is one.
    pub fn signal(&self, signal: Signal) -> bool {
        let running = locked(&self.running);
        let pid = running.as_ref().and_then(|running| running.child.id());
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
    }

    /// The number of its worker.
    #[must_use]
    pub fn worker(&self) -> Option<u32> {
        locked(&self.running).as_ref().map(|running| running.worker)
    }

    /// Kills its worker with SIGKILL.
    ///
    /// # Errors
    ///
    /// If it cannot be waited for.
    pub async fn kill(&self) -> io::Result<Option<ExitStatus>> {
        let Some(mut running) = locked(&self.running).take() else {
            return Ok(None);
        };
        running.child.start_kill()?;
        Ok(Some(running.child.wait().await?))
    }

    /// How far the workers of this slot are.
    #[must_use]
    pub fn progress(&self) -> Progress {
        *locked(&self.done)
    }
}

impl Progress {
    fn add(&mut self, more: Self) {
        self.sections += more.sections;
        self.increments += more.increments;
        self.operations += more.operations;
    }
}

/// Reads what a worker tells of its progress, and adds it to the slot's.
async fn follow(slot: Arc<Slot>, mut lines: Lines<BufReader<ChildStdout>>) {
    let mut last = Progress::default();
    while let Ok(Some(line)) = lines.next_line().await {
        let mut numbers = line.split(' ').map_while(|number| number.parse().ok());
        let (Some(sections), Some(increments), Some(operations)) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            continue;
        };
        let mut done = locked(&slot.done);
        done.sections += sections - last.sections;
        done.increments += increments - last.increments;
        done.operations += operations - last.operations;
        last = Progress {
            sections,
            increments,
            operations,
        };
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
