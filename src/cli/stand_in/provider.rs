//! Provider: an OpenAI-compatible model endpoint that a real gateway can be pointed at, driven by the same script.
//!
//! It has no profiles and no cap. It answers in the name of the provider key that it was called with, so that it shows
//! which profile's key the gateway used: `sk-stand-in-bot-alice` is `bot-alice`.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::answer::{self, Answer};
use super::chat::{Chat, Frames, asks_for_stream, last_user_message};
use super::script::Script;
use super::server::{Handler, Server, Wire};
use crate::names::ProfileName;
use crate::tasks::Tasks;

/// Longest request, in bytes: an agent's prompt with all its tools.
const BODY_MAX: usize = 64 << 20;
/// What every provider key begins with.
const KEY_PREFIX: &str = "sk-stand-in-";

/// The provider key under which the model answers in a profile's name. It opens nothing and is no secret.
pub fn provider_key(profile: &ProfileName) -> String {
    format!("{KEY_PREFIX}{profile}")
}

/// The model's name.
pub const MODEL: &str = "stand-in-model";

/// A running provider. Dropping it cuts everything off.
#[derive(Debug)]
pub struct Provider {
    server: Server,
}

/// Starts a provider on a thread and runtime of its own.
///
/// # Errors
/// The listener cannot be used, or the system refuses a thread.
pub fn serve(listener: TcpListener) -> io::Result<Provider> {
    Ok(Provider { server: Server::start("stand-in-model", listener, Arc::new(Model))? })
}

impl Provider {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Cuts off what is still running and waits for the thread.
    pub fn stop(self) {
        self.server.stop();
    }
}

struct Model;

impl Handler for Model {
    async fn handle(self: Arc<Self>, request: Request<Incoming>, _wire: Arc<Wire>, tasks: Tasks) -> Response<Answer> {
        let (head, body) = request.into_parts();
        match (&head.method, head.uri.path()) {
            (&Method::GET, "/v1/models") => answer::ok(&json!({
                "object": "list",
                "data": [{"id": MODEL, "object": "model", "owned_by": "botgate-stand-in", "context_length": 200_000}],
            })),
            (&Method::POST, "/v1/chat/completions") => {
                complete(&head.headers, body, &tasks).await.unwrap_or_else(|early| early)
            }
            _ => answer::not_found("The stand-in's model has no such path.", None),
        }
    }
}

async fn complete(headers: &HeaderMap, body: Incoming, tasks: &Tasks) -> Result<Response<Answer>, Response<Answer>> {
    let unreadable = || answer::bad("The body cannot be read as JSON.");
    let body = Limited::new(body, BODY_MAX).collect().await.map_err(|_| unreadable())?.to_bytes();
    let request: Value = serde_json::from_slice(&body).map_err(|_| unreadable())?;
    let message = last_user_message(request["messages"].as_array())?;
    let who = caller(headers);
    let script = Script::parse(&message);
    if let Some(Ok(status)) = script.fail.map(StatusCode::from_u16) {
        return Err(answer::error(status, "The stand-in's model was asked to fail.", "server_error", None));
    }
    let chat = Chat::new(&request, &who);
    if asks_for_stream(&request) {
        // A gateway that leaves ends the stream; no comments, as a provider sends none.
        let (frames, out) = Frames::new(Duration::from_secs(3600));
        tasks.spawn(async move { drop(chat.stream(script, frames, None).await) });
        return Ok(answer::stream(out));
    }
    Ok(answer::ok(&chat.plain(script).await))
}

/// The profile whose provider key was presented.
fn caller(headers: &HeaderMap) -> String {
    let presented = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = presented.strip_prefix("Bearer ").and_then(|key| key.strip_prefix(KEY_PREFIX));
    name.map_or_else(|| "nobody".to_owned(), |name| name.chars().take(64).collect())
}
