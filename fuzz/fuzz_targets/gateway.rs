//! Answers of etcd's gateway: any bytes are refused, or read as keys of the prefix in order, within their limits.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_etcd::{Event, KEY_BYTES_MAX, Pair, VALUE_BYTES_MAX, read_anything};

fn check(pair: &Pair) {
    assert!(pair.key.len() <= KEY_BYTES_MAX && pair.value.len() <= VALUE_BYTES_MAX);
    assert!(0 < pair.create_revision && pair.create_revision <= pair.mod_revision);
}

fuzz_target!(|data: &[u8]| {
    let read = read_anything(data);
    if let Some(listing) = read.listing {
        assert!(listing.revision > 0);
        listing.pairs.iter().for_each(check);
        assert!(listing.pairs.is_sorted_by(|one, other| one.key < other.key));
        #[cfg(feature = "planted")]
        assert!(
            listing.pairs.iter().all(|pair| pair.lease.is_none()),
            "the planted fault"
        );
    }
    if let Some(events) = read.events {
        for event in &events.events {
            match event {
                Event::Put(pair) => check(pair),
                Event::Delete(key, _) => assert!(key.len() <= KEY_BYTES_MAX),
            }
        }
    }
});
