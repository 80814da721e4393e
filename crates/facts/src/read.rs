//! Reading files and applying changes: chains of bases, dotted keys, entries with their sources.

use crate::error::{FactsError, Problem};
use crate::fact::{Datum, Fact, Origin};
use crate::key::Key;
use crate::{Kind, Record, names, suggest, unit_of};
use toml::{Table, Value};

/// Name of changes made by hand, in messages and as their source.
const SET: &str = "--set";

/// Most characters of a value that messages repeat.
const MOST_CHARS: usize = 80;

/// Most bytes of a name.
const MOST_NAME_BYTES: usize = 64;

/// The parts of an entry in a machine's file, and the additional parts in a profile's.
const PARTS: [&str; 4] = ["value", "unit", "source", "note"];
const CONSTANT_PARTS: [&str; 2] = ["origin", "rows"];

/// A file of a chain of bases.
struct Layer {
    path: String,
    table: Table,
}

/// A value as written, with its source and origin.
struct Entry {
    value: Value,
    fact: Fact,
}

/// Reads a user's file.
pub(crate) fn file<S: Record>(text: &str, path: &str) -> Result<S, FactsError> {
    read(chain::<S>(text, path)?)
}

/// Reads the built-in file of that name.
pub(crate) fn builtin<S: Record>(name: &'static str) -> Result<S, FactsError> {
    let found = S::builtins().iter().find(|builtin| builtin.name == name);
    let text = found.map_or("", |builtin| builtin.text);
    file(text, name)
}

/// The file and the files that it starts from, the outermost base first.
fn chain<S: Record>(text: &str, path: &str) -> Result<Vec<Layer>, FactsError> {
    let mut seen: Vec<&'static str> = Vec::new();
    let mut layers = vec![layer(text, path)?];
    while let Some(base) = layers.last().and_then(|layer| layer.table.get("base")) {
        let path = layers.last().map_or(path, |layer| &layer.path);
        let named = base.as_str();
        let found = (S::builtins().iter()).find(|builtin| Some(builtin.name) == named);
        let Some(found) = found else {
            let known = names::<S>().collect::<Vec<_>>().join(", ");
            return Err(wrong("base", base, &format!("one of {known}")).at(path));
        };
        let is_circle = seen.contains(&found.name);
        seen.push(found.name);
        if is_circle {
            let circle = seen.iter().map(|name| (*name).to_owned()).collect();
            return Err(Problem::Circle(circle).at(path));
        }
        layers.push(layer(found.text, found.name)?);
    }
    layers.reverse();
    Ok(layers)
}

fn layer(text: &str, path: &str) -> Result<Layer, FactsError> {
    let table = text.parse().map_err(|error: toml::de::Error| {
        Problem::Syntax(error.to_string().trim_end().to_owned()).at(path)
    })?;
    Ok(Layer {
        path: path.to_owned(),
        table,
    })
}

/// Reads files on top of each other, and checks that nothing is missing.
fn read<S: Record>(layers: Vec<Layer>) -> Result<S, FactsError> {
    let mut record = S::default();
    for layer in &layers {
        over(&mut record, &layer.table).map_err(|problem| problem.at(&layer.path))?;
    }
    let path = layers.last().map_or("", |layer| &layer.path);
    complete(&mut record).map_err(|problem| problem.at(path))?;
    Ok(record)
}

/// Reads one file on top of its base's values.
fn over<S: Record>(record: &mut S, table: &Table) -> Result<(), Problem> {
    record.begin_file();
    labels(record, table)?;
    let mut entries = Vec::new();
    for (name, value) in table {
        if !is_label::<S>(name) {
            collect::<S>(name.clone(), value, &mut entries)?;
        }
    }
    // In the order of the keys: a field may depend on those before it.
    for key in S::keys() {
        if let Some(entry) = entries.iter().find(|entry| entry.fact.key == key.path) {
            put(record, key, entry)?;
        }
    }
    for entry in &entries {
        if let Some(family) = S::family().filter(|family| family.split(&entry.fact.key).is_some()) {
            let refused = |expected: String| wrong(&entry.fact.key, &entry.value, &expected);
            (family.put(record, &entry.fact.key, &entry.value)).map_err(refused)?;
        }
    }
    for entry in entries {
        keep(record, entry.fact);
    }
    Ok(())
}

/// Whether a name at the top of a file is a label and not the key of a value.
fn is_label<S: Record>(name: &str) -> bool {
    ["name", "summary", "base"].contains(&name) || S::remarks().iter().any(|key| key.path == name)
}

