//! Runs: turns that outlive their request, followed on the control runtime until the gateway's work is over.
//!
//! Invariants: a run keeps its permit until the gateway says that it has ended, or no longer knows it; a revoked run is
//! stopped, and stopped again until it has ended; the number of runs followed and the time of following are bounded; the
//! stored row of a run goes only when the run has ended, so that a restart takes up what is left. This room does not
//! read the client's own requests about a run, and decides nothing by what a run answers but whether it has ended.

mod follow;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use self::follow::Follow;
pub use self::watch::RunWatch;
use crate::directory::Directory;
use crate::gateway::permits::TurnPermit;
use crate::names::{GatewayName, Identifier, ProfileName, Uid};
use crate::tasks::{Cancellation, Tasks};

/// How a followed run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// The gateway says that it is done.
    Completed,
    /// The gateway says that it failed.
    Failed,
    /// Somebody stopped it.
    Cancelled,
    /// Stopped because its session or person was revoked.
    Revoked,
    /// The gateway was stopped or restarted under it.
    Interrupted,
    /// The gateway no longer knows it.
    Lost,
    /// Not known to have ended within the longest time that a run is followed.
    Abandoned,
    /// The edge stops; the run goes on and is taken up again at the next start.
    EdgeStopped,
    /// The gateway answered with a run of the same person that is followed already.
    Repeated,
}

impl RunEnd {
    /// The word that the audit log uses.
    pub fn as_str(self) -> &'static str {
        match self {
            RunEnd::Completed => "completed",
            RunEnd::Failed => "failed",
            RunEnd::Cancelled => "cancelled",
            RunEnd::Revoked => "revoked",
            RunEnd::Interrupted => "interrupted",
            RunEnd::Lost => "lost",
            RunEnd::Abandoned => "abandoned",
            RunEnd::EdgeStopped => "edge_stopped",
            RunEnd::Repeated => "repeated",
        }
    }

    /// Whether the gateway's work is over, so that the run's row may go.
    fn is_over(self) -> bool {
        !matches!(self, RunEnd::EdgeStopped | RunEnd::Repeated)
    }
}

/// A run as its stored row describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRun {
    /// The gateway's identifier.
    pub run: Identifier,
    /// The person whose run it is.
    pub owner: Uid,
    /// The session that started it.
    pub session: Uid,
    /// The bot that runs it.
    pub profile: ProfileName,
    /// The gateway that runs it.
    pub gateway: GatewayName,
    /// When the edge saw it start: UTC milliseconds.
    pub started_at: i64,
}

/// Where open runs are noted down. Called on the data path: neither method may block.
pub trait RunLog: Send + Sync {
    /// A run has begun.
    fn opened(&self, run: &OpenRun);
    /// A run is over.
    fn ended(&self, run: &Identifier);
}

/// Called once with how a run ended; dropped uncalled when the process goes down first.
pub type OnEnd = Box<dyn FnOnce(RunEnd) + Send>;

/// How runs are followed.
#[derive(Debug, Clone)]
pub struct RunTimes {
    /// Wait before the first question.
    pub first_poll: Duration,
    /// Longest wait between questions.
    pub slowest_poll: Duration,
    /// Shortest wait between questions, whatever nudges.
    pub fastest_poll: Duration,
    /// A run that the gateway says it does not know for this long is over.
    pub unknown_run: Duration,
    /// A run whose whole profile is not served for this long is over.
    pub unknown_profile: Duration,
    /// A run whose bot's key is refused for this long is abandoned.
    pub refused: Duration,
    /// A revoked run that goes on is told to stop again after this time.
    pub stop_again: Duration,
    /// Longest time that a run is followed.
    pub longest: Duration,
}

impl Default for RunTimes {
    fn default() -> Self {
        RunTimes {
            first_poll: Duration::from_millis(500),
            slowest_poll: Duration::from_secs(5),
            fastest_poll: Duration::from_millis(250),
            unknown_run: Duration::from_secs(5),
            unknown_profile: Duration::from_secs(60),
            refused: Duration::from_secs(600),
            stop_again: Duration::from_secs(5),
            longest: Duration::from_secs(24 * 3600),
        }
    }
}

/// All runs that are followed. Clones are handles on the same set.
#[derive(Clone)]
pub struct Runs(Arc<Shared>);

struct Shared {
    directory: Arc<Directory>,
    log: Arc<dyn RunLog>,
    times: RunTimes,
    open: DashMap<Identifier, Followed>,
    room: Arc<Semaphore>,
    // As long as the room: whoever has a slot finds a place in it.
    queue: mpsc::Sender<Follow>,
    tasks: Tasks,
}

struct Followed {
    owner: Uid,
    nudge: Arc<Notify>,
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs").field("followed", &self.0.open.len()).finish_non_exhaustive()
    }
}

/// Room to follow one run, taken before the request that starts it leaves.
#[derive(Debug)]
#[must_use = "a dropped slot is room for another run"]
pub struct FollowSlot {
    runs: Runs,
    permit: OwnedSemaphorePermit,
}

/// A run that was open when the edge stopped.
pub struct ResumedRun {
    /// Who to ask about it.
    pub watch: RunWatch,
    /// When it started: UTC milliseconds.
    pub started_at: i64,
    /// The permit that it keeps, taken over from the gateway's turns.
    pub permit: Option<TurnPermit>,
    /// Cancelled already when its person may no longer run it.
    pub revoked: Cancellation,
}

