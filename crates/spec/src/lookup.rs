//! From a name on the wire to a [`CommandId`], whatever its case: one probe of a perfect hash that the compiler builds.
//!
//! A name of up to 24 bytes is read as three little-endian words and folded to lower case eight bytes at a time. The
//! words are hashed together with the container (subcommands live in the same table as commands). The hash's top bits
//! pick one of 256 displacements, and the next ones, displaced, pick the only slot where that name can be. So a lookup
//! is a multiplication, two loads and one comparison. The scheme is "hash and displace" (Belazzougui, Botelho and
//! Dietzfelbinger, 2009), with xor for the displacement. The compiler tries seeds until every name has a slot of its own.

use crate::{CommandId, Plane, gate, table};

/// The longest name that a command or a subcommand may have.
pub const NAME_BYTES_MAX: usize = 24;

const BUCKETS: usize = 256;
const SLOTS: usize = 512;

/// The command of that name; a container's name gives the container.
#[inline]
pub fn lookup(name: &[u8]) -> Option<CommandId> {
    MAP.probe(&Key::of(TOP_LEVEL, name)?)
}

/// The subcommand of that name.
#[inline]
pub fn lookup_subcommand(container: CommandId, name: &[u8]) -> Option<CommandId> {
    MAP.probe(&Key::of(container as u16, name)?)
}

/// Why a call names no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// There is no command of the first word.
    Command,
    /// There is, but it has no subcommand of the second word.
    Subcommand(CommandId),
}

/// The command or subcommand that a call names with its first word and, if there is one, its second.
///
/// A container that is called with one word is itself the answer: its arity refuses the call.
#[inline]
pub fn resolve(first: &[u8], second: Option<&[u8]>) -> Result<CommandId, Unresolved> {
    let id = lookup(first).ok_or(Unresolved::Command)?;
    match second {
        Some(second) if has_subcommands(id) => {
            lookup_subcommand(id, second).ok_or(Unresolved::Subcommand(id))
        }
        _ => Ok(id),
    }
}

/// Whether a second word names a subcommand. COMMAND alone has subcommands as well as a handler.
#[inline]
fn has_subcommands(id: CommandId) -> bool {
    gate(id).plane == Plane::Container || id == CommandId::Command
}

/// The container number of names that are not subcommands.
const TOP_LEVEL: u16 = u16::MAX;

/// A folded name and where it is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    words: [u64; 3],
    container: u16,
    len: u8,
}

impl Key {
    const NONE: Key = Key {
        words: [0; 3],
        container: 0,
        len: 0,
    };

    #[inline]
    const fn of(container: u16, name: &[u8]) -> Option<Key> {
        let words = match name.len() {
            1..=8 => [folded(word(name)), 0, 0],
            9..=16 => {
                let (head, tail) = name.split_at(8);
                [folded(word(head)), folded(word(tail)), 0]
            }
            17..=NAME_BYTES_MAX => {
                let (head, rest) = name.split_at(8);
                let (middle, tail) = rest.split_at(8);
                [folded(word(head)), folded(word(middle)), folded(word(tail))]
            }
            _ => return None,
        };
        Some(Key {
            words,
            container,
            len: name.len() as u8,
        })
    }

    #[inline]
    const fn hash(&self, seed: u64) -> u64 {
        let words = self.words[0] ^ self.words[1].rotate_left(29) ^ self.words[2].rotate_left(47);
        (words ^ ((self.container as u64) << 48) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    const fn same(&self, other: &Key) -> bool {
        self.len == other.len
            && self.container == other.container
            && self.words[0] == other.words[0]
            && self.words[1] == other.words[1]
            && self.words[2] == other.words[2]
    }
}

/// Up to eight bytes as a little-endian word, zeros above. Overlapping reads spare a loop.
#[inline]
const fn word(bytes: &[u8]) -> u64 {
    if let Some(eight) = bytes.first_chunk::<8>() {
        return u64::from_le_bytes(*eight);
    }
    let len = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let first = u32::from_le_bytes(*first) as u64;
        let last = u32::from_le_bytes(*last) as u64;
        return first | last << ((len - 4) * 8);
    }
    if len == 0 {
        return 0;
    }
    let middle = len / 2;
    bytes[0] as u64
        | (bytes[middle] as u64) << (middle * 8)
        | (bytes[len - 1] as u64) << ((len - 1) * 8)
}

/// Upper-case ASCII letters turned to lower case, all eight bytes at once; every other byte stays as it is.
#[inline]
const fn folded(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let low = word & (ONES * 0x7f);
    let from_a = low + ONES * (0x80 - b'A' as u64);
    let above_z = low + ONES * (0x7f - b'Z' as u64);
    let upper = (from_a & !above_z) & !word & (ONES * 0x80);
    word | upper >> 2
}

struct Slot {
    key: Key,
    id: Option<CommandId>,
}

struct Map {
    seed: u64,
    displacements: [u16; BUCKETS],
    slots: [Slot; SLOTS],
}

static MAP: Map = Map::build();

impl Map {
    #[inline]
    fn probe(&self, key: &Key) -> Option<CommandId> {
        let hash = key.hash(self.seed);
        let slot = &self.slots[slot_of(hash, self.displacements[bucket_of(hash)])];
        if slot.key.same(key) { slot.id } else { None }
    }

