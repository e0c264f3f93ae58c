//! Cancellation that is cheap to look at.
//!
//! A busy edge asks at every step whether it may go on, and polls the wait for it whenever a task wakes for another reason.
//! [`CancellationToken`] takes a lock for each of both; here the question is one load, and a wait that the same task polls again
//! is another.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use pin_project_lite::pin_project;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// A sticky signal to end. Clones are handles on the same signal.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(Arc<Signal>);

#[derive(Debug, Default)]
struct Signal {
    // Set before the token wakes anybody, so that whoever is woken finds it set.
    cancelled: AtomicBool,
    token: CancellationToken,
    parent: Option<Cancellation>,
}

impl Cancellation {
    /// One that nobody has given yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that also counts as given once this one is.
    pub fn child(&self) -> Self {
        let (token, parent) = (self.0.token.child_token(), Some(self.clone()));
        Cancellation(Arc::new(Signal { cancelled: AtomicBool::new(false), token, parent }))
    }

    /// Gives the signal, for good.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        self.0.token.cancel();
    }

    /// Whether it, or one that it is a child of, has been given.
    pub fn is_cancelled(&self) -> bool {
        let mut signal = Some(self);
        while let Some(Cancellation(this)) = signal {
            if this.cancelled.load(Ordering::Acquire) {
                return true;
            }
            signal = this.parent.as_ref();
        }
        false
    }

    /// Waits for the signal.
    pub fn cancelled(&self) -> Cancelled<'_> {
        Cancelled { cancellation: self, waiting: self.0.token.cancelled(), known: None }
    }

    /// Waits for the signal and keeps a handle of its own.
    pub async fn cancelled_owned(self) {
        self.cancelled().await;
    }

    /// Runs a future until it ends or the signal is given; `None` when that came first.
    pub async fn run_until_cancelled<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        if self.is_cancelled() {
            return None;
        }
        let (mut future, mut cancelled) = (std::pin::pin!(future), std::pin::pin!(self.cancelled()));
        std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => cancelled.as_mut().poll(cx).map(|()| None),
        })
        .await
    }
}

pin_project! {
    /// The wait for a [`Cancellation`].
    #[must_use = "futures do nothing unless polled"]
    pub struct Cancelled<'c> {
        cancellation: &'c Cancellation,
        #[pin]
        waiting: WaitForCancellationFuture<'c>,
        // Who is woken already.
        known: Option<Waker>,
    }
}

impl Future for Cancelled<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.cancellation.is_cancelled() {
            return Poll::Ready(());
        }
        if this.known.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        let polled = this.waiting.poll(cx);
        *this.known = polled.is_pending().then(|| cx.waker().clone());
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_ends_with_its_parent_and_not_the_other_way() {
        let parent = Cancellation::new();
        let (first, second) = (parent.child(), parent.child());
        first.cancel();
        assert!(first.is_cancelled() && !second.is_cancelled() && !parent.is_cancelled());
        parent.cancel();
        assert!(second.is_cancelled() && parent.child().is_cancelled());
    }

    #[tokio::test]
    async fn a_wait_that_was_polled_before_is_woken() {
        let parent = Cancellation::new();
        let child = parent.child();
        let mut wait = tokio_test::task::spawn(child.cancelled_owned());
        assert!(wait.poll().is_pending() && wait.poll().is_pending());
        parent.cancel();
        assert!(wait.is_woken() && wait.poll().is_ready());
    }

    #[tokio::test]
    async fn a_wait_that_moves_to_another_task_is_woken_there() {
        let cancellation = Cancellation::new();
        let mut wait = Box::pin(cancellation.clone().cancelled_owned());
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let mut moved = tokio_test::task::spawn(wait);
        assert!(moved.poll().is_pending());
        cancellation.cancel();
        assert!(moved.is_woken() && moved.poll().is_ready());
    }

    #[tokio::test]
    async fn work_runs_until_it_ends_or_the_signal_comes() {
        let cancellation = Cancellation::new();
        assert_eq!(cancellation.run_until_cancelled(std::future::ready(1)).await, Some(1));
        cancellation.cancel();
        assert_eq!(cancellation.run_until_cancelled(std::future::pending::<()>()).await, None);
        assert_eq!(cancellation.run_until_cancelled(std::future::ready(1)).await, None);
    }
}
