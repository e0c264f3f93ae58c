//! Whether a request is what the job asks for, and the answer that is ready for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use httparse::{Header, Request};

use super::Seen;
use crate::people::{FORGED, Person};

/// How botgate's proof names itself.
const PROOF: &[u8] = b"botgate-proof";

/// Everybody's right credential and ready answers.
pub(super) struct Judge {
    by_profile: HashMap<String, Resident>,
    pub(super) seen: Arc<Seen>,
    refusal: Arc<[u8]>,
}

struct Resident {
    authorization: String,
    models: Arc<[u8]>,
    turn: Arc<[u8]>,
}

/// How a judged request is answered.
#[derive(Debug)]
pub(super) enum Answer {
    /// These bytes.
    Whole(Arc<[u8]>),
    /// A stream if the body asks for one, else these bytes.
    ByBody(Arc<[u8]>),
}

impl Judge {
    pub(super) fn new(people: &[Person], seen: Arc<Seen>) -> Self {
        let by_profile = people.iter().map(|person| (person.profile.as_str().to_owned(), Resident::new(person)));
        let refusal = answer("401 Unauthorized", r#"{"error":{"message":"wrong key","code":"gateway_auth_failed"}}"#);
        Judge { by_profile: by_profile.collect(), seen, refusal }
    }

    /// Judges a request and counts it.
    pub(super) fn judge(&self, head: &Request<'_, '_>) -> Answer {
        let proof = values(head.headers, "user-agent").any(|agent| agent == PROOF);
        match self.opened(head) {
            Ok(answer) if proof => {
                self.seen.proofs.fetch_add(1, Relaxed);
                answer
            }
            Ok(answer) => {
                self.seen.requests.fetch_add(1, Relaxed);
                match disclosed(head.headers) {
                    None => answer,
                    Some(what) => {
                        self.seen.wrong(what);
                        Answer::Whole(Arc::clone(&self.refusal))
                    }
                }
            }
            Err(what) => {
                match proof {
                    true => drop(self.seen.proofs.fetch_add(1, Relaxed)),
                    false => self.seen.wrong(what),
                }
                Answer::Whole(Arc::clone(&self.refusal))
            }
        }
    }

    /// The answer that path and key open together.
    fn opened(&self, head: &Request<'_, '_>) -> Result<Answer, &'static str> {
        let path = head.path.unwrap_or_default();
        let rest = path.strip_prefix("/p/").ok_or("the path names no profile")?;
        let (profile, tail) = rest.split_once('/').ok_or("the path ends with the profile")?;
        let resident = self.by_profile.get(profile).ok_or("the path names an unknown profile")?;
        let mut credentials = values(head.headers, "authorization");
        if credentials.next() != Some(resident.authorization.as_bytes()) {
            return Err("the key is not the profile's");
        }
        if credentials.next().is_some() {
            return Err("there are two credentials");
        }
        match (head.method, tail) {
            (Some("GET"), "v1/models") => Ok(Answer::Whole(Arc::clone(&resident.models))),
            (Some("POST"), "v1/chat/completions") => Ok(Answer::ByBody(Arc::clone(&resident.turn))),
            _ => Err("method and path were not asked for"),
        }
    }
}

/// Which line of the client's came through, or which of the proxy's is missing.
fn disclosed(lines: &[Header<'_>]) -> Option<&'static str> {
    let mut forwarded_for = 0;
    for line in lines {
        let is = |name: &str| line.name.eq_ignore_ascii_case(name);
        if is("cookie") || is("x-real-ip") || is("forwarded") || is("keep-alive") || is("te") {
            return Some("a line of the client's came through that has to be stripped");
        }
        if is("x-forwarded-for") {
            forwarded_for += 1;
            if line.value != b"127.0.0.1" {
                return Some("X-Forwarded-For is not the client's address");
            }
        } else if line.value == FORGED.as_bytes() {
            return Some("a forged forwarding line came through");
        }
    }
    (forwarded_for != 1).then_some("there is not exactly one X-Forwarded-For")
}

fn values<'h>(lines: &'h [Header<'h>], name: &'h str) -> impl Iterator<Item = &'h [u8]> {
    lines.iter().filter(move |line| line.name.eq_ignore_ascii_case(name)).map(|line| line.value)
}

impl Resident {
    fn new(person: &Person) -> Self {
        let who = person.profile.as_str();
        let models = format!(
            r#"{{"object":"list","data":[{{"id":"{who}","object":"model","created":1700000000,"owned_by":"hermes","permission":[],"root":"{who}","parent":null}}]}}"#
        );
        let turn = format!(
            r#"{{"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1700000000,"model":"hermes-agent","choices":[{{"index":0,"message":{{"role":"assistant","content":"I am {who}. It is sunny and warm, with a light breeze from the west."}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":12,"completion_tokens":18,"total_tokens":30}}}}"#
        );
        Resident {
            authorization: format!("Bearer {}", person.key.expose()),
            models: answer("200 OK", &models),
            turn: answer("200 OK", &turn),
        }
    }
}

fn answer(status: &str, body: &str) -> Arc<[u8]> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
        .into()
}
