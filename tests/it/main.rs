//! One binary for every test that needs more than one room: a file per behaviour, the fixtures in `support`.
#![allow(clippy::disallowed_methods, reason = "tests start threads and children and read the environment themselves")]

mod admin;
mod admin_socket;
mod attack;
mod audit;
mod bodies;
mod commands;
mod contract;
mod disorder;
mod fairness;
mod hostile;
mod map;
mod order;
mod proof;
mod quickstart;
mod races;
mod readme;
mod real;
mod refusals;
mod secrets;
mod streams;
mod support;
mod turns;
