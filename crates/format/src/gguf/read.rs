//! Parses the head of a GGUF file: bytes in, metadata and a checked tensor table out.

use std::path::Path;

use super::value::type_id;
use super::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, GgufArray, GgufValue, MAGIC, MAX_DIMS, Metadata, types,
};
use crate::bytes::Cursor;
use crate::{Error, TensorInfo, extents};

/// The longest metadata key, by the format's specification; tensor names have the same limit.
const MAX_NAME_BYTES: u64 = 65_535;
/// Arrays of arrays deeper than this are refused; known models nest at most once.
const MAX_NESTING: u32 = 4;
/// Bytes of the smallest metadata entry: key length, type, one byte of value.
const MIN_ENTRY_BYTES: u64 = 8 + 4 + 1;
/// Bytes of the smallest tensor entry: name length, number of dimensions, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

/// The head of a GGUF file, with every claim about the rest checked against the file's length.
#[derive(Clone, Debug)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
    /// Tensors start at multiples of this from `data_offset`.
    pub alignment: u64,
    /// Keys and values in file order.
    pub metadata: Metadata,
    /// In file order; offsets from the start of the file, `file` 0.
    pub tensors: Vec<TensorInfo>,
    /// Where tensor data starts.
    pub data_offset: u64,
}

impl Header {
    /// Parses the whole file's `bytes`; `file` is for messages only.
    ///
    /// # Errors
    /// Named after the fault; see [`Error`]. Never panics, and allocates at most a small multiple of the bytes it has read.
    pub fn parse(bytes: &[u8], file: &Path) -> Result<Header, Error> {
        let cursor = &mut Cursor::new(bytes, file);
        let version = read_version(cursor)?;
        let n_tensors = cursor.u64("the tensor count")?;
        let n_entries = cursor.u64("the metadata count")?;
        cursor.check_count(n_entries, MIN_ENTRY_BYTES, "the metadata")?;
        let mut metadata = Metadata::of_file(file);
        for _ in 0..n_entries {
            read_entry(cursor, &mut metadata)?;
        }
        let alignment = alignment(&metadata, file)?;
        cursor.check_count(n_tensors, MIN_TENSOR_BYTES, "the tensor table")?;
        let mut tensors = Vec::new();
        for _ in 0..n_tensors {
            tensors.push(read_tensor(cursor, alignment)?);
        }
        let data_offset = cursor.offset().next_multiple_of(alignment);
        place_tensors(&mut tensors, data_offset, bytes.len() as u64, file)?;
        Ok(Header {
            version,
            alignment,
            metadata,
            tensors,
            data_offset,
        })
    }
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, Error> {
    let file = cursor.file();
    let magic = cursor.take(4, "the magic")?;
    let reversed: Vec<u8> = MAGIC.iter().rev().copied().collect();
    if magic != MAGIC && magic != reversed {
        return Err(Error::UnknownFormat {
            file: file.to_owned(),
            expected: "the magic `GGUF`",
            found: format!("`{}`", magic.escape_ascii()),
        });
    }
    let version = cursor.u32("the version")?;
    // Big-endian files keep the magic's bytes and swap everything after it.
    if magic != MAGIC || (version & 0xFFFF == 0 && version != 0) {
        return Err(Error::BigEndian {
            file: file.to_owned(),
            version: version.swap_bytes(),
        });
    }
    if !(2..=3).contains(&version) {
        return Err(Error::Version {
            file: file.to_owned(),
            found: version,
        });
    }
    Ok(version)
}

fn read_bytes<'a>(cursor: &mut Cursor<'a>, limit: u64, what: &str) -> Result<&'a [u8], Error> {
    let offset = cursor.offset();
    let len = cursor.u64(what)?;
    if len > limit {
        return Err(Error::Limit {
            file: cursor.file().to_owned(),
            what: format!("the length of {what}"),
            offset,
            found: len,
            limit,
        });
    }
    cursor.take(len, what)
}

/// The name of a key or tensor. The format asks for ASCII and UTF-8. A name in another encoding is
/// needed by no one, and is escaped so that it can be shown.
fn read_name(cursor: &mut Cursor<'_>, what: &str) -> Result<String, Error> {
    let bytes = read_bytes(cursor, MAX_NAME_BYTES, what)?;
    Ok(match std::str::from_utf8(bytes) {
        Ok(name) => name.to_owned(),
        Err(_) => bytes.escape_ascii().to_string(),
    })
}

