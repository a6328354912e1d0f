//! Access control from outside: users, logins, checks on every path, and what a change of the rules does to those who
//! are connected; with one and two workers, in both protocols.

use crate::client::{self, Client, Value, settings, start, until};
use redline_server::{Server, Settings, UserLine};

const DENIED_KEY: &str = "NOPERM No permissions to access a key";
const DENIED_CHANNEL: &str = "NOPERM No permissions to access a channel";

/// Runs with one worker and with two; with two, connections take turns between them.
fn with_workers(test: impl Fn(&Server)) {
    for workers in [1, 2] {
        test(&start(settings(workers)));
    }
}

fn user(server: &Server, name: &str) -> Client {
    let mut client = Client::connect(server);
    client.call(&format!("AUTH {name} p")).ok();
    client
}

fn text(value: &Value) -> &str {
    match value {
        Value::Bulk(text) => std::str::from_utf8(text).unwrap(),
        Value::Simple(text) => text,
        other => panic!("no text: {other:?}"),
    }
}

fn is_closed(client: &mut Client) -> bool {
    client.try_read().is_err()
}

/// The figure of a field of INFO stats.
fn stat(client: &mut Client, field: &str) -> u64 {
    let info = client.call("INFO stats");
    let line = text(&info)
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{field}:")))
        .map(str::to_owned);
    line.expect("INFO has the field").parse().unwrap()
}

/// The entries of ACL LOG: reason, context, object, user, count.
fn log(client: &mut Client) -> Vec<[String; 5]> {
    let entries = client.call("ACL LOG 100");
    let entry = |entry: &Value| {
        let fields = entry.array();
        let value = |name: &str| {
            let at = fields.chunks(2).find(|pair| text(&pair[0]) == name);
            match &at.expect("the entry has the field")[1] {
                Value::Integer(n) => n.to_string(),
                other => text(other).to_owned(),
            }
        };
        ["reason", "context", "object", "username", "count"].map(value)
    };
    entries.array().iter().map(entry).collect()
}

#[test]
fn every_path_of_a_command_is_checked() {
    with_workers(|server| {
        let mut admin = Client::connect(server);
        admin
            .call("ACL SETUSER u on >p ~x:* %R~r:* &ch:* +@all -flushall")
            .ok();
        let mut u = user(server, "u");
        assert_eq!(text(&u.call("ACL WHOAMI")), "u");
        u.call("SET x:1 v").ok();
        assert_eq!(text(&u.call("GET x:1")), "v");
        assert_eq!(u.call("GET y").error(), DENIED_KEY);
        assert_eq!(u.call("SET r:1 v").error(), DENIED_KEY);
        assert_eq!(u.call("MGET x:1 r:1 y").error(), DENIED_KEY);
        assert_eq!(u.call("WATCH y").error(), DENIED_KEY);
        assert_eq!(u.call("PUBLISH other m").error(), DENIED_CHANNEL);
        assert_eq!(u.call("SUBSCRIBE ch:1 other").error(), DENIED_CHANNEL);
        assert_eq!(
            u.call("FLUSHALL").error(),
            "NOPERM User u has no permissions to run the 'flushall' command"
        );
        // Queued, and what was queued is given up.
        u.call("MULTI").ok();
        assert_eq!(u.call("GET y").error(), DENIED_KEY);
        assert!(u.call("EXEC").error().starts_with("EXECABORT"));
        // From a script.
        let script: &[u8] = b"return redis.pcall('get', 'y')";
        assert_eq!(
            u.call_args(&[b"EVAL", script, b"0"]).error(),
            "ERR ACL failure in script: No permissions to access a key"
        );
        let script: &[u8] = b"return redis.acl_check_cmd('get', 'y')";
        assert_eq!(u.call_args(&[b"EVAL", script, b"0"]), Value::Nil);
        let script: &[u8] = b"return redis.acl_check_cmd('get', 'x:1')";
        assert_eq!(u.call_args(&[b"EVAL", script, b"0"]).integer(), 1);
        let entry = |words: [&str; 5]| words.map(str::to_owned);
        assert_eq!(
            log(&mut admin),
            [
                entry(["key", "lua", "y", "u", "1"]),
                entry(["key", "multi", "y", "u", "1"]),
                entry(["command", "toplevel", "flushall", "u", "1"]),
                entry(["channel", "toplevel", "other", "u", "2"]),
                entry(["key", "toplevel", "y", "u", "3"]),
                entry(["key", "toplevel", "r:1", "u", "1"]),
            ]
        );
        assert_eq!(stat(&mut admin, "acl_access_denied_key"), 6);
        assert_eq!(stat(&mut admin, "acl_access_denied_cmd"), 1);
        assert_eq!(stat(&mut admin, "acl_access_denied_channel"), 2);
        admin.call("ACL LOG RESET").ok();
        assert!(log(&mut admin).is_empty());
    });
}

