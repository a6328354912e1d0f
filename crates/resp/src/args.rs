//! The arguments of one request: borrowed from the query buffer ([`Args`]) or owned ([`ArgsBuf`]). Knows nothing of the
//! wire.

use std::fmt;
use std::ops::Index;
use std::sync::Arc;

use crate::request::BIG_BULK_BYTES_MIN;

/// A large value: received into its own allocation, reference-counted, and sent without a copy.
pub type Blob = Arc<Vec<u8>>;

/// Location of one argument: inside the buffer that was decoded, or in the list of blobs beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset from the first byte of the request's buffer, or [`Span::IN_BLOB`].
    pub start: u32,
    /// Number of bytes, or the blob's index.
    pub len: u32,
}

impl Span {
    /// Value of `start` for an argument that is not in the buffer: `len` is then an index into the blobs. No argument
    /// can start there, since buffers end before it.
    pub const IN_BLOB: u32 = u32::MAX;

    /// Returns the span of blob number `index`.
    #[inline]
    pub const fn blob(index: u32) -> Span {
        Span {
            start: Span::IN_BLOB,
            len: index,
        }
    }
}

/// The argv of one request: slices of one buffer, without a copy. `args[0]` is the command's name.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    buf: &'a [u8],
    spans: &'a [Span],
    big: &'a [Blob],
}

impl<'a> Args<'a> {
    /// Creates arguments that are all in `buf`. Every span must come from decoding that buffer.
    #[inline]
    pub fn new(buf: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        Args {
            buf,
            spans,
            big: &[],
        }
    }

    /// Creates arguments of which some are blobs: see [`crate::RequestDecoder::blobs`].
    #[inline]
    pub fn with_big(buf: &'a [u8], spans: &'a [Span], big: &'a [Blob]) -> Args<'a> {
        Args { buf, spans, big }
    }

    /// Returns the number of arguments, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns true if there is no argument.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns argument `i`.
    #[inline]
    pub fn get(&self, i: usize) -> Option<&'a [u8]> {
        self.spans.get(i).map(|&span| self.resolve(span))
    }

