//! Tests of requests whose connection ends: without sockets, with a simulated clock.

use super::*;
use crate::testing::Proxy;

const LOST: &str = "-ERR_upstream_s0:1_was_lost_before_it_answered_(it_closed_the_connection):_the_outcome_of_this_command_is_unknown";

#[test]
fn requests_that_were_not_sent_and_reads_are_sent_again() {
    let mut proxy = Proxy::of_one();
    let me = proxy.client();
    proxy.send(me, &["GET a"]);
    let link = proxy.link(0);
    assert_eq!(proxy.sent(link), "*2 GET a");
    proxy.send(me, &["SET b 1"]);
    proxy.lose(link);
    let next = proxy.link(0);
    assert_ne!(next, link);
    assert_eq!(proxy.sent(next), "*2 GET a *3 SET b 1");
    proxy.reply(next, "$1 x +OK ");
    assert_eq!(proxy.got(me), "x +OK");
}

#[test]
fn nobody_knows_the_outcome_of_a_write_that_was_sent() {
    let mut proxy = Proxy::of_one();
    let me = proxy.client();
    proxy.send(me, &["SET a 1", "GET a"]);
    let link = proxy.link(0);
    proxy.sent(link);
    proxy.lose(link);
    assert_eq!(proxy.got(me), LOST);
    let next = proxy.link(0);
    assert_eq!(proxy.sent(next), "*2 GET a");
}

#[test]
fn a_read_is_sent_twice_and_no_more() {
    let mut proxy = Proxy::of_one();
    let me = proxy.client();
    proxy.send(me, &["GET a"]);
    for _ in 0..2 {
        let link = proxy.link(0);
        assert_eq!(proxy.sent(link), "*2 GET a");
        proxy.lose(link);
    }
    let refused = "-ERR_upstream_s0:1_is_not_available:_it_closed_the_connection";
    assert_eq!(proxy.got(me), refused);
}

#[test]
fn a_server_that_does_not_answer_in_time_is_given_up() {
    let mut proxy = Proxy::of_one();
    let me = proxy.client();
    proxy.send(me, &["SET a 1"]);
    let link = proxy.link(0);
    proxy.sent(link);
    let timeout_ms = proxy.core.conns.ctx.shared.settings.request_timeout_ms;
    for ms in [timeout_ms, 1] {
        proxy.core.conns.check_upstreams();
        assert!(proxy.core.conns.ctx.links.look(link).is_some());
        proxy.pass_ms(ms);
    }
    // Bytes that arrived meanwhile have been read now.
    proxy.pass_ms(0);
    proxy.core.conns.check_upstreams();
    assert!(proxy.core.conns.ctx.links.look(link).is_none());
    let got = proxy.got(me);
    assert!(got.contains("it_did_not_answer_in_time"), "{got}");
}

#[test]
fn replies_to_a_client_that_is_gone_are_nobodys() {
    let mut proxy = Proxy::of_one();
    let (gone, other) = (proxy.client(), proxy.client());
    proxy.send(gone, &["GET a"]);
    proxy.send(other, &["GET b"]);
    let link = proxy.link(0);
    proxy.core.conns.close_client(gone.at);
    assert_eq!(proxy.core.conns.ctx.shell.closed_clients, 1);
    proxy.reply(link, "$1 a $1 b ");
    assert_eq!(proxy.got(other), "b");
}

#[test]
fn a_server_that_moves_gets_nothing_new_and_answers_what_it_has() {
    let mut proxy = Proxy::of_one();
    let me = proxy.client();
    proxy.send(me, &["GET a"]);
    let link = proxy.link(0);
    proxy.sent(link);
    let mut fresh = Routes::clone(&proxy.core.conns.ctx.routes);
    fresh.nodes[0] = route::Node::here("s0:1", 9_999);
    proxy.core.conns.adopt(Arc::new(fresh));
    proxy.send(me, &["GET b"]);
    assert_eq!(proxy.sent(link), "");
    proxy.reply(link, "$1 a ");
    assert_eq!(proxy.got(me), "a");
    let next = proxy.link(0);
    assert_ne!(next, link);
    assert_eq!(proxy.sent(next), "*2 GET b");
}
