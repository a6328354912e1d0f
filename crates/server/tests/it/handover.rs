//! Clients that change their worker: they notice nothing, and who has to find them does. Must not know the server's
//! insides.

use std::{thread, time::Duration};

use crate::client::{Client, Value, request, settings, start, until};
use redline_server::{Permission, Server};

fn server(workers: usize) -> Server {
    let mut settings = settings(workers);
    settings.enable_debug_command = Permission::Yes;
    start(settings)
}

fn id(client: &mut Client) -> i64 {
    client.call("CLIENT ID").integer()
}

/// The worker of the client with this id; `None`: it has gone.
fn worker_of(observer: &mut Client, id: i64) -> Option<usize> {
    let Value::Bulk(text) = observer.call(&format!("CLIENT LIST ID {id}")) else {
        panic!("CLIENT LIST is text")
    };
    let text = String::from_utf8(text).unwrap();
    let field = text
        .split(' ')
        .find_map(|word| word.strip_prefix("io-thread="));
    field.map(|number| number.parse().unwrap())
}

/// Moves a client that has nothing to do.
#[track_caller]
fn move_to(observer: &mut Client, id: i64, worker: usize) {
    until("it has the other worker", || {
        observer
            .call(&format!("DEBUG MOVE-CLIENT {id} {worker}"))
            .ok();
        worker_of(observer, id) == Some(worker)
    });
}

#[test]
fn a_client_that_is_handed_over_in_the_middle_of_its_pipelines_misses_nothing() {
    const PIPELINES: i64 = 3_000;
    const CALLS: i64 = 20;
    let server = server(3);
    let (mut observer, mut client) = (Client::connect(&server), Client::connect(&server));
    let id = id(&mut client);
    let bytes: Vec<u8> = (0..CALLS).flat_map(|_| request("INCR n")).collect();
    let places = thread::scope(|scope| {
        let asking = scope.spawn(move || {
            for pipeline in 0..PIPELINES {
                // In two pieces: what comes while it moves is torn, too.
                let (first, second) = bytes.split_at(pipeline as usize % bytes.len());
                client.write(first);
                client.write(second);
                for call in 1..=CALLS {
                    assert_eq!(client.read(), Value::Integer(pipeline * CALLS + call));
                }
            }
            client
        });
        let (mut places, mut before) = (0, None);
        while !asking.is_finished() {
            for worker in 0..3 {
                observer
                    .call(&format!("DEBUG MOVE-CLIENT {id} {worker}"))
                    .ok();
                let now = worker_of(&mut observer, id);
                places += u32::from(now != before);
                before = now;
            }
        }
        drop(asking.join().unwrap());
        places
    });
    assert!(places > 3, "it has hardly moved");
}

#[test]
fn it_takes_along_what_it_has_said_of_itself() {
    let server = server(2);
    let (mut observer, mut client) = (Client::connect(&server), Client::connect(&server));
    let id = id(&mut client);
    client.call("HELLO 3 SETNAME me");
    client.call("SELECT 7").ok();
    client.call("SET here 7").ok();
    client.call("CLIENT NO-TOUCH on").ok();
    let line = |observer: &mut Client| {
        let Value::Bulk(text) = observer.call(&format!("CLIENT LIST ID {id}")) else {
            panic!("CLIENT LIST is text")
        };
        let text = String::from_utf8(text).unwrap();
        // The last reply may have arrived before it was counted.
        let varies = ["io-thread=", "age=", "idle=", "tot-net-out="];
        let same = |word: &&str| !varies.iter().any(|field| word.starts_with(field));
        let same = text.split(' ').filter(same);
        same.collect::<Vec<_>>().join(" ")
    };
    let before = line(&mut observer);
    for worker in [1, 0, 1] {
        move_to(&mut observer, id, worker);
        assert_eq!(line(&mut observer), before);
    }
    assert_eq!(client.call("GET here").integer(), 7);
    assert_eq!(client.call("CLIENT ID").integer(), id);
    assert_eq!(client.call("GET missing"), Value::Nil);
}

