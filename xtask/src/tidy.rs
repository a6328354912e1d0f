//! `cargo xtask tidy`: the rules of the repository that a program can check. It runs as a test, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::run::{Failure, captured, cargo, workspace};
use crate::{docs, folders, ratchets};

/// The page that lists the edges between crates of the workspace: this file only compares.
const MAP: &str = "ARCHITECTURE.md";
/// The page that lists external crates.
const DEPENDENCIES: &str = "docs/design/dependencies.md";
/// Crates that tests and benchmarks of a crate may use beyond its edges.
const TEST_EDGES: &[(&str, &[&str])] = &[
    ("server", &["testkit"]),
    ("cli", &["testkit"]),
    ("xtask", &["spec"]),
];
/// Crates that need `unsafe`. The root of every other one forbids it.
const UNSAFE_ROOMS: &[&str] = &["alloc", "lanes", "table", "keyspace", "net", "scripting"];
/// Folders that may contain it, tests and benchmarks included, which are separate crates for a root's attribute.
const UNSAFE_FOLDERS: &[&str] = &[
    "crates/alloc",
    "crates/lanes",
    "crates/table",
    "crates/keyspace",
    "crates/net",
    "crates/scripting/src/vm",
];
/// Crates whose folders have edges of their own, with the headline under which the map lists them.
const CRATES_OF_FOLDERS: &[(&str, &str)] = &[("bench", "### Folders of `bench`")];
/// Names without a meaning.
const EMPTY_NAMES: &[&str] = &["utils", "util", "misc", "helpers", "helper", "common"];
const METADATA_TIMEOUT: Duration = Duration::from_secs(60);

/// Checks everything; the failure lists all faults.
pub fn run() -> Result<(), Failure> {
    let root = workspace();
    let page =
        |page| fs::read_to_string(root.join(page)).map_err(|error| format!("{page}: {error}"));
    let packages = packages(&metadata()?);
    let map = page(MAP)?;
    let mut faults = edge_faults(&packages, &edges(&map, "### Edges")?);
    let written = dependencies(&page(DEPENDENCIES)?);
    faults.extend(dependency_faults(&packages, &written));
    let files = rust_files(&root)?;
    faults.extend(file_faults(&root, &files)?);
    for (package, headline) in CRATES_OF_FOLDERS {
        let edges = edges(&map, headline)?;
        let sources = sources(&root.join("crates").join(package).join("src"), &files)?;
        faults.extend(folders::faults(package, &sources, &edges, MAP)?);
    }
    faults.extend(ratchets::faults(&root, &files)?);
    faults.extend(docs::faults(&root)?);
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

/// A crate of the workspace, and its direct dependencies.
struct Package {
    room: String,
    /// Crates of the workspace.
    rooms: Vec<Needed>,
    /// External crates.
    crates: Vec<Needed>,
}

struct Needed {
    name: String,
    in_tests: bool,
}

/// Returns the name of a package's room, which is that of its folder.
fn room(package: &str) -> String {
    let room = package.strip_prefix("redline-").unwrap_or(package);
    room.replace('-', "_")
}

fn packages(metadata: &Value) -> Vec<Package> {
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let packages = packages.map(|package| {
        let needed = package["dependencies"].as_array().into_iter().flatten();
        // Only crates of the workspace have a path.
        let (rooms, crates): (Vec<_>, Vec<_>) =
            needed.partition(|needed| needed["path"].is_string());
        let all = |needed: Vec<&Value>, named: fn(&str) -> String| {
            let needed = needed.into_iter().map(|needed| Needed {
                name: named(&name(needed)),
                // The model checker replaces std's atomics in tests only.
                in_tests: needed["kind"] == "dev" || needed["target"] == "cfg(loom)",
            });
            needed.collect()
        };
        Package {
            room: room(&name(package)),
            rooms: all(rooms, room),
            crates: all(crates, str::to_owned),
        }
    });
    packages.collect()
}

/// Returns the lines of a section of the map, from its headline to the next one.
fn section<'m>(map: &'m str, headline: &str) -> Result<impl Iterator<Item = &'m str>, Failure> {
    let at = map.lines().position(|line| line == headline);
    let at = at.ok_or_else(|| format!("{MAP} has no \"{headline}\""))?;
    Ok(map
        .lines()
        .skip(at + 1)
        .take_while(|line| !line.starts_with('#')))
}

fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// Returns the crates that each crate may use, or folders inside of one: lines of the form `room, room → room, room`
/// below a headline.
fn edges(map: &str, headline: &str) -> Result<BTreeMap<String, Vec<String>>, Failure> {
    let mut edges = BTreeMap::new();
    for line in section(map, headline)? {
        let Some((from, to)) = line.split_once('→') else {
            continue;
        };
        let to = listed(to).filter(|to| *to != "nothing of ours");
        let to: Vec<String> = to.map(str::to_owned).collect();
        for from in listed(from) {
            let from = from.split_once(" (").map_or(from, |(room, _)| room);
            edges.insert(from.to_owned(), to.clone());
        }
    }
    Ok(edges)
}

