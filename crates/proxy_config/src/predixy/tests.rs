//! Every directive of predixy's manual, and mistakes in its file.

use std::fs;

use super::*;

const EVERYTHING: &str = r##"
# All that there is.
Name PredixyExample
Bind 127.0.0.1:7617
WorkerThreads 4
MaxMemory 100M
ClientTimeout 300
BufSize 4096
Log ./predixy.log
LogRotate 1h 1G
AllowMissLog false
LogVerbSample 1
LogDebugSample 2
LogInfoSample 10000
LogNoticeSample 3
LogWarnSample 4
LogErrorSample 5
LocalDC bj
Include more.conf

Authority {
    Auth {
        Mode read
        KeyPrefix Info
    }
    Auth "#a complex password#" {
        Mode admin
    }
    auth writer {
        MODE write
        ReadKeyPrefix r: s:
        WriteKeyPrefix w:
    }
}

StandaloneServerPool {
    Password secret
    Databases 16
    Hash atol
    HashTag "<>"
    Distribution random
    MasterReadPriority 60
    StaticSlaveReadPriority 50
    DynamicSlaveReadPriority 40
    RefreshMethod sentinel
    RefreshInterval 2
    ServerTimeout 1500m
    ServerFailureLimit 7
    ServerRetryTimeout 3s
    KeepAlive 120
    Sentinels sentinelpass {
        + 10.2.2.2:7500
        + own@10.2.2.3:7500
    }
    Group shard001 {
    }
    Group shard002 {
        + 10.2.2.4:7501
        + o@th@er@[::1]:7502
    }
}
"##;
const MORE: &str = r#"
DataCenter {
    DC bj {
        AddrPrefix {
            + 10.1
            + 10.2
        }
        ReadPolicy {
            bj 50
            sh 20 5
        }
    }
    DC sh {
        AddrPrefix {
            + 10.3
        }
    }
}
CustomCommand {
    custom.ttl {
        Mode keyAt2|read
        MinArgs 3
        MaxArgs 4
    }
    delay.push {
    }
}
LatencyMonitor all {
    Commands {
        + all
        - blpop
    }
    TimeSpan {
        + 1000
        + 1200
    }
}
LatencyMonitor set {
    Commands {
        + SET
    }
    TimeSpan {
        + 100
    }
}
"#;

fn read_text(text: &str) -> Result<Converted, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("predixy.conf"), text).unwrap();
    fs::write(folder.path().join("more.conf"), MORE).unwrap();
    read(&folder.path().join("predixy.conf"))
}

