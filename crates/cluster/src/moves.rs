//! Moves of slots with all their keys, as transactions on the cluster's records: begin (T10), flip (T11), abort (T12), clean
//! up (T13).
//!
//! All moves are in one record, so two never take the same slot, and in each transaction it is guarded. A move is copied
//! without any change of who owns its slots; the flip gives them to the other shard, whole and at one instant, if both
//! shards have the primaries with which it began. Whoever does not know if its flip was done aborts: then the flip fails
//! when it arrives late, or the abort finds it done.
//!
//! Must not know: how keys are copied, connections, threads.

use std::ops::RangeInclusive;

use redline_etcd::{Condition, Listing, Operation, Transaction};

use crate::{
    Picture,
    picture::BadRecord,
    records::{
        MAP_KEY, META_KEY, MOVES_KEY, Move, MoveState, Moves, OPEN_KEY, Record, SHARDS, Side,
        VERSION,
    },
};

/// Largest number of moves that are in the record at a time.
pub const MOVES_MAX: usize = 64;

/// Returns the picture of a listing. The error is the reason.
fn picture(listing: &Listing) -> Result<Picture, String> {
    let pairs = listing.pairs.iter();
    let records = pairs.map(|pair| (pair.key.as_str(), pair.value.as_slice()));
    Picture::of(listing.revision, records).map_err(|bad: BadRecord| bad.to_string())
}

fn unchanged(listing: &Listing, key: String) -> Condition {
    let pair = listing.pairs.iter().find(|pair| pair.key == key);
    let revision = pair.map_or(0, |pair| pair.mod_revision);
    Condition::Unchanged(key, revision)
}

fn put(key: &str, record: &impl Record) -> Operation {
    Operation::Put {
        key: key.to_owned(),
        value: record.to_json(),
        lease: None,
    }
}

/// Returns the transaction that writes the moves, and these records, if all that it relied on is unchanged.
fn change(
    listing: &Listing,
    moves: Vec<Move>,
    keys: Vec<String>,
    more: Vec<Operation>,
) -> Transaction {
    let moves = Moves { v: VERSION, moves };
    let mut success = vec![put(MOVES_KEY, &moves)];
    success.extend(more);
    let guarded = keys.into_iter().chain([META_KEY.into(), MOVES_KEY.into()]);
    Transaction {
        conditions: guarded.map(|key| unchanged(listing, key)).collect(),
        success,
        failure: Vec::new(),
    }
}

/// T10: begins moves, each of runs of slots of one shard to the primary with this id. `ids`: one for each. The error is for
/// clients.
pub fn begin(
    listing: &Listing,
    from: &str,
    wanted: &[(Vec<RangeInclusive<u16>>, String)],
    ids: &[String],
) -> Result<Transaction, String> {
    let picture = picture(listing).map_err(|why| format!("ERR {why}"))?;
    let mut moves = picture.moves.clone();
    let mut keys = vec![
        MAP_KEY.to_owned(),
        OPEN_KEY.to_owned(),
        format!("{SHARDS}{from}"),
    ];
    let side = |id: &str| {
        let shard = picture.shards.get(id)?;
        Some(Side {
            shard: id.to_owned(),
            primary: shard.primary.clone(),
        })
    };
    let source = side(from).ok_or("ERR this node is in no shard")?;
    for ((runs, node), id) in wanted.iter().zip(ids) {
        let found = picture.shard_of_node(node);
        let Some((to, shard)) = found else {
            return Err(format!("ERR Unknown node {node}"));
        };
        if shard.primary.node != *node {
            return Err("ERR Target node is not a master".into());
        }
        if to == from {
            return Err("ERR Target node can't be myself".into());
        }
        for slot in runs.iter().flat_map(Clone::clone) {
            if picture.owners().of_slot(slot) != Some(from) {
                return Err(format!("ERR I'm not the owner of hash slot {slot}"));
            }
            let is_open = picture.open.leaving.iter().any(|(open, _)| *open == slot)
                || picture.open.arriving.iter().any(|(open, ..)| *open == slot);
            if is_open {
                return Err(format!("ERR slot {slot} is being moved by SETSLOT"));
            }
            if moves
                .iter()
                .any(|other| other.is_under_way() && other.has(slot))
            {
                return Err(format!("ERR slot {slot} is being moved already"));
            }
        }
        keys.push(format!("{SHARDS}{to}"));
        moves.push(Move {
            id: id.clone(),
            runs: runs.iter().map(|run| (*run.start(), *run.end())).collect(),
            from: source.clone(),
            to: side(to).expect("found above"),
            state: MoveState::Copying,
            why: String::new(),
        });
    }
    let under_way = moves.iter().filter(|it| it.is_under_way());
    if under_way.count() > MOVES_MAX {
        return Err(format!("ERR more than {MOVES_MAX} moves are under way"));
    }
    keys.dedup();
    Ok(change(listing, moves, keys, Vec::new()))
}

