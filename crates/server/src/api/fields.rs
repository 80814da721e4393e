//! Reading requests: unknown fields are ignored, and errors about invalid ones name the expected value.

use serde_json::{Map, Value};

use super::error::ApiError;

/// A JSON object of a request, with its path.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    object: &'a Map<String, Value>,
    path: String,
}

type Result<T> = std::result::Result<T, ApiError>;

impl<'a> Fields<'a> {
    /// The top-level object of a request.
    pub(crate) fn of(body: &'a Value) -> Result<Fields<'a>> {
        match body.as_object() {
            Some(object) => Ok(Fields {
                object,
                path: String::new(),
            }),
            None => Err(ApiError::bad(format!(
                "the body must be a JSON object, found {}",
                kind(body)
            ))),
        }
    }

    /// An object at a path.
    pub(crate) fn at(value: &'a Value, path: String) -> Result<Fields<'a>> {
        match value.as_object() {
            Some(object) => Ok(Fields { object, path }),
            None => Err(wrong(&path, "an object", value)),
        }
    }

    /// The path of a field.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// A field that is present and not null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    fn read<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(wrong(&self.path(name), expected, value)),
        }
    }

    /// Requires the field to be present.
    pub(crate) fn need<T>(&self, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| ApiError::field(&self.path(name), "this field is required"))
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>> {
        self.read(name, "a string", Value::as_str)
    }

    pub(crate) fn bool(&self, name: &str) -> Result<Option<bool>> {
        self.read(name, "true or false", Value::as_bool)
    }

    pub(crate) fn f32(&self, name: &str) -> Result<Option<f32>> {
        self.read(name, "a number", |value| {
            value.as_f64().map(|number| number as f32)
        })
    }

    /// A number within a range.
    pub(crate) fn f32_in(&self, name: &str, least: f32, most: f32) -> Result<Option<f32>> {
        let expected = format!("a number from {least} to {most}");
        self.read(name, &expected, |value| {
            let number = value.as_f64()? as f32;
            (least..=most).contains(&number).then_some(number)
        })
    }

    pub(crate) fn usize(&self, name: &str) -> Result<Option<usize>> {
        self.read(name, "a whole number, not negative", |value| {
            usize::try_from(natural(value)?).ok()
        })
    }

    /// A limit: -1 and -2 mean no limit, as does an absent field.
    pub(crate) fn limit(&self, name: &str) -> Result<Option<usize>> {
        let expected = "a whole number, or -1 for no limit";
        let limit = self.read(name, expected, |value| match whole(value) {
            Some(-1 | -2) => Some(None),
            _ => Some(Some(usize::try_from(natural(value)?).ok()?)),
        })?;
        Ok(limit.flatten())
    }

    /// A whole number within a range.
    pub(crate) fn usize_in(&self, name: &str, least: usize, most: usize) -> Result<Option<usize>> {
        let expected = format!("a whole number from {least} to {most}");
        self.read(name, &expected, |value| {
            let number = usize::try_from(natural(value)?).ok()?;
            (least..=most).contains(&number).then_some(number)
        })
    }

    pub(crate) fn i64(&self, name: &str) -> Result<Option<i64>> {
        self.read(name, "a whole number", whole)
    }

    pub(crate) fn list(&self, name: &str) -> Result<Option<&'a [Value]>> {
        self.read(name, "a list", |value| value.as_array().map(Vec::as_slice))
    }

    pub(crate) fn object(&self, name: &str) -> Result<Option<Fields<'a>>> {
        let value = self.get(name);
        value
            .map(|value| Fields::at(value, self.path(name)))
            .transpose()
    }

    /// The names and values.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.object.iter()
    }

    /// Refuses fields whose effect this server does not have, unless they are false, empty or null. They would
    /// otherwise be ignored silently.
    pub(crate) fn refuse(&self, names: &[(&str, &str)]) -> Result<()> {
        for (name, instead) in names {
            let asks = self.get(name).is_some_and(|value| match value {
                Value::Bool(asks) => *asks,
                Value::Array(list) => !list.is_empty(),
                Value::Object(object) => !object.is_empty(),
                Value::String(text) => !text.is_empty(),
                _ => true,
            });
            if asks {
                let message = format!("this server does not support it; {instead}");
                return Err(ApiError::field(&self.path(name), message));
            }
        }
        Ok(())
    }
}

