//! Benchmark of the codec in nanoseconds per request or reply: `cargo bench -p redline-resp [--
//! FILTER]`. Best and median of many rounds, since a shared machine only ever makes things slower.

use std::hash::Hasher;
use std::hint::black_box;
use std::time::Instant;

use redline_resp::{
    Args, ArgsBuf, Decoded, Proto, Reply, ReplyBuffer, ReplyDecoder, RequestDecoder, RequestLimits,
    Skipper, encode_request, format_double,
};

const ROUNDS: usize = 60;
const ROUND_OPERATIONS: usize = 200_000;
const BATCH: usize = 50;

/// Runs `batch`, which does so many `operations`, and prints nanoseconds per operation.
fn measure(name: &str, operations: usize, mut batch: impl FnMut()) {
    if std::env::args()
        .skip(1)
        .any(|arg| !arg.starts_with('-') && !name.contains(&arg))
    {
        return;
    }
    let batches = (ROUND_OPERATIONS / operations).max(1);
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..batches).for_each(|_| batch());
            start.elapsed().as_nanos() as f64 / (batches * operations) as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!(
        "{name:<44} {:>8.2} ns best {:>8.2} ns median",
        rounds[0],
        rounds[ROUNDS / 2]
    );
}

fn decode(name: &str, request: &[u8]) {
    let mut buf = request.repeat(BATCH);
    let limits = RequestLimits::default();
    let mut decoder = RequestDecoder::new();
    let mut spans = Vec::new();
    measure(&format!("decode {name}"), BATCH, || {
        let mut at = 0;
        spans.clear();
        while let Ok(Decoded::Request { consumed, args, .. }) =
            decoder.decode(&mut black_box(&mut buf)[at..], &limits, &mut spans)
        {
            black_box(args);
            at += consumed;
        }
        assert_eq!(at, buf.len());
        black_box(&spans);
    });
}

fn multibulk(args: &[&[u8]]) -> Vec<u8> {
    let mut request = Vec::new();
    encode_request(args, &mut request);
    request
}

