//! Every row of the table against the oracles.

mod any_bytes;
mod batch;
mod widths;

use super::*;
use crate::cpu::CpuOptions;
use crate::level::Level;
use crate::oracle;
use crate::table::kernels;
use millrace_quant::encode_matrix;
use std::cell::LazyCell;
use std::collections::HashMap;

/// Worst normalised mean square error on roughly normal data, against the f64 oracle, of activations with one i8 scale
/// for each 32 columns.
const NMSE_I8X32: f64 = 4e-5;
/// The same with one scale for each 256.
const NMSE_I8X256: f64 = 5e-5;
/// The same in bf16.
const NMSE_BF16: f64 = 5e-6;
/// The same in f32.
const NMSE_F32: f64 = 1e-12;

/// Most that f32 arithmetic may move an output, in units of Σ |x·w|.
const ROUNDING_F32: f64 = 4e-6;
/// Most that rounding activations to bf16 may, in the same units.
const ROUNDING_BF16: f64 = 1.0 / 256.0;

fn cpu(level: Level, n_threads: usize) -> Cpu {
    Cpu::new(CpuOptions {
        n_threads: Some(n_threads),
        level: Some(level),
    })
    .unwrap()
}

/// Reproducible numbers in (−1, 1), roughly normal.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    (0..n)
        .map(|_| (uniform() + uniform() + uniform()) / 3.0)
        .collect()
}

/// Activations or weights of one kind.
#[derive(Clone, Copy, Debug)]
enum Data {
    Normal,
    AllMax,
    Alternating,
    Denormal,
    Zeros,
    OneHot,
}

impl Data {
    const ALL: [Data; 6] = [
        Data::Normal,
        Data::AllMax,
        Data::Alternating,
        Data::Denormal,
        Data::Zeros,
        Data::OneHot,
    ];

    fn make(self, n: usize, seed: u64) -> Vec<f32> {
        match self {
            Data::Normal => numbers(n, seed),
            Data::AllMax => vec![3.0; n],
            Data::Alternating => (0..n)
                .map(|i| if i % 2 == 0 { 1.0 } else { -1.0 })
                .collect(),
            Data::Denormal => numbers(n, seed).iter().map(|v| v * 1e-39).collect(),
            Data::Zeros => vec![0.0; n],
            Data::OneHot => (0..n)
                .map(|i| if i % 37 == 5 { -2.5 } else { 0.0 })
                .collect(),
        }
    }
}

fn encoded(dtype: DType, n: usize, k: usize, w: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; dtype.size_bytes(n, k).unwrap()];
    encode_matrix(dtype, w, n, k, &mut bytes).unwrap();
    bytes
}

fn run_row(
    cpu: &Cpu,
    kernel: &'static MatmulKernel,
    x: &[f32],
    m: usize,
    weight: WeightMatrix<'_>,
) -> Vec<f32> {
    let mut out = vec![f32::NAN; m * weight.n()];
    let mut product = Multiplication {
        weight,
        bias: None,
        out: &mut out,
    };
    matmul_with(cpu, kernel, x, m, &mut Activations::default(), &mut product);
    out
}

fn run(cpu: &Cpu, x: &[f32], m: usize, weight: WeightMatrix<'_>) -> Vec<f32> {
    let mut out = vec![f32::NAN; m * weight.n()];
    let mut products = [Multiplication {
        weight,
        bias: None,
        out: &mut out,
    }];
    matmul(cpu, x, m, &mut Activations::default(), &mut products);
    out
}

/// Normalised mean square error.
fn nmse(found: &[f32], expected: &[f32]) -> f64 {
    let square = |v: f64| v * v;
    let error: f64 = found
        .iter()
        .zip(expected)
        .map(|(f, e)| square(f64::from(*f) - f64::from(*e)))
        .sum();
    let power: f64 = expected.iter().map(|e| square(f64::from(*e))).sum();
    if power == 0.0 { error } else { error / power }
}

/// Rows that this CPU can run, and AMX's with the emulated unit.
fn rows() -> impl Iterator<Item = &'static MatmulKernel> {
    kernels()
        .chain(emulated())
        .filter(|row| row.level.is_supported())
}

