//! CLIENT: properties that a connection sets, the list of all clients, and closing connections.
//!
//! Everything here works on [`ClientInfo`]s, which any worker may read: no request to another worker, and no wait. Must
//! not know: other sessions.

mod filter;

use std::{fmt::Write, sync::atomic::Ordering};

use redline_commands::{Error, Words};
use redline_keyspace::End;
use redline_resp::Args;
use redline_spec::{self as spec, CommandId, refusal};
use redline_types::number;

use crate::{
    caller::{Caller, ClientInfo, ReplyMode, flag, state},
    engine::{Message, Pause},
    executor::Halt,
    executor::block,
    executor::{Executor, Outlet},
};

use filter::Filters;

pub(crate) fn client_id<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let id = caller.info.id;
    caller.reply().integer(id as i64);
    Ok(())
}

pub(crate) fn client_getname<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let info = caller.info.clone();
    let names = info.names();
    match names.name.as_slice() {
        b"" => caller.reply().null(),
        name => caller.reply().bulk(name),
    }
    Ok(())
}

pub(crate) fn client_setname<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    set_name(caller, &args[2])?;
    caller.reply().ok();
    Ok(())
}

/// Returns an error if a client may not have this name.
pub fn check_name(name: &[u8]) -> Result<(), Error> {
    let wrong = Error::line(refusal::NO_CLIENT_NAME);
    refusal::is_client_name(name).then_some(()).ok_or(wrong)
}

/// Sets the name of the connection (CLIENT SETNAME, HELLO SETNAME).
pub fn set_name(caller: &mut Caller, name: &[u8]) -> Result<(), Error> {
    check_name(name)?;
    caller.info.names().name = name.to_vec();
    Ok(())
}

pub(crate) fn client_setinfo<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let (option, value) = (&args[2], &args[3]);
    let library = Words::new(CommandId::ClientSetinfo, &args, 2)
        .one_of(&[("LIB-NAME", true), ("LIB-VER", false)])
        .ok_or_else(|| quoted("ERR Unrecognized option", option))?;
    if !refusal::is_client_name(value) {
        return Err(Error::Quoting(refusal::no_client_info(option).into()).into());
    }
    let mut names = caller.info.names();
    let place = if library {
        &mut names.library
    } else {
        &mut names.library_version
    };
    *place = value.to_vec();
    drop(names);
    caller.reply().ok();
    Ok(())
}

pub(crate) fn client_info<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut text = String::new();
    show_request(caller, args);
    write_line(
        &mut text,
        &caller.info,
        &flag_letters(&caller.info),
        executor.now_ms,
    );
    caller.reply().verbatim("txt", text.as_bytes());
    Ok(())
}

pub(crate) fn client_list<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut text = String::new();
    show_request(caller, args);
    // The shown memory may be above the limit already: clients to be closed for it are closed first.
    O::evict_clients(executor);
    let all = executor.engine.client_infos();
    let mut show =
        |info: &ClientInfo| write_line(&mut text, info, &flag_letters(info), executor.now_ms);
    match args.get(2) {
        // In the order of the arguments, repeated ones included.
        Some(option) if option.eq_ignore_ascii_case(b"id") && Filters::are_ids(args.from(3)) => {
            for id in args.iter().skip(3).filter_map(number::parse_i64) {
                let found = all.binary_search_by_key(&id, |info| info.id as i64);
                if let Ok(found) = found {
                    show(&all[found]);
                }
            }
        }
        _ => {
            let filters = Filters::of_list(args, executor)?;
            let own = caller.info.id;
            let wanted = all
                .iter()
                .filter(|info| filters.admit(info, executor.now_ms))
                .filter(|info| info.id != own || !filters.skip_me);
            wanted.for_each(|info| show(info));
        }
    }
    caller.reply().verbatim("txt", text.as_bytes());
    Ok(())
}

pub(crate) fn client_kill<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let old_form = args.len() == 3;
    let wanted = if old_form {
        Filters::of_address(&args[2])
    } else {
        Filters::of_kill(args, executor)?
    };
    let mut killed = 0;
    for info in executor.engine.client_infos() {
        if !wanted.admit(&info, executor.now_ms) {
            continue;
        }
        if info.id == caller.info.id {
            if wanted.skip_me {
                continue;
            }
            // The reply is still sent.
            caller.closing = true;
            info.set_flag(flag::CLOSING, true);
        } else {
            executor.engine.kill(&info);
        }
        killed += 1;
        if old_form {
            break;
        }
    }
    match (old_form, killed) {
        (true, 0) => return Err(Error::line("ERR No such client").into()),
        (true, _) => caller.reply().ok(),
        (false, _) => caller.reply().integer(killed),
    }
    Ok(())
}

/// Handles CLIENT CAPA, by which the client declares its capabilities. The only known one is `redirect`, used by
/// servers that have a primary; unknown names are ignored.
pub(crate) fn client_capa<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut named = args.iter().skip(2);
    if named.any(|name| name.eq_ignore_ascii_case(b"redirect")) {
        caller.info.set_flag(flag::FOLLOWS_REDIRECTS, true);
    }
    caller.reply().ok();
    Ok(())
}

