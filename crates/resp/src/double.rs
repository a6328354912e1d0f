//! The text of a double on the wire: this module alone decides it. Knows neither RESP2 nor RESP3.
//!
//! Clients compare scores as text, so the digits must be those that Redis prints, and these are not always the
//! shortest: 1.25e22 reads `12499999999999999000000`. They come from Grisu2 (Florian Loitsch, "Printing Floating-Point
//! Numbers Quickly and Accurately with Integers", PLDI 2010), which always reads back as the same number, but for one
//! number in a hundred prints another digit or one more than it must. A shortest-digits printer was tried first and
//! differed from Redis in exactly these. The choice of the power of ten among two that would serve is Redis's as well,
//! since it decides which those are.
//!
//! Integers up to half of what an `i64` holds are printed as integers.

/// Length of the longest text: a sign, seventeen digits, and seven zeros or a prefix of `0.000000`.
const TEXT_BYTES_MAX: usize = 32;
const DIGITS_MAX: usize = 20;

/// Appends the text of `value`.
pub fn format_double(value: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(DoubleText::new(value).as_bytes());
}

/// Appends the digits of `value`, without the exception for integers: those too get an exponent where they end in many
/// zeros. Redis's digests of sorted sets are made of this text.
pub fn format_digits(value: f64, out: &mut Vec<u8>) {
    if value.is_finite() && value != 0.0 {
        let mut text = DoubleText::empty();
        text.digits(value);
        out.extend_from_slice(text.as_bytes());
    } else {
        format_double(value, out);
    }
}

