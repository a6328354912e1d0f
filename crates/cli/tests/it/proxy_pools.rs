//! Several pools in one proxy: by the client's listener, and by the prefixes of keys.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use redline_resp::Value;
use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

use crate::proxying::{REDLINE, assert_error, bulk, call, cluster_of_one, ok, scripted};

fn server() -> ServerProcess {
    ServerProcess::redline(Path::new(REDLINE), 1, &[]).expect("a server starts")
}

fn direct(server: &ServerProcess) -> Client {
    Client::connect(server.address()).expect("the server accepts")
}

/// Returns a pool of these servers, as in a file.
fn pool(name: &str, servers: &[&ServerProcess], more: &str) -> String {
    let mut text = format!("[[pool]]\nname = '{name}'\n{more}\n");
    for server in servers {
        let address = server.address();
        text += &format!("[[pool.shard]]\nserver = [{{ address = '{address}' }}]\n");
    }
    text
}

fn route(prefix: &str, pool: &str, strip: bool) -> String {
    format!("[[route]]\nprefix = '{prefix}'\npool = '{pool}'\nstrip = {strip}\n")
}

const LISTENER: &str = "[[listener]]\nbind = '127.0.0.1:@port@'\n";

fn proxy(text: &str) -> ServerProcess {
    ServerProcess::proxy_of_file(Path::new(REDLINE), text).expect("the proxy starts")
}

fn client(proxy: &ServerProcess) -> Client {
    Client::connect(proxy.address()).expect("the proxy accepts")
}

/// Returns a client that has sent this request.
fn sent(proxy: &ServerProcess, request: &[&str]) -> Client {
    let (mut client, mut bytes) = (client(proxy), Vec::new());
    encode(request, &mut bytes);
    client.send(&bytes).expect("it is sent");
    client
}

#[test]
fn the_sixty_third_listener_was_taken_for_a_client() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let path = |number: usize| folder.path().join(number.to_string());
    let other = |number| format!("[[listener]]\nbind = '{}'\n", path(number).display());
    let others: String = (0..100).map(other).collect();
    let text = [LISTENER, &others, &pool("all", &[&server], "")].concat();
    let proxy = proxy(&text);
    let mut first = client(&proxy);
    assert_eq!(call(&mut first, "SET k v"), ok());
    for number in 0..100 {
        let mut socket = UnixStream::connect(path(number)).unwrap();
        let timeout = Some(Duration::from_secs(30));
        socket.set_read_timeout(timeout).unwrap();
        socket.write_all(b"GET k\r\n").unwrap();
        let mut reply = [0; 7];
        socket.read_exact(&mut reply).unwrap_or_else(|error| {
            panic!("listener {number}: {error}");
        });
        assert_eq!(&reply, b"$1\r\nv\r\n");
    }
}

