//! What changes or judges a bot as a whole: so far, the check of a gateway against the contract that the edge needs.

pub mod contract;
