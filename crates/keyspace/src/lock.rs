//! The lock protocol: stripes, the ticket and the script mutex.
//!
//! Must not know: keys, threads. It gets the stripes that a unit needs, and gives a [`Wake`] the suspended sessions
//! that may try again.
//!
//! # The protocol
//!
//! A *unit* (one command, one EXEC, one script, one expiry, one eviction) holds every stripe it
//! needs while it runs. Three rules keep this free of deadlock and of starvation:
//!
//! 1. **Only the holder of the script mutex may wait while it holds a stripe.** Every other unit takes all its stripes
//!    by trying, in ascending order; if one is in the way it releases all and is suspended, registered with the stripe
//!    that was in the way. So a wait cycle would have to consist of script holders only, and there is at most one.
//! 2. **The releaser wakes.** A suspended session is on the waiting list of the stripe that stopped it and has set
//!    `WAITERS` in its word. The releaser clears the word with one atomic operation and sees the flag in what it
//!    cleared, so no registration is lost.
//! 3. **A ticket ends starvation.** A unit that has failed [`ROUNDS_BEFORE_TICKET`] times asks for the only ticket. Its
//!    owner marks its stripes `RESERVED`: no other unit takes them anew, their holders release them sooner or later,
//!    and so the owner gets them all. The script holder ignores reservations: were it to respect one, it would wait,
//!    holding stripes, for a unit that waits for those stripes.
//!
//! # The two queues
//!
//! The ticket and the script mutex are owned by sessions, not by threads, and change hands in the order of asking: a
//! session that gives one up makes the first in its queue the owner and wakes that session alone, which finds itself
//! the owner when it asks again. Were all woken to race for it, every hand-over would cost as many wake-ups as there
//! are waiters, and nothing would bound how often one of them loses. The price is that no session has it while its next
//! owner wakes up. A session that will not ask again (it was closed, refused, or did without) reports that by
//! [`Locks::leave_lines`], which passes on what it may have been handed meanwhile. The stripes' own waiting lists wake
//! all their sessions: they have no order, and rule 3 is what bounds losing there.
//!
//! A keyspace that only one thread uses (`--threads 1`) needs the same words, since a script that runs its worker's
//! loop holds stripes against other sessions, but no atomic operations: see [`Locks::of_one_thread`].
//!
//! The word of a stripe is one `u32`, with several threads in a cache line of its own. The protocol is model-checked with
//! `loom` (`lock/model.rs`, `RUSTFLAGS="--cfg loom" cargo test -p redline-keyspace --release --lib lock::model`).

use std::collections::VecDeque;

#[cfg(loom)]
use loom::{
    hint::spin_loop,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread::yield_now,
};
#[cfg(not(loom))]
use std::{
    hint::spin_loop,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread::yield_now,
};

/// Number of stripes. A power of two; each guards `SLOTS / STRIPES` slots of every database.
#[cfg(not(loom))]
pub const STRIPES: usize = 1024;
/// The model checker explores every interleaving: it gets as few stripes as show the protocol.
#[cfg(loom)]
pub const STRIPES: usize = 4;

/// Number of failed rounds after which a multi-stripe unit asks for the ticket.
pub const ROUNDS_BEFORE_TICKET: u32 = 3;

/// Number of looks at a held stripe before the unit is suspended. Units are short (tens of nanoseconds to a few
/// microseconds), so this nearly always suffices. Each look comes after a pause, and each pause is twice the one
/// before, a few microseconds in all: every look takes the cache line away from the holder, which mostly wants it again
/// at once (a hot key). Several units of the holder's fit into the first pause, so that the key's lines change hands
/// once for all of them.
const LOOKS_MAX: u32 = if cfg!(loom) { 1 } else { 4 };
/// Length of the first of these pauses, in the CPU's own pauses of 15 to 50 ns each.
const FIRST_PAUSE: u32 = if cfg!(loom) { 1 } else { 8 };

const HELD: u32 = 1;
const WAITERS: u32 = 2;
const RESERVED: u32 = 4;

/// Names a suspended session for [`Wake`]; its meaning belongs to the caller. Never `u64::MAX`.
pub type WakeToken = u64;

