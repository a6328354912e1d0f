//! From a client's bytes to the servers: decoding and routing of each request. The hot path.
//!
//! Consecutive requests that go unchanged to one server are copied in one piece. Everything but a call of one key on a
//! shared connection takes `Requests::dispatch`.
//!
//! Must not know sockets, or how replies are handled.

use std::ops::Range;

use redline_resp::{
    Args, Decoded, HEADS, Heads, Name, RequestDecoder, RequestKind, Span, encode_request,
};
use redline_spec::{self as spec, CommandId, Unresolved};

use crate::class::{Class, Command};
use crate::client::{Pause, ReplyMode};
use crate::command_names::{self, Called};
use crate::connections::Connections;
use crate::leases::{self, Session};
use crate::observability::{MIXED, OUT_OF_MEMORY, memory, monitor};
use crate::report::Report;
use crate::request::forwarded;
use crate::route::{NO_NODE, Placement};
use crate::shell::Shell;
use crate::slab::Ref;
use crate::split::{self, Splitter};
use crate::upstream::{Kind, Waiting};
use crate::{
    access, admission, cached_reads, cluster_commands, command_table, errors, foreign,
    local_commands, replica_reads, routing_checks, script_calls, streaming,
};

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It was handled.
    Done,
    /// It has to wait; the client's pause was set.
    Again,
    /// It was the client's last.
    Close,
}

/// Decodes the requests of clients, and routes them.
pub(crate) struct Requests {
    heads: Heads,
    /// The commands of the numbers in `heads`.
    named: [Command; HEADS],
    spans: Vec<Span>,
    splitter: Splitter,
}

/// Consecutive requests of one client that go to one server.
struct Run {
    /// The command of the last ones, and the number of requests before them.
    command: u16,
    same_from: u16,
    upstream: u32,
    first: u32,
    count: u16,
    start: usize,
    end: usize,
}

/// Largest number of requests in a run. In a cluster any of them may have to be found again, for a redirect.
const RUN_MAX: u16 = 1024;
const RUN_OF_CLUSTER_MAX: u16 = 64;
/// Interval between questions for newly learned commands: milliseconds.
pub const LOOK_MS: u64 = 8;
/// Number of missing bytes from which a request may be passed through in pieces.
const LARGE_NEED_MIN: usize = 8 * 1024;

impl Requests {
    /// Returns a decoder without state; `commands` are all commands.
    pub(crate) fn new(commands: &[Command]) -> Requests {
        Requests {
            heads: Heads::new(),
            named: [commands[CommandId::Get as usize]; HEADS],
            spans: Vec::new(),
            splitter: Splitter::default(),
        }
    }

    /// Handles a call whose first word the table does not have; none: the servers do not have it either.
    pub(crate) fn foreign<S: Shell>(
        &mut self,
        conns: &mut Connections<S>,
        me: Ref,
        called: Called,
        raw: &[u8],
        args: Args<'_>,
    ) -> Option<Flow> {
        let name = args[0].to_ascii_lowercase();
        let shared = std::sync::Arc::clone(&conns.ctx.shared);
        if called == Called::ByOwnName
            && let Some(own) = shared.names.renamed.get(&name)
        {
            return self.by_another_name(conns, me, own, args);
        }
        if let Some(foreign) = shared.names.custom().get(&name) {
            return Some(foreign::foreign_call(conns, me, foreign, &name, raw, args));
        }
        let home = conns.ctx.clients.home_of(me);
        let learned = conns.ctx.routes.pools[usize::from(home)].learned.clone();
        if let Some(learned) = &learned {
            if let Some(foreign) = learned.get(&name) {
                return Some(foreign::foreign_call(conns, me, foreign, &name, raw, args));
            }
            if let Some(sub) = args.get(1) {
                let full = [&name[..], b"|", &sub.to_ascii_lowercase()[..]].concat();
                if let Some(foreign) = learned.get(&full) {
                    return Some(foreign::foreign_call(conns, me, foreign, &full, raw, args));
                }
            }
        }
        if spec::unbuilt(&name).is_some()
            || access::is_nobody(&mut conns.ctx.clients, me)
            || !conns.ctx.shell.has_control()
        {
            return None;
        }
        // A command known by now is found at the next attempt; if nothing is known, the call waits.
        conns.ctx.tell(Report::Foreign { pool: home });
        if learned.is_none() && conns.ctx.may_put_off {
            conns.ctx.clients.delay(me, conns.ctx.now_ms + LOOK_MS);
            return Some(Flow::Again);
        }
        None
    }

