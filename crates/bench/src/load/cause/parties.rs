//! Resources that the parties of a run used: the generator's threads, the server, a proxy, the machine.
//!
//! It measures and does not judge. The generator's threads measure themselves (`drive::Usage`); processes are read
//! in `/proc`, twice or once per slice; a remote server is asked (INFO).

use std::time::{Duration, Instant};

use redline_net::process::{self, CpuTime, MachineTime, Thread};
use serde::{Deserialize, Serialize};

use super::verdict::Load;

/// A process that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// The generator's threads are excluded: the embedded server runs in this process.
    pub embedded: bool,
}

impl Process {
    /// Returns the process with this number.
    pub fn new(pid: u32) -> std::io::Result<Process> {
        Ok(Process {
            pid,
            name: process::name_of(pid)?,
            embedded: pid == std::process::id(),
        })
    }

    /// Returns its threads and their use so far.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let mut threads = process::threads_of(self.pid).ok()?;
        if self.embedded {
            // The main thread of this process, and the load threads, are the generator's.
            threads.retain(|thread| thread.id != self.pid && !thread.name.starts_with("load-"));
        }
        Some(Snapshot {
            at: Instant::now(),
            threads,
            process: process::cpu_of(self.pid).ok().filter(|_| !self.embedded),
            resident_bytes: process::resident_bytes_of(self.pid).ok(),
        })
    }
}

/// Returns the generator's own threads and their use so far.
pub fn generator_snapshot() -> Option<Snapshot> {
    let mut threads = process::threads_self().ok()?;
    threads.retain(|thread| thread.name.starts_with("load-"));
    Some(Snapshot {
        at: Instant::now(),
        threads,
        process: None,
        resident_bytes: process::resident_bytes().ok(),
    })
}

/// Largest error of a time in ticks of 10 ms, one for each of user and system time.
const TICKS: Duration = Duration::from_millis(20);

/// Resources that a process has used up to a time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    at: Instant,
    threads: Vec<Thread>,
    /// Of all its threads, ended ones included; `None` of a part of a process.
    process: Option<CpuTime>,
    resident_bytes: Option<u64>,
}

/// Resident memory of a process, at the observations; bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// At the first observation.
    pub first_bytes: u64,
    /// At the last observation.
    pub last_bytes: u64,
    /// The largest.
    pub max_bytes: u64,
}

impl Memory {
    /// Adds an observation.
    pub fn see(memory: &mut Option<Memory>, bytes: u64) {
        let seen = memory.get_or_insert(Memory {
            first_bytes: bytes,
            ..Memory::default()
        });
        seen.last_bytes = bytes;
        seen.max_bytes = seen.max_bytes.max(bytes);
    }
}

/// A process over time. Each observation leaves one figure, so that memory is bounded in long runs.
#[derive(Clone, Debug, Default)]
pub struct Looks {
    first: Option<Snapshot>,
    last: Option<Snapshot>,
    /// True if the process ran at the last observation.
    runs: bool,
    /// CPUs used between two observations; `None` if it did not run at both.
    pub cpus: Vec<Option<f64>>,
    /// Its memory, while it ran.
    pub memory: Option<Memory>,
    looks: u64,
}

impl Looks {
    /// Adds an observation; `None` if it does not run.
    pub fn add(&mut self, snapshot: Option<Snapshot>) {
        if self.looks > 0 {
            let before = self.last.as_ref().filter(|_| self.runs);
            let used = snapshot.as_ref().zip(before);
            self.cpus.push(used.map(|(now, before)| {
                let used = now.since(before);
                used.cpu.total().as_secs_f64() / used.wall.as_secs_f64().max(1e-9)
            }));
        }
        self.looks += 1;
        self.runs = snapshot.is_some();
        let Some(snapshot) = snapshot else { return };
        if let Some(bytes) = snapshot.resident_bytes {
            Memory::see(&mut self.memory, bytes);
        }
        if self.first.is_none() {
            self.first = Some(snapshot);
        } else {
            self.last = Some(snapshot);
        }
        if self.last.is_none() {
            self.last.clone_from(&self.first);
        }
    }

    /// Returns the resources used from the first observation to the last, if the process ran at two.
    pub fn used(&self) -> Option<Used> {
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        (last.at > first.at).then(|| last.since(first))
    }
}

