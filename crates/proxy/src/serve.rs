//! From a client's bytes to the servers: decoding, and the way of each request. The hot path.
//!
//! Requests that go to one server as they are, one behind the other, are copied in one piece. Everything that is not the
//! call of one key on a shared connection takes [`Worker::dispatch`].
//!
//! Must not know sockets, or what becomes of replies.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_resp::{
    Args, Decoded, Name, Proto, Reply, RequestDecoder, RequestKind, Span, encode_request,
};
use redline_spec::{self as spec, CommandId, Unresolved};

use crate::class::NO_COMMAND;
use crate::class::{Class, Command};
use crate::client::{Pause, ReplyMode};
use crate::command_names::{self, Called};
use crate::errors;
use crate::private::Session;
use crate::route::{NO_NODE, NodeId, Placement, Pool, Shard};
use crate::seeing::{MIXED, OUT_OF_MEMORY, log};
use crate::slab::Ref;
use crate::upstream::{Kind, Waiting};
use crate::worker::Worker;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It has been dealt with.
    Done,
    /// It has to wait; the client's pause was set.
    Again,
    /// It was the client's last.
    Close,
}

/// Requests of one client in a row that go to one server.
struct Run {
    /// The command of the last ones, and behind how many they come.
    command: u16,
    same_from: u16,
    upstream: u32,
    first: u32,
    count: u16,
    start: usize,
    end: usize,
}

/// Requests in a run. In a cluster any of them may have to be found again, to be sent elsewhere.
const RUN_MAX: u16 = 1024;
const RUN_OF_CLUSTER_MAX: u16 = 64;

/// A request of which so much is missing may go through in pieces.
const LARGE_NEED_MIN: usize = 8 * 1024;

impl Worker {
    /// Takes the requests that a client has sent, as far as it may go on, and returns how many bytes they were.
    ///
    /// One long loop, since each step of it may be the last: of the request, of the run before it, or of what the client sent.
    pub(crate) fn serve(&mut self, at: u32, query: &mut [u8]) -> usize {
        let Some(me) = self.clients.place(at) else {
            return query.len();
        };
        let pipeline_max = self.shared.settings.pipeline_max;
        let output_high = self.shared.settings.client_output_bytes_high;
        let home = self.home_of(me);
        let run_max = match self.routes.pools[usize::from(home)].placement {
            Placement::One | Placement::Hashed(_) if self.routes.prefixes.is_empty() => RUN_MAX,
            _ => RUN_OF_CLUSTER_MAX,
        };
        let looks_at_all = self.seeing.looks_at_all;
        let mut done = 0;
        if self
            .clients
            .find(me)
            .is_some_and(|client| matches!(client.session, Session::Passing(_)))
        {
            done = self.pass_large(me, query);
        }
        self.reads_turn = self.reads_turn.wrapping_add(1);
        let mut run: Option<Run> = None;
        while done < query.len() {
            let Some(client) = self.clients.find(me) else {
                return query.len();
            };
            let passes = matches!(client.session, Session::Passing(_));
            if client.pause != Pause::No || client.closing || passes {
                break;
            }
            if client.pending() >= pipeline_max || client.owed() > output_high {
                client.pause = Pause::Output;
                break;
            }
            if query[done] != b'*' && client.pending() > 0 && client.decoder.is_idle() {
                // Decoding changes an inline request, so it cannot be put off once that was done.
                client.pause = Pause::Order;
                break;
            }
            self.spans.clear();
            self.limits.unauthenticated = client.has_limits && client.user.is_none();
            let rest = &mut query[done..];
            let decoded =
                client
                    .decoder
                    .decode_with(&mut self.heads, rest, &self.limits, &mut self.spans);
            let (consumed, args, kind) = match decoded {
                Ok(Decoded::Request {
                    consumed,
                    args,
                    kind,
                }) => (consumed, args, kind),
                Ok(Decoded::Empty { consumed }) => {
                    self.send_run(me, &mut run, query);
                    done += consumed;
                    continue;
                }
                Ok(Decoded::Incomplete { need }) if need >= LARGE_NEED_MIN => {
                    self.send_run(me, &mut run, query);
                    if self.begin_large(me, &query[done..]) {
                        self.counters.requests += 1;
                        if let Some(client) = self.clients.find(me) {
                            client.decoder = RequestDecoder::new();
                        }
                        done = query.len();
                    }
                    break;
                }
                Ok(Decoded::Incomplete { .. }) | Ok(Decoded::Big { .. }) => break,
                Err(error) => {
                    self.send_run(me, &mut run, query);
                    let line = error.error_line();
                    self.answer(me, |reply| reply.error_bytes(&line));
                    if let Some(client) = self.clients.find(me) {
                        client.closing = true;
                    }
                    return query.len();
                }
            };
            self.counters.requests += 1;
            let raw = &query[done..done + consumed];
            let command = self.command_of(raw, args);
            if self.cache.is_on
                && let Ok(command) = command
                && command.id == CommandId::Get
                && kind == RequestKind::Multibulk
                && !looks_at_all
                && command.allows(args)
                && self.hits(me, command, &mut run, query, done..done + consumed)
            {
                done += consumed;
                continue;
            }
            let raw = &query[done..done + consumed];
            if let Ok(command) = command
                && command.class == Class::Key
                && kind == RequestKind::Multibulk
                && !looks_at_all
                && command.allows(args)
                && let Some(target) = self.shared_target(me, command, raw)
            {
                let piece = done..done + consumed;
                self.add_to_run(me, &mut run, run_max, (command.id, target), query, piece);
                done += consumed;
                continue;
            }
            self.send_run(me, &mut run, query);
            let raw = &query[done..done + consumed];
            match self.take_any(me, command, raw, kind) {
                Flow::Done => done += consumed,
                Flow::Again => {
                    // It comes again, and counts then.
                    self.counters.requests -= 1;
                    break;
                }
                Flow::Close => {
                    if let Some(client) = self.clients.find(me) {
                        client.closing = true;
                        self.mark_client(at);
                    }
                    return query.len();
                }
            }
        }
        self.send_run(me, &mut run, query);
        done
    }