fn edge_faults(packages: &[Package], edges: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let allowed_in_tests: BTreeMap<&str, &[&str]> = TEST_EDGES.iter().copied().collect();
    let mut faults = Vec::new();
    for Package { room, rooms, .. } in packages {
        let Some(allowed) = edges.get(room) else {
            faults.push(format!("the room {room} is not among the edges in {MAP}"));
            continue;
        };
        let in_tests = allowed_in_tests.get(room.as_str()).copied().unwrap_or(&[]);
        let is_known = |to: &Needed| {
            allowed.contains(&to.name) || to.in_tests && in_tests.contains(&to.name.as_str())
        };
        let unknown = rooms.iter().filter(|to| !is_known(to));
        faults.extend(unknown.map(|to| {
            format!(
                "{room} may not know {}: {MAP} has no such edge (a new one needs a reason)",
                to.name
            )
        }));
        let gone = allowed
            .iter()
            .filter(|to| rooms.iter().all(|needed| needed.name != **to));
        faults.extend(gone.map(|to| format!("{room} does not know {to}, as {MAP} has it")));
    }
    let there = |name: &String| packages.iter().any(|package| package.room == *name);
    let gone = edges.keys().filter(|name| !there(name));
    faults.extend(gone.map(|name| format!("there is no room {name}, as {MAP} has it")));
    faults
}

/// Returns the crates that use each external crate: rows of the form `| \`crate\`, \`crate\` | room, room | why |`. The
/// name `tests` means tests, benchmarks and the testkit.
fn dependencies(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut dependencies = BTreeMap::new();
    for line in page.lines() {
        let mut cells = line.split('|').skip(1);
        let (Some(crates), Some(rooms)) = (cells.next(), cells.next()) else {
            continue;
        };
        let rooms: BTreeSet<String> = listed(rooms).map(str::to_owned).collect();
        // A feature follows its crate in brackets.
        for name in crates.split(',').filter_map(|name| name.split('`').nth(1)) {
            dependencies.insert(name.to_owned(), rooms.clone());
        }
    }
    dependencies
}

fn dependency_faults(
    packages: &[Package],
    written: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<String> {
    let mut used: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        for needed in &package.crates {
            let by = match needed.in_tests || package.room == "testkit" {
                true => "tests",
                false => package.room.as_str(),
            };
            used.entry(needed.name.as_str()).or_default().insert(by);
        }
    }
    let mut faults = Vec::new();
    for (name, by) in &used {
        match written.get(*name) {
            None => faults.push(format!("{DEPENDENCIES} does not say why there is {name}")),
            Some(rooms) if rooms.iter().eq(by.iter()) => {}
            Some(rooms) => faults.push(format!(
                "{name} is used by {by:?}, and not by {rooms:?}, as {DEPENDENCIES} has it"
            )),
        }
    }
    let gone = written
        .keys()
        .filter(|name| !used.contains_key(name.as_str()));
    faults.extend(gone.map(|name| format!("nobody uses {name}, as {DEPENDENCIES} has it")));
    faults
}

fn file_faults(root: &Path, files: &[PathBuf]) -> Result<Vec<String>, Failure> {
    let mut faults = Vec::new();
    for file in files {
        let shown = file
            .strip_prefix(root)
            .unwrap_or(file)
            .display()
            .to_string();
        let text = fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
        let opening = text.lines().find(|line| !line.starts_with("#!["));
        if !opening.is_some_and(|line| line.starts_with("//!")) {
            faults.push(format!("{shown} does not open with what it is (//!)"));
        }
        if EMPTY_NAMES.contains(&name_of(file)) {
            faults.push(format!("{shown}: the name says nothing"));
        }
        faults.extend(unsafe_fault(root, file, &text).map(|fault| format!("{shown} {fault}")));
    }
    Ok(faults)
}

/// Returns a module's name: `x` for `x.rs` and for `x/mod.rs`.
fn name_of(file: &Path) -> &str {
    let named = match file.ends_with("mod.rs") {
        true => file.parent().and_then(Path::file_name),
        false => file.file_stem(),
    };
    named.and_then(|name| name.to_str()).unwrap_or_default()
}

fn unsafe_fault(root: &Path, file: &Path, text: &str) -> Option<&'static str> {
    let inside = file.strip_prefix(root).ok()?;
    let may = UNSAFE_FOLDERS
        .iter()
        .any(|folder| inside.starts_with(folder));
    if !may && has_unsafe_code(text) {
        return Some("has unsafe code, outside the rooms that may");
    }
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

