//! The surroundings of a worker's executor: clocks, the log, and what needs connections.
//!
//! Must not know: what any command does.

use std::sync::Arc;

use redline_engine::{
    Caller, Clock, Executor, Halt, Level, Message, Outlet, caller::Token, executor::Batch,
    executor::block::Outcome, executor::slots::Unserved, timing::Used,
};
use redline_keyspace::Waiter;
use redline_net::{clock, process};
use redline_resp::{Args, Blob};
use redline_spec::CommandId;

use super::{Member, Shell, Worker, mail, serve};
use crate::{admin, cluster, config, log, persistence, replication};

impl Clock for Shell<'_> {
    #[inline]
    fn monotonic_ns(&self) -> u64 {
        clock::monotonic_ns()
    }

    #[inline]
    fn monotonic_coarse_ms(&self) -> u64 {
        clock::monotonic_coarse_ms()
    }

    #[inline]
    fn wall_us(&self) -> u64 {
        clock::wall_us()
    }

    fn used(&self) -> Used {
        Used {
            cpu_ns: clock::thread_cpu_ns(),
            sleeps: process::sleeps_thread(),
        }
    }
}

impl<'s> Outlet for Shell<'s> {
    type Member = Member;

    fn log(level: Level, text: &str) {
        match level {
            Level::Debug => log::debug(text),
            Level::Verbose => log::verbose(text),
            Level::Notice => log::notice(text),
            Level::Warning => log::warning(text),
        }
    }

    fn is_secret_parameter(name: &[u8]) -> bool {
        config::find(name).is_some_and(|row| row.secret)
    }

    fn run_admin(
        executor: &mut Executor<'_, Self>,
        caller: &mut Caller,
        id: CommandId,
        args: Args<'_>,
    ) -> Result<(), Halt> {
        admin::run(&mut Worker::of(executor), caller, id, args)
    }

    fn refresh(executor: &mut Executor<'_, Self>) {
        Worker::of(executor).adopt_settings();
    }

    fn turn(executor: &mut Executor<'_, Self>) {
        Worker::of(executor).turn(false);
    }

    fn stops(&self) -> bool {
        self.stop
    }

    fn for_each_caller(
        executor: &mut Executor<'_, Self>,
        mut visit: impl FnMut(&mut Executor<'_, Self>, &mut Caller),
    ) {
        for index in 0..executor.outlet.places.len() {
            if let Some(mut session) = executor.outlet.places[index].session.take() {
                visit(executor, &mut session.caller);
                executor.outlet.places[index].session = Some(session);
            }
        }
    }

    fn look_again(executor: &mut Executor<'_, Self>, client: Token) {
        Worker::of(executor).enqueue(client.index());
    }

    fn read_own_mail(executor: &mut Executor<'_, Self>, caller: &mut Caller) {
        mail::read_own_mail(&mut Worker::of(executor), caller);
    }

    fn drop_old_invalidations(executor: &mut Executor<'_, Self>, caller: &Caller) {
        mail::drop_old_invalidations(&mut Worker::of(executor), caller);
    }

    fn hand_out(executor: &mut Executor<'_, Self>, caller: &mut Caller) {
        mail::hand_out(&mut Worker::of(executor), caller);
    }

    fn wait_ended(executor: &mut Executor<'_, Self>, waiter: Arc<Waiter>, outcome: Outcome) {
        mail::on_engine_message(
            &mut Worker::of(executor),
            Message::WaitEnded(waiter, outcome),
        );
    }

    fn evict_clients(executor: &mut Executor<'_, Self>) {
        serve::evict_clients(&Worker::of(executor));
    }

    fn flushed_all(executor: &mut Executor<'_, Self>) {
        persistence::flushed_all(executor.outlet.shared);
    }

    fn unserved(executor: &Executor<'_, Self>, caller: &Caller, slot: u16) -> Unserved {
        let settings = &executor.outlet.settings;
        admin::unserved(executor.outlet.shared, settings, caller, slot)
    }

    fn pass_on(executor: &mut Executor<'_, Self>, args: Args<'_>) -> bool {
        cluster::messages::pass_on(executor.outlet.shared, args)
    }

    fn ask_replicas(executor: &mut Executor<'_, Self>, record: u64) {
        replication::ask_acks(executor.outlet.shared, record);
    }

    fn defer(
        _: &mut Executor<'_, Self>,
        member: &mut Member,
        batch: &Batch,
        first: usize,
        number: usize,
    ) {
        serve::defer(member, batch, first, number);
    }

    fn limit_output(executor: &mut Executor<'_, Self>, member: &mut Member) {
        serve::enforce_output_limit(&mut Worker::of(executor), &mut member.session);
    }
}

impl redline_engine::Member for Member {
    #[inline]
    fn caller(&self) -> &Caller {
        &self.session.caller
    }

    #[inline]
    fn parts(&mut self) -> (&mut Caller, &[u8], &[Blob]) {
        (&mut self.session.caller, &self.query, &self.blobs)
    }

    #[inline]
    fn requests(&self) -> (&[u8], &[Blob]) {
        (&self.query, &self.blobs)
    }

    #[inline]
    fn is_deferred(&self) -> bool {
        self.session.deferred.is_some()
    }
}

#[cfg(test)]
mod tests {

    use redline_engine::redaction;
    use redline_resp::ArgsBuf;

    use redline_spec::CommandId;

    use crate::worker::Shell;

    fn shown_line(id: CommandId, words: &str) -> String {
        let mut args = ArgsBuf::new();
        words.split(' ').for_each(|word| args.push(word.as_bytes()));
        let args = args.as_args();
        let words = (0..args.len())
            .map(|index| String::from_utf8_lossy(redaction::shown::<Shell>(id, args, index)));
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn secrets_are_not_shown() {
        let hello = shown_line(CommandId::Hello, "HELLO 3 AUTH user word SETNAME me");
        assert_eq!(hello, "HELLO 3 AUTH (redacted) (redacted) SETNAME me");
        let auth = shown_line(CommandId::Auth, "AUTH user word");
        assert_eq!(auth, "AUTH (redacted) (redacted)");
        let user = shown_line(CommandId::AclSetuser, "ACL SETUSER me >word");
        assert_eq!(user, "ACL SETUSER (redacted) (redacted)");
        let set = shown_line(
            CommandId::ConfigSet,
            "CONFIG SET hz 10 requirepass word tls-key-file-pass word",
        );
        assert_eq!(
            set,
            "CONFIG SET hz 10 requirepass (redacted) tls-key-file-pass (redacted)"
        );
        assert_eq!(shown_line(CommandId::Set, "SET a b"), "SET a b");
    }
}