    /// The command that a request names.
    #[inline]
    fn command_of(&mut self, raw: &[u8], args: usize) -> Result<Command, Unresolved> {
        let span = |at: usize| {
            let Span { start, len } = self.spans[at];
            &raw[start as usize..(start + len) as usize]
        };
        let command = match self.heads.name() {
            Name::Known(number) => self.named[usize::from(number)],
            Name::New(number) => {
                let Some(id) = spec::lookup(span(0)) else {
                    // The number stays with the bytes: whoever sends them again must be told the same.
                    self.heads = redline_resp::Heads::new();
                    return Err(Unresolved::Command);
                };
                let command = self.commands[id as usize];
                self.named[usize::from(number)] = command;
                command
            }
            Name::Unnumbered => {
                let id = spec::lookup(span(0)).ok_or(Unresolved::Command)?;
                self.commands[id as usize]
            }
        };
        if !command.has_subcommands || args < 2 {
            return Ok(command);
        }
        match spec::lookup_subcommand(command.id, span(1)) {
            Some(id) => Ok(self.commands[id as usize]),
            None => Err(Unresolved::Subcommand(command.id)),
        }
    }

    /// The shared connection for a call of one key, if that is where it goes.
    #[inline]
    fn shared_target(&mut self, me: Ref, command: Command, raw: &[u8]) -> Option<u32> {
        let client = self.clients.find(me)?;
        if !matches!(client.session, Session::Shared)
            || client.reply_mode != ReplyMode::On
            || client.is_watched
            || client.restricted
        {
            return None;
        }
        let (home, db, proto) = (client.pool, client.db, client.proto);
        let Span { start, len } = self.spans[usize::from(command.key)];
        let key = &raw[start as usize..(start + len) as usize];
        let group = self.routes.group_as_is(home, key)?;
        let node = match self.routes.pool_of(group).spreads_reads {
            false => self.routes.node_of_group(group),
            true => self.node_for(me, command.reads, group),
        };
        if node == NO_NODE {
            return None;
        }
        match self.links.shared(node, db, proto) {
            Some(upstream) => Some(upstream),
            None => self.link(node, db, proto).ok(),
        }
    }

