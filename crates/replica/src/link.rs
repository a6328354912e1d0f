//! The link of a replica to its primary, as a state machine: from the call over the handshake, and perhaps a snapshot, to
//! the stream.
//!
//! It is fed with events ([`Link::connected`], [`Link::lost`], [`Link::loaded`]), with bytes ([`Link::take`]) and with time
//! ([`Link::tick`]); it leaves bytes to send ([`Link::out`]) and [`Wish`]es. Whatever goes wrong ends in one wish with a
//! line for the log, and in another attempt: at once if the last one is long ago, since what the primary keeps of the stream
//! does not grow, or else after a pause.
//!
//! | state | leaves by |
//! |---|---|
//! | off | [`Link::follow`] → pausing, for no time |
//! | pausing | its end → connecting |
//! | connecting | connected → handshake |
//! | handshake | `+CONTINUE` → streaming; `+FULLRESYNC`, or SYNC of a primary without PSYNC → transfer |
//! | transfer | the end of the snapshot → loading |
//! | loading | loaded → streaming |
//! | streaming | |
//!
//! Must not know: sockets, clocks, files, what the stream says.

mod transfer;
pub mod units;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::identity::Replid;
use transfer::Transfer;

/// Shortest time between two calls, and between two acknowledgements or signs of life: milliseconds.
const PERIOD_MS: u64 = 1000;
/// Shortest pause before another call: milliseconds. Whoever has closed the connection may have more to say: DEBUG SLEEP, or
/// whom to follow instead.
const MOMENT_MS: u64 = 20;
/// Most bytes of a line of the primary.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// The version that replicas tell. A Valkey sends hashes whose fields expire only to who tells one that knows them; a Redis
/// answers with an error, which is of no consequence.
const VERSION: &str = "9.1.2";

/// Facts that a replica tells of itself, and its wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Introduction {
    /// User to log in as; needs a password.
    pub user: Option<Vec<u8>>,
    /// Password; `None`: no login.
    pub password: Option<Vec<u8>>,
    /// Port that the primary tells others.
    pub port: u16,
    /// Address that the primary tells others, if it is not that of the connection.
    pub address: Option<String>,
    /// The history whose data it has, and the number of its bytes that it has applied.
    pub resume: Option<(Replid, u64)>,
    /// The other side is a replica of this server, which is to change roles with it (FAILOVER); needs `resume`.
    pub is_failover: bool,
    /// Silence after which the primary is given up: milliseconds.
    pub timeout_ms: u64,
    /// Node of a cluster that this server is, and the term of its shard that it follows; a primary of another term refuses it.
    pub node: Option<NodeName>,
}

/// Name of a replica in its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeName {
    /// Id of the node.
    pub node: String,
    /// Number of this run of it.
    pub incarnation: String,
    /// Term of its shard that it follows.
    pub term: u64,
}

impl NodeName {
    /// Returns the form in which it is sent: three words with spaces between them.
    pub fn text(&self) -> String {
        format!("{} {} {}", self.node, self.incarnation, self.term)
    }

    /// Reads that form.
    pub fn parse(text: &str) -> Option<NodeName> {
        let mut words = text.split(' ');
        let (node, incarnation) = (words.next()?, words.next()?);
        let term = words.next()?.parse().ok()?;
        let is_whole = words.next().is_none() && !node.is_empty() && !incarnation.is_empty();
        is_whole.then(|| NodeName {
            node: node.to_owned(),
            incarnation: incarnation.to_owned(),
            term,
        })
    }
}

/// Something that the link wants done, or gives.
#[derive(Debug, PartialEq, Eq)]
pub enum Wish<'b> {
    /// Open a connection to the primary, and tell how that went.
    Connect,
    /// Drop the connection, if there is one, and whatever has come of a snapshot or of a unit. The text is for the log.
    Failed(String),
    /// As `Failed`: the target of a failover does not take over.
    Refused(String),
    /// Note something that is of no further consequence in the log.
    Note(String),
    /// A snapshot begins: of this history at this offset; none are known of a primary without PSYNC.
    Begin(Option<(Replid, u64)>),
    /// Bytes of the snapshot.
    Snapshot(&'b [u8]),
    /// The snapshot has come: remove so many bytes from its end, load it, and tell how that went. Until then no bytes are taken.
    Load {
        /// Number of bytes at the end that do not belong to it.
        surplus: usize,
    },
    /// The stream goes on behind what was applied; the primary may have told a new id for it.
    Continue(Option<Replid>),
    /// Bytes of the stream.
    Stream(&'b [u8]),
}

/// State of a link, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no primary.
    Off,
    /// The next call is due in a moment.
    Pausing,
    /// The connection is being made.
    Connecting,
    /// Both sides introduce themselves.
    Handshake,
    /// A snapshot comes.
    Transfer,
    /// The snapshot is being loaded.
    Loading,
    /// The stream is applied.
    Streaming,
}

