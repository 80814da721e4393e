//! Weights that no tensor holds in the form that the graph reads: computed once, when a checkpoint is loaded.

use std::borrow::Cow;

use crate::Error;
use crate::catalog::Catalog;
use millrace_format::{Checkpoint, TensorInfo, TensorType};
use millrace_graph::{Derivation, HeadRows, Weight, WeightSource};
use millrace_quant::{DType, decode_blocks, decode_rows, encode_matrix};

/// Rows of numbers that are in memory at a time where rows are computed one by one.
const ROWS_AT_ONCE: usize = 1024;

/// Bytes of an MXFP4 block's nibbles, for 32 elements.
const NIBBLE_BYTES: usize = 16;

/// The format of a derived weight of this shape, after a check of its tensors.
pub(crate) fn check(
    catalog: &Catalog<'_>,
    name: &str,
    derivation: &Derivation,
    shape: &[usize],
) -> Result<DType, Error> {
    match derivation {
        Derivation::Ones | Derivation::Sinusoids { .. } => return Ok(DType::F32),
        Derivation::PlusOne => return catalog.check(name, shape).map(|_| DType::F32),
        _ => {}
    }
    if let Derivation::Mxfp4Parts { n_rows, .. } = *derivation {
        let &[n_experts, _, k] = shape else {
            return Err(missing(catalog, name, shape));
        };
        let n_blocks = k / 32;
        let scales = [n_experts, n_rows, n_blocks];
        check_bytes(catalog, &format!("{name}_scales"), &scales)?;
        let blocks = [n_experts, n_rows, n_blocks, NIBBLE_BYTES];
        check_bytes(catalog, &format!("{name}_blocks"), &blocks)?;
        return Ok(DType::Mxfp4);
    }
    let dtype = catalog.check(name, &stored_shape(derivation, shape))?;
    Ok(match derivation {
        Derivation::EveryRow { .. } | Derivation::OfHeads(_) => dtype,
        _ if dtype.is_float() => dtype,
        _ => DType::BF16,
    })
}

/// The shape of the tensor that a weight of this shape is computed from.
pub(crate) fn stored_shape(derivation: &Derivation, shape: &[usize]) -> Vec<usize> {
    match (*derivation, shape) {
        (Derivation::EveryRow { n_rows, .. }, &[n_experts, _, k]) => vec![n_experts, n_rows, k],
        (Derivation::EveryRow { n_rows, .. }, &[n_experts, _]) => vec![n_experts, n_rows],
        (Derivation::Transposed { n_rows, .. }, &[n_experts, _, k]) => vec![n_experts, k, n_rows],
        (Derivation::TransposedHeads { n_rows, .. }, &[n_heads, n, _]) => vec![n_heads * n_rows, n],
        (Derivation::Transposed { n_rows, .. }, &[_, k]) => vec![k, n_rows],
        (Derivation::OfHeads(rows), &[_, k]) => vec![rows.n_heads * rows.n_rows, k],
        (Derivation::OfHeads(rows), &[_]) => vec![rows.n_heads * rows.n_rows],
        _ => shape.to_vec(),
    }
}

fn missing(catalog: &Catalog<'_>, name: &str, shape: &[usize]) -> Error {
    Error::MissingTensor {
        file: catalog.file().into(),
        tensor: name.into(),
        expected: shape.into(),
    }
}

fn check_bytes(catalog: &Catalog<'_>, name: &str, shape: &[usize]) -> Result<(), Error> {
    let info: &TensorInfo = catalog
        .info(name)
        .ok_or_else(|| missing(catalog, name, shape))?;
    if !info.has_shape(shape) {
        return Err(Error::TensorShape {
            file: catalog.file().into(),
            tensor: name.into(),
            expected: shape.into(),
            found: info.shape.clone(),
        });
    }
    match info.tensor_type {
        TensorType::Plain(plain) if plain.size_bytes() == 1 => Ok(()),
        other => Err(Error::TensorType {
            file: catalog.file().into(),
            tensor: name.into(),
            found: other.name().into(),
            expected: "U8, a byte an element".into(),
        }),
    }
}

/// The bytes of a derived weight; `None` for one that the checkpoint holds unchanged.
///
/// # Errors
/// A tensor that the graph's checks did not meet, or whose bytes are not of its format.
pub fn derive(checkpoint: &Checkpoint, weight: &Weight) -> Result<Option<Vec<u8>>, Error> {
    let WeightSource::Derived(derivation) = &weight.source else {
        return Ok(None);
    };
    let mut out = Vec::with_capacity(weight.size_bytes() as usize);
    for matrix in 0..weight.n_experts {
        out.extend(derive_matrix(checkpoint, weight, derivation, matrix)?);
    }
    Ok(Some(out))
}

