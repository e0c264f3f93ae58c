//! The proxies that are compared: how each is configured for the job, started and stopped.

mod botgate;
mod certificate;
mod haproxy;
mod nginx;
mod pingora;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustls::ClientConfig;

pub use botgate::{Botgate, Edge};
pub use certificate::Certificate;

use crate::drivers::{Answer, call, call_encrypted};
use crate::people::{Ask, Person};
use crate::process::{Child, cpu_ns, memory_kib};
use crate::trouble::{Outcome, Trouble};

/// How long a proxy may take until it serves.
const START: Duration = Duration::from_secs(60);
/// What every proxy answers a client without a valid credential.
const REFUSAL: &str = r#"{"error":{"message":"No valid credential for this bot was given.","type":"authentication_error","param":null,"code":"unauthorized"}}"#;

/// What stands between client and upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Peer {
    /// Nothing: clients send the upstream what a proxy would.
    Direct,
    Nginx,
    Haproxy,
    Pingora,
    Botgate,
}

impl Peer {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Direct => "no proxy",
            Peer::Nginx => "nginx",
            Peer::Haproxy => "HAProxy",
            Peer::Pingora => "Pingora",
            Peer::Botgate => "botgate",
        }
    }
}

/// What all proxies are made from.
#[derive(Debug)]
pub struct Ground {
    pub people: Vec<Person>,
    pub upstream: SocketAddr,
    /// Processors: each proxy has a worker for each.
    pub cores: usize,
    /// For configuration files and outputs.
    pub dir: PathBuf,
    pub pingora: PathBuf,
    pub certificate: Certificate,
    pub botgate: Botgate,
}

/// A running proxy. Dropping it stops it.
#[derive(Debug)]
pub struct Proxy {
    pub peer: Peer,
    pub address: SocketAddr,
    child: Option<Child>,
    edge: Option<Edge>,
    // For clients that speak TLS.
    client: Option<Arc<ClientConfig>>,
}

impl Proxy {
    /// Starts a proxy, which speaks TLS or does not, and waits until it serves.
    ///
    /// # Errors
    /// It cannot be started, or does not serve in time.
    pub fn start(peer: Peer, ground: &Ground, encrypted: bool) -> Outcome<Self> {
        let certificate = encrypted.then_some(&ground.certificate);
        let dir = ground.dir.join(peer.name());
        std::fs::create_dir_all(&dir)?;
        let mut proxy = match peer {
            Peer::Direct => Proxy { peer, address: ground.upstream, child: None, edge: None, client: None },
            Peer::Nginx => nginx::start(ground, certificate, &dir)?,
            Peer::Haproxy => haproxy::start(ground, certificate, &dir)?,
            Peer::Pingora => pingora::start(ground, &dir)?,
            Peer::Botgate => ground.botgate.start(certificate, &dir)?,
        };
        proxy.client = certificate.map(|certificate| certificate.client.clone());
        if let Some(first) = ground.people.first() {
            proxy.awaits(&proxy.request(Ask::Models, first))?;
        }
        Ok(proxy)
    }

    /// Starts a botgate of its own, and waits until it answers this request.
    ///
    /// # Errors
    /// It cannot be started, or does not serve in time.
    pub fn of(botgate: &Botgate, dir: &Path, request: &str) -> Outcome<Self> {
        let mut proxy = botgate.start(None, dir)?;
        proxy.awaits(request)?;
        Ok(proxy)
    }

    fn with(peer: Peer, address: SocketAddr, child: Child) -> Self {
        Proxy { peer, address, child: Some(child), edge: None, client: None }
    }

    fn awaits(&mut self, request: &str) -> Outcome<()> {
        let since = Instant::now();
        let mut last = String::new();
        while since.elapsed() < START {
            if let Some(child) = &mut self.child
                && !child.is_running()
            {
                return Err(Trouble::new(format!("{} does not start: {}", self.peer.name(), child.output())));
            }
            match self.call(request) {
                Ok(answer) if answer.status == 200 => return Ok(()),
                Ok(answer) => last = format!("{} {}", answer.status, answer.body),
                Err(trouble) => last = trouble.to_string(),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = self.child.as_ref().map(Child::output).unwrap_or_default();
        Err(Trouble::new(format!("{} does not serve: {last}\n{output}", self.peer.name())))
    }

    /// Sends one request on a connection of its own, and reads its answer.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn call(&self, request: &str) -> Outcome<Answer> {
        match &self.client {
            None => call(self.address, request),
            Some(client) => call_encrypted(self.address, client, request),
        }
    }

    /// Where it is, for clients that are told by URL.
    pub fn url(&self) -> String {
        let scheme = if self.client.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/", self.address)
    }

    /// A person's request, as this proxy's clients send it.
    pub fn request(&self, ask: Ask, person: &Person) -> String {
        match self.peer {
            Peer::Direct => ask.forwarded(person),
            _ => ask.request("", &person.token),
        }
    }

    /// Nanoseconds on the processors so far, of the whole process tree.
    pub fn cpu_ns(&self) -> u64 {
        self.child.as_ref().map_or(0, |child| cpu_ns(child.pid()))
    }

    /// Memory of the process tree, in KiB.
    ///
    /// # Errors
    /// It may not be looked at.
    pub fn memory_kib(&self) -> Outcome<u64> {
        self.child.as_ref().map_or(Ok(0), |child| memory_kib(child.pid()))
    }

    /// Fails when the proxy did less than its job: botgate must have kept its proof and its audit log.
    ///
    /// # Errors
    /// What it did not do.
    pub fn is_sound(&self) -> Outcome<()> {
        self.edge.as_ref().map_or(Ok(()), Edge::is_sound)
    }

    /// botgate's own parts, when this is botgate.
    pub fn edge(&self) -> Option<&Edge> {
        self.edge.as_ref()
    }
}

/// A port that is free now.
fn free_address() -> Outcome<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Writes a file of a proxy's, and gives its path.
fn written(dir: &Path, name: &str, text: &str) -> Outcome<PathBuf> {
    let path = dir.join(name);
    std::fs::write(&path, text).map_err(Trouble::with(path.display()))?;
    Ok(path)
}

/// One line for each person.
fn lines(people: &[Person], line: impl Fn(&Person) -> String) -> String {
    people.iter().map(|person| line(person) + "\n").collect()
}
