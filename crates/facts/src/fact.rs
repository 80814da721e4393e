//! A value with where it comes from.

use crate::unit_of;
use std::fmt;
use toml::Value;

/// A value with where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Dotted key (`ddr.read_gb_per_s`).
    pub key: String,
    /// The value, in the unit that the key ends with.
    pub value: Datum,
    /// How a constant was come by; `None` for a fact of the hardware that no one changed.
    pub origin: Option<Origin>,
    /// Ids of the measured rows that it is fitted on.
    pub rows: Vec<String>,
    /// The source, or how it was fitted. Empty only for values of one's own.
    pub source: String,
    /// What contradicts it, or what it is derived from; may be empty.
    pub note: String,
}

impl Fact {
    /// Whether it was come by so.
    pub fn is(&self, origin: Origin) -> bool {
        self.origin == Some(origin)
    }

    /// Its unit (`GB/s`), if the key names one.
    pub fn unit(&self) -> Option<&'static str> {
        unit_of(&self.key)
    }
}

/// What a fact says.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    /// A number.
    Number(f64),
    /// A word or a list, as written.
    Text(String),
}

impl Datum {
    pub(crate) fn of(value: &Value) -> Datum {
        match value {
            Value::Integer(whole) => Datum::Number(*whole as f64),
            Value::Float(number) => Datum::Number(*number),
            Value::String(text) => Datum::Text(text.clone()),
            other => Datum::Text(other.to_string()),
        }
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Datum::Number(number) => Some(*number),
            Datum::Text(_) => None,
        }
    }
}

impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Datum::Number(number) => number.fmt(f),
            Datum::Text(text) => f.write_str(text),
        }
    }
}

/// How a constant was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A source states it.
    Published,
    /// Arithmetic on what sources state.
    Derived,
    /// Fitted on measured rows.
    Fitted,
    /// Nobody states it.
    Assumed,
    /// Given by hand.
    Set,
}

impl Origin {
    /// Those that a file can name.
    pub const NAMED: [Origin; 4] = [
        Origin::Published,
        Origin::Derived,
        Origin::Fitted,
        Origin::Assumed,
    ];

    /// The word in files.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Published => "published",
            Origin::Derived => "derived",
            Origin::Fitted => "fitted",
            Origin::Assumed => "assumed",
            Origin::Set => "set",
        }
    }
}

/// Ids of the rows that any of the constants is fitted on, sorted, each once.
pub fn calibration_rows(facts: &[Fact]) -> Vec<&str> {
    let rows = facts.iter().flat_map(|fact| &fact.rows);
    let mut rows: Vec<&str> = rows.map(String::as_str).collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}
