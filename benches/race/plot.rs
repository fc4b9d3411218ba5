//! The picture: a panel for each cell, a bar for each contestant, by hand.
//!
//! The scale is logarithmic, since the field spans four orders of magnitude; each panel has its own. A whisker shows
//! the spread of the rounds. `handoff` and `stalled_client` show times instead of speeds: there, short is good.

use std::fmt::Write;

use crate::human::{duration, rate};
use crate::race::Results;
use crate::record::Record;
use crate::table::title;

const COLUMNS: usize = 2;
const PANEL_WIDTH: f64 = 560.0;
const LABEL_WIDTH: f64 = 170.0;
const VALUE_WIDTH: f64 = 80.0;
const ROW: f64 = 20.0;
const HEAD: f64 = 34.0;
const GAP: f64 = 28.0;
const MARGIN: f64 = 24.0;
const TOP: f64 = 64.0;

const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #24292f }
.head { font-size: 20px; font-weight: 600 } .sub { fill: #57606a } .title { font-weight: 600; font-size: 13px }
.label { text-anchor: end } .grid { stroke: #d8dee4; stroke-width: 1 } .whisker { stroke: #24292f; stroke-width: 1 }
.tick { fill: #8c959f; font-size: 10px; text-anchor: middle }
.own { fill: #cf222e } .article { fill: #bf8700 } .peer { fill: #54aeff } .redis { fill: #a475f9 } .floor { fill: #afb8c1 }";

/// One bar.
struct Bar<'a> {
    record: &'a Record,
    value: f64,
    low: f64,
    high: f64,
}

/// The whole picture as SVG.
pub fn draw(results: &Results) -> String {
    let mut panels = Vec::new();
    for (cell, records) in results.cells.iter().zip(&results.records) {
        let times = matches!(cell.scenario, "stalled_client" | "handoff");
        let bars: Vec<Bar> = records
            .iter()
            .filter_map(|record| bar(record, times))
            .collect();
        if !bars.is_empty() {
            panels.push((title(cell), times, bars));
        }
    }
    let mut body = String::new();
    let mut y = TOP;
    for line in panels.chunks(COLUMNS) {
        let mut x = MARGIN;
        let mut tallest: f64 = 0.0;
        for (title, times, bars) in line {
            panel(&mut body, x, y, title, *times, bars);
            let rows = bars.iter().fold(0.0, |height, _| height + ROW);
            tallest = tallest.max(HEAD + rows + GAP);
            x += PANEL_WIDTH + GAP;
        }
        y += tallest;
    }
    let width = 2.0 * MARGIN + 2.0 * PANEL_WIDTH + GAP;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\">\n<style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text class=\"head\" x=\"{MARGIN}\" y=\"32\">Locks and counters on {}</text>\n\
         <text class=\"sub\" x=\"{MARGIN}\" y=\"50\">Operations a second, medians, logarithmic scale: longer is better. \
         Whiskers: slowest and fastest round. In handoff (p50, whisker to p99) and stalled_client, times: shorter is better.</text>\n{body}</svg>\n",
        escape(&results.server),
        height = y + MARGIN - GAP,
    )
}

fn bar(record: &Record, times: bool) -> Option<Bar<'_>> {
    let figures = record.figures.as_ref().ok()?;
    let (value, low, high) = match (record.scenario, times) {
        ("handoff", _) => (figures.p50_us?, figures.p50_us?, figures.p99_us?),
        (_, true) => (figures.worst_us, figures.worst_us, figures.worst_us),
        (_, false) => figures.per_second.into(),
    };
    (value > 0.0).then_some(Bar {
        record,
        value,
        low,
        high,
    })
}

fn panel(body: &mut String, x: f64, y: f64, title: &str, times: bool, bars: &[Bar]) {
    let smallest = bars
        .iter()
        .map(|bar| bar.low.max(1e-1))
        .fold(f64::INFINITY, f64::min);
    let largest = bars.iter().map(|bar| bar.high).fold(0.0, f64::max);
    // A decade below the smallest, so that the shortest bar is a bar.
    let bottom = (smallest.log10() - 0.5).floor();
    let top = largest.log10().max(bottom + 1.0);
    let left = x + LABEL_WIDTH;
    let place = |value: f64| {
        let share = (value.max(1e-1).log10() - bottom) / (top - bottom);
        left + share.clamp(0.0, 1.0) * (PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH)
    };
    let height = bars.iter().fold(0.0, |height, _| height + ROW);
    // Writing to a String cannot fail.
    let _ = writeln!(
        body,
        "<text class=\"title\" x=\"{x}\" y=\"{:.1}\">{}</text>",
        y + 12.0,
        escape(title)
    );
    let mut decade = bottom;
    while decade <= top {
        let (value, tick) = (10f64.powf(decade), place(10f64.powf(decade)));
        let _ = writeln!(
            body,
            "<line class=\"grid\" x1=\"{tick:.1}\" x2=\"{tick:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
             <text class=\"tick\" x=\"{tick:.1}\" y=\"{:.1}\">{}</text>",
            y + HEAD - 6.0,
            y + HEAD + height,
            y + HEAD - 8.0,
            if times { duration(value) } else { short(value) }
        );
        decade += 1.0;
    }
    let mut row = y + HEAD;
    for bar in bars {
        let (end, middle) = (place(bar.value), row + ROW / 2.0);
        let name = bar.record.contestant;
        let value = if times {
            duration(bar.value)
        } else {
            rate(bar.value)
        };
        let _ = writeln!(
            body,
            "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{name}</text>\
             <rect class=\"{}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"/>\
             <line class=\"whisker\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{value}</text>",
            left - 8.0,
            middle + 4.0,
            class(name),
            row + 3.0,
            (end - left).max(1.0),
            ROW - 6.0,
            place(bar.low),
            place(bar.high),
            place(bar.high) + 6.0,
            middle + 4.0
        );
        row += ROW;
    }
}

fn class(contestant: &str) -> &'static str {
    match contestant {
        name if name.starts_with("tag-lock") => "own",
        name if name.starts_with("article") => "article",
        name if name.starts_with("redis") || name == "redlock" => "redis",
        name if name.starts_with("floor") => "floor",
        _ => "peer",
    }
}

/// A power of ten for the scale.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.0}M", value / 1e6),
        value if value >= 1e3 => format!("{:.0}k", value / 1e3),
        value if value >= 1.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

/// As the text of an element.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
