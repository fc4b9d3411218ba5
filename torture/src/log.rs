//! A worker's log: a file that is only appended to.
//!
//! Lines of what ended gather in memory; an invocation is written out, with all before it, before its operation begins.
//! What `write(2)` took survives a SIGKILL, so whatever a killed worker may have done is on file.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::history::{Event, Invocation, Line, Log, Names, Record};

const BUFFER: usize = 64 * 1024;

/// Where the log of a worker stands in a run's directory.
pub fn path(directory: &Path, worker: u32) -> PathBuf {
    directory.join(format!("worker-{worker}.log"))
}

/// A log that is being written, by all tasks of a worker.
#[derive(Debug)]
pub struct Writer(Mutex<Buffered>);

#[derive(Debug)]
struct Buffered {
    file: File,
    lines: Vec<u8>,
}

impl Writer {
    /// Begins the log of a worker.
    ///
    /// # Errors
    ///
    /// If there is one already, or the file cannot be made.
    pub fn create(directory: &Path, worker: u32) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(path(directory, worker))?;
        Ok(Self(Mutex::new(Buffered {
            file,
            lines: Vec::with_capacity(2 * BUFFER),
        })))
    }

    /// Writes that something begins, before it does.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn invoked(&self, invocation: &Invocation) -> io::Result<()> {
        self.append(invocation, 0)
    }

    /// Writes that something ended; it may stay in memory until the next invocation.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn ended(&self, record: &Record) -> io::Result<()> {
        self.append(record, BUFFER)
    }

    /// Writes that the worker's tasks have a client each.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn apart(&self) -> io::Result<()> {
        self.append(&Line::Apart, 0)
    }

    /// Writes what is still in memory, and that the worker ended by itself.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn complete(&self) -> io::Result<()> {
        self.append(&Line::Complete, 0)
    }

    fn append(&self, line: &impl Display, keep: usize) -> io::Result<()> {
        let mut buffered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Buffered { file, lines } = &mut *buffered;
        writeln!(lines, "{line}")?;
        if lines.len() > keep {
            file.write_all(lines)?;
            lines.clear();
        }
        Ok(())
    }
}

/// Reads the log of a worker.
///
/// # Errors
///
/// If the file cannot be read, or a line of it other than the last is none.
pub fn read(directory: &Path, worker: u32, names: &mut Names) -> io::Result<Log> {
    let path = path(directory, worker);
    let mut file = BufReader::with_capacity(BUFFER, File::open(&path)?);
    let mut log = Log {
        worker,
        ..Log::default()
    };
    let mut open = HashMap::new();
    let mut text = String::new();
    while file.read_line(&mut text)? > 0 {
        // A killed worker's last line may be cut short: it told of something that was not yet to begin, or that ended
        // and so stays open.
        let Some(line) = text.strip_suffix('\n') else {
            break;
        };
        match Line::parse(line, worker, names) {
            Ok(Line::Invoked(invocation)) => {
                // Of several locks that are asked for at once each has one, with the same instant.
                let name = Arc::clone(&invocation.name);
                open.insert((invocation.task, invocation.invoked, name), invocation);
            }
            Ok(Line::Ended(record)) => {
                // A call that overran has another record of its own, which says how it ended.
                if !matches!(record.event, Event::Overran { .. }) {
                    let name = Arc::clone(&record.name);
                    open.remove(&(record.task, record.invoked, name));
                }
                log.records.push(record);
            }
            Ok(Line::Apart) => log.apart = true,
            Ok(Line::Complete) => log.complete = true,
            Err(error) => {
                return Err(io::Error::other(format!("{}: {error}", path.display())));
            }
        }
        text.clear();
    }
    log.open = open.into_values().collect();
    log.open
        .sort_by(|a, b| (a.invoked, &a.name).cmp(&(b.invoked, &b.name)));
    Ok(log)
}
