//! Renamed commands, and commands that the table does not have: from the configuration, and from the servers' modules.
//! Must not know connections.
//!
//! A command that is forbidden or renamed is unknown under its own name, wherever it is defined: in the table, the file,
//! the servers' modules, the proxy alone. A call of a renamed one goes to its server under the server's name; that name
//! is not renamed again.

use std::collections::{HashMap, HashSet};

use redline_proxy_config::{Commands, Mode, OF_EVERYTHING, ids_of};
use redline_resp::{Args, Value};
use redline_spec::{self as spec, CommandId, Unresolved, refusal};

use crate::class::{Class, Command};

/// A command that the table does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The command's access to data.
    pub mode: Mode,
    /// Smallest number of arguments, the name included.
    pub least: usize,
    /// Largest number of arguments, the name included.
    pub most: usize,
    /// Position of the first key; 0: none.
    pub first: usize,
    /// Position of the last key, from the end if negative.
    pub last: i64,
    /// Distance between keys.
    pub step: usize,
    /// It may have keys at other positions, too.
    pub has_more_keys: bool,
}

impl Foreign {
    /// Returns true if a call of this many words fits the arity.
    pub fn allows(&self, words: usize) -> bool {
        (self.least..=self.most).contains(&words)
    }

    /// Returns the positions of the keys in a call of this many words.
    pub fn keys(&self, words: usize) -> impl Iterator<Item = usize> + use<> {
        let last = match usize::try_from(self.last) {
            Ok(last) => last.min(words - 1),
            Err(_) => words.saturating_sub(self.last.unsigned_abs() as usize),
        };
        let (first, step) = (self.first, self.step.max(1));
        let has_keys = first > 0 && first < words;
        (first..=last).step_by(step).filter(move |_| has_keys)
    }
}

/// Commands by their names in lower case; a subcommand by both names, with `|` between them.
pub type ForeignByName = HashMap<Vec<u8>, Foreign>;

/// Returns the commands in a reply to COMMAND that the table does not have, without administrative ones. Of a container
/// its subcommands.
pub fn learned(reply: &Value) -> ForeignByName {
    let Value::Array(entries) = reply else {
        return ForeignByName::new();
    };
    let parts = entries.iter().flat_map(|entry| match subcommands(entry) {
        [] => std::slice::from_ref(entry),
        parts => parts,
    });
    parts.filter_map(entry).collect()
}

/// Returns the subcommands of a container; nothing for other commands.
fn subcommands(entry: &Value) -> &[Value] {
    const PLACE: usize = 9;
    match entry {
        Value::Array(parts) => match parts.get(PLACE) {
            Some(Value::Array(subcommands) | Value::Set(subcommands)) => subcommands,
            _ => &[],
        },
        _ => &[],
    }
}

fn entry(value: &Value) -> Option<(Vec<u8>, Foreign)> {
    let Value::Array(parts) = value else {
        return None;
    };
    let number = |at: usize| match parts.get(at) {
        Some(Value::Integer(number)) => Some(*number),
        _ => None,
    };
    let name = parts.first()?.as_bytes()?.to_ascii_lowercase();
    let container = name.split(|&byte| byte == b'|').next()?;
    let is_known = spec::lookup(container).is_some() || spec::unbuilt(container).is_some();
    let (Some(Value::Array(flags)) | Some(Value::Set(flags))) = parts.get(2) else {
        return None;
    };
    let has = |flag: &[u8]| flags.iter().any(|word| word.as_bytes() == Some(flag));
    if is_known || has(b"admin") || has(b"blocking") || has(b"pubsub") {
        return None;
    }
    let arity = number(1)?;
    let first = usize::try_from(number(3)?).ok()?;
    let foreign = Foreign {
        mode: match has(b"readonly") {
            true => Mode::Read,
            false => Mode::Write,
        },
        least: arity.unsigned_abs().max(1) as usize,
        most: match usize::try_from(arity) {
            Ok(most) => most.max(1),
            Err(_) => usize::MAX,
        },
        first,
        last: number(4)?,
        step: usize::try_from(number(5)?).unwrap_or(1),
        has_more_keys: has(b"movablekeys"),
    };
    Some((name, foreign))
}

