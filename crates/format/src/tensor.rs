//! A checkpoint's description of a tensor, and the tensor's bytes.

use std::fmt;
use std::path::Path;

use millrace_quant::DType;

use crate::Error;
use crate::opaque::OpaqueType;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorType {
    /// Weights that the kernels can multiply by.
    Weights(DType),
    /// Plain numbers that are not weights: position tables, token maps, flags.
    Plain(PlainType),
    /// Elements that this program does not decode.
    Opaque(OpaqueType),
}

/// Element types that checkpoints carry but that are not weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names are the documentation.
pub enum PlainType {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F64,
    Bool,
}

impl PlainType {
    /// Bytes of one element.
    pub fn size_bytes(self) -> usize {
        match self {
            PlainType::I8 | PlainType::U8 | PlainType::Bool => 1,
            PlainType::I16 | PlainType::U16 => 2,
            PlainType::I32 | PlainType::U32 => 4,
            PlainType::I64 | PlainType::U64 | PlainType::F64 => 8,
        }
    }

    /// Lower-case name: `i8`, `f64`, `bool`.
    pub fn name(self) -> &'static str {
        match self {
            PlainType::I8 => "i8",
            PlainType::U8 => "u8",
            PlainType::I16 => "i16",
            PlainType::U16 => "u16",
            PlainType::I32 => "i32",
            PlainType::U32 => "u32",
            PlainType::I64 => "i64",
            PlainType::U64 => "u64",
            PlainType::F64 => "f64",
            PlainType::Bool => "bool",
        }
    }
}

impl TensorType {
    /// Lower-case name of the type; `unknown` for a type that this program cannot name.
    pub fn name(self) -> &'static str {
        match self {
            TensorType::Weights(dtype) => dtype.name(),
            TensorType::Plain(plain) => plain.name(),
            TensorType::Opaque(opaque) => opaque.name(),
        }
    }

    /// Bytes of a tensor of this shape (slowest dimension first), or `None` if it does not divide
    /// into whole blocks, the size overflows, or the type's size is unknown.
    pub fn size_bytes(self, shape: &[usize]) -> Option<usize> {
        let (&k, rows) = shape.split_last().unwrap_or((&1, &[]));
        let n = rows.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim))?;
        match self {
            TensorType::Weights(dtype) => dtype.size_bytes(n, k),
            TensorType::Plain(plain) => n.checked_mul(k)?.checked_mul(plain.size_bytes()),
            TensorType::Opaque(opaque) => opaque.size_bytes(n.checked_mul(k)?),
        }
    }
}

impl From<DType> for TensorType {
    fn from(dtype: DType) -> TensorType {
        TensorType::Weights(dtype)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorType::Opaque(opaque) => opaque.fmt(f),
            known => f.write_str(known.name()),
        }
    }
}

/// Name, type, shape and place of a tensor.
///
/// Always holds: the shape divides into whole blocks of the type, `size_bytes` is the size that both give, and
/// `offset..offset + size_bytes` is inside the file. For a tensor that is decoded from several ([`crate::Checkpoint::is_packed`]),
/// the offset is that of its codes, and its bytes are in no file. For an [`OpaqueType`] of unknown size, `size_bytes` is the room that the file leaves for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Unique in the checkpoint.
    pub name: String,
    /// Type of the elements.
    pub tensor_type: TensorType,
    /// Slowest dimension first: a matrix is `[n, k]`.
    pub shape: Vec<usize>,
    /// True for a Q4NX tensor whose file records the number of blocks but not the matrix: `shape`
    /// is then `[blocks * 32, 256]`, right in the number of elements only. The configuration knows
    /// the matrix: ask with [`Tensor::as_matrix`].
    pub nominal_shape: bool,
    /// Index into [`crate::Checkpoint::files`].
    pub file: usize,
    /// First byte, from the start of the file.
    pub offset: u64,
    /// Length in the file.
    pub size_bytes: usize,
}

