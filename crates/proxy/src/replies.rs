//! From a server's bytes to the clients: where each reply ends, and whose it is. The hot path.
//!
//! Consecutive replies to one client are handed over in one piece. A reply that is not whole stays with the connection; if
//! it is long and its client's turn has come, what is there of it goes out at once.
//!
//! Must not know how requests were routed.

use redline_net::{Read, error_text};

use crate::class::NO_COMMAND;
use crate::client::Pause;
use crate::errors;
use crate::link::Loss;
use crate::slab::Ref;
use crate::upstream::{Kind, Purpose, State, Waiting};
use crate::worker::{UPSTREAM_READ_BYTES_MAX, Worker};

/// Reads of one server in one turn: others have something to say, too.
const READS_MAX: usize = 4;
/// A reply of which so much is there, and more to come, is passed on in parts.
const PART_BYTES_MIN: usize = 32 * 1024;

/// A bulk of which so much is to come has its connection for itself: bytes.
const ALONE_BYTES_MIN: u64 = 128 * 1024;

impl Worker {
    /// Reads what a server has sent, and hands it on.
    pub(crate) fn read_upstream(&mut self, at: u32) {
        let Some(upstream) = self.upstreams.get(at) else {
            return;
        };
        upstream.queued = false;
        if upstream.state == State::Connecting || upstream.rests {
            return;
        }
        if upstream.pipe.is_some() {
            return self.pipe_reply(at);
        }
        let mut bytes = std::mem::take(&mut upstream.partial);
        let own = bytes.is_empty();
        if own {
            bytes = std::mem::take(&mut self.received);
        }
        let read = self.read_and_take(at, &mut bytes);
        self.settle_marks(at);
        match read {
            Err(reason) => self.lose(at, &reason, Loss::Broken),
            Ok(more) => self.keep_unread(at, &mut bytes, own, more),
        }
        if own {
            bytes.clear();
            self.received = bytes;
        }
    }

    /// The end of a turn: what is not whole stays with the connection, which comes again if there is more to read. `own`: the
    /// bytes are in the worker's buffer.
    #[inline]
    fn keep_unread(&mut self, at: u32, bytes: &mut Vec<u8>, own: bool, more: bool) {
        let Some(upstream) = self.upstreams.get(at) else {
            return;
        };
        let more = more || upstream.pipe.is_some();
        if (!upstream.held_back.is_empty() || upstream.stream.has_unsent()) && !upstream.dirty {
            // Who waits for room in the queue goes on behind the next look at it; and TLS may have had to answer.
            upstream.dirty = true;
            self.dirty_upstreams.push(at);
        }
        if own && !bytes.is_empty() {
            upstream.partial = bytes.clone();
        } else if !own {
            upstream.partial = std::mem::take(bytes);
            if upstream.partial.is_empty() {
                upstream.partial = Vec::new();
            }
        }
        if !self.end_retired(at) && more {
            self.enqueue_upstream(at);
        }
    }

    /// Reads behind what `bytes` has, and takes out what is whole and handed on; whether there may be more to read. An error
    /// says why the connection is of no more use.
    #[inline]
    fn read_and_take(&mut self, at: u32, bytes: &mut Vec<u8>) -> Result<bool, String> {
        for _ in 0..READS_MAX {
            let Some(upstream) = self.upstreams.get(at) else {
                return Ok(true);
            };
            // The bulk of a pipe does not come this way; what is behind it will.
            if upstream.rests || upstream.pipe.is_some() {
                return Ok(false);
            }
            let must_end = upstream.closed;
            match upstream.stream.read_into(bytes, UPSTREAM_READ_BYTES_MAX) {
                Ok(Read::Data {
                    drained,
                    bytes: read,
                }) => {
                    upstream.stats.received_bytes.add(read as u64);
                    if upstream.purpose == Purpose::Tracking {
                        self.cache.heard(upstream.node);
                    }
                    match self.take_replies(at, bytes)? {
                        consumed if consumed == bytes.len() => bytes.clear(),
                        consumed => drop(bytes.drain(..consumed)),
                    }
                    if bytes.len() > self.shared.settings.client_output_bytes_max {
                        self.let_reader_go(at)?;
                    }
                    // Time-outs count from the last sign of life.
                    let now_ms = self.now_ms as u32;
                    if let Some(upstream) = self.upstreams.get(at)
                        && let Some(front) = upstream.waiting.front_mut()
                    {
                        front.since_ms = now_ms;
                    }
                    if drained && !must_end {
                        return Ok(false);
                    }
                }
                Ok(Read::WouldBlock) => return Ok(false),
                Ok(Read::Eof) => return Err("it closed the connection".to_owned()),
                Err(error) => return Err(error_text(&error)),
            }
        }
        Ok(true)
    }

