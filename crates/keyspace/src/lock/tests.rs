//! Tests of the protocol as one thread can see it: stripes taken, stripes in the way, sessions woken.

mod lines;

use std::sync::Arc;

use super::*;

#[derive(Clone, Default)]
struct Heard(Arc<std::sync::Mutex<Vec<WakeToken>>>);

impl Heard {
    fn take(&self) -> Vec<WakeToken> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Wake for Heard {
    fn wake(&self, token: WakeToken) {
        self.0.lock().unwrap().push(token);
    }
}

fn set(stripes: &[u16]) -> StripeSet {
    let mut set = StripeSet::EMPTY;
    stripes.iter().for_each(|stripe| set.insert(*stripe));
    set
}

#[test]
fn a_set_is_ascending_and_free_of_duplicates() {
    assert_eq!(
        set(&[700, 3, 1023, 3, 64]).iter().collect::<Vec<_>>(),
        [3, 64, 700, 1023]
    );
    assert_eq!(StripeSet::all().iter().count(), STRIPES);
}

#[test]
fn a_stripe_keeps_the_sessions_of_one_thread_apart() {
    let heard = Heard::default();
    let locks = Locks::of_one_thread(Box::new(heard.clone()));
    let held = locks.try_one(7).expect("free");
    assert!(locks.try_one(7).is_none());
    assert_eq!(locks.wait_for(7, 42, false), Wait::Registered);
    drop(held);
    assert_eq!(*heard.0.lock().unwrap(), [42]);
    assert!(locks.try_one(7).is_some());
}

#[test]
fn a_second_thread_cannot_use_the_locks_of_one() {
    let locks = Locks::of_one_thread(Box::new(Heard::default()));
    assert!(locks.try_one(7).is_some());
    let other = std::thread::scope(|scope| scope.spawn(|| drop(locks.try_one(8))).join());
    assert!(other.is_err());
}

#[test]
fn a_failed_set_holds_nothing() {
    for make in [Locks::new, Locks::of_one_thread] {
        let locks = make(Box::<Heard>::default());
        let _held = locks.try_one(64).expect("free");
        assert_eq!(locks.try_set(&set(&[3, 64, 700]), false).err(), Some(64));
        let _low = locks.try_one(3).expect("stripe 3 was let go");
        assert_eq!(locks.try_set(&StripeSet::all(), false).err(), Some(3));
    }
}

#[test]
fn a_set_is_taken_whole_and_let_go_whole() {
    for make in [Locks::new, Locks::of_one_thread] {
        let heard = Heard::default();
        let locks = make(Box::new(heard.clone()));
        let all = StripeSet::all();
        let held = locks.try_set(&all, false).expect("all are free");
        assert!((0..STRIPES as u16).all(|stripe| locks.try_one(stripe).is_none()));
        assert_eq!(locks.wait_for(9, 42, false), Wait::Registered);
        drop(held);
        assert_eq!(heard.take(), [42]);
        assert!((0..STRIPES as u16).all(|stripe| locks.try_one(stripe).is_some()));
    }
}

#[test]
fn a_guard_lets_go_of_what_it_was_given_later_too() {
    let locks = Locks::new(Box::<Heard>::default());
    let mut script = locks.try_script(1).expect("free");
    assert!(locks.try_script(2).is_none());
    script.add(9);
    script.add_set(&set(&[3, 9, 700]));
    let is_free = |stripe| locks.try_one(stripe).is_some();
    assert!(![3, 9, 700].into_iter().any(is_free));
    assert!(!matches!(script.held(), Held::All));
    script.add_set(&StripeSet::all());
    assert!(matches!(script.held(), Held::All));
    drop(script);
    assert!((0..STRIPES as u16).all(is_free));
    assert!(locks.try_script(2).is_some(), "the next in line has it");
}

#[test]
#[should_panic(expected = "only a script waits")]
fn a_guard_without_the_script_mutex_gets_no_more() {
    let locks = Locks::new(Box::<Heard>::default());
    let mut one = locks.try_one(3).expect("free");
    one.add(9);
}

#[test]
fn who_releases_wakes() {
    let heard = Heard::default();
    let locks = Locks::new(Box::new(heard.clone()));
    assert_eq!(locks.wait_for(5, 1, false), Wait::TryAgain);
    let held = locks.try_one(5).expect("free");
    assert_eq!(locks.wait_for(5, 1, false), Wait::Registered);
    assert_eq!(locks.wait_for(5, 2, false), Wait::Registered);
    drop(held);
    assert_eq!(*heard.0.lock().unwrap(), [1, 2]);
}

#[test]
fn a_reservation_keeps_others_out_but_not_the_script() {
    let heard = Heard::default();
    let locks = Locks::new(Box::new(heard.clone()));
    let wanted = set(&[1, 2]);
    let second = locks.try_one(2).expect("free");
    assert!(locks.request_ticket(&wanted, 9));
    assert!(
        !locks.request_ticket(&set(&[7]), 10),
        "one ticket at a time"
    );
    assert!(locks.try_one(1).is_none(), "reserved");
    assert_eq!(locks.wait_for(1, 11, false), Wait::Registered);
    let mut script = locks.try_script(12).expect("free");
    script.add(1);
    drop(script);
    drop(second);
    assert!(locks.try_set(&wanted, true).is_ok());
    assert!(locks.try_one(1).is_none(), "still reserved");
    locks.return_ticket(&wanted, 9);
    assert!(locks.try_one(1).is_some());
    assert!(
        heard.0.lock().unwrap().contains(&10),
        "the next in line for the ticket"
    );
    assert!(
        !locks.request_ticket(&set(&[7]), 13),
        "it belongs to the next in line before that one has come for it"
    );
    assert!(
        heard.0.lock().unwrap().contains(&11),
        "who waited for the reserved stripe"
    );
}
