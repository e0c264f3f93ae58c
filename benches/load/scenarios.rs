//! What is measured: the scenarios, and the targets of each.

use clap::ValueEnum;

use crate::people::Ask;

/// One kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// 64 kept-alive connections, GET /v1/models.
    Http1Get,
    /// 64 kept-alive connections, plain chat turns.
    Http1Turn,
    /// 64 kept-alive connections, tokens that are nobody's.
    Refusals,
    /// 1,000 streams at once.
    Sse,
    /// 4,000 GET a second, whatever the answers take.
    OpenGet,
    /// 4,000 plain chat turns a second.
    OpenTurn,
    /// 64 kept-alive connections over TLS 1.3, GET /v1/models.
    TlsGet,
    /// 8 connections of HTTP/2 over TLS with 32 streams each, GET /v1/models.
    Http2Get,
    /// A full handshake of TLS 1.3 and one GET on each connection.
    Handshakes,
    /// 10,000 idle connections.
    Idle,
    /// botgate with 1,000,000 sessions and with 1,000.
    Sessions,
    /// botgate while 10,000 sessions a second are made, and without.
    Creations,
}

/// How a scenario drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drive {
    /// wrk's closed loop; `refused`: with tokens that are nobody's.
    Closed {
        ask: Ask,
        refused: bool,
    },
    Open(Ask),
    /// h2load's closed loop.
    Multiplexed,
    /// A connection for each request.
    Handshakes,
    Streams,
    Idle,
    /// botgate with many sessions, beside itself with few.
    Sessions,
    /// botgate while sessions are made, beside itself while none are.
    Creations,
}

/// The most that a ratio may be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Targets {
    pub to_nginx: Option<f64>,
    pub to_haproxy: Option<f64>,
}

/// Requests a second of an open loop.
pub const OPEN_PER_SECOND: u32 = 4_000;
/// Sessions made a second beside an open loop.
pub const CREATIONS_PER_SECOND: u32 = 10_000;
/// Streams at once.
pub const STREAMS: usize = 1_000;
/// The most that an idle connection may take, in KiB.
pub const IDLE_KIB: f64 = 24.0;
/// The most that botgate may add to the median latency of an open loop, in microseconds.
pub const ADDED_P50_US: f64 = 200.0;
/// The most that a request may cost with a million sessions, as a ratio to that with a thousand.
pub const SESSIONS_RATIO: f64 = 1.15;
/// The most that the median latency may grow while sessions are made, as a ratio.
pub const CREATIONS_RATIO: f64 = 1.20;

impl Scenario {
    /// How it drives.
    pub fn drive(self) -> Drive {
        match self {
            Scenario::Http1Get | Scenario::TlsGet => Drive::Closed { ask: Ask::Models, refused: false },
            Scenario::Http1Turn => Drive::Closed { ask: Ask::Turn, refused: false },
            Scenario::Refusals => Drive::Closed { ask: Ask::Models, refused: true },
            Scenario::Sse => Drive::Streams,
            Scenario::OpenGet => Drive::Open(Ask::Models),
            Scenario::OpenTurn => Drive::Open(Ask::Turn),
            Scenario::Http2Get => Drive::Multiplexed,
            Scenario::Handshakes => Drive::Handshakes,
            Scenario::Idle => Drive::Idle,
            Scenario::Sessions => Drive::Sessions,
            Scenario::Creations => Drive::Creations,
        }
    }

    /// Its title in tables.
    pub fn title(self) -> &'static str {
        match self {
            Scenario::Http1Get => "64 connections, GET",
            Scenario::Http1Turn => "64 connections, chat turns",
            Scenario::Refusals => "64 connections, refused (401)",
            Scenario::Sse => "1,000 streams of 10 events/s",
            Scenario::OpenGet => "4,000 GET/s",
            Scenario::OpenTurn => "4,000 chat turns/s",
            Scenario::TlsGet => "TLS: 64 connections, GET",
            Scenario::Http2Get => "HTTP/2 over TLS: 8 connections × 32 streams, GET",
            Scenario::Handshakes => "TLS: full handshake and GET",
            Scenario::Idle => "10,000 idle connections",
            Scenario::Sessions => "1,000,000 sessions instead of 1,000",
            Scenario::Creations => "10,000 sessions made a second beside 4,000 GET/s",
        }
    }

    /// Whether clients speak TLS.
    pub fn is_encrypted(self) -> bool {
        matches!(self, Scenario::TlsGet | Scenario::Http2Get | Scenario::Handshakes)
    }

    /// What a unit of it is.
    pub fn unit(self) -> &'static str {
        match self {
            Scenario::Sse => "event",
            Scenario::Handshakes => "connection",
            _ => "request",
        }
    }

    /// The most that the ratios of CPU time may be.
    pub fn targets(self) -> Targets {
        let of = |nginx, haproxy| Targets { to_nginx: Some(nginx), to_haproxy: Some(haproxy) };
        match self {
            Scenario::Http1Get => of(1.10, 1.05),
            Scenario::Refusals => of(1.05, 1.00),
            Scenario::Sse => of(1.10, 1.20),
            Scenario::OpenGet => of(0.90, 0.90),
            Scenario::TlsGet => of(0.80, 0.80),
            Scenario::Http2Get => Targets { to_nginx: None, to_haproxy: Some(0.90) },
            Scenario::Handshakes => Targets { to_nginx: Some(0.60), to_haproxy: None },
            Scenario::Http1Turn | Scenario::OpenTurn => Targets { to_nginx: Some(1.25), to_haproxy: None },
            Scenario::Idle | Scenario::Sessions | Scenario::Creations => Targets::default(),
        }
    }
}
