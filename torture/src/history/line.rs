//! A record or an invocation as one line of text: a letter for its kind, then its fields between spaces. Numbers are
//! decimal, a missing one is `-`. Names hold no spaces.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::str::{FromStr, SplitAsciiWhitespace};
use std::sync::Arc;

use super::{Event, Invocation, Operation, Outcome, Record};

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Something begins.
    Invoked(Invocation),
    /// Something ended.
    Ended(Record),
    /// The worker's tasks have a client each.
    Apart,
    /// The worker ended by itself. Always the last line.
    Complete,
}

/// A line that is none.
#[derive(Debug, thiserror::Error)]
#[error("not a line of a history: {0:?}")]
pub struct BadLine(String);

/// The names met so far, so that millions of records share them.
#[derive(Debug, Default)]
pub struct Names(HashSet<Arc<str>>);

impl Names {
    /// The shared form of a name.
    pub fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let name = Arc::<str>::from(name);
        self.0.insert(Arc::clone(&name));
        name
    }
}

impl Line {
    /// Reads a line of the worker's log.
    ///
    /// # Errors
    ///
    /// [`BadLine`] if it is none; the last line of a killed worker may be cut short.
    pub fn parse(text: &str, worker: u32, names: &mut Names) -> Result<Self, BadLine> {
        let mut fields = Fields(text.split_ascii_whitespace());
        let line = fields.line(worker, names);
        match line {
            Some(line) if fields.0.next().is_none() => Ok(line),
            _ => Err(BadLine(text.to_owned())),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invoked(invocation) => invocation.fmt(f),
            Self::Ended(record) => record.fmt(f),
            Self::Apart => f.write_char('/'),
            Self::Complete => f.write_char('.'),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.event {
            Event::Granted { .. } => 'G',
            Event::HeldUntil { .. } => 'H',
            Event::Released { .. } => 'R',
            Event::NotGranted { .. } => 'N',
            Event::Section { .. } => 'S',
            Event::FencedWrite { .. } => 'F',
            Event::Added { .. } => 'A',
            Event::Transfer { .. } => 'T',
            Event::Attempt { .. } => 'J',
            Event::Permit { .. } => 'P',
            Event::Together { .. } => 'M',
            Event::Leads { .. } => 'L',
            Event::Seen { .. } => 'V',
            Event::WorkedOn { .. } => 'W',
            Event::Overran { .. } => 'X',
            Event::Shared { .. } => 'B',
            Event::NotShared { .. } => 'D',
            Event::Looked { .. } => 'O',
            Event::Vouched { .. } => 'Q',
        };
        let (task, name, invoked, returned) = (self.task, &self.name, self.invoked, self.returned);
        write!(f, "{letter} {task} {name} {invoked} {returned} ")?;
        match self.event {
            Event::Granted { token, ttl } => write!(f, "{token} {ttl}"),
            Event::HeldUntil {
                token,
                trusted_until,
            } => write!(f, "{token} {trusted_until}"),
            Event::Released { token, outcome } => write!(f, "{token} {outcome}"),
            Event::NotGranted { outcome } | Event::NotShared { outcome } => outcome.fmt(f),
            Event::Section { token, read, wrote } => write!(f, "{token} {read} {wrote}"),
            Event::FencedWrite { token, accepted } => write!(f, "{token} {}", u8::from(accepted)),
            Event::Added {
                delta,
                low,
                high,
                value,
                outcome,
            } => {
                write!(f, "{delta} ")?;
                for bound in [low, high, value] {
                    optional(bound, f)?;
                }
                outcome.fmt(f)
            }
            Event::Transfer {
                token,
                amount,
                committing,
                outcome,
            } => write!(f, "{token} {amount} {committing} {outcome}"),
            Event::Attempt {
                token,
                booked,
                done,
                outcome,
            } => {
                let (booked, done) = (u8::from(booked), u8::from(done));
                write!(f, "{token} {booked} {done} {outcome}")
            }
            Event::Permit {
                permits,
                count,
                slot,
                token,
                ttl,
            } => write!(f, "{permits} {count} {slot} {token} {ttl}"),
            Event::Together {
                token,
                ttl,
                outcome,
            } => write!(f, "{token} {ttl} {outcome}"),
            Event::Leads { token, value, once } => write!(f, "{token} {value} {}", u8::from(once)),
            Event::Seen { token, value } => write!(f, "{token} {value}"),
            Event::WorkedOn { token, steps } => write!(f, "{token} {steps}"),
            Event::Overran { limit } => write!(f, "{limit}"),
            Event::Shared { token, ttl, from } => write!(f, "{token} {ttl} {from}"),
            Event::Looked {
                token,
                found,
                again,
            } => write!(f, "{token} {found} {again}"),
            Event::Vouched {
                token,
                found,
                again,
                committing,
                outcome,
            } => write!(f, "{token} {found} {again} {committing} {outcome}"),
        }
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.operation {
            Operation::Acquire => 'g',
            Operation::Section { .. } => 's',
            Operation::FencedWrite { .. } => 'f',
            Operation::Add { .. } => 'a',
            Operation::Transfer { .. } => 't',
            Operation::Attempt { .. } => 'j',
            Operation::Together => 'm',
            Operation::Share => 'b',
        };
        let (task, name, invoked) = (self.task, &self.name, self.invoked);
        write!(f, "{letter} {task} {name} {invoked} ")?;
        match self.operation {
            Operation::Acquire | Operation::Together | Operation::Share => Ok(()),
            Operation::Section { token, read, wrote } => write!(f, "{token} {read} {wrote}"),
            Operation::FencedWrite { token } => token.fmt(f),
            Operation::Add { delta, low, high } => {
                write!(f, "{delta} ")?;
                optional(low, f)?;
                optional(high, f)
            }
            Operation::Transfer { token, amount } => write!(f, "{token} {amount}"),
            Operation::Attempt { booked } => u8::from(booked).fmt(f),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Lost => "lost",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        })
    }
}

