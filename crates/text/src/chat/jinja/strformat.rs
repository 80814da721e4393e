//! `"…".format(values)`

use super::access;
use super::digits::{self, Digits};
use super::fault::{self, FaultKind, Res, TemplateFault};
use super::markup::escaped;
use super::methods::{PadSide, padded};
use super::repr;
use super::value::{Text, Value};
use std::rc::Rc;

/// The values of a `format`, and how fields without a name count.
struct Fields<'v> {
    positional: &'v [Value],
    named: &'v Value,
    next: usize,
    is_numbered: bool,
    is_counted: bool,
    is_markup: bool,
}

/// `pattern.format(*positional, **named)`
pub(crate) fn format(pattern: &Text, positional: &[Value], named: &Value) -> Res<Value> {
    let mut fields = Fields {
        positional,
        named,
        next: 0,
        is_numbered: false,
        is_counted: false,
        is_markup: pattern.is_markup,
    };
    let out = fields.expand(&pattern.text, 3)?;
    Ok(Value::text(out, pattern.is_markup))
}

impl Fields<'_> {
    fn expand(&mut self, pattern: &str, levels: u32) -> Res<String> {
        if levels == 0 {
            return Err(TemplateFault::value_error("max string recursion exceeded"));
        }
        let mut out = String::new();
        let mut rest = pattern;
        while let Some(at) = rest.find(['{', '}']) {
            fault::spend(1)?;
            out.push_str(&rest[..at]);
            let brace = &rest[at..at + 1];
            rest = &rest[at + 1..];
            if rest.starts_with(brace) {
                out.push_str(brace);
                rest = &rest[1..];
                continue;
            }
            if brace == "}" {
                return Err(TemplateFault::value_error(
                    "single '}' encountered in format string",
                ));
            }
            let Some(end) = end_of_field(rest) else {
                return Err(TemplateFault::value_error(
                    "expected '}' before end of string",
                ));
            };
            let piece = self.field(&rest[..end], levels)?;
            fault::text(out.len() + piece.len())?;
            out.push_str(&piece);
            rest = &rest[end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    /// `name!conversion:spec`
    fn field(&mut self, field: &str, levels: u32) -> Res<String> {
        let mut brackets = 0;
        let end = field.find(|c: char| {
            match c {
                '[' => brackets += 1,
                ']' => brackets -= 1,
                _ => {}
            }
            brackets <= 0 && matches!(c, '!' | ':')
        });
        let (name, after) = field.split_at(end.unwrap_or(field.len()));
        let (conversion, spec) = match after.strip_prefix('!') {
            Some(after) => {
                let mut chars = after.chars();
                let conversion = chars.next();
                match chars.as_str().strip_prefix(':') {
                    Some(spec) => (conversion, spec),
                    None if chars.as_str().is_empty() => (conversion, ""),
                    None => {
                        return Err(TemplateFault::value_error(
                            "expected ':' after conversion specifier",
                        ));
                    }
                }
            }
            None => (None, after.strip_prefix(':').unwrap_or("")),
        };
        let value = self.value(name)?;
        let value = match conversion {
            None => value,
            Some('s') => Value::from(repr::to_str(&value)?),
            Some('r') => Value::from(repr::to_repr(&value)?),
            Some('a') => Value::from(repr::to_ascii(&value)?),
            Some(other) => {
                return Err(TemplateFault::value_error(format!(
                    "unknown conversion specifier {other}"
                )));
            }
        };
        let spec = self.expand(spec, levels - 1)?;
        let text = formatted(&value, &spec)?;
        Ok(match self.is_markup && !value.is_markup() {
            true => escaped(&text),
            false => text,
        })
    }

    /// `first.attribute[key]`
    fn value(&mut self, name: &str) -> Res<Value> {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut rest) = name.split_at(end);
        let mut value = self.first(first)?;
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                if end == 0 {
                    return Err(TemplateFault::value_error(
                        "empty attribute in format string",
                    ));
                }
                value = access::attribute(&value, &Rc::from(&after[..end]))?;
                rest = &after[end..];
            } else if let Some((key, after)) =
                rest[1..].split_once(']').filter(|_| rest.starts_with('['))
            {
                let is_number = !key.is_empty() && key.bytes().all(|b| b.is_ascii_digit());
                let key = match key.parse() {
                    Ok(n) if is_number => Value::Int(n),
                    _ => Value::from(key),
                };
                value = access::item(&value, &key)?;
                rest = after;
            } else {
                return Err(TemplateFault::value_error("missing ']' in format string"));
            }
        }
        Ok(value)
    }

    fn first(&mut self, name: &str) -> Res<Value> {
        let is_number = name.bytes().all(|b| b.is_ascii_digit());
        if !is_number {
            let found = match self.named {
                Value::Dict(dict) => dict.get_str(name).cloned(),
                other => Some(access::item(other, &Value::from(name))?),
            };
            return found.ok_or_else(|| {
                TemplateFault::new(FaultKind::Lookup, format!("no value '{name}'"))
            });
        }
        let at = match name.is_empty() {
            true => {
                self.is_counted = true;
                self.next += 1;
                self.next - 1
            }
            false => {
                self.is_numbered = true;
                name.parse().unwrap_or(usize::MAX)
            }
        };
        if self.is_counted && self.is_numbered {
            return Err(TemplateFault::value_error(
                "cannot switch between manual field specification and automatic field numbering",
            ));
        }
        let value = self.positional.get(at).cloned();
        value.ok_or_else(|| TemplateFault::new(FaultKind::Lookup, "replacement index out of range"))
    }
}

