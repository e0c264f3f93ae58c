//! Control client: one request to a gateway over a connection of its own, with every wait and buffer bounded.
//!
//! Invariants: connecting takes 2 s at most and the whole answer 10 s; of a body no more than 64 KiB are kept. Only
//! [`super::probe`] and [`super::runs`] build requests for it, so nothing else leaves this room for a gateway outside
//! the data path. It does not retry, follow redirects or reuse connections.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::directory::GatewayTarget;

/// Longest wait for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait for a whole answer, connecting included.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of a body that are kept.
const BODY_LIMIT: usize = 64 * 1024;
/// Most bytes of a response head.
const HEAD_LIMIT: usize = 64 * 1024;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlError {
    /// Not connected: refused, unknown host, or too slow.
    Connect,
    /// Connected, but no whole answer in time.
    Timeout,
    /// Connected, but what came is not a whole HTTP answer.
    Broken,
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ControlError::Connect => "the gateway cannot be connected to",
            ControlError::Timeout => "the gateway did not answer in time",
            ControlError::Broken => "the gateway broke off its answer",
        })
    }
}

/// What to ask: built from constants, a bot's own prefix and a parsed identifier.
pub(super) struct ControlRequest<'r> {
    pub(super) method: Method,
    pub(super) path: &'r str,
    pub(super) authorization: Option<&'r HeaderValue>,
    pub(super) user_agent: &'static str,
}

/// A gateway's answer; no header of it matters here.
#[derive(Debug)]
pub(super) struct ControlAnswer {
    /// Status code.
    pub(super) status: u16,
    /// The body, or its first 64 KiB.
    pub(super) body: Bytes,
}

/// Sends one request and reads its answer.
pub(super) async fn ask(target: &GatewayTarget, request: ControlRequest<'_>) -> Result<ControlAnswer, ControlError> {
    let deadline = Instant::now() + ANSWER_LIMIT;
    let connecting = TcpStream::connect((target.url().host(), target.url().port()));
    let stream = match timeout(CONNECT_LIMIT, connecting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(_)) | Err(_) => return Err(ControlError::Connect),
    };
    timeout_at(deadline, exchange(target, stream, request)).await.unwrap_or(Err(ControlError::Timeout))
}

async fn exchange(
    target: &GatewayTarget,
    stream: TcpStream,
    request: ControlRequest<'_>,
) -> Result<ControlAnswer, ControlError> {
    let head = head(target, request)?;
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(HEAD_LIMIT)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| ControlError::Broken)?;
    let answer = async {
        let response = sender.send_request(head).await.map_err(|_| ControlError::Broken)?;
        let status = response.status().as_u16();
        Ok(ControlAnswer { status, body: read(response.into_body()).await? })
    };
    // The connection is driven here, in the same task, and dropped with the answer.
    let (mut answer, mut connection) = (pin!(answer), pin!(connection));
    let mut open = true;
    poll_fn(|cx| {
        if open && connection.as_mut().poll(cx).is_ready() {
            open = false;
        }
        answer.as_mut().poll(cx)
    })
    .await
}

fn head(target: &GatewayTarget, request: ControlRequest<'_>) -> Result<Request<Empty<Bytes>>, ControlError> {
    let mut head = Request::builder()
        .uri(request.path)
        .header(HOST, target.host())
        .header(USER_AGENT, request.user_agent)
        .header(CONNECTION, "close");
    if request.method == Method::POST {
        head = head.header(CONTENT_LENGTH, 0);
    }
    if let Some(authorization) = request.authorization {
        head = head.header(AUTHORIZATION, authorization);
    }
    head.method(request.method).body(Empty::new()).map_err(|_| ControlError::Broken)
}

async fn read(mut body: Incoming) -> Result<Bytes, ControlError> {
    let mut kept = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| ControlError::Broken)?.into_data() else { continue };
        let room = BODY_LIMIT - kept.len();
        kept.extend_from_slice(&data[..data.len().min(room)]);
        if kept.len() == BODY_LIMIT {
            break;
        }
    }
    Ok(kept.freeze())
}
