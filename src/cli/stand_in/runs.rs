//! Runs: turns that outlive their request. A run belongs to the profile that started it; nobody else finds it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::answer::{self, Answer, fresh_id, unix_seconds};
use super::chat::{Frames, Gone, Session, gateway_failure, usage};
use super::gate::{Call, Gateway};
use super::responses::input_text;
use super::script::{Script, Step};
use super::turns::Turn;

/// Most runs that are remembered; the oldest ended one makes room.
const RUNS_MAX: usize = 4096;
/// Most events of a run that can be replayed.
const EVENTS_MAX: usize = 4096;

/// All runs.
#[derive(Debug, Default)]
pub(super) struct Runs(Mutex<VecDeque<Arc<Run>>>);

impl Runs {
    fn add(&self, run: Arc<Run>) {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() >= RUNS_MAX {
            let ended = runs.iter().position(|run| run.state().ended).unwrap_or(0);
            runs.remove(ended);
        }
        runs.push_back(run);
    }

    fn of(&self, profile: &str, id: &str) -> Result<Arc<Run>, Response<Answer>> {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = runs.iter().rev().find(|run| run.id == id && run.profile == profile).cloned();
        found.ok_or_else(|| answer::not_found(&format!("There is no run {id}."), Some("run_not_found")))
    }
}

/// One run.
#[derive(Debug)]
struct Run {
    id: String,
    profile: String,
    session: String,
    created: u64,
    state: Mutex<State>,
    /// Counts changes, for those who follow the events.
    changed: watch::Sender<u64>,
    stop: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    status: &'static str,
    ended: bool,
    output: String,
    steered: String,
    last_event: String,
    /// Events and their numbers.
    events: VecDeque<(u64, Value)>,
    next: u64,
    approval: Option<(String, Option<String>)>,
}

impl Run {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and adds an event.
    fn note(&self, event: &str, mut fields: Value, change: impl FnOnce(&mut State)) {
        fields["event"] = json!(event);
        fields["run_id"] = json!(self.id);
        fields["timestamp"] = json!(unix_seconds());
        {
            let mut state = self.state();
            change(&mut state);
            fields["seq"] = json!(state.next);
            event.clone_into(&mut state.last_event);
            let number = state.next;
            state.next += 1;
            if state.events.len() == EVENTS_MAX {
                state.events.pop_front();
            }
            state.events.push_back((number, fields));
        }
        self.changed.send_modify(|changes| *changes += 1);
    }

    fn end(&self, status: &'static str, fields: Value) {
        self.note(&format!("run.{status}"), fields, |state| {
            state.status = status;
            state.ended = true;
        });
    }

    fn status(&self) -> Value {
        let state = self.state();
        let mut value = json!({
            "object": "hermes.run", "run_id": self.id, "status": state.status, "created_at": self.created,
            "updated_at": unix_seconds(), "session_id": self.session, "model": self.profile,
            "last_event": state.last_event,
        });
        if state.status == "completed" {
            value["output"] = json!(state.output);
            value["usage"] = usage();
        }
        if let Some((request, None)) = &state.approval {
            value["approval"] = json!({"request_id": request});
        }
        value
    }

    /// Does the turn.
    async fn work(self: Arc<Self>, script: Script, mut turn: Turn) {
        turn.work();
        self.state().status = "running";
        let failed = script.provider_refuses();
        let stop = self.stop.clone();
        if stop.run_until_cancelled(self.play(script)).await.is_none() {
            self.end("cancelled", json!({}));
            return;
        }
        turn.finish();
        if failed {
            self.end("failed", json!({"error": "The provider refused the stand-in's call."}));
        } else {
            let output = {
                let mut state = self.state();
                let steered = std::mem::take(&mut state.steered);
                state.output.push_str(&steered);
                state.output.clone()
            };
            self.end("completed", json!({"output": output, "usage": usage()}));
        }
    }

