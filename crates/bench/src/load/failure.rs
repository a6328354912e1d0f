//! Reasons for ending a run early, in redis-benchmark's words.

use std::fmt;
use std::io;

use redline_net::tls::{TlsError, TlsPart};
use redline_net::{Address, NetError, error_text};
use redline_resp::ReplyError;

/// The reason why a run ended early.
#[derive(Debug)]
pub enum Failure {
    /// A connection could not be made.
    Connect {
        /// The address, as the user wrote it.
        address: String,
        /// The reason.
        reason: String,
    },
    /// The server answered with an error.
    Reply(String),
    /// The server answered a replacement connection with an error, and does not serve it (yet).
    Unwelcome(String),
    /// One node of a cluster answered with an error.
    NodeReply {
        /// The node's address.
        address: String,
        /// Its error.
        text: String,
    },
    /// A node of a cluster does not report the others.
    NoCluster {
        /// The node's address.
        address: String,
        /// Its error, if it sent one.
        text: Option<String>,
    },
    /// The server requires a password.
    Refused {
        /// The server's address, as the user wrote it.
        address: String,
        /// Its error.
        text: String,
    },
    /// The TLS handshake failed, or its settings are invalid.
    Tls(String),
    /// The server closed a connection that waited for replies.
    Closed,
    /// A read or a write failed.
    Io(io::Error),
    /// The server sent bytes that are no reply.
    Protocol(ReplyError),
    /// A local failure: a poller, standard input, standard output, a request that is too large.
    Local(String),
    /// A request timed out by the user's limit.
    TimedOut,
    /// A question to the server itself timed out.
    Silent,
    /// Ctrl-C.
    Interrupted,
}

impl Failure {
    /// Returns the failure to reach `address`.
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

    /// Returns the failure to reach `address`, by an error that names the endpoint tried.
    pub fn connect_endpoint(address: &Address, error: &NetError) -> Failure {
        Failure::connect(address, &error.error)
    }

    /// Returns the failure of a server that accepts connections and does not answer.
    pub fn only_accepts(address: &Address) -> Failure {
        Failure::Connect {
            address: address.to_string(),
            reason: "it accepts the connection and does not answer".into(),
        }
    }

    /// Returns the failure of invalid TLS settings.
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

    /// Returns the failure of a handshake.
    pub fn handshake(error: &io::Error) -> Failure {
        Failure::Tls(format!("SSL_connect failed: {}", error_text(error)))
    }

    /// Returns the failure of an unanswered handshake: a server without TLS takes it for the beginning of a request, and waits.
    pub fn unanswered_handshake() -> Failure {
        Failure::Tls("the server does not answer; does it speak TLS at this port?".into())
    }

    /// Returns the failure of the poller or of a thread, which the server did not cause.
    pub fn local(what: &str, error: &io::Error) -> Failure {
        Failure::Local(format!("{what}: {}", error_text(error)))
    }

    /// Returns true if it concerns one connection, and another may work.
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

    /// Returns its exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Interrupted => 130,
            _ => 1,
        }
    }
}

/// Returns a server's text for a terminal: control characters become question marks. Lines and tabs stay.
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
