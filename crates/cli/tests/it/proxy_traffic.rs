//! `redline proxy` as a process: users beyond their rate limits, injected faults, copies for other pools, and keepalive
//! probes of silent connections.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use redline_resp::Value;
use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

use crate::proxying::{REDLINE, assert_error, bulk, call, ok, proxy_with, until};

fn server() -> ServerProcess {
    ServerProcess::redline(std::path::Path::new(REDLINE), 1, &[]).unwrap()
}

fn pool(server: &ServerProcess, name: &str) -> String {
    format!(
        "[[pool]]\nname = '{name}'\nshard = [{{ server = [{{ address = '{}' }}] }}]\n",
        server.address()
    )
}

fn client(server: &ServerProcess) -> Client {
    Client::connect(server.address()).unwrap()
}

#[test]
fn a_user_that_asks_for_too_much_waits_and_others_do_not() {
    let server = server();
    let proxy = proxy_with(&format!(
        "{}[[user]]\nname = 'default'\nmode = 'admin'\n
        [[user]]\nname = 'slow'\npassword = 's'\nmode = 'write'\ncommands-per-second = 100\n
        [[user]]\nname = 'narrow'\npassword = 'n'\nmode = 'write'\nbytes-per-second = '100kb'",
        pool(&server, "only")
    ));
    let (mut slow, mut other) = (client(&proxy), client(&proxy));
    assert_eq!(call(&mut slow, "AUTH slow s"), ok());
    let began = Instant::now();
    let mut requests = Vec::new();
    for number in 0..200 {
        encode(&["SET", "k", &number.to_string()], &mut requests);
        encode(&["GET", "k"], &mut requests);
    }
    slow.send(&requests).unwrap();
    // 400 calls, of which 100 may be made at once.
    let mut at_once = 0;
    for number in 0..200 {
        assert_eq!(slow.reply().unwrap(), Some(ok()));
        assert_eq!(slow.reply().unwrap(), Some(bulk(&number.to_string())));
        let asked = Instant::now();
        assert_eq!(call(&mut other, "PING"), Value::Simple(b"PONG".to_vec()));
        at_once += u32::from(asked.elapsed() < Duration::from_millis(500));
    }
    let took = began.elapsed();
    assert!(took > Duration::from_millis(2_500), "{took:?}");
    assert!(at_once > 100, "{at_once} of 200");
    // Bytes of replies count as those of requests do.
    let large = "x".repeat(150 * 1024);
    assert_eq!(call(&mut other, &format!("SET large {large}")), ok());
    let mut narrow = client(&proxy);
    assert_eq!(call(&mut narrow, "AUTH narrow n"), ok());
    let began = Instant::now();
    for _ in 0..2 {
        assert_eq!(call(&mut narrow, "GET large"), bulk(&large));
    }
    assert_eq!(call(&mut narrow, "GET none"), Value::NullBulk);
    let took = began.elapsed();
    assert!(took > Duration::from_millis(1_500), "{took:?}");
}

/// A client that gives up waiting delays no other client; one that only closes its side still gets its replies.
#[test]
fn nobody_waits_for_the_turns_of_those_who_have_gone() {
    let server = server();
    let proxy = proxy_with(&format!(
        "threads = 1\n{}[[user]]\nname = 'default'\nmode = 'admin'\ncommands-per-second = 10",
        pool(&server, "only")
    ));
    let request = |words: &[&str]| {
        let mut request = Vec::new();
        encode(words, &mut request);
        request
    };
    let mut half = TcpStream::connect(proxy.address()).unwrap();
    half.write_all(&request(&["INCR", "half"]).repeat(20))
        .unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    let mut replies = String::new();
    half.read_to_string(&mut replies).unwrap();
    assert!(replies.ends_with(":20\r\n"), "{replies}");
    let mut late = client(&proxy);
    let gone: Vec<TcpStream> = (0..80)
        .map(|_| {
            let mut one = TcpStream::connect(proxy.address()).unwrap();
            one.write_all(&request(&["INCR", "n"])).unwrap();
            one
        })
        .collect();
    let mut direct = client(&server);
    until("the first has had its turn", || {
        call(&mut direct, "GET n") != Value::NullBulk
    });
    drop(gone);
    assert_eq!(call(&mut late, "PING"), Value::Simple(b"PONG".to_vec()));
    let Value::Bulk(made) = call(&mut direct, "GET n") else {
        panic!("a number")
    };
    let made: u32 = String::from_utf8(made).unwrap().parse().unwrap();
    assert!(
        made < 40,
        "{made} of those who have gone had their turn before"
    );
}

