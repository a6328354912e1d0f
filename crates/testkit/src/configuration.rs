//! The configuration: every parameter of the real Redis, read from both servers, set to valid and invalid values on
//! both, and written to a file by both. Every reply must be equal, and every file.
//!
//! Must not know the meaning of parameters.

use std::{collections::BTreeMap, fs, io, path::Path};

use redline_resp::reply_decoder::Value;

use crate::{client::Client, process::ServerProcess};

/// Values that each parameter is set to.
const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "2",
    "10",
    "100",
    "101",
    "1000",
    "16384",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "yes",
    "NO",
    "maybe",
    "1mb",
    "1GB",
    "1k",
    "1b",
    "1kb ",
    "kb",
    "10%",
    "-5%",
    "101%",
    "0x10",
    "1.5",
    "1e1",
    "+5",
    "-0",
    "007",
    " 5",
    "99.123456789012",
    "inf",
    "a b",
    "a.b-c",
    "a_b",
    "777",
    "888",
    "default",
    "local",
    "always",
    "everysec",
    "noeviction",
    "allkeys-lru",
    "KEA",
    "AKE",
    "debug",
    "nothing",
    "LOCAL7",
    "auto",
    "ip",
    "swapdb",
    "nosave force",
    "nosave  force",
    "now",
    "1 2",
    "1 2 3",
    "0  200 800",
    "-1 -2 -3",
    "-2001 0 0",
    "50 99",
    "101 2",
    "normal 0 0 0",
    "normal 1 2",
    "pubsub 1mb 1 1 normal 0 0 0",
    "foo 1 2 3",
    "replica 1 2 3",
    "slave 1k 2 -1",
    "normal 0  0 0",
    "C",
    "POSIX",
    "{title}",
    "{nosuch}",
    "a{{b}",
    "\0x",
];

/// Parameters that cannot be set here: they depend on the machine, or end one of the servers.
const LEFT_ALONE: &[&str] = &[
    // A promise, and not the silence of a bus.
    "cluster-node-timeout",
    "port",
    "bind",
    "dir",
    "logfile",
    "tls-port",
    // The real one ends without TLS.
    "tls-cluster",
    "tls-replication",
    // Errors name a value of Valkey's, too.
    "repl-diskless-load",
    "maxclients",
    // Later connections would have to know it.
    "requirepass",
];

/// Calls of CONFIG SET with several parameters: all change or none.
const SEVERAL: &[&[&str]] = &[
    &["hz", "20", "timeout", "9"],
    &["hz", "21", "timeout", "x"],
    &["timeout", "x", "hz", "22"],
    &["hz", "23", "hz", "24"],
    &["hz", "23", "HZ", "24"],
    &["hz", "25", "nosuch", "1"],
    &["nosuch", "1", "daemonize", "yes"],
    &["daemonize", "yes", "nosuch", "1"],
    &["timeout", "x", "daemonize", "yes"],
    &["hz", "26", "dir", "/"],
    &["hz", "26", "daemonize", "yes"],
    &["hz", "27", "timeout"],
    &["hz"],
    &[],
    &[
        "hash-max-listpack-entries",
        "5",
        "hash-max-ziplist-entries",
        "6",
    ],
    &["maxmemory", "100mb", "maxmemory-policy", "nosuch"],
    &[
        "maxmemory-policy",
        "allkeys-lfu",
        "maxmemory",
        "100mb",
        "maxmemory-samples",
        "0",
    ],
    &["rename-command", "a"],
    &["user", "x"],
    &["port", "65536"],
    &["maxclients", "0"],
    &["maxclients", "4294967296"],
    &["maxclients", "x"],
];

