//! Products of bf16 matrices through block floating point. [`numerics`](crate::numerics) lists the known facts about
//! the conversion.

use super::math::{bf16s, bf16s_mut, f32s_mut, truncate, widen};
use super::{TileCall, attention};
use half::bf16;

/// Values that share an exponent.
const BLOCK: usize = 8;

/// Mantissas of eight values, and the bits of an f32 exponent that they are steps of.
#[derive(Clone, Copy)]
struct BfpBlock {
    mantissas: [i32; BLOCK],
    /// Exponent of a step, unbiased; `None` where a value is infinite or not a number.
    step: Option<i32>,
}

/// Biased exponent of a bf16.
fn exponent(x: bf16) -> i32 {
    i32::from(x.to_bits() >> 7 & 0xff)
}

/// Significand of a bf16 with its sign: 1.m in units of 2⁻⁷. Subnormal values are zero.
fn significand(x: bf16) -> i32 {
    let bits = i32::from(x.to_bits());
    if exponent(x) == 0 {
        return 0;
    }
    let magnitude = 0x80 | bits & 0x7f;
    if bits & 0x8000 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// `x / 2^shift` to the nearest whole number, ties to even.
fn rounded(x: i32, shift: u32) -> i32 {
    // Beyond 30 places nothing is left of eight bits.
    let shift = shift.min(30);
    let floor = x >> shift;
    let (rest, half) = (x - (floor << shift), (1 << shift) >> 1);
    let up = shift > 0 && (rest > half || rest == half && floor & 1 == 1);
    floor + i32::from(up)
}

impl BfpBlock {
    fn new(values: [bf16; BLOCK]) -> BfpBlock {
        let exponents = values.map(exponent);
        let largest = exponents.into_iter().fold(0, i32::max);
        if largest == 0xff {
            return BfpBlock {
                mantissas: [0; BLOCK],
                step: None,
            };
        }
        // A significand counts 2⁻⁷ of its exponent, a mantissa 2⁻⁶ of the largest.
        let at = |raised: i32| {
            let mut mantissas = [0; BLOCK];
            for (mantissa, (&value, exponent)) in
                mantissas.iter_mut().zip(values.iter().zip(exponents))
            {
                let places = largest + raised + 1 - exponent;
                *mantissa = rounded(significand(value), places.unsigned_abs());
            }
            mantissas
        };
        let mut raised = 0;
        let mut mantissas = at(raised);
        if mantissas.iter().any(|&m| m > 127) {
            raised = 1;
            mantissas = at(raised);
        }
        BfpBlock {
            mantissas,
            step: Some(largest + raised - 127 - 6),
        }
    }
}

/// 2 to a whole power, exactly; f64 has the range of two steps together.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((i64::from(exponent) + 1023) as u64) << 52)
}

/// One operand: for each block of k, the blocks of its rows (columns of B).
fn blocks(
    matrix: &[bf16],
    edge: usize,
    at: impl Fn(usize, usize, usize) -> usize,
) -> Vec<BfpBlock> {
    let k_blocks = matrix.len() / edge / BLOCK;
    let of = |k_block: usize| {
        let at = &at;
        (0..edge)
            .map(move |row| BfpBlock::new(std::array::from_fn(|i| matrix[at(k_block, row, i)])))
    };
    (0..k_blocks).flat_map(of).collect()
}

/// `C += A · B` on blocked tiles, one f32 addition a block of k. `transposed` where B is `[n, k]`.
fn multiply([m, n, k]: [usize; 3], a: &[bf16], b: &[bf16], transposed: bool, c: &mut [f32]) {
    let tile = BLOCK * BLOCK;
    let by_row = |edge: usize| {
        move |k_block: usize, row: usize, i: usize| {
            (k_block * (edge / BLOCK) + row / BLOCK) * tile + row % BLOCK * BLOCK + i
        }
    };
    let by_column = |k_block: usize, col: usize, i: usize| {
        (col / BLOCK * (k / BLOCK) + k_block) * tile + i * BLOCK + col % BLOCK
    };
    let a = blocks(a, m, by_row(m));
    let b = if transposed {
        blocks(b, n, by_row(n))
    } else {
        blocks(b, n, by_column)
    };
    for (at, c) in c.iter_mut().enumerate() {
        let (block, within) = (at / tile, at % tile);
        let row = block % (m / BLOCK) * BLOCK + within / BLOCK;
        let col = block / (m / BLOCK) * BLOCK + within % BLOCK;
        for k_block in 0..k / BLOCK {
            *c = add_block(*c, &a[k_block * m + row], &b[k_block * n + col]);
        }
        if c.is_nan() {
            *c = f32::NAN;
        }
    }
}

/// The sum with eight more products.
fn add_block(sum: f32, a: &BfpBlock, b: &BfpBlock) -> f32 {
    let (Some(a_step), Some(b_step)) = (a.step, b.step) else {
        return f32::NAN;
    };
    let pairs = a.mantissas.iter().zip(&b.mantissas);
    let products: i32 = pairs.map(|(a, b)| a * b).sum();
    let products = (f64::from(products) * power_of_two(a_step + b_step)) as f32;
    let flushed = |x: f32| if x.is_subnormal() { 0.0 } else { x };
    flushed(flushed(sum) + flushed(products))
}

fn sizes(call: &TileCall<'_>) -> [usize; 3] {
    [0, 1, 2].map(|i| call.dims[i] as usize)
}

pub(super) fn run_f32(call: &mut TileCall<'_>) {
    let (a, b) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    let sizes = sizes(call);
    multiply(sizes, a, b, false, f32s_mut(call.outputs[0]));
}

/// [`run_f32`] with the transpose of B.
pub(super) fn run_bt_f32(call: &mut TileCall<'_>) {
    let (a, bt) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    let sizes = sizes(call);
    multiply(sizes, a, bt, true, f32s_mut(call.outputs[0]));
}

pub(super) fn run_bf16(call: &mut TileCall<'_>) {
    let sizes = sizes(call);
    let (a, b) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    let c = bf16s_mut(call.outputs[0]);
    let mut sums: Vec<f32> = c.iter().map(|&c| widen(c)).collect();
    multiply(sizes, a, b, false, &mut sums);
    for (c, &sum) in c.iter_mut().zip(&sums) {
        *c = truncate(sum);
    }
}

/// S = Q · Kᵀ: K is blocked as A, so its rows are columns of B.
pub(super) fn scores(call: &mut TileCall<'_>) {
    let sums = vec![0.0; bf16s(call.outputs[0]).len()];
    add_scores(call, sums);
}

/// The same, added to the present S.
pub(super) fn scores_add(call: &mut TileCall<'_>) {
    let sums = bf16s(call.outputs[0]).iter().map(|&s| widen(s)).collect();
    add_scores(call, sums);
}

fn add_scores(call: &mut TileCall<'_>, mut sums: Vec<f32>) {
    let (q, k) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    multiply(sizes(call), q, k, true, &mut sums);
    attention::mask_and_round(call, &sums);
}

/// O = O·r + P · V.
pub(super) fn values(call: &mut TileCall<'_>) {
    let [tq, tk, dv] = sizes(call);
    attention::add_values(call, |p, v, sums| multiply([tq, dv, tk], p, v, false, sums));
}
