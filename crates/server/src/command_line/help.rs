//! The texts of `redline server --help`: all of it, one parameter, or one section. All of it is derived from the table of
//! parameters. Must not know: the effects of parameters.

use redline_net::console;
use redline_spec::nearest;

use redline_settings::value::Syntax;

use crate::config::{Class, Parameter, file::quoted, find, table};

/// Longest line of a text, in columns.
const COLUMNS_MAX: usize = 100;

const USAGE: &str = "\
Usage: redline server [/path/to/redis.conf] [-] [--parameter value ...]

A configuration file comes first; - reads configuration from standard input. The last value of a parameter counts.

  redline server                            Start with defaults, on port 6379.
  redline server /etc/redis/6379.conf       Start with a configuration file of redis-server.
  redline server --port 7000 --threads 2    Start with parameters.
  echo 'maxmemory 128mb' | redline server -
  redline server --check-config redis.conf  Report what each line of a configuration does, and exit; with --json
                                            for programs, with --strict lines without effect are a failure.
  redline server --test-memory 4096         Test 4096 megabytes of memory and exit.
  redline server --print-defaults           Print a configuration file with every default, in comments, and exit.
  redline server --version                  Print the version and exit.
  redline server --help [NAME]              Print this text, or one parameter or group of it, and exit.
";

/// Options of other programs that have another name here.
const OTHERS: &[(&[u8], &str)] = &[
    (b"-p", "--port"),
    (b"-a", "--requirepass"),
    (b"-s", "--unixsocket"),
    (b"-t", "--threads"),
    (b"-c", "--check-config"),
    (b"-d", "--daemonize"),
];

/// A parameter as references, completions and manual pages show it.
pub struct Described {
    /// Its name, without dashes.
    pub name: &'static str,
    /// Title of its group.
    pub group: &'static str,
    /// Its description.
    pub doc: &'static str,
    /// Its default.
    pub default: &'static str,
    /// Its values in words, if they are limited.
    pub values: Option<String>,
    /// Its values, if they are words of a list.
    pub words: &'static [&'static str],
    /// True if its value is a path.
    pub is_path: bool,
    /// True if it has an effect.
    pub is_effective: bool,
    /// True if it can be changed while the server runs.
    pub is_live: bool,
}

/// Returns all parameters, in the order of the table.
pub fn parameters() -> impl Iterator<Item = Described> {
    table::ROWS.iter().map(|row| Described {
        name: row.name,
        group: row.section,
        doc: row.doc,
        default: row.default,
        values: row.values(),
        words: match row.syntax {
            Syntax::Choice(words) | Syntax::Bits(words) => words,
            Syntax::Switch => &["yes", "no"],
            _ => &[],
        },
        is_path: ["file", "socket", "-dir"]
            .iter()
            .any(|end| row.name.ends_with(end)),
        is_effective: row.is_effective(),
        is_live: row.class == Class::Live,
    })
}

/// Prints a text in the terminal's width.
pub(super) fn show(text: &str) -> Result<(), String> {
    console::out(&match console::columns() {
        Some(columns) if columns < COLUMNS_MAX => narrowed(text, columns),
        _ => text.to_owned(),
    })
}

/// Returns a text in lines of at most so many columns, as far as words allow; the rest of a line is as deep as its beginning.
fn narrowed(text: &str, columns: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        let mut column = 0;
        for (at, word) in line.split(' ').enumerate() {
            // Blanks in a row are empty words.
            if at > 0 && column + 1 + word.len() > columns && column > depth && !word.is_empty() {
                out.truncate(out.trim_end_matches(' ').len());
                out.push('\n');
                out.push_str(&" ".repeat(depth));
                column = depth;
            } else if at > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += word.len();
        }
        out.push('\n');
    }
    out
}

