//! CLIENT: names and settings of a client, and lists of clients. Must not know how requests are routed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use redline_net::clock;
use redline_proxy_core::client_info::ClientInfo;
use redline_proxy_core::clients::Clients;
use redline_resp::Args;
use redline_spec::{CommandId, refusal};

use crate::Context;
use crate::client::ReplyMode;
use crate::host::{Host, Message};
use crate::requests::Flow;
use crate::slab::Ref;
use crate::{access, errors};

/// The kind of client that CLIENT LIST and CLIENT KILL select by TYPE.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Normal,
    Subscriber,
    /// A primary or a replica: there are none.
    Replication,
}

impl Sort {
    fn of_client(info: &ClientInfo) -> Sort {
        match info.is_subscriber() {
            true => Sort::Subscriber,
            false => Sort::Normal,
        }
    }

    fn of(word: &[u8]) -> Result<Sort, Vec<u8>> {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match () {
            () if is("normal") => Ok(Sort::Normal),
            () if is("pubsub") => Ok(Sort::Subscriber),
            () if is("master") || is("slave") || is("replica") => Ok(Sort::Replication),
            () => Err(refusal::quoting("ERR Unknown client type '", word, "'")),
        }
    }
}

pub(crate) fn about_clients(ctx: &mut Context, me: Ref, id: CommandId, args: Args<'_>) -> Flow {
    let Some(client) = ctx.clients.find(me) else {
        return Flow::Done;
    };
    match id {
        CommandId::ClientId => {
            let id = client.id as i64;
            ctx.clients.answer(me, |reply| reply.integer(id))
        }
        CommandId::ClientGetname => {
            let name = client.about.as_ref().map(|about| about.name.clone());
            match name.filter(|name| !name.is_empty()) {
                Some(name) => ctx.clients.answer(me, |reply| reply.bulk(&name)),
                None => ctx.clients.answer(me, |reply| reply.null()),
            }
        }
        CommandId::ClientSetname if !refusal::is_client_name(&args[2]) => {
            ctx.clients.refuse(me, refusal::NO_CLIENT_NAME)
        }
        CommandId::ClientSetname => {
            ctx.clients.set_about(me, |client| {
                client.about.get_or_insert_default().name = args[2].to_vec();
            });
            ctx.clients.status(me, "OK")
        }
        CommandId::ClientSetinfo => set_info(ctx, me, args),
        CommandId::ClientInfo => {
            let line = line(&client.info);
            ctx.clients.answer(me, |reply| {
                reply.verbatim("txt", format!("{line}\n").as_bytes())
            })
        }
        CommandId::ClientList => list(ctx, me, args),
        CommandId::ClientKill => kill(ctx, me, args),
        CommandId::ClientReply => set_reply_mode(&mut ctx.clients, me, &args[2]),
        // No client is ever evicted here, and access times belong to the servers while this is off.
        CommandId::ClientNoEvict => switch(ctx, me, &args[2], true),
        CommandId::ClientNoTouch => switch(ctx, me, &args[2], false),
        // Invalidations are not sent here, so they can be switched off, and are off.
        CommandId::ClientTracking if args.len() == 3 && args[2].eq_ignore_ascii_case(b"OFF") => {
            ctx.clients.status(me, "OK")
        }
        CommandId::ClientGetredir => ctx.clients.answer(me, |reply| reply.integer(-1)),
        CommandId::ClientTrackinginfo => ctx.clients.answer(me, |reply| {
            reply.map(3);
            reply.bulk(b"flags");
            reply.set(1);
            reply.bulk(b"off");
            reply.bulk(b"redirect");
            reply.integer(-1);
            reply.bulk(b"prefixes");
            reply.array(0);
        }),
        _ => ctx.clients.refuse(me, &errors::refused(id)),
    }
}

pub(crate) fn switch(ctx: &mut Context, me: Ref, word: &[u8], may_be_on: bool) -> Flow {
    match word {
        word if word.eq_ignore_ascii_case(b"OFF") => ctx.clients.status(me, "OK"),
        word if word.eq_ignore_ascii_case(b"ON") && may_be_on => ctx.clients.status(me, "OK"),
        word if word.eq_ignore_ascii_case(b"ON") => ctx
            .clients
            .refuse(me, &errors::refused(CommandId::ClientNoTouch)),
        _ => ctx.clients.refuse(me, errors::SYNTAX),
    }
}

fn set_info(ctx: &mut Context, me: Ref, args: Args<'_>) -> Flow {
    let value = &args[3];
    let what = &args[2];
    let is_version = what.eq_ignore_ascii_case(b"LIB-VER");
    if !is_version && !what.eq_ignore_ascii_case(b"LIB-NAME") {
        let line = refusal::quoting("ERR Unrecognized option '", what, "'");
        return ctx.clients.refuse(me, &line);
    }
    if !refusal::is_client_name(value) {
        return ctx.clients.refuse(me, &refusal::no_client_info(what));
    }
    ctx.clients.set_about(me, |client| {
        let about = client.about.get_or_insert_default();
        match is_version {
            true => about.lib_ver = value.to_vec(),
            false => about.lib_name = value.to_vec(),
        }
    });
    ctx.clients.status(me, "OK")
}

