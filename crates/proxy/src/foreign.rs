//! Calls of commands that the table does not have, or that clients call by another name. Must not know connections.

use redline_acl::{KeyUse, NO_AUTH};
use redline_proxy_config::Mode;
use redline_resp::{Args, Decoded, RequestDecoder, encode_request};
use redline_spec::{self as spec, CommandId, refusal};

use crate::command_names::{Called, Foreign};
use crate::errors;
use crate::report::Report;
use crate::request::forwarded;
use crate::route::NO_NODE;
use crate::seeing::OUT_OF_MEMORY;
use crate::serve::Flow;
use crate::slab::Ref;
use crate::worker::Worker;

/// From one look for what the servers have learned meanwhile to the next: milliseconds.
const LOOK_MS: u64 = 8;

impl Worker {
    /// A call whose first word the table does not have; none: nobody else has it, either.
    pub(crate) fn foreign(
        &mut self,
        me: Ref,
        called: Called,
        raw: &[u8],
        args: Args<'_>,
    ) -> Option<Flow> {
        let name = args[0].to_ascii_lowercase();
        let shared = std::sync::Arc::clone(&self.shared);
        if called == Called::ByOwnName
            && let Some(own) = shared.names.renamed.get(&name)
        {
            return self.by_another_name(me, own, args);
        }
        if let Some(foreign) = shared.names.custom().get(&name) {
            return Some(self.foreign_call(me, foreign, &name, raw, args));
        }
        let home = self.home_of(me);
        let learned = self.routes.pools[usize::from(home)].learned.clone();
        if let Some(learned) = &learned {
            if let Some(foreign) = learned.get(&name) {
                return Some(self.foreign_call(me, foreign, &name, raw, args));
            }
            if let Some(sub) = args.get(1) {
                let full = [&name[..], b"|", &sub.to_ascii_lowercase()[..]].concat();
                if let Some(foreign) = learned.get(&full) {
                    return Some(self.foreign_call(me, foreign, &full, raw, args));
                }
            }
        }
        if spec::unbuilt(&name).is_some() || self.is_nobody(me) || shared.reports.is_none() {
            return None;
        }
        // One that is known by now will be found the next time; what is known of nothing is waited for.
        self.tell(Report::Foreign { pool: home });
        if learned.is_none() && self.may_put_off {
            self.delay(me, LOOK_MS);
            return Some(Flow::Again);
        }
        None
    }

    fn by_another_name(&mut self, me: Ref, own: &str, args: Args<'_>) -> Option<Flow> {
        let mut words: Vec<&[u8]> = args.iter().collect();
        words[0] = own.as_bytes();
        let mut bytes = Vec::new();
        encode_request(words, &mut bytes);
        let mut spans = Vec::new();
        let decoded = RequestDecoder::new().decode(&mut bytes, &forwarded(), &mut spans);
        if !matches!(decoded, Ok(Decoded::Request { .. })) {
            return None;
        }
        let args = Args::new(&bytes, &spans);
        let names = &self.shared.names;
        let command = spec::resolve(&args[0], args.get(1)).map(|id| names.by_another_name(id));
        Some(self.check(me, command, Called::ByNewName, &bytes, &spans))
    }

    fn foreign_call(
        &mut self,
        me: Ref,
        foreign: &Foreign,
        full_name: &[u8],
        raw: &[u8],
        args: Args<'_>,
    ) -> Flow {
        let name = String::from_utf8_lossy(full_name).into_owned();
        if self.is_nobody(me) {
            return self.abort(me, NO_AUTH);
        }
        if self
            .clients
            .find(me)
            .is_some_and(|client| client.restricted)
        {
            return self.refuse(me, &refusal::subscribed(&name));
        }
        if !foreign.allows(args.len()) {
            return self.abort(me, &refusal::wrong_arity(&name));
        }
        if let Some(line) = self.foreign_refusal(me, foreign, &name, args) {
            return self.abort(me, &line);
        }
        if let Some(client) = self.clients.find(me) {
            client.last = None;
        }
        let is_shown = self.seeing.looks_at_all;
        if is_shown && !self.has_memory() {
            return self.abort(me, OUT_OF_MEMORY);
        }
        let flow = self.make_foreign(me, foreign, &name, raw, args);
        // What has to wait comes again, and is shown then.
        if is_shown && flow != Flow::Again {
            self.show(me, None, args, None);
        }
        flow
    }

