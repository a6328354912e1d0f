//! The limits of a request at their edges: the server has the replies of a Redis 8.2.3 to these bytes, and so has the
//! proxy in front of one server and of two. Must not know the internals of either.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use redline_testkit::client::encode;
use redline_testkit::process::ServerProcess;

use crate::proxying::{PATIENCE, REDLINE, proxy_with, shards};

/// One more than a former limit of the proxy's arguments.
const MANY: usize = 1024 * 1024 + 1;
const LINE: usize = 64 * 1024;
/// Size of one read of the server: bytes.
const READ: usize = 16 * 1024;

/// Bytes to send, in pieces of which each is read before the next is sent, and the expected reply.
struct Row {
    name: &'static str,
    sent: Vec<Vec<u8>>,
    expected: Vec<u8>,
    /// The connection ends then.
    closes: bool,
}

/// Returns a row after which the connection goes on.
fn goes_on(name: &'static str, sent: impl Into<Vec<u8>>, expected: impl Into<Vec<u8>>) -> Row {
    Row {
        name,
        sent: vec![sent.into()],
        expected: expected.into(),
        closes: false,
    }
}

/// Returns a row that violates the protocol, and is answered with this error.
fn breaks(name: &'static str, sent: impl Into<Vec<u8>>, error: &str) -> Row {
    Row {
        name,
        sent: vec![sent.into()],
        expected: format!("-ERR Protocol error: {error}\r\n").into_bytes(),
        closes: true,
    }
}

fn request<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(words, &mut bytes);
    bytes
}

/// Returns a call with these words and `count` more, all of them the same.
fn call_of(first: &[&str], count: usize, word: &str) -> Vec<u8> {
    let mut words = first.to_vec();
    words.resize(first.len() + count, word);
    request(&words)
}

/// Returns keys of several servers, few of them equal.
fn keys() -> impl Iterator<Item = String> {
    (0..MANY).map(|number| format!("k{}", number % 100))
}

/// Sends a row to a server, and compares. Sending and receiving are concurrent.
fn compare(address: SocketAddr, row: &Row, who: &str) {
    let name = format!("{} ({who})", row.name);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut writing = stream.try_clone().unwrap();
    let got = thread::scope(|scope| {
        scope.spawn(move || {
            for (number, piece) in row.sent.iter().enumerate() {
                if number > 0 {
                    thread::sleep(Duration::from_millis(50));
                }
                // A refusal may arrive before everything is sent.
                if writing.write_all(piece).is_err() {
                    break;
                }
            }
        });
        let mut got = Vec::new();
        let read = (&stream)
            .take(row.expected.len() as u64)
            .read_to_end(&mut got);
        if let Err(error) = read {
            panic!(
                "{name}: {error} behind {} instead of {}",
                shown(&got),
                shown(&row.expected)
            );
        }
        got
    });
    if got != row.expected {
        // An error is longer than what was expected, and says why.
        let mut more = [0; 200];
        let count = stream.read(&mut more).unwrap_or(0);
        let got = [&got[..], &more[..count]].concat();
        panic!(
            "{name}: {} instead of {}",
            shown(&got),
            shown(&row.expected)
        );
    }
    if row.closes {
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(rest, b"", "{name}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{name}"),
        }
    } else {
        stream.write_all(b"PING\r\n").unwrap();
        let mut pong = [0; 7];
        stream.read_exact(&mut pong).unwrap();
        assert_eq!(&pong, b"+PONG\r\n", "{name}");
    }
}

fn shown(bytes: &[u8]) -> String {
    format!(
        "{} ({} bytes)",
        bytes[..bytes.len().min(120)].escape_ascii(),
        bytes.len()
    )
}

/// A server with these arguments; and a proxy with this configuration in front of another one, and one in front of two others.
struct Parties {
    servers: Vec<ServerProcess>,
    proxies: Vec<ServerProcess>,
}

impl Parties {
    fn new(words: &[&str], proxy: &str) -> Parties {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let start = || ServerProcess::redline(Path::new(REDLINE), 1, &words).unwrap();
        let servers = vec![start(), start(), start(), start()];
        let proxy = |behind: &[ServerProcess]| {
            let behind: Vec<SocketAddr> = behind.iter().map(ServerProcess::address).collect();
            proxy_with(&format!(
                "threads = 1\n{proxy}\n[timeouts]\nconnect = '60s'\nrequest = '60s'\n[[pool]]\n{}",
                shards(&behind)
            ))
        };
        let proxies = vec![proxy(&servers[1..2]), proxy(&servers[2..])];
        Parties { servers, proxies }
    }

