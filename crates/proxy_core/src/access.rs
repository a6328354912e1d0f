//! Identity of a client, and the check of its rights to a call. Every call of a client with limited rights is checked
//! here, queued ones of transactions too; those of other clients never are. Knows the users of the configuration; no
//! servers.

use std::collections::HashMap;
use std::sync::Arc;

use redline_acl::{DEFAULT_USER, KeyUse, NO_AUTH, NO_PASSWORD, Reason, User, WRONG_PASSWORD};
use redline_proxy_config::{self as config, Config};
use redline_resp::Args;
use redline_spec::{self as spec, CommandId, Flags};

use crate::client::Client;
use crate::clients::Clients;
use crate::context::Context;
use crate::rate_limit::Rates;
use crate::shared::Shared;
use crate::shell::Shell;
use crate::slab::Ref;

/// The configured users, and the rate limits that all clients of a user share.
#[derive(Debug)]
pub struct Identities {
    configured: config::Identities,
    /// By name, of the users that have rate limits.
    rates: HashMap<Vec<u8>, Arc<Rates>>,
}

impl Identities {
    /// Returns the users of a configuration; none: it has none, and every client may call everything.
    pub fn of(config: &Config) -> Result<Option<Identities>, String> {
        if config.users.is_empty() {
            return Ok(None);
        }
        let limited = config.users.iter().filter_map(|user| {
            let rates = Rates::of(user)?;
            Some((user.name.clone().into_bytes(), Arc::new(rates)))
        });
        Ok(Some(Identities {
            configured: config::Identities::of(config)?,
            rates: limited.collect(),
        }))
    }
}

impl Shared {
    /// Sets the user of a new client: the default user, or none.
    pub(crate) fn introduce<S: Shell>(&self, client: &mut Client<S>) {
        if let Some(identities) = &self.identities {
            let users = &identities.configured.users;
            match users.login_required() {
                true => {
                    (client.user, client.has_limits, client.rates) = (None, true, None);
                    client.info.set_user(DEFAULT_USER);
                }
                false => self.become_user(client, identities, users.default_user()),
            }
        } else {
            client.info.set_user(DEFAULT_USER);
        }
        self.watch(client);
    }

    fn become_user<S: Shell>(
        &self,
        client: &mut Client<S>,
        identities: &Identities,
        user: &Arc<User>,
    ) {
        client.has_limits = !user.is_unrestricted();
        client.user = Some(Arc::clone(user));
        client.rates = identities.rates.get(user.name()).cloned();
        client.info.set_user(user.name());
        self.watch(client);
    }
}

/// Keys that a call reads or changes though none of its arguments names them.
#[derive(Debug, PartialEq, Eq)]
enum Unnamed<'a> {
    /// Any key, with this use.
    Every(KeyUse),
    /// It returns those that match this pattern.
    Like(&'a [u8]),
}

/// Handles AUTH, with a password alone or with a name. An error is the reply, and changes nothing.
pub(crate) fn log_in<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    name: Option<&[u8]>,
    password: &[u8],
) -> Result<(), &'static str> {
    let Some(identities) = ctx.shared.identities.clone() else {
        return match name {
            None => Err(NO_PASSWORD),
            Some(DEFAULT_USER) => Ok(()),
            Some(_) => Err(WRONG_PASSWORD),
        };
    };
    let users = &identities.configured.users;
    let default_is_open = users.default_user().takes_any_password();
    let name = match (name, identities.configured.name_of(password)) {
        (Some(name), _) => name,
        (None, Some(name)) => name.as_bytes(),
        (None, None) if !default_is_open => DEFAULT_USER,
        // Any password would do for the default user: a wrong one must not pass here.
        (None, None) if identities.configured.has_passwords() => return Err(WRONG_PASSWORD),
        (None, None) => return Err(NO_PASSWORD),
    };
    let user = users.authenticate(name, password).ok_or(WRONG_PASSWORD)?;
    if let Some(client) = ctx.clients.find(me) {
        ctx.shared.become_user(client, &identities, user);
    }
    Ok(())
}

/// Returns true if there is a user of this name.
pub fn has_user<S: Shell>(ctx: &Context<S>, name: &[u8]) -> bool {
    match &ctx.shared.identities {
        Some(identities) => identities.configured.users.get(name).is_some(),
        None => name == DEFAULT_USER,
    }
}

/// Returns true if the client has limits and has not authenticated yet.
pub(crate) fn is_nobody<S: Shell>(clients: &mut Clients<S>, me: Ref) -> bool {
    let client = clients.find(me);
    client.is_some_and(|client| client.has_limits && client.user.is_none())
}

/// Returns the name of the client's user.
pub(crate) fn user_name<S: Shell>(clients: &mut Clients<S>, me: Ref) -> Vec<u8> {
    let user = clients.find(me).and_then(|client| client.user.clone());
    user.map_or(DEFAULT_USER.to_vec(), |user| user.name().to_vec())
}

