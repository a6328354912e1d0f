//! Every form of nutcracker's file, and mistakes in it.

use super::*;

const WHOLE: &str = "
# Two pools.
alpha:
  listen: 127.0.0.1:22121
  hash: fnv1a_64
  distribution: ketama
  auto_eject_hosts: true
  redis: true
  server_retry_timeout: 2000
  server_failure_limit: 1
  servers:
   - 127.0.0.1:6379:1

beta:
  listen: /tmp/beta.sock 0644
  hash: crc16
  hash_tag: \"{}\"
  distribution: modula
  timeout: 400
  redis: true
  redis_auth: secret
  preconnect: true
  servers:
   - 127.0.0.1:6380:1 server10
   - 127.0.0.1:6381:2 server9
   - 127.0.0.1:11211:1
";

fn config(text: &str) -> Config {
    convert("n.yml", text).unwrap().config
}

fn error(text: &str) -> String {
    convert("n.yml", text).unwrap_err()
}

/// Returns a pool with these lines beside those that it needs.
fn pool(lines: &str) -> String {
    format!("a:\n  listen: h:1\n  redis: true\n  servers:\n  - h:2:1\n{lines}")
}

#[test]
fn a_file_becomes_pools_with_listeners() {
    let config = config(WHOLE);
    let [alpha, beta] = &config.pools[..] else {
        panic!("{config:?}");
    };
    assert_eq!(
        (alpha.name.as_str(), alpha.hash),
        ("alpha", HashKind::Fnv1a64)
    );
    assert_eq!(alpha.hash_tag, "");
    assert_eq!(alpha.failure.limit, 1);
    assert_eq!(alpha.failure.retry, Span::seconds(2));
    assert_eq!(alpha.shards[0].name, "127.0.0.1:6379");
    assert_eq!(beta.hash, HashKind::Crc16Twemproxy);
    assert_eq!(beta.distribution, DistributionKind::Modula);
    let names: Vec<&str> = beta.shards.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["server9", "server10", "127.0.0.1"]);
    assert_eq!(beta.shards[0].weight, 2);
    let pools: Vec<_> = config
        .listeners
        .iter()
        .map(|one| one.pool.as_deref())
        .collect();
    assert_eq!(pools, [Some("alpha"), Some("beta")]);
    assert_eq!(config.listeners[1].bind.to_string(), "/tmp/beta.sock");
    // One of the two has none.
    assert_eq!(config.timeouts.request, Span::default());
    assert_eq!(config.check().iter().filter(|one| one.is_fatal).count(), 0);
    assert_eq!(Config::from_toml(&config.to_toml()).unwrap(), config);
}

/// Returns the users of a file as names, passwords and whether `AUTH password` means them, and its notes.
fn users_of(text: &str) -> (Vec<(String, String, bool)>, Vec<String>) {
    let Converted { config, notes } = convert("n.yml", text).unwrap();
    assert_eq!(config.check().iter().filter(|one| one.is_fatal).count(), 0);
    assert_eq!(Config::from_toml(&config.to_toml()).unwrap(), config);
    let users = config.users.iter().map(|user| {
        let password = user.password.as_deref().unwrap_or_default().to_owned();
        (user.name.clone(), password, user.by_password)
    });
    let notes = notes.iter().filter(|note| note.text.contains("redis_auth"));
    (
        users.collect(),
        notes.map(|note| note.text.clone()).collect(),
    )
}

#[test]
fn a_password_of_a_pool_was_not_demanded_of_clients() {
    let (none, notes) = users_of(&pool(""));
    assert_eq!((none.len(), notes.len()), (0, 0));
    let (one, notes) = users_of(&pool("  redis_auth: secret\n"));
    assert_eq!(one, [("default".into(), "secret".into(), false)]);
    assert_eq!(notes.len(), 0);
    let second =
        |lines: &str| format!("b:\n  listen: h:3\n  redis: true\n  servers:\n  - h:4:1\n{lines}");
    let first = pool("  redis_auth: secret\n");
    let (same, notes) = users_of(&(first.clone() + &second("  redis_auth: secret\n")));
    assert_eq!((same.len(), notes.len()), (1, 0));
    let (two, notes) = users_of(&(first.clone() + &second("  redis_auth: '#other'\n")));
    assert_eq!(two[0], ("default".into(), "secret".into(), false));
    assert!(two[1].0 == "auth-2" && two[1].1.starts_with('#') && two[1].2);
    assert_eq!(two[1].1.len(), 65, "its hash, since a hash sign means one");
    assert_eq!(notes.len(), 1);
    let (one, notes) = users_of(&(first + &second("")));
    assert_eq!(one.len(), 1);
    assert!(notes[0].contains("pool b has no redis_auth"), "{notes:?}");
}

