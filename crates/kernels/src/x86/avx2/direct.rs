//! A few tokens at once: panels are packed and multiplied one after the other, each while it is still in the nearest cache.

use crate::matmul::PanelLayout;
use crate::matmul::activations::columns_bytes;
use crate::matmul::panel::{DirectArgs, PackArgs, PackFn, TileArgs, TileFn};
use std::mem::MaybeUninit;

/// The layouts that this may pack.
const LAYOUTS: [PanelLayout; 8] = [
    PanelLayout::F32,
    PanelLayout::Block32,
    PanelLayout::Block32Min,
    PanelLayout::Block32Wide,
    PanelLayout::Block16,
    PanelLayout::Super16,
    PanelLayout::Super16Min,
    PanelLayout::Super32Min,
];

/// Bytes of the largest panel of [`LAYOUTS`].
const PANEL_BYTES: usize = {
    let (mut most, mut i) = (0, 0);
    while i < LAYOUTS.len() {
        let bytes = LAYOUTS[i].panel_bytes(LAYOUTS[i].chunk_k());
        most = if bytes > most { bytes } else { most };
        i += 1;
    }
    most
};

/// Where a panel is packed.
#[repr(align(64))]
struct PackPanel(MaybeUninit<[u8; PANEL_BYTES]>);

/// Multiplies through panels of [`PanelLayout::chunk_k`] columns, however long the chunk is. That is where sums of plain numbers are cut
/// anyway; tiles of blocks add block by block, wherever they are cut.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`]; `layout` is one of [`LAYOUTS`], and `pack` and `tile` belong to it and the source's format.
#[inline]
pub(in crate::x86) unsafe fn through_panel(
    args: &DirectArgs,
    layout: PanelLayout,
    pack: PackFn,
    tile: TileFn,
) {
    debug_assert!(LAYOUTS.contains(&layout), "{layout:?}");
    let mut panel = PackPanel(MaybeUninit::uninit());
    let panel = panel.0.as_mut_ptr().cast::<u8>();
    let most = layout.chunk_k();
    for first in (0..args.source.k).step_by(most) {
        let k = most.min(args.source.k - first);
        // SAFETY: forwarded, for a part of the columns; the panel is long enough for any layout and starts on a cache line; one
        // panel's accumulators are those of a direct function.
        unsafe {
            pack(&PackArgs {
                source: args.source.columns(first, k),
                panel,
            });
            tile(&TileArgs {
                panels: panel,
                panel_stride: PANEL_BYTES,
                n_panels: 1,
                k,
                x: args.x.add(columns_bytes(layout.input(), first)),
                x_stride: args.x_stride,
                m: args.m,
                acc: args.acc,
            });
        }
    }
}
