//! Filters: the operations behind `|`.

mod number;
mod pretty;
mod select;
mod sequence;
mod text;
mod wrap;

use super::args::Args;
use super::fault::{FaultKind, Res, TemplateFault};
use super::interp::Interp;
use super::value::Value;
use super::{json, repr};

const NAMES: [&str; 54] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "random",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "striptags",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap",
    "xmlattr",
];

pub(crate) fn is_known(name: &str) -> bool {
    NAMES.contains(&name)
}

/// `value | name(args)`
pub(crate) fn call(interp: &mut Interp, name: &str, value: Value, args: Args) -> Res<Value> {
    match name {
        "map" => select::map(interp, &value, args),
        "select" | "reject" | "selectattr" | "rejectattr" => select::select(
            &value,
            args,
            name.ends_with("attr"),
            name.starts_with("select"),
        ),
        "tojson" => json::filter(&value, args),
        "pprint" => {
            args.none("pprint")?;
            pretty::format(&value).map(Value::from)
        }
        "wordwrap" => wrap::filter(&value, args),
        "abs" | "int" | "float" | "round" | "filesizeformat" => number::call(name, &value, args),
        "attr" | "batch" | "count" | "length" | "d" | "default" | "dictsort" | "first"
        | "items" | "last" | "list" | "reverse" | "slice" => sequence::call(name, value, args),
        "groupby" | "max" | "min" | "sort" | "sum" | "unique" => {
            select::ordered(name, &value, args)
        }
        "join" => text::join(interp, &value, args),
        "random" => Err(TemplateFault::new(
            FaultKind::Template,
            "random picks another value each time, which no prompt should",
        )),
        "urlize" => Err(TemplateFault::new(
            FaultKind::Template,
            "urlize makes links of HTML, which is not known here",
        )),
        _ if is_known(name) => text::call(interp, name, &value, args),
        other => Err(TemplateFault::new(
            FaultKind::Template,
            format!("no filter is called \"{other}\""),
        )),
    }
}

/// A value as a text; markup stays markup.
fn soft_str(value: &Value) -> Res<Value> {
    match value {
        Value::Str(_) => Ok(value.clone()),
        other => repr::to_str(other).map(Value::from),
    }
}
