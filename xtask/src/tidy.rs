//! `cargo xtask tidy`: the rules of the house that a program can check. It runs as a test, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::run::{Failure, captured, cargo, workspace};

/// Which rooms a room may know. An edge that is not here needs a reason, in this table and in ARCHITECTURE.md.
const EDGES: &[(&str, &[&str])] = &[
    ("resp", &[]),
    ("net", &[]),
    ("spec", &[]),
    ("table", &[]),
    // Large collections live in the same table as keys.
    ("types", &["table"]),
    ("keyspace", &["types", "table"]),
    ("rdb", &["types"]),
    ("commands", &["spec", "keyspace", "types", "rdb", "resp"]),
    ("scripting", &["spec", "resp"]),
    // Which keys and channels a rule means is a glob.
    ("acl", &["spec", "types"]),
    // Who owns which slot comes as a reply.
    ("cluster", &["resp"]),
    // The figures of INFO memory come from the table's heap.
    (
        "server",
        &[
            "net",
            "resp",
            "spec",
            "types",
            "keyspace",
            "commands",
            "scripting",
            "acl",
            "table",
            "rdb",
            "observe",
        ],
    ),
    ("bench", &["net", "resp", "spec", "cluster"]),
    ("observe", &["net", "resp", "spec"]),
    (
        "proxy",
        &["net", "resp", "spec", "cluster", "acl", "observe"],
    ),
    ("cli", &["server", "bench", "proxy"]),
    ("testkit", &["resp", "spec"]),
    ("xtask", &["testkit"]),
];
/// What tests and benchmarks of a room may know beyond that.
const TEST_EDGES: &[(&str, &[&str])] = &[
    ("server", &["testkit"]),
    ("proxy", &["testkit"]),
    ("cli", &["testkit", "resp"]),
    ("xtask", &["spec"]),
];
/// Rooms that need `unsafe`. Every other one forbids it.
const UNSAFE_ROOMS: &[&str] = &["table", "keyspace", "net", "scripting", "server"];
/// Names that say nothing of what is inside.
const EMPTY_NAMES: &[&str] = &["utils", "util", "misc", "helpers", "helper", "common"];
const METADATA_TIMEOUT: Duration = Duration::from_secs(60);

/// Checks everything; the failure lists all that is wrong.
pub fn run() -> Result<(), Failure> {
    let mut faults = edge_faults(&metadata()?);
    faults.extend(file_faults(&workspace())?);
    if faults.is_empty() {
        return Ok(());
    }
    Err(format!("tidy:\n  {}", faults.join("\n  ")))
}

fn metadata() -> Result<Value, Failure> {
    let text = captured(
        cargo(&[
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ]),
        b"",
        METADATA_TIMEOUT,
    )?;
    serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))
}

fn room(package: &str) -> &str {
    package.strip_prefix("redline-").unwrap_or(package)
}

fn edge_faults(metadata: &Value) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    let allowed_in_tests: BTreeMap<&str, &[&str]> = TEST_EDGES.iter().copied().collect();
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = room(package["name"].as_str().unwrap_or_default());
        seen.insert(name);
        let Some(edges) = allowed.get(name) else {
            faults.push(format!("the room {name} is not in the table of edges"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // Only what the workspace itself holds is a room.
            let Some(to) = dependency["path"]
                .as_str()
                .and(dependency["name"].as_str())
                .map(room)
            else {
                continue;
            };
            let in_tests = dependency["kind"].as_str() == Some("dev");
            let known = edges.contains(&to)
                || in_tests
                    && allowed_in_tests
                        .get(name)
                        .is_some_and(|edges| edges.contains(&to));
            if !known {
                faults.push(format!("{name} may not know {to}"));
            }
        }
    }
    faults.extend(
        allowed
            .keys()
            .filter(|name| !seen.contains(*name))
            .map(|name| format!("there is no room {name}")),
    );
    faults
}

fn file_faults(root: &Path) -> Result<Vec<String>, Failure> {
    let mut faults = Vec::new();
    for file in rust_files(root)? {
        let shown = file
            .strip_prefix(root)
            .unwrap_or(&file)
            .display()
            .to_string();
        let text = fs::read_to_string(&file).map_err(|error| format!("{shown}: {error}"))?;
        let opening = text.lines().find(|line| !line.starts_with("#!["));
        if !opening.is_some_and(|line| line.starts_with("//!")) {
            faults.push(format!("{shown} does not open with what it is (//!)"));
        }
        let stem = file
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        if EMPTY_NAMES.contains(&stem) {
            faults.push(format!("{shown}: the name says nothing"));
        }
        faults.extend(unsafe_fault(root, &file, &text).map(|fault| format!("{shown} {fault}")));
    }
    Ok(faults)
}

fn unsafe_fault(root: &Path, file: &Path, text: &str) -> Option<&'static str> {
    let inside = file.strip_prefix(root).ok()?;
    let mut parts = inside
        .components()
        .filter_map(|part| part.as_os_str().to_str());
    let (mut room, mut rest) = (parts.next()?, parts);
    if room == "crates" {
        room = rest.next()?;
    }
    let is_root = matches!(
        (rest.next(), rest.next(), rest.next()),
        (Some("src"), Some("lib.rs" | "main.rs"), None)
    );
    let must = is_root && !UNSAFE_ROOMS.contains(&room) && room != "fuzz";
    (must && !text.contains("#![forbid(unsafe_code)]")).then_some("does not forbid unsafe code")
}

fn rust_files(root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let hidden = name.to_str().is_some_and(|name| name.starts_with('.'));
            if path.is_dir() && !hidden && name != "target" && name != "node_modules" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_house_is_tidy() {
        assert_eq!(run(), Ok(()));
    }

    #[test]
    fn an_undeclared_edge_is_found() {
        let metadata = serde_json::json!({"packages": [
            {"name": "redline-resp", "dependencies": [
                {"name": "redline-server", "path": "/x", "kind": null},
                {"name": "memchr", "kind": null},
            ]},
        ]});
        let faults = edge_faults(&metadata);
        assert!(
            faults.contains(&"resp may not know server".to_owned()),
            "{faults:?}"
        );
        assert!(
            !faults.iter().any(|fault| fault.contains("memchr")),
            "{faults:?}"
        );
    }
}
