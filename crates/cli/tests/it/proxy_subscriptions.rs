//! Subscriptions of clients with faulty or lost servers: each client gets a reply or an error, and its messages again
//! afterwards.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use redline_resp::Value;
use redline_testkit::client::Client;
use redline_testkit::process::ServerProcess;

use crate::proxying::{
    Behind, PATIENCE, assert_error, call, cluster_of_one, proxy_with, scripted, scripted_over,
    shards, until, words,
};

/// Returns a message for a name: `*3`, a word, the name, and one more element.
fn said(word: &str, name: &str, last: &str) -> Vec<u8> {
    let (of_word, of_name) = (word.len(), name.len());
    format!("*3\r\n${of_word}\r\n{word}\r\n${of_name}\r\n{name}\r\n{last}\r\n").into_bytes()
}

#[test]
fn who_subscribes_where_the_server_answers_with_nonsense_gets_an_error() {
    for nonsense in [
        &b":1\r\n"[..],
        b"+OK\r\n",
        b"$-1\r\n",
        b"$5\r\nhello\r\n",
        b"*-1\r\n",
        b"*1\r\n$5\r\nhello\r\n",
        b"*3\r\n$9\r\nsubscribe\r\n$5\r\nother\r\n:1\r\n",
        b"*3\r\n:1\r\n$-1\r\n*0\r\n",
        b"%1\r\n+a\r\n+b\r\n",
    ] {
        let address = scripted(move |words| match words[0].as_slice() {
            b"SUBSCRIBE" if words[1] == b"odd" => nonsense.to_vec(),
            b"SUBSCRIBE" => said("subscribe", "good", ":1"),
            _ => b"+PONG\r\n".to_vec(),
        });
        let proxy = proxy_with(&format!("threads = 1\n[[pool]]\n{}", shards(&[address])));
        let mut client = Client::connect(proxy.address()).unwrap();
        assert_error(&call(&mut client, "SUBSCRIBE odd"), "ERR");
        // It is not subscribed, and may be.
        assert!(!call(&mut client, "ECHO hello").is_error());
        let heard = words(Some(call(&mut client, "SUBSCRIBE good")));
        assert_eq!(heard, ["subscribe", "good", "1"]);
    }
}

#[test]
fn a_name_that_the_server_passes_over_is_an_error_and_disturbs_nobody_else() {
    let address = scripted(|words| match words[0].as_slice() {
        b"SUBSCRIBE" if words[1] == b"odd" => Vec::new(),
        b"SUBSCRIBE" => said("subscribe", &String::from_utf8_lossy(&words[1]), ":1"),
        b"UNSUBSCRIBE" => [
            said("unsubscribe", &String::from_utf8_lossy(&words[1]), ":0"),
            said("message", "kept", "$5\r\nheard"),
        ]
        .concat(),
        _ => b"+PONG\r\n".to_vec(),
    });
    let proxy = proxy_with(&format!("threads = 1\n[[pool]]\n{}", shards(&[address])));
    let [mut one, mut two] = [(); 2].map(|()| Client::connect(proxy.address()).unwrap());
    assert!(!call(&mut two, "SUBSCRIBE kept").is_error());
    one.send(b"SUBSCRIBE odd\r\n").unwrap();
    // The reply to this one shows that the other gets none; else the one to a PING, after a while.
    assert!(!call(&mut two, "SUBSCRIBE next").is_error());
    assert_error(&one.reply().unwrap().unwrap(), "ERR");
    assert_eq!(words(two.reply().unwrap()), ["message", "kept", "heard"]);
}

#[test]
fn a_server_that_says_this_and_that_but_never_answers_is_given_up() {
    let address = scripted_over(|words, stream| {
        if words[0] != b"SUBSCRIBE" {
            return Some(b"+PONG\r\n".to_vec());
        }
        let mut stream = stream.try_clone().unwrap();
        let message = said("message", "other", "$5\r\nheard");
        // Often enough not to be silent.
        thread::spawn(move || {
            while stream.write_all(&message).is_ok() {
                thread::sleep(Duration::from_millis(200));
            }
        });
        Some(Vec::new())
    });
    let proxy = proxy_with(&format!("threads = 1\n[[pool]]\n{}", shards(&[address])));
    let mut client = BufReader::new(TcpStream::connect(proxy.address()).unwrap());
    client.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
    // A client without subscriptions may call ECHO.
    let calls = b"SUBSCRIBE c\r\nECHO hello\r\n";
    client.get_mut().write_all(calls).unwrap();
    let mut lines = [const { String::new() }; 3];
    for line in &mut lines {
        client.read_line(line).expect("a reply");
    }
    assert!(lines[0].starts_with("-ERR"), "{lines:?}");
    assert_eq!(lines[1..], ["$5\r\n", "hello\r\n"]);
}

