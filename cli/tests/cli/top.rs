//! `top` as a person sees it, in a terminal of tmux.

use rustix::process::{Pid, Signal, kill_process};
use tag_lock::{LockClient, Urgency};

use crate::rig::PATIENCE;
use crate::server::TestDatabase;
use crate::tmux::Tmux;

/// The names of the locks on a screen of `top`, in their order: they all begin with `job:`.
fn names(lines: &[String]) -> Vec<&str> {
    let first = lines.iter().filter_map(|line| line.split(' ').next());
    first.filter(|word| word.starts_with("job:")).collect()
}

/// Waits until these locks are on the screen, in this order.
fn until_names(tmux: &Tmux, expected: &[&str]) -> Vec<String> {
    tmux.until(&format!("{expected:?}"), |lines| names(lines) == expected)
}

/// The last line that is not empty.
fn foot(lines: &[String]) -> &str {
    lines.iter().rfind(|line| !line.is_empty()).unwrap()
}

async fn until_wanted(client: &LockClient, name: &str) {
    let wanted = async {
        loop {
            let info = client.inspect(name).await.unwrap().unwrap();
            if info.wish.is_some_and(|wish| wish.urgency == Urgency::Waits) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wanted)
        .await
        .expect("a wish");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_live_screen_shows_what_is_taken_and_what_is_wanted() {
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    let first = client.lock("job:first").acquire().await.unwrap();
    let wanted = client.lock("job:wanted").acquire().await.unwrap();
    let elsewhere = client.lock("other").acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock("job:wanted").acquire());
    until_wanted(&client, "job:wanted").await;

    let tmux = Tmux::open(&database, 130, 12);
    tmux.enter("\"$T\" top job: --every 100ms; echo it ended with $?");
    let lines = tmux.until_shown("2 taken, 1 wanted, the longest for");
    assert_eq!(names(&lines), ["job:first", "job:wanted"]);
    assert_eq!(tmux.modes(), (true, false));
    let text = lines.join("\n");
    assert!(!text.contains("other"), "it has another prefix: {text}");
    assert!(!text.contains(&database.url), "{text}");
    // The column says it of that lock alone.
    let column = lines[1].find("WANTED FOR").expect("a column");
    let cell = |line: &str| line.chars().skip(column).take(10).collect::<String>();
    assert_eq!(cell(&lines[2]).trim(), "", "{text}");
    // Behind a mark, if the server was slow to answer who waits.
    let age = cell(&lines[3]);
    assert!(age.trim_end_matches([' ', '!']).ends_with('s'), "{text}");

    // What comes meanwhile is shown, by when it came.
    let second = client.lock("job:a-second").acquire().await.unwrap();
    let lines = until_names(&tmux, &["job:first", "job:wanted", "job:a-second"]);
    assert_eq!(
        foot(&lines),
        "q leaves   s sorts: held longest   w wanted only   / filter"
    );
    // Sorted.
    tmux.press(&["s"]);
    tmux.until_shown("s sorts: wanted longest");
    until_names(&tmux, &["job:wanted", "job:first", "job:a-second"]);
    tmux.press(&["s"]);
    tmux.until_shown("s sorts: name");
    until_names(&tmux, &["job:a-second", "job:first", "job:wanted"]);
    // Those alone that are wanted.
    tmux.press(&["w"]);
    tmux.until_shown("w all");
    until_names(&tmux, &["job:wanted"]);
    tmux.press(&["w"]);
    until_names(&tmux, &["job:a-second", "job:first", "job:wanted"]);
    // By their names: while that is typed, q is a letter.
    tmux.press(&["/", "q"]);
    tmux.until_shown("names with: q_");
    until_names(&tmux, &[]);
    tmux.press(&["BSpace", "f", "i", "r", "Enter"]);
    let lines = tmux.until_shown("/ filter: fir");
    assert_eq!(names(&lines), ["job:first"]);
    tmux.press(&["/", "Escape"]);
    until_names(&tmux, &["job:a-second", "job:first", "job:wanted"]);

    // Another size: what does not fit is scrolled to.
    tmux.resize(80, 6);
    let lines = tmux.until("two lines above the table", |lines| {
        lines
            .get(1)
            .is_some_and(|line| line.contains("grants seen a second"))
    });
    assert!(lines[2].starts_with("NAME"), "{lines:?}");
    assert!(
        foot(&lines).starts_with("q leaves   ↑↓ 0 above, 1 below"),
        "{lines:?}"
    );
    tmux.press(&["Down"]);
    tmux.until_shown("↑↓ 1 above, 0 below");
    until_names(&tmux, &["job:first", "job:wanted"]);
    tmux.press(&["PageUp"]);
    until_names(&tmux, &["job:a-second", "job:first"]);
    tmux.resize(130, 12);
    tmux.until("all of it in one line", |lines| {
        lines[0].contains("3 taken, 1 wanted") && lines[0].contains("grants seen a second")
    });

    // The lock goes to who waits: then nobody does, and the grant is one that was waited for.
    wanted.release().await.unwrap();
    let granted = waiting.await.unwrap().unwrap();
    let lines = tmux.until("nobody waits", |lines| {
        lines[0].contains("3 taken, 0 wanted ")
    });
    assert!(!lines[0].contains(" 0.0 waited for"), "{lines:?}");
    tmux.press(&["q"]);
    tmux.until("the shell", |_| tmux.modes() == (false, true));
    drop((first, second, elsewhere, granted));
    database.remove().await;
}

/// However it ends, the terminal is as it was: what stood there, the cursor, and how keys are read.
#[tokio::test(flavor = "multi_thread")]
async fn the_terminal_is_as_it_was_when_the_live_screen_ends() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let held = client.lock("job").acquire().await.unwrap();
    let tmux = Tmux::open(&database, 100, 24);
    let settings = |file: &str| {
        tmux.enter(&format!("stty -g >{file}"));
        tmux.scratch.line(file)
    };
    let before = settings("before");
    let signals = [Signal::TERM, Signal::INT, Signal::HUP];
    for end in ["q", "C-c"].map(Err).into_iter().chain(signals.map(Ok)) {
        tmux.enter("clear; echo what stood there");
        tmux.until("a clear screen", |lines| {
            lines[..2] == ["what stood there", "$"]
        });
        tmux.enter("sh -c 'echo $$ >pid; exec \"$T\" top --every 100ms'; echo \"code $?\"");
        tmux.until_shown("1 taken");
        assert_eq!(tmux.modes(), (true, false), "{end:?}");
        match end {
            Err(key) => tmux.press(&[key]),
            Ok(signal) => {
                kill_process(Pid::from_raw(tmux.scratch.pid("pid")).unwrap(), signal).unwrap();
            }
        }
        let lines = tmux.until("the shell", |lines| {
            lines.iter().any(|line| line.starts_with("code "))
        });
        assert!(lines.contains(&"code 0".to_owned()), "{end:?}: {lines:?}");
        assert_eq!(lines[0], "what stood there", "{end:?}: {lines:?}");
        assert_eq!(tmux.modes(), (false, true), "{end:?}");
        std::fs::remove_file(tmux.scratch.path().join("pid")).unwrap();
        let _ = std::fs::remove_file(tmux.scratch.path().join("after"));
        assert_eq!(settings("after"), before, "{end:?}");
    }
    drop(held);
    database.remove().await;
}

