//! Why a request was refused: for metrics, log and audit only. The client never learns more than the status.

macro_rules! reasons {
    ($( $(#[$doc:meta])* $name:ident = $text:literal, )*) => {
        /// Why a request was refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason { $( $(#[$doc])* $name, )* }

        impl Reason {
            /// Every reason: the label's whole set.
            pub const ALL: &[Reason] = &[$( Reason::$name, )*];

            /// The label's value, and the word in log and audit.
            pub fn as_str(self) -> &'static str {
                match self { $( Reason::$name => $text, )* }
            }
        }
    };
}

reasons! {
    /// Framing, Host syntax or a head that is not HTTP as it should be: 400.
    BadRequest = "bad_request",
    /// A trusted forwarder's word about its client that cannot be understood: 400.
    BadForwarding = "bad_forwarding",
    /// HTTP/1.0, whose clients cannot tell a cut stream from a finished one: 505.
    HttpVersion = "http_version",
    /// A target that is not canonical: 400.
    BadTarget = "bad_target",
    /// Host or authority is not one of ours: 421.
    MisdirectedHost = "misdirected_host",
    /// A target longer than the gateway takes: 414.
    TargetTooLong = "target_too_long",
    /// Head or header line too large: 431.
    HeadTooLarge = "head_too_large",
    /// CONNECT or TRACE: 405.
    ForbiddenMethod = "forbidden_method",
    /// The address asks more often than it may: 429.
    AddressRate = "address_rate",
    /// The store has been out of reach longer than the limit: 503.
    StoreStale = "store_stale",
    /// No credential: the one 401.
    CredentialMissing = "credential_missing",
    /// A credential that is not one: the one 401.
    CredentialMalformed = "credential_malformed",
    /// Two credentials: the one 401.
    CredentialAmbiguous = "credential_ambiguous",
    /// Well formed and unknown, or revoked earlier: the one 401.
    CredentialUnknown = "credential_unknown",
    /// A bot token outside `/mcp`, or another kind on it: the one 401.
    CredentialKind = "credential_kind",
    /// A cookie that another site's page may have sent: the one 401.
    CrossOrigin = "cross_origin",
    /// Past its end: the one 401.
    SessionExpired = "session_expired",
    /// Revoked while the request was under way: the one 401, or a cut.
    SessionRevoked = "session_revoked",
    /// The person is disabled or being deleted: the one 401.
    PersonDisabled = "person_disabled",
    /// The person has no bot: the one 401.
    NoBot = "no_bot",
    /// A `/p/<segment>/` that is not the session's own: the one 401.
    NotOwnBot = "not_own_bot",
    /// The gateway refuses this bot's own key: the one 401.
    BotRefused = "bot_refused",
    /// `/mcp` without a bot token: the one 401.
    McpCredential = "mcp_credential",
    /// No such route: 404.
    UnknownRoute = "unknown_route",
    /// A route, but not with this method: 405.
    UnknownMethod = "unknown_method",
    /// A request body with a content coding: 415.
    ContentEncoding = "content_encoding",
    /// Body over the limit: 413.
    BodyTooLarge = "body_too_large",
    /// Body slower than the least rate: 408.
    BodyTooSlow = "body_too_slow",
    /// An expectation other than 100-continue: 417.
    Expectation = "expectation",
    /// The person asks more often than they may: 429.
    PersonRate = "person_rate",
    /// The person's or everybody's queue is full: 429.
    QueueFull = "queue_full",
    /// No permit within the longest wait: 429.
    QueueTimeout = "queue_timeout",
    /// Shutting down: 503.
    Draining = "draining",
    /// The gateway has not been proved yet: 503.
    GatewayStarting = "gateway_starting",
    /// The gateway took a key that it must refuse: 503.
    ProofFailed = "proof_failed",
    /// No room for the turn's audit records: 503.
    AuditFull = "audit_full",
    /// The turn's `open` record could not be written: 503.
    AuditFailed = "audit_failed",
    /// The gateway cannot be connected to: 503.
    GatewayUnreachable = "gateway_unreachable",
    /// The gateway broke off after bytes had left: 502.
    GatewayBroke = "gateway_broke",
    /// The gateway's answer is one that must not pass: 502.
    GatewayHostile = "gateway_hostile",
    /// No response head in time: 504.
    GatewayTimeout = "gateway_timeout",
    /// Too many connections: closed without an answer.
    ConnectionLimit = "connection_limit",
    /// Too many TLS handshakes at once: closed without an answer.
    HandshakeLimit = "handshake_limit",
    /// More HTTP/2 control frames than any client needs: the connection is cut.
    FrameFlood = "frame_flood",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unique() {
        let mut labels: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Reason::ALL.len());
    }
}
