//! MEMORY STATS, DOCTOR, MALLOC-STATS, PURGE. (USAGE is a command on a key.)
//!
//! Must not know: where the figures come from.

use std::fmt::Write;

use redline_resp::Args;
use redline_table::heap;

use crate::{
    cron,
    memory::{Memory, ratio},
    shared::Message,
    worker::Worker,
};
use redline_engine::{Caller, Halt, chores::Chore};

/// Memory below which the doctor does not examine the server: bytes.
const LITTLE_BYTES: u64 = 5 << 20;
/// Waste below which it is not reported: bytes.
const WASTE_BYTES: u64 = 10 << 20;
/// Average size of a client's buffers above which it is reported: bytes.
const CLIENT_BYTES: u64 = 200 << 10;
/// Number of cached scripts above which they are reported: most likely a program generates their texts.
const SCRIPTS: usize = 1000;

/// A value of the map in STATS's reply.
enum Figure {
    Integer(u64),
    Double(f64),
    Database(u64, u64),
}

pub(crate) fn memory_stats(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let figures = figures(&Memory::now(worker));
    let mut reply = caller.reply();
    reply.map(figures.len());
    for (name, figure) in figures {
        reply.bulk(name.as_bytes());
        match figure {
            Figure::Integer(value) => reply.integer(value as i64),
            Figure::Double(value) => reply.double(value),
            Figure::Database(table_bytes, expiry_bytes) => {
                reply.map(2);
                reply.bulk(b"overhead.hashtable.main");
                reply.integer(table_bytes as i64);
                reply.bulk(b"overhead.hashtable.expires");
                reply.integer(expiry_bytes as i64);
            }
        }
    }
    Ok(())
}

/// Returns the figures under Redis's names. Those of a part that does not exist are 0.
fn figures(memory: &Memory) -> Vec<(String, Figure)> {
    use Figure::{Database, Double, Integer};
    let percent = |part, whole| match whole {
        0 => 0.0,
        _ => 100.0 * ratio(part, whole),
    };
    let mut figures = vec![
        ("peak.allocated", Integer(memory.peak_bytes)),
        ("total.allocated", Integer(memory.used_bytes)),
        ("startup.allocated", Integer(memory.startup_bytes)),
        ("replication.backlog", Integer(0)),
        ("replica.fullsync.buffer", Integer(0)),
        ("clients.slaves", Integer(0)),
        ("clients.normal", Integer(memory.client_bytes)),
        ("cluster.links", Integer(0)),
        ("aof.buffer", Integer(0)),
        ("lua.caches", Integer(memory.script_bytes)),
        ("functions.caches", Integer(memory.function_bytes)),
        ("script.VMs", Integer(memory.interpreter_bytes())),
    ]
    .into_iter()
    .map(|(name, figure)| (name.to_owned(), figure))
    .collect::<Vec<_>>();
    figures.extend(memory.databases.iter().map(|database| {
        let figure = Database(database.table_bytes, database.expiry_bytes);
        (format!("db.{}", database.number), figure)
    }));
    let (used, resident) = (memory.used_bytes, memory.resident_bytes);
    let (live, mapped) = (memory.live_bytes, memory.mapped_bytes);
    let keys = memory.keys();
    let (overhead, net) = (memory.overhead_bytes(), memory.net_bytes());
    let rest = [
        ("overhead.db.hashtable.lut", Integer(memory.table_bytes())),
        ("overhead.db.hashtable.rehashing", Integer(0)),
        ("overhead.total", Integer(overhead)),
        ("db.dict.rehashing.count", Integer(0)),
        ("keys.count", Integer(keys)),
        (
            "keys.bytes-per-key",
            Integer(net.checked_div(keys).unwrap_or(0)),
        ),
        ("dataset.bytes", Integer(memory.dataset_bytes())),
        (
            "dataset.percentage",
            Double(percent(memory.dataset_bytes(), net)),
        ),
        ("peak.percentage", Double(percent(used, memory.peak_bytes))),
        ("allocator.allocated", Integer(live)),
        ("allocator.active", Integer(mapped)),
        ("allocator.resident", Integer(mapped)),
        ("allocator.muzzy", Integer(0)),
        ("allocator-fragmentation.ratio", Double(ratio(mapped, live))),
        (
            "allocator-fragmentation.bytes",
            Integer(mapped.saturating_sub(live)),
        ),
        ("allocator-rss.ratio", Double(1.0)),
        ("allocator-rss.bytes", Integer(0)),
        ("rss-overhead.ratio", Double(ratio(resident, mapped))),
        ("rss-overhead.bytes", Integer(resident.wrapping_sub(mapped))),
        ("fragmentation", Double(ratio(resident, used))),
        ("fragmentation.bytes", Integer(resident.wrapping_sub(used))),
    ];
    figures.extend(rest.map(|(name, figure)| (name.to_owned(), figure)));
    figures
}

