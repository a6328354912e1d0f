//! Observability of `redline proxy`: INFO, SLOWLOG, LATENCY, CONFIG, MONITOR, metrics, frequent keys.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use crate::proxying::{self, Behind, REDLINE, assert_error, bulk, call, ok, scripted, until};
use proxying::seen::{field, flat, number, pages, proxy, server, slow_server, text};
use redline_resp::Value;
use redline_testkit::client::{Client, encode};
use redline_testkit::process::{SECOND_PORT, ServerProcess};

#[test]
fn info_has_the_sections_and_names_of_predixy_and_those_that_clients_look_for() {
    let behind = Behind::new(3, 2);
    let mut client = behind.client();
    for key in 0..100 {
        call(&mut client, &format!("SET k{key} v"));
    }
    let info = text(&call(&mut client, "INFO"));
    for section in [
        "Server",
        "Clients",
        "Memory",
        "SystemResource",
        "Stats",
        "Replication",
        "Servers",
        "LatencyMonitor",
    ] {
        assert!(
            info.contains(&format!("# {section}\r\n")),
            "{section}: {info}"
        );
    }
    for name in [
        "redis_version",
        "redis_mode",
        "tcp_port",
        "connected_clients",
        "used_memory",
        "role",
        "Version",
        "Name",
        "Bind",
        "RedisMode",
        "SingleThread",
        "WorkerThreads",
        "Uptime",
        "UptimeSince",
        "UsedMemory",
        "MaxMemory",
        "MaxRSS",
        "UsedCpuSys",
        "UsedCpuUser",
        "Accept",
        "ClientConnections",
        "TotalRequests",
        "TotalResponses",
        "TotalRecvClientBytes",
        "TotalSendServerBytes",
        "TotalRecvServerBytes",
        "TotalSendClientBytes",
        "Server",
        "Role",
        "Group",
        "DC",
        "CurrentIsFail",
        "Connections",
        "Connect",
        "Requests",
        "Responses",
        "SendBytes",
        "RecvBytes",
    ] {
        assert!(field(&info, name).is_some(), "{name}: {info}");
    }
    assert_eq!(field(&info, "RedisMode").as_deref(), Some("proxy"));
    assert_eq!(info.matches("Role:master").count(), 3);
    let requests: u64 = field(&info, "TotalRequests").unwrap().parse().unwrap();
    let responses: u64 = field(&info, "TotalResponses").unwrap().parse().unwrap();
    assert!(requests >= 101 && responses >= 100, "{info}");
    assert!(requests - responses <= 1, "{info}");
    let one = text(&call(&mut client, "INFO Stats"));
    assert!(
        one.starts_with("# Stats\r\n") && !one.contains("# Server"),
        "{one}"
    );
    // Clients wait for this before they begin.
    assert!(!info.contains("loading:1"));
}

#[test]
fn counters_are_those_of_all_workers_and_begin_anew_when_told() {
    let behind = Behind::new(2, 2);
    let mut clients: Vec<Client> = (0..8).map(|_| behind.client()).collect();
    for client in &mut clients {
        let mut requests = Vec::new();
        for number in 0..50 {
            encode(&["SET", &format!("k{number}"), "v"], &mut requests);
            encode(&["GET", &format!("k{number}")], &mut requests);
            encode(&["GET", &format!("k{number}")], &mut requests);
        }
        client.send(&requests).unwrap();
        for _ in 0..150 {
            assert!(client.reply().unwrap().is_some());
        }
    }
    let calls = |client: &mut Client, name: &str| -> u64 {
        let info = text(&call(client, "INFO commandstats"));
        let line = field(&info, &format!("cmdstat_{name}"));
        line.map_or(0, |line| {
            let calls = line.strip_prefix("calls=").unwrap();
            calls.split(',').next().unwrap().parse().unwrap()
        })
    };
    let client = &mut clients[0];
    // Runs of several commands are counted by command.
    until("all are counted", || {
        (calls(client, "get"), calls(client, "set")) == (800, 400)
    });
    let reply = call(client, "LATENCY HISTOGRAM get");
    let Value::Array(pairs) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(pairs[0], bulk("get"));
    let Value::Array(what) = &pairs[1] else {
        panic!("{pairs:?}")
    };
    assert_eq!(what[..2], [bulk("calls"), Value::Integer(800)]);
    let Value::Array(steps) = &what[3] else {
        panic!("{what:?}")
    };
    assert_eq!(steps.last(), Some(&Value::Integer(800)));
    call(client, "MGET k1 k2 k3 k4 k5 k6");
    assert_eq!(calls(client, "mget"), 1);
    assert_eq!(call(client, "CONFIG RESETSTAT"), ok());
    assert_eq!((calls(client, "get"), calls(client, "mget")), (0, 0));
    assert_eq!(call(client, "INFO ResetStats"), ok());
    assert!(number(client, "INFO stats", "TotalRequests") < 10);
    call(client, "GET k1");
    assert_eq!(calls(client, "get"), 1);
    let reply = call(client, "LPUSH k1 x");
    assert!(reply.is_error());
    let info = text(&call(client, "INFO commandstats"));
    let line = field(&info, "cmdstat_lpush").unwrap();
    assert!(line.ends_with("rejected_calls=0,failed_calls=1"), "{line}");
}

