//! Messages from any thread to the one that owns a loop.
//!
//! It must not know what the messages mean.
//!
//! # The idea
//!
//! The queue is a vector behind a mutex that is held for one push or one swap: a sender never waits longer than that,
//! and the receiver takes a whole batch at the price of one message. What costs is not the queue but the wake-up, a
//! system call on the sender's side and another turn of the loop on the receiver's. One word keeps them rare:
//!
//! | state | the receiver | a sender that finds it |
//! |---|---|---|
//! | `AWAKE` | runs, and will look at the word before it sleeps | sets `NOTIFIED` |
//! | `NOTIFIED` | runs, and has something to fetch | leaves it |
//! | `ASLEEP` | sleeps, or is about to | sets `NOTIFIED`, and wakes it |
//!
//! So a sleeping receiver costs one wake-up for each batch, and a busy one none at all.
//!
//! # Why no wake-up is lost
//!
//! A sender pushes, *then* swaps the word to `NOTIFIED`. The receiver goes to sleep by a compare-and-swap from `AWAKE`
//! to `ASLEEP`. Both act on one word, so one of them comes first. If the sender does, the compare-and-swap fails and
//! the receiver, instead of sleeping, drains. If the receiver does, the sender finds `ASLEEP` and wakes it; the
//! poller's eventfd remembers a wake-up that comes before the wait begins. And in draining the word is set to `AWAKE`
//! *before* the queue is taken: a message that misses the batch sets the word again. The tests in `interleavings`
//! walk through the orders of these steps. (loom runs a lock and the word beside it in program order, so it does not
//! check that the orderings named below keep them so; on that the comments there stand alone.)

use crate::Waker;
use crate::sync::{Arc, AtomicU8, Mutex, Ordering};

const AWAKE: u8 = 0;
const NOTIFIED: u8 = 1;
const ASLEEP: u8 = 2;

/// The receiving end; belongs to one loop.
/// The queue has no limit of its own, so that a control message is never refused: a thread that sends in bulk bounds
/// its outstanding messages, by [`Sender::queued`] or by waiting for an answer.
pub struct Mailbox<T> {
    shared: Arc<Shared<T>>,
}

/// A sending end; any number of them, on any thread.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: AtomicU8,
    queue: Mutex<Queue<T>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

struct Queue<T> {
    messages: Vec<T>,
    /// The receiver is gone: messages are dropped at once, with whatever they hold.
    closed: bool,
}

impl<T> Mailbox<T> {
    /// Makes a mailbox whose senders wake the poller of `waker`.
    pub fn new(waker: Waker) -> Self {
        Mailbox::with_wake(move || waker.wake())
    }

    /// Makes a mailbox for a thread that sleeps in a way of its own, such as `park`. `wake` must end the current sleep,
    /// or else the next one; it is called on the sender's thread.
    pub fn with_wake(wake: impl Fn() + Send + Sync + 'static) -> Self {
        let queue = Mutex::new(Queue {
            messages: Vec::new(),
            closed: false,
        });
        Mailbox {
            shared: Arc::new(Shared {
                state: AtomicU8::new(AWAKE),
                queue,
                wake: Box::new(wake),
            }),
        }
    }

