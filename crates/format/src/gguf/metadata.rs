//! The ordered key–value metadata of a GGUF file, with typed getters.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::value::{GgufArray, GgufValue};
use crate::Error;

/// Keys and values in file order; no key twice.
///
/// Getters return `Ok(None)` for an absent key and an error that names key, expected and found type
/// for a present one of the wrong type. Any integer type is accepted where its value fits: writers
/// differ in the width they choose.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, GgufValue)>,
    index: HashMap<String, usize>,
    file: PathBuf,
}

impl Metadata {
    /// Empty metadata, to be filled and written.
    pub fn new() -> Metadata {
        Metadata::default()
    }

    /// Empty metadata whose errors name `file`.
    pub(crate) fn of_file(file: &Path) -> Metadata {
        Metadata {
            file: file.to_owned(),
            ..Metadata::default()
        }
    }

    /// Sets a key; one that exists keeps its place and gets the new value, and the old is returned.
    pub fn insert(
        &mut self,
        key: impl Into<String>,
        value: impl Into<GgufValue>,
    ) -> Option<GgufValue> {
        let (key, value) = (key.into(), value.into());
        match self.index.get(&key) {
            Some(&i) => Some(std::mem::replace(&mut self.entries[i].1, value)),
            None => {
                self.index.insert(key.clone(), self.entries.len());
                self.entries.push((key, value));
                None
            }
        }
    }

