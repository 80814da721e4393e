//! Slots of products of integers: rows of bytes, padded with zeros; sums in rows of 32 bits.

use bytemuck::cast_slice_mut;
use millrace_kernels::Cpu;
use millrace_plan::quantise::{Rotation, quantise_row, rescale};
use millrace_plan::{OwnSlot, Scales, WeightLayout, WeightSource};
use millrace_quant as quant;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Numbers of arrangements: rows and weights are row-major with their k padded, so that programs of all lengths read the same.
pub(super) mod id {
    use millrace_plan::{ValueArrangement, WeightArrangement};

    /// Arrangement of activations.
    pub(crate) const ROWS: ValueArrangement = ValueArrangement(1);
    /// Arrangement of weights.
    pub(crate) const WEIGHTS: WeightArrangement = WeightArrangement(2);
    /// Arrangement of sums.
    pub(crate) const RESULTS: ValueArrangement = ValueArrangement(3);
}

/// Largest m, n or k.
pub(super) const MOST: u64 = 1 << 24;

/// A product: `[m, k] · [n, k]ᵀ`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Dims {
    pub(super) m: u64,
    pub(super) n: u64,
    pub(super) k: u64,
}

impl Dims {
    /// Dimensions of the slot's program.
    pub(super) fn of<I>(at: &OwnSlot<'_, I>) -> Result<Dims, String> {
        let launch = at.program.launches.first();
        let shape = launch.map(|launch| &launch.shape);
        let get = |name| shape.and_then(|shape| shape.get(name));
        match (get("n0").or(get("m0")), get("k")) {
            (Some(n), Some(k)) => Ok(Dims {
                m: get("m").unwrap_or(1),
                n,
                k,
            }),
            _ => Err(format!("`{}` is no product", at.program.name())),
        }
    }

    /// Dimensions as the array multiplies them. k is in whole vectors of 64 bytes. Cores can share n for every m. m is
    /// in whole blocks of the matrix unit, or 1. n and k do not depend on m.
    pub(super) fn padded(self) -> Dims {
        let n_unit = if self.n < 2048 { 64 } else { 256 };
        Dims {
            m: match self.m {
                1 => 1,
                m => m.next_multiple_of(8),
            },
            n: self.n.next_multiple_of(n_unit),
            k: self.k.next_multiple_of(64),
        }
    }
}

/// How k is rotated.
pub(super) fn rotation(k: u64) -> Rotation {
    Rotation::of(u32::try_from(k).unwrap_or(0))
}

/// Rotates and quantises rows `[n_rows, k]` into rows of `out`, with zeros beyond them; `row` fills the row of that
/// number. Returns a scale for each row.
fn quantise(
    cpu: &Cpu,
    [n_rows, k, k_padded]: [u64; 3],
    row: &(dyn Fn(usize, &mut [f32]) + Sync),
    out: &mut [u8],
) -> Scales {
    let (n_rows, rotation) = (n_rows as usize, rotation(k));
    let scales: Vec<AtomicU32> = (0..n_rows).map(|_| AtomicU32::new(0)).collect();
    cpu.pool().run_pieces(out, k_padded as usize, &|at, piece| {
        let Some(scale) = scales.get(at) else {
            piece.fill(0);
            return;
        };
        let mut numbers = vec![0.0; k as usize];
        row(at, &mut numbers);
        rotation.apply(&mut numbers);
        let (bytes, padding) = piece.split_at_mut(numbers.len());
        let found = quantise_row(&numbers, cast_slice_mut(bytes));
        scale.store(found.to_bits(), Ordering::Relaxed);
        padding.fill(0);
    });
    let bits = scales.iter().map(|scale| scale.load(Ordering::Relaxed));
    bits.map(f32::from_bits).collect()
}

fn sized(what: &str, found: usize, expected: u64) -> Result<(), String> {
    match found as u64 == expected {
        true => Ok(()),
        false => Err(format!("{what} of {found}, expected {expected}")),
    }
}

/// Writes a weight.
pub(super) fn fill(
    cpu: &Cpu,
    dims: Dims,
    weight: &WeightSource<'_>,
    out: &mut [u8],
) -> Result<Scales, String> {
    let padded = dims.padded();
    sized("rows of a weight", weight.n, dims.n)?;
    sized("elements a row of a weight", weight.k, dims.k)?;
    sized("bytes for a weight", out.len(), padded.n * padded.k)?;
    let order = WeightLayout::Own {
        id: id::WEIGHTS,
        half_split: weight.half_split,
    };
    let failed = Mutex::new(None);
    let decode = |row: usize, out: &mut [f32]| {
        let from = order.source_row(row).unwrap_or(row);
        let (n, k) = (weight.n, weight.k);
        if let Err(error) =
            quant::decode_rows(weight.dtype, weight.bytes, n, k, from..from + 1, out)
        {
            *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    };
    let scales = quantise(cpu, [dims.n, dims.k, padded.k], &decode, out);
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error.to_string()),
        None => Ok(scales),
    }
}

/// Writes activations.
pub(super) fn pack(cpu: &Cpu, dims: Dims, rows: &[f32], out: &mut [u8]) -> Result<Scales, String> {
    let padded = dims.padded();
    sized("activations", rows.len(), dims.m * dims.k)?;
    sized("bytes for activations", out.len(), padded.m * padded.k)?;
    let k = dims.k as usize;
    let row = |at: usize, out: &mut [f32]| out.copy_from_slice(&rows[at * k..][..k]);
    Ok(quantise(cpu, [dims.m, dims.k, padded.k], &row, out))
}

/// Reads sums and rescales them.
pub(super) fn unpack(
    cpu: &Cpu,
    dims: Dims,
    bytes: &[u8],
    scales: &[Scales],
    rows: &mut [f32],
) -> Result<(), String> {
    let padded = dims.padded();
    let [a, w, ..] = scales else {
        return Err("no scales for a result".to_owned());
    };
    sized("scales of rows", a.len(), dims.m)?;
    sized("scales of weights", w.len(), dims.n)?;
    sized("results", rows.len(), dims.m * dims.n)?;
    sized("bytes of sums", bytes.len(), 4 * padded.m * padded.n)?;
    let (n, row_bytes) = (dims.n as usize, 4 * padded.n as usize);
    cpu.pool().run_pieces(rows, n, &|at, out| {
        let sums = bytes[at * row_bytes..][..4 * n].as_chunks::<4>().0.iter();
        let sums: Vec<i32> = sums.map(|bytes| i32::from_le_bytes(*bytes)).collect();
        rescale(&sums, &a[at..=at], w, out);
    });
    Ok(())
}

/// The numbers of rows or weights, as the array multiplies them.
pub(super) fn operand(
    dims: Dims,
    bytes: &[u8],
    scales: &Scales,
    rows: &mut [f32],
) -> Result<(), String> {
    let padded = dims.padded();
    let k = dims.k as usize;
    sized("numbers", rows.len(), scales.len() as u64 * dims.k)?;
    let least = scales.len() as u64 * padded.k;
    if (bytes.len() as u64) < least {
        return Err(format!(
            "{} bytes of an operand, expected {least}",
            bytes.len()
        ));
    }
    let each = bytes.chunks_exact(padded.k as usize);
    for ((row, bytes), scale) in rows.chunks_exact_mut(k).zip(each).zip(scales.iter()) {
        for (x, byte) in row.iter_mut().zip(bytes) {
            *x = f32::from(byte.cast_signed()) * scale;
        }
    }
    Ok(())
}
