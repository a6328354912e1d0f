//! Configurations with mistakes, and the problems reported.

use super::super::tests::WHOLE;
use super::*;

fn config(text: &str) -> Config {
    Config::from_toml(text).unwrap()
}

#[test]
fn there_are_not_more_workers_than_descriptors_for_them() {
    let problems = config(&format!("threads = 257\n{WHOLE}")).check();
    assert!(problems[0].is_fatal && problems[0].text.starts_with("at most 256"));
    assert_eq!(config(&format!("threads = 256\n{WHOLE}")).check(), []);
}

#[test]
fn what_is_whole_has_no_fault() {
    assert_eq!(config(WHOLE).check(), []);
}

/// Slow readers included, for whom it is held as a whole if others wait behind it.
#[test]
fn a_value_that_may_be_written_may_be_read() {
    let limits = Limits::default();
    assert!(limits.output_buffer.0 > limits.bulk.0 + (16 << 20));
}

#[test]
fn the_sample_says_the_defaults() {
    let sample = config(include_str!("../../../../docs/proxy.sample.toml"));
    assert_eq!(sample.check(), Vec::new());
    let default = Config {
        listeners: sample.listeners.clone(),
        pools: vec![Pool {
            shards: sample.pools[0].shards.clone(),
            ..Pool::default()
        }],
        ..Config::default()
    };
    assert_eq!(sample, default);
}

#[test]
fn the_sample_names_every_option() {
    let sample = include_str!("../../../../docs/proxy.sample.toml");
    let words: BTreeSet<&str> = sample
        .split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '-')
        .collect();
    for table in [
        "",
        "[limits]",
        "[timeouts]",
        "[commands]",
        "[[commands.custom]]",
        "[log]",
        "[log.sample]",
        "[metrics]",
        "[cluster-face]",
        "[observe]",
        "[[listener]]",
        "[listener.tls]",
        "[[pool]]",
        "[pool.tls]",
        "[pool.failure]",
        "[pool.reads]",
        "[[pool.shard]]",
        "[[pool.seed]]",
        "[[pool.sentinel]]",
        "[[pool.shard.server]]",
        "[[route]]",
        "[[user]]",
        "[[data-center]]",
        "[[data-center.read]]",
        "[[fault]]",
        "[[mirror]]",
        "[[latency-monitor]]",
    ] {
        // The error for an unknown name lists the known ones.
        let parents = match table {
            "[listener.tls]" => "[[listener]]\nbind = 'h:1'\n",
            "[[pool.shard.server]]" => "[[pool]]\n[[pool.shard]]\n",
            _ if table.contains("pool.") => "[[pool]]\n",
            _ if table.contains("center.") => "[[data-center]]\n",
            _ => "",
        };
        let error = Config::from_toml(&format!("{parents}{table}\nnonsense = 1")).unwrap_err();
        let known = error.split("expected").nth(1).expect(&error);
        for name in known.split('`').skip(1).step_by(2) {
            assert!(words.contains(name), "{table} {name}");
        }
    }
}

