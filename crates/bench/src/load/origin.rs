//! Where a result comes from: the machine, its kernel, and the command line without its secrets.

use std::fs;

use redline_net::{cpu, process};
use serde::{Deserialize, Serialize};

/// The machine of the generator and the command line of a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The command line; passwords are replaced.
    pub command_line: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the CPU, if the kernel names it.
    pub cpu: String,
    /// CPUs that the process may use.
    pub cpus: usize,
    /// Memory of the machine in bytes; 0 if it is not known.
    pub memory_bytes: u64,
}

/// Replaces a secret.
const HIDDEN: &str = "***";
/// Options of the sub-commands whose value is a secret.
const SECRET_OPTIONS: [&str; 3] = ["-a", "-3a", "--password"];

impl Origin {
    /// Returns this machine, with the command line of these words.
    pub fn here<'w>(words: impl IntoIterator<Item = &'w [u8]>) -> Origin {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Origin {
            command_line: command_line(words),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: model(&read("/proc/cpuinfo")),
            cpus: cpu::usable_count(),
            memory_bytes: process::machine_memory_bytes().unwrap_or(0),
        }
    }

    /// Returns the machine in words.
    pub fn machine(&self) -> String {
        let cpu = match self.cpu.as_str() {
            "" => "CPU",
            model => model,
        };
        let mut text = format!("{} x {cpu}", self.cpus);
        if self.memory_bytes > 0 {
            text += &format!(", {:.1} GB of memory", self.memory_bytes as f64 / 1e9);
        }
        text
    }
}

fn model(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':'));
    name.map_or(String::new(), |(_, name)| name.trim().to_owned())
}

fn command_line<'w>(words: impl IntoIterator<Item = &'w [u8]>) -> String {
    format!("redline bench {}", shown(words))
}

/// Returns words as a shell takes them, with their secrets replaced.
pub fn shown<'w>(words: impl IntoIterator<Item = &'w [u8]>) -> String {
    let mut out = Vec::new();
    let mut is_secret = false;
    for word in words {
        let word = String::from_utf8_lossy(word);
        let shown = match (is_secret, secret_of(&word)) {
            (true, _) => HIDDEN.to_owned(),
            (false, Some(option)) => format!("{option}{HIDDEN}"),
            (false, None) => without_user_info(&word),
        };
        is_secret = !is_secret && SECRET_OPTIONS.contains(&word.as_ref());
        out.push(quoted(&shown));
    }
    out.join(" ")
}

/// Returns the option of a word that is an option with a secret behind it.
fn secret_of(word: &str) -> Option<&'static str> {
    SECRET_OPTIONS.into_iter().find_map(|option| {
        let rest = word.strip_prefix(option)?;
        match option.strip_prefix("--") {
            Some(_) => rest.starts_with('=').then_some("--password="),
            None => (!rest.is_empty()).then_some(option),
        }
    })
}

/// Returns a URI with its password replaced; any other word is left as it is.
fn without_user_info(word: &str) -> String {
    let parts = word.split_once("://").and_then(|(scheme, rest)| {
        let (info, place) = rest.rsplit_once('@')?;
        let (user, _) = info.split_once(':').unwrap_or(("", info));
        Some(format!("{scheme}://{user}:{HIDDEN}@{place}"))
    });
    parts.unwrap_or_else(|| word.to_owned())
}

/// Returns a word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+:./,@%*".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> String {
        command_line(words.split('|').map(str::as_bytes))
    }

    #[test]
    fn a_command_line_can_be_typed_again() {
        assert_eq!(
            line("run|--command|GET key:{uniform:10}|--x|it's|"),
            r"redline bench run --command 'GET key:{uniform:10}' --x 'it'\''s' ''"
        );
    }

    #[test]
    fn passwords_are_not_in_it() {
        for words in [
            "run|-a|hush",
            "run|-ahush",
            "run|-3a|hush",
            "run|--password|hush",
            "run|--password=hush",
            "run|-u|redis://me:hush@host:1/2",
            "run|-u|redis://hush@host:1",
            "run|--sentinel|redis://:hu@hush@host:1",
        ] {
            let line = line(words);
            assert!(!line.contains("hush") && line.contains("***"), "{line}");
        }
    }

    #[test]
    fn the_machine_is_named() {
        assert_eq!(
            model("processor : 0\nmodel name\t: Some CPU 3\n"),
            "Some CPU 3"
        );
        assert_eq!(model(""), "");
        let origin = Origin::here([]);
        assert!(origin.cpus > 0 && !origin.kernel.is_empty() && origin.memory_bytes > 0);
        assert!(origin.machine().contains(" x "));
    }
}