    fn by_another_name<S: Shell>(
        &mut self,
        conns: &mut Connections<S>,
        me: Ref,
        own: &str,
        args: Args<'_>,
    ) -> Option<Flow> {
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
        let names = &conns.ctx.shared.names;
        let command = spec::resolve(&args[0], args.get(1)).map(|id| names.by_another_name(id));
        Some(self.check(conns, me, command, Called::ByNewName, &bytes, &spans))
    }

    /// Takes the requests that a client has sent, as far as it may go on, and returns the number of bytes taken.
    ///
    /// One long loop, since each step may be the last: of the request, of the run before it, or of the client's bytes.
    pub(crate) fn serve<S: Shell>(
        &mut self,
        conns: &mut Connections<S>,
        at: u32,
        query: &mut [u8],
    ) -> usize {
        let Some(me) = conns.ctx.clients.place(at) else {
            return query.len();
        };
        let pipeline_max = conns.ctx.shared.settings.pipeline_max;
        let output_high = conns.ctx.shared.settings.client_output_bytes_high;
        let home = conns.ctx.clients.home_of(me);
        let run_max = match conns.ctx.routes.pools[usize::from(home)].placement {
            Placement::One | Placement::Hashed(_) if conns.ctx.routes.prefixes.is_empty() => {
                RUN_MAX
            }
            _ => RUN_OF_CLUSTER_MAX,
        };
        let looks_at_all = conns.ctx.recorder.looks_at_all;
        let mut done = 0;
        if conns
            .ctx
            .clients
            .find(me)
            .is_some_and(|client| matches!(client.session, Session::Passing(_)))
        {
            done = streaming::pass_large(conns, me, query);
        }
        conns.ctx.reads_turn = conns.ctx.reads_turn.wrapping_add(1);
        let mut run: Option<Run> = None;
        while done < query.len() {
            let Some(client) = conns.ctx.clients.find(me) else {
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
                // Decoding changes an inline request, so it cannot be postponed afterwards.
                client.pause = Pause::Order;
                break;
            }
            self.spans.clear();
            conns.ctx.limits.unauthenticated = client.has_limits && client.user.is_none();
            let rest = &mut query[done..];
            let decoded = client.decoder.decode_with(
                &mut self.heads,
                rest,
                &conns.ctx.limits,
                &mut self.spans,
            );
            let (consumed, args, kind) = match decoded {
                Ok(Decoded::Request {
                    consumed,
                    args,
                    kind,
                }) => (consumed, args, kind),
                Ok(Decoded::Empty { consumed }) => {
                    self.send_run(conns, me, &mut run, query);
                    done += consumed;
                    continue;
                }
                Ok(Decoded::Incomplete { need }) if need >= LARGE_NEED_MIN => {
                    self.send_run(conns, me, &mut run, query);
                    if streaming::begin_large(&mut conns.ctx, me, &query[done..]) {
                        conns.ctx.counters.requests += 1;
                        if let Some(client) = conns.ctx.clients.find(me) {
                            client.decoder = RequestDecoder::new();
                        }
                        done = query.len();
                    }
                    break;
                }
                Ok(Decoded::Incomplete { .. }) | Ok(Decoded::Big { .. }) => break,
                Err(error) => {
                    self.send_run(conns, me, &mut run, query);
                    let line = error.error_line();
                    conns
                        .ctx
                        .clients
                        .answer(me, |reply| reply.error_bytes(&line));
                    if let Some(client) = conns.ctx.clients.find(me) {
                        client.closing = true;
                    }
                    return query.len();
                }
            };
            conns.ctx.counters.requests += 1;
            let raw = &query[done..done + consumed];
            let command = self.command_of(conns, raw, args);
            if conns.ctx.cache.is_on
                && let Ok(command) = command
                && command.id == CommandId::Get
                && kind == RequestKind::Multibulk
                && !looks_at_all
                && command.allows(args)
                && self.hits(conns, me, command, &mut run, query, done..done + consumed)
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
                && let Some(target) = self.shared_target(conns, me, command, raw)
            {
                let piece = done..done + consumed;
                self.add_to_run(
                    conns,
                    me,
                    (&mut run, run_max),
                    (command.id, target),
                    query,
                    piece,
                );
                done += consumed;
                continue;
            }
            self.send_run(conns, me, &mut run, query);
            let raw = &query[done..done + consumed];
            match self.take_any(conns, me, command, raw, kind) {
                Flow::Done => done += consumed,
                Flow::Again => {
                    // It is decoded again, and counts then.
                    conns.ctx.counters.requests -= 1;
                    break;
                }
                Flow::Close => {
                    if let Some(client) = conns.ctx.clients.find(me) {
                        client.closing = true;
                        conns.ctx.clients.mark(at);
                    }
                    return query.len();
                }
            }
        }
        self.send_run(conns, me, &mut run, query);
        done
    }

