//! Parses the header of a safetensors file: bytes in, a checked tensor table out.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use millrace_quant::{DType, TILE_GROUP};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::{MAX_HEADER_BYTES, SHAPE_KEY_PREFIX, types};
use crate::bytes::Cursor;
use crate::{Error, PlainType, TensorInfo, TensorType, extents};

/// More dimensions than any model's tensors have.
const MAX_DIMS: usize = 8;
const METADATA_KEY: &str = "__metadata__";
/// Where the header's JSON starts.
const JSON_OFFSET: u64 = 8;

/// The header of a safetensors file, with every claim about the data checked.
#[derive(Clone, Debug)]
pub struct Header {
    /// The `__metadata__` entries.
    pub metadata: BTreeMap<String, String>,
    /// In the order of their data; offsets from the start of the file, `file` 0.
    pub tensors: Vec<TensorInfo>,
    /// Where tensor data starts.
    pub data_offset: u64,
}

impl Header {
    /// Parses the whole file's `bytes`. `file` names it in messages; its extension says whether
    /// blocks of type `I8` are Q4NX (see [`crate::safetensors`]).
    ///
    /// # Errors
    /// Named after the fault; see [`Error`]. Never panics, and allocates at most a small multiple of the bytes it has read.
    pub fn parse(bytes: &[u8], file: &Path) -> Result<Header, Error> {
        let cursor = &mut Cursor::new(bytes, file);
        let len = cursor.u64("the header's length")?;
        if len > MAX_HEADER_BYTES {
            return Err(Error::Limit {
                file: file.to_owned(),
                what: "the header's length".to_owned(),
                offset: 0,
                found: len,
                limit: MAX_HEADER_BYTES,
            });
        }
        let json = cursor.take(len, "the header")?;
        let data_offset = cursor.offset();
        let raw: RawHeader = serde_json::from_slice(json).map_err(|source| Error::Json {
            file: file.to_owned(),
            what: "the safetensors header is not valid",
            source,
        })?;
        let names = raw.tensors.iter().map(|(name, _)| name.as_str());
        extents::check_unique(names, file)?;
        let context = TensorContext {
            file,
            metadata: &raw.metadata,
            data_offset,
            is_bundle: file
                .extension()
                .is_some_and(|extension| extension == "q4nx"),
        };
        let mut tensors = Vec::new();
        for (name, tensor) in raw.tensors {
            tensors.push(context.tensor(name, tensor)?);
        }
        tensors.sort_by_key(|tensor| tensor.offset);
        extents::check_places(&tensors, bytes.len() as u64, file)?;
        check_no_holes(&tensors, data_offset, bytes.len() as u64, file)?;
        Ok(Header {
            metadata: raw.metadata,
            tensors,
            data_offset,
        })
    }
}

/// Context for judging one tensor of the header.
struct TensorContext<'a> {
    file: &'a Path,
    metadata: &'a BTreeMap<String, String>,
    data_offset: u64,
    is_bundle: bool,
}

