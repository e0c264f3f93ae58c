//! Why the edge does not start.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use super::inherited::InheritedError;
use crate::admin::ControlFileError;
use crate::lifecycle::{ControlError, OpenError, SameUser};
use crate::listener::BindError;
use crate::listener::tls::TlsError;
use crate::store::StoreError;

/// Why the edge does not start.
#[derive(Debug)]
pub enum ServeError {
    /// The data directory is another process's, or cannot be used.
    DataDir(StoreError),
    /// Master key, database, audit log or a default profile's key.
    Open(OpenError),
    /// The store does not give its rows.
    Load(ControlError),
    /// The gateway could read what the edge must keep from it.
    SameUser(SameUser),
    /// A socket of the service manager.
    Inherited(InheritedError),
    /// The public address.
    Bind(BindError),
    /// Certificates and keys.
    Tls(TlsError),
    /// The address of metrics and health.
    Metrics(SocketAddr, io::Error),
    /// The admin socket.
    Admin(ControlFileError),
    /// The system refuses a thread, a runtime or a signal handler.
    System(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::DataDir(error) => error.fmt(f),
            ServeError::Open(error) => error.fmt(f),
            ServeError::Load(error) => error.fmt(f),
            ServeError::SameUser(error) => error.fmt(f),
            ServeError::Inherited(error) => error.fmt(f),
            ServeError::Bind(error) => error.fmt(f),
            ServeError::Tls(error) => error.fmt(f),
            ServeError::Metrics(address, error) => {
                write!(f, "cannot listen on {address} for metrics (admin.metrics_address): {error}")
            }
            ServeError::Admin(error) => error.fmt(f),
            ServeError::System(error) => write!(f, "the system refuses: {error}"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // Variants that show their inner error give that error's own cause.
        match self {
            ServeError::DataDir(error) => error.source(),
            ServeError::Open(error) => error.source(),
            ServeError::Load(error) => error.source(),
            ServeError::Admin(error) => error.source(),
            ServeError::SameUser(_)
            | ServeError::Inherited(_)
            | ServeError::Bind(_)
            | ServeError::Tls(_)
            | ServeError::Metrics(..)
            | ServeError::System(_) => None,
        }
    }
}