    /// Returns all arguments in order.
    #[inline]
    pub fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone + use<'a> {
        let args = *self;
        args.spans.iter().map(move |&span| args.resolve(span))
    }

    /// Returns the arguments from `i` on; none if there are fewer.
    #[inline]
    pub fn from(&self, i: usize) -> Args<'a> {
        Args {
            spans: self.spans.get(i..).unwrap_or(&[]),
            ..*self
        }
    }

    /// Returns the first `n` arguments; all if there are fewer.
    #[inline]
    pub fn first(&self, n: usize) -> Args<'a> {
        Args {
            spans: &self.spans[..n.min(self.spans.len())],
            ..*self
        }
    }

    /// Returns argument `i` if it was received into its own allocation, which a handler may then keep instead of a copy.
    #[inline]
    pub fn blob(&self, i: usize) -> Option<&'a Blob> {
        let span = self.spans.get(i)?;
        (span.start == Span::IN_BLOB).then(|| &self.big[span.len as usize])
    }

    /// Returns the end of argument `i` in the buffer, without its line end. It must not be a blob.
    #[inline]
    pub fn end_of(&self, i: usize) -> usize {
        let Span { start, len } = self.spans[i];
        debug_assert_ne!(start, Span::IN_BLOB);
        start as usize + len as usize
    }

    /// Returns the whole request as it lies in the buffer, if that is the array of bulk strings which an encoder would write
    /// of these arguments, to the byte: for whoever passes it on. `None` for what came inline, for arguments that do not lie
    /// behind each other, and for those that are blobs; also for a request of one word.
    #[inline]
    pub fn frame(&self) -> Option<&'a [u8]> {
        /// Where the name of a command begins that has fewer than ten letters, among fewer than ten words.
        const BEGIN: usize = HEAD.len;
        match self.spans {
            [first, rest @ ..] if first.start as usize == BEGIN && (1..9).contains(&rest.len()) => {
                if !self.big.is_empty() || !HEAD.lies_at(self.buf, 0) {
                    return None;
                }
                let mut end = BEGIN + first.len as usize;
                for span in rest {
                    let (start, len) = (span.start as usize, span.len as usize);
                    if len >= 1000 {
                        return self.frame_of_any();
                    }
                    let digits = 1 + usize::from(len >= 10) + usize::from(len >= 100);
                    let between = &BETWEEN[digits - 1];
                    if start != end + between.len || !between.lies_at(self.buf, end) {
                        return None;
                    }
                    end = start + len;
                }
                let frame = self.buf.get(..end + 2)?;
                frame.ends_with(b"\r\n").then_some(frame)
            }
            _ => self.frame_of_any(),
        }
    }

    /// Does the same for any number of arguments of any length.
    #[inline(never)]
    fn frame_of_any(&self) -> Option<&'a [u8]> {
        let (first, rest) = self.spans.split_first()?;
        let begin = line_len(self.spans.len() as u32) + line_len(first.len);
        // Nobody has looked at the two bytes behind an argument. An inline request lies on one line, so only its first
        // argument comes behind the end of one.
        let ends_line = |at: u32| {
            let here = self.buf.get(at as usize..).and_then(<[u8]>::first_chunk);
            here.is_some_and(|here| u16::from_le_bytes(*here) == u16::from_le_bytes(*b"\r\n"))
        };
        let is_whole = self.big.is_empty()
            && !rest.is_empty()
            && first.start == begin
            && self.buf.first() == Some(&b'*')
            && self.buf.get((begin - line_len(first.len)) as usize) == Some(&b'$')
            && ends_line(begin - 2)
            && ends_line(begin - line_len(first.len) - 2);
        let mut end = first.start.checked_add(first.len)?;
        if !is_whole || !ends_line(end) {
            return None;
        }
        for span in rest {
            if span.start != end.checked_add(2 + line_len(span.len))?
                || self.buf.get(end as usize + 2) != Some(&b'$')
                || !ends_line(span.start - 2)
            {
                return None;
            }
            end = span.start.checked_add(span.len)?;
            if !ends_line(end) {
                return None;
            }
        }
        self.buf.get(..end as usize + 2)
    }

    #[inline]
    fn resolve(&self, span: Span) -> &'a [u8] {
        if span.start == Span::IN_BLOB {
            return &self.big[span.len as usize];
        }
        let start = span.start as usize;
        &self.buf[start..start + span.len as usize]
    }
}

/// Bytes that stand where arguments of a frame meet, at most eight: those which are known, under a mask.
struct Joint {
    len: usize,
    mask: u64,
    bytes: u64,
}

/// Before a name of one digit's length, if the number of words has one digit as well.
const HEAD: Joint = Joint::new(b"*0\r\n$0\r\n");
/// Before another argument: by the number of digits of its length.
static BETWEEN: [Joint; 3] = [
    Joint::new(b"\r\n$0\r\n"),
    Joint::new(b"\r\n$00\r\n"),
    Joint::new(b"\r\n$000\r\n"),
];

impl Joint {
    /// Makes one of its bytes; a zero stands for any digit.
    const fn new(text: &[u8]) -> Joint {
        let (mut mask, mut bytes, mut place) = (0, 0, 0);
        while place < text.len() {
            if text[place] != b'0' {
                mask |= 0xff << (8 * place);
                bytes |= (text[place] as u64) << (8 * place);
            }
            place += 1;
        }
        Joint {
            len: text.len(),
            mask,
            bytes,
        }
    }

    /// Returns true if it stands at a place of a request, whose digits the decoder has read. The shortest that can follow a
    /// joint makes eight bytes of it.
    #[inline(always)]
    fn lies_at(&self, buf: &[u8], at: usize) -> bool {
        let here = buf.get(at..).and_then(<[u8]>::first_chunk);
        here.is_some_and(|here| u64::from_le_bytes(*here) & self.mask == self.bytes)
    }
}

/// Returns the length of the line that tells a number: a sign, digits without a leading zero, the line's end.
#[inline]
fn line_len(number: u32) -> u32 {
    if number < 1000 {
        // No division and no table for what is usual.
        return 4 + u32::from(number >= 10) + u32::from(number >= 100);
    }
    4 + number.ilog10()
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    #[inline]
    fn index(&self, i: usize) -> &[u8] {
        self.resolve(self.spans[i])
    }
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(|arg| arg.escape_ascii().to_string()))
            .finish()
    }
}

