//! What can be asked of the program: its commands and their options.

use std::ffi::OsString;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

/// What `--help` says about exit codes, and docs/cli.md at length.
const EXIT_CODES: &str = "\
Exit codes:
  0  done; `doctor`: the server is fit
  1  it failed: the error is on standard error; `doctor`: something is wrong
  2  the arguments are wrong
  3  no: the value would leave its range, or is another one, or nothing was there to free or to show
`run` has codes of its own: see `tag-lock run --help`.";

const RUN_EXIT_CODES: &str = "\
Exit codes:
  that of COMMAND, or 128 + the number of the signal that ended COMMAND
  75   the lock was not had, COMMAND did not run (--conflict-exit-code)
  79   the lock was lost while COMMAND ran, and COMMAND was ended; or it had ended by itself, and the lock was not \
held any more, or the slot could not be recorded as done (--lost-exit-code)
  0    also: the slot of --once was done before, COMMAND did not run (--done-exit-code)
  125  `run` itself failed: the server cannot be reached, say; COMMAND did not run
  126  COMMAND cannot be executed
  127  COMMAND was not found
  128 + the number of a signal that came before COMMAND ran
  2    the arguments are wrong";

/// Locks and counters in MySQL or MariaDB, for operators, cron and scripts.
#[derive(Debug, Parser)]
#[command(name = "tag-lock", bin_name = "tag-lock", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// Reads the command line.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let arguments = Self::try_parse()?;
        if let Command::Run(run) = &arguments.command {
            run.check()?;
        }
        Ok(arguments)
    }
}

/// What each command takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// The server: mysql://user:password@host:port/database. Others on this machine can see what stands here: prefer the
    /// variable DATABASE_URL.
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true)]
    pub(crate) url: Option<String>,
    /// How long the server may take to carry out a request; one packet may take half of that. At least 200ms, and 10y at most; with less than 4s a table that
    /// somebody has locked looks like a server that does not answer.
    #[arg(long, global = true, value_name = "TIME", env = "TAG_LOCK_REQUEST_TIMEOUT", default_value = "10s", value_parser = request_time)]
    pub(crate) request_timeout: Duration,
    /// Prints JSON, also for errors.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a command under a lock.
    ///
    /// Runs COMMAND in a process group of its own while the lock is held, and frees it when COMMAND has ended. If the lock is lost
    /// meanwhile, the whole group is sent SIGTERM, and SIGKILL after the grace. With --shared it is held beside others; with --permits it is
    /// one of so many; with --once COMMAND runs to success once for each slot (again, if this machine dies before that is on record).
    Run(Run),
    /// Shows the locks that are taken, the permits of a semaphore that are, or the slots of a job.
    List {
        /// Only those whose names begin so; with --permits or --slots, the name of the semaphore or of the job.
        prefix: Option<String>,
        /// Shows the permits of the semaphore PREFIX that are taken.
        #[arg(long, requires = "prefix", conflicts_with = "slots")]
        permits: bool,
        /// Shows the slots of the job PREFIX that are done, and those that somebody is at.
        #[arg(long, requires = "prefix")]
        slots: bool,
    },
    /// Shows one lock, or one slot of a job.
    Inspect {
        /// The lock's name; with --once, the job's.
        #[arg(value_parser = name)]
        name: String,
        /// Shows this slot of the job NAME.
        #[arg(long = "once", value_name = "SLOT")]
        slot: Option<String>,
    },
    /// Prints each change of a lock: who has it, and when it is free. Renewals of a lease are no change.
    Watch {
        /// Its name.
        #[arg(value_parser = name)]
        name: String,
        /// How often to look.
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
        every: Duration,
    },
    /// Frees a lock, a slot of a job, or a permit of a semaphore, whoever holds it.
    Release {
        /// The lock's name; with --once, the job's, and with --permit, the semaphore's.
        #[arg(value_parser = name)]
        name: String,
        /// Frees this slot of the job NAME, also if it is done: whoever comes to it next runs it again.
        #[arg(long = "once", value_name = "SLOT", conflicts_with = "permit")]
        slot: Option<String>,
        /// Frees this permit of the semaphore NAME: `list --permits` shows their numbers, behind `#`.
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(0..=1023))]
        permit: Option<u32>,
        /// Yes, although its holder goes on until it notices.
        #[arg(long, required = true)]
        force: bool,
    },
    /// Reads and changes counters.
    #[command(subcommand)]
    Counter(Counter),
    /// Creates the tables, or brings them up to date.
    Migrate,
    /// Deletes the rows of free locks and permits, of shared holds that have ended, of forgotten operation ids, of counters that were deleted or whose window has ended, and of slots of
    /// jobs, also of those that are done: `run --once` runs COMMAND again for such a slot.
    Purge {
        /// Only those that nothing changed for so long; at least an hour.
        #[arg(long, value_name = "TIME", value_parser = time)]
        older_than: Duration,
    },
    /// Says whether the server is fit: what is wrong, why that matters, and what to do.
    Doctor {
        /// Rows that nothing changed for so long, at least an hour, are counted as what `purge` would take.
        #[arg(long, value_name = "TIME", default_value = "30d", value_parser = time)]
        older_than: Duration,
    },
    /// Shows the locks that are taken, and which of them others want, live; q ends it.
    Top {
        /// Only those whose names begin so.
        prefix: Option<String>,
        /// How often to look.
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
        every: Duration,
    },
    /// Prints a shell's completions of this command line.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Prints the manual page, or writes one for each command.
    Man {
        /// Writes tag-lock.1, tag-lock-run.1 and so on into this directory.
        #[arg(long, value_name = "DIRECTORY")]
        into: Option<std::path::PathBuf>,
    },
}