#[test]
fn every_fault_is_found_before_anything_starts() {
    for (more, place, text) in [
        (
            "[[listener]]\nbind = '127.0.0.1:7617'",
            "listener 127.0.0.1:7617",
            "two listeners",
        ),
        (
            "[[listener]]\nbind = 'h:1'\npool = 'defalt'",
            "listener h:1",
            "did you mean \"default\"",
        ),
        (
            "[[listener]]\nbind = 'h:1'\ntls = {}",
            "listener h:1",
            "`certificate` and `key`",
        ),
        ("[[pool]]", "pool \"default\"", "the name is taken"),
        (
            "[[pool]]\nname = 'b'\nshard = [{ server = [{ address = 'h:0' }] }]",
            "pool \"b\"",
            "h:0: a server has a port",
        ),
        (
            "[pool.cache]\nprefixes = ['a:', 'a:b', 'c']",
            "pool \"default\"",
            "\"a:b\" begins with \"a:\"",
        ),
        (
            "[pool.cache]\nprefixes = ['a', 'a']",
            "pool \"default\"",
            "leave it out",
        ),
        (
            "[pool.cache]\nprefixes = ['']\nmemory = 'off'",
            "pool \"default\"",
            "`cache.memory`",
        ),
        (
            "[pool.cache]\nprefixes = ['']\nmax-age = 'off'",
            "pool \"default\"",
            "`cache.max-age`",
        ),
        (
            "[pool.cache]\nprefixes = ['']\n[pool.reads]\nstatic-replica-priority = 1",
            "pool \"default\"",
            "reads from replicas",
        ),
        ("[[pool]]\nname = 'b'", "pool \"b\"", "no [[pool.shard]]"),
        (
            "[[pool]]\nname = 'b'\nkind = 'cluster'",
            "pool \"b\"",
            "no [[pool.seed]]",
        ),
        (
            "[[pool]]\nname = 'b'\nkind = 'sentinel'",
            "pool \"b\"",
            "no [[pool.sentinel]]",
        ),
        (
            "[[pool]]\nname = 'b'\nseed = [{ address = 'h:1' }]",
            "pool \"b\"",
            "`kind = \"cluster\"`",
        ),
        (
            "[[pool]]\nname = 'b'\nhash-tag = '{'",
            "pool \"b\"",
            "`hash-tag`",
        ),
        (
            "[[pool]]\nname = 'b'\ndatabases = 0",
            "pool \"b\"",
            "`databases`",
        ),
        (
            "[[pool]]\nname = 'b'\nreads = { primary-priority = 101 }",
            "pool \"b\"",
            "0 to 100",
        ),
        (
            "[[pool]]\nname = 'b'\nreads = { primary-priority = 0 }",
            "pool \"b\"",
            "nobody would answer",
        ),
        (
            "[[pool]]\nname = 'b'\nfailure = { limit = 0 }",
            "pool \"b\"",
            "at least 1",
        ),
        (
            "[[pool]]\nname = 'b'\nkind = 'cluster'\nseed = [{ address = 'h:1' }]\nhash = 'md5'",
            "pool \"b\"",
            "its own slots",
        ),
        (
            "[[pool]]\nname = 'b'\nshard = [{ name = 's', weight = 0, server = [{ address = 'h:1' }] }]",
            "pool \"b\", shard \"s\"",
            "1 to 1000",
        ),
        (
            "[[pool]]\nname = 'b'\nshard = [{ server = [{ address = 'h:1', user = 'u' }] }]",
            "pool \"b\"",
            "needs a password",
        ),
        (
            "[[pool]]\nname = 'b'\nsentinel-password = 'p'",
            "pool \"b\"",
            "belong to",
        ),
        (
            "[[route]]\nprefix = ''\npool = 'default'",
            "route \"\"",
            "how keys begin",
        ),
        (
            "[[listener]]\nbind = 'h:1'\ntls = { certificate = 'c', key = 'k', client-certificates = 'required' }",
            "listener h:1",
            "needs `authorities`",
        ),
        (
            "[[pool]]\nname = 'b'\ntls = { certificate = 'c' }",
            "pool \"b\"",
            "go together",
        ),
        (
            "[[route]]\nprefix = 'a:'\npool = 'nowhere'",
            "route \"a:\"",
            "no pool \"nowhere\"",
        ),
        (
            "[[user]]\nname = 'u'\nrules = '+nonsense'",
            "users",
            "+nonsense",
        ),
        (
            "[[user]]\nname = 'u'\nrules = '+get'\nmode = 'read'",
            "user \"u\"",
            "either `rules`",
        ),
        (
            "[commands]\nforbidden = ['gte']",
            "commands.forbidden",
            "no command \"gte\"",
        ),
        (
            "[commands.renamed]\nget = 'set'",
            "commands.renamed",
            "\"set\" is a command",
        ),
        (
            "[commands.renamed]\nget = 'GET'",
            "commands.renamed",
            "has that name already",
        ),
        (
            "[commands.renamed]\nget = 'set'\nset = 'get'",
            "commands.renamed",
            "is renamed itself",
        ),
        (
            "[commands.renamed]\n'doc.get' = 'Doc.Put'\n'doc.put' = 'doc.get'",
            "commands.renamed",
            "is renamed itself",
        ),
        (
            "[commands.renamed]\nget = 'proxy'",
            "commands.renamed",
            "\"proxy\" is a command",
        ),
        (
            "[commands.renamed]\nget = 'x'\nset = 'X'",
            "commands.renamed \"x\"",
            "taken",
        ),
        (
            "[[commands.custom]]\nname = 'get'\nmode = 'read'\nmin-args = 2\nmax-args = 2\nkey = 1",
            "commands.custom \"get\"",
            "known already",
        ),
        (
            "[[commands.custom]]\nname = 'x.y'\nmode = 'read'\nmin-args = 2\nmax-args = 1\nkey = 2",
            "commands.custom \"x.y\"",
            "not less",
        ),
        (
            "[[data-center]]\nname = 'here'",
            "local-data-center",
            "one of the",
        ),
        (
            "[[latency-monitor]]\nname = 'm'\ncommands = ['all']\nbounds-us = [2, 1]",
            "latency-monitor \"m\"",
            "rising",
        ),
        (
            "[[latency-monitor]]\nname = 'm'\ncommands = ['-gte']\nbounds-us = [2]",
            "latency-monitor \"m\"",
            "\"gte\"",
        ),
        ("[timeouts]\nconnect = 'off'", "timeouts", "`connect`"),
        (
            "[cluster-face]\nenabled = true\npeers = ['h:1']",
            "cluster-face",
            "`announce`",
        ),
        (
            "[cluster-face]\nenabled = true\nannounce = '/a.socket'",
            "cluster-face",
            "no unix sockets",
        ),
    ] {
        let problems = config(&format!("{WHOLE}\n{more}")).check();
        let found = problems
            .iter()
            .any(|p| p.is_fatal && p.place == place && p.text.contains(text));
        assert!(found, "{more}: {problems:?}");
    }
    let nothing = Config::default().check();
    assert_eq!(
        nothing.iter().filter(|problem| problem.is_fatal).count(),
        2,
        "{nothing:?}"
    );
}

