//! The language of VSIM's FILTER: expressions over the fields of an element's JSON attributes. Must not know elements,
//! vectors or commands.
//!
//! An expression is cut into tokens, and these are put into postfix order by their precedence (Dijkstra's shunting-yard
//! algorithm), so that running it takes a stack and no recursion. Every expression that Redis 8.2.3 accepts is accepted
//! and means the same, its peculiarities included: operators may stand behind their operands, comparisons of order are
//! always numeric, and an element that lacks a field of the expression does not match, whatever the condition on the
//! field.

use std::borrow::Cow;

use memchr::memmem;

use super::json::{self, Json};
use crate::number;

/// Numbers are written with fewer bytes, and longer strings are the number zero.
const NUMBER_BYTES_END: usize = 256;

/// A compiled expression.
#[derive(Debug)]
pub struct Filter {
    program: Vec<Step>,
}

/// Place where an expression cannot be understood: an offset into it; 0 where no place is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntaxError(pub usize);

#[derive(Debug)]
enum Step {
    Literal(Json<'static>),
    Field(Box<[u8]>),
    Operator(Operator),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Open,
    Close,
    Not,
    Power,
    Times,
    Divide,
    Modulo,
    Plus,
    Minus,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    In,
    And,
    Or,
}

use Operator::*;

/// Spelling of operators. Of several that fit the longest is meant.
const OPERATORS: &[(&[u8], Operator)] = &[
    (b"(", Open),
    (b")", Close),
    (b"!", Not),
    (b"not", Not),
    (b"**", Power),
    (b"*", Times),
    (b"/", Divide),
    (b"%", Modulo),
    (b"+", Plus),
    (b"-", Minus),
    (b">", Greater),
    (b">=", GreaterOrEqual),
    (b"<", Less),
    (b"<=", LessOrEqual),
    (b"==", Equal),
    (b"!=", NotEqual),
    (b"in", In),
    (b"and", And),
    (b"&&", And),
    (b"or", Or),
    (b"||", Or),
];

impl Operator {
    /// Returns the precedence: greater binds tighter.
    fn precedence(self) -> u8 {
        match self {
            Open | Close => 7,
            Not => 6,
            Power => 5,
            Times | Divide | Modulo => 4,
            Plus | Minus => 3,
            Greater | GreaterOrEqual | Less | LessOrEqual | Equal | NotEqual | In => 2,
            And => 1,
            Or => 0,
        }
    }

    fn operands(self) -> usize {
        match self {
            Open | Close => 0,
            Not => 1,
            _ => 2,
        }
    }
}

impl Filter {
    /// Compiles an expression, which ends at its first zero byte.
    pub fn compile(expression: &[u8]) -> Result<Filter, SyntaxError> {
        let text = expression.split(|byte| *byte == 0).next().unwrap_or(b"");
        let mut lexer = Lexer { text, at: 0 };
        let tokens = lexer.tokens().map_err(|Unexpected| {
            // At the end there is nothing to show.
            SyntaxError(if lexer.at < text.len() { lexer.at } else { 0 })
        })?;
        let mut compiler = Compiler::default();
        tokens
            .into_iter()
            .try_for_each(|token| compiler.take(token))?;
        compiler.finish()
    }