/// Gets the tokens of sessions that may try again.
pub trait Wake: Send + Sync {
    /// Called under no lock but the waiting list's; must not block and must not take stripes.
    fn wake(&self, token: WakeToken);
}

/// For keyspaces that no session waits for.
pub(crate) struct NobodyWaits;

impl Wake for NobodyWaits {
    fn wake(&self, _token: WakeToken) {}
}

/// A set of stripes: one bit each, so inserting is O(1) and iterating is ascending and free of
/// duplicates, which is the order the protocol demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeSet {
    bits: [u64; WORDS],
    /// Which of these words have a stripe: most sets have few.
    words: u64,
}

static ALL: StripeSet = StripeSet::all();
const WORDS: usize = STRIPES.div_ceil(64);
const _: () = assert!(WORDS <= 64, "one word says which others are empty");

impl Default for StripeSet {
    fn default() -> StripeSet {
        StripeSet::EMPTY
    }
}

impl StripeSet {
    /// The empty set.
    pub const EMPTY: StripeSet = StripeSet {
        bits: [0; WORDS],
        words: 0,
    };

    /// Returns the set of every stripe.
    pub const fn all() -> StripeSet {
        const LAST: u64 = u64::MAX >> ((64 - STRIPES % 64) % 64);
        let mut bits = [u64::MAX; WORDS];
        bits[WORDS - 1] = LAST;
        StripeSet {
            bits,
            words: u64::MAX >> (64 - WORDS),
        }
    }

    /// Returns true if every stripe is in the set.
    pub fn is_all(&self) -> bool {
        *self == ALL
    }

    /// Adds a stripe.
    #[inline]
    pub fn insert(&mut self, stripe: u16) {
        let word = usize::from(stripe) / 64;
        self.bits[word] |= 1 << (stripe % 64);
        self.words |= 1 << word;
    }

    /// Returns true if the stripe is in the set.
    #[inline]
    pub fn contains(&self, stripe: u16) -> bool {
        self.bits[usize::from(stripe) / 64] & (1 << (stripe % 64)) != 0
    }

    #[inline(never)]
    fn as_held(&self) -> Held<'_> {
        match self.is_all() {
            true => Held::All,
            false => Held::Set(self),
        }
    }

    /// Adds every stripe of `other`.
    pub fn extend(&mut self, other: &StripeSet) {
        self.bits
            .iter_mut()
            .zip(&other.bits)
            .for_each(|(a, b)| *a |= b);
        self.words |= other.words;
    }

    /// Removes every stripe.
    pub fn clear(&mut self) {
        *self = StripeSet::EMPTY;
    }

    /// Returns true if no stripe is in the set.
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// Returns the stripes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        ones(self.words)
            .flat_map(|word| ones(self.bits[usize::from(word)]).map(move |bit| word * 64 + bit))
    }
}

/// Returns the numbers of the bits that are set, ascending.
#[inline]
fn ones(mut bits: u64) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || {
        (bits != 0).then(|| {
            let bit = bits.trailing_zeros();
            bits &= bits - 1;
            bit as u16
        })
    })
}

/// Words of a cache line.
const LINE_WORDS: usize = if cfg!(loom) { 1 } else { 16 };

/// The words of the stripes. Where several threads use them, each has a cache line of its own. One thread has them
/// all in a few lines: those stay in its first-level cache, which a line for each would fill.
struct Words {
    lines: Box<[WordLine]>,
    /// From one stripe's word to the next.
    stride: usize,
}

#[repr(align(64))]
struct WordLine([AtomicU32; LINE_WORDS]);

impl Words {
    fn new(stride: usize) -> Words {
        Words {
            lines: (0..(STRIPES * stride).div_ceil(LINE_WORDS))
                .map(|_| WordLine(std::array::from_fn(|_| AtomicU32::new(0))))
                .collect(),
            stride,
        }
    }

    #[inline]
    fn of(&self, stripe: u16) -> &AtomicU32 {
        let at = usize::from(stripe) * self.stride;
        &self.lines[at / LINE_WORDS].0[at % LINE_WORDS]
    }
}

/// All locks of one keyspace.
pub struct Locks {
    words: Words,
    waiters: Box<[Mutex<Vec<WakeToken>>]>,
    ticket: Line,
    script: Line,
    wake: Box<dyn Wake>,
    only: OnlyThread,
}