#[test]
fn what_its_file_cannot_have_is_an_error_with_its_line() {
    for (text, said) in [
        ("", "n.yml: there is no pool in it"),
        ("a\n", "n.yml:1: "),
        ("a: b\n", "n.yml:1: directives of pool a"),
        ("a:\n\tlisten: h:1\n", "n.yml:"),
        (
            "a: &x\n  listen: h:1\nb: *x\n",
            "n.yml:1: anchors are not read",
        ),
        ("a:\n  listen: *x\n", "n.yml:2: "),
        (
            "a:\n  listen: [[[[[[[[h]]]]]]]]\n",
            "n.yml:2: listen is a list of values",
        ),
        (
            &pool("  redis: true\n"),
            "n.yml:6: redis stands on line 3 as well",
        ),
        (
            &pool("  hashtag: \"{}\"\n"),
            "n.yml:6: there is no directive hashtag; did you mean hash_tag?",
        ),
        (
            &pool("  hash: fnv1a-64\n"),
            "n.yml:6: hash is one of one_at_a_time",
        ),
        (
            &pool("  distribution: rendezvous\n"),
            "n.yml:6: distribution is ketama",
        ),
        (
            &pool("  timeout: -1\n"),
            "n.yml:6: timeout is a number of milliseconds, not \"-1\"",
        ),
        (
            &pool("  preconnect: yes\n"),
            "n.yml:6: preconnect is true or false",
        ),
        (&pool("  redis_db: 3\n"), "n.yml:6: redis_db: "),
        (
            &pool("  hash_tag: \"\"\n"),
            "n.yml:6: hash_tag is two characters",
        ),
        (
            &pool("a:\n  listen: h:2\n"),
            "n.yml:6: pool a: there is one of this name on line 1",
        ),
        (&pool("---\nb:\n  listen: h:2\n"), "n.yml:6: "),
        (
            "a:\n  listen: h:1\n  redis: true\n",
            "n.yml:1: pool a has no servers",
        ),
        (
            "a:\n  redis: true\n  servers:\n  - h:2:1\n",
            "n.yml:1: pool a has no listen",
        ),
        (
            "a:\n  redis: true\n  listen: h\n  servers:\n  - h:2:1\n",
            "n.yml:3: ",
        ),
        (
            "a:\n  redis: true\n  listen: h:1\n  servers:\n  - h:2\n",
            "n.yml:5: a server is host:port:weight",
        ),
        (
            "a:\n  redis: true\n  listen: h:1\n  servers:\n  - h:2:1 x\n  - h:3:1 x\n",
            "two servers of the name x",
        ),
        (
            "a:\n  listen: h:1\n  servers:\n  - h:2:1\n",
            "no pool is of Redis",
        ),
    ] {
        let said_of_it = error(text);
        assert!(said_of_it.contains(said), "{text}: {said_of_it}");
        assert_eq!(said_of_it.lines().count(), 1, "{text}: {said_of_it}");
    }
}

#[test]
fn a_file_from_windows_is_read() {
    let text = WHOLE.replace('\n', "\r\n");
    assert_eq!(config(&text), config(WHOLE));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("n.yml");
    std::fs::write(&path, format!("\u{feff}{text}")).unwrap();
    assert_eq!(read(&path).unwrap().config, config(WHOLE));
    std::fs::write(&path, b"a:\n  listen: \xe9:1\n").unwrap();
    let said = read(&path).unwrap_err();
    assert!(said.contains("n.yml:2: not UTF-8"), "{said}");
}

#[test]
fn nested_aliases_do_not_grow() {
    let mut text = String::from("a: &a0 [x, x]\n");
    for level in 1..64 {
        text += &format!(
            "a{level}: &a{level} [{}]\n",
            vec![format!("*a{}", level - 1); 9].join(", ")
        );
    }
    assert!(error(&text).contains("n.yml:1: "), "{}", error(&text));
    let deep = format!("a:\n  servers: {}\n", "[".repeat(100_000));
    assert!(error(&deep).contains("n.yml:2: "));
}

#[test]
fn notes_say_what_differs() {
    let notes = |text: &str| -> Vec<(String, bool)> {
        let notes = convert("n.yml", text).unwrap().notes;
        notes
            .into_iter()
            .map(|one| (one.text, one.differs))
            .collect()
    };
    let found = notes(&pool("  timeout: 5\n  server_connections: 3\n"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].0.starts_with("n.yml:7: server_connections: ") && !found[0].1);
    let found = notes(&pool("  timeout: 5\n  auto_eject_hosts: true\n"));
    assert!(
        found[0].0.contains("auto_eject_hosts") && found[0].1,
        "{found:?}"
    );
    let memcached = "m:\n  listen: h:2\n  servers:\n  - h:2:1\n";
    let found = notes(&pool(&format!("  timeout: 5\n{memcached}")));
    assert!(
        found[0].0.contains("pool m is of memcached") && found[0].1,
        "{found:?}"
    );
}

#[test]
fn text_in_pieces_ends_in_an_error_and_not_in_a_panic() {
    for cut in (0..WHOLE.len()).filter(|at| WHOLE.is_char_boundary(*at)) {
        let _ = convert("n.yml", &WHOLE[..cut]);
        let _ = convert("n.yml", &WHOLE[cut..]);
    }
}
