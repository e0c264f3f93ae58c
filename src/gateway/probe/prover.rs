//! Prover: who is proved when, and what follows for bots and gateways.
//!
//! One task a gateway, one request after the other: what is asked for at once goes first, then passes of eight bots with
//! pauses that keep the gateway's share of the time under two per cent.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::examine::{bearer, examine, own_key};
use super::ledger::{Ledger, PASS};
use super::report::standing_word;
use super::{DefaultKey, GatewayReport, KeyAnswer, Probe, ProofReport, Verdict, Weight};
use crate::directory::{Bot, BotStanding, Directory, GatewayStanding, GatewayTarget};
use crate::names::Login;
use crate::secret::ApiServerKey;
use crate::tasks::Tasks;
use crate::telemetry::metrics::{BotState, Metrics};

/// Bots that may wait for a proof at once, a gateway.
const URGENT: usize = 64;
/// Bots under suspicion that are remembered for a while.
const SUSPECTS: usize = 4096;

/// How often proofs happen.
#[derive(Debug, Clone)]
pub struct ProofTimes {
    /// Shortest pause between passes.
    pub interval: Duration,
    /// Shortest pause while some bots have not been proved.
    pub interval_open: Duration,
    /// Shortest pause while the gateway has not been proved.
    pub interval_starting: Duration,
    /// Passes take at most one part in this many of a gateway's time.
    pub share: u32,
    /// How long the last result stands while a gateway gives none.
    pub stands: Duration,
    /// Shortest time between two proofs of a bot for suspicion.
    pub suspicion: Duration,
    /// Longest proof of one bot, and longest wait for its turn.
    pub longest: Duration,
}

impl Default for ProofTimes {
    fn default() -> Self {
        ProofTimes {
            interval: Duration::from_secs(30),
            interval_open: Duration::from_secs(10),
            interval_starting: Duration::from_secs(1),
            share: 50,
            stands: Duration::from_secs(600),
            suspicion: Duration::from_secs(60),
            longest: Duration::from_secs(30),
        }
    }
}

/// A gateway to prove.
#[derive(Debug)]
pub struct ProvedGateway {
    /// As the data path knows it; its standing is set here.
    pub target: Arc<GatewayTarget>,
    /// The default profile's key, when the operator lets the proof have it.
    pub default_key: Option<ApiServerKey>,
}

/// Proves gateways and bots. Clones are handles on the same results.
#[derive(Clone)]
pub struct Prover(Arc<Shared>);

impl fmt::Debug for Prover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prover").field("gateways", &self.0.gateways.len()).finish_non_exhaustive()
    }
}

struct Shared {
    directory: Arc<Directory>,
    metrics: Arc<Metrics>,
    times: ProofTimes,
    gateways: Vec<Watched>,
    // Held for a map operation.
    suspects: Mutex<HashMap<Login, Instant>>,
}

struct Watched {
    target: Arc<GatewayTarget>,
    default_key: Option<ApiServerKey>,
    /// Whoever holds it asks the gateway; so it is asked one thing at a time.
    turn: tokio::sync::Mutex<()>,
    // Held for map operations, never across an await.
    found: Mutex<Found>,
    urgent: mpsc::Sender<Login>,
    waiting: Mutex<Option<mpsc::Receiver<Login>>>,
}

/// What has been found out about one gateway.
pub(super) struct Found {
    pub(super) ledger: Ledger,
    pub(super) default_key: DefaultKey,
    /// Whether it answered when it was last asked.
    pub(super) reachable: bool,
    /// When a proof last came to a result: seconds since the Unix epoch.
    pub(super) proved_at: Option<u64>,
}

impl Prover {
    /// A prover that knows nothing yet. [`Prover::run`] makes it work by itself; [`Prover::prove_now`] works without.
    pub fn new(
        directory: Arc<Directory>,
        gateways: Vec<ProvedGateway>,
        metrics: Arc<Metrics>,
        times: ProofTimes,
    ) -> Self {
        let gateways = gateways.into_iter().map(Watched::new).collect();
        Prover(Arc::new(Shared { directory, metrics, times, gateways, suspects: Mutex::default() }))
    }

    /// Starts proving, on the runtime that this is called on, until the tasks stop.
    pub fn run(&self, tasks: &Tasks) {
        for at in 0..self.0.gateways.len() {
            let waiting = lock(&self.0.gateways[at].waiting).take();
            let Some(waiting) = waiting else { continue };
            let (prover, stopping) = (self.clone(), tasks.stopping().clone());
            tasks.spawn(async move {
                stopping.run_until_cancelled(prover.watch(at, waiting)).await;
            });
        }
    }

