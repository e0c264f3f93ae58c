//! The commands as an operator types them, with and without a running edge: exit codes, what is printed where, effects.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::support::child::{Child, Program};
use super::support::control::{Ground, profile};
use super::support::http::Call;
use super::support::{eventually, poll_for};

const BOTGATE: &str = env!("CARGO_BIN_EXE_botgate");
/// Longest wait for something to happen on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a command came to.
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

fn run_in(dir: &Path, config: Option<&Path>, words: &[&str], input: &str) -> Done {
    let mut command = Command::new(BOTGATE);
    command
        .args(words)
        .env_clear()
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(config) = config {
        command.env("BOTGATE_CONFIG", config);
    }
    let mut child = command.spawn().expect("botgate starts");
    let mut stdin = child.stdin.take().expect("its standard input is piped");
    let input = input.to_owned();
    let feed = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, input.as_bytes()));
    let Output { status, stdout, stderr } = child.wait_with_output().expect("botgate ends");
    // A command that does not read its input has closed it.
    let _ = feed.join();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("botgate prints text");
    Done { code: status.code(), out: text(stdout), err: text(stderr) }
}

impl Ground {
    fn run(&self, words: &[&str], input: &str) -> Done {
        run_in(self.dir.path(), Some(&self.config()), words, input)
    }

    /// A command that must succeed; what it printed.
    #[track_caller]
    fn ok(&self, words: &[&str], input: &str) -> String {
        let done = self.run(words, input);
        assert_eq!(done.code, Some(0), "{words:?}: {}{}", done.out, done.err);
        done.out
    }

    /// A command that must fail; what it told.
    #[track_caller]
    fn fails(&self, words: &[&str], input: &str) -> String {
        let done = self.run(words, input);
        assert_eq!(done.code, Some(1), "{words:?}: {}{}", done.out, done.err);
        assert!(!done.err.is_empty(), "{words:?} fails without a word");
        done.err
    }
}

impl Ground {
    /// What a `botgate serve` tells that must not come up.
    #[track_caller]
    fn fails_to_serve(&self) -> String {
        let mut child = Command::new(BOTGATE)
            .arg("serve")
            .env_clear()
            .env("BOTGATE_CONFIG", self.config())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("botgate starts");
        let ended = poll_for(PATIENCE, || child.try_wait().expect("its own child"));
        if ended.is_none() {
            child.kill().expect("its own child");
        }
        let Output { status, stdout, stderr } = child.wait_with_output().expect("botgate ends");
        let told = String::from_utf8_lossy(&stderr).into_owned();
        assert_eq!(status.code(), Some(1), "{told}");
        assert!(stdout.is_empty(), "nothing listens: {}", String::from_utf8_lossy(&stdout));
        told
    }
}

#[test]
fn a_store_that_cannot_be_used_is_named_and_nothing_is_served() {
    let ground = Ground::new();
    ground.ok(&["user", "add", "alice"], "");
    let (key, database) = (ground.data_dir().join("master.key"), ground.data_dir().join("botgate.db"));
    let own = std::fs::read(&key).expect("the master key");
    std::fs::write(&key, "5".repeat(64)).expect("another master key");
    let told = ground.fails_to_serve();
    assert!(told.contains("botgate.db") && told.contains("master key"), "{told}");
    std::fs::write(&key, own).expect("the master key");
    let raw = rusqlite::Connection::open(&database).expect("the database");
    let version: i64 = raw.pragma_query_value(None, "user_version", |row| row.get(0)).expect("its version");
    raw.pragma_update(None, "user_version", version + 1).expect("a newer version");
    let told = ground.fails_to_serve();
    assert!(told.contains("botgate.db") && told.contains("newer"), "{told}");
    raw.pragma_update(None, "user_version", version).expect("the version that it has");
    drop(raw);
    std::fs::write(ground.data_dir().join("audit").join("00000001.jsonl"), "{}\n").expect("a log that is none");
    let told = ground.fails_to_serve();
    assert!(told.contains("audit"), "{told}");
}

/// A `botgate serve` of its own process.
struct Served {
    child: Child,
    address: SocketAddr,
    metrics: SocketAddr,
}