    /// Returns true if attributes match. Anything but a JSON object has no fields.
    pub fn matches(&self, attributes: &[u8]) -> bool {
        let mut stack: Vec<Cow<'_, Json<'_>>> = Vec::new();
        for step in &self.program {
            let value = match step {
                Step::Literal(literal) => Cow::Borrowed(literal),
                Step::Field(name) => match json::field(attributes, name) {
                    Some(value) if !name.is_empty() => Cow::Owned(value),
                    _ => return false,
                },
                Step::Operator(operator) => {
                    let right = stack.pop();
                    let left = if operator.operands() == 2 {
                        stack.pop()
                    } else {
                        None
                    };
                    let null: Cow<'_, Json<'_>> = Cow::Owned(Json::Null);
                    let (left, right) = (left.unwrap_or(null.clone()), right.unwrap_or(null));
                    Cow::Owned(Json::Number(apply(*operator, &left, &right)))
                }
            };
            stack.push(value);
        }
        stack.pop().is_some_and(|result| is_true(&result))
    }
}

fn apply(operator: Operator, left: &Json<'_>, right: &Json<'_>) -> f64 {
    let (a, b) = (|| to_number(left), || to_number(right));
    let truth = match operator {
        Power => return a().powf(b()),
        Times => return a() * b(),
        Divide => return a() / b(),
        Modulo => return a() % b(),
        Plus => return a() + b(),
        Minus => return a() - b(),
        Not => !is_true(right),
        Greater => a() > b(),
        GreaterOrEqual => a() >= b(),
        Less => a() < b(),
        LessOrEqual => a() <= b(),
        Equal => are_equal(left, right),
        NotEqual => !are_equal(left, right),
        In => is_in(left, right),
        And => is_true(left) && is_true(right),
        Or => is_true(left) || is_true(right),
        Open | Close => unreachable!("no parenthesis is in a program"),
    };
    f64::from(u8::from(truth))
}

fn is_in(left: &Json<'_>, right: &Json<'_>) -> bool {
    match (left, right) {
        (_, Json::Array(values)) => values.iter().any(|value| are_equal(left, value)),
        (Json::String(part), Json::String(whole)) => memmem::find(whole, part).is_some(),
        _ => false,
    }
}

fn are_equal(left: &Json<'_>, right: &Json<'_>) -> bool {
    match (left, right) {
        (Json::String(left), Json::String(right)) => left == right,
        (Json::Null, Json::Null) => true,
        (Json::Null, _) | (_, Json::Null) => false,
        _ => to_number(left) == to_number(right),
    }
}

fn is_true(value: &Json<'_>) -> bool {
    match value {
        Json::Null => false,
        Json::Number(number) => *number != 0.0,
        Json::String(text) => !text.is_empty(),
        Json::Array(_) => true,
    }
}

/// Returns the value as a number, or zero if it is none.
fn to_number(value: &Json<'_>) -> f64 {
    match value {
        Json::Number(number) => *number,
        Json::String(text) if text.len() < NUMBER_BYTES_END => {
            let text = text.trim_ascii_start();
            let usual = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
            // The C library also reads hexadecimal numbers.
            usual.or_else(|| number::parse_f64(text)).unwrap_or(0.0)
        }
        _ => 0.0,
    }
}

// ---- tokens ---------------------------------------------------------------------------------------

/// The lexer cannot go on from where it stands.
struct Unexpected;

struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
}

