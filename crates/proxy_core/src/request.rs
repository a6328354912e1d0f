//! Requests in forwarded bytes: where each ends, its name, whether it writes. They were decoded once, so they are
//! well-formed. Pure.

use std::ops::Range;

use redline_resp::{Args, Decoded, RequestDecoder, RequestLimits, Span};
use redline_spec::{self as spec, Flags};

/// Returns the decoder limits for requests that were accepted already.
pub fn forwarded() -> RequestLimits {
    RequestLimits {
        bulk_bytes_max: i64::MAX as u64,
        big_bulk_bytes_min: usize::MAX,
        ..RequestLimits::default()
    }
}

/// Returns the name of the command in the request at the front of a run; empty: it has none.
pub fn request_name(run: &[u8]) -> &[u8] {
    let name = || {
        let (_, at) = header(run)?;
        let (bytes, end) = header(run.get(at..)?)?;
        run.get(at + end..)?.get(..bytes)
    };
    name().unwrap_or_default()
}

/// Returns the length of the request at the front of a run. It was decoded once, so it is well-formed.
pub fn request_len(run: &[u8]) -> Option<usize> {
    let (arguments, mut at) = header(run)?;
    for _ in 0..arguments {
        let (bytes, end) = header(run.get(at..)?)?;
        at = at.checked_add(end)?.checked_add(bytes)?.checked_add(2)?;
    }
    (at <= run.len()).then_some(at)
}

/// Returns the number in the line at the front, behind its type, and the start of the next line. Clients may send any
/// byte behind a carriage return, as to Redis.
fn header(bytes: &[u8]) -> Option<(usize, usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    let digits = bytes[..end].get(1..)?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((number, end + 2))
}

/// The requests in forwarded bytes: where each is, and whether it writes.
pub struct Requests {
    bytes: Vec<u8>,
    at: usize,
    spans: Vec<Span>,
    limits: RequestLimits,
}

impl Requests {
    /// Returns the requests of bytes that hold whole ones.
    pub fn of(bytes: &[u8]) -> Requests {
        Requests {
            bytes: bytes.to_vec(),
            at: 0,
            spans: Vec::new(),
            limits: forwarded(),
        }
    }
}

impl Iterator for Requests {
    type Item = (Range<usize>, bool);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get_mut(self.at..)?;
        if rest.is_empty() {
            return None;
        }
        self.spans.clear();
        let decoded = RequestDecoder::new().decode(rest, &self.limits, &mut self.spans);
        let Ok(Decoded::Request { consumed, .. }) = decoded else {
            return None;
        };
        let args = Args::new(rest, &self.spans);
        let writes = match spec::resolve(&args[0], args.get(1)) {
            Ok(id) => !spec::gate(id).flags.has(Flags::READONLY),
            Err(_) => true,
        };
        let range = self.at..self.at + consumed;
        self.at += consumed;
        Some((range, writes))
    }
}

#[cfg(test)]
mod tests {
    use redline_resp::encode_request;

    use super::*;

    #[test]
    fn a_request_is_found_whatever_follows_its_carriage_returns() {
        let request = b"*2\rx$3\r\rGET\r$$1\r*b\r\r";
        assert_eq!(request_len(&request.repeat(2)), Some(request.len()));
        assert_eq!(request_name(request), b"GET");
        for end in 0..request.len() {
            assert_eq!(request_len(&request[..end]), None, "{end}");
            request_name(&request[..end]);
        }
    }

    #[test]
    fn forwarded_requests_are_found_again() {
        let mut bytes = Vec::new();
        for words in [&["GET", "k"][..], &["SET", "k", "v"], &["XREADX"]] {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            encode_request(&words, &mut bytes);
        }
        let found: Vec<_> = Requests::of(&bytes).collect();
        assert_eq!(found.len(), 3);
        assert_eq!(found[2].0.end, bytes.len());
        assert_eq!(
            found.iter().map(|one| one.1).collect::<Vec<_>>(),
            [false, true, true]
        );
    }
}