/// Owned arguments of a MULTI queue and of a script's call. Large ones are blobs, so that a queued SET of a large value
/// makes no further copy.
#[derive(Clone, Default)]
pub struct ArgsBuf {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    big: Vec<Blob>,
}

impl ArgsBuf {
    /// Creates an empty list.
    pub fn new() -> ArgsBuf {
        ArgsBuf::default()
    }

    /// Removes the arguments and keeps the allocation.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.big.clear();
    }

    /// Appends a copy of `arg`.
    pub fn push(&mut self, arg: &[u8]) {
        let start = self.bytes.len();
        if arg.len() >= BIG_BULK_BYTES_MIN || start + arg.len() >= Span::IN_BLOB as usize {
            return self.push_blob(Arc::new(arg.to_vec()));
        }
        self.bytes.extend_from_slice(arg);
        self.spans.push(Span {
            start: start as u32,
            len: arg.len() as u32,
        });
    }

    /// Appends an argument without copying it.
    pub fn push_blob(&mut self, blob: Blob) {
        let index = u32::try_from(self.big.len()).expect("fewer than 2^32 large arguments");
        self.big.push(blob);
        self.spans.push(Span::blob(index));
    }

    /// Returns the number of arguments.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns true if there is no argument.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the bytes that the arguments hold, for the accounting of memory per client.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.spans.capacity() * size_of::<Span>()
            + self
                .big
                .iter()
                .map(|blob| blob.capacity() + size_of::<Blob>())
                .sum::<usize>()
    }

    /// Returns the arguments, borrowed.
    #[inline]
    pub fn as_args(&self) -> Args<'_> {
        Args {
            buf: &self.bytes,
            spans: &self.spans,
            big: &self.big,
        }
    }
}

impl From<Args<'_>> for ArgsBuf {
    fn from(args: Args<'_>) -> ArgsBuf {
        let mut owned = ArgsBuf::new();
        for i in 0..args.len() {
            match args.blob(i) {
                Some(blob) => owned.push_blob(Blob::clone(blob)),
                None => owned.push(&args[i]),
            }
        }
        owned
    }
}

impl<'a> FromIterator<&'a [u8]> for ArgsBuf {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(args: I) -> ArgsBuf {
        let mut owned = ArgsBuf::new();
        args.into_iter().for_each(|arg| owned.push(arg));
        owned
    }
}

