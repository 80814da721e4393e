//! Kernels of other files that are known by their names.
//!
//! Names are those of mlir-aie's `aie_kernels` and examples. A kernel computes what its name says, in single
//! precision where its elements have a point; the order of sums of the hardware is not known.

mod activation;

use super::memory::Memories;
use super::value::{CoreValue, MemoryView, Number};

/// A kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// What it does, in words.
    pub(crate) summary: &'static str,
    /// What its name begins with, and what it may not have in it.
    names: &'static [&'static str],
    /// Whether it multiplies matrices.
    pub(crate) is_product: bool,
    pub(crate) run: fn(&[&CoreValue], &mut Memories<'_, '_, '_>) -> Result<(), String>,
}

const MATMUL_NPU2: &str =
    "C += A·B of matrices in blocks, r x s x t of 8x8x8 (i8), 4x4x8 (i16) or 4x8x8 (bf16)";
const MATMUL_NPU1: &str =
    "C += A·B of matrices in blocks, r x s x t of 4x8x8 (i8), 4x4x4 (i16) or 4x8x4 (bf16)";

static KERNELS: &[Kernel] = &[
    Kernel {
        summary: "a copy of the first memref to the second",
        names: &["passThrough", "passthrough", "copy"],
        is_product: false,
        run: copy,
    },
    Kernel {
        summary: "zeros in the memref",
        names: &["zero"],
        is_product: false,
        run: zero,
    },
    Kernel {
        summary: "C += A·B of matrices in row order",
        names: &["matmul_scalar", "mm_scalar"],
        is_product: true,
        run: matmul_rows,
    },
    Kernel {
        summary: MATMUL_NPU2,
        names: &["matmul", "mm"],
        is_product: true,
        run: |of, m| matmul_blocks(of, m, false),
    },
    Kernel {
        summary: MATMUL_NPU1,
        names: &["matmul", "mm"],
        is_product: true,
        run: |of, m| matmul_blocks(of, m, true),
    },
    Kernel {
        summary: "y += A·x of a matrix in row order",
        names: &["matvec_scalar"],
        is_product: true,
        run: matmul_rows,
    },
    Kernel {
        summary: "y += A·x of a matrix in pairs of columns, row by row",
        names: &["matvec_vectorized"],
        is_product: true,
        run: matvec_pairs,
    },
    Kernel {
        summary: "the sums of two memrefs' elements",
        names: &["add", "eltwise_add", "vector_vector_add", "vector_add"],
        is_product: false,
        run: |of, m| two(of, m, |a, b| a + b),
    },
    Kernel {
        summary: "the products of two memrefs' elements",
        names: &["mul", "eltwise_mul", "vector_vector_mul"],
        is_product: false,
        run: |of, m| two(of, m, |a, b| a * b),
    },
    Kernel {
        summary: "the first memref's elements times the one number",
        names: &["vector_scalar_mul", "scale"],
        is_product: false,
        run: scale,
    },
    Kernel {
        summary: "max(x, 0)",
        names: &["relu", "bf16_relu"],
        is_product: false,
        run: |of, m| one(of, m, |all| all.iter().map(|x| x.max(0.0)).collect()),
    },
    Kernel {
        summary: "e^x",
        names: &["exp"],
        is_product: false,
        run: |of, m| one(of, m, |all| all.iter().map(|x| x.exp()).collect()),
    },
    Kernel {
        summary: "softmax over all elements",
        names: &["softmax"],
        is_product: false,
        run: |of, m| one(of, m, activation::softmax),
    },
    Kernel {
        summary: "x / √(mean of squares + 1e-5), without weights",
        names: &["rms_norm", "rmsnorm"],
        is_product: false,
        run: |of, m| one(of, m, activation::rms_norm),
    },
    Kernel {
        summary: "(x − mean) / √(variance + 1e-5), without weights",
        names: &["layer_norm", "layernorm"],
        is_product: false,
        run: |of, m| one(of, m, activation::layer_norm),
    },
    Kernel {
        summary: "x / (1 + e^-x)",
        names: &["silu"],
        is_product: false,
        run: |of, m| one(of, m, activation::silu),
    },
    Kernel {
        summary: "x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))",
        names: &["gelu"],
        is_product: false,
        run: |of, m| one(of, m, activation::gelu),
    },
    Kernel {
        summary: "the sum of all elements",
        names: &["reduce_add"],
        is_product: false,
        run: |of, m| reduce(of, m, |a, b| a + b),
    },
    Kernel {
        summary: "the largest element",
        names: &["reduce_max"],
        is_product: false,
        run: |of, m| reduce(of, m, f64::max),
    },
    Kernel {
        summary: "the smallest element",
        names: &["reduce_min"],
        is_product: false,
        run: |of, m| reduce(of, m, f64::min),
    },
];

