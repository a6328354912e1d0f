//! Lua 5.1's syntax for an interpreter that takes another: the text of a script is rewritten before it is compiled.
//! Must not know the interpreter's interface.
//!
//! The interpreter's language is larger than Lua 5.1, and in a few places different: an escape without meaning is an
//! error there, `!=` is an operator, `1_000` a number, and a function with `...` has no table `arg`. So a scan by the
//! rules of 5.1 finds the texts that the two read differently.
//!
//! * What 5.1 accepts is written so that both read the same. Only bytes within a line change, so lines stay where they are;
//!   a text that needs no change is not copied.
//! * What 5.1 refuses ends the text: there the interpreter finds a [`MARKER`], which is no token of either language, and
//!   fails at the latest at it. The error then tells of the marker, and [`Rewritten::mend`] puts the token of the script in
//!   its place. An error that stands before the marker comes first, as it would in 5.1.
//!
//! The scan knows tokens, not the grammar. It follows blocks and brackets as far as it must to tell where a statement
//! begins, whether a `break` is in a loop, and which function a `...` belongs to. Where the text is wrong anyway, it
//! may get these wrong; the interpreter's error then has other words, and that is all.

/// A token of neither language.
const MARKER: u8 = b'@';

const NO_LOOP: &str = "no loop to break";

/// Code that follows the parameters of a function that uses `arg`: Lua 5.1's own table, unless there is a `...` in the body.
const ARG_TABLE: &[u8] = b" local arg={n=select('#',...),...}";
const ARG_NIL: &[u8] = b" local arg";

const KEYWORDS: [&[u8]; 21] = [
    b"and",
    b"break",
    b"do",
    b"else",
    b"elseif",
    b"end",
    b"false",
    b"for",
    b"function",
    b"if",
    b"in",
    b"local",
    b"nil",
    b"not",
    b"or",
    b"repeat",
    b"return",
    b"then",
    b"true",
    b"until",
    b"while",
];

/// Result of rewriting a text. Reused from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Rewritten {
    text: Vec<u8>,
    is_changed: bool,
    has_marker: bool,
    /// The token that the marker stands for; empty if the error names none.
    near: Vec<u8>,
    /// The error, if it is not the parser's.
    words: Option<&'static str>,
}

impl Rewritten {
    /// Rewrites `source`.
    pub(crate) fn rewrite(&mut self, source: &[u8]) {
        self.text.clear();
        self.near.clear();
        self.words = None;
        let mut scan = Scan::new(source);
        let trouble = scan.run().err();
        scan.edits.sort_by_key(|edit| edit.at);
        self.has_marker = trouble.is_some();
        self.is_changed = self.has_marker || !scan.edits.is_empty();
        if !self.is_changed {
            return;
        }
        let end = trouble.as_ref().map_or(source.len(), |trouble| trouble.at);
        let mut from = 0;
        for edit in scan.edits.iter().take_while(|edit| edit.at <= end) {
            self.text.extend_from_slice(&source[from..edit.at]);
            self.text.extend_from_slice(edit.insert);
            from = edit.at + edit.cut;
        }
        self.text
            .extend_from_slice(source.get(from..end).unwrap_or_default());
        if let Some(trouble) = trouble {
            let until = trouble.seen.max(end);
            let newlines = count_newlines(&source[end..until]);
            self.text.resize(self.text.len() + newlines, b'\n');
            self.text.extend_from_slice(&[b' ', MARKER]);
            self.near = trouble.near;
            self.words = trouble.words;
        }
    }

    /// Returns the text to be compiled, `source` being what was rewritten.
    pub(crate) fn text<'a>(&'a self, source: &'a [u8]) -> &'a [u8] {
        match self.is_changed {
            true => &self.text,
            false => source,
        }
    }

    /// Appends the interpreter's error in the words that it has for the text before it was rewritten. Returns false if
    /// these are the same.
    pub(crate) fn mend(&self, error: &[u8], out: &mut Vec<u8>) -> bool {
        let at_marker: &[u8] = b" near '@'";
        let Some(said) = error.strip_suffix(at_marker).filter(|_| self.has_marker) else {
            return false;
        };
        match self.words {
            None => out.extend_from_slice(said),
            Some(words) => {
                out.extend_from_slice(&said[..place_len(said)]);
                out.extend_from_slice(words.as_bytes());
            }
        }
        if let Some(near) = self
            .near
            .split(|&byte| byte == 0)
            .next()
            .filter(|near| !near.is_empty())
        {
            out.extend_from_slice(b" near '");
            out.extend_from_slice(near);
            out.push(b'\'');
        }
        true
    }