/// Compares every parameter; returns the number of calls, or the differences.
pub fn run(ours: &ServerProcess, theirs: &ServerProcess) -> Result<usize, String> {
    let mut pair = Pair::connect(ours, theirs)?;
    let (own, real) = (all(&mut pair.ours)?, all(&mut pair.theirs)?);
    let mut differences = Vec::new();
    let mut calls = 0;
    for (name, default) in &real {
        match own.get(name) {
            None => differences.push(format!("{name} is missing")),
            Some(_) if LEFT_ALONE.contains(&name.as_str()) => {}
            Some(ours) if ours != default => {
                differences.push(format!("{name} is {ours:?}, theirs {default:?}"));
            }
            Some(_) => {
                differences.extend(pair.set_all(name, default)?);
                calls += 3 * VALUES.len();
            }
        }
    }
    for set in SEVERAL {
        let shown = ["hz", "timeout", "maxmemory*", "hash-max-*", "maxclients"];
        differences.extend(pair.set(set, &shown)?);
        calls += 2;
    }
    outcome(calls, &differences)
}

/// Compares with a real Valkey the parameters that Redis does not have; returns the number of calls, or the differences.
pub fn run_beyond(
    ours: &ServerProcess,
    valkey: &ServerProcess,
    redis: &ServerProcess,
) -> Result<usize, String> {
    let known = all(&mut Pair::connect(ours, redis)?.theirs)?;
    let mut pair = Pair::connect(ours, valkey)?;
    let (own, real) = (all(&mut pair.ours)?, all(&mut pair.theirs)?);
    let mut differences = Vec::new();
    let mut calls = 0;
    for (name, default) in real.iter().filter(|(name, _)| !known.contains_key(*name)) {
        match own.get(name) {
            None => differences.push(format!("{name} is missing")),
            Some(_) if OTHERWISE_THAN_VALKEY.contains(&name.as_str()) => {}
            Some(ours) if ours != default => {
                differences.push(format!("{name} is {ours:?}, theirs {default:?}"));
            }
            Some(_) => {
                differences.extend(pair.set_all(name, default)?);
                calls += 3 * VALUES.len();
            }
        }
    }
    outcome(calls, &differences)
}

fn outcome(calls: usize, differences: &[String]) -> Result<usize, String> {
    match differences.len() {
        0 => Ok(calls),
        count => Err(format!("{}\n{count} differences", differences.join("\n"))),
    }
}

/// Returns a configuration file with every parameter of that server, except those for its addresses and paths.
pub fn file_of(server: &ServerProcess) -> Result<String, String> {
    let address = server.address();
    let mut client = Client::connect(address).map_err(|error| format!("{address}: {error}"))?;
    let parameters = all(&mut client)?;
    let lines = parameters
        .iter()
        .filter(|(name, value)| {
            let is_place = ["port", "bind", "dir", "logfile", "pidfile"].contains(&name.as_str());
            // In a file this one has two arguments or is absent.
            let is_nobody = ["replicaof", "slaveof"].contains(&name.as_str()) && value.is_empty();
            !is_place && !is_nobody
        })
        .map(|(name, value)| format!("{name} \"{value}\"\n"));
    Ok(lines.collect())
}

/// Parameters of Valkey whose default or reply differs here; docs/differences.md has the reasons.
const OTHERWISE_THAN_VALKEY: &[&str] = &[
    "extended-redis-compatibility",
    "log-format",
    // Needed by parts that do not exist; a Valkey built without RDMA refuses its parameters in other words.
    "import-mode",
    "rdma-bind",
    "rdma-port",
];

/// Returns true for deliberate differences; docs/differences.md has the reasons.
fn explained(set: &[&str; 2]) -> bool {
    let [name, value] = set;
    match *name {
        // Parameters of a part that does not exist are refused.
        "save" | "appendonly" => true,
        "shutdown-on-sigint" | "shutdown-on-sigterm" => value.contains("save"),
        // Beyond 64 bits Valkey takes it for -1.
        "slot-migration-max-failover-repl-bytes" => value.starts_with("184467"),
        // Theirs are the locales of the machine.
        "locale-collate" => value.bytes().all(|byte| byte.is_ascii_lowercase()),
        _ => false,
    }
}

type Parameters = BTreeMap<String, String>;