    /// A call that nothing speaks against.
    fn make_foreign(
        &mut self,
        me: Ref,
        foreign: &Foreign,
        name: &str,
        raw: &[u8],
        args: Args<'_>,
    ) -> Flow {
        let home = self.home_of(me);
        let mut words: Vec<&[u8]> = args.iter().collect();
        let (mut group, mut is_changed) = (None, false);
        for at in foreign.keys(args.len()) {
            let key = &args[at];
            let found = self.routes.group_of(home, key);
            if group.is_some_and(|group| group != found) {
                return self.abort(me, errors::CROSS_SLOT);
            }
            group = Some(found);
            words[at] = self.routes.prefixes.find(home, key).1;
            is_changed |= words[at].len() != key.len();
        }
        let mut changed = Vec::new();
        if is_changed {
            encode_request(words, &mut changed);
        }
        let raw = if is_changed { &changed } else { raw };
        let reads = foreign.mode == Mode::Read;
        let Some(group) = group else {
            if foreign.has_more_keys && !self.has_one_shard(me) {
                return self.abort(me, &errors::keys_untold(name));
            }
            if !reads && let Some(client) = self.clients.find(me) {
                client.wrote = client.next;
            }
            if self.is_in_multi(me) {
                return self.queue_anywhere(me, raw);
            }
            if self.is_in_transaction(me) && self.must_wait(me) {
                return Flow::Again;
            }
            let flow = self.forward_anywhere(me, raw);
            return self.behind_watch(me, flow);
        };
        let primary = self.routes.node_of_group(group);
        if primary == NO_NODE {
            return self.abort(me, self.unserved(self.home_of(me)));
        }
        if let Some(flow) = self.foreign_in_transaction(me, primary, raw) {
            return flow;
        }
        if self.is_in_transaction(me) && self.must_wait(me) {
            return Flow::Again;
        }
        let node = match self.routes.pool_of(group).spreads_reads {
            true => self.node_for(me, reads, group),
            false => primary,
        };
        let flow = self.forward_as_is(me, node, raw);
        self.behind_watch(me, flow)
    }

    /// Makes the client wait, if it is in a transaction, so that a call that has gone another way than its WATCH is not
    /// overtaken by the next one.
    fn behind_watch(&mut self, me: Ref, flow: Flow) -> Flow {
        if self.is_in_transaction(me) {
            self.must_wait(me);
        }
        flow
    }

    /// Why a client may not make such a call: as it might not one of the table that does the same to the same keys.
    fn foreign_refusal(
        &mut self,
        me: Ref,
        foreign: &Foreign,
        name: &str,
        args: Args<'_>,
    ) -> Option<String> {
        let client = self.clients.find(me).filter(|client| client.has_limits)?;
        let user = client.user.clone()?;
        let no_command = || {
            let reason = redline_acl::Reason::Command;
            format!("NOPERM {}", user.refusal(reason, name, b"", false))
        };
        let both = KeyUse {
            read: true,
            write: true,
        };
        let (id, words, needed): (_, &[&[u8]], _) = match foreign.mode {
            Mode::Read => (CommandId::Get, &[b"get", b""], KeyUse::READ),
            Mode::Write => (CommandId::Append, &[b"append", b"", b""], both),
            Mode::Admin => (CommandId::ConfigSet, &[b"config", b"set", b"", b""], both),
        };
        let keys: Vec<&[u8]> = foreign.keys(args.len()).map(|at| &args[at]).collect();
        if keys.is_empty() || foreign.has_more_keys || foreign.mode == Mode::Admin {
            // Nobody sees which keys it uses.
            let may = user.check_every_key(id, words.len(), |at| words[at], needed);
            return (!may).then(no_command);
        }
        for key in keys {
            for id in [id, CommandId::Get] {
                let word = |at: usize| if at == 1 { key } else { words[at] };
                let argc = if id == CommandId::Get { 2 } else { words.len() };
                if let Err(denied) = user.check(id, argc, word) {
                    let text = user.refusal(denied.reason, name, key, false);
                    return Some(format!("NOPERM {text}"));
                }
            }
        }
        None
    }
}
