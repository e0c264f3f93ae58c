//! One binary for every test that needs more than one room: a file per behaviour, the fixtures in `support`.
#![allow(clippy::disallowed_methods, reason = "tests start threads and children and read the environment themselves")]

mod contract;
mod map;
mod quickstart;
mod real;
mod support;
mod turns;
