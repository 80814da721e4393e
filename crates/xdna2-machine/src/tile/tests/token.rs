//! A token's attention by the parts that cores of projections have.

use super::cached::{call_bytes, narrow};
use super::*;

const D: usize = 64;
const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const SPREAD: usize = 2;
const UNIT: usize = 2;
/// Keys of a block, and of a core.
const ROWS: usize = 2560 / D;
const KEYS: usize = 2 * ROWS;
const N_KEYS: usize = KEYS * SPREAD * UNIT;
const TOTAL: usize = 768;
const GROUP: usize = HEADS / KV_HEADS;
const PIECES: usize = D / 16 + 1;
const SCALE: f32 = 0.125;

const DIMS: [u32; 7] = [
    TOTAL as u32,
    D as u32,
    HEADS as u32,
    KV_HEADS as u32,
    SPREAD as u32,
    UNIT as u32,
    KEYS as u32,
];

type TokenOperand = (millrace_npu::Element, Vec<u8>);

/// Inputs of the cores, exact in bf16.
struct TokenProblem {
    query: Vec<f32>,
    new: [Vec<f32>; 2],
    /// Keys and values, head-major.
    cache: [Vec<f32>; 2],
    position: usize,
    oldest: usize,
    window: usize,
}

impl TokenProblem {
    fn vector(&self) -> TokenOperand {
        let mut v = [&self.query[..], &self.new[0], &self.new[1]].concat();
        for n in [self.position, self.oldest] {
            v.extend(n.to_le_bytes()[..4].iter().map(|&digit| f32::from(digit)));
        }
        v.resize(TOTAL + TOTAL / 32, 0.0);
        narrow(&v)
    }

    /// Block `i` of a core, of keys or values.
    fn block(&self, of: usize, [x, y, i]: [usize; 3]) -> TokenOperand {
        let first = ((i * SPREAD + x % SPREAD) * UNIT + y) * ROWS;
        let at = (x / SPREAD * N_KEYS + first) * D;
        (U8, narrow(&self.cache[of][at..at + ROWS * D]).1)
    }

    /// The part of a column's cores.
    fn part(&self, x: usize) -> Vec<u8> {
        let mut part = vec![0; 2 * GROUP * PIECES * UNIT * 32];
        for y in 0..UNIT {
            let state = self.state(x, y);
            for piece in 0..GROUP * PIECES {
                let mut given = [state.clone(), narrow(&[0.0; 32])];
                let scalars = [piece as i64];
                call_bytes("ta_give_bf16", &DIMS, &mut given, &scalars, &[]).expect("legal");
                part[(piece * UNIT + y) * 64..][..64].copy_from_slice(&given[1].1);
            }
        }
        part
    }

    fn state(&self, x: usize, y: usize) -> TokenOperand {
        let place = [x as i64, y as i64];
        let mut scores = (F32, vec![0; 4 * GROUP * KEYS]);
        for i in 0..2 {
            let mut operands = [self.block(0, [x, y, i]), self.vector(), scores];
            let [window, rows] = [self.window, N_KEYS].map(|n| n as i64);
            let scalars = [i as i64, 0, place[0], place[1], window, rows];
            call_bytes("ta_scores_bf16", &DIMS, &mut operands, &scalars, &[]).expect("legal");
            let [_, _, after] = operands;
            scores = after;
        }
        let state = (F32, vec![0xff; 4 * GROUP * (D + 2)]);
        let mut operands = [self.vector(), scores, state];
        let scalars = [2, 0, place[0], place[1]];
        call_bytes("ta_soften_bf16", &DIMS, &mut operands, &scalars, &[SCALE]).expect("legal");
        let [_, scores, mut state] = operands;
        for i in 0..2 {
            let mut operands = [self.block(1, [x, y, i]), scores.clone(), state];
            call_bytes("ta_values_bf16", &DIMS, &mut operands, &[i as i64], &[]).expect("legal");
            let [_, _, after] = operands;
            state = after;
        }
        state
    }

    /// The result, head by head.
    fn found(&self) -> Vec<f32> {
        let dims = [D as u32, GROUP as u32, UNIT as u32];
        let head = |kv_head: usize| -> Vec<f32> {
            let mut state = (F32, vec![0xff; 4 * GROUP * (D + 2)]);
            for column in 0..SPREAD {
                let part = (Bf16, self.part(kv_head * SPREAD + column));
                let mut operands = [part, state];
                let scalars = [column as i64];
                let name = "ta_join_bf16";
                call_bytes(name, &dims, &mut operands, &scalars, &[SCALE]).expect("legal");
                let [_, after] = operands;
                state = after;
            }
            let mut finished = [state, narrow(&[0.0; GROUP * D])];
            call_bytes("ta_finish_bf16", &dims, &mut finished, &[], &[]).expect("legal");
            let bytes = finished[1].1.chunks_exact(2);
            bytes
                .map(|b| bf16::from_ne_bytes([b[0], b[1]]).to_f32())
                .collect()
        };
        (0..KV_HEADS).flat_map(head).collect()
    }