/// Returns a node of a cluster in which all slots are said to be at the port `owner`, and that redirects SSUBSCRIBE to
/// `next`; and the number of these.
fn circling(
    owner: &Arc<AtomicU16>,
    next: &Arc<OnceLock<SocketAddr>>,
    asked: &Arc<AtomicUsize>,
) -> SocketAddr {
    let (owner, next, asked) = (Arc::clone(owner), Arc::clone(next), Arc::clone(asked));
    scripted(move |words| {
        if let Some(reply) = cluster_of_one(words, owner.load(Ordering::SeqCst)) {
            return reply;
        }
        let reply = match words[0].to_ascii_uppercase().as_slice() {
            b"SSUBSCRIBE" => {
                asked.fetch_add(1, Ordering::SeqCst);
                format!("-MOVED 7629 {}\r\n", next.get().unwrap())
            }
            b"SUNSUBSCRIBE" => return said("sunsubscribe", "k", ":0"),
            _ => "+PONG\r\n".to_owned(),
        };
        reply.into_bytes()
    })
}

#[test]
fn where_servers_redirect_in_a_circle_who_subscribes_is_told_so_in_our_words() {
    // To each other; to itself; to an unreachable one.
    for nodes in [2, 1, 0] {
        let asked = Arc::new(AtomicUsize::new(0));
        let owner = Arc::new(AtomicU16::new(0));
        let places: [Arc<OnceLock<SocketAddr>>; 2] = Default::default();
        let one = circling(&owner, &places[1], &asked);
        let other = circling(&owner, &places[0], &asked);
        places[0].set(one).unwrap();
        owner.store(one.port(), Ordering::SeqCst);
        let next = match nodes {
            2 => other,
            1 => one,
            _ => SocketAddr::from(([127, 0, 0, 1], 1)),
        };
        places[1].set(next).unwrap();
        let proxy = proxy_with(&format!(
            "threads = 1\n[[pool]]\nkind = 'cluster'\nseed = [{{ address = '{one}' }}, {{ address = '{other}' }}]\n"
        ));
        let mut client = Client::connect(proxy.address()).unwrap();
        let reply = call(&mut client, "SSUBSCRIBE k");
        let told = match nodes {
            0 => "ERR the connection to the server was lost",
            _ => "TRYAGAIN the keys have moved",
        };
        assert_error(&reply, told);
        assert!(!call(&mut client, "ECHO hello").is_error());
        // Without subscribers it is not asked again.
        let times = asked.load(Ordering::SeqCst);
        assert!(times <= 20, "asked {times} times");
    }
}

#[test]
fn a_redirect_to_a_node_that_no_map_had_is_followed() {
    let asked = Arc::new(AtomicUsize::new(0));
    let (owner, place): (Arc<AtomicU16>, Arc<OnceLock<SocketAddr>>) = Default::default();
    let (map, answered) = (Arc::clone(&owner), Arc::clone(&place));
    let fresh = scripted(
        move |words| match words[0].to_ascii_uppercase().as_slice() {
            b"SSUBSCRIBE" => said("ssubscribe", "k", ":1"),
            b"CLUSTER" => b"*0\r\n".to_vec(),
            // Later subscribers use the known one.
            _ => {
                let port = answered.get().map_or(0, SocketAddr::port);
                map.store(port, Ordering::SeqCst);
                b"+PONG\r\n".to_vec()
            }
        },
    );
    let one = circling(&owner, &place, &asked);
    owner.store(one.port(), Ordering::SeqCst);
    place.set(fresh).unwrap();
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\nkind = 'cluster'\nseed = [{{ address = '{one}' }}]\n"
    ));
    let mut client = Client::connect(proxy.address()).unwrap();
    let reply = call(&mut client, "SSUBSCRIBE k");
    assert!(matches!(reply, Value::Array(_)), "{reply:?}");
    assert_eq!(words(Some(reply)), ["ssubscribe", "k", "1"]);
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
    // And its subscriptions are gone.
    assert_eq!(call(&mut client, "PING"), Value::Simple(b"PONG".to_vec()));
}

