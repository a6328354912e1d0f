//! CPUs: which ones may be used, and binding a thread to some of them.
//!
//! It must not know what the threads do.

use std::io;
use std::mem;

/// Returns the number of CPUs that this process may use: those it is bound to, less what a control group's quota takes
/// away.
pub fn usable_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the numbers of the CPUs that the calling thread may run on.
#[cfg(test)]
fn usable() -> io::Result<Vec<usize>> {
    // SAFETY: a cpu_set_t is a plain array of bits; all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is valid for writes of the size given.
    let result = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the number is below CPU_SETSIZE, so the bit lies within the set.
    Ok((0..CPUS_MAX)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}

/// Binds the calling thread to `cpus`.
pub fn pin_current_thread(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: a cpu_set_t is a plain array of bits; all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for &cpu in cpus {
        if cpu >= CPUS_MAX {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: the number is below CPU_SETSIZE, so the bit lies within the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: `set` is valid for reads of the size given.
    let result = unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Parses a list of CPUs as Redis's `server-cpulist` has it: numbers and ranges with commas between them, a range with
/// an optional step: `0,2-3,4-10:2`. `None` if it is not such a list.
pub fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for item in text.split(',') {
        let (range, step) = match item.split_once(':') {
            Some((range, step)) => (range, number(step)?),
            None => (item, 1),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(range)?, number(range)?),
        };
        if step == 0 || last < first || last >= CPUS_MAX {
            return None;
        }
        cpus.extend((first..=last).step_by(step));
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

fn number(text: &str) -> Option<usize> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

const CPUS_MAX: usize = libc::CPU_SETSIZE as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_redis_writes_them() {
        assert_eq!(parse_list("0"), Some(vec![0]));
        assert_eq!(parse_list("3,0-1,1"), Some(vec![0, 1, 3]));
        assert_eq!(parse_list("0-7:2,9"), Some(vec![0, 2, 4, 6, 9]));
        for wrong in [
            "",
            ",",
            "1,",
            "a",
            "-1",
            "+1",
            "3-1",
            "0-3:0",
            "0-",
            "99999",
            "0-99999999999999999999",
        ] {
            assert_eq!(parse_list(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_pinned_thread_may_use_just_its_cpus() {
        std::thread::spawn(|| {
            let all = usable().unwrap();
            assert!(!all.is_empty());
            pin_current_thread(&all[..1]).unwrap();
            assert_eq!(usable().unwrap(), &all[..1]);
        })
        .join()
        .unwrap();
        assert!(usable_count() >= 1);
        assert!(pin_current_thread(&[CPUS_MAX]).is_err());
        assert!(pin_current_thread(&[]).is_err());
    }
}