#[test]
fn latency_monitors_print_what_predixy_prints() {
    let server = slow_server();
    let monitors = "[[latency-monitor]]\nname = 'all'\ncommands = ['all', '-incr']\nbounds-us = [10000, 20000]\n\
                    [[latency-monitor]]\nname = 'set'\ncommands = ['set']\nbounds-us = [1000000]\n";
    let (_folder, proxy) = proxy(&[server], monitors);
    let mut client = Client::connect(proxy.address()).unwrap();
    for line in ["GET slow", "GET a", "SET a 1", "INCR a", "GET a"] {
        call(&mut client, line);
    }
    let table = |client: &mut Client, line: &str| -> Vec<Vec<String>> {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        text(&call(client, line)).lines().map(words).collect()
    };
    let rows = table(&mut client, "INFO Latency all");
    assert_eq!(rows[1], ["LatencyMonitorName:all"]);
    assert_eq!(rows[2], ["latency(us)", "sum(us)", "counts"]);
    let (quick, slow, total) = (&rows[3], &rows[4], &rows[5]);
    assert_eq!(
        (&quick[0], &quick[1], &quick[3], &quick[4]),
        (&"<=".into(), &"10000".into(), &"3".into(), &"75.00%".into())
    );
    assert_eq!(
        (&slow[0], &slow[1], &slow[3], &slow[4]),
        (&">".into(), &"20000".into(), &"1".into(), &"100.00%".into())
    );
    assert!(slow[2].parse::<u64>().unwrap() >= 30_000, "{slow:?}");
    assert_eq!((&total[0], &total[3]), (&"T".into(), &"4".into()));
    let of_server = table(&mut client, &format!("INFO ServerLatency {server} set"));
    assert_eq!(
        of_server[1],
        [format!("ServerLatencyMonitorName:{server}"), "set".into()]
    );
    assert_eq!(of_server[3][3..], ["1", "100.00%"]);
    let both = text(&call(&mut client, &format!("INFO ServerLatency {server}")));
    assert_eq!(both.matches("ServerLatencyMonitorName:").count(), 2);
    let all = text(&call(&mut client, "INFO LatencyMonitor"));
    assert_eq!(all.matches("LatencyMonitorName:").count(), 2);
    assert_error(&call(&mut client, "INFO Latency none"), "ERR");
    assert_error(&call(&mut client, "INFO ServerLatency 1.2.3.4:5"), "ERR");
    assert_error(
        &call(&mut client, &format!("INFO ServerLatency {server} none")),
        "ERR",
    );
}

#[test]
fn slow_calls_are_in_the_slow_log_with_their_arguments_and_their_client() {
    let (_folder, proxy) = proxy(&[slow_server()], "threads = 2");
    let mut client = Client::connect(proxy.address()).unwrap();
    assert_eq!(
        call(&mut client, "CONFIG SET slowlog-log-slower-than 20000"),
        ok()
    );
    call(&mut client, "CLIENT SETNAME me");
    let mut requests = Vec::new();
    let long = "x".repeat(200);
    for words in [&["GET", "a"][..], &["SET", "slow", &long], &["GET", "b"]] {
        encode(words, &mut requests);
    }
    client.send(&requests).unwrap();
    (0..3).for_each(|_| drop(client.reply().unwrap()));
    until("it is there", || {
        call(&mut client, "SLOWLOG LEN") != Value::Integer(0)
    });
    let Value::Array(entries) = call(&mut client, "SLOWLOG GET -1") else {
        panic!("entries");
    };
    let entry = entries.iter().find_map(|entry| match entry {
        Value::Array(entry) => match &entry[3] {
            Value::Array(words) if words[0] == bulk("SET") => Some((entry, words)),
            _ => None,
        },
        _ => None,
    });
    let (entry, words) = entry.expect("the slow one is there");
    assert_eq!(entry.len(), 6);
    assert!(
        matches!(entry[2], Value::Integer(us) if us >= 30_000),
        "{entry:?}"
    );
    assert_eq!(words[1], bulk("slow"));
    assert_eq!(
        text(&words[2]),
        format!("{}... (72 more bytes)", "x".repeat(128))
    );
    assert!(text(&entry[4]).starts_with("127.0.0.1:"), "{entry:?}");
    assert_eq!(entry[5], bulk("me"));
    assert_eq!(call(&mut client, "SLOWLOG RESET"), ok());
    assert_eq!(call(&mut client, "SLOWLOG LEN"), Value::Integer(0));
    assert_eq!(call(&mut client, "SLOWLOG GET"), Value::Array(Vec::new()));
    assert_error(&call(&mut client, "SLOWLOG GET -2"), "ERR count should be");
    assert_error(
        &call(&mut client, "SLOWLOG GET 1 2"),
        "ERR unknown subcommand or wrong number of arguments for 'GET'",
    );
    assert_eq!(call(&mut client, "CONFIG SET slowlog-max-len 0"), ok());
    call(&mut client, "GET slow");
    assert_eq!(call(&mut client, "SLOWLOG LEN"), Value::Integer(0));
    let Value::Array(help) = call(&mut client, "SLOWLOG HELP") else {
        panic!("lines");
    };
    assert!(help.len() > 6);
}