#[test]
fn or_it_is_refused_until_it_may_go_on() {
    let server = server();
    let proxy = proxy_with(&format!(
        "{}[[user]]\nname = 'default'\nmode = 'admin'\ncommands-per-second = 50\nwhen-exceeded = 'refuse'",
        pool(&server, "only")
    ));
    let mut client = client(&proxy);
    let mut requests = Vec::new();
    (0..2_000).for_each(|_| encode(&["INCR", "k"], &mut requests));
    client.send(&requests).unwrap();
    let replies: Vec<Value> = (0..2_000)
        .map(|_| client.reply().unwrap().unwrap())
        .collect();
    let number = replies.iter().position(Value::is_error);
    let number = number.expect("more than it may");
    assert!(number >= 45, "{number}");
    let reply = &replies[number];
    assert_error(reply, "ERR this user asks for more than it may");
    until("it may go on", || !call(&mut client, "GET k").is_error());
}

#[test]
fn faults_happen_to_whom_they_are_meant_for() {
    let server = server();
    let proxy = proxy_with(&format!(
        "{}
        [[fault]]\ncommands = ['get']\nkey-prefix = 'slow:'\ndelay = '5s'
        [[fault]]\ncommands = ['set', 'config|get']\nkey-prefix = ''\nerror = 'ERR on purpose'
        [[fault]]\nkey-prefix = 'cut:'\ncut = true
        [[fault]]\ncommands = ['incr']\npercent = 30.0\nerror = 'ERR now and then'",
        pool(&server, "only")
    ));
    let mut one = client(&proxy);
    assert_error(&call(&mut one, "SET k v"), "ERR on purpose");
    assert_error(&call(&mut one, "CONFIG GET port"), "ERR on purpose");
    assert_eq!(call(&mut one, "GET k"), Value::NullBulk);
    assert_eq!(call(&mut one, "MSET slow:k 1 k 2"), ok());
    // Others go on meanwhile, and later calls wait.
    let mut requests = Vec::new();
    encode(&["GET", "slow:k"], &mut requests);
    encode(&["GET", "k"], &mut requests);
    let began = Instant::now();
    one.send(&requests).unwrap();
    let mut other = client(&proxy);
    assert_eq!(call(&mut other, "GET k"), bulk("2"));
    assert!(began.elapsed() < Duration::from_millis(4_900));
    assert_eq!(one.reply().unwrap(), Some(bulk("1")));
    assert!(began.elapsed() >= Duration::from_millis(4_990));
    assert_eq!(one.reply().unwrap(), Some(bulk("2")));
    let failed = (0..1000)
        .filter(|_| call(&mut other, "INCR n").is_error())
        .count();
    assert!((220..380).contains(&failed), "{failed}");
    let made = 1000 - failed;
    assert_eq!(call(&mut other, "GET n"), bulk(&made.to_string()));
    // Earlier calls are answered; the call itself is not made.
    let mut requests = Vec::new();
    encode(&["GET", "k"], &mut requests);
    encode(&["DEL", "cut:k", "k"], &mut requests);
    one.send(&requests).unwrap();
    assert_eq!(one.reply().unwrap(), Some(bulk("2")));
    assert_eq!(one.reply().unwrap(), None);
    assert_eq!(call(&mut other, "EXISTS k"), Value::Integer(1));
    // In a transaction it is a failing call.
    assert_eq!(call(&mut other, "MULTI"), ok());
    assert_error(&call(&mut other, "SET k v"), "ERR on purpose");
    assert_error(&call(&mut other, "EXEC"), "EXECABORT");
}

