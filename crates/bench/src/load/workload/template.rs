//! A template of a command: words with placeholders, parsed once, rendered for every request.
//!
//! Knows no socket and no reply.
//!
//! ```text
//! GET key:{zipf:1.1,1000000}
//! SET user:{id=uniform:1000} {value:16-64} ; EXPIRE user:{id} {uniform:60-3600}
//! ```
//!
//! Words are split as redis-cli splits them (quotes, escapes). A lone `;` ends a command and begins the next: the
//! commands of one template are sent one after the other on one connection. Braces contain a number (`keys.rs` has the
//! distributions), a value (`values.rs`), or the name of one that was drawn before in the same template. Two opening
//! braces are a literal one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use redline_resp::split_words_at;

use super::keys::{Distribution, Shape, Source};
use super::values::{Content, Sizes, ValueSource};

/// A command, or several that are sent together.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// As the user wrote it.
    pub text: String,
    /// The commands' words.
    commands: Vec<Vec<Word>>,
    /// The draws of one rendering, in order.
    numbers: Vec<Distribution>,
    /// The kinds of values that occur.
    sizes: Vec<Sizes>,
}

/// A word: a sequence of parts.
type Word = Vec<Part>;

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(Vec<u8>),
    /// The number drawn at this index of `numbers`, with leading zeroes up to a width.
    Number {
        drawn: usize,
        width: usize,
    },
    /// A value of this kind.
    Value(usize),
}

impl Template {
    /// Parses `text`; `sizes` are those of a `{value}` without its own.
    pub fn parse(text: &str, sizes: &Sizes) -> Result<Template, String> {
        let mut parser = Parser {
            sizes: vec![sizes.clone()],
            numbers: Vec::new(),
            names: HashMap::new(),
        };
        let mut commands = vec![Vec::new()];
        let words = split_words_at(text.as_bytes());
        for (at, word) in words.ok_or_else(|| unbalanced(text))? {
            let mut rest = text[at..].split_ascii_whitespace();
            if rest.next() == Some(";") {
                commands.push(Vec::new());
                continue;
            }
            let word = parser.word(&word)?;
            commands.last_mut().expect("there is always one").push(word);
        }
        if commands.iter().any(Vec::is_empty) {
            return Err("there is a command without words".into());
        }
        Ok(Template {
            text: text.to_owned(),
            commands,
            numbers: parser.numbers,
            sizes: parser.sizes,
        })
    }

    /// Returns the number of requests in one rendering.
    pub fn requests(&self) -> usize {
        self.commands.len()
    }

    /// Returns the names of its commands, in upper case.
    pub fn names(&self) -> Vec<String> {
        let name = |words: &Vec<Word>| match words[0].first() {
            Some(Part::Text(text)) => String::from_utf8_lossy(text).to_ascii_uppercase(),
            _ => "?".to_owned(),
        };
        self.commands.iter().map(name).collect()
    }

    /// Returns the number of items for which each of its commands asks memcached; 0 for others.
    pub fn items_asked(&self) -> Vec<u64> {
        let asked = |(name, words): (String, &Vec<Word>)| {
            let others = match name.as_str() {
                "GET" | "GETS" => 1,
                // The time to live stands before the keys.
                "GAT" | "GATS" => 2,
                _ => words.len(),
            };
            words.len().saturating_sub(others) as u64
        };
        self.names()
            .into_iter()
            .zip(&self.commands)
            .map(asked)
            .collect()
    }

    /// Returns true if there is a value in it, or one `of_usual_size`, without its own sizes.
    pub fn has_value(&self, of_usual_size: bool) -> bool {
        let is_one =
            |part: &Part| matches!(part, Part::Value(kind) if !of_usual_size || *kind == 0);
        self.commands.iter().flatten().flatten().any(is_one)
    }

    /// Returns the numbers drawn for one rendering.
    pub fn numbers(&self) -> &[Distribution] {
        &self.numbers
    }

    /// Returns the one number that counts through its range, if there is one.
    pub fn sequence(&self) -> Option<&Distribution> {
        self.numbers
            .iter()
            .find(|number| number.shape == Shape::Sequential)
    }

    /// Returns the mean bytes of its words in one rendering; numbers count as the largest.
    pub fn mean_bytes(&self) -> f64 {
        let part = |part: &Part| match part {
            Part::Text(text) => text.len() as f64,
            Part::Number { drawn, width } => digits(self.numbers[*drawn].last()).max(*width) as f64,
            Part::Value(kind) => self.sizes[*kind].mean(),
        };
        self.commands.iter().flatten().flatten().map(part).sum()
    }

