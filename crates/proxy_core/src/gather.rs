//! Replies that are gathered of several servers: the parts that have arrived, and their number. Must not know connections.

use redline_resp::Proto;

use crate::class::{Merge, NO_COMMAND};
use crate::client::ReplyMode;
use crate::slab::Ref;

/// A reply that is gathered of several servers.
#[derive(Debug)]
pub struct Gather {
    /// The client that sent the request.
    pub client: Ref,
    /// The request's number.
    pub seq: u32,
    /// The protocol of the reply.
    pub proto: Proto,
    /// The client's mode of replies when it sent the request.
    pub reply_mode: ReplyMode,
    /// The way in which the parts are merged.
    pub merge: Merge,
    /// Number of parts that have not arrived.
    pub missing: u32,
    /// The parts, in order of arrival.
    pub bytes: Vec<u8>,
    /// Position of each part in `bytes`.
    pub parts: Vec<(usize, usize)>,
    /// For each place in the reply, the part that has it.
    pub order: Vec<u32>,
    /// The command's number.
    pub command: u16,
    /// Time at which it arrived: microseconds of the worker's clock.
    pub since_us: u32,
    /// Of SCAN: the shard that was asked, and the number of shards.
    pub scanned: (u32, u32),
}

impl Gather {
    /// Returns an empty one, for a request of this client.
    pub fn new(client: Ref) -> Gather {
        Gather {
            client,
            seq: 0,
            proto: Proto::Resp2,
            reply_mode: ReplyMode::On,
            merge: Merge::First,
            missing: 0,
            bytes: Vec::new(),
            parts: Vec::new(),
            order: Vec::new(),
            command: NO_COMMAND,
            since_us: 0,
            scanned: (0, 0),
        }
    }
}

/// Largest span of groups that are sorted by counting.
const GROUPS_NEAR: usize = 64;

/// Sorts the numbers of keys, of which `groups` has the group of each, by group and then by number. The shards of a pool
/// have neighbouring numbers; slots have not.
pub fn sort_by_group(groups: &[u32], sorted: &mut Vec<u32>) {
    let least = groups.iter().copied().min().unwrap_or(0);
    let most = groups.iter().copied().max().unwrap_or(0);
    sorted.clear();
    if (most - least) as usize >= GROUPS_NEAR {
        sorted.extend(0..groups.len() as u32);
        return sorted.sort_by_key(|&number| groups[number as usize]);
    }
    sorted.resize(groups.len(), 0);
    // The remainder is the value itself, and tells the compiler its bound.
    let near = |group: u32| (group - least) as usize % GROUPS_NEAR;
    let mut next = [0; GROUPS_NEAR];
    for &group in groups {
        next[near(group)] += 1;
    }
    let mut begin = 0;
    for count in &mut next[..=near(most)] {
        begin += std::mem::replace(count, begin);
    }
    for (number, &group) in groups.iter().enumerate() {
        let at = &mut next[near(group)];
        sorted[*at] = number as u32;
        *at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_by_group_whether_these_are_near_or_far() {
        let mut sorted = Vec::new();
        for far in [1, 3, 7, 64, 16_384] {
            let mut groups: Vec<u32> = (0..500).map(|_| 7 << 16 | fastrand::u32(..far)).collect();
            groups[0] = 7 << 16;
            for len in [1, 2, 500] {
                let mut expected: Vec<u32> = (0..len as u32).collect();
                expected.sort_by_key(|&number| (groups[number as usize], number));
                sort_by_group(&groups[..len], &mut sorted);
                assert_eq!(sorted, expected, "{far}, {len}");
            }
        }
    }
}
