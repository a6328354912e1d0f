//! Lookup of a name on the wire, in any case, as a [`CommandId`]: one probe of a perfect hash that the compiler builds.
//!
//! A name of up to 24 bytes is read as three little-endian words. The words are hashed without bit 5 of each byte, which
//! distinguishes upper case from lower case, and together with the container, since subcommands are in the same table as
//! commands. The hash's top bits select one of 256 displacements, and the next ones, displaced, select the only slot that
//! can have the name. The slot holds the name in lower case and marks the bytes that are letters: in these, and in no
//! others, bit 5 of the name is set before the comparison. So a lookup is a multiplication, two loads and a comparison.
//!
//! The scheme is "hash and displace" (Belazzougui, Botelho and Dietzfelbinger, 2009) with xor for the displacement. The
//! compiler tries seeds until every name has a slot of its own.

use crate::{CommandId, Row, gate, table};

/// Length of the longest name that a command or a subcommand may have.
pub const NAME_BYTES_MAX: usize = 24;

const BUCKETS: usize = 256;
const SLOTS: usize = 1024;

/// Returns the command of that name; for a container's name the container.
#[inline]
pub fn lookup(name: &[u8]) -> Option<CommandId> {
    find(TOP_LEVEL, name)
}

/// Returns the subcommand of that name.
#[inline]
pub fn lookup_subcommand(container: CommandId, name: &[u8]) -> Option<CommandId> {
    find(container as u16, name)
}

/// Reason why a call names no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// The first word is no command.
    Command,
    /// The first word is a command, but the second is none of its subcommands.
    Subcommand(CommandId),
}

/// Returns the command or subcommand that a call names with its first word and, if there is one, its second.
///
/// For a container called with one word it returns the container: its arity refuses the call.
#[inline]
pub fn resolve(first: &[u8], second: Option<&[u8]>) -> Result<CommandId, Unresolved> {
    let id = lookup(first).ok_or(Unresolved::Command)?;
    match second {
        Some(second) if gate(id).has_subcommands => {
            lookup_subcommand(id, second).ok_or(Unresolved::Subcommand(id))
        }
        _ => Ok(id),
    }
}

/// Container number of names that are not subcommands.
const TOP_LEVEL: u16 = u16::MAX;

#[inline]
fn find(container: u16, name: &[u8]) -> Option<CommandId> {
    let scope = NameScope::new(container, name.len());
    match name.len() {
        1..=8 => MAP.probe(words::<1>(name), scope),
        9..=16 => MAP.probe(words::<2>(name), scope),
        17..=NAME_BYTES_MAX => MAP.probe(words::<3>(name), scope),
        _ => None,
    }
}

/// Properties that distinguish names with the same words: their container, and their length (a name may end in zeros).
#[derive(Clone, Copy, PartialEq, Eq)]
struct NameScope(u32);

impl NameScope {
    const fn new(container: u16, len: usize) -> NameScope {
        NameScope((container as u32) << 8 | len as u32 & 0xff)
    }
}

/// Returns the first `N` words of a name, zeros above its end. Zero words do not change the hash.
#[inline]
const fn words<const N: usize>(mut name: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    let mut at = 0;
    while at < N {
        words[at] = word(name);
        name = if name.len() > 8 {
            name.split_at(8).1
        } else {
            &[]
        };
        at += 1;
    }
    words
}