    /// Proves a bot as soon as it is its turn, and sets its standing and its gateway's.
    pub async fn prove_now(&self, login: &Login) -> Verdict {
        let Some(bot) = self.0.directory.bot(login) else { return Verdict::NoBot };
        let Some(watched) = self.watched(&bot) else { return Verdict::NoBot };
        self.prove(watched, &bot).await
    }

    /// What a bot's own key on its own path says, whether or not the directory has the bot; changes no standing.
    pub async fn look_at(&self, bot: &Bot) -> Verdict {
        let looking = async {
            let _turn = match self.watched(bot) {
                Some(watched) => Some(watched.turn.lock().await),
                None => None,
            };
            own_key(bot).await
        };
        timeout(self.0.times.longest, looking).await.unwrap_or(Verdict::Unreachable)
    }

    /// The gateway has just refused this bot's own key or profile: proves it soon, once a minute at most. Never blocks.
    pub fn suspect(&self, login: &Login) {
        let now = Instant::now();
        {
            let mut suspects = lock(&self.0.suspects);
            if suspects.get(login).is_some_and(|at| now.duration_since(*at) < self.0.times.suspicion) {
                return;
            }
            if suspects.len() >= SUSPECTS {
                suspects.retain(|_, at| now.duration_since(*at) < self.0.times.suspicion);
            }
            if suspects.len() >= SUSPECTS {
                return;
            }
            suspects.insert(login.clone(), now);
        }
        self.changed([login]);
    }

