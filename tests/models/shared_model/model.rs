//! The rows of one name that is held shared and exclusively, as packets change them.
//!
//! A step is what InnoDB does at once: a statement locks rows (or passes over those that are locked), a plain query reads what is
//! committed, a `COMMIT` makes what a transaction wrote visible and lets go of its locks. What a transaction has written stands in
//! its step until then. Leases end at any moment, and any transaction may be rolled back.

/// Which of the rules hold. Each one that is off is a plausible variation.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A writer locks the active shared rows before it counts them.
    pub locks_rows: bool,
    /// A writer counts behind its locks, not before them.
    pub counts_last: bool,
    /// A shared row becomes active in a packet that has locked the door.
    pub activates_behind_door: bool,
    /// Whether readers are held is told by their rows, not by a count in the door.
    pub counts_rows: bool,
    /// The deadline of a door that is held shared never comes.
    pub door_never_ends: bool,
    /// A writer that is granted frees the shared rows.
    pub frees_rows: bool,
    /// A forced release frees nothing if one row was passed over.
    pub forced_needs_all: bool,
    /// A shared request waits behind a writer's wish.
    pub honours_wish: bool,
}

pub const RULES: Rules = Rules {
    locks_rows: true,
    counts_last: true,
    activates_behind_door: true,
    counts_rows: true,
    door_never_ends: true,
    frees_rows: true,
    forced_needs_all: true,
    honours_wish: true,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Door {
    Free,
    Exclusive {
        writer: u8,
        ended: bool,
    },
    /// `ended` only where its deadline may come.
    Shared {
        ended: bool,
    },
}

/// The row of one process that reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Row {
    pub active: bool,
    pub ended: bool,
    /// Its holder is the process's latest token.
    pub ours: bool,
}

impl Row {
    pub fn runs(self) -> bool {
        self.active && !self.ended
    }
}

/// What the transaction of a reader has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    Nothing,
    /// It has the door, or has seen it.
    Opening,
    Activating,
    Renewing,
    Releasing,
    /// The writer of this process becomes a reader.
    Downgrading,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Closing {
    Nothing,
    /// It has counted, and locked nothing.
    Counted {
        count: u8,
    },
    /// It has the door, which is held shared.
    HasDoor {
        count: u8,
    },
    /// It has locked these rows as well; all of them have ended.
    HasRows {
        rows: u8,
        ended: bool,
        count: u8,
    },
    /// What remains is to commit.
    Granted {
        rows: u8,
    },
}

/// What somebody wants of the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aim {
    Hold,
    /// An operator frees it, whoever holds it.
    Force,
    /// A purge, or a lane for somebody's transaction, frees it if all readers have ended.
    Close,
}

/// Somebody who wants the door for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Closer {
    pub aim: Aim,
    pub step: Closing,
}

/// Who has locked a row: nobody, a reader, or a closer.
pub type Lock = u8;
const NOBODY: Lock = 0;

fn reader_lock(reader: usize) -> Lock {
    1 + u8::try_from(reader).expect("few readers")
}

fn closer_lock(closer: usize) -> Lock {
    101 + u8::try_from(closer).expect("few closers")
}

pub const MOST: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub door: Door,
    pub door_lock: Lock,
    /// How many readers there are, where the door counts them.
    pub count: u8,
    pub wish: bool,
    pub rows: [Row; MOST],
    pub row_locks: [Lock; MOST],
    pub reading: [Reading; MOST],
    pub closers: [Closer; MOST],
}

impl State {
    /// Before anybody came.
    pub fn first() -> Self {
        let closer = |aim| Closer {
            aim,
            step: Closing::Nothing,
        };
        Self {
            door: Door::Free,
            door_lock: NOBODY,
            count: 0,
            wish: false,
            rows: [Row::default(); MOST],
            row_locks: [NOBODY; MOST],
            reading: [Reading::Nothing; MOST],
            closers: [closer(Aim::Hold); MOST],
        }
    }

    pub fn is_held_exclusively(&self) -> bool {
        matches!(self.door, Door::Exclusive { ended: false, .. })
    }

    /// An exclusive hold beside a shared one that is active.
    pub fn is_broken(&self) -> bool {
        self.is_held_exclusively() && self.rows.iter().any(|row| row.runs())
    }

    fn unlock(&mut self, lock: Lock) {
        let rows = self.row_locks.iter_mut();
        for held in rows.chain([&mut self.door_lock]) {
            if *held == lock {
                *held = NOBODY;
            }
        }
    }
}

/// What kind of step it is, for what is said about ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It begins to make a shared row active.
    Enters,
    /// A reader goes on holding: a renewal begins.
    Stays,
    /// A reader begins to release.
    Leaves,
    /// A transaction that has begun goes on, a writer does something, or a lease ends.
    Goes,
    /// An operator, a purge, or the end of a wish.
    Meddles,
}

