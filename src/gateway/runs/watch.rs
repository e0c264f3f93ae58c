//! Run watch: the proof type that may ask after one run and stop it, also when its person may do nothing else.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use http::Method;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::RunEnd;
use crate::directory::Bot;
use crate::gateway::control_client::{self, ControlAnswer, ControlError, ControlRequest};
use crate::names::Identifier;

/// The right to GET `/v1/runs/{id}` and to POST its `/stop`, with the bot's own path and key, and nothing else.
#[derive(Debug)]
pub struct RunWatch {
    bot: Arc<Bot>,
    run: Identifier,
}

/// What the gateway says about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunSeen {
    /// It goes on.
    Going,
    /// It has ended.
    Ended(RunEnd),
    /// The gateway does not know the run.
    UnknownRun,
    /// The gateway does not know the profile.
    UnknownProfile,
    /// The gateway refuses the key.
    Refused,
    /// No answer that says anything.
    Unclear,
}

impl RunWatch {
    /// The watch over a run that this bot's request started, or that its stored row names.
    pub fn new(bot: Arc<Bot>, run: Identifier) -> Self {
        RunWatch { bot, run }
    }

    /// The bot whose run it is.
    pub fn bot(&self) -> &Arc<Bot> {
        &self.bot
    }

    /// The gateway's identifier of the run.
    pub fn run(&self) -> &Identifier {
        &self.run
    }

    /// Goes on with a newer key of the same bot; anything else is not taken.
    pub(super) fn renew(&mut self, bot: &Arc<Bot>) -> bool {
        let same = bot.uid() == self.bot.uid() && bot.gateway().name() == self.bot.gateway().name();
        let newer = same && !Arc::ptr_eq(bot, &self.bot);
        if newer {
            self.bot = Arc::clone(bot);
        }
        newer
    }

    /// Asks how the run stands.
    pub(super) async fn status(&self) -> RunSeen {
        match self.ask(Method::GET, "").await {
            Ok(answer) => seen(&answer),
            Err(_) => RunSeen::Unclear,
        }
    }

    /// Asks the gateway to stop the run; true when it has heard.
    pub(super) async fn stop(&self) -> bool {
        match self.ask(Method::POST, "/stop").await {
            // 409: it does not run in this gateway process, so there is nothing to stop.
            Ok(answer) => matches!(answer.status, 200..=299 | 404 | 409),
            Err(_) => false,
        }
    }

    async fn ask(&self, method: Method, end: &str) -> Result<ControlAnswer, ControlError> {
        let path = format!("{}/v1/runs/{}{end}", self.bot.prefix(), self.run);
        let authorization = Some(self.bot.authorization());
        let request = ControlRequest { method, path: &path, authorization, user_agent: "botgate-run" };
        control_client::ask(self.bot.gateway(), request).await
    }
}

fn seen(answer: &ControlAnswer) -> RunSeen {
    match answer.status {
        200..=299 => match status_word(&answer.body).as_deref() {
            Some("completed") => RunSeen::Ended(RunEnd::Completed),
            Some("failed" | "error" | "expired") => RunSeen::Ended(RunEnd::Failed),
            Some("cancelled" | "canceled" | "stopped") => RunSeen::Ended(RunEnd::Cancelled),
            Some("interrupted") => RunSeen::Ended(RunEnd::Interrupted),
            Some(_) => RunSeen::Going,
            None => RunSeen::Unclear,
        },
        401 | 403 => RunSeen::Refused,
        404 if error_code(&answer.body).is_some() => RunSeen::UnknownRun,
        404 => RunSeen::UnknownProfile,
        _ => RunSeen::Unclear,
    }
}

/// The run's `status`, also when the body is cut: a finished run's output can be longer than what is read of it.
fn status_word(body: &[u8]) -> Option<String> {
    struct Status<'c>(&'c Cell<Option<String>>);

    impl<'de> Visitor<'de> for Status<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a run")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<String>()? {
                if key == "status" {
                    self.0.set(Some(map.next_value()?));
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(())
        }
    }

    let found = Cell::new(None);
    // An error after the status is what a cut body looks like.
    let _ = serde::Deserializer::deserialize_map(&mut serde_json::Deserializer::from_slice(body), Status(&found));
    found.take()
}

/// The code of an OpenAI-shaped error; an unknown profile's error is bare text and has none.
fn error_code(body: &[u8]) -> Option<String> {
    let error: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(error.get("error")?.get("code")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn answer(status: u16, body: &str) -> RunSeen {
        seen(&ControlAnswer { status, body: Bytes::copy_from_slice(body.as_bytes()) })
    }

    #[test]
    fn the_gateways_words_are_understood() {
        for (word, expected) in [
            ("queued", RunSeen::Going),
            ("running", RunSeen::Going),
            ("waiting_for_approval", RunSeen::Going),
            ("stopping", RunSeen::Going),
            ("a word of a later version", RunSeen::Going),
            ("completed", RunSeen::Ended(RunEnd::Completed)),
            ("failed", RunSeen::Ended(RunEnd::Failed)),
            ("cancelled", RunSeen::Ended(RunEnd::Cancelled)),
            ("interrupted", RunSeen::Ended(RunEnd::Interrupted)),
        ] {
            let body =
                format!(r#"{{"object":"hermes.run","run_id":"run_1","status":"{word}","usage":{{"status":"x"}}}}"#);
            assert_eq!(answer(200, &body), expected, "{word}");
        }
    }

    #[test]
    fn a_long_output_does_not_hide_the_status() {
        let cut = format!(r#"{{"run_id":"run_1","status":"completed","output":"{}"#, "x".repeat(1000));
        assert_eq!(answer(200, &cut), RunSeen::Ended(RunEnd::Completed));
    }

    #[test]
    fn what_says_nothing_ends_nothing() {
        for body in ["", "null", "[]", "{}", r#"{"status":7}"#, r#"{"output":{"status":"completed"}}"#] {
            assert_eq!(answer(200, body), RunSeen::Unclear, "{body}");
        }
        assert_eq!(answer(503, r#"{"error":{"code":"gateway_draining"}}"#), RunSeen::Unclear);
    }

    #[test]
    fn an_unknown_run_and_an_unknown_profile_are_told_apart() {
        assert_eq!(answer(404, r#"{"error":{"message":"x","code":"run_not_found"}}"#), RunSeen::UnknownRun);
        assert_eq!(answer(404, r#"{"error":"Unknown or unconfigured profile"}"#), RunSeen::UnknownProfile);
        assert_eq!(answer(401, ""), RunSeen::Refused);
    }
}