#[test]
fn every_directive_has_its_place() {
    let Converted { config, notes } = read_text(EVERYTHING).unwrap();
    let notes: Vec<String> = notes.into_iter().map(|note| note.text).collect();
    assert_eq!(config.name, "PredixyExample");
    assert_eq!(config.listeners[0].bind.to_string(), "127.0.0.1:7617");
    assert_eq!(config.threads, 4);
    assert_eq!(config.limits.memory, Size(100 << 20));
    assert_eq!(config.timeouts.client_idle, Span::seconds(300));
    assert_eq!(config.timeouts.request, Span::milliseconds(1500));
    assert!(
        notes
            .iter()
            .any(|note| note.contains("predixy.conf:8: BufSize")),
        "{notes:?}"
    );
    let log = &config.log;
    assert_eq!(log.file.as_deref(), Some("./predixy.log"));
    assert_eq!(
        (log.rotate_every, log.rotate_size),
        (Span::seconds(3600), Size(1 << 30))
    );
    assert!(!log.may_drop);
    let sample = &log.sample;
    let samples = [
        sample.verbose,
        sample.debug,
        sample.info,
        sample.notice,
        sample.warning,
        sample.error,
    ];
    assert_eq!(samples, [1, 2, 10_000, 3, 4, 5]);

    let [default, admin, writer] = config.users.as_slice() else {
        panic!("{:?}", config.users);
    };
    assert_eq!(
        (default.name.as_str(), default.mode),
        ("default", Some(Mode::Read))
    );
    assert_eq!(default.key_prefixes, ["Info"]);
    // In our file, a leading hash sign means a hash.
    let password = admin.password.as_deref().unwrap();
    assert!(
        password.starts_with('#') && password.len() == 65,
        "{password}"
    );
    assert!(admin.by_password && admin.mode == Some(Mode::Admin));
    assert_eq!(writer.read_key_prefixes, ["r:", "s:"]);
    assert_eq!(writer.write_key_prefixes, ["w:"]);

    let pool = &config.pools[0];
    assert_eq!(pool.kind, PoolKind::Sentinel);
    assert_eq!(pool.password.as_deref(), Some("secret"));
    assert_eq!(pool.databases, 16);
    assert_eq!((pool.hash, pool.hash_tag.as_str()), (HashKind::Atol, "<>"));
    assert_eq!(pool.distribution, DistributionKind::Random);
    let reads = &pool.reads;
    let priorities = [
        reads.primary_priority,
        reads.static_replica_priority,
        reads.dynamic_replica_priority,
    ];
    assert_eq!(priorities, [60, 50, 40]);
    assert_eq!(pool.refresh, Span::seconds(2));
    assert_eq!(
        (pool.failure.limit, pool.failure.retry),
        (7, Span::seconds(3))
    );
    assert_eq!(pool.keepalive, Span::seconds(120));
    assert_eq!(pool.sentinel_password.as_deref(), Some("sentinelpass"));
    assert_eq!(pool.sentinels[1].password.as_deref(), Some("own"));
    assert_eq!(pool.shards[1].servers[1].address.to_string(), "[::1]:7502");
    assert_eq!(
        pool.shards[1].servers[1].password.as_deref(),
        Some("o@th@er")
    );

    assert_eq!(config.local_data_center, "bj");
    assert_eq!(config.data_centers[0].address_prefixes, ["10.1", "10.2"]);
    let reads: Vec<_> = config.data_centers[0]
        .reads
        .iter()
        .map(|r| (r.priority, r.weight))
        .collect();
    assert_eq!(reads, [(50, 1), (20, 5)]);
    let [ttl, push] = config.commands.custom.as_slice() else {
        panic!("{:?}", config.commands);
    };
    assert_eq!(
        (ttl.mode, ttl.key, ttl.min_args, ttl.max_args),
        (Mode::Read, 2, 3, 4)
    );
    assert_eq!(
        (push.mode, push.key, push.min_args, push.max_args),
        (Mode::Write, 1, 2, 2)
    );
    assert_eq!(config.latency_monitors[0].commands, ["all", "-blpop"]);
    assert_eq!(config.latency_monitors[0].bounds_us, [1000, 1200]);
    assert_eq!(config.latency_monitors[1].commands, ["set"]);
    let fatal: Vec<_> = config
        .check()
        .into_iter()
        .filter(|problem| problem.is_fatal)
        .collect();
    assert_eq!(fatal, []);
}

#[test]
fn commands_that_predixy_had_to_be_told_of_and_we_know_are_left_out() {
    let pool = "StandaloneServerPool {\nRefreshMethod fixed\nGroup g {\n+ 127.0.0.1:6379\n}\n}\n";
    let custom = "CustomCommand {\nxadd {\nMode write\nMaxArgs 99\n}\nown.get {\nMode read\n}\nGETEX {\n}\n}\n";
    let Converted { config, notes } = read_text(&format!("{custom}{pool}")).unwrap();
    let notes: Vec<String> = notes.into_iter().map(|note| note.text).collect();
    let names = config.commands.custom.iter().map(|it| it.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["own.get"]);
    let fatal = config.check().into_iter().filter(|it| it.is_fatal);
    assert_eq!(fatal.collect::<Vec<_>>(), []);
    for (line, name) in [(2, "xadd"), (9, "getex")] {
        let said = |note: &&String| note.contains(&format!(":{line}: {name} "));
        assert!(notes.iter().any(|note| said(&note)), "{notes:?}");
    }
}

#[test]
fn what_is_printed_is_read_again_as_the_same() {
    let text = read_text(EVERYTHING).unwrap().config.to_toml();
    let config = read_text(EVERYTHING).unwrap().config;
    assert_eq!(Config::from_toml(&text).unwrap(), config, "{text}");
    let empty = Config::default();
    assert_eq!(Config::from_toml(&empty.to_toml()).unwrap(), empty);
}

#[test]
fn a_password_that_looks_like_a_hash_is_a_password() {
    let text = "Authority {\nAuth #abc {\nMode read\n}\n}\n";
    // A hash sign begins a comment unless it is quoted: then there is no block.
    assert!(read_text(text).is_err());
    let config = read_text(EVERYTHING).unwrap().config;
    let known = Identities::of(&config).unwrap();
    assert_eq!(known.name_of(b"#a complex password#"), Some("auth-2"));
}

const CLUSTER: &str = "ClusterServerPool {\nServers {\n+ 127.0.0.1:7000\n}\n}\n";

