//! Command lines of other load generators as options of `redline bench run`.
//!
//! | file | holds |
//! |---|---|
//! | `memtier` | memtier_benchmark's |
//! | `redis_benchmark` | redis-benchmark's, and valkey-benchmark's |
//! | `table` | memtier_benchmark's options, and their names here |

mod memtier;
mod redis_benchmark;
pub mod table;

use std::path::PathBuf;

use redline_resp::split_words;

use crate::load::arguments::RunArguments;

/// A load generator whose command line is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// memtier_benchmark.
    Memtier,
    /// redis-benchmark, or valkey-benchmark.
    RedisBenchmark,
}

impl Tool {
    /// Returns the program's name.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Memtier => "memtier_benchmark",
            Tool::RedisBenchmark => "redis-benchmark",
        }
    }
}

/// Runs that do what another tool's command line asks for.
#[derive(Debug, Default)]
pub struct Runs {
    /// Options of `redline bench run`, for each run.
    pub runs: Vec<Vec<String>>,
    /// The file that standard output goes to, if any.
    pub out_file: Option<PathBuf>,
    /// Notes on options.
    pub notes: Vec<Note>,
}

/// A note on an option of another tool.
#[derive(Debug)]
pub struct Note {
    /// The option, and what became of it.
    pub text: String,
    /// True if the run lacks something that was asked for.
    pub is_lost: bool,
}

impl Runs {
    fn same(&mut self, option: &str, what: impl std::fmt::Display) {
        self.note(option, what, false);
    }

    fn lost(&mut self, option: &str, what: impl std::fmt::Display) {
        self.note(option, what, true);
    }

    fn note(&mut self, option: &str, what: impl std::fmt::Display, is_lost: bool) {
        let text = format!("{option}: {what}");
        self.notes.push(Note { text, is_lost });
    }
}

/// Returns the runs of a tool's arguments. An error names the option.
pub fn convert(tool: Tool, args: &[String]) -> Result<Runs, String> {
    let runs = match tool {
        Tool::Memtier => memtier::convert(args)?,
        Tool::RedisBenchmark => redis_benchmark::convert(args)?,
    };
    for words in &runs.runs {
        let words = words.iter().map(String::as_str);
        let parsed = RunArguments::parse_words(words);
        let parsed = parsed.map_err(|error| error.render().to_string());
        let plan = parsed.and_then(RunArguments::plan);
        plan.map_err(|why| format!("{}: {}", tool.name(), why.trim_end()))?;
    }
    Ok(runs)
}

/// Parses a command line as a shell would: words, quotes, escapes; the program's name and what stands before it are left
/// out, as are a prompt and redirections.
pub fn tool_of_line(line: &str) -> Result<Option<(Tool, Vec<String>)>, String> {
    let words = split_words(line.as_bytes());
    let words = words.ok_or_else(|| format!("{line}: the quotes are not balanced"))?;
    let words: Vec<String> = words
        .into_iter()
        .map(|word| String::from_utf8_lossy(&word).into_owned())
        .collect();
    Ok(tool_of(&words))
}

/// Returns the tool that words call, and the arguments behind its name.
pub fn tool_of(words: &[String]) -> Option<(Tool, Vec<String>)> {
    let tool = |word: &String| {
        let name = word.rsplit('/').next().unwrap_or_default();
        match name {
            "memtier_benchmark" => Some(Tool::Memtier),
            "redis-benchmark" | "valkey-benchmark" => Some(Tool::RedisBenchmark),
            _ => None,
        }
    };
    let at = words.iter().position(|word| tool(word).is_some())?;
    Some((tool(&words[at])?, words[at + 1..].to_vec()))
}

/// Returns a run as a line for a shell.
pub fn line_of(words: &[String]) -> String {
    let mut line = String::from("redline bench run");
    for word in words {
        line.push(' ');
        line += &quoted(word);
    }
    line
}

/// Quotes a word for a shell, if it needs that.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Escapes text of a template that is no placeholder.
fn literal(text: &str) -> String {
    text.replace('{', "{{")
}

/// Quotes a word of a template, if it would be split or end there.
fn template_word(word: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !"\"'\\;".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => {
            let escaped = word.replace('\\', "\\\\").replace('"', "\\\"");
            let escaped = escaped.replace('\n', "\\n").replace('\r', "\\r");
            format!("\"{escaped}\"")
        }
    }
}

#[cfg(test)]
mod tests;
