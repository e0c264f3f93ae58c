//! Follow: one run from its acceptance to its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Instant, sleep, sleep_until};

use super::watch::RunSeen;
use super::{OnEnd, Registration, RunEnd, RunWatch, Runs};
use crate::gateway::permits::TurnPermit;
use crate::tasks::Cancellation;

/// One run being followed, with all that ends when it ends.
pub(super) struct Follow {
    pub(super) runs: Runs,
    pub(super) watch: RunWatch,
    pub(super) permit: Option<TurnPermit>,
    pub(super) revoked: Cancellation,
    pub(super) on_end: OnEnd,
    pub(super) nudge: Arc<Notify>,
    pub(super) registration: Option<Registration>,
    pub(super) room: Option<OwnedSemaphorePermit>,
    /// Longest time to follow it from now.
    pub(super) left: Duration,
}

/// What makes a follower ask, or end.
enum Wake {
    Ask,
    Revoked,
    Late,
}

/// Since when the gateway has given one and the same answer that may mean an end.
#[derive(Default)]
struct Doubt(Option<(RunSeen, Instant)>);

impl Doubt {
    /// How long the gateway has been saying this, without a break.
    fn lasting(&mut self, seen: RunSeen) -> Duration {
        let now = Instant::now();
        match self.0 {
            Some((before, since)) if before == seen => now.duration_since(since),
            _ => {
                self.0 = Some((seen, now));
                Duration::ZERO
            }
        }
    }
}

impl Follow {
    /// Follows the run to its end, or until the edge stops.
    pub(super) async fn run(mut self) {
        let stopping = self.runs.0.tasks.stopping().clone();
        let end = stopping.run_until_cancelled(self.until_over()).await.unwrap_or(RunEnd::EdgeStopped);
        self.end(end);
    }

    /// Ends the following: permit, row and entry; whoever hears of the end finds them gone.
    pub(super) fn end(mut self, end: RunEnd) {
        drop(self.permit.take());
        if end.is_over() {
            self.runs.0.log.ended(self.watch.run());
        }
        drop(self.registration.take());
        drop(self.room.take());
        (self.on_end)(end);
    }

    async fn until_over(&mut self) -> RunEnd {
        let times = self.runs.0.times.clone();
        let deadline = Instant::now() + self.left;
        let mut pause = times.first_poll;
        let mut stopped: Option<Instant> = None;
        let mut revoked = false;
        let mut doubt = Doubt::default();
        loop {
            match self.wait(pause, revoked, deadline).await {
                Wake::Ask => {}
                Wake::Revoked => revoked = true,
                Wake::Late => return RunEnd::Abandoned,
            }
            if revoked && stopped.is_none_or(|at| at.elapsed() >= times.stop_again) && self.watch.stop().await {
                stopped = Some(Instant::now());
            }
            let asking = self.watch.status();
            let seen = match revoked {
                true => asking.await,
                // A slow answer must not delay the stop.
                false => match self.revoked.run_until_cancelled(asking).await {
                    Some(seen) => seen,
                    None => continue,
                },
            };
            match seen {
                RunSeen::Ended(_) if revoked => return RunEnd::Revoked,
                RunSeen::Ended(end) => return end,
                RunSeen::UnknownRun if doubt.lasting(seen) >= times.unknown_run => return self.lost(revoked),
                RunSeen::UnknownProfile if doubt.lasting(seen) >= times.unknown_profile => return self.lost(revoked),
                RunSeen::Refused if self.renew() => pause = times.first_poll,
                RunSeen::Refused if doubt.lasting(seen) >= times.refused => return RunEnd::Abandoned,
                RunSeen::UnknownRun | RunSeen::UnknownProfile | RunSeen::Refused => {}
                RunSeen::Going => doubt = Doubt::default(),
                // A gateway that is down says nothing, neither for nor against.
                RunSeen::Unclear => {}
            }
            pause = match revoked {
                true => times.first_poll,
                false => (pause * 3 / 2).min(times.slowest_poll),
            };
        }
    }

    async fn wait(&mut self, pause: Duration, revoked: bool, deadline: Instant) -> Wake {
        let soonest = Instant::now() + self.runs.0.times.fastest_poll;
        let nudged = async {
            self.nudge.notified().await;
            sleep_until(soonest).await;
        };
        tokio::select! {
            biased;
            () = self.revoked.cancelled(), if !revoked => Wake::Revoked,
            () = sleep_until(deadline) => Wake::Late,
            () = nudged => Wake::Ask,
            () = sleep(pause) => Wake::Ask,
        }
    }

    fn lost(&self, revoked: bool) -> RunEnd {
        if revoked { RunEnd::Revoked } else { RunEnd::Lost }
    }

    /// A refused key may have been rotated meanwhile: goes on with the directory's.
    fn renew(&mut self) -> bool {
        let bot = self.runs.0.directory.bot(self.watch.bot().login());
        bot.is_some_and(|bot| self.watch.renew(&bot))
    }
}