    async fn play(&self, script: Script) {
        if script.provider_refuses() {
            return;
        }
        for step in script.steps(&self.profile) {
            match step {
                Step::Wait(silence) => tokio::time::sleep(silence).await,
                Step::Text(text) => {
                    self.note("message.delta", json!({"delta": text}), |state| state.output.push_str(&text));
                }
                Step::Tool(name, begins) => {
                    let event = if begins { "tool.started" } else { "tool.completed" };
                    self.note(event, json!({"tool": name}), |_| {});
                }
                Step::Approval => self.approved().await,
            }
        }
    }

    /// Waits for a person's choice.
    async fn approved(&self) {
        let request = fresh_id("appr_");
        self.note("approval.request", json!({"request_id": request, "command": "true"}), |state| {
            state.status = "waiting_for_approval";
            state.approval = Some((request.clone(), None));
        });
        let mut changed = self.changed.subscribe();
        let _ = changed.wait_for(|_| self.state().approval.as_ref().is_some_and(|(_, choice)| choice.is_some())).await;
        let mut state = self.state();
        state.status = "running";
        state.approval = None;
    }
}

/// Answers `POST /v1/runs`.
pub(super) async fn start(call: Call) -> Result<Response<Answer>, Response<Answer>> {
    let (call, body) = call.read().await?;
    let Ok(request) = serde_json::from_slice::<Value>(&body) else {
        return Err(answer::bad("The body is not JSON."));
    };
    let message = input_text(&request["input"])?;
    let key = call.head.headers.get("idempotency-key").map(|key| key.to_str().unwrap_or_default().to_owned());
    if key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 255) {
        let status = StatusCode::BAD_REQUEST;
        let message = "The Idempotency-Key is not 1 to 255 visible characters.";
        return Err(answer::error(status, message, "invalid_request_error", Some("invalid_idempotency_key")));
    }
    let digest: [u8; 32] = Sha256::digest(&body).into();
    let shelf = &call.resident.shelf;
    if let Some((same, id)) = key.as_ref().and_then(|key| shelf.idempotency.find(key)) {
        if same != digest {
            return Err(answer::conflict(
                "This Idempotency-Key came with another body before.",
                "idempotency_key_conflict",
            ));
        }
        let run = call.gateway.runs().of(&call.resident.name, &id)?;
        let status = run.state().status;
        return Ok(accepted(&id, status, true));
    }
    // A replay above needs no room; only a new run does.
    let turn = call.gateway.turns().begin()?;
    let script = Script::parse(&message);
    gateway_failure(&script)?;
    let session = Session::of(&call.head.headers, &call.resident.name, &message)?;
    let run = Arc::new(Run {
        id: fresh_id("run_"),
        profile: call.resident.name.clone(),
        session: request["session_id"].as_str().unwrap_or(&session.id).to_owned(),
        created: unix_seconds(),
        state: Mutex::new(State { status: "queued", ..State::default() }),
        changed: watch::Sender::new(0),
        stop: CancellationToken::new(),
    });
    if let Some(key) = key {
        shelf.idempotency.put(&key, (digest, run.id.clone()));
    }
    let id = run.id.clone();
    call.gateway.runs().add(Arc::clone(&run));
    call.tasks.spawn(run.work(script, turn));
    Ok(session.on(accepted(&id, "started", false)))
}

fn accepted(id: &str, status: &str, replayed: bool) -> Response<Answer> {
    let value = json!({"run_id": id, "status": status, "replayed": replayed});
    let mut response = answer::json_value(StatusCode::ACCEPTED, &value);
    if replayed {
        let name = HeaderName::from_static("idempotency-replayed");
        response.headers_mut().insert(name, HeaderValue::from_static("true"));
    }
    response
}

fn own(call: &Call, id: &str) -> Result<Arc<Run>, Response<Answer>> {
    call.gateway.runs().of(&call.resident.name, id)
}

/// Answers `GET /v1/runs/{id}`.
pub(super) fn status(call: &Call, id: &str) -> Response<Answer> {
    own(call, id).map_or_else(|early| early, |run| answer::ok(&run.status()))
}

