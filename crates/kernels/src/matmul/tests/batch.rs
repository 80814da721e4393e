//! A token's bits do not depend on the tokens beside it.

use super::*;

/// A token's outputs have the same bits alone and among others, on one thread and on two. A row's outputs have the
/// same bits whatever rows surround it.
#[test]
fn outputs_do_not_depend_on_the_batch() {
    for level in Level::supported() {
        let (one, two) = (cpu(level, 1), cpu(level, 2));
        for dtype in DType::all() {
            // More tokens than any function multiplies without panels; blocks of four groups of rows, of two and of one.
            let (m, n) = (53, 192);
            let k = 768.max(2 * dtype.block_elems());
            let bytes = encoded(dtype, n, k, &numbers(n * k, 5));
            let weight = WeightMatrix::new(dtype, n, k, &bytes).unwrap();
            let x = numbers(m * k, 6);
            let together = run(&one, &x, m, weight);
            assert_eq!(
                together,
                run(&two, &x, m, weight),
                "{level} {dtype}: threads"
            );
            for part in [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 34] {
                let alone = run(&two, &x[..part * k], part, weight);
                assert_eq!(
                    alone,
                    together[..part * n],
                    "{level} {dtype}: {part} tokens"
                );
            }
            let first = 32;
            let at = first / dtype.block_rows() * (k / dtype.block_elems()) * dtype.block_bytes();
            let rows = WeightMatrix::new(dtype, n - first, k, &bytes[at..]).unwrap();
            for (t, out) in run(&two, &x, m, rows).chunks(n - first).enumerate() {
                assert_eq!(
                    out,
                    &together[t * n + first..(t + 1) * n],
                    "{level} {dtype}: rows"
                );
            }
        }
    }
}

/// One token reads rows four at a time, more tokens panels or sixteen rows: with rows over, several chunks, and columns over.
#[test]
fn one_token_of_plain_numbers_is_as_many_are() {
    for level in Level::supported() {
        let two = cpu(level, 2);
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for (n, k) in [
                (1, 2048),
                (3, 1024),
                (4, 4096),
                (39, 2048),
                (70, 6144),
                (37, 4135),
            ] {
                let m = 17;
                let bytes = encoded(dtype, n, k, &numbers(n * k, 7));
                let weight = WeightMatrix::new(dtype, n, k, &bytes).unwrap();
                let x = numbers(m * k, 8);
                let together = run(&two, &x, m, weight);
                for (t, x) in x.chunks(k).enumerate() {
                    let alone = run(&two, x, 1, weight);
                    assert_eq!(alone, together[t * n..][..n], "{level} {dtype} {n} x {k}");
                }
            }
        }
    }
}

/// AMX's tiles round in a different order, which the functions for a few tokens repeat.
#[test]
fn outputs_of_emulated_tiles_do_not_depend_on_the_batch() {
    for row in emulated().iter().filter(|row| row.level.is_supported()) {
        let cpu = cpu(row.level, 1);
        let (m, n) = (35, 192);
        // A last group of an odd number of columns, where the format can have one.
        let k = match row.dtype.block_elems() {
            1 => 512 + 32 + 7,
            _ => 768,
        };
        let n = n
            .max(row.dtype.block_rows())
            .next_multiple_of(row.dtype.block_rows());
        let bytes = encoded(row.dtype, n, k, &numbers(n * k, 5));
        let weight = WeightMatrix::new(row.dtype, n, k, &bytes).unwrap();
        let x = numbers(m * k, 6);
        let together = run_row(&cpu, row, &x, m, weight);
        for part in [1, 2, 3, 8, 9, 16, 17, 32, 33] {
            let alone = run_row(&cpu, row, &x[..part * k], part, weight);
            assert_eq!(alone, together[..part * n], "{}: {part} tokens", row.name());
        }
    }
}

/// More tokens than one pass accumulates.
#[test]
fn long_prompts_take_several_passes() {
    for level in Level::supported() {
        let cpu = cpu(level, 2);
        let (m, n, k) = (1030, 17, 64);
        let bytes = encoded(DType::Q8_0, n, k, &numbers(n * k, 7));
        let weight = WeightMatrix::new(DType::Q8_0, n, k, &bytes).unwrap();
        let x = numbers(m * k, 8);
        let together = run(&cpu, &x, m, weight);
        let last = run(&cpu, &x[(m - 1) * k..], 1, weight);
        assert_eq!(last, together[(m - 1) * n..], "{level}");
    }
}
