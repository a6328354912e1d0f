//! memtier_benchmark's options, and their names here. The table is in docs/bench.md only.

const PAGE: &str = include_str!("../../../../docs/bench.md");
const HEADING: &str = "\n## From memtier_benchmark\n";

/// Returns the table's text for one of memtier_benchmark's options.
pub fn meaning(option: &str) -> Option<String> {
    rows().find_map(|(theirs, ours)| {
        let mut named = in_backticks(theirs).filter_map(|code| code.split(' ').next());
        named
            .any(|name| name == option)
            .then(|| ours.replace('`', ""))
    })
}

/// Returns both columns of each row.
fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    let section = PAGE.split(HEADING).nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    rows.filter_map(|row| row.trim_end_matches(" |").split_once(" | "))
}

fn in_backticks(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::load::arguments::RunArguments;

    /// The options of its help, in order.
    const OPTIONS: &str = "\
-h --host -s --server -p --port -S --unix-socket -4 --ipv4 -6 --ipv6 -P --protocol -a --authenticate -u --uri --tls --cert \
--key --cacert --tls-skip-verify --tls-protocols --sni -x --run-count -D --debug --cluster-mode --transaction --help -v \
--version -o --out-file --json-out-file --client-stats --hdr-file-prefix --show-config --hide-histogram \
--print-percentiles --print-all-runs --realtime-latencies --latency-window --command-stats-breakdown \
--command-miss-tracking --miss-rate-threshold --statsd-host --statsd-port --statsd-prefix --statsd-run-label \
--graphite-port -n --requests --rate-limiting -c --clients -t --threads --test-time --clients-start --clients-step \
--step-duration --ratio --pipeline --reconnect-interval --reconnect-on-error --max-reconnect-attempts \
--reconnect-backoff-factor --retry-on-error --max-retries --retry-backoff-ms --retry-backoff-factor --retry-on \
--max-retry-queue --failed-keys-file --connection-timeout --connection-stage-timeout \
--thread-conn-start-min-jitter-micros --thread-conn-start-max-jitter-micros --multi-key-get --select-db \
--distinct-client-seed --randomize --command --command-ratio --command-key-pattern --monitor-input --monitor-pattern \
--scan-incremental-iteration --scan-incremental-max-iterations -d --data-size --data-offset -R --random-data \
--data-size-range --data-size-list --data-size-pattern --expiry-range --data-import --data-verify --verify-only \
--generate-keys --no-expiry --key-prefix --key-minimum --key-maximum --key-pattern --key-stddev --key-median \
--key-zipf-exp --wait-ratio --num-slaves --wait-timeout";

    #[test]
    fn each_of_its_options_is_in_the_table() {
        let missing = OPTIONS
            .split(' ')
            .filter(|option| meaning(option).is_none());
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
        assert_eq!(meaning("--nothing"), None);
        assert!(meaning("--test-time").unwrap().starts_with("--duration"));
    }

    #[test]
    fn what_the_table_calls_ours_is_there() {
        let help = RunArguments::command().render_long_help().to_string();
        for (_, ours) in rows() {
            let words = in_backticks(ours).flat_map(|code| code.split([' ', ',']));
            for option in words.filter(|word| word.starts_with("--")) {
                let is_there = option == "--version"
                    || help.contains(&format!("{option} "))
                    || help.contains(&format!("{option}\n"));
                assert!(is_there, "{option}");
            }
        }
    }
}
