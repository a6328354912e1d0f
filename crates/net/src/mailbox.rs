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
//! *before* the queue is taken: a message that misses the batch sets the word again. The test in `interleavings`
//! walks through every order of these steps.

use crate::Waker;
use crate::sync::{Arc, AtomicU8, Mutex, Ordering};

const AWAKE: u8 = 0;
const NOTIFIED: u8 = 1;
const ASLEEP: u8 = 2;

/// The receiving end; belongs to one loop.
///
/// The queue has no limit of its own, so that a control message is never refused: whoever sends in bulk bounds what
/// it has outstanding, by [`Sender::queued`] or by waiting for an answer.
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
    /// A mailbox whose senders wake the poller of `waker`.
    pub fn new(waker: Waker) -> Self {
        Mailbox::with_wake(move || waker.wake())
    }

    /// A mailbox for a thread that sleeps in a way of its own, such as `park`. `wake` must end the current sleep, or
    /// else the next one; it is called on the sender's thread.
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

    /// A new sending end.
    pub fn sender(&self) -> Sender<T> {
        Sender {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Moves all waiting messages to the end of `messages`, oldest first; those of one sender keep their order.
    /// Also tells the senders that the receiver is awake: call it in every turn of the loop.
    pub fn drain(&mut self, messages: &mut Vec<T>) {
        // Relaxed: when the word says that nothing came, nothing is read on its account; should a message just be
        // coming, `prepare_to_sleep` will see it.
        let state = self.shared.state.load(Ordering::Relaxed);
        if state == AWAKE {
            return;
        }
        // Acquire: pairs with the senders' release, so that what they pushed is seen. Before the queue is taken: see
        // above.
        if self.shared.state.swap(AWAKE, Ordering::AcqRel) == ASLEEP {
            return;
        }
        let mut queue = self.shared.lock();
        if messages.is_empty() {
            std::mem::swap(messages, &mut queue.messages);
        } else {
            messages.append(&mut queue.messages);
        }
    }

    /// To be called right before the loop waits. `true`: it may wait as long as it likes, a message will wake it.
    /// `false`: messages are there, so it must not wait, but drain.
    #[must_use]
    pub fn prepare_to_sleep(&mut self) -> bool {
        // Acquire on failure, which means that a sender was first. Release orders nothing that a sender reads.
        let slept =
            self.shared
                .state
                .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
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
        // Release: who sees the word sees the message. Acquire is not needed: only the value decides.
        if self.shared.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP {
            (self.shared.wake)();
        }
    }

    /// How many messages wait.
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
