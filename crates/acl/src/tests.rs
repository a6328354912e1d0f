//! Tests of users as their rules make them: printed rules, errors, allowed and refused calls.

use redline_spec::resolve;

use crate::{
    Context, DEFAULT_USER, Denied, Dialect, Event, KeyUse, Log, Reason, SetUserError, Users,
};

const DIALECT: Dialect = Dialect {
    open_channels: false,
    split: |text| Some(words(text)),
};

fn words(text: &[u8]) -> Vec<Vec<u8>> {
    let words = text.split(|byte| *byte == b' ');
    words
        .filter(|word| !word.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

fn set(users: &mut Users, name: &str, rules: &str) -> Result<(), SetUserError> {
    let rules = words(rules.as_bytes());
    let rules: Vec<&[u8]> = rules.iter().map(Vec::as_slice).collect();
    users.set(name.as_bytes(), &rules, &DIALECT)
}

fn text(users: &Users, name: &str) -> String {
    String::from_utf8(users.get(name.as_bytes()).unwrap().text()).unwrap()
}

/// Returns the rules of a fresh user, as they are printed.
fn printed(rules: &str) -> String {
    let mut users = Users::new(&DIALECT);
    set(&mut users, "u", rules).unwrap();
    text(&users, "u")
}

fn error(rules: &str) -> String {
    let mut users = Users::new(&DIALECT);
    set(&mut users, "u", rules).unwrap_err().to_string()
}

fn check(users: &Users, name: &str, call: &str) -> Result<(), Denied> {
    let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
    let id = resolve(words[0], words.get(1).copied()).unwrap();
    users
        .get(name.as_bytes())
        .unwrap()
        .check(id, words.len(), |at| words[at])
}

fn user(rules: &str) -> Users {
    let mut users = Users::new(&DIALECT);
    set(&mut users, "u", rules).unwrap();
    users
}

fn denied(reason: Reason, position: usize) -> Result<(), Denied> {
    Err(Denied { reason, position })
}

#[test]
fn rules_may_name_commands_that_are_not_built() {
    for (rules, expected) in [
        (
            "+save|x +cluster|info +CLUSTER -cluster|Nodes",
            "off sanitize-payload resetchannels -@all +save|x +cluster -cluster|nodes",
        ),
        (
            "+@all -cluster|nodes +replicaof|no",
            "off sanitize-payload resetchannels +@all -cluster|nodes +replicaof|no",
        ),
        (
            "+SAVE|Aa +save +bgsave|schedule -bgsave",
            "off sanitize-payload resetchannels -@all +save -bgsave",
        ),
    ] {
        assert_eq!(printed(rules), expected, "{rules}");
    }
    for rules in ["+cluster|x", "-save|x", "-cluster|info|x", "+@save"] {
        assert!(error(rules).contains("Unknown command"), "{rules}");
    }
    assert!(error("+cluster|info|x").contains("first-arg of a subcommand"));
    assert!(error("+cluster|").contains("Syntax error"));
    assert!(error("+save|").contains("Syntax error"));
    assert_eq!(check(&user("+@all ~* -save"), "u", "get k"), Ok(()));
}

#[test]
fn rules_are_printed_in_normal_form() {
    for (rules, expected) in [
        ("", "off sanitize-payload resetchannels -@all"),
        (
            "ON +GET ~x",
            "on sanitize-payload ~x resetchannels -@all +get",
        ),
        (
            "allkeys allchannels allcommands",
            "off sanitize-payload ~* &* +@all",
        ),
        (
            "+@all -get -@write",
            "off sanitize-payload resetchannels +@all -get -@write",
        ),
        (
            "+get -get +get",
            "off sanitize-payload resetchannels -@all +get",
        ),
        (
            "+config|get -config",
            "off sanitize-payload resetchannels -@all -config",
        ),
        (
            "-config +config|get",
            "off sanitize-payload resetchannels -@all -config +config|get",
        ),
        (
            "+select|0 +SELECT|A +select",
            "off sanitize-payload resetchannels -@all +select",
        ),
        (
            "%R~a %W~a %rw~b %R",
            "off sanitize-payload ~a ~b %R~ resetchannels -@all",
        ),
        ("&a &b &a", "off sanitize-payload resetchannels &a &b -@all"),
        (
            "nopass skip-sanitize-payload",
            "off nopass skip-sanitize-payload resetchannels -@all",
        ),
        (
            "+@all nocommands",
            "off sanitize-payload resetchannels -@all",
        ),
        (
            "(+get ~a) (+set) on",
            "on sanitize-payload resetchannels -@all (~a resetchannels -@all +get) (resetchannels -@all +set)",
        ),
        (
            "(+get) clearselectors",
            "off sanitize-payload resetchannels -@all",
        ),
        (
            "on ~x +@all >p (+get) reset",
            "off sanitize-payload resetchannels -@all",
        ),
        (
            "nopass >foo >foo #2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
            "off sanitize-payload #2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae resetchannels -@all",
        ),
        (
            ">a >foo <a",
            "off sanitize-payload #2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae resetchannels -@all",
        ),
    ] {
        assert_eq!(printed(rules), expected, "{rules}");
    }
}

#[test]
fn what_is_printed_can_be_read() {
    for rules in [
        "on >p ~a %R~b &c +@read -get +config|get +select|0 (~x +@all -@dangerous)",
        "nopass allkeys allchannels +@all -@write +set",
        "+get|a +get|b -@all +mget",
    ] {
        let first = printed(rules);
        assert_eq!(printed(&first), first, "{rules}");
    }
}

#[test]
fn wrong_rules_change_nothing_and_are_named() {
    let mut users = user("on ~x");
    let before = text(&users, "u");
    assert!(set(&mut users, "u", "+get off foo").is_err());
    assert_eq!(text(&users, "u"), before);
    for (rules, expected) in [
        ("foo", "'foo': Syntax error"),
        (
            "+nosuch",
            "'+nosuch': Unknown command or category name in ACL",
        ),
        (
            "-@nosuch",
            "'-@nosuch': Unknown command or category name in ACL",
        ),
        ("+", "'+': Unknown command or category name in ACL"),
        (
            "+config|get|x",
            "'+config|get|x': Allowing first-arg of a subcommand is not supported",
        ),
        (
            "-select|0",
            "'-select|0': Unknown command or category name in ACL",
        ),
        ("+config|", "'+config|': Syntax error"),
        ("%~x", "'%~x': Syntax error"),
        ("%RR~x", "'%RR~x': Syntax error"),
        (
            "#abc",
            "'#abc': The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters",
        ),
        (
            "<abc",
            "'<abc': The password you are trying to remove from the user does not exist",
        ),
        ("(on)", "'(on)': Syntax error"),
    ] {
        assert_eq!(
            error(rules),
            format!("Error in ACL SETUSER modifier {expected}"),
            "{rules}"
        );
    }
    assert!(error("allkeys ~x").contains("Try 'resetkeys'"));
    assert!(error("allkeys %").contains("Try 'resetkeys'"));
    assert!(error("&* &x").contains("Try 'resetchannels'"));
    let spaced = users.set(b"u", &[b"~a\tb"], &DIALECT).unwrap_err();
    assert!(spaced.to_string().ends_with("Syntax error"));
}

#[test]
fn commands_keys_and_channels_are_checked() {
    let users = user("+@all -flushall -config +config|get ~x:* %R~r:* %W~w:* &ch:*");
    let check = |call| check(&users, "u", call);
    for allowed in [
        "get x:1",
        "get r:1",
        "set w:1 v",
        "set x:1 v get",
        "exists w:1 r:1",
        "ping",
        "auth x",
        "config get port",
        "publish ch:1 x",
        "unsubscribe other",
        "psubscribe ch:*",
        "lmpop 1x y left",
        "copy r:1 w:1",
        "eval s 0 y",
    ] {
        assert_eq!(check(allowed), Ok(()), "{allowed}");
    }
    assert_eq!(check("flushall"), denied(Reason::Command, 0));
    assert_eq!(check("config set hz 1"), denied(Reason::Command, 0));
    assert_eq!(check("get w:1"), denied(Reason::Key, 1));
    assert_eq!(check("set r:1 v"), denied(Reason::Key, 1));
    assert_eq!(check("set w:1 v get"), denied(Reason::Key, 1));
    assert_eq!(check("mget x:1 x:2 y"), denied(Reason::Key, 3));
    assert_eq!(check("exists q"), denied(Reason::Key, 1));
    assert_eq!(check("copy x:1 r:1"), denied(Reason::Key, 2));
    assert_eq!(check("publish other x"), denied(Reason::Channel, 1));
    assert_eq!(check("subscribe ch:1 other"), denied(Reason::Channel, 2));
    assert_eq!(check("psubscribe ch:1"), denied(Reason::Channel, 1));
}

#[test]
fn an_empty_name_is_matched_by_nothing_but_itself() {
    let users = user("+@all %RW~** ~a* &**");
    assert_eq!(check(&users, "u", "get "), denied(Reason::Key, 1));
    assert_eq!(check(&users, "u", "publish  x"), denied(Reason::Channel, 1));
    let users = user("+@all ~ &");
    assert_eq!(check(&users, "u", "get "), Ok(()));
    assert_eq!(check(&users, "u", "publish  x"), Ok(()));
    assert_eq!(check(&user("+@all ~*"), "u", "get "), Ok(()));
}

#[test]
fn a_destination_without_sources_is_checked() {
    let users = user("+@all ~b");
    assert_eq!(check(&users, "u", "pfmerge z"), denied(Reason::Key, 1));
    assert_eq!(check(&users, "u", "pfmerge b"), Ok(()));
    assert_eq!(
        check(&users, "u", "georadius z 1 1 1 m store"),
        denied(Reason::Key, 1)
    );
    // This one is answered with an error, by whichever user.
    assert_eq!(check(&users, "u", "zunionstore z 0 x"), Ok(()));
}

#[test]
fn a_first_argument_opens_a_command_that_is_not_allowed() {
    let mut users = user("+select|0");
    assert_eq!(check(&users, "u", "select 0"), Ok(()));
    assert_eq!(check(&users, "u", "select 1"), denied(Reason::Command, 0));
    set(&mut users, "u", "-select").unwrap();
    assert_eq!(check(&users, "u", "select 0"), denied(Reason::Command, 0));
}

#[test]
fn one_selector_must_allow_the_whole_call() {
    let users = user("+get ~a (+set ~b) (+mget ~c)");
    assert_eq!(check(&users, "u", "get a"), Ok(()));
    assert_eq!(check(&users, "u", "set b 1"), Ok(()));
    // The refusal is that of the selector that came furthest.
    assert_eq!(check(&users, "u", "set a 1"), denied(Reason::Key, 1));
    assert_eq!(check(&users, "u", "mget c c a"), denied(Reason::Key, 3));
    assert_eq!(check(&users, "u", "del a"), denied(Reason::Command, 0));
}

#[test]
fn only_who_may_do_everything_is_not_checked() {
    let unrestricted = |rules| user(rules).get(b"u").unwrap().is_unrestricted();
    assert!(unrestricted("+@all ~* &*"));
    assert!(unrestricted("(+@all ~* &*)"));
    assert!(!unrestricted("+@all ~*"));
    assert!(!unrestricted("+@all ~* &* -get"));
    assert!(!unrestricted("+@all ~* &* -get +get"));
    assert!(!unrestricted("+@all (~* &*)"));
    assert!(Users::new(&DIALECT).default_user().is_unrestricted());
}

#[test]
fn every_key_is_what_a_star_allows() {
    let may = |rules: &str| {
        let users = user(rules);
        let words: [&[u8]; 2] = [b"get", b"k"];
        let id = resolve(words[0], None).unwrap();
        let user = users.get(b"u").unwrap();
        user.check_every_key(id, 2, |at| words[at], KeyUse::READ)
    };
    assert!(may("+get ~*"));
    assert!(may("+get %R~*"));
    assert!(!may("+get %W~* ~k"));
    assert!(!may("+get ~k*"));
    assert!(!may("~*"));
    assert!(!may("+get ~k (~*)"));
}

#[test]
fn keys_like_a_pattern_are_those_that_begin_as_the_rules_allow() {
    let may = |rules: &str, pattern: &str| {
        let users = user(rules);
        let words: [&[u8]; 2] = [b"keys", pattern.as_bytes()];
        let id = resolve(words[0], None).unwrap();
        let user = users.get(b"u").unwrap();
        user.check_keys_like(id, 2, |at| words[at], words[1], KeyUse::READ)
    };
    for (rules, pattern, expected) in [
        ("+keys ~*", "x*", true),
        ("+keys ~a:*", "a:*", true),
        ("+keys ~a:**", "a:b[cd]?", true),
        ("+keys ~a:*", "a:1", true),
        ("+keys ~a:?", "a:1", true),
        ("+keys ~a:?", "a:?", false),
        ("+keys %R~a:*", "a:*", true),
        ("+keys %W~a:*", "a:*", false),
        ("+keys ~b* ~a*", "ab*", true),
        ("+keys ~a:*", "a*", false),
        ("+keys ~a:*", "*a:*", false),
        ("+keys ~a:*", "[a]:*", false),
        ("+keys ~a:*", "?:*", false),
        ("+keys ~a:*", "", false),
        ("+keys ~a\\**", "a\\*b*", true),
        ("+keys ~a\\**", "a*", false),
        ("+keys ~a*", "a\\", true),
        ("+keys ~a*x", "a*x", false),
        ("+keys ~k (~a*)", "a*", false),
        ("~a*", "a*", false),
    ] {
        assert_eq!(may(rules, pattern), expected, "{rules} {pattern}");
    }
}

#[test]
fn passwords_and_switches_decide_who_logs_in() {
    let mut users = user("on >p >q");
    let logs_in =
        |users: &Users, password: &str| users.authenticate(b"u", password.as_bytes()).is_some();
    assert!(logs_in(&users, "p") && logs_in(&users, "q"));
    assert!(!logs_in(&users, "r") && !logs_in(&users, ""));
    set(&mut users, "u", "nopass").unwrap();
    assert!(logs_in(&users, "r"));
    set(&mut users, "u", "off").unwrap();
    assert!(!logs_in(&users, "r"));
    assert!(users.authenticate(b"nobody", b"p").is_none());
    assert!(!users.login_required());
    users.set_default_password(Some(b"s"), &DIALECT);
    assert!(users.login_required() && users.is_default_password(b"s"));
    users.set_default_password(None, &DIALECT);
    assert!(!users.login_required() && !users.is_default_password(b"s"));
    set(&mut users, "default", "off").unwrap();
    assert!(users.login_required());
}

#[test]
fn channels_are_lost_only_where_something_was_taken_away() {
    let left = |before: &str, after: &str, channel: &[u8], pattern: bool| {
        let (before, after) = (user(before), user(after));
        let left = after
            .get(b"u")
            .unwrap()
            .channels_left_after(before.get(b"u").unwrap());
        left.is_none_or(|left| left.allow(channel, pattern))
    };
    assert!(left("&a", "&a &b", b"zzz", false));
    assert!(left("&a", "&*", b"zzz", false));
    assert!(left("&*", "&a*", b"abc", false));
    assert!(!left("&*", "&a*", b"b", false));
    assert!(!left("&a &b", "&a", b"b", false));
    assert!(left("&a &b", "(&b)", b"b", false));
    assert!(left("&*", "&a*", b"a*", true));
    assert!(!left("&*", "&a*", b"ab", true));
}

#[test]
fn a_file_is_taken_whole_or_not_at_all() {
    let users = user("on >p ~x +get");
    let text = users.file_text();
    let read = |text: &[u8]| users.from_file("f", text, &DIALECT);
    let again = read(&text).unwrap();
    assert_eq!(again.file_text(), text);
    assert_eq!(again.get(b"u").unwrap().id(), users.get(b"u").unwrap().id());
    assert_ne!(again.version(), users.version());
    let trimmed = read(b"\n  user a on (+get ~x)\t\r\n\tuser b on\t\n").unwrap();
    assert_eq!(trimmed.iter().count(), 3);
    assert!(trimmed.get(DEFAULT_USER).unwrap().is_unrestricted());
    const END: &str =
        "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
    for (text, error) in [
        (
            "foo bar",
            "f:1 should start with user keyword followed by the username. ",
        ),
        (
            "user",
            "f:1 should start with user keyword followed by the username. ",
        ),
        (
            "\n# a",
            "f:2 should start with user keyword followed by the username. ",
        ),
        (
            "user a on\nuser a off",
            "WARNING: Duplicate user 'a' found on line 2. ",
        ),
        (
            "user a (+get",
            "f:1: Unmatched parenthesis in selector definition.",
        ),
        (
            "user a +nosuch foo bar",
            "f:1: Error in applying operation '+nosuch': Unknown command or category name in ACL. f:1: Syntax error. ",
        ),
        (
            "user a foo\nuser b bar",
            "f:1: Syntax error. f:2: Syntax error. ",
        ),
    ] {
        assert_eq!(
            read(text.as_bytes()).unwrap_err(),
            format!("{error}{END}"),
            "{text}"
        );
    }
}

#[test]
fn a_user_made_again_is_another_one() {
    let mut users = user("on");
    let id = users.get(b"u").unwrap().id();
    set(&mut users, "u", "off").unwrap();
    assert_eq!(users.get(b"u").unwrap().id(), id);
    assert!(users.remove(b"u") && !users.remove(b"u"));
    assert!(!users.remove(DEFAULT_USER));
    set(&mut users, "u", "on").unwrap();
    assert_ne!(users.get(b"u").unwrap().id(), id);
}

#[test]
fn refusals_of_a_kind_within_a_minute_are_one_entry() {
    let event = |object: &str, at_ms| Event {
        reason: Reason::Key,
        context: Context::TopLevel,
        object: object.as_bytes().to_vec(),
        user: b"u".to_vec(),
        client: String::new(),
        at_ms,
    };
    let mut log = Log::default();
    for (object, at_ms) in [("a", 0), ("b", 1), ("a", 60_000), ("b", 60_002)] {
        log.add(event(object, at_ms), 128);
    }
    let seen: Vec<_> = log
        .entries()
        .map(|entry| (entry.id, entry.count, entry.created_ms, entry.last.at_ms))
        .collect();
    assert_eq!(
        seen,
        [(2, 1, 60_002, 60_002), (0, 2, 0, 60_000), (1, 1, 1, 1)]
    );
    for at in 0..12 {
        log.add(event(&format!("x{at}"), 60_003), 5);
    }
    assert_eq!(log.entries().len(), 5);
    log.clear();
    assert_eq!(log.entries().len(), 0);
}

/// Asserts that no words cause a panic, and that printed rules parse to the same rules.
#[test]
fn random_rules_are_printed_as_they_are_read() {
    const PIECES: &[&str] = &[
        "on",
        "off",
        "nopass",
        "resetpass",
        ">p",
        "<p",
        "~a",
        "%R~b*",
        "%W~b*",
        "~*",
        "resetkeys",
        "&c",
        "&*",
        "resetchannels",
        "+get",
        "-get",
        "+config|get",
        "-config",
        "+select|0",
        "+select|1",
        "-select",
        "+@read",
        "-@write",
        "+@all",
        "-@all",
        "reset",
        "(",
        ")",
        "(+get",
        "~x)",
        "(+set ~y)",
        "clearselectors",
        "",
        "+",
        "%",
        "sanitize-payload",
        "skip-sanitize-payload",
        "#",
        "!",
        "-@",
        "+x|",
        "+config|nosuch",
    ];
    let mut rng = fastrand::Rng::with_seed(7);
    let mut accepted = 0;
    for _ in 0..4000 {
        let mut users = Users::new(&DIALECT);
        for _ in 0..rng.usize(1..12) {
            let count = rng.usize(1..3);
            let rules: Vec<&[u8]> = (0..count)
                .map(|_| PIECES[rng.usize(..PIECES.len())].as_bytes())
                .collect();
            accepted += usize::from(users.set(b"u", &rules, &DIALECT).is_ok());
        }
        if users.get(b"u").is_some() {
            let shown = text(&users, "u");
            assert_eq!(printed(&shown), shown);
            let file = users.file_text();
            let again = users.from_file("f", &file, &DIALECT).unwrap();
            assert_eq!(again.file_text(), file);
        }
    }
    assert!(accepted > 4000);
}
