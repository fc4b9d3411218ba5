//! `tag-lock doctor`: whether a server is fit.
//!
//! [`read`] asks the server, and decides nothing. [`facts`] are what it said. [`checks`] make findings of facts, and ask nobody:
//! each has its tests beside it.

mod checks;
mod facts;
mod read;
mod version;

use std::time::Duration;

use serde::Serialize;

use crate::args::Common;
use crate::exit::{Code, DONE, FAILED, Failure};
use crate::output;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// It works, and somebody should know.
    Note,
    /// Something does not work, or what the library promises does not hold.
    Problem,
}

/// One thing that was looked at. The names of the fields stay as they are for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What was looked at: a name that stays.
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    /// How it is.
    pub(crate) what: String,
    /// Why that matters; empty if all is well.
    pub(crate) why: String,
    /// What to do; empty if nothing is to be done.
    #[serde(rename = "do")]
    pub(crate) advice: String,
}

impl Finding {
    fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Ok,
            what: what.into(),
            why: String::new(),
            advice: String::new(),
        }
    }

    fn note(
        check: &'static str,
        what: impl Into<String>,
        why: &str,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            check,
            level: Level::Note,
            what: what.into(),
            why: why.to_owned(),
            advice: advice.into(),
        }
    }

    /// Of something that the server did not tell.
    fn unknown(check: &'static str, what: &str) -> Self {
        Self::note(
            check,
            format!("not known: {what}"),
            "the server, or what stands before it, did not tell",
            "connect to the server itself, with an account that may see its variables and these tables",
        )
    }

    fn problem(
        check: &'static str,
        what: impl Into<String>,
        why: &str,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Problem,
            ..Self::note(check, what, why, advice)
        }
    }
}

#[derive(Serialize)]
struct Report<'r> {
    server: &'r str,
    fit: bool,
    findings: &'r [Finding],
}

pub(crate) async fn doctor(common: &Common, older_than: Duration) -> Result<Code, Failure> {
    let facts = read::read(common, older_than).await?;
    let findings = checks::findings(&facts);
    let fit = findings
        .iter()
        .all(|finding| finding.level != Level::Problem);
    if common.json {
        output::json(&Report {
            server: &facts.version,
            fit,
            findings: &findings,
        })?;
    } else {
        print(&facts.version, &findings)?;
    }
    Ok(if fit { DONE } else { FAILED })
}

fn print(server: &str, findings: &[Finding]) -> Result<(), Failure> {
    output::line(&format!("server {}", output::plain(server)))?;
    for level in [Level::Problem, Level::Note, Level::Ok] {
        let word = match level {
            Level::Problem => "PROBLEM",
            Level::Note => "note",
            Level::Ok => "ok",
        };
        for finding in findings.iter().filter(|finding| finding.level == level) {
            output::line(&format!(
                "{word:<8} {:<16} {}",
                finding.check,
                output::plain(&finding.what)
            ))?;
            for (label, text) in [("why", &finding.why), ("do", &finding.advice)] {
                if !text.is_empty() {
                    output::line(&format!("{:<25} {label:<4} {}", "", output::plain(text)))?;
                }
            }
        }
    }
    let problems = findings
        .iter()
        .filter(|finding| finding.level == Level::Problem)
        .count();
    output::line(&match problems {
        0 => "the server is fit".to_owned(),
        1 => "the server is not fit: 1 problem".to_owned(),
        _ => format!("the server is not fit: {problems} problems"),
    })
}
