//! The loops of recurrent ops, and their table, a row for each level.

use super::{LANES, MAX_TAPS};
use crate::elementwise::exp;
use crate::level::Level;

/// Weights of neighbouring channels.
pub(crate) struct ConvTaps {
    /// By tap, the oldest token's first.
    pub(super) weight: [[f32; LANES]; MAX_TAPS],
    pub(super) bias: [f32; LANES],
    pub(super) n_taps: usize,
}

/// A token's inputs to a block of columns of a state.
pub(crate) struct FadeToken<'a> {
    pub(crate) k: &'a [f32],
    pub(crate) q: &'a [f32],
    pub(crate) decay: f32,
    /// The values of the block's columns.
    pub(crate) v: &'a [f32; LANES],
}

/// A token's inputs to a block of channels of a state.
pub(crate) struct ChannelToken<'a> {
    pub(crate) k: &'a [f32],
    pub(crate) q: &'a [f32],
    /// The decay factor of each element of the block.
    pub(crate) decays: &'a [f32],
    /// The values of the block's channels.
    pub(crate) v: &'a [f32; LANES],
}

/// A token's inputs to a block of columns of a state with rank-one updates, by row: keys are rows.
pub(crate) struct RuleToken<'a> {
    /// The query.
    pub(crate) q: &'a [f32],
    /// The decay factor of each row.
    pub(crate) decay: &'a [f32],
    /// Where the values are added.
    pub(crate) k: &'a [f32],
    /// Where the block is read before it fades.
    pub(crate) read: &'a [f32],
    /// The direction in which the read values are added.
    pub(crate) write: &'a [f32],
    /// The values of the block's columns.
    pub(crate) v: &'a [f32; LANES],
}

/// The window of a convolution: by token, the oldest first.
type Window = [[f32; LANES]; MAX_TAPS];

/// The kernels of a level. Calling one is sound where the CPU has the level.
pub(crate) struct RecurrentKernels {
    pub(crate) conv: unsafe fn(&ConvTaps, &mut Window, &mut [f32; LANES]),
    pub(crate) silu: unsafe fn(&mut [f32]),
    pub(crate) unit: unsafe fn(&[f32], (f32, f32), &mut [f32]),
    pub(crate) correct: unsafe fn(&mut [f32], &FadeToken<'_>, f32, &mut [f32; LANES]),
    pub(crate) absorb: unsafe fn(&mut [f32], &FadeToken<'_>, &mut [f32; LANES]),
    pub(crate) exp: unsafe fn(&mut [f32]),
    pub(crate) softplus: unsafe fn(&mut [f32]),
    pub(crate) fade: unsafe fn(&mut [f32], &ChannelToken<'_>, &mut [f32; LANES]),
    pub(crate) revise: unsafe fn(&mut [f32], &RuleToken<'_>, &mut [f32; LANES]),
}

static SCALAR: RecurrentKernels = RecurrentKernels {
    conv: conv_body::<false>,
    silu: silu_body::<false>,
    unit: unit_body::<false>,
    correct: correct_body::<false>,
    absorb: absorb_body::<false>,
    exp: exp_body::<false>,
    softplus: softplus_body::<false>,
    fade: fade_body::<false>,
    revise: revise_body::<false>,
};

impl RecurrentKernels {
    /// The kernels of `level`. Only for a level this CPU has: [`crate::Cpu`] is the proof.
    pub(crate) fn for_level(level: Level) -> &'static RecurrentKernels {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => &crate::x86::avx2::recurrent::ROWS,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Bf16 | Level::Amx => &crate::x86::avx512::recurrent::ROWS,
            #[cfg(target_arch = "aarch64")]
            Level::Neon | Level::DotProd | Level::I8mm => &crate::aarch64::recurrent::ROWS,
            _ => &SCALAR,
        }
    }

    /// The sum of a window, which then moves on by a token.
    pub(super) fn conv(&self, taps: &ConvTaps, window: &mut Window, out: &mut [f32; LANES]) {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.conv)(taps, window, out) }
    }