    /// Checks that memcached's text protocol can express it; the error names the part that it cannot.
    pub fn check_for(&self, protocol: Protocol) -> Result<(), String> {
        if protocol == Protocol::Resp {
            return Ok(());
        }
        let has_value = |word: &Word| word.iter().any(|part| matches!(part, Part::Value(_)));
        let is_noreply =
            |word: &Word| matches!(&word[..], [Part::Text(text)] if &text[..] == b"noreply");
        for (words, name) in self.commands.iter().zip(self.names()) {
            if NOT_SPOKEN.contains(&name.as_str()) {
                return Err(format!("{name} of memcached's is not spoken here"));
            }
            if words.iter().skip(2).any(is_noreply) {
                return Err("each request is measured by its reply: noreply has none".into());
            }
            let stores = STORES.contains(&name.as_str());
            if stores && !(3..=4).contains(&words.len()) {
                return Err(format!(
                    "{name} takes a key, a value and a time to live if wanted"
                ));
            }
            let places = words.iter().enumerate().filter(|(_, word)| has_value(word));
            if places.into_iter().any(|(place, _)| !(stores && place == 2)) {
                return Err(format!(
                    "memcached takes values of unknown size only as those that are stored: {}",
                    STORES.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// Returns the renderer for one of `threads` threads.
    pub fn renderer(
        &self,
        protocol: Protocol,
        thread: usize,
        threads: usize,
        content: Content,
        inserted: &Arc<AtomicU64>,
        random: &mut fastrand::Rng,
    ) -> Renderer {
        let mut steps = Vec::new();
        for words in &self.commands {
            if protocol == Protocol::MemcacheText {
                compile_text(words, &mut steps);
                continue;
            }
            push_text(&mut steps, format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                compile(word, &self.numbers, &self.sizes, &mut steps);
            }
        }
        Renderer {
            steps,
            sources: self
                .numbers
                .iter()
                .map(|number| number.source(thread, threads, inserted))
                .collect(),
            drawn: vec![0; self.numbers.len()],
            values: self
                .sizes
                .iter()
                .map(|sizes| ValueSource::new(sizes.clone(), content, random))
                .collect(),
        }
    }
}

/// In what words a server is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// Redis's
    #[default]
    Resp,
    /// memcached's text protocol
    #[value(name = "memcache_text")]
    MemcacheText,
}

/// Commands of memcached that send a value.
const STORES: [&str; 5] = ["SET", "ADD", "REPLACE", "APPEND", "PREPEND"];
/// Commands whose requests or replies have other forms: CAS names a version, and the meta commands.
const NOT_SPOKEN: [&str; 7] = ["CAS", "MA", "MD", "ME", "MG", "MN", "MS"];

/// Writes one template's requests, on one thread.
#[derive(Clone, Debug)]
pub struct Renderer {
    steps: Vec<Step>,
    sources: Vec<Source>,
    /// The numbers of the current rendering.
    drawn: Vec<u64>,
    values: Vec<ValueSource>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Bytes of the wire, headers included.
    Text(Vec<u8>),
    /// Digits of fixed width, whose header was written before.
    Padded { drawn: usize, width: usize },
    /// A word of variable length: `fixed` bytes of it are text.
    Word { fixed: usize, parts: Vec<Part> },
    /// Parts without framing.
    Bare(Vec<Part>),
    /// A length, a line end, the parts, a line end: the rest of a memcached command with a value.
    Block { fixed: usize, parts: Vec<Part> },
}

impl Renderer {
    /// Appends the requests of one rendering.
    #[inline]
    pub fn render(&mut self, out: &mut Vec<u8>, random: &mut fastrand::Rng) {
        for (drawn, source) in self.drawn.iter_mut().zip(&mut self.sources) {
            *drawn = source.next(random);
        }
        for step in &self.steps {
            match step {
                Step::Text(bytes) => out.extend_from_slice(bytes),
                Step::Padded { drawn, width } => push_number(out, self.drawn[*drawn], *width),
                Step::Word { fixed, parts } => {
                    out.push(b'$');
                    self.block(*fixed, parts, out, random);
                }
                Step::Bare(parts) => self.parts(parts, 0, out, random),
                Step::Block { fixed, parts } => self.block(*fixed, parts, out, random),
            }
        }
    }

    /// Appends a length, and parts of this length.
    #[inline]
    fn block(&self, fixed: usize, parts: &[Part], out: &mut Vec<u8>, random: &mut fastrand::Rng) {
        let mut value_bytes = 0;
        let mut bytes = fixed;
        for part in parts {
            match part {
                Part::Text(_) => {}
                Part::Number { drawn, width } => bytes += digits(self.drawn[*drawn]).max(*width),
                // A word has one value at most, so its size need not be kept apart.
                Part::Value(kind) => {
                    value_bytes = self.values[*kind].size(random);
                    bytes += value_bytes;
                }
            }
        }
        if bytes > LARGE_BYTES {
            // Bytes after a value must not make the buffer double for it.
            out.reserve(bytes + LARGE_BYTES);
        }
        push_number(out, bytes as u64, 0);
        out.extend_from_slice(b"\r\n");
        self.parts(parts, value_bytes, out, random);
        out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn parts(
        &self,
        parts: &[Part],
        value_bytes: usize,
        out: &mut Vec<u8>,
        random: &mut fastrand::Rng,
    ) {
        for part in parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Number { drawn, width } => push_number(out, self.drawn[*drawn], *width),
                Part::Value(kind) => self.values[*kind].append(value_bytes, out, random),
            }
        }
    }
}

/// Compiles words: those of a fixed length become text; the others are measured when they are rendered.
fn compile(word: &Word, numbers: &[Distribution], sizes: &[Sizes], steps: &mut Vec<Step>) {
    let mut fixed = 0;
    let mut is_fixed = true;
    for part in word {
        match part {
            Part::Text(text) => fixed += text.len(),
            Part::Number { drawn, width } => {
                let distribution = &numbers[*drawn];
                let grows = matches!(distribution.shape, Shape::Insert | Shape::Latest(_));
                is_fixed &= !grows && digits(distribution.last()) <= *width;
                fixed += width;
            }
            Part::Value(kind) => is_fixed &= sizes[*kind].fixed() == Some(0),
        }
    }
    if !is_fixed {
        let text = |part: &Part| match part {
            Part::Text(text) => text.len(),
            _ => 0,
        };
        steps.push(Step::Word {
            fixed: word.iter().map(text).sum(),
            parts: word.clone(),
        });
        return;
    }
    push_text(steps, format!("${fixed}\r\n").as_bytes());
    for part in word {
        match part {
            Part::Text(text) => push_text(steps, text),
            Part::Number { drawn, width } => steps.push(Step::Padded {
                drawn: *drawn,
                width: *width,
            }),
            Part::Value(_) => {}
        }
    }
    push_text(steps, b"\r\n");
}

/// Compiles a command in memcached's form: `get key`, or `set key 0 TTL LENGTH` and the value on a separate line.
fn compile_text(words: &[Word], steps: &mut Vec<Step>) {
    let name: Vec<u8> = match words[0].first() {
        Some(Part::Text(text)) => text.to_ascii_lowercase(),
        _ => Vec::new(),
    };
    let upper = String::from_utf8_lossy(&name).to_ascii_uppercase();
    let stores = STORES.contains(&upper.as_str());
    push_text(steps, &name);
    let keys = if stores { &words[1..2] } else { &words[1..] };
    for word in keys {
        push_text(steps, b" ");
        steps.push(Step::Bare(word.clone()));
    }
    if !stores {
        push_text(steps, b"\r\n");
        return;
    }
    push_text(steps, b" 0 ");
    match words.get(3) {
        Some(ttl) => steps.push(Step::Bare(ttl.clone())),
        None => push_text(steps, b"0"),
    }
    push_text(steps, b" ");
    let text = |part: &Part| match part {
        Part::Text(text) => text.len(),
        _ => 0,
    };
    steps.push(Step::Block {
        fixed: words[2].iter().map(text).sum(),
        parts: words[2].clone(),
    });
}

fn push_text(steps: &mut Vec<Step>, bytes: &[u8]) {
    match steps.last_mut() {
        Some(Step::Text(text)) => text.extend_from_slice(bytes),
        _ => steps.push(Step::Text(bytes.to_vec())),
    }
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Appends the decimal digits, with leading zeroes up to `width`.
#[inline]
fn push_number(out: &mut Vec<u8>, mut number: u64, width: usize) {
    let digits = digits(number).max(width);
    let start = out.len();
    out.resize(start + digits, b'0');
    for place in out[start..].iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
}

struct Parser {
    sizes: Vec<Sizes>,
    numbers: Vec<Distribution>,
    /// A number that was drawn under a name, and the width it was first written with.
    names: HashMap<String, (usize, usize)>,
}

impl Parser {
    fn word(&mut self, word: &[u8]) -> Result<Word, String> {
        let mut parts: Word = Vec::new();
        let mut text = Vec::new();
        let mut rest = word;
        while let Some((&byte, after)) = rest.split_first() {
            if byte != b'{' {
                text.push(byte);
                rest = after;
            } else if after.starts_with(b"{") {
                text.push(b'{');
                rest = &after[1..];
            } else {
                let end = after.iter().position(|&byte| byte == b'}');
                let end = end.ok_or_else(|| {
                    format!("\"{}\" opens a brace that nothing closes", lossy(word))
                })?;
                if !text.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut text)));
                }
                let inside = lossy(&after[..end]);
                parts.push(
                    self.placeholder(&inside)
                        .map_err(|reason| format!("{{{inside}}}: {reason}"))?,
                );
                rest = &after[end + 1..];
            }
        }
        if !text.is_empty() || parts.is_empty() {
            parts.push(Part::Text(text));
        }
        let values = parts.iter().filter(|part| matches!(part, Part::Value(_)));
        if values.count() > 1 {
            return Err(format!("\"{}\" has two values in one word", lossy(word)));
        }
        Ok(parts)
    }

