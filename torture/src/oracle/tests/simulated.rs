//! Histories of a lock and of counters as they should be, ambiguous operations and killed workers included.

use std::sync::Arc;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::history::{
    Committed, Event, FinalState, Invocation, Log, Operation, Outcome, Record, Unavailable,
};

pub(super) const TTL: u64 = 100_000_000;
/// A worker that always lives.
const WORKERS: u32 = 4;

/// A history, and what is left of it.
#[derive(Debug, Clone, Default)]
pub(super) struct World {
    pub(super) logs: Vec<Log>,
    pub(super) last: FinalState,
    pub(super) unavailable: Vec<Unavailable>,
}

impl World {
    /// Of about so many operations on each name.
    pub(super) fn simulate(seed: u64, length: usize) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut world = Self::default();
        for worker in 0..WORKERS {
            world.logs.push(Log {
                worker,
                complete: true,
                ..Log::default()
            });
        }
        for name in ["lock:a", "lock:b"] {
            Lock::new(&mut world, name).simulate(&mut random, length);
        }
        counter(&mut world, &mut random, "tickets", length, &[1], None);
        counter(&mut world, &mut random, "debt", length, &[-3], None);
        counter(&mut world, &mut random, "steps", length, &[2, 6, 10], None);
        counter(
            &mut world,
            &mut random,
            "stock",
            length,
            &[-1, -2, 5],
            Some((0, 12)),
        );
        world.alone(&mut random, length);
        world.reads(&mut random);
        world
    }

    /// A lock that one task has for itself.
    fn alone(&mut self, random: &mut ChaCha8Rng, length: usize) {
        let mut lock = Lock::new(self, "alone");
        let refused = Outcome::Refused;
        for _ in 0..length {
            let invoked = lock.pass(random);
            lock.pass(random);
            lock.token += 1;
            let token = lock.token;
            if random.random_bool(0.1) {
                let outcome = Outcome::Failed;
                lock.log(0, invoked, Event::NotGranted { outcome });
                continue;
            }
            lock.log(0, invoked, Event::Granted { token, ttl: TTL });
            let trusted_until = lock.pass(random);
            let end = Event::HeldUntil {
                token,
                trusted_until,
            };
            lock.log(0, trusted_until, end);
            if random.random_bool(0.1) {
                let invoked = lock.pass(random);
                lock.pass(random);
                lock.log(0, invoked, Event::NotGranted { outcome: refused });
            }
            let invoked = lock.pass(random);
            lock.pass(random);
            let outcome = Outcome::Done;
            lock.log(0, invoked, Event::Released { token, outcome });
            if random.random_bool(0.1) {
                // Granted, in an answer that was lost and settled.
                let invoked = lock.pass(random);
                lock.now += TTL;
                lock.log(0, invoked, Event::NotGranted { outcome: refused });
            }
        }
        // What became of the last one nobody knows, and so the lock may be held.
        for outcome in [Outcome::Unknown, refused] {
            let invoked = lock.pass(random);
            lock.pass(random);
            lock.log(0, invoked, Event::NotGranted { outcome });
        }
        let fence = (Arc::clone(&lock.name), lock.token);
        self.last.fences.push(fence);
    }

    /// Additions and reads, one after another.
    fn reads(&mut self, random: &mut ChaCha8Rng) {
        let name: Arc<str> = Arc::from("read");
        let mut now = 1_000_000_000;
        let mut total = 0;
        for _ in 0..20 {
            let delta = random.random_range(0..2);
            total += delta;
            let returned = now + random.random_range(1..1_000);
            let event = Event::Added {
                delta,
                low: None,
                high: None,
                value: Some(total),
                outcome: Outcome::Done,
            };
            self.ended(0, &name, (now, returned), event);
            now = returned + 1;
        }
        self.last.counters.push((name, total));
    }

    pub(super) fn records(&mut self) -> impl Iterator<Item = &mut Record> {
        self.logs.iter_mut().flat_map(|log| &mut log.records)
    }

    fn killed(&mut self) -> u32 {
        let worker = u32::try_from(self.logs.len()).expect("few");
        self.logs.push(Log {
            worker,
            ..Log::default()
        });
        worker
    }

    fn ended(
        &mut self,
        worker: u32,
        name: &Arc<str>,
        (invoked, returned): (u64, u64),
        event: Event,
    ) {
        self.logs[worker as usize].records.push(Record {
            worker,
            task: 0,
            name: Arc::clone(name),
            invoked,
            returned,
            event,
        });
    }

    fn open(&mut self, worker: u32, name: &Arc<str>, invoked: u64, operation: Operation) {
        self.logs[worker as usize].open.push(Invocation {
            worker,
            task: 0,
            name: Arc::clone(name),
            invoked,
            operation,
        });
    }
}