#[test]
fn another_pool_gets_copies_and_is_never_felt() {
    let (own, first, second) = (server(), server(), server());
    let mut copies = Some(second);
    let copied = copies.as_ref().unwrap();
    let proxy = proxy_with(&format!(
        "{}[[pool]]\nname = 'copy'
        shard = [{{ name = 'a', server = [{{ address = '{}' }}] }}, {{ name = 'b', server = [{{ address = '{}' }}] }}]
        [[mirror]]\npool = 'copy'\nkey-prefix = 'm:'",
        pool(&own, "own"),
        first.address(),
        copied.address()
    ));
    let mut through = client(&proxy);
    let pairs: Vec<String> = (0..50)
        .map(|number| format!("m:{number} {number}"))
        .collect();
    assert_eq!(
        call(&mut through, &format!("MSET {}", pairs.join(" "))),
        ok()
    );
    assert_eq!(call(&mut through, "SET k v"), ok());
    assert_eq!(call(&mut through, "DEL m:0"), Value::Integer(1));
    assert_eq!(call(&mut through, "GET m:1"), bulk("1"));
    let (mut at_first, mut at_second) = (client(&first), client(copied));
    let count = |direct: &mut Client| match call(direct, "DBSIZE") {
        Value::Integer(count) => count,
        other => panic!("{other:?}"),
    };
    until("both have their part", || {
        count(&mut at_first) + count(&mut at_second) == 49 && count(&mut at_first) > 0
    });
    assert!(count(&mut at_second) > 0);
    // Neither errors nor the end of the other pool have an effect.
    for key in 1..50 {
        call(&mut at_first, &format!("DEL m:{key}"));
        call(&mut at_first, &format!("LPUSH m:{key} x"));
    }
    assert_eq!(call(&mut through, "APPEND m:1 1"), Value::Integer(2));
    drop(at_second);
    drop(copies.take());
    for number in 0..200 {
        assert_eq!(call(&mut through, &format!("SET m:{number} v")), ok());
    }
    // Whether a transaction is made is not known beforehand.
    let before = count(&mut at_first);
    for line in [
        "MULTI",
        "SET m:tx1 v",
        "SET m:tx2 v",
        "SET m:tx3 v",
        "DISCARD",
    ] {
        call(&mut through, line);
    }
    assert_eq!(call(&mut through, "GET m:1"), bulk("v"));
    assert_eq!(count(&mut at_first), before);
}

#[test]
fn a_call_is_made_once_where_it_is_copied_to_however_often_that_is_said() {
    let (own, copy) = (server(), server());
    let proxy = proxy_with(&format!(
        "{}{}[[route]]\nprefix = 'c:'\npool = 'copy'
        [[mirror]]\npool = 'copy'\n[[mirror]]\npool = 'copy'\nkey-prefix = 'm'\ncalls = 'all'",
        pool(&own, "own"),
        pool(&copy, "copy"),
    ));
    let (mut through, mut direct) = (client(&proxy), client(&copy));
    // It goes there anyway.
    assert_eq!(call(&mut through, "INCR c:n"), Value::Integer(1));
    assert_eq!(call(&mut through, "MSET c:s v s v"), ok());
    // Said twice.
    assert_eq!(call(&mut through, "INCR m"), Value::Integer(1));
    // A call that is refused here is not copied.
    assert_eq!(call(&mut direct, "SADD other x"), Value::Integer(1));
    let refused = call(&mut through, "SUNIONSTORE other c:none none");
    assert_error(&refused, "CROSSSLOT");
    // One connection leads there, so the last call shows that all have arrived.
    assert_eq!(call(&mut through, "SET m:end v"), ok());
    until("all is there", || {
        call(&mut direct, "EXISTS m:end") == Value::Integer(1)
    });
    for (key, count) in [("c:n", "1"), ("m", "1"), ("s", "v"), ("c:s", "v")] {
        assert_eq!(call(&mut direct, &format!("GET {key}")), bulk(count));
    }
    assert_eq!(call(&mut direct, "EXISTS other"), Value::Integer(1));
    let requests = call(&mut direct, "INFO commandstats");
    let text = String::from_utf8_lossy(requests.as_bytes().unwrap()).into_owned();
    // By its own name, and as a copy of `s`: keys that go there anyway are not copied.
    assert!(text.contains("cmdstat_mset:calls=2,"), "{text}");
}