#[test]
fn what_takes_as_long_as_the_threshold_is_an_event() {
    let (_folder, proxy) = proxy(&[slow_server()], "threads = 1");
    let mut client = Client::connect(proxy.address()).unwrap();
    call(&mut client, "GET slow");
    assert_eq!(
        call(&mut client, "LATENCY LATEST"),
        Value::Array(Vec::new())
    );
    assert!(text(&call(&mut client, "LATENCY DOCTOR")).contains("is off"));
    assert_eq!(
        call(&mut client, "CONFIG SET latency-monitor-threshold 20"),
        ok()
    );
    call(&mut client, "GET slow");
    let Value::Array(events) = call(&mut client, "LATENCY LATEST") else {
        panic!("events");
    };
    let Value::Array(event) = &events[0] else {
        panic!("{events:?}");
    };
    assert_eq!(event[0], bulk("command"));
    assert!(
        matches!(event[2], Value::Integer(ms) if ms >= 30),
        "{event:?}"
    );
    assert!(
        matches!(call(&mut client, "LATENCY HISTORY command"), Value::Array(all) if all.len() == 1)
    );
    assert!(text(&call(&mut client, "LATENCY DOCTOR")).contains("1. command:"));
    assert!(text(&call(&mut client, "LATENCY GRAPH command")).starts_with("command - high"));
    assert_error(&call(&mut client, "LATENCY GRAPH none"), "ERR No samples");
    assert_eq!(call(&mut client, "LATENCY RESET"), Value::Integer(1));
    assert_eq!(
        call(&mut client, "LATENCY LATEST"),
        Value::Array(Vec::new())
    );
}

#[test]
fn config_knows_the_names_of_predixy_and_sets_all_or_nothing() {
    let (_folder, proxy) = proxy(&[slow_server()], "name = 'left'\n[limits]\nmemory = '1gb'");
    let mut client = Client::connect(proxy.address()).unwrap();
    let get = |client: &mut Client, name: &str| call(client, &format!("CONFIG GET {name}"));
    let pair = |name: &str, value: &str| Value::Array(vec![bulk(name), bulk(value)]);
    // A matching name is shown as it was asked for, others in their own case.
    assert_eq!(get(&mut client, "name"), pair("name", "left"));
    assert_eq!(get(&mut client, "Nam?"), pair("Name", "left"));
    assert_eq!(get(&mut client, "*clients"), pair("maxclients", "10000"));
    assert_eq!(
        get(&mut client, "ClientTimeout"),
        pair("ClientTimeout", "0")
    );
    assert_eq!(
        get(&mut client, "AllowMissLog"),
        pair("AllowMissLog", "true")
    );
    assert_eq!(
        get(&mut client, "LogInfoSample"),
        pair("LogInfoSample", "0")
    );
    assert_eq!(
        get(&mut client, "MaxMemory"),
        pair("MaxMemory", "1073741824")
    );
    assert_eq!(
        get(&mut client, "slowlog-max-len"),
        pair("slowlog-max-len", "128")
    );
    assert_eq!(
        call(
            &mut client,
            "CONFIG SET MaxMemory 2G ClientTimeout 60 LogInfoSample 7"
        ),
        ok()
    );
    assert_eq!(
        get(&mut client, "MaxMemory"),
        pair("MaxMemory", "2147483648")
    );
    assert_eq!(
        get(&mut client, "maxmemory"),
        pair("maxmemory", "2147483648")
    );
    let names = get(&mut client, "*log-max-*");
    assert_eq!(names, pair("slowlog-max-len", "128"));
    assert_eq!(get(&mut client, "timeout"), pair("timeout", "60"));
    assert_error(
        &call(&mut client, "CONFIG SET ClientTimeout 5 LogInfoSample x"),
        "ERR CONFIG SET failed",
    );
    assert_error(
        &call(&mut client, "CONFIG SET ClientTimeout 5 nosuch 1"),
        "ERR Unknown option",
    );
    assert_error(
        &call(&mut client, "CONFIG SET ClientTimeout 5 clienttimeout 6"),
        "ERR CONFIG SET failed (possibly related to argument 'clienttimeout') - duplicate parameter",
    );
    assert_error(
        &call(&mut client, "CONFIG SET WorkerThreads 5"),
        "ERR CONFIG SET failed",
    );
    assert_eq!(
        get(&mut client, "ClientTimeout"),
        pair("ClientTimeout", "60")
    );
    let info = text(&call(&mut client, "INFO"));
    assert_eq!(field(&info, "Name").as_deref(), Some("left"));
    assert_eq!(field(&info, "MaxMemory").as_deref(), Some("2147483648"));
    // An idle client is closed by the new setting, not by the file's.
    assert_eq!(call(&mut client, "CONFIG SET ClientTimeout 1"), ok());
    let mut idle = Client::connect(proxy.address()).unwrap();
    assert_eq!(idle.reply().unwrap(), None);
}

