//! CLIENT TRACKING, CACHING, GETREDIR, TRACKINGINFO: how a connection is notified of changed keys.
//!
//! Must not know: how the changes are found.

use std::{
    collections::BTreeSet,
    mem,
    ops::Bound::{Included, Unbounded},
    sync::Arc,
};

use redline_commands::{Error, Words};
use redline_resp::Args;
use redline_spec::CommandId;
use redline_types::number;

use crate::{
    caller::Caller,
    executor::Halt,
    executor::{Executor, Outlet},
    tracking::{self, Mode},
};

/// Prefixes in the order of the call.
type Prefixes = Vec<Arc<[u8]>>;

pub(crate) fn client_tracking<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let engine = executor.engine;
    let words = |at| Words::new(CommandId::ClientTracking, &args, at);
    let (mut mode, named) = parse_options(executor, words(3))?;
    let on = words(2).one_of(&[("ON", true), ("OFF", false)]);
    if !on.ok_or(Error::Syntax)? {
        tracking::end(engine, caller);
        caller.reply().ok();
        return Ok(());
    }
    check_options(caller, &mode, &named)?;
    if mode.broadcast {
        check_overlaps(caller, &named)?;
    }
    let prefixes = match (mode.broadcast, named.is_empty()) {
        (false, _) => Vec::new(),
        (true, true) => vec![Arc::default()],
        (true, false) => named,
    };
    if let Some(before) = &mut caller.tracking {
        mode.prefixes = mem::take(&mut before.prefixes);
        mode.pending = mem::take(&mut before.pending);
        mode.caching = before.caching;
    }
    let fresh: Vec<Arc<[u8]>> = prefixes
        .into_iter()
        .filter(|prefix| mode.prefixes.insert(prefix.clone()))
        .collect();
    if caller.tracking.is_none() {
        O::drop_old_invalidations(executor, caller);
    }
    tracking::begin(engine, caller, mode);
    for prefix in &fresh {
        engine.tracking.add_prefix(prefix, caller.info.token());
        caller.note_registered(prefix);
    }
    caller.reply().ok();
    Ok(())
}

