//! Reading and writing sockets, of clients and of servers. Must not know what the bytes mean.

use crate::ahead;
use crate::context::WAITING_MAX;
use redline_net::tls::ClientTls;
use redline_net::{Interest, Read, clock, error_text};
use std::io;

use crate::client::Pause;
use crate::connections::{Connections, Loss};
use crate::context::Context;
use crate::leases;
use crate::leases::Session;
use crate::replies;
use crate::splice;
use crate::streaming;
use crate::upstream::{Purpose, State, Upstream};
use crate::worker::{CLIENT_READ_BYTES_MAX, FIRST_CONNECTION, UPSTREAM_READ_BYTES_MAX};

/// A client that will send no more, or is to go, may wait so long for what is there already: milliseconds.
const FORSAKEN_MS: u32 = 1_000;
/// Reads of one server in one turn: others have something to say, too.
const READS_MAX: usize = 4;
/// A large request goes on when no more than this waits to be sent.
const PASSING_BYTES: usize = 64 * 1024;
/// Reads what a client sends that has to wait, if it does not read either.
pub(crate) fn read_ahead(conns: &mut Connections, at: u32) {
    let query_bytes_max = conns.ctx.shared.settings.query_bytes_max;
    for _ in 0..ahead::READS_MAX {
        let Some(client) = conns.ctx.clients.get(at) else {
            return;
        };
        let sticks = client.pause != Pause::No && client.wants_room && !client.closing;
        let held = client.query.len() + client.ahead.bytes;
        if !sticks
            || !client.readable
            || held >= query_bytes_max
            || matches!(client.session, Session::Passing(_))
        {
            return;
        }
        let ahead = &mut client.ahead;
        if (ahead.pieces.back()).is_none_or(|last| last.len() >= CLIENT_READ_BYTES_MAX) {
            ahead.pieces.push_back(Vec::new());
        }
        let Some(last) = ahead.pieces.back_mut() else {
            return;
        };
        match client.stream.read_into(last, CLIENT_READ_BYTES_MAX) {
            Ok(Read::Data { drained, bytes }) => {
                ahead.bytes += bytes;
                conns.ctx.counters.received_bytes += bytes as u64;
                client.readable = !drained || client.peer_closed || client.urgent;
                client.card.heard(conns.ctx.now_ms);
            }
            Ok(Read::WouldBlock) => client.readable = false,
            Ok(Read::Eof) | Err(_) => (client.readable, client.eof) = (false, true),
        }
        if ahead.pieces.back().is_some_and(Vec::is_empty) {
            ahead.pieces.pop_back();
        }
    }
    conns.ctx.clients.enqueue(at);
}

/// An attempt has ended, or its TLS goes on.
pub(crate) fn connected(conns: &mut Connections, at: u32) {
    let Some(upstream) = conns.ctx.links.get(at) else {
        return;
    };
    let node = upstream.node;
    let routes = &conns.ctx.routes;
    let pool = usize::from(routes.nodes[usize::from(node)].pool);
    let tls = conns.ctx.tls.get(pool).and_then(Option::as_ref);
    let stands = match upstream.stream.take_error() {
        Ok(None) => secured(upstream, tls),
        Ok(Some(error)) | Err(error) => Err(error),
    };
    match stands {
        Ok(false) => {}
        Ok(true) => {
            upstream.state = State::Greeting;
            let greeted = upstream.greeting == 0;
            conns.ctx.links.mark(at);
            want_room(&mut conns.ctx, at, false);
            conns.ctx.links.enqueue(at);
            if greeted {
                conns.ctx.welcomed(at);
            }
        }
        Err(error) => {
            let reason = error_text(&error);
            conns.ctx.failed(node, &reason);
            conns.lose(at, &reason, Loss::Broken);
        }
    }
}

/// Writes to all servers for which something was queued.
pub(crate) fn write_upstreams(conns: &mut Connections) {
    while let Some(at) = conns.ctx.links.dirty.pop() {
        write_upstream(conns, at);
    }
}

