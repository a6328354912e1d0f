//! One server's side of the comparison of streams: its clients, and its stream. Must not know the other side.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use redline_resp::reply_decoder::Value;

use crate::client::{Client, encode};
use crate::generate::Call;
use crate::stream::scenes::{CLIENTS, Step};
use crate::stream::source::Source;
use crate::stream::told::{Listener, MARKER, Told};

/// Longest time until a client waits, or a key is gone.
const COMES_TRUE: Duration = Duration::from_secs(20);
/// Parameters that generated calls may have changed, with their defaults.
const DEFAULTS: &[(&str, &str)] = &[
    ("hash-max-listpack-entries", "128"),
    ("hash-max-listpack-value", "64"),
    ("set-max-intset-entries", "512"),
    ("set-max-listpack-entries", "128"),
    ("zset-max-listpack-entries", "128"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("stream-node-max-entries", "100"),
    ("proto-max-bulk-len", "512mb"),
];

pub(super) struct Side {
    address: SocketAddr,
    clients: Vec<Client>,
    /// The calls that are queued in each client's transaction.
    queues: Vec<Queue>,
    /// Sends markers and questions.
    control: Client,
    listener: Listener,
    markers: u64,
    /// Number of clients that wait.
    waiting: usize,
}

impl Side {
    pub(super) fn new(address: SocketAddr, source: Source) -> io::Result<Side> {
        let mut side = Side {
            address,
            clients: Vec::new(),
            queues: Vec::new(),
            control: Client::connect(address)?,
            listener: Listener::new(source),
            markers: 0,
            waiting: 0,
        };
        side.reconnect()?;
        Ok(side)
    }

    pub(super) fn has_messages(&self) -> bool {
        self.listener.has_messages()
    }

    /// Returns true if clients wait.
    pub(super) fn has_waiters(&self) -> bool {
        self.waiting > 0
    }

    /// Returns our stream since the last call, as it stands.
    pub(super) fn take_raw(&mut self) -> Vec<Call> {
        self.listener.take_raw()
    }

    /// Takes all data away, and begins with new clients.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.reconnect()?;
        for (name, value) in DEFAULTS {
            self.control.call(&["CONFIG", "SET", name, value])?;
        }
        self.control.call(&["FLUSHALL"])?;
        self.control.call(&["FUNCTION", "FLUSH"])?;
        self.control.call(&["SCRIPT", "FLUSH"])?;
        self.told().map(drop)
    }

    /// Connects all clients anew.
    pub(super) fn reconnect(&mut self) -> io::Result<()> {
        self.clients.clear();
        for _ in 0..CLIENTS {
            self.clients.push(Client::connect(self.address)?);
        }
        self.queues = vec![Queue::default(); CLIENTS];
        Ok(())
    }

    /// Takes a step. Returns the reply, or null if there is none.
    pub(super) fn take(&mut self, step: &Step) -> io::Result<Value> {
        match step {
            Step::Call(client, call) => self.call(*client, call),
            Step::Wait(client, call) => {
                let mut request = Vec::new();
                encode(call, &mut request);
                self.clients[*client].send(&request)?;
                self.waiting += 1;
                let waiting = format!("\r\nblocked_clients:{}\r\n", self.waiting);
                self.ask_until(&["INFO", "clients"], |reply| {
                    let text = reply.as_bytes().unwrap_or_default();
                    String::from_utf8_lossy(text).contains(&waiting)
                })?;
                Ok(Value::Null)
            }
            Step::Served(client) => {
                self.waiting -= 1;
                let reply = self.clients[*client].reply()?;
                reply.ok_or_else(|| io::Error::other("the connection is closed"))
            }
            Step::Gone(call) => {
                let words: Vec<&str> = call
                    .iter()
                    .filter_map(|word| std::str::from_utf8(word).ok())
                    .collect();
                self.ask_until(&words, |reply| *reply == Value::Integer(0))
            }
        }
    }

    fn call(&mut self, client: usize, call: &Call) -> io::Result<Value> {
        let reply = self.clients[client].call(call);
        let ended = |error: &io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::BrokenPipe
            )
        };
        let quits = call[0].eq_ignore_ascii_case(b"quit");
        match reply {
            Ok(reply) if !quits => Ok(reply),
            Err(error) if !quits && !ended(&error) => Err(error),
            _ => {
                self.clients[client] = Client::connect(self.address)?;
                Ok(Value::Null)
            }
        }
    }

    /// Keeps the calls that a client's transaction queues, by the reply. Returns them for the EXEC that runs them.
    pub(super) fn queued(
        &mut self,
        client: usize,
        call: &Call,
        reply: &Value,
    ) -> Option<Vec<Call>> {
        self.queues[client].after(call, reply)
    }

    fn ask_until(&mut self, words: &[&str], is_true: impl Fn(&Value) -> bool) -> io::Result<Value> {
        let deadline = Instant::now() + COMES_TRUE;
        loop {
            let reply = self.control.call(words)?;
            if is_true(&reply) {
                return Ok(reply);
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("{words:?} still says {reply:?}")));
            }
        }
    }

    /// Ends the part of the stream that is due to what was called so far, and returns it.
    pub(super) fn told(&mut self) -> io::Result<Vec<Told>> {
        self.markers += 1;
        let number = self.markers.to_string();
        let reply = self.control.call(&[b"SET", MARKER, number.as_bytes()])?;
        if reply.is_error() {
            return Err(io::Error::other(format!("the marker: {reply:?}")));
        }
        self.listener.until(self.markers)
    }

    /// Returns the digest of all data.
    pub(super) fn digest(&mut self) -> io::Result<Value> {
        self.control.call(&["DEBUG", "DIGEST"])
    }

    /// Returns the connection for questions.
    pub(super) fn control(&mut self) -> &mut Client {
        &mut self.control
    }
}

/// The calls that a client's transaction queues.
#[derive(Clone, Debug, Default)]
struct Queue(Vec<Call>);

impl Queue {
    /// Follows a call by its reply. Returns the queued calls for the EXEC that runs them.
    fn after(&mut self, call: &Call, reply: &Value) -> Option<Vec<Call>> {
        let is = |name: &str| call[0].eq_ignore_ascii_case(name.as_bytes());
        if *reply == Value::Simple(b"QUEUED".to_vec()) {
            self.0.push(call.clone());
        } else if is("exec") {
            return Some(std::mem::take(&mut self.0));
        } else if is("discard") || is("reset") || is("quit") {
            self.0.clear();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exec_has_the_calls_since_the_transaction_began() {
        let mut queue = Queue::default();
        let call = |name: &str| vec![name.as_bytes().to_vec()];
        let (queued, ok) = (
            Value::Simple(b"QUEUED".to_vec()),
            Value::Simple(b"OK".to_vec()),
        );
        assert_eq!(queue.after(&call("GET"), &queued), None);
        assert_eq!(queue.after(&call("DISCARD"), &ok), None);
        assert_eq!(queue.after(&call("INCR"), &queued), None);
        assert_eq!(queue.after(&call("GET"), &Value::NullBulk), None);
        let done = queue.after(&call("exec"), &Value::Array(Vec::new()));
        assert_eq!(done, Some(vec![call("INCR")]));
        assert_eq!(queue.after(&call("EXEC"), &ok), Some(Vec::new()));
    }
}
