//! Client libraries' own test suites: those of redis-py, go-redis, redigo, radix, phpredis and hiredis, and that of
//! miniredis, which holds a model of Redis against a server: against a real Redis 8.2.3 and against us. Those about types
//! that Redis and Tair have in modules run against us alone: redis-py's, and tair-py's. The suites are fetched with the clients' sources and unpacked below `target/`; nothing of them is kept here.
//! Tests that fail with our server and not with Redis have to be named in docs/compatibility.md, with the reason.
//!
//! Suites expect their server at port 6379. Each runs with its server in its own network namespace, where that port is
//! always free, and nothing else can be reached by mistake.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::compat::Setting;
use crate::install::{self, REDIS_VERSION};
use crate::run::{Failure, ended_group};
use crate::tcl::Explained;

/// Time-out of a suite.
const SUITE_TIMEOUT: Duration = Duration::from_secs(1200);
/// Largest number of runs of a suite with an unexpected failure: some tests depend on time, and the machine may be busy.
const ATTEMPTS_MAX: usize = 2;
/// Words for pytest that all suites of Python begin with.
const PYTEST_WORDS: &[&str] = &[
    "-m",
    "pytest",
    "-q",
    "-rfE",
    "-p",
    "no:cacheprovider",
    "--timeout",
    "30",
];
/// Of redis-py: the tests that a single server without modules and certificates can pass.
const REDIS_PY_WORDS: &[&str] = &[
    "-m",
    "not onlycluster and not ssl and not replica and not redismod",
    "--ignore=tests/test_cluster.py",
    "--ignore=tests/test_asyncio/test_cluster.py",
    "--ignore=tests/test_sentinel.py",
    "--ignore=tests/test_asyncio/test_sentinel.py",
];
/// Of redis-py: the tests of the modules whose types are there.
const REDIS_PY_MODULES_WORDS: &[&str] = &[
    "-m",
    "not onlycluster",
    "--redis-mod-url",
    "redis://localhost:6379/0",
    "tests/test_json.py",
    "tests/test_bloom.py",
    "tests/test_timeseries.py",
    "tests/test_asyncio/test_json.py",
    "tests/test_asyncio/test_bloom.py",
    "tests/test_asyncio/test_timeseries.py",
];
/// Of tair-py: all tests of one server.
const TAIR_PY_WORDS: &[&str] = &["-k", "not cluster and not test_deprecated", "tests"];
/// Of go-redis: all but the excluded tests.
const GO_REDIS_WORDS: &[&str] = &[
    "-test.run",
    "TestGinkgoSuite",
    "-test.timeout",
    "20m",
    "-ginkgo.v",
    "-ginkgo.no-color",
    "-ginkgo.seed=1",
    "-ginkgo.skip",
    GO_REDIS_LEFT_OUT,
];
/// Words for the tests of a Go package that all of them begin with.
const GO_TEST_WORDS: &[&str] = &["-test.v", "-test.timeout", "10m"];
/// Of phpredis: the class that is tested, and no remarks of PHP between the results.
const PHP_REDIS_WORDS: &[&str] = &[
    "-d",
    "error_reporting=0",
    "-d",
    "display_errors=0",
    "TestRedis.php",
    "--class",
    "Redis",
    "--host",
    "127.0.0.1",
];
/// Of go-redis, the same: names of excluded tests, as an expression.
const GO_REDIS_LEFT_OUT: &str = "Cluster|cluster|[sS]entinel|Failover|Ring|RediSearch|FT\\.|Probabilistic|Timeseries|JSON|UniversalClient";
/// Excluded tests of miniredis: a server that is a cluster, and one with TLS, which the real one here cannot be.
const MINIREDIS_LEFT_OUT: &[&str] = &["-test.skip", "TestCluster|TestServerTLS"];
/// Starts a server, waits until it answers, runs a suite, ends the server.
const IN_A_NETWORK_OF_ITS_OWN: &str = r#"
ip link set lo up || exit 90
cd "$SERVER_FOLDER" || exit 91
"$SERVER" $SERVER_WORD --port 6379 --unixsocket "$UNIX_SOCKET" --save "" --appendonly no --enable-debug-command yes >log 2>&1 &
server=$!
tries=0
until redis-cli ping >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 200 ] || { cat log; exit 92; }
    sleep 0.1
