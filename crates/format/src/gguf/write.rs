//! Writes GGUF version 3 files.

use std::io::{Seek, Write};
use std::path::Path;

use super::{GgufArray, GgufValue, MAGIC, MAX_DIMS, Metadata, read, types};
use crate::output::{AtomicFile, Body, TensorExtent};
use crate::{Error, TensorSpec, extents};

/// ggml keeps tensor names in 64 bytes with a closing zero and refuses files with longer ones.
const MAX_TENSOR_NAME_BYTES: usize = 63;
const VERSION: u32 = 3;

/// Writes a GGUF file: metadata and tensor table at once, then each tensor's bytes.
///
/// Tensors are in the file in table order, each at a multiple of `general.alignment` (32 if the
/// metadata does not set it). Their bytes may come in any order and in pieces.
#[derive(Debug)]
pub struct Writer<W> {
    body: Body<W>,
}

impl Writer<AtomicFile> {
    /// Starts the file `path`, which appears on [`Writer::commit`].
    ///
    /// # Errors
    /// As [`AtomicFile::create`] and [`Writer::new`].
    pub fn create(path: &Path, metadata: &Metadata, tensors: &[TensorSpec]) -> Result<Self, Error> {
        Writer::new(AtomicFile::create(path)?, path, metadata, tensors)
    }

    /// Checks that every tensor is complete and gives the file its name.
    ///
    /// # Errors
    /// [`Error::WrongLength`], [`Error::Io`]; nothing is left behind then.
    pub fn commit(self) -> Result<(), Error> {
        self.finish()?.commit()
    }
}

impl<W: Write + Seek> Writer<W> {
    /// Writes the head to an empty `sink`; `file` is for messages.
    ///
    /// # Errors
    /// [`Error::CannotStore`] for a type, name or number of dimensions that GGUF cannot hold,
    /// [`Error::BadShape`], [`Error::DuplicateTensor`], [`Error::KeyType`] for metadata that a reader
    /// would refuse, [`Error::Io`].
    pub fn new(
        sink: W,
        file: &Path,
        metadata: &Metadata,
        tensors: &[TensorSpec],
    ) -> Result<Self, Error> {
        let alignment = read::alignment(metadata, file)?;
        let mut head = Vec::new();
        head.extend(MAGIC);
        head.extend(VERSION.to_le_bytes());
        head.extend((tensors.len() as u64).to_le_bytes());
        head.extend((metadata.len() as u64).to_le_bytes());
        for (key, value) in metadata.iter() {
            put_str(&mut head, key);
            head.extend(value.type_id().to_le_bytes());
            put_value(&mut head, value);
        }
        let mut slots = put_table(&mut head, tensors, alignment, file)?;
        if !slots.is_empty() {
            head.resize(head.len().next_multiple_of(alignment as usize), 0);
        }
        for slot in &mut slots {
            slot.offset += head.len() as u64;
        }
        let body = Body::new(sink, file.to_owned(), &head, slots)?;
        Ok(Writer { body })
    }

    /// The next bytes of a tensor.
    ///
    /// # Errors
    /// [`Error::CannotStore`] for a name that is not in the table, [`Error::WrongLength`] for more
    /// bytes than its type and shape need, [`Error::Io`].
    pub fn write(&mut self, tensor: &str, bytes: &[u8]) -> Result<(), Error> {
        self.body.write(tensor, bytes)
    }

    /// Checks that every tensor is complete and gives the sink back.
    ///
    /// # Errors
    /// [`Error::WrongLength`], [`Error::Io`].
    pub fn finish(self) -> Result<W, Error> {
        self.body.finish()
    }
}