#[inline]
const fn hash<const N: usize>(words: &[u64; N], scope: NameScope, seed: u64) -> u64 {
    let mut mixed = 0;
    let mut at = 0;
    while at < N {
        mixed ^= words[at].rotate_left(24 * at as u32);
        at += 1;
    }
    ((mixed & !BIT_5) ^ (scope.0 as u64) << 40 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

const ONES: u64 = 0x0101_0101_0101_0101;

/// Bit by which upper-case letters differ from lower-case letters, in each byte.
const BIT_5: u64 = ONES * 0x20;

/// Returns [`BIT_5`] of those bytes that are lower-case letters.
const fn letters(word: u64) -> u64 {
    let bytes = word.to_le_bytes();
    let mut letters = [0; 8];
    let mut i = 0;
    while i < bytes.len() {
        letters[i] = if bytes[i].is_ascii_lowercase() {
            0x20
        } else {
            0
        };
        i += 1;
    }
    u64::from_le_bytes(letters)
}

/// Returns the word with lower-case letters for upper-case ones.
const fn lower_case(word: u64) -> u64 {
    let mut bytes = word.to_le_bytes();
    bytes.make_ascii_lowercase();
    u64::from_le_bytes(bytes)
}

/// Returns up to eight bytes as a little-endian word, zeros above. Overlapping reads avoid a loop.
#[inline]
const fn word(bytes: &[u8]) -> u64 {
    if let Some(eight) = bytes.first_chunk::<8>() {
        return u64::from_le_bytes(*eight);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let first = u32::from_le_bytes(*first) as u64;
        let last = u32::from_le_bytes(*last) as u64;
        return first | last << ((bytes.len() - 4) * 8);
    }
    match *bytes {
        [a, b, c] => u32::from_le_bytes([a, b, c, 0]) as u64,
        [a, b] => u16::from_le_bytes([a, b]) as u64,
        [a] => a as u64,
        _ => 0,
    }
}

/// Name of the table, in a cache line of its own.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot {
    words: [u64; 3],
    letters: [u64; 3],
    scope: NameScope,
    id: Option<CommandId>,
}

impl Slot {
    const EMPTY: Slot = Slot {
        words: [0; 3],
        letters: [0; 3],
        scope: NameScope(0),
        id: None,
    };

    const fn of(row: &Row) -> Slot {
        let container = match row.container {
            Some(container) => container as u16,
            None => TOP_LEVEL,
        };
        assert!(
            row.name.len() <= NAME_BYTES_MAX,
            "a command's name is too long"
        );
        let words = words::<3>(row.name.as_bytes());
        let words = [
            lower_case(words[0]),
            lower_case(words[1]),
            lower_case(words[2]),
        ];
        let letters = [letters(words[0]), letters(words[1]), letters(words[2])];
        let scope = NameScope::new(container, row.name.len());
        Slot {
            words,
            letters,
            scope,
            id: Some(row.id),
        }
    }

    /// Returns true if the slot has that name. Words that are not given are zero, since the length is the same.
    #[inline]
    fn holds<const N: usize>(&self, words: [u64; N], scope: NameScope) -> bool {
        self.scope == scope && (0..N).all(|at| words[at] | self.letters[at] == self.words[at])
    }
}

struct Map {
    seed: u64,
    displacements: [u16; BUCKETS],
    slots: [Slot; SLOTS],
}

static MAP: Map = Map::build();

impl Map {
    #[inline]
    fn probe<const N: usize>(&self, words: [u64; N], scope: NameScope) -> Option<CommandId> {
        let hash = hash(&words, scope, self.seed);
        let slot = &self.slots[slot_of(hash, self.displacements[bucket_of(hash)])];
        if slot.holds(words, scope) {
            slot.id
        } else {
            None
        }
    }

    const fn build() -> Map {
        let mut names = [Slot::EMPTY; CommandId::COUNT];
        let mut i = 0;
        while i < names.len() {
            names[i] = Slot::of(&table::ROWS[i]);
            i += 1;
        }
        let mut attempt: u64 = 0;
        while attempt < 64 {
            // The seed changes in all bits: names that agree in the low ones would keep their distance.
            let seed = attempt.wrapping_mul(0xd6e8_feb8_6659_fd93);
            let mut hashes = [0; CommandId::COUNT];
            let mut i = 0;
            while i < hashes.len() {
                hashes[i] = hash(&names[i].words, names[i].scope, seed);
                i += 1;
            }
            if let Some(displacements) = displace(&hashes) {
                let mut slots = [Slot::EMPTY; SLOTS];
                let mut i = 0;
                while i < hashes.len() {
                    slots[slot_of(hashes[i], displacements[bucket_of(hashes[i])])] = names[i];
                    i += 1;
                }
                return Map {
                    seed,
                    displacements,
                    slots,
                };
            }
            attempt += 1;
        }
        panic!("no seed gives every name its own slot: raise SLOTS, or two rows have one name");
    }
}

#[inline]
const fn bucket_of(hash: u64) -> usize {
    (hash >> (u64::BITS - BUCKETS.ilog2())) as usize
}

#[inline]
const fn slot_of(hash: u64, displacement: u16) -> usize {
    ((hash >> (u64::BITS - BUCKETS.ilog2() - SLOTS.ilog2())) as usize ^ displacement as usize)
        & (SLOTS - 1)
}

/// Finds a displacement for every bucket, the fullest first; `None` if no displacement fits all hashes of a bucket.
const fn displace(hashes: &[u64; CommandId::COUNT]) -> Option<[u16; BUCKETS]> {
    let mut buckets = [Bucket {
        hashes: [0; BUCKET_HASHES_MAX],
        len: 0,
    }; BUCKETS];
    let mut i = 0;
    while i < hashes.len() {
        let bucket = &mut buckets[bucket_of(hashes[i])];
        if bucket.len == BUCKET_HASHES_MAX {
            return None;
        }
        bucket.hashes[bucket.len] = hashes[i];
        bucket.len += 1;
        i += 1;
    }
    let mut displacements = [0u16; BUCKETS];
    let mut taken = [false; SLOTS];
    let mut len = BUCKET_HASHES_MAX;
    while len > 0 {
        let mut at = 0;
        while at < BUCKETS {
            if buckets[at].len == len {
                while !buckets[at].place(displacements[at], &mut taken) {
                    displacements[at] += 1;
                    if displacements[at] as usize == SLOTS {
                        return None;
                    }
                }
            }
            at += 1;
        }
        len -= 1;
    }
    Some(displacements)
}

const BUCKET_HASHES_MAX: usize = 8;

#[derive(Clone, Copy)]
struct Bucket {
    hashes: [u64; BUCKET_HASHES_MAX],
    len: usize,
}

impl Bucket {
    /// Takes the slot of each hash under this displacement, if all of these slots are free; otherwise takes none.
    const fn place(&self, displacement: u16, taken: &mut [bool; SLOTS]) -> bool {
        let mut i = 0;
        while i < self.len {
            let slot = slot_of(self.hashes[i], displacement);
            if taken[slot] {
                while i > 0 {
                    i -= 1;
                    taken[slot_of(self.hashes[i], displacement)] = false;
                }
                return false;
            }
            taken[slot] = true;
            i += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case() {
        for row in table::all() {
            let upper = row.name.to_ascii_uppercase();
            let mixed: String = (row.name.chars().enumerate())
                .map(|(i, c)| {
                    if i % 2 == 0 {
                        c.to_ascii_uppercase()
                    } else {
                        c
                    }
                })
                .collect();
            for name in [row.name, &upper, &mixed] {
                let found = match row.container {
                    Some(container) => lookup_subcommand(container, name.as_bytes()),
                    None => lookup(name.as_bytes()),
                };
                assert_eq!(found, Some(row.id), "{name}");
            }
        }
    }

    #[test]
    fn a_name_that_differs_in_one_byte_is_not_found() {
        for row in table::all().iter().filter(|row| row.container.is_none()) {
            for at in 0..row.name.len() {
                for byte in 0..=255u8 {
                    let mut name = row.name.as_bytes().to_vec();
                    name[at] = byte;
                    let expected = table::all().iter().find(|row| {
                        row.container.is_none() && row.name.as_bytes().eq_ignore_ascii_case(&name)
                    });
                    assert_eq!(lookup(&name), expected.map(|row| row.id), "{name:?}");
                }
            }
        }
    }

    #[test]
    fn shorter_and_longer_names_are_not_found() {
        assert_eq!(lookup(b""), None);
        assert_eq!(lookup(b"get\0"), None);
        assert_eq!(lookup(&[b'g'; NAME_BYTES_MAX + 1]), None);
        assert_eq!(lookup(&[0; NAME_BYTES_MAX]), None);
        for row in table::all().iter().filter(|row| row.container.is_none()) {
            let name = row.name.as_bytes();
            for tail in [&b"\0"[..], b" ", b"\0\0\0\0\0\0\0\0"] {
                assert_eq!(lookup(&[name, tail].concat()), None);
            }
        }
    }

    #[test]
    fn a_word_is_its_bytes_and_zeros_above() {
        for len in 0..=8 {
            let bytes = &b"abcdefgh"[..len];
            let mut padded = [0; 8];
            padded[..len].copy_from_slice(bytes);
            assert_eq!(word(bytes), u64::from_le_bytes(padded));
        }
    }

    #[test]
    fn a_subcommand_is_found_in_its_container_only() {
        assert_eq!(
            lookup_subcommand(CommandId::Config, b"GET"),
            Some(CommandId::ConfigGet)
        );
        assert_eq!(lookup_subcommand(CommandId::Client, b"GET"), None);
        assert_eq!(lookup(b"GET"), Some(CommandId::Get));
        assert_eq!(lookup(b"config|get"), None);
    }

    #[test]
    fn two_words_resolve_to_a_subcommand() {
        assert_eq!(resolve(b"config", Some(b"get")), Ok(CommandId::ConfigGet));
        assert_eq!(resolve(b"config", None), Ok(CommandId::Config));
        assert_eq!(
            resolve(b"config", Some(b"gett")),
            Err(Unresolved::Subcommand(CommandId::Config))
        );
        assert_eq!(
            resolve(b"command", Some(b"docs")),
            Ok(CommandId::CommandDocs)
        );
        assert_eq!(resolve(b"get", Some(b"docs")), Ok(CommandId::Get));
        assert_eq!(resolve(b"nosuch", Some(b"docs")), Err(Unresolved::Command));
    }
}
