//! Gate: whose path a request names, whether its key opens that path, and which handler answers.
//!
//! The order is the real one's: Origin, declared length, profile, route, key. So a length is refused before a key is looked
//! at, and `/health` needs none.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::Options;
use super::answer::{self, Answer};
use super::misbehave::{Isolation, Misbehave, Misbehaviour, act};
use super::record::{Recorded, Records};
use super::residents::{DEFAULT, Resident, Residents, opens};
use super::route::Route;
use super::runs::Runs;
use super::server::{Handler, Wire};
use super::turns::Turns;
use crate::tasks::Tasks;

/// Longest body, in bytes.
const BODY_MAX: u64 = 10_000_000;
/// Where reading a body without a declared length stops, in bytes.
const READ_MAX: usize = 32 << 20;

/// Everything that the stand-in knows.
#[derive(Debug)]
pub(super) struct Gateway {
    residents: Residents,
    turns: Arc<Turns>,
    runs: Runs,
    records: Records,
    keepalive: std::time::Duration,
    isolation: AtomicU8,
    misbehaves: AtomicBool,
    misbehave: Mutex<Option<Misbehave>>,
}

const ISOLATIONS: [Isolation; 6] = [
    Isolation::PerProfile,
    Isolation::DefaultKeyOnly,
    Isolation::DefaultKeyToo,
    Isolation::AnyKey,
    Isolation::NoKey,
    Isolation::PrefixIgnored,
];

impl Gateway {
    pub(super) fn new(options: Options) -> Self {
        let residents = Residents::default();
        residents.set(DEFAULT, Some(options.default_key));
        for (profile, key) in options.bots {
            residents.set(profile.as_str(), Some(key));
        }
        let gateway = Gateway {
            residents,
            turns: Turns::new(options.max_turns),
            runs: Runs::default(),
            records: Records::new(options.record),
            keepalive: options.keepalive,
            isolation: AtomicU8::new(0),
            misbehaves: AtomicBool::new(false),
            misbehave: Mutex::default(),
        };
        gateway.set_isolation(options.isolation);
        gateway.set_misbehave(options.misbehave);
        gateway
    }

    pub(super) fn residents(&self) -> &Residents {
        &self.residents
    }

    pub(super) fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    pub(super) fn runs(&self) -> &Runs {
        &self.runs
    }

    pub(super) fn records(&self) -> &Records {
        &self.records
    }

    pub(super) fn keepalive(&self) -> std::time::Duration {
        self.keepalive
    }

    pub(super) fn set_isolation(&self, isolation: Isolation) {
        let at = ISOLATIONS.iter().position(|known| *known == isolation).unwrap_or(0);
        self.isolation.store(at as u8, SeqCst);
    }

    fn isolation(&self) -> Isolation {
        ISOLATIONS[usize::from(self.isolation.load(SeqCst))]
    }

    pub(super) fn set_misbehave(&self, misbehave: Option<Misbehave>) {
        *self.misbehave.lock().unwrap_or_else(PoisonError::into_inner) = misbehave;
        self.misbehaves.store(misbehave.is_some(), SeqCst);
    }

    fn misbehaves(&self, headers: &HeaderMap) -> Option<Misbehave> {
        if !self.misbehaves.load(SeqCst) {
            return None;
        }
        let misbehave = *self.misbehave.lock().unwrap_or_else(PoisonError::into_inner);
        misbehave.filter(|misbehave| misbehave.applies(headers))
    }

