//! INFO, TIME, MONITOR, LOLWUT, PFSELFTEST, MODULE LIST.
//!
//! Must not know: INFO's text.

use redline_commands::{Error, Words};
use redline_keyspace::Unit;
use redline_net::clock;
use redline_resp::Args;
use redline_spec::CommandId;
use redline_types::{hll, number};

use crate::{info, worker::Worker};
use redline_engine::{
    Caller, Halt, REDIS_VERSION, caller::state, monitor, session::connection::write_modules,
};

pub(crate) fn info(worker: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    let none = Unit::none(&worker.shared.keyspace);
    let running = worker.compound.as_ref();
    let unit = running.map_or(&none, |compound| &compound.unit);
    let text = info::render(worker, unit, args.from(1));
    caller.reply().verbatim("txt", text.as_bytes());
    Ok(())
}

pub(crate) fn time(_: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    let now_us = clock::wall_us();
    let mut reply = caller.reply();
    reply.array(2);
    reply.bulk_integer((now_us / 1_000_000) as i64);
    reply.bulk_integer((now_us % 1_000_000) as i64);
    Ok(())
}

/// Handles MONITOR; without a reply if the client is a monitor already.
pub(crate) fn monitor(worker: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    if worker.compound.is_some() {
        return Err(Error::line("ERR MONITOR isn't allowed for DENY BLOCKING client").into());
    }
    if !caller.is(state::MONITOR) {
        monitor::begin(worker.shared, caller);
        caller.reply().ok();
    }
    Ok(())
}

pub(crate) fn pfselftest(_: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    match hll::self_test() {
        Ok(()) => caller.reply().ok(),
        Err(failed) => caller.reply().error(&format!("TESTFAILED {failed}")),
    }
    Ok(())
}

/// Draws a red line that wanders, never the same twice: `LOLWUT [VERSION version [columns [rows …]]]`. The versions of
/// which Redis has a picture give it; the others name the server's version only.
pub(crate) fn lolwut(worker: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    const COLUMNS: usize = 64;
    const ROWS: usize = 12;
    const SIDE_MAX: i64 = 1000;
    let names_version = Words::new(CommandId::Lolwut, &args, 1).flag("VERSION");
    let mut numbers = Vec::new();
    if names_version {
        let number_of = |word: &[u8]| number::parse_i64(word).ok_or(Error::NotInteger);
        let version = args.get(2).map(number_of).transpose()?;
        // The measures of a picture, in the versions that take some.
        let measures = match version {
            Some(5) => 3,
            Some(6) => 2,
            _ => 0,
        };
        numbers.extend(version);
        for word in args.iter().skip(3).take(measures) {
            numbers.push(number_of(word)?);
        }
    }
    let side = |at: usize, usual: usize| {
        let asked = numbers
            .get(at)
            .map(|side| (*side).clamp(1, SIDE_MAX) as usize);
        asked.unwrap_or(usual)
    };
    let mut text = String::new();
    if matches!(numbers.first(), None | Some(5 | 6 | 8)) {
        text = draw(&mut worker.local.rng, side(1, COLUMNS), side(2, ROWS));
        text.push_str("\nA line, drawn by chance. ");
    }
    text.push_str(&format!("Redis ver. {REDIS_VERSION}\n"));
    caller.reply().verbatim("txt", text.as_bytes());
    Ok(())
}

fn draw(rng: &mut fastrand::Rng, columns: usize, rows: usize) -> String {
    let mut grid = vec![vec![' '; columns]; rows];
    let mut row = rng.usize(0..rows);
    #[expect(
        clippy::needless_range_loop,
        reason = "it walks across the rows, not along one"
    )]
    for column in 0..columns {
        let step = rng.usize(0..3);
        let (mark, next) = match step {
            0 if row > 0 => ('/', row - 1),
            2 if row + 1 < rows => ('\\', row + 1),
            _ => ('_', row),
        };
        // A falling stroke is drawn in the line it falls to.
        grid[if step == 2 { next } else { row }][column] = mark;
        row = next;
    }
    let mut text = String::new();
    for line in grid {
        text.push_str(line.iter().collect::<String>().trim_end());
        text.push('\n');
    }
    text
}

pub(crate) fn module_list(_: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    write_modules(&mut caller.reply());
    Ok(())
}