#[test]
fn whoever_monitors_sees_the_calls_of_all_workers_but_no_secret() {
    let behind = Behind::new(2, 2);
    let mut watcher = behind.client();
    assert_eq!(call(&mut watcher, "MONITOR"), ok());
    let mut clients: Vec<Client> = (0..4).map(|_| behind.client()).collect();
    let mut own = Vec::new();
    for (number, client) in clients.iter_mut().enumerate() {
        // A worker may be in a turn that began before.
        call(client, "PING");
        let key = format!("k{number}");
        call(client, &format!("SET {key} a\"b"));
        while !own.iter().any(|line: &String| line.contains(&key)) {
            own.push(text(&watcher.reply().unwrap().expect("a line")));
        }
    }
    let line = own.iter().find(|line| line.contains("\"k2\"")).unwrap();
    let (time, rest) = line.split_once(' ').unwrap();
    let (seconds, us) = time.split_once('.').unwrap();
    assert!(seconds.len() >= 10 && us.len() == 6, "{line}");
    assert!(rest.starts_with("[0 127.0.0.1:"), "{line}");
    assert!(rest.ends_with("] \"SET\" \"k2\" \"a\\\"b\""), "{line}");
    call(&mut clients[0], "AUTH user topsecret");
    call(&mut clients[0], "HELLO 2 AUTH default topsecret");
    let large = "x".repeat(3_000_000);
    clients[0].call(&["SET", "large", &large]).unwrap();
    call(&mut clients[0], "GET last");
    let mut seen = Vec::new();
    while !seen.iter().any(|line: &String| line.contains("\"last\"")) {
        seen.push(text(&watcher.reply().unwrap().expect("a line")));
    }
    assert!(
        seen.iter()
            .any(|line| line.ends_with("\"AUTH\" \"(redacted)\" \"(redacted)\"")),
        "{seen:?}"
    );
    assert!(
        !seen.iter().any(|line| line.contains("topsecret")),
        "{seen:?}"
    );
    let large = seen.iter().find(|line| line.contains("\"large\""));
    assert!(
        large.is_some_and(|line| line.ends_with("\"SET\" \"large\" \"(3000000 bytes)\"")),
        "{seen:?}"
    );
    // It may go on as a client, and others are not affected.
    assert_eq!(
        call(&mut watcher, "RESET"),
        Value::Simple(b"RESET".to_vec())
    );
    assert_eq!(call(&mut clients[1], "GET k1"), bulk("a\"b"));
    assert_eq!(call(&mut watcher, "GET k1"), bulk("a\"b"));
}