/// Name, type and shape of a tensor that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Unique in the file.
    pub name: String,
    /// Type of the elements.
    pub tensor_type: TensorType,
    /// Slowest dimension first: a matrix is `[n, k]`.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// A tensor of weights.
    pub fn new(name: impl Into<String>, dtype: DType, shape: &[usize]) -> TensorSpec {
        TensorSpec {
            name: name.into(),
            tensor_type: TensorType::Weights(dtype),
            shape: shape.to_vec(),
        }
    }

    /// Bytes to be written; `None` if the shape does not divide into whole blocks.
    pub fn size_bytes(&self) -> Option<usize> {
        self.tensor_type.size_bytes(&self.shape)
    }
}

impl From<&TensorInfo> for TensorSpec {
    fn from(info: &TensorInfo) -> TensorSpec {
        TensorSpec {
            name: info.name.clone(),
            tensor_type: info.tensor_type,
            shape: info.shape.clone(),
        }
    }
}

impl TensorInfo {
    /// Number of elements.
    pub fn n_elems(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the tensor can be read with this shape. It can if the shape is its own, or if its own is nominal
    /// and `expected` is a matrix of the same number of whole blocks. A number without dimensions counts as a vector of one.
    pub fn has_shape(&self, expected: &[usize]) -> bool {
        if self.nominal_shape {
            expected.len() == 2 && self.tensor_type.size_bytes(expected) == Some(self.size_bytes)
        } else {
            self.shape == expected || (self.shape.is_empty() && *expected == [1])
        }
    }
}

/// A tensor of an open checkpoint. The bytes are the file's own, not copied.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    /// Name, type, shape.
    pub info: &'a TensorInfo,
    /// Row-major elements or blocks, `info.size_bytes` long.
    pub bytes: &'a [u8],
    pub(crate) file: &'a Path,
}

impl<'a> Tensor<'a> {
    /// Rows: the product of all dimensions but the last; 1 for a vector.
    pub fn n(&self) -> usize {
        self.info
            .shape
            .split_last()
            .map_or(1, |(_, rows)| rows.iter().product())
    }

    /// The last dimension; 1 for a scalar.
    pub fn k(&self) -> usize {
        self.info.shape.last().copied().unwrap_or(1)
    }

    /// The weight format.
    ///
    /// # Errors
    /// [`Error::NotWeights`] if the tensor holds plain integers or doubles,
    /// [`Error::UnsupportedType`] if it holds a type that this program does not decode.
    pub fn dtype(&self) -> Result<DType, Error> {
        match self.info.tensor_type {
            TensorType::Opaque(opaque) => Err(Error::UnsupportedType {
                file: self.file.to_owned(),
                tensor: self.info.name.clone(),
                found: opaque.to_string(),
            }),
            TensorType::Weights(dtype) => Ok(dtype),
            TensorType::Plain(plain) => Err(Error::NotWeights {
                file: self.file.to_owned(),
                tensor: self.info.name.clone(),
                found: plain.name(),
            }),
        }
    }

    /// Checks the tensor against the shape that the configuration asks for.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`].
    pub fn check_shape(&self, expected: &[usize]) -> Result<(), Error> {
        if self.info.has_shape(expected) {
            return Ok(());
        }
        let found = if self.info.nominal_shape {
            format!(
                "{} Q4NX blocks of [32, 256]",
                self.n() / DType::Q4nx.block_rows()
            )
        } else {
            format!("{:?}", self.info.shape)
        };
        Err(Error::ShapeMismatch {
            file: self.file.to_owned(),
            tensor: self.info.name.clone(),
            expected: expected.to_vec(),
            found,
        })
    }

    /// The weight matrix `[n, k]`: its format and bytes. This also settles the shape of Q4NX
    /// tensors that came without one.
    ///
    /// # Errors
    /// [`Error::NotWeights`], [`Error::ShapeMismatch`].
    pub fn as_matrix(&self, n: usize, k: usize) -> Result<(DType, &'a [u8]), Error> {
        let dtype = self.dtype()?;
        self.check_shape(&[n, k])?;
        Ok((dtype, self.bytes))
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("info", self.info)
            .finish_non_exhaustive()
    }
}
