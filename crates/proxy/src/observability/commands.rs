//! SLOWLOG, LATENCY and PROXY, and the handling of inspected replies. Must not know how these are chosen.

use std::collections::HashMap;

use redline_net::clock;
use redline_observe::latency::{graph, report, write_history, write_latest};
use redline_observe::slowlog::{self, Entry};
use redline_proxy_core::local_commands::must_stand_alone;
use redline_resp::Args;
use redline_spec::{self as spec, CommandId, Flags, refusal};

use super::keys::{Large, Rate};
use super::record::Looked;
use super::stats::lock;
use crate::Client;
use crate::Context;
use crate::requests::Flow;
use crate::slab::Ref;
use crate::upstream::Kind;
use crate::{access, errors};

/// Number of entries that SLOWLOG GET and PROXY show if the call gives none.
const SHOWN: usize = 10;
const ADVICE: &[(&str, &str)] = &[(
    "command",
    "SLOWLOG GET names the calls. INFO Servers shows which server answers slowly, and SLOWLOG there what keeps it.",
)];

/// Reports the replies that were inspected in this turn.
pub(crate) fn tell_what_was_seen(ctx: &mut Context) {
    for looked in std::mem::take(&mut ctx.recorder.looked) {
        let name = CommandId::ALL
            .get(usize::from(looked.command))
            .map_or("?", |id| spec::row(*id).full_name);
        if looked.is_slow {
            tell_slow(ctx, looked);
            continue;
        }
        let (client, _) = who(ctx, &looked);
        let key = looked.key.as_deref().map(shown).unwrap_or_default();
        let server = &ctx.routes.nodes[usize::from(looked.node)].name;
        super::log::request(&format!(
            "client {client} {name} {key} server {server} elapsed {} us",
            looked.us
        ));
    }
}

fn tell_slow(ctx: &mut Context, looked: Looked) {
    let at_s = (clock::wall_coarse_ms() / 1000) as i64;
    let (us, tuning) = (u64::from(looked.us), &ctx.recorder.tuning);
    let threshold_ms = tuning.latency_threshold_ms;
    if threshold_ms > 0 && us >= threshold_ms.saturating_mul(1000) {
        let events = &ctx.shared.observations.events;
        events.add("command", at_s, us / 1000);
    }
    let is_slow = u64::try_from(tuning.slower_than_us).is_ok_and(|from_us| us >= from_us);
    let id = CommandId::ALL.get(usize::from(looked.command));
    let is_skipped = id.is_some_and(|id| spec::gate(*id).flags.has(Flags::SKIP_SLOWLOG));
    if !is_slow || is_skipped {
        return;
    }
    if looked.args.is_empty() {
        ctx.counters.slow_passed_over += 1;
        return;
    }
    let entries_max = tuning.slow_max;
    let (addr, name) = who(ctx, &looked);
    let entry = Entry {
        id: 0,
        at_s,
        value: us,
        args: looked.args,
        addr,
        name,
    };
    ctx.shared.observations.slow.push(entries_max, entry);
}

/// Returns the address and the name of the client; empty if it is gone.
fn who(ctx: &mut Context, looked: &Looked) -> (String, Vec<u8>) {
    let to = match looked.waiting.kind {
        Kind::Part => ctx
            .gathers
            .find(looked.waiting.to)
            .map(|gather| gather.client),
        _ => Some(looked.waiting.to),
    };
    let client: Option<&mut Client> = to.and_then(|to| ctx.clients.find(to));
    let Some(client) = client else {
        return Default::default();
    };
    let name = client.about.as_ref().map(|about| about.name.clone());
    (client.info.addr.to_string(), name.unwrap_or_default())
}

/// Handles SLOWLOG.
pub(crate) fn slowlog(ctx: &mut Context, me: Ref, id: CommandId, args: Args<'_>) -> Flow {
    match id {
        CommandId::SlowlogGet if args.len() > 3 => ctx
            .clients
            .refuse(me, &refusal::wrong_subcommand_arity("SLOWLOG", &args[1])),
        CommandId::SlowlogGet => {
            let count = match args.get(2) {
                None => Some(SHOWN),
                Some(word) => count_of(word),
            };
            let Some(count) = count else {
                let line = "ERR count should be greater than or equal to -1";
                return ctx.clients.refuse(me, line);
            };
            let entries = ctx.shared.observations.slow.newest(count);
            ctx.clients
                .answer(me, |reply| slowlog::write(&entries, reply))
        }
        CommandId::SlowlogLen => {
            let len = ctx.shared.observations.slow.len();
            ctx.clients.answer(me, |reply| reply.integer(len as i64))
        }
        CommandId::SlowlogReset => {
            ctx.shared.observations.slow.clear();
            ctx.clients.status(me, "OK")
        }
        _ => help(ctx, me, CommandId::Slowlog),
    }
}