    fn compare(&self, rows: &[Row]) {
        for row in rows {
            compare(self.servers[0].address(), row, "the server");
            compare(self.proxies[0].address(), row, "the proxy of one");
            compare(self.proxies[1].address(), row, "the proxy of two");
        }
    }
}

#[test]
fn a_header_says_a_number_within_its_bounds() {
    let multibulk = "invalid multibulk length";
    let bulk = "invalid bulk length";
    let dollar = "expected '$', got";
    let behind = |header: &str| format!("{header}\r\nPING\r\n");
    let echo = |header: &str| format!("*2\r\n$4\r\nECHO\r\n{header}\r\nPING\r\n");
    let mut rows = Vec::new();
    for header in ["*0", "*-1", "*-2147483648", "*-9223372036854775808"] {
        rows.push(goes_on("no arguments", behind(header), "+PONG\r\n"));
    }
    for header in ["*1", "*1048577", "*2147483647"] {
        rows.push(breaks(
            "arguments",
            behind(header),
            &format!("{dollar} 'P'"),
        ));
    }
    for header in [
        "*2147483648",
        "*9223372036854775807",
        "*9223372036854775808",
        "*-9223372036854775809",
        "*-0",
        "*00",
        "*01",
        "*+1",
        "* 1",
        "*1 ",
        "*",
        "*a",
    ] {
        rows.push(breaks("no number of arguments", behind(header), multibulk));
    }
    for header in [
        "$536870913",
        "$2147483647",
        "$4294967296",
        "$9223372036854775807",
        "$9223372036854775808",
        "$-1",
        "$-0",
        "$00",
        "$04",
        "$+4",
        "$ 4",
        "$4 ",
        "$",
        "$a",
    ] {
        rows.push(breaks("no length of an argument", echo(header), bulk));
    }
    rows.push(breaks("another type", echo(":4"), &format!("{dollar} ':'")));
    rows.push(goes_on(
        "an empty one",
        echo("$0").replace("PING", ""),
        "$0\r\n\r\n",
    ));
    let parties = Parties::new(&[], "");
    parties.compare(&rows);
    // Everything that may follow is waited for.
    let longest = echo("$536870912");
    for party in parties.servers[..1].iter().chain(&parties.proxies) {
        let mut stream = TcpStream::connect(party.address()).unwrap();
        stream.write_all(longest.as_bytes()).unwrap();
        let silence = Duration::from_millis(100);
        stream.set_read_timeout(Some(silence)).unwrap();
        let read = stream.read(&mut [0; 1]).map_err(|error| error.kind());
        assert_eq!(read, Err(ErrorKind::WouldBlock));
    }
}

#[test]
fn a_line_has_so_many_bytes() {
    let inline = "too big inline request";
    let (count, length) = ("too big mbulk count string", "too big bulk count string");
    let ones = |start: &str, bytes: usize| format!("{start}{}", "1".repeat(bytes - 1));
    let (header, argument) = ("*", "*2\r\n$4\r\nECHO\r\n$");
    let long_line = |bytes: usize| format!("{}\r\n", "x".repeat(bytes - 2));
    let reply = |bytes: usize| format!("${}\r\n{}\r\n", bytes - 7, "x".repeat(bytes - 7));
    let words = |bytes: usize| format!("ECHO {}", long_line(bytes - 5));
    let pipelined = |line: String| format!("PING\r\nPING\r\n{line}");
    let mut in_pieces = goes_on("a line in pieces", words(LINE), reply(LINE));
    let rest = in_pieces.sent[0].split_off(LINE - 1);
    in_pieces.sent.push(rest);
    let mut after_pings = breaks(
        "a line behind others",
        pipelined("x".repeat(LINE + 1)),
        inline,
    );
    after_pings.expected = [b"+PONG\r\n+PONG\r\n", &after_pings.expected[..]].concat();
    Parties::new(&[], "").compare(&[
        in_pieces,
        after_pings,
        breaks("a line without an end", "x".repeat(LINE + 1), inline),
        breaks("a long line", long_line(LINE + READ + 1), inline),
        breaks("a longer line", long_line(LINE + 3 * READ), inline),
        breaks("a count without an end", ones(header, LINE + 1), count),
        breaks("a long count", ones(header, LINE + READ) + "\r\n", count),
        breaks(
            "a longer count",
            ones(header, LINE + 3 * READ) + "\r\n",
            count,
        ),
        breaks(
            "the longest count",
            ones(header, LINE) + "\r\n",
            "invalid multibulk length",
        ),
        breaks("a length without an end", ones(argument, LINE + 1), length),
        breaks(
            "a long length",
            ones(argument, LINE + 3 * READ) + "\r\n",
            length,
        ),
        breaks(
            "the longest length",
            ones(argument, LINE) + "\r\n",
            "invalid bulk length",
        ),
    ]);
}

