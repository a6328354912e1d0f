//! Scripts as text: their identity (SHA-1), their shebang flags, and the cache that all workers share.
//! Must not know the interpreter.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use redline_resp::split_words;

/// The name of a script: its SHA-1 in lower-case hexadecimal.
pub type Sha = [u8; 40];

/// Flags that a script declares in its first line (`#!lua flags=no-writes,allow-oom`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptFlags(u8);

impl ScriptFlags {
    /// There is no shebang line: the script runs under the rules of old, which every flag below would relax or tighten.
    pub const UNDECLARED: ScriptFlags = ScriptFlags(1);
    /// It does not write.
    pub const NO_WRITES: ScriptFlags = ScriptFlags(1 << 1);
    /// It may run when memory is over the limit.
    pub const ALLOW_OOM: ScriptFlags = ScriptFlags(1 << 2);
    /// It may run on a replica that has lost its primary.
    pub const ALLOW_STALE: ScriptFlags = ScriptFlags(1 << 3);
    /// It may not run in cluster mode.
    pub const NO_CLUSTER: ScriptFlags = ScriptFlags(1 << 4);
    /// Its keys may lie in several slots.
    pub const ALLOW_CROSS_SLOT_KEYS: ScriptFlags = ScriptFlags(1 << 5);

    const NAMES: [(&'static [u8], ScriptFlags); 5] = [
        (b"no-writes", ScriptFlags::NO_WRITES),
        (b"allow-oom", ScriptFlags::ALLOW_OOM),
        (b"allow-stale", ScriptFlags::ALLOW_STALE),
        (b"no-cluster", ScriptFlags::NO_CLUSTER),
        (b"allow-cross-slot-keys", ScriptFlags::ALLOW_CROSS_SLOT_KEYS),
    ];

    /// Returns true if all of `flags` are set.
    #[inline]
    pub fn contains(self, flags: ScriptFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns the names of the flags that are set, in the order of Redis.
    pub fn names(self) -> impl Iterator<Item = &'static [u8]> {
        Self::NAMES
            .into_iter()
            .filter(move |(_, flag)| self.contains(*flag))
            .map(|(name, _)| name)
    }

    /// Returns the flags that a script's first line declares; `None` if it declares nothing, or nothing that can be read.
    pub fn declared_by(source: &[u8]) -> Option<ScriptFlags> {
        let (_, flags) = parse_shebang(source).ok()?;
        (!flags.contains(ScriptFlags::UNDECLARED)).then_some(flags)
    }

    pub(crate) fn from_bits(bits: u8) -> ScriptFlags {
        ScriptFlags(bits)
    }

    fn insert(&mut self, flags: ScriptFlags) {
        self.0 |= flags.0;
    }
}

/// Reason why a text is no script. `Display` is the error line, code included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShebangError {
    /// The first line has no end.
    Endless,
    /// Its quotes do not match.
    Unbalanced,
    /// It names another interpreter.
    Engine(Vec<u8>),
    /// It has a flag that does not exist.
    Flag(Vec<u8>),
    /// It has an option other than `flags=`.
    Option(Vec<u8>),
}

impl fmt::Display for ShebangError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lossy = String::from_utf8_lossy;
        match self {
            ShebangError::Endless => f.write_str("ERR Invalid script shebang"),
            ShebangError::Unbalanced => f.write_str("ERR Invalid engine in script shebang"),
            ShebangError::Engine(name) => {
                write!(
                    f,
                    "ERR Unexpected engine in script shebang: {}",
                    lossy(name)
                )
            }
            ShebangError::Flag(name) => {
                write!(f, "ERR Unexpected flag in script shebang: {}", lossy(name))
            }
            ShebangError::Option(text) => {
                write!(f, "ERR Unknown lua shebang option: {}", lossy(text))
            }
        }
    }
}

impl std::error::Error for ShebangError {}

/// One script. Immutable; shared by the cache and by the workers that run it.
#[derive(Debug)]
pub struct Script {
    source: Box<[u8]>,
    /// Start of the Lua text: the end of the shebang line, so that line numbers stay true.
    lua_at: usize,
    sha: Sha,
    flags: ScriptFlags,
    /// Distinguishes this script from every other of the process, and orders them by age: the interpreters' key for
    /// compiled code.
    serial: u64,
    /// Generation of the cache that it belongs to; see [`Scripts::flush`].
    generation: u64,
    /// `is_kept`: set if SCRIPT LOAD has asked for it; `is_used`: set if it was used since it was last considered for eviction.
    is_kept: AtomicBool,
    is_used: AtomicBool,
}

