//! Out of descriptors: the edge pauses, says so once, does not spin, and serves again once there are some.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::support::botgate::{Botgate, Setup};
use crate::support::eventually;
use crate::support::http::Call;
use crate::support::wire::Wire;

/// Descriptors that a process has open.
fn descriptors(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs").count()
}

/// Processor time that a process has used, in ticks of 10 ms.
fn ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum()
}

#[test]
fn without_descriptors_the_edge_pauses_and_comes_back() {
    // Nothing listens there: the edge is to take connections, not to forward.
    let mut botgate = Botgate::new(&Setup::at(([127, 0, 0, 1], 1).into()));
    botgate.serve();
    let pid = botgate.pid();
    let health = || Call::get("/health").header("Connection", "close").send(botgate.address()).status;
    assert_eq!(health(), 200);
    let most = descriptors(pid) as u64 + 12;
    prlimit(Pid::from_raw(pid), Resource::Nofile, Rlimit { current: Some(most), maximum: Some(most) })
        .expect("a limit can be lowered");
    let held: Vec<_> = (0..64).map(|_| Wire::connect(botgate.address())).collect();
    eventually("the edge says what is wrong", Duration::from_secs(10), || {
        botgate.output().contains("cannot accept connections")
    });
    let (before, since) = (ticks(pid), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let used = (ticks(pid) - before) as f64 / 100.0;
    assert!(used < since.elapsed().as_secs_f64() * 0.25, "{used} s of processor time: it spins");
    let told = botgate.output().matches("cannot accept connections").count();
    assert!(told <= 4, "told {told} times");
    drop(held);
    eventually("connections are accepted again", Duration::from_secs(20), || {
        botgate.output().contains("connections can be accepted again")
    });
    assert_eq!(health(), 200);
    assert!(botgate.stop(), "it stops as ever");
}
