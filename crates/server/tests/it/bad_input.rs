//! Clients that break the protocol, lie about lengths, never read or never end: such a client gets an error reply as Redis
//! words it or a closed connection, memory stays within limits, and no other client is affected.

use std::{
    io::{Read, Write},
    net::Shutdown,
    thread,
};

use crate::client::{Client, Value, busy, encode, request, resident_bytes, settings, start, until};
use fastrand::Rng;
use redline_server::{OutputLimit, Permission, Server, Settings};

const MIB: usize = 1024 * 1024;

fn with_password() -> Settings {
    Settings {
        requirepass: Some(b"secret".to_vec()),
        ..settings(2)
    }
}

#[track_caller]
fn answers(server: &Server, input: &[u8], line: &str) {
    let mut client = Client::connect(server);
    let mut reader = client.stream.try_clone().unwrap();
    // The server may close before it has read everything: then the write fails, and that is right.
    let _ = client.stream.write_all(input);
    let shown = input[..input.len().min(40)].escape_ascii().to_string();
    let mut got = Vec::new();
    let mut byte = [0];
    while !got.ends_with(b"\r\n") && reader.read(&mut byte).unwrap() > 0 {
        got.push(byte[0]);
    }
    assert_eq!(
        String::from_utf8_lossy(&got),
        format!("-{line}\r\n"),
        "{shown}"
    );
    assert_eq!(client.drain(), 0, "more came after the error: {shown}");
}

#[test]
fn protocol_errors_are_worded_as_redis_words_them_and_end_the_connection() {
    let long = |head: &str, byte: u8| [head.as_bytes(), &vec![byte; 64 * 1024 + 1]].concat();
    let server = start(settings(2));
    let mut other = Client::connect(&server);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"*2147483648\r\n".into(), "invalid multibulk length"),
        (b"*abc\r\n".into(), "invalid multibulk length"),
        (
            b"*99999999999999999999\r\n".into(),
            "invalid multibulk length",
        ),
        (b"*1\r\n$536870913\r\n".into(), "invalid bulk length"),
        (b"*1\r\n$-1\r\n".into(), "invalid bulk length"),
        (b"*1\r\n$x\r\n".into(), "invalid bulk length"),
        (b"*3\r\n$3\r\nSET\r\nx".to_vec(), "expected '$', got 'x'"),
        (b"*1\r\n:1\r\n".to_vec(), "expected '$', got ':'"),
        (b"set k \"x\r\n".to_vec(), "unbalanced quotes in request"),
        (b"set k 'x'y\r\n".to_vec(), "unbalanced quotes in request"),
        (long("", b'x'), "too big inline request"),
        (long("*", b'1'), "too big mbulk count string"),
        (long("*1\r\n$", b'1'), "too big bulk count string"),
    ];
    for (input, text) in cases {
        // "expected '$'" needs the end of that line to be seen.
        let input = if input.ends_with(b"x") && input.len() < 100 {
            [&input[..], b"\r\n"].concat()
        } else {
            input
        };
        answers(&server, &input, &format!("ERR Protocol error: {text}"));
    }
    let server = start(with_password());
    answers(
        &server,
        b"*11\r\n",
        "ERR Protocol error: unauthenticated multibulk length",
    );
    answers(
        &server,
        b"*1\r\n$16385\r\n",
        "ERR Protocol error: unauthenticated bulk length",
    );
    answers(
        &server,
        b"*2\r\n$3\r\nGET\r\n$536870912\r\n",
        "ERR Protocol error: unauthenticated bulk length",
    );
    assert_eq!(other.call("PING"), Value::Simple("PONG".into()));
}

#[test]
fn replies_before_a_protocol_error_arrive() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    client.write(
        &[
            request("SET k 1"),
            request("INCR k"),
            b"*1\r\n$-5\r\n".to_vec(),
        ]
        .concat(),
    );
    client.read().ok();
    assert_eq!(client.read(), Value::Integer(2));
    assert_eq!(
        client.read().error(),
        "ERR Protocol error: invalid bulk length"
    );
    assert_eq!(client.drain(), 0);
}