pub(crate) fn list(ctx: &mut Context, me: Ref, args: Args<'_>) -> Flow {
    let mut ids: Option<Vec<u64>> = None;
    let mut sort = None;
    if args.len() == 4 && args[2].eq_ignore_ascii_case(b"TYPE") {
        sort = match Sort::of(&args[3]) {
            Ok(sort) => Some(sort),
            Err(line) => return ctx.clients.refuse(me, &line),
        };
    } else if args.len() > 2 {
        let all: Option<Vec<u64>> = args
            .iter()
            .skip(3)
            .map(|text| std::str::from_utf8(text).ok()?.parse().ok())
            .collect();
        match all {
            Some(all) if args[2].eq_ignore_ascii_case(b"ID") && !all.is_empty() => {
                ids = Some(all);
            }
            None if args[2].eq_ignore_ascii_case(b"ID") => {
                return ctx.clients.refuse(me, "ERR Invalid client ID");
            }
            _ => return ctx.clients.refuse(me, errors::SYNTAX),
        }
    }
    let mut text = String::new();
    for info in all_infos(ctx) {
        let is_asked_for = ids.as_ref().is_none_or(|ids| ids.contains(&info.id));
        if is_asked_for && sort.is_none_or(|sort| sort == Sort::of_client(&info)) {
            text.push_str(&line(&info));
            text.push('\n');
        }
    }
    ctx.clients
        .answer(me, |reply| reply.verbatim("txt", text.as_bytes()))
}

/// Returns all of them, without holding the lock that new and closed clients need.
fn all_infos(ctx: &Context) -> Vec<Arc<ClientInfo>> {
    ctx.shell.process.clients().values().cloned().collect()
}

/// Handles CLIENT KILL with an address, or ID, TYPE, ADDR, LADDR, USER, MAXAGE, SKIPME in any order.
fn kill(ctx: &mut Context, me: Ref, args: Args<'_>) -> Flow {
    let Some(own) = ctx.clients.find(me).map(|client| client.id) else {
        return Flow::Done;
    };
    let old_form = args.len() == 3;
    let (mut id, mut addr, mut laddr, mut skip_me) = (None, None, None, !old_form);
    let (mut sort, mut user, mut age_s_min) = (None, None, 0);
    if old_form {
        addr = Some(args[2].to_vec());
    } else if !args.len().is_multiple_of(2) {
        return ctx.clients.refuse(me, errors::SYNTAX);
    }
    for at in (2..args.len()).step_by(2).filter(|_| !old_form) {
        let (word, value) = (&args[at], &args[at + 1]);
        if word.eq_ignore_ascii_case(b"ID") {
            let number = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse::<u64>().ok());
            match number {
                Some(number) if number > 0 => id = Some(number),
                _ => {
                    return ctx
                        .clients
                        .refuse(me, "ERR client-id should be greater than 0");
                }
            }
        } else if word.eq_ignore_ascii_case(b"TYPE") {
            sort = match Sort::of(value) {
                Ok(sort) => Some(sort),
                Err(line) => return ctx.clients.refuse(me, &line),
            };
        } else if word.eq_ignore_ascii_case(b"ADDR") {
            addr = Some(value.to_vec());
        } else if word.eq_ignore_ascii_case(b"LADDR") {
            laddr = Some(value.to_vec());
        } else if word.eq_ignore_ascii_case(b"USER") {
            if !access::has_user(ctx, value) {
                let line = refusal::quoting("ERR No such user '", value, "'");
                return ctx.clients.refuse(me, &line);
            }
            user = Some(value.to_vec());
        } else if word.eq_ignore_ascii_case(b"MAXAGE") {
            let number = std::str::from_utf8(value).ok();
            match number.and_then(|text| text.parse::<i64>().ok()) {
                None => {
                    return ctx
                        .clients
                        .refuse(me, "ERR maxage is not an integer or out of range");
                }
                Some(number) if number > 0 => age_s_min = number.unsigned_abs(),
                _ => {
                    return ctx
                        .clients
                        .refuse(me, "ERR maxage should be greater than 0");
                }
            }
        } else if word.eq_ignore_ascii_case(b"SKIPME") {
            skip_me = match value {
                value if value.eq_ignore_ascii_case(b"yes") => true,
                value if value.eq_ignore_ascii_case(b"no") => false,
                _ => return ctx.clients.refuse(me, errors::SYNTAX),
            };
        } else {
            return ctx.clients.refuse(me, errors::SYNTAX);
        }
    }
    let is = |wanted: &Option<Vec<u8>>, shown: Option<String>| match wanted {
        None => true,
        Some(wanted) => shown.is_some_and(|shown| shown.as_bytes() == wanted),
    };
    let found: BTreeSet<u64> = all_infos(ctx)
        .iter()
        .filter(|info| id.is_none_or(|id| id == info.id))
        .filter(|info| sort.is_none_or(|sort| sort == Sort::of_client(info)))
        .filter(|info| is(&addr, Some(info.addr.to_string())))
        .filter(|info| is(&laddr, info.laddr.as_ref().map(ToString::to_string)))
        .filter(|info| user.as_ref().is_none_or(|user| info.told().user == *user))
        .filter(|info| age_s(info) >= age_s_min)
        .filter(|info| !(skip_me && info.id == own))
        .map(|info| info.id)
        .collect();
    let others: BTreeSet<u64> = found.iter().copied().filter(|id| *id != own).collect();
    if !others.is_empty() {
        let others = Arc::new(others);
        for worker in &ctx.shell.process.workers {
            worker.mailbox.send(Message::Kill(Arc::clone(&others)));
        }
    }
    match (old_form, found.len()) {
        (true, 0) => ctx.clients.refuse(me, "ERR No such client"),
        (true, _) => ctx.clients.status(me, "OK"),
        (false, count) => ctx.clients.answer(me, |reply| reply.integer(count as i64)),
    };
    match found.contains(&own) {
        true => Flow::Close,
        false => Flow::Done,
    }
}

