//! What is made from the definition of the command line: completions and manual pages.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Arguments;
use crate::exit::{Code, DONE, Failure};

pub(crate) fn completions(shell: Shell) -> Result<Code, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "tag-lock", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(DONE)
}

/// The manual page of the program; or that of each command, into a directory.
pub(crate) fn man(into: Option<&Path>) -> Result<Code, Failure> {
    match into {
        None => {
            clap_mangen::Man::new(Arguments::command()).render(&mut std::io::stdout().lock())?
        }
        Some(directory) => clap_mangen::generate_to(Arguments::command(), directory)
            .map_err(|error| Failure::Other(format!("{}: {error}", directory.display())))?,
    }
    Ok(DONE)
}
