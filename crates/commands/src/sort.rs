//! SORT and SORT_RO. Their keys are known only after the elements are read: see [`View::require`].
//!
//! Must not know: how the unit acquires the stripes that it lacks.

use std::{borrow::Cow, cmp::Ordering, ops::Range};

use redline_keyspace::{Classes, Expiry, StringRef, Trace, ValueRef, View};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{DataType, Element, IntBuf, Kind, List, Set, Value, Zset, number};

use crate::{
    Ctx, Error, Failure,
    element::bulk,
    words::{Words, integer},
};

const BY_DENIED: Error =
    Error::line("ERR BY option of SORT denied due to insufficient ACL permissions.");
const GET_DENIED: Error =
    Error::line("ERR GET option of SORT denied due to insufficient ACL permissions.");
const BY_ELSEWHERE: Error = Error::line(
    "ERR BY option of SORT denied in Cluster mode when keys formed by the pattern may be in different slots.",
);
const GET_ELSEWHERE: Error = Error::line(
    "ERR GET option of SORT denied in Cluster mode when keys formed by the pattern may be in different slots.",
);
const NOT_A_NUMBER: Error = Error::line("ERR One or more scores can't be converted into double");

/// SORT key [BY pattern] [LIMIT offset count] [GET pattern …] [ASC | DESC] [ALPHA] [STORE destination]
pub(crate) fn sort(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let sort = Sort::parse(Words::new(CommandId::Sort, &args, 1), ctx)?;
    leave_packed(ctx, sort.key);
    let Some(destination) = sort.store else {
        return answer(ctx, &sort, reply);
    };
    let picked = sort.run(ctx)?;
    let (len, list) = stored(&ctx.keys, &sort, &picked);
    drop(picked);
    if len > 0 {
        ctx.keys.insert(destination, list, Expiry::Clear);
        ctx.keys.changed(Classes::LIST, "sortstore", destination);
        ctx.keys.count_changes(len as u64 - 1);
    } else if ctx.keys.remove_for_nothing(destination) {
        ctx.keys.changed(Classes::GENERIC, "del", destination);
    }
    reply.integer(len as i64);
    Ok(())
}

/// SORT_RO key [BY pattern] [LIMIT offset count] [GET pattern …] [ASC | DESC] [ALPHA]
pub(crate) fn sort_ro(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let sort = Sort::parse(Words::new(CommandId::SortRo, &args, 1), ctx)?;
    leave_packed(ctx, sort.key);
    answer(ctx, &sort, reply)
}

/// Moves a sorted set out of its packed form when it is sorted, as in Redis, where OBJECT ENCODING shows it.
fn leave_packed(ctx: &mut Ctx<'_>, key: &[u8]) {
    let found = ctx.keys.find(key, Trace::Quiet);
    if found.and_then(|found| found.kind()) == Some(Kind::Zset) {
        let changed = ctx
            .keys
            .write::<Zset, _>(key, |zset, _| zset.leave_packed());
        // A set that is too large stays as it is: it is read all the same.
        debug_assert!(matches!(changed, Ok(Some(_))));
    }
}

fn answer(ctx: &Ctx<'_>, sort: &Sort<'_>, reply: &mut Reply<'_>) -> Result<(), Failure> {
    let picked = sort.run(ctx)?;
    reply.array(picked.len() * sort.get.len().max(1));
    for item in &picked {
        if sort.get.is_empty() {
            bulk(reply, item.element);
        }
        for pattern in &sort.get {
            match pattern.find(&ctx.keys, item.element) {
                Some(Found::String(StringRef::Blob(blob))) => reply.blob(blob),
                Some(Found::String(string)) => reply.bulk(string.as_bytes()),
                Some(Found::Element(element)) => bulk(reply, element),
                Some(Found::Text(text)) => reply.bulk(&text),
                None => reply.null(),
            }
        }
    }
    Ok(())
}

