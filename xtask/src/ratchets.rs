//! Numbers of the source that may only fall: part of `cargo xtask tidy`. Each has a ceiling, which is lowered together
//! with the number.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

use crate::run::Failure;

/// A number and its ceiling. A new ratchet is one row.
struct Ratchet {
    name: &'static str,
    ceiling: usize,
    measure: fn(&[File]) -> Measure,
}

const RATCHETS: &[Ratchet] = &[
    Ratchet {
        name: "lines that let go of a lock by hand, outside the lock's own file",
        ceiling: 0,
        measure: unlocks,
    },
    Ratchet {
        name: "public functions of `View`",
        ceiling: 40,
        measure: view_functions,
    },
    Ratchet {
        name: "`impl` blocks outside the file and the folder of their type",
        ceiling: 21,
        measure: distant_impls,
    },
    Ratchet {
        name: "lines of the largest `impl`, all blocks of a type together",
        ceiling: 1216,
        measure: largest_impl,
    },
    Ratchet {
        name: "doc comments that open with What, Who or Whether",
        ceiling: 0,
        measure: riddles,
    },
    Ratchet {
        name: "lines of handlers that compare words by hand, outside `Words`",
        ceiling: 17,
        measure: comparisons,
    },
    Ratchet {
        name: "binaries of integration tests",
        ceiling: 9,
        measure: test_binaries,
    },
    Ratchet {
        name: "files of more than 150 lines without tests of their own",
        ceiling: 192,
        measure: untested_files,
    },
    Ratchet {
        name: "rows of parameters whose field is declared elsewhere",
        ceiling: 26,
        measure: distant_fields,
    },
    Ratchet {
        name: "places that name a parameter outside its row",
        ceiling: 62,
        measure: named_parameters,
    },
];

/// Files that may lock and unlock stripes.
const LOCK_FILES: &[&str] = &["crates/keyspace/src/lock.rs"];
/// The file of the cursor over a call's arguments.
const WORDS: &str = "crates/commands/src/words.rs";
/// First words of doc comments that are questions instead of statements.
const RIDDLES: &[&str] = &["What", "Who", "Whom", "Whose", "Whether"];
/// Crates with rows of parameters.
const CRATES_OF_ROWS: &[&str] = &["engine", "server"];
/// Files up to this length need no tests of their own.
const SMALL_FILE_LINES: usize = 150;
/// Number of files that a fault names, those with most occurrences first.
const FILES_NAMED: usize = 8;

/// A number of occurrences, in all and by file.
struct Measure {
    number: usize,
    files: Vec<String>,
}

impl Measure {
    fn of(files: impl Iterator<Item = String>) -> Measure {
        let files: Vec<String> = files.collect();
        Measure {
            number: files.len(),
            files,
        }
    }
}

/// A file of the workspace's crates, without the fuzz targets.
struct File {
    /// Its path from the root of the workspace, with slashes.
    path: String,
    text: String,
    types: Vec<String>,
    impls: Vec<Impl>,
    /// String literals in the code, without those of tests and of macros.
    texts: Vec<String>,
}

/// The inherent `impl` block of a type.
struct Impl {
    of: String,
    lines: usize,
    public_functions: usize,
}

/// Collects types and blocks of a file.
#[derive(Default)]
struct Collected {
    types: Vec<String>,
    impls: Vec<Impl>,
    texts: Vec<String>,
}

impl<'ast> Visit<'ast> for Collected {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.types.push(item.ident.to_string());
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.types.push(item.ident.to_string());
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.texts.push(text.value());
    }

    fn visit_lit_byte_str(&mut self, text: &'ast syn::LitByteStr) {
        let bytes = text.value();
        self.texts
            .push(String::from_utf8_lossy(&bytes).into_owned());
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let syn::Type::Path(of) = item.self_ty.as_ref() else {
            return;
        };
        if let (None, Some(of)) = (&item.trait_, of.path.segments.last()) {
            let is_public = |item: &&syn::ImplItem| matches!(item, syn::ImplItem::Fn(function) if matches!(function.vis, syn::Visibility::Public(_)));
            let (first, last) = (
                item.impl_token.span.start(),
                item.brace_token.span.close().end(),
            );
            self.impls.push(Impl {
                of: of.ident.to_string(),
                lines: last.line - first.line + 1,
                public_functions: item.items.iter().filter(is_public).count(),
            });
        }
        visit::visit_item_impl(self, item);
    }
}

