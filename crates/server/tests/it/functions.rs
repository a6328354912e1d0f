//! Libraries of functions and read-only scripts, against several workers. The errors are those of Redis 8.2.3.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::client::{self, Client, Value, settings, start, until};

fn load(client: &mut Client, options: &[&str], code: &str) -> Value {
    let mut words: Vec<&[u8]> = vec![b"FUNCTION", b"LOAD"];
    words.extend(options.iter().map(|option| option.as_bytes()));
    words.push(code.as_bytes());
    client.call_args(&words)
}

fn returning(n: usize) -> String {
    format!("#!lua name=lib\nredis.register_function('f', function() return {n} end)")
}

/// Texts with the errors that FUNCTION LOAD answers to them, and Redis with it.
const REFUSED: &[(&str, &str)] = &[
    ("return 1", "Missing library metadata"),
    ("#!lua name=x", "Invalid library metadata"),
    ("#!lua name='x\n", "Invalid library metadata"),
    ("#!lua\n", "Library name was not given"),
    (
        "#!lua name=x name=y\n",
        "Invalid metadata value, name argument was given multiple times",
    ),
    (
        "#!lua name=x foo=y\n",
        "Invalid metadata value given: foo=y",
    ),
    ("#!foo name=x\n", "Engine 'foo' not found"),
    ("#!lua name=x\n", "No functions registered"),
    (
        "#!lua name=x-y\n",
        "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
    ),
    (
        "#!lua name=x\nsyntax error here",
        "Error compiling function: user_function:2: '=' expected near 'error'",
    ),
    (
        "#!lua name=x\nreturn pairs",
        "Error registering functions: ERR user_function:2: Script attempted to access nonexistent global variable 'pairs'",
    ),
    (
        "#!lua name=x\nredis.call('get', 'x')",
        "Error registering functions: ERR user_function:2: Script attempted to access nonexistent global variable 'call'",
    ),
    (
        "#!lua name=x\nfoo = 1",
        "Error registering functions: ERR user_function:2: Attempt to modify a readonly table",
    ),
    (
        "#!lua name=x\nredis.register_function()",
        "Error registering functions: ERR wrong number of arguments to redis.register_function",
    ),
    (
        "#!lua name=x\nredis.register_function('a')",
        "Error registering functions: ERR calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
    ),
    (
        "#!lua name=x\nredis.register_function('a', 1)",
        "Error registering functions: ERR second argument to redis.register_function must be a function",
    ),
    (
        "#!lua name=x\nredis.register_function{function_name='a'}",
        "Error registering functions: ERR redis.register_function must get a callback argument",
    ),
    (
        "#!lua name=x\nredis.register_function{callback=function() end}",
        "Error registering functions: ERR redis.register_function must get a function name argument",
    ),
    (
        "#!lua name=x\nredis.register_function{function_name='a', callback=function() end, flags={'foo'}}",
        "Error registering functions: ERR unknown flag given",
    ),
    (
        "#!lua name=x\nredis.register_function{function_name='a', callback=function() end, foo=1}",
        "Error registering functions: ERR unknown argument given to redis.register_function",
    ),
    (
        "#!lua name=x\nredis.register_function('a', function() end) redis.register_function('A', function() end)",
        "Error registering functions: ERR Function already exists in the library",
    ),
    (
        "#!lua name=x\nwhile true do end",
        "Error registering functions: ERR FUNCTION LOAD timeout",
    ),
];

#[test]
fn stats_were_silent_before_a_function_was_busy() {
    let server = start(settings(2));
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    let code = b"#!lua name=l\nredis.register_function{function_name='f', callback=function() while true do end end, flags={'no-writes'}}";
    client.call_args(&[b"FUNCTION", b"LOAD", code]);
    client.send("FCALL f 0");
    // The threshold is five seconds.
    let running = |stats: &Value| stats.array()[1].clone();
    let mut seen = running(&other.call("FUNCTION STATS"));
    until("it is seen", || {
        seen = running(&other.call("FUNCTION STATS"));
        seen != Value::Nil
    });
    assert_eq!(seen.array()[1], Value::Bulk(b"f".to_vec()));
    other.call("CONFIG SET busy-reply-threshold 50").ok();
    other.call("FUNCTION KILL").ok();
    assert!(client.read().error().contains("killed by user"));
    assert_eq!(running(&other.call("FUNCTION STATS")), Value::Nil);
}

