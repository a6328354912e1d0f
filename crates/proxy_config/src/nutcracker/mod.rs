//! nutcracker's (twemproxy's) file as our configuration: every directive of nutcracker 0.5.0.
//!
//! YAML is read as a stream of events, so that nothing in a file is larger in memory than in the file: aliases, which
//! nutcracker does not read either, are refused and not expanded.

use std::collections::BTreeMap;
use std::path::Path;

use saphyr_parser::{Event, Parser};

use super::converted::{Converted, Note};
use super::source::text_of;
use super::users::stored;
use super::*;

use redline_spec::nearest;

/// Directives of a pool.
const DIRECTIVES: &[&str] = &[
    "listen",
    "hash",
    "hash_tag",
    "distribution",
    "timeout",
    "backlog",
    "preconnect",
    "redis",
    "redis_auth",
    "redis_db",
    "server_connections",
    "auto_eject_hosts",
    "server_retry_timeout",
    "server_failure_limit",
    "servers",
    "tcpkeepalive",
    "client_connections",
    "reuse_port",
];

/// The port that memcached has, which is left out of the name of a server without one.
const MEMCACHED_PORT: u16 = 11211;

/// Returns true if this is a file as nutcracker has it, faultless or not: a pool begins, and has `listen` or `servers`.
pub fn is_its_file(text: &str) -> bool {
    let begins = |key: &str| text.lines().any(|line| line.trim_start().starts_with(key));
    begins("listen:") && begins("servers:")
}

/// Reads the file. An error names file and line.
pub fn read(path: &Path) -> Result<Converted, String> {
    let text = text_of(path)?;
    let shown = path.display().to_string();
    convert(&shown, &text)
}

/// Converts the text of the file `shown`.
pub fn convert(shown: &str, text: &str) -> Result<Converted, String> {
    let file = File { shown };
    let pools = file.pools(text)?;
    if pools.is_empty() {
        return Err(format!("{shown}: there is no pool in it"));
    }
    let mut converted = Converted {
        config: Config::default(),
        notes: Vec::new(),
    };
    let mut timeouts = Vec::new();
    let several = pools.len() > 1;
    for pool in pools {
        timeouts.extend(file.pool(&pool, several, &mut converted)?);
    }
    if timeouts.is_empty() {
        return Err(format!(
            "{shown}: no pool is of Redis (redis: true), and the proxy does not speak memcached"
        ));
    }
    users(shown, &mut converted);
    // Time-outs are the proxy's, not a pool's: the longest, none being endless.
    let longest = match timeouts.iter().any(|timeout| timeout.on().is_none()) {
        true => Span::default(),
        false => timeouts.iter().copied().max().unwrap_or_default(),
    };
    let all = &mut converted.config.timeouts;
    all.request = longest;
    if longest.on().is_some() {
        all.connect = longest;
    }
    if timeouts.iter().any(|timeout| *timeout != longest) {
        converted.notes.push(Note::other(format!(
            "{shown}: pools have different timeouts; {longest} holds for all of them"
        )));
    }
    if longest.on().is_none() {
        converted.notes.push(Note::other(format!(
            "{shown}: without timeout a request may wait for ever; a server that hangs is marked down all the same"
        )));
    }
    Ok(converted)
}

/// Makes users of the pools' passwords, which nutcracker demands of its clients, too. Users are the proxy's, not a pool's.
fn users(shown: &str, converted: &mut Converted) {
    let Config { pools, users, .. } = &mut converted.config;
    for pool in pools.iter() {
        let Some(password) = pool.password.as_deref().map(stored) else {
            continue;
        };
        if users
            .iter()
            .any(|user| user.password.as_ref() == Some(&password))
        {
            continue;
        }
        let (name, by_password) = match users.len() {
            0 => ("default".to_owned(), false),
            others => (format!("auth-{}", others + 1), true),
        };
        users.push(User {
            name,
            by_password,
            password: Some(password),
            mode: Some(Mode::Write),
            ..User::default()
        });
    }
    if users.len() > 1 {
        converted.notes.push(Note::other(format!(
            "{shown}: pools have different redis_auth: each of these passwords lets a client into every pool"
        )));
    }
    let is_open = |pool: &&Pool| pool.password.is_none();
    if let Some(open) = pools.iter().find(is_open).filter(|_| !users.is_empty()) {
        converted.notes.push(Note::other(format!(
            "{shown}: pool {} has no redis_auth, others have: its clients need one of those passwords, too. Two files keep it open",
            open.name
        )));
    }
}

/// A value, and the line on which it stands.
struct Scalar {
    text: String,
    line: usize,
}