/// The bytes of one matrix of a weight.
pub(crate) fn derive_matrix(
    checkpoint: &Checkpoint,
    weight: &Weight,
    derivation: &Derivation,
    matrix: usize,
) -> Result<Vec<u8>, Error> {
    let job = DeriveJob {
        checkpoint,
        weight,
        matrix,
    };
    match *derivation {
        Derivation::EveryRow {
            first,
            step,
            n_rows,
        } => job.every_row(first, step, n_rows),
        Derivation::Transposed {
            first,
            n_rows,
            step,
        } => job.turned(n_rows, &|i| first + i * step),
        Derivation::TransposedHeads { first, n_rows } => job.turned_head(first, n_rows),
        Derivation::OfHeads(rows) => job.of_heads(&rows),
        Derivation::Mxfp4Parts {
            first,
            step,
            n_rows,
        } => job.mxfp4(first, step, n_rows),
        Derivation::PlusOne => {
            let numbers = job.numbers()?;
            job.encode(&numbers.iter().map(|x| x + 1.0).collect::<Vec<_>>())
        }
        Derivation::UnitRows => job.unit_rows(),
        Derivation::Ones => job.encode(&vec![1.0; weight.n * weight.k]),
        Derivation::Sinusoids { first } => job.encode(&sinusoids(first, weight.n, weight.k)),
    }
}

/// `n` rows of `k` numbers. Numbers are computed in f32, as transformers does: sines of large angles depend on it.
fn sinusoids(first: usize, n: usize, k: usize) -> Vec<f32> {
    let half = k / 2;
    let step = (10_000f64.ln() / half.saturating_sub(1).max(1) as f64) as f32;
    let frequencies: Vec<f32> = (0..half).map(|i| (i as f32 * -step).exp()).collect();
    let mut rows = Vec::with_capacity(n * k);
    for position in first..first + n {
        let angles = frequencies
            .iter()
            .map(|frequency| position as f32 * frequency);
        rows.extend(angles.clone().map(f32::sin));
        rows.extend(angles.map(f32::cos));
        rows.extend(std::iter::repeat_n(0.0, k % 2));
    }
    rows
}

struct DeriveJob<'a> {
    checkpoint: &'a Checkpoint,
    weight: &'a Weight,
    /// Which of its matrices.
    matrix: usize,
}