#[test]
fn who_comes_in_by_another_listener_has_other_servers() {
    let servers = [server(), server(), server()];
    let [one, two, three] = &servers;
    let text = [
        "threads = 2\n",
        LISTENER,
        "[[listener]]\nbind = '127.0.0.1:@second-port@'\npool = 'second'\n",
        &pool("first", &[one], "databases = 2"),
        &pool("second", &[two, three], ""),
    ]
    .concat();
    let proxy = proxy(&text);
    let mut first = client(&proxy);
    let place = SocketAddr::from(([127, 0, 0, 1], proxy.second_port()));
    let mut second = Client::connect(place).unwrap();
    for number in 0..50 {
        assert_eq!(call(&mut first, &format!("SET k{number} first")), ok());
    }
    for number in 0..20 {
        assert_eq!(call(&mut second, &format!("SET k{number} second")), ok());
    }
    assert_eq!(call(&mut first, "GET k1"), bulk("first"));
    assert_eq!(call(&mut second, "GET k1"), bulk("second"));
    assert_eq!(call(&mut first, "DBSIZE"), Value::Integer(50));
    assert_eq!(call(&mut second, "DBSIZE"), Value::Integer(20));
    assert_eq!(call(&mut first, "EXISTS k1 k30"), Value::Integer(2));
    assert_eq!(call(&mut second, "EXISTS k1 k30"), Value::Integer(1));
    // Databases are counted by pool.
    assert_error(&call(&mut first, "SELECT 2"), "ERR DB index");
    assert_eq!(call(&mut second, "SELECT 2"), ok());
    assert_eq!(call(&mut second, "SELECT 0"), ok());
    // Equal names in two pools are two channels.
    let (mut ear, mut other) = (client(&proxy), direct(one));
    assert!(!call(&mut ear, "SUBSCRIBE c").is_error());
    assert_eq!(call(&mut second, "PUBLISH c lost"), Value::Integer(0));
    assert_eq!(call(&mut other, "PUBLISH c heard"), Value::Integer(1));
    let message = Value::Array(vec![bulk("message"), bulk("c"), bulk("heard")]);
    assert_eq!(ear.reply().unwrap(), Some(message));
    assert_eq!(call(&mut second, "FLUSHALL"), ok());
    assert_eq!(call(&mut second, "DBSIZE"), Value::Integer(0));
    assert_eq!(call(&mut first, "DBSIZE"), Value::Integer(50));
}

#[test]
fn keys_find_their_pool_by_how_they_begin() {
    let servers = [server(), server(), server()];
    let [own, sessions, cache] = &servers;
    let text = [
        "threads = 1\n",
        LISTENER,
        &pool("own", &[own], ""),
        &pool("sessions", &[sessions], ""),
        &pool("cache", &[cache], ""),
        &route("s:", "sessions", true),
        &route("s:c:", "cache", false),
        &route("c:", "cache", true),
    ]
    .concat();
    let proxy = proxy(&text);
    let mut client = client(&proxy);
    for (key, server, there) in [
        ("k", own, "k"),
        ("s:k", sessions, "k"),
        ("s:c:k", cache, "s:c:k"),
        ("c:k", cache, "k"),
    ] {
        assert_eq!(call(&mut client, &format!("SET {key} {key}")), ok());
        assert_eq!(call(&mut client, &format!("GET {key}")), bulk(key));
        assert_eq!(
            call(&mut direct(server), &format!("GET {there}")),
            bulk(key)
        );
    }
    // Keys of several pools in one call are split as those of several servers are.
    let found = ["k", "s:k", "s:c:k", "c:k"].map(bulk);
    let mget = "MGET k s:k s:c:k c:k";
    assert_eq!(call(&mut client, mget), Value::Array(found.to_vec()));
    assert_eq!(call(&mut client, "MSET s:a 1 c:b 2 d 3"), ok());
    assert_eq!(call(&mut direct(sessions), "GET a"), bulk("1"));
    assert_eq!(call(&mut direct(cache), "GET b"), bulk("2"));
    assert_eq!(call(&mut direct(own), "GET d"), bulk("3"));
    assert_eq!(
        call(&mut client, "DEL s:a c:b d nothing"),
        Value::Integer(3)
    );
    assert_error(&call(&mut client, "RENAME k s:k2"), "CROSSSLOT");
    assert_eq!(call(&mut client, "RENAME s:k s:k2"), ok());
    assert_eq!(call(&mut direct(sessions), "GET k2"), bulk("s:k"));
    assert_eq!(
        call(&mut client, "EVAL return{KEYS[1]} 1 s:k2"),
        Value::Array(vec![bulk("k2")])
    );
    // A call without keys goes to the listener's pool.
    assert_eq!(call(&mut client, "DBSIZE"), Value::Integer(1));
    assert_eq!(call(&mut client, "KEYS *"), Value::Array(vec![bulk("k")]));
    let scanned = Value::Array(vec![bulk("0"), Value::Array(vec![bulk("k")])]);
    assert_eq!(call(&mut client, "SCAN 0"), scanned);
}

