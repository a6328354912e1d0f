//! Dashboards, alerts and recording rules ask for nothing that server and proxy do not export; health checks while data
//! is loaded; the proxy's status page.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use redline_testkit::client::Client;
use redline_testkit::process::{SECOND_PORT, ServerProcess};

use crate::proxying::{self, REDLINE, call};
use crate::running::{Running, folder_with, until};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring")
}

/// Returns the reply to a request for a path under a host.
fn get(port: u16, path: &str, host: &str) -> String {
    get_at((Ipv4Addr::LOCALHOST, port).into(), path, host)
}

fn get_at(address: SocketAddr, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("it answers");
    reply
}

/// Returns a proxy with metrics and this text in its file in front of a server with metrics, and the metrics' ports of
/// both.
fn both(more: &str) -> (ServerProcess, ServerProcess, [u16; 2]) {
    let words = ["--metrics-port", SECOND_PORT, "--metrics-bind", "127.0.0.1"].map(str::to_owned);
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &words).expect("a server starts");
    let config = format!(
        "name = 'm<b>'\n{more}\n[metrics]\nbind = '127.0.0.1:{SECOND_PORT}'\n[[listener]]\nbind = '127.0.0.1:1'\n[[pool]]\n{}",
        proxying::shards(&[server.address()])
    );
    let proxy = ServerProcess::proxy_of_file(Path::new(REDLINE), &config).expect("a proxy starts");
    let ports = [server.second_port(), proxy.second_port()];
    (server, proxy, ports)
}

/// Returns the names of metrics in an expression, without the parts of histograms and without our recording rules.
fn names(expression: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    let words = expression.split(|c: char| !is_part(c));
    let ours = words.filter(|word| word.starts_with("redis_") || word.starts_with("redline_"));
    ours.map(|word| word.trim_end_matches("_bucket").to_owned())
        .collect()
}

/// Returns every expression of a dashboard, those of its variables included.
fn expressions(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    serde_json::Value::String(text)
                        if matches!(name.as_str(), "expr" | "definition") =>
                    {
                        found.push(text.clone());
                    }
                    _ => expressions(value, found),
                }
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

#[test]
fn dashboards_and_rules_ask_only_for_what_is_exported() {
    let (_server, proxy, [server_port, proxy_port]) = both("");
    let mut client = Client::connect(proxy.address()).expect("it accepts");
    call(&mut client, "SET a b");
    call(&mut client, "INCR a");
    let exported: BTreeSet<String> = [server_port, proxy_port]
        .iter()
        .flat_map(|port| {
            let page = get(*port, "/metrics", "x");
            let lines = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
            let names = lines.filter_map(|line| line.split(' ').next());
            names.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let mut asked = Vec::new();
    let mut dashboards = 0;
    for entry in fs::read_dir(folder().join("dashboards")).expect("there are dashboards") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("text");
        let board: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        expressions(&board, &mut asked);
        dashboards += 1;
    }
    assert!(dashboards == 3 && asked.len() > 60, "{}", asked.len());
    for file in ["rules.yml", "alerts.yml"] {
        let text = fs::read_to_string(folder().join(file)).expect("text");
        // Names of recorded series have colons, names of groups no underscore.
        asked.extend(
            text.lines()
                .filter(|line| !line.contains("record:"))
                .map(str::to_owned),
        );
    }
    let asked: BTreeSet<String> = asked.iter().flat_map(|text| names(text)).collect();
    // Only a replica, or a primary with replicas, has these.
    let conditional = ["redis_master_link_up", "redis_connected_slave_lag_seconds"];
    let missing: Vec<_> = asked
        .difference(&exported)
        .filter(|name| !conditional.contains(&name.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_server_that_loads_its_data_is_alive_and_not_ready() {
    // An address of the loopback that no other process of this machine has.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, a.saturating_add(1), b, c);
    let bind = address.to_string();
    let metrics = ["r.conf", "--metrics-port", "9121", "--metrics-bind", &bind];
    let status = |path: &str| get_at((address, 9121).into(), path, "x")[9..12].to_owned();
    let running = Running::start(folder_with(""), &["r.conf"], None);
    assert_eq!(running.call("SET a 1"), "+OK");
    assert_eq!(running.call("SAVE"), "+OK");
    running.signal("KILL");
    let (_, _, folder) = running.ended();
    let slowly = [&metrics[..], &["--key-load-delay", "600000000"]].concat();
    let running = Running::start(folder, &slowly, None);
    until("it answers", || {
        TcpStream::connect((address, 9121)).ok().map(drop)
    });
    assert_eq!(
        (status("/livez"), status("/readyz")),
        ("200".into(), "503".into())
    );
    assert_eq!(running.call("CONFIG SET key-load-delay 0"), "+OK");
    until("it is loaded", || {
        (status("/readyz") == "200").then_some(())
    });
}

#[test]
fn the_proxy_shows_its_state_to_who_means_this_machine() {
    let (server, proxy, [_, port]) = both("");
    let mut client = Client::connect(proxy.address()).expect("it accepts");
    call(&mut client, "SET a b");
    let page = get(port, "/", &format!("127.0.0.1:{port}"));
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    for part in [
        "Content-Security-Policy: default-src 'none'; style-src 'self'; script-src 'self'",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        "redline proxy m&lt;b&gt;",
        "Nothing is wrong.",
        &server.address().to_string(),
        ">set<",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for path in ["/", "/status.css", "/status.js"] {
        assert!(
            get(port, path, "evil.example").starts_with("HTTP/1.1 421 "),
            "{path}"
        );
    }
    let part = get(port, "/?part", "localhost");
    assert!(
        part.contains("\r\n\r\n<p>Redline ") && !part.contains("<html"),
        "{part}"
    );
    assert!(get(port, "/livez", "x").starts_with("HTTP/1.1 200 "));
    assert!(get(port, "/readyz", "x").starts_with("HTTP/1.1 200 "));
    drop(server);
    until("no pool can serve", || {
        let _ = client.call(&["GET", "a"]);
        get(port, "/readyz", "x")
            .starts_with("HTTP/1.1 503 ")
            .then_some(())
    });
    assert!(get(port, "/", "localhost").contains("is marked down"));
}

#[test]
fn a_proxy_that_drains_is_alive_and_not_ready() {
    let patient = "[timeouts]\nrequest = 'off'\ndrain = 'off'";
    let (server, proxy, [_, port]) = both(patient);
    let mut client = Client::connect(proxy.address()).expect("it accepts");
    call(&mut client, "SET a b");
    let requests = || {
        let page = get(port, "/metrics", "x");
        let mut lines = page.lines();
        let count = lines.find_map(|line| line.strip_prefix("redline_proxy_requests_total "));
        count
            .expect("it is counted")
            .parse::<u64>()
            .expect("a number")
    };
    let before = requests();
    proxying::freeze(&server);
    client.send(b"GET a\r\n").expect("it takes requests");
    // Its request keeps the proxy from ending, once it is there.
    until("the request is there", || {
        (requests() > before).then_some(())
    });
    proxying::signal(&proxy, "-TERM");
    until("it drains", || {
        get(port, "/readyz", "x").contains("draining").then_some(())
    });
    assert!(get(port, "/livez", "x").starts_with("HTTP/1.1 200 "));
}