/// Returns a server's confirmation for a name, with the number of names that there are now.
fn confirmed(word: &str, name: &[u8], count: usize) -> Vec<u8> {
    said(word, &String::from_utf8_lossy(name), &format!(":{count}"))
}

/// Returns a server's confirmation of one name.
fn subscribed_to(name: &[u8]) -> Vec<u8> {
    confirmed("subscribe", name, 1)
}

/// The slot of `k`.
const SLOT_OF_K: usize = 7629;

#[test]
fn a_shards_channel_that_nobody_has_is_asked_for_when_somebody_has_it_again() {
    let has_hole = Arc::new(AtomicBool::new(false));
    let port = Arc::new(AtomicUsize::new(0));
    let (is_hole, own_port, asked) = (
        Arc::clone(&has_hole),
        Arc::clone(&port),
        AtomicUsize::new(0),
    );
    let node = scripted(move |words| {
        let text = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let port = own_port.load(Ordering::SeqCst);
        let range = |from: usize, to: usize| {
            let (host, id) = (text("127.0.0.1"), text("id"));
            format!("*3\r\n:{from}\r\n:{to}\r\n*3\r\n{host}:{port}\r\n{id}")
        };
        let upper: Vec<Vec<u8>> = words.iter().map(|it| it.to_ascii_uppercase()).collect();
        match (&upper[0][..], upper.get(1).map(Vec::as_slice)) {
            (b"CLUSTER", Some(b"INFO")) => {
                text("cluster_state:ok\r\ncluster_current_epoch:1\r\n").into_bytes()
            }
            (b"CLUSTER", Some(b"SLOTS")) => match is_hole.load(Ordering::SeqCst) {
                true => format!(
                    "*2\r\n{}{}",
                    range(0, SLOT_OF_K - 1),
                    range(SLOT_OF_K + 1, 16_383)
                ),
                false => format!("*1\r\n{}", range(0, 16_383)),
            }
            .into_bytes(),
            (b"CLUSTER", _) => b"*0\r\n".to_vec(),
            (b"SSUBSCRIBE", _) => {
                let mut reply = confirmed("ssubscribe", &words[1], 1);
                if asked.fetch_add(1, Ordering::SeqCst) > 0 {
                    reply.extend(b"*3\r\n$8\r\nsmessage\r\n$1\r\nk\r\n$5\r\nagain\r\n");
                }
                reply
            }
            (b"SUBSCRIBE", Some(b"GONE")) => {
                [confirmed("sunsubscribe", b"k", 0), subscribed_to(b"gone")].concat()
            }
            (b"SUBSCRIBE", _) => subscribed_to(&words[1]),
            (b"UNSUBSCRIBE", _) => confirmed("unsubscribe", &words[1], 0),
            _ => b"+PONG\r\n".to_vec(),
        }
    });
    port.store(node.port().into(), Ordering::SeqCst);
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\nkind = 'cluster'\nrefresh = '100ms'\nseed = [{{ address = '{node}' }}]\n"
    ));
    let [mut of_shard, mut other, mut asks] =
        [(); 3].map(|()| Client::connect(proxy.address()).unwrap());
    until("the map is known", || !call(&mut asks, "GET k").is_error());
    assert_eq!(
        words(Some(call(&mut of_shard, "SSUBSCRIBE k"))),
        ["ssubscribe", "k", "1"]
    );
    has_hole.store(true, Ordering::SeqCst);
    until("nobody has the slot", || {
        call(&mut asks, "GET k").is_error()
    });
    // With this the node reports that it no longer has the channel.
    assert_eq!(
        words(Some(call(&mut other, "SUBSCRIBE gone"))),
        ["subscribe", "gone", "1"]
    );
    assert_eq!(
        words(Some(call(&mut other, "UNSUBSCRIBE gone"))),
        ["unsubscribe", "gone", "0"]
    );
    has_hole.store(false, Ordering::SeqCst);
    assert_eq!(words(of_shard.reply().unwrap()), ["smessage", "k", "again"]);
}

