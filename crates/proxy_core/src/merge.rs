//! Merging the replies of several servers. Bytes in, bytes out; must not know connections.
//!
//! An error of any part is the reply to the whole, the first one in the order of the parts: a key whose server failed
//! must not look like a missing key.

use std::collections::HashSet;

use redline_cluster::SLOTS;
use redline_resp::{Framer, ReplyDecoder, Value, push_header};

use crate::class::Merge;
use crate::gather::Gather;

/// Smallest factor of shard numbers in cursors: a cluster has no more shards than slots.
const SCAN_STEP_MIN: u32 = SLOTS as u32;
/// The reply if a part does not have the form of the command's reply.
pub const MALFORMED: &[u8] = b"-ERR a server's reply does not fit the command\r\n";
const CURSOR_TOO_LARGE: &[u8] =
    b"-ERR a server's cursor leaves no room for the number of its shard\r\n";

/// Appends the merged reply.
pub fn merge(gather: &Gather, out: &mut Vec<u8>) {
    let parts: Vec<&[u8]> = gather
        .parts
        .iter()
        .map(|(start, end)| &gather.bytes[*start..*end])
        .collect();
    if gather.merge != Merge::AnyOk
        && let Some(error) = parts.iter().find(|part| is_error(part))
    {
        return out.extend_from_slice(error);
    }
    let start = out.len();
    let merged = match gather.merge {
        Merge::Elements => elements(&parts, &gather.order, out),
        Merge::Sum => numbers(&parts, out, sum),
        Merge::Min => minimum(&parts, out),
        Merge::Max => numbers(&parts, out, |numbers| {
            numbers.iter().copied().max().unwrap_or(0)
        }),
        Merge::AllOk | Merge::First | Merge::Commands(_) => first(&parts, out),
        Merge::AnyOk => first_without_error(&parts, out),
        Merge::AnyValue => any_value(&parts, out),
        Merge::Concat => concat(&parts, out),
        Merge::Distinct => distinct(&parts, out),
        Merge::And => and(&parts, out),
        Merge::SumByName => sum_by_name(&parts, out),
        Merge::Scan => scanned(&parts, gather.scanned, out),
    };
    if merged.is_none() {
        out.truncate(start);
        out.extend_from_slice(MALFORMED);
    }
}

fn is_error(reply: &[u8]) -> bool {
    matches!(reply.first(), Some(b'-' | b'!'))
}

fn first(parts: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
    out.extend_from_slice(parts.first()?);
    Some(())
}

fn first_without_error(parts: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
    let found = parts.iter().find(|part| !is_error(part));
    // NOTBUSY of one server says nothing about another one's script.
    let says_more = |part: &&&[u8]| !part.starts_with(b"-NOTBUSY ");
    let found = found.or_else(|| parts.iter().find(says_more));
    out.extend_from_slice(found.or(parts.first())?);
    Some(())
}

fn any_value(parts: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
    let is_null = |part: &[u8]| part == b"$-1\r\n" || part == b"_\r\n";
    let found: Vec<&&[u8]> = parts.iter().filter(|part| !is_null(part)).collect();
    out.extend_from_slice(fastrand::choice(found).or(parts.first())?);
    Some(())
}

/// Returns the number of elements of an array (or a set), and what follows its header.
fn array(reply: &[u8]) -> Option<(usize, &[u8])> {
    match reply.first()? {
        b'*' | b'~' => aggregate(reply),
        _ => None,
    }
}

/// Returns the number of elements of an array or a set, of pairs of a map, and what follows its header.
fn aggregate(reply: &[u8]) -> Option<(usize, &[u8])> {
    if !matches!(reply.first()?, b'*' | b'~' | b'%') {
        return None;
    }
    let end = reply.iter().position(|byte| *byte == b'\n')?;
    let count = std::str::from_utf8(&reply[1..end - 1]).ok()?.parse().ok()?;
    Some((count, &reply[end + 1..]))
}

fn header(out: &mut Vec<u8>, count: usize) {
    push_header(out, b'*', count as i64);
}

fn elements(parts: &[&[u8]], order: &[u32], out: &mut Vec<u8>) -> Option<()> {
    let mut rests = Vec::with_capacity(parts.len());
    let mut count = 0;
    for part in parts {
        let (elements, rest) = array(part)?;
        count += elements;
        rests.push(rest);
    }
    if count != order.len() {
        return None;
    }
    out.reserve(parts.iter().map(|part| part.len()).sum());
    header(out, count);
    let mut framer = Framer::new();
    for &part in order {
        let rest = &mut rests[part as usize];
        let (element, others) = rest.split_at(framer.next(rest).ok()??);
        out.extend_from_slice(element);
        *rest = others;
    }
    Some(())
}

