//! `redline convert`: which program a configuration or a command line is of, and where the result goes.
//!
//! Must not know the form of any of them.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use redline_bench::convert::{self, Tool};
use redline_proxy::foreign::{self, Origin};
use redline_server::config::convert as of_server;
use redline_server::console;

/// Text of `--help`.
const USAGE: &str = "\
Usage: redline convert [FROM] FILE [--strict]
       redline convert [FROM] -- COMMAND LINE

Prints what another program's configuration or command line is here, and notes on what differs on standard error.
Without FROM, the program is recognised by the content, and named.

  FROM                                what                    result
  redis, valkey, keydb                redis.conf              a configuration of redline server
  dragonfly                           flags, one a line       the same
  predixy                             predixy.conf            a configuration of redline proxy (TOML)
  nutcracker                          nutcracker.yml          the same
  sentinel                            sentinel.conf           the same, with its primaries as pools
  memtier, redis-benchmark            a command line          lines of redline bench run

  redline convert /etc/redis/redis.conf > redline.conf
  redline convert nutcracker.yml > proxy.toml
  redline convert -- memtier_benchmark --test-time 30 --ratio 1:10

Exit code: 0; 1 if nothing could be converted, and with --strict if something was lost.
";

/// A program whose configuration or command line is converted.
#[derive(Clone, Copy, PartialEq)]
enum From {
    Server,
    Dragonfly,
    Proxy(Origin),
    Bench(Tool),
}

const NAMES: &[(&str, From)] = &[
    ("redis", From::Server),
    ("valkey", From::Server),
    ("keydb", From::Server),
    ("dragonfly", From::Dragonfly),
    ("predixy", From::Proxy(Origin::Predixy)),
    ("nutcracker", From::Proxy(Origin::Nutcracker)),
    ("twemproxy", From::Proxy(Origin::Nutcracker)),
    ("sentinel", From::Proxy(Origin::Sentinel)),
    ("memtier", From::Bench(Tool::Memtier)),
    ("memtier_benchmark", From::Bench(Tool::Memtier)),
    ("redis-benchmark", From::Bench(Tool::RedisBenchmark)),
    ("valkey-benchmark", From::Bench(Tool::RedisBenchmark)),
];

/// Returns the names by which programs are called.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

/// The text that was made, and notes with true for what was lost.
struct Done {
    text: Vec<u8>,
    notes: Vec<(String, bool)>,
}

/// Runs it.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = args.collect();
    let ours = words.iter().take_while(|word| *word != "--");
    if ours.clone().any(|word| word == "--help" || word == "-h") {
        return match console::out(USAGE) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => failed(&why),
        };
    }
    match run(words) {
        Ok(code) => code,
        Err(why) => failed(&why),
    }
}

