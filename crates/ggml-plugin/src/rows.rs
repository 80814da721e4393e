//! From how many tokens on Millrace's kernels are faster than llama.cpp's, by format: measured, see docs/llama-cpp.md.

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
