//! DEBUG: subcommands for the test suites of Redis and of this project.
//!
//! Only subcommands with a true reply exist: one that would have to invent it is unknown. Those on keys hold every
//! stripe.

mod digest;

use std::{path::Path, sync::atomic::Ordering, time::Duration};

use redline_commands::{Error, object_of};
use redline_keyspace::{
    Expiry, Keyspace, Local, StringRef, Trace, Unit, ValueRef, View, lock::StripeSet,
};
use redline_persist::load::{Loaded, Progress};
use redline_rdb::{ObjectRef, object, primitive::Writer};
use redline_resp::{Args, Proto, Reply};
use redline_settings::value::parse_memory;
use redline_types::{PackedRef, Value, list::NodeRef, number};

use crate::{
    admin::{command::write_help, config, persistence},
    persistence::{
        loading::{self, Expired},
        playback,
    },
    replication,
    shared::Message,
    worker::{Worker, handover},
};
use redline_engine::{
    Caller, Halt,
    executor::{block, units},
    session::scripting::functions::merge_libraries,
    tracking::By,
};

const HELP: &[&str] = &[
    "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "AOF-FLUSH-SLEEP <microseconds>",
    "    Sleep before each sync of the append-only file, for tests.",
    "CHANGE-REPL-ID",
    "    Take a new replication id.",
    "CONFIG-REWRITE-FORCE-ALL",
    "    CONFIG REWRITE, with the parameters that are as by default.",
    "DIGEST",
    "    Answer a digest of everything that the server holds.",
    "DIGEST-VALUE [<key> ...]",
    "    Answer a digest of the value of each key.",
    "ERROR <text>",
    "    Answer an error of this text.",
    "LISTPACK <key>",
    "    Write the elements of a packed value to the log.",
    "LOADAOF",
    "    Empty the data and load the append-only files.",
    "LOG <message>",
    "    Write a message to the log.",
    "MOVE-CLIENT <client-id> <worker>",
    "    Have another worker serve a client as soon as it has nothing to do, as the balance of load does.",
    "OBJECT <key>",
    "    Tell how a value is stored.",
    "PAUSE-CRON <0|1>",
    "    Stop (1) or resume (0) all that timers do: expiry, eviction, limits of clients, statistics.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Make string keys <prefix>:0, <prefix>:1 and so on, where there are none.",
    "PROTOCOL <type>",
    "    Answer an example of a reply: string, integer, double, bignum, null, array, set, map, attrib, push, verbatim,",
    "    true or false.",
    "QUICKLIST-PACKED-THRESHOLD <size>",
    "    From which size an element of a list has a node of its own. 0: when it is larger than a node.",
    "RELOAD [MERGE] [NOFLUSH]",
    "    Save a snapshot and load it. MERGE: keys that are there are overwritten. NOFLUSH: the data is not emptied before.",
    "    NOSAVE: load the file that is there.",
    "REPLICATE <command> [<argument> ...]",
    "    Tell replicas a command, which is not run here: their data become other than the primary's.",
    "SDSLEN <key>",
    "    Tell how long a key and its string are, and what room they take.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Stop (0) or resume (1) looking for expired keys in the background.",
    "SET-DISABLE-DENY-SCRIPTS <0|1>",
    "    Let scripts call DEBUG and CLIENT LIST (1), or not (0).",
    "SET-SKIP-CHECKSUM-VALIDATION <0|1>",
    "    Take payloads whatever their checksum (1), or not (0). What is inside is checked all the same.",
    "SLEEP <seconds>",
    "    Stop this client's worker, and the link to a primary, for so long. Decimals are allowed.",
    "HELP",
    "    Print this help.",
];
const NO_SUCH_KEY: Error = Error::NoSuchKey;
const NO_SUCH_CLIENT: Error = Error::line("ERR No such client");
const NO_SUCH_WORKER: Error = Error::line("ERR No such worker");
/// Error for a call inside EXEC or a script, which cannot wait for a file.
const RELOAD_ALONE: Error =
    Error::line("ERR DEBUG RELOAD and LOADAOF are not possible inside MULTI or a script");
const NOT_RELOADED: Error = Error::line("ERR Error trying to load the RDB dump, check server logs");
const NOT_A_STRING: Error = Error::line("ERR Not an sds encoded string.");
const NO_THRESHOLD: Error =
    Error::line("ERR argument must be a memory value bigger than 1 and smaller than 4gb");
