//! The hash functions themselves. Each is a published algorithm; deviations of twemproxy are noted where they occur.
//! Knows no keys, only bytes.

/// Returns a byte sign-extended, as `char` is on the machines where nutcracker runs.
fn signed(byte: u8) -> u32 {
    byte as i8 as u32
}

/// Returns the four bytes of the `at`-th word, little-endian.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[4 * at..4 * at + 4]
        .iter()
        .rev()
        .fold(0, |word, &byte| word << 8 | u32::from(byte))
}

/// Returns the signed number at the beginning; later bytes do not count. Wraps as predixy's `long` does.
pub fn atol(key: &[u8]) -> i64 {
    let (negative, digits) = match key {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold(0_i64, |number, byte| {
        number.wrapping_mul(10).wrapping_add(i64::from(byte - b'0'))
    });
    if negative {
        number.wrapping_neg()
    } else {
        number
    }
}

/// Returns CRC-16 in a word of 32 bits that is not truncated: above the 16 bits are those that were shifted out.
pub fn crc16_untruncated(key: &[u8]) -> u32 {
    let (above, crc) = key.iter().fold((0_u16, 0_u16), |(above, crc), &byte| {
        (
            above << 8 | crc >> 8,
            redline_cluster::crc16_next(crc, byte),
        )
    });
    u32::from(above) << 16 | u32::from(crc)
}

/// Returns CRC-32 as of Ethernet.
pub fn crc32(key: &[u8]) -> u32 {
    static TABLE: [u32; 256] = reversed_table(0xedb8_8320);
    !key.iter().fold(!0, |crc, &byte| {
        crc >> 8 ^ TABLE[((crc ^ u32::from(byte)) & 0xff) as usize]
    })
}

const fn reversed_table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = at as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ (if crc & 1 == 0 { 0 } else { polynomial });
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
}

/// Returns FNV-1 of 64 bits, truncated to 32.
pub fn fnv1_64(key: &[u8]) -> u32 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    key.iter().fold(start, |hash, &byte| {
        hash.wrapping_mul(0x100_0000_01b3) ^ byte as i8 as u64
    }) as u32
}

/// Returns FNV-1 of 32 bits.
pub fn fnv1_32(key: &[u8]) -> u32 {
    key.iter().fold(0x811c_9dc5, |hash: u32, &byte| {
        hash.wrapping_mul(0x0100_0193) ^ signed(byte)
    })
}

/// Returns FNV-1a in 32 bits, with these constants.
pub fn fnv1a(key: &[u8], start: u32, prime: u32) -> u32 {
    key.iter().fold(start, |hash, &byte| {
        (hash ^ signed(byte)).wrapping_mul(prime)
    })
}

/// Returns Bob Jenkins's one at a time.
pub fn one_at_a_time(key: &[u8]) -> u32 {
    let mut hash = key.iter().fold(0_u32, |hash, &byte| {
        let hash = hash.wrapping_add(signed(byte));
        let hash = hash.wrapping_add(hash << 10);
        hash ^ hash >> 6
    });
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

/// Returns Paul Hsieh's SuperFastHash, from 0.
pub fn hsieh(key: &[u8]) -> u32 {
    if key.is_empty() {
        return 0;
    }
    let half = |bytes: &[u8]| u32::from(bytes[1]) << 8 | u32::from(bytes[0]);
    let mut hash = 0_u32;
    let (quads, rest) = key.as_chunks::<4>();
    for quad in quads {
        hash = hash.wrapping_add(half(quad));
        hash = hash << 16 ^ half(&quad[2..]) << 11 ^ hash;
        hash = hash.wrapping_add(hash >> 11);
    }
    match *rest {
        [_, _, last] => {
            hash = hash.wrapping_add(half(rest));
            hash ^= hash << 16;
            hash ^= signed(last) << 18;
            hash = hash.wrapping_add(hash >> 11);
        }
        [_, _] => {
            hash = hash.wrapping_add(half(rest));
            hash ^= hash << 11;
            hash = hash.wrapping_add(hash >> 17);
        }
        [last] => {
            hash = hash.wrapping_add(u32::from(last));
            hash ^= hash << 10;
            hash = hash.wrapping_add(hash >> 1);
        }
        _ => {}
    }
    for (left, right) in [(3, 5), (4, 17), (25, 6)] {
        hash ^= hash << left;
        hash = hash.wrapping_add(hash >> right);
    }
    hash
}

/// Returns MurmurHash2, with the seed of libmemcached.
pub fn murmur(key: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let length = key.len() as u32;
    let mut hash = 0xdead_beef_u32.wrapping_mul(length) ^ length;
    let (quads, rest) = key.as_chunks::<4>();
    for quad in quads {
        let part = u32::from_le_bytes(*quad).wrapping_mul(M);
        let part = (part ^ part >> 24).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ part;
    }
    if !rest.is_empty() {
        let tail = rest
            .iter()
            .rev()
            .fold(0, |tail, &byte| tail << 8 | u32::from(byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

/// Returns Bob Jenkins's lookup3 (`hashlittle`) from 13, as libmemcached calls it.
pub fn jenkins(key: &[u8]) -> u32 {
    let start = 0xdead_beef_u32
        .wrapping_add(key.len() as u32)
        .wrapping_add(13);
    if key.is_empty() {
        return start;
    }
    let mut state = [start; 3];
    // The last block, complete or not, is mixed in another way.
    let (blocks, last) = key.split_at((key.len() - 1) / 12 * 12);
    for block in blocks.chunks_exact(12) {
        add(&mut state, block);
        for (at, turn) in [4, 6, 8, 16, 19, 4].into_iter().enumerate() {
            let (x, y, z) = (at % 3, (at + 1) % 3, (at + 2) % 3);
            state[x] = state[x].wrapping_sub(state[z]) ^ state[z].rotate_left(turn);
            state[z] = state[z].wrapping_add(state[y]);
        }
    }
    add(&mut state, last);
    for (at, turn) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
        let (x, y) = ((at + 2) % 3, (at + 1) % 3);
        state[x] = (state[x] ^ state[y]).wrapping_sub(state[y].rotate_left(turn));
    }
    state[2]
}

fn add(state: &mut [u32; 3], block: &[u8]) {
    for (at, &byte) in block.iter().enumerate() {
        let word = &mut state[at / 4];
        *word = word.wrapping_add(u32::from(byte) << (8 * (at % 4)));
    }
}

/// Mixes `value`, so that every bit of the result depends on every bit of it (the finish of SplitMix64).
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