    /// Hands on all replies that are whole; how many bytes they were. An error says why the connection is of no more use.
    fn take_replies(&mut self, at: u32, bytes: &[u8]) -> Result<usize, String> {
        let mut done = 0;
        while done < bytes.len() {
            let Some(upstream) = self.upstreams.get(at) else {
                return Ok(bytes.len());
            };
            let plain = upstream.waiting.front().copied().filter(|front| {
                front.kind == Kind::Client && !upstream.streaming && !is_special(bytes[done])
            });
            let Some(front) = plain else {
                match self.take_one(at, &bytes[done..])? {
                    Some(len) => done += len,
                    None => break,
                }
                continue;
            };
            // As many as this client has coming and are plain.
            let start = done;
            let mut count = 0;
            while count < front.count && done < bytes.len() && !is_special(bytes[done]) {
                match upstream.framer.next(&bytes[done..]) {
                    Ok(Some(len)) => {
                        if let Some(marks) = &mut upstream.marks {
                            self.cache.answered(marks, count, &bytes[done..done + len]);
                        }
                        done += len;
                        count += 1;
                    }
                    Ok(None) => break,
                    Err(error) => return Err(error.to_string()),
                }
            }
            if count > 0 {
                self.seeing.took(upstream, count, done - start);
                if upstream.retries > 0 {
                    self.overtaken(at, front, count);
                    if let Some(upstream) = self.upstreams.get(at) {
                        upstream.answered(count);
                    }
                } else {
                    upstream.answered(count);
                }
                self.deliver(front.to, front.seq, count.into(), &bytes[start..done]);
                continue;
            }
            match self.take_part(at, front, &bytes[done..]) {
                0 => break,
                len => done += len,
            }
        }
        Ok(done)
    }

    /// Passes on what is there of a long reply whose turn it is.
    fn take_part(&mut self, at: u32, front: Waiting, bytes: &[u8]) -> usize {
        let turn = self
            .clients
            .find(front.to)
            .map(|client| client.head == front.seq);
        let Some(upstream) = self.upstreams.get(at) else {
            return 0;
        };
        if bytes.len() < PART_BYTES_MIN || turn == Some(false) {
            return 0;
        }
        let len = upstream.framer.take_part();
        upstream.streaming |= len > 0;
        upstream.passed += len;
        if upstream.framer.bulk_missing() > ALONE_BYTES_MIN {
            // Whoever comes now need not wait for it.
            self.detach(at);
        }
        self.pass_on(front.to, &bytes[..len]);
        self.slow_down(at, front.to);
        if len == bytes.len() {
            self.begin_pipe(at);
        }
        len
    }

    fn pass_on(&mut self, to: Ref, bytes: &[u8]) {
        if let Some(client) = self.clients.find(to) {
            client.deliver_part(bytes);
            self.mark_client(to.at);
        }
    }

