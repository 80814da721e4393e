//! Metadata of either kind of checkpoint as JSON values, with long lists shortened.

use millrace_format::{Checkpoint, gguf};
use serde_json::{Value, json};

/// Longer lists show only their beginning and length.
const MAX_ITEMS: usize = 8;
/// Longer texts are cut when printed on one line.
const MAX_CHARS: usize = 100;

/// Keys and values in file order: a GGUF file's metadata, or a folder's `config.json`.
pub(super) fn of(checkpoint: &Checkpoint, full: bool) -> Vec<(String, Value)> {
    if let Some(metadata) = checkpoint.gguf() {
        return metadata
            .iter()
            .map(|(key, value)| (key.to_owned(), gguf_value(value, full)))
            .collect();
    }
    let config = checkpoint
        .hf()
        .and_then(|files| files.config.as_ref()?.as_object());
    let entries = config.into_iter().flatten();
    entries
        .map(|(key, value)| (key.clone(), shorten(value, full)))
        .collect()
}

/// A value on one line of a table.
pub(super) fn one_line(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Object(cut) if cut.contains_key("first") && cut.contains_key("length") => {
            let first = cut["first"].to_string();
            format!(
                "{}, … {} in all]",
                first.trim_end_matches(']'),
                cut["length"]
            )
        }
        other => other.to_string(),
    };
    let text = text.replace('\n', "\\n");
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn gguf_value(value: &gguf::GgufValue, full: bool) -> Value {
    match value {
        // Converted through its shortest digits: a reader expects 1e-5, not 9.999999747378752e-6.
        gguf::GgufValue::F32(number) => {
            float(number.to_string().parse().unwrap_or(f64::from(*number)))
        }
        gguf::GgufValue::F64(number) => float(*number),
        gguf::GgufValue::Bool(yes) => json!(yes),
        gguf::GgufValue::Str(text) => json!(text),
        // The readable part, with a mark for each byte that is not valid.
        gguf::GgufValue::Bytes(bytes) => json!(String::from_utf8_lossy(bytes)),
        gguf::GgufValue::Array(items) => {
            let n = if full {
                items.len()
            } else {
                items.len().min(MAX_ITEMS)
            };
            let list: Vec<Value> = (0..n)
                .filter_map(|i| items.get(i))
                .map(|item| gguf_value(&item, full))
                .collect();
            cut(list, items.len())
        }
        integer => integer.as_int().map_or(Value::Null, |number| {
            i64::try_from(number).map_or_else(|_| json!(number.to_string()), |number| json!(number))
        }),
    }
}

/// JSON has no NaN and no infinity: those become text.
fn float(number: f64) -> Value {
    if number.is_finite() {
        json!(number)
    } else {
        json!(number.to_string())
    }
}

fn shorten(value: &Value, full: bool) -> Value {
    match value {
        Value::Array(items) if !full => {
            let first = items.iter().take(MAX_ITEMS).cloned().collect();
            cut(first, items.len())
        }
        other => other.clone(),
    }
}

/// A whole list, or its beginning with its length.
fn cut(first: Vec<Value>, length: usize) -> Value {
    if first.len() == length {
        Value::Array(first)
    } else {
        json!({ "first": first, "length": length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_unless_asked_for() {
        let items = gguf::GgufValue::Array(gguf::GgufArray::I32((0..100).collect()));
        let short = gguf_value(&items, false);
        assert_eq!(short["length"], 100);
        assert_eq!(one_line(&short), "[0,1,2,3,4,5,6,7, … 100 in all]");
        assert_eq!(gguf_value(&items, true).as_array().map(Vec::len), Some(100));
    }

    #[test]
    fn odd_numbers_stay_printable() {
        assert_eq!(
            gguf_value(&gguf::GgufValue::F32(f32::NAN), false),
            json!("NaN")
        );
        assert_eq!(
            gguf_value(&gguf::GgufValue::U64(u64::MAX), false),
            json!(u64::MAX.to_string())
        );
        assert_eq!(one_line(&json!("a\nb")), "a\\nb");
        assert!(one_line(&json!("é".repeat(500))).chars().count() == MAX_CHARS + 1);
    }
}
