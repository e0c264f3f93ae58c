//! The same job as botgate's, on Pingora: a peer of the load benchmark.
//!
//! `pingora-peer LISTEN UPSTREAM BOTS THREADS`, where BOTS has one `token TAB profile TAB key` a line. A known token's request
//! goes to its own profile's path with that profile's key; everything else is one 401. No TLS, no log, no metrics.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::uri::{PathAndQuery, Uri};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::prelude::{HttpPeer, http_proxy_service};
use pingora::proxy::{ProxyHttp, Session};
use pingora::server::Server;
use pingora::server::configuration::{Opt, ServerConf};

const REFUSAL: &[u8] = br#"{"error":{"message":"No valid credential for this bot was given.","type":"authentication_error","param":null,"code":"unauthorized"}}"#;
/// What a client says of itself and the gateway must not hear.
const STRIPPED: [&str; 10] = [
    "cookie",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
];

struct Bot {
    profile: String,
    authorization: HeaderValue,
}

struct Gate {
    upstream: SocketAddr,
    bots: HashMap<Vec<u8>, Bot>,
    refusal: ResponseHeader,
}

/// Where an admitted request goes.
struct Grant {
    target: Uri,
    authorization: HeaderValue,
}

impl Gate {
    fn new(upstream: SocketAddr, lines: &str) -> Result<Self, Box<dyn Error>> {
        let mut bots = HashMap::new();
        for line in lines.lines() {
            let mut fields = line.split('\t');
            let (Some(token), Some(profile), Some(key)) = (fields.next(), fields.next(), fields.next()) else {
                return Err("a line is not: token, tab, profile, tab, key".into());
            };
            let mut authorization = HeaderValue::from_str(&format!("Bearer {key}"))?;
            authorization.set_sensitive(true);
            bots.insert(format!("Bearer {token}").into_bytes(), Bot { profile: profile.to_owned(), authorization });
        }
        let mut refusal = ResponseHeader::build(401, Some(4))?;
        refusal.insert_header(CONTENT_TYPE, "application/json")?;
        refusal.insert_header(CACHE_CONTROL, "no-store")?;
        refusal.insert_header(WWW_AUTHENTICATE, "Bearer")?;
        refusal.set_content_length(REFUSAL.len())?;
        Ok(Gate { upstream, bots, refusal })
    }

    fn grant(&self, head: &RequestHeader) -> Option<Grant> {
        let mut credentials = head.headers.get_all(AUTHORIZATION).iter();
        let bot = self.bots.get(credentials.next()?.as_bytes())?;
        if credentials.next().is_some() {
            return None;
        }
        let asked = head.uri.path_and_query().map_or("", PathAndQuery::as_str);
        let tail = match asked.strip_prefix("/p/") {
            Some(rest) => rest.strip_prefix(&bot.profile)?,
            None => asked,
        };
        if !tail.starts_with("/v1/") {
            return None;
        }
        let target = Uri::try_from(format!("/p/{}{tail}", bot.profile)).ok()?;
        Some(Grant { target, authorization: bot.authorization.clone() })
    }
}

#[async_trait]
impl ProxyHttp for Gate {
    type CTX = Option<Grant>;

    fn new_ctx(&self) -> Self::CTX {
        None
    }

    async fn request_filter(&self, session: &mut Session, grant: &mut Self::CTX) -> pingora::Result<bool> {
        *grant = self.grant(session.req_header());
        if grant.is_some() {
            return Ok(false);
        }
        // Not respond_error: that closes the connection.
        session.write_response_header(Box::new(self.refusal.clone()), false).await?;
        session.write_response_body(Some(Bytes::from_static(REFUSAL)), true).await?;
        Ok(true)
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut Self::CTX) -> pingora::Result<Box<HttpPeer>> {
        let mut peer = HttpPeer::new(self.upstream, false, String::new());
        peer.options.connection_timeout = Some(Duration::from_secs(2));
        peer.options.read_timeout = Some(Duration::from_secs(900));
        Ok(Box::new(peer))
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        upstream: &mut RequestHeader,
        grant: &mut Self::CTX,
    ) -> pingora::Result<()> {
        let Some(grant) = grant.take() else { return Ok(()) };
        for name in STRIPPED {
            upstream.remove_header(name);
        }
        upstream.set_uri(grant.target);
        upstream.insert_header(AUTHORIZATION, grant.authorization)?;
        if let Some(peer) = session.client_addr().and_then(|address| address.as_inet()) {
            upstream.insert_header("X-Forwarded-For", peer.ip().to_string())?;
        }
        Ok(())
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, upstream, bots, threads] = arguments.as_slice() else {
        return Err("wanted: LISTEN UPSTREAM BOTS THREADS".into());
    };
    let gate = Gate::new(upstream.parse()?, &std::fs::read_to_string(bots)?)?;
    let conf = ServerConf {
        threads: threads.parse()?,
        // Shared by all threads, unlike nginx's.
        upstream_keepalive_pool_size: 1024,
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(1),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None::<Opt>, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, gate);
    service.add_tcp(listen);
    server.add_service(service);
    server.run_forever()
}

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pingora-peer: {error}");
            ExitCode::FAILURE
        }
    }
}
