//! `redline proxy` as a process: commands that it answers, refuses or learns beyond the command table.

use std::sync::{Arc, Mutex};

use redline_resp::Value;
use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

use crate::proxying::{REDLINE, assert_error, bulk, call, ok, proxy_with, scripted};

/// Returns a server of ours, and the text of a pool that is this server.
fn server() -> (ServerProcess, String) {
    let server = ServerProcess::redline(std::path::Path::new(REDLINE), 1, &[]).unwrap();
    let text = format!(
        "[[pool]]\nshard = [{{ server = [{{ address = '{}' }}] }}]",
        server.address()
    );
    (server, text)
}

fn client(proxy: &ServerProcess) -> Client {
    Client::connect(proxy.address()).unwrap()
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
}

#[test]
fn proxies_show_themselves_as_the_nodes_of_a_cluster() {
    let (_server, pool) = server();
    let proxy = proxy_with(&format!(
        "[cluster-face]\nenabled = true\nannounce = '10.0.0.2:7617'\npeers = ['10.0.0.1:7617']\n{pool}"
    ));
    let mut client = client(&proxy);
    let id = text(&call(&mut client, "CLUSTER MYID"));
    assert_eq!(id.len(), 40);
    let Value::Array(slots) = call(&mut client, "CLUSTER SLOTS") else {
        panic!("no array");
    };
    let node = |host: &str, id: &str| {
        Value::Array(vec![
            bulk(host),
            Value::Integer(7617),
            bulk(id),
            Value::Array(Vec::new()),
        ])
    };
    let second = [
        Value::Integer(8192),
        Value::Integer(16383),
        node("10.0.0.2", &id),
    ];
    assert_eq!(slots[1], Value::Array(second.to_vec()));
    assert_eq!(slots.len(), 2);
    let nodes = text(&call(&mut client, "CLUSTER NODES"));
    let own = format!("{id} 10.0.0.2:7617@0 myself,master - 0 0 2 connected 8192-16383\n");
    assert!(nodes.ends_with(&own), "{nodes}");
    let info = text(&call(&mut client, "CLUSTER INFO"));
    assert!(info.starts_with("cluster_state:ok\r\n") && info.contains("cluster_known_nodes:2\r\n"));
    let Value::Array(shards) = call(&mut client, "CLUSTER SHARDS") else {
        panic!("no array");
    };
    assert_eq!(shards.len(), 2);
    assert_eq!(
        call(&mut client, "CLUSTER KEYSLOT foo"),
        Value::Integer(12182)
    );
    assert_eq!(
        call(&mut client, &format!("CLUSTER REPLICAS {id}")),
        Value::Array(Vec::new())
    );
    for line in ["READONLY", "READWRITE", "ASKING", "SET foo 1", "SET bar 2"] {
        assert_eq!(call(&mut client, line), ok(), "{line}");
    }
    for (line, error) in [
        (
            "CLUSTER",
            "ERR wrong number of arguments for 'cluster' command",
        ),
        (
            "CLUSTER KEYSLOT",
            "ERR wrong number of arguments for 'cluster|keyslot' command",
        ),
        (
            "CLUSTER NOPE",
            "ERR unknown subcommand 'NOPE'. Try CLUSTER HELP.",
        ),
        ("CLUSTER REPLICAS x", "ERR Unknown node x"),
        (
            "CLUSTER FAILOVER",
            "ERR 'CLUSTER FAILOVER' is not available through the proxy",
        ),
        ("CLUSTER COUNTKEYSINSLOT 16384", "ERR Invalid slot"),
        (
            "CLUSTER COUNTKEYSINSLOT 1",
            "ERR 'CLUSTER COUNTKEYSINSLOT' is not available",
        ),
        (
            "READONLY x",
            "ERR wrong number of arguments for 'readonly' command",
        ),
    ] {
        assert_error(&call(&mut client, line), error);
    }
    let mode = |hello: Value| match hello {
        Value::Map(pairs) => text(
            &pairs
                .iter()
                .find(|(name, _)| text(name) == "mode")
                .unwrap()
                .1,
        ),
        other => panic!("{other:?}"),
    };
    assert_eq!(mode(call(&mut client, "HELLO 3")), "cluster");
    assert!(text(&call(&mut client, "INFO cluster")).contains("cluster_enabled:1"));
    // A client in a transaction, or without authentication, learns nothing.
    assert_eq!(call(&mut client, "MULTI"), ok());
    assert_error(
        &call(&mut client, "CLUSTER SLOTS"),
        "ERR 'cluster' is not available inside MULTI",
    );
    assert_error(&call(&mut client, "EXEC"), "EXECABORT");
}

