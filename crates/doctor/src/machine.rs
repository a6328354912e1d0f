//! Facts of the kernel about this machine in `/proc` and `/sys`, below a folder that a test may replace.
//!
//! Must not know what is good or bad.

use std::fs;
use std::path::PathBuf;

/// Largest file that is read: what the kernel shows is smaller.
const BYTES_MAX: usize = 1 << 20;

/// A machine.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::below("/")
    }
}

impl Machine {
    /// Returns the machine whose `proc` and `sys` are in this folder.
    pub fn below(root: impl Into<PathBuf>) -> Machine {
        Machine { root: root.into() }
    }

    /// Returns the text of a file, without blanks at its ends; none if it cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.root.join(path.trim_start_matches('/'))).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        (text.len() <= BYTES_MAX).then(|| text.trim().to_owned())
    }

    /// Returns the number in a file.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Returns the word in brackets in a file such as `always [madvise] never`.
    pub fn chosen(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let (_, rest) = text.split_once('[')?;
        let (word, _) = rest.split_once(']')?;
        Some(word.to_owned())
    }

    /// Returns the machine's memory, in bytes.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.meminfo("MemTotal:")
    }

    /// Returns the machine's room for swapping, in bytes.
    pub fn swap_bytes(&self) -> Option<u64> {
        self.meminfo("SwapTotal:")
    }

    fn meminfo(&self, name: &str) -> Option<u64> {
        let text = self.text("/proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    }

    /// Returns the limit on memory of this process's control group and those around it, in bytes; `Some(None)`: there is
    /// none.
    pub fn memory_limit_bytes(&self) -> Option<Option<u64>> {
        let limits = self.in_groups("memory", "memory.max", "memory.limit_in_bytes")?;
        let numbers = limits.iter().filter_map(|text| text.parse::<u64>().ok());
        // The older interface shows a very large number for none.
        Some(numbers.filter(|bytes| *bytes < 1 << 60).min())
    }

    /// Returns the share of CPUs that this process's control group may use; `Some(None)`: all.
    pub fn cpu_limit(&self) -> Option<Option<f64>> {
        let limits = self.in_groups("cpu", "cpu.max", "cpu.max")?;
        let share = |text: &String| {
            let (quota, period) = text.split_once(' ')?;
            let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
            (period > 0.0).then(|| quota / period)
        };
        Some(limits.iter().filter_map(share).reduce(f64::min))
    }

    /// Returns the texts of a file of this process's control group and of those around it.
    fn in_groups(&self, controller: &str, file: &str, old_file: &str) -> Option<Vec<String>> {
        let groups = self.text("/proc/self/cgroup")?;
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let (base, file) = match number {
                "0" if controllers.is_empty() => ("/sys/fs/cgroup".to_owned(), file),
                _ if controllers.split(',').any(|one| one == controller) => {
                    (format!("/sys/fs/cgroup/{controller}"), old_file)
                }
                _ => continue,
            };
            let mut found = Vec::new();
            let mut path = path.trim_end_matches('/');
            loop {
                found.extend(self.text(&format!("{base}{path}/{file}")));
                match path.rsplit_once('/') {
                    Some((outer, _)) => path = outer,
                    None => break,
                }
            }
            if !found.is_empty() || number == "0" {
                // The outermost group has no such file, and no limit.
                return Some(found);
            }
        }
        None
    }
}
