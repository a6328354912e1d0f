//! Messages of the program about mistakes on its command line and in its files: one line that names the part, what is wrong and
//! what to write instead. Each test is a fault that users met.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use redline_testkit::port::ReservedPort;

use crate::running::{REDLINE, Running, folder, folder_with};

/// Output of a process, and its exit code.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn say_in(folder: &Path, program: &Path, args: &[&str]) -> Said {
    let output = Command::new(program)
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn say(args: &[&str]) -> Said {
    let folder = tempfile::tempdir().unwrap();
    say_in(folder.path(), Path::new(REDLINE), args)
}

/// Returns what a failing call says on standard error; it is short, and standard output has nothing.
#[track_caller]
fn mistake(args: &[&str]) -> String {
    let said = say(args);
    assert_eq!(said.code, Some(1), "{args:?}: {}{}", said.out, said.err);
    assert_eq!(said.out, "", "{args:?}");
    assert!(said.err.lines().count() <= 3, "{args:?}: {}", said.err);
    said.err
}

/// Returns what a check of a file of this text says, and its exit code.
fn check(text: &str, args: &[&str]) -> Said {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.conf"), text).unwrap();
    let words = [&["server", "--check-config", "r.conf"][..], args].concat();
    say_in(folder.path(), Path::new(REDLINE), &words)
}

