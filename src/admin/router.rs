//! The operator's calls, by path. Who may call is the socket's business.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::{get, post};

use super::answer::Refused;
use super::{bots, doctor, people, sessions};
use crate::lifecycle::Control;

/// Longest body of a call, in bytes: ten thousand logins of the greatest length.
const BODY_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Every call. The caller's [`crate::lifecycle::Caller`] must stand in the request's extensions.
pub fn router(control: Control) -> Router {
    Router::new()
        .route("/ping", get(|| async { "botgate" }))
        .route("/user/add", post(people::add))
        .route("/user/list", post(people::list))
        .route("/user/disable", post(people::disable))
        .route("/user/enable", post(people::enable))
        .route("/user/delete", post(people::delete))
        .route("/user/import", post(people::import).layer(DefaultBodyLimit::disable()))
        .route("/lockdown", post(people::lockdown))
        .route("/reconcile", post(people::reconcile))
        .route("/bot/adopt", post(bots::adopt))
        .route("/bot/list", post(bots::list))
        .route("/bot/prove", post(bots::prove))
        .route("/bot/token", post(bots::token))
        .route("/session/create", post(sessions::create))
        .route("/session/list", post(sessions::list))
        .route("/session/revoke", post(sessions::revoke))
        .route("/audit/read", post(people::audit_read))
        .route("/audit/upkeep", post(people::upkeep))
        .route("/doctor", post(doctor::doctor))
        .route("/doctor/contract", post(doctor::contract))
        .fallback(|| async { Refused::new(StatusCode::NOT_FOUND, "no_such_call", "no such call") })
        .method_not_allowed_fallback(|| async {
            Refused::new(StatusCode::METHOD_NOT_ALLOWED, "method", "not this way")
        })
        .layer(DefaultBodyLimit::max(BODY_MAX_BYTES))
        .with_state(control)
}