fn write_upstream(conns: &mut Connections, at: u32) {
    let queue_max = conns.ctx.shared.settings.upstream_queue_bytes_max;
    let Some(upstream) = conns.ctx.links.get(at) else {
        return;
    };
    upstream.dirty = false;
    if upstream.state == State::Connecting {
        return;
    }
    let mut full = false;
    if upstream.stream.has_unsent()
        && let Err(error) = upstream.stream.write(&[])
    {
        return conns.lose(at, &error_text(&error), Loss::Broken);
    }
    let end = upstream.may_send();
    while upstream.sent < end && !full {
        match upstream.stream.write(&upstream.out[upstream.sent..end]) {
            Ok(Some(written)) => {
                upstream.stats.sent_bytes.add(written as u64);
                upstream.sent += written;
                if upstream.passes {
                    upstream.goes_on(conns.ctx.now_ms);
                }
                full = upstream.sent < end;
            }
            Ok(None) => full = true,
            Err(error) => return conns.lose(at, &error_text(&error), Loss::Broken),
        }
    }
    // What is encrypted and not taken by the socket.
    full |= upstream.stream.has_unsent();
    upstream.forget_sent();
    let enough = if upstream.passes {
        PASSING_BYTES
    } else {
        queue_max / 2
    };
    if !upstream.held_back.is_empty()
        && upstream.unanswered() <= enough
        && upstream.waiting.len() <= WAITING_MAX / 2
    {
        let held_back = std::mem::take(&mut upstream.held_back);
        conns.ctx.clients.let_go(held_back);
    }
    want_room(&mut conns.ctx, at, full);
}

/// Closes clients that wait for what may never come: those that had closed their side before they began to, and all of them
/// when the end was asked for.
pub(crate) fn check_forsaken(conns: &mut Connections) {
    let (now_ms, drains) = (conns.ctx.now_ms as u32, conns.ctx.drains());
    for at in conns.ctx.links.taken().collect::<Vec<_>>() {
        let Some(upstream) = conns.ctx.links.get(at) else {
            continue;
        };
        let (Some(me), Some(front)) = (upstream.owner, upstream.waiting.front()) else {
            continue;
        };
        let waited_ms = now_ms.wrapping_sub(front.since_ms);
        if !(FORSAKEN_MS..u32::MAX / 2).contains(&waited_ms) {
            continue;
        }
        let Some(client) = conns.ctx.clients.find(me).filter(|it| it.waits_in_vain()) else {
            continue;
        };
        let received = client.look_for_end();
        let is_forsaken = drains || client.peer_closed || client.eof;
        conns.ctx.counters.received_bytes += received as u64;
        if is_forsaken {
            conns.close_client(me.at);
        }
    }
}

/// Reads what a server has sent, and hands it on.
pub(crate) fn read_upstream(conns: &mut Connections, at: u32) {
    let Some(upstream) = conns.ctx.links.get(at) else {
        return;
    };
    upstream.queued = false;
    if upstream.state == State::Connecting || upstream.rests {
        return;
    }
    if upstream.pipe.is_some() {
        return splice::pipe_reply(conns, at);
    }
    let mut bytes = std::mem::take(&mut upstream.partial);
    let own = bytes.is_empty();
    if own {
        bytes = std::mem::take(&mut conns.received);
    }
    let read = read_and_take(conns, at, &mut bytes);
    conns.ctx.settle_marks(at);
    match read {
        Err(reason) => conns.lose(at, &reason, Loss::Broken),
        Ok(more) => keep_unread(conns, at, &mut bytes, own, more),
    }
    if own {
        bytes.clear();
        conns.received = bytes;
    }
}

/// The end of a turn: what is not whole stays with the connection, which comes again if there is more to read. `own`: the
/// bytes are in the worker's buffer.
#[inline]
fn keep_unread(conns: &mut Connections, at: u32, bytes: &mut Vec<u8>, own: bool, more: bool) {
    let links = &mut conns.ctx.links;
    let Some(upstream) = links.slab.get(at) else {
        return;
    };
    let more = more || upstream.pipe.is_some();
    if (!upstream.held_back.is_empty() || upstream.stream.has_unsent()) && !upstream.dirty {
        // Who waits for room in the queue goes on behind the next look at it; and TLS may have had to answer.
        upstream.dirty = true;
        links.dirty.push(at);
    }
    if own && !bytes.is_empty() {
        upstream.partial = bytes.clone();
    } else if !own {
        upstream.partial = std::mem::take(bytes);
        if upstream.partial.is_empty() {
            upstream.partial = Vec::new();
        }
    }
    if !conns.end_retired(at) && more {
        conns.ctx.links.enqueue(at);
    }
}

