//! The table: every row beside its target, as text and as Markdown.

use clap::ValueEnum;

use crate::alone::{CREATIONS, SESSIONS};
use crate::peers::Peer;
use crate::results::{CPU_US, Figure, KIB, MADE, P50_US, Results};
use crate::scenarios::{
    ADDED_P50_US, CREATIONS_PER_SECOND, CREATIONS_RATIO, IDLE_KIB, SESSIONS_RATIO, Scenario, Targets,
};

/// Rows of cells, the head first.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Targets that were missed.
    pub missed: usize,
}

const BOTGATE: &str = "botgate";
/// Least share of the sessions that were to be made.
const CREATIONS_MADE: f64 = 0.95;

impl Table {
    /// The proxies beside one another.
    pub fn comparison(results: &Results) -> Self {
        let mut head = vec![String::new()];
        head.extend(Peer::value_variants().iter().map(|peer| peer.name().to_owned()));
        head.extend(["to nginx", "to HAProxy", "target"].map(str::to_owned));
        let mut table = Table { rows: vec![head], missed: 0 };
        for &scenario in Scenario::value_variants() {
            let (title, unit) = (scenario.title(), scenario.unit());
            table.compare(results, scenario, &format!("{title}: CPU µs/{unit}"), CPU_US);
            let p50 = if scenario == Scenario::Sse { "delay p50, µs" } else { "p50, µs" };
            table.compare(results, scenario, &format!("{title}: {p50}"), P50_US);
            table.added(results, scenario, &format!("{title}: p50 added, µs"));
            let of = if scenario == Scenario::Sse { "stream" } else { "connection" };
            table.compare(results, scenario, &format!("{title}: KiB/{of}"), KIB);
        }
        table
    }

    /// botgate beside itself.
    pub fn alone(results: &Results) -> Self {
        let head = ["botgate beside itself", "without", "with", "ratio", "target"];
        let mut table = Table { rows: vec![head.map(str::to_owned).to_vec()], missed: 0 };
        let sessions = (Scenario::Sessions, SESSIONS);
        table.pair(results, sessions, "CPU µs/request", CPU_US, Some(SESSIONS_RATIO));
        let creations = (Scenario::Creations, CREATIONS);
        table.pair(results, creations, "p50, µs", P50_US, Some(CREATIONS_RATIO));
        table.pair(results, creations, "CPU µs/request, with making them", CPU_US, None);
        if let Some(made) = results.median(Scenario::Creations, CREATIONS[1], MADE) {
            let title = format!("{}: made/s", Scenario::Creations.title());
            // Otherwise the latency beside it would be that of less work.
            let enough = made >= f64::from(CREATIONS_PER_SECOND) * CREATIONS_MADE;
            table.missed += usize::from(!enough);
            let target =
                format!("≥ {CREATIONS_MADE} of {CREATIONS_PER_SECOND}: {}", if enough { "met" } else { "missed" });
            table.rows.push(vec![title, "0".to_owned(), format!("{made:.0}"), String::new(), target]);
        }
        table
    }

    /// Whether there is anything in it.
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// One figure of every proxy.
    fn compare(&mut self, results: &Results, scenario: Scenario, title: &str, figure: Figure) {
        let medians = Peer::value_variants().iter().map(|peer| results.median(scenario, peer.name(), figure));
        let medians: Vec<Option<f64>> = medians.collect();
        // Of the pair of botgates only their own table tells.
        if matches!(scenario, Scenario::Sessions | Scenario::Creations) || medians.iter().all(Option::is_none) {
            return;
        }
        let is_cpu = std::ptr::fn_addr_eq(figure, CPU_US);
        let ratio = |base: Peer| is_cpu.then(|| results.ratio(scenario, BOTGATE, base.name(), figure)).flatten();
        let (to_nginx, to_haproxy) = (ratio(Peer::Nginx), ratio(Peer::Haproxy));
        let targets = if is_cpu { scenario.targets() } else { Targets::default() };
        let botgate = results.median(scenario, BOTGATE, figure);
        let target = match (targets.to_nginx, targets.to_haproxy) {
            (None, None) if scenario == Scenario::Idle => self.target(&[(botgate, Some(IDLE_KIB))], " KiB"),
            _ => self.target(&[(to_nginx, targets.to_nginx), (to_haproxy, targets.to_haproxy)], ""),
        };
        let mut row = vec![title.to_owned()];
        row.extend(medians.into_iter().map(cell));
        row.extend([to_nginx.map_or_else(String::new, ratio_cell), to_haproxy.map_or_else(String::new, ratio_cell)]);
        row.push(target);
        self.rows.push(row);
    }

