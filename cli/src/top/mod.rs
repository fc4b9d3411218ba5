//! `tag-lock top`: the locks that are taken, live.
//!
//! [`model`] is what was seen, and for how long; [`view`] is what of it is to be seen, as keys change it; [`screen`] is how it looks. None of
//! them asks the server, or touches the terminal.

mod model;
mod screen;
mod view;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::model::{Model, Seen};
use self::view::View;
use crate::args::Common;
use crate::commands::taken;
use crate::exit::{Code, DONE, Failure};

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(100);

pub(crate) async fn top(common: &Common, prefix: &str, every: Duration) -> Result<Code, Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::Other(
            "`top` needs a terminal: use `tag-lock list --json` for programs".to_owned(),
        ));
    }
    let client = common.client().await?;
    // Before the screen is taken: what is wrong now is told as by any other command.
    let mut model = Model::new(Instant::now());
    model.look(seen(&taken(&client, prefix).await?), Instant::now());
    let options = common.options()?;
    let server = format!(
        "{}:{}/{}",
        options.get_host(),
        options.get_port(),
        options.get_database().unwrap_or_default()
    );
    // The terminal is to be as it was, also then.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut stop = signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?;
    let mut terminal = ratatui::try_init()?;
    let mut events = events();
    let mut view = View::default();
    let next_look = || Box::pin(after(every.max(SHORTEST), taken(&client, prefix)));
    // It goes on while keys are pressed.
    let mut look = next_look();
    let result = loop {
        let drawn = terminal.draw(|frame| {
            screen::draw(frame, &model, &mut view, &server, Instant::now());
        });
        if let Err(error) = drawn {
            break gone_or(error);
        }
        tokio::select! {
            _ = terminate.recv() => break Ok(DONE),
            _ = interrupt.recv() => break Ok(DONE),
            _ = hangup.recv() => break Ok(DONE),
            _ = stop.recv() => if let Err(error) = stopped(&mut terminal) {
                break gone_or(error);
            },
            event = events.recv() => match event {
                Some(Ok(event)) => if view.take(&event) {
                    break Ok(DONE);
                },
                Some(Err(error)) => break gone_or(error),
                None => break Ok(DONE),
            },
            locks = &mut look => {
                match locks {
                    Ok(locks) => model.look(seen(&locks), Instant::now()),
                    Err(failure) if failure.is_retryable() => model.fail(failure.to_string()),
                    Err(failure) => break Err(failure),
                }
                look = next_look();
            }
        }
    };
    // Where the terminal is gone nobody can be told so. Its destructor would try, and panic.
    if ratatui::try_restore().is_err() {
        std::mem::forget(terminal);
    }
    result
}

async fn after<T>(pause: Duration, work: impl Future<Output = T>) -> T {
    tokio::time::sleep(pause).await;
    work.await
}

fn seen(locks: &[tag_lock::LockInfo]) -> Vec<Seen> {
    locks.iter().map(Seen::from).collect()
}

/// Is stopped, and goes on; the terminal is the shell's meanwhile.
fn stopped(terminal: &mut DefaultTerminal) -> std::io::Result<()> {
    ratatui::try_restore()?;
    terminal.show_cursor()?;
    kill_process(getpid(), Signal::STOP)?;
    enable_raw_mode()?;
    execute!(std::io::stdout(), EnterAlternateScreen)?;
    terminal.hide_cursor()?;
    // Everything is drawn anew. (`clear` would wait for the terminal's answer, which the thread of the keys reads.)
    let size = terminal.size()?;
    terminal.resize(size.into())
}

/// The terminal failed. Where it is gone, nobody is left who could be told so: that may be seen before SIGHUP comes.
fn gone_or(error: std::io::Error) -> Result<Code, Failure> {
    if std::io::stdin().is_terminal() {
        Err(error.into())
    } else {
        Ok(DONE)
    }
}

/// What is pressed, and new sizes of the terminal; an error is the last. The thread that reads them ends with the program.
fn events() -> mpsc::Receiver<std::io::Result<Event>> {
    let (sender, events) = mpsc::channel(16);
    std::thread::spawn(move || {
        loop {
            let event = event::read();
            let failed = event.is_err();
            if sender.blocking_send(event).is_err() || failed {
                return;
            }
        }
    });
    events
}
