//! The Responses API: create, plain and streamed with numbered typed events, read, delete.

use std::sync::Arc;

use http::Response;
use serde_json::{Value, json};

use super::answer::{self, Answer, fresh_id, unix_seconds};
use super::chat::{Frames, Gone, Session, asks_for_stream, content_text, gateway_failure, plain, whole};
use super::gate::Call;
use super::residents::Resident;
use super::script::{Script, Step};
use super::turns::Turn;

/// Answers `POST /v1/responses`.
pub(super) async fn create(call: Call) -> Result<Response<Answer>, Response<Answer>> {
    let turn = call.gateway.turns().begin()?;
    let (call, request) = call.read_json().await?;
    let message = input_text(&request["input"])?;
    if let Some(previous) = request["previous_response_id"].as_str()
        && call.resident.shelf.responses.find(previous).is_none()
    {
        return Err(missing(previous));
    }
    let session = Session::of(&call.head.headers, &call.resident.name, &message)?;
    let script = Script::parse(&message);
    gateway_failure(&script)?;
    let reply = Reply {
        id: fresh_id("resp_"),
        item: fresh_id("msg_"),
        model: request["model"].as_str().unwrap_or(&call.resident.name).to_owned(),
        created: unix_seconds(),
        stored: request["store"].as_bool().unwrap_or(true),
        resident: Arc::clone(&call.resident),
    };
    if asks_for_stream(&request) {
        let (frames, out) = Frames::new(call.gateway.keepalive());
        call.tasks.spawn(async move { drop(reply.stream(script, frames, turn).await) });
        return Ok(session.on(answer::stream(out)));
    }
    let done = plain(&call.tasks, turn, async move {
        let text = whole(script, &reply.resident.name).await;
        reply.keep(reply.value("completed", &text))
    });
    Ok(session.on(answer::ok(&done.await?)))
}

/// Answers `GET /v1/responses/{id}`.
pub(super) fn read(call: &Call, id: &str) -> Response<Answer> {
    call.resident.shelf.responses.find(id).map_or_else(|| missing(id), |response| answer::ok(&response))
}

/// Answers `DELETE /v1/responses/{id}`.
pub(super) fn delete(call: &Call, id: &str) -> Response<Answer> {
    if call.resident.shelf.responses.remove(id) {
        return answer::ok(&json!({"id": id, "object": "response", "deleted": true}));
    }
    missing(id)
}

fn missing(id: &str) -> Response<Answer> {
    answer::not_found(&format!("There is no response {id}."), None)
}

/// The message of an `input`: a text, or the last item of a list.
pub(super) fn input_text(input: &Value) -> Result<String, Response<Answer>> {
    let text = match input {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.last().map(|item| content_text(&item["content"])).unwrap_or_default(),
        _ => String::new(),
    };
    if text.is_empty() { Err(answer::bad("'input' is missing or holds no text.")) } else { Ok(text) }
}

/// One response under way.
struct Reply {
    id: String,
    item: String,
    model: String,
    created: u64,
    stored: bool,
    resident: Arc<Resident>,
}

impl Reply {
    fn value(&self, status: &str, text: &str) -> Value {
        let output = match status {
            "in_progress" => json!([]),
            _ => json!([self.message("completed", text)]),
        };
        json!({
            "id": self.id, "object": "response", "status": status, "created_at": self.created, "model": self.model,
            "output": output, "usage": {"input_tokens": 5, "output_tokens": 5, "total_tokens": 10},
        })
    }

    fn message(&self, status: &str, text: &str) -> Value {
        let content = match status {
            "in_progress" => json!([]),
            _ => json!([{"type": "output_text", "text": text, "annotations": []}]),
        };
        json!({"id": self.item, "type": "message", "status": status, "role": "assistant", "content": content})
    }

    fn keep(&self, value: Value) -> Value {
        if self.stored {
            self.resident.shelf.responses.put(&self.id, value.clone());
        }
        value
    }

    async fn stream(self, script: Script, frames: Frames, mut turn: Turn) -> Result<(), Gone> {
        turn.work();
        let mut events = Events { next: 0 };
        let begun = self.keep(self.value("in_progress", ""));
        frames.send(events.frame("response.created", json!({"response": begun}))).await?;
        let added = json!({"output_index": 0, "item": self.message("in_progress", "")});
        frames.send(events.frame("response.output_item.added", added)).await?;
        let mut text = String::new();
        let show = |step| match step {
            Step::Text(piece) => {
                text.push_str(&piece);
                let delta = json!({
                    "item_id": self.item, "output_index": 0, "content_index": 0, "delta": piece, "logprobs": [],
                });
                Some(events.frame("response.output_text.delta", delta))
            }
            _ => None,
        };
        if frames.play(script, &self.resident.name, show).await.is_err() {
            self.keep(self.value("incomplete", &text));
            return Err(Gone);
        }
        turn.finish();
        let done = self.keep(self.value("completed", &text));
        let part = json!({
            "item_id": self.item, "output_index": 0, "content_index": 0, "text": text, "logprobs": [],
        });
        frames.send(events.frame("response.output_text.done", part)).await?;
        let item = json!({"output_index": 0, "item": self.message("completed", &text)});
        frames.send(events.frame("response.output_item.done", item)).await?;
        frames.send(events.frame("response.completed", json!({"response": done}))).await
    }
}

/// Numbers the events of a stream.
struct Events {
    next: u64,
}

impl Events {
    fn frame(&mut self, kind: &str, mut data: Value) -> String {
        data["type"] = json!(kind);
        data["sequence_number"] = json!(self.next);
        self.next += 1;
        format!("event: {kind}\ndata: {data}\n\n")
    }
}
