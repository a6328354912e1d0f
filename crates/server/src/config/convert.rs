//! A configuration file of Redis, Valkey or KeyDB as one of ours: its lines, and what has no effect in comments. And the
//! flags of Dragonfly.
//!
//! Must not know any parameter.

use super::file::{Loader, quoted};
use super::report::{Loaded, Outcome};

/// A converted configuration file.
pub struct Converted {
    /// The file.
    pub text: Vec<u8>,
    /// Notes on lines, with file and line; true: the line asked for what is not here.
    pub notes: Vec<(String, bool)>,
}

/// Names of KeyDB, and ours; none: it has no counterpart.
const KEYDB: &[(&str, Option<&str>)] = &[
    ("server-threads", Some("threads")),
    ("server-thread-affinity", None),
    ("min-clients-per-thread", None),
    ("active-replica", None),
    ("multi-master", None),
    ("multi-master-no-forward", None),
    ("replica-weighting-factor", None),
    ("active-client-balancing", None),
    ("storage-provider", None),
    ("db-s3-object", None),
    ("scratch-file-path", None),
    ("soft-shutdown", None),
    ("lazyfree-lazy-user-flush-async", None),
    ("enable-async-commands", None),
    ("allow-rdb-resize-op", None),
    ("blob-support", None),
    ("availability-zone", None),
];

/// Flags of Dragonfly, and ours; none: it has no counterpart that means the same.
const DRAGONFLY: &[(&str, Option<&str>)] = &[
    ("port", Some("port")),
    ("bind", Some("bind")),
    ("unixsocket", Some("unixsocket")),
    ("unixsocketperm", Some("unixsocketperm")),
    ("dir", Some("dir")),
    ("maxmemory", Some("maxmemory")),
    ("maxclients", Some("maxclients")),
    ("requirepass", Some("requirepass")),
    ("masterauth", Some("masterauth")),
    ("masteruser", Some("masteruser")),
    ("aclfile", Some("aclfile")),
    ("dbnum", Some("databases")),
    ("proactor_threads", Some("threads")),
    ("conn_io_threads", None),
    ("timeout", Some("timeout")),
    ("tcp_keepalive", Some("tcp-keepalive")),
    ("tcp_backlog", Some("tcp-backlog")),
    ("hz", Some("hz")),
    ("slowlog_log_slower_than", Some("slowlog-log-slower-than")),
    ("slowlog_max_len", Some("slowlog-max-len")),
    ("notify_keyspace_events", Some("notify-keyspace-events")),
    ("tls_cert_file", Some("tls-cert-file")),
    ("tls_key_file", Some("tls-key-file")),
    ("tls_ca_cert_file", Some("tls-ca-cert-file")),
    ("tls_ca_cert_dir", Some("tls-ca-cert-dir")),
    ("pidfile", Some("pidfile")),
];

/// Returns true if these are flags in lines, as Dragonfly's files have them.
pub fn are_flags(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.find(|line| !line.is_empty() && line[0] != b'#');
    first.is_some_and(|line| line.starts_with(b"--"))
}