/// Returns the list that STORE makes, and its length; an element that GET does not find is an empty string in it.
fn stored(keys: &View<'_>, sort: &Sort<'_>, picked: &[Item<'_>]) -> (usize, Value) {
    let limits = &keys.local.limits;
    // Which elements get a node of their own is decided as they are added.
    let mut list = List::of_nodes(limits);
    let mut push = |found: Option<Found<'_>>| {
        let mut buf = IntBuf::new();
        list.push_back(found.as_ref().map_or(b"", |f| f.bytes(&mut buf)), limits);
    };
    for item in picked {
        if sort.get.is_empty() {
            push(Some(Found::Element(item.element)));
        }
        for pattern in &sort.get {
            push(pattern.find(keys, item.element));
        }
    }
    list.convert_by_size(limits);
    (picked.len() * sort.get.len().max(1), list.into())
}

/// Returns true if all keys that a pattern makes are in the slot of the sorted key, or the server has no slots.
fn stays_in_slot(ctx: &Ctx<'_>, key: &[u8], pattern: &[u8]) -> bool {
    !ctx.keys.space().is_of_cluster()
        || redline_slot::slot_of_pattern(pattern) == Some(redline_slot::slot_of(key))
}

/// Options of a call.
struct Sort<'a> {
    key: &'a [u8],
    /// Pattern of the keys that give each element its weight.
    by: Option<Pattern<'a>>,
    /// True if BY is the same for all elements: they stay in their order.
    keep_order: bool,
    descending: bool,
    alpha: bool,
    offset: i64,
    count: i64,
    get: Vec<Pattern<'a>>,
    store: Option<&'a [u8]>,
}

/// An element being sorted.
struct Item<'a> {
    element: Element<'a>,
    weight: Weight<'a>,
}

enum Weight<'a> {
    /// The element itself.
    Own,
    Number(f64),
    /// No weight, since the key is missing: sorts before all others.
    Missing,
    Text(Cow<'a, [u8]>),
}

impl<'a> Sort<'a> {
    fn parse(mut words: Words<'a>, ctx: &Ctx<'_>) -> Result<Sort<'a>, Error> {
        let reads_every_key = ctx.reads_every_key;
        let mut sort = Sort {
            key: words.read()?,
            by: None,
            keep_order: false,
            descending: false,
            alpha: false,
            offset: 0,
            count: -1,
            get: Vec::new(),
            store: None,
        };
        while !words.is_empty() {
            if words.flag("ASC") {
                sort.descending = false;
            } else if words.flag("DESC") {
                sort.descending = true;
            } else if words.flag("ALPHA") {
                sort.alpha = true;
            } else if let Some([offset, count]) = words.values("LIMIT") {
                (sort.offset, sort.count) = (integer(offset)?, integer(count)?);
            } else if words.id() == CommandId::Sort
                && let Some(destination) = words.value("STORE")
            {
                sort.store = Some(destination);
            } else if let Some(text) = words.value("BY") {
                let pattern = Pattern::of(text);
                // After a constant BY, a later one does not bring sorting back.
                let is_key = matches!(pattern, Pattern::Key { .. });
                if is_key && !stays_in_slot(ctx, sort.key, text) {
                    return Err(BY_ELSEWHERE);
                }
                if is_key && !reads_every_key {
                    return Err(BY_DENIED);
                }
                sort.keep_order |= !is_key;
                sort.by = Some(pattern);
            } else if let Some(pattern) = words.value("GET") {
                if c_text(pattern) != b"#" && !stays_in_slot(ctx, sort.key, pattern) {
                    return Err(GET_ELSEWHERE);
                }
                if !reads_every_key {
                    return Err(GET_DENIED);
                }
                sort.get.push(Pattern::of(pattern));
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(sort)
    }

    /// Returns the elements of the reply, in order. Counts no access before all keys are known to be held.
    fn run<'v>(&self, ctx: &'v Ctx<'_>) -> Result<Vec<Item<'v>>, Failure> {
        let keys = &ctx.keys;
        let source = match keys.find(self.key, Trace::Quiet).map(|found| found.value()) {
            None => None,
            Some(value) => match Source::of(value) {
                None => {
                    keys.find(self.key, Trace::Read);
                    return Err(Error::WrongType.into());
                }
                source => source,
            },
        };
        // A set has no order of its own: where that would show in a file or a replica, the elements get one.
        let force_order =
            matches!(source, Some(Source::Set(_))) && (self.store.is_some() || ctx.in_script);
        let keep_order = self.keep_order && !force_order;
        let by = if self.keep_order { None } else { self.by };
        let alpha = self.alpha || (self.keep_order && force_order);

        let range = self.range(source.map_or(0, Source::len));
        let mut items: Vec<Item<'v>> = match source {
            None => Vec::new(),
            Some(source) if keep_order => self.in_order(source, range.clone()),
            Some(source) => source.items(),
        };
        let range = if keep_order { 0..items.len() } else { range };
        if !keep_order && by.is_none() {
            if let Err(error) = weigh_own(&mut items, alpha) {
                keys.find(self.key, Trace::Read);
                return Err(error.into());
            }
            self.order(&mut items, &range, alpha);
        }
        let outgoing = if by.is_none() {
            &items[range.clone()]
        } else {
            &items
        };
        let wanted = outgoing.iter().flat_map(|item| {
            let patterns = by.iter().chain(&self.get);
            patterns.filter_map(|pattern| pattern.key(item.element))
        });
        keys.require(self.store.map(<[u8]>::to_vec).into_iter().chain(wanted))?;

        keys.find(self.key, Trace::Read);
        if let Some(by) = by {
            weigh_by(&mut items, keys, by, alpha)?;
            self.order(&mut items, &range, alpha);
        }
        items.truncate(range.end);
        items.drain(..range.start);
        Ok(items)
    }

