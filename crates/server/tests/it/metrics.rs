//! The metrics listener: what it tells, in which form, and that nobody who talks to it harms anybody. Must not know the
//! server's insides.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::client::{Client, Value, settings, start, until};
use crate::config_live::field;
use crate::replication::Replica;
use redline_server::{Permission, Server, Settings};

fn server(workers: usize) -> Server {
    start(Settings {
        metrics_port: Some(0),
        enable_debug_command: Permission::Yes,
        ..settings(workers)
    })
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.metrics_port())).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
}

/// Sends these bytes and returns what comes back, to the end of the connection.
fn exchange(server: &Server, request: &[u8]) -> String {
    let mut stream = connect(server);
    stream.write_all(request).unwrap();
    read(stream)
}

fn read(mut stream: TcpStream) -> String {
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("text, and an end");
    reply
}

/// The connection ends without a word.
#[track_caller]
fn ends(mut stream: TcpStream) {
    // What it had sent was not read: then it is a reset.
    match stream.read(&mut [0]) {
        Ok(bytes) => assert_eq!(bytes, 0, "nothing was asked"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

/// Samples by name and labels.
type Samples = BTreeMap<String, f64>;

/// The page, with the rules of its format checked.
fn scrape(server: &Server) -> Samples {
    let reply = exchange(server, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, page) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("Content-Type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(
        head.contains(&format!("Content-Length: {}", page.len())),
        "{head}"
    );
    let (mut samples, mut families, mut family) = (Samples::new(), BTreeSet::new(), String::new());
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(text.ends_with('.'), "{line}");
            assert!(families.insert(name.to_string()), "{name} twice");
            family = name.into();
        } else if let Some(sort) = line.strip_prefix("# TYPE ") {
            let (name, sort) = sort.split_once(' ').unwrap();
            assert_eq!(name, family);
            assert!(
                ["counter", "gauge", "histogram", "summary"].contains(&sort),
                "{line}"
            );
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(&family), "{line} in {family}");
            let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(samples.insert(name.into(), value).is_none(), "{name} twice");
        }
    }
    samples
}

#[track_caller]
fn sample(samples: &Samples, name: &str) -> f64 {
    *samples
        .get(name)
        .unwrap_or_else(|| panic!("{name} in {samples:#?}"))
}

/// By how much a sample has moved.
#[track_caller]
fn moved(before: &Samples, after: &Samples, name: &str) -> f64 {
    sample(after, name) - before.get(name).unwrap_or(&0.0)
}

#[test]
fn figures_move_with_what_they_count() {
    let server = server(2);
    let mut client = Client::connect(&server);
    client.call("PING");
    let before = scrape(&server);
    client.call("SET k v").ok();
    client.call("SET gone v PX 1").ok();
    client.call("SET later v EX 1000").ok();
    for _ in 0..5 {
        client.call("GET k");
    }
    client.call("GET nosuch");
    client.call("LPUSH k x").error();
    client.call("GET").error();
    client.call("SELECT 3").ok();
    client.call("SET k v").ok();
    client.call("SELECT 0").ok();
    until("a key has expired", || {
        client.call("DBSIZE") == Value::Integer(2)
    });
    let after = scrape(&server);
    for (name, by) in [
        ("redis_commands_total{cmd=\"get\"}", 6.0),
        ("redis_commands_total{cmd=\"set\"}", 4.0),
        ("redis_commands_failed_calls_total{cmd=\"lpush\"}", 1.0),
        ("redis_commands_rejected_calls_total{cmd=\"get\"}", 1.0),
        ("redis_keyspace_hits_total", 5.0),
        ("redis_keyspace_misses_total", 1.0),
        ("redis_expired_keys_total", 1.0),
        ("redis_errors_total{err=\"WRONGTYPE\"}", 1.0),
        ("redis_errors_total{err=\"ERR\"}", 1.0),
        ("redis_total_error_replies", 2.0),
        ("redis_db_keys{db=\"db0\"}", 2.0),
        ("redis_db_keys_expiring{db=\"db0\"}", 1.0),
        ("redis_db_keys{db=\"db3\"}", 1.0),
    ] {
        assert_eq!(moved(&before, &after, name), by, "{name}");
    }
    for name in [
        "redis_net_input_bytes_total",
        "redis_net_output_bytes_total",
        "redis_commands_processed_total",
        "redis_total_reads_processed",
        "redis_cpu_user_seconds_total",
    ] {
        assert!(moved(&before, &after, name) > 0.0, "{name}");
    }
    assert!(sample(&after, "redis_memory_used_rss_bytes") > 1e6);
    assert!(sample(&after, "redis_start_time_seconds") > 1.7e9);
}

