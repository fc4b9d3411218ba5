//! The article's three versions in the race.

use std::sync::Arc;
use std::time::Duration;

use super::article::{Article, Version};
use super::{Contestant, POOL, Profile, Result};
use crate::arena::Arena;
use crate::bulk;

/// Version `V` of the article.
#[derive(Clone)]
pub struct ArticleVersion<const V: u8>(Arc<Article>);

impl<const V: u8> Contestant for ArticleVersion<V> {
    const PROFILE: Profile = Profile {
        name: match V {
            1 => "article-v1",
            2 => "article-v2",
            _ => "article-v3",
        },
        counters: true,
        fills: true,
        // Who asks locks the rows that the holder needs for its release: asking seldom serves everyone.
        longest_pause: Duration::from_millis(256),
        ..Profile::LOCK
    };

    type Held = String;

    async fn prepare(arena: &Arena) -> Result<()> {
        Article::drop_tables(&arena.url).await?;
        Ok(Article::create_tables(&arena.url).await?)
    }

    async fn open(arena: &Arena, tasks: usize) -> Result<Self> {
        let version = match V {
            1 => Version::First,
            2 => Version::Second,
            _ => Version::Third,
        };
        let article = Article::new(version, &arena.url, arena.connections(tasks.min(POOL)))?;
        article.connections().fill().await?;
        Ok(Self(Arc::new(article)))
    }

    async fn try_lock(&self, name: &str, ttl: Duration) -> Result<Option<String>> {
        Ok(self.0.lock(name, ttl).await?.then(|| name.to_owned()))
    }

    async fn unlock(&self, held: String) -> Result<()> {
        Ok(self.0.unlock(&held).await?)
    }

    async fn add(&self, name: &str, delta: i64) -> Result<i64> {
        Ok(self.0.incr(name, delta).await?)
    }

    async fn fill(&self, names: u64, held: bool) -> Result<Vec<String>> {
        let row = if held {
            "1, UTC_TIMESTAMP(6) + INTERVAL 1 HOUR"
        } else {
            "0, NULL"
        };
        bulk::insert(
            self.0.connections(),
            "article_lock (lock_name, status, deadline)",
            names,
            row,
        )
        .await?;
        Ok(Vec::new())
    }

    async fn close(self) {
        self.0.close().await;
    }
}
