//! Rows of the embedding table.

use super::{ElementwiseKernels, SERIAL_ELEMS};
use crate::cpu::Cpu;
use crate::error::Error;
use crate::matmul::WeightMatrix;
use crate::pool::DisjointMut;
use std::sync::OnceLock;

/// `out[i] = table[tokens[i]] · scale`: decodes one row of any format a token. `out` is
/// `[tokens.len(), table.k()]` f32.
///
/// # Errors
/// [`Error::Token`] for a token beyond the table, before anything is written; [`Error::Quant`] if
/// the rows cannot be decoded.
///
/// # Panics
/// If `out` has another length.
pub fn embed(
    cpu: &Cpu,
    table: &WeightMatrix<'_>,
    tokens: &[u32],
    scale: f32,
    out: &mut [f32],
) -> Result<(), Error> {
    let (n_vocab, k) = (table.n(), table.k());
    assert_eq!(
        out.len(),
        tokens.len() * k,
        "a row of {k} for each of {} tokens",
        tokens.len()
    );
    if let Some(&token) = tokens.iter().find(|&&token| token as usize >= n_vocab) {
        return Err(Error::Token { token, n_vocab });
    }
    let rows = ElementwiseKernels::for_level(cpu.level());
    let serial = out.len() < SERIAL_ELEMS;
    let out = DisjointMut::new(out);
    let failed = OnceLock::new();
    let decode = |i: usize| {
        // SAFETY: rows do not overlap, and each is visited once.
        let out = unsafe { out.slice(i * k..(i + 1) * k) };
        let row = tokens[i] as usize;
        let (dtype, bytes) = (table.dtype(), table.bytes());
        match millrace_quant::decode_rows(dtype, bytes, n_vocab, k, row..row + 1, out) {
            Ok(()) if scale == 1.0 => {}
            Ok(()) => rows.scale(out, scale),
            // Rows have one format, so the first failure says as much as any.
            Err(error) => _ = failed.set(error),
        }
    };
    if serial {
        (0..tokens.len()).for_each(decode);
    } else {
        cpu.pool().run(tokens.len(), &decode);
    }
    failed
        .into_inner()
        .map_or(Ok(()), |error| Err(Error::Quant(error)))
}
