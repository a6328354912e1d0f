//! The heads of recent requests: the number of arguments, and the name with its header. Knows no commands, and nothing
//! of the bytes after the name.
//!
//! A connection, and a worker that serves many, gets the same few commands repeatedly, written in the same way. So a
//! request that begins with the bytes of an earlier one needs neither its first two headers decoded nor its name looked
//! up: a comparison of three words gives both. See [`RequestDecoder::decode_with`](crate::RequestDecoder::decode_with).

use crate::args::Span;

/// Length of the longest head that is remembered, line end included: names of up to 13 bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 24;
const BITS: u32 = 4;

/// Number of heads that are remembered.
pub const HEADS: usize = 1 << BITS;

/// Result of looking up the name of the request that was decoded last among the numbered names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// It equals, to the letter, that of the last request that was [`Name::New`] with this number.
    Known(u8),
    /// It gets this number (below [`HEADS`]), which its previous name loses.
    New(u8),
    /// It has no number.
    Unnumbered,
}

/// The table of heads: see the module's documentation. One serves any number of connections.
#[derive(Debug)]
pub struct Heads {
    heads: [Head; HEADS],
    name: Name,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    words: [u64; 3],
    /// Ones where `words` are significant.
    masks: [u64; 3],
    name: Span,
    args: u8,
}

impl Default for Heads {
    fn default() -> Heads {
        let nothing = Head {
            words: [u64::MAX; 3],
            masks: [0; 3],
            name: Span::default(),
            args: 0,
        };
        Heads {
            heads: [nothing; HEADS],
            name: Name::Unnumbered,
        }
    }
}

impl Heads {
    /// Creates an empty table.
    pub fn new() -> Heads {
        Heads::default()
    }

    /// Returns the result of the lookup of the name of the request that was decoded last.
    #[inline]
    pub fn name(&self) -> Name {
        self.name
    }

    /// Returns the number of arguments and the span of the name, if the request begins as an earlier one.
    #[inline]
    pub(crate) fn find(&mut self, buf: &[u8]) -> Option<(usize, Span)> {
        let words = words(buf.first_chunk()?);
        let place = place_of(&words);
        let head = &self.heads[usize::from(place)];
        let differ = (0..3).fold(0, |differ, i| {
            differ | (words[i] & head.masks[i]) ^ head.words[i]
        });
        self.name = Name::Known(place);
        (differ == 0).then_some((usize::from(head.args), head.name))
    }

    /// Adds the name of a request with this number of arguments, which has the form of small ones.
    pub(crate) fn learn(&mut self, buf: &[u8], args: usize, name: Span) {
        let len = (name.start + name.len) as usize + 2;
        self.name = Name::Unnumbered;
        if let Some(first) = buf.first_chunk()
            && len <= HEAD_BYTES_MAX
        {
            let mut masks = [0; HEAD_BYTES_MAX];
            masks[..len].fill(u8::MAX);
            let (words, masks) = (words(first), self::words(&masks));
            let place = place_of(&words);
            self.heads[usize::from(place)] = Head {
                words: std::array::from_fn(|i| words[i] & masks[i]),
                masks,
                name,
                args: args as u8,
            };
            self.name = Name::New(place);
        }
    }

    /// Notes that the request was decoded without its head.
    pub(crate) fn pass(&mut self) {
        self.name = Name::Unnumbered;
    }
}

#[inline]
fn words(bytes: &[u8; HEAD_BYTES_MAX]) -> [u64; 3] {
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|i| u64::from_le_bytes(words[i]))
}

/// Returns the place by the number of arguments and the first three letters. Shorter names are followed by a line end.
#[inline]
fn place_of(words: &[u64; 3]) -> u8 {
    let letters = words[1] as u32 & 0x00ff_ffff;
    let count = (words[0] >> 8) as u32 & 0xff;
    ((letters ^ count << 24).wrapping_mul(0x9e37_79b1) >> (u32::BITS - BITS)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoded, ProtocolError, RequestDecoder, RequestLimits};

    /// Ensures that requests of all shapes, mixed and cut off, decode alike with heads and without, and that a known
    /// name is the one with its number.
    #[test]
    fn they_change_nothing() {
        let mut rng = fastrand::Rng::with_seed(5);
        let names = [
            "GET",
            "get",
            "SET",
            "INCR",
            "EXPIRE",
            "ZRANGEBYSCORE",
            "ZREVRANGEBYSCORE",
            "X",
            "",
        ];
        let mut heads = Heads::new();
        let mut numbered: [Vec<u8>; HEADS] = Default::default();
        let mut known = 0;
        for _ in 0..50_000 {
            let mut request = Vec::new();
            let name = names[rng.usize(..names.len())].as_bytes();
            let args: Vec<Vec<u8>> = (0..rng.usize(..4))
                .map(|_| vec![rng.u8(..); rng.usize(..30)])
                .collect();
            let words = std::iter::once(name).chain(args.iter().map(Vec::as_slice));
            crate::encode_request(&words.collect::<Vec<_>>(), &mut request);
            if rng.u8(..8) == 0 {
                let at = rng.usize(..request.len());
                request[at] = rng.u8(..);
            }
            request.resize(request.len() + rng.usize(..30), b'x');
            request.truncate(rng.usize(1..=request.len() * 2));
            let limits = RequestLimits {
                multibulk_max: rng.i64(1..6),
                bulk_bytes_max: rng.u64(1..40),
                ..RequestLimits::default()
            };
            let plain = decode(&request, |decoder, buf, spans| {
                decoder.decode(buf, &limits, spans)
            });
            let with = decode(&request, |decoder, buf, spans| {
                decoder.decode_with(&mut heads, buf, &limits, spans)
            });
            assert_eq!(plain, with, "{:?}", request.escape_ascii().to_string());
            if let (Ok(Decoded::Request { .. }), spans) = &with {
                let name = &request[spans[0].start as usize..][..spans[0].len as usize];
                match heads.name() {
                    Name::Known(number) => {
                        known += 1;
                        assert_eq!(numbered[usize::from(number)], name);
                    }
                    Name::New(number) => numbered[usize::from(number)] = name.to_vec(),
                    Name::Unnumbered => {}
                }
            }
        }
        assert!(known > 3_000, "{known} known names");
    }

    fn decode(
        request: &[u8],
        run: impl FnOnce(
            &mut RequestDecoder,
            &mut [u8],
            &mut Vec<Span>,
        ) -> Result<Decoded, ProtocolError>,
    ) -> (Result<Decoded, ProtocolError>, Vec<Span>) {
        let (mut decoder, mut spans) = (RequestDecoder::new(), vec![Span::default(); 3]);
        let decoded = run(&mut decoder, &mut request.to_vec(), &mut spans);
        (decoded, spans.split_off(3))
    }
}
