//! Large values: they are passed through in pieces, and never held as a whole. Must not know what they mean.
//!
//! A request with a long, incomplete argument takes a private connection; its bytes are written there as they arrive,
//! and no more is read from the client than the server takes (`WINDOW_BYTES`). Such a request cannot be sent again.
//!
//! A long reply is passed on in parts (see [`replies`](crate::replies)). Its connection gets no new requests then, and
//! if no request waits behind it, it is read only as fast as the client reads.
//!
//! The bulk of a very long argument or reply need not even be read: the shell may splice it from socket to socket.

use redline_resp::{Args, ProtocolError, Span, decode_bulk_header};
use redline_spec as spec;

use crate::class::Class;
use crate::client::{Pause, ReplyMode};
use crate::connections::Connections;
use crate::context::Context;
use crate::leases::{self, Lease, Session};
use crate::observability::monitor;
use crate::replica_reads;
use crate::route::NO_NODE;
use crate::shell::Shell;
use crate::slab::Ref;
use crate::upstream::{Kind, State};

/// Smallest argument that is passed through in pieces, unless it has arrived already: bytes.
const BULK_BYTES_MIN: u64 = 32 * 1024;
/// Largest number of bytes that wait for the server before the client is no longer read.
const WINDOW_BYTES: usize = 256 * 1024;
/// Largest number of arguments before the long one; with more the request is collected: it is parsed from its start with
/// every read.
const ARGUMENTS_BEFORE_MAX: usize = 64;
/// Largest header line: bytes.
const LINE_BYTES_MAX: usize = 32;

/// Progress of a request that is passed through in pieces.
#[derive(Debug)]
pub struct Passing {
    /// Its connection.
    pub lease: Lease,
    /// Missing bytes of the argument, its line end included.
    pub bulk: u64,
    /// Number of arguments after it.
    pub arguments: u64,
}

impl Passing {
    /// Returns true if the request is incomplete.
    pub fn is_unfinished(&self) -> bool {
        self.bulk > 0 || self.arguments > 0
    }
}

/// The beginning of a request.
struct Beginning {
    /// Number of its arguments.
    arguments: u64,
    /// The complete ones.
    whole: Vec<Span>,
    /// Missing bytes of the next one, its line end included.
    missing: u64,
    /// The length of that one.
    bulk: u64,
}

/// Begins to pass the incomplete request in `bytes` through in pieces, if it is large; returns true if it has taken them all.
pub(crate) fn begin_large<S: Shell>(ctx: &mut Context<S>, me: Ref, bytes: &[u8]) -> bool {
    let Some(beginning) = beginning(bytes) else {
        return false;
    };
    if beginning.bulk < BULK_BYTES_MIN || beginning.bulk > ctx.limits.bulk_bytes_max {
        return false;
    }
    let word = |at: usize| {
        let span: &Span = beginning.whole.get(at)?;
        bytes.get(span.start as usize..(span.start + span.len) as usize)
    };
    let Some(id) = word(0).and_then(|name| spec::resolve(name, word(1)).ok()) else {
        return false;
    };
    let command = ctx.commands[id as usize];
    let is_plain = ctx.clients.find(me).is_some_and(|client| {
        matches!(client.session, Session::Shared)
            && client.reply_mode == ReplyMode::On
            && !client.restricted
            // Every argument of these is checked.
            && !client.is_watched
    });
    let arguments = usize::try_from(beginning.arguments).unwrap_or(usize::MAX);
    let key = word(usize::from(command.key));
    let (Class::Key, true, true, Some(key)) =
        (command.class, is_plain, command.allows(arguments), key)
    else {
        return false;
    };
    let (home, prefixes) = (ctx.clients.home_of(me), &ctx.routes.prefixes);
    let node = ctx.routes.node_of(home, key);
    let stripped = key.len() - prefixes.find(home, key).1.len();
    if node == NO_NODE || ctx.clients.must_wait(me) {
        return false;
    }
    // If none is available, the request is collected, and then answered as others are.
    let Ok(lease) = leases::take_lease(ctx, me, node) else {
        return false;
    };
    replica_reads::note_write(ctx, me, id);
    if let Some(client) = ctx.clients.find(me) {
        client.last = Some(id);
    }
    leases::send_leased(ctx, me, &lease, Kind::Client, 1, b"");
    let as_sent = &key[stripped..];
    if let Some(upstream) = ctx.links.find(lease.place())
        && let Some(marks) = &mut upstream.marks
    {
        ctx.cache.sent_in_pieces(marks, as_sent);
    }
    let passing = Passing {
        lease,
        bulk: beginning.missing,
        arguments: beginning.arguments - beginning.whole.len() as u64 - 1,
    };
    match stripped {
        0 => pass_bytes(ctx, me, &passing.lease, bytes),
        stripped => {
            let key = &beginning.whole[usize::from(command.key)];
            let shorter = without(bytes, key, stripped);
            pass_bytes(ctx, me, &passing.lease, &shorter);
        }
    }
    ctx.recorder.pass_large(key, id, beginning.bulk);
    if ctx.recorder.looks_at_all {
        let args = Args::new(bytes, &beginning.whole);
        monitor::show(ctx, me, Some(id), args, Some(beginning.bulk));
    }
    if let Some(client) = ctx.clients.find(me) {
        client.session = Session::Passing(Box::new(passing));
    }
    true
}