#[test]
fn a_key_in_a_pool_without_the_clients_database_is_an_error_and_goes_nowhere() {
    let servers = [server(), server()];
    let [own, sessions] = &servers;
    let text = [
        "threads = 1\n",
        LISTENER,
        &pool("own", &[own], ""),
        &pool("sessions", &[sessions], "databases = 2"),
        &route("s:", "sessions", true),
    ]
    .concat();
    let proxy = proxy(&text);
    let mut client = client(&proxy);
    assert_eq!(call(&mut client, "SELECT 1"), ok());
    assert_eq!(call(&mut client, "SET s:k 1"), ok());
    assert_eq!(call(&mut client, "SELECT 2"), ok());
    for line in ["SET s:k 2", "GET s:k", "BLPOP s:l 1", "DEL s:k s:l"] {
        assert_error(&call(&mut client, line), "ERR DB index is out of range");
    }
    assert_eq!(call(&mut client, "MULTI"), ok());
    assert_error(&call(&mut client, "GET s:k"), "ERR DB index");
    assert_error(&call(&mut client, "EXEC"), "EXECABORT");
    // Its own pool has that database, and the others' keys are unchanged.
    assert_eq!(call(&mut client, "SET k 2"), ok());
    let mut direct = direct(sessions);
    assert_eq!(call(&mut direct, "SELECT 2"), ok());
    assert_eq!(call(&mut direct, "DBSIZE"), Value::Integer(0));
}

#[test]
fn every_way_of_a_request_takes_the_prefix_off() {
    let servers = [server(), server()];
    let [own, sessions] = &servers;
    let text = [
        LISTENER,
        &pool("own", &[own], ""),
        &pool("sessions", &[sessions], ""),
        &route("s:", "sessions", true),
    ]
    .concat();
    let proxy = proxy(&text);
    let (mut client, mut other) = (client(&proxy), direct(sessions));
    // In a pipeline, in order.
    let mut requests = Vec::new();
    for _ in 0..300 {
        encode(&["INCR", "s:n"], &mut requests);
        encode(&["INCR", "n"], &mut requests);
        encode(&["MGET", "s:n", "n"], &mut requests);
    }
    requests.extend_from_slice(b"get s:n\r\n");
    client.send(&requests).unwrap();
    for number in 1..=300 {
        assert_eq!(client.reply().unwrap(), Some(Value::Integer(number)));
        assert_eq!(client.reply().unwrap(), Some(Value::Integer(number)));
        let text = number.to_string();
        let both = Value::Array(vec![bulk(&text), bulk(&text)]);
        assert_eq!(client.reply().unwrap(), Some(both));
    }
    assert_eq!(client.reply().unwrap(), Some(bulk("300")));
    assert_eq!(call(&mut other, "GET n"), bulk("300"));
    // Transactions.
    assert_eq!(call(&mut client, "WATCH s:n"), ok());
    assert_eq!(call(&mut client, "MULTI"), ok());
    call(&mut client, "INCR s:n");
    assert_error(&call(&mut client, "INCR n"), "CROSSSLOT");
    assert_error(&call(&mut client, "EXEC"), "EXECABORT");
    assert_eq!(call(&mut client, "MULTI"), ok());
    call(&mut client, "INCR s:n");
    let done = Value::Array(vec![Value::Integer(301)]);
    assert_eq!(call(&mut client, "EXEC"), done);
    // Blocking calls: the reply has the key as the server knows it.
    let mut request = Vec::new();
    encode(&["BLPOP", "s:list", "0"], &mut request);
    client.send(&request).unwrap();
    assert_eq!(call(&mut other, "RPUSH list x"), Value::Integer(1));
    let popped = Value::Array(vec![bulk("list"), bulk("x")]);
    assert_eq!(client.reply().unwrap(), Some(popped));
    // Values that are passed through in pieces.
    let value = "v".repeat(3 << 20);
    let mut request = Vec::new();
    encode(&["SET", "s:large", &value], &mut request);
    for part in request.chunks(100_000) {
        client.send(part).unwrap();
    }
    assert_eq!(client.reply().unwrap(), Some(ok()));
    assert_eq!(call(&mut other, "STRLEN large"), Value::Integer(3 << 20));
    assert_eq!(call(&mut client, "GET s:large"), bulk(&value));
}

