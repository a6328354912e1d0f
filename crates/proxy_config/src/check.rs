//! The check of the whole configuration before anything starts: errors (what, where, and the remedy), and warnings of
//! probable mistakes. Knows no files and no servers.

mod loops;

use std::collections::BTreeSet;
use std::fmt;

use redline_spec::table::all;
use redline_spec::{lookup, nearest, unbuilt};

use super::commands::{OF_EVERYTHING, OWN, ids_of};
use super::users::{Identities, is_default};
use super::*;

/// A problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The part of the configuration.
    pub place: String,
    /// Description of the problem and its remedy.
    pub text: String,
    /// It keeps the proxy from starting.
    pub is_fatal: bool,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_fatal { "error" } else { "warning" };
        write!(f, "{kind}: {}: {}", self.place, self.text)
    }
}

impl Config {
    /// Returns all its problems.
    pub fn check(&self) -> Vec<Problem> {
        let mut check = Check::default();
        if self.threads > THREADS_MAX {
            let text = format!("at most {THREADS_MAX}; 0: as many as there are CPUs");
            check.error("threads", text);
        }
        check.listeners(self);
        check.pools(self);
        check.routes(self);
        check.loops(self);
        check.users(self);
        check.commands(&self.commands);
        check.data_centers(self);
        check.monitors(self);
        check.timeouts(&self.timeouts);
        check.cluster_face(&self.cluster_face);
        check.traffic(self);
        check.problems
    }
}

/// Largest number of servers and shards of a pool: their numbers fit into 16 bits with room for added and removed ones.
const SHARDS_MAX: usize = 4_096;
/// Largest number of workers, as in the server.
const THREADS_MAX: usize = 256;
/// An example of a shard's line.
const SERVER_SAMPLE: &str = "server = [{ address = \"127.0.0.1:6379\" }]";

#[derive(Default)]
struct Check {
    problems: Vec<Problem>,
}

impl Check {
    fn error(&mut self, place: &str, text: impl Into<String>) {
        self.problems.push(Problem {
            place: place.to_owned(),
            text: text.into(),
            is_fatal: true,
        });
    }

    fn warn(&mut self, place: &str, text: impl Into<String>) {
        self.problems.push(Problem {
            place: place.to_owned(),
            text: text.into(),
            is_fatal: false,
        });
    }

