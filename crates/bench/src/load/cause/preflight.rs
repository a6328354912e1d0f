//! Preflight: checks before a run of conditions that often spoil benchmarks.
//!
//! [`Facts`] are gathered from this machine and from the server; the findings are a pure function of them. Nothing here
//! ends a run: findings become warnings of the result.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use redline_net::Endpoint;

/// Facts from before a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Governors of the CPUs' speed, if the kernel reports them.
    pub governors: Vec<String>,
    /// Memory of this machine that is swapped out, in bytes.
    pub swapped_bytes: u64,
    /// This is a virtual machine.
    pub is_virtual: bool,
    /// NUMA nodes of this machine.
    pub nodes: usize,
    /// Some CPUs are two threads of one core.
    pub shares_cores: bool,
    /// CPUs that may be used.
    pub cpus: usize,
    /// CPUs used by other processes than the generator, the server and a proxy during the measurement, if known.
    pub others_cpus: Option<f64>,
    /// The server is on this machine.
    pub is_local: bool,
    /// Threads of the generator.
    pub threads: usize,
    /// Lines of INFO.
    pub info: BTreeMap<String, String>,
    /// The proxy in front of the server was named, if there is one.
    pub names_proxy: bool,
    /// The process that listens for the server and only forwards, by name and id.
    pub forwarder: Option<(String, u32)>,
    /// The server's log level, if it reports it.
    pub log_level: Option<String>,
    /// Clients that receive every command (MONITOR).
    pub monitors: usize,
    /// Median of the pings.
    pub ping_us: Option<u64>,
    /// Bytes per second that the requested rate will need in the fuller direction, as far as known.
    pub needed_bytes_per_second: Option<f64>,
    /// Bandwidth of the link in bytes per second, if known.
    pub link_bytes_per_second: Option<f64>,
}

/// Smallest share of the CPUs used by others, and smallest number of CPUs, that is reported.
const OTHERS_SHARE: f64 = 0.05;
const OTHERS_CPUS: f64 = 0.3;
/// Smallest amount of swapped memory that is reported: less is usual, and never needed again.
const SWAPPED_BYTES: u64 = 1 << 20;
/// Pings that take longer than this make a closed loop without pipelining measure the network.
const PING_US_LONG: u64 = 1_000;

