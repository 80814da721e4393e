//! Reading machines from TOML, and overriding values.

use super::keys::{KEYS, KeyField, MachineKey, blank};
use super::{DpmLevel, Machine, ValueOrigin};
use toml::{Table, Value};

/// Keys beside the numbers of [`KEYS`].
const OTHER: &[&str] = &["name", "base", "dpm", "dpm_level", "clock_hz"];

/// Clock of the array set on its own, in Hz.
const CLOCK_HZ: (f64, f64) = (1e6, 1e11);

/// Most clock levels a file may list.
const MAX_LEVELS: usize = 64;

/// Why a machine cannot be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// The text is no TOML.
    #[error("{path}: {message}")]
    Syntax {
        /// The file.
        path: String,
        /// What the parser says, with line and column.
        message: String,
    },
    /// No such key.
    #[error("{path}: no key `{key}`; {hint}")]
    UnknownKey {
        /// The file, or `--set`.
        path: String,
        /// The key.
        key: String,
        /// The nearest key, or the list.
        hint: String,
    },
    /// A key is absent and there is no `base` to take it from.
    #[error("{path}: `{key}` is missing; add it, or start the file with base = \"npu2\"")]
    Missing {
        /// The file.
        path: String,
        /// The key.
        key: String,
    },
    /// A value of the wrong type or out of range.
    #[error("{path}: `{key}` = {found}: expected {expected}")]
    Value {
        /// The file, or `--set`.
        path: String,
        /// The key.
        key: String,
        /// What is there.
        found: String,
        /// What may be there.
        expected: String,
    },
}

/// A value as written, with where it comes from.
struct MachineEntry {
    key: String,
    value: Value,
    source: String,
    note: String,
}

pub(super) fn parse(text: &str, path: &str) -> Result<Machine, MachineError> {
    let table: Table = text.parse().map_err(|error| MachineError::Syntax {
        path: path.into(),
        message: format!("{error}").trim_end().into(),
    })?;
    let mut entries = Vec::new();
    collect(&table, "", path, &mut entries)?;
    let mut machine = base(&entries, path)?;
    let mut clock_hz = None;
    for entry in &entries {
        match entry.key.as_str() {
            "base" => continue,
            "name" => machine.name = string(entry, path)?,
            "dpm" => machine.dpm = levels(entry, path)?,
            "dpm_level" => {}
            "clock_hz" => clock_hz = Some(number(&entry.key, &entry.value, CLOCK_HZ, path)?),
            _ => set_number(&mut machine, &entry.key, &entry.value, path)?,
        }
        record(&mut machine, entry);
    }
    complete(&machine, path)?;
    let level = entries.iter().find(|e| e.key == "dpm_level");
    let level = level.map_or_else(|| "turbo".to_string(), |e| plain(&e.value));
    set_level(&mut machine, &level, path)?;
    if let Some(clock_hz) = clock_hz {
        machine.clock_hz = clock_hz;
    }
    Ok(machine)
}

/// The machine that the file starts from: its `base`, or a blank.
fn base(entries: &[MachineEntry], path: &str) -> Result<Machine, MachineError> {
    let Some(entry) = entries.iter().find(|e| e.key == "base") else {
        return Ok(blank());
    };
    let name = string(entry, path)?;
    Machine::builtin(&name).ok_or_else(|| MachineError::Value {
        path: path.into(),
        key: "base".into(),
        found: format!("\"{name}\""),
        expected: format!(
            "one of {}",
            Machine::builtin_names().collect::<Vec<_>>().join(", ")
        ),
    })
}

/// Flattens nested tables into dotted keys; a table with `value` is a value with its source.
fn collect(
    table: &Table,
    prefix: &str,
    path: &str,
    entries: &mut Vec<MachineEntry>,
) -> Result<(), MachineError> {
    for (name, value) in table {
        let key = if prefix.is_empty() {
            name.clone()
        } else {
            format!("{prefix}.{name}")
        };
        if let Value::Table(inner) = value {
            if !inner.contains_key("value") {
                if !is_group(&key) {
                    return Err(unknown(&key, path));
                }
                collect(inner, &key, path, entries)?;
                continue;
            }
            if let Some(extra) = inner
                .keys()
                .find(|k| !["value", "source", "note"].contains(&k.as_str()))
            {
                return Err(MachineError::UnknownKey {
                    path: path.into(),
                    key: format!("{key}.{extra}"),
                    hint: "a value has `value`, `source` and `note`".into(),
                });
            }
        }
        if !OTHER.contains(&key.as_str()) && !KEYS.iter().any(|k| k.path == key) {
            return Err(unknown(&key, path));
        }
        let inner = value.as_table();
        let text = |field: &str| {
            let found = inner.and_then(|t| t.get(field)).and_then(Value::as_str);
            found.unwrap_or_default().to_string()
        };
        entries.push(MachineEntry {
            value: inner.and_then(|t| t.get("value")).unwrap_or(value).clone(),
            source: text("source"),
            note: text("note"),
            key,
        });
    }
    Ok(())
}

