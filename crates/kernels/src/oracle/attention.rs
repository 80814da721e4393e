//! Definition of attention over the paged cache: a softmax in f64 over the elements as stored.

use crate::attention::{AttentionInput, AttentionShape};
use crate::kv::{KvLayout, KvRun, KvSide, KvType, TILE_TOKENS};
use half::{bf16, f16};
use std::cell::OnceCell;

/// One stored element, decoded, of a type that keeps rows as they are: dimension `dim` of `kv_head` at position `pos` of a run.
///
/// # Panics
/// If the run's pages do not cover `pos`.
#[must_use]
pub fn element(
    layout: &KvLayout,
    side: KvSide,
    pages: &[u8],
    run: &KvRun<'_>,
    (kv_head, pos, dim): (usize, usize, usize),
) -> f32 {
    let slot = pos - run.pages_first_pos;
    let page = run.pages[slot / layout.page_tokens] as usize;
    let page = &pages[page * layout.page_bytes()..][..layout.page_bytes()];
    let tiles = layout.page_tokens / TILE_TOKENS;
    let tile_bytes = layout.page_bytes() / (layout.n_kv_heads * tiles);
    let tile = kv_head * tiles + slot % layout.page_tokens / TILE_TOKENS;
    let tile = &page[tile * tile_bytes..][..tile_bytes];
    let slot = slot % TILE_TOKENS;
    let index = match side {
        KvSide::K => dim * TILE_TOKENS + slot,
        KvSide::V => slot * layout.head_dim.next_multiple_of(16) + dim,
    };
    let half_at = |i: usize| u16::from_le_bytes([tile[2 * i], tile[2 * i + 1]]);
    match layout.dtype {
        KvType::F32 => {
            let bytes = &tile[4 * index..4 * index + 4];
            f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        }
        KvType::F16 => f16::from_bits(half_at(index)).to_f32(),
        KvType::BF16 => bf16::from_bits(half_at(index)).to_f32(),
        KvType::Q8_0 => {
            let n_blocks = layout.head_dim.div_ceil(32);
            let scale = match side {
                KvSide::K => dim / 32 * TILE_TOKENS + slot,
                KvSide::V => slot * n_blocks + dim / 32,
            };
            let value = tile[2 * TILE_TOKENS * n_blocks + index].cast_signed();
            f16::from_bits(half_at(scale)).to_f32() * f32::from(value)
        }
        KvType::Q6_0 | KvType::Q5_0 | KvType::Q4_0 => {
            let n_blocks = layout.head_dim / 32;
            let scale = match side {
                KvSide::K => dim / 32 * TILE_TOKENS + slot,
                KvSide::V => slot * n_blocks + dim / 32,
            };
            let bits = match layout.dtype {
                KvType::Q6_0 => 6,
                KvType::Q5_0 => 5,
                _ => 4,
            };
            let planes = &tile[2 * TILE_TOKENS * n_blocks..];
            let plane = &planes[index / 512 * 64 * bits..][..64 * bits];
            let value = plane_element(plane, bits, index % 512) - (1 << (bits - 1));
            f16::from_bits(half_at(scale)).to_f32() * value as f32
        }
    }
}

/// Element `i` of 512, of 4 to 6 bits.
fn plane_element(plane: &[u8], bits: usize, i: usize) -> i32 {
    let byte = i32::from(plane[i % 256]);
    let low = if i < 256 { byte % 16 } else { byte / 16 };
    let high = match bits {
        5 => i32::from(plane[256 + i % 64]) >> (i / 64) & 1,
        6 => i32::from(plane[256 + i % 128]) >> (i / 128 * 2) & 3,
        _ => 0,
    };
    low + 16 * high
}

/// A row of one head: elements as stored, rotated back by the definition where the type keeps them rotated.
#[must_use]
pub fn row(
    layout: &KvLayout,
    side: KvSide,
    pages: &[u8],
    run: &KvRun<'_>,
    (kv_head, pos): (usize, usize),
) -> Vec<f64> {
    let dims = 0..layout.head_dim;
    let stored = dims.map(|dim| f64::from(element(layout, side, pages, run, (kv_head, pos, dim))));
    let stored: Vec<f64> = stored.collect();
    if !matches!(layout.dtype, KvType::Q6_0 | KvType::Q5_0 | KvType::Q4_0) {
        return stored;
    }
    let n = 1usize << layout.head_dim.trailing_zeros();
    let sign = |i: usize, j: usize| {
        if (i & j).count_ones().is_multiple_of(2) {
            1.0
        } else {
            -1.0
        }
    };
    let rotated = |dim: usize| {
        let block = &stored[dim / n * n..][..n];
        let sum: f64 = (0..n).map(|j| sign(dim % n, j) * block[j]).sum();
        sum / (n as f64).sqrt()
    };
    (0..layout.head_dim).map(rotated).collect()
}

