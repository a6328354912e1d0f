//! Short simulations; `redline-sim` runs long ones.

use super::{Plan, run, run_with};
use crate::surroundings::{NoFault, Plant};
use redline_engine::executor::Fault;

fn plan(seed: u64, requests: u64) -> Plan {
    Plan {
        seed,
        executors: 1 + seed as usize % 4,
        clients: 24,
        requests,
    }
}

#[test]
fn the_invariants_hold() {
    let (mut lost_races, mut items, mut suspended, mut records) = (0, 0, 0, 0);
    for seed in 1..=6 {
        let report = run(plan(seed, 8_000)).unwrap_or_else(|violation| panic!("{violation}"));
        lost_races += report.lost_races;
        items += report.items;
        suspended += report.suspended;
        records += report.records;
    }
    // Otherwise the test has shown nothing.
    assert!(lost_races > 100, "races under WATCH: {lost_races}");
    assert!(items > 500, "items through queues: {items}");
    assert!(suspended > 100, "clients that were suspended: {suspended}");
    assert!(records > 5_000, "records that were replayed: {records}");
}

#[test]
fn equal_plans_run_equally() {
    let reports = [(); 2].map(|()| run(plan(3, 5_000)).map_err(|violation| violation.what));
    assert_eq!(reports[0], reports[1]);
}

/// Runs simulations until one finds the fault.
#[track_caller]
fn is_found<P: Plant>(word: &str) {
    const SEEDS: u64 = 12;
    let found = (1..=SEEDS).find_map(|seed| run_with::<P>(plan(seed, 8_000)).err());
    let Some(violation) = found else {
        panic!("{:?} is not found with {SEEDS} seeds", P::FAULT);
    };
    assert!(
        violation.what.contains(word),
        "{:?} shows as something else: {violation}",
        P::FAULT
    );
    let again = run_with::<NoFault>(violation.plan);
    assert!(again.is_ok(), "the same without the fault: {again:?}");
}

macro_rules! planted {
    ($($test:ident: $fault:ident shows as $word:literal;)*) => {$(
        #[test]
        fn $test() {
            struct Planted;
            impl Plant for Planted {
                const FAULT: Option<Fault> = Some(Fault::$fault);
            }
            is_found::<Planted>($word);
        }
    )*};
}

planted! {
    an_exec_that_ignores_watches_is_found: IgnoresWatches shows as "was raised by";
    records_in_another_order_are_found: ReordersRecords shows as "records give other data";
    a_lost_invalidation_is_found: LosesInvalidations shows as "believes";
    a_lost_wake_up_is_found: LosesWakeUps shows as "never answered";
}
