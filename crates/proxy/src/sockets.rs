//! Reading and writing sockets, of clients and of servers. Must not know what the bytes mean.

use std::io;

use redline_net::tls::ClientTls;
use redline_net::{Interest, Read, clock, error_text};
use redline_proxy_core::ahead;

use crate::client::Pause;
use crate::connections::Loss;
use crate::host::{client_token, server_token};
use crate::leases::Session;
use crate::upstream::{Purpose, State};
use crate::worker::{CLIENT_READ_BYTES_MAX, UPSTREAM_READ_BYTES_MAX};
use crate::{Client, Connections, Context, Upstream, replies, splice};

/// Largest number of bytes read ahead from a waiting TLS client, to find the end of its input.
const AHEAD_BYTES_MAX: usize = 64 * 1024;
/// Longest wait of a client that has closed its side, or is to be closed, for due replies: milliseconds.
const FORSAKEN_MS: u32 = 1_000;
/// Largest number of reads of one server in one turn, so that others are served.
const READS_MAX: usize = 4;

/// Reads ahead from a client that has to wait and does not read its replies.
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
        match client.socket.stream.read_into(last, CLIENT_READ_BYTES_MAX) {
            Ok(Read::Data { drained, bytes }) => {
                ahead.bytes += bytes;
                conns.ctx.counters.received_bytes += bytes as u64;
                client.readable = !drained || client.peer_closed || client.urgent;
                client.info.heard(conns.ctx.now_ms);
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

/// Handles the end of a connection attempt, or progress of its TLS handshake.
pub(crate) fn connected(conns: &mut Connections, at: u32) {
    let Some(upstream) = conns.ctx.links.get(at) else {
        return;
    };
    let node = upstream.node;
    let routes = &conns.ctx.routes;
    let pool = usize::from(routes.nodes[usize::from(node)].pool);
    let tls = conns.ctx.shell.tls.get(pool).and_then(Option::as_ref);
    let stands = match upstream.socket.stream.take_error() {
        Ok(None) => secured(upstream, tls),
        Ok(Some(error)) | Err(error) => Err(error),
    };
    match stands {
        Ok(false) => {}
        Ok(true) => {
            conns.server_connected(at);
            want_room(&mut conns.ctx, at, false);
        }
        Err(error) => {
            let reason = error_text(&error);
            conns.ctx.failed(node, &reason);
            conns.lose(at, &reason, Loss::Broken);
        }
    }
}

/// Writes to all servers with queued requests.
pub(crate) fn write_upstreams(conns: &mut Connections) {
    while let Some(at) = conns.ctx.links.dirty.pop() {
        write_upstream(conns, at);
    }
}

fn write_upstream(conns: &mut Connections, at: u32) {
    let Some(upstream) = conns.ctx.links.get(at) else {
        return;
    };
    upstream.dirty = false;
    if upstream.state == State::Connecting {
        return;
    }
    let mut full = false;
    if upstream.socket.stream.has_unsent()
        && let Err(error) = upstream.socket.stream.write(&[])
    {
        return conns.lose(at, &error_text(&error), Loss::Broken);
    }
    let end = upstream.may_send();
    while upstream.sent < end && !full {
        match upstream
            .socket
            .stream
            .write(&upstream.out[upstream.sent..end])
        {
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
    // Encrypted bytes that the socket has not taken.
    full |= upstream.socket.stream.has_unsent();
    conns.server_written(at);
    want_room(&mut conns.ctx, at, full);
}

/// Closes clients whose wait may never end: those that had closed their side before it began, and all of them while
/// draining.
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
        let received = look_for_end(client);
        let is_forsaken = drains || client.peer_closed || client.eof;
        conns.ctx.counters.received_bytes += received as u64;
        if is_forsaken {
            conns.close_client(me.at);
        }
    }
}

/// Reads bytes of a server, and handles complete replies.
pub(crate) fn read_upstream(conns: &mut Connections, at: u32) {
    let Some(upstream) = conns.ctx.links.get(at) else {
        return;
    };
    upstream.queued = false;
    if upstream.state == State::Connecting || upstream.rests {
        return;
    }
    if upstream.socket.pipe.is_some() {
        return splice::pipe_reply(conns, at);
    }
    let mut bytes = std::mem::take(&mut upstream.partial);
    let own = bytes.is_empty();
    if own {
        bytes = std::mem::take(&mut conns.ctx.shell.received);
    }
    let read = read_and_take(conns, at, &mut bytes);
    conns.ctx.settle_marks(at);
    match read {
        Err(reason) => conns.lose(at, &reason, Loss::Broken),
        Ok(more) => keep_unread(conns, at, &mut bytes, own, more),
    }
    if own {
        bytes.clear();
        conns.ctx.shell.received = bytes;
    }
}

/// Ends a read: incomplete replies stay with the connection, which is queued again if there is more to read. `own`: the
/// bytes are in the worker's buffer.
#[inline]
fn keep_unread(conns: &mut Connections, at: u32, bytes: &mut Vec<u8>, own: bool, more: bool) {
    let links = &mut conns.ctx.links;
    let Some(upstream) = links.slab.get(at) else {
        return;
    };
    let more = more || upstream.socket.pipe.is_some();
    if (!upstream.held_back.is_empty() || upstream.socket.stream.has_unsent()) && !upstream.dirty {
        // Clients that wait for room in the queue go on after the next check; and TLS may have had to answer.
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

/// Reads to the end of `bytes`, and handles and removes complete replies; returns true if there may be more to read. An
/// error is the reason why the connection has to end.
#[inline]
fn read_and_take(conns: &mut Connections, at: u32, bytes: &mut Vec<u8>) -> Result<bool, String> {
    for _ in 0..READS_MAX {
        let Some(upstream) = conns.ctx.links.get(at) else {
            return Ok(true);
        };
        // The bulk of a pipe is not read here; the bytes after it are.
        if upstream.rests || upstream.socket.pipe.is_some() {
            return Ok(false);
        }
        let must_end = upstream.closed;
        match upstream
            .socket
            .stream
            .read_into(bytes, UPSTREAM_READ_BYTES_MAX)
        {
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
                // Time-outs count from the last received bytes.
                let now_ms = conns.ctx.now_ms as u32;
                if let Some(upstream) = conns.ctx.links.get(at) {
                    if let Some(front) = upstream.waiting.front_mut() {
                        front.since_ms = now_ms;
                    }
                    if std::mem::take(&mut upstream.may_splice) {
                        splice::begin_pipe(&mut conns.ctx, at);
                    }
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
    let Some(client) = conns.ctx.clients.get(at) else {
        return;
    };
    client.dirty = false;
    let mut lost = false;
    let mut full = false;
    if client.socket.stream.has_unsent() {
        lost = client.socket.stream.write(&[]).is_err();
    }
    while client.sent < client.out.len() && !full {
        match client.socket.stream.write(&client.out[client.sent..]) {
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
    // Encrypted bytes that the socket has not taken.
    full |= client.socket.stream.has_unsent();
    if client.wants_room != full && !lost {
        client.wants_room = full;
        let interest = if full {
            Interest::ReadWrite
        } else {
            Interest::Read
        };
        let token = client_token(at);
        let poller = &conns.ctx.shell.poller;
        let _ = poller.reregister(&client.socket.stream, token, interest);
    }
    let sticks = full && client.readable && client.pause != Pause::No && !client.queued;
    if conns.client_written(at, full, lost) && sticks {
        read_ahead(conns, at);
    }
}

/// Enables or disables events of a writable socket.
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
    let token = server_token(at);
    // If it fails, the connection is gone, and the next read or write reports it.
    let _ = ctx
        .shell
        .poller
        .reregister(&upstream.socket.stream, token, interest);
}

/// Advances the TLS handshake of an established connection, if it uses TLS; returns true if it is done.
fn secured(upstream: &mut Upstream, tls: Option<&ClientTls>) -> io::Result<bool> {
    if let Some(tls) = tls
        && !upstream.socket.stream.is_tls()
    {
        upstream.socket.stream.connect_tls(tls)?;
    }
    let done = upstream.socket.stream.handshake();
    done.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "it closed the connection instead of TLS")
        }
        _ => error,
    })
}

/// Reads TLS bytes of a client whose requests wait: the end of its input is a message after them, without an event of
/// its own. Returns the number of request bytes.
fn look_for_end(client: &mut Client) -> usize {
    let mut received = 0;
    while client.socket.stream.is_tls()
        && client.readable
        && !client.eof
        && client.ahead.is_empty()
        && client.query.len() < AHEAD_BYTES_MAX
    {
        match client
            .socket
            .stream
            .read_into(&mut client.query, AHEAD_BYTES_MAX)
        {
            Ok(Read::Data { drained, bytes }) => {
                received += bytes;
                client.readable = !drained || client.peer_closed;
            }
            Ok(Read::WouldBlock) => client.readable = false,
            Ok(Read::Eof) | Err(_) => (client.readable, client.eof) = (false, true),
        }
    }
    received
}
