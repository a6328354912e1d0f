//! For any cuts of the input, the decoders return the same; and the output of the encoders decodes to their input.

use crate::pieces::{
    BigRoute, Requests, cut, decode_plainly, decode_replies, decode_requests, skip_replies,
};
use proptest::collection::vec;
use proptest::prelude::*;
use redline_resp::{ProtocolError, RequestKind, RequestLimits, Value, encode_request};

/// Limits small enough for short inputs to reach all of them.
fn small_limits() -> RequestLimits {
    RequestLimits {
        inline_bytes_max: 40,
        bulk_bytes_max: 300,
        big_bulk_bytes_min: 30,
        ..RequestLimits::default()
    }
}

fn whole(input: &[u8], limits: &RequestLimits) -> Requests {
    decode_plainly(input, limits)
}

/// Compares every way to cut `input` in two, and one byte at a time.
fn same_however_cut(input: &[u8], limits: &RequestLimits) {
    let expected = whole(input, limits);
    for route in [BigRoute::Buffer, BigRoute::Direct] {
        for at in 0..=input.len() {
            let cut = decode_requests(cut(input, &[at]), limits, route);
            assert!(
                expected.in_pieces_may_be(&cut),
                "{route:?}, cut at {at}: {}: {cut:?}, {expected:?}",
                input.escape_ascii()
            );
        }
        let bytes = decode_requests(input.chunks(1), limits, route);
        assert!(
            expected.in_pieces_may_be(&bytes),
            "{route:?}, byte by byte: {}: {bytes:?}, {expected:?}",
            input.escape_ascii()
        );
    }
}

#[test]
fn requests_are_the_same_however_they_are_cut() {
    let big = [
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\n".to_vec(),
        vec![b'\r'; 100],
        b"\r\nPING\r\n".to_vec(),
    ]
    .concat();
    let two_big = [
        b"*2\r\n$50\r\n".to_vec(),
        vec![b'a'; 50],
        b"\r\n$60\r\n".to_vec(),
        vec![b'b'; 60],
        b"\r\n".to_vec(),
    ]
    .concat();
    let many = [
        b"*40\r\n".to_vec(),
        b"$3\r\nabc\r\n".repeat(20),
        b"$0\r\n\r\n".repeat(20),
    ]
    .concat();
    let samples: &[&[u8]] = &[
        b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        b"PING\r\nSET k \"a\\x41\\\"b\"\n\r\n\n ECHO 'x y'\r\n",
        b"*0\r\n*-1\r\n*-7\r\n*1\r\n$0\r\n\r\n",
        b"*1\rx$4\rxPINGxx*1\r\n$4\r\nPING\r\n",
        b"*1\r\n$301\r\n",
        b"*1\r\nPING\r\n",
        b"*x\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n\0\r\n",
        b"PI\0NG\r\n",
        b"PING \"\r\n",
        &[b'x'; 60],
        &[b"PING ", &[b'x'; 36][..], b"\r\n"].concat(),
        &[b"*", &[b'1'; 60][..], b"\r\n"].concat(),
        &[b"*1\r\n$", &[b'1'; 60][..], b"\r\n"].concat(),
        &big,
        &two_big,
        &[&big[..], &two_big, &big].concat(),
        &many,
    ];
    for sample in samples {
        same_however_cut(sample, &small_limits());
        same_however_cut(sample, &RequestLimits::default());
        same_however_cut(
            sample,
            &RequestLimits {
                unauthenticated: true,
                ..RequestLimits::default()
            },
        );
    }
}

#[test]
fn a_request_of_a_million_arguments_in_small_pieces_takes_linear_time() {
    let args = 1_000_000;
    let input = [
        format!("*{args}\r\n").into_bytes(),
        b"$1\r\nx\r\n".repeat(args),
    ]
    .concat();
    let decoded = decode_requests(
        input.chunks(1024),
        &RequestLimits::default(),
        BigRoute::Buffer,
    );
    assert_eq!(decoded.requests[0].1.len(), args);
}

/// Returns something that may be part of a stream of requests.
fn part() -> impl Strategy<Value = Vec<u8>> {
    let request = vec(vec(any::<u8>(), 0..60), 1..6).prop_map(|args| {
        let mut request = Vec::new();
        encode_request(&args, &mut request);
        request
    });
    let long = (1..40usize, 0..4usize).prop_map(|(args, len)| {
        let mut request = Vec::new();
        encode_request(vec![vec![b'x'; len]; args], &mut request);
        request
    });
    let inline = r#"[ a-c"'\\\t\r]{0,20}\r?\n"#.prop_map(String::into_bytes);
    let pieces = prop::sample::select(vec![
        &b"*"[..],
        b"$",
        b"\r\n",
        b"\r",
        b"\n",
        b"0",
        b"1",
        b"2",
        b"-1",
        b"35",
        b"301",
        b"2147483648",
        b"\0",
        b"x",
        b" ",
    ]);
    prop_oneof![4 => request, 1 => long, 2 => inline, 2 => pieces.prop_map(<[u8]>::to_vec)]
}