    /// Gives back memory above `bytes_max`.
    pub(crate) fn trim(&mut self, bytes_max: usize) {
        for text in [&mut self.text, &mut self.near] {
            if text.capacity() > bytes_max {
                *text = Vec::new();
            }
        }
    }
}

/// Returns the length of the place with which an error begins: `name:12: `, where the name may hold anything.
fn place_len(error: &[u8]) -> usize {
    let ends = (0..error.len())
        .rev()
        .filter(|&at| error[at..].starts_with(b": "));
    for end in ends {
        let digits = error[..end]
            .iter()
            .rev()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if digits > 0 && error[..end - digits].ends_with(b":") {
            return end + 2;
        }
    }
    0
}

/// Counts line ends: each of `
/// `, `\r`, `\r
/// ` and `
/// \r` once.
fn count_newlines(text: &[u8]) -> usize {
    let mut count = 0;
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        at += 1;
        if is_newline(byte) {
            count += 1;
            if text
                .get(at)
                .is_some_and(|&next| is_newline(next) && next != byte)
            {
                at += 1;
            }
        }
    }
    count
}

fn is_newline(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// A place where `cut` bytes give way to `insert`.
#[derive(Debug)]
struct Edit {
    at: usize,
    cut: usize,
    insert: &'static [u8],
}

/// Reason why the text ends before its end.
#[derive(Debug)]
struct Trouble {
    /// Place of the marker.
    at: usize,
    /// Place up to which 5.1 reads before its error, for the line that it names.
    seen: usize,
    near: Vec<u8>,
    words: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Name,
    Keyword,
    Number,
    String,
    /// Anything else, by its first byte: `..` is a dot, `==` an equals sign.
    Symbol,
    End,
}

#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    kind: Kind,
    text: &'a [u8],
}

impl Token<'_> {
    fn is(&self, kind: Kind, text: &[u8]) -> bool {
        self.kind == kind && self.text == text
    }

    fn is_any(&self, kind: Kind, texts: &[&[u8]]) -> bool {
        self.kind == kind && texts.contains(&self.text)
    }

    /// Returns true if a call may follow, as the same expression.
    fn is_callable(&self) -> bool {
        matches!(self.kind, Kind::Name | Kind::String)
            || self.is_any(Kind::Symbol, &[b")", b"]", b"}"])
    }

    /// Returns true if an expression or a statement may have ended here.
    fn is_end(&self) -> bool {
        self.is_callable()
            || self.kind == Kind::Number
            || self.is(Kind::Symbol, b"...")
            || self.is_any(
                Kind::Keyword,
                &[b"nil", b"true", b"false", b"end", b"break"],
            )
    }

    /// Returns true if a function's body may begin with it, or the function may end with it.
    fn may_begin_body(&self) -> bool {
        const WORDS: [&[u8]; 10] = [
            b"do",
            b"end",
            b"for",
            b"function",
            b"if",
            b"local",
            b"repeat",
            b"return",
            b"while",
            b"break",
        ];
        self.kind == Kind::Name || self.is(Kind::Symbol, b"(") || self.is_any(Kind::Keyword, &WORDS)
    }

    /// Returns true if a statement begins behind it for certain.
    fn is_before_statement(&self) -> bool {
        self.is(Kind::Symbol, b";")
            || self.is_any(Kind::Keyword, &[b"then", b"do", b"else", b"repeat"])
    }
}

/// An open bracket, block or function.
#[derive(Debug)]
enum Open {
    /// With what [`Scan::in_head`] was before.
    Bracket {
        in_head: bool,
    },
    Block,
    Loop {
        awaits_do: bool,
    },
    Repeat,
    Function(Body),
}

/// A function that is open.
#[derive(Debug, Default)]
struct Body {
    /// End of its parameters.
    begins_at: Option<usize>,
    is_variadic: bool,
    uses_arg: bool,
    uses_dots: bool,
}

