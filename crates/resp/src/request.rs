//! Requests: decoding, multibulk and inline, from a query buffer; and encoding. Knows no commands, no sockets, and of
//! the session only if it is authenticated.
//!
//! # The contract with the caller
//!
//! The caller owns the query buffer and calls [`RequestDecoder::decode`] with its contents from the first byte of a
//! request on. While the result is [`Decoded::Incomplete`] it keeps those bytes and calls again, from the same first
//! byte, when more have arrived: the decoder remembers how far a long request was decoded. Spans are relative to that
//! first byte and are returned only when the request is complete.
//!
//! A bulk of [`RequestLimits::big_bulk_bytes_min`] or more that has not arrived completely goes into an allocation of
//! its own, which becomes the value: see [`Decoded::Big`].

use memchr::memchr2;

use crate::args::{Blob, Span};
use crate::heads::Heads;
use crate::inline;
use crate::limits::{
    self, READ_BYTES_MAX, UNAUTHENTICATED_ARGUMENTS_MAX, UNAUTHENTICATED_BULK_BYTES_MAX,
};
use crate::number::{parse_integer, small_number};
use crate::protocol_error::ProtocolError;
use crate::reply_buffer::{push_bulk, push_header};

/// Size from which on bulks are received directly into their own allocation.
pub const BIG_BULK_BYTES_MIN: usize = 32 * 1024;
/// Most bytes that are allocated for such a bulk before any byte of it has arrived; after that the allocation doubles
/// with the bytes that arrive.
const BIG_BULK_FIRST_BYTES_MAX: usize = 1024 * 1024;
/// Number of arguments below which a request that stops is decoded from its start when it continues: cheaper than state.
const RESUME_ARGS_MIN: usize = 16;
/// Most bytes of one request in the buffer, beside its large bulks: offsets that a [`Span`] distinguishes from a blob.
const REQUEST_BYTES_MAX: usize = Span::IN_BLOB as usize - 1;
/// Largest number of spans for which room is reserved by a header's claim.
const ARGS_RESERVED_MAX: usize = 1024;

/// Limits on the requests of a session.
#[derive(Clone, Debug)]
pub struct RequestLimits {
    /// Most bytes of an inline request, or of a header's line, while its end is missing: one that has arrived complete
    /// may be longer by less than one read of the server, for any read size of the caller.
    pub inline_bytes_max: usize,
    /// Most bytes in one argument (`proto-max-bulk-len`).
    pub bulk_bytes_max: u64,
    /// Most arguments in one request.
    pub multibulk_max: i64,
    /// Size from which on bulks may become [`Decoded::Big`]; `usize::MAX` keeps all in the buffer.
    pub big_bulk_bytes_min: usize,
    /// True if authentication is required and still missing: then a request has at most 10 arguments of 16 KiB. While
    /// it is true, decode a request only after the one before it was executed: that may have been AUTH.
    pub unauthenticated: bool,
}

impl Default for RequestLimits {
    fn default() -> RequestLimits {
        RequestLimits {
            inline_bytes_max: limits::LINE_BYTES_MAX,
            bulk_bytes_max: limits::BULK_BYTES_MAX,
            multibulk_max: limits::ARGUMENTS_MAX,
            big_bulk_bytes_min: BIG_BULK_BYTES_MIN,
            unauthenticated: false,
        }
    }
}

/// Form of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Line of words.
    Inline,
    /// Header `*<n>` and n bulks.
    Multibulk,
}

/// Result of [`RequestDecoder::decode`] for the start of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A complete request of `consumed` bytes; the spans of its `args` arguments were appended, relative to its first byte.
    Request {
        /// Number of bytes of the buffer that the request took.
        consumed: usize,
        /// Number of spans that were appended.
        args: usize,
        /// Form of the request.
        kind: RequestKind,
    },
    /// An empty request of `consumed` bytes (an empty line, `*0`): it gets no reply.
    Empty {
        /// Number of bytes to remove.
        consumed: usize,
    },
    /// The request is incomplete: keep all bytes, append more and call again.
    Incomplete {
        /// Least number of bytes missing in the buffer; those of a bulk that is received beside it do not count.
        need: usize,
    },
    /// The decoder has copied the `taken` bytes (more than none) from `keep` on into the allocation of a large bulk:
    /// remove exactly those from the buffer, and call again. Once the buffer has no more of the bulk, the result is
    /// [`Decoded::Incomplete`]: then either read into [`RequestDecoder::big_bulk`], which saves a copy, or append to
    /// the buffer as before. The bytes after the bulk, its line end first, belong in the buffer, at `keep`.
    Big {
        /// Number of bytes at the start of the buffer that stay.
        keep: usize,
        /// Number of bytes after those that are removed.
        taken: usize,
    },
}

