//! Probe: does the gateway bind each key to its own path? Asked of the real gateway, never assumed.
//!
//! Invariants: a probe can GET `/v1/models` and `/health` and nothing else; only an answer counts as proof, silence and
//! errors leave the last result standing for a while; a key accepted where it must not be takes the whole gateway out of
//! service, a bot's own key refused only that bot. This room does not look into a gateway's files and does not repair.

mod examine;
mod ledger;
mod prover;
mod report;

use std::fmt;

use http::{HeaderValue, Method};
use serde::Serialize;

pub use self::prover::{ProofTimes, ProvedGateway, Prover};
pub use self::report::{BotReport, DefaultKey, GatewayReport, Isolation, ProofReport};
use crate::directory::{Bot, GatewayTarget};
use crate::gateway::control_client::{self, ControlAnswer, ControlError, ControlRequest};
use crate::names::{Login, ProfileName};
use crate::telemetry::metrics::ProofResult;

/// What every probe calls itself.
const USER_AGENT: &str = "botgate-proof";

/// What a proof found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The bot's key opens its path; a neighbour's, no key and the default key (when known) do not.
    Proved,
    /// The login has no bot.
    NoBot,
    /// The gateway does not serve the profile.
    UnservedProfile,
    /// The profile has no key that the gateway would use.
    MissingOrWeakKey,
    /// The gateway refuses the bot's key.
    WrongKey,
    /// The bot's key is also another bot's or the default profile's.
    SharedKey,
    /// The bot's key opens other paths than its own.
    PrefixIgnored,
    /// The default profile's key opens the bot.
    DefaultKeyAccepted,
    /// Another bot's key opens the bot.
    NeighbourKeyAccepted,
    /// The bot opens without a key, or with one made up.
    NoKeyAccepted,
    /// No answer.
    Unreachable,
    /// An answer that proves nothing, with its status.
    Unexpected(u16),
}

/// What a verdict means for the standing of bot and gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// Proved.
    Good,
    /// Only this bot is not served.
    BotFault,
    /// The whole gateway is not served.
    GatewayFault,
    /// Nothing is known; the last result stands.
    Nothing,
}

impl Verdict {
    /// The word for it in reports and logs.
    pub fn as_str(self) -> &'static str {
        self.result().as_str()
    }

    /// Under what it counts in metrics.
    fn result(self) -> ProofResult {
        match self {
            Verdict::Proved => ProofResult::Proved,
            Verdict::NoBot => ProofResult::NoBot,
            Verdict::UnservedProfile => ProofResult::UnservedProfile,
            Verdict::MissingOrWeakKey => ProofResult::MissingOrWeakKey,
            Verdict::WrongKey => ProofResult::WrongKey,
            Verdict::SharedKey => ProofResult::SharedKey,
            Verdict::PrefixIgnored => ProofResult::PrefixIgnored,
            Verdict::DefaultKeyAccepted => ProofResult::DefaultKeyAccepted,
            Verdict::NeighbourKeyAccepted => ProofResult::NeighbourKeyAccepted,
            Verdict::NoKeyAccepted => ProofResult::NoKeyAccepted,
            Verdict::Unreachable => ProofResult::Unreachable,
            Verdict::Unexpected(_) => ProofResult::Unexpected,
        }
    }

    fn weight(self) -> Weight {
        match self {
            Verdict::Proved => Weight::Good,
            Verdict::UnservedProfile | Verdict::MissingOrWeakKey | Verdict::WrongKey | Verdict::SharedKey => {
                Weight::BotFault
            }
            Verdict::PrefixIgnored
            | Verdict::DefaultKeyAccepted
            | Verdict::NeighbourKeyAccepted
            | Verdict::NoKeyAccepted => Weight::GatewayFault,
            Verdict::NoBot | Verdict::Unreachable | Verdict::Unexpected(_) => Weight::Nothing,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Proved => "proved: the bot's key opens its path, and no other key does",
            Verdict::NoBot => "no bot: this login has none",
            Verdict::UnservedProfile => "unserved profile: the gateway does not know it (404)",
            Verdict::MissingOrWeakKey => {
                "missing or weak key: the profile has no API_SERVER_KEY that the gateway would use"
            }
            Verdict::WrongKey => {
                "wrong key: the gateway refuses it (401); the profile has another key, or none of 16 or more characters"
            }
            Verdict::SharedKey => {
                "shared key: it is also another bot's or the default profile's; each profile needs a key of its own"
            }
            Verdict::PrefixIgnored => "prefix ignored: the bot's key also opens paths that are not its own",
            Verdict::DefaultKeyAccepted => {
                "default key accepted: the default profile's key opens this bot; Hermes 0.20 or later is needed"
            }
            Verdict::NeighbourKeyAccepted => "neighbour's key accepted: another bot's key opens this bot",
            Verdict::NoKeyAccepted => "no key accepted: this bot opens without a key of its own",
            Verdict::Unreachable => "unreachable: the gateway does not answer",
            Verdict::Unexpected(status) => {
                return write!(f, "unexpected: the gateway answers {status}, which proves nothing");
            }
        })
    }
}

/// The right to ask one gateway for `/v1/models` and `/health`, and nothing else.
#[derive(Debug, Clone, Copy)]
struct Probe<'g> {
    target: &'g GatewayTarget,
}

/// What the answer to a probe says about the key it carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyAnswer {
    Accepted,
    Refused,
    UnknownPath,
    Other(u16),
    Silence,
}

impl<'g> Probe<'g> {
    fn new(target: &'g GatewayTarget) -> Self {
        Probe { target }
    }

    /// GET `/v1/models` under a bot's own path.
    async fn bot_models(self, bot: &Bot, key: Option<&HeaderValue>) -> (KeyAnswer, Option<ControlAnswer>) {
        self.models(bot.prefix(), key).await
    }

    /// GET `/v1/models` of the default profile.
    async fn default_models(self, key: &HeaderValue) -> KeyAnswer {
        self.models("", Some(key)).await.0
    }

    /// GET `/v1/models` under a path that no bot has.
    async fn stranger_models(self, key: &HeaderValue) -> KeyAnswer {
        let nobody = format!("botgate-proof-{}", crate::names::Uid::random());
        // ASCII without white space, shorter than the longest login.
        let nobody = Login::parse(&nobody).expect("a login made of ASCII letters, digits and dashes");
        self.models(&format!("/p/{}", ProfileName::of(&nobody)), Some(key)).await.0
    }

    /// GET `/health`: whether the gateway answers at all.
    async fn health(self) -> bool {
        matches!(self.get("/health", None).await, Ok(answer) if answer.status == 200)
    }

    async fn models(self, prefix: &str, key: Option<&HeaderValue>) -> (KeyAnswer, Option<ControlAnswer>) {
        match self.get(&format!("{prefix}/v1/models"), key).await {
            Ok(answer) => (KeyAnswer::of(answer.status), Some(answer)),
            Err(_) => (KeyAnswer::Silence, None),
        }
    }

    async fn get(self, path: &str, key: Option<&HeaderValue>) -> Result<ControlAnswer, ControlError> {
        let request = ControlRequest { method: Method::GET, path, authorization: key, user_agent: USER_AGENT };
        control_client::ask(self.target, request).await
    }
}

impl KeyAnswer {
    fn of(status: u16) -> Self {
        match status {
            200..=299 => KeyAnswer::Accepted,
            401 | 403 => KeyAnswer::Refused,
            404 => KeyAnswer::UnknownPath,
            other => KeyAnswer::Other(other),
        }
    }
}

#[cfg(test)]
mod tests;