#[test]
fn a_pipeline_goes_by_the_rules_that_it_changes() {
    with_workers(|server| {
        let mut admin = Client::connect(server);
        admin.call("ACL SETUSER u on >p ~* +@all").ok();
        let mut u = user(server, "u");
        u.write(
            &[
                client::request("SET k 1"),
                client::request("ACL SETUSER u -set"),
                client::request("SET k 2"),
                client::request("GET k"),
            ]
            .concat(),
        );
        u.read().ok();
        u.read().ok();
        assert!(u.read().error().starts_with("NOPERM User u"));
        assert_eq!(text(&u.read()), "1");
        // The default user's straight path too.
        admin.write(
            &[
                client::request("GET k"),
                client::request("ACL SETUSER default -get"),
                client::request("GET k"),
            ]
            .concat(),
        );
        assert_eq!(text(&admin.read()), "1");
        admin.read().ok();
        assert!(admin.read().error().starts_with("NOPERM User default"));
    });
}

#[test]
fn what_was_queued_is_checked_again_at_exec() {
    with_workers(|server| {
        let mut admin = Client::connect(server);
        admin.call("ACL SETUSER u on >p ~* &* +@all").ok();
        let mut u = user(server, "u");
        u.call("MULTI").ok();
        for queued in ["GET x", "PING", "PUBLISH c m", "TIME"] {
            assert_eq!(text(&u.call(queued)), "QUEUED");
        }
        admin
            .call("ACL SETUSER u resetkeys ~y resetchannels -ping")
            .ok();
        let replies = u.call("EXEC");
        let ends = [
            "no permission to touch the specified keys",
            "no permission to execute the command or subcommand",
            "no permission to access one of the channels used as arguments",
        ];
        for (reply, end) in replies.array().iter().zip(ends) {
            assert!(
                reply.error().starts_with("NOPERM ACLs rules changed"),
                "{reply:?}"
            );
            assert!(reply.error().ends_with(end), "{reply:?}");
        }
        assert_eq!(replies.array()[3].array().len(), 2);
    });
}

#[test]
fn nothing_runs_under_the_old_rules_once_setuser_has_answered() {
    let server = start(settings(2));
    let mut admin = Client::connect(&server);
    admin.call("ACL SETUSER u on >p ~* +@all").ok();
    let mut users: Vec<Client> = (0..4).map(|_| user(&server, "u")).collect();
    for round in 0..200 {
        let rule = if round % 2 == 0 { "-incr" } else { "+incr" };
        admin.call(&format!("ACL SETUSER u {rule}")).ok();
        for u in &mut users {
            let denied = matches!(u.call("INCR k"), Value::Error(_));
            assert_eq!(denied, round % 2 == 0, "round {round}");
        }
    }
}

#[test]
fn clients_of_a_deleted_user_are_closed() {
    with_workers(|server| {
        let mut admin = Client::connect(server);
        admin.call("ACL SETUSER u on >p ~* +@all").ok();
        let mut silent: Vec<Client> = (0..4).map(|_| user(server, "u")).collect();
        assert_eq!(admin.call("ACL DELUSER u nobody").integer(), 1);
        assert!(silent.iter_mut().all(is_closed));
        // One that deletes itself is told so.
        admin.call("ACL SETUSER u on >p ~* +@all").ok();
        let mut own = user(server, "u");
        assert_eq!(own.call("ACL DELUSER u").integer(), 1);
        assert!(is_closed(&mut own));
        // Deleted and made again it is another user.
        admin.call("ACL SETUSER u on >p ~* +@all").ok();
        let mut old = user(server, "u");
        admin.write(
            &[
                client::request("ACL DELUSER u"),
                client::request("ACL SETUSER u on >p ~* +@all"),
            ]
            .concat(),
        );
        assert_eq!(admin.read().integer(), 1);
        admin.read().ok();
        assert!(is_closed(&mut old));
        assert!(
            admin
                .call("ACL DELUSER default")
                .error()
                .contains("cannot be removed")
        );
        // Inside a transaction.
        let mut own = user(server, "u");
        own.call("MULTI").ok();
        own.call("ACL DELUSER u");
        own.call("PING");
        own.send("EXEC");
        until("the user is gone", || {
            admin.call("ACL GETUSER u") == Value::Nil
        });
        own.drain();
        admin.call("PING");
    });
}

