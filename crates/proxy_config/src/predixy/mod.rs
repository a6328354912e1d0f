//! predixy's file as our configuration: every directive of predixy 1.0.5, in its units.
//!
//! Differences in meaning are reported as notes. predixy's users are passwords without names: each becomes a user
//! `auth-N` that `AUTH password` finds; the one with the empty password is `default`.

mod file;

use std::path::Path;

use file::Line;
use redline_spec::nearest;

use super::commands::ids_of;
use super::converted::{Converted, Note};
use super::users::stored;
use super::*;

/// Returns true if this is a file as predixy has it, faultless or not: it begins with a directive of predixy's.
pub fn is_its_file(text: &str) -> bool {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let Some(first) = lines.next() else {
        return false;
    };
    let mut words = first.splitn(2, char::is_whitespace);
    let (key, rest) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let rest = rest.trim_start();
    let is_key = |known: &&str| known.eq_ignore_ascii_case(key);
    !rest.is_empty() && !rest.starts_with('=') && VALUES.iter().chain(BLOCKS).any(is_key)
}

/// Directives outside of blocks that have a value.
const VALUES: &[&str] = &[
    "Name",
    "Bind",
    "WorkerThreads",
    "MaxMemory",
    "ClientTimeout",
    "BufSize",
    "Log",
    "LogRotate",
    "AllowMissLog",
    "LogVerbSample",
    "LogDebugSample",
    "LogInfoSample",
    "LogNoticeSample",
    "LogWarnSample",
    "LogErrorSample",
    "LocalDC",
    "Include",
];
/// Directives that are blocks.
const BLOCKS: &[&str] = &[
    "Authority",
    "ClusterServerPool",
    "SentinelServerPool",
    "StandaloneServerPool",
    "DataCenter",
    "CustomCommand",
    "LatencyMonitor",
];
/// Options that all pools have.
const POOL: &[&str] = &[
    "Password",
    "Databases",
    "MasterReadPriority",
    "StaticSlaveReadPriority",
    "DynamicSlaveReadPriority",
    "RefreshInterval",
    "ServerTimeout",
    "ServerFailureLimit",
    "ServerRetryTimeout",
    "KeepAlive",
];
/// Options of pools whose shards have names.
const GROUPS: &[&str] = &[
    "Hash",
    "HashTag",
    "Distribution",
    "Sentinels",
    "Group",
    "RefreshMethod",
];

/// Reads the file and those that it includes. An error names file and line.
pub fn read(path: &Path) -> Result<Converted, String> {
    let lines = file::read(path)?;
    let mut converted = Reading {
        config: Config {
            threads: 1,
            timeouts: Timeouts {
                request: Span::default(),
                ..Timeouts::default()
            },
            listeners: vec![Listener::at("0.0.0.0:7617".parse()?)],
            ..Config::default()
        },
        notes: Vec::new(),
    };
    for line in &lines {
        converted.global(line)?;
    }
    if converted.config.pools.is_empty() {
        return Err(format!(
            "{}: there is no server pool; define ClusterServerPool, SentinelServerPool or StandaloneServerPool",
            path.display()
        ));
    }
    if !converted.config.users.is_empty()
        && !converted
            .config
            .users
            .iter()
            .any(|user| user.name == "default")
    {
        // Blocks without an empty password: clients without authentication may do nothing.
        converted.config.users.push(User {
            name: "default".to_owned(),
            rules: Some("off".into()),
            ..User::default()
        });
    }
    let Reading { config, notes } = converted;
    Ok(Converted { config, notes })
}

/// The configuration so far, and notes.
struct Reading {
    config: Config,
    notes: Vec<Note>,
}

