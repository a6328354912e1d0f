//! The masters of a cluster for redis-benchmark's `--cluster`, and the keys that belong to each.
//!
//! Opens no socket. redis-benchmark does not follow keys: each connection is to one master, and `{tag}` in a key becomes
//! a hash tag whose slot that master owns, the first of its slots, so that a test works on one list, set, hash of each
//! master. If that slot moves, the master's next one is used.

use std::sync::Arc;
use std::time::Duration;

use redline_cluster::{Redirect, SLOTS, slot_of};
use redline_net::Address;

use crate::load::failure::Failure;
use crate::redis_benchmark::batch::{Batch, TooLarge};
use crate::redis_benchmark::closed::Batches;

/// Placeholder for a tag in a request.
const PLACEHOLDER: &[u8; 5] = b"{tag}";
/// Characters of a tag; three of these reach every slot.
const TAG_BYTES: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Pause while a cluster is down: it mostly recovers by itself.
const DOWN_PAUSE: Duration = Duration::from_secs(1);

/// A node that owns slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    /// Its id in the nodes' replies.
    pub id: String,
    /// Its address.
    pub address: Address,
    /// Slots that the node owns, in order; at least one.
    pub slots: Vec<u16>,
}

/// Returns the masters that CLUSTER NODES lists, in its order, and a warning for each without slots. `asked` is the
/// address of the replying node, since a node that no other has met does not know its own host. Invalid lines are
/// skipped.
pub fn masters(text: &str, asked: &Address) -> (Vec<Master>, Vec<String>) {
    let (mut masters, mut warnings) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, place, flags, _, _, _, _, _, ranges @ ..] = words.as_slice() else {
            continue;
        };
        if !flags.split(',').any(|flag| flag == "master") {
            continue;
        }
        // host:port@bus,name
        let place = place.split(['@', ',']).next().unwrap_or_default();
        let slots: Vec<u16> = ranges.iter().flat_map(|range| slots_of(range)).collect();
        if slots.is_empty() {
            warnings.push(format!(
                "WARNING: Master node {place} has no slots, skipping..."
            ));
            continue;
        }
        let Some((host, port)) = place.rsplit_once(':') else {
            continue;
        };
        let Ok(port) = port.parse() else { continue };
        let host = match (host, asked) {
            ("", Address::Tcp { host, .. }) => host,
            ("", Address::Unix(_)) => "127.0.0.1",
            (host, _) => host,
        };
        masters.push(Master {
            id: (*id).to_owned(),
            address: Address::tcp(host, port),
            slots,
        });
    }
    (masters, warnings)
}

/// Parses `7`, `0-5460`; none for a migrating slot, `[7->-id]`.
fn slots_of(range: &str) -> impl Iterator<Item = u16> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |text: &str| text.parse::<u16>().ok();
    let (first, last) = number(first).zip(number(last)).unwrap_or((1, 0));
    (first..=last).filter(|&slot| usize::from(slot) < SLOTS)
}

/// The requests of a batch, without tags.
pub struct Recipe {
    /// One request.
    pub request: Vec<u8>,
    /// Number of repetitions in a batch.
    pub depth: usize,
    /// The argument of [`Batch::new`].
    pub keyspace: Option<u64>,
}

impl Recipe {
    /// Returns the batch with tags of that slot.
    pub fn batch(&self, slot: u16) -> Result<Batch, TooLarge> {
        let (mut request, tag) = (self.request.clone(), tag_of(slot));
        for at in self.tags() {
            request[at + 1..at + 1 + tag.len()].copy_from_slice(&tag);
        }
        Batch::new(request, self.depth, self.keyspace)
    }

    fn tags(&self) -> impl Iterator<Item = usize> {
        let windows = self.request.windows(PLACEHOLDER.len()).enumerate();
        windows.filter_map(|(at, bytes)| (bytes == PLACEHOLDER).then_some(at))
    }
}

/// Returns a tag that hashes to a slot.
fn tag_of(slot: u16) -> [u8; 3] {
    let letter = |number: usize| TAG_BYTES[number % TAG_BYTES.len()];
    let base = TAG_BYTES.len();
    (0..base.pow(3))
        .map(|number| {
            [
                letter(number / base / base),
                letter(number / base),
                letter(number),
            ]
        })
        .find(|tag| slot_of(tag) == slot)
        .expect("a test goes over all slots")
}

