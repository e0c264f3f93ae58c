//! Chat completions, plain and streamed. The same shapes come from the provider that a real gateway can be given.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderMap;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::answer::{self, Answer, fresh_id, unix_seconds};
use super::gate::Call;
use super::script::{Script, Step};
use super::turns::Turn;

/// Longest session id or key, in bytes.
const SESSION_MAX: usize = 256;
/// Pieces that a stream may be ahead of its reader.
const AHEAD: usize = 8;
const SESSION_ID: HeaderName = HeaderName::from_static("x-hermes-session-id");
const SESSION_KEY: HeaderName = HeaderName::from_static("x-hermes-session-key");

/// The client of a stream is gone.
pub(super) struct Gone;

/// The writing end of a stream.
pub(super) struct Frames {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    keepalive: Duration,
}

impl Frames {
    /// A stream with comments in its silence.
    pub(super) fn new(keepalive: Duration) -> (Self, mpsc::Receiver<io::Result<Bytes>>) {
        let (pieces, out) = mpsc::channel(AHEAD);
        (Frames { pieces, keepalive }, out)
    }

    pub(super) async fn send(&self, piece: String) -> Result<(), Gone> {
        self.pieces.send(Ok(Bytes::from(piece))).await.map_err(|_| Gone)
    }

    /// Waits, with a comment whenever the silence gets long; hears at once when the client goes.
    pub(super) async fn wait(&self, silence: Duration) -> Result<(), Gone> {
        self.until(tokio::time::sleep(silence)).await
    }

    /// Waits for something, likewise.
    pub(super) async fn until<T>(&self, something: impl Future<Output = T>) -> Result<T, Gone> {
        let mut something = std::pin::pin!(something);
        loop {
            let comment = Instant::now() + self.keepalive;
            tokio::select! {
                biased;
                () = self.pieces.closed() => return Err(Gone),
                value = &mut something => return Ok(value),
                () = tokio::time::sleep_until(comment) => self.send(": keepalive\n\n".to_owned()).await?,
            }
        }
    }

    /// Plays a script; `show` turns text and tools into frames.
    pub(super) async fn play(
        &self,
        script: Script,
        who: &str,
        mut show: impl FnMut(Step) -> Option<String>,
    ) -> Result<(), Gone> {
        for step in script.steps(who) {
            match step {
                Step::Wait(silence) => self.wait(silence).await?,
                step => {
                    if let Some(frame) = show(step) {
                        self.send(frame).await?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Plays a script to its end and gives the whole text.
pub(super) async fn whole(script: Script, who: &str) -> String {
    let mut text = String::new();
    for step in script.steps(who) {
        match step {
            Step::Wait(silence) => tokio::time::sleep(silence).await,
            Step::Text(piece) => text.push_str(&piece),
            Step::Tool(..) | Step::Approval => {}
        }
    }
    text
}

/// Answers `/v1/chat/completions`.
pub(super) async fn completions(call: Call) -> Result<Response<Answer>, Response<Answer>> {
    let turn = call.gateway.turns().begin()?;
    let (call, request) = call.read_json().await?;
    let message = last_user_message(request["messages"].as_array())?;
    let session = Session::of(&call.head.headers, &call.resident.name, &message)?;
    let script = Script::parse(&message);
    gateway_failure(&script)?;
    let chat = Chat::new(&request, &call.resident.name);
    if asks_for_stream(&request) {
        let (frames, out) = Frames::new(call.gateway.keepalive());
        call.tasks.spawn(async move { drop(chat.stream(script, frames, Some(turn)).await) });
        return Ok(session.on(answer::stream(out)));
    }
    let done = plain(&call.tasks, turn, async move { chat.plain(script).await });
    Ok(session.on(answer::ok(&done.await?)))
}

/// Runs a plain turn to its end, whether or not its client waits for it.
pub(super) async fn plain(
    tasks: &crate::tasks::Tasks,
    mut turn: Turn,
    work: impl Future<Output = Value> + Send + 'static,
) -> Result<Value, Response<Answer>> {
    let (done, answer) = oneshot::channel();
    turn.work();
    tasks.spawn(async move {
        let value = work.await;
        turn.finish();
        // The client may be gone; the turn ran all the same.
        let _ = done.send(value);
    });
    let stopped = || answer::error(StatusCode::INTERNAL_SERVER_ERROR, "The stand-in stops.", "server_error", None);
    answer.await.map_err(|_| stopped())
}

/// One completion.
pub(super) struct Chat {
    id: String,
    model: String,
    created: u64,
    who: String,
}

impl Chat {
    pub(super) fn new(request: &Value, who: &str) -> Self {
        let model = request["model"].as_str().unwrap_or(who).to_owned();
        Chat { id: fresh_id("chatcmpl-"), model, created: unix_seconds(), who: who.to_owned() }
    }

    pub(super) async fn plain(self, script: Script) -> Value {
        let failed = script.provider_refuses();
        let text = if failed { FAILURE.to_owned() } else { whole(script, &self.who).await };
        let mut value = json!({
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": [{
                "index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish(failed),
            }],
            "usage": usage(),
        });
        if failed {
            value["hermes"] = extras();
        }
        value
    }

    pub(super) async fn stream(self, script: Script, frames: Frames, mut turn: Option<Turn>) -> Result<(), Gone> {
        if let Some(turn) = &mut turn {
            turn.work();
        }
        frames.send(self.chunk(&json!({"role": "assistant"}))).await?;
        let failed = script.provider_refuses();
        if failed {
            frames.send(self.chunk(&json!({"content": FAILURE}))).await?;
        } else {
            let who = self.who.clone();
            let show = |step| match step {
                Step::Text(text) => Some(self.chunk(&json!({"content": text}))),
                Step::Tool(name, begins) => Some(tool_frame(&name, begins)),
                Step::Wait(_) | Step::Approval => None,
            };
            frames.play(script, &who, show).await?;
        }
        let mut last = self.value(&json!({}), Some(finish(failed)));
        last["usage"] = usage();
        if failed {
            last["hermes"] = extras();
        }
        // The agent is done before its last frame leaves, as the real one's is.
        if let Some(turn) = turn {
            turn.finish();
        }
        frames.send(format!("data: {last}\n\n")).await?;
        frames.send("data: [DONE]\n\n".to_owned()).await
    }

    fn value(&self, delta: &Value, finish: Option<&str>) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        })
    }

    fn chunk(&self, delta: &Value) -> String {
        format!("data: {}\n\n", self.value(delta, None))
    }
}

const FAILURE: &str = "The provider refused the stand-in's call.";

fn finish(failed: bool) -> &'static str {
    if failed { "error" } else { "stop" }
}