/// Name, summary and remarks.
fn labels<S: Record>(record: &mut S, table: &Table) -> Result<(), Problem> {
    let is_profile = S::KIND == Kind::Profile;
    if is_profile || table.contains_key("name") {
        let expected = "a name of 1 to 64 bytes";
        let is_fit = |name: &&String| !name.is_empty() && name.len() <= MOST_NAME_BYTES;
        record
            .name_mut()
            .clone_from(text(table, "name", is_fit, expected)?);
    }
    if is_profile || table.contains_key("summary") {
        let expected = "a text that describes the file";
        let summary = text(table, "summary", |_| true, expected)?;
        if let Some(field) = record.summary_mut() {
            field.clone_from(summary);
        }
    }
    for key in S::remarks() {
        if let Some(value) = table.get(key.path) {
            let refused = |expected: String| wrong(key.path, value, &expected);
            key.put(record, value).map_err(refused)?;
        }
    }
    Ok(())
}

fn text<'t>(
    table: &'t Table,
    key: &'static str,
    is_fit: impl Fn(&&String) -> bool,
    expected: &str,
) -> Result<&'t String, Problem> {
    match table.get(key) {
        Some(Value::String(text)) if is_fit(&text) => Ok(text),
        Some(other) => Err(wrong(key, other, expected)),
        None => Err(Problem::Label(key)),
    }
}

/// The entries of a value at the top of a file, by dotted keys.
fn collect<S: Record>(key: String, value: &Value, entries: &mut Vec<Entry>) -> Result<(), Problem> {
    let inner = value.as_table();
    if is_key::<S>(&key) {
        entries.push(match inner {
            Some(inner) => entry::<S>(&key, inner)?,
            None => Entry {
                value: value.clone(),
                fact: fact_by_hand::<S>(&key, value, ""),
            },
        });
        return Ok(());
    }
    if !is_group::<S>(&key) {
        return Err(unknown::<S>(&key));
    }
    let Some(inner) = inner else {
        if S::family().is_some_and(|family| family.has_name_and_field(&key)) {
            return Err(unknown::<S>(&key));
        }
        let noun = S::KIND.noun();
        return Err(wrong(&key, value, &format!("a table of {noun}s")));
    };
    for (name, value) in inner {
        collect::<S>(format!("{key}.{name}"), value, entries)?;
    }
    Ok(())
}

fn is_key<S: Record>(key: &str) -> bool {
    let is_of_family = || S::family().is_some_and(|family| family.split(key).is_some());
    S::keys().iter().any(|known| known.path == key) || is_of_family()
}

/// Whether some key is below this one.
fn is_group<S: Record>(key: &str) -> bool {
    let is_below = |path: &str| {
        let rest = path.strip_prefix(key);
        rest.is_some_and(|rest| rest.starts_with('.'))
    };
    let of_family = S::family().map(|family| family.prefix);
    let is_of_family = of_family.is_some_and(|prefix| {
        let rest = key.strip_prefix(prefix);
        // One level of names; a name with dots is quoted.
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    is_of_family || S::keys().iter().any(|known| is_below(known.path))
}

fn unknown<S: Record>(key: &str) -> Problem {
    Problem::Unknown {
        noun: S::KIND.noun(),
        key: shortened(key),
        hint: suggest::hint::<S>(key),
    }
}

/// A value with its source.
fn entry<S: Record>(key: &str, table: &Table) -> Result<Entry, Problem> {
    let is_profile = S::KIND == Kind::Profile;
    let extra: &[&str] = if is_profile { &CONSTANT_PARTS } else { &[] };
    let mut known = PARTS.iter().chain(extra);
    if let Some(other) = table.keys().find(|part| !known.clone().any(|k| k == part)) {
        return Err(Problem::Unknown {
            noun: S::KIND.noun(),
            key: shortened(&format!("{key}.{other}")),
            hint: format!("a value has {}", {
                let first = known.next().copied().unwrap_or_default();
                known.fold(first.to_owned(), |list, part| format!("{list}, {part}"))
            }),
        });
    }
    let part = |part: &'static str, remedy| Problem::Part {
        key: key.to_owned(),
        part,
        remedy,
    };
    let missing = || part("value", "give the number, or the key as KEY = NUMBER");
    let value = table.get("value").ok_or_else(missing)?;
    check_unit(key, table)?;
    let origin = match is_profile {
        true => Some(origin(key, table)?),
        false => None,
    };
    let rows = rows(key, table)?;
    let source = words(key, table, "source")?;
    if source.is_empty() {
        let remedy = "say where the value comes from, or give a value of your own as KEY = NUMBER";
        return Err(part("source", remedy));
    }
    if (origin == Some(Origin::Fitted)) == rows.is_empty() {
        let remedy = "the rows that a fitted constant is fitted on, and no other constant has rows";
        return Err(match rows.is_empty() {
            true => part(
                "rows",
                "name the rows that the fitted constant is fitted on",
            ),
            false => wrong(&format!("{key}.rows"), &table["rows"], remedy),
        });
    }
    let fact = Fact {
        key: key.to_owned(),
        value: Datum::of(value),
        origin,
        rows,
        source,
        note: words(key, table, "note")?,
    };
    Ok(Entry {
        value: value.clone(),
        fact,
    })
}

/// Checks that a stated unit is the key's own: numbers are never converted.
fn check_unit(key: &str, table: &Table) -> Result<(), Problem> {
    let Some(stated) = table.get("unit") else {
        return Ok(());
    };
    let unit = unit_of(key);
    if unit.is_some() && stated.as_str() == unit {
        return Ok(());
    }
    let expected = match unit {
        Some(unit) => format!("\"{unit}\", as the key's name says: convert the value"),
        None => "no unit: the key counts things".to_owned(),
    };
    Err(wrong(&format!("{key}.unit"), stated, &expected))
}

fn origin(key: &str, table: &Table) -> Result<Origin, Problem> {
    let Some(stated) = table.get("origin") else {
        return Ok(Origin::Set);
    };
    let mut named = Origin::NAMED.into_iter();
    let found = named.find(|origin| stated.as_str() == Some(origin.name()));
    let expected = "published, derived, fitted or assumed";
    found.ok_or_else(|| wrong(&format!("{key}.origin"), stated, expected))
}

/// Ids of rows: words, or numbers.
fn rows(key: &str, table: &Table) -> Result<Vec<String>, Problem> {
    let Some(stated) = table.get("rows") else {
        return Ok(Vec::new());
    };
    let id = |row: &Value| match row {
        Value::String(id) => Some(id.clone()),
        Value::Integer(id) => Some(id.to_string()),
        _ => None,
    };
    let ids = stated.as_array();
    let ids = ids.and_then(|ids| ids.iter().map(id).collect());
    ids.ok_or_else(|| wrong(&format!("{key}.rows"), stated, "a list of ids of rows"))
}

fn words(key: &str, table: &Table, part: &'static str) -> Result<String, Problem> {
    match table.get(part) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(wrong(&format!("{key}.{part}"), other, "a text")),
    }
}

