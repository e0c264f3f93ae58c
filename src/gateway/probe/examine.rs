//! Examine: the questions that prove one bot, one after the other; the gravest finding is the verdict.

use http::HeaderValue;

use super::{KeyAnswer, Probe, Verdict};
use crate::directory::{Bot, Directory};
use crate::gateway::control_client::ControlAnswer;
use crate::secret::ApiServerKey;

/// A key as a header value, marked sensitive.
pub(super) fn bearer(key: &ApiServerKey) -> HeaderValue {
    let mut value =
        // ApiServerKey holds visible ASCII only.
        HeaderValue::from_str(&format!("Bearer {}", key.expose())).expect("visible ASCII is a header value");
    value.set_sensitive(true);
    value
}

/// What the bot's own key on its own path says, alone.
pub(super) async fn own_key(bot: &Bot) -> Verdict {
    match Probe::new(bot.gateway()).bot_models(bot, Some(bot.authorization())).await {
        (KeyAnswer::Accepted, _) => Verdict::Proved,
        (KeyAnswer::Refused, answer) if unusable(bot.key()) || says_unusable(answer.as_ref()) => {
            Verdict::MissingOrWeakKey
        }
        (KeyAnswer::Refused, _) => Verdict::WrongKey,
        (KeyAnswer::UnknownPath, _) => Verdict::UnservedProfile,
        (KeyAnswer::Other(status), _) => Verdict::Unexpected(status),
        (KeyAnswer::Silence, _) => Verdict::Unreachable,
    }
}

/// Proves one bot: its own key is taken on its own path, and there alone; nothing else is taken on its path.
pub(super) async fn examine(bot: &Bot, directory: &Directory, default_key: Option<&ApiServerKey>) -> Verdict {
    let own = own_key(bot).await;
    // A refused key does not end it: a gateway that takes the default key everywhere refuses the bot's own.
    if !matches!(own, Verdict::Proved | Verdict::WrongKey | Verdict::MissingOrWeakKey) {
        return own;
    }
    let others = Others::of(bot, directory, default_key);
    let mut unclear = None;
    for (key, fault) in others.wrong_keys() {
        match Probe::new(bot.gateway()).bot_models(bot, key.as_ref()).await.0 {
            KeyAnswer::Accepted => return fault,
            KeyAnswer::Refused => {}
            KeyAnswer::UnknownPath => unclear = Some(Verdict::Unexpected(404)),
            KeyAnswer::Other(status) => unclear = Some(Verdict::Unexpected(status)),
            KeyAnswer::Silence => return Verdict::Unreachable,
        }
    }
    if own != Verdict::Proved {
        return own;
    }
    match elsewhere(bot).await {
        Verdict::Proved if others.share_it => Verdict::SharedKey,
        Verdict::Proved => unclear.unwrap_or(Verdict::Proved),
        fault => fault,
    }
}

/// Whether the bot's key, taken on its own path, opens other paths too.
async fn elsewhere(bot: &Bot) -> Verdict {
    let probe = Probe::new(bot.gateway());
    match probe.default_models(bot.authorization()).await {
        KeyAnswer::Refused | KeyAnswer::UnknownPath => Verdict::Proved,
        KeyAnswer::Other(status) => Verdict::Unexpected(status),
        KeyAnswer::Silence => Verdict::Unreachable,
        // Either the default profile has the same key, or paths mean nothing to this gateway.
        KeyAnswer::Accepted => match probe.stranger_models(bot.authorization()).await {
            KeyAnswer::Accepted => Verdict::PrefixIgnored,
            KeyAnswer::Refused | KeyAnswer::UnknownPath => Verdict::SharedKey,
            KeyAnswer::Other(status) => Verdict::Unexpected(status),
            KeyAnswer::Silence => Verdict::Unreachable,
        },
    }
}

/// The keys that are not the bot's.
struct Others {
    default_key: Option<HeaderValue>,
    /// One of another bot on the same gateway, and not the same text.
    neighbour: Option<HeaderValue>,
    /// Whether some other profile has the bot's very key: then it is no wrong key, but a fault all the same.
    share_it: bool,
}

impl Others {
    fn of(bot: &Bot, directory: &Directory, default_key: Option<&ApiServerKey>) -> Self {
        let same = |key: &ApiServerKey| key.expose() == bot.key().expose();
        let (mut neighbour, mut share_it) = (None, default_key.is_some_and(same));
        for other in directory.snapshot().values() {
            if other.login() == bot.login() || other.gateway().name() != bot.gateway().name() {
                continue;
            }
            match same(other.key()) {
                true => share_it = true,
                false => neighbour = Some(other.authorization().clone()),
            }
        }
        Others { default_key: default_key.filter(|key| !same(key)).map(bearer), neighbour, share_it }
    }

    fn wrong_keys(&self) -> Vec<(Option<HeaderValue>, Verdict)> {
        let mut keys = vec![(None, Verdict::NoKeyAccepted)];
        keys.push(match &self.neighbour {
            Some(neighbour) => (Some(neighbour.clone()), Verdict::NeighbourKeyAccepted),
            None => (Some(bearer(&ApiServerKey::generate())), Verdict::NoKeyAccepted),
        });
        keys.extend(self.default_key.clone().map(|key| (Some(key), Verdict::DefaultKeyAccepted)));
        keys
    }
}

/// Whether Hermes would take a profile with this key for one without: placeholders that pass for keys by length.
fn unusable(key: &ApiServerKey) -> bool {
    let text = key.expose().to_ascii_lowercase();
    let rest = ["sk-", "ghp_", "hf_"].iter().find_map(|start| text.strip_prefix(start)).unwrap_or(&text);
    rest.bytes().all(|b| matches!(b, b'x' | b'-' | b'_'))
}

/// Whether a refusal says that there is no usable key; Hermes 0.22 says the same for every wrong key.
fn says_unusable(answer: Option<&ControlAnswer>) -> bool {
    let Some(answer) = answer else { return false };
    let Ok(body) = serde_json::from_slice::<serde_json::Value>(&answer.body) else { return false };
    let code = body.pointer("/error/code").and_then(|code| code.as_str()).unwrap_or_default();
    ["missing", "unset", "not_configured", "weak", "unusable"].iter().any(|word| code.contains(word))
}
