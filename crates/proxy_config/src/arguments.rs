//! The command line of `redline proxy`: the path of the configuration, or all of it. Starts nothing.

// Brackets in the help are optional parts, and no links.
#![allow(rustdoc::broken_intra_doc_links)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;
use serde::de::DeserializeOwned;
use serde::de::value::{Error, StrDeserializer};

use super::foreign::Origin;
use super::source::text_of;
use super::units::without_credentials;
use super::*;

const LISTENERS: &str = "Listeners";
const UPSTREAM: &str = "Upstream servers";
const UPSTREAM_TLS: &str = "Upstream TLS";
const SHARDING: &str = "Sharding";

/// A proxy: one address in front of many Redis servers
#[derive(Clone, Debug, Parser)]
#[command(
    name = "redline proxy",
    version,
    disable_version_flag = true,
    after_help = "Examples:\n  \
    redline proxy --upstream 127.0.0.1:6379\n  \
    redline proxy --port 7617 --threads 2 --upstream a:6379 --upstream b:6379   (sharded)\n  \
    redline proxy --cluster --upstream 10.0.0.1:7000\n  \
    redline proxy --sentinel mymaster --upstream 10.0.0.5:26379\n  \
    redline proxy proxy.toml\n  \
    redline proxy --predixy predixy.conf --print-config > proxy.toml"
)]
pub struct Arguments {
    /// Configuration file (TOML)
    pub file: Option<PathBuf>,
    /// Configuration file of predixy
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub predixy: Option<PathBuf>,
    /// Configuration file of nutcracker (twemproxy)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "predixy"])]
    pub nutcracker: Option<PathBuf>,
    /// Listening port [default: 7617, if the configuration names none]
    #[arg(long, help_heading = LISTENERS)]
    pub port: Option<u16>,
    /// Listening address, or the path of a unix socket [default: 127.0.0.1]; may be given several times
    #[arg(long, value_name = "ADDRESS", help_heading = LISTENERS)]
    pub bind: Vec<String>,
    /// TLS listening port. Without --port, plain connections are off
    #[arg(long, value_name = "PORT", help_heading = LISTENERS, requires_all = ["tls_cert_file", "tls_key_file"])]
    pub tls_port: Option<u16>,
    /// Certificate chain that clients are shown
    #[arg(long, value_name = "FILE", help_heading = LISTENERS, requires = "tls_port")]
    pub tls_cert_file: Option<String>,
    /// Private key of --tls-cert-file
    #[arg(long, value_name = "FILE", help_heading = LISTENERS, requires = "tls_port")]
    pub tls_key_file: Option<String>,
    /// CA certificates that client certificates are verified against: a file, or a directory
    #[arg(long, value_name = "PATH", help_heading = LISTENERS, requires = "tls_port")]
    pub tls_ca_cert_file: Option<String>,
    /// Client certificates: yes (required), optional or no [default: yes with --tls-ca-cert-file, else no]
    #[arg(long, value_name = "MODE", help_heading = LISTENERS, requires = "tls_port", value_parser = asked_of_clients)]
    pub tls_auth_clients: Option<ClientCertificates>,
    /// Worker threads [default: one per CPU that the process may use]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Upstream server: [[user:]password@]host:port, or the path of a unix socket; may be given several times, for shards,
    /// cluster nodes or Sentinels
    #[arg(long, value_name = "SERVER", help_heading = UPSTREAM, conflicts_with_all = ["file", "predixy", "nutcracker"])]
    pub upstream: Vec<Secret>,
    /// The upstream servers are nodes of a Redis Cluster
    #[arg(long, help_heading = UPSTREAM, requires = "upstream", conflicts_with = "sentinel")]
    pub cluster: bool,
    /// The upstream servers are Sentinels, which monitor the primary NAME; may be given several times, for shards
    #[arg(long, value_name = "NAME", help_heading = UPSTREAM, requires = "upstream")]
    pub sentinel: Vec<String>,
    /// User for upstream servers
    #[arg(long, value_name = "NAME", help_heading = UPSTREAM, requires = "upstream_password")]
    pub upstream_user: Option<String>,
    /// Password for upstream servers
    #[arg(long, value_name = "PASSWORD", help_heading = UPSTREAM, requires = "upstream")]
    pub upstream_password: Option<Secret>,
    /// Use TLS to upstream servers and Sentinels; their certificates are verified against --upstream-tls-ca-cert-file
    /// [default: the system's CA certificates]
    #[arg(long, help_heading = UPSTREAM_TLS, conflicts_with = "file")]
    pub upstream_tls: bool,
    /// CA certificates that upstream certificates are verified against: a file, or a directory
    #[arg(long, value_name = "PATH", help_heading = UPSTREAM_TLS, requires = "upstream_tls")]
    pub upstream_tls_ca_cert_file: Option<String>,
    /// Certificate chain that upstream servers are shown
    #[arg(long, value_name = "FILE", help_heading = UPSTREAM_TLS, requires_all = ["upstream_tls", "upstream_tls_key_file"])]
    pub upstream_tls_cert_file: Option<String>,
    /// Private key of --upstream-tls-cert-file
    #[arg(long, value_name = "FILE", help_heading = UPSTREAM_TLS, requires = "upstream_tls_cert_file")]
    pub upstream_tls_key_file: Option<String>,
    /// Server name (SNI), which upstream certificates must have [default: none, any name is accepted]
    #[arg(long, value_name = "NAME", help_heading = UPSTREAM_TLS, requires = "upstream_tls")]
    pub upstream_tls_sni: Option<String>,
    /// Do not verify upstream certificates (insecure)
    #[arg(long, help_heading = UPSTREAM_TLS, requires = "upstream_tls")]
    pub upstream_tls_insecure: bool,
    /// Hash function [default: murmur]: atol, crc16, crc16-twemproxy, crc32, crc32a, fnv1-64, fnv1a-64, fnv1-32,
    /// fnv1a-32, hsieh, jenkins, md5, murmur, one-at-a-time
    #[arg(long, help_heading = SHARDING, value_parser = named::<HashKind>, requires = "upstream")]
    pub hash: Option<HashKind>,
    /// Key distribution [default: ketama]: ketama, modula, rendezvous, random
    #[arg(long, help_heading = SHARDING, value_parser = named::<DistributionKind>, requires = "upstream")]
    pub distribution: Option<DistributionKind>,
    /// Hash tag, two characters: only the part of a key between them is hashed [default: {}]
    #[arg(long, value_name = "TAG", help_heading = SHARDING, requires = "upstream")]
    pub hash_tag: Option<String>,
    /// Print the configuration as TOML and exit
    #[arg(long)]
    pub print_config: bool,
    /// Check the configuration and exit
    #[arg(long)]
    pub check: bool,
    /// Print version
    #[arg(short = 'V', short_alias = 'v', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    /// As predixy has it
    #[arg(long = "Name", value_name = "NAME", hide = true)]
    pub name: Option<String>,
    /// As predixy has it
    #[arg(long = "Bind", value_name = "PLACE", conflicts_with_all = ["port", "bind"], hide = true)]
    pub place: Option<Place>,
    /// As predixy has it
    #[arg(
        long = "WorkerThreads",
        value_name = "N",
        conflicts_with = "threads",
        hide = true
    )]
    pub worker_threads: Option<usize>,
    /// As predixy has it
    #[arg(long = "LocalDC", value_name = "NAME", hide = true)]
    pub local_dc: Option<String>,
}

