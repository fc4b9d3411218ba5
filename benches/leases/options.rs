//! What the command line asks for.

use std::path::PathBuf;
use std::time::Duration;

use crate::Result;

const PARTS: [&str; 11] = [
    "hot",
    "handover",
    "takeover",
    "waiting",
    "idle",
    "transfers",
    "storm",
    "readers",
    "permits",
    "leaders",
    "many",
];

/// What part of a quick run's numbers a brief one has.
const BRIEF: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Smaller numbers, so that all ends within three minutes.
    quick: bool,
    /// Smaller ones still, which show that it runs, and measure nothing.
    brief: bool,
    /// Where to write the figures, one JSON object a line.
    pub(crate) json: Option<PathBuf>,
    /// The only part to run.
    only: Option<String>,
}

impl Options {
    pub(crate) fn of_arguments(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                // Cargo says so.
                "--bench" => {}
                "--quick" => options.quick = true,
                "--brief" => (options.quick, options.brief) = (true, true),
                "--json" => {
                    let file = arguments.next().ok_or("--json needs a file")?;
                    options.json = Some(file.into());
                }
                "--only" => {
                    let part = arguments
                        .next()
                        .filter(|part| PARTS.contains(&part.as_str()));
                    let part = part.ok_or_else(|| format!("--only needs one of {PARTS:?}"))?;
                    options.only = Some(part);
                }
                other => {
                    return Err(format!(
                        "unknown argument {other}; there are --quick, --brief, --json FILE and --only PART"
                    )
                    .into());
                }
            }
        }
        Ok(options)
    }

    pub(crate) fn runs(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == part)
    }

    /// One of two numbers, or a fraction of the smaller.
    pub(crate) fn pick(&self, full: usize, quick: usize) -> usize {
        match (self.quick, self.brief) {
            (_, true) => quick.div_ceil(BRIEF),
            (true, _) => quick,
            _ => full,
        }
    }

    /// One of two times, or a fraction of the shorter.
    pub(crate) fn seconds(&self, full: u64, quick: u64) -> Duration {
        match (self.quick, self.brief) {
            (_, true) => Duration::from_secs(quick) / u32::try_from(BRIEF).unwrap_or(u32::MAX),
            (true, _) => Duration::from_secs(quick),
            _ => Duration::from_secs(full),
        }
    }
}
