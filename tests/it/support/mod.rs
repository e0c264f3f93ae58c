//! Fixtures. Everything listens on loopback at a port that the system picks, waits are polls with a deadline, and
//! whatever a fixture starts it also stops.

pub(crate) mod botgate;
pub(crate) mod child;
pub(crate) mod client;
pub(crate) mod control;
pub(crate) mod edge;
pub(crate) mod hermes;
mod hermes_home;
pub(crate) mod http;
pub(crate) mod http2;
pub(crate) mod model;
pub(crate) mod raw_gateway;
pub(crate) mod site;
pub(crate) mod tls;
pub(crate) mod wire;

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Polls until `found` gives something; `None` once `limit` is over.
pub(crate) fn poll_for<T>(limit: Duration, mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = found() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Polls until `holds`; panics with `what` once `limit` is over.
#[track_caller]
pub(crate) fn eventually(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    assert!(poll_for(limit, || holds().then_some(())).is_some(), "not within {limit:?}: {what}");
}

/// Where `tests/run` puts the real parts.
fn real_parts() -> PathBuf {
    match std::env::var_os("BOTGATE_REAL_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/real"),
    }
}

/// A program of one of the venvs, named like the list of requirements that made it.
#[track_caller]
pub(crate) fn venv_program(venv: &str, program: &str) -> PathBuf {
    let path = real_parts().join(format!("venv-{venv}/bin/{program}"));
    assert!(path.is_file(), "{} is missing: run tests/run once, it installs the real parts", path.display());
    path
}
