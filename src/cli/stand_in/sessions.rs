//! Sessions, in small: rows in memory, and the two ways to chat in one.

use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{self, Answer, fresh_id, unix_seconds};
use super::chat::{Frames, Gone, gateway_failure, plain, usage, whole};
use super::gate::Call;
use super::script::{Script, Step};
use super::turns::Turn;

/// Answers `/api/sessions…`; `path` is what follows `sessions`.
pub(super) async fn answer(call: Call, path: &[String]) -> Result<Response<Answer>, Response<Answer>> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let method = call.head.method.clone();
    match (method, path.as_slice()) {
        (Method::GET, []) => {
            let rows = call.resident.shelf.sessions.all();
            Ok(answer::ok(&json!({"object": "list", "data": rows, "limit": 50, "offset": 0, "has_more": false})))
        }
        (_, []) => {
            let (call, request) = call.read_json().await?;
            let id = request["id"].as_str().map_or_else(|| fresh_id("api_"), str::to_owned);
            if id.is_empty() || id.len() > 256 || id.contains(['/', '\\']) {
                return Err(answer::bad("The session id cannot be used."));
            }
            if call.resident.shelf.sessions.find(&id).is_some() {
                return Err(answer::conflict("The session exists already.", "session_exists"));
            }
            let session = row(&id, &request["title"]);
            call.resident.shelf.sessions.put(&id, session.clone());
            let value = json!({"object": "hermes.session", "session": session});
            Ok(answer::json_value(StatusCode::CREATED, &value))
        }
        (Method::GET, [id]) => Ok(answer::ok(&json!({"object": "hermes.session", "session": find(&call, id)?}))),
        (Method::DELETE, [id]) => {
            find(&call, id)?;
            call.resident.shelf.sessions.remove(id);
            Ok(answer::ok(&json!({"object": "hermes.session.deleted", "id": id, "deleted": true})))
        }
        (_, [id] | [id, "model"]) => {
            let mut session = find(&call, id)?;
            let (call, request) = call.read_json().await?;
            session["title"] = request["title"].clone();
            call.resident.shelf.sessions.put(id, session.clone());
            Ok(answer::ok(&json!({"object": "hermes.session", "session": session})))
        }
        (_, [id, "messages"]) => {
            find(&call, id)?;
            Ok(answer::ok(&json!({"object": "list", "session_id": id, "data": []})))
        }
        (_, [id, "fork"]) => {
            let session = row(&fresh_id("api_"), &find(&call, id)?["title"]);
            let fork = session["id"].as_str().unwrap_or_default().to_owned();
            call.resident.shelf.sessions.put(&fork, session.clone());
            Ok(answer::json_value(StatusCode::CREATED, &json!({"object": "hermes.session", "session": session})))
        }
        (_, [id, rest @ ..]) => chat(call, id, rest.len() == 2).await,
    }
}

fn row(id: &str, title: &Value) -> Value {
    json!({"id": id, "title": title, "source": "api_server", "created_at": unix_seconds()})
}

fn find(call: &Call, id: &str) -> Result<Value, Response<Answer>> {
    let found = call.resident.shelf.sessions.find(id);
    found.ok_or_else(|| answer::not_found(&format!("There is no session {id}."), Some("session_not_found")))
}

async fn chat(call: Call, id: &str, stream: bool) -> Result<Response<Answer>, Response<Answer>> {
    let turn = call.gateway.turns().begin()?;
    find(&call, id)?;
    let (call, request) = call.read_json().await?;
    let message = ["message", "input"].iter().find_map(|name| request[name].as_str()).unwrap_or_default();
    if message.is_empty() {
        return Err(answer::bad("'message' is missing or empty."));
    }
    let script = Script::parse(message);
    gateway_failure(&script)?;
    let (who, id) = (call.resident.name.clone(), id.to_owned());
    if stream {
        let (frames, out) = Frames::new(call.gateway.keepalive());
        call.tasks.spawn(async move { drop(streamed(script, &who, &id, &frames, turn).await) });
        return Ok(answer::stream(out));
    }
    let done = plain(&call.tasks, turn, async move {
        let text = whole(script, &who).await;
        json!({
            "object": "hermes.session.chat.completion", "session_id": id,
            "message": {"role": "assistant", "content": text}, "usage": usage(),
        })
    });
    Ok(answer::ok(&done.await?))
}

async fn streamed(script: Script, who: &str, id: &str, frames: &Frames, mut turn: Turn) -> Result<(), Gone> {
    turn.work();
    let message = fresh_id("msg_");
    let frame = |event: &str, mut data: Value| {
        data["session_id"] = json!(id);
        format!("event: {event}\ndata: {data}\n\n")
    };
    frames.send(frame("run.started", json!({"message_id": message}))).await?;
    let mut whole = String::new();
    let show = |step| match step {
        Step::Text(text) => {
            whole.push_str(&text);
            Some(frame("assistant.delta", json!({"message_id": message, "delta": text})))
        }
        _ => None,
    };
    frames.play(script, who, show).await?;
    turn.finish();
    frames.send(frame("assistant.completed", json!({"message_id": message, "content": whole}))).await?;
    frames.send(frame("run.completed", json!({"usage": usage()}))).await?;
    frames.send(frame("done", json!({}))).await
}
