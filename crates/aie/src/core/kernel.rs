//! Kernels of other files that are known by their names.
//!
//! Names are those of mlir-aie's `aie_kernels` and examples. A kernel computes the function of its name, in single
//! precision for floating-point elements. The order of the hardware's sums is not known.

mod activation;
mod product;

use super::memory::Memories;
use super::value::{CoreValue, MemoryView, Number};
use product::{blocks, matmul_blocks, matmul_rows, matvec_pairs, shape};

/// A kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Summary of its function.
    pub(crate) summary: &'static str,
    /// Prefixes of its name.
    names: &'static [&'static str],
    /// Memrefs that it takes.
    takes: Takes,
    pub(crate) run: fn(&[&CoreValue], &mut Memories<'_, '_, '_>) -> Result<(), String>,
}

/// Operands of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// So many memrefs.
    Memrefs(usize),
    /// Three matrices, the third their product.
    Product,
}

const MATMUL_NPU2: &str =
    "C += A·B of matrices in blocks, r x s x t of 8x8x8 (i8), 4x4x8 (i16) or 4x8x8 (bf16)";
const MATMUL_NPU1: &str =
    "C += A·B of matrices in blocks, r x s x t of 4x8x8 (i8), 4x4x4 (i16) or 4x8x4 (bf16)";

static KERNELS: &[Kernel] = &[
    Kernel {
        summary: "a copy of the first memref to the second",
        names: &["passThrough", "passthrough", "copy"],
        takes: Takes::Memrefs(2),
        run: copy,
    },
    Kernel {
        summary: "zeros in the memref",
        names: &["zero"],
        takes: Takes::Memrefs(1),
        run: zero,
    },
    Kernel {
        summary: "C += A·B of matrices in row order",
        names: &["matmul_scalar", "mm_scalar"],
        takes: Takes::Product,
        run: matmul_rows,
    },
    Kernel {
        summary: MATMUL_NPU2,
        names: &["matmul", "mm"],
        takes: Takes::Product,
        run: |of, m| matmul_blocks(of, m, false),
    },
    Kernel {
        summary: MATMUL_NPU1,
        names: &["matmul", "mm"],
        takes: Takes::Product,
        run: |of, m| matmul_blocks(of, m, true),
    },
    Kernel {
        summary: "y += A·x of a matrix in row order",
        names: &["matvec_scalar"],
        takes: Takes::Product,
        run: matmul_rows,
    },
    Kernel {
        summary: "y += A·x of a matrix in pairs of columns, row by row",
        names: &["matvec_vectorized"],
        takes: Takes::Product,
        run: matvec_pairs,
    },
    Kernel {
        summary: "the sums of two memrefs' elements",
        names: &["add", "eltwise_add", "vector_vector_add", "vector_add"],
        takes: Takes::Memrefs(3),
        run: |of, m| two(of, m, |a, b| a + b),
    },
    Kernel {
        summary: "the products of two memrefs' elements",
        names: &["mul", "eltwise_mul", "vector_vector_mul"],
        takes: Takes::Memrefs(3),
        run: |of, m| two(of, m, |a, b| a * b),
    },
    Kernel {
        summary: "the first memref's elements times the one number",
        names: &["vector_scalar_mul", "scale"],
        takes: Takes::Memrefs(3),
        run: scale,
    },
    Kernel {
        summary: "max(x, 0)",
        names: &["relu", "bf16_relu"],
        takes: Takes::Memrefs(2),
        run: |of, m| one(of, m, |all| all.iter().map(|x| x.max(0.0)).collect()),
    },
    Kernel {
        summary: "e^x",
        names: &["exp"],
        takes: Takes::Memrefs(2),
        run: |of, m| one(of, m, |all| all.iter().map(|x| x.exp()).collect()),
    },
    Kernel {
        summary: "softmax over all elements",
        names: &["softmax"],
        takes: Takes::Memrefs(2),
        run: |of, m| one(of, m, activation::softmax),
    },
    Kernel {
        summary: "x / √(mean of squares + 1e-5), without weights",
        names: &["rms_norm", "rmsnorm"],
        takes: Takes::Memrefs(2),
        run: |of, m| one(of, m, activation::rms_norm),
    },
    Kernel {
        summary: "(x − mean) / √(variance + 1e-5), without weights",
        names: &["layer_norm", "layernorm"],
        takes: Takes::Memrefs(2),
        run: |of, m| one(of, m, activation::layer_norm),
    },
    Kernel {
        summary: "x / (1 + e^-x)",
        names: &["silu"],
        takes: Takes::Memrefs(2),
        run: |of, m| one(of, m, activation::silu),
    },
    Kernel {
        summary: "x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))",
        names: &["gelu"],
        takes: Takes::Memrefs(2),
        run: |of, m| one(of, m, activation::gelu),
    },
    Kernel {
        summary: "the sum of all elements",
        names: &["reduce_add"],
        takes: Takes::Memrefs(2),
        run: |of, m| reduce(of, m, |a, b| a + b),
    },
    Kernel {
        summary: "the largest element",
        names: &["reduce_max"],
        takes: Takes::Memrefs(2),
        run: |of, m| reduce(of, m, f64::max),
    },
    Kernel {
        summary: "the smallest element",
        names: &["reduce_min"],
        takes: Takes::Memrefs(2),
        run: |of, m| reduce(of, m, f64::min),
    },
];

/// Whether the end of a name says only how a kernel is written, and nothing about its function.
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

/// The kernel of a name, in the generation's variant. Also `None` if it takes other memrefs than those given.
pub(crate) fn find(
    name: &str,
    given: &[Option<MemoryView>],
    is_npu1: bool,
) -> Option<&'static Kernel> {
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
        .filter(|kernel| kernel.fits(given, is_npu1))
}

impl Kernel {
    /// Whether it multiplies matrices.
    pub(crate) fn is_product(&self) -> bool {
        self.takes == Takes::Product
    }

    /// Whether memrefs fit its operands; a memref without a fixed size is accepted.
    fn fits(&self, given: &[Option<MemoryView>], is_npu1: bool) -> bool {
        let in_blocks = [MATMUL_NPU1, MATMUL_NPU2].contains(&self.summary);
        match (self.takes, given) {
            (Takes::Memrefs(n), given) => given.len() == n,
            (Takes::Product, [Some(a), Some(b), Some(c)]) => match in_blocks {
                true => blocks(a, b, c, is_npu1).is_ok(),
                false => shape(a, b, c).is_ok(),
            },
            // Sizes that are not fixed are known when it runs.
            (Takes::Product, given) => given.len() == 3,
        }
    }
}

/// Views among the arguments.
fn views<'v>(arguments: &[&'v CoreValue]) -> Vec<&'v MemoryView> {
    arguments
        .iter()
        .filter_map(|value| value.view().ok())
        .collect()
}

/// The number of elements that a kernel works on: its last number, if that is fewer than there are.
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
