//! Client-side caching: who hears of which change, in which order, and that nobody keeps what has changed.

use std::{
    collections::HashMap,
    io::{self, Read},
    time::Duration,
};

use crate::client::{Client, Value, encode, request, settings, start, until};
use redline_server::{Permission, Server, Settings};

fn resp3(server: &Server) -> Client {
    let mut client = Client::connect(server);
    client.call("HELLO 3");
    client
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

fn invalidates(keys: &[&str]) -> Value {
    let keys = keys.iter().map(|key| bulk(key)).collect();
    Value::Push(vec![bulk("invalidate"), Value::Array(keys)])
}

fn invalidates_all() -> Value {
    Value::Push(vec![bulk("invalidate"), Value::Nil])
}

/// Sends several calls at once and reads so many replies and messages.
fn pipeline(client: &mut Client, lines: &[&str], replies: usize) -> Vec<Value> {
    let bytes: Vec<u8> = lines.iter().flat_map(|line| request(line)).collect();
    client.write(&bytes);
    (0..replies).map(|_| client.read()).collect()
}

/// The next thing that the client reads is the reply of this PING: nothing came before.
#[track_caller]
fn hears_nothing(client: &mut Client) {
    assert_eq!(client.call("PING"), Value::Simple("PONG".into()));
}

fn id_of(client: &mut Client) -> i64 {
    client.call("CLIENT ID").integer()
}

fn info(client: &mut Client, field: &str) -> i64 {
    let Value::Bulk(text) = client.call("INFO everything") else {
        panic!("INFO is text")
    };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.strip_prefix(':'))
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn a_reader_hears_once_of_each_key_that_it_has_read() {
    let server = start(settings(2));
    let (mut reads, mut writes) = (resp3(&server), Client::connect(&server));
    reads.call("CLIENT TRACKING ON").ok();
    reads.call("MGET a b");
    writes.call("MSET a 1 b 1 c 1").ok();
    writes.call("SET a 2").ok();
    assert_eq!(reads.read(), invalidates(&["a"]));
    assert_eq!(reads.read(), invalidates(&["b"]));
    hears_nothing(&mut reads);
    // Databases are not told apart.
    reads.call("GET a");
    writes.call("SELECT 1").ok();
    writes.call("SET a 1").ok();
    assert_eq!(reads.read(), invalidates(&["a"]));
    assert_eq!(info(&mut writes, "tracking_clients"), 1);
    assert_eq!(info(&mut writes, "tracking_total_keys"), 0);
    reads.call("GET a");
    reads.call("CLIENT TRACKING OFF").ok();
    writes.call("SET a 1").ok();
    hears_nothing(&mut reads);
    assert_eq!(info(&mut writes, "tracking_clients"), 0);
}

#[test]
fn a_change_while_a_client_did_not_track_is_no_news_when_it_tracks_again() {
    let server = start(settings(1));
    let (mut reader, mut writer) = (resp3(&server), Client::connect(&server));
    writer.call("MSET a 1 b 2").ok();
    reader.call("CLIENT TRACKING ON").ok();
    reader.call("MGET a b");
    reader.call("CLIENT TRACKING OFF").ok();
    writer.call("SET a 3").ok();
    reader.call("CLIENT TRACKING ON").ok();
    // What it read before and has not changed since is still told of.
    writer.call("MSET a 4 b 4").ok();
    assert_eq!(reader.read(), invalidates(&["b"]));
    hears_nothing(&mut reader);
}

#[test]
fn an_own_change_is_told_behind_the_reply_of_its_command() {
    let server = start(settings(1));
    let mut own = resp3(&server);
    own.call("CLIENT TRACKING ON").ok();
    let calls = [
        "GET k", "SET k 1", "PING", "MULTI", "GET k", "DEL k", "EXEC", "PING",
    ];
    let replies = pipeline(&mut own, &calls, 10);
    let simple = |text: &str| Value::Simple(text.into());
    assert_eq!(replies[1], simple("OK"));
    assert_eq!(replies[2], invalidates(&["k"]));
    assert_eq!(replies[3], simple("PONG"));
    assert_eq!(replies[7].array().len(), 2);
    assert_eq!(replies[8], invalidates(&["k"]));
    assert_eq!(replies[9], simple("PONG"));
    own.write(&encode(&[
        b"EVAL",
        b"redis.call('get', KEYS[1]) redis.call('set', KEYS[1], 1) return 1",
        b"1",
        b"k",
    ]));
    assert_eq!(own.read(), Value::Integer(1));
    assert_eq!(own.read(), invalidates(&["k"]));
    own.call("CLIENT TRACKING ON NOLOOP").ok();
    pipeline(&mut own, &["GET k", "SET k 2"], 2);
    hears_nothing(&mut own);
}

#[test]
fn caching_is_chosen_for_one_command_or_transaction() {
    let server = start(settings(2));
    let (mut reads, mut writes) = (resp3(&server), Client::connect(&server));
    reads.call("CLIENT TRACKING ON OPTIN").ok();
    reads.call("GET a");
    reads.call("CLIENT CACHING YES").ok();
    reads.call("GET b");
    reads.call("GET c");
    writes.call("MSET a 1 b 1 c 1").ok();
    assert_eq!(reads.read(), invalidates(&["b"]));
    reads.call("CLIENT CACHING YES").ok();
    pipeline(&mut reads, &["MULTI", "GET a", "GET b", "EXEC", "GET c"], 5);
    writes.call("MSET a 1 b 1 c 1").ok();
    assert_eq!(reads.read(), invalidates(&["a"]));
    assert_eq!(reads.read(), invalidates(&["b"]));
    hears_nothing(&mut reads);
    reads.call("CLIENT TRACKING OFF").ok();
    reads.call("CLIENT TRACKING ON OPTOUT").ok();
    reads.call("GET a");
    reads.call("CLIENT CACHING NO").ok();
    reads.call("GET b");
    writes.call("MSET a 1 b 1").ok();
    assert_eq!(reads.read(), invalidates(&["a"]));
    hears_nothing(&mut reads);
}

#[test]
fn prefixes_are_broadcast() {
    // With one worker all that a command changes is told together.
    let server = start(settings(1));
    let (mut hears, mut writes) = (resp3(&server), Client::connect(&server));
    hears
        .call("CLIENT TRACKING ON BCAST PREFIX x PREFIX y")
        .ok();
    assert_eq!(info(&mut writes, "tracking_total_prefixes"), 2);
    writes.call("MSET x2 1 z 1 y 1 x1 1").ok();
    assert_eq!(hears.read(), invalidates(&["x1", "x2"]));
    assert_eq!(hears.read(), invalidates(&["y"]));
    writes.call("FLUSHALL").ok();
    assert_eq!(hears.read(), invalidates_all());
    hears_nothing(&mut hears);
    drop(hears);
    until("the prefixes go with their client", || {
        info(&mut writes, "tracking_total_prefixes") == 0
    });
}

/// Redis sends one message for each prefix and turn of its loop; with several workers a transaction or a script was told
/// in as many pieces as its changes happened to be heard of in.
#[test]
fn of_several_prefixes_that_overlap_another_than_the_first_was_named() {
    let server = start(settings(1));
    let mut client = resp3(&server);
    client
        .call("CLIENT TRACKING ON BCAST PREFIX a PREFIX b")
        .ok();
    // All keys: that is not compared with the others.
    client.call("CLIENT TRACKING ON BCAST").ok();
    let refused = client.call("CLIENT TRACKING ON BCAST PREFIX a");
    assert_eq!(
        refused.error(),
        "ERR Prefix 'a' overlaps with an existing prefix ''. Prefixes for a single client must not overlap."
    );
}

#[test]
fn what_one_unit_changes_under_a_prefix_is_one_message() {
    let server = start(settings(4));
    let mut writes = Client::connect(&server);
    let mut hear: Vec<Client> = (0..8).map(|_| resp3(&server)).collect();
    for client in &mut hear {
        client
            .call("CLIENT TRACKING ON BCAST PREFIX a PREFIX b")
            .ok();
    }
    // More than wait for a client that is told by way of another one.
    let names: Vec<String> = (0..1200).map(|number| format!("{number:04}")).collect();
    let sets = names.iter().map(|name| format!("SET a{name} 1"));
    let mut calls = vec!["MULTI".to_owned()];
    calls.extend(sets.chain(["SET b1 1".into(), "SET a0000 2".into(), "EXEC".into()]));
    let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
    let under_a: Vec<String> = names.iter().map(|name| format!("a{name}")).collect();
    let under_a: Vec<&str> = under_a.iter().map(String::as_str).collect();
    let mut all_hear = || {
        for client in &mut hear {
            assert_eq!(client.read(), invalidates(&under_a));
            assert_eq!(client.read(), invalidates(&["b1"]));
            hears_nothing(client);
        }
    };
    pipeline(&mut writes, &calls, calls.len());
    all_hear();
    let script = "for i = 0, 1199 do redis.call('del', string.format('a%04d', i)) end redis.call('del', 'b1')";
    writes.call_args(&[b"EVAL", script.as_bytes(), b"0"]);
    all_hear();
}

/// A client that has asked something since the writer was answered may trust what it has kept.
#[test]
fn a_reply_does_not_overtake_what_was_broadcast_before_its_request() {
    let server = start(settings(2));
    let (mut hears, mut writes) = (resp3(&server), Client::connect(&server));
    hears.call("CLIENT TRACKING ON BCAST").ok();
    for round in 0..200 {
        writes.call("SET k v").ok();
        hears.send("PING");
        assert_eq!(hears.read(), invalidates(&["k"]), "{round}");
        assert_eq!(hears.read(), Value::Simple("PONG".into()));
    }
}

#[test]
fn expired_evicted_and_flushed_keys_are_told() {
    let server = start(Settings {
        enable_debug_command: Permission::Yes,
        ..settings(2)
    });
    let (mut reads, mut writes) = (resp3(&server), Client::connect(&server));
    reads.call("CLIENT TRACKING ON").ok();
    writes.call("SET e 1 PX 30").ok();
    reads.call("GET e");
    assert_eq!(reads.read(), invalidates(&["e"]));
    reads.call("GET k");
    writes.call("FLUSHDB").ok();
    assert_eq!(reads.read(), invalidates_all());
    writes.call_args(&[b"SET", b"big", &[b'x'; 4000]]).ok();
    reads.call("GET big");
    writes
        .call("CONFIG SET maxmemory-policy allkeys-random maxmemory 1")
        .ok();
    assert_eq!(reads.read(), invalidates(&["big"]));
}

/// A client with NOLOOP was not told of the key that its own GET had found expired.
#[test]
fn a_key_that_expires_under_a_reader_is_nobodys_own_change() {
    let server = start(Settings {
        enable_debug_command: Permission::Yes,
        ..settings(1)
    });
    let mut own = resp3(&server);
    own.call("DEBUG SET-ACTIVE-EXPIRE 0").ok();
    own.call("CLIENT TRACKING ON BCAST NOLOOP").ok();
    own.call("SET k v PX 1").ok();
    own.call("DEBUG SLEEP 0.01").ok();
    let replies = pipeline(&mut own, &["GET k"], 2);
    assert_eq!(replies, [Value::Nil, invalidates(&["k"])]);
}

/// A client with BCAST and NOLOOP kept values that its own scripts had replaced: it cannot know which.
#[test]
fn what_an_own_script_changes_under_a_prefix_is_told_in_spite_of_noloop() {
    let server = start(settings(1));
    let mut own = resp3(&server);
    own.call("CLIENT TRACKING ON BCAST NOLOOP").ok();
    let script: &[u8] = b"return redis.call('incr', 'k')";
    let told = |own: &mut Client| (own.read(), own.call("GET other"));
    assert_eq!(own.call_args(&[b"EVAL", script, b"0"]).integer(), 1);
    assert_eq!(told(&mut own), (invalidates(&["k"]), Value::Nil));
    own.call("MULTI").ok();
    own.call_args(&[b"EVAL", script, b"0"]);
    own.call("SET j 1");
    own.call("EXEC");
    assert_eq!(told(&mut own), (invalidates(&["k"]), Value::Nil));
    // Of what it has read it is told nothing, be it changed by a script or not.
    own.call("CLIENT TRACKING OFF").ok();
    own.call("CLIENT TRACKING ON NOLOOP").ok();
    own.call("GET k");
    assert_eq!(own.call_args(&[b"EVAL", script, b"0"]).integer(), 3);
    assert_eq!(own.call("GET other"), Value::Nil);
}

#[test]
fn another_client_hears_in_its_own_protocol() {
    let server = start(settings(3));
    let (mut reads, mut hears) = (Client::connect(&server), Client::connect(&server));
    let mut writes = Client::connect(&server);
    let id = id_of(&mut hears);
    hears.call("SUBSCRIBE __redis__:invalidate");
    reads
        .call(&format!("CLIENT TRACKING ON REDIRECT {id}"))
        .ok();
    assert_eq!(reads.call("CLIENT GETREDIR"), Value::Integer(id));
    reads.call("GET k");
    writes.call("SET k 1").ok();
    let channel = || vec![bulk("message"), bulk("__redis__:invalidate")];
    let with = |last| Value::Array(channel().into_iter().chain([last]).collect());
    assert_eq!(hears.read(), with(Value::Array(vec![bulk("k")])));
    reads.call("GET k");
    writes.call("FLUSHALL").ok();
    assert_eq!(hears.read(), with(Value::Nil));
    reads.call("HELLO 3");
    drop(hears);
    until("the other one has gone", || {
        let list = writes.call(&format!("CLIENT LIST ID {id}"));
        list == bulk("")
    });
    reads.call("GET k");
    writes.call("SET k 1").ok();
    let broken = vec![bulk("tracking-redir-broken"), Value::Integer(id)];
    assert_eq!(reads.read(), Value::Push(broken));
}

#[test]
fn the_table_is_bounded_and_what_it_forgets_is_invalidated() {
    let server = start(settings(2));
    let mut reads = resp3(&server);
    let mut admin = Client::connect(&server);
    admin.call("CONFIG SET tracking-table-max-keys 10").ok();
    reads.call("CLIENT TRACKING ON").ok();
    let mut told = 0;
    for key in 0..100 {
        reads.send(&format!("GET key:{key}"));
        while let Value::Push(_) = reads.read() {
            told += 1;
        }
    }
    while told < 90 {
        assert!(matches!(reads.read(), Value::Push(_)));
        told += 1;
    }
    assert_eq!(info(&mut admin, "tracking_total_keys"), 10);
    admin.call("CONFIG SET tracking-table-max-keys 3").ok();
    until("the limit holds for what is there", || {
        info(&mut admin, "tracking_total_keys") == 3
    });
}

/// Reader, writer and the one who hears are on three workers. When the invalidation is there, the reply of the read that
/// asked for it has to be there too.
#[test]
fn an_invalidation_never_overtakes_the_reply_that_registered_it() {
    let server = start(settings(3));
    let (mut reads, mut hears) = (Client::connect(&server), resp3(&server));
    let mut writes = Client::connect(&server);
    let id = id_of(&mut hears);
    reads
        .call(&format!("CLIENT TRACKING ON REDIRECT {id}"))
        .ok();
    for round in 0..2000 {
        reads.send("GET k");
        // Until one comes behind the read.
        let mut sent = 0;
        hears
            .stream
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        loop {
            writes.send(&format!("SET k {round}"));
            sent += 1;
            match hears.try_read() {
                Ok(message) => break assert_eq!(message, invalidates(&["k"])),
                Err(error) => assert!(matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                )),
            }
        }
        reads.stream.set_nonblocking(true).unwrap();
        let mut reply = [0; 64];
        let arrived = (&reads.stream).read(&mut reply);
        reads.stream.set_nonblocking(false).unwrap();
        assert!(
            arrived.is_ok_and(|bytes| bytes > 0),
            "overtaken in round {round}"
        );
        (0..sent).for_each(|_| writes.read().ok());
    }
}

