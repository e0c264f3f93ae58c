//! Command line.

pub mod stand_in;