/// Appends the tensor table and returns the places of tensors, from the start of the data.
fn put_table(
    head: &mut Vec<u8>,
    tensors: &[TensorSpec],
    alignment: u64,
    file: &Path,
) -> Result<Vec<TensorExtent>, Error> {
    extents::check_unique(tensors.iter().map(|tensor| tensor.name.as_str()), file)?;
    let mut offset = 0u64;
    let mut slots = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let type_id = check_storable(tensor, file)?;
        let dims = tensor.shape.iter().map(|&dim| dim as u64).collect();
        let (_, size_bytes) = extents::check_shape(&tensor.name, tensor.tensor_type, dims, file)?;
        put_str(head, &tensor.name);
        head.extend((tensor.shape.len() as u32).to_le_bytes());
        for &dim in tensor.shape.iter().rev() {
            head.extend((dim as u64).to_le_bytes());
        }
        head.extend(type_id.to_le_bytes());
        head.extend(offset.to_le_bytes());
        let size_bytes = size_bytes as u64;
        let end = size_bytes.next_multiple_of(alignment);
        slots.push(TensorExtent {
            name: tensor.name.clone(),
            offset,
            size_bytes,
            pad_bytes: end - size_bytes,
        });
        offset += end;
    }
    Ok(slots)
}

/// ggml's number of the tensor's type, if GGUF can hold the tensor at all.
fn check_storable(tensor: &TensorSpec, file: &Path) -> Result<u32, Error> {
    let refuse = |reason: String| Error::CannotStore {
        file: file.to_owned(),
        tensor: tensor.name.clone(),
        reason,
    };
    if tensor.name.len() > MAX_TENSOR_NAME_BYTES {
        let len = tensor.name.len();
        return Err(refuse(format!(
            "its name has {len} bytes, GGUF readers take at most {MAX_TENSOR_NAME_BYTES}"
        )));
    }
    if tensor.shape.len() > MAX_DIMS {
        let n_dims = tensor.shape.len();
        return Err(refuse(format!(
            "it has {n_dims} dimensions, GGUF holds at most {MAX_DIMS}"
        )));
    }
    types::to_id(tensor.tensor_type)
        .ok_or_else(|| refuse(format!("GGUF has no type {}", tensor.tensor_type)))
}

fn put_str(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn put_value(out: &mut Vec<u8>, value: &GgufValue) {
    match value {
        GgufValue::U8(v) => out.extend(v.to_le_bytes()),
        GgufValue::I8(v) => out.extend(v.to_le_bytes()),
        GgufValue::U16(v) => out.extend(v.to_le_bytes()),
        GgufValue::I16(v) => out.extend(v.to_le_bytes()),
        GgufValue::U32(v) => out.extend(v.to_le_bytes()),
        GgufValue::I32(v) => out.extend(v.to_le_bytes()),
        GgufValue::U64(v) => out.extend(v.to_le_bytes()),
        GgufValue::I64(v) => out.extend(v.to_le_bytes()),
        GgufValue::F32(v) => out.extend(v.to_le_bytes()),
        GgufValue::F64(v) => out.extend(v.to_le_bytes()),
        GgufValue::Bool(v) => out.push(u8::from(*v)),
        GgufValue::Str(v) => put_str(out, v),
        GgufValue::Bytes(v) => put_bytes(out, v),
        GgufValue::Array(v) => put_array(out, v),
    }
}

fn put_array(out: &mut Vec<u8>, array: &GgufArray) {
    out.extend(array.type_id().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        GgufArray::U8(items) => out.extend(items),
        GgufArray::I8(items) => items.iter().for_each(|v| out.extend(v.to_le_bytes())),
        GgufArray::U16(items) => items.iter().for_each(|v| out.extend(v.to_le_bytes())),
        GgufArray::I16(items) => items.iter().for_each(|v| out.extend(v.to_le_bytes())),
        GgufArray::U32(items) => items.iter().for_each(|v| out.extend(v.to_le_bytes())),
        GgufArray::I32(items) => items.iter().for_each(|v| out.extend(v.to_le_bytes())),
        GgufArray::U64(items) => items.iter().for_each(|v| out.extend(v.to_le_bytes())),
        GgufArray::I64(items) => items.iter().for_each(|v| out.extend(v.to_le_bytes())),
        GgufArray::F32(items) => items.iter().for_each(|v| out.extend(v.to_le_bytes())),
        GgufArray::F64(items) => items.iter().for_each(|v| out.extend(v.to_le_bytes())),
        GgufArray::Bool(items) => out.extend(items.iter().map(|&v| u8::from(v))),
        GgufArray::Str(items) => items.iter().for_each(|v| put_str(out, v)),
        GgufArray::Bytes(items) => items.iter().for_each(|v| put_bytes(out, v)),
        GgufArray::Array(items) => items.iter().for_each(|v| put_array(out, v)),
    }
}