fn pass_bytes<S: Shell>(ctx: &mut Context<S>, me: Ref, lease: &Lease, bytes: &[u8]) {
    let place = lease.place();
    let Some(upstream) = ctx.links.find(place) else {
        // It was lost, and the client got an error; the rest of the request is dropped.
        return;
    };
    upstream.passes = true;
    upstream.out.extend_from_slice(bytes);
    if upstream.unsent() > WINDOW_BYTES {
        upstream.held_back.push(me);
        if let Some(client) = ctx.clients.find(me) {
            client.pause = Pause::Upstream;
        }
    }
    ctx.links.mark(place.at);
}

/// Slows down a long reply whose client has much to read: the connection is dedicated to it from now on, and is not read
/// while no other request waits for it.
pub(crate) fn slow_down<S: Shell>(ctx: &mut Context<S>, at: u32, client: Ref) {
    let high = ctx.shared.settings.client_output_bytes_high;
    let Some(reader) = ctx.clients.find(client) else {
        return;
    };
    if reader.unsent() <= high {
        return;
    }
    let Some(place) = ctx.links.place(at) else {
        return;
    };
    if !ctx.detach(at) {
        return;
    }
    let Some(upstream) = ctx.links.get(at) else {
        return;
    };
    if upstream.is_for_one_alone() {
        upstream.rests = true;
        if let Some(reader) = ctx.clients.find(client) {
            reader.feeds = Some(place);
        }
    } else {
        hold_rest(ctx, at, client);
    }
}

/// Reserves room in the client's output for the rest of a long reply, since others wait behind it: for all of it at
/// once, so that it is not copied at each growth.
fn hold_rest<S: Shell>(ctx: &mut Context<S>, at: u32, client: Ref) {
    let limit = ctx.shared.settings.client_output_bytes_max;
    let (Some(upstream), Some(reader)) = (ctx.links.get(at), ctx.clients.find(client)) else {
        return;
    };
    let rest = usize::try_from(upstream.framer.bulk_missing()).unwrap_or(limit);
    // Bytes beyond the limit end the client.
    let room = rest.min(limit.saturating_sub(reader.unsent()));
    let _ = reader.out.try_reserve_exact(room);
}

/// Reads on from a connection that waited for this client, which has read most of its output.
pub fn go_on_feeding<S: Shell>(ctx: &mut Context<S>, place: Ref) {
    let now_ms = ctx.now_ms;
    if let Some(upstream) = ctx.links.find(place) {
        (upstream.rests, upstream.rested) = (false, None);
        // The delay was the client's.
        upstream.goes_on(now_ms);
        ctx.links.enqueue(place.at);
    }
}

