//! Futures that are dropped at a chosen poll.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "written for several tests; each uses a part of it"
)]

use std::pin::Pin;
use std::task::{Context, Poll};

/// Pends for the last time after so many polls: then it is dropped. Meets each await of a future, which a timer of
/// a millisecond does not.
pub struct DropAfter<F> {
    pub future: Pin<Box<F>>,
    pub polls: u32,
}

impl<F: Future> Future for DropAfter<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        self.polls -= 1;
        match self.future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// The output of a future that is polled at most so often; `None` if it was dropped before it had one.
pub async fn polled<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    let future = Box::pin(future);
    DropAfter { future, polls }.await
}
