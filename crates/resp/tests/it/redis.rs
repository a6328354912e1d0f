//! Compares the codec with a real Redis 8.2.3, which is authoritative. Run it with `REDLINE_REDIS=127.0.0.1:6379 cargo
//! test -p redline-resp --test it -- --ignored redis::`; it writes to keys `resp:*`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use redline_resp::{
    Args, Decoded, Reply, ReplyBuffer, ReplyDecoder, RequestDecoder, RequestLimits, Value,
    encode_request, format_double,
};

struct Redis {
    stream: TcpStream,
    decoder: ReplyDecoder,
    input: Vec<u8>,
}

impl Redis {
    fn connect() -> Redis {
        let addr = std::env::var("REDLINE_REDIS")
            .expect("REDLINE_REDIS names a Redis 8.2.3, as 127.0.0.1:6379");
        Redis {
            stream: TcpStream::connect(addr).unwrap(),
            decoder: ReplyDecoder::new(),
            input: Vec::new(),
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Returns the next reply; `None` when the server has closed the connection.
    fn reply(&mut self) -> Option<Value> {
        loop {
            let decoded = self.decoder.decode(&self.input).unwrap();
            self.input.drain(..decoded.consumed);
            if decoded.value.is_some() {
                return decoded.value;
            }
            let mut chunk = [0; 65536];
            match self.stream.read(&mut chunk) {
                Ok(1..) if self.input.is_empty() && chunk[0] == 0 => panic!("not a reply"),
                Ok(0) | Err(_) => return None,
                Ok(n) => self.input.extend_from_slice(&chunk[..n]),
            }
        }
    }
}

fn request(args: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_request(args, &mut bytes);
    bytes
}

/// Returns doubles of every kind that scores have.
fn random_double(rng: &mut fastrand::Rng) -> f64 {
    match rng.u8(..8) {
        0..=1 => f64::from_bits(rng.u64(..)),
        2 => rng.f64() * 2000.0 - 1000.0,
        3 => rng.i64(-1_000_000_000..1_000_000_000) as f64 / 10f64.powi(rng.i32(0..14)),
        4 => 10f64.powf(rng.f64() * 60.0 - 30.0),
        5 => -(10f64.powi(rng.i32(-324..309))),
        6 => rng.i64(..) as f64,
        _ => f64::from_bits(
            (10f64.powi(rng.i32(-30..30)).to_bits()).wrapping_add_signed(rng.i64(-3..=3)),
        ),
    }
}

#[test]
#[ignore = "needs a real Redis in REDLINE_REDIS: run by cargo xtask compat"]
fn doubles_are_written_as_scores_are() {
    let mut rng = fastrand::Rng::with_seed(8_2_3);
    for (proto, rounds) in [("2", 400), ("3", 100)] {
        let mut redis = Redis::connect();
        redis.send(&request(&["HELLO", proto]));
        redis.reply();
        for _ in 0..rounds {
            let values: Vec<f64> = std::iter::repeat_with(|| random_double(&mut rng))
                // A small sorted set loses the sign of zero: that is not an effect of the text.
                .filter(|value| !value.is_nan() && *value != 0.0)
                .take(1000)
                .collect();
            let mut batch = request(&["DEL", "resp:doubles"]);
            for value in &values {
                batch.extend(request(&[
                    "ZADD",
                    "resp:doubles",
                    &format!("{value:e}"),
                    "m",
                ]));
                batch.extend(request(&["ZSCORE", "resp:doubles", "m"]));
            }
            redis.send(&batch);
            redis.reply();
            for value in values {
                redis.reply();
                let theirs = redis.reply().unwrap();
                let mut ours = Vec::new();
                format_double(value, &mut ours);
                assert_eq!(
                    theirs.as_bytes(),
                    Some(&ours[..]),
                    "{value:e}: {theirs:?}, not {}",
                    ours.escape_ascii()
                );
                assert_eq!(matches!(theirs, Value::Double(_)), proto == "3");
            }
        }
    }
}

/// Decodes `input` with our decoder and returns the requests, and the error reply that ends them, if one does.
fn decode(input: &[u8]) -> (Vec<Vec<Vec<u8>>>, Option<Vec<u8>>) {
    let (mut input, mut at) = (input.to_vec(), 0);
    let (mut decoder, limits, mut requests) =
        (RequestDecoder::new(), RequestLimits::default(), Vec::new());
    loop {
        let mut spans = Vec::new();
        match decoder.decode(&mut input[at..], &limits, &mut spans) {
            Ok(Decoded::Request { consumed, .. }) => {
                let args = Args::new(&input[at..], &spans);
                requests.push(args.iter().map(<[u8]>::to_vec).collect());
                at += consumed;
            }
            Ok(Decoded::Empty { consumed }) => at += consumed,
            Ok(Decoded::Incomplete { .. }) => return (requests, None),
            Ok(Decoded::Big { .. }) => panic!("no large bulk was sent"),
            Err(error) => {
                let mut out = ReplyBuffer::new();
                Reply::new(&mut out, Default::default()).error_bytes(&error.error_line());
                return (requests, Some(out.bytes().to_vec()));
            }
        }
    }
}

/// Sends `input` to Redis and compares with our decoder: the words that reached RPUSH, and all other bytes of the
/// reply.
fn compare(input: &[u8]) {
    let mut redis = Redis::connect();
    redis.send(&request(&["DEL", "resp:words"]));
    redis.reply();
    redis.send(input);
    redis.stream.shutdown(Shutdown::Write).unwrap();
    let mut theirs = Vec::new();
    let _ = redis.stream.read_to_end(&mut theirs);

    let (requests, error) = decode(input);
    let mut ours = Vec::new();
    let mut words = Vec::new();
    for args in requests {
        if args.len() < 3 || args[0] != b"RPUSH" || args[1] != b"resp:words" {
            ours.extend_from_slice(b"-ERR ...\r\n");
            continue;
        }
        words.extend_from_slice(&args[2..]);
        ours.extend_from_slice(format!(":{}\r\n", words.len()).as_bytes());
    }
    ours.extend(error.unwrap_or_default());
    assert_eq!(
        shortened(&theirs),
        shortened(&ours),
        "{}",
        input.escape_ascii()
    );

    let mut redis = Redis::connect();
    redis.send(&request(&["LRANGE", "resp:words", "0", "-1"]));
    let words = Value::Array(words.into_iter().map(Value::Bulk).collect());
    assert_eq!(redis.reply(), Some(words), "{}", input.escape_ascii());
}

/// Returns the replies with all errors that are not the codec's replaced by the same text.
fn shortened(replies: &[u8]) -> String {
    let (mut text, mut rest) = (String::new(), replies);
    while let Some(end) = rest.iter().position(|&c| c == b'\n') {
        let line = rest[..end].escape_ascii().to_string();
        text += if line.starts_with('-') && !line.contains("Protocol error") {
            "-ERR ..."
        } else {
            &line
        };
        text += "\n";
        rest = &rest[end + 1..];
    }
    text
}

#[test]
#[ignore = "needs a real Redis in REDLINE_REDIS: run by cargo xtask compat"]
fn inline_words_and_protocol_errors_are_the_same() {
    let mut rng = fastrand::Rng::with_seed(823);
    const PIECES: &[&[u8]] = &[
        b" ", b"\t", b"\r", b"\x0b", b"\x0c", b"\"", b"\"", b"'", b"'", b"\\", b"\\x4", b"\\x41",
        b"\\n", b"\\'", b"\\\"", b"a", b"b", b"x", b"\0", b"\xff",
    ];
    for _ in 0..3000 {
        let mut input = b"RPUSH resp:words ".to_vec();
        (0..rng.usize(..12))
            .for_each(|_| input.extend_from_slice(PIECES[rng.usize(..PIECES.len())]));
        input.extend_from_slice(if rng.bool() { b"\r\n" } else { b"\n" });
        compare(&input);
    }
    const PARTS: &[&[u8]] = &[
        b"*3\r\n$5\r\nRPUSH\r\n$10\r\nresp:words\r\n$1\r\nx\r\n",
        b"*",
        b"$",
        b"1",
        b"0",
        b"-",
        b"+",
        b"\r\n",
        b"\r",
        b"\n",
        b" ",
        b"*1\r\n",
        b"*2\r\n",
        b"$1\r\n",
        b"$0\r\n\r\n",
        b"x",
        b"\0",
        b"\x80",
        b"999",
        b"2147483648",
        b"536870913",
    ];
    for _ in 0..6000 {
        let mut input = Vec::new();
        (0..rng.usize(1..8)).for_each(|_| input.extend_from_slice(PARTS[rng.usize(..PARTS.len())]));
        compare(&input);
    }
}
