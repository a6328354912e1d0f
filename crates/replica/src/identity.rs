//! The identity of a replication stream: its id, the one before it, and the offset of its end.
//!
//! Two servers with the same id and the same offset have the same data. A server that begins a history of its own takes a
//! fresh id, and keeps the old one up to the place where both part, so that those who followed the old one can go on.
//! The methods of [`Identity`] are the events after which ids or offsets are others.
//!
//! Must not know: blocks, peers, where random bytes come from.

use std::fmt;

/// Number of characters of an id.
pub const REPLID_LEN: usize = 40;

/// The id of a replication stream: 40 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Replid([u8; REPLID_LEN]);

impl Replid {
    /// The id that stands for none, as INFO shows it.
    pub const NONE: Replid = Replid([b'0'; REPLID_LEN]);

    /// Makes an id of random bytes.
    pub fn from_random(random: [u8; REPLID_LEN / 2]) -> Replid {
        let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
        let mut text = [0; REPLID_LEN];
        for (pair, byte) in text.chunks_exact_mut(2).zip(random) {
            pair[0] = digit(byte >> 4);
            pair[1] = digit(byte & 15);
        }
        Replid(text)
    }

    /// Reads an id: 40 printable characters other than a space, as a peer or a file tells it. `None`: it is none.
    pub fn parse(text: &[u8]) -> Option<Replid> {
        let text: [u8; REPLID_LEN] = text.try_into().ok()?;
        text.iter()
            .all(u8::is_ascii_graphic)
            .then_some(Replid(text))
    }

    /// Returns its text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked where it was made")
    }

    /// Returns its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Replid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Replid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The source of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// This server's own units: the lanes of its workers feed the stream.
    #[default]
    Primary,
    /// Another server: the link to it feeds the stream.
    Replica,
}

/// The history before the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Former {
    /// Its id.
    pub replid: Replid,
    /// The first offset that it has not in common with the current one, counted as PSYNC does: from 1.
    pub end: u64,
}

/// Ids and offset of a server: see the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    role: Role,
    replid: Replid,
    former: Option<Former>,
    offset: u64,
}

impl Identity {
    /// Begins a history: a start without anything known of an earlier one.
    pub fn new(fresh: Replid) -> Identity {
        Identity {
            role: Role::Primary,
            replid: fresh,
            former: None,
            offset: 0,
        }
    }

    /// Goes on as a primary with data of a file that tells its id and offset: those who followed that id can follow this one.
    pub fn restarted_as_primary(fresh: Replid, replid: Replid, offset: u64) -> Identity {
        Identity {
            role: Role::Primary,
            replid: fresh,
            former: Some(Former {
                replid,
                end: offset + 1,
            }),
            offset,
        }
    }

    /// Goes on as a replica with data of a file that tells its id and offset.
    pub fn restarted_as_replica(replid: Replid, offset: u64) -> Identity {
        Identity {
            role: Role::Replica,
            replid,
            former: None,
            offset,
        }
    }

    /// Returns the source of the stream.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the id of the stream.
    pub fn replid(&self) -> Replid {
        self.replid
    }

    /// Returns the history before this one.
    pub fn former(&self) -> Option<Former> {
        self.former
    }

    /// Returns the number of bytes of the stream since the start of its id's history.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Counts bytes that were added to the stream.
    pub fn add(&mut self, bytes: u64) {
        self.offset += bytes;
    }

    /// Becomes a replica (REPLICAOF, FAILOVER): ids are kept until the primary has answered.
    pub fn demoted(&mut self) {
        self.role = Role::Replica;
    }

    /// Takes over a primary's history with its data (`+FULLRESYNC`).
    pub fn full_resync(&mut self, replid: Replid, offset: u64) {
        *self = Identity::restarted_as_replica(replid, offset);
    }

    /// Goes on where it was (`+CONTINUE`). Returns true if the primary has told another id: own replicas have to ask again,
    /// and can go on.
    pub fn continued(&mut self, replid: Option<Replid>) -> bool {
        self.role = Role::Replica;
        let Some(replid) = replid.filter(|replid| *replid != self.replid) else {
            return false;
        };
        self.part(replid);
        true
    }

    /// Becomes a primary with the data that it has: a history of its own begins, which shares all that was with the old one.
    pub fn promoted(&mut self, fresh: Replid) {
        self.role = Role::Primary;
        self.part(fresh);
    }

    /// Takes a fresh id, since what was not kept cannot be continued.
    pub fn restarted(&mut self, fresh: Replid) {
        self.replid = fresh;
        self.former = None;
    }

    /// Returns true if a peer that has this id's data up to the byte before `asked`, counted from 1, has nothing that this
    /// server has not.
    pub fn shares(&self, replid: Replid, asked: u64) -> bool {
        let is_former =
            |former: Former| former.replid == replid && asked <= former.end && asked > 0;
        self.replid == replid || self.former.is_some_and(is_former)
    }

    fn part(&mut self, replid: Replid) {
        self.former = Some(Former {
            replid: self.replid,
            end: self.offset + 1,
        });
        self.replid = replid;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(seed: u8) -> Replid {
        Replid::from_random([seed; REPLID_LEN / 2])
    }

    #[test]
    fn an_id_is_forty_characters() {
        assert_eq!(id(0x3f).as_str(), "3f".repeat(20));
        assert_eq!(Replid::parse(id(7).as_bytes()), Some(id(7)));
        assert_eq!(Replid::parse(&[b'a'; 39]), None);
        assert_eq!(Replid::parse(&[b' '; 40]), None);
        assert_eq!(Replid::parse(&[0xff; 40]), None);
    }

    #[test]
    fn a_promotion_is_shared_up_to_its_place() {
        let mut identity = Identity::new(id(1));
        identity.full_resync(id(2), 100);
        identity.add(20);
        identity.promoted(id(3));
        assert_eq!((identity.role(), identity.offset()), (Role::Primary, 120));
        identity.add(5);
        assert!(identity.shares(id(3), 126));
        assert!(identity.shares(id(2), 121));
        assert!(!identity.shares(id(2), 122), "it is behind the fork");
        assert!(!identity.shares(id(2), 0));
        assert!(!identity.shares(id(1), 1));
    }

    #[test]
    fn a_continuation_under_another_id_is_told_to_own_replicas() {
        let mut identity = Identity::restarted_as_replica(id(1), 50);
        assert!(!identity.continued(None));
        assert!(!identity.continued(Some(id(1))));
        assert_eq!(identity.former(), None);
        assert!(identity.continued(Some(id(2))));
        let former = Former {
            replid: id(1),
            end: 51,
        };
        assert_eq!(identity.former(), Some(former));
        assert_eq!(identity.offset(), 50);
    }

    #[test]
    fn a_start_with_a_file_continues_it() {
        let identity = Identity::restarted_as_primary(id(9), id(1), 50);
        assert!(identity.shares(id(1), 51) && !identity.shares(id(1), 52));
        let identity = Identity::restarted_as_replica(id(1), 50);
        assert_eq!((identity.replid(), identity.role()), (id(1), Role::Replica));
    }
}