#[test]
fn a_transaction_that_takes_its_own_user_away_is_done_whole() {
    with_workers(|server| {
        let mut admin = Client::connect(server);
        admin.call("ACL SETUSER u on >p ~* +@all").ok();
        let mut own = user(server, "u");
        own.call("MULTI").ok();
        for line in ["SET k 1", "ACL DELUSER u", "SET k 2", "INCR k"] {
            own.call(line);
        }
        own.send("EXEC");
        // As in Redis: what came up to then, and the end.
        assert_eq!(own.drain(), "*4\r\n+OK\r\n:1\r\n".len());
        assert_eq!(text(&admin.call("GET k")), "3");
    });
}

#[test]
fn subscriptions_end_with_the_right_to_them() {
    with_workers(|server| {
        let mut admin = Client::connect(server);
        admin.call("ACL SETUSER u on >p &a &b &c* +@all ~*").ok();
        let (mut kept, mut lost, mut pattern) =
            (user(server, "u"), user(server, "u"), user(server, "u"));
        kept.call("SUBSCRIBE a");
        lost.call("SUBSCRIBE b");
        pattern.call("PSUBSCRIBE c*");
        admin.call("ACL SETUSER u &d").ok();
        admin.call("ACL SETUSER u resetchannels &a &d").ok();
        // Published after the change, so nobody else gets it.
        let got: i64 = ["a", "b", "c1"]
            .iter()
            .map(|channel| admin.call(&format!("PUBLISH {channel} m")).integer())
            .sum();
        assert!(got >= 1);
        assert_eq!(text(&kept.read().array()[2]), "m");
        assert!(is_closed(&mut lost) && is_closed(&mut pattern));
        until("the others are gone", || {
            admin.call("PUBLISH b m").integer() + admin.call("PUBLISH c1 m").integer() == 0
        });
        assert_eq!(admin.call("PUBLISH a m").integer(), 1);
    });
}

#[test]
fn logging_in_and_out() {
    with_workers(|server| {
        let mut admin = Client::connect(server);
        admin.call("ACL SETUSER u on >p >q ~* +@all").ok();
        let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
        let mut c = Client::connect(server);
        assert_eq!(c.call("AUTH u x").error(), wrong);
        assert_eq!(c.call("AUTH nobody p").error(), wrong);
        assert!(
            c.call("AUTH p")
                .error()
                .starts_with("ERR AUTH <password> called without")
        );
        c.call("AUTH u q").ok();
        // Tair's form.
        let mut c = Client::connect(server);
        c.call("AUTH u:p").ok();
        assert_eq!(text(&c.call("ACL WHOAMI")), "u");
        let info = c.call("CLIENT INFO");
        assert!(text(&info).contains(" user=u "), "{info:?}");
        assert_eq!(text(&c.call("RESET")), "RESET");
        assert_eq!(text(&c.call("ACL WHOAMI")), "default");
        admin.call("CONFIG SET requirepass s:t").ok();
        let mut c = Client::connect(server);
        assert_eq!(c.call("GET k").error(), "NOAUTH Authentication required.");
        assert_eq!(c.call("AUTH u:x").error(), wrong);
        c.call("AUTH s:t").ok();
        assert_eq!(text(&c.call("ACL WHOAMI")), "default");
        c.call("AUTH u:q").ok();
        assert_eq!(text(&c.call("ACL WHOAMI")), "u");
        assert_eq!(
            log(&mut admin)[0][..4],
            ["auth", "toplevel", "AUTH", "default"]
        );
        assert_eq!(stat(&mut admin, "acl_access_denied_auth"), 3);
        admin.call("ACL SETUSER u off").ok();
        assert_eq!(text(&c.call("ACL WHOAMI")), "u");
        assert_eq!(Client::connect(server).call("AUTH u p").error(), wrong);
        admin.call("ACL SETUSER default nopass").ok();
        assert_eq!(text(&Client::connect(server).call("ACL WHOAMI")), "default");
        admin.call("ACL SETUSER default off").ok();
        assert!(
            Client::connect(server)
                .call("PING")
                .error()
                .starts_with("NOAUTH")
        );
        assert_eq!(admin.call("CLIENT KILL USER u").integer(), 2);
        assert_eq!(
            admin.call("CLIENT KILL USER nobody").error(),
            "ERR No such user 'nobody'"
        );
    });
}

