//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::Result;

/// What was asked for.
pub struct Options {
    /// How long one heat takes.
    pub heat: Duration,
    /// How often the contestants take turns.
    pub heats: usize,
    /// Where the JSON lines go.
    pub json: Option<PathBuf>,
}

/// Reads the arguments; `None` when there is nothing to do: `cargo test` runs benchmarks without `--bench`, to see
/// that they start.
pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<Options>> {
    let mut options = Options {
        heat: Duration::from_secs(2),
        heats: 8,
        json: None,
    };
    let mut asked = false;
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        asked = true;
        match argument.as_str() {
            "--bench" => {}
            "--quick" => {
                options.heat = Duration::from_millis(500);
                options.heats = 4;
            }
            "--json" => options.json = Some(arguments.next().ok_or("--json needs a file")?.into()),
            "--help" => {
                println!("cargo bench --bench transactions -- [--quick] [--json FILE]");
                return Ok(None);
            }
            other => return Err(format!("{other}: use --quick, --json FILE").into()),
        }
    }
    Ok(asked.then_some(options))
}
