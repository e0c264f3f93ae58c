//! `audit`: read, follow and verify the log of who did what.
//!
//! It reads the files themselves: whoever may run this owns them, and a log that only the running edge could show
//! would prove little.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::args::AuditArgs;
use super::client::Admin;
use super::out::{Failure, Out, time, written};
use crate::admin::wire::{Empty, MaybeLogin};
use crate::config::Config;
use crate::telemetry::audit::{Entry, Filter, Head, Reader, verify};

/// Pause between two looks for new records.
const FOLLOW_PAUSE: Duration = Duration::from_millis(200);

pub(super) fn run(args: &AuditArgs, config: &Config, out: Out) -> Result<(), Failure> {
    let dir = config.data_dir.join("audit");
    if args.verify {
        return verified(&dir, args.head.as_deref(), config, out);
    }
    // The running edge writes what is queued, and that somebody reads: what has happened until now is all there.
    if let Some(admin) = Admin::if_running(config)? {
        let caught_up = admin.call::<Empty>("/audit/read", &MaybeLogin { login: args.login.clone() });
        if let Err(failure) = caught_up {
            // A log that takes no more records is all the more worth reading.
            failure.tell();
        }
    }
    let filter = Filter {
        login: args.login.as_ref().map(ToString::to_string),
        request_id: None,
        since: args.since.and_then(|at| u64::try_from(at).ok()),
        seals: false,
    };
    let mut reader = Reader::new(&dir, filter);
    let mut to = BufWriter::new(std::io::stdout().lock());
    loop {
        match reader.next_entry() {
            Ok(Some(entry)) => {
                let line = if out.is_json() { entry.text().to_owned() } else { line(&entry) };
                written(writeln!(to, "{line}"))?;
            }
            Ok(None) => {
                written(to.flush())?;
                if !args.follow {
                    return Ok(());
                }
                std::thread::sleep(FOLLOW_PAUSE);
            }
            Err(error) => return Err(Failure::new(format!("{}: {error}", dir.display()))),
        }
    }
}

/// Time, kind, then the fields that tell most, then the others; nothing for what is empty.
fn line(entry: &Entry) -> String {
    const FIRST: [&str; 8] = ["login", "by", "action", "object", "method", "route", "status", "outcome"];
    const LEFT_OUT: [&str; 4] = ["seq", "at", "kind", "prev"];
    let at = i64::try_from(entry.at()).unwrap_or(i64::MAX);
    let mut text = format!("{}  {:<8}", time(at), entry.kind());
    let Some(fields) = entry.value().as_object() else { return text };
    let mut rest: Vec<_> = fields.iter().filter(|(name, _)| !LEFT_OUT.contains(&name.as_str())).collect();
    rest.sort_by_key(|(name, _)| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len()));
    for (name, value) in rest {
        match value {
            Value::Null => {}
            Value::Object(inner) => inner.iter().for_each(|(name, value)| field(&mut text, name, value)),
            value => field(&mut text, name, value),
        }
    }
    text
}

fn field(text: &mut String, name: &str, value: &Value) {
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.push_str(&format!("  {name}={value}"));
}

fn verified(dir: &Path, head: Option<&str>, config: &Config, out: Out) -> Result<(), Failure> {
    let head = match head.map(Head::parse) {
        Some(None) => return Err(Failure::Usage("--head: give SEQ:HASH as --verify printed it".to_owned())),
        other => other.flatten(),
    };
    let master = crate::store::master_key(&config.data_dir).map_err(|error| Failure::from_error(&error))?;
    let keys = crate::store::audit_keys(&config.data_dir, &master).map_err(|error| Failure::from_error(&error))?;
    let report = verify(dir, keys, head.as_ref()).map_err(|fault| {
        Failure::with_next(
            format!("{}: the audit log was changed or cut: {fault}", dir.display()),
            "keep the directory as it is, and compare it with its copies",
        )
    })?;
    let value = serde_json::json!({
        "segments": report.segments, "lines": report.lines, "head": report.head.to_string(),
        "unsealed": report.unsealed, "torn_bytes": report.torn_bytes,
    });
    out.show(&value, || {
        format!(
            "intact: {} records in {} segments\nhead    {}\n\
             keep the head elsewhere; with --head it shows later that nothing was cut off",
            report.lines, report.segments, report.head
        )
    })
}
