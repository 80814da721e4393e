//! Reading profiles from TOML, and overriding constants.

use super::models::OPTIONAL;
use super::{Constant, Cycles, Origin, Profile};
use toml::{Table, Value};

/// Why a profile cannot be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The text is no TOML.
    #[error("{path}: {message}")]
    Syntax {
        /// The file.
        path: String,
        /// What the parser says, with line and column.
        message: String,
    },
    /// No such key.
    #[error(
        "{path}: no constant `{key}`; known are {known}, and kernel.NAME.FIELD with call_cycles, macs_per_cycle or cycles_per_element"
    )]
    UnknownKey {
        /// The file, or `--set`.
        path: String,
        /// The key.
        key: String,
        /// All keys.
        known: String,
    },
    /// A constant is absent and there is no `base` to take it from.
    #[error("{path}: `{key}` is missing; add it, or start the file with base = \"{base}\"")]
    Missing {
        /// The file.
        path: String,
        /// The key.
        key: String,
        /// A profile to start from.
        base: &'static str,
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

pub(super) type ProfileField = fn(&mut Profile) -> &mut f64;

/// Dotted keys of plain constants, their place, and their smallest and largest value.
const KEYS: &[(&str, ProfileField, (f64, f64))] = &[
    (
        "ddr.read_gb_per_s",
        |p| &mut p.ddr.read_gb_per_s,
        (1e-3, 1e6),
    ),
    (
        "ddr.write_gb_per_s",
        |p| &mut p.ddr.write_gb_per_s,
        (1e-3, 1e6),
    ),
    (
        "ddr.total_gb_per_s",
        |p| &mut p.ddr.total_gb_per_s,
        (1e-3, 1e6),
    ),
    (
        "ddr.burst_overhead_bytes",
        |p| &mut p.ddr.burst_overhead_bytes,
        (0.0, 1e6),
    ),
    (
        "shim.port_gb_per_s",
        |p| &mut p.shim.port_gb_per_s,
        (1e-3, 1e6),
    ),
    (
        "shim.column_read_gb_per_s",
        |p| &mut p.shim.column_read_gb_per_s,
        (1e-3, 1e6),
    ),
    ("shim.task_ns", |p| &mut p.shim.task_ns, (0.0, 1e9)),
    ("dispatch.call_ns", |p| &mut p.dispatch.call_ns, (0.0, 1e12)),
    (
        "dispatch.core_load_ns",
        |p| &mut p.dispatch.core_load_ns,
        (0.0, 1e12),
    ),
    (
        "dispatch.object_load_ns",
        |p| &mut p.dispatch.object_load_ns,
        (0.0, 1e12),
    ),
    (
        "dispatch.launch_ns",
        |p| &mut p.dispatch.launch_ns,
        (0.0, 1e12),
    ),
    (
        "dispatch.point_ns",
        |p| &mut p.dispatch.point_ns,
        (0.0, 1e9),
    ),
    (
        "dispatch.issue_ns",
        |p| &mut p.dispatch.issue_ns,
        (0.0, 1e9),
    ),
    (
        "dispatch.parameter_ns",
        |p| &mut p.dispatch.parameter_ns,
        (0.0, 1e9),
    ),
    (
        "core.block_cycles",
        |p| &mut p.core.block_cycles,
        (0.0, 1e6),
    ),
];

/// Stated errors at the top of a file.
const ERRORS: &[(&str, ProfileField)] = &[
    ("kernel_error_percent", |p| &mut p.errors.kernel_percent),
    ("prompt_error_percent", |p| &mut p.errors.prompt_percent),
    ("token_error_percent", |p| &mut p.errors.token_percent),
];

/// Keys of whole numbers.
const CHANNELS: &str = "ddr.channels";
const INTERLEAVE: &str = "ddr.interleave_bytes";

pub(super) fn parse(text: &str, path: &str) -> Result<Profile, ProfileError> {
    let table: Table = text.parse().map_err(|error| ProfileError::Syntax {
        path: path.into(),
        message: format!("{error}").trim_end().into(),
    })?;
    let mut profile = base(&table, path)?;
    profile.name = text_of(&table, "name", path)?;
    profile.summary = text_of(&table, "summary", path)?;
    for (key, field) in ERRORS {
        if let Some(value) = table.get(*key) {
            *field(&mut profile) = number(value, key, (0.0, 1e3), path)?;
        }
    }
    for (key, value) in &table {
        match key.as_str() {
            "name" | "summary" | "base" => {}
            key if ERRORS.iter().any(|known| known.0 == key) => {}
            "kernel" => {
                for (name, fields) in subtable(value, key, path)? {
                    let prefix = format!("kernel.{name}");
                    group(&mut profile, &prefix, fields, path)?;
                }
            }
            _ => group(&mut profile, key, value, path)?,
        }
    }
    complete(&profile, &table, path)?;
    Ok(profile)
}

/// The profile that the file starts from: its `base`, or zeros.
fn base(table: &Table, path: &str) -> Result<Profile, ProfileError> {
    let Some(value) = table.get("base") else {
        return Ok(Profile {
            name: String::new(),
            summary: String::new(),
            errors: Default::default(),
            ddr: Default::default(),
            shim: Default::default(),
            dispatch: Default::default(),
            core: Default::default(),
            decode: Default::default(),
            prefill: Default::default(),
            host: Default::default(),
            stack: Default::default(),
            power: Default::default(),
            kernels: Default::default(),
            constants: Vec::new(),
        });
    };
    let names = || Profile::builtin_names().collect::<Vec<_>>().join(", ");
    value
        .as_str()
        .filter(|name| *name != path)
        .and_then(Profile::builtin)
        .ok_or_else(|| ProfileError::Value {
            path: path.into(),
            key: "base".into(),
            found: value.to_string(),
            expected: format!("one of {}", names()),
        })
}

fn subtable<'t>(value: &'t Value, key: &str, path: &str) -> Result<&'t Table, ProfileError> {
    value.as_table().ok_or_else(|| ProfileError::Value {
        path: path.into(),
        key: key.into(),
        found: value.to_string(),
        expected: "a table of constants".into(),
    })
}

