//! Formats of 32-column blocks: packing.
//!
//! Q4_0, Q4_1 and Q4NX become unsigned levels 0–15, the other symmetric formats signed bytes; scales are
//! the format's own.

use super::lines::{HALF_LINE, HALF_ROWS, field, load_f16, load_rows, store, store_ps};
use crate::matmul::Layout;
use crate::matmul::panel::{LINE_BYTES, PackArgs, lines_a_step};
use millrace_quant::DType;
use std::arch::x86_64::*;

macro_rules! functions_of_format {
    ($($name:ident $dtype:ident;)*) => {$(
        #[doc = concat!("Packs ", stringify!($dtype), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $name(args: &PackArgs) {
            // SAFETY: forwarded.
            unsafe { pack(args, DType::$dtype) }
        }
    )*};
}
functions_of_format!(q4_0 Q4_0; q4_1 Q4_1; q8_0 Q8_0; iq4_nl Iq4Nl;);

/// Values of IQ4_NL's sixteen codes (ggml's `kvalues_iq4nl`).
const IQ4_NL: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pack(args: &PackArgs, dtype: DType) {
    let source = &args.source;
    let has_min = dtype == DType::Q4_1;
    let layout = if has_min {
        Layout::Block32Min
    } else {
        Layout::Block32
    };
    let mut ahead = source.ahead;
    for b in 0..source.k / 32 {
        ahead.fetch(lines_a_step(dtype, 1));
        for half in 0..2 {
            // SAFETY: block `b` of each row and unit `b` of the panel exist.
            unsafe {
                let rows = source.base.add(half * HALF_ROWS * source.stride);
                let block = rows.add(b * dtype.block_bytes());
                let unit = args.panel.add(b * layout.unit_bytes() + half * HALF_LINE);
                let line = |i: usize| unit.add(i * LINE_BYTES);
                store_ps(line(8), load_f16(block, source.stride));
                if has_min {
                    store_ps(line(9), load_f16(block.add(2), source.stride));
                }
                let levels = block.add(if has_min { 4 } else { 2 });
                let first = load_rows(levels, source.stride);
                if dtype == DType::Q8_0 {
                    let second = load_rows(levels.add(16), source.stride);
                    for i in 0..4 {
                        store(line(i), first[i]);
                        store(line(4 + i), second[i]);
                    }
                    continue;
                }
                for (i, v) in first.into_iter().enumerate() {
                    store(line(i), value(dtype, field::<0>(v, 0x0F)));
                    store(line(4 + i), value(dtype, field::<4>(v, 0x0F)));
                }
            }
        }
    }
}

/// Codes to levels.
#[inline]
#[target_feature(enable = "avx2")]
fn value(dtype: DType, codes: __m256i) -> __m256i {
    if dtype != DType::Iq4Nl {
        return codes;
    }
    // SAFETY: sixteen readable bytes.
    let table = unsafe { _mm_loadu_si128(IQ4_NL.as_ptr().cast()) };
    _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes)
}