    /// Checks that names are set and unique.
    fn names<'a>(&mut self, what: &str, names: impl Iterator<Item = &'a str>) {
        let mut seen = BTreeSet::new();
        for name in names {
            if name.is_empty() {
                self.error(what, "one of them has no name; give it a `name`");
            } else if !seen.insert(name) {
                self.error(
                    &format!("{what} \"{name}\""),
                    "the name is taken; give one of the two another",
                );
            }
        }
    }

    fn listeners(&mut self, config: &Config) {
        if config.listeners.is_empty() {
            self.error(
                "listener",
                "there is none; add [[listener]] with `bind = \"0.0.0.0:7617\"`",
            );
        }
        let mut seen = Vec::new();
        for listener in &config.listeners {
            let place = format!("listener {}", listener.bind);
            if seen.contains(&&listener.bind) {
                self.error(&place, "two listeners have this address; leave one out");
            }
            seen.push(&listener.bind);
            if let Some(pool) = &listener.pool {
                self.is_pool(config, &place, pool);
            }
            if let Some(tls) = &listener.tls {
                self.tls_for_clients(tls, &place);
            }
        }
    }

    fn tls_for_clients(&mut self, tls: &Tls, place: &str) {
        if tls.certificate.is_none() || tls.key.is_none() {
            self.error(place, "TLS needs `certificate` and `key`");
        }
        let asks = tls.asked_of_clients() != ClientCertificates::Off;
        if asks && tls.authorities.is_none() {
            self.error(
                place,
                "`client-certificates` needs `authorities` that sign them",
            );
        }
        if tls.server_name.is_some() || tls.insecure {
            self.error(
                place,
                "`server-name` and `insecure` are about servers: they belong to a pool's `tls`",
            );
        }
    }

    fn tls_for_servers(&mut self, tls: &Tls, place: &str) {
        if tls.certificate.is_some() != tls.key.is_some() {
            self.error(place, "`certificate` and `key` go together");
        }
        if tls.client_certificates.is_some() {
            self.error(
                place,
                "`client-certificates` is about clients: it belongs to a listener's `tls`",
            );
        }
        if tls.insecure && tls.server_name.is_some() {
            self.warn(
                place,
                "`insecure`: `server-name` is asked for, but nobody looks at what comes",
            );
        } else if tls.insecure {
            self.warn(
                place,
                "`insecure`: whoever answers at a server's address is taken for it",
            );
        }
    }

    fn is_pool(&mut self, config: &Config, place: &str, pool: &str) {
        let names = || config.pools.iter().map(|pool| pool.name.as_str());
        if !names().any(|name| name == pool) {
            let or = "add it, or name one that there is";
            self.error(place, unknown("pool", pool, names(), or));
        }
    }

    fn pools(&mut self, config: &Config) {
        if config.pools.is_empty() {
            self.error(
                "pool",
                "there is none; add [[pool]], or --upstream host:port on the command line",
            );
        }
        self.names("pool", config.pools.iter().map(|pool| pool.name.as_str()));
        for pool in &config.pools {
            let place = format!("pool \"{}\"", pool.name);
            self.servers_of(pool, &place);
            self.spread_of(pool, &place);
            for text in super::cache::problems(pool) {
                self.error(&place, text);
            }
            if let Some(tls) = &pool.tls {
                self.tls_for_servers(tls, &place);
            }
            if !(1..=10_000).contains(&pool.databases) {
                self.error(&place, "`databases` is 1 to 10000");
            }
            if pool.failure.limit == 0 {
                self.error(&place, "`failure.limit` is at least 1");
            }
            if pool.failure.retry.on().is_none() || pool.failure.retry_max < pool.failure.retry {
                self.error(&place, "`failure.retry` is more than nothing, and `failure.retry-max` not less than it");
            }
            if pool.refresh.on().is_none() && pool.kind != PoolKind::Servers {
                self.error(
                    &place,
                    "`refresh` cannot be off: the topology would be asked for once only",
                );
            }
            let reads = &pool.reads;
            let priorities = [
                reads.primary_priority,
                reads.static_replica_priority,
                reads.dynamic_replica_priority,
            ];
            if priorities.iter().any(|&priority| priority > 100) {
                self.error(&place, "read priorities are 0 to 100");
            }
            if priorities == [0; 3] {
                self.error(&place, "all read priorities are 0: nobody would answer reads; give `reads.primary-priority` 50");
            }
            let sentinel = pool.sentinel_user.is_some() || pool.sentinel_password.is_some();
            if sentinel && pool.kind != PoolKind::Sentinel {
                self.error(
                    &place,
                    "`sentinel-user` and `sentinel-password` belong to `kind = \"sentinel\"`",
                );
            }
            for server in pool.servers() {
                if matches!(server.address, Place::Tcp { port: 0, .. }) {
                    self.error(&place, format!("{}: a server has a port", server.address));
                }
            }
            let lists = pool
                .servers()
                .map(|server| (&server.user, &server.password));
            let own = [
                (&pool.user, &pool.password),
                (&pool.sentinel_user, &pool.sentinel_password),
            ];
            if own
                .into_iter()
                .chain(lists)
                .any(|(user, password)| user.is_some() && password.is_none())
            {
                self.error(&place, "a user needs a password: `user` a `password`, `sentinel-user` a `sentinel-password`");
            }
        }
    }

    fn servers_of(&mut self, pool: &Pool, place: &str) {
        let lists = [
            (!pool.seeds.is_empty(), PoolKind::Cluster, "seed"),
            (!pool.sentinels.is_empty(), PoolKind::Sentinel, "sentinel"),
        ];
        for (is_there, kind, list) in lists {
            if is_there && pool.kind != kind {
                self.error(place, format!("[[pool.{list}]] belongs to `kind = \"{list}\"`; leave it out, or say that kind")
                    .replace("kind = \"seed\"", "kind = \"cluster\""));
            } else if !is_there && pool.kind == kind {
                self.error(
                    place,
                    format!("there is no [[pool.{list}]]; name at least one, better three"),
                );
            }
        }
        if pool.kind == PoolKind::Cluster {
            let default = Pool::default();
            let spread = (pool.hash, pool.distribution, &pool.hash_tag);
            if spread != (default.hash, default.distribution, &default.hash_tag) {
                self.error(
                    place,
                    "a cluster has its own slots; leave `hash`, `distribution` and `hash-tag` out",
                );
            }
            if !pool.shards.is_empty() {
                self.error(
                    place,
                    "a cluster says itself which shards it has; leave [[pool.shard]] out",
                );
            }
            if pool.databases != 1 && pool.databases != 16 {
                self.error(
                    place,
                    "a Redis Cluster has one database; leave `databases` out",
                );
            }
            return;
        }
        if pool.shards.is_empty() {
            let how = match pool.kind {
                PoolKind::Sentinel => {
                    "with the name that Sentinels know, as in `name = \"mymaster\"`".to_owned()
                }
                _ => format!("with `{SERVER_SAMPLE}`"),
            };
            self.error(place, format!("there is no [[pool.shard]]; add one {how}"));
        }
        if pool.shards.len() > SHARDS_MAX {
            self.error(place, format!("more than {SHARDS_MAX} shards"));
        }
        let names: Vec<String> = pool.shards.iter().map(Shard::known_as).collect();
        self.names(&format!("{place}, shard"), names.iter().map(String::as_str));
        for (shard, name) in pool.shards.iter().zip(&names) {
            let place = format!("{place}, shard \"{name}\"");
            if !(1..=1_000).contains(&shard.weight) {
                self.error(&place, "`weight` is 1 to 1000");
            }
            if pool.kind == PoolKind::Servers && shard.servers.is_empty() {
                self.error(&place, format!("it has no server; add `{SERVER_SAMPLE}`"));
            }
            if pool.kind == PoolKind::Sentinel && shard.name.is_empty() {
                self.error(&place, "`name` has to be the name that Sentinels know");
            }
            let mut seen = Vec::new();
            for server in &shard.servers {
                if seen.contains(&&server.address) {
                    self.error(
                        &place,
                        format!("{} is there twice; leave one out", server.address),
                    );
                }
                seen.push(&server.address);
            }
        }
    }

    fn spread_of(&mut self, pool: &Pool, place: &str) {
        if pool.hash_tag.is_ascii() && !matches!(pool.hash_tag.len(), 0 | 2)
            || !pool.hash_tag.is_ascii()
        {
            self.error(
                place,
                "`hash-tag` is two ASCII characters such as \"{}\", or empty",
            );
        }
        if pool.kind == PoolKind::Cluster || pool.shards.len() < 2 {
            return;
        }
        if pool.distribution == DistributionKind::Random {
            self.warn(place, "`distribution = \"random\"`: a key is on no server in particular, so what is written is found by chance only; this is for servers that all hold the same");
        }
        if pool.hash == HashKind::Atol {
            self.warn(
                place,
                "`hash = \"atol\"`: keys that do not begin with a number are all on one shard",
            );
        }
        if pool.distribution == DistributionKind::Ketama && pool.hash.bits() < 32 {
            self.warn(place, format!("`distribution = \"ketama\"` with a hash of {} bits: nearly all keys are on one shard; take `murmur`", pool.hash.bits()));
        }
        if pool.distribution == DistributionKind::Ketama && pool.hash == HashKind::Atol {
            self.error(
                place,
                "`hash = \"atol\"` goes with `distribution = \"modula\"` only",
            );
        }
    }

    fn routes(&mut self, config: &Config) {
        for route in &config.routes {
            let place = format!("route \"{}\"", route.prefix);
            self.is_pool(config, &place, &route.pool);
            if route.prefix.is_empty() {
                self.error(
                    &place,
                    "`prefix` says how keys begin; those that no prefix fits are in the listener's pool",
                );
            }
        }
        self.names(
            "route",
            config
                .routes
                .iter()
                .map(|route| route.prefix.as_str())
                .filter(|prefix| !prefix.is_empty()),
        );
    }

    fn users(&mut self, config: &Config) {
        self.names("user", config.users.iter().map(|user| user.name.as_str()));
        for user in &config.users {
            let place = format!("user \"{}\"", user.name);
            if user.name.contains(char::is_whitespace) {
                self.error(&place, "a name has no spaces");
            }
            if user.by_password && user.password.is_none() {
                self.error(&place, "`by-password` needs a `password`");
            }
            let prefixes = [
                &user.key_prefixes,
                &user.read_key_prefixes,
                &user.write_key_prefixes,
            ];
            if user.rules.is_some()
                && (user.mode.is_some() || prefixes.iter().any(|p| !p.is_empty()))
            {
                self.error(&place, "either `rules`, or `mode` and prefixes");
            }
            if user.password.is_none() && !is_default(&user.name) {
                self.warn(&place, "without a `password` anybody may be this user");
            }
        }
        if let Err(text) = Identities::of(config) {
            self.error("users", text);
        }
    }

    fn commands(&mut self, commands: &Commands) {
        self.names_of_commands(commands);
        self.renamed(commands);
        let custom = commands.custom.iter();
        self.names(
            "commands.custom",
            custom.map(|command| command.name.as_str()),
        );
        for command in &commands.custom {
            self.custom(command);
        }
    }

    /// Checks the names of commands in `forbidden`, `renamed` and `permitted`.
    fn names_of_commands(&mut self, commands: &Commands) {
        // A module's command has a dot in its name, by convention; the servers may have the module.
        let is_foreign = |name: &str| {
            let container = name.split(['|', ' ']).next().unwrap_or_default();
            is_custom(commands, container) || container.contains('.')
        };
        let named = commands.forbidden.iter().map(|name| ("forbidden", name));
        let named = named.chain(commands.renamed.keys().map(|name| ("renamed", name)));
        for (list, name) in named {
            if !is_known(name) && !is_foreign(name) {
                let mut text = format!(
                    "there is no command \"{name}\"; one of a module without a dot in its name needs [[commands.custom]]"
                );
                if let Some(meant) = nearest(name, known_names()) {
                    text += &format!("; did you mean \"{meant}\"?");
                }
                self.error(&format!("commands.{list}"), text);
            }
        }
        for name in commands.permitted.iter().flatten() {
            if !OF_EVERYTHING
                .iter()
                .any(|known| known.eq_ignore_ascii_case(name))
            {
                self.error(
                    "commands.permitted",
                    format!(
                        "\"{name}\" is none of {}: others are there unless `forbidden`",
                        OF_EVERYTHING.join(", ")
                    ),
                );
            }
        }
    }

    /// Checks renamed commands, and their new names.
    fn renamed(&mut self, commands: &Commands) {
        const PLACE: &str = "commands.renamed";
        for name in commands.renamed.keys() {
            if name.contains(['|', ' ']) {
                let text = format!("\"{name}\" is a part of a command; rename the whole");
                self.error(PLACE, text);
            }
        }
        let lower = |name: &String| name.to_ascii_lowercase();
        let new_names: Vec<String> = commands.renamed.values().map(lower).collect();
        self.names(PLACE, new_names.iter().map(String::as_str));
        let is_renamed = |name: &str| {
            let mut names = commands.renamed.keys();
            names.any(|renamed| renamed.eq_ignore_ascii_case(name))
        };
        for (name, new) in &commands.renamed {
            let text = if name.eq_ignore_ascii_case(new) {
                format!("\"{name}\" has that name already; leave it out")
            } else if is_renamed(new) {
                format!(
                    "\"{name}\" cannot be called \"{new}\", which is renamed itself: nobody could tell the two apart; take another name"
                )
            } else if is_known(new) || is_custom(commands, new) {
                format!("\"{new}\" is a command; take another name")
            } else {
                continue;
            };
            self.error(PLACE, text);
        }
        let own_names: Vec<String> = commands.renamed.keys().map(lower).collect();
        self.names(PLACE, own_names.iter().map(String::as_str));
    }

    /// Checks a command that the servers have and the table has not.
    fn custom(&mut self, command: &CustomCommand) {
        let place = format!("commands.custom \"{}\"", command.name);
        if is_known(&command.name) {
            self.error(&place, "this command is known already; leave it out");
        }
        if command.min_args == 0 || command.max_args < command.min_args || command.max_args > 9_999
        {
            self.error(
                &place,
                "`min-args` is at least 1, `max-args` not less and at most 9999",
            );
        }
        if command.key != 0 && command.key >= command.min_args {
            self.error(
                &place,
                "`key` is an argument that every call has: it is below `min-args`",
            );
        }
    }

    fn data_centers(&mut self, config: &Config) {
        let names = || {
            config
                .data_centers
                .iter()
                .map(|center| center.name.as_str())
        };
        self.names("data-center", names());
        let add = |name: &str| format!("add [[data-center]] with `name = \"{name}\"`");
        let local = config.local_data_center.as_str();
        if let (true, Some(first)) = (local.is_empty(), names().next()) {
            self.error(
                "local-data-center",
                format!("it is not said which one of the [[data-center]] this is; add `local-data-center = \"{first}\"`"),
            );
        } else if !local.is_empty() && !names().any(|name| name == local) {
            let text = unknown("data centre", local, names(), &add(local));
            self.error("local-data-center", text);
        }
        for center in &config.data_centers {
            let place = format!("data-center \"{}\"", center.name);
            if center.address_prefixes.is_empty() {
                self.warn(
                    &place,
                    "it has no `address-prefixes`, so no server is there",
                );
            }
            for read in &center.reads {
                if !names().any(|name| name == read.data_center) {
                    let other = &read.data_center;
                    let text = unknown("data centre", other, names(), &add(other));
                    self.error(&place, text);
                }
                if read.priority > 100 || !(1..=100).contains(&read.weight) {
                    self.error(&place, "priorities are 0 to 100, weights 1 to 100");
                }
            }
            self.names(
                &format!("{place}, read"),
                center.reads.iter().map(|read| read.data_center.as_str()),
            );
        }
    }

    fn monitors(&mut self, config: &Config) {
        let monitors = &config.latency_monitors;
        self.names(
            "latency-monitor",
            monitors.iter().map(|monitor| monitor.name.as_str()),
        );
        for monitor in monitors {
            let place = format!("latency-monitor \"{}\"", monitor.name);
            if monitor.bounds_us.is_empty()
                || !monitor.bounds_us.is_sorted_by(|one, next| one < next)
            {
                self.error(&place, "`bounds-us` are one or more microseconds, rising");
            }
            if monitor.commands.is_empty() {
                self.error(&place, "`commands` names none; `all` means all");
            }
            for name in &monitor.commands {
                let name = name.strip_prefix('-').unwrap_or(name);
                let custom = config.commands.custom.iter();
                let custom = custom.map(|command| command.name.as_str());
                if name != "all"
                    && !custom.clone().any(|known| known == name)
                    && lookup(name.as_bytes()).is_none()
                    && unbuilt(name.as_bytes()).is_none()
                {
                    let whole = known_names().filter(|name| !name.contains('|'));
                    let names = custom.chain(whole);
                    let or = "one of a module needs [[commands.custom]]";
                    self.error(&place, unknown("command", name, names, or));
                }
            }
        }
    }

    fn traffic(&mut self, config: &Config) {
        let is_part = |percent: f64| percent > 0.0 && percent <= 100.0;
        for (number, fault) in config.faults.iter().enumerate() {
            let place = format!("fault {}", number + 1);
            if fault.delay.on().is_none() && fault.error.is_none() && !fault.cut {
                self.error(&place, "it does nothing; give it `delay`, `error` or `cut`");
            }
            if fault.cut && fault.error.is_some() {
                self.error(
                    &place,
                    "either `error` or `cut`: who is cut off gets no error",
                );
            }
            if fault
                .error
                .as_ref()
                .is_some_and(|text| text.contains(['\r', '\n']))
            {
                self.error(&place, "`error` is one line");
            }
            if !is_part(fault.percent) {
                self.error(&place, "`percent` is more than 0 and at most 100");
            }
            for name in fault.commands.iter().filter(|name| ids_of(name).is_empty()) {
                let or = "name one of Redis's, or leave it out";
                self.error(&place, unknown("command", name, known_names(), or));
            }
        }
        for mirror in &config.mirrors {
            let place = format!("mirror \"{}\"", mirror.pool);
            self.is_pool(config, &place, &mirror.pool);
            if let Some(from) = &mirror.from {
                self.is_pool(config, &place, from);
            }
            if mirror.from.as_ref() == Some(&mirror.pool) || config.pools.len() < 2 {
                self.error(&place, "a pool is no mirror of itself");
            }
            if !is_part(mirror.percent) {
                self.error(&place, "`percent` is more than 0 and at most 100");
            }
        }
    }

    fn cluster_face(&mut self, face: &ClusterFace) {
        let place = "cluster-face";
        if !face.peers.is_empty() && face.announce.is_none() {
            self.error(
                place,
                "`peers` need `announce`: the address of this proxy among them",
            );
        }
        if face.announce.is_some() && !face.enabled {
            self.warn(place, "it has no effect without `enabled = true`");
        }
        let announced = face.announce.iter().chain(&face.peers);
        if announced
            .clone()
            .any(|place| matches!(place, Place::Unix(_)))
        {
            self.error(
                place,
                "`announce` and `peers` are host:port: a cluster has no unix sockets",
            );
        }
    }

    fn timeouts(&mut self, timeouts: &Timeouts) {
        if timeouts.connect.on().is_none() {
            self.error("timeouts", "`connect` cannot be off");
        }
        if timeouts.request.on().is_none() {
            self.warn(
                "timeouts",
                "without `request` a client waits for as long as a server takes",
            );
        }
    }
}

