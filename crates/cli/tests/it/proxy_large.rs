//! `redline proxy` as a process: faults during the transfer of a large value.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redline_resp::Value;
use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

use crate::proxying::{
    REDLINE, bulk, call, key_elsewhere, ok, peak_bytes, proxy_with, scripted, shards, until,
};

const PATIENCE: Duration = Duration::from_secs(60);
const VALUE_BYTES: usize = 8 << 20;

fn server() -> ServerProcess {
    ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap()
}

fn pool(server: SocketAddr) -> String {
    format!("[[pool]]\n{}", shards(&[server]))
}

/// Returns a client that has sent half of SET with a value of [`VALUE_BYTES`], and the unsent rest.
fn halfway(proxy: &ServerProcess) -> (TcpStream, Vec<u8>) {
    let mut request = format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${VALUE_BYTES}\r\n").into_bytes();
    request.resize(request.len() + VALUE_BYTES, b'v');
    request.extend_from_slice(b"\r\n");
    let rest = request.split_off(request.len() / 2);
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&request).unwrap();
    (stream, rest)
}

#[track_caller]
fn line(stream: &mut TcpStream) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).expect("a reply");
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

/// Returns the number of bytes that the proxy has sent to its servers.
fn sent(watcher: &mut Client) -> usize {
    let info = call(watcher, "INFO stats");
    let text = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
    let mut lines = text.lines();
    let found = lines.find_map(|line| line.strip_prefix("TotalSendServerBytes:"));
    found.expect("a line").trim().parse().unwrap()
}

#[test]
fn another_configuration_within_a_large_request_does_not_stop_it() {
    let (first, second) = (server(), server());
    let proxy = proxy_with(&format!("threads = 1\n{}", pool(first.address())));
    let mut watcher = Client::connect(proxy.address()).unwrap();
    let mut direct = Client::connect(second.address()).unwrap();
    assert_eq!(call(&mut direct, "SET which second"), ok());
    let (mut stream, rest) = halfway(&proxy);
    until("half of it is on its way", || {
        sent(&mut watcher) > VALUE_BYTES / 4
    });
    let text = fs::read_to_string(proxy.config_file()).unwrap();
    let changed = text.replace(&first.address().to_string(), &second.address().to_string());
    fs::write(proxy.config_file(), changed).unwrap();
    assert_eq!(call(&mut watcher, "CONFIG RELOAD"), ok());
    until("it is in force", || {
        call(&mut watcher, "GET which") == bulk("second")
    });
    stream.write_all(&rest).unwrap();
    assert_eq!(line(&mut stream), "+OK");
    let mut direct = Client::connect(first.address()).unwrap();
    let length = Value::Integer(VALUE_BYTES as i64);
    assert_eq!(call(&mut direct, "STRLEN large"), length);
    // Its next request goes to the right server.
    stream.write_all(b"GET which\r\n").unwrap();
    assert_eq!(line(&mut stream), "$6");
}