impl Arguments {
    /// Parses the arguments of `redline proxy`. An error may also be the requested help.
    pub fn parse_words(words: impl Iterator<Item = OsString>) -> Result<Arguments, clap::Error> {
        let name = std::iter::once(OsString::from("redline proxy"));
        Arguments::try_parse_from(name.chain(words))
    }

    /// Returns the configuration of the arguments, and notes for the user; files are read anew each time.
    pub fn read(&self) -> Result<(Config, Vec<Note>), String> {
        let others = (&self.predixy, &self.nutcracker);
        let (mut config, notes) = match (&self.file, others) {
            (Some(path), _) => {
                let shown = path.display();
                let text = text_of(path)?;
                let config = Config::from_toml(&text).map_err(|error| {
                    of_another_program(path, &text).unwrap_or_else(|| format!("{shown}: {error}"))
                })?;
                (config, Vec::new())
            }
            (None, (Some(path), _)) => {
                let converted = predixy::read(path)?;
                (converted.config, converted.notes)
            }
            (None, (None, Some(path))) => {
                let converted = nutcracker::read(path)?;
                (converted.config, converted.notes)
            }
            (None, (None, None)) => (self.of_flags()?, Vec::new()),
        };
        self.override_file(&mut config)?;
        Ok((config, notes))
    }