impl Script {
    fn new(source: &[u8], generation: u64) -> Result<Script, ShebangError> {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let (lua_at, flags) = parse_shebang(source)?;
        Ok(Script {
            source: source.into(),
            lua_at,
            sha: sha1_hex(source),
            flags,
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            generation,
            is_kept: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
        })
    }

    /// Returns the whole text, shebang included.
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// Returns the script's name.
    pub fn sha(&self) -> &Sha {
        &self.sha
    }

    /// Returns the flags that it declares.
    pub fn flags(&self) -> ScriptFlags {
        self.flags
    }

    pub(crate) fn lua(&self) -> &[u8] {
        &self.source[self.lua_at..]
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    fn mark_used(&self) {
        // All workers read this; it is written once between two evictions.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Script>() + self.source.len()
    }
}

/// Returns the SHA-1 in lower-case hexadecimal.
pub fn sha1_hex(bytes: &[u8]) -> Sha {
    let digest = sha1_smol::Sha1::from(bytes).digest().bytes();
    let mut hex = [0; 40];
    for (pair, byte) in hex.chunks_exact_mut(2).zip(digest) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    hex
}

/// Returns where the Lua text starts, and the flags.
fn parse_shebang(source: &[u8]) -> Result<(usize, ScriptFlags), ShebangError> {
    if !source.starts_with(b"#!") {
        return Ok((0, ScriptFlags::UNDECLARED));
    }
    let end = memchr::memchr(b'\n', source).ok_or(ShebangError::Endless)?;
    let words = split_words(&source[..end]).ok_or(ShebangError::Unbalanced)?;
    let (engine, options) = words.split_first().ok_or(ShebangError::Unbalanced)?;
    if engine != b"#!lua" {
        return Err(ShebangError::Engine(engine.clone()));
    }
    let mut flags = ScriptFlags::default();
    for option in options {
        let Some(list) = option.strip_prefix(b"flags=") else {
            return Err(ShebangError::Option(option.clone()));
        };
        if list.is_empty() {
            continue;
        }
        for name in list.split(|&b| b == b',') {
            match ScriptFlags::NAMES.iter().find(|(known, _)| *known == name) {
                Some((_, flag)) => flags.insert(*flag),
                None => return Err(ShebangError::Flag(name.to_vec())),
            }
        }
    }
    Ok((end, flags))
}

/// Origin of the request to remember a script, which decides for how long it is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// EVAL: until [`Scripts::EVAL_SCRIPTS_MAX`] others have been used since.
    Eval,
    /// SCRIPT LOAD: until the cache is flushed.
    Load,
}

/// The scripts that EVALSHA can name, for all workers.
#[derive(Debug, Default)]
pub struct Scripts {
    cache: RwLock<Cache>,
    /// Counts flushes: a script of an earlier generation is in no cache, and interpreters drop their code of it.
    generation: AtomicU64,
    evicted: AtomicU64,
}

#[derive(Debug, Default)]
struct Cache {
    by_sha: HashMap<Sha, Arc<Script>, BuildHasherDefault<ShaHasher>>,
    /// Scripts as EVAL finds them: one hash of the text, no SHA-1.
    by_source: HashSet<BySource>,
    /// The scripts of EVAL, to be removed from the front; one used since it was queued gets a second chance.
    eval_queue: VecDeque<Sha>,
    bytes: usize,
}

/// Hashes names of scripts, which are hashes already: some of their digits will do.
#[derive(Debug, Default)]
struct ShaHasher(u64);

impl Hasher for ShaHasher {
    fn write(&mut self, bytes: &[u8]) {
        // The length of the name comes first, and says nothing.
        if let Some(digits) = bytes.first_chunk::<16>() {
            let (words, _) = digits.as_chunks::<8>();
            let word = |i: usize| u64::from_le_bytes(words[i]);
            // A digit has four bits in every eight.
            let mixed = (word(0) ^ word(1) << 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.0 = mixed ^ mixed >> 32;
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Debug)]
struct BySource(Arc<Script>);

impl Borrow<[u8]> for BySource {
    fn borrow(&self) -> &[u8] {
        self.0.source()
    }
}

impl Hash for BySource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.source().hash(state);
    }
}

