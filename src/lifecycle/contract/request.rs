//! One request on a connection of its own, and as much of the answer as a check reads.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use super::facts::{ABSENT_PROFILE, Extra, Fact, Key, OVERSIZED_BODY, Path};
use super::{Gateway, bearer};

/// The most that is read of an answer, in bytes.
const ANSWER_LIMIT: usize = 64 * 1024;

/// What a check sees.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) has_length: bool,
    /// `Null` unless the body is JSON.
    pub(super) json: Value,
}

impl Answer {
    pub(super) fn status_is(&self, expected: StatusCode) -> Result<(), String> {
        if self.status == expected {
            return Ok(());
        }
        Err(format!("status {} instead of {}", self.status.as_u16(), expected.as_u16()))
    }

    pub(super) fn error_code_is(&self, expected: &str) -> Result<(), String> {
        self.that(self.json["error"]["code"] == expected, "another error code")
    }

    pub(super) fn that(&self, holds: bool, otherwise: &str) -> Result<(), String> {
        if holds { Ok(()) } else { Err(format!("status {}, but {otherwise}", self.status.as_u16())) }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum SendError {
    Connect(std::io::Error),
    Exchange(hyper::Error),
    Body,
    Deadline(Duration),
}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::Exchange(error) => write!(f, "no answer: {error}"),
            Self::Body => write!(f, "the answer broke off or is larger than {ANSWER_LIMIT} bytes"),
            Self::Deadline(limit) => write!(f, "no answer in {} s", limit.as_secs()),
        }
    }
}

/// The request of a fact; the error names what the caller did not give.
pub(super) fn build(gateway: &Gateway, fact: &Fact) -> Result<Request<Withheld>, &'static str> {
    let target = match fact.path {
        Path::Bare(rest) => rest.to_owned(),
        Path::Own(rest) => format!("/p/{}{rest}", gateway.own.profile),
        Path::Absent(rest) => format!("/p/{ABSENT_PROFILE}{rest}"),
    };
    let mut request = Request::new(Withheld(0));
    *request.uri_mut() = target.parse().map_err(|_| "the profile cannot stand in a path")?;
    let headers = request.headers_mut();
    let host = HeaderValue::try_from(gateway.address.to_string()).map_err(|_| "no usable address")?;
    headers.insert(HOST, host);
    if let Some(value) = authorization(gateway, fact.key)? {
        headers.insert(AUTHORIZATION, value);
    }
    match fact.extra {
        Extra::None => {}
        Extra::Origin => {
            headers.insert(ORIGIN, HeaderValue::from_static("https://contract.invalid"));
        }
        Extra::OversizedBody => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(CONTENT_LENGTH, HeaderValue::from(OVERSIZED_BODY));
            *request.method_mut() = Method::POST;
            *request.body_mut() = Withheld(OVERSIZED_BODY);
        }
    }
    Ok(request)
}

fn authorization(gateway: &Gateway, key: Key) -> Result<Option<HeaderValue>, &'static str> {
    Ok(Some(match key {
        Key::None => return Ok(None),
        Key::Own => gateway.own.authorization.clone(),
        Key::OwnLowerCaseScheme => lower_case_scheme(&gateway.own.authorization)?,
        Key::Neighbour => gateway.neighbour.as_ref().ok_or("no second bot to try it with")?.authorization.clone(),
        Key::Default => gateway.default.clone().ok_or("no default key to try it with")?,
        Key::Unknown => bearer("0123456789abcdef-nobody-holds-this-key").ok_or("no usable key")?,
    }))
}

fn lower_case_scheme(authorization: &HeaderValue) -> Result<HeaderValue, &'static str> {
    let mut bytes = authorization.as_bytes().to_vec();
    bytes[..1].make_ascii_lowercase();
    let mut value = HeaderValue::from_bytes(&bytes).map_err(|_| "no usable key")?;
    value.set_sensitive(true);
    Ok(value)
}

/// Sends on a fresh connection, which ends with the answer.
pub(super) async fn send(
    address: SocketAddr,
    request: Request<Withheld>,
    deadline: Duration,
) -> Result<Answer, SendError> {
    tokio::time::timeout(deadline, exchange(address, request)).await.unwrap_or(Err(SendError::Deadline(deadline)))
}

async fn exchange(address: SocketAddr, request: Request<Withheld>) -> Result<Answer, SendError> {
    let stream = TcpStream::connect(address).await.map_err(SendError::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(SendError::Exchange)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(SendError::Exchange)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_LIMIT).collect().await.map_err(|_| SendError::Body)?;
        Ok(Answer {
            status: head.status,
            has_length: head.headers.contains_key(CONTENT_LENGTH),
            json: serde_json::from_slice(&body.to_bytes()).unwrap_or_default(),
        })
    };
    tokio::pin!(connection, answer);
    // The connection moves only while it is polled; once it is over, the answer is either complete or an error.
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        _ = &mut connection => answer.await,
    }
}

/// A body of so many bytes that are declared and never sent; of zero bytes it is simply empty.
#[derive(Debug)]
pub(super) struct Withheld(u64);

impl Body for Withheld {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.0 == 0 { Poll::Ready(None) } else { Poll::Pending }
    }

    fn is_end_stream(&self) -> bool {
        self.0 == 0
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0)
    }
}
