//! Every command of the data plane and of the session plane, run by an executor without a socket.

use std::collections::BTreeMap;

use redline_resp::Value;
use redline_spec::{CommandId, Flags, Plane, Row, gate, table};
use redline_testkit::generate::Generator;

use super::{Outcome, Runner};
use crate::world::Stage;

/// Number of calls of each command.
const CALLS: usize = 120;

/// Calls that succeed where none that is made from the grammar does: they need existing objects.
const PREPARED: &[(&str, &[&str])] = &[
    ("client|kill", &["CLIENT KILL ID 999999 SKIPME yes"]),
    // Later calls would wait after any longer pause.
    ("client|pause", &["CLIENT PAUSE 0 WRITE"]),
    (
        "client|caching",
        &["CLIENT TRACKING ON OPTIN", "CLIENT CACHING yes"],
    ),
    ("discard", &["MULTI", "DISCARD"]),
    ("exec", &["MULTI", "SET k v", "EXEC"]),
    (
        "evalsha",
        &[
            "SCRIPT LOAD return|1",
            "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
        ],
    ),
    (
        "evalsha_ro",
        &[
            "SCRIPT LOAD return|1",
            "EVALSHA_RO e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
        ],
    ),
    (
        "script|show",
        &[
            "SCRIPT LOAD return|1",
            "SCRIPT SHOW e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
        ],
    ),
    (
        "fcall",
        &[
            "FUNCTION FLUSH",
            "FUNCTION LOAD #!lua|name=l\nredis.register_function{function_name='f',callback=function()|return|1|end,flags={'no-writes'}}",
            "FCALL f 0",
        ],
    ),
    ("fcall_ro", &["FCALL_RO f 0"]),
    (
        "function|load",
        &[
            "FUNCTION LOAD REPLACE #!lua|name=l\nredis.register_function('f',function()|return|1|end)",
        ],
    ),
    ("function|delete", &["FUNCTION DELETE l"]),
    ("hello", &["HELLO 3"]),
    ("restore", &["SET k v", "DUMP k", "RESTORE fresh 0 <last>"]),
    (
        "restore-asking",
        &["SET k v", "DUMP k", "RESTORE-ASKING fresher 0 <last>"],
    ),
    (
        "function|restore",
        &["FUNCTION DUMP", "FUNCTION RESTORE <last> FLUSH"],
    ),
    (
        "xclaim",
        &[
            "XGROUP CREATE stream g $ MKSTREAM",
            "XCLAIM stream g c 0 1-1",
        ],
    ),
    (
        "xreadgroup",
        &[
            "XGROUP CREATE stream3 g $ MKSTREAM",
            "XREADGROUP GROUP g c STREAMS stream3 >",
        ],
    ),
    (
        "xautoclaim",
        &[
            "XGROUP CREATE stream2 g $ MKSTREAM",
            "XAUTOCLAIM stream2 g c 0 0",
        ],
    ),
];

/// Commands that refuse every call here: there is no cluster, no password, no script to kill.
const REFUSED: &[&str] = &[
    "asking",
    "readonly",
    "readwrite",
    "auth",
    "function|kill",
    "script|kill",
];

/// Commands of the types that other servers have in modules want values of their own forms: recorded calls run them, over a
/// socket (`types_replay` of the server's tests). Vector sets are here.
fn is_run_here(row: &&'static Row) -> bool {
    let is_of_module = row.flags.has(Flags::MODULE)
        && redline_spec::Module::of(row).is_some_and(|module| module.name != "vectorset");
    matches!(gate(row.id).plane, Plane::Data | Plane::Session) && !is_of_module
}

fn may_wait(row: &Row) -> bool {
    row.flags.has(Flags::BLOCKING) || matches!(row.id, CommandId::Wait | CommandId::Waitaof)
}