/// What COMMAND runs under, and what becomes of both.
#[derive(Args, Debug)]
#[command(after_help = RUN_EXIT_CODES)]
pub(crate) struct Run {
    /// The lock's name. COMMAND finds it in TAG_LOCK_NAME, and the fencing token in TAG_LOCK_FENCING_TOKEN. Of several names, of which
    /// all are taken or none, it finds the first ones in TAG_LOCK_NAME_1 and TAG_LOCK_FENCING_TOKEN_1, and so on.
    #[arg(required = true, value_name = "NAME", value_parser = name)]
    pub(crate) names: Vec<String>,
    /// Holds the lock beside others who do so, too; one who holds it without this option has it alone.
    #[arg(long, conflicts_with_all = ["permits", "slot"])]
    pub(crate) shared: bool,
    /// Takes one of so many permits, 1 to 1024, of the semaphore NAME: at most so many run at once. COMMAND finds the number of its
    /// permit, from 0 on, in TAG_LOCK_SLOT.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), conflicts_with_all = ["slot", "hold_at_least"])]
    pub(crate) permits: Option<u32>,
    /// Runs COMMAND for this slot of the job NAME, a date say, unless it is done: when COMMAND has ended with exit code 0 the slot is done,
    /// and nobody runs it again. COMMAND finds it in TAG_LOCK_SLOT.
    #[arg(long = "once", value_name = "SLOT", conflicts_with = "hold_at_least")]
    pub(crate) slot: Option<String>,
    /// How long to wait for the lock; for ever if this is not given.
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Does not wait: COMMAND runs now or not at all.
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// How long the lock stays taken when this program is killed: it is renewed at a third of that. With --hold-at-least it stays taken
    /// until that has passed, if that is later.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) ttl: Duration,
    /// The lock stays taken for at least so long, also when COMMAND ends sooner, fails, or is killed with this program: for jobs that
    /// several machines start at about the same time, and one is to run. `release --force` frees it.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) hold_at_least: Option<Duration>,
    /// How long COMMAND and its children have from SIGTERM to SIGKILL when the lock is lost.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) grace: Duration,
    /// What others read about this hold; COMMAND's name if this is not given.
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// The exit code if the lock was not had.
    #[arg(long, value_name = "CODE", default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
    /// The exit code if the lock was lost.
    #[arg(long, value_name = "CODE", default_value_t = 79)]
    pub(crate) lost_exit_code: u8,
    /// The exit code if the slot of --once was done before.
    #[arg(long, value_name = "CODE", default_value_t = 0, requires = "slot")]
    pub(crate) done_exit_code: u8,
    /// What to run, with its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

impl Run {
    /// Several names are locks that are held alone, and no longer than COMMAND runs.
    fn check(&self) -> Result<(), clap::Error> {
        let options = [
            ("--shared", self.shared),
            ("--permits", self.permits.is_some()),
            ("--once", self.slot.is_some()),
            ("--hold-at-least", self.hold_at_least.is_some()),
        ];
        let Some((option, _)) = options.iter().find(|(_, is_given)| *is_given) else {
            return Ok(());
        };
        if self.names.len() < 2 {
            return Ok(());
        }
        let text = format!(
            "{option} is for one name, and {} are given",
            self.names.len()
        );
        Err(Arguments::command().error(ErrorKind::ArgumentConflict, text))
    }
}

/// A counter, and how it counts.
#[derive(Args, Debug)]
pub(crate) struct Counted {
    /// The counter's name.
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// The value starts again at 0 when so much time has passed since its first change.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) window: Option<Duration>,
}

/// An operation's id.
#[derive(Args, Debug)]
pub(crate) struct Once {
    /// Done once for this id: a repeat changes nothing, and prints what the first one printed.
    #[arg(long = "once", value_name = "ID")]
    pub(crate) id: Option<String>,
    /// How long the id is remembered; a day if this is not given.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "id")]
    pub(crate) retention: Option<Duration>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Counter {
    #[command(flatten)]
    One(OneCounter),
    /// Lists the counters that were set.
    List {
        /// Only those whose names begin so.
        #[arg(default_value = "")]
        prefix: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum OneCounter {
    /// Prints the value.
    Get {
        /// The counter's name.
        #[arg(value_parser = name)]
        name: String,
    },
    /// Adds, and prints the new value.
    Add {
        #[command(flatten)]
        counter: Counted,
        /// What to add.
        #[arg(default_value_t = 1, allow_negative_numbers = true)]
        delta: i64,
        #[command(flatten)]
        once: Once,
    },
    /// Adds if the new value lies in a range, and prints it; otherwise exits with 3.
    AddWithin {
        #[command(flatten)]
        counter: Counted,
        /// What to add.
        #[arg(allow_negative_numbers = true)]
        delta: i64,
        /// The lowest value allowed.
        #[arg(long, allow_negative_numbers = true, required_unless_present = "max")]
        min: Option<i64>,
        /// The highest value allowed.
        #[arg(long, allow_negative_numbers = true)]
        max: Option<i64>,
        #[command(flatten)]
        once: Once,
    },
    /// Sets the value, and prints the one before.
    Set {
        #[command(flatten)]
        counter: Counted,
        /// The new value.
        #[arg(allow_negative_numbers = true)]
        value: i64,
    },
    /// Sets the value if it is the expected one, and prints that; otherwise exits with 3.
    CompareExchange {
        #[command(flatten)]
        counter: Counted,
        /// What the value has to be.
        #[arg(allow_negative_numbers = true)]
        expected: i64,
        /// The new value.
        #[arg(allow_negative_numbers = true)]
        new: i64,
    },
    /// Sets the value to 0, begins a new window, and prints the value before.
    Reset {
        #[command(flatten)]
        counter: Counted,
    },
    /// Sets the value if the counter was never set, or was deleted, and prints it; otherwise exits with 3.
    Init {
        #[command(flatten)]
        counter: Counted,
        /// The first value.
        #[arg(allow_negative_numbers = true)]
        value: i64,
    },
    /// Deletes a counter, and prints the value that it had; exits with 3 if it was never set.
    Delete {
        /// The counter's name.
        #[arg(value_parser = name)]
        name: String,
    },
}

/// The longest time limit that the library takes.
const LONGEST: Duration = Duration::from_secs(3_650 * 86_400);

/// The name of what is locked or counted. An address in its place would be stored, and shown.
fn name(text: &str) -> Result<String, String> {
    let begin = text.to_ascii_lowercase();
    if begin.starts_with("mysql://") || begin.starts_with("mariadb://") {
        return Err(
            "it is the address of a server: give that in DATABASE_URL, or with --url".to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// A duration as people write it.
fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write 500ms, 10s, 5m, \"1h 30m\" or 30d"))
}

/// How long a request may take: half of it is a packet's, which the library wants to be 100 ms at least.
fn request_time(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time < Duration::from_millis(200) {
        return Err("it is too short for an answer: use at least 200ms".to_owned());
    }
    if time > LONGEST {
        return Err("it is too long: use at most 10y".to_owned());
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_in_order() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn times_are_as_people_write_them() {
        assert_eq!(time("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(time("1h 30m"), Ok(Duration::from_secs(5_400)));
        assert!(time("10").is_err_and(|error| error.contains("write")));
    }

    #[test]
    fn a_request_has_time_for_its_packets() {
        assert_eq!(request_time("200ms"), Ok(Duration::from_millis(200)));
        assert!(request_time("199ms").is_err_and(|error| error.contains("at least 200ms")));
        assert!(request_time("3650d").is_ok());
        assert!(request_time("3651d").is_err_and(|error| error.contains("at most 10y")));
        assert!(request_time("ten").is_err_and(|error| error.contains("write")));
    }

    #[test]
    fn an_address_is_no_name() {
        assert_eq!(name("job:mysql://"), Ok("job:mysql://".to_owned()));
        assert!(name("mysql://u:p@h/d").is_err_and(|error| error.contains("DATABASE_URL")));
    }

    #[test]
    fn negative_numbers_are_numbers() {
        let parsed = Arguments::try_parse_from([
            "tag-lock",
            "counter",
            "add-within",
            "n",
            "-5",
            "--min",
            "-10",
        ]);
        assert!(matches!(
            parsed.map(|arguments| arguments.command),
            Ok(Command::Counter(Counter::One(OneCounter::AddWithin {
                delta: -5,
                min: Some(-10),
                max: None,
                ..
            })))
        ));
    }
}