/// Returns a configuration file in which every parameter with an effect stands in a comment, with its default.
pub(super) fn annotated() -> String {
    let mut text = String::from(
        "# Configuration of redline server: every parameter with its default, in a comment.\n\
         # redline server --help NAME says more; --check-config FILE reports what each line does.\n",
    );
    for section in table::SECTIONS {
        let mut rows = rows_of(section.title)
            .filter(|row| row.is_effective())
            .peekable();
        if rows.peek().is_none() {
            continue;
        }
        text.push_str(&format!("\n# ---- {} ----\n", section.title));
        for row in rows {
            let mut about = String::new();
            let values = row.values().map(|values| format!(" Values: {values}."));
            wrap(
                &format!("{}{}", row.doc, values.unwrap_or_default()),
                "",
                &mut about,
            );
            text.push('\n');
            for line in about.lines() {
                text.push_str(&format!("# {}\n", line.trim_start()));
            }
            let default = match row.default {
                "" => "\"\"".to_owned(),
                many if row.syntax.is_wordy() => many.to_owned(),
                one => String::from_utf8_lossy(&quoted(one.as_bytes())).into_owned(),
            };
            text.push_str(&format!("# {} {default}\n", row.name));
        }
    }
    text
}

/// Returns the whole text.
pub(super) fn all() -> String {
    let mut text = String::from(USAGE);
    let groups: Vec<&str> = table::SECTIONS.iter().map(|one| one.title).collect();
    wrap(&format!("Groups: {}.", groups.join("; ")), "", &mut text);
    text.push_str(
        "
Parameters with their defaults; * marks those that CONFIG SET changes while the server runs.
A size may have a unit: kb, mb and gb are powers of 1024; k, m and g are powers of 1000.
",
    );
    for section in table::SECTIONS {
        let rows = rows_of(section.title).filter(|row| row.is_effective());
        for (at, row) in rows.enumerate() {
            if at == 0 {
                text.push_str(&format!("\n{}:\n\n", section.title));
            }
            describe(row, &mut text);
        }
    }
    text.push_str("\nParameters of features that do not exist yet: the server does not start with a value that asks for one.\n\n");
    let unbuilt = table::ROWS.iter().filter(|row| !row.is_effective());
    for row in unbuilt {
        if let Some(part) = row.unbuilt_part() {
            text.push_str(&format!("  {}: {part}\n", row.name));
        }
    }
    text.push_str(
        "\nOther parameters of Redis and Valkey are accepted and have no effect (--help NAME says why):\n\n",
    );
    for section in table::SECTIONS {
        let names: Vec<&str> = idle_names(section.title).collect();
        if !names.is_empty() {
            let line = format!("{}: {}", section.title, names.join(" "));
            wrap(&line, "  ", &mut text);
        }
    }
    text
}

/// Returns the text of one parameter or of a section, whose name may be the beginning of its title.
pub(super) fn of(name: &[u8]) -> Result<String, String> {
    let bare = name.strip_prefix(b"--").unwrap_or(name);
    if let Some(parameter) = find(bare) {
        return Ok(in_full(parameter));
    }
    let shown = String::from_utf8_lossy(bare);
    let folded = shown.to_lowercase().replace(['-', '_'], " ");
    let section = table::SECTIONS.iter().find(|section| {
        !folded.is_empty()
            && section
                .title
                .to_lowercase()
                .replace('-', " ")
                .starts_with(&folded)
    });
    let Some(section) = section else {
        let known = table::ROWS.iter().flat_map(|row| row.names());
        let titles = table::SECTIONS.iter().map(|section| section.title);
        let meant = nearest(&shown, known.chain(titles));
        let meant = meant.map(|meant| format!("; did you mean \"{meant}\"?"));
        return Err(format!(
            "--help {shown}: no such parameter and no such group{} See redline server --help",
            meant.unwrap_or_else(|| ".".into())
        ));
    };
    let mut text = format!("{}:\n\n", section.title);
    for row in rows_of(section.title).filter(|row| row.is_effective()) {
        describe(row, &mut text);
    }
    let names: Vec<&str> = idle_names(section.title).collect();
    if !names.is_empty() {
        text.push('\n');
        let line = format!("Accepted, without effect: {}", names.join(" "));
        wrap(&line, "  ", &mut text);
    }
    Ok(text)
}