done
cd "$SUITE_FOLDER" || exit 93
PATH="$SERVER_FOLDER/bin:$PATH" "$@"
kill $server
wait $server
rm -f "$UNIX_SOCKET"
exit 0
"#;

/// A suite that can be fetched.
struct Row {
    name: &'static str,
    /// Fetches it; returns its program and its folder.
    fetch: fn() -> Result<(PathBuf, PathBuf), Failure>,
    /// Arguments of the program.
    words: Vec<String>,
    /// The real server would need modules, so that ours has to pass all that is not explained.
    is_ours_alone: bool,
    /// Parses its output.
    read: fn(&str) -> Outcome,
}

/// An executable suite.
struct Suite {
    folder: PathBuf,
    program: PathBuf,
    row: Row,
}

impl Deref for Suite {
    type Target = Row;

    fn deref(&self) -> &Row {
        &self.row
    }
}

/// The outcome of a suite.
#[derive(Debug, Default)]
struct Outcome {
    passed: usize,
    failed: BTreeSet<String>,
}

/// Runs them all.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let explained = Explained::read()?;
    let mut summaries = Vec::new();
    let mut unexplained = Vec::new();
    install::namespaces()?;
    for suite in suites(setting)? {
        let theirs = match suite.is_ours_alone {
            true => Outcome::default(),
            false => suite.run(&setting.redis, "", REDIS_VERSION)?,
        };
        let (ours, mut only_ours) = suite.run_ours(setting, &theirs, &explained)?;
        let seen = ours.passed + ours.failed.len();
        if seen < theirs.passed {
            return Err(format!(
                "{}: broke off with ours after {seen} tests; Redis passes {}",
                suite.name, theirs.passed
            ));
        }
        let (passed, failed) = (ours.passed, ours.failed.len());
        summaries.push(match suite.is_ours_alone {
            true => format!("{}: ours passes {passed} and fails {failed}", suite.name),
            false => format!(
                "{}: Redis {REDIS_VERSION} passes {} and fails {}, ours {passed} and {failed}",
                suite.name,
                theirs.passed,
                theirs.failed.len(),
            ),
        });
        println!("  {}", summaries[summaries.len() - 1]);
        for test in &only_ours {
            println!("  only with ours: {test}");
        }
        only_ours.retain(|test| !explained.holds(suite.name, test));
        let rows = only_ours.iter();
        unexplained.extend(rows.map(|test| format!("  | {} | {test} |", suite.name)));
    }
    if summaries.is_empty() {
        return Err("none of these --units is a client's suite".to_owned());
    }
    let summary = summaries.join("; ");
    if unexplained.is_empty() {
        return Ok(summary);
    }
    Err(format!(
        "{summary}\nfail with ours alone, and are not in docs/compatibility.md (output: {}):\n{}",
        folder().display(),
        unexplained.join("\n")
    ))
}

fn folder() -> PathBuf {
    install::folder().join("suites")
}

/// Returns the path of the server's unix socket: its namespace does not cover files.
fn unix_socket() -> String {
    let name = format!("redline-suites-{}.sock", std::process::id());
    std::env::temp_dir().join(name).display().to_string()
}

/// Returns all suites.
fn rows() -> Vec<Row> {
    let redis_py = |name, words, protocol| {
        let words = [PYTEST_WORDS, words, &["--protocol", protocol]];
        Row::new(name, install::redis_py_suite, &words, Outcome::of_pytest)
    };
    let go_test =
        |name, fetch, words| Row::new(name, fetch, &[GO_TEST_WORDS, words], Outcome::of_go_test);
    vec![
        redis_py("redis-py-resp2", REDIS_PY_WORDS, "2"),
        redis_py("redis-py-resp3", REDIS_PY_WORDS, "3"),
        redis_py("redis-py-modules-resp2", REDIS_PY_MODULES_WORDS, "2").ours_alone(),
        redis_py("redis-py-modules-resp3", REDIS_PY_MODULES_WORDS, "3").ours_alone(),
        Row::new(
            "tair-py",
            install::tair_py_suite,
            &[PYTEST_WORDS, TAIR_PY_WORDS],
            Outcome::of_pytest,
        )
        .ours_alone(),
        Row::new(
            "go-redis",
            install::go_redis_suite,
            &[GO_REDIS_WORDS],
            Outcome::of_ginkgo,
        ),
        go_test("redigo", install::redigo_suite, &[]),
        go_test("radix", install::radix_suite, &[]),
        go_test("miniredis", install::miniredis_suite, MINIREDIS_LEFT_OUT),
        Row::new(
            "phpredis",
            install::php_redis_suite,
            &[PHP_REDIS_WORDS],
            Outcome::of_phpredis,
        ),
        Row::new(
            "hiredis",
            install::hiredis_suite,
            &[&["-s", &unix_socket()]],
            Outcome::of_hiredis,
        ),
    ]
}

