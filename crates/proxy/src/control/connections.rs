//! The connections of the control side: one for each server and purpose, made when a question is asked. Must not know
//! what replies and failures mean.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::time::Duration;

use redline_net::tls::ClientTls;
use redline_net::{Endpoint, Poller, Waker, clock};
use redline_proxy_config::Secret;
use redline_resp::Value;

use super::line::{Line, Opening};
use crate::route::NodeId;

/// Largest number of events in one turn.
const EVENTS_MAX: usize = 256;
const WAKER_TOKEN: usize = usize::MAX;

/// The target of a connection, and its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A server of a pool.
    Node(NodeId),
    /// A Sentinel of a pool, by its index.
    Sentinel(usize, usize),
    /// A Sentinel of a pool, for its published messages.
    Watch(usize, usize),
}

/// The subject of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// PING.
    Probe,
    /// COMMAND, of a pool.
    Commands(usize),
    /// INFO REPLICATION, asked at this time.
    Replication(u64),
    /// CLUSTER INFO, SLOTS and SHARDS, by index.
    Cluster(usize),
    /// SENTINEL MASTER and REPLICAS of a shard, by index.
    Shard(usize, usize),
    /// SENTINEL SENTINELS of a shard.
    Sentinels(usize),
    /// SUBSCRIBE.
    Subscribe,
    /// PING on a connection that is subscribed.
    Pulse,
}

/// A question that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asking {
    /// The server that is asked.
    pub peer: Peer,
    /// The subject.
    pub question: Question,
    /// The request.
    pub words: Vec<String>,
}

impl Asking {
    /// Returns a question to a server, with the words of its request.
    pub fn new(peer: Peer, question: Question, words: &[&str]) -> Asking {
        Asking {
            peer,
            question,
            words: words.iter().map(|&word| word.to_owned()).collect(),
        }
    }
}

/// The target of a connection: its endpoint, and what a new connection to it begins with.
pub struct Target {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The user to authenticate as.
    pub user: Option<String>,
    /// The password; none: no authentication.
    pub password: Option<Secret>,
    /// With TLS.
    pub tls: Option<ClientTls>,
}

/// A connection that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its target.
    pub peer: Peer,
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// The questions that will not be answered.
    pub questions: Vec<Question>,
    /// The reason, for operators.
    pub why: String,
}

/// The result of an event of a connection.
pub struct Heard {
    /// The connection's number.
    pub at: usize,
    /// Its target.
    pub peer: Peer,
    /// The replies, in order; without a question: a pushed message.
    pub answers: Vec<(Option<Question>, Value)>,
    /// The connection is to be closed after that.
    pub error: Option<io::Error>,
}

struct Connection {
    peer: Peer,
    endpoint: Endpoint,
    line: Line<Question>,
}

/// All connections, by number.
pub struct Connections {
    poller: Poller,
    open: Vec<Option<Connection>>,
    by_peer: HashMap<Peer, usize>,
    /// Everything that arrived before this time has been processed: a later deadline has not passed, by any clock. So a
    /// machine that stalls for a while does not make its servers look failed.
    heard_to_ms: u64,
}

impl Connections {
    /// Returns no connections. An error: the system gives no poller.
    pub fn new() -> io::Result<Connections> {
        Ok(Connections {
            poller: Poller::new(EVENTS_MAX)?,
            open: Vec::new(),
            by_peer: HashMap::new(),
            heard_to_ms: 0,
        })
    }

    /// Returns a handle that ends the current wait.
    pub fn waker(&mut self) -> io::Result<Waker> {
        self.poller.waker(WAKER_TOKEN)
    }

    /// Returns true if the peer has a connection with an unanswered question.
    pub fn is_asked(&self, peer: Peer) -> bool {
        let connection = self.by_peer.get(&peer);
        let connection = connection.and_then(|&at| self.open[at].as_ref());
        connection.is_some_and(|connection| connection.line.deadline_ms().is_some())
    }

    /// Returns the Sentinel of a pool to which there is a subscription.
    pub fn watched(&self, pool: usize) -> Option<Peer> {
        let watches = |peer: &&Peer| matches!(peer, Peer::Watch(watched, _) if *watched == pool);
        self.by_peer.keys().find(watches).copied()
    }

