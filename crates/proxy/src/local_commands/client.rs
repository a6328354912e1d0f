//! CLIENT: what a client tells of itself, and what is told of clients. Must not know how requests are routed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redline_net::{PeerAddr, clock};
use redline_resp::Args;
use redline_spec::{CommandId, refusal};

use crate::access;
use crate::client::ReplyMode;
use crate::clients::Clients;
use crate::context::Context;
use crate::errors;
use crate::requests::Flow;
use crate::slab::Ref;
use crate::worker::Message;

/// A name that CLIENT SETNAME refuses.
pub const BAD_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";

/// It has called nothing.
pub const NO_COMMAND: u16 = u16::MAX;

/// State of a client that every worker may see.
pub struct Card {
    /// Its number.
    pub id: u64,
    /// Whence it came.
    pub addr: PeerAddr,
    /// Where it came to.
    pub laddr: Option<PeerAddr>,
    /// Its socket's number.
    pub fd: i32,
    /// When it came: seconds since 1970.
    pub since_s: u64,
    /// When it last sent something: seconds of the coarse monotonic clock.
    pub active_s: AtomicU32,
    /// The number of the command that it called last, [`NO_COMMAND`] before the first.
    pub last: AtomicU16,
    /// How many channels, patterns and channels of shards it is subscribed to.
    pub subscriptions: [AtomicU32; 3],
    /// Names, database, protocol and user of the client.
    pub told: Mutex<Told>,
}

/// The kind of client that CLIENT LIST and CLIENT KILL select by TYPE.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Normal,
    Subscriber,
    /// A primary or a replica: there is none.
    Replication,
}