/// Parses the options: returns the mode, and the prefixes in the order of the call.
fn parse_options<O: Outlet>(
    executor: &Executor<'_, O>,
    mut words: Words<'_>,
) -> Result<(Mode, Prefixes), Error> {
    let mut mode = Mode::default();
    let mut prefixes = Vec::new();
    while !words.is_empty() {
        if let Some(id) = words.value("REDIRECT") {
            if mode.redirect.is_some() {
                return Err(Error::line(
                    "ERR A client can only redirect to a single other client",
                ));
            }
            let id = number::parse_i64(id).ok_or(Error::NotInteger)?;
            let clients = executor.engine.clients();
            let known = u64::try_from(id).ok().filter(|id| clients.contains_key(id));
            mode.redirect = Some(known.ok_or(Error::line(
                "ERR The client ID you want redirect to does not exist",
            ))?);
        } else if words.flag("BCAST") {
            mode.broadcast = true;
        } else if words.flag("OPTIN") {
            mode.opt_in = true;
        } else if words.flag("OPTOUT") {
            mode.opt_out = true;
        } else if words.flag("NOLOOP") {
            mode.no_loop = true;
        } else if let Some(prefix) = words.value("PREFIX") {
            prefixes.push(prefix.into());
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok((mode, prefixes))
}

/// Checks that the options go together, and with the mode that the client is in.
fn check_options(caller: &Caller, mode: &Mode, prefixes: &[Arc<[u8]>]) -> Result<(), Error> {
    let before = caller.tracking.as_deref();
    let refuse = |text| Err(Error::line(text));
    if !mode.broadcast && !prefixes.is_empty() {
        return refuse("ERR PREFIX option requires BCAST mode to be enabled");
    }
    if before.is_some_and(|before| before.broadcast != mode.broadcast) {
        return refuse(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.",
        );
    }
    if mode.broadcast && (mode.opt_in || mode.opt_out) {
        return refuse("ERR OPTIN and OPTOUT are not compatible with BCAST");
    }
    if mode.opt_in && mode.opt_out {
        return refuse("ERR You can't specify both OPTIN mode and OPTOUT mode");
    }
    let switched =
        |before: &Mode| (mode.opt_in && before.opt_out) || (mode.opt_out && before.opt_in);
    if before.is_some_and(switched) {
        return refuse(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.",
        );
    }
    Ok(())
}

/// Checks that no prefix of a client begins with another one: a key would be reported twice.
fn check_overlaps(caller: &Caller, named: &[Arc<[u8]>]) -> Result<(), Error> {
    let none = BTreeSet::new();
    let existing = caller
        .tracking
        .as_ref()
        .map_or(&none, |mode| &mode.prefixes);
    // Longer prefixes that begin with it stand right behind it, and its own beginnings are found among those before it.
    let met = |prefix: &[u8]| {
        let up_to = |bound: &[u8]| {
            Some((
                existing
                    .range::<[u8], _>((Unbounded, Included(bound)))
                    .next_back()?,
                (),
            ))
        };
        // The shortest comes first.
        let begins = tracking::beginnings(prefix, up_to).last();
        let behind = existing
            .range::<[u8], _>((Included(prefix), Unbounded))
            .next();
        let behind = behind.filter(|other| other.starts_with(prefix));
        begins.map(|(other, ())| other).or(behind)
    };
    let refuse = |new: &[u8], what: &str, other: &[u8]| {
        let overlaps = format!("' overlaps with {what} prefix '");
        let start = Error::quoting("ERR Prefix '", new, &overlaps);
        let why = "'. Prefixes for a single client must not overlap.";
        Err(Error::quoting(&start.text(), other, why))
    };
    let first = first_overlap(named);
    for (at, prefix) in named.iter().enumerate() {
        if let Some(other) = met(prefix) {
            return refuse(prefix, "an existing", other);
        }
        if first == Some(at) {
            let overlap =
                |other: &&Arc<[u8]>| other.starts_with(prefix) || prefix.starts_with(other);
            let other = named[at + 1..].iter().find(overlap);
            return refuse(prefix, "another provided", other.expect("two overlap"));
        }
    }
    Ok(())
}

/// Returns the place of the first that overlaps with a later one.
fn first_overlap(named: &[Arc<[u8]>]) -> Option<usize> {
    let mut sorted: Vec<(&[u8], usize)> = (0..named.len()).map(|at| (&*named[at], at)).collect();
    sorted.sort_unstable();
    // Each of these begins with the one before it.
    let mut nested: Vec<(&[u8], usize)> = Vec::new();
    let mut first = None;
    for (prefix, at) in sorted {
        while nested
            .last()
            .is_some_and(|(outer, _)| !prefix.starts_with(outer))
        {
            nested.pop();
        }
        if let Some((_, outer_at)) = nested.last() {
            let earlier = at.min(*outer_at);
            first = Some(first.map_or(earlier, |first: usize| first.min(earlier)));
        }
        nested.push((prefix, at));
    }
    first
}

pub(crate) fn client_caching<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let Some(mode) = &mut caller.tracking else {
        return Err(Error::line(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        )
        .into());
    };
    let mut words = Words::new(CommandId::ClientCaching, &args, 2);
    if words.flag("YES") {
        if !mode.opt_in {
            return Err(Error::line(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            )
            .into());
        }
    } else if words.flag("NO") {
        if !mode.opt_out {
            return Err(Error::line(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            )
            .into());
        }
    } else {
        return Err(Error::Syntax.into());
    }
    mode.caching = true;
    caller.reply().ok();
    Ok(())
}

pub(crate) fn client_getredir<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let redirect = redirect_of(caller);
    caller.reply().integer(redirect);
    Ok(())
}

pub(crate) fn client_trackinginfo<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let redirect = redirect_of(caller);
    let off = Mode::default();
    // Taken out, since the reply needs the session.
    let own = caller.tracking.take();
    let mode = own.as_deref().unwrap_or(&off);
    let flags: Vec<&str> = [
        (own.is_some(), "on"),
        (own.is_none(), "off"),
        (mode.broadcast, "bcast"),
        (mode.opt_in, "optin"),
        (mode.opt_in && mode.caching, "caching-yes"),
        (mode.opt_out, "optout"),
        (mode.opt_out && mode.caching, "caching-no"),
        (mode.no_loop, "noloop"),
        (mode.broken, "broken_redirect"),
    ]
    .into_iter()
    .filter_map(|(set, name)| set.then_some(name))
    .collect();
    let mut reply = caller.reply();
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|name| reply.bulk(name.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(redirect);
    reply.bulk(b"prefixes");
    reply.array(mode.prefixes.len());
    mode.prefixes.iter().for_each(|prefix| reply.bulk(prefix));
    caller.tracking = own;
    Ok(())
}

/// Returns the id of the client that is notified. -1: it does not track; 0: itself.
fn redirect_of(caller: &Caller) -> i64 {
    let mode = caller.tracking.as_ref();
    mode.map_or(-1, |mode| mode.redirect.map_or(0, |id| id as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_overlap_is_found_among_any() {
        let mut rng = fastrand::Rng::with_seed(9);
        for _ in 0..5_000 {
            let mut word = || -> Arc<[u8]> { (0..rng.usize(1..5)).map(|_| rng.u8(..4)).collect() };
            let named: Vec<Arc<[u8]>> = (0..5).map(|_| word()).collect();
            let overlaps = |at: &usize| {
                let (prefix, mut later) = (&named[*at], named[at + 1..].iter());
                later.any(|other| other.starts_with(prefix) || prefix.starts_with(other))
            };
            assert_eq!(first_overlap(&named), (0..5).find(overlaps));
        }
    }
}
