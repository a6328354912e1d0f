//! Loads that follow their data: `redline bench run --cluster`, `--sentinel`, several endpoints, `failover`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::fake_server::{Answer, FakeServer, Request, reply};
use crate::invocation::bench;
use serde_json::Value;

#[test]
fn who_does_not_say_where_the_data_is_is_named_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let nobody = folder.path().join("s");
    let nobody = nobody.to_str().expect("it is text");
    let load = ["--command", "GET a", "-n", "1"];
    let ran = bench(&[&["run", "--sentinel", nobody][..], &load].concat());
    assert!(
        ran.stderr.contains("No such file or directory"),
        "{}",
        ran.stderr
    );
    let null = FakeServer::start(|_| reply("*-1\r\n"));
    let place = format!("127.0.0.1:{}", null.port());
    let ran = bench(&[&["run", "--sentinel", &place][..], &load].concat());
    let said = format!("mymaster): {place} does not know\n");
    assert!(ran.stderr.ends_with(&said), "{}", ran.stderr);
}

/// A node that says that it owns every slot, and answers everything else as `answer` says.
fn lone_node(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> FakeServer {
    let port: Arc<OnceLock<String>> = Arc::default();
    let known = Arc::clone(&port);
    let node = FakeServer::start(move |request| match request[0].as_slice() {
        b"CLUSTER" => {
            let port = known.get().expect("it is known before anybody asks");
            reply(&format!(
                "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$2\r\nid\r\n"
            ))
        }
        _ => answer(request),
    });
    port.set(node.port()).expect("it is set once");
    node
}

#[test]
fn a_read_of_many_keys_is_as_many_hits_and_misses() {
    let node = lone_node(|request| match request[0].as_slice() {
        b"MGET" => reply("*4\r\n$-1\r\n$1\r\nx\r\n$-1\r\n$-1\r\n"),
        b"GET" => reply("$1\r\nx\r\n"),
        _ => reply("+OK\r\n"),
    });
    let port = node.port();
    for following in [&[][..], &["--cluster"]] {
        let load = ["--command", "MGET {{a}}1 {{a}}2 {{a}}3 {{a}}4 ; GET a"];
        let end = ["-n", "40", "--json", "-"];
        let ran = bench(&[&["run", "-p", &port][..], &load, &end, following].concat());
        let result: Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
        assert_eq!(result["commands"][0]["hit_rate"], 0.25, "{following:?}");
        assert_eq!(result["commands"][0]["values"], 20);
        // One of four keys, and one of one.
        assert_eq!(result["hit_rate"], 0.4);
    }
}

#[test]
fn a_read_that_answers_an_empty_array_has_found_nothing() {
    let node = lone_node(|request| match request[0].as_slice() {
        b"SRANDMEMBER" => reply("*0\r\n"),
        b"LPOS" => reply("*1\r\n:0\r\n"),
        _ => reply("+OK\r\n"),
    });
    let port = node.port();
    for following in [&[][..], &["--cluster"]] {
        let load = ["--command", "SRANDMEMBER {{a}}s 2 ; LPOS {{a}}l x COUNT 0"];
        let end = ["-n", "40", "--json", "-"];
        let ran = bench(&[&["run", "-p", &port][..], &load, &end, following].concat());
        let result: Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
        assert_eq!(result["commands"][0]["hit_rate"], 0.0, "{following:?}");
        assert_eq!(result["commands"][0]["values"], 20);
        assert_eq!(result["commands"][1]["hit_rate"], 1.0);
    }
}

#[test]
fn a_get_of_many_keys_of_memcached_is_as_many_hits_and_misses() {
    let server = FakeServer::start_raw(|request| match request[0].as_slice() {
        b"get a b c d" => reply("VALUE b 0 1\r\nx\r\nEND\r\n"),
        b"gat 60 a b" => reply("VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\nx\r\nEND\r\n"),
        _ => reply("END\r\n"),
    });
    let load = ["--command", "GET a b c d ; GAT 60 a b ; GET e", "-n", "30"];
    let port = server.port();
    let how = ["--protocol", "memcache_text", "--json", "-"];
    let ran = bench(&[&["run", "-p", &port][..], &load, &how].concat());
    let result: Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    let rates = [0, 1, 2].map(|command| result["commands"][command]["hit_rate"].as_f64());
    assert_eq!(rates, [Some(0.25), Some(1.0), Some(0.0)]);
    // Three of seven.
    assert_eq!(result["hit_rate"], 3.0 / 7.0);
    let requests = &result["requests"];
    assert_eq!(
        (&requests["values"], &requests["nulls"]),
        (&20.into(), &10.into())
    );
}

#[test]
fn a_primary_that_was_replaced_while_it_works_gets_no_more_requests() {
    let served = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&served);
    let old = FakeServer::start(move |request| {
        counted.fetch_add(u64::from(request[0] == b"SET"), Ordering::Relaxed);
        reply("+OK\r\n")
    });
    let new = FakeServer::ok();
    let ports = [old.port(), new.port()];
    let sentinel = FakeServer::start(move |_| {
        let port = &ports[usize::from(served.load(Ordering::Relaxed) >= 20)];
        reply(&format!(
            "*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n",
            port.len()
        ))
    });
    let place = format!("127.0.0.1:{}", sentinel.port());
    let args = ["--sentinel", &place, "--command", "SET a b", "--rps", "100"];
    let ran = bench(&[&["run"][..], &args, &["--duration", "2", "--json", "-"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let result: Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    let of = |server: &FakeServer| {
        let lines = server.lines();
        lines.iter().filter(|line| *line == "SET a b").count()
    };
    assert_eq!(of(&old) + of(&new), 200);
    // It was asked within a tenth of a second; others may take the CPUs meanwhile.
    assert!((20..150).contains(&of(&old)), "{}", of(&old));
    assert_eq!(result["redirects"]["maps"], 1);
}

#[test]
fn a_sentinel_is_told_its_own_password_and_the_servers_theirs() {
    let data = FakeServer::ok();
    let port = data.port();
    let sentinel = FakeServer::start(move |request| match request[0].as_slice() {
        b"AUTH" => reply("+OK\r\n"),
        _ => reply(&format!(
            "*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n",
            port.len()
        )),
    });
    let place = format!("redis://:theirs@127.0.0.1:{}", sentinel.port());
    let args = ["--sentinel", &place, "-a", "ours", "--command", "SET a b"];
    let ran = bench(&[&["run"][..], &args, &["--rps", "100", "-n", "30"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    let auths = |server: &FakeServer| -> HashSet<String> {
        let lines = server.lines().into_iter();
        lines.filter(|line| line.starts_with("AUTH")).collect()
    };
    assert_eq!(auths(&sentinel), HashSet::from(["AUTH theirs".to_owned()]));
    assert_eq!(auths(&data), HashSet::from(["AUTH ours".to_owned()]));
    // Asked at the start, and again while it runs, each time after the password.
    let asked = sentinel.lines();
    for (at, _) in asked
        .iter()
        .enumerate()
        .filter(|(_, line)| line.starts_with("AUTH"))
    {
        assert!(asked[at + 1].starts_with("SENTINEL "), "{asked:?}");
    }
    assert!(
        asked.iter().filter(|line| line.starts_with("AUTH")).count() >= 2,
        "{asked:?}"
    );
    let ran = bench(&["run", "--sentinel", "redis://h:1/3", "--command", "PING"]);
    assert!(
        ran.stderr.contains("a Sentinel has no databases"),
        "{}",
        ran.stderr
    );
}

#[test]
fn two_primaries_after_a_failover_are_named() {
    let server = |role: &'static str| {
        FakeServer::start(move |request| match request[0].as_slice() {
            b"ROLE" => reply(&format!("*1\r\n${}\r\n{role}\r\n", role.len())),
            b"GET" => {
                let key = String::from_utf8_lossy(&request[1]).into_owned();
                let number = key.rsplit(':').next().unwrap_or_default();
                reply(&format!("${}\r\n{number}\r\n", number.len()))
            }
            _ => reply("+OK\r\n"),
        })
    };
    for (second, warned) in [("master", true), ("slave", false)] {
        let servers = [server("master"), server(second)];
        let [one, two] = [0, 1].map(|at| format!("127.0.0.1:{}", servers[at].port()));
        let ends = ["failover", "--endpoint", &one, "--endpoint", &two];
        let more = ["--rps", "100", "--duration", "0.3", "--at", "0.1"];
        let ran = bench(&[&ends[..], &more, &["--run", "true", "--json", "-"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let result: Value = serde_json::from_str(&ran.stdout).expect("nothing but JSON");
        assert_eq!(result["found"], result["acknowledged"]);
        let warnings = result["run"]["warnings"].to_string();
        let said = format!("{one}, {two} all say that they are the primary");
        assert_eq!(warnings.contains(&said), warned, "{warnings}");
    }
}

/// Two servers that name each other as the owners of half of the slots, and answer everything with +OK.
fn two_nodes() -> [FakeServer; 2] {
    let slots: Arc<OnceLock<String>> = Arc::default();
    let servers = [(); 2].map(|()| {
        let slots = Arc::clone(&slots);
        FakeServer::start(move |request: &Request| match request[0].as_slice() {
            b"CLUSTER" => reply(slots.get().expect("it is known before anybody asks")),
            _ => reply("+OK\r\n"),
        })
    });
    let ranges = servers.iter().zip(["0\r\n:8191", "8192\r\n:16383"]);
    let ranges = ranges.map(|(server, range)| {
        let port = server.port();
        format!("*3\r\n:{range}\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
    });
    slots
        .set(format!("*2\r\n{}", ranges.collect::<String>()))
        .expect("it is set once");
    servers
}

#[test]
fn a_server_at_two_addresses_is_one_party() {
    // One process listens at both; or they are elsewhere, and say that they are the same.
    let elsewhere = "process_id:4000000000\r\nrun_id:abc\r\nused_cpu_user:1.5\r\nused_cpu_sys:0.5\r\n\
                     total_commands_processed:7\r\n";
    for (info, by) in [("", "proc"), (elsewhere, "info")] {
        let servers = [(); 2].map(|()| {
            FakeServer::start(move |request| match request[0].as_slice() {
                b"INFO" => reply(&format!("${}\r\n{info}\r\n", info.len())),
                _ => reply("+OK\r\n"),
            })
        });
        let [one, two] = servers.map(|server| server.address.to_string());
        let ends = ["run", "--endpoint", &one, "--endpoint", &two];
        let load = ["--command", "PING", "--duration", "0.3", "--json", "-"];
        let ran = bench(&[&ends[..], &load].concat());
        let result: Value = serde_json::from_str(&ran.stdout).expect("nothing but JSON");
        let parties = result["parties"].as_array().expect("there are some");
        let servers: Vec<_> = parties
            .iter()
            .filter(|party| party["role"] == "server")
            .collect();
        assert_eq!(servers.len(), 1, "{by}: {servers:?}");
        assert_eq!(servers[0]["measured_by"], by);
        let nodes = &result["target"]["nodes"];
        assert_eq!(nodes[0]["counters"].is_object(), by == "info", "{nodes}");
        assert_eq!(
            (&nodes[1]["address"], &nodes[1]["counters"]),
            (&two.into(), &Value::Null)
        );
    }
}

#[test]
fn each_of_several_servers_is_told_its_own_credentials() {
    for cluster in [&[][..], &["--cluster"]] {
        let servers = two_nodes();
        let [one, two] = [0, 1].map(|at| servers[at].port());
        let uris = [
            format!("redis://:first@127.0.0.1:{one}"),
            format!("redis://bob:second@127.0.0.1:{two}"),
        ];
        let ends = ["run", "--endpoint", &uris[0], "--endpoint", &uris[1]];
        let load = [
            "--command",
            "SET k:{uniform:1000} v",
            "-n",
            "500",
            "-c",
            "4",
            "--json",
            "-",
        ];
        let ran = bench(&[&ends[..], cluster, &load].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        let result: Value = serde_json::from_str(&ran.stdout).expect("nothing but JSON");
        let received = result["received_bytes"].as_u64().unwrap();
        assert!(
            received >= 500 * b"+OK\r\n".len() as u64,
            "{cluster:?}: {received}"
        );
        for (server, auth) in servers.iter().zip(["AUTH first", "AUTH bob second"]) {
            let lines = server.lines();
            let auths: HashSet<&str> = lines
                .iter()
                .map(String::as_str)
                .filter(|line| line.starts_with("AUTH"))
                .collect();
            assert_eq!(auths, HashSet::from([auth]), "{cluster:?}");
            let sets = lines.iter().filter(|line| line.starts_with("SET ")).count();
            // In a cluster the keys decide; without one a connection that is faster takes more.
            let least = if cluster.is_empty() { 1 } else { 100 };
            assert!(sets >= least, "{cluster:?}: {sets}");
        }
    }
}
