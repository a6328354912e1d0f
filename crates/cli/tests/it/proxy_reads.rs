//! `redline proxy` as a process: the servers of read-only calls.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use redline_resp::Value;
use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

use crate::proxying::{
    assert_error, bulk, call, commands_of_keys, ok, proxy_with, scripted, until,
};

/// A server that answers with its name, and with a given replication state.
struct Fake {
    name: &'static str,
    info: Mutex<String>,
    /// It answers with malformed values.
    is_broken: AtomicBool,
    /// It answers everything with malformed replies.
    is_gone: AtomicBool,
    seen: Mutex<Vec<String>>,
    offset: AtomicU64,
}

impl Fake {
    fn start(name: &'static str, info: &str) -> (Arc<Fake>, SocketAddr) {
        let fake = Arc::new(Fake {
            name,
            info: Mutex::new(info.to_owned()),
            is_broken: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            seen: Mutex::default(),
            offset: AtomicU64::new(1),
        });
        let own = Arc::clone(&fake);
        (fake, scripted(move |words| own.answer(words)))
    }

    fn answer(&self, words: &[Vec<u8>]) -> Vec<u8> {
        let name = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
        let text = |text: &str| format!("${}\r\n{text}\r\n", text.len()).into_bytes();
        if self.is_gone.load(Ordering::SeqCst) {
            return b"?nonsense\r\n".to_vec();
        }
        match name.as_str() {
            "PING" => return b"+PONG\r\n".to_vec(),
            "INFO" => {
                let offset = self.offset.load(Ordering::SeqCst).to_string();
                return text(&self.info.lock().unwrap().replace("OFFSET", &offset));
            }
            _ => self.seen.lock().unwrap().push(name.clone()),
        }
        if self.is_broken.load(Ordering::SeqCst) {
            return b"?nonsense\r\n".to_vec();
        }
        match name.as_str() {
            "SET" => b"+OK\r\n".to_vec(),
            "MGET" => {
                let mut reply = format!("*{}\r\n", words.len() - 1).into_bytes();
                (1..words.len()).for_each(|_| reply.extend(text(self.name)));
                reply
            }
            _ => text(self.name),
        }
    }

    fn seen(&self, name: &str) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| *seen == name).count()
    }
}

const PRIMARY: &str = "role:master\r\nmaster_repl_offset:OFFSET\r\n";
const REPLICA: &str = "role:slave\r\nmaster_link_status:up\r\nmaster_sync_in_progress:0\r\nslave_repl_offset:OFFSET\r\n";

/// A primary with two replicas, read from with these priorities.
struct Shard {
    fakes: Vec<Arc<Fake>>,
    proxy: ServerProcess,
}

impl Shard {
    fn new(reads: &str) -> Shard {
        Shard::of(&format!("reads = {{ {reads} }}"))
    }

    /// Returns a shard in a pool with these settings.
    fn of(pool: &str) -> Shard {
        let (mut fakes, mut servers) = (Vec::new(), Vec::new());
        for (name, info) in [("zero", PRIMARY), ("one", REPLICA), ("two", REPLICA)] {
            let (fake, address) = Fake::start(name, info);
            fakes.push(fake);
            servers.push(format!("{{ address = '{address}' }}"));
        }
        let proxy = proxy_with(&format!(
            "[timeouts]\nrequest = '1s'\n[[pool]]\n{pool}\nshard = [{{ server = [{}] }}]",
            servers.join(", ")
        ));
        Shard { fakes, proxy }
    }

    fn client(&self) -> Client {
        Client::connect(self.proxy.address()).expect("the proxy accepts")
    }

    /// Waits until the log has this text of its servers this many times.
    #[track_caller]
    fn until_said(&self, times: usize, text: &str) {
        until(text, || self.proxy.log().matches(text).count() >= times);
    }

    /// Returns true if these servers and no others answer reads, in this order.
    fn is_answered_by(&self, client: &mut Client, expected: &[&str]) -> bool {
        let mut names = self.answers(client, 20);
        names.dedup();
        names == expected
    }