fn group(
    profile: &mut Profile,
    prefix: &str,
    value: &Value,
    path: &str,
) -> Result<(), ProfileError> {
    for (field, entry) in subtable(value, prefix, path)? {
        let key = format!("{prefix}.{field}");
        let constant = constant(&key, entry, path)?;
        put(profile, &key, constant.value, path)?;
        record(profile, constant);
    }
    Ok(())
}

/// A constant with its origin: `{ value, origin, rows, source, note }`, or just the value.
fn constant(key: &str, entry: &Value, path: &str) -> Result<Constant, ProfileError> {
    let bad = |found: String, expected: &str| ProfileError::Value {
        path: path.into(),
        key: key.into(),
        found,
        expected: expected.into(),
    };
    let Some(table) = entry.as_table() else {
        let value = number(entry, key, (f64::MIN, f64::MAX), path)?;
        return Ok(plain(key, value));
    };
    let known = ["value", "origin", "rows", "source", "note"];
    if let Some(other) = table.keys().find(|k| !known.contains(&k.as_str())) {
        return Err(bad(other.clone(), "value, origin, rows, source, note"));
    }
    let value = table
        .get("value")
        .ok_or_else(|| bad(entry.to_string(), "a table with `value`"))?;
    let value = number(value, key, (f64::MIN, f64::MAX), path)?;
    let words = |name: &str| {
        table
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let origin = match words("origin").as_str() {
        "published" => Origin::Published,
        "derived" => Origin::Derived,
        "fitted" => Origin::Fitted,
        "" => Origin::Set,
        other => {
            return Err(bad(
                other.into(),
                "published, derived or fitted as `origin`",
            ));
        }
    };
    let rows: Vec<String> = (table
        .get("rows")
        .and_then(Value::as_array)
        .into_iter()
        .flatten())
    .filter_map(|row| row.as_str().map(str::to_owned))
    .collect();
    if origin == Origin::Fitted && rows.is_empty() {
        return Err(bad(
            "no `rows`".into(),
            "the ids of the rows a fitted constant is fitted on",
        ));
    }
    if origin != Origin::Set && words("source").is_empty() {
        return Err(bad("no `source`".into(), "a source, or how it was fitted"));
    }
    Ok(Constant {
        key: key.into(),
        value,
        origin,
        rows,
        source: words("source"),
        note: words("note"),
    })
}

fn plain(key: &str, value: f64) -> Constant {
    Constant {
        key: key.into(),
        value,
        origin: Origin::Set,
        rows: Vec::new(),
        source: String::new(),
        note: String::new(),
    }
}

fn record(profile: &mut Profile, constant: Constant) {
    match profile.constants.iter_mut().find(|c| c.key == constant.key) {
        Some(known) => *known = constant,
        None => profile.constants.push(constant),
    }
}

fn put(profile: &mut Profile, key: &str, value: f64, path: &str) -> Result<(), ProfileError> {
    let within = |range: (f64, f64)| {
        let ok = (range.0..=range.1).contains(&value);
        ok.then_some(value).ok_or_else(|| ProfileError::Value {
            path: path.into(),
            key: key.into(),
            found: value.to_string(),
            expected: format!("a number from {} to {}", range.0, range.1),
        })
    };
    if let Some((_, field, range)) = (KEYS.iter().chain(OPTIONAL)).find(|(known, ..)| *known == key)
    {
        *field(profile) = within(*range)?;
        return Ok(());
    }
    match key {
        CHANNELS => profile.ddr.channels = within((1.0, 16.0))? as u32,
        INTERLEAVE => profile.ddr.interleave_bytes = within((1.0, 1e6))? as u32,
        _ => {
            let (name, field) = kernel_key(key).ok_or_else(|| unknown(key, path))?;
            let value = within((0.0, 1e9))?;
            let cycles = profile.kernels.entry(name.to_owned()).or_default();
            *kernel_field(cycles, field).ok_or_else(|| unknown(key, path))? = value;
        }
    }
    Ok(())
}

fn kernel_key(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix("kernel.")?.rsplit_once('.')
}

fn kernel_field<'c>(cycles: &'c mut Cycles, field: &str) -> Option<&'c mut f64> {
    match field {
        "call_cycles" => Some(&mut cycles.call_cycles),
        "macs_per_cycle" => Some(&mut cycles.macs_per_cycle),
        "cycles_per_element" => Some(&mut cycles.cycles_per_element),
        _ => None,
    }
}

