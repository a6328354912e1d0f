//! Very long bulks, from socket to socket through a [`Pipe`]: their bytes are never in this process. A request's goes from
//! its client to its private connection, a reply's to the client whose turn it is. Bytes before the bulk take the usual
//! path (see [`streaming`]), and so do those after its line end, and everything if one side uses TLS.
//!
//! The cost of such a bulk is mostly segments and wake-ups of its reader. So the sockets are set to wake the worker for
//! no less than [`PIECE_BYTES`] of it, or the rest: more is moved at once, and the reader stays awake. A slow sender
//! need not wait for that: ten times a second available bytes are moved ([`look_into_pipes`]).
//!
//! Must not know what the bytes mean.

use redline_net::{Interest, Pipe, Read, Stream, clock, error_text};

use crate::Connections;
use crate::Context;
use crate::client::Pause;
use crate::connections::Loss;
use crate::host::client_token;
use crate::leases::Session;
use crate::slab::Ref;
use crate::upstream::Kind;
use crate::{replies, sockets, streaming};

/// Number of missing bytes from which a bulk goes through a pipe.
const BULK_BYTES_MIN: u64 = 128 * 1024;
/// Capacity of a pipe: bytes.
const PIPE_BYTES: usize = 512 * 1024;
/// Smallest number of available bytes that wakes the worker, if as many are missing.
const PIECE_BYTES: u64 = 256 * 1024;
/// Largest number of empty pipes that a worker keeps.
const PIPES_MAX: usize = 16;
/// Largest number of bytes moved in one turn, so that other connections are served.
const TURN_BYTES: usize = 1024 * 1024;

/// The result of a step.
enum Step {
    /// Number of bytes moved.
    Moved(usize),
    /// The receiver takes nothing now.
    Full,
    /// The sender has no more bytes now.
    Dry,
    /// The sender has closed.
    Ended,
    /// The bulk is complete.
    Done,
}

/// Begins a pipe for a long reply of which all available bytes were passed on, if many are missing.
pub(crate) fn begin_pipe(ctx: &mut Context, at: u32) {
    let Some(upstream) = ctx.links.get(at) else {
        return;
    };
    let is_long = upstream.framer.bulk_missing() >= BULK_BYTES_MIN && upstream.streaming;
    let front = upstream.waiting.front();
    let to = front
        .filter(|front| front.kind == Kind::Client)
        .map(|it| it.to);
    let (true, true, Some(to)) = (is_long, upstream.socket.stream.can_splice(), to) else {
        return;
    };
    if ctx
        .clients
        .find(to)
        .is_some_and(|client| client.socket.stream.can_splice())
    {
        upstream.socket.pipe = ctx.shell.pipes.pop().or_else(|| Pipe::new(PIPE_BYTES).ok());
    }
}

/// Returns true if the request's bulk goes through a pipe, which is set up if enough is missing and everything before it
/// was passed on.
fn has_request_pipe(ctx: &mut Context, at: u32) -> bool {
    let Some(client) = ctx.clients.get(at) else {
        return false;
    };
    let Session::Passing(passing) = &mut client.session else {
        return false;
    };
    if client.socket.pipe.is_some() {
        return true;
    }
    let begins = passing.bulk >= BULK_BYTES_MIN
        && client.query.is_empty()
        && client.ahead.is_empty()
        && client.socket.stream.can_splice()
        && ctx
            .links
            .find(passing.lease.place())
            .is_some_and(|upstream| upstream.socket.stream.can_splice());
    if begins {
        client.socket.pipe = ctx.shell.pipes.pop().or_else(|| Pipe::new(PIPE_BYTES).ok());
    }
    client.socket.pipe.is_some()
}

/// Moves available bytes of bulks in pipes, even less than a piece.
pub(crate) fn look_into_pipes(ctx: &mut Context) {
    for at in ctx.links.taken().collect::<Vec<_>>() {
        let Some(upstream) = ctx.links.get(at) else {
            continue;
        };
        let sender = upstream.owner.filter(|_| upstream.passes);
        if upstream.socket.pipe.is_some() && !upstream.rests {
            ctx.links.enqueue(at);
        }
        if let Some(me) = sender
            && let Some(client) = ctx.clients.find(me)
            && matches!(client.session, Session::Passing(_))
            && client.socket.pipe.is_some()
            && client.pause == Pause::No
        {
            client.readable = true;
            ctx.clients.enqueue(me.at);
        }
    }
}

/// Keeps a pipe for a later bulk.
fn give_pipe(ctx: &mut Context, pipe: Pipe) {
    if pipe.held() == 0 && ctx.shell.pipes.len() < PIPES_MAX {
        ctx.shell.pipes.push(pipe);
    }
}

