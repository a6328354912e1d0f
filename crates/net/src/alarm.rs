//! A time at which a poller wakes up, more exact than the milliseconds of [`crate::Poller::poll`].
//!
//! It must not know what is due then.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A timer that a [`crate::Poller`] can watch: each expiry is an event.
///
/// It need not be read: with edges, every expiry raises an event of its own, and setting it anew replaces the last one.
/// Timers of this kind are not delayed by the slack that the kernel gives to the timeout of a wait.
pub struct Alarm {
    timer: OwnedFd,
    /// 0 if nothing was set.
    at_ns: u64,
}

impl Alarm {
    /// Makes an alarm that is not set.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Alarm {
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            at_ns: 0,
        })
    }

    /// Sets the alarm to that time of [`crate::clock::monotonic_ns`]; it expires once, and at once if the time has
    /// passed. Replaces the last setting. A system call, unless the time is the one that was set last.
    pub fn set(&mut self, at_ns: u64) -> io::Result<()> {
        let at_ns = at_ns.max(1); // 0 would disarm it
        if self.at_ns == at_ns {
            return Ok(());
        }
        let seconds = |ns: u64| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as _,
        };
        let times = Itimerspec {
            it_interval: seconds(0),
            it_value: seconds(at_ns),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &times)?;
        self.at_ns = at_ns;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interest, Poller, clock};

    #[test]
    fn each_expiry_is_an_event_although_nobody_reads_the_timer() {
        let mut poller = Poller::new(8).unwrap();
        let mut alarm = Alarm::new().unwrap();
        poller.register(&alarm, 7, Interest::Read).unwrap();
        for wait_ns in [300_000, 0, 1_500_000, 50_000] {
            let at_ns = clock::monotonic_ns() + wait_ns;
            alarm.set(at_ns).unwrap();
            poller.poll(None).unwrap();
            assert!(clock::monotonic_ns() >= at_ns, "too early");
            let tokens: Vec<_> = poller.events().map(|event| event.token).collect();
            assert_eq!(tokens, [7]);
        }
    }

    #[test]
    fn a_later_time_replaces_the_earlier_one() {
        let mut poller = Poller::new(8).unwrap();
        let mut alarm = Alarm::new().unwrap();
        poller.register(&alarm, 7, Interest::Read).unwrap();
        let now_ns = clock::monotonic_ns();
        alarm.set(now_ns + 60_000_000_000).unwrap();
        alarm.set(now_ns + 1_000_000).unwrap();
        poller.poll(None).unwrap();
        assert!(clock::monotonic_ns() < now_ns + 50_000_000_000);
        assert_eq!(poller.event_count(), 1);
    }
}