impl Reading {
    fn global(&mut self, line: &Line) -> Result<(), String> {
        let config = &mut self.config;
        let sample = &mut config.log.sample;
        match line.key.to_ascii_lowercase().as_str() {
            "name" => config.name = text(line)?,
            "bind" => config.listeners[0].bind = parsed(line)?,
            "workerthreads" => config.threads = number(line, 1, 4096)? as usize,
            "maxmemory" => config.limits.memory = size(line)?,
            "clienttimeout" => {
                config.timeouts.client_idle = Span::seconds(number(line, 0, u64::from(u32::MAX))?)
            }
            "bufsize" => {
                number(line, 1, u64::MAX)?;
                self.notes.push(Note::same(
                    line.says("BufSize has no counterpart: buffers grow and shrink by need"),
                ));
            }
            "log" => config.log.file = Some(text(line)?).filter(|file| !file.is_empty()),
            "logrotate" => rotation(line, &mut config.log)?,
            "allowmisslog" => config.log.may_drop = truth(line)?,
            "logverbsample" => sample.verbose = count(line)?,
            "logdebugsample" => sample.debug = count(line)?,
            "loginfosample" => sample.info = count(line)?,
            "lognoticesample" => sample.notice = count(line)?,
            "logwarnsample" => sample.warning = count(line)?,
            "logerrorsample" => sample.error = count(line)?,
            "localdc" => config.local_data_center = text(line)?,
            "authority" => self.authority(line)?,
            "clusterserverpool" => self.pool(line, PoolKind::Cluster)?,
            "sentinelserverpool" => self.pool(line, PoolKind::Sentinel)?,
            "standaloneserverpool" => self.pool(line, PoolKind::Servers)?,
            "datacenter" => self.data_centers(line)?,
            "customcommand" => self.custom_commands(line)?,
            "latencymonitor" => self.latency_monitor(line)?,
            _ => return Err(unknown(line, &[VALUES, BLOCKS].concat())),
        }
        Ok(())
    }

    fn authority(&mut self, line: &Line) -> Result<(), String> {
        self.config.users.clear();
        for (number, auth) in block(line)?.iter().enumerate() {
            if !auth.is("Auth") {
                return Err(unknown(auth, &["Auth"]));
            }
            let mut user = User {
                mode: Some(Mode::Read),
                ..User::default()
            };
            if auth.value.is_empty() {
                user.name = "default".to_owned();
            } else {
                user.name = format!("auth-{}", number + 1);
                user.password = Some(stored(&auth.value));
                user.by_password = true;
            }
            for line in block(auth)? {
                let words = || line.value.split_whitespace().map(str::to_owned);
                match line.key.to_ascii_lowercase().as_str() {
                    "mode" => {
                        user.mode = Some(match line.value.to_ascii_lowercase().as_str() {
                            "read" => Mode::Read,
                            "write" => Mode::Write,
                            "admin" => Mode::Admin,
                            _ => return Err(line.says("Mode is read, write or admin")),
                        });
                    }
                    "keyprefix" => user.key_prefixes.extend(words()),
                    "readkeyprefix" => user.read_key_prefixes.extend(words()),
                    "writekeyprefix" => user.write_key_prefixes.extend(words()),
                    _ => {
                        let names = ["Mode", "KeyPrefix", "ReadKeyPrefix", "WriteKeyPrefix"];
                        return Err(unknown(line, &names));
                    }
                }
            }
            // The same password again: the later block counts.
            let same = |other: &User| other.password == user.password;
            if let Some(at) = self.config.users.iter().position(same) {
                self.notes.push(Note::same(
                    auth.says("this password was defined before; this block replaces that one"),
                ));
                self.config.users.remove(at);
            }
            self.config.users.push(user);
        }
        Ok(())
    }

