//! Routes: method and path below a profile's prefix, and who answers them.

use http::{Method, Response, StatusCode};
use serde_json::json;

use super::answer::{self, Answer};
use super::gate::Call;
use super::{chat, jobs, responses, runs, sessions};

/// What a request asks for.
#[derive(Debug)]
pub(super) enum Route {
    Health,
    HealthDetailed,
    Models,
    ModelOptions,
    Capabilities,
    Skills,
    Toolsets,
    Chat,
    Respond,
    Response(String),
    DeleteResponse(String),
    StartRun,
    Run(String),
    RunEvents(String),
    StopRun(String),
    SteerRun(String),
    ApproveRun(String),
    Sessions(Vec<String>),
    Jobs(Vec<String>),
}

impl Route {
    /// `None`: not routed, whatever the method.
    pub(super) fn find(method: &Method, path: &str) -> Option<Self> {
        let method = method.as_str();
        match (method, path) {
            ("GET", "/v1/models") => return Some(Route::Models),
            ("POST", "/v1/chat/completions") => return Some(Route::Chat),
            ("GET", "/health" | "/v1/health") => return Some(Route::Health),
            _ => {}
        }
        let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        if parts.iter().any(|part| part.is_empty()) {
            return None;
        }
        let owned = || parts[2..].iter().map(|part| (*part).to_owned()).collect();
        Some(match (method, parts.as_slice()) {
            ("GET", ["health", "detailed"]) => Route::HealthDetailed,
            ("GET", ["api", "model", "options"]) => Route::ModelOptions,
            ("GET", ["v1", "capabilities"]) => Route::Capabilities,
            ("GET", ["v1", "skills"]) => Route::Skills,
            ("GET", ["v1", "toolsets"]) => Route::Toolsets,
            ("POST", ["v1", "responses"]) => Route::Respond,
            ("GET", ["v1", "responses", id]) => Route::Response((*id).to_owned()),
            ("DELETE", ["v1", "responses", id]) => Route::DeleteResponse((*id).to_owned()),
            ("POST", ["v1", "runs"]) => Route::StartRun,
            ("GET", ["v1", "runs", id]) => Route::Run((*id).to_owned()),
            ("GET", ["v1", "runs", id, "events"]) => Route::RunEvents((*id).to_owned()),
            ("POST", ["v1", "runs", id, "stop"]) => Route::StopRun((*id).to_owned()),
            ("POST", ["v1", "runs", id, "steer"]) => Route::SteerRun((*id).to_owned()),
            ("POST", ["v1", "runs", id, "approval"]) => Route::ApproveRun((*id).to_owned()),
            ("GET" | "POST", ["api", "sessions"])
            | ("GET" | "PATCH" | "DELETE", ["api", "sessions", _])
            | ("GET", ["api", "sessions", _, "messages"])
            | ("POST", ["api", "sessions", _, "fork" | "chat" | "model"])
            | ("POST", ["api", "sessions", _, "chat", "stream"]) => Route::Sessions(owned()),
            ("GET" | "POST", ["api", "jobs"])
            | ("GET" | "PATCH" | "DELETE", ["api", "jobs", _])
            | ("POST", ["api", "jobs", _, "pause" | "resume" | "run"]) => Route::Jobs(owned()),
            _ => return None,
        })
    }

    /// Answers an admitted call.
    pub(super) async fn answer(self, call: Call) -> Response<Answer> {
        match self {
            Route::Models => answer::json_text(StatusCode::OK, call.resident.models.clone()),
            Route::Health | Route::HealthDetailed => answer::ok(&json!({
                "status": "ok", "platform": "botgate-stand-in", "version": "0.22.0",
                "active_agents": call.gateway.turns().running(),
            })),
            Route::ModelOptions => answer::ok(&json!({"providers": [{"id": "stand-in", "models": ["scripted"]}]})),
            Route::Capabilities => answer::ok(&capabilities()),
            Route::Skills | Route::Toolsets => answer::ok(&json!({"object": "list", "data": []})),
            Route::Chat => settled(chat::completions(call).await),
            Route::Respond => settled(responses::create(call).await),
            Route::Response(id) => responses::read(&call, &id),
            Route::DeleteResponse(id) => responses::delete(&call, &id),
            Route::StartRun => settled(runs::start(call).await),
            Route::Run(id) => runs::status(&call, &id),
            Route::RunEvents(id) => runs::events(&call, &id),
            Route::StopRun(id) => runs::stop(&call, &id),
            Route::SteerRun(id) => settled(runs::steer(call, &id).await),
            Route::ApproveRun(id) => settled(runs::approve(call, &id).await),
            Route::Sessions(path) => settled(sessions::answer(call, &path).await),
            Route::Jobs(path) => settled(jobs::answer(call, &path).await),
        }
    }
}

/// An answer that was reached early is an answer all the same.
fn settled(result: Result<Response<Answer>, Response<Answer>>) -> Response<Answer> {
    result.unwrap_or_else(|early| early)
}

/// A client of the real one looks for this platform and for unprefixed paths.
fn capabilities() -> serde_json::Value {
    json!({
        "object": "hermes.api_server.capabilities",
        "platform": "hermes-agent",
        "model": "hermes-agent",
        "auth": {"type": "bearer", "required": true},
        "features": {
            "chat_completions": true, "chat_completions_streaming": true, "responses_api": true,
            "responses_streaming": true, "run_submission": true, "cors": false,
        },
        "endpoints": {
            "models": {"method": "GET", "path": "/v1/models"},
            "chat_completions": {"method": "POST", "path": "/v1/chat/completions"},
            "responses": {"method": "POST", "path": "/v1/responses"},
            "runs": {"method": "POST", "path": "/v1/runs"},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_paths_are_routed() {
        assert!(matches!(Route::find(&Method::GET, "/v1/models"), Some(Route::Models)));
        for bad in
            ["/v1/models/", "//v1/models", "/v1/./models", "/v1%2fmodels", "/v1/models;x", "/V1/models", "", "v1"]
        {
            assert!(Route::find(&Method::GET, bad).is_none(), "{bad}");
        }
        assert!(Route::find(&Method::HEAD, "/v1/models").is_none());
        assert!(Route::find(&Method::PUT, "/v1/chat/completions").is_none());
    }
}
