//! Needs of the server's settings of the machine, for `redline doctor` and for the warnings at the start.
//!
//! Must not know how it is examined.

use std::path::{Path, PathBuf};

use redline_doctor::{Folder, Listening, Wanted};

use crate::{
    settings::Settings,
    start::{reserved_descriptors, worker_count},
};

/// Returns what the settings need.
pub(crate) fn wanted(settings: &Settings) -> Wanted {
    let workers = worker_count(settings);
    let files = settings.maxclients as u64 + reserved_descriptors(settings, workers);
    let ports = [settings.port, settings.tls.port].into_iter().flatten();
    let hosts = |port: u16| {
        settings.bind.iter().map(move |host| Listening {
            host: host.clone(),
            port,
        })
    };
    let metrics = settings.metrics_port.into_iter().flat_map(|port| {
        let hosts = settings.metrics_bind.iter();
        hosts.map(move |host| Listening {
            host: host.clone(),
            port,
        })
    });
    Wanted {
        backlog: Some((settings.tcp_backlog, "the parameter tcp-backlog")),
        open_files: Some((files, "the parameter maxclients")),
        memory_max_bytes: Some(settings.maxmemory_bytes),
        threads: settings.threads,
        connects: false,
        listening: ports.flat_map(hosts).chain(metrics).collect(),
        folders: folders(settings),
        private: Vec::new(),
        certificates: settings.tls.cert_file.iter().map(PathBuf::from).collect(),
        open_to_all: open_to_all(settings),
        faults: Vec::new(),
    }
}

/// Returns what a configuration needs, with its faults, and the files of it that hold secrets.
pub(crate) fn wanted_of(settings: &Settings, files: Vec<PathBuf>, faults: Vec<String>) -> Wanted {
    let mut wanted = wanted(settings);
    wanted.faults = faults;
    let has_secrets = settings.requirepass.is_some()
        || settings.primary_password.is_some()
        || !settings.acl_user_lines.is_empty();
    if has_secrets {
        wanted.private.extend(files);
    }
    let keys = [&settings.tls.key_file, &settings.aclfile];
    wanted
        .private
        .extend(keys.into_iter().flatten().map(PathBuf::from));
    wanted
}

/// Returns what a server with defaults needs of the kernel.
pub(crate) fn system_only() -> Wanted {
    Wanted {
        listening: Vec::new(),
        folders: Vec::new(),
        ..wanted(&Settings::default())
    }
}

fn folders(settings: &Settings) -> Vec<Folder> {
    let dir = settings.service.dir.clone();
    let dir = dir
        .or_else(|| std::env::current_dir().ok())
        .unwrap_or_default();
    let saves = !settings.save_points.is_empty() || settings.appends;
    let in_dir = |path: &String| dir.join(path);
    let parent = |path: PathBuf| path.parent().map(Path::to_owned);
    let of = |what, path: Option<PathBuf>| {
        path.map(|path| Folder {
            what,
            path,
            bytes: 0,
        })
    };
    let mut all = Vec::new();
    if saves {
        all.push(Folder {
            what: "the data",
            path: dir.clone(),
            bytes: settings.maxmemory_bytes,
        });
    }
    let service = &settings.service;
    all.extend(of(
        "the log",
        service.logfile.as_ref().map(in_dir).and_then(parent),
    ));
    all.extend(of(
        "the process id",
        service.pidfile.as_ref().map(in_dir).and_then(parent),
    ));
    all.extend(of(
        "the unix socket",
        settings.unixsocket.as_ref().map(in_dir).and_then(parent),
    ));
    all
}

/// Returns the reason why whoever reaches the port can do everything, if that is so.
fn open_to_all(settings: &Settings) -> Option<String> {
    let is_local = |host: &String| {
        let host = host.trim_start_matches('-');
        host.starts_with("127.") || host == "::1" || host == "localhost"
    };
    let has_users = settings.aclfile.is_some() || !settings.acl_user_lines.is_empty();
    let listens = settings.port.is_some() || settings.tls.port.is_some();
    let is_open = listens
        && settings.requirepass.is_none()
        && !has_users
        && !settings.protected_mode
        && !settings.bind.iter().all(is_local);
    is_open.then(|| {
        format!(
            "there is no password, protected-mode is no, and bind is {}: whoever reaches the port can do everything",
            settings.bind.join(" ")
        )
    })
}
