//! Where results go: the terminal, a file of raw samples, README.md and its chart.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::args::Args;
use crate::chart;
use crate::results::Results;
use crate::table::Table;
use crate::trouble::{Outcome, Trouble};

/// Everything that was measured, for whoever wants to calculate for themselves.
const RAW: &str = "target/load/samples.json";
const CHART: &str = "benches/load/cost.svg";
const README: &str = "README.md";
/// What stands around the table in the README.
const BEGIN: &str = "<!-- load: written by benches/load/run --readme -->\n";
const END: &str = "<!-- load: end -->\n";

/// Prints the tables, and writes what was asked for. How many targets were missed.
///
/// # Errors
/// A file cannot be written.
pub fn tell(results: &Results, args: &Args) -> Outcome<usize> {
    let (comparison, alone) = (Table::comparison(results), Table::alone(results));
    let tables: Vec<&Table> = [&comparison, &alone].into_iter().filter(|table| !table.is_empty()).collect();
    let place = place(args);
    println!("\n{place}");
    for table in &tables {
        println!("\n{}", table.text());
    }
    println!(
        "The cores are shared with clients and upstream, over loopback: read ratios, not figures. A ratio is the median of\n\
         the rounds' own ratios. Nothing is said about tail latencies, and nothing about other hardware."
    );
    let raw = json!({ "place": place, "samples": results.0 });
    std::fs::create_dir_all("target/load")?;
    std::fs::write(RAW, format!("{raw:#}\n")).map_err(Trouble::with(RAW))?;
    println!("Samples: {RAW}");
    if args.readme {
        let markdown: Vec<String> = tables.iter().map(|table| table.markdown()).collect();
        readme(&format!("{}\n{place}\n", markdown.join("\n")))?;
        if let Some(svg) = chart::svg(results) {
            std::fs::write(CHART, svg).map_err(Trouble::with(CHART))?;
        }
    }
    Ok(tables.iter().map(|table| table.missed).sum())
}

/// Puts a text between the marks in the README.
fn readme(text: &str) -> Outcome<()> {
    let whole = std::fs::read_to_string(README).map_err(Trouble::with(README))?;
    let parts = whole.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else { return Err(Trouble::new("README.md has no place for the table")) };
    std::fs::write(README, format!("{before}{BEGIN}{text}{END}{after}")).map_err(Trouble::with(README))
}

/// What was measured where, in one line.
fn place(args: &Args) -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let cpu = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    let kernel = kernel.split('-').next().unwrap_or_default().trim();
    format!(
        "Measured on {cores} processors ({cpu}), Linux {kernel}; nginx {}, HAProxy {}, Pingora {}; medians of {} rounds of {} s.",
        version("nginx", "-v", "nginx/"),
        version("haproxy", "-v", "HAProxy version "),
        locked("pingora"),
        args.rounds,
        args.time().as_secs()
    )
}

/// The version that a program names after these words.
fn version(program: &str, flag: &str, after: &str) -> String {
    let Ok(told) = Command::new(program).arg(flag).output() else { return "missing".to_owned() };
    let told = [told.stdout, told.stderr].concat();
    let told = String::from_utf8_lossy(&told).into_owned();
    let rest = told.split_once(after).map_or("unknown", |(_, rest)| rest);
    rest.split(['-', ' ', '\n']).next().unwrap_or_default().to_owned()
}

/// The version of a package that the peer is built with.
fn locked(package: &str) -> String {
    let lock = Path::new("benches/load/pingora/Cargo.lock");
    let lock = std::fs::read_to_string(lock).unwrap_or_default();
    let found =
        lock.split_once(&format!("name = \"{package}\"\nversion = \"")).and_then(|(_, rest)| rest.split_once('"'));
    found.map_or("unknown", |(version, _)| version).to_owned()
}
