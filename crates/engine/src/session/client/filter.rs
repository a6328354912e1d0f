//! Filters of CLIENT LIST and CLIENT KILL: Redis's, and those that Valkey has besides (names, flags, addresses, the
//! database, and each of them negated).
//!
//! Must not know: sessions, how a client is closed.

use std::sync::atomic::Ordering;

use redline_commands::Error;
use redline_resp::Args;
use redline_types::number;

use super::{flag_letters, quoted};
use crate::{
    caller::{ClientInfo, flag},
    executor::{Executor, Outlet},
};

/// Conditions, all of which a client has to meet.
pub(super) struct Filters {
    conditions: Vec<Condition>,
    /// True if the calling client is left out.
    pub skip_me: bool,
}

struct Condition {
    field: Field,
    /// True if the condition must not be met.
    negated: bool,
}

#[derive(Clone, PartialEq, Eq)]
enum Field {
    /// Ids in the order of the arguments.
    Ids(Vec<u64>),
    Class(Class),
    User(Vec<u8>),
    Addr(Vec<u8>),
    Laddr(Vec<u8>),
    Ip(Vec<u8>),
    Name(Vec<u8>),
    Library(Vec<u8>),
    LibraryVersion(Vec<u8>),
    Db(u32),
    /// Letters of CLIENT LIST's flags field.
    Flags(Vec<u8>),
    /// Capabilities declared by CLIENT CAPA, by letters as well.
    Capabilities(Vec<u8>),
    /// Least number of seconds since it connected.
    Age(i64),
    /// Least number of seconds since it was last active.
    Idle(i64),
}

/// Kinds of clients for the filter TYPE.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Normal,
    Primary,
    Replica,
    Pubsub,
}

/// All letters for flags, whether or not a client of ours can have them.
const FLAGS: &[u8] = b"ABENMOPRSTUbcdeirtux";
/// All letters for capabilities.
const CAPABILITIES: &[u8] = b"r";

impl Filters {
    /// Returns the filter of CLIENT KILL addr.
    pub fn of_address(addr: &[u8]) -> Filters {
        Filters {
            conditions: vec![Condition {
                field: Field::Addr(addr.to_vec()),
                negated: false,
            }],
            skip_me: false,
        }
    }

    /// Parses CLIENT KILL filter value [filter value …]
    pub fn of_kill<O: Outlet>(
        args: Args<'_>,
        executor: &Executor<'_, O>,
    ) -> Result<Filters, Error> {
        let filters = Filters {
            conditions: Vec::new(),
            skip_me: true,
        };
        filters.parse(args.from(2), executor)
    }

    /// Parses CLIENT LIST [filter value …]
    pub fn of_list<O: Outlet>(
        args: Args<'_>,
        executor: &Executor<'_, O>,
    ) -> Result<Filters, Error> {
        let words = args.from(2);
        // In Redis ids follow it to the end, and nothing else may begin with another word.
        let wrong = match words.get(0) {
            Some(first) if first.eq_ignore_ascii_case(b"id") && words.len() > 1 => {
                Error::line("ERR Invalid client ID")
            }
            _ => Error::Syntax,
        };
        // Redis checks the words before any value.
        let mut at = 0;
        while let Some(word) = words.get(at) {
            if Filter::named(word).is_none() || words.len() == at + 1 {
                return Err(wrong);
            }
            at += 2;
            if word.eq_ignore_ascii_case(b"id") || word.eq_ignore_ascii_case(b"not-id") {
                let first = &words[at - 1];
                let ids = words.from(at);
                at += ids.iter().take_while(|id| is_id(id)).count();
                let stray = words
                    .get(at)
                    .is_some_and(|word| Filter::named(word).is_none());
                if stray || !is_id(first) {
                    return Err(wrong);
                }
            }
        }
        let filters = Filters {
            conditions: Vec::new(),
            skip_me: false,
        };
        filters.parse(words, executor)
    }

    /// Returns true if these are numbers and nothing else, at least one.
    pub fn are_ids(words: Args<'_>) -> bool {
        !words.is_empty() && words.iter().all(is_id)
    }

    fn parse<O: Outlet>(
        mut self,
        words: Args<'_>,
        executor: &Executor<'_, O>,
    ) -> Result<Filters, Error> {
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let value = words.get(at + 1).ok_or(Error::Syntax)?;
            let Filter { name, negated } = Filter::named(word).ok_or(Error::Syntax)?;
            at += 2;
            let field = match name {
                "skipme" => {
                    self.skip_me = match value.to_ascii_lowercase().as_slice() {
                        b"yes" => true,
                        b"no" => false,
                        _ => return Err(Error::Syntax),
                    };
                    continue;
                }
                "id" => {
                    let mut ids = vec![client_id(value)?];
                    while let Some(more) = words.get(at).filter(|more| is_id(more)) {
                        ids.push(client_id(more)?);
                        at += 1;
                    }
                    ids.sort_unstable();
                    Field::Ids(ids)
                }
                "user" => {
                    if executor.settings.acl.get(value).is_none() {
                        return Err(Error::quoting("ERR No such user '", value, "'"));
                    }
                    Field::User(value.to_vec())
                }
                "maxage" => Field::Age(seconds(value, name)?),
                "idle" => Field::Idle(seconds(value, name)?),
                "type" => Field::Class(Class::parse(value)?),
                "addr" => Field::Addr(value.to_vec()),
                "laddr" => Field::Laddr(value.to_vec()),
                "ip" => Field::Ip(value.to_vec()),
                "name" => Field::Name(value.to_vec()),
                "lib-name" => Field::Library(value.to_vec()),
                "lib-ver" => Field::LibraryVersion(value.to_vec()),
                "db" => Field::Db(database(value, executor)?),
                "flags" => Field::Flags(letters(value, FLAGS, "flags")?),
                _ => Field::Capabilities(letters(value, CAPABILITIES, "capa")?),
            };
            // The last one of a kind counts.
            let kind = std::mem::discriminant(&field);
            self.conditions.retain(|other| {
                std::mem::discriminant(&other.field) != kind || other.negated != negated
            });
            self.conditions.push(Condition { field, negated });
        }
        Ok(self)
    }

    /// Returns true if a client meets all conditions, at this Unix time in milliseconds.
    pub fn admit(&self, info: &ClientInfo, now_ms: i64) -> bool {
        self.conditions
            .iter()
            .all(|condition| condition.field.is_met(info, now_ms / 1000) != condition.negated)
    }
}