impl State {
    /// Returns its name in ROLE.
    pub fn name(self) -> &'static str {
        match self {
            State::Off => "none",
            State::Pausing => "connect",
            State::Connecting => "connecting",
            State::Handshake => "handshake",
            State::Transfer | State::Loading => "sync",
            State::Streaming => "connected",
        }
    }
}

/// A request of the handshake whose reply is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Ping,
    Auth,
    Port,
    Address,
    Capabilities,
    Version,
    Node,
    Psync,
}

#[derive(Debug)]
enum Phase {
    Off,
    Pausing {
        until_ms: u64,
    },
    Connecting,
    /// The steps to come; the reply to the first is awaited.
    Handshake(VecDeque<Step>),
    /// `None`: the line before the snapshot is yet to come.
    Transfer(Option<Transfer>),
    Loading,
    Streaming,
}

/// The link: see the module's text.
#[derive(Debug)]
pub struct Link {
    phase: Phase,
    introduction: Introduction,
    out: Vec<u8>,
    /// The beginning of a line whose end is yet to come.
    line: Vec<u8>,
    /// When the primary was last called.
    called_ms: u64,
    /// When something was last heard of the primary, or done about it.
    heard_ms: u64,
    /// When the next acknowledgement or sign of life is due.
    due_ms: u64,
    /// False behind a primary without PSYNC, which takes no acknowledgement.
    acknowledges: bool,
}

impl Default for Link {
    fn default() -> Link {
        Link {
            phase: Phase::Off,
            introduction: Introduction::default(),
            out: Vec::new(),
            line: Vec::new(),
            called_ms: 0,
            heard_ms: 0,
            due_ms: 0,
            acknowledges: false,
        }
    }
}

impl Link {
    /// Returns its state.
    pub fn state(&self) -> State {
        match &self.phase {
            Phase::Off => State::Off,
            Phase::Pausing { .. } => State::Pausing,
            Phase::Connecting => State::Connecting,
            Phase::Handshake(_) => State::Handshake,
            Phase::Transfer(_) => State::Transfer,
            Phase::Loading => State::Loading,
            Phase::Streaming => State::Streaming,
        }
    }

    /// Returns the bytes to send; the caller takes out what was sent.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Begins to follow a primary: [`Link::tick`] asks for a connection. A connection to an earlier one has been dropped.
    pub fn follow(&mut self, now_ms: u64) {
        self.reset();
        self.phase = Phase::Pausing { until_ms: now_ms };
    }

    /// Follows nobody any more. The caller drops the connection.
    pub fn stop(&mut self) {
        self.reset();
        self.phase = Phase::Off;
    }

    /// Begins the handshake: the connection stands.
    pub fn connected(&mut self, introduction: Introduction, now_ms: u64) {
        let mut steps = VecDeque::from([Step::Ping]);
        if introduction.password.is_some() {
            steps.push_back(Step::Auth);
        }
        steps.push_back(Step::Port);
        if introduction.address.is_some() {
            steps.push_back(Step::Address);
        }
        steps.extend([Step::Capabilities, Step::Version]);
        if introduction.node.is_some() {
            steps.push_back(Step::Node);
        }
        steps.push_back(Step::Psync);
        self.reset();
        self.introduction = introduction;
        self.heard_ms = now_ms;
        self.phase = Phase::Handshake(steps);
        self.ask();
    }