/// The configuration's names for commands: renamed, forbidden and added ones.
#[derive(Debug, Default)]
pub struct Names {
    /// The servers' name of each new name.
    pub renamed: HashMap<Vec<u8>, String>,
    custom: ForeignByName,
    /// Commands without any name; of a container all subcommands.
    forbidden: Vec<CommandId>,
    /// Commands that are unknown under their own names.
    moved: Vec<CommandId>,
    refused: Vec<CommandId>,
    /// The same for commands that the table does not have, by their names as in [`ForeignByName`].
    forbidden_others: HashSet<Vec<u8>>,
    moved_others: HashSet<Vec<u8>>,
}

/// The kind of name in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// The command's own name.
    ByOwnName,
    /// The name that the configuration gave.
    ByNewName,
}

impl Names {
    /// Commands that the configuration adds, by their names in lower case.
    pub fn custom(&self) -> &ForeignByName {
        &self.custom
    }

    /// Returns the names of a configuration.
    pub fn of(config: &Commands) -> Names {
        let refused = match &config.permitted {
            None => Vec::new(),
            Some(permitted) => {
                let is_permitted =
                    |name: &&str| permitted.iter().any(|it| it.eq_ignore_ascii_case(name));
                let others = OF_EVERYTHING.iter().filter(|name| !is_permitted(name));
                others.flat_map(|name| ids_of(name)).collect()
            }
        };
        let custom = config.custom.iter().map(|command| {
            let foreign = Foreign {
                mode: command.mode,
                least: command.min_args as usize,
                most: command.max_args as usize,
                first: command.key as usize,
                last: command.key.into(),
                step: 1,
                has_more_keys: false,
            };
            (command.name.to_ascii_lowercase().into_bytes(), foreign)
        });
        let lower = |name: &String| name.to_ascii_lowercase().replace(' ', "|").into_bytes();
        let is_other = |name: &&String| ids_of(name).is_empty();
        let renamed = config.renamed.iter();
        Names {
            renamed: renamed
                .clone()
                .map(|(name, new)| (new.to_ascii_lowercase().into_bytes(), name.clone()))
                .collect(),
            custom: custom.collect(),
            forbidden_others: config
                .forbidden
                .iter()
                .filter(is_other)
                .map(lower)
                .collect(),
            moved_others: config.renamed.keys().filter(is_other).map(lower).collect(),
            forbidden: config
                .forbidden
                .iter()
                .flat_map(|name| ids_of(name))
                .collect(),
            moved: renamed.flat_map(|(name, _)| ids_of(name)).collect(),
            refused,
        }
    }

    /// Returns true if a command is forbidden, under any name.
    pub fn is_forbidden(&self, id: CommandId) -> bool {
        self.forbidden.contains(&id)
    }

    /// Returns the route of a command that is called by its own name.
    pub fn command(&self, id: CommandId) -> Command {
        let mut command = self.by_another_name(id);
        if self.moved.contains(&id) {
            command.class = Class::Forbidden;
        }
        command
    }

    /// Returns true if clients see fewer commands than servers have, or see some of them renamed.
    pub fn hide_something(&self) -> bool {
        !self.renamed.is_empty() || !self.forbidden.is_empty() || !self.forbidden_others.is_empty()
    }

    /// Returns the clients' name of a server's command, a subcommand with `|`; none: it is forbidden.
    pub fn new_name(&self, own: &[u8]) -> Option<Vec<u8>> {
        let own = own.to_ascii_lowercase();
        let mut parts = own.splitn(2, |byte| *byte == b'|');
        let (container, sub) = (parts.next().unwrap_or_default(), parts.next());
        let id = spec::lookup(container);
        let part = id.and_then(|id| spec::lookup_subcommand(id, sub?));
        let mut ids = id.into_iter().chain(part);
        let is_forbidden = ids.any(|id| self.forbidden.contains(&id))
            || self.forbidden_others.contains(&own)
            || self.forbidden_others.contains(container);
        if is_forbidden {
            return None;
        }
        let mut renamed = self.renamed.iter();
        let new = renamed.find(|(_, name)| name.as_bytes().eq_ignore_ascii_case(container));
        Some(match new {
            Some((new, _)) => [new, &own[container.len()..]].concat(),
            None => own,
        })
    }

