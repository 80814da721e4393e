//! Every row of the table at the widths of real models and every number of tokens up to a little more than two tiles, against the oracles.
//!
//! Faults of cutting show only there: a chunk longer than a kernel's buffer, a tail after many chunks, a token that no register
//! tile takes. `cargo test` runs a sample in which each row meets every number of tokens and every width; few tokens that are
//! multiplied directly meet every width. `MILLRACE_TEST_ALL=1` runs every combination.

use super::*;
use crate::matmul::panel::DIRECT_TOKENS;
use millrace_testkit::sample;
use std::collections::BTreeSet;

/// Columns of weights in published models of 0.3 to 70 billion parameters.
const MODEL_WIDTHS: [usize; 10] = [
    1024, 1536, 2048, 2560, 3072, 4096, 8192, 8960, 14_336, 28_672,
];

/// Most tokens: more than two of any register tile, and more than the driver stores at a time.
const MOST_TOKENS: usize = 66;

/// Up to here every width meets every number of tokens of a row with a direct function: one more than the function takes.
const FEW_TOKENS: usize = DIRECT_TOKENS + 1;

/// Widest matrix that many tokens meet in the sample, but once for each wider one.
const SAMPLE_WIDTH: usize = 2560;

/// Numbers of tokens for the slow emulated tiles, all at one width in three: around the sizes of tiles and of stores.
const EMULATED_TOKENS: [usize; 8] = [1, 9, 16, 17, 31, 32, 33, MOST_TOKENS];

/// Number of distinct tokens; a prompt repeats them in another order.
const TOKENS: usize = 4;

/// Blocks that are encoded for a format; wider matrices repeat them in disorder.
const POOL_BLOCKS: usize = 61;

/// The widths a format can have: those of models, and one block more and less at the columns where drivers cut.
fn widths(dtype: DType) -> Vec<usize> {
    let block = dtype.block_elems();
    let cuts = [512, 1024, 2048, 4096];
    let tails = cuts.iter().flat_map(|cut| [cut - block, cut + block]);
    // An odd number of pairs and of steps, where blocks are single numbers.
    let odd = (block == 1).then_some(2048 + 39);
    let all: BTreeSet<usize> = MODEL_WIDTHS.into_iter().chain(tails).chain(odd).collect();
    all.into_iter().collect()
}

/// The numbers of tokens that row number `row` meets at each width, all of `few` at every one.
fn sample(row: usize, widths: &[usize], few: usize) -> Vec<(usize, Vec<usize>)> {
    let narrow = widths.partition_point(|width| *width <= SAMPLE_WIDTH);
    let with_few = |width: &usize| (*width, (1..=few).collect::<Vec<_>>());
    let mut cases: Vec<_> = widths.iter().map(with_few).collect();
    for m in few + 1..=MOST_TOKENS {
        cases[(m + row) % narrow].1.push(m);
    }
    if few < MOST_TOKENS {
        let n_wide = widths.len() - narrow;
        for (i, case) in cases[narrow..].iter_mut().enumerate() {
            case.1.push(FEW_TOKENS + 1 + (row * n_wide + i * 7) % 24);
        }
    }
    cases
}

/// As [`sample`], of emulated rows.
fn sample_emulated(widths: &[usize]) -> Vec<(usize, Vec<usize>)> {
    let of = |(i, width): (usize, &usize)| {
        let is_met = i % 3 == 0 && *width <= SAMPLE_WIDTH;
        let tokens = if is_met { &EMULATED_TOKENS[..] } else { &[] };
        (*width, tokens.to_vec())
    };
    widths.iter().enumerate().map(of).collect()
}

/// A matrix of blocks from a pool.
fn matrix_bytes(dtype: DType, n: usize, k: usize, pool: &[u8]) -> Vec<u8> {
    let block_bytes = dtype.block_bytes();
    let n_blocks = n / dtype.block_rows() * (k / dtype.block_elems());
    let mut state = (n + k) as u64;
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize
    };
    let n_pool = pool.len() / block_bytes;
    (0..n_blocks)
        .flat_map(|_| &pool[next() % n_pool * block_bytes..][..block_bytes])
        .copied()
        .collect()
}

/// Expected outputs and their tolerances, for each of the [`TOKENS`].
struct WidthExpectation {
    out: Vec<f32>,
    allowed: Vec<f32>,
}

