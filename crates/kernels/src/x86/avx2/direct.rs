//! A few tokens at once: the panel of one chunk is packed and multiplied while it is still in the nearest cache.

use crate::matmul::Layout;
use crate::matmul::panel::{DirectArgs, PackArgs, PackFn, TileArgs, TileFn};
use std::mem::MaybeUninit;

/// Bytes for the panel of the longest chunk that is multiplied directly: 1024 columns in [`Layout::Block32Wide`].
const PANEL_BYTES: usize = 1024 / 32 * Layout::Block32Wide.unit_bytes();

/// Where a panel is packed.
#[repr(align(64))]
struct Panel(MaybeUninit<[u8; PANEL_BYTES]>);

/// Multiplies through a panel.
///
/// # Panics
/// If the chunk is longer than those that the driver cuts.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`]; `pack` and `tile` belong to `layout` and the source's format.
#[inline]
pub(super) unsafe fn through_panel(args: &DirectArgs, layout: Layout, pack: PackFn, tile: TileFn) {
    let k = args.source.k;
    assert!(
        layout.panel_bytes(k) <= PANEL_BYTES,
        "a chunk of {k} columns"
    );
    let mut panel = Panel(MaybeUninit::uninit());
    let panel = panel.0.as_mut_ptr().cast::<u8>();
    // SAFETY: forwarded; the panel is long enough and starts on a cache line; one panel's accumulators are those of a direct
    // function.
    unsafe {
        pack(&PackArgs {
            source: args.source,
            panel,
        });
        tile(&TileArgs {
            panels: panel,
            panel_stride: PANEL_BYTES,
            n_panels: 1,
            k,
            x: args.x,
            x_stride: args.x_stride,
            m: args.m,
            acc: args.acc,
        });
    }
}
