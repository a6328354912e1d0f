//! The connections of a thread that follows its data: one of each client to every node that it has needed.
//!
//! Must not know the meaning of replies, except of those that prepare a connection.

use std::collections::VecDeque;

use redline_net::{Interest, Read, Shutdown, Stream, clock, connect_endpoint};
use redline_resp::{ReplyDecoder, Value, encode_request};

use super::{ASKER, Flight, Follower, Reads};
use crate::load::failure::Failure;
use crate::load::outgoing::Outgoing;
use crate::load::worker::secure;

/// A connection.
pub(super) struct Link {
    node: usize,
    pub(super) client: usize,
    stream: Stream,
    connecting: bool,
    pub(super) since_ns: u64,
    decoder: ReplyDecoder,
    input: Vec<u8>,
    pub(super) out: Outgoing,
    pub(super) awaited: VecDeque<(Awaited, u64)>,
}

impl Link {
    /// Returns the stream of a connection on which no more requests are sent.
    pub(super) fn end(self) -> Stream {
        self.stream
    }
}

/// The request that the next reply of a connection answers.
pub(super) enum Awaited {
    /// A request that prepares the connection.
    Prefix,
    /// ASKING.
    Asking,
    /// The question for the map.
    Map,
    Request(Flight),
}

/// Size of one read: bytes.
const READ_BYTES: usize = 64 * 1024;

impl Follower<'_, '_> {
    /// Returns true for Sentinels, which have no data, and their own users.
    pub(super) fn is_sentinel(&self, node: usize) -> bool {
        let address = self.map.address(node);
        self.manner.source.sentinel_auth(address).is_some()
    }

    /// Returns the link of a client to a node, which may not be established yet. `None` while the node's name is
    /// resolved: before the load begins it waits for that.
    pub(super) fn link(
        &mut self,
        node: usize,
        client: usize,
        now_ns: u64,
    ) -> Result<Option<usize>, Failure> {
        if let Some(&token) = self.found.get(&(node, client)) {
            return Ok(Some(token));
        }
        let address = self.map.address(node);
        let failed = |error| Failure::connect(address, &error);
        let may_block = self.started_ns == 0;
        let Some(found) = self.names.find(address, may_block, now_ns) else {
            return Ok(None);
        };
        let endpoints = found.map_err(|error| Failure::connect_endpoint(address, error))?;
        // With the address and the credentials of before; a discovered one has those of the first.
        let mut places = self.shared.places.iter();
        let place = places.find(|place| endpoints.contains(&place.endpoint));
        let prefix = &place.unwrap_or(&self.shared.places[0]).prefix;
        let endpoint = place.map(|place| &place.endpoint).or(endpoints.first());
        let endpoint =
            endpoint.ok_or_else(|| Failure::Local(format!("{address} has no endpoint")))?;
        let stream = connect_endpoint(endpoint)
            .map_err(|error| Failure::connect_endpoint(address, &error))?;
        stream.set_nodelay(true).map_err(failed)?;
        let token = self.free.last().copied().unwrap_or(self.links.len());
        self.poller
            .register(&stream, token, Interest::ReadWrite)
            .map_err(failed)?;
        let mut link = Link {
            node,
            client,
            stream,
            connecting: true,
            since_ns: now_ns,
            decoder: ReplyDecoder::new(),
            input: Vec::new(),
            out: Outgoing::default(),
            awaited: VecDeque::new(),
        };
        // A Sentinel has no data, and its own users. It uses TLS if the servers do.
        if let Some(auth) = self.manner.source.sentinel_auth(address) {
            if !auth.is_empty() {
                encode_request(auth, link.out.more());
                link.awaited.push_back((Awaited::Prefix, now_ns));
            }
        } else {
            link.out.more().extend_from_slice(&prefix.bytes);
            let mut replies = prefix.replies;
            if self.manner.reads != Reads::Primaries && client != ASKER {
                encode_request(&["READONLY"], link.out.more());
                replies += 1;
            }
            let awaited = (0..replies).map(|_| (Awaited::Prefix, now_ns));
            link.awaited.extend(awaited);
        }
        if self.free.pop().is_none() {
            self.links.push(None);
        }
        self.links[token] = Some(link);
        self.found.insert((node, client), token);
        self.connecting += 1;
        Ok(Some(token))
    }