/// Largest size from which an element of a list may have a node of its own.
const THRESHOLD_MAX: u64 = (4 << 30) - (1 << 20);

/// Runs DEBUG subcommand [argument …]
pub(crate) fn debug(worker: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    if !worker.outlet.settings.enable_debug_command.allows(caller) {
        return Err(Error::line("ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.").into());
    }
    let sub = args[1].to_ascii_lowercase();
    match (sub.as_slice(), args.len()) {
        (b"help", 2) => write_help(&mut caller.reply(), HELP),
        (b"aof-flush-sleep", 3) => {
            let us = number::parse_i64(&args[2]).unwrap_or(0).max(0);
            let append = &worker.shared.persistence.append;
            append.sync_delay_us.store(us as u64, Ordering::Relaxed);
            caller.reply().ok();
        }
        (b"change-repl-id", 2) => {
            let mut primary = worker.shared.replication.primary();
            primary.log_mut().change_id(replication::fresh_id());
            drop(primary);
            caller.reply().ok();
        }
        (b"config-rewrite-force-all", 2) => {
            config::rewrite_file(worker, true)?;
            caller.reply().ok();
        }
        (b"digest", 2) => {
            let digest = with_keys(worker, caller, digest::of_everything)?;
            caller.reply().simple(&digest.to_string());
        }
        (b"digest-value", _) => {
            let keys = args.from(2);
            let digests = with_keys(worker, caller, |view| {
                keys.iter()
                    .map(|key| digest::of_value(view, key))
                    .collect::<Vec<_>>()
            })?;
            let mut reply = caller.reply();
            reply.array(digests.len());
            digests
                .iter()
                .for_each(|digest| reply.simple(&digest.to_string()));
        }
        (b"error", 3) => {
            // Its line ends become spaces, as in every error.
            caller.reply().error_bytes(&args[2]);
        }
        (b"listpack", 3) => {
            let elements = with_keys(worker, caller, |view| packed_elements(view, &args[2]))?;
            for (at, element) in elements?.iter().enumerate() {
                let element = String::from_utf8_lossy(element);
                crate::log::notice(&format!("DEBUG LISTPACK: {at}: {element:?}"));
            }
            caller
                .reply()
                .simple("Listpack structure printed on stdout");
        }
        (b"loadaof", 2) => {
            if worker.compound.is_some() {
                return Err(RELOAD_ALONE.into());
            }
            playback::load_in_place(worker, caller)?;
            crate::log::notice("Append Only File loaded by DEBUG LOADAOF");
            caller.reply().ok();
        }
        (b"log", 3) => {
            let message = String::from_utf8_lossy(&args[2]);
            crate::log::warning(&format!("DEBUG LOG: {message}"));
            caller.reply().ok();
        }
        (b"move-client", 4) => {
            move_client(worker, &args[2], &args[3])?;
            caller.reply().ok();
        }
        (b"object", 3) => {
            // At time 0 nothing has expired: everything in the table is shown.
            let text = with_keys_at(worker, caller, 0, |view| describe(view, &args[2]))?;
            caller.reply().simple(&text?);
        }
        (b"pause-cron", 3) => {
            let rest = is_on(&args[2]);
            worker.shared.timers_rest.store(rest, Ordering::Relaxed);
            caller.reply().ok();
        }
        (b"populate", 3..=5) => {
            let population = Population::parse(args)?;
            with_keys(worker, caller, |view| population.settle(view))?;
            caller.reply().ok();
        }
        (b"protocol", 3) => write_example(&mut caller.reply(), &args[2])?,
        (b"quicklist-packed-threshold", 3) => {
            let bytes = parse_memory(&args[2]).filter(|bytes| *bytes <= THRESHOLD_MAX);
            let bytes = bytes.ok_or(NO_THRESHOLD)? as usize;
            worker.shared.change_settings(|settings| {
                settings.limits.list_plain_node_bytes = (bytes > 0).then_some(bytes);
                Ok::<(), Error>(())
            })?;
            caller.reply().ok();
        }
        (b"replicate", 3..) => {
            if !replication::tell(worker.shared, args.from(2)) {
                return Err(Error::line("ERR There is no replica to be told anything").into());
            }
            caller.reply().ok();
        }
        (b"reload", _) => {
            reload(worker, caller, Reload::parse(args)?)?;
            caller.reply().ok();
        }
        (b"sleep", 3) => {
            const SECONDS_MAX: f64 = 1e6;
            let seconds = number::parse_f64(&args[2])
                .unwrap_or(0.0)
                .clamp(0.0, SECONDS_MAX);
            let span = Duration::from_secs_f64(seconds);
            worker.shared.following.hold(span);
            std::thread::sleep(span);
            // Inside EXEC and scripts time is constant.
            if worker.compound.is_none() {
                worker.read_clock();
            }
            caller.reply().ok();
        }
        (b"sdslen", 3) => {
            let text = with_keys_at(worker, caller, 0, |view| describe_string(view, &args[2]))?;
            caller.reply().simple(&text?);
        }
        (b"set-active-expire", 3) => {
            let on = is_on(&args[2]);
            worker.shared.active_expire.store(on, Ordering::Relaxed);
            caller.reply().ok();
        }
        (b"set-skip-checksum-validation", 3) => {
            let skipped = is_on(&args[2]);
            worker.shared.change_settings(|settings| {
                settings.limits.payload_checksum_skipped = skipped;
                Ok::<(), Error>(())
            })?;
            worker.refresh_if_changed();
            caller.reply().ok();
        }
        (b"set-disable-deny-scripts", 3) => {
            let on = is_on(&args[2]);
            worker.shared.scripts_may_look.store(on, Ordering::Relaxed);
            caller.reply().ok();
        }
        _ => {
            return Err(Error::wrong_subcommand_arity("DEBUG", &args[1]).into());
        }
    }
    Ok(())
}