    /// Answers GET from the cache, if it can; returns true if it did. A call before it that may have to do with it is under
    /// way then.
    fn hits(
        &mut self,
        me: Ref,
        command: Command,
        run: &mut Option<Run>,
        query: &[u8],
        raw: Range<usize>,
    ) -> bool {
        let raw = &query[raw];
        let Span { start, len } = self.spans[1];
        let key = &raw[start as usize..(start + len) as usize];
        let client = self
            .clients
            .find(me)
            .filter(|it| !it.is_watched && !it.restricted);
        let Some(home) = client.map(|client| client.pool) else {
            return false;
        };
        if command.class != Class::Key || !self.is_cached(home, key) {
            return false;
        }
        let only_gets = |run: &Run| run.command == CommandId::Get as u16 && run.same_from == 0;
        if run.as_ref().is_some_and(|run| !only_gets(run)) {
            self.send_run(me, run, query);
        }
        self.answer_from_cache(me, key)
    }

    /// Makes a call of one key, which goes to `target` as it is, the last of the run, or the first of the next one.
    #[inline]
    fn add_to_run(
        &mut self,
        me: Ref,
        run: &mut Option<Run>,
        run_max: u16,
        (id, target): (CommandId, u32),
        query: &[u8],
        piece: Range<usize>,
    ) {
        let Some(client) = self.clients.find(me) else {
            return;
        };
        client.last = Some(id);
        if let Some(run) = run
            && run.upstream == target
            && run.end == piece.start
            && run.count < run_max
        {
            client.number();
            if run.command != id as u16 {
                let before = run.count - run.same_from;
                self.seeing.mix.push((run.command, before));
                (run.command, run.same_from) = (id as u16, run.count);
            }
            run.count += 1;
            run.end = piece.end;
            return;
        }
        self.send_run(me, run, query);
        let Some(client) = self.clients.find(me) else {
            return;
        };
        *run = Some(Run {
            command: id as u16,
            same_from: 0,
            upstream: target,
            first: client.number(),
            count: 1,
            start: piece.start,
            end: piece.end,
        });
        if self.is_full(target, me)
            && let Some(client) = self.clients.find(me)
        {
            client.pause = Pause::Upstream;
        }
    }

    fn send_run(&mut self, me: Ref, run: &mut Option<Run>, query: &[u8]) {
        let Some(run) = run.take() else { return };
        let bytes = &query[run.start..run.end];
        let waiting = Waiting {
            count: run.count,
            ..Waiting::one(me, run.first, Kind::Client, bytes, self.now_ms)
        };
        let mix = &mut self.seeing.mix;
        let is_mixed = !mix.is_empty();
        if is_mixed {
            mix.push((run.command, run.count - run.same_from));
        }
        let command = if is_mixed { MIXED } else { run.command };
        let waiting = waiting.of(command, self.seeing.now_us);
        let Some(upstream) = self.upstreams.get(run.upstream) else {
            self.seeing.mix.clear();
            for number in 0..run.count {
                let one = Waiting {
                    seq: run.first.wrapping_add(number.into()),
                    ..waiting
                };
                self.fail(one, "ERR the connection to the server was lost");
            }
            return;
        };
        if is_mixed {
            upstream.mix.extend(self.seeing.mix.drain(..));
        }
        upstream.push(waiting, bytes, &mut self.cache);
        if !upstream.dirty {
            upstream.dirty = true;
            self.dirty_upstreams.push(run.upstream);
        }
    }

    /// Everything that is not a plain call of one key.
    fn take_any(
        &mut self,
        me: Ref,
        command: Result<Command, Unresolved>,
        raw: &[u8],
        kind: RequestKind,
    ) -> Flow {
        let mut spans = std::mem::take(&mut self.spans);
        let flow = match kind {
            RequestKind::Multibulk => self.take(me, command, raw, &spans),
            RequestKind::Inline => {
                let mut usual = Vec::new();
                encode_request(Args::new(raw, &spans).iter(), &mut usual);
                spans.clear();
                let limits = redline_resp::RequestLimits {
                    big_bulk_bytes_min: usize::MAX,
                    ..redline_resp::RequestLimits::default()
                };
                self.may_put_off = false;
                let flow = match RequestDecoder::new().decode(&mut usual, &limits, &mut spans) {
                    Ok(Decoded::Request { .. }) => self.take(me, command, &usual, &spans),
                    _ => Flow::Close,
                };
                self.may_put_off = true;
                flow
            }
        };
        spans.clear();
        self.spans = spans;
        if let Some(client) = self.clients.find(me)
            && flow == Flow::Done
        {
            client.reply_mode = match client.reply_mode {
                ReplyMode::SkipNext => ReplyMode::Skipping,
                ReplyMode::Skipping => ReplyMode::On,
                reply_mode => reply_mode,
            };
        }
        flow
    }

