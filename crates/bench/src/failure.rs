//! Failures that end a run early, in the words that redis-benchmark uses for them.

use std::fmt;
use std::io;

use redline_net::tls::{TlsError, TlsPart};
use redline_net::{Address, NetError, error_text};
use redline_resp::ReplyError;

/// Why a run ended before its time.
#[derive(Debug)]
pub enum Failure {
    /// A connection could not be made.
    Connect {
        /// To where, as the user wrote it.
        address: String,
        /// Why not.
        reason: String,
    },
    /// The server answered with an error.
    Reply(String),
    /// The server answered with an error to a connection in the place of a lost one, which it does not serve (yet).
    Unwelcome(String),
    /// One node of a cluster answered with an error.
    NodeReply {
        /// Which one.
        address: String,
        /// Its error.
        text: String,
    },
    /// A node of a cluster does not say what the others are.
    NoCluster {
        /// Which one.
        address: String,
        /// Its error, if that was its answer.
        text: Option<String>,
    },
    /// The server refused to say anything before a password.
    Refused {
        /// Which server, as the user wrote it.
        address: String,
        /// Its error.
        text: String,
    },
    /// The handshake of TLS failed, or was never possible as asked for.
    Tls(String),
    /// The server ended a connection that waited for replies.
    Closed,
    /// A read or a write failed.
    Io(io::Error),
    /// The server sent bytes that are no reply.
    Protocol(ReplyError),
    /// Something on our side: a poller, standard input, standard output, a request that is too large.
    Local(String),
    /// A request was not answered in the time that the user gives it.
    TimedOut,
    /// A question about the server itself was not answered in time.
    Silent,
    /// Ctrl-C.
    Interrupted,
}

impl Failure {
    /// That `address` cannot be reached.
    pub fn connect(address: &Address, error: &io::Error) -> Failure {
        let text = error_text(error);
        let reason = text
            .strip_prefix("failed to lookup address information: ")
            .unwrap_or(&text);
        Failure::Connect {
            address: address.to_string(),
            reason: reason.to_owned(),
        }
    }

    /// That `address` cannot be reached, by an error that names the endpoint which was tried.
    pub fn connect_endpoint(address: &Address, error: &NetError) -> Failure {
        Failure::connect(address, &error.error)
    }

    /// That whoever listens there accepts connections, and that is all.
    pub fn only_accepts(address: &Address) -> Failure {
        Failure::Connect {
            address: address.to_string(),
            reason: "it accepts the connection and does not answer".into(),
        }
    }

    /// That TLS cannot be used as it was asked for.
    pub fn tls_options(error: &TlsError) -> Failure {
        let what = match error.part {
            TlsPart::Authorities => "Invalid CA Certificate File/Directory",
            TlsPart::Certificate => "Invalid client certificate",
            TlsPart::Key => "Invalid private key",
            TlsPart::Ciphers => "Error while configuring ciphers",
            TlsPart::Ciphersuites => "Error while setting cypher suites",
            TlsPart::ServerName => "Failed to configure SNI",
            TlsPart::Protocols | TlsPart::Library => "Failed to create the TLS context",
        };
        Failure::Tls(format!("{what} ({error})"))
    }

    /// That a handshake failed.
    pub fn handshake(error: &io::Error) -> Failure {
        Failure::Tls(format!("SSL_connect failed: {}", error_text(error)))
    }

    /// That nobody answered a handshake: who does not speak TLS takes what we say for the beginning of a request, and waits.
    pub fn unanswered_handshake() -> Failure {
        Failure::Tls("the server does not answer; does it speak TLS at this port?".into())
    }

    /// An error of the poller or of a thread: nothing that the server did.
    pub fn local(what: &str, error: &io::Error) -> Failure {
        Failure::Local(format!("{what}: {}", error_text(error)))
    }

    /// Returns true if it is the end of one connection, and another may do better.
    pub fn is_of_connection(&self) -> bool {
        matches!(
            self,
            Failure::Connect { .. }
                | Failure::Tls(_)
                | Failure::Unwelcome(_)
                | Failure::Closed
                | Failure::Io(_)
                | Failure::TimedOut
        )
    }

    /// The exit code that it leads to.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Interrupted => 130,
            _ => 1,
        }
    }
}

/// Returns a server's text, fit for a terminal: in place of a control character, which could do anything there, stands
/// a question mark. Lines and tabs stay.
pub fn said(text: &[u8]) -> String {
    let harmless = |c: char| match c {
        '\r' | '\n' | '\t' => c,
        c if c.is_control() => '?',
        c => c,
    };
    String::from_utf8_lossy(text)
        .chars()
        .map(harmless)
        .collect()
}

impl From<ReplyError> for Failure {
    fn from(error: ReplyError) -> Failure {
        Failure::Protocol(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connect { address, reason } => {
                write!(f, "Could not connect to Redis at {address}: {reason}")
            }
            Failure::Reply(text) | Failure::Unwelcome(text) => {
                write!(f, "Error from server: {text}")
            }
            Failure::NodeReply { address, text } => {
                write!(f, "Error from server {address}: {text}")
            }
            Failure::NoCluster { address, text } => {
                if let Some(text) = text {
                    writeln!(f, "Cluster node {address} replied with error:\n{text}")?;
                }
                write!(f, "Failed to fetch cluster configuration from {address}")
            }
            Failure::Refused { address, text } => {
                write!(f, "Node {address} replied with error:\n{text}")
            }
            Failure::Tls(reason) => write!(f, "Could not negotiate a TLS connection: {reason}"),
            Failure::Closed => f.write_str("Error: Server closed the connection"),
            Failure::Io(error) => write!(f, "Error: {}", error_text(error)),
            Failure::Protocol(error) => write!(f, "Error: Protocol error, {error}"),
            Failure::Local(text) => f.write_str(text),
            Failure::TimedOut => f.write_str("Error: A request was not answered in time"),
            Failure::Silent => f.write_str("The server does not answer."),
            Failure::Interrupted => f.write_str("Interrupted."),
        }
    }
}