/// Passes on the available bytes of a request that is passed through in pieces; returns their number.
pub fn pass_large<S: Shell>(conns: &mut Connections<S>, me: Ref, bytes: &[u8]) -> usize {
    let Some(client) = conns.ctx.clients.find(me) else {
        return bytes.len();
    };
    let Session::Passing(mut passing) = std::mem::replace(&mut client.session, Session::Shared)
    else {
        return 0;
    };
    // A client without authentication does not get here.
    conns.ctx.limits.unauthenticated = false;
    let mut done = 0;
    let mut broken = None;
    loop {
        if passing.bulk > 0 {
            let step = passing.bulk.min((bytes.len() - done) as u64);
            done += step as usize;
            passing.bulk -= step;
            if passing.bulk > 0 {
                break;
            }
        }
        if passing.arguments == 0 {
            break;
        }
        match decode_bulk_header(&bytes[done..], &conns.ctx.limits) {
            Ok(Some((len, end))) => {
                done += end;
                passing.bulk = len + 2;
                passing.arguments -= 1;
            }
            Ok(None) => break,
            Err(error) => {
                broken = Some(error);
                break;
            }
        }
    }
    if let Some(error) = broken {
        break_off(conns, me, passing.lease, error);
        return bytes.len();
    }
    let is_whole = !passing.is_unfinished();
    pass_bytes(&mut conns.ctx, me, &passing.lease, &bytes[..done]);
    if is_whole {
        let (place, now_ms) = (passing.lease.place(), conns.ctx.now_ms);
        match conns.ctx.links.find(place) {
            // It has answered before the end: its further behaviour is not known.
            Some(upstream) if upstream.waiting.is_empty() => conns.give_back(place, false),
            Some(upstream) => {
                // From now on the proxy waits for the server.
                upstream.goes_on(now_ms);
                conns.ctx.clients.leave(me, passing.lease);
            }
            None => conns.ctx.clients.leave(me, passing.lease),
        }
    } else if let Some(client) = conns.ctx.clients.find(me) {
        client.session = Session::Passing(passing);
    }
    done
}

/// Ends a request in which its client broke the protocol: the start of the next one is not known. The server never gets
/// the rest, so it was not executed.
fn break_off<S: Shell>(conns: &mut Connections<S>, me: Ref, lease: Lease, error: ProtocolError) {
    let place = lease.place();
    let waiting = conns.ctx.links.find(place);
    let waiting = waiting.map(|upstream| std::mem::take(&mut upstream.waiting));
    conns.give_back(place, false);
    for request in waiting.into_iter().flatten() {
        conns.ctx.fail(request, &error.error_line());
    }
    if let Some(client) = conns.ctx.clients.find(me) {
        client.closing = true;
        conns.ctx.clients.mark(me.at);
    }
}

/// Closes clients that have read nothing for too long while a server's connection waits for them.
pub fn check_readers<S: Shell>(conns: &mut Connections<S>) {
    let (now_ms, allowed_ms) = (
        conns.ctx.now_ms,
        conns.ctx.shared.settings.reader_timeout_ms,
    );
    for at in conns.ctx.links.taken().collect::<Vec<_>>() {
        let Some(upstream) = conns.ctx.links.get(at).filter(|upstream| upstream.rests) else {
            continue;
        };
        let reader = upstream.waiting.front().map(|front| front.to);
        let Some((reader, unsent)) =
            reader.and_then(|it| Some((it, conns.ctx.clients.find(it)?.unsent())))
        else {
            continue;
        };
        match upstream.rested {
            Some((since_ms, before)) if before == unsent => {
                if allowed_ms > 0 && now_ms.saturating_sub(since_ms) > allowed_ms {
                    conns.close_for(
                        reader.at,
                        "it has taken nothing of a long reply for timeouts.reader",
                    );
                }
            }
            _ => upstream.rested = Some((now_ms, unsent)),
        }
    }
}

/// Closes clients that have sent nothing of a large request for too long while they hold a server's connection.
pub fn check_senders<S: Shell>(conns: &mut Connections<S>) {
    let (now_ms, allowed_ms) = (
        conns.ctx.now_ms,
        conns.ctx.shared.settings.reader_timeout_ms,
    );
    for at in conns.ctx.links.taken().collect::<Vec<_>>() {
        let upstream = conns.ctx.links.get(at).filter(|upstream| upstream.passes);
        let Some((upstream, me)) = upstream.and_then(|it| Some((&*it, it.owner?))) else {
            continue;
        };
        let since_ms = upstream.waiting.front().map(|front| front.since_ms);
        let is_open = upstream.state == State::Open;
        let is_awaited = conns.ctx.clients.find(me).is_some_and(|client| {
            matches!(client.session, Session::Passing(_)) && client.pause == Pause::No
        });
        match since_ms {
            _ if !is_awaited || !is_open => {}
            // It was answered before its end, so the connection is not usable.
            None => conns.drop_upstream(at),
            Some(since_ms) => {
                let silent_ms = (now_ms as u32).wrapping_sub(since_ms);
                let is_past = silent_ms < u32::MAX / 2;
                if allowed_ms > 0 && is_past && u64::from(silent_ms) > allowed_ms {
                    conns.close_for(
                        me.at,
                        "it has sent nothing of a long request for timeouts.reader",
                    );
                }
            }
        }
    }
}

