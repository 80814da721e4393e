//! Typed reads of a JSON object.

use serde_json::{Map, Value};

use crate::Error;

/// A JSON object of hyperparameters, with typed reads that name file and key when they fail.
#[derive(Clone, Copy)]
pub(crate) struct ConfigObject<'a> {
    pub(crate) file: &'a str,
    pub(crate) map: &'a Map<String, Value>,
}

impl<'a> ConfigObject<'a> {
    /// The value of `key`; `null` counts as absent.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let wrong = || self.bad(key, value, expected);
        read(value).ok_or_else(wrong).map(Some)
    }

    pub(crate) fn usize(&self, key: &str) -> Result<Option<usize>, Error> {
        let read = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
        self.typed(key, "a whole number", read)
    }

    /// A list of sizes.
    pub(crate) fn usizes(&self, key: &str) -> Result<Option<Vec<usize>>, Error> {
        let size = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
        let sizes = |value: &Value| value.as_array()?.iter().map(size).collect();
        self.typed(key, "a list of whole numbers", sizes)
    }

    /// A list of numbers.
    pub(crate) fn f64s(&self, key: &str) -> Result<Option<Vec<f64>>, Error> {
        let numbers = |value: &Value| value.as_array()?.iter().map(Value::as_f64).collect();
        self.typed(key, "a list of numbers", numbers)
    }

    pub(crate) fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.typed(key, "a number", |value| value.as_f64().map(|x| x as f32))
    }

    pub(crate) fn f64(&self, key: &str) -> Result<Option<f64>, Error> {
        self.typed(key, "a number", Value::as_f64)
    }

    pub(crate) fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(crate) fn str(&self, key: &str) -> Result<Option<&'a str>, Error> {
        self.typed(key, "a string", Value::as_str)
    }

    pub(crate) fn array(&self, key: &str) -> Result<Option<&'a Vec<Value>>, Error> {
        self.typed(key, "a list", Value::as_array)
    }

    pub(crate) fn object(&self, key: &str) -> Result<Option<ConfigObject<'a>>, Error> {
        let file = self.file;
        self.typed(key, "an object", |value| {
            value.as_object().map(|map| ConfigObject { file, map })
        })
    }

    pub(crate) fn bad(&self, key: &str, found: &Value, expected: &str) -> Error {
        // A hostile value can be megabytes long; its beginning is enough to find it.
        let found: String = found.to_string().chars().take(80).collect();
        let (file, key, expected) = (self.file.into(), key.into(), expected.into());
        Error::BadValue {
            file,
            key,
            found,
            expected,
        }
    }

    pub(crate) fn unsupported(&self, feature: String, supported: &str) -> Error {
        Error::Unsupported {
            file: self.file.into(),
            feature,
            supported: supported.into(),
        }
    }
}
