//! wrk: so many connections, each with its next request as soon as the last one is answered.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Driven;
use crate::trouble::{Outcome, Trouble};

/// Connections of every closed loop.
pub const CONNECTIONS: u64 = 64;
const SCRIPT: &str = include_str!("wrk.lua");

/// Requests that are ready to be sent.
#[derive(Debug)]
pub struct Wrk {
    script: PathBuf,
    requests: PathBuf,
    refused: bool,
}

impl Wrk {
    /// Writes the requests to a file of this name. `refused`: every answer has to be a refusal, else none may be.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(dir: &Path, name: &str, requests: impl Iterator<Item = String>, refused: bool) -> Outcome<Self> {
        let (script, file) = (dir.join("wrk.lua"), dir.join(name));
        std::fs::write(&script, SCRIPT).map_err(Trouble::with(script.display()))?;
        let mut text = String::new();
        for request in requests {
            let _ = write!(text, "{}\n{request}", request.len());
        }
        std::fs::write(&file, text).map_err(Trouble::with(file.display()))?;
        Ok(Wrk { script, requests: file, refused })
    }

    /// Drives a proxy, with TLS when its URL says so.
    ///
    /// # Errors
    /// wrk cannot be run, or an answer was not what it had to be.
    pub fn drive(&self, url: &str, time: Duration) -> Outcome<Driven> {
        let done = Command::new("wrk")
            .args(["--threads", "2", "--connections", &CONNECTIONS.to_string()])
            .args(["--duration", &format!("{}s", time.as_secs().max(1)), "--timeout", "10s"])
            .arg("--script")
            .arg(&self.script)
            .arg(url)
            .arg("--")
            .arg(&self.requests)
            .output()
            .map_err(Trouble::with("wrk"))?;
        let text = String::from_utf8_lossy(&done.stdout);
        let fields: Option<Vec<u64>> = text
            .lines()
            .find_map(|line| line.strip_prefix("result "))
            .map(|line| line.split(' ').filter_map(|field| field.parse().ok()).collect());
        let Some([requests, p50_us, refused, broken]) = fields.as_deref() else {
            return Err(Trouble::new(format!("wrk fails: {text}{}", String::from_utf8_lossy(&done.stderr))));
        };
        let (wanted, broken) = (if self.refused { *requests } else { 0 }, *broken);
        if *refused != wanted || broken > 0 || *requests == 0 {
            let what = format!("of {requests} answers {refused} were refusals and {broken} requests broke off");
            return Err(Trouble::new(what));
        }
        Ok(Driven { units: *requests, p50_us: *p50_us as f64 })
    }
}