    fn placeholder(&mut self, inside: &str) -> Result<Part, String> {
        if inside == "value" {
            return Ok(Part::Value(0));
        }
        if let Some(sizes) = inside.strip_prefix("value:") {
            let sizes = Sizes::parse(sizes)?;
            let known = self.sizes.iter().position(|known| *known == sizes);
            return Ok(Part::Value(known.unwrap_or_else(|| {
                self.sizes.push(sizes);
                self.sizes.len() - 1
            })));
        }
        let (inside, width) = match inside.split_once('|') {
            None => (inside, 0),
            Some((inside, width)) => match width.parse::<usize>() {
                Ok(width) if (1..=WIDTH_MAX).contains(&width) => (inside, width),
                _ => return Err(format!("a width is 1 to {WIDTH_MAX}")),
            },
        };
        if let Some(&(drawn, first_width)) = self.names.get(inside) {
            let width = if width == 0 { first_width } else { width };
            return Ok(Part::Number { drawn, width });
        }
        let (name, distribution) = match inside.split_once('=') {
            Some((name, distribution)) => (Some(name), distribution),
            None => (None, inside),
        };
        let distribution = distribution_of(distribution)?;
        self.numbers.push(distribution);
        let drawn = self.numbers.len() - 1;
        if let Some(name) = name {
            let fits = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if name.is_empty() || name == "value" || !fits {
                return Err("a name is letters, digits and underscores, and not \"value\"".into());
            }
            if self.names.insert(name.to_owned(), (drawn, width)).is_some() {
                return Err("this name has been given already".into());
            }
        }
        Ok(Part::Number { drawn, width })
    }
}