#[test]
fn prometheus_gets_a_page_whose_series_are_bounded() {
    let server = slow_server();
    let users = "[[user]]\nname = 'default'\nmode = 'admin'\n";
    let config = format!(
        "name = 'm'\nthreads = 2\n{users}\n[metrics]\nbind = '127.0.0.1:{SECOND_PORT}'\n\
         [[listener]]\nbind = '127.0.0.1:1'\n[[pool]]\n{}",
        proxying::shards(&[server])
    );
    let proxy = ServerProcess::proxy_of_file(Path::new(REDLINE), &config).expect("it starts");
    let port = proxy.second_port();
    let mut client = Client::connect(proxy.address()).unwrap();
    for key in 0..50 {
        call(&mut client, &format!("GET key{key}"));
    }
    call(&mut client, "CONFIG RESETSTAT");
    call(&mut client, "INCR a");
    let address = format!("127.0.0.1:{port}");
    let page = pages(&address);
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    let has = |line: &str| page.lines().any(|found| found == line);
    for line in [
        "redline_proxy_command_calls_total{cmd=\"get\"} 50".to_owned(),
        "redline_proxy_command_rejected_total{cmd=\"get\"} 0".to_owned(),
        "redline_proxy_info{name=\"m\",version=\"0.1.0\"} 1".to_owned(),
        "redline_proxy_clients 1".to_owned(),
        format!("redline_proxy_server_up{{server=\"{server}\",pool=\"default\"}} 1"),
        "redline_proxy_command_latency_seconds_count{cmd=\"get\"} 50".to_owned(),
        "redline_proxy_command_latency_seconds_bucket{cmd=\"get\",le=\"+Inf\"} 50".to_owned(),
        "redline_proxy_command_failed_total{cmd=\"incr\"} 1".to_owned(),
        format!(
            "redline_proxy_server_latency_seconds_count{{server=\"{server}\",pool=\"default\"}} 51"
        ),
        "# TYPE redline_proxy_server_latency_seconds histogram".to_owned(),
        "# TYPE redline_proxy_requests_total counter".to_owned(),
    ] {
        assert!(has(&line), "{line} in {page}");
    }
    assert!(
        page.contains("redline_proxy_user_requests_total{user=\"default\"} 5"),
        "{page}"
    );
    assert!(!page.contains("key1"), "no key is a label");
    let series = page.lines().count();
    for key in 0..200 {
        call(&mut client, &format!("GET other{key}"));
    }
    call(&mut client, "NOSUCH a");
    assert_eq!(pages(&address).lines().count(), series);
}

#[test]
fn keys_that_come_often_and_keys_of_much_are_found() {
    let behind = Behind::new(2, 2);
    let mut client = behind.client();
    assert_eq!(call(&mut client, "CONFIG SET key-sample 5"), ok());
    let big = "x".repeat(20_000);
    let huge = "y".repeat(200_000);
    client.call(&["SET", "big", &big]).unwrap();
    client.call(&["SET", "huge", &huge]).unwrap();
    call(&mut client, "SET small x");
    let Value::Array(largest) = call(&mut client, "PROXY BIGKEYS") else {
        panic!("keys");
    };
    let keys: Vec<&Value> = largest
        .iter()
        .map(|entry| match entry {
            Value::Array(entry) => &entry[0],
            _ => panic!("{entry:?}"),
        })
        .collect();
    assert_eq!(keys, [&bulk("huge"), &bulk("big")]);
    assert!(
        matches!(&largest[1], Value::Array(entry) if entry[2..4] == [bulk("set"), bulk("request")])
    );
    assert_eq!(call(&mut client, "CONFIG RESETSTAT"), ok());
    assert_eq!(call(&mut client, "PROXY BIGKEYS"), Value::Array(Vec::new()));
    call(&mut client, "GET big");
    call(&mut client, "GET huge");
    let Value::Array(largest) = call(&mut client, "PROXY BIGKEYS 1") else {
        panic!("keys");
    };
    let Value::Array(entry) = &largest[0] else {
        panic!("{largest:?}");
    };
    assert_eq!((&entry[0], &entry[3]), (&bulk("huge"), &bulk("reply")));
    assert!(
        matches!(entry[1], Value::Integer(bytes) if (200_000..200_100).contains(&bytes)),
        "{entry:?}"
    );
    for round in 0..300 {
        let mut requests = Vec::new();
        for number in 0..20 {
            let other = format!("k{round}:{number}");
            let key = if number % 4 == 0 { "hot" } else { &other };
            encode(&["GET", key], &mut requests);
        }
        client.send(&requests).unwrap();
        (0..20).for_each(|_| drop(client.reply().unwrap()));
    }
    let Value::Array(hottest) = call(&mut client, "PROXY HOTKEYS 3") else {
        panic!("keys");
    };
    let Value::Array(entry) = &hottest[0] else {
        panic!("{hottest:?}");
    };
    assert_eq!(entry[0], bulk("hot"), "{hottest:?}");
    assert!(
        matches!(entry[1..], [Value::Integer(rate), Value::Integer(least)] if rate >= least && least > 0)
    );
    assert_error(&call(&mut client, "PROXY"), "ERR");
    assert_error(&call(&mut client, "PROXY HOTKEYS x"), "ERR syntax");
    assert!(matches!(call(&mut client, "PROXY HELP"), Value::Array(_)));
}

