//! A store of one process in one file, which is replaced whole at every change.
//!
//! The file is locked for as long as the store is open. A change is written to a file beside it, which is synced, locked
//! and renamed over it; then the folder is synced. So there is a whole file at any time, and its lock is never free in
//! between. Leases are those of the process: their keys are not written, and they do not end before it.
//!
//! Must not know: what the keys and values mean.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Mutex,
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::{
    Answer, LeaseId, Listing, Memory, Pair, Range, Store, StoreError, Transaction, Watch,
    tree::Tree,
};

/// Largest file that is read: bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Version of the file's form.
const FORM: u32 = 1;
/// Number of attempts to lock a file that is being replaced.
const LOCKS_MAX: u32 = 100;

/// A store in a file.
pub struct File {
    path: PathBuf,
    memory: Memory,
    /// The file, for its lock.
    locked: Mutex<fs::File>,
}

/// Contents of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// See [`FORM`].
    v: u32,
    revision: u64,
    keys: BTreeMap<String, KeptValue>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptValue {
    created: u64,
    modified: u64,
    value: String,
}

impl File {
    /// Opens the file, or makes an empty one. An error names the file.
    pub fn open(path: &Path) -> Result<File, StoreError> {
        let failed = |error: io::Error| unavailable(path, &error);
        let (file, text) = loop_until_locked(path)?;
        let tree = match text.is_empty() {
            true => Tree::new(),
            false => parse(path, &text)?,
        };
        let path = fs::canonicalize(path).map_err(failed)?;
        Ok(File {
            path,
            memory: Memory::of(tree),
            locked: Mutex::new(file),
        })
    }

    /// Writes a state over the last one.
    fn write(&self, tree: &Tree) -> Result<(), StoreError> {
        let failed = |error: io::Error| unavailable(&self.path, &error);
        let text = text_of(tree)?;
        let mut beside = self.path.clone().into_os_string();
        beside.push(".tmp");
        let mut file = fs::File::create(&beside).map_err(failed)?;
        let renamed = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(flock(&file, FlockOperation::NonBlockingLockExclusive)?))
            .and_then(|()| fs::rename(&beside, &self.path));
        if let Err(error) = renamed {
            // If it stays, the next write replaces it.
            let _ = fs::remove_file(&beside);
            return Err(failed(error));
        }
        *self.locked.lock().expect("no panic under a file") = file;
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| StoreError::Undecided(format!("{}: {error}", folder.display())))
    }
}

fn unavailable(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}

/// Opens and locks the file that has this name, and reads it.
fn loop_until_locked(path: &Path) -> Result<(fs::File, String), StoreError> {
    let failed = |error: io::Error| unavailable(path, &error);
    for _ in 0..LOCKS_MAX {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(StoreError::Unavailable(format!(
                "{}: another node uses this file; give each node its own in cluster-config-file",
                path.display()
            )));
        }
        let own = file.metadata().map_err(failed)?;
        let named = fs::metadata(path);
        if named.is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())) {
            let mut text = String::new();
            let mut limited = (&mut file).take(FILE_BYTES_MAX + 1);
            limited.read_to_string(&mut text).map_err(failed)?;
            if text.len() as u64 > FILE_BYTES_MAX {
                return Err(damaged(path, "it is larger than 64 MiB"));
            }
            return Ok((file, text));
        }
        // Its owner has replaced it since it was opened.
    }
    Err(unavailable(path, &io::ErrorKind::WouldBlock.into()))
}

fn damaged(path: &Path, why: &str) -> StoreError {
    StoreError::Damaged(format!(
        "{}: {why}; a file that is not of this program (as a nodes.conf of Redis) has to be moved away, or another one named in cluster-config-file",
        path.display()
    ))
}

fn parse(path: &Path, text: &str) -> Result<Tree, StoreError> {
    let kept: Kept = serde_json::from_str(text)
        .map_err(|error| damaged(path, &format!("it is no state of a cluster: {error}")))?;
    if kept.v != FORM {
        let why = format!("it has the form {}, and this program knows {FORM}", kept.v);
        return Err(damaged(path, &why));
    }
    let mut pairs = BTreeMap::new();
    for (key, value) in kept.keys {
        let is_right = 0 < value.created
            && value.created <= value.modified
            && value.modified <= kept.revision
            && kept.revision < u64::MAX;
        if !is_right {
            return Err(damaged(path, &format!("the revisions of {key} are wrong")));
        }
        let pair = Pair {
            key: key.clone(),
            value: value.value.into_bytes(),
            create_revision: value.created,
            mod_revision: value.modified,
            lease: None,
        };
        pairs.insert(key, pair);
    }
    Ok(Tree::of(kept.revision, pairs))
}