#[test]
fn what_a_server_refuses_the_proxy_is_no_answer_to_somebody_elses_subscribe() {
    // A subscribed client may call only SUBSCRIBE, and gets the error together with the later reply.
    let held = Arc::new(AtomicUsize::new(0));
    let subscribers = Mutex::new(Vec::new());
    let refused = Arc::clone(&held);
    let address = scripted_over(move |words, stream| {
        let (me, mut subscribers) = (stream.peer_addr().unwrap(), subscribers.lock().unwrap());
        let is_subscriber = subscribers.contains(&me);
        Some(match words[0].as_slice() {
            b"SUBSCRIBE" => {
                subscribers.push(me);
                let mut reply =
                    b"-BUSY a script runs\r\n".repeat(refused.swap(0, Ordering::SeqCst));
                reply.extend(subscribed_to(&words[1]));
                reply
            }
            _ if is_subscriber => {
                refused.fetch_add(1, Ordering::SeqCst);
                Vec::new()
            }
            _ => b"+PONG\r\n".to_vec(),
        })
    });
    let proxy = proxy_with(&format!("threads = 1\n[[pool]]\n{}", shards(&[address])));
    let [mut one, mut two] = [(); 2].map(|()| Client::connect(proxy.address()).unwrap());
    assert_eq!(
        words(Some(call(&mut one, "SUBSCRIBE a"))),
        ["subscribe", "a", "1"]
    );
    // The proxy sends PING, and only then subscribes to another name.
    one.send(b"UNSUBSCRIBE a\r\n").unwrap();
    until("it is asked", || held.load(Ordering::SeqCst) > 0);
    assert_eq!(
        words(Some(call(&mut two, "SUBSCRIBE b"))),
        ["subscribe", "b", "1"]
    );
    assert_eq!(words(one.reply().unwrap()), ["unsubscribe", "a", "0"]);
    // The name has no subscribers here, so the proxy unsubscribes, and the server refuses.
    until("it is told", || held.load(Ordering::SeqCst) > 0);
    assert_eq!(
        words(Some(call(&mut one, "SUBSCRIBE c"))),
        ["subscribe", "c", "1"]
    );
}

