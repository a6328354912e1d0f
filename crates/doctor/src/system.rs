//! Checks of the kernel's settings and of the process's limits, against what a configuration needs.
//!
//! Must not know files and addresses of a configuration.

use redline_net::{cpu, limits};

use crate::{Finding, Machine, Wanted};

/// Least span of local ports with which a process that opens connections runs out of them late.
const LOCAL_PORTS_MIN: u64 = 20_000;
/// Clock sources that are read without a call of the kernel.
const FAST_CLOCKS: [&str; 4] = [
    "tsc",
    "kvm-clock",
    "arch_sys_counter",
    "hyperv_clocksource_tsc_page",
];

/// Returns the findings.
pub fn checks(machine: &Machine, wanted: &Wanted) -> Vec<Finding> {
    let mut found = vec![huge_pages(machine), overcommit(machine)];
    found.push(swap(machine));
    found.extend(
        wanted
            .backlog
            .map(|(backlog, name)| somaxconn(machine, backlog, name)),
    );
    found.extend(
        wanted
            .open_files
            .map(|(files, name)| open_files(files, name)),
    );
    found.extend(wanted.memory_max_bytes.map(|bytes| memory(machine, bytes)));
    found.push(cpus(machine, wanted.threads));
    found.push(clock(machine));
    found.push(governor(machine));
    if wanted.connects {
        found.push(local_ports(machine));
    }
    found
}

fn huge_pages(machine: &Machine) -> Finding {
    const CHECK: &str = "transparent huge pages";
    const PATH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    match machine.chosen(PATH).as_deref() {
        None => Finding::not_known(CHECK, format!("{PATH} cannot be read")),
        Some("never") => Finding::warning(
            CHECK,
            "never: keys lie in small pages, a request takes longer",
        )
        .mend(format!("echo madvise > {PATH}")),
        Some(chosen) => Finding::ok(CHECK, chosen),
    }
}

fn overcommit(machine: &Machine) -> Finding {
    const CHECK: &str = "overcommit";
    match machine.number("/proc/sys/vm/overcommit_memory") {
        None => Finding::not_known(CHECK, "/proc/sys/vm/overcommit_memory cannot be read"),
        // Address space is reserved far beyond what is used; nothing forks.
        Some(2) => Finding::warning(
            CHECK,
            "vm.overcommit_memory is 2: address space that is only reserved counts as used",
        )
        .mend("sysctl -w vm.overcommit_memory=0"),
        Some(mode) => Finding::ok(
            CHECK,
            format!("vm.overcommit_memory is {mode}; saving does not fork"),
        ),
    }
}

fn swap(machine: &Machine) -> Finding {
    const CHECK: &str = "swap";
    let swappiness = machine.number("/proc/sys/vm/swappiness");
    match (machine.swap_bytes(), swappiness) {
        (Some(0), _) => Finding::ok(CHECK, "there is none"),
        (Some(bytes), Some(swappiness)) if swappiness > 10 => Finding::warning(
            CHECK,
            format!(
                "there are {} MiB, and vm.swappiness is {swappiness}: data that is swapped out costs milliseconds",
                bytes >> 20
            ),
        )
        .mend("sysctl -w vm.swappiness=1"),
        (Some(bytes), Some(swappiness)) => Finding::ok(
            CHECK,
            format!("{} MiB, vm.swappiness is {swappiness}", bytes >> 20),
        ),
        _ => Finding::not_known(CHECK, "/proc/meminfo or /proc/sys/vm/swappiness cannot be read"),
    }
}

fn somaxconn(machine: &Machine, backlog: u32, name: &str) -> Finding {
    const CHECK: &str = "listen backlog";
    match machine.number("/proc/sys/net/core/somaxconn") {
        None => Finding::not_known(CHECK, "/proc/sys/net/core/somaxconn cannot be read"),
        Some(most) if most < u64::from(backlog) => Finding::warning(
            CHECK,
            format!(
                "net.core.somaxconn is {most}, below {name}, {backlog}: when many clients connect at once, some try again after a second"
            ),
        )
        .mend(format!("sysctl -w net.core.somaxconn={backlog}")),
        Some(most) => Finding::ok(CHECK, format!("net.core.somaxconn is {most}, {name} is {backlog}")),
    }
}

