//! Libraries of functions: their first line, the functions that they register, and the registry that all workers share.
//! The registry is changed as a whole: a reader finds it before or after a change. Must not know the interpreter.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use redline_resp::split_words;

use crate::env::ScriptEnv;
use crate::host::Host;
use crate::script::ScriptFlags;

/// A function as its library has registered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Letters, digits and underscores; FCALL finds it in any case.
    pub name: String,
    /// Description for people.
    pub description: Option<Vec<u8>>,
    /// Flags that it declares; never [`ScriptFlags::UNDECLARED`].
    pub flags: ScriptFlags,
}

/// A library. Immutable; shared by the registry and by the callers of its functions.
#[derive(Debug)]
pub struct Library {
    /// Letters, digits and underscores.
    pub name: String,
    /// The whole text, first line included.
    pub code: Box<[u8]>,
    /// Functions that it has registered, in that order.
    pub functions: Vec<Function>,
    /// Id of its first function in the interpreter; the others follow.
    first_id: u64,
}

impl Library {
    fn heap_bytes(&self) -> usize {
        let functions = self.functions.iter().map(|function| {
            let description = function.description.as_ref().map_or(0, Vec::len);
            size_of::<Function>() + function.name.len() + description
        });
        size_of::<Library>() + self.name.len() + self.code.len() + functions.sum::<usize>()
    }
}

/// A function of a library, to be called.
#[derive(Clone, Debug)]
pub struct FunctionRef {
    library: Arc<Library>,
    index: usize,
}

impl FunctionRef {
    /// Returns the function as it was registered.
    pub fn function(&self) -> &Function {
        &self.library.functions[self.index]
    }

    pub(crate) fn id(&self) -> u64 {
        self.library.first_id + self.index as u64
    }
}

/// Reason why a text did not become a library. `Display` is the error line, code included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LibraryError {
    /// It does not start with `#!`.
    NoMetadata,
    /// Its first line has no end, or its quotes do not match.
    Metadata,
    /// The first line names it twice.
    NamedTwice,
    /// The first line has something else.
    Value(Vec<u8>),
    /// The first line does not name it.
    Unnamed,
    /// The name has other characters than it may.
    Name,
    /// It is for another interpreter.
    Engine(Vec<u8>),
    /// There is one of that name.
    Exists(String),
    /// There is one of that name among those that were to be restored, or before them.
    ExistsAtRestore(String),
    /// It is not Lua: the compiler's message.
    Compile(String),
    /// It ended in an error while it was run: the error.
    Register(String),
    /// It was refused while it was run: the whole message of the refusal.
    Refused(String),
    /// It has registered nothing.
    Empty,
    /// Another library has a function of that name.
    FunctionExists(String),
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lossy = String::from_utf8_lossy;
        f.write_str("ERR ")?;
        match self {
            LibraryError::NoMetadata => f.write_str("Missing library metadata"),
            LibraryError::Metadata => f.write_str("Invalid library metadata"),
            LibraryError::NamedTwice => {
                f.write_str("Invalid metadata value, name argument was given multiple times")
            }
            LibraryError::Value(value) => {
                write!(f, "Invalid metadata value given: {}", lossy(value))
            }
            LibraryError::Unnamed => f.write_str("Library name was not given"),
            LibraryError::Name => f.write_str(
                "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
            ),
            LibraryError::Engine(name) => write!(f, "Engine '{}' not found", lossy(name)),
            LibraryError::Exists(name) => write!(f, "Library '{name}' already exists"),
            LibraryError::ExistsAtRestore(name) => write!(f, "Library {name} already exists"),
            LibraryError::Compile(text) => write!(f, "Error compiling function: {text}"),
            LibraryError::Register(text) => write!(f, "Error registering functions: {text}"),
            LibraryError::Refused(text) => f.write_str(text.strip_prefix("ERR ").unwrap_or(text)),
            LibraryError::Empty => f.write_str("No functions registered"),
            LibraryError::FunctionExists(name) => write!(f, "Function {name} already exists"),
        }
    }
}

impl std::error::Error for LibraryError {}

