//! Methods of strings that look for parts.

use crate::chat::jinja::access::bounds;
use crate::chat::jinja::args::{Args, BoundArgs};
use crate::chat::jinja::fault::{self, Res, TemplateFault};
use crate::chat::jinja::markup::escaped;
use crate::chat::jinja::value::{Text, Value};

pub(super) fn call(text: &Text, name: &str, args: Args) -> Res<Value> {
    fault::spend(text.text.len() / 64)?;
    match name {
        "replace" => replace(text, args),
        "startswith" | "endswith" => affix(text, args, name == "startswith"),
        _ => find(text, name, args),
    }
}

/// The part of a text between two places, and the characters before it. `None` if the first is behind
/// the end.
fn range<'t>(text: &'t str, bound: &BoundArgs) -> Res<Option<(&'t str, usize)>> {
    let (from, to) = (bound.some_int(1)?, bound.some_int(2)?);
    if from.is_none() && to.is_none() {
        return Ok(Some((text, 0)));
    }
    let n = text.chars().count();
    let is_behind = from.is_some_and(|from| from > n as i128);
    let (from, to) = bounds(n, from, to, 1);
    if is_behind || from > to {
        return Ok(None);
    }
    let byte = |at: i128| {
        let mut places = text.char_indices().skip(at as usize);
        places.next().map_or(text.len(), |(byte, _)| byte)
    };
    Ok(Some((&text[byte(from)..byte(to)], from as usize)))
}

fn find(text: &Text, name: &str, args: Args) -> Res<Value> {
    let bound = args.bind_unnamed("a search in a string", &["sub", "start", "end"], 1)?;
    let part = bound.str(0)?;
    let range = range(&text.text, &bound)?;
    if name == "count" {
        return Ok(Value::from(match range {
            Some((text, _)) if part.is_empty() => text.chars().count() + 1,
            Some((text, _)) => text.matches(part).count(),
            None => 0,
        }));
    }
    let found = range.and_then(|(text, before)| {
        let at = match name.starts_with('r') {
            true => text.rfind(part)?,
            false => text.find(part)?,
        };
        Some(before + text[..at].chars().count())
    });
    match found {
        Some(at) => Ok(Value::from(at)),
        None if name.ends_with("index") => Err(TemplateFault::value_error("substring not found")),
        None => Ok(Value::Int(-1)),
    }
}

fn affix(text: &Text, args: Args, is_start: bool) -> Res<Value> {
    let bound = args.bind_unnamed("startswith or endswith", &["part", "start", "end"], 1)?;
    let range = range(&text.text, &bound)?;
    let parts: Vec<Value> = match bound.get(0) {
        Some(Value::Tuple(list)) => list.items.clone(),
        Some(Value::Str(text)) => vec![Value::Str(text.clone())],
        _ => bound.str(0).map(|_| Vec::new())?,
    };
    let Some((text, _)) = range else {
        return Ok(Value::Bool(false));
    };
    for part in parts {
        let Value::Str(part) = part else {
            return Err(TemplateFault::type_error(
                "a tuple of parts must contain only strings",
            ));
        };
        let is = match is_start {
            true => text.starts_with(&*part.text),
            false => text.ends_with(&*part.text),
        };
        if is {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn replace(text: &Text, args: Args) -> Res<Value> {
    let bound = args.bind_unnamed("replace", &["old", "new", "count"], 2)?;
    let (old, new) = (bound.str(0)?, bound.str(1)?);
    let is_plain = !matches!(bound.get(1), Some(new) if new.is_markup());
    let new = match text.is_markup && is_plain {
        true => escaped(new),
        false => new.to_owned(),
    };
    let count = bound.int(2, -1)?;
    replaced(&text.text, old, &new, count).map(|out| Value::text(out, text.is_markup))
}

/// A text with a number of parts replaced; all of them if the number is negative.
pub(crate) fn replaced(text: &str, old: &str, new: &str, count: i128) -> Res<String> {
    let n = match old.is_empty() {
        true => text.chars().count() + 1,
        false => text.matches(old).count(),
    };
    let n = match usize::try_from(count) {
        Ok(count) => n.min(count),
        Err(_) => n,
    };
    fault::text((text.len() + n * new.len()).saturating_sub(n * old.len()))?;
    Ok(text.replacen(old, new, n))
}
