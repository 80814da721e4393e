//! Reading rows of K and V back out of their pages.

use super::narrow;
use super::{KvLayout, KvSide, KvType, Q8_DIMS, TILE_TOKENS};
use half::{bf16, f16};

/// Copies one head at one position from its page: `head_dim` elements of a key or of a value, as f32, exactly as attention multiplies them.
/// Types that keep rows rotated are rotated back. `pages` are a sequence's pages, and `pages_first_pos` is the position of the first slot
/// of the first page. `slab` is the layer's K or V.
///
/// # Panics
/// If the layout is unusable ([`KvLayout::check`]), the head does not exist, the pages do not cover
/// the position or lie outside the slab, or `out` is not a row.
pub fn kv_read(
    layout: &KvLayout,
    side: KvSide,
    slab: &[u8],
    (pages, pages_first_pos): (&[u32], usize),
    (kv_head, pos): (usize, usize),
    out: &mut [f32],
) {
    assert!(kv_head < layout.n_kv_heads, "head {kv_head}");
    assert_eq!(out.len(), layout.head_dim, "a row of one head");
    let slot = pos - pages_first_pos;
    let page = pages[slot / layout.page_tokens] as usize;
    let within = slot % layout.page_tokens;
    let tile = kv_head * layout.tiles_per_page() + within / TILE_TOKENS;
    let tile = &slab[page * layout.page_bytes() + tile * layout.tile_bytes()..];
    let (data, lane) = (&tile[layout.scale_bytes()..], within % TILE_TOKENS);
    if let Some(bits) = layout.dtype.narrow_bits() {
        return narrow::read_row(layout, (side, bits), tile, lane, out);
    }
    let scale = |dim: usize| {
        let at = layout.scale_index(side, lane, dim / Q8_DIMS);
        f16::from_le_bytes([tile[2 * at], tile[2 * at + 1]]).to_f32()
    };
    for (dim, out) in out.iter_mut().enumerate() {
        let at = layout.elem_index(side, lane, dim);
        let bytes = &data[at * layout.dtype.elem_bytes()..];
        *out = match layout.dtype {
            KvType::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            KvType::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            KvType::BF16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            KvType::Q8_0 | KvType::Q6_0 | KvType::Q5_0 | KvType::Q4_0 => {
                f32::from(bytes[0].cast_signed()) * scale(dim)
            }
        };
    }
}