#[test]
fn a_checked_file_was_called_valid_without_a_word_on_lines_that_have_no_effect() {
    let text = "hz 20\nport 6379\nio-threads 4\nactivedefrag no\nloglevel notice\nloglevel debug\n";
    let said = check(text, &[]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    for line in [
        "The configuration is valid: 6 directives, of which 2 change a default, 1 repeats it, 2 have no effect and 1 is replaced by a later one.",
        "  r.conf:1: hz 20",
        "  r.conf:3: io-threads 4",
        "  r.conf:4: activedefrag no",
        "  r.conf:5: loglevel notice (see r.conf:6)",
    ] {
        assert!(
            said.out.lines().any(|one| one == line),
            "{line}: {}",
            said.out
        );
    }
    assert!(
        said.out.contains("here every worker does both"),
        "{}",
        said.out
    );
    assert_eq!(check("hz 20\n", &["--strict"]).code, Some(0));
    let strict = check(text, &["--strict"]);
    assert_eq!(strict.code, Some(1), "{}", strict.out);
}

#[test]
fn a_report_for_programs_has_each_line() {
    let said = check(
        "hz 20\nio-threads 4\nrequirepass topsecret\nfoo 1\n",
        &["--json"],
    );
    assert_eq!(said.code, Some(1));
    assert!(!said.out.contains("topsecret"), "{}", said.out);
    let value: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(value["valid"], false);
    let lines = value["lines"].as_array().unwrap();
    let outcomes: Vec<_> = lines
        .iter()
        .map(|line| line["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["changed", "no-effect", "changed", "fault"]);
    assert_eq!(lines[1]["place"], "r.conf:2");
    assert_eq!(lines[1]["directive"], "io-threads 4");
    assert_eq!(lines[3]["place"], "r.conf:4");
    assert_eq!(value["faults"].as_array().unwrap().len(), 1);
}

#[test]
fn the_first_fault_of_a_file_hid_the_others() {
    let said = check("port x\nfoo 1\nhz 20\nloglevel none\nmptcp yes\n", &[]);
    assert_eq!(said.code, Some(1));
    for place in ["r.conf:1: ", "r.conf:2: ", "r.conf:4: ", "r.conf:5: "] {
        let is_of = |line: &&str| line.starts_with(&format!("redline server: {place}"));
        assert_eq!(
            said.err.lines().filter(is_of).count(),
            1,
            "{place}: {}",
            said.err
        );
    }
    assert_eq!(said.err.lines().count(), 5, "{}", said.err);
    assert!(
        said.err.ends_with("redline server: 4 faults\n"),
        "{}",
        said.err
    );
}

#[test]
fn a_check_was_one_only_as_the_first_word() {
    let folder = folder_with("foo 1\n");
    for args in [
        &["server", "r.conf", "--check-config"][..],
        &["server", "--port", "0", "--check-config", "r.conf"],
        &["server", "--check-config", "r.conf", "--port", "0"],
    ] {
        let said = say_in(folder.path(), Path::new(REDLINE), args);
        assert_eq!(said.code, Some(1), "{args:?}");
        assert!(
            said.err.contains("r.conf:4: foo: "),
            "{args:?}: {}",
            said.err
        );
        assert_eq!(said.out, "", "{args:?}");
    }
}

#[test]
fn an_include_of_nothing_did_not_say_where_it_stands() {
    let said = check("hz 20\ninclude nosuch.conf\n", &[]);
    assert_eq!(said.code, Some(1));
    let line = "r.conf:2: include: can't open config file 'nosuch.conf': No such file or directory";
    assert!(said.err.contains(line), "{}", said.err);
}

#[test]
fn a_start_was_silent_on_what_its_file_asks_for_and_does_not_get() {
    let folder =
        folder_with("io-threads 4\nactivedefrag yes\nlazyfree-lazy-expire no\nmaxmemory 1mb\n");
    let running = Running::start(folder, &["r.conf"], None);
    let path = fs::canonicalize(running.path("r.conf")).unwrap();
    running.call("SHUTDOWN NOSAVE");
    let (_, log, _) = running.ended();
    let says = |text: &str| assert!(log.contains(text), "{text}: {log}");
    says(" # Without effect here: io-threads 4, activedefrag yes (--check-config says why)\n");
    // One block.
    says(&format!("Configuration file: {}\n", path.display()));
    says("maxmemory 1mb, maxmemory-policy noeviction\n");
    says("Protected mode is on");
    says("Snapshots: ");
}

#[test]
fn a_start_without_a_file_says_so_and_that_nothing_is_saved() {
    let args = ["--port", "0", "--unixsocket", "s", "--save", ""];
    let running = Running::start(folder(), &args, None);
    running.call("SHUTDOWN NOSAVE");
    let (_, log, _) = running.ended();
    let says = |text: &str| assert!(log.contains(text), "{text}: {log}");
    says("No configuration file");
    says("Nothing is saved");
    says("maxmemory: no limit\n");
    assert!(!log.contains("Without effect"), "{log}");
}

#[test]
fn numbers_of_the_bench_were_read_as_something_else_in_silence() {
    for (words, said) in [
        (["-n", "10x"], "-n: \"10x\" is no number"),
        (["-n", "-5"], "-n: \"-5\" is below 0"),
        (["-p", "abc"], "-p: \"abc\" is no number"),
        (["-p", "99999"], "-p: \"99999\" is above 65535"),
        (["-c", "0"], "-c: \"0\" is below 1"),
        (["-P", "0"], "-P: \"0\" is below 1"),
        (["-d", "-5"], "-d: \"-5\" is below 1"),
        (["-r", "1e6"], "-r: \"1e6\" is no number"),
        (["--threads", "two"], "--threads: \"two\" is no number"),
        (["--precision", "9"], "--precision: \"9\" is above 4"),
        (["-k", "yes"], "-k: \"yes\" is no number"),
        (["--dbnum", "x"], "--dbnum: \"x\" is no number"),
        (["--seed", "x"], "--seed: \"x\" is no number"),
    ] {
        let err = mistake(&[&["bench"][..], &words].concat());
        assert!(
            err.starts_with(&format!("redline bench: {said}")),
            "{words:?}: {err}"
        );
    }
}

#[test]
fn a_misspelt_sub_command_of_the_bench_was_sent_to_the_server() {
    for (word, said) in [
        (
            "rn",
            "redline bench: rn: no command and no sub-command; did you mean \"run\"? See redline bench --help\n",
        ),
        ("compar", "did you mean \"compare\"?"),
        ("suite", "redline bench run FILE"),
        ("memtier_benchmark", "redline bench memtier"),
    ] {
        let err = mistake(&["bench", word, "x"]);
        assert!(err.contains(said), "{word}: {err}");
    }
    // What may be a command of a module is sent.
    let free = ReservedPort::any();
    let port = free.number().to_string();
    for word in ["FT.SEARCH", "sort"] {
        let err = mistake(&["bench", "-p", &port, word, "x"]);
        assert!(err.contains("Could not connect"), "{word}: {err}");
    }
}

#[test]
fn a_mistake_of_one_word_printed_the_whole_help() {
    for (args, said) in [
        (
            &["bench", "--nope"][..],
            "redline bench: --nope: no such option. See redline bench --help\n",
        ),
        (
            &["bench", "--thread", "2"],
            "redline bench: --thread: no such option; did you mean \"--threads\"? See redline bench --help\n",
        ),
        (
            &["bench", "-n"],
            "redline bench: -n: its value is missing. See redline bench --help\n",
        ),
        (
            &["serve"],
            "redline: serve: no such part; did you mean \"server\"? See redline --help\n",
        ),
        (&["qqq"], "redline: qqq: no such part. See redline --help\n"),
        (
            &["server", "-p", "7000"],
            "redline server: -p: no such option; did you mean --port? See redline server --help\n",
        ),
        (
            &["server", "-x"],
            "redline server: -x: no such option. See redline server --help\n",
        ),
    ] {
        assert_eq!(mistake(args), said, "{args:?}");
    }
}

#[test]
fn the_version_is_said_however_it_is_asked_for() {
    let version = format!("redline {}\n", env!("CARGO_PKG_VERSION"));
    for word in ["--version", "-v", "-V", "version"] {
        let said = say(&[word]);
        assert_eq!(
            (said.code, said.out.as_str()),
            (Some(0), &*version),
            "{word}"
        );
    }
    let said = say(&["server", "-V"]);
    assert!(said.out.starts_with("Redline server v="), "{}", said.out);
}

#[test]
fn help_of_one_parameter_or_of_a_group() {
    let said = say(&["server", "--help", "maxmemory-policy"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    for text in [
        "maxmemory-policy",
        "noeviction",
        "allkeys-lru",
        "while the server runs",
    ] {
        assert!(said.out.contains(text), "{text}: {}", said.out);
    }
    assert!(said.out.lines().count() < 15, "{}", said.out);
    let said = say(&["server", "--help", "io-threads"]);
    assert!(said.out.contains("no effect"), "{}", said.out);
    let group = say(&["server", "--help", "replication"]);
    assert!(group.out.contains("--replicaof"), "{}", group.out);
    assert!(!group.out.contains("--maxmemory "), "{}", group.out);
    let err = mistake(&["server", "--help", "maxmemory-polcy"]);
    assert!(err.contains("did you mean \"maxmemory-policy\"?"), "{err}");
}

#[test]
fn a_busy_port_was_told_twice_and_the_reason_last() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let said = say(&["server", "--bind", "127.0.0.1", "--port", &port.to_string()]);
    assert_eq!(said.code, Some(1));
    let all = format!("{}{}", said.out, said.err);
    let lines: Vec<&str> = all
        .lines()
        .filter(|line| line.contains(&port.to_string()))
        .collect();
    let [line] = lines[..] else {
        panic!("{all}");
    };
    // Starters look for the first words to try another port.
    let start = format!(
        "Failed listening on port {port} (tcp), aborting: 127.0.0.1:{port}: Address already in use"
    );
    assert!(line.contains(&start), "{all}");
    let holder = format!("(process {}", std::process::id());
    assert!(line.contains(&holder), "{all}");
}

#[test]
fn files_of_other_proxies_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let nutcracker = "alpha:\n  listen: 127.0.0.1:22121\n  hash: fnv1a_64\n  redis: true\n  servers:\n   - 127.0.0.1:6379:1\n";
    fs::write(folder.path().join("nutcracker.yml"), nutcracker).unwrap();
    let said = say_in(
        folder.path(),
        Path::new(REDLINE),
        &["proxy", "nutcracker.yml"],
    );
    assert_eq!(said.code, Some(1));
    assert!(
        said.err
            .starts_with("redline proxy: nutcracker.yml: this is a file of nutcracker (twemproxy)"),
        "{}",
        said.err
    );
    assert!(
        said.err.contains("--nutcracker nutcracker.yml"),
        "{}",
        said.err
    );
    assert!(!said.err.contains("TOML parse error"), "{}", said.err);
    let predixy = "Name a\nBind 127.0.0.1:1\nInclude nosuch.conf\n";
    fs::write(folder.path().join("predixy.conf"), predixy).unwrap();
    let said = say_in(
        folder.path(),
        Path::new(REDLINE),
        &["proxy", "predixy.conf"],
    );
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("--predixy predixy.conf"), "{}", said.err);
    assert!(said.err.contains("nosuch.conf"), "{}", said.err);
    assert!(!said.err.contains("TOML parse error"), "{}", said.err);
}

#[test]
fn links_named_as_tools_of_others_are_known() {
    let folder = tempfile::tempdir().unwrap();
    for (name, args, said) in [
        ("valkey-server", &["--version"][..], "v="),
        ("valkey-benchmark", &["--version"], "redis-benchmark "),
        ("valkey-check-rdb", &["--version"], ""),
        ("valkey-check-aof", &["--version"], ""),
        ("predixy", &["--version"], "redline proxy "),
        ("nutcracker", &["-V"], "redline proxy "),
        ("nutcracker", &["--help"], "--nutcracker"),
        ("memtier_benchmark", &["--version"], "memtier_benchmark"),
        ("memtier_benchmark", &["--help"], "redline bench memtier"),
    ] {
        let link = folder.path().join(name);
        let _ = symlink(REDLINE, &link);
        let done = say_in(folder.path(), &link, args);
        assert!(done.out.contains(said), "{name}: {}{}", done.out, done.err);
        assert!(!done.err.contains("no such part"), "{name}: {}", done.err);
    }
    // predixy takes its file as its argument.
    fs::write(
        folder.path().join("p.conf"),
        "Name a\nInclude nosuch.conf\n",
    )
    .unwrap();
    let done = say_in(folder.path(), &folder.path().join("predixy"), &["p.conf"]);
    assert!(done.err.contains("nosuch.conf"), "{}", done.err);
}

#[test]
fn options_of_memtier_were_told_one_at_a_time() {
    let err = say(&[
        "bench",
        "run",
        "--protocol",
        "redis",
        "--test-time",
        "5",
        "--key-maximum",
        "9",
        "--ratio",
        "1:10",
    ]);
    assert_eq!(err.code, Some(1));
    for text in [
        "--protocol redis",
        "--test-time",
        "--key-maximum",
        "--duration",
        "{uniform:0-10000000}",
    ] {
        assert!(err.err.contains(text), "{text}: {}", err.err);
    }
}

#[test]
fn a_suite_without_its_target_printed_an_empty_table() {
    let folder = tempfile::tempdir().unwrap();
    let free = ReservedPort::any();
    let port = free.number();
    let suite = "name = 'x'\ntitle = 'x'\nsource = 'x'\n[[group]]\nname = 'g'\ncommand = ['GET a']\n[[group.run]]\nname = 'r'\noptions = { requests = 10 }\n";
    fs::write(folder.path().join("s.toml"), suite).unwrap();
    let args = ["bench", "run", "s.toml", "-p", &port.to_string()];
    let said = say_in(folder.path(), Path::new(REDLINE), &args);
    assert_eq!(said.code, Some(1), "{}{}", said.out, said.err);
    assert_eq!(said.out, "");
    assert!(said.err.contains("Could not connect"), "{}", said.err);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
}

#[test]
fn notes_on_a_predixy_file_came_at_every_start() {
    let folder = tempfile::tempdir().unwrap();
    let text = "Name a\nBind 127.0.0.1:1\nBufSize 4096\nClusterServerPool {\nServers {\n+ 127.0.0.1:1\n}\n}\n";
    fs::write(folder.path().join("p.conf"), text).unwrap();
    let said = say_in(
        folder.path(),
        Path::new(REDLINE),
        &["proxy", "--predixy", "p.conf", "--check"],
    );
    assert!(said.err.contains("note: "), "{}", said.err);
    // A start that fails behind the notes: the address is none of this machine's.
    let said = say_in(
        folder.path(),
        Path::new(REDLINE),
        &["proxy", "--predixy", "p.conf", "--Bind=192.0.2.1:1"],
    );
    assert_eq!(said.code, Some(1));
    let notes = said
        .err
        .lines()
        .filter(|line| line.starts_with("note: "))
        .count();
    assert!(notes <= 1, "{}", said.err);
}

#[test]
fn the_metrics_address_is_said_whole() {
    let args = [
        "--port",
        "0",
        "--unixsocket",
        "s",
        "--metrics-port",
        "0",
        "--metrics-bind",
        "127.0.0.1",
    ];
    let free = ReservedPort::any();
    let port = free.number().to_string();
    let mut args = args.map(String::from);
    args[5] = port.clone();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let running = Running::start(folder(), &args, None);
    running.call("SHUTDOWN NOSAVE");
    let (_, log, _) = running.ended();
    assert!(
        log.contains(&format!("Metrics on http://127.0.0.1:{port}/metrics\n")),
        "{log}"
    );
}
