//! Options that would have no effect: they are refused, or it is said.

use std::fs;

use crate::fake_server::{FakeServer, reply};
use crate::invocation::{Ran, bench};

fn refused(args: &[&str], words: &str) {
    let ran = bench(args);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{args:?}");
    assert!(ran.stderr.contains(words), "{args:?}: {}", ran.stderr);
}

#[test]
fn a_run_refuses_what_would_have_no_effect() {
    for (args, words) in [
        (&["GET a", "-d", "100"][..], "--value-size has no effect"),
        (
            &["SET a {value:7}", "--value-size", "100"],
            "--value-size has no effect",
        ),
        (
            &["GET a", "--value-content", "fixed"],
            "--value-content has no effect",
        ),
        (
            &["SET a {value}", "--compressible", "0.5"],
            "without --value-content compressible",
        ),
        (&["GET a", "--window", "--rps", "5"], "--window"),
    ] {
        // Port 1: it is heard of before anybody is connected to.
        refused(&[&["run", "-p", "1", "--command"], args].concat(), words);
    }
    let failover = [
        "failover",
        "-p",
        "1",
        "--cluster",
        "--reads",
        "all",
        "--run",
        "true",
    ];
    refused(&failover, "--reads has no effect");
}

#[test]
fn a_share_of_hits_that_no_reply_tells_is_no_check() {
    let server = FakeServer::ok();
    let port = server.port();
    let run = |more: &[&str]| -> Ran {
        let words = ["run", "-p", &port, "-n", "9", "--no-calibration"];
        bench(&[&words[..], more].concat())
    };
    let said = "WARNING: --hit-rate-min has no effect: no reply told";
    let told = run(&["--command", "SET a b", "--hit-rate-min", "0.5"]);
    assert!(told.stdout.contains(said), "{}", told.stdout);
    for more in [
        &["--command", "SET a b"][..],
        &["--command", "GET a", "--hit-rate-min", "0.5"],
        &["--command", "SET a b", "--hit-rate-min", "0"],
    ] {
        assert!(!run(more).stdout.contains(said), "{more:?}");
    }
}

#[test]
fn options_of_a_comparison_may_be_meant_for_one_side() {
    let server = FakeServer::start(|_| reply("$1\r\nx\r\n"));
    let port = server.port();
    let compare = |a: &str, b: &str| {
        let head = ["compare", "--pairs", "3", "--", "--command", a, "--"];
        let rest = ["--command", b, "--", "-p", &port, "-n", "9", "-d", "100"];
        bench(&[&head[..], &rest].concat())
    };
    let both = compare("GET a", "GET b");
    assert_eq!((both.code, both.stdout.as_str()), (1, ""));
    assert!(
        both.stderr.starts_with("--value-size has no effect"),
        "{}",
        both.stderr
    );
    let one = compare("GET a", "SET a {value}");
    assert_eq!(one.code, 0, "{}", one.stderr);
    let said = "WARNING: A: --value-size has no effect";
    assert!(one.stderr.starts_with(said), "{}", one.stderr);
}

#[test]
fn saved_results_are_as_many_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    fs::write(&path, "{}").unwrap();
    let file = path.to_str().unwrap();
    let files = ["--", file, file, file, "--", file, file, file];
    for (option, value) in [("--pairs", "5"), ("--time-max", "1"), ("--resolve", "1")] {
        let words = format!("{option} has no effect on saved results.");
        refused(&[&["compare", option, value], &files[..]].concat(), &words);
    }
    let words = "\"-d\" behind the third -- has no effect on saved results.";
    refused(
        &[&["compare"], &files[..], &["--", "-d", "5"]].concat(),
        words,
    );
}

#[test]
fn an_option_for_all_runs_of_a_suite_may_be_meant_for_some() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("suite.toml");
    let suite = path.to_str().unwrap();
    let server = FakeServer::ok();
    let run = |second: &str| {
        let group = |command: &str| {
            format!(
                "[[group]]\nname = \"g\"\ncommand = [\"{command}\"]\n[[group.run]]\nname = \"r\"\n"
            )
        };
        let head = "name = \"n\"\ntitle = \"t\"\nsource = \"s\"\n";
        fs::write(&path, format!("{head}{}{}", group("PING"), group(second))).unwrap();
        bench(&["run", suite, "-p", &server.port(), "-n", "9", "-d", "100"])
    };
    assert_eq!(run("SET a {value}").code, 0);
    let none = run("GET a");
    assert_eq!((none.code, none.stdout.as_str()), (1, ""));
    assert!(
        none.stderr.contains("--value-size has no effect"),
        "{}",
        none.stderr
    );
}

#[test]
fn an_option_of_memtier_benchmark_is_told_its_name_here() {
    for (option, words) in [
        ("--test-time=5", "  --test-time: --duration;"),
        ("-x", "  -x: compare, which"),
        ("--statsd-host", "  --statsd-host: not there\n"),
    ] {
        let ran = bench(&["run", "--command", "PING", option, "5"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
        let (title, rows) = ran.stderr.split_once('\n').unwrap();
        assert!(title.contains("memtier_benchmark"), "{}", ran.stderr);
        assert!(rows.starts_with(words), "{}", ran.stderr);
    }
    let ran = bench(&["run", "--command", "PING", "--nothing"]);
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
}