#[test]
fn too_much_memory_refuses_new_work_and_then_closes_who_holds_the_most() {
    let server = server();
    let (_folder, proxy) = proxy(
        &[server.address()],
        "threads = 1\n[limits]\nmemory = '8mb'\noutput-buffer = '1gb'\nsubscriber-output-buffer = '1gb'",
    );
    let mut other = Client::connect(proxy.address()).unwrap();
    let value = "v".repeat(1_000_000);
    assert_eq!(other.call(&["SET", "big", &value]).unwrap(), ok());
    // A client asks for much and does not read.
    let mut greedy = TcpStream::connect(proxy.address()).unwrap();
    let mut subscribed = Vec::new();
    encode(&["SUBSCRIBE", "c"], &mut subscribed);
    greedy.write_all(&subscribed).unwrap();
    let mut first = [0; 10];
    greedy.read_exact(&mut first).unwrap();
    let mut refused = false;
    until("it is closed", || {
        let reply = other.call(&["PUBLISH", "c", &value]).unwrap();
        if reply.is_error() {
            assert_error(&reply, "OOM command not allowed");
            refused = true;
        }
        number(&mut other, "INFO stats", "evicted_clients") == 1
    });
    assert!(refused);
    until("others go on", || {
        !call(&mut other, "STRLEN big").is_error()
    });
    assert!(number(&mut other, "INFO stats", "refused_for_memory") > 0);
    assert_eq!(call(&mut other, "STRLEN big"), Value::Integer(1_000_000));
}

#[test]
fn a_limit_on_memory_that_is_lifted_holds_nobody_up() {
    let server = server();
    let (_folder, proxy) = proxy(&[server.address()], "threads = 2");
    let mut clients = [(); 4].map(|()| Client::connect(proxy.address()).unwrap());
    // Clients with buffers: one of them is closed at each check.
    let _halves: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(proxy.address()).unwrap();
            stream
                .write_all(b"*2\r\n$3\r\nGET\r\n$1000\r\nhalf")
                .unwrap();
            stream
        })
        .collect();
    assert_eq!(call(&mut clients[0], "CONFIG SET maxmemory 100"), ok());
    for client in &mut clients {
        until("there is too little", || call(client, "SET k v").is_error());
    }
    assert_eq!(call(&mut clients[1], "CONFIG SET maxmemory 0"), ok());
    for client in &mut clients {
        assert_eq!(call(client, "SET k v"), ok());
    }
}

#[test]
fn who_may_not_administer_sees_nothing_of_others() {
    let users = "[[user]]\nname = 'default'\nmode = 'write'\n[[user]]\nname = 'admin'\npassword = 'a'\nmode = 'admin'\n";
    let (_folder, proxy) = proxy(&[slow_server()], users);
    let mut client = Client::connect(proxy.address()).unwrap();
    let calls = [
        "MONITOR",
        "SLOWLOG GET",
        "LATENCY LATEST",
        "CONFIG GET *",
        "CONFIG SET MaxMemory 1",
        "CONFIG RESETSTAT",
        "INFO ResetStats",
        "PROXY HOTKEYS",
        "PROXY BIGKEYS",
    ];
    for line in calls {
        assert_error(&call(&mut client, line), "NOPERM");
    }
    assert!(!call(&mut client, "INFO").is_error());
    let rejected = text(&call(&mut client, "INFO commandstats"));
    let line = field(&rejected, "cmdstat_monitor").unwrap();
    assert!(
        line.contains("calls=0,") && line.contains("rejected_calls=1"),
        "{line}"
    );
    assert_eq!(call(&mut client, "AUTH admin a"), ok());
    for line in calls {
        assert!(!call(&mut client, line).is_error(), "{line}");
    }
}

#[test]
fn a_request_that_nobody_answers_is_a_slow_call_and_a_failed_one() {
    let server = scripted(|words| match words[0].to_ascii_lowercase().as_slice() {
        b"ping" => b"+PONG\r\n".to_vec(),
        b"get" => Vec::new(),
        _ => b"+OK\r\n".to_vec(),
    });
    let config = "threads = 1\nlocal-data-center = 'east'\n[timeouts]\nrequest = '200ms'\n\
                  [[data-center]]\nname = 'east'\naddress-prefixes = ['127.']\nread = [{ data-center = 'east', priority = 50 }]\n";
    let (_folder, proxy) = proxy(&[server], config);
    let mut client = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut client, "SET k v"), ok());
    assert_error(&call(&mut client, "GET nobody"), "ERR upstream");
    let Value::Array(entries) = call(&mut client, "SLOWLOG GET") else {
        panic!("entries");
    };
    let Value::Array(entry) = &entries[0] else {
        panic!("{entries:?}");
    };
    assert_eq!(entry[3], Value::Array(vec![bulk("GET"), bulk("nobody")]));
    assert!(
        matches!(entry[2], Value::Integer(us) if us >= 200_000),
        "{entry:?}"
    );
    let info = text(&call(&mut client, "INFO all"));
    let line = field(&info, "cmdstat_get").unwrap();
    assert!(
        line.starts_with("calls=1,") && line.ends_with("failed_calls=1"),
        "{line}"
    );
    assert_eq!(field(&info, "TimedOut").as_deref(), Some("1"));
    assert_eq!(field(&info, "DC").as_deref(), Some("east"));
    assert_eq!(field(&info, "Role").as_deref(), Some("master"));
}

