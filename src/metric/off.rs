//! Without the feature `metrics`: nothing.

use std::time::Duration;

use crate::clock::Moment;

pub(crate) fn count(_: &'static str, _: usize) {}

pub(crate) fn record(_: &'static str, _: Duration) {}

pub(crate) fn record_since(_: &'static str, _: Moment) {}

pub(crate) fn reachable(_: bool) {}

pub(crate) fn describe() {}

pub(crate) struct Waiting(());

impl Waiting {
    pub(crate) fn begin() -> Self {
        Self(())
    }

    pub(crate) fn end(self) {}
}

#[derive(Debug, Default)]
pub(crate) struct Hold(());

impl Hold {
    pub(crate) fn begin(&self) {}

    pub(crate) fn end(&self) {}

    pub(crate) fn rests(&self) {}
}
