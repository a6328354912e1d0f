//! From a server's bytes to the clients: the end and the client of each reply. The hot path.
//!
//! Consecutive replies to one client are delivered in one piece. An incomplete reply stays with the connection; if it is
//! long and its client's turn has come, the available part is sent at once.
//!
//! Must not know how requests were routed.

use crate::class::NO_COMMAND;
use crate::connections::Connections;
use crate::shell::Shell;
use crate::upstream::{Kind, Purpose, Waiting};
use crate::{cached_reads, errors, leases, redirect, streaming};

/// Number of bytes from which an incomplete reply is passed on in parts.
const PART_BYTES_MIN: usize = 32 * 1024;
/// Number of missing bytes from which a bulk gets a dedicated connection.
const ALONE_BYTES_MIN: u64 = 128 * 1024;

/// Passes on all complete replies, and returns their bytes. An error is the reason why the connection has to end.
pub fn take_replies<S: Shell>(
    conns: &mut Connections<S>,
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
        // All plain replies that are due to this client.
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
            conns.ctx.recorder.took(upstream, count, done - start);
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

/// Passes on the available part of a long reply whose turn it is.
fn take_part<S: Shell>(conns: &mut Connections<S>, at: u32, front: Waiting, bytes: &[u8]) -> usize {
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
        // New requests need not wait for it.
        conns.ctx.detach(at);
    }
    conns.ctx.clients.pass_on(front.to, &bytes[..len]);
    streaming::slow_down(&mut conns.ctx, at, front.to);
    let_splice(conns, at, len == bytes.len());
    len
}

/// Notes that the rest of a long reply may be spliced from socket to socket, if all that has arrived was passed on.
fn let_splice<S: Shell>(conns: &mut Connections<S>, at: u32, is_all: bool) {
    if let Some(upstream) = conns.ctx.links.get(at) {
        upstream.may_splice = is_all;
    }
}

/// Takes one reply that is not plain: an error, a push message, one for the proxy itself or to be dropped, or one whose
/// first part was passed on. `None` if it is incomplete.
fn take_one<S: Shell>(
    conns: &mut Connections<S>,
    at: u32,
    bytes: &[u8],
) -> Result<Option<usize>, String> {
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
        true => conns.ctx.recorder.took(upstream, 1, len),
        false => upstream.stats.answered_us(1),
    }
    if wanted && reply[0] == b'-' && front.kind != Kind::Part {
        conns.ctx.recorder.failed(one.command);
    }
    settle_one(conns, at, one, reply)?;
    Ok(Some(len))
}

/// Handles one complete reply, by the kind of its request. An error is the reason why the connection has to end.
fn settle_one<S: Shell>(
    conns: &mut Connections<S>,
    at: u32,
    one: Waiting,
    reply: &[u8],
) -> Result<(), String> {
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

/// Ends a reply whose first part was passed on. An error is the reason why the connection has to end.
pub fn end_stream<S: Shell>(
    conns: &mut Connections<S>,
    at: u32,
    rest: &[u8],
) -> Result<(), String> {
    let Some(upstream) = conns.ctx.links.get(at) else {
        return Ok(());
    };
    upstream.streaming = false;
    let Some(front) = upstream.waiting.front().copied() else {
        return Err("it sent a reply that nobody waits for".to_owned());
    };
    let passed = std::mem::take(&mut upstream.passed);
    conns.ctx.recorder.took(upstream, 1, passed + rest.len());
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

/// Takes the available part of an incomplete reply: it is passed on if its first part was, and dropped if it is not
/// wanted.
fn take_unfinished<S: Shell>(conns: &mut Connections<S>, at: u32, bytes: &[u8]) -> Option<usize> {
    let upstream = conns.ctx.links.get(at)?;
    if upstream.purpose == Purpose::Tracking {
        // Push messages are taken whole, in any state: see `let_reader_go` for their largest size.
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
        let_splice(conns, at, len == bytes.len());
    }
    (len > 0).then_some(len)
}

/// Closes the client of a reply that holds more bytes than a client may be owed, and drops the rest of the reply. An
/// error: it has no client, and cannot be dropped.
pub fn let_reader_go<S: Shell>(conns: &mut Connections<S>, at: u32) -> Result<(), String> {
    let upstream = conns.ctx.links.get(at);
    if upstream
        .as_ref()
        .is_some_and(|it| it.purpose == Purpose::Tracking)
    {
        return Err("its news are too long".to_owned());
    }
    let Some(front) = upstream.and_then(|upstream| upstream.waiting.front().copied()) else {
        // A push message, or an unexpected reply: it is kept until it is complete.
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

/// Returns true if a reply with this first byte needs handling.
#[inline]
fn is_special(first: u8) -> bool {
    matches!(first, b'-' | b'>' | b'!')
}

#[cfg(test)]
mod tests {
    use crate::testing::Proxy;

    #[test]
    fn replies_leave_in_the_order_of_the_requests_whichever_server_is_quicker() {
        let mut proxy = Proxy::of_cluster();
        let me = proxy.client();
        proxy.send(me, &["GET a", "GET b", "PING", "GET d"]);
        let (first, second) = (proxy.link(0), proxy.link(1));
        proxy.reply(first, "$1 b ");
        assert_eq!(proxy.got(me), "");
        proxy.reply(second, "$1 a ");
        assert_eq!(proxy.got(me), "a b +PONG");
        proxy.reply(second, "-ERR_no ");
        assert_eq!(proxy.got(me), "-ERR_no");
    }

    #[test]
    fn replies_of_one_server_go_to_the_clients_whose_turn_it_is() {
        let mut proxy = Proxy::of_one();
        let (one, other) = (proxy.client(), proxy.client());
        proxy.send(one, &["GET a", "GET b"]);
        proxy.send(other, &["GET c"]);
        let link = proxy.link(0);
        assert_eq!(proxy.sent(link), "*2 GET a *2 GET b *2 GET c");
        proxy.reply(link, "$1 a $-1 $1 c ");
        assert_eq!(
            (proxy.got(one), proxy.got(other)),
            ("a $-1".into(), "c".into())
        );
    }

    #[test]
    fn a_reply_that_nobody_waits_for_ends_the_connection() {
        let mut proxy = Proxy::of_one();
        let me = proxy.client();
        proxy.send(me, &["GET a"]);
        let link = proxy.link(0);
        proxy.sent(link);
        proxy.reply(link, "+OK ");
        proxy.reply(link, "+OK ");
        assert!(proxy.core.conns.ctx.links.look(link).is_none());
        assert_eq!(proxy.got(me), "+OK");
    }
}
