//! A Sentinel's file as our configuration: a pool for each primary that it monitors, with the Sentinels that it knows.

use std::collections::BTreeMap;

use std::net::IpAddr;

use redline_resp::split_words;

use super::converted::{Converted, Note};
use super::*;

/// Port of the first listener; those of further pools follow.
const PORT: u16 = 7617;
/// Default port of a Sentinel.
const SENTINEL_PORT: u16 = 26379;

/// Returns true if this is a Sentinel's file: it monitors a primary.
pub fn is_its_file(text: &str) -> bool {
    let mut lines = text.lines().filter_map(words_of);
    lines.any(|words| matches!(&words[..], [first, second, ..] if first == "sentinel" && second == "monitor"))
}

/// Converts the text of the file `shown`. An error names the line.
pub fn convert(shown: &str, text: &str) -> Result<Converted, String> {
    let mut file = File {
        shown,
        pools: BTreeMap::new(),
        order: Vec::new(),
        host: None,
        port: SENTINEL_PORT,
        tls_port: 0,
        announced_port: 0,
        own_password: None,
        sentinel: (None, None),
    };
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with('#') {
            continue;
        }
        let place = |what: String| format!("{shown}:{}: {what}", at + 1);
        let words = words_of(line).ok_or_else(|| place("a quote does not end".into()))?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        file.line(&words).map_err(place)?;
    }
    file.finish()
}

/// Returns the words of a line, by the rules of Redis's files; none, if a quote does not end.
fn words_of(line: &str) -> Option<Vec<String>> {
    let words = split_words(line.as_bytes())?;
    let text = |word: Vec<u8>| String::from_utf8_lossy(&word).into_owned();
    Some(words.into_iter().map(text).collect())
}

/// Returns true for an address of `bind` at which others find this Sentinel.
fn is_address(word: &str) -> bool {
    let everywhere = |address: IpAddr| address.is_unspecified();
    !word.contains('*') && !word.parse().is_ok_and(everywhere)
}

struct File<'a> {
    shown: &'a str,
    pools: BTreeMap<String, Pool>,
    /// Names of pools, as the file has them.
    order: Vec<String>,
    /// Address of this Sentinel.
    host: Option<String>,
    /// Its port without TLS; 0: none.
    port: u16,
    /// Its port with TLS; 0: none.
    tls_port: u16,
    /// The port that it tells others; 0: that at which it listens.
    announced_port: u16,
    own_password: Option<String>,
    /// User and password for other Sentinels.
    sentinel: (Option<String>, Option<String>),
}