#[test]
fn stats_and_kill_called_a_script_busy_long_before_the_threshold() {
    let server = start(settings(2));
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    let code = b"#!lua name=l\nredis.register_function{function_name='f', callback=function() while true do end end, flags={'no-writes'}}";
    client.call_args(&[b"FUNCTION", b"LOAD", code]);
    // A function shows when a script is noticed: as soon, another script is.
    client.send("FCALL f 0");
    until("it is noticed", || {
        other.call("FUNCTION STATS").array()[1] != Value::Nil
    });
    assert!(other.call("SCRIPT KILL").error().starts_with("NOTBUSY "));
    other.call("FUNCTION KILL").ok();
    client.read().error();

    client.write(&client::encode(&[b"EVAL", b"while true do end", b"0"]));
    // Longer than it takes to be noticed.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(200) {
        assert_eq!(other.call("FUNCTION STATS").array()[1], Value::Nil);
    }
    assert!(other.call("FUNCTION KILL").error().starts_with("NOTBUSY "));
    other.call("CONFIG SET busy-reply-threshold 50").ok();
    until(
        "it is busy",
        || matches!(other.call("FUNCTION STATS"), Value::Error(error) if error.starts_with("BUSY ")),
    );
    other.call("SCRIPT KILL").ok();
    client.read().error();
}

#[test]
fn what_is_no_library_is_refused_as_redis_does() {
    let server = start(settings(1));
    let mut client = Client::connect(&server);
    for (code, error) in REFUSED {
        let reply = load(&mut client, &[], code);
        assert_eq!(reply.error(), format!("ERR {error}"), "{code}");
    }
    assert_eq!(client.call("FUNCTION LIST").array().len(), 0);
    // What a text had registered before it failed is gone, and its globals with it.
    let late =
        "#!lua name=x\nredis.register_function('f', function() return pcall and 1 end) x = 1";
    load(&mut client, &[], late).error();
    assert_eq!(client.call("FCALL f 0").error(), "ERR Function not found");
    load(&mut client, &[], &late.replace("x = 1", ""));
    assert_eq!(client.call("FCALL F 0"), Value::Integer(1));
}

/// Code that a library of Valkey's runs while it is loaded, with the answers of FUNCTION LOAD; of Valkey 9.1.2.
const VALKEYS: &[(&str, &str)] = &[
    (
        "server.register_function()",
        "Error registering functions: ERR wrong number of arguments to server.register_function",
    ),
    (
        "server.register_function('f')",
        "Error registering functions: ERR calling server.register_function with a single argument is only applicable to Lua table (representing named arguments).",
    ),
    (
        "server.register_function({}, 1)",
        "Error registering functions: ERR first argument to server.register_function must be a string",
    ),
    (
        "server.register_function('f', 1)",
        "Error registering functions: ERR second argument to server.register_function must be a function",
    ),
    (
        "server.register_function('a.b', function() end)",
        "Function names can only contain letters, numbers, or underscores(_) and must be at least one character long",
    ),
    (
        "server.register_function('f', function() end) server.register_function('F', function() end)",
        "Function already exists in the library",
    ),
    (
        "server.register_function{}",
        "Error registering functions: ERR server.register_function must get a function name argument",
    ),
    (
        "server.register_function{function_name = 'f'}",
        "Error registering functions: ERR server.register_function must get a callback argument",
    ),
    (
        "server.register_function{function_name = 'f', callback = 1}",
        "Error registering functions: ERR callback argument given to server.register_function must be a function",
    ),
    (
        "server.register_function{flags = 1}",
        "Error registering functions: ERR flags argument to server.register_function must be a table representing function flags",
    ),
    (
        "server.register_function{nosuch = 1}",
        "Error registering functions: ERR unknown argument given to server.register_function",
    ),
    (
        "server.call('get', 'k')",
        "Error registering functions: ERR user_function:2: Script attempted to access nonexistent global variable 'call'",
    ),
    (
        "server.x = 1",
        "Error registering functions: ERR user_function:2: Attempt to modify a readonly table",
    ),
    (
        "server = 1",
        "Error registering functions: ERR user_function:2: Attempt to modify a readonly table",
    ),
];