/// Returns the selected suites; the others are not fetched either.
fn suites(setting: &Setting) -> Result<Vec<Suite>, Failure> {
    let rows = rows().into_iter();
    let wanted = rows.filter(|row| setting.wants_unit(row.name));
    wanted.map(Suite::of).collect()
}

impl Row {
    fn new(
        name: &'static str,
        fetch: fn() -> Result<(PathBuf, PathBuf), Failure>,
        words: &[&[&str]],
        read: fn(&str) -> Outcome,
    ) -> Row {
        Row {
            name,
            fetch,
            words: words.concat().into_iter().map(str::to_owned).collect(),
            is_ours_alone: false,
            read,
        }
    }

    fn ours_alone(self) -> Row {
        Row {
            is_ours_alone: true,
            ..self
        }
    }
}

impl Suite {
    /// Fetches it.
    fn of(row: Row) -> Result<Suite, Failure> {
        let (program, folder) = (row.fetch)()?;
        Ok(Suite {
            folder,
            program,
            row,
        })
    }

    /// Returns our outcome, and the tests that fail only with our server.
    fn run_ours(
        &self,
        setting: &Setting,
        theirs: &Outcome,
        explained: &Explained,
    ) -> Result<(Outcome, Vec<String>), Failure> {
        let mut attempt = 1;
        loop {
            let ours = self.run(&setting.redline, "server", "redline")?;
            let only_ours: Vec<String> = ours.failed.difference(&theirs.failed).cloned().collect();
            let known = |test: &String| explained.holds(self.name, test);
            if only_ours.iter().all(known) || attempt == ATTEMPTS_MAX {
                return Ok((ours, only_ours));
            }
            attempt += 1;
        }
    }

    fn run(&self, server: &Path, word: &str, label: &str) -> Result<Outcome, Failure> {
        let home = folder().join(format!("{}-{label}", self.name));
        let fail = |error: std::io::Error| format!("{}: {error}", home.display());
        if home.exists() {
            fs::remove_dir_all(&home).map_err(fail)?;
        }
        fs::create_dir_all(home.join("bin")).map_err(fail)?;
        // For suites that start servers themselves.
        symlink(server, home.join("bin/redis-server")).map_err(fail)?;
        let mut command = Command::new("unshare");
        command
            .args(["--map-root-user", "--net", "sh", "-c"])
            .args([IN_A_NETWORK_OF_ITS_OWN, "sh"])
            .arg(&self.program)
            .args(&self.words)
            .env("SERVER", server)
            .env("SERVER_WORD", word)
            .env("SERVER_FOLDER", &home)
            .env("UNIX_SOCKET", unix_socket())
            .env("SUITE_FOLDER", &self.folder)
            // go-redis: only the one server.
            .env("RE_CLUSTER", "true")
            // miniredis: enables the tests.
            .env("INT", "1")
            .env("REDIS_VERSION", "8.2");
        let (said, in_time) = ended_group(command, SUITE_TIMEOUT)?;
        let output = home.join("output");
        fs::write(&output, &said).map_err(fail)?;
        let outcome = (self.read)(&String::from_utf8_lossy(&said));
        if !in_time || outcome.passed == 0 {
            return Err(format!(
                "{} did not come to its end with {label}: {}",
                self.name,
                output.display()
            ));
        }
        Ok(outcome)
    }
}

