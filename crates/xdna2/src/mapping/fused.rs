//! Shapes of kernels that compute several products of one input in a launch: q, k and v of a block, its gate and up
//! projections, the parts of an LM head. One configuration of the array serves all; separate launches would load the
//! cores anew.

use super::{DIM_MAX, NamedNumbers, Shape, ShapeError};

/// Most products of a launch.
pub(crate) const MAX_PARTS: usize = 8;

/// Rows of a GEMV's products.
pub(crate) const GEMV_PARTS: [&str; MAX_PARTS] = ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"];

/// Columns of a GEMM's products.
pub(crate) const GEMM_PARTS: [&str; MAX_PARTS] = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"];

/// Sizes written `A+B+C`, under the first of these names.
pub(super) fn parse(
    whole: &str,
    text: &str,
    names: [&'static str; MAX_PARTS],
    form: &str,
) -> Result<Vec<(&'static str, u64)>, ShapeError> {
    let expected =
        format!("the shape is {form}, whole numbers from 1 to {DIM_MAX}, up to {MAX_PARTS} parts");
    let sizes: Vec<&str> = text.split('+').collect();
    let mut pairs = Vec::with_capacity(sizes.len());
    for (i, size) in sizes.iter().enumerate() {
        match (names.get(i), size.trim().parse::<u64>()) {
            (Some(&name), Ok(size)) if (1..=DIM_MAX).contains(&size) => pairs.push((name, size)),
            _ => return Err(ShapeError::new(whole, &expected)),
        }
    }
    Ok(pairs)
}

/// The shape of products of one A, `MxKxN0+N1+...`.
pub(super) fn parse_gemm(text: &str) -> Result<Shape, ShapeError> {
    let form = "MxKxN0+N1+...";
    let parts: Vec<&str> = text.trim().split(['x', 'X', '×']).collect();
    let size = |text: &str| text.trim().parse().ok();
    let dims = match parts[..] {
        [m, k, n] => size(m).zip(size(k)).map(|(m, k)| (m, k, n)),
        _ => None,
    };
    match dims {
        Some((m, k, n)) if [m, k].iter().all(|d| (1..=DIM_MAX).contains(d)) => {
            let parts = parse(text, n, GEMM_PARTS, form)?;
            let dims = [("m", m), ("k", k)].into_iter().chain(parts);
            Ok(NamedNumbers::new(&dims.collect::<Vec<_>>()))
        }
        _ => {
            let expected = format!("the shape is {form}, whole numbers from 1 to {DIM_MAX}");
            Err(ShapeError::new(text, &expected))
        }
    }
}

/// The sizes of a shape's parts.
pub(super) fn sizes(shape: &Shape, names: [&'static str; MAX_PARTS]) -> Vec<u64> {
    let all = names.into_iter().map_while(|name| shape.get(name));
    all.take_while(|&size| size > 0).collect()
}

/// A shape of these parts after other dimensions.
pub(crate) fn shape(
    dims: &[(&'static str, u64)],
    names: [&'static str; MAX_PARTS],
    parts: &[u64],
) -> Shape {
    let parts = names.into_iter().zip(parts.iter().copied());
    NamedNumbers::new(&dims.iter().copied().chain(parts).collect::<Vec<_>>())
}

/// The greatest common divisor; that of 0 and a number is the number.
pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
