//! placeholder
pub struct Audit;
