//! SORT finds its keys as it runs, and is atomic all the same.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use crate::client::{Client, Value, settings, start};

const ELEMENTS: usize = 40;
const ROUNDS: usize = 300;

/// Every weight is always the same: who sees two different ones has seen half an MSET.
fn all_equal(reply: &Value) {
    let values = reply.array();
    assert_eq!(values.len(), ELEMENTS);
    assert!(
        values.iter().all(|value| *value == values[0]),
        "half of an MSET: {values:?}"
    );
}

#[test]
fn keys_that_only_the_run_knows_are_read_at_one_moment() {
    let server = start(settings(4));
    let mut setup = Client::connect(&server);
    for element in 0..ELEMENTS {
        setup.call(&format!("RPUSH l {element}"));
    }
    let mset = |value: usize| {
        let pairs: Vec<_> = (0..ELEMENTS).map(|n| format!("w{n} {value}")).collect();
        format!("MSET {}", pairs.join(" "))
    };
    setup.call(&mset(0)).ok();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = Client::connect(&server);
                let mut value = 0;
                while !done.load(Ordering::Relaxed) {
                    value += 1;
                    client.call(&mset(value)).ok();
                }
            });
        }
        let readers: Vec<_> = ["alone", "exec", "script"]
            .into_iter()
            .map(|how| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = Client::connect(server);
                    for _ in 0..ROUNDS {
                        match how {
                            "alone" => all_equal(&client.call("SORT l BY w* GET w*")),
                            "exec" => {
                                client.call("MULTI").ok();
                                client.call("SORT_RO l GET w*");
                                all_equal(&client.call("EXEC").array()[0]);
                            }
                            _ => all_equal(&client.call_args(&[
                                b"EVAL",
                                b"return redis.call('SORT','l','BY','nosort','GET','w*')",
                                b"0",
                            ])),
                        }
                    }
                })
            })
            .collect();
        for reader in readers {
            reader.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}
