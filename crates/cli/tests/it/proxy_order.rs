//! The order of one client's requests when a server refuses some of them for a moment, or when they use several
//! connections: none passes a later one with the same key.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use redline_resp::Value;
use redline_testkit::client::{Client, encode};

use crate::proxying::{
    Behind, assert_error, bulk, call, failed_calls, ok, proxy_with, scripted, scripted_over, shards,
};

/// A server with a few keys that is loading for its first requests, and its executed calls.
struct Loading {
    address: SocketAddr,
    executed: Arc<Mutex<Vec<String>>>,
}

impl Loading {
    /// Returns a server that refuses this many requests.
    fn new(refused: usize, error: &'static str) -> Loading {
        let executed = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&executed);
        let left = Mutex::new(refused);
        let address = scripted(move |words| {
            let text: Vec<String> = words
                .iter()
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect();
            if !matches!(text[0].as_str(), "SET" | "GET" | "MGET") {
                return b"+PONG\r\n".to_vec();
            }
            let mut left = left.lock().unwrap();
            if *left > 0 {
                *left -= 1;
                return format!("-{error}\r\n").into_bytes();
            }
            log.lock().unwrap().push(text.join(" "));
            match text[0].as_str() {
                "MGET" => b"*1\r\n$1\r\nv\r\n".to_vec(),
                _ => b"+OK\r\n".to_vec(),
            }
        });
        Loading { address, executed }
    }

    /// Returns the replies to these requests, sent in one piece through a proxy, and the order in which they were
    /// executed.
    fn ask(&self, lines: &[&str]) -> (Vec<Value>, Vec<String>) {
        let address = self.address;
        let proxy = proxy_with(&format!(
            "threads = 1\n[[pool]]\n[[pool.shard]]\nserver = [{{ address = '{address}' }}]\n"
        ));
        let mut client = Client::connect(proxy.address()).unwrap();
        let mut requests = Vec::new();
        for line in lines {
            encode(&line.split(' ').collect::<Vec<_>>(), &mut requests);
        }
        client.send(&requests).unwrap();
        let replies = lines.iter().map(|_| client.reply().unwrap().unwrap());
        let replies: Vec<Value> = replies.collect();
        let failed = replies.iter().filter(|reply| reply.is_error()).count();
        assert_eq!(failed_calls(&mut client, ""), failed);
        (replies, self.executed.lock().unwrap().clone())
    }
}

const LOADING: &str = "LOADING Redis is loading the dataset in memory";
const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";

#[test]
fn a_refused_request_is_not_made_behind_a_later_one_of_its_key() {
    for error in [LOADING, TRY_AGAIN] {
        let server = Loading::new(1, error);
        let (replies, executed) = server.ask(&["SET a 1", "SET a 2", "SET b 3"]);
        assert_error(&replies[0], error);
        assert_eq!(replies[1..], [ok(), ok()]);
        assert_eq!(executed, ["SET a 2", "SET b 3"]);
    }
}

#[test]
fn a_refused_request_whose_keys_nobody_used_is_made_again() {
    let server = Loading::new(2, LOADING);
    let (replies, executed) = server.ask(&["SET a 1", "SET b 2", "SET c 3"]);
    assert_eq!(replies, [ok(), ok(), ok()]);
    assert_eq!(executed, ["SET c 3", "SET a 1", "SET b 2"]);
}

#[test]
fn requests_that_are_all_refused_are_made_in_their_order() {
    // Twice: a retry that is refused is repeated.
    let server = Loading::new(8, LOADING);
    let lines = ["SET a 1", "SET b 1", "SET a 2", "GET a"];
    let (replies, executed) = server.ask(&lines);
    assert_eq!(replies, [ok(), ok(), ok(), ok()]);
    assert_eq!(executed, lines);
}