/// A whole number, which clients without integers write as `3.0`.
fn whole(value: &Value) -> Option<i64> {
    // Beyond this bound, f64 cannot represent every whole number.
    let is_exact = |n: &f64| n.fract() == 0.0 && n.abs() <= (1_u64 << 53) as f64;
    let float = || value.as_f64().filter(is_exact).map(|n| n as i64);
    value.as_i64().or_else(float)
}

/// A whole number that is not negative, or written as `3.0`.
pub(crate) fn natural(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| u64::try_from(whole(value)?).ok())
}

/// Error about a value of an unexpected kind.
pub(crate) fn wrong(path: &str, expected: &str, found: &Value) -> ApiError {
    ApiError::field(path, format!("expected {expected}, found {}", shown(found)))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().count() > 40 => "a long string".to_owned(),
        Value::Array(_) | Value::Object(_) => kind(value).to_owned(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wrong_fields_are_named_and_others_left_alone() {
        let body = json!({"temperature": "hot", "n": 0, "inner": {"flag": 1}, "stranger": [], "max": null});
        let fields = Fields::of(&body).unwrap();
        let message = |error: ApiError| (error.param.unwrap(), error.message);
        assert_eq!(
            message(fields.f32("temperature").unwrap_err()),
            (
                "temperature".into(),
                "temperature: expected a number, found \"hot\"".into()
            )
        );
        assert_eq!(
            fields.usize_in("n", 1, 8).unwrap_err().message,
            "n: expected a whole number from 1 to 8, found 0"
        );
        let inner = fields.object("inner").unwrap().unwrap();
        assert_eq!(inner.bool("flag").unwrap_err().param.unwrap(), "inner.flag");
        assert_eq!(fields.usize("max").unwrap(), None);
        assert!(fields.need("model", fields.text("model").unwrap()).is_err());
    }

    #[test]
    fn limits_and_whole_numbers_are_read_as_clients_write_them() {
        for (value, limit) in [
            (json!(-1), Some(None)),
            (json!(-2), Some(None)),
            (json!(-1.0), Some(None)),
            (json!(null), Some(None)),
            (json!(5), Some(Some(5))),
            (json!(5.0), Some(Some(5))),
            (json!(0), Some(Some(0))),
            (json!(-3), None),
            (json!(1.5), None),
            (json!("5"), None),
            (json!(1e300), None),
        ] {
            let body = json!({"max_tokens": value});
            let found = Fields::of(&body).unwrap().limit("max_tokens");
            assert_eq!(found.ok(), limit, "{value}");
        }
        let body = json!({"n": 3.0, "k": -1.0, "x": u64::MAX});
        let fields = Fields::of(&body).unwrap();
        assert_eq!(fields.usize_in("n", 1, 8).unwrap(), Some(3));
        assert_eq!(fields.i64("k").unwrap(), Some(-1));
        assert_eq!(fields.usize("x").unwrap(), Some(usize::MAX));
        assert!(fields.usize("k").is_err());
    }

    #[test]
    fn what_has_no_effect_is_refused_only_if_it_is_asked_for() {
        let body = json!({"echo": false, "suffix": "x"});
        let fields = Fields::of(&body).unwrap();
        assert!(fields.refuse(&[("echo", "leave it out")]).is_ok());
        let error = fields.refuse(&[("suffix", "leave it out")]).unwrap_err();
        assert_eq!(
            error.message,
            "suffix: this server does not support it; leave it out"
        );
    }
}