impl Facts {
    /// Returns the facts of this machine, without the server's part.
    pub fn of_machine() -> Facts {
        let cpus = Path::new("/sys/devices/system/cpu");
        let per_cpu = |file: &str| -> Vec<String> {
            let entries = fs::read_dir(cpus).into_iter().flatten().flatten();
            let numbered = entries.filter(|entry| {
                let name = entry.file_name();
                let digits = name.to_str().and_then(|name| name.strip_prefix("cpu"));
                digits.is_some_and(|digits| digits.parse::<u32>().is_ok())
            });
            numbered
                .filter_map(|entry| fs::read_to_string(entry.path().join(file)).ok())
                .map(|text| text.trim().to_owned())
                .collect()
        };
        let nodes = fs::read_dir("/sys/devices/system/node")
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| {
                let name = entry.file_name();
                let digits = name.to_str().and_then(|name| name.strip_prefix("node"));
                digits.is_some_and(|digits| digits.parse::<u32>().is_ok())
            });
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Facts {
            governors: per_cpu("cpufreq/scaling_governor"),
            swapped_bytes: swapped_bytes(&read("/proc/meminfo")),
            is_virtual: has_flag(&read("/proc/cpuinfo"), "hypervisor"),
            nodes: nodes.count().max(1),
            shares_cores: per_cpu("topology/thread_siblings_list")
                .iter()
                .any(|list| list.contains([',', '-'])),
            cpus: redline_net::cpu::usable_count(),
            ..Facts::default()
        }
    }

    /// Returns true if an endpoint is on this machine.
    pub fn is_local(endpoint: &Endpoint) -> bool {
        match endpoint {
            Endpoint::Unix(_) => true,
            Endpoint::Tcp(address) => address.ip().is_loopback(),
        }
    }

    /// Returns one sentence for each condition that may spoil the figures.
    pub fn findings(&self) -> Vec<String> {
        let mut findings = self.of_cpus();
        if self.swapped_bytes >= SWAPPED_BYTES {
            findings.push(format!(
                "{} MiB of memory are swapped out: a page that has to come back stalls its process.",
                self.swapped_bytes >> 20
            ));
        }
        findings.extend(self.of_server());
        if let Some(us) = self.ping_us
            && us > PING_US_LONG
        {
            findings.push(format!(
                "a ping takes {:.1} ms: with few connections and no pipeline, the network's delay is what is measured.",
                us as f64 / 1000.0
            ));
        }
        if let (Some(needed), Some(link)) =
            (self.needed_bytes_per_second, self.link_bytes_per_second)
            && needed > link
        {
            findings.push(format!(
                "the rate and the sizes asked for need {:.0} Mbit/s, and the link carries {:.0}.",
                needed * 8.0 / 1e6,
                link * 8.0 / 1e6
            ));
        }
        findings
    }

    fn of_cpus(&self) -> Vec<String> {
        let mut findings = Vec::new();
        let slow = self
            .governors
            .iter()
            .find(|governor| *governor != "performance");
        if let Some(governor) = slow {
            findings.push(format!(
                "the CPUs' speed is governed by \"{governor}\": short runs start slow. \"performance\" is steady."
            ));
        }
        if self.is_virtual {
            findings.push(
                "this is a virtual machine: its host may give its CPUs to others. Compare ratios within one run.".into(),
            );
        }
        if self.nodes > 1 {
            findings.push(format!(
                "this machine has {} NUMA nodes: bind generator and server (numactl), or runs will differ.",
                self.nodes
            ));
        }
        if let Some(cpus) = self.others_cpus
            && cpus > OTHERS_CPUS.max(OTHERS_SHARE * self.cpus as f64)
        {
            findings.push(format!("other processes used {cpus:.1} CPUs meanwhile."));
        }
        if self.is_local {
            if self.cpus <= self.threads {
                findings.push(format!(
                    "generator ({} thread{}) and server share {} CPU{}: each takes time from the other.",
                    self.threads,
                    if self.threads == 1 { "" } else { "s" },
                    self.cpus,
                    if self.cpus == 1 { "" } else { "s" }
                ));
            } else if self.shares_cores {
                findings.push(
                    "some CPUs are two threads of one core: generator and server may share one. Bind them (taskset).".into(),
                );
            }
            findings
                .push("the server is on this machine: no network is part of the figures.".into());
        }
        findings
    }

    fn of_server(&self) -> Vec<String> {
        let is = |name: &str| self.info.get(name).is_some_and(|value| value == "1");
        let mut findings = Vec::new();
        if is_proxy(&self.info) && !self.names_proxy {
            let pid = self.info.get("process_id").map_or("PID", String::as_str);
            findings.push(format!(
                "a proxy answers here: what is said of the server is the proxy's. --proxy-pid {pid} names it, and \
                 --server-pid the server behind it."
            ));
        }
        if let Some((name, pid)) = &self.forwarder {
            findings.push(format!(
                "{name} ({pid}) listens here, and another process answers: what {name} used is not counted. \
                 --proxy-pid {pid} names it, and --server-pid the server behind it."
            ));
        }
        for (field, what) in [
            ("loading", "the server is loading its data"),
            ("rdb_bgsave_in_progress", "the server is saving a snapshot"),
            (
                "aof_rewrite_in_progress",
                "the server is rewriting its append-only file",
            ),
        ] {
            if is(field) {
                findings.push(format!("{what}: that takes CPU and memory bandwidth."));
            }
        }
        if self.monitors > 0 {
            findings.push(format!(
                "{} client{} MONITOR: every command is sent to them as well.",
                self.monitors,
                if self.monitors == 1 { " runs" } else { "s run" }
            ));
        }
        if let Some(level @ ("debug" | "verbose")) = self.log_level.as_deref() {
            findings.push(format!("the server logs at level \"{level}\"."));
        }
        findings
    }
}

