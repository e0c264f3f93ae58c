//! botgate as an operator runs it: the binary, a configuration file, people and sessions through its own commands.
//!
//! Metrics, audit log, deadlines and limits are on; the limits are above the load. A data directory is made once and served
//! by each start.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Certificate, Peer, Proxy, START, lines, written};
use crate::drivers::call;
use crate::people::{HOST, Person};
use crate::process::Child;
use crate::trouble::{Outcome, Trouble};

/// The binary that cargo built beside this one.
const BINARY: &str = env!("CARGO_BIN_EXE_botgate");

/// A data directory with people in it.
#[derive(Debug)]
pub struct Botgate {
    dir: PathBuf,
}

/// What a running botgate offers beside its address.
#[derive(Debug)]
pub struct Edge {
    metrics: SocketAddr,
    data: PathBuf,
}

impl Botgate {
    /// Makes a data directory, and everybody known with their bots.
    ///
    /// # Errors
    /// A command failed.
    pub fn init(dir: &Path, upstream: SocketAddr, people: &[Person]) -> Outcome<Self> {
        let botgate = Botgate { dir: dir.to_owned() };
        botgate.run(&["init", "--dir", &dir.display().to_string()], None)?;
        let config = format!(
            "data_dir = \"./data\"\n[listen]\naddress = \"127.0.0.1:0\"\nadditional_hosts = [\"{HOST}\"]\n\
             [admin]\nmetrics_address = \"127.0.0.1:0\"\n\
             [[gateway]]\nname = \"main\"\nurl = \"http://{upstream}\"\nmax_turns = 20000\nallow_same_user = true\n\
             [limits]\nturns_per_person = 20000\nconnections = 20000\nconnections_per_address = 20000\n"
        );
        written(dir, "botgate.toml", &config)?;
        botgate.run(&["check"], None)?;
        let people = lines(people, |person| {
            format!(r#"{{"login":"{}","api_server_key":"{}"}}"#, person.login, person.key.expose())
        });
        let file = written(dir, "people.jsonl", &people)?;
        botgate.run(&["user", "import", &file.display().to_string()], None)?;
        std::fs::remove_file(file)?;
        Ok(botgate)
    }

    /// Issues so many sessions for each person, and gives the tokens in the order of the people.
    ///
    /// # Errors
    /// The command failed.
    pub fn sign_in(&self, people: &[Person], each: usize) -> Outcome<Vec<String>> {
        let logins = lines(people, |person| person.login.to_string());
        let each = each.to_string();
        let printed = self.run(&["session", "create", "--stdin", "--count", &each], Some(&logins))?;
        Ok(printed.lines().filter_map(|line| line.split_once('\t')).map(|(_, token)| token.to_owned()).collect())
    }

    /// Starts it, and waits until its gateway is proved.
    pub(super) fn start(&self, certificate: Option<&Certificate>, dir: &Path) -> Outcome<Proxy> {
        let output = dir.join("output");
        let config = match certificate {
            None => self.config(),
            Some(certificate) => self.encrypted(certificate)?,
        };
        let mut child = Child::start(Path::new(BINARY), &["serve", "--config", &config].map(str::to_owned), output)?;
        let since = Instant::now();
        loop {
            let told = child.output();
            let address = |what| told.lines().find_map(|line| line.strip_prefix(what)?.parse::<SocketAddr>().ok());
            let listening = address("listening on http://").or_else(|| address("listening on https://"));
            if let Some((address, metrics)) = listening.zip(address("metrics on http://")) {
                let edge = Edge { metrics, data: self.dir.join("data") };
                if edge.asks("/readyz")?.0 == 200 {
                    return Ok(Proxy {
                        peer: Peer::Botgate,
                        address,
                        child: Some(child),
                        edge: Some(edge),
                        client: None,
                    });
                }
            }
            if !child.is_running() || since.elapsed() > START {
                return Err(Trouble::new(format!("botgate does not become ready: {told}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A configuration beside the usual one, with TLS.
    fn encrypted(&self, certificate: &Certificate) -> Outcome<String> {
        let usual = self.config();
        let text = std::fs::read_to_string(&usual).map_err(Trouble::with(&usual))?;
        let (file, key) = (certificate.certificate.display(), certificate.key.display());
        let tls = format!("[listen]\ntls = [{{ certificate = \"{file}\", key = \"{key}\" }}]\n");
        Ok(written(&self.dir, "encrypted.toml", &text.replace("[listen]\n", &tls))?.display().to_string())
    }

    fn config(&self) -> String {
        self.dir.join("botgate.toml").display().to_string()
    }

    fn run(&self, arguments: &[&str], input: Option<&str>) -> Outcome<String> {
        let stdin = match input {
            Some(text) => Stdio::from(File::open(written(&self.dir, "input", text)?)?),
            None => Stdio::null(),
        };
        let mut command = Command::new(BINARY);
        command.args(arguments).stdin(stdin);
        if arguments.first() != Some(&"init") {
            command.args(["--config", &self.config()]);
        }
        let done = command.output().map_err(Trouble::with(BINARY))?;
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
            false => {
                let told = String::from_utf8_lossy(&done.stderr);
                Err(Trouble::new(format!("botgate {}: {told}", arguments.join(" "))))
            }
        }
    }
}

impl Edge {
    /// Its data directory, where the admin socket is told.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Fails unless the proof holds and no audit record was lost.
    ///
    /// # Errors
    /// What is wrong.
    pub fn is_sound(&self) -> Outcome<()> {
        let (_, metrics) = self.asks("/metrics")?;
        let value = |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        for (name, wanted) in [
            ("botgate_binding_proof_success{gateway=\"main\"}", "1"),
            ("botgate_audit_write_failures_total", "0"),
            ("botgate_audit_dropped_records_total", "0"),
        ] {
            let found = value(name).unwrap_or("missing");
            if found != wanted {
                return Err(Trouble::new(format!("botgate's {name} is {found}, not {wanted}")));
            }
        }
        Ok(())
    }

    fn asks(&self, path: &str) -> Outcome<(u16, String)> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.metrics);
        call(self.metrics, &request).map(|answer| (answer.status, answer.body))
    }
}