#[test]
fn who_is_looked_for_under_its_old_place_stays_until_it_is_no_more() {
    let server = server(2);
    let mut observer = Client::connect(&server);
    let pins = [
        ("SUBSCRIBE c", "UNSUBSCRIBE c"),
        ("PSUBSCRIBE c*", "PUNSUBSCRIBE"),
        ("SSUBSCRIBE c", "SUNSUBSCRIBE"),
        ("CLIENT TRACKING on", "CLIENT TRACKING off"),
        ("WATCH k", "UNWATCH"),
        ("MULTI", "DISCARD"),
    ];
    for (pin, unpin) in pins {
        let mut client = Client::connect(&server);
        let id = id(&mut client);
        client.call("HELLO 3");
        client.call(pin);
        let here = worker_of(&mut observer, id).unwrap();
        let there = 1 - here;
        observer
            .call(&format!("DEBUG MOVE-CLIENT {id} {there}"))
            .ok();
        // The other that is to go behind it goes.
        let mut other = Client::connect(&server);
        let other_id = other.call("CLIENT ID").integer();
        for worker in [there, here] {
            move_to(&mut observer, other_id, worker);
        }
        assert_eq!(worker_of(&mut observer, id), Some(here), "{pin}");
        client.call(unpin);
        move_to(&mut observer, id, there);
        assert_eq!(client.call("PING"), Value::Simple("PONG".into()));
    }
}

#[test]
fn who_has_moved_is_found() {
    let server = server(2);
    let mut observer = Client::connect(&server);
    for round in 0..20 {
        let mut client = Client::connect(&server);
        let id = id(&mut client);
        client.call("HELLO 3");
        let mut tracking = Client::connect(&server);
        tracking
            .call(&format!("CLIENT TRACKING on REDIRECT {id}"))
            .ok();
        let there = 1 - worker_of(&mut observer, id).unwrap();
        move_to(&mut observer, id, there);
        let key = format!("key{round}");
        tracking.call(&format!("GET {key}"));
        // On its way again while it is written to.
        observer
            .call(&format!("DEBUG MOVE-CLIENT {id} {}", 1 - there))
            .ok();
        observer.call(&format!("SET {key} x")).ok();
        let Value::Push(news) = client.read() else {
            panic!("no push")
        };
        assert_eq!(news[1], Value::Array(vec![Value::Bulk(key.into())]));
        observer
            .call(&format!("DEBUG MOVE-CLIENT {id} {there}"))
            .ok();
        let killed = observer.call(&format!("CLIENT KILL ID {id}"));
        assert_eq!(killed.integer(), 1);
        assert!(client.try_read().is_err(), "killed, and yet there");
    }
}

#[test]
fn clients_of_two_workers_with_little_to_do_come_together_if_that_is_switched_on() {
    let server = server(2);
    let mut clients: Vec<Client> = (0..6).map(|_| Client::connect(&server)).collect();
    let ids: Vec<i64> = clients.iter_mut().map(id).collect();
    let mut observer = clients.pop().unwrap();
    let mut workers = || -> Vec<usize> {
        clients
            .iter_mut()
            .for_each(|client| drop(client.call("PING")));
        // Little to do, also where everything is slow.
        thread::sleep(Duration::from_millis(5));
        let of = |id: &i64| worker_of(&mut observer, *id).unwrap();
        ids.iter().map(of).collect()
    };
    let first = workers();
    assert!(first.contains(&0) && first.contains(&1), "{first:?}");
    Client::connect(&server)
        .call("CONFIG SET balance-clients yes")
        .ok();
    until("all have one worker", || {
        let now = workers();
        now.iter().all(|worker| *worker == now[0])
    });
    // That one has been brought to them while it was looked at happens, ten times in a row it does not.
    until("who comes later has the same", || {
        (0..10).all(|_| {
            let mut other = Client::connect(&server);
            let (id, now) = (id(&mut other), workers());
            let own = worker_of(&mut Client::connect(&server), id);
            now.iter().all(|worker| Some(*worker) == own)
        })
    });
}

#[test]
fn worker_and_client_have_to_be_there() {
    let server = server(2);
    let mut client = Client::connect(&server);
    let id = id(&mut client);
    for (line, text) in [
        (format!("DEBUG MOVE-CLIENT {id} 2"), "ERR No such worker"),
        (format!("DEBUG MOVE-CLIENT {id} -1"), "ERR No such worker"),
        (
            format!("DEBUG MOVE-CLIENT {} 1", id + 1),
            "ERR No such client",
        ),
        ("DEBUG MOVE-CLIENT x 1".into(), "ERR No such client"),
    ] {
        assert_eq!(client.call(&line).error(), text);
    }
}