fn unknown(key: &str, path: &str) -> ProfileError {
    let known: Vec<&str> = KEYS
        .iter()
        .chain(OPTIONAL)
        .map(|k| k.0)
        .chain([CHANNELS, INTERLEAVE])
        .collect();
    ProfileError::UnknownKey {
        path: path.into(),
        key: key.into(),
        known: known.join(", "),
    }
}

fn complete(profile: &Profile, table: &Table, path: &str) -> Result<(), ProfileError> {
    if table.contains_key("base") {
        return Ok(());
    }
    let keys = KEYS.iter().map(|k| k.0).chain([CHANNELS, INTERLEAVE]);
    for key in keys {
        if !profile.constants.iter().any(|c| c.key == key) {
            return Err(ProfileError::Missing {
                path: path.into(),
                key: key.into(),
                base: Profile::DEFAULT,
            });
        }
    }
    Ok(())
}

fn text_of(table: &Table, key: &str, path: &str) -> Result<String, ProfileError> {
    match table.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        other => Err(ProfileError::Value {
            path: path.into(),
            key: key.into(),
            found: other.map_or_else(|| "nothing".into(), Value::to_string),
            expected: "a text".into(),
        }),
    }
}

fn number(value: &Value, key: &str, range: (f64, f64), path: &str) -> Result<f64, ProfileError> {
    let number = value
        .as_float()
        .or_else(|| value.as_integer().map(|i| i as f64));
    number
        .filter(|n| n.is_finite() && (range.0..=range.1).contains(n))
        .ok_or_else(|| ProfileError::Value {
            path: path.into(),
            key: key.into(),
            found: value.to_string(),
            expected: "a finite number in range".into(),
        })
}

pub(super) fn assign(profile: &mut Profile, assignment: &str) -> Result<(), ProfileError> {
    let path = "--set";
    let (key, value) = assignment.split_once('=').unwrap_or((assignment, ""));
    let (key, value) = (key.trim(), value.trim());
    let number: f64 = value
        .parse()
        .ok()
        .filter(|n: &f64| n.is_finite())
        .ok_or_else(|| ProfileError::Value {
            path: path.into(),
            key: key.into(),
            found: format!("\"{value}\""),
            expected: "key=number".into(),
        })?;
    put(profile, key, number, path)?;
    record(profile, plain(key, number));
    Ok(())
}
