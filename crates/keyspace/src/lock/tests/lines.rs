//! Tests of the queues of the ticket and of the script mutex: the first in line becomes the owner, and is woken alone.

use super::*;

#[test]
fn returning_the_ticket_wakes_one_of_many() {
    let heard = Heard::default();
    let locks = Locks::new(Box::new(heard.clone()));
    let wanted = set(&[1]);
    assert!(locks.request_ticket(&wanted, 0));
    (1..100).for_each(|token| assert!(!locks.request_ticket(&wanted, token)));
    assert!(!locks.request_ticket(&wanted, 1), "woken by something else");
    for token in 0..99 {
        assert!(locks.request_ticket(&wanted, token), "its turn: {token}");
        locks.return_ticket(&wanted, token);
        assert_eq!(heard.take(), [token + 1]);
    }
}

#[test]
fn unlocking_the_script_mutex_wakes_one_of_many() {
    let heard = Heard::default();
    let locks = Locks::new(Box::new(heard.clone()));
    let mut held = locks.try_script(0);
    (1..100).for_each(|token| assert!(locks.try_script(token).is_none()));
    for token in 0..99 {
        assert!(held.take().is_some(), "its turn: {token}");
        assert_eq!(heard.take(), [token + 1]);
        held = locks.try_script(token + 1);
    }
}

#[test]
fn who_goes_strands_nobody_behind_it() {
    let heard = Heard::default();
    let locks = Locks::new(Box::new(heard.clone()));
    assert!(locks.request_ticket(&set(&[1]), 0));
    let script = locks.try_script(0).expect("free");
    for token in 1..5 {
        assert!(!locks.request_ticket(&set(&[2]), token));
        assert!(locks.try_script(token).is_none());
    }
    locks.leave_lines(2);
    assert!(heard.take().is_empty(), "it was only queued");
    locks.return_ticket(&set(&[1]), 0);
    drop(script);
    assert_eq!(heard.take(), [1, 1]);
    locks.leave_lines(1);
    assert_eq!(heard.take(), [3, 3], "handed over, never fetched");
    locks.leave_lines(3);
    locks.leave_lines(4);
    assert!(!locks.script.is_owned());
    assert!(locks.request_ticket(&set(&[1]), 7));
}