/// Answers `POST /v1/runs/{id}/stop`.
pub(super) fn stop(call: &Call, id: &str) -> Response<Answer> {
    let run = match own(call, id) {
        Ok(run) => run,
        Err(early) => return early,
    };
    if run.state().ended {
        return answer::ok(&run.status());
    }
    run.note("run.stopping", json!({}), |state| state.status = "stopping");
    run.stop.cancel();
    answer::ok(&json!({"run_id": id, "status": "stopping"}))
}

/// Answers `POST /v1/runs/{id}/steer`.
pub(super) async fn steer(call: Call, id: &str) -> Result<Response<Answer>, Response<Answer>> {
    let run = own(&call, id)?;
    if run.state().status != "running" {
        return Err(answer::conflict("The run does not take steering now.", "run_not_accepting_steer"));
    }
    let (_, request) = call.read_json().await?;
    let text = ["input", "message", "text"].iter().find_map(|name| request[name].as_str()).unwrap_or_default().trim();
    if text.is_empty() {
        let status = StatusCode::BAD_REQUEST;
        let message = "'input' is missing or empty.";
        return Err(answer::error(status, message, "invalid_request_error", Some("invalid_steer_input")));
    }
    run.note("run.steered", json!({"accepted": true}), |state| {
        // Bounded like everything else that a client can make grow.
        if state.steered.len() < 64 << 10 {
            state.steered.push_str(&format!(" Steered: {}.", text.chars().take(200).collect::<String>()));
        }
    });
    Ok(answer::ok(&json!({"object": "hermes.run.steer", "run_id": id, "accepted": true})))
}

/// Answers `POST /v1/runs/{id}/approval`.
pub(super) async fn approve(call: Call, id: &str) -> Result<Response<Answer>, Response<Answer>> {
    let run = own(&call, id)?;
    let (_, request) = call.read_json().await?;
    let choice = match request["choice"].as_str().unwrap_or_default() {
        "approve" | "approved" | "allow" => "once",
        choice @ ("once" | "session" | "always" | "deny") => choice,
        _ => {
            let status = StatusCode::BAD_REQUEST;
            let message = "'choice' is once, session, always or deny.";
            return Err(answer::error(status, message, "invalid_request_error", Some("invalid_approval_choice")));
        }
    };
    let pending = matches!(run.state().approval, Some((_, None)));
    if !pending {
        return Err(answer::conflict("The run waits for no approval.", "approval_not_pending"));
    }
    run.note("approval.responded", json!({"choice": choice, "resolved": 1}), |state| {
        if let Some((_, answer)) = &mut state.approval {
            *answer = Some(choice.to_owned());
        }
    });
    Ok(answer::ok(&json!({
        "object": "hermes.run.approval_response", "run_id": id, "choice": choice, "resolved": 1,
    })))
}

/// Answers `GET /v1/runs/{id}/events`.
pub(super) fn events(call: &Call, id: &str) -> Response<Answer> {
    let run = match own(call, id) {
        Ok(run) => run,
        Err(early) => return early,
    };
    let seen = call.head.headers.get("last-event-id").and_then(|seen| seen.to_str().ok()?.trim().parse::<u64>().ok());
    let (frames, out) = Frames::new(Gateway::keepalive(&call.gateway));
    let from = seen.map_or(0, |seen| seen.saturating_add(1));
    call.tasks.spawn(async move { drop(follow(&run, from, &frames).await) });
    answer::stream(out)
}

async fn follow(run: &Run, mut next: u64, frames: &Frames) -> Result<(), Gone> {
    frames.send(": open\n\n".to_owned()).await?;
    let mut changed = run.changed.subscribe();
    loop {
        changed.borrow_and_update();
        let (new, ended): (Vec<(u64, Value)>, bool) = {
            let state = run.state();
            let new = state.events.iter().filter(|(number, _)| *number >= next).cloned().collect();
            (new, state.ended)
        };
        for (number, event) in new {
            next = number + 1;
            frames.send(format!("id: {number}\ndata: {event}\n\n")).await?;
        }
        if ended {
            return frames.send(": stream closed\n\n".to_owned()).await;
        }
        let _ = frames.until(changed.changed()).await?;
    }
}
