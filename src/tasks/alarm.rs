//! A timer for deadlines that are seldom reached.
//!
//! Setting and clearing a timer for each request costs more than the rest of a deadline's work, so one is kept for as long as a
//! connection lives. It is moved when a deadline comes nearer or when it has gone off too early, and never for a deadline that
//! only moves away.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, Sleep};

/// A timer that outlives the waits it is used for.
#[derive(Debug)]
pub struct Alarm(Pin<Box<Sleep>>);

impl Alarm {
    /// A timer that first looks at this time.
    pub fn at(due: Instant) -> Self {
        Alarm(Box::pin(tokio::time::sleep_until(due)))
    }

    /// Ready once `due` has come; otherwise the task is woken then, or before.
    pub fn poll(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        loop {
            if self.0.deadline() > due {
                self.0.as_mut().reset(due);
            }
            let rings = self.0.as_mut().poll(cx).is_ready();
            // A task that others keep too busy to let it see its timers looks at the clock itself.
            let over = (rings || !has_budget_remaining()) && Instant::now() >= due;
            if over {
                return Poll::Ready(());
            }
            if !rings {
                return Poll::Pending;
            }
            self.0.as_mut().reset(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_rings_at_the_deadline_of_the_moment() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut alarm = Alarm::at(after(100));
        std::future::poll_fn(|cx| alarm.poll(cx, after(10))).await;
        assert_eq!(Instant::now(), after(10));
        // It still points to the last deadline and must not ring for it.
        std::future::poll_fn(|cx| alarm.poll(cx, after(50))).await;
        assert_eq!(Instant::now(), after(50));
        std::future::poll_fn(|cx| alarm.poll(cx, after(20))).await;
        assert_eq!(Instant::now(), after(50));
    }
}