/// AMX's rows with the emulated unit. They also need AVX-512.
fn emulated() -> &'static [MatmulKernel] {
    #[cfg(target_arch = "x86_64")]
    return crate::table::EMULATED;
    #[cfg(not(target_arch = "x86_64"))]
    &[]
}

fn is_emulated(kernel: &MatmulKernel) -> bool {
    emulated().iter().any(|row| row.name() == kernel.name())
}

fn rounds_to_bf16(layout: PanelLayout) -> bool {
    matches!(
        layout,
        PanelLayout::Bf16Columns | PanelLayout::Bf16Tiles | PanelLayout::F16Tiles
    )
}

fn is_integer(kernel: &MatmulKernel) -> bool {
    !kernel.layout.is_f32() && !rounds_to_bf16(kernel.layout)
}

#[test]
fn errors_stay_within_their_budgets() {
    let (m, n, k) = (7, 64, 1024);
    let x = numbers(m * k, 2);
    let mut by_format = HashMap::new();
    for row in rows() {
        let cpu = cpu(row.level, 2);
        let (bytes, expected) = by_format.entry(row.dtype).or_insert_with(|| {
            let bytes = encoded(row.dtype, n, k, &numbers(n * k, 1));
            let weight = WeightMatrix::new(row.dtype, n, k, &bytes).unwrap();
            let expected = oracle::matmul::matmul(&x, m, &weight, None);
            (bytes, expected)
        });
        let weight = WeightMatrix::new(row.dtype, n, k, bytes).unwrap();
        let budget = match row.layout {
            PanelLayout::F32 | PanelLayout::F32Columns | PanelLayout::F32Eights => NMSE_F32,
            PanelLayout::Bf16Columns | PanelLayout::Bf16Tiles | PanelLayout::F16Tiles => NMSE_BF16,
            PanelLayout::Block32
            | PanelLayout::Block32Min
            | PanelLayout::Block32Wide
            | PanelLayout::Block16 => NMSE_I8X32,
            PanelLayout::Super16
            | PanelLayout::Super16Min
            | PanelLayout::Super32Min
            | PanelLayout::Planes
            | PanelLayout::Planes16Min
            | PanelLayout::Planes32Min => NMSE_I8X256,
        };
        let error = nmse(&run_row(&cpu, row, &x, m, weight), expected);
        assert!(error < budget, "{}: {error:e}", row.name());
    }
}

/// Shapes `(m, n, blocks of k)`: one and many tokens, rows that end inside a panel, a chunk, a group.
const SHAPES: [(usize, usize, usize); 9] = [
    (1, 1, 1),
    (1, 33, 3),
    (2, 7, 2),
    (3, 16, 5),
    (5, 31, 1),
    (7, 17, 4),
    (16, 64, 3),
    (17, 48, 17),
    (33, 32, 33),
];

/// Integer kernels agree with their layout's definition to the bit; others are within rounding.
#[test]
fn every_row_agrees_with_its_oracle() {
    for dtype in DType::all() {
        for (i, (m, n, blocks)) in SHAPES.into_iter().enumerate() {
            // Superblocks are long enough: a few of them already cross chunks.
            let blocks = if dtype.block_elems() == 256 {
                blocks.min(5)
            } else {
                blocks
            };
            let (n, k) = (
                n.next_multiple_of(dtype.block_rows()),
                blocks * dtype.block_elems(),
            );
            // Half the kinds of activations at each shape, each with a different kind of weights.
            for j in (i % 2..6).step_by(2) {
                let data = Data::ALL[j];
                let weights = Data::ALL[(i + j) % 6].make(n * k, 3);
                // Once for all rows of the format: encoding some formats takes longer than multiplying.
                let bytes = encoded(dtype, n, k, &weights);
                let weight = WeightMatrix::new(dtype, n, k, &bytes).unwrap();
                let x = data.make(m * k, 4);
                // Likewise the oracles, for the rows of every level.
                let integers = LazyCell::new(|| oracle::matmul::matmul_i8(&x, m, &weight).unwrap());
                let reals = LazyCell::new(|| of_numbers(&x, m, &weight));
                for row in rows().filter(|row| row.dtype == dtype) {
                    let found = run_row(&cpu(row.level, 1), row, &x, m, weight);
                    let case = format!("{} [{m}, {n}, {k}] {data:?}", row.name());
                    if is_integer(row) {
                        agrees_exactly(&case, &integers, &found);
                    } else {
                        agrees_closely(&case, row.layout, &reals, &found);
                    }
                }
            }
        }
    }
}

