//! Units that would take more memory while they run than what they leave behind: scripts and pipelines that make values only
//! to replace them. What all of it takes at any moment is bounded. Must not know the server's
//! insides.

mod client;

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use client::{Client, Value, request, resident_bytes, settings, start};

const MIB: usize = 1024 * 1024;
/// What a test makes is several times as much.
const GROWN_MAX: usize = 300 * MIB;

/// Each test holds this while it runs: what [`resident_bytes`] tells is the whole process's.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // One that failed is no reason for the others to.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// By how much the process was larger than before at its largest, while something ran.
fn peak<R>(run: impl FnOnce() -> R) -> (R, usize) {
    let (before, over) = (resident_bytes(), AtomicBool::new(false));
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                most = most.max(resident_bytes());
                thread::sleep(Duration::from_millis(1));
            }
            most
        });
        let result = run();
        over.store(true, Ordering::Relaxed);
        (result, watching.join().unwrap().saturating_sub(before))
    })
}

#[track_caller]
fn bounded<R>(what: &str, run: impl FnOnce() -> R) -> R {
    let (result, grown) = peak(run);
    assert!(grown < GROWN_MAX, "{what}: {} MiB", grown / MIB);
    result
}

#[test]
fn values_that_a_script_replaced_stayed_until_its_end() {
    let _alone = alone();
    for workers in [1, 2] {
        let server = start(settings(workers));
        let mut client = Client::connect(&server);
        let value = vec![b'v'; 4 * MIB];
        let script = b"for i = 1, 400 do redis.call('set', 'k', ARGV[1]) end return redis.call('strlen', 'k')";
        let len = bounded("a script", || {
            client.call_args(&[b"EVAL", script, b"0", &value])
        });
        assert_eq!(len, Value::Integer(4 * MIB as i64));
    }
}

#[test]
fn databases_that_a_script_emptied_stayed_until_its_end() {
    let _alone = alone();
    let server = start(settings(1));
    let mut client = Client::connect(&server);
    let script =
        b"for i = 1, 8000 do redis.call('set', 'k', i) redis.call('flushall') end return 1";
    let done = bounded("a script", || client.call_args(&[b"EVAL", script, b"0"]));
    assert_eq!(done, Value::Integer(1));
}

#[test]
fn values_that_a_pipeline_replaced_stayed_until_its_end() {
    const CALLS: usize = 300;
    let _alone = alone();
    let server = start(settings(1));
    let mut client = Client::connect(&server);
    client.call_args(&[b"SET", b"s", &vec![b'v'; 4 * MIB]]).ok();
    bounded("a pipeline", || {
        client.write(&request("BITOP NOT d s").repeat(CALLS));
        for _ in 0..CALLS {
            assert_eq!(client.read(), Value::Integer(4 * MIB as i64));
        }
    });
    let unit = [
        request("MULTI"),
        request("BITOP NOT d s").repeat(CALLS),
        request("EXEC"),
    ];
    bounded("a transaction", || {
        client.write(&unit.concat());
        (0..=CALLS).for_each(|_| drop(client.read()));
        assert_eq!(client.read().array().len(), CALLS);
    });
}