/// Returns a server that closes on SUBSCRIBE `x`, then refuses this many of `a`, and sends the next a message; the proxy
/// in front of it; a subscriber of `a` there; and another client, which has just seen the connection end.
fn lost_and_refused(refusals: usize) -> (ServerProcess, Client, Client) {
    let (is_lost, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    let address = scripted(move |words| match (words[0].as_slice(), words.get(1)) {
        (b"SUBSCRIBE", Some(name)) if name == b"a" && is_lost.load(Ordering::SeqCst) => {
            if refused.fetch_add(1, Ordering::SeqCst) < refusals {
                return b"-BUSY a script runs\r\n".to_vec();
            }
            let mut reply = subscribed_to(name);
            reply.extend(b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$5\r\nagain\r\n");
            reply
        }
        // Malformed reply: the proxy ends the connection.
        (b"SUBSCRIBE", Some(name)) if name == b"x" => {
            is_lost.store(true, Ordering::SeqCst);
            b"?\r\n".to_vec()
        }
        (b"SUBSCRIBE", Some(name)) => subscribed_to(name),
        _ => b"+PONG\r\n".to_vec(),
    });
    let proxy = proxy_with(&format!("threads = 1\n[[pool]]\n{}", shards(&[address])));
    let [mut hears, mut other] = [(); 2].map(|()| Client::connect(proxy.address()).unwrap());
    assert!(!call(&mut hears, "SUBSCRIBE a").is_error());
    assert_error(&call(&mut other, "SUBSCRIBE x"), "ERR");
    (proxy, hears, other)
}

#[test]
fn who_subscribes_first_after_a_loss_does_not_leave_others_deaf() {
    let (_proxy, mut hears, mut other) = lost_and_refused(0);
    // This makes the connection anew, before anything else does.
    until("it is there again", || {
        !call(&mut other, "SUBSCRIBE b").is_error()
    });
    assert_eq!(words(hears.reply().unwrap()), ["message", "a", "again"]);
    assert_eq!(
        words(Some(call(&mut other, "SUBSCRIBE a"))),
        ["subscribe", "a", "2"]
    );
}

#[test]
fn a_name_that_is_refused_when_it_is_asked_for_again_is_not_forgotten() {
    let (_proxy, mut hears, _other) = lost_and_refused(2);
    assert_eq!(words(hears.reply().unwrap()), ["message", "a", "again"]);
}

/// Of a cluster: no node names the primary.
const NOBODY_SAYS: usize = usize::MAX;

/// Returns the nodes of a cluster of one shard, of which one is the primary, and their replies. The primary, and the
/// membership of the others, can be changed.
fn cluster_of_one_shard<const N: usize>(
    primary: &Arc<AtomicUsize>,
    others: &Arc<AtomicBool>,
    answer: impl Fn(usize, &[Vec<u8>], &mut TcpStream) -> Vec<u8> + Send + Sync + 'static,
) -> [SocketAddr; N] {
    let answer = Arc::new(answer);
    let ports: [Arc<AtomicU16>; N] = std::array::from_fn(|_| Arc::default());
    let nodes = std::array::from_fn(|me| {
        let (primary, others) = (Arc::clone(primary), Arc::clone(others));
        let (ports, answer) = (ports.clone(), Arc::clone(&answer));
        scripted_over(move |words, stream| {
            let text = |text: &str| format!("${}\r\n{text}\r\n", text.len());
            let place = |at: usize| {
                let (host, id) = (text("127.0.0.1"), text(&format!("id{at}")));
                let port = ports[at].load(Ordering::SeqCst);
                format!("*3\r\n{host}:{port}\r\n{id}")
            };
            let first = primary.load(Ordering::SeqCst);
            let belongs = |at: &usize| *at == first || others.load(Ordering::SeqCst);
            let mut members: Vec<usize> = (0..N).filter(belongs).collect();
            members.sort_by_key(|at| *at != first);
            let places: String = members.iter().copied().map(place).collect();
            Some(match (&words[0][..], words.get(1).map(Vec::as_slice)) {
                (b"CLUSTER", Some(b"INFO")) => {
                    text("cluster_state:ok\r\ncluster_current_epoch:1\r\n").into_bytes()
                }
                (b"CLUSTER", Some(b"SLOTS")) if first == NOBODY_SAYS => {
                    b"-ERR not now\r\n".to_vec()
                }
                (b"CLUSTER", Some(b"SLOTS")) => {
                    let words = 2 + members.len();
                    format!("*1\r\n*{words}\r\n:0\r\n:16383\r\n{places}").into_bytes()
                }
                (b"CLUSTER", _) => b"*0\r\n".to_vec(),
                (b"PING", _) => b"+PONG\r\n".to_vec(),
                _ => answer(me, words, stream),
            })
        })
    });
    for (port, node) in ports.iter().zip(&nodes) {
        port.store(node.port(), Ordering::SeqCst);
    }
    nodes
}

#[test]
fn who_unsubscribes_waits_for_no_server_that_has_none_of_the_names() {
    let pings = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&pings);
    let answers = |words: &[Vec<u8>]| {
        let name = String::from_utf8_lossy(words.get(1).map_or(b"", Vec::as_slice)).into_owned();
        match &words[0][..] {
            b"SUBSCRIBE" => said("subscribe", &name, ":1"),
            b"UNSUBSCRIBE" => said("unsubscribe", &name, ":0"),
            _ => b"*2\r\n$4\r\npong\r\n$0\r\n\r\n".to_vec(),
        }
    };
    let good = scripted(answers);
    // Once it has a subscriber it does not answer PING.
    let has: Arc<Mutex<HashSet<Vec<u8>>>> = Arc::default();
    let names = Arc::clone(&has);
    let silent = scripted(move |words| {
        let mut names = names.lock().unwrap();
        if words[0] == b"SUBSCRIBE" {
            names.insert(words[1].clone());
        } else if words[0] == b"PING" && !names.is_empty() {
            counted.fetch_add(1, Ordering::SeqCst);
            return Vec::new();
        }
        answers(words)
    });
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\n{}",
        shards(&[good, silent])
    ));
    let [mut one, mut other] = [(); 2].map(|()| Client::connect(proxy.address()).unwrap());
    // Enough that both have some, at any positions on the ring.
    let channels: Vec<String> = (0..64).map(|number| format!("c{number}")).collect();
    for channel in &channels {
        assert!(!call(&mut other, &format!("SUBSCRIBE {channel}")).is_error());
    }
    let is_elsewhere = |channel: &&String| !has.lock().unwrap().contains(channel.as_bytes());
    let elsewhere = channels
        .iter()
        .find(|channel| is_elsewhere(channel))
        .unwrap();
    assert!(!has.lock().unwrap().is_empty());
    assert!(!call(&mut one, &format!("SUBSCRIBE {elsewhere}")).is_error());
    assert!(!call(&mut one, &format!("UNSUBSCRIBE {elsewhere}")).is_error());
    assert_eq!(pings.load(Ordering::SeqCst), 0);
}