#[test]
fn libraries_of_valkey_found_no_table_of_theirs() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    for (body, text) in VALKEYS {
        let code = format!("#!lua name=lib\n{body}");
        assert_eq!(
            load(&mut client, &[], &code).error(),
            format!("ERR {text}"),
            "{body}"
        );
    }
    let code = "#!LUA name=lib
        local at_load = {server.SERVER_NAME, server.VALKEY_VERSION, server.LOG_NOTICE}
        server.log(server.LOG_DEBUG, 'loaded')
        server.register_function('set', function(keys, args) return server.call('SET', keys[1], args[1]) end)
        server.register_function{
            function_name = 'get', flags = {'no-writes'}, description = 'reads',
            callback = function(keys) return {server.pcall('GET', keys[1]), at_load[1], at_load[2], at_load[3]} end,
        }
        redis.register_function('wrong', function() return server.call('nosuch') end)
        redis.register_function('denied', function() return server.call('subscribe', 'c') end)
        redis.register_function('late', function() return type(server.register_function) .. type(server.breakpoint) end)";
    assert_eq!(
        load(&mut client, &["REPLACE"], code),
        Value::Bulk(b"lib".to_vec())
    );
    client.call("FCALL set 1 k v").ok();
    let read = client.call("FCALL_RO get 1 k");
    assert_eq!(
        read.array(),
        [
            Value::Bulk(b"v".to_vec()),
            Value::Bulk(b"redline".to_vec()),
            Value::Bulk(b"9.1.2".to_vec()),
            Value::Integer(2),
        ]
    );
    assert_eq!(
        client.call("FCALL wrong 0").error(),
        "ERR Unknown command called from script script: wrong, on @user_function:9."
    );
    assert_eq!(
        client.call("FCALL denied 0").error(),
        "ERR This Valkey command is not allowed from script script: denied, on @user_function:10."
    );
    assert_eq!(client.call("FCALL late 0"), Value::Bulk(b"nilnil".to_vec()));
    let wrong = client.call_args(&[b"EVAL", b"return server.call('get')", b"0"]);
    assert!(
        wrong
            .error()
            .starts_with("ERR Wrong number of args calling command from script script: ")
    );
}

#[test]
fn once_a_library_is_loaded_no_worker_runs_the_old_one() {
    let server = start(settings(4));
    let mut callers: Vec<Client> = (0..8).map(|_| Client::connect(&server)).collect();
    let mut loader = Client::connect(&server);
    for n in 0..200 {
        load(&mut loader, &["REPLACE"], &returning(n));
        for caller in &mut callers {
            assert_eq!(caller.call("FCALL f 0"), Value::Integer(n as i64));
        }
    }
    loader.call("FUNCTION DELETE lib").ok();
    for caller in &mut callers {
        assert_eq!(caller.call("FCALL f 0").error(), "ERR Function not found");
    }
}

#[test]
fn what_a_library_keeps_is_the_same_for_all_workers() {
    const CALLS: i64 = 500;
    let server = start(settings(4));
    let mut client = Client::connect(&server);
    let counter = "#!lua name=lib\nlocal n = 0 redis.register_function('f', function() n = n + 1 return n end)";
    load(&mut client, &[], counter);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = Client::connect(&server);
                for _ in 0..CALLS {
                    client.call("FCALL f 0").integer();
                }
            });
        }
    });
    assert_eq!(client.call("FCALL f 0"), Value::Integer(8 * CALLS + 1));
}