/// Policy for the existing libraries when others are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestorePolicy {
    /// All are removed.
    Flush,
    /// All stay; one of the same name is an error.
    Append,
    /// Those of the same names are removed.
    Replace,
}

/// The libraries of a server. The functions live in one interpreter, which is handed in for every change: its holder is
/// the only one to change anything.
#[derive(Debug, Default)]
pub struct Libraries {
    registry: RwLock<Arc<Registry>>,
}

#[derive(Clone, Debug, Default)]
struct Registry {
    libraries: BTreeMap<String, Arc<Library>>,
    /// By names in lower case.
    functions: HashMap<Vec<u8>, FunctionRef>,
}

impl Registry {
    /// Adds a library of which there is none of that name.
    fn add(&mut self, library: &Arc<Library>) -> Result<(), LibraryError> {
        for (index, function) in library.functions.iter().enumerate() {
            let reference = FunctionRef {
                library: Arc::clone(library),
                index,
            };
            let key = function.name.to_ascii_lowercase().into_bytes();
            if self.functions.insert(key, reference).is_some() {
                return Err(LibraryError::FunctionExists(function.name.clone()));
            }
        }
        self.libraries
            .insert(library.name.clone(), Arc::clone(library));
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Option<Arc<Library>> {
        let library = self.libraries.remove(name)?;
        for function in &library.functions {
            let key = function.name.to_ascii_lowercase().into_bytes();
            self.functions.remove(&key);
        }
        Some(library)
    }
}

impl Libraries {
    /// Returns the function of that name.
    pub fn function(&self, name: &[u8]) -> Option<FunctionRef> {
        let registry = self.registry();
        registry.functions.get(&name.to_ascii_lowercase()).cloned()
    }

    /// Returns all libraries, by name.
    pub fn all(&self) -> Vec<Arc<Library>> {
        self.registry().libraries.values().cloned().collect()
    }

    /// Returns the number of libraries and of functions.
    pub fn counts(&self) -> (usize, usize) {
        let registry = self.registry();
        (registry.libraries.len(), registry.functions.len())
    }

    /// Returns the number of bytes that the libraries' texts and descriptions hold.
    pub fn bytes(&self) -> usize {
        let registry = self.registry();
        registry.libraries.values().map(|l| l.heap_bytes()).sum()
    }

    /// Adds a library, and returns its name.
    pub fn load(
        &self,
        host: &mut Host,
        code: &[u8],
        replaces: bool,
        env: &mut dyn ScriptEnv,
    ) -> Result<String, LibraryError> {
        let mut registry = Registry::clone(&self.registry());
        let (name, engine, lua_at) = parse_header(code)?;
        check_engine(engine)?;
        if registry.libraries.contains_key(&name) && !replaces {
            return Err(LibraryError::Exists(name));
        }
        let library = run(host, name, code, lua_at, env)?;
        let removed = registry.remove(&library.name);
        if let Err(error) = registry.add(&library) {
            forget(host, [library]);
            return Err(error);
        }
        self.publish(registry);
        forget(host, removed);
        Ok(library.name.clone())
    }

    /// Adds several, or none of them.
    pub fn restore<'a>(
        &self,
        host: &mut Host,
        codes: impl IntoIterator<Item = &'a [u8]>,
        policy: RestorePolicy,
        env: &mut dyn ScriptEnv,
    ) -> Result<(), LibraryError> {
        let mut added = Vec::new();
        let result = self.restore_into(host, codes, policy, env, &mut added);
        match result {
            Ok((registry, removed)) => {
                self.publish(registry);
                forget(host, removed);
                Ok(())
            }
            Err(error) => {
                forget(host, added);
                Err(error)
            }
        }
    }

