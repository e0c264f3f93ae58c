//! An edge in the test process, in front of a stand-in: two threads, people with bots and sessions, every handle at hand.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use botgate::cli::stand_in::{self, Options, StandIn};
use botgate::config::{Config, GatewayUrl, Host};
use botgate::directory::{Bot, Directory, GatewayStanding, GatewayTarget};
use botgate::gateway::permits::{QueueRoom, TurnLimits, Turns};
use botgate::gateway::runs::{OpenRun, RunLog, RunTimes, Runs};
use botgate::identity::{SessionParts, Sessions};
use botgate::listener::tls::Tls;
use botgate::listener::{self, DataPath};
use botgate::names::{GatewayName, Identifier, Login, ProfileName, Role, Uid};
use botgate::proxy::{AllowedHosts, Edge, EdgeParts, Ending, Freshness, Routes, Settings, now_ms};
use botgate::secret::{ApiServerKey, FreshToken, TokenKind};
use botgate::tasks::Tasks;
use botgate::telemetry::access::AccessLog;
use botgate::telemetry::audit::Audit;
use botgate::telemetry::metrics::Metrics;

use super::eventually;

/// A person of the fixture.
pub(crate) struct Person {
    pub(crate) uid: Uid,
    pub(crate) session: Uid,
    pub(crate) token: String,
    pub(crate) key: String,
    pub(crate) profile: String,
}

/// The edge and the stand-in behind it.
pub(crate) struct TestEdge {
    pub(crate) edge: Arc<Edge>,
    pub(crate) stand_in: StandIn,
    pub(crate) turns: Turns,
    pub(crate) address: SocketAddr,
    pub(crate) audit_dir: PathBuf,
    pub(crate) suspects: Arc<AtomicUsize>,
    /// Its TLS, when the configuration has it.
    pub(crate) tls: Option<Tls>,
    people: HashMap<String, Person>,
    data_path: Option<DataPath>,
    control: Option<tokio::runtime::Runtime>,
    tasks: Tasks,
    _data_dir: tempfile::TempDir,
}

/// How an edge differs from the usual one.
#[derive(Default)]
struct Setup {
    gateway: Option<SocketAddr>,
    access_log: bool,
    stale: bool,
    encrypted_cookies: bool,
}

struct NoLog;

impl RunLog for NoLog {
    fn opened(&self, _: &OpenRun) {}
    fn ended(&self, _: &Identifier) {}
}

/// The smallest configuration, to be changed by a test.
pub(crate) fn config() -> Config {
    let text = "[listen]\naddress = \"127.0.0.1:0\"\n[[gateway]]\nname = \"main\"\nurl = \"http://127.0.0.1:1\"\n";
    botgate::config::parse(text, std::path::Path::new("/nonexistent")).expect("the smallest configuration is valid")
}

impl TestEdge {
    /// An edge for alice and bob with the default configuration.
    pub(crate) fn start() -> Self {
        Self::with(config(), |_| {})
    }

    /// An edge with this configuration, in front of a stand-in with these options.
    pub(crate) fn with(config: Config, change: impl FnOnce(&mut Options)) -> Self {
        Self::build(config, change, Setup::default())
    }

    /// An edge whose gateway is at this address instead; the stand-in stays idle.
    pub(crate) fn in_front_of(config: Config, gateway: SocketAddr) -> Self {
        Self::build(config, |_| {}, Setup { gateway: Some(gateway), ..Setup::default() })
    }

    /// An edge that also writes an access log to stdout.
    pub(crate) fn with_access_log(config: Config) -> Self {
        Self::build(config, |_| {}, Setup { access_log: true, ..Setup::default() })
    }

    /// An edge where a session cookie counts only from a client whose side is encrypted.
    pub(crate) fn with_encrypted_cookies(config: Config) -> Self {
        Self::build(config, |_| {}, Setup { encrypted_cookies: true, ..Setup::default() })
    }

    /// An edge that has not heard of its store for too long.
    pub(crate) fn stale() -> Self {
        Self::build(config(), |_| {}, Setup { stale: true, ..Setup::default() })
    }

