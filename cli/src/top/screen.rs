//! How `top` looks.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row as Cells, Table};

use super::model::{Model, Row};
use crate::output::duration;

/// Draws what was seen, from the row `offset` on; gives the offset that could be.
pub(super) fn draw(
    frame: &mut Frame,
    model: &Model,
    server: &str,
    offset: usize,
    now: Instant,
) -> usize {
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let rows = model.rows();
    let room = usize::from(body.height.saturating_sub(1));
    let offset = offset.min(rows.len().saturating_sub(room));
    let title = format!(
        "{server}   {} taken   {:.1} grants seen a second",
        rows.len(),
        model.grants_a_second(now)
    );
    frame.render_widget(Line::from(title).bold(), head);
    let widths = [
        Constraint::Fill(3),
        Constraint::Length(6),
        Constraint::Fill(2),
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Fill(2),
    ];
    let cells = rows
        .iter()
        .skip(offset)
        .take(room)
        .map(|row| cells(row, now));
    let titles = Cells::new([
        "NAME",
        "STATE",
        "HELD BY",
        "HELD FOR",
        "LEFT",
        "DESCRIPTION",
    ]);
    frame.render_widget(
        Table::new(cells, widths).header(titles.style(Style::new().reversed())),
        body,
    );
    let below = rows.len().saturating_sub(offset + room);
    let line = match model.trouble() {
        Some(trouble) => Line::from(format!("no answer: {trouble}")).fg(Color::Red),
        None if offset > 0 || below > 0 => Line::from(format!(
            "q leaves   ↑↓ scroll   {offset} above, {below} below"
        )),
        None => Line::from("q leaves"),
    };
    frame.render_widget(Paragraph::new(line), foot);
    offset
}

fn cells(row: &Row, now: Instant) -> Cells<'_> {
    let age = duration(now.duration_since(row.since));
    let age = if row.is_older {
        format!("> {age}")
    } else {
        age
    };
    let state = Cell::from(row.lock.state);
    Cells::new([
        Cell::from(row.lock.name.as_str()),
        if ["held", "shared"].contains(&row.lock.state) {
            state.green()
        } else {
            state.yellow()
        },
        Cell::from(row.lock.held_by.as_str()),
        Cell::from(age),
        Cell::from(duration(row.lock.remaining)),
        Cell::from(row.lock.description.as_str()),
    ])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::tests::lock;
    use super::*;

    fn drawn(model: &Model, offset: usize, now: Instant) -> (Vec<String>, usize) {
        let mut terminal = Terminal::new(TestBackend::new(90, 5)).expect("a screen");
        let mut shown = 0;
        terminal
            .draw(|frame| shown = draw(frame, model, "db:3306/shop", offset, now))
            .expect("draws");
        let buffer = terminal.backend().buffer();
        let line = |y: u16| {
            (0..90)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
                .trim_end()
                .to_owned()
        };
        ((0..5).map(line).collect(), shown)
    }

    #[test]
    fn the_screen_shows_who_holds_what() {
        let began = Instant::now();
        let mut model = Model::new(began);
        model.look(vec![lock("job:a", 1)], began);
        model.look(
            vec![lock("job:a", 1), lock("job:b", 2)],
            began + Duration::from_secs(60),
        );
        let (lines, _) = drawn(&model, 0, began + Duration::from_secs(65));
        assert_eq!(
            lines[0],
            "db:3306/shop   2 taken   0.1 grants seen a second"
        );
        assert!(lines[1].starts_with("NAME"), "{lines:?}");
        for (line, parts) in [
            (2, ["job:a", "host/1", "> 1m 5s"]),
            (3, ["job:b", "host/2", " 5.0s"]),
        ] {
            assert!(
                parts.iter().all(|part| lines[line].contains(part)),
                "{lines:?}"
            );
        }
        assert_eq!(lines[4], "q leaves");
    }

    #[test]
    fn more_than_fits_is_scrolled_to_the_end_and_no_further() {
        let now = Instant::now();
        let mut model = Model::new(now);
        model.look(
            (0..10)
                .map(|number| lock(&format!("job:{number}"), 1))
                .collect(),
            now,
        );
        let (lines, offset) = drawn(&model, 100, now);
        assert_eq!(offset, 8);
        assert!(lines[3].starts_with("job:9"), "{lines:?}");
        assert_eq!(lines[4], "q leaves   ↑↓ scroll   8 above, 0 below");
    }

    #[test]
    fn a_server_without_an_answer_is_told() {
        let now = Instant::now();
        let mut model = Model::new(now);
        model.fail("the server cannot be reached".to_owned());
        let (lines, _) = drawn(&model, 0, now);
        assert_eq!(lines[4], "no answer: the server cannot be reached");
    }

    #[test]
    fn no_screen_is_too_small() {
        let now = Instant::now();
        let mut model = Model::new(now);
        model.look(vec![lock("job", 1)], now);
        for (width, height) in [(1, 1), (3, 2), (20, 3)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
            terminal
                .draw(|frame| {
                    draw(frame, &model, "s", 0, now);
                })
                .expect("draws");
        }
    }
}
