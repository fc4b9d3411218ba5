//! What is so of every kind of hold, written once and run over each: exclusion, waiting, release, loss, names. The kinds are in
//! `kinds.rs`; the lists of them are at the end. (That nobody releases twice is the compiler's: a release takes the guard.)

mod kinds;

use std::any::TypeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tag_lock::{AtClose, Error, LockClient};
use tokio::task::JoinSet;

use self::kinds::{Guard, Kind, Tries, WaitsFor};
use crate::support::TestDatabase;
use crate::support::lateness::with_ttl;

/// Time for a wait to begin; a slow machine makes the test easier to pass, not harder.
const MOMENT: Duration = Duration::from_millis(50);

async fn it_is_held_and_released<K: Kind>() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut before = 0;
    for _ in 0..5 {
        let guard = K::take(&client, "n").await.unwrap();
        assert!(guard.is_held() && !guard.lost().is_cancelled());
        assert!(guard.token() > before, "tokens rise");
        before = guard.token();
        guard.release().await.unwrap();
    }
    database.remove().await;
}

async fn a_dropped_guard_frees_it<K: Kind>() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    drop(K::take(&one, "n").await.unwrap());
    K::take(&other, "n").await.unwrap().release().await.unwrap();
    drop(K::take(&one, "n").await.unwrap());
    K::take(&one, "n").await.unwrap().release().await.unwrap();
    database.remove().await;
}

async fn another_task_releases_it<K: Kind>() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let guard = K::take(&one, "n").await.unwrap();
    tokio::spawn(guard.release()).await.unwrap().unwrap();
    K::take(&other, "n").await.unwrap().release().await.unwrap();
    database.remove().await;
}

async fn many_names_are_held_at_once<K: Kind>() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let names: Vec<String> = (0..40).map(|number| format!("n:{number}")).collect();
    let guards = join_all(names.iter().map(|name| K::take(&client, name))).await;
    let guards: Vec<K::Guard> = guards.into_iter().map(Result::unwrap).collect();
    assert!(guards.iter().all(Guard::is_held));
    for released in join_all(guards.into_iter().map(Guard::release)).await {
        released.unwrap();
    }
    database.remove().await;
}

async fn names_may_be_long<K: Kind>() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    for letter in ["n", "💥"] {
        let name = letter.repeat(K::LONGEST);
        K::take(&client, &name)
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        let error = K::take(&client, &letter.repeat(K::LONGEST + 1)).await.err();
        assert!(
            matches!(error, Some(Error::InvalidName { .. })),
            "{error:?}"
        );
    }
    database.remove().await;
}

/// All are held at once: none is another one.
async fn a_name_is_only_itself<K: Kind>() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let names = [
        "a",
        "A",
        "á",
        "a\u{301}",
        " a",
        "a b",
        "a\u{a0}",
        "a\u{1}",
        "'",
        "\\",
        "\"",
        "`",
        "%",
        "_",
        "?",
        "--",
        "#",
        "@",
        "ß",
        "ss",
        "i",
        "ı",
        "💥",
        "🎁",
        "center_lock_00",
    ];
    let names = names
        .into_iter()
        .filter(|name| !name.contains(K::FORBIDDEN));
    let taking = names.map(async |name| (name, K::take(&client, name).await));
    for (name, guard) in join_all(taking).await {
        assert!(guard.as_ref().is_ok_and(Guard::is_held), "{name:?}");
        // Held until the last one is looked at.
        std::mem::forget(guard);
    }
    for wrong in ["", "a "] {
        let error = K::take(&client, wrong).await.err();
        assert!(
            matches!(error, Some(Error::InvalidName { .. })),
            "{wrong:?}: {error:?}"
        );
    }
    database.remove().await;
}

/// Takes it a few times. `inside` counts those who have it, and those who have what it excludes.
async fn comes_and_goes<K: Kind>(client: LockClient, inside: [Arc<AtomicU32>; 2]) {
    let [own, others] = inside;
    for _ in 0..3 {
        let guard = K::take(&client, "n").await.unwrap();
        let before = own.fetch_add(1, Ordering::SeqCst);
        assert!(before == 0 || !K::ALONE, "alone");
        tokio::task::yield_now().await;
        assert_eq!(others.load(Ordering::SeqCst), 0, "without the other kind");
        assert!(guard.is_held());
        let after = own.fetch_sub(1, Ordering::SeqCst);
        assert!(after == 1 || !K::ALONE, "alone");
        guard.release().await.unwrap();
    }
}

