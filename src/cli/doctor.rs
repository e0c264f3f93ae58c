//! `doctor`: is everything as it must be, and if not, what to do.

use std::path::Path;

use super::client::with_admin;
use super::out::{Failure, Out};
use crate::admin::wire::{Empty, Finding, Findings, Health};
use crate::config::{self, Config};
use crate::store::{DataDirLock, StoreError};

pub(super) fn run(file: &Path, out: Out) -> Result<(), Failure> {
    let config = match config::load(file) {
        Ok(config) => config,
        Err(error) => return told(vec![finding("configuration", Health::Wrong, error.to_string())], out),
    };
    let mut findings = vec![finding("configuration", Health::Fine, file.display().to_string())];
    findings.extend(local(&config));
    if findings.iter().all(|found| found.state != Health::Wrong) {
        let asked = with_admin(&config, |admin| {
            let running = if admin.is_running() { "botgate serves" } else { "botgate does not serve at the moment" };
            let found: Findings = admin.call("/doctor", &Empty {})?;
            Ok((running, found.findings))
        });
        match asked {
            Ok((running, found)) => {
                findings.push(finding("process", Health::Fine, running.to_owned()));
                findings.extend(found);
            }
            Err(Failure::Failed { message, .. } | Failure::Usage(message)) => {
                findings.push(finding("database", Health::Wrong, message));
            }
            Err(Failure::Told) => return Err(Failure::Told),
        }
    }
    told(findings, out)
}

fn finding(check: &str, state: Health, message: String) -> Finding {
    Finding { check: check.to_owned(), state, message }
}

/// What this process can see for itself: the data directory and the master key.
fn local(config: &Config) -> Vec<Finding> {
    let shown = config.data_dir.display().to_string();
    let directory = match DataDirLock::acquire(&config.data_dir) {
        Ok(_) | Err(StoreError::Locked { .. }) => finding("data directory", Health::Fine, shown),
        Err(error) => finding("data directory", Health::Wrong, error.to_string()),
    };
    let key = match crate::store::master_key(&config.data_dir) {
        Ok(_) => finding("master key", Health::Fine, "private and readable".to_owned()),
        Err(error) => finding("master key", Health::Wrong, error.to_string()),
    };
    vec![directory, key]
}

/// Prints the findings; something wrong is a failure.
fn told(findings: Vec<Finding>, out: Out) -> Result<(), Failure> {
    let wrong = findings.iter().filter(|found| found.state == Health::Wrong).count();
    let findings = Findings { findings };
    out.show(&findings, || text(&findings.findings))?;
    if wrong == 0 { Ok(()) } else { Err(Failure::new(format!("{wrong} of these must be mended"))) }
}

fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|found| found.check.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { check, state, message } in findings {
        let word = match state {
            Health::Fine => "fine   ",
            Health::Warning => "warning",
            Health::Wrong => "WRONG  ",
        };
        let message = message.replace('\n', &format!("\n{:1$}", "", 11 + width));
        text.push_str(&format!("{word}  {check:<width$}  {message}\n"));
    }
    text
}