    fn pool(&mut self, line: &Line, kind: PoolKind) -> Result<(), String> {
        if !self.config.pools.is_empty() {
            return Err(line.says("a second server pool: predixy has one per process; of two files, make two [[pool]] in our format"));
        }
        let mut pool = Pool {
            kind,
            databases: 1,
            hash: HashKind::Crc16,
            hash_tag: if kind == PoolKind::Cluster { "{}" } else { "" }.to_owned(),
            distribution: DistributionKind::Modula,
            failure: FailurePolicy {
                limit: 10,
                retry: Span::seconds(1),
                retry_max: Span::seconds(1),
            },
            ..Pool::default()
        };
        let (mut hashes, mut distributes, mut method) = (false, false, None);
        for line in block(line)? {
            if pool_option(&mut pool, &mut self.config.timeouts, line)? {
                continue;
            }
            let key = line.key.to_ascii_lowercase();
            match (key.as_str(), kind) {
                ("servers", PoolKind::Cluster) => pool.seeds = servers(line)?,
                (_, PoolKind::Cluster) => {
                    return Err(unknown(line, &[POOL, &["Servers"]].concat()));
                }
                ("hash", _) => {
                    hashes = true;
                    pool.hash = match line.value.to_ascii_lowercase().as_str() {
                        "atol" => HashKind::Atol,
                        "crc16" => HashKind::Crc16,
                        _ => return Err(line.says("Hash is atol or crc16")),
                    };
                }
                ("hashtag", _) => {
                    if !matches!(line.value.len(), 0 | 2) {
                        return Err(line.says("HashTag is two characters, or empty for none"));
                    }
                    pool.hash_tag = text(line)?;
                }
                ("distribution", _) => {
                    distributes = true;
                    pool.distribution = match line.value.to_ascii_lowercase().as_str() {
                        "modula" => DistributionKind::Modula,
                        "random" => DistributionKind::Random,
                        _ => return Err(line.says("Distribution is modula or random")),
                    };
                }
                ("sentinels", _) => {
                    pool.sentinels = servers(line)?;
                    pool.sentinel_password =
                        Some(Secret::from(line.value.clone())).filter(|p| !p.is_empty());
                }
                ("group", _) => pool.shards.push(Shard {
                    name: text(line)?,
                    weight: 1,
                    servers: match &line.block {
                        Some(_) => servers(line)?,
                        None => Vec::new(),
                    },
                }),
                ("refreshmethod", PoolKind::Servers) => {
                    method = Some(match line.value.to_ascii_lowercase().as_str() {
                        "fixed" => PoolKind::Servers,
                        "sentinel" => PoolKind::Sentinel,
                        _ => return Err(line.says("RefreshMethod is fixed or sentinel")),
                    });
                }
                _ => return Err(unknown(line, &[POOL, GROUPS].concat())),
            }
        }
        if kind == PoolKind::Cluster {
            let default = Pool::default();
            (pool.hash, pool.distribution) = (default.hash, default.distribution);
        }
        if kind == PoolKind::Servers {
            let missing =
                || line.says("StandaloneServerPool needs RefreshMethod fixed or sentinel");
            pool.kind = method.ok_or_else(missing)?;
        }
        if pool.shards.len() > 1 && !(hashes && distributes) {
            return Err(
                line.says("with more than one Group, Hash and Distribution have to be said")
            );
        }
        if kind == PoolKind::Cluster && pool.databases != 1 {
            return Err(line.says("a Redis Cluster has one database; leave Databases out"));
        }
        if kind != PoolKind::Cluster && pool.hash_tag.is_empty() && pool.shards.len() > 1 {
            self.notes.push(Note::same(line.says(
                "without HashTag predixy hashes whole keys, whatever its manual says; so do we",
            )));
        }
        if self.config.timeouts.request == Span::default() {
            let text = "without ServerTimeout a request may wait for ever; a server that hangs is ejected all the same";
            self.notes.push(Note::other(line.says(text)));
        }
        self.config.pools.push(pool);
        Ok(())
    }

    fn data_centers(&mut self, line: &Line) -> Result<(), String> {
        self.config.data_centers.clear();
        for dc in block(line)? {
            if !dc.is("DC") {
                return Err(unknown(dc, &["DC"]));
            }
            let mut center = DataCenter {
                name: text(dc)?,
                ..DataCenter::default()
            };
            for line in block(dc)? {
                if line.is("AddrPrefix") {
                    for prefix in block(line)? {
                        center.address_prefixes.push(plus(prefix)?.to_owned());
                    }
                } else if line.is("ReadPolicy") {
                    for policy in block(line)? {
                        center.reads.push(place_policy(policy)?);
                    }
                } else {
                    return Err(unknown(line, &["AddrPrefix", "ReadPolicy"]));
                }
            }
            self.config.data_centers.push(center);
        }
        Ok(())
    }

    fn custom_commands(&mut self, line: &Line) -> Result<(), String> {
        for entry in block(line)? {
            let mut command = CustomCommand {
                name: entry.key.to_ascii_lowercase(),
                mode: Mode::Write,
                min_args: 2,
                max_args: 2,
                key: 1,
            };
            let mut max = None;
            for line in block(entry)? {
                match line.key.to_ascii_lowercase().as_str() {
                    "minargs" => command.min_args = number(line, 2, 9999)? as u32,
                    "maxargs" => max = Some(number(line, 2, 9999)? as u32),
                    "mode" => command_mode(line, &mut command)?,
                    _ => return Err(unknown(line, &["Mode", "MinArgs", "MaxArgs"])),
                }
            }
            command.max_args = max.unwrap_or(command.min_args);
            // predixy needed declarations of commands newer than Redis 4.
            match ids_of(&command.name).is_empty() {
                true => self.config.commands.custom.push(command),
                false => self.notes.push(Note::other(entry.says(format!(
                    "{} is known here, and who may call it as well: left out",
                    command.name
                )))),
            }
        }
        Ok(())
    }

