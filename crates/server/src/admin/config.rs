//! CONFIG: the configuration table, read and changed by clients.
//!
//! CONFIG SET changes a copy of the settings and publishes it whole, so several parameters change together or not at
//! all. Must not know: the meaning of parameters, but for those whose change has an immediate effect.

use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use redline_commands::Error;
use redline_net::{Listener, error_text, limits, tls::ServerTls};
use redline_resp::Args;
use redline_settings::value::Refusal;
use redline_types::glob::{self, Case};

use crate::{
    config::{self, Parameter, rewrite::rewritten, table},
    cron, log,
    persistence::append,
    service::apply_oom_score,
    settings::{Permission, Settings},
    shared::{Message, Shared, TcpPort},
    start::{apply_to_keyspace, reserved_descriptors, within_addresses},
    worker::Worker,
};
use redline_engine::{Caller, Halt, errors, executor::eviction};

pub(crate) fn config_get(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut found: Vec<(Vec<u8>, &Parameter)> = Vec::new();
    let mut known = HashSet::new();
    let mut add = |name: &[u8], row| {
        if known.insert(name.to_vec()) {
            found.push((name.to_vec(), row));
        }
    };
    for pattern in args.iter().skip(2) {
        if !pattern.iter().any(|byte| b"*?[".contains(byte)) {
            // A plain name is shown in the client's spelling.
            if let Some(row) = config::find(pattern) {
                add(pattern, row);
            }
            continue;
        }
        for row in table::ROWS {
            for name in row.names().map(str::as_bytes) {
                if glob::matches(pattern, name, Case::Insensitive) {
                    add(name, row);
                }
            }
        }
    }
    let mut reply = caller.reply();
    reply.map(found.len());
    for (name, row) in found {
        reply.bulk(&name);
        reply.bulk(&row.text(&worker.outlet.settings));
    }
    Ok(())
}

pub(crate) fn config_set(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let pairs = args.from(2);
    if !pairs.len().is_multiple_of(2) {
        return Err(Error::Syntax.into());
    }
    let changes = parse_names(worker, caller, pairs)?;
    let shared = worker.shared;
    let tls = changes.iter().find(|(row, ..)| row.concerns_tls());
    let mut effects = Effects {
        tls_parameter: tls.map(|(row, ..)| row.name),
        ..Effects::default()
    };
    shared.change_settings(|settings| {
        let before = settings.clone();
        for (row, name, argument) in &changes {
            let set = row.set(settings, &config::words_of(row, argument));
            set.and_then(|()| row.check_built(settings))
                .map_err(|why| failed(&name.to_ascii_lowercase(), &why))?;
        }
        effects
            .prepare(&before, settings, shared)
            .map_err(|(name, why)| failed(name.as_bytes(), &why))?;
        settings.maxmemory_bytes = within_addresses(settings.maxmemory_bytes);
        apply_to_keyspace(&shared.keyspace, settings);
        Ok::<(), Error>(())
    })?;
    worker.refresh();
    log::set_level(worker.outlet.settings.service.log_level);
    let service = &worker.outlet.settings.service;
    log::set_format(service.log_format, service.log_timestamp);
    effects.finish(worker);
    shared.show_title();
    eviction::make_room_for_long(worker.executor);
    cron::forget_tracked(worker);
    caller.reply().ok();
    Ok(())
}

pub(crate) fn config_resetstat(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    worker.shared.reset_stats();
    caller.reply().ok();
    Ok(())
}

pub(crate) fn config_rewrite(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    rewrite_file(worker, false)?;
    caller.reply().ok();
    Ok(())
}

/// Rewrites the configuration file; `all`: with parameters that have their defaults.
pub(super) fn rewrite_file(worker: &Worker, all: bool) -> Result<(), Error> {
    let Some(path) = &worker.shared.origin.config_file else {
        return Err(Error::line(
            "ERR The server is running without a config file",
        ));
    };
    let shared = &worker.shared;
    // The current settings: this worker may have older ones, which must not be written last.
    let rewrite = || {
        let old = match std::fs::read(path) {
            // It is created again.
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            old => old?,
        };
        let mut settings = Settings::clone(&shared.settings.current());
        if settings.cluster_enabled {
            // The records of the cluster say whom a node follows; a line would end the next start.
            settings.primary = None;
        }
        Ok(rewritten(&old, &settings, all))
    };
    if let Err(error) = replace_file(path, rewrite) {
        let why = error_text(&error);
        log::warning(&format!("CONFIG REWRITE failed: {why}"));
        let text = format!("ERR Rewriting config file: {why}");
        return Err(Error::Line(text.into()));
    }
    log::notice("CONFIG REWRITE executed with success.");
    Ok(())
}

