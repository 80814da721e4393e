//! Writing new rows of K and V into their pages.

use super::narrow;
use super::{KvLayout, KvRun, KvSide, KvType, MAX_HEAD_DIM, Q8_DIMS, TILE_TOKENS};
use crate::cpu::Cpu;
use crate::pool::DisjointMut;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Elements below which a parallel region costs more than it saves.
const SERIAL_ELEMS: usize = 1 << 15;

/// Stores the rows of `k` and `v` (`[n_rows, n_kv_heads * head_dim]` f32, row-major) of every run
/// at their positions, rounded to the cache's type (to nearest, ties to even).
///
/// # Panics
/// If the layout is unusable ([`KvLayout::check`]), `k` and `v` differ in length or have no whole
/// rows, a run's pages do not cover its positions or lie outside `k_pages` / `v_pages`.
pub fn kv_append(
    cpu: &Cpu,
    layout: &KvLayout,
    k: &[f32],
    v: &[f32],
    k_pages: &mut [u8],
    v_pages: &mut [u8],
    runs: &[KvRun<'_>],
) {
    layout
        .check()
        .expect("a layout that was checked when the cache was made");
    let row_elems = layout.n_kv_heads * layout.head_dim;
    assert_eq!(k.len(), v.len(), "as many rows of k as of v");
    assert!(
        k.len().is_multiple_of(row_elems),
        "{} elements in rows of {row_elems}",
        k.len()
    );
    for run in runs {
        run.assert_covered(layout, k.len() / row_elems);
    }
    let k_pages = DisjointMut::new(k_pages);
    let v_pages = DisjointMut::new(v_pages);
    // Threads share out heads, not rows: whatever the page ids say, the tiles of two heads never
    // overlap.
    let store = |side: KvSide, head: usize| {
        let (x, pages) = if side == KvSide::K {
            (k, &k_pages)
        } else {
            (v, &v_pages)
        };
        store_head(layout, side, head, x, pages, runs);
    };
    let n_chunks = 2 * layout.n_kv_heads;
    let run_chunk = |chunk: usize| {
        let side = if chunk.is_multiple_of(2) {
            KvSide::K
        } else {
            KvSide::V
        };
        store(side, chunk / 2);
    };
    if k.len() < SERIAL_ELEMS {
        (0..n_chunks).for_each(run_chunk);
    } else {
        cpu.pool().run(n_chunks, &run_chunk);
    }
}

/// Stores one head of every run.
fn store_head(
    layout: &KvLayout,
    side: KvSide,
    head: usize,
    x: &[f32],
    pages: &DisjointMut<'_, u8>,
    runs: &[KvRun<'_>],
) {
    let head_dim = layout.head_dim;
    let row_elems = layout.n_kv_heads * head_dim;
    let mut halves = [0u16; MAX_HEAD_DIM];
    for run in runs {
        for (row, pos) in run.rows.clone().zip(run.first_pos..) {
            let source = &x[row * row_elems + head * head_dim..][..head_dim];
            let start = run.tile_offset(layout, head, pos);
            // SAFETY: tiles of other heads do not overlap this one, and only this call writes this
            // head on this side, one tile at a time.
            let tile = unsafe { pages.slice(start..start + layout.tile_bytes()) };
            store_row(
                layout,
                side,
                source,
                pos % TILE_TOKENS,
                tile,
                &mut halves[..head_dim],
            );
        }
    }
}

/// Stores one row of one head in its slot of a tile. `halves` is scratch of `head_dim` elements.
fn store_row(
    layout: &KvLayout,
    side: KvSide,
    x: &[f32],
    slot: usize,
    tile: &mut [u8],
    halves: &mut [u16],
) {
    if let Some(bits) = layout.dtype.narrow_bits() {
        return narrow::store_row(layout, (side, bits), x, slot, tile);
    }
    let stride = if side == KvSide::K { TILE_TOKENS } else { 1 };
    let first = if side == KvSide::K {
        slot
    } else {
        slot * layout.padded_dim()
    };
    let (scales, elems) = tile.split_at_mut(layout.scale_bytes());
    match layout.dtype {
        KvType::F32 => scatter(
            elems,
            first,
            stride,
            x.iter().map(|value| value.to_le_bytes()),
        ),
        KvType::F16 => {
            let rounded: &mut [f16] = half::slice::HalfBitsSliceExt::reinterpret_cast_mut(halves);
            rounded.convert_from_f32_slice(x);
            scatter_halves(elems, first, stride, halves);
        }
        KvType::BF16 => {
            let rounded: &mut [bf16] = half::slice::HalfBitsSliceExt::reinterpret_cast_mut(halves);
            rounded.convert_from_f32_slice(x);
            scatter_halves(elems, first, stride, halves);
        }
        KvType::Q8_0 | KvType::Q6_0 | KvType::Q5_0 | KvType::Q4_0 => {
            for (block, values) in x.chunks(Q8_DIMS).enumerate() {
                let scale = q8_scale(values);
                let index = layout.scale_index(side, slot, block);
                scales[2 * index..2 * index + 2].copy_from_slice(&scale.to_le_bytes());
                let inverse = if scale.to_f32() > 0.0 {
                    1.0 / scale.to_f32()
                } else {
                    0.0
                };
                let first = first + block * Q8_DIMS * stride;
                scatter(
                    elems,
                    first,
                    stride,
                    values.iter().map(|value| [q8_round(value * inverse)]),
                );
            }
        }
    }
}

fn scatter_halves(elems: &mut [u8], first: usize, stride: usize, halves: &[u16]) {
    let bytes = halves.iter().map(|bits| bits.to_le_bytes());
    scatter(elems, first, stride, bytes);
}

/// Writes elements of `E` bytes at the element indices `first`, `first + stride`, ….
fn scatter<const E: usize>(
    elems: &mut [u8],
    first: usize,
    stride: usize,
    values: impl Iterator<Item = [u8; E]>,
) {
    let slots = elems[first * E..].chunks_mut(stride * E);
    for (slot, value) in slots.zip(values) {
        slot[..E].copy_from_slice(&value);
    }
}

/// The scale with which the largest magnitude of `values` becomes 127, rounded to f16.
fn q8_scale(values: &[f32]) -> f16 {
    let max = values
        .iter()
        .fold(0.0f32, |max, value| max.max(value.abs()));
    f16::from_f32((max / 127.0).min(f16::MAX.to_f32()))
}

/// Nearest signed byte, as its bits. The scale's own rounding may push the largest value past 127.
fn q8_round(value: f32) -> u8 {
    (value.round_ties_even().clamp(-127.0, 127.0) as i8).cast_unsigned()
}