#[test]
fn pools_may_come_while_it_runs_and_may_not_go() {
    let servers = [server(), server()];
    let [own, fresh] = &servers;
    let before = [LISTENER, &pool("own", &[own], "")].concat();
    let proxy = proxy(&before);
    let mut client = client(&proxy);
    let written = fs::read_to_string(proxy.config_file()).unwrap();
    assert_eq!(call(&mut client, "SET f:k own"), ok());
    let more = [
        &written,
        &pool("fresh", &[fresh], "")[..],
        &route("f:", "fresh", true),
    ]
    .concat();
    fs::write(proxy.config_file(), &more).unwrap();
    assert_eq!(call(&mut client, "CONFIG RELOAD"), ok());
    // The value shows the key's pool.
    assert_eq!(call(&mut client, "GET f:k"), Value::NullBulk);
    assert_eq!(call(&mut client, "SET f:k fresh"), ok());
    assert_eq!(call(&mut direct(fresh), "GET k"), bulk("fresh"));
    assert_eq!(call(&mut direct(own), "GET f:k"), bulk("own"));
    let info = call(&mut client, "INFO servers");
    let text = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
    assert!(text.contains(&own.address().to_string()), "{text}");
    assert!(text.contains(&fresh.address().to_string()), "{text}");
    fs::write(proxy.config_file(), &written).unwrap();
    assert_error(
        &call(&mut client, "CONFIG RELOAD"),
        "ERR the configuration stays",
    );
    assert!(proxy.log().contains("names of pools"), "{}", proxy.log());
    assert_eq!(call(&mut client, "GET f:k"), bulk("fresh"));
}

#[test]
fn what_is_asked_once_a_reload_is_answered_goes_by_what_was_read() {
    let servers = [server(), server()];
    let before = [LISTENER, &pool("own", &[&servers[0]], "")].concat();
    let proxy = proxy(&before);
    let mut client = client(&proxy);
    let written = fs::read_to_string(proxy.config_file()).unwrap();
    let [first, second] = [&servers[0], &servers[1]].map(|it| it.address().to_string());
    let mut directs = [direct(&servers[0]), direct(&servers[1])];
    for round in 0..40 {
        let now = [&first, &second][(round + 1) % 2];
        fs::write(proxy.config_file(), written.replace(&first, now)).unwrap();
        assert_eq!(call(&mut client, "CONFIG RELOAD"), ok());
        assert_eq!(call(&mut client, &format!("SET k {round}")), ok());
        let there = call(&mut directs[(round + 1) % 2], "GET k");
        assert_eq!(there, bulk(&round.to_string()), "round {round}");
    }
}

/// Returns a node of a cluster that reports to be one with all slots, and answers GET with this, or with a redirect. A
/// script, or a command of its own, is answered with the error that it names.
fn node(
    slots_at: Arc<OnceLock<SocketAddr>>,
    answer: impl Fn() -> String + Send + Sync + 'static,
) -> SocketAddr {
    scripted(move |words| said_by_node(words, slots_at.get().map_or(0, SocketAddr::port), &answer))
}

fn said_by_node(words: &[Vec<u8>], port: u16, answer: impl Fn() -> String) -> Vec<u8> {
    if let Some(reply) = cluster_of_one(words, port) {
        return reply;
    }
    let reply = match words[0].to_ascii_uppercase().as_slice() {
        b"GET" => answer(),
        b"EVAL" | b"FCALL_RO" | b"OWN.SAY" => {
            format!("-{}\r\n", String::from_utf8_lossy(&words[1]))
        }
        b"COMMAND" => {
            "*1\r\n*6\r\n$7\r\nown.say\r\n:-2\r\n*1\r\n+write\r\n:0\r\n:0\r\n:0\r\n".to_owned()
        }
        _ => "+PONG\r\n".to_owned(),
    };
    reply.into_bytes()
}