impl PartialEq for BySource {
    fn eq(&self, other: &BySource) -> bool {
        self.0.source() == other.0.source()
    }
}

impl Eq for BySource {}

impl Scripts {
    /// Number of scripts that EVAL alone may leave in the cache.
    pub const EVAL_SCRIPTS_MAX: usize = 500;

    /// Makes an empty cache.
    pub fn new() -> Scripts {
        Scripts::default()
    }

    /// Returns the script of that name, in whatever case the client wrote it.
    pub fn get(&self, sha: &[u8]) -> Option<Arc<Script>> {
        let mut name: Sha = sha.try_into().ok()?;
        name.make_ascii_lowercase();
        let cache = self.read();
        let script = cache.by_sha.get(&name)?;
        script.mark_used();
        Some(Arc::clone(script))
    }

    /// Returns the script with exactly this text, if it is cached.
    pub fn find(&self, source: &[u8]) -> Option<Arc<Script>> {
        let cache = self.read();
        let script = &cache.by_source.get(source)?.0;
        script.mark_used();
        Some(Arc::clone(script))
    }

    /// Returns true if a script of that name is cached.
    pub fn exists(&self, sha: &[u8]) -> bool {
        self.get(sha).is_some()
    }

    /// Makes a script of this text, not yet in the cache.
    pub fn parse(&self, source: &[u8]) -> Result<Script, ShebangError> {
        Script::new(source, self.generation.load(Ordering::Acquire))
    }

    /// Adds a script, and returns the one in the cache: another worker may have been faster.
    pub fn insert(&self, script: Script, origin: Origin) -> Arc<Script> {
        let mut cache = self.write();
        if let Some(cached) = cache.by_sha.get(script.sha()) {
            cached
                .is_kept
                .fetch_or(origin == Origin::Load, Ordering::Relaxed);
            return Arc::clone(cached);
        }
        script
            .is_kept
            .store(origin == Origin::Load, Ordering::Relaxed);
        let script = Arc::new(script);
        cache.bytes += script.heap_bytes();
        cache.by_source.insert(BySource(Arc::clone(&script)));
        cache.by_sha.insert(*script.sha(), Arc::clone(&script));
        if origin == Origin::Eval {
            cache.eval_queue.push_back(*script.sha());
            self.evict(&mut cache);
        }
        script
    }

    /// Keeps a cached script until the next flush: SCRIPT LOAD of a text that EVAL has added.
    pub fn keep(&self, sha: &Sha) {
        if let Some(script) = self.read().by_sha.get(sha) {
            script.is_kept.store(true, Ordering::Relaxed);
        }
    }