fn extras() -> Value {
    json!({"completed": false, "partial": false, "failed": true, "error": FAILURE, "error_code": "agent_error"})
}

/// The usage of every answer.
pub(super) fn usage() -> Value {
    json!({"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10})
}

/// A frame that is no completion chunk: a tool begins or ends.
fn tool_frame(name: &str, begins: bool) -> String {
    let status = if begins { "running" } else { "completed" };
    let data = json!({"tool": name, "label": name, "toolCallId": format!("call_{name}"), "status": status});
    format!("event: hermes.tool.progress\ndata: {data}\n\n")
}

/// `FAIL:status` of the gateway itself.
pub(super) fn gateway_failure(script: &Script) -> Result<(), Response<Answer>> {
    match script.fail.filter(|_| !script.provider_refuses()).map(StatusCode::from_u16) {
        Some(Ok(status)) if status.as_u16() >= 400 => {
            Err(answer::error(status, "The stand-in was asked to fail.", "server_error", Some("agent_incomplete")))
        }
        _ => Ok(()),
    }
}

/// Whether a request asks for a stream; texts count as some front ends write them.
pub(super) fn asks_for_stream(request: &Value) -> bool {
    match &request["stream"] {
        Value::Bool(stream) => *stream,
        Value::String(text) => matches!(text.trim().to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on"),
        _ => false,
    }
}

/// The last user message's text.
pub(super) fn last_user_message(messages: Option<&Vec<Value>>) -> Result<String, Response<Answer>> {
    let Some(messages) = messages.filter(|messages| !messages.is_empty()) else {
        return Err(answer::bad("'messages' is missing or empty."));
    };
    let last = messages.iter().rev().find(|message| message["role"] == "user");
    let text = last.map(|message| content_text(&message["content"])).unwrap_or_default();
    if text.is_empty() { Err(answer::bad("'messages' holds no user message.")) } else { Ok(text) }
}

/// A content's text: a string, or the texts of its parts.
pub(super) fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    }
}

/// The session headers of a request, which its answer repeats.
pub(super) struct Session {
    pub(super) id: String,
    key: Option<HeaderValue>,
}

impl Session {
    /// Without a header the id comes from the profile and the message.
    pub(super) fn of(headers: &HeaderMap, profile: &str, message: &str) -> Result<Self, Response<Answer>> {
        let key = headers.get(SESSION_KEY).cloned();
        if key.as_ref().is_some_and(|key| key.len() > SESSION_MAX) {
            return Err(answer::bad("The session key is too long."));
        }
        let given = headers.get(SESSION_ID).map(|id| id.to_str().unwrap_or("/").trim().to_owned());
        let id = match given.filter(|id| !id.is_empty()) {
            Some(id) if id.len() > SESSION_MAX || id.contains(['/', '\\']) || id.contains("..") => {
                return Err(answer::bad("The session id cannot be used."));
            }
            Some(id) => id,
            None => {
                let digest = Sha256::new().chain_update(profile).chain_update([0]).chain_update(message).finalize();
                format!("api-{}", crate::names::hex(&digest[..12]))
            }
        };
        Ok(Session { id, key })
    }

    /// Puts the headers on an answer.
    pub(super) fn on(self, mut response: Response<Answer>) -> Response<Answer> {
        if let Ok(id) = HeaderValue::from_str(&self.id) {
            response.headers_mut().insert(SESSION_ID, id);
        }
        if let Some(key) = self.key {
            response.headers_mut().insert(SESSION_KEY, key);
        }
        response
    }
}
