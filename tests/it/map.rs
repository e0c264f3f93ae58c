//! The map of rooms holds: imports point up the list only, one place spawns, no file grows past reading.

use std::path::{Path, PathBuf};

/// Each room may import those before it.
const ORDER: &[&str] = &[
    "names",
    "secret",
    "config",
    "tasks",
    "directory",
    "telemetry",
    "gateway",
    "identity",
    "mcp",
    "proxy",
    "listener",
    "store",
    "keeper",
    "lifecycle",
    "admin",
    "cli",
];
/// The keeper runs as another user and may know only these.
const KEEPER_MAY: &[&str] = &["names", "secret", "config", "tasks", "keeper"];
/// Longest room file, in lines.
const LINES_MAX: usize = 500;

fn sources() -> Vec<(String, PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut found, mut folders) = (Vec::new(), vec![src.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("src can be listed") {
            let path = entry.expect("src can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let inside = path.strip_prefix(&src).expect("below src");
                let first = inside.components().next().expect("a file has a name").as_os_str().to_string_lossy();
                let room = first.trim_end_matches(".rs").to_owned();
                let text = std::fs::read_to_string(&path).expect("a source file is text");
                found.push((room, path, text));
            }
        }
    }
    assert!(found.len() > 20, "the sources were found");
    found
}

/// The rooms that a line names after `crate::`, also in a braced list.
fn imports(line: &str) -> Vec<&'static str> {
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices("crate::")
        .flat_map(|(at, _)| {
            let rest = &code[at + "crate::".len()..];
            let named: Vec<&str> = match rest.strip_prefix('{') {
                Some(list) => list.split(',').collect(),
                None => vec![rest],
            };
            named.into_iter().filter_map(|name| {
                let name = name.trim().split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
                ORDER.iter().find(|room| **room == name).copied()
            })
        })
        .collect()
}

#[test]
fn imports_point_one_way() {
    let place = |room: &str| ORDER.iter().position(|known| *known == room);
    let mut wrong = Vec::new();
    for (room, path, text) in sources() {
        if matches!(room.as_str(), "lib" | "main") {
            continue;
        }
        let Some(own) = place(&room) else { panic!("{room} is not on the map") };
        for (number, line) in text.lines().enumerate() {
            for imported in imports(line) {
                let allowed =
                    if room == "keeper" { KEEPER_MAY.contains(&imported) } else { place(imported) <= Some(own) };
                if !allowed {
                    wrong.push(format!("{}:{}: {room} imports {imported}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_room_is_on_the_map_in_its_order() {
    let map =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).expect("lib.rs is there");
    let listed: Vec<&str> = map.lines().filter_map(|line| line.strip_prefix("//! - [`")?.split('`').next()).collect();
    let expected: Vec<&str> = ORDER.iter().copied().filter(|room| listed.contains(room)).collect();
    assert_eq!(listed, expected, "lib.rs lists the rooms in the order of their imports");
    for (room, path, _) in sources() {
        assert!(
            matches!(room.as_str(), "lib" | "main") || listed.contains(&room.as_str()),
            "{} is in no room",
            path.display()
        );
    }
}

#[test]
fn only_tasks_spawns() {
    let spawning = ["tokio::spawn", "thread::spawn", "spawn_blocking(", "spawn_local(", "thread::Builder"];
    for (room, path, text) in sources() {
        // Test modules start peers of their own.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let is_test = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
        if room == "tasks"
            || is_test
            || path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("test_"))
        {
            continue;
        }
        for word in spawning {
            assert!(!code.contains(word), "{} spawns past tasks: {word}", path.display());
        }
    }
}

#[test]
fn files_stay_readable() {
    for (_, path, text) in sources() {
        assert!(text.lines().count() <= LINES_MAX, "{} is longer than {LINES_MAX} lines", path.display());
    }
}