/// A bulk that is being received into its own allocation.
#[derive(Debug, Default)]
pub struct BigBulk {
    bytes: Vec<u8>,
    len: usize,
}

impl BigBulk {
    fn new(len: usize) -> BigBulk {
        BigBulk {
            bytes: Vec::new(),
            len,
        }
    }

    /// Returns the number of bytes still to come, without the line end after the bulk.
    pub fn missing(&self) -> usize {
        debug_assert!(
            self.bytes.len() <= self.len,
            "more was appended than the bulk has"
        );
        self.len.saturating_sub(self.bytes.len())
    }

    /// Returns the vector to append to: it has spare capacity while bytes are missing, never more than those, so that
    /// it is always safe to fill it. Appending more than [`BigBulk::missing`] bytes is a bug of the caller.
    pub fn reserved(&mut self) -> &mut Vec<u8> {
        if self.bytes.len() == self.bytes.capacity() && self.missing() > 0 {
            let step = self.bytes.len().max(BIG_BULK_FIRST_BYTES_MAX);
            self.bytes.reserve_exact(step.min(self.missing()));
        }
        &mut self.bytes
    }

    fn fill(&mut self, input: &[u8]) -> usize {
        let mut taken = 0;
        while self.missing() > 0 && taken < input.len() {
            let space = self.reserved();
            let n = (space.capacity() - space.len()).min(input.len() - taken);
            space.extend_from_slice(&input[taken..taken + n]);
            taken += n;
        }
        taken
    }
}

/// Progress of the decoding of arguments.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Offset of the next unread byte, relative to the request's first.
    at: usize,
    /// Number of arguments still to come.
    missing: usize,
}

/// Decoded part of a request that came in pieces.
#[derive(Debug, Default)]
struct Partial {
    progress: Progress,
    spans: Vec<Span>,
    blobs: Vec<Blob>,
    /// Bulk that is being received beside the buffer, at `progress.at`.
    big: Option<BigBulk>,
}

impl Partial {
    /// Moves the available bytes into the large bulk; completes it when all have arrived, its line end included.
    /// Returns the result for the caller unless decoding can continue.
    fn fill_big(&mut self, buf: &[u8]) -> Option<Decoded> {
        let big = self.big.as_mut()?;
        let keep = self.progress.at;
        let rest = buf.get(keep..).unwrap_or(&[]);
        let taken = big.fill(rest);
        if taken > 0 {
            return Some(Decoded::Big { keep, taken });
        }
        if big.missing() > 0 || rest.len() < 2 {
            return Some(Decoded::Incomplete {
                need: 2 - rest.len(),
            });
        }
        self.spans.push(Span::blob(self.blobs.len() as u32));
        self.blobs.push(Blob::new(std::mem::take(&mut big.bytes)));
        self.big = None;
        self.progress.at += 2;
        self.progress.missing -= 1;
        None
    }
}

/// Reason why the decoding of arguments stopped.
enum Stop {
    /// The request is complete.
    Done,
    /// At least so many bytes are missing.
    Need(usize),
    /// A large bulk of this length starts at `progress.at` and is incomplete.
    Big(usize),
}

/// Decodes the requests of one connection.
#[derive(Debug, Default)]
pub struct RequestDecoder {
    partial: Option<Box<Partial>>,
    blobs: Vec<Blob>,
}

impl RequestDecoder {
    /// Creates a decoder at the start of a request.
    pub fn new() -> RequestDecoder {
        RequestDecoder::default()
    }

