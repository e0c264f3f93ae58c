//! The edge's own pages, answered before any credential is looked at: `/health`, and the doors that are not there.

use bytes::Bytes;
use http::StatusCode;

use super::body::EdgeBody;
use super::head::Screened;
use super::refusal::Refusal;
use super::reply::Reply;
use crate::telemetry::reason::Reason;

/// The answer to one of the edge's own paths; `None` when the path is not one.
pub(super) fn serve(screened: &Screened<'_>) -> Option<Result<Reply, Refusal>> {
    let target = screened.target();
    if target.profile().is_some() {
        return None;
    }
    match target.path() {
        "/health" if screened.head().method == "GET" => Some(Ok(health())),
        "/health" => Some(Err(Refusal::method("GET".to_owned()))),
        // Without an MCP server behind it every credential is the wrong one.
        "/mcp" => Some(Err(Refusal::of(Reason::McpCredential))),
        path if path == "/.botgate" || path.starts_with("/.botgate/") => Some(Err(Refusal::of(Reason::UnknownRoute))),
        _ => None,
    }
}

/// The edge is up. It says nothing about any gateway or person.
fn health() -> Reply {
    let fields =
        [("content-type", "application/json"), ("cache-control", "no-store"), ("x-content-type-options", "nosniff")];
    let fields = fields.into_iter().map(|(name, value)| (name, value.into())).collect();
    Reply::own(StatusCode::OK, fields, EdgeBody::whole(Bytes::from_static(br#"{"status":"ok"}"#)))
}