    fn restore_into<'a>(
        &self,
        host: &mut Host,
        codes: impl IntoIterator<Item = &'a [u8]>,
        policy: RestorePolicy,
        env: &mut dyn ScriptEnv,
        added: &mut Vec<Arc<Library>>,
    ) -> Result<(Registry, Vec<Arc<Library>>), LibraryError> {
        let mut fresh = Registry::default();
        for code in codes {
            let (name, engine, lua_at) = parse_header(code)?;
            check_engine(engine)?;
            if fresh.libraries.contains_key(&name) {
                return Err(LibraryError::Exists(name));
            }
            let library = run(host, name, code, lua_at, env)?;
            added.push(Arc::clone(&library));
            fresh.add(&library)?;
        }
        let old = self.registry();
        let mut registry = Registry::clone(&old);
        let mut removed = Vec::new();
        match policy {
            RestorePolicy::Flush => {
                removed.extend(old.libraries.values().cloned());
                registry = Registry::default();
            }
            RestorePolicy::Append => {
                let known = |name: &&String| old.libraries.contains_key(*name);
                if let Some(name) = fresh.libraries.keys().find(known) {
                    return Err(LibraryError::ExistsAtRestore(name.clone()));
                }
            }
            RestorePolicy::Replace => {
                removed.extend(
                    fresh
                        .libraries
                        .keys()
                        .filter_map(|name| registry.remove(name)),
                );
            }
        }
        for library in fresh.libraries.values() {
            registry.add(library)?;
        }
        Ok((registry, removed))
    }

    /// Removes a library; returns false if there is none of that name.
    pub fn delete(&self, host: &mut Host, name: &[u8]) -> bool {
        let mut registry = Registry::clone(&self.registry());
        let removed = str::from_utf8(name)
            .ok()
            .and_then(|name| registry.remove(name));
        let Some(removed) = removed else {
            return false;
        };
        self.publish(registry);
        forget(host, [removed]);
        true
    }

    /// Removes all.
    pub fn flush(&self, host: &mut Host) {
        let removed = self.all();
        self.publish(Registry::default());
        forget(host, removed);
    }

    // Nothing here panics while it holds the lock, so that a poisoned one is still whole.
    fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn publish(&self, registry: Registry) {
        *self
            .registry
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(registry);
    }
}

/// Runs a library's text, which registers its functions.
fn run(
    host: &mut Host,
    name: String,
    code: &[u8],
    lua_at: usize,
    env: &mut dyn ScriptEnv,
) -> Result<Arc<Library>, LibraryError> {
    let (first_id, functions) = host.run_library(&code[lua_at..], env)?;
    if functions.is_empty() {
        return Err(LibraryError::Empty);
    }
    Ok(Arc::new(Library {
        name,
        code: code.into(),
        functions,
        first_id,
    }))
}

fn forget(host: &mut Host, libraries: impl IntoIterator<Item = Arc<Library>>) {
    for library in libraries {
        host.forget_functions(library.first_id, library.functions.len());
    }
}

/// Returns true if libraries and functions may have this name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    !name.is_empty() && name.iter().all(is_allowed)
}

/// Returns the name, the engine, and where the Lua text starts: at the end of the first line, so that line numbers stay
/// true.
fn parse_header(code: &[u8]) -> Result<(String, Vec<u8>, usize), LibraryError> {
    if !code.starts_with(b"#!") {
        return Err(LibraryError::NoMetadata);
    }
    let end = memchr::memchr(b'\n', code).ok_or(LibraryError::Metadata)?;
    let words = split_words(&code[..end]).ok_or(LibraryError::Metadata)?;
    let (engine, options) = words.split_first().ok_or(LibraryError::Metadata)?;
    let mut name = None;
    for option in options {
        let is_name = option.len() >= 5 && option[..5].eq_ignore_ascii_case(b"name=");
        if !is_name {
            return Err(LibraryError::Value(option.clone()));
        }
        if name.replace(&option[5..]).is_some() {
            return Err(LibraryError::NamedTwice);
        }
    }
    let name = name.ok_or(LibraryError::Unnamed)?;
    let text = String::from_utf8(name.to_vec()).map_err(|_| LibraryError::Name)?;
    if !is_name(name) {
        return Err(LibraryError::Name);
    }
    Ok((text, engine[2..].to_vec(), end))
}

fn check_engine(engine: Vec<u8>) -> Result<(), LibraryError> {
    match engine.eq_ignore_ascii_case(b"lua") {
        true => Ok(()),
        false => Err(LibraryError::Engine(engine)),
    }
}
