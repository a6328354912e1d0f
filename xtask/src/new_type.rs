//! `cargo xtask new-type-check`: a type of values is a row. A type is added to a copy of the workspace, from the files
//! in `xtask/toy`, with the paths of the workspace, and from a few lines of lists; nothing else may change. The copy
//! must compile without a warning, pass the tests that cover every type or command, and its server must support the type
//! as any other (`new_type/behaviour.rs`).

mod behaviour;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::run::{Failure, captured, line, watched, workspace};

/// Files of the type, with the paths that they have in the workspace.
const TOY: &str = "xtask/toy";
/// Inside the folder of build results, so that both are kept between runs.
const COPY: &str = "target/new-type/workspace";
const TARGET: &str = "target/new-type/target";
const GIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Lines that are inserted into a file after one of its own.
struct Insertion {
    file: &'static str,
    behind: &'static str,
    lines: &'static [&'static str],
}

const INSERTIONS: &[Insertion] = &[
    Insertion {
        file: "crates/types/src/value.rs",
        behind: "            VectorSet,",
        lines: &[
            "            /// Bytes that are set and read as a whole.",
            "            Register,",
        ],
    },
    Insertion {
        file: "crates/types/src/lib.rs",
        behind: "pub mod partial_sort;",
        lines: &["pub mod register;"],
    },
    Insertion {
        file: "crates/types/src/lib.rs",
        behind: "pub use packed::{PackedForm, PackedRef};",
        lines: &["pub use register::Register;"],
    },
    Insertion {
        file: "crates/rdb/src/lib.rs",
        behind: "pub mod primitive;",
        lines: &["mod register;"],
    },
    Insertion {
        file: "crates/commands/src/lib.rs",
        behind: "mod multi_pop;",
        lines: &["mod register;"],
    },
    Insertion {
        file: "crates/spec/src/table.rs",
        behind: "mod pubsub;",
        lines: &["mod register;"],
    },
    Insertion {
        file: "crates/spec/src/table.rs",
        behind: "    pubsub::ROWS,",
        lines: &["    register::ROWS,"],
    },
    Insertion {
        file: "crates/spec/src/id.rs",
        behind: "        Vsim => vector_set::vsim,",
        lines: &[
            "        RegisterGet => register::register_get,",
            "        RegisterSet => register::register_set,",
        ],
    },
];

/// The change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touch {
    /// It is new.
    New,
    /// It has this many lines more, and all old ones.
    Lines(usize),
    /// It is replaced.
    Rewritten,
    /// It is removed.
    Gone,
}

/// All files that a type with two commands may change.
const ALLOWED: &[(&str, Touch)] = &[
    ("crates/commands/src/lib.rs", Touch::Lines(1)),
    ("crates/commands/src/register.rs", Touch::New),
    ("crates/rdb/src/lib.rs", Touch::Lines(1)),
    ("crates/rdb/src/register.rs", Touch::New),
    ("crates/spec/src/id.rs", Touch::Lines(2)),
    ("crates/spec/src/table.rs", Touch::Lines(2)),
    ("crates/spec/src/table/register.rs", Touch::New),
    ("crates/types/src/lib.rs", Touch::Lines(2)),
    ("crates/types/src/register.rs", Touch::New),
    ("crates/types/src/value.rs", Touch::Lines(2)),
];

/// Runs of cargo in the copy: everything but tests is compiled, and the tests of the crates that know types; those that
/// cover all types or all commands are run.
const RUNS: &[&str] = &[
    "fmt --all --check",
    "build --quiet --locked --package redline-cli --bin redline",
    "test --quiet --locked --no-run --package redline-keyspace --package redline-commands --package redline-engine --package redline-server",
    "test --quiet --locked --package redline-rdb --package redline-spec --lib --tests",
    "test --quiet --locked --package redline-types --lib value::",
];

/// Files by their path from the root, with slashes.
type Tree = BTreeMap<String, Vec<u8>>;

/// Checks that the type can be added, and that everything works for it then.
pub fn run() -> Result<(), Failure> {
    let root = workspace();
    let before = tracked(&root)?;
    let after = with_type(&before)?;
    let touched = touched(&before, &after);
    for (file, touch) in &touched {
        println!("{file}: {touch:?}");
    }
    check_touched(&touched)?;
    let copy = root.join(COPY);
    let target = root.join(TARGET);
    write_tree(&copy, &after)?;
    for words in RUNS {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .args(words.split(' '))
            .current_dir(&copy)
            .env("RUSTFLAGS", "-D warnings")
            .env("CARGO_TARGET_DIR", &target);
        println!("{}", line(&command));
        watched(command)?;
    }
    let calls = behaviour::check(&target.join("debug/redline"))?;
    println!("new-type-check: ok, {} files, {calls} calls", touched.len());
    Ok(())
}

/// Returns the files that git tracks or would add, in their present state.
fn tracked(root: &Path) -> Result<Tree, Failure> {
    let mut command = Command::new("git");
    command.current_dir(root).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let names = captured(command, b"", GIT_TIMEOUT)?;
    let mut tree = Tree::new();
    for name in names.split_terminator('\0') {
        let path = root.join(name);
        // A removed file that is not committed yet is still tracked.
        if path.is_file() {
            tree.insert(name.to_owned(), read(&path)?);
        }
    }
    Ok(tree)
}