async fn none_has_it_beside_another<K: Kind>() {
    let database = TestDatabase::new().await;
    let clients = [database.client().await, database.client().await];
    let inside: [Arc<AtomicU32>; 2] = Default::default();
    let [own, others] = inside.clone();
    let mut tasks = JoinSet::new();
    for number in 0..16 {
        let client = clients[number / 2 % 2].clone();
        // Of what excludes itself nobody counts on the other side.
        if number % 2 == 0 || is_its_own_against::<K>() {
            tasks.spawn(comes_and_goes::<K>(client, inside.clone()));
        } else {
            let inside = [Arc::clone(&others), Arc::clone(&own)];
            tasks.spawn(comes_and_goes::<K::Against>(client, inside));
        }
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    database.remove().await;
}

fn is_its_own_against<K: Kind>() -> bool {
    TypeId::of::<K>() == TypeId::of::<K::Against>()
}

async fn who_waits_has_it_next<K: Kind>() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    for waits in [one.clone(), other] {
        let guard = K::take(&one, "n").await.unwrap();
        let waiting = tokio::spawn(async move { K::Against::take(&waits, "n").await });
        tokio::time::sleep(MOMENT).await;
        assert!(!waiting.is_finished(), "it is held");
        let token = guard.token();
        guard.release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        assert!(next.token() > token);
        next.release().await.unwrap();
    }
    database.remove().await;
}

async fn a_wait_that_is_dropped_leaves_nothing<K: Kind>() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let guard = K::take(&one, "n").await.unwrap();
    for waits in [&one, &other] {
        let waiting = tokio::time::timeout(MOMENT, K::Against::take(waits, "n")).await;
        assert!(waiting.is_err(), "it is held");
    }
    guard.release().await.unwrap();
    for client in [&one, &other] {
        let guard = K::Against::take(client, "n").await.unwrap();
        guard.release().await.unwrap();
        K::take(client, "n").await.unwrap().release().await.unwrap();
    }
    database.remove().await;
}

async fn force_takes_it_away<K: Kind>() {
    let database = TestDatabase::new().await;
    let (one, operator) = (database.client().await, database.client().await);
    assert!(!K::free_by_force(&operator, "n").await.unwrap());
    let guard = K::take(&one, "n").await.unwrap();
    assert!(K::free_by_force(&operator, "n").await.unwrap());
    assert!(!K::free_by_force(&operator, "n").await.unwrap());
    let error = guard.release().await.err();
    let told = matches!(error, Some(Error::LockLost { .. }));
    assert_eq!(told, K::RELEASE_TELLS, "{error:?}");
    K::take(&operator, "n")
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    database.remove().await;
}

async fn a_closed_client_gives_it_back<K: Kind>() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let guard = K::take(&one, "n").await.unwrap();
    one.close(AtClose::Release).await;
    assert!(!guard.is_held());
    K::take(&other, "n").await.unwrap().release().await.unwrap();
    let error = K::take(&one, "n").await.err();
    assert!(matches!(error, Some(Error::Closed)), "{error:?}");
    database.remove().await;
}

async fn an_attempt_takes_what_is_free<K: Tries>() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    for client in [&one, &other] {
        let guard = K::try_take(client, "n").await.unwrap().expect("it is free");
        guard.release().await.unwrap();
    }
    database.remove().await;
}

async fn an_attempt_at_what_is_held_is_in_vain<K: Tries<Against: Tries>>() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let guard = K::take(&one, "n").await.unwrap();
    for client in [&one, &other] {
        let attempt = K::Against::try_take(client, "n").await;
        assert!(attempt.unwrap().is_none());
    }
    assert!(guard.is_held());
    guard.release().await.unwrap();
    database.remove().await;
}

async fn of_many_attempts_none_stands_beside_another<K: Tries<Against: Tries>>() {
    let database = TestDatabase::new().await;
    let clients = [database.client().await, database.client().await];
    let attempts = (0..10).map(|number| K::try_take(&clients[number % 2], "n"));
    let against = (0..10).map(|number| K::Against::try_take(&clients[number % 2], "n"));
    let (guards, against) = tokio::join!(join_all(attempts), join_all(against));
    let guards: Vec<K::Guard> = guards.into_iter().filter_map(Result::unwrap).collect();
    let against: Vec<_> = against.into_iter().filter_map(Result::unwrap).collect();
    assert!(guards.is_empty() || against.is_empty());
    assert!(!guards.is_empty() || !against.is_empty(), "somebody has it");
    assert!(guards.len() <= 1 || !K::ALONE);
    assert!(against.len() <= 1 || !K::Against::ALONE);
    database.remove().await;
}

