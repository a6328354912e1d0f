//! Scripts that were forwarded: they are loaded into a server that lacks them, so that clients do not get NOSCRIPT. Must
//! not know connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Largest size of all kept scripts: bytes.
const BYTES_MAX: usize = 16 * 1024 * 1024;
const NAME_BYTES: usize = 40;
/// Memory of each script beside its text: the name, here and at each connection that has loaded it.
const SCRIPT_BYTES: usize = 128;

/// The scripts of all workers, by the name in EVALSHA.
#[derive(Default)]
pub struct Scripts {
    known: Mutex<Known>,
    epoch: AtomicU64,
}

#[derive(Default)]
struct Known {
    bodies: HashMap<[u8; NAME_BYTES], Arc<[u8]>>,
    bytes: usize,
}

impl Scripts {
    /// Keeps a script; if there is no room, all others are dropped.
    pub fn learn(&self, body: &[u8]) {
        if body.len() > BYTES_MAX {
            return;
        }
        let hex = sha1_smol::Sha1::from(body).digest().to_string();
        let Ok(name) = <[u8; NAME_BYTES]>::try_from(hex.as_bytes()) else {
            return;
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.bodies.contains_key(&name) {
            return;
        }
        let bytes = body.len() + SCRIPT_BYTES;
        if known.bytes + bytes > BYTES_MAX {
            self.epoch.fetch_add(1, Ordering::Relaxed);
            *known = Known::default();
        }
        known.bytes += bytes;
        known.bodies.insert(name, body.into());
    }

    /// Returns the script of that name, in any case.
    pub fn find(&self, name: &[u8]) -> Option<Arc<[u8]>> {
        let name = <[u8; NAME_BYTES]>::try_from(name.to_ascii_lowercase()).ok()?;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.bodies.get(&name).cloned()
    }

    /// Returns a number that changes when all scripts are dropped.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Handles SCRIPT FLUSH.
    pub fn forget(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Known::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_found_by_their_names_until_there_are_too_many() {
        let scripts = Scripts::default();
        scripts.learn(b"return 1");
        let name = b"E0E1F9FABFC9D4800C877A703B823AC0578FF8DB";
        assert_eq!(scripts.find(name).as_deref(), Some(&b"return 1"[..]));
        assert_eq!(scripts.find(b"short"), None);
        scripts.learn(&vec![b' '; BYTES_MAX]);
        assert_eq!(scripts.find(name), None);
        scripts.learn(b"return 1");
        scripts.forget();
        assert_eq!(scripts.find(name), None);
    }

    #[test]
    fn whoever_keeps_their_names_hears_that_they_are_forgotten() {
        let scripts = Scripts::default();
        let (mut epoch, mut names, mut most) = (scripts.epoch(), 0, 0);
        // Names take room, even of short scripts.
        for number in 0..BYTES_MAX / SCRIPT_BYTES + 1 {
            scripts.learn(number.to_string().as_bytes());
            if scripts.epoch() != epoch {
                (epoch, names) = (scripts.epoch(), 0);
            }
            names += 1;
            most = most.max(names);
        }
        assert!(most < BYTES_MAX / SCRIPT_BYTES, "{most}");
        assert!(names < most, "they are forgotten");
    }
}