    /// SiLU in place.
    pub(super) fn silu(&self, x: &mut [f32]) {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.silu)(x) }
    }

    /// `x · scale / sqrt(Σ x² + eps)`.
    pub(super) fn unit(&self, x: &[f32], (eps, scale): (f32, f32), out: &mut [f32]) {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.unit)(x, (eps, scale), out) }
    }

    /// A block of columns `[k_dim, LANES]` fades, is corrected at a token's key towards its values by a strength, and
    /// read at its query.
    pub(super) fn correct(
        &self,
        tile: &mut [f32],
        token: &FadeToken<'_>,
        strength: f32,
        out: &mut [f32; LANES],
    ) {
        token.check(tile);
        // SAFETY: the table was chosen for a level this CPU has; the leaves may rely on the lengths.
        unsafe { (self.correct)(tile, token, strength, out) }
    }

    /// Decays a block of columns `[k_dim, LANES]`, adds a token's values at its key, and reads it at its query.
    pub(super) fn absorb(&self, tile: &mut [f32], token: &FadeToken<'_>, out: &mut [f32; LANES]) {
        token.check(tile);
        // SAFETY: the table was chosen for a level this CPU has; the leaves may rely on the lengths.
        unsafe { (self.absorb)(tile, token, out) }
    }
}

impl RecurrentKernels {
    /// `e^x` in place.
    pub(super) fn exp(&self, x: &mut [f32]) {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.exp)(x) }
    }

    /// `ln(1 + e^x)` in place.
    pub(super) fn softplus(&self, x: &mut [f32]) {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.softplus)(x) }
    }

    /// Decays a block of channels `[d_state, LANES]` element by element, adds a token's values at its key, and reads it
    /// at its query.
    pub(super) fn fade(&self, tile: &mut [f32], token: &ChannelToken<'_>, out: &mut [f32; LANES]) {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.fade)(tile, token, out) }
    }
}

impl RecurrentKernels {
    /// Reads a block of columns `[head_dim, LANES]` at one vector and decays it row by row. Then adds the read values at
    /// another vector and a token's values at its key, and reads the block at the query.
    pub(super) fn revise(&self, tile: &mut [f32], token: &RuleToken<'_>, out: &mut [f32; LANES]) {
        let n = token.q.len();
        let vectors = [token.decay, token.k, token.read, token.write];
        assert!(n * LANES == tile.len() && vectors.iter().all(|x| x.len() == n));
        // SAFETY: the table was chosen for a level this CPU has; the leaves may rely on the lengths.
        unsafe { (self.revise)(tile, token, out) }
    }
}

impl FadeToken<'_> {
    fn check(&self, tile: &[f32]) {
        assert!(self.k.len() * LANES == tile.len() && self.q.len() == self.k.len());
    }
}

#[inline(always)]
fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

#[inline(always)]
pub(crate) fn conv_body<const FMA: bool>(
    taps: &ConvTaps,
    window: &mut Window,
    out: &mut [f32; LANES],
) {
    let mut sums = [0.0; LANES];
    for (x, weight) in window.iter().zip(&taps.weight).take(taps.n_taps) {
        for ((sum, x), weight) in sums.iter_mut().zip(x).zip(weight) {
            *sum = fma::<FMA>(*x, *weight, *sum);
        }
    }
    for ((out, sum), bias) in out.iter_mut().zip(&sums).zip(&taps.bias) {
        *out = sum + bias;
    }
    window.copy_within(1..taps.n_taps, 0);
}

#[inline(always)]
pub(crate) fn silu_body<const FMA: bool>(x: &mut [f32]) {
    for x in x {
        *x /= 1.0 + exp::<FMA>(-*x);
    }
}