/// Values that clients keep equal those of the server, once all notifications have been sent.
#[test]
fn what_a_served_call_changed_was_told_before_its_reply() {
    for workers in [1, 2] {
        let server = start(settings(workers));
        let mut writer = Client::connect(&server);
        let mut waits = resp3(&server);
        writer.call("RPUSH to a");
        waits.call("CLIENT TRACKING on").ok();
        waits.call("LRANGE to 0 -1");
        waits.send("BLMOVE from to left left 0");
        until("it waits", || info(&mut writer, "blocked_clients") == 1);
        writer.call("RPUSH from b");
        assert_eq!(waits.read(), bulk("b"));
        assert_eq!(waits.read(), invalidates(&["to"]));
    }
}

#[test]
fn the_one_who_hears_had_sent_quit_and_nobody_was_told() {
    let server = start(settings(2));
    for _ in 0..20 {
        let mut writer = Client::connect(&server);
        let mut hears = Client::connect(&server);
        let mut reads = resp3(&server);
        let id = id_of(&mut hears);
        reads
            .call(&format!("CLIENT TRACKING on REDIRECT {id}"))
            .ok();
        reads.call("GET k");
        hears.call("QUIT").ok();
        writer.call("SET k 1").ok();
        let broken = vec![bulk("tracking-redir-broken"), Value::Integer(id)];
        assert_eq!(reads.read(), Value::Push(broken));
    }
}

