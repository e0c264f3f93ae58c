//! What people and programs read: aligned plain text or JSON on standard output, trouble on standard error.
//!
//! A reader that goes away ends the command without a word. Nothing depends on colour.

use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

use crate::admin::wire::Failed;

/// Why a command did not succeed, and so its exit code.
#[derive(Debug)]
pub(super) enum Failure {
    /// Wrong usage: 2.
    Usage(String),
    /// Failed, with what to do next: 1.
    Failed {
        /// What is wrong.
        message: String,
        /// What to do next.
        next: Option<String>,
    },
    /// Failed, and all has been told: 1.
    Told,
}

impl Failure {
    /// A failure with nothing particular to do next.
    pub(super) fn new(message: impl ToString) -> Self {
        Failure::Failed { message: message.to_string(), next: None }
    }

    /// A failure and what to do next.
    pub(super) fn with_next(message: impl ToString, next: impl ToString) -> Self {
        Failure::Failed { message: message.to_string(), next: Some(next.to_string()) }
    }

    /// An error with its chain of causes.
    pub(super) fn from_error(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            message.push_str(": ");
            message.push_str(&source.to_string());
            cause = source.source();
        }
        Failure::new(message)
    }

    /// Tells it on standard error and gives the exit code.
    pub(super) fn tell(self) -> ExitCode {
        // Standard error may be closed; there is nobody left to tell.
        let mut to = io::stderr().lock();
        match self {
            Failure::Usage(message) => {
                let _ = writeln!(to, "botgate: {message}");
                ExitCode::from(2)
            }
            Failure::Failed { message, next } => {
                let _ = writeln!(to, "botgate: {message}");
                if let Some(next) = next {
                    let _ = writeln!(to, "  {next}");
                }
                ExitCode::from(1)
            }
            Failure::Told => ExitCode::from(1),
        }
    }
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Self {
        Failure::Failed { message: failed.message, next: failed.next }
    }
}

/// Where a command prints to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Out {
    json: bool,
}

impl Out {
    pub(super) fn new(json: bool) -> Self {
        Out { json }
    }

    /// Whether programs read it.
    pub(super) fn is_json(self) -> bool {
        self.json
    }

    /// Prints a value as JSON, or as the text that `human` makes.
    pub(super) fn show<T: Serialize>(self, value: &T, human: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json {
            let text = serde_json::to_string(value).map_err(Failure::new)?;
            return self.line(&text);
        }
        let text = human();
        if text.is_empty() { Ok(()) } else { self.line(text.trim_end_matches('\n')) }
    }

    /// Prints one line, or several.
    pub(super) fn line(self, text: &str) -> Result<(), Failure> {
        written(writeln!(io::stdout().lock(), "{text}"))
    }
}

/// A reader that went away has all it wanted.
pub(super) fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Told),
        other => other.map_err(|error| Failure::new(format!("standard output: {error}"))),
    }
}

/// Aligned columns under a heading; `empty` when there is no row.
pub(super) fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]], empty: &str) -> String {
    if rows.is_empty() {
        return empty.to_owned();
    }
    let mut widths = heading.map(width);
    for row in rows {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = (*widest).max(width(cell));
        }
    }
    let mut out = String::new();
    let heading = heading.map(str::to_owned);
    for row in std::iter::once(&heading).chain(rows) {
        for (at, cell) in row.iter().enumerate() {
            out.push_str(cell);
            if at + 1 < N {
                out.extend(std::iter::repeat_n(' ', widths[at] - width(cell) + 2));
            }
        }
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
    out
}

fn width(cell: &str) -> usize {
    cell.chars().count()
}

/// A time in UTC milliseconds as people read it, to the second.
pub(super) fn time(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Err(_) => ms.to_string(),
    }
}

/// A value or a dash.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_clean() {
        let rows = [["alice".to_owned(), "-".to_owned()], ["bo\u{e9}".to_owned(), "main".to_owned()]];
        let text = table(["LOGIN", "GATEWAY"], &rows, "nobody");
        assert_eq!(text, "LOGIN  GATEWAY\nalice  -\nbo\u{e9}    main\n");
        assert_eq!(table(["LOGIN"], &[], "nobody"), "nobody");
    }

    #[test]
    fn times_are_utc_to_the_second() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(or_dash(None::<u8>), "-");
    }
}