    fn take(
        &mut self,
        me: Ref,
        command: Result<Command, Unresolved>,
        raw: &[u8],
        spans: &[Span],
    ) -> Flow {
        let args = Args::new(raw, spans);
        let id = match &command {
            Ok(command) => Some(command.id),
            Err(_) => self.shared.names.id_behind(args),
        };
        let client = self.clients.find(me);
        let was_admitted = client.is_some_and(|client| std::mem::take(&mut client.is_admitted));
        if !was_admitted && let Some(flow) = self.admit(me, id, args, raw.len()) {
            return flow;
        }
        let flow = self.check(me, command, Called::ByOwnName, raw, spans);
        if flow == Flow::Again
            && let Some(client) = self.clients.find(me)
        {
            client.is_admitted = true;
        }
        flow
    }

    pub(crate) fn check(
        &mut self,
        me: Ref,
        command: Result<Command, Unresolved>,
        called: Called,
        raw: &[u8],
        spans: &[Span],
    ) -> Flow {
        let args = Args::new(raw, spans);
        if let Err(reason) = &command
            && let Some(line) = self.shared.names.hidden(*reason, called, args)
        {
            return self.abort(me, &line);
        }
        let command = match command {
            Ok(command) => command,
            // Not a command of Redis's: there is no row for it.
            Err(Unresolved::Command) if args[0].eq_ignore_ascii_case(b"proxy") => {
                return self.proxy(me, args);
            }
            Err(Unresolved::Subcommand(CommandId::Config))
                if args.len() == 2 && args[1].eq_ignore_ascii_case(b"reload") =>
            {
                return self.config_reload(me, args);
            }
            Err(reason) => {
                let answered = self.cluster_command(me, raw, args);
                let answered = answered.or_else(|| match reason {
                    Unresolved::Command => self.foreign(me, called, raw, args),
                    Unresolved::Subcommand(_) => None,
                });
                return answered.unwrap_or_else(|| match redline_resp::is_of_http(&args[0]) {
                    true => self.leave_to_browser(me),
                    false => self.abort(me, &errors::unresolved(reason, args)),
                });
            }
        };
        if command.class == Class::Forbidden {
            let reason = command_names::forbidden(command.id, &self.shared.names);
            return self.abort(me, &errors::unresolved(reason, args));
        }
        if !spec::gate(command.id).lets_pass(args.len()) {
            return self.reject(me, command.id, &errors::wrong_arity(command.id));
        }
        if let Some(client) = self.clients.find(me) {
            client.last = Some(command.id);
            client.show_last();
        }
        if let Some(line) = self.refusal(me, command.id, args) {
            return self.reject(me, command.id, &line);
        }
        if command.class == Class::Cluster
            && let Some(flow) = self.cluster_command(me, raw, args)
        {
            return flow;
        }
        if matches!(command.id, CommandId::Sort | CommandId::SortRo)
            && let Some(line) = self.sorts_elsewhere(me, args)
        {
            return self.reject(me, command.id, line);
        }
        let is_shown = self.seeing.looks_at_all;
        if is_shown && command.class != Class::Local && !self.has_memory() {
            return self.reject(me, command.id, OUT_OF_MEMORY);
        }
        if self.clients.find(me).is_some_and(|it| it.restricted)
            && command.class != Class::Subscribe
            && !matches!(
                command.id,
                CommandId::Ping | CommandId::Quit | CommandId::Reset
            )
        {
            return self.reject(me, command.id, &errors::subscribed(command.id));
        }
        let flow = self.make(me, command, raw, args);
        // What has to wait comes again, and is shown then.
        if is_shown && flow != Flow::Again {
            self.show(me, Some(command.id), args, None);
        }
        flow
    }