/// Whether some key lies below this one.
fn is_group(key: &str) -> bool {
    KEYS.iter().any(|k| {
        k.path
            .strip_prefix(key)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

fn unknown(key: &str, path: &str) -> MachineError {
    let known = KEYS.iter().map(|k| k.path).chain(OTHER.iter().copied());
    let nearest = known.min_by_key(|candidate| distance(candidate, key));
    MachineError::UnknownKey {
        path: path.into(),
        key: key.into(),
        hint: match nearest {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => String::new(),
        },
    }
}

/// Levenshtein distance over the first 64 bytes.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<u8> = b.bytes().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn record(machine: &mut Machine, entry: &MachineEntry) {
    machine.facts.retain(|fact| fact.key != entry.key);
    machine.facts.push(ValueOrigin {
        key: entry.key.clone(),
        value: plain(&entry.value),
        source: entry.source.clone(),
        note: entry.note.clone(),
    });
}

/// A value as one would type it, strings without quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn string(entry: &MachineEntry, path: &str) -> Result<String, MachineError> {
    match entry.value.as_str() {
        Some(text) if !text.is_empty() && text.len() <= 64 => Ok(text.to_string()),
        _ => Err(wrong(
            &entry.key,
            &entry.value,
            "a name of 1 to 64 bytes",
            path,
        )),
    }
}

fn wrong(key: &str, value: &Value, expected: &str, path: &str) -> MachineError {
    let mut found = value.to_string();
    if let Some((at, _)) = found.char_indices().nth(80) {
        found.truncate(at);
        found.push('…');
    }
    MachineError::Value {
        path: path.into(),
        key: key.into(),
        found,
        expected: expected.into(),
    }
}

/// A finite number in a range, from an integer or a float.
fn number(
    key: &str,
    value: &Value,
    (min, max): (f64, f64),
    path: &str,
) -> Result<f64, MachineError> {
    let found = match value {
        Value::Integer(v) => Some(*v as f64),
        Value::Float(v) => Some(*v),
        _ => None,
    };
    match found {
        Some(v) if v >= min && v <= max => Ok(v),
        _ => Err(wrong(
            key,
            value,
            &format!("a number from {min} to {max}"),
            path,
        )),
    }
}

fn set_number(
    machine: &mut Machine,
    key: &str,
    value: &Value,
    path: &str,
) -> Result<(), MachineError> {
    let Some(known) = KEYS.iter().find(|k| k.path == key) else {
        return Err(unknown(key, path));
    };
    let v = number(key, value, (known.min, known.max), path)?;
    if !matches!(known.field, KeyField::F64(_)) && v.fract() != 0.0 {
        return Err(wrong(key, value, "a whole number", path));
    }
    // In range by the check above, and 2^53 is far beyond every range.
    match known.field {
        KeyField::U32(field) => *field(machine) = v as u32,
        KeyField::U64(field) => *field(machine) = v as u64,
        KeyField::F64(field) => *field(machine) = v,
    }
    Ok(())
}

/// Pairs of MHz.
fn levels(entry: &MachineEntry, path: &str) -> Result<Vec<DpmLevel>, MachineError> {
    let expected = "a list of 1 to 64 pairs of MHz, [controller, array], lowest first";
    let refuse = || wrong(&entry.key, &entry.value, expected, path);
    let list = entry.value.as_array().ok_or_else(refuse)?;
    if list.is_empty() || list.len() > MAX_LEVELS {
        return Err(refuse());
    }
    let hz = |value: &Value| {
        let mhz = number(&entry.key, value, (1.0, 100_000.0), path)?;
        Ok(mhz * 1e6)
    };
    list.iter()
        .map(|pair| match pair.as_array().map(Vec::as_slice) {
            Some([npu, array]) => Ok(DpmLevel {
                npu_hz: hz(npu)?,
                array_hz: hz(array)?,
            }),
            _ => Err(refuse()),
        })
        .collect()
}

/// Puts a clock level in force, by mode or by index.
fn set_level(machine: &mut Machine, level: &str, path: &str) -> Result<(), MachineError> {
    let last = machine.dpm.len().saturating_sub(1);
    let index = match level {
        "turbo" | "high" => Some(last),
        "medium" => Some(last / 2),
        "low" => Some(0),
        other => other.parse::<usize>().ok(),
    };
    let chosen = index.and_then(|i| machine.dpm.get(i).map(|level| (i, level.array_hz)));
    let Some((index, array_hz)) = chosen else {
        return Err(MachineError::Value {
            path: path.into(),
            key: "dpm_level".into(),
            found: level.chars().take(80).collect(),
            expected: format!("turbo, high, medium, low or an index from 0 to {last}"),
        });
    };
    machine.dpm_level = index;
    machine.clock_hz = array_hz;
    Ok(())
}

/// Whether every key has been given, by the file or its base.
fn complete(machine: &Machine, path: &str) -> Result<(), MachineError> {
    let given = |key: &str| machine.facts.iter().any(|fact| fact.key == key);
    let needed = KEYS
        .iter()
        .map(|k: &MachineKey| k.path)
        .chain(["name", "dpm"]);
    match needed.into_iter().find(|key| !given(key)) {
        Some(key) => Err(MachineError::Missing {
            path: path.into(),
            key: key.into(),
        }),
        None => Ok(()),
    }
}

/// `key=value` from a command line.
pub(super) fn assign(machine: &mut Machine, assignment: &str) -> Result<(), MachineError> {
    let path = "--set";
    let Some((key, text)) = assignment.split_once('=') else {
        return Err(MachineError::Value {
            path: path.into(),
            key: assignment.chars().take(80).collect(),
            found: "no `=`".into(),
            expected: "key=value, as in cols=4".into(),
        });
    };
    let (key, text) = (key.trim(), text.trim());
    let value = match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(v), _) => Value::Integer(v),
        (_, Ok(v)) => Value::Float(v),
        _ => Value::String(text.to_string()),
    };
    match key {
        "dpm" | "dpm_level" => set_level(machine, text, path)?,
        "clock_hz" => machine.clock_hz = number(key, &value, CLOCK_HZ, path)?,
        _ => set_number(machine, key, &value, path)?,
    }
    let entry = MachineEntry {
        key: if key == "dpm" { "dpm_level" } else { key }.to_string(),
        value,
        source: "--set".into(),
        note: String::new(),
    };
    record(machine, &entry);
    Ok(())
}