/// Ends of names that say how a kernel is written, and nothing about what it computes.
fn is_plain(rest: &str) -> bool {
    const WORDS: [&str; 24] = [
        "",
        "scalar",
        "vector",
        "vectorized",
        "aie",
        "aie2",
        "aie2p",
        "line",
        "tile",
        "i8",
        "i16",
        "i32",
        "ui8",
        "int8",
        "int16",
        "int32",
        "bf16",
        "bfloat16",
        "f32",
        "f16",
        "kernel",
        "Line",
        "Tile",
        "float",
    ];
    rest.split('_').all(|word| WORDS.contains(&word))
}

/// The kernel of a name, as the generation has it.
pub(crate) fn find(name: &str, is_npu1: bool) -> Option<&'static Kernel> {
    let other = if is_npu1 { MATMUL_NPU2 } else { MATMUL_NPU1 };
    KERNELS
        .iter()
        .filter(|kernel| kernel.summary != other)
        .find(|kernel| {
            let mut rests = kernel
                .names
                .iter()
                .filter_map(|known| name.strip_prefix(known));
            rests.any(is_plain)
        })
}

/// Views among the arguments.
fn views<'v>(arguments: &[&'v CoreValue]) -> Vec<&'v MemoryView> {
    arguments
        .iter()
        .filter_map(|value| value.view().ok())
        .collect()
}

/// The elements that a kernel works on: as many as its last number says, if it is fewer than there are.
fn count(arguments: &[&CoreValue], most: i64) -> i64 {
    let last = arguments.last().and_then(|value| value.integer().ok());
    last.filter(|n| (1..most).contains(n)).unwrap_or(most)
}

fn numbers(
    view: &MemoryView,
    n: i64,
    memories: &mut Memories<'_, '_, '_>,
) -> Result<Vec<f64>, String> {
    let values = memories.load_all(view)?;
    let number = |value: &CoreValue| match value {
        CoreValue::Integer(value) => Ok(*value as f64),
        other => other.float(),
    };
    values.iter().take(n.max(0) as usize).map(number).collect()
}

fn put(
    view: &MemoryView,
    values: &[f64],
    memories: &mut Memories<'_, '_, '_>,
) -> Result<(), String> {
    if values.len() as i64 > view.n_elements() {
        return Err(format!(
            "{} results for {} elements",
            values.len(),
            view.n_elements()
        ));
    }
    let value = |&value: &f64| match view.number {
        // Whole numbers of up to 32 bits and their products are exact in 64 bits with a point.
        number @ Number::Integer(_) => CoreValue::Integer(number.wrap(value as i64)),
        number => CoreValue::Float(number.round(value)),
    };
    let all: Vec<CoreValue> = values.iter().map(value).collect();
    match values.len() as i64 == view.n_elements() {
        true => memories.store_all(view, &all),
        false => all
            .iter()
            .enumerate()
            .try_for_each(|(i, v)| memories.store(view, view.nth(i as i64), v)),
    }
}