/// Two clients on different workers; the script of the first has begun, and holds the key `k` for a while.
fn holder_and_other(server: &Server) -> (Client, Client) {
    let holds = format!(
        "redis.call('get', KEYS[1]) redis.call('publish', 'begun', '') {} return 1",
        busy(300)
    );
    // Connections go to the workers by turns.
    let [mut holder, mut hears, _third, mut other] = [(); 4].map(|()| Client::connect(server));
    other.call("SET k v").ok();
    hears.call("SUBSCRIBE begun");
    holder.write(&encode(&[b"EVAL", holds.as_bytes(), b"1", b"k"]));
    hears.read();
    (holder, other)
}

#[test]
fn what_follows_a_command_that_waits_is_answered_in_its_turn() {
    let server = start(settings(2));
    let (mut script, mut client) = holder_and_other(&server);
    client.write(
        &[
            request("APPEND k w"),
            request("PING"),
            b"*1\r\nx\r\n".to_vec(),
        ]
        .concat(),
    );
    assert_eq!(client.read(), Value::Integer(2));
    assert_eq!(client.read(), Value::Simple("PONG".into()));
    assert_eq!(
        client.read().error(),
        "ERR Protocol error: expected '$', got 'x'"
    );
    assert_eq!(client.drain(), 0);
    assert_eq!(script.read(), Value::Integer(1));
}

#[test]
fn a_half_closed_client_that_waits_gets_its_reply() {
    let server = start(settings(2));
    let (_script, mut client) = holder_and_other(&server);
    client.write(&[request("GET k"), request("PING")].concat());
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(), Value::Bulk(b"v".to_vec()));
    assert_eq!(client.read(), Value::Simple("PONG".into()));
    assert_eq!(client.drain(), 0);
}

#[test]
fn a_half_closed_client_gets_every_reply_also_if_it_reads_late() {
    // One worker: who asks it for its clients is answered after what it found before.
    let server = start(settings(1));
    let mut client = Client::connect(&server);
    let mut observer = Client::connect(&server);
    client.call("CLIENT SETNAME late").ok();
    client.call_args(&[b"SET", b"k", &[b'v'; 2000]]).ok();
    // 20 MB of replies to 270 KB of requests: more than the sockets hold.
    client.write(&request("GET k").repeat(10_000));
    client.stream.shutdown(Shutdown::Write).unwrap();
    until("the server comes to the end of the requests", || {
        let Value::Bulk(lines) = observer.call("CLIENT LIST") else {
            panic!("CLIENT LIST is a bulk string");
        };
        let lines = String::from_utf8(lines).unwrap();
        let late = lines.lines().find(|line| line.contains(" name=late "));
        late.expect("it is there").contains(" tot-cmds=10002")
    });
    // The stream had ended before that was asked: this call finds the end seen.
    observer.call("PING");
    for _ in 0..10_000 {
        assert_eq!(client.read(), Value::Bulk(vec![b'v'; 2000]));
    }
    assert_eq!(client.drain(), 0);
}

#[test]
fn authentication_and_what_follows_it_may_come_together() {
    let server = start(with_password());
    let mut client = Client::connect(&server);
    let large = vec![b'v'; 20_000];
    let many: Vec<&[u8]> = std::iter::once(&b"DEL"[..])
        .chain(std::iter::repeat_n(&b"k"[..], 30))
        .collect();
    client.write(
        &[
            request("AUTH secret"),
            encode(&[b"SET", b"k", &large]),
            encode(&many),
        ]
        .concat(),
    );
    client.read().ok();
    client.read().ok();
    assert_eq!(client.read(), Value::Integer(1));
}