/// For layouts that multiply whole numbers.
fn of_integers(x: &[f32], weight: &WeightMatrix<'_>) -> Option<WidthExpectation> {
    let out = oracle::matmul::matmul_i8(x, TOKENS, weight)?;
    // Scales moved by a power of two underflow elsewhere.
    let allowed = vec![1e-36; out.len()];
    Some(WidthExpectation { out, allowed })
}

/// For layouts that multiply real numbers. The tolerance is the effect of rounding in units of Σ |x·w|.
fn of_numbers(x: &[f32], weight: &WeightMatrix<'_>) -> WidthExpectation {
    let (n, k) = (weight.n(), weight.k());
    let out = oracle::matmul::matmul(x, TOKENS, weight, None);
    let mut w = vec![0.0; n * k];
    millrace_quant::decode_rows(weight.dtype(), weight.bytes(), n, k, 0..n, &mut w).unwrap();
    let size = |i: usize| {
        let (x, w) = (&x[i / n * k..][..k], &w[i % n * k..][..k]);
        x.iter().zip(w).map(|(x, w)| (x * w).abs()).sum::<f32>()
    };
    let allowed = (0..out.len()).map(size).collect();
    WidthExpectation { out, allowed }
}

/// Runs a row with `m` of the tokens and compares each output.
fn check(
    cpu: &Cpu,
    row: &'static MatmulKernel,
    m: usize,
    x: &[f32],
    weight: WeightMatrix<'_>,
    expected: &WidthExpectation,
) {
    let (n, k) = (weight.n(), weight.k());
    let token = |t: usize| (t * 3 + m) % TOKENS;
    let prompt: Vec<f32> = (0..m)
        .flat_map(|t| &x[token(t) * k..][..k])
        .copied()
        .collect();
    let found = run_row(cpu, row, &prompt, m, weight);
    let unit = match row.layout {
        layout if layout.is_f32() => ROUNDING_F32 as f32,
        layout if rounds_to_bf16(layout) => ROUNDING_BF16 as f32,
        _ => 1.0,
    };
    for (i, found) in found.iter().enumerate() {
        let at = token(i / n) * n + i % n;
        let (expected, allowed) = (expected.out[at], unit * expected.allowed[at] + 1e-36);
        assert!(
            (found - expected).abs() <= allowed,
            "{} [m {m}, n {n}, k {k}], token {}, row {}: {found:e}, expected {expected:e} ± {allowed:e}",
            row.name(),
            i / n,
            i % n
        );
    }
}

/// Checks the rows of one format; the number of cases, and of all that there are.
fn check_format(dtype: DType, first_row: usize, all: bool) -> (usize, usize) {
    // A whole panel and one that is moved back to fit.
    let n = 17_usize.next_multiple_of(dtype.block_rows());
    let of_dtype: Vec<_> = rows().filter(|row| row.dtype == dtype).collect();
    let cpus: Vec<_> = of_dtype.iter().map(|row| cpu(row.level, 1)).collect();
    let block = dtype.block_elems() * POOL_BLOCKS;
    let values = numbers(dtype.block_rows() * block, 21);
    let pool = encoded(dtype, dtype.block_rows(), block, &values);
    let widths = widths(dtype);
    let few = |row: &MatmulKernel| match row.direct {
        _ if all => MOST_TOKENS,
        Some(_) => FEW_TOKENS,
        None => 0,
    };
    let samples: Vec<_> = of_dtype
        .iter()
        .zip(first_row..)
        .map(|(row, i)| match is_emulated(row) && !all {
            true => sample_emulated(&widths),
            false => sample(i, &widths, few(row)),
        })
        .collect();
    let mut n_cases = 0;
    for (w, &k) in widths.iter().enumerate() {
        let bytes = matrix_bytes(dtype, n, k, &pool);
        let weight = WeightMatrix::new(dtype, n, k, &bytes).unwrap();
        let kinds = [Data::Normal, Data::OneHot, Data::Alternating, Data::Normal];
        let x: Vec<f32> = (0..TOKENS as u64)
            .zip(kinds)
            .flat_map(|(t, kind)| kind.make(k, 22 + t))
            .collect();
        let (integers, numbers) = (of_integers(&x, &weight), of_numbers(&x, &weight));
        for ((row, cpu), sample) in of_dtype.iter().zip(&cpus).zip(&samples) {
            let expected = match &integers {
                Some(expected) if is_integer(row) => expected,
                _ => &numbers,
            };
            for &m in &sample[w].1 {
                check(cpu, row, m, &x, weight, expected);
                n_cases += 1;
            }
        }
    }
    (n_cases, of_dtype.len() * widths.len() * MOST_TOKENS)
}

