//! Numbers in TOML with their sources: what machines and profiles are read from.

use toml::{Table, Value};

/// A number with where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Its key (`dm_bytes`).
    pub key: String,
    /// Its value.
    pub value: f64,
    /// Who says so.
    pub source: String,
    /// What contradicts it, or what it is derived from; empty where nothing is to be said.
    pub note: String,
    /// `published`, `derived`, `fitted` or `assumed`; empty for a fact of the hardware.
    pub origin: String,
    /// Rows of the measurements that a fitted constant was fitted on.
    pub rows: Vec<u32>,
}

/// Why a file is not one of facts.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FactsError {
    /// Not TOML.
    #[error("{path}: {message}")]
    Toml {
        /// The file.
        path: String,
        /// What the parser says.
        message: String,
    },
    /// A key that is missing.
    #[error("{path}: `{key}` is missing; give it as [{key}] with value and source")]
    Missing {
        /// The file.
        path: String,
        /// The key.
        key: String,
    },
    /// A key that means nothing.
    #[error("{path}: `{key}` is not a key; known are {known}")]
    Unknown {
        /// The file.
        path: String,
        /// The key.
        key: String,
        /// Those that are.
        known: String,
    },
    /// A value out of range.
    #[error("{path}: `{key}` is {found}; expected {expected}")]
    Value {
        /// The file.
        path: String,
        /// The key.
        key: String,
        /// What it says.
        found: String,
        /// What it may say.
        expected: String,
    },
}

/// A key with the range of its value; whole where `is_whole`.
pub(crate) struct Key {
    pub name: &'static str,
    pub min: f64,
    pub max: f64,
    pub is_whole: bool,
}

/// A file's name, text fields and facts in order.
pub(crate) struct Facts {
    pub name: String,
    pub summary: String,
    pub facts: Vec<Fact>,
}

impl Facts {
    /// The value of a key; present after [`parse`].
    pub(crate) fn get(&self, key: &str) -> f64 {
        let mut facts = self.facts.iter();
        facts
            .find(|fact| fact.key == key)
            .map_or(0.0, |fact| fact.value)
    }
}

/// Reads a file whose keys are those given, every one of them.
pub(crate) fn parse(text: &str, path: &str, keys: &[Key]) -> Result<Facts, FactsError> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let message = error.message().to_owned();
        FactsError::Toml {
            path: path.into(),
            message,
        }
    })?;
    let text_of = |key: &str| table.get(key).and_then(Value::as_str).map(str::to_owned);
    let name = text_of("name").filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| FactsError::Missing {
        path: path.into(),
        key: "name".into(),
    })?;
    for key in table.keys() {
        let known = keys.iter().map(|key| key.name).chain(["name", "summary"]);
        if !known.clone().any(|name| name == key) {
            return Err(FactsError::Unknown {
                path: path.into(),
                key: key.clone(),
                known: known.collect::<Vec<_>>().join(", "),
            });
        }
    }
    let facts = keys.iter().map(|key| fact(&table, key, path));
    Ok(Facts {
        name,
        summary: text_of("summary").unwrap_or_default(),
        facts: facts.collect::<Result<_, _>>()?,
    })
}

/// The text of a file with one value changed, `key=value`.
pub(crate) fn changed(text: &str, change: &str) -> Result<String, String> {
    let Some((key, value)) = change.split_once('=') else {
        return Err("write KEY=VALUE".to_owned());
    };
    let (key, value) = (key.trim(), value.trim());
    let mut table: Table = text
        .parse()
        .map_err(|e: toml::de::Error| e.message().to_owned())?;
    let known: Vec<String> = table
        .keys()
        .filter(|key| table[*key].is_table())
        .cloned()
        .collect();
    let Some(fact) = table.get_mut(key).and_then(Value::as_table_mut) else {
        return Err(format!(
            "`{key}` is not a key; known are {}",
            known.join(", ")
        ));
    };
    let value = match (value.parse::<i64>(), value.parse::<f64>()) {
        (Ok(whole), _) => Value::Integer(whole),
        (_, Ok(number)) => Value::Float(number),
        _ => return Err(format!("`{value}` is not a number")),
    };
    fact.insert("value".to_owned(), value);
    Ok(table.to_string())
}

fn fact(table: &Table, key: &Key, path: &str) -> Result<Fact, FactsError> {
    let missing = || FactsError::Missing {
        path: path.into(),
        key: key.name.into(),
    };
    let entry = table.get(key.name).and_then(Value::as_table);
    let entry = entry.ok_or_else(missing)?;
    let found = entry.get("value").ok_or_else(missing)?;
    let value = match found {
        Value::Integer(value) => *value as f64,
        Value::Float(value) => *value,
        _ => f64::NAN,
    };
    let fits = value >= key.min && value <= key.max && !(key.is_whole && value.fract() != 0.0);
    if !fits {
        let kind = if key.is_whole {
            "a whole number"
        } else {
            "a number"
        };
        return Err(FactsError::Value {
            path: path.into(),
            key: key.name.into(),
            found: found.to_string(),
            expected: format!("{kind} from {} to {}", key.min, key.max),
        });
    }
    let text = |field: &str| {
        let text = entry.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    if text("source").is_empty() {
        return Err(FactsError::Missing {
            path: path.into(),
            key: format!("{}.source", key.name),
        });
    }
    let rows = entry.get("rows").and_then(Value::as_array);
    let rows = rows.into_iter().flatten().filter_map(Value::as_integer);
    Ok(Fact {
        key: key.name.into(),
        value,
        source: text("source"),
        note: text("note"),
        origin: text("origin"),
        rows: rows.filter_map(|row| u32::try_from(row).ok()).collect(),
    })
}