/// Handles LATENCY.
pub(crate) fn latency(ctx: &mut Context, me: Ref, id: CommandId, args: Args<'_>) -> Flow {
    let events = &ctx.shared.observations.events;
    match id {
        CommandId::LatencyLatest => {
            let all = events.all();
            ctx.clients.answer(me, |reply| write_latest(&all, reply))
        }
        CommandId::LatencyHistory => {
            let found = events.find(&args[2]);
            let series = found.map(|(_, series)| series).unwrap_or_default();
            ctx.clients
                .answer(me, |reply| write_history(&series, reply))
        }
        CommandId::LatencyReset => {
            let names = args.from(2);
            let named = |name: &str| names.iter().any(|word| word == name.as_bytes());
            let count = events.reset(|name| names.is_empty() || named(name));
            ctx.clients.answer(me, |reply| reply.integer(count as i64))
        }
        CommandId::LatencyGraph => match events.find(&args[2]) {
            Some((name, series)) => {
                let text = graph(name, &series, (clock::wall_coarse_ms() / 1000) as i64);
                ctx.clients
                    .answer(me, |reply| reply.verbatim("txt", text.as_bytes()))
            }
            None => {
                let before = "ERR No samples available for event '";
                ctx.clients
                    .refuse(me, &refusal::quoting(before, &args[2], "'"))
            }
        },
        CommandId::LatencyDoctor => {
            let all = events.all();
            let threshold_ms = ctx.recorder.tuning.latency_threshold_ms;
            let text = match (all.is_empty(), threshold_ms) {
                (true, 0) => "The latency monitor is off. CONFIG SET latency-monitor-threshold <milliseconds> switches it on.\n".to_owned(),
                (true, ms) => format!("No reply has taken {ms} ms or longer since the latency monitor was switched on or reset.\n"),
                (false, _) => report(&all, ADVICE),
            };
            ctx.clients
                .answer(me, |reply| reply.verbatim("txt", text.as_bytes()))
        }
        CommandId::LatencyHistogram => histogram(ctx, me, args),
        _ => help(ctx, me, CommandId::Latency),
    }
}

pub(crate) fn histogram(ctx: &mut Context, me: Ref, args: Args<'_>) -> Flow {
    let totals = ctx
        .shared
        .observations
        .totals(&ctx.routes, super::log::missed());
    let is_wanted = |name: &str| {
        args.len() == 2
            || args.iter().skip(2).any(|word| {
                let container = name.split('|').next().unwrap_or(name);
                word.eq_ignore_ascii_case(name.as_bytes())
                    || word.eq_ignore_ascii_case(container.as_bytes())
            })
    };
    let found: Vec<_> = super::info::named(&totals)
        .filter(|(name, command)| is_wanted(name) && command.latency.count() > 0)
        .collect();
    ctx.clients.answer(me, |reply| {
        reply.map(found.len());
        for (name, command) in found {
            reply.bulk(name.as_bytes());
            reply.map(2);
            reply.bulk(b"calls");
            reply.integer(command.latency.count() as i64);
            reply.bulk(b"histogram_usec");
            let pairs = command.latency.doubling();
            reply.map(pairs.len());
            for (below_ns, count) in pairs {
                reply.integer((below_ns / 1000) as i64);
                reply.integer(count as i64);
            }
        }
    })
}

pub(crate) fn help(ctx: &mut Context, me: Ref, container: CommandId) -> Flow {
    lines(ctx, me, &spec::table::help_lines(container))
}

pub(crate) fn lines(ctx: &mut Context, me: Ref, lines: &[String]) -> Flow {
    ctx.clients.answer(me, |reply| {
        reply.array(lines.len());
        lines.iter().for_each(|line| reply.simple(line));
    })
}

