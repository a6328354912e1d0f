//! Calls of scripts by their names: they are loaded into servers that may lack them. Must not know connections.

use std::collections::HashSet;

use redline_resp::{Args, Decoded, RequestDecoder, encode_request};
use redline_spec::CommandId;

use crate::context::Context;
use crate::request::forwarded;
use crate::route::{NO_NODE, NodeId};
use crate::shell::Shell;
use crate::slab::Ref;
use crate::upstream::{Kind, Waiting};

/// Returns the call that loads the script of this request into a server, if the script is known.
pub(crate) fn script_of<S: Shell>(ctx: &Context<S>, request: &[u8]) -> Option<Vec<u8>> {
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

/// Loads the script of a call into a server before the call, once for each connection: after a NOSCRIPT, later calls may
/// have been executed already.
pub(crate) fn give_script<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    id: CommandId,
    node: NodeId,
    args: Args<'_>,
) {
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

#[cfg(test)]
mod tests {
    use crate::testing::Proxy;

    #[test]
    fn a_script_whose_call_has_no_number_of_keys_is_not_given_to_servers() {
        let mut proxy = Proxy::of_cluster();
        let name = sha1_smol::Sha1::from("script").digest().to_string();
        let is_known = |proxy: &Proxy| {
            let scripts = &proxy.core.conns.ctx.shared.scripts;
            scripts.find(name.as_bytes()).is_some()
        };
        let me = proxy.client();
        proxy.send(me, &["EVAL script many a"]);
        assert!(!is_known(&proxy));
        let me = proxy.client();
        proxy.send(me, &["EVAL script 1 a"]);
        assert!(is_known(&proxy));
    }
}