/// A text, or its bytes where they are not UTF-8: only code that needs the key reports it.
fn read_text(cursor: &mut Cursor<'_>, what: &str) -> Result<GgufValue, Error> {
    let bytes = read_bytes(cursor, u64::MAX, what)?;
    Ok(match std::str::from_utf8(bytes) {
        Ok(text) => GgufValue::Str(text.to_owned()),
        Err(_) => GgufValue::Bytes(bytes.to_owned()),
    })
}

/// `n` texts; all as bytes if one of them is not UTF-8.
fn read_texts(cursor: &mut Cursor<'_>, n: usize, what: &str) -> Result<GgufArray, Error> {
    let items = repeat(n, || read_bytes(cursor, u64::MAX, what))?;
    let texts: Result<Vec<&str>, _> = items.iter().map(|item| std::str::from_utf8(item)).collect();
    Ok(match texts {
        Ok(texts) => GgufArray::Str(texts.into_iter().map(str::to_owned).collect()),
        Err(_) => GgufArray::Bytes(items.into_iter().map(<[u8]>::to_vec).collect()),
    })
}

fn read_entry(cursor: &mut Cursor<'_>, metadata: &mut Metadata) -> Result<(), Error> {
    let key = read_name(cursor, "a metadata key")?;
    let what = format!("metadata key `{key}`");
    let type_id = cursor.u32(&what)?;
    let value = read_value(cursor, type_id, &what)?;
    if metadata.insert(key.as_str(), value).is_some() {
        return Err(Error::DuplicateKey {
            file: cursor.file().to_owned(),
            key,
        });
    }
    Ok(())
}

fn read_value(cursor: &mut Cursor<'_>, type_id: u32, what: &str) -> Result<GgufValue, Error> {
    Ok(match type_id {
        type_id::U8 => GgufValue::U8(cursor.u8(what)?),
        type_id::I8 => GgufValue::I8(cursor.i8(what)?),
        type_id::U16 => GgufValue::U16(cursor.u16(what)?),
        type_id::I16 => GgufValue::I16(cursor.i16(what)?),
        type_id::U32 => GgufValue::U32(cursor.u32(what)?),
        type_id::I32 => GgufValue::I32(cursor.i32(what)?),
        type_id::U64 => GgufValue::U64(cursor.u64(what)?),
        type_id::I64 => GgufValue::I64(cursor.i64(what)?),
        type_id::F32 => GgufValue::F32(cursor.f32(what)?),
        type_id::F64 => GgufValue::F64(cursor.f64(what)?),
        type_id::BOOL => GgufValue::Bool(read_bool(cursor, what)?),
        type_id::STR => read_text(cursor, what)?,
        type_id::ARRAY => GgufValue::Array(read_array(cursor, what, 0)?),
        _ => return Err(unknown_type(cursor, type_id, what)),
    })
}

fn unknown_type(cursor: &Cursor<'_>, type_id: u32, what: &str) -> Error {
    Error::BadField {
        file: cursor.file().to_owned(),
        what: format!("the type of {what}"),
        offset: cursor.offset() - 4,
        expected: "a number 0..=12",
        found: type_id.to_string(),
    }
}

fn read_bool(cursor: &mut Cursor<'_>, what: &str) -> Result<bool, Error> {
    match cursor.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::BadField {
            file: cursor.file().to_owned(),
            what: format!("the bool of {what}"),
            offset: cursor.offset() - 1,
            expected: "0 or 1",
            found: other.to_string(),
        }),
    }
}

