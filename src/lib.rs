//! botgate: one person, one bot.
//!
//! ```text
//!  browser, SDK, web app                             Hermes gateway (one process, many profiles)
//!    session cookie │ bearer                            /p/bot-alice/v1   key A
//!           ▼       ▼                                   /p/bot-bob/v1     key B
//!      ┌──────────────────┐      /p/bot-alice/v1 + key A     ▲
//!      │       edge       │──────────────────────────────────┘
//!      └──────────────────┘
//!        store, audit log, /metrics
//! ```
//!
//! The rooms, in the order in which they may import one another (each only those above it; a test enforces it):
//!
//! - [`names`]: parse-only newtypes; the only mapping from a login to a profile
//! - [`secret`]: keys and tokens that redact and wipe themselves
//! - [`config`]: the file becomes a validated configuration, once
//! - [`tasks`]: the only place that spawns; cancellation and deadlines
//! - [`directory`]: the in-memory snapshot login → bot
//! - [`telemetry`]: metrics, audit log, tracing
//! - [`gateway`]: per-gateway permits and fair queue, connections, runs, proof
//! - [`identity`]: credentials and sessions
//! - [`proxy`]: the pipeline: authenticate → authorize → rewrite → forward
//! - [`listener`]: accept, TLS, connection bounds, deadlines of HTTP/1.1 and HTTP/2
//! - [`store`]: people, bots, sessions and open runs on disk; keys sealed
//! - [`keeper`]: profile files beside the gateway
//! - [`lifecycle`]: what happens to people and bots, in crash-safe steps; doctor and contract checks
//! - [`admin`]: the operator's API on a Unix socket; metrics, health and readiness
//! - [`cli`]: the commands

pub mod admin;
pub mod cli;
pub mod config;
pub mod directory;
pub mod gateway;
pub mod identity;
pub mod keeper;
pub mod lifecycle;
pub mod listener;
pub mod names;
pub mod proxy;
pub mod secret;
pub mod store;
pub mod tasks;
pub mod telemetry;