/// Returns the SipHash-1-3, which the keyspace uses.
fn hash_of(key: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

fn requests() {
    let key: &[u8] = b"key:000000000042";
    decode("PING", &multibulk(&[b"PING"]));
    decode("PING inline", b"PING\r\n");
    decode("GET of a 16-byte key", &multibulk(&[b"GET", key]));
    decode("SET 16 + 3 bytes", &multibulk(&[b"SET", key, b"xxx"]));
    decode("SET 16 + 64 bytes", &multibulk(&[b"SET", key, &[b'x'; 64]]));
    decode(
        "SET 16 + 1024 bytes",
        &multibulk(&[b"SET", key, &[b'x'; 1024]]),
    );
    decode("SET inline", b"SET key:000000000042 xxx\r\n");
    let mset: Vec<&[u8]> = [&b"MSET"[..]]
        .into_iter()
        .chain([key, b"xxx"].repeat(10))
        .collect();
    decode("MSET of 10 keys", &multibulk(&mset));

    let mut mixed = Vec::new();
    let values = [b'x'; 2000];
    let mut rng = fastrand::Rng::with_seed(1);
    (0..1000).for_each(|_| {
        encode_request(
            &[&b"SET"[..], key, &values[..rng.usize(1..2000)]],
            &mut mixed,
        )
    });
    let limits = RequestLimits::default();
    let (mut decoder, mut spans) = (RequestDecoder::new(), Vec::new());
    measure("decode SET of unpredictable lengths", 1000, || {
        let mut at = 0;
        spans.clear();
        while let Ok(Decoded::Request { consumed, .. }) =
            decoder.decode(&mut mixed[at..], &limits, &mut spans)
        {
            at += consumed;
        }
        black_box(&spans);
    });

    let mut batch = multibulk(&[b"SET", key, b"xxx"]).repeat(BATCH);
    let mut hashes = [0; BATCH];
    for (name, decoding) in [
        ("hash of the key alone", false),
        ("decode SET 16 + 3 bytes, and hash", true),
    ] {
        measure(name, BATCH, || {
            let mut at = 0;
            spans.clear();
            for hash in &mut hashes {
                if decoding {
                    match decoder.decode(&mut batch[at..], &limits, &mut spans) {
                        Ok(Decoded::Request { consumed, args, .. }) => {
                            let args = Args::new(&batch[at..], &spans[spans.len() - args..]);
                            *hash = hash_of(&args[1]);
                            at += consumed;
                        }
                        other => panic!("{other:?}"),
                    }
                } else {
                    *hash = hash_of(&batch[at + 18..at + 34]);
                    at += 43;
                }
            }
            black_box(&hashes);
        });
    }

    let request = multibulk(&[b"SET", key, b"xxx"]);
    let mut buf = request.clone();
    spans.clear();
    let _ = decoder.decode(&mut buf, &limits, &mut spans);
    measure("read 3 arguments", 1, || {
        let args = Args::new(black_box(&buf), black_box(&spans));
        black_box((&args[0], args.get(1), args.get(2)));
    });
    let mut queued = ArgsBuf::new();
    measure("copy 3 arguments", 1, || {
        queued.clear();
        Args::new(&buf, &spans)
            .iter()
            .for_each(|arg| queued.push(arg));
        black_box(&queued);
    });
}

fn encode(name: &str, mut reply: impl FnMut(&mut Reply<'_>)) {
    let mut out = ReplyBuffer::new();
    measure(&format!("encode {name}"), BATCH, || {
        out.clear();
        for _ in 0..BATCH {
            reply(&mut Reply::new(
                black_box(&mut out),
                black_box(Proto::Resp2),
            ));
        }
        black_box(out.bytes());
    });
}

fn replies() {
    encode("+OK", |reply| reply.ok());
    encode("null", |reply| reply.null());
    encode(":1", |reply| reply.integer(black_box(1)));
    encode(":1234567", |reply| reply.integer(black_box(1_234_567)));
    encode("bulk of 3 bytes", |reply| reply.bulk(black_box(b"xxx")));
    encode("bulk of 16 bytes", |reply| {
        reply.bulk(black_box(&[b'x'; 16]))
    });
    encode("bulk of 64 bytes", |reply| {
        reply.bulk(black_box(&[b'x'; 64]))
    });
    encode("bulk of 1024 bytes", |reply| {
        reply.bulk(black_box(&[b'x'; 1024]))
    });
    encode("array of 10 bulks of 3", |reply| {
        reply.array(black_box(10));
        (0..10).for_each(|_| reply.bulk(black_box(b"xxx")));
    });
    encode("error", |reply| reply.error(black_box("ERR no such key")));
    encode("double 1.5", |reply| reply.double(black_box(1.5)));
    let mut text = Vec::new();
    for value in [3.0, 0.1, 0.12345678901234568, 1.2345e-300] {
        measure(&format!("format_double {value:e}"), 1, || {
            text.clear();
            format_double(black_box(value), &mut text);
            black_box(&text);
        });
    }
}

fn skip(name: &str, reply: &[u8]) {
    let (buf, mut skipper) = (reply.repeat(BATCH), Skipper::new());
    measure(&format!("skip {name}"), BATCH, || {
        let skipped = skipper.skip(black_box(&buf)).unwrap();
        assert_eq!(
            (skipped.consumed, skipped.replies),
            (buf.len(), BATCH as u64)
        );
    });
}

fn decode_reply(name: &str, reply: &[u8]) {
    let mut decoder = ReplyDecoder::new();
    measure(&format!("tree of {name}"), 1, || {
        black_box(decoder.decode(black_box(reply)).unwrap());
    });
}

fn main() {
    requests();
    replies();
    let hundred = [b"*100\r\n".to_vec(), b"$3\r\nxxx\r\n".repeat(100)].concat();
    let pushed = [
        &b"*600\r\n"[..],
        &b"$24\r\nxxxxxxxxxxxxxxxxxxxxxxxx\r\n".repeat(600),
    ]
    .concat();
    skip("+OK", b"+OK\r\n");
    skip("+PONG", b"+PONG\r\n");
    skip(":1", b":1\r\n");
    skip(":1234567", b":1234567\r\n");
    skip("bulk of 3 bytes", b"$3\r\nxxx\r\n");
    skip(
        "bulk of 64 bytes",
        &[b"$64\r\n".to_vec(), vec![b'x'; 64], b"\r\n".to_vec()].concat(),
    );
    skip(
        "bulk of 1024 bytes",
        &[b"$1024\r\n".to_vec(), vec![b'x'; 1024], b"\r\n".to_vec()].concat(),
    );
    skip("null", b"$-1\r\n");
    skip("array of 100 bulks of 3", &hundred);
    skip("array of 600 bulks of 24", &pushed);
    decode_reply("a bulk of 3 bytes", b"$3\r\nxxx\r\n");
    decode_reply("100 bulks of 3", &hundred);
}
