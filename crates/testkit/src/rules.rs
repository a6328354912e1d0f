//! The comparison of two replies to the same call: equal to the byte if Redis defines that, else by the defined part (an
//! undefined order, a random pick, a clock, a text for people).

use redline_resp::reply_decoder::Value;
use redline_spec::{CommandId, lookup, lookup_subcommand, row};

/// The parts of two replies that must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Every byte.
    Exact,
    /// The elements, in any order.
    AnyOrder,
    /// The pairs, in any order.
    AnyPairOrder,
    /// Types and the number of elements: the elements are picked at random.
    Picked,
    /// All but the notes, which are texts for people.
    WithoutNotes,
    /// The type of the reply alone: a text for people, the state of the process.
    Type,
    /// Numbers that depend on a clock, up to a few seconds; everything else is equal.
    Clock,
    /// Everything but times and idle times, in replies about streams.
    WithoutTimes,
    /// Elements, nearest first: those at the same distance have any order, and of the farthest given some may be others
    /// at the same distance. Without scores, in any order.
    Nearest {
        /// Number of values given with each element; `scored` is true if one of them is a score.
        parts: usize,
        /// See `parts`.
        scored: bool,
    },
    /// All but random parts, and counters of the process.
    WithoutLots,
    /// A cursor, which is server-specific, and the rest by type: contents are compared by whole scans.
    Cursor,
}

/// Returns the rule for a call.
pub fn rule(words: &[Vec<u8>]) -> Rule {
    let Some(id) = words.first().and_then(|name| lookup(name)) else {
        return Rule::Exact;
    };
    let sub = words.get(1).and_then(|name| lookup_subcommand(id, name));
    let id = sub.unwrap_or(id);
    if row(id).full_name.ends_with("|help") {
        return Rule::Type; // texts for people are our own
    }
    match id {
        CommandId::CommandInfo if words.len() > 2 => Rule::WithoutNotes,
        CommandId::CommandInfo => Rule::Type,
        CommandId::Sunion | CommandId::Sinter | CommandId::Sdiff | CommandId::Keys => {
            Rule::AnyOrder
        }
        CommandId::Smembers | CommandId::Hkeys | CommandId::Hvals => Rule::AnyOrder,
        CommandId::PubsubChannels | CommandId::PubsubShardchannels => Rule::AnyOrder,
        CommandId::Hgetall | CommandId::ConfigGet => Rule::AnyPairOrder,
        CommandId::Spop
        | CommandId::Srandmember
        | CommandId::Hrandfield
        | CommandId::Zrandmember
        | CommandId::Randomkey => Rule::Picked,
        CommandId::Time
        | CommandId::Info
        | CommandId::Lolwut
        | CommandId::MemoryUsage
        | CommandId::MemoryStats
        | CommandId::MemoryDoctor
        | CommandId::MemoryMallocStats
        | CommandId::Dump
        | CommandId::ClientList
        | CommandId::ClientInfo
        | CommandId::Role
        | CommandId::Lastsave
        | CommandId::ClientId
        | CommandId::ObjectIdletime
        | CommandId::ObjectFreq
        | CommandId::CommandDocs
        // Slow calls, and their times.
        | CommandId::SlowlogGet
        | CommandId::SlowlogLen
        | CommandId::LatencyDoctor
        | CommandId::LatencyHistogram
        // Both refuse it; Redis's text is about the pipeline.
        | CommandId::ScriptDebug
        | CommandId::Hello => Rule::Type,
        CommandId::Command | CommandId::CommandCount | CommandId::CommandList => Rule::Type,
        CommandId::Ttl | CommandId::Pttl | CommandId::Expiretime | CommandId::Pexpiretime => {
            Rule::Clock
        }
        CommandId::Httl | CommandId::Hpttl | CommandId::Hexpiretime | CommandId::Hpexpiretime => {
            Rule::Clock
        }
        CommandId::Scan | CommandId::Sscan | CommandId::Hscan | CommandId::Zscan => Rule::Cursor,
        CommandId::XinfoConsumers | CommandId::XinfoStream | CommandId::Xpending => {
            Rule::WithoutTimes
        }
        CommandId::Vsim => {
            let has = |name: &str| {
                let mut words = words.iter();
                words.any(|word| word.eq_ignore_ascii_case(name.as_bytes()))
            };
            let scored = has("WITHSCORES");
            let parts = usize::from(scored) + usize::from(has("WITHATTRIBS"));
            Rule::Nearest { parts, scored }
        }
        CommandId::Vinfo => Rule::WithoutLots,
        CommandId::Vrandmember => Rule::Picked,
        CommandId::Vlinks => Rule::Type,
        CommandId::Sort | CommandId::SortRo => sort_rule(words),
        CommandId::Xadd if words.iter().any(|word| word == b"*") => Rule::Type,
        _ => Rule::Exact,
    }
}

