//! Any bytes, cut anywhere, are the same requests or the same protocol error as in one piece, but for lines that are too
//! long while their end is missing; nothing panics; and what
//! was decoded is decoded again from its encoding.
//!
//! The first eight bytes choose limits, cuts and the way of large bulks; the others are the connection's.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_resp::{RequestLimits, encode_request};

#[path = "../../crates/resp/tests/it/pieces/mod.rs"]
#[expect(dead_code, reason = "the other direction's half")]
mod pieces;

use pieces::{BigRoute, cut, decode_plainly, decode_requests};

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, cuts @ ..], input)) = data.split_first_chunk::<8>() else {
        return;
    };
    let mut limits = RequestLimits {
        unauthenticated: choice & 1 != 0,
        ..RequestLimits::default()
    };
    if choice & 2 != 0 {
        (
            limits.inline_bytes_max,
            limits.bulk_bytes_max,
            limits.big_bulk_bytes_min,
        ) = (32, 200, 20);
    }
    let route = if choice & 4 != 0 {
        BigRoute::Direct
    } else {
        BigRoute::Buffer
    };

    let whole = decode_plainly(input, &limits);
    let cuts: Vec<usize> = cuts
        .iter()
        .map(|&at| usize::from(at) * input.len().max(255) / 255)
        .collect();
    let pieces = cut(input, &cuts);
    #[cfg(feature = "planted")]
    assert!(
        !whole
            .requests
            .iter()
            .any(|(_, args)| args.len() == 3 && args[1].is_empty())
            || !pieces.iter().any(|piece| piece.ends_with(b"\r")),
        "the planted fault"
    );
    assert!(whole.in_pieces_may_be(&decode_requests(pieces, &limits, route)));
    if input.len() <= 256 {
        assert!(whole.in_pieces_may_be(&decode_requests(input.chunks(1), &limits, route)));
    }

    let mut encoded = Vec::new();
    whole
        .requests
        .iter()
        .for_each(|(_, args)| encode_request(args, &mut encoded));
    let again = decode_requests([&encoded[..]], &RequestLimits::default(), route);
    assert_eq!(again.error, None);
    assert!(
        again
            .requests
            .iter()
            .map(|(_, args)| args)
            .eq(whole.requests.iter().map(|(_, args)| args))
    );
});