/// A directive's value.
enum Value {
    One(Scalar),
    Many(Vec<Scalar>),
}

struct PoolLines {
    name: Scalar,
    directives: Vec<(Scalar, Value)>,
}

/// The file, for errors.
struct File<'a> {
    shown: &'a str,
}

impl File<'_> {
    fn says(&self, line: usize, what: impl std::fmt::Display) -> String {
        format!("{}:{line}: {what}", self.shown)
    }

    /// Returns the pools, in which each directive stands once.
    fn pools(&self, text: &str) -> Result<Vec<PoolLines>, String> {
        let mut events = Events {
            file: self,
            parser: Parser::new_from_str(text),
        };
        let mut pools: Vec<PoolLines> = Vec::new();
        if !events.begin()? {
            return Ok(pools);
        }
        while let Some(name) = events.key("the name of a pool")? {
            if let Some(other) = pools.iter().find(|pool| pool.name.text == name.text) {
                return Err(self.says(
                    name.line,
                    format!(
                        "pool {}: there is one of this name on line {}",
                        name.text, other.name.line
                    ),
                ));
            }
            let directives = events.directives(&name)?;
            pools.push(PoolLines { name, directives });
        }
        events.end()?;
        Ok(pools)
    }

    /// Adds a pool of Redis with its listener, and returns its timeout.
    fn pool(
        &self,
        lines: &PoolLines,
        several: bool,
        converted: &mut Converted,
    ) -> Result<Option<Span>, String> {
        let name = &lines.name.text;
        let mut pool = Pool {
            name: name.clone(),
            databases: 1,
            hash: HashKind::Fnv1a64,
            hash_tag: String::new(),
            ..Pool::default()
        };
        let notes = &mut converted.notes;
        let (mut listen, mut timeout, mut servers) = (None, Span::default(), None);
        let mut ejects = (false, 2, Span::seconds(30));
        let mut is_redis = false;
        for (key, value) in &lines.directives {
            let one = || match value {
                Value::One(one) => Ok(one.text.as_str()),
                Value::Many(_) => Err(self.says(key.line, format!("{} is one value", key.text))),
            };
            let wrong = |what: &str| {
                let given = one().unwrap_or_default();
                Err(self.says(key.line, format!("{} is {what}, not \"{given}\"", key.text)))
            };
            let number = |what: &str| match one()?.parse::<u32>() {
                Ok(number) => Ok(number),
                Err(_) => wrong(what).map(|()| 0),
            };
            let truth = || match one()? {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => wrong("true or false").map(|()| false),
            };
            let note = |what: &str| self.says(key.line, format!("{}: {what}", key.text));
            match key.text.as_str() {
                "listen" => {
                    let (place, mode) = match one()?.split_once(' ') {
                        Some((place, mode)) => (place, Some(mode.trim())),
                        None => (one()?, None),
                    };
                    let bind: Place = place.parse().map_err(|what| self.says(key.line, what))?;
                    if let (Place::Unix(_), Some(mode)) = (&bind, mode) {
                        notes.push(Note::other(note(&format!(
                            "the socket gets the rights that umask leaves, not {mode}"
                        ))));
                    }
                    listen = Some(bind);
                }
                "hash" => match hash_of(one()?) {
                    Some(hash) => pool.hash = hash,
                    None => {
                        let names: Vec<&str> = HASHES.iter().map(|(name, _)| *name).collect();
                        wrong(&format!("one of {}", names.join(", ")))?;
                    }
                },
                "hash_tag" => match one()? {
                    tag if tag.len() == 2 => pool.hash_tag = tag.to_owned(),
                    _ => wrong("two characters")?,
                },
                "distribution" => {
                    pool.distribution = match one()? {
                        "ketama" => DistributionKind::Ketama,
                        "modula" => DistributionKind::Modula,
                        "random" => DistributionKind::Random,
                        _ => {
                            wrong("ketama, modula or random")?;
                            continue;
                        }
                    }
                }
                "timeout" => {
                    timeout = Span::milliseconds(number("a number of milliseconds")?.into())
                }
                "redis" => is_redis = truth()?,
                "redis_auth" => {
                    pool.password = Some(Secret::from(one()?)).filter(|it| !it.is_empty())
                }
                "redis_db" => match number("the number of a database")? {
                    0 => {}
                    db => {
                        return Err(note(&format!(
                            "pools have no database of their own here: clients have to SELECT {db}; then take the line out"
                        )));
                    }
                },
                "auto_eject_hosts" => ejects.0 = truth()?,
                "server_failure_limit" => ejects.1 = number("a number of failures")?,
                "server_retry_timeout" => {
                    ejects.2 = Span::milliseconds(number("a number of milliseconds")?.into())
                }
                "backlog" => {
                    number("a number")?;
                    notes.push(Note::same(note(
                        "as many connections may wait to be accepted as net.core.somaxconn permits",
                    )));
                }
                "client_connections" => match number("a number of clients")? {
                    0 => {}
                    most => {
                        let limits = &mut converted.config.limits;
                        if several {
                            notes.push(Note::other(note(
                                "limits.clients is for all pools together: the sum of these",
                            )));
                            limits.clients = match limits.clients == Limits::default().clients {
                                true => most,
                                false => limits.clients.saturating_add(most),
                            };
                        } else {
                            limits.clients = most;
                        }
                    }
                },
                "preconnect" => {
                    truth()?;
                    notes.push(Note::same(note(
                        "connections are made when they are needed",
                    )));
                }
                "reuse_port" => {
                    truth()?;
                    notes.push(Note::same(note("workers share one listening socket")));
                }
                "server_connections" => {
                    number("a number of connections")?;
                    notes.push(Note::same(note(
                        "each worker has one connection to a server, which keeps the order of a client's requests",
                    )));
                }
                "tcpkeepalive" => {
                    if truth()? {
                        pool.keepalive = Span::seconds(300);
                    }
                }
                "servers" => servers = Some(self.servers(key, value)?),
                other => {
                    let meant = nearest(other, DIRECTIVES.iter().copied());
                    let meant = meant.map(|meant| format!("; did you mean {meant}?"));
                    return Err(self.says(
                        key.line,
                        format!("there is no directive {other}{}", meant.unwrap_or_default()),
                    ));
                }
            }
        }
        let line = lines.name.line;
        if !is_redis {
            converted.notes.push(Note::other(self.says(
                line,
                format!("pool {name} is of memcached, which the proxy does not speak: left out; one of Redis has redis: true"),
            )));
            return Ok(None);
        }
        let bind = listen.ok_or_else(|| self.says(line, format!("pool {name} has no listen")))?;
        let shards = servers.filter(|servers| !servers.is_empty());
        let mut shards =
            shards.ok_or_else(|| self.says(line, format!("pool {name} has no servers")))?;
        // nutcracker numbers servers in this order: modula counts in it.
        shards.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
        if let Some(twice) = shards.windows(2).find(|two| two[0].name == two[1].name) {
            return Err(self.says(
                line,
                format!("pool {name} has two servers of the name {}", twice[0].name),
            ));
        }
        pool.shards = shards;
        let (does_eject, limit, retry) = ejects;
        if does_eject {
            pool.failure = FailurePolicy {
                limit: limit.max(1),
                retry,
                retry_max: retry,
            };
            converted.notes.push(Note::other(self.says(
                line,
                format!("pool {name}: auto_eject_hosts: keys of a server that is marked down are on no other server meanwhile, so that data is not split; calls for them are errors"),
            )));
        }
        let mut listener = Listener::at(bind);
        listener.pool = several.then(|| name.clone());
        converted.config.listeners.push(listener);
        converted.config.pools.push(pool);
        Ok(Some(timeout))
    }

    /// Returns the servers of a pool, each a shard.
    fn servers(&self, key: &Scalar, value: &Value) -> Result<Vec<Shard>, String> {
        let Value::Many(lines) = value else {
            return Err(self.says(key.line, "servers is a list: - host:port:weight name"));
        };
        lines.iter().map(|line| self.server(line)).collect()
    }

    /// Parses `host:port:weight [name]`, or `/path:weight [name]`.
    fn server(&self, line: &Scalar) -> Result<Shard, String> {
        let wrong = || {
            let shown = &line.text;
            self.says(
                line.line,
                format!("a server is host:port:weight, or /path/of/a.socket:weight, and may have a name behind it, not \"{shown}\""),
            )
        };
        let (place, name) = match line.text.split_once(' ') {
            Some((place, name)) => (place, Some(name.trim())),
            None => (line.text.as_str(), None),
        };
        let (address, weight) = place.rsplit_once(':').ok_or_else(wrong)?;
        let weight: u32 = weight.parse().map_err(|_| wrong())?;
        let address: Place = address.parse().map_err(|_| wrong())?;
        let unnamed = || match &address {
            Place::Tcp { host, port } if *port == MEMCACHED_PORT => host.clone(),
            Place::Tcp { host, port } => format!("{host}:{port}"),
            Place::Unix(path) => path.display().to_string(),
        };
        let name = name.filter(|name| !name.is_empty());
        Ok(Shard {
            name: name.map_or_else(unnamed, str::to_owned),
            weight,
            servers: vec![Server {
                address,
                user: None,
                password: None,
            }],
        })
    }
}

