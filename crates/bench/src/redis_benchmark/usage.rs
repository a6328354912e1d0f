//! The text of `--help`, of a wrong option and of `--version`.

use crate::redis_benchmark::compat::Compat;

/// Returns the text that `--version` prints. Scripts take the second word.
pub fn version(compat: Compat) -> String {
    format!(
        "redis-benchmark {} (redline {})\n",
        compat.version(),
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns the whole help text, for a program called `program`.
pub fn text(program: &str) -> String {
    // Called as redis-benchmark, there are none.
    let sub_commands = match super::is_called(program) {
        true => String::new(),
        false => SUB_COMMANDS.replace("PROGRAM", program) + "\n",
    };
    format!(
        "Usage: {program} [OPTIONS] [COMMAND ARGS...]\n\n{sub_commands}{OPTIONS}\n{}",
        EXAMPLES.replace("PROGRAM", program)
    )
}

/// Returns the names of all options.
pub fn options() -> impl Iterator<Item = &'static str> {
    let lines = OPTIONS.lines().filter_map(|line| line.strip_prefix(' '));
    let names = lines.filter_map(|line| line.split(' ').next());
    names.filter(|name| name.starts_with('-'))
}

/// An option, as the help text has it.
pub struct Described {
    /// Its name, with dashes.
    pub name: &'static str,
    /// The name of its value, if it has one.
    pub value: Option<&'static str>,
    /// Its description.
    pub text: String,
}

/// Returns all options.
pub fn described() -> Vec<Described> {
    let mut all: Vec<Described> = Vec::new();
    for line in OPTIONS.lines() {
        let begins = line.strip_prefix(" -").is_some();
        if !begins {
            if let (Some(last), true) = (all.last_mut(), line.starts_with("  ")) {
                last.text = format!("{} {}", last.text, line.trim()).trim().to_owned();
            }
            continue;
        }
        let line = line.trim_start();
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let value = rest.strip_prefix('<').and_then(|rest| rest.split_once('>'));
        let (value, text) = match value {
            Some((value, text)) => (Some(value), text),
            None => (None, rest),
        };
        all.push(Described {
            name,
            value,
            text: text.trim().to_owned(),
        });
    }
    all
}

const SUB_COMMANDS: &str = "\
With options of their own (PROGRAM run --help, and so on):
 PROGRAM run       Load a server with a mix of commands, in a closed or an open loop
 PROGRAM compare   Compare two servers, or two sets of options
 PROGRAM failover  Measure a failover: downtime and lost writes
 PROGRAM report    Make an HTML page with charts of their JSON results
";

const OPTIONS: &str = "\
Options:
 -h <hostname>      Host name or address of the server (default 127.0.0.1)
 -p <port>          Port of the server (default 6379)
 -s <socket>        Unix socket of the server, instead of host and port
 -a <password>      Password (AUTH)
 --user <username>  ACL user (AUTH username password). Needs -a.
 -u <uri>           URI of the server, instead of the options above:
                    redis://user:password@host:port/db, or rediss:// for TLS
 -c <clients>       Connections, over all threads (default 50)
 -n <requests>      Requests per test (default 100000)
 -d <size>          Bytes of a value (default 3)
 --dbnum <db>       Database to SELECT (default 0)
 -3                 Speak RESP3 (HELLO 3).
 --threads <num>    Load threads (default: one; with --cluster one for each master).
 --cluster          The server is a node of a Redis Cluster. Connections are dealt
                    out among its masters, and {tag} in a key of a command of your
                    own becomes a hash tag that the master owns; the suite's keys
                    have one.
 --enable-tracking  Ask for key tracking (CLIENT TRACKING on) on each connection.
 -k <boolean>       1 keeps connections, 0 reconnects after each batch (default 1)
 -r <keyspacelen>   Replace every __rand_int__ by a random number of 12 digits
                    below keyspacelen, afresh in each request. The tests of
                    the suite use it in keys, members and scores. Without it,
                    each test works on one key.
 -P <numreq>        Requests per batch: all are sent, then all replies awaited
                    (default 1, no pipelining)
 -q                 One line per test
 --precision        Significant digits of the latency histogram, 3 or 4 (default 3)
 --csv              Comma-separated output
 -l                 Repeat until interrupted
 -t <tests>         Only these tests, a comma-separated list of their names in
                    lower case. Ignored with a command of your own.
 -I                 Idle mode: open the connections, and hold them.
 -x                 Take the last argument of the command from standard input.
 --seed <num>       Seed of the random numbers, for runs that can be repeated.
 -e                 Accepted without effect: errors always end the run.
 --tls              Connect with TLS.
 --sni <host>       Server name indication (SNI) to send.
 --cacert <file>    CA certificates for verifying the server's certificate.
 --cacertdir <dir>  The same, as a directory (default: those of the system).
 --insecure         Do not verify the server's certificate (insecure).
 --cert <file>      Client certificate.
 --key <file>       Private key of --cert.
 --tls-ciphers <list>
                    Ciphers of TLS 1.2, as an OpenSSL cipher list.
 --tls-ciphersuites <list>
                    Ciphers of TLS 1.3 by name, with colons between.
 --help             This text.
 --version          Version.

Beyond redis-benchmark:
 --embedded         Start the built-in server in this process and load that.
 --compat <name>    Suite, titles and report of redis-2.4, redis-2.6, redis-5,
                    redis-7.0 (default) or redis-8.
";

const EXAMPLES: &str = "\
Examples:

 The whole suite against 127.0.0.1:6379:
   $ PROGRAM

 The same against the built-in server, one line a test:
   $ PROGRAM --embedded -q

 Fill a server with about a million keys:
   $ PROGRAM -t set -n 1000000 -r 100000000

 Two tests with 16 requests in flight per connection, as CSV:
   $ PROGRAM -t set,get -P 16 --csv

 A command of your own:
   $ PROGRAM -r 10000 -n 10000 lpush mylist __rand_int__
";

#[cfg(test)]
mod tests {
    use super::*;

    /// The first column of redis-benchmark 7.0.15's help.
    const GOLDEN: &str = include_str!("../../tests/golden/help_options.txt");

    #[test]
    fn every_option_of_redis_benchmark_is_in_the_help_in_its_order() {
        let help = text("redis-benchmark");
        let mut rest = help.as_str();
        for option in GOLDEN.lines() {
            let line = format!("\n {option}");
            let at = rest
                .find(&line)
                .unwrap_or_else(|| panic!("{option} is missing or out of order"));
            rest = &rest[at + line.len()..];
            assert!(rest.starts_with([' ', '\n']), "{option}");
        }
    }

    #[test]
    fn version_starts_as_redis_benchmark_words_it() {
        assert!(version(Compat::Redis70).starts_with("redis-benchmark 7.0.15 "));
    }
}