/// The batches of one thread: one for each master that it has connections to.
pub struct TaggedBatches<'a> {
    recipe: &'a Recipe,
    /// By master.
    masters: Vec<Tagged>,
    /// This thread, and the number of threads.
    thread: usize,
    threads: usize,
}

/// The batch that is sent to one master.
#[derive(Clone)]
struct Tagged {
    master: Master,
    /// With the tag of its first slot.
    batch: Batch,
}

impl<'a> TaggedBatches<'a> {
    /// Returns the batches of each of `threads` threads (as many as asked for, even if some have no connection) for
    /// `masters`, of which there is at least one.
    pub fn of_threads(
        recipe: &'a Recipe,
        masters: &[Master],
        threads: usize,
    ) -> Result<impl Iterator<Item = TaggedBatches<'a>>, TooLarge> {
        let tagged = |master: &Master| {
            Ok(Tagged {
                batch: recipe.batch(master.slots[0])?,
                master: master.clone(),
            })
        };
        // All threads share the bytes.
        let masters: Vec<Tagged> = masters.iter().map(tagged).collect::<Result<_, _>>()?;
        Ok((0..threads).map(move |thread| TaggedBatches {
            recipe,
            masters: masters.clone(),
            thread,
            threads,
        }))
    }
}

impl Batches for TaggedBatches<'_> {
    /// Distributes connections as redis-benchmark does: a thread has one master, or, if there are fewer threads than
    /// masters, all of them in turn.
    fn place(&self, token: usize) -> usize {
        let client = if self.threads < self.masters.len() {
            self.thread + token * self.threads
        } else {
            self.thread
        };
        client % self.masters.len()
    }

    fn requests(&self) -> u64 {
        self.masters[0].batch.requests()
    }

    fn next(&mut self, token: usize, random: &mut fastrand::Rng) -> &[u8] {
        let place = self.place(token);
        self.masters[place].batch.next(random)
    }

    fn share(&self, token: usize) -> Arc<Vec<u8>> {
        self.masters[self.place(token)].batch.share()
    }

    fn excuse(&mut self, token: usize, error: String) -> Result<(), Failure> {
        let place = self.place(token);
        let Tagged { master, batch } = &mut self.masters[place];
        let (kind, rest) = error.split_once(' ').unwrap_or((&error, ""));
        // Users who name their own keys have to know their nodes.
        let has_tags = self.recipe.tags().next().is_some();
        match kind {
            "MOVED" | "ASK" if has_tags => {
                let gone = Redirect::parse(rest).map(|redirect| redirect.slot);
                master.slots.retain(|&slot| Some(slot) != gone);
                // Others were in flight with the same slot when the first such reply arrived.
                if let Some(&slot) = master.slots.first() {
                    *batch = self.recipe.batch(slot).expect("it is as large as before");
                    return Ok(());
                }
            }
            "CLUSTERDOWN" if has_tags => {
                std::thread::sleep(DOWN_PAUSE);
                return Ok(());
            }
            _ => {}
        }
        Err(Failure::NodeReply {
            address: master.address.to_string(),
            text: error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
aa 10.0.0.1:7001@17001 myself,master - 0 0 1 connected 0-2 5 [9->-bb] 7-8
bb 10.0.0.2:7002@17002,name slave aa 0 1 1 connected
cc :7003@17003 master,fail? - 0 1 3 connected 16383
dd :7004@17004 master - 0 1 4 connected
ee [::1]:x@1 master - 0 1 4 connected 3-4
ff ::1:7006@17006 master - 0 1 4 connected 99999 4-3 3

";

    fn recipe(request: &str) -> Recipe {
        Recipe {
            request: request.as_bytes().to_vec(),
            depth: 2,
            keyspace: None,
        }
    }

    fn three() -> Vec<Master> {
        let master = |port: u16| Master {
            id: port.to_string(),
            address: Address::tcp("127.0.0.1", port),
            slots: vec![port, port + 1],
        };
        [1, 2, 3].map(master).to_vec()
    }

    fn of_thread<'a>(
        recipe: &'a Recipe,
        masters: &[Master],
        thread: usize,
        threads: usize,
    ) -> TaggedBatches<'a> {
        let mut all = TaggedBatches::of_threads(recipe, masters, threads).unwrap();
        all.nth(thread).unwrap()
    }

    fn sent(batches: &mut TaggedBatches<'_>, token: usize) -> String {
        let bytes = batches.next(token, &mut fastrand::Rng::with_seed(1));
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn masters_are_read_in_their_order_with_their_slots() {
        let (found, warnings) = masters(NODES, &Address::tcp("10.0.0.9", 7001));
        let facts: Vec<_> = found
            .iter()
            .map(|master| (master.address.to_string(), master.slots.clone()))
            .collect();
        let place = |text: &str, slots: &[u16]| (text.to_owned(), slots.to_vec());
        assert_eq!(
            facts,
            [
                place("10.0.0.1:7001", &[0, 1, 2, 5, 7, 8]),
                place("10.0.0.9:7003", &[16383]),
                (Address::tcp("::1", 7006).to_string(), vec![3]),
            ]
        );
        let expected = ["WARNING: Master node :7004 has no slots, skipping..."];
        assert_eq!(warnings, expected);
        assert_eq!(masters("nonsense", &Address::tcp("h", 1)).0, []);
    }

    #[test]
    fn every_slot_has_a_tag() {
        let mut reached = vec![false; SLOTS];
        for a in TAG_BYTES {
            for b in TAG_BYTES {
                for c in TAG_BYTES {
                    reached[usize::from(slot_of(&[*a, *b, *c]))] = true;
                }
            }
        }
        assert!(reached.into_iter().all(|reached| reached));
        let key = [&b"key:{"[..], &tag_of(5461), b"}:7"].concat();
        assert_eq!(slot_of(&key), 5461);
    }

    #[test]
    fn connections_are_dealt_out_as_redis_benchmark_does_it() {
        let (recipe, masters) = (recipe("x"), three());
        let places = |thread, threads| -> Vec<usize> {
            let batches = of_thread(&recipe, &masters, thread, threads);
            (0..4).map(|token| batches.place(token)).collect()
        };
        assert_eq!(places(0, 1), [0, 1, 2, 0]);
        assert_eq!(places(1, 2), [1, 0, 2, 1]);
        assert_eq!(places(1, 3), [1; 4]);
        assert_eq!(places(5, 7), [2; 4]);
    }

    #[test]
    fn a_slot_that_has_moved_is_given_up() {
        let (recipe, masters) = (recipe("{tag}{tag}."), three());
        let mut batches = of_thread(&recipe, &masters, 0, 1);
        let with = |slot| {
            let tag = String::from_utf8(tag_of(slot).to_vec()).unwrap();
            format!("{{{tag}}}{{{tag}}}.").repeat(2)
        };
        assert_eq!(sent(&mut batches, 1), with(2));
        let moved = || "MOVED 2 127.0.0.1:9".to_owned();
        // Several requests were in flight.
        assert!(batches.excuse(1, moved()).is_ok() && batches.excuse(1, moved()).is_ok());
        assert_eq!(sent(&mut batches, 1), with(3));
        assert_eq!(sent(&mut batches, 0), with(1));
        let last = batches.excuse(1, "ASK 3 127.0.0.1:9".to_owned());
        let expected = "Error from server 127.0.0.1:2: ASK 3 127.0.0.1:9";
        assert_eq!(last.unwrap_err().to_string(), expected);
        assert!(batches.excuse(0, "WRONGTYPE x".to_owned()).is_err());
    }

    #[test]
    fn keys_without_a_tag_have_no_excuse() {
        let (recipe, masters) = (recipe("GET foo"), three());
        let mut batches = of_thread(&recipe, &masters, 0, 1);
        for error in ["MOVED 1 127.0.0.1:9", "CLUSTERDOWN x"] {
            assert!(batches.excuse(0, error.to_owned()).is_err());
        }
    }
}
