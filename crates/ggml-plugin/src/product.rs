//! ggml's products of matrices, their shapes checked.
//!
//! `MUL_MAT`: `out[b][m][n] = x[b][m][k] · W[b / ratio][n][k]ᵀ`, b over two outer dimensions. `MUL_MAT_ID`: `out[m][u][n] =
//! x[m][u % x_rows][k] · W[ids[m][u]][n][k]ᵀ`, u over the experts that a token uses.

use crate::device::{OpError, OpRefusal};
use crate::sys::tensor::{DataError, HostTensor};
use millrace_kernels::matmul::WeightMatrix;
use millrace_quant::DType;

/// Bytes of an f32 or i32.
const WORD: usize = 4;

/// A product.
pub(crate) enum HostProduct<'a> {
    Plain(Plain<'a>),
    Experts(Experts<'a>),
}

/// `MUL_MAT`.
pub(crate) struct Plain<'a> {
    pub(crate) weight: Weight<'a>,
    x: HostTensor<'a>,
    /// Rows of x in a matrix.
    pub(crate) m: usize,
    /// Matrices of the result, in two dimensions, and how many share a weight.
    batch: [usize; 2],
    ratio: [usize; 2],
}

/// `MUL_MAT_ID`.
pub(crate) struct Experts<'a> {
    pub(crate) weight: Weight<'a>,
    x: HostTensor<'a>,
    ids: HostTensor<'a>,
    /// Tokens, experts that each uses, and rows of x for each: as many, or one for all.
    pub(crate) n_tokens: usize,
    pub(crate) n_used: usize,
    x_rows: usize,
}

/// Weights: matrices `[n, k]` in a format of Millrace's.
pub(crate) struct Weight<'a> {
    tensor: HostTensor<'a>,
    pub(crate) dtype: DType,
    pub(crate) n: usize,
    pub(crate) k: usize,
    /// Bytes of a matrix.
    pub(crate) matrix_bytes: usize,
}

pub(crate) fn refuse<T>(why: &'static str) -> Result<T, OpRefusal> {
    Err(OpRefusal(why))
}

/// Whether the tensor is f32 with rows that follow one another in each matrix.
fn has_plain_rows(tensor: &HostTensor<'_>) -> bool {
    let Some(dims) = tensor.dims() else {
        return false;
    };
    let strides = tensor.strides();
    tensor.dtype() == Some(DType::F32)
        && strides[0] == WORD
        && (dims[1] <= 1 || strides[1] == dims[0].saturating_mul(WORD))
        && strides[2..]
            .iter()
            .all(|stride| stride.is_multiple_of(WORD))
}

/// Whether the tensor is f32 without gaps.
pub(crate) fn has_no_gaps(tensor: &HostTensor<'_>) -> bool {
    let Some(dims) = tensor.dims() else {
        return false;
    };
    let mut expected = WORD;
    let strides = tensor.strides();
    let is_next = |(dim, stride): (&usize, &usize)| {
        let is_next = *dim <= 1 || *stride == expected;
        expected = expected.saturating_mul(*dim);
        is_next
    };
    tensor.dtype() == Some(DType::F32) && dims.iter().zip(&strides).all(is_next)
}

impl<'a> Weight<'a> {
    fn of(tensor: HostTensor<'a>) -> Result<Weight<'a>, OpRefusal> {
        let Some(dtype) = tensor.dtype() else {
            return refuse("no kernel for the weights' format");
        };
        let Some([k, n, ..]) = tensor.dims() else {
            return refuse("a negative dimension");
        };
        let row_bytes = dtype.size_bytes(1, k);
        let (Some(row_bytes), Some(matrix_bytes)) = (row_bytes, dtype.size_bytes(n, k)) else {
            return refuse("a row of weights that is no whole number of blocks");
        };
        let strides = tensor.strides();
        if strides[0] != dtype.block_bytes() || (n > 1 && strides[1] != row_bytes) {
            return refuse("weights whose rows do not follow one another");
        }
        Ok(Weight {
            tensor,
            dtype,
            n,
            k,
            matrix_bytes,
        })
    }

    /// The matrix at an index of the two outer dimensions.
    fn matrix(&self, index: [usize; 2]) -> Result<WeightMatrix<'a>, OpError> {
        let data = |error| OpError::Data {
            what: "weights",
            error,
        };
        let strides = self.tensor.strides();
        let start = index[0] * strides[2] + index[1] * strides[3];
        let bytes = self.tensor.bytes().map_err(data)?;
        let bytes = bytes.get(start..start + self.matrix_bytes);
        let bytes = bytes.ok_or(data(DataError::None))?;
        Ok(WeightMatrix::new(self.dtype, self.n, self.k, bytes)?)
    }
}

