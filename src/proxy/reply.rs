//! A response as the pipeline hands it to an engine, whichever writes it: status, fields and body.
//!
//! Invariants: of a gateway's fields only those on the list pass; framing and connection are the engine's business, and no field
//! speaks of them. The exchange ends with the body.

use std::borrow::Cow;

use http::header::CONNECTION;
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::body::EdgeBody;
use super::exchange::Exchange;
use super::headers::response_passes;
use crate::gateway::answer::Answer;

/// A response to a client.
#[derive(Debug)]
pub struct Reply {
    status: StatusCode,
    fields: Fields,
    request_id: Option<HeaderValue>,
    closes: bool,
    body: EdgeBody,
}

/// Names in lower case and values of the edge's own fields.
pub type OwnFields = Vec<(&'static str, Cow<'static, str>)>;

#[derive(Debug)]
enum Fields {
    Own(OwnFields),
    /// Those of the gateway's that pass; `once`: what was asked must not be asked again.
    Passed {
        answer: Box<Answer>,
        once: bool,
    },
}

impl Reply {
    /// A response of the edge's own.
    pub fn own(status: StatusCode, fields: OwnFields, body: EdgeBody) -> Self {
        Reply { status, fields: Fields::Own(fields), request_id: None, closes: false, body }
    }

    /// The gateway's answer. `once`: it answers what must not be asked again.
    pub(super) fn passed(answer: Box<Answer>, once: bool, request_id: HeaderValue, body: EdgeBody) -> Self {
        let (status, request_id) = (answer.status(), Some(request_id));
        Reply { status, fields: Fields::Passed { answer, once }, request_id, closes: false, body }
    }

    /// The same as the last response of its connection.
    pub(super) fn closing(self) -> Self {
        Reply { closes: true, ..self }
    }

    /// The same, with the exchange that its body ends.
    pub(super) fn ending(self, exchange: Box<Exchange>) -> Self {
        let request_id = Some(exchange.request_id().clone());
        Reply { body: self.body.ending(exchange), request_id, ..self }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether no further request is answered on its connection.
    pub fn closes(&self) -> bool {
        self.closes
    }

    /// The body.
    pub fn body(&self) -> &EdgeBody {
        &self.body
    }

    /// The body, once the head is written.
    pub fn into_body(self) -> EdgeBody {
        self.body
    }

    /// Gives every field to `each`, as name and value.
    pub fn fields(&self, mut each: impl FnMut(&[u8], &[u8])) {
        match &self.fields {
            Fields::Own(fields) => fields.iter().for_each(|(name, value)| each(name.as_bytes(), value.as_bytes())),
            Fields::Passed { answer, once } => {
                for (name, value) in answer.lines() {
                    if response_passes(name, false) {
                        each(name, value.bytes());
                    }
                }
                if *once {
                    each(b"x-should-retry", b"false");
                }
                each(b"x-content-type-options", b"nosniff");
            }
        }
        if let Some(request_id) = &self.request_id {
            each(b"x-request-id", request_id.as_bytes());
        }
    }

    /// The same in the `http` crate's types.
    pub fn into_response(self) -> Response<EdgeBody> {
        let mut headers = http::HeaderMap::with_capacity(8);
        self.fields(|name, value| {
            // The parser and these accept the same; a line on which they should ever differ stays here.
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                headers.append(name, value);
            }
        });
        if self.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let mut response = Response::new(self.body);
        (*response.status_mut(), *response.headers_mut()) = (self.status, headers);
        response
    }
}
