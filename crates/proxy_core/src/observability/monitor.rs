//! MONITOR: its clients get every request of every client, as it arrived.
//!
//! Without such clients the cost is one check per turn of a worker. Requests of one turn of a worker go to the others in
//! one message. Secrets are not shown. Must not know how requests are routed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redline_observe::quote::quote;
use redline_observe::secret::{REDACTED, is_secret};
use redline_resp::Args;
use redline_spec::{self as spec, CommandId, Flags};

use crate::client_info::PeerAddr;
use crate::context::Context;
use crate::requests::Flow;
use crate::shell::Shell;
use crate::slab::Ref;

/// Handles MONITOR.
pub(crate) fn monitor<S: Shell>(ctx: &mut Context<S>, me: Ref) -> Flow {
    let Some(client) = ctx.clients.find(me) else {
        return Flow::Done;
    };
    if !client.monitors {
        client.monitors = true;
        ctx.monitoring.push(me);
        ctx.shared
            .observations
            .watchers
            .fetch_add(1, Ordering::Relaxed);
    }
    ctx.clients.status(me, "OK")
}

/// Ends MONITOR of a client, or of one that is gone.
pub(crate) fn monitor_no_more<S: Shell>(ctx: &mut Context<S>, me: Ref) {
    let before = ctx.monitoring.len();
    ctx.monitoring.retain(|place| *place != me);
    let fewer = before - ctx.monitoring.len();
    ctx.shared
        .observations
        .watchers
        .fetch_sub(fewer, Ordering::Relaxed);
}

/// Notes a request for MONITOR. `long`: the length of an argument after those, which is passed through in pieces.
pub(crate) fn show<S: Shell>(
    ctx: &mut Context<S>,
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
    let now_us = ctx.shell.wall_us();
    let (seconds, us) = (now_us / 1_000_000, now_us % 1_000_000);
    let lines = &mut ctx.recorder.lines;
    let head = match &client.info.addr {
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

/// Returns the lines noted for MONITOR, for clients here and at the other workers.
pub fn noted<S: Shell>(ctx: &mut Context<S>) -> Option<Arc<[u8]>> {
    let lines = &mut ctx.recorder.lines;
    (!lines.is_empty()).then(|| std::mem::take(lines).into())
}

/// Sends lines to the MONITOR clients of this worker.
pub fn take_lines<S: Shell>(ctx: &mut Context<S>, lines: &[u8]) {
    for at in 0..ctx.monitoring.len() {
        let me = ctx.monitoring[at];
        if let Some(client) = ctx.clients.find(me) {
            client.tell(lines);
            ctx.clients.mark(me.at);
        }
    }
}
