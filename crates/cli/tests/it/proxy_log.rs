//! The log of `redline proxy`: its lines, its omissions, and secrets that must not be there or anywhere else.

use std::io::Read as _;
use std::path::Path;

use crate::proxying::{
    self, REDLINE, assert_error, bulk, call, ok, proxy_with, scripted, shards, until,
};
use proxying::seen::{flat, number, pages, proxy, slow_server, text};
use redline_resp::Value;
use redline_testkit::client::{Client, encode};
use redline_testkit::process::{SECOND_PORT, ServerProcess};

#[test]
fn requests_are_logged_one_in_so_many_and_files_turn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy.log");
    let config = format!(
        "threads = 1\n[log]\nfile = '{}'\nrotate-size = '4kb'\n[log.sample]\ninfo = 10",
        path.display()
    );
    let (_configured, proxy) = proxy(&[slow_server()], &config);
    let mut client = Client::connect(proxy.address()).unwrap();
    for key in 0..1000 {
        call(&mut client, &format!("GET key:{key}"));
    }
    let lines = || -> Vec<String> {
        let files = std::fs::read_dir(folder.path()).unwrap();
        let text = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        let all: Vec<String> = text.collect();
        let lines = all.iter().flat_map(|text| text.lines());
        lines
            .filter(|line| line.contains(" - client "))
            .map(str::to_owned)
            .collect()
    };
    until("all lines are written", || lines().len() >= 99);
    assert!(lines().len() <= 101);
    let line = &lines()[0];
    let words: Vec<&str> = line.split(' ').skip(6).collect();
    assert_eq!(
        (words[0], words[2], words[4], words[6], words[8]),
        ("client", "get", "server", "elapsed", "us"),
        "{line}"
    );
    assert!(
        words[1].starts_with("127.0.0.1:") && words[3].starts_with("\"key:"),
        "{line}"
    );
    assert!(std::fs::read_dir(folder.path()).unwrap().count() >= 2);
    assert_eq!(call(&mut client, "CONFIG SET LogInfoSample 0"), ok());
    let before = lines().len();
    for key in 0..100 {
        call(&mut client, &format!("GET key:{key}"));
    }
    assert_eq!(lines().len(), before);
}

#[test]
fn lines_have_the_forms_of_the_server_s() {
    for (more, begins) in [
        ("", "PID:P "),
        (
            "format = 'json'\n",
            "{\"pid\":PID,\"role\":\"proxy\",\"timestamp\":\"20",
        ),
        ("format = 'logfmt'\n", "pid=PID role=proxy timestamp=\"20"),
        ("timestamp-format = 'milliseconds'\n", "PID:P 1"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.log");
        let config = format!("threads = 1\n[log]\nfile = '{}'\n{more}", path.display());
        let (_configured, proxy) = proxy(&[slow_server()], &config);
        let begins = begins.replace("PID", &proxy.pid().to_string());
        let read = || std::fs::read_to_string(&path).unwrap();
        // A thread of its own writes them.
        until("it is written", || read().contains(" is listening on "));
        let log = read();
        for line in log.lines() {
            assert!(line.starts_with(&begins), "{begins}: {log}");
        }
    }
}

#[test]
fn a_log_that_stands_still_holds_nobody_up_and_says_what_it_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    let made = std::process::Command::new("mkfifo")
        .arg(&path)
        .status()
        .unwrap();
    assert!(made.success());
    // Opened for both, so that neither side waits for the other; it is never read.
    let mut reader = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let config = format!(
        "threads = 1\n[log]\nfile = '{}'\n[log.sample]\ninfo = 1",
        path.display()
    );
    let (_configured, proxy) = proxy(&[slow_server()], &config);
    let mut client = Client::connect(proxy.address()).unwrap();
    let mut requests = Vec::new();
    (0..5000).for_each(|key| encode(&["GET", &format!("key:{key}")], &mut requests));
    until("lines are left out", || {
        client.send(&requests).unwrap();
        (0..5000).for_each(|_| assert!(client.reply().unwrap().is_some()));
        number(&mut client, "INFO stats", "log_lines_left_out") > 0
    });
    let mut log = Vec::new();
    until("the log says so", || {
        let mut part = vec![0; 64 * 1024];
        call(&mut client, "GET another");
        let read = reader.read(&mut part).unwrap();
        log.extend_from_slice(&part[..read]);
        String::from_utf8_lossy(&log).contains("lines were left out")
    });
}

