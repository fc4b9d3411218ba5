//! What of it `top` shows, and in which order: what keys change.

use std::cmp::Reverse;
use std::time::Instant;

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::model::{Model, Row};

/// What comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// What is held longest.
    #[default]
    Held,
    /// What is wanted longest; then what nobody wants, held longest.
    Wanted,
    /// By name.
    Name,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Self::Held => Self::Wanted,
            Self::Wanted => Self::Name,
            Self::Name => Self::Held,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Held => "held longest",
            Self::Wanted => "wanted longest",
            Self::Name => "name",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) order: Order,
    pub(super) only_wanted: bool,
    /// What names have in them; empty: all.
    pub(super) filter: String,
    /// The filter is being typed.
    pub(super) is_typing: bool,
    /// How many rows are above the screen.
    pub(super) offset: usize,
}

impl View {
    /// What was pressed, or that the terminal has another size. Whether that ends `top`.
    pub(super) fn take(&mut self, event: &Event) -> bool {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.press(*key),
            _ => false,
        }
    }

    fn press(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return key.code == KeyCode::Char('c');
        }
        if self.is_typing {
            self.type_filter(key.code);
            return false;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('w') => self.only_wanted = !self.only_wanted,
            KeyCode::Char('/') => {
                self.is_typing = true;
                self.filter.clear();
            }
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(20),
            KeyCode::PageUp => self.scroll(-20),
            _ => {}
        }
        false
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(character) => self.filter.push(character),
            _ => {}
        }
    }

    fn scroll(&mut self, lines: isize) {
        self.offset = self.offset.saturating_add_signed(lines);
    }

    /// The rows that are to be seen, the first one first.
    pub(super) fn rows<'m>(&self, model: &'m Model) -> Vec<&'m Row> {
        let shown = |row: &&Row| {
            row.lock.name.contains(&self.filter) && (!self.only_wanted || row.wanted().is_some())
        };
        let mut rows: Vec<&Row> = model.rows().filter(shown).collect();
        // Rows come in the order of their names, and keep it where nothing else tells.
        match self.order {
            Order::Held => rows.sort_by_key(|row| row.since),
            Order::Wanted => rows.sort_by_key(|row| {
                let since: Option<Instant> = row.wanted().map(|wanted| wanted.since);
                (Reverse(since.is_some()), since, row.since)
            }),
            Order::Name => {}
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::model::tests::{lock, wanted};
    use super::*;

    fn press(view: &mut View, code: KeyCode) -> bool {
        view.take(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    fn typed(view: &mut View, keys: &str) {
        for key in keys.chars() {
            assert!(!press(view, KeyCode::Char(key)), "{key}");
        }
    }

    #[test]
    fn q_leaves() {
        let mut view = View::default();
        assert!(press(&mut view, KeyCode::Char('q')));
        assert!(press(&mut view, KeyCode::Esc));
        let control = |key| Event::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL));
        assert!(view.take(&control('c')));
        assert!(!view.take(&control('q')));
        assert!(!press(&mut view, KeyCode::Char('c')));
        assert!(!view.take(&Event::Resize(1, 1)));
        assert_eq!(view, View::default());
    }

    #[test]
    fn the_order_goes_round() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut model = Model::new(began);
        model.look(vec![lock("d", 1), lock("c", 1)], began);
        model.look(vec![lock("d", 1), lock("c", 1), wanted("b", 1)], at(1));
        let all = ["d", "b", "a"].map(|name| wanted(name, 1));
        model.look(all.into_iter().chain([lock("c", 1)]).collect(), at(2));
        let mut view = View::default();
        let names = |view: &View| {
            let rows = view.rows(&model).into_iter();
            rows.map(|row| row.lock.name.as_str()).collect::<String>()
        };
        assert_eq!(names(&view), "cdba");
        typed(&mut view, "s");
        assert_eq!(
            (names(&view).as_str(), view.order.name()),
            ("bdac", "wanted longest")
        );
        typed(&mut view, "s");
        assert_eq!(names(&view), "abcd");
        typed(&mut view, "sw");
        assert_eq!(names(&view), "dba");
        typed(&mut view, "w/b");
        assert_eq!(names(&view), "b");
    }

    #[test]
    fn a_filter_is_typed() {
        let mut view = View::default();
        // While it is typed, keys are letters.
        typed(&mut view, "/jobsq");
        press(&mut view, KeyCode::Backspace);
        assert_eq!((view.filter.as_str(), view.order), ("jobs", Order::Held));
        press(&mut view, KeyCode::Enter);
        typed(&mut view, "s");
        assert_eq!((view.filter.as_str(), view.order), ("jobs", Order::Wanted));
        // Another one begins from nothing, and Esc ends it without leaving.
        typed(&mut view, "/x");
        assert_eq!(view.filter, "x");
        assert!(!press(&mut view, KeyCode::Esc));
        assert_eq!((view.filter.as_str(), view.is_typing), ("", false));
    }

    #[test]
    fn what_is_scrolled_up_stops_at_the_first_row() {
        let mut view = View::default();
        for code in [KeyCode::Down, KeyCode::Char('j'), KeyCode::PageDown] {
            press(&mut view, code);
        }
        assert_eq!(view.offset, 22);
        for code in [
            KeyCode::Up,
            KeyCode::Char('k'),
            KeyCode::PageUp,
            KeyCode::Up,
        ] {
            press(&mut view, code);
        }
        assert_eq!(view.offset, 0);
    }
}
