//! `redline proxy` as a process: servers and clients that are lost, that hang, that are slow or that talk nonsense.
//! Whoever is not concerned notices nothing.

mod proxying;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redline_resp::Value;
use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

use proxying::{
    Behind, REDLINE, assert_error, bulk, call, ok, peak_bytes, proxy_of, proxy_with, scripted,
    words,
};

#[test]
fn a_server_that_is_lost_is_an_error_and_never_a_missing_key() {
    let mut behind = Behind::new(3, 1);
    let mut client = behind.client();
    let keys: Vec<String> = (0..60).map(|number| format!("k{number}")).collect();
    for key in &keys {
        assert_eq!(call(&mut client, &format!("SET {key} v")), ok());
    }
    drop(behind.servers.remove(0));
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut lost = Vec::new();
    // The proxy hears of it in its own time.
    while lost.is_empty() {
        assert!(Instant::now() < deadline);
        lost = keys
            .iter()
            .filter(|key| call(&mut client, &format!("GET {key}")).is_error())
            .collect();
    }
    assert!(lost.len() < keys.len());
    for key in &keys {
        let reply = call(&mut client, &format!("GET {key}"));
        match lost.contains(&key) {
            true => assert_error(&reply, "ERR upstream 127.0.0.1:"),
            false => assert_eq!(reply, bulk("v")),
        }
    }
    let all = keys.join(" ");
    for command in ["MGET", "EXISTS", "DEL"] {
        assert_error(
            &call(&mut client, &format!("{command} {all}")),
            "ERR upstream",
        );
    }
}

#[test]
fn a_call_that_waits_holds_nobody_else_up() {
    let behind = Behind::new(2, 1);
    let (mut waits, mut other) = (behind.client(), behind.client());
    let mut requests = Vec::new();
    encode(&["SET", "before", "1"], &mut requests);
    encode(&["BLPOP", "list", "0"], &mut requests);
    encode(&["GET", "before"], &mut requests);
    waits.send(&requests).unwrap();
    assert_eq!(waits.reply().unwrap(), Some(ok()));
    assert_eq!(call(&mut other, "GET before"), bulk("1"));
    assert_eq!(call(&mut other, "RPUSH list x"), Value::Integer(1));
    let popped = Value::Array(vec![bulk("list"), bulk("x")]);
    assert_eq!(waits.reply().unwrap(), Some(popped));
    assert_eq!(waits.reply().unwrap(), Some(bulk("1")));
    // Whoever leaves while waiting takes nothing along.
    let mut gone = behind.client();
    let mut request = Vec::new();
    encode(&["BLPOP", "list", "0"], &mut request);
    gone.send(&request).unwrap();
    let blocked = |behind: &Behind| {
        let count = |server: &ServerProcess| {
            let mut direct = Client::connect(server.address()).unwrap();
            let info = call(&mut direct, "INFO clients");
            let text = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
            text.contains("blocked_clients:1")
        };
        behind.servers.iter().any(count)
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !blocked(&behind) {
        assert!(Instant::now() < deadline, "it never waited");
    }
    drop(gone);
    while blocked(&behind) {
        assert!(Instant::now() < deadline, "the server still waits for it");
    }
    assert_eq!(call(&mut other, "RPUSH list y"), Value::Integer(1));
    assert_eq!(call(&mut other, "LLEN list"), Value::Integer(1));
}

#[test]
fn long_keys_and_large_values_pass_whole() {
    let behind = Behind::new(3, 1);
    let mut client = behind.client();
    let long = "k".repeat(5000);
    for number in 0..20 {
        let key = format!("{long}{number}");
        let value = vec![b'a' + number as u8; 3_000_000];
        let set: [&[u8]; 3] = [b"SET", key.as_bytes(), &value];
        assert_eq!(client.call(&set).unwrap(), ok());
        let mut request = Vec::new();
        encode(&["GET", &key], &mut request);
        for part in request.chunks(511) {
            client.send(part).unwrap();
        }
        assert_eq!(client.reply().unwrap(), Some(Value::Bulk(value)));
    }
    assert_eq!(call(&mut client, "DBSIZE"), Value::Integer(20));
}

#[test]
fn a_client_that_leaves_in_the_midst_disturbs_nobody() {
    let behind = Behind::new(1, 1);
    let mut stays = behind.client();
    call(&mut stays, "SET k stays");
    for round in 0..50 {
        let mut leaves = behind.client();
        let mut requests = Vec::new();
        for _ in 0..200 {
            encode(&["GET", "k"], &mut requests);
        }
        leaves.send(&requests).unwrap();
        stays.send(&requests).unwrap();
        drop(leaves);
        for _ in 0..200 {
            assert_eq!(stays.reply().unwrap(), Some(bulk("stays")), "{round}");
        }
    }
}

#[test]
fn redirects_are_followed_and_never_seen() {
    let real = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let target = real.address();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let moved = scripted(move |words| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let slot = 1;
        match words[0].to_ascii_uppercase().as_slice() {
            // Some errors pass by themselves.
            b"GET" if number.is_multiple_of(3) => b"-TRYAGAIN Multiple keys\r\n".to_vec(),
            b"SET" if number.is_multiple_of(5) => b"-LOADING Redis is loading\r\n".to_vec(),
            _ => format!("-MOVED {slot} {target}\r\n").into_bytes(),
        }
    });
    let proxy = proxy_of(&[moved, target]);
    let mut client = Client::connect(proxy.address()).unwrap();
    for number in 0..60 {
        let key = format!("k{number}");
        assert_eq!(call(&mut client, &format!("SET {key} {number}")), ok());
        assert_eq!(
            call(&mut client, &format!("GET {key}")),
            bulk(&number.to_string())
        );
    }
    let keys: Vec<String> = (0..60).map(|number| format!("k{number}")).collect();
    let values: Vec<Value> = (0..60).map(|number| bulk(&number.to_string())).collect();
    let mget = call(&mut client, &format!("MGET {}", keys.join(" ")));
    assert_eq!(mget, Value::Array(values));
    for key in &keys {
        call(&mut client, &format!("RPUSH l{key} x"));
        let popped = call(&mut client, &format!("BLPOP l{key} 1"));
        assert_eq!(
            popped,
            Value::Array(vec![bulk(&format!("l{key}")), bulk("x")])
        );
    }
    assert!(asked.load(Ordering::Relaxed) > 60);
}