struct Scan<'a> {
    source: &'a [u8],
    at: usize,
    edits: Vec<Edit>,
    open: Vec<Open>,
    before: Token<'a>,
    before_end: usize,
    /// True if a string or comment has no end.
    is_unfinished: bool,
    /// True if all since the beginning of the statement may be what it assigns to.
    in_head: bool,
    /// Words of the interpreter's language at the beginning of a statement, and `break` outside a loop: the next token
    /// shows whether they are errors.
    soft: Option<Soft>,
}

#[derive(Clone, Copy, Debug)]
enum Soft {
    Goto,
    Const,
    Continue,
    Break,
}

impl<'a> Scan<'a> {
    fn new(source: &'a [u8]) -> Scan<'a> {
        let mut scan = Scan {
            source,
            at: 0,
            edits: Vec::new(),
            open: Vec::new(),
            before: Token {
                kind: Kind::Symbol,
                text: b";",
            },
            before_end: 0,
            is_unfinished: false,
            in_head: false,
            soft: None,
        };
        if source.first() == Some(&b'#') {
            // The interpreter would pass over the line.
            scan.insert(0, b" ");
        }
        scan
    }

    fn run(&mut self) -> Result<(), Trouble> {
        loop {
            self.skip_blanks();
            let start = self.at;
            let token = self.token().map_err(|trouble| match self.soft {
                // Of a symbol that does not exist the parser complains, and of this first.
                Some(Soft::Break) if trouble.words.is_none() => Trouble {
                    words: Some(NO_LOOP),
                    ..trouble
                },
                _ => trouble,
            })?;
            self.check_soft(start, token)?;
            self.follow(start, token)?;
            if token.kind == Kind::End {
                return Ok(());
            }
            self.before = token;
            self.before_end = self.at;
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.source.get(self.at + ahead).copied()
    }

    fn insert(&mut self, at: usize, text: &'static [u8]) {
        self.edits.push(Edit {
            at,
            cut: 0,
            insert: text,
        });
    }

    /// Ends the text at `start`, with an error near `near`.
    fn trouble(&self, start: usize, near: Vec<u8>, words: Option<&'static str>) -> Trouble {
        Trouble {
            at: start,
            seen: self.at,
            near,
            words,
        }
    }

    // --- Tokens ---

    fn skip_blanks(&mut self) {
        while let Some(byte) = self.peek(0) {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'-' if self.peek(1) == Some(b'-') => {
                    self.at += 2;
                    if !self.skip_long_bracket() {
                        let rest = &self.source[self.at..];
                        self.at += memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
                    }
                }
                _ => return,
            }
        }
    }

    /// Passes over `[[...]]` or the like; returns false if there is none. One without an end goes to the end of the
    /// text.
    fn skip_long_bracket(&mut self) -> bool {
        let rest = &self.source[self.at..];
        let level = match rest {
            [b'[', behind @ ..] => behind.iter().take_while(|&&byte| byte == b'=').count(),
            _ => return false,
        };
        if rest.get(level + 1) != Some(&b'[') {
            return false;
        }
        self.at += level + 2;
        loop {
            let rest = &self.source[self.at..];
            let Some(bracket) = memchr::memchr(b']', rest) else {
                self.at = self.source.len();
                self.is_unfinished = true;
                return true;
            };
            self.at += bracket + 1;
            let behind = &rest[bracket + 1..];
            if behind.get(level) == Some(&b']') && behind[..level].iter().all(|&byte| byte == b'=')
            {
                self.at += level + 1;
                return true;
            }
        }
    }

    fn token(&mut self) -> Result<Token<'a>, Trouble> {
        let start = self.at;
        let Some(byte) = self.peek(0) else {
            return Ok(Token {
                kind: Kind::End,
                text: b"<eof>",
            });
        };
        let kind = match byte {
            b'"' | b'\'' => {
                self.string()?;
                Kind::String
            }
            b'[' if self.skip_long_bracket() => Kind::String,
            b'0'..=b'9' => self.number()?,
            b'.' if self.peek(1).is_some_and(|next| next.is_ascii_digit()) => self.number()?,
            _ if is_name_byte(byte) => {
                while self.peek(0).is_some_and(is_name_byte) {
                    self.at += 1;
                }
                match KEYWORDS.contains(&&self.source[start..self.at]) {
                    true => Kind::Keyword,
                    false => Kind::Name,
                }
            }
            _ => {
                self.symbol(byte)?;
                Kind::Symbol
            }
        };
        Ok(Token {
            kind,
            text: &self.source[start..self.at],
        })
    }