/// Moves available bytes of a reply's bulk in a pipe.
pub(crate) fn pipe_reply(conns: &mut Connections, at: u32) {
    let mut moved = 0;
    while moved < TURN_BYTES {
        let Some(upstream) = conns.ctx.links.get(at) else {
            return;
        };
        let Some(to) = upstream.waiting.front().map(|front| front.to) else {
            return end_pipe(conns, at);
        };
        // Bytes that were passed on before go first.
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
        let Some(pipe) = &mut upstream.socket.pipe else {
            return conns.ctx.links.enqueue(at);
        };
        let missing = upstream.framer.bulk_missing();
        let step = match (client.unsent(), pipe.held(), missing) {
            (0, 0, 0) => Step::Done,
            (0, 0, _) => match pipe.fill(&upstream.socket.stream, at_most(missing)) {
                Ok(Read::Data { bytes, .. }) => {
                    upstream.framer.skip_bulk(bytes as u64);
                    upstream.passed += bytes;
                    upstream.stats.received_bytes.add(bytes as u64);
                    upstream.goes_on(conns.ctx.now_ms);
                    Step::Moved(bytes)
                }
                Ok(Read::WouldBlock) => {
                    wait_for_piece(&mut upstream.socket.stream, missing);
                    Step::Dry
                }
                Ok(Read::Eof) => Step::Ended,
                Err(error) => return conns.lose(at, &error_text(&error), Loss::Broken),
            },
            (0, _, _) => match pipe.empty(&client.socket.stream, !upstream.framer.is_between()) {
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

/// Handles a client that takes nothing now. If others wait behind its reply, the reply is buffered; if not, the
/// connection is not read until the client takes more.
fn rest_for(conns: &mut Connections, at: u32, to: Ref) {
    let place = conns.ctx.links.place(at);
    let (Some(upstream), Some(client)) = (conns.ctx.links.get(at), conns.ctx.clients.find(to))
    else {
        return;
    };
    if !upstream.is_for_one_alone() {
        let Some(mut pipe) = upstream.socket.pipe.take() else {
            return;
        };
        if pipe.read_into(&mut client.out).is_err() {
            return conns.close_client(to.at);
        }
        upstream.socket.pipe = Some(pipe);
        conns.ctx.clients.mark(to.at);
        return end_pipe(conns, at);
    }
    upstream.rests = true;
    client.feeds = place;
    if !client.wants_room {
        client.wants_room = true;
        let token = client_token(to.at);
        // If it fails, the connection is gone, and the next write reports it.
        let _ =
            conns
                .ctx
                .shell
                .poller
                .reregister(&client.socket.stream, token, Interest::ReadWrite);
    }
}

/// Ends the use of the pipe; later bytes are read as usual.
fn end_pipe(conns: &mut Connections, at: u32) {
    let Some(upstream) = conns.ctx.links.get(at) else {
        return;
    };
    wait_for_any(&mut upstream.socket.stream);
    // The end of the reply went through as well.
    let is_whole = upstream.streaming && upstream.framer.is_between();
    if let Some(pipe) = upstream.socket.pipe.take() {
        give_pipe(&mut conns.ctx, pipe);
    }
    if is_whole && let Err(reason) = replies::end_stream(conns, at, b"") {
        return conns.lose(at, &reason, Loss::Broken);
    }
    conns.ctx.links.enqueue(at);
}

/// Moves available bytes of a request's bulk, if it uses a pipe: then nothing is read in the usual way.
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
        let (Some(upstream), Some(pipe)) = (conns.ctx.links.find(place), &mut client.socket.pipe)
        else {
            // Lost: the rest of the request is dropped.
            client.socket.pipe = None;
            wait_for_any(&mut client.socket.stream);
            return false;
        };
        let missing = passing.bulk;
        let more_follows = missing > 0 || passing.arguments > 0;
        let step = match (upstream.unsent(), pipe.held(), missing) {
            (0, 0, 0) => Step::Done,
            (0, 0, _) => match pipe.fill(&client.socket.stream, at_most(missing)) {
                Ok(Read::Data { bytes, .. }) => {
                    passing.bulk -= bytes as u64;
                    conns.ctx.counters.received_bytes += bytes as u64;
                    client.info.heard(conns.ctx.now_ms);
                    Step::Moved(bytes)
                }
                Ok(Read::WouldBlock) => {
                    wait_for_piece(&mut client.socket.stream, missing);
                    Step::Dry
                }
                Ok(Read::Eof) | Err(_) => Step::Ended,
            },
            (0, _, _) => match pipe.empty(&upstream.socket.stream, more_follows) {
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
                wait_for_any(&mut client.socket.stream);
                let Session::Passing(passing) = &mut client.session else {
                    return false;
                };
                let (is_whole, pipe) = (!passing.is_unfinished(), client.socket.pipe.take());
                if let Some(pipe) = pipe {
                    give_pipe(&mut conns.ctx, pipe);
                }
                if is_whole {
                    streaming::pass_large(conns, me, b"");
                    // Its next request may have arrived already.
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
                // Queued bytes enable the event themselves.
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

/// Waits for a piece, since no bytes are available.
fn wait_for_piece(stream: &mut Stream, missing: u64) {
    // If it fails, each segment raises an event.
    let _ = stream.set_receive_low_water_bytes(missing.min(PIECE_BYTES) as u32);
}

/// Waits for any byte again.
fn wait_for_any(stream: &mut Stream) {
    let _ = stream.set_receive_low_water_bytes(1);
}

/// Returns the number of bytes that a pipe takes at once.
fn at_most(missing: u64) -> usize {
    missing.min(PIPE_BYTES as u64) as usize
}
