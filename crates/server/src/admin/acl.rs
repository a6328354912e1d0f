//! ACL: users and their rules, read and changed by clients.
//!
//! Must not know: what a rule means, and what a change does to sessions.

use std::path::Path;

use redline_acl::{DEFAULT_USER, Entry, Selector, SetUserError, is_user_name};
use redline_commands::{Error, Words};
use redline_resp::{Args, Reply};
use redline_spec::{self as spec, Categories, CommandId, table};
use redline_types::number;

use crate::{admin::config::replace_file, log, users, worker::Worker};
use redline_engine::{Caller, Halt, errors};

/// Default number of bits of a password made by GENPASS.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;
/// Default number of entries that LOG shows.
const LOG_ENTRIES_SHOWN: i64 = 10;
const NO_FILE: Error = Error::line(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.",
);

pub(crate) fn acl_setuser(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let name = &args[2];
    if !is_user_name(name) {
        return Err(Error::line("ERR Usernames can't contain spaces or null characters").into());
    }
    let rules: Vec<&[u8]> = args.iter().skip(3).collect();
    let changed = worker
        .shared
        .change_users(|users, settings| users.set(name, &rules, &settings.acl_dialect()));
    changed.map_err(|error| match error {
        SetUserError::Unmatched(at) => {
            Error::quoting(&format!("ERR {error} starting at '"), rules[at.0], "'.")
        }
        SetUserError::Rule(rule, why) => {
            let before = "ERR Error in ACL SETUSER modifier '";
            Error::quoting(before, &rule, &format!("': {why}"))
        }
    })?;
    worker.refresh_if_changed();
    caller.reply().ok();
    Ok(())
}

pub(crate) fn acl_deluser(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    if args.iter().skip(2).any(|name| name == DEFAULT_USER) {
        return Err(Error::line("ERR The 'default' user cannot be removed").into());
    }
    let mut removed = 0;
    let changed = worker.shared.change_users(|users, _| {
        let removals = args.iter().skip(2).filter(|name| users.remove(name));
        removed = removals.count();
        // No change, so nothing to publish.
        if removed > 0 { Ok(()) } else { Err(()) }
    });
    if changed.is_ok() {
        worker.refresh_if_changed();
    }
    caller.reply().integer(removed as i64);
    Ok(())
}

pub(crate) fn acl_getuser(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let Some(user) = worker.outlet.settings.acl.get(&args[2]) else {
        caller.reply().null();
        return Ok(());
    };
    let mut reply = caller.reply();
    reply.map(6);
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords().len());
    for password in user.passwords() {
        reply.bulk(password.digits());
    }
    write_selector(&mut reply, user.root());
    reply.bulk(b"selectors");
    reply.array(user.further_selectors().len());
    for selector in user.further_selectors() {
        reply.map(3);
        write_selector(&mut reply, selector);
    }
    Ok(())
}

fn write_selector(reply: &mut Reply<'_>, selector: &Selector) {
    reply.bulk(b"commands");
    reply.bulk(&selector.command_text());
    reply.bulk(b"keys");
    reply.bulk(&selector.key_text());
    reply.bulk(b"channels");
    reply.bulk(&selector.channel_text());
}

pub(crate) fn acl_list(worker: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    let users = &worker.outlet.settings.acl;
    let mut reply = caller.reply();
    reply.array(users.iter().len());
    users.iter().for_each(|user| reply.bulk(&user.line()));
    Ok(())
}

pub(crate) fn acl_users(worker: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    let users = &worker.outlet.settings.acl;
    let mut reply = caller.reply();
    reply.array(users.iter().len());
    users.iter().for_each(|user| reply.bulk(user.name()));
    Ok(())
}

pub(crate) fn acl_cat(_: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    if args.len() > 3 {
        return Err(errors::wrong_subcommand_arity(CommandId::Acl, args).into());
    }
    let names: Vec<&str> = match args.get(2) {
        None => Categories::ALL.iter().map(|(_, name)| *name).collect(),
        Some(name) => {
            let category = Categories::by_name(name)
                .ok_or_else(|| Error::quoting("ERR Unknown category '", name, "'"))?;
            let rows = table::all().iter().filter(|row| row.acl.has(category));
            rows.map(|row| row.full_name).collect()
        }
    };
    let mut reply = caller.reply();
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

pub(crate) fn acl_genpass(_: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    if args.len() > 3 {
        return Err(errors::wrong_subcommand_arity(CommandId::Acl, args).into());
    }
    let bits = match args.get(2) {
        None => PASSWORD_BITS,
        Some(word) => number::parse_i64(word).ok_or(Error::NotInteger)?,
    };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(Error::Line(
            format!("ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to {PASSWORD_BITS_MAX}").into(),
        )
        .into());
    }
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    getrandom::fill(&mut random)
        .map_err(|_| Error::line("ERR the operating system gives no randomness"))?;
    let mut password: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    password.truncate(digits);
    caller.reply().bulk(password.as_bytes());
    Ok(())
}