    fn evict(&self, cache: &mut Cache) {
        while cache.eval_queue.len() > Scripts::EVAL_SCRIPTS_MAX {
            let Some(sha) = cache.eval_queue.pop_front() else {
                return;
            };
            let Some(script) = cache.by_sha.get(&sha) else {
                continue;
            };
            if script.is_kept.load(Ordering::Relaxed) {
                continue;
            }
            if script.is_used.swap(false, Ordering::Relaxed) {
                cache.eval_queue.push_back(sha);
                continue;
            }
            let script = Arc::clone(script);
            cache.bytes -= script.heap_bytes();
            cache.by_source.remove(script.source());
            cache.by_sha.remove(&sha);
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes all scripts. Those that run now go on.
    pub fn flush(&self) {
        let mut cache = self.write();
        self.generation.fetch_add(1, Ordering::AcqRel);
        *cache = Cache::default();
    }

    /// Returns the number of cached scripts.
    pub fn len(&self) -> usize {
        self.read().by_sha.len()
    }

    /// Returns true if no script is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that the cached scripts hold.
    pub fn bytes(&self) -> usize {
        self.read().bytes
    }

    /// Returns the number of scripts of EVAL that were removed since the start.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    // Nothing below panics while it holds the lock, so that a poisoned one is still whole.
    fn read(&self) -> RwLockReadGuard<'_, Cache> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Cache> {
        self.cache.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags_of(source: &str) -> Result<ScriptFlags, String> {
        Scripts::new()
            .parse(source.as_bytes())
            .map(|script| script.flags())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn names_are_sha1() {
        assert_eq!(
            &sha1_hex(b"return 1"),
            b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
        );
    }

    #[test]
    fn shebang_lines_are_read_as_redis_reads_them() {
        let both = ScriptFlags(ScriptFlags::NO_WRITES.0 | ScriptFlags::ALLOW_OOM.0);
        assert_eq!(flags_of("return 1"), Ok(ScriptFlags::UNDECLARED));
        assert_eq!(flags_of("#!lua\nreturn 1"), Ok(ScriptFlags::default()));
        assert_eq!(
            flags_of("#!lua flags=\nreturn 1"),
            Ok(ScriptFlags::default())
        );
        assert_eq!(flags_of("#!lua flags=no-writes,allow-oom\n"), Ok(both));
        assert_eq!(
            flags_of("#!lua   flags=no-writes flags=allow-oom  \n"),
            Ok(both)
        );
        assert_eq!(
            flags_of("#!lua \"flags=no-writes\"\n"),
            Ok(ScriptFlags::NO_WRITES)
        );
        let error = |source| flags_of(source).unwrap_err();
        assert_eq!(error("#!lua"), "ERR Invalid script shebang");
        assert_eq!(
            error("#!lua flags=no-writes'x\n"),
            "ERR Invalid engine in script shebang"
        );
        assert_eq!(
            error("#!LUA\n"),
            "ERR Unexpected engine in script shebang: #!LUA"
        );
        assert_eq!(error("#!\n"), "ERR Unexpected engine in script shebang: #!");
        assert_eq!(
            error("#!lua flags=bad\n"),
            "ERR Unexpected flag in script shebang: bad"
        );
        assert_eq!(
            error("#!lua flags=no-writes,\n"),
            "ERR Unexpected flag in script shebang: "
        );
        assert_eq!(
            error("#!lua name=x\n"),
            "ERR Unknown lua shebang option: name=x"
        );
    }

    #[test]
    fn the_line_count_of_a_script_includes_its_shebang() {
        let script = Scripts::new().parse(b"#!lua\nreturn 1").unwrap();
        assert_eq!(script.lua(), b"\nreturn 1");
    }

    #[test]
    fn scripts_are_found_by_name_and_by_text() {
        let scripts = Scripts::new();
        let script = scripts.insert(scripts.parse(b"return 1").unwrap(), Origin::Load);
        assert!(Arc::ptr_eq(&scripts.find(b"return 1").unwrap(), &script));
        assert!(Arc::ptr_eq(&scripts.get(script.sha()).unwrap(), &script));
        assert!(scripts.exists(b"E0E1F9FABFC9D4800C877A703B823AC0578FF8DB"));
        assert!(!scripts.exists(b"e0e1f9"));
        assert!(scripts.find(b"return 2").is_none());
        let again = scripts.insert(scripts.parse(b"return 1").unwrap(), Origin::Eval);
        assert!(Arc::ptr_eq(&again, &script));
        assert_eq!(scripts.len(), 1);
        assert!(scripts.bytes() > 8);
        scripts.flush();
        assert!(scripts.is_empty() && scripts.bytes() == 0);
        assert!(scripts.find(b"return 1").is_none());
    }

    #[test]
    fn eval_leaves_a_bounded_number_of_scripts() {
        let scripts = Scripts::new();
        let text = |i: usize| format!("return {i}").into_bytes();
        let insert = |i, origin| scripts.insert(scripts.parse(&text(i)).unwrap(), origin);
        insert(0, Origin::Load);
        insert(1, Origin::Eval);
        insert(2, Origin::Eval);
        scripts.keep(insert(2, Origin::Load).sha());
        for i in 3..3 * Scripts::EVAL_SCRIPTS_MAX {
            insert(i, Origin::Eval);
            assert!(scripts.find(&text(1)).is_some(), "a script in use is kept");
        }
        assert_eq!(scripts.len(), Scripts::EVAL_SCRIPTS_MAX + 2);
        assert!(scripts.find(&text(0)).is_some() && scripts.find(&text(2)).is_some());
        assert!(scripts.find(&text(3)).is_none());
        let held: usize = scripts
            .read()
            .by_sha
            .values()
            .map(|script| script.heap_bytes())
            .sum();
        assert_eq!(scripts.bytes(), held);
        assert_eq!(
            scripts.evicted(),
            (3 * Scripts::EVAL_SCRIPTS_MAX - scripts.len()) as u64
        );
    }
}
