//! Writing finished sums to the caller's output.

use crate::matmul::panel::{GROUP_ROWS, PANEL_ROWS};
use std::arch::x86_64::*;

/// Copies the sums of whole groups of rows to outputs `stride` elements apart. A store is a whole line: rows far apart miss the
/// caches, and few stores can wait for their lines at a time.
///
/// # Safety
/// `out` has [`GROUP_ROWS`] elements for each row of `sums`, `stride` apart, that have no other user.
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn copy(sums: &[f32], out: *mut f32, stride: usize) {
    for (t, sums) in sums.as_chunks::<GROUP_ROWS>().0.iter().enumerate() {
        for (p, sums) in sums.as_chunks::<PANEL_ROWS>().0.iter().enumerate() {
            // SAFETY: sixteen elements each; the output's by the caller's word.
            unsafe {
                let to = out.add(t * stride + p * PANEL_ROWS);
                _mm512_storeu_ps(to, _mm512_loadu_ps(sums.as_ptr()));
            }
        }
    }
}