/// Reads behind what `bytes` has, and takes out what is whole and handed on; whether there may be more to read. An error
/// says why the connection is of no more use.
#[inline]
fn read_and_take(conns: &mut Connections, at: u32, bytes: &mut Vec<u8>) -> Result<bool, String> {
    for _ in 0..READS_MAX {
        let Some(upstream) = conns.ctx.links.get(at) else {
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
                    conns.ctx.cache.heard(upstream.node);
                }
                match replies::take_replies(conns, at, bytes)? {
                    consumed if consumed == bytes.len() => bytes.clear(),
                    consumed => drop(bytes.drain(..consumed)),
                }
                if bytes.len() > conns.ctx.shared.settings.client_output_bytes_max {
                    replies::let_reader_go(conns, at)?;
                }
                // Time-outs count from the last sign of life.
                let now_ms = conns.ctx.now_ms as u32;
                if let Some(upstream) = conns.ctx.links.get(at)
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

pub(crate) fn write_clients(conns: &mut Connections) {
    while let Some(at) = conns.ctx.clients.dirty.pop() {
        write_client(conns, at);
    }
}

pub(crate) fn write_client(conns: &mut Connections, at: u32) {
    let settings = &conns.ctx.shared.settings;
    let Some(client) = conns.ctx.clients.get(at) else {
        return;
    };
    client.dirty = false;
    let mut lost = false;
    let mut full = false;
    if client.stream.has_unsent() {
        lost = client.stream.write(&[]).is_err();
    }
    while client.sent < client.out.len() && !full {
        match client.stream.write(&client.out[client.sent..]) {
            Ok(Some(written)) => {
                conns.ctx.counters.sent_bytes += written as u64;
                full = written < client.unsent();
                client.advance(written);
                if let Some(rates) = &client.rates {
                    rates.take_bytes(written, clock::monotonic_us());
                }
            }
            Ok(None) => full = true,
            Err(_) => {
                lost = true;
                break;
            }
        }
    }
    // What is encrypted and not taken by the socket.
    full |= client.stream.has_unsent();
    let (limit, output_max) = match client.subscribed.is_some() || client.monitors {
        true => (
            "subscriber-output-buffer",
            settings.subscriber_output_bytes_max,
        ),
        false => ("output-buffer", settings.client_output_bytes_max),
    };
    if client.owed() > output_max && !lost {
        return conns.close_for_output(at, limit, output_max);
    }
    let done = client.out.is_empty()
        && !full
        && (client.closing && client.pending() == 0 || client.eof && client.is_forsaken());
    if lost || done {
        return conns.close_client(at);
    }
    if client.wants_room != full {
        client.wants_room = full;
        let interest = if full {
            Interest::ReadWrite
        } else {
            Interest::Read
        };
        let token = FIRST_CONNECTION + 2 * at as usize;
        let _ = conns.ctx.poller.reregister(&client.stream, token, interest);
    }
    let sticks = full && client.readable && client.pause != Pause::No && !client.queued;
    if client.out.is_empty() && client.out.capacity() > 0 {
        let memory = std::mem::take(&mut client.out);
        conns.ctx.clients.keep_output(memory);
    }
    let Some(client) = conns.ctx.clients.get(at) else {
        return;
    };
    let feeds = match client.unsent() < settings.client_output_bytes_high / 2 {
        true => client.feeds.take(),
        false => None,
    };
    let (pause, owed, pending) = (client.pause, client.owed(), client.pending());
    if conns.ctx.is_over(pause, owed, pending)
        && let Some(client) = conns.ctx.clients.get(at)
        && client.go_on()
    {
        leases::calm(conns, at);
        conns.ctx.clients.enqueue(at);
    }
    if let Some(place) = feeds {
        streaming::go_on_feeding(&mut conns.ctx, place);
    }
    if sticks {
        read_ahead(conns, at);
    }
}

/// Asks, or no longer asks, for events of room to write.
pub(crate) fn want_room(ctx: &mut Context, at: u32, wants: bool) {
    let Some(upstream) = ctx.links.get(at) else {
        return;
    };
    if upstream.wants_room == wants {
        return;
    }
    upstream.wants_room = wants;
    let interest = if wants {
        Interest::ReadWrite
    } else {
        Interest::Read
    };
    let token = FIRST_CONNECTION + 2 * at as usize + 1;
    // Where it fails, the connection is gone, and the next read or write says so.
    let _ = ctx.poller.reregister(&upstream.stream, token, interest);
}

/// Carries the TLS of a connection that stands on, if it is to have any: whether that is done.
fn secured(upstream: &mut Upstream, tls: Option<&ClientTls>) -> io::Result<bool> {
    if let Some(tls) = tls
        && !upstream.stream.is_tls()
    {
        upstream.stream.connect_tls(tls)?;
    }
    let done = upstream.stream.handshake();
    done.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "it closed the connection instead of TLS")
        }
        _ => error,
    })
}
