//! The binary with failing output: a reader that has read enough, a full disk. And its messages about itself.

use std::io::{PipeReader, pipe};
use std::process::{Command, Output, Stdio};

const REDLINE: &str = env!("CARGO_BIN_EXE_redline");

/// Command lines that print something and end.
const SAY: [&str; 12] = [
    "--help",
    "--version",
    "server --help",
    "server --version",
    "server --check-config /dev/null",
    "proxy --help",
    "proxy --version",
    "proxy --upstream a:1 --check",
    "proxy --upstream a:1 --print-config",
    "bench --help",
    "bench run --help",
    "bench compare --help",
];

fn run(line: &str, stdout: Stdio, stderr: Stdio) -> Output {
    let mut command = Command::new(REDLINE);
    command.args(line.split(' ')).stdin(Stdio::null());
    command
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap()
}

fn piped(line: &str) -> Output {
    run(line, Stdio::piped(), Stdio::piped())
}

/// Returns a pipe without a reader.
fn closed() -> Stdio {
    let (reader, writer): (PipeReader, _) = pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full() -> Stdio {
    let device = std::fs::OpenOptions::new().write(true).open("/dev/full");
    device.unwrap().into()
}

#[test]
fn a_reader_that_has_read_enough_ends_nothing_in_a_panic() {
    for line in SAY {
        let output = run(line, closed(), Stdio::piped());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{line}: {said}");
        assert_eq!(said, "", "{line}");
    }
}

#[test]
fn a_full_disk_is_told_and_no_panic() {
    for line in SAY.iter().filter(|line| !line.starts_with("bench")) {
        let output = run(line, full(), Stdio::piped());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains("No space left on device"), "{line}: {said}");
        assert!(!said.contains("panicked"), "{line}: {said}");
    }
}

#[test]
fn mistakes_have_their_exit_code_where_nobody_hears_of_them() {
    for line in [
        "",
        "nonsense",
        "server --nonsense 1",
        "proxy",
        "proxy --upstream a:0 --check",
        "proxy --nonsense",
        "bench run --nonsense",
    ] {
        for stderr in [closed(), full()] {
            let output = run(line, Stdio::piped(), stderr);
            assert_eq!(output.status.code(), Some(1), "{line}");
        }
    }
}

#[test]
fn a_checked_proxy_could_write_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy.toml");
    let check = |log: &str| {
        let log = folder.path().join(log);
        let text = format!(
            "log = {{ file = '{}' }}\n[[listener]]\nbind = '127.0.0.1:1'\n[[pool]]\n[[pool.shard]]\n\
             server = [{{ address = '127.0.0.1:2' }}]\n",
            log.display()
        );
        std::fs::write(&path, text).unwrap();
        let mut command = Command::new(REDLINE);
        let output = command.args(["proxy", "--check"]).arg(&path).output();
        (output.unwrap(), log)
    };
    let (output, _) = check("none/log");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("none/log: No such file"));
    let (output, log) = check("log");
    assert!(output.status.success());
    assert_eq!(output.stdout, b"The configuration is valid.\n");
    assert!(!log.exists(), "a check leaves nothing behind");
}

#[test]
fn help_of_the_bench_names_its_sub_commands() {
    let text = |line: &str| String::from_utf8(piped(line).stdout).unwrap();
    for name in ["run", "compare", "failover", "report"] {
        for line in ["--help", "bench --help"] {
            assert!(text(line).contains(name), "{line}: {name}");
        }
        // The first line is a summary.
        let help = text(&format!("bench {name} --help"));
        assert!(!help.starts_with("The options"), "{name}: {help}");
        assert!(help.contains(&format!("Usage: redline bench {name} ")));
    }
}
