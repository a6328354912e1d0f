//! Time-outs of the proxy: clients that do not read, servers that fall silent, seeds that are no cluster.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redline_resp::Value;
use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

use crate::proxying::{self, REDLINE, assert_error, call, ok, proxy_with, scripted, signal, until};

const PATIENCE: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;

fn server() -> ServerProcess {
    ServerProcess::redline(Path::new(REDLINE), 1, &[]).expect("a server starts")
}

fn pool_of(server: SocketAddr) -> String {
    format!("[[pool]]\n[[pool.shard]]\nserver = [{{ address = '{server}' }}]\n")
}

/// Returns the number of the proxy's clients.
fn clients(watcher: &mut Client) -> usize {
    let Value::Bulk(list) = call(watcher, "CLIENT LIST") else {
        panic!("a list");
    };
    list.iter().filter(|&&byte| byte == b'\n').count()
}

#[test]
fn a_client_that_takes_nothing_of_a_long_reply_is_let_go_and_a_slow_one_is_not() {
    let server = server();
    let proxy = proxy_with(&format!(
        "threads = 1\n[timeouts]\nreader = '4s'\n{}",
        pool_of(server.address())
    ));
    let mut direct = Client::connect(server.address()).unwrap();
    let value = vec![b'v'; 24 * MIB];
    let mut set = Vec::new();
    encode(&[&b"SET"[..], b"large", &value], &mut set);
    direct.send(&set).unwrap();
    assert_eq!(direct.reply().unwrap(), Some(ok()));
    let mut watcher = Client::connect(proxy.address()).unwrap();
    let ask = || {
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
            .write_all(b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n")
            .unwrap();
        client
    };
    // One reads on, a little at a time, for longer than the limit.
    let mut slow = ask();
    let reads = thread::spawn(move || {
        let (began, mut got) = (Instant::now(), 0);
        let mut piece = vec![0; MIB];
        while got < 24 * MIB + 13 {
            let read = slow.read(&mut piece).unwrap();
            assert!(read > 0, "it was cut at {got}");
            got += read;
            let due = Duration::from_secs(6) * (got / MIB) as u32 / 24;
            thread::sleep(due.saturating_sub(began.elapsed()));
        }
        began.elapsed()
    });
    let silent = ask();
    until("both are there", || clients(&mut watcher) == 3);
    assert!(reads.join().unwrap() > Duration::from_secs(5));
    until("the silent one is let go", || clients(&mut watcher) == 1);
    drop(silent);
    until("the log says why", || {
        proxy.log().contains("timeouts.reader")
    });
}

/// A long reply has a dedicated connection, so that others are not delayed, and nothing is buffered for its slow reader.
#[test]
fn however_often_subscriptions_had_to_move_a_slow_reader_gets_its_long_reply() {
    // More often than a server may have such connections at a time.
    const MOVES: usize = 70;
    let servers = [server(), server()];
    let [one, two] = servers.each_ref().map(ServerProcess::address);
    let proxy = proxy_with(&format!(
        "threads = 1\n[limits]\noutput-buffer = '4mb'\n{}",
        pool_of(one)
    ));
    let mut direct = [one, two].map(|server| Client::connect(server).unwrap());
    let mut set = Vec::new();
    encode(&[&b"SET"[..], b"large", &vec![b'v'; 24 * MIB]], &mut set);
    direct[0].send(&set).unwrap();
    assert_eq!(direct[0].reply().unwrap(), Some(ok()));
    let mut subscriber = Client::connect(proxy.address()).unwrap();
    assert!(!call(&mut subscriber, "SUBSCRIBE c").is_error());
    let mut client = Client::connect(proxy.address()).unwrap();
    let file = fs::read_to_string(proxy.config_file()).unwrap();
    let other = file.replace(&one.to_string(), &two.to_string());
    let heard = Value::Array(vec![Value::Bulk(b"c".to_vec()), Value::Integer(1)]);
    for _ in 0..MOVES {
        for (text, direct) in [&other, &file].into_iter().zip(direct.iter_mut().rev()) {
            fs::write(proxy.config_file(), text).unwrap();
            assert_eq!(call(&mut client, "CONFIG RELOAD"), ok());
            until("it is subscribed there", || {
                call(direct, "PUBSUB NUMSUB c") == heard
            });
        }
    }
    let mut slow = TcpStream::connect(proxy.address()).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    slow.write_all(b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n")
        .unwrap();
    slow.read_exact(&mut [0; 1000]).unwrap();
    // By its end the proxy has been offered more than it may hold.
    for _ in 0..1000 {
        assert_eq!(
            call(&mut client, "STRLEN large"),
            Value::Integer((24 * MIB) as i64)
        );
    }
    let mut rest = vec![0; 24 * MIB + 13 - 1000];
    slow.read_exact(&mut rest).expect("all of it");
}

/// Returns a server that answers PING, confirms a subscription, and then is silent on that connection.
fn falls_silent(subscriptions: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, subscriptions) = (stream.unwrap(), Arc::clone(&subscriptions));
            thread::spawn(move || {
                let mut piece = [0; 4096];
                let mut is_silent = false;
                while let Ok(read @ 1..) = stream.read(&mut piece) {
                    let text = String::from_utf8_lossy(&piece[..read]).into_owned();
                    let answer: &[u8] = match text.contains("SUBSCRIBE") {
                        _ if is_silent => b"",
                        true => {
                            is_silent = true;
                            subscriptions.fetch_add(1, Ordering::SeqCst);
                            b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
                        }
                        false => b"+PONG\r\n",
                    };
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_subscription_whose_server_falls_silent_is_made_anew() {
    let subscriptions = Arc::new(AtomicUsize::new(0));
    let address = falls_silent(Arc::clone(&subscriptions));
    let proxy = proxy_with(&format!("threads = 1\n{}", pool_of(address)));
    let mut client = Client::connect(proxy.address()).unwrap();
    assert!(!call(&mut client, "SUBSCRIBE c").is_error());
    assert_eq!(subscriptions.load(Ordering::SeqCst), 1);
    until("it is asked for again", || {
        subscriptions.load(Ordering::SeqCst) == 2
    });
    // The client was not affected.
    assert!(!call(&mut client, "PING").is_error());
}

#[test]
fn a_seed_that_is_no_cluster_is_named_once_with_what_it_says() {
    let server = server();
    let address = server.address();
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\nkind = 'cluster'\nrefresh = '100ms'\nseed = [{{ address = '{address}' }}]\n"
    ));
    let mut direct = Client::connect(address).unwrap();
    let line = format!("{address} says: ERR");
    until("it is asked again and again", || {
        let stats = call(&mut direct, "INFO errorstats");
        let text = String::from_utf8_lossy(stats.as_bytes().unwrap()).into_owned();
        let count = text
            .lines()
            .find_map(|line| line.strip_prefix("errorstat_ERR:count="));
        count.is_some_and(|count| count.trim().parse::<usize>().unwrap() > 12)
    });
    assert_eq!(proxy.log().matches(&line).count(), 1, "{}", proxy.log());
    let mut client = Client::connect(proxy.address()).unwrap();
    assert_error(&call(&mut client, "GET k"), "CLUSTERDOWN");
}

#[test]
fn what_counts_writes_of_a_connection_is_answered_for_no_server_and_else_says_why_not() {
    let behind = proxying::Behind::new(1, 1);
    let mut client = behind.client();
    let zero = Value::Integer(0);
    let zeros = || Value::Array(vec![Value::Integer(0), Value::Integer(0)]);
    assert_eq!(call(&mut client, "SET k v"), ok());
    // Redisson's locks call this without replicas.
    assert_eq!(call(&mut client, "WAIT 0 0"), zero);
    assert_eq!(call(&mut client, "WAIT -1 10"), zero);
    assert_eq!(call(&mut client, "WAITAOF 0 0 10"), zeros());
    for line in ["WAIT 1 10", "WAITAOF 1 0 10", "WAITAOF 0 1 10"] {
        let refused = call(&mut client, line);
        let text = String::from_utf8_lossy(refused.as_bytes().unwrap()).into_owned();
        assert!(
            refused.is_error() && text.contains("own connection"),
            "{text}"
        );
    }
    for (line, error) in [
        ("WAIT x 0", "ERR value is not an integer or out of range"),
        ("WAIT 0 x", "ERR timeout is not an integer or out of range"),
        ("WAIT 1 -1", "ERR timeout is negative"),
        (
            "WAITAOF 2 0 0",
            "ERR value is out of range, value must between 0 and 1",
        ),
        (
            "WAITAOF 0 -1 0",
            "ERR value is out of range, must be positive",
        ),
    ] {
        assert_error(&call(&mut client, line), error);
    }
    // In a transaction the server answers, and does not wait.
    assert_eq!(call(&mut client, "MULTI"), ok());
    for line in ["SET k w", "WAIT 0 0", "WAITAOF 0 0 0"] {
        assert_eq!(call(&mut client, line), Value::Simple("QUEUED".into()));
    }
    let all = Value::Array(vec![ok(), Value::Integer(0), zeros()]);
    assert_eq!(call(&mut client, "EXEC"), all);
    assert_eq!(call(&mut client, "MULTI"), ok());
    assert_error(&call(&mut client, "WAIT 1 0"), "ERR 'wait' is not");
    assert_error(&call(&mut client, "EXEC"), "EXECABORT");
}

#[test]
fn a_transaction_whose_server_hangs_ends_and_a_call_that_waits_does_not() {
    let address = scripted(|words| match words[0].as_slice() {
        b"PING" => b"+PONG\r\n".to_vec(),
        b"MULTI" => b"+OK\r\n".to_vec(),
        b"SET" => b"+QUEUED\r\n".to_vec(),
        // EXEC and BLPOP are never answered.
        _ => Vec::new(),
    });
    let proxy = proxy_with(&format!(
        "threads = 1\n[timeouts]\nrequest = '300ms'\n{}",
        pool_of(address)
    ));
    let mut waits = TcpStream::connect(proxy.address()).unwrap();
    waits
        .write_all(b"*3\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n$1\r\n0\r\n")
        .unwrap();
    let mut client = Client::connect(proxy.address()).unwrap();
    for _ in 0..2 {
        assert_eq!(call(&mut client, "MULTI"), ok());
        let queued = Value::Simple(b"QUEUED".to_vec());
        assert_eq!(call(&mut client, "SET k v"), queued);
        let lost = call(&mut client, "EXEC");
        let text = String::from_utf8_lossy(lost.as_bytes().unwrap()).into_owned();
        assert!(
            text.contains("outcome of this command is unknown"),
            "{text}"
        );
    }
    // Both of these took longer than the limit, and began later.
    waits.set_nonblocking(true).unwrap();
    let heard = waits.read(&mut [0; 16]);
    assert_eq!(heard.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn who_asks_for_nothing_is_let_go_though_it_watches_and_who_waits_is_not() {
    let server = server();
    let proxy = proxy_with(&format!(
        "threads = 1\n[timeouts]\nclient-idle = '1s'\n{}",
        pool_of(server.address())
    ));
    let connect = || {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    // Waiting clients came first: they would be closed first.
    let mut waiting = [
        ("BLPOP q 0", ""),
        ("SUBSCRIBE c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"),
        ("MONITOR", "+OK\r\n"),
    ]
    .map(|(line, reply)| (connect(), line, reply));
    for (stream, line, reply) in &mut waiting {
        stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut read = vec![0; reply.len()];
        stream.read_exact(&mut read).unwrap();
        assert_eq!(String::from_utf8_lossy(&read), *reply, "{line}");
    }
    let idle = ["PING", "WATCH k", "MULTI"].map(|line| (connect(), line));
    for (stream, line) in &idle {
        (&*stream)
            .write_all(format!("{line}\r\n").as_bytes())
            .unwrap();
    }
    for (mut stream, line) in idle {
        let mut all = Vec::new();
        let read = stream.read_to_end(&mut all);
        assert!(read.is_ok(), "{line}: {read:?}");
    }
    let mut client = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut client, "PUBLISH c m"), Value::Integer(1));
    assert_eq!(call(&mut client, "RPUSH q v"), Value::Integer(1));
    for (stream, line, _) in &mut waiting {
        assert_ne!(stream.read(&mut [0; 256]).unwrap(), 0, "{line}");
    }
}

#[test]
fn a_call_that_waits_for_so_long_is_not_waited_for_much_longer() {
    let address = scripted(|words| match words[0].as_slice() {
        b"PING" => b"+PONG\r\n".to_vec(),
        // Blocking calls are never answered, though the server is well.
        _ => Vec::new(),
    });
    let proxy = proxy_with(&format!(
        "threads = 1\n[timeouts]\nrequest = '300ms'\n{}",
        pool_of(address)
    ));
    let calls = [
        "BLPOP k 0.4",
        "BRPOPLPUSH k k .4",
        "BLMOVE k k LEFT LEFT 0.4",
        "BZPOPMIN k 4e-1",
        "BLMPOP 0.4 1 k LEFT",
        "BZMPOP 0.4 1 k MIN",
        "XREAD COUNT 1 block 400 STREAMS k $",
        "XREADGROUP GROUP g c BLOCK 400 STREAMS k >",
    ];
    // Each on a connection of its own, all at once.
    let waiting = calls.map(|line| {
        let mut client = Client::connect(proxy.address()).unwrap();
        let began = Instant::now();
        client.send(format!("{line}\r\n").as_bytes()).unwrap();
        (line, began, client)
    });
    for (line, began, mut client) in waiting {
        let lost = client.reply().unwrap().expect("a reply");
        let text = String::from_utf8_lossy(lost.as_bytes().unwrap()).into_owned();
        assert!(text.contains("did not answer in time"), "{line}: {text}");
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(700), "{line}: {took:?}");
    }
}

#[test]
fn who_says_that_nothing_more_will_come_and_then_begins_to_wait_does_not_wait_for_ever() {
    let (is_asked, may_answer) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (asked, answers) = (Arc::clone(&is_asked), Arc::clone(&may_answer));
    let is_so = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
    let address = scripted(move |words| match words[0].as_slice() {
        b"MULTI" => b"+OK\r\n".to_vec(),
        b"SET" => b"+QUEUED\r\n".to_vec(),
        b"EXEC" => {
            asked.store(true, Ordering::SeqCst);
            until("the client is heard", || is_so(&answers));
            b"*1\r\n+OK\r\n".to_vec()
        }
        b"BLPOP" => Vec::new(),
        _ => b"+PONG\r\n".to_vec(),
    });
    let proxy = proxy_with(&format!("threads = 1\n{}", pool_of(address)));
    let mut client = TcpStream::connect(proxy.address()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut requests = Vec::new();
    for words in [&["MULTI"][..], &["SET", "k", "v"], &["EXEC"]] {
        encode(words, &mut requests);
    }
    client.write_all(&requests).unwrap();
    until("the server is asked", || is_so(&is_asked));
    // Nothing more is read of the client before that is answered: later bytes are read with its end.
    requests.clear();
    encode(&["BLPOP", "q", "0"], &mut requests);
    client.write_all(&requests).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut other = Client::connect(proxy.address()).unwrap();
    assert!(!call(&mut other, "PING").is_error());
    may_answer.store(true, Ordering::SeqCst);
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("an end");
    assert_eq!(all, b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
}

#[test]
fn who_waits_for_what_may_never_come_holds_up_no_end() {
    let server = server();
    let proxy = proxy_with(&format!(
        "threads = 2\n[timeouts]\ndrain = 'off'\n{}",
        pool_of(server.address())
    ));
    let mut direct = Client::connect(server.address()).unwrap();
    let mut waiting: Vec<Client> = (0..4)
        .map(|_| Client::connect(proxy.address()).unwrap())
        .collect();
    for client in &mut waiting {
        client
            .send(b"BLPOP q 0\r\n")
            .expect("the proxy takes requests");
    }
    until("all wait", || {
        let info = call(&mut direct, "INFO clients");
        let info = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
        info.contains("blocked_clients:4\r\n")
    });
    assert!(proxy.stop().unwrap());
    for client in &mut waiting {
        assert_eq!(client.reply().unwrap(), None);
    }
}

/// Of `SUBSCRIBE y x` refuses the first, and is slow with the second: confirms it after the second request, and then
/// sends a message to subscribers of `z`. Later requests are executed after the one for `w`.
fn refuses_one_of_two(words: &[Vec<u8>], asked: &AtomicUsize) -> Vec<u8> {
    let says = |what: &str, name: &str| {
        let len = what.len();
        format!("*3\r\n${len}\r\n{what}\r\n$1\r\n{name}\r\n:1\r\n").into_bytes()
    };
    let name = words.get(1).map_or(&b""[..], |name| name);
    match (words[0].as_slice(), name) {
        (b"SUBSCRIBE", b"y") => b"-NOPERM not this one\r\n".to_vec(),
        (b"SUBSCRIBE", b"x") => match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Vec::new(),
            _ => {
                let message = b"*3\r\n$7\r\nmessage\r\n$1\r\nz\r\n$4\r\nnews\r\n";
                [says("subscribe", "x"), message.to_vec()].concat()
            }
        },
        (b"SUBSCRIBE", b"w") => [
            says("unsubscribe", "x"),
            says("subscribe", "x"),
            says("subscribe", "w"),
        ]
        .concat(),
        (b"SUBSCRIBE", _) => says("subscribe", "z"),
        (b"UNSUBSCRIBE", _) => Vec::new(),
        _ => b"+PONG\r\n".to_vec(),
    }
}

#[test]
fn a_subscription_is_answered_when_its_own_question_is() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&asked);
    let address = scripted(move |words| refuses_one_of_two(words, &counts));
    let proxy = proxy_with(&format!("threads = 1\n{}", pool_of(address)));
    let [mut client, mut behind] = [(); 2].map(|()| Client::connect(proxy.address()).unwrap());
    assert!(!call(&mut behind, "SUBSCRIBE z").is_error());
    assert_error(&call(&mut client, "SUBSCRIBE y x"), "NOPERM");
    let mut hears = TcpStream::connect(proxy.address()).unwrap();
    hears.write_all(b"SUBSCRIBE x\r\n").unwrap();
    until("the server is asked again", || {
        asked.load(Ordering::SeqCst) == 2
    });
    // Over the same connection from the server, so this comes after its first reply about `x`.
    assert!(!behind.reply().unwrap().unwrap().is_error());
    hears.set_nonblocking(true).unwrap();
    let heard = hears.read(&mut [0; 16]);
    assert_eq!(heard.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    assert!(!call(&mut client, "SUBSCRIBE w").is_error());
    hears.set_nonblocking(false).unwrap();
    hears.set_read_timeout(Some(PATIENCE)).unwrap();
    hears.read_exact(&mut [0; 16]).expect("the second answer");
}

#[test]
fn how_many_calls_may_wait_is_for_the_configuration_to_say() {
    let server = ServerProcess::redline(Path::new(proxying::REDLINE), 1, &[]).unwrap();
    let proxy = proxy_with(&format!(
        "threads = 1\n[limits]\nprivate-connections = 2\n{}",
        pool_of(server.address())
    ));
    let mut direct = Client::connect(server.address()).unwrap();
    let mut waiting: Vec<Client> = (0..2)
        .map(|_| Client::connect(proxy.address()).unwrap())
        .collect();
    for client in &mut waiting {
        let mut request = Vec::new();
        encode(&["BLPOP", "k", "0"], &mut request);
        client.send(&request).unwrap();
    }
    until("both wait", || {
        let info = call(&mut direct, "INFO clients");
        String::from_utf8_lossy(info.as_bytes().unwrap()).contains("blocked_clients:2")
    });
    let mut third = Client::connect(proxy.address()).unwrap();
    let refused = call(&mut third, "BLPOP k 0");
    let text = String::from_utf8_lossy(refused.as_bytes().unwrap()).into_owned();
    assert!(
        refused.is_error() && text.contains("limits.private-connections"),
        "{text}"
    );
    assert_eq!(call(&mut third, "RPUSH k v w"), Value::Integer(2));
    for client in &mut waiting {
        assert!(matches!(client.reply(), Ok(Some(Value::Array(_)))));
    }
    // They use theirs no longer.
    assert_eq!(call(&mut third, "RPUSH k x"), Value::Integer(1));
    assert!(matches!(call(&mut third, "BLPOP k 0"), Value::Array(_)));
}

#[test]
fn who_connects_together_with_many_is_not_turned_away_while_the_proxy_is_busy() {
    // Connections beyond the system's backlog are dropped, and tried again after 1 s, 3 s, 7 s.
    let most = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let count = 800.min(most.trim().parse::<usize>().unwrap());
    let server = server();
    let proxy = proxy_with(&format!("threads = 1\n{}", pool_of(server.address())));
    signal(&proxy, "-STOP");
    let come = |_| TcpStream::connect_timeout(&proxy.address(), Duration::from_secs(5)).unwrap();
    let mut clients: Vec<TcpStream> = (0..count).map(come).collect();
    signal(&proxy, "-CONT");
    for client in &mut clients {
        client.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 7];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
    }
}
