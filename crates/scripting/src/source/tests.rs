//! Tests of the rewriting alone; the interpreter's results for it are among the recorded replies of `vm/tests`.

use proptest::prelude::*;

use super::Rewritten;

fn rewritten(source: &str) -> String {
    let mut rewritten = Rewritten::default();
    rewritten.rewrite(source.as_bytes());
    String::from_utf8_lossy(rewritten.text(source.as_bytes())).into_owned()
}

#[track_caller]
fn is_left_alone(source: &str) {
    let mut rewritten = Rewritten::default();
    rewritten.rewrite(source.as_bytes());
    assert!(
        !rewritten.is_changed,
        "{source}: {}",
        self::rewritten(source)
    );
}

#[test]
fn an_escape_without_meaning_loses_its_backslash() {
    assert_eq!(rewritten(r"return '\q\/\-'"), "return 'q/-'");
    assert_eq!(
        rewritten(r#"return "\x41\u{41}\z ""#),
        r#"return "x41u{41}z ""#
    );
    assert_eq!(rewritten(r"f'\\q\\\q'"), r"f'\\q\\q'");
    assert_eq!(rewritten("return '\\\u{e9}'"), "return '\u{e9}'");
    for source in [
        r#"return '\a\b\f\n\r\t\v\\\"\'\0\09\255'"#,
        "return 'a\\\nb\\\r\nc'",
        r"-- '\q'",
        "--[==[ '\\q' ]] \n '\\q' ]==] return 1",
        r"return [[\q]], [=[\q]]\q]=]",
        r"return '--\\', '[[\\'",
        r"return 'unfinished\",
        "return 'unfinished\nreturn '\\q'",
        r"return [[unfinished \q ' ",
        r"--[[unfinished '\q' ",
        r"return t[i[1]], a.b, 'it''s'",
    ] {
        is_left_alone(source);
    }
}

#[test]
fn what_both_read_alike_stays() {
    for source in [
        "local goto, const, continue = 1, 2, 3 goto = const continue = goto",
        "local t = {goto = 1, const = 2, continue = 3} t.goto = t.continue return t.const",
        "x = goto y = 2 return x",
        "if a ~= b and a.c ~= (d or e) then return a ~= 1 end",
        "f(a ~= b) g{a ~= b} h[a ~= b] = a ~= b",
        "for i = 1, 2 do if i ~= 1 then break end end repeat do break end until true",
        "while (function() return x ~= y end)() do break end",
        "return 0x1p4, 0xFF, 1e5, 1E-5, .5, 5., 08, 3.25e+2",
        "local function f(...) return ... end",
        "local function f(a) return arg end",
        "local arg = 1 return function(...) return t.arg, t:arg() end",
        "return a - -b, a <= b, a >= b, a == b, a .. b, a ^ -b",
    ] {
        is_left_alone(source);
    }
}

#[test]
fn a_function_that_names_arg_gets_it() {
    assert_eq!(
        rewritten("local function f(a, ...) return arg.n end"),
        "local function f(a, ...) local arg={n=select('#',...),...} return arg.n end"
    );
    assert_eq!(
        rewritten("return function(...) return ..., arg end"),
        "return function(...) local arg return ..., arg end"
    );
    assert_eq!(
        rewritten("f(function(...) return function(x) return arg[x] end end)"),
        "f(function(...) local arg={n=select('#',...),...} return function(x) return arg[x] end end)"
    );
}

#[test]
fn an_error_is_told_in_the_words_for_the_original() {
    let mut rewritten = Rewritten::default();
    let mut mended = |source: &str, error: &str| {
        rewritten.rewrite(source.as_bytes());
        let mut out = Vec::new();
        let is_mended = rewritten.mend(error.as_bytes(), &mut out);
        is_mended.then(|| String::from_utf8_lossy(&out).into_owned())
    };
    assert_eq!(
        mended("return a != b", "s:1: '<eof>' expected near '@'").as_deref(),
        Some("s:1: '<eof>' expected near '!'")
    );
    assert_eq!(
        mended("return 1LL", "a: 1: b:12: unexpected symbol near '@'").as_deref(),
        Some("a: 1: b:12: malformed number near '1LL'")
    );
    assert_eq!(mended("return 1LL", "s:1: 'x' expected near 'y'"), None);
    assert_eq!(mended("return 1", "s:1: unexpected symbol near '@'"), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_has_no_such_escape_stays_as_it_is(pieces in prop::collection::vec(harmless(), 0..40)) {
        is_left_alone(&format!("x {}", pieces.join(" ")));
    }

    #[test]
    fn any_bytes_are_read_to_their_end(source in prop::collection::vec(prop_oneof![
        any::<u8>(),
        prop::sample::select(br#"'"\[]=-.~()0x1epargoto@ "#.to_vec()),
    ], 0..200)) {
        let mut rewritten = Rewritten::default();
        rewritten.rewrite(&source);
        let text = rewritten.text(&source);
        prop_assert!(text.len() <= source.len() * 2 + 64);
        prop_assert!(super::count_newlines(text) <= super::count_newlines(&source));
    }

    #[test]
    fn a_string_keeps_its_value(value in prop::collection::vec(any::<u8>(), 0..60), quote in prop::sample::select(b"'\"".to_vec())) {
        // Every byte escaped, which 5.1 allows for all but digits, letters with a meaning and line ends.
        let mut source = vec![quote];
        for &byte in &value {
            if byte.is_ascii_digit() || b"abfnrtv".contains(&byte) || byte == b'\n' || byte == b'\r' {
                source.extend_from_slice(format!("\\{byte:03}").as_bytes());
            } else {
                source.extend_from_slice(&[b'\\', byte]);
            }
        }
        source.push(quote);
        let mut rewritten = Rewritten::default();
        rewritten.rewrite(&source);
        prop_assert!(rewritten.near.is_empty());
        let mut wanted = vec![quote];
        wanted.extend_from_slice(&value);
        wanted.push(quote);
        prop_assert_eq!(super::value_of(rewritten.text(&source)), wanted);
    }
}

/// Pieces of Lua that mean the same in both languages, whatever stands beside them.
fn harmless() -> impl Strategy<Value = String> {
    let short = prop::collection::vec(
        prop_oneof![
            "[^'\"\\\\\r\n]".prop_map(String::from),
            prop::sample::select(vec!["\\n", "\\\\", "\\'", "\\\"", "\\065", "\\\n"])
                .prop_map(String::from),
        ],
        0..8,
    )
    .prop_map(|parts| parts.concat());
    prop_oneof![
        short.clone().prop_map(|text| format!("'{text}'")),
        short.prop_map(|text| format!("\"{text}\"")),
        "[^\\]]{0,8}".prop_map(|text| format!("[==[{text}]==]")),
        "[^\\]]{0,8}".prop_map(|text| format!("--[=[{text}]=]")),
        "[^\r\n\\[]{0,8}".prop_map(|text| format!("--{text}\n")),
        "[A-Za-z_][A-Za-z0-9_]{3,8}"
            .prop_filter("another meaning", |name| !matches!(
                &name[..],
                "goto" | "const" | "continue" | "break"
            ))
            .prop_map(String::from),
        "[0-9]{1,4}".prop_map(String::from),
        prop::sample::select(vec![
            "+", "-", "*", "==", "<=", "..", "(", ")", "{", "}", "[", "]", ",", ";", "#", "%"
        ])
        .prop_map(String::from),
    ]
}
