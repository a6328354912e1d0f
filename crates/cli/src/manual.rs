//! Pages of docs/reference, made of the tables of commands and parameters and of the description of the command line.
//!
//! A test compares them with the files; with `REDLINE_WRITE_REFERENCE=1` it writes them.

use clap::Command;
use redline_server::command_line::parameters;
use redline_spec::{Plane, Row, table};

/// A page: its file below docs/reference, and its text.
type Page = (&'static str, String);

/// Returns all pages; `command` is the description of the whole command line.
pub fn pages(command: Command) -> Vec<Page> {
    vec![
        ("commands.md", commands()),
        ("parameters.md", parameters_page()),
        ("options.md", options(command)),
    ]
}

const MADE: &str = "<!-- Made of the program's tables; cargo xtask docs writes it again. -->\n\n";

fn commands() -> String {
    let mut text = format!(
        "# Commands\n\n{MADE}Every command of the server, by group: its arguments, the version of Redis (or Valkey) that introduced it, and what it \
         costs. Where a reply differs from Redis's, [Differences from Redis](../differences.md) says so; types of modules are in \
         [Types beyond Redis's own](../types.md).\n"
    );
    let rows: Vec<&Row> = table::all()
        .iter()
        .filter(|row| row.plane != Plane::Container)
        .collect();
    let mut groups: Vec<&str> = Vec::new();
    for row in &rows {
        let name = row.group.name();
        if !groups.contains(&name) {
            groups.push(name);
        }
    }
    for group in groups {
        text += &format!(
            "\n## {}\n\n| command | since | complexity | |\n|---|---|---|---|\n",
            title(group)
        );
        let mut rows: Vec<&&Row> = rows
            .iter()
            .filter(|row| row.group.name() == group)
            .collect();
        rows.sort_by_key(|row| row.full_name.to_ascii_lowercase());
        for row in rows {
            text += &format!(
                "| `{}` | {} | {} | {} |\n",
                code(&row.syntax()),
                row.since,
                cell(row.complexity),
                cell(row.summary)
            );
        }
    }
    text
}

fn parameters_page() -> String {
    let mut text = format!(
        "# Parameters\n\n{MADE}Every parameter of `redline server`, as a line of its configuration, as `--NAME VALUE`, and for CONFIG GET. \
         Those that CONFIG SET changes while the server runs are marked *live*. `redline server --help NAME` says the same, and \
         `redline server --check-config FILE` what each line of a file does.\n"
    );
    let mut group = "";
    for one in parameters().filter(|one| one.is_effective) {
        if one.group != group {
            group = one.group;
            text += &format!(
                "\n## {group}\n\n| parameter | default | changed | |\n|---|---|---|---|\n"
            );
        }
        let values = one.values.map(|values| format!(" Values: {values}."));
        text += &format!(
            "| `{}` | {} | {} | {} |\n",
            one.name,
            match one.default {
                "" => String::new(),
                default => format!("`{}`", code(default)),
            },
            if one.is_live { "live" } else { "start" },
            cell(&format!("{}{}", one.doc, values.unwrap_or_default()))
        );
    }
    text += "\n## Accepted, without effect\n\nNames of Redis and Valkey that a configuration may have; what they are for is not needed here, or not \
             built.\n\n| parameter | |\n|---|---|\n";
    for one in parameters().filter(|one| !one.is_effective) {
        text += &format!("| `{}` | {} |\n", one.name, cell(one.doc));
    }
    text
}

fn options(command: Command) -> String {
    let mut text = format!(
        "# Options\n\n{MADE}What each part's `--help` says. The server's options are its [parameters](parameters.md).\n"
    );
    for path in [
        &["bench", "run"][..],
        &["bench", "compare"],
        &["bench", "failover"],
        &["bench", "report"],
        &["proxy"],
        &["ping"],
        &["doctor"],
        &["convert"],
        &["check-aof"],
        &["check-rdb"],
    ] {
        let mut found = &command;
        for name in path {
            found = found.find_subcommand(name).expect("a part that is there");
        }
        let name = format!("redline {}", path.join(" "));
        let mut found = found.clone().bin_name(&name).term_width(100);
        let help = found.render_long_help().to_string();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        text += &format!("\n## {name}\n\n```text\n{}\n```\n", lines.join("\n").trim());
    }
    text
}

/// Returns code for a cell of a table.
fn code(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Returns text for a cell of a table: nothing in it is markup of a page.
fn cell(text: &str) -> String {
    let text = code(text).replace('<', "&lt;");
    text.replace('*', "\\*").replace('_', "\\_")
}

/// Returns a group's name as a heading.
fn title(name: &str) -> String {
    let mut letters = name.replace(['_', '-'], " ").chars().collect::<Vec<_>>();
    if let Some(first) = letters.first_mut() {
        first.make_ascii_uppercase();
    }
    letters.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::reference::whole;

    #[test]
    fn the_pages_of_docs_reference_are_current() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        let writes = std::env::var_os("REDLINE_WRITE_REFERENCE").is_some();
        for (name, text) in pages(whole()) {
            let path = folder.join(name);
            if writes {
                fs::create_dir_all(&folder).unwrap();
                fs::write(&path, &text).unwrap();
            }
            let kept = fs::read_to_string(&path).unwrap_or_default();
            let same = kept.lines().zip(text.lines()).take_while(|(a, b)| a == b);
            assert!(
                kept == text,
                "docs/reference/{name} is not current from line {} on: cargo xtask docs writes it",
                same.count() + 1
            );
        }
    }

    #[test]
    fn cells_hold_no_markup() {
        assert_eq!(cell("a|b <c> *_*"), "a\\|b &lt;c> \\*\\_\\*");
        assert_eq!(code("[A | B]"), "[A \\| B]");
        assert_eq!(title("sorted-set"), "Sorted set");
    }
}
