//! What is raced: each scenario's cells, and how a slice of one is measured.

mod connections;
mod distance;
mod growth;
mod handoff;
mod headline;
mod one_process;
mod processes;
mod stalled_client;

use std::time::Duration;

use crate::contestants::roster::Entry;
use crate::contestants::{Profile, Result};
use crate::heat::Work;
use crate::names::Names;
use crate::slice::Slice;
use crate::stage::Stage;

/// One row group of the table: a scenario with its parameters.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The scenario's name.
    pub scenario: &'static str,
    /// What tells it from the scenario's other cells, beside tasks and processes.
    pub variant: String,
    /// Tasks in each process.
    pub tasks: usize,
    /// Processes.
    pub processes: usize,
    kind: Kind,
}

/// How a cell is measured.
#[derive(Clone, Copy, Debug)]
enum Kind {
    OneProcess { work: Work, names: Names },
    Headline { waves: u32 },
    Processes { names: Names },
    Connections { clients: usize, names: Names },
    Handoff,
    Distance { delay: Duration },
    StalledClient,
    Growth { growth: Growth, rows: u64 },
}

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// Rows, while the same thousand names are used.
    HotSet,
    /// Rows, while all of them are used.
    Uniform,
    /// Held leases.
    Held,
}

/// The names of all scenarios, in the order of the table.
pub const SCENARIOS: [&str; 12] = [
    "uncontended",
    "pairs",
    "fresh",
    "hot_lock",
    "hot_counter",
    "headline",
    "processes",
    "connections",
    "handoff",
    "distance",
    "stalled_client",
    "growth",
];

/// A lock taken and released at once.
const PAIR: Work = Work::Pair {
    hold: Duration::ZERO,
    rest: Duration::ZERO,
};

/// The cells of a scenario; fewer when it has to be quick.
pub fn cells(scenario: &'static str, quick: bool) -> Vec<Cell> {
    let tasks: &[usize] = if quick {
        &[64, 1_024]
    } else {
        &[16, 64, 256, 1_024, 4_096]
    };
    let cell = |variant: String, tasks, processes, kind| Cell {
        scenario,
        variant,
        tasks,
        processes,
        kind,
    };
    let of_tasks = |work, names| {
        tasks
            .iter()
            .map(|tasks| cell(String::new(), *tasks, 1, Kind::OneProcess { work, names }))
            .collect()
    };
    match scenario {
        "uncontended" => vec![cell(
            String::new(),
            1,
            1,
            Kind::OneProcess {
                work: PAIR,
                names: Names::Own,
            },
        )],
        "pairs" => of_tasks(PAIR, Names::Own),
        "fresh" => [64, 1_024]
            .map(|tasks| {
                let (work, names) = (PAIR, Names::Fresh);
                cell(String::new(), tasks, 1, Kind::OneProcess { work, names })
            })
            .to_vec(),
        "hot_lock" if quick => {
            vec![cell(
                String::new(),
                64,
                1,
                Kind::OneProcess {
                    work: PAIR,
                    names: Names::One,
                },
            )]
        }
        "hot_lock" => of_tasks(PAIR, Names::One),
        "hot_counter" => of_tasks(Work::Add, Names::One),
        "headline" => {
            let waves = if quick { 10 } else { 50 };
            vec![cell(
                format!("{waves} × 100"),
                100,
                1,
                Kind::Headline { waves },
            )]
        }
        "processes" => {
            let processes: &[usize] = if quick { &[8] } else { &[1, 2, 4, 8] };
            let names: &[(&str, Names)] = if quick {
                &[("distinct", Names::Own)]
            } else {
                &[("distinct", Names::Own), ("hot", Names::One)]
            };
            names
                .iter()
                .flat_map(|(variant, names)| {
                    processes
                        .iter()
                        .map(move |processes| (variant, *names, *processes))
                })
                .map(|(variant, names, processes)| {
                    cell(
                        (*variant).to_owned(),
                        64,
                        processes,
                        Kind::Processes { names },
                    )
                })
                .collect()
        }
        "connections" => {
            let many = |clients: usize, tasks: usize, names: Names| {
                let new = if names == Names::Fresh {
                    ", new names"
                } else {
                    ""
                };
                let variant = format!("{clients} clients{new}");
                let kind = Kind::Connections { clients, names };
                cell(variant, tasks * clients, 1, kind)
            };
            let mut cells = vec![many(50, 8, Names::Own)];
            if !quick {
                cells.extend([many(150, 8, Names::Own), many(40, 30, Names::Fresh)]);
            }
            cells
        }
        "handoff" => vec![cell(String::new(), 1, 2, Kind::Handoff)],
        "distance" => {
            let delays: &[u64] = if quick {
                &[10_000]
            } else {
                &[500, 2_000, 10_000]
            };
            let tasks: &[usize] = if quick { &[1] } else { &[1, 64] };
            delays
                .iter()
                .flat_map(|delay| {
                    tasks
                        .iter()
                        .map(|tasks| (Duration::from_micros(*delay), *tasks))
                })
                .map(|(delay, tasks)| {
                    cell(
                        format!("{delay:?} each way"),
                        tasks,
                        1,
                        Kind::Distance { delay },
                    )
                })
                .collect()
        }
        "stalled_client" => vec![cell(
            "the others' worst gap".to_owned(),
            64,
            2,
            Kind::StalledClient,
        )],
        "growth" => growth_cells(quick)
            .into_iter()
            .map(|(variant, growth, rows)| cell(variant, 64, 1, Kind::Growth { growth, rows }))
            .collect(),
        _ => Vec::new(),
    }
}