#[test]
fn a_redirect_is_about_the_pool_of_who_said_it() {
    let places: [Arc<OnceLock<SocketAddr>>; 2] = Default::default();
    let whole = |text: &'static str| move || format!("${}\r\n{text}\r\n", text.len());
    let one = node(Arc::clone(&places[0]), whole("one"));
    places[0].set(one).unwrap();
    // The second cluster's map names a node that has given its slots away.
    let target = node(Arc::clone(&places[1]), whole("two"));
    let moved = format!("-MOVED 12539 127.0.0.1:{}\r\n", target.port());
    let first = node(Arc::clone(&places[1]), move || moved.clone());
    places[1].set(first).unwrap();
    let pool = |name: &str, seed: SocketAddr| {
        format!("[[pool]]\nname = '{name}'\nkind = 'cluster'\nseed = [{{ address = '{seed}' }}]\n")
    };
    let text = [
        "threads = 1\n",
        LISTENER,
        &pool("one", one),
        &pool("two", first),
        &route("two:", "two", true),
    ]
    .concat();
    let proxy = proxy(&text);
    let mut client = client(&proxy);
    for _ in 0..20 {
        // Both are `b` to their servers, so in the same slot.
        assert_eq!(call(&mut client, "GET b"), bulk("one"));
        assert_eq!(call(&mut client, "GET two:b"), bulk("two"));
    }
}

#[test]
fn what_a_client_has_a_server_say_leads_nobody_elsewhere() {
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    let stranger = scripted(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        b"$8\r\nstranger\r\n".to_vec()
    });
    let place: Arc<OnceLock<SocketAddr>> = Arc::default();
    let own = node(Arc::clone(&place), || "$3\r\nown\r\n".to_owned());
    place.set(own).unwrap();
    let text = format!(
        "threads = 1\n{LISTENER}[[pool]]\nname = 'p'\nkind = 'cluster'\npassword = 'secret'\nseed = [{{ address = '{own}' }}]\n"
    );
    let proxy = proxy(&text);
    let mut other = client(&proxy);
    // All at once, on connections of their own: each is tried for a while.
    let mut said = Vec::new();
    for word in ["MOVED", "ASK"] {
        let line = format!("{word} 12539 {stranger}");
        for request in [
            &["EVAL", &line, "1", "b"][..],
            &["EVAL", &line, "0"],
            &["FCALL_RO", &line, "1", "b"],
            &["OWN.SAY", &line],
        ] {
            said.push((request.join(" "), sent(&proxy, request)));
        }
    }
    for (request, mut says) in said {
        let said = says.reply().unwrap().expect("a reply");
        assert_error(&said, "TRYAGAIN the keys have moved");
        // It is the slot of this key.
        assert_eq!(call(&mut other, "GET b"), bulk("own"), "{request}");
    }
    assert_eq!(heard.load(Ordering::Relaxed), 0, "somebody went there");
}