    /// One reply that is not plain: an error, a push message, one that nobody or the proxy itself waits for, or one whose
    /// first part is gone. `None` if it is not whole.
    fn take_one(&mut self, at: u32, bytes: &[u8]) -> Result<Option<usize>, String> {
        let Some(upstream) = self.upstreams.get(at) else {
            return Ok(None);
        };
        let len = match upstream.framer.next(bytes) {
            Ok(Some(len)) => len,
            Ok(None) => return Ok(self.take_unfinished(at, bytes)),
            Err(error) => return Err(error.to_string()),
        };
        let reply = &bytes[..len];
        if upstream.streaming {
            self.end_stream(at, reply)?;
            return Ok(Some(len));
        }
        if upstream.purpose == Purpose::Subscriptions && upstream.waiting.is_empty() {
            let node = upstream.node;
            self.published(at, node, reply)?;
            return Ok(Some(len));
        }
        if upstream.purpose == Purpose::Tracking && reply[0] == b'>' {
            let node = upstream.node;
            self.invalidated(node, reply);
        }
        if reply[0] == b'>' {
            return Ok(Some(len));
        }
        let Some(upstream) = self.upstreams.get(at) else {
            return Ok(Some(len));
        };
        let Some(front) = upstream.waiting.front().copied() else {
            return Err("it sent a reply that nobody waits for".to_owned());
        };
        let one = Waiting {
            count: 1,
            command: upstream.front_command().unwrap_or(NO_COMMAND),
            ..front
        };
        let wanted = front.kind.is_wanted();
        if wanted && reply[0] == b'-' && self.redirected(at, one, reply) {
            if let Some(upstream) = self.upstreams.get(at) {
                upstream.stats.responses.add(1);
                upstream.answered(1);
            }
            if front.kind == Kind::Client {
                self.watch_refused(at, one);
            }
            return Ok(Some(len));
        }
        if wanted
            && self
                .upstreams
                .get(at)
                .is_some_and(|upstream| upstream.retries > 0)
        {
            self.overtaken(at, one, 1);
        }
        let Some(upstream) = self.upstreams.get(at) else {
            return Ok(Some(len));
        };
        match wanted {
            true => self.seeing.took(upstream, 1, len),
            false => upstream.stats.answered_us(1),
        }
        if wanted && reply[0] == b'-' && front.kind != Kind::Part {
            self.seeing.failed(one.command);
        }
        self.settle_one(at, one, reply)?;
        Ok(Some(len))
    }

    /// Handles one whole reply, by the kind of request that waits for it. An error says why the connection is of no more use.
    fn settle_one(&mut self, at: u32, one: Waiting, reply: &[u8]) -> Result<(), String> {
        let Some(upstream) = self.upstreams.get(at) else {
            return Ok(());
        };
        match one.kind {
            Kind::Client => {
                upstream.answered(1);
                self.deliver(one.to, one.seq, 1, reply);
                if reply[0] == b'-' {
                    self.watch_refused(at, one);
                }
            }
            Kind::Silent => {
                upstream.answered(1);
                self.deliver(one.to, one.seq, 1, b"");
            }
            Kind::Part => {
                upstream.answered(1);
                self.part_done(one.to, one.seq, reply);
            }
            Kind::Multi => {
                upstream.answered(1);
                self.multi_answered(at, one.to, reply);
            }
            Kind::Unwanted => upstream.answered(1),
            Kind::Setup if reply[0] == b'-' => {
                let number = upstream.node;
                let node = &self.routes.nodes[usize::from(number)];
                let text = String::from_utf8_lossy(&reply[1..reply.len() - 2]);
                let said = errors::of_setup(&text, node.password.as_deref());
                self.turned_away(number, &said);
                return Err(said);
            }
            Kind::Setup => {
                upstream.answered(1);
                let greeted = upstream
                    .waiting
                    .front()
                    .is_none_or(|next| next.kind != Kind::Setup);
                if greeted {
                    self.welcomed(at);
                }
            }
        }
        Ok(())
    }
}