/// Checks formats, and prints the number of cases run and of all cases.
fn check_formats(dtypes: impl Iterator<Item = DType>) {
    let all = sample::is_whole();
    let (mut done, mut of) = (0, 0);
    for (i, dtype) in dtypes.enumerate() {
        let (n_done, n_of) = check_format(dtype, 5 * i, all);
        (done, of) = (done + n_done, of + n_of);
    }
    println!("{done} of {of} cases of row, tokens and width; MILLRACE_TEST_ALL=1 runs all");
    assert!(!all || done == of, "all were asked for");
}

// In four parts, which run side by side.

/// Blocks within a row, shorter than superblocks.
fn is_of_short_blocks(dtype: &DType) -> bool {
    (2..256).contains(&dtype.block_elems()) && !dtype.is_tiled()
}

#[test]
fn rows_of_numbers_agree_at_the_widths_of_models() {
    check_formats(DType::all().filter(|dtype| dtype.is_float()));
}

#[test]
fn rows_of_blocks_agree_at_the_widths_of_models() {
    check_formats(DType::all().filter(is_of_short_blocks));
}

#[test]
fn rows_of_superblocks_agree_at_the_widths_of_models() {
    let is_superblock = |dtype: &DType| dtype.block_elems() == 256 && !dtype.is_tiled();
    check_formats(DType::all().filter(is_superblock));
}

#[test]
fn rows_of_tiles_agree_at_the_widths_of_models() {
    check_formats(DType::all().filter(|dtype| dtype.is_tiled()));
}

/// The sample meets its rules for any row and format, and the parts cover every format.
#[test]
fn the_sample_meets_every_width_and_number_of_tokens() {
    let is_in_a_part = |dtype: &DType| {
        dtype.is_float()
            || is_of_short_blocks(dtype)
            || dtype.block_elems() == 256
            || dtype.is_tiled()
    };
    assert!(DType::all().all(|dtype| is_in_a_part(&dtype)));
    for (row, dtype) in (0..40).flat_map(|row| DType::all().map(move |dtype| (row, dtype))) {
        let widths = widths(dtype);
        assert!(
            MODEL_WIDTHS.iter().all(|width| widths.contains(width)),
            "{dtype}"
        );
        for few in [0, FEW_TOKENS, MOST_TOKENS] {
            let sample = sample(row, &widths, few);
            let tokens: BTreeSet<usize> = sample
                .iter()
                .flat_map(|(_, tokens)| tokens)
                .copied()
                .collect();
            assert_eq!(tokens, (1..=MOST_TOKENS).collect(), "{dtype}, row {row}");
            for (width, tokens) in sample {
                assert!((1..=few).all(|m| tokens.contains(&m)), "{dtype}, {width}");
                let has_prompt = tokens.iter().any(|m| *m > FEW_TOKENS);
                assert!(has_prompt, "{dtype}, width {width}");
            }
        }
    }
}

