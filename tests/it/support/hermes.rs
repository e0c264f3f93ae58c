//! The real Hermes gateway from its venv, in a throw-away home, with the stub model behind it.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use super::child::{Child, Program};
use super::hermes_home::{self, Home};
use super::http::{Call, Incoming};
use super::model::StubModel;
use super::{poll_for, venv_program};

/// Booting takes 3 to 13 s, more when tests keep the cores busy.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// A fresh gateway's first turn takes up to 10 s before it calls the model.
const FIRST_TURN: Duration = Duration::from_secs(40);

/// Which package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// Each profile has its own key.
    Current,
    /// The default key opens every path, a bot's own key none.
    Old,
}

impl Release {
    fn venv(self) -> &'static str {
        match self {
            Self::Current => "gateway",
            Self::Old => "old-gateway",
        }
    }
}

/// How a boot ended.
#[derive(Debug)]
enum Boot {
    Answers,
    Exited,
}

/// A profile to serve.
#[derive(Clone, Debug)]
pub(crate) struct Bot {
    pub(crate) profile: String,
    pub(crate) api_key: String,
    /// What its model calls carry.
    pub(crate) provider_key: String,
    pub(crate) mcp: Option<McpServer>,
}

/// The bot's one MCP server.
#[derive(Clone, Debug)]
pub(crate) struct McpServer {
    pub(crate) url: String,
    pub(crate) token: String,
}

impl Bot {
    /// The bot of `login`, with fixture keys that differ from everyone else's.
    pub(crate) fn of(login: &str) -> Self {
        Self {
            profile: format!("bot-{login}"),
            api_key: format!("fixture-api-key-of-{login}-0123456789abcdef"),
            provider_key: format!("sk-provider-{login}"),
            mcp: None,
        }
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/p/{}{rest}", self.profile)
    }
}

/// A running gateway. Dropping it stops it and removes its home.
#[derive(Debug)]
pub(crate) struct RealGateway {
    // Dropped in this order: the process goes before what it uses.
    child: Child,
    model: StubModel,
    home: Home,
    address: SocketAddr,
    default_key: String,
    hermes: PathBuf,
}

