//! LATENCY: slow events, and distributions of the times of commands.
//!
//! Must not know: how time is taken.

use redline_commands::Error;
use redline_observe::latency::{graph, report, write_history, write_latest};
use redline_resp::Args;
use redline_spec::{self as spec, CommandId};

use crate::worker::Worker;
use redline_engine::{Caller, Halt};

pub(crate) fn latency_latest(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let events = worker.shared.latency_events.all();
    write_latest(&events, &mut caller.reply());
    Ok(())
}

pub(crate) fn latency_history(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let found = worker.shared.latency_events.find(&args[2]);
    let series = found.map(|(_, series)| series).unwrap_or_default();
    write_history(&series, &mut caller.reply());
    Ok(())
}

pub(crate) fn latency_reset(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let names = args.from(2);
    let named = |name: &str| names.iter().any(|word| word == name.as_bytes());
    let events = &worker.shared.latency_events;
    let count = events.reset(|name| names.is_empty() || named(name));
    caller.reply().integer(count as i64);
    Ok(())
}

pub(crate) fn latency_graph(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let Some((name, series)) = worker.shared.latency_events.find(&args[2]) else {
        let before = "ERR No samples available for event '";
        return Err(Error::quoting(before, &args[2], "'").into());
    };
    let text = graph(name, &series, worker.now_ms / 1000);
    caller.reply().verbatim("txt", text.as_bytes());
    Ok(())
}

pub(crate) fn latency_doctor(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let events = worker.shared.latency_events.all();
    let text = if worker.outlet.settings.latency_monitor_threshold_ms == 0 && events.is_empty() {
        "The latency monitor is off. CONFIG SET latency-monitor-threshold <milliseconds> switches it on.\n".into()
    } else if events.is_empty() {
        format!(
            "Nothing has taken {} ms or longer since the latency monitor was switched on or reset.\n",
            worker.outlet.settings.latency_monitor_threshold_ms
        )
    } else {
        report(&events, ADVICE)
    };
    caller.reply().verbatim("txt", text.as_bytes());
    Ok(())
}

pub(crate) fn latency_histogram(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let distributions = worker.shared.distributions();
    let mut wanted: Vec<CommandId> = Vec::new();
    for name in args.iter().skip(2) {
        let mut words = name.splitn(2, |byte| *byte == b'|');
        let first = words.next().unwrap_or_default();
        let names = &worker.shared.names;
        match words.next() {
            Some(_) => wanted.extend(names.resolve(first, words_after_bar(name)).ok()),
            None => {
                if let Some(id) = names.lookup(first) {
                    wanted.push(id);
                    wanted.extend(spec::table::subcommands(id).map(|row| row.id));
                }
            }
        }
    }
    if args.len() == 2 {
        wanted.extend(CommandId::ALL);
    }
    wanted.retain(|id| distributions[*id as usize].count() > 0);
    let mut reply = caller.reply();
    reply.map(wanted.len());
    for id in wanted {
        let distribution = &distributions[id as usize];
        reply.bulk(spec::row(id).full_name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(distribution.count() as i64);
        reply.bulk(b"histogram_usec");
        let pairs = distribution.doubling();
        reply.map(pairs.len());
        for (below_ns, count) in pairs {
            reply.integer((below_ns / 1000) as i64);
            reply.integer(count as i64);
        }
    }
    Ok(())
}

fn words_after_bar(name: &[u8]) -> Option<&[u8]> {
    let bar = name.iter().position(|byte| *byte == b'|')?;
    Some(&name[bar + 1..])
}

const ADVICE: &[(&str, &str)] = &[
    (
        "command",
        "SLOWLOG GET names the calls. Where one works on a large collection, ask for parts of it (the SCAN family, ranges), or spread it over several keys.",
    ),
    (
        "fast-command",
        "such commands do little by themselves. Look for calls with very many arguments, for a machine without free memory (swapping), and for neighbours that take the CPU.",
    ),
    (
        "expire-cycle",
        "many keys end at the same moment. Give their times to live some random spread, or lower active-expire-effort.",
    ),
    (
        "eviction-cycle",
        "memory is at maxmemory and large values go. Raise maxmemory, or set times to live so that less has to be evicted.",
    ),
];
