//! The number of nodes that Redis's radix tree of ids would have: clients see it in XINFO STREAM. Must not know what is
//! stored under the ids.
//!
//! A key is an id as 16 bytes, the most significant first. In that tree each key ends in a node of its own,
//! each place where keys part is a node, and so is each run of bytes between two such nodes. An empty tree
//! has one node.

use super::StreamId;

const KEY_BYTES: usize = 16;

/// Returns the number for these ids, which must ascend.
pub(super) fn node_count(ids: impl Iterator<Item = StreamId>) -> usize {
    let keys = ids.map(|id| u128::from(id.ms) << 64 | u128::from(id.seq));
    let mut nodes = 0;
    // The positions at which the way to the last key parts from other ways.
    let mut partings: Vec<usize> = Vec::new();
    let mut last = None;
    for key in keys {
        if let Some(last) = last.replace(key) {
            let at = ((last ^ key).leading_zeros() / 8) as usize;
            nodes += leaf(partings.last().map_or(0, |deepest| deepest + 1).max(at + 1));
            while let Some(deeper) = partings.pop_if(|parting| *parting > at) {
                let above = partings.last().map_or(at, |parting| at.max(*parting));
                nodes += run(above + 1, deeper);
            }
            if partings.last() != Some(&at) {
                partings.push(at);
                nodes += 1;
            }
        }
    }
    if last.is_none() {
        return 1;
    }
    nodes += leaf(partings.last().map_or(0, |deepest| deepest + 1));
    while let Some(parting) = partings.pop() {
        nodes += run(partings.last().map_or(0, |above| above + 1), parting);
    }
    nodes
}

/// Returns the number of nodes of a way from here to the end of a key.
fn leaf(from: usize) -> usize {
    run(from, KEY_BYTES) + 1
}

/// Returns the number of nodes for the bytes between two positions: none if there are no bytes.
fn run(from: usize, to: usize) -> usize {
    usize::from(from < to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Counts the same in a tree that is walked byte by byte.
    fn walked(keys: &[[u8; KEY_BYTES]], depth: usize) -> usize {
        let mut end = depth;
        while end < KEY_BYTES && keys.iter().all(|key| key[end] == keys[0][end]) {
            end += 1;
        }
        let own = usize::from(end > depth) + 1;
        if end == KEY_BYTES {
            return own;
        }
        let below = keys.chunk_by(|a, b| a[end] == b[end]);
        own + below.map(|keys| walked(keys, end + 1)).sum::<usize>()
    }

    #[test]
    fn random_ids_agree_with_a_tree_that_is_walked() {
        assert_eq!(node_count([].into_iter()), 1);
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..2000 {
            let spread = [3, 300, 70_000, u64::MAX][round % 4];
            let ids: BTreeSet<StreamId> = (0..1 + random.usize(..40))
                .map(|_| StreamId::new(random.u64(..spread), random.u64(..4) * random.u64(..300)))
                .collect();
            let keys: Vec<[u8; KEY_BYTES]> = ids
                .iter()
                .map(|id| (u128::from(id.ms) << 64 | u128::from(id.seq)).to_be_bytes())
                .collect();
            assert_eq!(node_count(ids.into_iter()), walked(&keys, 0));
        }
    }
}
