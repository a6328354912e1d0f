//! `redline doctor`: conditions that are made for it are found, with their exit code.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use redline_testkit::port::ReservedPort;

use crate::running::{REDLINE, folder_with};

/// Returns the state of a check in JSON findings, of the finding whose text has this part.
fn state(output: &Output, check: &str, part: &str) -> Option<String> {
    let found: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let found = found.as_array().unwrap();
    let one = found.iter().find(|one| {
        one["check"] == check && one["text"].as_str().is_some_and(|text| text.contains(part))
    })?;
    Some(one["state"].as_str().unwrap().to_owned())
}

#[test]
fn what_was_made_amiss_is_found() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let folder = folder_with(&format!(
        "requirepass topsecret\nport {port}\nbind 127.0.0.1\ndir .\nlogfile nosuch/log\nmaxclients 100000\n"
    ));
    let file = folder.path().join("r.conf");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let run = |args: &str| {
        Command::new("sh")
            .args([
                "-c",
                &format!("ulimit -n 200; exec {REDLINE} doctor {args}"),
            ])
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    let output = run("server r.conf --json");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    for (check, part, wanted) in [
        ("open files", "the limit is 200", "warning"),
        ("address", &*format!("127.0.0.1:{port} is in use"), "fault"),
        ("secrets", "r.conf", "warning"),
        ("configuration", "nosuch/log", "fault"),
        ("folder", "for the log", "fault"),
    ] {
        assert_eq!(
            state(&output, check, part).as_deref(),
            Some(wanted),
            "{check}: {output:?}"
        );
    }
    let text = run("server r.conf").stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(!text.contains("topsecret"), "{text}");
    assert!(text.contains("mend: chmod o= "), "{text}");
    let open = run("--bind 0.0.0.0 --port 0 --protected-mode no --json");
    assert_eq!(
        state(&open, "access", "no password"),
        None,
        "without a port nobody is let in"
    );
    let free = ReservedPort::any();
    let port = free.number();
    let open = run(&format!(
        "server --bind 0.0.0.0 --port {port} --protected-mode no --json"
    ));
    assert_eq!(
        state(&open, "access", "no password").as_deref(),
        Some("fault"),
        "{open:?}"
    );
}

#[test]
fn each_part_is_examined_and_a_wrong_call_is_told() {
    let run = |args: &[&str]| Command::new(REDLINE).args(args).output().unwrap();
    let output = run(&["doctor", "bench", "--json"]);
    assert!(state(&output, "local ports", "").is_some(), "{output:?}");
    let output = run(&[
        "doctor",
        "proxy",
        "--upstream",
        "127.0.0.1:1",
        "--port",
        "0",
        "--json",
    ]);
    assert!(state(&output, "listen backlog", "").is_some(), "{output:?}");
    let output = run(&["server", "--check-system"]);
    assert!(
        output.status.code().is_some_and(|code| code <= 2),
        "{output:?}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("transparent huge pages"));
    for args in [
        &["doctor", "proxy", "nosuch.toml"][..],
        &["doctor", "bench", "x"],
        &["doctor", "-x"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(output.stderr.starts_with(b"redline doctor: "), "{output:?}");
    }
}
