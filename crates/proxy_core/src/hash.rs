//! Hashes and distributions: which shard of a pool has a key. Pure functions; those that exist in other proxies give the
//! same results as there. Must not know servers, only their names and weights.
//!
//! `nutcracker` (twemproxy) takes the bytes of a key as signed in six of its hashes, so keys beyond ASCII hash with
//! sign-extended bytes; its `fnv1a_64` has 32 bits; its `crc32` has 15. All of that is kept here, since existing keys
//! must be found.

mod functions;

use md5::{Digest, Md5};
use redline_cluster::tagged;
use redline_proxy_config::{DistributionKind, HashKind};

/// A hash and a distribution over shards.
#[derive(Debug)]
pub struct Distribution {
    hash: HashKind,
    /// The two characters of a hash tag.
    tag: Option<(u8, u8)>,
    layout: Layout,
}

#[derive(Debug)]
enum Layout {
    Circle(Circle),
    /// Each shard as often as its weight.
    Remainders(Vec<u32>),
    /// Seed and weight of each shard.
    Scores(Vec<(u64, f64)>),
    /// Number of shards.
    Random(usize),
}

impl Distribution {
    /// Returns a distribution over shards with these names and weights, in their order. A weight of 0 counts as 1.
    pub fn new(
        kind: DistributionKind,
        hash: HashKind,
        tag: Option<(u8, u8)>,
        shards: &[(&str, u32)],
    ) -> Distribution {
        let layout = match kind {
            DistributionKind::Ketama => Layout::Circle(Circle::new(points(shards))),
            DistributionKind::Modula => {
                let entries = shards.iter().enumerate().flat_map(|(shard, &(_, weight))| {
                    std::iter::repeat_n(shard as u32, weight.max(1) as usize)
                });
                Layout::Remainders(entries.collect())
            }
            DistributionKind::Rendezvous => Layout::Scores(
                shards
                    .iter()
                    .map(|&(name, weight)| {
                        let name = Md5::digest(name.as_bytes());
                        let seed = u64::from(functions::word(&name, 0)) << 32
                            | u64::from(functions::word(&name, 1));
                        (seed, f64::from(weight.max(1)))
                    })
                    .collect(),
            ),
            DistributionKind::Random => Layout::Random(shards.len()),
        };
        Distribution { hash, tag, layout }
    }

    /// Returns the number of the shard that has every key that matches this pattern, by the text before or behind its
    /// `*`; none: several shards may have such keys.
    pub fn shard_of_pattern(&self, pattern: &[u8]) -> Option<usize> {
        let (open, close) = self.tag?;
        let part = tagged(pattern, open, close);
        let begin = pattern.iter().position(|&byte| byte == open)?;
        let star = pattern.iter().position(|&byte| byte == b'*')?;
        // The matched text could open a tag before this one.
        let is_fixed = begin < star && part.len() < pattern.len() && !part.contains(&b'*');
        is_fixed.then(|| self.shard(pattern))
    }

    /// Returns the number of the shard that has `key`: below the number of shards.
    pub fn shard(&self, key: &[u8]) -> usize {
        let key = self.hashed_part(key);
        match &self.layout {
            Layout::Circle(circle) => circle.shard(hash_of(self.hash, key)),
            Layout::Remainders(entries) => {
                let at = match self.hash {
                    // predixy divides as unsigned.
                    HashKind::Atol => {
                        (functions::atol(key) as u64 % entries.len().max(1) as u64) as usize
                    }
                    hash => hash_of(hash, key) as usize % entries.len().max(1),
                };
                entries.get(at).map_or(0, |&shard| shard as usize)
            }
            Layout::Scores(shards) => {
                let hash = u64::from(hash_of(self.hash, key));
                let score = |&(seed, weight): &(u64, f64)| {
                    // Strictly between 0 and 1.
                    let share = (functions::mix(hash ^ seed) >> 12) as f64 + 0.5;
                    weight / -(share / (1u64 << 52) as f64).ln()
                };
                let best = shards
                    .iter()
                    .map(score)
                    .enumerate()
                    .max_by(|one, other| one.1.total_cmp(&other.1));
                best.map_or(0, |(shard, _)| shard)
            }
            Layout::Random(shards) => fastrand::usize(..(*shards).max(1)),
        }
    }

