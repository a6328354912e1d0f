//! Vectors as a set stores them: of length one, in full or quantized, with the data that gives the original back. Must
//! not know graphs or elements.
//!
//! All vectors of a set are stored alike, so the distance between two of them never mixes forms. The order in which
//! components are added up is part of the result's last digits: norms, quantized vectors, and products of fewer than
//! `LANES` components give the digits that Redis 8.2.3 gives.

/// Forms in which the components of a set's vectors are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quantization {
    /// As 32-bit floats.
    None,
    /// As 8-bit integers, scaled by the greatest component of each vector.
    #[default]
    Int8,
    /// As signs, one bit each.
    Binary,
}

impl Quantization {
    /// Returns the name that VINFO answers.
    pub const fn name(self) -> &'static str {
        match self {
            Quantization::None => "f32",
            Quantization::Int8 => "int8",
            Quantization::Binary => "bin",
        }
    }

    /// Returns the number of bytes of a stored vector of so many components.
    pub const fn bytes_of(self, dimensions: usize) -> usize {
        match self {
            Quantization::None => dimensions * size_of::<f32>(),
            Quantization::Int8 => dimensions,
            Quantization::Binary => dimensions.div_ceil(WORD_BITS) * size_of::<u64>(),
        }
    }
}

/// The greatest magnitude of a component in 8 bits.
const INT8_MAX: f32 = 127.0;
const WORD_BITS: usize = u64::BITS as usize;
/// Number of sums that are kept side by side, so that the compiler can use vector registers.
const LANES: usize = 8;

/// A stored vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The length of the original vector; 1 for the zero vector, which has no direction.
    pub norm: f32,
    /// The greatest magnitude of a component of the unit vector, where components have 8 bits; otherwise 0.
    pub range: f32,
    components: Components,
}

#[derive(Clone, Debug, PartialEq)]
enum Components {
    Floats(Box<[f32]>),
    Int8(Box<[i8]>),
    /// The lowest bit of the first word is the first component's; set if it is above zero.
    Signs(Box<[u64]>),
}

impl Stored {
    /// Normalizes and quantizes a vector.
    pub fn new(vector: &[f32], quantization: Quantization) -> Stored {
        let mut unit: Box<[f32]> = vector.into();
        let norm = normalize(&mut unit);
        let (range, components) = match quantization {
            Quantization::None => (0.0, Components::Floats(unit)),
            Quantization::Int8 => {
                let (range, quants) = to_int8(&unit);
                (range, Components::Int8(quants))
            }
            Quantization::Binary => (0.0, Components::Signs(to_signs(&unit))),
        };
        Stored {
            norm,
            range,
            components,
        }
    }

    /// Makes a vector of the bytes that [`Stored::write_bytes`] wrote; `None` if there are not as many as the
    /// dimensions take.
    pub fn from_bytes(
        bytes: &[u8],
        norm: f32,
        range: f32,
        dimensions: usize,
        quantization: Quantization,
    ) -> Option<Stored> {
        if bytes.len() != quantization.bytes_of(dimensions) {
            return None;
        }
        let components = match quantization {
            Quantization::None => Components::Floats(floats(bytes).collect()),
            Quantization::Int8 => Components::Int8(bytes.iter().map(|&byte| byte as i8).collect()),
            Quantization::Binary => {
                let (words, _) = bytes.as_chunks();
                Components::Signs(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
            }
        };
        Some(Stored {
            norm,
            range,
            components,
        })
    }

    /// Appends the stored components, in little-endian order.
    pub fn write_bytes(&self, out: &mut Vec<u8>) {
        match &self.components {
            Components::Floats(floats) => {
                floats.iter().for_each(|x| out.extend(x.to_le_bytes()));
            }
            Components::Int8(quants) => out.extend(quants.iter().map(|&x| x as u8)),
            Components::Signs(words) => {
                words.iter().for_each(|word| out.extend(word.to_le_bytes()));
            }
        }
    }

    /// Returns the original vector, as nearly as the stored form allows; of signs only the direction is left.
    pub fn vector(&self, dimensions: usize) -> Vec<f32> {
        match &self.components {
            Components::Floats(floats) => floats.iter().map(|x| x * self.norm).collect(),
            Components::Int8(quants) => quants
                .iter()
                .map(|&x| f32::from(x) * self.range / INT8_MAX * self.norm)
                .collect(),
            Components::Signs(words) => (0..dimensions)
                .map(|at| {
                    if words[at / WORD_BITS] >> (at % WORD_BITS) & 1 == 1 {
                        1.0
                    } else {
                        -1.0
                    }
                })
                .collect(),
        }
    }

    /// Returns the cosine distance: 0 for the same direction, 1 at right angles, 2 for the opposite; not a number where
    /// a component is none. Both vectors are of one set.
    pub fn distance(&self, other: &Stored, dimensions: usize) -> f32 {
        match (&self.components, &other.components) {
            (Components::Floats(a), Components::Floats(b)) => 1.0 - dot(a, b),
            (Components::Int8(a), Components::Int8(b)) => {
                if self.range == 0.0 || other.range == 0.0 {
                    return 1.0;
                }
                let scale = (self.range / INT8_MAX) * (other.range / INT8_MAX);
                (1.0 - dot_int8(a, b) as f32 * scale).clamp(0.0, 2.0)
            }
            (Components::Signs(a), Components::Signs(b)) => {
                let opposite: u32 = a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum();
                opposite as f32 * 2.0 / dimensions as f32
            }
            _ => unreachable!("the vectors of a set are stored alike"),
        }
    }

    /// Returns the number of bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        match &self.components {
            Components::Floats(floats) => size_of_val(&**floats),
            Components::Int8(quants) => size_of_val(&**quants),
            Components::Signs(words) => size_of_val(&**words),
        }
    }
}

