//! A host's tensor, read safely.

use super::abi::{self, MAX_DIMS};
use super::host::Functions;
use millrace_quant::DType;
use std::ffi::CStr;
use std::ops::Range;

/// A tensor of the host while one of its calls lasts.
#[derive(Clone, Copy)]
pub(crate) struct HostTensor<'a> {
    raw: &'a abi::AbiTensor,
    host: &'a Functions,
}

/// Why a tensor's numbers cannot be reached.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum DataError {
    #[error("it has no memory")]
    None,
    #[error("its memory is not the host's")]
    NotHost,
    #[error("its shape {0:?} makes no sense")]
    Shape([i64; MAX_DIMS]),
    #[error("a result shares memory with one of its inputs, or with another result")]
    Shared,
}

/// The name of a number; empty if ggml has none.
fn text<'a>(name: *const std::ffi::c_char) -> &'a str {
    if name.is_null() {
        return "";
    }
    // SAFETY: ggml's names of operators and types are constants with their ends.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or_default()
}

impl<'a> HostTensor<'a> {
    /// A tensor that the host handed over; `None` for null.
    ///
    /// # Safety
    /// A pointer that is not null is to a tensor of the host whose functions these are. The tensor, its sources, and
    /// their memory stay as they are for `'a`, except for writes through [`HostTensor::write`].
    pub(crate) unsafe fn new(
        raw: *const abi::AbiTensor,
        host: &'a Functions,
    ) -> Option<HostTensor<'a>> {
        // SAFETY: by the caller's promise.
        unsafe { raw.as_ref() }.map(|raw| HostTensor { raw, host })
    }

    /// The tensor as the host has it, to be handed back to the host.
    pub(super) fn raw(&self) -> *const abi::AbiTensor {
        self.raw
    }

    /// The operator's name (`MUL_MAT`).
    pub(crate) fn op(&self) -> &'static str {
        // SAFETY: a number that the host itself put into the tensor.
        text(unsafe { (self.host.op_name)(self.raw.op) })
    }

    /// Kind of the operator: of `GLU` the kind of gate (`SWIGLU`), of most the operator's name.
    pub(crate) fn kind(&self) -> &'static str {
        // SAFETY: a tensor of the host.
        text(unsafe { (self.host.op_desc)(self.raw) })
    }

    /// The element or block format's name (`q4_K`).
    pub(crate) fn type_name(&self) -> &'static str {
        // SAFETY: as above.
        text(unsafe { (self.host.type_name)(self.raw.dtype) })
    }

    /// The format, where Millrace knows one of that name with blocks of that size.
    pub(crate) fn dtype(&self) -> Option<DType> {
        let dtype = DType::from_name(self.type_name())?;
        // SAFETY: as above.
        let (bytes, elems) = unsafe {
            (
                (self.host.type_size)(self.raw.dtype),
                (self.host.block_elems)(self.raw.dtype),
            )
        };
        let is_same = dtype.block_bytes() == bytes
            && dtype.block_elems() as i64 == elems
            && !dtype.is_tiled();
        is_same.then_some(dtype)
    }

    /// Whether it holds 32-bit integers.
    pub(crate) fn is_i32(&self) -> bool {
        self.type_name() == "i32"
    }

    /// Elements in each dimension, the innermost first; `None` if one is negative.
    pub(crate) fn dims(&self) -> Option<[usize; MAX_DIMS]> {
        let mut dims = [0; MAX_DIMS];
        for (dim, ne) in dims.iter_mut().zip(self.raw.ne) {
            *dim = usize::try_from(ne).ok()?;
        }
        Some(dims)
    }

    /// Bytes from one to the next in each dimension.
    pub(crate) fn strides(&self) -> [usize; MAX_DIMS] {
        self.raw.nb
    }

    /// The first numbers of the operator's parameters.
    pub(crate) fn params(&self) -> &'a [i32] {
        &self.raw.op_params
    }

    /// Whether the node is to be computed, if the host tells.
    pub(crate) fn is_marked(&self) -> bool {
        self.raw.flags & abi::FLAG_COMPUTE != 0
    }

    /// Its name, for people.
    pub(crate) fn name(&self) -> String {
        let bytes = self.raw.name.map(|c| c as u8);
        let end = bytes.iter().position(|c| *c == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// The type of the buffer that it is in; null where it is in none yet.
    pub(crate) fn buffers(&self) -> *mut abi::BufferType {
        let owner = self.owner();
        match owner.is_null() {
            true => std::ptr::null_mut(),
            // SAFETY: a buffer of the host, which has a type.
            false => unsafe { (self.host.buffer_type)(owner) },
        }
    }

    /// The buffer that contains it: for a view, this may be recorded at the tensor that it views.
    fn owner(&self) -> *mut std::ffi::c_void {
        match self.raw.buffer.is_null() {
            // SAFETY: views' origins are tensors of the same host.
            true => unsafe { self.raw.view_src.as_ref() }.map_or(self.raw.buffer, |of| of.buffer),
            false => self.raw.buffer,
        }
    }

    /// Source number `index`.
    pub(crate) fn source(&self, index: usize) -> Option<HostTensor<'a>> {
        // SAFETY: sources are tensors of the same host; `HostTensor::new` was promised that they stay.
        unsafe { HostTensor::new(*self.raw.src.get(index)?, self.host) }
    }

    /// Whether both are the same tensor.
    pub(crate) fn is(&self, other: &HostTensor<'_>) -> bool {
        std::ptr::eq(self.raw, other.raw)
    }

    /// Address range of the tensor's memory: from its first byte to one past its last.
    fn extent(&self) -> Result<Range<usize>, DataError> {
        let shape = || DataError::Shape(self.raw.ne);
        let dims = self.dims().ok_or_else(shape)?;
        if self.raw.data.is_null() {
            return Err(DataError::None);
        }
        let owner = self.owner();
        // SAFETY: a buffer of the host, which has a type.
        if !owner.is_null() && !unsafe { (self.host.buft_is_host)((self.host.buffer_type)(owner)) }
        {
            return Err(DataError::NotHost);
        }
        if dims.contains(&0) {
            return Ok(0..0);
        }
        // SAFETY: the type's number is the host's own.
        let (block_bytes, block_elems) = unsafe {
            (
                (self.host.type_size)(self.raw.dtype),
                (self.host.block_elems)(self.raw.dtype),
            )
        };
        let elems = usize::try_from(block_elems).ok().filter(|n| *n > 0);
        let row = dims[0] / elems.ok_or_else(shape)?;
        let mut bytes = row.checked_mul(block_bytes).ok_or_else(shape)?;
        for (dim, stride) in dims.iter().zip(self.raw.nb).skip(1) {
            let more = (dim - 1).checked_mul(stride).ok_or_else(shape)?;
            bytes = bytes.checked_add(more).ok_or_else(shape)?;
        }
        let start = self.raw.data as usize;
        let end = start
            .checked_add(bytes)
            .filter(|_| bytes <= isize::MAX as usize);
        Ok(start..end.ok_or_else(shape)?)
    }

    /// Its memory, from the first byte to the last, gaps of strides included.
    ///
    /// # Errors
    /// No memory, or not the host's.
    pub(crate) fn bytes(&self) -> Result<&'a [u8], DataError> {
        let extent = self.extent()?;
        if extent.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: ggml allocates the bytes that shape and strides span, in memory of the host; `HostTensor::new` was promised
        // that it stays.
        Ok(unsafe { std::slice::from_raw_parts(self.raw.data.cast(), extent.len()) })
    }

    /// Its numbers where they are f32 without gaps.
    ///
    /// # Errors
    /// As [`HostTensor::bytes`], and other or unaligned numbers.
    pub(crate) fn floats(&self) -> Result<&'a [f32], DataError> {
        let bytes = self.bytes()?;
        // SAFETY: any bits are numbers.
        match unsafe { bytes.align_to::<f32>() } {
            ([], numbers, []) => Ok(numbers),
            _ => Err(DataError::Shape(self.raw.ne)),
        }
    }

    /// Whether the memory of both has a byte in common.
    ///
    /// # Errors
    /// As [`HostTensor::bytes`].
    pub(crate) fn overlaps(&self, other: &HostTensor<'_>) -> Result<bool, DataError> {
        let (a, b) = (self.extent()?, other.extent()?);
        Ok(a.start < b.end && b.start < a.end)
    }

    /// Whether both span the same bytes.
    ///
    /// # Errors
    /// As [`HostTensor::bytes`].
    pub(crate) fn is_in_place_of(&self, other: &HostTensor<'_>) -> Result<bool, DataError> {
        Ok(self.extent()? == other.extent()?)
    }

    /// Whether a source of this tensor has a byte in common with `other`.
    ///
    /// # Errors
    /// As [`HostTensor::bytes`].
    pub(crate) fn has_source_in(&self, other: &HostTensor<'_>) -> Result<bool, DataError> {
        for index in 0..self.raw.src.len() {
            if let Some(source) = self.source(index)
                && source.overlaps(other)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The f32 numbers of a result, to be written.
    ///
    /// # Errors
    /// As [`HostTensor::floats`].
    ///
    /// # Safety
    /// Nobody else reads or writes the result's memory while the slice lives.
    pub(crate) unsafe fn write(&self) -> Result<&'a mut [f32], DataError> {
        let extent = self.extent()?;
        let n = extent.len() / size_of::<f32>();
        if n == 0 {
            return Ok(&mut []);
        }
        if !extent.start.is_multiple_of(align_of::<f32>()) {
            return Err(DataError::Shape(self.raw.ne));
        }
        // SAFETY: ggml allocates the bytes that shape and strides span; the address is aligned; there is no other reference, by
        // the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.raw.data.cast(), n) })
    }
}
