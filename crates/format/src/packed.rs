//! Folders whose matrices are packed in a quantiser's own layout: FP8, compressed-tensors, ModelOpt, GPTQ, AWQ, BitNet.
//!
//! Such a folder has several tensors for a matrix, and `quantization_config` in `config.json` says how they go together.
//! Here they become one tensor under the matrix's own name, in a format that kernels multiply with, so that nobody else
//! has to know. Integers keep their codes in blocks of 32 ([`integers`]), as 4-bit floats do in theirs ([`float4`]), FP8
//! becomes F16 or BF16 ([`float8`]); the files document which conversions are exact. A tensor is decoded when its bytes
//! are first asked for. NVFP4 and ternary matrices have one factor in a separate tensor, `<module>.scale`.
//!
//! The tensors themselves show which matrices a folder leaves unpacked (`ignore`, `modules_to_not_convert`, `dynamic`),
//! so the lists are not read.

mod codes;
mod float4;
mod float8;
mod integers;
mod layouts;
mod packing;
mod stored;
mod ternary;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::thread;

use millrace_quant::DType;

use crate::checkpoint::FileBytes;
use crate::{Error, TensorInfo, TensorType};
use float4::PackedPairs;
use float8::PackedFloats;
use integers::PackedIntegers;
pub use packing::{Packing, UnsupportedPacking};
pub(crate) use stored::StoredTensors;
use ternary::PackedTernary;

/// Rows that a thread decodes are a multiple of this.
const ROWS: usize = 64;

/// Factors of activations and of caches, which this program does not use: it keeps both in higher precision.
const UNREAD: [&str; 12] = [
    ".input_scale",
    ".input_scale_ub",
    ".input_zero_point",
    ".input_global_scale",
    ".output_scale",
    ".output_zero_point",
    ".activation_scale",
    ".activation_scale_inv",
    ".q_scale",
    ".k_scale",
    ".v_scale",
    ".weight_shape",
];

/// A tensor that is made of others.
pub(crate) struct PackedTensor {
    source: PackedSource,
    decoded: OnceLock<Box<[u8]>>,
}

enum PackedSource {
    Integers(PackedIntegers),
    Floats(PackedFloats),
    Pairs(PackedPairs),
    Ternary(PackedTernary),
    /// A number of type F32.
    Factor(f32),
}

impl PackedTensor {
    fn new(source: PackedSource) -> PackedTensor {
        PackedTensor {
            source,
            decoded: OnceLock::new(),
        }
    }

    /// The tensor's bytes, kept from the first call on.
    pub(crate) fn bytes(&self, files: &[FileBytes]) -> &[u8] {
        self.decoded.get_or_init(|| self.decode(files))
    }

    /// The tensor's bytes, if they are kept.
    pub(crate) fn decoded(&self) -> Option<&[u8]> {
        self.decoded.get().map(|bytes| &bytes[..])
    }

    /// The tensor's bytes, computed by all processors.
    pub(crate) fn decode(&self, files: &[FileBytes]) -> Box<[u8]> {
        match &self.source {
            PackedSource::Integers(integers) => {
                let groups = integers.groups(files);
                let codes = integers.codes(files);
                by_rows(integers.n(), integers.row_bytes(), &|first, out| {
                    integers.decode(codes, &groups, first, out);
                })
            }
            PackedSource::Floats(floats) => {
                let scales = floats.scales(files);
                let codes = floats.codes(files);
                by_rows(floats.n(), floats.row_bytes(), &|first, out| {
                    floats.decode(codes, &scales, first, out);
                })
            }
            PackedSource::Pairs(pairs) => {
                let (codes, scales) = (pairs.codes(files), pairs.scales(files));
                by_rows(pairs.n(), pairs.row_bytes(), &|first, out| {
                    pairs.decode(codes, scales, first, out);
                })
            }
            PackedSource::Ternary(ternary) => {
                let codes = ternary.codes(files);
                by_rows(ternary.n(), ternary.row_bytes(), &|first, out| {
                    ternary.decode(codes, first, out);
                })
            }
            PackedSource::Factor(factor) => Box::new(factor.to_le_bytes()),
        }
    }

    /// Slowest dimension first.
    fn shape(&self) -> Vec<usize> {
        match &self.source {
            PackedSource::Integers(integers) => integers.shape(),
            PackedSource::Floats(floats) => floats.shape().to_vec(),
            PackedSource::Pairs(pairs) => pairs.shape(),
            PackedSource::Ternary(ternary) => ternary.shape(),
            PackedSource::Factor(_) => vec![1],
        }
    }

    /// Description as a tensor of this name; `codes` are its codes in the file.
    fn info(&self, name: String, codes: &TensorInfo) -> TensorInfo {
        let shape = self.shape();
        let tensor_type = TensorType::Weights(self.dtype());
        TensorInfo {
            name,
            tensor_type,
            // Layouts choose formats by the rows' length.
            size_bytes: tensor_type.size_bytes(&shape).unwrap_or_default(),
            shape,
            ..codes.clone()
        }
    }

    fn dtype(&self) -> DType {
        match &self.source {
            PackedSource::Integers(integers) => integers.dtype(),
            PackedSource::Floats(floats) => floats.dtype(),
            PackedSource::Pairs(pairs) => pairs.dtype(),
            PackedSource::Ternary(ternary) => ternary.dtype(),
            PackedSource::Factor(_) => DType::F32,
        }
    }

    /// The number, if it is a factor of another tensor.
    pub(crate) fn factor(&self) -> Option<f32> {
        match self.source {
            PackedSource::Factor(factor) => Some(factor),
            _ => None,
        }
    }