/// Returns the rule for SORT: elements equal under `BY … ALPHA` have any order, and so has a set without sorting (`BY
/// nosort`); with LIMIT any elements may be named.
fn sort_rule(words: &[Vec<u8>]) -> Rule {
    let place = |name: &str| {
        let mut words = words.iter();
        words.position(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let pattern = place("BY").and_then(|at| words.get(at + 1));
    let is_ordered = matches!(words.get(1).and_then(|key| key.first()), Some(b'l' | b'z'));
    let open = pattern.is_some_and(|pattern| {
        place("ALPHA").is_some() || (!pattern.contains(&b'*') && !is_ordered)
    });
    match open {
        false => Rule::Exact,
        true if place("LIMIT").is_none() => Rule::AnyOrder,
        true if place("GET").is_none() => Rule::Picked,
        true => Rule::Type,
    }
}

/// Largest difference of two clocks.
const CLOCK_MS: u64 = 3000;

impl Rule {
    /// Returns true if two replies agree. Errors are compared to the byte under every rule.
    pub fn agree(self, ours: &Value, theirs: &Value) -> bool {
        if ours == theirs {
            return true;
        }
        if ours.is_error() || theirs.is_error() {
            return false;
        }
        match self {
            Rule::Exact => false,
            Rule::AnyOrder => sorted(ours, 1) == sorted(theirs, 1),
            Rule::AnyPairOrder => sorted(ours, 2) == sorted(theirs, 2),
            Rule::WithoutNotes => without_notes(ours) == without_notes(theirs),
            Rule::WithoutTimes => without_times(ours) == without_times(theirs),
            Rule::Nearest { parts, scored } => {
                nearest(ours, parts, scored) == nearest(theirs, parts, scored)
            }
            Rule::WithoutLots => without_lots(ours) == without_lots(theirs),
            Rule::Picked => shape(ours) == shape(theirs),
            Rule::Type => std::mem::discriminant(ours) == std::mem::discriminant(theirs),
            Rule::Clock => match (ours, theirs) {
                (Value::Integer(a), Value::Integer(b)) => {
                    *a > 0 && *b > 0 && a.abs_diff(*b) <= CLOCK_MS
                }
                (Value::Array(a), Value::Array(b)) => {
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Rule::Clock.agree(a, b))
                }
                _ => false,
            },
            Rule::Cursor => matches!(
                (ours, theirs),
                (Value::Array(a), Value::Array(b))
                    if a.len() == 2 && b.len() == 2 && shape(&a[0]) == shape(&b[0])
                        && matches!((&a[1], &b[1]), (Value::Array(_), Value::Array(_)))
            ),
        }
    }
}

/// Returns the elements of an aggregate, sorted, in groups of `group`; the aggregate's type first.
fn sorted(value: &Value, group: usize) -> Vec<String> {
    let mut texts: Vec<String> = match value {
        Value::Array(elements) => elements
            .chunks(group)
            .map(|chunk| format!("{chunk:?}"))
            .collect(),
        Value::Set(elements) => elements.iter().map(|e| format!("{e:?}")).collect(),
        Value::Map(pairs) => pairs.iter().map(|pair| format!("{pair:?}")).collect(),
        other => vec![format!("{other:?}")],
    };
    texts.sort_unstable();
    texts.push(kind(value).to_owned());
    texts
}

/// Returns the defined parts of a reply of VSIM: the scores in order, and the elements of each but the last. (Those of
/// the last may be some of many.) Without scores: the number of elements.
fn nearest(value: &Value, parts: usize, scored: bool) -> (String, Vec<String>, Vec<String>) {
    let entries: Vec<(String, Vec<Value>)> = match value {
        Value::Array(elements) => elements
            .chunks(1 + parts)
            .map(|entry| (format!("{:?}", entry[0]), entry[1..].to_vec()))
            .collect(),
        Value::Map(pairs) => pairs
            .iter()
            .map(|(name, value)| match value {
                Value::Array(parts) => (format!("{name:?}"), parts.clone()),
                part => (format!("{name:?}"), vec![part.clone()]),
            })
            .collect(),
        other => return (format!("{other:?}"), Vec::new(), Vec::new()),
    };
    // The seventh digit depends on the order in which floats are added.
    let digits = |score: &Value| {
        let text = match score {
            Value::Double(text) => text.clone(),
            other => String::from_utf8_lossy(other.as_bytes().unwrap_or_default()).into_owned(),
        };
        match text.parse::<f64>() {
            Ok(score) => format!("{} {:.0}", kind(value), score * 1e5),
            Err(_) => text,
        }
    };
    let score = |parts: &[Value]| scored.then(|| parts.first().map(digits).unwrap_or_default());
    let scores: Vec<String> = entries
        .iter()
        .filter_map(|(_, parts)| score(parts))
        .collect();
    let last = scores.last();
    let before_last = entries
        .iter()
        .filter(|(_, parts)| score(parts).as_ref() != last);
    let mut named: Vec<String> = before_last
        .map(|(name, parts)| {
            let others = parts.get(usize::from(scored)..).unwrap_or_default();
            format!("{name} {:?} {others:?}", score(parts))
        })
        .collect();
    named.sort_unstable();
    let head = format!("{} {}", kind(value), entries.len());
    (head, scores, if scored { named } else { Vec::new() })
}

/// Returns the fields of VINFO's reply without the layers of the graph, which are random, and the number of the set in
/// the process.
fn without_lots(value: &Value) -> Vec<String> {
    let fields: Vec<(&Value, &Value)> = match value {
        Value::Array(elements) => elements
            .chunks(2)
            .map(|pair| (&pair[0], &pair[1]))
            .collect(),
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        other => return vec![format!("{other:?}")],
    };
    let drawn = |name: &Value| {
        let names: [&[u8]; 2] = [b"max-level", b"vset-uid"];
        name.as_bytes().is_some_and(|name| names.contains(&name))
    };
    let kept = fields.into_iter().filter(|(name, _)| !drawn(name));
    kept.map(|field| format!("{field:?}")).collect()
}

/// Returns the value without the field `notes` of every map and flat map in it.
fn without_notes(value: &Value) -> Value {
    let notes = Value::Bulk(b"notes".to_vec());
    match value {
        Value::Array(elements) if elements.first() == Some(&notes) => Value::Array(
            elements[2.min(elements.len())..]
                .iter()
                .map(without_notes)
                .collect(),
        ),
        Value::Array(elements) => Value::Array(elements.iter().map(without_notes).collect()),
        Value::Set(elements) => Value::Set(elements.iter().map(without_notes).collect()),
        Value::Map(pairs) => {
            let kept = pairs.iter().filter(|(name, _)| *name != notes);
            Value::Map(
                kept.map(|(name, value)| (name.clone(), without_notes(value)))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

/// Returns the value with 0 for each time in replies of XINFO and XPENDING: in fields of that name, and in pending
/// entries, which are `id, [consumer,] time, deliveries`. A missing time (-1) stays.
pub fn without_times(value: &Value) -> Value {
    let timeless = |value: &Value| match value {
        Value::Integer(0..) => Value::Integer(0),
        other => without_times(other),
    };
    let is_time = |name: &Value| {
        let names: [&[u8]; 4] = [b"idle", b"inactive", b"seen-time", b"active-time"];
        name.as_bytes().is_some_and(|name| names.contains(&name))
    };
    match value {
        Value::Array(elements) => Value::Array(match &elements[..] {
            [id @ Value::Bulk(_), time, count @ Value::Integer(_)] => {
                vec![id.clone(), timeless(time), count.clone()]
            }
            [
                id @ Value::Bulk(_),
                consumer @ Value::Bulk(_),
                time,
                count @ Value::Integer(_),
            ] => {
                vec![id.clone(), consumer.clone(), timeless(time), count.clone()]
            }
            _ => {
                let named = |at: usize| at % 2 == 1 && is_time(&elements[at - 1]);
                let each = elements.iter().enumerate();
                each.map(|(at, value)| match named(at) {
                    true => timeless(value),
                    false => without_times(value),
                })
                .collect()
            }
        }),
        Value::Map(pairs) => {
            let each = pairs.iter().map(|(name, value)| match is_time(name) {
                true => (name.clone(), timeless(value)),
                false => (name.clone(), without_times(value)),
            });
            Value::Map(each.collect())
        }
        other => other.clone(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Simple(_) => "simple",
        Value::Error(_) => "error",
        Value::Integer(_) => "integer",
        Value::Bulk(_) => "bulk",
        Value::Array(_) => "array",
        Value::NullBulk => "null bulk",
        Value::NullArray => "null array",
        Value::Null => "null",
        Value::Boolean(_) => "boolean",
        Value::Double(_) => "double",
        Value::BigNumber(_) => "big number",
        Value::BulkError(_) => "bulk error",
        Value::Verbatim { .. } => "verbatim",
        Value::Map(_) => "map",
        Value::Set(_) => "set",
        Value::Push(_) => "push",
        Value::Attributed { .. } => "attributed",
    }
}

/// Returns the types of a reply and of all its elements.
fn shape(value: &Value) -> String {
    let inner: Vec<String> = match value {
        Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => {
            elements.iter().map(shape).collect()
        }
        Value::Map(pairs) => pairs.iter().map(|(k, v)| shape(k) + &shape(v)).collect(),
        _ => Vec::new(),
    };
    format!("{}({})", kind(value), inner.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn words(text: &str) -> Vec<Vec<u8>> {
        text.split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect()
    }

    #[test]
    fn what_redis_leaves_open_is_not_compared() {
        let ab = Value::Set(vec![bulk("a"), bulk("b")]);
        let ba = Value::Set(vec![bulk("b"), bulk("a")]);
        assert!(rule(&words("smembers s")).agree(&ab, &ba));
        assert!(!rule(&words("get s")).agree(&ab, &ba));
        let (x, y) = (
            Value::Array(vec![bulk("a"), bulk("1"), bulk("b"), bulk("2")]),
            Value::Array(vec![bulk("b"), bulk("2"), bulk("a"), bulk("1")]),
        );
        assert!(rule(&words("HGETALL h")).agree(&x, &y));
        let crossed = Value::Array(vec![bulk("a"), bulk("2"), bulk("b"), bulk("1")]);
        assert!(!rule(&words("HGETALL h")).agree(&x, &crossed));
        assert!(rule(&words("SPOP s")).agree(&bulk("a"), &bulk("b")));
        assert!(!rule(&words("SPOP s")).agree(&bulk("a"), &Value::NullBulk));
        assert!(rule(&words("PTTL k")).agree(&Value::Integer(5000), &Value::Integer(4990)));
        assert!(!rule(&words("PTTL k")).agree(&Value::Integer(5000), &Value::Integer(-1)));
    }

    #[test]
    fn of_what_is_equally_near_the_order_is_free() {
        let reply = |entries: &[(&str, &str)]| {
            let words = entries
                .iter()
                .flat_map(|(name, score)| [bulk(name), bulk(score)]);
            Value::Array(words.collect())
        };
        let scored = rule(&words("VSIM v ELE a WITHSCORES"));
        let ours = reply(&[("a", "1"), ("b", "0.5"), ("c", "0.5"), ("d", "0.1")]);
        for (theirs, agrees) in [
            (
                &[("a", "1"), ("c", "0.5"), ("b", "0.5"), ("d", "0.1")][..],
                true,
            ),
            (
                &[("a", "1"), ("b", "0.5"), ("c", "0.5"), ("e", "0.1")],
                true,
            ),
            (
                &[("a", "1"), ("b", "0.5"), ("e", "0.5"), ("d", "0.1")],
                false,
            ),
            (
                &[("a", "1"), ("b", "0.5"), ("c", "0.5"), ("d", "0.2")],
                false,
            ),
            (&[("a", "1"), ("b", "0.5"), ("c", "0.5")], false),
        ] {
            assert_eq!(scored.agree(&ours, &reply(theirs)), agrees, "{theirs:?}");
        }
        let info = |level: i64, size: i64| {
            let pair = |name: &str, number| [Value::Simple(name.into()), Value::Integer(number)];
            Value::Array([pair("max-level", level), pair("size", size)].concat())
        };
        let rule = rule(&words("VINFO v"));
        assert!(rule.agree(&info(1, 5), &info(2, 5)));
        assert!(!rule.agree(&info(1, 5), &info(1, 6)));
    }

    #[test]
    fn times_of_streams_are_not_compared_but_counts_are() {
        let consumer = |pending: i64, idle: i64| {
            let fields = [
                bulk("name"),
                bulk("c"),
                bulk("pending"),
                Value::Integer(pending),
                bulk("idle"),
                Value::Integer(idle),
            ];
            Value::Array(vec![Value::Array(fields.to_vec())])
        };
        let xinfo = rule(&words("XINFO CONSUMERS s g"));
        assert!(xinfo.agree(&consumer(1, 5), &consumer(1, 7)));
        assert!(!xinfo.agree(&consumer(1, 5), &consumer(2, 5)));
        assert!(!xinfo.agree(&consumer(1, 5), &consumer(1, -1)));
        let pending = |time: i64, deliveries: i64| {
            let numbers = [Value::Integer(time), Value::Integer(deliveries)];
            Value::Array(vec![Value::Array(
                [&[bulk("1-1"), bulk("c")], &numbers[..]].concat(),
            )])
        };
        let xpending = rule(&words("XPENDING s g - + 10"));
        assert!(xpending.agree(&pending(5, 1), &pending(6, 1)));
        assert!(!xpending.agree(&pending(5, 1), &pending(5, 2)));
    }

    #[test]
    fn an_error_is_compared_to_the_byte_under_every_rule() {
        let error = |text: &str| Value::Error(text.as_bytes().to_vec());
        assert!(!rule(&words("INFO x")).agree(&error("ERR a"), &error("ERR b")));
    }
}
