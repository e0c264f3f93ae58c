//! What is known of a client before it says anything: where it is, and whether its side of the edge is encrypted.
//!
//! Invariant: nothing here comes from a client's request, so no client can claim it: it is its connection's own, or the word of
//! a trusted forwarder.

use std::net::IpAddr;

use http::HeaderValue;

/// A client, as its connection or a trusted forwarder shows it.
#[derive(Debug, Clone)]
pub struct Client {
    address: IpAddr,
    // Made once for a connection, if it is the client's own: its value in X-Forwarded-For.
    text: HeaderValue,
    secure: bool,
}

impl Client {
    /// A client at this address; `secure` when it speaks TLS.
    pub fn new(address: IpAddr, secure: bool) -> Self {
        // Digits, letters, dots and colons.
        let text = HeaderValue::try_from(address.to_string()).expect("an address is a header value");
        Client { address, text, secure }
    }

    /// Where it is.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Whether nobody on the way can read or change what it sends: only then a browser's cookie is its own.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Value of X-Forwarded-For.
    pub fn forwarded_for(&self) -> &HeaderValue {
        &self.text
    }

    /// Value of X-Forwarded-Proto.
    pub fn forwarded_proto(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }
}
