//! Writes safetensors files, Q4NX bundles included.

use std::collections::BTreeMap;
use std::io::{Seek, Write};
use std::path::Path;

use millrace_quant::DType;
use serde_json::{Map, Value, json};

use super::{MAX_HEADER_BYTES, SHAPE_KEY_PREFIX, types};
use crate::output::{AtomicFile, Body, TensorExtent};
use crate::{Error, TensorSpec, TensorType, extents};

/// Tensor data starts at a multiple of this: a cache line. (The reference implementation pads to 8.)
const DATA_ALIGNMENT: usize = 64;

/// Writes a safetensors file: the header at once, then each tensor's bytes, in any order of
/// tensors and in pieces.
///
/// The data holds wide element types before narrow ones, and otherwise keeps the order given, so
/// that every element is aligned in a reader's memory.
#[derive(Debug)]
pub struct Writer<W> {
    body: Body<W>,
}

impl Writer<AtomicFile> {
    /// Starts the file `path`, which appears on [`Writer::commit`].
    ///
    /// # Errors
    /// As [`AtomicFile::create`] and [`Writer::new`].
    pub fn create(
        path: &Path,
        metadata: &BTreeMap<String, String>,
        tensors: &[TensorSpec],
    ) -> Result<Self, Error> {
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
    /// Writes the header to an empty `sink`; `file` is for messages. `metadata` gets the entry
    /// `format` = `pt` if it has none, because transformers refuses files without it, and the shapes
    /// of Q4NX tensors.
    ///
    /// # Errors
    /// [`Error::CannotStore`] for a type or name that safetensors cannot hold, [`Error::BadShape`],
    /// [`Error::DuplicateTensor`], [`Error::Io`].
    pub fn new(
        sink: W,
        file: &Path,
        metadata: &BTreeMap<String, String>,
        tensors: &[TensorSpec],
    ) -> Result<Self, Error> {
        extents::check_unique(tensors.iter().map(|tensor| tensor.name.as_str()), file)?;
        let mut ordered: Vec<&TensorSpec> = tensors.iter().collect();
        ordered.sort_by_key(|tensor| std::cmp::Reverse(elem_align(tensor.tensor_type)));
        let mut notes = metadata.clone();
        notes
            .entry("format".to_owned())
            .or_insert_with(|| "pt".to_owned());
        let mut entries = Map::new();
        let mut slots = Vec::with_capacity(tensors.len());
        let mut offset = 0;
        for tensor in ordered {
            let stored = HeaderEntry::of(tensor, file)?;
            notes.extend(stored.note);
            let end = offset + stored.size_bytes;
            let entry = json!({ "dtype": stored.dtype, "shape": stored.shape,
                "data_offsets": [offset, end] });
            entries.insert(tensor.name.clone(), entry);
            slots.push(TensorExtent {
                name: tensor.name.clone(),
                offset,
                size_bytes: stored.size_bytes,
                pad_bytes: 0,
            });
            offset = end;
        }
        let head = encode_head(&notes, entries, file)?;
        for slot in &mut slots {
            slot.offset += head.len() as u64;
        }
        let body = Body::new(sink, file.to_owned(), &head, slots)?;
        Ok(Writer { body })
    }

    /// The next bytes of a tensor.
    ///
    /// # Errors
    /// [`Error::CannotStore`] for a name that was not announced, [`Error::WrongLength`] for more
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

/// Bytes that an element must be aligned to.
fn elem_align(tensor_type: TensorType) -> usize {
    match tensor_type {
        TensorType::Weights(dtype) if dtype.is_float() => dtype.block_bytes(),
        // Blocks come first: their size keeps all of them aligned for vector loads and DMA.
        TensorType::Weights(_) => DATA_ALIGNMENT,
        TensorType::Plain(plain) => plain.size_bytes(),
        // The widest element of such a type, C64, is a pair of floats.
        TensorType::Opaque(_) => size_of::<[f32; 2]>(),
    }
}

/// A tensor in the header's terms.
struct HeaderEntry {
    dtype: &'static str,
    shape: Vec<usize>,
    size_bytes: u64,
    /// The metadata entry that records a Q4NX matrix.
    note: Option<(String, String)>,
}

impl HeaderEntry {
    fn of(tensor: &TensorSpec, file: &Path) -> Result<HeaderEntry, Error> {
        let TensorSpec {
            name,
            tensor_type,
            shape,
        } = tensor;
        let refuse = |reason: String| Error::CannotStore {
            file: file.to_owned(),
            tensor: name.clone(),
            reason,
        };
        if name == "__metadata__" {
            return Err(refuse("safetensors keeps this name for itself".to_owned()));
        }
        let dtype = types::to_name(*tensor_type)
            .ok_or_else(|| refuse(format!("safetensors has no type {tensor_type}")))?;
        let dims = shape.iter().map(|&dim| dim as u64).collect();
        let (_, size_bytes) = extents::check_shape(name, *tensor_type, dims, file)?;
        let (shape, note) = match (tensor_type, shape.as_slice()) {
            (TensorType::Weights(DType::Q4nx), &[n, k]) => {
                let block_bytes = DType::Q4nx.block_bytes();
                let note = (format!("{SHAPE_KEY_PREFIX}{name}"), format!("{n},{k}"));
                (vec![size_bytes / block_bytes, block_bytes], Some(note))
            }
            (TensorType::Weights(dtype), dims) if dtype.is_tiled() && dims.len() != 2 => {
                return Err(refuse(format!("Q4NX holds matrices, not shape {dims:?}")));
            }
            (_, dims) => (dims.to_vec(), None),
        };
        Ok(HeaderEntry {
            dtype,
            shape,
            size_bytes: size_bytes as u64,
            note,
        })
    }
}

/// Length and JSON, padded with spaces.
fn encode_head(
    notes: &BTreeMap<String, String>,
    entries: Map<String, Value>,
    file: &Path,
) -> Result<Vec<u8>, Error> {
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), json!(notes));
    header.extend(entries);
    let mut json = Value::Object(header).to_string().into_bytes();
    let length_bytes = size_of::<u64>();
    let head_bytes = (length_bytes + json.len()).next_multiple_of(DATA_ALIGNMENT);
    json.resize(head_bytes - length_bytes, b' ');
    let len = json.len() as u64;
    if len > MAX_HEADER_BYTES {
        return Err(Error::Limit {
            file: file.to_owned(),
            what: "the header's length".to_owned(),
            offset: 0,
            found: len,
            limit: MAX_HEADER_BYTES,
        });
    }
    let mut head = len.to_le_bytes().to_vec();
    head.extend(json);
    Ok(head)
}
