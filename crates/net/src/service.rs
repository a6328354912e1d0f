//! Functions for a program that runs as a service: leaving the terminal, showing itself in the list of processes.
//!
//! It must not know what the program serves, nor how any of this is configured.

use std::{fs, io, os::fd::AsRawFd, sync::Mutex};

/// Continues in a child process of a session of its own, with nothing on its standard streams; the calling process ends
/// with success and without output. Only before the first thread is started: a child has only the thread that forks.
pub fn daemonize() -> io::Result<()> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("threads are running already"));
    }
    let null = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    // SAFETY: this is the only thread, so no lock is held by one that the child would lack, and whatever this process
    // has in memory is whole in the child.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        // SAFETY: ends the process at once. Nothing is cleaned up: that is the child's to do.
        _ => unsafe { libc::_exit(0) },
    }
    // SAFETY: takes nothing. It fails only for the leader of a group, which a fresh child is not.
    unsafe { libc::setsid() };
    for standard in 0..=2 {
        // SAFETY: `null` is open, and no other part of the process owns the standard descriptors.
        if unsafe { libc::dup2(null.as_raw_fd(), standard) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Stops the process until another one continues it: upstart takes this as the sign that a service is ready.
pub fn stop_until_continued() -> io::Result<()> {
    // SAFETY: sends a signal to this process; it is stopped, and nothing of it changes.
    match unsafe { libc::raise(libc::SIGSTOP) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns how willing the kernel is to end this process when memory runs out: -1000, never, to 1000, first.
pub fn oom_score_adj() -> io::Result<i32> {
    let text = fs::read_to_string(OOM_SCORE_ADJ)?;
    text.trim()
        .parse()
        .map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Sets [`oom_score_adj`]. To lower it needs privileges, but for an amount by which it was raised before.
pub fn set_oom_score_adj(score: i32) -> io::Result<()> {
    fs::write(OOM_SCORE_ADJ, format!("{score}\n"))
}

const OOM_SCORE_ADJ: &str = "/proc/self/oom_score_adj";

/// Shows `title` instead of the command line in the list of processes, as far as that has room: what does not fit is
/// cut off, see [`title_bytes_max`].
pub fn set_title(title: &str) -> io::Result<()> {
    /// Held by the one writer.
    static WRITING: Mutex<()> = Mutex::new(());
    let _alone = WRITING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let (from, to) = command_line_place()?;
    let len = to - from;
    let fits = title.len().min(len.saturating_sub(1));
    // SAFETY: the kernel has put the texts of the command line there, at the foot of the first thread's stack, which is
    // writable and never unmapped; it says so itself in /proc. They are read again by nobody but the kernel: the standard
    // library goes back to them only when the arguments are asked for anew, and then finds each ended by a zero, the last
    // of which is never overwritten.
    unsafe {
        let place = from as *mut u8;
        place.copy_from(title.as_ptr(), fits);
        place.add(fits).write_bytes(0, len - fits);
    }
    Ok(())
}

/// Returns the longest possible title in bytes.
pub fn title_bytes_max() -> io::Result<usize> {
    let (from, to) = command_line_place()?;
    Ok((to - from).saturating_sub(1))
}

/// Returns the place of this process's command line in memory.
fn command_line_place() -> io::Result<(usize, usize)> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    parse_place(&stat).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Parses fields 48 and 49 of `/proc/*/stat`; the second, in brackets, may hold anything.
fn parse_place(stat: &str) -> Option<(usize, usize)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(48 - 3);
    let from: usize = fields.next()?.parse().ok()?;
    let to: usize = fields.next()?.parse().ok()?;
    (from != 0 && from < to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_command_line_is_read_behind_any_name() {
        let fields: Vec<String> = (3..=52).map(|field| (field * 1000).to_string()).collect();
        let stat = format!("7 (a) b (c) {}", fields.join(" "));
        assert_eq!(parse_place(&stat), Some((48_000, 49_000)));
        assert_eq!(parse_place("7 (a) 1 2"), None);
    }

    #[test]
    fn a_process_with_threads_does_not_go_to_the_background() {
        // The test runner has threads.
        std::thread::spawn(|| assert!(daemonize().is_err()))
            .join()
            .unwrap();
    }
}
