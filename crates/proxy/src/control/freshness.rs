//! Questions to the servers of pools whose replicas are read from about their replication state, and what follows from
//! the replies. Knows no connection.

use redline_resp::Value;

use super::connections::{Asking, Peer, Question};
use super::nodes::Nodes;
use super::pools::Known;
use super::readers;
use super::replication::Said;
use super::table::Table;
use crate::route::NodeId;

/// Interval of the question, unless a lag is bounded: milliseconds.
const EVERY_MS: u64 = 1_000;
/// Number of questions within the smallest lag bound, but not more often than the control side turns.
const QUESTIONS_PER_LAG: u64 = 8;
const EVERY_MIN_MS: u64 = 50;

/// Returns the questions to a pool's servers that are due, and counts them as asked. One at a time: a late reply says
/// nothing, so servers with an unanswered question are left out.
pub fn questions(
    pool: &Known,
    nodes: &mut Nodes,
    is_asked: impl Fn(Peer) -> bool,
    now_ms: u64,
) -> Vec<Asking> {
    let mut questions = Vec::new();
    if !readers::spreads(&pool.config) {
        return questions;
    }
    let every_ms = every_ms(pool);
    for node in pool.members() {
        let Some(known) = nodes.get_mut(node) else {
            continue;
        };
        // Failed servers are probed first.
        let is_well = !known.health.is_ejected() && !known.health.is_in_doubt();
        let peer = Peer::Node(node);
        if is_well && known.replication.is_due(now_ms, every_ms) && !is_asked(peer) {
            known.replication.asked(now_ms);
            let question = Question::Replication(now_ms);
            questions.push(Asking::new(peer, question, &["INFO", "REPLICATION"]));
        }
    }
    questions
}

fn every_ms(pool: &Known) -> u64 {
    match pool.config.reads.lag_max.on() {
        Some(lag_max) => {
            let part_ms = lag_max.as_millis() as u64 / QUESTIONS_PER_LAG;
            part_ms.clamp(EVERY_MIN_MS, EVERY_MS)
        }
        None => EVERY_MS,
    }
}

/// Takes a server's reply to the question of that time.
pub fn take(node: NodeId, value: &Value, asked_ms: u64, nodes: &mut Nodes, table: &mut Table) {
    let text = value.as_bytes().unwrap_or_default();
    // A server without this command, or without permission for it, may be well; one that is loading is not.
    let may_be_well = text.starts_with(b"ERR") || text.starts_with(b"NOPERM");
    let said = match value.is_error() {
        true if may_be_well => Said::Nothing,
        true => Said::Replica {
            is_linked: false,
            offset: 0,
        },
        false => Said::of(text),
    };
    if let Some(known) = nodes.get_mut(node) {
        let was_orphan = known.replication.is_orphan();
        known.replication.heard(said, asked_ms);
        table.note(known.replication.is_orphan() != was_orphan);
    }
}

/// Notes that a server does not answer.
pub fn lost(node: NodeId, nodes: &mut Nodes, table: &mut Table) {
    if let Some(known) = nodes.get_mut(node) {
        table.note(known.replication.lost());
    }
}

/// Judges the replicas of a pool that are read from: some may have become too old since the last turn.
pub fn judge(pool: &Known, nodes: &mut Nodes, table: &mut Table, now_ms: u64) {
    if !readers::spreads(&pool.config) {
        return;
    }
    let lag_max = pool.config.reads.lag_max.on();
    for (primary, replicas) in pool.replicas() {
        let primary = nodes.get(primary).map(|known| known.replication.clone());
        for node in replicas {
            let Some(known) = nodes.get_mut(node) else {
                continue;
            };
            if known.replication.judge(primary.as_ref(), lag_max, now_ms) {
                let now = match known.replication.is_fit() {
                    true => "may answer reads",
                    false => {
                        "answers no reads while another can: it is behind its primary, or has lost it"
                    }
                };
                table.note_news(format!("{} {now}", known.address));
            }
        }
    }
}