pub(crate) fn acl_dryrun(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let users = worker.outlet.settings.acl.clone();
    let user = users
        .get(&args[2])
        .ok_or_else(|| Error::quoting("ERR User '", &args[2], "' not found"))?;
    let call = args.from(3);
    let id = worker
        .shared
        .names
        .resolve(&call[0], call.get(1))
        .map_err(|_| Error::quoting("ERR Command '", &call[0], "' not found"))?;
    if !spec::gate(id).lets_pass(call.len()) {
        return Err(errors::wrong_arity(id).into());
    }
    match redline_engine::executor::access::call_allowed(user, id, call) {
        Ok(()) => caller.reply().ok(),
        Err(denied) => {
            let object = call.get(denied.position).unwrap_or_default();
            let text = user.refusal(denied.reason, spec::row(id).full_name, object, true);
            caller.reply().bulk(text.as_bytes());
        }
    }
    Ok(())
}

pub(crate) fn acl_log(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    if args.len() > 3 {
        return Err(errors::wrong_subcommand_arity(CommandId::Acl, args).into());
    }
    let shared = worker.shared;
    let mut log = shared.acl_log.lock().expect("no panic under the ACL log");
    let wanted = match args.get(2) {
        Some(_) if Words::new(CommandId::AclLog, &args, 2).flag("RESET") => {
            log.clear();
            caller.reply().ok();
            return Ok(());
        }
        Some(word) => number::parse_i64(word).ok_or(Error::NotInteger)?,
        None => LOG_ENTRIES_SHOWN,
    };
    let wanted = usize::try_from(wanted).unwrap_or(0);
    let shown = log.entries().len().min(wanted);
    let mut reply = caller.reply();
    reply.array(shown);
    for entry in log.entries().take(shown) {
        write_entry(&mut reply, entry, worker.now_ms as u64);
    }
    Ok(())
}

fn write_entry(reply: &mut Reply<'_>, entry: &Entry, now_ms: u64) {
    let last = &entry.last;
    let age_s = now_ms.saturating_sub(last.at_ms) as f64 / 1000.0;
    reply.map(10);
    reply.bulk(b"count");
    reply.integer(entry.count as i64);
    let texts: [(&[u8], &[u8]); 4] = [
        (b"reason", last.reason.name().as_bytes()),
        (b"context", last.context.name().as_bytes()),
        (b"object", &last.object),
        (b"username", &last.user),
    ];
    for (name, value) in texts {
        reply.bulk(name);
        reply.bulk(value);
    }
    reply.bulk(b"age-seconds");
    reply.double(age_s);
    reply.bulk(b"client-info");
    reply.bulk(last.client.as_bytes());
    let numbers: [(&[u8], u64); 3] = [
        (b"entry-id", entry.id),
        (b"timestamp-created", entry.created_ms),
        (b"timestamp-last-updated", last.at_ms),
    ];
    for (name, value) in numbers {
        reply.bulk(name);
        reply.integer(value as i64);
    }
}

pub(crate) fn acl_load(worker: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    let path = worker.outlet.settings.aclfile.clone().ok_or(NO_FILE)?;
    let changed = worker.shared.change_users(|users, settings| {
        *users = users::users_of_file(users, &path, &settings.acl_dialect())?;
        Ok::<(), String>(())
    });
    changed.map_err(|why| Error::Line(format!("ERR {}", one_line(&why)).into()))?;
    worker.refresh_if_changed();
    caller.reply().ok();
    Ok(())
}

pub(crate) fn acl_save(worker: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    let path = worker.outlet.settings.aclfile.clone().ok_or(NO_FILE)?;
    let shared = &worker.shared;
    let text = || Ok(shared.settings.current().acl.file_text());
    if let Err(error) = replace_file(Path::new(&path), text) {
        let why = redline_net::error_text(&error);
        log::warning(&format!("Saving the users to '{path}': {why}"));
        return Err(Error::line(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
        )
        .into());
    }
    caller.reply().ok();
    Ok(())
}

/// Returns an error text on one line, whatever a rule repeats.
fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}