impl File<'_> {
    fn line(&mut self, words: &[&str]) -> Result<(), String> {
        let port = |text: &str| {
            let port = text.parse::<u16>();
            port.map_err(|_| format!("a port is 0 to 65535, not \"{text}\""))
        };
        match words {
            ["port", text] => self.port = port(text)?,
            ["tls-port", text] => self.tls_port = port(text)?,
            ["bind", addresses @ ..] if self.host.is_none() => {
                // A dash in front: it need not exist.
                let mut addresses = addresses.iter().map(|word| word.trim_start_matches('-'));
                self.host = addresses.find(|word| is_address(word)).map(str::to_owned);
            }
            ["requirepass", password] => self.own_password = Some((*password).to_owned()),
            ["sentinel", "announce-ip", host] => self.host = Some((*host).to_owned()),
            ["sentinel", "announce-port", text] => self.announced_port = port(text)?,
            ["sentinel", "sentinel-user", user] => self.sentinel.0 = Some((*user).to_owned()),
            ["sentinel", "sentinel-pass", password] => {
                self.sentinel.1 = Some((*password).to_owned());
            }
            ["sentinel", "monitor", name, host, text, _] => {
                let port = port(text)?;
                if self.pools.contains_key(*name) {
                    return Err(format!("{name} is monitored by an earlier line as well"));
                }
                self.order.push((*name).to_owned());
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
                self.pools.insert((*name).to_owned(), pool);
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
        let shown = self.shown;
        let needs_tls = self.port == 0 && self.tls_port != 0;
        let port = match (self.announced_port, needs_tls) {
            (0, false) => self.port,
            (0, true) => self.tls_port,
            (announced, _) => announced,
        };
        let several = self.order.len() > 1;
        for (at, name) in self.order.iter().enumerate() {
            let Some(mut pool) = self.pools.remove(name) else {
                continue;
            };
            let own = Place::tcp(self.host.as_deref().unwrap_or("127.0.0.1"), port);
            pool.sentinels.insert(
                0,
                Server {
                    address: own,
                    user: None,
                    password: None,
                },
            );
            let (user, password) = &self.sentinel;
            let password = password.as_deref().or(self.own_password.as_deref());
            pool.sentinel_password = password.map(Secret::from);
            pool.sentinel_user.clone_from(user);
            let bind = Place::tcp("127.0.0.1", PORT.saturating_add(at as u16));
            let mut listener = Listener::at(bind);
            listener.pool = several.then(|| pool.name.clone());
            converted.config.listeners.push(listener);
            converted.config.pools.push(pool);
        }
        if needs_tls {
            converted.notes.push(Note::other(format!(
                "{shown}: this Sentinel takes connections with TLS only: give each pool its [pool.tls]"
            )));
        }
        if self.host.is_none() {
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
            (
                "sentinel auth-pass a \"b\n",
                "s.conf:1: a quote does not end",
            ),
            ("sentinel monitor a b\n", "s.conf:1: sentinel monitor has"),
            ("\nsentinel monitor a b x 1\n", "s.conf:2: a port is"),
            ("sentinel auth-pass a b\n", "s.conf:1: a is not monitored"),
            ("port 1\n", "s.conf: no line is sentinel monitor"),
        ] {
            let why = convert("s.conf", text).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }

    /// Returns the address of the Sentinel whose file has these lines, and the notes on them.
    fn own(lines: &str) -> (String, Vec<String>) {
        let text = format!("{lines}sentinel monitor one 10.0.0.1 6379 2\n");
        let Converted { config, notes } = convert("s.conf", &text).unwrap();
        let notes = notes.into_iter().map(|note| note.text).collect();
        let own = &config.pools[0].sentinels[0];
        (own.address.to_string(), notes)
    }

    #[test]
    fn an_address_that_was_taken_for_another() {
        for (lines, address, said) in [
            ("bind 10.0.0.5\n", "10.0.0.5:26379", None),
            ("bind 10.0.0.5\ntls-port 5001\n", "10.0.0.5:26379", None),
            (
                "bind 10.0.0.5\nport 5000\ntls-port 5001\n",
                "10.0.0.5:5000",
                None,
            ),
            (
                "bind 10.0.0.5\nport 0\ntls-port 5001\n",
                "10.0.0.5:5001",
                Some("with TLS only"),
            ),
            ("bind 0.0.0.0\n", "127.0.0.1:26379", Some("does not say")),
            ("bind * -::*\n", "127.0.0.1:26379", Some("does not say")),
            ("bind :: -10.0.0.5\n", "10.0.0.5:26379", None),
            ("sentinel announce-port 7\nport 5\nbind h\n", "h:7", None),
        ] {
            let (own, notes) = own(lines);
            assert_eq!(own, address, "{lines}");
            let is_said = |said| notes.len() == 1 && notes[0].contains(said);
            assert!(said.map_or(notes.is_empty(), is_said), "{lines}: {notes:?}");
        }
    }

    #[test]
    fn a_password_with_a_blank_was_dropped() {
        let text =
            "sentinel monitor one 10.0.0.1 6379 2\nsentinel auth-pass one \"two \\\"words\"\n";
        let Converted { config, .. } = convert("s.conf", text).unwrap();
        assert_eq!(config.pools[0].password.as_deref(), Some("two \"words"));
    }
}
