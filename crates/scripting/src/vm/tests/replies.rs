//! Replies of scripts, and the replies of commands as scripts see them.

use redline_resp::Proto;

use super::Bench;

/// Returns a line of `redis_replies.txt`, where what is not printable is escaped.
fn unescape(line: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next().expect("an escaped byte") {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let mut digit = || char::from(bytes.next().expect("a digit")).to_digit(16);
                (digit().expect("hexadecimal") << 4 | digit().expect("hexadecimal")) as u8
            }
            other => other,
        });
    }
    out
}

/// One script of `redis_replies.txt`.
#[derive(Default)]
struct Recorded {
    source: String,
    resp2: String,
    resp3: Option<String>,
    ours2: Option<String>,
    ours3: Option<String>,
}

/// Returns the scripts and replies in a file of that form:
/// `eval` a script, `2` and `3` Redis's reply in RESP2 and (if it is another) in RESP3, `ours2` and (if it is another)
/// `ours3` our answer instead, `#` the reason.
fn recorded(file: &str) -> Vec<Recorded> {
    let mut all: Vec<Recorded> = Vec::new();
    for line in file.lines() {
        let (kind, text) = line.split_once(' ').expect("a kind and a text");
        let text = text.to_owned();
        if kind == "eval" {
            all.push(Recorded {
                source: text,
                ..Recorded::default()
            });
            continue;
        }
        let last = all.last_mut().expect("a script first");
        match kind {
            "2" => last.resp2 = text,
            "3" => last.resp3 = Some(text),
            "ours2" => last.ours2 = Some(text),
            "ours3" => last.ours3 = Some(text),
            "#" => {}
            other => panic!("no such kind: {other}"),
        }
    }
    all
}

#[test]
fn replies_are_those_of_redis() {
    let mut bench = Bench::new();
    assert!(
        bench
            .eval("return redis.call('nosuch')")
            .ends_with(", on @user_script:1.\r\n"),
        "LuaJIT was built without the TARGET_FLAGS of .cargo/config.toml: cargo clean -p mlua-sys"
    );
    let files = [
        include_str!("redis_replies.txt"),
        include_str!("redis_libraries.txt"),
        include_str!("redis_syntax.txt"),
    ];
    let mut differences = Vec::new();
    for recorded in files.into_iter().flat_map(recorded) {
        let source = unescape(&recorded.source);
        let sha = String::from_utf8(crate::sha1_hex(&source).to_vec()).expect("hexadecimal");
        let wanted2 = recorded.ours2.as_ref().unwrap_or(&recorded.resp2);
        let redis3 = recorded.ours2.as_ref().or(recorded.resp3.as_ref());
        let wanted3 = recorded.ours3.as_ref().or(redis3).unwrap_or(wanted2);
        for (proto, wanted) in [(Proto::Resp2, wanted2), (Proto::Resp3, wanted3)] {
            let wanted = unescape(&wanted.replace("{sha}", &sha));
            let got = bench.eval_bytes(&source, &[b"k1", b"k2"], &[b"a1"], proto);
            if got != wanted {
                differences.push(format!(
                    "eval {}\nredis {}\nours{} {}",
                    recorded.source,
                    wanted.escape_ascii(),
                    if proto == Proto::Resp2 { 2 } else { 3 },
                    got.escape_ascii()
                ));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} differ\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn a_reply_is_as_deep_as_the_stack_of_the_interpreter() {
    let thread = std::thread::Builder::new().stack_size(256 << 10);
    let run = || {
        let mut bench = Bench::new();
        let reply = bench.eval("local t = {} t[1] = t return t");
        // Both as Redis does it.
        assert_eq!(
            reply,
            format!("{}-ERR reached lua stack limit\r\n", "*1\r\n".repeat(7_995))
        );
        let reply = bench.eval("local t = {} t.map = {[1] = t} return t");
        let (maps, error) = (
            "*2\r\n:1\r\n".repeat(2_664),
            "-ERR reached lua stack limit\r\n",
        );
        assert_eq!(reply, format!("{maps}*2\r\n{error}{error}"));
    };
    thread
        .spawn(run)
        .expect("a thread")
        .join()
        .expect("no failure");
}

#[test]
fn a_reply_in_each_type_reaches_the_script() {
    let mut bench = Bench::new();
    let mut raw = |reply: &str, expression: &str| {
        let source = format!(
            "redis.setresp(3) local r = redis.call('raw', ARGV[1]) return tostring({expression})"
        );
        bench.eval_with(&source, &[], &[reply.as_bytes()], Proto::Resp2)
    };
    assert_eq!(raw("+OK\r\n", "r.ok"), "$2\r\nOK\r\n");
    assert_eq!(raw(":12\r\n", "r"), "$2\r\n12\r\n");
    assert_eq!(raw("$3\r\na\r\n\r\n", "#r"), "$1\r\n3\r\n");
    assert_eq!(raw("$-1\r\n", "r"), "$5\r\nfalse\r\n");
    assert_eq!(raw("*-1\r\n", "r"), "$5\r\nfalse\r\n");
    assert_eq!(raw("_\r\n", "r"), "$3\r\nnil\r\n");
    assert_eq!(raw("#t\r\n", "r"), "$4\r\ntrue\r\n");
    assert_eq!(raw("#f\r\n", "r"), "$5\r\nfalse\r\n");
    assert_eq!(raw(",1.5\r\n", "r.double"), "$3\r\n1.5\r\n");
    assert_eq!(raw("(123\r\n", "r.big_number"), "$3\r\n123\r\n");
    assert_eq!(
        raw(
            "=6\r\ntxt:hi\r\n",
            "r.verbatim_string.format .. r.verbatim_string.string"
        ),
        "$5\r\ntxthi\r\n"
    );
    assert_eq!(
        raw("*2\r\n:1\r\n*1\r\n$1\r\na\r\n", "r[2][1] .. #r"),
        "$2\r\na2\r\n"
    );
    assert_eq!(raw("%1\r\n+k\r\n:5\r\n", "next(r.map).ok"), "$1\r\nk\r\n");
    assert_eq!(
        raw("%2\r\n$1\r\nk\r\n:5\r\n_\r\n:6\r\n", "r.map.k"),
        "$1\r\n5\r\n"
    );
    assert_eq!(raw("~2\r\n:7\r\n_\r\n", "r.set[7]"), "$4\r\ntrue\r\n");
    assert_eq!(raw("*1\r\n-ERR in\r\n", "r[1].err"), "$6\r\nERR in\r\n");
    assert_eq!(raw("*3\r\n:1\r\n", "r").get(..12), Some("-ERR reached"));
    assert_eq!(raw("", "r").get(..12), Some("-ERR reached"));
}
