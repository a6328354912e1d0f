//! `redline bench compare` and `redline bench report`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::fake_server::{FakeServer, reply};
use crate::invocation::bench;
use serde_json::Value;

/// A server that takes so long for each GET.
fn server(delay_us: u64) -> FakeServer {
    FakeServer::start(move |request| {
        if request[0] == b"GET" {
            std::thread::sleep(Duration::from_micros(delay_us));
        }
        reply("+OK\r\n")
    })
}

const BOTH: [&str; 5] = ["--", "--command", "GET a", "-c", "1"];

#[test]
fn a_server_that_takes_longer_is_found_and_fails_the_comparison() {
    // So far apart that no noise of the machine hides it in six pairs; and neither needs a CPU to be as fast as it is.
    let (a, b) = (server(10_000), server(200_000));
    let (port_a, port_b) = (a.port(), b.port());
    let sides = ["--", "-p", &port_a, "--", "-p", &port_b];
    let args = [
        &["compare", "--pairs", "6", "--fail-if", "slower=5%"][..],
        &sides,
        &BOTH,
        &["--duration", "0.2"],
    ]
    .concat();
    let ran = bench(&args);
    assert_eq!(ran.code, 3, "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stdout.contains("fewer requests/s (99 % interval"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("B is worse by 5 % or more."),
        "{}",
        ran.stdout
    );
    assert_eq!(
        ran.stderr.lines().count(),
        6,
        "a line for each pair: {}",
        ran.stderr
    );
    // A and B took turns in who came first.
    let swapped = [
        &[
            "compare",
            "--pairs",
            "6",
            "--fail-if",
            "slower=5%",
            "--json",
            "-",
        ][..],
        &["--", "-p", &port_b, "--", "-p", &port_a],
        &BOTH,
        &["--duration", "0.2"],
    ]
    .concat();
    let ran = bench(&swapped);
    assert_eq!(ran.code, 0, "faster is no failure: {}", ran.stderr);
    let comparison: Value = serde_json::from_str(&ran.stdout).expect("nothing but JSON");
    assert_eq!(comparison["difference_shown"], true);
    assert_eq!(comparison["metric"], "rps");
    let figure = &comparison["figures"][0];
    assert_eq!(figure["a"].as_array().unwrap().len(), 6);
    assert!(figure["low"].as_f64().unwrap() > 1.0);
}

/// Saves a result, and copies of it whose rate is multiplied.
fn saved(folder: &Path, name: &str, result: &Value, factors: &[f64]) -> Vec<String> {
    let save = |(index, factor): (usize, &f64)| {
        let mut result = result.clone();
        let rate = result["achieved_rps"].as_f64().unwrap();
        result["achieved_rps"] = (rate * factor).into();
        let path = folder.join(format!("{name}{index}.json"));
        fs::write(&path, result.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    factors.iter().enumerate().map(save).collect()
}

fn measured() -> Value {
    let server = FakeServer::ok();
    let port = server.port();
    let ran = bench(&[
        "run",
        "-p",
        &port,
        "--command",
        "GET <a>",
        "--rps",
        "400",
        "--duration",
        "0.5",
        "--interval",
        "0.1",
        "--json",
        "-",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).expect("nothing but JSON")
}

#[test]
fn saved_results_are_compared_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let result = measured();
    let a = saved(folder.path(), "a", &result, &[1.0, 1.1, 0.9, 1.0]);
    let same = saved(folder.path(), "same", &result, &[1.01, 1.09, 0.91, 0.99]);
    let slower = saved(folder.path(), "slower", &result, &[0.9, 1.0, 0.81, 0.9]);
    let compare = |b: &[String], more: &[&str]| {
        let files = |files: &[String]| {
            files
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join("\n")
        };
        let (a, b) = (files(&a), files(b));
        let line = [&["compare", "--metric", "rps"], more].concat();
        let line = line
            .into_iter()
            .chain(["--"])
            .chain(a.lines())
            .chain(["--"])
            .chain(b.lines());
        bench(&line.collect::<Vec<_>>())
    };
    let ran = compare(&same, &["--fail-if", "slower=0%"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("requests/s: no difference shown"),
        "{}",
        ran.stdout
    );
    let ran = compare(&slower, &["--fail-if", "slower=5%"]);
    assert_eq!(ran.code, 3, "{}{}", ran.stdout, ran.stderr);
    // A tenth is less than a fifth.
    assert_eq!(compare(&slower, &["--fail-if", "slower=20%"]).code, 0);
    assert!(!ran.stdout.contains("same load"), "{}", ran.stdout);
    let mut other = result.clone();
    other["settings"]["connections"] = 51.into();
    let other = saved(folder.path(), "other", &other, &[1.0, 1.1, 0.9, 1.0]);
    let ran = compare(&other, &[]);
    assert!(
        ran.stdout
            .contains("one of B is of 1 x GET <a>, 400 requests/s, 51 connections, pipeline 1."),
        "{}",
        ran.stdout
    );
    let ran = compare(&slower[..3], &[]);
    assert_eq!(
        (ran.code, ran.stderr.contains("4 and 3 saved results")),
        (1, true),
        "{}",
        ran.stderr
    );
}

#[test]
fn results_that_were_cut_short_are_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let mut result = measured();
    let a = saved(folder.path(), "a", &result, &[1.0, 1.01, 0.99]);
    result["ended_early"] = "Interrupted.".into();
    let b = saved(folder.path(), "b", &result, &[1.0, 1.01]);
    let names = |names: &[String]| names.iter().map(String::clone).collect::<Vec<_>>();
    let words = [
        vec!["compare".to_owned(), "--".to_owned()],
        names(&a),
        vec!["--".to_owned(), a[0].clone()],
        names(&b),
    ]
    .concat();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ran = bench(&words);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let note = "\nB: 2 of 3 results were cut short (Interrupted.).\n";
    assert!(ran.stdout.contains(note), "{}", ran.stdout);
    assert_eq!(ran.stdout.matches("cut short").count(), 1, "{}", ran.stdout);
}

#[test]
fn reads_that_find_nothing_are_no_comparison_of_servers() {
    let empty = FakeServer::start(|_| reply("$-1\r\n"));
    let full = FakeServer::start(|_| reply("$1\r\nx\r\n"));
    let (a, b) = (full.port(), empty.port());
    let sides = ["compare", "--pairs", "3", "--", "-p", &a, "--", "-p", &b];
    let ran = bench(&[&sides[..], &BOTH, &["-n", "20"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let note = "B: in 3 of 3 runs many reads found nothing, and a miss costs less than a hit";
    assert!(ran.stdout.contains(note), "{}", ran.stdout);
    assert!(
        !ran.stdout.contains("A: in 3 of 3 runs many"),
        "{}",
        ran.stdout
    );
    let ran = bench(&[&sides[..], &BOTH, &["-n", "20", "--hit-rate-min", "0"]].concat());
    assert!(!ran.stdout.contains("found nothing"), "{}", ran.stdout);
}

#[test]
fn pairs_that_were_measured_before_a_failure_are_reported() {
    let gets = AtomicU64::new(0);
    let server = FakeServer::start(move |request| match request[0].as_slice() {
        b"GET" if gets.fetch_add(1, Ordering::Relaxed) >= 500 => reply("-ERR no more\r\n"),
        _ => reply("+OK\r\n"),
    });
    let port = server.port();
    let sides = ["--", "-p", &port, "--", "-p", &port];
    // Two runs of fifty are a pair.
    let args = [&["compare"][..], &sides, &BOTH, &["-n", "50"]].concat();
    let ran = bench(&args);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.ends_with("ERR no more\n"), "{}", ran.stderr);
    assert!(ran.stdout.contains("; 5 pairs)"), "{}", ran.stdout);
}

#[test]
fn a_failure_says_on_which_side_it_happened() {
    let good = FakeServer::ok();
    let bad = FakeServer::start(|request| match request[0].as_slice() {
        b"GET" => reply("-ERR no\r\n"),
        _ => reply("+OK\r\n"),
    });
    let (good, bad) = (good.port(), bad.port());
    for (a, b, said) in [
        (&good, &bad, "B: Error from server: ERR no\n"),
        (&bad, &good, "A: Error from server: ERR no\n"),
    ] {
        let sides = ["compare", "--", "-p", a, "--", "-p", b];
        let ran = bench(&[&sides[..], &BOTH, &["-n", "9"]].concat());
        assert_eq!(ran.code, 1);
        assert!(ran.stderr.ends_with(said), "{}", ran.stderr);
    }
    let sides = ["compare", "--", "-p", &good, "--", "-p", "1"];
    let ran = bench(&[&sides[..], &BOTH].concat());
    let said = "B: Could not connect to Redis at 127.0.0.1:1: Connection refused\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (1, said));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    for (args, words) in [
        (&["compare"][..], "two sets of options"),
        (&["compare", "--", "-p", "1"], "two sets of options"),
        (
            &["compare", "--pairs", "2", "--", "--"],
            "--pairs is at least 3",
        ),
        (
            &["compare", "--fail-if", "faster", "--", "--"],
            "slower=PERCENT%",
        ),
        (
            &["compare", "--", "--", "--", "--command", "GET {"],
            "nothing closes",
        ),
        (&["compare", "--", "--nope", "--", "--"], "--nope"),
    ] {
        let ran = bench(args);
        assert_eq!(ran.code, 1, "{args:?}");
        assert!(ran.stderr.contains(words), "{args:?}: {}", ran.stderr);
    }
    let help = bench(&["compare", "--help"]);
    assert_eq!(help.code, 0);
    assert!(help.stdout.contains("--fail-if"), "{}", help.stdout);
}

/// The charts of a page, each with how many lines and bars it has.
fn charts(page: &str) -> Vec<usize> {
    page.split("<svg")
        .skip(1)
        .map(|chart| chart.matches("#0072B2").count() + chart.matches("#D55E00").count())
        .collect()
}

#[test]
fn a_report_needs_nothing_but_itself_and_each_of_its_charts_has_marks() {
    let folder = tempfile::tempdir().unwrap();
    let result = measured();
    let files = saved(folder.path(), "run", &result, &[1.0, 0.9]);
    let page: PathBuf = folder.path().join("page.html");
    let one = bench(&["report", &files[0], "-o", page.to_str().unwrap()]);
    assert_eq!((one.code, one.stderr.as_str()), (0, ""));
    assert_eq!(one.stdout, format!("{}\n", page.display()));
    let page = fs::read_to_string(page).unwrap();
    let two = bench(&["report", &files[0], &files[1], "-o", "-"]);
    assert_eq!(two.code, 0, "{}", two.stderr);
    for page in [&page, &two.stdout] {
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        for outside in [
            "http:", "https:", "src=", "href=", "<script", "@import", "url(",
        ] {
            let page = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(
            page.contains("GET &lt;a&gt;"),
            "what was sent is text, not markup"
        );
        let charts = charts(page);
        assert!(charts.len() >= 4, "{charts:?}");
        assert!(charts.iter().all(|&marks| marks > 0), "{charts:?}");
    }
    assert!(
        two.stdout
            .contains("<th scope=\"col\">run0</th><th scope=\"col\">run1</th>")
    );
}

#[test]
fn the_last_few_ms_were_drawn_as_a_whole_piece_and_throughput_ended_at_zero() {
    let folder = tempfile::tempdir().unwrap();
    let mut result = measured();
    let mut point = result["series"][0].clone();
    let mut series = Vec::new();
    for (at_s, answered) in [(0.0, 1000), (1.0, 1000), (2.0, 3)] {
        (point["at_s"], point["answered"]) = (at_s.into(), answered.into());
        series.push(point.clone());
    }
    result["series"] = series.into();
    result["settings"]["interval_s"] = 1.0.into();
    let page = |elapsed_s: f64| {
        let mut result = result.clone();
        result["elapsed_s"] = elapsed_s.into();
        let files = saved(folder.path(), "run", &result, &[1.0]);
        bench(&["report", &files[0], "-o", "-"]).stdout
    };
    let described = |page: &str| {
        let (_, rest) = page.split_once("<title>Throughput</title>").unwrap();
        let (_, rest) = rest.split_once("<desc>").unwrap();
        rest.split_once("</desc>").unwrap().0.to_owned()
    };
    let left_out = page(2.003);
    assert_eq!(described(&left_out), "2 points from 1000 to 1000");
    assert!(left_out.contains("the last 3 ms, less than half an interval, are left out"));
    // Half an interval and more is a rate of its own length.
    let scaled = page(2.6);
    assert_eq!(described(&scaled), "3 points from 5 to 1000");
    assert!(!scaled.contains("are left out"));
}

#[test]
fn a_page_did_not_say_when_where_and_how_it_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let (json, page) = (folder.path().join("r.json"), folder.path().join("r.html"));
    let server = FakeServer::start(|_| reply("+OK\r\n"));
    let (json, page) = (json.to_str().unwrap(), page.to_str().unwrap());
    let to = ["--json", json, "--html", page, "-a", "hush"];
    let ran = bench(
        &[
            &[
                "run",
                "-p",
                &server.port(),
                "-n",
                "10",
                "--command",
                "GET <a>",
            ][..],
            &to,
        ]
        .concat(),
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let page = fs::read_to_string(page).unwrap();
    for part in [
        "<dt>Date</dt>",
        "<dt>Command line</dt><dd>redline bench run -p ",
        "-a ***",
        "<dt>Machine</dt>",
        "<dt>Kernel</dt><dd>Linux ",
        "<dt>Measured by</dt><dd>redline ",
        "name=\"viewport\"",
        "tabindex=\"0\" role=\"region\"",
        "<main>",
        "1 thread;",
        "CPU time per request",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("hush") && !fs::read_to_string(json).unwrap().contains("hush"));
}

#[test]
fn a_comparison_and_a_suite_have_pages_too() {
    let folder = tempfile::tempdir().unwrap();
    let result = measured();
    let a = saved(folder.path(), "a", &result, &[1.0, 1.01, 0.99]);
    let b = saved(folder.path(), "b", &result, &[1.5, 1.52, 1.49]);
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (json, page) = (place("comparison.json"), place("comparison.html"));
    let files: Vec<&str> = a.iter().map(String::as_str).collect();
    let others: Vec<&str> = b.iter().map(String::as_str).collect();
    let head = [
        "compare", "--metric", "rps", "--json", &json, "--html", &page, "--",
    ];
    let ran = bench(&[&head[..], &files, &["--"], &others].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.contains("requests/s"));
    let page = fs::read_to_string(page).unwrap();
    assert!(charts(&page).len() >= 4 && charts(&page).iter().all(|&marks| marks > 0));
    for part in [
        "B / A with its 99 % interval",
        "<dt>A</dt><dd>",
        "no difference",
        "redline bench compare --metric rps",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // The saved comparison gives the same page.
    assert_eq!(bench(&["report", &json, "-o", "-"]).stdout, page);

    let run = serde_json::json!({"group": "GET", "name": "16 bytes", "published": {"rps": 5.0}, "result": result});
    let suite = serde_json::json!({"format": 1, "name": "s", "title": "t", "source": "u", "scale": 1.0, "runs": [run]});
    let json = place("suite.json");
    fs::write(&json, suite.to_string()).unwrap();
    let ran = bench(&["report", &json, "-o", "-"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert_eq!(charts(&ran.stdout).len(), 1);
    assert!(ran.stdout.contains("16 bytes (published)") && ran.stdout.contains("<table>"));
    let colours = ["fill=\"#0072B2\"", "fill=\"#D55E00\""];
    assert!(
        colours.iter().all(|colour| ran.stdout.contains(colour)),
        "measured and published"
    );
}

#[test]
fn who_puts_options_before_the_dashes_is_told_where_they_belong() {
    let ran = bench(&["compare", "-p", "1", "--", "-p", "2"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr
            .starts_with("Options of `redline bench run` stand behind --")
    );
    let ran = bench(&["compare", "--", "nothere.json", "--", "nothere.json"]);
    assert_eq!(ran.stderr, "nothere.json: there is no such file.\n");
}

#[test]
fn files_that_are_no_results_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.json");
    let name = path.to_str().unwrap();
    let missing = bench(&["report", name]);
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.starts_with(name), "{}", missing.stderr);
    let mut result = measured();
    let whole = result.to_string();
    result["format"] = 99.into();
    let newer = result.to_string();
    result["format"] = 1.into();
    result.as_object_mut().unwrap().remove("achieved_rps");
    for (text, said) in [
        (
            "{}",
            "this is JSON, but of nothing that redline bench measures",
        ),
        (
            "[1]",
            "this is JSON, but of nothing that redline bench measures",
        ),
        ("", "the file is empty"),
        (
            "GET a",
            "this is no JSON (expected value at line 1 column 1)",
        ),
        ("at_s,answered\n", "this is the series that --csv has left"),
        ("#[StartTime: 1.0]\n", "this is the log that --hdr has left"),
        ("<!DOCTYPE html>\n", "this is a page (--html has left it?)"),
        (&whole[..whole.len() / 2], "the JSON is cut off"),
        (&newer, "format 99 is not known here, which is 1"),
        (
            &result.to_string(),
            "something is missing or wrong (missing field `achieved_rps`",
        ),
    ] {
        fs::write(&path, text).unwrap();
        for words in [
            &["report", name][..],
            &["compare", "--", name, name, name, "--", name, name, name],
        ] {
            let ran = bench(words);
            let named = format!("{name}: {said}");
            assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{words:?} {text}");
            assert!(ran.stderr.starts_with(&named), "{words:?}: {}", ran.stderr);
            assert!(ran.stderr.ends_with("It takes what --json has left.\n"));
        }
    }
}

#[test]
fn results_of_something_else_than_runs_are_called_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let result = measured();
    let a = saved(folder.path(), "a", &result, &[1.0, 1.01, 0.99]);
    let comparison = place("comparison.json");
    let a: Vec<&str> = a.iter().map(String::as_str).collect();
    let words = ["compare", "--json", &comparison, "--"];
    assert_eq!(bench(&[&words[..], &a, &["--"], &a].concat()).code, 0);
    let step = serde_json::json!({"passed": true, "result": result});
    let stairs = serde_json::json!({"format": 1, "objective": {"figure": "P99", "ms": 2.0}, "knee_rps": 5.0,
        "text": "", "ended_early": null, "steps": [step]});
    let suite = serde_json::json!({"format": 1, "name": "s", "title": "t", "source": "u", "scale": 1.0, "runs": []});
    for (name, text) in [("stairs.json", stairs), ("suite.json", suite)] {
        fs::write(place(name), text.to_string()).unwrap();
    }
    for (name, what) in [
        ("comparison.json", "a comparison"),
        ("stairs.json", "a staircase"),
        ("suite.json", "a suite"),
    ] {
        let other = place(name);
        let ran = bench(&[&["compare", "--"], &a[..], &["--", &other, a[0], a[1]]].concat());
        let said = format!(
            "{other}: this is the result of {what}; what can be compared are results that `redline bench run --json` has left.\n"
        );
        assert_eq!((ran.code, ran.stderr), (1, said));
        // A page of its own has each of them.
        let ran = bench(&["report", &other, "-o", "-"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{name}");
        let ran = bench(&["report", a[0], &other, "-o", "-"]);
        let said = format!("{other}: this is the result of {what}, which has a page of its own");
        assert!(
            ran.code == 1 && ran.stderr.starts_with(&said),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn saved_results_may_have_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let results = saved(folder.path(), "a", &measured(), &[1.0, 1.01, 0.99]);
    let other: Vec<String> = results
        .iter()
        .map(|name| name.replace(".json", ".result"))
        .collect();
    for (from, to) in results.iter().zip(&other) {
        fs::copy(from, to).unwrap();
    }
    let [a, b] = [&results, &other].map(|names| names.iter().map(String::as_str));
    let words = ["compare", "--"]
        .into_iter()
        .chain(a)
        .chain(["--"])
        .chain(b);
    let ran = bench(&words.collect::<Vec<_>>());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
}

#[test]
fn files_beside_options_are_told_as_such() {
    for (a, b) in [
        (&["a.json", "b.json"][..], &["-p", "1"][..]),
        (&["-p", "1"], &["a.json"]),
        (&["a.json"], &["b.txt"]),
    ] {
        let ran = bench(&[&["compare", "--"], a, &["--"], b].concat());
        assert_eq!(ran.code, 1);
        assert!(
            ran.stderr.contains("\"a.json\" is a saved result"),
            "{}",
            ran.stderr
        );
    }
}
