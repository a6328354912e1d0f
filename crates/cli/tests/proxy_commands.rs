//! `redline proxy` as a process: commands that it answers, refuses or learns beyond those that it knows by itself.

mod proxying;

use redline_resp::Value;
use redline_testkit::client::Client;
use redline_testkit::process::ServerProcess;

use proxying::{REDLINE, assert_error, bulk, call, ok, proxy_with};

/// A server of ours, and the text of a pool that is this server.
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
    // A client that is in a transaction, or is nobody yet, learns nothing.
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