fn open_files(needed: u64, name: &str) -> Finding {
    const CHECK: &str = "open files";
    match limits::open_files() {
        Err(error) => Finding::not_known(CHECK, error.to_string()),
        Ok(limit) if limit.hard < needed => Finding::warning(
            CHECK,
            format!(
                "the limit is {}, and {name} needs {needed}: fewer clients are accepted",
                limit.hard
            ),
        )
        .mend(format!(
            "LimitNOFILE={needed} in the unit, or ulimit -n {needed}"
        )),
        Ok(limit) => Finding::ok(
            CHECK,
            format!("the limit is {}, {name} needs {needed}", limit.hard),
        ),
    }
}

fn memory(machine: &Machine, wanted_bytes: u64) -> Finding {
    const CHECK: &str = "memory";
    let (group, whole) = (machine.memory_limit_bytes(), machine.memory_bytes());
    let (Some(group), Some(whole)) = (group, whole) else {
        return Finding::not_known(
            CHECK,
            "the machine's memory or the control group's limit cannot be read",
        );
    };
    let (limit, whose) = match group {
        Some(bytes) if bytes < whole => (bytes, "the control group's limit"),
        _ => (whole, "the machine's memory"),
    };
    let mib = |bytes: u64| bytes >> 20;
    // Buffers, connections and the table's growth have to fit beside the data.
    let safe = limit / 10 * 8;
    match wanted_bytes {
        0 if group.is_some() => Finding::warning(
            CHECK,
            format!("maxmemory is not set, and {whose} is {} MiB: the kernel ends the process there", mib(limit)),
        )
        .mend(format!("maxmemory {}mb", mib(safe))),
        0 => Finding::ok(CHECK, format!("{whose} is {} MiB, maxmemory is not set", mib(limit))),
        wanted if wanted > limit => Finding::fault(
            CHECK,
            format!(
                "maxmemory is {} MiB, above {whose} of {} MiB: the kernel ends the process before anything is evicted",
                mib(wanted),
                mib(limit)
            ),
        )
        .mend(format!("maxmemory {}mb", mib(safe))),
        wanted => Finding::ok(
            CHECK,
            format!("maxmemory is {} MiB of {} MiB, {whose}", mib(wanted), mib(limit)),
        ),
    }
}

fn cpus(machine: &Machine, threads: usize) -> Finding {
    const CHECK: &str = "CPUs";
    let usable = cpu::usable_count();
    let threads = if threads == 0 { usable } else { threads };
    let Some(limit) = machine.cpu_limit() else {
        return Finding::not_known(CHECK, "the control group's limit cannot be read");
    };
    match limit {
        Some(limit) if limit < threads as f64 => Finding::warning(
            CHECK,
            format!(
                "{threads} worker threads, and the control group may use {limit:.1} CPUs: the kernel stops them for parts of each period"
            ),
        )
        .mend(format!("threads {}", (limit.floor() as usize).max(1))),
        _ if threads > usable => Finding::warning(
            CHECK,
            format!("{threads} worker threads on {usable} CPUs: they wait for each other"),
        )
        .mend(format!("threads {usable}")),
        _ => Finding::ok(CHECK, format!("{threads} worker threads on {usable} CPUs")),
    }
}

fn clock(machine: &Machine) -> Finding {
    const CHECK: &str = "clock source";
    const PATH: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match machine.text(PATH) {
        None => Finding::not_known(CHECK, format!("{PATH} cannot be read")),
        Some(name) if FAST_CLOCKS.contains(&&*name) => Finding::ok(CHECK, name),
        Some(name) => Finding::warning(
            CHECK,
            format!("{name}: reading the time takes a call of the kernel"),
        )
        .mend("boot with tsc, if the machine has a steady one: clocksource=tsc"),
    }
}

