//! The picture for a reader in a hurry: four cells, in plain words.
//!
//! The scale is linear, each panel has its own, and every contestant has the same place and colour in all of them.

use std::fmt::Write;

use crate::human::{duration, rate};
use crate::plot::escape;
use crate::race::Results;
use crate::record::{Figures, Record};
use crate::scenarios::Cell;

/// One question that a user asks, and the cell that answers it.
struct Panel {
    heading: &'static str,
    better: &'static str,
    /// Why a contestant may be missing.
    absent: &'static str,
    scenario: &'static str,
    tasks: usize,
    figure: fn(&Figures) -> Option<f64>,
    show: fn(f64) -> String,
}

const PANELS: [Panel; 4] = [
    Panel {
        heading: "Taking one lock that nobody else wants",
        better: "time, shorter is better",
        absent: "has no locks",
        scenario: "uncontended",
        tasks: 1,
        figure: |figures| figures.p50_us,
        show: duration,
    },
    Panel {
        heading: "1,024 tasks, each with a lock of its own",
        better: "locks taken and released a second, longer is better",
        absent: "has no locks",
        scenario: "pairs",
        tasks: 1_024,
        figure: |figures| Some(figures.per_second[0]),
        show: rate,
    },
    Panel {
        heading: "1,024 tasks, all with the same counter",
        better: "additions a second, longer is better",
        absent: "has no counters",
        scenario: "hot_counter",
        tasks: 1_024,
        figure: |figures| Some(figures.per_second[0]),
        show: rate,
    },
    Panel {
        heading: "One of two programs freezes",
        better: "the longest that the other one waits for its own locks, shorter is better",
        absent: "has no locks",
        scenario: "stalled_client",
        tasks: 64,
        figure: |figures| Some(figures.worst_us),
        show: duration,
    },
];

/// Who is shown: the name in the race, one for readers, and a colour on a light and on a dark ground.
const SHOWN: [(&str, &str, &str, &str); 7] = [
    ("tag-lock", "tag-lock", "#cf222e", "#ff7b72"),
    ("article-v3", "its original design", "#bf8700", "#d29922"),
    ("unique-insert", "INSERT, then DELETE", "#1a7f37", "#3fb950"),
    ("get-lock", "GET_LOCK (no disk)", "#0969da", "#58a6ff"),
    ("redis-fsync", "Redis, synced to disk", "#8250df", "#bc8cff"),
    ("redis", "Redis, in memory", "#c297ff", "#8957e5"),
    ("floor-commit", "one plain UPDATE", "#8c959f", "#6e7681"),
];

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 20.0;
const GAP: f64 = 24.0;
const PANEL_WIDTH: f64 = (WIDTH - 2.0 * MARGIN - GAP) / 2.0;
const LABEL_WIDTH: f64 = 158.0;
const VALUE_WIDTH: f64 = 66.0;
const TOP: f64 = 90.0;
const HEAD: f64 = 46.0;
const ROW: f64 = 25.0;
const BAR: f64 = 16.0;

/// Whether a panel is about this cell.
pub fn shows(cell: &Cell) -> bool {
    PANELS.iter().any(|panel| panel.is_about(cell))
}

/// The contestants that are shown.
pub fn contestants() -> impl Iterator<Item = &'static str> {
    SHOWN.iter().map(|(name, ..)| *name)
}

impl Panel {
    fn is_about(&self, cell: &Cell) -> bool {
        (self.scenario, self.tasks) == (cell.scenario, cell.tasks)
    }

    /// What was measured of a contestant; `None` if it does not take part.
    fn value(&self, records: &[Record], contestant: &str) -> Option<f64> {
        let record = records
            .iter()
            .find(|record| record.contestant == contestant)?;
        (self.figure)(record.figures.as_ref().ok()?)
    }
}

