//! Leases and transactions, event by event.

use super::*;
use crate::testing::Proxy;

#[test]
fn calls_that_wait_for_their_server_are_kept_in_entries_that_a_queue_has_room_for() {
    let mut transaction = Transaction::default();
    let count = usize::from(u16::MAX) + 2;
    (0..count).for_each(|_| transaction.queue(b"x"));
    assert_eq!(transaction.queued_bytes, count);
    let counts: Vec<u16> = transaction
        .take_queued()
        .iter()
        .map(|it| it.count)
        .collect();
    assert_eq!(counts, [u16::MAX, 2]);
    assert!(transaction.queued.is_empty() && transaction.queued_bytes == 0);
}

#[test]
fn an_error_aborts_a_transaction_only_behind_multi() {
    let mut transaction = Transaction::default();
    transaction.abort();
    assert_eq!(transaction.aborted, None);
    transaction.multi = true;
    transaction.abort();
    assert_eq!(transaction.aborted, Some(PREVIOUS_ERRORS));
}

/// Returns the client's dedicated connection, after establishing it.
fn lease(proxy: &mut Proxy, me: Ref) -> u32 {
    let links = &proxy.core.conns.ctx.links;
    let mut places = links.taken();
    let own = places.find(|at| links.look(*at).is_some_and(|it| it.owner == Some(me)));
    drop(places);
    let own = own.expect("it has one");
    proxy.up(own);
    own
}

#[test]
fn a_transaction_has_a_connection_of_its_own_until_its_end() {
    let mut proxy = Proxy::of_one();
    let (me, other) = (proxy.client(), proxy.client());
    proxy.send(me, &["MULTI", "PING", "SET a 1"]);
    let link = lease(&mut proxy, me);
    // The server must confirm MULTI first.
    assert_eq!(proxy.sent(link), "*1 MULTI");
    proxy.reply(link, "+OK ");
    assert_eq!(proxy.sent(link), "*1 PING *3 SET a 1");
    proxy.send(other, &["GET a"]);
    proxy.send(me, &["EXEC"]);
    assert_eq!(proxy.sent(link), "*1 EXEC");
    proxy.reply(link, "+QUEUED +QUEUED *2 +PONG +OK ");
    assert_eq!(proxy.got(me), "+OK +QUEUED +QUEUED *2 +PONG +OK");
    let upstream = proxy.core.conns.ctx.links.look(link).unwrap();
    assert!(upstream.owner.is_none() && upstream.waiting.is_empty());
    // The next one reuses it, and everything is sent at once.
    proxy.send(other, &["MULTI", "SET b 1"]);
    assert_eq!(proxy.sent(link), "");
}

#[test]
fn a_call_that_waits_keeps_nobody_else_waiting() {
    let mut proxy = Proxy::of_one();
    let (me, other) = (proxy.client(), proxy.client());
    proxy.send(me, &["BLPOP a 0", "GET a"]);
    let own = lease(&mut proxy, me);
    assert_eq!(proxy.sent(own), "*3 BLPOP a 0");
    proxy.send(other, &["GET b"]);
    let link = proxy.link(0);
    assert_eq!(proxy.sent(link), "*2 GET b");
    proxy.reply(link, "$1 b ");
    assert_eq!(proxy.got(other), "b");
    proxy.reply(own, "*2 $1 a $1 x ");
    assert_eq!(proxy.got(me), "*2 a x");
    assert_eq!(proxy.sent(link), "*2 GET a");
}

#[test]
fn a_transaction_whose_server_is_lost_fails_at_its_end() {
    let mut proxy = Proxy::of_one();
    let me = proxy.client();
    proxy.send(me, &["WATCH a", "MULTI", "SET a 1"]);
    let link = lease(&mut proxy, me);
    proxy.sent(link);
    proxy.lose(link);
    proxy.send(me, &["EXEC"]);
    let got = proxy.got(me);
    assert!(got.contains("-EXECABORT_Transaction_discarded"), "{got}");
}
