//! Attention of an encoder: the tokens of a text see each other, and nothing is kept of them.

use super::chunk::{Chunk, PassBuffers, RunSpan};
use super::plan::Register;
use crate::kv::PAGE_TOKENS;
use millrace_graph::{AllTokensShape, EncoderAttention};
use millrace_kernels::{
    self as kernels, AttentionInput, AttentionScratch, Cpu, KvBuffer, KvLayout, KvRun, KvType,
};
use std::ops::Range;

/// Keys and values of a chunk's texts, in pages as the kernel reads them; kept for its memory.
#[derive(Default)]
pub(super) struct TextPages {
    slabs: Option<(KvBuffer, KvBuffer)>,
    slab_bytes: usize,
    numbers: Vec<u32>,
}

impl TextPages {
    /// Slabs of at least so many pages. `None` without the memory for them.
    fn fit(&mut self, layout: &KvLayout, n_pages: usize) -> Option<&mut (KvBuffer, KvBuffer)> {
        let needed = n_pages.checked_mul(layout.page_bytes())?;
        if needed > self.slab_bytes || self.slabs.is_none() {
            self.slabs = Some((
                KvBuffer::zeroed(needed).ok()?,
                KvBuffer::zeroed(needed).ok()?,
            ));
            self.slab_bytes = needed;
        }
        self.numbers = (0..n_pages as u32).collect();
        self.slabs.as_mut()
    }
}

/// Attends within each text of the chunk.
pub(super) fn attend(
    cpu: &Cpu,
    (buffers, chunk): (&mut PassBuffers, &Chunk),
    (scratch, pages): (&mut AttentionScratch, &mut TextPages),
    op: &EncoderAttention,
    ([q, k, v], out): ([Register; 3], Register),
) {
    let m = chunk.tokens.len();
    let slopes = op.slopes();
    let spans = &chunk.spans;
    buffers.write(out, m, |buffers, out| {
        let qkv = [q, k, v].map(|slot| buffers.rows(slot, m));
        if slopes.is_none()
            && by_pages(cpu, spans, (scratch, pages), op, (qkv, &mut *out)).is_some()
        {
            return;
        }
        for span in spans {
            near(cpu, (op, slopes.as_deref()), span.rows.clone(), qkv, out);
        }
    });
}

/// Rows at the end of a text of `n`, which see all that is behind them: of them the pages' kernel makes one block.
fn n_last(n: usize, reach: Option<usize>) -> usize {
    match reach {
        Some(reach) if reach + 1 < n => reach,
        _ => n,
    }
}