    /// Decodes the request that starts at `buf[0]`. The bytes of an inline request are changed where it has quotes.
    ///
    /// After an error, the connection cannot be used any more.
    #[inline]
    pub fn decode(
        &mut self,
        buf: &mut [u8],
        limits: &RequestLimits,
        spans: &mut Vec<Span>,
    ) -> Result<Decoded, ProtocolError> {
        if self.partial.is_none()
            && let Some((consumed, args)) = decode_small(buf, limits, spans)
        {
            return Ok(Decoded::Request {
                consumed,
                args,
                kind: RequestKind::Multibulk,
            });
        }
        self.decode_any(buf, limits, spans)
    }

    /// Does the same with the heads of earlier requests; afterwards [`Heads::name`] returns the result of the name's
    /// lookup, if a complete request was decoded.
    #[inline]
    pub fn decode_with(
        &mut self,
        heads: &mut Heads,
        buf: &mut [u8],
        limits: &RequestLimits,
        spans: &mut Vec<Span>,
    ) -> Result<Decoded, ProtocolError> {
        if self.partial.is_none() {
            if let Some((args, name)) = heads.find(buf)
                && u64::from(name.len) <= limits.bulk_bytes_max
            {
                let progress = Progress {
                    at: (name.start + name.len) as usize + 2,
                    missing: args - 1,
                };
                let before = spans.len();
                spans.push(name);
                if let Some(consumed) = finish_small(buf, limits, args, progress, before, spans) {
                    return Ok(Decoded::Request {
                        consumed,
                        args,
                        kind: RequestKind::Multibulk,
                    });
                }
            }
            if let Some((consumed, args)) = decode_small(buf, limits, spans) {
                heads.learn(buf, args, spans[spans.len() - args]);
                return Ok(Decoded::Request {
                    consumed,
                    args,
                    kind: RequestKind::Multibulk,
                });
            }
        }
        heads.pass();
        self.decode_any(buf, limits, spans)
    }

    fn decode_any(
        &mut self,
        buf: &mut [u8],
        limits: &RequestLimits,
        spans: &mut Vec<Span>,
    ) -> Result<Decoded, ProtocolError> {
        if self.partial.is_some() {
            return self.resume(buf, limits, spans);
        }
        match buf.first() {
            None => Ok(Decoded::Incomplete { need: 1 }),
            Some(b'*') => self.start(buf, limits, spans),
            Some(_) => decode_inline(buf, limits, spans),
        }
    }

    /// Returns the large bulk that is being received, until it is complete: the next bytes of the connection belong there.
    pub fn big_bulk(&mut self) -> Option<&mut BigBulk> {
        self.partial
            .as_mut()?
            .big
            .as_mut()
            .filter(|big| big.missing() > 0)
    }

    /// Returns the large arguments decoded since [`RequestDecoder::release_blobs`], for [`crate::Args::with_big`].
    pub fn blobs(&self) -> &[Blob] {
        &self.blobs
    }

    /// Releases them: called when the decoded requests were executed.
    pub fn release_blobs(&mut self) {
        self.blobs.clear();
    }