#[test]
fn an_argument_has_so_many_bytes() {
    const BYTES: usize = 1024 * 1024;
    let echo = |bytes: usize| request(&["ECHO", &"x".repeat(bytes)]);
    let set = |bytes: usize| request(&["SET", "k", &"x".repeat(bytes)]);
    let text = format!("${BYTES}\r\n{}\r\n", "x".repeat(BYTES));
    let parties = Parties::new(&["--proto-max-bulk-len", "1mb"], "[limits]\nbulk = '1mb'");
    parties.compare(&[
        goes_on("the longest argument", echo(BYTES), text),
        goes_on("the longest value", set(BYTES), "+OK\r\n"),
        breaks(
            "a longer argument",
            &echo(BYTES + 1)[..64],
            "invalid bulk length",
        ),
        breaks(
            "a longer value",
            &set(BYTES + 1)[..64],
            "invalid bulk length",
        ),
    ]);
}

#[test]
fn a_long_request_that_broke_the_protocol_was_not_told_so() {
    let halves = |rest: &str| {
        let mut first = b"*4\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$100000\r\n".to_vec();
        first.resize(first.len() + 50_000, b'x');
        let mut second = vec![b'x'; 50_000];
        second.extend_from_slice(rest.as_bytes());
        vec![first, second]
    };
    let breaks_behind = |rest: &str, error: &str| Row {
        sent: halves(rest),
        ..breaks("behind a long argument", "", error)
    };
    let (bulk, dollar) = ("invalid bulk length", "expected '$', got");
    let long_line = format!("\r\n${}", "1".repeat(LINE));
    let mut rows: Vec<Row> = ["$a", "$", "$-1", "$02", "$+2", "$536870913"]
        .map(|header| breaks_behind(&format!("\r\n{header}\r\n"), bulk))
        .into();
    rows.push(breaks_behind("\r\n:1\r\n", &format!("{dollar} ':'")));
    rows.push(breaks_behind("\r\n\r\n", &format!("{dollar} ' '")));
    rows.push(breaks_behind(&long_line, "too big bulk count string"));
    rows.push(Row {
        sent: halves("ab$2\rcXXde"),
        ..goes_on("nobody looks at line ends", "", "$-1\r\n")
    });
    let mut behind_another = breaks_behind("\r\n$a\r\n", bulk);
    behind_another.sent[0].splice(..0, *b"*1\r\n$4\r\nPING\r\n");
    behind_another.expected = [b"+PONG\r\n", &behind_another.expected[..]].concat();
    rows.push(behind_another);
    Parties::new(&[], "").compare(&rows);
}

#[test]
fn a_mebi_of_arguments_was_more_than_the_proxy_took() {
    let names: Vec<String> = keys().collect();
    let named = |first: &[&str]| {
        let words: Vec<&str> = first
            .iter()
            .copied()
            .chain(names.iter().map(String::as_str))
            .collect();
        request(&words)
    };
    let mut pairs = vec!["MSET"];
    pairs.extend(names.iter().flat_map(|name| [name.as_str(), "v"]));
    let number = format!(":{MANY}\r\n");
    let values = [format!("*{MANY}\r\n"), "$1\r\nv\r\n".repeat(MANY)].concat();
    let many = MANY.to_string();
    let transaction = [
        request(&["MULTI"]),
        call_of(&["RPUSH", "list"], MANY, "v"),
        request(&["DEL", "list"]),
        request(&["EXEC"]),
    ];
    let sent = |name, sent: Vec<u8>, expected: String| goes_on(name, sent, expected);
    Parties::new(&[], "").compare(&[
        sent("MSET", request(&pairs), "+OK\r\n".to_owned()),
        sent("MGET", named(&["MGET"]), values),
        sent("DEL", named(&["DEL"]), ":100\r\n".to_owned()),
        sent(
            "RPUSH",
            call_of(&["RPUSH", "list"], MANY, "v"),
            number.clone(),
        ),
        sent(
            "DEL of one",
            call_of(&["UNLINK"], MANY, "list"),
            ":1\r\n".to_owned(),
        ),
        sent(
            "EVAL",
            call_of(&["EVAL", "return #KEYS", &many], MANY, "k"),
            number.clone(),
        ),
        sent(
            "PING",
            call_of(&["PING"], MANY, "k"),
            "-ERR wrong number of arguments for 'ping' command\r\n".to_owned(),
        ),
        sent(
            "a transaction",
            transaction.concat(),
            format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n{number}:1\r\n"),
        ),
    ]);
}

