//! Context of an op's definition: a token's row, over f32 or f64.

use crate::{Graph, Operation, SequenceMemory, WeightId};
use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, Neg, Sub};

/// An element type of definitions: f32 or f64.
pub trait Real:
    Copy
    + Debug
    + Send
    + Sync
    + 'static
    + Default
    + PartialOrd
    + Add<Output = Self>
    + AddAssign
    + Div<Output = Self>
    + DivAssign
    + Mul<Output = Self>
    + Neg<Output = Self>
    + Sub<Output = Self>
    + Sum
{
    /// Smaller than every number.
    const NEG_INFINITY: Self;

    /// The nearest element.
    fn from_f64(x: f64) -> Self;

    /// The same number in f64.
    fn to_f64(self) -> f64;

    /// `e` to this power.
    fn exp(self) -> Self;

    /// `e` to this power, less 1, also near 0.
    fn exp_m1(self) -> Self;

    /// The larger of the two; if one is NaN, the other.
    fn max(self, other: Self) -> Self;

    /// The error function.
    fn erf(self) -> Self;

    /// The natural logarithm.
    fn ln(self) -> Self;

    /// Sine and cosine.
    fn sin_cos(self) -> (Self, Self);

    /// The square root.
    fn sqrt(self) -> Self;

    /// The hyperbolic tangent.
    fn tanh(self) -> Self;

    /// An op's definition over this type.
    fn define(
        op: &dyn Operation,
        row: &TokenContext<'_, Self>,
        state: &mut [Self],
        out: &mut [Self],
    );
}

macro_rules! real {
    ($real:ident, $row:ident) => {
        impl Real for $real {
            const NEG_INFINITY: $real = $real::NEG_INFINITY;

            fn from_f64(x: f64) -> $real {
                x as $real
            }

            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            fn exp(self) -> $real {
                self.exp()
            }

            fn exp_m1(self) -> $real {
                self.exp_m1()
            }

            fn max(self, other: $real) -> $real {
                self.max(other)
            }

            fn erf(self) -> $real {
                erf(f64::from(self)) as $real
            }

            fn ln(self) -> $real {
                self.ln()
            }

            fn sin_cos(self) -> ($real, $real) {
                self.sin_cos()
            }

            fn sqrt(self) -> $real {
                self.sqrt()
            }

            fn tanh(self) -> $real {
                self.tanh()
            }

            fn define(
                op: &dyn Operation,
                row: &TokenContext<'_, $real>,
                state: &mut [$real],
                out: &mut [$real],
            ) {
                op.$row(row, state, out);
            }
        }
    };
}
real!(f32, row);
real!(f64, row_f64);

/// The error function, within 1e-15 where `|x| < 3`: its series, and beyond the continued fraction of `erfc`
/// (Abramowitz and Stegun 1964, 7.1.5 and 7.1.14).
fn erf(x: f64) -> f64 {
    let a = x.abs();
    let magnitude = if a < 3.0 {
        let (mut term, mut sum) = (a, a);
        for n in 1..200 {
            term *= -a * a / f64::from(n);
            let part = term / f64::from(2 * n + 1);
            sum += part;
            if part.abs() < 1e-17 * sum.abs() {
                break;
            }
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        let fraction = (1..=60)
            .rev()
            .fold(0.0, |f, n| f64::from(n) / 2.0 / (a + f));
        1.0 - (-a * a).exp() / (a + fraction) / std::f64::consts::PI.sqrt()
    };
    magnitude.copysign(x)
}

/// Rounds nothing.
pub fn exact<R>(x: R) -> R {
    x
}

/// Values of weights.
pub trait WeightValues<R>: Sync {
    /// A row of a matrix: `row` counts over the experts' rows, one expert after another.
    fn row(&self, id: WeightId, row: usize, out: &mut [R]);

    /// A vector weight.
    fn vector(&self, id: WeightId) -> &[R];
}

/// Keys and values that a token sees, its own last: rows `[n_keys, width]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keys<'a, R> {
    /// Keys.
    pub k: &'a [R],
    /// Values.
    pub v: &'a [R],
}

impl<'a, R> Keys<'a, R> {
    /// The keys and values that the token at `position` sees, from those of its sequence from position `first` on.
    pub(crate) fn seen(self, memory: SequenceMemory, first: usize, position: usize) -> Keys<'a, R> {
        let (seen, width) = match memory {
            SequenceMemory::KvCache(kv)
            | SequenceMemory::SharedKv(kv)
            | SequenceMemory::TargetKv(kv) => (kv.seen(position), kv.width()),
            SequenceMemory::AllTokens(all) => {
                let seen = all.seen(position - first, self.k.len() / all.width);
                (first + seen.start..first + seen.end, all.width)
            }
            SequenceMemory::None | SequenceMemory::State(_) => (first..first, 1),
        };
        let seen = (seen.start - first) * width..(seen.end - first) * width;
        Keys {
            k: &self.k[seen.clone()],
            v: &self.v[seen],
        }
    }
}

/// A token, and the inputs of an op's definition for it.
pub struct TokenContext<'a, R> {
    /// The graph, for its RoPE tables.
    pub graph: &'a Graph,
    /// Values of weights.
    pub weights: &'a dyn WeightValues<R>,
    /// The token.
    pub token: u32,
    /// Its position in the sequence.
    pub position: usize,
    /// The token's row of each input, in the op's order.
    pub inputs: &'a [&'a [R]],
    /// The row that came with the token; empty if none did.
    pub given: &'a [R],
    /// For an op with a KV cache: the keys and values that the token sees, after windowing.
    pub keys: Keys<'a, R>,
    /// Rounding that hardware applies between the steps of a definition.
    pub round: fn(R) -> R,
}