/// All steps from a state.
pub struct Steps<'r> {
    pub rules: &'r Rules,
    pub readers: usize,
    pub writers: usize,
}

impl Steps<'_> {
    pub fn each(&self, state: &State, mut to: impl FnMut(Kind, State)) {
        let next = &mut to;
        for reader in 0..self.readers {
            self.of_reader(state, reader, next);
        }
        for writer in 0..self.writers {
            self.of_closer(state, writer, next);
            self.of_writer(state, writer, next);
        }
        // The last one is not a writer.
        let operator = self.writers;
        if state.closers[operator].step == Closing::Nothing {
            for aim in [Aim::Force, Aim::Close] {
                let mut with = *state;
                with.closers[operator].aim = aim;
                self.of_closer(&with, operator, &mut |_, state| next(Kind::Meddles, state));
            }
        } else {
            self.of_closer(state, operator, next);
        }
        self.of_time(state, next);
    }

    fn of_time(&self, state: &State, next: &mut impl FnMut(Kind, State)) {
        for row in 0..self.readers {
            if state.rows[row].runs() {
                let mut after = *state;
                after.rows[row].ended = true;
                next(Kind::Goes, after);
            }
            // A purge.
            if state.rows[row].active && state.rows[row].ended && state.row_locks[row] == NOBODY {
                let mut after = *state;
                after.rows[row] = Row::default();
                next(Kind::Meddles, after);
            }
        }
        let mut after = *state;
        match &mut after.door {
            Door::Exclusive { ended, .. } if !*ended => {
                *ended = true;
                next(Kind::Goes, after);
            }
            Door::Shared { ended } if !*ended && !self.rules.door_never_ends => {
                *ended = true;
                next(Kind::Goes, after);
            }
            _ => {}
        }
        if state.wish {
            next(
                Kind::Meddles,
                State {
                    wish: false,
                    ..*state
                },
            );
        }
    }

    /// Whether a shared row may become active.
    fn admits(&self, state: &State) -> bool {
        match state.door {
            Door::Free | Door::Exclusive { ended: true, .. } => true,
            Door::Exclusive { .. } => false,
            Door::Shared { .. } => !(state.wish && self.rules.honours_wish),
        }
    }

    fn of_reader(&self, state: &State, reader: usize, next: &mut impl FnMut(Kind, State)) {
        let lock = reader_lock(reader);
        let row = state.rows[reader];
        let row_is_had = state.row_locks[reader] == NOBODY;
        let step = state.reading[reader];
        let begin = |step, kind, next: &mut dyn FnMut(Kind, State)| {
            let mut after = *state;
            after.row_locks[reader] = lock;
            after.reading[reader] = step;
            next(kind, after);
        };
        let commit = |change: &dyn Fn(&mut State)| {
            let mut after = *state;
            change(&mut after);
            after.reading[reader] = Reading::Nothing;
            after.unlock(lock);
            after
        };
        match step {
            Reading::Nothing => {
                let door_is_had = state.door_lock == NOBODY;
                let behind_door = self.rules.activates_behind_door;
                if !row.runs() && self.admits(state) && (door_is_had || !behind_door) {
                    let mut after = *state;
                    if behind_door {
                        after.door_lock = lock;
                    }
                    after.reading[reader] = Reading::Opening;
                    next(Kind::Enters, after);
                }
                if row.active && row.ours && row_is_had {
                    begin(Reading::Releasing, Kind::Leaves, next);
                    // A transaction of the holder's revives what nobody has freed; a packet only what has not ended.
                    begin(Reading::Renewing, Kind::Stays, next);
                }
                let ours = Door::Exclusive {
                    writer: u8::try_from(reader).expect("few"),
                    ended: false,
                };
                if state.door == ours && door_is_had && row_is_had && !row.runs() {
                    let mut after = *state;
                    after.door_lock = lock;
                    after.row_locks[reader] = lock;
                    after.reading[reader] = Reading::Downgrading;
                    next(Kind::Enters, after);
                }
            }
            Reading::Opening if row_is_had => begin(Reading::Activating, Kind::Goes, next),
            Reading::Opening => {}
            Reading::Activating | Reading::Downgrading => {
                let writes_door = self.rules.activates_behind_door;
                let counts = !self.rules.counts_rows;
                next(
                    Kind::Goes,
                    commit(&|state| {
                        let shared = matches!(state.door, Door::Shared { .. });
                        if writes_door || shared || state.door == Door::Free {
                            state.door = Door::Shared { ended: false };
                        }
                        if counts {
                            state.count =
                                (state.count + u8::from(!state.rows[reader].active)).min(3);
                        }
                        state.rows[reader] = Row {
                            active: true,
                            ended: false,
                            ours: true,
                        };
                    }),
                );
            }
            Reading::Renewing => {
                next(
                    Kind::Goes,
                    commit(&|state| state.rows[reader].ended = false),
                );
            }
            Reading::Releasing => {
                next(
                    Kind::Goes,
                    commit(&|state| {
                        state.rows[reader].active = false;
                        state.count = state.count.saturating_sub(1);
                    }),
                );
            }
        }
        if step != Reading::Nothing {
            next(Kind::Goes, commit(&|_| {}));
        }
    }

    /// What a writer does beside asking.
    fn of_writer(&self, state: &State, writer: usize, next: &mut impl FnMut(Kind, State)) {
        let holds = matches!(state.door, Door::Exclusive { writer: held, .. } if usize::from(held) == writer);
        if holds && state.door_lock == NOBODY {
            let mut after = *state;
            after.door = Door::Free;
            next(Kind::Goes, after);
        }
        if matches!(state.door, Door::Shared { .. }) && !state.wish {
            next(
                Kind::Goes,
                State {
                    wish: true,
                    ..*state
                },
            );
        }
    }

    fn counted(&self, state: &State) -> u8 {
        let rows = state.rows.iter();
        let counted = if !self.rules.counts_rows {
            return state.count;
        } else if self.rules.locks_rows {
            rows.filter(|row| row.active).count()
        } else {
            rows.filter(|row| row.runs()).count()
        };
        u8::try_from(counted).expect("few")
    }

    fn of_closer(&self, state: &State, closer: usize, next: &mut impl FnMut(Kind, State)) {
        let lock = closer_lock(closer);
        let Closer { aim, step } = state.closers[closer];
        let go = |step| {
            let mut after = *state;
            after.closers[closer].step = step;
            after
        };
        match step {
            Closing::Nothing if !self.rules.counts_last => {
                let count = self.counted(state);
                next(Kind::Goes, go(Closing::Counted { count }));
            }
            Closing::Nothing | Closing::Counted { .. } if state.door_lock == NOBODY => {
                let count = match step {
                    Closing::Counted { count } => count,
                    _ => 0,
                };
                let free = match state.door {
                    Door::Free => aim == Aim::Hold,
                    Door::Exclusive { ended, .. } => match aim {
                        Aim::Hold => ended,
                        Aim::Force => true,
                        Aim::Close => false,
                    },
                    Door::Shared { ended: true } => true,
                    Door::Shared { ended: false } => {
                        let mut after = go(Closing::HasDoor { count });
                        after.door_lock = lock;
                        next(Kind::Goes, after);
                        false
                    }
                };
                if free {
                    let mut after = go(Closing::Granted { rows: 0 });
                    after.door_lock = lock;
                    next(Kind::Goes, after);
                }
            }
            Closing::Nothing | Closing::Counted { .. } => {}
            Closing::HasDoor { count } => {
                let mut after = *state;
                let (mut rows, mut ended) = (0_u8, true);
                if self.rules.locks_rows && self.rules.counts_rows {
                    for (row, held) in after.row_locks.iter_mut().enumerate() {
                        if state.rows[row].active && *held == NOBODY {
                            *held = lock;
                            rows |= 1 << row;
                            ended &= state.rows[row].ended;
                        }
                    }
                }
                after.closers[closer].step = Closing::HasRows { rows, ended, count };
                next(Kind::Goes, after);
            }
            Closing::HasRows { rows, ended, count } => {
                let count = if self.rules.counts_last {
                    self.counted(state)
                } else {
                    count
                };
                let had = u8::try_from(rows.count_ones()).expect("few");
                let all = had == count || (aim == Aim::Force && !self.rules.forced_needs_all);
                if all && (ended || aim == Aim::Force) {
                    next(Kind::Goes, go(Closing::Granted { rows }));
                }
            }
            Closing::Granted { rows } => {
                let mut after = go(Closing::Nothing);
                after.closers[closer].aim = Aim::Hold;
                after.door = match aim {
                    Aim::Hold => Door::Exclusive {
                        writer: u8::try_from(closer).expect("few"),
                        ended: false,
                    },
                    Aim::Force | Aim::Close => Door::Free,
                };
                after.count = 0;
                // The grant answers the wish.
                after.wish = false;
                if self.rules.frees_rows || aim == Aim::Force {
                    for (row, freed) in after.rows.iter_mut().enumerate() {
                        if rows & 1 << row != 0 {
                            *freed = Row::default();
                        }
                    }
                }
                after.unlock(lock);
                next(Kind::Goes, after);
            }
        }
        if step != Closing::Nothing {
            let mut after = go(Closing::Nothing);
            after.closers[closer].aim = Aim::Hold;
            after.unlock(lock);
            next(Kind::Goes, after);
        }
    }
}