impl File {
    fn of(path: String, text: String) -> Result<File, Failure> {
        let code = syn::parse_file(&text).map_err(|error| format!("{path}: {error}"))?;
        let mut collected = Collected::default();
        collected.visit_file(&code);
        let Collected {
            types,
            impls,
            texts,
        } = collected;
        Ok(File {
            path,
            text,
            types,
            impls,
            texts,
        })
    }

    /// Returns the name of its crate's folder.
    fn room(&self) -> &str {
        let inside = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        inside.split('/').next().unwrap_or_default()
    }

    /// Returns the folder of its submodules, with a slash at the end.
    fn folder(&self) -> String {
        let path = self.path.strip_suffix(".rs").unwrap_or(&self.path);
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        match name {
            "lib" | "main" | "mod" => format!("{above}/"),
            _ => format!("{path}/"),
        }
    }

    /// Returns true if the file has tests of its own, or consists of them.
    fn is_tested(&self) -> bool {
        let is_test = self.path.ends_with("/tests.rs") || self.path.contains("/tests/");
        is_test || self.text.contains("#[test]") || self.text.contains("#[cfg(test)]")
    }
}

/// Returns the faults: every number above its ceiling, and every ceiling above its number.
pub fn faults(root: &Path, rust_files: &[PathBuf]) -> Result<Vec<String>, Failure> {
    let mut files = Vec::new();
    for file in rust_files {
        let inside = file.strip_prefix(root).unwrap_or(file);
        let path = inside.display().to_string();
        if path.starts_with("crates/") || path.starts_with("xtask/") {
            let text = fs::read_to_string(file).map_err(|error| format!("{path}: {error}"))?;
            files.push(File::of(path, text)?);
        }
    }
    Ok(RATCHETS
        .iter()
        .filter_map(|ratchet| fault(ratchet, &files))
        .collect())
}

fn fault(ratchet: &Ratchet, files: &[File]) -> Option<String> {
    let Ratchet {
        name,
        ceiling,
        measure,
    } = ratchet;
    let Measure { number, files } = measure(files);
    if number < *ceiling {
        return Some(format!(
            "{name}: {number}, so the ceiling of {ceiling} is to be lowered (xtask/src/ratchets.rs)"
        ));
    }
    let mut by_file: BTreeMap<&str, usize> = BTreeMap::new();
    for file in &files {
        *by_file.entry(file).or_default() += 1;
    }
    let mut by_file: Vec<_> = by_file.into_iter().collect();
    by_file.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named = by_file.iter().take(FILES_NAMED);
    let named: Vec<String> = named
        .map(|(file, count)| format!("{count} in {file}"))
        .collect();
    (number > *ceiling).then(|| {
        format!(
            "{name}: {number}, and may be {ceiling} at most ({} …)",
            named.join(", ")
        )
    })
}

fn unlocks(files: &[File]) -> Measure {
    // In one piece it would count itself.
    let word = concat!("unlock", "_");
    let others = files
        .iter()
        .filter(|file| !LOCK_FILES.contains(&file.path.as_str()));
    Measure::of(others.flat_map(|file| {
        let lines = file.text.lines().filter(move |line| line.contains(word));
        lines.map(|_| file.path.clone())
    }))
}

fn view_functions(files: &[File]) -> Measure {
    Measure::of(
        files
            .iter()
            .filter(|file| file.room() == "keyspace")
            .flat_map(|file| {
                let views = file.impls.iter().filter(|block| block.of == "View");
                let functions: usize = views.map(|block| block.public_functions).sum();
                std::iter::repeat_n(file.path.clone(), functions)
            }),
    )
}

