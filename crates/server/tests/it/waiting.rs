//! Sessions that wait for each other, and what must not be left over from it.

use crate::client::{Client, Value, busy, encode, settings, start, until};

/// Scripts stand in line behind one that runs; those that close there are passed over, the others get their turn.
#[test]
fn scripts_that_close_in_line_strand_nobody() {
    let server = start(settings(2).with(|settings| settings.busy_reply_threshold_ms = 60_000));
    let mut observer = Client::connect(&server);
    let mut hears = Client::connect(&server);
    hears.call("SUBSCRIBE begun");
    for round in 0..20 {
        let mut first = Client::connect(&server);
        first.write(&encode(&[
            b"EVAL",
            format!("redis.call('publish', 'begun', '') {}", busy(20)).as_bytes(),
            b"0",
        ]));
        hears.read();
        let mut others: Vec<Option<Client>> =
            (0..12).map(|_| Some(Client::connect(&server))).collect();
        for other in others.iter_mut().flatten() {
            other.write(&encode(&[b"EVAL", b"return redis.call('incr', 'n')", b"0"]));
        }
        others
            .iter_mut()
            .enumerate()
            .filter(|(n, _)| (n + round) % 3 != 0)
            .for_each(|(_, other)| *other = None);
        first.read();
        for other in others.iter_mut().flatten() {
            assert!(other.read().integer() > 0);
        }
    }
    until("those who went are forgotten", || {
        match observer.call("CLIENT LIST") {
            Value::Bulk(lines) => lines.iter().filter(|byte| **byte == b'\n').count() == 2,
            other => panic!("{other:?}"),
        }
    });
    assert!(observer.call("GET n").integer() >= 80);
}