#[test]
fn the_proxy_s_own_password_is_nowhere_to_be_seen() {
    // One closes after the password, others repeat it in errors.
    let leaves = proxying::scripted_over(|words, _| match words[0].as_slice() {
        b"AUTH" => None,
        _ => Some(b"+PONG\r\n".to_vec()),
    });
    let repeats = scripted(|words| match words[0].as_slice() {
        b"AUTH" => {
            b"-ERR unknown command 'AUTH', with args beginning with: 'someone' 'topsecret' \r\n"
                .to_vec()
        }
        _ => b"+PONG\r\n".to_vec(),
    });
    let quotes = scripted(|words| match words[0].as_slice() {
        b"AUTH" => b"-WRONGPASS no, topsecret is wrong\r\n".to_vec(),
        _ => b"+PONG\r\n".to_vec(),
    });
    for server in [leaves, repeats, quotes] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let config = format!(
            "threads = 1\n[metrics]\nbind = '127.0.0.1:{SECOND_PORT}'\n[observe]\nslowlog-log-slower-than = '1us'\n\
             latency-monitor-threshold = '1ms'\nkey-sample = 1\n[log]\nfile = '{}'\n\
             [log.sample]\nverbose = 1\ndebug = 1\ninfo = 1\n[[listener]]\nbind = '127.0.0.1:1'\n\
             [[pool]]\nuser = 'someone'\npassword = 'topsecret'\nfailure = {{ limit = 1000 }}\n{}",
            log.display(),
            proxying::shards(&[server]),
        );
        let proxy = ServerProcess::proxy_of_file(Path::new(REDLINE), &config).unwrap();
        let port = proxy.second_port();
        let mut client = Client::connect(proxy.address()).unwrap();
        let mut watcher = Client::connect(proxy.address()).unwrap();
        assert_eq!(call(&mut watcher, "MONITOR"), ok());
        let mut said = String::new();
        for line in ["GET k", "SUBSCRIBE c", "RESET", "MULTI", "GET k", "EXEC"] {
            said += &flat(&call(&mut client, line));
        }
        assert!(said.contains("ERR upstream"), "{said}");
        for line in [
            "SLOWLOG GET -1",
            "LATENCY LATEST",
            "LATENCY HISTORY command",
            "INFO everything",
            "CONFIG GET *",
            "PROXY HOTKEYS",
            "PROXY BIGKEYS",
            "CLIENT LIST",
        ] {
            let reply = call(&mut client, line);
            assert!(!reply.is_error(), "{line}: {reply:?}");
            said += &flat(&reply);
        }
        // Only the client's GET was slow.
        let Value::Array(entries) = call(&mut client, "SLOWLOG GET -1") else {
            panic!("entries");
        };
        assert!(
            entries.iter().all(|entry| flat(entry).contains("GET k")),
            "{entries:?}"
        );
        said += &pages(&format!("127.0.0.1:{port}"));
        assert_eq!(call(&mut client, "ECHO last"), bulk("last"));
        while !said.contains("\"ECHO\" \"last\"") {
            said += &text(&watcher.reply().unwrap().expect("a line"));
        }
        until("the log is written", || {
            std::fs::read_to_string(&log).is_ok_and(|log| log.contains("is lost: "))
        });
        said += &std::fs::read_to_string(&log).unwrap();
        assert!(!said.contains("topsecret"), "{said}");
    }
}

#[test]
fn a_server_that_lets_nobody_in_is_named_once() {
    let words = ["--requirepass", "secret"].map(str::to_owned);
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &words).unwrap();
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\npassword = 'nonsense'\n{}",
        shards(&[server.address()])
    ));
    let mut client = Client::connect(proxy.address()).unwrap();
    let said = "does not let the proxy in: WRONGPASS";
    until("it is named", || {
        assert_error(&call(&mut client, "GET k"), "ERR upstream");
        proxy.log().contains(said)
    });
    let mut direct = Client::connect(server.address()).unwrap();
    assert_eq!(call(&mut direct, "AUTH secret"), ok());
    let connections = |direct: &mut Client| {
        let info = call(direct, "INFO stats");
        let text = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = connections(&mut direct);
    until("it has been tried again and again", || {
        assert_error(&call(&mut client, "GET k"), "ERR upstream");
        connections(&mut direct) > before + 4
    });
    assert_eq!(proxy.log().matches(said).count(), 1, "{}", proxy.log());
    assert_eq!(call(&mut direct, "CONFIG SET requirepass nonsense"), ok());
    until("it lets us in", || {
        call(&mut client, "GET k") == Value::NullBulk
    });
}