#[test]
fn rights_are_checked_for_every_argument() {
    let user = "[[user]]\nname = 'default'\nrules = '+@all ~k* on nopass'";
    let words = ["--user", "default", "on", "nopass", "+@all", "~k*"];
    let right = call_of(&["RPUSH", "k"], MANY, "v");
    let push_back = call_of(&["EXISTS"], MANY, "k");
    let mut wrong = call_of(&["EXISTS"], MANY, "k");
    let at = wrong.len() - 3;
    wrong[at] = b'x';
    let refused = "-NOPERM No permissions to access a key\r\n";
    Parties::new(&words, "").compare(&[
        goes_on(
            "keys that may be used",
            push_back.clone(),
            format!(":{}\r\n", 0),
        ),
        goes_on("one that may not", wrong.clone(), refused),
        goes_on("arguments that are no keys", right, format!(":{MANY}\r\n")),
    ]);
    Parties::new(&[], user).proxies.iter().for_each(|proxy| {
        compare(
            proxy.address(),
            &goes_on("keys of a user", push_back.clone(), ":0\r\n"),
            "rules",
        );
        compare(
            proxy.address(),
            &goes_on("one that is none", wrong.clone(), refused),
            "rules",
        );
    });
}

#[test]
fn who_has_not_authenticated_may_send_little() {
    let auth = request(&["AUTH", "default", "pw"]);
    let after = |call: Vec<u8>| [auth.clone(), call].concat();
    let (arguments, bytes) = (
        "unauthenticated multibulk length",
        "unauthenticated bulk length",
    );
    let noauth = "-NOAUTH Authentication required.\r\n";
    let text = |bytes: usize| "x".repeat(bytes);
    let mut twice = breaks(
        "two requests",
        [request(&["GET", "k"]), call_of(&["DEL"], 10, "k")].concat(),
        arguments,
    );
    twice.expected = [noauth.as_bytes(), &twice.expected[..]].concat();
    let rows = [
        goes_on_unpinged("ten arguments", call_of(&["DEL"], 9, "k"), noauth),
        goes_on_unpinged("16 KiB", request(&["ECHO", &text(16 * 1024)]), noauth),
        goes_on_unpinged("a line", format!("DEL {}\r\n", "k ".repeat(20)), noauth),
        goes_on_unpinged("a long line", format!("ECHO {}\r\n", text(20_000)), noauth),
        twice,
        breaks("eleven arguments", call_of(&["DEL"], 10, "k"), arguments),
        breaks(
            "more than 16 KiB",
            request(&["ECHO", &text(16 * 1024 + 1)]),
            bytes,
        ),
        breaks("no number", "*2147483648\r\n", "invalid multibulk length"),
        goes_on(
            "behind AUTH",
            after(call_of(&["DEL"], 10, "k")),
            "+OK\r\n:0\r\n",
        ),
        goes_on(
            "bytes behind AUTH",
            after(request(&["SET", "k", &text(16 * 1024 + 1)])),
            "+OK\r\n+OK\r\n",
        ),
    ];
    let words = ["--requirepass", "pw"].map(str::to_owned);
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &words).unwrap();
    let user = "[[user]]\nname = 'default'\npassword = 'pw'\nmode = 'admin'";
    let parties = Parties::new(&[], user);
    for row in &rows {
        compare(server.address(), row, "the server");
        for proxy in &parties.proxies {
            compare(proxy.address(), row, "the proxy");
        }
    }
}

/// Returns a row that goes on with an error to every call, PING among them, until the client authenticates.
fn goes_on_unpinged(name: &'static str, sent: impl Into<Vec<u8>>, expected: &str) -> Row {
    let mut row = goes_on(name, sent, format!("{expected}+OK\r\n"));
    row.sent[0].extend(request(&["AUTH", "default", "pw"]));
    row
}