impl Worker {
    /// A reply whose first part is gone ends with this. An error says why the connection is of no more use.
    pub(crate) fn end_stream(&mut self, at: u32, rest: &[u8]) -> Result<(), String> {
        let Some(upstream) = self.upstreams.get(at) else {
            return Ok(());
        };
        upstream.streaming = false;
        let Some(front) = upstream.waiting.front().copied() else {
            return Err("it sent a reply that nobody waits for".to_owned());
        };
        let passed = std::mem::take(&mut upstream.passed);
        self.seeing.took(upstream, 1, passed + rest.len());
        if upstream.retries > 0 {
            self.overtaken(at, front, 1);
        }
        let Some(upstream) = self.upstreams.get(at) else {
            return Ok(());
        };
        upstream.answered(1);
        match front.kind {
            Kind::Client => self.deliver(front.to, front.seq, 1, rest),
            Kind::Silent => self.deliver(front.to, front.seq, 1, b""),
            Kind::Part => self.part_done(front.to, front.seq, b""),
            Kind::Setup | Kind::Multi | Kind::Unwanted => {}
        }
        Ok(())
    }

    /// Takes the available part of a reply that is not whole: it is passed on if its first part was, and dropped if it is not
    /// wanted.
    fn take_unfinished(&mut self, at: u32, bytes: &[u8]) -> Option<usize> {
        let upstream = self.upstreams.get(at)?;
        if upstream.purpose == Purpose::Tracking {
            // News are taken whole, whatever waits behind them: see `let_reader_go` for how long they may be.
            return None;
        }
        let front = upstream.waiting.front().copied()?;
        let is_unwanted = match front.kind {
            Kind::Silent | Kind::Unwanted => true,
            Kind::Setup | Kind::Multi => false,
            Kind::Client | Kind::Part => self.reader_of(&front).is_none(),
        };
        let upstream = self.upstreams.get(at)?;
        if !upstream.streaming && (!is_unwanted || bytes.len() < PART_BYTES_MIN) {
            return None;
        }
        let len = upstream.framer.take_part();
        upstream.streaming |= len > 0;
        upstream.passed += len;
        if front.kind == Kind::Client {
            self.pass_on(front.to, &bytes[..len]);
            self.slow_down(at, front.to);
            if len == bytes.len() {
                self.begin_pipe(at);
            }
        }
        (len > 0).then_some(len)
    }

    /// The client, if it still is there, for which a reply or a part of one comes.
    fn reader_of(&mut self, waiting: &Waiting) -> Option<Ref> {
        let (me, _) = self.client_of(waiting)?;
        self.clients.find(me).map(|_| me)
    }

    /// More of a reply is kept than a client may be owed: that client is let go, and what is to come for it is dropped. An
    /// error: it is nobody's, and yet there is no way to drop it.
    fn let_reader_go(&mut self, at: u32) -> Result<(), String> {
        let upstream = self.upstreams.get(at);
        if upstream
            .as_ref()
            .is_some_and(|it| it.purpose == Purpose::Tracking)
        {
            return Err("its news are too long".to_owned());
        }
        let Some(front) = upstream.and_then(|upstream| upstream.waiting.front().copied()) else {
            // A message, or what nobody has asked for: it is kept until it is whole.
            return Err("it sends a message that is too long".to_owned());
        };
        match self.reader_of(&front) {
            Some(me) => {
                let limit = self.shared.settings.client_output_bytes_max;
                self.close_for_output(me.at, "output-buffer", limit);
            }
            None => return Err("its reply is too long".to_owned()),
        }
        Ok(())
    }
}

/// Returns true if a reply that begins so has to be looked at.
#[inline]
fn is_special(first: u8) -> bool {
    matches!(first, b'-' | b'>' | b'!')
}

impl Worker {
    /// Returns true if a client's pause is over, by the output it is owed and its unanswered requests.
    pub(crate) fn is_over(&self, pause: Pause, owed: usize, pending: u32) -> bool {
        let settings = &self.shared.settings;
        match pause {
            Pause::No | Pause::Upstream | Pause::Multi | Pause::Time => false,
            Pause::Order => pending == 0,
            Pause::Output => {
                owed < settings.client_output_bytes_high && pending < settings.pipeline_max
            }
        }
    }
}