#[test]
fn scripts_are_there_before_their_first_call_on_a_connection() {
    let behind = Behind::new(1, 1);
    let mut client = behind.client();
    let mut direct = Client::connect(behind.servers[0].address()).unwrap();
    let mut load = Vec::new();
    encode(
        &["SCRIPT", "LOAD", "return redis.call('GET',KEYS[1])"],
        &mut load,
    );
    client.send(&load).unwrap();
    let loaded = client.reply().unwrap().unwrap();
    let sha = String::from_utf8(loaded.as_bytes().unwrap().to_vec()).unwrap();
    let mut requests = Vec::new();
    for words in [
        &["SET", "k", "1"][..],
        &["EVALSHA", &sha, "1", "k"],
        &["SET", "k", "2"],
    ] {
        encode(words, &mut requests);
    }
    let ask = |client: &mut Client| {
        client.send(&requests).unwrap();
        [0; 3].map(|_| client.reply().unwrap().unwrap())
    };
    // The server has lost its scripts, and the connections with them.
    assert_eq!(call(&mut direct, "SCRIPT FLUSH"), ok());
    call(&mut direct, "CLIENT KILL TYPE normal SKIPME yes");
    let was_lost = |reply: &Value| reply.is_error();
    let mut replies = ask(&mut client);
    if was_lost(&replies[0]) {
        // It had not noticed that yet.
        replies = ask(&mut client);
    }
    assert_eq!(replies, [ok(), bulk("1"), ok()]);
    // Only the scripts: the later call with its key comes first, so it is not repeated.
    assert_eq!(call(&mut direct, "SCRIPT FLUSH"), ok());
    let replies = ask(&mut client);
    assert_error(&replies[1], "NOSCRIPT");
    assert_eq!([&replies[0], &replies[2]], [&ok(), &ok()]);
    // A single one is.
    assert_eq!(call(&mut client, &format!("EVALSHA {sha} 1 k")), bulk("2"));
    assert_eq!(ask(&mut client), [ok(), bulk("1"), ok()]);
}

/// Events so far, with a condition variable for threads that wait for one.
#[derive(Default)]
struct Happened {
    words: Mutex<Vec<&'static str>>,
    more: Condvar,
}

impl Happened {
    fn note(&self, word: &'static str) {
        self.words.lock().unwrap().push(word);
        self.more.notify_all();
    }

    fn wait(&self, word: &str) {
        let words = self.words.lock().unwrap();
        let lacks = |words: &mut Vec<&'static str>| !words.contains(&word);
        let patience = Duration::from_secs(10);
        drop(
            self.more
                .wait_timeout_while(words, patience, lacks)
                .unwrap(),
        );
    }
}

/// A long reply gets a dedicated connection while a client with a request behind it waits for something else (here: for
/// its pipeline to get shorter). Its next request uses another connection, so it has to wait for all before.
#[test]
fn a_request_does_not_pass_one_that_waits_behind_a_long_reply() {
    const HALF: usize = 300_000;
    let happened = Arc::new(Happened::default());
    let seen = Arc::clone(&happened);
    let address = scripted_over(move |words, stream| {
        let all = words.join(&b' ');
        let reply = match all.as_slice() {
            b"GET long" => {
                let mut first = format!("${}\r\n", 2 * HALF).into_bytes();
                first.resize(first.len() + HALF, b'v');
                stream.write_all(&first).ok()?;
                seen.wait("the first half is there");
                let mut second = vec![b'v'; HALF];
                second.extend_from_slice(b"\r\n");
                return Some(second);
            }
            b"SET k 1" => {
                // Asked for over another connection, which is read while this one is stopped.
                seen.wait("GET other");
                seen.note("SET k 1");
                &b"+OK\r\n"[..]
            }
            b"SET k 2" => {
                seen.note("SET k 2");
                b"+OK\r\n"
            }
            b"GET other" => {
                seen.note("GET other");
                b"$-1\r\n"
            }
            _ => b"+PONG\r\n",
        };
        Some(reply.to_vec())
    });
    let proxy = proxy_with(&format!(
        "threads = 1\nlimits = {{ pipeline = 2 }}\n[[pool]]\n{}",
        shards(&[address])
    ));
    let mut client = TcpStream::connect(proxy.address()).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut requests = Vec::new();
    for words in [&["GET", "long"][..], &["SET", "k", "1"], &["SET", "k", "2"]] {
        encode(words, &mut requests);
    }
    client.write_all(&requests).unwrap();
    let head = format!("${}\r\n", 2 * HALF).len();
    let mut reply = vec![0; head + HALF];
    client.read_exact(&mut reply).unwrap();
    happened.note("the first half is there");
    reply.resize(HALF + 2, 0);
    client.read_exact(&mut reply).unwrap();
    // By now the proxy handles the client's next request, if it does not wait for the rest.
    let mut other = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut other, "GET other"), Value::NullBulk);
    reply.resize(10, 0);
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply, b"+OK\r\n+OK\r\n");
    let words = happened.words.lock().unwrap();
    let at = |word: &str| words.iter().position(|known| *known == word).unwrap();
    assert!(at("SET k 1") < at("SET k 2"), "{words:?}");
}