#[test]
fn a_client_that_has_not_said_who_it_is_sees_no_cluster() {
    let (_server, pool) = server();
    let proxy = proxy_with(&format!(
        "[cluster-face]\nenabled = true\n{pool}\n[[user]]\nname = 'default'\npassword = 'p'\nmode = 'write'"
    ));
    let mut client = client(&proxy);
    assert_error(&call(&mut client, "CLUSTER SLOTS"), "NOAUTH");
    assert_eq!(call(&mut client, "AUTH p"), ok());
    let nodes = text(&call(&mut client, "CLUSTER NODES"));
    let port = proxy.address().port();
    assert!(
        nodes.contains(&format!(" 127.0.0.1:{port}@0 myself,master ")),
        "{nodes}"
    );
}

#[test]
fn without_the_face_it_is_in_no_cluster() {
    let (_server, pool) = server();
    let proxy = proxy_with(&pool);
    let mut client = client(&proxy);
    for line in [
        "CLUSTER SLOTS",
        "CLUSTER INFO",
        "READONLY",
        "READWRITE",
        "ASKING",
    ] {
        assert_error(
            &call(&mut client, line),
            "ERR This instance has cluster support disabled",
        );
    }
    assert!(text(&call(&mut client, "INFO")).contains("cluster_enabled:0"));
}

