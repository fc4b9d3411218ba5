//! How `top` looks.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row as Cells, Table};

use tag_lock::Urgency;

use super::model::{Model, Row};
use super::view::View;
use crate::output::duration;

/// Draws what was seen. It scrolls the view no further than there is something to see.
pub(super) fn draw(frame: &mut Frame, model: &Model, view: &mut View, server: &str, now: Instant) {
    let heads = heads(model, server, now, frame.area().width);
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(u16::try_from(heads.len()).unwrap_or(1)),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let heads: Vec<Line> = heads.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(heads).bold(), head);
    let rows = view.rows(model);
    let room = usize::from(body.height.saturating_sub(1));
    let offset = view.offset.min(rows.len().saturating_sub(room));
    let widths = [
        Constraint::Fill(3),
        Constraint::Length(6),
        Constraint::Fill(2),
        Constraint::Length(11),
        Constraint::Length(9),
        Constraint::Length(12),
        Constraint::Fill(2),
    ];
    let shown = rows.iter().skip(offset).take(room);
    let cells = shown.map(|row| cells(row, now));
    let titles = Cells::new([
        "NAME",
        "STATE",
        "HELD BY",
        "HELD FOR",
        "LEFT",
        "WANTED FOR",
        "DESCRIPTION",
    ]);
    frame.render_widget(
        Table::new(cells, widths).header(titles.style(Style::new().reversed())),
        body,
    );
    let below = rows.len().saturating_sub(offset + room);
    let line = match model.trouble() {
        Some(trouble) => Line::from(format!("no answer: {trouble}")).fg(Color::Red),
        None => Line::from(help(view, offset, below)),
    };
    frame.render_widget(Paragraph::new(line), foot);
    view.offset = offset;
}

/// What stands above the table: in one line, or in two where that is too long.
fn heads(model: &Model, server: &str, now: Instant, width: u16) -> Vec<String> {
    let (taken, wanted) = model.counts();
    let mut locks = format!("{server}   {taken} taken, {wanted} wanted");
    if let Some(longest) = model.longest() {
        let age = age(longest.since, longest.is_older, now);
        locks.push_str(&format!(", the longest for {age}"));
    }
    let (all, waited_for) = model.grants_a_second(now);
    let grants = format!("{all:.1} grants seen a second, {waited_for:.1} waited for");
    let line = format!("{locks}   {grants}");
    if line.chars().count() <= usize::from(width) {
        vec![line]
    } else {
        vec![locks, grants]
    }
}

/// What keys do, and how the view is.
fn help(view: &View, above: usize, below: usize) -> String {
    if view.is_typing {
        return format!(
            "names with: {}_   Enter keeps it, Esc shows all",
            view.filter
        );
    }
    let scope = if view.only_wanted {
        "all"
    } else {
        "wanted only"
    };
    let mut line = "q leaves".to_owned();
    if above > 0 || below > 0 {
        line.push_str(&format!("   ↑↓ {above} above, {below} below"));
    }
    let order = view.order.name();
    line.push_str(&format!("   s sorts: {order}   w {scope}   / filter"));
    if !view.filter.is_empty() {
        line.push_str(&format!(": {}", view.filter));
    }
    line
}

/// For how long something was seen; it may have been so for longer.
fn age(since: Instant, is_older: bool, now: Instant) -> String {
    let age = duration(now.saturating_duration_since(since));
    if is_older { format!("> {age}") } else { age }
}

fn cells(row: &Row, now: Instant) -> Cells<'_> {
    let state = Cell::from(row.lock.state);
    Cells::new([
        Cell::from(row.lock.name.as_str()),
        if ["held", "shared"].contains(&row.lock.state) {
            state.green()
        } else {
            state.yellow()
        },
        Cell::from(row.lock.held_by.as_str()),
        Cell::from(age(row.since, row.is_older, now)),
        Cell::from(duration(row.lock.remaining)),
        wanted(row, now),
        Cell::from(row.lock.description.as_str()),
    ])
}

