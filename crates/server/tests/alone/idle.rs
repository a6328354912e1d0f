//! A worker that waits takes no CPU time. All workers of the process are looked at.

use std::{fs, thread, time::Duration};

use crate::alone;
use crate::client::{Client, Value, encode, settings, start, until};

/// CPU time of each worker so far: nanoseconds.
fn cpu_of_workers() -> Vec<u64> {
    let mut times = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let folder = task.unwrap().path();
        let name = fs::read_to_string(folder.join("comm")).unwrap();
        if name.starts_with("worker-") {
            let spent = fs::read_to_string(folder.join("schedstat")).unwrap();
            let spent: u64 = spent.split(' ').next().unwrap().parse().unwrap();
            times.push((name, spent));
        }
    }
    times.sort();
    times.into_iter().map(|(_, spent)| spent).collect()
}

#[test]
fn watches_that_end_while_their_stripe_is_held_wait_without_spinning() {
    const WINDOW: Duration = Duration::from_millis(500);
    let _alone = alone();
    let server = start(settings(2).with(|settings| settings.busy_reply_threshold_ms = 2_000));
    let mut observer = Client::connect(&server);
    let mut hears = Client::connect(&server);
    hears.call("SUBSCRIBE begun");
    // On both workers.
    let mut watchers: Vec<Client> = (0..8).map(|_| Client::connect(&server)).collect();
    let mut script = Client::connect(&server);
    for watcher in &mut watchers {
        watcher.call("WATCH k").ok();
    }
    script.write(&encode(&[
        b"EVAL",
        b"redis.call('get', KEYS[1]) redis.call('publish', 'begun', '') while true do end",
        b"1",
        b"k",
    ]));
    hears.read();
    drop(watchers);
    let clients = |observer: &mut Client| match observer.call("CLIENT LIST") {
        Value::Bulk(lines) => lines.iter().filter(|byte| **byte == b'\n').count(),
        other => panic!("{other:?}"),
    };
    // Those of the worker that runs the script stay until it has passed its threshold.
    let all = clients(&mut observer);
    until("some of those who watched are forgotten", || {
        clients(&mut observer) <= all.min(3 + 4)
    });
    let before = cpu_of_workers();
    thread::sleep(WINDOW);
    let spent = cpu_of_workers().into_iter().zip(before);
    let least = spent.map(|(after, before)| after - before).min().unwrap();
    assert!(
        Duration::from_nanos(least) < WINDOW / 20,
        "the worker that has nothing to do took {least} ns"
    );
    observer.call("SCRIPT KILL").ok();
    script.read().error();
    until("all of them are forgotten", || clients(&mut observer) == 3);
    observer.call("SET k v").ok();
}
