//! Tracing: diagnostics as JSON lines on stderr.
//!
//! This room sets the subscriber up and decides nothing about what is logged; callers never log a secret, a query or
//! a body. The access log is not tracing: it is [`crate::telemetry::access`], on stdout.

use std::fmt;
use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// Why diagnostics could not be set up.
#[derive(Debug)]
pub enum TraceError {
    /// The filter is not one; it names levels such as `info` or `botgate=debug`.
    Filter(tracing_subscriber::filter::ParseError),
    /// Something has set a subscriber up already.
    Taken(TryInitError),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TraceError::Filter(_) => "the log filter is not one such as \"info\" or \"botgate=debug\"",
            TraceError::Taken(_) => "diagnostics are set up already",
        })
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TraceError::Filter(error) => Some(error),
            TraceError::Taken(error) => Some(error),
        }
    }
}

/// Sends diagnostics to stderr as JSON lines. `RUST_LOG` decides what is logged, else `filter`, else `info`.
///
/// # Errors
/// A filter that is not one, or a second call.
#[expect(clippy::disallowed_methods, reason = "RUST_LOG is where people look for this setting")]
pub fn init(filter: Option<&str>) -> Result<(), TraceError> {
    let filter = env_filter(std::env::var("RUST_LOG").ok().as_deref(), filter)?;
    let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(io::stderr);
    tracing_subscriber::registry().with(filter).with(lines).try_init().map_err(TraceError::Taken)
}

fn env_filter(environment: Option<&str>, configured: Option<&str>) -> Result<EnvFilter, TraceError> {
    let text = environment.filter(|text| !text.trim().is_empty()).or(configured).unwrap_or("info");
    EnvFilter::try_new(text).map_err(TraceError::Filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_wins_over_the_file_and_info_is_the_default() {
        assert_eq!(env_filter(None, None).unwrap().to_string(), "info");
        assert_eq!(env_filter(Some(" "), Some("warn")).unwrap().to_string(), "warn");
        assert_eq!(env_filter(Some("debug"), Some("warn")).unwrap().to_string(), "debug");
        assert!(matches!(env_filter(Some("botgate=loud"), None), Err(TraceError::Filter(_))));
    }
}