/// Returns a value of any type, for the encoder below.
fn value() -> impl Strategy<Value = Value> {
    let text = "[ -~]{0,12}".prop_map(String::into_bytes);
    let bytes = vec(any::<u8>(), 0..50);
    let leaf = prop_oneof![
        text.clone().prop_map(Value::Simple),
        text.prop_map(Value::Error),
        any::<i64>().prop_map(Value::Integer),
        (-20..20_000i64).prop_map(Value::Integer),
        bytes.clone().prop_map(Value::Bulk),
        Just(Value::NullBulk),
        Just(Value::NullArray),
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        any::<f64>().prop_map(|n| Value::Double(n.to_string())),
        "-?[0-9]{1,30}".prop_map(Value::BigNumber),
        bytes.clone().prop_map(Value::BulkError),
        bytes.prop_map(|text| Value::Verbatim {
            format: *b"txt",
            text
        }),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let values = vec(inner.clone(), 0..6);
        let pairs = vec((inner.clone(), inner.clone()), 0..4);
        prop_oneof![
            values.clone().prop_map(Value::Array),
            values.clone().prop_map(Value::Set),
            values.prop_map(Value::Push),
            pairs.clone().prop_map(Value::Map),
            (pairs, inner).prop_map(|(attributes, value)| Value::Attributed {
                attributes,
                value: Box::new(value)
            }),
        ]
    })
}