#[test]
fn replies_in_resp3() {
    let server = start(settings(1));
    let mut admin = Client::connect(&server);
    admin.call("ACL SETUSER u on >p ~x +get (+set ~y)").ok();
    admin
        .call("ACL SETUSER w on nopass +hello +acl|getuser")
        .ok();
    let mut c = Client::connect(&server);
    c.send("HELLO 3 AUTH w any");
    c.send("ACL GETUSER u");
    c.send("ACL GETUSER nobody");
    c.send("GET x");
    c.send("QUIT");
    let mut all = Vec::new();
    std::io::Read::read_to_end(&mut c.stream, &mut all).unwrap();
    let all = String::from_utf8(all).unwrap();
    let digits = "148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940";
    let expected = format!(
        "%6\r\n$5\r\nflags\r\n~2\r\n$2\r\non\r\n$16\r\nsanitize-payload\r\n$9\r\npasswords\r\n*1\r\n$64\r\n{digits}\r\n\
         $8\r\ncommands\r\n$10\r\n-@all +get\r\n$4\r\nkeys\r\n$2\r\n~x\r\n$8\r\nchannels\r\n$0\r\n\r\n\
         $9\r\nselectors\r\n*1\r\n%3\r\n$8\r\ncommands\r\n$10\r\n-@all +set\r\n$4\r\nkeys\r\n$2\r\n~y\r\n$8\r\nchannels\r\n$0\r\n\r\n\
         _\r\n-NOPERM User w has no permissions to run the 'get' command\r\n+OK\r\n"
    );
    assert!(all.starts_with('%') && all.ends_with(&expected), "{all}");
}

fn line(name: &str, rules: &str) -> UserLine {
    UserLine {
        name: name.into(),
        rules: rules
            .split(' ')
            .map(|rule| rule.as_bytes().to_vec())
            .collect(),
    }
}

#[test]
fn users_of_the_configuration() {
    let server = start(Settings {
        requirepass: Some(b"secret".to_vec()),
        acl_user_lines: vec![line("u", "on >p ~x +get (+set ~y)")],
        ..settings(2)
    });
    let mut c = Client::connect(&server);
    c.call("AUTH secret").ok();
    assert_eq!(c.call("ACL USERS").array().len(), 2);
    let mut u = user(&server, "u");
    u.call("SET y 1").ok();
    assert_eq!(u.call("GET y").error(), DENIED_KEY);
    assert!(
        c.call("ACL SAVE")
            .error()
            .starts_with("ERR This Redis instance is not configured")
    );
    assert!(
        c.call("ACL LOAD")
            .error()
            .starts_with("ERR This Redis instance is not configured")
    );
    // A line about the default user is all that it is.
    let server = start(Settings {
        requirepass: Some(b"secret".to_vec()),
        acl_user_lines: vec![line("default", "on nopass +ping")],
        ..settings(1)
    });
    let mut c = Client::connect(&server);
    assert_eq!(text(&c.call("PING")), "PONG");
    assert!(c.call("GET x").error().starts_with("NOPERM User default"));
}