/// The script may have written something, each time that it was run.
#[test]
fn a_script_that_speaks_of_a_redirect_is_run_once() {
    let place: Arc<OnceLock<SocketAddr>> = Arc::default();
    let runs: Arc<Mutex<Vec<String>>> = Arc::default();
    let (seen, slots_at) = (Arc::clone(&runs), Arc::clone(&place));
    let own = scripted(move |words| {
        if words[0].eq_ignore_ascii_case(b"EVAL") {
            let text = words.join(&b' ');
            seen.lock().unwrap().push(String::from_utf8(text).unwrap());
        }
        let port = slots_at.get().map_or(0, SocketAddr::port);
        said_by_node(words, port, String::new)
    });
    place.set(own).unwrap();
    let proxy = proxy(&format!(
        "threads = 1\n{LISTENER}[[pool]]\nname = 'p'\nkind = 'cluster'\nseed = [{{ address = '{own}' }}]\n"
    ));
    let stranger = "127.0.0.1:1".to_owned();
    // All at once, on connections of their own: each is tried for a while.
    let mut said = Vec::new();
    for (target, expected) in [(stranger, Some("TRYAGAIN")), (own.to_string(), None)] {
        for word in ["MOVED", "ASK"] {
            let line = format!("{word} 3300 {target}");
            for request in [&["EVAL", &line, "1", "b"][..], &["EVAL", &line, "0"]] {
                let expected = expected.unwrap_or(&line).to_owned();
                said.push((request.join(" "), expected, sent(&proxy, request)));
            }
        }
    }
    for (_, expected, client) in &mut said {
        assert_error(&client.reply().unwrap().expect("a reply"), expected);
    }
    let mut expected: Vec<String> = said.into_iter().map(|(request, ..)| request).collect();
    let mut ran = runs.lock().unwrap().clone();
    expected.sort();
    ran.sort();
    assert_eq!(ran, expected);
}

/// The other one says truly that the first has the slot.
#[test]
fn a_script_that_names_another_node_is_run_once() {
    let place: Arc<OnceLock<SocketAddr>> = Arc::default();
    let runs = Arc::new(AtomicUsize::new(0));
    let (count, slots_at) = (Arc::clone(&runs), Arc::clone(&place));
    let owner = scripted(move |words| {
        let is_script = words[0].eq_ignore_ascii_case(b"EVAL") || words[0] == b"OWN.SAY";
        count.fetch_add(usize::from(is_script), Ordering::Relaxed);
        let port = slots_at.get().map_or(0, SocketAddr::port);
        said_by_node(words, port, String::new)
    });
    place.set(owner).unwrap();
    let other = scripted(move |words| {
        let is_script = words[0].eq_ignore_ascii_case(b"EVAL") || words[0] == b"OWN.SAY";
        match is_script {
            true => format!("-MOVED 3300 {owner}\r\n").into_bytes(),
            false => said_by_node(words, owner.port(), String::new),
        }
    });
    let proxy = proxy(&format!(
        "threads = 1\n{LISTENER}[[pool]]\nname = 'p'\nkind = 'cluster'\nseed = [{{ address = '{owner}' }}, {{ address = '{other}' }}]\n"
    ));
    let mut client = client(&proxy);
    for word in ["MOVED", "ASK"] {
        let line = format!("{word} 3300 {other}");
        for request in [&["EVAL", &line, "1", "b"][..], &["OWN.SAY", &line]] {
            let before = runs.load(Ordering::Relaxed);
            let said = client.call(request).unwrap();
            assert_error(&said, "TRYAGAIN the keys have moved");
            assert_eq!(runs.load(Ordering::Relaxed), before + 1, "{request:?}");
        }
    }
}

#[test]
fn a_request_with_other_bytes_behind_its_carriage_returns_follows_redirects() {
    let place: Arc<OnceLock<SocketAddr>> = Arc::default();
    let target = node(Arc::clone(&place), || "$3\r\nown\r\n".to_owned());
    let moved = format!("-MOVED 3300 127.0.0.1:{}\r\n", target.port());
    let first = node(Arc::clone(&place), move || moved.clone());
    place.set(first).unwrap();
    let proxy = proxy(&format!(
        "threads = 1\n{LISTENER}[[pool]]\nname = 'p'\nkind = 'cluster'\nseed = [{{ address = '{first}' }}, {{ address = '{target}' }}]\n"
    ));
    let mut client = client(&proxy);
    // A line ends with a carriage return and any byte, as in Redis.
    let request = b"*2\rx$3\r\rGET\r$$1\r*b\r\r";
    client.send(&request.repeat(3)).unwrap();
    for _ in 0..3 {
        assert_eq!(client.reply().unwrap(), Some(bulk("own")));
    }
}
