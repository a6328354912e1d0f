//! The wire codec: RESP2, RESP3 and inline requests and replies over byte slices. Knows no sockets and no commands.
//!
//! | direction | server and proxy | load generator, tests |
//! |---|---|---|
//! | requests | [`RequestDecoder`] yields [`Args`], slices of the query buffer | [`encode_request`] |
//! | replies | [`Reply`] writes into a [`ReplyBuffer`] | [`ReplyDecoder`] builds a [`Value`], [`Skipper`] only counts |
//!
//! Every decoder is incremental and independent of where the input was cut: for any pieces, the result is that of the
//! whole. None of them allocates by a header's claim, only by the bytes that arrived.

#![forbid(unsafe_code)]

mod args;
mod double;
mod framer;
mod heads;
mod hello;
mod inline;
pub mod limits;
mod number;
mod protocol_error;
mod reply;
mod reply_buffer;
pub mod reply_decoder;
mod request;
mod skipper;

pub use args::{Args, ArgsBuf, Blob, Span};
pub use double::{format_digits, format_double};
pub use framer::Framer;
pub use heads::{HEADS, Heads, Name};
pub use hello::Hello;
pub use inline::{is_of_http, split_words, split_words_at};
pub use protocol_error::ProtocolError;
pub use reply::{Proto, Reply};
pub use reply_buffer::{Mark, ReplyBuffer, push_header};
pub use reply_decoder::{ReplyDecoder, ReplyError, Value};
pub use request::{
    BIG_BULK_BYTES_MIN, BigBulk, Decoded, RequestDecoder, RequestKind, RequestLimits,
    decode_bulk_header, encode_request,
};
pub use skipper::{Outcome, Skipped, Skipper};