#[test]
fn what_is_missing_is_said_with_a_line_to_add_or_the_name_that_was_meant() {
    let here = "local-data-center = 'here'";
    let center = "[[data-center]]\nname = 'here'\naddress-prefixes = ['10.']";
    for (text, problem) in [
        (
            "[[pool]]\nname = 'b'".to_owned(),
            "pool \"b\": there is no [[pool.shard]]; add one with `server = [{ address = \"127.0.0.1:6379\" }]`",
        ),
        (
            "[[pool]]\nname = 'b'\nkind = 'sentinel'\nsentinel = [{ address = 'h:1' }]".to_owned(),
            "pool \"b\": there is no [[pool.shard]]; add one with the name that Sentinels know, as in `name = \"mymaster\"`",
        ),
        (
            "[[pool]]\nname = 'b'\nshard = [{ name = 's' }]".to_owned(),
            "pool \"b\", shard \"s\": it has no server; add `server = [{ address = \"127.0.0.1:6379\" }]`",
        ),
        (
            format!("{center}\nread = [{{ data-center = 'her', priority = 1 }}]"),
            "data-center \"here\": there is no data centre \"her\"; did you mean \"here\"?",
        ),
        (
            format!("{center}\nread = [{{ data-center = 'elsewhere', priority = 1 }}]"),
            "data-center \"here\": there is no data centre \"elsewhere\"; add [[data-center]] with `name = \"elsewhere\"`",
        ),
        (
            center.to_owned(),
            "local-data-center: it is not said which one of the [[data-center]] this is; add `local-data-center = \"here\"`",
        ),
        (
            "[[latency-monitor]]\nname = 'm'\ncommands = ['gett']\nbounds-us = [2]".to_owned(),
            "latency-monitor \"m\": there is no command \"gett\"; did you mean \"get\"?",
        ),
        (
            "[[latency-monitor]]\nname = 'm'\ncommands = ['own.serach']\nbounds-us = [2]
            [[commands.custom]]\nname = 'own.search'\nmode = 'read'\nmin-args = 2\nmax-args = 2\nkey = 1"
                .to_owned(),
            "latency-monitor \"m\": there is no command \"own.serach\"; did you mean \"own.search\"?",
        ),
        (
            "[[latency-monitor]]\nname = 'm'\ncommands = ['elephantine']\nbounds-us = [2]".to_owned(),
            "latency-monitor \"m\": there is no command \"elephantine\"; one of a module needs [[commands.custom]]",
        ),
        (
            "[[fault]]\ncommands = ['config|sett']\ncut = true".to_owned(),
            "fault 1: there is no command \"config|sett\"; did you mean \"config|set\"?",
        ),
        (
            "[[fault]]\ncommands = ['elephantine']\ncut = true".to_owned(),
            "fault 1: there is no command \"elephantine\"; name one of Redis's, or leave it out",
        ),
        (
            "[commands]\nforbidden = ['gett']".to_owned(),
            "commands.forbidden: there is no command \"gett\"; one of a module without a dot in its name needs [[commands.custom]]; did you mean \"get\"?",
        ),
    ] {
        let problems = config(&format!("{WHOLE}\n{text}")).check();
        let said: Vec<String> = problems.iter().map(Problem::to_string).collect();
        let problem = format!("error: {problem}");
        assert!(said.contains(&problem), "{problem}: {said:#?}");
    }
    let said = config(&format!("{here}\n{WHOLE}")).check();
    let line = "there is no data centre \"here\"; add [[data-center]] with `name = \"here\"`";
    assert_eq!(said[0].text, line);
}

/// Returns the problems reported for forwarding loops, of one listener at `bind` and one upstream at `server`.
fn circles(bind: &str, server: &str) -> Vec<String> {
    circles_of(&format!(
        "[[listener]]\nbind = '{bind}'\n[[pool]]\nshard = [{{ server = [{{ address = '{server}' }}] }}]"
    ))
}

fn circles_of(text: &str) -> Vec<String> {
    let problems = config(text).check();
    let told = problems.iter().map(|problem| {
        assert!(
            problem.is_fatal && problem.text.contains("go round"),
            "{problem}"
        );
        problem.to_string()
    });
    told.collect()
}

