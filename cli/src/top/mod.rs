//! `tag-lock top`: the locks that are taken, live.
//!
//! [`model`] is what was seen, and for how long; [`screen`] is how it looks. Neither asks the server, nor touches the terminal.

mod model;
mod screen;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::model::{Model, Seen};
use crate::args::Common;
use crate::commands::taken;
use crate::exit::{Code, DONE, Failure};

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(100);

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Leave,
    /// So many lines down.
    Scroll(isize),
    /// The terminal has another size.
    Redraw,
}

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
    let mut terminal = ratatui::try_init()?;
    let mut wishes = wishes();
    let mut offset = 0_usize;
    let next_look = || Box::pin(after(every.max(SHORTEST), taken(&client, prefix)));
    // It goes on while keys are pressed.
    let mut look = next_look();
    let result = loop {
        let drawn = terminal.draw(|frame| {
            offset = screen::draw(frame, &model, &server, offset, Instant::now());
        });
        if let Err(error) = drawn {
            break Err(error.into());
        }
        tokio::select! {
            _ = terminate.recv() => break Ok(DONE),
            wish = wishes.recv() => match wish {
                Some(Wish::Scroll(lines)) => offset = offset.saturating_add_signed(lines),
                Some(Wish::Redraw) => {}
                Some(Wish::Leave) | None => break Ok(DONE),
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
    ratatui::restore();
    result
}

async fn after<T>(pause: Duration, work: impl Future<Output = T>) -> T {
    tokio::time::sleep(pause).await;
    work.await
}

fn seen(locks: &[tag_lock::LockInfo]) -> Vec<Seen> {
    locks.iter().map(Seen::from).collect()
}

/// What is pressed. The thread that reads it ends with the program.
fn wishes() -> mpsc::Receiver<Wish> {
    let (sender, wishes) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if let Some(wish) = wish(&event)
                && sender.blocking_send(wish).is_err()
            {
                return;
            }
        }
    });
    wishes
}

fn wish(event: &Event) -> Option<Wish> {
    let key = match event {
        Event::Resize(..) => return Some(Wish::Redraw),
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Leave),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::Leave),
        KeyCode::Down | KeyCode::Char('j') => Some(Wish::Scroll(1)),
        KeyCode::Up | KeyCode::Char('k') => Some(Wish::Scroll(-1)),
        KeyCode::PageDown => Some(Wish::Scroll(20)),
        KeyCode::PageUp => Some(Wish::Scroll(-20)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    #[test]
    fn q_leaves() {
        let pressed = |code, modifiers| wish(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(
            pressed(KeyCode::Char('q'), KeyModifiers::NONE),
            Some(Wish::Leave)
        );
        assert_eq!(
            pressed(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(Wish::Leave)
        );
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(
            pressed(KeyCode::Down, KeyModifiers::NONE),
            Some(Wish::Scroll(1))
        );
        assert_eq!(wish(&Event::Resize(1, 1)), Some(Wish::Redraw));
    }
}