/// For how long it is wanted, with a mark where that presses.
fn wanted(row: &Row, now: Instant) -> Cell<'static> {
    let Some(wanted) = row.wanted() else {
        return Cell::default();
    };
    let age = age(wanted.since, wanted.is_older, now);
    match row.lock.wish {
        Some(Urgency::Urgent) => Cell::from(format!("{age} !")).yellow(),
        Some(Urgency::StandsBy) => Cell::from(format!("{age} !!")).red(),
        _ => Cell::from(age).yellow(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::Seen;
    use super::super::model::tests::{lock, wanted};
    use super::*;

    /// The lines of a screen of 110 columns and five lines.
    fn drawn(model: &Model, view: &mut View, now: Instant) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(110, 5)).expect("a screen");
        terminal
            .draw(|frame| draw(frame, model, view, "db:3306/shop", now))
            .expect("draws");
        let buffer = terminal.backend().buffer();
        let line = |y: u16| {
            let line: String = (0..110).map(|x| buffer[(x, y)].symbol()).collect();
            line.trim_end().to_owned()
        };
        (0..5).map(line).collect()
    }

    fn words(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_screen_shows_who_holds_what_and_what_others_want() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut model = Model::new(began);
        model.look(vec![wanted("job:a", 1)], began);
        model.look(vec![wanted("job:a", 1), lock("job:b", 2)], at(60));
        let lines = drawn(&model, &mut View::default(), at(65));
        assert_eq!(
            lines[0],
            "db:3306/shop   2 taken, 1 wanted, the longest for > 1m 5s   0.1 grants seen a second, 0.0 waited for"
        );
        assert!(lines[1].starts_with("NAME"), "{lines:?}");
        assert_eq!(
            [words(&lines[2]), words(&lines[3])],
            [
                "job:a held host/1 > 1m 5s 29s > 1m 5s nightly",
                "job:b held host/2 5.0s 29s nightly"
            ]
        );
        assert_eq!(
            lines[4],
            "q leaves   s sorts: held longest   w wanted only   / filter"
        );
    }

    #[test]
    fn a_wish_that_presses_has_a_mark() {
        let now = Instant::now();
        for (urgency, mark) in [
            (Urgency::Waits, ""),
            (Urgency::Urgent, " !"),
            (Urgency::StandsBy, " !!"),
        ] {
            let mut model = Model::new(now);
            let wish = Some(urgency);
            model.look(
                vec![Seen {
                    wish,
                    ..lock("a", 1)
                }],
                now,
            );
            let lines = drawn(&model, &mut View::default(), now);
            let end = format!("29s > 0.0s{mark} nightly");
            assert!(words(&lines[2]).ends_with(&end), "{lines:?}");
        }
    }

    #[test]
    fn what_is_too_long_for_a_line_stands_in_two() {
        let now = Instant::now();
        let mut model = Model::new(now);
        model.look(vec![wanted("a", 1)], now);
        let one = heads(&model, "s", now, 110);
        assert_eq!(
            (one.len(), heads(&model, "s", now, 80)),
            (
                1,
                vec![
                    "s   1 taken, 1 wanted, the longest for > 0.0s".to_owned(),
                    "0.0 grants seen a second, 0.0 waited for".to_owned()
                ]
            )
        );
    }

    #[test]
    fn the_last_line_says_how_the_view_is() {
        let mut view = View {
            filter: "job".to_owned(),
            is_typing: true,
            ..View::default()
        };
        assert_eq!(
            help(&view, 1, 2),
            "names with: job_   Enter keeps it, Esc shows all"
        );
        view.is_typing = false;
        view.only_wanted = true;
        assert_eq!(
            help(&view, 1, 2),
            "q leaves   ↑↓ 1 above, 2 below   s sorts: held longest   w all   / filter: job"
        );
    }

    #[test]
    fn more_than_fits_is_scrolled_to_the_end_and_no_further() {
        let now = Instant::now();
        let mut model = Model::new(now);
        let locks = (0..10).map(|number| lock(&format!("job:{number}"), 1));
        model.look(locks.collect(), now);
        let mut view = View {
            offset: 100,
            ..View::default()
        };
        let lines = drawn(&model, &mut view, now);
        assert_eq!(view.offset, 8);
        assert!(lines[3].starts_with("job:9"), "{lines:?}");
        assert!(lines[4].contains("↑↓ 8 above, 0 below"), "{lines:?}");
    }

    #[test]
    fn a_server_without_an_answer_is_told() {
        let now = Instant::now();
        let mut model = Model::new(now);
        model.fail("the server cannot be reached".to_owned());
        let lines = drawn(&model, &mut View::default(), now);
        assert_eq!(lines[4], "no answer: the server cannot be reached");
    }

    #[test]
    fn no_screen_is_too_small() {
        let now = Instant::now();
        let mut model = Model::new(now);
        model.look(vec![wanted("job", 1)], now);
        for (width, height) in [(1, 1), (3, 2), (20, 3)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
            let mut view = View::default();
            terminal
                .draw(|frame| draw(frame, &model, &mut view, "s", now))
                .expect("draws");
        }
    }
}