    /// Asks a question, on the existing connection or on a new one. An error: there is no connection any more.
    pub fn ask(&mut self, asking: Asking, target: Target, deadline_ms: u64) -> Result<(), Ended> {
        let Asking {
            peer,
            question,
            words,
        } = asking;
        let known = self.by_peer.get(&peer).copied();
        let stands = known.filter(|&at| {
            let connection = self.open[at].as_ref();
            connection.is_some_and(|connection| connection.endpoint == target.endpoint)
        });
        let (at, is_new) = match stands {
            Some(at) => (at, false),
            None => {
                self.forget(peer);
                let at = self
                    .open(peer, &target, deadline_ms)
                    .map_err(|error| Ended {
                        peer,
                        endpoint: target.endpoint,
                        questions: vec![question],
                        why: redline_net::error_text(&error),
                    })?;
                (at, true)
            }
        };
        let Some(connection) = &mut self.open[at] else {
            return Ok(());
        };
        let asked = match (is_new, peer, question) {
            // A new connection has no subscription yet.
            (true, Peer::Watch(..), Question::Pulse) => {
                let words = ["SUBSCRIBE", "+switch-master"];
                let question = Question::Subscribe;
                connection.line.ask(question, words, deadline_ms)
            }
            _ => {
                let words = words.iter().map(String::as_str);
                connection.line.ask(question, words, deadline_ms)
            }
        };
        match asked {
            Ok(()) => Ok(()),
            Err(error) => {
                let ended = self.close(at, &redline_net::error_text(&error), Vec::new());
                ended.map_or(Ok(()), Err)
            }
        }
    }

    /// Begins to connect; returns the connection's number.
    fn open(&mut self, peer: Peer, target: &Target, deadline_ms: u64) -> io::Result<usize> {
        let free = self.open.iter().position(Option::is_none);
        let at = free.unwrap_or(self.open.len());
        let password = target.password.as_deref();
        let opening = Opening {
            token: at,
            endpoint: &target.endpoint,
            tls: target.tls.clone(),
            who: password.map(|password| (target.user.as_deref(), password)),
            deadline_ms,
            hears: matches!(peer, Peer::Watch(..)),
        };
        let connection = Some(Connection {
            peer,
            endpoint: target.endpoint.clone(),
            line: Line::open(&self.poller, opening)?,
        });
        match free {
            Some(at) => self.open[at] = connection,
            None => self.open.push(connection),
        }
        self.by_peer.insert(peer, at);
        Ok(at)
    }

    /// Waits for events, at most for this time; returns their number.
    pub fn wait(&mut self, time_max: Duration) -> io::Result<usize> {
        let from_ms = clock::monotonic_ms();
        self.poller.poll(Some(time_max))?;
        let events = self.poller.event_count();
        if events < EVENTS_MAX {
            self.heard_to_ms = from_ms;
        }
        Ok(events)
    }

    /// Handles one of the events of the last wait; none: it was of no connection.
    pub fn take_event(&mut self, event: usize) -> Option<Heard> {
        let event = self.poller.event(event);
        let connection = self.open.get_mut(event.token)?.as_mut()?;
        let mut answers = Vec::new();
        let turned = connection.line.turn(&self.poller, event, &mut answers);
        Some(Heard {
            at: event.token,
            peer: connection.peer,
            answers,
            error: turned.err(),
        })
    }

    /// Returns the numbers of the connections whose oldest question has timed out.
    pub fn late(&self) -> Vec<usize> {
        let is_late = |at: &usize| {
            let connection = self.open[*at].as_ref();
            let deadline_ms = connection.and_then(|connection| connection.line.deadline_ms());
            deadline_ms.is_some_and(|deadline_ms| self.heard_to_ms >= deadline_ms)
        };
        (0..self.open.len()).filter(is_late).collect()
    }

    /// Ends a connection; `questions` are those whose replies are not trusted, to which the unanswered ones are added.
    pub fn close(&mut self, at: usize, why: &str, mut questions: Vec<Question>) -> Option<Ended> {
        let connection = self.open.get_mut(at)?.take()?;
        self.by_peer.remove(&connection.peer);
        questions.extend(connection.line.unanswered());
        Some(Ended {
            peer: connection.peer,
            endpoint: connection.endpoint,
            questions,
            why: why.to_owned(),
        })
    }

    /// Drops the connection of a peer, if it has one, with its questions.
    pub fn forget(&mut self, peer: Peer) {
        if let Some(at) = self.by_peer.remove(&peer) {
            self.open[at] = None;
        }
    }

