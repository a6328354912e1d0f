//! Very long bulks, from socket to socket through a [`Pipe`]: their bytes are never in this process. A request's goes from its
//! client to the private connection that it has taken, a reply's to the client whose turn it is. What is before the bulk takes
//! the usual way (see [`large`](crate::large)), and what is behind its line end; so does everything where one side speaks TLS.
//!
//! What such a bulk costs is mostly segments, and waking whoever reads them. So the sockets are told to wake us for no less
//! than [`PIECE_BYTES`] of it, or what is left: more goes on at once, and the reader stays awake for it. Who sends
//! slowly need not wait for that: ten times a second what is there goes on ([`Worker::look_into_pipes`]).
//!
//! Must not know what the bytes mean.

use redline_net::{Interest, Pipe, Read, Stream, clock, error_text};

use crate::client::Pause;
use crate::link::Loss;
use crate::private::Session;
use crate::slab::Ref;
use crate::upstream::Kind;
use crate::worker::{FIRST_CONNECTION, Worker};

/// A bulk of which so much is to come goes through a pipe.
const BULK_BYTES_MIN: u64 = 128 * 1024;
/// Room in a pipe.
const PIPE_BYTES: usize = 512 * 1024;
/// So much has to have come for us to be woken, if so much is to come.
const PIECE_BYTES: u64 = 256 * 1024;
/// Empty pipes that a worker keeps.
const PIPES_MAX: usize = 16;
/// Bytes that go through in one turn at most: other connections have to be served, too.
const TURN_BYTES: usize = 1024 * 1024;

/// The result of a step.
enum Step {
    /// So much has moved.
    Moved(usize),
    /// The side that reads takes nothing now.
    Full,
    /// The side that writes has sent nothing more.
    Dry,
    /// It will send nothing more.
    Ended,
    /// The bulk is through.
    Done,
}

impl Worker {
    /// A part of a long reply was passed on, up to the last byte that has come. If much is to come, it goes through a pipe.
    pub(crate) fn begin_pipe(&mut self, at: u32) {
        let Some(upstream) = self.upstreams.get(at) else {
            return;
        };
        let is_long = upstream.framer.bulk_missing() >= BULK_BYTES_MIN && upstream.streaming;
        let front = upstream.waiting.front();
        let to = front
            .filter(|front| front.kind == Kind::Client)
            .map(|it| it.to);
        let (true, true, Some(to)) = (is_long, upstream.stream.can_splice(), to) else {
            return;
        };
        if self
            .clients
            .find(to)
            .is_some_and(|client| client.stream.can_splice())
        {
            upstream.pipe = self.pipes.pop().or_else(|| Pipe::new(PIPE_BYTES).ok());
        }
    }

    /// Passes on what has come of a bulk that goes through a pipe.
    pub(crate) fn pipe_reply(&mut self, at: u32) {
        let mut moved = 0;
        while moved < TURN_BYTES {
            let Some(upstream) = self.upstreams.get(at) else {
                return;
            };
            let Some(to) = upstream.waiting.front().map(|front| front.to) else {
                return self.end_pipe(at);
            };
            // What was passed on before goes first.
            if self
                .clients
                .find(to)
                .is_some_and(|client| client.unsent() > 0)
            {
                self.write_client(to.at);
            }
            let (Some(upstream), Some(client)) = (self.upstreams.get(at), self.clients.find(to))
            else {
                return self.end_pipe(at);
            };
            let Some(pipe) = &mut upstream.pipe else {
                return self.enqueue_upstream(at);
            };
            let missing = upstream.framer.bulk_missing();
            let step = match (client.unsent(), pipe.held(), missing) {
                (0, 0, 0) => Step::Done,
                (0, 0, _) => match pipe.fill(&upstream.stream, at_most(missing)) {
                    Ok(Read::Data { bytes, .. }) => {
                        upstream.framer.skip_bulk(bytes as u64);
                        upstream.passed += bytes;
                        upstream.stats.received_bytes.add(bytes as u64);
                        upstream.goes_on(self.now_ms);
                        Step::Moved(bytes)
                    }
                    Ok(Read::WouldBlock) => {
                        wait_for_piece(&mut upstream.stream, missing);
                        Step::Dry
                    }
                    Ok(Read::Eof) => Step::Ended,
                    Err(error) => return self.lose(at, &error_text(&error), Loss::Broken),
                },
                (0, _, _) => match pipe.empty(&client.stream, !upstream.framer.is_between()) {
                    Ok(Some(bytes)) => {
                        self.counters.sent_bytes += bytes as u64;
                        if let Some(rates) = &client.rates {
                            rates.take_bytes(bytes, clock::monotonic_us());
                        }
                        Step::Moved(0)
                    }
                    Ok(None) => Step::Full,
                    Err(_) => {
                        self.close_client(to.at);
                        Step::Moved(0)
                    }
                },
                _ => Step::Full,
            };
            match step {
                Step::Moved(bytes) => moved += bytes,
                Step::Dry => return,
                Step::Ended => return self.lose(at, "it closed the connection", Loss::Broken),
                Step::Done => return self.end_pipe(at),
                Step::Full => return self.rest_for(at, to),
            }
        }
        self.enqueue_upstream(at);
    }

