//! What the service manager is told (sd_notify(3)). Without NOTIFY_SOCKET every word goes nowhere, at the cost of one look at
//! the environment.
//!
//! Invariant: it hears that the edge lives only while every data-path thread answers.

use std::time::Duration;

use sd_notify::NotifyState;

use crate::listener::Pulse;

/// Time that the service manager is asked to go on waiting for the end, each time that it is told of a drain.
const PATIENCE: Duration = Duration::from_secs(20);

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}

/// Something of interest, in a word or two.
pub(super) fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// Everything serves.
pub(super) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// A changed configuration is looked at; followed by the word that everything serves.
pub(super) fn reloading() {
    // Both belong together (sd_notify(3), RELOADING=1).
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the service manager could not be told"),
    }
}

/// The end has begun.
pub(super) fn stopping(status: &str) {
    tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// The end takes its time. The service manager's own limit (TimeoutStopSec) counts again from the last such word.
pub(super) fn still_stopping(status: &str) {
    let micros = u32::try_from(PATIENCE.as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::ExtendTimeoutUsec(micros), NotifyState::Status(status)]);
}

/// Tells that the edge lives, twice in the time that the service manager waits for it (WATCHDOG_USEC); never ends. It is told
/// nothing while a thread does not answer.
pub(super) async fn watchdog(threads: Vec<Pulse>) {
    let Some(patience) = sd_notify::watchdog_enabled().filter(|patience| !patience.is_zero()) else {
        return std::future::pending().await;
    };
    let every = patience / 2;
    let mut times = tokio::time::interval(every);
    times.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        times.tick().await;
        match silent(&threads, every / 2).await {
            None => tell(&[NotifyState::Watchdog]),
            Some(thread) => {
                tracing::error!(thread, "a data-path thread does not answer; the service manager is not told")
            }
        }
    }
}

/// The first thread that does not answer in time.
async fn silent(threads: &[Pulse], within: Duration) -> Option<usize> {
    let until = tokio::time::Instant::now() + within;
    for (thread, pulse) in threads.iter().enumerate() {
        if !pulse.beats(until.saturating_duration_since(tokio::time::Instant::now())).await {
            return Some(thread);
        }
    }
    None
}
