//! Whether a data-path thread does its work: it is asked, and has to answer between two of its tasks.
//!
//! A thread that spins or blocks does not answer; that it exists says nothing.

use std::future::Future;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

/// Asks one thread.
#[derive(Debug, Clone)]
pub struct Pulse(mpsc::Sender<oneshot::Sender<()>>);

/// The thread's side.
pub(super) struct Beat(mpsc::Receiver<oneshot::Sender<()>>);

/// Both sides, for one thread.
pub(super) fn pulse() -> (Pulse, Beat) {
    // Whoever asks waits for the answer; a question that has none leaves no room for another.
    let (asks, asked) = mpsc::channel(1);
    (Pulse(asks), Beat(asked))
}

impl Pulse {
    /// Whether the thread answers within this time.
    pub async fn beats(&self, within: Duration) -> bool {
        let (sender, answered) = oneshot::channel();
        let asking = async { self.0.send(sender).await.is_ok() && answered.await.is_ok() };
        tokio::time::timeout(within, asking).await.unwrap_or(false)
    }
}

impl Beat {
    /// Answers for as long as the work runs.
    pub(super) async fn beside<T>(mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                Some(asked) = self.0.recv() => {
                    // Nobody waits for an answer that is late.
                    let _ = asked.send(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Tasks;

    const WITHIN: Duration = Duration::from_secs(10);

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_thread_that_works_answers_and_one_that_blocks_or_has_ended_does_not() {
        let (pulse, beat) = pulse();
        let (block, blocked) = oneshot::channel::<()>();
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let thread = Tasks::thread("asked", move || {
            runtime().block_on(beat.beside(async move {
                let _ = blocked.await;
                let _ = released.recv();
                std::future::pending::<()>().await;
            }))
        })
        .unwrap();
        runtime().block_on(async {
            assert!(pulse.beats(WITHIN).await && pulse.beats(WITHIN).await);
            block.send(()).unwrap();
            while pulse.beats(Duration::from_millis(20)).await {}
            assert!(!pulse.beats(Duration::from_millis(20)).await);
            release.send(()).unwrap();
            assert!(pulse.beats(WITHIN).await, "it goes on");
        });
        assert!(!thread.is_finished());
    }

    #[tokio::test]
    async fn a_thread_that_has_ended_does_not_answer() {
        let (pulse, beat) = pulse();
        beat.beside(std::future::ready(())).await;
        assert!(!pulse.beats(WITHIN).await);
    }
}