fn put<S: Record>(record: &mut S, key: &Key<S>, entry: &Entry) -> Result<(), Problem> {
    let refused = |expected: String| wrong(key.path, &entry.value, &expected);
    key.put(record, &entry.value).map_err(refused)
}

/// Records the source of a value, in place of the one from its base.
fn keep<S: Record>(record: &mut S, fact: Fact) {
    let facts = record.facts_mut();
    match facts.iter_mut().find(|known| known.key == fact.key) {
        Some(known) => *known = fact,
        None => facts.push(fact),
    }
}

fn fact_by_hand<S: Record>(key: &str, value: &Value, source: &str) -> Fact {
    let is_of_file = source.is_empty() && S::KIND == Kind::Machine;
    Fact {
        key: key.to_owned(),
        value: Datum::of(value),
        origin: (!is_of_file).then_some(Origin::Set),
        rows: Vec::new(),
        source: source.to_owned(),
        note: String::new(),
    }
}

/// Checks that the file or its bases gave a name and every required key.
fn complete<S: Record>(record: &mut S) -> Result<(), Problem> {
    let missing = |key: &str| Problem::Missing {
        key: key.to_owned(),
        base: names::<S>().next().unwrap_or_default(),
    };
    if record.name_mut().is_empty() {
        return Err(Problem::Label("name"));
    }
    let is_given = |key: &Key<S>| record.facts().iter().any(|fact| fact.key == key.path);
    let absent = S::keys()
        .iter()
        .find(|key| key.is_required && !is_given(key));
    absent.map_or(Ok(()), |key| Err(missing(key.path)))
}

/// `key=value` from a command line.
pub(crate) fn assign<S: Record>(record: &mut S, assignment: &str) -> Result<(), FactsError> {
    let Some((key, text)) = assignment.split_once('=') else {
        return Err(Problem::Assignment {
            change: shortened(assignment),
            example: S::keys().first().map_or("key", |key| key.path),
        }
        .at(SET));
    };
    let (key, text) = (S::assigned_key(key.trim()), text.trim());
    let value = match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(whole), _) => Value::Integer(whole),
        (_, Ok(number)) => Value::Float(number),
        _ => Value::String(text.to_owned()),
    };
    let own = S::keys().iter().find(|known| known.path == key);
    let family = S::family().filter(|family| family.split(key).is_some());
    let put = match (own, family) {
        (Some(own), _) => own.put(record, &value),
        (None, Some(family)) => family.put(record, key, &value),
        (None, None) => return Err(unknown::<S>(key).at(SET)),
    };
    put.map_err(|expected| wrong(key, &value, &expected).at(SET))?;
    keep(record, fact_by_hand::<S>(key, &value, SET));
    Ok(())
}

fn wrong(key: &str, found: &Value, expected: &str) -> Problem {
    Problem::Value {
        key: shortened(key),
        found: shortened(&found.to_string()),
        expected: expected.to_owned(),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

impl Problem {
    fn at(self, path: &str) -> FactsError {
        FactsError {
            path: path.to_owned(),
            problem: self,
        }
    }
}