#[test]
fn a_call_that_waits_for_others_is_paid_for_once() {
    let server = server();
    let proxy = proxy_with(&format!(
        "{}[[user]]\nname = 'default'\nmode = 'admin'\ncommands-per-second = 14\nwhen-exceeded = 'refuse'",
        pool(&server, "only")
    ));
    let mut direct = client(&server);
    let filled = call(&mut direct, "RPUSH l 1 2 3 4 5 6");
    assert_eq!(filled, Value::Integer(6));
    let mut requests = Vec::new();
    for _ in 0..6 {
        encode(&["GET", "k"], &mut requests);
        // It has its own connection, and waits for earlier calls.
        encode(&["BLPOP", "l", "1"], &mut requests);
    }
    let mut client = client(&proxy);
    client.send(&requests).unwrap();
    for number in 1..=6 {
        assert_eq!(client.reply().unwrap(), Some(Value::NullBulk));
        let popped = Value::Array(vec![bulk("l"), bulk(&number.to_string())]);
        assert_eq!(client.reply().unwrap(), Some(popped));
    }
}

#[test]
fn what_goes_from_socket_to_socket_is_paid_for_too() {
    let server = server();
    let proxy = proxy_with(&format!(
        "{}[[user]]\nname = 'default'\nmode = 'admin'\nbytes-per-second = '1mb'",
        pool(&server, "only")
    ));
    let large = "x".repeat(3 << 20);
    let mut direct = client(&server);
    assert_eq!(call(&mut direct, &format!("SET large {large}")), ok());
    let mut client = client(&proxy);
    let began = Instant::now();
    assert_eq!(call(&mut client, "GET large"), bulk(&large));
    assert_eq!(call(&mut client, "GET none"), Value::NullBulk);
    let took = began.elapsed().as_secs_f64();
    assert!((1.5..10.0).contains(&took), "{took}");
}

/// Returns true if the kernel probes the silent connection between these ports.
fn is_probed(local: u16, remote: u16) -> bool {
    const KEEPALIVE: &str = "02";
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let port = |address: &str| u16::from_str_radix(address.split_once(':').unwrap().1, 16);
    table.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        port(fields[1]) == Ok(local)
            && (remote == 0 || port(fields[2]) == Ok(remote))
            && fields[5].starts_with(KEEPALIVE)
    })
}

#[test]
fn silent_connections_are_probed_if_that_is_said() {
    let server = server();
    for (more, is_there) in [("'60s'", true), ("'off'", false)] {
        let proxy = ServerProcess::proxy_of_file(
            std::path::Path::new(REDLINE),
            &format!(
                "[[listener]]\nbind = '127.0.0.1:@port@'\nkeepalive = {more}\n[[pool]]\nkeepalive = {more}
                shard = [{{ server = [{{ address = '{}' }}] }}]",
                server.address()
            ),
        )
        .unwrap();
        let mut client = client(&proxy);
        assert_eq!(call(&mut client, "SET k v"), ok());
        let clients = is_probed(proxy.address().port(), 0);
        assert_eq!(clients, is_there, "of clients");
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let port = format!(":{:04X}", server.address().port());
        let probed = table.lines().skip(1).any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[2].ends_with(&port) && fields[3] == "01" && fields[5].starts_with("02")
        });
        assert_eq!(probed, is_there, "of servers");
    }
}
