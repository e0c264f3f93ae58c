//! Values with a syntax of their own: durations, authorities, gateway addresses, header names.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// Reads `500ms`, `30s`, `15m`, `12h` or `90d`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..unit_at].parse().ok()?;
    let millis = match &text[unit_at..] {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(millis).map(Duration::from_millis)
}

/// Writes a duration in the largest unit that shows it exactly.
pub fn duration_text(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if millis >= size && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}

/// An authority that a request may name: host and port, lower case, port always present.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host(String);

impl Host {
    /// Parses `host`, `host:port` or `[v6]:port`; a missing port becomes `default_port`.
    pub fn parse(text: &str, default_port: u16) -> Option<Self> {
        let authority: http::uri::Authority = text.parse().ok()?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return None;
        }
        let port = match authority.as_str().strip_prefix(authority.host())? {
            "" => default_port,
            rest => rest.strip_prefix(':').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()?,
        };
        Some(Host(format!("{}:{port}", authority.host().to_ascii_lowercase())))
    }

    /// `host:port`, lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where a gateway listens: `http://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayUrl {
    authority: String,
    host: String,
    port: u16,
}

impl GatewayUrl {
    /// Parses an absolute `http` URL without path, query or user.
    ///
    /// # Errors
    /// What is allowed, as text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let uri: http::Uri = text.parse().map_err(|_| "an absolute URL such as http://127.0.0.1:8642")?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err("http for now: this version speaks no TLS to a gateway"),
            _ => return Err("an absolute URL such as http://127.0.0.1:8642"),
        }
        let authority = uri.authority().ok_or("an absolute URL such as http://127.0.0.1:8642")?;
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || authority.as_str().contains('@') {
            return Err("scheme, host and port only");
        }
        let port = authority.port_u16().unwrap_or(80);
        Ok(GatewayUrl {
            authority: format!("{}:{port}", authority.host()),
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port,
        })
    }

    /// `host:port`, as it stands in the Host header.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Host name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether traffic to it stays on this machine.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

impl fmt::Display for GatewayUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

/// The name of a request header that an operator lets through, lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderText(String);

impl HeaderText {
    /// Parses a header name; credentials, routing, hop-by-hop and forwarding headers are refused.
    ///
    /// # Errors
    /// What is allowed, as text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let name: http::HeaderName = text.parse().map_err(|_| "a header name")?;
        // Software behind the gateway may read an underscore as a hyphen.
        let read_as = name.as_str().replace('_', "-");
        let never = matches!(
            read_as.as_str(),
            "authorization"
                | "cookie"
                | "host"
                | "origin"
                | "connection"
                | "close"
                | "content-length"
                | "transfer-encoding"
                | "te"
                | "trailer"
                | "upgrade"
                | "keep-alive"
                | "expect"
                | "forwarded"
                | "via"
                | "x-real-ip"
                | "x-client-ip"
                | "x-cluster-client-ip"
                | "true-client-ip"
                | "cf-connecting-ip"
                | "fastly-client-ip"
                | "x-request-id"
                | "x-api-key"
                | "set-cookie"
        );
        if never
            || ["proxy-", "x-forwarded", "x-original-", "x-botgate-", "sec-"]
                .iter()
                .any(|start| read_as.starts_with(start))
        {
            return Err("a header that carries no credential, routing, hop-by-hop or forwarding information");
        }
        Ok(HeaderText(name.as_str().to_owned()))
    }

    /// The name, lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_go_both_ways() {
        for text in ["500ms", "30s", "15m", "12h", "90d"] {
            assert_eq!(duration_text(parse_duration(text).unwrap()), text);
        }
        for bad in ["", "30", "s", "-1s", "1.5h", "1 s", "99999999999999999999d"] {
            assert!(parse_duration(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn hosts_are_compared_with_their_port() {
        assert_eq!(Host::parse("Example.ORG", 443).unwrap().as_str(), "example.org:443");
        assert_eq!(Host::parse("[::1]:8080", 80).unwrap().as_str(), "[::1]:8080");
        for bad in ["", "a@b", "a b", "a:99999", "a:", "a/b"] {
            assert!(Host::parse(bad, 80).is_none(), "{bad}");
        }
    }

    #[test]
    fn gateway_urls_are_bare_origins() {
        assert_eq!(GatewayUrl::parse("http://127.0.0.1:8642/").unwrap().authority(), "127.0.0.1:8642");
        assert!(GatewayUrl::parse("http://[::1]:1").unwrap().is_loopback());
        for bad in ["127.0.0.1:8642", "ftp://x", "http://u@h:1", "http://h:1/x", "http://h:1/?q", "https://h:1"] {
            assert!(GatewayUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_credential_header_can_be_let_through() {
        for bad in [
            "Authorization",
            "cookie",
            "X-Forwarded-For",
            "x-botgate-login",
            "Proxy-Authorization",
            "te",
            "é",
            "X_Forwarded_For",
            "x-forwarded_proto",
            "X_Real_IP",
            "True-Client-Ip",
            "x_botgate_login",
            "proxy_authorization",
            "X-Original-Forwarded-For",
        ] {
            assert!(HeaderText::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(HeaderText::parse("X-Chat-Id").unwrap().as_str(), "x-chat-id");
    }
}