impl fmt::Debug for ArgsBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_args().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoded, RequestDecoder, RequestLimits};

    fn texts<'a>(args: Args<'a>) -> Vec<&'a [u8]> {
        args.iter().collect()
    }

    #[test]
    fn arguments_are_slices_of_the_buffer() {
        let spans = [
            Span { start: 0, len: 3 },
            Span { start: 4, len: 1 },
            Span { start: 5, len: 0 },
        ];
        let args = Args::new(b"SET k", &spans);
        assert_eq!(texts(args), [&b"SET"[..], b"k", b""]);
        assert_eq!(&args[1], b"k");
        assert_eq!(args.get(3), None);
        assert_eq!(args.blob(1), None);
        assert_eq!(texts(args.from(1)), [&b"k"[..], b""]);
        assert!(args.from(3).is_empty());
        assert!(args.from(9).is_empty());
        assert_eq!(format!("{args:?}"), r#"["SET", "k", ""]"#);
    }

    #[test]
    fn blobs_are_handed_on_by_reference() {
        let value = Blob::new(vec![7; BIG_BULK_BYTES_MIN]);
        let (spans, big) = ([Span { start: 0, len: 3 }, Span::blob(0)], [value.clone()]);
        let args = Args::with_big(b"SET", &spans, &big);
        assert_eq!(&args[1], &value[..]);
        assert_eq!(args.from(1).get(0), Some(&value[..]));
        let owned = ArgsBuf::from(args);
        assert!(Blob::ptr_eq(owned.as_args().blob(1).unwrap(), &value));
        assert_eq!(owned.as_args().blob(0), None);
    }

    #[test]
    fn owned_arguments_copy_small_ones_into_one_buffer() {
        let mut owned: ArgsBuf = [&b"LPUSH"[..], b"k", b""].into_iter().collect();
        assert_eq!(texts(owned.as_args()), [&b"LPUSH"[..], b"k", b""]);
        owned.push(&[1; BIG_BULK_BYTES_MIN]);
        assert_eq!(
            owned.as_args().blob(3).map(|blob| blob.len()),
            Some(BIG_BULK_BYTES_MIN)
        );
        assert!(owned.heap_bytes() > BIG_BULK_BYTES_MIN);
        assert_eq!(owned.len(), 4);
        owned.clear();
        assert!(owned.is_empty());
        assert!(owned.as_args().is_empty());
    }

    /// Decodes all of `bytes`; gives the frame of each request, and the frame that an encoder writes of it.
    fn frames(bytes: &[u8], mut visit: impl FnMut(Option<&[u8]>, Vec<u8>)) -> usize {
        let mut decoder = RequestDecoder::new();
        let (mut at, mut count, mut spans) = (0, 0, Vec::new());
        let mut buf = bytes.to_vec();
        while at < buf.len() {
            spans.clear();
            let limits = RequestLimits::default();
            let Ok(Decoded::Request { consumed, .. }) =
                decoder.decode(&mut buf[at..], &limits, &mut spans)
            else {
                break;
            };
            let args = Args::new(&buf[at..], &spans);
            if !args.is_empty() {
                let mut encoded = format!("*{}\r\n", args.len()).into_bytes();
                for arg in args.iter() {
                    encoded.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
                    encoded.extend_from_slice(arg);
                    encoded.extend_from_slice(b"\r\n");
                }
                visit(args.frame(), encoded);
                count += 1;
            }
            at += consumed;
        }
        count
    }

    #[test]
    fn a_frame_is_the_encoded_request_or_none() {
        let canonical =
            b"*3\r\n$3\r\nSET\r\n$12\r\nabcdefghijkl\r\n$0\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        let all = frames(canonical, |frame, encoded| {
            assert_eq!(frame, Some(&encoded[..]))
        });
        assert_eq!(all, 2);
        // Other spellings of lengths, one word, inline with what may be taken for heads.
        for other in [
            &b"*02\r\n$3\r\nGET\r\n$1\r\nk\r\n"[..],
            b"*2\r\n$03\r\nGET\r\n$1\r\nk\r\n",
            b"*2\r\n$3\r\nGET\r\n$01\r\nk\r\n",
            b"*2\r\n$3\r\nGET\n\n$1\r\nk\r\n",
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\n\n",
            b"*1\r\n$4\r\nPING\r\n",
            b"GET k\r\n",
            b"GET  \"$1\\x0d\\x0ak\"\r\n",
            b"GET    $1  k\r\n",
        ] {
            frames(other, |frame, _| assert_eq!(frame, None));
        }
    }

    #[test]
    fn a_frame_of_changed_bytes_is_the_encoded_request_or_none() {
        let mut rng = fastrand::Rng::with_seed(11);
        let base = b"*1\r\n$8\r\nFLUSHALL\r\n*3\r\n$3\r\nSET\r\n$2\r\nkk\r\n$11\r\nhello world\r\nset \"a\\x0d\\x0a$1\" $3\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        let alphabet = b"*$\r\n0123 \"ak";
        let mut seen = 0;
        for _ in 0..200_000 {
            let mut bytes = base.to_vec();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..bytes.len());
                match rng.u8(..3) {
                    0 => bytes[at] = alphabet[rng.usize(..alphabet.len())],
                    1 => bytes.insert(at, alphabet[rng.usize(..alphabet.len())]),
                    _ => drop(bytes.remove(at)),
                }
            }
            frames(&bytes, |frame, encoded| {
                seen += usize::from(frame.is_some());
                assert!(
                    frame.is_none_or(|frame| frame == encoded),
                    "{}",
                    bytes.escape_ascii()
                );
            });
        }
        assert!(seen > 1000, "{seen}");
    }
}
