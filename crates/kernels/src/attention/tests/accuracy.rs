//! Every level and cache type against the oracle.

use super::*;
use crate::oracle;
use half::bf16;
use std::f32::consts::{LN_2, LOG2_E};

/// Largest error of an output, relative to the largest output: f32 sums of a few hundred products.
const TOLERANCE: f64 = 2e-6;

/// The same where weights are rounded to bf16: 2⁻⁹ each. The oracle has the rounded queries.
const PAIRS_TOLERANCE: f64 = 4e-3;

/// Runs `parts` one after another (one step each) and compares every row with the oracle.
fn compare(cpu: &Cpu, shape: AttentionShape, kv: (KvType, usize), steps: &[Vec<StepPart>]) {
    compare_blocks(cpu, shape, kv, steps, &[]);
}

fn compare_blocks(
    cpu: &Cpu,
    shape: AttentionShape,
    kv: (KvType, usize),
    steps: &[Vec<StepPart>],
    blocks: &[std::ops::Range<usize>],
) {
    compare_by(
        Leaves::for_level(cpu.level()),
        cpu,
        shape,
        kv,
        steps,
        blocks,
    );
}

/// As [`compare`], with positions of sequence 0 that see each other, by these kernels.
pub(super) fn compare_by(
    leaves: &'static Leaves,
    cpu: &Cpu,
    shape: AttentionShape,
    kv: (KvType, usize),
    steps: &[Vec<StepPart>],
    blocks: &[std::ops::Range<usize>],
) {
    let n_sequences = 1 + steps
        .iter()
        .flatten()
        .map(|(index, _)| *index)
        .max()
        .unwrap_or(0);
    let length = |index: usize| {
        let parts = steps.iter().flatten().filter(|(part, _)| *part == index);
        parts.map(|(_, tokens)| tokens.end).max().unwrap_or(0)
    };
    let sinks: Option<Vec<f32>> = shape.softcap.map(|_| {
        let sink = |head: usize| 0.7 * head as f32 - 1.0;
        (0..shape.n_heads).map(sink).collect()
    });
    let slopes: Option<Vec<f32>> = shape.softcap.map(|_| {
        let slope = |head: usize| 0.5f32.powi(head as i32 + 1);
        (0..shape.n_heads).map(slope).collect()
    });
    let sequences: Vec<TestSequence> = (0..n_sequences)
        .map(|index| TestSequence::new(&shape, length(index), index as u64))
        .collect();
    let mut cache = TestCache::new(cpu, shape, kv, &sequences);
    cache.blocks = blocks.to_vec();
    cache.leaves = leaves;
    cache.sinks = sinks;
    cache.slopes = slopes;
    let is_rounded = leaves.pairs(kv.0).is_some();
    let tolerance = if is_rounded {
        PAIRS_TOLERANCE
    } else {
        TOLERANCE
    };
    // The tokens before the first compared token of sequence 0.
    let first = steps[0].first().map_or(0, |(_, tokens)| tokens.start);
    cache.step(&sequences, &[(0, 0..first)]);
    for parts in steps {
        let out = cache.step(&sequences, parts);
        let (mut q, mut runs, mut row) = (vec![], vec![], 0);
        let q_elems = shape.n_heads * shape.head_dim;
        for (index, tokens) in parts {
            let pages = &cache.pages[*index];
            let rows = row..row + tokens.len();
            row = rows.end;
            q.extend_from_slice(&sequences[*index].q[tokens.start * q_elems..tokens.end * q_elems]);
            runs.push(KvRun {
                rows,
                first_pos: tokens.start,
                pages,
                pages_first_pos: 0,
            });
        }
        let mut shape = shape;
        if is_rounded {
            // The kernels round queries, scaled such that a weight is a power of two of a score difference. The effect grows with the
            // scores, so a bound for it would be loose or wrong.
            for q in &mut q {
                *q = bf16::from_f32(*q * (shape.scale * LOG2_E)).to_f32();
            }
            shape.scale = LN_2;
        }
        let (k_pages, v_pages) = (&cache.k_pages, &cache.v_pages);
        let input = AttentionInput {
            q: &q,
            k_pages,
            v_pages,
            runs: &runs,
            blocks: &cache.block_rows(parts),
            sinks: cache.sinks.as_deref(),
            slopes: cache.slopes.as_deref(),
        };
        let expected = oracle::attention::attention(&shape, &cache.layout, &input);
        let largest = expected
            .iter()
            .fold(0.0f64, |max, value| max.max(value.abs()));
        for (i, (out, expected)) in out.iter().zip(&expected).enumerate() {
            let error = (f64::from(*out) - expected).abs() / largest;
            assert!(
                error <= tolerance,
                "{} {shape:?} {kv:?} {parts:?} element {i}: {out} for {expected}, off by {error:e}",
                cpu.level()
            );
        }
    }
}