#[test]
fn lying_lengths_cost_no_memory() {
    let server = start(settings(2));
    let before = resident_bytes();
    let mut clients = Vec::new();
    for _ in 0..50 {
        for lie in [
            &b"*1000000000\r\n$3\r\nSET\r\n"[..],
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nabc",
            b"*2147483647\r\n$1\r\n",
        ] {
            let mut client = Client::connect(&server);
            client.write(lie);
            clients.push(client);
        }
    }
    let mut other = Client::connect(&server);
    (0..100).for_each(|_| drop(other.call("PING")));
    let grown = resident_bytes().saturating_sub(before);
    assert!(
        grown < 200 * MIB,
        "{} MiB for 150 lies (tests beside this one included)",
        grown / MIB
    );
}

#[test]
fn garbage_harms_nobody() {
    let server = start(settings(2));
    let mut other = Client::connect(&server);
    let mut rng = Rng::with_seed(7);
    let pieces: [&[u8]; 12] = [
        b"*",
        b"$",
        b"\r\n",
        b"\n",
        b"*3\r\n",
        b"$3\r\nSET\r\n",
        b"$1\r\nk\r\n",
        b"-1",
        b"0",
        b"\"",
        b"\0",
        b"EVAL \"return 1\" 0\r\n",
    ];
    for round in 0..300 {
        let mut client = Client::connect(&server);
        let mut input = Vec::new();
        for _ in 0..rng.usize(1..60) {
            if rng.u8(..4) == 0 {
                input.extend((0..rng.usize(..50)).map(|_| rng.u8(..)));
            } else {
                input.extend_from_slice(pieces[rng.usize(..pieces.len())]);
            }
        }
        let _ = client.stream.write_all(&input);
        let _ = client.stream.shutdown(Shutdown::Write);
        if round % 2 == 0 {
            client.drain();
        }
    }
    assert_eq!(other.call("PING"), Value::Simple("PONG".into()));
}

#[test]
fn a_subscriber_that_never_reads_is_closed_at_its_limit() {
    let mut settings = settings(2);
    settings.output_limits[2] = OutputLimit {
        hard_bytes: 4 * MIB as u64,
        soft_bytes: 0,
        soft_seconds: 0,
    };
    let server = start(settings);
    let mut deaf = Client::connect(&server);
    deaf.call("SUBSCRIBE news");
    let mut publisher = Client::connect(&server);
    let message = vec![b'm'; 64 * 1024];
    until("the subscriber is closed", || {
        publisher.call_args(&[b"PUBLISH", b"news", &message]) == Value::Integer(0)
    });
    assert!(deaf.drain() < 64 * MIB);
}

#[test]
fn a_subscriber_over_its_soft_limit_is_closed_without_further_messages() {
    let mut settings = settings(2);
    settings.output_limits[2] = OutputLimit {
        hard_bytes: 0,
        soft_bytes: MIB as u64,
        soft_seconds: 1,
    };
    let server = start(settings);
    let mut deaf = Client::connect(&server);
    deaf.call("SUBSCRIBE news");
    let mut publisher = Client::connect(&server);
    publisher.call_args(&[b"PUBLISH", b"news", &vec![b'm'; 32 * MIB]]);
    until("the subscriber is closed", || {
        publisher.call("PUBSUB NUMSUB news").array()[1] == Value::Integer(0)
    });
}

#[test]
fn who_is_not_authenticated_and_never_reads_is_closed() {
    let server = start(with_password());
    let mut client = Client::connect(&server);
    let requests = request("GET k").repeat(10_000);
    let mut written = 0;
    while client.stream.write_all(&requests).is_ok() {
        written += requests.len();
        assert!(written < 256 * MIB, "NOAUTH without end");
    }
}

#[test]
fn who_unsubscribes_gets_no_message_after_that() {
    let server = start(settings(2));
    let mut publisher = Client::connect(&server);
    let mut client = Client::connect(&server);
    // Many names, so that messages arrive between the first of them and the end.
    let names: Vec<String> = (0..1000).map(|n| format!("other:{n}")).collect();
    let both = [
        request(&format!("SUBSCRIBE c {}", names.join(" "))),
        request("UNSUBSCRIBE"),
        request("ECHO x"),
    ];
    thread::scope(|scope| {
        let publishing = scope.spawn(move || {
            for _ in 0..400 {
                publisher.write(&request("PUBLISH c m").repeat(50));
                (0..50).for_each(|_| drop(publisher.read()));
            }
        });
        while !publishing.is_finished() {
            client.write(&both.concat());
            while client.read().array()[2] != Value::Integer(0) {}
            assert_eq!(client.read(), Value::Bulk(b"x".to_vec()));
            assert_eq!(client.call("ECHO y"), Value::Bulk(b"y".to_vec()));
        }
    });
}