/// Returns true if a block, an item or an attribute is unsafe. The word alone may occur in texts and in comments.
fn has_unsafe_code(text: &str) -> bool {
    let code = text.lines().filter_map(|line| line.split("//").next());
    let mut behind = code.flat_map(|line| line.split("unsafe").skip(1));
    behind.any(|rest| {
        let next = rest.trim_start();
        let begins = ["{", "fn ", "impl", "extern ", "trait "];
        rest.starts_with('(') || begins.iter().any(|begin| next.starts_with(begin))
    })
}

/// Returns those of the files that are in a folder: their paths in it, and their texts.
fn sources<'f>(folder: &Path, files: &'f [PathBuf]) -> Result<Vec<(&'f Path, String)>, Failure> {
    let inside = files
        .iter()
        .filter_map(|file| Some((file, file.strip_prefix(folder).ok()?)));
    let read = inside.map(|(file, inside)| {
        let text = fs::read_to_string(file);
        let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
        Ok((inside, text))
    });
    read.collect()
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

    fn packages_of_resp() -> Vec<Package> {
        packages(&serde_json::json!({"packages": [
            {"name": "redline-resp", "dependencies": [
                {"name": "redline-server", "path": "/x", "kind": null},
                {"name": "memchr", "kind": null},
                {"name": "proptest", "kind": "dev"},
            ]},
        ]}))
    }

    #[test]
    fn a_room_is_named_as_its_folder_is_and_another_crate_as_it_is() {
        let found = packages(&serde_json::json!({"packages": [
            {"name": "redline-proxy-config", "dependencies": [
                {"name": "redline-proxy-config", "path": "/x", "kind": null},
                {"name": "proc-macro2", "kind": null},
            ]},
        ]}));
        let names = (&found[0].rooms[0].name, &found[0].crates[0].name);
        assert_eq!(found[0].room, "proxy_config");
        assert_eq!(
            names,
            (&"proxy_config".to_owned(), &"proc-macro2".to_owned())
        );
    }

    #[test]
    fn an_undeclared_edge_is_found() {
        let map = "### Edges\n```text\nresp, net → nothing of ours\n```\n";
        let faults = edge_faults(&packages_of_resp(), &edges(map, "### Edges").unwrap());
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].starts_with("resp may not know server"));
        assert!(faults[1].starts_with("there is no room net"));
    }

    #[test]
    fn an_edge_that_nobody_uses_is_found() {
        let map = "### Edges\nresp (a note) → server, table\n";
        let faults = edge_faults(&packages_of_resp(), &edges(map, "### Edges").unwrap());
        assert_eq!(
            faults,
            ["resp does not know table, as ARCHITECTURE.md has it"]
        );
    }

    #[test]
    fn a_dependency_is_written_down_with_those_who_use_it() {
        let faults = |rows: &str| {
            let page =
                format!("# Dependencies\n\n| crate | used by | why |\n|---|---|---|\n{rows}");
            dependency_faults(&packages_of_resp(), &dependencies(&page))
        };
        let none: [String; 0] = [];
        assert_eq!(
            faults("| `memchr` (with `std`) | resp | search |\n| `proptest` | tests | input |\n"),
            none
        );
        let wrong = faults("| `memchr`, `itoa` | resp, net | search |\n");
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].starts_with("memchr is used by {\"resp\"}, and not by"));
        assert!(wrong[1].ends_with("does not say why there is proptest"));
        assert_eq!(
            wrong[2],
            "nobody uses itoa, as docs/design/dependencies.md has it"
        );
    }

    #[test]
    fn a_module_in_a_folder_has_the_name_of_the_folder() {
        assert_eq!(name_of(Path::new("tests/common/mod.rs")), "common");
        assert_eq!(name_of(Path::new("src/poller.rs")), "poller");
    }

    #[test]
    fn unsafe_code_of_a_test_was_not_found() {
        // Not in one piece, since this file is checked, too.
        let word = "unsafe";
        let root = Path::new("/x");
        let fault = |file: &str, text: &str| unsafe_fault(root, &root.join(file), text);
        for code in [
            " { f() }",
            " fn f() {}",
            " impl Send for X {}",
            " extern \"C\" {}",
            "(no_mangle)",
        ] {
            let text = format!("//! A test.\nlet a = 1; {word}{code}");
            assert!(fault("crates/server/tests/a.rs", &text).is_some(), "{code}");
            assert!(fault("crates/scripting/tests/a.rs", &text).is_some());
            assert_eq!(fault("crates/scripting/src/vm/a.rs", &text), None);
            assert_eq!(fault("crates/table/benches/a.rs", &text), None);
        }
        for text in [
            format!("let policy = \"'{word}-inline'\"; // {word} {{}}"),
            format!("#![deny({word}_code)]"),
        ] {
            assert_eq!(fault("crates/server/tests/a.rs", &text), None, "{text}");
        }
    }
}
