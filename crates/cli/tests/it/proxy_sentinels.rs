//! Replies and messages of Sentinels to `redline proxy`: a switch, none, malformed ones.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use redline_testkit::client::Client;
use redline_testkit::process::ServerProcess;

use crate::proxying::{
    REDLINE, assert_error, bulk, call, ok, proxy_with, scripted, scripted_over, until,
};

/// Returns a pool that these Sentinels monitor.
fn watched_by(name: &str, sentinels: &[SocketAddr]) -> String {
    let sentinel = |address| format!("[[pool.sentinel]]\naddress = '{address}'\n");
    let sentinels: String = sentinels.iter().map(sentinel).collect();
    format!("[[pool]]\nname = '{name}'\nkind = 'sentinel'\n{sentinels}[[pool.shard]]\nname = 'm'\n")
}

/// Returns an array of bulk strings.
fn bulks(texts: &[&str]) -> Vec<u8> {
    let mut reply = format!("*{}\r\n", texts.len());
    for text in texts {
        reply += &format!("${}\r\n{text}\r\n", text.len());
    }
    reply.into_bytes()
}

/// Returns a Sentinel's description of the primary `m`.
fn master(at: SocketAddr) -> Vec<u8> {
    let port = at.port().to_string();
    let known = ["name", "m", "ip", "127.0.0.1", "port", &port];
    bulks(&[&known[..], &["flags", "master", "config-epoch", "1"]].concat())
}

/// Returns a word of a request in upper case.
fn upper(words: &[Vec<u8>], at: usize) -> String {
    let word = words.get(at).map_or(&b""[..], Vec::as_slice);
    String::from_utf8_lossy(word).to_ascii_uppercase()
}

fn server() -> ServerProcess {
    ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap()
}

#[test]
fn a_switch_is_learned_by_the_subscription_alone() {
    let servers = [server(), server()];
    let [old, new] = [servers[0].address(), servers[1].address()];
    for (server, who) in servers.iter().zip(["old", "new"]) {
        let mut direct = Client::connect(server.address()).unwrap();
        assert_eq!(call(&mut direct, &format!("SET who {who}")), ok());
    }
    // A Sentinel that always reports the old primary.
    let listeners: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    let heard = Arc::clone(&listeners);
    let sentinel = scripted_over(move |words, stream| {
        Some(match (upper(words, 0).as_str(), upper(words, 1).as_str()) {
            ("SUBSCRIBE", _) => {
                heard.lock().unwrap().push(stream.try_clone().unwrap());
                b"*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n".to_vec()
            }
            ("SENTINEL", "MASTER") => master(old),
            ("SENTINEL", _) => b"*0\r\n".to_vec(),
            _ => b"+PONG\r\n".to_vec(),
        })
    });
    let proxy = proxy_with(&watched_by("a", &[sentinel]));
    let mut client = Client::connect(proxy.address()).unwrap();
    until("the old primary is found", || {
        call(&mut client, "GET who") == bulk("old")
    });
    until("the Sentinel is listened to", || {
        !listeners.lock().unwrap().is_empty()
    });
    let said = format!("m 127.0.0.1 {} 127.0.0.1 {}", old.port(), new.port());
    let message = format!(
        "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n${}\r\n{said}\r\n",
        said.len()
    );
    for listener in listeners.lock().unwrap().iter_mut() {
        listener.write_all(message.as_bytes()).unwrap();
    }
    until("the new primary is asked", || {
        call(&mut client, "GET who") == bulk("new")
    });
    assert_eq!(call(&mut client, "SET written here"), ok());
    let mut direct = Client::connect(new).unwrap();
    assert_eq!(call(&mut direct, "GET written"), bulk("here"));
}