    /// A browser's form is not taken for calls: the connection ends.
    fn leave_to_browser(&mut self, me: Ref) -> Flow {
        /// From one line in the log to the next: whoever attacks may come often.
        const PAUSE_MS: u64 = 60_000;
        static NEXT_MS: AtomicU64 = AtomicU64::new(0);
        if self.now_ms >= NEXT_MS.load(Ordering::Relaxed)
            && let Some(client) = self.clients.find(me)
        {
            NEXT_MS.store(self.now_ms + PAUSE_MS, Ordering::Relaxed);
            log::warning(&format!(
                "client {} sends HTTP, which may be an attack by way of a browser: closed",
                client.card.addr
            ));
        }
        Flow::Close
    }

    /// A call that nothing speaks against.
    fn make(&mut self, me: Ref, command: Command, raw: &[u8], args: Args<'_>) -> Flow {
        if command.class != Class::Transaction
            && let Some(flow) = self.in_transaction(me, command, raw, args)
        {
            return flow;
        }
        self.note_write(me, command.id);
        self.mirror(me, command, raw, args);
        let flow = self.dispatch(me, command, raw, args);
        if command.class != Class::Transaction && self.is_in_transaction(me) {
            // Behind WATCH two connections are used: what comes next must not overtake this on the other one.
            self.must_wait(me);
        }
        flow
    }

    fn dispatch(&mut self, me: Ref, command: Command, raw: &[u8], args: Args<'_>) -> Flow {
        match command.id {
            CommandId::ScriptLoad => self.shared.scripts.learn(&args[2]),
            CommandId::ScriptFlush => self.shared.scripts.forget(),
            // Where there is one server, it learns by itself.
            CommandId::Eval | CommandId::EvalRo if !self.has_one_shard(me) => {
                self.shared.scripts.learn(&args[1]);
            }
            _ => {}
        }
        match command.class {
            Class::Local => {
                let flow = self.local(me, command.id, args);
                if flow != Flow::Again {
                    self.seeing.answered_here(command.id);
                }
                flow
            }
            Class::Cluster => self.reject(me, command.id, errors::CLUSTER_DISABLED),
            Class::Refused | Class::Forbidden => {
                self.reject(me, command.id, &errors::refused(command.id))
            }
            Class::Transaction => self.transaction(me, command.id, raw, args),
            Class::Subscribe => self.subscription(me, command.id, args),
            Class::Any if is_about_commands(command.id) => {
                self.command_table(me, command.id, raw, args)
            }
            Class::Any => match self.any_node(me) {
                Some(node) => self.forward(me, node, raw),
                None => self.refuse(me, self.unserved(self.home_of(me))),
            },
            Class::Key
                if self.cache.is_on
                    && command.id == CommandId::Get
                    && self.answer_from_cache(me, &args[1]) =>
            {
                Flow::Done
            }
            Class::Key | Class::Keys => self.forward_by_keys(me, command.id, raw, args),
            Class::Blocks if !may_block(command.id, args) => {
                self.forward_by_keys(me, command.id, raw, args)
            }
            Class::Blocks => match self.node_of_keys(me, command.id, args) {
                Ok(Some(node)) => self.blocking(me, node, raw, waits_ms(command.id, args)),
                Ok(None) => self.forward_anywhere(me, raw),
                Err(line) => self.reject(me, command.id, line),
            },
            Class::Split(merge) => self.split(me, command.id, merge, raw, args),
            // A shared connection may be the one whose script is to be ended.
            Class::All(merge)
                if matches!(command.id, CommandId::ScriptKill | CommandId::FunctionKill) =>
            {
                self.send_past_all(me, merge, raw)
            }
            Class::All(merge) => self.send_to_all(me, merge, raw),
            Class::Scan => self.scan(me, raw, args),
        }
    }

