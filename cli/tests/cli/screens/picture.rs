//! A terminal's screen as a picture.

use std::num::NonZeroU16;

use vt100::{Cell, Color, Parser};

/// How wide and high a character is, in the picture's units, and the frame around them all.
const WIDTH: f64 = 8.6;
const HEIGHT: f64 = 19.0;
const FRAME: f64 = 14.0;

const STYLE: &str = "\
.ground { fill: #0d1117 } .reverse { fill: #c9d1d9 }
text { font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #c9d1d9; white-space: pre }
.bold { font-weight: 700 } .dark { fill: #0d1117 } .red { fill: #ff7b72 } .green { fill: #3fb950 } .yellow { fill: #d29922 }
";

/// What a terminal shows.
pub(crate) struct Screen(Parser, u16, u16);

impl Screen {
    /// After all these bytes were sent to it.
    pub(crate) fn of(bytes: &[u8], lines: u16, columns: u16) -> Self {
        let size = |number| NonZeroU16::new(number).expect("a size");
        let mut terminal = Parser::new(size(lines), size(columns), 0);
        terminal.process(bytes);
        Self(terminal, lines, columns)
    }

    pub(crate) fn text(&self) -> String {
        self.0.screen().contents()
    }

    /// The picture. Each line of the terminal is a line of text in it, which `change` may change.
    pub(crate) fn svg(&self, change: &dyn Fn(&str) -> String) -> String {
        let Self(_, lines, columns) = *self;
        let (width, height) = (
            WIDTH * f64::from(columns) + 2.0 * FRAME,
            HEIGHT * f64::from(lines) + 2.0 * FRAME,
        );
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\">\n<style>\n{STYLE}</style>\n\
             <rect class=\"ground\" width=\"100%\" height=\"100%\" rx=\"6\"/>\n"
        );
        for line in 0..lines {
            let top = FRAME + HEIGHT * f64::from(line);
            let (mut column, mut text) = (0, String::new());
            while column < columns {
                let style = self.style(line, column);
                let begun = column;
                let mut run = String::new();
                while column < columns && self.style(line, column) == style {
                    let cell = self.cell(line, column);
                    run.push_str(
                        cell.filter(|cell| cell.has_contents())
                            .map_or(" ", Cell::contents),
                    );
                    column += 1;
                }
                if style.contains("dark") {
                    let (x, w) = (
                        FRAME + WIDTH * f64::from(begun),
                        WIDTH * f64::from(column - begun),
                    );
                    svg.push_str(&format!(
                        "<rect class=\"reverse\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{w:.1}\" height=\"{HEIGHT:.1}\"/>\n"
                    ));
                }
                text.push_str(&part(&style, &change(&escaped(&run))));
            }
            if text.trim().is_empty() {
                continue;
            }
            let base = top + HEIGHT - 5.0;
            svg.push_str(&format!(
                "<text xml:space=\"preserve\" x=\"{FRAME:.1}\" y=\"{base:.1}\">{}</text>\n",
                text.trim_end()
            ));
        }
        svg + "</svg>\n"
    }

    fn cell(&self, line: u16, column: u16) -> Option<&Cell> {
        self.0.screen().cell(line, column)
    }

    /// The classes of a character.
    fn style(&self, line: u16, column: u16) -> String {
        let Some(cell) = self.cell(line, column) else {
            return String::new();
        };
        let mut classes = Vec::new();
        if cell.bold() {
            classes.push("bold");
        }
        if cell.inverse() {
            classes.push("dark");
        }
        match cell.fgcolor() {
            Color::Idx(1) => classes.push("red"),
            Color::Idx(2) => classes.push("green"),
            Color::Idx(3) => classes.push("yellow"),
            _ => {}
        }
        classes.join(" ")
    }
}

fn part(style: &str, text: &str) -> String {
    if style.is_empty() {
        text.to_owned()
    } else {
        format!("<tspan class=\"{style}\">{text}</tspan>")
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
