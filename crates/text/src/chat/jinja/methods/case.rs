//! Methods of strings that change the case.

use crate::chat::jinja::args::Args;
use crate::chat::jinja::chars;
use crate::chat::jinja::fault::{self, Res, TemplateFault};
use crate::chat::jinja::value::{Text, Value};

pub(super) fn call(text: &Text, name: &str, args: Args) -> Res<Value> {
    args.none("a method that changes the case")?;
    fault::text(text.text.len() * 4)?;
    let t = &*text.text;
    let changed = match name {
        "upper" => t.to_uppercase(),
        "lower" => lowered(t),
        "capitalize" => capitalized(t),
        "casefold" => {
            let mut out = String::with_capacity(t.len());
            t.chars().for_each(|c| chars::fold(c, &mut out));
            out
        }
        "swapcase" => swapped(t),
        "title" => titled(t),
        other => {
            return Err(TemplateFault::type_error(format!(
                "str has no method '{other}'"
            )));
        }
    };
    Ok(Value::text(changed, text.is_markup))
}

pub(crate) fn lowered(text: &str) -> String {
    text.to_lowercase()
}

pub(crate) fn capitalized(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    if let Some(first) = rest.next() {
        chars::to_title(first, &mut out);
        // A sigma at the end of a word depends on the whole word.
        let lower = lowered(text);
        let n = lowered(&text[..first.len_utf8()]).len();
        out.push_str(&lower[n..]);
    }
    out
}

fn swapped(text: &str) -> String {
    let lower = lowered(text);
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for c in text.chars() {
        let n = c.to_lowercase().map(char::len_utf8).sum::<usize>();
        if chars::is_upper(c) {
            out.push_str(&lower[at..at + n]);
        } else if chars::is_lower(c) {
            out.extend(c.to_uppercase());
        } else {
            out.push(c);
        }
        at += n;
    }
    out
}

fn titled(text: &str) -> String {
    let lower = lowered(text);
    let mut out = String::with_capacity(text.len());
    let (mut at, mut in_word) = (0, false);
    for c in text.chars() {
        let n = c.to_lowercase().map(char::len_utf8).sum::<usize>();
        match in_word {
            true => out.push_str(&lower[at..at + n]),
            false => chars::to_title(c, &mut out),
        }
        in_word = chars::is_cased(c);
        at += n;
    }
    out
}
