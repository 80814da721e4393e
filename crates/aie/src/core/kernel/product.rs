//! Products of matrices and of a matrix and a vector.

use super::{numbers, put, views};
use crate::core::memory::Memories;
use crate::core::value::{CoreValue, MemoryView, Number};

/// m, k and n of three matrices. Without two dimensions each, they follow from the numbers of elements.
pub(super) fn shape(a: &MemoryView, b: &MemoryView, c: &MemoryView) -> Result<[usize; 3], String> {
    let (m, k, n) = match (&a.sizes[..], &b.sizes[..], &c.sizes[..]) {
        (&[m, k], &[k2, n], &[m2, n2]) if (k, m, n) == (k2, m2, n2) => (m, k, n),
        _ => sizes(a.n_elements(), b.n_elements(), c.n_elements())?,
    };
    Ok([m as usize, k as usize, n as usize])
}

/// A·B added to C. `place` returns the position of an element from its matrix (0 A, 1 B, 2 C), its row and its column.
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

pub(super) fn matmul_rows(
    arguments: &[&CoreValue],
    memories: &mut Memories<'_, '_, '_>,
) -> Result<(), String> {
    matmul(arguments, memories, |of, [_, k, n], row, col| {
        row * [k, n, n][of] + col
    })
}

/// A matrix of 16-bit elements that a DMA transposed in words of 32 bits: two elements of a row stay side by side.
pub(super) fn matvec_pairs(
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

/// Rows, inner size and columns of the blocks of three matrices.
pub(super) fn blocks(
    a: &MemoryView,
    b: &MemoryView,
    c: &MemoryView,
    is_npu1: bool,
) -> Result<[usize; 3], String> {
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
    Ok([r, s, t])
}

/// Matrices in the layout of the vector kernels: blocks in row order, rows of a block one after another.
pub(super) fn matmul_blocks(
    arguments: &[&CoreValue],
    memories: &mut Memories<'_, '_, '_>,
    is_npu1: bool,
) -> Result<(), String> {
    let [a, b, c] = views(arguments)[..] else {
        return Err("expected three memrefs".to_owned());
    };
    let [r, s, t] = blocks(a, b, c, is_npu1)?;
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
