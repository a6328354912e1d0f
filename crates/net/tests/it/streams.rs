//! Streams over real sockets: what arrives, what leaves, how connections begin and end, and how their ends are named.

use std::io::{IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use redline_net::{
    Address, Endpoint, Flush, Interest, Listener, PeerAddr, Poller, Read, Shutdown, Stream,
    connect, connect_blocking, connect_endpoint, flush,
};
use rustix::net::sockopt::tcp_congestion;

use crate::sockets::{self, Family, accept, connected, read_exactly, wait_for};

const TOKEN: usize = 7;

#[test]
fn bytes_travel_both_ways_over_every_family() {
    for family in Family::all() {
        let mut pair = connected(family);
        assert_eq!(pair.client.is_unix(), family == Family::Unix);
        assert_eq!(pair.client.write(b"question").unwrap(), Some(8));
        assert_eq!(read_exactly(&mut pair.server, 8), b"question");
        assert_eq!(
            pair.server
                .write_vectored(&[IoSlice::new(b"ans"), IoSlice::new(b"wer")])
                .unwrap(),
            Some(6)
        );
        assert_eq!(read_exactly(&mut pair.client, 6), b"answer");
    }
}

#[test]
fn within_this_machine_neither_end_is_paced() {
    for family in Family::all() {
        let pair = connected(family);
        if family == Family::Unix {
            continue;
        }
        for end in [&pair.client, &pair.server] {
            let control = tcp_congestion(end).unwrap();
            assert!(!control.starts_with("bbr"), "{family:?}: {control}");
        }
    }
}

#[test]
fn a_short_read_says_drained_and_a_full_one_does_not() {
    let (mut a, mut b) = Stream::pair().unwrap();
    assert_eq!(b.read(&mut [0; 8]).unwrap(), Read::WouldBlock);
    a.write(b"12345678").unwrap();
    let mut room = [0; 8];
    assert_eq!(
        b.read(&mut room).unwrap(),
        Read::Data {
            bytes: 8,
            drained: false
        }
    );
    assert_eq!(b.read(&mut room).unwrap(), Read::WouldBlock);
    a.write(b"123").unwrap();
    assert_eq!(
        b.read(&mut room).unwrap(),
        Read::Data {
            bytes: 3,
            drained: true
        }
    );
    assert_eq!(&room, b"12345678");
}

#[test]
fn reading_into_a_vector_appends_within_its_spare_capacity() {
    let (mut a, mut b) = Stream::pair().unwrap();
    let mut buffer = Vec::with_capacity(16);
    buffer.extend_from_slice(b"left");
    let (capacity, memory) = (buffer.capacity(), buffer.as_ptr());
    a.write(&[b'x'; 100]).unwrap();
    assert_eq!(
        b.read_into(&mut buffer, 5).unwrap(),
        Read::Data {
            bytes: 5,
            drained: false
        }
    );
    assert_eq!(buffer, b"leftxxxxx");
    let spare = capacity - buffer.len();
    assert_eq!(
        b.read_into(&mut buffer, 1000).unwrap(),
        Read::Data {
            bytes: spare,
            drained: false
        }
    );
    assert_eq!(
        (buffer.len(), buffer.as_ptr()),
        (capacity, memory),
        "nothing was moved"
    );
    // Full: now it grows, for a read of no bytes would look like the end of the stream.
    assert_eq!(
        b.read_into(&mut buffer, 1000).unwrap(),
        Read::Data {
            bytes: 100 - 5 - spare,
            drained: true
        }
    );
    assert_eq!(buffer.len(), 4 + 100);
    assert_eq!(b.read_into(&mut buffer, 1000).unwrap(), Read::WouldBlock);
    assert_eq!(buffer.len(), 4 + 100);
}

#[test]
fn data_and_end_of_stream_that_arrive_together_are_both_seen() {
    for family in Family::all() {
        let mut pair = connected(family);
        let mut poller = Poller::new(8).unwrap();
        pair.client.write(b"last words").unwrap();
        pair.client.shutdown(Shutdown::Write).unwrap();
        poller
            .register(&pair.server, TOKEN, Interest::Read)
            .unwrap();
        let event = wait_for(&mut poller, TOKEN, |event| event.closed);
        assert!(event.readable);
        let mut buffer = Vec::with_capacity(100);
        assert_eq!(
            pair.server.read_into(&mut buffer, 100).unwrap(),
            Read::Data {
                bytes: 10,
                drained: true
            }
        );
        // No other event will come, so the one that said `closed` obliges to read on.
        assert_eq!(pair.server.read_into(&mut buffer, 100).unwrap(), Read::Eof);
        assert_eq!(buffer, b"last words");
        // The other direction still works: half closed is not closed.
        pair.server.write(b"reply").unwrap();
        assert_eq!(read_exactly(&mut pair.client, 5), b"reply");
    }
}

#[test]
fn the_end_of_a_stream_raises_an_event_also_after_a_drained_read() {
    for family in Family::all() {
        let mut pair = connected(family);
        let mut poller = Poller::new(8).unwrap();
        poller
            .register(&pair.server, TOKEN, Interest::Read)
            .unwrap();
        pair.client.write(b"x").unwrap();
        wait_for(&mut poller, TOKEN, |event| event.readable);
        assert_eq!(
            pair.server.read(&mut [0; 8]).unwrap(),
            Read::Data {
                bytes: 1,
                drained: true
            }
        );
        drop(pair.client);
        wait_for(&mut poller, TOKEN, |event| event.closed);
        assert_eq!(pair.server.read(&mut [0; 8]).unwrap(), Read::Eof);
    }
}

#[test]
fn every_byte_after_a_drained_read_raises_an_event() {
    // An echo that trusts short reads: were one of them not drained, the exchange would stand still.
    for family in Family::all() {
        let pair = connected(family);
        let (mut client, mut server) = (pair.client, pair.server);
        let rounds = 2_000;
        let echo = std::thread::spawn(move || {
            let mut poller = Poller::new(8).unwrap();
            poller.register(&server, TOKEN, Interest::Read).unwrap();
            let mut buffer = Vec::with_capacity(64);
            let mut echoed = 0;
            while echoed < rounds * 11 {
                wait_for(&mut poller, TOKEN, |event| event.readable);
                loop {
                    buffer.clear();
                    let Read::Data { bytes, drained } = server.read_into(&mut buffer, 64).unwrap()
                    else {
                        break;
                    };
                    assert_eq!(server.write(&buffer).unwrap(), Some(bytes));
                    echoed += bytes;
                    if drained {
                        break;
                    }
                }
            }
        });
        for _ in 0..rounds {
            client.write(b"hello").unwrap();
            client.write(b" world").unwrap();
            assert_eq!(read_exactly(&mut client, 11), b"hello world");
        }
        echo.join().unwrap();
    }
}

#[test]
fn a_peer_that_does_not_read_gets_the_rest_once_it_does() {
    for family in Family::all() {
        let mut pair = connected(family);
        let mut poller = Poller::new(8).unwrap();
        poller
            .register(&pair.server, TOKEN, Interest::Read)
            .unwrap();
        let output: Vec<u8> = (0..32 << 20).map(|i: u32| (i / 7) as u8).collect();

        let Flush::Partial(mut sent) = flush(&mut pair.server, &mut [IoSlice::new(&output)]) else {
            panic!("no socket buffer takes 32 MiB");
        };
        assert!(sent > 0);
        assert!(matches!(
            flush(&mut pair.server, &mut [IoSlice::new(&output)]),
            Flush::Partial(0)
        ));
        poller
            .reregister(&pair.server, TOKEN, Interest::ReadWrite)
            .unwrap();

        let mut received = Vec::with_capacity(output.len());
        while sent < output.len() {
            receive_what_is_there(&mut pair.client, &mut received);
            poller.poll(Some(Duration::from_millis(10))).unwrap();
            if poller.events().any(|event| event.writable) {
                match flush(&mut pair.server, &mut [IoSlice::new(&output[sent..])]) {
                    Flush::Done => sent = output.len(),
                    Flush::Partial(bytes) => sent += bytes,
                    Flush::Closed(error) => panic!("{error}"),
                }
            }
        }
        drop(pair.server);
        while received.len() < output.len() {
            receive_what_is_there(&mut pair.client, &mut received);
        }
        assert!(received == output, "every byte once and in order");
    }
}

fn receive_what_is_there(stream: &mut Stream, received: &mut Vec<u8>) {
    while let Read::Data { .. } = stream.read_into(received, 1 << 20).unwrap() {}
}

#[test]
fn a_flush_takes_more_slices_than_one_system_call_does() {
    let (mut a, mut b) = Stream::pair().unwrap();
    let bytes: Vec<u8> = (0..5_000u32).map(|i| i as u8).collect();
    // Empty ones among them, at the start and at the end.
    let mut slices = vec![IoSlice::new(&[])];
    for byte in bytes.chunks(1) {
        slices.push(IoSlice::new(byte));
        slices.push(IoSlice::new(&[]));
    }
    let reader = std::thread::spawn(move || read_exactly(&mut b, 5_000));
    let mut rest: &mut [IoSlice<'_>] = &mut slices;
    // One-byte slices cost the unix socket far more buffer than their bytes: it may fill up in between.
    let mut written = 0;
    while written < bytes.len() {
        match flush(&mut a, rest) {
            Flush::Done => written = bytes.len(),
            Flush::Partial(more) => {
                written += more;
                slices = bytes[written..].chunks(1).map(IoSlice::new).collect();
                rest = &mut slices;
            }
            Flush::Closed(error) => panic!("{error}"),
        }
    }
    assert_eq!(reader.join().unwrap(), bytes);
    assert!(matches!(flush(&mut a, &mut []), Flush::Done));
    assert!(matches!(
        flush(&mut a, &mut [IoSlice::new(&[])]),
        Flush::Done
    ));
}

#[test]
fn writing_to_a_peer_that_is_gone_is_an_error_and_no_signal() {
    for family in Family::all() {
        let mut pair = connected(family);
        drop(pair.client);
        let deadline = Instant::now() + sockets::PATIENCE;
        // Over TCP the first write may still succeed: it is what brings the reset.
        loop {
            match flush(&mut pair.server, &mut [IoSlice::new(b"anybody there?")]) {
                Flush::Closed(_) => break,
                _ => assert!(
                    Instant::now() < deadline,
                    "the peer's end was never noticed"
                ),
            }
        }
    }
}

#[test]
fn ends_are_named_as_redis_names_them() {
    for family in Family::all() {
        let pair = connected(family);
        let (local, peer) = (pair.server.local_address().unwrap(), &pair.peer);
        assert!(peer.is_local());
        match family {
            Family::V4 => {
                assert_eq!(local.to_string(), format!("127.0.0.1:{}", pair.port()));
                assert!(peer.to_string().starts_with("127.0.0.1:"));
            }
            Family::V6 => {
                assert_eq!(local.to_string(), format!("[::1]:{}", pair.port()));
                assert!(peer.to_string().starts_with("[::1]:"));
            }
            Family::Unix => {
                let path = pair.path().display().to_string();
                assert_eq!(local.to_string(), format!("{path}:0"));
                assert_eq!(peer.to_string(), format!("{path}:0"));
            }
        }
        assert_eq!(pair.client.local_address().unwrap(), *peer);
        assert!(pair.server.fd() > 2);
    }
    assert!(!PeerAddr::Tcp("8.8.8.8:53".parse().unwrap()).is_local());
    assert!(PeerAddr::Tcp("[::ffff:127.0.0.1]:53".parse().unwrap()).is_local());
}

#[test]
fn options_of_tcp_are_set_and_harmless_on_unix_sockets() {
    for family in Family::all() {
        let pair = connected(family);
        pair.server.set_nodelay(true).unwrap();
        pair.server.set_keepalive(300).unwrap();
        if family != Family::Unix {
            let socket = socket2::SockRef::from(&pair.server);
            assert!(socket.tcp_nodelay().unwrap());
            assert!(socket.keepalive().unwrap());
            assert_eq!(
                socket.tcp_keepalive_time().unwrap(),
                Duration::from_secs(300)
            );
            assert_eq!(
                socket.tcp_keepalive_interval().unwrap(),
                Duration::from_secs(100)
            );
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        }
        pair.server.set_keepalive(0).unwrap();
        assert!(!socket2::SockRef::from(&pair.server).keepalive().unwrap());
    }
}

#[test]
fn a_connection_begun_without_waiting_tells_how_it_ended() {
    let listener = Listener::bind_tcp(&["127.0.0.1"], 0, 16).unwrap().remove(0);
    let port = listener.port().unwrap();
    let mut poller = Poller::new(8).unwrap();
    let stream = connect(&Address::tcp("127.0.0.1", port)).unwrap();
    poller
        .register(&stream, TOKEN, Interest::ReadWrite)
        .unwrap();
    wait_for(&mut poller, TOKEN, |event| event.writable);
    assert!(stream.take_error().unwrap().is_none());
    drop(listener);

    let refused = match connect_endpoint(&Endpoint::Tcp(([127, 0, 0, 1], port).into())) {
        // Some kernels refuse at once.
        Err(error) => error.error,
        Ok(stream) => {
            poller
                .register(&stream, TOKEN + 1, Interest::ReadWrite)
                .unwrap();
            wait_for(&mut poller, TOKEN + 1, |event| event.error);
            stream.take_error().unwrap().expect("nobody listens")
        }
    };
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn errors_of_connecting_name_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let error =
        connect_blocking(&Address::tcp("127.0.0.1", port), Duration::from_secs(5)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("127.0.0.1:{port}: Connection refused")
    );
    let error =
        connect_blocking(&Address::tcp("localhost", port), Duration::from_secs(5)).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("localhost:{port}: ")),
        "{error}"
    );
    for connect in [connect, |address: &Address| {
        connect_blocking(address, Duration::from_secs(5))
    }] {
        let error = connect(&Address::unix("/no/such/socket")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/no/such/socket: No such file or directory"
        );
        let error = connect(&Address::unix("x".repeat(200))).unwrap_err();
        assert!(
            error.to_string().contains("has at most 107 bytes"),
            "{error}"
        );
    }
}

