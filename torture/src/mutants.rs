//! Shows that the oracle can see: the library is broken on purpose, in one way after another, and each has to be found.

use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::mutant_build::VARIABLE;
use crate::report::Report;

/// How long one round of load lasts, in seconds: what is broken is mostly found in the first.
const ROUND: u64 = 12;
/// The same where somebody has to wait for long.
const LONG_ROUND: u64 = 60;

/// How much longer than its load a run may take: workers end, the history is judged.
const JUDGING: Duration = Duration::from_secs(100);

/// Servers that undo a statement which is killed, and may say that it is done: how their `VERSION()` begins. MariaDB 10.11.14,
/// 11.8.6 and 11.8.9 are known to; 10.11.18, 10.11.19 and MySQL 9.7.4 were never seen to.
const UNDOING: [&str; 2] = ["10.11.14-MariaDB", "11.8."];

/// How a mutant is looked for, if an ordinary run would take long to meet it.
struct Hunt {
    workload: &'static str,
    faults: &'static str,
    /// How long a released lease idles, in milliseconds, if not as the workload says.
    linger: Option<u64>,
    /// How long one round of load lasts, in seconds.
    round: u64,
    /// It lacks what only an [`UNDOING`] server makes necessary.
    needs_undoing: bool,
}

/// What came of it.
struct Caught {
    after: Duration,
    finding: String,
}

/// An ordinary run.
const ORDINARY: Hunt = Hunt {
    workload: "mixed",
    faults: "default",
    linger: None,
    round: ROUND,
    needs_undoing: false,
};

impl Hunt {
    fn is_possible_on(&self, version: &str) -> bool {
        !self.needs_undoing || UNDOING.iter().any(|known| version.starts_with(known))
    }
}

fn hunt_for(mutant: &str) -> Hunt {
    let needs_undoing = matches!(mutant, "packet-unchecked" | "settlement-unchecked");
    let (workload, faults): (_, &'static str) = match mutant {
        "release-of-others" | "trust-from-reply" | "local-deadline-ignored" => {
            ("mutex", "worker-stop,partition,delay,cut")
        }
        // Nothing else, so that more packets come after they were settled.
        "batch-number-ignored" | "settlement-uncommitted" => ("tickets", "late-packet"),
        "settlement-unlocked" | "blind-retry" | "fenced-is-done" => (
            "tickets",
            "late-packet,lost-commit-reply,forwarded-and-cut,lost-packet,cut,kill,slow-packet",
        ),
        "purge-forgets-floor" => ("fenced", "purge"),
        "verify-unchecked" => ("bank", "server-clock,worker-stop"),
        "turn-after-verify" => ("bank", "none"),
        "bell-unheard" => ("linger", "none"),
        "linger-after-verify" => ("bank", "none"),
        "idle-after-trust" => ("linger", "worker-stop"),
        "row-wait" => ("bank", "none"),
        "finish-frees" | "done-ends" => ("jobs", "none"),
        "slot-beyond" | "permit-shared" | "permits-in-part" => ("permits", "none"),
        "live-share-unseen"
        | "locked-share-unseen"
        | "door-opens-held"
        | "downgrade-frees"
        | "wish-unheard" => ("shared", "none"),
        "group-unchecked" => ("together", "none"),
        "group-verified-in-part" => ("together", "server-clock,worker-stop"),
        "newcomers-overtake" | "kept-for-nobody" | "distance-unheeded" | "owners-reversed"
        | "dead-level-lasts" => ("crowd", "none"),
        "answer-awaited" => ("mutex", "partition"),
        "short-wait-unasked" => ("solo", "none"),
        "leadership-passes-on" => ("election", "none"),
        "leader-works-on" => ("election", "worker-stop,partition,delay,cut"),
        "unequal-deltas-merged" | "range-unchecked" => ("stock", "none"),
        // Without faults nobody has to be patient.
        "renewal-after-release"
        | "abandoned-grant-kept"
        | "level-forgotten"
        | "nobody-gives-way" => ("mutex", "none"),
        // They also lose packets, so that batches are settled that never ran.
        "packet-unchecked" => ("solo", "kill-query"),
        "settlement-unchecked" => ("tickets", "kill-settlement"),
        _ => return ORDINARY,
    };
    let round = match mutant {
        // The last needs a lease that is lost in the middle of a transaction.
        "newcomers-overtake"
        | "distance-unheeded"
        | "owners-reversed"
        | "dead-level-lasts"
        | "nobody-gives-way"
        | "answer-awaited"
        | "wish-unheard"
        | "group-verified-in-part" => LONG_ROUND,
        _ => ROUND,
    };
    Hunt {
        workload,
        faults,
        // The first is longer than anybody has to wait.
        linger: match mutant {
            "bell-unheard" => Some(60_000),
            "linger-after-verify" => Some(1_500),
            _ => None,
        },
        round,
        needs_undoing,
    }
}