    /// Returns a new sending end.
    pub fn sender(&self) -> Sender<T> {
        Sender {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Moves all waiting messages to the end of `messages`, oldest first; those of one sender keep their order.
    /// Also tells the senders that the receiver is awake: call it in every turn of the loop.
    pub fn drain(&mut self, messages: &mut Vec<T>) {
        // Relaxed: if the word says that nothing came, nothing is read on its account, and should a message just be
        // coming, `prepare_to_sleep` will notice.
        let state = self.shared.state.load(Ordering::Relaxed);
        if state == AWAKE {
            return;
        }
        // Acquire: pairs with the senders' release, so that our lock comes after theirs and finds what they pushed; and
        // the queue is not taken before the word is set (see above).
        if self.shared.state.swap(AWAKE, Ordering::Acquire) == ASLEEP {
            return;
        }
        let mut queue = self.shared.lock();
        if messages.is_empty() {
            std::mem::swap(messages, &mut queue.messages);
        } else {
            messages.append(&mut queue.messages);
        }
    }

    /// Called right before the loop waits. Returns true if it may wait without a time limit, since a message will wake
    /// it; false if messages are there, so that it must not wait, but drain.
    #[must_use]
    pub fn prepare_to_sleep(&mut self) -> bool {
        // Relaxed: the word's own order of changes alone decides which side was first, and `drain` acquires.
        let state = &self.shared.state;
        let slept = state.compare_exchange(AWAKE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
        // Already ASLEEP: the loop turned once without draining, and nothing came since.
        slept != Err(NOTIFIED)
    }
}

impl<T> Sender<T> {
    /// Puts `message` in the mailbox and makes sure that its owner will look. Never blocks for long, never fails: if
    /// the mailbox is gone, the message is dropped.
    pub fn send(&self, message: T) {
        let mut queue = self.shared.lock();
        if queue.closed {
            return;
        }
        queue.messages.push(message);
        drop(queue);
        // Release: a thread that acquires the word finds the message. Nothing is read on account of the old value, it
        // only tells whether to wake.
        if self.shared.state.swap(NOTIFIED, Ordering::Release) == ASLEEP {
            (self.shared.wake)();
        }
    }

    /// Returns the number of messages that wait.
    pub fn queued(&self) -> usize {
        self.shared.lock().messages.len()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.closed = true;
        let messages = std::mem::take(&mut queue.messages);
        // Dropped without the lock: a message may hold a sender of this very mailbox.
        drop(queue);
        drop(messages);
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> crate::sync::MutexGuard<'_, Queue<T>> {
        // Nothing that runs under the lock can panic but a failing allocation, which ends the process.
        self.queue.lock().expect("no holder of the lock panics")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn counting() -> (Mailbox<u32>, Arc<AtomicUsize>) {
        let wakes = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&wakes);
        let mailbox = Mailbox::with_wake(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        (mailbox, wakes)
    }

    #[test]
    fn a_receiver_that_is_awake_is_not_woken() {
        let (mut mailbox, wakes) = counting();
        let sender = mailbox.sender();
        (0..100).for_each(|message| sender.send(message));
        assert!(
            !mailbox.prepare_to_sleep(),
            "with mail in the box nobody goes to sleep"
        );
        let mut messages = Vec::new();
        mailbox.drain(&mut messages);
        assert_eq!(messages, (0..100).collect::<Vec<_>>());
        assert_eq!(wakes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_sleeping_receiver_is_woken_once_for_a_batch() {
        let (mut mailbox, wakes) = counting();
        let (a, b) = (mailbox.sender(), mailbox.sender());
        for round in 1..=3 {
            assert!(mailbox.prepare_to_sleep());
            a.send(1);
            b.send(2);
            a.send(3);
            assert_eq!(a.queued(), 3);
            assert_eq!(wakes.load(Ordering::Relaxed), round);
            let mut messages = vec![0];
            mailbox.drain(&mut messages);
            assert_eq!(messages, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn waking_for_another_reason_and_sleeping_again_loses_nothing() {
        let (mut mailbox, wakes) = counting();
        let sender = mailbox.sender();
        let mut messages = Vec::new();
        assert!(mailbox.prepare_to_sleep());
        mailbox.drain(&mut messages); // a socket became readable
        sender.send(1);
        assert_eq!(wakes.load(Ordering::Relaxed), 0, "it was awake");
        mailbox.drain(&mut messages);
        assert!(mailbox.prepare_to_sleep());
        assert!(mailbox.prepare_to_sleep(), "a turn without draining");
        sender.send(2);
        assert_eq!(wakes.load(Ordering::Relaxed), 1);
        mailbox.drain(&mut messages);
        assert_eq!(messages, [1, 2]);
    }

    #[test]
    fn messages_to_a_closed_mailbox_are_dropped_at_once() {
        let dropped = Arc::new(());
        let mailbox = Mailbox::with_wake(|| {});
        let sender = mailbox.sender();
        sender.send(Arc::clone(&dropped));
        drop(mailbox);
        assert_eq!(Arc::strong_count(&dropped), 1, "those that waited");
        sender.send(Arc::clone(&dropped));
        assert_eq!(Arc::strong_count(&dropped), 1, "those that come later");
    }
}

/// Every interleaving of senders and receiver, within loom's bounds:
/// `RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom cargo test -p redline-net --release --lib interleavings`
#[cfg(all(test, loom))]
mod interleavings {
    use std::sync::atomic::AtomicUsize; // outside the model: it only counts

    use loom::sync::{Condvar, Mutex};
    use loom::thread;

    use super::*;

    /// Stands for the poller and its eventfd: remembers a wake-up until a wait takes it. A wait that is never ended is
    /// a deadlock, which loom reports.
    #[derive(Default)]
    struct Eventfd {
        set: Mutex<bool>,
        changed: Condvar,
        writes: AtomicUsize,
    }

    impl Eventfd {
        fn wake(&self) {
            self.writes.fetch_add(1, Ordering::Relaxed);
            *self.set.lock().unwrap() = true;
            self.changed.notify_one();
        }

        fn wait(&self) {
            let mut set = self.set.lock().unwrap();
            while !*set {
                set = self.changed.wait(set).unwrap();
            }
            *set = false;
        }

        /// Waits in a way that may be ended by something else than a message.
        fn poll(&self) {
            *self.set.lock().unwrap() = false;
        }
    }

    fn mailbox() -> (Mailbox<usize>, Arc<Eventfd>) {
        let eventfd = Arc::new(Eventfd::default());
        let woken = Arc::clone(&eventfd);
        (Mailbox::with_wake(move || woken.wake()), eventfd)
    }

    fn send_from_thread(
        mailbox: &Mailbox<usize>,
        messages: std::ops::Range<usize>,
    ) -> thread::JoinHandle<()> {
        let sender = mailbox.sender();
        thread::spawn(move || messages.for_each(|message| sender.send(message)))
    }

    /// Runs the receiver's loop until `count` messages have come; returns how often it went to sleep.
    fn receive(
        mailbox: &mut Mailbox<usize>,
        eventfd: &Eventfd,
        count: usize,
    ) -> (Vec<usize>, usize) {
        let (mut messages, mut sleeps) = (Vec::new(), 0);
        loop {
            mailbox.drain(&mut messages);
            if messages.len() >= count {
                return (messages, sleeps);
            }
            if mailbox.prepare_to_sleep() {
                sleeps += 1;
                eventfd.wait();
            }
        }
    }

    #[test]
    fn no_message_is_lost_or_left_lying() {
        // With three threads every order would take hours; faults in such protocols show with two or three switches.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (mut mailbox, eventfd) = mailbox();
            let senders = [
                send_from_thread(&mailbox, 0..2),
                send_from_thread(&mailbox, 2..3),
            ];
            let (messages, sleeps) = receive(&mut mailbox, &eventfd, 3);
            senders
                .into_iter()
                .for_each(|sender| sender.join().unwrap());
            let mut sorted = messages.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
            let place = |wanted| messages.iter().position(|message| *message == wanted);
            assert!(place(0) < place(1), "a sender's messages keep their order");
            // Each write of the eventfd answers a sleep: never more than one for a batch.
            assert!(eventfd.writes.load(Ordering::Relaxed) <= sleeps);
        });
    }

    #[test]
    fn a_loop_that_also_wakes_for_sockets_loses_nothing() {
        loom::model(|| {
            let (mut mailbox, eventfd) = mailbox();
            let sender = send_from_thread(&mailbox, 0..2);
            let mut messages = Vec::new();
            // Two turns that a socket ends at once, one of them without draining.
            let _ = mailbox.prepare_to_sleep();
            eventfd.poll();
            if mailbox.prepare_to_sleep() {
                eventfd.poll();
            }
            mailbox.drain(&mut messages);
            let (rest, _) = receive(&mut mailbox, &eventfd, 2 - messages.len());
            messages.extend(rest);
            sender.join().unwrap();
            assert_eq!(messages, [0, 1]);
        });
    }

    #[test]
    fn closing_while_messages_come_frees_them_all() {
        loom::model(|| {
            let mailbox: Mailbox<Arc<()>> = Mailbox::with_wake(|| {});
            let sender = mailbox.sender();
            // loom reports every Arc that is never dropped.
            let thread = thread::spawn(move || {
                sender.send(Arc::new(()));
                sender.send(Arc::new(()));
            });
            drop(mailbox);
            thread.join().unwrap();
        });
    }
}