#[inline(always)]
pub(crate) fn unit_body<const FMA: bool>(x: &[f32], (eps, scale): (f32, f32), out: &mut [f32]) {
    let mut sums = [0.0; LANES];
    let (vectors, rest) = x.as_chunks::<LANES>();
    for vector in vectors {
        for (sum, x) in sums.iter_mut().zip(vector) {
            *sum = fma::<FMA>(*x, *x, *sum);
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum = fma::<FMA>(*x, *x, *sum);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
        width /= 2;
    }
    let factor = scale / (sums[0] + eps).sqrt();
    for (out, x) in out.iter_mut().zip(x) {
        *out = x * factor;
    }
}

/// Partial sums over the rows of a block, the same number as on x86.
const PARTIALS: usize = 4;

#[inline(always)]
pub(crate) fn correct_body<const FMA: bool>(
    tile: &mut [f32],
    token: &FadeToken<'_>,
    strength: f32,
    out: &mut [f32; LANES],
) {
    let (rows, _) = tile.as_chunks::<LANES>();
    let mut sums = [[0.0; LANES]; PARTIALS];
    for (i, (row, k)) in rows.iter().zip(token.k).enumerate() {
        for (sum, x) in sums[i % PARTIALS].iter_mut().zip(row) {
            *sum = fma::<FMA>(*x, *k, *sum);
        }
    }
    let seen = add_up(&sums);
    let mut correction = [0.0; LANES];
    for ((correction, v), seen) in correction.iter_mut().zip(token.v).zip(&seen) {
        *correction = strength * fma::<FMA>(-token.decay, *seen, *v);
    }
    let token = FadeToken {
        v: &correction,
        ..*token
    };
    absorb_body::<FMA>(tile, &token, out);
}

#[inline(always)]
pub(crate) fn absorb_body<const FMA: bool>(
    tile: &mut [f32],
    token: &FadeToken<'_>,
    out: &mut [f32; LANES],
) {
    let (rows, _) = tile.as_chunks_mut::<LANES>();
    let mut sums = [[0.0; LANES]; PARTIALS];
    let inputs = rows.iter_mut().zip(token.k.iter().zip(token.q));
    for (i, (row, (k, q))) in inputs.enumerate() {
        let sums = sums[i % PARTIALS].iter_mut();
        for ((x, sum), v) in row.iter_mut().zip(sums).zip(token.v) {
            *x = fma::<FMA>(*k, *v, token.decay * *x);
            *sum = fma::<FMA>(*x, *q, *sum);
        }
    }
    *out = add_up(&sums);
}

#[inline(always)]
pub(crate) fn exp_body<const FMA: bool>(x: &mut [f32]) {
    for x in x {
        *x = exp::<FMA>(*x);
    }
}

/// `ln(1 + t)` of `t = e^-|x|` is `2 · artanh(t / (2 + t))`. Its series in the square, at most 1/9, falls below the
/// rounding after seven terms.
#[inline(always)]
pub(crate) fn softplus_body<const FMA: bool>(x: &mut [f32]) {
    const SERIES: [f32; 6] = [1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0];
    for x in x {
        let t = exp::<FMA>(-x.abs());
        let s = t / (2.0 + t);
        let square = s * s;
        let mut sum = 1.0 / 13.0;
        for coefficient in SERIES {
            sum = fma::<FMA>(sum, square, coefficient);
        }
        *x = fma::<FMA>(2.0 * s, sum, x.max(0.0));
    }
}

#[inline(always)]
pub(crate) fn fade_body<const FMA: bool>(
    tile: &mut [f32],
    token: &ChannelToken<'_>,
    out: &mut [f32; LANES],
) {
    let (rows, _) = tile.as_chunks_mut::<LANES>();
    let (decays, _) = token.decays.as_chunks::<LANES>();
    let mut sums = [[0.0; LANES]; PARTIALS];
    let inputs = rows.iter_mut().zip(decays).zip(token.k.iter().zip(token.q));
    for (i, ((row, decays), (k, q))) in inputs.enumerate() {
        let sums = sums[i % PARTIALS].iter_mut();
        for (((x, decay), sum), v) in row.iter_mut().zip(decays).zip(sums).zip(token.v) {
            *x = fma::<FMA>(*k, *v, decay * *x);
            *sum = fma::<FMA>(*x, *q, *sum);
        }
    }
    *out = add_up(&sums);
}

#[inline(always)]
pub(crate) fn revise_body<const FMA: bool>(
    tile: &mut [f32],
    token: &RuleToken<'_>,
    out: &mut [f32; LANES],
) {
    let (rows, _) = tile.as_chunks_mut::<LANES>();
    let mut sums = [[0.0; LANES]; PARTIALS];
    for (i, (row, read)) in rows.iter().zip(token.read).enumerate() {
        for (sum, x) in sums[i % PARTIALS].iter_mut().zip(row) {
            *sum = fma::<FMA>(*x, *read, *sum);
        }
    }
    let seen = add_up(&sums);
    let mut sums = [[0.0; LANES]; PARTIALS];
    for (i, row) in rows.iter_mut().enumerate() {
        let (decay, k, write, q) = (token.decay[i], token.k[i], token.write[i], token.q[i]);
        let columns = token.v.iter().zip(&seen).zip(&mut sums[i % PARTIALS]);
        for (x, ((v, seen), sum)) in row.iter_mut().zip(columns) {
            *x = fma::<FMA>(write, *seen, fma::<FMA>(k, *v, decay * *x));
            *sum = fma::<FMA>(*x, q, *sum);
        }
    }
    *out = add_up(&sums);
}

#[inline(always)]
fn add_up(sums: &[[f32; LANES]; PARTIALS]) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    for (i, out) in out.iter_mut().enumerate() {
        *out = (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
    }
    out
}