/// No function of a kernel relies on the drivers' cuts: each multiplies a chunk longer than any of theirs.
#[test]
fn functions_take_chunks_of_any_length() {
    use crate::matmul::ahead::Ahead;
    use crate::matmul::panel::{
        DirectArgs, GROUP_ROWS, PANEL_ROWS, PackArgs, PanelSource, TileArgs,
    };
    use crate::matmul::scratch::AlignedBytes;
    let (m, k) = (DIRECT_TOKENS, 5 * 2048 + 256);
    let x = numbers(m * k, 31);
    for row in rows() {
        let cpu = cpu(row.level, 1);
        let n = PANEL_ROWS.next_multiple_of(row.dtype.block_rows());
        let pool = encoded(row.dtype, n, 2048, &numbers(n * 2048, 32));
        let bytes = matrix_bytes(row.dtype, n, k, &pool);
        let weight = WeightMatrix::new(row.dtype, n, k, &bytes).unwrap();
        let expected = run_row(&cpu, row, &x, m, weight);
        let mut scratch = Activations::default();
        scratch.prepare(&cpu, &x, k, row.layout.input());
        let view = scratch.view(&x, k, row.layout.input());
        let row_bytes = k / row.dtype.block_elems() * row.dtype.block_bytes();
        let is_tiled = row.dtype.block_rows() > 1;
        let source = PanelSource {
            dtype: row.dtype,
            base: bytes.as_ptr(),
            stride: if is_tiled {
                row.dtype.block_bytes()
            } else {
                row_bytes
            },
            tile_row: 0,
            k,
            ahead: Ahead::NONE,
        };
        let (mut panel, mut sums) = (AlignedBytes::default(), AlignedBytes::default());
        let panel = panel.at_least(row.layout.panel_bytes(k)).as_mut_ptr();
        let compare = |what: &str, m: usize, sums: &[u8]| {
            let sums: &[f32] = bytemuck::cast_slice(sums);
            for (i, found) in sums
                .chunks(GROUP_ROWS)
                .take(m)
                .flat_map(|sums| &sums[..PANEL_ROWS])
                .enumerate()
            {
                let expected = expected[i / PANEL_ROWS * n + i % PANEL_ROWS];
                // Sums of numbers are cut elsewhere, those of blocks are not.
                let allowed = if is_integer(row) { 0.0 } else { 1e-3 };
                assert!(
                    (found - expected).abs() <= allowed,
                    "{} {what}, {m} tokens, output {i}: {found:e}, expected {expected:e}",
                    row.name()
                );
            }
        };
        let sums = &mut sums.at_least(m * GROUP_ROWS * size_of::<f32>())
            [..m * GROUP_ROWS * size_of::<f32>()];
        sums.fill(0);
        let (x, x_stride) = (view.start, view.stride);
        // SAFETY: the level is supported; sixteen rows of `k` columns and `m` tokens exist; panel and sums are long enough.
        unsafe {
            (row.pack)(&PackArgs { source, panel });
            let (n_panels, panel_stride) = (1, 0);
            (row.tile)(&TileArgs {
                panels: panel,
                panel_stride,
                n_panels,
                k,
                x,
                x_stride,
                m,
                acc: sums.as_mut_ptr().cast(),
            });
        }
        compare("pack and tile", m, sums);
        let Some(direct) = row.direct else { continue };
        for m in 1..=DIRECT_TOKENS {
            sums.fill(0);
            let args = DirectArgs {
                source,
                x,
                x_stride,
                m,
                acc: sums.as_mut_ptr().cast(),
            };
            // SAFETY: as above.
            unsafe { direct(&args) };
            compare("direct", m, sums);
        }
    }
}

/// Tiles beyond the last column multiply nothing, whatever they hold, and share an input with other formats.
#[test]
fn tiles_beyond_the_last_column_do_not_count() {
    let (n, k, stored) = (64, 288, 512);
    let wide = encoded(DType::Q4nx, n, stored, &numbers(n * stored, 31));
    let plain = encoded(DType::BF16, n, k, &numbers(n * k, 32));
    for level in Level::supported() {
        let cpu = cpu(level, 2);
        for m in [1, 3, 20] {
            let x = numbers(m * k, 33);
            let mut padded = vec![0.0; m * stored];
            for (to, x) in padded.chunks_mut(stored).zip(x.chunks(k)) {
                to[..k].copy_from_slice(x);
            }
            let tiled = WeightMatrix::new(DType::Q4nx, n, k, &wide).unwrap();
            let other = WeightMatrix::new(DType::BF16, n, k, &plain).unwrap();
            let expected = WeightMatrix::new(DType::Q4nx, n, stored, &wide).unwrap();
            let expected = [run(&cpu, &padded, m, expected), run(&cpu, &x, m, other)];
            let mut found = [vec![0.0; m * n], vec![0.0; m * n]];
            let [a, b] = &mut found;
            let product = |weight, out| Multiplication {
                weight,
                bias: None,
                out,
            };
            let mut products = [product(tiled, &mut a[..]), product(other, &mut b[..])];
            let mut scratch = Activations::new(Precision::Fast);
            matmul(&cpu, &x, m, &mut scratch, &mut products);
            assert!(found == expected, "{level} {m}");
        }
    }
}
