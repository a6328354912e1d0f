//! COMMAND and its subcommands, which servers answer. Must not know connections.

use std::sync::Arc;

use redline_resp::{Args, encode_request};
use redline_spec::CommandId;

use crate::class::Merge;
use crate::command_docs::Listing;
use crate::context::Context;
use crate::requests::Flow;
use crate::route::NO_NODE;
use crate::shell::Shell;
use crate::slab::Ref;
use crate::split;

/// Handles COMMAND and its subcommands.
pub(crate) fn command_table<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    id: CommandId,
    raw: &[u8],
    args: Args<'_>,
) -> Flow {
    let node = ctx.any_node(me).unwrap_or(NO_NODE);
    let shared = Arc::clone(&ctx.shared);
    let names = &shared.names;
    let listing = match id {
        _ if !names.hide_something() => return ctx.forward(me, node, raw),
        CommandId::Command => Listing::Rows,
        CommandId::CommandCount => Listing::Count,
        CommandId::CommandInfo if args.len() == 2 => Listing::Rows,
        CommandId::CommandInfo => Listing::Asked,
        CommandId::CommandDocs => Listing::Docs,
        CommandId::CommandList => Listing::Names,
        CommandId::CommandGetkeys | CommandId::CommandGetkeysandflags => {
            let Some(own) = args.get(2).and_then(|name| names.own_name(name)) else {
                return ctx.clients.refuse(me, "ERR Invalid command specified");
            };
            let mut words: Vec<&[u8]> = args.iter().collect();
            words[2] = &own;
            let mut request = Vec::new();
            encode_request(words, &mut request);
            return ctx.forward(me, node, &request);
        }
        _ => return ctx.forward(me, node, raw),
    };
    let asked: Vec<Vec<u8>> = match listing {
        // No command has an empty name.
        Listing::Asked | Listing::Docs => {
            let asked = args.iter().skip(2);
            asked
                .map(|name| names.own_name(name).unwrap_or_default())
                .collect()
        }
        Listing::Rows | Listing::Count | Listing::Names => Vec::new(),
    };
    let mut request = Vec::new();
    match listing {
        Listing::Rows | Listing::Count => encode_request([b"COMMAND"], &mut request),
        Listing::Names => request.extend_from_slice(raw),
        Listing::Asked | Listing::Docs => {
            let words = args.iter().take(2).chain(asked.iter().map(Vec::as_slice));
            let words: Vec<&[u8]> = words.collect();
            encode_request(words, &mut request);
        }
    }
    split::ask_one(ctx, me, Merge::Commands(listing), node, &request)
}
