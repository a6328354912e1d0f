//! Clients of a Redis Cluster in front of proxies that present themselves as one: redis-cli, redis-py, ioredis,
//! go-redis, Jedis and Lettuce, each against two proxies with the same three servers behind them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use redline_testkit::process::ServerProcess;

use crate::compat::Setting;
use crate::install;
use crate::proxy::servers;
use crate::run::{Failure, captured, free_port, workspace};

const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs all of them.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let servers = servers(3)?;
    let shards: String = servers
        .iter()
        .map(|server| {
            format!(
                "[[pool.shard]]\nserver = [{{ address = '{}' }}]\n",
                server.address()
            )
        })
        .collect();
    let ports = [free_port()?, free_port()?];
    let start = |port: u16| {
        let text = format!(
            "[[listener]]\nbind = '127.0.0.1:@port@'\n[[listener]]\nbind = '127.0.0.1:{port}'\n[cluster-face]\nenabled = true\nannounce = '127.0.0.1:{port}'\n\
             peers = ['127.0.0.1:{}', '127.0.0.1:{}']\n[[pool]]\n{shards}",
            ports[0], ports[1]
        );
        // It is waited for at its own port, and announces one that both know beforehand.
        ServerProcess::proxy_of_file(&setting.redline, &text)
            .map_err(|error| format!("redline proxy: {error}"))
    };
    let _proxies = [start(ports[0])?, start(ports[1])?];
    let ways = use_cluster(ports[0], 2)?;
    Ok(format!(
        "redis-py, go-redis, ioredis, Jedis and Lettuce in {ways} ways, and redis-cli -c, take two proxies for a cluster"
    ))
}

/// Has all clients use the cluster that this port is a node of, and returns the number of ways.
pub fn use_cluster(port: u16, nodes: usize) -> Result<usize, Failure> {
    let port = port.to_string();
    let sources = workspace().join("crates/testkit/clients");
    let node = install::node_clients()?;
    let go = install::go_program(&sources.join("go/cluster"), "go-cluster")?;
    let python = install::redis_py()?;
    let nodes = format!("nodes {nodes}");
    let expected = [nodes.as_str(), "sum 19900", "deleted 200"];
    let mut ways = 0;
    let java = install::java_programs(&sources.join("java"))?;
    let script = |name: &str| vec![OsString::from(sources.join(name))];
    let class = |name: &str| ["-XX:TieredStopAtLevel=1", "-cp", &java, name].map(OsString::from);
    let jvm = PathBuf::from("java");
    for (name, program, before, protocols) in [
        ("redis-py", python, script("py/cluster.py"), &["2", "3"][..]),
        ("go-redis", go, Vec::new(), &["2", "3"]),
        ("ioredis", "node".into(), script("js/cluster.js"), &[""]),
        (
            "Jedis",
            jvm.clone(),
            class("JedisCluster").into(),
            &["2", "3"],
        ),
        ("Lettuce", jvm, class("LettuceCluster").into(), &["2", "3"]),
    ] {
        for protocol in protocols {
            let mut command = Command::new(&program);
            command.args(&before).arg(&port).arg(protocol);
            command.env("NODE_PATH", node.join("node_modules"));
            let said = captured(command, b"", TIMEOUT)
                .map_err(|failure| format!("{name} {protocol}: {failure}"))?;
            for line in expected {
                if !said.lines().any(|said| said == line) {
                    return Err(format!("{name} {protocol}: no \"{line}\" in\n{said}"));
                }
            }
            ways += 1;
        }
    }
    // redis-cli connects to either of the two by name, and stays there.
    let mut cli = Command::new("redis-cli");
    cli.args(["-c", "-p", &port]);
    let mut lines = String::new();
    for key in 0..50 {
        lines += &format!("SET key:{key} {key}\nGET key:{key}\n");
    }
    let said = captured(cli, lines.as_bytes(), TIMEOUT)?;
    let said: Vec<&str> = said.lines().collect();
    let right = (0..50).flat_map(|key| ["OK".to_owned(), key.to_string()]);
    if !right.eq(said.iter().map(|&line| line.to_owned())) {
        return Err(format!("redis-cli -c: {said:?}"));
    }
    Ok(ways)
}