#[test]
fn a_server_that_answers_nothing_sensible_fails_its_own_requests_only() {
    let real = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let odd = scripted(|_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    let proxy = proxy_of(&[odd, real.address()]);
    let mut client = Client::connect(proxy.address()).unwrap();
    let mut failed = 0;
    for number in 0..40 {
        let reply = call(&mut client, &format!("SET k{number} v"));
        match reply.is_error() {
            true => failed += 1,
            false => assert_eq!(reply, ok()),
        }
    }
    assert!(failed > 0 && failed < 40, "{failed}");
}

#[test]
fn a_subscriber_that_does_not_read_is_cut_and_nobody_else_notices() {
    let behind = Behind::new(1, 1);
    let (mut slow, mut quick, mut speaks) = (behind.client(), behind.client(), behind.client());
    for client in [&mut slow, &mut quick] {
        assert_eq!(
            words(Some(call(client, "SUBSCRIBE c"))),
            ["subscribe", "c", "1"]
        );
    }
    let text = "x".repeat(1_000_000);
    for number in 0..60 {
        assert_eq!(
            call(&mut speaks, &format!("PUBLISH c {number}:{text}")),
            Value::Integer(1)
        );
        let message = words(quick.reply().unwrap());
        assert!(message[2].starts_with(&format!("{number}:")));
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let list = call(&mut speaks, "CLIENT LIST");
        if list
            .as_bytes()
            .unwrap()
            .split(|byte| *byte == b'\n')
            .count()
            == 3
        {
            break;
        }
        assert!(Instant::now() < deadline, "it was never cut");
    }
}

#[test]
fn large_values_go_through_without_being_held() {
    const BYTES: usize = 100_000_000;
    const MEMORY_MAX: usize = 24_000_000;
    let behind = Behind::new(2, 1);
    let mut client = behind.client();
    let before = peak_bytes(&behind.proxy);
    let value = vec![b'v'; BYTES];
    for (number, words) in [
        vec![&b"SET"[..], b"k", &value],
        vec![b"SETEX", b"k", b"1000", &value],
        vec![b"APPEND", b"other", &value],
        vec![b"SET", b"k", &value, b"XX", b"KEEPTTL"],
    ]
    .into_iter()
    .enumerate()
    {
        let mut request = Vec::new();
        // What is behind it in the pipeline runs behind it.
        encode(&["SET", "small", "1"], &mut request);
        encode(&words, &mut request);
        encode(&["STRLEN", "k"], &mut request);
        encode(&["INCR", "small"], &mut request);
        client.send(&request).unwrap();
        assert_eq!(client.reply().unwrap(), Some(ok()), "{number}");
        let expected = match words[0] {
            b"APPEND" => Value::Integer(BYTES as i64),
            _ => ok(),
        };
        assert_eq!(client.reply().unwrap(), Some(expected), "{number}");
        assert_eq!(client.reply().unwrap(), Some(Value::Integer(BYTES as i64)));
        assert_eq!(client.reply().unwrap(), Some(Value::Integer(2)));
    }
    let mut held = peak_bytes(&behind.proxy) - before;
    assert!(held < MEMORY_MAX, "{held} bytes for requests");
    // A reader that takes its time: others go on, and the value waits in the server's socket.
    let mut slow = TcpStream::connect(behind.proxy.address()).unwrap();
    let mut request = Vec::new();
    encode(&["GET", "k"], &mut request);
    encode(&["STRLEN", "k"], &mut request);
    slow.write_all(&request).unwrap();
    let mut reply = vec![0; 1000];
    slow.read_exact(&mut reply).unwrap();
    for number in 3..2000 {
        assert_eq!(call(&mut client, "INCR small"), Value::Integer(number));
        call(&mut client, "STRLEN k");
    }
    let mut expected = format!("${BYTES}\r\n").into_bytes();
    expected.extend_from_slice(&value);
    expected.extend_from_slice(format!("\r\n:{BYTES}\r\n").as_bytes());
    reply.resize(expected.len(), 0);
    slow.read_exact(&mut reply[1000..]).unwrap();
    assert!(reply == expected);
    held = peak_bytes(&behind.proxy) - before;
    assert!(held < MEMORY_MAX, "{held} bytes for replies");
}

#[test]
fn a_client_that_leaves_within_a_large_value_disturbs_nobody() {
    let behind = Behind::new(1, 1);
    let mut stays = behind.client();
    let part = vec![b'x'; 300_000];
    for round in 0..20 {
        let mut leaves = behind.client();
        leaves
            .send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n")
            .unwrap();
        leaves.send(&part).unwrap();
        assert_eq!(call(&mut stays, &format!("SET n {round}")), ok());
        drop(leaves);
        assert_eq!(call(&mut stays, "EXISTS k"), Value::Integer(0));
    }
    let value = vec![b'y'; 5_000_000];
    let set: [&[u8]; 3] = [b"SET", b"big", &value];
    assert_eq!(stays.call(&set).unwrap(), ok());
    for _ in 0..10 {
        let mut leaves = behind.client();
        let mut request = Vec::new();
        encode(&["GET", "big"], &mut request);
        leaves.send(&request).unwrap();
        drop(leaves);
        assert_eq!(call(&mut stays, "STRLEN big"), Value::Integer(5_000_000));
    }
}

#[test]
fn what_no_client_may_send_ends_that_client_only() {
    let behind = Behind::new(1, 1);
    let mut stays = behind.client();
    let long = "x".repeat(5000);
    assert!(!call(&mut stays, &format!("INFO {long}")).is_error());
    assert_error(
        &call(&mut stays, &format!("CONFIG {long}")),
        "ERR unknown subcommand",
    );
    for (sent, answered) in [
        (
            "*1\r\n$999999999999\r\n",
            "ERR Protocol error: invalid bulk length",
        ),
        (
            "*2147483647\r\n",
            "ERR Protocol error: invalid multibulk length",
        ),
        ("*1\r\n!\r\n", "ERR Protocol error: expected '$'"),
        (
            "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$600000000\r\n",
            "ERR Protocol error: invalid bulk length",
        ),
    ] {
        let mut client = behind.client();
        client.send(sent.as_bytes()).unwrap();
        assert_error(&client.reply().unwrap().unwrap(), answered);
        assert_eq!(client.reply().unwrap(), None, "{sent}");
        assert_eq!(call(&mut stays, "PING"), Value::Simple(b"PONG".to_vec()));
    }
}

#[test]
fn a_transaction_whose_server_is_lost_does_nothing_more() {
    for last in ["EXEC", "DISCARD"] {
        let mut behind = Behind::new(1, 1);
        let mut client = behind.client();
        assert_eq!(call(&mut client, "MULTI"), ok());
        assert_eq!(
            call(&mut client, "SET a 1"),
            Value::Simple(b"QUEUED".to_vec())
        );
        drop(behind.servers.remove(0));
        let deadline = Instant::now() + Duration::from_secs(10);
        while !call(&mut client, "SET b 1").is_error() {
            assert!(Instant::now() < deadline);
        }
        match last {
            "EXEC" => assert_error(&call(&mut client, last), "EXECABORT"),
            _ => assert_eq!(call(&mut client, last), ok()),
        }
        assert_eq!(call(&mut client, "PING"), Value::Simple(b"PONG".to_vec()));
    }
}

#[test]
fn subscribing_where_the_server_is_lost_is_an_error() {
    let mut behind = Behind::new(1, 1);
    let mut client = behind.client();
    assert_eq!(call(&mut client, "PING"), Value::Simple(b"PONG".to_vec()));
    drop(behind.servers.remove(0));
    for _ in 0..3 {
        assert_error(&call(&mut client, "SUBSCRIBE c"), "ERR");
    }
    // And what it had does not stay behind.
    assert_eq!(call(&mut client, "PING"), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn parts_of_replies_that_never_get_whole_have_a_limit() {
    let pong = |words: &[Vec<u8>]| {
        words[0]
            .eq_ignore_ascii_case(b"ping")
            .then(|| b"+PONG\r\n".to_vec())
    };
    let full = scripted(move |words| {
        pong(words).unwrap_or_else(|| {
            let mut reply = format!("*{}\r\n", words.len() - 1).into_bytes();
            for _ in &words[1..] {
                reply.extend_from_slice(format!("$50000\r\n{}\r\n", "x".repeat(50_000)).as_bytes());
            }
            reply
        })
    });
    let silent = scripted(move |words| pong(words).unwrap_or_default());
    let proxy = proxy_with(&format!(
        "[limits]\noutput-buffer = '4mb'\n[timeouts]\nrequest = 'off'\n[[pool]]\n\
         [[pool.shard]]\nserver = [{{ address = '{full}' }}]\n[[pool.shard]]\nserver = [{{ address = '{silent}' }}]\n"
    ));
    let mut greedy = TcpStream::connect(proxy.address()).unwrap();
    let keys = ["MGET", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let mut calls = Vec::new();
    (0..100).for_each(|_| encode(&keys, &mut calls));
    greedy.write_all(&calls).unwrap();
    let limit = Duration::from_secs(20);
    greedy.set_read_timeout(Some(limit)).unwrap();
    let mut rest = Vec::new();
    let ended = greedy.read_to_end(&mut rest).map_err(|error| error.kind());
    assert_ne!(ended, Err(std::io::ErrorKind::WouldBlock), "it stays open");
    assert!(rest.is_empty(), "nothing that is half is sent");
    let mut other = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut other, "PING"), Value::Simple(b"PONG".to_vec()));
}
