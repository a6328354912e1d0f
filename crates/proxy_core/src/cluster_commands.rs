//! CLUSTER, READONLY, READWRITE and ASKING, if the proxy presents a cluster. Must not know how requests are routed.

use redline_acl::NO_AUTH;
use redline_cluster::{SLOTS, slot_of};
use redline_resp::Args;
use redline_spec::{self as spec, CommandId, refusal};

use crate::client_info::PeerAddr;
use crate::cluster_view::{HELP, is_of_cluster};
use crate::context::Context;
use crate::requests::Flow;
use crate::route::{NO_NODE, Placement};
use crate::shell::Shell;
use crate::slab::Ref;
use crate::{access, errors};

/// Answers a command of a cluster; none: it is no such command, or no cluster is presented.
pub(crate) fn cluster_command<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    raw: &[u8],
    args: Args<'_>,
) -> Option<Flow> {
    let view = ctx.shared.cluster_view.as_ref()?;
    if !is_of_cluster(&args[0]) {
        return None;
    }
    let client = ctx.clients.find(me)?;
    let came_to = match &client.info.laddr {
        Some(PeerAddr::Tcp(address)) => Some(*address),
        _ => None,
    };
    let view = view.seen_at(came_to, ctx.shared.port);
    let restricted = client.restricted;
    if access::is_nobody(&mut ctx.clients, me) {
        return Some(ctx.clients.abort(me, NO_AUTH));
    }
    let name = String::from_utf8_lossy(&args[0]).to_ascii_lowercase();
    if restricted {
        return Some(ctx.clients.refuse(me, &refusal::subscribed(&name)));
    }
    if ctx.clients.is_in_multi(me) {
        let line = format!("ERR '{name}' is not available inside MULTI through the proxy");
        return Some(ctx.clients.abort(me, &line));
    }
    let wrong = refusal::wrong_arity;
    if name != "cluster" {
        // Every proxy serves every slot, for any client.
        return Some(match args.len() {
            1 => ctx.clients.status(me, "OK"),
            _ => ctx.clients.refuse(me, &wrong(&name)),
        });
    }
    let Some(sub) = args.get(1) else {
        return Some(ctx.clients.refuse(me, &wrong("cluster")));
    };
    let sub = String::from_utf8_lossy(sub).to_ascii_lowercase();
    let full = format!("cluster|{sub}");
    if spec::lookup_subcommand(CommandId::Cluster, &args[1]).is_none() {
        let line = refusal::unknown_subcommand("CLUSTER", &args[1]);
        return Some(ctx.clients.refuse(me, &line));
    }
    Some(match (sub.as_str(), args.len()) {
        ("slots", 2) => ctx.clients.answer(me, |reply| view.write_slots(reply)),
        ("shards", 2) => ctx.clients.answer(me, |reply| view.write_shards(reply)),
        ("nodes", 2) => ctx
            .clients
            .answer(me, |reply| reply.verbatim("txt", view.nodes().as_bytes())),
        ("info", 2) => ctx
            .clients
            .answer(me, |reply| reply.verbatim("txt", view.info().as_bytes())),
        ("myid", 2) => ctx
            .clients
            .answer(me, |reply| reply.bulk(view.own_id().as_bytes())),
        ("myshardid", 2) => {
            let id = view.own_shard_id();
            ctx.clients.answer(me, |reply| reply.bulk(id.as_bytes()))
        }
        ("links", 2) => ctx.clients.answer(me, |reply| reply.array(0)),
        ("keyslot", 3) => {
            let slot = slot_of(&args[2]);
            ctx.clients.answer(me, |reply| reply.integer(slot.into()))
        }
        ("replicas" | "slaves" | "count-failure-reports", 3) => {
            let id = &args[2];
            let is_known = view.has(id);
            match (is_known, sub.as_str()) {
                (true, "count-failure-reports") => ctx.clients.answer(me, |reply| reply.integer(0)),
                (true, _) => ctx.clients.answer(me, |reply| reply.array(0)),
                (false, _) => {
                    let line = refusal::quoting("ERR Unknown node ", id, "");
                    ctx.clients.refuse(me, &line)
                }
            }
        }
        ("countkeysinslot", 3) | ("getkeysinslot", 4) => ask_about_slot(ctx, me, &full, raw, args),
        ("help", 2) => ctx.clients.answer(me, |reply| {
            reply.array(HELP.len());
            HELP.iter().for_each(|line| reply.simple(line));
        }),
        (
            "slots"
            | "shards"
            | "nodes"
            | "info"
            | "myid"
            | "myshardid"
            | "links"
            | "keyslot"
            | "replicas"
            | "slaves"
            | "count-failure-reports"
            | "countkeysinslot"
            | "getkeysinslot"
            | "help",
            _,
        ) => ctx.clients.refuse(me, &wrong(&full)),
        _ => {
            let line = errors::refused_name(&full);
            ctx.clients.refuse(me, &line)
        }
    })
}

/// Forwards a question about the keys of a slot to the server that has the slot.
fn ask_about_slot<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    full: &str,
    raw: &[u8],
    args: Args<'_>,
) -> Flow {
    let slot = std::str::from_utf8(&args[2])
        .ok()
        .and_then(|text| text.parse::<i64>().ok());
    let Some(slot) = slot else {
        return ctx.clients.refuse(me, errors::NOT_AN_INTEGER);
    };
    if !(0..SLOTS as i64).contains(&slot) {
        return ctx.clients.refuse(me, "ERR Invalid slot");
    }
    if let Some(line) = access::refusal_of_every_key(&mut ctx.clients, me) {
        return ctx.clients.refuse(me, &line);
    }
    let pool = ctx.home(me);
    if !matches!(pool.placement, Placement::Slots(_)) {
        let line = errors::refused_name(full);
        return ctx.clients.refuse(me, &line);
    }
    match pool.node_of_group(slot as u16) {
        NO_NODE => ctx.clients.refuse(me, errors::CLUSTER_DOWN),
        node => ctx.forward(me, node, raw),
    }
}
