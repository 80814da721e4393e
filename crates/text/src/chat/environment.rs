//! The Jinja environment of chat templates: the settings, filters, tests and functions that
//! Hugging Face transformers gives them.

use super::job::{Reply, TemplateJob};
use super::{generation, python, strftime};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, StringInput, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, ErrorKind, Output, State, Value, escape_formatter};
use serde_json::Value as Json;

/// Steps of the engine that one rendering may take: a second or two. A conversation of a thousand
/// messages needs about a hundredth of it.
const STEPS: u64 = 20_000_000;

/// Bytes that one rendering may write.
const OUTPUT_BYTES: usize = 64 << 20;

/// Characters that `indent` may put before a line and `format` may pad to.
const MAX_WIDTH: usize = 1024;

/// The variable that carries the time to `strftime_now`.
const NOW: &str = "__now_seconds";

/// What `raise_exception` was called with, as the source of the engine's error.
#[derive(Debug)]
struct Refusal(String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// A bound that was met.
#[derive(Debug)]
struct TooLarge(String);

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TooLarge {}

fn too_large(reason: String) -> minijinja::Error {
    minijinja::Error::new(ErrorKind::InvalidOperation, reason.clone()).with_source(TooLarge(reason))
}

/// An environment without templates.
fn build() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    environment.set_syntax(syntax.expect("the delimiters are the usual ones"));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(STEPS));
    environment.set_debug(false);
    environment.set_formatter(format);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", to_json);
    environment.add_filter("indent", indent);
    environment.add_filter("format", format_printf);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    // Python's notions: a string can be iterated and indexed, and so can a dictionary.
    environment.add_test("iterable", |value: &Value| {
        value.as_str().is_some() || value.try_iter().is_ok()
    });
    environment.add_test("sequence", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::String | ValueKind::Seq | ValueKind::Map
        )
    });
    environment
}

/// Prints a value as Python's `str` does.
fn format(
    out: &mut Output<'_>,
    state: &mut State<'_, '_>,
    value: &Value,
) -> Result<(), minijinja::Error> {
    match python::display(value) {
        Some(text) => Ok(out.write_str(&text)?),
        None => escape_formatter(out, state, value),
    }
}