    /// Drops the connections of some peers, with their questions.
    pub fn forget_where(&mut self, which: impl Fn(Peer) -> bool) {
        for at in 0..self.open.len() {
            let connection = self.open[at].take_if(|connection| which(connection.peer));
            if let Some(connection) = connection {
                self.by_peer.remove(&connection.peer);
            }
        }
    }
}

/// Returns true if the peer violates the protocol.
pub fn is_violation(error: &io::Error) -> bool {
    error.kind() == ErrorKind::InvalidData
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const WAIT: Duration = Duration::from_secs(20);

    fn target(listener: &TcpListener) -> Target {
        Target {
            endpoint: Endpoint::Tcp(listener.local_addr().unwrap()),
            user: None,
            password: None,
            tls: None,
        }
    }

    /// Handles events until this number of replies has arrived.
    fn answers(connections: &mut Connections, number: usize) -> Vec<(Option<Question>, Value)> {
        let mut all = Vec::new();
        while all.len() < number {
            let events = connections.wait(WAIT).unwrap();
            assert!(events > 0, "nothing arrives");
            for event in 0..events {
                let heard = connections.take_event(event).unwrap();
                assert!(heard.error.is_none(), "{:?}", heard.error);
                all.extend(heard.answers);
            }
        }
        all
    }

    fn read_exactly(stream: &mut TcpStream, wanted: &[u8]) {
        let mut read = vec![0; wanted.len()];
        stream.read_exact(&mut read).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&read),
            String::from_utf8_lossy(wanted)
        );
    }

    #[test]
    fn a_peer_has_one_connection_until_its_endpoint_changes() {
        let (first, second) = [(); 2]
            .map(|()| TcpListener::bind("127.0.0.1:0").unwrap())
            .into();
        let mut connections = Connections::new().unwrap();
        let peer = Peer::Node(0);
        let ping = Asking::new(peer, Question::Probe, &["PING"]);
        for _ in 0..2 {
            let asked = connections.ask(ping.clone(), target(&first), u64::MAX);
            asked.unwrap();
        }
        assert!(connections.is_asked(peer) && !connections.is_asked(Peer::Node(1)));
        let mut stream = first.accept().unwrap().0;
        stream.write_all(b"+PONG\r\n+PONG\r\n").unwrap();
        let pong = (Some(Question::Probe), Value::Simple(b"PONG".to_vec()));
        assert_eq!(answers(&mut connections, 2), [pong.clone(), pong]);
        assert!(!connections.is_asked(peer));
        read_exactly(&mut stream, &b"*1\r\n$4\r\nPING\r\n".repeat(2));
        connections.ask(ping, target(&second), u64::MAX).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "the first connection was left");
        drop(second.accept().unwrap());
    }

    #[test]
    fn a_new_connection_for_messages_subscribes_before_anything_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connections = Connections::new().unwrap();
        let peer = Peer::Watch(3, 0);
        assert_eq!(connections.watched(3), None);
        let pulse = Asking::new(peer, Question::Pulse, &["PING"]);
        let asked = connections.ask(pulse, target(&listener), u64::MAX);
        asked.unwrap();
        assert_eq!(connections.watched(3), Some(peer));
        let mut stream = listener.accept().unwrap().0;
        stream.write_all(b"+OK\r\n").unwrap();
        let answers = answers(&mut connections, 1);
        assert_eq!(answers[0].0, Some(Question::Subscribe));
        read_exactly(
            &mut stream,
            b"*2\r\n$9\r\nSUBSCRIBE\r\n$14\r\n+switch-master\r\n",
        );
        connections.forget_where(|peer| matches!(peer, Peer::Watch(3, _)));
        assert_eq!(connections.watched(3), None);
    }

    #[test]
    fn a_deadline_has_passed_only_when_all_that_arrived_before_it_was_handled() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connections = Connections::new().unwrap();
        let ping = Asking::new(Peer::Node(7), Question::Probe, &["PING"]);
        connections.ask(ping, target(&listener), 1).unwrap();
        // Its deadline lies in the past, but nobody has looked for a reply yet.
        assert!(connections.late().is_empty());
        connections.wait(WAIT).unwrap();
        assert_eq!(connections.late(), [0]);
        let ended = connections.close(0, "late", vec![Question::Pulse]).unwrap();
        assert_eq!(ended.questions, [Question::Pulse, Question::Probe]);
        assert_eq!((ended.peer, ended.why.as_str()), (Peer::Node(7), "late"));
        assert!(connections.close(0, "late", Vec::new()).is_none());
    }
}