/// It is stopped, and goes on: the shell has its terminal meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn the_live_screen_goes_on_after_a_stop() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let held = client.lock("job").acquire().await.unwrap();
    let tmux = Tmux::open(&database, 100, 24);
    tmux.enter("sh -c 'echo $$ >pid; exec \"$T\" top --every 100ms'");
    tmux.until_shown("1 taken");
    let pid = Pid::from_raw(tmux.scratch.pid("pid")).unwrap();
    kill_process(pid, Signal::TSTP).unwrap();
    tmux.until("the shell", |_| tmux.modes() == (false, true));
    tmux.enter("echo it is $((6 * 7))");
    tmux.until_shown("it is 42");
    tmux.enter("fg");
    // Its heading, its rows, and its last line.
    for text in ["1 taken", "job  ", "q leaves"] {
        tmux.until_shown(text);
    }
    assert!(tmux.modes().0);
    tmux.press(&["q"]);
    tmux.until("the shell", |_| tmux.modes() == (false, true));
    drop(held);
    database.remove().await;
}

/// A window is closed, a line drops: there is nobody to whom it could say that it cannot put the terminal back.
#[tokio::test(flavor = "multi_thread")]
async fn the_live_screen_ends_quietly_when_its_terminal_is_gone() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let held = client.lock("job").acquire().await.unwrap();
    let tmux = Tmux::open(&database, 100, 24);
    // A shell that stays, to tell how it ended.
    tmux.enter("sh -c 'trap \"\" HUP; \"$T\" top --every 100ms; echo $? >code'");
    tmux.until_shown("1 taken");
    tmux.vanish();
    assert_eq!(tmux.scratch.line("code"), "0");
    drop(held);
    database.remove().await;
}
