//! Turns a valid file into a broken one, at random but reproducibly.

use std::ops::Range;

/// SplitMix64: the same mutations on every run, from a number that a failure can print.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// 0..n; 0 for n = 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// The original of a mutated file.
pub(crate) struct Seed<'a> {
    pub(crate) bytes: &'a [u8],
    /// Three of four mutations hit bytes before this one: the structure is there.
    pub(crate) head_bytes: usize,
    /// Where the head is JSON, mutations that keep it so: random bytes rarely get past its parser.
    pub(crate) json: bool,
}

/// One to four mutations of `seed`; some splice in parts of `other`.
pub(crate) fn mutate(seed: &Seed<'_>, other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.bytes.to_vec();
    let keeps_json = seed.json && rng.below(4) > 0;
    for _ in 0..1 + rng.below(4) {
        if keeps_json {
            change_token(&mut bytes, seed.head_bytes, rng);
        } else {
            change_bytes(&mut bytes, seed, other, rng);
        }
    }
    bytes
}

fn change_bytes(bytes: &mut Vec<u8>, seed: &Seed<'_>, other: &[u8], rng: &mut Rng) {
    let within = if rng.below(4) > 0 {
        seed.head_bytes
    } else {
        bytes.len()
    };
    let at = rng.below(within.min(bytes.len()));
    match rng.below(12) {
        0 | 1 => overwrite(bytes, at, &[rng.next() as u8]),
        2 => {
            let flipped = bytes.get(at).map_or(0, |byte| byte ^ (1 << rng.below(8)));
            overwrite(bytes, at, &[flipped]);
        }
        3 => overwrite(bytes, at, &[rng.pick(&[0, 1, 9, 0x7F, 0x80, 0xFF])]),
        4 | 5 => {
            let number = edge(bytes.len(), rng);
            overwrite(bytes, at, &number.to_le_bytes());
        }
        6 => {
            let number = edge(bytes.len(), rng) as u32;
            overwrite(bytes, at, &number.to_le_bytes());
        }
        7 => bytes.truncate(at),
        8 => {
            let end = (at + rng.below(40)).min(bytes.len());
            bytes.drain(at..end);
        }
        9 => splice(bytes, at, seed.bytes, rng),
        10 => splice(bytes, at, other, rng),
        _ => bytes.extend((0..rng.below(64)).map(|i| i as u8)),
    }
}

/// Numbers at the edges of types and of the file.
fn edge(len: usize, rng: &mut Rng) -> u64 {
    let len = len as u64;
    let edges = [
        0,
        1,
        2,
        32,
        0x7F,
        0xFFFF,
        1 << 20,
        (1 << 31) - 1,
        1 << 31,
        (1 << 32) - 1,
        1 << 32,
        1 << 40,
        (1 << 62) + 1,
        i64::MAX as u64,
        1 << 63,
        u64::MAX - 31,
        u64::MAX,
        len,
        len - len.min(1),
        len + 1,
        len / 2,
        len / 8,
    ];
    rng.pick(&edges)
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(with) {
        *to = *from;
    }
}

/// Inserts or overwrites with a random part of `from`.
fn splice(bytes: &mut Vec<u8>, at: usize, from: &[u8], rng: &mut Rng) {
    let start = rng.below(from.len());
    let end = (start + rng.below(80)).min(from.len());
    let part = &from[start..end];
    let replaced = if rng.below(2) == 0 { part.len() } else { 0 };
    let to = (at + replaced).min(bytes.len());
    bytes.splice(at..to, part.iter().copied());
}

/// Replacements of strings in a header or an index.
const STRINGS: &[&str] = &[
    "",
    "F16",
    "I8",
    "Q4NX",
    "F8_E4M3",
    "__metadata__",
    "data_offsets",
    "weight_map",
    "32,256",
    "64,128",
    "../x",
    "x.json",
    "\\u0000",
    "\\ud800",
];
/// Replacements of numbers, besides the edges.
const NUMBERS: &[&str] = &[
    "-1",
    "1e99",
    "0.5",
    "null",
    "true",
    "[]",
    "{}",
    "\"x\"",
    "[[[[",
    "18446744073709551616",
];

/// Replaces a string or a number by another of the file or of the lists, or moves a number a
/// little, so that mostly valid JSON comes out.
fn change_token(bytes: &mut Vec<u8>, head_bytes: usize, rng: &mut Rng) {
    let tokens = tokens(&bytes[..head_bytes.min(bytes.len())]);
    if tokens.is_empty() {
        return;
    }
    let token = rng.pick(&tokens.iter().collect::<Vec<_>>()).clone();
    let text = String::from_utf8_lossy(&bytes[token.clone()]).into_owned();
    let is_number = text.parse::<u64>().is_ok();
    let with = match (rng.below(6), is_number) {
        (0, _) => {
            let twin = tokens[rng.below(tokens.len())].clone();
            String::from_utf8_lossy(&bytes[twin]).into_owned()
        }
        (1 | 2, true) => {
            let number: u64 = text.parse().unwrap_or_default();
            let step = rng.pick(&[1, 2, 4, 8, 256]);
            let up = rng.below(2) == 0;
            let moved = if up {
                number.wrapping_add(step)
            } else {
                number.saturating_sub(step)
            };
            moved.to_string()
        }
        (3 | 4, true) => edge(bytes.len(), rng).to_string(),
        (_, true) => rng.pick(NUMBERS).to_owned(),
        (_, false) => rng.pick(STRINGS).to_owned(),
    };
    bytes.splice(token, with.bytes());
}

/// Runs of digits, and the texts between quotes.
fn tokens(head: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = None;
    let mut in_string = false;
    for (i, &byte) in head.iter().enumerate() {
        if byte == b'"' {
            if let Some(start) = start.take() {
                found.push(start..i);
            }
            in_string = !in_string;
            start = in_string.then_some(i + 1);
        } else if !in_string && byte.is_ascii_digit() {
            start.get_or_insert(i);
        } else if !in_string && let Some(start) = start.take() {
            found.push(start..i);
        }
    }
    found
}