fn all(client: &mut Client) -> Result<Parameters, String> {
    let reply = client
        .call(&["CONFIG", "GET", "*"])
        .map_err(|error| error.to_string())?;
    let Value::Array(words) = reply else {
        return Err(format!("CONFIG GET: {reply:?}"));
    };
    let text =
        |value: &Value| String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned();
    Ok(words
        .chunks(2)
        .map(|pair| (text(&pair[0]), text(&pair[1])))
        .collect())
}

/// A connection to each server.
struct Pair {
    ours: Client,
    theirs: Client,
}

impl Pair {
    fn connect(ours: &ServerProcess, theirs: &ServerProcess) -> Result<Pair, String> {
        let connect = |to: &ServerProcess| {
            let address = to.address();
            Client::connect(address).map_err(|error| format!("{address}: {error}"))
        };
        let mut pair = Pair {
            ours: connect(ours)?,
            theirs: connect(theirs)?,
        };
        // Limits on clients are among the settings.
        pair.both(&["CLIENT", "NO-EVICT", "ON"])?;
        Ok(pair)
    }

    fn both(&mut self, call: &[&str]) -> Result<(Value, Value), String> {
        let failed = |who: &str, error: io::Error| format!("{call:?}, {who}: {error}");
        let ours = self
            .ours
            .call(call)
            .map_err(|error| failed("ours", error))?;
        let theirs = self
            .theirs
            .call(call)
            .map_err(|error| failed("theirs", error))?;
        Ok((ours, theirs))
    }

    /// Sets a parameter to every value; returns the differences.
    fn set_all(&mut self, name: &str, default: &str) -> Result<Vec<String>, String> {
        let mut differences = Vec::new();
        for value in VALUES {
            let set = [name, *value];
            differences.extend(self.set(&set, &[name])?.filter(|_| !explained(&set)));
            // Both begin the next one with its default.
            self.both(&["CONFIG", "SET", name, default])?;
        }
        Ok(differences)
    }

    /// Sets on both, and compares `shown`; returns the difference, if there is one.
    fn set(&mut self, pairs: &[&str], shown: &[&str]) -> Result<Option<String>, String> {
        let replies = self.both(&[&["CONFIG", "SET"], pairs].concat())?;
        let (own, real) = self.both(&[&["CONFIG", "GET"], shown].concat())?;
        // Patterns list in different orders.
        let sorted = |value: Value| match value {
            Value::Array(mut words) => {
                words.sort_by_key(|word| format!("{word:?}"));
                Value::Array(words)
            }
            other => other,
        };
        let values = (sorted(own), sorted(real));
        if replies.0 == replies.1 && values.0 == values.1 {
            return Ok(None);
        }
        Ok(Some(format!(
            "CONFIG SET {pairs:?}\n  ours   {:?} {:?}\n  theirs {:?} {:?}",
            replies.0, values.0, replies.1, values.1
        )))
    }
}

/// A file, and the calls before CONFIG REWRITE.
type Rewriting = (&'static str, &'static [&'static [&'static str]]);