/// Returns the bytes of a request without the first `count` bytes of this argument.
fn without(bytes: &[u8], argument: &Span, count: usize) -> Vec<u8> {
    let start = argument.start as usize;
    // Between `$` and the argument there are only digits and the line's end.
    let header = bytes[..start].iter().rposition(|byte| *byte == b'$');
    let mut shorter = bytes[..header.unwrap_or(start)].to_vec();
    let length = argument.len as usize - count;
    shorter.extend_from_slice(format!("${length}\r\n").as_bytes());
    shorter.extend_from_slice(&bytes[start + count..]);
    shorter
}

/// Parses the available part of a request; `None` if it has another form, or does not stop inside an argument.
fn beginning(bytes: &[u8]) -> Option<Beginning> {
    let (arguments, mut at) = line(bytes, b'*').ok()??;
    let mut whole = Vec::new();
    while (whole.len() as u64) < arguments && whole.len() <= ARGUMENTS_BEFORE_MAX {
        let (len, end) = line(bytes.get(at..)?, b'$').ok()??;
        let start = at + end;
        let stop = (start as u64).checked_add(len)?.checked_add(2)?;
        if stop > bytes.len() as u64 {
            return Some(Beginning {
                arguments,
                whole,
                missing: stop - bytes.len() as u64,
                bulk: len,
            });
        }
        whole.push(Span {
            start: u32::try_from(start).ok()?,
            len: u32::try_from(len).ok()?,
        });
        at = stop as usize;
    }
    None
}

/// Returns the number in the line at the start and the start of the next one; `Ok(None)` if it is incomplete.
fn line(bytes: &[u8], kind: u8) -> Result<Option<(u64, usize)>, ()> {
    let window = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    match window.first() {
        None => return Ok(None),
        Some(first) if *first != kind => return Err(()),
        Some(_) => {}
    }
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        return match window.len() < LINE_BYTES_MAX {
            true => Ok(None),
            false => Err(()),
        };
    };
    let digits = window[1..end].strip_suffix(b"\r").ok_or(())?;
    let text = std::str::from_utf8(digits).map_err(|_| ())?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(());
    }
    Ok(Some((text.parse().map_err(|_| ())?, end + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_request_tells_what_is_missing() {
        let bytes = b"*4\r\n$5\r\nSETEX\r\n$1\r\nk\r\n$2\r\n10\r\n$100\r\nabc";
        let found = beginning(bytes).unwrap();
        assert_eq!((found.arguments, found.whole.len()), (4, 3));
        assert_eq!((found.bulk, found.missing), (100, 99));
        for other in [
            &b"*1\r\n$4\r\nPING\r\n"[..],
            b"PING\r\n",
            b"*2\r\n$3\r\nGET\r\n$x\r\n",
            b"*",
        ] {
            assert!(beginning(other).is_none());
        }
    }

    #[test]
    fn an_argument_may_lose_its_beginning() {
        let bytes = b"*3\r\n$3\r\nSET\r\n$05\r\nab:cd\r\n$9\r\nxy";
        let key = beginning(bytes).unwrap().whole.remove(1);
        let shorter = &b"*3\r\n$3\r\nSET\r\n$2\r\ncd\r\n$9\r\nxy"[..];
        assert_eq!(without(bytes, &key, 3), shorter);
    }

    #[test]
    fn a_request_of_many_arguments_is_not_looked_through_again_and_again() {
        let many = |before: usize| {
            let mut bytes = format!("*{}\r\n", before + 1).into_bytes();
            (0..before).for_each(|_| bytes.extend_from_slice(b"$1\r\nx\r\n"));
            bytes.extend_from_slice(b"$100000\r\nabc");
            bytes
        };
        assert!(beginning(&many(ARGUMENTS_BEFORE_MAX)).is_some());
        assert!(beginning(&many(ARGUMENTS_BEFORE_MAX + 1)).is_none());
    }
}