    /// The formula in f64.
    fn expected(&self) -> Vec<f64> {
        let mut all = Vec::new();
        for head in 0..HEADS {
            let kv_head = head / GROUP;
            let q = &self.query[head * D..][..D];
            let sees = |key: usize| {
                let recent = self.window == 0 || key + self.window > self.position;
                key < self.position && key >= self.oldest && recent
            };
            // The last keys, one after the other in a ring.
            let cached = |key: usize, of: usize| {
                &self.cache[of][(kv_head * N_KEYS + key % N_KEYS) * D..][..D]
            };
            let own = |of: usize| &self.new[of][kv_head * D..][..D];
            let first = self.position.saturating_sub(N_KEYS);
            let mut rows: Vec<[&[f32]; 2]> = (first..self.position)
                .filter(|&key| sees(key))
                .map(|key| [0, 1].map(|of| cached(key, of)))
                .collect();
            rows.push([0, 1].map(own));
            let weight = |key: &[f32]| {
                let products = q
                    .iter()
                    .zip(key)
                    .map(|(q, k)| f64::from(*q) * f64::from(*k));
                (f64::from(SCALE) * products.sum::<f64>()).exp()
            };
            let weights: Vec<f64> = rows.iter().map(|[k, _]| weight(k)).collect();
            let sum: f64 = weights.iter().sum();
            all.extend((0..D).map(|i| {
                let o = weights
                    .iter()
                    .zip(&rows)
                    .map(|(w, [_, v])| w * f64::from(v[i]));
                o.sum::<f64>() / sum
            }));
        }
        all
    }
}

fn problem(position: usize, oldest: usize, window: usize) -> TokenProblem {
    let n = KV_HEADS * D;
    TokenProblem {
        query: numbers(HEADS * D, 1),
        new: [numbers(n, 2), numbers(n, 3)],
        cache: [numbers(N_KEYS * n, 4), numbers(N_KEYS * n, 5)],
        position,
        oldest,
        window,
    }
}

/// From an empty cache, where cores have nothing to send, to a full one.
#[test]
fn the_parts_of_cores_are_attention() {
    for (position, oldest, window) in [
        (0, 0, 0),
        (1, 0, 0),
        (ROWS, 0, 0),
        (ROWS + 1, 0, 0),
        (N_KEYS - 7, 0, 0),
        (N_KEYS, 0, 0),
        (300, 0, 22),
        (300, 290, 0),
        (300, 290, 5),
        (N_KEYS + 1, 0, N_KEYS - 3),
        (70_000, 0, 100),
        (70_000, 69_950, 0),
    ] {
        let problem = problem(position, oldest, window);
        assert_close(&problem.found(), &problem.expected(), 0.01, 0.004);
    }
}

/// The new key is one core's, the position all cores'.
#[test]
fn a_wrong_row_shows() {
    let right = problem(100, 0, 0);
    let expected = right.found();
    let changed = |change: fn(&mut TokenProblem)| {
        let mut wrong = problem(100, 0, 0);
        change(&mut wrong);
        wrong.found() != expected
    };
    assert!(changed(|p| p.new[0][D] += 1.0));
    assert!(changed(|p| p.new[1][0] += 1.0));
    assert!(changed(|p| p.cache[0][99 * D] += 1.0));
    assert!(changed(|p| p.cache[1][(N_KEYS + 99) * D + 63] += 1.0));
    assert!(changed(|p| p.position = 101));
    assert!(!changed(|p| p.cache[0][100 * D] += 1.0));
    // A value that is not seen may be NaN.
    assert!(!changed(|p| p.cache[1][100 * D] = f32::NAN));
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let at = |i: usize, value: u32| {
        let mut dims = DIMS;
        dims[i] = value;
        let state = (F32, vec![0; 4 * GROUP * (D + 2)]);
        let mut operands = [state, narrow(&[0.0; 32])];
        call_bytes("ta_give_bf16", &dims, &mut operands, &[0], &[])
    };
    assert!(at(0, TOTAL as u32).is_ok());
    for (i, value, words) in [
        (0, 512, "at least"),
        (0, 800, "multiple of 256"),
        (1, 48, "multiple of 32"),
        (1, 96, "divides 2560"),
        (2, 7, "multiple of kv_heads"),
        (6, 41, "multiple of the 40"),
        (5, 0, "must be 1"),
    ] {
        let refused = at(i, value).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }
}
