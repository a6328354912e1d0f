//! `redline proxy` as a process: servers and clients that are lost, hang, are slow or send malformed data. Clients that
//! are not concerned are not affected.
//!
//! Faults of predixy, and the tests that they are absent here:
//!
//! | fault | shown by |
//! |---|---|
//! | a null array within an array, or nesting beyond 8, closes the server's connection | `proxy.rs`: `replies_of_every_shape_pass_unchanged` |
//! | keys above 512 bytes go to another server, as the buffer happens to end | `proxy_routing.rs`: `a_key_is_looked_at_as_a_whole`; `long_keys_and_large_values_pass_whole` |
//! | errors of parts become nil or 0 | `a_server_that_is_lost_is_an_error_and_never_a_missing_key`, `proxy_routing.rs`: `a_call_of_many_keys_is_one_call_to_each_server` |
//! | in WATCH and MULTI everything is let through | `proxy.rs`: `what_is_refused_outside_a_transaction_is_refused_inside_one`, `users_may_do_what_their_records_say_on_every_way` |
//! | only the first key, and the nearest prefix, decide over access | `every_key_and_every_prefix_count` |
//! | data centres of equal weight: the first has all | `proxy_reads.rs`: `a_data_centre_is_read_from_by_its_weight` |
//! | failures are never forgotten, time-outs never counted | `a_server_that_hangs_is_left_alone_and_taken_back`, `failures_count_in_a_row_only` |
//! | UNSUBSCRIBE without a name breaks the connection | `proxy.rs`: `a_subscribed_client_is_answered_as_redis_answers_it` |
//! | a script without keys goes where its first argument says | `proxy.rs`: `a_server_that_lacks_a_script_is_given_it` |
//! | SCRIPT LOAD fails while any server is down; scripts are not where a new server is | `scripts_are_loaded_while_a_server_is_down`, `proxy.rs`: as above |
//! | a blocking call that is redirected asks the same server again | `redirects_are_followed_and_never_seen` |
//! | long arguments of CONFIG and INFO are read beyond their end | `what_no_client_may_send_ends_that_client_only` |
//! | a random distribution, and a hash that is 0 for words, are taken without a word | `settings_that_are_seldom_meant_are_warned_of` |
//! | nothing has a limit | `parts_of_replies_that_never_get_whole_have_a_limit`, `one_client_too_many_is_told_so`, `what_no_client_may_send_ends_that_client_only`, `a_request_that_never_gets_whole_has_a_limit`, `who_asks_and_does_not_read_is_not_listened_to` |
//!
//! `proxy_others.rs` shows that other clients are not affected.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redline_resp::{ReplyDecoder, Value};
use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

