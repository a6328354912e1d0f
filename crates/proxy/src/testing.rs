//! Support for unit tests.

use std::sync::atomic::{AtomicU16, AtomicU32};
use std::sync::{Arc, Mutex};

use redline_net::{PeerAddr, Stream};
use redline_resp::{Args, Decoded, RequestDecoder, encode_request};

use crate::client::Client;
use crate::local_commands::Card;
use crate::request::forwarded;

/// Calls a function with these words as the arguments of a request.
pub(crate) fn with_args(words: &[&str], then: impl FnOnce(Args<'_>)) {
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    encode_request(words.iter().map(|word| word.as_bytes()), &mut bytes);
    let decoded = RequestDecoder::new().decode(&mut bytes, &forwarded(), &mut spans);
    assert!(matches!(decoded, Ok(Decoded::Request { .. })));
    then(Args::new(&bytes, &spans));
}

/// Returns a client that has just come.
pub(crate) fn client() -> Client {
    let (stream, _) = Stream::pair().unwrap();
    let card = Card {
        id: 1,
        addr: PeerAddr::Unix("/".into()),
        laddr: None,
        fd: 0,
        since_s: 0,
        active_s: AtomicU32::new(0),
        last: AtomicU16::new(crate::local_commands::NO_COMMAND),
        subscriptions: Default::default(),
        told: Mutex::default(),
    };
    Client::new(stream, 1, Arc::new(card))
}