impl Served {
    #[track_caller]
    fn start(ground: &Ground) -> Self {
        let program = Program {
            path: PathBuf::from(BOTGATE),
            arguments: vec!["--config".into(), ground.config().display().to_string(), "serve".into()],
            environment: Vec::new(),
            directory: ground.dir.path().to_owned(),
            input: String::new(),
        };
        let child = Child::start(program, &ground.dir.path().join("serve.log"));
        let printed = |start: &str| {
            let output = child.output();
            let line = output.lines().find_map(|line| line.strip_prefix(start)?.parse().ok());
            line.or_else(|| (!child.is_running()).then(|| panic!("serve ended: {output}")))
        };
        let address = poll_for(PATIENCE, || printed("listening on http://")).expect("serve says where it listens");
        let metrics = poll_for(PATIENCE, || printed("metrics on http://")).expect("serve says where its metrics are");
        Served { child, address, metrics }
    }

    fn status(&self, token: &str) -> u16 {
        Call::get("/v1/models").bearer(token).send(self.address).status
    }
}

#[test]
fn files_without_an_end_and_directories_are_refused() {
    let ground = Ground::new();
    let endless = run_in(ground.dir.path(), None, &["check", "--config", "/dev/zero"], "");
    assert!(endless.code == Some(1) && endless.err.contains("longer than"), "{}", endless.err);
    let told = ground.fails(&["user", "import", "."], "");
    assert!(told.contains(".: is a directory"), "{told}");
    let config = std::fs::read_to_string(ground.config()).expect("the configuration is there");
    assert!(config.contains("\"default.key\""), "{config}");
    std::fs::write(ground.config(), config.replace("\"default.key\"", "\"/dev/zero\"")).expect("it can be changed");
    let told = ground.fails(&["serve"], "");
    assert!(told.contains("/dev/zero"), "{told}");
}

#[test]
fn reserved_names_and_wrong_usage_exit_2() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for words in ["gc", "keep", "explain x", "user passwd alice", "doctor --canary", "audit --export"] {
        let done = run_in(dir.path(), None, &words.split(' ').collect::<Vec<_>>(), "");
        // Two of them look for a configuration first; none does anything.
        assert_eq!(done.code, Some(2), "{words}: {}", done.err);
        assert!(done.err.contains("not in this version") && done.out.is_empty(), "{words}: {}", done.err);
    }
    for words in
        ["", "nonsense", "user add", "session create", "bot adopt alice", "lockdown a b", "backup", "restore", "key"]
    {
        let words: Vec<_> = words.split(' ').filter(|word| !word.is_empty()).collect();
        assert_eq!(run_in(dir.path(), None, &words, "").code, Some(2), "{words:?}");
    }
}

#[test]
fn init_makes_what_check_accepts_and_check_tells_every_error() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    assert_eq!(run_in(dir.path(), None, &["check"], "").code, Some(1));
    assert_eq!(run_in(dir.path(), None, &["init"], "").code, Some(0));
    assert_eq!(run_in(dir.path(), None, &["init"], "").code, Some(1), "it overwrites nothing");
    assert_eq!(run_in(dir.path(), None, &["check"], "").code, Some(0));
    std::fs::write(dir.path().join("botgate.toml"), "colour = 1\n[listen]\naddress = \"here\"\n").unwrap();
    let done = run_in(dir.path(), None, &["check"], "");
    assert_eq!(done.code, Some(1));
    for key in ["colour", "listen.address", "gateway"] {
        assert!(done.err.contains(&format!("botgate.toml: {key}: ")), "{key}: {}", done.err);
    }
}