    fn of_flags(&self) -> Result<Config, String> {
        if self.upstream.is_empty() {
            return Err(
                "no upstream servers: give a configuration file, or --upstream host:port (see --help)"
                    .to_owned(),
            );
        }
        let servers = self.upstream.iter().map(|text| server(text));
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        let mut pool = Pool {
            user: self.upstream_user.clone(),
            password: self.upstream_password.clone(),
            hash: self.hash.unwrap_or(Pool::default().hash),
            distribution: self.distribution.unwrap_or(Pool::default().distribution),
            hash_tag: self.hash_tag.clone().unwrap_or(Pool::default().hash_tag),
            ..Pool::default()
        };
        if self.cluster {
            (pool.kind, pool.seeds, pool.databases) = (PoolKind::Cluster, servers, 1);
        } else if self.sentinel.is_empty() {
            let shard = |server: Server| Shard {
                name: server.address.to_string(),
                weight: 1,
                servers: vec![server],
            };
            pool.shards = servers.into_iter().map(shard).collect();
        } else {
            (pool.kind, pool.sentinels) = (PoolKind::Sentinel, servers);
            let shard = |name: &String| Shard {
                name: name.clone(),
                weight: 1,
                servers: Vec::new(),
            };
            pool.shards = self.sentinel.iter().map(shard).collect();
        }
        Ok(Config {
            listeners: vec![Listener::at("127.0.0.1:7617".parse()?)],
            pools: vec![pool],
            ..Config::default()
        })
    }

    /// Applies the flags, which take precedence over the file.
    fn override_file(&self, config: &mut Config) -> Result<(), String> {
        let replaces = self.port.is_some() || !self.bind.is_empty() || self.place.is_some();
        let mut listeners = config.listeners.iter();
        if replaces && listeners.any(|listener| listener.tls.is_some() || listener.pool.is_some()) {
            return Err("--port, --bind and --Bind would replace listeners that have TLS or a pool; change the file instead".to_owned());
        }
        if self.port.is_some() || !self.bind.is_empty() {
            let port = self.port.unwrap_or(7617);
            let local = ["127.0.0.1".to_owned()];
            let hosts = if self.bind.is_empty() {
                &local[..]
            } else {
                &self.bind
            };
            config.listeners = Vec::new();
            for host in hosts {
                let bind = match host.as_str() {
                    path if path.starts_with('/') => path.parse()?,
                    host => at_port(host, port)?,
                };
                config.listeners.push(Listener::at(bind));
            }
        }
        if let Some(place) = &self.place {
            let (bind, pool, tls) = (place.clone(), None, None);
            config.listeners = vec![Listener {
                pool,
                tls,
                ..Listener::at(bind)
            }];
        }
        if let Some(port) = self.tls_port {
            self.add_tls_listeners(config, port)?;
        }
        if self.upstream_tls {
            let tls = Tls {
                certificate: self.upstream_tls_cert_file.clone(),
                key: self.upstream_tls_key_file.clone(),
                authorities: self.upstream_tls_ca_cert_file.clone(),
                server_name: self.upstream_tls_sni.clone(),
                insecure: self.upstream_tls_insecure,
                ..Tls::default()
            };
            for pool in &mut config.pools {
                pool.tls = Some(tls.clone());
            }
        }
        if let Some(threads) = self.threads.or(self.worker_threads) {
            config.threads = threads;
        }
        if let Some(name) = &self.name {
            config.name = name.clone();
        }
        if let Some(name) = &self.local_dc {
            config.local_data_center = name.clone();
        }
        Ok(())
    }
}

