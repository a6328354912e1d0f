//! Values: their sizes and contents.
//!
//! Knows no keys. Values are pieces of a block of random bytes that each thread makes once: a value costs a copy, not a
//! random number for every eight bytes, and a value longer than the block costs several. The first eight bytes are new
//! each time, so that no two values are the same.

/// Kind of bytes in a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content {
    /// Random bytes.
    Random,
    /// Random letters and digits, of which this share, 0 to 1, is one repeated letter.
    Compressible(f64),
    /// The same bytes in every value, as in redis-benchmark.
    Fixed,
}

/// One size, or a range of sizes, with its weight among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeClass {
    /// The smallest, in bytes.
    pub bytes_min: usize,
    /// The largest.
    pub bytes_max: usize,
    /// Its weight among all.
    pub weight: u64,
}

/// The sizes of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    classes: Vec<SizeClass>,
    total_weight: u64,
}

/// The largest value, as in redis-benchmark.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

impl Sizes {
    /// Parses `SIZE[:WEIGHT],...`, where a size is a number of bytes or a range `FROM-TO`.
    pub fn parse(text: &str) -> Result<Sizes, String> {
        let wrong = |item: &str| {
            format!("\"{item}\" is no size: SIZE or FROM-TO in bytes, and :WEIGHT if wanted")
        };
        let mut classes = Vec::new();
        for item in text.split(',') {
            let (size, weight) = item.split_once(':').unwrap_or((item, "1"));
            let (from, to) = size.split_once('-').unwrap_or((size, size));
            let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong(item));
            let (bytes_min, bytes_max) = (number(from)?, number(to)?);
            let weight = weight
                .trim()
                .parse::<u32>()
                .map_err(|_| wrong(item))?
                .into();
            if bytes_min > bytes_max || weight == 0 {
                return Err(wrong(item));
            }
            if bytes_max > VALUE_BYTES_MAX {
                return Err(format!("\"{item}\" is more than 1 GiB"));
            }
            classes.push(SizeClass {
                bytes_min,
                bytes_max,
                weight,
            });
        }
        Ok(Sizes {
            total_weight: classes.iter().map(|class| class.weight).sum(),
            classes,
        })
    }

    /// Returns the one size, if there is only one.
    pub fn fixed(&self) -> Option<usize> {
        match self.classes.as_slice() {
            [only] if only.bytes_min == only.bytes_max => Some(only.bytes_min),
            _ => None,
        }
    }

    /// Returns the largest size.
    pub fn largest(&self) -> usize {
        self.classes
            .iter()
            .map(|class| class.bytes_max)
            .max()
            .unwrap_or(0)
    }

    /// Returns the mean size.
    pub fn mean(&self) -> f64 {
        let sum = self.classes.iter().map(|class| {
            class.weight as f64 * (class.bytes_min as f64 + class.bytes_max as f64) / 2.0
        });
        sum.sum::<f64>() / self.total_weight as f64
    }

    fn draw(&self, random: &mut fastrand::Rng) -> usize {
        let mut left = random.u64(..self.total_weight);
        for class in &self.classes {
            if left < class.weight {
                return random.usize(class.bytes_min..=class.bytes_max);
            }
            left -= class.weight;
        }
        unreachable!("the weights add up to the total")
    }
}

/// Makes values of one kind, on one thread.
#[derive(Clone, Debug)]
pub struct ValueSource {
    sizes: Sizes,
    fixed: Option<usize>,
    content: Content,
    block: Vec<u8>,
}

/// The block's bytes beyond the largest piece: the number of different pieces.
const BLOCK_SPARE_BYTES: usize = 64 * 1024;
/// Largest piece: a value of 1 GB costs no second one, in each thread.
const CUT_BYTES_MAX: usize = 4 << 20;
/// Size of the pieces of compressible bytes.
const PIECE_BYTES: usize = 64;
/// Number of bytes at the front of a value that are new each time.
const NEW_BYTES: usize = 8;

impl ValueSource {
    /// Returns a source of values of these sizes.
    pub fn new(sizes: Sizes, content: Content, random: &mut fastrand::Rng) -> ValueSource {
        let mut block = vec![0; sizes.largest().min(CUT_BYTES_MAX) + BLOCK_SPARE_BYTES];
        match content {
            Content::Random => random.fill(&mut block),
            Content::Fixed => block.fill(b'x'),
            Content::Compressible(share) => {
                let same = (share * PIECE_BYTES as f64).round() as usize;
                for piece in block.chunks_mut(PIECE_BYTES) {
                    let split = same.min(piece.len());
                    piece[..split].fill(b'x');
                    piece[split..].fill_with(|| random.alphanumeric() as u8);
                }
            }
        }
        ValueSource {
            fixed: sizes.fixed(),
            sizes,
            content,
            block,
        }
    }

