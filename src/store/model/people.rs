//! Rows of people and their bots.

use serde::Serialize;

use crate::names::{GatewayName, Login, ProfileName, Role, Uid};
use crate::secret::ApiServerKey;

/// Whether a person may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PersonState {
    /// May come in.
    Active,
    /// Refused until enabled again.
    Disabled,
    /// Refused for good; the login stays taken until the bot is proved gone. No way back.
    Deleting,
}

impl PersonState {
    /// The word that the store and the admin API use.
    pub fn as_str(self) -> &'static str {
        match self {
            PersonState::Active => "active",
            PersonState::Disabled => "disabled",
            PersonState::Deleting => "deleting",
        }
    }
}

/// A person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PersonRow {
    /// Random; another one when a login is used again after deletion.
    pub uid: Uid,
    /// Unique, also among people who are being deleted.
    pub login: Login,
    /// Role towards the MCP server.
    pub role: Role,
    /// Whether the person may come in.
    pub state: PersonState,
    /// The gateway chosen for the person; always there when `profile` is.
    pub gateway: Option<GatewayName>,
    /// The bot's profile; `None`: no bot.
    pub profile: Option<ProfileName>,
    /// Whether the bot existed before botgate: such a profile is never deleted by botgate.
    pub adopted: bool,
    /// When the row was made.
    pub created_at: i64,
}

/// A person to add.
#[derive(Debug, Clone)]
pub struct NewPerson {
    /// The person's name.
    pub login: Login,
    /// Role towards the MCP server.
    pub role: Role,
    /// Where the person's bot will be, when known.
    pub gateway: Option<GatewayName>,
}

/// One line of an import.
#[derive(Debug, Clone)]
pub struct ImportLine {
    /// The person's name.
    pub login: Login,
    /// Role towards the MCP server.
    pub role: Role,
    /// Where the person's bot is, or will be.
    pub gateway: GatewayName,
    /// The key of a profile that exists: it is adopted in the same transaction.
    pub key: Option<ApiServerKey>,
}

/// What became of one line of an import.
#[derive(Debug)]
pub enum ImportOutcome {
    /// The person is new.
    Added {
        /// The person.
        person: PersonRow,
        /// The adopted bot, when the line had a key.
        bot: Option<BotKey>,
    },
    /// The login is taken, by an earlier line or an older row; nothing was changed.
    Exists(PersonRow),
}

/// A bot and its opened key.
#[derive(Debug, Clone)]
pub struct BotKey {
    /// The person's row.
    pub uid: Uid,
    /// The person's name.
    pub login: Login,
    /// The profile: always the one that the login maps to.
    pub profile: ProfileName,
    /// Where it is served.
    pub gateway: GatewayName,
    /// The profile's `API_SERVER_KEY`.
    pub key: ApiServerKey,
    /// 1 at first, one more with each change of the key.
    pub generation: i64,
}

/// What deleting a person took away; the row itself stays until the bot is proved gone.
#[derive(Debug, Clone)]
pub struct Deleting {
    /// The person, now in state `deleting`.
    pub person: PersonRow,
    /// Sessions and personal tokens revoked by this call.
    pub sessions: usize,
    /// Bot tokens revoked by this call.
    pub bot_tokens: usize,
}

/// What a lockdown took away.
#[derive(Debug, Clone)]
pub struct LockedDown {
    /// The people concerned, now disabled or still being deleted.
    pub people: Vec<PersonRow>,
    /// Sessions and personal tokens revoked by this call.
    pub sessions: usize,
    /// Bot tokens revoked by this call.
    pub bot_tokens: usize,
}