    /// Returns the command that a request names.
    #[inline]
    fn command_of<S: Shell>(
        &mut self,
        conns: &mut Connections<S>,
        raw: &[u8],
        args: usize,
    ) -> Result<Command, Unresolved> {
        let span = |at: usize| {
            let Span { start, len } = self.spans[at];
            &raw[start as usize..(start + len) as usize]
        };
        let command = match self.heads.name() {
            Name::Known(number) => self.named[usize::from(number)],
            Name::New(number) => {
                let Some(id) = spec::lookup(span(0)) else {
                    // The number stays with the bytes: a repeated decoding must give the same.
                    self.heads = redline_resp::Heads::new();
                    return Err(Unresolved::Command);
                };
                let command = conns.ctx.commands[id as usize];
                self.named[usize::from(number)] = command;
                command
            }
            Name::Unnumbered => {
                let id = spec::lookup(span(0)).ok_or(Unresolved::Command)?;
                conns.ctx.commands[id as usize]
            }
        };
        if !command.has_subcommands || args < 2 {
            return Ok(command);
        }
        match spec::lookup_subcommand(command.id, span(1)) {
            Some(id) => Ok(conns.ctx.commands[id as usize]),
            None => Err(Unresolved::Subcommand(command.id)),
        }
    }

    /// Returns the shared connection for a call of one key, if it takes that route.
    #[inline]
    fn shared_target<S: Shell>(
        &mut self,
        conns: &mut Connections<S>,
        me: Ref,
        command: Command,
        raw: &[u8],
    ) -> Option<u32> {
        let client = conns.ctx.clients.find(me)?;
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
        let group = conns.ctx.routes.group_as_is(home, key)?;
        let node = match conns.ctx.routes.pool_of(group).spreads_reads {
            false => conns.ctx.routes.node_of_group(group),
            true => replica_reads::node_for(&mut conns.ctx, me, command.reads, group),
        };
        if node == NO_NODE {
            return None;
        }
        match conns.ctx.links.shared(node, db, proto) {
            Some(upstream) => Some(upstream),
            None => conns.ctx.link(node, db, proto).ok(),
        }
    }

    /// Answers GET from the cache, if it can; returns true if it did. Earlier calls that may concern the key are in
    /// flight then.
    fn hits<S: Shell>(
        &mut self,
        conns: &mut Connections<S>,
        me: Ref,
        command: Command,
        run: &mut Option<Run>,
        query: &[u8],
        raw: Range<usize>,
    ) -> bool {
        let raw = &query[raw];
        let Span { start, len } = self.spans[1];
        let key = &raw[start as usize..(start + len) as usize];
        let client = conns
            .ctx
            .clients
            .find(me)
            .filter(|it| !it.is_watched && !it.restricted);
        let Some(home) = client.map(|client| client.pool) else {
            return false;
        };
        if command.class != Class::Key || !cached_reads::is_cached(&conns.ctx, home, key) {
            return false;
        }
        let only_gets = |run: &Run| run.command == CommandId::Get as u16 && run.same_from == 0;
        if run.as_ref().is_some_and(|run| !only_gets(run)) {
            self.send_run(conns, me, run, query);
        }
        cached_reads::answer_from_cache(&mut conns.ctx, me, key)
    }

    /// Adds a call of one key, which goes to `target` unchanged, to the run, or to the next one.
    #[inline]
    fn add_to_run<S: Shell>(
        &mut self,
        conns: &mut Connections<S>,
        me: Ref,
        (run, run_max): (&mut Option<Run>, u16),
        (id, target): (CommandId, u32),
        query: &[u8],
        piece: Range<usize>,
    ) {
        let Some(client) = conns.ctx.clients.find(me) else {
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
                conns.ctx.recorder.mix.push((run.command, before));
                (run.command, run.same_from) = (id as u16, run.count);
            }
            run.count += 1;
            run.end = piece.end;
            return;
        }
        self.send_run(conns, me, run, query);
        let Some(client) = conns.ctx.clients.find(me) else {
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
        if conns.ctx.is_full(target, me)
            && let Some(client) = conns.ctx.clients.find(me)
        {
            client.pause = Pause::Upstream;
        }
    }

