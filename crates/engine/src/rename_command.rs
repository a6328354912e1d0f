//! The names of commands on this server: those of the command table, but for `rename-command`.
//!
//! Fixed at the start. Users' rules, statistics and descriptions keep the names of the table. Must not know: handlers.

use std::collections::HashMap;

use redline_spec::{self as spec, CommandId, Unresolved};

/// See the head of the module.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Names in lower case that differ from the command table; `None`: no command.
    renamed: HashMap<Vec<u8>, Option<CommandId>>,
}

impl Names {
    /// Returns the command of that name, as [`spec::lookup`].
    #[inline]
    pub fn lookup(&self, name: &[u8]) -> Option<CommandId> {
        if self.renamed.is_empty() {
            return spec::lookup(name);
        }
        match self.renamed.get(&name.to_ascii_lowercase()) {
            Some(renamed) => *renamed,
            None => spec::lookup(name),
        }
    }

    /// Returns the command or subcommand of a call, as [`spec::resolve`].
    #[inline]
    pub fn resolve(&self, first: &[u8], second: Option<&[u8]>) -> Result<CommandId, Unresolved> {
        if self.renamed.is_empty() {
            return spec::resolve(first, second);
        }
        let id = self.lookup(first).ok_or(Unresolved::Command)?;
        match second {
            Some(second) if spec::gate(id).has_subcommands => {
                spec::lookup_subcommand(id, second).ok_or(Unresolved::Subcommand(id))
            }
            _ => Ok(id),
        }
    }

    /// Removes the name `old` of its command and gives the command the name `new`, or none.
    pub fn rename(&mut self, old: &[u8], new: &[u8]) -> Result<(), &'static str> {
        let id = self
            .lookup(old)
            .ok_or("No such command in rename-command")?;
        self.renamed.insert(old.to_ascii_lowercase(), None);
        if new.is_empty() {
            return Ok(());
        }
        if self.lookup(new).is_some() {
            return Err("Target command name already exists");
        }
        self.renamed.insert(new.to_ascii_lowercase(), Some(id));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_command_has_its_new_name_only() {
        let mut names = Names::default();
        assert_eq!(names.lookup(b"GET"), Some(CommandId::Get));
        names.rename(b"get", b"GetX").unwrap();
        names.rename(b"SET", b"get").unwrap();
        names.rename(b"flushall", b"").unwrap();
        assert_eq!(names.lookup(b"getx"), Some(CommandId::Get));
        assert_eq!(names.lookup(b"GET"), Some(CommandId::Set));
        assert_eq!(names.lookup(b"set"), None);
        assert_eq!(names.lookup(b"flushall"), None);
        assert_eq!(names.lookup(b"del"), Some(CommandId::Del));
        assert!(names.rename(b"flushall", b"x").is_err());
        assert!(names.rename(b"del", b"get").is_err());
    }

    #[test]
    fn subcommands_follow_their_container() {
        let mut names = Names::default();
        names.rename(b"config", b"cfg").unwrap();
        assert_eq!(
            names.resolve(b"CFG", Some(b"get")),
            Ok(CommandId::ConfigGet)
        );
        assert_eq!(
            names.resolve(b"config", Some(b"get")),
            Err(Unresolved::Command)
        );
        assert_eq!(
            names.resolve(b"cfg", Some(b"x")),
            Err(Unresolved::Subcommand(CommandId::Config))
        );
    }
}