fn governor(machine: &Machine) -> Finding {
    const CHECK: &str = "CPU frequency";
    match machine.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") {
        None => Finding::not_known(CHECK, "no governor is shown, as on most virtual machines"),
        Some(name) if name == "powersave" => Finding::warning(
            CHECK,
            "the governor is powersave: CPUs run slowly when load comes in bursts",
        )
        .mend("cpupower frequency-set -g performance"),
        Some(name) => Finding::ok(CHECK, format!("the governor is {name}")),
    }
}

fn local_ports(machine: &Machine) -> Finding {
    const CHECK: &str = "local ports";
    const PATH: &str = "/proc/sys/net/ipv4/ip_local_port_range";
    let range = machine.text(PATH).and_then(|text| {
        let mut ends = text.split_whitespace().map(|end| end.parse::<u64>().ok());
        ends.next()??.checked_sub(0).zip(ends.next()?)
    });
    match range {
        None => Finding::not_known(CHECK, format!("{PATH} cannot be read")),
        Some((first, last)) if last.saturating_sub(first) < LOCAL_PORTS_MIN => Finding::warning(
            CHECK,
            format!("{first} to {last}: so many connections to one address at most"),
        )
        .mend("sysctl -w net.ipv4.ip_local_port_range=\"10000 65535\""),
        Some((first, last)) => Finding::ok(CHECK, format!("{first} to {last}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::State;

    /// Returns a machine with these files, and the folder that holds them.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine::below(folder.path());
        (folder, machine)
    }

    #[test]
    fn what_cannot_be_read_is_not_known() {
        let (_folder, machine) = machine(&[]);
        for one in [
            huge_pages(&machine),
            overcommit(&machine),
            swap(&machine),
            somaxconn(&machine, 511, "tcp-backlog"),
            memory(&machine, 0),
            cpus(&machine, 1),
            clock(&machine),
            governor(&machine),
            local_ports(&machine),
        ] {
            assert_eq!(one.state, State::NotKnown, "{one:?}");
        }
    }

    #[test]
    fn a_limit_of_the_control_group_below_maxmemory_is_a_fault() {
        let memory_of = |max: &str, wanted| {
            let (_folder, machine) = machine(&[
                (
                    "proc/meminfo",
                    "MemTotal:       8388608 kB\nSwapTotal: 0 kB\n",
                ),
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/memory.max", max),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ]);
            memory(&machine, wanted)
        };
        assert_eq!(memory_of("1073741824\n", 2 << 30).state, State::Fault);
        assert_eq!(memory_of("1073741824\n", 0).state, State::Warning);
        assert_eq!(memory_of("1073741824\n", 512 << 20).state, State::Ok);
        assert_eq!(memory_of("max\n", 0).state, State::Ok);
        assert_eq!(memory_of("max\n", 9 << 30).state, State::Fault);
        let mend = memory_of("1073741824\n", 2 << 30).mend.unwrap();
        assert_eq!(mend, "maxmemory 819mb");
    }

    #[test]
    fn a_share_of_the_cpus_below_the_threads_is_told() {
        let (_folder, machine) = machine(&[
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/cpu.max", "50000 100000\n"),
        ]);
        assert_eq!(machine.cpu_limit(), Some(Some(0.5)));
        assert_eq!(cpus(&machine, 1).state, State::Warning);
    }

    #[test]
    fn settings_of_the_kernel_are_judged() {
        let (_folder, machine) = machine(&[
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "always madvise [never]\n",
            ),
            ("proc/sys/vm/overcommit_memory", "2\n"),
            ("proc/sys/vm/swappiness", "60\n"),
            ("proc/meminfo", "MemTotal: 8 kB\nSwapTotal: 2097152 kB\n"),
            ("proc/sys/net/core/somaxconn", "128\n"),
            ("proc/sys/net/ipv4/ip_local_port_range", "32768\t40000\n"),
        ]);
        for one in [
            huge_pages(&machine),
            overcommit(&machine),
            swap(&machine),
            somaxconn(&machine, 511, "tcp-backlog"),
            local_ports(&machine),
        ] {
            assert_eq!(one.state, State::Warning, "{one:?}");
            assert!(one.mend.is_some(), "{one:?}");
        }
        assert_eq!(somaxconn(&machine, 128, "tcp-backlog").state, State::Ok);
    }
}
