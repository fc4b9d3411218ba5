//! What keeps a client going: whoever can ask it for something.

use std::sync::Arc;

use super::Locks;

/// Its clones, its guards, and through them the calls that are under way, have a part in this. With the last one the client ends.
pub(crate) struct InUse(Arc<Locks>);

impl InUse {
    pub(crate) fn of(locks: &Arc<Locks>) -> Arc<Self> {
        Arc::new(Self(Arc::clone(locks)))
    }

    pub(crate) fn locks(&self) -> &Arc<Locks> {
        &self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.close(true);
        self.0.engine.shut_down();
    }
}
