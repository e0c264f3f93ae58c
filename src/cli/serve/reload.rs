//! Taking over a changed configuration file: when it has changed, and on SIGHUP.
//!
//! Invariants: a file is taken over whole or not at all; one with problems, or with a key that needs a restart, changes nothing
//! and every reason is told; a file that is being written is not looked at before it rests. Never ends.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::notify;
use super::start::Running;
use crate::config::{self, Config, ConfigError};
use crate::lifecycle::Caller;
use crate::tasks::Tasks;
use crate::telemetry::metrics::ReloadOutcome;

/// Time between two looks at the file. A change counts at the second look that finds it.
const LOOK: Duration = Duration::from_secs(2);

/// The file, and what is in force of it.
pub(super) struct Reloading {
    file: PathBuf,
    hangup: Signal,
    config: Config,
    // The text that was last taken over or rejected; None: it is what the edge was started with.
    judged: Option<String>,
    // What the last look found, where that was something new.
    found: Option<String>,
    unreadable: bool,
}

impl Reloading {
    /// Watches the file that this configuration was read from.
    ///
    /// # Errors
    /// The system refuses the signal handler.
    pub(super) fn new(file: &Path, config: Config) -> io::Result<Self> {
        let hangup = signal(SignalKind::hangup())?;
        Ok(Reloading { file: file.to_owned(), hangup, config, judged: None, found: None, unreadable: false })
    }

    /// Takes changes over for as long as it is polled.
    pub(super) async fn run(&mut self, running: &Running) {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = self.hangup.recv() => self.asked(running).await,
                _ = looks.tick() => self.look(running).await,
            }
        }
    }

    async fn text(&self) -> io::Result<String> {
        let file = self.file.clone();
        Tasks::blocking(move || config::read(&file)).await.and_then(|text| text)
    }

    /// Somebody wants the file taken over as it is now.
    async fn asked(&mut self, running: &Running) {
        match self.text().await {
            Ok(text) => self.judge(text, running).await,
            Err(error) => {
                tracing::error!(file = %self.file.display(), %error, "the configuration cannot be read; nothing is changed");
                running.control().metrics().config_reload(ReloadOutcome::Rejected);
            }
        }
    }

    async fn look(&mut self, running: &Running) {
        let text = match self.text().await {
            Ok(text) => text,
            Err(error) => {
                // Whoever replaces it may remove it first.
                if !std::mem::replace(&mut self.unreadable, true) {
                    tracing::warn!(file = %self.file.display(), %error, "the configuration cannot be read; what was read before stays");
                }
                return;
            }
        };
        self.unreadable = false;
        if *self.judged.get_or_insert_with(|| text.clone()) == text {
            self.found = None;
        } else if self.found.as_ref() == Some(&text) {
            self.judge(text, running).await;
        } else {
            self.found = Some(text);
        }
    }

    async fn judge(&mut self, text: String, running: &Running) {
        notify::reloading();
        let outcome = self.take_over(&text, running).await;
        (self.judged, self.found) = (Some(text), None);
        running.control().metrics().config_reload(outcome);
        notify::ready(&format!("serving on {}", running.address()));
    }

    async fn take_over(&mut self, text: &str, running: &Running) -> ReloadOutcome {
        let base = self.file.parent().unwrap_or(Path::new("."));
        let new = match config::parse(text, base) {
            Ok(new) => new,
            Err(problems) => {
                let error = ConfigError { file: self.file.clone(), problems };
                tracing::error!(%error, "the configuration has problems; nothing is changed");
                return ReloadOutcome::Rejected;
            }
        };
        let changes = new.changes(&self.config);
        if !changes.restart.is_empty() {
            let keys = changes.restart.join(", ");
            tracing::error!(file = %self.file.display(), keys, "these need a restart; nothing is changed");
            return ReloadOutcome::Rejected;
        }
        let keys = changes.live.join(", ");
        running.set(&new);
        self.config = new;
        tracing::info!(file = %self.file.display(), keys, "the configuration is taken over");
        if !changes.live.is_empty()
            && let Err(error) = running.control().config_is_changed(Caller::own(), &keys).await
        {
            tracing::error!(%error, "the change of configuration is not in the audit log");
        }
        ReloadOutcome::Applied
    }
}