fn read_array(cursor: &mut Cursor<'_>, what: &str, depth: u32) -> Result<GgufArray, Error> {
    if depth >= MAX_NESTING {
        return Err(Error::Limit {
            file: cursor.file().to_owned(),
            what: format!("the nesting of {what}"),
            offset: cursor.offset(),
            found: u64::from(depth) + 1,
            limit: u64::from(MAX_NESTING),
        });
    }
    let type_id = cursor.u32(what)?;
    let item_bytes = match type_id {
        type_id::U8 | type_id::I8 | type_id::BOOL => 1,
        type_id::U16 | type_id::I16 => 2,
        type_id::U32 | type_id::I32 | type_id::F32 => 4,
        type_id::U64 | type_id::I64 | type_id::F64 | type_id::STR => 8,
        type_id::ARRAY => 12,
        _ => return Err(unknown_type(cursor, type_id, what)),
    };
    let count = cursor.u64(what)?;
    let n = cursor.check_count(count, item_bytes, what)?;
    let c = cursor;
    Ok(match type_id {
        type_id::U8 => GgufArray::U8(c.take(count, what)?.to_vec()),
        type_id::I8 => GgufArray::I8(repeat(n, || c.i8(what))?),
        type_id::U16 => GgufArray::U16(repeat(n, || c.u16(what))?),
        type_id::I16 => GgufArray::I16(repeat(n, || c.i16(what))?),
        type_id::U32 => GgufArray::U32(repeat(n, || c.u32(what))?),
        type_id::I32 => GgufArray::I32(repeat(n, || c.i32(what))?),
        type_id::U64 => GgufArray::U64(repeat(n, || c.u64(what))?),
        type_id::I64 => GgufArray::I64(repeat(n, || c.i64(what))?),
        type_id::F32 => GgufArray::F32(repeat(n, || c.f32(what))?),
        type_id::F64 => GgufArray::F64(repeat(n, || c.f64(what))?),
        type_id::BOOL => GgufArray::Bool(repeat(n, || read_bool(c, what))?),
        type_id::STR => read_texts(c, n, what)?,
        _ => GgufArray::Array(repeat(n, || read_array(c, what, depth + 1))?),
    })
}

/// `n` items, with `n` already checked against the remaining bytes. Strings and arrays may turn out
/// longer than their least size, so their vectors grow only as items are found.
fn repeat<T>(n: usize, mut item: impl FnMut() -> Result<T, Error>) -> Result<Vec<T>, Error> {
    let mut items = Vec::with_capacity(if size_of::<T>() <= 8 { n } else { n.min(1024) });
    for _ in 0..n {
        items.push(item()?);
    }
    Ok(items)
}

/// The file's alignment: its own key's, or the default.
pub(crate) fn alignment(metadata: &Metadata, file: &Path) -> Result<u64, Error> {
    let Some(alignment) = metadata.get_u32(ALIGNMENT_KEY)? else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    if !alignment.is_power_of_two() {
        return Err(Error::KeyType {
            file: file.to_owned(),
            key: ALIGNMENT_KEY.to_owned(),
            expected: "a power of two",
            found: alignment.to_string(),
        });
    }
    Ok(u64::from(alignment))
}

/// One row of the tensor table; its offset is still relative to the data.
fn read_tensor(cursor: &mut Cursor<'_>, alignment: u64) -> Result<TensorInfo, Error> {
    let file = cursor.file();
    let name = read_name(cursor, "a tensor name")?;
    let what = format!("the entry of tensor `{name}`");
    let at = cursor.offset();
    let n_dims = cursor.u32(&what)?;
    if n_dims as usize > MAX_DIMS {
        return Err(Error::Limit {
            file: file.to_owned(),
            what: format!("the number of dimensions of tensor `{name}`"),
            offset: at,
            found: u64::from(n_dims),
            limit: MAX_DIMS as u64,
        });
    }
    let mut dims = Vec::with_capacity(MAX_DIMS);
    for _ in 0..n_dims {
        dims.push(cursor.u64(&what)?);
    }
    dims.reverse(); // The file has the fastest dimension first.
    let type_id = cursor.u32(&what)?;
    let offset = cursor.u64(&what)?;
    let tensor_type = types::from_id(type_id);
    if !offset.is_multiple_of(alignment) {
        return Err(Error::Misaligned {
            file: file.to_owned(),
            tensor: name,
            offset,
            alignment,
        });
    }
    let (shape, size_bytes) = extents::check_shape(&name, tensor_type, dims, file)?;
    Ok(TensorInfo {
        name,
        tensor_type,
        shape,
        nominal_shape: false,
        file: 0,
        offset,
        size_bytes,
    })
}

/// Makes offsets absolute, and refuses duplicates, overlaps and tensors beyond the file.
fn place_tensors(
    tensors: &mut [TensorInfo],
    data_offset: u64,
    file_bytes: u64,
    file: &Path,
) -> Result<(), Error> {
    for tensor in tensors.iter_mut() {
        // An offset that overflows is beyond any file: let the check below say so.
        tensor.offset = tensor.offset.saturating_add(data_offset);
    }
    extents::check_unique(tensors.iter().map(|tensor| tensor.name.as_str()), file)?;
    extents::give_room(tensors, file_bytes);
    extents::check_places(tensors, file_bytes, file)
}
