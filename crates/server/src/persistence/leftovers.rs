//! Files that a process leaves behind which is killed while it writes a snapshot or a base: they go at the next start.
//!
//! Must not know: what is in them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use redline_net::process;

use crate::log;

/// The names: what stands before and behind the number of the process.
const NAMES: [(&str, &str); 4] = [
    ("temp-", ".rdb"),
    ("temp-rewriteaof-bg-", ".aof"),
    ("temp-rewriteaof-", ".aof"),
    ("temp-spool-", ".rdb"),
];

/// Returns the path of a snapshot that is being written, beside the file that it will be.
pub(super) fn snapshot_path(folder: &Path, pid: u32) -> PathBuf {
    folder.join(named(0, pid))
}

/// Returns the paths of a base while it is written, and when it is finished.
pub(super) fn base_paths(pid: u32) -> (PathBuf, PathBuf) {
    (named(2, pid).into(), named(1, pid).into())
}

/// Returns the name of a snapshot of this number that comes from a primary.
pub(crate) fn received_name(number: u64, pid: u32) -> String {
    format!("temp-{number}.{pid}.rdb")
}

/// Returns the path that the spool of a snapshot has for a moment, beside its file.
pub(super) fn spool_path(folder: &Path, pid: u32) -> PathBuf {
    folder.join(named(3, pid))
}

fn named(which: usize, pid: u32) -> String {
    let (before, behind) = NAMES[which];
    format!("{before}{pid}{behind}")
}

/// Removes what processes have left in this folder that are there no more. A file that cannot be removed stays, and so does
/// whatever has another name.
pub(super) fn remove(folder: &Path) {
    let shown = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    // Without the folder, or the right to read it, nothing can be saved there either; that is told where it matters.
    let Ok(entries) = fs::read_dir(shown) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(pid_of);
        if pid.is_some_and(is_gone) && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let name = name.to_string_lossy();
            match fs::remove_file(entry.path()) {
                Ok(()) => log::notice(&format!(
                    "Removed {name}, a temporary file of a killed process"
                )),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => log::warning(&format!("Cannot remove {name}: {error}")),
            }
        }
    }
}

/// Returns the process that has given a file this name.
fn pid_of(name: &str) -> Option<u32> {
    let pid = NAMES
        .iter()
        .find_map(|(before, behind)| number_of(name.strip_prefix(before)?.strip_suffix(behind)?));
    pid.or_else(|| {
        let numbers = name.strip_prefix("temp-")?.strip_suffix(".rdb")?;
        let (number, pid) = numbers.split_once('.')?;
        number_of::<u64>(number)?;
        number_of(pid)
    })
}

/// Returns a number above 0 that is written as numbers are.
fn number_of<N: FromStr + ToString + PartialOrd + Default>(digits: &str) -> Option<N> {
    let number: N = digits.parse().ok()?;
    (number > N::default() && number.to_string() == digits).then_some(number)
}

/// Returns true if there is no such process, or if it is this one: it has just begun, so the file is of one before, as in a
/// container, where each start may have the same number.
fn is_gone(pid: u32) -> bool {
    pid == std::process::id() || !process::is_there(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_exactly_this_form_tell_a_process() {
        for (name, pid) in [
            ("temp-17.rdb", Some(17)),
            ("temp-rewriteaof-17.aof", Some(17)),
            ("temp-rewriteaof-bg-17.aof", Some(17)),
            ("temp-spool-17.rdb", Some(17)),
            ("temp-1790000000123.17.rdb", Some(17)),
            ("temp-1790000000123.017.rdb", None),
            ("temp-0.17.rdb", None),
            ("temp-1.2.17.rdb", None),
            ("temp-.17.rdb", None),
            ("temp-.rdb", None),
            ("temp-017.rdb", None),
            ("temp-0.rdb", None),
            ("temp-+17.rdb", None),
            ("temp-17.rdb.bak", None),
            ("temp-17.aof", None),
            ("temp-rewriteaof-17.rdb", None),
            ("my-temp-17.rdb", None),
            ("temp-99999999999.rdb", None),
            ("dump.rdb", None),
        ] {
            assert_eq!(pid_of(name), pid, "{name}");
        }
        assert_eq!(snapshot_path(Path::new(""), 3), Path::new("temp-3.rdb"));
        let (writing, finished) = base_paths(3);
        let name = |path: &Path| path.to_str().and_then(pid_of);
        assert_eq!((name(&writing), name(&finished)), (Some(3), Some(3)));
        assert_ne!(writing, finished);
        assert_eq!(pid_of(&received_name(5, 3)), Some(3));
        assert_eq!(name(&spool_path(Path::new(""), 3)), Some(3));
    }
}
