//! The Tcl test suite of Redis 7.0, unit by unit, against Debian's redis-server and against ours. The suite is fetched
//! and unpacked below `target/`; nothing of it is kept here. Every test that Debian's server passes and ours does not
//! has to be named in docs/compatibility.md, unless Redis 8.2.3, the reference, does not pass it either.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::compat::Setting;
use crate::install::{self, REDIS_VERSION};
use crate::run::{Failure, captured, ended_group, watched, workspace};

use Mode::{External, Own, Tls};

/// Time-out of a unit.
const UNIT_TIMEOUT: Duration = Duration::from_secs(600);
const HELP_TIMEOUT: Duration = Duration::from_secs(20);
/// Largest number of runs of a unit with an unexpected failure: some tests depend on time, and the machine may be busy.
const ATTEMPTS_MAX: usize = 2;
/// The suite's range of free ports.
const PORTS: [&str; 4] = ["--baseport", "23111", "--portcount", "4000"];
/// Tests that would prevent the rest of their unit: one in which Redis 8.2.3 would wait for ever, and one after which the suite
/// would read replies of earlier tests (see docs/compatibility.md).
const SKIPPED: [&str; 2] = [
    "Tracking only occurs for scripts when a command calls a read-only command",
    "Tracking invalidation message of eviction keys should be before response",
];
/// Directives of Redis for tests alone, which are dropped where ours does not know them.
const TEST_DIRECTIVES: [&str; 2] = ["loading-process-events-interval-bytes", "use-exit-on-panic"];
/// Script that the suite starts as redis-server for ours. The tests of busy scripts wait until their requests are refused,
/// as in Redis.
const STARTER: &str = "#!/bin/bash
if [ -f \"$1\" ]; then
    sed -i -E '/^({dropped}) /d' \"$1\"
    printf '\\nbusy-reply-scope all\\n' >> \"$1\"
fi
exec -a \"$0\" '{redline}' \"$@\"
";
/// All but those of cluster and modules, and but integration/logging, which wants reports of crashes.
const UNITS: [(&str, Mode); 79] = [
    ("unit/type/string", External),
    ("unit/type/incr", External),
    ("unit/type/list", External),
    ("unit/type/list-2", External),
    ("unit/type/list-3", External),
    ("unit/type/set", External),
    ("unit/type/zset", External),
    ("unit/type/hash", External),
    ("unit/type/stream", External),
    ("unit/type/stream-cgroups", External),
    ("unit/expire", External),
    ("unit/scan", External),
    ("unit/keyspace", External),
    ("unit/info-command", External),
    ("unit/multi", External),
    ("unit/pubsub", External),
    ("unit/scripting", External),
    ("unit/functions", External),
    ("unit/tracking", External),
    ("unit/introspection", External),
    ("unit/introspection-2", External),
    ("unit/bitops", External),
    ("unit/bitfield", External),
    ("unit/geo", External),
    ("unit/hyperloglog", External),
    ("unit/sort", External),
    ("unit/dump", External),
    ("unit/slowlog", External),
    ("unit/latency-monitor", External),
    ("unit/pause", External),
    ("unit/protocol", External),
    ("unit/querybuf", External),
    ("unit/lazyfree", External),
    ("unit/other", External),
    ("unit/other", Own),
    ("unit/introspection", Own),
    ("unit/acl", Own),
    ("unit/acl-v2", Own),
    ("unit/auth", Own),
    ("unit/quit", Own),
    ("unit/info", Own),
    ("unit/limits", Own),
    ("unit/networking", Own),
    ("unit/pubsubshard", Own),
    ("unit/maxmemory", Own),
    ("unit/obuf-limits", Own),
    ("unit/client-eviction", Own),
    ("unit/replybufsize", Own),
    ("unit/pendingquerybuf", Own),
    ("unit/memefficiency", Own),
    ("unit/oom-score-adj", Own),
    ("unit/printver", Own),
    ("unit/shutdown", Own),
    ("unit/wait", Own),
    ("unit/aofrw", Own),
    ("integration/aof", Own),
    ("integration/aof-multi-part", Own),
    ("integration/rdb", Own),
    ("integration/corrupt-dump", Own),
    ("integration/corrupt-dump-fuzzer", Own),
    ("integration/convert-zipmap-hash-on-load", Own),
    ("integration/convert-ziplist-hash-on-load", Own),
    ("integration/convert-ziplist-zset-on-load", Own),
    ("integration/replication", Own),
    ("integration/replication-2", Own),
    ("integration/replication-3", Own),
    ("integration/replication-4", Own),
    ("integration/replication-psync", Own),
    ("integration/replication-buffer", Own),
    ("integration/block-repl", Own),
    ("integration/psync2", Own),
    ("integration/psync2-reg", Own),
    ("integration/psync2-pingoff", Own),
    ("integration/psync2-master-restart", Own),
    ("integration/failover", Own),
    ("integration/shutdown", Own),
    ("integration/redis-cli", Own),
    ("integration/redis-benchmark", Own),
    ("unit/tls", Tls),
];

/// The way in which a unit runs. The suite starts the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Without the tests that the suite skips for a server that it has not started itself.
    External,
    /// Whole.
    Own,
    /// Whole, over TLS.
    Tls,
}

