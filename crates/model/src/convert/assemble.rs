//! Writes tensors that are made of several weights, a matrix at a time.

use std::borrow::Cow;
use std::ops::Range;

use millrace_format::Checkpoint;
use millrace_graph::{Weight, WeightSource};
use millrace_quant::{DType, encode_rows};

use super::Error;
use super::encode::{EncodeJob, Out};
use super::importance::TensorImportance;
use super::merge::Merge;
use super::parts::{Assembly, PartPlace, TensorPart};
use crate::derive;

/// Some rows of a matrix, in the bytes of a larger one.
struct MatrixRows<'a> {
    tensor: &'a str,
    /// Factor on all of them.
    factor: f32,
    bytes: Cow<'a, [u8]>,
    /// Rows that the bytes have.
    n: usize,
    rows: Range<usize>,
}

impl<'a> MatrixRows<'a> {
    fn of(
        (checkpoint, merge): (&'a Checkpoint, &Merge<'_>),
        weight: &'a Weight,
        matrix: usize,
    ) -> Result<MatrixRows<'a>, Error> {
        let n = weight.n;
        let whole = |tensor: &'a str, bytes, n_all, first| MatrixRows {
            tensor,
            factor: merge.factor(checkpoint, tensor, matrix),
            bytes,
            n: n_all,
            rows: first..first + n,
        };
        let stored = |tensor: &'a str, n_all, first| {
            let bytes = match n_all == n || weight.n_experts == 1 {
                true => checkpoint.read(tensor)?,
                // One tensor is read for every matrix.
                false => Cow::Borrowed(checkpoint.require(tensor)?.bytes),
            };
            Ok(whole(tensor, bytes, n_all, first))
        };
        match &weight.source {
            WeightSource::Whole => stored(&weight.name, weight.n_experts * n, matrix * n),
            WeightSource::Rows { first, n_rows } => {
                let n_all = weight.n_experts * n_rows;
                stored(&weight.name, n_all, matrix * n_rows + first)
            }
            WeightSource::Experts(names) => stored(&names[matrix], n, 0),
            WeightSource::Derived(derivation) => {
                let bytes = derive::derive_matrix(checkpoint, weight, derivation, matrix)?;
                Ok(whole(&weight.name, Cow::Owned(bytes), n, 0))
            }
        }
    }

    fn job<'b>(
        &'b self,
        part: &TensorPart,
        to: DType,
        (importance, merge): (Option<&'b [f32]>, &'b Merge<'b>),
    ) -> EncodeJob<'b> {
        EncodeJob {
            tensor: self.tensor,
            bytes: &self.bytes,
            from: part.weight.dtype,
            to,
            n: self.n,
            rows: self.rows.clone(),
            k: part.weight.k,
            factor: self.factor,
            addends: merge.of(self.tensor),
            transform: part.transform,
            importance,
        }
    }
}

impl Assembly {
    /// Writes the tensor in format `to`. In memory are a few megabytes a thread where parts are stacked, else one matrix.
    pub(super) fn run(
        &self,
        checkpoint: &Checkpoint,
        (to, n_threads): (DType, usize),
        (importance, merge): (&TensorImportance<'_>, &Merge<'_>),
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        let stacked = self.is_stacked() && to.block_rows() == 1;
        for matrix in self.matrices.clone() {
            let columns = importance.columns(matrix);
            if !stacked {
                self.weave(checkpoint, matrix, (to, columns.as_deref(), merge), out)?;
                continue;
            }
            for part in &self.parts {
                let rows = MatrixRows::of((checkpoint, merge), &part.weight, matrix)?;
                rows.job(part, to, (columns.as_deref(), merge))
                    .run(n_threads, out)?;
            }
        }
        Ok(())
    }

    fn weave(
        &self,
        checkpoint: &Checkpoint,
        matrix: usize,
        (to, importance, merge): (DType, Option<&[f32]>, &Merge<'_>),
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        let [n, k] = self.shape;
        let mut woven = vec![0.0f32; n * k];
        let mut tensor = "";
        for part in &self.parts {
            let rows = MatrixRows::of((checkpoint, merge), &part.weight, matrix)?;
            tensor = &part.weight.name;
            let job = rows.job(part, to, (None, merge));
            let numbers = job.numbers(rows.rows.clone())?;
            put(&mut woven, k, (&numbers, part.weight.k), part.place);
        }
        let quant = |source| Error::Quant {
            tensor: tensor.to_owned(),
            source,
        };
        let shape = millrace_quant::Error::Shape {
            dtype: to,
            n_rows: n,
            k,
        };
        let size_bytes = to.size_bytes(n, k).ok_or_else(|| quant(shape))?;
        let mut encoded = vec![0; size_bytes];
        encode_rows(to, &woven, n, k, importance, &mut encoded).map_err(quant)?;
        out(&encoded, n * k)
    }
}

/// Puts rows of `k_part` elements into a matrix of `k` columns.
fn put(matrix: &mut [f32], k: usize, (rows, k_part): (&[f32], usize), place: PartPlace) {
    for (i, row) in rows.chunks_exact(k_part.max(1)).enumerate() {
        match place {
            PartPlace::Rows { first, step } => {
                matrix[(first + i * step) * k..][..k].copy_from_slice(row);
            }
            PartPlace::OfHeads(rows) => {
                matrix[rows.source(i) * k..][..k].copy_from_slice(row);
            }
            PartPlace::Columns {
                first_row,
                first_column,
                step,
            } => {
                let column = first_column + i * step;
                for (j, x) in row.iter().enumerate() {
                    matrix[(first_row + j) * k + column] = *x;
                }
            }
        }
    }
}