/// The keyword of a filter.
struct Filter {
    name: &'static str,
    negated: bool,
}

impl Filter {
    fn named(word: &[u8]) -> Option<Filter> {
        const NEGATABLE: &[&str] = &[
            "id", "type", "user", "addr", "laddr", "ip", "name", "lib-name", "lib-ver", "db",
            "flags", "capa",
        ];
        const PLAIN: &[&str] = &["maxage", "idle", "skipme"];
        let word = word.to_ascii_lowercase();
        let (bare, negated) = match word.strip_prefix(b"not-") {
            Some(bare) => (bare, true),
            None => (word.as_slice(), false),
        };
        let mut names = NEGATABLE.iter().chain(PLAIN.iter().filter(|_| !negated));
        let name = names.find(|name| name.as_bytes() == bare)?;
        Some(Filter { name, negated })
    }
}

impl Field {
    fn is_met(&self, info: &ClientInfo, now_s: i64) -> bool {
        let names = || info.names();
        match self {
            Field::Ids(ids) => ids.binary_search(&info.id).is_ok(),
            Field::Class(class) => *class == Class::of(info),
            Field::User(user) => names().user == *user,
            Field::Addr(addr) => info.addr.as_bytes() == addr,
            Field::Laddr(laddr) => info.laddr.as_bytes() == laddr,
            Field::Ip(ip) => {
                let (host, _) = info.addr.rsplit_once(':').unwrap_or((&info.addr, ""));
                host.trim_start_matches('[')
                    .trim_end_matches(']')
                    .as_bytes()
                    == ip
            }
            Field::Name(name) => names().name == *name,
            Field::Library(name) => names().library == *name,
            Field::LibraryVersion(version) => names().library_version == *version,
            Field::Db(db) => info.db.load(Ordering::Relaxed) == *db,
            Field::Flags(wanted) => {
                let letters = flag_letters(info);
                wanted
                    .iter()
                    .all(|letter| letters.as_bytes().contains(letter))
            }
            // The only capability.
            Field::Capabilities(_) => {
                info.flags.load(Ordering::Relaxed) & flag::FOLLOWS_REDIRECTS != 0
            }
            Field::Age(age_s) => now_s - (info.created_ms / 1000) as i64 >= *age_s,
            Field::Idle(idle_s) => {
                now_s - i64::from(info.active_s.load(Ordering::Relaxed)) >= *idle_s
            }
        }
    }
}

impl Class {
    fn parse(name: &[u8]) -> Result<Class, Error> {
        const NAMES: [(&str, Class); 6] = [
            ("normal", Class::Normal),
            ("master", Class::Primary),
            ("primary", Class::Primary),
            ("replica", Class::Replica),
            ("slave", Class::Replica),
            ("pubsub", Class::Pubsub),
        ];
        let known = NAMES
            .iter()
            .find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name));
        known
            .map(|(_, class)| *class)
            .ok_or_else(|| quoted("ERR Unknown client type", name))
    }

    fn of(info: &ClientInfo) -> Class {
        let flags = info.flags.load(Ordering::Relaxed);
        if flags & flag::PRIMARY != 0 {
            Class::Primary
        } else if flags & flag::REPLICA != 0 {
            Class::Replica
        } else if flags & flag::PUBSUB != 0 {
            Class::Pubsub
        } else {
            Class::Normal
        }
    }
}

fn is_id(word: &[u8]) -> bool {
    number::parse_i64(word).is_some()
}

fn client_id(word: &[u8]) -> Result<u64, Error> {
    number::parse_i64(word)
        .and_then(|id| u64::try_from(id).ok())
        .filter(|id| *id > 0)
        .ok_or(Error::line("ERR client-id should be greater than 0"))
}

fn seconds(word: &[u8], name: &str) -> Result<i64, Error> {
    let line = |text: &str| Error::Line(format!("ERR {name} {text}").into());
    let seconds =
        number::parse_i64(word).ok_or_else(|| line("is not an integer or out of range"))?;
    if seconds <= 0 {
        return Err(line("should be greater than 0"));
    }
    Ok(seconds)
}

fn database<O: Outlet>(word: &[u8], executor: &Executor<'_, O>) -> Result<u32, Error> {
    let number =
        number::parse_i64(word).ok_or(Error::line("ERR DB is not an integer or out of range"))?;
    let count = executor.engine.keyspace.databases();
    u32::try_from(number)
        .ok()
        .filter(|db| *db < count)
        .ok_or_else(|| {
            let text = format!("ERR DB number should be between 0 and {}", count - 1);
            Error::Line(text.into())
        })
}

fn letters(word: &[u8], known: &[u8], what: &str) -> Result<Vec<u8>, Error> {
    match word.iter().all(|letter| known.contains(letter)) {
        true => Ok(word.to_vec()),
        false => {
            let before = format!("ERR Unknown {what} found in the provided filter: ");
            Err(Error::quoting(&before, word, ""))
        }
    }
}
