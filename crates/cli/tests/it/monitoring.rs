//! Dashboards, alerts and recording rules ask for nothing that server and proxy do not export; the status page of the
//! proxy.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use redline_testkit::client::Client;
use redline_testkit::process::{SECOND_PORT, ServerProcess};

use crate::proxying::{self, REDLINE, call};
use crate::running::until;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring")
}

/// Returns the reply to a request for a path under a host.
fn get(port: u16, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("it answers");
    reply
}

/// Returns a proxy with metrics in front of a server with metrics, and the metrics' ports of both.
fn both() -> (ServerProcess, ServerProcess, [u16; 2]) {
    let words = ["--metrics-port", SECOND_PORT, "--metrics-bind", "127.0.0.1"].map(str::to_owned);
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &words).expect("a server starts");
    let config = format!(
        "name = 'm<b>'\n[metrics]\nbind = '127.0.0.1:{SECOND_PORT}'\n[[listener]]\nbind = '127.0.0.1:1'\n[[pool]]\n{}",
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
    let (_server, proxy, [server_port, proxy_port]) = both();
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
fn the_proxy_shows_its_state_to_who_means_this_machine() {
    let (server, proxy, [_, port]) = both();
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