use crate::proxying::{
    Behind, PATIENCE, REDLINE, a_key_of_each, assert_error, bulk, call, failed_calls, freeze,
    key_elsewhere, ok, peak_bytes, proxy_of, proxy_with, scripted, scripted_over, shards, signal,
    until, words,
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
    let mut lost = Vec::new();
    until("the proxy has heard of it", || {
        lost = keys
            .iter()
            .filter(|key| call(&mut client, &format!("GET {key}")).is_error())
            .collect();
        !lost.is_empty()
    });
    assert!(lost.len() < keys.len());
    for key in &keys {
        let reply = call(&mut client, &format!("GET {key}"));
        match lost.contains(&key) {
            true => assert_error(&reply, "ERR upstream 127.0.0.1:"),
            false => assert_eq!(reply, bulk("v")),
        }
    }
    let all = keys.join(" ");
    let pairs = format!("{} v", keys.join(" v "));
    for line in [
        format!("MGET {all}"),
        format!("EXISTS {all}"),
        format!("TOUCH {all}"),
        format!("MSET {pairs}"),
        format!("UNLINK {all}"),
        format!("DEL {all}"),
    ] {
        assert_error(&call(&mut client, &line), "ERR upstream");
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
    // A client that leaves while waiting takes nothing.
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
    until("it waits", || blocked(&behind));
    drop(gone);
    until("the server no longer waits for it", || !blocked(&behind));
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
            // Some errors are temporary.
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
    // A transaction cannot follow: its client gets an error to begin anew, without the target.
    let (mut told, mut queued) = (0, 0);
    for key in &keys {
        assert_eq!(call(&mut client, "MULTI"), ok());
        match call(&mut client, &format!("APPEND {key} v")) {
            Value::Simple(_) => queued += 1,
            error => {
                told += 1;
                assert_error(&error, "TRYAGAIN");
            }
        }
        let ended = call(&mut client, "Exec");
        let text = format!("{ended:?}");
        assert!(!text.contains("without MULTI"), "{text}");
        let code = ended.as_bytes().unwrap_or_default();
        assert!(!code.starts_with(b"MOVED"), "{text}");
    }
    assert!(told > 0 && queued > 0, "{told} {queued}");
    assert_eq!(failed_calls(&mut client, "append"), told);
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
    until("it is cut", || {
        let list = call(&mut speaks, "CLIENT LIST");
        let lines = list.as_bytes().unwrap().split(|byte| *byte == b'\n');
        lines.count() == 3
    });
    until("the log says why", || {
        behind
            .proxy
            .log()
            .contains("limits.subscriber-output-buffer")
    });
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
        // Later requests of the pipeline run after it.
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
    // A slow reader: others go on, and the value waits in the server's socket.
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
fn who_waits_behind_a_large_reply_gets_its_own_though_nobody_reads_the_large_one() {
    const BYTES: usize = 24_000_000;
    let piece: Vec<u8> = (0..BYTES as u32)
        .step_by(251)
        .flat_map(u32::to_le_bytes)
        .collect();
    let mut value = piece.repeat(BYTES.div_ceil(piece.len()));
    value.truncate(BYTES);
    let mut large = format!("${}\r\n", value.len()).into_bytes();
    large.extend_from_slice(&value);
    large.extend_from_slice(b"\r\n");
    let (asked, expected) = (Arc::new(AtomicBool::new(false)), large.clone());
    let has_asked = Arc::clone(&asked);
    // Both replies arrive at once, so both requests were on one connection.
    let server = scripted(move |words| match &words[1][..] {
        b"large" => {
            has_asked.store(true, Ordering::Relaxed);
            Vec::new()
        }
        _ => [&large, &b"$5\r\nsmall\r\n"[..]].concat(),
    });
    let proxy = ServerProcess::proxy(
        Path::new(REDLINE),
        &[server],
        &["--threads".to_owned(), "1".to_owned()],
    )
    .expect("the proxy starts");
    let before = peak_bytes(&proxy);
    let mut slow = TcpStream::connect(proxy.address()).unwrap();
    slow.write_all(b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n")
        .unwrap();
    until("the server is asked", || asked.load(Ordering::Relaxed));
    let mut other = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut other, "GET behind"), bulk("small"));
    // It is held once.
    let held = peak_bytes(&proxy) - before;
    assert!(held < 30_000_000, "{held}");
    let mut reply = vec![0; expected.len()];
    slow.read_exact(&mut reply).unwrap();
    assert!(reply == expected);
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
    assert!(!call(&mut stays, &format!("CONFIG GET {long}")).is_error());
    for line in [
        "CONFIG <x>",
        "CONFIG SET <x> 1",
        "CONFIG SET MaxMemory <x>",
        "INFO Latency <x>",
        "INFO ServerLatency <x>",
        "INFO ServerLatency <x> <x>",
    ] {
        let reply = call(&mut stays, &line.replace("<x>", &long));
        assert_error(&reply, "ERR");
    }
    for (sent, answered) in [
        (
            "*1\r\n$999999999999\r\n",
            "ERR Protocol error: invalid bulk length",
        ),
        (
            "*2147483648\r\n",
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
fn a_request_that_never_gets_whole_has_a_limit() {
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let proxy = proxy_with(&format!(
        "threads = 1\n[limits]\nquery-buffer = '1mb'\n[[pool]]\n{}",
        shards(&[server.address()])
    ));
    let mut stays = Client::connect(proxy.address()).unwrap();
    let before = peak_bytes(&proxy);
    let mut endless = Client::connect(proxy.address()).unwrap();
    endless.send(b"*1000000\r\n$4\r\nMSET\r\n").unwrap();
    let part = format!("$100\r\n{}\r\n", "x".repeat(100)).repeat(100);
    // It may be closed before all of this is sent.
    let sent = (0..5_000).take_while(|_| endless.send(part.as_bytes()).is_ok());
    assert!(sent.count() < 5_000);
    assert_eq!(endless.reply().ok().flatten(), None);
    until("the log says why", || {
        proxy.log().contains("limits.query-buffer (1048576)")
    });
    assert_eq!(call(&mut stays, "SET k v"), ok());
    let held = peak_bytes(&proxy) - before;
    assert!(held < 16_000_000, "{held}");
}

#[test]
fn who_asks_and_does_not_read_is_not_listened_to() {
    const PIPELINE: usize = 50;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let long = format!("$100000\r\n{}\r\n", "x".repeat(100_000)).into_bytes();
    let server = scripted(move |words| match &words[0][..] {
        b"GET" => {
            count.fetch_add(1, Ordering::Relaxed);
            long.clone()
        }
        _ => b"+PONG\r\n".to_vec(),
    });
    let proxy = proxy_with(&format!(
        "threads = 1\n[limits]\npipeline = {PIPELINE}\n[[pool]]\n{}",
        shards(&[server])
    ));
    let before = peak_bytes(&proxy);
    let mut other = Client::connect(proxy.address()).unwrap();
    let mut greedy = TcpStream::connect(proxy.address()).unwrap();
    let mut calls = Vec::new();
    (0..1_000).for_each(|_| encode(&["GET", "k"], &mut calls));
    greedy.write_all(&calls).unwrap();
    until("it is asked", || asked.load(Ordering::Relaxed) >= PIPELINE);
    for _ in 0..500 {
        let pong = Value::Simple(b"PONG".to_vec());
        assert_eq!(call(&mut other, "EXISTS k"), pong);
    }
    // Some replies are in the kernel's buffers.
    let calls_made = asked.load(Ordering::Relaxed);
    assert!(calls_made < 500, "{calls_made}");
    let held = peak_bytes(&proxy) - before;
    assert!(held < 32_000_000, "{held}");
    let mut rest = vec![0; 1_000 * (100_000 + 11)];
    greedy
        .read_exact(&mut rest)
        .expect("all of them, when it reads");
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
        until("it is lost", || call(&mut client, "SET b 1").is_error());
        match last {
            "EXEC" => assert_error(&call(&mut client, last), "EXECABORT"),
            _ => assert_eq!(call(&mut client, last), ok()),
        }
        assert_eq!(call(&mut client, "PING"), Value::Simple(b"PONG".to_vec()));
    }
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
    // A ring depends on the addresses, and may give all keys to the silent one.
    let proxy = proxy_with(&format!(
        "[limits]\noutput-buffer = '4mb'\n[timeouts]\nrequest = 'off'\n[[pool]]\n\
         distribution = 'modula'\n{}",
        shards(&[full, silent])
    ));
    let mut greedy = TcpStream::connect(proxy.address()).unwrap();
    let keys = ["MGET", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let mut calls = Vec::new();
    (0..100).for_each(|_| encode(&keys, &mut calls));
    greedy.write_all(&calls).unwrap();
    greedy.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    let ended = greedy.read_to_end(&mut rest).map_err(|error| error.kind());
    assert_ne!(ended, Err(std::io::ErrorKind::WouldBlock), "it stays open");
    assert!(rest.is_empty(), "nothing that is half is sent");
    until("the log says why", || {
        proxy.log().contains("limits.output-buffer (4194304)")
    });
    let mut other = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut other, "PING"), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn a_long_reply_that_is_held_behind_one_that_does_not_come_has_a_limit() {
    let keys_of_silent = Arc::new(Mutex::new(Vec::new()));
    let long = scripted(move |words| match &words[0][..] {
        b"EXISTS" => b":0\r\n".to_vec(),
        b"GET" => [&b"$90000000\r\n"[..], &vec![b'x'; 8_000_000]].concat(),
        _ => b"+PONG\r\n".to_vec(),
    });
    let keys = Arc::clone(&keys_of_silent);
    let silent = scripted(move |words| match &words[0][..] {
        b"EXISTS" => {
            keys.lock().unwrap().push(words[1].clone());
            b":0\r\n".to_vec()
        }
        b"GET" => Vec::new(),
        _ => b"+PONG\r\n".to_vec(),
    });
    let proxy = proxy_with(&format!(
        "[limits]\noutput-buffer = '4mb'\n[timeouts]\nrequest = 'off'\n[[pool]]\n{}",
        shards(&[long, silent])
    ));
    let mut other = Client::connect(proxy.address()).unwrap();
    let keys: Vec<String> = (0..32).map(|number| format!("k{number}")).collect();
    for key in &keys {
        assert_eq!(
            call(&mut other, &format!("EXISTS {key}")),
            Value::Integer(0)
        );
    }
    let of_silent = keys_of_silent.lock().unwrap().clone();
    let is_silent = |key: &&String| of_silent.contains(&key.as_bytes().to_vec());
    let first = keys.iter().find(is_silent).expect("each has some");
    let second = keys
        .iter()
        .find(|key| !is_silent(key))
        .expect("each has some");
    let mut greedy = Client::connect(proxy.address()).unwrap();
    let mut calls = Vec::new();
    encode(&["GET", first], &mut calls);
    encode(&["GET", second], &mut calls);
    greedy.send(&calls).unwrap();
    assert_eq!(greedy.reply().unwrap(), None, "nothing, and it is closed");
    until("the log says why", || {
        proxy.log().contains("limits.output-buffer (4194304)")
    });
}

#[test]
fn every_key_and_every_prefix_count() {
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let proxy = proxy_with(&format!(
        "[[pool]]\n{}[[user]]\nname = 'default'\nmode = 'write'\nkey-prefixes = ['a', 'ab', 'x:']\n",
        shards(&[server.address()])
    ));
    let mut client = Client::connect(proxy.address()).unwrap();
    // The nearest prefix below "ac" is "ab", which does not match; "a" does.
    for key in ["a", "ab", "ac", "abc", "x:1"] {
        assert_eq!(call(&mut client, &format!("SET {key} v")), ok(), "{key}");
    }
    for line in [
        "GET b",
        "GET x",
        "GET x;",
        "RENAME a b",
        "COPY a b",
        "SUNIONSTORE a s",
        "LMOVE a b LEFT LEFT",
        "BLMPOP 1 2 a b LEFT",
        "ZUNIONSTORE a 2 ab b",
        "GEORADIUS a 1 1 1 m STORE b",
        "XREAD STREAMS a b 0 0",
        "MGET a ab b",
        "EXISTS a b",
        "OBJECT ENCODING b",
    ] {
        assert_error(&call(&mut client, line), "NOPERM");
        assert_eq!(call(&mut client, "MULTI"), ok());
        assert_error(&call(&mut client, line), "NOPERM");
        assert_error(&call(&mut client, "EXEC"), "EXECABORT");
    }
}

#[test]
fn a_server_that_hangs_is_left_alone_and_taken_back() {
    let servers: Vec<ServerProcess> = (0..2)
        .map(|_| ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap())
        .collect();
    let addresses: Vec<_> = servers.iter().map(ServerProcess::address).collect();
    let proxy = proxy_with(&format!(
        "threads = 1\n[timeouts]\nconnect = '300ms'\nrequest = '500ms'\n[[pool]]\nrefresh = '200ms'\n\
         {}[pool.failure]\nlimit = 2\nretry = '50ms'\nretry-max = '100ms'\n",
        shards(&addresses)
    ));
    let mut client = Client::connect(proxy.address()).unwrap();
    let keys = a_key_of_each(&mut client, &servers);
    let mut waits = Client::connect(proxy.address()).unwrap();
    freeze(&servers[0]);
    let mut request = Vec::new();
    encode(&["GET", &keys[0]], &mut request);
    waits.send(&request).unwrap();
    // Clients of the other server are not affected, all the while.
    let mut asked = 0;
    until("it is left alone", || {
        asked += 1;
        assert_eq!(call(&mut client, &format!("GET {}", keys[1])), bulk("v"));
        proxy.log().contains("is marked down")
    });
    assert!(asked > 0);
    assert_error(&waits.reply().unwrap().unwrap(), "ERR upstream");
    // And its own calls are refused at once.
    let seldom = 20;
    let at_once = (0..seldom)
        .filter(|_| {
            let began = Instant::now();
            let reply = call(&mut client, &format!("GET {}", keys[0]));
            assert_error(&reply, "ERR upstream");
            began.elapsed() < Duration::from_millis(250)
        })
        .count();
    assert!(at_once > seldom / 2, "{at_once} of {seldom}");
    signal(&servers[0], "-CONT");
    until("it is taken back", || {
        call(&mut client, &format!("GET {}", keys[0])) == bulk("v")
    });
}

#[test]
fn failures_count_in_a_row_only() {
    // Every other connection with a request breaks: one failure, and then success.
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = scripted_over(move |words, _| match words[0].as_slice() {
        b"SET" if count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) => None,
        b"SET" => Some(b"+OK\r\n".to_vec()),
        _ => Some(b"+PONG\r\n".to_vec()),
    });
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\n{}[pool.failure]\nlimit = 2\nretry = '5s'\n",
        shards(&[server])
    ));
    let mut client = Client::connect(proxy.address()).unwrap();
    // Failures within a tenth of a second are one: this takes longer, and less than the time until a probe.
    let began = Instant::now();
    let mut round = 0;
    while round < 20 || began.elapsed() < Duration::from_millis(600) {
        round += 1;
        assert_error(&call(&mut client, "SET k v"), "ERR upstream");
        until("it is asked again", || {
            let reply = call(&mut client, "SET k v");
            // Unsent requests may fail, while it connects anew; the sent one is answered.
            reply == ok()
        });
        assert!(
            !proxy.log().contains("is marked down"),
            "{round}: {}",
            proxy.log()
        );
    }
}

#[test]
fn scripts_are_loaded_while_a_server_is_down() {
    let mut behind = Behind::new(3, 1);
    let mut client = behind.client();
    let keys = a_key_of_each(&mut client, &behind.servers);
    drop(behind.servers.remove(0));
    until("it is known to be lost", || {
        call(&mut client, &format!("GET {}", keys[0])).is_error()
    });
    let loaded = call(&mut client, "SCRIPT LOAD return(KEYS[1])");
    let sha = String::from_utf8(loaded.as_bytes().unwrap().to_vec()).unwrap();
    assert_eq!(sha.len(), 40, "{sha}");
    for key in &keys[1..] {
        let reply = call(&mut client, &format!("EVALSHA {sha} 1 {key}"));
        assert_eq!(reply, bulk(key));
    }
}

#[test]
fn settings_that_are_seldom_meant_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("proxy.toml");
    let said = |more: &str| {
        let shards = shards(&[([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into()]);
        let text = format!("[[listener]]\nbind = '127.0.0.1:7'\n[[pool]]\n{more}{shards}");
        std::fs::write(&file, text).unwrap();
        let mut check = Command::new(REDLINE);
        let output = check
            .args(["proxy", "--check"])
            .arg(&file)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        text
    };
    assert_eq!(said(""), "");
    for odd in [
        "hash = 'atol'\ndistribution = 'modula'\n",
        "distribution = 'random'\n",
    ] {
        let text = said(odd);
        assert!(text.contains("warning"), "{odd}: {text}");
        let name = odd.split('\'').nth(1).unwrap();
        assert!(text.contains(name), "{odd}: {text}");
    }
}

#[test]
fn one_client_too_many_is_told_so() {
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let proxy = proxy_with(&format!(
        "[limits]\nclients = 2\n[[pool]]\n{}",
        shards(&[server.address()])
    ));
    let mut one = Client::connect(proxy.address()).unwrap();
    let mut two = Client::connect(proxy.address()).unwrap();
    until("who asked whether it is ready is gone", || {
        one = Client::connect(proxy.address()).unwrap();
        two = Client::connect(proxy.address()).unwrap();
        one.call(&["PING"]).is_ok_and(|reply| !reply.is_error())
            && two.call(&["PING"]).is_ok_and(|reply| !reply.is_error())
    });
    let mut three = Client::connect(proxy.address()).unwrap();
    assert_error(
        &three.reply().unwrap().unwrap(),
        "ERR max number of clients reached",
    );
    assert_eq!(three.reply().unwrap(), None);
    assert_eq!(call(&mut one, "SET k v"), ok());
    drop(two);
    until("there is room again", || {
        let mut next = Client::connect(proxy.address()).unwrap();
        next.call(&["GET", "k"])
            .is_ok_and(|reply| reply == bulk("v"))
    });
}

#[test]
fn where_descriptors_are_few_clients_leave_some_for_servers() {
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let program = server.directory().join("few-descriptors");
    let script = format!("#!/bin/sh\nulimit -n 128\nexec '{REDLINE}' \"$@\"\n");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let words = ["--threads".to_owned(), "1".to_owned()];
    let proxy = ServerProcess::proxy(&program, &[server.address()], &words).unwrap();
    let mut first = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut first, "PING"), Value::Simple(b"PONG".to_vec()));
    let mut others: Vec<Client> = (0..200)
        .map(|_| Client::connect(proxy.address()).unwrap())
        .collect();
    // The last of them has its reply when all the others were accepted or refused.
    let refused = others.last_mut().unwrap().reply().unwrap().unwrap();
    assert_error(&refused, "ERR max number of clients reached");
    assert_eq!(call(&mut first, "SET k v"), ok());
    assert!(
        proxy.log().contains("at most 96 clients"),
        "{}",
        proxy.log()
    );
}