fn copy(arguments: &[&CoreValue], memories: &mut Memories<'_, '_, '_>) -> Result<(), String> {
    let [from, to] = views(arguments)[..] else {
        return Err("expected two memrefs".to_owned());
    };
    let n = count(arguments, from.n_elements().min(to.n_elements()));
    let values = memories.load_all(from)?;
    let mut values = values.iter().take(n.max(0) as usize).enumerate();
    values.try_for_each(|(i, value)| memories.store(to, to.nth(i as i64), value))
}

fn zero(arguments: &[&CoreValue], memories: &mut Memories<'_, '_, '_>) -> Result<(), String> {
    let [to] = views(arguments)[..] else {
        return Err("expected one memref".to_owned());
    };
    put(to, &vec![0.0; to.n_elements().max(0) as usize], memories)
}

fn two(
    arguments: &[&CoreValue],
    memories: &mut Memories<'_, '_, '_>,
    of: fn(f64, f64) -> f64,
) -> Result<(), String> {
    let [a, b, to] = views(arguments)[..] else {
        return Err("expected three memrefs".to_owned());
    };
    let n = count(arguments, to.n_elements());
    let (a, b) = (numbers(a, n, memories)?, numbers(b, n, memories)?);
    if a.len() != b.len() {
        return Err("memrefs of different sizes".to_owned());
    }
    let values: Vec<f64> = a.iter().zip(&b).map(|(&a, &b)| of(a, b)).collect();
    put(to, &values, memories)
}

fn one(
    arguments: &[&CoreValue],
    memories: &mut Memories<'_, '_, '_>,
    of: fn(&[f64]) -> Vec<f64>,
) -> Result<(), String> {
    let [from, to] = views(arguments)[..] else {
        return Err("expected two memrefs".to_owned());
    };
    let n = count(arguments, from.n_elements().min(to.n_elements()));
    let values = of(&numbers(from, n, memories)?);
    put(to, &values, memories)
}

fn scale(arguments: &[&CoreValue], memories: &mut Memories<'_, '_, '_>) -> Result<(), String> {
    let [from, to, factor] = views(arguments)[..] else {
        return Err("expected three memrefs".to_owned());
    };
    let (to, factor) = if to.n_elements() == 1 {
        (factor, to)
    } else {
        (to, factor)
    };
    let n = count(arguments, from.n_elements().min(to.n_elements()));
    let factor = numbers(factor, 1, memories)?
        .first()
        .copied()
        .unwrap_or(0.0);
    let values: Vec<f64> = numbers(from, n, memories)?
        .iter()
        .map(|value| value * factor)
        .collect();
    put(to, &values, memories)
}

fn reduce(
    arguments: &[&CoreValue],
    memories: &mut Memories<'_, '_, '_>,
    of: fn(f64, f64) -> f64,
) -> Result<(), String> {
    let [from, to] = views(arguments)[..] else {
        return Err("expected two memrefs".to_owned());
    };
    let values = numbers(from, count(arguments, from.n_elements()), memories)?;
    let sum = values.into_iter().reduce(of).ok_or("no elements")?;
    put(to, &[sum], memories)
}

/// m, k and n of three matrices. Without two dimensions each, they follow from the numbers of elements.
fn shape(a: &MemoryView, b: &MemoryView, c: &MemoryView) -> Result<[usize; 3], String> {
    let (m, k, n) = match (&a.sizes[..], &b.sizes[..], &c.sizes[..]) {
        (&[m, k], &[k2, n], &[m2, n2]) if (k, m, n) == (k2, m2, n2) => (m, k, n),
        _ => sizes(a.n_elements(), b.n_elements(), c.n_elements())?,
    };
    Ok([m as usize, k as usize, n as usize])
}