    fn symbol(&mut self, byte: u8) -> Result<(), Trouble> {
        let start = self.at;
        let next = self.peek(1);
        let len = match byte {
            b'.' if next == Some(b'.') && self.peek(2) == Some(b'.') => 3,
            b'.' if next == Some(b'.') => 2,
            b'=' | b'<' | b'>' | b'~' if next == Some(b'=') => 2,
            b'+' | b'-' | b'*' | b'/' | b'%' | b'^' | b'#' | b'=' | b'<' | b'>' | b'(' | b')'
            | b'{' | b'}' | b'[' | b']' | b';' | b':' | b',' | b'.' => 1,
            _ => {
                self.at += 1;
                return Err(self.trouble(start, symbol_text(byte), None));
            }
        };
        self.at += len;
        // What would be one token of the interpreter's, or an assignment.
        let is_joined = matches!(
            (&self.source[start..self.at], self.peek(0)),
            (b"+" | b"-" | b"*" | b"/" | b"%" | b"..", Some(b'='))
                | (b"-", Some(b'>'))
                | (b"<", Some(b'<'))
                | (b">", Some(b'>'))
                | (b":", Some(b':'))
        );
        if is_joined {
            self.insert(self.at, b" ");
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Kind, Trouble> {
        let start = self.at;
        while self
            .peek(0)
            .is_some_and(|byte| byte.is_ascii_digit() || byte == b'.')
        {
            self.at += 1;
        }
        if matches!(self.peek(0), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(0), Some(b'+' | b'-')) {
                self.at += 1;
            }
        }
        while self.peek(0).is_some_and(is_name_byte) {
            self.at += 1;
        }
        let text = &self.source[start..self.at];
        if !is_number(text) {
            return Err(self.trouble(start, text.to_vec(), Some("malformed number")));
        }
        if self.peek(0) == Some(b'.') {
            // 0x1..'a'
            self.insert(self.at, b" ");
        }
        Ok(Kind::Number)
    }

    fn string(&mut self) -> Result<(), Trouble> {
        let start = self.at;
        let quote = self.source[start];
        self.at += 1;
        loop {
            let rest = &self.source[self.at..];
            let stop = rest
                .iter()
                .position(|&byte| byte == quote || byte == b'\\' || is_newline(byte));
            self.at += stop.unwrap_or(rest.len());
            match self.peek(0) {
                Some(byte) if byte == quote => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape(start)?,
                // An unfinished string, in the interpreter's words as well.
                _ => {
                    self.at = self.source.len();
                    self.is_unfinished = true;
                    return Ok(());
                }
            }
        }
    }

    /// Passes over the escape at the current place, in the string that begins at `start`.
    fn escape(&mut self, start: usize) -> Result<(), Trouble> {
        let at = self.at;
        match self.peek(1) {
            None => self.at += 1,
            Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'\\' | b'"' | b'\'') => {
                self.at += 2
            }
            Some(byte) if is_newline(byte) => {
                self.at += 2;
                if self
                    .peek(0)
                    .is_some_and(|next| is_newline(next) && next != byte)
                {
                    self.at += 1;
                }
            }
            Some(byte) if byte.is_ascii_digit() => {
                self.at += 1;
                let mut value = 0;
                for _ in 0..3 {
                    let Some(digit) = self.peek(0).filter(u8::is_ascii_digit) else {
                        break;
                    };
                    value = 10 * value + u32::from(digit - b'0');
                    self.at += 1;
                }
                if value > 255 {
                    let near = value_of(&self.source[start..at]);
                    return Err(self.trouble(start, near, Some("escape sequence too large")));
                }
            }
            Some(_) => {
                self.edits.push(Edit {
                    at,
                    cut: 1,
                    insert: b"",
                });
                self.at += 2;
            }
        }
        Ok(())
    }

    // --- Blocks ---

