//! Bad days of a server's own files: two who write them at once, names that need care. What is written can be read, and
//! nobody who may not read it finds it. Must not know the server's insides.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    path::Path,
    thread,
};

use crate::client::{self, Client, Value, request, settings, start};
use redline_server::{Origin, Server, Settings};

/// So many clients ask at once, so often.
const CLIENTS: usize = 4;
const CALLS: usize = 60;

fn start_with_file(path: &Path, settings: Settings) -> Server {
    let origin = Origin {
        config_file: Some(path.into()),
        ..Origin::default()
    };
    Server::start(settings, origin, false).expect("the server starts")
}

/// Everybody makes this call at once, again and again, and is never refused.
fn all_at_once(server: &Server, call: &str) {
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = Client::connect(server);
                client.write(&request(call).repeat(CALLS));
                (0..CALLS).for_each(|_| client.read().ok());
            });
        }
    });
}

#[test]
fn who_rewrites_the_configuration_at_the_same_time_met_half_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.conf");
    fs::write(&path, "hz 20\n").unwrap();
    let server = start_with_file(&path, settings(2));
    all_at_once(&server, "CONFIG REWRITE");
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with("hz 10\n") && text.contains("\nuser default "),
        "{text}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn who_saves_the_users_at_the_same_time_met_half_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.acl");
    fs::write(&path, "user default on nopass ~* &* +@all\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let server = client::start(Settings {
        aclfile: Some(path.to_str().unwrap().into()),
        ..settings(2)
    });
    all_at_once(&server, "ACL SAVE");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    Client::connect(&server).call("ACL LOAD").ok();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_rewritten_file_has_what_was_set_before_whichever_worker_wrote_last() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.conf");
    fs::write(&path, "").unwrap();
    let server = start_with_file(&path, settings(2));
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (server, path) = (&server, &path);
            scope.spawn(move || {
                let mut client = Client::connect(server);
                let user = format!("user u{number} ");
                for round in 0..CALLS {
                    client
                        .call(&format!("ACL SETUSER u{number} ~{round}:*"))
                        .ok();
                    client.call("CONFIG REWRITE").ok();
                    let text = fs::read_to_string(path).unwrap();
                    let line = text.lines().find(|line| line.starts_with(&user));
                    let line = line.unwrap_or_else(|| panic!("no {user}in {text}"));
                    assert!(line.contains(&format!(" ~{round}:* ")), "{line}");
                }
            });
        }
    });
}

#[test]
fn a_user_whose_keys_have_a_quote_in_their_names_kept_the_server_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.conf");
    fs::write(&path, "").unwrap();
    let server = start_with_file(&path, settings(1));
    let mut client = Client::connect(&server);
    let rules = [
        "on",
        "nopass",
        "~o'brien:*",
        "~a\"b\\*",
        "&\"",
        "+get|it's",
        "(~x +get)",
    ];
    client
        .call(&format!("ACL SETUSER u' {}", rules.join(" ")))
        .ok();
    client.call("CONFIG REWRITE").ok();
    let before = client.call("ACL LIST");
    drop(server);
    let mut again = redline_server::config::file::Loader::default();
    again.file(&path).expect("what was written can be read");
    let again = Settings {
        port: Some(0),
        ..again.finish().unwrap()
    };
    let server = client::start(again);
    assert_eq!(Client::connect(&server).call("ACL LIST"), before);
    assert_ne!(before, Value::Array(Vec::new()));
}

#[test]
fn a_configuration_file_that_is_gone_is_written_anew_and_what_cannot_be_written_is_named_as_by_redis()
 {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.conf");
    fs::write(&path, "hz 20\n").unwrap();
    let server = start_with_file(&path, settings(1));
    let mut client = Client::connect(&server);
    client.call("CONFIG SET hz 30").ok();
    fs::remove_file(&path).unwrap();
    client.call("CONFIG REWRITE").ok();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.lines().any(|line| line == "hz 30"), "{text}");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let refused = client.call("CONFIG REWRITE");
    assert_eq!(refused.error(), "ERR Rewriting config file: Is a directory");
}

#[test]
fn a_server_that_ended_took_away_the_socket_of_its_successor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let at_path = || Settings {
        unixsocket: Some(path.to_str().unwrap().to_owned()),
        ..settings(1)
    };
    let first = start(at_path());
    // Renamed, not removed: its inode must not be given to the next file.
    fs::rename(&path, folder.path().join("moved")).unwrap();
    let second = start(at_path());
    drop(first);
    UnixStream::connect(&path).expect("the second server is there still");
    drop(second);
    assert!(!path.exists());
}
