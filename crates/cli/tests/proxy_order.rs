//! The order of one client's requests when a server refuses some of them for a moment: none passes a later one that has its
//! key.

mod proxying;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use redline_resp::Value;
use redline_testkit::client::{Client, encode};

use proxying::{Behind, assert_error, bulk, call, ok, proxy_with, scripted};

/// A server with a few keys that is loading for its first requests, and what it has executed.
struct Loading {
    address: SocketAddr,
    executed: Arc<Mutex<Vec<String>>>,
}

impl Loading {
    /// Refuses so many requests.
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

    /// What became of these requests, sent in one piece through a proxy, and in which order they were executed.
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
        (replies.collect(), self.executed.lock().unwrap().clone())
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
    // Twice over: what is refused again goes again.
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
        // It had not heard of that yet.
        replies = ask(&mut client);
    }
    assert_eq!(replies, [ok(), bulk("1"), ok()]);
    // Only the scripts: what was called behind it with its key comes first, so it is not made again.
    assert_eq!(call(&mut direct, "SCRIPT FLUSH"), ok());
    let replies = ask(&mut client);
    assert_error(&replies[1], "NOSCRIPT");
    assert_eq!([&replies[0], &replies[2]], [&ok(), &ok()]);
    // Alone it is.
    assert_eq!(call(&mut client, &format!("EVALSHA {sha} 1 k")), bulk("2"));
    assert_eq!(ask(&mut client), [ok(), bulk("1"), ok()]);
}