#[test]
fn what_is_published_in_a_cluster_goes_to_the_node_that_is_asked_for_the_channel() {
    // Elsewhere it might still be in flight, and reach later subscribers.
    let ports: Arc<[AtomicU16; 2]> = Arc::default();
    let asked: Arc<Mutex<HashMap<Vec<u8>, usize>>> = Arc::default();
    let nodes = [0, 1].map(|me| {
        let (ports, asked) = (Arc::clone(&ports), Arc::clone(&asked));
        scripted(move |words| match (&words[0][..], words.get(1)) {
            (b"CLUSTER", Some(what)) if what == b"INFO" => {
                b"$18\r\ncluster_state:ok\r\n\r\n".to_vec()
            }
            (b"CLUSTER", Some(what)) if what == b"SLOTS" => {
                let [one, two] = [0, 1].map(|at| {
                    let port = ports[at].load(Ordering::SeqCst);
                    format!("*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$3\r\nid{at}")
                });
                let [first, last] =
                    [0, 8192].map(|slot| format!("*3\r\n:{slot}\r\n:{}", slot + 8191));
                format!("*2\r\n{first}\r\n{one}\r\n{last}\r\n{two}\r\n").into_bytes()
            }
            (b"PUBLISH" | b"GET", _) => format!(":{me}\r\n").into_bytes(),
            (b"SUBSCRIBE", Some(name)) => {
                asked.lock().unwrap().insert(name.clone(), me);
                said("subscribe", &String::from_utf8_lossy(name), ":1")
            }
            _ => b"+PONG\r\n".to_vec(),
        })
    });
    for (port, node) in ports.iter().zip(&nodes) {
        port.store(node.port(), Ordering::SeqCst);
    }
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\nkind = 'cluster'\nseed = [{{ address = '{}' }}]\n",
        nodes[0]
    ));
    let [mut hears, mut says] = [(); 2].map(|()| Client::connect(proxy.address()).unwrap());
    until("the map is known", || !call(&mut says, "GET a").is_error());
    let mut seen = HashSet::new();
    for channel in ["a", "b", "c", "d", "e", "f"] {
        assert!(!call(&mut hears, &format!("SUBSCRIBE {channel}")).is_error());
        let node = asked.lock().unwrap()[channel.as_bytes()];
        let published = call(&mut says, &format!("PUBLISH {channel} m"));
        assert_eq!(published, Value::Integer(node as i64), "{channel}");
        seen.insert(node);
    }
    assert_eq!(seen.len(), 2);
}

/// Returns a message of the channel `news`, for its subscribers, and for those of `n*`; or of a shard channel.
fn news(message: &str, is_shards: bool) -> Vec<u8> {
    let last = format!("${}\r\n{message}", message.len());
    if is_shards {
        return said("smessage", "news", &last);
    }
    let pattern = format!("*4\r\n$8\r\npmessage\r\n$2\r\nn*\r\n$4\r\nnews\r\n{last}\r\n");
    [&said("message", "news", &last)[..], pattern.as_bytes()].concat()
}

#[test]
fn messages_come_once_and_in_order_while_a_channel_goes_to_another_node_of_a_cluster() {
    // The last node stays in the cluster, as a replica, or leaves it.
    for stays in [true, false] {
        a_channel_goes_to_another_node(stays, false, false);
    }
}

#[test]
fn messages_of_a_shard_come_once_and_in_order_while_a_replica_takes_its_primarys_place() {
    a_channel_goes_to_another_node(true, true, false);
}

#[test]
fn and_while_the_new_primary_does_not_know_that_the_last_one_is_its_replica() {
    a_channel_goes_to_another_node(false, true, false);
}

#[test]
fn and_where_a_redirect_tells_of_it_before_any_map() {
    a_channel_goes_to_another_node(true, true, true);
}