impl TensorContext<'_> {
    fn tensor(&self, name: String, raw: RawTensor) -> Result<TensorInfo, Error> {
        let file = self.file;
        if raw.shape.len() > MAX_DIMS {
            return Err(Error::Limit {
                file: file.to_owned(),
                what: format!("the number of dimensions of tensor `{name}`"),
                offset: JSON_OFFSET,
                found: raw.shape.len() as u64,
                limit: MAX_DIMS as u64,
            });
        }
        let stored = types::from_name(&raw.dtype);
        let (tensor_type, dims, nominal_shape) = self.resolve_q4nx(&name, stored, raw.shape)?;
        let (shape, size_bytes) = extents::check_shape(&name, tensor_type, dims, file)?;
        let [begin, end] = raw.data_offsets;
        let Some(found_bytes) = end.checked_sub(begin) else {
            return Err(Error::BadField {
                file: file.to_owned(),
                what: format!("data_offsets of tensor `{name}`"),
                offset: JSON_OFFSET,
                expected: "a begin up to the end",
                found: format!("[{begin}, {end}]"),
            });
        };
        // An offset that overflows is beyond any file, and is refused as such.
        let offset = self.data_offset.saturating_add(begin);
        // The places are compared with the file's length later, so a cut here hides nothing.
        let size_bytes = match extents::is_sized(tensor_type) {
            true => size_bytes,
            false => usize::try_from(found_bytes).unwrap_or(usize::MAX),
        };
        if found_bytes != size_bytes as u64 {
            return Err(Error::SizeMismatch {
                file: file.to_owned(),
                tensor: name,
                offset,
                expected_bytes: size_bytes as u64,
                found_bytes,
            });
        }
        Ok(TensorInfo {
            name,
            tensor_type,
            shape,
            nominal_shape,
            file: 0,
            offset,
            size_bytes,
        })
    }

    /// Type, dimensions, and whether these are nominal: `I8` blocks of additive Q4NX become the
    /// matrix that the metadata records, or failing that a column of blocks.
    fn resolve_q4nx(
        &self,
        name: &str,
        stored: TensorType,
        dims: Vec<u64>,
    ) -> Result<(TensorType, Vec<u64>, bool), Error> {
        let recorded = self.metadata.get(&format!("{SHAPE_KEY_PREFIX}{name}"));
        let dtype = DType::Q4nx;
        let &[blocks, block_bytes] = dims.as_slice() else {
            return Ok((stored, dims, false));
        };
        if stored != TensorType::Plain(PlainType::I8)
            || block_bytes != dtype.block_bytes() as u64
            || (recorded.is_none() && !self.is_bundle)
        {
            return Ok((stored, dims, false));
        }
        let (rows, cols) = (dtype.block_rows() as u64, dtype.block_elems() as u64);
        let Some(recorded) = recorded else {
            return Ok((dtype.into(), vec![blocks.saturating_mul(rows), cols], true));
        };
        let matrix = parse_matrix(recorded).filter(|&[n, k]| {
            // A width may end within a block, where a group of one scale does.
            let whole = n % rows == 0 && k % TILE_GROUP as u64 == 0;
            whole && (n / rows).checked_mul(k.div_ceil(cols)) == Some(blocks)
        });
        match matrix {
            Some(matrix) => Ok((dtype.into(), matrix.to_vec(), false)),
            None => Err(Error::BadField {
                file: self.file.to_owned(),
                what: format!("the recorded shape of tensor `{name}` ({blocks} Q4NX blocks)"),
                offset: JSON_OFFSET,
                expected: "`n,k` in as many blocks of [32, 256], k a multiple of 32",
                found: format!("{recorded:?}"),
            }),
        }
    }
}

/// `n,k`.
fn parse_matrix(text: &str) -> Option<[u64; 2]> {
    let (n, k) = text.split_once(',')?;
    Some([n.parse().ok()?, k.parse().ok()?])
}

/// The format has no unused bytes, so nothing can hide in a file. Tensors are in the order of their
/// offsets and do not overlap.
fn check_no_holes(
    tensors: &[TensorInfo],
    data_offset: u64,
    file_bytes: u64,
    file: &Path,
) -> Result<(), Error> {
    let filled = tensors.iter().filter(|tensor| tensor.size_bytes > 0);
    let ranges = filled.map(|tensor| (tensor.offset, tensor.offset + tensor.size_bytes as u64));
    let mut end = data_offset;
    for (start, next_end) in ranges.chain([(file_bytes, file_bytes)]) {
        if start > end {
            return Err(Error::Hole {
                file: file.to_owned(),
                offset: end,
                end: start,
            });
        }
        end = next_end;
    }
    Ok(())
}

/// The header as written, in file order and with any duplicates.
struct RawHeader {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, RawTensor)>,
}

#[derive(serde::Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;

        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let mut metadata = None;
                let mut tensors = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    if key != METADATA_KEY {
                        tensors.push((key, map.next_value()?));
                    } else if metadata.replace(map.next_value()?).is_some() {
                        return Err(serde::de::Error::duplicate_field(METADATA_KEY));
                    }
                }
                Ok(RawHeader {
                    metadata: metadata.unwrap_or_default(),
                    tensors,
                })
            }
        }

        deserializer.deserialize_map(HeaderVisitor)
    }
}
