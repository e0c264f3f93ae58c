//! Configuration: the TOML file becomes a validated [`Config`] once, and every error is told at once.
//!
//! Invariants: a `Config` needs no further checks; every error names the key, the value and what is allowed; an
//! unknown key is an error. This room opens no socket and no database, and reads no file but the one it is given.

mod changes;
mod read;
mod sections;
mod values;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;

pub use changes::Changes;
pub use sections::parse;
pub use values::{GatewayUrl, HeaderText, Host, duration_text, parse_duration};

use crate::names::GatewayName;

/// Everything that an operator can set, validated.
#[derive(Debug, Clone)]
pub struct Config {
    /// Database, master key, audit log and admin socket live here.
    pub data_dir: PathBuf,
    /// The public side.
    pub listen: Listen,
    /// Address of /metrics, /healthz and /readyz; `None`: not served.
    pub metrics_address: Option<SocketAddr>,
    /// At least one; names are unique.
    pub gateways: Vec<Gateway>,
    /// Which routes are served beyond the default table.
    pub routes: Routes,
    /// Bounds on people, connections and bodies.
    pub limits: Limits,
    /// Bounds on waiting.
    pub deadlines: Deadlines,
    /// Whether each request is written to the log as one JSON line.
    pub access_log: bool,
    /// What happens to a turn when there is no room for its audit records.
    pub audit_when_full: WhenFull,
    /// Whether a session cookie counts on a loopback listener without TLS.
    pub insecure_loopback_cookies: bool,
}

/// The public side of the edge.
#[derive(Debug, Clone)]
pub struct Listen {
    /// Where to listen; port 0 lets the system choose.
    pub address: SocketAddr,
    /// The scheme and authority that people see, without a final slash.
    pub public_url: Option<String>,
    /// Authorities that a request may name, besides the bound address.
    pub hosts: Vec<Host>,
    /// `None`: clients are served without encryption.
    pub tls: Option<Tls>,
    /// Networks whose word about a client's address and encryption counts.
    pub trusted_forwarders: Vec<IpNet>,
}

/// How the public side is encrypted. The files themselves are not read here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// At least one; the first is for clients that name no other.
    pub certificates: Vec<CertificateFiles>,
    /// `None`: clients are not asked for a certificate.
    pub clients: Option<ClientCertificates>,
}

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// PEM: the server's certificate, then its chain.
    pub certificate: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
}

/// What is asked of a client's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificates {
    /// PEM: the authorities that may have signed it.
    pub authorities: PathBuf,
    /// Whether a client without one is turned away.
    pub required: bool,
}

/// One Hermes gateway.
#[derive(Debug, Clone)]
pub struct Gateway {
    /// Its name: a metric label and the value of a bot's `gateway`.
    pub name: GatewayName,
    /// Where it listens.
    pub url: GatewayUrl,
    /// Turns that it runs at once, for all bots together.
    pub max_turns: usize,
    /// File with the default profile's key, with which the proof shows isolation.
    pub default_api_server_key_file: Option<PathBuf>,
    /// Promise 12 off: the gateway may run as the edge's own user.
    pub allow_same_user: bool,
    /// Further request headers to let through, lower case.
    pub forward_headers: Vec<HeaderText>,
    /// Bots that may be assigned to it; `None`: no bound.
    pub max_bots: Option<usize>,
}

/// A group of routes that is off unless named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteGroup {
    /// `/api/sessions…`
    Sessions,
    /// `/api/jobs…`
    Jobs,
}

/// Which routes are served beyond the default table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    /// Groups switched on.
    pub groups: Vec<RouteGroup>,
    /// The operator's own templates.
    pub extra: Vec<ExtraRoute>,
}

/// One template of the operator's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraRoute {
    /// The method, upper case.
    pub method: &'static str,
    /// Path below `/p/<profile>`, with `{id}` for an identifier segment.
    pub template: String,
    /// Whether it runs the agent and so needs a permit.
    pub turn: bool,
}

/// Bounds on people, connections and bodies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Turns of one person at once.
    pub turns_per_person: usize,
    /// Turns of one person that may wait.
    pub queue_per_person: usize,
    /// Turns of all people that may wait.
    pub queue_total: usize,
    /// Longest wait for a permit.
    pub queue_wait: Duration,
    /// Client connections at once.
    pub connections: usize,
    /// Client connections at once from one address; an IPv6 /64 is one address.
    pub connections_per_address: usize,
    /// TLS handshakes at once; a quarter of them from one address.
    pub handshakes: usize,
    /// Longest request body, in bytes.
    pub max_body_bytes: u64,
    /// Requests of one person in a second; `None`: no bound.
    pub requests_per_second_per_person: Option<NonZeroU32>,
    /// Requests from one address, or IPv6 /64, in a second; `None`: no bound.
    pub requests_per_second_per_address: Option<NonZeroU32>,
}

/// Bounds on waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlines {
    /// A TLS handshake.
    pub handshake: Duration,
    /// First byte of a connection.
    pub first_byte: Duration,
    /// A whole header section, from its first byte.
    pub header: Duration,
    /// Connecting to a gateway.
    pub connect: Duration,
    /// The gateway's response head.
    pub response_head: Duration,
    /// Silence in a response or tunnel.
    pub idle: Duration,
    /// Silence between two requests on a connection.
    pub keep_alive: Duration,
    /// Longest time that a client lets its answer wait, and longest wait for it beyond what 1 KiB/s takes.
    pub write: Duration,
    /// Longest silence inside a request body, and longest wait for it beyond what 1 KiB/s takes.
    pub body: Duration,
    /// Time that running turns get at shutdown.
    pub drain: Duration,
}

/// What happens to a turn when there is no room for its audit records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// 503.
    Refuse,
    /// The turn runs; the missing record is counted.
    Drop,
}

/// One thing wrong with the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The key's full name, or empty for the file as a whole.
    pub key: String,
    /// What is wrong, with the value, and what is allowed.
    pub message: String,
}

/// All that is wrong with a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// At least one problem, in the file's order of sections.
    pub problems: Vec<ConfigProblem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            let separator = if at == 0 { "" } else { "\n" };
            let colon = if problem.key.is_empty() { "" } else { ": " };
            write!(f, "{separator}{}: {}{colon}{}", self.file.display(), problem.key, problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Reads and validates a configuration file. Relative paths in it are relative to its own directory.
///
/// # Errors
/// [`ConfigError`] with every problem of the file.
pub fn load(file: &Path) -> Result<Config, ConfigError> {
    let text = read(file).map_err(|error| ConfigError {
        file: file.to_owned(),
        problems: vec![ConfigProblem { key: String::new(), message: format!("cannot be read: {error}") }],
    })?;
    let base = file.parent().unwrap_or(Path::new("."));
    parse(&text, base).map_err(|problems| ConfigError { file: file.to_owned(), problems })
}

/// Longest configuration file, in bytes.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// The text of a configuration file.
///
/// # Errors
/// It cannot be read, or is longer than any configuration.
pub fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(FILE_MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX_BYTES {
        return Err(io::Error::other(format!("it is longer than {FILE_MAX_BYTES} bytes")));
    }
    Ok(text)
}
