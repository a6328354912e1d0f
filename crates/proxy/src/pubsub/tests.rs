//! What calls wait for, counted.

use super::*;

const SPACE: Space = Space {
    names: Names::Channels,
    pool: 0,
};
const CALL: u64 = 7;

/// One call that waits for `a` on two servers, for `b` on one of them, and for `a` again.
fn waiting() -> PubSub {
    let topic = |calls: &[u64], nodes: &[NodeId]| Topic {
        clients: Vec::new(),
        calls: calls.to_vec(),
        nodes: unasked(nodes),
        redirects: 0,
    };
    let topics = [
        (b"a".to_vec(), topic(&[CALL, CALL], &[1, 2])),
        (b"b".to_vec(), topic(&[CALL], &[1])),
    ];
    let call = Call {
        client: Ref::NOBODY,
        seq: 0,
        space: SPACE,
        names: [b"a", b"b", b"a"].map(|name| name.to_vec()).to_vec(),
        unconfirmed: 3,
    };
    PubSub {
        topics: HashMap::from([(SPACE, HashMap::from(topics))]),
        calls: HashMap::from([(CALL, call)]),
        ..PubSub::default()
    }
}

fn confirmed(pubsub: &mut PubSub, name: &[u8], node: NodeId) -> Vec<u64> {
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
    // And what nobody has to be asked for any more is waited for no longer.
    let mut pubsub = waiting();
    assert!(confirmed(&mut pubsub, b"b", 1).is_empty());
    assert!(confirmed(&mut pubsub, b"a", 2).is_empty());
    let leaves = |topic: &mut Topic| topic.nodes.retain(|(node, _)| *node != 1);
    assert_eq!(pubsub.change(SPACE, b"a", leaves), [CALL]);
}