    /// These bots are new or have new keys: proves the first eight of each gateway soon; the rest come with the passes.
    pub fn changed<'l>(&self, logins: impl IntoIterator<Item = &'l Login>) {
        let mut taken = vec![0; self.0.gateways.len()];
        for login in logins {
            let Some(bot) = self.0.directory.bot(login) else { continue };
            let at = bot.gateway().index();
            let Some(watched) = self.0.gateways.get(at).filter(|_| taken[at] < PASS) else { continue };
            // Full: then so many wait that the passes do as well.
            if watched.urgent.try_send(login.clone()).is_ok() {
                taken[at] += 1;
            }
        }
    }

    /// What the proofs have found.
    pub fn report(&self) -> ProofReport {
        let report =
            |watched: &Watched| GatewayReport::of(&watched.target, &self.bots_of(watched), &lock(&watched.found));
        ProofReport { gateways: self.0.gateways.iter().map(report).collect() }
    }

    async fn watch(&self, at: usize, mut waiting: mpsc::Receiver<Login>) {
        let watched = &self.0.gateways[at];
        let mut next_pass = Instant::now();
        loop {
            tokio::select! {
                biased;
                Some(login) = waiting.recv() => {
                    self.prove_now(&login).await;
                }
                () = sleep_until(next_pass) => {
                    let busy = self.pass(watched).await;
                    next_pass = Instant::now() + self.pause(watched, busy);
                }
            }
        }
    }

    /// Proves the bots whose turn it is; returns how long the gateway was busy with it.
    async fn pass(&self, watched: &Watched) -> Duration {
        let bots = self.bots_of(watched);
        lock(&watched.found).ledger.retain(&bots);
        let mut busy = Duration::ZERO;
        busy += self.try_default_key(watched).await;
        if bots.is_empty() {
            let reachable = Probe::new(&watched.target).health().await;
            lock(&watched.found).reachable = reachable;
            self.settle(watched, None);
        }
        let due = lock(&watched.found).ledger.pass(&bots);
        for bot in due {
            let since = Instant::now();
            // Silence costs the gateway nothing, and the others would find the same.
            if self.prove(watched, &bot).await == Verdict::Unreachable {
                break;
            }
            busy += since.elapsed();
        }
        busy
    }

    fn pause(&self, watched: &Watched, busy: Duration) -> Duration {
        let times = &self.0.times;
        let bots = self.bots_of(watched);
        let shortest = match watched.target.standing() {
            GatewayStanding::Starting => times.interval_starting,
            _ if bots.values().any(|bot| bot.standing() == BotStanding::Unproved) => times.interval_open,
            _ => times.interval,
        };
        shortest.max(busy * times.share.saturating_sub(1))
    }

    async fn prove(&self, watched: &Watched, bot: &Arc<Bot>) -> Verdict {
        let longest = self.0.times.longest;
        let Ok(_turn) = timeout(longest, watched.turn.lock()).await else { return Verdict::Unreachable };
        let examining = examine(bot, &self.0.directory, watched.default_key.as_ref());
        let verdict = timeout(longest, examining).await.unwrap_or(Verdict::Unreachable);
        // What was found about a bot that has been replaced or removed meanwhile is about nothing that is served.
        let current = self.0.directory.bot(bot.login()).is_some_and(|now| Arc::ptr_eq(&now, bot));
        if current {
            self.settle(watched, Some((bot, verdict)));
        }
        verdict
    }

    /// Takes in a verdict and sets what follows: standings and metrics.
    fn settle(&self, watched: &Watched, found: Option<(&Arc<Bot>, Verdict)>) {
        let before = watched.target.standing();
        let mut state = lock(&watched.found);
        let now = Instant::now();
        let mut conclusive = false;
        if let Some((bot, verdict)) = found {
            if verdict != Verdict::Proved && state.ledger.verdict(bot) != Some(verdict) {
                let (login, gateway) = (bot.login().as_str(), watched.target.name().as_str());
                tracing::warn!(login, gateway, verdict = verdict.as_str(), "a bot is not proved");
            }
            state.ledger.note(bot, verdict, now);
            state.reachable = verdict != Verdict::Unreachable;
            conclusive = verdict.weight() != Weight::Nothing;
        }
        // Set under the lock, so that two results are not set in the wrong order.
        watched.target.set_standing(state.ledger.standing(now, self.0.times.stands));
        let standing = watched.target.standing();
        if conclusive {
            let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            state.proved_at = Some(at.as_secs());
            self.0.metrics.proof(watched.target.index(), standing == GatewayStanding::Proved, at.as_secs_f64());
        }
        drop(state);
        if standing != before {
            let gateway = watched.target.name().as_str();
            tracing::info!(gateway, standing = standing_word(standing), "the gateway's standing has changed");
        }
        self.count_bots();
    }

    fn count_bots(&self) {
        let (mut proved, mut refused, mut unproved) = (0, 0, 0);
        for bot in self.0.directory.snapshot().values() {
            match bot.standing() {
                BotStanding::Proved => proved += 1,
                BotStanding::Refused => refused += 1,
                BotStanding::Unproved => unproved += 1,
            }
        }
        self.0.metrics.set_bots(BotState::Proved, proved);
        self.0.metrics.set_bots(BotState::Refused, refused);
        self.0.metrics.set_bots(BotState::Unproved, unproved);
    }

    /// Whether the default key opens the default profile; without that, its refusal on a bot shows nothing.
    async fn try_default_key(&self, watched: &Watched) -> Duration {
        let Some(key) = &watched.default_key else { return Duration::ZERO };
        let _turn = watched.turn.lock().await;
        let since = Instant::now();
        let answer = Probe::new(&watched.target).default_models(&bearer(key)).await;
        let mut found = lock(&watched.found);
        match answer {
            KeyAnswer::Accepted => found.default_key = DefaultKey::Shown,
            KeyAnswer::Refused | KeyAnswer::UnknownPath => found.default_key = DefaultKey::Refused,
            KeyAnswer::Other(_) => {}
            KeyAnswer::Silence => return Duration::ZERO,
        }
        since.elapsed()
    }

    fn watched(&self, bot: &Bot) -> Option<&Watched> {
        self.0.gateways.get(bot.gateway().index())
    }

    fn bots_of(&self, watched: &Watched) -> HashMap<Login, Arc<Bot>> {
        let snapshot = self.0.directory.snapshot();
        let here = snapshot.iter().filter(|(_, bot)| bot.gateway().index() == watched.target.index());
        here.map(|(login, bot)| (login.clone(), Arc::clone(bot))).collect()
    }
}

impl Watched {
    fn new(gateway: ProvedGateway) -> Self {
        let (urgent, waiting) = mpsc::channel(URGENT);
        let default_key = match gateway.default_key {
            Some(_) => DefaultKey::Untried,
            None => DefaultKey::NotConfigured,
        };
        let found = Found { ledger: Ledger::new(), default_key, reachable: false, proved_at: None };
        Watched {
            target: gateway.target,
            default_key: gateway.default_key,
            turn: tokio::sync::Mutex::new(()),
            found: Mutex::new(found),
            urgent,
            waiting: Mutex::new(Some(waiting)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