#[test]
fn a_lowered_limit_is_kept_while_timers_rest() {
    let server = start(Settings {
        enable_debug_command: Permission::Yes,
        ..settings(2)
    });
    let mut admin = Client::connect(&server);
    admin.call("DEBUG PAUSE-CRON 1").ok();
    let mut reads = resp3(&server);
    reads.call("CLIENT TRACKING on").ok();
    reads.call("MGET 1 2");
    admin.call("CONFIG SET tracking-table-max-keys 1").ok();
    let heard = reads.read();
    assert!(heard == invalidates(&["1"]) || heard == invalidates(&["2"]));
}

#[test]
fn nobody_keeps_what_has_changed() {
    const KEYS: u64 = 20;
    let server = start(settings(3));
    let readers: Vec<Client> = (0..3).map(|_| resp3(&server)).collect();
    let writer = Client::connect(&server);
    let mut admin = Client::connect(&server);
    admin.call("CONFIG SET tracking-table-max-keys 15").ok();
    let write = |mut writer: Client| {
        let mut rng = fastrand::Rng::with_seed(1);
        for n in 0..3000 {
            let key = rng.u64(..KEYS);
            match rng.u8(..10) {
                0 => writer.call(&format!("DEL k{key}")),
                1 => writer.call(&format!("RENAME k{key} k{}", rng.u64(..KEYS))),
                2 => writer.call(&format!("SET k{key} {n} PX 1")),
                _ => writer.call(&format!("SET k{key} {n}")),
            };
        }
    };
    fn read_until_reply(reads: &mut Client, kept: &mut HashMap<String, Value>) -> Value {
        loop {
            match reads.read() {
                Value::Push(words) => match &words[1] {
                    Value::Array(keys) => keys.iter().for_each(|key| {
                        let Value::Bulk(key) = key else {
                            panic!("a key")
                        };
                        kept.remove(std::str::from_utf8(key).unwrap());
                    }),
                    _ => kept.clear(),
                },
                reply => return reply,
            }
        }
    }
    let read = |number: u64, mut reads: Client| {
        let mut rng = fastrand::Rng::with_seed(100 + number);
        let mut kept = HashMap::new();
        reads.call("CLIENT TRACKING ON").ok();
        for _ in 0..3000 {
            let key = format!("k{}", rng.u64(..KEYS));
            reads.send(&format!("GET {key}"));
            let value = read_until_reply(&mut reads, &mut kept);
            kept.insert(key, value);
        }
        (reads, kept)
    };
    let kept: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| write(writer));
        let threads: Vec<_> = readers
            .into_iter()
            .enumerate()
            .map(|(number, reads)| scope.spawn(move || read(number as u64, reads)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for (mut reads, mut kept) in kept {
        // Whatever expires has expired when it is looked for; what that tells is read with it.
        let actual: HashMap<String, Value> = (0..KEYS)
            .map(|key| (format!("k{key}"), admin.call(&format!("GET k{key}"))))
            .collect();
        until("everything was told", || {
            reads.send("PING");
            read_until_reply(&mut reads, &mut kept);
            kept.iter().all(|(key, value)| actual[key] == *value)
        });
    }
}
