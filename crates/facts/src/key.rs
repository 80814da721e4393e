//! Keys: the names allowed in a file, with their ranges and the fields that they set.

use crate::unit_of;
use std::fmt;
use toml::Value;

/// A key of a record `S`.
pub struct Key<S: 'static> {
    pub(crate) path: &'static str,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) is_required: bool,
    pub(crate) reason: &'static str,
    pub(crate) field: Field<S>,
}

/// The field that a key sets.
pub(crate) enum Field<S: 'static> {
    U32(fn(&mut S) -> &mut u32),
    U64(fn(&mut S) -> &mut u64),
    F64(fn(&mut S) -> &mut f64),
    /// A number among a file's remarks: absent where the file states none.
    Maybe(fn(&mut S) -> &mut Option<f64>),
    /// A word or a list. The function sets it, or returns a description of the expected value.
    Own(fn(&mut S, &Value) -> Result<(), String>),
}

impl<S> Key<S> {
    const fn new(path: &'static str, min: f64, max: f64, field: Field<S>) -> Key<S> {
        Key {
            path,
            min,
            max,
            is_required: true,
            reason: "",
            field,
        }
    }

    /// A whole number in 32 bits.
    pub const fn u32(
        path: &'static str,
        min: u32,
        max: u32,
        field: fn(&mut S) -> &mut u32,
    ) -> Key<S> {
        Key::new(path, min as f64, max as f64, Field::U32(field))
    }

    /// A whole number in 64 bits, of at most 2^53.
    ///
    /// # Panics
    /// `max` is greater, at compile time.
    pub const fn u64(
        path: &'static str,
        min: u64,
        max: u64,
        field: fn(&mut S) -> &mut u64,
    ) -> Key<S> {
        assert!(max <= 1 << 53);
        Key::new(path, min as f64, max as f64, Field::U64(field))
    }

    /// A number.
    pub const fn f64(
        path: &'static str,
        min: f64,
        max: f64,
        field: fn(&mut S) -> &mut f64,
    ) -> Key<S> {
        Key::new(path, min, max, Field::F64(field))
    }

    /// A number of a file's remarks that may be absent.
    pub const fn maybe(
        path: &'static str,
        min: f64,
        max: f64,
        field: fn(&mut S) -> &mut Option<f64>,
    ) -> Key<S> {
        Key::new(path, min, max, Field::Maybe(field)).optional()
    }

    /// A word or a list. The function sets it, or describes the expected value and changes nothing.
    pub const fn own(
        path: &'static str,
        field: fn(&mut S, &Value) -> Result<(), String>,
    ) -> Key<S> {
        Key::new(path, 0.0, 0.0, Field::Own(field))
    }

    /// The same key, made optional: files may leave it out.
    pub const fn optional(self) -> Key<S> {
        Key {
            is_required: false,
            ..self
        }
    }

    /// The same key with the reason for its range, for error messages.
    pub const fn because(self, reason: &'static str) -> Key<S> {
        Key { reason, ..self }
    }

    /// Its dotted path (`core.data_bytes`).
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Whether a file must give it if its base does not.
    pub fn is_required(&self) -> bool {
        self.is_required
    }

    /// Sets the field.
    ///
    /// # Errors
    /// A description of the expected value; the record is unchanged then.
    pub(crate) fn put(&self, record: &mut S, value: &Value) -> Result<(), String> {
        if let Field::Own(field) = self.field {
            return field(record, value);
        }
        let is_whole = matches!(self.field, Field::U32(_) | Field::U64(_));
        let number = in_range(value, self.min, self.max).filter(|n| !is_whole || n.fract() == 0.0);
        let Some(number) = number else {
            let expected = expected(self.path, self.min, self.max, is_whole);
            return Err(match self.reason {
                "" => expected,
                reason => format!("{expected} ({reason})"),
            });
        };
        // The range is within the limits of the types: the constructors ensure it.
        match self.field {
            Field::U32(field) => *field(record) = number as u32,
            Field::U64(field) => *field(record) = number as u64,
            Field::F64(field) => *field(record) = number,
            Field::Maybe(field) => *field(record) = Some(number),
            Field::Own(_) => {}
        }
        Ok(())
    }
}

impl<S> fmt::Debug for Key<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} to {}", self.path, self.min, self.max)
    }
}

/// Keys that contain a name: `kernel.NAME.call_cycles`.
pub struct Family<S: 'static> {
    /// The beginning of the keys, without the dot (`kernel`).
    pub prefix: &'static str,
    /// The possible ends (`call_cycles`).
    pub fields: &'static [&'static str],
    /// The least value of all of them.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The field of a name, created if the name is new. The last argument is one of `fields`.
    pub field: for<'s> fn(&'s mut S, &str, &str) -> Option<&'s mut f64>,
}

impl<S> fmt::Debug for Family<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pattern())
    }
}

impl<S> Family<S> {
    /// Name and field of a key of this family. The name may contain dots.
    pub(crate) fn split<'k>(&self, key: &'k str) -> Option<(&'k str, &'k str)> {
        let rest = key.strip_prefix(self.prefix)?.strip_prefix('.')?;
        let (name, field) = rest.rsplit_once('.')?;
        (!name.is_empty() && self.fields.contains(&field)).then_some((name, field))
    }

    /// Whether a key has a name and a field after the prefix, even if no such field exists.
    pub(crate) fn has_name_and_field(&self, key: &str) -> bool {
        let rest = key.strip_prefix(self.prefix);
        let rest = rest.and_then(|rest| rest.strip_prefix('.'));
        rest.is_some_and(|rest| rest.contains('.'))
    }

    /// The pattern of its keys, in words.
    pub(crate) fn pattern(&self) -> String {
        let fields = match self.fields {
            [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
            fields => fields.concat(),
        };
        format!("{}.NAME.FIELD with {fields}", self.prefix)
    }

    pub(crate) fn put(&self, record: &mut S, key: &str, value: &Value) -> Result<(), String> {
        let number = in_range(value, self.min, self.max);
        let expected = || expected(key, self.min, self.max, false);
        let number = number.ok_or_else(expected)?;
        let (name, field) = self.split(key).ok_or_else(|| self.pattern())?;
        *(self.field)(record, name, field).ok_or_else(|| self.pattern())? = number;
        Ok(())
    }
}

/// A finite number within that range.
fn in_range(value: &Value, min: f64, max: f64) -> Option<f64> {
    let number = match value {
        Value::Integer(whole) => *whole as f64,
        Value::Float(number) => *number,
        _ => return None,
    };
    (min..=max).contains(&number).then_some(number)
}

fn expected(path: &str, min: f64, max: f64, is_whole: bool) -> String {
    let whole = if is_whole { "whole " } else { "" };
    let unit = unit_of(path).map_or(String::new(), |unit| format!(" {unit}"));
    format!("a {whole}number from {min} to {max}{unit}")
}
