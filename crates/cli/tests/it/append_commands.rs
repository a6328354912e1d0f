//! Bases of the append-only file as commands (`aof-use-rdb-preamble no`): what they tell, and that all data is back.

use std::{fs, path::Path};

use crate::append::{APPENDING, digest, encoded, killed, names, rewrite, set, start};
use crate::running::{Client, Running, folder_with};

const LARGE_BYTES: usize = 100_000;

/// Values of every type and encoding.
fn fill(client: &mut Client) {
    let script = "for i = 1, 200 do
        redis.call('rpush', 'list', i, ('x'):rep(i))
        redis.call('hset', 'hash', 'f' .. i, i)
        redis.call('zadd', 'zset', i / 3, 'm' .. i)
        redis.call('sadd', 'set', 'm' .. i)
        redis.call('xadd', 'stream', i .. '-1', 'f', i, 'g', '')
        end
        redis.call('set', 'large', ('0123456789'):rep(10000))
        redis.call('set', '', 'the empty key')
        redis.call('set', 'bytes\\0\\r\\n', '\\255\\0\\r\\n')";
    client.call_words(&["EVAL", script, "0"]);
    // So large that a snapshot takes them in pieces.
    let script = "for i = 1, 3000 do
        redis.call('RPUSH', 'large:list', i)
        redis.call('SADD', 'large:set', 'm' .. i)
        redis.call('HSET', 'large:hash', 'f' .. i, i)
        redis.call('ZADD', 'large:zset', i, 'm' .. i)
        redis.call('XADD', 'large:stream', i .. '-1', 'f', i)
    end";
    client.call_words(&["EVAL", script, "0"]);
    let library = "#!lua name=lib\nredis.register_function('f', function() return 'from lib' end)";
    client.call_words(&["FUNCTION", "LOAD", library]);
    for line in [
        "SET int -17 PXAT 99999999999000",
        "RPUSH short a 1 -1 300000",
        "SADD ints 1 -20000 3000000000",
        "SADD words a b 3",
        "HSET small a 1 b 2",
        "HSETEX timed PXAT 9999999999000 FIELDS 2 a 1 b 2",
        "HSET timed c 3",
        "HPEXPIREAT hash 9999999998000 FIELDS 2 f1 f200",
        "ZADD floats 1.5 a -inf b +inf c 3e-9 d 0.1 e",
        "PFADD hll a b c",
        "VADD vectors VALUES 3 1 2 3 e",
        "EXSET exstring value FLAGS 7 ABS 9",
        "EXHSET exhash a 1 ABS 300 PXAT 99999999999000",
        "EXHSET exhash b 2",
        "EXZADD exzset 1#2#3 a 1#2.5#-inf b",
        "XGROUP CREATE stream g 5-1",
        "XGROUP CREATECONSUMER stream g idle",
        "XREADGROUP GROUP g alice COUNT 3 STREAMS stream >",
        "XREADGROUP GROUP g alice COUNT 3 STREAMS stream 0",
        "XACK stream g 6-1",
        "XDEL stream 200-1",
        "XADD none 9-9 f v",
        "XDEL none 9-9",
        "XGROUP CREATE only-group g $ MKSTREAM",
        "PEXPIREAT list 99999999999000",
        "SELECT 9",
        "SET nine 9",
        "SELECT 0",
    ] {
        let reply = client.call(line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
    }
}

/// Returns what the digest does not tell.
fn beside_the_digest(running: &Running) -> String {
    let lines = [
        "FUNCTION LIST WITHCODE",
        "XPENDING stream g",
        "XINFO GROUPS stream",
        "XINFO STREAM none",
        "XINFO STREAM only-group",
        "XINFO STREAM stream",
        "PEXPIRETIME list",
        "HPEXPIRETIME timed FIELDS 3 a b c",
        "INFO keyspace",
    ];
    let mut client = running.connect();
    let mut all = String::new();
    for line in lines {
        let reply = client.call(line);
        // How a stream is laid out is no data.
        let reply = match reply.split_once(" last-generated-id ") {
            Some((_, rest)) => rest.to_owned(),
            None => reply,
        };
        let cut = [",avg_ttl"];
        let part = cut
            .iter()
            .fold(&reply[..], |text, end| text.split(end).next().unwrap());
        all += part;
        all.push('\n');
    }
    all
}

fn base(folder: &Path) -> String {
    let names = names(folder);
    let base = names.iter().find(|name| name.contains(".base."));
    let base = base.expect("there is a base");
    assert!(base.ends_with(".base.aof"), "{base}");
    let bytes = fs::read(folder.join("appendonlydir").join(base)).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_base_of_commands_holds_all_data() {
    let more =
        format!("{APPENDING}aof-use-rdb-preamble no\naof-timestamp-enabled yes\nthreads 2\n");
    let running = start(folder_with(&more));
    fill(&mut running.connect());
    rewrite(&running);
    let (data, beside) = (digest(&running), beside_the_digest(&running));
    let text = base(running.folder.path());
    assert!(text.starts_with("#TS:"), "{}", &text[..20]);
    let numbers = |from: u32| (from..from + 32).map(|number| number.to_string());
    // 64 elements: a number and an x each.
    let words: Vec<String> = ["RPUSH".to_owned(), "list".to_owned()]
        .into_iter()
        .chain(numbers(33).flat_map(|number| {
            let long = "x".repeat(number.parse().unwrap());
            [number, long]
        }))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert!(text.contains(&encoded(&words)), "64 elements a command");
    for words in [
        &["SET", "int", "-17"][..],
        &["PEXPIREAT", "int", "99999999999000"],
        &["PEXPIREAT", "list", "99999999999000"],
        &["HPEXPIREAT", "hash", "9999999998000", "FIELDS", "1", "f200"],
        &["XADD", "stream", "2-1", "f", "2", "g", ""],
        &["XADD", "none", "MAXLEN", "0", "0-1", "x", "y"],
        &[
            "XSETID",
            "none",
            "9-9",
            "ENTRIESADDED",
            "1",
            "MAXDELETEDID",
            "9-9",
        ],
        &["XGROUP", "CREATECONSUMER", "stream", "g", "idle"],
        &[
            "XGROUP",
            "CREATE",
            "only-group",
            "g",
            "0-0",
            "ENTRIESREAD",
            "-1",
        ],
    ] {
        assert!(text.contains(&encoded(words)), "{words:?}");
    }
    assert!(text.contains(
        "\r\nXCLAIM\r\n$6\r\nstream\r\n$1\r\ng\r\n$5\r\nalice\r\n$1\r\n0\r\n$3\r\n7-1\r\n"
    ));
    assert!(!text.contains("6-1\r\n$4\r\nTIME"), "it is acknowledged");
    assert_eq!(
        text.matches(&"0123456789".repeat(LARGE_BYTES / 10)).count(),
        1
    );
    let running = start(killed(running).1);
    assert_eq!(digest(&running), data);
    assert_eq!(beside_the_digest(&running), beside);
    let pending = running.call("XPENDING stream g 7-1 7-1 1");
    let words: Vec<&str> = pending.split([' ', ':']).collect();
    assert_eq!((words[0], words[5]), ("7-1", "2"), "{pending}");
    // The time is that of the delivery.
    assert!(words[3].parse::<u64>().unwrap() < 600_000, "{pending}");
    assert_eq!(running.call("FCALL f 0"), "from lib");
    // Back to a snapshot, and to commands, while it runs.
    set(&running, "aof-use-rdb-preamble", "yes");
    rewrite(&running);
    let there = names(running.folder.path());
    assert!(
        there.iter().any(|name| name.ends_with(".base.rdb")),
        "{there:?}"
    );
    set(&running, "aof-use-rdb-preamble", "no");
    // The file is turned off: the base alone.
    set(&running, "appendonly", "no");
    rewrite(&running);
    let there = base(running.folder.path());
    assert!(there.contains(&encoded(&["SET", "nine", "9"])));
    let running = start(killed(running).1);
    assert_eq!(digest(&running), data);
}
