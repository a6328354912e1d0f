//! Tair's exStrings, exHashes, exZsets, areas and timelines as values among others: files, replicas, expiry, copies, events, rights. What single
//! calls answer is in `types_replay`.

use crate::client::{Client, Value, settings, start, until};
use redline_server::{Permission, Server, Settings};

const FILL: &[&str] = &[
    "EXSET string value FLAGS 7",
    "EXSET string other EXAT 99999999999",
    "EXSET empty x",
    "EXHSET hash a 1 ABS 300",
    "EXHSET hash b 2 PXAT 99999999999000",
    "EXHSET hash c 3 EX 1000",
    "EXZADD zset 1#2#3 a 1#2.5#-inf b -0#1e-7#1e300 c",
    "EXZADD plain 1 a 2 b",
    "EXTS.S.MADD lines 2 a 1000 1.5 b 1000 2 CHUNK_SIZE 4 LABELS place x",
    "EXTS.S.ADD lines c 1000 1e300 UNCOMPRESSED DATA_ET 500",
    "EXTS.S.CREATE lines d",
];

fn server(folder: &tempfile::TempDir) -> Server {
    let file = folder.path().join("dump.rdb");
    start(Settings {
        enable_debug_command: Permission::Yes,
        db_filename: file.to_str().unwrap().into(),
        ..settings(2)
    })
}

fn filled() -> (Server, Client, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    let mut client = Client::connect(&server);
    for call in FILL {
        let reply = client.call(call);
        assert!(!matches!(reply, Value::Error(_)), "{call}: {reply:?}");
    }
    let script = b"for i = 1, 2000 do
        redis.call('exhset', 'large hash', 'f' .. i, i, 'ABS', i)
        redis.call('exzadd', 'large zset', i % 7 .. '#' .. i, 'm' .. i)
        redis.call('exts.s.add', 'large lines', 'l' .. i % 20, i, i % 7 / 8, 'CHUNK_SIZE', 8)
        redis.call('gis.add', 'large area', 'g' .. i, 'POINT(' .. i % 90 .. ' ' .. i % 47 .. '.5)')
    end
    redis.call('gis.add', 'area', 'a', 'POLYGON((0 0,5 0,5 5))', 'b', 'LINESTRING EMPTY')";
    client.call_args(&[b"EVAL", script, b"0"]);
    (server, client, folder)
}

fn digest(client: &mut Client) -> Value {
    client.call("DEBUG DIGEST")
}

#[test]
fn a_file_brings_every_type_back() {
    let (_server, mut client, _folder) = filled();
    let before = digest(&mut client);
    client.call("DEBUG RELOAD").ok();
    assert_eq!(digest(&mut client), before);
    let versions = client.call("EXHMGETWITHVER hash a b c");
    let versions: Vec<i64> = versions
        .array()
        .iter()
        .map(|v| v.array()[1].integer())
        .collect();
    assert_eq!(versions, [300, 1, 1]);
    let score = client.call("EXZSCORE zset c");
    assert_eq!(
        score,
        Value::Bulk(b"-0#9.9999999999999995e-08#1.0000000000000001e+300".into())
    );
    let rank = client.call_args(&[b"EXZRANK", b"large zset", b"m7"]);
    assert_eq!(rank.integer(), 0);
}

#[test]
fn what_is_dumped_is_restored_and_copies_are_equal() {
    let (_server, mut client, _folder) = filled();
    // A digest tells of an expiry, of which a payload does not.
    client.call("PERSIST string");
    let keys: [&[u8]; 10] = [
        b"string",
        b"hash",
        b"zset",
        b"plain",
        b"large hash",
        b"large zset",
        b"area",
        b"large area",
        b"lines",
        b"large lines",
    ];
    for key in keys {
        let told =
            |client: &mut Client, key: &[u8]| client.call_args(&[b"DEBUG", b"DIGEST-VALUE", key]);
        let before = told(&mut client, key);
        let Value::Bulk(payload) = client.call_args(&[b"DUMP", key]) else {
            panic!("a payload");
        };
        client
            .call_args(&[b"RESTORE", b"restored", b"0", &payload, b"REPLACE"])
            .ok();
        assert_eq!(told(&mut client, b"restored"), before);
        client.call("DEL copied");
        assert_eq!(client.call_args(&[b"COPY", key, b"copied"]).integer(), 1);
        assert_eq!(told(&mut client, b"copied"), before);
        let bytes = client.call("MEMORY USAGE copied").integer();
        assert!(bytes > 40, "{bytes}");
        client.call("RENAME copied renamed").ok();
        assert_eq!(told(&mut client, b"renamed"), before);
        // Damaged anywhere, it is refused or restored; the server goes on.
        client.call("DEBUG SET-SKIP-CHECKSUM-VALIDATION 1").ok();
        for at in (0..payload.len() - 10).step_by(payload.len() / 64 + 1) {
            let mut damaged = payload.clone();
            damaged[at] ^= 0x41;
            client.call_args(&[b"RESTORE", b"damaged", b"0", &damaged, b"REPLACE"]);
        }
        client.call("DEBUG SET-SKIP-CHECKSUM-VALIDATION 0").ok();
    }
}

