//! One lock, wanted at once by all kinds of clients: some that last, some that live for one turn, owners, some far away, some that poll,
//! and transactions. Everybody has a fair share of what its kind has, and nobody waits for more than three rounds: while he waits, there
//! is one of the others who has no more than three turns.
//!
//! `TAG_LOCK_TEST_SECONDS` is for how long they compete at the least; they go on until there is enough to judge by.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use sqlx::Connection as _;
use tag_lock::{AtClose, Error, LockClient};
use tokio::task::JoinSet;

use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, alone, connected, patient, run};

/// For how long each has the lock.
const HOLD: Duration = Duration::from_millis(2);
/// How long a message takes from a client far away to the server, and back.
const WAY: Duration = Duration::from_millis(75);
/// Each of those who wait has so many turns, before all are compared.
const ENOUGH: u32 = 10;
/// Each of those who poll has so many.
const ENOUGH_BY_LUCK: u32 = 3;
/// If somebody has not had them by then, and each of the others many, he starves.
const LONG: Duration = Duration::from_secs(300);
const MANY: u32 = 5 * ENOUGH;
/// If somebody has not had them by then, all stand still.
const FOR_EVER: Duration = Duration::from_secs(1_200);
/// Nobody waits while all the others have more turns than this, each of them.
const ROUNDS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lasting,
    OneTurn,
    Owner,
    Far,
    Transaction,
    /// It never waits: it is told that the lock is held.
    Polling,
}

const KINDS: [(Kind, u32); 6] = [
    (Kind::Lasting, 3),
    (Kind::OneTurn, 3),
    (Kind::Owner, 3),
    (Kind::Far, 2),
    (Kind::Transaction, 2),
    (Kind::Polling, 3),
];

impl Kind {
    fn enough(self) -> u32 {
        match self {
            Kind::Polling => ENOUGH_BY_LUCK,
            _ => ENOUGH,
        }
    }

    /// How many turns each must have had, where `members` of this kind have had `turns` together: half of an equal share. By luck alone one in ten
    /// thousand has less than four standard deviations below an equal share.
    fn least(self, members: u32, turns: u32) -> f64 {
        let share = f64::from(turns) / f64::from(members);
        let deviation = (share * (1.0 - 1.0 / f64::from(members))).sqrt();
        match self {
            Kind::Polling => (share / 2.0).min(share - 4.0 * deviation),
            _ => share / 2.0,
        }
    }
}

/// Everybody, by their numbers.
fn everybody() -> Vec<Kind> {
    let of_kind = |(kind, members)| (0..members).map(move |_| kind);
    KINDS.into_iter().flat_map(of_kind).collect()
}

struct Turn {
    who: usize,
    asked: Instant,
    granted: Instant,
}

#[derive(Default)]
struct Contest {
    turns: Mutex<Vec<Turn>>,
    over: AtomicBool,
}

impl Contest {
    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Holds the lock for a while.
    async fn had(&self, who: usize, asked: Instant) {
        let granted = Instant::now();
        self.turns.lock().unwrap().push(Turn {
            who,
            asked,
            granted,
        });
        tokio::time::sleep(HOLD).await;
    }

    async fn lease(&self, who: usize, client: &LockClient, owner: Option<String>) {
        let mut request = client.lock("x");
        if let Some(owner) = owner {
            request = request.owner(owner);
        }
        let asked = Instant::now();
        let guard = request.acquire().await.unwrap();
        self.had(who, asked).await;
        guard.release().await.unwrap();
    }

    async fn poll(&self, who: usize, client: &LockClient) {
        let asked = Instant::now();
        match client.lock("x").try_acquire().await.unwrap() {
            Some(guard) => {
                self.had(who, asked).await;
                guard.release().await.unwrap();
            }
            None => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }

    async fn transactions(&self, who: usize, database: &TestDatabase) {
        let client = database.client().await;
        let mut connection = database.connection().await;
        while !self.is_over() {
            let asked = Instant::now();
            loop {
                let mut transaction = connection.begin().await.unwrap();
                match client.lock_in(&mut transaction, "x").await {
                    Ok(_) => {
                        self.had(who, asked).await;
                        transaction.commit().await.unwrap();
                        break;
                    }
                    // A lease got it between the look and the statement: the transaction is run again.
                    Err(Error::Timeout { .. }) => transaction.rollback().await.unwrap(),
                    Err(error) => panic!("{error}"),
                }
                if self.is_over() {
                    return;
                }
            }
        }
    }

    /// Until everybody has had enough turns.
    async fn watch(&self, start: Instant, seconds: u64) {
        let everybody = everybody();
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let turns = self.count();
            let few: Vec<usize> = (0..everybody.len())
                .filter(|who| turns[*who] < everybody[*who].enough())
                .collect();
            if few.is_empty() && start.elapsed() >= Duration::from_secs(seconds) {
                break;
            }
            let others = turns
                .iter()
                .enumerate()
                .filter(|(who, _)| !few.contains(who));
            let many = others.map(|(_, turns)| *turns).min() >= Some(MANY);
            let limit = if many { LONG } else { FOR_EVER };
            assert!(
                few.is_empty() || start.elapsed() < limit,
                "{few:?} starve: {everybody:?} had {turns:?} turns"
            );
        }
        self.over.store(true, Relaxed);
    }

