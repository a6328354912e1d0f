//! The first connection: finds the endpoint that answers, and asks the server for two of its directives.
//!
//! Must not know the later measurements.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use redline_net::tls::ClientTls;
use redline_net::{Address, Endpoint, Interest, NetError, Read, Stream, connect_endpoint};
use redline_resp::{ReplyDecoder, Value, encode_request};

use crate::load::control::Control;
use crate::load::failure::{Failure, said};
use crate::load::target;
use crate::load::worker::{HANDSHAKE_WITHIN, secure};

/// Two directives that decide the cost of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// `save`.
    pub save: String,
    /// `appendonly`.
    pub appendonly: String,
}

/// Results of the first connection.
pub struct Probed {
    /// The endpoint of the address that accepted: all others connect to it.
    pub endpoint: Endpoint,
    /// Missing if the server (or a proxy in front of it) does not report it.
    pub config: Option<ServerConfig>,
}

/// Connects to `address`, with TLS or without, and asks, after AUTH with `auth` as its arguments if there are any, and
/// SELECT unless `db` is 0. So a database that does not exist is reported before anything is sent, which would go to the
/// first one after a refused SELECT.
pub fn probe(
    control: &mut Control,
    address: &Address,
    tls: Option<&ClientTls>,
    auth: &[Vec<u8>],
    db: i64,
) -> Result<Probed, Failure> {
    probe_within(ANSWER_WITHIN, control, address, tls, auth, db)
}

fn probe_within(
    patience: Duration,
    control: &mut Control,
    address: &Address,
    tls: Option<&ClientTls>,
    auth: &[Vec<u8>],
    db: i64,
) -> Result<Probed, Failure> {
    let (endpoint, mut stream) = connect(control, address, tls, None)?;
    let deadline = Instant::now() + patience;
    match ask(control, &mut stream, address, auth, db, deadline) {
        Ok(config) => Ok(Probed { endpoint, config }),
        Err(failure @ (Failure::Refused { .. } | Failure::Reply(_) | Failure::Interrupted)) => {
            Err(failure)
        }
        Err(Failure::Silent) => Err(Failure::only_accepts(address)),
        // A proxy may close the connection on CONFIG: then there is nothing to print.
        Err(_) => Ok(Probed {
            endpoint,
            config: None,
        }),
    }
}

/// Connects to the first endpoint of the address that accepts, and completes TLS, until the deadline; without one, each
/// endpoint gets [`ANSWER_WITHIN`], and the handshake [`HANDSHAKE_WITHIN`].
pub fn connect(
    control: &mut Control,
    address: &Address,
    tls: Option<&ClientTls>,
    deadline: Option<Instant>,
) -> Result<(Endpoint, Stream), Failure> {
    let (endpoint, mut stream) = connect_any(control, address, deadline)?;
    if let Some(tls) = tls {
        shake_hands(control, &mut stream, tls, deadline, HANDSHAKE_WITHIN)?;
    }
    Ok((endpoint, stream))
}

/// Completes a handshake until the deadline, or within the default time-out.
fn shake_hands(
    control: &mut Control,
    stream: &mut Stream,
    tls: &ClientTls,
    deadline: Option<Instant>,
    patience: Duration,
) -> Result<(), Failure> {
    let until = Instant::now() + patience;
    let sooner = deadline.filter(|deadline| *deadline <= until);
    while !secure(stream, tls)? {
        match wait(control, usize::MAX, sooner.unwrap_or(until)) {
            Err(Failure::Silent) if sooner.is_none() => {
                return Err(Failure::unanswered_handshake());
            }
            waited => waited?,
        }
    }
    Ok(())
}

/// Tries each endpoint of the address; the error is that of the last.
fn connect_any(
    control: &mut Control,
    address: &Address,
    deadline: Option<Instant>,
) -> Result<(Endpoint, Stream), Failure> {
    let endpoints = address
        .resolve()
        .map_err(|error| Failure::connect_endpoint(address, &error))?;
    let mut last = Failure::Local(format!("{address} has no endpoint"));
    for (token, endpoint) in endpoints.into_iter().enumerate() {
        match connect_one(control, &endpoint, token, deadline)? {
            Ok(stream) => return Ok((endpoint, stream)),
            Err(error) => last = Failure::connect_endpoint(address, &error),
        }
    }
    Err(last)
}

