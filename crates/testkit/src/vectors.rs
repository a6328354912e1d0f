//! Calls about vector sets. Their grammar alone would hardly ever give two vectors of equal length, so each key has its
//! own shape, which most calls use. Must not know replies.
//!
//! Sets stay far smaller than the candidates of a search, so that both servers find exactly the nearest; and vectors are
//! drawn from many, so that few are equally near.

use fastrand::Rng;
use redline_spec::{CommandId, Row};

use crate::{
    generate::Call,
    pools::{ALL_KEYS, VECTOR_KEYS},
};

/// Largest count: for a larger one Redis allocates as much memory, or ends.
const COUNT_MAX: u64 = 1_000_000;

const ELEMENTS: &[&str] = &[
    "a", "b", "c", "d", "e", "f", "g", "h", "aa", "1", "2", "", "a b",
];
const ATTRIBUTES: &[&str] = &[
    r#"{"x":1,"s":"foo","t":true}"#,
    r#"{"x":2.5,"s":"10","n":null}"#,
    r#"{"x":"1","arr":[1,"b",null,[2]]}"#,
    r#"{"y":{"x":9},"x":-3e1}"#,
    r#"{"s":"a\"b","x":[]}"#,
    r#"{"x":1"#,
    r#"{"x":tru}"#,
    "not json",
    "",
    "{}",
];
const FILTERS: &[&str] = &[
    ".x",
    ".x == 1",
    ".x > 1 and .x < 3",
    "not (.x == 1)",
    ".s == 'foo' or .x == 2.5",
    ".s in ['foo', \"10\"]",
    "\"o\" in .s",
    "1 in .arr",
    ".x in .arr",
    ".n == null",
    "!.n",
    ".t && .x",
    ".x ** 2 == 1",
    ".x % 2 + 1 > 1",
    "-1 < .x",
    "1",
    "0",
    "''",
    ".missing",
    "(.x",
    ".x)",
    ".x == ",
    "1 2",
    ".x = 1",
    ".x @ 1",
    "[1,",
    "'open",
    "true",
    "",
    "1e",
    ".x.y",
];

/// The properties that most sets of a key have.
struct Shape {
    /// Number of components of the given vectors.
    inputs: usize,
    reduce: Option<usize>,
    quantization: &'static [&'static str],
    links: Option<&'static str>,
}

const SHAPES: [Shape; VECTOR_KEYS.len()] = [
    Shape {
        inputs: 3,
        reduce: None,
        quantization: &[],
        links: None,
    },
    Shape {
        inputs: 2,
        reduce: None,
        quantization: &["NOQUANT"],
        links: Some("8"),
    },
    Shape {
        inputs: 70,
        reduce: None,
        quantization: &["bin"],
        links: None,
    },
    Shape {
        inputs: 6,
        reduce: Some(4),
        quantization: &["Q8"],
        links: Some("4"),
    },
];

/// Returns a call of a command about vector sets.
pub(crate) fn call(rng: &mut Rng, row: &Row) -> Call {
    let at = rng.usize(..VECTOR_KEYS.len());
    let key = match rng.u8(..9) {
        0 => pick(rng, ALL_KEYS),
        _ => VECTOR_KEYS[at],
    };
    let shape = match rng.u8(..15) {
        0 => &SHAPES[rng.usize(..SHAPES.len())],
        _ => &SHAPES[at],
    };
    let mut call = words(&[row.full_name, key]);
    match row.id {
        CommandId::Vadd => add(rng, shape, &mut call),
        CommandId::Vsim => search(rng, shape, &mut call),
        CommandId::Vcard | CommandId::Vdim | CommandId::Vinfo => {}
        CommandId::Vrandmember => {
            if rng.bool() {
                let count = pick(rng, &["0", "1", "2", "5", "100", "-3", "-1", "abc", ""]);
                push(&mut call, count);
            }
        }
        id => {
            push(&mut call, pick(rng, ELEMENTS));
            let option = match id {
                CommandId::Vsetattr => Some(pick(rng, ATTRIBUTES)),
                CommandId::Vemb => Some("raw").filter(|_| rng.bool()),
                CommandId::Vlinks => Some("WITHSCORES").filter(|_| rng.bool()),
                _ => None,
            };
            call.extend(option.map(|option| option.as_bytes().to_vec()));
        }
    }
    call
}