impl Lexer<'_> {
    fn tokens(&mut self) -> Result<Vec<Step>, Unexpected> {
        let mut tokens = Vec::new();
        loop {
            self.spaces();
            let Some(byte) = self.peek(0) else {
                return Ok(tokens);
            };
            // Behind an operand, and behind a parenthesis that closes, a minus is an operator.
            let signed = matches!(tokens.last(), None | Some(Step::Operator(_)))
                && !matches!(tokens.last(), Some(Step::Operator(Close)));
            let digit_next = self.peek(1).is_some_and(|next| next.is_ascii_digit());
            tokens.push(match byte {
                b'0'..=b'9' => Step::Literal(self.number()?),
                b'-' if signed && digit_next => Step::Literal(self.number()?),
                b'"' | b'\'' => Step::Literal(self.string()?),
                b'.' if self.peek(1).is_none_or(is_of_field) => self.field(),
                b'[' => Step::Literal(self.tuple()?),
                byte if is_of_operator(byte) => self.operator_or_null()?,
                _ => return Err(Unexpected),
            });
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn spaces(&mut self) {
        while let Some(b' ' | b'\t'..=b'\r') = self.peek(0) {
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<Json<'static>, Unexpected> {
        let start = self.at;
        self.at += 1;
        while let Some(b'0'..=b'9' | b'.' | b'e' | b'E') = self.peek(0) {
            if self.at - start == NUMBER_BYTES_END - 1 {
                return Err(Unexpected);
            }
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.text[start..self.at]);
        let number = text.ok().and_then(|text| text.parse().ok());
        number.map(Json::Number).ok_or(Unexpected)
    }

    /// Returns a string, whose escapes stay as they are.
    fn string(&mut self) -> Result<Json<'static>, Unexpected> {
        let quote = self.peek(0);
        self.at += 1;
        let start = self.at;
        while let Some(byte) = self.peek(0) {
            if byte == b'\\' && self.peek(1).is_some() {
                self.at += 2;
                continue;
            }
            self.at += 1;
            if Some(byte) == quote {
                let inside = &self.text[start..self.at - 1];
                return Ok(Json::String(inside.to_vec().into()));
            }
        }
        Err(Unexpected)
    }

    fn tuple(&mut self) -> Result<Json<'static>, Unexpected> {
        let mut values = Vec::new();
        self.at += 1;
        loop {
            self.spaces();
            values.push(match self.peek(0) {
                Some(b']') => break,
                Some(b'0'..=b'9' | b'-') => self.number()?,
                Some(b'"' | b'\'') => self.string()?,
                _ => return Err(Unexpected),
            });
            self.spaces();
            match self.peek(0) {
                Some(b']') => break,
                Some(b',') => self.at += 1,
                _ => return Err(Unexpected),
            }
        }
        self.at += 1;
        Ok(Json::Array(values))
    }

    fn field(&mut self) -> Step {
        self.at += 1;
        let start = self.at;
        while self.peek(0).is_some_and(is_of_field) {
            self.at += 1;
        }
        Step::Field(self.text[start..self.at].into())
    }

    /// Signs and letters that stand together are one word to begin with. `null` must be a word of its own; operators need
    /// not be.
    fn operator_or_null(&mut self) -> Result<Step, Unexpected> {
        let rest = &self.text[self.at..];
        let run = |rest: &[u8]| {
            rest.iter()
                .take_while(|byte| is_of_operator(**byte))
                .count()
        };
        // Not the whole run: it may be long, and each of its operators is met in turn.
        let len = run(&rest[..rest.len().min(b"null".len() + 1)]);
        let word = &rest[..len];
        if word == b"null" {
            self.at += len;
            return Ok(Step::Literal(Json::Null));
        }
        let fitting = OPERATORS.iter().filter(|(text, _)| word.starts_with(text));
        match fitting.max_by_key(|(text, _)| text.len()) {
            Some((text, operator)) => {
                self.at += text.len();
                Ok(Step::Operator(*operator))
            }
            None => {
                self.at += run(rest);
                Err(Unexpected)
            }
        }
    }
}

