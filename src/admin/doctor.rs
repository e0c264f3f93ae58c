//! Calls that look and change nothing.

use axum::Json;
use axum::extract::State;

use super::answer::{Answer, Body};
use super::wire::{Contract, Contracts, Empty, Fact, FactState, Finding, Findings, Health};
use crate::lifecycle::contract::{Outcome, Verdict};
use crate::lifecycle::{self, Control};

pub(super) async fn doctor(State(control): State<Control>, Body(Empty {}): Body<Empty>) -> Answer<Findings> {
    let findings = control.doctor().await.into_iter().map(|finding| Finding {
        check: finding.check,
        state: match finding.health {
            lifecycle::Health::Fine => Health::Fine,
            lifecycle::Health::Warning => Health::Warning,
            lifecycle::Health::Wrong => Health::Wrong,
        },
        message: finding.message,
    });
    Ok(Json(Findings { findings: findings.collect() }))
}

pub(super) async fn contract(State(control): State<Control>, Body(Empty {}): Body<Empty>) -> Answer<Contracts> {
    let gateways = control.gateway_contract().await.into_iter().map(|report| {
        let (facts, untried) = match report.outcomes {
            Ok(outcomes) => (outcomes.into_iter().map(fact).collect(), None),
            Err(why) => (Vec::new(), Some(why)),
        };
        Contract { gateway: report.gateway, facts, untried }
    });
    Ok(Json(Contracts { gateways: gateways.collect() }))
}

fn fact(outcome: Outcome) -> Fact {
    let (state, how) = match outcome.verdict {
        Verdict::Holds => (FactState::Holds, None),
        Verdict::Broken(how) => (FactState::Broken, Some(how)),
        Verdict::Untried(why) => (FactState::Untried, Some(why)),
    };
    Fact { name: outcome.name.to_owned(), fact: outcome.fact.to_owned(), state, how }
}