/// Returns a server that answers everything with PONG, until it gets SET: then it does this with the connection.
fn until_set(then: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let then = Arc::new(then);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, then) = (stream.unwrap(), Arc::clone(&then));
            thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut piece) {
                    if piece[..read].windows(3).any(|word| word == b"SET") {
                        return then(stream);
                    }
                    if stream.write_all(b"+PONG\r\n").is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_server_that_answers_before_the_end_is_heard_and_its_connection_not_used_again() {
    // The first reply comes too early, the second one without a request.
    let early = until_set(|mut stream| {
        stream.write_all(b"-OOM early\r\n").unwrap();
        let (mut piece, mut last) = (vec![0; 1 << 16], 0);
        while let Ok(read @ 1..) = stream.read(&mut piece) {
            let ended = piece[..read].ends_with(b"v\r\n") || (last == b'v' && read < 3);
            last = piece[read - 1];
            if ended && stream.write_all(b"+LATE\r\n").is_err() {
                return;
            }
        }
    });
    let proxy = proxy_with(&format!("threads = 1\n{}", pool(early)));
    let (mut stream, rest) = halfway(&proxy);
    assert_eq!(line(&mut stream), "-OOM early");
    stream.write_all(&rest).unwrap();
    // Its next requests, and those of others on private connections, get their own replies.
    for request in ["GET k\r\n", "BLPOP k 1\r\n", "GET k\r\n"] {
        stream.write_all(request.as_bytes()).unwrap();
        assert_eq!(line(&mut stream), "+PONG", "{request}");
    }
}

#[test]
fn a_server_that_takes_nothing_more_of_a_large_request_is_given_up() {
    let stuck = until_set(|stream| {
        thread::sleep(PATIENCE * 2);
        drop(stream);
    });
    let proxy = proxy_with(&format!(
        "threads = 1\n[timeouts]\nrequest = '1s'\n{}",
        pool(stuck)
    ));
    // More than the sockets' buffers on the way hold.
    let mut request = b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$200000000\r\n".to_vec();
    request.resize(request.len() + 200_000_000, b'v');
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let writes = thread::spawn(move || writer.write_all(&request));
    let answer = line(&mut stream);
    assert!(answer.starts_with("-ERR upstream"), "{answer}");
    // It was not executed, and that is known.
    assert!(answer.contains("is not available"), "{answer}");
    writes.join().unwrap().unwrap();
}

#[test]
fn who_begins_a_large_request_and_says_no_more_is_let_go_and_a_slow_one_is_not() {
    let server = server();
    let proxy = proxy_with(&format!(
        "threads = 1\n[timeouts]\nreader = '1s'\n{}",
        pool(server.address())
    ));
    let (mut slow, rest) = halfway(&proxy);
    let (mut silent, _) = halfway(&proxy);
    let gone = Arc::new(AtomicBool::new(false));
    let is_gone = Arc::clone(&gone);
    let waits = thread::spawn(move || {
        let ended = silent.read(&mut [0; 1]);
        gone.store(true, Ordering::SeqCst);
        // Its own unread bytes make that a reset.
        assert!(
            matches!(ended, Ok(0))
                || ended.is_err_and(|it| it.kind() != std::io::ErrorKind::WouldBlock)
        );
    });
    // A little at a time, for longer than the limit.
    let (end, most) = rest.split_at(rest.len() - (1 << 20));
    let mut pieces = end.chunks(64);
    while !is_gone.load(Ordering::SeqCst) {
        if let Some(piece) = pieces.next() {
            slow.write_all(piece).unwrap();
        }
        thread::sleep(Duration::from_millis(1));
    }
    waits.join().unwrap();
    pieces.for_each(|piece| slow.write_all(piece).unwrap());
    slow.write_all(most).unwrap();
    assert_eq!(line(&mut slow), "+OK");
    until("the log says why", || {
        proxy.log().contains("timeouts.reader")
    });
}

#[test]
fn a_part_of_a_reply_that_nobody_may_have_or_wants_is_not_kept() {
    const LIMIT_BYTES: usize = 4 << 20;
    let (first, second) = (server(), server());
    let proxy = proxy_with(&format!(
        "threads = 1\n[limits]\noutput-buffer = '4mb'\n[[pool]]\n{}",
        shards(&[first.address(), second.address()])
    ));
    let mut watcher = Client::connect(proxy.address()).unwrap();
    let large = "v".repeat(1 << 20);
    let other = key_elsewhere(&mut watcher, "k");
    assert_eq!(call(&mut watcher, &format!("SET k {large}")), ok());
    let before = peak_bytes(&proxy);
    // 200 MiB from one of the servers, as a part of the reply.
    let mut request = Vec::new();
    let keys: Vec<&str> = std::iter::repeat_n("k", 200).chain([&*other]).collect();
    encode(&[&["MGET"][..], &keys].concat(), &mut request);
    let mut greedy = TcpStream::connect(proxy.address()).unwrap();
    greedy.set_read_timeout(Some(PATIENCE)).unwrap();
    greedy.write_all(&request).unwrap();
    let ended = greedy.read(&mut [0; 1]);
    assert!(matches!(ended, Ok(0)), "{ended:?}");
    // As much for a client that does not read.
    let mut silent = Client::connect(proxy.address()).unwrap();
    let mut requests = Vec::new();
    encode(&["CLIENT", "REPLY", "SKIP"], &mut requests);
    encode(&[&["MGET"][..], &["k"; 200]].concat(), &mut requests);
    encode(&["GET", &other], &mut requests);
    silent.send(&requests).unwrap();
    assert_eq!(silent.reply().unwrap(), Some(Value::NullBulk));
    // Others are served by the same connections meanwhile, and all due replies were handled.
    assert_eq!(call(&mut watcher, "STRLEN k"), Value::Integer(1 << 20));
    let held = peak_bytes(&proxy) - before;
    assert!(held < 4 * LIMIT_BYTES, "{held} bytes");
}

/// Asks a process to end.
fn end(process: &ServerProcess) {
    let pid = process.pid().to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
}

#[test]
fn a_large_request_is_taken_whole_when_the_proxy_is_asked_to_end() {
    let server = server();
    let mut proxy = proxy_with(&format!(
        "threads = 1\n[timeouts]\ndrain = '20s'\n{}",
        pool(server.address())
    ));
    let mut watcher = Client::connect(proxy.address()).unwrap();
    let (mut stream, rest) = halfway(&proxy);
    until("half of it is on its way", || {
        sent(&mut watcher) > VALUE_BYTES / 4
    });
    end(&proxy);
    assert_eq!(watcher.reply().unwrap(), None, "who waits for nothing goes");
    let asked = Instant::now();
    stream.write_all(&rest).unwrap();
    assert_eq!(line(&mut stream), "+OK");
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    until("the proxy ends", || !proxy.is_running());
    assert!(asked.elapsed() < Duration::from_secs(15));
    let mut direct = Client::connect(server.address()).unwrap();
    let length = Value::Integer(VALUE_BYTES as i64);
    assert_eq!(call(&mut direct, "STRLEN large"), length);
}

#[test]
fn a_large_request_that_stands_still_does_not_keep_the_proxy_beyond_its_limit() {
    let server = server();
    let mut proxy = proxy_with(&format!(
        "threads = 1\n[timeouts]\ndrain = '300ms'\n{}",
        pool(server.address())
    ));
    let mut watcher = Client::connect(proxy.address()).unwrap();
    let (stream, _) = halfway(&proxy);
    until("half of it is on its way", || {
        sent(&mut watcher) > VALUE_BYTES / 4
    });
    end(&proxy);
    until("the proxy ends", || !proxy.is_running());
    drop(stream);
    let mut direct = Client::connect(server.address()).unwrap();
    assert_eq!(call(&mut direct, "EXISTS large"), Value::Integer(0));
}

#[test]
fn a_transaction_waits_for_a_server_that_takes_nothing_more() {
    const CALL_BYTES: usize = 30_000;
    const SENT_BYTES_MAX: usize = 160_000_000;
    const MEMORY_MAX: usize = 48_000_000;
    let server = scripted(|words| match words[0].as_slice() {
        b"MULTI" => b"+OK\r\n".to_vec(),
        b"INCR" => loop {
            thread::park();
        },
        _ => b"+QUEUED\r\n".to_vec(),
    });
    let proxy = proxy_with(&format!("threads = 1\n{}", pool(server)));
    let mut client = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut client, "MULTI"), ok());
    let queued = Value::Simple(b"QUEUED".to_vec());
    assert_eq!(call(&mut client, "SET k v"), queued);
    let before = peak_bytes(&proxy);
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    // A client that is no longer read has been stopped.
    stream
        .set_write_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    let mut requests = Vec::new();
    encode(&["MULTI"], &mut requests);
    encode(&["SET", "k", "v"], &mut requests);
    encode(&["INCR", "k"], &mut requests);
    let mut sent = 0;
    let value = "v".repeat(CALL_BYTES);
    while sent < SENT_BYTES_MAX && stream.write_all(&requests).is_ok() {
        sent += requests.len();
        requests.clear();
        encode(&["SET", "k", &value], &mut requests);
    }
    let held = peak_bytes(&proxy) - before;
    assert!(held < MEMORY_MAX, "{held} bytes of {sent}");
}

