//! A changed configuration: taken over whole while requests run, or not at all and every reason told.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::eventually;
use crate::support::site::Site;
use crate::support::wire::{Wire, chat, contains, ends_cleanly, get, post};

const SOON: Duration = Duration::from_secs(20);
const CHAT: &str = "/v1/chat/completions";
const APPLIED: &str = "botgate_config_reloads_total{outcome=\"applied\"}";
const REJECTED: &str = "botgate_config_reloads_total{outcome=\"rejected\"}";

fn text(site: &Site) -> String {
    fs::read_to_string(site.botgate.path("botgate.toml")).expect("the configuration is there")
}

/// Puts another text in the file's place, as editors do.
fn replace(site: &Site, text: &str) {
    let next = site.botgate.path("botgate.toml.next");
    fs::write(&next, text).expect("it can be written");
    fs::rename(&next, site.botgate.path("botgate.toml")).expect("it can be renamed");
}

fn hang_up(site: &Site) {
    let pid = Pid::from_raw(site.botgate.pid()).expect("a process");
    kill_process(pid, Signal::HUP).expect("it is there");
}

/// Has the file taken over, or rejected, on SIGHUP.
#[track_caller]
fn reload(site: &Site, text: &str, outcome: &str) {
    let before = site.botgate.metric(outcome);
    replace(site, text);
    hang_up(site);
    eventually(outcome, SOON, || site.botgate.metric(outcome) == before + 1.0);
}

#[track_caller]
fn status(wire: &mut Wire, token: &str, bytes: usize) -> u16 {
    wire.send(post(CHAT, token, &chat(&"x".repeat(bytes), false)));
    wire.answer().status()
}

#[test]
fn a_changed_limit_holds_for_the_next_request_of_an_open_connection() {
    let mut site = Site::of(&["alice"]);
    site.botgate.serve_until_ready();
    let token = site.botgate.session("alice");
    let mut wire = Wire::connect(site.botgate.address());
    assert_eq!(status(&mut wire, &token, 3_000), 200);
    reload(&site, &text(&site).replace("[limits]\n", "[limits]\nmax_body_bytes = 2000\n"), APPLIED);
    assert_eq!(status(&mut wire, &token, 100), 200);
    assert_eq!(status(&mut wire, &token, 3_000), 413);
    let records = site.botgate.audit();
    let record = records.iter().find(|record| record["action"] == "config.reload").expect("it is recorded");
    assert!(record.to_string().contains("limits.max_body_bytes"), "{record}");
    assert!(site.botgate.output().contains("the configuration is taken over"));
    assert!(site.botgate.stop());
}

#[test]
fn a_host_that_is_taken_out_is_not_served_any_more() {
    let mut site = Site::of(&["alice"]);
    site.botgate.serve_until_ready();
    let token = site.botgate.session("alice");
    let mut wire = Wire::connect(site.botgate.address());
    let mut ask = |host: &str| {
        wire.send(format!("GET /v1/models HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"));
        wire.answer().status()
    };
    assert_eq!((ask("localhost:8080"), ask("edge.example")), (200, 421));
    reload(&site, &text(&site).replace("http://localhost:8080", "http://edge.example"), APPLIED);
    assert_eq!((ask("localhost:8080"), ask("edge.example")), (421, 200));
    let bound = site.botgate.address().to_string();
    assert_eq!(ask(&bound), 200, "where it listens it is always known");
}

#[test]
fn a_file_with_problems_changes_nothing_and_says_why() {
    let mut site = Site::of(&["alice"]);
    site.botgate.serve_until_ready();
    let token = site.botgate.session("alice");
    let good = text(&site);
    reload(
        &site,
        &good.replace("[limits]\n", "[limits]\nmax_body_bytes = 2000\nqueue_totl = 1\nconnections = 0\n"),
        REJECTED,
    );
    let output = site.botgate.output();
    for said in ["botgate.toml", "queue_totl", "limits.connections", "nothing is changed"] {
        assert!(output.contains(said), "{said}: {output}");
    }
    let mut wire = Wire::connect(site.botgate.address());
    assert_eq!(status(&mut wire, &token, 3_000), 200);
    // A key that needs a restart keeps out those that do not.
    let restart = good.replace("[limits]\n", "[limits]\nmax_body_bytes = 2000\nturns_per_person = 9\n");
    reload(&site, &restart.replace("main", "other"), REJECTED);
    let output = site.botgate.output();
    for said in ["these need a restart", "gateway.name", "limits.turns_per_person"] {
        assert!(output.contains(said), "{said}: {output}");
    }
    assert_eq!(status(&mut wire, &token, 3_000), 200);
    fs::remove_file(site.botgate.path("botgate.toml")).expect("it is there");
    hang_up(&site);
    eventually("it is told", SOON, || site.botgate.metric(REJECTED) == 3.0);
    assert_eq!(status(&mut wire, &token, 3_000), 200);
    fs::write(site.botgate.path("botgate.toml"), good).expect("it can be written");
    assert!(site.botgate.stop());
}

#[test]
fn a_changed_file_is_taken_over_without_a_signal_once_it_rests() {
    let mut site = Site::of(&["alice"]);
    site.botgate.serve_until_ready();
    let token = site.botgate.session("alice");
    let (file, good) = (site.botgate.path("botgate.toml"), text(&site));
    let changed = good.replace("[limits]\n", "[limits]\nmax_body_bytes = 2000\n");
    // Written piece by piece, and never at rest before it is whole.
    for length in (0..changed.len()).step_by(changed.len() / 20) {
        fs::write(&file, &changed[..length]).expect("it can be written");
        std::thread::sleep(Duration::from_millis(200));
    }
    fs::write(&file, &changed).expect("it can be written");
    eventually("it is taken over", SOON, || site.botgate.metric(APPLIED) == 1.0);
    assert_eq!(site.botgate.metric(REJECTED), 0.0, "{}", site.botgate.output());
    assert_eq!(status(&mut Wire::connect(site.botgate.address()), &token, 3_000), 413);
}

#[test]
fn a_hundred_changes_under_load_fail_no_request_cut_no_stream_and_leave_nothing() {
    let mut site = Site::configured(&["alice", "bob"], "turns_per_person = 10\n");
    site.botgate.serve_until_ready();
    let (alice, bob) = (site.botgate.session("alice"), site.botgate.session("bob"));
    let address = site.botgate.address();
    let mut stream = Wire::connect(address);
    stream.send(post(CHAT, &bob, &chat("WORDS:60:0.1", true)));
    stream.until("I am");
    let (over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let good = text(&site);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut wire = Wire::connect(address);
                while !over.load(Ordering::Relaxed) {
                    wire.send(get("/v1/models", &alice));
                    assert_eq!(wire.answer().status(), 200);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut resident = 0.0;
        for round in 0..100 {
            let limits = format!("[limits]\nmax_body_bytes = {}\n", 100_000 + round);
            reload(&site, &good.replace("[limits]\n", &limits), APPLIED);
            if round == 20 {
                resident = site.botgate.metric("process_resident_memory_bytes");
            }
        }
        let grown = site.botgate.metric("process_resident_memory_bytes") - resident;
        assert!(grown < 8.0 * 1024.0 * 1024.0, "{grown} bytes more");
        over.store(true, Ordering::Relaxed);
    });
    assert!(asked.load(Ordering::Relaxed) > 100);
    let (rest, _) = stream.rest(SOON);
    assert!(contains(&rest, "[DONE]") && ends_cleanly(&rest));
    assert!(site.botgate.stop());
}
