//! Deliberate breakages, each of which takes away what one guarantee rests on.
//!
//! They show that the torture rig finds such faults. Only a build with `--cfg tag_lock_mutants` has
//! them, and only when the environment variable `TAG_LOCK_MUTANT` names one; in every other build each
//! question is the constant `false`.

macro_rules! mutants {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// What is broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Mutant {
            $($(#[doc = $doc])+ $variant,)+
        }

        /// The names of all mutants, and what each breaks.
        #[cfg(tag_lock_mutants)]
        pub const MUTANTS: &[(&str, &str)] = &[$(($name, concat!($($doc),+)),)+];

        #[cfg(tag_lock_mutants)]
        const VARIANTS: &[(&str, Mutant)] = &[$(($name, Mutant::$variant),)+];
    };
}

mutants! {
    /// A release frees the lock, whoever holds it.
    ReleaseOfOthers = "release-of-others",
    /// A lease that has not ended can be taken, and one that has cannot.
    DeadlineReversed = "deadline-reversed",
    /// Trust counts from the answer to a packet, not from its sending.
    TrustFromReply = "trust-from-reply",
    /// A holder trusts its lease until a renewal says that it is gone, however long that takes.
    LocalDeadlineIgnored = "local-deadline-ignored",
    /// A batch runs whatever its number is, so that it may run twice.
    BatchNumberIgnored = "batch-number-ignored",
    /// A settlement is believed without its commit, so that the batch may still run.
    SettlementUncommitted = "settlement-uncommitted",
    /// A settlement does not wait for a packet that is still running.
    SettlementUnlocked = "settlement-unlocked",
    /// A batch whose reply was lost runs again without being settled.
    BlindRetry = "blind-retry",
    /// An addition that was found not to have run is reported as done.
    FencedIsDone = "fenced-is-done",
    /// A grant does not raise the fence: fencing tokens repeat.
    FenceNotRaised = "fence-not-raised",
    /// A turn in memory has the fencing token of the turn before.
    TurnKeepsToken = "turn-keeps-token",
    /// A purge forgets the floor of fencing tokens.
    PurgeForgetsFloor = "purge-forgets-floor",
    /// A lease is still renewed after its release, which revives it.
    RenewalAfterRelease = "renewal-after-release",
    /// A lease that a transaction has used passes on in memory, while that transaction is open.
    TurnAfterVerify = "turn-after-verify",
    /// A verification inside a transaction does not look whose the lock is.
    VerifyUnchecked = "verify-unchecked",
    /// Bounded additions merge although their deltas differ.
    UnequalDeltasMerged = "unequal-deltas-merged",
    /// A bounded addition is carried out although the counter does not lie within its range.
    RangeUnchecked = "range-unchecked",
    /// A packet waits for rows that transactions hold, with its stripes locked.
    RowWait = "row-wait",
    /// A packet changes single rows by statements that some servers undo and report as done, and commits without a check.
    PacketUnchecked = "packet-unchecked",
    /// The same of a settlement.
    SettlementUnchecked = "settlement-unchecked",
    /// A grant that nobody is there to take is kept.
    AbandonedGrantKept = "abandoned-grant-kept",
    /// The first level of an owner's lock is taken for one whose process has died.
    LevelForgotten = "level-forgotten",
    /// Whoever has had the lock asks for it again at once, and is granted it though others wait, who look from time to time.
    NobodyGivesWay = "nobody-gives-way",
    /// Whoever comes asks for the lock at once and takes it, whether or not others wait, and for however long; and who is gone is let go first for ever.
    NewcomersOvertake = "newcomers-overtake",
    /// Whoever is far away looks as often as one nearby, and asks when it has seen that the lock is free.
    DistanceUnheeded = "distance-unheeded",
    /// Of a client's owners that wait the one that came last is asked for first.
    OwnersReversed = "owners-reversed",
    /// A level of an owner's lock whose process has died lasts for as long as the owner takes the lock.
    DeadLevelLasts = "dead-level-lasts",
    /// Whoever's time is over goes on to wait for the answer to its question.
    AnswerAwaited = "answer-awaited",
    /// Whoever's time is over before its question was answered goes away as if the lock were held.
    ShortWaitUnasked = "short-wait-unasked",
    /// The minimum hold counts although nobody got the guard.
    KeptForNobody = "kept-for-nobody",
    /// A client does not hear that somebody wants a lease that idles: neither the bell, nor what a renewal says.
    BellUnheard = "bell-unheard",
    /// An idle lease that has run out is taken again.
    IdleAfterTrust = "idle-after-trust",
    /// A lease that a transaction has used idles, and is taken again, while that transaction is open.
    LingerAfterVerify = "linger-after-verify",
    /// A slot whose work is done is released as one whose work has failed.
    FinishFrees = "finish-frees",
    /// A slot that is done stays so only until its lease would have ended.
    DoneEnds = "done-ends",
    /// A semaphore has a slot more than its number says.
    SlotBeyond = "slot-beyond",
    /// A permit that is granted, or passes on, is given to two tasks if two wait.
    PermitShared = "permit-shared",
    /// Of several permits that are asked for at once some are taken for all.
    PermitsInPart = "permits-in-part",
    /// Of several locks that are asked for at once each that is free is taken, and whoever has one believes to have all.
    GroupUnchecked = "group-unchecked",
    /// Of several locks a transaction verifies the first alone.
    GroupVerifiedInPart = "group-verified-in-part",
    /// A leadership passes on in memory to the next candidate of the process, as a turn of a lock does.
    LeadershipPassesOn = "leadership-passes-on",
    /// The work of a leader whose lease is lost goes on.
    LeaderWorksOn = "leader-works-on",
    /// Whoever wants a lock for itself does not look whether those who hold it shared still do.
    LiveShareUnseen = "live-share-unseen",
    /// Whoever wants a lock for itself forgets the shared holds whose rows somebody has locked.
    LockedShareUnseen = "locked-share-unseen",
    /// A shared hold begins although somebody holds the lock for itself.
    DoorOpensHeld = "door-opens-held",
    /// A downgrade leaves the lock free, beside the shared hold that it has made.
    DowngradeFrees = "downgrade-frees",
    /// Shared holds begin although a writer wishes that none does.
    WishUnheard = "wish-unheard",
    /// Stripes are read, not locked. Exclusion does not rest on them: the server's deadlock counter and
    /// its duplicate keys judge.
    StripeUnlocked = "stripe-unlocked",
    /// Another formula for stripes than the one that other versions use. Literal values judge.
    StripeFormula = "stripe-formula",
}

/// Whether this process is broken so.
#[cfg(not(tag_lock_mutants))]
pub(crate) const fn on(_: Mutant) -> bool {
    false
}

/// Whether this process is broken so.
#[cfg(tag_lock_mutants)]
pub(crate) fn on(mutant: Mutant) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<Mutant>> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(chosen) == Some(mutant)
}

/// What the environment names. A name that does not exist ends the process: a run that believes that
/// it is broken and is not would report that nothing was found.
#[cfg(tag_lock_mutants)]
fn chosen() -> Option<Mutant> {
    let name = std::env::var("TAG_LOCK_MUTANT").unwrap_or_default();
    if name.is_empty() {
        return None;
    }
    let known = VARIANTS.iter().find(|(known, _)| *known == name);
    let Some((_, mutant)) = known else {
        let names: Vec<&str> = VARIANTS.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "TAG_LOCK_MUTANT={name} is no mutant; use one of: {}",
            names.join(", ")
        );
        std::process::exit(2);
    };
    Some(*mutant)
}
