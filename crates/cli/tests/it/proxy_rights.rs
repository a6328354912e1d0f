//! `redline proxy` as a process: users limited to some keys neither see nor change others, even by calls without key
//! arguments.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use redline_resp::Value;
use redline_testkit::client::Client;
use redline_testkit::process::ServerProcess;

use crate::proxying::{
    REDLINE, assert_error, bulk, call, cluster_of_one, ok, proxy_with, scripted, shards, words,
};

/// A user limited by prefixes, and one by Redis's ACL rules.
const USERS: &str = "
    [[user]]\nname = 'default'\nmode = 'admin'
    [[user]]\nname = 'some'\npassword = 's'\nmode = 'write'\nkey-prefixes = ['a:']
    [[user]]\nname = 'ruled'\npassword = 'r'\nrules = '~a:* &* +@all'\n";

fn logged_in(proxy: &ServerProcess, login: &str) -> Client {
    let mut client = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut client, &format!("AUTH {login}")), ok());
    client
}

#[test]
fn who_has_some_keys_is_neither_shown_others_nor_changes_them() {
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let proxy = proxy_with(&format!("[[pool]]\n{}{USERS}", shards(&[server.address()])));
    let mut all = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut all, "MSET a:1 v b:1 v"), ok());
    let listed = |reply: Value| match reply {
        Value::Array(keys) => keys,
        other => panic!("{other:?}"),
    };
    let scanned = |reply: Value| listed(listed(reply).remove(1));
    for login in ["some s", "ruled r"] {
        let mut client = logged_in(&proxy, login);
        for line in [
            "SCAN 0",
            "SCAN 0 COUNT 1000",
            "SCAN 0 MATCH *",
            "SCAN 0 MATCH b:*",
            "SCAN 0 MATCH [ab]:*",
            "SCAN 0 MATCH a:* COUNT 10 MATCH b:*",
            "RANDOMKEY",
            "KEYS *",
            "KEYS b:1",
            "FLUSHDB",
            "FLUSHALL",
            "EVAL return{} 0",
            "EVAL return{} 1 a:1",
            "EVAL_RO return{} 0",
            "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
            "FCALL f 0",
            "MONITOR",
            "SLOWLOG GET",
            "PROXY HOTKEYS",
            "PROXY BIGKEYS",
        ] {
            assert_error(&call(&mut client, line), "NOPERM");
            if !line.starts_with("PROXY") {
                assert_eq!(call(&mut client, "MULTI"), ok());
                assert_error(&call(&mut client, line), "NOPERM");
                assert_error(&call(&mut client, "EXEC"), "EXECABORT");
            }
        }
        for line in ["SORT a:l BY b:*", "SORT a:l GET b:* GET #"] {
            assert_error(&call(&mut client, line), "ERR");
        }
        for options in ["MATCH a:* COUNT 1000", "match a:? type string count 1000"] {
            let keys = scanned(call(&mut client, &format!("SCAN 0 {options}")));
            assert_eq!(keys, [bulk("a:1")], "{options}");
        }
    }
    let mut ruled = logged_in(&proxy, "ruled r");
    assert_eq!(listed(call(&mut ruled, "KEYS a:*")), [bulk("a:1")]);
    assert_eq!(call(&mut ruled, "DBSIZE"), Value::Integer(2));
    // A user with all keys sees every key.
    assert_eq!(scanned(call(&mut all, "SCAN 0 COUNT 1000")).len(), 2);
    assert_eq!(listed(call(&mut all, "KEYS *")).len(), 2);
    assert_eq!(call(&mut all, "EVAL return{} 0"), Value::Array(Vec::new()));
}

/// Returns a node of a cluster that reports to be one with all slots, and in each of them a key.
fn node() -> SocketAddr {
    let place: Arc<OnceLock<SocketAddr>> = Arc::default();
    let own = Arc::clone(&place);
    let address = scripted(move |words| {
        let sub = words.get(1).map(|word| word.to_ascii_uppercase());
        match sub.as_deref() {
            Some(b"GETKEYSINSLOT") => return b"*1\r\n$3\r\nb:1\r\n".to_vec(),
            Some(b"COUNTKEYSINSLOT") => return b":1\r\n".to_vec(),
            _ => {}
        }
        let port = own.get().map_or(0, SocketAddr::port);
        cluster_of_one(words, port).unwrap_or_else(|| b"+PONG\r\n".to_vec())
    });
    place.set(address).unwrap();
    address
}

#[test]
fn the_face_of_a_cluster_shows_no_keys_to_who_may_not_have_them() {
    let proxy = proxy_with(&format!(
        "[cluster-face]\nenabled = true\n[[pool]]\nkind = 'cluster'\nseed = [{{ address = '{}' }}]\n{USERS}
        [[user]]\nname = 'reader'\npassword = 'x'\nmode = 'read'\n",
        node()
    ));
    for login in ["some s", "ruled r"] {
        let mut client = logged_in(&proxy, login);
        for line in ["CLUSTER GETKEYSINSLOT 1 10", "CLUSTER COUNTKEYSINSLOT 1"] {
            assert_error(&call(&mut client, line), "NOPERM");
        }
        assert!(matches!(
            call(&mut client, "CLUSTER SLOTS"),
            Value::Array(_)
        ));
    }
    for mut client in [
        Client::connect(proxy.address()).unwrap(),
        logged_in(&proxy, "reader x"),
    ] {
        assert_eq!(
            call(&mut client, "CLUSTER GETKEYSINSLOT 1 10"),
            Value::Array(vec![bulk("b:1")])
        );
        assert_eq!(
            call(&mut client, "CLUSTER COUNTKEYSINSLOT 1"),
            Value::Integer(1)
        );
    }
}