    /// Removes every key for which `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.entries.retain(|(key, _)| keep(key));
        self.index.clear();
        let order = self.entries.iter().enumerate();
        self.index
            .extend(order.map(|(i, (key, _))| (key.clone(), i)));
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys and values in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &GgufValue)> {
        self.entries
            .iter()
            .map(|(key, value)| (key.as_str(), value))
    }

    /// The value of a key, of any type.
    pub fn get(&self, key: &str) -> Option<&GgufValue> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    fn wrong_type(&self, key: &str, expected: &'static str, found: String) -> Error {
        Error::KeyType {
            file: self.file.clone(),
            key: key.to_owned(),
            expected,
            found,
        }
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a GgufValue) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(self.wrong_type(key, expected, value.describe())),
        }
    }

    /// `value`, or the error that `key` is missing: for keys that a model needs.
    ///
    /// # Errors
    /// [`Error::MissingKey`].
    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, Error> {
        value.ok_or_else(|| Error::MissingKey {
            file: self.file.clone(),
            key: key.to_owned(),
        })
    }

    /// An integer that fits `u32`.
    ///
    /// # Errors
    /// [`Error::KeyType`], as for every getter.
    pub fn get_u32(&self, key: &str) -> Result<Option<u32>, Error> {
        self.typed(key, "an integer 0..2^32", |v| v.as_int()?.try_into().ok())
    }

    /// An integer that fits `u64`.
    ///
    /// # Errors
    /// [`Error::KeyType`].
    pub fn get_u64(&self, key: &str) -> Result<Option<u64>, Error> {
        self.typed(key, "an integer 0..2^64", |v| v.as_int()?.try_into().ok())
    }

    /// An integer that fits `usize`.
    ///
    /// # Errors
    /// [`Error::KeyType`].
    pub fn get_usize(&self, key: &str) -> Result<Option<usize>, Error> {
        self.typed(key, "a size", |v| v.as_int()?.try_into().ok())
    }

    /// An integer that fits `i32`.
    ///
    /// # Errors
    /// [`Error::KeyType`].
    pub fn get_i32(&self, key: &str) -> Result<Option<i32>, Error> {
        self.typed(key, "an integer -2^31..2^31", |v| {
            v.as_int()?.try_into().ok()
        })
    }

    /// A float of either width.
    ///
    /// # Errors
    /// [`Error::KeyType`].
    pub fn get_f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.typed(key, "a float", |v| match *v {
            GgufValue::F32(v) => Some(v),
            GgufValue::F64(v) => Some(v as f32),
            _ => None,
        })
    }

    /// A boolean.
    ///
    /// # Errors
    /// [`Error::KeyType`].
    pub fn get_bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "a bool", |v| match *v {
            GgufValue::Bool(v) => Some(v),
            _ => None,
        })
    }

    /// A string.
    ///
    /// # Errors
    /// [`Error::KeyType`].
    pub fn get_str(&self, key: &str) -> Result<Option<&str>, Error> {
        self.typed(key, "a string", |v| match v {
            GgufValue::Str(v) => Some(v.as_str()),
            _ => None,
        })
    }

    /// An array of any type.
    ///
    /// # Errors
    /// [`Error::KeyType`].
    pub fn get_array(&self, key: &str) -> Result<Option<&GgufArray>, Error> {
        self.typed(key, "an array", |v| match v {
            GgufValue::Array(v) => Some(v),
            _ => None,
        })
    }

    /// An array of strings.
    ///
    /// # Errors
    /// [`Error::KeyType`].
    pub fn get_str_array(&self, key: &str) -> Result<Option<&[String]>, Error> {
        self.typed(key, "an array of strings", |v| match v {
            GgufValue::Array(GgufArray::Str(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of floats of either width.
    ///
    /// # Errors
    /// [`Error::KeyType`].
    pub fn get_f32_array(&self, key: &str) -> Result<Option<Vec<f32>>, Error> {
        self.typed(key, "an array of floats", |v| match v {
            GgufValue::Array(GgufArray::F32(v)) => Some(v.clone()),
            GgufValue::Array(GgufArray::F64(v)) => Some(v.iter().map(|&v| v as f32).collect()),
            _ => None,
        })
    }

    /// An array of integers that all fit `i32`.
    ///
    /// # Errors
    /// [`Error::KeyType`].
    pub fn get_i32_array(&self, key: &str) -> Result<Option<Vec<i32>>, Error> {
        self.typed(key, "an array of integers -2^31..2^31", int_array)
    }

    /// An array of integers that all fit `u32`.
    ///
    /// # Errors
    /// [`Error::KeyType`].
    pub fn get_u32_array(&self, key: &str) -> Result<Option<Vec<u32>>, Error> {
        self.typed(key, "an array of integers 0..2^32", int_array)
    }

    /// An array of bytes, which files write as integers of 8 bits with or without a sign.
    ///
    /// # Errors
    /// [`Error::KeyType`].
    pub fn get_byte_array(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.typed(key, "an array of bytes", |v| match v {
            GgufValue::Array(GgufArray::U8(v)) => Some(v.clone()),
            GgufValue::Array(GgufArray::I8(v)) => Some(v.iter().map(|&v| v as u8).collect()),
            _ => None,
        })
    }

    /// An array of booleans.
    ///
    /// # Errors
    /// [`Error::KeyType`].
    pub fn get_bool_array(&self, key: &str) -> Result<Option<&[bool]>, Error> {
        self.typed(key, "an array of bools", |v| match v {
            GgufValue::Array(GgufArray::Bool(v)) => Some(v.as_slice()),
            _ => None,
        })
    }
}

/// The items of an integer array, if all fit `T`.
fn int_array<T>(value: &GgufValue) -> Option<Vec<T>>
where
    T: TryFrom<u8> + TryFrom<i8> + TryFrom<u16> + TryFrom<i16>,
    T: TryFrom<u32> + TryFrom<i32> + TryFrom<u64> + TryFrom<i64>,
{
    fn fit<S: Copy, T: TryFrom<S>>(items: &[S]) -> Option<Vec<T>> {
        items.iter().map(|&v| T::try_from(v).ok()).collect()
    }
    let GgufValue::Array(array) = value else {
        return None;
    };
    match array {
        GgufArray::U8(v) => fit(v),
        GgufArray::I8(v) => fit(v),
        GgufArray::U16(v) => fit(v),
        GgufArray::I16(v) => fit(v),
        GgufArray::U32(v) => fit(v),
        GgufArray::I32(v) => fit(v),
        GgufArray::U64(v) => fit(v),
        GgufArray::I64(v) => fit(v),
        _ => None,
    }
}
