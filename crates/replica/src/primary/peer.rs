//! Facts that a replica tells of itself in the handshake, and the form of snapshot that follows from them.
//!
//! Must not know: the stream, how a snapshot is made.

use crate::link::NodeName;

/// Facts that a replica has told by REPLCONF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The port on which it listens; 0: it has told none.
    pub port: u16,
    /// The address at which it wants to be known; empty: that of its connection.
    pub announced_ip: String,
    /// The address of its connection.
    pub ip: String,
    /// It reads snapshots whose end is a mark.
    pub eof: bool,
    /// It takes another id with `+CONTINUE`.
    pub psync2: bool,
    /// It is a server of this program (`capa redline`), which reads every version of the format.
    pub is_redline: bool,
    /// It knows the channel for snapshots of Redis 8, so it is that at least.
    pub rdb_channel: bool,
    /// Its version, if it is a Valkey: major number first.
    pub version: Option<(u32, u32)>,
    /// It wants a snapshot and no stream.
    pub rdb_only: bool,
    /// Part of the data that its snapshot is to have.
    pub part: Part,
    /// Node of the cluster that it is, and the term that it follows.
    pub node: Option<NodeName>,
    /// Its snapshot was sent with a mark at its end.
    pub(super) got_mark: bool,
}

/// The form of a snapshot, by who is to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Redis 8: version 12.
    Redis8,
    /// Valkey 9 and later: version 11, or Valkey's own if fields expire.
    Valkey9,
    /// Valkey before 9: version 11.
    Valkey8,
    /// A Redis that tells nothing: version 10 if that holds the data, which all from 7.0 on read.
    Unknown,
    /// A Redis that could not read that: version 9.
    Old,
}

/// A part of the data, for a snapshot that is to have no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// Keys and functions.
    #[default]
    All,
    /// The libraries of functions.
    Functions,
    /// Neither keys nor functions.
    Nothing,
}

impl Part {
    /// Returns the part that filters let through; the first one that is unknown is the error.
    pub fn of_filters(names: &[Vec<u8>]) -> Result<Part, &[u8]> {
        let mut part = Part::Nothing;
        for name in names {
            match name.to_ascii_lowercase().as_slice() {
                b"functions" => part = Part::Functions,
                _ => return Err(name),
            }
        }
        Ok(part)
    }
}

impl Peer {
    /// Returns the form for it. `has_failed`: what it would be sent as a Redis that tells nothing has not worked.
    pub fn form(&self, has_failed: bool) -> Form {
        match self.version {
            // It tells a Valkey's version as well, by which a Valkey sends it all that it has.
            _ if self.is_redline => Form::Redis8,
            Some((9.., _)) => Form::Valkey9,
            Some(_) => Form::Valkey8,
            None if self.rdb_channel => Form::Redis8,
            None if has_failed => Form::Old,
            None => Form::Unknown,
        }
    }

    /// Returns where it listens, which stays the same when it calls again.
    pub fn address(&self) -> (String, u16) {
        (self.shown_ip().to_owned(), self.port)
    }

    /// Returns the address at which it is shown.
    pub fn shown_ip(&self) -> &str {
        match self.announced_ip.is_empty() {
            true => &self.ip,
            false => &self.announced_ip,
        }
    }

    /// Notes a capability; unknown ones are passed over.
    pub fn note_capability(&mut self, name: &[u8]) {
        match name.to_ascii_lowercase().as_slice() {
            b"eof" => self.eof = true,
            b"psync2" => self.psync2 = true,
            b"redline" => self.is_redline = true,
            b"rdb-channel-repl" => self.rdb_channel = true,
            _ => {}
        }
    }

    /// Notes its version (`major.minor.patch`). Returns false if it is none.
    pub fn note_version(&mut self, text: &str) -> bool {
        let mut parts = text.split('.').map(|part| part.parse::<u32>().ok());
        let (Some(Some(major)), Some(Some(minor)), Some(Some(_)), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return false;
        };
        self.version = Some((major, minor));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_let_through_what_they_name() {
        let of = |names: &[&str]| {
            let names: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
            Part::of_filters(&names).map_err(<[u8]>::to_vec)
        };
        assert_eq!(of(&[]), Ok(Part::Nothing));
        assert_eq!(of(&["Functions", "functions"]), Ok(Part::Functions));
        assert_eq!(of(&["functions", "keys"]), Err(b"keys".to_vec()));
    }

    #[test]
    fn the_form_follows_the_handshake() {
        let mut peer = Peer::default();
        assert_eq!(peer.form(false), Form::Unknown);
        assert_eq!(peer.form(true), Form::Old);
        peer.note_capability(b"EOF");
        peer.note_capability(b"made-up");
        assert_eq!(peer.form(false), Form::Unknown);
        peer.note_capability(b"rdb-channel-repl");
        assert_eq!(peer.form(true), Form::Redis8);
        assert!(!peer.note_version("9.1") && !peer.note_version("9.x.1"));
        assert!(peer.note_version("8.0.3"));
        assert_eq!(peer.form(true), Form::Valkey8);
        assert!(peer.note_version("9.1.2"));
        assert_eq!(peer.form(true), Form::Valkey9);
    }
}