    /// Sets a format, which must be [`wider`] than its own.
    fn set_dtype(&mut self, dtype: DType) {
        match &mut self.source {
            PackedSource::Integers(integers) => integers.set_dtype(dtype),
            PackedSource::Floats(floats) => floats.set_dtype(dtype),
            PackedSource::Pairs(pairs) => pairs.set_dtype(dtype),
            PackedSource::Ternary(ternary) => ternary.set_dtype(dtype),
            PackedSource::Factor(_) => {}
        }
    }
}

/// `n` rows of `row_bytes` each; `decode` fills a run of them, and gets the number of the first.
fn by_rows(n: usize, row_bytes: usize, decode: &(dyn Fn(usize, &mut [u8]) + Sync)) -> Box<[u8]> {
    let mut out = vec![0; n * row_bytes].into_boxed_slice();
    let n_threads = thread::available_parallelism().map_or(1, usize::from);
    let rows = n.div_ceil(n_threads).next_multiple_of(ROWS).max(ROWS);
    let chunks = out.chunks_mut((rows * row_bytes).max(1)).enumerate();
    thread::scope(|scope| {
        for (i, chunk) in chunks {
            scope.spawn(move || decode(i * rows, chunk));
        }
    });
    out
}

/// A matrix, the tensor that holds its codes, and all its other tensors.
struct FoundMatrix {
    name: String,
    codes: String,
    others: Vec<String>,
    tensor: PackedTensor,
}

impl FoundMatrix {
    /// The matrix, and its factor if its blocks do not hold it.
    fn into_tensors(self) -> impl Iterator<Item = (String, PackedTensor)> {
        let factor = match &self.tensor.source {
            PackedSource::Pairs(pairs) => pairs.factor(),
            PackedSource::Ternary(ternary) => Some(ternary.factor()),
            _ => None,
        };
        let factor = factor.map(|factor| {
            let tensor = PackedTensor::new(PackedSource::Factor(factor));
            (factor_name(&self.name), tensor)
        });
        std::iter::once((self.name, self.tensor)).chain(factor)
    }
}

/// The name of a matrix's factor.
pub(crate) fn factor_name(matrix: &str) -> String {
    format!("{}.scale", matrix.strip_suffix(".weight").unwrap_or(matrix))
}

/// The narrowest format that holds the numbers of both.
fn wider(a: DType, b: DType) -> DType {
    match (a, b) {
        _ if a == b => a,
        (DType::Q4_0, DType::Q5_0) | (DType::Q5_0, DType::Q4_0) => DType::Q5_0,
        (DType::BF16, _) | (_, DType::BF16) => DType::BF16,
        _ => DType::F16,
    }
}

/// Gives the matrices of a layer's experts one format: the code that multiplies by them asks for that.
fn unify_experts(found: &mut HashMap<String, FoundMatrix>) {
    let group = |name: &str| {
        let parts: Vec<&str> = name.split('.').collect();
        let is_number = |i: usize| i > 0 && parts[i - 1] == "experts";
        let part = |i: usize| if is_number(i) { "{}" } else { parts[i] };
        (0..parts.len()).map(part).collect::<Vec<_>>().join(".")
    };
    let mut formats: HashMap<String, DType> = HashMap::new();
    for matrix in found.values() {
        let dtype = matrix.tensor.dtype();
        let format = formats.entry(group(&matrix.name)).or_insert(dtype);
        *format = wider(*format, dtype);
    }
    for matrix in found.values_mut() {
        matrix.tensor.set_dtype(formats[&group(&matrix.name)]);
    }
}

/// The tensors of a folder as the other modules see them, and those of them that are packed, by number.
pub(crate) struct FolderTensors {
    pub(crate) tensors: Vec<TensorInfo>,
    pub(crate) packed: HashMap<usize, PackedTensor>,
}

/// The error for a tensor that exists with the same name as one made of these codes.
fn duplicate(stored: &StoredTensors<'_>, codes: &TensorInfo, tensor: String) -> Error {
    Error::DuplicateTensor {
        file: stored.path(codes).to_owned(),
        tensor,
        first: None,
    }
}

/// Puts one tensor in place of each packed matrix's several.
///
/// # Errors
/// [`Error::PackedPart`] for a part that is absent or does not fit the others, [`Error::DuplicateTensor`] for a matrix
/// that is there unpacked too, or for one that has the name of its factor.
pub(crate) fn unpack(
    stored: &StoredTensors<'_>,
    packing: &Packing,
) -> Result<FolderTensors, Error> {
    let mut by_codes = HashMap::new();
    let mut taken = HashSet::new();
    for info in stored.all() {
        let Some(found) = layouts::find(stored, packing, info)? else {
            continue;
        };
        if found.name != found.codes && stored.get(&found.name).is_some() {
            return Err(duplicate(stored, info, found.name));
        }
        taken.extend(found.others.iter().cloned());
        by_codes.insert(found.codes.clone(), found);
    }
    unify_experts(&mut by_codes);
    let (mut tensors, mut packed) = (Vec::new(), HashMap::new());
    for info in stored.all() {
        if let Some(found) = by_codes.remove(&info.name) {
            for (name, tensor) in found.into_tensors() {
                if tensor.factor().is_some() && stored.get(&name).is_some() {
                    return Err(duplicate(stored, info, name));
                }
                tensors.push(tensor.info(name, info));
                packed.insert(tensors.len() - 1, tensor);
            }
            continue;
        }
        let is_unread = UNREAD.iter().any(|suffix| info.name.ends_with(suffix));
        if !taken.contains(&info.name) && !is_unread {
            tensors.push(info.clone());
        }
    }
    Ok(FolderTensors { tensors, packed })
}