/// Returns the error for an unknown name: it suggests the most similar of `names`, if any is similar, or else
/// `otherwise`.
fn unknown<'a>(
    what: &str,
    name: &str,
    names: impl Iterator<Item = &'a str>,
    otherwise: &str,
) -> String {
    let instead = match nearest(name, names) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => otherwise.to_owned(),
    };
    format!("there is no {what} \"{name}\"; {instead}")
}

/// Returns the full names of the table's commands.
fn known_names<'a>() -> impl Iterator<Item = &'a str> {
    all().iter().map(|row| row.full_name)
}

/// Returns true if a command of this name is known without asking servers: in the table, the proxy's own, or Redis's and not
/// built.
fn is_known(name: &str) -> bool {
    let full = name.replace(' ', "|");
    let is_own = OWN.iter().any(|own| own.eq_ignore_ascii_case(&full));
    is_own || !ids_of(name).is_empty() || unbuilt(full.as_bytes()).is_some()
}

/// Returns true if the configuration adds a command of this name.
fn is_custom(commands: &Commands, name: &str) -> bool {
    let mut custom = commands.custom.iter();
    custom.any(|command| command.name.eq_ignore_ascii_case(name))
}

impl Pool {
    /// Returns every server that it names: those of its shards, seeds, Sentinels.
    fn servers(&self) -> impl Iterator<Item = &Server> {
        let servers = self.shards.iter().flat_map(|shard| &shard.servers);
        servers.chain(&self.seeds).chain(&self.sentinels)
    }
}

impl Shard {
    /// Returns its name, or the address of its first server.
    pub fn known_as(&self) -> String {
        match self.servers.first() {
            Some(server) if self.name.is_empty() => server.address.to_string(),
            _ => self.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
