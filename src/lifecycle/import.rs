//! Import: many people, with or without their bots, in one transaction and one swap of the directory.

use std::collections::{HashMap, HashSet};

use sha2::{Digest, Sha256};

use crate::directory::Bot;
use crate::names::{GatewayName, Login, Role};
use crate::secret::ApiServerKey;
use crate::store::{ImportLine, ImportOutcome};

use super::{Caller, Control, ControlError};

/// Most lines of one import.
pub const IMPORT_LINES_MAX: usize = crate::store::MAX_BATCH;

/// One line that was understood.
#[derive(Debug)]
pub struct ImportItem {
    /// Counted from 1.
    pub line: usize,
    /// The person's name.
    pub login: Login,
    /// Role towards the MCP server.
    pub role: Role,
    /// Key of a profile that exists, to adopt it.
    pub key: Option<ApiServerKey>,
}

/// What became of an import.
#[derive(Debug, Default)]
pub struct ImportReport {
    /// People made known.
    pub added: usize,
    /// Bots registered with them.
    pub bots: usize,
    /// Lines that changed nothing, by number, and why.
    pub refused: Vec<(usize, String)>,
}

impl Control {
    /// Makes many people known, and adopts the bots of those whose line has a key. The proof takes the bots in turn.
    ///
    /// # Errors
    /// The whole import is refused: the gateway is not clear or has no room, or the store failed.
    pub async fn import(
        &self,
        caller: Caller,
        gateway: Option<&GatewayName>,
        items: Vec<ImportItem>,
    ) -> Result<ImportReport, ControlError> {
        let gateway = self.choose_gateway(gateway, None)?;
        let mut report = ImportReport::default();
        let mut adopted: Vec<Login> = Vec::new();
        {
            let _changing = self.changing().await;
            let items = self.without_foreign_keys(items, &mut report);
            self.room_at(&gateway, items.iter().filter(|item| item.key.is_some()).count())?;
            let numbers: Vec<usize> = items.iter().map(|item| item.line).collect();
            let lines = items.into_iter().map(|ImportItem { login, role, key, .. }| ImportLine {
                login,
                role,
                gateway: gateway.name.clone(),
                key,
            });
            let outcomes = self.store().import_people(lines.collect()).await?;
            let mut bots = Vec::new();
            for (line, outcome) in numbers.into_iter().zip(outcomes) {
                match outcome {
                    ImportOutcome::Added { person, bot } => {
                        self.person_is_known(&person);
                        report.added += 1;
                        bots.extend(bot.map(|key| self.bot_of(key)).transpose()?);
                    }
                    ImportOutcome::Exists(person) => {
                        report
                            .refused
                            .push((line, format!("{} exists already and is {}", person.login, person.state.as_str())));
                    }
                }
            }
            report.bots = bots.len();
            adopted.extend(bots.iter().map(|bot: &Bot| bot.login().clone()));
            self.directory().insert(bots);
        }
        // Eight of a gateway are proved at once, the others in their turn.
        if self.is_serving() {
            self.prover().changed(&adopted);
        }
        report.refused.sort_by_key(|(line, _)| *line);
        let detail = [
            ("added", report.added.to_string()),
            ("bots", report.bots.to_string()),
            ("refused", report.refused.len().to_string()),
        ];
        self.record(caller, "user.import", gateway.name.as_str(), &detail).await?;
        Ok(report)
    }

    /// Sets aside the lines whose key is another profile's, live or earlier in the file.
    fn without_foreign_keys(&self, items: Vec<ImportItem>, report: &mut ImportReport) -> Vec<ImportItem> {
        let digest = |text: &str| -> [u8; 32] { Sha256::digest(text).into() };
        let bots = self.directory().snapshot();
        let mut owners: HashMap<[u8; 32], Login> =
            bots.values().map(|bot| (digest(bot.key().expose()), bot.login().clone())).collect();
        let defaults: HashSet<[u8; 32]> = self.default_keys().iter().map(|(_, key)| digest(key.expose())).collect();
        let mut kept = Vec::with_capacity(items.len());
        for item in items {
            let fault = item.key.as_ref().map(|key| digest(key.expose())).and_then(|key| {
                if defaults.contains(&key) {
                    return Some("the API_SERVER_KEY is a default profile's; each profile needs its own".to_owned());
                }
                // The same login again is for the store to refuse.
                let owner = owners.entry(key).or_insert_with(|| item.login.clone());
                (*owner != item.login).then(|| ControlError::KeyTaken(owner.clone()).to_string())
            });
            match fault {
                Some(message) => report.refused.push((item.line, message)),
                None => kept.push(item),
            }
        }
        kept
    }
}