/// Digits of the largest number.
const WIDTH_MAX: usize = 20;
/// Size of words from which memory is reserved at once.
const LARGE_BYTES: usize = 64 * 1024;
const EXPONENT_MAX: f64 = 20.0;

fn distribution_of(text: &str) -> Result<Distribution, String> {
    let unknown = "there is no such placeholder. There are uniform, seq, zipf, gauss, hotspot, latest and insert, each \
                   with a colon and a range behind it, value, and names given before; {{ is a brace";
    let (shape, arguments) = text.split_once(':').ok_or(unknown)?;
    let arguments: Vec<&str> = arguments.split(',').collect();
    let (range, parameters) = arguments.split_last().ok_or(unknown)?;
    let (first, count) = range_of(range)?;
    let parameters: Vec<f64> = parameters
        .iter()
        .map(|text| {
            text.trim()
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
        })
        .collect::<Option<_>>()
        .ok_or("a parameter is no number")?;
    let exponent = |exponent: f64| {
        let fits = exponent > 0.0 && exponent <= EXPONENT_MAX;
        fits.then_some(exponent)
            .ok_or(format!("an exponent is above 0 and at most {EXPONENT_MAX}"))
    };
    let share = |share: f64| {
        let fits = (0.0..=1.0).contains(&share);
        fits.then_some(share).ok_or("a share is 0 to 1")
    };
    let shape = match (shape, parameters.as_slice()) {
        ("uniform", []) => Shape::Uniform,
        ("seq", []) => Shape::Sequential,
        ("insert", []) => Shape::Insert,
        ("zipf", [number]) => Shape::Zipf(exponent(*number)?),
        ("latest", [number]) => Shape::Latest(exponent(*number)?),
        ("gauss", []) => Shape::Gauss {
            mean: first as f64 + (count - 1) as f64 / 2.0,
            deviation: count as f64 / 6.0,
        },
        ("gauss", [mean, deviation]) if *deviation > 0.0 => Shape::Gauss {
            mean: *mean,
            deviation: *deviation,
        },
        ("hotspot", [keys, draws]) => Shape::Hotspot {
            share_of_keys: share(*keys)?,
            share_of_draws: share(*draws)?,
        },
        ("uniform" | "seq" | "insert", _) => return Err("it takes a range and nothing else".into()),
        ("zipf" | "latest", _) => return Err("it takes an exponent and a range".into()),
        ("gauss", _) => {
            return Err(
                "it takes a mean, a deviation above 0 and a range, or a range alone".into(),
            );
        }
        ("hotspot", _) => {
            return Err("it takes a share of keys, a share of draws and a range".into());
        }
        _ => return Err(unknown.into()),
    };
    Ok(Distribution {
        first,
        count,
        shape,
    })
}

