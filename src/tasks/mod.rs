//! Tasks: the only place that spawns; the signal and the timer that tasks wait for.
//!
//! Invariants: every task is counted until it ends, hears when the process stops, and can be aborted; nothing is
//! detached for good. This room does not decide how long a drain may take.

mod alarm;
mod cancellation;

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio_util::task::TaskTracker;

pub use alarm::Alarm;
pub use cancellation::Cancellation;

/// A set of tasks that start, stop and drain together. Clones are handles on the same set.
#[derive(Debug, Clone)]
pub struct Tasks {
    tracker: TaskTracker,
    stopping: Cancellation,
    aborted: Cancellation,
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl Tasks {
    /// An empty set.
    pub fn new() -> Self {
        Tasks { tracker: TaskTracker::new(), stopping: Cancellation::new(), aborted: Cancellation::new() }
    }

    /// Runs a future on the current runtime until it ends or the set is aborted. Where no runtime runs any more the future
    /// is dropped, so that its guards end with it.
    #[expect(clippy::disallowed_methods, reason = "the one place that spawns")]
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let aborted = self.aborted.clone();
        let tracked = self.tracker.track_future(async move {
            aborted.run_until_cancelled(future).await;
        });
        runtime.spawn(tracked);
    }

    /// Runs blocking work on the current runtime's blocking pool and waits for it.
    ///
    /// # Errors
    /// The work panicked, or the runtime is going away.
    #[expect(clippy::disallowed_methods, reason = "the one place that spawns")]
    pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
    }

    /// Starts a named thread of its own.
    ///
    /// # Errors
    /// The system refuses another thread.
    #[expect(clippy::disallowed_methods, reason = "the one place that spawns")]
    pub fn thread<T: Send + 'static>(
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<std::thread::JoinHandle<T>> {
        std::thread::Builder::new().name(name.to_owned()).spawn(body)
    }

    /// Cancelled when the set is asked to stop: finish what is under way, begin nothing.
    pub fn stopping(&self) -> &Cancellation {
        &self.stopping
    }

    /// Whether what had not ended in time is being dropped.
    pub fn is_aborted(&self) -> bool {
        self.aborted.is_cancelled()
    }

    /// Asks every task to stop.
    pub fn stop(&self) {
        self.stopping.cancel();
        self.tracker.close();
    }

    /// Waits until no task is left; nobody is asked to stop.
    pub async fn ended(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Asks every task to stop, waits for them, and aborts what is left. True when none had to be aborted.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.stop();
        let clean = tokio::time::timeout(limit, self.tracker.wait()).await.is_ok();
        self.aborted.cancel();
        if !clean {
            // Dropped futures run their guards; a second is far more than that takes.
            let _ = tokio::time::timeout(Duration::from_secs(1), self.tracker.wait()).await;
        }
        clean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_does_not_stop_is_aborted() {
        let tasks = Tasks::new();
        let (guard, dropped) = tokio::sync::oneshot::channel::<()>();
        tasks.spawn(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        assert!(!tasks.drain(Duration::from_millis(20)).await);
        assert!(dropped.await.is_err());
    }

    #[tokio::test]
    async fn a_task_that_listens_drains_cleanly() {
        let tasks = Tasks::new();
        let stopping = tasks.stopping().clone();
        tasks.spawn(async move { stopping.cancelled().await });
        assert!(tasks.drain(Duration::from_secs(5)).await);
    }
}
