//! The process's own figures, read from `/proc/self` at each scrape.
//!
//! They are written here and not by the exporter, whose counters are whole numbers: CPU seconds are not.

use std::fmt::Write;
use std::fs;

/// The unit of times in `/proc/self/stat`: Linux fixes it for user space.
const TICKS_PER_SECOND: f64 = 100.0;

/// Appends every `process_*` metric that the system tells; a figure that cannot be read is left out.
pub(super) fn render(out: &mut String) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command's name may hold spaces and brackets; the fields after its last bracket are numbers.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    if let (Some(user), Some(system)) = (number(11), number(12)) {
        let seconds = (user + system) as f64 / TICKS_PER_SECOND;
        metric(out, "process_cpu_seconds_total", "counter", "User and system CPU time spent.", seconds);
    }
    if let Some(threads) = number(17) {
        metric(out, "process_threads", "gauge", "Threads of the process.", threads as f64);
    }
    if let (Some(started), Some(boot)) = (number(19), boot_time()) {
        let help = "Start time of the process since the Unix epoch.";
        metric(out, "process_start_time_seconds", "gauge", help, boot as f64 + started as f64 / TICKS_PER_SECOND);
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(kibibytes) = kibibytes(&status, "VmSize:") {
        metric(out, "process_virtual_memory_bytes", "gauge", "Virtual memory size.", kibibytes * 1024.0);
    }
    if let Some(kibibytes) = kibibytes(&status, "VmRSS:") {
        metric(out, "process_resident_memory_bytes", "gauge", "Resident memory size.", kibibytes * 1024.0);
    }
    if let Ok(entries) = fs::read_dir("/proc/self/fd") {
        // The listing holds itself open.
        let open = entries.count().saturating_sub(1);
        metric(out, "process_open_fds", "gauge", "Open file descriptors.", open as f64);
    }
    if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        metric(out, "process_max_fds", "gauge", "Most file descriptors that may be open.", limit as f64);
    }
}

fn kibibytes(status: &str, field: &str) -> Option<f64> {
    status.lines().find_map(|line| line.strip_prefix(field))?.trim().strip_suffix(" kB")?.parse().ok()
}

fn boot_time() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn metric(out: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    // Writing to a String cannot fail.
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n");
}
