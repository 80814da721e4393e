//! Metadata values of a GGUF file and the numbers that name their types.

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // The names are the documentation.
pub enum GgufValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Str(String),
    /// A string that is not UTF-8, as its bytes.
    Bytes(Vec<u8>),
    Array(GgufArray),
}

/// A metadata array: every item of the same type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // The names are the documentation.
pub enum GgufArray {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    Str(Vec<String>),
    /// Strings some of which are not UTF-8, as their bytes.
    Bytes(Vec<Vec<u8>>),
    Array(Vec<GgufArray>),
}

/// The number that names a value's type in the file.
pub(crate) mod type_id {
    pub(crate) const U8: u32 = 0;
    pub(crate) const I8: u32 = 1;
    pub(crate) const U16: u32 = 2;
    pub(crate) const I16: u32 = 3;
    pub(crate) const U32: u32 = 4;
    pub(crate) const I32: u32 = 5;
    pub(crate) const F32: u32 = 6;
    pub(crate) const BOOL: u32 = 7;
    pub(crate) const STR: u32 = 8;
    pub(crate) const ARRAY: u32 = 9;
    pub(crate) const U64: u32 = 10;
    pub(crate) const I64: u32 = 11;
    pub(crate) const F64: u32 = 12;
}

impl GgufValue {
    /// The type's name: `u32`, `str`, `array of str`.
    pub fn type_name(&self) -> &'static str {
        match self {
            GgufValue::U8(_) => "u8",
            GgufValue::I8(_) => "i8",
            GgufValue::U16(_) => "u16",
            GgufValue::I16(_) => "i16",
            GgufValue::U32(_) => "u32",
            GgufValue::I32(_) => "i32",
            GgufValue::U64(_) => "u64",
            GgufValue::I64(_) => "i64",
            GgufValue::F32(_) => "f32",
            GgufValue::F64(_) => "f64",
            GgufValue::Bool(_) => "bool",
            GgufValue::Str(_) => "str",
            GgufValue::Bytes(_) => "str (not UTF-8)",
            GgufValue::Array(array) => array.type_name(),
        }
    }

    /// Any integer type, widened.
    pub fn as_int(&self) -> Option<i128> {
        Some(match *self {
            GgufValue::U8(v) => v.into(),
            GgufValue::I8(v) => v.into(),
            GgufValue::U16(v) => v.into(),
            GgufValue::I16(v) => v.into(),
            GgufValue::U32(v) => v.into(),
            GgufValue::I32(v) => v.into(),
            GgufValue::U64(v) => v.into(),
            GgufValue::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// Type and value for a message; long ones by type only.
    pub(crate) fn describe(&self) -> String {
        match self {
            GgufValue::Str(text) if text.len() <= 40 => format!("str {text:?}"),
            GgufValue::Bytes(bytes) => not_utf8(bytes),
            GgufValue::Array(GgufArray::Bytes(items)) => {
                let bad = items.iter().position(|item| str::from_utf8(item).is_err());
                let i = bad.unwrap_or_default();
                format!("item {i}, {}", not_utf8(&items[i]))
            }
            GgufValue::F32(v) => format!("f32 {v}"),
            GgufValue::F64(v) => format!("f64 {v}"),
            GgufValue::Bool(v) => format!("bool {v}"),
            GgufValue::Array(array) => format!("{} ({} items)", array.type_name(), array.len()),
            other => match other.as_int() {
                Some(v) => format!("{} {v}", other.type_name()),
                None => other.type_name().to_owned(),
            },
        }
    }

    pub(crate) fn type_id(&self) -> u32 {
        match self {
            GgufValue::U8(_) => type_id::U8,
            GgufValue::I8(_) => type_id::I8,
            GgufValue::U16(_) => type_id::U16,
            GgufValue::I16(_) => type_id::I16,
            GgufValue::U32(_) => type_id::U32,
            GgufValue::I32(_) => type_id::I32,
            GgufValue::U64(_) => type_id::U64,
            GgufValue::I64(_) => type_id::I64,
            GgufValue::F32(_) => type_id::F32,
            GgufValue::F64(_) => type_id::F64,
            GgufValue::Bool(_) => type_id::BOOL,
            GgufValue::Str(_) | GgufValue::Bytes(_) => type_id::STR,
            GgufValue::Array(_) => type_id::ARRAY,
        }
    }
}

impl GgufArray {
    /// Number of items.
    pub fn len(&self) -> usize {
        match self {
            GgufArray::U8(items) => items.len(),
            GgufArray::I8(items) => items.len(),
            GgufArray::U16(items) => items.len(),
            GgufArray::I16(items) => items.len(),
            GgufArray::U32(items) => items.len(),
            GgufArray::I32(items) => items.len(),
            GgufArray::U64(items) => items.len(),
            GgufArray::I64(items) => items.len(),
            GgufArray::F32(items) => items.len(),
            GgufArray::F64(items) => items.len(),
            GgufArray::Bool(items) => items.len(),
            GgufArray::Str(items) => items.len(),
            GgufArray::Bytes(items) => items.len(),
            GgufArray::Array(items) => items.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type's name: `array of u32`.
    pub fn type_name(&self) -> &'static str {
        match self {
            GgufArray::U8(_) => "array of u8",
            GgufArray::I8(_) => "array of i8",
            GgufArray::U16(_) => "array of u16",
            GgufArray::I16(_) => "array of i16",
            GgufArray::U32(_) => "array of u32",
            GgufArray::I32(_) => "array of i32",
            GgufArray::U64(_) => "array of u64",
            GgufArray::I64(_) => "array of i64",
            GgufArray::F32(_) => "array of f32",
            GgufArray::F64(_) => "array of f64",
            GgufArray::Bool(_) => "array of bool",
            GgufArray::Str(_) => "array of str",
            GgufArray::Bytes(_) => "array of str (not UTF-8)",
            GgufArray::Array(_) => "array of arrays",
        }
    }

    /// The item at `i`, copied out; `None` past the end.
    pub fn get(&self, i: usize) -> Option<GgufValue> {
        Some(match self {
            GgufArray::U8(items) => GgufValue::U8(*items.get(i)?),
            GgufArray::I8(items) => GgufValue::I8(*items.get(i)?),
            GgufArray::U16(items) => GgufValue::U16(*items.get(i)?),
            GgufArray::I16(items) => GgufValue::I16(*items.get(i)?),
            GgufArray::U32(items) => GgufValue::U32(*items.get(i)?),
            GgufArray::I32(items) => GgufValue::I32(*items.get(i)?),
            GgufArray::U64(items) => GgufValue::U64(*items.get(i)?),
            GgufArray::I64(items) => GgufValue::I64(*items.get(i)?),
            GgufArray::F32(items) => GgufValue::F32(*items.get(i)?),
            GgufArray::F64(items) => GgufValue::F64(*items.get(i)?),
            GgufArray::Bool(items) => GgufValue::Bool(*items.get(i)?),
            GgufArray::Str(items) => GgufValue::Str(items.get(i)?.clone()),
            GgufArray::Bytes(items) => GgufValue::Bytes(items.get(i)?.clone()),
            GgufArray::Array(items) => GgufValue::Array(items.get(i)?.clone()),
        })
    }

    pub(crate) fn type_id(&self) -> u32 {
        match self {
            GgufArray::U8(_) => type_id::U8,
            GgufArray::I8(_) => type_id::I8,
            GgufArray::U16(_) => type_id::U16,
            GgufArray::I16(_) => type_id::I16,
            GgufArray::U32(_) => type_id::U32,
            GgufArray::I32(_) => type_id::I32,
            GgufArray::U64(_) => type_id::U64,
            GgufArray::I64(_) => type_id::I64,
            GgufArray::F32(_) => type_id::F32,
            GgufArray::F64(_) => type_id::F64,
            GgufArray::Bool(_) => type_id::BOOL,
            GgufArray::Str(_) | GgufArray::Bytes(_) => type_id::STR,
            GgufArray::Array(_) => type_id::ARRAY,
        }
    }
}

/// A string that is not UTF-8, for a message: where it fails, and its readable start.
fn not_utf8(bytes: &[u8]) -> String {
    let at = str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
    let start = &bytes[..bytes.len().min(40)];
    format!(
        "a string that is not UTF-8 from its byte {at} on: \"{}\"",
        start.escape_ascii()
    )
}

macro_rules! from_number {
    ($($type:ty => $variant:ident),*) => {$(
        impl From<$type> for GgufValue {
            fn from(v: $type) -> GgufValue {
                GgufValue::$variant(v)
            }
        }
        impl From<Vec<$type>> for GgufValue {
            fn from(v: Vec<$type>) -> GgufValue {
                GgufValue::Array(GgufArray::$variant(v))
            }
        }
    )*};
}

from_number!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64,
    i64 => I64, f32 => F32, f64 => F64, bool => Bool, String => Str);

impl From<&str> for GgufValue {
    fn from(v: &str) -> GgufValue {
        GgufValue::Str(v.to_owned())
    }
}
