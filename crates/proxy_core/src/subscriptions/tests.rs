//! Tests of the counts of names that calls wait for, and of the servers to ask.

use redline_cluster::SLOTS;

use super::servers::{say_the_same, servers_of};
use super::*;
use crate::route::{Placement, Pool, Shard};
use crate::testing::Proxy;

const SPACE: Space = Space {
    names: Names::Channels,
    pool: 0,
};
const CALL: u64 = 7;

/// One call that waits for `a` on two servers, for `b` on one of them, and for `a` again.
fn waiting() -> Subscriptions {
    let topic = |calls: &[u64], nodes: &[NodeId]| Topic {
        clients: Vec::new(),
        calls: calls.to_vec(),
        nodes: unasked(nodes),
        redirects: 0,
        handover: None,
    };
    let topics = [
        (b"a".to_vec(), topic(&[CALL, CALL], &[1, 2])),
        (b"b".to_vec(), topic(&[CALL], &[1])),
    ];
    let call = Call {
        client: Ref::NONE,
        seq: 0,
        space: SPACE,
        names: [b"a", b"b", b"a"].map(|name| name.to_vec()).to_vec(),
        unconfirmed: 3,
    };
    Subscriptions {
        topics: Topics {
            by_space: HashMap::from([(SPACE, HashMap::from(topics))]),
        },
        calls: HashMap::from([(CALL, call)]),
        ..Subscriptions::default()
    }
}

fn confirmed(pubsub: &mut Subscriptions, name: &[u8], node: NodeId) -> Vec<u64> {
    pubsub.change(SPACE, name, |topic| {
        for (of, step) in &mut topic.nodes {
            if *of == node {
                *step = Step::Confirmed;
            }
        }
    })
}

#[test]
fn a_call_is_ready_once_with_the_last_of_what_it_waits_for() {
    let mut pubsub = waiting();
    assert!(confirmed(&mut pubsub, b"a", 1).is_empty());
    assert!(confirmed(&mut pubsub, b"a", 1).is_empty());
    assert!(confirmed(&mut pubsub, b"a", 2).is_empty());
    assert_eq!(confirmed(&mut pubsub, b"b", 1), [CALL]);
    assert!(confirmed(&mut pubsub, b"b", 1).is_empty());
}

#[test]
fn what_has_to_be_asked_anew_is_waited_for_again() {
    let mut pubsub = waiting();
    for node in [1, 2] {
        assert!(confirmed(&mut pubsub, b"a", node).is_empty());
    }
    let moves = |topic: &mut Topic| topic.nodes = unasked(&[3]);
    assert!(pubsub.change(SPACE, b"a", moves).is_empty());
    assert!(confirmed(&mut pubsub, b"b", 1).is_empty());
    assert_eq!(confirmed(&mut pubsub, b"a", 3), [CALL]);
    // A name that no server has to be asked for is waited for no longer.
    let mut pubsub = waiting();
    assert!(confirmed(&mut pubsub, b"b", 1).is_empty());
    assert!(confirmed(&mut pubsub, b"a", 2).is_empty());
    let leaves = |topic: &mut Topic| topic.nodes.retain(|(node, _)| *node != 1);
    assert_eq!(pubsub.change(SPACE, b"a", leaves), [CALL]);
}

#[test]
fn who_is_asked_last_is_left_when_the_next_one_has_confirmed_and_not_before() {
    let [last, next, other]: [NodeId; 3] = [1, 2, 3];
    let mut topic = Topic {
        nodes: vec![(last, Step::Confirmed)],
        ..Topic::default()
    };
    assert!(topic.hand_over(next).is_empty());
    assert!(topic.concerns(last) && topic.is_unasked(next));
    // On to another one before it was asked, and back to where it was: that one was never left.
    assert_eq!(topic.hand_over(other), [next]);
    assert_eq!(topic.hand_over(last), [other]);
    assert!(topic.handover.is_none() && topic.is_confirmed());
    // Without a confirmation no messages are passed on.
    topic.nodes = unasked(&[last]);
    assert_eq!(topic.hand_over(next), [last]);
    assert!(!topic.concerns(last));
}

#[test]
fn in_a_cluster_nobody_is_heard_who_is_not_asked() {
    let mut topic = Topic {
        nodes: vec![(1, Step::Asked(0))],
        ..Topic::default()
    };
    for (node, anywhere, is_heard) in [(1, true, false), (2, true, false), (2, false, true)] {
        assert_eq!(topic.hears(node, b"a", 0, |_| anywhere), is_heard);
    }
    topic.nodes = vec![(1, Step::Confirmed)];
    assert!(topic.hears(1, b"a", 0, |_| true));
    topic.hand_over(2);
    assert!(topic.hears(1, b"a", 0, |_| true) && !topic.hears(3, b"a", 0, |_| true));
}

