//! Very long bulks, from socket to socket through a [`Pipe`]: their bytes are never in this process. A request's goes from its
//! client to the private connection that it has taken, a reply's to the client whose turn it is. What is before the bulk takes
//! the usual way (see [`streaming`](crate::streaming)), and what is behind its line end; so does everything where one side speaks TLS.
//!
//! What such a bulk costs is mostly segments, and waking whoever reads them. So the sockets are told to wake us for no less
//! than [`PIECE_BYTES`] of it, or what is left: more goes on at once, and the reader stays awake for it. Who sends
//! slowly need not wait for that: ten times a second what is there goes on ([`look_into_pipes`]).
//!
//! Must not know what the bytes mean.

use redline_net::{Interest, Pipe, Read, Stream, clock, error_text};

use crate::client::Pause;
use crate::connections::{Connections, Loss};
use crate::context::Context;
use crate::leases::Session;
use crate::replies;
use crate::slab::Ref;
use crate::sockets;
use crate::streaming;
use crate::upstream::Kind;
use crate::worker::FIRST_CONNECTION;

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

/// A part of a long reply was passed on, up to the last byte that has come. If much is to come, it goes through a pipe.
pub(crate) fn begin_pipe(ctx: &mut Context, at: u32) {
    let Some(upstream) = ctx.links.get(at) else {
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
    if ctx
        .clients
        .find(to)
        .is_some_and(|client| client.stream.can_splice())
    {
        upstream.pipe = ctx.pipes.pop().or_else(|| Pipe::new(PIPE_BYTES).ok());
    }
}

/// Returns true if the request's bulk goes through a pipe; from now on, if so much is to come and all before was passed
/// on.
fn has_request_pipe(ctx: &mut Context, at: u32) -> bool {
    let Some(client) = ctx.clients.get(at) else {
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
        && ctx
            .links
            .find(passing.lease.place())
            .is_some_and(|upstream| upstream.stream.can_splice());
    if begins {
        passing.pipe = ctx.pipes.pop().or_else(|| Pipe::new(PIPE_BYTES).ok());
    }
    passing.pipe.is_some()
}

/// Passes on what has come of bulks that go through pipes, be it less than a piece.
pub(crate) fn look_into_pipes(ctx: &mut Context) {
    for at in ctx.links.taken().collect::<Vec<_>>() {
        let Some(upstream) = ctx.links.get(at) else {
            continue;
        };
        let sender = upstream.owner.filter(|_| upstream.passes);
        if upstream.pipe.is_some() && !upstream.rests {
            ctx.links.enqueue(at);
        }
        if let Some(me) = sender
            && let Some(client) = ctx.clients.find(me)
            && matches!(&client.session, Session::Passing(passing) if passing.pipe.is_some())
            && client.pause == Pause::No
        {
            client.readable = true;
            ctx.clients.enqueue(me.at);
        }
    }
}

/// Keeps a pipe for the next bulk.
fn give_pipe(ctx: &mut Context, pipe: Pipe) {
    if pipe.held() == 0 && ctx.pipes.len() < PIPES_MAX {
        ctx.pipes.push(pipe);
    }
}

/// Passes on what has come of a bulk that goes through a pipe.
pub(crate) fn pipe_reply(conns: &mut Connections, at: u32) {
    let mut moved = 0;
    while moved < TURN_BYTES {
        let Some(upstream) = conns.ctx.links.get(at) else {
            return;
        };
        let Some(to) = upstream.waiting.front().map(|front| front.to) else {
            return end_pipe(conns, at);
        };
        // What was passed on before goes first.
        if conns
            .ctx
            .clients
            .find(to)
            .is_some_and(|client| client.unsent() > 0)
        {
            sockets::write_client(conns, to.at);
        }
        let (Some(upstream), Some(client)) = (conns.ctx.links.get(at), conns.ctx.clients.find(to))
        else {
            return end_pipe(conns, at);
        };
        let Some(pipe) = &mut upstream.pipe else {
            return conns.ctx.links.enqueue(at);
        };
        let missing = upstream.framer.bulk_missing();
        let step = match (client.unsent(), pipe.held(), missing) {
            (0, 0, 0) => Step::Done,
            (0, 0, _) => match pipe.fill(&upstream.stream, at_most(missing)) {
                Ok(Read::Data { bytes, .. }) => {
                    upstream.framer.skip_bulk(bytes as u64);
                    upstream.passed += bytes;
                    upstream.stats.received_bytes.add(bytes as u64);
                    upstream.goes_on(conns.ctx.now_ms);
                    Step::Moved(bytes)
                }
                Ok(Read::WouldBlock) => {
                    wait_for_piece(&mut upstream.stream, missing);
                    Step::Dry
                }
                Ok(Read::Eof) => Step::Ended,
                Err(error) => return conns.lose(at, &error_text(&error), Loss::Broken),
            },
            (0, _, _) => match pipe.empty(&client.stream, !upstream.framer.is_between()) {
                Ok(Some(bytes)) => {
                    conns.ctx.counters.sent_bytes += bytes as u64;
                    if let Some(rates) = &client.rates {
                        rates.take_bytes(bytes, clock::monotonic_us());
                    }
                    Step::Moved(0)
                }
                Ok(None) => Step::Full,
                Err(_) => {
                    conns.close_client(to.at);
                    Step::Moved(0)
                }
            },
            _ => Step::Full,
        };
        match step {
            Step::Moved(bytes) => moved += bytes,
            Step::Dry => return,
            Step::Ended => return conns.lose(at, "it closed the connection", Loss::Broken),
            Step::Done => return end_pipe(conns, at),
            Step::Full => return rest_for(conns, at, to),
        }
    }
    conns.ctx.links.enqueue(at);
}

/// The client takes nothing more now. If others wait behind its reply, what comes is kept here for it; if not, the
/// connection rests until it does.
fn rest_for(conns: &mut Connections, at: u32, to: Ref) {
    let place = conns.ctx.links.place(at);
    let (Some(upstream), Some(client)) = (conns.ctx.links.get(at), conns.ctx.clients.find(to))
    else {
        return;
    };
    if !upstream.is_for_one_alone() {
        let Some(mut pipe) = upstream.pipe.take() else {
            return;
        };
        if pipe.read_into(&mut client.out).is_err() {
            return conns.close_client(to.at);
        }
        upstream.pipe = Some(pipe);
        conns.ctx.clients.mark(to.at);
        return end_pipe(conns, at);
    }
    upstream.rests = true;
    client.feeds = place;
    if !client.wants_room {
        client.wants_room = true;
        let token = FIRST_CONNECTION + 2 * to.at as usize;
        // Where it fails, the connection is gone, and the next write says so.
        let _ = conns
            .ctx
            .poller
            .reregister(&client.stream, token, Interest::ReadWrite);
    }
}

/// Nothing more goes through the pipe; what is behind it is read as usual.
fn end_pipe(conns: &mut Connections, at: u32) {
    let Some(upstream) = conns.ctx.links.get(at) else {
        return;
    };
    wait_for_any(&mut upstream.stream);
    // The end of the reply went through as well.
    let is_whole = upstream.streaming && upstream.framer.is_between();
    if let Some(pipe) = upstream.pipe.take() {
        give_pipe(&mut conns.ctx, pipe);
    }
    if is_whole && let Err(reason) = replies::end_stream(conns, at, b"") {
        return conns.lose(at, &reason, Loss::Broken);
    }
    conns.ctx.links.enqueue(at);
}

/// Passes on what has come of a request's bulk, if it goes through a pipe: then nothing is to be read in the usual way.
pub(crate) fn pipe_request(conns: &mut Connections, at: u32) -> bool {
    if !has_request_pipe(&mut conns.ctx, at) {
        return false;
    }
    let mut moved = 0;
    while moved < TURN_BYTES {
        let Some(client) = conns.ctx.clients.get(at) else {
            return true;
        };
        let Session::Passing(passing) = &mut client.session else {
            return false;
        };
        let place = passing.lease.place();
        let (Some(upstream), Some(pipe)) = (conns.ctx.links.find(place), &mut passing.pipe) else {
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
                    conns.ctx.counters.received_bytes += bytes as u64;
                    client.card.heard(conns.ctx.now_ms);
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
                    upstream.goes_on(conns.ctx.now_ms);
                    Step::Moved(0)
                }
                Ok(None) => Step::Full,
                Err(error) => {
                    conns.lose(place.at, &error_text(&error), Loss::Broken);
                    Step::Moved(0)
                }
            },
            _ => Step::Full,
        };
        let me = conns.ctx.clients.place(at);
        let (Some(me), Some(client)) = (me, conns.ctx.clients.get(at)) else {
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
                conns.ctx.clients.mark(at);
                return true;
            }
            Step::Done => {
                wait_for_any(&mut client.stream);
                let Session::Passing(passing) = &mut client.session else {
                    return false;
                };
                let (is_whole, pipe) = (!passing.is_unfinished(), passing.pipe.take());
                if let Some(pipe) = pipe {
                    give_pipe(&mut conns.ctx, pipe);
                }
                if is_whole {
                    streaming::pass_large(conns, me, b"");
                    // What it asks next may be here already.
                    conns.ctx.clients.enqueue(at);
                }
                return is_whole;
            }
            Step::Full => {
                client.pause = Pause::Upstream;
                let Some(upstream) = conns.ctx.links.find(place) else {
                    return true;
                };
                upstream.held_back.push(me);
                // What is queued asks for room by itself.
                if upstream.unsent() == 0 {
                    sockets::want_room(&mut conns.ctx, place.at, true);
                }
                return true;
            }
        }
    }
    conns.ctx.clients.enqueue(at);
    true
}