/// A·B added to C. `place` gives the position of an element of a matrix by which it is (0 A, 1 B, 2 C), its
/// row and its column.
fn matmul(
    arguments: &[&CoreValue],
    memories: &mut Memories<'_, '_, '_>,
    place: impl Fn(usize, [usize; 3], usize, usize) -> usize,
) -> Result<(), String> {
    let [a, b, c] = views(arguments)[..] else {
        return Err("expected three memrefs".to_owned());
    };
    let dims = shape(a, b, c)?;
    let [m, k, n] = dims;
    let all = |view: &MemoryView| view.n_elements();
    let (x, y) = (numbers(a, all(a), memories)?, numbers(b, all(b), memories)?);
    let mut sums = numbers(c, all(c), memories)?;
    for row in 0..m {
        for col in 0..n {
            let products = (0..k).map(|i| x[place(0, dims, row, i)] * y[place(1, dims, i, col)]);
            sums[place(2, dims, row, col)] += products.sum::<f64>();
        }
    }
    put(c, &sums, memories)
}

fn matmul_rows(
    arguments: &[&CoreValue],
    memories: &mut Memories<'_, '_, '_>,
) -> Result<(), String> {
    matmul(arguments, memories, |of, [_, k, n], row, col| {
        row * [k, n, n][of] + col
    })
}

/// A matrix of 16-bit elements that a DMA transposed in words of 32 bits: two elements of a row stay side by side.
fn matvec_pairs(
    arguments: &[&CoreValue],
    memories: &mut Memories<'_, '_, '_>,
) -> Result<(), String> {
    let [a, x, y] = views(arguments)[..] else {
        return Err("expected three memrefs".to_owned());
    };
    let [m, k, n] = shape(a, x, y)?;
    if n != 1 || !k.is_multiple_of(2) {
        return Err(format!(
            "{m} x {k} x {n} are no matrix of pairs and a vector"
        ));
    }
    matmul(arguments, memories, |of, [m, ..], row, col| match of {
        0 => col / 2 * 2 * m + row * 2 + col % 2,
        _ => row + col,
    })
}

/// Matrices as the vector kernels have them: blocks in row order, rows of a block behind one another.
fn matmul_blocks(
    arguments: &[&CoreValue],
    memories: &mut Memories<'_, '_, '_>,
    is_npu1: bool,
) -> Result<(), String> {
    let [a, b, c] = views(arguments)[..] else {
        return Err("expected three memrefs".to_owned());
    };
    let [r, s, t] = match (a.number, is_npu1) {
        (Number::Integer(8), false) => [8, 8, 8],
        (Number::Integer(8), true) => [4, 8, 8],
        (Number::Integer(16), false) => [4, 4, 8],
        (Number::Integer(16), true) => [4, 4, 4],
        (Number::Bf16, false) => [4, 8, 8],
        (Number::Bf16, true) => [4, 8, 4],
        (other, _) => return Err(format!("no blocks are known of {other:?}")),
    };
    let [m, k, n] = shape(a, b, c)?;
    if m % r != 0 || k % s != 0 || n % t != 0 {
        return Err(format!("{m} x {k} x {n} are no blocks of {r} x {s} x {t}"));
    }
    matmul(arguments, memories, |of, [_, k, n], row, col| {
        let ([rows, cols], width) = ([[r, s], [s, t], [r, t]][of], [k, n, n][of]);
        (row / rows * (width / cols) + col / cols) * rows * cols + row % rows * cols + col % cols
    })
}

/// m, k and n of m·k, k·n and m·n elements.
fn sizes(mk: i64, kn: i64, mn: i64) -> Result<(i64, i64, i64), String> {
    let root = |x: f64| x.sqrt().round() as i64;
    let (x, y, z) = (mk as f64, kn as f64, mn as f64);
    let (m, k, n) = (root(x * z / y), root(x * y / z), root(y * z / x));
    match (m * k, k * n, m * n) == (mk, kn, mn) {
        true => Ok((m, k, n)),
        false => Err(format!(
            "matrices of {mk}, {kn} and {mn} elements do not go together"
        )),
    }
}
