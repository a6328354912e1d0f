//! `redline doctor`: looks at this machine, and at what a configuration needs of it, and says what is amiss and what mends it.
//!
//! | file | holds |
//! |---|---|
//! | `machine` | what the kernel says in `/proc` and `/sys` |
//! | `system` | checks of the kernel's settings and of limits |
//! | `places` | checks of addresses, folders, files and certificates |
//!
//! A check that cannot read what it needs says so; it is never OK. Must not know how a configuration is written, and changes
//! nothing.

#![forbid(unsafe_code)]

mod machine;
mod places;
mod system;

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

pub use machine::Machine;

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// All is well.
    Ok,
    /// It works, but not well.
    Warning,
    /// It does not work, or is dangerous.
    Fault,
    /// It could not be read.
    NotKnown,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// The verdict.
    pub state: State,
    /// The state of things, and its cost.
    pub text: String,
    /// A command or a change that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, text: impl Into<String>) -> Finding {
        Finding::of(check, State::Ok, text)
    }

    fn warning(check: &'static str, text: impl Into<String>) -> Finding {
        Finding::of(check, State::Warning, text)
    }

    fn fault(check: &'static str, text: impl Into<String>) -> Finding {
        Finding::of(check, State::Fault, text)
    }

    fn not_known(check: &'static str, text: impl Into<String>) -> Finding {
        Finding::of(check, State::NotKnown, text)
    }

    fn of(check: &'static str, state: State, text: impl Into<String>) -> Finding {
        Finding {
            check,
            state,
            text: text.into(),
            mend: None,
        }
    }

    fn mend(mut self, how: impl Into<String>) -> Finding {
        self.mend = Some(how.into());
        self
    }
}

/// A folder that is written to.
#[derive(Clone, Debug)]
pub struct Folder {
    /// Its use, in words.
    pub what: &'static str,
    /// Its path.
    pub path: PathBuf,
    /// Bytes that may be written there at once; 0: few.
    pub bytes: u64,
}

/// An address to listen on.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Host name or address; `*` and `::*` are any; one with a - before it may be missing.
    pub host: String,
    /// Port; 0: any.
    pub port: u16,
}

/// Needs of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Connections that may wait to be accepted: the number, and its name.
    pub backlog: Option<(u32, &'static str)>,
    /// Descriptors: the number, and its name.
    pub open_files: Option<(u64, &'static str)>,
    /// Limit on the memory of the data, in bytes; 0: none is set.
    pub memory_max_bytes: Option<u64>,
    /// Worker threads; 0: one for each CPU.
    pub threads: usize,
    /// Connections to other machines are opened.
    pub connects: bool,
    /// Addresses.
    pub listening: Vec<Listening>,
    /// Folders.
    pub folders: Vec<Folder>,
    /// Files that hold passwords or keys.
    pub private: Vec<PathBuf>,
    /// Certificates that are shown to others.
    pub certificates: Vec<PathBuf>,
    /// The reason why everybody who reaches the port can do everything, if that is so.
    pub open_to_all: Option<String>,
    /// Faults of the configuration itself.
    pub faults: Vec<String>,
}

/// Examines everything.
pub fn examine(machine: &Machine, wanted: &Wanted) -> Vec<Finding> {
    let faults = wanted.faults.iter();
    let mut found: Vec<Finding> = faults
        .map(|fault| Finding::fault("configuration", fault))
        .collect();
    found.extend(system::checks(machine, wanted));
    found.extend(places::checks(wanted));
    found
}

/// Examines what a server says at its start: settings of the kernel that cost it something.
pub fn examine_system(machine: &Machine, wanted: &Wanted) -> Vec<Finding> {
    system::checks(machine, wanted)
}

/// Returns findings as text: a line for each, and their number by state.
pub fn text(found: &[Finding]) -> String {
    let mut out = String::new();
    for one in found {
        let state = match one.state {
            State::Ok => "OK",
            State::Warning => "WARNING",
            State::Fault => "FAULT",
            State::NotKnown => "NOT KNOWN",
        };
        let _ = writeln!(out, "{state:<10}{}: {}", one.check, one.text);
        if let Some(mend) = &one.mend {
            let _ = writeln!(out, "{:<10}mend: {mend}", "");
        }
    }
    let count = |state| found.iter().filter(|one| one.state == state).count();
    let _ = writeln!(
        out,
        "{} OK, {} warnings, {} faults, {} not known",
        count(State::Ok),
        count(State::Warning),
        count(State::Fault),
        count(State::NotKnown)
    );
    out
}

/// Returns findings as JSON.
pub fn json(found: &[Finding]) -> String {
    let text = serde_json::to_string_pretty(found);
    text.expect("findings are texts and names") + "\n"
}

/// Returns the exit code: 2 with a fault, 1 with a warning, else 0.
pub fn exit_code(found: &[Finding]) -> u8 {
    let has = |state| found.iter().any(|one| one.state == state);
    match (has(State::Fault), has(State::Warning)) {
        (true, _) => 2,
        (_, true) => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_is_the_exit_code() {
        let (ok, unknown) = (Finding::ok("a", "b"), Finding::not_known("a", "b"));
        let (warning, fault) = (Finding::warning("a", "b"), Finding::fault("a", "b"));
        assert_eq!(exit_code(&[ok.clone(), unknown]), 0);
        assert_eq!(exit_code(&[ok, warning.clone()]), 1);
        assert_eq!(exit_code(&[fault.clone(), warning]), 2);
        let found = [fault.mend("do it")];
        let expected =
            "FAULT     a: b\n          mend: do it\n0 OK, 0 warnings, 1 faults, 0 not known\n";
        assert_eq!(text(&found), expected);
        assert!(json(&found).contains("\"state\": \"fault\""));
    }
}
