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
    // A text's way depends on its own length, so that company changes no bit.
    let reaches_all = |span: &&RunSpan| op.reach.is_none_or(|reach| span.rows.len() <= reach + 1);
    let (all, some): (Vec<&RunSpan>, Vec<&RunSpan>) = chunk.spans.iter().partition(reaches_all);
    buffers.write(out, m, |buffers, out| {
        let qkv = [q, k, v].map(|slot| buffers.rows(slot, m));
        let done = by_pages(cpu, &all, (scratch, pages), op, (qkv, &mut *out));
        let rest = if done.is_some() { &[][..] } else { &all };
        for span in some.iter().chain(rest) {
            near(cpu, op, span.rows.clone(), qkv, out);
        }
    });
}

/// By the kernel that attends to pages, each text a block whose rows see each other.
fn by_pages(
    cpu: &Cpu,
    spans: &[&RunSpan],
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
    let run = |span: &&RunSpan| {
        let own = first..first + n_pages(&span.rows);
        first = own.end;
        KvRun {
            rows: span.rows.clone(),
            first_pos: 0,
            pages: &numbers[own],
            pages_first_pos: 0,
        }
    };
    let runs: Vec<KvRun<'_>> = spans.iter().map(run).collect();
    let blocks: Vec<Range<usize>> = spans.iter().map(|span| span.rows.clone()).collect();
    kernels::kv_append(cpu, &layout, k, v, k_slab, v_slab, &runs);
    let shape = kernels::AttentionShape {
        n_heads: op.n_heads,
        n_kv_heads: op.n_kv_heads,
        head_dim: op.head_dim,
        scale: op.scale,
        window: None,
        softcap: None,
    };
    let input = AttentionInput {
        q,
        k_pages: k_slab,
        v_pages: v_slab,
        runs: &runs,
        blocks: &blocks,
        sinks: None,
    };
    kernels::attention(cpu, &shape, &layout, &input, scratch, out);
    Some(())
}

/// Sums side by side in a dot product: as many as a compiler keeps in a register or two.
const LANES: usize = 16;

/// Each row with those that it reaches.
fn near(
    cpu: &Cpu,
    op: &EncoderAttention,
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
            for (score, token) in scores.iter_mut().zip(seen.clone()) {
                *score = dot(q, &k[of(k, token)]) * op.scale;
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