    /// Returns the servers' name of a clients' command; none: it does not exist for them.
    pub fn own_name(&self, new: &[u8]) -> Option<Vec<u8>> {
        let new = new.to_ascii_lowercase();
        let container = new.split(|byte| *byte == b'|').next().unwrap_or_default();
        let own = match self.renamed.get(container) {
            Some(own) => [own.as_bytes(), &new[container.len()..]].concat(),
            None => new.clone(),
        };
        (self.new_name(&own)? == new).then_some(own)
    }

    /// Returns the command of the table that has been given this name.
    pub fn id_behind(&self, args: Args<'_>) -> Option<CommandId> {
        if self.renamed.is_empty() {
            return None;
        }
        let own = self.renamed.get(&args[0].to_ascii_lowercase())?;
        spec::resolve(own.as_bytes(), args.get(1)).ok()
    }

    /// Returns the error for a call that the table does not have, if the command is hidden from clients; none: it is not.
    pub fn hidden(&self, reason: Unresolved, called: Called, args: Args<'_>) -> Option<Vec<u8>> {
        let by_own_name = called == Called::ByOwnName;
        if let Unresolved::Subcommand(id) = reason
            && (self.forbidden.contains(&id) || by_own_name && self.moved.contains(&id))
        {
            return Some(refusal::unknown_command(args.iter()));
        }
        if self.forbidden_others.is_empty() && self.moved_others.is_empty() {
            return None;
        }
        let mut name = args[0].to_ascii_lowercase();
        if self.forbidden_others.contains(&name) || by_own_name && self.moved_others.contains(&name)
        {
            return Some(refusal::unknown_command(args.iter()));
        }
        let sub = args.get(1)?;
        name.push(b'|');
        name.extend_from_slice(&sub.to_ascii_lowercase());
        let is_forbidden = self.forbidden_others.contains(&name);
        is_forbidden.then(|| {
            // Names of forbidden commands are text, as the configuration is.
            let container = String::from_utf8_lossy(&args[0]).to_ascii_uppercase();
            refusal::unknown_subcommand(&container, sub)
        })
    }

    /// Returns the route of a command that is called by its configured name.
    pub fn by_another_name(&self, id: CommandId) -> Command {
        let mut command = Command::of(id);
        if self.refused.contains(&id) {
            command.class = Class::Refused;
        }
        if self.is_forbidden(id) {
            command.class = Class::Forbidden;
        }
        command
    }
}