    /// Returns the positions that LIMIT leaves.
    fn range(&self, len: usize) -> Range<usize> {
        let clamp = |n: i64| usize::try_from(n.max(0)).unwrap_or(usize::MAX).min(len);
        let start = clamp(self.offset);
        let end = match self.count {
            ..0 => len,
            count => start + clamp(count).min(len - start),
        };
        start..end
    }

    /// Returns a range of the elements in their present order; DESC reverses lists and sorted sets.
    fn in_order<'v>(&self, source: Source<'v>, range: Range<usize>) -> Vec<Item<'v>> {
        let len = range.len();
        match source {
            Source::List(list) if self.descending => {
                let to = list.len() - range.start;
                list.iter_to(to).rev().take(len).map(Item::of).collect()
            }
            Source::List(list) => list
                .iter_from(range.start)
                .take(len)
                .map(Item::of)
                .collect(),
            Source::Zset(zset) if self.descending => {
                let ranks = zset.len() - range.end..zset.len() - range.start;
                zset.range(ranks).rev().map(|(e, _)| Item::of(e)).collect()
            }
            Source::Zset(zset) => zset.range(range).map(|(e, _)| Item::of(e)).collect(),
            Source::Set(set) => set
                .iter()
                .skip(range.start)
                .take(len)
                .map(Item::of)
                .collect(),
        }
    }

    /// Sorts the elements, or at least those at the positions of the range.
    fn order(&self, items: &mut Vec<Item<'_>>, range: &Range<usize>, alpha: bool) {
        let collate = alpha && self.store.is_none();
        let compare = |a: &Item<'_>, b: &Item<'_>| {
            let order = a.compare(b, alpha, collate);
            if self.descending {
                order.reverse()
            } else {
                order
            }
        };
        if range.end < items.len() {
            if range.is_empty() {
                return;
            }
            items.select_nth_unstable_by(range.end - 1, compare);
            items[..range.end].sort_by(compare);
        } else {
            items.sort_by(compare);
        }
    }
}

