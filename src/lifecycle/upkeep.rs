//! Upkeep: what has to be done now and then while the edge serves.

use std::time::Duration;

use crate::config::Gateway;
use crate::directory::{BotStanding, GatewayStanding};
use crate::store::IdleFlush;
use crate::tasks::Tasks;
use crate::telemetry::metrics::{BotState, ProofResult};

use super::same_user::listener_uid;
use super::{Control, ControlError, now_ms, same_user};

/// Time between two passes.
const PASS: Duration = Duration::from_secs(60);
/// Time between two looks at the gateways' users.
const LOOK: Duration = Duration::from_secs(5);
/// The same while a gateway is not proved: it may come up at any moment.
const LOOK_STARTING: Duration = Duration::from_secs(1);
/// How long an ended session stays in the live map, so that its use is told as expired, in milliseconds.
const KEEP_ENDED_MS: i64 = 3_600_000;
/// How long an ended session's row stays in the store, in milliseconds.
const KEEP_ROWS_MS: i64 = 30 * 86_400_000;

impl Control {
    /// Writes down the use of sessions since a time, and forgets what has ended. Gives the time for the next pass.
    ///
    /// # Errors
    /// The store failed; the next pass from the same time makes up for it.
    pub async fn upkeep(&self, since_ms: i64) -> Result<i64, ControlError> {
        let now = now_ms();
        let used = self.sessions().touched_since(since_ms);
        for part in used.chunks(crate::store::MAX_BATCH) {
            let part = part.iter().map(|touched| IdleFlush {
                id: touched.id.clone(),
                idle_expires_at: touched.idle_expires_at,
                last_used_at: touched.last_used_at,
            });
            self.store().flush_idle(part.collect()).await?;
        }
        self.sessions().sweep(now - KEEP_ENDED_MS);
        self.store().prune_sessions(now - KEEP_ROWS_MS).await?;
        Ok(now)
    }

    /// Sets the gauges that count rows; called by each scrape.
    pub fn count(&self) {
        let metrics = self.metrics();
        metrics.set_sessions(self.sessions().len());
        metrics.set_orphans(self.orphans());
        let (mut proved, mut unproved, mut refused) = (0, 0, 0);
        for bot in self.directory().snapshot().values() {
            match bot.standing() {
                BotStanding::Proved => proved += 1,
                BotStanding::Unproved => unproved += 1,
                BotStanding::Refused => refused += 1,
            }
        }
        metrics.set_bots(BotState::Proved, proved);
        metrics.set_bots(BotState::Unproved, unproved);
        metrics.set_bots(BotState::Refused, refused);
        for (gateway, report) in self.prover().report().gateways.iter().enumerate() {
            for result in ProofResult::ALL {
                let count = report.verdicts.get(result.as_str()).copied().unwrap_or(0);
                metrics.set_bot_proofs(gateway, *result, count);
            }
        }
    }
}

impl Control {
    /// Takes a gateway out of service that runs as the edge's own user, and back in once another user's answers there. One
    /// that does not listen stays as it is.
    pub async fn look_at_users(&self) {
        let config = self.config().clone();
        let looking = move || {
            let look =
                |gateway: &Gateway| listener_uid(&gateway.url).map(|_| same_user(std::slice::from_ref(gateway)).err());
            config.gateways.iter().map(look).collect::<Vec<_>>()
        };
        // Reads the kernel's table of sockets, which is long where many are open.
        let Ok(found) = Tasks::blocking(looking).await else { return };
        for (gateway, found) in self.gateways().iter().zip(found) {
            match found {
                Some(Some(same)) if gateway.bar(true) => {
                    tracing::error!(%same, "the gateway is not another user; it is not served");
                }
                Some(None) if gateway.bar(false) => {
                    tracing::info!(gateway = %gateway.name(), "the gateway is another user; it is served again");
                }
                _ => {}
            }
        }
    }
}

/// Looks at the gateways' users until the set of tasks is asked to stop: a gateway may come up after the edge.
pub async fn watch_users(control: Control, stopping: crate::tasks::Cancellation) {
    loop {
        control.look_at_users().await;
        let starting = control.gateways().iter().any(|gateway| gateway.standing() == GatewayStanding::Starting);
        let pause = if starting { LOOK_STARTING } else { LOOK };
        if tokio::time::timeout(pause, stopping.cancelled()).await.is_ok() {
            return;
        }
    }
}

/// Passes until the set of tasks is asked to stop, and one more then.
pub async fn run_upkeep(control: Control, stopping: crate::tasks::Cancellation) {
    let mut since = now_ms();
    loop {
        let last = tokio::time::timeout(PASS, stopping.cancelled()).await.is_ok();
        match control.upkeep(since).await {
            Ok(next) => since = next,
            Err(error) => tracing::warn!(%error, "the use of sessions could not be written down"),
        }
        if last {
            return;
        }
    }
}