/// Returns flags of Dragonfly, one a line, as a configuration of ours, or their faults.
pub fn convert_flags(name: &str, text: &[u8]) -> Result<Converted, Vec<String>> {
    let text = String::from_utf8_lossy(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text));
    let (mut lines, mut notes, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    let has_tls = text
        .lines()
        .any(|line| matches!(line.trim(), "--tls" | "--tls=true"));
    for (at, line) in text.lines().enumerate() {
        let (line, place) = (line.trim(), format!("{name}:{}", at + 1));
        let Some(flag) = line.strip_prefix("--") else {
            match line.is_empty() || line.starts_with('#') {
                true => lines.push(line.to_owned()),
                false => faults.push(format!("{place}: a flag begins with --")),
            }
            continue;
        };
        let (flag, value) = match flag.split_once('=').or_else(|| flag.split_once(' ')) {
            Some((flag, value)) => (flag, value.trim().trim_matches('"')),
            None => (flag, "true"),
        };
        let flag = flag.replace('-', "_");
        let known = DRAGONFLY.iter().find(|(known, _)| *known == flag);
        let quoted = |value: &str| String::from_utf8_lossy(&quoted(value.as_bytes())).into_owned();
        let ours = match (flag.as_str(), value, known) {
            ("tls", ..) => Some(String::new()),
            ("port", value, _) if has_tls => Some(format!("tls-port {}", quoted(value))),
            ("cache_mode", "true", _) => Some("maxmemory-policy allkeys-lru".to_owned()),
            ("cache_mode", ..) => Some("maxmemory-policy noeviction".to_owned()),
            ("cluster_mode", "emulated", _) => Some("cluster-enabled yes".to_owned()),
            ("replicaof", value, _) => {
                let place = value.rsplit_once(':');
                place.map(|(host, port)| format!("replicaof {} {}", quoted(host), quoted(port)))
            }
            // A name with placeholders is a new file each time.
            ("dbfilename", value, _) if !value.contains(['{', '%']) && value.ends_with(".rdb") => {
                Some(format!("dbfilename {}", quoted(value)))
            }
            (_, value, Some((_, Some(ours)))) => Some(format!("{ours} {}", quoted(value))),
            _ => None,
        };
        match ours {
            Some(ours) => lines.push(ours),
            None => {
                let comment = format!("--{flag} of Dragonfly has no counterpart");
                notes.push((format!("{place}: {comment}"), true));
                lines.push(format!("# {comment}"));
            }
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    if has_tls {
        lines.push("port 0".to_owned());
    }
    // Values are tried, and what has no effect is marked.
    let mut done = convert(name, lines.join("\n").as_bytes())?;
    notes.append(&mut done.notes);
    Ok(Converted {
        text: done.text,
        notes,
    })
}

/// Returns the text of the file `name` as a configuration of ours, or its faults.
pub fn convert(name: &str, text: &[u8]) -> Result<Converted, Vec<String>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut notes = Vec::new();
    let lines: Vec<Vec<u8>> = text
        .split(|byte| *byte == b'\n')
        .enumerate()
        .map(|(at, line)| {
            renamed(
                line.trim_ascii_end(),
                &format!("{name}:{}", at + 1),
                &mut notes,
            )
        })
        .collect();
    let mut loader = Loader::default();
    loader.text(name, &lines.join(&b'\n'));
    let loaded = loader.loaded();
    let faults: Vec<String> = faults(&loaded);
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut lines = lines;
    for (place, outcome) in loaded.outcomes() {
        let Some(line) = &place.line else { continue };
        let (comment, is_lost) = match &outcome {
            Outcome::NoEffect(why) => (format!("without effect: {why}"), true),
            Outcome::Unbuilt(why) => (why.to_string(), true),
            Outcome::Replaced(later) => {
                let later = later.line.as_deref().unwrap_or_default();
                (format!("replaced by {later}"), false)
            }
            Outcome::Changed | Outcome::Same | Outcome::Fault(_) => continue,
        };
        notes.push((format!("{place}: {comment}"), is_lost));
        let number = line
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(':'));
        let at = number.and_then(|number| number.parse::<usize>().ok());
        // Lines of included files stay where they are.
        if let Some(line) = at.and_then(|at| lines.get_mut(at - 1)) {
            let mut marked = format!("# {comment}\n# ").into_bytes();
            marked.append(line);
            *line = marked;
        }
    }
    let mut text = lines.join(&b'\n');
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    Ok(Converted { text, notes })
}

/// Returns what is wrong with the file; parts that are not built are none of it.
fn faults(loaded: &Loaded) -> Vec<String> {
    let all = loaded.outcomes();
    all.filter_map(|(place, outcome)| match outcome {
        Outcome::Fault(why) => Some(format!("{place}: {why}")),
        _ => None,
    })
    .collect()
}