    /// Returns an error if the word before was one, now that the next token is known.
    fn check_soft(&mut self, start: usize, token: Token<'_>) -> Result<(), Trouble> {
        let Some(soft) = self.soft.take() else {
            return Ok(());
        };
        let is_name = token.kind == Kind::Name;
        let (is_error, words) = match soft {
            Soft::Goto => (is_name, None),
            Soft::Const => (is_name || token.is(Kind::Keyword, b"function"), None),
            Soft::Continue => {
                let ends: [&[u8]; 4] = [b"else", b"elseif", b"end", b"until"];
                (
                    token.kind == Kind::End || token.is_any(Kind::Keyword, &ends),
                    None,
                )
            }
            Soft::Break => (!self.is_unfinished, Some(NO_LOOP)),
        };
        if !is_error {
            return Ok(());
        }
        let near = match token.kind {
            Kind::String => value_of(token.text),
            _ => token.text.to_vec(),
        };
        Err(self.trouble(start, near, words))
    }

    /// Follows blocks, brackets and the heads of statements.
    fn follow(&mut self, start: usize, token: Token<'_>) -> Result<(), Trouble> {
        if let Some(Open::Function(body)) = self.open.last_mut() {
            // What is no statement right behind the parameters is an error, and has to stay the first one.
            body.is_variadic &= body.begins_at != Some(self.before_end) || token.may_begin_body();
        }
        let begins = match token.kind {
            Kind::Name => self.before.is_before_statement() || self.before.is_end(),
            Kind::Symbol if token.text == b"(" => {
                self.before.is_before_statement()
                    || self.before.is_end() && !self.before.is_callable()
            }
            _ => false,
        };
        if begins {
            self.in_head = true;
        }
        match token.kind {
            Kind::Name => self.name(token.text, begins),
            Kind::Keyword => self.keyword(token.text),
            Kind::Symbol => self.bracket_or_operator(start, token)?,
            Kind::Number => self.in_head = false,
            Kind::String | Kind::End => {}
        }
        Ok(())
    }

    fn name(&mut self, name: &[u8], begins: bool) {
        let is_field = self.before.is_any(Kind::Symbol, &[b".", b":"]);
        if begins {
            self.soft = match name {
                b"goto" => Some(Soft::Goto),
                b"const" => Some(Soft::Const),
                b"continue" => Some(Soft::Continue),
                _ => None,
            };
        }
        if name == b"arg" && !is_field {
            let body = self.open.iter_mut().rev().find_map(|open| match open {
                Open::Function(body) if body.begins_at.is_some() && body.is_variadic => Some(body),
                _ => None,
            });
            if let Some(body) = body {
                body.uses_arg = true;
            }
        }
    }

    fn keyword(&mut self, word: &[u8]) {
        self.in_head = false;
        match word {
            b"function" => self.open.push(Open::Function(Body::default())),
            b"if" => self.open.push(Open::Block),
            b"while" | b"for" => self.open.push(Open::Loop { awaits_do: true }),
            b"repeat" => self.open.push(Open::Repeat),
            b"do" => match self.open.last_mut() {
                Some(Open::Loop { awaits_do }) if *awaits_do => *awaits_do = false,
                _ => self.open.push(Open::Block),
            },
            b"until" => {
                self.open.pop_if(|open| matches!(open, Open::Repeat));
            }
            b"end" => {
                let is_block = |open: &mut Open| {
                    matches!(open, Open::Block | Open::Loop { .. } | Open::Function(_))
                };
                if let Some(Open::Function(body)) = self.open.pop_if(is_block) {
                    self.end_function(&body);
                }
            }
            b"break" => {
                let is_in_loop = self.open.iter().rev().find_map(|open| match open {
                    Open::Loop { .. } | Open::Repeat => Some(true),
                    Open::Function(_) => Some(false),
                    Open::Block | Open::Bracket { .. } => None,
                });
                if is_in_loop != Some(true) {
                    self.soft = Some(Soft::Break);
                }
            }
            _ => {}
        }
    }

    fn end_function(&mut self, body: &Body) {
        if let (Some(at), true, true) = (body.begins_at, body.is_variadic, body.uses_arg) {
            self.insert(at, if body.uses_dots { ARG_NIL } else { ARG_TABLE });
        }
    }

