//! `-I`: opens connections, sends nothing, and holds them until a server or Ctrl-C ends it.
//!
//! Must not know workloads. Shows how many clients a server accepts.

use std::io::Write;
use std::time::{Duration, Instant};

use redline_net::tls::ClientTls;
use redline_net::{Address, Endpoint, Interest, Read, Stream, connect_endpoint};

use crate::load::control::Control;
use crate::load::failure::{Failure, said};
use crate::load::worker::secure;

const REFRESH: Duration = Duration::from_millis(250);
/// Number of connections opened between two checks of the others.
const OPENED_AT_ONCE: usize = 64;

/// Holds `clients` connections until one fails; they are distributed among the servers, of which there is at least one.
pub fn run(
    control: &mut Control,
    places: &[(Address, Endpoint)],
    tls: Option<&ClientTls>,
    clients: usize,
    stdout: &mut dyn Write,
) -> Failure {
    let mut idle = Idle {
        places,
        tls,
        connections: Vec::new(),
    };
    match idle.hold(control, clients, stdout) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

struct Idle<'a> {
    places: &'a [(Address, Endpoint)],
    tls: Option<&'a ClientTls>,
    connections: Vec<Stream>,
}

impl Idle<'_> {
    fn hold(
        &mut self,
        control: &mut Control,
        clients: usize,
        stdout: &mut dyn Write,
    ) -> Result<std::convert::Infallible, Failure> {
        let mut refresh = Instant::now();
        loop {
            for _ in 0..OPENED_AT_ONCE.min(clients - self.connections.len()) {
                self.open(control)?;
            }
            let now = Instant::now();
            if now >= refresh {
                let shown = write!(stdout, "clients: {}\r", self.connections.len())
                    .and_then(|()| stdout.flush());
                shown.map_err(|error| Failure::local("standard output", &error))?;
                refresh = now + REFRESH;
            }
            let pause = if self.connections.len() < clients {
                Duration::ZERO
            } else {
                refresh - now
            };
            for token in control
                .wait(Some(pause))
                .map_err(|error| Failure::local("epoll", &error))?
            {
                self.check(token)?;
            }
            if control.interrupted() {
                return Err(Failure::Interrupted);
            }
        }
    }

    fn place(&self, token: usize) -> &(Address, Endpoint) {
        &self.places[token % self.places.len()]
    }

    fn open(&mut self, control: &mut Control) -> Result<(), Failure> {
        let (address, endpoint) = self.place(self.connections.len());
        let stream = match connect_endpoint(endpoint) {
            Ok(stream) => stream,
            // The backlog of a unix socket is full: the next turn tries again.
            Err(error) if error.error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(Failure::connect_endpoint(address, &error)),
        };
        control
            .watch(&stream, self.connections.len(), Interest::ReadWrite)
            .map_err(|error| Failure::local("epoll", &error))?;
        self.connections.push(stream);
        Ok(())
    }

    /// Handles a message of the server to an idle client, which ends the connection.
    fn check(&mut self, token: usize) -> Result<(), Failure> {
        let stream = &mut self.connections[token];
        if let Some(error) = stream.take_error().map_err(Failure::Io)? {
            return Err(Failure::connect(&self.place(token).0, &error));
        }
        if let Some(tls) = self.tls
            && !secure(stream, tls)?
        {
            return Ok(());
        }
        let mut heard = [0; 1024];
        match stream.read(&mut heard) {
            Ok(Read::WouldBlock) => Ok(()),
            Ok(Read::Data { bytes, .. }) => match heard[..bytes].strip_prefix(b"-") {
                Some(text) => Err(Failure::Reply(said(text).trim_end().to_owned())),
                None => Ok(()),
            },
            Ok(Read::Eof) => Err(Failure::Closed),
            Err(error) => Err(Failure::Io(error)),
        }
    }
}