pub(crate) fn client_no_evict<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let on = on_or_off(Words::new(CommandId::ClientNoEvict, &args, 2))?;
    caller.info.set_flag(flag::NO_EVICT, on);
    caller.reply().ok();
    Ok(())
}

pub(crate) fn client_no_touch<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let on = on_or_off(Words::new(CommandId::ClientNoTouch, &args, 2))?;
    caller.set_state(state::NO_TOUCH, on);
    caller.info.set_flag(flag::NO_TOUCH, on);
    caller.reply().ok();
    Ok(())
}

pub(crate) fn client_reply<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut words = Words::new(CommandId::ClientReply, &args, 2);
    if words.flag("ON") {
        caller.reply_mode = ReplyMode::On;
        caller.set_state(state::REPLY, false);
        caller.reply().ok();
    } else if words.flag("OFF") {
        caller.reply_mode = ReplyMode::Off;
        caller.set_state(state::REPLY, true);
    } else if words.flag("SKIP") {
        if caller.reply_mode != ReplyMode::Off {
            caller.reply_mode = ReplyMode::SkipNext;
            caller.set_state(state::REPLY, true);
        }
    } else {
        return Err(Error::Syntax.into());
    }
    Ok(())
}

pub(crate) fn client_unblock<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut words = Words::new(CommandId::ClientUnblock, &args, 3);
    if words.len() > 1 {
        return Err(words.wrong_arity().into());
    }
    let how = words.one_of(&[("TIMEOUT", End::TimedOut), ("ERROR", End::Unblocked)]);
    if !words.is_empty() {
        let text = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
        return Err(Error::line(text).into());
    }
    let how = how.unwrap_or(End::TimedOut);
    let id = number::parse_i64(&args[2]).ok_or(Error::NotInteger)?;
    let info = {
        let clients = executor.engine.clients();
        u64::try_from(id)
            .ok()
            .and_then(|id| clients.get(&id).cloned())
    };
    let ended = info.and_then(|info| info.wait.end(how));
    if let Some(waiter) = &ended {
        block::tell(executor.engine, waiter, block::Outcome::default());
    }
    caller.reply().integer(i64::from(ended.is_some()));
    Ok(())
}

/// Suspends commands that begin later on any worker; those that run go on.
pub(crate) fn client_pause<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut words = Words::new(CommandId::ClientPause, &args, 3);
    if words.len() > 1 {
        return Err(words.wrong_arity().into());
    }
    let all = words.one_of(&[("ALL", true), ("WRITE", false)]);
    if !words.is_empty() {
        return Err(Error::line("ERR CLIENT PAUSE mode must be WRITE or ALL").into());
    }
    let all = all.unwrap_or(true);
    let span_ms = redline_commands::wait_ms(&args[2], executor.now_ms)?.unwrap_or(0);
    let now_ms = executor.outlet.monotonic_ms();
    let wanted = Pause {
        end_ms: now_ms + span_ms,
        all,
    };
    set_pause(executor, |before| {
        // A pause that goes on may become longer and stricter, never shorter or laxer.
        let before = before.filter(|before| before.end_ms > now_ms);
        Some(before.map_or(wanted, |before| Pause {
            end_ms: wanted.end_ms.max(before.end_ms),
            all: wanted.all || before.all,
        }))
    });
    caller.reply().ok();
    Ok(())
}

pub(crate) fn client_unpause<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    set_pause(executor, |_| None);
    for other in executor.engine.executors() {
        other.mailbox.send(Message::Resume);
    }
    caller.reply().ok();
    Ok(())
}

/// Publishes a pause with an epoch of the settings, which every worker checks before every command.
fn set_pause<O: Outlet>(
    executor: &Executor<'_, O>,
    change: impl FnOnce(Option<Pause>) -> Option<Pause>,
) {
    let mut pause = executor
        .engine
        .pause
        .lock()
        .expect("no panic under the pause");
    *pause = change(*pause);
    drop(pause);
    executor.engine.settings.move_epoch();
}

/// Adds this request to the calling client's query buffer in its info, by its length as an array, the form that clients
/// use. The buffer belongs to the worker while a request runs, so the info lacks it.
fn show_request(caller: &mut Caller, args: Args<'_>) {
    let decimal = |number: usize| number.to_string().len();
    let framed = |bytes: usize| "$\r\n\r\n".len() + decimal(bytes) + bytes;
    let words: usize = args.iter().map(|word| framed(word.len())).sum();
    let bytes = ("*\r\n".len() + decimal(args.len()) + words) as u64;
    let shown = &caller.info.query_bytes;
    shown.store(shown.load(Ordering::Relaxed).max(bytes), Ordering::Relaxed);
    // Until the request is over.
    caller.shown_empty = false;
}