/// Files, with the special feature of each.
const REWRITTEN: &[Rewriting] = &[
    // Comments, indented too, empty lines, a parameter twice.
    (
        "# first\n  # indented\nhz 20\n\n\n\nmaxmemory 1mb\n# again\nHZ 30\ntimeout 7\n",
        &[&[
            "CONFIG",
            "SET",
            "hz",
            "40",
            "timeout",
            "9",
            "maxmemory",
            "2gb",
        ]],
    ),
    // Lines of several words, quoted texts, values that become the default.
    (
        "maxmemory 100\nclient-output-buffer-limit normal 1 2 3\nclient-output-buffer-limit pubsub 4 5 6\n\
         loglevel   \"notice\"\nnotify-keyspace-events KEA\nmasterauth 'a b'\nlatency-tracking-info-percentiles 1 2\n",
        &[
            &[
                "CONFIG",
                "SET",
                "maxmemory",
                "0",
                "client-output-buffer-limit",
                "replica 1kb 2 3",
                "notify-keyspace-events",
                "",
                "loglevel",
                "debug",
            ],
            &[
                "CONFIG",
                "SET",
                "masterauth",
                "x y\"z\u{7}",
                "proto-max-bulk-len",
                "1gb",
                "client-query-buffer-limit",
                "1100000",
                "latency-tracking-info-percentiles",
                "50 60.5",
                "shutdown-on-sigterm",
                "nosave now",
                "maxmemory-clients",
                "10%",
            ],
        ],
    ),
    // Users, older names, other directives, an existing signature.
    (
        "user ann on >p ~* +@all\n# about bob\nuser bob off\nrename-command FLUSHALL \"\"\n\
         hash-max-ziplist-entries 100\nslave-read-only no\ninclude nosuch*.conf\n\
         # Generated by CONFIG REWRITE\ntimeout 5\nlua-time-limit 1000",
        &[
            &["ACL", "SETUSER", "carl", "on", "nopass"],
            &["ACL", "DELUSER", "bob"],
            &[
                "CONFIG",
                "SET",
                "hash-max-listpack-entries",
                "200",
                "timeout",
                "0",
                "busy-reply-threshold",
                "2000",
            ],
        ],
    ),
    // Nothing but additions.
    (
        "",
        &[&[
            "CONFIG",
            "SET",
            "slowlog-max-len",
            "0",
            "slowlog-log-slower-than",
            "-1",
            "active-expire-effort",
            "5",
            "list-max-listpack-size",
            "-1",
            "maxmemory-policy",
            "allkeys-lru",
            "acllog-max-len",
            "7",
            "cluster-announce-ip",
            "1.2.3.4",
            "stream-node-max-bytes",
            "8kb",
            "proc-title-template",
            "{title} x",
            "repl-diskless-load",
            "swapdb",
            "zset-max-listpack-value",
            "99",
        ]],
    ),
];

/// Has both write files, with programs started for each; returns their number, or the first difference.
pub fn rewrite(ours: &Path, theirs: &Path) -> Result<usize, String> {
    for (text, calls) in REWRITTEN {
        let failed = |error: io::Error| format!("{text:?}: {error}");
        // Without this line the default shows, which differs here.
        let text = &format!("save \"\"\n{text}");
        let redline = ServerProcess::redline_of_file(ours, text, &[]).map_err(failed)?;
        let redis = ServerProcess::redis_of_file(theirs, text, &[]).map_err(failed)?;
        let written = |server: &ServerProcess| {
            let mut client = Client::connect(server.address())?;
            for call in *calls {
                let reply = client.call(call)?;
                if reply.is_error() {
                    return Err(io::Error::other(format!("{call:?}: {reply:?}")));
                }
            }
            let mut files = Vec::new();
            // The second time it finds its own additions.
            for _ in 0..2 {
                let reply = client.call(&["CONFIG", "REWRITE"])?;
                if reply.is_error() {
                    return Err(io::Error::other(format!("{reply:?}")));
                }
                files.push(comparable(server)?);
            }
            Ok(files)
        };
        let (own, real) = (
            written(&redline).map_err(failed)?,
            written(&redis).map_err(failed)?,
        );
        if own != real {
            return Err(format!(
                "CONFIG REWRITE of\n{text}\n---- ours\n{}\n---- theirs\n{}",
                own.join("\n--\n"),
                real.join("\n--\n")
            ));
        }
    }
    Ok(REWRITTEN.len())
}

/// Returns the file, without server-specific lines; additions are in one order.
fn comparable(server: &ServerProcess) -> io::Result<String> {
    let text = fs::read_to_string(server.config_file())?;
    let port = server.address().port().to_string();
    let folder = fs::canonicalize(server.directory())?;
    let text = text
        .replace(&port, "PORT")
        .replace(&folder.display().to_string(), "FOLDER");
    let mut lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("threads "))
        .collect();
    let added = lines
        .iter()
        .position(|line| line.starts_with("# Generated"));
    if let Some(added) = added {
        lines[added..].sort_unstable();
    }
    Ok(lines.join("\n"))
}