/// Replaces the file in one step: a reader sees the old text or the new one. Calls are serialised: `text` is called
/// when the others are done.
pub(super) fn replace_file(
    path: &Path,
    text: impl FnOnce() -> std::io::Result<Vec<u8>>,
) -> std::io::Result<()> {
    /// Clients of several workers may rewrite at once, and their texts must not mix.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let text = text()?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    // A file left by a crash in the middle.
    let _ = std::fs::remove_file(&beside);
    let written = (|| {
        let old = std::fs::metadata(path).ok();
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        if old.is_some() {
            // Not readable by others before it has the permissions of the old one.
            options.mode(0o600);
        }
        let mut file = options.open(&beside)?;
        file.write_all(&text)?;
        if let Some(old) = old {
            file.set_permissions(old.permissions())?;
        }
        file.sync_all()?;
        std::fs::rename(&beside, path)
    })();
    match &written {
        // The new name should survive a loss of power, too. Where folders cannot be opened or flushed, there is no more
        // to do.
        Ok(()) => drop(folder_of(path).and_then(|folder| folder.sync_all())),
        Err(_) => drop(std::fs::remove_file(&beside)),
    }
    written
}

fn folder_of(path: &Path) -> std::io::Result<File> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))
}

/// A parameter, the name used by the client, and the new value.
type Change<'a> = (&'static Parameter, &'a [u8], &'a [u8]);

/// Checks the names, before any value is read.
fn parse_names<'a>(
    worker: &Worker,
    caller: &Caller,
    pairs: Args<'a>,
) -> Result<Vec<Change<'a>>, Error> {
    let mut changes: Vec<Change<'a>> = Vec::new();
    for at in (0..pairs.len()).step_by(2) {
        let (name, argument) = (
            pairs.get(at).unwrap_or_default(),
            pairs.get(at + 1).unwrap_or_default(),
        );
        let Some(row) = config::find(name) else {
            return Err(Error::quoting(
                "ERR Unknown option or number of arguments for CONFIG SET - '",
                name,
                "'",
            ));
        };
        if row.is_immutable() {
            return Err(failed(name, "can't set immutable config"));
        }
        if row.protected
            && !worker
                .outlet
                .settings
                .enable_protected_configs
                .allows(caller)
        {
            return Err(failed(name, "can't set protected config"));
        }
        let shared = worker.shared;
        let is_loading =
            || shared.persistence.loading.is_on() || shared.following.link().loading.is_some();
        if row.rests_while_loading && is_loading() {
            return Err(errors::LOADING);
        }
        if changes
            .iter()
            .any(|(_, known, _)| known.eq_ignore_ascii_case(name))
        {
            return Err(failed(name, "duplicate parameter"));
        }
        changes.push((row, name, argument));
    }
    Ok(changes)
}

fn failed(name: &[u8], why: &str) -> Error {
    Error::quoting(
        "ERR CONFIG SET failed (possibly related to argument '",
        name,
        &format!("') - {why}"),
    )
}

impl Permission {
    /// Returns true if this client has the permission.
    pub(crate) fn allows(self, caller: &Caller) -> bool {
        match self {
            Permission::No => false,
            Permission::Yes => true,
            Permission::Local => caller.info.is_local,
        }
    }
}

/// Actions that a change of the settings requires, besides publishing them.
#[derive(Default)]
struct Effects {
    /// Parameter of TLS that is set, even to its old value.
    tls_parameter: Option<&'static str>,
    tls: Option<ServerTls>,
    /// Ports whose listeners change, and the new listeners.
    listeners: Vec<(TcpPort, Vec<Arc<Listener>>)>,
}