impl Arguments {
    /// Returns the configuration file, of whichever program: one at most.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let ours = self.file.iter();
        ours.chain(&self.predixy).chain(&self.nutcracker)
    }

    /// Adds TLS listeners to the existing ones, in place of a default one.
    fn add_tls_listeners(&self, config: &mut Config, port: u16) -> Result<(), String> {
        let of_file = self.files().next().is_some();
        if self.port.is_none() && !of_file {
            // A unix socket was given, without a listener there.
            let is_socket = |it: &Listener| matches!(it.bind, Place::Unix(_));
            config.listeners.retain(is_socket);
        }
        let hosts = self.bind.iter().map(String::as_str);
        let mut hosts: Vec<&str> = hosts.filter(|host| !host.starts_with('/')).collect();
        if hosts.is_empty() {
            hosts.push("127.0.0.1");
        }
        let tls = Tls {
            certificate: self.tls_cert_file.clone(),
            key: self.tls_key_file.clone(),
            authorities: self.tls_ca_cert_file.clone(),
            client_certificates: self.tls_auth_clients,
            ..Tls::default()
        };
        for host in hosts {
            config.listeners.push(Listener {
                tls: Some(tls.clone()),
                ..Listener::at(at_port(host, port)?)
            });
        }
        Ok(())
    }
}

/// Returns the error for a file of another program: which it is, and what to do with it.
fn of_another_program(path: &Path, text: &str) -> Option<String> {
    let (shown, origin) = (path.display(), Origin::of(text)?);
    let faults = match foreign::convert(origin, path, text.as_bytes().to_vec()) {
        Ok(_) => String::new(),
        Err(why) => format!("; as such it has a fault: {why}"),
    };
    Some(format!(
        "{shown}: this is a file of {}: {} {shown}{faults}",
        origin.name(),
        origin.taken_by()
    ))
}

/// Parses a word of the server's `tls-auth-clients`.
fn asked_of_clients(word: &str) -> Result<ClientCertificates, String> {
    match word {
        "yes" => Ok(ClientCertificates::Required),
        "no" => Ok(ClientCertificates::Off),
        "optional" => Ok(ClientCertificates::Optional),
        _ => Err("yes, no or optional".to_owned()),
    }
}

/// Returns the place of a `--bind` without a port: an IPv6 address has colons, a name has none.
fn at_port(host: &str, port: u16) -> Result<Place, String> {
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let is_ip = host.parse::<std::net::IpAddr>().is_ok();
    // An interface may follow an IPv6 address: fe80::1%eth0.
    let is_name = !host.is_empty() && (!host.contains(':') || host.contains('%'));
    if !is_ip && (!is_name || host.contains(char::is_whitespace)) {
        // As in the server's `bind`.
        if host != "::*" {
            return Err(format!(
                "--bind \"{host}\" is no address: write it without a port (which is --port), or as /path/of/a.socket"
            ));
        }
    }
    Ok(Place::tcp(host, port))
}

/// Parses `[[user:]password@]address`.
fn server(text: &str) -> Result<Server, String> {
    if text.starts_with("redis://") || text.starts_with("rediss://") {
        return Err(format!(
            "--upstream: \"{}\" is a URI: write it as [[user:]password@]host:port, and --upstream-tls for TLS",
            without_credentials(text)
        ));
    }
    let (who, address) = match text.rsplit_once('@') {
        Some((who, address)) if !text.starts_with('/') => (Some(who), address),
        _ => (None, text),
    };
    let (user, password) = match who.map(|who| who.split_once(':').ok_or(who)) {
        None => (None, None),
        Some(Ok((user, password))) => (Some(user.to_owned()), Some(password.into())),
        Some(Err(password)) => (None, Some(password.into())),
    };
    Ok(Server {
        address: address
            .parse()
            .map_err(|error| format!("--upstream: {error}"))?,
        user: user.filter(|user| !user.is_empty()),
        password,
    })
}