#[test]
fn every_command_runs_without_a_socket() {
    let stage = Stage::new(1);
    let mut runner = Runner::new(&stage, 1);
    let mut generator = Generator::new(1);
    let mut refusals: BTreeMap<&str, String> = BTreeMap::new();
    let rows: Vec<&Row> = table::all().iter().filter(is_run_here).collect();
    assert!(
        rows.len() > 250,
        "of the table only {} commands",
        rows.len()
    );
    // In turns, so that they use each other's data.
    let mut works = vec![false; rows.len()];
    let mut tell = |works: &mut bool, row: &Row, outcome: &Outcome| match outcome {
        Outcome::Suspended => {
            assert!(may_wait(row), "{} waits", row.full_name);
            *works = true;
        }
        Outcome::Replies(replies) => match replies.iter().find(|reply| reply.is_error()) {
            Some(Value::Error(line)) => {
                let line = String::from_utf8_lossy(line).into_owned();
                refusals.entry(row.full_name).or_insert(line);
            }
            _ => *works |= !replies.is_empty(),
        },
    };
    for _ in 0..CALLS {
        let others = |(row, _): &(&&Row, &mut bool)| row.id != CommandId::ClientPause;
        for (row, works) in rows.iter().zip(&mut works).filter(others) {
            let outcome = runner.call(generator.call_of(row));
            tell(works, row, &outcome);
            // No transaction, subscription or CLIENT REPLY is left for the next.
            runner.renew();
        }
    }
    for (name, calls) in PREPARED {
        let at = rows.iter().position(|row| row.full_name == *name);
        let at = at.unwrap_or_else(|| panic!("no command {name}"));
        let mut outcome = Outcome::Replies(Vec::new());
        for call in *calls {
            let last = match &outcome {
                Outcome::Replies(replies) => replies.first().and_then(Value::as_bytes),
                Outcome::Suspended => None,
            };
            let last = last.unwrap_or_default().to_vec();
            outcome = runner.call(call.split(' ').map(|word| match word {
                "<last>" => last.clone(),
                word => word.replace('|', " ").into_bytes(),
            }));
        }
        tell(&mut works[at], rows[at], &outcome);
        runner.renew();
    }
    let failed = rows.iter().zip(&works).filter(|(_, works)| !**works);
    let failed: Vec<&str> = failed.map(|(row, _)| row.full_name).collect();
    let why: Vec<_> = failed
        .iter()
        .map(|name| (name, refusals.get(name)))
        .collect();
    assert_eq!(failed, REFUSED, "{why:#?}");
}

/// A client knows the record that its own calls have led to, for WAIT and WAITAOF.
#[test]
fn a_client_knows_its_last_record() {
    let stage = Stage::new(1);
    let mut runner = Runner::new(&stage, 1);
    let journal = stage.engine.keyspace.journal();
    let own = |runner: &mut Runner<'_>, line: &[&str]| {
        assert_ne!(runner.call(line), Outcome::Suspended, "{line:?}");
        let client = runner.executor.outlet.places[0].client.as_ref();
        client.expect("it is kept").caller.own_record
    };
    assert_eq!(own(&mut runner, &["SET", "k", "v"]), 0, "no stream");
    let stream = redline_keyspace::journal::RecordReader::new(|_| ());
    let attached = stage.engine.keyspace.try_attach_stream(Box::new(stream));
    assert!(attached.is_ok());
    let library = "#!lua name=l\nredis.register_function('f', function() return 1 end)";
    let calls: [(&[&str], u64); 9] = [
        (&["SET", "k", "v"], 1),
        (&["GET", "k"], 1),
        (&["MSET", "a", "1", "b", "2"], 2),
        (&["EVAL", "return redis.call('incr', 'a')", "0"], 3),
        (&["PUBLISH", "c", "m"], 4),
        (&["FUNCTION", "LOAD", library], 5),
        (&["MULTI"], 5),
        (&["INCR", "a"], 5),
        (&["EXEC"], 6),
    ];
    for (line, expected) in calls {
        assert_eq!(own(&mut runner, line), expected, "{line:?}");
        assert_eq!(journal.last(), expected, "{line:?}");
    }
    // Another client has none.
    runner.renew();
    assert_eq!(own(&mut runner, &["GET", "k"]), 0);
}
