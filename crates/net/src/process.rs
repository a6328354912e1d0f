//! Resource usage of processes and threads: memory and CPU time, of this process or another.
//!
//! It must not know its callers, nor print anything.

use std::fs;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::Endpoint;

/// CPU time, split as the kernel accounts for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// Spent in the program.
    pub user: Duration,
    /// Spent in the kernel on its behalf.
    pub system: Duration,
}

impl CpuTime {
    /// Returns both together.
    pub fn total(&self) -> Duration {
        self.user + self.system
    }

    /// Returns the CPU time spent since `earlier`.
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
    /// The CPU time that it has used, in steps of a clock tick (usually 10 ms).
    pub cpu: CpuTime,
    /// Time that it has run, user and system time together; precise. `None` where the kernel does not say.
    pub ran: Option<Duration>,
    /// Time that it was ready to run, but waited for a CPU; likewise.
    pub waited: Option<Duration>,
    /// Number of times that it has gone to sleep because it had nothing to do; likewise.
    pub sleeps: Option<u64>,
}

/// Returns the CPU time of this process, all threads, to the microsecond.
pub fn cpu_self() -> CpuTime {
    usage(libc::RUSAGE_SELF)
}

/// Returns the CPU time of the calling thread, to the microsecond.
pub fn cpu_thread() -> CpuTime {
    usage(libc::RUSAGE_THREAD)
}

/// Returns how long the calling thread was ready to run, but waited for a CPU; `None` where the kernel does not say.
pub fn waited_thread() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    parse_schedstat(&text).map(|(_, waited)| waited)
}

/// Returns how often the calling thread has gone to sleep because it had nothing to do.
pub fn sleeps_thread() -> u64 {
    u64::try_from(rusage(libc::RUSAGE_THREAD).ru_nvcsw).unwrap_or(0)
}

/// Returns the CPU time of children that have ended and were waited for.
pub fn cpu_children() -> CpuTime {
    usage(libc::RUSAGE_CHILDREN)
}

/// Returns the CPU time of the process `pid`, all threads, in steps of a clock tick (usually 10 ms).
pub fn cpu_of(pid: u32) -> io::Result<CpuTime> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat"))?).map(|stat| stat.cpu)
}

/// Returns the resident memory of this process, in bytes.
pub fn resident_bytes() -> io::Result<u64> {
    resident_in("/proc/self/statm")
}

/// Returns the resident memory of the process `pid`, in bytes.
pub fn resident_bytes_of(pid: u32) -> io::Result<u64> {
    resident_in(&format!("/proc/{pid}/statm"))
}

/// Returns the threads of this process.
pub fn threads_self() -> io::Result<Vec<Thread>> {
    threads_in("/proc/self/task")
}

/// Returns the threads of the process `pid`.
pub fn threads_of(pid: u32) -> io::Result<Vec<Thread>> {
    threads_in(&format!("/proc/{pid}/task"))
}