/// Returns the floats of bytes in little-endian order; bytes behind the last whole one are ignored.
pub fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| f32::from_le_bytes(*word))
}

/// Makes the length one, and returns the length that it was.
fn normalize(vector: &mut [f32]) -> f32 {
    let (fours, rest) = vector.as_chunks::<4>();
    let mut sum = 0.0f32;
    for [a, b, c, d] in fours {
        sum += a * a + b * b + c * c + d * d;
    }
    for x in rest {
        sum += x * x;
    }
    if sum == 0.0 {
        return 1.0;
    }
    let norm = sum.sqrt();
    vector.iter_mut().for_each(|x| *x /= norm);
    norm
}

fn to_int8(unit: &[f32]) -> (f32, Box<[i8]>) {
    let range = unit.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    if range == 0.0 {
        return (0.0, vec![0; unit.len()].into());
    }
    let scale = INT8_MAX / range;
    (
        range,
        unit.iter().map(|x| (x * scale).round() as i8).collect(),
    )
}

fn to_signs(unit: &[f32]) -> Box<[u64]> {
    unit.chunks(WORD_BITS)
        .map(|chunk| {
            let bits = chunk.iter().enumerate();
            bits.fold(0, |word, (at, x)| word | u64::from(*x > 0.0) << at)
        })
        .collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0f32; LANES];
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let mut sum = if a_chunks.is_empty() {
        0.0
    } else {
        sums.iter().sum()
    };
    for (a, b) in a_rest.iter().zip(b_rest) {
        sum += a * b;
    }
    sum
}

fn dot_int8(a: &[i8], b: &[i8]) -> i32 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| i32::from(a) * i32::from(b))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Quantization; 3] = [Quantization::None, Quantization::Int8, Quantization::Binary];

    #[test]
    fn vectors_come_back_nearly() {
        let mut rng = fastrand::Rng::with_seed(1);
        for dimensions in [1, 3, 4, 7, 8, 9, 63, 64, 65, 300] {
            let vector: Vec<f32> = (0..dimensions).map(|_| rng.f32() * 20.0 - 10.0).collect();
            for (quantization, error) in ALL.into_iter().zip([1e-5, 0.05]) {
                let back = Stored::new(&vector, quantization).vector(dimensions);
                let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
                for (a, b) in vector.iter().zip(&back) {
                    assert!((a - b).abs() <= error * norm, "{quantization:?} {a} {b}");
                }
            }
            let signs = Stored::new(&vector, Quantization::Binary).vector(dimensions);
            let expected: Vec<f32> = vector.iter().map(|x| x.signum()).collect();
            assert_eq!(signs, expected);
        }
    }

    #[test]
    fn bytes_come_back_whole_and_other_lengths_are_refused() {
        let vector: Vec<f32> = (0..70).map(|x| (x as f32).sin()).collect();
        for quantization in ALL {
            let stored = Stored::new(&vector, quantization);
            let mut bytes = Vec::new();
            stored.write_bytes(&mut bytes);
            assert_eq!(bytes.len(), quantization.bytes_of(70));
            let read = |bytes: &[u8]| {
                Stored::from_bytes(bytes, stored.norm, stored.range, 70, quantization)
            };
            assert_eq!(read(&bytes), Some(stored.clone()));
            assert_eq!(read(&bytes[1..]), None);
        }
    }

    #[test]
    fn distances_are_those_of_the_angle() {
        for quantization in ALL {
            let of = |vector: &[f32]| Stored::new(vector, quantization);
            let a = of(&[3.0, 3.0, 3.0, 3.0]);
            for (b, expected) in [
                ([1.0, 1.0, 1.0, 1.0], 0.0),
                ([1.0, -1.0, 1.0, -1.0], 1.0),
                ([-7.0, -7.0, -7.0, -7.0], 2.0),
            ] {
                let distance = a.distance(&of(&b), 4);
                assert!(
                    (distance - expected).abs() < 1e-6,
                    "{quantization:?} {distance}"
                );
            }
        }
    }

    #[test]
    fn the_zero_vector_and_what_is_no_number_do_no_harm() {
        let zero = Stored::new(&[0.0; 9], Quantization::Int8);
        assert_eq!((zero.norm, zero.range), (1.0, 0.0));
        assert_eq!(zero.distance(&zero, 9), 1.0);
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            for quantization in ALL {
                let stored = Stored::new(&[odd, 1.0], quantization);
                let distance = stored.distance(&stored, 2);
                assert!(distance.is_nan() || (0.0..=2.0).contains(&distance));
                assert_eq!(stored.vector(2).len(), 2);
            }
        }
    }
}
