//! Methods of Python's types, except those that change a value.

mod case;
mod containers;
mod numbers;
mod search;
mod split;
mod text;

use super::args::Args;
use super::fault::{Res, TemplateFault};
use super::value::{Object, Value};

pub(crate) use case::{capitalized, lowered};
pub(crate) use search::replaced;
pub(crate) use split::{lines, stripped};
pub(crate) use text::{PadSide, is_lower, is_upper, padded};

const STR: [&str; 47] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];

/// Additional methods of markup.
const MARKUP: [&str; 3] = ["unescape", "striptags", "escape"];

/// Whether values of the type have a method that leaves the value unchanged.
pub(crate) fn has(value: &Value, name: &str) -> bool {
    let names: &[&str] = match value {
        Value::Str(text) if text.is_markup && MARKUP.contains(&name) => return true,
        Value::Str(_) => &STR,
        Value::List(_) => &["count", "index", "copy"],
        Value::Tuple(_) | Value::Range(_) => &["count", "index"],
        Value::Dict(_) => &["get", "items", "keys", "values", "copy", "fromkeys"],
        Value::View(..) => &["isdisjoint"],
        Value::Bool(_) | Value::Int(_) => &[
            "bit_length",
            "bit_count",
            "conjugate",
            "as_integer_ratio",
            "to_bytes",
            "from_bytes",
        ],
        Value::Float(_) => &[
            "is_integer",
            "as_integer_ratio",
            "conjugate",
            "hex",
            "fromhex",
        ],
        Value::Object(object) => match &**object {
            Object::Loop(_) => &["cycle", "changed"],
            Object::Cycler(..) => &["next", "reset"],
            _ => &[],
        },
        _ => &[],
    };
    names.contains(&name)
}

/// Whether a method of the type would change the value. The sandbox does not allow these to templates.
pub(crate) fn would_mutate(value: &Value, name: &str) -> bool {
    match value {
        Value::List(_) => matches!(
            name,
            "append" | "clear" | "pop" | "reverse" | "insert" | "sort" | "extend" | "remove"
        ),
        Value::Dict(_) => matches!(name, "clear" | "pop" | "popitem" | "setdefault" | "update"),
        _ => false,
    }
}

/// Calls a method that [`has`] knows.
pub(crate) fn call(value: &Value, name: &str, args: Args) -> Res<Value> {
    match value {
        Value::Str(text) => match name {
            "split" | "rsplit" | "splitlines" | "partition" | "rpartition" | "join" | "strip"
            | "lstrip" | "rstrip" | "removeprefix" | "removesuffix" | "expandtabs" => {
                split::call(text, name, args)
            }
            "count" | "find" | "rfind" | "index" | "rindex" | "startswith" | "endswith"
            | "replace" => search::call(text, name, args),
            "capitalize" | "casefold" | "lower" | "swapcase" | "title" | "upper" => {
                case::call(text, name, args)
            }
            _ => text::call(text, name, args),
        },
        Value::List(_) | Value::Tuple(_) | Value::Range(_) | Value::Dict(_) | Value::View(..) => {
            containers::call(value, name, args)
        }
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => numbers::call(value, name, args),
        other => Err(TemplateFault::type_error(format!(
            "'{}' object has no method '{name}'",
            other.type_name()
        ))),
    }
}