/// Returns the process that listens at `endpoint`, if that is on this machine and can be seen from here: not one in
/// another network namespace, nor one of another user without the right to look at its files. Of several that share it,
/// the first that is found; one that has bound the address itself goes before one that has bound any.
pub fn listening_at(endpoint: &Endpoint) -> io::Result<Option<u32>> {
    let sockets: Vec<(u64, Option<PathBuf>)> = match endpoint {
        Endpoint::Unix(path) => unix_listeners(&fs::read_to_string("/proc/net/unix")?, path),
        Endpoint::Tcp(address) => {
            // Only an address of ours can be bound.
            if std::net::UdpSocket::bind((address.ip(), 0)).is_err() {
                return Ok(None);
            }
            let four = fs::read_to_string("/proc/net/tcp")?;
            // A machine without IPv6 has no such file.
            let six = fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
            let found = tcp_listeners(&[&four, &six], *address);
            found.into_iter().map(|inode| (inode, None)).collect()
        }
    };
    if sockets.is_empty() {
        return Ok(None);
    }
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(pid) = pid else { continue };
        // A process whose files may not be looked at, or that has just ended, is not found.
        let Ok(files) = fs::read_dir(entry.path().join("fd")) else {
            continue;
        };
        let inodes = files.flatten().filter_map(|file| {
            let target = fs::read_link(file.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?;
            inode.strip_suffix(']')?.parse::<u64>().ok()
        });
        let holds = inodes.into_iter().any(|inode| {
            let found = sockets.iter().find(|(known, _)| *known == inode);
            found.is_some_and(|(_, relative)| match (relative, endpoint) {
                // Bound by a name that starts at the working directory of its process.
                (Some(relative), Endpoint::Unix(path)) => fs::read_link(entry.path().join("cwd"))
                    .is_ok_and(|folder| same_file(&folder.join(relative), path)),
                _ => true,
            })
        });
        if holds {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

/// Returns true if there is a process of this number, whoever's it is.
pub fn is_there(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Returns the name of the process `pid`, at most 15 bytes.
pub fn name_of(pid: u32) -> io::Result<String> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat"))?).map(|stat| stat.name)
}

/// Returns the number by which the process `pid` knows itself, which is another inside a container.
pub fn own_number_of(pid: u32) -> io::Result<u32> {
    parse_own_number(&fs::read_to_string(format!("/proc/{pid}/status"))?)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Time of all CPUs together since the machine was started, by use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MachineTime {
    /// With nothing to do, or waiting for a disk.
    pub idle: Duration,
    /// In interrupts, and in the work that they defer: most of what a packet costs on the loopback.
    pub interrupts: Duration,
    /// Taken by the host of a virtual machine for others.
    pub stolen: Duration,
    /// All of it.
    pub total: Duration,
}

/// Returns how this machine spent its time, in steps of a clock tick.
pub fn machine_time() -> io::Result<MachineTime> {
    parse_machine_time(&fs::read_to_string("/proc/stat")?)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the machine's memory, in bytes.
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
    let usage = rusage(whose);
    CpuTime {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
    }
}

fn rusage(whose: libc::c_int) -> libc::rusage {
    // SAFETY: rusage is plain numbers, for which all zero is valid.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: `usage` is a valid rusage to write to for the time of the call.
    let result = unsafe { libc::getrusage(whose, &mut usage) };
    assert_eq!(result, 0, "getrusage fails only for a wrong argument");
    usage
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
        let scheduled = fs::read_to_string(path.join("schedstat"))
            .ok()
            .and_then(|text| parse_schedstat(&text));
        let sleeps = fs::read_to_string(path.join("status"))
            .ok()
            .and_then(|text| parse_sleeps(&text));
        threads.push(Thread {
            sleeps,
            id: stat.id,
            name: stat.name,
            cpu: stat.cpu,
            ran: scheduled.map(|(ran, _)| ran),
            waited: scheduled.map(|(_, waited)| waited),
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
fn parse_schedstat(text: &str) -> Option<(Duration, Duration)> {
    let mut fields = text.split(' ').map(|field| field.parse().ok());
    let ran = Duration::from_nanos(fields.next()??);
    Some((ran, Duration::from_nanos(fields.next()??)))
}

/// Reads how often a thread has gone to sleep in `/proc/*/status`.
fn parse_sleeps(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    count.trim().parse().ok()
}

/// Reads `/proc/*/status`: the numbers from here inwards.
fn parse_own_number(text: &str) -> Option<u32> {
    let mut lines = text.lines();
    let numbers = lines.find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().last()?.parse().ok()
}

/// Returns the inodes of the listening sockets that accept connections to `address`, of the lines of files like
/// `/proc/net/tcp`: those bound to it, else those bound to any address of its family, else those bound to any of IPv6.
fn tcp_listeners(texts: &[&str], address: SocketAddr) -> Vec<u64> {
    const LISTENING: &str = "0A";
    let wanted = match address.ip().to_canonical() {
        // The kernel's form of it.
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let distance = |bound: IpAddr| match bound.to_canonical() {
        bound if bound == wanted => Some(0),
        bound if !bound.is_unspecified() => None,
        bound if bound.is_ipv4() == wanted.is_ipv4() => Some(1),
        bound => bound.is_ipv6().then_some(2),
    };
    let lines = texts.iter().flat_map(|text| text.lines().skip(1));
    let found: Vec<(u8, u64)> = lines
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (ip, port) = fields.nth(1)?.rsplit_once(':')?;
            let state = fields.nth(1)?;
            let inode = fields.nth(5)?.parse().ok()?;
            let is_it = u16::from_str_radix(port, 16) == Ok(address.port()) && state == LISTENING;
            is_it.then_some((distance(parse_bound(ip)?)?, inode))
        })
        .collect();
    let nearest = found.iter().map(|&(distance, _)| distance).min();
    let at_it = found.iter().filter(|found| Some(found.0) == nearest);
    at_it.map(|&(_, inode)| inode).collect()
}

/// Reads an address of `/proc/net/tcp` or `tcp6`: one or four words in the machine's own order of bytes.
fn parse_bound(text: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(text.get(at..at + 8)?, 16).ok();
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?.to_ne_bytes()).into()),
        32 => {
            let mut bytes = [0; 16];
            for (at, bytes) in (0..32).step_by(8).zip(bytes.chunks_exact_mut(4)) {
                bytes.copy_from_slice(&word(at)?.to_ne_bytes());
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

/// Returns the inodes of the sockets that may be bound to `path`, in a file like `/proc/net/unix`; with the name that
/// they were bound to if that is a relative one.
fn unix_listeners(text: &str, path: &Path) -> Vec<(u64, Option<PathBuf>)> {
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let inode = fields.nth(6)?.parse().ok()?;
            let bound = Path::new(fields.next()?);
            if bound.is_absolute() {
                return same_file(bound, path).then_some((inode, None));
            }
            let same_name = bound.file_name() == path.file_name();
            same_name.then(|| (inode, Some(bound.to_owned())))
        })
        .collect()
}

fn same_file(a: &Path, b: &Path) -> bool {
    a == b || fs::canonicalize(a).is_ok_and(|a| fs::canonicalize(b).is_ok_and(|b| a == b))
}

/// Reads the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, and guests' time, which
/// is part of the first two.
fn parse_machine_time(text: &str) -> Option<MachineTime> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields = line
        .split_ascii_whitespace()
        .map(|field| field.parse().ok().map(ticks))
        .collect::<Option<Vec<Duration>>>()?;
    Some(MachineTime {
        idle: *fields.get(3)? + *fields.get(4)?,
        interrupts: *fields.get(5)? + *fields.get(6)?,
        stolen: *fields.get(7)?,
        total: fields.iter().take(8).sum(),
    })
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
    fn the_process_that_listens_is_found() {
        let me = std::process::id();
        let tcp = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = tcp.local_addr().unwrap();
        assert_eq!(listening_at(&Endpoint::Tcp(address)).unwrap(), Some(me));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(listening_at(&Endpoint::Unix(path)).unwrap(), Some(me));
        // An address that is documented to be unassigned.
        let remote = Endpoint::Tcp(([192, 0, 2, 1], address.port()).into());
        assert_eq!(listening_at(&remote).unwrap(), None);
        assert!(!name_of(me).unwrap().is_empty());
    }

    #[test]
    fn of_several_listeners_of_a_port_the_one_that_is_connected_to_is_found() {
        // As in /proc/net/tcp and tcp6: 127.0.0.2, any, 10.0.0.1, one that does not listen, and another port.
        let four = "head\n\
            0: 0200007F:18EB 00000000:0000 0A 0:0 0:0 0 0 0 12 1\n\
            1: 00000000:18EB 00000000:0000 0A 0:0 0:0 0 0 0 10 1\n\
            2: 0100000A:18EB 00000000:0000 0A 0:0 0:0 0 0 0 11 1\n\
            3: 0100007F:18EB 0100007F:9999 01 0:0 0:0 0 0 0 13 1\n\
            4: 0100007F:18EC 00000000:0000 0A 0:0 0:0 0 0 0 14 1\n";
        // ::1, any, and 127.0.0.3 bound as one of IPv6.
        let six = "head\n\
            0: 00000000000000000000000001000000:18EB 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 20 1\n\
            1: 00000000000000000000000000000000:18EB 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 21 1\n\
            2: 0000000000000000FFFF00000300007F:18EB 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 22 1\n";
        let found = |address: &str, four: &str, six: &str| {
            tcp_listeners(&[four, six], address.parse().unwrap())
        };
        assert_eq!(found("127.0.0.2:6379", four, six), [12]);
        assert_eq!(found("127.0.0.3:6379", four, six), [22]);
        assert_eq!(found("[::1]:6379", four, six), [20]);
        assert_eq!(found("127.0.0.1:6379", four, six), [10]);
        assert_eq!(found("[::ffff:127.0.0.2]:6379", four, six), [12]);
        assert_eq!(found("[2001:db8::1]:6379", four, six), [21]);
        // Any of IPv6 takes those of IPv4 as well, but not the other way round.
        assert_eq!(found("127.0.0.1:6379", "", six), [21]);
        assert!(found("[::1]:6379", four, "").is_empty());
        // What it connects to when it is told to connect to any address is the machine itself.
        assert_eq!(found("0.0.0.0:6380", four, six), [14]);
    }

    #[test]
    fn a_process_in_a_container_has_a_number_of_its_own() {
        let me = std::process::id();
        assert_eq!(own_number_of(me).unwrap(), me);
        let status = "Name:\tredis\nNSpid:\t4711\t12\t1\nThreads:\t1\n";
        assert_eq!(parse_own_number(status), Some(1));
        assert_eq!(parse_own_number("Name:\tredis\n"), None);
    }

    #[test]
    fn the_machines_time_adds_up() {
        let text = "cpu  100 0 50 300 10 0 5 35 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        let time = parse_machine_time(text).unwrap();
        assert_eq!((time.idle, time.interrupts), (ticks(310), ticks(5)));
        assert_eq!((time.stolen, time.total), (ticks(35), ticks(500)));
        assert!(parse_machine_time("cpu  1 2\n").is_none());
        assert!(machine_time().unwrap().total > Duration::ZERO);
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
