//! What is made from the definition of the command line: completions and manual pages.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Arguments;
use crate::exit::{Code, DONE, Failure, raw_to_stdout};

pub(crate) fn completions(shell: Shell) -> Result<Code, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "tag-lock", &mut script);
    if shell == Shell::Bash {
        script = with_one_name(&script);
    }
    raw_to_stdout(&script)?;
    Ok(DONE)
}

/// The generator gives the program two names in bash's script where it has a hyphen, and so completes nothing behind a command:
/// <https://github.com/clap-rs/clap/issues/6421>.
fn with_one_name(script: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(script)
        .replace("tag__subcmd__lock", "tag__lock")
        .into_bytes()
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
