//! Work under a lock, from the grant to the release.

use super::guard::{LeaseView, LockGuard};
use crate::error::Error;

/// What work under a lock answers, for [`LockRequest::run`](crate::LockRequest::run) and
/// [`try_run`](crate::LockRequest::try_run): nothing, or a `Result`. Then the work's error and the lock's are one: any that can be
/// made from an [`Error`], as with the closures of sqlx's transactions.
///
/// ```no_run
/// # async fn print() {}
/// # async fn example(locks: tag_lock::LockClient) -> Result<(), Box<dyn std::error::Error>> {
/// locks.lock("printer").run(async |_| print().await).await?;
/// let pages: u32 = locks
///     .lock("printer")
///     .run(async |_| Ok::<_, Box<dyn std::error::Error>>("3".parse()?))
///     .await?;
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "work under a lock answers `()` or a `Result`, not `{Self}`",
    note = "end the work with `Ok::<_, tag_lock::Error>(…)`, or with an error of your own that is `From<tag_lock::Error>`"
)]
pub trait WorkOutput: sealed::Sealed {
    /// What the work found.
    type Value;
    /// How it, or its lock, failed.
    type Error: From<Error>;

    /// As a result.
    #[doc(hidden)]
    fn into_result(self) -> Result<Self::Value, Self::Error>;
}

impl WorkOutput for () {
    type Value = ();
    type Error = Error;

    fn into_result(self) -> Result<(), Error> {
        Ok(())
    }
}

impl<T, E: From<Error>> WorkOutput for Result<T, E> {
    type Value = T;
    type Error = E;

    fn into_result(self) -> Self {
        self
    }
}

mod sealed {
    #[expect(unnameable_types, reason = "nobody else implements it")]
    pub trait Sealed {}

    impl Sealed for () {}
    impl<T, E> Sealed for Result<T, E> {}
}

/// Runs work under a lock, as long as its lease is held, and releases.
pub(super) async fn under<F, O>(
    guard: LockGuard,
    work: impl FnOnce(LeaseView) -> F,
) -> Result<O::Value, O::Error>
where
    F: Future<Output = O>,
    O: WorkOutput,
{
    let name = guard.name().to_owned();
    let work = work(guard.view());
    let output = tokio::select! {
        // A lease that is lost in the same moment counts as lost.
        biased;
        () = guard.lost() => return Err(Error::LockLost { name }.into()),
        output = work => output,
    };
    let result = output.into_result();
    match (guard.release().await, result) {
        (Err(error @ Error::LockLost { .. }), Ok(_)) => Err(error.into()),
        // It failed, or was done under the lock; that this is freed late is not its failure.
        (Err(error), result) => {
            tracing::warn!(lock = %name, error = %error.in_full(), "a lock was not released");
            result
        }
        (Ok(()), result) => result,
    }
}