/// State of a move, when something is to be done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This transaction.
    Transaction(Transaction),
    /// It is done: the slots are the other shard's.
    Done,
    /// It is aborted, for this reason.
    Aborted(String),
}

/// Returns a move, with its place.
fn find(picture: &Picture, id: &str) -> Result<(usize, Move), Next> {
    let at = picture.moves.iter().position(|it| it.id == id);
    let Some(at) = at else {
        return Err(Next::Aborted("it is not in the records any more".into()));
    };
    let found = picture.moves[at].clone();
    match found.state {
        MoveState::Copying => Ok((at, found)),
        MoveState::Done => Err(Next::Done),
        MoveState::Aborted => Err(Next::Aborted(found.why)),
    }
}

/// T11: gives the slots of a move to the other shard.
pub fn flip(listing: &Listing, id: &str) -> Next {
    let picture = match picture(listing) {
        Ok(picture) => picture,
        Err(why) => return Next::Aborted(why),
    };
    let (at, mut found) = match find(&picture, id) {
        Ok(found) => found,
        Err(next) => return next,
    };
    for side in [&found.from, &found.to] {
        if !is_primary(&picture, side) {
            let why = format!("the node {} is not the primary any more", side.primary.node);
            return Next::Aborted(why);
        }
    }
    let mut owners = picture.owners().clone();
    for (first, last) in &found.runs {
        for slot in *first..=*last {
            if owners.of_slot(slot) != Some(&found.from.shard) {
                return Next::Aborted(format!("slot {slot} has another owner"));
            }
        }
        owners.give(*first..=*last, Some(&found.to.shard));
    }
    let keys = vec![
        MAP_KEY.to_owned(),
        format!("{SHARDS}{}", found.from.shard),
        format!("{SHARDS}{}", found.to.shard),
    ];
    found.state = MoveState::Done;
    let mut moves = picture.moves;
    moves[at] = found;
    let map = put(MAP_KEY, &owners.to_map());
    Next::Transaction(change(listing, moves, keys, vec![map]))
}

/// T12: gives a move up.
pub fn abort(listing: &Listing, id: &str, why: &str) -> Next {
    let picture = match picture(listing) {
        Ok(picture) => picture,
        Err(why) => return Next::Aborted(why),
    };
    let (at, mut found) = match find(&picture, id) {
        Ok(found) => found,
        Err(next) => return next,
    };
    found.state = MoveState::Aborted;
    why.clone_into(&mut found.why);
    let mut moves = picture.moves;
    moves[at] = found;
    Next::Transaction(change(listing, moves, Vec::new(), Vec::new()))
}

/// T12 for all such moves that are under way; `None`: there are none.
pub fn abort_all(
    listing: &Listing,
    is_such: impl Fn(&Move) -> bool,
    why: &str,
) -> Result<Option<Transaction>, String> {
    let mut moves = picture(listing)?.moves;
    let mut any = false;
    for found in moves
        .iter_mut()
        .filter(|it| it.is_under_way() && is_such(it))
    {
        found.state = MoveState::Aborted;
        why.clone_into(&mut found.why);
        any = true;
    }
    Ok(any.then(|| change(listing, moves, Vec::new(), Vec::new())))
}

/// T13: forgets a move that has ended; `None`: it is not there, or goes on.
pub fn clean(listing: &Listing, id: &str) -> Option<Transaction> {
    let picture = picture(listing).ok()?;
    let mut moves = picture.moves;
    let at = moves.iter().position(|it| it.id == id)?;
    if moves[at].is_under_way() {
        return None;
    }
    moves.remove(at);
    Some(change(listing, moves, Vec::new(), Vec::new()))
}

/// Returns true if a side of a move has the primary with which it began.
pub fn is_primary(picture: &Picture, side: &Side) -> bool {
    let shard = picture.shards.get(&side.shard);
    shard.is_some_and(|shard| shard.primary == side.primary)
}

#[cfg(test)]
mod tests;
