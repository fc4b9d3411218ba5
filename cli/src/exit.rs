//! How the program ends: its exit codes, and how errors are told.

use std::fmt;
use std::io::Write;

use serde_json::json;

use crate::output::plain;
use crate::redact::redacted;

/// An exit code.
pub(crate) type Code = u8;

pub(crate) const DONE: Code = 0;
pub(crate) const FAILED: Code = 1;
pub(crate) const USAGE: Code = 2;
/// It was not done, and that is an answer: nothing failed.
pub(crate) const NO: Code = 3;
/// `run` itself failed. As of `env`, `timeout` and `nohup`, and so are the next two.
pub(crate) const RUN_FAILED: Code = 125;
pub(crate) const CANNOT_EXECUTE: Code = 126;
pub(crate) const NOT_FOUND: Code = 127;

/// Why a command failed: a sentence that says what to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library's.
    Library(tag_lock::Error),
    /// Another one.
    Other(String),
    /// Whoever read what is printed does not read on.
    NobodyReads,
}

impl Failure {
    /// Whether the same may succeed when it is tried again.
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(self, Self::Library(error) if error.is_retryable())
    }

    /// The exit code: `otherwise`, unless it was the library that found the arguments wrong.
    pub(crate) fn exit_code(&self, otherwise: Code) -> Code {
        match self {
            // The server's address stands in a file or in the environment.
            Self::Library(tag_lock::Error::InvalidOption { option: "url", .. }) => otherwise,
            Self::Library(
                tag_lock::Error::InvalidName { .. } | tag_lock::Error::InvalidOption { .. },
            ) => USAGE,
            _ => otherwise,
        }
    }

    /// Tells it on standard error.
    pub(crate) fn tell(&self, as_json: bool) {
        if !matches!(self, Self::NobodyReads) {
            tell(&self.to_string(), as_json);
        }
    }
}

/// Tells on standard error why something was not done, or went wrong, without what would steer a terminal: what others wrote into the table
/// may be part of it. If nobody reads that, nothing else is to fail.
pub(crate) fn tell(text: &str, as_json: bool) {
    let text = redacted(text);
    if as_json {
        raw_to_stderr(&format!("{}\n", json!({ "error": { "message": text } })));
    } else {
        raw_to_stderr(&format!("tag-lock: {}\n", plain(&text)));
    }
}

/// Prints what was generated as it is.
pub(crate) fn raw_to_stdout(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

pub(crate) fn raw_to_stderr(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Library(tag_lock::Error::NotMigrated { .. }) => {
                "the table t_tag_lock is missing or outdated: run `tag-lock migrate` once"
                    .to_owned()
            }
            Self::Library(error) => match std::error::Error::source(error) {
                Some(source) => format!("{error} ({source})"),
                None => error.to_string(),
            },
            Self::Other(text) => text.clone(),
            Self::NobodyReads => "nobody reads the output".to_owned(),
        };
        // Neither the driver nor the server says passwords; an address that was mistyped may have one in any place.
        f.write_str(&redacted(&text))
    }
}

impl From<tag_lock::Error> for Failure {
    fn from(error: tag_lock::Error) -> Self {
        Self::Library(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Self::NobodyReads
        } else {
            Self::Other(error.to_string())
        }
    }
}
