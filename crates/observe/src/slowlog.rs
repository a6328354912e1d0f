//! A log of calls that took long, or moved much, and the reply that shows it. Must not know which calls are logged.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redline_resp::Reply;

/// Arguments of a call that an entry keeps.
const ARGS_MAX: usize = 32;
/// Bytes of an argument that an entry keeps.
const ARG_BYTES_MAX: usize = 128;

/// One call.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Ascending, never used twice.
    pub id: u64,
    /// End of the call: Unix time in seconds.
    pub at_s: i64,
    /// Microseconds that it took, or bytes that it moved.
    pub value: u64,
    /// Its arguments, shortened and without secrets.
    pub args: Vec<Vec<u8>>,
    /// Address of its client; empty where a script called.
    pub addr: String,
    /// Name of its client.
    pub name: Vec<u8>,
}

/// The entries, newest first, under a lock: additions are rare by definition.
#[derive(Default)]
pub struct Log(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    entries: VecDeque<Arc<Entry>>,
    next_id: u64,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call, and removes the oldest above the limit.
    pub fn push(&self, entries_max: usize, mut entry: Entry) {
        let mut log = self.lock();
        entry.id = log.next_id;
        log.next_id += 1;
        log.entries.push_front(Arc::new(entry));
        log.entries.truncate(entries_max);
    }

    /// Returns the newest `count` entries.
    pub fn newest(&self, count: usize) -> Vec<Arc<Entry>> {
        self.lock().entries.iter().take(count).cloned().collect()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Returns true if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all entries; ids go on.
    pub fn clear(&self) {
        self.lock().entries.clear();
    }
}

/// Writes the reply of SLOWLOG GET.
pub fn write(entries: &[Arc<Entry>], reply: &mut Reply<'_>) {
    reply.array(entries.len());
    for entry in entries {
        reply.array(6);
        reply.integer(entry.id as i64);
        reply.integer(entry.at_s);
        reply.integer(entry.value as i64);
        reply.array(entry.args.len());
        entry.args.iter().for_each(|word| reply.bulk(word));
        reply.bulk(entry.addr.as_bytes());
        reply.bulk(&entry.name);
    }
}

/// Returns the arguments as far as they are kept, with what is left out in words.
pub fn shortened<'a>(argc: usize, arg: impl Fn(usize) -> &'a [u8]) -> Vec<Vec<u8>> {
    let kept = match argc {
        count if count > ARGS_MAX => ARGS_MAX - 1,
        count => count,
    };
    let mut words: Vec<Vec<u8>> = (0..kept)
        .map(|index| {
            let word = arg(index);
            match word.len().checked_sub(ARG_BYTES_MAX) {
                None | Some(0) => word.to_vec(),
                Some(more) => {
                    let mut shown = word[..ARG_BYTES_MAX].to_vec();
                    shown.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
                    shown
                }
            }
        })
        .collect();
    if kept < argc {
        words.push(format!("... ({} more arguments)", argc - kept).into_bytes());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_calls_are_shortened() {
        let word = [b'x'; 200];
        let mut words: Vec<&[u8]> = vec![b"RPUSH", &word[..128], &word[..129], &word];
        words.resize(40, b"e");
        let short = shortened(words.len(), |at| words[at]);
        assert_eq!(short.len(), 32);
        assert_eq!(short[1], word[..128]);
        assert!(short[2].ends_with(b"x... (1 more bytes)") && short[2].len() == 128 + 18);
        assert!(short[3].ends_with(b"x... (72 more bytes)"));
        assert_eq!(short[31], b"... (9 more arguments)");
        words.truncate(32);
        let whole = shortened(words.len(), |at| words[at]);
        assert_eq!(whole[31], b"e");
    }
}
