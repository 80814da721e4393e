//! Attention of an encoder: the tokens of a text see each other, and no memory of them is kept.

use super::chunk::{Chunk, PassBuffers};
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
    /// Slabs of at least that many pages. `None` if there is no memory for them.
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
    let texts: Vec<Range<usize>> = chunk.spans.iter().map(|span| span.rows.clone()).collect();
    buffers.write(out, m, |buffers, out| {
        let qkv = [q, k, v].map(|register| buffers.rows(register, m));
        if op.slopes.is_none()
            && by_pages(cpu, &texts, (scratch, pages), op, (qkv, &mut *out)).is_some()
        {
            return;
        }
        for rows in texts {
            near(cpu, op, rows, qkv, out);
        }
    });
}

/// Uses the kernel that attends to pages, within each text's rows. `None` if the kernel does not support the heads.
fn by_pages(
    cpu: &Cpu,
    texts: &[Range<usize>],
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
    let all = texts.iter().map(n_pages).sum();
    pages.fit(&layout, all)?;
    let TextPages { slabs, numbers, .. } = pages;
    let (k_slab, v_slab) = slabs.as_mut()?;
    let mut first = 0;
    let run = |rows: &Range<usize>| {
        let own = first..first + n_pages(rows);
        first = own.end;
        KvRun {
            rows: rows.clone(),
            first_pos: 0,
            pages: &numbers[own],
            pages_first_pos: 0,
        }
    };
    let runs: Vec<KvRun<'_>> = texts.iter().map(run).collect();
    kernels::kv_append(cpu, &layout, k, v, k_slab, v_slab, &runs);
    for part in parts(&runs, op.reach) {
        let shape = kernels::AttentionShape {
            n_heads: op.n_heads,
            n_kv_heads: op.n_kv_heads,
            head_dim: op.head_dim,
            scale: op.scale,
            window: part.window,
            chunked: false,
            softcap: None,
        };
        let input = AttentionInput {
            q,
            k_pages: k_slab,
            v_pages: v_slab,
            runs: &part.runs,
            blocks: &part.blocks,
            sinks: None,
            slopes: None,
        };
        kernels::attention(cpu, &shape, &layout, &input, scratch, out);
    }
    Some(())
}

/// Rows of texts that the kernel computes in one call.
struct TextParts<'a> {
    window: Option<usize>,
    runs: Vec<KvRun<'a>>,
    blocks: Vec<Range<usize>>,
}

/// Splits texts for the causal kernel. The last rows of each text see its end: they are a block, each with a window that begins at
/// its reach. An earlier row is computed as a causal row at the last position that it sees, with a window over its whole reach.
fn parts<'a>(texts: &[KvRun<'a>], reach: Option<usize>) -> Vec<TextParts<'a>> {
    let n_before = |text: &KvRun<'_>| match (text.rows.len(), reach) {
        (n, Some(reach)) if reach + 1 < n => n - reach,
        _ => 0,
    };
    let run = |text: &KvRun<'a>, rows: Range<usize>, first_pos| KvRun {
        rows,
        first_pos,
        ..text.clone()
    };
    let last = texts.iter().map(|text| {
        let n_before = n_before(text);
        run(text, text.rows.start + n_before..text.rows.end, n_before)
    });
    let last: Vec<KvRun<'a>> = last.filter(|run| !run.rows.is_empty()).collect();
    let mut parts = vec![TextParts {
        window: reach.map(|reach| reach + 1),
        blocks: last.iter().map(|run| run.rows.clone()).collect(),
        runs: last,
    }];
    if let Some(reach) = reach {
        let before = texts.iter().map(|text| {
            let rows = text.rows.start..text.rows.start + n_before(text);
            run(text, rows, reach)
        });
        parts.push(TextParts {
            window: Some(2 * reach + 1),
            runs: before.filter(|run| !run.rows.is_empty()).collect(),
            blocks: Vec::new(),
        });
    }
    parts.retain(|part| !part.runs.is_empty());
    parts
}

/// Number of parallel sums in a dot product: as many as a compiler keeps in a register or two.
const LANES: usize = 16;

/// Attends from each row to the rows within its reach.
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
            let slope = op.slopes.as_ref().map_or(0.0, |slopes| slopes[head]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_kernels::CpuOptions;
    use millrace_testkit::rng::Rng;

    /// Every reach with every length, beside other texts: the kernel's rows equal those of the definition.
    #[test]
    fn pages_hold_what_each_row_reaches() {
        let cpu = Cpu::new(CpuOptions::default()).unwrap();
        let lengths = [1, 2, 3, 5, 67, 300];
        let n: usize = lengths.iter().sum();
        let mut rng = Rng::new(7);
        let (n_heads, n_kv_heads, head_dim) = (4, 2, 16);
        let mut numbers = |n_heads: usize| rng.normals(n * n_heads * head_dim, 1.0);
        let [q, k, v] = [n_heads, n_kv_heads, n_kv_heads].map(&mut numbers);
        let mut start = 0;
        let texts = lengths.map(|length| {
            start += length;
            start - length..start
        });
        for reach in [
            None,
            Some(0),
            Some(1),
            Some(2),
            Some(31),
            Some(64),
            Some(400),
        ] {
            let op = EncoderAttention {
                n_heads,
                n_kv_heads,
                head_dim,
                scale: 0.25,
                reach,
                slopes: None,
            };
            let mut expected = vec![f32::NAN; q.len()];
            for rows in texts.clone() {
                near(&cpu, &op, rows, [&q, &k, &v], &mut expected);
            }
            let mut found = vec![f32::NAN; q.len()];
            let mut scratch = (AttentionScratch::default(), TextPages::default());
            let memory = (&mut scratch.0, &mut scratch.1);
            by_pages(&cpu, &texts, memory, &op, ([&q, &k, &v], &mut found)).unwrap();
            for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert!(
                    (found - expected).abs() < 1e-5,
                    "{reach:?} [{i}]: {found}, not {expected}"
                );
            }
        }
    }
}