    fn build(config: Config, change: impl FnOnce(&mut Options), setup: Setup) -> Self {
        let logins = ["alice", "bob", "carol"].map(|login| Login::parse(login).expect("a login"));
        let keys: Vec<_> = logins.iter().map(|login| (ProfileName::of(login), ApiServerKey::generate())).collect();
        let mut options = Options::new(keys.clone(), ApiServerKey::generate());
        options.record = 10_000;
        options.max_turns = config.gateways[0].max_turns;
        change(&mut options);
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stand_in = stand_in::serve(socket, options).expect("the stand-in starts");

        let name = GatewayName::parse("main").expect("a gateway's name");
        let url = GatewayUrl::parse(&format!("http://{}", setup.gateway.unwrap_or(stand_in.address())))
            .expect("an address is a URL");
        let gateway = Arc::new(GatewayTarget::new(name.clone(), 0, url));
        gateway.set_standing(GatewayStanding::Proved);
        let (directory, sessions) = (Arc::new(Directory::new()), Sessions::new());
        let mut people = HashMap::new();
        for (login, (profile, key)) in logins.iter().zip(&keys) {
            let uid = Uid::random();
            sessions.add_person(uid.clone(), login.clone(), Role::parse("member").expect("a role"), true);
            directory.insert(Bot::new(login.clone(), uid.clone(), profile.clone(), gateway.clone(), key.clone()));
            let (session, token) = sign_in(&sessions, &uid);
            let (key, profile) = (key.expose().to_owned(), profile.to_string());
            people.insert(login.to_string(), Person { uid, session, token, key, profile });
        }

        let data_dir = tempfile::tempdir().expect("a temporary directory");
        let audit_dir = data_dir.path().join("audit");
        let routes = Routes::new(&config.routes);
        let metrics = Metrics::new(&[name], routes.labels());
        let audit =
            Audit::start(&audit_dir, [7; 32], config.audit_when_full, metrics.clone()).expect("the audit log starts");
        let limits = TurnLimits {
            max_turns: config.gateways[0].max_turns,
            per_person: config.limits.turns_per_person,
            queue_per_person: config.limits.queue_per_person,
            queue_total: QueueRoom::new(config.limits.queue_total),
            queue_wait: config.limits.queue_wait,
        };
        let turns = Turns::new(limits, metrics.turns_in_flight(0), metrics.turns_queued(0));
        let control = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a control runtime");
        let tasks = Tasks::new();
        let runs = {
            let _entered = control.enter();
            let times = RunTimes { first_poll: Duration::from_millis(50), ..RunTimes::default() };
            Runs::start(directory.clone(), Arc::new(NoLog), times, 1_000, &tasks)
        };
        let suspects = Arc::new(AtomicUsize::new(0));
        let suspected = suspects.clone();
        let freshness = Arc::new(Freshness::never());
        if !setup.stale {
            freshness.heard(Instant::now() + Duration::from_secs(3_600));
        }
        let sockets = listener::bind(config.listen.address, 2).expect("a free port");
        let address = sockets.address().expect("a bound socket has an address");
        let bound = Host::parse(&address.to_string(), 80).expect("an address is a host");
        let drain = config.deadlines.drain;
        let tls = config.listen.tls.as_ref();
        let tls = tls.map(|tls| Tls::load(tls, metrics.clone()).expect("certificates and keys of a test are right"));
        let edge = Edge::new(EdgeParts {
            settings: Settings {
                hosts: AllowedHosts::new([&bound, &Host::parse("127.0.0.1", 80).expect("a host")]),
                insecure_cookies: config.listen.tls.is_none() && !setup.encrypted_cookies,
                ..Settings::new(&config, Some(&bound))
            },
            directory,
            sessions,
            routes,
            gateway_pause: Duration::from_millis(200),
            turns: vec![turns.clone()],
            audit,
            access_log: setup.access_log.then(|| AccessLog::start(metrics.clone()).expect("the access log starts")),
            metrics,
            runs,
            suspect: Box::new(move |_| {
                suspected.fetch_add(1, Ordering::Relaxed);
            }),
            freshness,
            ending: Ending::new(),
        });
        let data_path = DataPath::start(&edge, sockets, tls.as_ref(), drain).expect("the data path starts");
        TestEdge {
            edge,
            stand_in,
            turns,
            address,
            audit_dir,
            suspects,
            tls,
            people,
            data_path: Some(data_path),
            control: Some(control),
            tasks,
            _data_dir: data_dir,
        }
    }

    /// A person by login.
    #[track_caller]
    pub(crate) fn person(&self, login: &str) -> &Person {
        self.people.get(login).expect("a person of the fixture")
    }

    /// A person's session token.
    #[track_caller]
    pub(crate) fn token(&self, login: &str) -> &str {
        &self.person(login).token
    }

    /// Another session of a person: its row and token.
    #[track_caller]
    pub(crate) fn sign_in(&self, login: &str) -> (Uid, String) {
        sign_in(&self.edge.parts().sessions, &self.person(login).uid)
    }

    /// Client connections that are open.
    pub(crate) fn connections(&self) -> usize {
        self.data_path.as_ref().map_or(0, DataPath::connections)
    }

    /// Further descriptors of its sockets.
    pub(crate) fn sockets(&self) -> std::io::Result<listener::Sockets> {
        self.data_path.as_ref().expect("it was not drained yet").sockets()
    }

    /// Whether what comes now may be accepted here.
    pub(crate) fn accepts(&self) -> bool {
        self.data_path.as_ref().is_some_and(DataPath::accepts)
    }

    /// Waits until nothing runs any more: no permit, no waiter, no turn at the stand-in.
    #[track_caller]
    pub(crate) fn settles(&self) {
        eventually("permits and queue return to zero", Duration::from_secs(20), || {
            self.turns.in_flight() == 0 && self.turns.queued() == 0 && self.stand_in.running() == 0
        });
    }

    /// The value of a metric's line, by its name and labels as rendered.
    pub(crate) fn metric(&self, line: &str) -> Option<f64> {
        let text = self.edge.metrics().render();
        text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
    }

    /// Drains and waits; true when nothing was cut.
    pub(crate) fn drain(&mut self) -> bool {
        self.edge.parts().ending.drain();
        self.data_path.take().is_none_or(|data_path| data_path.join().is_clean())
    }
}

impl Drop for TestEdge {
    fn drop(&mut self) {
        self.drain();
        if let Some(control) = self.control.take() {
            control.block_on(self.tasks.drain(Duration::from_secs(1)));
            let _ = control.block_on(self.edge.audit().stop(Duration::from_secs(5)));
            control.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

fn sign_in(sessions: &Sessions, uid: &Uid) -> (Uid, String) {
    let (token, id) = (FreshToken::generate(TokenKind::Session), Uid::random());
    let parts = SessionParts {
        id: id.clone(),
        digest: token.digest(),
        kind: TokenKind::Session,
        label: None,
        created_at: now_ms(),
        expires_at: now_ms() + 3_600_000,
        idle: None,
    };
    sessions.insert(uid, parts).expect("the person is known");
    (id, token.expose().to_owned())
}
