//! Activations in the forms that kernels multiply, made once for each input of a matmul.

use super::panel::{Input, X32, X256};
use super::quantize;
use super::scratch::AlignedBytes;
use crate::cpu::Cpu;
use crate::pool::DisjointMut;

/// How activations meet block-quantised and bf16 weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// In the fastest form whose error stays under the weights' own: i8 with block formats, bf16
    /// with bf16 weights where the level has the instructions.
    #[default]
    Fast,
    /// In f32, with weights decoded to f32: for verification.
    Exact,
}

/// Tokens that one chunk of the conversion handles.
const TOKENS_A_CHUNK: usize = 8;

/// Elements below which the conversion is not worth another parallel region.
const SERIAL_ELEMS: usize = 32 * 1024;

/// The converted input of a matmul. It is reused between calls, so that a steady state allocates
/// nothing.
#[derive(Default)]
pub struct Activations {
    precision: Precision,
    bf16: AlignedBytes,
    i8x32: AlignedBytes,
    i8x256: AlignedBytes,
}

/// One form of the input: its start and the distance between its tokens.
#[derive(Clone, Copy)]
pub(crate) struct ActivationView {
    /// First token.
    pub(crate) start: *const u8,
    /// Bytes from a token to the next.
    pub(crate) stride: usize,
}

impl ActivationView {
    /// The view that begins with a token of this one.
    pub(super) fn row(self, index: usize) -> ActivationView {
        ActivationView {
            start: self.start.wrapping_add(index * self.stride),
            ..self
        }
    }
}

impl Activations {
    /// An empty scratch that converts with `precision`.
    #[must_use]
    pub fn new(precision: Precision) -> Activations {
        Activations {
            precision,
            ..Activations::default()
        }
    }

    /// How the input is converted.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Converts `x: [m, k]` to one form.
    pub(crate) fn prepare(&mut self, cpu: &Cpu, x: &[f32], k: usize, input: Input) {
        let Some(buffer) = self.buffer(input) else {
            return;
        };
        let stride = row_bytes(input, k);
        let m = x.len() / k;
        let bytes = &mut buffer.at_least(m * stride)[..m * stride];
        let convert = quantize::converter(input, cpu.level());
        if x.len() <= SERIAL_ELEMS {
            for (x, row) in x.chunks_exact(k).zip(bytes.chunks_exact_mut(stride)) {
                // SAFETY: the level is the CPU's own and the row has `row_bytes` bytes.
                unsafe { convert(x, row) };
            }
            return;
        }
        let bytes = DisjointMut::new(bytes);
        cpu.pool().run(m.div_ceil(TOKENS_A_CHUNK), &|chunk| {
            for t in chunk * TOKENS_A_CHUNK..m.min((chunk + 1) * TOKENS_A_CHUNK) {
                // SAFETY: tokens do not overlap and each is converted once; level and length as
                // above.
                unsafe {
                    let row = bytes.slice(t * stride..(t + 1) * stride);
                    convert(&x[t * k..(t + 1) * k], row);
                }
            }
        });
    }

    fn buffer(&mut self, input: Input) -> Option<&mut AlignedBytes> {
        match input {
            Input::F32 => None,
            Input::Bf16 => Some(&mut self.bf16),
            Input::I8x32 => Some(&mut self.i8x32),
            Input::I8x256 => Some(&mut self.i8x256),
        }
    }

    /// The form that the last [`Activations::prepare`] made of `x`.
    pub(crate) fn view(&self, x: &[f32], k: usize, input: Input) -> ActivationView {
        let start = match input {
            Input::F32 => {
                return ActivationView {
                    start: x.as_ptr().cast(),
                    stride: k * size_of::<f32>(),
                };
            }
            Input::Bf16 => self.bf16.as_ptr(),
            Input::I8x32 => self.i8x32.as_ptr(),
            Input::I8x256 => self.i8x256.as_ptr(),
        };
        ActivationView {
            start,
            stride: row_bytes(input, k),
        }
    }
}

/// Bytes of `k` columns of one token, as they follow one another.
pub(crate) fn columns_bytes(input: Input, k: usize) -> usize {
    match input {
        Input::F32 => k * size_of::<f32>(),
        Input::Bf16 => k * size_of::<u16>(),
        Input::I8x32 => k / 32 * size_of::<X32>(),
        Input::I8x256 => k / 256 * size_of::<X256>(),
    }
}

/// Bytes from a converted token to the next: an odd number of cache lines. So the tokens of a tile
/// do not fall into the same cache sets.
pub(super) fn row_bytes(input: Input, k: usize) -> usize {
    let lines = columns_bytes(input, k.next_multiple_of(2)).div_ceil(64);
    (lines | 1) * 64
}
