//! Logits that numpy and other libraries read in place.

use millrace::Logits;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Logits of tokens, f32 `[n_tokens, vocab_size]`. `numpy.asarray` takes them without a copy, and keeps this object alive.
#[pyclass(frozen, name = "Logits", module = "millrace")]
#[derive(Debug)]
pub(crate) struct LogitRows(pub(crate) Logits);

/// A token's log probability, and those of the likeliest tokens in its place.
pub(crate) type TokenLogprob = (f64, Vec<(u32, f64)>);

/// The natural logarithm of a token's probability by a row of logits. Also the `top` likeliest tokens with theirs,
/// the likeliest first.
pub(crate) fn logprob(row: &[f32], token: u32, top: usize) -> TokenLogprob {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let most = f64::from(most);
    let sum: f64 = row.iter().map(|x| (f64::from(*x) - most).exp()).sum();
    let norm = most + sum.ln();
    let of = |token: u32| match row.get(token as usize) {
        Some(x) => f64::from(*x) - norm,
        None => f64::NEG_INFINITY,
    };
    let mut order: Vec<u32> = (0..row.len() as u32).collect();
    let top = top.min(order.len());
    let likelier = |a: &u32, b: &u32| {
        let (a_logit, b_logit) = (row[*a as usize], row[*b as usize]);
        b_logit.total_cmp(&a_logit).then(a.cmp(b))
    };
    if top > 0 && top < order.len() {
        order.select_nth_unstable_by(top - 1, likelier);
    }
    order.truncate(top);
    order.sort_unstable_by(likelier);
    let top = order.into_iter().map(|token| (token, of(token))).collect();
    (of(token), top)
}

#[pymethods]
impl LogitRows {
    /// `(n_tokens, vocab_size)`.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.0.rows().len(), self.0.vocab_size())
    }

    /// numpy's array protocol, version 3: address, shape and type of the numbers, read-only. The object is frozen, so
    /// the numbers keep their address as long as it lives.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let typestr = match cfg!(target_endian = "little") {
            true => "<f4",
            false => ">f4",
        };
        let is_read_only = true;
        let dict = PyDict::new(py);
        dict.set_item("shape", self.shape())?;
        dict.set_item("typestr", typestr)?;
        dict.set_item("data", (self.0.data().as_ptr().addr(), is_read_only))?;
        dict.set_item("version", 3)?;
        Ok(dict)
    }

    /// A read-only numpy array over the same memory.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let numpy = slf.py().import("numpy")?;
        numpy.call_method1("asarray", PyTuple::new(slf.py(), [slf])?)
    }

    /// All of it as a list of lists.
    fn tolist(&self) -> Vec<Vec<f32>> {
        self.0.rows().map(<[f32]>::to_vec).collect()
    }

    fn __len__(&self) -> usize {
        self.0.rows().len()
    }

    /// One token's row as a list.
    fn __getitem__(&self, index: isize) -> PyResult<Vec<f32>> {
        let n = self.0.rows().len();
        let at = match index {
            0.. => index.unsigned_abs(),
            _ => n.wrapping_sub(index.unsigned_abs()),
        };
        let row = self.0.rows().nth(at).filter(|_| at < n);
        row.map(<[f32]>::to_vec)
            .ok_or_else(|| PyIndexError::new_err(format!("row {index} of {n}")))
    }

    fn __repr__(&self) -> String {
        let (n, vocab_size) = self.shape();
        format!("<millrace.Logits [{n}, {vocab_size}] float32>")
    }
}
