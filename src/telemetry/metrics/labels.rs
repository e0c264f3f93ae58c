//! Label values that are not configured names: closed sets.

macro_rules! labels {
    ($( $(#[$doc:meta])* $type:ident { $( $(#[$item:meta])* $name:ident = $text:literal, )* } )*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $type { $( $(#[$item])* $name, )* }

        impl $type {
            /// Every value, in the order of declaration.
            pub const ALL: &[$type] = &[$( $type::$name, )*];

            /// The label's value.
            pub fn as_str(self) -> &'static str {
                match self { $( $type::$name => $text, )* }
            }
        }
    )* };
}

labels! {
    /// What went wrong between the edge and a gateway.
    UpstreamErrorKind {
        /// The connection was refused or failed.
        Connect = "connect",
        /// No connection in time.
        ConnectTimeout = "connect_timeout",
        /// The request could not be sent.
        Send = "send",
        /// The answer's head was broken off or was not HTTP.
        Head = "head",
        /// The answer's body was broken off.
        Body = "body",
        /// No answer's head in time.
        HeadTimeout = "head_timeout",
        /// Silence inside a stream or tunnel.
        IdleTimeout = "idle_timeout",
        /// An answer that must not pass.
        Hostile = "hostile",
        /// The gateway refused the bot's own key.
        Unauthorized = "unauthorized",
        /// The gateway does not know the bot's profile.
        UnknownProfile = "unknown_profile",
    }

    /// What a connection is doing.
    ConnectionState {
        /// A request or an answer is under way.
        Active = "active",
        /// Kept alive between two requests.
        Idle = "idle",
    }

    /// How a TLS handshake ended.
    HandshakeOutcome {
        /// With a new session.
        Full = "full",
        /// With a session that the client had from an earlier connection.
        Resumed = "resumed",
        /// The client left, or the two found nothing in common.
        Failed = "failed",
        /// Not in time.
        TimedOut = "timed_out",
    }

    /// How far a bot's key is proved.
    BotState {
        /// Not proved yet.
        Unproved = "unproved",
        /// Its key opens its path, and others do not.
        Proved = "proved",
        /// The gateway refuses its key or does not serve its profile.
        Refused = "refused",
    }

    /// What the last proof of a bot found.
    ProofResult {
        /// Its key opens its path, and no other key does.
        Proved = "proved",
        /// The login has no bot.
        NoBot = "no_bot",
        /// The gateway does not serve the profile.
        UnservedProfile = "unserved_profile",
        /// The profile has no key that the gateway would use.
        MissingOrWeakKey = "missing_or_weak_key",
        /// The gateway refuses the bot's key.
        WrongKey = "wrong_key",
        /// The key is another profile's, too.
        SharedKey = "shared_key",
        /// The key opens other paths than its own.
        PrefixIgnored = "prefix_ignored",
        /// The default profile's key opens the bot.
        DefaultKeyAccepted = "default_key_accepted",
        /// Another bot's key opens the bot.
        NeighbourKeyAccepted = "neighbour_key_accepted",
        /// The bot opens without a key of its own.
        NoKeyAccepted = "no_key_accepted",
        /// No answer.
        Unreachable = "unreachable",
        /// An answer that proves nothing.
        Unexpected = "unexpected",
    }

    /// How an MCP call ended.
    McpOutcome {
        /// Passed on and answered.
        Forwarded = "forwarded",
        /// Refused here.
        Refused = "refused",
        /// The MCP server failed or was out of reach.
        Failed = "failed",
    }

    /// What became of a changed configuration.
    ReloadOutcome {
        /// In force.
        Applied = "applied",
        /// Kept out: it has problems.
        Rejected = "rejected",
    }
}
