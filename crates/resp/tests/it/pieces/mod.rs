//! Feeds the decoders as a connection does, in pieces: shared by the tests and the fuzz targets.

use redline_resp::{
    Args, Decoded, Heads, ProtocolError, ReplyDecoder, ReplyError, RequestDecoder, RequestKind,
    RequestLimits, Skipper, Span, Value,
};

/// Result of decoding the requests of a connection.
#[derive(Debug, PartialEq)]
pub struct Requests {
    pub requests: Vec<(RequestKind, Vec<Vec<u8>>)>,
    pub error: Option<ProtocolError>,
}

impl Requests {
    /// Returns true if `pieces` can be the result for the same bytes in several pieces: the same, but that a line
    /// beyond the limit is refused while its end is missing, which is so only in pieces.
    pub fn in_pieces_may_be(&self, pieces: &Requests) -> bool {
        let is_cut_short = matches!(
            pieces.error,
            Some(
                ProtocolError::TooBigInline
                    | ProtocolError::TooBigMultibulkCount
                    | ProtocolError::TooBigBulkCount
            )
        );
        pieces == self || is_cut_short && self.requests.starts_with(&pieces.requests)
    }
}

/// Path on which the bytes of a large bulk reach the decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BigRoute {
    /// Appended to the query buffer like all others.
    Buffer,
    /// Read into the bulk itself.
    Direct,
}

/// Decodes requests as a session does: all complete ones after each piece, then their arguments; with the heads of
/// earlier ones.
pub fn decode_requests<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limits: &RequestLimits,
    route: BigRoute,
) -> Requests {
    decode_pieces(pieces, limits, route, Some(&mut Heads::new()))
}

/// Decodes the same from one piece, each request by itself.
pub fn decode_plainly(input: &[u8], limits: &RequestLimits) -> Requests {
    decode_pieces([input], limits, BigRoute::Buffer, None)
}

fn decode_pieces<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limits: &RequestLimits,
    route: BigRoute,
    mut heads: Option<&mut Heads>,
) -> Requests {
    let mut decoder = RequestDecoder::new();
    let mut decoded = Requests {
        requests: Vec::new(),
        error: None,
    };
    let mut buf = Vec::new();
    for piece in pieces {
        let mut rest = piece;
        while route == BigRoute::Direct && !rest.is_empty() {
            let Some(bulk) = decoder.big_bulk() else {
                break;
            };
            let space = bulk.reserved();
            let n = (space.capacity() - space.len()).min(rest.len());
            assert!(n > 0, "a bulk that misses bytes has room for some");
            space.extend_from_slice(&rest[..n]);
            rest = &rest[n..];
        }
        buf.extend_from_slice(rest);
        decoded.error = decode_batch(
            &mut decoder,
            heads.as_deref_mut(),
            &mut buf,
            limits,
            &mut decoded.requests,
        );
        if decoded.error.is_some() {
            break;
        }
    }
    decoded
}

/// Decodes every complete request in `buf` before it reads the arguments of the first, as a worker does.
fn decode_batch(
    decoder: &mut RequestDecoder,
    mut heads: Option<&mut Heads>,
    buf: &mut Vec<u8>,
    limits: &RequestLimits,
    requests: &mut Vec<(RequestKind, Vec<Vec<u8>>)>,
) -> Option<ProtocolError> {
    let (mut at, mut batch, mut spans) = (0, Vec::new(), Vec::<Span>::new());
    let error = loop {
        let before = spans.len();
        let left = buf.len() - at;
        let result = match heads.as_deref_mut() {
            Some(heads) => decoder.decode_with(heads, &mut buf[at..], limits, &mut spans),
            None => decoder.decode(&mut buf[at..], limits, &mut spans),
        };
        match result {
            Ok(Decoded::Request {
                consumed,
                args,
                kind,
            }) => {
                assert!(args > 0 && spans.len() == before + args && (1..=left).contains(&consumed));
                batch.push((kind, at, before..spans.len()));
                at += consumed;
            }
            Ok(Decoded::Empty { consumed }) => {
                assert!(spans.len() == before && (1..=left).contains(&consumed));
                at += consumed;
            }
            Ok(Decoded::Big { keep, taken }) => {
                assert!(spans.len() == before && taken > 0 && keep + taken <= left);
                buf.drain(at + keep..at + keep + taken);
            }
            Ok(Decoded::Incomplete { need }) => {
                assert!(spans.len() == before && need > 0);
                break None;
            }
            Err(error) => break Some(error),
        }
    };
    for (kind, start, range) in batch {
        let args = Args::with_big(&buf[start..], &spans[range], decoder.blobs());
        requests.push((kind, args.iter().map(<[u8]>::to_vec).collect()));
    }
    decoder.release_blobs();
    buf.drain(..at);
    error
}

/// Result of decoding the replies of a connection.
#[derive(Debug, PartialEq)]
pub struct Replies {
    pub values: Vec<Value>,
    pub error: Option<ReplyError>,
}

/// Decodes replies into values.
pub fn decode_replies<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, depth_max: usize) -> Replies {
    let (mut decoder, mut buf) = (ReplyDecoder::with_depth_max(depth_max), Vec::new());
    let mut replies = Replies {
        values: Vec::new(),
        error: None,
    };
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            match decoder.decode(&buf) {
                Ok(decoded) => {
                    buf.drain(..decoded.consumed);
                    match decoded.value {
                        Some(value) => replies.values.push(value),
                        None => break,
                    }
                }
                Err(error) => {
                    return Replies {
                        error: Some(error),
                        ..replies
                    };
                }
            }
        }
    }
    replies
}

/// Result of skipping the replies of a connection.
#[derive(Debug, PartialEq)]
pub struct Skips {
    pub replies: u64,
    pub errors: u64,
    pub first_error: Option<Vec<u8>>,
    pub error: Option<ReplyError>,
}

/// Skips replies. On a broken reply the counts are left at zero, since they depend on the ends of the pieces.
pub fn skip_replies<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Skips {
    let (mut skipper, mut buf) = (Skipper::new(), Vec::new());
    let (mut replies, mut errors) = (0, 0);
    for piece in pieces {
        buf.extend_from_slice(piece);
        match skipper.skip(&buf) {
            Ok(skipped) => {
                buf.drain(..skipped.consumed);
                replies += skipped.replies;
                errors += skipped.errors;
            }
            Err(error) => {
                return Skips {
                    replies: 0,
                    errors: 0,
                    first_error: None,
                    error: Some(error),
                };
            }
        }
    }
    Skips {
        replies,
        errors,
        first_error: skipper.first_error().map(<[u8]>::to_vec),
        error: None,
    }
}

/// Cuts `input` at the given offsets, which need not be in order nor inside.
pub fn cut<'a>(input: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts
        .iter()
        .map(|&cut| cut.min(input.len()))
        .chain([0, input.len()])
        .collect();
    ends.sort_unstable();
    ends.dedup();
    ends.windows(2)
        .map(|ends| &input[ends[0]..ends[1]])
        .collect()
}
