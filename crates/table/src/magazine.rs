//! A thread's stacks of free objects in front of an arena. Must not know anything but classes and addresses.
//!
//! A magazine is a stack of free objects of one class, at most two batches. It takes a batch from the arena when it is
//! empty, and gives its oldest back when it is full; in between an allocation is a pop, without lock or atomic. While an
//! evacuation runs, objects of the segments that are to become empty are not kept: see [`Magazines::tick`].

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::arena::{Arena, class_bytes};

/// Counts the beginnings and ends of evacuations: odd while one runs.
static EVACUATIONS: AtomicU64 = AtomicU64::new(0);

/// Objects of a batch, at most.
const BATCH_OBJECTS_MAX: usize = 64;

/// Counts the beginning or the end of an evacuation; called after its segments were marked, and after they were
/// unmarked.
pub(crate) fn evacuation_turned() {
    EVACUATIONS.fetch_add(1, Relaxed);
}

/// The magazines of the first `CLASSES` classes of an arena.
pub(crate) struct Magazines<const CLASSES: usize> {
    arena: &'static Arena,
    batch_bytes: usize,
    stacks: Box<[Vec<NonNull<u8>>; CLASSES]>,
    /// The value of `EVACUATIONS` at the last `tick`.
    evacuations_seen: u64,
}

// SAFETY: the magazines own their objects, to which no other code has access; the pointers are bound to no thread.
unsafe impl<const CLASSES: usize> Send for Magazines<CLASSES> {}

impl<const CLASSES: usize> Magazines<CLASSES> {
    /// Makes empty magazines, whose batches are of about so many bytes.
    pub(crate) fn new(arena: &'static Arena, batch_bytes: usize) -> Self {
        let stacks = Box::new([const { Vec::new() }; CLASSES]);
        Magazines {
            arena,
            batch_bytes,
            stacks,
            evacuations_seen: 0,
        }
    }

    /// Takes a free object, not initialised.
    #[inline]
    pub(crate) fn take(&mut self, class: usize) -> NonNull<u8> {
        match self.stacks[class].pop() {
            Some(object) => object,
            None => self.refill(class),
        }
    }

    /// Takes a free object back.
    ///
    /// # Safety
    /// It came from these or other magazines of the same arena, or from the arena, with this class, is not used any
    /// more, and is given back once.
    #[inline]
    pub(crate) unsafe fn give_back(&mut self, class: usize, object: NonNull<u8>) {
        if self.knows_of_evacuation() && self.arena.is_evacuating(object.addr().get()) {
            // Not kept: the next `take` would use it again.
            // SAFETY: the caller vouches for the object.
            return unsafe { self.arena.give_back(class, &[object]) };
        }
        let stack = &mut self.stacks[class];
        if stack.len() == stack.capacity() {
            self.make_room(class);
        }
        self.stacks[class].push(object);
    }

    /// Releases objects that an evacuation waits for. One relaxed load when there is nothing to do.
    #[inline]
    pub(crate) fn tick(&mut self) {
        let evacuations = EVACUATIONS.load(Relaxed);
        if evacuations != self.evacuations_seen {
            self.evacuations_seen = evacuations;
            self.drop_evacuating();
        }
    }

    /// Gives every object back to the arena.
    pub(crate) fn flush(&mut self) {
        for class in 0..CLASSES {
            self.give_oldest(class, self.stacks[class].len());
        }
    }

    #[inline]
    fn knows_of_evacuation(&self) -> bool {
        self.evacuations_seen % 2 == 1
    }

    fn batch(&self, class: usize) -> usize {
        (self.batch_bytes / class_bytes(class)).clamp(1, BATCH_OBJECTS_MAX)
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self, class: usize) -> NonNull<u8> {
        let batch = self.batch(class);
        let stack = &mut self.stacks[class];
        if stack.capacity() == 0 {
            stack.reserve_exact(2 * batch);
        }
        self.arena.take(class, batch, |object| stack.push(object));
        // They are used from the end: so in the order of addresses.
        stack.reverse();
        stack.pop().expect("the arena gives at least one object")
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, class: usize) {
        let batch = self.batch(class);
        if self.stacks[class].capacity() == 0 {
            self.stacks[class].reserve_exact(2 * batch);
        } else {
            // Objects that were freed last stay: they are in the cache.
            self.give_oldest(class, batch);
        }
    }

    fn give_oldest(&mut self, class: usize, count: usize) {
        let stack = &mut self.stacks[class];
        // SAFETY: the magazine owned these objects, and forgets them in the next line.
        unsafe { self.arena.give_back(class, &stack[..count]) };
        stack.drain(..count);
    }

    #[cold]
    fn drop_evacuating(&mut self) {
        if !self.knows_of_evacuation() {
            return;
        }
        for (class, stack) in self.stacks.iter_mut().enumerate() {
            stack.retain(|object| {
                let evacuating = self.arena.is_evacuating(object.addr().get());
                if evacuating {
                    // SAFETY: the magazine owned the object, and forgets it here.
                    unsafe { self.arena.give_back(class, &[*object]) };
                }
                !evacuating
            });
        }
    }
}

impl<const CLASSES: usize> Drop for Magazines<CLASSES> {
    fn drop(&mut self) {
        self.flush();
    }
}
