//! Any bytes, cut anywhere, are the same replies or the same error as in one piece, for the decoder and for the
//! skipper; nothing panics; and where the decoder finds replies only, the skipper counts as many.
//!
//! The first eight bytes are cuts; the others are the connection's.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_resp::Value;

#[path = "../../crates/resp/tests/it/pieces/mod.rs"]
#[expect(dead_code, reason = "the other direction's half")]
mod pieces;

use pieces::{cut, decode_replies, skip_replies};

const DEPTH_MAX: usize = 8;

fuzz_target!(|data: &[u8]| {
    let Some((cuts, input)) = data.split_first_chunk::<8>() else {
        return;
    };
    let (whole, skips) = (decode_replies([input], DEPTH_MAX), skip_replies([input]));
    let cuts: Vec<usize> = cuts
        .iter()
        .map(|&at| usize::from(at) * input.len().max(255) / 255)
        .collect();
    let pieces = cut(input, &cuts);
    #[cfg(feature = "planted")]
    assert!(
        !whole
            .values
            .iter()
            .any(|value| matches!(value, Value::Map(pairs) if pairs.len() > 1))
            || pieces.len() < 3,
        "the planted fault"
    );
    assert_eq!(skip_replies(pieces.iter().copied()), skips);
    assert_eq!(decode_replies(pieces, DEPTH_MAX), whole);
    if input.len() <= 256 {
        assert_eq!(decode_replies(input.chunks(1), DEPTH_MAX), whole);
        assert_eq!(skip_replies(input.chunks(1)), skips);
    }

    // The skipper is the less strict one: it looks into no value.
    if whole.error.is_none() {
        assert_eq!(skips.error, None);
        let is_push = |value: &&Value| matches!(value, Value::Push(_));
        let replies = whole.values.len() - whole.values.iter().filter(is_push).count();
        assert_eq!(skips.replies as usize, replies);
        let errors = whole.values.iter().filter(|value| value.is_error());
        assert_eq!(skips.errors as usize, errors.count());
    }
});