#[test]
fn a_reply_is_nested_as_deep_as_a_script_makes_it() {
    // The depth of the interpreter's stack.
    const DEEPEST: usize = 7_995;
    let rows = [2, 7, 8, 9, 100, 128, 129, 1000, DEEPEST, DEEPEST + 1].map(|depth: usize| {
        let script = format!("local t = {{}} for i = 2, {depth} do t = {{t}} end return t");
        let innermost = match depth {
            ..=DEEPEST => "*0\r\n",
            _ => "-ERR reached lua stack limit\r\n",
        };
        let expected = "*1\r\n".repeat(depth - 1) + innermost;
        let twice = [
            request(&["EVAL", &script, "0"]),
            request(&["MULTI"]),
            request(&["EVAL", &script, "0"]),
            request(&["EXEC"]),
        ];
        let expected = format!("{expected}+OK\r\n+QUEUED\r\n*1\r\n{expected}");
        goes_on("nested", twice.concat(), expected)
    });
    Parties::new(&[], "").compare(&rows);
}

#[test]
fn a_text_of_more_than_a_mebibyte_ended_the_connection_to_its_server() {
    let long = 3 << 20;
    let text = "x".repeat(long);
    let script = |kind: &str| format!("return redis.{kind}_reply(string.rep('x', {long}))");
    let in_transaction = [
        request(&["MULTI"]),
        request(&["EVAL", &script("status"), "0"]),
        request(&["EXEC"]),
    ];
    Parties::new(&[], "").compare(&[
        goes_on(
            "a status",
            request(&["EVAL", &script("status"), "0"]),
            format!("+{text}\r\n"),
        ),
        goes_on(
            "an error",
            request(&["EVAL", &script("error"), "0"]),
            format!("-ERR {text}\r\n"),
        ),
        goes_on(
            "in EXEC",
            in_transaction.concat(),
            format!("+OK\r\n+QUEUED\r\n*1\r\n+{text}\r\n"),
        ),
    ]);
}

#[test]
fn four_thousand_calls_without_keys_were_too_many_inside_multi() {
    let transaction = |count: usize, word: &str| {
        let calls = [
            request(&["MULTI"]),
            request(&["PING", word]).repeat(count),
            request(&["EXEC"]),
        ];
        let text = format!("${}\r\n{word}\r\n", word.len());
        let replies = [
            "+OK\r\n",
            &"+QUEUED\r\n".repeat(count),
            &format!("*{count}\r\n"),
            &text.repeat(count),
        ];
        (calls.concat(), replies.concat())
    };
    let with_key = |count: usize| {
        let calls = [
            request(&["MULTI"]),
            request(&["PING"]).repeat(count),
            request(&["INCR", "counter"]),
            request(&["DEL", "counter"]),
            request(&["EXEC"]),
        ];
        let replies = [
            "+OK\r\n",
            &"+QUEUED\r\n".repeat(count + 2),
            &format!("*{}\r\n", count + 2),
            &"+PONG\r\n".repeat(count),
            ":1\r\n:1\r\n",
        ];
        (calls.concat(), replies.concat())
    };
    let rows = [
        transaction(4_097, "x"),
        transaction(300, &"x".repeat(4_096)),
        transaction(70_000, "x"),
        with_key(70_000),
    ];
    let rows = rows.map(|(sent, expected)| goes_on("calls without keys", sent, expected));
    Parties::new(&[], "").compare(&rows);
}

#[test]
fn who_wrote_a_long_pipeline_before_it_read_waited_for_ever() {
    // More than sockets hold, in both directions.
    const CALLS: usize = 6_000;
    let key = "k".repeat(4_096);
    let call = request(&["GET", &key]);
    let reply = format!("$4096\r\n{}\r\n", "v".repeat(4_096));
    let compare = |address: SocketAddr| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let set = request(&["SET", &key, &"v".repeat(4_096)]);
        stream.write_all(&set).unwrap();
        stream
            .write_all(&call.repeat(CALLS))
            .expect("all of it is taken");
        stream.write_all(b"PING\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        let expected = ["+OK\r\n", &reply.repeat(CALLS), "+PONG\r\n"].concat();
        assert!(got == expected.as_bytes(), "{}", shown(&got));
    };
    let parties = Parties::new(&[], "");
    compare(parties.servers[0].address());
    parties
        .proxies
        .iter()
        .for_each(|proxy| compare(proxy.address()));
}
