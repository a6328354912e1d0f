//! `redline convert`, and links named as the tools whose files and command lines it reads.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::running::REDLINE;

const NUTCRACKER: &str = "alpha:\n  listen: 127.0.0.1:22121\n  hash: md5\n  distribution: modula\n  timeout: 400\n  redis: true\n  servers:\n   - 127.0.0.1:6379:1 one\n   - 127.0.0.1:6380:2 two\n";

fn call(folder: &Path, program: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command.output().unwrap()
}

fn convert(folder: &Path, args: &[&str]) -> Output {
    call(
        folder,
        Path::new(REDLINE),
        &[&["convert"][..], args].concat(),
    )
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_file_becomes_a_configuration_that_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let predixy = "Name a\nBind 127.0.0.1:1\nBufSize 4096\nClusterServerPool {\nServers {\n+ 127.0.0.1:2\n}\n}\n";
    let redis = "port 7000\nio-threads 4\nmaxmemory 1gb\n";
    for (name, content, part, check, kind) in [
        (
            "n.yml",
            NUTCRACKER,
            "proxy",
            "--check",
            "nutcracker (twemproxy)",
        ),
        ("p.conf", predixy, "proxy", "--check", "predixy"),
        (
            "s.conf",
            "sentinel monitor m 127.0.0.1 6379 2\n",
            "proxy",
            "--check",
            "a Sentinel",
        ),
        ("r.conf", redis, "server", "--check-config", "redis-server"),
    ] {
        fs::write(folder.path().join(name), content).unwrap();
        let done = convert(folder.path(), &[name]);
        let err = text(&done.stderr);
        assert!(done.status.success(), "{name}: {err}");
        assert!(
            err.starts_with(&format!("note: {name}: taken for a file of {kind}\n")),
            "{err}"
        );
        fs::write(folder.path().join("ours"), &done.stdout).unwrap();
        let checked = call(folder.path(), Path::new(REDLINE), &[part, "ours", check]);
        assert!(
            checked.status.success(),
            "{name}: {}{}",
            text(&checked.stderr),
            text(&done.stdout)
        );
    }
    let done = convert(folder.path(), &["redis", "r.conf", "--strict"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(
        text(&done.stderr).starts_with("lost: r.conf:2: io-threads 4: "),
        "{}",
        text(&done.stderr)
    );
    assert!(text(&done.stdout).contains("\n# io-threads 4\nmaxmemory 1gb\n"));
}

#[test]
fn of_a_faulty_file_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    fs::write(place("tabs.yml"), "a:\n\tlisten: h:1\n\tservers:\n").unwrap();
    fs::write(
        place("latin1.yml"),
        b"a:\n  listen: h:1\n  servers:\n  - \xe9:1:1\n",
    )
    .unwrap();
    fs::write(place("twice.yml"), format!("{NUTCRACKER}  hash: md5\n")).unwrap();
    fs::write(place("unknown.conf"), "port 1\nprot 2\n").unwrap();
    fs::File::create(place("large.conf"))
        .unwrap()
        .set_len(100 << 20)
        .unwrap();
    for (name, said) in [
        ("tabs.yml", "tabs.yml:2: "),
        ("latin1.yml", "latin1.yml:4: not UTF-8"),
        ("twice.yml", "twice.yml:10: hash stands on line 3 as well"),
        ("unknown.conf", "unknown.conf:2: "),
        ("large.conf", "large.conf: larger than 16 MiB"),
        ("none.conf", "none.conf: No such file"),
    ] {
        let done = convert(folder.path(), &[name]);
        let err = text(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{name}: {err}");
        assert!(done.stdout.is_empty(), "{name}");
        assert!(
            err.contains(&format!("redline convert: {said}")),
            "{name}: {err}"
        );
    }
    for (args, said) in [
        (
            &["nutcraker", "tabs.yml"][..],
            "did you mean \"nutcracker\"?",
        ),
        (&[], "one file"),
        (&["--nope", "tabs.yml"], "--nope: no such option"),
        (&["memtier", "tabs.yml"], "memtier_benchmark has no file"),
        (&["--", "ls"], "begins with memtier_benchmark"),
        (&["predixy", "--", "x"], "no command line"),
    ] {
        let done = convert(folder.path(), args);
        assert_eq!(done.status.code(), Some(1), "{args:?}");
        assert!(
            text(&done.stderr).contains(said),
            "{args:?}: {}",
            text(&done.stderr)
        );
    }
}

#[test]
fn a_command_line_becomes_lines_of_the_bench() {
    let folder = tempfile::tempdir().unwrap();
    for names in [
        &["--", "memtier_benchmark"][..],
        &["memtier", "--"],
        &["memtier", "--", "memtier_benchmark"],
    ] {
        let options = ["--ratio", "0:1", "-n", "5", "-o", "a b"];
        let done = convert(folder.path(), &[names, &options].concat());
        assert!(done.status.success(), "{}", text(&done.stderr));
        assert_eq!(
            text(&done.stdout),
            "redline bench run --command 'GET memtier-{uniform:0-10000000}' -t 4 -c 200 -n 1000 > 'a b'\n"
        );
    }
}

/// The command lines of the pages on which benchmarks of Redis and Tair were published; XXXX stands where a page has left
/// something out.
const PUBLISHED: &[&str] = &[
    "redis-benchmark -q -n 100000",
    "redis-benchmark -t set,lpush -n 100000 -q",
    "redis-benchmark -n 100000 -q script load \"redis.call('set','foo','bar')\"",
    "redis-benchmark -t set -r 100000 -n 1000000",
    "redis-benchmark -n 1000000 -t set,get -P 16 -q",
    "./redis-benchmark -r 1000000 -n 2000000 -t get,set,lpush,lpop -P 16 -q",
    "./redis-benchmark -r 1000000 -n 2000000 -t get,set,lpush,lpop -q",
    "numactl -C 6 ./redis-benchmark -q -n 100000 -s /tmp/redis.sock -d 256",
    "numactl -C 6 ./redis-benchmark -q -n 100000 -d 256",
    "redis-benchmark -h XXXX -p 7200 -t set -r 3000 -n 10000000",
    "redis-benchmark -h XXXX -p 7600 -t get -r 3000 -n 200000000 -P 20",
    "./src/redis-benchmark -h XXXX -p 6379 -a user:password -n 3000000 -r 10000000 -c 256 -t set -d 64 --threads 16",
    "./src/redis-benchmark -h XXXX -p 6379 -a user:password -n 3000000 -r 30000000 -c 256 --threads 16 -d 16 -t mset",
    "./src/redis-benchmark -h XXXX -p 6379 -a user:password -n 3000000 -r 30000000 -c 256 --threads 16 -t zadd",
];

#[test]
fn the_lines_of_published_pages_are_converted() {
    let folder = tempfile::tempdir().unwrap();
    for line in PUBLISHED {
        let script = format!("exec \"$0\" convert -- {line}");
        let done = call(
            folder.path(),
            Path::new("/bin/sh"),
            &["-c", &script, REDLINE],
        );
        let out = text(&done.stdout);
        assert!(done.status.success(), "{line}: {}", text(&done.stderr));
        assert!(!out.is_empty());
        for line in out.lines() {
            assert!(line.starts_with("redline bench run --command "), "{line}");
        }
    }
}

#[test]
fn a_link_named_nutcracker_takes_its_options() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("nutcracker");
    symlink(REDLINE, &link).unwrap();
    fs::write(folder.path().join("n.yml"), NUTCRACKER).unwrap();
    for args in [
        &["-t", "-c", "n.yml"][..],
        &["--test-conf", "--conf-file=n.yml", "-v", "7", "-m512"],
        &["-cn.yml", "-t", "-o", "x", "--stats-port", "3"],
    ] {
        let done = call(folder.path(), &link, args);
        assert!(done.status.success(), "{args:?}: {}", text(&done.stderr));
        assert_eq!(text(&done.stdout), "The configuration is valid.\n");
    }
    for (args, said) in [
        (&["-t"][..], "conf/nutcracker.yml: No such file"),
        (
            &["-d", "-c", "n.yml"],
            "nutcracker: -d: it stays in the foreground",
        ),
        (&["-p", "x"], "nutcracker: -p: no pid file"),
        (&["-x"], "nutcracker: -x: no such option"),
        (&["-c"], "nutcracker: -c: its value is missing"),
    ] {
        let done = call(folder.path(), &link, args);
        assert_eq!(done.status.code(), Some(1), "{args:?}");
        assert!(
            text(&done.stderr).contains(said),
            "{args:?}: {}",
            text(&done.stderr)
        );
    }
}