/// The place of the brace that ends a field.
fn end_of_field(text: &str) -> Option<usize> {
    let (mut open, mut in_brackets) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            '[' => in_brackets = true,
            ']' => in_brackets = false,
            '{' => open += 1,
            '}' if open == 0 && !in_brackets => return Some(at),
            '}' => open -= 1,
            _ => {}
        }
    }
    None
}

/// `[[fill]align][sign][z][#][0][width][grouping][.precision][kind]`
#[derive(Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    /// A negative zero loses its sign.
    has_plain_zero: bool,
    is_alternate: bool,
    width: i128,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

impl Spec {
    fn new(text: &str) -> Res<Spec> {
        let mut spec = Spec::default();
        let is_align = |c: &char| "<>=^".contains(*c);
        let chars: Vec<char> = text.chars().collect();
        let mut at = 0;
        if chars.get(1).is_some_and(is_align) {
            (spec.fill, spec.align, at) = (Some(chars[0]), Some(chars[1]), 2);
        } else if chars.first().is_some_and(is_align) {
            (spec.align, at) = (Some(chars[0]), 1);
        }
        let mut next_if = |allowed: &str| {
            let found = chars.get(at).copied().filter(|c| allowed.contains(*c));
            at += usize::from(found.is_some());
            found
        };
        spec.sign = next_if("+- ");
        spec.has_plain_zero = next_if("z").is_some();
        spec.is_alternate = next_if("#").is_some();
        if next_if("0").is_some() {
            spec.fill = spec.fill.or(Some('0'));
            spec.align = spec.align.or(Some('0'));
        }
        let number = |next_if: &mut dyn FnMut(&str) -> Option<char>| {
            let mut n = None;
            while let Some(digit) = next_if("0123456789").and_then(|c| c.to_digit(10)) {
                let more = n.unwrap_or(0_i128).saturating_mul(10);
                n = Some(more.saturating_add(i128::from(digit)));
            }
            n
        };
        spec.width = number(&mut next_if).unwrap_or(0);
        fault::width(spec.width)?;
        spec.grouping = next_if(",_");
        if next_if(".").is_some() {
            let Some(precision) = number(&mut next_if) else {
                return Err(TemplateFault::value_error(
                    "format specifier missing precision",
                ));
            };
            spec.precision = Some(fault::width(precision)?);
        }
        spec.kind = next_if("bcdeEfFgGnosxX%");
        match at == chars.len() {
            true => Ok(spec),
            false => Err(TemplateFault::value_error("invalid format specifier")),
        }
    }

    fn pad(&self, text: &str, default: char) -> Res<String> {
        let side = match self.align.unwrap_or(default) {
            '<' => PadSide::Right,
            '^' => return centred(text, self.width, self.fill.unwrap_or(' ')),
            // Zeros without an alignment go behind a text.
            '0' if default == '<' => PadSide::Right,
            _ => PadSide::Left,
        };
        padded(text, self.width, self.fill.unwrap_or(' '), side)
    }

    fn pad_number(&self, digits: &Digits) -> Res<String> {
        let of_positive = match self.sign {
            Some('+') => "+",
            Some(' ') => " ",
            _ => "",
        };
        let head = format!("{}{}", digits.sign(of_positive), digits.prefix);
        let is_inside = matches!(self.align, Some('=' | '0'));
        let room = self.width - (head.len() + digits.rest.len()) as i128;
        let is_number = digits.whole.starts_with(|c: char| c.is_ascii_hexdigit());
        let whole = match self.grouping {
            Some(separator) if is_number => {
                let size = if matches!(self.kind, Some('b' | 'o' | 'x' | 'X')) {
                    4
                } else {
                    3
                };
                let is_zeros = is_inside && self.fill == Some('0');
                grouped(
                    &digits.whole,
                    separator,
                    size,
                    if is_zeros { room } else { 0 },
                )
            }
            _ => digits.whole.clone(),
        };
        let number = format!("{whole}{}", digits.rest);
        if is_inside {
            let width = self.width - head.len() as i128;
            return Ok(head + &padded(&number, width, self.fill.unwrap_or(' '), PadSide::Left)?);
        }
        self.pad(&(head + &number), '>')
    }
}

