//! Portable halves of kernels: any format decoded into f32 panels, and the f32 tile.

use super::panel::{GROUP_ROWS, PANEL_ROWS, PackArgs, PanelLayout, PanelSource, TileArgs};
use millrace_quant::{decode_blocks, decode_rows};

/// Columns of a row that are decoded at a time; whole blocks of every format.
const ROW_K: usize = PanelLayout::F32.chunk_k();

/// Packs an f32 panel from any format through the reference decoder.
///
/// # Safety
/// As [`super::panel::PackFn`].
pub(crate) unsafe fn pack_f32(args: &PackArgs) {
    let source = &args.source;
    let mut row = [0.0_f32; ROW_K];
    // SAFETY: the panel has `k` lines of 16 f32 and belongs to this call.
    let panel =
        unsafe { std::slice::from_raw_parts_mut(args.panel.cast::<f32>(), source.k * PANEL_ROWS) };
    for (i, lines) in panel.chunks_mut(ROW_K * PANEL_ROWS).enumerate() {
        let source = source.columns(i * ROW_K, lines.len() / PANEL_ROWS);
        for r in 0..PANEL_ROWS {
            // SAFETY: forwarded, for a part of the columns.
            unsafe { decode_row(&source, r, &mut row[..source.k]) };
            for (line, w) in lines.chunks_exact_mut(PANEL_ROWS).zip(&row) {
                line[r] = *w;
            }
        }
    }
}

/// Decodes the chunk's columns of one row.
///
/// # Safety
/// As [`super::panel::PackFn`].
unsafe fn decode_row(source: &PanelSource, r: usize, row: &mut [f32]) {
    let dtype = source.dtype;
    if dtype.block_rows() == 1 {
        let n_bytes = source.k / dtype.block_elems() * dtype.block_bytes();
        // SAFETY: the caller's bytes reach sixteen rows of `k` columns.
        let bytes =
            unsafe { std::slice::from_raw_parts(source.base.add(r * source.stride), n_bytes) };
        decode_blocks(dtype, bytes, row).expect("a chunk is whole blocks");
        return;
    }
    let (tile_rows, tile_cols) = (dtype.block_rows(), dtype.block_elems());
    for (tile, out) in row.chunks_exact_mut(tile_cols).enumerate() {
        // SAFETY: the caller's bytes reach the chunk's tiles.
        let bytes = unsafe {
            std::slice::from_raw_parts(source.base.add(tile * source.stride), dtype.block_bytes())
        };
        let row = source.tile_row + r;
        decode_rows(dtype, bytes, tile_rows, tile_cols, row..row + 1, out)
            .expect("one tile is a matrix of its own");
    }
}

/// The f32 tile.
///
/// # Safety
/// As [`super::panel::TileFn`].
pub(crate) unsafe fn tile_f32(args: &TileArgs) {
    for t in 0..args.m {
        // SAFETY: `x` reaches `m` tokens of `k` columns.
        let x = unsafe {
            std::slice::from_raw_parts(args.x.add(t * args.x_stride).cast::<f32>(), args.k)
        };
        for p in 0..args.n_panels {
            // SAFETY: panels and accumulators are as long as the function's type says.
            let (panel, acc) = unsafe {
                let panel = args
                    .panels
                    .add(p * args.panel_stride)
                    .cast::<[f32; PANEL_ROWS]>();
                let acc = args
                    .acc
                    .add(t * GROUP_ROWS + p * PANEL_ROWS)
                    .cast::<[f32; PANEL_ROWS]>();
                (std::slice::from_raw_parts(panel, args.k), &mut *acc)
            };
            let mut sum = [0.0_f32; PANEL_ROWS];
            for (line, x) in panel.iter().zip(x) {
                for (s, w) in sum.iter_mut().zip(line) {
                    // Not fused: without the instruction `mul_add` is a slow library call.
                    *s += w * x;
                }
            }
            for (a, s) in acc.iter_mut().zip(&sum) {
                *a += s;
            }
        }
    }
}
