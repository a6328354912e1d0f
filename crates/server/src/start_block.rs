//! The lines that the log begins with: what the server was told to do, and what it does not do of it.
//!
//! Must not know: how settings are read, how the server works.

use std::path::{Path, PathBuf};

use redline_settings::value::memory_text;

use redline_doctor::{Machine, State};

use crate::{config::report::asked_in_vain, examine, log, settings::Settings};

/// Checks of the machine that concern every server; `redline doctor` has more.
const AT_START: [&str; 5] = [
    "transparent huge pages",
    "overcommit",
    "listen backlog",
    "memory",
    "CPUs",
];

/// Logs where the settings come from, the limit on memory, what is saved, who is let in, and what has no effect.
pub(crate) fn log(settings: &Settings, config_file: Option<&Path>) {
    match config_file {
        Some(path) => log::notice(&format!("Configuration file: {}", path.display())),
        None => log::notice("No configuration file: using defaults and the command line"),
    }
    log::notice(&memory(settings));
    log::notice(&saving(settings));
    log::notice(who_is_let_in(settings));
    if let Some(line) = asked_in_vain(settings) {
        log::warning(&line);
    }
    let found = redline_doctor::examine_system(&Machine::default(), &examine::wanted(settings));
    let costs = found.iter().filter(|one| {
        matches!(one.state, State::Warning | State::Fault) && AT_START.contains(&one.check)
    });
    for one in costs {
        let mend = one.mend.as_deref().unwrap_or("redline doctor says more");
        log::warning(&format!("WARNING {}: {} ({mend})", one.check, one.text));
    }
}

fn who_is_let_in(settings: &Settings) -> &'static str {
    let has_users = settings.aclfile.is_some() || !settings.acl_user_lines.is_empty();
    match (settings.requirepass.is_some(), settings.protected_mode) {
        (true, _) => "The default user has a password",
        (false, true) => {
            "Protected mode is on: while the default user has no password, clients of other hosts are refused"
        }
        (false, false) if has_users => {
            "Protected mode is off: users are those of the configuration"
        }
        (false, false) => {
            "Protected mode is off, and the default user has no password: whoever reaches the port can do everything"
        }
    }
}

fn memory(settings: &Settings) -> String {
    match settings.maxmemory_bytes {
        0 => "maxmemory: no limit".into(),
        bytes => {
            format!(
                "maxmemory {}, maxmemory-policy {}",
                memory_text(bytes),
                settings.maxmemory_policy.name()
            )
        }
    }
}

fn saving(settings: &Settings) -> String {
    let folder = settings.service.dir.clone();
    let folder = folder.or_else(|| std::env::current_dir().ok());
    let in_folder = |name: &str| -> PathBuf { folder.clone().unwrap_or_default().join(name) };
    let points: Vec<String> = settings
        .save_points
        .iter()
        .map(|(seconds, changes)| format!("{seconds} {changes}"))
        .collect();
    let append = format!(
        "append-only file: {}",
        in_folder(&settings.append_dir_name).display()
    );
    match (points.is_empty(), settings.appends) {
        (true, false) => "Nothing is saved: save is empty and appendonly is no".into(),
        (true, true) => format!("Snapshots: on demand only; {append}"),
        (false, appends) => format!(
            "Snapshots: {} (save {}); {}",
            in_folder(&settings.db_filename).display(),
            points.join(" "),
            match appends {
                true => append,
                false => "append-only file: off".into(),
            }
        ),
    }
}
