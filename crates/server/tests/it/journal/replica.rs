//! Another keyspace, which does what records say, and the contents of keyspaces as text.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use redline_commands::{Ctx, handler};
use redline_keyspace::{
    Keyspace, Local, Unit,
    lock::{Wake, WakeToken},
};
use redline_resp::{ArgsBuf, Proto, Reply, ReplyBuffer};

use super::DATABASES;

pub struct NobodyWaits;

impl Wake for NobodyWaits {
    fn wake(&self, _: WakeToken) {}
}

/// Another keyspace, which does what the records say. Its time stands still, so nothing expires of itself.
pub struct Replica {
    pub space: Keyspace,
    pub local: Local,
}

pub fn new_local() -> Local {
    Local::new(Rng::with_seed(1), redline_types::Limits::default())
}

impl Replica {
    pub fn new() -> Replica {
        Replica {
            space: Keyspace::new(DATABASES as usize, Box::new(NobodyWaits)),
            local: new_local(),
        }
    }
}

pub fn run(unit: &mut Unit<'_>, local: &mut Local, db: u32, words: &[&[u8]]) -> String {
    let args: ArgsBuf = words.iter().copied().collect();
    let args = args.as_args();
    let id = redline_spec::resolve(&args[0], args.get(1)).expect("a command of the table");
    let handler = handler(id).expect("a command of the data plane");
    let mut out = ReplyBuffer::new();
    let mut ctx = Ctx {
        keys: unit.view(local, db, 0),
        bulk_bytes_max: u64::MAX,
        in_script: false,
        reads_every_key: true,
        waiter: None,
    };
    let result = handler(&mut ctx, args, &mut Reply::new(&mut out, Proto::Resp2));
    ctx.keys.finish();
    let text = || String::from_utf8_lossy(words[0]).into_owned();
    assert!(
        result.is_ok(),
        "{}: {:?}",
        text(),
        result.err().map(|e| e.expect_error().text().into_owned())
    );
    local.garbage.clear();
    let bytes: Vec<u8> = out.chunks().flatten().copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Contents of a keyspace.
pub type Contents = BTreeMap<(u32, Vec<u8>), String>;

/// All keys with type, value and expiry, in a form that does not depend on how they are stored.
pub fn contents(unit: &mut Unit<'_>, local: &mut Local) -> Contents {
    let mut contents = BTreeMap::new();
    for db in 0..DATABASES {
        let mut keys = Vec::new();
        unit.view(local, db, 0)
            .database()
            .for_each(|key, value| keys.push((key.to_vec(), value.type_name())));
        for (key, kind) in keys {
            // Replies, cut into lines; where there is no order, sorted by this many lines.
            let (call, sort): (&[&[u8]], usize) = match kind {
                "string" => (&[b"GET", &key], 0),
                "list" => (&[b"LRANGE", &key, b"0", b"-1"], 0),
                "hash" => (&[b"HGETALL", &key], 4),
                "set" => (&[b"SMEMBERS", &key], 2),
                "zset" => (&[b"ZRANGE", &key, b"0", b"-1", b"WITHSCORES"], 0),
                "stream" => (&[b"XRANGE", &key, b"-", b"+"], 0),
                "vectorset" => (&[b"VCARD", &key], 0),
                "tairhash-" => (&[b"EXHGETALLWITHVER", &key], 5),
                "tairzset_" => (&[b"EXZRANGE", &key, b"0", b"-1", b"WITHSCORES"], 0),
                // Runs may be stored as such, or not.
                "tairroar-" => (&[b"TR.RANGE", &key, b"0", b"4294967295"], 0),
                _ => (&[b"DUMP", &key], 0),
            };
            let reply = run(unit, local, db, call);
            let mut value = reply.clone();
            if sort > 0 {
                let lines: Vec<&str> = reply.split("\r\n").skip(1).collect();
                let parts: BTreeSet<&[&str]> = lines.chunks(sort).collect();
                value = format!("{parts:?}");
            }
            if kind == "hash" {
                let mut fields: Vec<&str> = reply.split("\r\n").skip(2).step_by(4).collect();
                fields.sort_unstable();
                let count = fields.len().to_string();
                let mut call: Vec<&[u8]> = vec![b"HPEXPIRETIME", &key, b"FIELDS", count.as_bytes()];
                call.extend(fields.iter().map(|field| field.as_bytes()));
                value += &run(unit, local, db, &call);
            }
            if kind == "vectorset" {
                let members = run(unit, local, db, &[b"VRANDMEMBER", &key, b"9999"]);
                let mut members: Vec<&str> = members.split("\r\n").skip(2).step_by(2).collect();
                members.sort_unstable();
                for member in members {
                    for call in [&b"VEMB"[..], b"VGETATTR"] {
                        value += &run(unit, local, db, &[call, &key, member.as_bytes()]);
                    }
                }
            }
            if kind == "stream" {
                let groups = run(unit, local, db, &[b"XINFO", b"GROUPS", &key]);
                if !groups.starts_with("*0") {
                    value += &run(
                        unit,
                        local,
                        db,
                        &[b"XPENDING", &key, b"g", b"-", b"+", b"9999"],
                    );
                }
                value += &groups;
            }
            let expiry = run(unit, local, db, &[b"PEXPIRETIME", &key]);
            contents.insert((db, key), format!("{kind} {value} {expiry}"));
        }
    }
    contents
}
