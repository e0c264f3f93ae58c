//! authorize: a session becomes a grant on its person's own bot, or the one 401.
//!
//! A [`Grant`] is the proof that this session may use this bot. It is made from a session and the directory alone; path
//! and method may only narrow what it serves.
//!
//! Outside this module it cannot be forged:
//!
//! ```compile_fail,E0451
//! # use botgate::{directory::Bot, identity::Session, proxy::Grant};
//! # use std::sync::Arc;
//! fn forge(session: Arc<Session>, bot: Arc<Bot>) -> Grant {
//!     Grant { session, bot }
//! }
//! ```
//!
//! while the one constructor does compile:
//!
//! ```
//! # use botgate::{directory::Directory, identity::Session, proxy::Grant, telemetry::reason::Reason};
//! # use std::sync::Arc;
//! fn authorize(session: Arc<Session>, directory: &Directory) -> Result<Grant, Reason> {
//!     Grant::new(session, directory, None)
//! }
//! ```

use std::sync::Arc;

use crate::directory::{Bot, BotStanding, Directory};
use crate::gateway::runs::RunWatch;
use crate::identity::Session;
use crate::names::Identifier;
use crate::telemetry::reason::Reason;

/// Proof that a session may use a bot.
#[derive(Debug, Clone)]
pub struct Grant {
    session: Arc<Session>,
    bot: Arc<Bot>,
}

impl Grant {
    /// The grant of a session on its person's bot. `profile` is the segment after `/p/`, if the request names one.
    ///
    /// # Errors
    /// A reason of the one 401.
    pub fn new(session: Arc<Session>, directory: &Directory, profile: Option<&str>) -> Result<Self, Reason> {
        let person = session.person();
        let bot = directory.bot(person.login()).ok_or(Reason::NoBot)?;
        // A login that was deleted and given to someone else names another row.
        if bot.uid() != person.uid() {
            return Err(Reason::NoBot);
        }
        if bot.standing() == BotStanding::Refused {
            return Err(Reason::BotRefused);
        }
        if profile.is_some_and(|profile| profile != bot.profile().as_str()) {
            return Err(Reason::NotOwnBot);
        }
        Ok(Grant { session, bot })
    }

    /// Whose request it is.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The bot.
    pub fn bot(&self) -> &Arc<Bot> {
        &self.bot
    }

    /// Proof that a run started under this grant may be watched and stopped.
    pub fn run_watch(&self, run: Identifier) -> RunWatch {
        RunWatch::new(Arc::clone(&self.bot), run)
    }
}