/// Returns the tree with the type.
fn with_type(before: &Tree) -> Result<Tree, Failure> {
    let mut after = before.clone();
    for (path, text) in before {
        let inside = path
            .strip_prefix(TOY)
            .and_then(|path| path.strip_prefix('/'));
        if let Some(inside) = inside {
            after.insert(inside.to_owned(), text.clone());
        }
    }
    for insertion in INSERTIONS {
        let Insertion {
            file,
            behind,
            lines,
        } = insertion;
        let text = after.get_mut(*file).ok_or(format!("{file} is not there"))?;
        let known = String::from_utf8_lossy(text).into_owned();
        let mut new = Vec::new();
        let mut places = 0;
        for known in known.lines() {
            new.push(known);
            if known == *behind {
                places += 1;
                new.extend_from_slice(lines);
            }
        }
        if places != 1 {
            return Err(format!("{file} has {places} lines that read \"{behind}\""));
        }
        *text = (new.join("\n") + "\n").into_bytes();
    }
    Ok(after)
}

/// Returns the files in which two trees differ.
fn touched(before: &Tree, after: &Tree) -> BTreeMap<String, Touch> {
    let mut touched = BTreeMap::new();
    for path in before.keys().chain(after.keys()) {
        let touch = match (before.get(path), after.get(path)) {
            (Some(old), Some(new)) if old == new => continue,
            (Some(old), Some(new)) => lines_added(old, new).map_or(Touch::Rewritten, Touch::Lines),
            (None, Some(_)) => Touch::New,
            _ => Touch::Gone,
        };
        touched.insert(path.clone(), touch);
    }
    touched
}

/// Returns the number of added lines; `None` if not every old line is still there, in the old order.
fn lines_added(old: &[u8], new: &[u8]) -> Option<usize> {
    let mut left = old.split(|byte| *byte == b'\n').peekable();
    let mut added = 0;
    for line in new.split(|byte| *byte == b'\n') {
        if left.next_if_eq(&line).is_none() {
            added += 1;
        }
    }
    left.peek().is_none().then_some(added)
}

fn check_touched(touched: &BTreeMap<String, Touch>) -> Result<(), Failure> {
    let allowed: BTreeMap<String, Touch> = ALLOWED
        .iter()
        .map(|(file, touch)| ((*file).to_owned(), *touch))
        .collect();
    if *touched == allowed {
        return Ok(());
    }
    Err(format!(
        "a new type touches\n{touched:#?}\nand may touch\n{allowed:#?}"
    ))
}

/// Makes a folder equal to a tree. Equal files are not written, so that they need not be compiled again.
fn write_tree(folder: &Path, tree: &Tree) -> Result<(), Failure> {
    for path in files_of(folder)? {
        let inside = path.strip_prefix(folder).unwrap_or(&path);
        if !tree.contains_key(&inside.display().to_string()) {
            fs::remove_file(&path).map_err(|error| failure(&path, &error))?;
        }
    }
    for (name, text) in tree {
        let path = folder.join(name);
        if fs::read(&path).is_ok_and(|known| known == *text) {
            continue;
        }
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|error| failure(parent, &error))?;
        fs::write(&path, text).map_err(|error| failure(&path, &error))?;
    }
    Ok(())
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop().filter(|folder| folder.is_dir()) {
        let entries = fs::read_dir(&folder).map_err(|error| failure(&folder, &error))?;
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| failure(path, &error))
}

fn failure(path: &Path, error: &std::io::Error) -> Failure {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the files of the type, and those that get lines.
    fn workspace_files() -> Tree {
        let root = workspace();
        let toy = files_of(&root.join(TOY)).unwrap();
        let lists = INSERTIONS.iter().map(|insertion| root.join(insertion.file));
        let files = toy.into_iter().chain(lists).map(|path| {
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            (name, read(&path).unwrap())
        });
        files.collect()
    }

    #[test]
    fn the_type_touches_its_own_files_and_lines_of_lists() {
        let before = workspace_files();
        let after = with_type(&before).unwrap();
        assert_eq!(check_touched(&touched(&before, &after)), Ok(()));
    }

    #[test]
    fn a_file_that_may_not_be_touched_is_found() {
        let before = workspace_files();
        let plant = |file: &str, change: fn(&mut Vec<u8>)| {
            let mut after = with_type(&before).unwrap();
            change(after.entry(file.to_owned()).or_default());
            check_touched(&touched(&before, &after))
        };
        let add = |text: &mut Vec<u8>| text.extend_from_slice(b"// more\n");
        assert!(plant("crates/server/src/admin/debug.rs", add).is_err());
        assert!(plant("crates/types/src/value.rs", add).is_err());
        assert!(plant("crates/types/src/another.rs", add).is_err());
        let cut = |text: &mut Vec<u8>| text.truncate(text.len() / 2);
        assert!(plant("crates/types/src/value.rs", cut).is_err());
    }

    #[test]
    fn added_lines_are_counted_and_other_changes_are_told_from_them() {
        assert_eq!(lines_added(b"a\nb\n", b"a\nc\nb\nd\n"), Some(2));
        assert_eq!(lines_added(b"a\na\n", b"a\na\na\n"), Some(1));
        assert_eq!(lines_added(b"a\nb\n", b"b\na\n"), None);
        assert_eq!(lines_added(b"a\nb\n", b"a\n"), None);
    }
}