    /// The profile that a path names and what follows it.
    fn place<'p>(&self, path: &'p str) -> Option<(Arc<Resident>, &'p str)> {
        let Some(rest) = path.strip_prefix("/p/") else {
            return Some((self.residents.find(DEFAULT)?, path));
        };
        let (segment, tail) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if self.isolation() == Isolation::PrefixIgnored {
            return Some((self.residents.find(DEFAULT)?, tail));
        }
        let resident = match self.residents.find(segment) {
            Some(resident) => resident,
            None => self.residents.find(percent_decoded(segment)?.trim())?,
        };
        Some((resident, tail))
    }

    /// Whether the presented key opens a profile's path.
    fn admits(&self, resident: &Resident, headers: &HeaderMap) -> Result<(), Response<Answer>> {
        // Of several Authorization headers the first one counts.
        let presented = headers.get(AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
        if std::str::from_utf8(presented).is_err() {
            let broken = answer::text(StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error");
            return Err(answer::last(broken));
        }
        let key = presented.strip_prefix(b"Bearer ").map_or(&b""[..], <[u8]>::trim_ascii);
        let default = || self.residents.find(DEFAULT).is_some_and(|default| opens(&default, key));
        let open = match self.isolation() {
            Isolation::PerProfile => opens(resident, key),
            Isolation::DefaultKeyOnly => default(),
            Isolation::DefaultKeyToo => opens(resident, key) || default(),
            Isolation::AnyKey | Isolation::PrefixIgnored => self.residents.some_key(key),
            Isolation::NoKey => true,
        };
        if open { Ok(()) } else { Err(answer::wrong_key()) }
    }
}

impl Handler for Gateway {
    async fn handle(self: Arc<Self>, request: Request<Incoming>, wire: Arc<Wire>, tasks: Tasks) -> Response<Answer> {
        let (head, body) = request.into_parts();
        let recorded = self.records.add(&head);
        match self.misbehaves(&head.headers).map(|misbehave| misbehave.how) {
            None => {}
            Some(Misbehaviour::Slow(wait)) => tokio::time::sleep(wait).await,
            Some(how) => {
                // An unread body would turn a close into a reset and lose what was written before it.
                let _ = read(body, recorded.as_deref()).await;
                return act(how, &head.headers, &wire).await;
            }
        }
        if head.method == Method::OPTIONS || head.headers.contains_key(ORIGIN) {
            return answer::text(StatusCode::FORBIDDEN, "");
        }
        if declared_length(&head).is_some_and(|length| length > BODY_MAX) {
            wire.linger();
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            let message = "The body is longer than 10000000 bytes.";
            return answer::last(answer::error(status, message, "invalid_request_error", Some("body_too_large")));
        }
        let path = head.uri.path().to_owned();
        let Some((resident, tail)) = self.place(&path) else { return answer::unknown_profile() };
        let Some(route) = Route::find(&head.method, tail) else {
            return answer::text(StatusCode::NOT_FOUND, "404: Not Found");
        };
        if matches!(route, Route::Health) {
            return answer::ok(&json!({"status": "ok", "platform": "botgate-stand-in", "version": "0.22.0"}));
        }
        if let Err(refusal) = self.admits(&resident, &head.headers) {
            return refusal;
        }
        if matches!(route, Route::Models) {
            return answer::json_text(StatusCode::OK, resident.models.clone());
        }
        let call = Call { gateway: self, tasks, resident, head, body, recorded };
        route.answer(call).await
    }
}

/// One admitted request.
pub(super) struct Call {
    pub(super) gateway: Arc<Gateway>,
    pub(super) tasks: Tasks,
    pub(super) resident: Arc<Resident>,
    pub(super) head: Parts,
    body: Incoming,
    recorded: Option<Arc<Recorded>>,
}

/// What is known of a call once its body is read.
pub(super) struct Context {
    pub(super) gateway: Arc<Gateway>,
    pub(super) tasks: Tasks,
    pub(super) resident: Arc<Resident>,
    pub(super) head: Parts,
}

impl Call {
    /// Reads the body; none, or an empty one, is an empty text.
    pub(super) async fn read(self) -> Result<(Context, Bytes), Response<Answer>> {
        let body = read(self.body, self.recorded.as_deref()).await?;
        let context = Context { gateway: self.gateway, tasks: self.tasks, resident: self.resident, head: self.head };
        Ok((context, body))
    }

    /// Reads a body of JSON.
    pub(super) async fn read_json(self) -> Result<(Context, Value), Response<Answer>> {
        let (context, body) = self.read().await?;
        // A chunked body that is too long ends like a broken one, as the real one answers it.
        let value = (body.len() as u64 <= BODY_MAX).then(|| serde_json::from_slice(&body).ok()).flatten();
        match value {
            Some(value @ Value::Object(_)) => Ok((context, value)),
            _ => Err(answer::bad("The body is not a JSON object.")),
        }
    }
}

async fn read(mut body: Incoming, recorded: Option<&Recorded>) -> Result<Bytes, Response<Answer>> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(answer::last(answer::bad("The body broke off."))) };
        if let Some(data) = frame.data_ref() {
            if let Some(recorded) = recorded {
                recorded.add_body(data.len() as u64);
            }
            if whole.len() + data.len() > READ_MAX {
                return Err(answer::last(answer::bad("The body is far too long.")));
            }
            whole.extend_from_slice(data);
        }
    }
    Ok(whole.freeze())
}

fn declared_length(head: &Parts) -> Option<u64> {
    head.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Undoes `%hh`; `None` when the result is no text.
fn percent_decoded(segment: &str) -> Option<String> {
    let mut out = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let pair = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match pair.filter(|_| byte == b'%').and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(decoded) => {
                out.push(decoded);
                rest = &tail[2..];
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_decoded_as_the_real_one_does() {
        assert_eq!(percent_decoded("bot%2Dalice").unwrap(), "bot-alice");
        assert_eq!(percent_decoded("%20bot-alice%0a").unwrap().trim(), "bot-alice");
        assert_eq!(percent_decoded("100%").unwrap(), "100%");
        assert!(percent_decoded("%ff").is_none());
    }
}
