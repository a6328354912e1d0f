//! redis-benchmark's command line as runs: one for each of its tests.

use redline_net::Address;
use redline_net::tls::Peer;

use super::{Runs, literal, template_word};
use crate::redis_benchmark::{Output, Parsed, parse};

/// The text that stands for a random number.
const RANDOM: &str = "__rand_int__";

/// Returns the runs of its arguments.
pub fn convert(args: &[String]) -> Result<Runs, String> {
    let Parsed { options, tests } = parse(args)?;
    let mut runs = Runs::default();
    if options.idle {
        return Err("redis-benchmark: -I: idle connections have no counterpart in a run".into());
    }
    if options.stdin_argument {
        return Err("redis-benchmark: -x: an argument from standard input has no counterpart in a run; write it into --command".into());
    }
    let mut common: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| common.extend(words.iter().map(|word| (*word).to_owned()));
    if options.embedded {
        add(&["--embedded"]);
    }
    match &options.server {
        Address::Unix(path) => add(&["-S", &path.display().to_string()]),
        Address::Tcp { host, port } => {
            if host != "127.0.0.1" {
                add(&["-s", host]);
            }
            if *port != 6379 {
                add(&["-p", &port.to_string()]);
            }
        }
    }
    let text = |bytes: &Option<Vec<u8>>| {
        let bytes = bytes.as_ref();
        bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    if let Some(password) = text(&options.password) {
        add(&["-a", &password]);
        if let Some(user) = text(&options.user) {
            add(&["--user", &user]);
        }
    }
    if options.db != 0 {
        add(&["--db", &options.db.to_string()]);
    }
    if options.resp3 {
        add(&["--resp3"]);
    }
    if options.cluster {
        add(&["--cluster"]);
    }
    if options.tls {
        add(&["--tls"]);
        let tls = &options.tls_options;
        for (option, value) in [
            ("--cacert", tls.common.ca_cert_file.as_deref()),
            ("--cert", tls.common.cert_file.as_deref()),
            ("--key", tls.common.key_file.as_deref()),
            ("--sni", tls.server_name.as_deref()),
        ] {
            if let Some(value) = value {
                add(&[option, value]);
            }
        }
        if tls.peer == Peer::Anyone {
            add(&["--insecure"]);
        }
        if tls.common.ca_cert_dir.is_some() {
            runs.lost("--cacertdir", "a run takes a file, --cacert");
        }
        if !(tls.common.ciphers.is_empty() && tls.common.ciphersuites.is_empty()) {
            runs.lost(
                "--tls-ciphers, --tls-ciphersuites",
                "a run takes all that are supported",
            );
        }
    }
    add(&["-c", &options.clients.to_string()]);
    if options.threads > 1 {
        add(&["-t", &options.threads.to_string()]);
    }
    if options.pipeline > 1 {
        add(&["-P", &options.pipeline.to_string()]);
    }
    add(&["-n", &options.requests.to_string()]);
    if let Some(seed) = options.seed {
        add(&["--seed", &seed.to_string()]);
    }
    if !options.keep_alive {
        add(&["--reconnect-after", &options.pipeline.to_string()]);
    }
    if options.forever {
        runs.lost("-l", "a run ends; --duration says when");
    }
    if options.tracking {
        runs.lost("--enable-tracking", "no counterpart in a run");
    }
    if options.output != Output::Normal {
        runs.same(
            "-q, --csv",
            "the report of a run is another; --json FILE is for programs",
        );
    }
    for words in tests {
        let command: Vec<String> = words
            .iter()
            .map(|word| word_of(word, options.keyspace))
            .collect();
        let has_value = command.iter().any(|word| word == "{value}");
        let mut run = vec!["--command".to_owned(), command.join(" ")];
        if has_value {
            let size = options.payload_bytes.to_string();
            run.extend(["-d", &size, "--value-content", "fixed"].map(str::to_owned));
        }
        run.extend(common.iter().cloned());
        runs.runs.push(run);
    }
    Ok(runs)
}

/// Returns a word of a test as a template has it. None: the payload.
fn word_of(word: &Option<String>, keyspace: Option<u64>) -> String {
    let Some(word) = word else {
        return "{value}".to_owned();
    };
    let word = literal(word);
    template_word(&match keyspace {
        Some(count) => word.replace(RANDOM, &format!("{{uniform:{count}|12}}")),
        None => word,
    })
}