/// Two nodes of a cluster, the first of which had all slots and gives them away. Its earlier requests are redirected,
/// and must not be executed after one that goes to the other node at once, since another client was redirected first.
#[test]
fn a_request_that_is_redirected_is_not_passed_by_one_that_knows_the_way() {
    let happened = Arc::new(Happened::default());
    let owner: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
    let map = |owner: &Mutex<Option<SocketAddr>>, words: &[Vec<u8>]| {
        let text = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let port = owner.lock().unwrap().map_or(0, |owner| owner.port());
        match words
            .get(1)
            .map(|word| word.to_ascii_uppercase())
            .as_deref()
        {
            Some(b"INFO") => text("cluster_state:ok\r\ncluster_current_epoch:1\r\n"),
            Some(b"SLOTS") => format!(
                "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n{}:{port}\r\n{}",
                text("127.0.0.1"),
                text("id")
            ),
            _ => "*0\r\n".to_owned(),
        }
    };
    let (seen, place) = (Arc::clone(&happened), Arc::clone(&owner));
    let second = scripted(move |words| {
        match words.join(&b' ').as_slice() {
            b"SET k 1" => seen.note("SET k 1"),
            b"SET k 2" => seen.note("SET k 2"),
            b"GET k" => seen.note("GET k"),
            b"HELLO 3" => return b"%0\r\n".to_vec(),
            _ if words[0] == b"CLUSTER" => return map(&place, words).into_bytes(),
            _ => return b"+PONG\r\n".to_vec(),
        }
        b"+OK\r\n".to_vec()
    });
    let (seen, place) = (Arc::clone(&happened), Arc::clone(&owner));
    let first = scripted(move |words| {
        let moved = format!("-MOVED 7629 127.0.0.1:{}\r\n", second.port());
        match words.join(&b' ').as_slice() {
            b"SET k 1" => {
                seen.note("asked");
                seen.wait("all is sent");
                moved.into_bytes()
            }
            b"GET k" | b"SET k 2" => {
                *place.lock().unwrap() = Some(second);
                moved.into_bytes()
            }
            b"HELLO 3" => b"%0\r\n".to_vec(),
            _ if words[0] == b"CLUSTER" => map(&place, words).into_bytes(),
            _ => b"+PONG\r\n".to_vec(),
        }
    });
    *owner.lock().unwrap() = Some(first);
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\nkind = 'cluster'\nseed = [{{ address = '{first}' }}, {{ address = '{second}' }}]\n"
    ));
    let mut client = Client::connect(proxy.address()).unwrap();
    let mut set = Vec::new();
    encode(&["SET", "k", "1"], &mut set);
    client.send(&set).unwrap();
    happened.wait("asked");
    // In RESP3, so over another connection: it is redirected at once, and the route is known.
    let mut other = Client::connect(proxy.address()).unwrap();
    call(&mut other, "HELLO 3");
    assert_eq!(call(&mut other, "GET k"), ok());
    let mut set = Vec::new();
    encode(&["SET", "k", "2"], &mut set);
    client.send(&set).unwrap();
    // Requests that the proxy has read of the client by now are at the second node, if it does not wait.
    let mut third = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut third, "GET k"), ok());
    happened.note("all is sent");
    assert_eq!(client.reply().unwrap(), Some(ok()));
    assert_eq!(client.reply().unwrap(), Some(ok()));
    let words = happened.words.lock().unwrap();
    let at = |word: &str| words.iter().position(|known| *known == word).unwrap();
    assert!(at("SET k 1") < at("SET k 2"), "{words:?}");
}

