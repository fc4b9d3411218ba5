//! Why something failed, as an error's source.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// What the server or the driver said: the source of an [`Error`](crate::Error). It shows the error within, and leads to it.
///
/// The errors of sqlx name their own causes in what they show. So this one has no further source: whoever prints a whole
/// chain (`{:#}` of `anyhow`, say) sees each part once.
///
/// ```no_run
/// # fn example(error: tag_lock::Error) {
/// if let tag_lock::Error::Database { source, .. } = &error
///     && let Some(told) = source.as_database_error()
/// {
///     println!("the server's code: {:?}", told.code());
/// }
/// # }
/// ```
pub struct Cause<E>(Arc<E>);

impl<E> Clone for Cause<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E> From<E> for Cause<E> {
    fn from(error: E) -> Self {
        Self(Arc::new(error))
    }
}

impl<E> Deref for Cause<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.0
    }
}

impl<E: fmt::Display> fmt::Display for Cause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<E: fmt::Debug> fmt::Debug for Cause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<E: Error> Error for Cause<E> {}
