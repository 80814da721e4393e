//! Checks that every container needs: valid shapes, unique names, and bytes that are inside the
//! file and belong to one tensor only.

use std::collections::HashSet;
use std::path::Path;

use millrace_quant::DType;

use crate::{Error, TensorInfo, TensorType};

/// Whether the format defines the bytes of a tensor of this type.
pub(crate) fn is_sized(tensor_type: TensorType) -> bool {
    match tensor_type {
        TensorType::Opaque(opaque) => opaque.is_sized(),
        TensorType::Weights(_) | TensorType::Plain(_) => true,
    }
}

/// The dimensions as sizes of this machine and the bytes they need: 0 for a type of unknown size,
/// whose size follows from its place in the file.
///
/// # Errors
/// [`Error::BadShape`] if they overflow or do not divide into whole blocks.
pub(crate) fn check_shape(
    name: &str,
    tensor_type: TensorType,
    dims: Vec<u64>,
    file: &Path,
) -> Result<(Vec<usize>, usize), Error> {
    let sized = || {
        let shape: Vec<usize> = dims
            .iter()
            .map(|&dim| usize::try_from(dim).ok())
            .collect::<Option<_>>()?;
        // The product without zeros too: `[0, huge, huge]` must not overflow anyone's strides.
        let nonzero = shape.iter().filter(|&&dim| dim != 0);
        nonzero.copied().try_fold(1usize, usize::checked_mul)?;
        if !is_sized(tensor_type) {
            return Some((shape, 0));
        }
        let size_bytes = tensor_type.size_bytes(&shape)?;
        isize::try_from(size_bytes).ok()?;
        Some((shape, size_bytes))
    };
    sized().ok_or_else(|| Error::BadShape {
        file: file.to_owned(),
        tensor: name.to_owned(),
        expected: match tensor_type {
            TensorType::Weights(dtype) if !dtype.is_float() => whole_blocks(dtype),
            TensorType::Opaque(opaque) => {
                let elems = opaque.block_elems();
                format!("whole blocks of {elems} elements, fewer than 2^63 bytes")
            }
            _ => "fewer than 2^63 bytes".to_owned(),
        },
        shape: dims,
    })
}

fn whole_blocks(dtype: DType) -> String {
    let elems = dtype.block_elems();
    match dtype.block_rows() {
        1 => format!("a last dimension in whole {dtype} blocks of {elems}, fewer than 2^63 bytes"),
        rows => {
            format!("a matrix in whole {dtype} blocks of [{rows}, {elems}], fewer than 2^63 bytes")
        }
    }
}

/// Refuses two tensors of one name.
pub(crate) fn check_unique<'a>(
    names: impl IntoIterator<Item = &'a str>,
    file: &Path,
) -> Result<(), Error> {
    let mut seen = HashSet::new();
    match names.into_iter().find(|&name| !seen.insert(name)) {
        None => Ok(()),
        Some(name) => Err(Error::DuplicateTensor {
            file: file.to_owned(),
            tensor: name.to_owned(),
            first: None,
        }),
    }
}

/// Gives tensors of unknown size the bytes up to the next tensor or the file's end. Offsets are absolute.
pub(crate) fn give_room(tensors: &mut [TensorInfo], file_bytes: u64) {
    if tensors.iter().all(|tensor| is_sized(tensor.tensor_type)) {
        return;
    }
    let mut starts: Vec<u64> = tensors.iter().map(|tensor| tensor.offset).collect();
    starts.sort_unstable();
    for tensor in tensors.iter_mut() {
        if is_sized(tensor.tensor_type) || tensor.n_elems() == 0 {
            continue;
        }
        let next = starts.partition_point(|&start| start <= tensor.offset);
        let end = starts.get(next).copied().unwrap_or(file_bytes);
        let room_bytes = end.min(file_bytes).saturating_sub(tensor.offset);
        tensor.size_bytes = usize::try_from(room_bytes).unwrap_or(usize::MAX);
    }
}

/// Refuses tensors that extend beyond the file or share bytes. Offsets are absolute.
pub(crate) fn check_places(
    tensors: &[TensorInfo],
    file_bytes: u64,
    file: &Path,
) -> Result<(), Error> {
    for tensor in tensors {
        let end = tensor.offset.checked_add(tensor.size_bytes as u64);
        if end.is_none_or(|end| end > file_bytes) {
            return Err(Error::BeyondFile {
                file: file.to_owned(),
                tensor: tensor.name.clone(),
                offset: tensor.offset,
                expected_bytes: tensor.size_bytes as u64,
                found_bytes: file_bytes,
            });
        }
    }
    let filled = tensors.iter().filter(|tensor| tensor.size_bytes > 0);
    let mut by_offset: Vec<&TensorInfo> = filled.collect();
    by_offset.sort_by_key(|tensor| tensor.offset);
    for pair in by_offset.windows(2) {
        let other_end = pair[0].offset + pair[0].size_bytes as u64;
        if pair[1].offset < other_end {
            return Err(Error::Overlap {
                file: file.to_owned(),
                tensor: pair[1].name.clone(),
                offset: pair[1].offset,
                other: pair[0].name.clone(),
                other_end,
            });
        }
    }
    Ok(())
}