    fn send_run<S: Shell>(
        &mut self,
        conns: &mut Connections<S>,
        me: Ref,
        run: &mut Option<Run>,
        query: &[u8],
    ) {
        let Some(run) = run.take() else { return };
        let bytes = &query[run.start..run.end];
        let waiting = Waiting {
            count: run.count,
            ..Waiting::one(me, run.first, Kind::Client, bytes, conns.ctx.now_ms)
        };
        let mix = &mut conns.ctx.recorder.mix;
        let is_mixed = !mix.is_empty();
        if is_mixed {
            mix.push((run.command, run.count - run.same_from));
        }
        let command = if is_mixed { MIXED } else { run.command };
        let waiting = waiting.of(command, conns.ctx.recorder.now_us);
        let Some(upstream) = conns.ctx.links.get(run.upstream) else {
            conns.ctx.recorder.mix.clear();
            for number in 0..run.count {
                let one = Waiting {
                    seq: run.first.wrapping_add(number.into()),
                    ..waiting
                };
                conns
                    .ctx
                    .fail(one, "ERR the connection to the server was lost");
            }
            return;
        };
        if is_mixed {
            upstream.mix.extend(conns.ctx.recorder.mix.drain(..));
        }
        upstream.push(waiting, bytes, &mut conns.ctx.cache);
        if !upstream.dirty {
            upstream.dirty = true;
            conns.ctx.links.dirty.push(run.upstream);
        }
    }