/// The state that says whether only one thread may take stripes, and which.
struct OnlyThread(std::sync::atomic::AtomicUsize);

impl OnlyThread {
    const UNCLAIMED: usize = 0;
    const ANY: usize = 1;

    fn any() -> OnlyThread {
        OnlyThread(Self::ANY.into())
    }

    fn unclaimed() -> OnlyThread {
        OnlyThread(Self::UNCLAIMED.into())
    }

    /// Returns true if the calling thread is the only one. Claims the keyspace for it if none has.
    #[inline]
    fn is_this(&self) -> bool {
        thread_local! {
            // Its address tells threads apart.
            static MARK: u64 = const { 0 };
        }
        let only = self.0.load(std::sync::atomic::Ordering::Relaxed);
        if only == Self::ANY {
            return false;
        }
        let mark = MARK.with(|mark| std::ptr::from_ref(mark).addr());
        if only != mark {
            self.claim(mark);
        }
        true
    }

    #[cold]
    fn claim(&self, mark: usize) {
        use std::sync::atomic::Ordering::Relaxed;
        let claimed = self
            .0
            .compare_exchange(Self::UNCLAIMED, mark, Relaxed, Relaxed);
        assert!(
            claimed.is_ok(),
            "a second thread used a keyspace that was made for one"
        );
    }
}

/// A lock that one session owns at a time, and the sessions that wait for it, in the order of asking.
struct Line {
    /// 0, or the owner's token plus one. Changes only while the list is locked.
    owner: AtomicU64,
    /// The sessions that wait; none does while the lock has no owner.
    waiters: Mutex<VecDeque<WakeToken>>,
}

impl Line {
    fn new() -> Line {
        Line {
            owner: AtomicU64::new(0),
            waiters: Mutex::new(VecDeque::new()),
        }
    }

    #[cfg(all(test, not(loom)))]
    fn is_owned(&self) -> bool {
        self.owner.load(Ordering::Acquire) != 0
    }

    fn is_owned_by(&self, token: WakeToken) -> bool {
        self.owner.load(Ordering::Acquire) == token + 1
    }

    /// Returns true if `token` owns it, since it was free, or was handed over; false if it stands in the queue, once.
    fn ask(&self, token: WakeToken) -> bool {
        let mut waiters = self.waiters.lock().expect("no panic under a waiting list");
        let owner = self.owner.load(Ordering::Acquire);
        if owner == 0 {
            self.owner.store(token + 1, Ordering::Release);
        } else if owner != token + 1 {
            // A session that was woken for another reason keeps its place.
            if !waiters.contains(&token) {
                waiters.push_back(token);
            }
            return false;
        }
        true
    }

    /// Hands it to the next in line. Only its owner may call this.
    fn pass_on(&self, wake: &dyn Wake) {
        let waiters = self.waiters.lock().expect("no panic under a waiting list");
        self.pass_on_to_first(waiters, wake);
    }

    fn pass_on_to_first(&self, mut waiters: MutexGuard<'_, VecDeque<WakeToken>>, wake: &dyn Wake) {
        let next = waiters.pop_front();
        self.owner
            .store(next.map_or(0, |token| token + 1), Ordering::Release);
        if let Some(token) = next {
            wake.wake(token);
        }
    }

    /// Removes `token` from the queue; if it has become the owner meanwhile, the next in line is.
    fn leave(&self, token: WakeToken, wake: &dyn Wake) {
        let mut waiters = self.waiters.lock().expect("no panic under a waiting list");
        if self.is_owned_by(token) {
            self.pass_on_to_first(waiters, wake);
        } else if let Some(at) = waiters.iter().position(|waiter| *waiter == token) {
            waiters.remove(at);
        }
    }
}

/// Result of asking for a lock with a waiting list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// On the list: suspend the session, it will be woken.
    Registered,
    /// It became free meanwhile: try again at once.
    TryAgain,
}

/// The stripes that a view may touch: those that its guard holds, or a part of them.
#[derive(Clone, Copy)]
pub(crate) enum Held<'a> {
    /// None. Stripes are taken one at a time where they are needed (SCAN, RANDOMKEY).
    None,
    /// One: the common case.
    One(u16),
    /// Several.
    Set(&'a StripeSet),
    /// Every one.
    All,
}