#[test]
fn flags_decide_what_may_be_called_how() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    let code = "#!lua name=lib\n\
        redis.register_function('w', function(k) return redis.call('set', k[1], 'v') end)\n\
        redis.register_function{function_name='r', callback=function(k) return redis.call('get', k[1]) end, flags={'no-writes'}}\n\
        redis.register_function{function_name='rw', callback=function(k) return redis.call('set', k[1], 'v') end, flags={'no-writes'}}";
    load(&mut client, &[], code);
    let refused = "ERR Can not execute a script with write flag using *_ro command.";
    client.call("FCALL w 1 k").ok();
    assert_eq!(client.call("FCALL_RO w 1 k").error(), refused);
    assert_eq!(client.call("FCALL_RO r 1 k"), Value::Bulk(b"v".to_vec()));
    assert_eq!(
        client.call("FCALL rw 1 k").error(),
        "ERR Write commands are not allowed from read-only scripts. script: rw, on @user_function:4."
    );
    assert_eq!(
        client.call("FCALL r x").error(),
        "ERR Bad number of keys provided"
    );
    let flagged = client.call_args(&[b"EVAL_RO", b"#!lua\nreturn 1", b"0"]);
    assert_eq!(flagged.error(), refused);
    let reading = client.call_args(&[b"EVAL_RO", b"return redis.call('get', KEYS[1])", b"1", b"k"]);
    assert_eq!(reading, Value::Bulk(b"v".to_vec()));
    let writing = client.call_args(&[b"EVAL_RO", b"return redis.call('del', KEYS[1])", b"1", b"k"]);
    assert!(
        writing
            .error()
            .starts_with("ERR Write commands are not allowed from read-only scripts."),
        "{writing:?}"
    );
    for call in ["publish', 'c', 'm", "pfcount', 'hll"] {
        let script = format!("return redis.call('{call}')");
        let published = client.call_args(&[b"EVAL_RO", script.as_bytes(), b"0"]);
        assert!(
            published
                .error()
                .starts_with("ERR Write commands are not allowed from read-only scripts."),
            "{call}: {published:?}"
        );
    }
    client.call("CONFIG SET maxmemory 1").ok();
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(client.call("FCALL w 1 k").error(), oom);
    assert_eq!(client.call("FCALL r 1 k"), Value::Bulk(b"v".to_vec()));
    let allowed = b"#!lua flags=allow-oom\nreturn redis.call('set', KEYS[1], 'w')";
    client.call_args(&[b"EVAL", allowed, b"1", b"k"]).ok();
}

#[test]
fn a_script_that_needs_memory_was_queued_without_any() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    let code = "#!lua name=lib\n\
        redis.register_function('w', function(k) return 1 end)\n\
        redis.register_function{function_name='r', callback=function(k) return 2 end, flags={'no-writes'}}";
    load(&mut client, &[], code);
    client.call("CONFIG SET maxmemory 1").ok();
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    for call in [["EVAL", "#!lua\nreturn 1", "0"], ["FCALL", "w", "0"]] {
        client.call("MULTI").ok();
        assert_eq!(client.call_args(&call.map(str::as_bytes)).error(), oom);
        assert!(client.call("EXEC").error().starts_with("EXECABORT "));
    }
    // What declares nothing is judged by its calls, and a reader needs none.
    let queued = [
        ["EVAL", "return 1", "0"],
        ["EVAL", "#!lua flags=no-writes\nreturn 1", "0"],
        ["EVAL", "#!lua flags=allow-oom\nreturn 1", "0"],
        ["FCALL", "r", "0"],
    ];
    client.call("MULTI").ok();
    for call in queued {
        let reply = client.call_args(&call.map(str::as_bytes));
        assert_eq!(reply, Value::Simple("QUEUED".to_owned()), "{call:?}");
    }
    let replies = [1, 1, 1, 2].map(Value::Integer);
    assert_eq!(client.call("EXEC"), Value::Array(replies.to_vec()));
    // Memory may be gone by the time of EXEC.
    client.call("CONFIG SET maxmemory 0").ok();
    client.call("MULTI").ok();
    client.call_args(&[b"EVAL", b"#!lua\nreturn 1", b"0"]);
    let mut other = Client::connect(&server);
    other.call("CONFIG SET maxmemory 1").ok();
    let refused = format!("EXECABORT Transaction discarded because of: {oom}");
    assert_eq!(client.call("EXEC").error(), refused);
}