    /// Handles events. While connections are opened for the first time, a failed one ends the test.
    pub(super) fn take_events(&mut self, opening: bool) -> Result<(), Failure> {
        for index in 0..self.poller.event_count() {
            let event = self.poller.event(index);
            let Some(Some(link)) = self.links.get_mut(event.token) else {
                continue; // the waker, the alarm, or a link that has just gone
            };
            let now_ns = clock::monotonic_ns();
            let result = if link.connecting {
                self.connected(event.token)
            } else {
                if event.writable && (!link.out.is_empty() || link.stream.has_unsent()) {
                    self.dirty.push(event.token);
                }
                if event.readable || event.closed || event.error {
                    self.receive(event.token)
                } else {
                    Ok(())
                }
            };
            match result {
                Err(failure) if opening || !failure.is_of_connection() => return Err(failure),
                Err(failure) => self.lose(event.token, &failure, now_ns),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Checks whether a link is established, its TLS included.
    fn connected(&mut self, token: usize) -> Result<(), Failure> {
        let Some(link) = &mut self.links[token] else {
            return Ok(());
        };
        let address = self.map.address(link.node);
        let failed = |error| Failure::connect(address, &error);
        if let Some(error) = link.stream.take_error().map_err(failed)? {
            return Err(failed(error));
        }
        if let Some(tls) = &self.shared.tls
            && !secure(&mut link.stream, tls)?
        {
            return Ok(());
        }
        link.connecting = false;
        self.connecting -= 1;
        self.poller
            .reregister(&link.stream, token, Interest::Read)
            .map_err(failed)?;
        self.dirty.push(token);
        Ok(())
    }

    /// Sends queued bytes of all links that have some.
    pub(super) fn flush(&mut self, now_ns: u64) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for token in dirty.drain(..) {
            let Some(link) = &mut self.links[token] else {
                continue;
            };
            if link.connecting || link.out.is_empty() && !link.stream.has_unsent() {
                continue;
            }
            match link.stream.write(link.out.rest()) {
                Ok(written) => {
                    link.out.left(written.unwrap_or(0));
                    if !link.out.is_empty() || link.stream.has_unsent() {
                        let interest = Interest::ReadWrite;
                        // A socket that cannot be watched is silent, and times out.
                        let _ = self.poller.reregister(&link.stream, token, interest);
                    }
                }
                Err(error) => self.lose(token, &Failure::Io(error), now_ns),
            }
        }
        // Requests of lost links are sent elsewhere in the next turn.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
    }

    fn receive(&mut self, token: usize) -> Result<(), Failure> {
        loop {
            let Some(link) = &mut self.links[token] else {
                return Ok(());
            };
            let drained = match link.stream.read_into(&mut link.input, READ_BYTES) {
                Ok(Read::Data { drained, .. }) => drained,
                Ok(Read::WouldBlock) => return Ok(()),
                Ok(Read::Eof) => return Err(Failure::Closed),
                Err(error) => return Err(Failure::Io(error)),
            };
            let now_ns = clock::monotonic_ns();
            let (node, mut at) = (link.node, 0);
            let input = std::mem::take(&mut link.input);
            loop {
                let Some(link) = &mut self.links[token] else {
                    return Ok(());
                };
                let decoded = link.decoder.decode(&input[at..])?;
                at += decoded.consumed;
                let Some(value) = decoded.value else { break };
                if !matches!(value, Value::Push(_))
                    && let Some((awaited, _)) = link.awaited.pop_front()
                {
                    self.take_reply(awaited, &value, node, now_ns)?;
                }
            }
            if self.drive.recorder.is_measuring(now_ns) {
                self.drive.recorder.received_bytes += at as u64;
            }
            if let Some(link) = &mut self.links[token] {
                link.input = input;
                link.input.drain(..at);
            }
            if drained {
                return Ok(());
            }
        }
    }

    /// Closes a link. Its requests are sent again.
    pub(super) fn lose(&mut self, token: usize, failure: &Failure, now_ns: u64) {
        let Some(link) = self.links[token].take() else {
            return;
        };
        self.free.push(token);
        self.found.remove(&(link.node, link.client));
        // A failed socket may have left the poller, and may be shut already.
        let _ = self.poller.deregister(&link.stream);
        let _ = link.stream.shutdown(Shutdown::Both);
        if link.connecting {
            self.connecting -= 1;
        }
        self.doubts = true;
        // A question for the map goes to another node.
        if link.client == ASKER {
            return;
        }
        let kind = match failure {
            Failure::Connect { .. } => {
                self.counts.redirects.connects_failed += 1;
                "connect"
            }
            Failure::TimedOut => {
                self.counts.redirects.connections_lost += 1;
                "timeout"
            }
            _ => {
                self.counts.redirects.connections_lost += 1;
                "lost"
            }
        };
        self.note(kind, now_ns);
        for (awaited, _) in link.awaited {
            if let Awaited::Request(flight) = awaited {
                // Unsent requests cannot have been executed.
                self.counts.redirects.resent += u64::from(!link.connecting);
                self.again_later(flight, now_ns);
            }
        }
    }
}