pub(crate) fn memory_doctor(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let memory = Memory::now(worker);
    let clients = worker.shared.client_infos().len() as u64;
    let text = report(&memory, clients, worker.shared.scripts.len());
    caller.reply().verbatim("txt", text.as_bytes());
    Ok(())
}

/// Returns a report of remarkable figures, in words. The bounds are Redis's.
fn report(memory: &Memory, clients: u64, scripts: usize) -> String {
    if memory.used_bytes < LITTLE_BYTES {
        return "Too little is stored here to say anything about it.\n".into();
    }
    let mut findings = Vec::new();
    let (used, peak) = (memory.used_bytes, memory.peak_bytes);
    if ratio(peak, used) > 1.5 {
        findings.push(format!(
            "At its peak the data took {peak} bytes, more than half again as much as now ({used}). What was freed may not \
have gone back to the system yet; MEMORY PURGE gives back what can be."
        ));
    }
    let (live, mapped) = (memory.live_bytes, memory.mapped_bytes);
    let unused = mapped.saturating_sub(live);
    if ratio(mapped, live) > 1.4 && unused > WASTE_BYTES {
        findings.push(format!(
            "{unused} bytes of the arenas lie between objects. Compaction moves them together by itself where that wins \
enough; MEMORY MALLOC-STATS has the figures."
        ));
    }
    let besides = memory.resident_bytes.saturating_sub(mapped);
    if ratio(memory.resident_bytes, mapped) > 1.4 && besides > WASTE_BYTES {
        findings.push(format!(
            "The process takes {besides} bytes besides its data: buffers of clients ({} bytes), interpreters ({} bytes), \
stacks and code.",
            memory.client_bytes,
            memory.interpreter_bytes()
        ));
    }
    let each = memory.client_bytes.checked_div(clients).unwrap_or(0);
    if each > CLIENT_BYTES {
        findings.push(format!(
            "The buffers of a client take {each} bytes on average. CLIENT LIST shows whose are large (tot-mem); \
client-output-buffer-limit and maxmemory-clients bound them."
        ));
    }
    if scripts > SCRIPTS {
        findings.push(format!(
            "{scripts} scripts are cached. If programs put their texts together, have them pass what varies as arguments."
        ));
    }
    if findings.is_empty() {
        return "Nothing about the memory of this server is remarkable.\n".into();
    }
    let mut text = String::from("What is remarkable about the memory of this server:\n");
    for (number, finding) in findings.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(text, "\n{}. {finding}\n", number + 1);
    }
    text
}

pub(crate) fn memory_malloc_stats(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let memory = Memory::now(worker);
    let mut text = String::from("Arenas, in bytes: allocated, held from the system\n");
    for (name, stats) in [("entries", heap::stats()), ("tables", heap::table_stats())] {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}: {} {}", stats.live_bytes, stats.mapped_bytes);
    }
    let compacting = worker.outlet.compaction.as_ref();
    let left = compacting.map_or(0, |(compaction, _)| compaction.segments_left());
    let _ = writeln!(text, "segments that a compaction empties: {left}");
    let _ = writeln!(
        text,
        "resident, of the whole process: {}",
        memory.resident_bytes
    );
    caller.reply().verbatim("txt", text.as_bytes());
    Ok(())
}

/// Has every worker release its spare memory, and begins a compaction where it frees enough.
pub(crate) fn memory_purge(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    for other in worker.shared.workers() {
        other.mailbox.send(Message::Run(Box::new(cron::purge)));
    }
    worker.shared.chore(Chore::Purge);
    caller.reply().ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_doctor_tells_what_is_remarkable_and_nothing_else() {
        const MIB: u64 = 1 << 20;
        let memory = Memory {
            used_bytes: 100 * MIB,
            peak_bytes: 110 * MIB,
            live_bytes: 100 * MIB,
            mapped_bytes: 110 * MIB,
            resident_bytes: 120 * MIB,
            client_bytes: MIB,
            ..Memory::default()
        };
        assert!(report(&Memory::default(), 1, 0).starts_with("Too little"));
        assert!(report(&memory, 10, 1000).starts_with("Nothing"));
        let change = |change: fn(&mut Memory)| {
            let mut memory = memory.clone();
            change(&mut memory);
            report(&memory, 10, 1000)
        };
        assert!(change(|memory| memory.peak_bytes = 160 * MIB).contains("1. At its peak"));
        let scattered = change(|memory| {
            memory.mapped_bytes = 150 * MIB;
            memory.resident_bytes = 250 * MIB;
        });
        assert!(
            scattered.contains("1. 52428800 bytes of the arenas"),
            "{scattered}"
        );
        assert!(
            scattered.contains("2. The process takes 104857600"),
            "{scattered}"
        );
        assert!(change(|memory| memory.client_bytes = 3 * MIB).contains("of a client take 314572"));
        assert!(report(&memory, 10, 1001).contains("1001 scripts"));
    }
}