/// Rows of one key-value head of a run, each decoded when it is first read: many queries read the same.
struct HeadCache<'a> {
    decode: Box<dyn Fn(usize) -> Vec<f64> + 'a>,
    rows: Vec<OnceCell<Vec<f64>>>,
}

impl<'a> HeadCache<'a> {
    fn new(
        layout: &'a KvLayout,
        (side, pages): (KvSide, &'a [u8]),
        run: &'a KvRun<'a>,
        kv_head: usize,
    ) -> HeadCache<'a> {
        let n_slots = run.pages.len() * layout.page_tokens;
        HeadCache {
            decode: Box::new(move |pos| row(layout, side, pages, run, (kv_head, pos))),
            rows: vec![OnceCell::new(); run.pages_first_pos + n_slots],
        }
    }

    fn at(&self, pos: usize) -> &[f64] {
        self.rows[pos].get_or_init(|| (self.decode)(pos))
    }
}

/// See [`crate::attention::attention`]; rows of no run are 0.
#[must_use]
pub fn attention(
    shape: &AttentionShape,
    layout: &KvLayout,
    input: &AttentionInput<'_>,
) -> Vec<f64> {
    let mut out = vec![0.0; input.q.len()];
    let group = shape.n_heads / shape.n_kv_heads;
    for (run, kv_head) in input
        .runs
        .iter()
        .flat_map(|run| (0..shape.n_kv_heads).map(move |kv_head| (run, kv_head)))
    {
        let keys = HeadCache::new(layout, (KvSide::K, input.k_pages), run, kv_head);
        let values = HeadCache::new(layout, (KvSide::V, input.v_pages), run, kv_head);
        for (row, pos) in run.rows.clone().zip(run.first_pos..) {
            let end = pos + input.end_seen(row) - row;
            for head in kv_head * group..(kv_head + 1) * group {
                let start = (row * shape.n_heads + head) * shape.head_dim;
                let range = start..start + shape.head_dim;
                let q = &input.q[range.clone()];
                let found = head_row(shape, input, (&keys, &values), (head, pos, end), q);
                out[range].copy_from_slice(&found);
            }
        }
    }
    out
}

/// The output of one query head at one position, which sees keys before `end`.
fn head_row(
    shape: &AttentionShape,
    input: &AttentionInput<'_>,
    (keys, values): (&HeadCache<'_>, &HeadCache<'_>),
    (head, pos, end): (usize, usize, usize),
    q: &[f32],
) -> Vec<f64> {
    let first = match shape.window {
        None => 0,
        Some(chunk) if shape.chunked => pos / chunk * chunk,
        Some(window) => (pos + 1).saturating_sub(window),
    };
    let mut scores = Vec::with_capacity(end - first);
    for key in first..end {
        let products = q.iter().zip(keys.at(key));
        let dot: f64 = products.map(|(q, k)| f64::from(*q) * k).sum();
        let score = dot * f64::from(shape.scale);
        let score = shape.softcap.map_or(score, |cap| {
            let cap = f64::from(cap);
            cap * (score / cap).tanh()
        });
        let lost = |slopes: &[f32]| f64::from(slopes[head]) * pos.abs_diff(key) as f64;
        scores.push(score - input.slopes.map_or(0.0, lost));
    }
    let sink = input.sinks.map(|sinks| f64::from(sinks[head]));
    let max = scores.iter().copied().chain(sink);
    let max = max.fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let sum = sum + sink.map_or(0.0, |sink| (sink - max).exp());
    let mut out = vec![0.0; shape.head_dim];
    for (weight, key) in weights.iter().zip(first..) {
        for (out, value) in out.iter_mut().zip(values.at(key)) {
            *out += weight * value / sum;
        }
    }
    out
}
