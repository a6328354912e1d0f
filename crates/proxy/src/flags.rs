//! The command line of `redline proxy`.

use std::ffi::OsString;

use redline_net::Address;

/// What the command line says.
#[derive(Debug, PartialEq, Eq)]
pub struct Flags {
    /// The port to listen on.
    pub port: u16,
    /// The addresses to listen on.
    pub binds: Vec<String>,
    /// Workers.
    pub threads: usize,
    /// Servers; several share the keys.
    pub upstreams: Vec<Address>,
    /// The servers' password.
    pub password: Option<String>,
}

/// How it is called.
pub const USAGE: &str = "\
Usage: redline proxy --upstream host:port [--upstream host:port ...]
                     [--port N] [--bind address] [--threads N] [--upstream-password PASSWORD]

 --upstream   A Redis server. Several of them share the keys between them.
 --port       Where clients come (7617).
 --bind       On which address (127.0.0.1); may be given more than once.
 --threads    Workers (1).
";

impl Flags {
    /// Reads the words behind `proxy`.
    pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Flags, String> {
        let mut flags = Flags {
            port: 7617,
            binds: Vec::new(),
            threads: 1,
            upstreams: Vec::new(),
            password: None,
        };
        let mut words = words.map(|word| word.to_string_lossy().into_owned());
        while let Some(flag) = words.next() {
            let mut value = || words.next().ok_or(format!("{flag} needs a value"));
            match flag.as_str() {
                "--port" => flags.port = number(&flag, &value()?)?,
                "--threads" => flags.threads = number(&flag, &value()?)?,
                "--bind" => flags.binds.push(value()?),
                "--upstream" => flags.upstreams.push(address(&value()?)?),
                "--upstream-password" => flags.password = Some(value()?),
                _ => return Err(format!("unknown option {flag}")),
            }
        }
        if flags.upstreams.is_empty() {
            return Err("no --upstream: which server is this proxy for?".to_owned());
        }
        if flags.threads == 0 {
            return Err("--threads 0: somebody has to do the work".to_owned());
        }
        if flags.binds.is_empty() {
            flags.binds.push("127.0.0.1".to_owned());
        }
        Ok(flags)
    }
}

fn number<N: std::str::FromStr>(flag: &str, text: &str) -> Result<N, String> {
    text.parse()
        .map_err(|_| format!("{flag} {text}: not a number that can be"))
}

fn address(text: &str) -> Result<Address, String> {
    if text.starts_with('/') {
        return Ok(Address::unix(text));
    }
    let parts = text.rsplit_once(':').map(|(host, port)| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (host, port.parse::<u16>())
    });
    match parts {
        Some((host, Ok(port))) if !host.is_empty() && port > 0 => Ok(Address::tcp(host, port)),
        _ => Err(format!("--upstream {text}: not host:port")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, String> {
        Flags::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn flags_are_read_and_checked() {
        let flags = parse("--port 7 --threads 2 --upstream a:1 --upstream [::1]:2").unwrap();
        assert_eq!((flags.port, flags.threads), (7, 2));
        assert_eq!(
            flags.upstreams,
            [Address::tcp("a", 1), Address::tcp("::1", 2)]
        );
        for bad in [
            "",
            "--port",
            "--port x",
            "--upstream a",
            "--upstream a:1 -x",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