/// `format` puts the odd one to the right, other than `center`.
fn centred(text: &str, width: i128, fill: char) -> Res<String> {
    let n = text.chars().count();
    let missing = fault::width(width)?.saturating_sub(n);
    let left = padded(text, (n + missing / 2) as i128, fill, PadSide::Left)?;
    padded(&left, width, fill, PadSide::Right)
}

/// Digits in groups; with zeros before them up to a width.
fn grouped(digits: &str, separator: char, size: usize, width: i128) -> String {
    let n_wide = |n: usize| (n + (n - 1) / size) as i128;
    let mut n = digits.len();
    while n_wide(n) < width {
        n += 1;
    }
    let mut out = String::new();
    for (i, c) in format!("{digits:0>n$}").chars().enumerate() {
        if i > 0 && (n - i).is_multiple_of(size) {
            out.push(separator);
        }
        out.push(c);
    }
    out
}

/// `format(value, spec)`
fn formatted(value: &Value, spec: &str) -> Res<String> {
    if spec.is_empty() {
        return repr::to_str(value);
    }
    let wrong = |kind: char| {
        Err(TemplateFault::value_error(format!(
            "unknown format code '{kind}' for object of type '{}'",
            value.type_name()
        )))
    };
    let how = Spec::new(spec)?;
    match value {
        Value::Str(text) => {
            if let Some(kind) = how.kind.filter(|kind| *kind != 's') {
                return wrong(kind);
            }
            if how.sign.is_some()
                || how.is_alternate
                || how.grouping.is_some()
                || how.align == Some('=')
            {
                return Err(TemplateFault::value_error(
                    "not allowed in string format specifier",
                ));
            }
            let n = how.precision.unwrap_or(usize::MAX);
            how.pad(&text.text.chars().take(n).collect::<String>(), '<')
        }
        Value::Bool(_) | Value::Int(_) => {
            let n = value.as_int().unwrap_or(0);
            match how.kind {
                Some('s') => wrong('s'),
                Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => float(n as f64, &how),
                _ if how.precision.is_some() => Err(TemplateFault::value_error(
                    "precision not allowed in integer format specifier",
                )),
                Some('c') => {
                    let c = u32::try_from(n).ok().and_then(char::from_u32);
                    let c = c.ok_or_else(|| TemplateFault::value_error("%c arg not in range"))?;
                    how.pad(&c.to_string(), '<')
                }
                Some('b' | 'o' | 'x' | 'X') if how.grouping == Some(',') => Err(
                    TemplateFault::value_error("cannot specify ',' with this kind"),
                ),
                kind => how.pad_number(&Digits::integer(n, kind.unwrap_or('d'), how.is_alternate)),
            }
        }
        Value::Float(x) => match how.kind {
            Some(kind @ ('b' | 'c' | 'd' | 'o' | 'x' | 'X' | 's')) => wrong(kind),
            _ => float(*x, &how),
        },
        other => Err(TemplateFault::type_error(format!(
            "unsupported format string passed to {}.__format__",
            other.type_name()
        ))),
    }
}

fn float(x: f64, how: &Spec) -> Res<String> {
    let mut digits = match (how.kind, how.precision) {
        (None, None) => {
            let text = repr::float(x.abs(), ["nan", "inf", "inf"]);
            Digits::split(text, x.is_sign_negative() && !x.is_nan())
        }
        (None, Some(precision)) => digits::shortest(x, precision)?,
        (Some('%'), precision) => {
            let mut digits =
                Digits::float(x * 100.0, 'f', precision.unwrap_or(6), how.is_alternate)?;
            digits.rest.push('%');
            digits
        }
        (Some('n'), precision) => Digits::float(x, 'g', precision.unwrap_or(6), how.is_alternate)?,
        (Some(kind), precision) => {
            Digits::float(x, kind, precision.unwrap_or(6), how.is_alternate)?
        }
    };
    let is_zero = |c: char| !c.is_ascii_digit() || c == '0';
    if how.has_plain_zero && digits.whole.chars().chain(digits.rest.chars()).all(is_zero) {
        digits.is_negative &= !x.is_finite();
    }
    how.pad_number(&digits)
}