/// A channel, or a shard channel, whose node becomes another one's replica (`stays`), or is in no map any more.
fn a_channel_goes_to_another_node(stays: bool, is_shards: bool, by_redirect: bool) {
    let (asked_for, names) = match is_shards {
        false => (["SUBSCRIBE news", "PSUBSCRIBE n*"], 2),
        true => (["SSUBSCRIBE news"; 2], 1),
    };
    let news = |message: &str| news(message, is_shards);
    let hears: [Arc<OnceLock<TcpStream>>; 2] = Default::default();
    // Replies that the next node owes, in the order of the requests.
    let owed: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let left = Arc::new(AtomicUsize::new(0));
    let (primary, others) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(true)),
    );
    let redirect: Arc<OnceLock<String>> = Arc::default();
    let (kept, asked, was_left) = (hears.clone(), Arc::clone(&owed), Arc::clone(&left));
    let (says_elsewhere, reads) = (Arc::clone(&redirect), Mutex::new(HashSet::new()));
    let nodes: [SocketAddr; 2] =
        cluster_of_one_shard(&primary, &others, move |me, words, stream| {
            let word = words[0].to_ascii_lowercase();
            let name = String::from_utf8_lossy(words.get(1).map_or(b"", Vec::as_slice));
            let confirmed = said(&String::from_utf8_lossy(&word), &name, ":1");
            match &word[..] {
                b"subscribe" | b"psubscribe" | b"ssubscribe" => {
                    kept[me].get_or_init(|| stream.try_clone().unwrap());
                }
                b"readonly" => {
                    reads.lock().unwrap().insert(stream.peer_addr().unwrap());
                    return b"+OK\r\n".to_vec();
                }
                // So does a node that has become a replica.
                b"sunsubscribe"
                    if !reads.lock().unwrap().contains(&stream.peer_addr().unwrap()) =>
                {
                    return format!("-MOVED {SLOT_OF_K} 127.0.0.1:1\r\n").into_bytes();
                }
                b"unsubscribe" | b"punsubscribe" | b"sunsubscribe" => {
                    was_left.fetch_add(1, Ordering::SeqCst);
                }
                b"get" => {
                    let elsewhere = says_elsewhere.get().filter(|_| me == 0).cloned();
                    return elsewhere.unwrap_or(format!(":{me}\r\n")).into_bytes();
                }
                _ => return b"+OK\r\n".to_vec(),
            }
            if me == 0 {
                return confirmed;
            }
            asked.lock().unwrap().push(confirmed);
            Vec::new()
        });
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\nkind = 'cluster'\nrefresh = '100ms'\nseed = [{{ address = '{}' }}]\n",
        nodes[0]
    ));
    let [mut one, mut two, mut asks] = [(); 3].map(|()| Client::connect(proxy.address()).unwrap());
    until("the map is known", || {
        call(&mut asks, "GET k") == Value::Integer(0)
    });
    assert!(!call(&mut one, asked_for[0]).is_error());
    assert!(!call(&mut two, asked_for[1]).is_error());
    let says = |node: usize, bytes: &[u8]| {
        let mut stream = hears[node].get().unwrap();
        stream.write_all(bytes).unwrap();
    };
    let mut hear = |message: &str| {
        let [first, second] = match is_shards {
            false => [&["message", "news"][..], &["pmessage", "n*", "news"]],
            true => [&["smessage", "news"][..]; 2],
        };
        for (client, words_before) in [(&mut one, first), (&mut two, second)] {
            let heard = words(client.reply().expect(message));
            assert_eq!(heard, [words_before, &[message]].concat());
        }
    };
    others.store(stays, Ordering::SeqCst);
    if by_redirect {
        primary.store(NOBODY_SAYS, Ordering::SeqCst);
        let elsewhere = format!("-MOVED {SLOT_OF_K} {}\r\n", nodes[1]);
        redirect.set(elsewhere).unwrap();
        assert_eq!(call(&mut asks, "GET k"), Value::Integer(1));
    } else {
        primary.store(1, Ordering::SeqCst);
    }
    until("the next one is asked", || {
        owed.lock().unwrap().len() == names
    });
    says(0, &news("only the last one has heard this"));
    hear("only the last one has heard this");
    assert_eq!(left.load(Ordering::SeqCst), 0, "left too early");
    says(1, &owed.lock().unwrap().concat());
    says(
        1,
        &[news("both have"), news("only the next one has")].concat(),
    );
    says(0, &news("both have"));
    hear("both have");
    hear("only the next one has");
    until("the last one is left", || {
        left.load(Ordering::SeqCst) == names
    });
    says(1, &news("by now it is alone"));
    hear("by now it is alone");
    // If a replica took over, it may not have reported it yet.
    if !stays && !is_shards {
        // And its connection is closed.
        let mut stream = hears[0].get().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        while stream.read(&mut [0; 64]).unwrap() > 0 {}
    }
}

