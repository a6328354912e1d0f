//! From a server's bytes to the clients: where each reply ends, and whose it is. The hot path.
//!
//! Consecutive replies to one client are handed over in one piece. A reply that is not whole stays with the connection; if
//! it is long and its client's turn has come, what is there of it goes out at once.
//!
//! Must not know how requests were routed.

use crate::cached_reads;
use crate::class::NO_COMMAND;
use crate::connections::Connections;
use crate::errors;
use crate::leases;
use crate::redirect;
use crate::splice;
use crate::streaming;
use crate::upstream::{Kind, Purpose, Waiting};

/// A reply of which so much is there, and more to come, is passed on in parts.
const PART_BYTES_MIN: usize = 32 * 1024;

/// A bulk of which so much is to come has its connection for itself: bytes.
const ALONE_BYTES_MIN: u64 = 128 * 1024;

/// Returns true if a reply that begins so has to be looked at.
#[inline]
fn is_special(first: u8) -> bool {
    matches!(first, b'-' | b'>' | b'!')
}

/// Hands on all replies that are whole; how many bytes they were. An error says why the connection is of no more use.
pub(crate) fn take_replies(
    conns: &mut Connections,
    at: u32,
    bytes: &[u8],
) -> Result<usize, String> {
    let mut done = 0;
    while done < bytes.len() {
        let Some(upstream) = conns.ctx.links.get(at) else {
            return Ok(bytes.len());
        };
        let plain = upstream.waiting.front().copied().filter(|front| {
            front.kind == Kind::Client && !upstream.streaming && !is_special(bytes[done])
        });
        let Some(front) = plain else {
            match take_one(conns, at, &bytes[done..])? {
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
                        conns
                            .ctx
                            .cache
                            .answered(marks, count, &bytes[done..done + len]);
                    }
                    done += len;
                    count += 1;
                }
                Ok(None) => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        if count > 0 {
            conns.ctx.seeing.took(upstream, count, done - start);
            if upstream.retries > 0 {
                conns.retries.overtaken(&mut conns.ctx, at, front, count);
                if let Some(upstream) = conns.ctx.links.get(at) {
                    upstream.answered(count);
                }
            } else {
                upstream.answered(count);
            }
            conns
                .ctx
                .clients
                .deliver(front.to, front.seq, count.into(), &bytes[start..done]);
            continue;
        }
        match take_part(conns, at, front, &bytes[done..]) {
            0 => break,
            len => done += len,
        }
    }
    Ok(done)
}

/// Passes on what is there of a long reply whose turn it is.
fn take_part(conns: &mut Connections, at: u32, front: Waiting, bytes: &[u8]) -> usize {
    let turn = conns
        .ctx
        .clients
        .find(front.to)
        .map(|client| client.head == front.seq);
    let Some(upstream) = conns.ctx.links.get(at) else {
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
        conns.ctx.detach(at);
    }
    conns.ctx.clients.pass_on(front.to, &bytes[..len]);
    streaming::slow_down(&mut conns.ctx, at, front.to);
    if len == bytes.len() {
        splice::begin_pipe(&mut conns.ctx, at);
    }
    len
}