#[test]
fn users_of_a_file() {
    let folder = std::env::temp_dir().join(format!("redline-acl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("users.acl");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    write("user default on nopass ~* &* +@all\nuser u on >p ~x +get\nuser v on >p ~* +@all\n");
    let server = start(Settings {
        aclfile: Some(path.to_str().unwrap().into()),
        ..settings(2)
    });
    let mut admin = Client::connect(&server);
    let (mut u, mut v) = (user(&server, "u"), user(&server, "v"));
    assert_eq!(
        u.call("SET x 1").error(),
        "NOPERM User u has no permissions to run the 'set' command"
    );
    write("user u on >p ~x +set\n");
    admin.call("ACL LOAD").ok();
    assert!(is_closed(&mut v));
    u.call("SET x 1").ok();
    admin.call("ACL SETUSER w on").ok();
    write("user u foo\nuser w +nosuch\n");
    let wrong = admin.call("ACL LOAD");
    assert!(wrong.error().contains(":1: Syntax error. "), "{wrong:?}");
    assert!(
        wrong
            .error()
            .contains(":2: Error in applying operation '+nosuch'"),
        "{wrong:?}"
    );
    assert_eq!(admin.call("ACL USERS").array().len(), 3);
    admin.call("ACL SAVE").ok();
    let saved = std::fs::read_to_string(&path).unwrap();
    assert_eq!(saved.lines().count(), 3);
    assert!(
        saved.contains("\nuser u on sanitize-payload #148de9c5"),
        "{saved}"
    );
    admin.call("ACL LOAD").ok();
    u.call("SET x 2").ok();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(
        admin
            .call("ACL LOAD")
            .error()
            .starts_with("ERR Error loading ACLs, opening file")
    );
}

#[test]
fn renamed_commands() {
    let mut renamed = settings(2);
    renamed.names.rename(b"config", b"cfg").unwrap();
    renamed.names.rename(b"flushall", b"").unwrap();
    renamed.names.rename(b"get", b"fetch").unwrap();
    let server = start(renamed);
    let mut c = Client::connect(&server);
    c.call("SET k v").ok();
    assert_eq!(text(&c.call("FETCH k")), "v");
    assert!(
        c.call("GET k")
            .error()
            .starts_with("ERR unknown command 'GET'")
    );
    assert!(
        c.call("FLUSHALL")
            .error()
            .starts_with("ERR unknown command")
    );
    assert_eq!(c.call("cfg GET port").array().len(), 2);
    let script: &[u8] = b"return redis.call('fetch', KEYS[1])";
    assert_eq!(text(&c.call_args(&[b"EVAL", script, b"1", b"k"])), "v");
    c.call("ACL SETUSER u on +get ~a").ok();
    c.call("ACL DRYRUN u fetch a").ok();
    assert_eq!(c.call("COMMAND GETKEYS fetch a").array().len(), 1);
    assert_eq!(
        c.call("COMMAND GETKEYS get a").error(),
        "ERR Invalid command specified"
    );
}

#[test]
fn passwords_that_nobody_guesses() {
    let server = start(settings(1));
    let mut c = Client::connect(&server);
    let (one, two) = (c.call("ACL GENPASS"), c.call("ACL GENPASS"));
    assert_eq!(text(&one).len(), 64);
    assert_ne!(one, two);
    assert_eq!(text(&c.call("ACL GENPASS 5")).len(), 2);
    assert_eq!(text(&c.call("ACL GENPASS 4096")).len(), 1024);
    for wrong in ["0", "-1", "4097"] {
        assert!(
            c.call(&format!("ACL GENPASS {wrong}"))
                .error()
                .contains("up to 4096")
        );
    }
}

#[test]
fn of_the_places_to_store_at_the_one_that_is_written_is_checked() {
    with_workers(|server| {
        let mut admin = Client::connect(server);
        admin.call("GEOADD mine:g 1 1 here");
        admin.call("ACL SETUSER u on >p ~mine:* +@all").ok();
        let mut u = user(server, "u");
        let refused = u.call("GEORADIUS mine:g 1 1 1 km STORE mine:a STORE theirs");
        assert_eq!(refused.error(), DENIED_KEY);
        let calls = [
            "GEORADIUS mine:g 1 1 1 km STORE theirs STORE mine:a",
            "GEORADIUSBYMEMBER mine:g here 1 km STOREDIST STORE STOREDIST mine:b",
        ];
        for call in calls {
            assert_eq!(u.call(call), Value::Integer(1), "{call}");
        }
        assert_eq!(admin.call("EXISTS theirs STORE"), Value::Integer(0));
    });
}
