//! The right of a primary to serve, and its two tests: before calls run, and before their replies leave.
//!
//! The right ends by a clock that counts suspensions, so a process that was stopped in the middle of a batch finds it ended
//! before it answers; the connection is then closed without those replies, whose outcome is unknown. Calls that come
//! without a right are put aside, or refused: [`Reason::NoRight`] sends them to where that is decided.
//!
//! Must not know: why a right begins or ends.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};

use redline_cluster::control::Calls;
use redline_engine::refusals::Reason;
use redline_net::clock;

use crate::shared::Shared;

/// See the head of the module.
#[derive(Default)]
pub(crate) struct Right {
    /// Term of the shard in which it holds.
    term: AtomicU64,
    /// End on the clock of [`clock::boot_ms`]; 0: there is none, `u64::MAX`: it does not end.
    until_ms: AtomicU64,
    /// True while the node leads its shard.
    leads: AtomicBool,
    /// True while no further calls run, though the replies of those that have may leave.
    is_shut: AtomicBool,
    /// Treatment of calls without a right: a number of [`Calls`].
    calls: AtomicU8,
    /// True while calls are refused for it.
    refuses: Mutex<bool>,
}

impl Right {
    /// Returns the term in which the node may serve now.
    pub(crate) fn term_now(&self) -> Option<u64> {
        let holds = match self.until_ms.load(Ordering::Acquire) {
            0 => false,
            u64::MAX => true,
            until_ms => clock::boot_ms() < until_ms,
        };
        holds.then(|| self.term.load(Ordering::Acquire))
    }

    /// Returns true while the node leads its shard, with or without a right.
    pub(crate) fn leads(&self) -> bool {
        self.leads.load(Ordering::Acquire)
    }

    /// Returns the milliseconds for which it still holds; `None`: without an end.
    pub(crate) fn left_ms(&self) -> Option<u64> {
        match self.until_ms.load(Ordering::Acquire) {
            u64::MAX => None,
            until_ms => Some(until_ms.saturating_sub(clock::boot_ms())),
        }
    }

    /// Returns the treatment of calls without a right.
    pub(crate) fn calls(&self) -> Calls {
        match self.calls.load(Ordering::Acquire) {
            0 => Calls::Down,
            1 => Calls::Wait,
            2 => Calls::Run,
            _ => Calls::Moved,
        }
    }

    pub(super) fn set_leads(&self, leads: bool) {
        self.leads.store(leads, Ordering::Release);
    }

    /// Sets term and end of the right. An earlier term's has been ended.
    pub(super) fn set(&self, term: u64, until_ms: u64) {
        if self.term.load(Ordering::Relaxed) != term {
            self.until_ms.store(0, Ordering::Release);
            self.term.store(term, Ordering::Release);
        }
        self.is_shut.store(false, Ordering::Release);
        self.until_ms.store(until_ms, Ordering::Release);
    }

    /// Has no further calls run; replies of those that have may leave until [`Right::set`].
    pub(super) fn shut(&self) {
        self.is_shut.store(true, Ordering::Release);
    }

    pub(super) fn set_calls(&self, calls: Calls) {
        let number = match calls {
            Calls::Down => 0,
            Calls::Wait => 1,
            Calls::Run => 2,
            Calls::Moved => 3,
        };
        self.calls.store(number, Ordering::Release);
    }

    /// Returns true if calls on slots are to be put aside or refused.
    fn refuses(&self) -> bool {
        let is_shut = self.is_shut.load(Ordering::Acquire);
        self.leads() && (is_shut || self.term_now().is_none())
    }
}

fn of(shared: &Shared) -> Option<&Right> {
    let etcd = shared.cluster.as_ref()?.etcd.as_ref()?;
    Some(&etcd.right)
}

/// Has calls treated as the right is now.
pub(crate) fn note(shared: &Shared) {
    let Some(right) = of(shared) else { return };
    let refused = right.refuses.lock();
    let mut refused = refused.expect("no panic under the right");
    let engine = &shared.engine;
    let refuses = right.refuses();
    engine
        .refusals
        .set(Reason::NoRight, refuses, &engine.settings);
    if std::mem::replace(&mut *refused, refuses) && !refuses {
        engine.resume_all();
    }
}

/// The first test, before calls run: returns the term in which the node may serve. `None`: it may not, and calls on slots do
/// not run as a primary's.
#[inline]
pub(crate) fn before_calls(shared: &Shared) -> Option<u64> {
    let right = of(shared)?;
    let term = right.term_now();
    if term.is_none() && right.leads() {
        note(shared);
    }
    term
}

/// Returns the term in which calls may have run that began with this answer of [`before_calls`]: the node may have been
/// given a right meanwhile.
#[inline]
pub(crate) fn after_calls(shared: &Shared, before: Option<u64>) -> Option<u64> {
    let right = of(shared)?;
    before.or_else(|| match right.leads() {
        true => Some(right.term.load(Ordering::Acquire)),
        false => None,
    })
}

/// The second test, before replies leave: returns true if the right in which their calls ran still holds.
#[inline]
pub(crate) fn may_reply(shared: &Shared, term: Option<u64>) -> bool {
    match (term, of(shared)) {
        (Some(_), Some(right)) => right.term_now() == term,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_ends_by_the_clock_and_with_its_term() {
        let right = Right::default();
        assert_eq!((right.term_now(), right.left_ms()), (None, Some(0)));
        assert!(!right.refuses(), "who does not lead is not asked for it");
        right.set_leads(true);
        assert!(right.refuses());
        right.set(3, u64::MAX);
        assert_eq!((right.term_now(), right.left_ms()), (Some(3), None));
        assert!(!right.refuses());
        right.set(3, clock::boot_ms() - 1);
        assert_eq!((right.term_now(), right.left_ms()), (None, Some(0)));
        right.set(4, clock::boot_ms() + 1_000_000);
        assert_eq!(right.term_now(), Some(4));
        right.shut();
        assert!(right.refuses(), "no further call runs");
        assert_eq!(right.term_now(), Some(4), "those that have are answered");
        right.set(4, 0);
        assert_eq!(right.term_now(), None);
    }

    #[test]
    fn the_treatment_of_calls_is_that_which_was_set() {
        let right = Right::default();
        assert_eq!(right.calls(), Calls::Down);
        for calls in [Calls::Run, Calls::Wait, Calls::Moved, Calls::Down] {
            right.set_calls(calls);
            assert_eq!(right.calls(), calls);
        }
    }
}