/// Returns why the client may not learn all keys; `None`: it may. The same check as for SCAN.
pub(crate) fn refusal_of_every_key<S: Shell>(clients: &mut Clients<S>, me: Ref) -> Option<String> {
    let client = clients.find(me).filter(|client| client.has_limits)?;
    let Some(user) = client.user.clone() else {
        return Some(NO_AUTH.to_owned());
    };
    let words: [&[u8]; 2] = [b"scan", b"0"];
    let id = CommandId::Scan;
    let may = user.check_every_key(id, words.len(), |at| words[at], KeyUse::READ);
    let text = || user.refusal(Reason::Key, spec::row(id).full_name, b"", false);
    (!may).then(|| format!("NOPERM {}", text()))
}

/// Returns true if the client may receive messages about this key.
pub(crate) fn may_hear_of<S: Shell>(clients: &mut Clients<S>, me: Ref, key: &[u8]) -> bool {
    let client = clients.find(me);
    client.is_some_and(|client| match &client.user {
        _ if !client.has_limits => true,
        Some(user) => user.allows_key(key, KeyUse::READ),
        None => false,
    })
}

/// Returns why the client may not make this call; `None`: it may.
pub fn refusal<S: Shell>(
    clients: &mut Clients<S>,
    me: Ref,
    id: CommandId,
    args: Args<'_>,
) -> Option<String> {
    let client = clients.find(me).filter(|client| client.has_limits)?;
    if spec::gate(id).flags.has(Flags::NO_AUTH) {
        return None;
    }
    let Some(user) = client.user.clone() else {
        return Some(NO_AUTH.to_owned());
    };
    let arg = |at| args.get(at).unwrap_or_default();
    if let Err(denied) = user.check(id, args.len(), arg) {
        let text = user.refusal(
            denied.reason,
            spec::row(id).full_name,
            arg(denied.position),
            false,
        );
        return Some(format!("NOPERM {text}"));
    }
    let may = match unnamed(id, args) {
        None => true,
        Some(Unnamed::Every(needed)) => user.check_every_key(id, args.len(), arg, needed),
        Some(Unnamed::Like(pattern)) => {
            user.check_keys_like(id, args.len(), arg, pattern, KeyUse::READ)
        }
    };
    if !may {
        let text = user.refusal(Reason::Key, spec::row(id).full_name, b"", false);
        return Some(format!("NOPERM {text}"));
    }
    // BY and GET read keys that no argument names.
    let option = |name: &'static str| {
        let mut words = args.iter().skip(2);
        let is_there = words.any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
        is_there.then_some(name)
    };
    if matches!(id, CommandId::Sort | CommandId::SortRo)
        && let Some(name) = option("BY").or_else(|| option("GET"))
        && !user.check_every_key(id, args.len(), arg, KeyUse::READ)
    {
        return Some(format!(
            "ERR {name} option of SORT denied due to insufficient ACL permissions"
        ));
    }
    None
}

fn unnamed(id: CommandId, args: Args<'_>) -> Option<Unnamed<'_>> {
    use CommandId::*;
    let changes = KeyUse {
        read: false,
        write: true,
    };
    Some(match id {
        Keys => args
            .get(1)
            .map_or(Unnamed::Every(KeyUse::READ), Unnamed::Like),
        Scan => shown_by_scan(args).map_or(Unnamed::Every(KeyUse::READ), Unnamed::Like),
        Randomkey | Monitor | SlowlogGet => Unnamed::Every(KeyUse::READ),
        Flushall | Flushdb => Unnamed::Every(changes),
        // The keys that a script uses without declaring them are not known.
        Eval | Evalsha | Fcall => Unnamed::Every(KeyUse::ALL),
        EvalRo | EvalshaRo | FcallRo => Unnamed::Every(KeyUse::READ),
        _ => return None,
    })
}

/// Returns the pattern of a SCAN; none: it has none, or its options are not understood. The last one counts.
fn shown_by_scan(args: Args<'_>) -> Option<&[u8]> {
    let mut pattern = None;
    for at in (2..args.len()).step_by(2) {
        let is = |name: &str| args[at].eq_ignore_ascii_case(name.as_bytes());
        match args.get(at + 1) {
            Some(word) if is("MATCH") => pattern = Some(word),
            Some(_) if is("COUNT") || is("TYPE") => {}
            _ => return None,
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_args;

    #[test]
    fn a_scan_shows_the_keys_of_its_last_pattern_and_any_if_it_is_not_understood() {
        for (words, pattern) in [
            (&["SCAN", "0"][..], None),
            (&["SCAN", "0", "MATCH", "a*"], Some(&b"a*"[..])),
            (
                &["SCAN", "0", "match", "a*", "COUNT", "9", "MATCH", "b*"],
                Some(b"b*"),
            ),
            (&["SCAN", "0", "MATCH", "a*", "NONSENSE", "1"], None),
            (&["SCAN", "0", "MATCH", "a*", "COUNT"], None),
        ] {
            with_args(words, |args| {
                assert_eq!(shown_by_scan(args), pattern, "{words:?}");
                let shown = pattern.map_or(Unnamed::Every(KeyUse::READ), Unnamed::Like);
                assert_eq!(unnamed(CommandId::Scan, args), Some(shown));
            });
        }
    }
}
