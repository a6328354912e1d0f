//! Out of file descriptors: who cannot be accepted now is accepted later. It sets the limit of the process meanwhile.

use std::{fs::File, net::TcpStream};

use crate::alone;
use crate::client::{Client, Value, settings, start, until};
use redline_server::Settings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit as it was, which is set again when the test is over.
struct Before(Rlimit);

impl Drop for Before {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.0).expect("what was allowed before");
    }
}

#[test]
fn a_connection_that_waits_for_a_descriptor_is_accepted_when_there_is_one() {
    let _alone = alone();
    let server = start(Settings {
        maxclients: 100,
        ..settings(1)
    });
    let mut first = Client::connect(&server);
    assert_eq!(first.call("PING"), Value::Simple("PONG".into()));
    let before = Before(getrlimit(Resource::Nofile));
    let limit = Rlimit {
        current: Some(200),
        ..before.0
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    hoard.pop().expect("one for our end");
    let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the kernel accepts it");
    assert!(
        File::open("/dev/null").is_err(),
        "none is left for the other end"
    );
    // Others are served meanwhile. The server tries when the connection comes, and again after each of its background's turns,
    // which take keys out that have expired.
    for _ in 0..2 {
        first.call("SET k v PX 1").ok();
        until("the background has had its turn", || {
            first.call("DBSIZE") == Value::Integer(0)
        });
    }
    hoard.pop();
    let mut second = Client::of(stream);
    assert_eq!(second.call("PING"), Value::Simple("PONG".into()));
}