#[test]
fn connecting_gives_up_when_its_time_is_over() {
    // A listener whose queue is full answers nothing to a further connection.
    let listener = Listener::bind_tcp(&["127.0.0.1"], 0, 0).unwrap().remove(0);
    let address = Address::tcp("127.0.0.1", listener.port().unwrap());
    let timeout = Duration::from_millis(50);
    let mut filling = Vec::new();
    let error = loop {
        match connect_blocking(&address, timeout) {
            Ok(stream) => filling.push(stream),
            Err(error) => break error,
        }
        assert!(filling.len() < 100, "a queue of none took a hundred");
    };
    assert_eq!(error.error.kind(), std::io::ErrorKind::TimedOut);
}

#[test]
fn a_blocking_connect_returns_a_stream_that_does_not_block() {
    let listener = Listener::bind_tcp(&["127.0.0.1"], 0, 16).unwrap().remove(0);
    let address = Address::tcp("127.0.0.1", listener.port().unwrap());
    let mut stream = connect_blocking(&address, Duration::from_secs(5)).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), Read::WouldBlock);
    let (mut server, _) = accept(&listener);
    assert_eq!(server.read(&mut [0; 1]).unwrap(), Read::WouldBlock);
}

#[test]
fn names_connect_to_whichever_family_listens() {
    let listener = Listener::bind_tcp(&["127.0.0.1"], 0, 16).unwrap().remove(0);
    let address = Address::tcp("localhost", listener.port().unwrap());
    let stream = connect_blocking(&address, Duration::from_secs(5)).unwrap();
    assert_eq!(accept(&listener).1, stream.local_address().unwrap());
}

#[test]
fn descriptors_are_not_inherited_by_programs_that_are_started() {
    let pair = connected(Family::V4);
    for fd in [
        pair.client.fd(),
        pair.server.fd(),
        std::os::fd::AsFd::as_fd(&pair.listener).as_raw_fd(),
    ] {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
        let flags = info
            .lines()
            .find_map(|line| line.strip_prefix("flags:"))
            .unwrap();
        let flags = i32::from_str_radix(flags.trim(), 8).unwrap();
        assert_eq!(flags & libc::O_CLOEXEC, libc::O_CLOEXEC);
        assert_eq!(flags & libc::O_NONBLOCK, libc::O_NONBLOCK);
    }
}

#[test]
fn clients_of_the_standard_library_are_served() {
    let listener = Listener::bind_tcp(&["127.0.0.1"], 0, 16).unwrap().remove(0);
    let mut client = TcpStream::connect(("127.0.0.1", listener.port().unwrap())).unwrap();
    let (mut server, peer) = accept(&listener);
    assert_eq!(peer, PeerAddr::Tcp(client.local_addr().unwrap()));
    client.write_all(b"ping").unwrap();
    assert_eq!(read_exactly(&mut server, 4), b"ping");
    server.write(b"pong").unwrap();
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "pong");
}
