//! The units of one box, as systemd itself judges them.

use std::fs;
use std::path::Path;

use super::{BOTGATE, config, deploy, run, text};

/// Greatest exposure that systemd may find, in tenths; 100 is a service without any sandbox.
const EXPOSURE_MAX: &str = "--threshold=16";

/// The value of a key that stands once.
#[track_caller]
fn value<'t>(unit: &'t str, key: &str) -> &'t str {
    let mut found = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let (value, None) = (found.next().unwrap_or_else(|| panic!("no {key}")), found.next()) else {
        panic!("{key} stands twice")
    };
    value
}

#[test]
fn systemd_takes_the_units_and_finds_them_closed() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let service = text("systemd/botgate.service");
    let installed = service.replace("/usr/local/bin/botgate", BOTGATE);
    assert_ne!(installed, service);
    fs::write(place.path().join("botgate.service"), installed).expect("a unit is written");
    fs::copy(deploy("systemd/botgate.socket"), place.path().join("botgate.socket")).expect("a unit is copied");
    let paths = ["botgate.service", "botgate.socket"].map(|name| place.path().join(name).display().to_string());
    let [service, socket] = &paths;
    let verify = ["verify", "--recursive-errors=one", "--man=no", service, socket];
    let (fine, said) = run("systemd-analyze", &verify, place.path());
    assert!(fine && said.trim().is_empty(), "{said}");
    let (closed, said) = run("systemd-analyze", &["security", "--offline=true", EXPOSURE_MAX, service], place.path());
    assert!(closed, "{said}");
    // What is shown to hold can also fail.
    let open = text("systemd/botgate.service").replace("/usr/local/bin/botgate", "/nonexistent");
    let open: String =
        open.lines().filter(|line| !line.starts_with("Protect")).map(|line| format!("{line}\n")).collect();
    fs::write(place.path().join("botgate.service"), open).expect("a unit is written");
    assert!(!run("systemd-analyze", &verify, place.path()).0);
    assert!(!run("systemd-analyze", &["security", "--offline=true", EXPOSURE_MAX, service], place.path()).0);
}

#[test]
fn units_and_configuration_say_the_same() {
    let (service, socket, config) =
        (text("systemd/botgate.service"), text("systemd/botgate.socket"), config("systemd/botgate.toml"));
    assert_eq!(value(&socket, "ListenStream"), config.listen.address.to_string());
    assert_eq!(Path::new("/var/lib").join(value(&service, "StateDirectory")), config.data_dir);
    assert!(value(&service, "ExecStart").ends_with(" serve --config /etc/botgate/botgate.toml"));
    assert_eq!(value(&service, "ExecReload"), "/bin/kill -HUP $MAINPID");
    let (credential, _) = value(&service, "LoadCredential").split_once(':').expect("a name and a file");
    assert_eq!(credential, "botgate-master-key");
    let stop: u64 = value(&service, "TimeoutStopSec").parse().expect("seconds");
    assert!(stop > config.deadlines.drain.as_secs() + 30, "turns come to their end, and records to the disk");
    let descriptors: usize = value(&service, "LimitNOFILE").parse().expect("a number");
    assert!(descriptors > 2 * config.limits.connections);
    assert_ne!(value(&service, "User"), "root");
    for gateway in &config.gateways {
        assert!(!gateway.allow_same_user);
    }
}