/// Resources that a party used in a span of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    /// The span.
    pub wall: Duration,
    /// CPU time of all threads.
    pub cpu: CpuTime,
    /// Time that threads waited for a CPU, summed.
    pub waited: Duration,
    /// Threads that ran at all.
    pub threads: usize,
    /// The busiest thread: running or waiting for a CPU.
    pub busiest: Duration,
    /// Part of that waiting.
    pub busiest_waited: Duration,
    /// Sleeps of the busiest thread without work; `None` if not known.
    pub busiest_sleeps: Option<u64>,
}

impl Used {
    /// Returns the use as shares of the span: CPUs and shares, for the verdict.
    pub fn load(&self) -> Load {
        let wall = self.wall.as_secs_f64().max(1e-9);
        let share = |span: Duration| span.as_secs_f64() / wall;
        Load {
            busiest: share(self.busiest).min(1.0),
            waiting: share(self.busiest_waited).min(1.0),
            user: share(self.cpu.user),
            system: share(self.cpu.system),
            sleeps_per_second: self.busiest_sleeps.map(|sleeps| sleeps as f64 / wall),
        }
    }

    /// Adds a thread.
    pub fn add_thread(&mut self, cpu: CpuTime, waited: Duration, sleeps: Option<u64>) {
        let busy = cpu.total() + waited;
        if busy.is_zero() {
            return;
        }
        self.threads += 1;
        self.cpu.user += cpu.user;
        self.cpu.system += cpu.system;
        self.waited += waited;
        if busy > self.busiest {
            (self.busiest, self.busiest_waited) = (busy, waited);
            self.busiest_sleeps = sleeps;
        }
    }
}

impl Snapshot {
    /// Returns the resources used since `earlier`.
    ///
    /// The kernel counts user and system time in ticks of 10 ms, but running time exactly. So the sum is the exact one,
    /// and is split as the ticks are. The use of threads that have ended since is in the process's time only, in ticks:
    /// it counts if it exceeds that of the others.
    pub fn since(&self, earlier: &Snapshot) -> Used {
        let mut used = Used {
            wall: self.at.duration_since(earlier.at),
            ..Used::default()
        };
        for thread in &self.threads {
            let before = earlier.threads.iter().find(|before| before.id == thread.id);
            let ticks = before.map_or(thread.cpu, |before| thread.cpu.since(&before.cpu));
            let difference = |now: Option<Duration>, before: Option<Option<Duration>>| {
                now.map(|now| now.saturating_sub(before.flatten().unwrap_or_default()))
            };
            let ran = difference(thread.ran, before.map(|before| before.ran));
            let waited = difference(thread.waited, before.map(|before| before.waited));
            let cpu = ran.map_or(ticks, |ran| split(ran, &ticks));
            let slept_before = before.map_or(Some(0), |before| before.sleeps);
            let sleeps = thread.sleeps.zip(slept_before);
            let sleeps = sleeps.map(|(now, before)| now.saturating_sub(before));
            used.add_thread(cpu, waited.unwrap_or_default(), sleeps);
        }
        if let Some((now, before)) = self.process.zip(earlier.process) {
            let all = now.since(&before);
            if all.total() > used.cpu.total() + TICKS {
                used.cpu = all;
            }
        }
        used
    }
}

/// Splits `total` as `ticks` are split; without ticks in halves, which is then a matter of milliseconds.
fn split(total: Duration, ticks: &CpuTime) -> CpuTime {
    let counted = ticks.total().as_secs_f64();
    let share = if counted > 0.0 {
        ticks.user.as_secs_f64() / counted
    } else {
        0.5
    };
    let user = total.mul_f64(share);
    CpuTime {
        user,
        system: total.saturating_sub(user),
    }
}