impl DeriveJob<'_> {
    fn bytes(&self, name: &str) -> Result<(&TensorInfo, Cow<'_, [u8]>), Error> {
        let info = self.checkpoint.info(name);
        let info = info.ok_or_else(|| Error::MissingTensor {
            file: self.checkpoint.name().into(),
            tensor: name.into(),
            expected: vec![self.weight.n_experts, self.weight.n, self.weight.k],
        })?;
        let bytes = match self.weight.n_experts {
            1 => self.checkpoint.read(name)?,
            // One tensor is read for every matrix.
            _ => Cow::Borrowed(self.checkpoint.require(name)?.bytes),
        };
        Ok((info, bytes))
    }

    /// Rows keep their bytes. In a weight that is a vector for each expert, elements are its rows.
    fn every_row(&self, first: usize, step: usize, n_rows: usize) -> Result<Vec<u8>, Error> {
        let (_, bytes) = self.bytes(&self.weight.name)?;
        let Weight {
            n, k, n_experts, ..
        } = *self.weight;
        // A bias is `[n_experts, n]`: one matrix whose rows are experts.
        let is_bias = n_experts == 1 && k > 1;
        let (n_matrices, n) = if is_bias { (n, k) } else { (n_experts, n) };
        let row_bytes = bytes.len() / (n_matrices * n_rows).max(1);
        let matrices = match is_bias {
            true => &bytes[..],
            false => &bytes[self.matrix * n_rows * row_bytes..][..n_rows * row_bytes],
        };
        let mut out = Vec::with_capacity(self.weight.n * k * row_bytes);
        for matrix in matrices.chunks_exact((n_rows * row_bytes).max(1)) {
            for row in 0..n {
                out.extend_from_slice(&matrix[(first + row * step) * row_bytes..][..row_bytes]);
            }
        }
        Ok(out)
    }

    /// Rows keep their bytes. In a vector, elements are its rows.
    fn of_heads(&self, rows: &HeadRows) -> Result<Vec<u8>, Error> {
        let (_, bytes) = self.bytes(&self.weight.name)?;
        let row_bytes = bytes.len() / (rows.n_heads * rows.n_rows).max(1);
        let size_bytes = self.weight.size_bytes() as usize;
        let mut out = Vec::with_capacity(size_bytes);
        for row in 0..size_bytes / row_bytes.max(1) {
            out.extend_from_slice(&bytes[rows.source(row) * row_bytes..][..row_bytes]);
        }
        Ok(out)
    }

    /// The matrix as numbers, as it is stored.
    fn numbers(&self) -> Result<Vec<f32>, Error> {
        let (info, bytes) = self.bytes(&self.weight.name)?;
        let TensorType::Weights(dtype) = info.tensor_type else {
            return Err(self.unusable(info.tensor_type.name()));
        };
        let n_matrices = self.weight.n_experts.max(1);
        let n_bytes = bytes.len() / n_matrices;
        let bytes = &bytes[self.matrix * n_bytes..][..n_bytes];
        let mut numbers = vec![0.0; info.shape.iter().product::<usize>() / n_matrices];
        let decoded = decode_blocks(dtype, bytes, &mut numbers);
        decoded.map_err(|problem| self.unusable(&problem.to_string()))?;
        Ok(numbers)
    }

    /// Rows divided by their lengths, some at a time: a head has as many rows as the vocabulary.
    fn unit_rows(&self) -> Result<Vec<u8>, Error> {
        let (info, bytes) = self.bytes(&self.weight.name)?;
        let TensorType::Weights(stored) = info.tensor_type else {
            return Err(self.unusable(info.tensor_type.name()));
        };
        let Weight { n, k, dtype, .. } = *self.weight;
        let unusable = |problem: millrace_quant::Error| self.unusable(&problem.to_string());
        let mut out = Vec::with_capacity(self.weight.size_bytes() as usize);
        for first in (0..n).step_by(ROWS_AT_ONCE) {
            let rows = first..n.min(first + ROWS_AT_ONCE);
            let mut numbers = vec![0.0; rows.len() * k];
            decode_rows(stored, &bytes, n, k, rows.clone(), &mut numbers).map_err(unusable)?;
            for row in numbers.chunks_exact_mut(k) {
                let squares: f64 = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
                // The least length of PyTorch's `normalize`.
                let length = squares.sqrt().max(1e-12);
                row.iter_mut()
                    .for_each(|x| *x = (f64::from(*x) / length) as f32);
            }
            let mut encoded = vec![0; dtype.size_bytes(rows.len(), k).unwrap_or(0)];
            encode_matrix(dtype, &numbers, rows.len(), k, &mut encoded).map_err(unusable)?;
            out.extend(encoded);
        }
        Ok(out)
    }

    fn unusable(&self, found: &str) -> Error {
        Error::TensorType {
            file: self.checkpoint.name().into(),
            tensor: self.weight.name.clone(),
            found: found.into(),
            expected: "numbers of a weight format".into(),
        }
    }

    fn encode(&self, numbers: &[f32]) -> Result<Vec<u8>, Error> {
        let Weight { n, k, dtype, .. } = *self.weight;
        let mut out = vec![0; dtype.size_bytes(n, k).unwrap_or(0)];
        let encoded = encode_matrix(dtype, numbers, n, k, &mut out);
        encoded.map_err(|problem| self.unusable(&problem.to_string()))?;
        Ok(out)
    }

    /// Transposes a matrix stored `[k, n_stored]`; row `i` of the result is column `column(i)`.
    fn turned(&self, n_stored: usize, column: &dyn Fn(usize) -> usize) -> Result<Vec<u8>, Error> {
        let numbers = self.numbers()?;
        let mut out = Vec::with_capacity(self.weight.n * self.weight.k);
        for row in 0..self.weight.n {
            let column = column(row);
            out.extend(numbers.chunks_exact(n_stored).map(|stored| stored[column]));
        }
        self.encode(&out)
    }

    /// Transposes a part of a matrix stored as `n_rows` rows of `n` elements: `k` rows from `first` on become columns.
    fn turned_head(&self, first: usize, n_rows: usize) -> Result<Vec<u8>, Error> {
        let numbers = self.numbers()?;
        debug_assert_eq!(numbers.len(), n_rows * self.weight.n);
        let Weight { n, k, .. } = *self.weight;
        let rows = &numbers[first * n..][..k * n];
        let mut out = Vec::with_capacity(n * k);
        for row in 0..n {
            out.extend(rows.chunks_exact(n).map(|stored| stored[row]));
        }
        self.encode(&out)
    }

    /// transformers packs neighbours into a byte, the first low; GGUF packs element `i` low and `i + 16` high.
    fn mxfp4(&self, first: usize, step: usize, n_rows: usize) -> Result<Vec<u8>, Error> {
        let (_, blocks) = self.bytes(&format!("{}_blocks", self.weight.name))?;
        let (_, scales) = self.bytes(&format!("{}_scales", self.weight.name))?;
        let Weight { n, k, .. } = *self.weight;
        let n_blocks = k / 32;
        let mut out = Vec::with_capacity(n * n_blocks * (NIBBLE_BYTES + 1));
        for row in 0..n {
            let at = (self.matrix * n_rows + first + row * step) * n_blocks;
            for block in at..at + n_blocks {
                out.push(scales[block]);
                let packed = &blocks[block * NIBBLE_BYTES..][..NIBBLE_BYTES];
                let nibble = |i: usize| packed[i / 2] >> (4 * (i % 2)) & 15;
                out.extend((0..NIBBLE_BYTES).map(|i| nibble(i) | nibble(i + 16) << 4));
            }
        }
        Ok(out)
    }
}
