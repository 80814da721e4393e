//! From how many tokens on Millrace takes a product, by format. Chosen so that single tokens stay with llama.cpp: what prompts gain is in
//! docs/llama-cpp.md; where between the two measured ends the kernels begin to pay was not measured.

use millrace_kernels::Level;
use millrace_quant::DType;

/// Tokens from which a product of this format is taken; `None` where llama.cpp is as fast.
pub(crate) fn least_rows(dtype: DType, level: Level) -> Option<usize> {
    if level == Level::Scalar {
        return None;
    }
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => Some(32),
        _ => Some(8),
    }
}
