//! Attention against its oracle, and batch invariance.

mod accuracy;
mod invariance;
#[cfg(target_arch = "x86_64")]
mod pairs;

use super::*;
use crate::cpu::CpuOptions;
use crate::kv::{KvBuffer, KvType, kv_append};
use crate::level::Level;

/// The levels of this CPU, one for each set of shared kernels.
pub(super) fn levels() -> Vec<Level> {
    let mut levels = Level::supported();
    levels.dedup_by_key(|level| std::ptr::from_ref(Leaves::for_level(*level)));
    levels
}

/// Whether a cache of this type holds heads of this shape.
pub(super) fn takes(dtype: KvType, shape: &AttentionShape) -> bool {
    let layout = KvLayout {
        dtype,
        n_kv_heads: shape.n_kv_heads,
        head_dim: shape.head_dim,
        page_tokens: 16,
    };
    layout.check().is_ok()
}

/// A small generator (xorshift) of roughly normal numbers.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn uniform(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }

    pub(super) fn fill(&mut self, n: usize) -> Vec<f32> {
        let normal = |numbers: &mut Numbers| (0..6).map(|_| numbers.uniform()).sum::<f32>() - 3.0;
        (0..n)
            .map(|_| normal(self) * std::f32::consts::SQRT_2)
            .collect()
    }
}

/// The tokens of one sequence: all of q, k and v from position 0 on.
pub(super) struct TestSequence {
    pub(super) n_tokens: usize,
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
}

impl TestSequence {
    pub(super) fn new(shape: &AttentionShape, n_tokens: usize, seed: u64) -> TestSequence {
        let mut numbers = Numbers::new(seed);
        let kv_elems = n_tokens * shape.n_kv_heads * shape.head_dim;
        TestSequence {
            n_tokens,
            q: numbers.fill(n_tokens * shape.n_heads * shape.head_dim),
            k: numbers.fill(kv_elems),
            v: numbers.fill(kv_elems),
        }
    }
}

/// Several sequences in one cache; fed step by step as an engine does.
pub(super) struct TestCache<'a> {
    pub(super) sinks: Option<Vec<f32>>,
    pub(super) slopes: Option<Vec<f32>>,
    pub(super) cpu: &'a Cpu,
    pub(super) leaves: &'static Leaves,
    pub(super) shape: AttentionShape,
    pub(super) layout: KvLayout,
    pub(super) k_pages: KvBuffer,
    pub(super) v_pages: KvBuffer,
    pages: Vec<Vec<u32>>,
    /// Positions of sequence 0 that see each other.
    pub(super) blocks: Vec<std::ops::Range<usize>>,
    scratch: AttentionScratch,
}

/// A part of a step: sequence `0`, its tokens `1`.
pub(super) type StepPart = (usize, std::ops::Range<usize>);

impl<'a> TestCache<'a> {
    pub(super) fn new(
        cpu: &'a Cpu,
        shape: AttentionShape,
        (dtype, page_tokens): (KvType, usize),
        sequences: &[TestSequence],
    ) -> TestCache<'a> {
        let (n_kv_heads, head_dim) = (shape.n_kv_heads, shape.head_dim);
        let layout = KvLayout {
            dtype,
            n_kv_heads,
            head_dim,
            page_tokens,
        };
        let counts = sequences
            .iter()
            .map(|sequence| sequence.n_tokens.div_ceil(page_tokens));
        let n_pages: usize = counts.clone().sum();
        // Neighbouring pages of a sequence are scattered, last page first.
        let mut free = (0..n_pages as u32).rev();
        let pages = counts
            .map(|count| free.by_ref().take(count).collect())
            .collect();
        let buffer = || {
            let mut buffer = KvBuffer::zeroed(n_pages * layout.page_bytes()).expect("memory");
            // Slots never written hold NaN (or the largest bytes), which must not leak.
            buffer.fill(0xff);
            buffer
        };
        let (k_pages, v_pages) = (buffer(), buffer());
        let scratch = AttentionScratch::default();
        TestCache {
            cpu,
            leaves: Leaves::for_level(cpu.level()),
            shape,
            layout,
            k_pages,
            v_pages,
            pages,
            blocks: Vec::new(),
            sinks: None,
            slopes: None,
            scratch,
        }
    }

    /// Appends the parts' tokens and attends from them; returns the rows of out in order.
    pub(super) fn step(&mut self, sequences: &[TestSequence], parts: &[StepPart]) -> Vec<f32> {
        let (mut q, mut k, mut v, mut runs) = (vec![], vec![], vec![], vec![]);
        let q_elems = self.shape.n_heads * self.shape.head_dim;
        let kv_elems = self.shape.n_kv_heads * self.shape.head_dim;
        let mut row = 0;
        for (index, tokens) in parts {
            let sequence = &sequences[*index];
            q.extend_from_slice(&sequence.q[tokens.start * q_elems..tokens.end * q_elems]);
            k.extend_from_slice(&sequence.k[tokens.start * kv_elems..tokens.end * kv_elems]);
            v.extend_from_slice(&sequence.v[tokens.start * kv_elems..tokens.end * kv_elems]);
            // Pages that the window of the part's first token has left are dropped.
            let dropped = self.shape.first_seen(tokens.start) / self.layout.page_tokens;
            runs.push(KvRun {
                rows: row..row + tokens.len(),
                first_pos: tokens.start,
                pages: &self.pages[*index][dropped..],
                pages_first_pos: dropped * self.layout.page_tokens,
            });
            row += tokens.len();
        }
        let blocks = self.block_rows(parts);
        let (k_pages, v_pages) = (&mut self.k_pages, &mut self.v_pages);
        kv_append(self.cpu, &self.layout, &k, &v, k_pages, v_pages, &runs);
        let mut out = vec![f32::NAN; q.len()];
        let input = AttentionInput {
            q: &q,
            k_pages,
            v_pages,
            runs: &runs,
            blocks: &blocks,
            sinks: self.sinks.as_deref(),
            slopes: self.slopes.as_deref(),
        };
        attention_by(
            self.leaves,
            self.cpu,
            &self.shape,
            &self.layout,
            &input,
            &mut self.scratch,
            &mut out,
        );
        out
    }

    /// The rows of a step that are in blocks.
    pub(super) fn block_rows(&self, parts: &[StepPart]) -> Vec<std::ops::Range<usize>> {
        let mut row = 0;
        let mut rows = Vec::new();
        for (index, tokens) in parts {
            for block in self.blocks.iter().filter(|_| *index == 0) {
                let start = block.start.max(tokens.start);
                if start < block.end.min(tokens.end) {
                    assert!(block.end <= tokens.end, "a step ends within a block");
                    rows.push(row + start - tokens.start..row + block.end - tokens.start);
                }
            }
            row += tokens.len();
        }
        rows
    }
}

pub(super) fn cpu(level: Level, n_threads: usize) -> Cpu {
    Cpu::new(CpuOptions {
        n_threads: Some(n_threads),
        level: Some(level),
    })
    .expect("supported")
}

pub(super) fn shape(
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    window: Option<usize>,
) -> AttentionShape {
    let scale = 1.0 / (head_dim as f32).sqrt();
    AttentionShape {
        n_heads,
        n_kv_heads,
        head_dim,
        scale,
        window,
        chunked: false,
        softcap: None,
    }
}
