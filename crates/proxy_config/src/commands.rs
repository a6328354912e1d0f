//! Names of commands in a configuration, and their rows in the command table. Knows no option.

use redline_spec::{self as spec, CommandId};

/// Commands that concern every key of every server: see `Commands::permitted`.
pub const OF_EVERYTHING: [&str; 3] = ["flushall", "flushdb", "keys"];
/// Commands of the proxy that Redis does not have.
pub const OWN: [&str; 5] = [
    "proxy",
    "proxy|bigkeys",
    "proxy|help",
    "proxy|hotkeys",
    "config|reload",
];

/// Returns the numbers of a name: `get`, `config|set`, or `config` with all its subcommands.
pub fn ids_of(name: &str) -> Vec<CommandId> {
    let (name, sub) = match name.split_once(['|', ' ']) {
        Some((name, sub)) => (name, Some(sub)),
        None => (name, None),
    };
    let Some(id) = spec::lookup(name.as_bytes()) else {
        return Vec::new();
    };
    match sub {
        Some(sub) => spec::lookup_subcommand(id, sub.as_bytes())
            .into_iter()
            .collect(),
        None => {
            let start = format!("{}|", spec::row(id).full_name);
            let subs = spec::table::all()
                .iter()
                .filter(|row| row.full_name.starts_with(&start));
            std::iter::once(id).chain(subs.map(|row| row.id)).collect()
        }
    }
}
