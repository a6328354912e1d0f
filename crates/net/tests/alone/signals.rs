//! Signals as events.

use std::process::Command;
use std::time::Duration;

use redline_net::{Interest, Poller, Signal, Signals};

use crate::{alone, sockets};

#[test]
fn signals_arrive_as_events_and_are_given_back_afterwards() {
    let _alone = alone();
    let before = caught();
    let mut poller = Poller::new(8).unwrap();
    for _ in 0..2 {
        let received =
            Signals::install(&[Signal::Terminate, Signal::Interrupt, Signal::Hangup]).unwrap();
        assert!(
            Signals::install(&[Signal::Terminate]).is_err(),
            "one receiver at a time"
        );
        poller.register(&received, 1, Interest::Read).unwrap();
        for (name, signal) in [
            ("TERM", Signal::Terminate),
            ("HUP", Signal::Hangup),
            ("INT", Signal::Interrupt),
        ] {
            kill(name);
            sockets::wait_for(&mut poller, 1, |event| event.readable);
            assert_eq!(received.next(), Some(signal));
            assert_eq!(received.next(), None);
        }
        // Come, but not looked at before the receiver goes: the next receiver must not get it.
        kill("HUP");
        sockets::wait_for(&mut poller, 1, |event| event.readable);
        poller.deregister(&received).unwrap();
        drop(received);
        assert_eq!(caught(), before);
    }
    let received = Signals::install(&[Signal::Interrupt]).unwrap();
    assert_eq!(received.next(), None);
    poller.register(&received, 2, Interest::Read).unwrap();
    poller.poll(Some(Duration::ZERO)).unwrap();
    assert_eq!(poller.event_count(), 0);
}

fn kill(name: &str) {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &std::process::id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Returns the signals for which this process has handlers, as a mask of bits.
fn caught() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .unwrap()
        .trim()
        .to_owned()
}
