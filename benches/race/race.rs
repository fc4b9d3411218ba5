//! The race itself: rounds, and in each round every contestant in every cell.
//!
//! Rounds are the outermost loop, so that a machine that gets slower or faster does so for all contestants.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::arena::Arena;
use crate::contestants::Result;
use crate::contestants::roster::{Entry, roster};
use crate::options::Options;
use crate::progress::Progress;
use crate::record::{Figures, Record};
use crate::redis_servers::RedisServers;
use crate::scenarios::{Cell, cells};
use crate::slice::Slice;
use crate::stage::Stage;
use crate::status::Observer;
use crate::summary;

/// The server's connections that contestants leave free: the observer's, those that prepare, and other people's.
const SPARE_CONNECTIONS: usize = 20;

/// When a quick race begins no further round.
const QUICK_BUDGET: Duration = Duration::from_secs(110);

/// The cells that were raced and the lines of each.
pub struct Results {
    /// The server's name and version.
    pub server: String,
    /// The same of Redis, if there is one.
    pub redis: Option<String>,
    /// How often each contestant was to be measured in each cell.
    pub rounds: usize,
    /// The cells.
    pub cells: Vec<Cell>,
    /// For each cell, a line for each contestant.
    pub records: Vec<Vec<Record>>,
}

/// Runs the race.
pub async fn run(url: &str, options: &Options) -> Result<Results> {
    let redis = RedisServers::start().await?;
    let mut observer = Observer::connect(url).await?;
    let idle = observer.read().await?.connections;
    let server = observer.server.clone();
    let most_connections = observer.max_connections.saturating_sub(SPARE_CONNECTIONS);
    eprintln!(
        "{server}, at most {most_connections} connections; {} rounds",
        options.rounds
    );
    let arena = Arena {
        url: url.to_owned(),
        most_connections,
        redis: redis.addresses.clone(),
    };
    let stage = Stage {
        arena: Arc::new(arena),
        observer,
        pace: options.pace,
        idle,
    };

    let roster: Vec<Entry> = roster()
        .into_iter()
        .filter(|entry| chosen(entry, options))
        .collect();
    let cells: Vec<Cell> = options
        .scenarios
        .iter()
        .flat_map(|name| cells(name, options.quick))
        .filter(|cell| !options.only_summary || summary::shows(cell))
        .collect();
    let outcomes = rounds(stage, &cells, &roster, options).await;

    let mut records: Vec<Vec<Record>> = vec![Vec::new(); cells.len()];
    for (index, cell) in cells.iter().enumerate() {
        for entry in &roster {
            let outcome = outcomes.get(&(index, entry.profile.name));
            let figures = match outcome {
                Some(Ok(slices)) => {
                    Figures::of(slices).ok_or_else(|| "no time was left".to_owned())
                }
                Some(Err(reason)) => Err(reason.clone()),
                None => continue,
            };
            records[index].push(Record {
                scenario: cell.scenario,
                variant: cell.variant.clone(),
                contestant: entry.profile.name,
                server: server.clone(),
                tasks: cell.tasks,
                processes: cell.processes,
                figures,
            });
        }
    }
    Ok(Results {
        server,
        redis: redis.version(),
        rounds: options.rounds,
        cells,
        records,
    })
}

fn chosen(entry: &Entry, options: &Options) -> bool {
    options.contestants.is_empty()
        || options
            .contestants
            .iter()
            .any(|name| *name == entry.profile.name)
}

/// What was measured of a contestant in a cell, or why nothing was.
type Outcomes = HashMap<(usize, &'static str), std::result::Result<Vec<Slice>, String>>;

async fn rounds(mut stage: Stage, cells: &[Cell], roster: &[Entry], options: &Options) -> Outcomes {
    // Someone who names a contestant wants it everywhere.
    let thin = options.quick && options.contestants.is_empty();
    let mut heats: Vec<Vec<(usize, &Cell, &Entry)>> = cells
        .iter()
        .enumerate()
        .map(|(index, cell)| {
            let admitted = roster
                .iter()
                .filter(|entry| cell.admits(&entry.profile, thin));
            admitted.map(|entry| (index, cell, entry)).collect()
        })
        .collect();
    let mut outcomes: Outcomes = heats
        .iter()
        .flatten()
        .map(|(index, _, entry)| ((*index, entry.profile.name), Ok(Vec::new())))
        .collect();
    let mut progress = Progress::new(outcomes.len() * options.rounds, options.rounds);
    let began = Instant::now();
    'race: for round in 0..options.rounds {
        for (index, cell, entry) in heats.iter().flatten() {
            if options.quick && round > 0 && began.elapsed() > QUICK_BUDGET {
                break 'race;
            }
            let name = entry.profile.name;
            let Some(Ok(slices)) = outcomes.get_mut(&(*index, name)) else {
                continue;
            };
            progress.begin(round, cell, name);
            match cell.slice(&mut stage, entry).await {
                Ok(slice) => {
                    progress.end(round, cell, name, Ok(&slice));
                    slices.push(slice);
                }
                Err(error) => {
                    let reason = error.to_string();
                    progress.end(round, cell, name, Err(&reason));
                    outcomes.insert((*index, name), Err(reason));
                }
            }
        }
        // Nobody always follows the same one, whose leavings the server may still be clearing away: every second round
        // goes the other way round.
        for cell in &mut heats {
            let step = cell.len() / options.rounds;
            cell.rotate_left(step);
            cell.reverse();
        }
    }
    progress.finish();
    outcomes
}