fn agrees_exactly(case: &str, expected: &[f32], found: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        // Scales moved by a power of two underflow elsewhere.
        let same = found == expected || (found - expected).abs() < 1e-36;
        assert!(same, "{case}, output {i}: {found:e}, expected {expected:e}");
    }
}

/// Outputs of a product of real numbers, each with its Σ |x·w|.
fn of_numbers(x: &[f32], m: usize, weight: &WeightMatrix<'_>) -> Vec<(f32, f64)> {
    let (n, k) = (weight.n(), weight.k());
    let mut w = vec![0.0; n * k];
    millrace_quant::decode_rows(weight.dtype(), weight.bytes(), n, k, 0..n, &mut w).unwrap();
    let size = |i: usize| {
        let (x, w) = (&x[i / n * k..][..k], &w[i % n * k..][..k]);
        x.iter()
            .zip(w)
            .map(|(x, w)| f64::from(x * w).abs())
            .sum::<f64>()
    };
    let out = oracle::matmul::matmul(x, m, weight, None);
    let each = out.into_iter().enumerate();
    each.map(|(i, out)| (out, size(i))).collect()
}

fn agrees_closely(case: &str, layout: PanelLayout, expected: &[(f32, f64)], found: &[f32]) {
    assert_eq!(found.len(), expected.len());
    let unit = if rounds_to_bf16(layout) {
        ROUNDING_BF16
    } else {
        ROUNDING_F32
    };
    for (i, (found, (expected, size))) in found.iter().zip(expected).enumerate() {
        // The instructions of the bf16 level treat subnormal numbers as zero.
        let allowed = unit * size + 1e-36;
        let error = (f64::from(*found) - f64::from(*expected)).abs();
        assert!(
            error <= allowed,
            "{case}, output {i}: {found:e}, expected {expected:e}"
        );
    }
}

/// Several weights of different formats share one input; each is as if alone, plus its bias.
#[test]
fn fused_products_are_those_of_single_ones() {
    for level in Level::supported() {
        let cpu = cpu(level, 2);
        let (m, k) = (3, 512);
        let x = numbers(m * k, 9);
        let formats = [
            DType::Q4K,
            DType::Q6K,
            DType::Q4_0,
            DType::BF16,
            DType::F32,
            DType::Q4nx,
        ];
        let shapes: Vec<_> = formats
            .iter()
            .cycle()
            .take(10)
            .zip((1..).map(|i| 32 * i))
            .collect();
        let bytes: Vec<_> = shapes
            .iter()
            .map(|(d, n)| encoded(**d, *n, k, &numbers(n * k, *n as u64)))
            .collect();
        let biases: Vec<_> = shapes.iter().map(|(_, n)| numbers(*n, 10)).collect();
        let mut outs: Vec<_> = shapes.iter().map(|(_, n)| vec![f32::NAN; m * n]).collect();
        let weights: Vec<_> = shapes
            .iter()
            .zip(&bytes)
            .map(|((d, n), b)| WeightMatrix::new(**d, *n, k, b).unwrap())
            .collect();
        let mut products: Vec<_> = weights
            .iter()
            .zip(&biases)
            .zip(&mut outs)
            .map(|((weight, bias), out)| Multiplication {
                weight: *weight,
                bias: Some(bias),
                out,
            })
            .collect();
        matmul(&cpu, &x, m, &mut Activations::default(), &mut products);
        for ((weight, bias), out) in weights.iter().zip(&biases).zip(&outs) {
            let mut alone = run(&cpu, &x, m, *weight);
            for row in alone.chunks_mut(weight.n()) {
                row.iter_mut()
                    .zip(bias)
                    .for_each(|(out, bias)| *out += bias);
            }
            assert_eq!(*out, alone, "{level} {}", weight.dtype());
        }
    }
}

