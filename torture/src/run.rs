//! A run: servers, workers, nemesis, and the judgement at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::RngExt;
use sqlx::mysql::MySqlConnection;
use tag_lock::{AtClose, LockClient};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::bank;
use crate::canaries;
use crate::case::{self, Aftermath};
use crate::cluster;
use crate::faults::{Failure, Rig};
use crate::final_state;
use crate::fleet::Fleet;
use crate::mutant_build;
use crate::nemesis::{self, Nemesis};
use crate::options::RunOptions;
use crate::proxy::Proxy;
use crate::report::Report;
use crate::resource::Resource;
use crate::server::{Servers, Topology};
use crate::setup::{CROWDED, SHARED_LOCKS, SHARED_NAMES, Setup, TOGETHER, Workload};
use crate::tallies::Tallies;
use crate::wall_clock::Clock;

/// How often progress is told.
const TELL: Duration = Duration::from_secs(5);
/// How long workers may take to end, once all is mended: a request may last 10 s, a wait for a lock 8 s.
const PATIENCE: Duration = Duration::from_secs(60);
/// How much longer than it said a call may take: the answer to the last question is waited for, for a second.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Who asks so much later than another task of its client does not have the lock so much sooner: a busy machine lets a task stand for a while
/// between what it does and what it writes of it.
const IN_ORDER_WITHIN: Duration = Duration::from_secs(3);
/// More than a stock's additions in flight, so that both bounds are met.
const STOCK: i64 = 20;

/// Runs, judges, and reports.
///
/// # Errors
///
/// If the run itself fails; what it finds is in the report.
pub async fn run(options: &RunOptions) -> Result<Report, Failure> {
    let seed = options
        .seed
        .unwrap_or_else(|| u64::from(rand::rng().random::<u32>()));
    let faults = nemesis::choose(&options.faults)?;
    let servers = Arc::new(Servers::from_environment()?);
    let directory = make_directory(options, seed)?;
    eprintln!("torture: seed {seed}, in {}", directory.display());
    let steps_server_clock = faults.iter().any(|fault| fault.name() == "server-clock");
    let mut server_clocks = Vec::new();
    if steps_server_clock {
        for node in &servers.nodes {
            server_clocks.push(node.start_with_clock().await?);
        }
    }
    let resource = Resource::start().await?;
    let setup = Setup {
        seed,
        workload: options.workload,
        ttl_ms: options.ttl,
        linger_ms: options.linger.unwrap_or(match options.workload {
            Workload::Linger => options.ttl,
            _ => 0,
        }),
        names: options.names,
        stock: STOCK,
        resource: resource.address(),
        patience_ms: u64::try_from(patience(&servers, faults.is_empty()).as_millis())?,
        passed_over: Some(u64::from(options.workers) * rounds(options.workload, faults.is_empty())),
        in_order_within_ms: match options.beside {
            Some(_) => None,
            None => Some(u64::try_from(IN_ORDER_WITHIN.as_millis())?),
        },
        ends_within_ms: Some(u64::try_from(ENDS_WITHIN.as_millis())?),
        leases_exclude: !steps_server_clock,
        reads_are_current: servers.topology != Topology::AllWrite || servers.nodes.len() == 1,
    };
    setup.write(&directory)?;
    fs::write(Setup::shared(&directory), [])?;
    let (database, account, password) = prepare(&servers, options.names).await?;
    let canary = canaries::send(&servers.writer().options()?.database(&database)).await;
    let mut findings: Vec<String> = canary.into_iter().collect();
    let mut fleet = Fleet::new(&directory, options.beside.as_deref())?;
    for slot in 0..usize::from(options.workers) {
        let node = match servers.topology {
            Topology::AllWrite => slot % servers.nodes.len(),
            Topology::SinglePrimary => servers.writer().number,
        };
        let proxy = Proxy::before(&servers.nodes[node].url).await?;
        let url = worker_url(&servers.nodes[node].url, &account, &password, &database)?;
        let distance = setup.distance(u32::try_from(slot)?);
        fleet.add(proxy, &url, worker_clock(), distance);
    }
    let rig = Arc::new(Rig {
        setup,
        tallies: Tallies::of(&servers),
        servers,
        fleet,
        database,
        account,
        password,
        server_clocks,
        ending: watch::Sender::new(false),
        struck: std::sync::Mutex::default(),
        unavailable: std::sync::Mutex::default(),
    });
    for node in &rig.servers.nodes {
        rig.tallies.look(node).await;
    }
    for slot in &rig.fleet.slots {
        rig.fleet.start(slot)?;
    }
    let following = tokio::spawn(cluster::follow(Arc::clone(&rig)));
    let nemesis = Nemesis::start(&rig, faults, options.fault_gap)?;
    let began = Instant::now();
    let loaded = if findings.is_empty() {
        load(&rig, options).await
    } else {
        // It needs no load to be seen.
        Ok(Vec::new())
    };
    let seconds = began.elapsed().as_secs();
    eprintln!(
        "torture: mending, and waiting for {} workers",
        options.workers
    );
    rig.ending.send_replace(true);
    if rig.servers.nodes.len() > 1 {
        // What they go on to write, a node that comes back would have to catch up with.
        rig.fleet.dismiss();
    }
    // Also when the load failed: the server may not be ours alone.
    let unmended = nemesis.finish().await;
    mend(&rig).await;
    let mut problems = loaded?;
    problems.extend(unmended);
    // What follows may fail because of them.
    for problem in &problems {
        eprintln!("torture: {problem}");
    }
    rig.fleet.finish(PATIENCE).await;
    for node in &rig.servers.nodes {
        rig.tallies.look(node).await;
    }
    let last = final_state::read(&rig, resource.accepted()).await?;
    following.abort();
    let deadlocks = last.deadlocks;
    findings.extend(rig.fleet.findings());
    let unavailable = rig.unavailable.lock().map(|all| all.clone());
    let mut unavailable = unavailable.unwrap_or_default();
    unavailable.extend(rig.fleet.slots.iter().flat_map(|slot| slot.wire.silences()));
    Aftermath {
        workers: rig.fleet.workers(),
        last,
        unavailable,
        findings,
    }
    .write(&directory)?;
    clean_up(&rig).await;
    eprintln!("torture: judging");
    let judged_in = directory.clone();
    let judged = tokio::task::spawn_blocking(move || case::judge(&judged_in)).await??;
    let done = rig.fleet.progress();
    let report = Report {
        seed,
        workload: options.workload,
        server: match rig.servers.nodes.len() {
            1 => rig.servers.kind.clone(),
            nodes => format!("{}, {nodes} nodes", rig.servers.kind),
        },
        mutant: std::env::var(mutant_build::VARIABLE).ok(),
        seconds,
        workers: rig.fleet.workers(),
        operations: judged.operations,
        sections: done.sections,
        increments: done.increments,
        open: judged.open,
        faults: rig
            .struck()
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count))
            .collect(),
        deadlocks,
        timeouts: rig.tallies.timeouts(),
        conflicts: rig.tallies.conflicts(),
        worst_recovery: judged.worst_recovery / 1_000_000,
        worst_wait: judged
            .verdict
            .worst_wait
            .as_ref()
            .map_or(0, |(wait, _)| wait / 1_000_000),
        most_passed_over: judged.verdict.most_passed_over,
        most_overrun: judged.verdict.most_overrun / 1_000_000,
        readers_let_in: judged.verdict.readers_let_in / 1_000_000,
        checked: judged
            .verdict
            .checked
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect(),
        violations: judged.violations(),
        findings: judged.lines(),
        problems,
    };
    report.write(&directory)?;
    judged.write(&directory)?;
    if report.violations == 0 && !options.keep {
        remove_logs(&directory, report.workers);
    } else {
        eprintln!(
            "torture: the history is kept; judge it again with: torture judge {}",
            directory.display()
        );
    }
    Ok(report)
}

