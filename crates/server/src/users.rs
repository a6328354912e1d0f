//! Sources of users: the settings, their lines, and the file that they name.
//!
//! Must not know: the rules, and the effects of their changes on clients.

use std::{fs, sync::Arc};

use redline_acl::{DEFAULT_USER, Dialect, Users};
use redline_resp::split_words;

use crate::{
    settings::Settings,
    shared::{Message, Shared},
};

impl Settings {
    /// Returns the dialect of rules under these settings.
    pub fn acl_dialect(&self) -> Dialect {
        Dialect {
            open_channels: self.acl_open_channels,
            split: split_words,
        }
    }

    /// Makes `requirepass` the password of the default user, and the only one.
    pub(crate) fn apply_requirepass(&mut self) {
        let dialect = self.acl_dialect();
        let password = self.requirepass.as_deref();
        Arc::make_mut(&mut self.engine.acl).set_default_password(password, &dialect);
    }
}

/// Returns the users at the start of a server: those of the settings' lines, or of the file that they name.
pub(crate) fn users_at_start(settings: &Settings) -> Result<Users, String> {
    let dialect = settings.acl_dialect();
    let mut users = Users::new(&dialect);
    if let Some(password) = &settings.requirepass {
        users.set_default_password(Some(password), &dialect);
    }
    for line in &settings.acl_user_lines {
        let rules: Vec<&[u8]> = line.rules.iter().map(Vec::as_slice).collect();
        if line.name == DEFAULT_USER {
            let reset = users.set(DEFAULT_USER, &[b"reset"], &dialect);
            reset.map_err(|error| error.to_string())?;
        }
        let set = users.set(&line.name, &rules, &dialect);
        set.map_err(|error| error.to_string())?;
    }
    match &settings.aclfile {
        None => Ok(users),
        Some(_) if !settings.acl_user_lines.is_empty() => Err(
            "users are defined in the configuration and in an aclfile: only one of the two may define them".into(),
        ),
        Some(path) => users_of_file(&users, path, &dialect),
    }
}

/// Returns the users of the file, which replace these.
pub(crate) fn users_of_file(users: &Users, path: &str, dialect: &Dialect) -> Result<Users, String> {
    let text = fs::read(path).map_err(|error| {
        let why = redline_net::error_text(&error);
        format!("Error loading ACLs, opening file '{path}': {why}")
    })?;
    users.from_file(path, &text, dialect)
}

impl Shared {
    /// Changes the users; on an error they stay. When this returns, every command that begins later on any worker
    /// follows the new rules, and nothing that is published later reaches a subscription that they end.
    pub(crate) fn change_users<E>(
        &self,
        change: impl FnOnce(&mut Users, &Settings) -> Result<(), E>,
    ) -> Result<(), E> {
        self.change_settings(|settings| {
            let mut users = settings.acl.clone();
            change(Arc::make_mut(&mut users), settings)?;
            settings.acl = users;
            Ok(())
        })?;
        // A worker takes new settings over when it wakes, before it reads other messages.
        for worker in self.workers() {
            worker.mailbox.send(Message::Run(Box::new(|_| {})));
        }
        Ok(())
    }
}