/// Two shards, 1 with the replica 2, and 3 with the replica 4. The first has all slots, if it is a cluster.
fn two_shards(placement: Placement) -> Pool {
    let shard = |primary, replica| Shard {
        primary,
        replicas: vec![replica],
        readers: Vec::new(),
    };
    Pool {
        name: String::new(),
        shards: vec![shard(1, 2), shard(3, 4)],
        placement,
        databases: 1,
        spreads_reads: false,
        learned: None,
        keepalive_s: 0,
        caching: None,
        has_tls: false,
    }
}

#[test]
fn where_any_node_will_do_one_that_answers_is_asked() {
    let pool = two_shards(Placement::Slots(Box::new([0; SLOTS])));
    let asked = |names, name: &str, ejected: &[NodeId]| -> Vec<NodeId> {
        servers_of(names, name.as_bytes(), &pool, |node| {
            ejected.contains(&node)
        })
        .collect()
    };
    for names in [Names::Channels, Names::Patterns] {
        assert_eq!(asked(names, "a", &[]), [1]);
        assert_eq!(asked(names, "a", &[1]), [3]);
        assert_eq!(asked(names, "a", &[1, 3]), [2]);
        // No node does.
        assert_eq!(asked(names, "a", &[1, 2, 3, 4]), [1]);
    }
    // Messages that only one of them has.
    assert_eq!(asked(Names::Shards, "a", &[1]), [1]);
    assert_eq!(asked(Names::Channels, "__keyspace@0__:a", &[1]), [1, 3]);
}

#[test]
fn a_replica_of_the_node_that_is_asked_for_a_shards_channel_says_nothing_new() {
    let mut pool = two_shards(Placement::One);
    let same = |pool: &Pool, one, other| say_the_same(Names::Shards, b"a", pool, one, other);
    assert!(!same(&pool, 2, 1), "no cluster");
    pool.placement = Placement::Slots(Box::new([0; SLOTS]));
    assert!(same(&pool, 2, 1) && !same(&pool, 3, 1) && !same(&pool, 1, 1));
    assert!(say_the_same(Names::Channels, b"a", &pool, 3, 1));
}

/// Returns the connection for subscriptions to the first server, after establishing it.
fn link_of(proxy: &mut Proxy) -> u32 {
    let server = &proxy.core.conns.subscriptions.servers[0];
    let at = server.upstream.expect("there is a connection").at;
    proxy.up(at);
    at
}

#[test]
fn a_channel_is_asked_for_once_and_its_messages_go_to_all_who_hear_it() {
    let mut proxy = Proxy::of_one();
    let (one, other) = (proxy.client(), proxy.client());
    proxy.send(one, &["SUBSCRIBE x"]);
    let link = link_of(&mut proxy);
    assert_eq!(proxy.sent(link), "*2 SUBSCRIBE x");
    assert_eq!(proxy.got(one), "");
    proxy.reply(link, "*3 $9 subscribe $1 x :1 ");
    assert_eq!(proxy.got(one), "*3 subscribe x :1");
    proxy.send(other, &["SUBSCRIBE x"]);
    assert_eq!(proxy.sent(link), "");
    assert_eq!(proxy.got(other), "*3 subscribe x :1");
    proxy.reply(link, "*3 $7 message $1 x $2 hi ");
    for me in [one, other] {
        assert_eq!(proxy.got(me), "*3 message x hi");
    }
}

#[test]
fn who_unsubscribes_has_got_all_that_was_published_before() {
    let mut proxy = Proxy::of_one();
    let me = proxy.client();
    proxy.send(me, &["SUBSCRIBE x"]);
    let link = link_of(&mut proxy);
    proxy.sent(link);
    proxy.reply(link, "*3 $9 subscribe $1 x :1 ");
    proxy.got(me);
    proxy.send(me, &["UNSUBSCRIBE x"]);
    assert_eq!(proxy.sent(link), "*1 PING");
    proxy.reply(link, "*3 $7 message $1 x $2 hi *2 $4 pong $0  ");
    assert_eq!(proxy.got(me), "*3 message x hi *3 unsubscribe x :0");
    assert_eq!(proxy.sent(link), "*2 UNSUBSCRIBE x");
}

#[test]
fn what_was_subscribed_to_is_asked_for_again_when_its_connection_broke() {
    let mut proxy = Proxy::of_one();
    let me = proxy.client();
    proxy.send(me, &["SUBSCRIBE x"]);
    let link = link_of(&mut proxy);
    proxy.sent(link);
    proxy.reply(link, "*3 $9 subscribe $1 x :1 ");
    proxy.got(me);
    proxy.lose(link);
    proxy.pass_ms(100);
    upkeep::mend(&mut proxy.core.conns);
    let next = link_of(&mut proxy);
    assert_eq!(proxy.core.conns.ctx.shell.connected.len(), 2);
    assert_eq!(proxy.sent(next), "*2 SUBSCRIBE x");
    proxy.reply(next, "*3 $9 subscribe $1 x :1 *3 $7 message $1 x $1 a ");
    assert_eq!(proxy.got(me), "*3 message x a");
}