#[test]
fn a_forbidden_command_is_none_and_a_renamed_one_has_its_new_name_only() {
    let (server, pool) = server();
    let proxy = proxy_with(&format!(
        "[commands]
        forbidden = ['debug', 'config|set', 'append']
        permitted = ['keys']
        [commands.renamed]
        get = 'fetch'
        client = 'kunde'
        lpush = 'Push'
        {pool}"
    ));
    let mut client = client(&proxy);
    assert_eq!(call(&mut client, "SET k v"), ok());
    assert_eq!(call(&mut client, "FETCH k"), bulk("v"));
    assert_eq!(call(&mut client, "push list x"), Value::Integer(1));
    assert_eq!(call(&mut client, "KUNDE SETNAME me"), ok());
    assert_eq!(call(&mut client, "KEYS *").as_bytes(), None);
    for (line, error) in [
        (
            "GET k",
            "ERR unknown command 'GET', with args beginning with: 'k' ",
        ),
        ("LPUSH list x", "ERR unknown command 'LPUSH'"),
        ("CLIENT GETNAME", "ERR unknown command 'CLIENT'"),
        ("APPEND k v", "ERR unknown command 'APPEND'"),
        ("DEBUG SLEEP 0", "ERR unknown command 'DEBUG'"),
        (
            "CONFIG SET maxmemory 1",
            "ERR unknown subcommand 'SET'. Try CONFIG HELP.",
        ),
        (
            "KUNDE NOPE",
            "ERR unknown subcommand 'NOPE'. Try CLIENT HELP.",
        ),
        (
            "FLUSHALL",
            "ERR 'FLUSHALL' is not available through the proxy",
        ),
        ("FETCH", "ERR wrong number of arguments for 'get' command"),
        ("NONSENSE k", "ERR unknown command 'NONSENSE'"),
    ] {
        assert_error(&call(&mut client, line), error);
    }
    // In a pipeline, in a transaction and inline as well.
    client
        .send(b"FETCH k\r\nfetch k\r\nGET k\r\n*2\r\n$5\r\nFETCH\r\n$1\r\nk\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
        .unwrap();
    for is_known in [true, true, false, true, false] {
        let reply = client.reply().unwrap().unwrap();
        assert_eq!(reply.is_error(), !is_known, "{reply:?}");
    }
    for (line, expected) in [
        ("MULTI", ok()),
        ("FETCH k", Value::Simple(b"QUEUED".to_vec())),
        ("EXEC", Value::Array(vec![bulk("v")])),
        ("MULTI", ok()),
    ] {
        assert_eq!(call(&mut client, line), expected, "{line}");
    }
    assert_error(&call(&mut client, "GET k"), "ERR unknown command");
    assert_error(&call(&mut client, "EXEC"), "EXECABORT");
    let mut direct = Client::connect(server.address()).unwrap();
    assert_eq!(call(&mut direct, "GET k"), bulk("v"));
}

#[test]
fn errors_replaced_bytes_that_are_no_text_and_repeated_too_many() {
    let (_server, pool) = server();
    let proxy = proxy_with(&pool);
    let mut client = client(&proxy);
    let long = "é".repeat(100);
    let cut = [b"' '".as_slice(), &long.as_bytes()[..128 - 4], b"' "].concat();
    let cut = [
        b"ERR unknown command 'x', with args beginning with: 'b",
        &cut[..],
    ]
    .concat();
    let errors: Vec<(Vec<&[u8]>, &[u8])> = vec![
        (
            vec![b"a\xff\nb\0c", b"\xfe\xff\r", b"b"],
            b"ERR unknown command 'a\xff b', with args beginning with: '\xfe\xff ' 'b' ",
        ),
        (vec![b"x", b"b", long.as_bytes(), b"y"], &cut),
        (
            vec![b"OBJECT", b"\xff"],
            b"ERR unknown subcommand '\xff'. Try OBJECT HELP.",
        ),
        (
            vec![b"CONFIG", b"SET", b"\xff\x01", b"x"],
            b"ERR Unknown option or number of arguments for CONFIG SET - '\xff\x01'",
        ),
        (
            vec![b"HELLO", b"3", b"\xff"],
            b"ERR Syntax error in HELLO option '\xff'",
        ),
        (
            vec![b"CLIENT", b"LIST", b"TYPE", b"\xff"],
            b"ERR Unknown client type '\xff'",
        ),
        (
            vec![b"CLIENT", b"SETINFO", b"\xff", b"x"],
            b"ERR Unrecognized option '\xff'",
        ),
        (
            vec![b"LATENCY", b"GRAPH", b"\xff"],
            b"ERR No samples available for event '\xff'",
        ),
    ];
    for (words, expected) in errors {
        let reply = client.call(&words).unwrap();
        let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
        assert!(reply.is_error(), "{reply:?}");
        assert_eq!(shown(reply.as_bytes().unwrap()), shown(expected));
    }
}

#[test]
fn command_shows_what_clients_may_call_and_how() {
    let (server, pool) = server();
    let proxy = proxy_with(&format!(
        "[commands]
        forbidden = ['debug', 'config|set', 'append']
        [commands.renamed]
        get = 'fetch'
        client = 'Kunde'
        {pool}"
    ));
    let mut direct = Client::connect(server.address()).unwrap();
    for proto in ["2", "3"] {
        let mut client = client(&proxy);
        client.call(&["HELLO", proto]).unwrap();
        let mut list = |line: &str| match call(&mut client, line) {
            Value::Array(values) => values,
            Value::Map(pairs) => pairs.into_iter().flat_map(<[Value; 2]>::from).collect(),
            other => panic!("{line}: {other:?}"),
        };
        let names_of = |rows: &[Value]| -> Vec<String> {
            let name = |row: &Value| match row {
                Value::Array(parts) => text(&parts[0]),
                _ => "-".to_owned(),
            };
            rows.iter().map(name).collect()
        };
        let asked =
            list("COMMAND INFO get FETCH append debug config kunde kunde|id client config|set");
        let shown = [
            "-", "fetch", "-", "-", "config", "kunde", "kunde|id", "-", "-",
        ];
        assert_eq!(names_of(&asked), shown);
        for (row, has, has_not) in [
            (4, "config|get", "config|set"),
            (5, "kunde|list", "client|list"),
        ] {
            let Value::Array(parts) = &asked[row] else {
                panic!("{row}");
            };
            let (Value::Array(parts) | Value::Set(parts)) = &parts[9] else {
                panic!("{row}");
            };
            let parts = names_of(parts);
            let is_there = |name: &str| parts.iter().any(|it| it == name);
            assert!(is_there(has) && !is_there(has_not), "{parts:?}");
        }
        let rows = names_of(&list("COMMAND"));
        let listed: Vec<String> = list("COMMAND LIST").iter().map(text).collect();
        for all in [rows, listed, names_of(&list("COMMAND INFO"))] {
            let is_there = |name: &str| all.iter().any(|it| it == name);
            assert!(is_there("fetch") && is_there("kunde") && is_there("config"));
            assert!(!is_there("get") && !is_there("append") && !is_there("debug"));
        }
        let docs = list("COMMAND DOCS get fetch append config");
        let docs: Vec<String> = docs.chunks(2).map(|pair| text(&pair[0])).collect();
        assert_eq!(docs.len(), 2);
        assert!(docs.contains(&"fetch".to_owned()) && docs.contains(&"config".to_owned()));
        let said = format!("{:?}", list("COMMAND DOCS config"));
        let has = |name: &str| said.contains(&format!("{:?}", name.as_bytes()));
        assert!(has("config|get") && !has("config|set"));
        assert_eq!(list("COMMAND GETKEYS fetch k"), [bulk("k")]);
        for hidden in ["get k", "append k v"] {
            let said = call(&mut client, &format!("COMMAND GETKEYS {hidden}"));
            assert_error(&said, "ERR Invalid command specified");
        }
        let Value::Integer(all) = call(&mut direct, "COMMAND COUNT") else {
            panic!("a number");
        };
        assert_eq!(call(&mut client, "COMMAND COUNT"), Value::Integer(all - 2));
        // In a transaction the server itself would answer.
        assert_eq!(call(&mut client, "MULTI"), ok());
        let said = call(&mut client, "COMMAND INFO append");
        assert_error(&said, "ERR 'command info' is not available inside MULTI");
        assert_error(&call(&mut client, "EXEC"), "EXECABORT");
    }
}

/// Servers with a module, whose calls they answer with their arguments; and their calls so far.
struct Modules {
    seen: [Arc<Mutex<Vec<String>>>; 2],
    proxy: ServerProcess,
}

impl Modules {
    fn new(more: &str) -> Modules {
        let seen: [Arc<Mutex<Vec<String>>>; 2] = Default::default();
        let servers: Vec<String> = seen
            .iter()
            .map(|seen| {
                let seen = Arc::clone(seen);
                let address = scripted(move |words| answer(&seen, words));
                format!("[[pool.shard]]\nserver = [{{ address = '{address}' }}]")
            })
            .collect();
        let proxy = proxy_with(&format!("{more}\n[[pool]]\n{}", servers.join("\n")));
        Modules { seen, proxy }
    }

    /// Returns the server that got such a call, if one did.
    fn who_saw(&self, call: &str) -> Option<usize> {
        let saw = |seen: &Mutex<Vec<String>>| seen.lock().unwrap().iter().any(|it| it == call);
        self.seen.iter().position(|seen| saw(seen))
    }
}

fn answer(seen: &Mutex<Vec<String>>, words: &[Vec<u8>]) -> Vec<u8> {
    let line = words
        .iter()
        .map(|word| String::from_utf8_lossy(word))
        .collect::<Vec<_>>()
        .join(" ");
    let reply = match line.as_str() {
        "PING" => "+PONG\r\n".to_owned(),
        "COMMAND" => {
            let row = |name: &str, arity: i32, flag: &str, keys: [i32; 3]| {
                let [first, last, step] = keys;
                format!(
                    "*6\r\n${}\r\n{name}\r\n:{arity}\r\n*1\r\n+{flag}\r\n:{first}\r\n:{last}\r\n:{step}\r\n",
                    name.len()
                )
            };
            // A container, in the form of servers from 7.0 on.
            let parts = [
                row("doc.idx|find", 3, "readonly", [2, 2, 1]),
                row("doc.idx|drop", 3, "write", [2, 2, 1]),
            ];
            let doc = row("doc.idx", -2, "readonly", [0, 0, 0]).replacen("*6", "*10", 1);
            format!(
                "*5\r\n{}{}{}{}{doc}*0\r\n*0\r\n*0\r\n*2\r\n{}",
                row("doc.get", -2, "readonly", [1, 1, 1]),
                row("doc.mset", -3, "write", [1, -1, 2]),
                row("doc.stop", 1, "admin", [0, 0, 0]),
                row("doc.merge", -3, "movablekeys", [0, 0, 0]),
                parts.concat(),
            )
        }
        "MULTI" => "+OK\r\n".to_owned(),
        "EXEC" => "*1\r\n+done\r\n".to_owned(),
        _ => format!("+{line}\r\n"),
    };
    seen.lock().unwrap().push(line);
    reply.into_bytes()
}

#[test]
fn what_a_module_of_the_servers_has_is_learned_and_routed_by_its_keys() {
    let modules = Modules::new("");
    let mut client = client(&modules.proxy);
    let mut at = std::collections::BTreeSet::new();
    for number in 0..20 {
        let line = format!("doc.get key{number} path");
        assert_eq!(text(&call(&mut client, &line)), line);
        // On the server of its data, by the same key.
        call(&mut client, &format!("HGETALL key{number}"));
        let who = modules.who_saw(&line);
        assert_eq!(who, modules.who_saw(&format!("HGETALL key{number}")));
        at.extend(who);
    }
    assert_eq!(at.len(), 2);
    for number in 0..20 {
        let line = format!("doc.idx find key{number}");
        assert_eq!(text(&call(&mut client, &line)), line);
        let data = format!("HGETALL key{number}");
        assert_eq!(modules.who_saw(&line), modules.who_saw(&data));
    }
    assert_eq!(
        text(&call(&mut client, "DOC.MSET {k}1 a {k}2 b")),
        "DOC.MSET {k}1 a {k}2 b"
    );
    let many: Vec<String> = (0..20).map(|number| format!("key{number} v")).collect();
    for (line, error) in [
        (
            "doc.get",
            "ERR wrong number of arguments for 'doc.get' command",
        ),
        (&format!("doc.mset {}", many.join(" ")), "CROSSSLOT"),
        ("doc.stop", "ERR unknown command 'doc.stop'"),
        ("doc.none k", "ERR unknown command 'doc.none'"),
        ("doc.merge 1 k", "ERR 'doc.merge' is not available"),
        (
            "doc.idx find",
            "ERR wrong number of arguments for 'doc.idx|find' command",
        ),
        ("doc.idx nothing k", "ERR unknown command 'doc.idx'"),
    ] {
        assert_error(&call(&mut client, line), error);
    }
    assert_eq!(call(&mut client, "MULTI"), ok());
    call(&mut client, "doc.get k");
    assert!(matches!(call(&mut client, "EXEC"), Value::Array(_)));
    // The first call of any client waits until the proxy knows; one in a pipeline keeps its place.
    let modules = Modules::new("");
    let mut client = Client::connect(modules.proxy.address()).unwrap();
    let mut requests = Vec::new();
    encode(&["ECHO", "before"], &mut requests);
    encode(&["doc.get", "k"], &mut requests);
    encode(&["ECHO", "behind"], &mut requests);
    client.send(&requests).unwrap();
    for expected in ["before", "doc.get k", "behind"] {
        assert_eq!(text(&client.reply().unwrap().unwrap()), expected);
    }
    // A call that has to wait after WATCH is shown once.
    let mut watcher = Client::connect(modules.proxy.address()).unwrap();
    assert_eq!(call(&mut watcher, "MONITOR"), ok());
    let mut requests = Vec::new();
    encode(&["WATCH", "k"], &mut requests);
    for number in 0..8 {
        encode(&["doc.get", &format!("key{number}")], &mut requests);
    }
    encode(&["ECHO", "last"], &mut requests);
    client.send(&requests).unwrap();
    (0..10).for_each(|_| assert!(client.reply().unwrap().is_some()));
    let mut shown = String::new();
    while !shown.contains("\"last\"") {
        shown += &text(&watcher.reply().unwrap().expect("a line"));
    }
    assert_eq!(shown.matches("\"doc.get\"").count(), 8, "{shown}");
}

#[test]
fn commands_of_the_file_go_by_their_key_and_rights() {
    let custom = "
        [[commands.custom]]
        name = 'doc.look'
        mode = 'read'
        min-args = 2
        max-args = 3
        key = 1
        [[commands.custom]]
        name = 'doc.put'
        mode = 'write'
        min-args = 4
        max-args = 4
        key = 2
        [[commands.custom]]
        name = 'doc.all'
        mode = 'read'
        min-args = 1
        max-args = 1
        key = 0
        [[user]]
        name = 'default'
        password = 'all'
        mode = 'admin'
        [[user]]
        name = 'reader'
        password = 'r'
        mode = 'read'
        [[user]]
        name = 'own'
        password = 'o'
        mode = 'write'
        key-prefixes = ['own:']
    ";
    let modules = Modules::new(custom);
    let mut client = client(&modules.proxy);
    assert_error(&call(&mut client, "doc.look k"), "NOAUTH");
    let may = |client: &mut Client, user: &str, allowed: &[&str], denied: &[&str]| {
        assert_eq!(call(client, &format!("AUTH {user}")), ok());
        for line in allowed {
            assert_eq!(text(&call(client, line)), *line);
        }
        for line in denied {
            assert_error(&call(client, line), "NOPERM");
        }
    };
    let all = [
        "doc.look k",
        "doc.look own:k x",
        "doc.put x own:k y",
        "doc.put x k y",
        "doc.all",
    ];
    may(&mut client, "default all", &all, &[]);
    may(
        &mut client,
        "reader r",
        &["doc.look k", "doc.all"],
        &["doc.put x k y"],
    );
    may(
        &mut client,
        "own o",
        &["doc.look own:k", "doc.put x own:k y"],
        &["doc.look k", "doc.put x k y", "doc.all"],
    );
    call(&mut client, "GET own:k");
    assert_eq!(
        modules.who_saw("doc.put x own:k y"),
        modules.who_saw("GET own:k")
    );
    for line in ["doc.look", "doc.look own:k x y", "doc.put x own:k"] {
        assert_error(&call(&mut client, line), "ERR wrong number of arguments");
    }
}

#[test]
fn what_is_forbidden_is_so_on_every_way_though_the_servers_have_it() {
    let modules = Modules::new(
        "[commands]
        forbidden = ['DOC.GET', 'doc.idx|drop', 'cluster|nodes', 'proxy', 'config|reload', 'doc.none']
        [commands.renamed]
        'doc.mset' = 'put'
        'doc.get' = 'look'
        readonly = 'lies'
        [[commands.custom]]
        name = 'doc.none'
        mode = 'read'
        min-args = 2
        max-args = 2
        key = 1
        [cluster-face]
        enabled = true",
    );
    let mut client = client(&modules.proxy);
    // The servers are asked for their commands, and their replies change nothing.
    assert_eq!(text(&call(&mut client, "Put k v")), "doc.mset k v");
    assert_eq!(text(&call(&mut client, "DOC.IDX find k")), "DOC.IDX find k");
    assert_eq!(call(&mut client, "lies"), ok());
    let forbidden = [
        "doc.get k",
        "Doc.Get k",
        "look k",
        "doc.mset other v",
        "doc.idx drop k",
        "DOC.IDX DROP k",
        "doc.none k",
        "cluster nodes",
        "proxy help",
        "config reload",
        "readonly",
    ];
    let mut all = Vec::new();
    for line in forbidden {
        assert_error(&call(&mut client, line), "ERR unknown ");
        assert_eq!(call(&mut client, "MULTI"), ok());
        assert_error(&call(&mut client, line), "ERR unknown ");
        assert_error(&call(&mut client, "EXEC"), "EXECABORT");
        encode(&line.split(' ').collect::<Vec<_>>(), &mut all);
        all.extend_from_slice(format!("{line}\r\n").as_bytes());
    }
    client.send(&all).unwrap();
    for line in forbidden.iter().flat_map(|line| [line, line]) {
        let reply = client.reply().unwrap().unwrap();
        assert!(reply.is_error(), "{line}: {reply:?}");
    }
    for line in forbidden {
        assert_eq!(modules.who_saw(line), None, "{line}");
    }
    assert_eq!(modules.who_saw("doc.get k"), None);
}

#[test]
fn a_faulty_name_ends_the_start() {
    for (renamed, said) in [
        ("'doc.get' = 'DOC.GET'", "has that name already"),
        (
            "'doc.get' = 'doc.put'\n'doc.put' = 'doc.get'",
            "is renamed itself",
        ),
        (
            "'doc.get' = 'doc.put'\n'doc.put' = 'doc.set'\n'doc.set' = 'doc.get'",
            "is renamed itself",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.toml");
        let text = format!(
            "[[listener]]\nbind = '127.0.0.1:7'\n[[pool]]\nshard = [{{ server = [{{ address = '127.0.0.1:1' }}] }}]\n[commands.renamed]\n{renamed}"
        );
        std::fs::write(&path, text).unwrap();
        let output = std::process::Command::new(REDLINE)
            .args(["proxy", "--check"])
            .arg(&path)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert!(
            !output.status.success() && errors.contains(said),
            "{errors}"
        );
    }
}