/// Returns a refused call's client on one line, as in the log of refusals. A wait of the client counts as over.
pub fn described(info: &ClientInfo, now_ms: i64) -> String {
    let mut text = String::new();
    let flags = info.flags.load(Ordering::Relaxed) & !flag::BLOCKED;
    write_line(&mut text, info, &letters_of(flags), now_ms);
    text.truncate(text.trim_end().len());
    text
}

/// Writes one client as CLIENT LIST prints it. Fields of parts that do not exist have Redis's values for that.
fn write_line(out: &mut String, info: &ClientInfo, letters: &str, now_ms: i64) {
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let now_s = (now_ms / 1000) as u64;
    let flags = info.flags.load(Ordering::Relaxed);
    let names = info.names();
    let text = String::from_utf8_lossy;
    let command = info.command.load(Ordering::Relaxed);
    let command = CommandId::ALL
        .get(usize::from(command))
        .map_or("NULL", |id| spec::row(*id).full_name);
    let (query, capacity) = (load(&info.query_bytes), load(&info.query_capacity));
    let output = load(&info.output_bytes);
    let pieces = info.output_pieces.load(Ordering::Relaxed);
    let (buffered, listed) = match pieces {
        0 => (output, 0),
        _ => (0, load(&info.output_capacity)),
    };
    let multi = i64::from(info.multi.load(Ordering::Relaxed)) - 1;
    // Without capabilities the line is that of Redis, which has no such field.
    let capabilities = match flags & flag::FOLLOWS_REDIRECTS {
        0 => "",
        _ => " capa=r",
    };
    let events = if output > 0 { "rw" } else { "r" };
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={}{capabilities} db={} sub={} psub={} ssub={} \
multi={multi} watch={} qbuf={query} qbuf-free={} argv-mem={} multi-mem={} rbs={} rbp={} obl={buffered} oll={pieces} \
omem={} tot-mem={} events={events} cmd={command} user={} redir={} resp={} lib-name={} \
lib-ver={} io-thread={} tot-net-in={} tot-net-out={} tot-cmds={}",
        info.id,
        info.addr,
        info.laddr,
        info.fd,
        text(&names.name),
        now_s.saturating_sub(info.created_ms / 1000),
        now_s.saturating_sub(u64::from(info.active_s.load(Ordering::Relaxed))),
        letters,
        info.db.load(Ordering::Relaxed),
        info.channels.load(Ordering::Relaxed),
        info.patterns.load(Ordering::Relaxed),
        info.shard_channels.load(Ordering::Relaxed),
        info.watched().0,
        capacity.saturating_sub(query),
        load(&info.argument_bytes),
        load(&info.multi_bytes),
        load(&info.output_capacity),
        load(&info.output_peak),
        listed,
        load(&info.memory_bytes),
        text(&names.user),
        info.redirect.load(Ordering::Relaxed),
        info.resp.load(Ordering::Relaxed),
        text(&names.library),
        text(&names.library_version),
        info.token().executor(),
        load(&info.net_in),
        load(&info.net_out),
        load(&info.commands),
    );
}

/// Extra flag of a client info: its wait is over, and its worker is yet to be notified.
const UNBLOCKED: u32 = 1 << 30;
/// Extra flag likewise: a key that it watches has changed.
const DIRTY: u32 = 1 << 29;

fn flag_letters(info: &ClientInfo) -> String {
    // In this order: a client that goes on clears the flag first, and then the wait.
    let is_over = info.wait.is_over();
    let mut flags = info.flags.load(Ordering::Relaxed);
    if info.watched().1 {
        flags |= DIRTY;
    }
    letters_of(match is_over {
        true => flags & !flag::BLOCKED | UNBLOCKED,
        false => flags,
    })
}

fn letters_of(flags: u32) -> String {
    const LETTERS: [(u32, char); 16] = [
        (flag::REPLICA, 'S'),
        (flag::PRIMARY, 'M'),
        (flag::MONITOR, 'O'),
        (flag::PUBSUB, 'P'),
        (flag::MULTI, 'x'),
        (flag::BLOCKED, 'b'),
        (flag::TRACKING, 't'),
        (flag::BROKEN_REDIRECT, 'R'),
        (flag::BROADCAST, 'B'),
        (DIRTY, 'd'),
        (flag::CLOSING, 'c'),
        (UNBLOCKED, 'u'),
        (flag::UNIX, 'U'),
        (flag::READONLY, 'r'),
        (flag::NO_EVICT, 'e'),
        (flag::NO_TOUCH, 'T'),
    ];
    let set = LETTERS
        .iter()
        .filter(|(bit, _)| flags & bit != 0)
        .map(|(_, letter)| *letter);
    let letters: String = set.collect();
    if letters.is_empty() {
        "N".into()
    } else {
        letters
    }
}

fn on_or_off(mut words: Words<'_>) -> Result<bool, Error> {
    let on = words.one_of(&[("ON", true), ("OFF", false)]);
    on.ok_or(Error::Syntax)
}

fn quoted(text: &str, what: &[u8]) -> Error {
    Error::quoting(&format!("{text} '"), what, "'")
}
