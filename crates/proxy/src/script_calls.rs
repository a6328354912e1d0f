//! Calls of scripts by their names: a server that may lack one is given it. Must not know connections.

use std::collections::HashSet;

use redline_resp::{Args, Decoded, RequestDecoder, encode_request};
use redline_spec::CommandId;

use crate::context::Context;
use crate::request::forwarded;
use crate::route::{NO_NODE, NodeId};
use crate::slab::Ref;
use crate::upstream::{Kind, Waiting};

/// The call that gives a server the script of this request, if it is one that we know.
pub(crate) fn script_of(ctx: &Context, request: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut spans) = (request.to_vec(), Vec::new());
    let decoded = RequestDecoder::new().decode(&mut bytes, &forwarded(), &mut spans);
    if !matches!(decoded, Ok(Decoded::Request { .. })) {
        return None;
    }
    let args = Args::new(&bytes, &spans);
    let is_call = ["EVALSHA", "EVALSHA_RO"]
        .iter()
        .any(|name| args[0].eq_ignore_ascii_case(name.as_bytes()));
    let name = args.get(1).filter(|_| is_call)?;
    Some(load(&ctx.shared.scripts.find(name)?))
}

/// Gives a server the script of a call before the call, once for each connection: behind a NOSCRIPT other calls may have
/// been made already.
pub(crate) fn give_script(ctx: &mut Context, me: Ref, id: CommandId, node: NodeId, args: Args<'_>) {
    if !matches!(id, CommandId::Evalsha | CommandId::EvalshaRo) || node == NO_NODE {
        return;
    }
    let Some(body) = ctx.shared.scripts.find(&args[1]) else {
        return;
    };
    let Some((db, proto)) = ctx.clients.find(me).map(|client| (client.db, client.proto)) else {
        return;
    };
    let Ok(at) = ctx.link(node, db, proto) else {
        return;
    };
    let (epoch, now_ms) = (ctx.shared.scripts.epoch(), ctx.now_ms);
    let Some(upstream) = ctx.links.get(at) else {
        return;
    };
    if upstream.scripts.0 != epoch {
        upstream.scripts = (epoch, HashSet::new());
    }
    if upstream.scripts.1.insert(args[1].to_ascii_lowercase()) {
        let load = load(&body);
        upstream.push_own(
            Waiting::one(Ref::NONE, 0, Kind::Unwanted, &load, now_ms),
            &load,
        );
        ctx.links.mark(at);
    }
}

pub(crate) fn load(body: &[u8]) -> Vec<u8> {
    let mut load = Vec::new();
    encode_request([b"SCRIPT", &b"LOAD"[..], body], &mut load);
    load
}
