//! Metadata values of a GGUF file and the numbers that name their types.

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // The names are the documentation.
pub enum Value {
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
    Array(Array),
}

/// A metadata array: every item of the same type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // The names are the documentation.
pub enum Array {
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
    Array(Vec<Array>),
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

impl Value {
    /// The type's name: `u32`, `str`, `array of str`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::U8(_) => "u8",
            Value::I8(_) => "i8",
            Value::U16(_) => "u16",
            Value::I16(_) => "i16",
            Value::U32(_) => "u32",
            Value::I32(_) => "i32",
            Value::U64(_) => "u64",
            Value::I64(_) => "i64",
            Value::F32(_) => "f32",
            Value::F64(_) => "f64",
            Value::Bool(_) => "bool",
            Value::Str(_) => "str",
            Value::Bytes(_) => "str (not UTF-8)",
            Value::Array(array) => array.type_name(),
        }
    }

    /// Any integer type, widened.
    pub fn as_int(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// Type and value for a message; long ones by type only.
    pub(crate) fn describe(&self) -> String {
        match self {
            Value::Str(text) if text.len() <= 40 => format!("str {text:?}"),
            Value::Bytes(bytes) => not_utf8(bytes),
            Value::Array(Array::Bytes(items)) => {
                let bad = items.iter().position(|item| str::from_utf8(item).is_err());
                let i = bad.unwrap_or_default();
                format!("item {i}, {}", not_utf8(&items[i]))
            }
            Value::F32(v) => format!("f32 {v}"),
            Value::F64(v) => format!("f64 {v}"),
            Value::Bool(v) => format!("bool {v}"),
            Value::Array(array) => format!("{} ({} items)", array.type_name(), array.len()),
            other => match other.as_int() {
                Some(v) => format!("{} {v}", other.type_name()),
                None => other.type_name().to_owned(),
            },
        }
    }

    pub(crate) fn type_id(&self) -> u32 {
        match self {
            Value::U8(_) => type_id::U8,
            Value::I8(_) => type_id::I8,
            Value::U16(_) => type_id::U16,
            Value::I16(_) => type_id::I16,
            Value::U32(_) => type_id::U32,
            Value::I32(_) => type_id::I32,
            Value::U64(_) => type_id::U64,
            Value::I64(_) => type_id::I64,
            Value::F32(_) => type_id::F32,
            Value::F64(_) => type_id::F64,
            Value::Bool(_) => type_id::BOOL,
            Value::Str(_) | Value::Bytes(_) => type_id::STR,
            Value::Array(_) => type_id::ARRAY,
        }
    }
}

impl Array {
    /// Number of items.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(items) => items.len(),
            Array::I8(items) => items.len(),
            Array::U16(items) => items.len(),
            Array::I16(items) => items.len(),
            Array::U32(items) => items.len(),
            Array::I32(items) => items.len(),
            Array::U64(items) => items.len(),
            Array::I64(items) => items.len(),
            Array::F32(items) => items.len(),
            Array::F64(items) => items.len(),
            Array::Bool(items) => items.len(),
            Array::Str(items) => items.len(),
            Array::Bytes(items) => items.len(),
            Array::Array(items) => items.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type's name: `array of u32`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Array::U8(_) => "array of u8",
            Array::I8(_) => "array of i8",
            Array::U16(_) => "array of u16",
            Array::I16(_) => "array of i16",
            Array::U32(_) => "array of u32",
            Array::I32(_) => "array of i32",
            Array::U64(_) => "array of u64",
            Array::I64(_) => "array of i64",
            Array::F32(_) => "array of f32",
            Array::F64(_) => "array of f64",
            Array::Bool(_) => "array of bool",
            Array::Str(_) => "array of str",
            Array::Bytes(_) => "array of str (not UTF-8)",
            Array::Array(_) => "array of arrays",
        }
    }

    /// The item at `i`, copied out; `None` past the end.
    pub fn get(&self, i: usize) -> Option<Value> {
        Some(match self {
            Array::U8(items) => Value::U8(*items.get(i)?),
            Array::I8(items) => Value::I8(*items.get(i)?),
            Array::U16(items) => Value::U16(*items.get(i)?),
            Array::I16(items) => Value::I16(*items.get(i)?),
            Array::U32(items) => Value::U32(*items.get(i)?),
            Array::I32(items) => Value::I32(*items.get(i)?),
            Array::U64(items) => Value::U64(*items.get(i)?),
            Array::I64(items) => Value::I64(*items.get(i)?),
            Array::F32(items) => Value::F32(*items.get(i)?),
            Array::F64(items) => Value::F64(*items.get(i)?),
            Array::Bool(items) => Value::Bool(*items.get(i)?),
            Array::Str(items) => Value::Str(items.get(i)?.clone()),
            Array::Bytes(items) => Value::Bytes(items.get(i)?.clone()),
            Array::Array(items) => Value::Array(items.get(i)?.clone()),
        })
    }

    pub(crate) fn type_id(&self) -> u32 {
        match self {
            Array::U8(_) => type_id::U8,
            Array::I8(_) => type_id::I8,
            Array::U16(_) => type_id::U16,
            Array::I16(_) => type_id::I16,
            Array::U32(_) => type_id::U32,
            Array::I32(_) => type_id::I32,
            Array::U64(_) => type_id::U64,
            Array::I64(_) => type_id::I64,
            Array::F32(_) => type_id::F32,
            Array::F64(_) => type_id::F64,
            Array::Bool(_) => type_id::BOOL,
            Array::Str(_) | Array::Bytes(_) => type_id::STR,
            Array::Array(_) => type_id::ARRAY,
        }
    }
}

/// A string that is not UTF-8, for a message: where it fails, and what can be read of it.
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
        impl From<$type> for Value {
            fn from(v: $type) -> Value {
                Value::$variant(v)
            }
        }
        impl From<Vec<$type>> for Value {
            fn from(v: Vec<$type>) -> Value {
                Value::Array(Array::$variant(v))
            }
        }
    )*};
}

from_number!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64,
    i64 => I64, f32 => F32, f64 => F64, bool => Bool, String => Str);

impl From<&str> for Value {
    fn from(v: &str) -> Value {
        Value::Str(v.to_owned())
    }
}