    /// Adds [`shard`](Self::shard) of each of many keys to `shards`.
    pub fn shards<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, shards: &mut Vec<u32>) {
        let Layout::Circle(circle) = &self.layout else {
            return shards.extend(keys.map(|key| self.shard(key) as u32));
        };
        // All hashes come first: in a hash each byte depends on the one before, so the CPU works on several keys at
        // once, if no unpredictable branch is between them.
        let begin = shards.len();
        let parts = keys.map(|key| self.hashed_part(key));
        match self.hash {
            // The default: known at compile time, it is inlined into the loop.
            HashKind::Fnv1a64 => shards.extend(parts.map(|part| hash_of(HashKind::Fnv1a64, part))),
            hash => shards.extend(parts.map(|part| hash_of(hash, part))),
        }
        for place in &mut shards[begin..] {
            *place = circle.shard(*place) as u32;
        }
    }

    #[inline]
    fn hashed_part<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        match self.tag {
            Some((open, close)) => tagged(key, open, close),
            None => key,
        }
    }
}

/// Returns the hash of a key.
#[inline(always)]
fn hash_of(kind: HashKind, key: &[u8]) -> u32 {
    match kind {
        // Only the bits that a remainder needs are used: see `Distribution`.
        HashKind::Atol => functions::atol(key) as u32,
        HashKind::Crc16 => u32::from(redline_cluster::crc16(key)),
        HashKind::Crc16Twemproxy => functions::crc16_untruncated(key),
        HashKind::Crc32 => (functions::crc32(key) >> 16) & 0x7fff,
        HashKind::Crc32a => functions::crc32(key),
        HashKind::Fnv164 => functions::fnv1_64(key),
        HashKind::Fnv1a64 => functions::fnv1a(key, 0x8422_2325, 0x1b3),
        HashKind::Fnv132 => functions::fnv1_32(key),
        HashKind::Fnv1a32 => functions::fnv1a(key, 0x811c_9dc5, 0x0100_0193),
        HashKind::Hsieh => functions::hsieh(key),
        HashKind::Jenkins => functions::jenkins(key),
        HashKind::Md5 => functions::word(&Md5::digest(key), 0),
        HashKind::Murmur => functions::murmur(key),
        HashKind::OneAtATime => functions::one_at_a_time(key),
    }
}

/// Number of points of a shard if all weights are equal.
const POINTS_EACH: f32 = 160.0;
/// Number of points of a digest.
const POINTS_OF_DIGEST: usize = 4;
/// Pieces of the circle per point, as long as their table fits the first-level cache; and at least.
const PIECES_EACH: usize = 8;
const PIECES_EACH_MIN: usize = 2;
/// Largest number of pieces, as a power of two.
const PIECES_BITS: u32 = 12;

/// Points on a circle: a hash belongs to the shard of the point at it or, if there is none, of the next one.
#[derive(Debug)]
struct Circle {
    /// Points, ascending, and the shard of each.
    points: Vec<(u32, u32)>,
    /// The circle in equal pieces. Most hold no point, and so belong to one shard as a whole.
    pieces: Vec<Piece>,
    /// Number of low bits that a hash is shifted by to get its piece.
    below: u32,
}

/// The shard of the whole piece, or with [`Piece::MIXED`] the number of its first point.
#[derive(Debug, Clone, Copy)]
struct Piece(u32);

impl Piece {
    const MIXED: u32 = 1 << 31;
}

impl Circle {
    /// Returns the circle of ascending points.
    fn new(points: Vec<(u32, u32)>) -> Circle {
        let bits = |each: usize| (points.len() * each).next_power_of_two().ilog2();
        let bits = bits(PIECES_EACH)
            .min(PIECES_BITS)
            .max(bits(PIECES_EACH_MIN))
            .clamp(1, 31);
        let below = u32::BITS - bits;
        let mut pieces = Vec::with_capacity(1 << bits);
        let mut begin = 0;
        for piece in 0..1u32 << bits {
            let inside = points[begin..].iter();
            let inside = inside.take_while(|&&(point, _)| point >> below == piece);
            let end = begin + inside.count();
            pieces.push(Piece(match end > begin {
                true => Piece::MIXED | begin as u32,
                false => points.get(begin).or(points.first()).map_or(0, |it| it.1),
            }));
            begin = end;
        }
        Circle {
            points,
            pieces,
            below,
        }
    }