/// A value that can be sorted.
#[derive(Clone, Copy)]
enum Source<'v> {
    List(&'v List),
    Set(&'v Set),
    Zset(&'v Zset),
}

impl<'v> Source<'v> {
    fn of(value: ValueRef<'v>) -> Option<Source<'v>> {
        match value {
            ValueRef::Object(Value::List(list)) => Some(Source::List(list)),
            ValueRef::Object(Value::Set(set)) => Some(Source::Set(set)),
            ValueRef::Object(Value::Zset(zset)) => Some(Source::Zset(zset)),
            _ => None,
        }
    }

    fn len(self) -> usize {
        match self {
            Source::List(list) => list.len(),
            Source::Set(set) => set.len(),
            Source::Zset(zset) => zset.len(),
        }
    }

    fn items(self) -> Vec<Item<'v>> {
        match self {
            Source::List(list) => list.iter().map(Item::of).collect(),
            Source::Set(set) => set.iter().map(Item::of).collect(),
            Source::Zset(zset) => zset.iter().map(|(element, _)| Item::of(element)).collect(),
        }
    }
}

fn weigh_own(items: &mut [Item<'_>], alpha: bool) -> Result<(), Error> {
    if alpha {
        return Ok(());
    }
    for item in items {
        item.weight = Weight::Number(match item.element {
            Element::Int(value) => value as f64,
            Element::Bytes(text) => number::parse_weight(text).ok_or(NOT_A_NUMBER)?,
        });
    }
    Ok(())
}

fn weigh_by<'v>(
    items: &mut [Item<'v>],
    keys: &'v View<'_>,
    by: Pattern<'_>,
    alpha: bool,
) -> Result<(), Error> {
    let mut failed = false;
    for item in items {
        let mut buf = IntBuf::new();
        item.weight = match by.find(keys, item.element) {
            None if alpha => Weight::Missing,
            None => Weight::Number(0.0),
            Some(found) if alpha => Weight::Text(found.into_bytes()),
            Some(found) => {
                let number = number::parse_weight(found.bytes(&mut buf));
                failed |= number.is_none();
                Weight::Number(number.unwrap_or(0.0))
            }
        };
    }
    // All keys have been looked up, as Redis does before it fails.
    if failed { Err(NOT_A_NUMBER) } else { Ok(()) }
}

impl<'a> Item<'a> {
    fn of(element: Element<'a>) -> Item<'a> {
        Item {
            element,
            weight: Weight::Own,
        }
    }

    /// Compares two elements. `collate`: as texts by the locale, of which a zero byte is the end; otherwise as bytes.
    fn compare(&self, other: &Item<'_>, alpha: bool, collate: bool) -> Ordering {
        match (&self.weight, &other.weight) {
            (Weight::Number(a), Weight::Number(b)) => a
                .partial_cmp(b)
                .unwrap_or(Ordering::Equal)
                .then_with(|| self.compare_elements(other, false)),
            (Weight::Text(a), Weight::Text(b)) => compare_bytes(a, b, collate),
            (Weight::Missing, Weight::Text(_)) => Ordering::Less,
            (Weight::Text(_), Weight::Missing) => Ordering::Greater,
            (Weight::Missing, Weight::Missing) => Ordering::Equal,
            _ => self.compare_elements(other, alpha && collate),
        }
    }

    fn compare_elements(&self, other: &Item<'_>, collate: bool) -> Ordering {
        let (mut a, mut b) = (IntBuf::new(), IntBuf::new());
        compare_bytes(
            self.element.bytes(&mut a),
            other.element.bytes(&mut b),
            collate,
        )
    }
}

fn compare_bytes(a: &[u8], b: &[u8], collate: bool) -> Ordering {
    if collate {
        c_text(a).cmp(c_text(b))
    } else {
        a.cmp(b)
    }
}

/// Returns the bytes before the first zero byte.
fn c_text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Lookup that BY or GET does for an element.
#[derive(Clone, Copy)]
enum Pattern<'a> {
    /// `#`: the element itself.
    Element,
    /// No position for the element: finds nothing.
    Constant,
    /// A key that contains the element; with a field, the value of that field of the hash in it.
    Key {
        before: &'a [u8],
        after: &'a [u8],
        field: Option<&'a [u8]>,
    },
}

/// Result of the lookup of a pattern.
enum Found<'a> {
    String(StringRef<'a>),
    Element(Element<'a>),
    Text(Vec<u8>),
}

impl<'a> Pattern<'a> {
    /// Reads a pattern. Redis takes it as a C string, up to its first zero byte, but its parts whole.
    fn of(text: &'a [u8]) -> Pattern<'a> {
        let visible = c_text(text);
        if visible == b"#" {
            return Pattern::Element;
        }
        let Some(star) = visible.iter().position(|byte| *byte == b'*') else {
            return Pattern::Constant;
        };
        let arrow = visible[star + 1..]
            .windows(2)
            .position(|pair| pair == b"->");
        let arrow = arrow.map(|at| star + 1 + at);
        let (end, field) = match arrow {
            Some(at) if at + 2 < visible.len() => (at, Some(&text[at + 2..])),
            _ => (text.len(), None),
        };
        Pattern::Key {
            before: &text[..star],
            after: &text[star + 1..end],
            field,
        }
    }

    /// Returns the key that is looked up for an element.
    fn key(&self, element: Element<'_>) -> Option<Vec<u8>> {
        let Pattern::Key { before, after, .. } = self else {
            return None;
        };
        Some([before, element.bytes(&mut IntBuf::new()), after].concat())
    }

    /// Returns the value that the pattern finds for an element. Counts as an access of the key.
    fn find<'v>(&self, keys: &'v View<'_>, element: Element<'v>) -> Option<Found<'v>> {
        let Pattern::Key { field, .. } = self else {
            return matches!(self, Pattern::Element).then_some(Found::Element(element));
        };
        let key = self.key(element)?;
        let Some(field) = field else {
            return keys.string(&key).ok().flatten().map(Found::String);
        };
        // Copied: there may be as many hashes as elements, and none of them may stay open.
        let text = keys.find(&key, Trace::Read)?.with(|value| match value {
            ValueRef::Object(Value::Hash(hash)) => hash.get(field).map(Element::to_vec),
            _ => None,
        });
        text.map(Found::Text)
    }
}

impl<'a> Found<'a> {
    fn bytes<'b>(&'b self, buf: &'b mut IntBuf) -> &'b [u8] {
        match self {
            Found::String(string) => string.as_bytes(),
            Found::Element(element) => element.bytes(buf),
            Found::Text(text) => text,
        }
    }

    fn into_bytes(self) -> Cow<'a, [u8]> {
        match self {
            Found::String(string) => Cow::Borrowed(string.as_bytes()),
            Found::Element(Element::Bytes(bytes)) => Cow::Borrowed(bytes),
            Found::Element(element) => Cow::Owned(element.to_vec()),
            Found::Text(text) => Cow::Owned(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    #[test]
    fn numbers_and_texts() {
        let mut db = TestDb::new();
        db.script(&[
            ("SORT none", "*0"),
            ("RPUSH l 3 10 -1 2.5", ":4"),
            ("SORT l", "*4|$2|-1|$3|2.5|$1|3|$2|10"),
            ("SORT l DESC", "*4|$2|10|$1|3|$3|2.5|$2|-1"),
            ("SORT l ALPHA", "*4|$2|-1|$2|10|$3|2.5|$1|3"),
            ("SORT l LIMIT 1 2", "*2|$3|2.5|$1|3"),
            ("SORT l LIMIT -5 1", "*1|$2|-1"),
            ("SORT l LIMIT 4 2", "*0"),
            ("SORT l LIMIT 0 0", "*0"),
            ("SORT l BY nosort", "*4|$1|3|$2|10|$2|-1|$3|2.5"),
            ("SORT l BY nosort DESC LIMIT 1 2", "*2|$2|-1|$2|10"),
            ("RPUSH l x", ":5"),
            (
                "SORT l",
                "-ERR One or more scores can't be converted into double",
            ),
            ("SADD s a b", ":2"),
            ("SORT s ALPHA DESC", "*2|$1|b|$1|a"),
            ("ZADD z 1 x 2 y 3 w", ":3"),
            ("SORT z BY nosort DESC LIMIT 0 2", "*2|$1|w|$1|y"),
            ("SORT z BY nosort LIMIT 1 2", "*2|$1|y|$1|w"),
            ("SORT_RO z ALPHA", "*3|$1|w|$1|x|$1|y"),
            ("OBJECT ENCODING z", "$8|skiplist"),
            ("SORT_RO z STORE d", "-ERR syntax error"),
            ("SORT z LIMIT 1", "-ERR syntax error"),
            (
                "SORT z LIMIT a 1",
                "-ERR value is not an integer or out of range",
            ),
            ("SET str v", "+OK"),
            (
                "SORT str",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
        ]);
    }

    #[test]
    fn patterns() {
        let mut db = TestDb::new();
        db.script(&[
            ("RPUSH l 1 2 3", ":3"),
            ("MSET w1 30 w2 20 w3 10 t1 a t2 c t3 b", "+OK"),
            ("HSET h1 f x", ":1"),
            ("SORT l BY w*", "*3|$1|3|$1|2|$1|1"),
            ("SORT l BY t* ALPHA", "*3|$1|1|$1|3|$1|2"),
            (
                "SORT l GET # GET w* GET h*->f",
                "*9|$1|1|$2|30|$1|x|$1|2|$2|20|$-1|$1|3|$2|10|$-1",
            ),
            ("SORT l GET const", "*3|$-1|$-1|$-1"),
            ("SORT l GET h*->", "*3|$-1|$-1|$-1"),
            ("SORT l BY none* DESC", "*3|$1|3|$1|2|$1|1"),
            ("DEL t1", ":1"),
            ("SORT l BY t* ALPHA", "*3|$1|1|$1|3|$1|2"),
            (
                "SORT l BY t*",
                "-ERR One or more scores can't be converted into double",
            ),
        ]);
    }

    #[test]
    fn storing() {
        let mut db = TestDb::new();
        db.words("RPUSH l 3 1 2");
        db.events();
        db.script(&[("SORT l GET none* GET # STORE d", ":6")]);
        assert_eq!(db.changes, 6);
        db.script(&[
            ("LRANGE d 0 -1", "*6|$0||$1|1|$0||$1|2|$0||$1|3"),
            ("OBJECT ENCODING d", "$8|listpack"),
            ("SORT l STORE l", ":3"),
            ("LRANGE l 0 -1", "*3|$1|1|$1|2|$1|3"),
            ("SORT none STORE d", ":0"),
            ("SORT none STORE d", ":0"),
            ("EXISTS d", ":0"),
        ]);
        let events = db.events();
        let told: Vec<_> = events
            .iter()
            .filter(|event| !event.starts_with("keymiss"))
            .collect();
        assert_eq!(told, ["sortstore d", "sortstore l", "del d"]);
    }

    #[test]
    fn texts_end_at_a_zero_byte_unless_they_are_stored() {
        let mut db = TestDb::new();
        db.run(&[&b"RPUSH"[..], b"l", b"a\0z", b"a\0b"]);
        assert_eq!(db.words("SORT l ALPHA"), "*2|$3|a\0z|$3|a\0b");
        assert_eq!(db.words("SORT l ALPHA STORE d"), ":2");
        assert_eq!(db.words("LRANGE d 0 -1"), "*2|$3|a\0b|$3|a\0z");
    }
}