/// Handles PROXY, which Redis does not have: HOTKEYS, BIGKEYS, HELP. It requires the permission for the slow log.
pub(crate) fn proxy(ctx: &mut Context, me: Ref, args: Args<'_>) -> Flow {
    if let Some(line) = access::refusal(&mut ctx.clients, me, CommandId::SlowlogGet, args) {
        return ctx.clients.abort(me, &line);
    }
    if let Some(flow) = must_stand_alone(&mut ctx.clients, me, "proxy") {
        return flow;
    }
    let is = |name: &[u8]| {
        args.get(1)
            .is_some_and(|word| word.eq_ignore_ascii_case(name))
    };
    let count = args.get(2).map_or(Some(SHOWN), count_of);
    match (is(b"HOTKEYS"), is(b"BIGKEYS"), is(b"HELP")) {
        (true, ..) | (_, true, _) if args.len() > 3 || count.is_none() => {
            ctx.clients.refuse(me, errors::SYNTAX)
        }
        (true, ..) => hot_keys(ctx, me, count.unwrap_or(SHOWN)),
        (_, true, _) => big_keys(ctx, me, count.unwrap_or(SHOWN)),
        (.., true) if args.len() == 2 => lines(ctx,
            me,
            &[
                "PROXY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "HOTKEYS [<count>]",
                "    The keys that come most often, as samples of the last seconds tell: key, requests per second, and at least so many.",
                "BIGKEYS [<count>]",
                "    The keys whose requests or replies were the largest: key, bytes, command, \"request\" or \"reply\", Unix time.",
                "HELP",
                "    Print this text.",
            ]
            .map(str::to_owned),
        ),
        _ => ctx.clients.refuse(
            me,
            "ERR unknown subcommand or wrong number of arguments for 'PROXY'. Try PROXY HELP.",
        ),
    }
}

fn hot_keys(ctx: &mut Context, me: Ref, count: usize) -> Flow {
    let now_ms = ctx.recorder.now_us / 1000;
    let mut rates: HashMap<Box<[u8]>, Rate> = HashMap::new();
    for worker in &ctx.shared.observations.workers {
        lock(&worker.frequent).rates(now_ms, &mut rates);
    }
    let mut rates: Vec<(Box<[u8]>, Rate)> = rates.into_iter().collect();
    rates.sort_by(|(one_key, one), (key, other)| {
        let by_rate = other.per_second.total_cmp(&one.per_second);
        by_rate.then_with(|| one_key.cmp(key))
    });
    rates.truncate(count);
    let each = f64::from(ctx.recorder.tuning.key_sample);
    ctx.clients.answer(me, |reply| {
        reply.array(rates.len());
        for (key, rate) in &rates {
            reply.array(3);
            reply.bulk(key);
            reply.integer((rate.per_second * each).round() as i64);
            reply.integer((rate.least_per_second * each).round() as i64);
        }
    })
}

fn big_keys(ctx: &mut Context, me: Ref, count: usize) -> Flow {
    let mut all: Vec<Large> = Vec::new();
    for worker in &ctx.shared.observations.workers {
        for large in lock(&worker.largest).all() {
            match all.iter_mut().find(|known| known.key == large.key) {
                Some(known) if known.bytes >= large.bytes => {}
                Some(known) => *known = large.clone(),
                None => all.push(large.clone()),
            }
        }
    }
    all.sort_by(|one, other| {
        other
            .bytes
            .cmp(&one.bytes)
            .then_with(|| one.key.cmp(&other.key))
    });
    all.truncate(count);
    ctx.clients.answer(me, |reply| {
        reply.array(all.len());
        for large in &all {
            let id = CommandId::ALL.get(usize::from(large.command));
            reply.array(5);
            reply.bulk(&large.key);
            reply.integer(large.bytes as i64);
            reply.bulk(id.map_or("?", |id| spec::row(*id).full_name).as_bytes());
            reply.bulk(if large.is_request {
                b"request"
            } else {
                b"reply"
            });
            reply.integer(large.at_s as i64);
        }
    })
}

/// Returns the number of entries asked for; -1: all.
fn count_of(word: &[u8]) -> Option<usize> {
    match std::str::from_utf8(word).ok()?.parse::<i64>().ok()? {
        -1 => Some(usize::MAX),
        count => usize::try_from(count).ok(),
    }
}

/// Returns a key as the log prints it.
fn shown(key: &[u8]) -> String {
    const SHOWN_BYTES: usize = 128;
    let mut text = Vec::new();
    redline_observe::quote::quote(&key[..key.len().min(SHOWN_BYTES)], &mut text);
    String::from_utf8_lossy(&text).into_owned()
}