#[test]
fn where_no_primary_is_known_the_error_says_so_and_speaks_of_no_cluster() {
    let sentinel = scripted(|words| match upper(words, 0).as_str() {
        "SENTINEL" => b"-ERR No such master with that name\r\n".to_vec(),
        _ => b"+PONG\r\n".to_vec(),
    });
    let server = server();
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\nname = 'whole'\n[[pool.shard]]\nserver = [{{ address = '{}' }}]\n{}\n[[route]]\nprefix = 'm:'\npool = 'watched'\n",
        server.address(),
        watched_by("watched", &[sentinel]),
    ));
    let mut client = Client::connect(proxy.address()).unwrap();
    let told = "ERR upstream is not available: no Sentinel has named its primary yet";
    for line in [
        "GET m:k",
        "SET m:k v",
        "DEL m:k m:l",
        "BLPOP m:k 1",
        "EVAL return{} 1 m:k",
        "WATCH m:k",
        "COPY m:k m:l",
    ] {
        assert_error(&call(&mut client, line), told);
    }
    assert_eq!(call(&mut client, "MULTI"), ok());
    assert_error(&call(&mut client, "SET m:k v"), told);
    assert_error(&call(&mut client, "EXEC"), "EXECABORT");
    // Other pools are not affected.
    assert_eq!(call(&mut client, "SET k v"), ok());

    let proxy = proxy_with(&format!(
        "threads = 1\n{}",
        watched_by("watched", &[sentinel])
    ));
    let mut client = Client::connect(proxy.address()).unwrap();
    for line in [
        "GET k",
        "MGET k l",
        "DBSIZE",
        "RANDOMKEY",
        "SCAN 0",
        "SUBSCRIBE c",
        "SSUBSCRIBE c",
        "PUBLISH c m",
    ] {
        assert_error(&call(&mut client, line), told);
    }
}

#[test]
fn a_sentinel_that_talks_nonsense_is_asked_less_and_less_often() {
    let server = server();
    let primary = server.address();
    let good_asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&good_asked);
    let good = scripted(move |words| match upper(words, 1).as_str() {
        "MASTER" => {
            count.fetch_add(1, Ordering::SeqCst);
            master(primary)
        }
        "+SWITCH-MASTER" => bulks(&["subscribe", "+switch-master", "1"]),
        _ => b"*0\r\n".to_vec(),
    });
    let mut text = watched_by("good", &[good]);
    // All of them at once: the good one is asked no more often, whatever the others say.
    let odd = [
        &b"hello\r\n"[..],
        b"+OK\r\n",
        b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
    ]
    .map(|nonsense| {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let odd = scripted(move |words| {
            if ["MASTER", "+SWITCH-MASTER"].contains(&upper(words, 1).as_str()) {
                count.fetch_add(1, Ordering::SeqCst);
            }
            nonsense.to_vec()
        });
        text += &watched_by(&format!("odd{}", odd.port()), &[odd]);
        (nonsense, asked)
    });
    let _proxy = proxy_with(&format!("threads = 1\n{text}"));
    // That one is asked once a second.
    until("the good one is asked often", || {
        good_asked.load(Ordering::SeqCst) >= 6
    });
    for (nonsense, asked) in odd {
        let times = asked.load(Ordering::SeqCst);
        assert!(
            (2..40).contains(&times),
            "asked {times} times: {nonsense:?}"
        );
    }
}

#[test]
fn where_one_sentinel_takes_no_subscription_another_is_listened_to() {
    let server = server();
    let primary = server.address();
    for first in [true, false] {
        let subscribed: Arc<AtomicUsize> = Arc::default();
        let confirmed = Arc::clone(&subscribed);
        let sentinel = |takes: bool| {
            let confirmed = Arc::clone(&confirmed);
            scripted(move |words| match upper(words, 1).as_str() {
                "MASTER" => master(primary),
                "+SWITCH-MASTER" if takes => {
                    confirmed.fetch_add(1, Ordering::SeqCst);
                    bulks(&["subscribe", "+switch-master", "1"])
                }
                "+SWITCH-MASTER" => b"-NOPERM this user has no permissions\r\n".to_vec(),
                _ if words[0] == b"PING" => b"+PONG\r\n".to_vec(),
                _ => b"*0\r\n".to_vec(),
            })
        };
        let sentinels = [sentinel(first), sentinel(!first)];
        let _proxy = proxy_with(&format!("threads = 1\n{}", watched_by("a", &sentinels)));
        until("it is listened to", || {
            subscribed.load(Ordering::SeqCst) > 0
        });
    }
}
