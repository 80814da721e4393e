//! From how many tokens on Millrace takes a product, by format.
//!
//! `tools/peers/ggml_plugin.py --crossings` measures it: llama.cpp's steps of 1 to 32 tokens without the plugin and
//! with every product through it, in turn; docs/llama-cpp.md has a table of it. On a Zen 5 with AVX-512, block formats
//! are faster with the plugin from two tokens on. Single tokens of most are as fast or faster. Those of Q4_K are not
//! (0.81 to 0.98), but left to llama.cpp they would be slower yet (0.89). It then computes them from weights that are
//! not in its own arrangement. With AVX2, measured on a Zen 4 against a llama.cpp built for no more, two tokens are as
//! fast or faster. Single ones of Q4_K are not (0.63; left to llama.cpp 0.91). Cases that were not measured keep larger
//! numbers. They are other levels, whose kernels for single tokens are others, and formats of plain numbers, in which
//! attention's own products are too.

use millrace_kernels::Level;
use millrace_quant::DType;

/// Whether gated activations are taken: where the products around them are, of one token too.
pub(crate) fn takes_gates(level: Level) -> bool {
    least_rows_of_blocks(level) == Some(1)
}

/// Tokens from which a product of this format is taken; `None` where llama.cpp is as fast.
pub(crate) fn least_rows(dtype: DType, level: Level) -> Option<usize> {
    match level {
        Level::Scalar => None,
        _ if dtype.is_float() => Some(32),
        _ => least_rows_of_blocks(level),
    }
}

/// The same for block formats.
fn least_rows_of_blocks(level: Level) -> Option<usize> {
    match level {
        Level::Scalar => None,
        Level::Avx512 | Level::Avx512Bf16 | Level::Amx => Some(1),
        Level::Avx2 => Some(2),
        _ => Some(8),
    }
}