    /// Handles everything but a plain call of one key.
    fn take_any<S: Shell>(
        &mut self,
        conns: &mut Connections<S>,
        me: Ref,
        command: Result<Command, Unresolved>,
        raw: &[u8],
        kind: RequestKind,
    ) -> Flow {
        let mut spans = std::mem::take(&mut self.spans);
        let flow = match kind {
            RequestKind::Multibulk => self.take(conns, me, command, raw, &spans),
            RequestKind::Inline => {
                let mut usual = Vec::new();
                encode_request(Args::new(raw, &spans).iter(), &mut usual);
                spans.clear();
                let limits = redline_resp::RequestLimits {
                    big_bulk_bytes_min: usize::MAX,
                    ..redline_resp::RequestLimits::default()
                };
                conns.ctx.may_put_off = false;
                let flow = match RequestDecoder::new().decode(&mut usual, &limits, &mut spans) {
                    Ok(Decoded::Request { .. }) => self.take(conns, me, command, &usual, &spans),
                    _ => Flow::Close,
                };
                conns.ctx.may_put_off = true;
                flow
            }
        };
        spans.clear();
        self.spans = spans;
        if let Some(client) = conns.ctx.clients.find(me)
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

    pub(crate) fn take<S: Shell>(
        &mut self,
        conns: &mut Connections<S>,
        me: Ref,
        command: Result<Command, Unresolved>,
        raw: &[u8],
        spans: &[Span],
    ) -> Flow {
        let args = Args::new(raw, spans);
        let id = match &command {
            Ok(command) => Some(command.id),
            Err(_) => conns.ctx.shared.names.id_behind(args),
        };
        let client = conns.ctx.clients.find(me);
        let was_admitted = client.is_some_and(|client| std::mem::take(&mut client.is_admitted));
        if !was_admitted
            && let Some(flow) = admission::admit(&mut conns.ctx, me, id, args, raw.len())
        {
            return flow;
        }
        let flow = self.check(conns, me, command, Called::ByOwnName, raw, spans);
        if flow == Flow::Again
            && let Some(client) = conns.ctx.clients.find(me)
        {
            client.is_admitted = true;
        }
        flow
    }

    pub fn check<S: Shell>(
        &mut self,
        conns: &mut Connections<S>,
        me: Ref,
        command: Result<Command, Unresolved>,
        called: Called,
        raw: &[u8],
        spans: &[Span],
    ) -> Flow {
        let args = Args::new(raw, spans);
        if let Err(reason) = &command
            && let Some(line) = conns.ctx.shared.names.hidden(*reason, called, args)
        {
            return conns.ctx.clients.abort(me, &line);
        }
        let command = match command {
            Ok(command) => command,
            // Not a command of Redis: it has no row.
            Err(Unresolved::Command) if args[0].eq_ignore_ascii_case(b"proxy") => {
                return S::proxy(conns, me, args);
            }
            Err(Unresolved::Subcommand(CommandId::Config))
                if args.len() == 2 && args[1].eq_ignore_ascii_case(b"reload") =>
            {
                return S::config_reload(conns, me, args);
            }
            Err(reason) => {
                let answered = cluster_commands::cluster_command(&mut conns.ctx, me, raw, args);
                let answered = answered.or_else(|| match reason {
                    Unresolved::Command => self.foreign(conns, me, called, raw, args),
                    Unresolved::Subcommand(_) => None,
                });
                return answered.unwrap_or_else(|| match redline_resp::is_of_http(&args[0]) {
                    true => routing_checks::leave_to_browser(&mut conns.ctx, me),
                    false => conns
                        .ctx
                        .clients
                        .abort(me, &errors::unresolved(reason, args)),
                });
            }
        };
        if command.class == Class::Forbidden {
            let reason = command_names::forbidden(command.id, &conns.ctx.shared.names);
            return conns
                .ctx
                .clients
                .abort(me, &errors::unresolved(reason, args));
        }
        if !spec::gate(command.id).lets_pass(args.len()) {
            return leases::reject(conns, me, command.id, &errors::wrong_arity(command.id));
        }
        if let Some(client) = conns.ctx.clients.find(me) {
            client.last = Some(command.id);
            client.show_last();
        }
        if let Some(line) = access::refusal(&mut conns.ctx.clients, me, command.id, args) {
            return leases::reject(conns, me, command.id, &line);
        }
        if command.class == Class::Cluster
            && let Some(flow) = cluster_commands::cluster_command(&mut conns.ctx, me, raw, args)
        {
            return flow;
        }
        if matches!(command.id, CommandId::Sort | CommandId::SortRo)
            && let Some(line) = routing_checks::sorts_elsewhere(&conns.ctx, me, args)
        {
            return leases::reject(conns, me, command.id, line);
        }
        let is_shown = conns.ctx.recorder.looks_at_all;
        if is_shown && command.class != Class::Local && !memory::has_memory(&mut conns.ctx) {
            return leases::reject(conns, me, command.id, OUT_OF_MEMORY);
        }
        if conns.ctx.clients.find(me).is_some_and(|it| it.restricted)
            && command.class != Class::Subscribe
            && !matches!(
                command.id,
                CommandId::Ping | CommandId::Quit | CommandId::Reset
            )
        {
            return leases::reject(conns, me, command.id, &errors::subscribed(command.id));
        }
        let flow = self.make(conns, me, command, raw, args);
        // A call that has to wait is decoded again, and shown then.
        if is_shown && flow != Flow::Again {
            monitor::show(&mut conns.ctx, me, Some(command.id), args, None);
        }
        flow
    }

    /// Makes a call that passed all checks.
    pub(crate) fn make<S: Shell>(
        &mut self,
        conns: &mut Connections<S>,
        me: Ref,
        command: Command,
        raw: &[u8],
        args: Args<'_>,
    ) -> Flow {
        if command.class != Class::Transaction
            && let Some(flow) = leases::in_transaction(&mut conns.ctx, me, command, raw, args)
        {
            return flow;
        }
        replica_reads::note_write(&mut conns.ctx, me, command.id);
        admission::mirror(&mut conns.ctx, me, command, raw, args);
        let flow = self.dispatch(conns, me, command, raw, args);
        if command.class != Class::Transaction && conns.ctx.clients.is_in_transaction(me) {
            // After WATCH two connections are used: the next call must not overtake this one on the other.
            conns.ctx.clients.must_wait(me);
        }
        flow
    }

    fn dispatch<S: Shell>(
        &mut self,
        conns: &mut Connections<S>,
        me: Ref,
        command: Command,
        raw: &[u8],
        args: Args<'_>,
    ) -> Flow {
        match command.id {
            CommandId::ScriptLoad => conns.ctx.shared.scripts.learn(&args[2]),
            CommandId::ScriptFlush => conns.ctx.shared.scripts.forget(),
            // A single server learns scripts by itself; a call that is refused for its keys leaves no script anywhere.
            CommandId::Eval | CommandId::EvalRo
                if !conns.ctx.has_one_shard(me)
                    && spec::keys(command.id, args.len(), |at| &args[at]).is_ok() =>
            {
                conns.ctx.shared.scripts.learn(&args[1]);
            }
            _ => {}
        }
        match command.class {
            Class::Local => {
                let flow = local_commands::local(conns, me, command.id, args);
                if flow != Flow::Again {
                    conns.ctx.recorder.answered_here(command.id);
                }
                flow
            }
            Class::Cluster => leases::reject(conns, me, command.id, errors::CLUSTER_DISABLED),
            Class::Refused | Class::Forbidden => {
                leases::reject(conns, me, command.id, &errors::refused(command.id))
            }
            Class::Transaction => leases::transaction(conns, me, command.id, raw, args),
            Class::Subscribe => conns
                .subscriptions
                .call(&mut conns.ctx, me, command.id, args),
            Class::Any if is_about_commands(command.id) => {
                command_table::command_table(&mut conns.ctx, me, command.id, raw, args)
            }
            Class::Any => match conns.ctx.any_node(me) {
                Some(node) => conns.ctx.forward(me, node, raw),
                None => conns
                    .ctx
                    .clients
                    .refuse(me, conns.ctx.unserved(conns.ctx.clients.home_of(me))),
            },
            Class::Key
                if conns.ctx.cache.is_on
                    && command.id == CommandId::Get
                    && cached_reads::answer_from_cache(&mut conns.ctx, me, &args[1]) =>
            {
                Flow::Done
            }
            Class::Key | Class::Keys => forward_by_keys(conns, me, command.id, raw, args),
            Class::Blocks if !may_block(command.id, args) => {
                forward_by_keys(conns, me, command.id, raw, args)
            }
            Class::Blocks => match conns.ctx.node_of_keys(me, command.id, args) {
                Ok(Some(node)) => {
                    leases::blocking(&mut conns.ctx, me, node, raw, waits_ms(command.id, args))
                }
                Ok(None) => conns.ctx.forward_anywhere(me, raw),
                Err(line) => leases::reject(conns, me, command.id, line),
            },
            Class::Split(merge) => {
                self.splitter
                    .split(&mut conns.ctx, me, command.id, merge, raw, args)
            }
            // The script to end may be running on a shared connection.
            Class::All(merge)
                if matches!(command.id, CommandId::ScriptKill | CommandId::FunctionKill) =>
            {
                split::send_past_all(&mut conns.ctx, me, merge, raw)
            }
            Class::All(merge) => split::send_to_all(&mut conns.ctx, me, merge, raw, args),
            Class::Scan => split::scan(&mut conns.ctx, me, raw, args),
        }
    }
}

fn forward_by_keys<S: Shell>(
    conns: &mut Connections<S>,
    me: Ref,
    id: CommandId,
    raw: &[u8],
    args: Args<'_>,
) -> Flow {
    match conns.ctx.node_of_keys(me, id, args) {
        Ok(Some(node)) => {
            let node = replica_reads::reader(&mut conns.ctx, me, id, args, node);
            script_calls::give_script(&mut conns.ctx, me, id, node, args);
            conns.ctx.forward(me, node, raw)
        }
        Ok(None) if id == CommandId::Publish && args.len() > 1 => {
            let home = conns.ctx.clients.home_of(me);
            match conns.ctx.node_of_channel(home, &args[1]) {
                Some(node) => conns.ctx.forward(me, node, raw),
                None => conns.ctx.forward_anywhere(me, raw),
            }
        }
        Ok(None) => {
            let node = conns.ctx.home(me).shards[0].primary;
            script_calls::give_script(&mut conns.ctx, me, id, node, args);
            conns.ctx.forward_anywhere(me, raw)
        }
        Err(line) => leases::reject(conns, me, id, line),
    }
}

/// Returns true if a call of a command that may block has a blocking option. (A key or a group of that name is harmless.)
pub(crate) fn may_block(id: CommandId, args: Args<'_>) -> bool {
    match id {
        CommandId::Xread | CommandId::Xreadgroup => args
            .iter()
            .skip(1)
            .any(|word| word.eq_ignore_ascii_case(b"BLOCK")),
        _ => true,
    }
}

/// Returns the time-out of a call that may block: milliseconds. None: no time-out, or no number, and the server sends the error.
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
    // 0 and below mean no time-out, or an error.
    (ms > 0.0).then_some(ms.ceil() as u64)
}

/// Returns true if a command reads the table of commands.
pub(crate) fn is_about_commands(id: CommandId) -> bool {
    id == CommandId::Command || spec::row(id).container == Some(CommandId::Command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_args;

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
