//! Costs of a server as `redline bench run` reports them: one whose threads end with their connections.

use std::time::Duration;

use crate::fake_server::{FakeServer, reply};
use crate::invocation::bench;
use redline_net::process;
use serde_json::Value;

#[test]
fn threads_that_end_with_their_connections_are_counted() {
    const COST: Duration = Duration::from_millis(1);
    let server = FakeServer::start(|_| {
        let before = process::cpu_thread();
        while process::cpu_thread().since(&before).total() < COST {
            std::hint::black_box((0..1000u64).sum::<u64>());
        }
        reply("$1\r\nx\r\n")
    });
    let port = server.port();
    let words = ["run", "-p", &port, "-c", "2", "-n", "300", "--command"];
    let ran = bench(&[&words[..], &["GET a", "--no-calibration", "--json", "-"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let result: Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    let parties = result["parties"].as_array().expect("there are some");
    let party = parties.iter().find(|party| party["role"] == "server");
    let party = party.expect("it is on this machine");
    // Until the first look, some requests may have been answered.
    let us = party["user_us_per_request"].as_f64().unwrap()
        + party["system_us_per_request"].as_f64().unwrap();
    assert!(us > 500.0, "{party}");
    assert!(party["busiest_share"].as_f64().unwrap() > 0.1, "{party}");
}
