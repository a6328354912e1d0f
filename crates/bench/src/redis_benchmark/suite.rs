//! The built-in tests: their names and requests, and the order of those of each release.
//!
//! Knows no socket; a test is an argument list (or inline text) that `batch` renders.

use redline_resp::push_header;

use crate::redis_benchmark::batch::{BATCH_BYTES_MAX, TooLarge};
use crate::redis_benchmark::compat::Compat;

/// One test of a suite.
#[derive(Debug)]
pub struct Test {
    /// The names under which `-t` selects it.
    names: &'static [&'static str],
    /// Name of the test in reports.
    pub title: &'static str,
    /// The request that the test sends.
    request: Request,
}

#[derive(Clone, Copy, Debug)]
enum Request {
    /// Sent unchanged.
    Inline(&'static [u8]),
    /// Sent as an array of bulk strings.
    Command(&'static [Word]),
}

#[derive(Clone, Copy, Debug)]
enum Word {
    /// Sent unchanged.
    Text(&'static str),
    /// The test's own key; in a cluster with a tag after it.
    Key(&'static str),
    /// A key with a random number at its end; in a cluster with a tag after it.
    Keys(&'static str),
    /// The payload of `-d`.
    Payload,
    /// A random number with `-r`, else 0.
    Score,
}

use Word::{Key, Keys, Payload, Score, Text};

impl Test {
    /// Returns the request's bytes with a payload of this many, with `__rand_int__` for a random number, and `{tag}` for
    /// a hash tag, if keys are to have one.
    pub fn render(
        &self,
        payload: &PayloadSource,
        payload_bytes: usize,
        random: bool,
        tagged: bool,
    ) -> Result<Vec<u8>, TooLarge> {
        let texts = match self.request {
            Request::Inline(text) => return Ok(text.to_vec()),
            Request::Command(words) => texts(words, random, tagged),
        };
        let length = |text: &Option<String>| text.as_ref().map_or(payload_bytes, String::len);
        let bytes: usize = texts
            .iter()
            .map(|text| length(text) + FRAME_BYTES_MAX)
            .sum();
        if bytes > BATCH_BYTES_MAX {
            return Err(TooLarge);
        }
        // A large payload is made in place, and held once.
        let mut out = Vec::with_capacity(bytes + FRAME_BYTES_MAX);
        let mut made_at = None;
        push_header(&mut out, b'*', texts.len() as i64);
        for text in &texts {
            push_header(&mut out, b'$', length(text) as i64);
            match (text, made_at) {
                (Some(text), _) => out.extend_from_slice(text.as_bytes()),
                (None, Some(at)) => out.extend_from_within(at..at + payload_bytes),
                (None, None) => {
                    made_at = Some(out.len());
                    payload.clone().append(payload_bytes, &mut out);
                }
            }
            out.extend_from_slice(b"\r\n");
        }
        Ok(out)
    }
}

impl Test {
    /// Returns the request's words, with `None` for the payload, as [`Test::render`] has them.
    pub fn words(&self, random: bool, tagged: bool) -> Vec<Option<String>> {
        match self.request {
            Request::Inline(text) => {
                let text = String::from_utf8_lossy(text);
                text.split_whitespace()
                    .map(|word| Some(word.to_owned()))
                    .collect()
            }
            Request::Command(words) => texts(words, random, tagged),
        }
    }
}

fn texts(words: &[Word], random: bool, tagged: bool) -> Vec<Option<String>> {
    let tag = if tagged { ":{tag}" } else { "" };
    let text = |word: &Word| match word {
        Text(text) => Some((*text).to_owned()),
        Key(name) => Some(format!("{name}{tag}")),
        Keys(name) => Some(format!("{name}{tag}:__rand_int__")),
        Payload => None,
        Score if random => Some("__rand_int__".to_owned()),
        Score => Some("0".to_owned()),
    };
    words.iter().map(text).collect()
}

/// Returns the tests of `compat` that `-t` selects, in their order. Unknown names select nothing.
pub fn select(compat: Compat, wanted: Option<&[String]>) -> impl Iterator<Item = &'static Test> {
    suite(compat).iter().copied().filter(move |test| {
        wanted.is_none_or(|wanted| {
            wanted
                .iter()
                .any(|name| test.names.contains(&name.as_str()))
        })
    })
}

/// Returns the names that select nothing. An empty name between commas is ignored.
pub fn unknown(compat: Compat, wanted: &[String]) -> impl Iterator<Item = &String> {
    let is_alone = wanted.len() == 1;
    let names = wanted.iter();
    let names = names.filter(move |name| is_alone || !name.is_empty());
    names.filter(move |name| {
        let mut tests = suite(compat).iter();
        !tests.any(|test| test.names.contains(&name.as_str()))
    })
}

fn suite(compat: Compat) -> &'static [&'static Test] {
    match compat {
        Compat::Redis24 => REDIS_2_4,
        Compat::Redis26 => REDIS_2_6,
        Compat::Redis5 => REDIS_5,
        Compat::Redis70 => REDIS_7_0,
        Compat::Redis8 => REDIS_8,
    }
}

/// Bytes of a header and of the line end after its word.
const FRAME_BYTES_MAX: usize = 32;

/// Source of values that are not zeroes, do not compress well, and are the same in every run.
#[derive(Clone)]
pub struct PayloadSource {
    state: u32,
}

impl PayloadSource {
    /// Returns the sequence from its start.
    pub fn new() -> PayloadSource {
        PayloadSource { state: 1234 }
    }

    /// Appends the next `bytes` bytes, each from `0` to `o`.
    fn append(&mut self, bytes: usize, out: &mut Vec<u8>) {
        out.extend((0..bytes).map(|_| self.step()));
    }

    /// Skips the next `bytes` bytes.
    pub fn skip(&mut self, bytes: usize) {
        for _ in 0..bytes {
            self.step();
        }
    }

    fn step(&mut self) -> u8 {
        self.state = self.state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        b'0' + ((self.state >> 16) & 63) as u8
    }
}

const fn test(names: &'static [&'static str], title: &'static str, words: &'static [Word]) -> Test {
    Test {
        names,
        title,
        request: Request::Command(words),
    }
}

/// Returns the same test under the title of another release.
const fn titled(test: &Test, title: &'static str) -> Test {
    Test {
        names: test.names,
        title,
        request: test.request,
    }
}

const KEY: Word = Keys("key");
const ELEMENT: Word = Text("element:__rand_int__");
const LIST: Word = Key("mylist");

static PING_INLINE: Test = Test {
    names: &["ping_inline", "ping"],
    title: "PING_INLINE",
    request: Request::Inline(b"PING\r\n"),
};
static PING_MBULK: Test = test(&["ping_mbulk", "ping"], "PING_MBULK", &[Text("PING")]);
static SET: Test = test(&["set"], "SET", &[Text("SET"), KEY, Payload]);
static GET: Test = test(&["get"], "GET", &[Text("GET"), KEY]);
static INCR: Test = test(&["incr"], "INCR", &[Text("INCR"), Keys("counter")]);
static LPUSH: Test = test(&["lpush"], "LPUSH", &[Text("LPUSH"), LIST, Payload]);
static RPUSH: Test = test(&["rpush"], "RPUSH", &[Text("RPUSH"), LIST, Payload]);
static LPOP: Test = test(&["lpop"], "LPOP", &[Text("LPOP"), LIST]);
static RPOP: Test = test(&["rpop"], "RPOP", &[Text("RPOP"), LIST]);
static SADD: Test = test(&["sadd"], "SADD", &[Text("SADD"), Key("myset"), ELEMENT]);
static HSET: Test = test(
    &["hset"],
    "HSET",
    &[Text("HSET"), Key("myhash"), ELEMENT, Payload],
);
static SPOP: Test = test(&["spop"], "SPOP", &[Text("SPOP"), Key("myset")]);
static ZADD: Test = test(
    &["zadd"],
    "ZADD",
    &[Text("ZADD"), Key("myzset"), Score, ELEMENT],
);
static ZPOPMIN: Test = test(&["zpopmin"], "ZPOPMIN", &[Text("ZPOPMIN"), Key("myzset")]);
/// Fills the list that the LRANGE tests read; runs, and is reported, if any of them is selected.
static LRANGE_FILL: Test = test(
    &[
        "lrange",
        "lrange_100",
        "lrange_300",
        "lrange_500",
        "lrange_600",
    ],
    "LPUSH (needed to benchmark LRANGE)",
    &[Text("LPUSH"), LIST, Payload],
);
static LRANGE_100: Test = lrange(
    &["lrange", "lrange_100"],
    "LRANGE_100 (first 100 elements)",
    &FIRST_100,
);
static LRANGE_300: Test = lrange(
    &["lrange", "lrange_300"],
    "LRANGE_300 (first 300 elements)",
    &FIRST_300,
);
static LRANGE_500: Test = lrange(
    &["lrange", "lrange_500"],
    "LRANGE_500 (first 500 elements)",
    &FIRST_500,
);
/// The LRANGE_500 of Redis before 7.0 read 450 elements.
static LRANGE_450: Test = lrange(
    &["lrange", "lrange_500"],
    "LRANGE_500 (first 450 elements)",
    &FIRST_450,
);
static LRANGE_600: Test = lrange(
    &["lrange", "lrange_600"],
    "LRANGE_600 (first 600 elements)",
    &FIRST_600,
);
#[rustfmt::skip]
static MSET: Test = test(
    &["mset"],
    "MSET (10 keys)",
    &[
        Text("MSET"),
        KEY, Payload, KEY, Payload, KEY, Payload, KEY, Payload, KEY, Payload,
        KEY, Payload, KEY, Payload, KEY, Payload, KEY, Payload, KEY, Payload,
    ],
);
static XADD: Test = test(
    &["xadd"],
    "XADD",
    &[
        Text("XADD"),
        Key("mystream"),
        Text("*"),
        Text("myfield"),
        Payload,
    ],
);

type Range = [Word; 4];
const fn range(last: &'static str) -> Range {
    [Text("LRANGE"), LIST, Text("0"), Text(last)]
}
static FIRST_100: Range = range("99");
static FIRST_300: Range = range("299");
static FIRST_450: Range = range("449");
static FIRST_500: Range = range("499");
static FIRST_600: Range = range("599");

const fn lrange(
    names: &'static [&'static str],
    title: &'static str,
    words: &'static Range,
) -> Test {
    test(names, title, words)
}

#[rustfmt::skip]
static REDIS_7_0: &[&Test] = &[
    &PING_INLINE, &PING_MBULK, &SET, &GET, &INCR, &LPUSH, &RPUSH, &LPOP, &RPOP, &SADD, &HSET, &SPOP, &ZADD, &ZPOPMIN,
    &LRANGE_FILL, &LRANGE_100, &LRANGE_300, &LRANGE_500, &LRANGE_600, &MSET,
];

#[rustfmt::skip]
static REDIS_8: &[&Test] = &[
    &PING_INLINE, &PING_MBULK, &SET, &GET, &INCR, &LPUSH, &RPUSH, &LPOP, &RPOP, &SADD, &HSET, &SPOP, &ZADD, &ZPOPMIN,
    &LRANGE_FILL, &LRANGE_100, &LRANGE_300, &LRANGE_500, &LRANGE_600, &MSET, &XADD,
];

static PING_BULK: Test = titled(&PING_MBULK, "PING_BULK");

#[rustfmt::skip]
static REDIS_5: &[&Test] = &[
    &PING_INLINE, &PING_BULK, &SET, &GET, &INCR, &LPUSH, &RPUSH, &LPOP, &RPOP, &SADD, &HSET, &SPOP,
    &LRANGE_FILL, &LRANGE_100, &LRANGE_300, &LRANGE_450, &LRANGE_600, &MSET,
];

#[rustfmt::skip]
static REDIS_2_6: &[&Test] = &[
    &PING_INLINE, &PING_BULK, &SET, &GET, &INCR, &LPUSH, &LPOP, &SADD, &SPOP,
    &LRANGE_FILL, &LRANGE_100, &LRANGE_300, &LRANGE_450, &LRANGE_600, &MSET,
];

#[rustfmt::skip]
static REDIS_2_4: &[&Test] = &[
    &PING_INLINE_2_4, &PING_2_4, &MSET, &SET, &GET, &INCR, &LPUSH, &LPOP, &SADD, &SPOP,
    &LRANGE_FILL_2_4, &LRANGE_100_2_4, &LRANGE_300_2_4, &LRANGE_450_2_4, &LRANGE_600_2_4,
];

static PING_INLINE_2_4: Test = titled(&PING_INLINE, "PING (inline)");
static PING_2_4: Test = titled(&PING_MBULK, "PING");
static LRANGE_FILL_2_4: Test = titled(&LRANGE_FILL, "LPUSH (again, in order to bench LRANGE)");
static LRANGE_100_2_4: Test = titled(&LRANGE_100, "LRANGE (first 100 elements)");
static LRANGE_300_2_4: Test = titled(&LRANGE_300, "LRANGE (first 300 elements)");
static LRANGE_450_2_4: Test = titled(&LRANGE_450, "LRANGE (first 450 elements)");
static LRANGE_600_2_4: Test = titled(&LRANGE_600, "LRANGE (first 600 elements)");

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(compat: Compat, wanted: &[&str]) -> Vec<&'static str> {
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        select(compat, (!wanted.is_empty()).then_some(&wanted))
            .map(|test| test.title)
            .collect()
    }

    /// Formats a request as `'SET' 'key:__rand_int__' 'VXK'`, the form of the golden file.
    fn shown(request: &[u8]) -> String {
        if request[0] != b'*' {
            return format!(
                "inline '{}'",
                String::from_utf8_lossy(request).escape_default()
            );
        }
        let text = String::from_utf8(request.to_vec()).unwrap();
        let arguments: Vec<String> = text
            .split("\r\n")
            .skip(2)
            .step_by(2)
            .map(|a| format!("'{a}'"))
            .collect();
        arguments.join(" ")
    }

    fn rendered(test: &Test, payload_bytes: usize, random: bool, tagged: bool) -> Vec<u8> {
        let request = test.render(&PayloadSource::new(), payload_bytes, random, tagged);
        request.unwrap()
    }

    #[test]
    fn the_suite_sends_what_redis_benchmark_sends() {
        let ours: Vec<String> = select(Compat::Redis70, None)
            .map(|test| shown(&rendered(test, 3, false, false)))
            .collect();
        let theirs: Vec<&str> = include_str!("../../tests/golden/suite_requests.txt")
            .lines()
            .collect();
        assert_eq!(ours, theirs);
    }

    #[test]
    fn zadd_scores_are_random_with_random_keys() {
        assert_eq!(
            shown(&rendered(&ZADD, 3, true, false)),
            "'ZADD' 'myzset' '__rand_int__' 'element:__rand_int__'"
        );
    }

    #[test]
    fn in_a_cluster_every_key_has_a_tag_as_redis_benchmark_writes_it() {
        let ours: Vec<String> = select(Compat::Redis70, None)
            .map(|test| shown(&rendered(test, 3, false, true)))
            .collect();
        let theirs: Vec<&str> = include_str!("../../tests/golden/cluster_requests.txt")
            .lines()
            .collect();
        assert_eq!(ours, theirs);
    }

    #[test]
    fn a_request_takes_its_room_once() {
        for test in [&SET, &MSET, &XADD] {
            let request = rendered(test, 1_000_000, false, false);
            assert!(request.capacity() < request.len() + 1000, "{}", test.title);
        }
        // Ten values of 1 GiB: refused before one is made.
        assert!(
            MSET.render(&PayloadSource::new(), 1 << 30, false, false)
                .is_err()
        );
    }

    #[test]
    fn any_lrange_test_brings_its_fill() {
        assert_eq!(
            titles(Compat::Redis70, &["lrange_300"]),
            [
                "LPUSH (needed to benchmark LRANGE)",
                "LRANGE_300 (first 300 elements)"
            ]
        );
        assert_eq!(titles(Compat::Redis70, &["lrange"]).len(), 5);
    }

    #[test]
    fn names_select_in_suite_order_and_unknown_ones_nothing() {
        assert_eq!(
            titles(Compat::Redis70, &["get", "ping"]),
            ["PING_INLINE", "PING_MBULK", "GET"]
        );
        assert!(titles(Compat::Redis70, &["nope", " set", "PING"]).is_empty());
    }

    #[test]
    fn suites_of_other_releases_are_as_published() {
        let published = "PING_INLINE PING_BULK SET GET INCR LPUSH RPUSH LPOP RPOP SADD HSET SPOP";
        let redis5 = titles(Compat::Redis5, &[]);
        assert_eq!(redis5[..12].join(" "), published);
        assert_eq!(
            redis5[12..],
            [
                "LPUSH (needed to benchmark LRANGE)",
                "LRANGE_100 (first 100 elements)",
                "LRANGE_300 (first 300 elements)",
                "LRANGE_500 (first 450 elements)",
                "LRANGE_600 (first 600 elements)",
                "MSET (10 keys)",
            ]
        );
        assert_eq!(
            titles(Compat::Redis24, &[])[..10],
            [
                "PING (inline)",
                "PING",
                "MSET (10 keys)",
                "SET",
                "GET",
                "INCR",
                "LPUSH",
                "LPOP",
                "SADD",
                "SPOP"
            ]
        );
        assert_eq!(titles(Compat::Redis8, &[]).last(), Some(&"XADD"));
        assert_eq!(titles(Compat::Redis26, &[]).len(), 15);
    }
}