/// The engine's `indent` of at most [`MAX_WIDTH`] spaces.
fn indent(
    text: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, minijinja::Error> {
    let named = match width {
        Some(_) => None,
        None => kwargs.peek::<Option<usize>>("width").ok().flatten(),
    };
    let spaces = width.or(named).unwrap_or(0);
    if spaces > MAX_WIDTH {
        return Err(too_large(format!(
            "it indents by {spaces} spaces, and at most {MAX_WIDTH} are allowed"
        )));
    }
    minijinja::filters::indent(text, width, first, blank, kwargs)
}

/// The engine's `format`, to widths and precisions of at most [`MAX_WIDTH`].
fn format_printf(
    state: &mut State<'_, '_>,
    pattern: &Value,
    values: Rest<ValueOrKwargs>,
) -> Result<Value, minijinja::Error> {
    let text = pattern.as_str().unwrap_or_default();
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    let is_wide =
        |digits: &str| digits.len() > 4 || digits.parse().is_ok_and(|n: usize| n > MAX_WIDTH);
    // A width may also come from the values, as `*`.
    if text.contains('*') || numbers.any(is_wide) {
        return Err(too_large(format!(
            "`format` pads to at most {MAX_WIDTH} characters, by a number in the pattern"
        )));
    }
    minijinja::filters::format(state, pattern, values)
}

fn raise_exception(message: Value) -> Result<Value, minijinja::Error> {
    let message = message.to_string();
    Err(
        minijinja::Error::new(ErrorKind::InvalidOperation, message.clone())
            .with_source(Refusal(message)),
    )
}

fn strftime_now(state: &State<'_, '_>, format: &str) -> Result<String, minijinja::Error> {
    let seconds = state.lookup(NOW).and_then(|now| now.as_i64()).unwrap_or(0);
    Ok(strftime::format(format, seconds))
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`
fn to_json(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, minijinja::Error> {
    let argument = |position: usize, name: &str| -> Result<Option<Value>, minijinja::Error> {
        let named: Option<Value> = kwargs.get(name)?;
        let value = named.or_else(|| args.get(position).cloned());
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let mut style = python::JsonStyle::default();
    style.ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true());
    if let Some(indent) = argument(1, "indent")? {
        style.set_indent(&indent)?;
    }
    if let Some(separators) = argument(2, "separators")? {
        let texts: Vec<String> = separators
            .try_iter()?
            .map(|value| value.to_string())
            .collect();
        let [item, key] = <[String; 2]>::try_from(texts).map_err(|_| {
            minijinja::Error::new(
                ErrorKind::InvalidOperation,
                "separators must be two strings",
            )
        })?;
        (style.item_separator, style.key_separator) = (item, key);
    }
    style.sort_keys = argument(3, "sort_keys")?.is_some_and(|value| value.is_true());
    kwargs.assert_all_used()?;
    python::to_json(value, &style)
}

/// Compiles the templates of a job and renders the one it names.
pub(super) fn run(job: &TemplateJob) -> Reply {
    let mut environment = build();
    for (name, source) in &job.templates {
        let source = generation::without_tags(source);
        if let Err(error) = environment.add_template_owned(name.clone(), source) {
            return Reply::Parse {
                name: name.clone(),
                line: error.line().unwrap_or(0),
                reason: reason(&error),
            };
        }
    }
    let Some(name) = &job.render else {
        return Reply::Text(String::new());
    };
    let time = (NOW.to_owned(), Value::from(job.now_seconds));
    let pairs = job.variables.iter();
    let pairs = pairs.map(|(name, value)| (name.clone(), from_json(value.clone())));
    let context = Value::from_pairs(pairs.chain([time]));
    let mut out = Bounded(Vec::new());
    let rendered = environment
        .get_template(name)
        .and_then(|template| template.render_captured_to(context, &mut out).map(|_| ()));
    match rendered {
        Ok(()) => Reply::Text(String::from_utf8(out.0).expect("the engine writes UTF-8")),
        Err(error) => explain(name, &error),
    }
}

/// What a failed rendering means.
fn explain(name: &str, error: &minijinja::Error) -> Reply {
    let out_of_fuel = || Reply::Limit(format!("it does not come to an end within {STEPS} steps"));
    if error.kind() == ErrorKind::OutOfFuel {
        return out_of_fuel();
    }
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(Refusal(message)) = cause.downcast_ref() {
            return Reply::Refused(message.clone());
        }
        let written = cause.downcast_ref::<std::io::Error>();
        let written = written.and_then(|error| error.get_ref()?.downcast_ref());
        if let Some(TooLarge(reason)) = cause.downcast_ref().or(written) {
            return Reply::Limit(reason.clone());
        }
        let engine = cause.downcast_ref::<minijinja::Error>();
        if engine.is_some_and(|cause| cause.kind() == ErrorKind::OutOfFuel) {
            return out_of_fuel();
        }
        source = cause.source();
    }
    Reply::Render {
        name: error.name().unwrap_or(name).to_owned(),
        line: error.line().unwrap_or(0),
        reason: reason(error),
    }
}

/// What an error of the engine says, without the place.
fn reason(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

/// Output up to a limit.
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > OUTPUT_BYTES {
            let reason = format!("it writes more than {OUTPUT_BYTES} bytes");
            return Err(std::io::Error::other(TooLarge(reason)));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A JSON value as the engine's.
fn from_json(json: Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Value::from(int),
            (None, Some(int)) => Value::from(int),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text),
        Json::Array(list) => list.into_iter().map(from_json).collect(),
        Json::Object(map) => Value::from_pairs(map.into_iter().map(|(k, v)| (k, from_json(v)))),
    }
}
