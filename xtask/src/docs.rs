//! `cargo xtask docs`: the pages of docs/reference, the links between pages, and the site. Knows no page's content.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::install;
use crate::run::{Failure, cargo, watched, workspace};

/// The list of the site's pages.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Pages that stand beside the site.
const BESIDE: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
];
/// The version of mdbook that is installed where there is none.
const MDBOOK: &str = "0.5.4";

/// Writes the reference, checks the links, and makes the site.
pub fn run() -> Result<(), Failure> {
    let mut test = cargo(&["test", "-p", "redline-cli", "--bins", "manual::"]);
    test.env("REDLINE_WRITE_REFERENCE", "1");
    watched(test)?;
    let faults = faults(&workspace())?;
    if !faults.is_empty() {
        return Err(format!("docs:\n  {}", faults.join("\n  ")));
    }
    let program = install::cargo_tool("mdbook", MDBOOK)?;
    let mut build = std::process::Command::new(program);
    build.arg("build").current_dir(workspace());
    watched(build)
}

/// Returns what is wrong with links between pages, and with the list of the site's pages.
pub fn faults(root: &Path) -> Result<Vec<String>, Failure> {
    let mut pages: Vec<PathBuf> = BESIDE.iter().map(|page| root.join(page)).collect();
    let beside = pages.len();
    collect(&root.join("docs"), &mut pages)?;
    let mut faults = Vec::new();
    for page in &pages {
        let text = read(page)?;
        let shown = page.strip_prefix(root).unwrap_or(page).display();
        let folder = page.parent().unwrap_or(root);
        for (line, link) in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => page.clone(),
                path => folder.join(path),
            };
            if !target.exists() {
                faults.push(format!("{shown}:{line}: {link}: there is no such file"));
                continue;
            }
            // The site has the pages below docs and no other.
            let is_outside = target
                .canonicalize()
                .is_ok_and(|path| !path.starts_with(root.join("docs")));
            if page.starts_with(root.join("docs")) && is_outside {
                faults.push(format!("{shown}:{line}: {link}: not a page of the site"));
            }
            if !anchor.is_empty()
                && target.extension().is_some_and(|end| end == "md")
                && !anchors(&read(&target)?).contains(anchor)
            {
                faults.push(format!("{shown}:{line}: {link}: there is no such heading"));
            }
        }
    }
    let summary = root.join(SUMMARY);
    let listed: BTreeSet<PathBuf> = links(&read(&summary)?)
        .into_iter()
        .map(|(_, link)| root.join("docs").join(link))
        .collect();
    for page in &pages[beside..] {
        if *page != summary && !listed.contains(page) {
            let shown = page.strip_prefix(root).unwrap_or(page).display();
            faults.push(format!("{shown}: not listed in {SUMMARY}"));
        }
    }
    Ok(faults)
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let fail = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(fail)?;
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(fail)?.path());
    }
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|end| end == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

/// Returns the targets of links outside of code, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in outside_of_code(text) {
        // What stands between backticks is code.
        let prose: Vec<&str> = line.split('`').collect();
        let mut whole = String::new();
        for (at, part) in prose.iter().enumerate() {
            whole += if at % 2 == 0 { part } else { "code" };
        }
        for rest in whole.split("](").skip(1) {
            if let Some((link, _)) = rest.split_once(')') {
                found.push((number, link.to_owned()));
            }
        }
    }
    found
}

fn outside_of_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    lines.filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the anchors of a page's headings: in lower case, without punctuation, with dashes for blanks.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = outside_of_code(text).filter(|(_, line)| line.starts_with('#'));
    let anchor = |(_, line): (usize, &str)| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_between_pages_lead_somewhere() {
        assert_eq!(faults(&workspace()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let text = "# A b, `c`!\n[x](a.md#b) `[y](z)`\n```\n[n](o)\n```\n- [p](q.md), [r](s.md)\n";
        let found: Vec<String> = links(text).into_iter().map(|(_, link)| link).collect();
        assert_eq!(found, ["a.md#b", "q.md", "s.md"]);
        assert!(anchors(text).contains("a-b-c"));
    }
}