/// The outcome of a unit.
#[derive(Debug, Default)]
struct Outcome {
    /// Number of passes of each test's name. Some names occur more than once.
    passed: BTreeMap<String, usize>,
    /// Number of tests that did not pass.
    failed: usize,
    /// Their names, if the suite prints them.
    failed_names: BTreeSet<String>,
    /// The unit came to its end.
    ended: bool,
}

/// Runs the units, prints the table, and fails with the tests that are not explained.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let redis = install::redis_server_with_tls()?;
    let suite = Suite {
        folder: install::redis_suite()?,
    };
    suite.prepare()?;
    let explained = Explained::read()?;
    let mut unexplained = Vec::new();
    let (mut theirs, mut ours, mut neither, mut units) = (0, 0, 0, 0);
    println!(
        "  unit                          mode     Debian's passed   ours   nor does Redis 8.2.3"
    );
    for (unit, mode) in UNITS {
        if !setting.wants_unit(unit) {
            continue;
        }
        let debian = suite.run(&redis, unit, mode, "debian")?;
        if !debian.ended && debian.passed() == 0 {
            unexplained.push(format!("  {unit}: no test ran, with Debian's server"));
            continue;
        }
        let row = suite.run_ours(setting, unit, mode, &debian, &explained)?;
        let (passed_there, passed_here) = (debian.passed(), debian.passed_also_by(&row.redline));
        let state = |outcome: &Outcome| if outcome.ended { "" } else { " (broken off)" };
        println!(
            "  {unit:<30}{:<9}{passed_there:>4} of {}{}   {passed_here:>4}{}   {}",
            mode.name(),
            passed_there + debian.failed,
            state(&debian),
            state(&row.redline),
            row.neither
        );
        theirs += passed_there;
        ours += passed_here;
        neither += row.neither;
        units += 1;
        unexplained.extend(
            row.missing
                .iter()
                .map(|test| format!("  | {unit} | {test} |")),
        );
        let healed = explained.of(unit).filter(|test| row.redline.passes(test));
        healed.for_each(|test| println!("  passes, strike it from the list: {unit}: {test}"));
    }
    if units == 0 {
        return Err("none of these --units is one of the Tcl suite".to_owned());
    }
    let percent = |of: usize| 100.0 * ours as f64 / f64::from(of.max(1) as u32);
    let summary = format!(
        "{ours} of the {theirs} tests of {units} units that Debian's server passes, {:.1} %; of those that Redis \
{REDIS_VERSION} passes as well, {:.1} %",
        percent(theirs),
        percent(theirs - neither)
    );
    if unexplained.is_empty() {
        return Ok(summary);
    }
    Err(format!(
        "{summary}\nnot passed, and not in docs/compatibility.md (output: {}):\n{}",
        suite.logs().display(),
        unexplained.join("\n")
    ))
}

/// The outcome of a unit with our server.
struct Row {
    redline: Outcome,
    /// Number of tests that Debian's server passes, ours does not, and the real Redis 8.2.3 does not either.
    neither: usize,
    /// Tests that our server should have passed.
    missing: Vec<String>,
}

struct Suite {
    /// The folder of Redis's source.
    folder: PathBuf,
}

impl Suite {
    fn logs(&self) -> PathBuf {
        install::folder().join("tcl").join("logs")
    }