#[test]
fn nothing_is_registered_once_a_library_is_loaded() {
    let server = start(settings(1));
    let mut client = Client::connect(&server);
    let code = "#!lua name=lib\n\
        local register = redis.register_function\n\
        register('f', function() register('g', function() end) end)";
    load(&mut client, &[], code);
    assert_eq!(
        client.call("FCALL f 0").error(),
        "ERR redis.register_function can only be called on FUNCTION LOAD command script: f, on @user_function:3."
    );
    assert_eq!(client.call("FUNCTION LIST").array().len(), 1);
}

#[test]
fn libraries_are_dumped_and_restored() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    load(&mut client, &[], &returning(1));
    let Value::Bulk(payload) = client.call("FUNCTION DUMP") else {
        panic!("no payload")
    };
    let mut restore = |options: &[&[u8]]| {
        let mut words: Vec<&[u8]> = vec![b"FUNCTION", b"RESTORE", &payload];
        words.extend(options);
        client.call_args(&words)
    };
    assert_eq!(restore(&[]).error(), "ERR Library lib already exists");
    restore(&[b"REPLACE"]).ok();
    restore(&[b"FLUSH"]).ok();
    assert!(
        restore(&[b"FOO"])
            .error()
            .starts_with("ERR Wrong restore policy given")
    );
    client.call("FUNCTION FLUSH").ok();
    load(
        &mut client,
        &[],
        &returning(2).replace("name=lib", "name=other"),
    );
    let mut words: Vec<&[u8]> = vec![b"FUNCTION", b"RESTORE", &payload];
    words.push(b"REPLACE");
    let reply = client.call_args(&words);
    assert_eq!(reply.error(), "ERR Function f already exists");
    assert_eq!(client.call("FCALL f 0"), Value::Integer(2));
    let damaged = client.call("FUNCTION RESTORE damaged");
    assert_eq!(
        damaged.error(),
        "ERR DUMP payload version or checksum are wrong"
    );
}

#[test]
fn a_transaction_loads_and_calls() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    client.call("MULTI").ok();
    client.call("FCALL f 0");
    load(&mut client, &[], &returning(7));
    client.call("FCALL f 0");
    let Value::Array(replies) = client.call("EXEC") else {
        panic!("no replies")
    };
    assert_eq!(replies[0].error(), "ERR Function not found");
    assert_eq!(replies[2], Value::Integer(7));
    // The script mutex is free again.
    load(&mut client, &["REPLACE"], &returning(8));
    assert_eq!(client.call("FCALL f 0"), Value::Integer(8));
}

#[test]
fn a_function_that_never_ends_is_named_and_killed() {
    let server = start(settings(2).with(|settings| settings.busy_reply_threshold_ms = 50));
    let (mut caller, mut client) = (Client::connect(&server), Client::connect(&server));
    let code = "#!lua name=lib\nredis.register_function('loop', function() while true do end end)";
    load(&mut client, &[], code);
    caller.send("FCALL loop 1 k a");
    let busy =
        "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";
    loop {
        let stats = client.call("FUNCTION STATS");
        if let Value::Array(running) = &stats.array()[1] {
            assert_eq!(running[1], Value::Bulk(b"loop".to_vec()));
            assert_eq!(running[3].array().len(), 5);
            break;
        }
    }
    until("it is busy", || client.call("SCRIPT KILL").error() == busy);
    assert_eq!(load(&mut client, &["REPLACE"], code).error(), busy);
    client.call("FUNCTION KILL").ok();
    assert_eq!(
        caller.read().error(),
        "ERR Script killed by user with SCRIPT KILL... script: loop, on @user_function:2."
    );
    assert!(client.call("FUNCTION KILL").error().starts_with("NOTBUSY"));
    assert_eq!(client.call("EVAL return(1) 0"), Value::Integer(1));
}
