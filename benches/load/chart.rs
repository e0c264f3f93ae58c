//! The chart: CPU time of each proxy in proportion to nginx, as an SVG that reads on light and dark pages.

use std::fmt::Write as _;

use crate::peers::Peer;
use crate::results::{CPU_US, Results};
use crate::scenarios::Scenario;

/// What is drawn, in this order.
const PEERS: [Peer; 4] = [Peer::Botgate, Peer::Nginx, Peer::Haproxy, Peer::Pingora];
const SCENARIOS: [Scenario; 6] =
    [Scenario::Http1Get, Scenario::Http1Turn, Scenario::OpenGet, Scenario::OpenTurn, Scenario::Refusals, Scenario::Sse];
const WIDTH: f64 = 720.0;
const LEFT: f64 = 190.0;
const BAR: f64 = 14.0;
const GAP: f64 = 14.0;
const TOP: f64 = 54.0;

/// The chart; `None` without nginx, which is the measure.
pub fn svg(results: &Results) -> Option<String> {
    let ratio = |scenario, peer: Peer| results.ratio(scenario, peer.name(), Peer::Nginx.name(), CPU_US);
    let drawn: Vec<(Scenario, Vec<(Peer, f64)>)> = SCENARIOS
        .iter()
        .map(|&scenario| {
            let bars = PEERS.iter().filter_map(|&peer| ratio(scenario, peer).map(|ratio| (peer, ratio)));
            (scenario, bars.collect())
        })
        .filter(|(_, bars): &(_, Vec<_>)| !bars.is_empty())
        .collect();
    let most = drawn.iter().flat_map(|(_, bars)| bars).map(|(_, ratio)| *ratio).fold(0.0, f64::max);
    if most == 0.0 {
        return None;
    }
    let scale = (WIDTH - LEFT - 50.0) / most;
    let mut bars = String::new();
    let mut y = TOP;
    for (scenario, of) in &drawn {
        let middle = y + BAR * of.len() as f64 / 2.0 + 4.0;
        let _ =
            writeln!(bars, r#"<text x="{}" y="{middle:.0}" text-anchor="end">{}</text>"#, LEFT - 8.0, scenario.title());
        for (peer, ratio) in of {
            let (class, length) = (class(*peer), ratio * scale);
            let _ = writeln!(
                bars,
                r#"<rect class="{class}" x="{LEFT}" y="{y:.0}" width="{length:.1}" height="{}"/><text x="{:.1}" y="{:.0}" class="value">{ratio:.2}</text>"#,
                BAR - 2.0,
                LEFT + length + 5.0,
                y + BAR - 3.5
            );
            y += BAR;
        }
        y += GAP;
    }
    let mut legend = String::new();
    for (at, peer) in PEERS.iter().enumerate() {
        let x = LEFT + 110.0 * at as f64;
        let (class, name) = (class(*peer), peer.name());
        let _ = writeln!(
            legend,
            r#"<rect class="{class}" x="{x}" y="30" width="12" height="12"/><text x="{}" y="40">{name}</text>"#,
            x + 17.0
        );
    }
    Some(format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:.0}" font-family="sans-serif" font-size="12" role="img" aria-label="CPU time in proportion to nginx">
<style>
text {{ fill: #1f2328 }} .value {{ font-size: 10px }}
.botgate {{ fill: #0969da }} .nginx {{ fill: #1a7f37 }} .haproxy {{ fill: #9a6700 }} .pingora {{ fill: #8c959f }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} .botgate {{ fill: #4493f8 }} .nginx {{ fill: #3fb950 }} .haproxy {{ fill: #d29922 }} }}
</style>
<text x="{LEFT}" y="18" font-weight="bold">CPU time of the process tree in proportion to nginx; less is better</text>
{legend}{bars}</svg>
"#
    ))
}

fn class(peer: Peer) -> &'static str {
    match peer {
        Peer::Direct => "direct",
        Peer::Nginx => "nginx",
        Peer::Haproxy => "haproxy",
        Peer::Pingora => "pingora",
        Peer::Botgate => "botgate",
    }
}