    fn bracket_or_operator(&mut self, start: usize, token: Token<'_>) -> Result<(), Trouble> {
        match token.text {
            b"(" | b"[" | b"{" => {
                self.open.push(Open::Bracket {
                    in_head: self.in_head,
                });
                self.in_head = false;
            }
            b")" | b"]" | b"}" => {
                let bracket = self
                    .open
                    .pop_if(|open| matches!(open, Open::Bracket { .. }));
                if let Some(Open::Bracket { in_head }) = bracket {
                    self.in_head = in_head;
                }
                if let Some(Open::Function(body)) = self.open.last_mut() {
                    body.begins_at.get_or_insert(self.at);
                }
            }
            b"..." => {
                self.in_head = false;
                let body = self.open.iter_mut().rev().find_map(|open| match open {
                    Open::Function(body) => Some(body),
                    _ => None,
                });
                match body {
                    Some(body) if body.begins_at.is_some() => body.uses_dots = true,
                    Some(body) => body.is_variadic = true,
                    None => {}
                }
            }
            // The interpreter's assignment of an exclusive or.
            b"~=" if self.in_head => return Err(self.trouble(start, b"~=".to_vec(), None)),
            b"." | b":" | b"," => {}
            _ => self.in_head = false,
        }
        Ok(())
    }
}

/// Returns the text by which an error shows a byte that is no token: nothing for a zero.
fn symbol_text(byte: u8) -> Vec<u8> {
    match byte {
        0 => Vec::new(),
        _ if byte.is_ascii_control() => format!("char({byte})").into_bytes(),
        _ => vec![byte],
    }
}

/// Returns true if `text` is a number by 5.1, which asks the C library.
fn is_number(text: &[u8]) -> bool {
    let digits = |text: &[u8], is_digit: fn(&u8) -> bool| {
        text.iter().take_while(|byte| is_digit(byte)).count()
    };
    let is_exponent = |text: &[u8], letter: u8| match text {
        [] => true,
        [first, rest @ ..] if first.to_ascii_lowercase() == letter => {
            let rest = match rest {
                [b'+' | b'-', rest @ ..] => rest,
                _ => rest,
            };
            !rest.is_empty() && rest.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    };
    if let [b'0', b'x' | b'X', hex @ ..] = text {
        let whole = digits(hex, u8::is_ascii_hexdigit);
        return whole > 0 && is_exponent(&hex[whole..], b'p');
    }
    let whole = digits(text, u8::is_ascii_digit);
    let (fraction, rest) = match &text[whole..] {
        [b'.', rest @ ..] => {
            let fraction = digits(rest, u8::is_ascii_digit);
            (fraction, &rest[fraction..])
        }
        rest => (0, rest),
    };
    whole + fraction > 0 && is_exponent(rest, b'e')
}

/// Returns a string as errors show it: with its quotes, or its brackets, and without its escapes.
fn value_of(text: &[u8]) -> Vec<u8> {
    let has_escapes = text.first() != Some(&b'[');
    let mut value = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        let newline = |byte: u8, at: usize| match text.get(at) {
            Some(&next) if is_newline(next) && next != byte => 1,
            _ => 0,
        };
        if is_newline(byte) {
            at += newline(byte, at);
            // A line end right behind the opening bracket is not part of it.
            if value.last() != Some(&b'[')
                || value[1..value.len() - 1].iter().any(|&byte| byte != b'=')
            {
                value.push(b'\n');
            }
            continue;
        }
        if byte != b'\\' || !has_escapes {
            value.push(byte);
            continue;
        }
        let Some(&escaped) = text.get(at) else {
            break;
        };
        at += 1;
        value.push(match escaped {
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'0'..=b'9' => {
                let mut code = u32::from(escaped - b'0');
                for _ in 0..2 {
                    let Some(digit) = text.get(at).filter(|byte| byte.is_ascii_digit()) else {
                        break;
                    };
                    code = 10 * code + u32::from(digit - b'0');
                    at += 1;
                }
                code as u8
            }
            _ if is_newline(escaped) => {
                at += newline(escaped, at);
                b'\n'
            }
            other => other,
        });
    }
    value
}

#[cfg(test)]
mod tests;