#[test]
fn shapes_windows_and_types() {
    let shapes = [
        shape(4, 4, 64, None),
        shape(8, 1, 64, Some(5)),
        shape(6, 2, 80, Some(64)),
        shape(4, 2, 96, None),
        shape(4, 1, 128, Some(1)),
        shape(2, 1, 256, Some(17)),
        shape(9, 3, 8, None),
        shape(2, 2, 72, Some(40)),
        shape(4, 2, 4, None),
        shape(3, 1, 12, Some(17)),
        shape(6, 3, 20, None),
        shape(2, 1, 36, Some(40)),
    ];
    for level in levels() {
        let cpu = cpu(level, 2);
        for (i, shape) in shapes.into_iter().enumerate() {
            for (j, dtype) in KvType::ALL.into_iter().enumerate() {
                let page_tokens = [16, 32, 64][(i + j) % 3];
                if !takes(dtype, &shape) {
                    continue;
                }
                let steps = [vec![(0, 0..37)], vec![(0, 37..38)], vec![(0, 38..75)]];
                compare(&cpu, shape, (dtype, page_tokens), &steps);
            }
        }
    }
}

/// Soft-bounded scores that drop with distance, beside sinks of very different weight.
#[test]
fn sinks_slopes_and_softcaps() {
    for level in levels() {
        let cpu = cpu(level, 2);
        for (dtype, window) in [
            (KvType::F32, None),
            (KvType::Q8_0, Some(33)),
            (KvType::BF16, Some(270)),
            (KvType::Q4_0, Some(33)),
        ] {
            let shape = AttentionShape {
                softcap: Some(0.75),
                scale: 1.0,
                ..shape(8, 2, 64, window)
            };
            let steps = [
                vec![(0, 0..70), (1, 0..1), (2, 0..33)],
                vec![(2, 33..34), (0, 70..300), (1, 1..2)],
            ];
            compare(&cpu, shape, (dtype, 16), &steps);
        }
    }
}

/// Chunks shorter and longer than a span, whose edges fall within steps and between them.
#[test]
fn chunks_are_seen_from_their_beginning() {
    for level in levels() {
        let cpu = cpu(level, 2);
        for (dtype, chunk) in [(KvType::F32, 24), (KvType::F16, 270), (KvType::Q8_0, 33)] {
            let shape = AttentionShape {
                chunked: true,
                ..shape(8, 2, 64, Some(chunk))
            };
            let steps = [
                vec![(0, 0..70), (1, 0..1), (2, 0..33)],
                vec![(2, 33..34), (0, 70..300), (1, 1..2)],
                vec![(0, 300..301)],
            ];
            compare(&cpu, shape, (dtype, 16), &steps);
        }
    }
}

#[test]
fn lengths_around_every_edge() {
    for level in levels() {
        let cpu = cpu(level, 2);
        for window in [None, Some(64), Some(270)] {
            let shape = shape(2, 1, 16, window);
            for length in [15, 16, 17, 63, 64, 65, 255, 256, 257, 513] {
                // The last rows suffice: the earlier rows are covered by other lengths.
                let steps = [vec![(0, length - 3..length)], vec![(0, length..length + 1)]];
                compare(&cpu, shape, (KvType::F16, 32), &steps);
            }
        }
    }
}

#[test]
fn ragged_batches() {
    for level in levels() {
        let cpu = cpu(level, 2);
        for window in [None, Some(33)] {
            let shape = shape(8, 2, 64, window);
            let steps = [
                vec![(0, 0..70), (1, 0..1), (2, 0..33)],
                vec![(2, 33..34), (0, 70..71), (1, 1..2)],
                vec![(1, 2..90), (2, 34..34), (0, 71..73)],
            ];
            compare(&cpu, shape, (KvType::F16, 16), &steps);
        }
    }
}

/// An image's rows see all of it and all earlier rows; all other rows stay causal.
#[test]
fn blocks_see_forward() {
    let steps = [
        vec![(0, 0..37), (1, 0..5)],
        vec![(1, 5..9), (0, 37..300)],
        vec![(0, 300..301), (1, 9..10)],
    ];
    for level in Level::supported() {
        let cpu = cpu(level, 2);
        for window in [None, Some(64), Some(270)] {
            let blocks = [3..35, 41..42, 42..60, 90..297];
            let grouped = shape(4, 2, 16, window);
            compare_blocks(&cpu, grouped, (KvType::F16, 64), &steps, &blocks);
        }
        // All in one block, as in a vision encoder.
        let whole = [vec![(0, 0..300)]];
        compare_blocks(
            &cpu,
            shape(1, 1, 72, None),
            (KvType::F32, 64),
            &whole,
            std::slice::from_ref(&(0..300)),
        );
    }
}

/// Scores far apart: one position has all the weight, and nothing overflows.
#[test]
fn extreme_scores() {
    for level in levels() {
        let cpu = cpu(level, 1);
        let shape = AttentionShape {
            scale: 40.0,
            ..shape(4, 2, 64, None)
        };
        // Rounding a score of several thousand moves its weight, so only finiteness and the range
        // of the values are certain.
        let sequences = [TestSequence::new(&shape, 300, 3)];
        let mut cache = TestCache::new(&cpu, shape, (KvType::F32, 32), &sequences);
        let out = cache.step(&sequences, &[(0, 0..300)]);
        let largest = sequences[0]
            .v
            .iter()
            .fold(0.0f32, |max, value| max.max(value.abs()));
        assert!(
            out.iter().all(|value| value.abs() <= largest * 1.000_01),
            "{level}"
        );
    }
}
