//! Parsing of rendered requests, to find their nodes. Opens no socket.

use redline_cluster::slot_of;
use redline_spec::{Flags, reachable_keys, resolve, row};

/// A request's bytes, the slot of its first key, and whether it only reads.
pub type Parted = (Vec<u8>, Option<u16>, bool);

/// Parses rendered requests. They were made here, so they are complete.
pub fn requests_of(bytes: &[u8]) -> Vec<Parted> {
    let (mut requests, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let start = at;
        let count = number_at(bytes, &mut at);
        let mut words = Vec::with_capacity(count);
        for _ in 0..count {
            let length = number_at(bytes, &mut at);
            words.push(&bytes[at..at + length]);
            at += length + 2;
        }
        let id = resolve(words[0], words.get(1).copied()).ok();
        let key = id.and_then(|id| reachable_keys(id, words.len(), |at| words[at]).next());
        let slot = key.map(|key| slot_of(words[key.position]));
        let reads = id.is_some_and(|id| row(id).flags.has(Flags::READONLY));
        requests.push((bytes[start..at].to_vec(), slot, reads));
    }
    requests
}

/// Returns the number of a header, and advances `at` to the end of its line.
fn number_at(bytes: &[u8], at: &mut usize) -> usize {
    let mut number = 0;
    *at += 1;
    while bytes[*at].is_ascii_digit() {
        number = number * 10 + usize::from(bytes[*at] - b'0');
        *at += 1;
    }
    *at += 2;
    number
}

/// Returns the number that is a request's last word.
pub fn number_of(request: &[u8]) -> Option<u64> {
    let line = request.strip_suffix(b"\r\n")?;
    let start = line.iter().rposition(|&byte| byte == b'\n')? + 1;
    std::str::from_utf8(&line[start..]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use redline_resp::encode_request;

    use super::*;

    #[test]
    fn rendered_requests_are_taken_apart() {
        let mut bytes = Vec::new();
        encode_request(&["SET", "foo", "a\r\n*1"], &mut bytes);
        encode_request(&["GET", "{foo}x"], &mut bytes);
        encode_request(&["PING"], &mut bytes);
        encode_request(&["SET", "k", "17"], &mut bytes);
        let requests = requests_of(&bytes);
        let facts: Vec<_> = requests
            .iter()
            .map(|(_, slot, reads)| (*slot, *reads))
            .collect();
        assert_eq!(facts[..2], [(Some(12182), false), (Some(12182), true)]);
        assert_eq!(facts[2].0, None);
        assert_eq!(number_of(&requests[3].0), Some(17));
        assert_eq!(number_of(&requests[1].0), None);
        let all: Vec<u8> = requests.into_iter().flat_map(|(bytes, ..)| bytes).collect();
        assert_eq!(all, bytes);
    }
}