    /// The client takes nothing more now. If others wait behind its reply, what comes is kept here for it; if not, the
    /// connection rests until it does.
    fn rest_for(&mut self, at: u32, to: Ref) {
        let place = self.upstreams.place(at);
        let (Some(upstream), Some(client)) = (self.upstreams.get(at), self.clients.find(to)) else {
            return;
        };
        if !upstream.is_for_one_alone() {
            let Some(mut pipe) = upstream.pipe.take() else {
                return;
            };
            if pipe.read_into(&mut client.out).is_err() {
                return self.close_client(to.at);
            }
            upstream.pipe = Some(pipe);
            self.mark_client(to.at);
            return self.end_pipe(at);
        }
        upstream.rests = true;
        client.feeds = place;
        if !client.wants_room {
            client.wants_room = true;
            let token = FIRST_CONNECTION + 2 * to.at as usize;
            // Where it fails, the connection is gone, and the next write says so.
            let _ = self
                .poller
                .reregister(&client.stream, token, Interest::ReadWrite);
        }
    }

    /// Nothing more goes through the pipe; what is behind it is read as usual.
    fn end_pipe(&mut self, at: u32) {
        let Some(upstream) = self.upstreams.get(at) else {
            return;
        };
        wait_for_any(&mut upstream.stream);
        // The end of the reply went through as well.
        let is_whole = upstream.streaming && upstream.framer.is_between();
        if let Some(pipe) = upstream.pipe.take() {
            self.give_pipe(pipe);
        }
        if is_whole && let Err(reason) = self.end_stream(at, b"") {
            return self.lose(at, &reason, Loss::Broken);
        }
        self.enqueue_upstream(at);
    }