struct Lock<'w> {
    world: &'w mut World,
    name: Arc<str>,
    now: u64,
    token: u64,
    value: u64,
    balance: i64,
    /// A token before the newest one that wrote.
    outdated: Option<u64>,
}

impl<'w> Lock<'w> {
    fn new(world: &'w mut World, name: &str) -> Self {
        Self {
            world,
            name: Arc::from(name),
            now: 1_000_000_000,
            token: 1_000,
            value: 0,
            balance: 0,
            outdated: None,
        }
    }

    fn simulate(mut self, random: &mut ChaCha8Rng, length: usize) {
        for _ in 0..length {
            match random.random_range(0..100) {
                0..80 => self.hold(random, Outcome::Done),
                80..88 => self.hold(random, Outcome::Lost),
                88..94 => self.killed(random),
                _ => self.dropped(random),
            }
        }
        let last = &mut self.world.last;
        last.fences.push((Arc::clone(&self.name), self.token));
        last.accounts
            .push((Arc::clone(&self.name), [-self.balance, self.balance]));
    }

    fn pass(&mut self, random: &mut ChaCha8Rng) -> u64 {
        self.now += random.random_range(1_000..1_000_000);
        self.now
    }

    fn log(&mut self, worker: u32, from: u64, event: Event) {
        let (name, now) = (Arc::clone(&self.name), self.now);
        self.world.ended(worker, &name, (from, now), event);
    }

    fn grant(&mut self, random: &mut ChaCha8Rng, worker: u32) -> u64 {
        let granted = self.pass(random);
        self.pass(random);
        self.token += random.random_range(1..4);
        let token = self.token;
        let from = granted - random.random_range(1_000..20_000_000);
        self.log(worker, from, Event::Granted { token, ttl: TTL });
        token
    }

    fn hold(&mut self, random: &mut ChaCha8Rng, outcome: Outcome) {
        let worker = random.random_range(0..WORKERS);
        let token = self.grant(random, worker);
        let from = self.pass(random);
        let (read, wrote) = (self.value, token * 10);
        self.value = wrote;
        self.pass(random);
        self.log(worker, from, Event::Section { token, read, wrote });
        self.write(random, worker, token);
        if random.random_bool(0.5) {
            self.transfer(random, worker, token);
        }
        if random.random_bool(0.3) {
            let from = self.pass(random);
            self.pass(random);
            let other = (worker + 1) % WORKERS;
            let outcome = Outcome::Refused;
            self.log(other, from, Event::NotGranted { outcome });
        }
        let trusted_until = self.pass(random);
        if outcome == Outcome::Lost {
            // A section that began in time, and wrote before the lease was over, and ended late.
            let (read, wrote) = (self.value, token * 10 + 1);
            if random.random_bool(0.5) {
                self.value = wrote;
            }
            let name = Arc::clone(&self.name);
            let event = Event::Section { token, read, wrote };
            let late = trusted_until + random.random_range(1..TTL);
            self.world
                .ended(worker, &name, (trusted_until, late), event);
        }
        self.pass(random);
        self.log(
            worker,
            trusted_until,
            Event::HeldUntil {
                token,
                trusted_until,
            },
        );
        let from = self.pass(random);
        let free = self.pass(random);
        self.pass(random);
        self.log(worker, from, Event::Released { token, outcome });
        // The next one may be granted before the release has returned.
        self.now = free;
    }