fn distant_impls(files: &[File]) -> Measure {
    let mut homes: BTreeMap<(&str, &str), Vec<&File>> = BTreeMap::new();
    for file in files {
        for name in &file.types {
            homes.entry((file.room(), name)).or_default().push(file);
        }
    }
    let is_distant = |file: &File, block: &Impl| {
        let homes = homes.get(&(file.room(), block.of.as_str()));
        homes.is_some_and(|homes| {
            !homes
                .iter()
                .any(|home| file.path == home.path || file.path.starts_with(&home.folder()))
        })
    };
    Measure::of(files.iter().flat_map(|file| {
        let distant = file
            .impls
            .iter()
            .filter(move |block| is_distant(file, block));
        distant.map(|_| file.path.clone())
    }))
}

fn largest_impl(files: &[File]) -> Measure {
    let mut types: BTreeMap<(&str, &str), (usize, Vec<String>)> = BTreeMap::new();
    for file in files {
        for block in &file.impls {
            let (lines, places) = types.entry((file.room(), &block.of)).or_default();
            *lines += block.lines;
            places.push(file.path.clone());
        }
    }
    let largest = types.into_values().max_by_key(|(lines, _)| *lines);
    let (number, files) = largest.unwrap_or_default();
    Measure { number, files }
}

/// Returns the lines that begin a doc comment.
fn doc_openings(text: &str) -> impl Iterator<Item = &str> {
    let is_doc = |line: &str| line.starts_with("///") || line.starts_with("//!");
    let mut before = false;
    text.lines().map(str::trim_start).filter(move |line| {
        let opens = is_doc(line) && !before;
        before = is_doc(line);
        opens
    })
}

fn riddles(files: &[File]) -> Measure {
    let is_riddle = |line: &&str| {
        let word = line[3..].split_whitespace().next().unwrap_or_default();
        RIDDLES.contains(&word.trim_end_matches(','))
    };
    Measure::of(files.iter().flat_map(|file| {
        doc_openings(&file.text)
            .filter(is_riddle)
            .map(|_| file.path.clone())
    }))
}

/// Counts in the crates and folders whose files are handlers.
fn comparisons(files: &[File]) -> Measure {
    let handles = |file: &&File| {
        let is_home = matches!(file.room(), "commands" | "engine") && file.path.contains("/src/");
        (is_home || file.path.contains("/admin/")) && file.path != WORDS
    };
    Measure::of(files.iter().filter(handles).flat_map(|file| {
        let compares = |line: &&str| line.contains("eq_ignore_ascii_case");
        let lines = file.text.lines().filter(compares);
        lines.map(|_| file.path.clone())
    }))
}

/// Returns the roots that Cargo makes test binaries of: `tests/x.rs` and `tests/x/main.rs`.
fn test_binaries(files: &[File]) -> Measure {
    let binaries = files.iter().filter(|file| {
        let inside = file.path.split_once("/tests/");
        inside.is_some_and(|(room, name)| {
            let name = name.strip_suffix("/main.rs").unwrap_or(name);
            !room.contains("/src") && !name.contains('/')
        })
    });
    Measure::of(binaries.map(|file| file.path.clone()))
}

fn untested_files(files: &[File]) -> Measure {
    let untested = files.iter().filter(|file| {
        file.text.lines().count() > SMALL_FILE_LINES
            && file.path.contains("/src/")
            && !file.is_tested()
    });
    Measure::of(untested.map(|file| file.path.clone()))
}

/// Returns field and name of each parameter: of a line `field: Type = ("name", Class, …` inside of `settings!`.
fn parameters(file: &File) -> impl Iterator<Item = (&str, &str)> {
    const CLASSES: [&str; 4] = ["Live", "Start", "Inert", "InertFixed"];
    let has_rows = file.path.contains("/src/") && file.text.contains("settings! {");
    let lines = file.text.lines().filter(move |_| has_rows);
    lines.filter_map(|line| {
        let (field, rest) = line.trim_start().split_once(" = (\"")?;
        let (name, rest) = rest.split_once("\", ")?;
        let (class, _) = rest.split_once(',')?;
        CLASSES.contains(&class).then_some((field, name))
    })
}