impl<'a> HostProduct<'a> {
    /// The product that an op is.
    ///
    /// # Errors
    /// Why Millrace's kernels do not compute it.
    pub(crate) fn of(op: &HostTensor<'a>) -> Result<HostProduct<'a>, OpRefusal> {
        let (Some(weight), Some(x)) = (op.source(0), op.source(1)) else {
            return refuse("not a product of matrices");
        };
        match op.op() {
            "MUL_MAT" => Plain::of(op, weight, x).map(HostProduct::Plain),
            "MUL_MAT_ID" => Experts::of(op, weight, x).map(HostProduct::Experts),
            _ => refuse("not a product of matrices"),
        }
    }

    /// The matrices of a tensor, if products with it can be.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn matrices(tensor: &HostTensor<'a>) -> Result<Vec<WeightMatrix<'a>>, OpError> {
        let (Ok(weight), Some(dims)) = (Weight::of(*tensor), tensor.dims()) else {
            return Ok(Vec::new());
        };
        let outer = (0..dims[3]).flat_map(|b| (0..dims[2]).map(move |a| [a, b]));
        outer.map(|index| weight.matrix(index)).collect()
    }

    /// Its weights.
    pub(crate) fn weight(&self) -> &Weight<'a> {
        match self {
            HostProduct::Plain(product) => &product.weight,
            HostProduct::Experts(product) => &product.weight,
        }
    }

    /// Rows that are multiplied with the same matrix at a time; with experts, on average.
    pub(crate) fn rows(&self) -> usize {
        match self {
            HostProduct::Plain(product) => product.m,
            HostProduct::Experts(product) => {
                let n_experts = product.n_experts().max(1);
                product.n_tokens * product.n_used / n_experts
            }
        }
    }

    /// Multiplications and additions.
    pub(crate) fn flops(&self) -> u64 {
        let Weight { n, k, .. } = self.weight();
        let rows = match self {
            HostProduct::Plain(product) => product.m * product.batch[0] * product.batch[1],
            HostProduct::Experts(product) => product.n_tokens * product.n_used,
        };
        2 * rows as u64 * *n as u64 * *k as u64
    }
}

impl<'a> Plain<'a> {
    fn of(
        op: &HostTensor<'a>,
        weight: HostTensor<'a>,
        x: HostTensor<'a>,
    ) -> Result<Plain<'a>, OpRefusal> {
        // The second parameter is a hint that the weights are a Hadamard matrix, which the CPU's backend transforms with.
        if op.params().get(1).is_some_and(|hint| *hint != 0) {
            return refuse("a transform that ggml computes without multiplying");
        }
        let (Some(w), Some(x_dims), Some(out)) = (weight.dims(), x.dims(), op.dims()) else {
            return refuse("a negative dimension");
        };
        let weight = Weight::of(weight)?;
        if !has_plain_rows(&x) {
            return refuse("activations that are not f32, or whose rows do not follow one another");
        }
        if !has_no_gaps(op) {
            return refuse("a result that is not f32, or has gaps");
        }
        let divides = |i: usize| w[i] > 0 && x_dims[i].is_multiple_of(w[i]);
        let fits = x_dims[0] == weight.k
            && out == [weight.n, x_dims[1], x_dims[2], x_dims[3]]
            && divides(2)
            && divides(3);
        if !fits {
            return refuse("shapes that do not fit");
        }
        Ok(Plain {
            weight,
            x,
            m: x_dims[1],
            batch: [x_dims[2], x_dims[3]],
            ratio: [x_dims[2] / w[2], x_dims[3] / w[3]],
        })
    }

    /// Whether it is one matrix times another, and not several.
    pub(crate) fn is_single(&self) -> bool {
        self.batch == [1, 1]
    }

    /// Whether both multiply the same rows.
    pub(crate) fn has_input_of(&self, other: &Plain<'_>) -> bool {
        self.x.is(&other.x)
    }

    /// Each pair of matrices: weights `[n, k]`, rows `[m, k]`, in the order of the result.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn pairs(&self) -> Result<Vec<(WeightMatrix<'a>, &'a [f32])>, OpError> {
        let data = |error| OpError::Data {
            what: "activations",
            error,
        };
        let x = self.x.floats().map_err(data)?;
        let strides = self.x.strides().map(|stride| stride / WORD);
        let n = self.m * self.weight.k;
        let mut pairs = Vec::with_capacity(self.batch[0] * self.batch[1]);
        for b in 0..self.batch[1] {
            for a in 0..self.batch[0] {
                let start = a * strides[2] + b * strides[3];
                let x = x.get(start..start + n).ok_or(data(DataError::None))?;
                let weight = self.weight.matrix([a / self.ratio[0], b / self.ratio[1]])?;
                pairs.push((weight, x));
            }
        }
        Ok(pairs)
    }
}

