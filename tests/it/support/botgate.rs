//! The botgate binary with a data directory of its own: its commands, and `serve` as a child.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::child::{Child, Program};
use super::hermes::Bot;
use super::http::{Answer, Call};
use super::{eventually, poll_for};

/// Where the binary is.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_botgate");
/// The longest that a command may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);
/// The longest that a start, a first proof or a stop may take.
const SOON: Duration = Duration::from_secs(60);

/// What the configuration file says beside what every test needs.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) gateway: SocketAddr,
    /// The default profile's key, which the proof tries on bots.
    pub(crate) default_key: Option<String>,
    /// Lines of the `[limits]` section, and any sections after it.
    pub(crate) limits: String,
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The exit code; `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A data directory, and the edge that serves from it. Dropping it stops the edge and removes the directory.
#[derive(Debug)]
pub(crate) struct Botgate {
    serving: Option<Serving>,
    /// Everything that commands printed on standard error; on standard output some print the secret they issue.
    told: std::sync::Mutex<String>,
    starts: usize,
    dir: tempfile::TempDir,
}

#[derive(Debug)]
struct Serving {
    child: Child,
    address: SocketAddr,
    metrics: SocketAddr,
}

impl Setup {
    /// The smallest: this gateway, and no default key for the proof.
    pub(crate) fn at(gateway: SocketAddr) -> Self {
        Self { gateway, default_key: None, limits: String::new() }
    }

    fn text(&self) -> String {
        let key = self.default_key.as_ref().map_or("", |_| "default_api_server_key_file = \"default.key\"\n");
        format!(
            "data_dir = \"./data\"\n\
             [listen]\naddress = \"127.0.0.1:0\"\npublic_url = \"http://localhost:8080\"\n\
             additional_hosts = [\"127.0.0.1\"]\n\
             [admin]\nmetrics_address = \"127.0.0.1:0\"\n\
             [[gateway]]\nname = \"main\"\nurl = \"http://{}\"\nallow_same_user = true\n{key}\
             [log]\naccess = true\n[sign_in]\ninsecure_loopback = true\n[limits]\n{}\n",
            self.gateway, self.limits
        )
    }
}

impl Ran {
    /// Its standard output, once it succeeded.
    #[track_caller]
    pub(crate) fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// What it said on standard error when it failed as commands do.
    #[track_caller]
    pub(crate) fn failed(self) -> String {
        assert_eq!(self.code, Some(1), "{}{}", self.stdout, self.stderr);
        self.stderr
    }

    /// Its standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("not JSON: {}{}", self.stdout, self.stderr))
    }
}

impl Botgate {
    /// A new data directory, made by `init`, with this configuration.
    #[track_caller]
    pub(crate) fn new(setup: &Setup) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let botgate = Self { serving: None, told: std::sync::Mutex::default(), starts: 0, dir };
        botgate.run(&["init", "--dir", &botgate.path("").display().to_string()]).done();
        fs::write(botgate.path("botgate.toml"), setup.text()).expect("the configuration can be written");
        if let Some(key) = &setup.default_key {
            fs::write(botgate.path("default.key"), key).expect("the key can be written");
        }
        botgate.run(&["check"]).done();
        botgate
    }

    /// Something in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command that reads nothing.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, "")
    }

    /// Runs a command with this standard input.
    #[track_caller]
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Ran {
        let streams = tempfile::tempdir().expect("a temporary directory");
        let file = |name: &str| streams.path().join(name);
        fs::write(file("in"), input).expect("the input can be written");
        let create = |name| File::create(file(name)).expect("an output file can be made");
        let mut child = Command::new(BINARY)
            .args(arguments)
            .env_clear()
            .env("BOTGATE_CONFIG", self.path("botgate.toml"))
            .current_dir(self.dir.path())
            .stdin(Stdio::from(File::open(file("in")).expect("the input was written")))
            .stdout(create("out"))
            .stderr(create("err"))
            .spawn()
            .expect("the binary runs");
        let ended = poll_for(COMMAND_LIMIT, || child.try_wait().expect("a child can be waited for"));
        if ended.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let read = |name| String::from_utf8_lossy(&fs::read(file(name)).unwrap_or_default()).into_owned();
        let ran = Ran { code: ended.and_then(|status| status.code()), stdout: read("out"), stderr: read("err") };
        assert!(ended.is_some(), "{arguments:?} takes longer than {COMMAND_LIMIT:?}: {ran:?}");
        self.told.lock().expect("no holder panics").push_str(&ran.stderr);
        ran
    }

    /// Makes a person known whose bot exists at the gateway.
    #[track_caller]
    pub(crate) fn add(&self, login: &str, bot: &Bot) {
        self.run(&["user", "add", login]).done();
        self.run_with(&["bot", "adopt", login, "--api-server-key-stdin"], &bot.api_key).done();
    }

    /// A new session's token.
    #[track_caller]
    pub(crate) fn session(&self, login: &str) -> String {
        self.run(&["session", "create", login]).done().trim().to_owned()
    }

    /// The ids of a person's live sessions.
    #[track_caller]
    pub(crate) fn session_ids(&self, login: &str) -> Vec<String> {
        let listed = self.run(&["--json", "session", "list", login]).json();
        let ids = listed.as_array().into_iter().flatten().filter_map(|session| session["id"].as_str());
        ids.map(str::to_owned).collect()
    }

    /// Starts `serve`, and waits until it listens.
    #[track_caller]
    pub(crate) fn serve(&mut self) {
        self.serve_as(&[], &[]);
    }

    /// The same, with more in its environment, and by what runs the rest of its command line.
    #[track_caller]
    pub(crate) fn serve_as(&mut self, environment: &[(&str, &str)], by: &[String]) {
        self.starts += 1;
        let mut command = by.iter().cloned().chain([BINARY.to_owned(), "serve".to_owned()]);
        let file = self.path("botgate.toml").display().to_string();
        let environment = environment.iter().copied().chain([("BOTGATE_CONFIG", file.as_str())]);
        let program = Program {
            path: PathBuf::from(command.next().expect("a command line has a first word")),
            arguments: command.collect(),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            directory: self.dir.path().to_owned(),
            input: String::new(),
        };
        let child = Child::start(program, &self.path(&format!("output.{}", self.starts)));
        let told = |what: &str| {
            let output = child.output();
            output.lines().find_map(|line| line.strip_prefix(what)?.parse::<SocketAddr>().ok())
        };
        let both = poll_for(SOON, || {
            let listening = told("listening on http://").or_else(|| told("listening on https://"));
            let both = listening.zip(told("metrics on http://"));
            both.map(Some).or_else(|| (!child.is_running()).then_some(None))
        });
        let Some(Some((address, metrics))) = both else { panic!("serve does not come up:\n{}", child.output()) };
        self.serving = Some(Serving { child, address, metrics });
    }

    /// Starts `serve`, and waits until a gateway is proved.
    #[track_caller]
    pub(crate) fn serve_until_ready(&mut self) {
        self.serve();
        self.becomes_ready();
    }

    /// Waits until `/readyz` says that a gateway can be served.
    #[track_caller]
    pub(crate) fn becomes_ready(&self) {
        let ready = poll_for(SOON, || (self.readyz().status == 200).then_some(()));
        assert!(ready.is_some(), "not ready: {}\n{}", self.readyz().body, self.output());
    }

    fn serving(&self) -> &Serving {
        self.serving.as_ref().expect("the test has started serve")
    }

    /// The process that serves.
    pub(crate) fn pid(&self) -> i32 {
        self.serving().child.pid()
    }

    /// Where clients are served.
    pub(crate) fn address(&self) -> SocketAddr {
        self.serving().address
    }

    /// Where metrics and health are served.
    pub(crate) fn metrics_address(&self) -> SocketAddr {
        self.serving().metrics
    }

    /// The base URL for an SDK.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address())
    }

    /// What `/readyz` answers.
    #[track_caller]
    pub(crate) fn readyz(&self) -> Answer {
        Call::get("/readyz").header("Connection", "close").send(self.serving().metrics)
    }

    /// All metrics as text.
    #[track_caller]
    pub(crate) fn metrics(&self) -> String {
        let answer = Call::get("/metrics").header("Connection", "close").send(self.serving().metrics);
        assert_eq!(answer.status, 200);
        answer.body
    }

    /// The value of a metric's line, by its name and labels as rendered; 0 when there is none.
    #[track_caller]
    pub(crate) fn metric(&self, line: &str) -> f64 {
        let text = self.metrics();
        text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' ')?.parse().ok()).unwrap_or(0.0)
    }

    /// Turns that hold a permit, and turns that wait for one.
    #[track_caller]
    pub(crate) fn turns(&self) -> (f64, f64) {
        let of = |name: &str| self.metric(&format!("{name}{{gateway=\"main\"}}"));
        (of("botgate_turns_in_flight"), of("botgate_turns_queued"))
    }

    /// Waits until nothing runs and nothing waits.
    #[track_caller]
    pub(crate) fn settles(&self) {
        eventually("permits and queue return to zero", SOON, || self.turns() == (0.0, 0.0));
    }

    /// What the running `serve`, or the last one, has printed.
    pub(crate) fn output(&self) -> String {
        let file = self.path(&format!("output.{}", self.starts));
        String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
    }

    /// Stops `serve` as an operator does; true when it ended by itself and well.
    pub(crate) fn stop(&mut self) -> bool {
        let Some(mut serving) = self.serving.take() else { return true };
        serving.child.stop(SOON).is_some_and(|status| status.success())
    }

    /// Asks `serve` to stop, and does not wait.
    pub(crate) fn terminate(&self) {
        self.serving().child.terminate();
    }

    /// Waits until `serve`, which is on its way, has ended; gives its exit code.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let mut serving = self.serving.take().expect("the test has started serve");
        serving.child.ended(SOON).expect("it ends").code()
    }

    /// Kills `serve` as `kill -9` does.
    #[track_caller]
    pub(crate) fn kill(&mut self) {
        self.serving().child.kill();
        self.serving = None;
    }

    /// The audit log's records, oldest first.
    #[track_caller]
    pub(crate) fn audit(&self) -> Vec<Value> {
        let text = self.run(&["--json", "audit"]).done();
        text.lines().map(|line| serde_json::from_str(line).expect("a record is JSON")).collect()
    }

    /// Everything that botgate has let out so far, by where it did: its streams, its files that hold no secrets, its
    /// metrics, its arguments and environment.
    #[track_caller]
    pub(crate) fn let_out(&self) -> Vec<(String, Vec<u8>)> {
        let mut found = vec![(
            "standard error of commands".to_owned(),
            self.told.lock().expect("no holder panics").clone().into_bytes(),
        )];
        for start in 1..=self.starts {
            let name = format!("output.{start}");
            found.push((name.clone(), fs::read(self.path(&name)).unwrap_or_default()));
        }
        files_below(&self.path("data/audit"), &mut found);
        if let Some(serving) = &self.serving {
            found.push(("metrics".to_owned(), self.metrics().into_bytes()));
            found.push(("readyz".to_owned(), self.readyz().body.into_bytes()));
            for name in ["cmdline", "environ"] {
                let path = format!("/proc/{}/{name}", serving.child.pid());
                let bytes = fs::read(&path).expect("the process runs");
                assert!(!bytes.is_empty(), "{path} says something");
                found.push((path, bytes));
            }
        }
        found
    }

    /// Every file of the data directory but master key and control file, which are where secrets belong.
    pub(crate) fn data_files(&self) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        files_below(&self.path("data"), &mut found);
        found.retain(|(name, _)| !name.ends_with("master.key") && !name.ends_with("control.json"));
        found
    }
}

fn files_below(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_below(&path, found);
        } else if path.is_file() {
            found.push((path.display().to_string(), fs::read(&path).unwrap_or_default()));
        }
    }
}