/// Returns why a call of a forbidden command does not resolve.
pub fn forbidden(id: CommandId, names: &Names) -> Unresolved {
    let full = spec::row(id).full_name;
    let container = full
        .split_once('|')
        .and_then(|(name, _)| spec::lookup(name.as_bytes()));
    let is_whole = |container: CommandId| {
        names.forbidden.contains(&container) || names.moved.contains(&container)
    };
    match container {
        Some(container) if !is_whole(container) => Unresolved::Subcommand(container),
        _ => Unresolved::Command,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use redline_proxy_config::CustomCommand;
    use redline_resp::{Decoded, RequestDecoder, encode_request};

    use super::*;
    use crate::request::forwarded;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn what_the_table_lacks_is_learned() {
        type Keys = (i64, i64, i64);
        let parts = |name: &str, arity, flags: &[&str], (first, last, step): Keys| {
            let flags = flags.iter().map(|flag| Value::Simple((*flag).into()));
            let numbers = [first, last, step].map(Value::Integer);
            let mut row = vec![
                bulk(name),
                Value::Integer(arity),
                Value::Array(flags.collect()),
            ];
            row.extend(numbers);
            row
        };
        let row = |name, arity, flags, keys| Value::Array(parts(name, arity, flags, keys));
        let container = |name, subcommands: Vec<Value>| {
            let mut row = parts(name, -2, &[], (0, 0, 0));
            row.extend([6, 7, 8].map(|_| Value::Array(Vec::new())));
            row.push(Value::Array(subcommands));
            Value::Array(row)
        };
        let found = learned(&Value::Array(vec![
            row("get", 2, &["readonly"], (1, 1, 1)),
            row("cluster", -2, &[], (0, 0, 0)),
            row("FT.GET", -2, &["readonly", "module"], (1, 1, 1)),
            row("ft.mset", -4, &["write"], (1, -1, 3)),
            row("own.admin", 1, &["admin"], (0, 0, 0)),
            container(
                "graph",
                vec![
                    row("graph|put", 4, &["write"], (2, 2, 1)),
                    row("graph|stop", 2, &["admin"], (0, 0, 0)),
                ],
            ),
            container("config", vec![row("config|own", 2, &[], (0, 0, 0))]),
            Value::NullArray,
        ]));
        assert_eq!(found.len(), 3, "{found:?}");
        let put = &found[&b"graph|put"[..]];
        assert!(put.mode == Mode::Write && put.allows(4) && !put.allows(3));
        assert_eq!(put.keys(4).collect::<Vec<_>>(), [2]);
        let get = &found[&b"ft.get"[..]];
        assert!(get.mode == Mode::Read && get.allows(9) && !get.allows(1));
        assert_eq!(get.keys(5).collect::<Vec<_>>(), [1]);
        let set = &found[&b"ft.mset"[..]];
        assert_eq!(set.keys(7).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(set.keys(1).count(), 0);
    }

    #[test]
    fn names_are_forbidden_moved_and_added() {
        let names = Names::of(&Commands {
            forbidden: vec![
                "debug".into(),
                "config|set".into(),
                "X.Y".into(),
                "doc find".into(),
            ],
            permitted: Some(vec!["keys".into()]),
            renamed: BTreeMap::from([
                ("get".into(), "Fetch".into()),
                ("config".into(), "cfg".into()),
                ("Doc.Get".into(), "look".into()),
            ]),
            custom: vec![
                CustomCommand {
                    name: "x.y".into(),
                    mode: Mode::Write,
                    min_args: 1,
                    max_args: 1,
                    key: 0,
                },
                CustomCommand {
                    name: "X.Z".into(),
                    mode: Mode::Write,
                    min_args: 3,
                    max_args: 9,
                    key: 2,
                },
            ],
        });
        let class = |id| names.command(id).class;
        for id in [
            CommandId::Debug,
            CommandId::Get,
            CommandId::Config,
            CommandId::ConfigGet,
            CommandId::ConfigSet,
        ] {
            assert_eq!(class(id), Class::Forbidden, "{id:?}");
        }
        assert_eq!(class(CommandId::Flushall), Class::Refused);
        assert_ne!(class(CommandId::Keys), Class::Refused);
        assert_eq!(names.by_another_name(CommandId::Get).class, Class::Key);
        assert_eq!(
            names.by_another_name(CommandId::ConfigSet).class,
            Class::Forbidden
        );
        assert_eq!(names.renamed[&b"fetch"[..]], "get");
        let hidden = |words: &[&str], called| {
            let (mut bytes, mut spans) = (Vec::new(), Vec::new());
            encode_request(words.iter().map(|word| word.as_bytes()), &mut bytes);
            let decoded = RequestDecoder::new().decode(&mut bytes, &forwarded(), &mut spans);
            assert!(matches!(decoded, Ok(Decoded::Request { .. })));
            let args = Args::new(&bytes, &spans);
            match spec::resolve(&args[0], args.get(1)) {
                Err(reason) => names.hidden(reason, called, args),
                Ok(id) => panic!("{id:?}"),
            }
        };
        for (words, called, is_hidden) in [
            (&["x.y"][..], Called::ByOwnName, true),
            (&["x.y", "k"], Called::ByNewName, true),
            (&["x.z"], Called::ByOwnName, false),
            (&["DOC", "FIND"], Called::ByOwnName, true),
            (&["doc", "put"], Called::ByOwnName, false),
            (&["DOC.get"], Called::ByOwnName, true),
            (&["doc.get"], Called::ByNewName, false),
            (&["look"], Called::ByOwnName, false),
            (&["config", "reload"], Called::ByOwnName, true),
            (&["config", "reload"], Called::ByNewName, false),
        ] {
            let hidden = hidden(words, called);
            assert_eq!(
                hidden.is_some(),
                is_hidden,
                "{words:?} {called:?}: {hidden:?}"
            );
        }
        assert_eq!(names.custom[&b"x.z"[..]].keys(5).collect::<Vec<_>>(), [2]);
        assert_eq!(forbidden(CommandId::ConfigSet, &names), Unresolved::Command);
        assert_eq!(
            forbidden(
                CommandId::ConfigSet,
                &Names::of(&Commands {
                    forbidden: vec!["config|set".into()],
                    ..Commands::default()
                })
            ),
            Unresolved::Subcommand(CommandId::Config)
        );
    }
}