    /// Returns the names of the servers that answer a number of GETs, one by one.
    fn answers(&self, client: &mut Client, count: usize) -> Vec<String> {
        let mut names: Vec<String> = (0..count).map(|_| name(&call(client, "GET k"))).collect();
        names.sort();
        names
    }
}

fn name(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
}

const MAY: &str = "may answer reads";

#[test]
fn servers_of_the_highest_priority_share_what_reads_and_the_primary_has_what_writes() {
    let shard = Shard::new("primary-priority = 50, static-replica-priority = 50");
    shard.until_said(2, MAY);
    let mut client = shard.client();
    let names = shard.answers(&mut client, 90);
    for name in ["zero", "one", "two"] {
        let count = names.iter().filter(|found| *found == name).count();
        assert!((20..=40).contains(&count), "{name}: {count} of 90");
    }
    let others = Shard::new("primary-priority = 10, static-replica-priority = 50");
    others.until_said(2, MAY);
    let mut client = others.client();
    for (line, is_read) in [
        ("GET k", true),
        ("STRLEN k", true),
        ("SINTER k", true),
        ("MGET k l m", true),
        ("EXISTS k", true),
        ("PFCOUNT k", true),
        ("XREAD STREAMS k 0", true),
        ("SORT_RO k", true),
        ("EVAL_RO return{} 1 k", true),
        ("FCALL_RO f 1 k", true),
        ("GETEX k", false),
        ("GETDEL k", false),
        ("SPOP k", false),
        ("SORT k", false),
        ("EVAL return{} 1 k", false),
        ("FCALL f 1 k", false),
        ("BITFIELD k GET u8 0", false),
        ("GEORADIUS k 0 0 1 m", false),
        ("SET k v", false),
        ("DEL k", false),
        ("DBSIZE", false),
        ("SCAN 0", false),
    ] {
        let before = others.fakes[0].seen.lock().unwrap().len();
        call(&mut client, line);
        let after = others.fakes[0].seen.lock().unwrap().len();
        assert_eq!(after == before, is_read, "{line}");
    }
    // Neither may a transaction leave its server, nor a watched key be read elsewhere.
    for line in ["WATCH k", "GET k", "MULTI", "GET k", "EXEC"] {
        call(&mut client, line);
    }
    assert_eq!(others.fakes[0].seen("GET"), 2);
}

/// For every command of data.
#[test]
fn what_redis_flags_as_reading_goes_to_replicas_and_all_else_to_the_primary() {
    let shard = Shard::new("primary-priority = 10, static-replica-priority = 50");
    shard.until_said(2, MAY);
    let mut client = shard.client();
    let (mut reads, mut writes) = (0, 0);
    for told in commands_of_keys() {
        let len = told
            .words
            .max(told.first + told.step)
            .max(told.words_to_last());
        let mut words = vec![told.name.as_str(); len];
        words[1..].fill("k");
        let before = shard.fakes[0].seen.lock().unwrap().len();
        client.call(&words).unwrap();
        let by_primary = shard.fakes[0].seen.lock().unwrap().len() - before;
        assert_eq!(by_primary, usize::from(!told.reads), "{words:?}");
        *(if told.reads { &mut reads } else { &mut writes }) += 1;
    }
    assert!(reads > 50 && writes > 70, "{reads} {writes}");
}

#[test]
fn a_read_behind_an_unanswered_write_goes_where_the_write_went() {
    let shard = Shard::new("primary-priority = 10, static-replica-priority = 50");
    shard.until_said(2, MAY);
    let mut client = shard.client();
    let mut requests = Vec::new();
    for words in [
        &["GET", "k"][..],
        &["SET", "k", "v"],
        &["GET", "k"],
        &["MGET", "k", "l"],
    ] {
        encode(words, &mut requests);
    }
    client.send(&requests).unwrap();
    let first = name(&client.reply().unwrap().unwrap());
    assert!(first == "one" || first == "two", "{first}");
    let both = Value::Array(vec![bulk("zero"), bulk("zero")]);
    for expected in [ok(), bulk("zero"), both] {
        assert_eq!(client.reply().unwrap(), Some(expected));
    }
    let later = name(&call(&mut client, "GET k"));
    assert!(later == "one" || later == "two", "{later}");
}