    fn latency_monitor(&mut self, line: &Line) -> Result<(), String> {
        let mut monitor = LatencyMonitor {
            name: text(line)?,
            ..LatencyMonitor::default()
        };
        for part in block(line)? {
            if part.is("Commands") {
                for command in block(part)? {
                    let name = command.value.to_ascii_lowercase();
                    match command.key.as_str() {
                        "+" => monitor.commands.push(name),
                        "-" => monitor.commands.push(format!("-{name}")),
                        _ => return Err(command.says("a line here is + command or - command")),
                    }
                }
            } else if part.is("TimeSpan") {
                for bound in block(part)? {
                    let us = plus(bound)?.parse();
                    let us = us.map_err(|_| bound.says("a bound is a number of microseconds"))?;
                    monitor.bounds_us.push(us);
                }
            } else {
                return Err(unknown(part, &["Commands", "TimeSpan"]));
            }
        }
        self.config.latency_monitors.push(monitor);
        Ok(())
    }
}

/// Takes an option that all pools have. Returns false if it is another one.
fn pool_option(pool: &mut Pool, timeouts: &mut Timeouts, line: &Line) -> Result<bool, String> {
    match line.key.to_ascii_lowercase().as_str() {
        "password" => {
            pool.password = Some(Secret::from(text(line)?)).filter(|password| !password.is_empty())
        }
        "databases" => pool.databases = number(line, 1, 128)? as u32,
        "masterreadpriority" => pool.reads.primary_priority = number(line, 0, 100)? as u32,
        "staticslavereadpriority" => {
            pool.reads.static_replica_priority = number(line, 0, 100)? as u32
        }
        "dynamicslavereadpriority" => {
            pool.reads.dynamic_replica_priority = number(line, 0, 100)? as u32
        }
        "refreshinterval" => pool.refresh = span(line)?,
        "servertimeout" => timeouts.request = span(line)?,
        "serverfailurelimit" => pool.failure.limit = number(line, 1, u64::from(u32::MAX))? as u32,
        "serverretrytimeout" => {
            pool.failure.retry = span(line)?;
            pool.failure.retry_max = pool.failure.retry;
        }
        "keepalive" => pool.keepalive = Span::seconds(number(line, 0, u64::from(u32::MAX))?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Returns the lines `+ [password@]address` of a block.
fn servers(line: &Line) -> Result<Vec<Server>, String> {
    let mut servers = Vec::new();
    for line in block(line)? {
        let place = plus(line)?;
        // A password may have an @, an address has none.
        let (password, address) = match place.rsplit_once('@') {
            Some((password, address)) => (Some(Secret::from(password)), address),
            None => (None, place),
        };
        let address = address.split_whitespace().next().unwrap_or_default();
        servers.push(Server {
            address: address.parse().map_err(|what: String| line.says(what))?,
            user: None,
            password: password.filter(|password| !password.is_empty()),
        });
    }
    Ok(servers)
}

fn place_policy(line: &Line) -> Result<PlacePolicy, String> {
    let wrong =
        || line.says("a line here is: name of a data centre, priority 0 to 100, weight 1 to 100");
    let mut words = line.value.split_whitespace();
    let mut next = |least: u32, unsaid: Option<u32>| match words.next() {
        None => unsaid.ok_or_else(wrong),
        Some(word) => {
            let number = word.parse::<u32>().ok();
            number
                .filter(|n| (least..=100).contains(n))
                .ok_or_else(wrong)
        }
    };
    let (priority, weight) = (next(0, None)?, next(1, Some(1))?);
    if words.next().is_some() {
        return Err(wrong());
    }
    Ok(PlacePolicy {
        data_center: line.key.clone(),
        priority,
        weight,
    })
}

fn command_mode(line: &Line, command: &mut CustomCommand) -> Result<(), String> {
    let words = line
        .value
        .split(['|', ','])
        .map(str::trim)
        .filter(|word| !word.is_empty());
    let mut mode = None;
    for word in words {
        match word.to_ascii_lowercase().as_str() {
            "read" => mode = mode.wider(Mode::Read),
            "write" => mode = mode.wider(Mode::Write),
            "admin" => mode = mode.wider(Mode::Admin),
            "keyat2" => command.key = 2,
            "keyat3" => command.key = 3,
            _ => {
                return Err(
                    line.says("Mode is of read, write, admin, keyAt2, keyAt3, with | between them")
                );
            }
        }
    }
    command.mode = mode.unwrap_or(Mode::Write);
    Ok(())
}

/// Returns the wider of two modes.
trait Wider {
    fn wider(self, other: Mode) -> Option<Mode>;
}

impl Wider for Option<Mode> {
    fn wider(self, other: Mode) -> Option<Mode> {
        Some(match self {
            Some(mode) if mode as u8 > other as u8 => mode,
            _ => other,
        })
    }
}

/// Parses `1d`, `3h`, `10m` (minutes), `1G`, `100M`, also one of time and one of size.
fn rotation(line: &Line, log: &mut Log) -> Result<(), String> {
    let wrong = || {
        line.says(
            "LogRotate is 1d, 1h to 24h, 1m to 1440m (minutes), nG or nM, or a time and a size",
        )
    };
    (log.rotate_every, log.rotate_size) = (Span::default(), Size::default());
    for word in line.value.split_whitespace() {
        let (number, unit) =
            word.split_at(word.len() - word.chars().last().map_or(0, char::len_utf8));
        let number: u64 = number.parse().map_err(|_| wrong())?;
        match (unit, number) {
            ("d", 1) => log.rotate_every = Span::seconds(24 * 3600),
            ("h", 1..=24) => log.rotate_every = Span::seconds(number * 3600),
            ("m", 1..=1440) => log.rotate_every = Span::seconds(number * 60),
            ("M", 1..=0xfff_ffff) => log.rotate_size = Size(number << 20),
            ("G", 1..=0xf_ffff) => log.rotate_size = Size(number << 30),
            _ => return Err(wrong()),
        }
    }
    Ok(())
}

fn block(line: &Line) -> Result<&[Line], String> {
    match &line.block {
        Some(lines) => Ok(lines),
        None => Err(line.says(format!("{} needs a block in braces", line.key))),
    }
}

fn plus(line: &Line) -> Result<&str, String> {
    if line.key != "+" || line.value.is_empty() || line.block.is_some() {
        return Err(line.says("a line here is + and a value"));
    }
    Ok(&line.value)
}

fn text(line: &Line) -> Result<String, String> {
    match (&line.block, line.key.as_str()) {
        (Some(_), key)
            if POOL
                .iter()
                .chain(VALUES)
                .any(|name| key.eq_ignore_ascii_case(name)) =>
        {
            Err(line.says(format!("{key} has a value and no block")))
        }
        _ => Ok(line.value.clone()),
    }
}

fn parsed<T: std::str::FromStr<Err = String>>(line: &Line) -> Result<T, String> {
    line.value.parse().map_err(|what: String| line.says(what))
}

fn number(line: &Line, least: u64, most: u64) -> Result<u64, String> {
    let number = line
        .value
        .parse()
        .ok()
        .filter(|n| (least..=most).contains(n));
    number.ok_or_else(|| {
        let range = match most {
            u64::MAX => format!("a number from {least}"),
            _ => format!("a number from {least} to {most}"),
        };
        line.says(format!("{} is {range}, not \"{}\"", line.key, line.value))
    })
}

fn count(line: &Line) -> Result<u32, String> {
    number(line, 0, u64::from(u32::MAX)).map(|n| n as u32)
}

fn truth(line: &Line) -> Result<bool, String> {
    match line.value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(line.says(format!("{} is true or false", line.key))),
    }
}

fn span(line: &Line) -> Result<Span, String> {
    let wrong = || {
        line.says(format!(
            "{} is a time: 2, 2s, 200ms or 200us, not \"{}\"",
            line.key, line.value
        ))
    };
    Span::of_predixy(&line.value).ok_or_else(wrong)
}

fn size(line: &Line) -> Result<Size, String> {
    let wrong = || {
        line.says(format!(
            "{} is a size: 100M or 1G, not \"{}\"",
            line.key, line.value
        ))
    };
    Size::of_predixy(&line.value).ok_or_else(wrong)
}

fn unknown(line: &Line, known: &[&str]) -> String {
    let mut said = format!("there is no directive {} here", line.key);
    if let Some(meant) = nearest(&line.key, known.iter().copied()) {
        said += &format!("; did you mean {meant}?");
    }
    line.says(said)
}

#[cfg(test)]
mod tests;