impl Held<'_> {
    /// Returns true if this stripe is among them.
    #[inline]
    pub(crate) fn covers(&self, stripe: u16) -> bool {
        match self {
            Held::None => false,
            Held::One(held) => *held == stripe,
            Held::Set(set) => set.contains(stripe),
            Held::All => true,
        }
    }
}

/// Stripes, and perhaps the script mutex, that are held until the guard is dropped. Nothing else releases a stripe.
pub(crate) struct Guard<'l> {
    locks: &'l Locks,
    stripes: Stripes,
}

/// The stripes of a guard. Small, since guards are moved about.
enum Stripes {
    None,
    One(u16),
    Set(Box<StripeSet>),
    All,
    /// The script mutex is held as well, so further stripes may be waited for.
    Script(Box<StripeSet>),
    /// The whole keyspace is borrowed exclusively, so no lock is needed.
    Exclusive,
}

impl<'l> Guard<'l> {
    /// Makes a guard that holds nothing.
    pub(crate) fn none(locks: &'l Locks) -> Guard<'l> {
        Guard::of(locks, Stripes::None)
    }

    /// Makes a guard that holds everything without a lock. The caller has borrowed what the locks guard exclusively.
    pub(crate) fn exclusive(locks: &'l Locks) -> Guard<'l> {
        Guard::of(locks, Stripes::Exclusive)
    }

    #[inline]
    fn of(locks: &'l Locks, stripes: Stripes) -> Guard<'l> {
        Guard { locks, stripes }
    }

    /// Returns the stripes that are held.
    #[inline]
    pub(crate) fn held(&self) -> Held<'_> {
        match &self.stripes {
            Stripes::None => Held::None,
            Stripes::One(stripe) => Held::One(*stripe),
            Stripes::Set(set) => Held::Set(set),
            Stripes::Script(set) => set.as_held(),
            Stripes::All | Stripes::Exclusive => Held::All,
        }
    }

    /// Returns true if everything was borrowed exclusively, instead of locked.
    #[cfg(debug_assertions)]
    pub(crate) fn is_exclusive(&self) -> bool {
        matches!(self.stripes, Stripes::Exclusive)
    }

    /// Returns true if the script mutex is held.
    #[inline]
    pub(crate) fn holds_script(&self) -> bool {
        matches!(self.stripes, Stripes::Script(_))
    }

    /// Takes another stripe, waiting if need be, whatever else is held.
    ///
    /// # Panics
    /// Without the script mutex: only its holder may wait (rule 1).
    #[inline]
    pub(crate) fn add(&mut self, stripe: u16) {
        if !self.held().covers(stripe) {
            self.add_missing(stripe);
        }
    }

    fn add_missing(&mut self, stripe: u16) {
        let Stripes::Script(set) = &mut self.stripes else {
            panic!("only a script waits while it holds stripes");
        };
        self.locks.take_waiting(stripe);
        set.insert(stripe);
    }

    /// Takes every stripe of a set that is not held yet: see [`Guard::add`].
    pub(crate) fn add_set(&mut self, wanted: &StripeSet) {
        wanted.iter().for_each(|stripe| self.add(stripe));
    }

    /// Releases the only stripe, if one is held and nothing else; otherwise does nothing and returns false. After
    /// `true` the guard must be forgotten. Inlined where a drop would be a call.
    #[inline(always)]
    pub(crate) fn let_go_of_one(&self) -> bool {
        let Stripes::One(stripe) = self.stripes else {
            return false;
        };
        self.locks.unlock_one(stripe);
        true
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        match &self.stripes {
            Stripes::None | Stripes::Exclusive => {}
            Stripes::One(stripe) => self.locks.unlock_one(*stripe),
            Stripes::Set(set) => self.locks.unlock_set(set),
            Stripes::All => self.locks.unlock_set(&ALL),
            Stripes::Script(set) => {
                self.locks.unlock_set(set);
                self.locks.unlock_script();
            }
        }
    }
}

impl Locks {
    /// Makes free locks; `wake` gets every session that may try again.
    pub fn new(wake: Box<dyn Wake>) -> Locks {
        Locks {
            words: Words::new(LINE_WORDS),
            waiters: (0..STRIPES).map(|_| Mutex::new(Vec::new())).collect(),
            ticket: Line::new(),
            script: Line::new(),
            wake,
            only: OnlyThread::any(),
        }
    }

    /// Makes locks for one thread: the first that takes a stripe. Taking a stripe and releasing it are plain reads and
    /// writes then, which saves two locked instructions a command (15 ns of the 250 of a SET). Another thread that
    /// tries ends the process.
    pub fn of_one_thread(wake: Box<dyn Wake>) -> Locks {
        Locks {
            only: OnlyThread::unclaimed(),
            words: Words::new(1),
            ..Locks::new(wake)
        }
    }

    /// Returns the number of bytes that the locks take.
    pub(crate) fn fixed_bytes(&self) -> usize {
        size_of_val(&*self.words.lines) + size_of_val(&*self.waiters)
    }

    /// Tries for one stripe, spinning for a moment.
    #[inline]
    pub(crate) fn try_one(&self, stripe: u16) -> Option<Guard<'_>> {
        self.try_stripe(stripe, HELD | RESERVED)
            .then(|| Guard::of(self, Stripes::One(stripe)))
    }

    /// Prefetches the cache line of a stripe, to be written: with several workers it is mostly in another CPU's cache.
    /// A hint; takes nothing.
    #[inline]
    pub fn prefetch(&self, stripe: u16) {
        prefetch_for_write(self.words.of(stripe));
    }

    /// Releases one stripe and wakes the sessions that waited for it.
    #[inline]
    fn unlock_one(&self, stripe: u16) {
        self.unlock(stripe, self.only.is_this());
    }

    // A call of its own costs every request 15 instructions.
    #[inline(always)]
    fn unlock(&self, stripe: u16, is_only_thread: bool) {
        let word = self.words.of(stripe);
        let before = if is_only_thread {
            let before = word.load(Ordering::Relaxed);
            word.store(before & RESERVED, Ordering::Relaxed);
            before
        } else {
            // Release: what the unit wrote is visible to the next holder.
            word.fetch_and(RESERVED, Ordering::AcqRel)
        };
        debug_assert!(before & HELD != 0, "stripe {stripe} was not held");
        if before & WAITERS != 0 {
            self.wake_stripe(stripe);
        }
    }

    /// Tries for all stripes of the set, ascending. On failure none is held, and the error names the stripe that was in
    /// the way. `ticket`: this unit owns the ticket, reservations are its own.
    pub(crate) fn try_set(&self, set: &StripeSet, ticket: bool) -> Result<Guard<'_>, u16> {
        self.try_stripes(set, ticket)?;
        let stripes = match set.is_all() {
            true => Stripes::All,
            false => Stripes::Set(Box::new(set.clone())),
        };
        Ok(Guard::of(self, stripes))
    }