/// Lets the load run until its limit or all its targets are reached.
async fn load(rig: &Rig, options: &RunOptions) -> Result<Vec<String>, Failure> {
    let limit = options.limit();
    let began = Instant::now();
    let mut told = Instant::now();
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let mut terminated = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            _ = &mut interrupted => return Ok(vec!["interrupted".to_owned()]),
            _ = terminated.recv() => return Ok(vec!["terminated".to_owned()]),
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
        rig.fleet.replace_the_ended()?;
        let done = rig.fleet.progress();
        let faults: u64 = rig.struck().values().sum();
        if told.elapsed() >= TELL {
            told = Instant::now();
            for node in &rig.servers.nodes {
                rig.tallies.look(node).await;
            }
            eprintln!(
                "torture: {:>5} s  {:>9} operations  {:>8} sections  {:>8} increments  {:>5} faults",
                began.elapsed().as_secs(),
                done.operations,
                done.sections,
                done.increments,
                faults
            );
        }
        let targets = [
            (options.sections, done.sections),
            (options.increments, done.increments),
            (options.fault_count, faults),
        ];
        let reached = targets
            .iter()
            .all(|(target, so_far)| target.is_none_or(|target| *so_far >= target));
        let has_targets = targets.iter().any(|(target, _)| target.is_some());
        if (has_targets && reached) || limit.is_some_and(|limit| began.elapsed() >= limit) {
            return Ok(Vec::new());
        }
    }
}