fn run(words: Vec<OsString>) -> Result<ExitCode, String> {
    let at = words.iter().position(|word| word == "--");
    let (ours, line) = match at {
        Some(at) => (&words[..at], Some(&words[at + 1..])),
        None => (&words[..], None),
    };
    let is_strict = ours.iter().any(|word| word == "--strict");
    let mut ours: Vec<&OsString> = ours.iter().filter(|word| *word != "--strict").collect();
    if let Some(option) = ours.iter().find(|word| is_option(word)) {
        return Err(format!(
            "{}: no such option. See redline convert --help",
            option.display()
        ));
    }
    let named = ours.first().and_then(|word| named(word));
    // A file may have a program's name.
    let from = named.filter(|_| ours.len() > 1 || line.is_some() || !Path::new(ours[0]).exists());
    if from.is_some() {
        ours.remove(0);
    }
    let done = match (line, &ours[..]) {
        (Some(line), []) => of_line(from, line)?,
        (None, [file]) => of_file(from, Path::new(file))?,
        (None, [first, _]) if from.is_none() => {
            let shown = first.to_string_lossy();
            let meant = redline_spec::nearest(&shown, NAMES.iter().map(|(name, _)| *name));
            let meant = meant.map(|meant| format!("; did you mean \"{meant}\"?"));
            return Err(format!(
                "{shown}: no program whose files are converted{} See redline convert --help",
                meant.unwrap_or_else(|| ".".into())
            ));
        }
        _ => return Err("one file, or -- and a command line. See redline convert --help".into()),
    };
    for (note, is_lost) in &done.notes {
        let kind = if *is_lost { "lost" } else { "note" };
        console::line_to_stderr(&format!("{kind}: {note}"));
    }
    console::out_bytes(&done.text)?;
    let has_lost = done.notes.iter().any(|(_, is_lost)| *is_lost);
    Ok(match is_strict && has_lost {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

fn is_option(word: &OsString) -> bool {
    word.to_string_lossy().starts_with('-')
}

fn named(word: &OsString) -> Option<From> {
    let found = NAMES.iter().find(|(name, _)| word == name);
    found.map(|(_, from)| *from)
}

fn of_line(from: Option<From>, line: &[OsString]) -> Result<Done, String> {
    let words: Vec<String> = line
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let (tool, args) = match (from, convert::tool_of(&words)) {
        // The program's name may stand there as well.
        (Some(From::Bench(tool)), Some((called, args))) if called == tool => (tool, args),
        (Some(From::Bench(tool)), _) => (tool, words),
        (None, Some(found)) => found,
        (None, None) => {
            return Err("-- and a command line that begins with memtier_benchmark or redis-benchmark, or FROM before it".into());
        }
        _ => return Err("this program's files are converted, and no command line".into()),
    };
    let runs = convert::convert(tool, &args)?;
    let mut text = String::new();
    for run in &runs.runs {
        text += &convert::line_of(run);
        if let Some(path) = &runs.out_file {
            text += &format!(" > {}", convert::quoted(&path.to_string_lossy()));
        }
        text.push('\n');
    }
    let notes = runs.notes.into_iter().map(|note| (note.text, note.is_lost));
    Ok(Done {
        text: text.into_bytes(),
        notes: notes.collect(),
    })
}

fn of_file(from: Option<From>, path: &Path) -> Result<Done, String> {
    let bytes = foreign::bytes_of(path)?;
    let shown = path.display();
    let from = match from {
        Some(from) => from,
        None => {
            let text = String::from_utf8_lossy(&bytes);
            let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
            let (name, from) = match Origin::of(text) {
                Some(origin) => (origin.name(), From::Proxy(origin)),
                None if of_server::are_flags(&bytes) => ("Dragonfly", From::Dragonfly),
                None => ("redis-server", From::Server),
            };
            console::line_to_stderr(&format!("note: {shown}: taken for a file of {name}"));
            from
        }
    };
    let head = format!("# Converted from {shown} by redline convert.\n").into_bytes();
    match from {
        From::Server | From::Dragonfly => {
            let name = shown.to_string();
            let done = match from {
                From::Dragonfly => of_server::convert_flags(&name, &bytes),
                _ => of_server::convert(&name, &bytes),
            };
            let done = done.map_err(|faults| faults.join("\n"))?;
            Ok(Done {
                text: [head, done.text].concat(),
                notes: done.notes,
            })
        }
        From::Proxy(origin) => {
            let done = foreign::convert(origin, path, bytes)?;
            let mut text = head;
            for (note, _) in &done.notes {
                let note = note.replace(['\n', '\r'], " ");
                text.extend_from_slice(format!("# {note}\n").as_bytes());
            }
            text.extend_from_slice(done.toml.as_bytes());
            Ok(Done {
                text,
                notes: done.notes,
            })
        }
        From::Bench(tool) => {
            let name = tool.name();
            Err(format!(
                "{name} has no file: its command line stands behind --"
            ))
        }
    }
}

fn failed(why: &str) -> ExitCode {
    console::line_to_stderr(&format!("redline convert: {}", why.trim_end()));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_is_named_in_the_help() {
        for (at, name) in names().enumerate() {
            assert!(names().skip(at + 1).all(|other| other != name), "{name}");
            assert!(named(&OsString::from(name)).is_some());
        }
        let table = USAGE.lines().filter(|line| line.starts_with("  "));
        let table: String = table.collect();
        for name in [
            "redis",
            "keydb",
            "dragonfly",
            "predixy",
            "nutcracker",
            "sentinel",
            "memtier",
        ] {
            assert!(table.contains(name), "{name}");
        }
        assert!(is_option(&OsString::from("--strict")) && !is_option(&OsString::from("a")));
    }
}
