//! Who races, and in which order the table lists them.

use std::sync::Arc;

use super::article_versions::ArticleVersion;
use super::distributed_lock_mysql::DistributedLockMysql;
use super::floor_bulk::FloorBulk;
use super::floor_commit::FloorCommit;
use super::floor_round_trip::FloorRoundTrip;
use super::for_update::ForUpdate;
use super::get_lock::GetLock;
use super::optimistic::Optimistic;
use super::redis::Redis;
use super::redlock::Redlock;
use super::tag_lock::{DEFAULT, EVERY_STRIPE, LINGER, TagLock};
use super::unique_insert::UniqueInsert;
use super::{Contestant, Profile, Result};
use crate::arena::Arena;
use crate::racer::{Boxed, Racer};

/// A contestant that connects.
type Opening = Boxed<Result<Box<dyn Racer>>>;

/// A contestant before it is opened.
#[derive(Clone, Copy)]
pub struct Entry {
    /// What it is and can do.
    pub profile: Profile,
    prepare: fn(Arc<Arena>) -> Boxed<Result<()>>,
    open: fn(Arc<Arena>, usize) -> Opening,
}

impl Entry {
    /// [`Contestant::prepare`].
    pub async fn prepare(&self, arena: &Arc<Arena>) -> Result<()> {
        (self.prepare)(Arc::clone(arena)).await
    }

    /// [`Contestant::open`].
    pub async fn open(&self, arena: &Arc<Arena>, tasks: usize) -> Result<Box<dyn Racer>> {
        (self.open)(Arc::clone(arena), tasks.min(self.profile.most_tasks)).await
    }
}

fn entry<C: Contestant>() -> Entry {
    Entry {
        profile: C::PROFILE,
        prepare: |arena| Box::pin(async move { C::prepare(&arena).await }),
        open: |arena, tasks| {
            Box::pin(async move {
                let contestant = C::open(&arena, tasks).await?;
                Ok(Box::new(contestant) as Box<dyn Racer>)
            })
        },
    }
}

/// All contestants.
pub fn roster() -> Vec<Entry> {
    vec![
        entry::<TagLock<DEFAULT>>(),
        entry::<TagLock<EVERY_STRIPE>>(),
        entry::<TagLock<LINGER>>(),
        entry::<ArticleVersion<1>>(),
        entry::<ArticleVersion<2>>(),
        entry::<ArticleVersion<3>>(),
        entry::<UniqueInsert>(),
        entry::<ForUpdate>(),
        entry::<Optimistic>(),
        entry::<GetLock>(),
        entry::<DistributedLockMysql>(),
        entry::<Redis<false>>(),
        entry::<Redis<true>>(),
        entry::<Redlock>(),
        entry::<FloorRoundTrip>(),
        entry::<FloorCommit>(),
        entry::<FloorBulk>(),
    ]
}