impl RealGateway {
    /// The current release with the bots of alice and bob, shared by the tests of this process. Tests that change
    /// it, or that fill its turns, start their own.
    #[track_caller]
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Result<RealGateway, String>> = OnceLock::new();
        Self::share(&SHARED, Release::Current)
    }

    /// The old release with the same bots, shared likewise.
    #[track_caller]
    pub(crate) fn shared_old() -> &'static Self {
        static SHARED: OnceLock<Result<RealGateway, String>> = OnceLock::new();
        Self::share(&SHARED, Release::Old)
    }

    /// A failure is shared too, so that one that takes long is not repeated by every test.
    #[track_caller]
    fn share(shared: &'static OnceLock<Result<Self, String>>, release: Release) -> &'static Self {
        let bots = [Bot::of("alice"), Bot::of("bob")];
        shared.get_or_init(|| Self::try_start(release, &bots)).as_ref().unwrap_or_else(|why| panic!("{why}"))
    }

    /// Starts one and waits until it answers.
    #[track_caller]
    pub(crate) fn start(release: Release, bots: &[Bot]) -> Self {
        Self::try_start(release, bots).unwrap_or_else(|why| panic!("{why}"))
    }

    fn try_start(release: Release, bots: &[Bot]) -> Result<Self, String> {
        let hermes = venv_program(release.venv(), "hermes");
        let model = StubModel::start();
        let mut last_output = String::new();
        // The port is free when it is picked, but another process may be faster.
        for _attempt in 0..3 {
            let home = Home::new();
            let address = free_address();
            let default_key = format!("fixture-default-key-{}-{}", std::process::id(), address.port());
            hermes_home::write_default(&home.hermes(), address, &default_key, &model.url());
            for bot in bots {
                hermes_home::write_bot(&home.hermes(), bot, &model.url());
            }
            let child = Child::start(program(&hermes, &home, address), &home.path.join("output"));
            let end = poll_for(BOOT_LIMIT, || match answers(address, &default_key) {
                true => Some(Boot::Answers),
                false => (!child.is_running()).then_some(Boot::Exited),
            });
            last_output = child.output();
            match end {
                Some(Boot::Answers) => {
                    return Ok(Self { child, model, home, address, default_key, hermes });
                }
                Some(Boot::Exited) => {}
                None => break,
            }
        }
        Err(format!("the {release:?} gateway does not come up; its last output:\n{last_output}"))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn default_key(&self) -> &str {
        &self.default_key
    }

    pub(crate) fn model(&self) -> &StubModel {
        &self.model
    }

    /// Opens a stream whose turn calls the model. The very first turn of a fresh gateway has been seen to stand still before
    /// that; then it is left and asked for anew, at most twice.
    #[track_caller]
    pub(crate) fn begin(&self, marker: &str, open: impl Fn() -> Incoming) -> Incoming {
        for _attempt in 0..3 {
            let stream = open();
            assert_eq!(stream.status, 200);
            if poll_for(FIRST_TURN, || (!self.model.turns_with(marker).is_empty()).then_some(())).is_some() {
                return stream;
            }
        }
        panic!("no turn calls the model:\n{}", self.output())
    }

    /// Asks it to drain and end, and does not wait.
    pub(crate) fn terminate(&self) {
        self.child.terminate();
    }

    /// Stops it and waits until it is gone.
    pub(crate) fn stop(&mut self) {
        self.child.stop(BOOT_LIMIT);
    }

    /// Starts it again after [`RealGateway::stop`], with the same home and address, and waits until it answers.
    #[track_caller]
    pub(crate) fn start_again(&mut self) {
        self.child = Child::start(program(&self.hermes, &self.home, self.address), &self.home.path.join("output"));
        let up = poll_for(BOOT_LIMIT, || answers(self.address, &self.default_key).then_some(()));
        assert!(up.is_some(), "it does not come up again:\n{}", self.output());
    }

    /// What it has printed, for failure messages.
    pub(crate) fn output(&self) -> String {
        self.child.output()
    }

    /// Its Hermes home.
    pub(crate) fn home(&self) -> PathBuf {
        self.home.hermes()
    }

    /// Puts another bot in place while it runs.
    pub(crate) fn add_bot(&self, bot: &Bot) {
        hermes_home::write_bot(&self.home.hermes(), bot, &self.model.url());
    }

    /// Takes a bot's profile off the disk while the gateway runs.
    pub(crate) fn remove_bot(&self, bot: &Bot) {
        hermes_home::remove_bot(&self.home.hermes(), bot);
    }

    /// Writes the keys of a bot that is already served anew.
    pub(crate) fn rewrite_keys(&self, bot: &Bot) {
        hermes_home::rewrite_environment(&self.home.hermes(), bot);
    }
}

/// Whether this very gateway answers: its default key is nobody else's.
fn answers(address: SocketAddr, default_key: &str) -> bool {
    Call::get("/v1/models").bearer(default_key).try_open(address).is_ok_and(|answer| answer.status == 200)
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    listener.local_addr().expect("a bound socket has an address")
}

fn program(path: &Path, home: &Home, address: SocketAddr) -> Program {
    let programs = path.parent().map(Path::display).map(|dir| dir.to_string()).unwrap_or_default();
    let environment = [
        ("HOME", home.path.join("user").display().to_string()),
        ("HERMES_HOME", home.hermes().display().to_string()),
        ("PATH", format!("{programs}:/usr/bin:/bin")),
        ("LANG", "C.UTF-8".to_owned()),
        ("NO_COLOR", "1".to_owned()),
        ("API_SERVER_HOST", address.ip().to_string()),
        ("API_SERVER_PORT", address.port().to_string()),
        // Nothing here may leave the machine: whatever tries ends at a closed port at once.
        ("HTTP_PROXY", "http://127.0.0.1:9".to_owned()),
        ("HTTPS_PROXY", "http://127.0.0.1:9".to_owned()),
        ("NO_PROXY", "127.0.0.1,localhost".to_owned()),
    ];
    Program {
        path: path.to_owned(),
        arguments: vec!["gateway".to_owned(), "run".to_owned()],
        environment: environment.map(|(name, value)| (name.to_owned(), value)).into(),
        directory: home.path.clone(),
        input: String::new(),
    }
}
