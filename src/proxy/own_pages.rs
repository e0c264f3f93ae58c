//! The edge's own pages, answered before any credential is looked at: `/health`, and the doors that are not there.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response};

use super::body::EdgeBody;
use super::head::Screened;
use super::refusal::Refusal;
use crate::telemetry::reason::Reason;

/// The answer to one of the edge's own paths; `None` when the path is not one.
pub(super) fn serve(screened: &Screened<'_>) -> Option<Result<Response<EdgeBody>, Refusal>> {
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
fn health() -> Response<EdgeBody> {
    let mut response = Response::new(EdgeBody::whole(Bytes::from_static(br#"{"status":"ok"}"#)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
