//! `redline bench run SUITE`: files of published benchmarks.

use std::fs;
use std::path::Path;

use crate::fake_server::{FakeServer, reply};
use crate::invocation::bench;
use serde_json::Value;

fn suite(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../suites")
        .join(name);
    path.to_str().expect("a path in UTF-8").to_owned()
}

fn server() -> FakeServer {
    FakeServer::start(|request| match request[0].as_slice() {
        b"GET" => reply("$2\r\nhi\r\n"),
        _ => reply("+OK\r\n"),
    })
}

/// Runs a shipped suite with next to nothing, and returns its result.
fn shipped(name: &str, args: &[&str]) -> Value {
    let path = suite(name);
    let common = [
        "run",
        &path,
        "--scale",
        "0.00001",
        "--threads",
        "1",
        "--connections",
        "4",
        "--json",
        "-",
    ];
    let ran = bench(&[&common[..], args].concat());
    assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
    let result: Value = serde_json::from_str(&ran.stdout).expect("nothing but JSON");
    let runs = result["runs"].as_array().unwrap();
    assert_eq!(
        ran.stderr.lines().count(),
        runs.len(),
        "a line for each run"
    );
    for run in runs {
        assert_eq!(run["result"]["ended_early"], Value::Null);
        assert_eq!(
            run["result"]["settings"]["threads"], 1,
            "the command line wins"
        );
    }
    result
}