#[test]
fn what_one_client_sends_in_one_piece_is_read_from_one_server() {
    let shard = Shard::new("primary-priority = 50, static-replica-priority = 50");
    shard.until_said(2, MAY);
    let mut client = shard.client();
    let mut requests = Vec::new();
    for _ in 0..100 {
        encode(&["GET", "k"], &mut requests);
    }
    client.send(&requests).unwrap();
    let mut names: Vec<String> = (0..100)
        .map(|_| name(&client.reply().unwrap().unwrap()))
        .collect();
    names.dedup();
    assert!(names.len() <= 2, "{names:?}");
}

#[test]
fn a_replica_without_its_primary_or_too_far_behind_is_left_out_until_it_is_back() {
    let shard = Shard::new("primary-priority = 0, static-replica-priority = 50, lag-max = '400ms'");
    shard.until_said(2, MAY);
    let mut client = shard.client();
    *shard.fakes[1].info.lock().unwrap() = REPLICA.replace("up", "down");
    until("the one without a link is left out", || {
        shard.is_answered_by(&mut client, &["two"])
    });
    *shard.fakes[1].info.lock().unwrap() = REPLICA.to_owned();
    until("it is back", || {
        shard.is_answered_by(&mut client, &["one", "two"])
    });
    // The primary and one replica advance; the other does not.
    shard.fakes[0].offset.store(9, Ordering::SeqCst);
    shard.fakes[2].offset.store(9, Ordering::SeqCst);
    until("the one that is behind is left out", || {
        shard.is_answered_by(&mut client, &["two"])
    });
    shard.fakes[2].offset.store(8, Ordering::SeqCst);
    until("nobody is left but the primary", || {
        shard.is_answered_by(&mut client, &["zero"])
    });
    shard.fakes[1].offset.store(9, Ordering::SeqCst);
    until("the one that has caught up is back", || {
        shard.is_answered_by(&mut client, &["one"])
    });
}

#[test]
fn a_read_that_is_lost_is_made_elsewhere_and_a_write_is_not() {
    let shard = Shard::new("primary-priority = 10, static-replica-priority = 50");
    shard.until_said(2, MAY);
    let mut client = shard.client();
    shard.fakes[1].is_broken.store(true, Ordering::SeqCst);
    shard.fakes[2].is_broken.store(true, Ordering::SeqCst);
    for _ in 0..20 {
        assert_eq!(call(&mut client, "GET k"), bulk("zero"));
        assert_eq!(
            call(&mut client, "MGET k l"),
            Value::Array(vec![bulk("zero"), bulk("zero")])
        );
    }
    shard.fakes[0].is_broken.store(true, Ordering::SeqCst);
    shard.fakes[1].is_broken.store(false, Ordering::SeqCst);
    let before = shard.fakes[0].seen("SET");
    let lost = call(&mut client, "SET k v");
    assert_error(&lost, "ERR upstream");
    assert!(name(&lost).contains("outcome"), "{lost:?}");
    assert_eq!(shard.fakes[0].seen("SET"), before + 1);
    assert_eq!(shard.fakes[1].seen("SET") + shard.fakes[2].seen("SET"), 0);
}

#[test]
fn when_the_primary_is_gone_replicas_that_have_lost_it_go_on_answering() {
    let shard = Shard::new("primary-priority = 50, static-replica-priority = 50");
    shard.until_said(2, MAY);
    let mut client = shard.client();
    shard.fakes[0].is_gone.store(true, Ordering::SeqCst);
    *shard.fakes[1].info.lock().unwrap() = REPLICA.replace("up", "down");
    // This one was restarted, and has no data.
    let empty = REPLICA.replace("up", "down").replace("OFFSET", "0");
    *shard.fakes[2].info.lock().unwrap() = empty;
    until("the one that has the data answers", || {
        shard.is_answered_by(&mut client, &["one"])
    });
    assert_error(&call(&mut client, "SET k v"), "ERR upstream");
    shard.fakes[0].is_gone.store(false, Ordering::SeqCst);
    until("the primary answers again", || {
        shard.is_answered_by(&mut client, &["zero"])
    });
}