/// Returns true if the server of this INFO is a proxy: `redline proxy`, or predixy.
pub fn is_proxy(info: &BTreeMap<String, String>) -> bool {
    info.get("RedisMode").is_some_and(|mode| mode == "proxy")
}

fn swapped_bytes(meminfo: &str) -> u64 {
    let kib = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches("kB").trim_end().parse().ok()
    };
    let swapped = kib("SwapTotal:").zip(kib("SwapFree:"));
    swapped.map_or(0, |(total, free)| total.saturating_sub(free) * 1024)
}

fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    let flags = cpuinfo
        .lines()
        .find(|line| line.starts_with("flags") || line.starts_with("Features"));
    flags.is_some_and(|line| line.split_ascii_whitespace().any(|word| word == flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Facts {
        Facts {
            governors: vec!["performance".into(); 4],
            nodes: 1,
            cpus: 4,
            threads: 1,
            ping_us: Some(80),
            ..Facts::default()
        }
    }

    #[track_caller]
    fn finds(change: impl FnOnce(&mut Facts), words: &str) {
        let mut facts = quiet();
        change(&mut facts);
        let findings = facts.findings();
        assert!(
            findings.iter().any(|text| text.contains(words)),
            "{words}: {findings:?}"
        );
    }

    #[test]
    fn a_quiet_machine_and_server_give_no_warning() {
        let mut facts = quiet();
        (facts.swapped_bytes, facts.others_cpus) = (4096, Some(0.1));
        assert_eq!(facts.findings(), Vec::<String>::new());
    }

    #[test]
    fn each_pitfall_is_named() {
        let info = |facts: &mut Facts, field: &str| {
            facts.info.insert(field.into(), "1".into());
        };
        finds(
            |facts| facts.governors[2] = "powersave".into(),
            "\"powersave\"",
        );
        finds(|facts| facts.swapped_bytes = 5 << 20, "5 MiB");
        finds(|facts| facts.is_virtual = true, "virtual machine");
        finds(|facts| facts.nodes = 2, "2 NUMA nodes");
        finds(|facts| facts.others_cpus = Some(3.0), "used 3.0 CPUs");
        finds(
            |facts| facts.forwarder = Some(("ssh".into(), 7)),
            "--proxy-pid 7 ",
        );
        finds(|facts| facts.is_local = true, "no network");
        finds(
            |facts| (facts.is_local, facts.cpus) = (true, 1),
            "share 1 CPU:",
        );
        finds(
            |facts| (facts.is_local, facts.shares_cores) = (true, true),
            "two threads of one core",
        );
        finds(|facts| info(facts, "loading"), "is loading");
        finds(|facts| info(facts, "rdb_bgsave_in_progress"), "snapshot");
        finds(
            |facts| info(facts, "aof_rewrite_in_progress"),
            "append-only",
        );
        let proxy = |facts: &mut Facts| {
            facts.info.insert("RedisMode".into(), "proxy".into());
            facts.info.insert("process_id".into(), "7".into());
        };
        finds(proxy, "--proxy-pid 7 ");
        let mut named = quiet();
        proxy(&mut named);
        named.names_proxy = true;
        assert_eq!(named.findings(), Vec::<String>::new());
        finds(|facts| facts.monitors = 1, "1 client runs MONITOR");
        finds(|facts| facts.log_level = Some("debug".into()), "\"debug\"");
        finds(|facts| facts.ping_us = Some(2500), "2.5 ms");
        finds(
            |facts| {
                facts.needed_bytes_per_second = Some(2e8);
                facts.link_bytes_per_second = Some(1.25e8);
            },
            "need 1600 Mbit/s",
        );
    }

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(
            swapped_bytes("SwapTotal:  100 kB\nSwapFree:  40 kB\n"),
            60 * 1024
        );
        assert_eq!(swapped_bytes(""), 0);
        assert!(has_flag(
            "processor: 0\nflags : fpu hypervisor sse\n",
            "hypervisor"
        ));
        assert!(!has_flag("flags : fpu hypervisors\n", "hypervisor"));
        let facts = Facts::of_machine();
        assert!(facts.cpus >= 1 && facts.nodes >= 1);
    }
}