    fn count(&self) -> Vec<u32> {
        let mut turns = vec![0; everybody().len()];
        for turn in self.turns.lock().unwrap().iter() {
            turns[turn.who] += 1;
        }
        turns
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_has_a_share_whatever_else_there_is() {
    let _alone = alone().await;
    let seconds = std::env::var("TAG_LOCK_TEST_SECONDS").ok();
    let seconds = seconds.map_or(0, |seconds| seconds.parse().expect("a number of seconds"));
    let database: &TestDatabase = Box::leak(Box::new(TestDatabase::new().await));
    let contest: &Contest = Box::leak(Box::default());
    let proxy = Proxy::before(&database.url).await.unwrap();
    let owners = database.client().await;
    let mut tasks = JoinSet::new();
    for (who, kind) in everybody().into_iter().enumerate() {
        let owners = owners.clone();
        let far = connected(patient(&proxy.url(&database.url))).await;
        // It has its connections by the time that they are slow.
        contest.lease(who, &far, None).await;
        tasks.spawn(async move {
            let near = database.client().await;
            while !contest.is_over() {
                match kind {
                    Kind::Lasting => contest.lease(who, &near, None).await,
                    Kind::OneTurn => {
                        let client = database.client().await;
                        contest.lease(who, &client, None).await;
                        client.close(AtClose::Release).await;
                    }
                    Kind::Owner => contest.lease(who, &owners, Some(format!("{who}"))).await,
                    Kind::Far => contest.lease(who, &far, None).await,
                    Kind::Transaction => contest.transactions(who, database).await,
                    Kind::Polling => contest.poll(who, &near).await,
                }
            }
        });
    }
    proxy.set_delay(WAY, WAY);
    contest.turns.lock().unwrap().clear();
    let start = Instant::now();
    contest.watch(start, seconds).await;
    let lasted = start.elapsed();
    // Judged from what there was while all competed.
    let turns = contest.count();
    let longest = longest_waits(&contest.turns.lock().unwrap());
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let everybody = everybody();
    println!("in {lasted:?}:");
    let mut unfair = Vec::new();
    for (kind, members) in KINDS {
        let of_kind = |all: &[u32]| -> Vec<u32> {
            let those = all.iter().zip(&everybody).filter(|(_, of)| **of == kind);
            those.map(|(one, _)| *one).collect()
        };
        let (turns, waits) = (of_kind(&turns), of_kind(&longest));
        println!("{kind:?}: {turns:?} turns; longest waits {waits:?} rounds");
        let least = f64::from(*turns.iter().min().unwrap());
        let most = *waits.iter().max().unwrap();
        if least < kind.least(members, turns.iter().sum()) || most > ROUNDS {
            unfair.push(kind);
        }
    }
    if !unfair.is_empty() {
        println!("{}", told(&contest.turns.lock().unwrap()));
    }
    assert!(unfair.is_empty(), "{unfair:?}");
    let mut connection = database.connection().await;
    run(&mut connection, &format!("DROP DATABASE {}", database.name)).await;
}

/// All turns in their order: when they were granted, whose, and how long he had waited, in milliseconds.
fn told(turns: &[Turn]) -> String {
    let kinds = everybody();
    let began = turns.first().map(|turn| turn.asked);
    let line = |turn: &Turn| {
        let at = began.map_or(Duration::ZERO, |began| turn.granted - began);
        let waited = turn.granted - turn.asked;
        let (who, kind) = (turn.who, kinds[turn.who]);
        format!("{} {kind:?}-{who} {}", at.as_millis(), waited.as_millis())
    };
    turns.iter().map(line).collect::<Vec<_>>().join("; ")
}

/// By who waited: how many turns all the others who wait had meanwhile, each of them, at the most.
fn longest_waits(turns: &[Turn]) -> Vec<u32> {
    let kinds = everybody();
    let mut longest = vec![0; kinds.len()];
    for (number, turn) in turns.iter().enumerate() {
        let mut had = vec![0; kinds.len()];
        let before = turns[..number].iter().rev();
        for other in before.take_while(|other| other.granted > turn.asked) {
            had[other.who] += 1;
        }
        // Who polls does not wait, and has no turns as long as others do.
        let others =
            (0..kinds.len()).filter(|who| *who != turn.who && kinds[*who] != Kind::Polling);
        let rounds = others.map(|who| had[who]).min().unwrap_or_default();
        longest[turn.who] = longest[turn.who].max(rounds);
    }
    longest
}
