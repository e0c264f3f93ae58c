//! What doctor and the contract check tell.

use serde::{Deserialize, Serialize};

use crate::names::GatewayName;

/// One thing that doctor looked at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// How it is.
    pub state: Health,
    /// What was found, and what to do.
    pub message: String,
}

/// How a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// As it must be.
    Fine,
    /// Works, but see the message.
    Warning,
    /// Must be mended.
    Wrong,
}

/// What doctor found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Findings {
    /// In the order looked at.
    pub findings: Vec<Finding>,
}

/// What the contract check found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Contracts {
    /// One for each configured gateway.
    pub gateways: Vec<Contract>,
}

/// What the contract check found on one gateway.
#[derive(Debug, Serialize, Deserialize)]
pub struct Contract {
    /// Which.
    pub gateway: GatewayName,
    /// One for each fact that was tried.
    pub facts: Vec<Fact>,
    /// Why none was tried.
    pub untried: Option<String>,
}

/// One fact about a gateway.
#[derive(Debug, Serialize, Deserialize)]
pub struct Fact {
    /// Its stable name.
    pub name: String,
    /// What the edge relies on.
    pub fact: String,
    /// Whether it holds.
    pub state: FactState,
    /// How it is broken, or why it is untried.
    pub how: Option<String>,
}

/// Whether a fact holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FactState {
    /// As the edge needs it.
    Holds,
    /// The gateway answered otherwise.
    Broken,
    /// Nothing can be said.
    Untried,
}
