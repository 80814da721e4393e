//! Plain numbers: f32, f16 and bf16, packed as f32 or multiplied with one token directly.

use super::lines::{
    QUARTER_LINE, QUARTER_ROWS, QUARTERS, four_rows, map, store_some, transpose, widen_f16,
};
use crate::matmul::PanelLayout;
use crate::matmul::panel::{LINE_BYTES, PANEL_ROWS, PackArgs, RowsArgs};
use std::arch::aarch64::*;

/// Formats; the codes are const parameters.
const F32: u8 = 0;
const F16: u8 = 1;
const BF16: u8 = 2;

macro_rules! functions_of_format {
    ($($pack:ident $rows:ident $format:ident;)*) => {$(
        #[doc = concat!("Packs ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        pub(crate) unsafe fn $pack(args: &PackArgs) {
            // SAFETY: forwarded.
            unsafe { pack::<$format>(args) }
        }

        #[doc = concat!("Multiplies ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::RowsFn`].
        pub(crate) unsafe fn $rows(args: &RowsArgs) {
            // SAFETY: forwarded.
            unsafe { rows::<$format>(args) }
        }
    )*};
}
functions_of_format!(
    f32 rows_f32 F32;
    f16 rows_f16 F16;
    bf16 rows_bf16 BF16;
);

const fn elem_bytes(format: u8) -> usize {
    if format == F32 { 4 } else { 2 }
}

/// Four numbers, widened.
///
/// # Safety
/// They are readable.
#[inline(always)]
unsafe fn load<const FORMAT: u8>(from: *const u8) -> float32x4_t {
    // SAFETY: forwarded.
    unsafe {
        match FORMAT {
            F16 => widen_f16(vld1_u16(from.cast())),
            BF16 => vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.cast()))),
            _ => vld1q_f32(from.cast()),
        }
    }
}

/// Calls `use_column` with each of the columns, sixteen rows of it as four vectors.
///
/// # Safety
/// Each of `rows` has `k` numbers.
#[inline(always)]
unsafe fn each_column<const FORMAT: u8>(
    rows: [[*const u8; QUARTER_ROWS]; QUARTERS],
    k: usize,
    mut use_column: impl FnMut(usize, [float32x4_t; QUARTERS]),
) {
    let bytes = elem_bytes(FORMAT);
    let whole = k / 4 * 4;
    // SAFETY: whole fours are within the rows; for the last numbers exactly the remaining ones are copied.
    unsafe {
        for first in (0..whole).step_by(4) {
            let columns = map(rows, |rows| {
                turn(map(rows, |row| load::<FORMAT>(row.add(first * bytes))))
            });
            for i in 0..4 {
                use_column(first + i, map(columns, |columns| columns[i]));
            }
        }
        let left = k - whole;
        if left > 0 {
            let columns = map(rows, |rows| {
                turn(map(rows, |row| {
                    let mut four = [0_u8; 16];
                    let from = row.add(whole * bytes);
                    std::ptr::copy_nonoverlapping(from, four.as_mut_ptr(), left * bytes);
                    load::<FORMAT>(four.as_ptr())
                }))
            });
            for i in 0..left {
                use_column(whole + i, map(columns, |columns| columns[i]));
            }
        }
    }
}

/// [`transpose`] of numbers.
#[inline(always)]
fn turn(rows: [float32x4_t; 4]) -> [float32x4_t; 4] {
    // SAFETY: every AArch64 has these.
    unsafe {
        let bits = map(rows, |row| vreinterpretq_u32_f32(row));
        map(transpose(bits), |v| vreinterpretq_f32_u32(v))
    }
}

/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline(always)]
unsafe fn pack<const FORMAT: u8>(args: &PackArgs) {
    let source = &args.source;
    let mut ahead = source.ahead;
    // SAFETY: forwarded; lines below `k` are the panel's.
    unsafe {
        let rows = std::array::from_fn(|g| {
            four_rows(source.base, source.stride, g * QUARTER_ROWS, PANEL_ROWS)
        });
        each_column::<FORMAT>(
            rows,
            source.k,
            #[inline(always)]
            |column, quarters| {
                if column % 4 == 0 {
                    ahead.fetch(PANEL_ROWS * 4 * elem_bytes(FORMAT) / LINE_BYTES);
                }
                let line = args.panel.add(column * LINE_BYTES);
                for (g, v) in quarters.into_iter().enumerate() {
                    vst1q_f32(line.add(g * QUARTER_LINE).cast(), v);
                }
            },
        );
    }
}

/// One token: multiplies at once the values that [`pack`] would store. Sums are cut where the driver cuts panels.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`].
#[inline(always)]
unsafe fn rows<const FORMAT: u8>(args: &RowsArgs) {
    let x: *const f32 = args.x.cast();
    for row in (0..args.n).step_by(PANEL_ROWS) {
        let n = args.n - row;
        // SAFETY: forwarded: rows and a token of `k` columns.
        unsafe {
            let base = args.base.add(row * args.row_bytes);
            let rows: [_; QUARTERS] =
                std::array::from_fn(|g| four_rows(base, args.row_bytes, g * QUARTER_ROWS, n));
            let mut acc = [vdupq_n_f32(0.0); QUARTERS];
            for first in (0..args.k).step_by(PanelLayout::F32.chunk_k()) {
                let k = PanelLayout::F32.chunk_k().min(args.k - first);
                let mut sums = [vdupq_n_f32(0.0); QUARTERS];
                each_column::<FORMAT>(
                    map(rows, |rows| {
                        map(rows, |row| row.add(first * elem_bytes(FORMAT)))
                    }),
                    k,
                    #[inline(always)]
                    |column, w| {
                        let x = *x.add(first + column);
                        for (sum, w) in sums.iter_mut().zip(w) {
                            *sum = vfmaq_n_f32(*sum, w, x);
                        }
                    },
                );
                for (acc, sum) in acc.iter_mut().zip(sums) {
                    *acc = vaddq_f32(*acc, sum);
                }
            }
            for (g, acc) in acc.into_iter().enumerate() {
                let at = g * QUARTER_ROWS;
                if at < n {
                    store_some(args.out.add(row + at), acc, n - at);
                }
            }
        }
    }
}