impl<'a> Experts<'a> {
    fn of(
        op: &HostTensor<'a>,
        weight: HostTensor<'a>,
        x: HostTensor<'a>,
    ) -> Result<Experts<'a>, OpRefusal> {
        let Some(ids) = op.source(2).filter(HostTensor::is_i32) else {
            return refuse("experts that are not named by 32-bit integers");
        };
        let (Some(w), Some(x_dims), Some(of_ids), Some(out)) =
            (weight.dims(), x.dims(), ids.dims(), op.dims())
        else {
            return refuse("a negative dimension");
        };
        let weight = Weight::of(weight)?;
        if !has_no_gaps(&x) {
            return refuse("activations that are not f32, or have gaps");
        }
        if !has_no_gaps(op) {
            return refuse("a result that is not f32, or has gaps");
        }
        let strides = ids.strides();
        if strides[0] != WORD || !strides[1].is_multiple_of(WORD) {
            return refuse("experts that are not named by 32-bit integers");
        }
        let [n_used, n_tokens, ..] = of_ids;
        let x_rows = x_dims[1];
        let fits = x_dims == [weight.k, x_rows, n_tokens, 1]
            && x_rows > 0
            && n_used.is_multiple_of(x_rows)
            && of_ids[2..] == [1, 1]
            && w[3] == 1
            && out == [weight.n, n_used, n_tokens, 1];
        if !fits {
            return refuse("shapes that do not fit");
        }
        Ok(Experts {
            weight,
            x,
            ids,
            n_tokens,
            n_used,
            x_rows,
        })
    }

    pub(crate) fn n_experts(&self) -> usize {
        self.weight.tensor.dims().map_or(0, |dims| dims[2])
    }

    /// An expert's weights.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn expert(&self, index: usize) -> Result<WeightMatrix<'a>, OpError> {
        self.weight.matrix([index, 0])
    }

    /// For each expert, its rows of the result (`token · n_used + use`).
    ///
    /// # Errors
    /// No memory, or an expert that does not exist.
    pub(crate) fn rows_by_expert(&self) -> Result<Vec<Vec<usize>>, OpError> {
        let data = |error| OpError::Data {
            what: "numbers of experts",
            error,
        };
        let bytes = self.ids.bytes().map_err(data)?;
        let stride = self.ids.strides()[1];
        let mut rows = vec![Vec::new(); self.n_experts()];
        for row in 0..self.n_tokens * self.n_used {
            let at = row / self.n_used * stride + row % self.n_used * WORD;
            let word = bytes
                .get(at..at + WORD)
                .and_then(|word| word.try_into().ok());
            let expert = i32::from_ne_bytes(word.ok_or(data(DataError::None))?);
            let of_expert = usize::try_from(expert)
                .ok()
                .and_then(|index| rows.get_mut(index));
            let of_expert = of_expert.ok_or(OpError::Expert {
                row,
                expert,
                n_experts: self.n_experts(),
            })?;
            of_expert.push(row);
        }
        Ok(rows)
    }

    /// All rows of x.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn x(&self) -> Result<&'a [f32], OpError> {
        self.x.floats().map_err(|error| OpError::Data {
            what: "activations",
            error,
        })
    }

    /// Copies the rows of [`Experts::x`] that those rows of the result are computed from.
    pub(crate) fn gather(&self, x: &[f32], rows: &[usize], out: &mut Vec<f32>) {
        out.clear();
        for row in rows {
            let (token, slot) = (row / self.n_used, row % self.n_used);
            let start = (token * self.x_rows + slot % self.x_rows) * self.weight.k;
            out.extend_from_slice(&x[start..start + self.weight.k]);
        }
    }
}
