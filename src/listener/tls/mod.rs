//! TLS on the public side: certificates by name, resumption, clients' certificates, and their change while serving.
//!
//! Invariants: TLS 1.2 and 1.3 only, and no early data, because a request in it could be sent again by whoever saw it (RFC 8446
//! section 8); a file that is wrong changes nothing; a change is for handshakes that begin after it and ends no connection.
//! The cryptography is ring's, for the whole process: it builds with a C compiler alone, and two providers in one binary
//! would leave to chance which one serves.

mod files;
mod names;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{NoClientAuth, NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use tokio_rustls::TlsAcceptor;

use crate::config::{self, ConfigProblem};
use crate::tasks::{Cancellation, Tasks};
use crate::telemetry::metrics::{Metrics, ReloadOutcome};
use files::Pair;
use names::ByName;

/// Time between two looks at the files.
const LOOK: Duration = Duration::from_secs(3);

/// Makes this process's one cryptography the default for all that asks for one. Harmless when done twice.
pub fn install_provider() {
    // The error only says that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()))
}

/// What is wrong with certificates and keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsError(Vec<ConfigProblem>);

impl TlsError {
    /// At least one problem, in the configuration's order.
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.0
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.0.iter().enumerate() {
            let separator = if place == 0 { "" } else { "\n" };
            write!(f, "{separator}{}: {}", problem.key, problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for TlsError {}

/// The public side's TLS. Clones are handles on the same.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    files: config::Tls,
    current: ArcSwap<ServerConfig>,
    tickets: Arc<dyn ProducesTickets>,
    metrics: Arc<Metrics>,
    // What the files looked like when they were last read. Held while they are, so that no two readings overtake another.
    seen: Mutex<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.0.files).finish()
    }
}

/// Everything that is wrong with the files now, also what would be served all the same. Blocks.
///
/// # Errors
/// [`TlsError`]
pub fn examine(tls: &config::Tls) -> Result<(), TlsError> {
    let (pairs, problems) = read(tls);
    let mut problems: Vec<ConfigProblem> = problems.into_iter().chain(lapses(tls, &pairs)).collect();
    problems.extend(tls.clients.as_ref().and_then(|clients| files::authorities(&clients.authorities).err()));
    if problems.is_empty() { Ok(()) } else { Err(TlsError(problems)) }
}

fn read(tls: &config::Tls) -> (Vec<(usize, Pair)>, Vec<ConfigProblem>) {
    let (provider, mut pairs, mut problems) = (provider(), Vec::new(), Vec::new());
    for (place, one) in tls.certificates.iter().enumerate() {
        match files::pair(place, one, &provider) {
            Ok(pair) => pairs.push((place, pair)),
            Err(found) => problems.extend(found),
        }
    }
    (pairs, problems)
}

fn lapses(tls: &config::Tls, pairs: &[(usize, Pair)]) -> Vec<ConfigProblem> {
    let now = jiff::Timestamp::now().as_second();
    pairs.iter().filter_map(|(place, pair)| files::lapse(*place, &tls.certificates[*place], pair, now)).collect()
}

impl Tls {
    /// Reads the files. A certificate that does not hold now is served all the same and told in the log: to stay away would
    /// help nobody. Blocks.
    ///
    /// # Errors
    /// [`TlsError`]
    pub fn load(tls: &config::Tls, metrics: Arc<Metrics>) -> Result<Self, TlsError> {
        let seen = files::signature(tls);
        let (pairs, problems) = read(tls);
        if !problems.is_empty() {
            return Err(TlsError(problems));
        }
        for problem in lapses(tls, &pairs) {
            tracing::error!(key = problem.key, "{}", problem.message);
        }
        let tickets = new_tickets()?;
        let config = server_config(tls, &pairs, &tickets)?;
        tell_expiry(&metrics, &pairs);
        let (files, current, seen) = (tls.clone(), ArcSwap::new(config), Mutex::new(seen));
        Ok(Tls(Arc::new(Inner { files, current, tickets, metrics, seen })))
    }

    /// Reads the files anew, changed or not. Nothing changes when one of them is wrong, or holds a certificate that does not
    /// hold now. Blocks.
    ///
    /// # Errors
    /// [`TlsError`]; it is in the log, too.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.reload_if(true)
    }

    fn reload_if(&self, unchanged_too: bool) -> Result<(), TlsError> {
        let inner = &self.0;
        let mut seen = inner.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let looks = files::signature(&inner.files);
        if *seen == looks && !unchanged_too {
            return Ok(());
        }
        // Also when they are wrong, so that this is told once.
        *seen = looks;
        let changed = inner.read_again();
        match &changed {
            Ok(()) => {
                inner.metrics.config_reload(ReloadOutcome::Applied);
                tracing::info!("certificates read again; new connections have them");
            }
            Err(error) => {
                inner.metrics.config_reload(ReloadOutcome::Rejected);
                tracing::error!(%error, "the certificates stay as they were");
            }
        }
        changed
    }

    /// Looks at the files every few seconds until this is cancelled.
    pub async fn watch(self, stopping: Cancellation) {
        while tokio::time::timeout(LOOK, stopping.cancelled()).await.is_err() {
            let tls = self.clone();
            // A bad file is in the log already, and the next look is soon.
            let _ = Tasks::blocking(move || tls.reload_if(false)).await;
        }
    }

    /// For the next handshake.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.current.load_full())
    }
}

impl Inner {
    fn read_again(&self) -> Result<(), TlsError> {
        let (pairs, mut problems) = read(&self.files);
        problems.extend(lapses(&self.files, &pairs));
        if !problems.is_empty() {
            return Err(TlsError(problems));
        }
        // A ticket speaks for the client's certificate, which those who signed it may not vouch for any more.
        let tickets = match &self.files.clients {
            Some(_) => new_tickets()?,
            None => self.tickets.clone(),
        };
        self.current.store(server_config(&self.files, &pairs, &tickets)?);
        tell_expiry(&self.metrics, &pairs);
        Ok(())
    }
}

fn tell_expiry(metrics: &Metrics, pairs: &[(usize, Pair)]) {
    for (place, pair) in pairs {
        metrics.set_certificate_expiry(*place, pair.valid[1] as f64);
    }
}

/// Something that only the library can refuse.
fn refused(error: impl fmt::Display) -> TlsError {
    TlsError(vec![ConfigProblem { key: "listen.tls".to_owned(), message: format!("cannot be used: {error}") }])
}

/// Tickets under keys that change every six hours and are forgotten after twelve.
fn new_tickets() -> Result<Arc<dyn ProducesTickets>, TlsError> {
    rustls::crypto::ring::Ticketer::new().map_err(refused)
}

fn server_config(
    tls: &config::Tls,
    pairs: &[(usize, Pair)],
    tickets: &Arc<dyn ProducesTickets>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier = match &tls.clients {
        None => Arc::new(NoClientAuth),
        Some(clients) => {
            let roots = files::authorities(&clients.authorities).map_err(|problem| TlsError(vec![problem]))?;
            let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
            let builder = if clients.required { builder } else { builder.allow_unauthenticated() };
            builder.build().map_err(refused)?
        }
    };
    let [(_, first), ..] = pairs else { return Err(refused("there is no certificate")) };
    let mut names = ByName::new(first.key.clone());
    for (_, pair) in pairs {
        pair.names.iter().for_each(|name| names.add(name, &pair.key));
    }
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(refused)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(names));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.max_early_data_size = 0;
    // A ticket holds the session itself, so nothing is kept here for a client that may never come back.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = tickets.clone();
    // One is enough for a client that resumes on one connection, which hands it the next.
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}