#[test]
fn connections_are_told_by_worker_and_sub_commands_by_name() {
    let server = server(3);
    let mut clients: Vec<Client> = (0..6).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        client.call("CONFIG GET port");
    }
    let samples = scrape(&server);
    for worker in 0..3 {
        let name = format!("redline_worker_connections{{worker=\"{worker}\"}}");
        assert_eq!(sample(&samples, &name), 2.0);
    }
    assert_eq!(sample(&samples, "redis_connected_clients"), 6.0);
    assert_eq!(sample(&samples, "redline_workers"), 3.0);
    let calls = sample(&samples, "redis_commands_total{cmd=\"config|get\"}");
    assert_eq!(calls, 6.0);
    let build = samples
        .keys()
        .find(|name| name.starts_with("redline_build_info{"));
    assert!(build.unwrap().contains("redis_version=\"8.2.3\""));
    assert!(
        samples
            .keys()
            .any(|name| name.starts_with("redis_instance_info{"))
    );
}

#[test]
fn evictions_and_closed_clients_are_counted() {
    let server = server(2);
    let mut client = Client::connect(&server);
    client.call("CONFIG SET maxclients 1").ok();
    Client::connect(&server).read().error();
    for n in 0..1000 {
        let key = format!("k{n}");
        client
            .call_args(&[b"SET", key.as_bytes(), &[b'x'; 1000]])
            .ok();
    }
    client
        .call("CONFIG SET maxmemory-policy allkeys-random maxmemory 500kb")
        .ok();
    until("keys are evicted", || {
        sample(&scrape(&server), "redis_evicted_keys_total") > 100.0
    });
    let samples = scrape(&server);
    assert_eq!(sample(&samples, "redis_rejected_connections_total"), 1.0);
    assert_eq!(sample(&samples, "redis_memory_max_bytes"), 512_000.0);
    assert_eq!(sample(&samples, "redis_max_clients"), 1.0);
}