    /// Puts tools and certificates where the suite looks for them.
    fn prepare(&self) -> Result<(), Failure> {
        let error = |error: std::io::Error| format!("{}: {error}", self.folder.display());
        fs::create_dir_all(self.logs()).map_err(error)?;
        for tool in ["redis-cli", "redis-benchmark"] {
            self.link(tool, &install::program(tool)?)?;
        }
        if !self.folder.join("tests/tls/ca.crt").exists() {
            let mut certificates = Command::new("./utils/gen-test-certs.sh");
            certificates
                .current_dir(&self.folder)
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null());
            watched(certificates)?;
        }
        Ok(())
    }

    fn link(&self, name: &str, program: &Path) -> Result<(), Failure> {
        let link = self.remove(name)?;
        symlink(program, &link).map_err(|error| format!("{}: {error}", link.display()))
    }

    fn write_starter(&self, program: &Path) -> Result<(), Failure> {
        let starter = self.remove("redis-server")?;
        let mut help = Command::new(program);
        help.args(["server", "--help"]);
        let help = captured(help, b"", HELP_TIMEOUT)?;
        let is_unknown = |name: &&str| !help.contains(&format!("--{name} "));
        let dropped: Vec<&str> = TEST_DIRECTIVES.into_iter().filter(is_unknown).collect();
        let text = STARTER
            .replace("{redline}", &program.display().to_string())
            .replace("{dropped}", &dropped.join("|"));
        let write = || {
            fs::write(&starter, text)?;
            fs::set_permissions(&starter, fs::Permissions::from_mode(0o755))
        };
        write().map_err(|error| format!("{}: {error}", starter.display()))
    }

    /// Removes what has the name that the suite uses.
    fn remove(&self, name: &str) -> Result<PathBuf, Failure> {
        let link = self.folder.join("src").join(name);
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link).map_err(|error| format!("{}: {error}", link.display()))?;
        }
        Ok(link)
    }

    /// Returns our outcome. If tests are missing, the real Redis 8.2.3 runs, too: tests that it does not pass changed
    /// between the versions. (It is built without TLS.)
    fn run_ours(
        &self,
        setting: &Setting,
        unit: &str,
        mode: Mode,
        debian: &Outcome,
        explained: &Explained,
    ) -> Result<Row, Failure> {
        let mut reference = None;
        let mut attempt = 1;
        loop {
            let redline = self.run(&setting.redline, unit, mode, "redline")?;
            let lacking: Vec<String> = debian.not_passed_by(&redline).collect();
            if reference.is_none() && !lacking.is_empty() && mode != Tls {
                reference = Some(self.run(&setting.redis, unit, mode, REDIS_VERSION)?);
            }
            let neither = |test: &str| {
                let reference = reference.as_ref();
                reference.is_some_and(|it| it.failed_names.contains(test))
            };
            let known = |test: &&String| !explained.holds(unit, test) && !neither(test);
            let missing: Vec<String> = lacking.iter().filter(known).cloned().collect();
            if missing.is_empty() || attempt == ATTEMPTS_MAX {
                let lacks = |test: &&String| neither(test);
                let times = |test: &String| debian.times(test) - redline.times(test);
                let neither = lacking.iter().filter(lacks).map(times).sum();
                return Ok(Row {
                    redline,
                    neither,
                    missing,
                });
            }
            attempt += 1;
        }
    }

    fn run(&self, program: &Path, unit: &str, mode: Mode, name: &str) -> Result<Outcome, Failure> {
        let mut runtest = Command::new("./runtest");
        runtest
            .current_dir(&self.folder)
            .env("TERM", "dumb")
            .args([
                "--single",
                unit,
                "--clients",
                "1",
                "--durable",
                "--ignore-encoding",
            ])
            .args(PORTS)
            .args(SKIPPED.iter().flat_map(|test| ["--skiptest", test]));
        // Each server is the checker of its files, too, by the name that it is called by.
        for checker in ["redis-check-aof", "redis-check-rdb"] {
            self.link(checker, program)?;
        }
        if name == "redline" {
            self.write_starter(program)?;
        } else {
            self.link("redis-server", program)?;
        }
        match mode {
            External => {
                runtest.args(["--tags", "-external:skip"]);
            }
            Own => {}
            Tls => {
                runtest.arg("--tls");
            }
        }
        // The suite's exit code is a failure if a test failed, and it may have to be killed: its output counts.
        let (said, _) = ended_group(runtest, UNIT_TIMEOUT)?;
        let log = format!("{}-{}-{name}.txt", unit.replace('/', "-"), mode.name());
        let log = self.logs().join(log);
        fs::write(&log, &said).map_err(|error| format!("{}: {error}", log.display()))?;
        Ok(Outcome::read(&String::from_utf8_lossy(&said)))
    }
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            External => "external",
            Own => "own",
            Tls => "tls",
        }
    }
}

