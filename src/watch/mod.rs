//! Watching locks: streams of who holds them.

mod holder;
mod looker;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt, stream};

pub use self::holder::Holder;
use self::holder::{Known, is_news};
pub(crate) use self::looker::Watches;
use crate::client::inner::Inner;
use crate::error::Error;
use crate::name::Name;

/// Who holds a lock, from now on: a stream, made by [`LockClient::watch`](crate::LockClient::watch).
///
/// It begins with how things stand: an item is `None` while the lock is free, or the [`Holder`]. Then each change is told at
/// most a look later. The client looks every 100 ms at all locks that somebody watches, with one query for up to 256 of them, and not
/// at all while nobody does. Only the last of several changes between two looks is told; a renewal is none, nor is it one when tasks of
/// one process pass the lock on in memory.
///
/// What is told was so a moment ago. To work under a lock, acquire it.
///
/// While the server cannot be reached nothing is told, and afterwards how things stand then, if it is another thing. An error is told once
/// where trying again does not help ([`Error::NotMigrated`], [`Error::AccessDenied`], [`Error::NoDatabase`]); the stream goes on all the same. It ends when the client is
/// closed. Dropping it ends the watching; while there is one, the client does not end by itself.
pub struct LockWatch {
    name: Name,
    told: Pin<Box<dyn Stream<Item = Known> + Send>>,
}

impl LockWatch {
    pub(crate) fn new(client: Arc<Inner>, name: Name) -> Self {
        let (receiver, after) = client.watches.watch(name.clone());
        let begin = (receiver, after, None, client);
        let told = stream::unfold(
            begin,
            |(mut receiver, after, mut told, client)| async move {
                loop {
                    let seen = receiver.borrow_and_update().clone();
                    if seen.look > after && is_news(told.as_ref(), &seen.known) {
                        told = Some(seen.known.clone());
                        return Some((seen.known, (receiver, after, told, client)));
                    }
                    let stopped = &client.locks.stopped;
                    stopped
                        .run_until_cancelled(receiver.changed())
                        .await?
                        .ok()?;
                }
            },
        );
        Self {
            name,
            told: Box::pin(told.fuse()),
        }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// How things stand, at first; then each change. `None` when the client was closed.
    ///
    /// # Errors
    ///
    /// Where trying again does not help: see [`LockWatch`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the next call goes on.
    pub async fn next(&mut self) -> Option<Result<Option<Holder>, Error>> {
        StreamExt::next(&mut self.told).await
    }
}

impl Stream for LockWatch {
    type Item = Result<Option<Holder>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.told.as_mut().poll_next(context)
    }
}

impl fmt::Debug for LockWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockWatch")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