#[test]
fn the_rate_of_requests_is_shown_while_there_are_some() {
    let behind = Behind::new(1, 2);
    let mut client = behind.client();
    until("there is a rate", || {
        number(&mut client, "INFO stats", "instantaneous_ops_per_sec") > 100
    });
}

#[test]
fn what_predixy_s_file_says_of_seeing_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (file, log) = (
        folder.path().join("predixy.conf"),
        folder.path().join("log"),
    );
    let text = format!(
        "Name left\nMaxMemory 100M\nClientTimeout 300\nLog {}\nLogRotate 1d 2G\nLogInfoSample 10\n\
         LatencyMonitor all {{\n Commands {{\n + all\n - blpop\n }}\n TimeSpan {{\n + 1000000\n + 2000000\n }}\n}}\n\
         StandaloneServerPool {{\n RefreshMethod fixed\n Group g {{\n + {}\n }}\n}}\n",
        log.display(),
        slow_server(),
    );
    std::fs::write(&file, text).unwrap();
    let words = ["--predixy".to_owned(), file.display().to_string()];
    let proxy = ServerProcess::proxy(Path::new(REDLINE), &[], &words).expect("the proxy starts");
    let mut client = Client::connect(proxy.address()).unwrap();
    (0..20).for_each(|_| drop(call(&mut client, "GET k")));
    let info = self::text(&call(&mut client, "INFO"));
    assert_eq!(field(&info, "Name").as_deref(), Some("left"));
    assert_eq!(field(&info, "MaxMemory").as_deref(), Some("104857600"));
    let table = self::text(&call(&mut client, "INFO Latency all"));
    let row = table.lines().find(|line| line.starts_with("<=")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((words[1], words[3], words[4]), ("1000000", "20", "100.00%"));
    until("two lines are written", || {
        let lines = std::fs::read_to_string(&log).unwrap_or_default();
        lines
            .lines()
            .filter(|line| line.contains(" - client "))
            .count()
            == 2
    });
}

#[test]
fn what_is_put_off_counts_once_is_shown_once_and_is_paid_for_once() {
    let server = server();
    let users = "[[user]]\nname = 'default'\nmode = 'admin'\n[[user]]\nname = 'limited'\npassword = 'l'\nmode = 'admin'\ncommands-per-second = 12\nwhen-exceeded = 'refuse'\n";
    let (_folder, proxy) = proxy(&[server.address()], &format!("threads = 1\n{users}"));
    let mut watcher = Client::connect(proxy.address()).unwrap();
    let mut client = Client::connect(proxy.address()).unwrap();
    let mut limited = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut watcher, "MONITOR"), ok());
    assert_eq!(call(&mut limited, "AUTH limited l"), ok());
    assert_eq!(call(&mut client, "CONFIG RESETSTAT"), ok());
    let before = number(&mut client, "INFO stats", "TotalRequests");
    for client in [&mut client, &mut limited] {
        // SELECT waits for replies of the other database.
        let mut requests = Vec::new();
        for number in 0..5 {
            encode(&["SET", &format!("k{number}"), "v"], &mut requests);
            encode(&["SELECT", &(number % 2).to_string()], &mut requests);
        }
        client.send(&requests).unwrap();
        (0..10).for_each(|_| assert_eq!(client.reply().unwrap(), Some(ok())));
    }
    let info = text(&call(&mut client, "INFO all"));
    assert_eq!(
        field(&info, "TotalRequests"),
        Some((before + 21).to_string())
    );
    let line = field(&info, "cmdstat_select").unwrap();
    assert!(line.starts_with("calls=10,"), "{line}");
    call(&mut client, "ECHO last");
    let mut lines: Vec<String> = Vec::new();
    while !lines.iter().any(|line| line.contains("\"last\"")) {
        lines.push(text(&watcher.reply().unwrap().expect("a line")));
    }
    let selects = lines.iter().filter(|line| line.contains("\"SELECT\""));
    assert_eq!(selects.count(), 10, "{lines:?}");
}