/// Runs each mutant until it is caught or `limit` has passed, and prints a table. Whether all were caught that can be on a
/// server of this `version`.
///
/// # Errors
///
/// If a run cannot be started, or a name is no mutant's.
pub fn run(
    all: &[(&str, &str)],
    only: &[String],
    limit: Duration,
    seed: u64,
    version: &str,
) -> io::Result<bool> {
    if let Some(unknown) = only
        .iter()
        .find(|name| all.iter().all(|(known, _)| known != name))
    {
        let known: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        return Err(io::Error::other(format!(
            "there is no mutant {unknown:?}; use some of {}",
            known.join(", ")
        )));
    }
    let chosen = all
        .iter()
        .filter(|(name, _)| only.is_empty() || only.iter().any(|wanted| wanted == name));
    println!("{:<26}{:<8}{:>6}  finding", "mutant", "caught", "after");
    let (mut caught, mut survived, mut impossible) = (0, 0, 0);
    for (name, _) in chosen {
        let how = hunt_for(name);
        if !how.is_possible_on(version) {
            impossible += 1;
            println!(
                "{name:<26}{:<8}{:>6}  cannot be caught on this server, {version}",
                "-", ""
            );
            continue;
        }
        let (word, after, finding) = match hunt(name, &how, limit, seed)? {
            Some(found) => {
                caught += 1;
                ("yes", format!("{} s", found.after.as_secs()), found.finding)
            }
            None => {
                survived += 1;
                ("NO", String::new(), String::new())
            }
        };
        println!("{name:<26}{word:<8}{after:>6}  {finding}");
    }
    println!("caught: {caught}, survived: {survived}, not to be caught here: {impossible}");
    Ok(survived == 0)
}

fn hunt(mutant: &str, how: &Hunt, limit: Duration, seed: u64) -> io::Result<Option<Caught>> {
    let began = Instant::now();
    let mut round = 0;
    while began.elapsed() < limit {
        let directory = std::env::temp_dir().join(format!(
            "tag-lock-mutant-{}-{mutant}-{round}",
            std::process::id()
        ));
        let left = limit.saturating_sub(began.elapsed()).as_secs().max(1);
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--seconds", &how.round.min(left).to_string()])
            .args(["--seed", &(seed + round).to_string()])
            .args(["--workload", how.workload, "--faults", how.faults])
            .args(how.linger.map(|linger| format!("--linger={linger}")))
            .arg("--directory")
            .arg(&directory)
            .env(VARIABLE, mutant)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let status = wait(&mut child, limit.saturating_sub(began.elapsed()) + JUDGING)?;
        let found = finding(&directory);
        // A mutant may break the run itself: that is a finding too, but one that says so.
        let found = match status.and_then(|status| status.code()) {
            Some(0) => None,
            Some(1) => Some(found.unwrap_or_else(|| "no report".to_owned())),
            Some(code) => Some(format!("the run failed with status {code}")),
            None => Some("the run does not end".to_owned()),
        };
        let _ = std::fs::remove_dir_all(&directory);
        if let Some(finding) = found {
            let after = began.elapsed();
            return Ok(Some(Caught { after, finding }));
        }
        round += 1;
    }
    Ok(None)
}

/// Waits for a process; ends it when it takes too long.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    while began.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// The kind of the first finding, and the sentence.
fn finding(directory: &Path) -> Option<String> {
    let report = Report::read(directory).ok()?;
    let mut text = report.findings.into_iter().next()?;
    if let Some((end, _)) = text.char_indices().nth(110) {
        text.truncate(end);
        text.push('…');
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_some_servers_show_is_hunted_there() {
        for (version, undoes) in [
            ("11.8.6-MariaDB-0+deb13u1", true),
            ("11.8.9-MariaDB-0+deb13u1", true),
            ("10.11.14-MariaDB-0+deb12u2-log", true),
            ("10.11.19-MariaDB-log", false),
            ("9.7.4", false),
        ] {
            assert_eq!(hunt_for("packet-unchecked").is_possible_on(version), undoes);
            assert!(hunt_for("blind-retry").is_possible_on(version));
            assert!(hunt_for("stripe-formula").is_possible_on(version));
        }
    }

    #[test]
    fn hunts_have_faults_and_workloads_that_exist() {
        use clap::ValueEnum;
        for mutant in [
            "settlement-unchecked",
            "blind-retry",
            "row-wait",
            "bell-unheard",
            "stripe-formula",
            "slot-beyond",
            "group-unchecked",
            "group-verified-in-part",
            "leader-works-on",
            "wish-unheard",
            "newcomers-overtake",
        ] {
            let how = hunt_for(mutant);
            assert!(crate::nemesis::choose(how.faults).is_ok(), "{mutant}");
            assert!(
                crate::setup::Workload::from_str(how.workload, false).is_ok(),
                "{mutant}"
            );
        }
    }
}
