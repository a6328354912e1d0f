//! Running out of descriptors, and using many of them.

use std::fs::File;
use std::time::Instant;

use redline_net::{
    Address, Interest, Listener, Poller, Read, Stream, connect_endpoint, is_out_of_descriptors,
    limits,
};

use crate::alone;
use crate::sockets::{self, PATIENCE, accept};

const LISTENER: usize = usize::MAX;

#[test]
fn descriptors_run_out_without_spinning_and_ten_thousand_connections_are_served() {
    let _alone = alone();
    out_of_descriptors();
    let limit = limits::raise_open_files(20_100).unwrap().granted;
    // Both ends are ours, so a connection costs two.
    let count = 10_000.min((limit as usize - 64) / 2);
    println!("{count} connections");
    echo_over(count);
}

fn out_of_descriptors() {
    let listener = Listener::bind_tcp(&["127.0.0.1"], 0, 16).unwrap().remove(0);
    let mut poller = Poller::new(16).unwrap();
    poller
        .register(&listener, LISTENER, Interest::Read)
        .unwrap();
    let client = connect_endpoint(&endpoint_of(&listener)).unwrap();

    let mut hoard = Vec::new();
    let full = loop {
        match File::open("/dev/null") {
            Ok(file) => hoard.push(file),
            Err(error) => break error,
        }
    };
    assert!(is_out_of_descriptors(&full));
    sockets::wait_for(&mut poller, LISTENER, |event| event.readable);
    for _ in 0..3 {
        let error = listener.accept().expect_err("no descriptor is free");
        assert!(is_out_of_descriptors(&error), "{error}");
    }
    // The connection still waits, but raises no event of its own: a loop sleeps instead of spinning.
    poller
        .poll(Some(std::time::Duration::from_millis(20)))
        .unwrap();
    assert_eq!(poller.event_count(), 0);

    hoard.pop();
    let (_server, peer) = accept_one(&listener);
    assert_eq!(peer, client.local_address().unwrap());
}

fn accept_one(listener: &Listener) -> (Stream, redline_net::PeerAddr) {
    listener.accept().unwrap().expect("the connection was kept")
}

fn endpoint_of(listener: &Listener) -> redline_net::Endpoint {
    Address::tcp("127.0.0.1", listener.port().unwrap())
        .resolve()
        .unwrap()
        .remove(0)
}

/// Opens `count` connections, sends a byte over each, and waits until all came back.
fn echo_over(count: usize) {
    let listener = Listener::bind_tcp(&["127.0.0.1"], 0, 511)
        .unwrap()
        .remove(0);
    let endpoint = endpoint_of(&listener);
    let mut poller = Poller::new(1024).unwrap();
    let (mut clients, mut servers) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for index in 0..count {
        let client = connect_endpoint(&endpoint).unwrap();
        let (server, _) = accept(&listener);
        poller.register(&server, 2 * index, Interest::Read).unwrap();
        poller
            .register(&client, 2 * index + 1, Interest::Read)
            .unwrap();
        clients.push(client);
        servers.push(server);
    }
    for client in &mut clients {
        assert_eq!(client.write(b"x").unwrap(), Some(1));
    }
    let deadline = Instant::now() + PATIENCE;
    let mut answered = 0;
    while answered < count {
        assert!(
            Instant::now() < deadline,
            "{answered} of {count} were answered"
        );
        poller.poll(Some(PATIENCE)).unwrap();
        for event in poller.events() {
            let is_server = event.token % 2 == 0;
            let ends = if is_server {
                &mut servers
            } else {
                &mut clients
            };
            let stream = &mut ends[event.token / 2];
            if let Read::Data { bytes, .. } = stream.read(&mut [0; 16]).unwrap() {
                assert_eq!(bytes, 1);
                if is_server {
                    assert_eq!(stream.write(b"y").unwrap(), Some(1));
                } else {
                    answered += 1;
                }
            }
        }
    }
}
