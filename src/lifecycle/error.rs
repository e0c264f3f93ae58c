//! Why an operation on people or bots did not succeed, each with what to do next.

use std::fmt;

use crate::names::{GatewayName, Login};
use crate::secret::KeyError;
use crate::store::StoreError;

/// Why an operation did not succeed. Unless a variant says otherwise, nothing was changed.
#[derive(Debug)]
pub enum ControlError {
    /// The store's refusal.
    Store(StoreError),
    /// The live edge refuses now, but the store could not be told.
    NotStored(StoreError),
    /// Done, but the audit log could not take the record.
    NotRecorded,
    /// No such person.
    NoSuchPerson(Login),
    /// No gateway of that name is configured.
    NoSuchGateway(GatewayName),
    /// More than one gateway is configured, and none was named.
    GatewayNeeded,
    /// The gateway has as many bots as it may have.
    GatewayFull {
        /// Which.
        gateway: GatewayName,
        /// Its `max_bots`.
        most: usize,
    },
    /// The person's bot is at another gateway.
    OtherGateway(GatewayName),
    /// Not usable as a profile's key.
    Key(KeyError),
    /// The key is another profile's.
    KeyTaken(Login),
    /// The key is the default profile's.
    DefaultKey(GatewayName),
    /// The operation needs a keeper.
    NeedsKeeper(&'static str),
    /// The request is beyond a bound.
    TooMuch(String),
}

impl ControlError {
    /// One word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            ControlError::NoSuchPerson(_) | ControlError::Store(StoreError::NoSuchPerson) => "no_such_person",
            ControlError::Store(StoreError::LoginTaken { .. }) => "login_taken",
            ControlError::Store(StoreError::WrongState(_)) => "wrong_state",
            ControlError::Store(StoreError::NoBot) => "no_bot",
            ControlError::Store(StoreError::Full) => "disk_full",
            ControlError::Store(StoreError::ReadOnly) => "read_only",
            ControlError::Store(StoreError::Busy | StoreError::Timeout) => "store_busy",
            ControlError::Store(_) => "store",
            ControlError::NotStored(_) => "not_stored",
            ControlError::NotRecorded => "not_recorded",
            ControlError::NoSuchGateway(_) | ControlError::GatewayNeeded | ControlError::OtherGateway(_) => "gateway",
            ControlError::GatewayFull { .. } => "gateway_full",
            ControlError::Key(_) => "key",
            ControlError::KeyTaken(_) | ControlError::DefaultKey(_) => "key_taken",
            ControlError::NeedsKeeper(_) => "needs_keeper",
            ControlError::TooMuch(_) => "too_much",
        }
    }

    /// Whether whoever asked can mend it, in contrast to the machine's owner.
    pub fn is_callers(&self) -> bool {
        match self {
            ControlError::Store(error) => is_refusal(error),
            ControlError::NotStored(_) | ControlError::NotRecorded => false,
            _ => true,
        }
    }

    /// What to do next.
    pub fn next(&self) -> Option<String> {
        let next = match self {
            ControlError::NoSuchPerson(login) => {
                format!("list people: botgate user list; make one known: botgate user add {}", quoted(login))
            }
            ControlError::Store(StoreError::NoSuchPerson) => "list people: botgate user list".into(),
            ControlError::Store(StoreError::NoBot) => {
                "register one: botgate bot adopt LOGIN --api-server-key-stdin".into()
            }
            ControlError::Store(StoreError::Full) => "make room on the disk, then try again".into(),
            ControlError::NotStored(_) => "it holds until a restart: mend the store, then run the command again".into(),
            ControlError::NotRecorded => "see the log and the disk of data_dir/audit: botgate doctor".into(),
            ControlError::GatewayNeeded => "name one: --gateway NAME".into(),
            ControlError::NoSuchGateway(_) => "names are those of [[gateway]] in the configuration file".into(),
            ControlError::Key(_) => {
                "set the profile's API_SERVER_KEY to 32 random bytes in hex, and give the same here".into()
            }
            ControlError::KeyTaken(_) | ControlError::DefaultKey(_) => {
                "give the profile a key of its own in its .env, and give the same here".into()
            }
            ControlError::NeedsKeeper("bot delete") => {
                "it goes with its person: botgate user delete LOGIN; to refuse them for a while: botgate user disable LOGIN"
                    .into()
            }
            ControlError::NeedsKeeper(_) => {
                "change the profile at the gateway by hand, then: botgate bot adopt LOGIN --api-server-key-stdin".into()
            }
            _ => return None,
        };
        Some(next)
    }
}

/// Whether the store works and refuses, in contrast to failing.
pub(super) fn is_refusal(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::NoSuchPerson
            | StoreError::LoginTaken { .. }
            | StoreError::WrongState(_)
            | StoreError::BotExists
            | StoreError::NoBot
            | StoreError::NoSuchToken
            | StoreError::TooMany { .. }
    )
}

/// A login as a shell takes it.
pub fn quoted(login: &Login) -> String {
    let plain = login.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.@+".contains(&b));
    if plain && !login.as_str().starts_with('-') {
        return login.to_string();
    }
    format!("-- '{}'", login.as_str().replace('\'', "'\\''"))
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::Store(error) => fmt::Display::fmt(error, f),
            ControlError::NotStored(error) => {
                write!(f, "refused and cut off in the running edge, but not in the store: {error}")
            }
            ControlError::NotRecorded => f.write_str("done, but the audit log could not take the record"),
            ControlError::NoSuchPerson(login) => write!(f, "there is no person {login}"),
            ControlError::NoSuchGateway(name) => write!(f, "no gateway {name} is configured"),
            ControlError::GatewayNeeded => f.write_str("more than one gateway is configured"),
            ControlError::GatewayFull { gateway, most } => {
                write!(f, "gateway {gateway} has its max_bots of {most} already")
            }
            ControlError::OtherGateway(name) => write!(f, "the person's bot is at gateway {name}"),
            ControlError::Key(error) => write!(f, "the API_SERVER_KEY {error}"),
            ControlError::KeyTaken(login) => write!(f, "the API_SERVER_KEY is the one of {login}'s bot"),
            ControlError::DefaultKey(name) => {
                write!(f, "the API_SERVER_KEY is the one of the default profile of gateway {name}")
            }
            ControlError::NeedsKeeper(command) => {
                write!(f, "{command} needs a keeper beside the gateway, and none is configured")
            }
            ControlError::TooMuch(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ControlError::Store(error) | ControlError::NotStored(error) => error.source(),
            _ => None,
        }
    }
}

impl From<StoreError> for ControlError {
    fn from(error: StoreError) -> Self {
        ControlError::Store(error)
    }
}

impl From<KeyError> for ControlError {
    fn from(error: KeyError) -> Self {
        ControlError::Key(error)
    }
}