#[test]
fn a_node_that_confirms_a_shards_channel_which_it_has_given_away_since_is_left() {
    let (is_asked, is_left) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let elsewhere: Arc<OnceLock<String>> = Arc::default();
    let (asked, left, redirect) = (
        Arc::clone(&is_asked),
        Arc::clone(&is_left),
        Arc::clone(&elsewhere),
    );
    let primary = Arc::new(AtomicUsize::new(0));
    let others = Arc::new(AtomicBool::new(true));
    let nodes: [SocketAddr; 2] = cluster_of_one_shard(&primary, &others, move |me, words, _| {
        let name = words.get(1).map_or(&b""[..], Vec::as_slice);
        match (&words[0].to_ascii_lowercase()[..], name, me) {
            (b"ssubscribe", b"first", 0) => {
                asked.store(true, Ordering::SeqCst);
                Vec::new()
            }
            // It names the other node in its reply to the first, gives the second away, and confirms that one, too.
            (b"ssubscribe", _, 0) => [
                redirect.get().unwrap().as_bytes(),
                &confirmed("sunsubscribe", name, 0),
                &confirmed("ssubscribe", name, 1),
            ]
            .concat(),
            (b"ssubscribe", ..) => confirmed("ssubscribe", name, 1),
            (b"sunsubscribe", b"second", 0) => {
                left.store(true, Ordering::SeqCst);
                confirmed("sunsubscribe", name, 0)
            }
            (b"sunsubscribe", ..) => confirmed("sunsubscribe", name, 0),
            (b"get", ..) => format!(":{me}\r\n").into_bytes(),
            _ => b"+OK\r\n".to_vec(),
        }
    });
    elsewhere
        .set(format!("-MOVED {SLOT_OF_K} {}\r\n", nodes[1]))
        .unwrap();
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\nkind = 'cluster'\nrefresh = '100ms'\nseed = [{{ address = '{}' }}]\n",
        nodes[0]
    ));
    let [mut one, mut two, mut asks] = [(); 3].map(|()| Client::connect(proxy.address()).unwrap());
    until("the map is known", || {
        call(&mut asks, "GET k") == Value::Integer(0)
    });
    primary.store(NOBODY_SAYS, Ordering::SeqCst);
    one.send(b"SSUBSCRIBE first\r\n").unwrap();
    until("the first is asked for", || is_asked.load(Ordering::SeqCst));
    assert_eq!(
        words(Some(call(&mut two, "SSUBSCRIBE second"))),
        ["ssubscribe", "second", "1"]
    );
    assert_eq!(words(one.reply().unwrap()), ["ssubscribe", "first", "1"]);
    until("the second is left where it was", || {
        is_left.load(Ordering::SeqCst)
    });
}

#[test]
fn a_server_whose_message_has_no_end_is_given_up() {
    const TOO_MUCH: usize = 64 << 20;
    let said_before_the_end = Arc::new(Mutex::new(Vec::new()));
    let lengths = Arc::clone(&said_before_the_end);
    // The message has an invalid length, or is an unexpected one, on each kind of connection.
    let address = scripted_over(move |words, stream| {
        let begins = match &words[0][..] {
            b"SUBSCRIBE" => &b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2000000000\r\n"[..],
            b"GET" => b">2000000000\r\n$2000000000\r\n",
            _ => return Some(b"+PONG\r\n".to_vec()),
        };
        let (mut stream, lengths) = (stream.try_clone().unwrap(), Arc::clone(&lengths));
        let answer = match &words[0][..] {
            b"GET" => b"$-1\r\n".to_vec(),
            _ => said("subscribe", "c", ":1"),
        };
        stream.write_all(&[&answer, begins].concat()).unwrap();
        thread::spawn(move || {
            let piece = [b'x'; 64 * 1024];
            let mut length = 0;
            while length < TOO_MUCH && stream.write_all(&piece).is_ok() {
                length += piece.len();
            }
            lengths.lock().unwrap().push(length);
        });
        Some(Vec::new())
    });
    let proxy = proxy_with(&format!(
        "threads = 1\n[limits]\noutput-buffer = '1mb'\n[[pool]]\n{}",
        shards(&[address])
    ));
    for line in ["SUBSCRIBE c", "GET k"] {
        let mut client = Client::connect(proxy.address()).unwrap();
        assert!(!call(&mut client, line).is_error());
        until(line, || !said_before_the_end.lock().unwrap().is_empty());
        let lengths = std::mem::take(&mut *said_before_the_end.lock().unwrap());
        assert!(lengths[0] < TOO_MUCH, "{line}: all of it was taken");
    }
}