impl Outcome {
    /// Parses lines `FAILED test - why`, and at the end `1 failed, 2 passed in 3s`.
    fn of_pytest(said: &str) -> Outcome {
        let mut outcome = Outcome::default();
        for line in said.lines() {
            let failed = line
                .strip_prefix("FAILED ")
                .or_else(|| line.strip_prefix("ERROR "));
            if let Some(test) = failed.filter(|test| test.contains("::")) {
                let name = test.split(" - ").next().unwrap_or(test);
                outcome.failed.insert(name.to_owned());
            }
            if let Some(passed) = number_before(line, " passed") {
                outcome.passed = passed;
            }
        }
        outcome
    }

    /// Parses `[PASSED]` for each test; lines `Assertion failed: place (test)` after all.
    fn of_phpredis(said: &str) -> Outcome {
        let failed = said
            .lines()
            .filter(|line| line.contains("Assertion failed"))
            .filter_map(|line| line.rsplit_once('(')?.1.strip_suffix(')'));
        Outcome {
            passed: said.matches("PASSED").count(),
            failed: failed.map(str::to_owned).collect(),
        }
    }

    /// Parses lines `#1 test: PASSED`, with colours.
    fn of_hiredis(said: &str) -> Outcome {
        let failed = said.lines().filter(|line| line.contains("FAILED"));
        Outcome {
            passed: said.matches("PASSED").count(),
            failed: failed.map(str::to_owned).collect(),
        }
    }

    /// Parses lines `--- PASS: test (0.00s)`, those of subtests indented.
    fn of_go_test(said: &str) -> Outcome {
        let mut outcome = Outcome::default();
        for line in said.lines().map(str::trim_start) {
            let name = |rest: &str| rest.split(' ').next().unwrap_or(rest).to_owned();
            if let Some(rest) = line.strip_prefix("--- FAIL: ") {
                outcome.failed.insert(name(rest));
            }
            outcome.passed += usize::from(line.starts_with("--- PASS: "));
        }
        outcome
    }

    /// Parses lines `[FAIL] test`, and at the end `FAIL! -- 2 Passed | 1 Failed | …`.
    fn of_ginkgo(said: &str) -> Outcome {
        let mut outcome = Outcome::default();
        for line in said.lines() {
            let line = line.trim();
            let failed = ["[FAIL] ", "[PANICKED!] ", "[TIMEDOUT] "]
                .iter()
                .find_map(|sign| line.strip_prefix(sign));
            if let Some(test) = failed {
                outcome.failed.insert(test.to_owned());
            }
            if let Some(passed) = number_before(line, " Passed |") {
                outcome.passed = passed;
            }
        }
        outcome
    }
}

/// Returns the number right before `word`.
fn number_before(line: &str, word: &str) -> Option<usize> {
    let (before, _) = line.split_once(word)?;
    before.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_from_what_the_suites_print() {
        let outcome = Outcome::of_pytest(
            "..F.\nFAILED tests/a.py::test_x[1] - Error: no\nERROR tests/b.py::test_y\nERROR: usage\n1 failed, 3 passed, 1 error in 2.0s\n",
        );
        assert_eq!(outcome.passed, 3);
        let names = ["tests/a.py::test_x[1]", "tests/b.py::test_y"];
        assert_eq!(Vec::from_iter(&outcome.failed), names);
        let outcome = Outcome::of_go_test(
            "=== RUN   TestA\n--- FAIL: TestA (0.00s)\n    --- PASS: TestA/b (0.00s)\n    --- FAIL: TestA/c (0.00s)\n--- SKIP: TestB (0.00s)\nFAIL\n",
        );
        assert_eq!(outcome.passed, 1);
        assert_eq!(Vec::from_iter(&outcome.failed), ["TestA", "TestA/c"]);
        let outcome = Outcome::of_ginkgo(
            "  [FAIL] Commands server [It] should Info\nRan 3 of 4 Specs\nFAIL! -- 2 Passed | 1 Failed | 0 Pending | 1 Skipped\n",
        );
        assert_eq!(outcome.passed, 2);
        assert_eq!(
            Vec::from_iter(&outcome.failed),
            ["Commands server [It] should Info"]
        );
    }
}
