//! Requests that are complete, cut anywhere, too long, or invalid.

use super::*;
use crate::args::Args;

const UNAUTHENTICATED: fn() -> RequestLimits = || RequestLimits {
    unauthenticated: true,
    ..RequestLimits::default()
};

fn decode(input: &[u8], limits: &RequestLimits) -> Result<Decoded, ProtocolError> {
    RequestDecoder::new().decode(&mut input.to_vec(), limits, &mut Vec::new())
}

fn error(input: &[u8], limits: &RequestLimits) -> String {
    let line = decode(input, limits).expect_err("an error").error_line();
    line.escape_ascii().to_string()
}

#[test]
fn a_multibulk_is_slices_of_the_buffer() {
    let (mut buf, mut spans) = (b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n".to_vec(), Vec::new());
    let decoded = RequestDecoder::new().decode(&mut buf, &RequestLimits::default(), &mut spans);
    assert_eq!(
        decoded,
        Ok(Decoded::Request {
            consumed: 20,
            args: 2,
            kind: RequestKind::Multibulk
        })
    );
    assert_eq!(
        spans,
        [Span { start: 8, len: 3 }, Span { start: 17, len: 1 }]
    );
}

#[test]
fn an_inline_request_is_unquoted_in_the_buffer() {
    let (mut buf, mut spans) = (b"set k \"a\\x20b\"\r\nrest".to_vec(), Vec::new());
    let decoded = RequestDecoder::new().decode(&mut buf, &RequestLimits::default(), &mut spans);
    assert_eq!(
        decoded,
        Ok(Decoded::Request {
            consumed: 16,
            args: 3,
            kind: RequestKind::Inline
        })
    );
    assert_eq!(&Args::new(&buf, &spans)[2], b"a b");
    assert_eq!(&buf[16..], b"rest");
}

#[test]
fn empty_requests_ask_for_nothing() {
    for input in [
        &b"\r\n"[..],
        b"\n",
        b" \t \r\n",
        b"*0\r\n",
        b"*-1\r\n",
        b"*-99\r\n",
    ] {
        let consumed = input.len();
        assert_eq!(
            decode(input, &RequestLimits::default()),
            Ok(Decoded::Empty { consumed })
        );
    }
}

#[test]
fn protocol_errors_are_worded_as_redis_words_them() {
    let long = |head: &str| [head.as_bytes(), &[b'1'; 65537]].concat();
    let cases: &[(&[u8], &str)] = &[
        (&[b'x'; 65537], "ERR Protocol error: too big inline request"),
        (
            b"get \"k\r\n",
            "ERR Protocol error: unbalanced quotes in request",
        ),
        (&long("*"), "ERR Protocol error: too big mbulk count string"),
        (
            &long("*1\r\n$"),
            "ERR Protocol error: too big bulk count string",
        ),
        (b"*\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"*x\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"*01\r\n", "ERR Protocol error: invalid multibulk length"),
        (
            b"*2147483648\r\n",
            "ERR Protocol error: invalid multibulk length",
        ),
        (b"*1\r\n$\r\n", "ERR Protocol error: invalid bulk length"),
        (b"*1\r\n$-1\r\n", "ERR Protocol error: invalid bulk length"),
        (
            b"*1\r\n$536870913\r\n",
            "ERR Protocol error: invalid bulk length",
        ),
        (
            b"*1\r\n$99999999999999999999\r\n",
            "ERR Protocol error: invalid bulk length",
        ),
        (
            b"*1\r\nPING\r\n",
            "ERR Protocol error: expected \\'$\\', got \\'P\\'",
        ),
        (
            b"*1\r\n\x80\r\n",
            "ERR Protocol error: expected \\'$\\', got \\'\\x80\\'",
        ),
    ];
    for (input, expected) in cases {
        assert_eq!(
            error(input, &RequestLimits::default()),
            *expected,
            "{}",
            input.escape_ascii()
        );
    }
    assert_eq!(
        ProtocolError::InvalidBulkLength.to_string(),
        "Protocol error: invalid bulk length"
    );
}

#[test]
fn an_unauthenticated_session_may_send_little() {
    let cases: &[(&[u8], &str)] = &[
        (
            b"*11\r\n",
            "ERR Protocol error: unauthenticated multibulk length",
        ),
        (
            b"*1\r\n$16385\r\n",
            "ERR Protocol error: unauthenticated bulk length",
        ),
        (
            b"*2147483648\r\n",
            "ERR Protocol error: invalid multibulk length",
        ),
        (
            b"*1\r\n$536870913\r\n",
            "ERR Protocol error: invalid bulk length",
        ),
    ];
    for (input, expected) in cases {
        assert_eq!(error(input, &UNAUTHENTICATED()), *expected);
    }
    for input in [
        &b"*10\r\n"[..],
        b"*1\r\n$16384\r\n",
        b"*10\r\n$3\r\nabc\r\n",
    ] {
        assert!(matches!(
            decode(input, &UNAUTHENTICATED()),
            Ok(Decoded::Incomplete { .. })
        ));
    }
}

#[test]
fn limits_hold_for_small_requests_too() {
    let limits = RequestLimits {
        bulk_bytes_max: 3,
        multibulk_max: 2,
        ..RequestLimits::default()
    };
    assert!(decode(b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n", &limits).is_ok());
    let long = decode(b"*2\r\n$3\r\nGET\r\n$4\r\nkeys\r\n", &limits);
    assert_eq!(long, Err(ProtocolError::InvalidBulkLength));
    let many = decode(b"*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n*1\r\n", &limits);
    assert_eq!(many, Err(ProtocolError::InvalidMultibulkLength));
}

#[test]
fn a_header_alone_reserves_little() {
    let (mut decoder, mut spans) = (RequestDecoder::new(), Vec::new());
    let limits = RequestLimits::default();
    let decoded = decoder.decode(&mut b"*2147483647\r\n$1\r\n".to_vec(), &limits, &mut spans);
    assert_eq!(decoded, Ok(Decoded::Incomplete { need: 3 }));
    assert!(spans.capacity() <= 2 * ARGS_RESERVED_MAX);
    let decoded = decoder.decode(&mut b"*1\r\n$536870912\r\nx".to_vec(), &limits, &mut spans);
    assert_eq!(decoded, Ok(Decoded::Big { keep: 16, taken: 1 }));
    assert!(decoder.heap_bytes() <= 2 * BIG_BULK_FIRST_BYTES_MAX);
    assert_eq!(
        decoder.big_bulk().unwrap().reserved().capacity(),
        BIG_BULK_FIRST_BYTES_MAX
    );
}

#[test]
fn what_is_needed_is_known_where_a_length_is() {
    let needs: &[(&[u8], usize)] = &[
        (b"", 1),
        (b"*1\r\n", 4),
        (b"*1\r\n$10\r", 1),
        (b"*1\r\n$10\r\n", 12),
        (b"*1\r\n$10\r\n0123456789\r", 1),
        (b"PING", 1),
    ];
    for &(input, need) in needs {
        let decoded = decode(input, &RequestLimits::default());
        assert_eq!(
            decoded,
            Ok(Decoded::Incomplete { need }),
            "{}",
            input.escape_ascii()
        );
    }
}

#[test]
fn a_large_bulk_becomes_a_blob_of_just_its_size() {
    let (mut decoder, limits, mut spans) =
        (RequestDecoder::new(), RequestLimits::default(), Vec::new());
    let len = 3 * BIG_BULK_FIRST_BYTES_MAX + 5;
    let mut buf = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${len}\r\nxx").into_bytes();
    let Ok(Decoded::Big { keep, taken }) = decoder.decode(&mut buf, &limits, &mut spans) else {
        panic!("a large bulk begins");
    };
    assert_eq!(taken, 2);
    buf.truncate(keep);
    while let Some(bulk) = decoder.big_bulk() {
        let space = bulk.reserved();
        space.resize(space.capacity(), b'x');
    }
    assert_eq!(
        decoder.decode(&mut buf, &limits, &mut spans),
        Ok(Decoded::Incomplete { need: 2 })
    );
    buf.extend_from_slice(b"\r\nPING\r\n");
    let decoded = decoder.decode(&mut buf, &limits, &mut spans);
    assert_eq!(
        decoded,
        Ok(Decoded::Request {
            consumed: keep + 2,
            args: 3,
            kind: RequestKind::Multibulk
        })
    );

    let args = Args::with_big(&buf, &spans, decoder.blobs());
    let blob = Blob::clone(args.blob(2).expect("a blob"));
    assert_eq!((&args[1], &args[2]), (&b"k"[..], &vec![b'x'; len][..]));
    assert_eq!(blob.capacity(), len);
    decoder.release_blobs();
    assert_eq!(Blob::strong_count(&blob), 1);
    assert_eq!(decoder.heap_bytes(), 0);
}

#[test]
fn blobs_stay_until_they_are_released() {
    let mut decoder = RequestDecoder::new();
    let limits = RequestLimits {
        big_bulk_bytes_min: 3,
        ..RequestLimits::default()
    };
    let (mut spans, mut buf) = (Vec::new(), Vec::new());
    for text in [b"one", b"two"] {
        let (head, tail) = (b"*2\r\n$1\r\nx\r\n$3\r\n", &[text, &b"\r\n"[..]].concat());
        buf = head.to_vec();
        let decoded = decoder.decode(&mut buf, &limits, &mut spans);
        assert_eq!(decoded, Ok(Decoded::Incomplete { need: 2 }));
        decoder
            .big_bulk()
            .unwrap()
            .reserved()
            .extend_from_slice(&tail[..3]);
        buf.extend_from_slice(&tail[3..]);
        assert!(matches!(
            decoder.decode(&mut buf, &limits, &mut spans),
            Ok(Decoded::Request {
                consumed: 17,
                args: 2,
                ..
            })
        ));
    }
    let args = Args::with_big(&buf, &spans, decoder.blobs());
    let texts: Vec<&[u8]> = args.iter().collect();
    assert_eq!(texts, [&b"x"[..], b"one", b"x", b"two"]);
}

#[test]
fn a_long_request_is_not_decoded_twice() {
    let (mut decoder, limits, mut spans) =
        (RequestDecoder::new(), RequestLimits::default(), Vec::new());
    let mut buf = [&b"*21\r\n"[..], &b"$2\r\nab\r\n".repeat(20)].concat();
    let decoded = decoder.decode(&mut buf, &limits, &mut spans);
    assert_eq!(
        (decoded, spans.len()),
        (Ok(Decoded::Incomplete { need: 4 }), 0)
    );
    assert!(decoder.heap_bytes() > 0);
    // Bytes that were decoded are not read again: not even if they have changed.
    buf.fill(b'?');
    buf.extend_from_slice(b"$1\r\nc\r\n");
    let decoded = decoder.decode(&mut buf, &limits, &mut spans);
    assert!(matches!(decoded, Ok(Decoded::Request { args: 21, .. })));
    assert_eq!(spans[20], Span { start: 169, len: 1 });
}

#[test]
fn a_large_bulk_that_is_all_there_stays_in_the_buffer() {
    let input = [
        format!("*1\r\n${BIG_BULK_BYTES_MIN}\r\n").into_bytes(),
        vec![b'x'; BIG_BULK_BYTES_MIN],
    ]
    .concat();
    let decoded = decode(&[&input[..], b"\r\n"].concat(), &RequestLimits::default());
    assert!(matches!(decoded, Ok(Decoded::Request { .. })));
    assert_eq!(
        decode(&input, &RequestLimits::default()),
        Ok(Decoded::Incomplete { need: 2 })
    );
}

#[test]
fn requests_are_encoded_as_multibulks() {
    let mut out = Vec::new();
    encode_request(["SET", "k", ""], &mut out);
    assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
}

#[test]
fn who_reads_much_at_a_time_took_longer_lines_than_others() {
    let limits = RequestLimits::default();
    let decode = |len: usize| {
        let mut line = vec![b'x'; len - 1];
        line.push(b'\n');
        RequestDecoder::new().decode(&mut line, &limits, &mut Vec::new())
    };
    let longest = limits::LINE_BYTES_MAX + limits::READ_BYTES_MAX;
    assert!(
        matches!(decode(longest), Ok(Decoded::Request { consumed, .. }) if consumed == longest)
    );
    assert_eq!(decode(longest + 1), Err(ProtocolError::TooBigInline));
}

#[test]
fn the_header_of_an_argument_is_read_as_within_a_request() {
    let header = |bytes: &[u8]| decode_bulk_header(bytes, &RequestLimits::default());
    assert_eq!(header(b"$12\r\n"), Ok(Some((12, 5))));
    assert_eq!(header(b"$12\rxab"), Ok(Some((12, 5))));
    assert_eq!(header(b"$536870912\r\n"), Ok(Some((512 << 20, 12))));
    for part in [&b""[..], b"$", b"$12", b"$12\r"] {
        assert_eq!(header(part), Ok(None));
    }
    for wrong in ["$-1\r\n", "$02\r\n", "$536870913\r\n", "$\r\n"] {
        assert_eq!(
            header(wrong.as_bytes()),
            Err(ProtocolError::InvalidBulkLength)
        );
    }
    assert_eq!(header(b":1\r\n"), Err(ProtocolError::ExpectedDollar(b':')));
}