    #[inline]
    fn shard(&self, hash: u32) -> usize {
        let Piece(piece) = self.pieces[(hash >> self.below) as usize];
        if piece & Piece::MIXED == 0 {
            return piece as usize;
        }
        let begin = (piece & !Piece::MIXED) as usize;
        let next = self.points[begin..]
            .iter()
            .find(|&&(point, _)| point >= hash);
        let point = next.or(self.points.first());
        point.map_or(0, |&(_, shard)| shard as usize)
    }
}

/// Returns the points of all shards, as twemproxy sets them.
fn points(shards: &[(&str, u32)]) -> Vec<(u32, u32)> {
    let total: u32 = shards.iter().map(|&(_, weight)| weight.max(1)).sum();
    let mut points = Vec::new();
    for (shard, &(name, weight)) in shards.iter().enumerate() {
        // In the widths that twemproxy calculates with: rounding decides over a point.
        let share = weight.max(1) as f32 / total as f32;
        let digests = f64::from(share * POINTS_EACH / 4.0 * shards.len() as f32) + 1e-10;
        for number in 0..(digests as f32).floor() as u32 {
            let digest = Md5::digest(format!("{name}-{number}"));
            let words = (0..POINTS_OF_DIGEST).map(|at| functions::word(&digest, at));
            points.extend(words.map(|point| (point, shard as u32)));
        }
    }
    points.sort_by_key(|&(point, _)| point);
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_twemproxy_have_their_known_values() {
        // Published check values; the step `proxy` of `cargo xtask compat` compares all of them with nutcracker.
        for (kind, key, value) in [
            (HashKind::Crc16, "123456789", 0x31c3),
            (HashKind::Crc16Twemproxy, "123456789", 0x8690_31c3),
            (HashKind::Crc32a, "123456789", 0xcbf4_3926),
            (HashKind::Crc32, "123456789", 0xcbf4 & 0x7fff),
            (HashKind::Fnv132, "foobar", 0x31f0_b262),
            (HashKind::Fnv1a32, "foobar", 0xbf9c_f968),
            (HashKind::Fnv164, "foobar", 0xa4dd_a9c2),
            (HashKind::Md5, "", 0xd98c_1dd4),
            (HashKind::OneAtATime, "a", 0xca2e_9442),
            (
                HashKind::OneAtATime,
                "The quick brown fox jumps over the lazy dog",
                0x519e_91f5,
            ),
            (HashKind::Atol, "123abc", 123),
            (HashKind::Atol, "abc", 0),
        ] {
            assert_eq!(hash_of(kind, key.as_bytes()), value, "{kind:?} {key}");
        }
    }

    #[test]
    fn the_next_point_on_the_circle_is_found_as_by_a_search() {
        for count in [1, 2, 3, 480, 5_000] {
            let mut rng = fastrand::Rng::with_seed(count);
            let mut points: Vec<(u32, u32)> = (0..count as u32)
                .map(|shard| (rng.u32(..), shard))
                .collect();
            points.sort_unstable();
            let circle = Circle::new(points.clone());
            let around =
                |&(point, _): &(u32, u32)| [point.wrapping_sub(1), point, point.wrapping_add(1)];
            let hashes: Vec<u32> = points
                .iter()
                .flat_map(around)
                .chain([0, 1, u32::MAX])
                .collect();
            for hash in hashes {
                let at = points.partition_point(|&(point, _)| point < hash);
                let expected = points.get(at).or(points.first()).unwrap().1;
                assert_eq!(
                    circle.shard(hash),
                    expected as usize,
                    "{count} points, {hash}"
                );
            }
        }
    }

    fn shares(distribution: &Distribution, shards: usize) -> Vec<usize> {
        let mut counts = vec![0; shards];
        for key in 0..30_000 {
            counts[distribution.shard(format!("key:{key}").as_bytes())] += 1;
        }
        counts
    }

    #[test]
    fn many_keys_at_once_are_where_each_of_them_is() {
        let names = [("a", 1), ("b", 2), ("c", 1)];
        let keys: Vec<String> = (0..999).map(|key| format!("k{{{key}}}:{key}")).collect();
        let kinds = ALL.into_iter().chain([HashKind::Atol]);
        for (kind, hash) in kinds.flat_map(|hash| {
            use DistributionKind::{Ketama, Modula, Rendezvous};
            [Ketama, Modula, Rendezvous].map(|kind| (kind, hash))
        }) {
            let made = Distribution::new(kind, hash, Some((b'{', b'}')), &names);
            let each = keys.iter().map(|key| made.shard(key.as_bytes()) as u32);
            let expected: Vec<u32> = std::iter::once(77).chain(each).collect();
            let mut shards = vec![77];
            made.shards(keys.iter().map(|key| key.as_bytes()), &mut shards);
            assert_eq!(shards, expected, "{kind:?} {hash:?}");
        }
    }

    #[test]
    fn keys_spread_by_weight_and_few_move() {
        for kind in [DistributionKind::Ketama, DistributionKind::Rendezvous] {
            let names = [("a", 1), ("b", 2), ("c", 1)];
            let three = Distribution::new(kind, HashKind::Murmur, None, &names);
            let counts = shares(&three, 3);
            for (count, share) in counts.iter().zip([7_500, 15_000, 7_500]) {
                assert!(count.abs_diff(share) < share / 4, "{kind:?}: {counts:?}");
            }
            let more = [("a", 1), ("b", 2), ("c", 1), ("d", 1)];
            let four = Distribution::new(kind, HashKind::Murmur, None, &more);
            let moved = (0..30_000)
                .map(|key| format!("key:{key}"))
                .filter(|key| three.shard(key.as_bytes()) != four.shard(key.as_bytes()))
                .count();
            assert!((3_500..9_500).contains(&moved), "{kind:?}: {moved}");
        }
    }

    #[test]
    fn a_pattern_has_a_shard_if_its_tag_stands_before_its_star() {
        let names = [("a", 1), ("b", 1), ("c", 1)];
        let kind = DistributionKind::Ketama;
        let made = Distribution::new(kind, HashKind::Murmur, Some((b'{', b'}')), &names);
        for pattern in ["w_{tag}_*", "{tag}*", "{tag}*->field"] {
            let found = made.shard_of_pattern(pattern.as_bytes());
            assert_eq!(found, Some(made.shard(b"tag")), "{pattern}");
        }
        for pattern in ["w_*", "*{tag}", "{t*g}", "{}*", "{*", "{t*", "none"] {
            assert_eq!(made.shard_of_pattern(pattern.as_bytes()), None, "{pattern}");
        }
    }

    #[test]
    fn remainders_follow_weights_and_tags() {
        let shards = [("a", 2), ("b", 1)];
        let modula = Distribution::new(
            DistributionKind::Modula,
            HashKind::Atol,
            Some((b'<', b'>')),
            &shards,
        );
        for (key, shard) in [
            ("0", 0),
            ("1", 0),
            ("2", 1),
            ("3", 0),
            ("x<5>", 1),
            ("-1", 0),
            ("", 0),
        ] {
            assert_eq!(modula.shard(key.as_bytes()), shard, "{key}");
        }
    }

    #[test]
    fn keys_of_any_length_are_hashed_whole() {
        let mut one = vec![b'x'; 5_000];
        let before: Vec<u32> = ALL.iter().map(|&kind| hash_of(kind, &one)).collect();
        one[4_999] = b'y';
        for (kind, before) in ALL.into_iter().zip(before) {
            assert_ne!(hash_of(kind, &one), before, "{kind:?}");
        }
        for kind in ALL {
            for length in 0..40 {
                hash_of(kind, &[0xff; 40][..length]);
            }
        }
    }

    const ALL: [HashKind; 13] = [
        HashKind::Crc16,
        HashKind::Crc16Twemproxy,
        HashKind::Crc32,
        HashKind::Crc32a,
        HashKind::Fnv164,
        HashKind::Fnv1a64,
        HashKind::Fnv132,
        HashKind::Fnv1a32,
        HashKind::Hsieh,
        HashKind::Jenkins,
        HashKind::Md5,
        HashKind::Murmur,
        HashKind::OneAtATime,
    ];
}