#[test]
fn reads_do_not_wait_for_a_primary_that_fails_to_be_left_alone() {
    for priority in [50, 0] {
        let shard = Shard::of(&format!(
            "failure = {{ limit = 1000000 }}\nreads = {{ primary-priority = {priority}, static-replica-priority = 50 }}"
        ));
        shard.until_said(2, MAY);
        let mut client = shard.client();
        shard.fakes[0].is_gone.store(true, Ordering::SeqCst);
        for replica in &shard.fakes[1..] {
            *replica.info.lock().unwrap() = REPLICA.replace("up", "down");
        }
        shard.until_said(2, "answers no reads while another can");
        until("replicas that have lost it answer", || {
            !call(&mut client, "GET k").is_error()
        });
        for number in 0..50 {
            let reply = call(&mut client, "GET k");
            assert!(
                matches!(name(&reply).as_str(), "one" | "two"),
                "{number}: {reply:?}"
            );
            assert_error(&call(&mut client, "SET k v"), "ERR upstream");
        }
        assert!(!shard.proxy.log().contains("is marked down"));
        shard.fakes[0].is_gone.store(false, Ordering::SeqCst);
        until("the primary answers again", || {
            shard.is_answered_by(&mut client, &["zero"])
        });
    }
}

#[test]
fn a_data_centre_is_read_from_by_its_weight() {
    let (near, near_address) = Fake::start("near", PRIMARY);
    let (far, far_address) = Fake::start("far", REPLICA);
    let proxy = proxy_with(&format!(
        "local-data-center = 'here'
        [[data-center]]
        name = 'here'
        address-prefixes = ['{near_address}']
        read = [{{ data-center = 'here', priority = 50, weight = 3 }}, {{ data-center = 'there', priority = 50 }}]
        [[data-center]]
        name = 'there'
        address-prefixes = ['127.']
        [[pool]]
        reads = {{ static-replica-priority = 50 }}
        shard = [{{ server = [{{ address = '{near_address}' }}, {{ address = '{far_address}' }}] }}]"
    ));
    until(MAY, || proxy.log().contains(MAY));
    let mut client = Client::connect(proxy.address()).unwrap();
    // The log says so before the worker knows.
    until("both are read from", || {
        call(&mut client, "GET k");
        far.seen("GET") > 0
    });
    let before = near.seen("GET");
    (0..200).for_each(|_| drop(call(&mut client, "GET k")));
    let count = near.seen("GET") - before;
    assert!((130..=170).contains(&count), "{count} of 200");
}

#[test]
fn who_answers_reads_may_change_while_it_runs() {
    let shard = Shard::new("primary-priority = 50");
    let mut client = shard.client();
    let mut names = shard.answers(&mut client, 20);
    names.dedup();
    assert_eq!(names, ["zero"]);
    let file = shard.proxy.config_file();
    let text = std::fs::read_to_string(&file).unwrap();
    let replicas = "primary-priority = 0, static-replica-priority = 7";
    std::fs::write(&file, text.replace("primary-priority = 50", replicas)).unwrap();
    assert_eq!(call(&mut client, "CONFIG RELOAD"), ok());
    shard.until_said(2, MAY);
    until("the replicas answer", || {
        let mut names = shard.answers(&mut client, 20);
        names.dedup();
        names == ["one", "two"]
    });
    std::fs::write(&file, &text).unwrap();
    assert_eq!(call(&mut client, "CONFIG RELOAD"), ok());
    until("the primary answers", || {
        let mut names = shard.answers(&mut client, 20);
        names.dedup();
        names == ["zero"]
    });
}
