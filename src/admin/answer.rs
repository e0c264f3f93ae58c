//! Answers: JSON out, one place that turns errors into them.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::wire::Failed;
use crate::lifecycle::ControlError;

/// An answer other than success.
#[derive(Debug)]
pub(super) struct Refused {
    status: StatusCode,
    failed: Failed,
}

/// What a handler answers.
pub(super) type Answer<T> = Result<Json<T>, Refused>;

impl Refused {
    pub(super) fn new(status: StatusCode, code: &str, message: impl ToString) -> Self {
        Refused { status, failed: Failed { code: code.to_owned(), message: message.to_string(), next: None } }
    }

    pub(super) fn bad_request(message: impl ToString) -> Self {
        Refused::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }
}

impl From<ControlError> for Refused {
    fn from(error: ControlError) -> Self {
        let status = match error.is_callers() {
            true => StatusCode::CONFLICT,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(source) = cause {
            message.push_str(": ");
            message.push_str(&source.to_string());
            cause = source.source();
        }
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::warn!(%message, "an operation failed");
        }
        Refused { status, failed: Failed { code: error.code().to_owned(), message, next: error.next() } }
    }
}

impl From<JsonRejection> for Refused {
    fn from(rejection: JsonRejection) -> Self {
        Refused::new(rejection.status(), "bad_request", rejection.body_text())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.status, Json(self.failed)).into_response()
    }
}

/// A JSON body; one that is not as it must be is answered like every other failure.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: serde::de::DeserializeOwned> axum::extract::FromRequest<S> for Body<T> {
    type Rejection = Refused;

    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Self, Refused> {
        let Json(value) = Json::<T>::from_request(request, state).await?;
        Ok(Body(value))
    }
}