#[test]
fn clusters_sentinels_and_fixed_groups_are_told_apart() {
    let cluster = read_text(CLUSTER).unwrap().config;
    assert_eq!(cluster.pools[0].kind, PoolKind::Cluster);
    assert_eq!(cluster.pools[0].databases, 1);
    assert_eq!(cluster.threads, 1);
    assert_eq!(cluster.listeners[0].bind.to_string(), "0.0.0.0:7617");
    assert!(cluster.check().iter().all(|problem| !problem.is_fatal));
    let sentinel = "SentinelServerPool {\nSentinels {\n+ h:1\n}\nGroup a {\n}\n}\n";
    assert_eq!(
        read_text(sentinel).unwrap().config.pools[0].kind,
        PoolKind::Sentinel
    );
    let fixed = "StandaloneServerPool {\nRefreshMethod fixed\nGroup a {\n+ h:1\n+ h:2\n}\n}\n";
    let fixed = read_text(fixed).unwrap().config;
    assert_eq!(fixed.pools[0].kind, PoolKind::Servers);
    assert_eq!(fixed.pools[0].shards[0].servers.len(), 2);
    // predixy's code has no tag by default, against its manual.
    assert_eq!(fixed.pools[0].hash_tag, "");
}

#[test]
fn passwords_without_an_empty_one_leave_nobody_in() {
    let text = format!("{CLUSTER}Authority {{\nAuth p {{\nMode write\n}}\n}}\n");
    let config = read_text(&text).unwrap().config;
    let known = Identities::of(&config).unwrap();
    assert!(!known.users.default_user().is_enabled());
    assert_eq!(known.name_of(b"p"), Some("auth-1"));
}

#[test]
fn the_last_value_counts() {
    let text = format!("Name a\nName b\n{CLUSTER}");
    assert_eq!(read_text(&text).unwrap().config.name, "b");
}

#[test]
fn errors_name_file_and_line_and_what_to_do() {
    for (text, line, what) in [
        ("Nmae x", 1, "did you mean Name?"),
        ("\n\nWorkerThreads 0", 3, "a number from 1"),
        ("WorkerThreads many", 1, "\"many\""),
        ("MaxMemory 1X", 1, "a size"),
        ("LogRotate 25h", 1, "1h to 24h"),
        ("AllowMissLog yes", 1, "true or false"),
        ("Bind nowhere", 1, "host:port"),
        ("Authority", 1, "needs a block"),
        ("Authority {\nAuht p {\n}\n}", 2, "did you mean Auth?"),
        (
            "Authority {\nAuth p {\nMode all\n}\n}",
            3,
            "read, write or admin",
        ),
        (
            "ClusterServerPool {\nServers {\n127.0.0.1:1\n}\n}",
            3,
            "+ and a value",
        ),
        (
            "ClusterServerPool {\nServers {\n+ nowhere\n}\n}",
            3,
            "host:port",
        ),
        ("ClusterServerPool {\nHash crc16\n}", 2, "no directive Hash"),
        (
            "ClusterServerPool {\nDatabases 2\nServers {\n+ h:1\n}\n}",
            1,
            "one database",
        ),
        (
            "ClusterServerPool {\nMasterReadPriority 101\n}",
            2,
            "0 to 100",
        ),
        ("ClusterServerPool {\nServerTimeout 1h\n}", 2, "is a time"),
        (
            "StandaloneServerPool {\nGroup a {\n+ h:1\n}\n}",
            1,
            "RefreshMethod",
        ),
        (
            "StandaloneServerPool {\nRefreshMethod fixed\nGroup a {\n+ h:1\n}\nGroup b {\n+ h:2\n}\n}",
            1,
            "Hash and Distribution",
        ),
        (
            "StandaloneServerPool {\nHashTag {}x\n}",
            2,
            "two characters",
        ),
        (
            "DataCenter {\nDC a {\nReadPolicy {\nb 101\n}\n}\n}",
            4,
            "priority 0 to 100",
        ),
        (
            "CustomCommand {\nx {\nMinArgs 1\n}\n}",
            3,
            "a number from 2",
        ),
        (
            "LatencyMonitor m {\nCommands {\nget\n}\n}",
            3,
            "+ command or - command",
        ),
        (
            "LatencyMonitor m {\nTimeSpan {\n+ soon\n}\n}",
            3,
            "microseconds",
        ),
    ] {
        let said = read_text(text).unwrap_err();
        let place = format!("predixy.conf:{line}: ");
        assert!(
            said.contains(&place) && said.contains(what),
            "{text}: {said}"
        );
    }
    assert!(read_text("Name x").unwrap_err().contains("no server pool"));
    let twice = format!("{CLUSTER}{CLUSTER}");
    assert!(
        read_text(&twice)
            .unwrap_err()
            .contains("predixy.conf:6: a second server pool")
    );
}
