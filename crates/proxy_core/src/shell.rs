//! The process, as the core sees it: connections, time, a log, and the answers to commands about the process. A worker
//! implements it, and so does a test, without any of that.

use redline_resp::Args;
use redline_spec::CommandId;

use crate::client_info::ClientInfo;
use crate::connections::Connections;
use crate::report::Report;
use crate::requests::Flow;
use crate::route::{Node, Pool};
use crate::slab::Ref;

/// The process around the core.
pub trait Shell: Sized {
    /// A client's connection, opaque to the core.
    type ClientSocket;
    /// A connection to a server.
    type ServerSocket;

    /// Begins a connection to a server, for the place `at`.
    fn connect(
        &mut self,
        at: u32,
        node: &Node,
        pool: &Pool,
    ) -> Result<Self::ServerSocket, ConnectError>;

    /// Ends a client's connection.
    fn close_client(&mut self, socket: Self::ClientSocket, info: &ClientInfo);

    /// Ends a connection to a server without waiting requests.
    fn close_server(&mut self, socket: Self::ServerSocket);

    /// Reports something to the control side.
    fn report(&self, report: Report);

    /// Returns true if there is a control side.
    fn has_control(&self) -> bool;

    /// Logs a line, which is made only if its level is logged.
    fn log(&self, level: Level, line: impl FnOnce() -> String);

    /// Returns the time of a monotonic clock, in microseconds.
    fn monotonic_us(&self) -> u64;

    /// Returns the time since 1970, in microseconds.
    fn wall_us(&self) -> u64;

    /// Answers a command about the process.
    fn command(conns: &mut Connections<Self>, me: Ref, id: CommandId, args: Args<'_>) -> Flow;

    /// Answers PROXY.
    fn proxy(conns: &mut Connections<Self>, me: Ref, args: Args<'_>) -> Flow;

    /// Answers CONFIG RELOAD.
    fn config_reload(conns: &mut Connections<Self>, me: Ref, args: Args<'_>) -> Flow;
}

/// The reason why a connection could not be begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError {
    /// The text for clients.
    pub reason: String,
    /// The cause is not the server.
    pub is_own: bool,
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Details for finding faults in the proxy.
    Debug,
    /// Frequent events.
    Verbose,
    /// Events that need attention.
    Warning,
}