/// Returns the text of the file. Values have to be text.
fn text_of(tree: &Tree) -> Result<String, StoreError> {
    let lasting = tree.pairs().filter(|pair| pair.lease.is_none());
    let keys = lasting.map(|pair| {
        let value = String::from_utf8(pair.value.clone());
        let value = value
            .map_err(|_| StoreError::Refused(format!("the value of {} is no text", pair.key)))?;
        let kept = KeptValue {
            created: pair.create_revision,
            modified: pair.mod_revision,
            value,
        };
        Ok((pair.key.clone(), kept))
    });
    let kept = Kept {
        v: FORM,
        revision: tree.revision(),
        keys: keys.collect::<Result<_, StoreError>>()?,
    };
    let text = serde_json::to_string_pretty(&kept);
    let text = text.map_err(|error| StoreError::Refused(error.to_string()))?;
    Ok(text + "\n")
}

impl Store for File {
    fn range(&self, range: &Range) -> Result<Listing, StoreError> {
        self.memory.range(range)
    }

    fn transact(&self, transaction: &Transaction) -> Result<Answer, StoreError> {
        self.memory
            .transact_kept(transaction, |after| self.write(after))
    }

    fn grant_lease(&self, ttl_s: u64) -> Result<LeaseId, StoreError> {
        self.memory.grant_lease(ttl_s)
    }

    fn keep_lease(&self, lease: LeaseId) -> Result<bool, StoreError> {
        self.memory.keep_lease(lease)
    }

    fn watch(&self, from_revision: u64) -> Result<Box<dyn Watch>, StoreError> {
        self.memory.watch(from_revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operation;

    fn put(key: &str, value: &[u8], lease: Option<LeaseId>) -> Transaction {
        Transaction {
            success: vec![Operation::Put {
                key: key.into(),
                value: value.to_vec(),
                lease,
            }],
            ..Transaction::default()
        }
    }

    fn all(store: &File) -> Listing {
        store.range(&Range::Prefix(String::new())).unwrap()
    }

    #[test]
    fn a_store_is_found_again_as_it_was_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes.conf");
        let store = File::open(&path).unwrap();
        store.transact(&put("a", b"1", None)).unwrap();
        store
            .transact(&put("b", "\u{e9}\n\"".as_bytes(), None))
            .unwrap();
        store.transact(&put("a", b"2", None)).unwrap();
        let before = all(&store);
        let lease = store.grant_lease(5).unwrap();
        store.transact(&put("alive", b"", Some(lease))).unwrap();
        drop(store);
        let store = File::open(&path).unwrap();
        let after = all(&store);
        assert_eq!((after.revision, &after.pairs), (5, &before.pairs));
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing is left beside it: {names:?}");
    }

    #[test]
    fn a_file_has_one_owner_also_after_it_was_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes.conf");
        let store = File::open(&path).unwrap();
        for _ in 0..2 {
            let second = File::open(&path).err().expect("it is in use");
            assert!(
                second.to_string().contains("another node uses this file"),
                "{second}"
            );
            store.transact(&put("a", b"1", None)).unwrap();
        }
        drop(store);
        assert_eq!(all(&File::open(&path).unwrap()).pairs.len(), 1);
    }

    #[test]
    fn files_that_are_no_store_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes.conf");
        let huge = format!("{{\"v\":1,\"revision\":{},\"keys\":{{}}}}", "9".repeat(30));
        for text in [
            "0123456789 :6379@16379 myself,master - 0 0 0 connected\nvars currentEpoch 0 lastVoteEpoch 0\n",
            "{",
            "[]",
            "{\"v\":2,\"revision\":1,\"keys\":{}}",
            "{\"v\":1,\"revision\":1,\"keys\":{},\"more\":1}",
            "{\"v\":1,\"revision\":1,\"keys\":{\"a\":{\"created\":1,\"modified\":2,\"value\":\"\"}}}",
            "{\"v\":1,\"revision\":9,\"keys\":{\"a\":{\"created\":3,\"modified\":2,\"value\":\"\"}}}",
            &huge,
        ] {
            fs::write(&path, text).unwrap();
            let error = File::open(&path).err().expect("it is refused");
            assert!(
                matches!(&error, StoreError::Damaged(why) if why.contains("nodes.conf:")),
                "{error:?}"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn what_could_not_be_written_has_not_happened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes.conf");
        let store = File::open(&path).unwrap();
        store.transact(&put("a", b"1", None)).unwrap();
        let before = all(&store);
        // A folder stands where the new file is written.
        fs::create_dir(folder.path().join("nodes.conf.tmp")).unwrap();
        let error = store.transact(&put("a", b"2", None)).unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        let no_text = store.transact(&put("a", b"\xff", None)).unwrap_err();
        assert!(matches!(no_text, StoreError::Refused(_)), "{no_text:?}");
        assert_eq!(all(&store), before);
    }
}