#[test]
fn exact_precision_uses_f32_throughout() {
    let cpu = cpu(Level::detect(), 2);
    let (m, n, k) = (4, 32, 512);
    let x = numbers(m * k, 11);
    for dtype in DType::all() {
        let bytes = encoded(dtype, n, k, &numbers(n * k, 12));
        let weight = WeightMatrix::new(dtype, n, k, &bytes).unwrap();
        let mut out = vec![0.0; m * n];
        let mut products = [Multiplication {
            weight,
            bias: None,
            out: &mut out,
        }];
        matmul(
            &cpu,
            &x,
            m,
            &mut Activations::new(Precision::Exact),
            &mut products,
        );
        let error = nmse(&out, &oracle::matmul::matmul(&x, m, &weight, None));
        assert!(error < NMSE_F32, "{dtype}: {error:e}");
    }
}

/// Conversions at every level give the bits of the portable code.
#[test]
fn activations_are_the_same_at_every_level() {
    use super::panel::Input;
    for input in [Input::Bf16, Input::I8x32, Input::I8x256] {
        for data in Data::ALL {
            let x = data.make(768, 13);
            let mut expected = vec![0; super::activations::columns_bytes(input, x.len())];
            // SAFETY: the portable conversion needs no level; the row is long enough.
            unsafe { quantize::converter(input, Level::Scalar)(&x, &mut expected) };
            for level in Level::supported() {
                let mut scratch = super::scratch::AlignedBytes::default();
                let row = &mut scratch.at_least(expected.len())[..expected.len()];
                // SAFETY: the level is supported; the row starts on a cache line and is long enough.
                unsafe { quantize::converter(input, level)(&x, row) };
                assert_eq!(row, expected, "{input:?} {level} {data:?}");
            }
        }
    }
}

#[test]
fn empty_and_wrong_matrices() {
    let cpu = cpu(Level::detect(), 2);
    let empty = WeightMatrix::new(DType::Q4_0, 0, 64, &[]).unwrap();
    assert!(run(&cpu, &[0.0; 64], 1, empty).is_empty());
    assert!(run(&cpu, &[], 0, empty).is_empty());
    let no_columns = WeightMatrix::new(DType::F32, 3, 0, &[]).unwrap();
    assert_eq!(run(&cpu, &[], 2, no_columns), [0.0; 6]);
    let message = WeightMatrix::new(DType::Q4K, 2, 100, &[0; 144])
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("[2, 100]") && message.contains("q4_k"),
        "{message}"
    );
    let message = WeightMatrix::new(DType::Q4K, 2, 256, &[0; 144])
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("288") && message.contains("144"),
        "{message}"
    );
}

/// Activations around the size at which integer sums leave 16 bits, against the largest weights.
#[test]
fn sums_at_the_edge_of_sixteen_bits_are_exact() {
    for row in rows().filter(|row| is_integer(row) && row.dtype.block_elems() == 256) {
        let cpu = cpu(row.level, 1);
        let (n, k) = (32, 512);
        for (data, level) in [Data::AllMax, Data::Alternating]
            .into_iter()
            .zip([1.0, -1.0])
        {
            let bytes = encoded(row.dtype, n, k, &data.make(n * k, 0));
            let weight = WeightMatrix::new(row.dtype, n, k, &bytes).unwrap();
            for m in [1, 5, 8, 20] {
                // One element sets the scale, so the others become codes from 8 to 127.
                let code = |i: usize| ((i / k) % 16 + 1) as f32 / 16.0;
                let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { level };
                let element = |i: usize| sign(i) * if i % 256 == 7 { 1.0 } else { code(i) };
                let x: Vec<f32> = (0..m * k).map(element).collect();
                let found = run_row(&cpu, row, &x, m, weight);
                let case = format!("{} m = {m} {data:?}", row.name());
                let expected = oracle::matmul::matmul_i8(&x, m, &weight).unwrap();
                agrees_exactly(&case, &expected, &found);
            }
        }
    }
}
