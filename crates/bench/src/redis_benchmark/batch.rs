//! The bytes of one batch of requests, rendered once; only random digits are written again.
//!
//! Knows no socket. Each load thread has its own copy and shares it between its connections: a batch is sent, or its
//! unsent rest copied, before the next is patched. Large batches are not copied but shared, and only copied if they are
//! patched while still being sent.

use std::sync::Arc;

/// Replaced by a random number in a request.
const PLACEHOLDER: &[u8; 12] = b"__rand_int__";

/// A request body, repeated to the depth of the pipeline.
#[derive(Clone, Debug)]
pub struct Batch {
    bytes: Arc<Vec<u8>>,
    /// Offsets of 12 digits each.
    patches: Vec<usize>,
    /// Exclusive upper bound of numbers.
    keyspace: u64,
    /// Number of the four groups of three digits that can differ from 000.
    groups: usize,
    requests: u64,
}

/// The reason why a batch cannot be made.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Largest batch, which is held as a whole in memory.
pub const BATCH_BYTES_MAX: usize = 4 << 30;

impl Batch {
    /// Returns `depth` times `request`. With a `keyspace`, every `__rand_int__` becomes a number.
    pub fn new(request: Vec<u8>, depth: usize, keyspace: Option<u64>) -> Result<Batch, TooLarge> {
        let size = request
            .len()
            .checked_mul(depth)
            .filter(|&size| size <= BATCH_BYTES_MAX)
            .ok_or(TooLarge)?;
        let places = if keyspace.is_some() {
            placeholders(&request)
        } else {
            Vec::new()
        };
        let starts = (0..depth).map(|index| index * request.len());
        let patches: Vec<usize> = starts
            .flat_map(|start| places.iter().map(move |place| start + place))
            .collect();
        // A large one is not held twice.
        let mut bytes = if depth == 1 {
            request
        } else {
            let mut bytes = Vec::with_capacity(size);
            for _ in 0..depth {
                bytes.extend_from_slice(&request);
            }
            bytes
        };
        for &at in &patches {
            bytes[at..at + PLACEHOLDER.len()].fill(b'0');
        }
        let keyspace = keyspace.unwrap_or(0);
        let groups = match keyspace {
            0 | 1 => 0,
            many => (many - 1).ilog10() as usize / 3 + 1,
        };
        Ok(Batch {
            bytes: Arc::new(bytes),
            patches,
            keyspace,
            groups: groups.min(4),
            requests: depth as u64,
        })
    }

    /// Returns the number of requests, and so of replies, of a batch.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the next batch to send, with new numbers.
    #[inline]
    pub fn next(&mut self, random: &mut fastrand::Rng) -> &[u8] {
        if !self.patches.is_empty() {
            match self.groups {
                0 => {}
                1 => self.patch::<1>(random),
                2 => self.patch::<2>(random),
                3 => self.patch::<3>(random),
                _ => self.patch::<4>(random),
            }
        }
        &self.bytes
    }

    /// Writes new numbers, of `GROUPS` groups of digits that can differ from 000.
    #[inline]
    fn patch<const GROUPS: usize>(&mut self, random: &mut fastrand::Rng) {
        let bytes = Arc::make_mut(&mut self.bytes).as_mut_slice();
        for &at in &self.patches {
            let number = random.u64(..self.keyspace);
            if let Some(digits) = bytes[at..].first_chunk_mut() {
                write_low_groups::<GROUPS>(digits, number);
            }
        }
    }

    /// Returns the bytes that [`Batch::next`] returned last: they are not changed while they are shared.
    pub fn share(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.bytes)
    }
}

fn placeholders(request: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + PLACEHOLDER.len() <= request.len() {
        if &request[at..at + PLACEHOLDER.len()] == PLACEHOLDER {
            found.push(at);
            at += PLACEHOLDER.len();
        } else {
            at += 1;
        }
    }
    found
}

/// Writes the last `GROUPS` groups of three digits of `number`; the digits before them stay.
#[inline(always)]
fn write_low_groups<const GROUPS: usize>(digits: &mut [u8; PLACEHOLDER.len()], mut number: u64) {
    for group in 1..=GROUPS {
        let at = digits.len() - 3 * group;
        digits[at..at + 3].copy_from_slice(&TRIPLES[(number % 1000) as usize]);
        number /= 1000;
    }
}