fn connect_one(
    control: &mut Control,
    endpoint: &Endpoint,
    token: usize,
    deadline: Option<Instant>,
) -> Result<Result<Stream, NetError>, Failure> {
    let stream = match connect_endpoint(endpoint) {
        Ok(stream) => stream,
        Err(error) => return Ok(Err(error)),
    };
    control
        .watch(&stream, token, Interest::ReadWrite)
        .map_err(|error| Failure::local("epoll", &error))?;
    let until = deadline.unwrap_or_else(|| Instant::now() + ANSWER_WITHIN);
    match wait(control, token, until) {
        // The next endpoint may answer.
        Err(Failure::Silent) if deadline.is_none() => {
            return Ok(Err(NetError::new(endpoint, ErrorKind::TimedOut.into())));
        }
        waited => waited?,
    }
    match stream.take_error() {
        Ok(None) => Ok(Ok(stream)),
        Ok(Some(error)) | Err(error) => Ok(Err(NetError::new(endpoint, error))),
    }
}

/// Sends all questions at once and takes the replies in order.
fn ask(
    control: &mut Control,
    stream: &mut Stream,
    address: &Address,
    auth: &[Vec<u8>],
    db: i64,
    deadline: Instant,
) -> Result<Option<ServerConfig>, Failure> {
    let prefix = target::prefix(auth, false, db, false);
    let mut request = prefix.bytes;
    encode_request(&["CONFIG", "GET", "save"], &mut request);
    encode_request(&["CONFIG", "GET", "appendonly"], &mut request);
    let count = 2 + prefix.replies as usize;
    let replies = exchange(control, stream, &request, count, deadline)?;
    let mut replies = replies.into_iter();
    // In redis-benchmark's words, which asks for the configuration first, and selects when the load begins.
    let refused = |failure| match failure {
        Failure::Reply(text) => Failure::Refused {
            address: address.to_string(),
            text,
        },
        other => other,
    };
    if !auth.is_empty() {
        fail_on_error(replies.next()).map_err(refused)?;
    }
    let selected = if db == 0 {
        Ok(())
    } else {
        fail_on_error(replies.next())
    };
    let mut told = || directive(replies.next()).map_err(refused);
    let (save, appendonly) = (told()?, told()?);
    selected?;
    Ok(save
        .zip(appendonly)
        .map(|(save, appendonly)| ServerConfig { save, appendonly }))
}

/// Sends everything in one write and waits for this many replies, until the deadline.
pub fn exchange(
    control: &mut Control,
    stream: &mut Stream,
    request: &[u8],
    count: usize,
    deadline: Instant,
) -> Result<Vec<Value>, Failure> {
    // An idle socket takes a few hundred bytes at once, or the server is not worth measuring.
    if stream.write(request).map_err(Failure::Io)? != Some(request.len()) {
        return Err(Failure::Closed);
    }
    replies(control, stream, count, deadline)
}

fn replies(
    control: &mut Control,
    stream: &mut Stream,
    count: usize,
    deadline: Instant,
) -> Result<Vec<Value>, Failure> {
    let mut decoder = ReplyDecoder::new();
    let (mut buffer, mut values, mut received) = (Vec::new(), Vec::new(), 0);
    loop {
        match stream.read_into(&mut buffer, 4096).map_err(Failure::Io)? {
            // A peer that sends without end must not be waited for.
            Read::Data { bytes, .. } => received += bytes,
            Read::WouldBlock => {
                wait(control, usize::MAX, deadline)?;
                continue;
            }
            Read::Eof => return Err(Failure::Closed),
        }
        loop {
            let decoded = decoder.decode(&buffer)?;
            buffer.drain(..decoded.consumed);
            let Some(value) = decoded.value else { break };
            values.push(value);
            if values.len() == count {
                return Ok(values);
            }
        }
        if received > ANSWER_BYTES_MAX || Instant::now() > deadline {
            return Err(Failure::Local("The server's answer does not end.".into()));
        }
    }
}