/// One reply that is not plain: an error, a push message, one that nobody or the proxy itself waits for, or one whose
/// first part is gone. `None` if it is not whole.
fn take_one(conns: &mut Connections, at: u32, bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(upstream) = conns.ctx.links.get(at) else {
        return Ok(None);
    };
    let len = match upstream.framer.next(bytes) {
        Ok(Some(len)) => len,
        Ok(None) => return Ok(take_unfinished(conns, at, bytes)),
        Err(error) => return Err(error.to_string()),
    };
    let reply = &bytes[..len];
    if upstream.streaming {
        end_stream(conns, at, reply)?;
        return Ok(Some(len));
    }
    if upstream.purpose == Purpose::Subscriptions && upstream.waiting.is_empty() {
        let node = upstream.node;
        conns
            .subscriptions
            .published(&mut conns.ctx, at, node, reply)?;
        return Ok(Some(len));
    }
    if upstream.purpose == Purpose::Tracking && reply[0] == b'>' {
        let node = upstream.node;
        cached_reads::invalidated(&mut conns.ctx, node, reply);
    }
    if reply[0] == b'>' {
        return Ok(Some(len));
    }
    let Some(upstream) = conns.ctx.links.get(at) else {
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
    if wanted && reply[0] == b'-' && redirect::redirected(conns, at, one, reply) {
        if let Some(upstream) = conns.ctx.links.get(at) {
            upstream.stats.responses.add(1);
            upstream.answered(1);
        }
        if front.kind == Kind::Client {
            leases::watch_refused(conns, at, one);
        }
        return Ok(Some(len));
    }
    if wanted
        && conns
            .ctx
            .links
            .get(at)
            .is_some_and(|upstream| upstream.retries > 0)
    {
        conns.retries.overtaken(&mut conns.ctx, at, one, 1);
    }
    let Some(upstream) = conns.ctx.links.get(at) else {
        return Ok(Some(len));
    };
    match wanted {
        true => conns.ctx.seeing.took(upstream, 1, len),
        false => upstream.stats.answered_us(1),
    }
    if wanted && reply[0] == b'-' && front.kind != Kind::Part {
        conns.ctx.seeing.failed(one.command);
    }
    settle_one(conns, at, one, reply)?;
    Ok(Some(len))
}

/// Handles one whole reply, by the kind of request that waits for it. An error says why the connection is of no more use.
fn settle_one(conns: &mut Connections, at: u32, one: Waiting, reply: &[u8]) -> Result<(), String> {
    let Some(upstream) = conns.ctx.links.get(at) else {
        return Ok(());
    };
    match one.kind {
        Kind::Client => {
            upstream.answered(1);
            conns.ctx.clients.deliver(one.to, one.seq, 1, reply);
            if reply[0] == b'-' {
                leases::watch_refused(conns, at, one);
            }
        }
        Kind::Silent => {
            upstream.answered(1);
            conns.ctx.clients.deliver(one.to, one.seq, 1, b"");
        }
        Kind::Part => {
            upstream.answered(1);
            conns.ctx.part_done(one.to, one.seq, reply);
        }
        Kind::Multi => {
            upstream.answered(1);
            leases::multi_answered(conns, at, one.to, reply);
        }
        Kind::Unwanted => upstream.answered(1),
        Kind::Setup if reply[0] == b'-' => {
            let number = upstream.node;
            let node = &conns.ctx.routes.nodes[usize::from(number)];
            let text = String::from_utf8_lossy(&reply[1..reply.len() - 2]);
            let said = errors::of_setup(&text, node.password.as_deref());
            conns.ctx.turned_away(number, &said);
            return Err(said);
        }
        Kind::Setup => {
            upstream.answered(1);
            let greeted = upstream
                .waiting
                .front()
                .is_none_or(|next| next.kind != Kind::Setup);
            if greeted {
                conns.ctx.welcomed(at);
            }
        }
    }
    Ok(())
}

/// A reply whose first part is gone ends with this. An error says why the connection is of no more use.
pub(crate) fn end_stream(conns: &mut Connections, at: u32, rest: &[u8]) -> Result<(), String> {
    let Some(upstream) = conns.ctx.links.get(at) else {
        return Ok(());
    };
    upstream.streaming = false;
    let Some(front) = upstream.waiting.front().copied() else {
        return Err("it sent a reply that nobody waits for".to_owned());
    };
    let passed = std::mem::take(&mut upstream.passed);
    conns.ctx.seeing.took(upstream, 1, passed + rest.len());
    if upstream.retries > 0 {
        conns.retries.overtaken(&mut conns.ctx, at, front, 1);
    }
    let Some(upstream) = conns.ctx.links.get(at) else {
        return Ok(());
    };
    upstream.answered(1);
    match front.kind {
        Kind::Client => conns.ctx.clients.deliver(front.to, front.seq, 1, rest),
        Kind::Silent => conns.ctx.clients.deliver(front.to, front.seq, 1, b""),
        Kind::Part => conns.ctx.part_done(front.to, front.seq, b""),
        Kind::Setup | Kind::Multi | Kind::Unwanted => {}
    }
    Ok(())
}

/// Takes the available part of a reply that is not whole: it is passed on if its first part was, and dropped if it is not
/// wanted.
fn take_unfinished(conns: &mut Connections, at: u32, bytes: &[u8]) -> Option<usize> {
    let upstream = conns.ctx.links.get(at)?;
    if upstream.purpose == Purpose::Tracking {
        // News are taken whole, whatever waits behind them: see `let_reader_go` for how long they may be.
        return None;
    }
    let front = upstream.waiting.front().copied()?;
    let is_unwanted = match front.kind {
        Kind::Silent | Kind::Unwanted => true,
        Kind::Setup | Kind::Multi => false,
        Kind::Client | Kind::Part => conns.ctx.reader_of(&front).is_none(),
    };
    let upstream = conns.ctx.links.get(at)?;
    if !upstream.streaming && (!is_unwanted || bytes.len() < PART_BYTES_MIN) {
        return None;
    }
    let len = upstream.framer.take_part();
    upstream.streaming |= len > 0;
    upstream.passed += len;
    if front.kind == Kind::Client {
        conns.ctx.clients.pass_on(front.to, &bytes[..len]);
        streaming::slow_down(&mut conns.ctx, at, front.to);
        if len == bytes.len() {
            splice::begin_pipe(&mut conns.ctx, at);
        }
    }
    (len > 0).then_some(len)
}

/// More of a reply is kept than a client may be owed: that client is let go, and what is to come for it is dropped. An
/// error: it is nobody's, and yet there is no way to drop it.
pub(crate) fn let_reader_go(conns: &mut Connections, at: u32) -> Result<(), String> {
    let upstream = conns.ctx.links.get(at);
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
    match conns.ctx.reader_of(&front) {
        Some(me) => {
            let limit = conns.ctx.shared.settings.client_output_bytes_max;
            conns.close_for_output(me.at, "output-buffer", limit);
        }
        None => return Err("its reply is too long".to_owned()),
    }
    Ok(())
}