#[test]
fn long_replies_one_after_the_other_need_no_connection_each() {
    let server = server();
    let proxy = proxy_with(&format!("threads = 1\n{}", pool(server.address())));
    let mut direct = Client::connect(server.address()).unwrap();
    let mut client = Client::connect(proxy.address()).unwrap();
    let long = "x".repeat(1 << 20);
    assert_eq!(direct.call(&["SET", "long", &long]).unwrap(), ok());
    let mut came = || {
        let stats = call(&mut direct, "INFO stats");
        let text = String::from_utf8_lossy(stats.as_bytes().unwrap()).into_owned();
        let count = text
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        count.unwrap().trim().parse::<usize>().unwrap()
    };
    let before = came();
    for _ in 0..20 {
        assert_eq!(call(&mut client, "GET long"), bulk(&long));
        // It uses another connection than the one that is dedicated to the long reply.
        assert_eq!(call(&mut client, "STRLEN long"), Value::Integer(1 << 20));
    }
    let more = came() - before;
    assert!(more < 6, "{more} connections");
}

#[test]
fn what_has_come_of_a_long_bulk_goes_on_though_the_rest_is_late() {
    const FIRST: usize = 80_000;
    const SECOND: usize = 1_000;
    let (go, goes) = std::sync::mpsc::channel::<()>();
    let goes = std::sync::Mutex::new(goes);
    // It sends a little more of a long value, and the rest only after that has arrived.
    let late = until_set(move |mut stream| {
        let value = vec![b'v'; VALUE_BYTES];
        write!(stream, "${VALUE_BYTES}\r\n").unwrap();
        stream.write_all(&value[..FIRST]).unwrap();
        for until in [FIRST + SECOND, VALUE_BYTES] {
            goes.lock().unwrap().recv().unwrap();
            let from = if until == VALUE_BYTES {
                FIRST + SECOND
            } else {
                FIRST
            };
            stream.write_all(&value[from..until]).unwrap();
        }
        stream.write_all(b"\r\n").unwrap();
        thread::sleep(PATIENCE);
    });
    let proxy = proxy_with(&format!("threads = 1\n{}", pool(late)));
    let mut client = TcpStream::connect(proxy.address()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"GETSET k SET\r\n").unwrap();
    assert_eq!(line(&mut client), format!("${VALUE_BYTES}"));
    let mut piece = vec![0; VALUE_BYTES];
    client.read_exact(&mut piece[..FIRST]).unwrap();
    go.send(()).unwrap();
    client.read_exact(&mut piece[..SECOND]).unwrap();
    go.send(()).unwrap();
    client
        .read_exact(&mut piece[..VALUE_BYTES - FIRST - SECOND])
        .unwrap();
    client.read_exact(&mut piece[..2]).unwrap();
    assert_eq!(&piece[..2], b"\r\n");
}

#[test]
fn a_large_value_counts_as_a_call_of_its_own_command() {
    let server = server();
    let proxy = proxy_with(&format!("threads = 1\n{}", pool(server.address())));
    let mut client = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut client, "EXISTS k"), Value::Integer(0));
    // It is passed through in pieces.
    let value = "x".repeat(1 << 20);
    assert_eq!(client.call(&["SET", "k", &value]).unwrap(), ok());
    let info = call(&mut client, "INFO commandstats");
    let text = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
    for command in ["set", "exists"] {
        let counted = format!("cmdstat_{command}:calls=1,");
        assert!(text.contains(&counted), "{text}");
    }
}
