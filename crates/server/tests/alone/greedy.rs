//! Units that would take more memory while they run than what they leave behind: scripts and pipelines that make values only
//! to replace them, and scripts that publish. What all of it takes at any moment is bounded. Must not know the server's
//! insides.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::alone;
use crate::client::{Client, Value, encode, request, resident_bytes, settings, start, until};

const MIB: usize = 1024 * 1024;
/// Largest growth of the process in a test, which makes several times as much: bytes.
const GROWN_MAX: usize = 300 * MIB;

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

#[test]
fn what_a_script_publishes_waited_for_its_end_however_much_it_was() {
    let _alone = alone();
    let message = vec![b'm'; MIB];
    let script =
        b"local n = 0 for i = 1, 1000 do n = n + redis.call('publish', 'c', ARGV[1]) end return n";
    for workers in [1, 2] {
        let server = start(settings(workers));
        let mut subscribers: Vec<Client> = (0..2).map(|_| Client::connect(&server)).collect();
        for subscriber in &mut subscribers {
            subscriber.call("SUBSCRIBE c");
        }
        let mut client = Client::connect(&server);
        let got = bounded("a script", || {
            client.call_args(&[b"EVAL", script, b"0", &message])
        });
        assert!(got.integer() > 0, "{got:?}");
        // Neither has read anything.
        until("both are closed", || {
            client.call("PUBSUB NUMSUB c").array()[1] == Value::Integer(0)
        });
        // Few messages arrive, all of them.
        let mut subscriber = Client::connect(&server);
        subscriber.call("SUBSCRIBE c");
        let few = b"for i = 1, 20 do redis.call('publish', 'c', i .. ARGV[1]) end return 1";
        client.write(&encode(&[b"EVAL", few, b"0", &message]));
        for number in 1..=20 {
            let message = subscriber.read();
            let Value::Bulk(text) = &message.array()[2] else {
                panic!("a message is text")
            };
            assert!(text.starts_with(format!("{number}m").as_bytes()));
        }
        assert_eq!(client.read(), Value::Integer(1));
    }
}

#[test]
fn what_a_script_publishes_to_its_own_client_waited_for_its_end_however_much_it_was() {
    let _alone = alone();
    let server = start(settings(2));
    let message = vec![b'm'; MIB];
    let script = b"for i = 1, 1000 do redis.call('publish', 'c', ARGV[1]) end return 1";
    let mut client = Client::connect(&server);
    client.call("HELLO 3");
    client.call("SUBSCRIBE c");
    bounded("a script", || {
        client.write(&encode(&[b"EVAL", script, b"0", &message]));
        client.drain();
    });
    let mut other = Client::connect(&server);
    assert_eq!(other.call("PUBSUB NUMSUB c").array()[1], Value::Integer(0));
}