    fn forward_by_keys(&mut self, me: Ref, id: CommandId, raw: &[u8], args: Args<'_>) -> Flow {
        match self.node_of_keys(me, id, args) {
            Ok(Some(node)) => {
                let node = self.reader(me, id, args, node);
                self.give_script(me, id, node, args);
                self.forward(me, node, raw)
            }
            Ok(None) if id == CommandId::Publish && args.len() > 1 => {
                match self.node_of_channel(self.home_of(me), &args[1]) {
                    Some(node) => self.forward(me, node, raw),
                    None => self.forward_anywhere(me, raw),
                }
            }
            Ok(None) => {
                self.give_script(me, id, self.home(me).shards[0].primary, args);
                self.forward_anywhere(me, raw)
            }
            Err(line) => self.reject(me, id, line),
        }
    }

    /// A call that names no key, or whose keys cannot be told: any server has the answer, or the error. Always the same one,
    /// since a script may have keys that nobody declared.
    pub(crate) fn forward_anywhere(&mut self, me: Ref, raw: &[u8]) -> Flow {
        let node = self.home(me).shards[0].primary;
        self.forward(me, node, raw)
    }

    /// Returns the error for a client whose own pool is `home`, if no server is known that could answer it.
    pub(crate) fn unserved(&self, home: u16) -> &'static str {
        let pools = &self.routes.pools;
        let own = pools.get(usize::from(home));
        let lacking = own
            .filter(|pool| pool.lacks_somebody())
            .or_else(|| pools.iter().find(|pool| pool.lacks_somebody()));
        match lacking.or(own).map(|pool| &pool.placement) {
            Some(Placement::Slots(_)) => errors::CLUSTER_DOWN,
            _ => errors::NO_PRIMARY,
        }
    }

    /// The number of a client's pool.
    pub(crate) fn home_of(&self, me: Ref) -> u16 {
        self.clients.look(me.at).map_or(0, |client| client.pool)
    }

    /// A client's pool.
    pub(crate) fn home(&self, me: Ref) -> &Pool {
        &self.routes.pools[usize::from(self.home_of(me))]
    }

    /// The one server of all keys of a call; `None` if it has none that one could name. The error is a reply.
    pub(crate) fn node_of_keys(
        &self,
        me: Ref,
        id: CommandId,
        args: Args<'_>,
    ) -> Result<Option<NodeId>, &'static str> {
        let home = self.home_of(me);
        self.node_of_keys_in(home, id, args, |key| self.routes.group_of(home, key))
    }

    /// The same for a call whose keys are in groups of this kind; channels are in the pool `home`.
    pub(crate) fn node_of_keys_in(
        &self,
        home: u16,
        id: CommandId,
        args: Args<'_>,
        group_of: impl Fn(&[u8]) -> u32,
    ) -> Result<Option<NodeId>, &'static str> {
        let pool = &self.routes.pools[usize::from(home)];
        let channel_group = |name: &[u8]| self.routes.group_in(home, name);
        let mut found: Option<u32> = None;
        let in_cluster = matches!(pool.placement, Placement::Slots(_));
        let by_channel = id == CommandId::Spublish || (id == CommandId::Publish && !in_cluster);
        let channels = spec::row(id).channels.filter(|_| by_channel);
        let of_channels = channels.map(|channels| channels.positions(args.len()));
        let keys = spec::reachable_keys(id, args.len(), |at| &args[at]);
        let groups_of_keys = keys.filter_map(|key| args.get(key.position).map(&group_of));
        let of_channels = of_channels.into_iter().flatten();
        let groups_of_channels = of_channels.filter_map(|at| args.get(at).map(channel_group));
        for group in groups_of_keys.chain(groups_of_channels) {
            match found {
                None => found = Some(group),
                Some(first) if first != group => return Err(errors::CROSS_SLOT),
                Some(_) => {}
            }
        }
        match found.map(|group| self.routes.node_of_group(group)) {
            None => Ok(None),
            Some(NO_NODE) => Err(self.unserved(home)),
            Some(node) => Ok(Some(node)),
        }
    }

    /// Why SORT cannot be made: its patterns stand for keys of other servers than that of its key, and would look like keys
    /// that are not there. (The nodes of a cluster say so themselves.)
    fn sorts_elsewhere(&self, me: Ref, args: Args<'_>) -> Option<&'static str> {
        let group = self.routes.group_of(self.home_of(me), &args[1]);
        let Placement::Hashed(hashed) = &self.routes.pool_of(group).placement else {
            return None;
        };
        let mut at = 2;
        while let Some(word) = args.get(at) {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            let line = match (is("BY"), is("GET")) {
                (true, _) => errors::SORT_BY_ELSEWHERE,
                (_, true) => errors::SORT_GET_ELSEWHERE,
                _ => {
                    at += if is("LIMIT") {
                        3
                    } else if is("STORE") {
                        2
                    } else {
                        1
                    };
                    continue;
                }
            };
            let pattern = args.get(at + 1)?;
            let reads = pattern.contains(&b'*');
            if reads && hashed.shard_of_pattern(pattern) != Some(usize::from(group as u16)) {
                return Some(line);
            }
            at += 2;
        }
        None
    }

    /// Any server, each in turn; one that is left alone only where all are.
    pub(crate) fn any_node(&self, me: Ref) -> Option<NodeId> {
        let shards = &self.home(me).shards;
        let turn = self.counters.requests as usize % shards.len().max(1);
        let mut primaries = shards[turn..].iter().chain(&shards[..turn]);
        let is_there = |shard: &&Shard| {
            let node = self.routes.nodes.get(usize::from(shard.primary));
            node.is_some_and(|node| !node.ejected)
        };
        let first = shards.get(turn);
        let found = primaries.find(is_there).or(first);
        found.map(|shard| shard.primary)
    }

    /// Sends one request to a server, on the shared connection.
    pub(crate) fn forward(&mut self, me: Ref, node: NodeId, raw: &[u8]) -> Flow {
        let stripped = self.stripped(raw);
        self.forward_as_is(me, node, stripped.as_deref().unwrap_or(raw))
    }

    /// Sends one request to a server as it stands: no prefix is taken off its keys.
    pub(crate) fn forward_as_is(&mut self, me: Ref, node: NodeId, raw: &[u8]) -> Flow {
        let Some(client) = self.clients.find(me) else {
            return Flow::Done;
        };
        let (db, proto) = (client.db, client.proto);
        let upstream = match self.link(node, db, proto) {
            Ok(upstream) => upstream,
            Err(line) => {
                let command = self.command_called(me);
                self.seeing.refused(command);
                return match node {
                    NO_NODE => self.refuse(me, self.unserved(self.home_of(me))),
                    _ => self.refuse(me, &line),
                };
            }
        };
        let kind = self.silenced(me, Kind::Client);
        let command = self.command_called(me);
        let Some(client) = self.clients.find(me) else {
            return Flow::Done;
        };
        let waiting = Waiting::one(me, client.number(), kind, raw, self.now_ms)
            .of(command, self.seeing.now_us);
        if self.is_full(upstream, me)
            && let Some(client) = self.clients.find(me)
        {
            client.pause = Pause::Upstream;
        }
        if let Some(found) = self.upstreams.get(upstream) {
            found.push(waiting, raw, &mut self.cache);
        }
        self.mark_upstream(upstream);
        Flow::Done
    }

    /// A request as servers are to get it, if that is not as it came.
    pub(crate) fn stripped(&self, raw: &[u8]) -> Option<Vec<u8>> {
        let prefixes = &self.routes.prefixes;
        prefixes.strips().then(|| prefixes.stripped(raw)).flatten()
    }

    /// The command that a client has called last.
    pub(crate) fn command_called(&mut self, me: Ref) -> u16 {
        let last = self.clients.find(me).and_then(|client| client.last);
        last.map_or(NO_COMMAND, |id| id as u16)
    }

    /// Returns the kind of a reply: silent, if the client has asked for no replies.
    pub(crate) fn silenced(&mut self, me: Ref, kind: Kind) -> Kind {
        let silent = self
            .clients
            .find(me)
            .is_some_and(|client| client.reply_mode != ReplyMode::On);
        match kind {
            Kind::Client if silent => Kind::Silent,
            kind => kind,
        }
    }

    /// Answers a request with an error.
    pub(crate) fn refuse(&mut self, me: Ref, line: &(impl AsRef<[u8]> + ?Sized)) -> Flow {
        self.answer(me, |reply| reply.error_bytes(line.as_ref()))
    }

    /// Answers a request with a status.
    pub(crate) fn status(&mut self, me: Ref, text: &str) -> Flow {
        self.answer(me, |reply| reply.simple(text))
    }

    /// Answers a request.
    pub(crate) fn answer(&mut self, me: Ref, write: impl FnOnce(&mut Reply<'_>)) -> Flow {
        let Some(client) = self.clients.find(me) else {
            return Flow::Done;
        };
        let (number, proto, reply_mode) = (client.number(), client.proto, client.reply_mode);
        self.answer_as(me, number, proto, reply_mode, write)
    }

    /// Answers a request that has had its number before.
    pub(crate) fn answer_as(
        &mut self,
        me: Ref,
        number: u32,
        proto: Proto,
        reply_mode: ReplyMode,
        write: impl FnOnce(&mut Reply<'_>),
    ) -> Flow {
        let mut buffer = std::mem::take(&mut self.reply);
        write(&mut Reply::new(&mut buffer, proto));
        match reply_mode {
            ReplyMode::On => self.deliver(me, number, 1, buffer.bytes()),
            _ => self.deliver(me, number, 1, b""),
        }
        buffer.clear();
        buffer.shrink(64 * 1024);
        self.reply = buffer;
        Flow::Done
    }
}

/// Returns true if a call of a command that may wait asks to wait. (A key or a group of that name does no harm.)
pub(crate) fn may_block(id: CommandId, args: Args<'_>) -> bool {
    match id {
        CommandId::Xread | CommandId::Xreadgroup => args
            .iter()
            .skip(1)
            .any(|word| word.eq_ignore_ascii_case(b"BLOCK")),
        _ => true,
    }
}

/// How long a call that may wait asks to: milliseconds. None: for ever, or it is no number, and the server says what it is.
pub(crate) fn waits_ms(id: CommandId, args: Args<'_>) -> Option<u64> {
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<f64>().ok();
    let ms = match id {
        CommandId::Xread | CommandId::Xreadgroup => {
            let mut words = args.iter().skip(1);
            words.find(|word| word.eq_ignore_ascii_case(b"BLOCK"))?;
            number(words.next()?)?
        }
        CommandId::Blmpop | CommandId::Bzmpop => number(args.get(1)?)? * 1_000.0,
        _ => number(args.get(args.len() - 1)?)? * 1_000.0,
    };
    // What is not above 0 is for ever, or an error.
    (ms > 0.0).then_some(ms.ceil() as u64)
}

/// Returns true if a command asks for the table of commands.
pub(crate) fn is_about_commands(id: CommandId) -> bool {
    id == CommandId::Command || spec::row(id).container == Some(CommandId::Command)
}

#[cfg(test)]
mod tests {
    use redline_resp::{Decoded, encode_request};

    use super::*;
    use crate::request::forwarded;

    fn with_args(words: &[&str], then: impl FnOnce(Args<'_>)) {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        encode_request(words.iter().map(|word| word.as_bytes()), &mut bytes);
        let decoded = RequestDecoder::new().decode(&mut bytes, &forwarded(), &mut spans);
        assert!(matches!(decoded, Ok(Decoded::Request { .. })));
        then(Args::new(&bytes, &spans));
    }

    #[test]
    fn a_call_says_how_long_it_may_wait() {
        use CommandId::{Blmpop, Blpop, Xread};
        for (id, words, ms) in [
            (Blpop, &["BLPOP", "k", "1.5"][..], Some(1_500)),
            (Blpop, &["BLPOP", "k", "0"], None),
            (Blpop, &["BLPOP", "k", "x"], None),
            (Blmpop, &["BLMPOP", "0.0001", "1", "k", "LEFT"], Some(1)),
            (
                Xread,
                &["XREAD", "block", "70", "STREAMS", "s", "$"],
                Some(70),
            ),
        ] {
            with_args(words, |args| {
                assert_eq!(waits_ms(id, args), ms, "{words:?}");
                assert!(may_block(id, args), "{words:?}");
            });
        }
        with_args(&["XREAD", "STREAMS", "s", "$"], |args| {
            assert!(!may_block(Xread, args) && waits_ms(Xread, args).is_none());
        });
    }
}