fn is_of_field(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn is_of_operator(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || b"+-*%/!()<>=|&".contains(&byte)
}

// ---- postfix order --------------------------------------------------------------------------------

#[derive(Default)]
struct Compiler {
    program: Vec<Step>,
    waiting: Vec<Operator>,
    /// Values on the stack when the program so far has run.
    values: usize,
}

impl Compiler {
    fn take(&mut self, token: Step) -> Result<(), SyntaxError> {
        match token {
            Step::Operator(Open) => self.waiting.push(Open),
            Step::Operator(Close) => loop {
                match self.waiting.pop().ok_or(SyntaxError(0))? {
                    Open => break,
                    operator => self.emit(operator)?,
                }
            },
            Step::Operator(operator) => {
                while let Some(&before) = self.waiting.last()
                    && before != Open
                    && goes_first(before, operator)
                {
                    self.waiting.pop();
                    self.emit(before)?;
                }
                self.waiting.push(operator);
            }
            operand => {
                self.program.push(operand);
                self.values += 1;
            }
        }
        Ok(())
    }

    fn emit(&mut self, operator: Operator) -> Result<(), SyntaxError> {
        if self.values < operator.operands() {
            return Err(SyntaxError(0));
        }
        self.values = self.values - operator.operands() + 1;
        self.program.push(Step::Operator(operator));
        Ok(())
    }

    fn finish(mut self) -> Result<Filter, SyntaxError> {
        while let Some(operator) = self.waiting.pop() {
            if operator == Open {
                return Err(SyntaxError(0));
            }
            self.emit(operator)?;
        }
        if self.values != 1 {
            return Err(SyntaxError(0));
        }
        Ok(Filter {
            program: self.program,
        })
    }
}

/// Returns true if of two operators in a row the first is to be applied before the second. Of powers the last goes
/// first.
fn goes_first(before: Operator, operator: Operator) -> bool {
    match operator {
        Power => before.precedence() > operator.precedence(),
        _ => before.precedence() >= operator.precedence(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTRIBUTES: &[u8] = br#"{"x":1,"s":"foo","t":true,"n":null,"arr":[1,"b",null,[2]],"neg":-2.5e1,"a-b_c":7,"num":" 12"}"#;

    fn check(expression: &str) -> Result<bool, usize> {
        let filter = Filter::compile(expression.as_bytes()).map_err(|error| error.0)?;
        Ok(filter.matches(ATTRIBUTES))
    }

    /// Each as Redis 8.2.3 has it.
    #[test]
    fn these_match() {
        for expression in [
            ".x",
            ".x==1",
            ".x == \"1\"",
            ".s==\"foo\"",
            ".t == 1",
            "!.n",
            ".n == null",
            ".x in .arr",
            "\"b\" in .arr",
            ".n in .arr",
            "0 in .arr",
            ".s in ['foo', 3]",
            "\"fo\" in .s",
            "\"\" in .s",
            "2**3**2 == 512",
            ".neg == -25",
            "3--2 == 5",
            "(1) -1 == 0",
            "[1]==0",
            "0/0",
            ".a-b_c==7",
            "!.x == 0",
            ".num == 12",
            ".x>0and.x<2",
            "1 1 +",
            "5%0",
            "[]",
            "\"a\"",
            "-5 % 3 == -2",
            "null + 1 == 1",
            "1e999 == \"inf\"",
            "\"0x10\" == 16",
            "\"1e\" == 0",
            "not .x or .t && .s",
            " .x\n==1\t",
            "1 - -1 == 2",
        ] {
            assert_eq!(check(expression), Ok(true), "{expression}");
        }
    }

    #[test]
    fn these_do_not() {
        for expression in [
            "!.x",
            ".x > 1",
            ".missing",
            "!.missing",
            ".missing == 1 or .x == 1",
            ".n",
            "null",
            "\"\"",
            "0",
            "1-1",
            ".x in \"123\"",
            "1 in 1",
            "null == 0",
            "\"abc\" < \"abd\"",
            ".x-1 == 0",
            ".X == 1",
            ".",
            "!(0/0)",
            "\"nan\" == 0",
            ".x in []",
        ] {
            assert_eq!(check(expression), Ok(false), "{expression}");
        }
    }

    #[test]
    fn these_are_refused_at_a_place() {
        for (expression, rest) in [
            ("", ""),
            ("foo", "foo"),
            (".x in [1 2]", "2]"),
            (".x in [.x]", ".x]"),
            ("[1]]", "]"),
            ("[-]", "]"),
            (".x = 1", " 1"),
            (".x === 1", " 1"),
            (".x <> 1", ".x <> 1"),
            ("!!.x", "!!.x"),
            ("()", "()"),
            ("(.x", "(.x"),
            (".x)", ".x)"),
            ("1 2", "1 2"),
            ("1 +", "1 +"),
            ("- 1", "- 1"),
            ("1.0.0", "1.0.0"),
            (".x == @", "@"),
            (".x # 1", "# 1"),
            ("1_000", "_000"),
            ("1e+3 == 1", "+3 == 1"),
            (".x AND .x", " .x"),
            ("\"open", "\"open"),
            (".x.y", ".x.y"),
            ("..x", "..x"),
            ("true", "true"),
            (".é", ".é"),
        ] {
            let at = check(expression).expect_err(expression);
            assert_eq!(&expression[at..], rest, "{expression}");
        }
        assert_eq!(check(&"1".repeat(300)), Err(255));
        assert_eq!(
            Filter::compile(b"1\0junk").map(|filter| filter.matches(b"")),
            Ok(true)
        );
    }

    impl PartialEq for Filter {
        fn eq(&self, _: &Filter) -> bool {
            unreachable!("compiled filters are only run")
        }
    }

    #[test]
    fn deep_expressions_take_no_stack() {
        let expression = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(check(&expression), Ok(true));
    }
}
