//! Command lines of other load generators, and the runs that they become.

use super::*;

fn words(line: &str) -> Vec<String> {
    tool_of_line(line).unwrap().unwrap().1
}

fn lines(line: &str) -> Vec<String> {
    let (tool, words) = tool_of_line(line).unwrap().unwrap();
    let runs = convert(tool, &words).unwrap_or_else(|why| panic!("{line}: {why}"));
    runs.runs.iter().map(|run| line_of(run)).collect()
}

#[test]
fn memtier_lines_become_runs() {
    for (theirs, ours) in [
        (
            "memtier_benchmark",
            "--command 'SET memtier-{uniform:0-10000000} {value}' --command 'GET memtier-{uniform:0-10000000}' \
             --ratio 1:10 --value-content fixed -t 4 -c 200 -n 2000000",
        ),
        (
            "memtier_benchmark -s h -p 7000 -a u:p -t 2 -c 10 --test-time=5 -d 100 -R --key-maximum 9 --key-pattern S:G",
            "-s h -p 7000 --command 'SET memtier-{seq:0-9} {value}' --command 'GET memtier-{gauss:4.5,1.5,0-9}' \
             --ratio 1:10 -d 100 -t 2 -c 20 --duration 5 --user u -a p",
        ),
        (
            "/usr/bin/memtier_benchmark --command=\"HSET __key__ f __data__\" --command-ratio 3 --command-key-pattern=P \
             --command=\"HGET __key__ f\" --key-prefix h{ --pipeline 8 -n 5 -c1 -t1",
            "--command 'HSET h{{{seq:0-10000000} f {value}' --command 'HGET h{{{uniform:0-10000000} f' --ratio 3:1 \
             --value-content fixed -t 1 -c 1 -P 8 --window -n 5",
        ),
        (
            "memtier_benchmark --ratio 0:1 --multi-key-get 2 --rate-limiting 3 --pipeline 2 -c 5 -t 2 --cluster-mode --test-time 1",
            "--cluster --command 'MGET memtier-{uniform:0-10000000} memtier-{uniform:0-10000000}' -t 2 -c 10 -P 2 --rps 30 --duration 1",
        ),
        (
            "memtier_benchmark -n allkeys --key-pattern P:P --ratio 1:0 --key-minimum 1 --key-maximum 100 --expiry-range 5-9",
            "--command 'SETEX memtier-{seq:1-100} {uniform:5-9} {value}' --value-content fixed -t 4 -c 200 -n 100",
        ),
        (
            "memtier_benchmark -P memcache_text -p 11211 --expiry-range 60 --ratio 1:0 -n 1",
            "--protocol memcache_text -p 11211 --command 'SET memtier-{uniform:0-10000000} {value} 60' --value-content fixed -t 4 -c 200 -n 200",
        ),
        (
            "memtier_benchmark --wait-ratio 1:2 --ratio 1:1 --wait-timeout 5 -n 1",
            "--command 'SET memtier-{uniform:0-10000000} {value}' --command 'GET memtier-{uniform:0-10000000}' \
             --command 'WAIT 1 5' --ratio 1:1:2 --value-content fixed -t 4 -c 200 -n 200",
        ),
        (
            "memtier_benchmark -6 --data-offset 4 --data-size-range 10-20 --key-zipf-exp 1.20 --key-pattern Z:Z -n 1 --miss-rate 5",
            "-s ::1 --command 'SETRANGE memtier-{zipf:1.2,0-10000000} 4 {value}' \
             --command 'GETRANGE memtier-{zipf:1.2,0-10000000} 4 23' --ratio 1:10 -d 10-20 --value-content fixed \
             -t 4 -c 200 -n 200 --hit-rate-min 0.95",
        ),
    ] {
        assert_eq!(
            lines(theirs),
            [format!("redline bench run {ours}")],
            "{theirs}"
        );
    }
}

#[test]
fn memtier_lines_that_ask_for_what_is_not_there_are_errors_with_the_option() {
    for (line, said) in [
        (
            "memtier_benchmark --data-import f",
            "memtier_benchmark: --data-import: not there",
        ),
        (
            "memtier_benchmark --clients-start 1",
            "--clients-start: not connections but rates",
        ),
        (
            "memtier_benchmark -P memcache_binary",
            "--protocol: redis, resp2",
        ),
        ("memtier_benchmark --nope", "--nope: no such option"),
        ("memtier_benchmark --requets 3", "did you mean --requests?"),
        ("memtier_benchmark --data-size-", "several options begin so"),
        ("memtier_benchmark -n", "-n: its value is missing"),
        ("memtier_benchmark --tls=1", "--tls takes no value"),
        ("memtier_benchmark x", "x: only options"),
        (
            "memtier_benchmark -c x",
            "--clients: a whole number, not \"x\"",
        ),
        ("memtier_benchmark --ratio 1", "--ratio: two numbers"),
        ("memtier_benchmark --ratio 0:0", "--ratio: nothing is left"),
        (
            "memtier_benchmark --key-pattern X:R",
            "--key-pattern: R, S, P, G or Z",
        ),
        (
            "memtier_benchmark --key-minimum 5 --key-maximum 4",
            "--key-minimum is above",
        ),
        (
            "memtier_benchmark --command-ratio 1",
            "stands behind its --command",
        ),
        (
            "memtier_benchmark --command \"GET '\" -n 1",
            "memtier_benchmark: --command",
        ),
        ("memtier_benchmark --test-time -3", "--duration"),
        ("memtier_benchmark -c 99999999", "memtier_benchmark: "),
    ] {
        let why = convert(Tool::Memtier, &words(line)).unwrap_err();
        assert!(why.contains(said), "{line}: {why}");
        assert!(why.starts_with("memtier_benchmark: "), "{why}");
    }
}

#[test]
fn a_line_of_redis_benchmark_becomes_a_run_for_each_test() {
    assert_eq!(
        lines("$ ./redis-benchmark -r 1000000 -n 2000000 -t get,set -P 16 -q"),
        [
            "redline bench run --command 'SET key:{uniform:1000000|12} {value}' -d 3 --value-content fixed -c 50 -P 16 -n 2000000",
            "redline bench run --command 'GET key:{uniform:1000000|12}' -c 50 -P 16 -n 2000000",
        ]
    );
    assert_eq!(
        lines("redis-benchmark -n 10 -q script load \"redis.call('set','foo','b ar')\""),
        [
            "redline bench run --command 'script load \"redis.call('\\''set'\\'','\\''foo'\\'','\\''b ar'\\'')\"' -c 50 -n 10"
        ]
    );
    assert_eq!(lines("redis-benchmark -q -n 100").len(), 20);
    let why = convert(Tool::RedisBenchmark, &words("redis-benchmark -t nope")).unwrap_err();
    assert!(why.contains("nope"), "{why}");
    assert!(convert(Tool::RedisBenchmark, &words("redis-benchmark -I")).is_err());
}

#[test]
fn words_of_a_shell_and_of_a_template_stay_one_word() {
    for word in ["a b", "it's", "", "a;b", "x\\y", "\"", "{", "$HOME", "a\nb"] {
        let template = template_word(&literal(word));
        let words = split_words(template.as_bytes()).unwrap();
        assert_eq!(words, [literal(word).into_bytes()], "{word}");
    }
    assert_eq!(quoted("it's"), "'it'\\''s'");
    assert_eq!(quoted("a:1"), "a:1");
}