#[test]
fn the_face_of_a_cluster_answers_who_may_call_what_it_answers() {
    let proxy = proxy_with(&format!(
        "[cluster-face]\nenabled = true\n[[pool]]\nkind = 'cluster'\nseed = [{{ address = '{}' }}]\n{USERS}
        [[user]]\nname = 'reader'\npassword = 'x'\nmode = 'read'
        [[user]]\nname = 'getter'\npassword = 'g'\nrules = '~* +get'
        [[user]]\nname = 'shower'\npassword = 'h'\nrules = '~* +cluster|slots +readonly'\n",
        node()
    ));
    let mut getter = logged_in(&proxy, "getter g");
    let mut shower = logged_in(&proxy, "shower h");
    let mut others = ["some s", "reader x"].map(|login| logged_in(&proxy, login));
    for line in [
        "CLUSTER SLOTS",
        "READONLY",
        "CLUSTER SHARDS",
        "CLUSTER NODES",
        "CLUSTER INFO",
        "CLUSTER MYID",
        "CLUSTER MYSHARDID",
        "CLUSTER KEYSLOT k",
        "CLUSTER LINKS",
        "CLUSTER COUNTKEYSINSLOT 1",
        "CLUSTER HELP",
        "READWRITE",
        "ASKING",
    ] {
        assert_error(&call(&mut getter, line), "NOPERM");
        let may = matches!(line, "CLUSTER SLOTS" | "READONLY");
        let shown = call(&mut shower, line);
        assert!(shown.is_error() != may, "{line}: {shown:?}");
        // Without dangerous commands, clients of a cluster can do all they need.
        for other in &mut others {
            if line != "CLUSTER COUNTKEYSINSLOT 1" {
                let shown = call(other, line);
                assert!(!shown.is_error(), "{line}: {shown:?}");
            }
        }
    }
    // Redis counts these among the dangerous ones.
    for other in &mut others {
        for line in ["CLUSTER REPLICAS x", "CLUSTER FAILOVER"] {
            assert_error(&call(other, line), "NOPERM");
        }
    }
    assert_error(&call(&mut shower, "CLUSTER NOPE"), "ERR unknown subcommand");
}

#[test]
fn what_happens_to_a_key_is_told_only_to_who_may_know_of_it() {
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let mut direct = Client::connect(server.address()).unwrap();
    let line = "CONFIG SET notify-keyspace-events KEA";
    assert_eq!(call(&mut direct, line), ok());
    let proxy = proxy_with(&format!("[[pool]]\n{}{USERS}", shards(&[server.address()])));
    let mut all = Client::connect(proxy.address()).unwrap();
    let mut some = logged_in(&proxy, "some s");
    let mut ruled = logged_in(&proxy, "ruled r");
    for client in [&mut all, &mut some, &mut ruled] {
        call(client, "PSUBSCRIBE __key*@0__:*");
        call(client, "SUBSCRIBE __keyspace@0__:b:1");
    }
    for key in ["b:1", "a:1"] {
        assert_eq!(call(&mut direct, &format!("SET {key} v")), ok());
    }
    let heard = |client: &mut Client, about: &str| {
        let words = words(client.reply().unwrap());
        assert!(words.iter().any(|word| word.contains(about)), "{words:?}");
    };
    // Two channels, one of them with two subscriptions.
    (0..3).for_each(|_| heard(&mut all, "b:1"));
    (0..2).for_each(|_| heard(&mut all, "a:1"));
    for client in [&mut some, &mut ruled] {
        (0..2).for_each(|_| heard(client, "a:1"));
    }
}

#[test]
fn who_has_not_said_who_it_is_may_not_say_much() {
    let text = "
        [[user]]\nname = 'default'\npassword = 'p'\nmode = 'admin'
        [[pool]]\n";
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let proxy = proxy_with(&format!("{text}{}", shards(&[server.address()])));
    for (request, error) in [
        (&b"*11\r\n"[..], "unauthenticated multibulk length"),
        (
            b"*2\r\n$4\r\nAUTH\r\n$16385\r\n",
            "unauthenticated bulk length",
        ),
    ] {
        let mut client = Client::connect(proxy.address()).unwrap();
        client.send(request).unwrap();
        assert_error(
            &client.reply().unwrap().unwrap(),
            &format!("ERR Protocol error: {error}"),
        );
    }
    // The limits end with AUTH, in the midst of a pipeline too.
    let mut client = Client::connect(proxy.address()).unwrap();
    let value = "v".repeat(20_000);
    let pipeline = format!(
        "*2\r\n$4\r\nAUTH\r\n$1\r\np\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$20000\r\n{value}\r\n"
    );
    client.send(pipeline.as_bytes()).unwrap();
    assert_eq!(
        [client.reply().unwrap(), client.reply().unwrap()],
        [Some(ok()), Some(ok())]
    );
}