#[test]
fn without_a_running_edge_commands_work_on_the_store() {
    let ground = Ground::new();
    ground.ok(&["user", "add", "alice"], "");
    assert!(ground.fails(&["user", "add", "alice"], "").contains("exists already"));
    ground.ok(&["bot", "adopt", "alice", "--api-server-key-stdin"], ground.alice.expose());
    ground.ok(&["bot", "prove", "alice"], "");
    let token = ground.ok(&["session", "create", "alice"], "");
    assert!(token.starts_with("bgs_") && token.lines().count() == 1, "the secret stands alone: {token}");
    let done = ground.run(&["session", "create", "--stdin", "--count", "2"], "alice\nnobody\nalice\n");
    assert_eq!(done.code, Some(1));
    assert!(done.err.contains("nobody") && !done.err.contains("bgs_"), "{}", done.err);
    assert_eq!(done.out.lines().filter(|line| line.starts_with("alice\tbgs_")).count(), 4);
    let listed: Value = serde_json::from_str(&ground.ok(&["session", "list", "--json"], "")).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 5);
    assert!(ground.ok(&["token", "create", "alice", "--label", "laptop"], "").starts_with("bgp_"));
    assert!(ground.ok(&["bot", "token", "alice"], "").starts_with("bgm_"));
    for (command, instead) in [("create", "bot adopt"), ("rotate", "bot adopt"), ("delete", "user delete")] {
        assert!(ground.fails(&["bot", command, "alice"], "").contains(instead));
    }
    assert!(ground.fails(&["user", "delete", "alice"], "").contains("bot-alice"));
    assert!(ground.fails(&["reconcile", "--apply"], "").contains("bot-alice"));
    ground.stand_in.remove_bot(&profile("alice"));
    ground.ok(&["reconcile", "--apply"], "");
    assert_eq!(ground.ok(&["user", "list"], ""), "no people\n");
    let verified: Value = serde_json::from_str(&ground.ok(&["audit", "--verify", "--json"], "")).unwrap();
    let head = verified["head"].as_str().expect("a head");
    ground.ok(&["audit", "--verify", "--head", head], "");
    let shown = ground.ok(&["audit", "--login", "alice"], "");
    assert!(shown.contains("action=user.delete") && !shown.contains(token.trim()), "{shown}");
}

#[test]
fn while_the_edge_serves_commands_take_effect_at_once() {
    let ground = Ground::new();
    let mut served = Served::start(&ground);
    ground.ok(&["user", "add", "alice"], "");
    let told = ground.ok(&["bot", "adopt", "alice", "--api-server-key-stdin"], ground.alice.expose());
    assert!(told.contains("proved"), "{told}");
    let sign_in = || ground.ok(&["session", "create", "alice"], "").trim().to_owned();
    let (first, second) = (sign_in(), sign_in());
    eventually("alice is served", PATIENCE, || served.status(&first) == 200);
    let listed: Value = serde_json::from_str(&ground.ok(&["session", "list", "alice", "--json"], "")).unwrap();
    let since = Instant::now();
    for session in listed.as_array().unwrap() {
        ground.ok(&["session", "revoke", session["id"].as_str().unwrap()], "");
    }
    assert_eq!((served.status(&first), served.status(&second)), (401, 401), "after {:?}", since.elapsed());
    let third = sign_in();
    assert_eq!(served.status(&third), 200);
    assert_eq!(Call::get("/p/bot-bob/v1/models").bearer(&third).send(served.address).status, 401);
    let shown = ground.ok(&["audit", "--login", "alice"], "");
    assert!(shown.contains("reason=not_own_bot") && !shown.contains(&third), "{shown}");
    ground.ok(&["user", "disable", "alice"], "");
    assert_eq!(served.status(&third), 401);
    ground.ok(&["user", "enable", "alice"], "");
    assert_eq!(served.status(&third), 200);
    assert!(ground.ok(&["lockdown", "alice"], "").contains("bot-alice"));
    assert_eq!(served.status(&third), 401);
    let refused = ground.fails(&["bot", "adopt", "alice", "--api-server-key-stdin"], &"k3".repeat(20));
    assert!(refused.contains("wrong key"), "{refused}");
    let doctor = ground.run(&["doctor", "--json"], "");
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.out.contains("wrong key"), "{}", doctor.out);
    served.child.stop(PATIENCE);
    ground.ok(&["user", "list"], "");
}

#[test]
fn health_readiness_and_metrics_tell_how_it_stands() {
    let ground = Ground::new();
    let served = Served::start(&ground);
    ground.ok(&["user", "add", "alice"], "");
    ground.ok(&["bot", "adopt", "alice", "--api-server-key-stdin"], ground.alice.expose());
    ground.ok(&["session", "create", "alice", "--count", "3"], "");
    let page = |path: &str| Call::get(path).send(served.metrics);
    assert_eq!(page("/healthz").status, 200);
    assert_eq!((page("/").status, page("/user/list").status), (404, 404));
    eventually("one gateway is servable", PATIENCE, || page("/readyz").status == 200);
    let metrics = page("/metrics").body;
    for line in ["botgate_sessions 3", "botgate_orphan_profiles 0", "botgate_bots{state=\"proved\"} 1"] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    assert!(!metrics.contains("alice"), "metrics name nobody");
    ground.stand_in.set_isolation(botgate::cli::stand_in::Isolation::AnyKey);
    ground.fails(&["bot", "prove", "alice"], "");
    assert_eq!(page("/readyz").status, 503);
    assert_eq!(page("/healthz").status, 200);
}
