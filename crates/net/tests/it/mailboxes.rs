//! A mailbox with a real poller and real threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redline_net::{Interest, Mailbox, Poller, Read, Stream, Waker};

use crate::sockets::{self, PATIENCE};

const WAKER: usize = 0;

#[test]
fn thousands_of_messages_from_many_threads_all_arrive_in_each_senders_order() {
    const SENDERS: usize = 4;
    const MESSAGES: usize = 20_000;
    let mut poller = Poller::new(8).unwrap();
    let (mut mailbox, wakes) = counted(poller.waker(WAKER).unwrap());
    let threads: Vec<_> = (0..SENDERS)
        .map(|who| {
            let sender = mailbox.sender();
            std::thread::spawn(move || {
                for message in 0..MESSAGES {
                    sender.send((who, message));
                    // In bursts with rests, so that the receiver falls asleep in between.
                    if message % 1000 == 0 {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();

    let (mut next, mut received, mut sleeps) = ([0; SENDERS], 0, 0);
    let mut batch = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while received < SENDERS * MESSAGES {
        assert!(Instant::now() < deadline, "{received} came");
        let asleep = mailbox.prepare_to_sleep();
        sleeps += usize::from(asleep);
        poller
            .poll(Some(if asleep { PATIENCE } else { Duration::ZERO }))
            .unwrap();
        mailbox.drain(&mut batch);
        received += batch.len();
        for (who, message) in batch.drain(..) {
            assert_eq!(message, next[who], "of sender {who}");
            next[who] += 1;
        }
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(
        wakes.load(Ordering::Relaxed) <= sleeps,
        "one wake-up for each sleep at most"
    );
}

fn counted<T: Send + 'static>(waker: Waker) -> (Mailbox<T>, Arc<AtomicUsize>) {
    let wakes = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&wakes);
    let mailbox = Mailbox::with_wake(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        waker.wake();
    });
    (mailbox, wakes)
}

#[test]
fn a_wake_up_before_the_wait_is_not_lost() {
    let mut poller = Poller::new(8).unwrap();
    let waker = poller.waker(WAKER).unwrap();
    for _ in 0..3 {
        waker.wake();
        waker.wake();
        let event = sockets::wait_for(&mut poller, WAKER, |_| true);
        assert!(event.readable);
        poller.poll(Some(Duration::ZERO)).unwrap();
        assert_eq!(
            poller.event_count(),
            0,
            "two wake-ups before one wait are one event"
        );
    }
}

#[test]
fn a_stream_moves_to_another_threads_poller() {
    let (mut ours, theirs) = Stream::pair().unwrap();
    // Watched here first, as an accepting thread would, then handed over.
    let mut here = Poller::new(8).unwrap();
    here.register(&theirs, 1, Interest::Read).unwrap();
    here.deregister(&theirs).unwrap();

    let (ready, mailbox_of_worker) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || {
        let mut poller = Poller::new(8).unwrap();
        let mut mailbox: Mailbox<Stream> = Mailbox::new(poller.waker(WAKER).unwrap());
        ready.send(mailbox.sender()).unwrap();
        let mut streams = Vec::new();
        while streams.is_empty() {
            if mailbox.prepare_to_sleep() {
                sockets::wait_for(&mut poller, WAKER, |_| true);
            }
            mailbox.drain(&mut streams);
        }
        let mut stream = streams.remove(0);
        poller.register(&stream, 2, Interest::Read).unwrap();
        sockets::wait_for(&mut poller, 2, |event| event.readable);
        let mut room = [0; 8];
        assert_eq!(
            stream.read(&mut room).unwrap(),
            Read::Data {
                bytes: 5,
                drained: true
            }
        );
        stream.write(&room[..5]).unwrap();
    });
    let sender = mailbox_of_worker.recv().unwrap();
    // Sent before it is registered there: registering reports what is there already.
    ours.write(b"early").unwrap();
    sender.send(theirs);
    assert_eq!(sockets::read_exactly(&mut ours, 5), b"early");
    worker.join().unwrap();
    here.poll(Some(Duration::ZERO)).unwrap();
    assert_eq!(here.event_count(), 0);
}