/// Returns the time that the host took from this virtual machine between two times, as a share of all CPUs' time.
pub fn stolen_share(before: &MachineTime, after: &MachineTime) -> f64 {
    let total = after.total.saturating_sub(before.total).as_secs_f64();
    let stolen = after.stolen.saturating_sub(before.stolen).as_secs_f64();
    if total > 0.0 { stolen / total } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(id: u32, user_ms: u64, system_ms: u64, ran_ms: u64, waited_ms: u64) -> Thread {
        Thread {
            id,
            name: "t".into(),
            cpu: CpuTime {
                user: Duration::from_millis(user_ms),
                system: Duration::from_millis(system_ms),
            },
            ran: Some(Duration::from_millis(ran_ms)),
            waited: Some(Duration::from_millis(waited_ms)),
            sleeps: Some(user_ms),
        }
    }

    #[test]
    fn the_exact_time_is_split_as_the_ticks_are() {
        let at = Instant::now();
        let before = Snapshot {
            at,
            resident_bytes: None,
            process: None,
            threads: vec![thread(1, 100, 100, 205, 0), thread(2, 0, 0, 0, 0)],
        };
        let after = Snapshot {
            at: at + Duration::from_secs(1),
            resident_bytes: None,
            process: None,
            // Thread 3 is new.
            threads: vec![
                thread(1, 400, 200, 613, 7),
                thread(2, 0, 0, 0, 0),
                thread(3, 10, 0, 12, 900),
            ],
        };
        let used = after.since(&before);
        assert_eq!(used.threads, 2);
        assert_eq!(used.cpu.total(), Duration::from_millis(408 + 12));
        assert_eq!(used.cpu.system, Duration::from_millis(102));
        assert_eq!(used.busiest, Duration::from_millis(912));
        let load = used.load();
        assert!((load.busiest - 0.912).abs() < 1e-6 && (load.waiting - 0.9).abs() < 1e-6);
        assert_eq!(load.sleeps_per_second, Some(10.0));
    }

    #[test]
    fn threads_that_ended_between_two_looks_are_in_the_processs_own_time() {
        let at = Instant::now();
        let cpu = |user_ms, system_ms| CpuTime {
            user: Duration::from_millis(user_ms),
            system: Duration::from_millis(system_ms),
        };
        let look = |second, process, threads| Snapshot {
            at: at + Duration::from_secs(second),
            resident_bytes: None,
            process: Some(process),
            threads,
        };
        let before = look(0, cpu(1_000, 500), vec![thread(1, 10, 0, 12, 0)]);
        // Two threads were started and ended.
        let after = look(1, cpu(1_600, 800), vec![thread(1, 20, 0, 24, 0)]);
        let used = after.since(&before);
        assert_eq!(used.cpu, cpu(600, 300));
        // Its threads report exactly what the process reports in ticks.
        let after = look(1, cpu(1_010, 510), vec![thread(1, 20, 0, 24, 0)]);
        assert_eq!(after.since(&before).cpu, cpu(12, 0));
    }

    #[test]
    fn of_each_look_there_remains_one_figure() {
        let start = Instant::now();
        let at = |second: u64, ran_ms: u64, bytes: u64| Snapshot {
            at: start + Duration::from_secs(second),
            threads: vec![thread(1, ran_ms, 0, ran_ms, 0)],
            resident_bytes: Some(bytes),
            process: None,
        };
        let mut looks = Looks::default();
        looks.add(Some(at(0, 100, 7)));
        assert_eq!(looks.used(), None);
        looks.add(Some(at(1, 600, 9)));
        looks.add(None);
        looks.add(Some(at(3, 900, 8)));
        looks.add(Some(at(4, 1_000, 8)));
        assert_eq!(looks.cpus, [Some(0.5), None, None, Some(0.1)]);
        let used = looks.used().unwrap();
        assert_eq!(used.wall, Duration::from_secs(4));
        assert_eq!(used.cpu.total(), Duration::from_millis(900));
        let memory = Memory {
            first_bytes: 7,
            last_bytes: 8,
            max_bytes: 9,
        };
        assert_eq!(looks.memory, Some(memory));
    }

    #[test]
    fn a_working_process_is_seen() {
        let me = Process::new(std::process::id()).unwrap();
        assert!(me.embedded);
        let before = me.snapshot().unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            std::hint::black_box((0..1000u64).sum::<u64>());
        }
        let used = me.snapshot().unwrap().since(&before);
        // This thread is not the main one.
        assert!(used.busiest >= Duration::from_millis(40), "{used:?}");
        assert!(Process::new(u32::MAX).is_err());
    }

    #[test]
    fn stolen_time_is_a_share() {
        let at = |stolen, total| MachineTime {
            idle: Duration::ZERO,
            interrupts: Duration::ZERO,
            stolen: Duration::from_secs(stolen),
            total: Duration::from_secs(total),
        };
        assert_eq!(stolen_share(&at(1, 100), &at(6, 200)), 0.05);
        assert_eq!(stolen_share(&at(1, 100), &at(1, 100)), 0.0);
    }
}