impl Outcome {
    /// Parses the suite's output.
    fn read(said: &str) -> Outcome {
        let mut outcome = Outcome::default();
        for line in said.lines() {
            if let Some(test) = line.strip_prefix("[ok]: ") {
                // The time follows it.
                let name = test.rsplit_once(" (").map_or(test, |(name, _)| name);
                *outcome.passed.entry(name.to_owned()).or_default() += 1;
            } else if line.starts_with("[err]: ") || line.starts_with("[exception]: ") {
                outcome.failed += 1;
                let name = line.strip_prefix("[err]: ").unwrap_or_default();
                if let Some((name, _)) = name.rsplit_once(" in tests/") {
                    outcome.failed_names.insert(name.to_owned());
                }
            } else if line.starts_with('[') && line.contains(" done]: ") {
                outcome.ended = true;
            }
        }
        outcome
    }

    fn passed(&self) -> usize {
        self.passed.values().sum()
    }

    fn passes(&self, test: &str) -> bool {
        self.passed.contains_key(test)
    }

    /// Returns the number of our passes that the other passes, too.
    fn passed_also_by(&self, other: &Outcome) -> usize {
        let both = |(test, &times): (&String, &usize)| times.min(other.times(test));
        self.passed.iter().map(both).sum()
    }

    fn not_passed_by(&self, other: &Outcome) -> impl Iterator<Item = String> {
        let fewer = |(test, times): &(&String, &usize)| **times > other.times(test);
        self.passed
            .iter()
            .filter(fewer)
            .map(|(test, _)| test.clone())
    }

    fn times(&self, test: &str) -> usize {
        self.passed.get(test).copied().unwrap_or(0)
    }
}

/// The tests with a reason in docs/compatibility.md: rows of `| unit | test | reason |`, where the suite of a client is
/// a unit. A `*` at the end of a test matches any rest.
pub struct Explained(Vec<(String, String)>);

impl Explained {
    /// Reads the page.
    pub fn read() -> Result<Explained, Failure> {
        let path = workspace().join("docs/compatibility.md");
        let page =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Explained::parse(&page))
    }

    fn parse(page: &str) -> Explained {
        const BEGINNINGS: [&str; 7] = [
            "| unit/",
            "| integration/",
            "| redis-py",
            "| tair-py",
            "| go-redis",
            "| phpredis",
            "| hiredis",
        ];
        // A bar in a test's name is written as `\|`.
        let rows = page
            .lines()
            .filter(|line| BEGINNINGS.iter().any(|unit| line.starts_with(unit)));
        let cells = rows.map(|row| row.replace("\\|", "\0"));
        let named = cells.filter_map(|row| {
            let mut cells = row.split('|').map(|cell| cell.trim().replace('\0', "|"));
            let (unit, test) = (cells.nth(1)?, cells.next()?);
            Some((unit, test))
        });
        Explained(named.collect())
    }

    /// Returns the tests written for `unit`, in any mode.
    fn of(&self, unit: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(of, _)| of == unit)
            .map(|(_, test)| test.as_str())
    }

    /// Returns true if this test has a reason.
    pub fn holds(&self, unit: &str, test: &str) -> bool {
        self.of(unit).any(|known| match known.strip_suffix('*') {
            Some(beginning) => test.starts_with(beginning),
            None => known == test,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "[ready]: 12\n[ok]: a (0 ms)\n[ok]: b (c) (3 ms)\n[ok]: a (1 ms)\n[err]: d in tests/unit/x.tcl\nwhy\n[1/1 done]: unit/x (0 seconds)\n*** [err]: d in tests/unit/x.tcl\n";

    #[test]
    fn outcomes_are_read_from_what_the_suite_prints() {
        let all = Outcome::read(SAID);
        assert!(all.ended);
        assert_eq!((all.passed(), all.failed), (3, 1));
        assert_eq!(Vec::from_iter(&all.failed_names), ["d"]);
        let less = Outcome::read("[ok]: a (0 ms)\n[exception]: no\n");
        assert!(!less.ended);
        assert_eq!((less.passed(), less.failed), (1, 1));
        assert_eq!(all.passed_also_by(&less), 1);
        assert_eq!(all.not_passed_by(&less).collect::<Vec<_>>(), ["a", "b (c)"]);
    }

    #[test]
    fn explanations_are_rows_of_a_table() {
        let page = "| unit | test | reason |\n|---|---|---|\n| unit/x | a \\| b | c |\n| unit/y | d | e |\n";
        let explained = Explained::parse(page);
        assert!(explained.holds("unit/x", "a | b"));
        assert!(!explained.holds("unit/x", "d"));
        assert!(Explained::parse("| unit/z | * | r |").holds("unit/z", "any"));
        assert_eq!(explained.of("unit/y").collect::<Vec<_>>(), ["d"]);
    }
}