    /// What every proxy adds to the median latency without one.
    fn added(&mut self, results: &Results, scenario: Scenario, title: &str) {
        let added = |peer: &Peer| results.excess(scenario, peer.name(), Peer::Direct.name(), P50_US);
        let botgate = added(&Peer::Botgate);
        if botgate.is_none() {
            return;
        }
        let limit = (scenario == Scenario::OpenGet).then_some(ADDED_P50_US);
        let mut row = vec![title.to_owned()];
        row.extend(Peer::value_variants().iter().map(|peer| cell(added(peer).filter(|_| *peer != Peer::Direct))));
        row.extend([String::new(), String::new(), self.target(&[(botgate, limit)], " µs")]);
        self.rows.push(row);
    }

    fn pair(
        &mut self,
        results: &Results,
        (scenario, [plain, loaded]): (Scenario, [&'static str; 2]),
        what: &str,
        figure: Figure,
        limit: Option<f64>,
    ) {
        let Some(ratio) = results.ratio(scenario, loaded, plain, figure) else { return };
        let of = |subject| cell(results.median(scenario, subject, figure));
        let target = self.target(&[(Some(ratio), limit)], "");
        self.rows.push(vec![format!("{}: {what}", scenario.title()), of(plain), of(loaded), ratio_cell(ratio), target]);
    }

    /// The targets and whether they are met; empty when there are none.
    fn target(&mut self, values: &[(Option<f64>, Option<f64>)], unit: &str) -> String {
        let mut told = Vec::new();
        let mut missed = false;
        for (value, limit) in values {
            let (Some(value), Some(limit)) = (value, limit) else { continue };
            told.push(if unit.is_empty() { format!("≤ {limit:.2}") } else { format!("≤ {limit:.0}{unit}") });
            missed |= value > limit;
        }
        self.missed += usize::from(missed);
        let met = if missed { "missed" } else { "met" };
        if told.is_empty() { String::new() } else { format!("{}: {met}", told.join(", ")) }
    }

    /// In columns.
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut widths = vec![0; columns];
        for row in &self.rows {
            row.iter().zip(&mut widths).for_each(|(cell, width)| *width = cell.chars().count().max(*width));
        }
        let line = |row: &Vec<String>| {
            let cells = row.iter().enumerate().map(|(column, cell)| match column {
                0 => format!("{cell:<width$}", width = widths[column]),
                last if last + 1 == columns => format!("  {cell}"),
                _ => format!("  {cell:>width$}", width = widths[column]),
            });
            cells.collect::<String>().trim_end().to_owned() + "\n"
        };
        self.rows.iter().map(line).collect()
    }

    /// For the README.
    pub fn markdown(&self) -> String {
        let mut lines: Vec<String> = self.rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect();
        let columns = self.rows.first().map_or(0, Vec::len);
        let rule = (0..columns).map(|column| if column == 0 || column + 1 == columns { "---|" } else { "--:|" });
        lines.insert(1, format!("|{}\n", rule.collect::<String>()));
        lines.concat()
    }
}

/// Three digits that tell something.
fn cell(value: Option<f64>) -> String {
    match value {
        None => String::new(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

fn ratio_cell(ratio: f64) -> String {
    format!("{ratio:.2}")
}