fn optional(number: Option<i64>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match number {
        Some(number) => write!(f, "{number} "),
        None => f.write_str("- "),
    }
}

/// The fields of a line that are still to be read.
struct Fields<'a>(SplitAsciiWhitespace<'a>);

impl Fields<'_> {
    fn line(&mut self, worker: u32, names: &mut Names) -> Option<Line> {
        let kind = self.0.next()?;
        match kind {
            "/" => return Some(Line::Apart),
            "." => return Some(Line::Complete),
            _ => {}
        }
        let task = self.value()?;
        let name = names.shared(self.0.next()?);
        let invoked = self.value()?;
        if let Some(operation) = self.operation(kind)? {
            return Some(Line::Invoked(Invocation {
                worker,
                task,
                name,
                invoked,
                operation,
            }));
        }
        let returned = self.value()?;
        let event = self.event(kind)?;
        Some(Line::Ended(Record {
            worker,
            task,
            name,
            invoked,
            returned,
            event,
        }))
    }

    /// `Some(None)`: the line is not an invocation.
    fn operation(&mut self, kind: &str) -> Option<Option<Operation>> {
        Some(Some(match kind {
            "g" => Operation::Acquire,
            "m" => Operation::Together,
            "b" => Operation::Share,
            "s" => Operation::Section {
                token: self.value()?,
                read: self.value()?,
                wrote: self.value()?,
            },
            "f" => Operation::FencedWrite {
                token: self.value()?,
            },
            "a" => Operation::Add {
                delta: self.value()?,
                low: self.optional()?,
                high: self.optional()?,
            },
            "t" => Operation::Transfer {
                token: self.value()?,
                amount: self.value()?,
            },
            "j" => Operation::Attempt {
                booked: self.value::<u8>()? == 1,
            },
            _ => return Some(None),
        }))
    }

    fn event(&mut self, kind: &str) -> Option<Event> {
        Some(match kind {
            "G" => Event::Granted {
                token: self.value()?,
                ttl: self.value()?,
            },
            "H" => Event::HeldUntil {
                token: self.value()?,
                trusted_until: self.value()?,
            },
            "R" => Event::Released {
                token: self.value()?,
                outcome: self.outcome()?,
            },
            "N" => Event::NotGranted {
                outcome: self.outcome()?,
            },
            "S" => Event::Section {
                token: self.value()?,
                read: self.value()?,
                wrote: self.value()?,
            },
            "F" => Event::FencedWrite {
                token: self.value()?,
                accepted: self.value::<u8>()? == 1,
            },
            "A" => Event::Added {
                delta: self.value()?,
                low: self.optional()?,
                high: self.optional()?,
                value: self.optional()?,
                outcome: self.outcome()?,
            },
            "T" => Event::Transfer {
                token: self.value()?,
                amount: self.value()?,
                committing: self.value()?,
                outcome: self.outcome()?,
            },
            "J" => Event::Attempt {
                token: self.value()?,
                booked: self.value::<u8>()? == 1,
                done: self.value::<u8>()? == 1,
                outcome: self.outcome()?,
            },
            "P" => Event::Permit {
                permits: self.value()?,
                count: self.value()?,
                slot: self.value()?,
                token: self.value()?,
                ttl: self.value()?,
            },
            "M" => Event::Together {
                token: self.value()?,
                ttl: self.value()?,
                outcome: self.outcome()?,
            },
            "L" => Event::Leads {
                token: self.value()?,
                value: self.value()?,
                once: self.value::<u8>()? == 1,
            },
            "V" => Event::Seen {
                token: self.value()?,
                value: self.value()?,
            },
            "W" => Event::WorkedOn {
                token: self.value()?,
                steps: self.value()?,
            },
            "X" => Event::Overran {
                limit: self.value()?,
            },
            "B" => Event::Shared {
                token: self.value()?,
                ttl: self.value()?,
                from: self.value()?,
            },
            "D" => Event::NotShared {
                outcome: self.outcome()?,
            },
            "O" => Event::Looked {
                token: self.value()?,
                found: self.value()?,
                again: self.value()?,
            },
            "Q" => Event::Vouched {
                token: self.value()?,
                found: self.value()?,
                again: self.value()?,
                committing: self.value()?,
                outcome: self.outcome()?,
            },
            _ => return None,
        })
    }

    fn value<T: FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }

    fn optional(&mut self) -> Option<Option<i64>> {
        match self.0.next()? {
            "-" => Some(None),
            number => number.parse().ok().map(Some),
        }
    }

    fn outcome(&mut self) -> Option<Outcome> {
        Some(match self.0.next()? {
            "done" => Outcome::Done,
            "refused" => Outcome::Refused,
            "lost" => Outcome::Lost,
            "failed" => Outcome::Failed,
            "unknown" => Outcome::Unknown,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