#[test]
fn an_upstream_that_is_the_own_listener_is_refused_however_it_is_written() {
    for (bind, server) in [
        ("127.0.0.1:7617", "127.0.0.1:7617"),
        ("127.0.0.1:7617", "localhost:7617"),
        ("127.0.0.1:7617", "0.0.0.0:7617"),
        ("127.0.0.1:7617", "[::ffff:127.0.0.1]:7617"),
        ("0.0.0.0:7617", "127.0.0.1:7617"),
        ("0.0.0.0:7617", "127.9.9.9:7617"),
        ("*:7617", "LocalHost:7617"),
        ("10.0.0.1:7617", "10.0.0.1:7617"),
        ("[::1]:7617", "[0::1]:7617"),
        ("[::]:7617", "[::1]:7617"),
        ("[::*]:7617", "[::]:7617"),
        ("Proxy.example:7617", "proxy.example:7617"),
        ("/run/proxy.socket", "/run/proxy.socket"),
    ] {
        let told = circles(bind, server);
        assert_eq!(told.len(), 1, "{bind} {server}: {told:?}");
        assert!(
            told[0].contains(&format!("pool \"default\": {server} is")),
            "{told:?}"
        );
        let is_named = told[0].contains(&format!("({bind})"));
        assert_eq!(is_named, bind != server, "{told:?}");
    }
    for (bind, server) in [
        ("127.0.0.1:7617", "127.0.0.1:6379"),
        ("127.0.0.1:7617", "127.0.0.2:7617"),
        ("127.0.0.1:7617", "[::1]:7617"),
        // Whether that is this machine is not known from the text.
        ("0.0.0.0:7617", "10.0.0.1:7617"),
        ("0.0.0.0:7617", "proxy.example:7617"),
        ("0.0.0.0:7617", "[::1]:7617"),
        ("[::]:7617", "127.0.0.1:7617"),
        ("/run/proxy.socket", "/run/redis.socket"),
        // Any free port.
        ("127.0.0.1:0", "127.0.0.1:6379"),
    ] {
        assert_eq!(circles(bind, server), [""; 0], "{bind} {server}");
    }
}

#[test]
fn only_what_comes_back_goes_round() {
    // The listener 2 has the servers of another pool.
    let chain = "
        [[listener]]
        bind = 'h:1'
        [[listener]]
        bind = 'h:2'
        pool = 'b'
        [[pool]]
        name = 'a'
        shard = [{ server = [{ address = 'h:2' }] }]
        [[pool]]
        name = 'b'
        shard = [{ server = [{ address = 'h:9' }, { address = 'AT' }] }]
    ";
    let chain_to = |at: &str, more: &str| circles_of(&format!("{}{more}", chain.replace("AT", at)));
    assert_eq!(chain_to("h:8", ""), [""; 0]);
    let told = chain_to("h:1", "");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("pool \"a\": h:2 is") && told[1].contains("pool \"b\": h:1 is"));
    let route = |pool: &str, more: &str| {
        chain_to(
            "h:8",
            &format!("[[route]]\nprefix = 'x:'\npool = '{pool}'\n{more}"),
        )
    };
    assert_eq!(route("b", ""), [""; 0]);
    // At 2 the key has the same route; without its prefix it has not.
    assert_eq!(route("a", "").len(), 1);
    assert_eq!(route("a", "strip = true"), [""; 0]);
    let mirror = |more: &str| chain_to("h:8", &format!("[[mirror]]\npool = 'a'\n{more}"));
    // Copies of copies.
    assert_eq!(mirror("").len(), 1);
    assert_eq!(mirror("from = 'b'").len(), 1);
    let other = "[[pool]]\nname = 'c'\nshard = [{ server = [{ address = 'h:7' }] }]";
    assert_eq!(mirror(&format!("from = 'c'\n{other}")), [""; 0]);
}

#[test]
fn foot_guns_are_warned_of_and_start_all_the_same() {
    let two = "
        [[pool]]
        name = 'b'
        shard = [{ name = 'x', server = [{ address = 'h:1' }] }, { name = 'y', server = [{ address = 'h:2' }] }]
    ";
    for (more, text) in [
        ("distribution = 'random'", "by chance"),
        (
            "distribution = 'modula'\nhash = 'atol'",
            "do not begin with a number",
        ),
        ("hash = 'crc16'", "hash of 16 bits"),
    ] {
        let problems = config(&format!("{WHOLE}\n{two}\n{more}")).check();
        let found = problems
            .iter()
            .any(|p| !p.is_fatal && p.text.contains(text));
        assert!(
            found && problems.iter().all(|p| !p.is_fatal),
            "{more}: {problems:?}"
        );
    }
}
