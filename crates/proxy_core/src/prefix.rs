//! The pool of a key by its prefix, and the removal of prefixes on the way to servers. Must not know connections or
//! clients.

use std::collections::HashMap;

use redline_resp::{Args, Decoded, RequestDecoder, encode_request};
use redline_spec as spec;

use crate::request::forwarded;

/// All prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    by_prefix: HashMap<Box<[u8]>, Target>,
    /// The lengths of prefixes, the longest first.
    lengths: Vec<usize>,
    strips: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    pool: u16,
    strip: bool,
}

impl Prefixes {
    /// Returns the table of prefixes, each with its pool's number and whether it is removed on the way.
    pub fn new<'a>(prefixes: impl IntoIterator<Item = (&'a str, u16, bool)>) -> Prefixes {
        let mut made = Prefixes::default();
        for (prefix, pool, strip) in prefixes {
            let prefix: Box<[u8]> = prefix.as_bytes().into();
            made.lengths.push(prefix.len());
            made.strips |= strip;
            made.by_prefix.insert(prefix, Target { pool, strip });
        }
        made.lengths.sort_unstable_by(|one, other| other.cmp(one));
        made.lengths.dedup();
        made
    }

    /// Returns true if there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Returns true if some prefix is removed on the way.
    #[inline]
    pub fn strips(&self) -> bool {
        self.strips
    }

    /// Returns the pool of a client's key, and the key without a removed prefix. The longest prefix wins; without one it
    /// is the pool `home`.
    pub fn find<'k>(&self, home: u16, key: &'k [u8]) -> (u16, &'k [u8]) {
        for &length in self.lengths.iter().filter(|&&length| length <= key.len()) {
            if let Some(target) = self.by_prefix.get(&key[..length]) {
                let start = if target.strip { length } else { 0 };
                return (target.pool, &key[start..]);
            }
        }
        (home, key)
    }

    /// Returns the request with prefixes removed; `None`: unchanged. The command's row finds its keys.
    pub fn stripped(&self, request: &[u8]) -> Option<Vec<u8>> {
        let (mut bytes, mut spans) = (request.to_vec(), Vec::new());
        let decoded = RequestDecoder::new().decode(&mut bytes, &forwarded(), &mut spans);
        let Ok(Decoded::Request { .. }) = decoded else {
            return None;
        };
        let args = Args::new(&bytes, &spans);
        let id = spec::resolve(&args[0], args.get(1)).ok()?;
        let mut words: Vec<&[u8]> = args.iter().collect();
        let mut changed = false;
        for key in spec::reachable_keys(id, args.len(), |at| &args[at]) {
            let Some(word) = words.get_mut(key.position) else {
                continue;
            };
            let (_, short) = self.find(0, word);
            changed |= short.len() != word.len();
            *word = short;
        }
        changed.then(|| {
            let mut request = Vec::with_capacity(bytes.len());
            encode_request(words, &mut request);
            request
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes() -> Prefixes {
        Prefixes::new([("a:", 1, false), ("a:b:", 2, true), ("c", 3, true)])
    }

    #[test]
    fn the_longest_prefix_wins() {
        let prefixes = prefixes();
        for (key, pool, short) in [
            ("a:x", 1, "a:x"),
            ("a:b:x", 2, "x"),
            ("a:b:", 2, ""),
            ("a:b", 1, "a:b"),
            ("cd", 3, "d"),
            ("x", 0, "x"),
            ("", 0, ""),
        ] {
            let found = prefixes.find(0, key.as_bytes());
            assert_eq!(found, (pool, short.as_bytes()), "{key}");
        }
        assert!(Prefixes::default().is_empty() && !Prefixes::default().strips());
    }

    #[test]
    fn keys_lose_their_prefixes_and_nothing_else_does() {
        let prefixes = prefixes();
        let request = |words: &[&str]| {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            let mut bytes = Vec::new();
            encode_request(words, &mut bytes);
            bytes
        };
        let stripped = |words: &[&str]| prefixes.stripped(&request(words));
        assert_eq!(
            stripped(&["SET", "a:b:k", "a:b:v"]),
            Some(request(&["SET", "k", "a:b:v"]))
        );
        assert_eq!(
            stripped(&["MSET", "ck", "cv", "k", "cv"]),
            Some(request(&["MSET", "k", "cv", "k", "cv"]))
        );
        assert_eq!(stripped(&["GET", "a:k"]), None);
        assert_eq!(stripped(&["ECHO", "a:b:k"]), None);
        assert_eq!(stripped(&["NONSENSE", "a:b:k"]), None);
    }
}
