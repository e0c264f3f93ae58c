//! `init`: a configuration file with every default written out, a data directory and a master key.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::out::{Failure, Out};

/// The file that `init` writes: the documented defaults.
const TEMPLATE: &str = include_str!("botgate.toml");

/// Writes the three; refuses to touch what exists.
pub(super) fn run(dir: &Path, out: Out) -> Result<(), Failure> {
    let trouble = |what: &Path, error: std::io::Error| Failure::new(format!("{}: {error}", what.display()));
    let (file, data) = (dir.join("botgate.toml"), dir.join("data"));
    for path in [&file, &data] {
        if path.symlink_metadata().is_ok() {
            return Err(Failure::with_next(
                format!("{}: exists; init overwrites nothing", path.display()),
                "choose another --dir, or go on with what is there: botgate check",
            ));
        }
    }
    DirBuilder::new().recursive(true).create(dir).map_err(|error| trouble(dir, error))?;
    DirBuilder::new().mode(0o700).create(&data).map_err(|error| trouble(&data, error))?;
    crate::store::create_master_key(&data).map_err(|error| Failure::from_error(&error))?;
    // The configuration comes last: it is what says that the rest is there.
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&file)
        .and_then(|mut to| to.write_all(TEMPLATE.as_bytes()).and_then(|()| to.sync_all()));
    written.map_err(|error| trouble(&file, error))?;
    let value = serde_json::json!({ "config": file, "data_dir": data });
    out.show(&value, || {
        let config = if dir == Path::new(".") { String::new() } else { format!(" --config {}", file.display()) };
        format!(
            "wrote {}\nmade  {} with a master key: back it up apart from the database\n\n\
             next: set the gateway's url in the file, then\n  botgate{config} check\n  botgate{config} serve",
            file.display(),
            data.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_template_says_what_the_defaults_are() {
        let least = "[[gateway]]\nname = \"main\"\nurl = \"http://127.0.0.1:8642\"\n";
        let base = Path::new("/etc/botgate");
        let written = crate::config::parse(TEMPLATE, base).unwrap();
        let mut defaults = crate::config::parse(least, base).unwrap();
        // These three have no default that serves: the template shows the usual choice.
        defaults.listen = written.listen.clone();
        defaults.metrics_address = written.metrics_address;
        assert_eq!(format!("{written:?}"), format!("{defaults:?}"));
    }

    #[test]
    fn what_is_commented_out_is_valid_too() {
        let mut text = String::new();
        for line in TEMPLATE.lines() {
            let setting = line.strip_prefix('#').filter(|rest| !rest.starts_with(' '));
            text.push_str(setting.unwrap_or(line));
            text.push('\n');
        }
        let problems = crate::config::parse(&text, Path::new("/etc/botgate")).err();
        assert!(problems.is_none(), "{problems:#?}");
        assert!(text != TEMPLATE);
    }

    #[test]
    fn it_overwrites_nothing() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path(), Out::new(true)).unwrap();
        let mode = |name: &str| dir.path().join(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("data"), 0o700);
        assert_eq!(mode("data/master.key"), 0o600);
        let before = std::fs::read(dir.path().join("data/master.key")).unwrap();
        assert!(run(dir.path(), Out::new(true)).is_err());
        std::fs::remove_file(dir.path().join("botgate.toml")).unwrap();
        assert!(run(dir.path(), Out::new(true)).is_err());
        assert_eq!(std::fs::read(dir.path().join("data/master.key")).unwrap(), before);
    }
}