fn set_reply_mode(clients: &mut Clients<Host>, me: Ref, word: &[u8]) -> Flow {
    let reply_mode = match word {
        word if word.eq_ignore_ascii_case(b"ON") => ReplyMode::On,
        word if word.eq_ignore_ascii_case(b"OFF") => ReplyMode::Off,
        word if word.eq_ignore_ascii_case(b"SKIP") => ReplyMode::SkipNext,
        _ => return clients.refuse(me, errors::SYNTAX),
    };
    if let Some(client) = clients.find(me) {
        match (reply_mode, client.reply_mode) {
            (ReplyMode::SkipNext, ReplyMode::Off) => {}
            _ => client.reply_mode = reply_mode,
        }
    }
    match reply_mode {
        ReplyMode::On => clients.status(me, "OK"),
        _ => {
            // Silent from this reply on.
            let Some(client) = clients.find(me) else {
                return Flow::Done;
            };
            let (number, proto) = (client.number(), client.proto);
            clients.answer_as(me, number, proto, ReplyMode::Off, |_| {})
        }
    }
}

fn age_s(info: &ClientInfo) -> u64 {
    (clock::wall_coarse_ms() / 1000).saturating_sub(info.since_s)
}

/// Returns the line of CLIENT LIST.
fn line(info: &ClientInfo) -> String {
    let told = info.told().clone();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let now_s = clock::monotonic_coarse_ms() / 1000;
    let laddr = info.laddr.as_ref().map(ToString::to_string);
    format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} cmd={} user={} resp={} lib-name={} lib-ver={}",
        info.id,
        info.addr,
        laddr.unwrap_or_default(),
        info.fd,
        text(&told.name),
        age_s(info),
        now_s.saturating_sub(info.active_s.load(Ordering::Relaxed).into()),
        if info.is_subscriber() { "P" } else { "N" },
        told.db,
        info.subscriptions[0].load(Ordering::Relaxed),
        info.subscriptions[1].load(Ordering::Relaxed),
        info.subscriptions[2].load(Ordering::Relaxed),
        redline_spec::table::all()
            .get(usize::from(info.last.load(Ordering::Relaxed)))
            .map_or("NULL", |row| row.full_name),
        text(&told.user),
        if told.resp3 { 3 } else { 2 },
        text(&told.lib_name),
        text(&told.lib_ver),
    )
}

#[cfg(test)]
mod tests {
    use redline_proxy_core::client_info::PeerAddr;

    use super::*;

    #[test]
    fn a_client_that_is_subscribed_is_a_subscriber_in_the_list() {
        let addr = PeerAddr::Tcp("127.0.0.1:7".parse().unwrap());
        let info = ClientInfo::new(3, (addr, None), 9, (0, 0));
        assert!(Sort::of_client(&info) == Sort::Normal);
        assert!(line(&info).starts_with("id=3 addr=127.0.0.1:7 laddr= fd=9 "));
        info.subscriptions[1].store(1, Ordering::Relaxed);
        assert!(Sort::of_client(&info) == Sort::Subscriber && line(&info).contains(" psub=1 "));
        assert!(Sort::of(b"PubSub") == Ok(Sort::Subscriber) && Sort::of(b"x").is_err());
    }
}