/// Returns the error for a word that begins with one dash, or with none where an option has to stand.
pub(super) fn no_such_option(word: &[u8]) -> String {
    let shown = String::from_utf8_lossy(word);
    let other = OTHERS.iter().find(|(known, _)| *known == word);
    let bare = shown.trim_start_matches('-');
    let meant = match other {
        Some((_, ours)) => Some((*ours).to_owned()),
        None if bare.len() < 3 => None,
        None => {
            let known = table::ROWS.iter().flat_map(|row| row.names());
            nearest(bare, known).map(|name| format!("--{name}"))
        }
    };
    let meant = meant.map(|meant| format!("; did you mean {meant}?"));
    format!(
        "{shown}: no such option{} See redline server --help",
        meant.unwrap_or_else(|| ".".into())
    )
}

fn rows_of(title: &str) -> impl Iterator<Item = &'static Parameter> {
    table::ROWS.iter().filter(move |row| row.section == title)
}

/// Returns the names of a section's parameters that are accepted without effect.
fn idle_names(title: &str) -> impl Iterator<Item = &'static str> {
    let idle = rows_of(title).filter(|row| !row.is_effective() && row.unbuilt_part().is_none());
    idle.map(|row| row.name)
}

/// Returns everything that the table says of a parameter.
fn in_full(row: &Parameter) -> String {
    let mut text = format!("{}\n", row.name);
    wrap(row.doc, "  ", &mut text);
    let default = match row.default {
        "" => "\"\"",
        default => default,
    };
    let changed = match row.class {
        Class::Live => "by CONFIG SET, while the server runs",
        Class::Start => "at the start only",
        Class::Inert => "by CONFIG SET; it has no effect",
        Class::InertFixed => "at the start only; it has no effect",
    };
    let facts = [
        ("Default", Some(default.to_owned())),
        ("Values", row.values()),
        ("Changed", Some(changed.to_owned())),
        ("Group", Some(row.section.to_owned())),
        ("Also", row.alias.map(str::to_owned)),
        (
            "Not built",
            row.unbuilt_part().map(|part| {
                format!("{part}; the server does not start with a value that asks for it")
            }),
        ),
    ];
    text.push('\n');
    for (name, fact) in facts {
        if let Some(fact) = fact {
            wrap(
                &format!("{:<10}{fact}", format!("{name}:")),
                "  ",
                &mut text,
            );
        }
    }
    text
}

/// Adds a parameter to a list.
fn describe(row: &Parameter, text: &mut String) {
    let star = if row.class == Class::Live { '*' } else { ' ' };
    let default = if row.default.is_empty() {
        "\"\""
    } else {
        row.default
    };
    let values = row.values().map(|values| format!(" Values: {values}."));
    let alias = row.alias.map(|alias| format!(" Also: {alias}."));
    let description = [
        row.doc,
        &values.unwrap_or_default(),
        &alias.unwrap_or_default(),
    ];
    text.push_str(&format!("{star} --{} {default}\n", row.name));
    wrap(&description.concat(), "      ", text);
}

