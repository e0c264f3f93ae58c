//! Jobs, in small: rows in memory. Nothing is ever scheduled.

use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{self, Answer, fresh_id, unix_seconds};
use super::gate::Call;

/// Answers `/api/jobs…`; `path` is what follows `jobs`.
pub(super) async fn answer(call: Call, path: &[String]) -> Result<Response<Answer>, Response<Answer>> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let method = call.head.method.clone();
    match (method, path.as_slice()) {
        (Method::GET, []) => Ok(answer::ok(&json!({"jobs": call.resident.shelf.jobs.all()}))),
        (_, []) => {
            let (call, request) = call.read_json().await?;
            for name in ["name", "schedule"] {
                if request[name].as_str().is_none_or(|text| text.trim().is_empty()) {
                    let value = json!({"error": format!("{name} is required")});
                    return Err(answer::json_value(StatusCode::BAD_REQUEST, &value));
                }
            }
            let id = fresh_id("job_");
            let job = json!({
                "id": id, "name": request["name"], "schedule": request["schedule"], "prompt": request["prompt"],
                "enabled": true, "created_at": unix_seconds(),
            });
            call.resident.shelf.jobs.put(&id, job.clone());
            Ok(answer::ok(&json!({"job": job})))
        }
        (Method::DELETE, [id]) => {
            find(&call, id)?;
            call.resident.shelf.jobs.remove(id);
            Ok(answer::ok(&json!({"ok": true})))
        }
        (Method::PATCH, [id]) => {
            let mut job = find(&call, id)?;
            let (call, request) = call.read_json().await?;
            for name in ["name", "schedule", "prompt"] {
                if let Some(text) = request[name].as_str() {
                    job[name] = json!(text);
                }
            }
            Ok(kept(&call.resident.shelf.jobs, id, job))
        }
        (_, [id, action]) => {
            let mut job = find(&call, id)?;
            if *action != "run" {
                job["enabled"] = json!(*action == "resume");
            }
            Ok(kept(&call.resident.shelf.jobs, id, job))
        }
        (_, [id, ..]) => Ok(answer::ok(&json!({"job": find(&call, id)?}))),
    }
}

fn kept(jobs: &super::residents::Store<Value>, id: &str, job: Value) -> Response<Answer> {
    jobs.put(id, job.clone());
    answer::ok(&json!({"job": job}))
}

fn find(call: &Call, id: &str) -> Result<Value, Response<Answer>> {
    let missing = || answer::json_value(StatusCode::NOT_FOUND, &json!({"error": "There is no such job."}));
    call.resident.shelf.jobs.find(id).ok_or_else(missing)
}