impl Sort {
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

/// Names, database, protocol and user of a client.
#[derive(Clone, Default)]
pub struct Told {
    pub(crate) name: Vec<u8>,
    pub(crate) lib_name: Vec<u8>,
    pub(crate) lib_ver: Vec<u8>,
    pub(crate) db: u16,
    pub(crate) resp3: bool,
    /// The name of its user.
    pub(crate) user: Vec<u8>,
}

impl Card {
    /// Something has come from it at this time of the worker's clock in milliseconds.
    pub fn heard(&self, now_ms: u64) {
        let now_s = (now_ms / 1000) as u32;
        self.active_s.store(now_s, Ordering::Relaxed);
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sort(&self) -> Sort {
        let mut counts = self.subscriptions.iter();
        match counts.any(|count| count.load(Ordering::Relaxed) > 0) {
            true => Sort::Subscriber,
            false => Sort::Normal,
        }
    }

    /// Its user is this one from now on.
    pub fn set_user(&self, name: &[u8]) {
        self.told().user = name.to_vec();
    }

    fn age_s(&self) -> u64 {
        (clock::wall_coarse_ms() / 1000).saturating_sub(self.since_s)
    }

    /// The line of CLIENT LIST.
    fn line(&self) -> String {
        let told = self.told().clone();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let now_s = clock::monotonic_coarse_ms() / 1000;
        let laddr = self.laddr.as_ref().map(ToString::to_string);
        format!(
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} cmd={} user={} resp={} lib-name={} lib-ver={}",
            self.id,
            self.addr,
            laddr.unwrap_or_default(),
            self.fd,
            text(&told.name),
            self.age_s(),
            now_s.saturating_sub(self.active_s.load(Ordering::Relaxed).into()),
            if self.sort() == Sort::Subscriber {
                "P"
            } else {
                "N"
            },
            told.db,
            self.subscriptions[0].load(Ordering::Relaxed),
            self.subscriptions[1].load(Ordering::Relaxed),
            self.subscriptions[2].load(Ordering::Relaxed),
            redline_spec::table::all()
                .get(usize::from(self.last.load(Ordering::Relaxed)))
                .map_or("NULL", |row| row.full_name),
            text(&told.user),
            if told.resp3 { 3 } else { 2 },
            text(&told.lib_name),
            text(&told.lib_ver),
        )
    }
}

/// Returns true if a name has only characters that CLIENT LIST can show.
pub fn is_name(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
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
        CommandId::ClientSetname if !is_name(&args[2]) => ctx.clients.refuse(me, BAD_NAME),
        CommandId::ClientSetname => {
            ctx.clients.set_about(me, |client| {
                client.about.get_or_insert_default().name = args[2].to_vec();
            });
            ctx.clients.status(me, "OK")
        }
        CommandId::ClientSetinfo => set_info(ctx, me, args),
        CommandId::ClientInfo => {
            let line = client.card.line();
            ctx.clients.answer(me, |reply| {
                reply.verbatim("txt", format!("{line}\n").as_bytes())
            })
        }
        CommandId::ClientList => list(ctx, me, args),
        CommandId::ClientKill => kill(ctx, me, args),
        CommandId::ClientReply => set_reply_mode(&mut ctx.clients, me, &args[2]),
        // No client is ever evicted here, and access times are the servers' business as long as this is off.
        CommandId::ClientNoEvict => switch(ctx, me, &args[2], true),
        CommandId::ClientNoTouch => switch(ctx, me, &args[2], false),
        // Nobody is told here what others changed, so that can be switched off, and is.
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
    if !is_name(value) {
        let why = " cannot contain spaces, newlines or special characters.";
        return ctx.clients.refuse(me, &refusal::quoting("ERR ", what, why));
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
    for card in all_cards(ctx) {
        let is_asked_for = ids.as_ref().is_none_or(|ids| ids.contains(&card.id));
        if is_asked_for && sort.is_none_or(|sort| sort == card.sort()) {
            text.push_str(&card.line());
            text.push('\n');
        }
    }
    ctx.clients
        .answer(me, |reply| reply.verbatim("txt", text.as_bytes()))
}

/// All of them, so that nobody who comes or goes waits meanwhile.
fn all_cards(ctx: &Context) -> Vec<Arc<Card>> {
    ctx.shared.cards().values().cloned().collect()
}

/// CLIENT KILL address, or ID, TYPE, ADDR, LADDR, USER, MAXAGE, SKIPME in any order.
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
    let found: BTreeSet<u64> = all_cards(ctx)
        .iter()
        .filter(|card| id.is_none_or(|id| id == card.id))
        .filter(|card| sort.is_none_or(|sort| sort == card.sort()))
        .filter(|card| is(&addr, Some(card.addr.to_string())))
        .filter(|card| is(&laddr, card.laddr.as_ref().map(ToString::to_string)))
        .filter(|card| user.as_ref().is_none_or(|user| card.told().user == *user))
        .filter(|card| card.age_s() >= age_s_min)
        .filter(|card| !(skip_me && card.id == own))
        .map(|card| card.id)
        .collect();
    let others: BTreeSet<u64> = found.iter().copied().filter(|id| *id != own).collect();
    if !others.is_empty() {
        let others = Arc::new(others);
        for (mailbox, _) in &ctx.shared.workers {
            mailbox.send(Message::Kill(Arc::clone(&others)));
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

fn set_reply_mode(clients: &mut Clients, me: Ref, word: &[u8]) -> Flow {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::client;

    #[test]
    fn a_client_that_is_subscribed_is_a_subscriber_in_the_list() {
        let client = client();
        let card = &client.card;
        assert!(card.sort() == Sort::Normal && card.line().contains(" flags=N "));
        card.subscriptions[1].store(1, Ordering::Relaxed);
        assert!(card.sort() == Sort::Subscriber && card.line().contains(" psub=1 "));
        assert!(Sort::of(b"PubSub") == Ok(Sort::Subscriber) && Sort::of(b"x").is_err());
    }

    #[test]
    fn names_have_no_spaces() {
        assert!(is_name(b"a-b") && is_name(b"") && !is_name(b"a b") && !is_name(b"\n"));
    }
}