#[test]
fn ten_thousand_connections_cost_little_and_all_are_served() {
    const WANTED: usize = 10_000;
    const RESERVED: usize = 1000;
    // Both ends are in this process.
    let granted = redline_net::limits::raise_open_files((WANTED * 2 + RESERVED) as u64)
        .unwrap()
        .granted as usize;
    let count = WANTED.min((granted - RESERVED) / 2);
    let server = start(Settings {
        maxclients: WANTED + 10,
        tcp_backlog: 4096,
        ..settings(2)
    });
    let before = resident_bytes();
    let mut clients: Vec<Client> = (0..count).map(|_| Client::connect(&server)).collect();
    for round in 0..2 {
        clients
            .iter_mut()
            .for_each(|client| client.write(b"PING\r\n"));
        for client in &mut clients {
            assert_eq!(client.read(), Value::Simple("PONG".into()), "round {round}");
        }
    }
    let grown = resident_bytes().saturating_sub(before) / count;
    assert!(
        grown < 16 * 1024,
        "{grown} bytes for each of {count} (tests beside this one included)"
    );
    drop(clients);
    let mut other = Client::connect(&server);
    until("all are gone", || match other.call("CLIENT LIST") {
        Value::Bulk(lines) => lines.iter().filter(|byte| **byte == b'\n').count() == 1,
        other => panic!("{other:?}"),
    });
}

#[test]
fn errors_replaced_bytes_that_are_no_text() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    let errors: Vec<(Vec<&[u8]>, &[u8])> =
        vec![
        (
            vec![b"a\xff\nb\0c", b"\xfe\xff\r", b"b"],
            b"-ERR unknown command 'a\xff b', with args beginning with: '\xfe\xff ' 'b' ",
        ),
        (vec![b"OBJECT", b"\xff"], b"-ERR unknown subcommand '\xff'. Try OBJECT HELP."),
        (
            vec![b"CONFIG", b"SET", b"\xff\x01", b"x"],
            b"-ERR Unknown option or number of arguments for CONFIG SET - '\xff\x01'",
        ),
        (
            vec![b"ACL", b"SETUSER", b"u", b"+\xfe"],
            b"-ERR Error in ACL SETUSER modifier '+\xfe': Unknown command or category name in ACL",
        ),
        (vec![b"HELLO", b"3", b"\xff"], b"-ERR Syntax error in HELLO option '\xff'"),
        (
            vec![b"XREADGROUP", b"GROUP", b"\xff", b"c", b"STREAMS", b"\xfe", b">"],
            b"-NOGROUP No such key '\xfe' or consumer group '\xff' in XREADGROUP with GROUP option",
        ),
    ];
    for (call, expected) in errors {
        client.write(&encode(&call));
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            client.stream.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        assert_eq!(
            line.escape_ascii().to_string(),
            [expected, b"\r\n"].concat().escape_ascii().to_string()
        );
    }
}

#[test]
fn what_came_behind_an_interrupt_was_not_read() {
    let server = start(Settings {
        enable_debug_command: Permission::Yes,
        ..settings(1)
    });
    let mut client = Client::connect(&server);
    // While its worker sleeps, what follows gathers in the socket.
    client.send("DEBUG SLEEP 0.2");
    for _ in 0..3 {
        client.send("PING");
        rustix::net::send(&client.stream, b"!", rustix::net::SendFlags::OOB).unwrap();
    }
    client.write(b"\r\n");
    client.send("ECHO x");
    client.read().ok();
    // All but the last of the bytes out of band have become part of a request.
    while client.read() != Value::Bulk(b"x".to_vec()) {}
}