/// Takes back what still waits in the proxies. Half-open connections are cut: they would last for ever.
async fn mend(rig: &Rig) {
    for slot in &rig.fleet.slots {
        slot.wire.disarm();
        slot.wire.proxy.cut_all();
        slot.wire.proxy.resume();
    }
    for clock in &rig.server_clocks {
        clock.step(0);
    }
}

/// A database with the tables, and an account that may do what an application may: it can be refused writes, and has
/// no connection to spare.
async fn prepare(servers: &Servers, names: u32) -> Result<(String, String, String), Failure> {
    let node = servers.writer();
    let database = format!("torture_{:08x}", rand::rng().random::<u32>());
    let password = format!("{:032x}", rand::rng().random::<u128>());
    let account = database.clone();
    node.run(&format!(
        "CREATE DATABASE {database} CHARACTER SET utf8mb4;
         CREATE USER '{account}'@'%' IDENTIFIED BY '{password}';
         GRANT SELECT, INSERT, UPDATE ON {database}.* TO '{account}'@'%'"
    ))
    .await?;
    for node in &servers.nodes {
        node.run("SET GLOBAL innodb_print_all_deadlocks = 1")
            .await?;
    }
    let options = node.options()?.database(&database);
    let client = LockClient::builder(options).connect().await?;
    client.migrate().await?;
    client.close(AtClose::Release).await;
    let mut connection: MySqlConnection = node.administrator().await?;
    bank::run(&mut connection, &format!("USE {database}")).await?;
    bank::run(&mut connection, bank::TABLES).await?;
    let accounts = [
        ("bank", names),
        (TOGETHER, names.min(CROWDED)),
        (SHARED_LOCKS, SHARED_NAMES),
    ];
    for (word, names) in accounts {
        for number in 0..names {
            let sql = format!("INSERT INTO account VALUES ('{word}:{number}', 0, 0, 0)");
            bank::run(&mut connection, &sql).await?;
        }
    }
    Ok((database, account, password))
}

async fn clean_up(rig: &Rig) {
    let sql = format!(
        "DROP DATABASE {}; DROP USER '{}'@'%'",
        rig.database, rig.account
    );
    if let Err(error) = rig.servers.writer().run(&sql).await {
        eprintln!("torture: the database {} stays: {error}", rig.database);
    }
}

/// The server's URL with another account and database.
fn worker_url(url: &str, account: &str, password: &str, database: &str) -> Result<String, Failure> {
    let unreadable =
        || format!("{url:?} is not of the form mysql://user:password@host:port/database");
    let (scheme, rest) = url.split_once("://").ok_or_else(unreadable)?;
    let (authority, _) = rest.split_once('/').ok_or_else(unreadable)?;
    let host = authority.rsplit('@').next().unwrap_or(authority);
    Ok(format!("{scheme}://{account}:{password}@{host}/{database}"))
}

/// How much longer than a ttl one may wait for a lock that nobody holds. A half-open connection costs the time limit of
/// a packet, at times of several one after another; a failover takes what the cluster takes.
fn patience(servers: &Servers, is_quiet: bool) -> Duration {
    Duration::from_secs(match (servers.nodes.len(), is_quiet) {
        (_, true) => 2,
        (1, false) => 10,
        (_, false) => 60,
    })
}

/// While a worker waits for a lock, the others have so many turns each at the most, on average. Whoever is fair to all has one each. Faults
/// cost the time limit of a packet or two, in which others have a turn every 20 ms or so. (A connection that falls silent costs a client more
/// turns than that on a quick machine, and is left out: [`Unavailable::silent`](crate::history::Unavailable::silent).)
///
/// Who is far away waits for a second before it wishes urgently, and those nearby have some sixty turns in that time.
fn rounds(workload: Workload, is_quiet: bool) -> u64 {
    match (workload, is_quiet) {
        (Workload::Crowd, true) => 30,
        (_, true) => 10,
        (Workload::Crowd, false) => 60,
        (_, false) => 30,
    }
}

/// A clock for a worker; without a C compiler there is none, and the fault is left out.
fn worker_clock() -> Option<Clock> {
    let compiles = std::process::Command::new("cc")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    compiles.then(Clock::here)
}

fn make_directory(options: &RunOptions, seed: u64) -> std::io::Result<PathBuf> {
    if let Some(directory) = &options.directory {
        fs::create_dir_all(directory.parent().unwrap_or(Path::new(".")))?;
        fs::create_dir(directory)?;
        return Ok(directory.clone());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/torture");
    fs::create_dir_all(&root)?;
    let workload = format!("{:?}", options.workload).to_lowercase();
    let directory = root.join(format!("{workload}-{seed}-{}", std::process::id()));
    fs::create_dir(&directory)?;
    directory.canonicalize()
}

fn remove_logs(directory: &Path, workers: u32) {
    for worker in 1..=workers {
        // One that was killed before it began has none.
        let _ = fs::remove_file(crate::log::path(directory, worker));
    }
}