/// Parses a name as files write it.
fn named<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let text: StrDeserializer<'_, Error> = StrDeserializer::new(text);
    T::deserialize(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(line: &str) -> Result<Config, String> {
        let words = line.split_whitespace().map(OsString::from);
        let arguments = Arguments::parse_words(words).map_err(|error| error.to_string())?;
        arguments.read().map(|(config, _)| config)
    }

    #[test]
    fn flags_are_enough_for_the_common_cases() {
        let one = config("--port 7000 --threads 2 --upstream 127.0.0.1:6379").unwrap();
        assert_eq!(one.threads, 2);
        assert_eq!(one.listeners[0].bind.to_string(), "127.0.0.1:7000");
        assert_eq!(one.check(), []);
        let three =
            config("--upstream a:1 --upstream u:p@b:2 --upstream q@c:3 --hash md5").unwrap();
        let pool = &three.pools[0];
        assert_eq!((pool.shards.len(), pool.hash), (3, HashKind::Md5));
        assert_eq!(pool.shards[1].servers[0].user.as_deref(), Some("u"));
        assert_eq!(pool.shards[2].servers[0].password.as_deref(), Some("q"));
        assert_eq!(three.check(), []);
        let cluster = config("--cluster --upstream a:1").unwrap();
        assert_eq!(cluster.pools[0].kind, PoolKind::Cluster);
        assert_eq!(cluster.check(), []);
        let sentinel = config("--sentinel m --upstream a:26379").unwrap();
        assert_eq!(sentinel.pools[0].shards[0].name, "m");
        assert_eq!(sentinel.check(), []);
        for text in [one, three, cluster, sentinel] {
            assert_eq!(Config::from_toml(&text.to_toml()).unwrap(), text);
        }
    }

    #[test]
    fn errors_do_not_show_passwords() {
        for upstream in [
            "redis://u:5417@a:1",
            "rediss://:54@17@a:1",
            "u:5417@a",
            "5417@a b:1",
        ] {
            let error = server(upstream).unwrap_err();
            let has_none = !error.contains("54") && !error.contains("17");
            assert!(has_none && error.contains("a"), "{error}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (line, said) in [
            ("", "no upstream servers"),
            ("--cluster", "--upstream"),
            (
                "--cluster --sentinel m --upstream a:1",
                "cannot be used with",
            ),
            ("--upstream nowhere", "host:port"),
            ("--upstream redis://u:p@a:1", "is a URI"),
            ("--upstream a:1 --bind h:2", "without a port"),
            ("--upstream a:1 --bind=", "is no address"),
            ("--upstream a:1 --hash fnv", "unknown variant"),
            ("file.toml --upstream a:1", "cannot be used with"),
            ("/nowhere/file.toml", "No such file"),
            ("--nonsense", "unexpected argument"),
        ] {
            let error = config(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn help_names_every_hash_and_distribution() {
        let help = Arguments::parse_words([OsString::from("--help")].into_iter()).unwrap_err();
        let help = help.to_string();
        for option in ["hash", "distribution"] {
            // The parser's error lists the valid values.
            let error = config(&format!("--upstream a:1 --{option} ?")).unwrap_err();
            let (_, names) = error.split_once("expected one of ").unwrap();
            let names = names.split('`').skip(1).step_by(2);
            let missing: Vec<&str> = names.filter(|name| !help.contains(name)).collect();
            assert!(missing.is_empty(), "{option}: {missing:?}");
        }
    }

    #[test]
    fn an_address_to_bind_may_be_of_ipv6() {
        let one = config("--bind ::1 --bind [::2] --bind h --bind ::* --port 5 --upstream a:1");
        let listeners = one.unwrap().listeners;
        let places: Vec<String> = listeners.iter().map(|it| it.bind.to_string()).collect();
        assert_eq!(places, ["[::1]:5", "[::2]:5", "h:5", "[::*]:5"]);
    }

    #[test]
    fn a_unix_socket_stays_beside_tls() {
        let files = "--tls-cert-file c --tls-key-file k";
        let one = config(&format!("--bind /s --tls-port 7 {files} --upstream h:1")).unwrap();
        let places = one.listeners.iter();
        let places: Vec<_> = places
            .map(|it| (it.bind.to_string(), it.tls.is_some()))
            .collect();
        let tls = ("127.0.0.1:7".to_owned(), true);
        assert_eq!(places, [("/s".to_owned(), false), tls]);
        assert_eq!(one.check(), []);
    }

    #[test]
    fn flags_of_tls_are_those_of_the_server() {
        let files = "--tls-cert-file c --tls-key-file k --tls-ca-cert-file a";
        let one = config(&format!("--tls-port 7 {files} --upstream h:1")).unwrap();
        let tls = one.listeners[0].tls.as_ref().unwrap();
        assert_eq!(one.listeners.len(), 1, "nobody comes in without TLS");
        assert_eq!(tls.asked_of_clients(), ClientCertificates::Required);
        let both = config(&format!(
            "--port 6 --tls-port 7 {files} --tls-auth-clients no --upstream h:1 --upstream-tls --upstream-tls-sni n"
        ))
        .unwrap();
        let seen: Vec<_> = both.listeners.iter().map(|it| it.tls.is_some()).collect();
        assert_eq!(seen, [false, true]);
        let tls = both.listeners[1].tls.as_ref().unwrap();
        assert_eq!(tls.asked_of_clients(), ClientCertificates::Off);
        let tls = both.pools[0].tls.as_ref().unwrap();
        assert_eq!(tls.server_name.as_deref(), Some("n"));
        assert_eq!(both.check(), []);
        for (line, said) in [
            ("--tls-port 7 --upstream h:1", "--tls-cert-file"),
            ("--upstream h:1 --upstream-tls-insecure", "--upstream-tls"),
            (
                "--upstream h:1 --upstream-tls --upstream-tls-cert-file c",
                "--upstream-tls-key-file",
            ),
        ] {
            let error = config(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn flags_do_not_take_tls_away_from_a_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.toml");
        let text = "[[listener]]\nbind = 'h:1'\ntls = { certificate = 'c', key = 'k' }\n";
        std::fs::write(&path, text).unwrap();
        for more in ["--port 2", "--bind h", "--Bind=h:2"] {
            let error = config(&format!("{} {more}", path.display())).unwrap_err();
            assert!(error.contains("TLS"), "{error}");
        }
        assert!(config(&path.display().to_string()).is_ok());
    }

    #[test]
    fn flags_of_predixy_beat_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("predixy.conf");
        let text = "Name a\nWorkerThreads 3\nClusterServerPool {\nServers {\n+ h:1\n}\n}\n";
        std::fs::write(&path, text).unwrap();
        let line = format!(
            "--predixy {} --Name=b --Bind=h:2 --WorkerThreads=4 --LocalDC=x",
            path.display()
        );
        let config = config(&line).unwrap();
        assert_eq!((config.name.as_str(), config.threads), ("b", 4));
        assert_eq!(config.listeners[0].bind.to_string(), "h:2");
        assert_eq!(config.local_data_center, "x");
    }

    #[test]
    fn the_version_is_asked_for_as_predixy_has_it_too() {
        for word in ["-v", "-V", "--version"] {
            let said = config(word).unwrap_err();
            assert_eq!(
                said,
                format!("redline proxy {}\n", env!("CARGO_PKG_VERSION"))
            );
        }
    }

    #[test]
    fn who_names_a_predixy_file_as_ours_is_told_how_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("predixy.conf");
        let is_told = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let error = config(&path.display().to_string()).unwrap_err();
            error.contains(&format!("--predixy {}", path.display()))
        };
        assert!(is_told(
            "Name a\nClusterServerPool {\nServers {\n+ h:1\n}\n}\n"
        ));
        assert!(!is_told("name = \n"));
    }
}