/// Writes a value in the simplest way, as the oracle of the decoder.
fn encode(value: &Value, out: &mut Vec<u8>) {
    let line = |out: &mut Vec<u8>, kind: char, text: &[u8]| {
        out.push(kind as u8);
        out.extend_from_slice(text);
        out.extend_from_slice(b"\r\n");
    };
    let head = |out: &mut Vec<u8>, kind: char, n: usize| line(out, kind, n.to_string().as_bytes());
    let pairs = |out: &mut Vec<u8>, kind: char, pairs: &[(Value, Value)]| {
        head(out, kind, pairs.len());
        for (key, value) in pairs {
            encode(key, out);
            encode(value, out);
        }
    };
    let bulk = |out: &mut Vec<u8>, kind: char, text: &[u8]| {
        head(out, kind, text.len());
        out.extend_from_slice(text);
        out.extend_from_slice(b"\r\n");
    };
    let all = |out: &mut Vec<u8>, kind: char, values: &[Value]| {
        head(out, kind, values.len());
        values.iter().for_each(|value| encode(value, out));
    };
    match value {
        Value::Simple(text) => line(out, '+', text),
        Value::Error(text) => line(out, '-', text),
        Value::Integer(n) => line(out, ':', n.to_string().as_bytes()),
        Value::Bulk(text) => bulk(out, '$', text),
        Value::BulkError(text) => bulk(out, '!', text),
        Value::Verbatim { format, text } => bulk(out, '=', &[&format[..], b":", text].concat()),
        Value::Array(values) => all(out, '*', values),
        Value::Set(values) => all(out, '~', values),
        Value::Push(values) => all(out, '>', values),
        Value::NullBulk => line(out, '$', b"-1"),
        Value::NullArray => line(out, '*', b"-1"),
        Value::Null => line(out, '_', b""),
        Value::Boolean(value) => line(out, '#', if *value { b"t" } else { b"f" }),
        Value::Double(text) => line(out, ',', text.as_bytes()),
        Value::BigNumber(text) => line(out, '(', text.as_bytes()),
        Value::Map(values) => pairs(out, '%', values),
        Value::Attributed { attributes, value } => {
            pairs(out, '|', attributes);
            encode(value, out);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_requests_are_the_same_however_they_are_cut(
        parts in vec(part(), 0..8),
        cuts in vec(0..500usize, 0..8),
        unauthenticated: bool,
    ) {
        let (input, limits) = (parts.concat(), RequestLimits { unauthenticated, ..small_limits() });
        let expected = whole(&input, &limits);
        for route in [BigRoute::Buffer, BigRoute::Direct] {
            for pieces in [cut(&input, &cuts), input.chunks(1).collect()] {
                let decoded = decode_requests(pieces, &limits, route);
                prop_assert!(expected.in_pieces_may_be(&decoded), "{:?}, {:?}", decoded, expected);
            }
        }
    }

    #[test]
    fn what_is_encoded_is_decoded(
        requests in vec(vec(vec(any::<u8>(), 0..200), 1..30), 1..5),
        cuts in vec(0..2000usize, 0..8),
    ) {
        let mut input = Vec::new();
        requests.iter().for_each(|args| encode_request(args, &mut input));
        let decoded = decode_requests(cut(&input, &cuts), &small_limits(), BigRoute::Direct);
        let requests = requests.into_iter().map(|args| (RequestKind::Multibulk, args)).collect();
        prop_assert_eq!(decoded, Requests { requests, error: None });
    }

    #[test]
    fn any_bytes_are_requests_or_an_error(input in vec(any::<u8>(), 0..200), cuts in vec(0..200usize, 0..4)) {
        let expected = whole(&input, &small_limits());
        let decoded = decode_requests(cut(&input, &cuts), &small_limits(), BigRoute::Direct);
        prop_assert!(expected.in_pieces_may_be(&decoded), "{:?}, {:?}", decoded, expected);
    }

    #[test]
    fn values_are_decoded_and_skipped_however_they_are_cut(
        values in vec(value(), 1..6),
        cuts in vec(0..2000usize, 0..8),
    ) {
        let mut input = Vec::new();
        values.iter().for_each(|value| encode(value, &mut input));
        for pieces in [vec![&input[..]], cut(&input, &cuts), input.chunks(1).collect()] {
            let skips = skip_replies(pieces.iter().copied());
            let pushes = values.iter().filter(|value| matches!(value, Value::Push(_))).count();
            prop_assert_eq!(skips.replies as usize, values.len() - pushes);
            let errors: Vec<_> = values.iter().filter(|value| value.is_error()).collect();
            prop_assert_eq!(skips.errors as usize, errors.len());
            prop_assert_eq!(skips.first_error.as_deref(), errors.first().and_then(|error| error.as_bytes()));
            let decoded = decode_replies(pieces, 16);
            prop_assert_eq!(&decoded.values, &values);
            prop_assert_eq!(decoded.error, None);
        }
    }

    #[test]
    fn broken_replies_are_the_same_however_they_are_cut(
        parts in vec(prop::sample::select(vec![
            &b"*"[..], b"*2\r\n", b"%1\r\n", b"|1\r\n", b">1\r\n", b"$", b"$2\r\nok\r\n", b"+OK\r\n", b"\r\n", b"\r", b"\n", b"1",
            b"-1", b":7\r\n", b"_\r\n", b"_x\r\n", b"#t\r\n", b"#\r\n", b",1e3\r\n", b",x\r\n", b"(1\r\n", b"(\r\n", b"=5\r\ntxt:x\r\n",
            b"=2\r\nxx\r\n", b"!1\r\nx\r\n", b"x",
        ]), 0..12),
        cuts in vec(0..60usize, 0..6),
    ) {
        let input = parts.concat();
        let (decoded, skips) = (decode_replies([&input[..]], 3), skip_replies([&input[..]]));
        for pieces in [cut(&input, &cuts), input.chunks(1).collect()] {
            prop_assert_eq!(&skip_replies(pieces.iter().copied()), &skips);
            prop_assert_eq!(&decode_replies(pieces, 3), &decoded);
        }
    }
}

#[test]
fn too_long_a_line_is_an_error_while_its_end_is_missing() {
    const TOO_BIG: Option<ProtocolError> = Some(ProtocolError::TooBigInline);
    let limits = small_limits();
    assert_eq!(whole(&[b'x'; 40], &limits).error, None);
    assert_eq!(whole(&[b'x'; 41], &limits).error, TOO_BIG);
    let line = [&[b'x'; 100][..], b"\r\nPING\r\n"].concat();
    let at_once = whole(&line, &limits);
    assert_eq!((at_once.requests.len(), at_once.error), (2, None));
    // The end's carriage return is part of the limited length, its line feed has not arrived.
    for (at, error) in [(40, None), (41, TOO_BIG), (101, TOO_BIG), (102, None)] {
        let decoded = decode_requests(cut(&line, &[at]), &limits, BigRoute::Buffer);
        assert_eq!(decoded.error, error, "{at}");
    }
    for (head, wrong, too_big) in [
        (
            &b"*"[..],
            ProtocolError::InvalidMultibulkLength,
            ProtocolError::TooBigMultibulkCount,
        ),
        (
            b"*1\r\n$",
            ProtocolError::InvalidBulkLength,
            ProtocolError::TooBigBulkCount,
        ),
    ] {
        let count = [head, &[b'0'; 100], b"1\r\n"].concat();
        assert_eq!(whole(&count, &limits).error, Some(wrong));
        let cut = cut(&count, &[count.len() - 2]);
        let decoded = decode_requests(cut, &limits, BigRoute::Buffer);
        assert_eq!(decoded.error, Some(too_big));
    }
}