    /// Takes note that the connection failed or was lost; `why` is a part of a line for the log.
    pub fn lost(&mut self, why: &str, now_ms: u64) -> Option<Wish<'static>> {
        match self.phase {
            Phase::Off | Phase::Pausing { .. } => None,
            Phase::Streaming => {
                Some(self.fail(format!("Connection with master lost: {why}"), now_ms))
            }
            Phase::Connecting => {
                Some(self.fail(format!("Error condition on socket for SYNC: {why}"), now_ms))
            }
            _ => Some(self.fail(
                format!("The connection with the master was lost while synchronising: {why}"),
                now_ms,
            )),
        }
    }

    /// Gives the primary up, since what it has sent cannot be used; `why` is a line for the log.
    pub fn give_up(&mut self, why: String, now_ms: u64) -> Wish<'static> {
        self.fail(why, now_ms)
    }

    /// Takes note that the snapshot waits for whoever loads it: its silence is not the primary's.
    pub fn waits_for_loader(&mut self, now_ms: u64) {
        if matches!(self.phase, Phase::Transfer(_)) {
            self.heard_ms = now_ms;
        }
    }

    /// Goes on after the snapshot was loaded, of which the offset was applied. `why`: it cannot be loaded.
    pub fn loaded(&mut self, result: Result<u64, String>, now_ms: u64) -> Option<Wish<'static>> {
        match result {
            // One that is loaded while it comes may turn out to be damaged before its end.
            Err(why) if matches!(self.phase, Phase::Transfer(_)) => Some(self.fail(why, now_ms)),
            _ if !matches!(self.phase, Phase::Loading) => None,
            Ok(applied) => {
                self.heard_ms = now_ms;
                self.phase = Phase::Streaming;
                self.acknowledge(applied, None, now_ms);
                None
            }
            Err(why) => Some(self.fail(why, now_ms)),
        }
    }

    /// Tells the primary how much was applied, and how much of that is on disk. Does nothing unless the stream flows.
    pub fn acknowledge(&mut self, applied: u64, synced: Option<u64>, now_ms: u64) {
        if !matches!(self.phase, Phase::Streaming) {
            return;
        }
        self.due_ms = now_ms + PERIOD_MS;
        if !self.acknowledges {
            return;
        }
        let (applied, synced) = (applied.to_string(), synced.map(|synced| synced.to_string()));
        let mut words = vec!["REPLCONF", "ACK", &applied];
        if let Some(synced) = &synced {
            words.extend(["FACK", synced]);
        }
        self.request(&words);
    }

    /// Does what is due by time. `applied`: bytes of the stream that were applied; `synced`: that are on disk.
    pub fn tick(
        &mut self,
        applied: u64,
        synced: Option<u64>,
        now_ms: u64,
    ) -> Option<Wish<'static>> {
        let is_silent = now_ms.saturating_sub(self.heard_ms) >= self.introduction.timeout_ms.max(1);
        match &self.phase {
            Phase::Off => None,
            Phase::Pausing { until_ms } => {
                if now_ms < *until_ms {
                    return None;
                }
                (self.called_ms, self.heard_ms) = (now_ms, now_ms);
                self.phase = Phase::Connecting;
                Some(Wish::Connect)
            }
            Phase::Connecting | Phase::Handshake(_) if is_silent => {
                Some(self.fail("Timeout connecting to the MASTER...".to_owned(), now_ms))
            }
            Phase::Transfer(_) if is_silent => Some(self.fail(
                "Timeout receiving bulk data from MASTER... If the problem persists try to set the 'repl-timeout' parameter in redis.conf to a larger value.".to_owned(),
                now_ms,
            )),
            Phase::Streaming if is_silent => {
                Some(self.fail("MASTER timeout: no data nor PING received...".to_owned(), now_ms))
            }
            Phase::Connecting | Phase::Handshake(_) | Phase::Transfer(_) => None,
            Phase::Loading => {
                if now_ms >= self.due_ms {
                    self.due_ms = now_ms + PERIOD_MS;
                    self.out.push(b'\n');
                }
                None
            }
            Phase::Streaming => {
                if now_ms >= self.due_ms {
                    self.acknowledge(applied, synced, now_ms);
                }
                None
            }
        }
    }

    /// Returns when [`Link::tick`] is next due; `None`: not by itself.
    pub fn next_ms(&self) -> Option<u64> {
        let silent_ms = self.heard_ms + self.introduction.timeout_ms.max(1);
        match &self.phase {
            Phase::Off => None,
            Phase::Pausing { until_ms } => Some(*until_ms),
            Phase::Connecting | Phase::Handshake(_) | Phase::Transfer(_) => Some(silent_ms),
            Phase::Loading => Some(self.due_ms),
            Phase::Streaming => Some(self.due_ms.min(silent_ms)),
        }
    }

    /// Returns true if bytes are taken now.
    pub fn takes_bytes(&self) -> bool {
        matches!(
            self.phase,
            Phase::Handshake(_) | Phase::Transfer(_) | Phase::Streaming
        )
    }

    /// Takes bytes that have come: returns how many were taken, from the first on, and adds what they led to. The rest is to
    /// be given again: while a snapshot is loaded, and after a failure, none are taken.
    pub fn take<'b>(&mut self, bytes: &'b [u8], now_ms: u64, wishes: &mut Vec<Wish<'b>>) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match &mut self.phase {
                Phase::Streaming => {
                    wishes.push(Wish::Stream(rest));
                    at = bytes.len();
                }
                Phase::Transfer(Some(transfer)) => {
                    let taken = transfer.take(rest);
                    at += taken.bytes;
                    if taken.bytes > 0 {
                        wishes.push(Wish::Snapshot(&rest[..taken.bytes]));
                    }
                    if let Some(surplus) = taken.ended {
                        self.phase = Phase::Loading;
                        self.due_ms = now_ms + PERIOD_MS;
                        wishes.push(Wish::Load { surplus });
                    }
                }
                Phase::Handshake(_) | Phase::Transfer(None) => {
                    let end = memchr::memchr(b'\n', rest);
                    let taken = end.map_or(rest.len(), |end| end + 1);
                    at += taken;
                    self.line.extend_from_slice(&rest[..taken]);
                    if self.line.len() > LINE_BYTES_MAX {
                        wishes.push(self.fail(
                            "Bad protocol from MASTER: a line without an end".to_owned(),
                            now_ms,
                        ));
                    } else if end.is_some() {
                        let line = std::mem::take(&mut self.line);
                        wishes.extend(self.take_line(line.trim_ascii_end(), now_ms));
                    }
                }
                Phase::Off | Phase::Pausing { .. } | Phase::Connecting | Phase::Loading => break,
            }
        }
        if at > 0 {
            self.heard_ms = now_ms;
        }
        at
    }

    /// Takes a line of the handshake, or the one before a snapshot. Empty ones are signs of life.
    fn take_line(&mut self, line: &[u8], now_ms: u64) -> Option<Wish<'static>> {
        if line.is_empty() {
            return None;
        }
        let Phase::Handshake(steps) = &mut self.phase else {
            return self.take_header(line, now_ms);
        };
        let Some(step) = steps.pop_front() else {
            unreachable!("the last step ends the handshake");
        };
        let shown = line.escape_ascii();
        let is_error = line.starts_with(b"-");
        let mut note = None;
        match step {
            Step::Psync => return Some(self.take_answer(line, now_ms)),
            Step::Ping => {
                let allowed: [&[u8]; 3] = [b"-NOAUTH", b"-NOPERM", b"-ERR operation not permitted"];
                let is_allowed = allowed.iter().any(|begin| line.starts_with(begin));
                if is_error && !is_allowed {
                    let why = format!("Error reply to PING from master: '{shown}'");
                    return Some(self.fail(why, now_ms));
                }
            }
            Step::Auth if is_error => {
                let why = format!("Unable to AUTH to MASTER: {shown}");
                return Some(self.fail(why, now_ms));
            }
            Step::Node if is_error => {
                // It may be about to lead.
                self.called_ms = now_ms.saturating_sub(PERIOD_MS);
                let why = format!("The primary refuses this node: {shown}");
                return Some(self.fail(why, now_ms));
            }
            Step::Port | Step::Address | Step::Capabilities if is_error => {
                let what = match step {
                    Step::Port => "listening-port",
                    Step::Address => "ip-address",
                    _ => "capa",
                };
                note = Some(Wish::Note(format!(
                    "(Non critical) Master does not understand REPLCONF {what}: {shown}"
                )));
            }
            _ => {}
        }
        self.ask();
        note
    }

    /// Takes the answer to PSYNC.
    fn take_answer(&mut self, line: &[u8], now_ms: u64) -> Wish<'static> {
        let shown = line.escape_ascii();
        let mut words = line
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty());
        match words.next() {
            Some(b"+FULLRESYNC") => {
                let history = words
                    .next()
                    .and_then(Replid::parse)
                    .zip(words.next().and_then(offset));
                let Some(history) = history else {
                    let why = format!("Master replied with wrong +FULLRESYNC syntax: {shown}");
                    return self.fail(why, now_ms);
                };
                self.phase = Phase::Transfer(None);
                self.acknowledges = true;
                Wish::Begin(Some(history))
            }
            Some(b"+CONTINUE") => {
                let replid = words.next().map(Replid::parse);
                if self.introduction.resume.is_none() || replid == Some(None) {
                    let why =
                        format!("Master replied with a +CONTINUE that nobody asked for: {shown}");
                    return self.fail(why, now_ms);
                }
                self.phase = Phase::Streaming;
                self.due_ms = now_ms;
                self.acknowledges = true;
                Wish::Continue(replid.flatten())
            }
            Some(word) if word.starts_with(b"-") && self.introduction.is_failover => {
                match self.fail(format!("The failover was refused: {shown}"), now_ms) {
                    Wish::Failed(why) => Wish::Refused(why),
                    other => other,
                }
            }
            Some(b"-NOMASTERLINK" | b"-LOADING") => {
                let why = format!(
                    "Master is currently unable to PSYNC but should be in the future: {shown}"
                );
                self.fail(why, now_ms)
            }
            Some(word) if word.starts_with(b"-") => {
                // A primary that is older than PSYNC.
                self.phase = Phase::Transfer(None);
                self.acknowledges = false;
                self.request(&["SYNC"]);
                Wish::Begin(None)
            }
            _ => {
                let why = format!("Unexpected reply to PSYNC from master: {shown}");
                self.fail(why, now_ms)
            }
        }
    }

    /// Takes the line before a snapshot.
    fn take_header(&mut self, line: &[u8], now_ms: u64) -> Option<Wish<'static>> {
        let shown = line.escape_ascii();
        if line.starts_with(b"-") {
            let why = format!("MASTER aborted replication with an error: {shown}");
            return Some(self.fail(why, now_ms));
        }
        let Some(transfer) = Transfer::parse(line) else {
            let why = format!(
                "Bad protocol from MASTER, the first byte is not '$' (we received '{shown}'), are you sure the host and port are right?"
            );
            return Some(self.fail(why, now_ms));
        };
        self.phase = Phase::Transfer(Some(transfer));
        None
    }

    /// Sends the request of the next step.
    fn ask(&mut self) {
        let Phase::Handshake(steps) = &self.phase else {
            return;
        };
        let introduction = std::mem::take(&mut self.introduction);
        match steps.front() {
            None => unreachable!("PSYNC is the last step, and ends the handshake"),
            Some(Step::Ping) => self.request(&["PING"]),
            Some(Step::Auth) => {
                let user = introduction.user.as_deref();
                let words = [
                    Some(b"AUTH".as_slice()),
                    user,
                    introduction.password.as_deref(),
                ];
                let words: Vec<&[u8]> = words.into_iter().flatten().collect();
                redline_resp::encode_request(words, &mut self.out);
            }
            Some(Step::Port) => {
                let port = introduction.port.to_string();
                self.request(&["REPLCONF", "listening-port", &port]);
            }
            Some(Step::Address) => {
                let address = introduction.address.as_deref().unwrap_or_default();
                self.request(&["REPLCONF", "ip-address", address]);
            }
            Some(Step::Capabilities) => {
                // Others pass over what they do not know.
                let capabilities = ["eof", "capa", "psync2", "capa", "redline"];
                self.request(&[&["REPLCONF", "capa"], &capabilities[..]].concat());
            }
            Some(Step::Version) => self.request(&["REPLCONF", "version", VERSION]),
            Some(Step::Node) => {
                let node = introduction.node.as_ref().map(NodeName::text);
                self.request(&["REPLCONF", "cluster-node", &node.unwrap_or_default()]);
            }
            Some(Step::Psync) => match &introduction.resume {
                None => self.request(&["PSYNC", "?", "-1"]),
                Some((replid, applied)) => {
                    let next = (applied + 1).to_string();
                    let mut words = vec!["PSYNC", replid.as_str(), &next];
                    if introduction.is_failover {
                        words.push("FAILOVER");
                    }
                    self.request(&words);
                }
            },
        }
        self.introduction = introduction;
    }

    fn request(&mut self, words: &[&str]) {
        let words = words.iter().map(|word| word.as_bytes());
        redline_resp::encode_request(words, &mut self.out);
    }

    fn fail(&mut self, why: String, now_ms: u64) -> Wish<'static> {
        self.reset();
        self.phase = Phase::Pausing {
            until_ms: (now_ms + MOMENT_MS).max(self.called_ms + PERIOD_MS),
        };
        Wish::Failed(why)
    }

    fn reset(&mut self) {
        self.out.clear();
        self.line.clear();
        self.acknowledges = false;
    }
}

/// Reads an offset.
fn offset(word: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(word).ok()?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}