    fn write(&mut self, random: &mut ChaCha8Rng, worker: u32, token: u64) {
        let from = self.pass(random);
        self.pass(random);
        self.log(
            worker,
            from,
            Event::FencedWrite {
                token,
                accepted: true,
            },
        );
        self.world
            .last
            .accepted
            .push((Arc::clone(&self.name), token));
        if let Some(token) = self.outdated.filter(|_| random.random_bool(0.2)) {
            let from = self.pass(random);
            self.pass(random);
            self.log(
                (worker + 1) % WORKERS,
                from,
                Event::FencedWrite {
                    token,
                    accepted: false,
                },
            );
        }
        self.outdated = Some(token);
    }

    fn transfer(&mut self, random: &mut ChaCha8Rng, worker: u32, token: u64) {
        let invoked = self.pass(random);
        let committing = self.pass(random);
        self.pass(random);
        let amount = random.random_range(-50..50);
        let outcome = match random.random_range(0..10) {
            0 => Outcome::Unknown,
            1 => Outcome::Failed,
            _ => Outcome::Done,
        };
        let event = Event::Transfer {
            token,
            amount,
            committing,
            outcome,
        };
        self.log(worker, invoked, event);
        if outcome == Outcome::Done || (outcome == Outcome::Unknown && random.random_bool(0.5)) {
            self.balance += amount;
            self.world.last.transfers.push(Committed {
                name: Arc::clone(&self.name),
                worker,
                task: 0,
                invoked,
                token,
                amount,
            });
        }
    }

    /// A worker that is killed in its section, or before it knows that it has the lock.
    fn killed(&mut self, random: &mut ChaCha8Rng) {
        let worker = self.world.killed();
        let name = Arc::clone(&self.name);
        if random.random_bool(0.5) {
            let invoked = self.pass(random);
            self.token += 1;
            self.world.open(worker, &name, invoked, Operation::Acquire);
        } else {
            let token = self.grant(random, worker);
            let (read, wrote) = (self.value, token * 10 + 2);
            let invoked = self.pass(random);
            let section = Operation::Section { token, read, wrote };
            self.world.open(worker, &name, invoked, section);
            if random.random_bool(0.5) {
                self.value = wrote;
            }
        }
        let death = self.pass(random);
        self.world.unavailable.push(Unavailable {
            worker: Some(worker),
            stopped: false,
            silent: false,
            from: death,
            to: death,
        });
        self.now += TTL;
    }

    /// An acquire whose future was dropped.
    fn dropped(&mut self, random: &mut ChaCha8Rng) {
        let from = self.pass(random);
        self.pass(random);
        let outcome = Outcome::Unknown;
        self.log(0, from, Event::NotGranted { outcome });
        self.token += 1;
    }
}

fn counter(
    world: &mut World,
    random: &mut ChaCha8Rng,
    name: &str,
    length: usize,
    deltas: &[i64],
    range: Option<(i64, i64)>,
) {
    let name: Arc<str> = Arc::from(name);
    let (low, high) = (range.map(|range| range.0), range.map(|range| range.1));
    let mut now = 1_000_000_000;
    let mut total = 0_i64;
    for _ in 0..length {
        now += random.random_range(1..1_000);
        let invoked = now - random.random_range(1..3_000);
        let returned = now + random.random_range(1..3_000);
        let worker = random.random_range(0..WORKERS);
        let delta = deltas[random.random_range(0..deltas.len())];
        let after = total + delta;
        let fits = low.is_none_or(|low| after >= low) && high.is_none_or(|high| after <= high);
        let (mut value, mut outcome) = (None, Outcome::Refused);
        match random.random_range(0..200) {
            0..2 => outcome = Outcome::Failed,
            2..6 => {
                outcome = Outcome::Unknown;
                if fits && random.random_bool(0.5) {
                    total = after;
                }
                if random.random_bool(0.5) {
                    world.open(worker, &name, invoked, Operation::Add { delta, low, high });
                    continue;
                }
            }
            _ if fits => {
                outcome = Outcome::Done;
                value = Some(after);
                total = after;
            }
            _ => {}
        }
        let event = Event::Added {
            delta,
            low,
            high,
            value,
            outcome,
        };
        world.ended(worker, &name, (invoked, returned), event);
    }
    world.last.counters.push((name, total));
}