    /// Passes on what has come of a request's bulk, if it goes through a pipe: then nothing is to be read in the usual way.
    pub(crate) fn pipe_request(&mut self, at: u32) -> bool {
        if !self.has_request_pipe(at) {
            return false;
        }
        let mut moved = 0;
        while moved < TURN_BYTES {
            let Some(client) = self.clients.get(at) else {
                return true;
            };
            let Session::Passing(passing) = &mut client.session else {
                return false;
            };
            let place = passing.lease.place();
            let (Some(upstream), Some(pipe)) = (self.upstreams.find(place), &mut passing.pipe)
            else {
                // Lost: the rest of the request goes nowhere.
                passing.pipe = None;
                wait_for_any(&mut client.stream);
                return false;
            };
            let missing = passing.bulk;
            let more_follows = missing > 0 || passing.arguments > 0;
            let step = match (upstream.unsent(), pipe.held(), missing) {
                (0, 0, 0) => Step::Done,
                (0, 0, _) => match pipe.fill(&client.stream, at_most(missing)) {
                    Ok(Read::Data { bytes, .. }) => {
                        passing.bulk -= bytes as u64;
                        self.counters.received_bytes += bytes as u64;
                        client.card.heard(self.now_ms);
                        Step::Moved(bytes)
                    }
                    Ok(Read::WouldBlock) => {
                        wait_for_piece(&mut client.stream, missing);
                        Step::Dry
                    }
                    Ok(Read::Eof) | Err(_) => Step::Ended,
                },
                (0, _, _) => match pipe.empty(&upstream.stream, more_follows) {
                    Ok(Some(bytes)) => {
                        upstream.stats.sent_bytes.add(bytes as u64);
                        upstream.goes_on(self.now_ms);
                        Step::Moved(0)
                    }
                    Ok(None) => Step::Full,
                    Err(error) => {
                        self.lose(place.at, &error_text(&error), Loss::Broken);
                        Step::Moved(0)
                    }
                },
                _ => Step::Full,
            };
            let me = self.clients.place(at);
            let (Some(me), Some(client)) = (me, self.clients.get(at)) else {
                return true;
            };
            match step {
                Step::Moved(bytes) => moved += bytes,
                Step::Dry => {
                    client.readable = false;
                    return true;
                }
                Step::Ended => {
                    (client.readable, client.eof) = (false, true);
                    self.mark_client(at);
                    return true;
                }
                Step::Done => {
                    wait_for_any(&mut client.stream);
                    let Session::Passing(passing) = &mut client.session else {
                        return false;
                    };
                    let (is_whole, pipe) = (!passing.is_unfinished(), passing.pipe.take());
                    if let Some(pipe) = pipe {
                        self.give_pipe(pipe);
                    }
                    if is_whole {
                        self.pass_large(me, b"");
                        // What it asks next may be here already.
                        self.enqueue(at);
                    }
                    return is_whole;
                }
                Step::Full => {
                    client.pause = Pause::Upstream;
                    let Some(upstream) = self.upstreams.find(place) else {
                        return true;
                    };
                    upstream.held_back.push(me);
                    // What is queued asks for room by itself.
                    if upstream.unsent() == 0 {
                        self.want_room(place.at, true);
                    }
                    return true;
                }
            }
        }
        self.enqueue(at);
        true
    }

    /// Returns true if the request's bulk goes through a pipe; from now on, if so much is to come and all before was passed
    /// on.
    fn has_request_pipe(&mut self, at: u32) -> bool {
        let Some(client) = self.clients.get(at) else {
            return false;
        };
        let Session::Passing(passing) = &mut client.session else {
            return false;
        };
        if passing.pipe.is_some() {
            return true;
        }
        let begins = passing.bulk >= BULK_BYTES_MIN
            && client.query.is_empty()
            && client.ahead.is_empty()
            && client.stream.can_splice()
            && self
                .upstreams
                .find(passing.lease.place())
                .is_some_and(|upstream| upstream.stream.can_splice());
        if begins {
            passing.pipe = self.pipes.pop().or_else(|| Pipe::new(PIPE_BYTES).ok());
        }
        passing.pipe.is_some()
    }

    /// Passes on what has come of bulks that go through pipes, be it less than a piece.
    pub(crate) fn look_into_pipes(&mut self) {
        for at in self.upstreams.taken().collect::<Vec<_>>() {
            let Some(upstream) = self.upstreams.get(at) else {
                continue;
            };
            let sender = upstream.owner.filter(|_| upstream.passes);
            if upstream.pipe.is_some() && !upstream.rests {
                self.enqueue_upstream(at);
            }
            if let Some(me) = sender
                && let Some(client) = self.clients.find(me)
                && matches!(&client.session, Session::Passing(passing) if passing.pipe.is_some())
                && client.pause == Pause::No
            {
                client.readable = true;
                self.enqueue(me.at);
            }
        }
    }

    /// Keeps a pipe for the next bulk.
    fn give_pipe(&mut self, pipe: Pipe) {
        if pipe.held() == 0 && self.pipes.len() < PIPES_MAX {
            self.pipes.push(pipe);
        }
    }
}

/// Nothing is there: the next event is that of a piece.
fn wait_for_piece(stream: &mut Stream, missing: u64) {
    // Where it fails, each segment raises an event.
    let _ = stream.set_receive_low_water_bytes(missing.min(PIECE_BYTES) as u32);
}

/// Events are those of any byte again.
fn wait_for_any(stream: &mut Stream) {
    let _ = stream.set_receive_low_water_bytes(1);
}

/// Returns the number of bytes that a pipe is asked to take of this.
fn at_most(missing: u64) -> usize {
    missing.min(PIPE_BYTES as u64) as usize
}