    fn try_stripes(&self, set: &StripeSet, ticket: bool) -> Result<(), u16> {
        let refuse = if ticket { HELD } else { HELD | RESERVED };
        if self.only.is_this() {
            return self.try_set_alone(set, refuse);
        }
        for stripe in set.iter() {
            if !self.try_stripe(stripe, refuse) {
                set.iter()
                    .take_while(|held| *held < stripe)
                    .for_each(|held| self.unlock_one(held));
                return Err(stripe);
            }
        }
        Ok(())
    }

    /// Does the same where no other thread can take a stripe meanwhile: all are looked at before the first is taken.
    fn try_set_alone(&self, set: &StripeSet, refuse: u32) -> Result<(), u16> {
        let word = |stripe| self.words.of(stripe);
        let is_refused = |stripe: &u16| word(*stripe).load(Ordering::Relaxed) & refuse != 0;
        if let Some(stripe) = set.iter().find(is_refused) {
            return Err(stripe);
        }
        set.iter().for_each(|stripe| {
            let seen = word(stripe).load(Ordering::Relaxed);
            word(stripe).store(seen | HELD, Ordering::Relaxed);
        });
        Ok(())
    }

    /// Releases all stripes of the set.
    fn unlock_set(&self, set: &StripeSet) {
        let is_only_thread = self.only.is_this();
        set.iter()
            .for_each(|stripe| self.unlock(stripe, is_only_thread));
    }

