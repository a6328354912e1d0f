//! Calls that are refused for their destination or their origin. Must not know connections.

use std::sync::atomic::{AtomicU64, Ordering};

use redline_resp::Args;

use crate::context::Context;
use crate::errors;
use crate::requests::Flow;
use crate::route::Placement;
use crate::shell::{Level, Shell};
use crate::slab::Ref;

/// Ends a connection on which a browser posts a form.
pub(crate) fn leave_to_browser<S: Shell>(ctx: &mut Context<S>, me: Ref) -> Flow {
    /// Smallest interval of log lines: milliseconds; attacks may be frequent.
    const PAUSE_MS: u64 = 60_000;
    static NEXT_MS: AtomicU64 = AtomicU64::new(0);
    if ctx.now_ms >= NEXT_MS.load(Ordering::Relaxed)
        && let Some(client) = ctx.clients.find(me)
    {
        NEXT_MS.store(ctx.now_ms + PAUSE_MS, Ordering::Relaxed);
        ctx.shell.log(Level::Warning, || {
            format!(
                "client {} sends HTTP, which may be an attack by way of a browser: closed",
                client.info.addr
            )
        });
    }
    Flow::Close
}

/// Returns why SORT cannot be made: its patterns name keys of other servers than that of its key, which would look like
/// missing keys. (The nodes of a cluster refuse that themselves.)
pub(crate) fn sorts_elsewhere<S: Shell>(
    ctx: &Context<S>,
    me: Ref,
    args: Args<'_>,
) -> Option<&'static str> {
    let group = ctx.routes.group_of(ctx.clients.home_of(me), &args[1]);
    let Placement::Hashed(hashed) = &ctx.routes.pool_of(group).placement else {
        return None;
    };
    let mut at = 2;
    while let Some(word) = args.get(at) {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let line = match (is("BY"), is("GET")) {
            (true, _) => errors::SORT_BY_ELSEWHERE,
            (_, true) => errors::SORT_GET_ELSEWHERE,
            _ => {
                at += if is("LIMIT") {
                    3
                } else if is("STORE") {
                    2
                } else {
                    1
                };
                continue;
            }
        };
        let pattern = args.get(at + 1)?;
        let reads = pattern.contains(&b'*');
        if reads && hashed.shard_of_pattern(pattern) != Some(usize::from(group as u16)) {
            return Some(line);
        }
        at += 2;
    }
    None
}
