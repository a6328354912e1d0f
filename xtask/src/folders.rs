//! Edges between the folders of one crate, as the map lists them: part of `cargo xtask tidy`. The compiler sees to edges
//! between crates; inside of one, any module may name any other.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::path::{Component, Path};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree, token_stream};

use crate::run::Failure;

/// The folders that each folder of a crate may name.
type Edges = BTreeMap<String, Vec<String>>;

/// Returns the faults of a crate. `files` are its sources with their paths inside of `src`; `edges` is what `map` says.
pub fn faults(
    package: &str,
    files: &[(&Path, String)],
    edges: &Edges,
    map: &str,
) -> Result<Vec<String>, Failure> {
    let mut faults = Vec::new();
    let mut used: BTreeSet<(String, String)> = BTreeSet::new();
    for (file, text) in files {
        let module = module_of(file);
        let Some(folder) = module.first() else {
            // The root puts them together.
            continue;
        };
        let place = format!("crates/{package}/src/{}", file.display());
        let Some(allowed) = edges.get(folder) else {
            faults.push(format!(
                "{place}: {folder} is not among the folders of {package} in {map}"
            ));
            continue;
        };
        let tokens: TokenStream = text.parse().map_err(|error| format!("{place}: {error}"))?;
        for name in names_at_root(tokens, module.len()) {
            if name == *folder || !edges.contains_key(&name) {
                continue;
            }
            if !allowed.contains(&name) {
                faults.push(format!(
                    "{place}: {folder} may not know {name}: {map} has no such edge inside of {package}"
                ));
            }
            used.insert((folder.clone(), name));
        }
    }
    for (from, allowed) in edges {
        let is_unused = |to: &&String| !used.contains(&(from.clone(), (*to).clone()));
        faults.extend(allowed.iter().filter(is_unused).map(|to| {
            format!("{from} of {package} does not know its folder {to}, as {map} has it")
        }));
    }
    Ok(faults)
}

/// Returns the module that a file is, as the names from the root.
fn module_of(file: &Path) -> Vec<String> {
    let file = file.with_extension("");
    let names = file.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str().map(str::to_owned),
        _ => None,
    });
    let mut names: Vec<String> = names.collect();
    if names
        .last()
        .is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main"))
    {
        names.pop();
    }
    names
}

/// Returns the names at the crate's root that code in a module names by paths that begin with `crate` or `super`.
/// `depth`: how far below the root the module is.
fn names_at_root(tokens: TokenStream, depth: usize) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut tokens = tokens.into_iter().peekable();
    let mut is_module = false;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                let deeper = usize::from(is_module && group.delimiter() == Delimiter::Brace);
                names.append(&mut names_at_root(group.stream(), depth + deeper));
                is_module = false;
            }
            TokenTree::Ident(word) if word == "mod" => is_module = true,
            TokenTree::Ident(word) if word == "crate" && passes_colons(&mut tokens) => {
                names.append(&mut heads(&mut tokens));
            }
            TokenTree::Ident(word) if word == "super" => {
                let mut left = depth.saturating_sub(1);
                while passes_colons(&mut tokens) {
                    match tokens.peek() {
                        Some(TokenTree::Ident(word)) if word == "super" => {
                            tokens.next();
                            left = left.saturating_sub(1);
                        }
                        _ if left == 0 => names.append(&mut heads(&mut tokens)),
                        _ => break,
                    }
                }
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => is_module = false,
            _ => {}
        }
    }
    names
}

type Tokens = Peekable<token_stream::IntoIter>;

/// Takes the `::` that is next, if it is.
fn passes_colons(tokens: &mut Tokens) -> bool {
    let is_colon =
        |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ':');
    tokens.next_if(is_colon).is_some() && tokens.next_if(is_colon).is_some()
}

/// Returns the name that is next, or the first names of the paths in the braces that are.
fn heads(tokens: &mut Tokens) -> BTreeSet<String> {
    match tokens.peek() {
        Some(TokenTree::Ident(name)) => BTreeSet::from([name.to_string()]),
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            heads_inside(&group.clone())
        }
        _ => BTreeSet::new(),
    }
}

fn heads_inside(group: &Group) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut is_head = true;
    for token in group.stream() {
        match token {
            TokenTree::Ident(name) if is_head => {
                names.insert(name.to_string());
                is_head = false;
            }
            TokenTree::Punct(mark) if mark.as_char() == ',' => is_head = true,
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str, depth: usize) -> Vec<String> {
        names_at_root(text.parse().unwrap(), depth)
            .into_iter()
            .collect()
    }

    #[test]
    fn paths_from_the_root_are_found_however_they_are_written() {
        assert_eq!(names("use crate::a::b;", 1), ["a"]);
        assert_eq!(names("use crate::{a, b::{c, d}, e};", 1), ["a", "b", "e"]);
        assert_eq!(
            names("fn f() { g(crate::a::B, crate::c()) }", 1),
            ["a", "c"]
        );
        assert_eq!(names("m!(\"{}\", crate::a::B);", 1), ["a"]);
        assert_eq!(names("pub(crate) fn f() {} // crate::a", 1), [""; 0]);
        assert_eq!(names("/// See [`crate::a`].\nfn f() {}", 1), [""; 0]);
    }

    #[test]
    fn a_path_upwards_is_one_from_the_root_if_it_gets_there() {
        assert_eq!(names("use super::a;", 1), ["a"]);
        assert_eq!(names("use super::{a, b};", 1), ["a", "b"]);
        assert_eq!(names("use super::a;", 2), [""; 0]);
        assert_eq!(names("use super::super::a::b;", 2), ["a"]);
        assert_eq!(names("mod tests { use super::a; }", 1), [""; 0]);
        assert_eq!(names("mod tests { use super::super::a; }", 1), ["a"]);
        assert_eq!(names("mod b;\nfn f() { super::a() }", 1), ["a"]);
    }

    #[test]
    fn a_folder_that_names_its_sibling_is_found_and_so_is_an_edge_that_nobody_uses() {
        let below = || ("below".to_owned(), Vec::new());
        let above = |name: &str| (name.to_owned(), vec!["below".to_owned()]);
        let edges = Edges::from([below(), above("one"), above("other")]);
        let files = [
            (Path::new("lib.rs"), "use crate::one::f;".to_owned()),
            (Path::new("below.rs"), "use crate::Text;".to_owned()),
            (
                Path::new("one/mod.rs"),
                "use crate::{below, other};".to_owned(),
            ),
            (Path::new("other/a/b.rs"), "use super::c;".to_owned()),
            (Path::new("new.rs"), String::new()),
        ];
        let found = faults("x", &files, &edges, "MAP").unwrap();
        assert_eq!(
            found,
            [
                "crates/x/src/one/mod.rs: one may not know other: MAP has no such edge inside of x",
                "crates/x/src/new.rs: new is not among the folders of x in MAP",
                "other of x does not know its folder below, as MAP has it",
            ]
        );
    }
}