/// Parses a switch, which is off unless it is a number other than 0.
fn is_on(word: &[u8]) -> bool {
    number::parse_i64(word).unwrap_or(0) != 0
}

/// Moves a client to another worker as soon as it is idle.
fn move_client(worker: &Worker, client: &[u8], to: &[u8]) -> Result<(), Error> {
    let workers = worker.shared.workers();
    let to = number::parse_i64(to).and_then(|to| usize::try_from(to).ok());
    let to = to.filter(|to| *to < workers.len()).ok_or(NO_SUCH_WORKER)?;
    let id = number::parse_i64(client).and_then(|id| u64::try_from(id).ok());
    let token = id.and_then(|id| worker.shared.token_of(id));
    let token = token.ok_or(NO_SUCH_CLIENT)?;
    let begin = move |worker: &mut Worker| handover::begin_to_hand_over(worker, token, to);
    workers[token.executor()]
        .mailbox
        .send(Message::Run(Box::new(begin)));
    Ok(())
}

/// Runs a function with the stripes of every key held. Inside EXEC the unit holds them already, by the row's scope. A
/// script takes the missing ones.
fn with_keys<R>(
    worker: &mut Worker,
    caller: &mut Caller,
    run: impl FnOnce(&mut View<'_>) -> R,
) -> Result<R, Halt> {
    with_keys_at(worker, caller, worker.now_ms, run)
}

/// Does the same as [`with_keys`] as of another time: keys that expire later still exist. 0: nothing has expired.
fn with_keys_at<R>(
    worker: &mut Worker,
    caller: &mut Caller,
    now_ms: i64,
    run: impl FnOnce(&mut View<'_>) -> R,
) -> Result<R, Halt> {
    let all = StripeSet::all();
    let mut alone = None;
    let mut compound = worker.compound.take();
    let unit = match &mut compound {
        None => alone.insert(units::take_set(worker.executor, caller, &all)?),
        Some(compound) => {
            compound.unit.add_set(&all);
            &mut compound.unit
        }
    };
    let mut view = unit.view(&mut worker.local, caller.db, now_ms);
    let result = run(&mut view);
    view.finish();
    worker.compound = compound;
    if !worker.local.events.is_empty() {
        let by = By::Client(&caller.info);
        worker.publish_events(by);
    }
    if let Some(unit) = alone {
        // Keys may have appeared for which clients wait.
        block::commit(worker.executor, unit);
    }
    Ok(result)
}

/// The options of RELOAD.
struct Reload {
    saves: bool,
    flushes: bool,
    merges: bool,
}

impl Reload {
    fn parse(args: Args<'_>) -> Result<Reload, Error> {
        let mut reload = Reload {
            saves: true,
            flushes: true,
            merges: false,
        };
        for option in args.iter().skip(2) {
            match option.to_ascii_lowercase().as_slice() {
                b"merge" => reload.merges = true,
                b"noflush" => reload.flushes = false,
                b"nosave" => reload.saves = false,
                _ => {
                    return Err(Error::line(
                        "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
                    ));
                }
            }
        }
        Ok(reload)
    }
}

/// Saves a snapshot and loads it. The call runs again from its start when the file is there.
fn reload(worker: &mut Worker, caller: &mut Caller, reload: Reload) -> Result<(), Halt> {
    if worker.compound.is_some() {
        return Err(RELOAD_ALONE.into());
    }
    if reload.saves && !persistence::save_for(worker, caller)? {
        return Err(Error::line("ERR").into());
    }
    let settings = worker.outlet.settings.clone();
    let path = Path::new(&settings.db_filename);
    let (clock, progress) = (worker.local.clock, Progress::default());
    // From here on, so that no snapshot is cut before what is loaded is published.
    let mut unit = units::take_set(worker.executor, caller, &StripeSet::all())?;
    let refused = |error: &dyn std::fmt::Display| {
        crate::log::warning(&format!("DEBUG RELOAD: {}: {error}", path.display()));
        NOT_RELOADED
    };
    let loaded = loading::load_file(
        path,
        worker.shared,
        &settings,
        clock,
        &progress,
        Expired::LeftOut,
    );
    let result = match loaded {
        Err(error) => Err(refused(&error)),
        Ok(file) if reload.flushes => {
            let published = loading::publish(worker, &mut unit, &file.space, &file.loaded);
            published.map_err(|error| refused(&error))
        }
        Ok(mut file) => merge(
            worker,
            &mut unit,
            &mut file.space,
            &file.loaded,
            reload.merges,
        ),
    };
    block::commit(worker.executor, unit);
    Ok(result?)
}

/// Moves what was loaded to what is there; `overwrites`: also where there is a key, or a library, of that name. The unit
/// holds every stripe.
fn merge(
    worker: &mut Worker,
    unit: &mut Unit<'_>,
    space: &mut Keyspace,
    loaded: &Loaded,
    overwrites: bool,
) -> Result<(), Error> {
    merge_libraries(worker.executor, &loaded.libraries, overwrites).map_err(|error| {
        crate::log::warning(&format!("DEBUG RELOAD: {error}"));
        NOT_RELOADED
    })?;
    let rng = fastrand::Rng::with_seed(worker.local.rng.u64(..));
    let mut other = Local::new(rng, worker.local.limits.clone());
    let databases: Vec<u32> = space.used_databases().collect();
    for db in databases {
        let mut from = Unit::exclusive(space);
        let mut from = from.view(&mut other, db, 0);
        let mut keys = Vec::new();
        from.database().for_each(|key, _| keys.push(key.to_vec()));
        let mut view = unit.view(&mut worker.local, db, 0);
        for key in keys {
            if !overwrites && view.find(&key, Trace::Quiet).is_some() {
                return Err(NOT_RELOADED);
            }
            if let Some((value, expire_at_ms)) = from.take(&key) {
                from.unreported(&key);
                view.put_owned(&key, value, expire_at_ms);
                view.touch_watchers(&key);
            }
        }
        from.finish();
        view.finish();
    }
    Ok(())
}

/// Returns DEBUG OBJECT's line.
fn describe(view: &View<'_>, key: &[u8]) -> Result<String, Error> {
    let found = view.find(key, Trace::Quiet).ok_or(NO_SUCH_KEY)?;
    let object = object_of(found.value());
    let address = match object {
        ObjectRef::String(bytes) => bytes.as_ptr() as usize,
        ObjectRef::Value(value) => std::ptr::from_ref(value) as usize,
    };
    let mut serialized = Writer::new(view.local.limits.payload_compressed);
    object::write(&mut serialized, object);
    let mut text = format!(
        "Value at:{address:#x} refcount:1 encoding:{} serializedlength:{} lru:{} lru_seconds_idle:{}",
        found.encoding(),
        serialized.len(),
        found.access_word(),
        found.idle_s(),
    );
    if let ObjectRef::Value(value @ Value::List(list)) = object
        && value.encoding() == "quicklist"
    {
        let nodes = list.nodes().count();
        let bytes: usize = list
            .nodes()
            .map(|node| match node {
                NodeRef::Packed(pack) => pack.listpack_bytes(),
                NodeRef::Plain(element) => element.len(),
            })
            .sum();
        text += &format!(
            " ql_nodes:{nodes} ql_avg_node:{:.2} ql_listpack_max:{} ql_compressed:0 ql_uncompressed_size:{bytes}",
            value.len() as f64 / nodes as f64,
            view.local.limits.list_max_listpack_size,
        );
    }
    Ok(text)
}

/// Returns DEBUG SDSLEN's line. A short string lies behind its key, in the same allocation.
fn describe_string(view: &View<'_>, key: &[u8]) -> Result<String, Error> {
    let found = view.find(key, Trace::Quiet).ok_or(NO_SUCH_KEY)?;
    let string = found.string().map_err(|_| NOT_A_STRING)?;
    if found.encoding() == "int" {
        return Err(NOT_A_STRING);
    }
    let (len, room) = match &string {
        StringRef::Inline { bytes, .. } => (bytes.len(), 0),
        StringRef::Blob(blob) => (blob.len(), blob.capacity()),
    };
    let all = found.memory_bytes();
    Ok(format!(
        "key_sds_len:{}, key_sds_avail:0, key_zmalloc: {}, val_sds_len:{len}, val_sds_avail:{}, val_zmalloc: {room}",
        key.len(),
        all.saturating_sub(room),
        room.saturating_sub(len),
    ))
}

fn packed_elements(view: &View<'_>, key: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let found = view.find(key, Trace::Quiet).ok_or(NO_SUCH_KEY)?;
    let pack = match found.value() {
        ValueRef::Object(value) => value.packed().and_then(PackedRef::pack),
        ValueRef::String(_) => None,
    };
    let pack = pack.ok_or(Error::line("ERR Not a listpack encoded object."))?;
    Ok(pack.iter().map(|element| element.to_vec()).collect())
}

/// Parameters of the keys that DEBUG POPULATE makes.
struct Population<'a> {
    count: u64,
    prefix: &'a [u8],
    /// Size of each value; 0: as long as its text.
    size: usize,
}

impl<'a> Population<'a> {
    fn parse(args: Args<'a>) -> Result<Population<'a>, Error> {
        let positive = |at: usize| {
            let number = args.get(at).map(number::parse_i64);
            number.map_or(Ok(0), |number| {
                number
                    .and_then(|number| u64::try_from(number).ok())
                    .ok_or(Error::NOT_POSITIVE)
            })
        };
        /// Largest size of one value: bytes.
        const SIZE_MAX: u64 = 512 << 20;
        Ok(Population {
            count: positive(2)?,
            prefix: args.get(3).unwrap_or(b"key"),
            size: positive(4)?.min(SIZE_MAX) as usize,
        })
    }

    fn settle(&self, view: &mut View<'_>) {
        for number in 0..self.count {
            let key = [self.prefix, b":", number.to_string().as_bytes()].concat();
            if view.find(&key, Trace::Quiet).is_some() {
                continue;
            }
            let mut value = format!("value:{number}").into_bytes();
            if self.size > 0 {
                value.resize(self.size, 0);
            }
            view.set_string(&key, &value, Expiry::Clear);
            view.touch_watchers(&key);
        }
    }
}

/// Writes an example of each type of reply.
fn write_example(reply: &mut Reply<'_>, what: &[u8]) -> Result<(), Error> {
    match what.to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12345),
        // Written so that lints do not take it for an inexact pi.
        b"double" => reply.double(3141.0 / 1000.0),
        b"bignum" => reply.big_number("1234567999999999999999999999999999999"),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|n| reply.integer(n));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|n| reply.integer(n));
        }
        b"map" => {
            reply.map(3);
            for n in 0..3 {
                reply.integer(n);
                reply.bool(n == 1);
            }
        }
        b"attrib" => {
            if reply.proto() == Proto::Resp3 {
                reply.attribute(1);
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" => {
            if reply.proto() != Proto::Resp3 {
                return Err(Error::line("ERR RESP2 is not supported by this command"));
            }
            reply.bulk(b"Some real reply following the push reply");
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
        }
        b"verbatim" => reply.verbatim("txt", b"This is a verbatim\nstring"),
        b"true" => reply.bool(true),
        b"false" => reply.bool(false),
        _ => {
            return Err(Error::line(
                "ERR Wrong protocol type name. Please use one of the following: string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}
