//! A Sentinel's file as our configuration: a pool for each primary that it monitors, with the Sentinels that it knows.

use std::collections::BTreeMap;

use super::converted::{Converted, Note};
use super::*;

/// Port of the first listener; those of further pools follow.
const PORT: u16 = 7617;
/// Default port of a Sentinel.
const SENTINEL_PORT: u16 = 26379;

/// Returns true if this is a Sentinel's file: it monitors a primary.
pub fn is_its_file(text: &str) -> bool {
    let mut lines = text.lines().map(words_of);
    lines.any(|words| matches!(&words[..], ["sentinel", "monitor", ..]))
}

/// Converts the text of the file `shown`. An error names the line.
pub fn convert(shown: &str, text: &str) -> Result<Converted, String> {
    let mut file = File {
        shown,
        pools: BTreeMap::new(),
        order: Vec::new(),
        own: (None, SENTINEL_PORT),
        own_password: None,
        sentinel: (None, None),
    };
    for (at, line) in text.lines().enumerate() {
        let words = words_of(line);
        if words.is_empty() || words[0].starts_with('#') {
            continue;
        }
        file.line(&words)
            .map_err(|what| format!("{shown}:{}: {what}", at + 1))?;
    }
    file.finish()
}

/// Returns the words of a line, without quotes around them.
fn words_of(line: &str) -> Vec<&str> {
    let words = line.split_whitespace();
    words.map(|word| word.trim_matches('"')).collect()
}

struct File<'a> {
    shown: &'a str,
    pools: BTreeMap<&'a str, Pool>,
    /// Names of pools, as the file has them.
    order: Vec<&'a str>,
    /// Address and port of this Sentinel.
    own: (Option<&'a str>, u16),
    own_password: Option<&'a str>,
    /// User and password for other Sentinels.
    sentinel: (Option<&'a str>, Option<&'a str>),
}

impl<'a> File<'a> {
    fn line(&mut self, words: &[&'a str]) -> Result<(), String> {
        let port = |text: &str| {
            let port = text.parse::<u16>();
            port.map_err(|_| format!("a port is 0 to 65535, not \"{text}\""))
        };
        match words {
            ["port" | "tls-port", text] => match port(text)? {
                0 => {}
                port => self.own.1 = port,
            },
            ["bind", first, ..] if !first.contains('*') && self.own.0.is_none() => {
                self.own.0 = Some(first)
            }
            ["requirepass", password] => self.own_password = Some(password),
            ["sentinel", "announce-ip", host] => self.own.0 = Some(host),
            ["sentinel", "announce-port", text] => self.own.1 = port(text)?,
            ["sentinel", "sentinel-user", user] => self.sentinel.0 = Some(user),
            ["sentinel", "sentinel-pass", password] => self.sentinel.1 = Some(password),
            ["sentinel", "monitor", name, host, text, _] => {
                let port = port(text)?;
                if self.pools.contains_key(name) {
                    return Err(format!("{name} is monitored by an earlier line as well"));
                }
                self.order.push(name);
                let server = Server {
                    address: Place::tcp(*host, port),
                    user: None,
                    password: None,
                };
                let pool = Pool {
                    name: (*name).to_owned(),
                    kind: PoolKind::Sentinel,
                    shards: vec![Shard {
                        name: (*name).to_owned(),
                        weight: 1,
                        servers: vec![server],
                    }],
                    ..Pool::default()
                };
                self.pools.insert(name, pool);
            }
            ["sentinel", "monitor", ..] => {
                return Err("sentinel monitor has a name, an address, a port and a quorum".into());
            }
            ["sentinel", "auth-pass", name, password] => {
                self.pool(name)?.password = Some(Secret::from(*password));
            }
            ["sentinel", "auth-user", name, user] => {
                self.pool(name)?.user = Some((*user).to_owned());
            }
            ["sentinel", "known-sentinel", name, host, text, ..] => {
                let address = Place::tcp(*host, port(text)?);
                self.pool(name)?.sentinels.push(Server {
                    address,
                    user: None,
                    password: None,
                });
            }
            // How Sentinels judge and act is theirs.
            _ => {}
        }
        Ok(())
    }

    fn pool(&mut self, name: &str) -> Result<&mut Pool, String> {
        let pool = self.pools.get_mut(name);
        pool.ok_or_else(|| format!("{name} is not monitored by a line before"))
    }

    fn finish(mut self) -> Result<Converted, String> {
        if self.order.is_empty() {
            return Err(format!("{}: no line is sentinel monitor", self.shown));
        }
        let mut converted = Converted {
            config: Config::default(),
            notes: Vec::new(),
        };
        let (host, port) = self.own;
        let several = self.order.len() > 1;
        for (at, name) in self.order.iter().enumerate() {
            let Some(mut pool) = self.pools.remove(name) else {
                continue;
            };
            let own = Place::tcp(host.unwrap_or("127.0.0.1"), port);
            pool.sentinels.insert(
                0,
                Server {
                    address: own,
                    user: None,
                    password: None,
                },
            );
            let password = self.sentinel.1.or(self.own_password);
            pool.sentinel_password = password.map(Secret::from);
            pool.sentinel_user = self.sentinel.0.map(str::to_owned);
            let bind = Place::tcp("127.0.0.1", PORT.saturating_add(at as u16));
            let mut listener = Listener::at(bind);
            listener.pool = several.then(|| pool.name.clone());
            converted.config.listeners.push(listener);
            converted.config.pools.push(pool);
        }
        let shown = self.shown;
        if host.is_none() {
            converted.notes.push(Note::other(format!(
                "{shown}: the file does not say this Sentinel's address; 127.0.0.1 holds on its own machine only"
            )));
        }
        if several {
            converted.notes.push(Note::same(format!(
                "{shown}: each primary is a pool with a listener of its own, from port {PORT} on"
            )));
        }
        Ok(converted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sentinel_monitors_becomes_pools() {
        let text = "port 5000\nsentinel announce-ip 10.0.0.5\nsentinel monitor one 10.0.0.1 6379 2\n\
                    sentinel auth-pass one secret\nsentinel auth-user one u\nsentinel down-after-milliseconds one 5000\n\
                    sentinel known-sentinel one 10.0.0.6 5001 0123\nsentinel monitor two 10.0.0.2 6380 2\nrequirepass \"p\"\n";
        assert!(is_its_file(text) && !is_its_file("port 1\n"));
        let Converted { config, notes } = convert("s.conf", text).unwrap();
        assert_eq!(notes.len(), 1);
        let [one, two] = &config.pools[..] else {
            panic!("{config:?}");
        };
        let places: Vec<String> = one
            .sentinels
            .iter()
            .map(|it| it.address.to_string())
            .collect();
        assert_eq!(places, ["10.0.0.5:5000", "10.0.0.6:5001"]);
        assert_eq!(one.user.as_deref(), Some("u"));
        assert_eq!(one.password.as_deref(), Some("secret"));
        assert_eq!(one.sentinel_password.as_deref(), Some("p"));
        assert_eq!(two.shards[0].name, "two");
        assert_eq!(config.listeners[1].bind.to_string(), "127.0.0.1:7618");
        assert_eq!(config.check().iter().filter(|one| one.is_fatal).count(), 0);
        for (text, said) in [
            ("sentinel monitor a b\n", "s.conf:1: sentinel monitor has"),
            ("\nsentinel monitor a b x 1\n", "s.conf:2: a port is"),
            ("sentinel auth-pass a b\n", "s.conf:1: a is not monitored"),
            ("port 1\n", "s.conf: no line is sentinel monitor"),
        ] {
            let why = convert("s.conf", text).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }
}