#[test]
fn every_shipped_suite_runs_and_has_its_published_figures() {
    let server = server();
    let port = server.port();
    let tair = shipped("tair.toml", &["-p", &port]);
    let groups: std::collections::HashSet<_> = tair["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["group"].to_string())
        .collect();
    assert_eq!(groups.len(), 13, "13 commands");
    assert!(
        tair["runs"]
            .as_array()
            .unwrap()
            .iter()
            .all(|run| run["published"]["rps"].as_f64().is_some())
    );
    assert_eq!(tair["runs"][0]["result"]["requests"]["values"], 30);
    shipped("azure.toml", &["-p", &port]);
    shipped("redis-docs.toml", &["-p", &port]);
    let names = ["direct", "proxy", "proxy3"].map(|name| format!("{name}=127.0.0.1:{port}"));
    let targets: Vec<&str> = names.iter().flat_map(|name| ["--target", name]).collect();
    let predixy = shipped("predixy.toml", &targets);
    assert_eq!(predixy["runs"].as_array().unwrap().len(), 10);
    // User and password are one word there.
    let login = FakeServer::start(|request| match request[0].as_slice() {
        b"AUTH" if request.len() != 2 => reply("-ERR two words\r\n"),
        b"GET" => reply("$2\r\nhi\r\n"),
        _ => reply("+OK\r\n"),
    });
    let names = ["limited", "free"].map(|name| format!("{name}=127.0.0.1:{}", login.port()));
    let targets: Vec<&str> = names.iter().flat_map(|name| ["--target", name]).collect();
    let instance = shipped("tair-instance.toml", &targets);
    let (runs, of_tair) = (instance["runs"].as_array().unwrap(), &tair["runs"]);
    assert_eq!(runs.len(), 2 * of_tair.as_array().unwrap().len());
    assert_eq!(runs[0]["published"], of_tair[0]["published"]);
    for (name, groups) in [("tair-types.toml", 10), ("modules.toml", 12)] {
        let result = shipped(name, &["-p", &port]);
        let runs = result["runs"].as_array().unwrap();
        let names: std::collections::HashSet<_> =
            runs.iter().map(|run| run["group"].to_string()).collect();
        assert_eq!(names.len(), groups, "{name}");
    }
    // All files of the folder are among these, but memcached's: `cargo xtask compat memcached` runs that.
    assert_eq!(fs::read_dir(suite("")).unwrap().count(), 8);
}

#[test]
fn the_table_has_published_beside_measured() {
    let server = server();
    let path = suite("tair.toml");
    let ran = bench(&[
        "run",
        &path,
        "--scale",
        "0.00001",
        "--threads",
        "1",
        "--connections",
        "4",
        "-p",
        &server.port(),
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let line = ran
        .stdout
        .lines()
        .find(|line| line.starts_with("GET") && line.contains("16 bytes"));
    let line = line.unwrap_or_else(|| panic!("{}", ran.stdout));
    for figure in ["523908", "0.476", "0.719"] {
        assert!(line.contains(figure), "{line}");
    }
}

#[test]
fn targets_that_are_compared_are_not_put_in_one_place() {
    for words in [["-p", "1"], ["-s", "b"]] {
        let ran = bench(&[&["run", &suite("predixy.toml")][..], &words].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{words:?}");
        assert!(
            ran.stderr.contains("--target NAME=HOST:PORT says where"),
            "{words:?}: {}",
            ran.stderr
        );
    }
}

#[test]
fn a_fault_in_any_run_is_told_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("suite.toml");
    let text = fs::read_to_string(suite("azure.toml")).unwrap();
    fs::write(
        &path,
        text.replace("connections = 4 }", "connections = 0 }"),
    )
    .unwrap();
    let server = server();
    let ran = bench(&["run", path.to_str().unwrap(), "-p", &server.port()]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("GET latency: --connections is 1 to"),
        "{}",
        ran.stderr
    );
    assert!(server.requests().is_empty());
    let ran = bench(&["run", "no-such-suite.toml"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.starts_with("no-such-suite.toml: "),
        "{}",
        ran.stderr
    );
    let ran = bench(&["run", &suite("tair.toml"), "--command", "PING"]);
    assert!(
        ran.code == 1 && ran.stderr.contains("--command"),
        "{}",
        ran.stderr
    );
}

#[test]
fn what_a_run_of_a_suite_would_not_do_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("suite.toml");
    let head = "name = \"n\"\ntitle = \"t\"\nsource = \"s\"\n";
    let group = "[[group]]\nname = \"g\"\ncommand = [\"PING\"]\n";
    let run = |options: &str| {
        format!("{head}{group}[[group.run]]\nname = \"r\"\noptions = {{ {options} }}\n")
    };
    let server = server();
    for (text, words) in [
        (format!("{head}group = []\n"), "has no runs"),
        (format!("{head}{group}run = []\n"), "has no runs"),
        (
            run("stairs = \"5\", objective = \"p99=1s\""),
            "without a suite, --stairs",
        ),
        (run("live = true"), "--live"),
        (run("csv = \"x\""), "has no file of its own"),
        (run("html = \"x\""), "has no file of its own"),
    ] {
        fs::write(&path, &text).unwrap();
        let ran = bench(&["run", path.to_str().unwrap(), "-p", &server.port()]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{text}");
        assert!(ran.stderr.contains(words), "{text}: {}", ran.stderr);
    }
    assert!(server.requests().is_empty());
}

#[test]
fn the_table_has_the_cpu_of_a_proxy_if_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("suite.toml");
    let (server, alone) = (server(), "target = \"direct\"");
    let text = |targets: [&str; 2]| {
        let runs = targets.map(|target| format!("[[group.run]]\nname = \"r\"\n{target}\n"));
        format!(
            "name = \"n\"\ntitle = \"t\"\nsource = \"s\"\n[options]\nduration = 0.3\nconnections = 1\n\
             [targets]\ndirect = {{ server = \"127.0.0.1\", port = {port} }}\n\
             proxy = {{ server = \"127.0.0.1\", port = {port}, behind = \"direct\" }}\n\
             [[group]]\nname = \"g\"\ncommand = [\"PING\"]\n{}",
            runs.concat(),
            port = server.port()
        )
    };
    for (targets, shown) in [([alone; 2], false), ([alone, "target = \"proxy\""], true)] {
        fs::write(&path, text(targets)).unwrap();
        let ran = bench(&["run", path.to_str().unwrap()]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let heading = ran.stdout.lines().find(|line| line.contains("requests/s"));
        let heading = heading.unwrap_or_else(|| panic!("{}", ran.stdout));
        assert_eq!(
            heading.contains("proxy user  proxy kernel"),
            shown,
            "{heading}"
        );
    }
}

#[test]
fn a_suite_inside_the_program_runs_by_its_name() {
    let server = server();
    let port = server.port();
    let common = ["--scale", "0.00001", "-c", "4", "-p", &port, "--json", "-"];
    let ran = bench(&[&["run", "redis-docs"][..], &common].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let result: Value = serde_json::from_str(&ran.stdout).expect("nothing but JSON");
    assert_eq!(result["name"], "redis-docs");
    let ran = bench(&[&["run", "nothing"][..], &common].concat());
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.contains("no suite of this name"),
        "{}",
        ran.stderr
    );
    // Each file of the folder is inside the program.
    for entry in fs::read_dir(suite("")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(ran.stderr.contains(name), "{name}: {}", ran.stderr);
    }
}
