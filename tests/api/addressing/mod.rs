//! No statement waits for a row, neither for one that its batch does not name nor for one that it does: a row that a
//! foreign transaction holds is skipped, its operation answers "held" or waits aside, and all others of the batch
//! succeed while that transaction is open. In small tables and large ones, for a batch that names a few rows, and for
//! one that names nearly all.

mod plans;
mod rig;

use std::pin::{Pin, pin};

use futures_util::future::join_all;
use tag_lock::LockGuard;

use self::rig::{COUNTER, LOCK, Rig, is_done, name};
use crate::support::run;

/// Rows that are held, and others.
struct Split {
    rows: usize,
    held: Vec<usize>,
    others: Vec<usize>,
}

impl Split {
    /// All rows but one.
    fn small() -> Self {
        Self {
            rows: 60,
            held: vec![30],
            others: (0..60).filter(|row| *row != 30).collect(),
        }
    }

    /// Held rows among many others, and next to them.
    fn large() -> Self {
        Self {
            rows: 60_000,
            held: (0..20).map(|row| row * 3_000 + 7).collect(),
            others: (0..1_000)
                .map(|row| row * 60 + 6 + row % 2 * 2)
                .filter(|row| row % 3_000 != 7)
                .collect(),
        }
    }

    fn all(&self) -> Vec<usize> {
        [&self.others[..], &self.held[..]].concat()
    }
}

#[tokio::test]
async fn locks_in_a_small_table() {
    locks(Split::small()).await;
}

#[tokio::test]
async fn locks_in_a_large_table() {
    locks(Split::large()).await;
}

#[tokio::test]
async fn counters_in_a_small_table() {
    counters(Split::small()).await;
}

#[tokio::test]
async fn counters_in_a_large_table() {
    counters(Split::large()).await;
}

async fn locks(split: Split) {
    let mut rig = Rig::with_rows(split.rows).await;
    let client = rig.client.clone();
    let nobody = None::<Pin<&mut std::future::Ready<()>>>;
    let acquire = async |row: &usize| {
        let name = name(*row);
        client.lock(&name).try_acquire().await.unwrap()
    };
    let all = split.all();

    rig.hold(LOCK, &split.held).await;
    // Rows that the batch does not name.
    let guards = rig
        .together(&split.others, split.others.iter().map(acquire), nobody)
        .await;
    let guards: Vec<LockGuard> = guards
        .into_iter()
        .map(|guard| guard.expect("granted"))
        .collect();
    release_all(&rig, &split.others, guards).await;
    // Rows that it does name.
    let nobody = None::<Pin<&mut std::future::Ready<()>>>;
    let mut answers = rig.together(&all, all.iter().map(acquire), nobody).await;
    let refused = answers.split_off(split.others.len());
    assert!(
        refused.iter().all(Option::is_none),
        "a held row answers that it is held"
    );
    let guards: Vec<LockGuard> = answers
        .into_iter()
        .map(|guard| guard.expect("granted"))
        .collect();
    release_all(&rig, &split.others, guards).await;
    rig.let_go().await;

    // Once free, they are granted; then their releases wait aside.
    let nobody = None::<Pin<&mut std::future::Ready<()>>>;
    let mut guards = rig.together(&all, all.iter().map(acquire), nobody).await;
    let held: Vec<LockGuard> = guards
        .split_off(split.others.len())
        .into_iter()
        .flatten()
        .collect();
    let others: Vec<LockGuard> = guards.into_iter().flatten().collect();
    assert_eq!(
        (held.len(), others.len()),
        (split.held.len(), split.others.len())
    );
    rig.hold(LOCK, &split.held).await;
    let mut aside = pin!(join_all(held.into_iter().map(LockGuard::release)));
    let released = rig
        .together(
            &all,
            others.into_iter().map(LockGuard::release),
            Some(aside.as_mut()),
        )
        .await;
    assert!(released.into_iter().all(|result| result.is_ok()));
    // The lane works on while they wait.
    let nobody = None::<Pin<&mut std::future::Ready<()>>>;
    let guards = rig
        .together(&split.others, split.others.iter().map(acquire), nobody)
        .await;
    assert!(guards.iter().all(Option::is_some));
    assert!(!is_done(aside.as_mut()).await, "the rows are still held");
    rig.let_go().await;
    assert!(aside.await.into_iter().all(|result| result.is_ok()));
    drop(guards);
    rig.remove().await;
}

async fn release_all(rig: &Rig, rows: &[usize], guards: Vec<LockGuard>) {
    let nobody = None::<Pin<&mut std::future::Ready<()>>>;
    let released = rig
        .together(rows, guards.into_iter().map(LockGuard::release), nobody)
        .await;
    assert!(released.into_iter().all(|result| result.is_ok()));
}

async fn counters(split: Split) {
    let mut rig = Rig::with_rows(split.rows).await;
    let client = rig.client.clone();
    let add = async |row: &usize| client.counter(&name(*row)).add(1).await.unwrap();
    let all = split.all();

    rig.hold(COUNTER, &split.held).await;
    for row in &split.held {
        let sql = format!(
            "UPDATE t_tag_lock SET count = 100 WHERE lock_name = '{}'",
            name(*row)
        );
        run(
            &mut rig.foreign,
            &format!("{sql} AND kind = {COUNTER} AND slot = 0"),
        )
        .await;
    }
    // Rows that the batch does not name.
    let nobody = None::<Pin<&mut std::future::Ready<()>>>;
    let values = rig
        .together(&split.others, split.others.iter().map(add), nobody)
        .await;
    assert!(values.iter().all(|value| *value == 1));
    // Rows that it does name.
    let mut aside = pin!(join_all(split.held.iter().map(add)));
    let values = rig
        .together(&all, split.others.iter().map(add), Some(aside.as_mut()))
        .await;
    assert!(values.iter().all(|value| *value == 2));
    // The lane works on while they wait.
    let nobody = None::<Pin<&mut std::future::Ready<()>>>;
    let values = rig
        .together(&split.others, split.others.iter().map(add), nobody)
        .await;
    assert!(values.iter().all(|value| *value == 3));
    assert!(!is_done(aside.as_mut()).await, "the rows are still held");
    rig.let_go().await;
    let values = aside.await;
    assert!(values.iter().all(|value| *value == 101), "{values:?}");
    rig.remove().await;
}