/// Parses `COUNT`, for 0 to COUNT-1, or `FIRST-LAST`. Returns the first and the number of numbers.
fn range_of(text: &str) -> Result<(u64, u64), String> {
    let wrong = || "a range is COUNT, at least 1, or FIRST-LAST".to_owned();
    let number = |text: &str| {
        let number = text.trim().parse::<u64>().ok();
        number.filter(|&n| n <= NUMBER_MAX).ok_or_else(wrong)
    };
    match text.split_once('-') {
        None => match number(text)? {
            0 => Err(wrong()),
            count => Ok((0, count)),
        },
        Some((first, last)) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(wrong());
            }
            Ok((first, last - first + 1))
        }
    }
}

/// Largest number that floats represent exactly.
const NUMBER_MAX: u64 = 1 << 53;

fn unbalanced(text: &str) -> String {
    format!("a quote in \"{text}\" is not closed, or has no space behind it")
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Template, String> {
        Template::parse(text, &Sizes::parse("3").unwrap())
    }

    #[test]
    fn memcached_is_spoken_to_in_its_own_words() {
        let text = "SET k{id=seq:2} {value} {seq:60-61} ; get k{id} b ; incr n 5 ; add x yz";
        let template = parse(text).unwrap();
        assert_eq!(template.check_for(Protocol::MemcacheText), Ok(()));
        let mut random = fastrand::Rng::with_seed(2);
        let protocol = Protocol::MemcacheText;
        let content = Content::Compressible(1.0);
        let mut renderer = template.renderer(protocol, 0, 1, content, &Arc::default(), &mut random);
        let mut out = Vec::new();
        renderer.render(&mut out, &mut random);
        let said = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = said.split("\r\n").collect();
        assert_eq!((lines[0], lines[1].len()), ("set k0 0 60 3", 3));
        assert_eq!(
            lines[2..],
            ["get k0 b", "incr n 5", "add x 0 0 2", "yz", ""]
        );
        #[rustfmt::skip]
        let wrong = [
            "SET k", "GET {value}", "SET {value} v", "SET k v 1 2", "mg k v", "CAS k v 1",
            "DELETE k noreply", "SET k v noreply",
        ];
        for wrong in wrong {
            let checked = parse(wrong).unwrap().check_for(Protocol::MemcacheText);
            assert!(checked.is_err(), "{wrong}");
        }
    }

    /// Returns the requests of some renderings, as words.
    fn rendered(text: &str, renderings: usize) -> Vec<Vec<String>> {
        let mut random = fastrand::Rng::with_seed(2);
        let template = parse(text).unwrap();
        let mut renderer = template.renderer(
            Protocol::Resp,
            0,
            1,
            Content::Fixed,
            &Arc::default(),
            &mut random,
        );
        let mut out = Vec::new();
        for _ in 0..renderings {
            renderer.render(&mut out, &mut random);
        }
        let mut decoder = redline_resp::ReplyDecoder::new();
        let (mut at, mut requests) = (0, Vec::new());
        while at < out.len() {
            // A request looks like a reply that is an array of bulks.
            let decoded = decoder.decode(&out[at..]).unwrap();
            at += decoded.consumed;
            let Some(redline_resp::Value::Array(words)) = decoded.value else {
                panic!("no request at {at}: {decoded:?}");
            };
            let words = words.iter().map(|word| lossy(word.as_bytes().unwrap()));
            requests.push(words.collect());
        }
        assert_eq!(requests.len(), renderings * template.requests());
        requests
    }

    #[test]
    fn words_are_split_as_redis_cli_splits_them() {
        assert_eq!(
            rendered(r#"set  "a b\n\x41" 'c\'d;' ";" e"f" ;g"#, 1),
            [["set", "a b\nA", "c'd;", ";", "ef", ";g"]]
        );
        for wrong in ["set \"a", "set \"a\"b", "set 'a'\"b\""] {
            assert!(parse(wrong).unwrap_err().contains("not closed"), "{wrong}");
        }
    }

    #[test]
    fn numbers_have_the_length_that_they_have_or_a_width() {
        let words = rendered("GET k:{seq:8-11} {seq:8-11|2} {seq:8-11|5}x", 4);
        assert_eq!(words[0], ["GET", "k:8", "08", "00008x"]);
        assert_eq!(words[3], ["GET", "k:11", "11", "00011x"]);
        // Wider than the width: no digit is lost.
        assert_eq!(rendered("GET {seq:99-100|2}", 2)[1], ["GET", "100"]);
    }

    #[test]
    fn a_name_means_the_number_that_was_drawn() {
        let words = rendered(
            "SET u:{id=uniform:1000000|7} {value} ; EXPIRE u:{id} 9 ; GET {id|1}",
            50,
        );
        for group in words.chunks(3) {
            assert_eq!(group[0][1], group[1][1]);
            assert_eq!(
                group[0][1].trim_start_matches("u:").trim_start_matches('0'),
                group[2][1]
            );
            assert_eq!(group[0][2], "xxx");
        }
        assert_ne!(words[0][1], words[3][1]);
    }

    #[test]
    fn values_have_their_own_sizes() {
        let words = rendered(
            "SET k p{value:5}s ; SET k {value} ; SET k {value:0} ; SET k {value:1-9}",
            20,
        );
        for group in words.chunks(4) {
            assert_eq!(group[0][2], "pxxxxxs");
            assert_eq!(group[1][2], "xxx");
            assert_eq!(group[2][2], "");
            assert!((1..=9).contains(&group[3][2].len()));
        }
    }

    #[test]
    fn the_mean_size_counts_words() {
        let template = parse("SET k{seq:100} {value:10-30} ; GET {seq:5|4}").unwrap();
        assert_eq!(template.mean_bytes(), (3 + 3 + 20 + 3 + 4) as f64);
    }

    #[test]
    fn double_braces_are_braces() {
        assert_eq!(rendered("GET {{tag}:{seq:5-5}", 1), [["GET", "{tag}:5"]]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "without words"),
            ("PING ;", "without words"),
            ("GET {", "nothing closes"),
            ("GET {tag}", "no such placeholder"),
            ("GET {zip:1,2}", "no such placeholder"),
            ("GET {zipf:1000}", "an exponent and a range"),
            ("GET {zipf:0,1000}", "above 0"),
            ("GET {zipf:x,1000}", "no number"),
            ("GET {uniform:0}", "at least 1"),
            ("GET {uniform:5-4}", "FIRST-LAST"),
            ("GET {uniform:1,5}", "nothing else"),
            ("GET {hotspot:2,0.5,10}", "0 to 1"),
            ("GET {gauss:1,0,10}", "above 0"),
            ("GET {a=uniform:5} {a=uniform:5}", "already"),
            ("GET {value=uniform:5}", "a name is"),
            ("GET {uniform:5|0}", "a width"),
            ("SET k {value}{value}", "two values"),
            ("SET k {value:x}", "is no size"),
            ("GET {uniform:99999999999999999999}", "a range is"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn names_of_commands_are_known() {
        assert_eq!(parse("get a ; Set b c").unwrap().names(), ["GET", "SET"]);
        assert_eq!(parse("{seq:5}").unwrap().names(), ["?"]);
    }
}
