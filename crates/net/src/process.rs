//! What processes and threads use: memory and CPU time, of this process or another.
//!
//! It must not know who asks, nor print anything.

use std::fs;
use std::io;
use std::mem;
use std::time::Duration;

/// CPU time, split as the kernel accounts for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// Spent in the program.
    pub user: Duration,
    /// Spent in the kernel on its behalf.
    pub system: Duration,
}

impl CpuTime {
    /// Both together.
    pub fn total(&self) -> Duration {
        self.user + self.system
    }

    /// What was spent since `earlier`.
    pub fn since(&self, earlier: &CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// A thread of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Its number.
    pub id: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// What it has used, in steps of a clock tick (usually 10 ms).
    pub cpu: CpuTime,
    /// How long it was ready to run, but waited for a CPU; precise. `None` where the kernel does not say.
    pub waited: Option<Duration>,
}

/// CPU time of this process, all threads, to the microsecond.
pub fn cpu_self() -> CpuTime {
    usage(libc::RUSAGE_SELF)
}

/// CPU time of the calling thread, to the microsecond.
pub fn cpu_thread() -> CpuTime {
    usage(libc::RUSAGE_THREAD)
}

/// CPU time of children that have ended and were waited for.
pub fn cpu_children() -> CpuTime {
    usage(libc::RUSAGE_CHILDREN)
}

/// CPU time of the process `pid`, all threads, in steps of a clock tick (usually 10 ms).
pub fn cpu_of(pid: u32) -> io::Result<CpuTime> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat"))?).map(|stat| stat.cpu)
}

/// Resident memory of this process, in bytes.
pub fn resident_bytes() -> io::Result<u64> {
    resident_in("/proc/self/statm")
}

/// Resident memory of the process `pid`, in bytes.
pub fn resident_bytes_of(pid: u32) -> io::Result<u64> {
    resident_in(&format!("/proc/{pid}/statm"))
}

/// The threads of this process.
pub fn threads_self() -> io::Result<Vec<Thread>> {
    threads_in("/proc/self/task")
}

/// The threads of the process `pid`.
pub fn threads_of(pid: u32) -> io::Result<Vec<Thread>> {
    threads_in(&format!("/proc/{pid}/task"))
}

/// The machine's memory, in bytes.
pub fn machine_memory_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .ok_or(io::ErrorKind::InvalidData)?;
    let kib: u64 = line
        .trim()
        .trim_end_matches("kB")
        .trim_end()
        .parse()
        .map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(kib * 1024)
}

fn usage(whose: libc::c_int) -> CpuTime {
    // SAFETY: rusage is plain numbers, for which all zero is valid.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: `usage` is a valid rusage to write to for the time of the call.
    let result = unsafe { libc::getrusage(whose, &mut usage) };
    assert_eq!(result, 0, "getrusage fails only for a wrong argument");
    CpuTime {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
    }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

fn threads_in(folder: &str) -> io::Result<Vec<Thread>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // A thread may end while we look: then its files are gone, and it is left out.
        let Ok(stat) = fs::read_to_string(path.join("stat")) else {
            continue;
        };
        let stat = parse_stat(&stat)?;
        let waited = fs::read_to_string(path.join("schedstat"))
            .ok()
            .and_then(|text| parse_waited(&text));
        threads.push(Thread {
            id: stat.id,
            name: stat.name,
            cpu: stat.cpu,
            waited,
        });
    }
    Ok(threads)
}

fn resident_in(path: &str) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.ok_or(io::ErrorKind::InvalidData)? * system_figure(libc::_SC_PAGESIZE))
}

struct Stat {
    id: u32,
    name: String,
    cpu: CpuTime,
}

/// Reads `/proc/*/stat`: `id (name) state ...`, where the name may hold anything, brackets and spaces included.
fn parse_stat(text: &str) -> io::Result<Stat> {
    let parse = || {
        let (id, rest) = text.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        // The state, which comes first here, is field 3 of the whole; user and system time are fields 14 and 15.
        let mut fields = rest.split(' ').skip(11);
        let user: u64 = fields.next()?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        let cpu = CpuTime {
            user: ticks(user),
            system: ticks(system),
        };
        Some(Stat {
            id: id.parse().ok()?,
            name: name.to_owned(),
            cpu,
        })
    };
    parse().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Reads `/proc/*/schedstat`: time on a CPU, time waited for one, both in nanoseconds, and a count.
fn parse_waited(text: &str) -> Option<Duration> {
    text.split(' ')
        .nth(1)?
        .parse()
        .ok()
        .map(Duration::from_nanos)
}

fn ticks(count: u64) -> Duration {
    let per_second = system_figure(libc::_SC_CLK_TCK).max(1);
    Duration::from_secs(count / per_second)
        + Duration::from_nanos(count % per_second * (1_000_000_000 / per_second))
}

fn system_figure(name: libc::c_int) -> u64 {
    // SAFETY: sysconf only reads a figure; a wrong name gives -1.
    let figure = unsafe { libc::sysconf(name) };
    u64::try_from(figure).expect("every Linux knows the figures asked for here")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let text = "42 (a) b (c) R 1 1 1 0 -1 4194304 100 0 0 0 250 125 0 0 20 0 1 0 100 1000 10";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.id, stat.name.as_str()), (42, "a) b (c"));
        assert_eq!(stat.cpu.user, ticks(250));
        assert_eq!(stat.cpu.system, ticks(125));
        assert!(parse_stat("").is_err());
        assert!(parse_stat("1 (x) R 1").is_err());
    }

    #[test]
    fn work_shows_in_every_measure() {
        let (process, thread) = (cpu_self(), cpu_thread());
        while cpu_thread().since(&thread).total() < Duration::from_millis(60) {
            std::hint::black_box((0..1000u64).sum::<u64>());
        }
        assert!(cpu_self().since(&process).total() >= Duration::from_millis(60));
        let pid = std::process::id();
        // Ticks are rounded down, separately for user and system time.
        assert!(cpu_of(pid).unwrap().total() >= Duration::from_millis(30));
        let threads = threads_of(pid).unwrap();
        assert!(
            threads
                .iter()
                .any(|thread| thread.cpu.total() >= Duration::from_millis(30)),
            "{threads:?}"
        );
    }

    #[test]
    fn memory_figures_are_plausible() {
        let own = resident_bytes().unwrap();
        assert!(own > 100 << 10 && own < machine_memory_bytes().unwrap());
        assert!(resident_bytes_of(std::process::id()).unwrap() > 100 << 10);
        assert!(resident_bytes_of(u32::MAX).is_err());
        assert_eq!(
            threads_self()
                .unwrap()
                .iter()
                .filter(|t| t.id == std::process::id())
                .count(),
            1
        );
    }
}