/// By the kernel that attends to pages. The last rows of each text are a block that sees its end. Where a row reaches less
/// far, those before go as causal rows do at the last position that each sees.
fn by_pages(
    cpu: &Cpu,
    spans: &[RunSpan],
    (scratch, pages): (&mut AttentionScratch, &mut TextPages),
    op: &EncoderAttention,
    ([q, k, v], out): ([&[f32]; 3], &mut [f32]),
) -> Option<()> {
    let layout = KvLayout {
        dtype: KvType::F32,
        n_kv_heads: op.n_kv_heads,
        head_dim: op.head_dim,
        page_tokens: PAGE_TOKENS,
    };
    layout.check().ok()?;
    let n_pages = |rows: &Range<usize>| rows.len().div_ceil(PAGE_TOKENS);
    let all = spans.iter().map(|span| n_pages(&span.rows)).sum();
    pages.fit(&layout, all)?;
    let TextPages { slabs, numbers, .. } = pages;
    let (k_slab, v_slab) = slabs.as_mut()?;
    let mut first = 0;
    let run = |span: &RunSpan| {
        let own = first..first + n_pages(&span.rows);
        first = own.end;
        KvRun {
            rows: span.rows.clone(),
            first_pos: 0,
            pages: &numbers[own],
            pages_first_pos: 0,
        }
    };
    let texts: Vec<KvRun<'_>> = spans.iter().map(run).collect();
    kernels::kv_append(cpu, &layout, k, v, k_slab, v_slab, &texts);
    let mut attend = |window: Option<usize>, runs: &[KvRun<'_>], blocks: &[Range<usize>]| {
        let shape = kernels::AttentionShape {
            n_heads: op.n_heads,
            n_kv_heads: op.n_kv_heads,
            head_dim: op.head_dim,
            scale: op.scale,
            window,
            softcap: None,
        };
        let input = AttentionInput {
            q,
            k_pages: k_slab,
            v_pages: v_slab,
            runs,
            blocks,
            sinks: None,
        };
        kernels::attention(cpu, &shape, &layout, &input, scratch, out);
    };
    let parts = texts.iter().map(|text| {
        let n_before = text.rows.len() - n_last(text.rows.len(), op.reach);
        let (before, last) = (text.rows.start, text.rows.start + n_before);
        let part = |rows, first_pos| KvRun {
            rows,
            first_pos,
            ..text.clone()
        };
        let seen = op.reach.unwrap_or(0);
        (
            part(before..last, seen),
            part(last..text.rows.end, n_before),
        )
    });
    let (mut before, last): (Vec<_>, Vec<_>) = parts.unzip();
    let blocks: Vec<Range<usize>> = last.iter().map(|run| run.rows.clone()).collect();
    attend(op.reach.map(|reach| reach + 1), &last, &blocks);
    before.retain(|run| !run.rows.is_empty());
    if let Some(reach) = op.reach.filter(|_| !before.is_empty()) {
        attend(Some(2 * reach + 1), &before, &[]);
    }
    Some(())
}

/// Sums side by side in a dot product: as many as a compiler keeps in a register or two.
const LANES: usize = 16;

/// Each row with those that it reaches.
fn near(
    cpu: &Cpu,
    (op, slopes): (&EncoderAttention, Option<&[f32]>),
    rows: Range<usize>,
    [q, k, v]: [&[f32]; 3],
    out: &mut [f32],
) {
    let (width, kv_width) = (op.n_heads * op.head_dim, op.n_kv_heads * op.head_dim);
    let shape = AllTokensShape {
        width: kv_width,
        reach: op.reach,
    };
    let of_text = |x: &'_ [f32], width: usize| rows.start * width..(rows.end * width).min(x.len());
    let (q, k, v) = (
        &q[of_text(q, width)],
        &k[of_text(k, kv_width)],
        &v[of_text(v, kv_width)],
    );
    let n_tokens = rows.len();
    let out = &mut out[rows.start * width..rows.end * width];
    cpu.pool().run_pieces(out, width, &|position, out| {
        let seen = shape.seen(position, n_tokens);
        let mut scores = vec![0.0; seen.len()];
        let group = op.n_heads / op.n_kv_heads;
        let heads = q[position * width..][..width].chunks_exact(op.head_dim);
        for (head, (q, out)) in heads.zip(out.chunks_exact_mut(op.head_dim)).enumerate() {
            let at = head / group * op.head_dim;
            let of = |x: &'_ [f32], token: usize| {
                token * kv_width + at..(token * kv_width + at + op.head_dim).min(x.len())
            };
            let slope = slopes.map_or(0.0, |slopes| slopes[head]);
            for (score, token) in scores.iter_mut().zip(seen.clone()) {
                let bias = slope * position.abs_diff(token) as f32;
                *score = dot(q, &k[of(k, token)]) * op.scale - bias;
            }
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            out.fill(0.0);
            for (score, token) in scores.iter().zip(seen.clone()) {
                let p = (score - max).exp();
                sum += p;
                out.iter_mut()
                    .zip(&v[of(v, token)])
                    .for_each(|(out, v)| *out += p * v);
            }
            out.iter_mut().for_each(|x| *x /= sum);
        }
    });
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (a_lanes, a_rest) = a.as_chunks::<LANES>();
    let (b_lanes, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_lanes.iter().zip(b_lanes) {
        for i in 0..LANES {
            sums[i] += a[i] * b[i];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}