    /// Returns true if the decoder holds nothing beside the query buffer.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.partial.is_none() && self.blobs.is_empty()
    }

    /// Returns, for an incomplete request, the bytes of arguments in the query buffer, and the bytes that have arrived
    /// of a large argument in an allocation of its own.
    pub fn partial_bytes(&self) -> (usize, usize) {
        let partial = self.partial.as_ref();
        let arrived = |partial: &Partial| partial.big.as_ref().map_or(0, |big| big.bytes.len());
        partial.map_or((0, 0), |partial| (partial.progress.at, arrived(partial)))
    }

    /// Returns the bytes held for an incomplete request, beside the query buffer.
    pub fn heap_bytes(&self) -> usize {
        let partial = self.partial.as_ref().map_or(0, |partial| {
            size_of::<Partial>()
                + partial.spans.capacity() * size_of::<Span>()
                + partial
                    .blobs
                    .iter()
                    .map(|blob| blob.capacity())
                    .sum::<usize>()
                + partial.big.as_ref().map_or(0, |big| big.bytes.capacity())
        });
        partial + self.blobs.iter().map(|blob| blob.capacity()).sum::<usize>()
    }

    fn start(
        &mut self,
        buf: &[u8],
        limits: &RequestLimits,
        spans: &mut Vec<Span>,
    ) -> Result<Decoded, ProtocolError> {
        let (count, at) = match header(buf, 0, limits, ProtocolError::TooBigMultibulkCount)? {
            Header::Need(need) => return Ok(Decoded::Incomplete { need }),
            Header::Line { number, end } => {
                (number.ok_or(ProtocolError::InvalidMultibulkLength)?, end)
            }
        };
        if count > limits.multibulk_max {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if limits.unauthenticated && count > UNAUTHENTICATED_ARGUMENTS_MAX {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        let Ok(missing @ 1..) = usize::try_from(count) else {
            return Ok(Decoded::Empty { consumed: at });
        };
        let before = spans.len();
        spans.reserve(missing.min(ARGS_RESERVED_MAX));
        let mut progress = Progress { at, missing };
        match decode_args(buf, limits, &mut progress, spans)? {
            Stop::Done => {
                let args = spans.len() - before;
                Ok(Decoded::Request {
                    consumed: progress.at,
                    args,
                    kind: RequestKind::Multibulk,
                })
            }
            Stop::Need(need) => {
                if spans.len() - before >= RESUME_ARGS_MIN {
                    let spans = spans.split_off(before);
                    self.partial = Some(Box::new(Partial {
                        progress,
                        spans,
                        ..Partial::default()
                    }));
                }
                spans.truncate(before);
                Ok(Decoded::Incomplete { need })
            }
            Stop::Big(len) => {
                self.partial = Some(Box::new(Partial {
                    progress,
                    spans: spans.split_off(before),
                    big: Some(BigBulk::new(len)),
                    ..Partial::default()
                }));
                self.resume(buf, limits, spans)
            }
        }
    }

    fn resume(
        &mut self,
        buf: &[u8],
        limits: &RequestLimits,
        spans: &mut Vec<Span>,
    ) -> Result<Decoded, ProtocolError> {
        let Some(partial) = self.partial.as_deref_mut() else {
            unreachable!("only called with a partial request")
        };
        loop {
            if let Some(decoded) = partial.fill_big(buf) {
                return Ok(decoded);
            }
            match decode_args(buf, limits, &mut partial.progress, &mut partial.spans)? {
                Stop::Done => break,
                Stop::Need(need) => return Ok(Decoded::Incomplete { need }),
                Stop::Big(len) => partial.big = Some(BigBulk::new(len)),
            }
        }
        let (consumed, args) = (partial.progress.at, partial.spans.len());
        self.finish(spans);
        Ok(Decoded::Request {
            consumed,
            args,
            kind: RequestKind::Multibulk,
        })
    }

    /// Appends the results of a request that came in pieces.
    fn finish(&mut self, spans: &mut Vec<Span>) {
        let Some(mut partial) = self.partial.take() else {
            return;
        };
        let base = self.blobs.len() as u32;
        if base > 0 {
            for span in partial
                .spans
                .iter_mut()
                .filter(|span| span.start == Span::IN_BLOB)
            {
                span.len += base;
            }
        }
        spans.append(&mut partial.spans);
        self.blobs.append(&mut partial.blobs);
    }
}

/// Decodes a complete request of up to nine small arguments: the form of nearly all requests.
#[inline]
fn decode_small(
    buf: &[u8],
    limits: &RequestLimits,
    spans: &mut Vec<Span>,
) -> Option<(usize, usize)> {
    let args = match *buf.first_chunk()? {
        [b'*', digit @ b'1'..=b'9', b'\r', b'\n'] => usize::from(digit - b'0'),
        _ => return None,
    };
    let progress = Progress {
        at: 4,
        missing: args,
    };
    let consumed = finish_small(buf, limits, args, progress, spans.len(), spans)?;
    Some((consumed, args))
}

/// Decodes the rest of such a request of `args` arguments; returns the size of the whole. `None`: it is incomplete, or
/// not that simple; the number of spans is then `before` again.
#[inline]
fn finish_small(
    buf: &[u8],
    limits: &RequestLimits,
    args: usize,
    mut progress: Progress,
    before: usize,
    spans: &mut Vec<Span>,
) -> Option<usize> {
    take_small_args(buf, limits, &mut progress, spans);
    if progress.missing > 0 || args as i64 > limits.multibulk_max {
        spans.truncate(before);
        return None;
    }
    Some(progress.at)
}

/// Decodes arguments while they are small, complete, and have a header in the usual form.
///
/// Arguments within the limits of an unauthenticated session need no further check, and the number is read by patterns:
/// one digit costs two loads and an addition before the offset of the next header is known, and these offsets depend on
/// each other, so that their latency is the cost of a request.
#[inline(always)]
fn take_small_args(
    buf: &[u8],
    limits: &RequestLimits,
    progress: &mut Progress,
    spans: &mut Vec<Span>,
) {
    let len_max = limits
        .bulk_bytes_max
        .min(UNAUTHENTICATED_BULK_BYTES_MAX as u64) as usize;
    let buf = &buf[..buf.len().min(REQUEST_BYTES_MAX)];
    let Progress {
        mut at,
        mut missing,
    } = *progress;
    while missing > 0
        && let Some((b'$', len, body)) = small_number(buf, at)
        && body + len + 2 <= buf.len()
        && len <= len_max
    {
        spans.push(Span {
            start: body as u32,
            len: len as u32,
        });
        at = body + len + 2;
        missing -= 1;
    }
    *progress = Progress { at, missing };
}

/// Decodes arguments from `progress.at` on until the request is complete or the buffer ends.
fn decode_args(
    buf: &[u8],
    limits: &RequestLimits,
    progress: &mut Progress,
    spans: &mut Vec<Span>,
) -> Result<Stop, ProtocolError> {
    loop {
        take_small_args(buf, limits, progress, spans);
        if progress.missing == 0 {
            return Ok(Stop::Done);
        }
        match decode_arg(buf, limits, progress.at)? {
            Arg::Need(need) => return Ok(Stop::Need(need)),
            Arg::Big { body, len } => {
                progress.at = body;
                return Ok(Stop::Big(len));
            }
            Arg::Whole { body, len } => {
                spans.push(Span {
                    start: body as u32,
                    len: len as u32,
                });
                progress.at = body + len + 2;
                progress.missing -= 1;
            }
        }
    }
}

/// Argument in the buffer.
enum Arg {
    /// At least so many bytes of it are missing.
    Need(usize),
    /// The argument is large and incomplete.
    Big { body: usize, len: usize },
    /// The argument and its line end have arrived.
    Whole { body: usize, len: usize },
}

/// Decodes the argument at `start`, with any form of header. As in Redis, its line end is not checked.
#[cold]
fn decode_arg(buf: &[u8], limits: &RequestLimits, start: usize) -> Result<Arg, ProtocolError> {
    let (len, body) = match bulk_header(buf, start, limits)? {
        BulkHeader::Need(need) => return Ok(Arg::Need(need)),
        BulkHeader::Line { len, end } => (len, end),
    };
    let len = usize::try_from(len).map_err(|_| ProtocolError::InvalidBulkLength)?;
    let available = buf.len() - body;
    if available < len && len >= limits.big_bulk_bytes_min {
        return Ok(Arg::Big { body, len });
    }
    match body.checked_add(len).and_then(|end| end.checked_add(2)) {
        Some(end) if end > REQUEST_BYTES_MAX => Err(ProtocolError::TooBigRequest),
        None => Err(ProtocolError::TooBigRequest),
        Some(end) if end > buf.len() => Ok(Arg::Need(end - buf.len())),
        Some(_) => Ok(Arg::Whole { body, len }),
    }
}

/// Header of an argument.
enum BulkHeader {
    /// The header is incomplete.
    Need(usize),
    /// Length of the argument, and the offset of its first byte.
    Line { len: u64, end: usize },
}

fn bulk_header(
    buf: &[u8],
    start: usize,
    limits: &RequestLimits,
) -> Result<BulkHeader, ProtocolError> {
    let (number, end) = match header(buf, start, limits, ProtocolError::TooBigBulkCount)? {
        Header::Need(need) => return Ok(BulkHeader::Need(need)),
        Header::Line { number, end } => (number, end),
    };
    if buf[start] != b'$' {
        return Err(ProtocolError::ExpectedDollar(buf[start]));
    }
    let len = match number {
        Some(len @ 0..) if len as u64 <= limits.bulk_bytes_max => len,
        _ => return Err(ProtocolError::InvalidBulkLength),
    };
    if limits.unauthenticated && len > UNAUTHENTICATED_BULK_BYTES_MAX {
        return Err(ProtocolError::UnauthenticatedBulkLength);
    }
    Ok(BulkHeader::Line {
        len: len as u64,
        end,
    })
}

/// Reads the header of the argument at the start of `buf`, for a caller that takes a request piece by piece: returns
/// the argument's length and its offset, `None` while the line is incomplete.
pub fn decode_bulk_header(
    buf: &[u8],
    limits: &RequestLimits,
) -> Result<Option<(u64, usize)>, ProtocolError> {
    Ok(match bulk_header(buf, 0, limits)? {
        BulkHeader::Need(_) => None,
        BulkHeader::Line { len, end } => Some((len, end)),
    })
}

/// Line of a header, `*<n>` or `$<n>`.
enum Header {
    /// The header is incomplete.
    Need(usize),
    /// Its number, if that is valid, and the start of the next line.
    Line { number: Option<i64>, end: usize },
}

/// Reads the header at `start`. As in Redis, a line ends with a carriage return and any byte, and a NUL hides the end.
fn header(
    buf: &[u8],
    start: usize,
    limits: &RequestLimits,
    too_big: ProtocolError,
) -> Result<Header, ProtocolError> {
    let rest = &buf[start..];
    match find_line_end(rest, b'\r', limits) {
        LineEnd::At(len) if len + 1 < rest.len() => Ok(Header::Line {
            number: rest.get(1..len).and_then(parse_integer),
            end: start + len + 2,
        }),
        LineEnd::At(_) => Ok(Header::Need(1)),
        LineEnd::TooFar => Err(too_big),
        LineEnd::Missing => Ok(Header::Need(if rest.is_empty() { 4 } else { 1 })),
    }
}

fn decode_inline(
    buf: &mut [u8],
    limits: &RequestLimits,
    spans: &mut Vec<Span>,
) -> Result<Decoded, ProtocolError> {
    let end = match find_line_end(buf, b'\n', limits) {
        LineEnd::At(end) => end,
        LineEnd::TooFar => return Err(ProtocolError::TooBigInline),
        LineEnd::Missing => return Ok(Decoded::Incomplete { need: 1 }),
    };
    let line = &mut buf[..end];
    let line = match line {
        [line @ .., b'\r'] => line,
        line => line,
    };
    match inline::split(line, spans) {
        Ok(0) => Ok(Decoded::Empty { consumed: end + 1 }),
        Ok(args) => Ok(Decoded::Request {
            consumed: end + 1,
            args,
            kind: RequestKind::Inline,
        }),
        Err(inline::UnbalancedQuotes) => Err(ProtocolError::UnbalancedQuotes),
    }
}

/// End of a line.
enum LineEnd {
    At(usize),
    /// Not found in the bytes so far, which may still become a line.
    Missing,
    /// Beyond the limit of a line.
    TooFar,
}

/// Finds the first `needle`, unless a NUL comes first. Redis checks a line after each read, and refuses it once it is too
/// long without an end: so a line that ends in that very read is accepted. A caller with larger reads must not accept more.
fn find_line_end(buf: &[u8], needle: u8, limits: &RequestLimits) -> LineEnd {
    let line_bytes_max = limits.inline_bytes_max;
    let whole_bytes_max = line_bytes_max.saturating_add(READ_BYTES_MAX);
    let window = &buf[..buf.len().min(whole_bytes_max).min(REQUEST_BYTES_MAX)];
    match memchr2(needle, 0, window) {
        Some(at) if window[at] == needle => LineEnd::At(at),
        _ if buf.len() > line_bytes_max => LineEnd::TooFar,
        _ => LineEnd::Missing,
    }
}

/// Appends a request as a multibulk: the form for servers, replicas and append-only files.
pub fn encode_request<I>(args: I, out: &mut Vec<u8>)
where
    I: IntoIterator<IntoIter: ExactSizeIterator, Item: AsRef<[u8]>>,
{
    let args = args.into_iter();
    push_header(out, b'*', args.len() as i64);
    for arg in args {
        push_bulk(out, arg.as_ref());
    }
}

#[cfg(test)]
mod tests;
