//! All interleavings of workers that write and pump, under the model checker.

mod role;

use super::*;
use loom::{cell::UnsafeCell, sync::Condvar, thread};

/// Records that have come. Of the standard library: it is not part of the model.
type Came = std::sync::Arc<std::sync::Mutex<Vec<Record>>>;

fn attach(journal: &Journal) -> Came {
    let came = Came::default();
    let give = came.clone();
    journal.attach(Box::new(RecordReader::new(move |record| {
        give.lock().unwrap().push(record);
    })));
    came
}

/// Writes a record for each name, which is its only word.
fn write(journal: &Journal, names: &[u8]) {
    let mut writer = Writer::default();
    for name in names.chunks(1) {
        writer.push(journal, Some(0), [name].iter().map(Word::from));
        writer.commit(journal);
    }
}

fn check(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

fn assert_all_came(came: &Came, count: usize) {
    let came = came.lock().unwrap();
    assert_eq!(came.len(), count, "a record is left behind while all sleep");
    let numbers = came.iter().map(|record| record.number);
    assert!(numbers.eq(1..=count as u64), "a gap, or another order");
    let mut names: Vec<u8> = came
        .iter()
        .map(|record| record.commands[0].words[0][0])
        .collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a record came twice");
}

/// Two workers write and offer themselves, in any order, and so either may be stopped between its number and its record.
fn two_workers(asks_again: bool) {
    check(3, move || {
        let journal = Arc::new(Journal::default());
        let came = attach(&journal);
        // The first has gone from chunk to chunk when the pump gives them back.
        let workers: Vec<_> = [&[0, 2][..], &[1]]
            .into_iter()
            .map(|names| {
                let journal = journal.clone();
                thread::spawn(move || {
                    write(&journal, names);
                    let _ = journal.offer(&mut || false, asks_again);
                })
            })
            .collect();
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        assert_all_came(&came, 3);
    });
}

#[test]
fn pump_two_workers_lose_nothing() {
    two_workers(true);
}

#[test]
#[should_panic(expected = "left behind")]
fn pump_who_only_tries_for_the_role_leaves_a_record_behind() {
    two_workers(false);
}

/// The first worker gives the role up as soon as it may and asks a third, which does nothing else. `early`: it asks before it
/// has given the role up.
fn three_workers(early: bool) {
    check(3, move || {
        let journal = Arc::new(Journal::default());
        let came = attach(&journal);
        // The third is asked, and will not be asked any more.
        let bell = Arc::new((Mutex::new((false, false)), Condvar::new()));
        let ring = |asked: bool| {
            let mut rung = bell.0.lock().unwrap();
            *rung = (rung.0 || asked, rung.1 || !asked);
            bell.1.notify_all();
        };
        let third = {
            let (journal, bell) = (journal.clone(), bell.clone());
            thread::spawn(move || {
                let mut rung = bell.0.lock().unwrap();
                while *rung == (false, false) {
                    rung = bell.1.wait(rung).unwrap();
                }
                let asked = rung.0;
                drop(rung);
                if asked {
                    journal.pump_all();
                }
            })
        };
        let second = {
            let journal = journal.clone();
            thread::spawn(move || {
                write(&journal, &[1]);
                journal.pump_all();
            })
        };
        write(&journal, &[0]);
        let is_left = journal.pump(&mut || {
            if early {
                ring(true);
            }
            true
        });
        if is_left && !early {
            ring(true);
        }
        ring(false);
        second.join().unwrap();
        third.join().unwrap();
        assert_all_came(&came, 2);
    });
}

#[test]
fn pump_the_role_is_handed_on_with_all_that_was_published() {
    three_workers(false);
}

#[test]
#[should_panic(expected = "left behind")]
fn pump_who_is_asked_before_the_role_is_free_finds_it_taken() {
    three_workers(true);
}

/// Asserts that the numbers of two units of one stripe have the order in which they held it.
#[test]
fn journal_numbers_follow_the_stripe() {
    struct State {
        journal: Journal,
        stripe: Mutex<()>,
        /// The value that the stripe guards: the number of the last thread that held it.
        last: UnsafeCell<u8>,
    }
    // SAFETY: `last` is touched under `stripe` only; loom checks it.
    unsafe impl Sync for State {}
    // SAFETY: nothing in it is bound to a thread.
    unsafe impl Send for State {}
    check(3, || {
        let state = Arc::new(State {
            journal: Journal::default(),
            stripe: Mutex::new(()),
            last: UnsafeCell::new(9),
        });
        let came = attach(&state.journal);
        let workers: Vec<_> = (0..2)
            .map(|name| {
                let state = state.clone();
                thread::spawn(move || {
                    let held = state.stripe.lock().unwrap();
                    // SAFETY: the stripe is held.
                    state.last.with_mut(|last| unsafe { *last = name });
                    write(&state.journal, &[name]);
                    drop(held);
                    state.journal.pump_all();
                })
            })
            .collect();
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        assert_all_came(&came, 2);
        // SAFETY: the workers are gone.
        let last = state.last.with(|last| unsafe { *last });
        assert_eq!(came.lock().unwrap()[1].commands[0].words, [[last]]);
    });
}

/// Asserts that a cut falls exactly between two units, though the pump is at work.
#[test]
fn pump_a_cut_falls_behind_the_units_before_it_and_before_the_others() {
    struct Cuts(std::sync::Arc<std::sync::Mutex<Vec<u64>>>);
    impl Stream for Cuts {
        fn write(&mut self, _: &[Piece<'_>], _: Position) {}
        fn cut(&mut self, at: Position) {
            self.0.lock().unwrap().push(at.number);
        }
    }
    check(3, || {
        let state = Arc::new((Journal::default(), Mutex::new(())));
        let cuts = std::sync::Arc::<std::sync::Mutex<Vec<u64>>>::default();
        state.0.attach(Box::new(Cuts(cuts.clone())));
        let writer = {
            let state = state.clone();
            thread::spawn(move || {
                let (journal, stripe) = &*state;
                for name in 0..2 {
                    let held = stripe.lock().unwrap();
                    write(journal, &[name]);
                    drop(held);
                    journal.pump_all();
                }
            })
        };
        let (journal, stripe) = &*state;
        let held = stripe.lock().unwrap();
        let after = journal.cut();
        drop(held);
        journal.pump_all();
        writer.join().unwrap();
        assert_eq!(*cuts.lock().unwrap(), [0, after]);
    });
}
