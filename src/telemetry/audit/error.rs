//! What can go wrong with the audit log.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::verify::Fault;
use crate::telemetry::reason::Reason;

/// The audit log cannot be started, or a record is not written.
#[derive(Debug)]
pub enum AuditError {
    /// The system refused a file or directory.
    Io {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// What is there is not a log of botgate's own, or was changed.
    Corrupt(Fault),
    /// The record was not written: the disk is full or fails.
    NotWritten,
    /// The record was not written in time: the disk hangs.
    Slow,
    /// There is no room for the record.
    Full,
    /// The writer has been stopped.
    Stopped,
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuditError::Io { what, path, .. } => write!(f, "cannot {what} {}", path.display()),
            AuditError::Corrupt(_) => f.write_str(
                "the audit log does not continue; keep its directory aside as it is, and a new chain begins in its place",
            ),
            AuditError::NotWritten => f.write_str("the audit record could not be written"),
            AuditError::Slow => f.write_str("the audit record was not written in time"),
            AuditError::Full => f.write_str("too many audit records wait to be written"),
            AuditError::Stopped => f.write_str("the audit log has been stopped"),
        }
    }
}

impl std::error::Error for AuditError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AuditError::Io { source, .. } => Some(source),
            AuditError::Corrupt(fault) => Some(fault),
            _ => None,
        }
    }
}

/// Why no room could be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditFull {
    /// Everybody's room, or the person's share of it, is taken.
    Full,
    /// Records cannot be written at present.
    Failing,
}

impl AuditFull {
    /// The reason for the refusal that follows.
    pub fn reason(self) -> Reason {
        match self {
            AuditFull::Full => Reason::AuditFull,
            AuditFull::Failing => Reason::AuditFailed,
        }
    }
}

impl fmt::Display for AuditFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AuditFull::Full => "no room for further audit records",
            AuditFull::Failing => "audit records cannot be written at present",
        })
    }
}

impl std::error::Error for AuditFull {}