impl Runs {
    /// Starts following at most `most` runs, on the runtime that this is called on.
    pub fn start(directory: Arc<Directory>, log: Arc<dyn RunLog>, times: RunTimes, most: usize, tasks: &Tasks) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        let (queue, mut started) = mpsc::channel::<Follow>(most);
        let runs = Runs(Arc::new(Shared {
            directory,
            log,
            times,
            open: DashMap::new(),
            room: Arc::new(Semaphore::new(most)),
            queue,
            tasks: tasks.clone(),
        }));
        let followers = tasks.clone();
        tasks.spawn(async move {
            let stopping = followers.stopping().clone();
            while let Some(Some(follow)) = stopping.run_until_cancelled(started.recv()).await {
                followers.spawn(follow.run());
            }
            // What comes after this is dropped with its guards; the rows stay for the next start.
            started.close();
            while let Some(follow) = started.recv().await {
                follow.end(RunEnd::EdgeStopped);
            }
        });
        runs
    }

    /// Takes room to follow one run; `None` when there is none, so that the turn must not start.
    pub fn reserve(&self) -> Option<FollowSlot> {
        let permit = Arc::clone(&self.0.room).try_acquire_owned().ok()?;
        Some(FollowSlot { runs: self.clone(), permit })
    }

    /// The person whose run this is, while it is followed.
    pub fn owner(&self, run: &Identifier) -> Option<Uid> {
        self.0.open.get(run).map(|followed| followed.owner.clone())
    }

    /// Runs that are followed now.
    pub fn open(&self) -> usize {
        self.0.open.len()
    }

    /// Asks soon how a run stands: its owner has just seen its events end, or stopped it. Others' runs are let alone.
    pub fn nudge(&self, owner: &Uid, run: &Identifier) {
        if let Some(followed) = self.0.open.get(run).filter(|followed| followed.owner == *owner) {
            followed.nudge.notify_one();
        }
    }

    /// Follows the runs that were open when the edge last stopped. To be called once, before the data path opens.
    pub fn resume(&self, rows: Vec<ResumedRun>) {
        let mut follows = Vec::new();
        for row in rows {
            if let Some((nudge, registration)) = self.register(&row.watch) {
                let on_end: OnEnd = Box::new(|_| {});
                let ResumedRun { watch, started_at, permit, revoked } = row;
                let left = self.0.times.longest.saturating_sub(since(started_at));
                follows.push(Follow {
                    runs: self.clone(),
                    watch,
                    permit,
                    revoked,
                    on_end,
                    nudge,
                    registration: Some(registration),
                    room: None,
                    left,
                });
            }
        }
        let runs = self.clone();
        self.0.tasks.spawn(async move {
            for mut follow in follows {
                let room = Arc::clone(&runs.0.room).acquire_owned();
                let Some(Ok(room)) = runs.0.tasks.stopping().run_until_cancelled(room).await else { return };
                follow.room = Some(room);
                runs.enqueue(follow);
            }
        });
    }

    fn enqueue(&self, follow: Follow) {
        // Full cannot be, by the slots; closed means that the edge stops, and then the guards end it.
        if let Err(mpsc::error::TrySendError::Closed(follow) | mpsc::error::TrySendError::Full(follow)) =
            self.0.queue.try_send(follow)
        {
            follow.end(RunEnd::EdgeStopped);
        }
    }

    /// Notes whose run it is; `None` when the same person's run of that name is followed already.
    fn register(&self, watch: &RunWatch) -> Option<(Arc<Notify>, Registration)> {
        let nudge = Arc::new(Notify::new());
        let owner = watch.bot().uid();
        let listed = match self.0.open.entry(watch.run().clone()) {
            Entry::Occupied(other) if other.get().owner == *owner => return None,
            // Two people's runs of one name: a gateway that should not be trusted. The first keeps the name.
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(Followed { owner: owner.clone(), nudge: Arc::clone(&nudge) });
                true
            }
        };
        let run = listed.then(|| watch.run().clone());
        Some((nudge, Registration { runs: self.clone(), run }))
    }
}

impl FollowSlot {
    /// Follows a run that the gateway has just accepted. Never blocks; may be called on any runtime.
    ///
    /// `session` is the row that its own row names. `permit` ends with the run. `revoked` stops it. `on_end` closes its audit
    /// record.
    pub fn follow(
        self,
        watch: RunWatch,
        session: &Uid,
        permit: Option<TurnPermit>,
        revoked: Cancellation,
        on_end: OnEnd,
    ) {
        let FollowSlot { runs, permit: room } = self;
        let Some((nudge, registration)) = runs.register(&watch) else {
            // The gateway replayed an earlier answer: no work began, so the permit is free.
            return on_end(RunEnd::Repeated);
        };
        runs.0.log.opened(&OpenRun {
            run: watch.run().clone(),
            owner: watch.bot().uid().clone(),
            session: session.clone(),
            profile: watch.bot().profile().clone(),
            gateway: watch.bot().gateway().name().clone(),
            started_at: unix_millis(),
        });
        let left = runs.0.times.longest;
        let (registration, room) = (Some(registration), Some(room));
        let follow = Follow { runs: runs.clone(), watch, permit, revoked, on_end, nudge, registration, room, left };
        runs.enqueue(follow);
    }
}

/// A run's entry among the followed ones; dropping it takes the entry away.
struct Registration {
    runs: Runs,
    /// `None` when the name is another person's.
    run: Option<Identifier>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(run) = &self.run {
            self.runs.0.open.remove(run);
        }
    }
}

fn unix_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn since(started_at: i64) -> Duration {
    Duration::from_millis(u64::try_from(unix_millis().saturating_sub(started_at)).unwrap_or(0))
}

#[cfg(test)]
mod tests;