impl Effects {
    /// Makes all steps that can fail; on an error the settings stay as they were.
    fn prepare(
        &mut self,
        before: &Settings,
        settings: &mut Settings,
        shared: &Shared,
    ) -> Result<(), (&'static str, Refusal)> {
        if let Some(name) = self.tls_parameter
            && settings.tls.port.is_some()
        {
            let made = ServerTls::new(&settings.tls.options()).map_err(|error| {
                log::warning(&format!("Failed to configure TLS: {error}"));
                let why = "Unable to update TLS configuration. Check server logs.";
                (name, why.into())
            });
            self.tls = Some(made?);
        }
        for which in TcpPort::ALL {
            let is_as_before = which.configured(settings) == which.configured(before);
            if !is_as_before || settings.bind != before.bind {
                let made = listeners(which, before, settings, shared)?;
                self.listeners.push((which, made));
            }
        }
        if settings.appends && !before.appends {
            append::prepare(shared, settings).map_err(|error| {
                log::warning(&format!("Unable to turn on AOF: {error}"));
                let why = "Unable to turn on AOF. Check server logs.";
                ("appendonly", why.into())
            })?;
        }
        if settings.maxclients > before.maxclients {
            let reserved = reserved_descriptors(settings, shared.workers().len());
            let wanted = settings.maxclients as u64 + reserved;
            let granted = limits::raise_open_files(wanted).map_or(0, |raised| raised.granted);
            if granted < wanted {
                let possible = granted.saturating_sub(reserved);
                return Err((
                    "maxclients",
                    format!(
                        "The operating system is not able to handle the specified number of clients, try with {possible}"
                    ),
                ));
            }
        }
        let (service, old) = (&settings.service, &before.service);
        if service.oom_score != old.oom_score || service.oom_scores != old.oom_scores {
            let name = match service.oom_scores == old.oom_scores {
                true => "oom-score-adj",
                false => "oom-score-adj-values",
            };
            let why = "Failed to set current oom_score_adj. Check server logs.";
            apply_oom_score(service).map_err(|_| (name, why.into()))?;
        }
        if settings.service.dir != before.service.dir
            && let Some(dir) = &settings.service.dir
        {
            let refused = |error| {
                let _ = apply_oom_score(&before.service);
                ("dir", error_text(&error))
            };
            std::env::set_current_dir(dir).map_err(refused)?;
            // A relative path would mean another directory from now on.
            settings.service.dir = Some(std::env::current_dir().map_err(refused)?);
        }
        Ok(())
    }

    /// Makes all steps that cannot fail.
    fn finish(self, worker: &Worker) {
        if let Some(tls) = self.tls {
            worker.shared.tls.replace(Some(tls));
        }
        for (which, listeners) in self.listeners {
            worker.shared.set_port(which, &listeners);
            worker.shared.workers()[0]
                .mailbox
                .send(Message::Run(Box::new(move |worker| {
                    worker.replace_tcp_listeners(which, listeners)
                })));
        }
    }
}

/// Creates the listeners of a port's new configuration; none if it has no port. `before`: the settings until now.
fn listeners(
    which: TcpPort,
    before: &Settings,
    settings: &Settings,
    shared: &Shared,
) -> Result<Vec<Arc<Listener>>, (&'static str, Refusal)> {
    let Some(configured) = which.configured(settings) else {
        return Ok(Vec::new());
    };
    let has_moved = which.configured(before) != Some(configured);
    let port = match shared.bound_port(which) {
        // The port chosen by the system, if it was to choose.
        bound if bound != 0 && !has_moved => bound,
        _ => configured,
    };
    let old = shared.tcp_listeners(which);
    let old: Vec<&Listener> = old.iter().map(|listener| &**listener).collect();
    let backlog = settings.tcp_backlog;
    let bound = Listener::bind_tcp_beside(&old, &settings.bind, port, backlog);
    let bound = bound.map_err(|error| {
        log::warning(&format!("Could not listen on {error}"));
        match has_moved {
            true => (
                which.parameter(),
                "Unable to listen on this port. Check server logs.".into(),
            ),
            false => ("bind", "Failed to bind to specified addresses.".into()),
        }
    })?;
    let made = bound.into_iter().map(|listener| match which {
        TcpPort::Plain => Arc::new(listener),
        TcpPort::Tls => Arc::new(listener.for_tls()),
    });
    Ok(made.collect())
}