static TRIPLES: [[u8; 3]; 1000] = {
    let mut table = [[0; 3]; 1000];
    let mut n = 0;
    while n < 1000 {
        table[n] = [
            b'0' + (n / 100) as u8,
            b'0' + (n / 10 % 10) as u8,
            b'0' + (n % 10) as u8,
        ];
        n += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn text(batch: &mut Batch, random: &mut fastrand::Rng) -> String {
        String::from_utf8(batch.next(random).to_vec()).unwrap()
    }

    #[test]
    fn without_a_keyspace_the_text_stays() {
        let mut batch = Batch::new(b"a__rand_int__b".to_vec(), 2, None).unwrap();
        assert_eq!(
            batch.next(&mut fastrand::Rng::with_seed(1)),
            b"a__rand_int__ba__rand_int__b"
        );
        assert_eq!(batch.requests(), 2);
    }

    #[test]
    fn every_copy_of_every_place_gets_a_number_of_its_own_below_the_keyspace() {
        for keyspace in [
            2u64,
            10,
            999,
            1000,
            1001,
            1_000_000,
            1_000_001,
            999_999_999_999,
            1_000_000_000_000,
        ] {
            let mut batch =
                Batch::new(b"<__rand_int____rand_int__>".to_vec(), 2, Some(keyspace)).unwrap();
            let mut random = fastrand::Rng::with_seed(7);
            let mut seen = std::collections::HashSet::new();
            for _ in 0..200 {
                let text = text(&mut batch, &mut random);
                for request in text.split_terminator('>') {
                    let digits = request.strip_prefix('<').unwrap();
                    assert_eq!(digits.len(), 24);
                    for number in [&digits[..12], &digits[12..]] {
                        let number: u64 = number.parse().unwrap();
                        assert!(number < keyspace);
                        seen.insert(number);
                    }
                }
            }
            assert!(
                seen.len() as u64 >= keyspace.min(100),
                "{keyspace}: {} numbers",
                seen.len()
            );
        }
    }

    #[test]
    fn an_empty_keyspace_gives_zeroes() {
        for keyspace in [0, 1] {
            let mut batch = Batch::new(b"__rand_int__".to_vec(), 1, Some(keyspace)).unwrap();
            assert_eq!(
                batch.next(&mut fastrand::Rng::with_seed(1)),
                b"000000000000"
            );
        }
    }

    #[test]
    fn binary_arguments_do_not_hide_places_behind_them() {
        let mut batch = Batch::new(b"\0__rand_int__".to_vec(), 1, Some(1)).unwrap();
        assert_eq!(
            batch.next(&mut fastrand::Rng::with_seed(1)),
            b"\x00000000000000"
        );
    }

    #[test]
    fn the_same_seed_sends_the_same() {
        let (mut a, mut b) = (fastrand::Rng::with_seed(5), fastrand::Rng::with_seed(5));
        let mut batch = Batch::new(b"__rand_int__".to_vec(), 3, Some(1_000_000)).unwrap();
        assert_eq!(text(&mut batch.clone(), &mut a), text(&mut batch, &mut b));
    }

    #[test]
    fn a_batch_that_is_under_way_stays_as_it_is() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut batch = Batch::new(b"__rand_int__".to_vec(), 1, Some(1_000_000)).unwrap();
        let first = batch.next(&mut random).to_vec();
        let (under_way, other_thread) = (batch.share(), batch.clone());
        assert_ne!(batch.next(&mut random), first);
        assert_eq!(*under_way, first);
        assert!(Arc::ptr_eq(&under_way, &other_thread.bytes));
        // No holder is left.
        let place = Arc::as_ptr(&batch.bytes);
        batch.next(&mut random);
        assert_eq!(Arc::as_ptr(&batch.bytes), place);
    }

    #[test]
    fn a_batch_has_a_size_limit() {
        assert_eq!(
            Batch::new(vec![0; 1024], usize::MAX / 2, None).unwrap_err(),
            TooLarge
        );
        assert_eq!(
            Batch::new(vec![0; 1024], 1 << 23, None).unwrap_err(),
            TooLarge
        );
    }
}
