//! Our output beside that of redis-benchmark 7.0.15 for the same command line, digits apart.
//!
//! `tests/golden/cases.txt` and, for a cluster of three masters, `tests/golden/cluster_cases.txt` have the command lines,
//! `tests/golden/capture.sh` captures the files anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::fake_server::{FakeServer, Request, reply};
use crate::invocation::{bench, settled};

fn golden(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Replaces what differs from run to run: decimal numbers and cumulative counts, and how many lines a distribution has.
fn masked(output: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in output.split('\n') {
        let line = mask_numbers(line);
        let repeated = lines.last() == Some(&line) && line.contains(" <= ");
        if !repeated {
            lines.push(line);
        }
    }
    lines.join("\n")
}

fn mask_numbers(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        let whole = number
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(number.len());
        let decimals = match number[whole..].strip_prefix('.') {
            Some(after) => after
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(after.len()),
            None => 0,
        };
        let end = if decimals > 0 {
            whole + 1 + decimals
        } else {
            whole
        };
        if decimals > 0 || before.ends_with("cumulative count ") {
            // Columns are aligned to the right: a longer number has fewer blanks before it.
            out.push_str(if before.ends_with("  ") {
                before.trim_end()
            } else {
                before
            });
            out.push('#');
            out.push_str(&".000"[..decimals.min(3) + usize::from(decimals > 0)]);
        } else {
            out.push_str(before);
            out.push_str(&number[..end]);
        }
        rest = &number[end..];
    }
    out + rest
}

#[test]
fn every_case_prints_what_redis_benchmark_prints() {
    let server = FakeServer::ok();
    let port = server.port();
    for case in golden("cases.txt").lines() {
        let mut words = case.split('|');
        let name = words.next().unwrap();
        let args: Vec<&str> = ["-p", &port].into_iter().chain(words).collect();
        let ran = bench(&args);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        let expected = masked(&settled(&golden(&format!("{name}.txt"))));
        assert_eq!(masked(&settled(&ran.stdout)), expected, "{name}");
    }
}

/// Three masters that know each other, and answer everything with +OK.
fn cluster() -> [FakeServer; 3] {
    let nodes: Arc<OnceLock<String>> = Arc::default();
    let servers = [(); 3].map(|()| {
        let nodes = Arc::clone(&nodes);
        FakeServer::start(move |request: &Request| match request[0].as_slice() {
            b"CLUSTER" => {
                let text = nodes.get().expect("they are known before anybody asks");
                reply(&format!("${}\r\n{text}\r\n", text.len()))
            }
            _ => reply("+OK\r\n"),
        })
    });
    let slots = ["0-5460", "5461-10922", "10923-16383"];
    let lines = servers.iter().zip(slots).zip(1..);
    let lines = lines.map(|((server, slots), number)| {
        let address = server.address;
        format!("{number:040x} {address}@1{number} master - 0 0 {number} connected {slots}\n")
    });
    nodes.set(lines.collect()).expect("it is set once");
    servers
}

/// The names and addresses of the masters differ from cluster to cluster.
fn without_names(output: &str) -> String {
    let line = |line: &str| match line.strip_prefix("Master ") {
        Some(rest) => format!("Master {}: x", rest.split(':').next().unwrap_or_default()),
        None => line.to_owned(),
    };
    output.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_case_with_a_cluster_prints_what_redis_benchmark_prints() {
    let servers = cluster();
    let port = servers[1].port();
    for case in golden("cluster_cases.txt").lines() {
        let mut words = case.split('|');
        let name = words.next().unwrap();
        let args: Vec<&str> = ["-p", &port, "--cluster"]
            .into_iter()
            .chain(words)
            .collect();
        let ran = bench(&args);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        let settled = |output: &str| masked(&without_names(&settled(output)));
        let expected = settled(&golden(&format!("{name}.txt")));
        assert_eq!(settled(&ran.stdout), expected, "{name}");
    }
    // Each master got its share, under keys of its own.
    for (server, slots) in servers.iter().zip([0..5461, 5461..10923, 10923..16384]) {
        let requests = server.requests();
        let sets: Vec<&Request> = requests.iter().filter(|r| r[0] == b"SET").collect();
        assert!(sets.len() > 300, "{}", sets.len());
        for set in sets {
            let key = String::from_utf8_lossy(&set[1]);
            let tag = key.split(['{', '}']).nth(1).expect("every key has a tag");
            assert!(slots.contains(&slot(tag.as_bytes())), "{key}");
        }
    }
}

/// CRC-16/XMODEM, bit by bit.
fn slot(key: &[u8]) -> u16 {
    let crc = key.iter().fold(0u16, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    });
    crc % 16384
}

/// The kinds of text that end in a carriage return: a live line, or the blanks that wipe it out.
fn live_lines(output: &str) -> BTreeSet<String> {
    let mut parts: Vec<&str> = output.split(['\r', '\n']).collect();
    parts.retain(|part| part.contains("rps="));
    parts
        .into_iter()
        .filter(|line| !line.contains("nan"))
        .map(mask_numbers)
        .collect()
}

#[test]
fn the_live_line_is_that_of_redis_benchmark() {
    let server = FakeServer::ok();
    let ran = bench(&["-p", &server.port(), "-n", "40000", "-t", "get"]);
    let (ours, theirs) = (live_lines(&ran.stdout), live_lines(&golden("live.txt")));
    assert_eq!(theirs.len(), 1);
    assert!(ours.is_subset(&theirs), "{ours:?}");
    assert!(
        ran.stdout.starts_with(" \rGET: rps="),
        "{:?}",
        &ran.stdout[..40]
    );
    for wiped in ran
        .stdout
        .split_inclusive('\r')
        .collect::<Vec<_>>()
        .windows(2)
    {
        let [line, blanks] = wiped else {
            unreachable!()
        };
        if line.contains("rps=") {
            assert_eq!(
                blanks.trim_end_matches('\r').len(),
                line.len(),
                "{line:?} is wiped out whole"
            );
        }
    }
}

#[test]
fn the_mask_hides_digits_and_nothing_else() {
    assert_eq!(
        masked(
            "0.000% <= 0.015 milliseconds (cumulative count 30)\n12.5% <= 1.015 milliseconds (cumulative count 7)\nx"
        ),
        "#.000% <= #.000 milliseconds (cumulative count #)\n#.0% <= #.000 milliseconds (cumulative count #)\nx"
    );
    assert_eq!(masked("        0.031     12.008"), "#.000#.000");
    assert_eq!(
        masked("LRANGE_500 (first 500 elements): 1.25 requests"),
        "LRANGE_500 (first 500 elements): #.00 requests"
    );
}
