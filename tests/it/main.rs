//! One binary for every test that needs more than one room: a file per behaviour, the fixtures in `support`.
#![allow(clippy::disallowed_methods, reason = "tests start threads and children and read the environment themselves")]

mod activation;
mod admin;
mod admin_socket;
mod attack;
mod audit;
mod backup;
mod bodies;
mod commands;
mod contract;
mod deploy;
mod descriptors;
mod disorder;
mod drain;
mod fairness;
mod forwarders;
mod hostile;
mod http2;
mod key_rotation;
mod map;
mod order;
mod pace;
mod proof;
mod quickstart;
mod races;
mod rates;
mod readme;
mod real;
mod refusals;
mod reload;
mod secrets;
mod streams;
mod support;
mod tls;
mod turns;