/// Returns true if Redis would not survive a call, or would not count the attributes that it sets.
pub(crate) fn is_unwise(call: &Call) -> bool {
    let named = |name: &str| call[0].eq_ignore_ascii_case(name.as_bytes());
    let has = |option: &str| {
        let mut words = call.iter();
        words.any(|word| word.eq_ignore_ascii_case(option.as_bytes()))
    };
    let mut numbers = call.iter().filter_map(|word| {
        let text = std::str::from_utf8(word).ok()?;
        text.parse::<i64>().ok()
    });
    let uncounted = named("vadd") && has("CAS") && has("SETATTR");
    let counts = named("vsim") || named("vadd") || named("vrandmember");
    uncounted || (counts && numbers.any(|number| number.unsigned_abs() > COUNT_MAX))
}

fn add(rng: &mut Rng, shape: &Shape, call: &mut Call) {
    if let Some(outputs) = shape.reduce.filter(|_| rng.u8(..10) > 0) {
        call.extend(words(&["REDUCE", &outputs.to_string()]));
    }
    vector(rng, shape.inputs, call);
    push(call, pick(rng, ELEMENTS));
    if rng.u8(..20) > 0 {
        call.extend(words(shape.quantization));
        if let Some(links) = shape.links {
            call.extend(words(&["M", links]));
        }
    }
    for _ in 0..rng.usize(..3) {
        match rng.u8(..12) {
            0..2 => push(call, "CAS"),
            2..9 => call.extend(words(&["SETATTR", pick(rng, ATTRIBUTES)])),
            9..11 => {
                let ef = pick(rng, &["1", "10", "500", "0", "1000000", "1000001", "abc"]);
                call.extend(words(&["EF", ef]));
            }
            _ => {
                let options = ["Q8", "BIN", "NOQUANT", "M", "EF", "SETATTR", "WITHSCORES"];
                push(call, pick(rng, &options));
            }
        }
    }
}

fn search(rng: &mut Rng, shape: &Shape, call: &mut Call) {
    if rng.bool() {
        call.extend(words(&["ELE", pick(rng, ELEMENTS)]));
    } else {
        let projected = shape.reduce.filter(|_| rng.u8(..4) == 0);
        vector(rng, projected.unwrap_or(shape.inputs), call);
    }
    if rng.u8(..4) > 0 {
        push(call, "WITHSCORES");
    }
    for _ in 0..rng.usize(..4) {
        let counts = ["1", "2", "3", "5", "10", "100", "0", "-1", "abc"];
        match rng.u8(..9) {
            0 => push(call, "WITHATTRIBS"),
            1 => call.extend(words(&["COUNT", pick(rng, &counts)])),
            2 => {
                let distance = pick(
                    rng,
                    &["0.1", "0.3", "0.5", "2", "0", "-1", "nan", "inf", "x"],
                );
                call.extend(words(&["EPSILON", distance]));
            }
            3 => call.extend(words(&["EF", pick(rng, &["50", "1000", "0", "abc"])])),
            4..7 => call.extend(words(&["FILTER", pick(rng, FILTERS)])),
            7 => call.extend(words(&["FILTER-EF", pick(rng, &["1000", "0", "abc"])])),
            _ => push(
                call,
                pick(rng, &["TRUTH", "nothread", "COUNT", "WITHPAYLOADS"]),
            ),
        }
    }
}

fn vector(rng: &mut Rng, dimensions: usize, call: &mut Call) {
    let components: Vec<f32> = (0..dimensions)
        .map(|_| match rng.u8(..12) {
            0 => 0.0,
            _ => f32::from(rng.i16(-2000..2000)) / 64.0,
        })
        .collect();
    if rng.u8(..3) == 0 {
        push(call, "FP32");
        call.push(components.iter().flat_map(|x| x.to_le_bytes()).collect());
        return;
    }
    call.extend(words(&["VALUES", &dimensions.to_string()]));
    call.extend(components.iter().map(|x| x.to_string().into_bytes()));
    if rng.u8(..30) == 0 {
        let odd = pick(rng, &["nan", "inf", "0x10", "1e400", "", "abc", " 1"]);
        *call.last_mut().expect("a vector has components") = odd.as_bytes().to_vec();
    }
}

fn pick(rng: &mut Rng, pool: &[&'static str]) -> &'static str {
    pool[rng.usize(..pool.len())]
}

fn push(call: &mut Call, word: &str) {
    call.push(word.as_bytes().to_vec());
}

fn words(words: &[&str]) -> Call {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}