/// Hash functions: nutcracker's names, and ours.
const HASHES: &[(&str, HashKind)] = &[
    ("one_at_a_time", HashKind::OneAtATime),
    ("md5", HashKind::Md5),
    ("crc16", HashKind::Crc16Twemproxy),
    ("crc32", HashKind::Crc32),
    ("crc32a", HashKind::Crc32a),
    ("fnv1_64", HashKind::Fnv164),
    ("fnv1a_64", HashKind::Fnv1a64),
    ("fnv1_32", HashKind::Fnv132),
    ("fnv1a_32", HashKind::Fnv1a32),
    ("hsieh", HashKind::Hsieh),
    ("murmur", HashKind::Murmur),
    ("jenkins", HashKind::Jenkins),
];

fn hash_of(name: &str) -> Option<HashKind> {
    let found = HASHES.iter().find(|(known, _)| *known == name);
    found.map(|(_, hash)| *hash)
}

/// The events of the file, of which only those that nutcracker takes are let through.
struct Events<'a> {
    file: &'a File<'a>,
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
}

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<(Event<'a>, usize), String> {
        match self.parser.next_event() {
            None => Ok((Event::StreamEnd, 0)),
            Some(Err(error)) => Err(self.file.says(
                error.marker().line().max(1),
                format!("no YAML: {}", error.info()),
            )),
            Some(Ok((event, span))) => {
                let line = span.start.line().max(1);
                match &event {
                    Event::Alias(_) => Err(self.file.says(line, "aliases are not read")),
                    Event::Scalar(_, _, anchor, _)
                    | Event::SequenceStart(anchor, _)
                    | Event::MappingStart(anchor, _)
                        if *anchor != 0 =>
                    {
                        Err(self.file.says(line, "anchors are not read"))
                    }
                    _ => Ok((event, line)),
                }
            }
        }
    }

    /// Goes to the outermost mapping. Returns false if there is none.
    fn begin(&mut self) -> Result<bool, String> {
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
                (Event::MappingStart(..), _) => return Ok(true),
                (Event::StreamEnd, _) => return Ok(false),
                (Event::Scalar(text, ..), _) if text.trim().is_empty() || text == "~" => {
                    return Ok(false);
                }
                (_, line) => {
                    return Err(self
                        .file
                        .says(line, "a file begins with the name of a pool and a colon"));
                }
            }
        }
    }

    /// Returns the next key of a mapping, or none at its end.
    fn key(&mut self, what: &str) -> Result<Option<Scalar>, String> {
        match self.next()? {
            (Event::MappingEnd, _) => Ok(None),
            (Event::Scalar(text, ..), line) => Ok(Some(Scalar {
                text: text.into_owned(),
                line,
            })),
            (_, line) => Err(self.file.says(line, format!("{what} is expected here"))),
        }
    }

    fn directives(&mut self, pool: &Scalar) -> Result<Vec<(Scalar, Value)>, String> {
        match self.next()? {
            (Event::MappingStart(..), _) => {}
            (_, line) => {
                return Err(self.file.says(
                    line,
                    format!("directives of pool {} are expected here, each on a line with a deeper indent", pool.text),
                ));
            }
        }
        let mut directives: Vec<(Scalar, Value)> = Vec::new();
        let mut lines = BTreeMap::new();
        while let Some(key) = self.key("a directive")? {
            if let Some(first) = lines.insert(key.text.clone(), key.line) {
                return Err(self.file.says(
                    key.line,
                    format!("{} stands on line {first} as well", key.text),
                ));
            }
            let value = match self.next()? {
                (Event::Scalar(text, ..), line) => Value::One(Scalar {
                    text: text.into_owned(),
                    line,
                }),
                (Event::SequenceStart(..), _) => Value::Many(self.list(&key)?),
                (_, line) => {
                    return Err(self
                        .file
                        .says(line, format!("{} has a value or a list", key.text)));
                }
            };
            directives.push((key, value));
        }
        Ok(directives)
    }

    fn list(&mut self, key: &Scalar) -> Result<Vec<Scalar>, String> {
        let mut all = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(all),
                (Event::Scalar(text, ..), line) => all.push(Scalar {
                    text: text.into_owned(),
                    line,
                }),
                (_, line) => {
                    return Err(self
                        .file
                        .says(line, format!("{} is a list of values", key.text)));
                }
            }
        }
    }

    fn end(&mut self) -> Result<(), String> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(()),
                (Event::DocumentEnd | Event::Nothing, _) => {}
                (_, line) => {
                    return Err(self
                        .file
                        .says(line, "one document is expected, and here begins another"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