fn growth_cells(quick: bool) -> Vec<(String, Growth, u64)> {
    let rows: &[u64] = if quick {
        &[1_000, 100_000]
    } else {
        &[1_000, 10_000, 100_000, 1_000_000]
    };
    let held: &[u64] = if quick {
        &[1_000]
    } else {
        &[10, 1_000, 100_000]
    };
    let mut cells = Vec::new();
    for rows in rows {
        cells.push((format!("{rows} rows, 1000 used"), Growth::HotSet, *rows));
    }
    for rows in rows.iter().filter(|rows| !quick && **rows > 1_000) {
        cells.push((format!("{rows} rows, all used"), Growth::Uniform, *rows));
    }
    for held in held {
        cells.push((format!("{held} held"), Growth::Held, *held));
    }
    cells
}

/// The contestants that a quick race keeps in the scenarios that cost most time.
const QUICK: [&str; 8] = [
    "tag-lock",
    "tag-lock-linger",
    "article-v3",
    "unique-insert",
    "get-lock",
    "redis",
    "floor-commit",
    "floor-round-trip",
];

/// The contestants that a lock for each order is asked of.
const FRESH: [&str; 7] = [
    "tag-lock",
    "tag-lock-every-stripe",
    "article-v3",
    "unique-insert",
    "get-lock",
    "redis",
    "floor-commit",
];

/// The contestants whose many connections are looked at.
const CONNECTIONS: [&str; 5] = [
    "tag-lock",
    "tag-lock-every-stripe",
    "article-v3",
    "unique-insert",
    "get-lock",
];

impl Cell {
    /// Whether a contestant has a meaning here; with `quick`, whether it is also worth its time.
    pub fn admits(&self, profile: &Profile, quick: bool) -> bool {
        let kept = !quick || QUICK.contains(&profile.name);
        let lock = profile.locks && !profile.floor;
        match self.kind {
            Kind::OneProcess {
                work: Work::Add, ..
            } => profile.counters,
            Kind::Headline { .. } => profile.counters && kept,
            Kind::OneProcess {
                names: Names::One, ..
            } => lock,
            Kind::OneProcess {
                names: Names::Fresh,
                ..
            } => FRESH.contains(&profile.name) && (kept || self.tasks == 64),
            Kind::OneProcess { .. } => profile.name != "floor-bulk" || self.tasks > 1,
            Kind::Processes { .. } | Kind::StalledClient => lock && kept,
            Kind::Connections { .. } => CONNECTIONS.contains(&profile.name),
            Kind::Handoff => lock,
            Kind::Distance { .. } => profile.mysql && kept && profile.name != "floor-bulk",
            // The versions share a table; one of them is enough. `unique-insert` keeps no free rows.
            Kind::Growth { growth, .. } => {
                profile.fills
                    && !matches!(profile.name, "article-v1" | "article-v2")
                    && (profile.name != "unique-insert" || growth == Growth::Held)
            }
        }
    }

    /// Measures a contestant once.
    pub async fn slice(&self, stage: &mut Stage, entry: &Entry) -> Result<Slice> {
        entry.prepare(&stage.arena).await?;
        match self.kind {
            Kind::OneProcess { work, names } => {
                one_process::slice(stage, entry, work, names, self.tasks).await
            }
            Kind::Headline { waves } => headline::slice(stage, entry, waves).await,
            Kind::Processes { names } => {
                processes::slice(stage, entry, names, self.tasks, self.processes).await
            }
            Kind::Connections { clients, names } => {
                connections::slice(stage, entry, clients, names, self.tasks).await
            }
            Kind::Handoff => handoff::slice(stage, entry).await,
            Kind::Distance { delay } => distance::slice(stage, entry, delay, self.tasks).await,
            Kind::StalledClient => stalled_client::slice(stage, entry, self.tasks).await,
            Kind::Growth { growth, rows } => {
                growth::slice(stage, entry, growth, rows, self.tasks).await
            }
        }
    }
}
