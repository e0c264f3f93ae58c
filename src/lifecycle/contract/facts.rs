//! The facts as data: a request each, and what its answer must look like.

use http::StatusCode;

use super::request::Answer;

/// A profile name that no gateway serves.
pub(super) const ABSENT_PROFILE: &str = "bot-contract-absent";
/// One byte more than the largest body that the gateway takes.
pub(super) const OVERSIZED_BODY: u64 = 10_000_001;

/// One thing that the edge relies on.
#[derive(Debug)]
pub(super) struct Fact {
    /// Stable name, for reports.
    pub(super) name: &'static str,
    /// The fact as a sentence.
    pub(super) says: &'static str,
    pub(super) path: Path,
    pub(super) key: Key,
    pub(super) extra: Extra,
    /// Given the answer and the bot's own profile name; the error says what was seen.
    pub(super) holds: fn(&Answer, &str) -> Result<(), String>,
}

/// Where the request goes; the text follows the profile's prefix.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path {
    Bare(&'static str),
    Own(&'static str),
    Absent(&'static str),
}

/// What stands in Authorization.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key {
    None,
    Own,
    OwnLowerCaseScheme,
    Neighbour,
    Default,
    Unknown,
}

/// What else the request carries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extra {
    None,
    Origin,
    OversizedBody,
}

const fn fact(
    name: &'static str,
    says: &'static str,
    path: Path,
    key: Key,
    holds: fn(&Answer, &str) -> Result<(), String>,
) -> Fact {
    Fact { name, says, path, key, extra: Extra::None, holds }
}

/// Every fact that `check` tries, in the order of the reports.
pub(super) const FACTS: &[Fact] = &[
    fact(
        "own-key",
        "a bot's own key opens its path, which lists the profile as its one model",
        Path::Own("/v1/models"),
        Key::Own,
        lists_own_model,
    ),
    fact(
        "default-key-bare",
        "the default key opens the path without a profile",
        Path::Bare("/v1/models"),
        Key::Default,
        |a, _| a.status_is(StatusCode::OK),
    ),
    fact(
        "default-key-refused",
        "the default key does not open a bot's path",
        Path::Own("/v1/models"),
        Key::Default,
        refused,
    ),
    fact(
        "neighbour-key-refused",
        "another bot's key does not open a bot's path",
        Path::Own("/v1/models"),
        Key::Neighbour,
        refused,
    ),
    fact(
        "own-key-not-default",
        "a bot's key does not open the path without a profile",
        Path::Bare("/v1/models"),
        Key::Own,
        refused,
    ),
    fact("unknown-key-refused", "a key that nobody holds is refused", Path::Own("/v1/models"), Key::Unknown, refused),
    fact("no-key-refused", "a request without a key is refused", Path::Own("/v1/models"), Key::None, refused),
    fact(
        "refusal-code",
        "a refused key is told apart from other errors by its code",
        Path::Own("/v1/models"),
        Key::Unknown,
        |a, _| a.error_code_is("gateway_auth_failed"),
    ),
    fact(
        "scheme-case",
        "the scheme must read Bearer, exactly",
        Path::Own("/v1/models"),
        Key::OwnLowerCaseScheme,
        refused,
    ),
    fact(
        "absent-profile",
        "an unserved profile is 404 with a text as its error, whatever the key",
        Path::Absent("/v1/models"),
        Key::Own,
        |a, _| {
            a.status_is(StatusCode::NOT_FOUND)?;
            a.that(a.json["error"].is_string(), "error is not a text")
        },
    ),
    fact("health", "the bare health path needs no key", Path::Bare("/health"), Key::None, |a, _| {
        a.status_is(StatusCode::OK)
    }),
    fact(
        "prefixed-health",
        "a bot's health path needs no key, so the edge must not forward it",
        Path::Own("/health"),
        Key::None,
        |a, _| a.status_is(StatusCode::OK),
    ),
    fact(
        "absent-health",
        "the health path of an unserved profile is 404",
        Path::Absent("/health"),
        Key::None,
        |a, _| a.status_is(StatusCode::NOT_FOUND),
    ),
    fact(
        "capabilities",
        "a bot's capabilities are served under its path",
        Path::Own("/v1/capabilities"),
        Key::Own,
        |a, _| a.status_is(StatusCode::OK),
    ),
    fact(
        "absent-run",
        "an unknown run is 404 with code run_not_found",
        Path::Own("/v1/runs/run_contract_absent"),
        Key::Own,
        |a, _| {
            a.status_is(StatusCode::NOT_FOUND)?;
            a.error_code_is("run_not_found")
        },
    ),
    Fact {
        extra: Extra::Origin,
        ..fact(
            "origin",
            "a request with Origin is refused, so the edge must not forward it",
            Path::Own("/v1/models"),
            Key::Own,
            |a, _| a.status_is(StatusCode::FORBIDDEN),
        )
    },
    Fact {
        extra: Extra::OversizedBody,
        ..fact(
            "declared-size",
            "a body of more than 10,000,000 declared bytes is 413 before it is sent",
            Path::Own("/v1/chat/completions"),
            Key::Own,
            |a, _| {
                a.status_is(StatusCode::PAYLOAD_TOO_LARGE)?;
                a.error_code_is("body_too_large")
            },
        )
    },
];

fn refused(answer: &Answer, _own: &str) -> Result<(), String> {
    answer.status_is(StatusCode::UNAUTHORIZED)
}

fn lists_own_model(answer: &Answer, own: &str) -> Result<(), String> {
    answer.status_is(StatusCode::OK)?;
    answer.that(answer.has_length, "no Content-Length")?;
    let models = answer.json["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    answer.that(models.len() == 1 && models[0]["id"] == own, "the models are not the profile alone")
}