fn integer(reply: &[u8]) -> Option<i64> {
    let text = reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns the sum; it saturates, since servers may send any numbers.
fn sum(numbers: &[i64]) -> i64 {
    numbers
        .iter()
        .fold(0, |sum, number| sum.saturating_add(*number))
}

fn numbers(parts: &[&[u8]], out: &mut Vec<u8>, of: impl Fn(&[i64]) -> i64) -> Option<()> {
    let numbers: Option<Vec<i64>> = parts.iter().map(|part| integer(part)).collect();
    out.extend_from_slice(format!(":{}\r\n", of(&numbers?)).as_bytes());
    Some(())
}

/// Appends the minimum of integers, or of arrays of integers, by place.
fn minimum(parts: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
    if integer(parts.first()?).is_some() {
        return numbers(parts, out, |numbers| {
            numbers.iter().copied().min().unwrap_or(0)
        });
    }
    by_place(parts, out, i64::min)
}

fn and(parts: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
    by_place(parts, out, i64::min)
}

fn by_place(parts: &[&[u8]], out: &mut Vec<u8>, of: impl Fn(i64, i64) -> i64) -> Option<()> {
    let mut all: Option<Vec<i64>> = None;
    for part in parts {
        let Value::Array(values) = decoded(part)? else {
            return None;
        };
        let numbers: Option<Vec<i64>> = values
            .iter()
            .map(|value| match value {
                Value::Integer(number) => Some(*number),
                _ => None,
            })
            .collect();
        all = Some(match all {
            None => numbers?,
            Some(all) => all
                .into_iter()
                .zip(numbers?)
                .map(|(a, b)| of(a, b))
                .collect(),
        });
    }
    let all = all?;
    header(out, all.len());
    for number in all {
        out.extend_from_slice(format!(":{number}\r\n").as_bytes());
    }
    Some(())
}

/// Appends the elements of all arrays, or the pairs of all maps.
fn concat(parts: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
    let sign = *parts.first()?.first()?;
    if parts.iter().any(|part| part.first() != Some(&sign)) {
        return None;
    }
    let parts: Option<Vec<(usize, &[u8])>> = parts.iter().map(|part| aggregate(part)).collect();
    let parts = parts?;
    let count: usize = parts.iter().map(|(count, _)| count).sum();
    push_header(out, sign, count as i64);
    for (_, rest) in parts {
        out.extend_from_slice(rest);
    }
    Some(())
}

fn distinct(parts: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
    let (mut names, mut known) = (Vec::new(), HashSet::new());
    for part in parts {
        let (count, mut rest) = array(part)?;
        for _ in 0..count {
            let (name, next) = rest.split_at(Framer::new().next(rest).ok()??);
            if known.insert(name) {
                names.push(name);
            }
            rest = next;
        }
    }
    header(out, names.len());
    names
        .into_iter()
        .for_each(|name| out.extend_from_slice(name));
    Some(())
}

fn sum_by_name(parts: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
    let mut sums: Vec<(Vec<u8>, i64)> = Vec::new();
    for part in parts {
        let Value::Array(values) = decoded(part)? else {
            return None;
        };
        for (place, pair) in values.chunks(2).enumerate() {
            let [name, Value::Integer(number)] = pair else {
                return None;
            };
            let name = name.as_bytes()?.to_vec();
            match sums.get_mut(place) {
                Some((known, sum)) if *known == name => *sum = sum.saturating_add(*number),
                _ => sums.push((name, *number)),
            }
        }
    }
    header(out, sums.len() * 2);
    for (name, sum) in sums {
        out.extend_from_slice(format!("${}\r\n", name.len()).as_bytes());
        out.extend_from_slice(&name);
        out.extend_from_slice(format!("\r\n:{sum}\r\n").as_bytes());
    }
    Some(())
}

fn decoded(reply: &[u8]) -> Option<Value> {
    ReplyDecoder::new().decode(reply).ok()?.value
}

/// Returns the factor for the cursors of the shards, so that the remainder has room for a shard's number: the same for
/// any number of shards, so that clients' cursors stay valid when a shard is added. Only a file may name more than a
/// cluster can have.
pub fn scan_step(shards: u32) -> u64 {
    u64::from(shards.next_power_of_two().max(SCAN_STEP_MIN))
}

/// Turns the cursor of one shard into that of all: the shard's number is the remainder. Redis's own cursors are so short
/// that the product fits into the clients' 64 bits; one that does not fit is an error.
fn scanned(parts: &[&[u8]], (shard, shards): (u32, u32), out: &mut Vec<u8>) -> Option<()> {
    let (2, rest) = array(parts.first()?)? else {
        return None;
    };
    let len = Framer::new().next(rest).ok()??;
    let Value::Bulk(cursor) = decoded(&rest[..len])? else {
        return None;
    };
    let own: u64 = std::str::from_utf8(&cursor).ok()?.parse().ok()?;
    let cursor = match own {
        0 if shard + 1 == shards => 0,
        0 => u64::from(shard + 1),
        own => {
            let product = own.checked_mul(scan_step(shards));
            let Some(cursor) = product.and_then(|it| it.checked_add(shard.into())) else {
                out.extend_from_slice(CURSOR_TOO_LARGE);
                return Some(());
            };
            cursor
        }
    };
    let cursor = cursor.to_string();
    header(out, 2);
    out.extend_from_slice(format!("${}\r\n{cursor}\r\n", cursor.len()).as_bytes());
    out.extend_from_slice(&rest[len..]);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(merge: impl Fn(&[&[u8]], &mut Vec<u8>) -> Option<()>, parts: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        merge(parts, &mut out).unwrap();
        out
    }

    #[test]
    fn elements_return_to_the_places_of_their_keys() {
        let parts: [&[u8]; 2] = [
            b"*2\r\n$1\r\na\r\n$-1\r\n",
            b"*3\r\n$1\r\nx\r\n$2\r\nyy\r\n$1\r\nz\r\n",
        ];
        let out = merged(|parts, out| elements(parts, &[1, 0, 1, 1, 0], out), &parts);
        assert_eq!(
            out,
            b"*5\r\n$1\r\nx\r\n$1\r\na\r\n$2\r\nyy\r\n$1\r\nz\r\n$-1\r\n"
        );
        assert!(elements(&parts, &[0, 1], &mut Vec::new()).is_none());
    }

    #[test]
    fn numbers_are_added_and_compared() {
        let added = |parts: &[&[u8]], out: &mut Vec<u8>| numbers(parts, out, sum);
        assert_eq!(merged(added, &[b":2\r\n", b":40\r\n"]), b":42\r\n");
        let most = format!(":{}\r\n", i64::MAX);
        assert_eq!(
            merged(added, &[most.as_bytes(), b":1\r\n"]),
            most.as_bytes()
        );
        assert_eq!(merged(minimum, &[b":2\r\n", b":1\r\n"]), b":1\r\n");
        assert_eq!(
            merged(and, &[b"*2\r\n:1\r\n:1\r\n", b"*2\r\n:0\r\n:1\r\n"]),
            b"*2\r\n:0\r\n:1\r\n"
        );
    }

    #[test]
    fn who_could_not_end_its_script_is_heard_before_who_runs_none() {
        let [idle, stuck, ended] = [&b"-NOTBUSY x\r\n"[..], b"-UNKILLABLE x\r\n", b"+OK\r\n"];
        for (parts, expected) in [
            (&[idle, idle][..], idle),
            (&[idle, stuck], stuck),
            (&[idle, stuck, ended], ended),
        ] {
            assert_eq!(merged(first_without_error, parts), expected);
        }
    }

    #[test]
    fn any_server_may_give_the_random_key() {
        let parts: [&[u8]; 3] = [b"$1\r\na\r\n", b"$-1\r\n", b"$1\r\nb\r\n"];
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            seen.insert(merged(any_value, &parts));
        }
        assert_eq!(Vec::from_iter(seen), [parts[0], parts[2]]);
        assert_eq!(merged(any_value, &[b"_\r\n", b"_\r\n"]), b"_\r\n");
    }

    #[test]
    fn lists_of_names_are_joined() {
        let parts: [&[u8]; 2] = [b"*1\r\n$1\r\na\r\n", b"*2\r\n$1\r\nb\r\n$1\r\nc\r\n"];
        assert_eq!(
            merged(concat, &parts),
            b"*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"
        );
        let parts: [&[u8]; 2] = [
            b"*2\r\n$1\r\nb\r\n$1\r\na\r\n",
            b"*2\r\n$1\r\na\r\n$1\r\nc\r\n",
        ];
        assert_eq!(
            merged(distinct, &parts),
            b"*3\r\n$1\r\nb\r\n$1\r\na\r\n$1\r\nc\r\n"
        );
        let parts: [&[u8]; 2] = [b"*2\r\n$1\r\na\r\n:1\r\n", b"*2\r\n$1\r\na\r\n:4\r\n"];
        assert_eq!(merged(sum_by_name, &parts), b"*2\r\n$1\r\na\r\n:5\r\n");
    }

    #[test]
    fn a_scan_goes_from_shard_to_shard() {
        let scan = |cursor: u64, shard| {
            let cursor = cursor.to_string();
            let reply = format!("*2\r\n${}\r\n{cursor}\r\n*0\r\n", cursor.len());
            let out = merged(
                |parts, out| scanned(parts, (shard, 3), out),
                &[reply.as_bytes()],
            );
            String::from_utf8(out).unwrap()
        };
        assert_eq!(scan(0, 0), "*2\r\n$1\r\n1\r\n*0\r\n");
        assert_eq!(scan(17, 1), "*2\r\n$6\r\n278529\r\n*0\r\n");
        assert_eq!(scan(0, 2), "*2\r\n$1\r\n0\r\n*0\r\n");
        // An added shard changes nothing, within the limit of a cluster.
        assert_eq!(scan_step(1), scan_step(SLOTS as u32));
        // Clients keep cursors in 64 bits.
        let last = u64::MAX / scan_step(3);
        let most = u64::MAX - scan_step(3) + 2;
        assert_eq!(scan(last, 1), format!("*2\r\n$20\r\n{most}\r\n*0\r\n"));
        assert_eq!(scan(last + 1, 1).as_bytes(), CURSOR_TOO_LARGE);
    }
}
