//! A poller that lets events gather: it never sleeps over what is there, and misses nothing that comes meanwhile.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redline_net::{Interest, Poller, Stream, clock};

const TOKEN: usize = 7;
/// A time-out longer than any test.
const FOR_EVER: Duration = Duration::from_secs(100_000);
const SHORT: Duration = Duration::from_micros(10);

fn poller_with(source: &Stream, gathering: Duration) -> Poller {
    let mut poller = Poller::new(8).unwrap();
    poller.register(source, TOKEN, Interest::Read).unwrap();
    poller.set_gathering(gathering);
    poller
}

#[test]
fn what_is_there_is_reported_at_once() {
    let (mut near, far) = Stream::pair().unwrap();
    let mut poller = poller_with(&far, FOR_EVER);
    near.write(b"x").unwrap();
    poller.poll(None).unwrap();
    assert_eq!((poller.event_count(), poller.has_gathered()), (1, false));
}

#[test]
fn a_look_does_not_wait() {
    let (_near, far) = Stream::pair().unwrap();
    let mut poller = poller_with(&far, FOR_EVER);
    poller.poll(Some(Duration::ZERO)).unwrap();
    assert_eq!((poller.event_count(), poller.has_gathered()), (0, false));
}

#[test]
fn without_anything_to_report_events_gather() {
    let (_near, far) = Stream::pair().unwrap();
    let mut poller = poller_with(&far, SHORT);
    poller.poll(Some(Duration::from_millis(1))).unwrap();
    assert_eq!((poller.event_count(), poller.has_gathered()), (0, true));
}

#[test]
fn what_it_costs_is_measured_once_it_has_happened() {
    let (_near, far) = Stream::pair().unwrap();
    let mut poller = poller_with(&far, SHORT);
    assert!(poller.rest_cost().is_zero());
    let used_before_ns = clock::thread_cpu_ns();
    poller.poll(Some(Duration::from_millis(1))).unwrap();
    let used = Duration::from_nanos(clock::thread_cpu_ns() - used_before_ns);
    assert!(!poller.rest_cost().is_zero() && poller.rest_cost() <= used);
    let known = poller.rest_cost();
    poller.poll(Some(Duration::from_millis(1))).unwrap();
    assert_eq!(poller.rest_cost(), known);
}

#[test]
fn what_comes_while_events_gather_or_later_is_reported() {
    let (mut near, far) = Stream::pair().unwrap();
    let mut poller = poller_with(&far, SHORT);
    let writer = thread::spawn(move || {
        near.write(b"x").unwrap();
        near
    });
    poller.poll(None).unwrap();
    assert_eq!(poller.event(0).token, TOKEN);
    writer.join().unwrap();
}

#[test]
fn a_waker_ends_it() {
    let (_near, far) = Stream::pair().unwrap();
    let mut poller = poller_with(&far, FOR_EVER);
    let waker = poller.waker(TOKEN + 1).unwrap();
    let (tell, told) = mpsc::channel();
    waker.wake();
    let sleeper = thread::spawn(move || {
        // The first look finds the wake-up that came before it, the second has to be woken.
        poller.poll(None).unwrap();
        assert!(!poller.has_gathered());
        tell.send(()).unwrap();
        poller.poll(None).unwrap();
        poller.event(0).token
    });
    told.recv().unwrap();
    waker.wake();
    assert_eq!(sleeper.join().unwrap(), TOKEN + 1);
}

#[test]
fn a_sleep_that_no_socket_ends_is_ended_by_a_waker_and_reports_what_came_meanwhile() {
    const SPAN: Duration = Duration::from_millis(30);
    let (mut near, far) = Stream::pair().unwrap();
    let mut poller = Poller::new(8).unwrap();
    poller.register(&far, TOKEN, Interest::Read).unwrap();
    let waker = poller.waker(TOKEN + 1).unwrap();
    // The first one makes the thread known.
    poller.poll_after(Duration::ZERO).unwrap();
    near.write(b"x").unwrap();
    let began_us = clock::monotonic_us();
    poller.poll_after(SPAN).unwrap();
    let took_us = clock::monotonic_us() - began_us;
    assert!(u128::from(took_us) >= SPAN.as_micros(), "{took_us}");
    assert_eq!(poller.event(0).token, TOKEN);
    let waking = thread::spawn(move || waker.wake());
    poller.poll_after(FOR_EVER).unwrap();
    assert_eq!(poller.event(0).token, TOKEN + 1);
    waking.join().unwrap();
}

#[test]
fn a_waker_that_did_not_know_the_thread_yet_is_heard() {
    let mut poller = Poller::new(8).unwrap();
    let waker = poller.waker(TOKEN).unwrap();
    waker.wake();
    poller.poll_after(FOR_EVER).unwrap();
    assert_eq!(poller.event(0).token, TOKEN);
}
