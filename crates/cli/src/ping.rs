//! `redline ping`: asks a server or a proxy whether it serves, for health checks and scripts.
//!
//! Must not know the part that answers.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use redline_net::tls::{ClientTls, ClientTlsOptions, Peer, TlsOptions};
use redline_net::{
    Address, Flush, Interest, Poller, Read, Stream, connect_blocking, console, error_text, flush,
};
use redline_resp::{ReplyDecoder, Value, encode_request};

/// Largest reply that is read: bytes.
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// Exit code of a server that answers with an error.
const REFUSED: u8 = 1;
/// Exit code if there is no answer.
const SILENT: u8 = 2;

/// Command line of `redline ping`.
#[derive(Debug, Parser)]
#[command(
    name = "redline ping",
    about = "Asks a server or a proxy whether it serves, by PING",
    after_help = "Prints PONG. Exit code: 0; 1: it answered with an error, as while it loads or without the password; \
                  2: it did not answer, or ping was called wrongly. The password may also be in REDISCLI_AUTH.",
    disable_help_flag = true
)]
pub struct Arguments {
    /// Host name or IP address
    #[arg(short = 'h', long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Port
    #[arg(short = 'p', long, default_value_t = 6379)]
    port: u16,
    /// Unix socket, instead of host and port
    #[arg(short = 's', long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    socket: Option<PathBuf>,
    /// User; without it, the default user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Password
    #[arg(short = 'a', long = "pass", value_name = "PASSWORD")]
    password: Option<String>,
    /// Longest wait in seconds, for everything together
    #[arg(short = 't', long, value_name = "SECONDS", default_value_t = 3.0)]
    timeout: f64,
    /// Use TLS
    #[arg(long)]
    tls: bool,
    /// Server name to send (SNI)
    #[arg(long, value_name = "HOST", requires = "tls")]
    sni: Option<String>,
    /// CA certificates that the server's is checked against; without it, those of the system
    #[arg(long, value_name = "FILE", requires = "tls", value_hint = clap::ValueHint::FilePath)]
    cacert: Option<String>,
    /// Certificate of the client
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key"], value_hint = clap::ValueHint::FilePath)]
    cert: Option<String>,
    /// Private key of the client
    #[arg(long, value_name = "FILE", requires_all = ["tls", "cert"], value_hint = clap::ValueHint::FilePath)]
    key: Option<String>,
    /// Do not check the server's certificate
    #[arg(long, requires = "tls")]
    insecure: bool,
    /// Print this text
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Runs it.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let program = std::iter::once(OsString::from("redline ping"));
    let arguments = match Arguments::try_parse_from(program.chain(args)) {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => {
            console::line_to_stderr(error.render().to_string().trim_end());
            return ExitCode::from(SILENT);
        }
        Err(help) => return printed(&help.render().to_string()),
    };
    match ask(&arguments) {
        Ok(Answer::Pong) => printed("PONG\n"),
        Ok(Answer::Error(text)) => {
            console::line_to_stderr(&format!("redline ping: {}: {text}", arguments.address()));
            ExitCode::from(REFUSED)
        }
        Err(why) => failed(&why),
    }
}

fn printed(text: &str) -> ExitCode {
    match console::out(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => failed(&why),
    }
}

fn failed(why: &str) -> ExitCode {
    console::line_to_stderr(&format!("redline ping: {why}"));
    ExitCode::from(SILENT)
}

enum Answer {
    Pong,
    /// An error, in the server's words.
    Error(String),
}

impl Arguments {
    fn address(&self) -> Address {
        match &self.socket {
            Some(path) => Address::unix(path),
            None => Address::tcp(&self.host, self.port),
        }
    }

    fn tls(&self) -> Result<Option<ClientTls>, String> {
        if !self.tls {
            return Ok(None);
        }
        let options = ClientTlsOptions {
            common: TlsOptions {
                cert_file: self.cert.clone(),
                key_file: self.key.clone(),
                ca_cert_file: self.cacert.clone(),
                ..TlsOptions::default()
            },
            server_name: self.sni.clone(),
            peer: if self.insecure {
                Peer::Anyone
            } else {
                Peer::Trusted
            },
        };
        ClientTls::new(&options)
            .map(Some)
            .map_err(|error| format!("TLS: {error}"))
    }