    const fn build() -> Map {
        let keys = all_keys();
        let mut seed = 0;
        while seed < 64 {
            if let Some((displacements, ids)) = displace(&keys, seed) {
                let mut slots = [const {
                    Slot {
                        key: Key::NONE,
                        id: None,
                    }
                }; SLOTS];
                let mut at = 0;
                while at < SLOTS {
                    if let Some(id) = ids[at] {
                        slots[at] = Slot {
                            key: keys[id as usize],
                            id: Some(id),
                        };
                    }
                    at += 1;
                }
                return Map {
                    seed,
                    displacements,
                    slots,
                };
            }
            seed += 1;
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

const fn all_keys() -> [Key; CommandId::COUNT] {
    let mut keys = [Key::NONE; CommandId::COUNT];
    let mut i = 0;
    while i < CommandId::COUNT {
        let row = &table::ROWS[i];
        let container = match row.container {
            Some(container) => container as u16,
            None => TOP_LEVEL,
        };
        keys[i] = match Key::of(container, row.name.as_bytes()) {
            Some(key) => key,
            None => panic!("a command's name is empty or too long"),
        };
        i += 1;
    }
    keys
}

type Slots = [Option<CommandId>; SLOTS];

/// Finds a displacement for every bucket, the fullest first; `None` if a bucket has none that suits all its keys.
const fn displace(keys: &[Key; CommandId::COUNT], seed: u64) -> Option<([u16; BUCKETS], Slots)> {
    let mut members = [Members {
        ids: [None; BUCKET_KEYS_MAX],
        len: 0,
    }; BUCKETS];
    let mut i = 0;
    while i < keys.len() {
        let bucket = &mut members[bucket_of(keys[i].hash(seed))];
        if bucket.len == BUCKET_KEYS_MAX {
            return None;
        }
        bucket.ids[bucket.len] = Some(CommandId::ALL[i]);
        bucket.len += 1;
        i += 1;
    }
    let mut displacements = [0u16; BUCKETS];
    let mut slots = [None; SLOTS];
    let mut size = BUCKET_KEYS_MAX;
    while size > 0 {
        let mut bucket = 0;
        while bucket < BUCKETS {
            if members[bucket].len == size {
                let mut displacement = 0;
                while !members[bucket].place(keys, seed, displacement, &mut slots) {
                    displacement += 1;
                    if displacement as usize == SLOTS {
                        return None;
                    }
                }
                displacements[bucket] = displacement;
            }
            bucket += 1;
        }
        size -= 1;
    }
    Some((displacements, slots))
}

const BUCKET_KEYS_MAX: usize = 8;

/// The commands whose names fall into one bucket.
#[derive(Clone, Copy)]
struct Members {
    ids: [Option<CommandId>; BUCKET_KEYS_MAX],
    len: usize,
}

impl Members {
    /// Takes a slot for each member under this displacement, if all of these slots are free; otherwise takes none.
    const fn place(
        &self,
        keys: &[Key; CommandId::COUNT],
        seed: u64,
        displacement: u16,
        slots: &mut Slots,
    ) -> bool {
        let mut taken = [0; BUCKET_KEYS_MAX];
        let mut i = 0;
        while let Some(id) = if i < self.len { self.ids[i] } else { None } {
            taken[i] = slot_of(keys[id as usize].hash(seed), displacement);
            if slots[taken[i]].is_some() {
                while i > 0 {
                    i -= 1;
                    slots[taken[i]] = None;
                }
                return false;
            }
            slots[taken[i]] = Some(id);
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
    fn folding_changes_upper_case_letters_only() {
        for byte in 0..=255u8 {
            for neighbour in [0, b'A', 0x7f, 0x80, 0xff] {
                let bytes = [
                    neighbour, byte, neighbour, neighbour, neighbour, neighbour, neighbour, byte,
                ];
                assert_eq!(
                    folded(u64::from_le_bytes(bytes)).to_le_bytes(),
                    bytes.map(|b| b.to_ascii_lowercase())
                );
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
