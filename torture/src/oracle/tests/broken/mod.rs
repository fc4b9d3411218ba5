//! Damage to a correct history, one for each thing that the oracle must find. `None`: there was nothing to damage.

mod counters;
mod locks;
mod places;
mod transactions;

use rand::rngs::ChaCha8Rng;

use super::simulated::World;
use crate::oracle::Kind;

type Damage = fn(&mut World, &mut ChaCha8Rng) -> Option<()>;

pub(super) const BREAKAGES: &[(&str, Kind, Damage)] = &[
    (
        "trusted too long",
        Kind::HoldsOverlap,
        locks::trusted_too_long,
    ),
    (
        "one token twice",
        Kind::TokenRepeated,
        locks::one_token_twice,
    ),
    ("tokens swapped", Kind::TokenFell, locks::tokens_swapped),
    (
        "a row behind its grants",
        Kind::TokenFell,
        locks::row_behind,
    ),
    (
        "a stale write accepted",
        Kind::StaleWriteAccepted,
        locks::stale_write,
    ),
    (
        "a resource that goes back",
        Kind::StaleWriteAccepted,
        locks::resource_goes_back,
    ),
    ("a write refused", Kind::WriteRefused, locks::write_refused),
    ("an update lost", Kind::LostUpdate, locks::update_lost),
    (
        "a lock that nobody gets",
        Kind::NotServed,
        locks::nobody_gets_it,
    ),
    ("a worker that starves", Kind::Overtaken, locks::starves),
    (
        "a free lock refused",
        Kind::NotServed,
        locks::free_lock_refused,
    ),
    (
        "a release undone",
        Kind::ReleaseUndone,
        locks::release_undone,
    ),
    (
        "an old value read",
        Kind::ValueOutOfOrder,
        counters::old_value_read,
    ),
    (
        "a lease without end",
        Kind::LeaseOutlived,
        locks::lease_without_end,
    ),
    ("an addition lost", Kind::WrongSum, counters::addition_lost),
    (
        "additions doubled",
        Kind::WrongSum,
        counters::addition_doubled,
    ),
    ("a value twice", Kind::WrongValue, counters::value_twice),
    ("values skipped", Kind::WrongValue, counters::values_skipped),
    (
        "values of a walk changed",
        Kind::WrongValue,
        counters::walk_changed,
    ),
    (
        "values swapped",
        Kind::ValueOutOfOrder,
        counters::values_swapped,
    ),
    (
        "a value of a walk out of reach",
        Kind::ValueOutOfOrder,
        counters::out_of_reach,
    ),
    (
        "values of a walk swapped",
        Kind::NotLinearizable,
        counters::walk_swapped,
    ),
    (
        "a release after the next grant",
        Kind::NotLinearizable,
        locks::late_release,
    ),
    (
        "below its bound",
        Kind::OutOfBounds,
        counters::below_its_bound,
    ),
    ("no room", Kind::RefusedWithRoom, counters::no_room),
    (
        "money from nowhere",
        Kind::WrongBalance,
        transactions::money_from_nowhere,
    ),
    (
        "a transfer lost",
        Kind::WrongLedger,
        transactions::transfer_lost,
    ),
    (
        "a transfer doubled",
        Kind::WrongLedger,
        transactions::transfer_doubled,
    ),
    (
        "a transfer that failed",
        Kind::WrongLedger,
        transactions::transfer_that_failed,
    ),
    (
        "a commit behind a grant",
        Kind::StaleCommit,
        transactions::late_commit,
    ),
    (
        "commits swapped",
        Kind::StaleCommit,
        transactions::commits_swapped,
    ),
    ("a deadlock", Kind::Deadlock, transactions::deadlock),
];