    /// Takes a stripe on behalf of the holder of the script mutex (rule 1).
    fn take_waiting(&self, stripe: u16) {
        while !self.try_stripe(stripe, HELD) {
            yield_now();
        }
    }

    /// Registers a suspended session with the stripe that stopped it.
    pub fn wait_for(&self, stripe: u16, token: WakeToken, ticket: bool) -> Wait {
        let refuse = if ticket { HELD } else { HELD | RESERVED };
        let word = self.words.of(stripe);
        let mut waiters = self.waiters[usize::from(stripe)]
            .lock()
            .expect("no panic under a waiting list");
        loop {
            let seen = word.load(Ordering::Acquire);
            if seen & refuse == 0 {
                return Wait::TryAgain;
            }
            // The flag is set while the list is locked; the thread that clears it looks at the list after.
            if word
                .compare_exchange(seen, seen | WAITERS, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                waiters.push(token);
                return Wait::Registered;
            }
        }
    }

    /// Asks for the ticket (rule 3). Returns true if it is granted: the stripes of `set` are reserved, and every
    /// further try passes `ticket = true` until [`Locks::return_ticket`] with the same set. Returns false if another
    /// session has it; this one stands in the queue and is woken when it is its turn.
    pub fn request_ticket(&self, set: &StripeSet, token: WakeToken) -> bool {
        if !self.ticket.ask(token) {
            return false;
        }
        for stripe in set.iter() {
            self.words.of(stripe).fetch_or(RESERVED, Ordering::AcqRel);
        }
        true
    }

    /// Gives the ticket back, whether or not its unit has run.
    pub fn return_ticket(&self, set: &StripeSet, token: WakeToken) {
        assert!(self.ticket.is_owned_by(token), "not the ticket's owner");
        for stripe in set.iter() {
            let word = self.words.of(stripe);
            let before = word.fetch_and(!(RESERVED | WAITERS), Ordering::AcqRel);
            if before & WAITERS != 0 {
                self.wake_stripe(stripe);
            }
        }
        self.ticket.pass_on(&*self.wake);
    }

    /// Tries for the script mutex. On failure the session stands in the queue and is woken when it is its turn.
    pub(crate) fn try_script(&self, token: WakeToken) -> Option<Guard<'_>> {
        self.script
            .ask(token)
            .then(|| Guard::of(self, Stripes::Script(Box::default())))
    }

    /// Releases the script mutex; the script holds no stripe any more.
    fn unlock_script(&self) {
        self.script.pass_on(&*self.wake);
    }

    /// Removes a session from both queues that will not ask again for the ticket or the script mutex: it has closed,
    /// was refused, or did without. It holds neither; if one was handed to it meanwhile, the next in line gets it.
    pub fn leave_lines(&self, token: WakeToken) {
        self.ticket.leave(token, &*self.wake);
        self.script.leave(token, &*self.wake);
    }

    #[inline]
    fn try_stripe(&self, stripe: u16, refuse: u32) -> bool {
        let word = self.words.of(stripe);
        if self.only.is_this() {
            let seen = word.load(Ordering::Relaxed);
            let free = seen & refuse == 0;
            if free {
                word.store(seen | HELD, Ordering::Relaxed);
            }
            return free;
        }
        // The common case, a free stripe, is one atomic operation.
        if word
            .compare_exchange(0, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
        {
            return true;
        }
        Self::try_contended(word, refuse)
    }

    #[cold]
    fn try_contended(word: &AtomicU32, refuse: u32) -> bool {
        for round in 0..LOOKS_MAX {
            (0..FIRST_PAUSE << round).for_each(|_| spin_loop());
            let seen = word.load(Ordering::Relaxed);
            if seen & refuse == 0
                && word
                    .compare_exchange(seen, seen | HELD, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return true;
            }
        }
        false
    }

    #[cold]
    fn wake_stripe(&self, stripe: u16) {
        let mut waiters = self.waiters[usize::from(stripe)]
            .lock()
            .expect("no panic under a waiting list");
        waiters.drain(..).for_each(|token| self.wake.wake(token));
    }
}

#[inline(always)]
fn prefetch_for_write(word: &AtomicU32) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch changes nothing that a program can see; CPUs that do not know this one ignore it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) word, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) word, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = word;
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