#[test]
fn a_count_of_more_members_than_bytes_is_refused() {
    let (_server, mut client, _folder) = filled();
    client.call("DEBUG SET-SKIP-CHECKSUM-VALIDATION 1").ok();
    for (key, count_at) in [("hash", 10), ("zset", 10), ("area", 10), ("lines", 10)] {
        let Value::Bulk(payload) = client.call(&format!("DUMP {key}")) else {
            panic!("a payload");
        };
        assert_eq!(payload[count_at], 2, "the kind of the count");
        // The count takes one byte; now nine.
        let mut large = payload[..=count_at].to_vec();
        large.extend([0x81, 0x7f, 255, 255, 255, 255, 255, 255, 255]);
        large.extend(&payload[count_at + 2..]);
        let reply = client.call_args(&[b"RESTORE", b"large", b"0", &large]);
        assert_eq!(reply.error(), "ERR Bad data format", "{key}");
    }
}

#[test]
fn fields_expire_and_the_key_goes_with_the_last_one() {
    let (_server, mut client, _folder) = filled();
    client.call("CONFIG SET notify-keyspace-events KEA").ok();
    let mut events = Client::connect(&_server);
    events.call("PSUBSCRIBE __keyspace@0__:due");
    client.call("EXHSET due f v PX 1");
    until("it has expired", || {
        client.call("EXISTS due").integer() == 0
    });
    assert_eq!(client.call("EXHGET due f"), Value::Nil);
    let event = |events: &mut Client| match &events.read().array()[3] {
        Value::Bulk(event) => String::from_utf8(event.clone()).unwrap(),
        other => panic!("no event: {other:?}"),
    };
    let mut told = [event(&mut events), event(&mut events), event(&mut events)];
    if told[1] == "del" {
        told[2] = "no more".into();
    }
    assert_eq!(told, ["exhset", "exhexpired", "del"]);
}

#[test]
fn an_expired_field_is_not_there_before_it_is_removed() {
    let (_server, mut client, _folder) = filled();
    client.call("DEBUG SET-ACTIVE-EXPIRE 0").ok();
    client.call("EXHSET due f v ABS 9 PX 1");
    client.call("EXHSET due g w");
    until("its time is over", || {
        client.call("EXHGET due f") == Value::Nil
    });
    assert_eq!(client.call("EXHLEN due").integer(), 2);
    assert_eq!(client.call("EXHLEN due NOEXP").integer(), 1);
    assert_eq!(client.call("EXHKEYS due").array().len(), 1);
    assert_eq!(client.call("EXHTTL due f").integer(), -3);
    assert_eq!(client.call("EXHDEL due f").integer(), 0);
    assert_eq!(client.call("EXHINCRBY due f 5").integer(), 5);
    assert_eq!(
        client.call("EXHVER due f").integer(),
        1,
        "it is a new field"
    );
    assert_eq!(client.call("EXHPTTL due f").integer(), -1);
}

#[test]
fn a_blocked_client_is_served_by_exzadd() {
    let (server, mut client, _folder) = filled();
    let mut waiting = Client::connect(&server);
    waiting.send("EXBZPOPMAX queue 0");
    until("it waits", || {
        let Value::Bulk(info) = client.call("INFO clients") else {
            panic!("a text");
        };
        String::from_utf8(info)
            .unwrap()
            .contains("blocked_clients:1\r\n")
    });
    client.call("EXZADD queue 1#1 a 1#2 b");
    let bulk = |text: &str| Value::Bulk(text.into());
    let served = [bulk("queue"), bulk("b"), bulk("1#2")];
    assert_eq!(waiting.read().array(), served);
    assert_eq!(client.call("EXZCARD queue").integer(), 1);
}

#[test]
fn popping_scores_of_other_numbers_of_parts_than_before_works() {
    let (_server, mut client, _folder) = filled();
    client.call("EXZADD turn 1#2 a");
    client.call("EXZREM turn a");
    client.call("EXZADD turn 1 a");
    client.call("EXZREMRANGEBYRANK turn 0 -1");
    client.call("EXZADD turn 3#2#1 b");
    assert_eq!(client.call("EXZPOPMIN turn").array().len(), 2);
    assert_eq!(client.call("EXISTS turn").integer(), 0);
}

#[test]
fn rights_and_lists_know_the_types() {
    let (_server, mut client, _folder) = filled();
    for (category, command) in [
        ("tair", "exset"),
        ("tairstring", "exget"),
        ("tairhash", "exhset"),
        ("tairzset", "exzadd"),
        ("tairgis", "gis.add"),
        ("tairts", "exts.s.add"),
    ] {
        let names = client.call(&format!("ACL CAT {category}"));
        let name = Value::Bulk(command.into());
        assert!(names.array().contains(&name), "{category}");
    }
    client
        .call("ACL SETUSER reader on nopass ~* -@all +@read")
        .ok();
    client.call("AUTH reader x").ok();
    assert_eq!(client.call("EXHLEN hash").integer(), 3);
    assert!(client.call("EXHDEL hash a").error().starts_with("NOPERM"));
    let mut client = Client::connect(&_server);
    let modules = client.call("MODULE LIST");
    let names: Vec<&Value> = modules
        .array()
        .iter()
        .map(|module| &module.array()[1])
        .collect();
    for name in [
        "vectorset",
        "exstrtype",
        "tairhash",
        "tairzset",
        "tairgis",
        "tairts",
    ] {
        assert!(names.contains(&&Value::Bulk(name.into())), "{name}");
    }
    assert_eq!(
        client.call("SCAN 0 COUNT 1000 TYPE tairhash-").array()[1]
            .array()
            .len(),
        2
    );
}