#[test]
fn what_the_proxy_does_by_itself_stands_outside_of_transactions() {
    let config = "[commands]\nforbidden = ['config|resetstat']\n";
    let server = server();
    let (_folder, proxy) = proxy(&[server.address()], config);
    let mut client = Client::connect(proxy.address()).unwrap();
    (0..5).for_each(|_| drop(call(&mut client, "GET k")));
    // The same by another name.
    call(&mut client, "INFO ResetStats");
    assert!(number(&mut client, "INFO stats", "TotalRequests") > 5);
    for line in ["CONFIG RELOAD", "PROXY HOTKEYS"] {
        assert!(!call(&mut client, line).is_error(), "{line}");
        assert_eq!(call(&mut client, "MULTI"), ok());
        assert_error(&call(&mut client, line), "ERR");
        assert_error(&call(&mut client, "EXEC"), "EXECABORT");
    }
    call(&mut client, "SUBSCRIBE c");
    for line in ["CONFIG RELOAD", "PROXY HOTKEYS"] {
        assert_error(&call(&mut client, line), "ERR Can't execute");
    }
}

#[test]
fn keys_of_much_begin_anew_at_every_worker() {
    let behind = Behind::new(1, 2);
    // Each worker has one of them.
    let (mut one, mut other) = (behind.client(), behind.client());
    let big = "x".repeat(20_000);
    for key in 0..130 {
        let key = format!("k{key}");
        assert_eq!(other.call(&["SET", &key, &big]).unwrap(), ok());
    }
    assert_eq!(call(&mut one, "CONFIG RESETSTAT"), ok());
    let smaller = "y".repeat(6_000);
    assert_eq!(other.call(&["SET", "small", &smaller]).unwrap(), ok());
    let found = flat(&call(&mut one, "PROXY BIGKEYS -1"));
    assert!(found.starts_with("small "), "{found}");
}

#[test]
fn a_call_that_fails_at_several_servers_has_failed_once() {
    let refusing = || {
        scripted(|words| match words[0].to_ascii_lowercase().as_slice() {
            b"ping" => b"+PONG\r\n".to_vec(),
            b"del" => b"-NOPERM not here\r\n".to_vec(),
            _ => b"+OK\r\n".to_vec(),
        })
    };
    let (_folder, proxy) = proxy(&[refusing(), refusing(), refusing()], "threads = 1");
    let mut client = Client::connect(proxy.address()).unwrap();
    let keys: Vec<String> = (0..50).map(|key| format!("k{key}")).collect();
    assert_error(
        &call(&mut client, &format!("DEL {}", keys.join(" "))),
        "NOPERM",
    );
    let info = text(&call(&mut client, "INFO commandstats"));
    let line = field(&info, "cmdstat_del").unwrap();
    assert!(
        line.starts_with("calls=1,") && line.ends_with("failed_calls=1"),
        "{line}"
    );
}

#[test]
fn a_threshold_beyond_all_numbers_harms_nobody() {
    let (_folder, proxy) = proxy(&[slow_server()], "threads = 1");
    let mut client = Client::connect(proxy.address()).unwrap();
    let most = u64::MAX;
    let line = format!("CONFIG SET latency-monitor-threshold {most} slowlog-log-slower-than 0");
    assert_eq!(call(&mut client, &line), ok());
    assert_eq!(call(&mut client, "GET k"), bulk("v"));
    assert_eq!(call(&mut client, "GET k"), bulk("v"));
    assert_eq!(
        call(&mut client, "LATENCY LATEST"),
        Value::Array(Vec::new())
    );
}

#[test]
fn clients_are_listed_with_their_users_and_killed_by_them() {
    let users = "threads = 2\n[[user]]\nname = 'default'\nmode = 'admin'\n[[user]]\nname = 'other'\npassword = 'o'\nmode = 'read'\n";
    let (_folder, proxy) = proxy(&[slow_server()], users);
    let mut clients: Vec<Client> = (0..5)
        .map(|_| Client::connect(proxy.address()).unwrap())
        .collect();
    for client in &mut clients[1..4] {
        assert_eq!(call(client, "AUTH other o"), ok());
    }
    call(&mut clients[3], "RESET");
    let list = text(&call(&mut clients[0], "CLIENT LIST"));
    let of = |user: &str| list.matches(&format!(" user={user} ")).count();
    assert_eq!((of("other"), of("default")), (2, 3), "{list}");
    let admin = &mut clients[0];
    assert_error(
        &call(admin, "CLIENT KILL USER nobody"),
        "ERR No such user 'nobody'",
    );
    assert_error(&call(admin, "CLIENT KILL MAXAGE 0"), "ERR");
    assert_eq!(call(admin, "CLIENT KILL MAXAGE 100000"), Value::Integer(0));
    assert_eq!(call(admin, "CLIENT KILL USER other"), Value::Integer(2));
    for client in &mut clients[1..3] {
        assert_eq!(client.reply().unwrap(), None);
    }
    for client in [0, 3, 4] {
        assert_eq!(call(&mut clients[client], "ECHO here"), bulk("here"));
    }
}