async fn a_wait_ends_when_it_says<K: WaitsFor<Against: WaitsFor>>() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let guard = K::take(&one, "n").await.unwrap();
    for client in [&one, &other] {
        for wait in [Duration::ZERO, 4 * MOMENT] {
            let start = Instant::now();
            let error = K::Against::take_within(client, "n", wait).await.err();
            assert!(matches!(error, Some(Error::Timeout { .. })), "{error:?}");
            assert!(start.elapsed() >= wait);
        }
    }
    assert!(guard.is_held());
    guard.release().await.unwrap();
    database.remove().await;
}

async fn who_waited_in_vain_asks_again<K: WaitsFor<Against: WaitsFor>>() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    for client in [&one, &other] {
        let guard = K::take(&one, "n").await.unwrap();
        let error = K::Against::take_within(client, "n", MOMENT).await.err();
        assert!(matches!(error, Some(Error::Timeout { .. })), "{error:?}");
        guard.release().await.unwrap();
        let guard = K::Against::take(client, "n").await.unwrap();
        guard.release().await.unwrap();
    }
    database.remove().await;
}

async fn no_time_is_enough_for_what_is_free<K: WaitsFor>() {
    // A server that does not answer at once is told from a lock that is free.
    with_ttl(Duration::from_secs(2), async |_| {
        let database = TestDatabase::new().await;
        let client = database.client().await;
        for _ in 0..3 {
            let guard = K::take_within(&client, "n", Duration::ZERO).await.unwrap();
            guard.release().await.unwrap();
        }
        database.remove().await;
    })
    .await;
}

async fn a_wait_is_served_in_its_time<K: WaitsFor<Against: WaitsFor>>() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    for waits in [one.clone(), other] {
        let guard = K::take(&one, "n").await.unwrap();
        // More than any machine needs.
        let wait = Duration::from_secs(600);
        let waiting = tokio::spawn(async move { K::Against::take_within(&waits, "n", wait).await });
        tokio::time::sleep(MOMENT).await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    database.remove().await;
}

macro_rules! each {
    ($kind:ident: $($test:ident)+) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            super::$test::<super::kinds::$kind>().await;
        })+
    };
}

/// The tests of every kind, in a module of the kind's name.
macro_rules! every {
    ($($module:ident, $kind:ident;)+) => {
        $(mod $module {
            each!($kind: it_is_held_and_released a_dropped_guard_frees_it another_task_releases_it
                many_names_are_held_at_once names_may_be_long a_name_is_only_itself none_has_it_beside_another
                who_waits_has_it_next a_wait_that_is_dropped_leaves_nothing force_takes_it_away
                a_closed_client_gives_it_back);
        })+
    };
}

/// Those of the kinds that can be tried.
macro_rules! tried {
    ($($module:ident, $kind:ident;)+) => {
        $(mod $module {
            each!($kind: an_attempt_takes_what_is_free an_attempt_at_what_is_held_is_in_vain
                of_many_attempts_none_stands_beside_another);
        })+
    };
}

/// Those of the kinds whose wait has an end.
macro_rules! waited_for {
    ($($module:ident, $kind:ident;)+) => {
        $(mod $module {
            each!($kind: a_wait_ends_when_it_says who_waited_in_vain_asks_again
                no_time_is_enough_for_what_is_free a_wait_is_served_in_its_time);
        })+
    };
}

// A kind that is new comes into each list whose traits it has.
every! {
    exclusive, Exclusive;
    owned, Owned;
    one_permit, OnePermit;
    all_of_one, AllOfOne;
    all_of_two, AllOfTwo;
    lead, Lead;
    slot, Slot;
    shared, Shared;
    beside_shared, BesideShared;
}
tried! {
    exclusive_tried, Exclusive;
    owned_tried, Owned;
    one_permit_tried, OnePermit;
    all_of_one_tried, AllOfOne;
    all_of_two_tried, AllOfTwo;
    slot_tried, Slot;
    shared_tried, Shared;
    beside_shared_tried, BesideShared;
}
waited_for! {
    exclusive_waited_for, Exclusive;
    owned_waited_for, Owned;
    one_permit_waited_for, OnePermit;
    all_of_one_waited_for, AllOfOne;
    all_of_two_waited_for, AllOfTwo;
    shared_waited_for, Shared;
    beside_shared_waited_for, BesideShared;
}