/// Largest reply: bytes. CLIENT LIST has a line for each client.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Waits for an event of the watched socket, or of any if `token` names none.
fn wait(control: &mut Control, token: usize, deadline: Instant) -> Result<(), Failure> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Silent);
        }
        let happened = control
            .wait(Some(left))
            .map_err(|error| Failure::local("epoll", &error))?;
        if control.interrupted() {
            return Err(Failure::Interrupted);
        }
        if happened.contains(&token) || (token == usize::MAX && !happened.is_empty()) {
            return Ok(());
        }
    }
}

/// Time-out of accepting a connection, and of the first replies: a server that runs a slow command takes long, and one
/// that does not speak Redis's protocol sends nothing.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Returns the second element of `CONFIG GET`'s reply. Errors are ignored, unless a password is required.
fn directive(reply: Option<Value>) -> Result<Option<String>, Failure> {
    match reply {
        Some(Value::Error(text)) if text.starts_with(b"NOAUTH") => {
            Err(Failure::Reply(lossy(&text)))
        }
        Some(Value::Array(elements)) => match elements.as_slice() {
            [_, Value::Bulk(value)] => Ok(Some(lossy(value))),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Returns the failure that a reply is, if it is an error.
pub fn fail_on_error(reply: Option<Value>) -> Result<(), Failure> {
    match reply {
        Some(Value::Error(text)) => Err(Failure::Reply(lossy(&text))),
        _ => Ok(()),
    }
}

fn lossy(text: &[u8]) -> String {
    said(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use redline_net::tls::{ClientTlsOptions, Peer, TlsOptions};

    use super::*;

    #[test]
    fn a_handshake_that_nobody_answers_ends_at_its_deadline() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = silent.local_addr().expect("it is bound").port();
        let tls = ClientTls::new(&ClientTlsOptions {
            common: TlsOptions::default(),
            server_name: None,
            peer: Peer::Anyone,
        });
        let tls = tls.expect("these are valid");
        let mut control = Control::new().expect("epoll");
        let address = Address::tcp("127.0.0.1", port);
        let begin = Instant::now();
        let deadline = Some(begin + Duration::from_millis(50));
        let connected = connect(&mut control, &address, Some(&tls), deadline);
        assert!(matches!(connected, Err(Failure::Silent)));
        assert!(begin.elapsed() >= Duration::from_millis(50));

        // Without the caller's deadline there is a time-out, too, and the error names a probable cause.
        let (_, mut stream) = connect(&mut control, &address, None, None).expect("it accepts");
        let patience = Duration::from_millis(50);
        let ended = shake_hands(&mut control, &mut stream, &tls, None, patience);
        assert!(ended.unwrap_err().to_string().contains("does it speak TLS"));
    }

    #[test]
    fn a_server_that_accepts_and_says_nothing_is_not_waited_for_without_end() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = silent.local_addr().expect("it is bound").port();
        let address = Address::tcp("127.0.0.1", port);
        let mut control = Control::new().expect("epoll");
        let patience = Duration::from_millis(50);
        let Err(failure) = probe_within(patience, &mut control, &address, None, &[], 0) else {
            panic!("nobody has answered");
        };
        let said = format!(
            "Could not connect to Redis at 127.0.0.1:{port}: it accepts the connection and does not answer"
        );
        assert_eq!(failure.to_string(), said);
    }

    #[test]
    fn an_answer_that_does_not_end_is_not_kept() {
        let endless = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = endless.local_addr().expect("it is bound").port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = endless.accept().expect("it is asked");
            let _ = stream.write_all(b"$9000000000\r\n");
            let mut sent: u64 = 0;
            while sent < 9_000_000_000 && stream.write_all(&[b'x'; 65_536]).is_ok() {
                sent += 65_536;
            }
            sent
        });
        let mut control = Control::new().expect("epoll");
        let address = Address::tcp("127.0.0.1", port);
        let (_, mut stream) = connect(&mut control, &address, None, None).expect("it accepts");
        let deadline = Instant::now() + Duration::from_secs(60);
        let asked = exchange(&mut control, &mut stream, b"PING\r\n", 1, deadline);
        let said = asked.unwrap_err().to_string();
        assert_eq!(said, "The server's answer does not end.");
        drop(stream);
        // What it did not read was in the sockets' buffers.
        let sent = server.join().expect("it does not panic");
        assert!(sent < 2 * ANSWER_BYTES_MAX as u64, "{sent}");
    }
}
