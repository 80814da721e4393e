//! The same bits however the work is cut.

use super::*;
use millrace_testkit::sample;

/// Rows of `index` in the out of a step with `parts`.
fn rows_of(shape: &AttentionShape, parts: &[StepPart], index: usize, out: &[f32]) -> Vec<u32> {
    let row_elems = shape.n_heads * shape.head_dim;
    let mut start = 0;
    for (part, tokens) in parts {
        let end = start + tokens.len() * row_elems;
        if *part == index {
            return out[start..end]
                .iter()
                .map(|value| value.to_bits())
                .collect();
        }
        start = end;
    }
    Vec::new()
}

/// All rows of sequence 0, in order, as bits.
pub(super) fn bits(
    (leaves, cpu): (&'static Leaves, &Cpu),
    shape: AttentionShape,
    dtype: KvType,
    sequences: &[TestSequence],
    steps: &[Vec<StepPart>],
    blocks: &[std::ops::Range<usize>],
) -> Vec<u32> {
    let mut cache = TestCache::new(cpu, shape, (dtype, 32), sequences);
    (cache.blocks, cache.leaves) = (blocks.to_vec(), leaves);
    let mut rows = Vec::new();
    for parts in steps {
        let out = cache.step(sequences, parts);
        rows.extend(rows_of(&shape, parts, 0, &out));
    }
    rows
}

/// No blocks, and such as no way of cutting below cuts.
const BLOCKS: [&[std::ops::Range<usize>]; 2] = [&[], &[1..100, 131..199, 201..255]];

#[test]
fn chunks_companions_and_threads_change_nothing() {
    for level in levels() {
        unchanged(level, Leaves::for_level(level), &KvType::ALL);
    }
}

/// Holds kernels to the same bits however the work is cut.
pub(super) fn unchanged(level: Level, leaves: &'static Leaves, types: &[KvType]) {
    const LENGTH: usize = 291;
    let shapes = [
        shape(8, 2, 64, None),
        shape(3, 1, 80, Some(70)),
        shape(8, 1, 32, Some(200)),
        shape(2, 2, 128, None),
    ];
    let whole = vec![vec![(0, 0..LENGTH)]];
    let chunks = vec![
        vec![(0, 0..1)],
        vec![(0, 1..130)],
        vec![(0, 130..257)],
        vec![(0, 257..LENGTH)],
    ];
    let mut singly = vec![vec![(0, 0..LENGTH - 36)]];
    singly.extend((LENGTH - 36..LENGTH).map(|pos| vec![(0, pos..pos + 1)]));
    let in_company = vec![
        vec![(1, 0..3), (0, 0..200), (2, 0..64)],
        vec![(2, 64..65), (1, 3..60), (0, 200..LENGTH)],
    ];
    let (one, two) = (cpu(level, 1), cpu(level, 2));
    // Block types are unpacked to the elements of the others: two shapes in turn, unless all are requested.
    for (i, shape) in shapes.into_iter().enumerate() {
        let is_plain = |dtype: KvType| dtype.kernel_type() == dtype;
        let taken = |j: usize, dtype| is_plain(dtype) || sample::takes(i + j, 2, 0);
        let types = types.iter().enumerate().filter(|(j, t)| taken(*j, **t));
        for (_, &dtype) in types.filter(|(_, dtype)| takes(**dtype, &shape)) {
            let sequences: Vec<TestSequence> = [LENGTH, 60, 65]
                .into_iter()
                .zip(0..)
                .map(|(length, seed)| TestSequence::new(&shape, length, seed))
                .collect();
            // Blocks that no way of cutting cuts.
            let with_blocks = usize::from(dtype == KvType::F16);
            for blocks in &BLOCKS[..1 + with_blocks] {
                let expected = bits((leaves, &one), shape, dtype, &sequences, &whole, blocks);
                // Two ways of cutting a shape, each on another number of threads; all on both where all are requested.
                let ways = [
                    (&whole, [&two, &one]),
                    (&chunks, [&one, &two]),
                    (&singly, [&two, &one]),
                    (&in_company, [&two, &one]),
                ];
                for (steps, cpus) in sample::part(ways, 2, i) {
                    for cpu in sample::part(cpus, 2, 0) {
                        let found = bits((leaves, cpu), shape, dtype, &sequences, steps, blocks);
                        let n_threads = cpu.pool().n_threads();
                        let what = (level, shape, dtype, n_threads, steps.len());
                        assert!(found == expected, "{what:?}");
                    }
                }
            }
        }
    }
}