/// Counts rows that begin with the place of a field, in brackets.
fn distant_fields(files: &[File]) -> Measure {
    let rows = files
        .iter()
        .filter(|file| CRATES_OF_ROWS.contains(&file.room()));
    Measure::of(rows.flat_map(|file| {
        let distant = parameters(file).filter(|(field, _)| field.starts_with('['));
        distant.map(|_| file.path.clone())
    }))
}

/// Counts string literals that are a parameter's name, where parameters are read.
fn named_parameters(files: &[File]) -> Measure {
    let files = || {
        files
            .iter()
            .filter(|file| CRATES_OF_ROWS.contains(&file.room()))
    };
    let names: BTreeSet<&str> = files().flat_map(parameters).map(|(_, name)| name).collect();
    let sources = files().filter(|file| file.path.contains("/src/"));
    Measure::of(sources.flat_map(|file| {
        let named = file
            .texts
            .iter()
            .filter(|text| names.contains(text.as_str()));
        named.map(|_| file.path.clone())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File::of(path.to_owned(), text.to_owned()).unwrap()
    }

    fn numbers(files: &[File]) -> Vec<usize> {
        RATCHETS
            .iter()
            .map(|ratchet| (ratchet.measure)(files).number)
            .collect()
    }

    #[test]
    fn each_ratchet_counts_its_kind() {
        let let_go = concat!("unlock", "_all();");
        let home = "/// A view.\npub struct View;\nimpl View {\n    pub fn a() {}\n    fn b() {}\n    pub(crate) fn c() {}\n}\n";
        let rows = "settings! {\n    a: u8 = (\"a-a\", Live, INT, \"0\", \"A.\");\n    [b.c]: u8 = (\"b\", Start, INT, \"0\", \"B.\").alias(\"c\");\n}\n\
            fn f() { (\"a-a\", b\"b\", \"c\") }\nmod tests { const A: &str = \"a-a\"; }\n";
        let files = [
            file(
                "crates/keyspace/src/lock.rs",
                &format!("fn f() {{ {let_go} }}\n"),
            ),
            file("crates/keyspace/src/view.rs", home),
            file(
                "crates/keyspace/src/view/database.rs",
                "impl View {\n    pub fn d() {}\n}\n",
            ),
            file(
                "crates/keyspace/src/space.rs",
                "impl View {}\nimpl Clone for View {}\nimpl Elsewhere {}\n",
            ),
            file(
                "crates/server/src/exec.rs",
                &format!("/// Whether it runs.\n/// What it is.\nfn f() {{ {let_go} }}\n"),
            ),
            file("crates/server/src/admin/a.rs", "// eq_ignore_ascii_case\n"),
            file("crates/server/tests/a.rs", "//! Who, of all.\nmod b;\n"),
            file("crates/server/tests/b/mod.rs", ""),
            file("crates/server/tests/it/main.rs", "//! Tests.\nmod c;\n"),
            file("crates/server/tests/it/c.rs", ""),
            file("crates/server/src/long.rs", &"\n".repeat(151)),
            file(
                "crates/server/src/long_tested.rs",
                &format!("#[test]\nfn f() {{}}{}", "\n".repeat(151)),
            ),
            file("crates/engine/src/rows.rs", rows),
        ];
        assert_eq!(numbers(&files), [1, 2, 1, 9, 2, 1, 2, 1, 1, 2]);
    }

    #[test]
    fn a_ratchet_turns_one_way() {
        let of = |ceiling| Ratchet {
            name: "files",
            ceiling,
            measure: |files| Measure::of(files.iter().map(|file| file.path.clone())),
        };
        let files = [
            file("crates/a/src/lib.rs", ""),
            file("crates/a/src/b.rs", ""),
        ];
        assert_eq!(fault(&of(2), &files), None);
        assert_eq!(
            fault(&of(1), &files).unwrap(),
            "files: 2, and may be 1 at most (1 in crates/a/src/b.rs, 1 in crates/a/src/lib.rs …)"
        );
        assert_eq!(
            fault(&of(3), &files).unwrap(),
            "files: 2, so the ceiling of 3 is to be lowered (xtask/src/ratchets.rs)"
        );
    }
}
