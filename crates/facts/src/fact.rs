//! A value with its source and origin.

use crate::unit_of;
use std::fmt;
use toml::Value;

/// A value with its source and origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Dotted key (`ddr.read_gb_per_s`).
    pub key: String,
    /// The value, in the unit that the key ends with.
    pub value: Datum,
    /// How the constant was obtained; `None` for a fact of the hardware that no one changed.
    pub origin: Option<Origin>,
    /// Ids of the measured rows that it is fitted on.
    pub rows: Vec<String>,
    /// The source, or how it was fitted. Empty only for values that a user gives.
    pub source: String,
    /// Contradicting sources, or the sources it is derived from; may be empty.
    pub note: String,
}

impl Fact {
    /// Whether the value has this origin.
    pub fn is(&self, origin: Origin) -> bool {
        self.origin == Some(origin)
    }

    /// Its unit (`GB/s`), if the key names one.
    pub fn unit(&self) -> Option<&'static str> {
        unit_of(&self.key)
    }
}

/// The value of a fact.
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

/// How a constant was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A source states it.
    Published,
    /// Computed from values that sources state.
    Derived,
    /// Fitted on measured rows.
    Fitted,
    /// No source states it.
    Assumed,
    /// Given by hand.
    Set,
}

impl Origin {
    /// The origins that a file can name.
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

/// Ids of the rows that constants are fitted on, sorted and without duplicates.
pub fn calibration_rows(facts: &[Fact]) -> Vec<&str> {
    let rows = facts.iter().flat_map(|fact| &fact.rows);
    let mut rows: Vec<&str> = rows.map(String::as_str).collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}