/// The whole picture as SVG.
pub fn draw(results: &Results) -> String {
    let rows = SHOWN.iter().fold(0.0, |height, _| height + ROW);
    let panel_height = HEAD + rows + GAP;
    let mut body = String::new();
    for (index, panel) in PANELS.iter().enumerate() {
        let mut cells = results.cells.iter().zip(&results.records);
        let Some((_, records)) = cells.find(|(cell, _)| panel.is_about(cell)) else {
            continue;
        };
        let x = MARGIN
            + if index % 2 == 0 {
                0.0
            } else {
                PANEL_WIDTH + GAP
            };
        let y = TOP + if index < 2 { 0.0 } else { panel_height };
        draw_panel(&mut body, x, y, panel, records);
    }
    let height = TOP + 2.0 * panel_height;
    let redis = results.redis.as_deref().unwrap_or("no Redis");
    let rounds = match results.rounds {
        1 => "one round".to_owned(),
        rounds => format!("{rounds} rounds"),
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" width=\"{WIDTH:.0}\" \
         height=\"{height:.0}\">\n<style>\n{}</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"head\" x=\"{MARGIN}\" y=\"32\">Locks and counters, measured beside other designs</text>\n\
         <text class=\"sub\" x=\"{MARGIN}\" y=\"52\">{} and {}, with their clients on one machine of {processors} \
         processors; every change is on disk before it is answered, but for</text>\n\
         <text class=\"sub\" x=\"{MARGIN}\" y=\"67\">GET_LOCK and Redis in memory. Medians, and of the last panel the worst, of {rounds}. \
         More: docs/performance.md</text>\n{body}</svg>\n",
        style(),
        escape(&results.server),
        escape(redis),
    )
}

/// Colours for a light ground, and for a dark one.
fn style() -> String {
    let mut style = "\
text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328 }
.head { font-size: 19px; font-weight: 600 } .title { font-size: 14px; font-weight: 600 }
.sub, .none { fill: #59636e } .label { text-anchor: end } .own { font-weight: 600 }
.ground { fill: #ffffff } .line { stroke: #d1d9e0 }
"
    .to_owned();
    let mut dark = "\
text { fill: #f0f6fc } .sub, .none { fill: #9198a1 } .ground { fill: #0d1117 } .line { stroke: #3d444d }
"
    .to_owned();
    for (index, (_, _, on_light, on_dark)) in SHOWN.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = writeln!(style, ".bar{index} {{ fill: {on_light} }}");
        let _ = writeln!(dark, ".bar{index} {{ fill: {on_dark} }}");
    }
    format!("{style}@media (prefers-color-scheme: dark) {{\n{dark}}}\n")
}

fn draw_panel(body: &mut String, x: f64, y: f64, panel: &Panel, records: &[Record]) {
    let values = SHOWN.map(|(name, ..)| panel.value(records, name));
    let largest = values.iter().flatten().fold(0.0, |a: f64, b| a.max(*b));
    let left = x + LABEL_WIDTH;
    let rows = SHOWN.iter().fold(0.0, |height, _| height + ROW);
    // Writing to a String cannot fail.
    let _ = writeln!(
        body,
        "<text class=\"title\" x=\"{x:.0}\" y=\"{:.0}\">{}</text>\n<text class=\"sub\" x=\"{x:.0}\" y=\"{:.0}\">{}</text>\n\
         <line class=\"line\" x1=\"{left:.0}\" x2=\"{left:.0}\" y1=\"{:.0}\" y2=\"{:.0}\"/>",
        y + 14.0,
        panel.heading,
        y + 32.0,
        panel.better,
        y + HEAD - 2.0,
        y + HEAD + rows,
    );
    let mut row = y + HEAD;
    for (index, ((_, label, ..), value)) in SHOWN.iter().zip(values).enumerate() {
        let baseline = row + BAR - 1.0;
        let own = if index == 0 { " own" } else { "" };
        let _ = writeln!(
            body,
            "<text class=\"label{own}\" x=\"{:.0}\" y=\"{baseline:.0}\">{label}</text>",
            left - 8.0
        );
        let _ = match value {
            Some(value) => {
                let length = value / largest * (PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH);
                let length = length.max(1.5);
                writeln!(
                    body,
                    "<rect class=\"bar{index}\" x=\"{left:.0}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{BAR:.0}\" rx=\"2\"/>\n\
                     <text class=\"value{own}\" x=\"{:.1}\" y=\"{baseline:.0}\">{}</text>",
                    row + 2.0,
                    left + length + 6.0,
                    (panel.show)(value)
                )
            }
            None => writeln!(
                body,
                "<text class=\"none\" x=\"{:.1}\" y=\"{baseline:.0}\">{}</text>",
                left + 6.0,
                panel.absent
            ),
        };
        row += ROW;
    }
}