/// Text of a double, on the stack.
pub(crate) struct DoubleText {
    bytes: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl DoubleText {
    fn empty() -> DoubleText {
        DoubleText {
            bytes: [0; TEXT_BYTES_MAX],
            len: 0,
        }
    }

    pub(crate) fn new(value: f64) -> DoubleText {
        let mut text = DoubleText::empty();
        if value.is_nan() {
            text.push(b"nan");
        } else if value.is_infinite() {
            text.push(if value > 0.0 { b"inf" } else { b"-inf" });
        } else if value == 0.0 {
            text.push(if value.is_sign_negative() {
                b"-0"
            } else {
                b"0"
            });
        } else if value.abs() <= (i64::MAX / 2) as f64 && value as i64 as f64 == value {
            text.push(itoa::Buffer::new().format(value as i64).as_bytes());
        } else {
            text.digits(value);
        }
        text
    }

    /// Appends the digits of a number that is finite and not zero.
    fn digits(&mut self, value: f64) {
        if value < 0.0 {
            self.push(b"-");
        }
        let decimal = Decimal::of(value.abs());
        self.decimal(&decimal.digits[..decimal.len], decimal.exponent);
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends `digits` times ten to the `exponent`: in full if that takes few zeros, else with an exponent.
    fn decimal(&mut self, digits: &[u8], exponent: i32) {
        const ZEROS: &[u8] = b"0000000";
        let count = digits.len() as i32;
        let magnitude = exponent + count - 1;
        if (0..=7).contains(&exponent) {
            self.push(digits);
            self.push(&ZEROS[..exponent as usize]);
        } else if exponent < 0 && (exponent > -7 || magnitude.abs() < 4) {
            let point = count + exponent;
            if point > 0 {
                let (whole, fraction) = digits.split_at(point as usize);
                self.push(whole);
                self.push(b".");
                self.push(fraction);
            } else {
                self.push(b"0.");
                self.push(&ZEROS[..-point as usize]);
                self.push(digits);
            }
        } else {
            self.push(&digits[..1]);
            if digits.len() > 1 {
                self.push(b".");
                self.push(&digits[1..]);
            }
            self.push(if magnitude < 0 { b"e-" } else { b"e+" });
            self.push(
                itoa::Buffer::new()
                    .format(magnitude.unsigned_abs())
                    .as_bytes(),
            );
        }
    }
}

/// A binary floating-point number with a 64-bit significand: `significand * 2^exponent`.
#[derive(Clone, Copy)]
struct Binary {
    significand: u64,
    exponent: i32,
}

impl Binary {
    fn normalized(self) -> Binary {
        let shift = self.significand.leading_zeros();
        Binary {
            significand: self.significand << shift,
            exponent: self.exponent - shift as i32,
        }
    }

    /// Returns the upper half of the product, rounded.
    fn times(self, other: Binary) -> Binary {
        let product = u128::from(self.significand) * u128::from(other.significand) + (1 << 63);
        Binary {
            significand: (product >> 64) as u64,
            exponent: self.exponent + other.exponent + 64,
        }
    }
}

/// A decimal: `digits * 10^exponent`.
struct Decimal {
    digits: [u8; DIGITS_MAX],
    len: usize,
    exponent: i32,
}

impl Decimal {
    /// Returns digits that read back as `value`, which is positive and finite.
    fn of(value: f64) -> Decimal {
        const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;
        const HIDDEN_BIT: u64 = 1 << FRACTION_BITS;
        const BIAS: i32 = 1023 + FRACTION_BITS as i32;
        let fraction = value.to_bits() & (HIDDEN_BIT - 1);
        let exact = match (value.to_bits() >> FRACTION_BITS) as i32 {
            0 => Binary {
                significand: fraction,
                exponent: 1 - BIAS,
            },
            exponent => Binary {
                significand: fraction | HIDDEN_BIT,
                exponent: exponent - BIAS,
            },
        };

        // Midpoints to the neighbours above and below: every number between them reads back as `value`.
        let upper = Binary {
            significand: (exact.significand << 1) + 1,
            exponent: exact.exponent - 1,
        }
        .normalized();
        let nearer_below = u32::from(exact.significand == HIDDEN_BIT);
        let lower_exponent = exact.exponent - 1 - nearer_below as i32;
        let lower_significand = (exact.significand << (1 + nearer_below)) - 1;
        let lower = Binary {
            significand: lower_significand << (lower_exponent - upper.exponent),
            exponent: upper.exponent,
        };

        let (scale, power) = cached_power(upper.exponent);
        let (mut upper, mut lower) = (upper.times(scale), lower.times(scale));
        // The products are off by up to one.
        upper.significand -= 1;
        lower.significand += 1;
        let scaled = exact.normalized().times(scale);
        let mut decimal = Decimal {
            digits: [0; DIGITS_MAX],
            len: 0,
            exponent: -power,
        };
        decimal.generate(
            upper,
            upper.significand - scaled.significand,
            upper.significand - lower.significand,
        );
        decimal
    }

    /// Writes digits of `upper` until the remainder is less than `width`, that is, until the digits lie inside the
    /// interval; then moves the last one towards the exact value, which lies `target` below `upper`.
    fn generate(&mut self, upper: Binary, mut target: u64, mut width: u64) {
        const UNITS: [(i32, u32); 10] = [
            (9, 1_000_000_000),
            (8, 100_000_000),
            (7, 10_000_000),
            (6, 1_000_000),
            (5, 100_000),
            (4, 10_000),
            (3, 1_000),
            (2, 100),
            (1, 10),
            (0, 1),
        ];
        // `upper` is a fixed-point number with 32 to 60 bits after the point.
        let point = -upper.exponent as u32;
        let one = 1u64 << point;
        let mut whole = (upper.significand >> point) as u32;
        let mut fraction = upper.significand & (one - 1);

        for (behind, unit) in UNITS {
            self.push(whole / unit);
            whole %= unit;
            let rest = (u64::from(whole) << point) + fraction;
            if rest <= width {
                self.exponent += behind;
                return self.round(target, width, rest, u64::from(unit) << point);
            }
        }
        let mut behind = 0;
        loop {
            fraction *= 10;
            width *= 10;
            target *= 10;
            behind -= 1;
            self.push((fraction >> point) as u32);
            fraction &= one - 1;
            if fraction < width {
                self.exponent += behind;
                return self.round(target, width, fraction, one);
            }
        }
    }

    /// Appends a digit, but no leading zero.
    fn push(&mut self, digit: u32) {
        if digit > 0 || self.len > 0 {
            self.digits[self.len] = b'0' + digit as u8;
            self.len += 1;
        }
    }

    /// Lowers the last digit, worth `unit`, as long as that brings `rest` nearer to `target` and keeps it in the width.
    fn round(&mut self, target: u64, width: u64, mut rest: u64, unit: u64) {
        while rest < target
            && width - rest >= unit
            && (rest + unit < target || target - rest > rest + unit - target)
        {
            self.digits[self.len - 1] -= 1;
            rest += unit;
        }
    }
}

/// Returns a power of ten that brings a number with this binary exponent (and 64 significant bits) to one between 2^-60
/// and 2^-32, with its decimal exponent.
fn cached_power(exponent: i32) -> (Binary, i32) {
    const FIRST: i32 = -348;
    const STEP: i32 = 8;
    // The estimate decides which power is taken where two would fit.
    let guess = (f64::from(-(exponent + POWERS.len() as i32)) * std::f64::consts::LOG10_2) as i32;
    let mut index = (guess - FIRST) / STEP;
    loop {
        let (significand, power_exponent) = POWERS[index as usize];
        match exponent + i32::from(power_exponent) + 64 {
            ..-60 => index += 1,
            -60..=-32 => {
                let power = Binary {
                    significand,
                    exponent: i32::from(power_exponent),
                };
                return (power, FIRST + index * STEP);
            }
            _ => index -= 1,
        }
    }
}

/// Table of every eighth power of ten from 10^-348 to 10^340, rounded to 64 bits: significand and binary exponent.
#[rustfmt::skip]
const POWERS: [(u64, i16); 87] = [
    (0xfa8fd5a0081c0288, -1220), (0xbaaee17fa23ebf76, -1193), (0x8b16fb203055ac76, -1166),
    (0xcf42894a5dce35ea, -1140), (0x9a6bb0aa55653b2d, -1113), (0xe61acf033d1a45df, -1087),
    (0xab70fe17c79ac6ca, -1060), (0xff77b1fcbebcdc4f, -1034), (0xbe5691ef416bd60c, -1007),
    (0x8dd01fad907ffc3c, -980), (0xd3515c2831559a83, -954), (0x9d71ac8fada6c9b5, -927),
    (0xea9c227723ee8bcb, -901), (0xaecc49914078536d, -874), (0x823c12795db6ce57, -847),
    (0xc21094364dfb5637, -821), (0x9096ea6f3848984f, -794), (0xd77485cb25823ac7, -768),
    (0xa086cfcd97bf97f4, -741), (0xef340a98172aace5, -715), (0xb23867fb2a35b28e, -688),
    (0x84c8d4dfd2c63f3b, -661), (0xc5dd44271ad3cdba, -635), (0x936b9fcebb25c996, -608),
    (0xdbac6c247d62a584, -582), (0xa3ab66580d5fdaf6, -555), (0xf3e2f893dec3f126, -529),
    (0xb5b5ada8aaff80b8, -502), (0x87625f056c7c4a8b, -475), (0xc9bcff6034c13053, -449),
    (0x964e858c91ba2655, -422), (0xdff9772470297ebd, -396), (0xa6dfbd9fb8e5b88f, -369),
    (0xf8a95fcf88747d94, -343), (0xb94470938fa89bcf, -316), (0x8a08f0f8bf0f156b, -289),
    (0xcdb02555653131b6, -263), (0x993fe2c6d07b7fac, -236), (0xe45c10c42a2b3b06, -210),
    (0xaa242499697392d3, -183), (0xfd87b5f28300ca0e, -157), (0xbce5086492111aeb, -130),
    (0x8cbccc096f5088cc, -103), (0xd1b71758e219652c, -77), (0x9c40000000000000, -50),
    (0xe8d4a51000000000, -24), (0xad78ebc5ac620000, 3), (0x813f3978f8940984, 30),
    (0xc097ce7bc90715b3, 56), (0x8f7e32ce7bea5c70, 83), (0xd5d238a4abe98068, 109),
    (0x9f4f2726179a2245, 136), (0xed63a231d4c4fb27, 162), (0xb0de65388cc8ada8, 189),
    (0x83c7088e1aab65db, 216), (0xc45d1df942711d9a, 242), (0x924d692ca61be758, 269),
    (0xda01ee641a708dea, 295), (0xa26da3999aef774a, 322), (0xf209787bb47d6b85, 348),
    (0xb454e4a179dd1877, 375), (0x865b86925b9bc5c2, 402), (0xc83553c5c8965d3d, 428),
    (0x952ab45cfa97a0b3, 455), (0xde469fbd99a05fe3, 481), (0xa59bc234db398c25, 508),
    (0xf6c69a72a3989f5c, 534), (0xb7dcbf5354e9bece, 561), (0x88fcf317f22241e2, 588),
    (0xcc20ce9bd35c78a5, 614), (0x98165af37b2153df, 641), (0xe2a0b5dc971f303a, 667),
    (0xa8d9d1535ce3b396, 694), (0xfb9b7cd9a4a7443c, 720), (0xbb764c4ca7a44410, 747),
    (0x8bab8eefb6409c1a, 774), (0xd01fef10a657842c, 800), (0x9b10a4e5e9913129, 827),
    (0xe7109bfba19c0c9d, 853), (0xac2820d9623bf429, 880), (0x80444b5e7aa7cf85, 907),
    (0xbf21e44003acdd2d, 933), (0x8e679c2f5e44ff8f, 960), (0xd433179d9c8cb841, 986),
    (0x9e19db92b4e31ba9, 1013), (0xeb96bf6ebadf77d9, 1039), (0xaf87023b9bf0ee6b, 1066),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: f64) -> String {
        DoubleText::new(value)
            .as_bytes()
            .iter()
            .map(|&c| c as char)
            .collect()
    }

    /// Numbers, and their texts by Redis 8.2.3 (`tests/it/redis.rs` compares with a running one).
    const REDIS: &[(f64, &str)] = &[
        (0.0, "0"),
        (-0.0, "-0"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
        (1.0, "1"),
        (-1e17, "-100000000000000000"),
        (4.6e18, "4600000000000000000"),
        (4.7e18, "4.7e+18"),
        (1e19, "1e+19"),
        (1e20, "1e+20"),
        (1.2345678901234568e20, "123456789012345680000"),
        (1.25e22, "12499999999999999000000"),
        (1.23456789e19, "1.23456789e+19"),
        (0.1, "0.1"),
        (-0.0001, "-0.0001"),
        (1e-6, "0.000001"),
        (1.5e-5, "0.000015"),
        (1e-7, "1e-7"),
        (1.234e-5, "1.234e-5"),
        (0.1 + 0.2, "0.30000000000000004"),
        (5e-324, "5e-324"),
        (1.7e308, "1.7e+308"),
        (f64::MAX, "1.7976931348623157e+308"),
        (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
        (-1e-100, "-1e-100"),
    ];

    #[test]
    fn the_digits_are_those_of_redis() {
        for &(value, expected) in REDIS {
            assert_eq!(text(value), expected, "{value:e}");
        }
    }

    #[test]
    fn every_text_reads_back_as_the_same_number() {
        let mut rng = fastrand::Rng::with_seed(1);
        let random = std::iter::repeat_with(|| f64::from_bits(rng.u64(..)))
            .filter(|value| value.is_finite());
        let powers = (-1074..1024).map(|exponent| 2f64.powi(exponent));
        for value in random.take(200_000).chain(powers) {
            assert_eq!(
                text(value).parse::<f64>().map(f64::to_bits),
                Ok(value.to_bits()),
                "{value:e}"
            );
        }
    }

    /// Returns the 64 highest bits, rounded, of a number in 32-bit limbs, lowest first; and the exponent that they need.
    fn rounded(limbs: &[u32]) -> (u64, i32) {
        let bit = |i: usize| u64::from(limbs[i / 32] >> (i % 32) & 1);
        let top = (0..limbs.len() * 32).rev().find(|&i| bit(i) == 1).unwrap();
        let significand = (top - 63..=top).rev().fold(0, |bits, i| bits << 1 | bit(i));
        let round_up = if top > 63 { bit(top - 64) } else { 0 };
        (significand + round_up, top as i32 - 63)
    }

    #[test]
    fn the_powers_of_ten_are_rounded_right() {
        // 2^1600 times 10^power, so that the remainder of a division by ten is never among the significant bits.
        const SCALE: i32 = 1600;
        let mut number = vec![0u32; 90];
        number[SCALE as usize / 32] = 1;
        for _ in 0..348 {
            let mut remainder = 0;
            for limb in number.iter_mut().rev() {
                let part = remainder << 32 | u64::from(*limb);
                *limb = (part / 10) as u32;
                remainder = part % 10;
            }
        }
        for (significand, exponent) in POWERS {
            let (expected, scaled) = rounded(&number);
            assert_eq!(
                (significand, i32::from(exponent)),
                (expected, scaled - SCALE)
            );
            let mut carry = 0;
            for limb in &mut number {
                let part = u64::from(*limb) * 100_000_000 + carry;
                *limb = part as u32;
                carry = part >> 32;
            }
        }
    }
}