/// Returns a line with our name for KeyDB's, or in a comment if there is none.
fn renamed(line: &[u8], place: &str, notes: &mut Vec<(String, bool)>) -> Vec<u8> {
    let start = line.trim_ascii_start();
    let end = start.iter().position(u8::is_ascii_whitespace);
    let (word, rest) = start.split_at(end.unwrap_or(start.len()));
    let known = KEYDB
        .iter()
        .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(word));
    let Some((theirs, ours)) = known else {
        return line.to_vec();
    };
    match ours {
        Some(ours) => {
            notes.push((format!("{place}: {theirs} is {ours} here"), false));
            [ours.as_bytes(), rest].concat()
        }
        None => {
            let comment = format!("{theirs} of KeyDB has no counterpart");
            notes.push((format!("{place}: {comment}"), true));
            [format!("# {comment}\n# ").as_bytes(), line].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(text: &[u8]) -> (String, Vec<(String, bool)>) {
        let Converted { text, notes } = convert("r.conf", text)
            .map_err(|faults| faults.join("\n"))
            .unwrap();
        (String::from_utf8_lossy(&text).into_owned(), notes)
    }

    #[test]
    fn lines_with_an_effect_stay_and_others_are_comments() {
        let text = b"# Mine.\r\nport 7000\r\n\r\n\thz 20\r\nio-threads 4\nport 7001\nloadmodule x.so\nserver-threads 2\nactive-replica yes";
        let (text, notes) = converted(text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..3],
            ["# Mine.", "# replaced by r.conf:6", "# port 7000"]
        );
        assert!(
            lines.contains(&"port 7001") && lines.contains(&"threads 2"),
            "{text}"
        );
        assert!(
            lines.contains(&"# io-threads 4") && lines.contains(&"# loadmodule x.so"),
            "{text}"
        );
        assert!(lines.contains(&"# active-replica yes"), "{text}");
        let lost = notes.iter().filter(|(_, is_lost)| *is_lost);
        let lost: Vec<&str> = lost.map(|(text, _)| text.as_str()).collect();
        for place in ["r.conf:5: ", "r.conf:7: ", "r.conf:9: "] {
            assert!(
                lost.iter().any(|note| note.starts_with(place)),
                "{place}: {lost:?}"
            );
        }
        // It starts: nothing in it is refused, and nothing is left to convert.
        let (again, notes) = converted(text.as_bytes());
        assert_eq!((again, notes.len()), (text, 0));
    }

    #[test]
    fn faults_are_all_told_with_their_lines() {
        let text = b"\xef\xbb\xbfport 7000\nnope 1\nmaxmemory \"1\nappendonly perhaps\n";
        let faults = convert("r.conf", text).err().unwrap();
        let places: Vec<&str> = faults.iter().map(|fault| &fault[..9]).collect();
        assert_eq!(
            places,
            ["r.conf:2:", "r.conf:3:", "r.conf:4:"],
            "{faults:?}"
        );
    }

    #[test]
    fn flags_of_dragonfly_become_lines() {
        let flags = b"--port=6380\n--tls\n--cache_mode=true\n--maxmemory=4gb\n--proactor_threads 3\n--snapshot_cron=*/5 * * * *\n\
            --requirepass=a b\n--replicaof=h:1\n--dbfilename=dump-{timestamp}\n--tls_cert_file=c\n--tls_key_file=k\n";
        assert!(are_flags(flags) && !are_flags(b"port 1\n"));
        let Converted { text, notes } = convert_flags("f", flags)
            .map_err(|all| all.join("\n"))
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        for line in [
            "tls-port 6380",
            "maxmemory-policy allkeys-lru",
            "maxmemory 4gb",
            "threads 3",
            "requirepass \"a b\"",
            "replicaof h 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        let lost: Vec<&str> = notes.iter().map(|(note, _)| &note[..4]).collect();
        assert_eq!(lost, ["f:6:", "f:9:"], "{notes:?}");
        let faults = convert_flags("f", b"--port=x\n").err().unwrap();
        assert!(faults[0].starts_with("f:1: "), "{faults:?}");
        assert!(convert_flags("f", b"port 1\n").is_err());
    }

    #[test]
    fn bytes_that_are_not_utf_8_stay() {
        let text = b"requirepass caf\xe9\n";
        let done = convert("r.conf", text)
            .map_err(|faults| faults.join("\n"))
            .unwrap();
        assert_eq!(done.text, text);
    }
}
