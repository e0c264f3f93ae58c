//! The one error of the bench: a sentence about what does not work.

use std::fmt;
use std::io;

/// Why there is no result.
#[derive(Debug)]
pub struct Trouble(String);

/// A value, or a sentence.
pub type Outcome<T> = Result<T, Trouble>;

impl Trouble {
    /// This sentence.
    pub fn new(what: impl Into<String>) -> Self {
        Trouble(what.into())
    }

    /// Puts what was tried before the system's answer.
    pub fn with(what: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Trouble(format!("{what}: {error}"))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Trouble {}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble(error.to_string())
    }
}