#[test]
fn a_client_may_leave_behind_any_byte() {
    let behind = Behind::new(2, 1);
    let mut stays = behind.client();
    let mut requests = Vec::new();
    for line in [
        "SET k v",
        "MGET a b c",
        "MULTI",
        "INCR n",
        "EXEC",
        "WATCH k",
        "UNWATCH",
        "SUBSCRIBE ch",
        "RESET",
        "BLPOP l 0",
    ] {
        encode(&line.split(' ').collect::<Vec<_>>(), &mut requests);
    }
    requests.splice(0..0, *b"ping\r\nset i \"a b\"\r\n");
    for end in 0..=requests.len() {
        let mut leaves = TcpStream::connect(behind.proxy.address()).unwrap();
        leaves.write_all(&requests[..end]).unwrap();
        if end % 3 == 0 {
            // Some read their replies; others do not, which resets the connection.
            let mut some = [0; 7];
            if end > 6 {
                leaves.read_exact(&mut some).unwrap();
            }
        }
        drop(leaves);
        assert_eq!(call(&mut stays, "SET stays v"), ok(), "{end}");
        assert_eq!(
            call(&mut stays, "MGET stays none"),
            Value::Array(vec![bulk("v"), Value::NullBulk]),
            "{end}"
        );
    }
    // No request waits for the list of closed clients.
    until("nothing is left of them", || {
        let list = call(&mut stays, "CLIENT LIST");
        String::from_utf8_lossy(list.as_bytes().unwrap())
            .lines()
            .count()
            == 1
    });
    until("no call of theirs waits", || {
        behind.servers.iter().all(|server| {
            let mut direct = Client::connect(server.address()).unwrap();
            let info = call(&mut direct, "INFO clients");
            String::from_utf8_lossy(info.as_bytes().unwrap()).contains("blocked_clients:0")
        })
    });
    call(&mut stays, "DEL l");
    assert_eq!(call(&mut stays, "RPUSH l x"), Value::Integer(1));
    assert_eq!(call(&mut stays, "LLEN l"), Value::Integer(1));
}

