//! MONITOR: who watches is shown every request of every client, as it came in.
//!
//! Nobody pays when nobody watches: a worker looks once a turn whether somebody does. Requests of one turn of a worker go to
//! the others in one message. Secrets are not shown. Must not know how requests are routed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redline_net::{PeerAddr, clock};
use redline_observe::quote::quote;
use redline_observe::secret::{REDACTED, is_secret};
use redline_resp::Args;
use redline_spec::{self as spec, CommandId, Flags};

use crate::context::Context;
use crate::requests::Flow;
use crate::slab::Ref;
use crate::worker::Message;

/// MONITOR.
pub(crate) fn monitor(ctx: &mut Context, me: Ref) -> Flow {
    let Some(client) = ctx.clients.find(me) else {
        return Flow::Done;
    };
    if !client.monitors {
        client.monitors = true;
        ctx.monitoring.push(me);
        ctx.shared.seen.watchers.fetch_add(1, Ordering::Relaxed);
    }
    ctx.clients.status(me, "OK")
}

/// A client watches no longer, or is gone.
pub(crate) fn monitor_no_more(ctx: &mut Context, me: Ref) {
    let before = ctx.monitoring.len();
    ctx.monitoring.retain(|place| *place != me);
    let fewer = before - ctx.monitoring.len();
    ctx.shared.seen.watchers.fetch_sub(fewer, Ordering::Relaxed);
}

/// Notes a request for those who watch. `long`: the length of an argument behind those, which goes through in pieces.
pub(crate) fn show(
    ctx: &mut Context,
    me: Ref,
    id: Option<CommandId>,
    args: Args<'_>,
    long: Option<u64>,
) {
    let is_hidden = |id| {
        let flags = spec::gate(id).flags;
        flags.has(Flags::SKIP_MONITOR) || flags.has(Flags::ADMIN)
    };
    if id.is_some_and(is_hidden) {
        return;
    }
    let Some(client) = ctx.clients.find(me) else {
        return;
    };
    let now_us = clock::wall_us();
    let (seconds, us) = (now_us / 1_000_000, now_us % 1_000_000);
    let lines = &mut ctx.seeing.lines;
    let head = match &client.card.addr {
        PeerAddr::Unix(path) => {
            format!("+{seconds}.{us:06} [{} unix:{}]", client.db, path.display())
        }
        addr => format!("+{seconds}.{us:06} [{} {addr}]", client.db),
    };
    lines.extend_from_slice(head.as_bytes());
    for at in 0..args.len() {
        lines.push(b' ');
        match id.is_some_and(|id| is_secret(id, args, at)) {
            true => quote(REDACTED, lines),
            false => quote(args.get(at).unwrap_or_default(), lines),
        }
    }
    if let Some(bytes) = long {
        lines.extend_from_slice(format!(" \"({bytes} bytes)\"").as_bytes());
    }
    lines.extend_from_slice(b"\r\n");
}

/// Hands what was noted to those who watch, here and at the other workers.
pub(crate) fn hand_lines_on(ctx: &mut Context) {
    if ctx.seeing.lines.is_empty() {
        return;
    }
    let lines: Arc<[u8]> = std::mem::take(&mut ctx.seeing.lines).into();
    for (number, (mailbox, _)) in ctx.shared.workers.iter().enumerate() {
        if number != ctx.number {
            mailbox.send(Message::Watched(Arc::clone(&lines)));
        }
    }
    take_lines(ctx, &lines);
}

/// Shows lines to those who watch here.
pub(crate) fn take_lines(ctx: &mut Context, lines: &[u8]) {
    for at in 0..ctx.monitoring.len() {
        let me = ctx.monitoring[at];
        if let Some(client) = ctx.clients.find(me) {
            client.tell(lines);
            ctx.clients.mark(me.at);
        }
    }
}