#[test]
fn histograms_add_up() {
    let server = server(2);
    let mut client = Client::connect(&server);
    for _ in 0..1000 {
        client.call("PING");
    }
    client.call("DEBUG SLEEP 0.01").ok();
    let samples = scrape(&server);
    let buckets = |command: &str| {
        let begins = format!("redis_commands_latencies_usec_bucket{{cmd=\"{command}\",le=\"");
        let mut buckets: Vec<(f64, f64)> = samples
            .iter()
            .filter_map(|(name, count)| {
                let le = name.strip_prefix(&begins)?.strip_suffix("\"}")?;
                Some((le.parse().unwrap(), *count))
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets
    };
    let pings = buckets("ping");
    assert!(pings.is_sorted_by_key(|(_, count)| *count), "{pings:?}");
    // Of brief commands up to fifteen have not been timed yet.
    let (le, all) = *pings.last().unwrap();
    assert!(
        le == f64::INFINITY && (985.0..=1000.0).contains(&all),
        "{all}"
    );
    let count = sample(
        &samples,
        "redis_commands_latencies_usec_count{cmd=\"ping\"}",
    );
    assert_eq!(count, all);
    let sum = sample(&samples, "redis_commands_latencies_usec_sum{cmd=\"ping\"}");
    let seconds = sample(
        &samples,
        "redis_commands_duration_seconds_total{cmd=\"ping\"}",
    );
    assert!(
        sum > 0.0 && (sum / 1e6 / seconds - 1.0).abs() < 1e-6,
        "{sum} us"
    );
    let slept: Vec<_> = buckets("debug")
        .into_iter()
        .filter(|b| b.1 == 0.0)
        .collect();
    let last_without = slept.last().unwrap().0;
    // A busy machine wakes the sleeper late: its own sum says how late.
    let took = sample(&samples, "redis_commands_latencies_usec_sum{cmd=\"debug\"}");
    assert!(took >= 9_900.0, "{took} us");
    assert!(
        (took * 0.4..=took).contains(&last_without),
        "{took} us, {slept:?}"
    );
}

#[test]
fn other_resources_and_methods_have_their_status() {
    let server = server(2);
    let status = |request: &[u8]| exchange(&server, request)[9..12].to_string();
    assert_eq!(status(b"GET /nosuch HTTP/1.1\r\n\r\n"), "404");
    assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "200");
    assert_eq!(status(b"DELETE /metrics HTTP/1.1\r\n\r\n"), "405");
    assert_eq!(status(b"PING\r\n\r\n"), "400");
    let head = exchange(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"));
    let long = [b"GET /metrics HTTP/1.1\r\nx: ", &vec![b'x'; 100_000][..]].concat();
    assert_eq!(status(&long), "431");
    // The peer that goes on with headers may find the connection closed, and nobody else notices.
    let mut endless = connect(&server);
    let megabyte = [b"GET /metrics HTTP/1.1\r\nx: ", &vec![b'x'; 1_000_000][..]].concat();
    let _ = endless.write_all(&megabyte);
    assert_eq!(status(b"GET /livez HTTP/1.1\r\n\r\n"), "200");
    assert_eq!(
        status(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        "400"
    );
    // What comes behind a request is passed over.
    let more = [b"GET /nosuch HTTP/1.1\r\n\r\n", &vec![b'x'; 100_000][..]].concat();
    assert_eq!(status(&more), "404");
    // Byte by byte.
    let mut slow = connect(&server);
    for byte in b"GET /metrics HTTP/1.1\r\n\r\n" {
        slow.write_all(&[*byte]).unwrap();
    }
    assert!(read(slow).starts_with("HTTP/1.1 200 OK\r\n"));
    // A peer that ends without a question gets none answered.
    let silent = connect(&server);
    silent.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read(silent), "");
}

/// Names of redis_exporter that dashboards made for it use, without those that only an append-only file has.
const EXPORTED: &[&str] = &[
    "redis_aof_current_rewrite_duration_sec",
    "redis_aof_enabled",
    "redis_aof_last_bgrewrite_status",
    "redis_aof_last_cow_size_bytes",
    "redis_aof_last_rewrite_duration_sec",
    "redis_aof_last_write_status",
    "redis_aof_rewrite_in_progress",
    "redis_aof_rewrite_scheduled",
    "redis_cluster_enabled",
    "redis_config_maxclients",
    "redis_config_maxmemory",
    "redis_connected_slaves",
    "redis_db_avg_ttl_seconds{db=\"db0\"}",
    "redis_last_slow_execution_duration_seconds",
    "redis_latency_percentiles_usec_count{cmd=\"set\"}",
    "redis_latency_percentiles_usec_sum{cmd=\"set\"}",
    "redis_latency_percentiles_usec{cmd=\"set\",quantile=\"50\"}",
    "redis_latency_percentiles_usec{cmd=\"set\",quantile=\"99\"}",
    "redis_latency_percentiles_usec{cmd=\"set\",quantile=\"99.9\"}",
    "redis_latest_fork_seconds",
    "redis_master_repl_offset",
    "redis_mem_fragmentation_ratio",
    "redis_memory_used_dataset_bytes",
    "redis_memory_used_lua_bytes",
    "redis_memory_used_overhead_bytes",
    "redis_memory_used_startup_bytes",
    "redis_process_id",
    "redis_rdb_bgsave_in_progress",
    "redis_rdb_changes_since_last_save",
    "redis_rdb_current_bgsave_duration_sec",
    "redis_rdb_last_bgsave_duration_sec",
    "redis_rdb_last_bgsave_status",
    "redis_rdb_last_cow_size_bytes",
    "redis_rdb_last_save_timestamp_seconds",
    "redis_slowlog_last_id",
    "redis_tracking_total_items",
    "redis_tracking_total_keys",
    "redis_tracking_total_prefixes",
];

#[test]
fn names_that_dashboards_for_the_exporter_use_were_missing() {
    let server = server(2);
    let mut client = Client::connect(&server);
    client.call("CONFIG SET slowlog-log-slower-than 0").ok();
    client.call("CONFIG SET maxmemory 100mb").ok();
    client.call("SET k v EX 1000").ok();
    client.call("CLIENT TRACKING ON BCAST PREFIX a").ok();
    let ttl = "redis_db_avg_ttl_seconds{db=\"db0\"}";
    until("a worker has found the times to live", || {
        scrape(&server).contains_key(ttl)
    });
    let samples = scrape(&server);
    for name in EXPORTED {
        assert!(sample(&samples, name).is_finite(), "{name}");
    }
    assert!((900.0..=1000.0).contains(&sample(&samples, ttl)));
    assert_eq!(sample(&samples, "redis_config_maxmemory"), 104_857_600.0);
    assert_eq!(sample(&samples, "redis_tracking_total_prefixes"), 1.0);
    assert!(sample(&samples, "redis_slowlog_last_id") >= 1.0);
    assert_eq!(sample(&samples, "redis_rdb_last_bgsave_status"), 1.0);
    let build = "redis_exporter_build_info{";
    assert!(samples.keys().any(|name| name.starts_with(build)));
}

/// Returns the status of the reply to a health check.
fn health(server: &Server, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    exchange(server, request.as_bytes())[9..12].to_string()
}

#[test]
fn a_server_that_waits_for_replicas_to_end_is_alive_and_not_ready() {
    let server = server(1);
    let mut client = Client::connect(&server);
    client.call("CONFIG SET repl-diskless-sync-delay 0").ok();
    client.call("CONFIG SET shutdown-timeout 3600").ok();
    let _replica = Replica::follow(&server);
    until("it is online", || {
        field(&mut client, "replication", "slave0").contains("state=online")
    });
    client.call("SET a 1").ok();
    let mut asks = Client::connect(&server);
    asks.send("SHUTDOWN");
    until("it is to end", || health(&server, "/readyz") == "503");
    assert_eq!(health(&server, "/livez"), "200");
    client.call("SHUTDOWN ABORT").ok();
    until("it is not", || health(&server, "/readyz") == "200");
}

#[test]
fn a_replica_without_its_primary_is_alive_and_ready_only_for_old_data() {
    let server = server(1);
    let mut client = Client::connect(&server);
    let health = |path: &str| health(&server, path);
    for path in ["/livez", "/readyz", "/readyz?replica"] {
        assert_eq!(health(path), "200", "{path}");
    }
    client.call("REPLICAOF 127.0.0.1 1").ok();
    until("the link is down", || health("/readyz?replica") == "503");
    assert_eq!(
        (health("/livez"), health("/readyz")),
        ("200".into(), "200".into())
    );
    client.call("CONFIG SET replica-serve-stale-data no").ok();
    until("old data is not served", || health("/readyz") == "503");
    client.call("REPLICAOF NO ONE").ok();
    until("it is ready", || health("/readyz?replica") == "200");
}

#[test]
fn the_status_page_shows_hostile_names_as_text_and_only_to_who_means_this_machine() {
    let server = server(1);
    let mut client = Client::connect(&server);
    client.call("CONFIG SET slowlog-log-slower-than 0").ok();
    client
        .call_args(&[b"CLIENT", b"SETNAME", b"<script>x</script>"])
        .ok();
    let key = "<b>\u{202e}\u{1}".as_bytes();
    client
        .call_args(&[b"SET", &[key, &[0xff]].concat(), b"<img src=x>"])
        .ok();
    let page = |path: &str, host: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        exchange(&server, request.as_bytes())
    };
    let whole = page("/", "127.0.0.1:1");
    assert!(whole.starts_with("HTTP/1.1 200 OK\r\n"), "{whole}");
    for part in [
        "Content-Security-Policy: default-src 'none'",
        "frame-ancestors 'none'",
        "X-Content-Type-Options: nosniff",
        "&lt;script&gt;x&lt;/script&gt;",
        "&lt;img src=x&gt;",
        "Slow log",
        "Nothing is wrong.",
    ] {
        assert!(whole.contains(part), "{part}: {whole}");
    }
    for tag in ["<script>", "<b>", "<img", "\u{202e}", "\u{1}"] {
        assert!(!whole.contains(tag), "{tag}");
    }
    for path in ["/", "/?part", "/status.js", "/status.css"] {
        assert_eq!(&page(path, "evil.example")[9..12], "421", "{path}");
        assert_eq!(&page(path, "localhost:1")[9..12], "200", "{path}");
    }
    // Prometheus may have any name for it.
    assert_eq!(&page("/metrics", "cache.example")[9..12], "200");
}

#[test]
fn who_reads_nothing_holds_nobody_up() {
    let server = server(1);
    let _unread: Vec<TcpStream> = (0..40)
        .map(|number| {
            let mut stream = connect(&server);
            let path = ["/metrics", "/", "/livez"][number % 3];
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    scrape(&server);
    assert_eq!(health(&server, "/readyz"), "200");
}

#[test]
fn who_stalls_holds_nobody_up_and_is_closed_in_time() {
    let server = server(2);
    let began = Instant::now();
    // More than there are places.
    let mut stalled: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = connect(&server);
            stream.write_all(b"GET /met").unwrap();
            stream
        })
        .collect();
    for _ in 0..10 {
        scrape(&server);
    }
    assert!(began.elapsed() < Duration::from_secs(4), "held up");
    ends(stalled.remove(0)); // it gave way
    ends(stalled.pop().unwrap());
    assert!(began.elapsed() > Duration::from_secs(4), "given up early");
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn it_answers_while_every_worker_is_busy() {
    let server = server(1);
    let mut client = Client::connect(&server);
    client.call("PING");
    client.send("DEBUG SLEEP 4");
    let busy_since = Instant::now();
    scrape(&server);
    // Without another thread the page would come when the sleep is over.
    client.stream.set_nonblocking(true).unwrap();
    let early = client.stream.peek(&mut [0]);
    client.stream.set_nonblocking(false).unwrap();
    assert!(early.is_err(), "{:?}", busy_since.elapsed());
    client.read().ok();
}

#[test]
fn without_a_port_there_is_no_listener_and_a_stop_ends_it() {
    assert_eq!(start(settings(1)).metrics_port(), 0);
    let server = server(1);
    let port = server.metrics_port();
    let stalled = connect(&server);
    drop(server);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    ends(stalled);
}

#[test]
fn a_busy_worker_lets_the_requests_of_many_clients_gather() {
    let server = server(1);
    let mut clients: Vec<Client> = (0..64).map(|_| Client::connect(&server)).collect();
    // The longest rests: the fewest requests in a second are enough for them. It is decided at every tick from the time since
    // the last one, and two milliseconds in a row are the worker's now and then, however much else the machine has to do.
    clients[0].call("CONFIG SET event-coalescing-us 1000").ok();
    clients[0].call("CONFIG SET hz 500").ok();
    // Work for the worker, next to none for the test.
    let push = format!("RPUSH list{}", " element".repeat(500));
    clients[0].call(&push).integer();
    let mut ask = || {
        for client in &mut clients {
            client.send("LPOS list missing");
        }
        for client in &mut clients {
            assert_eq!(client.read(), Value::Nil);
        }
    };
    let gathered = || {
        sample(
            &scrape(&server),
            "redline_worker_gathered_total{worker=\"0\"}",
        )
    };
    until("requests gather", || {
        ask();
        gathered() > 0.0
    });
    Client::connect(&server)
        .call("CONFIG SET event-coalescing-us 0")
        .ok();
    until("they do so no more", || {
        let before = gathered();
        (0..50).for_each(|_| ask());
        gathered() == before
    });
}