/// Adds a paragraph in lines of at most [`COLUMNS_MAX`] columns; those behind the first are as deep as the first, or two
/// columns deeper.
fn wrap(paragraph: &str, indent: &str, text: &mut String) {
    let deeper = if indent.len() < 6 { 2 } else { 0 };
    text.push_str(indent);
    let mut column = indent.len();
    let mut is_first = true;
    for word in paragraph.split(' ') {
        if !is_first && column + 1 + word.len() > COLUMNS_MAX {
            text.push('\n');
            let depth = indent.len() + deeper;
            text.push_str(&" ".repeat(depth));
            column = depth;
        } else if !is_first {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.len();
        is_first = false;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_said_of_parameters_that_end_the_start_that_they_are_accepted() {
        let text = all();
        let (_, accepted) = text.rsplit_once("have no effect (").unwrap();
        let (_, unbuilt) = text.rsplit_once("do not exist yet: ").unwrap();
        let unbuilt = unbuilt.split("\n\n").nth(1).unwrap();
        let accepted: Vec<&str> = accepted.split_whitespace().collect();
        for (name, is_accepted) in [
            ("mptcp", false),
            ("repl-disable-tcp-nodelay", true),
            ("io-threads", true),
        ] {
            assert_eq!(accepted.contains(&name), is_accepted, "{name}");
            let line = format!("  {name}: ");
            let is_unbuilt = unbuilt.lines().any(|known| known.starts_with(&line));
            assert_eq!(is_unbuilt, !is_accepted, "{name}");
        }
    }

    #[test]
    fn help_has_every_parameter_with_an_effect_in_its_section() {
        let text = all();
        for row in table::ROWS.iter().filter(|row| row.is_effective()) {
            let line = format!(" --{} {}", row.name, row.default);
            let line = line.trim_end();
            let (before, _) = text.rsplit_once(line).expect(row.name);
            let title = before
                .lines()
                .rfind(|line| line.ends_with(':') && !line.starts_with(' '));
            assert_eq!(title, Some(&*format!("{}:", row.section)), "{}", row.name);
        }
        assert!(text.contains(
            "\n* --loglevel notice\n      Minimum log level. Values: debug, verbose, notice, warning or nothing.\n"
        ));
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(120), "{longest:?}");
    }

    #[test]
    fn help_is_as_wide_as_the_terminal() {
        for columns in [40, 60, 99] {
            let text = narrowed(&all(), columns);
            // A word alone may be longer.
            let long = text
                .lines()
                .find(|line| line.len() > columns && line.trim_start().contains(' '));
            assert_eq!(long, None, "{columns}");
            let words = |text: &str| -> Vec<String> {
                text.split_whitespace().map(str::to_owned).collect()
            };
            assert_eq!(words(&text), words(&all()));
        }
        assert_eq!(narrowed(&all(), 400), all());
    }

    #[test]
    fn a_group_is_found_by_the_beginning_of_its_title() {
        // A parameter goes before a group of its name.
        let groups = table::SECTIONS.iter();
        for section in groups.filter(|group| find(group.title.as_bytes()).is_none()) {
            let text = of(section.title.as_bytes()).unwrap();
            assert!(text.starts_with(section.title), "{text}");
        }
        assert!(of(b"script").unwrap().starts_with("Scripts, events"));
        assert!(of(b"append-only").is_ok() && of(b"").is_err());
    }

    #[test]
    fn every_default_of_the_annotated_file_is_what_holds_anyway() {
        let text = annotated();
        let settings: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| find(line.split(' ').next().unwrap_or("").as_bytes()).is_some())
            // A paragraph may begin with such a word.
            .filter(|line| !line.ends_with('.'))
            .filter(|line| !["replicaof \"\"", "dir \"\""].contains(line))
            .collect();
        let effective = table::ROWS.iter().filter(|row| row.is_effective()).count();
        assert_eq!(settings.len(), effective - 2);
        let mut loader = crate::config::file::Loader::default();
        loader.text("r.conf", settings.join("\n").as_bytes());
        let loaded = loader.finish().unwrap();
        let defaults = crate::Settings::default();
        for row in table::ROWS {
            assert_eq!(row.text(&loaded), row.text(&defaults), "{}", row.name);
        }
    }

    #[test]
    fn what_has_no_effect_says_why() {
        let idle = table::ROWS.iter().filter(|row| !row.is_effective());
        let silent = idle.filter(|row| row.section != "Cluster" && !row.doc.contains(": "));
        let silent: Vec<&str> = silent.map(|row| row.name).collect();
        assert!(silent.is_empty(), "{silent:?}");
    }
}