    /// Returns the size of the next value.
    #[inline]
    pub fn size(&self, random: &mut fastrand::Rng) -> usize {
        self.fixed.unwrap_or_else(|| self.sizes.draw(random))
    }

    /// Appends a value of `bytes` bytes.
    #[inline]
    pub fn append(&self, bytes: usize, out: &mut Vec<u8>, random: &mut fastrand::Rng) {
        let start = out.len();
        let mut left = bytes;
        loop {
            let at = match self.content {
                Content::Fixed => 0,
                _ => random.usize(..BLOCK_SPARE_BYTES / PIECE_BYTES) * PIECE_BYTES,
            };
            let cut = left.min(CUT_BYTES_MAX);
            out.extend_from_slice(&self.block[at..at + cut]);
            left -= cut;
            if left == 0 {
                break;
            }
        }
        if self.content == Content::Random {
            let new = random.u64(..).to_le_bytes();
            let bytes = bytes.min(NEW_BYTES);
            out[start..start + bytes].copy_from_slice(&new[..bytes]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(sizes: &str, content: Content, count: usize) -> Vec<Vec<u8>> {
        let mut random = fastrand::Rng::with_seed(5);
        let source = ValueSource::new(Sizes::parse(sizes).unwrap(), content, &mut random);
        (0..count)
            .map(|_| {
                let mut out = b"before".to_vec();
                let bytes = source.size(&mut random);
                source.append(bytes, &mut out, &mut random);
                assert_eq!(out.len(), 6 + bytes);
                out.split_off(6)
            })
            .collect()
    }

    #[test]
    fn sizes_come_by_their_weights_and_within_their_ranges() {
        let values = values("16:8,100-200:2", Content::Random, 10_000);
        let small = values.iter().filter(|value| value.len() == 16).count();
        assert!((7_700..8_300).contains(&small), "{small}");
        let ranged = values.iter().map(Vec::len).filter(|&bytes| bytes != 16);
        let (min, max) = ranged.fold((usize::MAX, 0), |(min, max), bytes| {
            (min.min(bytes), max.max(bytes))
        });
        assert_eq!((min, max), (100, 200));
    }

    #[test]
    fn sizes_that_are_none_are_named() {
        for wrong in ["", "x", "1-", "2-1", "1:0", "1:x", "1,,2", "-5", "1:-1"] {
            assert!(
                Sizes::parse(wrong).unwrap_err().contains("is no size"),
                "{wrong}"
            );
        }
        assert!(Sizes::parse("2000000000").unwrap_err().contains("1 GiB"));
        assert_eq!(Sizes::parse("0").unwrap().fixed(), Some(0));
        assert_eq!(Sizes::parse("1,2").unwrap().fixed(), None);
    }

    #[test]
    fn random_values_differ_and_fixed_ones_do_not() {
        let random = values("8", Content::Random, 1000);
        let different: std::collections::HashSet<_> = random.iter().collect();
        assert_eq!(different.len(), 1000);
        let fixed = values("8", Content::Fixed, 3);
        assert_eq!(fixed[0], fixed[2]);
    }

    #[test]
    fn a_value_that_is_larger_than_the_block_is_cut_from_several_places() {
        let mut random = fastrand::Rng::with_seed(5);
        let bytes = 3 * CUT_BYTES_MAX + 5;
        let sizes = Sizes::parse(&bytes.to_string()).unwrap();
        let source = ValueSource::new(sizes, Content::Random, &mut random);
        assert!(source.block.len() < 2 * CUT_BYTES_MAX);
        let mut out = Vec::new();
        source.append(bytes, &mut out, &mut random);
        assert_eq!(out.len(), bytes);
        let mut cuts = out.chunks(CUT_BYTES_MAX);
        let (first, second) = (cuts.next().unwrap(), cuts.next().unwrap());
        let same = first.iter().zip(second).filter(|(a, b)| a == b).count();
        assert!(same < CUT_BYTES_MAX / 100, "{same}");
    }

    #[test]
    fn compressible_values_have_their_share_of_sameness() {
        for share in [0.0, 0.25, 0.5, 1.0] {
            let value = &values("65536", Content::Compressible(share), 1)[0];
            let same = value.iter().filter(|&&byte| byte == b'x').count() as f64 / 65536.0;
            // One in 62 of the random characters is the same letter.
            assert!((same - share).abs() < 0.03, "{same} of {share}");
        }
    }
}