    /// Returns the requests, and the number of replies.
    fn requests(&self) -> (Vec<u8>, usize) {
        let from_environment = || std::env::var("REDISCLI_AUTH").ok();
        let password = self.password.clone().or_else(from_environment);
        let mut requests = Vec::new();
        let mut replies = 1;
        if let Some(password) = password {
            let mut words = vec!["AUTH"];
            words.extend(self.user.as_deref());
            words.push(&password);
            encode_request(words, &mut requests);
            replies += 1;
        }
        encode_request(["PING"], &mut requests);
        (requests, replies)
    }
}

/// Connects, sends and waits for the replies.
fn ask(arguments: &Arguments) -> Result<Answer, String> {
    let address = arguments.address();
    let tls = arguments.tls()?;
    let timeout = Duration::try_from_secs_f64(arguments.timeout)
        .ok()
        .filter(|timeout| !timeout.is_zero())
        .ok_or_else(|| format!("--timeout: {} is no time to wait", arguments.timeout))?;
    let until = Instant::now() + timeout;
    let at = |error: io::Error| format!("{address}: {}", error_text(&error));
    let mut stream = connect_blocking(&address, timeout).map_err(|error| error.to_string())?;
    let mut poller = Poller::new(1).map_err(at)?;
    poller
        .register(&stream, 0, Interest::ReadWrite)
        .map_err(at)?;
    if let Some(tls) = &tls {
        stream.connect_tls(tls).map_err(at)?;
        while !stream.handshake().map_err(at)? {
            wait(&mut poller, until).map_err(at)?;
        }
    }
    let (requests, replies) = arguments.requests();
    send(&mut stream, &mut poller, &requests, until).map_err(at)?;
    receive(&mut stream, &mut poller, replies, until).map_err(at)
}

/// Waits for an event of the stream.
fn wait(poller: &mut Poller, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "no answer in time (--timeout)",
        ));
    }
    poller.poll(Some(left))
}

fn send(
    stream: &mut Stream,
    poller: &mut Poller,
    mut rest: &[u8],
    until: Instant,
) -> io::Result<()> {
    loop {
        match flush(stream, &mut [IoSlice::new(rest)]) {
            Flush::Done => return Ok(()),
            Flush::Partial(written) => rest = &rest[written..],
            Flush::Closed(error) => return Err(error),
        }
        wait(poller, until)?;
    }
}

fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionReset,
        "the connection was closed before the answer",
    )
}

/// Reads as many replies; the first error among them is the answer.
fn receive(
    stream: &mut Stream,
    poller: &mut Poller,
    replies: usize,
    until: Instant,
) -> io::Result<Answer> {
    let mut decoder = ReplyDecoder::new();
    let mut buffer = Vec::new();
    let mut seen = 0;
    loop {
        let decoded = decoder.decode(&buffer).map_err(|error| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the answer is not one of a Redis server: {error}"),
            )
        })?;
        buffer.drain(..decoded.consumed);
        if let Some(value) = decoded.value {
            seen += 1;
            if let Value::Error(text) | Value::BulkError(text) = &value {
                return Ok(Answer::Error(String::from_utf8_lossy(text).into_owned()));
            }
            if seen == replies {
                return match value.as_bytes() {
                    Some(b"PONG") => Ok(Answer::Pong),
                    _ => Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the answer to PING is not PONG",
                    )),
                };
            }
            continue;
        }
        if buffer.len() >= REPLY_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the answer is too long",
            ));
        }
        match stream.read_into(&mut buffer, REPLY_BYTES_MAX)? {
            Read::Data { .. } => {}
            Read::Eof => return Err(closed()),
            Read::WouldBlock => wait(poller, until)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Arguments {
        Arguments::try_parse_from([&["redline ping"], words].concat()).unwrap()
    }

    #[test]
    fn the_password_goes_before_the_ping_and_only_with_one() {
        // Without the variable of whoever runs the test.
        let with = arguments(&["-a", "secret"]).requests();
        assert_eq!(
            with,
            (
                b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n*1\r\n$4\r\nPING\r\n".to_vec(),
                2
            )
        );
        let named = arguments(&["--user", "u", "-a", "p"]).requests();
        assert!(
            named
                .0
                .starts_with(b"*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$1\r\np\r\n")
        );
    }

    #[test]
    fn addresses_are_shown_as_people_write_them() {
        assert_eq!(arguments(&[]).address().to_string(), "127.0.0.1:6379");
        assert_eq!(arguments(&["-s", "/s"]).address().to_string(), "/s");
    }
}