#[test]
fn a_server_may_leave_behind_any_byte_of_its_replies() {
    const REPLIES: [(&str, &str, &str); 6] = [
        ("GET", "GET k", "$5\r\nvalue\r\n"),
        ("SET", "SET k value", "+OK\r\n"),
        ("MGET", "MGET k k2", "*2\r\n$1\r\na\r\n$-1\r\n"),
        (
            "LRANGE",
            "LRANGE k 0 -1",
            "*2\r\n*2\r\n:1\r\n*-1\r\n$3\r\nabc\r\n",
        ),
        ("INCR", "INCR k", ":12345\r\n"),
        ("BLPOP", "BLPOP k 0", "*2\r\n$1\r\nk\r\n$1\r\nv\r\n"),
    ];
    let real = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    for (name, line, whole) in REPLIES {
        for end in 0..=whole.len() {
            let server = scripted_over(move |words, stream| {
                if words[0].eq_ignore_ascii_case(b"ping") {
                    return Some(b"+PONG\r\n".to_vec());
                }
                if !words[0].eq_ignore_ascii_case(name.as_bytes())
                    || !words[1].starts_with(b"other")
                {
                    return Some(b"-ERR not asked for\r\n".to_vec());
                }
                let _ = stream.write_all(&whole.as_bytes()[..end]);
                None
            });
            // Calls go to the one, and the other gets none.
            let proxy = proxy_with(&format!(
                "threads = 1\n[[pool]]\nhash = 'crc16'\ndistribution = 'modula'\n{}",
                shards(&[server, real.address()])
            ));
            let mut other = Client::connect(proxy.address()).unwrap();
            let theirs = (0..100)
                .map(|number| format!("o{number}"))
                .find(|key| call(&mut other, &format!("SET {key} v")) == ok())
                .unwrap();
            let own = key_elsewhere(&mut other, &theirs);
            let line = line.replace(" k", &format!(" {own}"));
            let mut client = Client::connect(proxy.address()).unwrap();
            let reply = client.call(&line.split(' ').collect::<Vec<_>>());
            // All of it, or an error, or the end of the client's connection; never a part that is taken for the whole.
            if let Ok(reply) = reply {
                let mut decoder = ReplyDecoder::new();
                let expected = decoder.decode(whole.as_bytes()).unwrap().value.unwrap();
                assert!(
                    reply.is_error() || (end == whole.len() && reply == expected),
                    "{line} {end}: {reply:?}"
                );
            }
            assert_eq!(
                call(&mut other, &format!("SET {theirs} v")),
                ok(),
                "{line} {end}"
            );
        }
    }
}