/// Returns a server that keeps one key. It refuses each of these requests, by name, once: with an error, or by closing (`None`).
fn keeps_one(refused: &[(&'static str, Option<&'static str>)]) -> SocketAddr {
    let refused = Mutex::new(refused.to_vec());
    let value = Mutex::new(String::new());
    scripted_over(move |words, _| {
        let text = |at: usize| String::from_utf8_lossy(&words[at]).into_owned();
        let name = text(0);
        if !matches!(&name[..], "SET" | "GET" | "EVALSHA" | "SCRIPT") {
            return Some(b"+PONG\r\n".to_vec());
        }
        let mut refused = refused.lock().unwrap();
        if let Some(at) = refused.iter().position(|(of, _)| *of == name) {
            let (_, error) = refused.remove(at);
            return error.map(|error| format!("-{error}\r\n").into_bytes());
        }
        let mut value = value.lock().unwrap();
        match &name[..] {
            "SET" => *value = text(2),
            "EVALSHA" => *value = text(4),
            "GET" => return Some(format!("+{value}\r\n").into_bytes()),
            _ => {}
        }
        Some(b"+OK\r\n".to_vec())
    })
}

fn simple(text: &str) -> Option<Value> {
    Some(Value::Simple(text.as_bytes().to_vec()))
}

#[test]
fn a_request_that_comes_back_twice_stays_in_front_of_what_follows_it() {
    // Its script is gone again when it is sent for the second time.
    let address = keeps_one(&[
        ("EVALSHA", Some("NOSCRIPT No matching script.")),
        ("SET", Some("LOADING the server is loading")),
        ("EVALSHA", Some("NOSCRIPT No matching script.")),
    ]);
    let proxy = proxy_with(&format!("threads = 1\n[[pool]]\n{}", shards(&[address])));
    let mut client = Client::connect(proxy.address()).unwrap();
    let script = "return redis.call('SET',KEYS[1],ARGV[1])";
    assert!(!client.call(&["SCRIPT", "LOAD", script]).unwrap().is_error());
    let sha = "cf63a54c34e159e75e5a3fe4794bb2ea636ee005";
    let mut requests = Vec::new();
    encode(&["EVALSHA", sha, "1", "k", "first"], &mut requests);
    encode(&["SET", "k", "second"], &mut requests);
    client.send(&requests).unwrap();
    assert_eq!(client.reply().unwrap(), simple("OK"));
    assert_eq!(client.reply().unwrap(), simple("OK"));
    assert_eq!(Some(call(&mut client, "GET k")), simple("second"));
}

#[test]
fn what_a_lost_connection_sends_back_does_not_pass_what_was_refused_before() {
    let address = keeps_one(&[
        ("SET", Some("LOADING the server is loading")),
        ("GET", None),
    ]);
    let proxy = proxy_with(&format!("threads = 1\n[[pool]]\n{}", shards(&[address])));
    let mut client = Client::connect(proxy.address()).unwrap();
    let mut requests = Vec::new();
    encode(&["SET", "k", "1"], &mut requests);
    encode(&["GET", "k"], &mut requests);
    client.send(&requests).unwrap();
    assert_eq!(client.reply().unwrap(), simple("OK"));
    assert_eq!(client.reply().unwrap(), simple("1"));
}
