//! `"…" % values`

use super::digits::Digits;
use super::fault::{self, FaultKind, Res, TemplateFault};
use super::markup::escaped;
use super::methods::PadSide;
use super::methods::padded;
use super::repr;
use super::value::{Text, Value};
use std::iter::Peekable;
use std::str::Chars;

/// The flags, width and precision of a directive.
#[derive(Default)]
struct Directive {
    is_left: bool,
    has_sign: bool,
    has_space: bool,
    is_alternate: bool,
    has_zeros: bool,
    width: i128,
    precision: Option<usize>,
}

/// The values that directives take, one after another.
struct PrintfValues<'v> {
    all: Vec<Value>,
    taken: usize,
    /// The value that keys in parentheses are looked up in.
    mapping: Option<&'v Value>,
}

impl PrintfValues<'_> {
    fn next(&mut self) -> Res<Value> {
        let value = self.all.get(self.taken).cloned();
        self.taken += 1;
        value.ok_or_else(|| TemplateFault::type_error("not enough arguments for format string"))
    }

    fn next_int(&mut self) -> Res<i128> {
        match self.next()? {
            Value::Int(n) => Ok(n),
            _ => Err(TemplateFault::type_error("* wants int")),
        }
    }
}

/// `pattern % values`
pub(crate) fn format(pattern: &Text, values: &Value) -> Res<Value> {
    let is_mapping = matches!(
        values,
        Value::Dict(_) | Value::List(_) | Value::Range(_) | Value::Undefined(_)
    );
    let mut values = PrintfValues {
        all: match values {
            Value::Tuple(list) => list.items.clone(),
            other => vec![other.clone()],
        },
        taken: 0,
        mapping: is_mapping.then_some(values),
    };
    let mut out = String::new();
    let mut chars = pattern.text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '%' => {
                fault::spend(1)?;
                let piece = directive(&mut chars, &mut values, pattern.is_markup)?;
                fault::text(out.len() + piece.len())?;
                out.push_str(&piece);
            }
            c => out.push(c),
        }
    }
    if values.taken < values.all.len() && values.mapping.is_none() {
        return Err(TemplateFault::type_error(
            "not all arguments converted during string formatting",
        ));
    }
    Ok(Value::text(out, pattern.is_markup))
}

/// A number in the pattern.
fn number(chars: &mut Peekable<Chars<'_>>) -> Option<i128> {
    let mut n = None;
    while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
        chars.next();
        let more = |n: i128| n.saturating_mul(10).saturating_add(i128::from(digit));
        n = Some(more(n.unwrap_or(0)));
    }
    n
}

fn key(chars: &mut Peekable<Chars<'_>>) -> Res<String> {
    let (mut key, mut open) = (String::new(), 1);
    for c in chars.by_ref() {
        match c {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Ok(key);
        }
        key.push(c);
    }
    Err(TemplateFault::value_error("incomplete format key"))
}

/// The text of one directive, from behind the `%`.
fn directive(
    chars: &mut Peekable<Chars<'_>>,
    values: &mut PrintfValues<'_>,
    is_markup: bool,
) -> Res<String> {
    if chars.next_if_eq(&'%').is_some() {
        return Ok("%".to_owned());
    }
    if chars.next_if_eq(&'(').is_some() {
        let key = key(chars)?;
        let Some(Value::Dict(dict)) = values.mapping else {
            return Err(TemplateFault::type_error("format requires a mapping"));
        };
        let Some(value) = dict.get_str(&key) else {
            return Err(TemplateFault::new(
                FaultKind::Lookup,
                format!("no key '{key}'"),
            ));
        };
        (values.all, values.taken) = (vec![value.clone()], 0);
    }
    let mut how = Directive::default();
    while let Some(flag) = chars.next_if(|c| "-+ #0".contains(*c)) {
        match flag {
            '-' => how.is_left = true,
            '+' => how.has_sign = true,
            ' ' => how.has_space = true,
            '#' => how.is_alternate = true,
            _ => how.has_zeros = true,
        }
    }
    if chars.next_if_eq(&'*').is_some() {
        let width = values.next_int()?;
        how.is_left |= width < 0;
        how.width = width.saturating_abs();
    } else {
        how.width = number(chars).unwrap_or(0);
    }
    if chars.next_if_eq(&'.').is_some() {
        let precision = match chars.next_if_eq(&'*') {
            Some(_) => values.next_int()?,
            None => number(chars).unwrap_or(0),
        };
        how.precision = Some(fault::width(precision)?);
    }
    chars.next_if(|c| "hlL".contains(*c));
    let Some(kind) = chars.next() else {
        return Err(TemplateFault::value_error("incomplete format"));
    };
    let value = values.next()?;
    how.write(kind, &value, is_markup)
}

impl Directive {
    fn write(&self, kind: char, value: &Value, is_markup: bool) -> Res<String> {
        match kind {
            's' | 'r' | 'a' => {
                let text = match kind {
                    's' => repr::to_str(value)?,
                    'r' => repr::to_repr(value)?,
                    _ => repr::to_ascii(value)?,
                };
                let text = match is_markup && !value.is_markup() {
                    true => escaped(&text),
                    false => text,
                };
                let n = self.precision.unwrap_or(usize::MAX);
                self.pad(&text.chars().take(n).collect::<String>())
            }
            'c' => self.pad(&character(value)?),
            'd' | 'i' | 'u' => {
                let digits = match (value, value.as_int()) {
                    (_, Some(n)) => Digits::integer(n, kind, false),
                    (Value::Float(x), None) if x.is_finite() => {
                        Digits::split(format!("{:.0}", x.abs().trunc()), *x <= -1.0)
                    }
                    (Value::Float(_), None) => {
                        return Err(TemplateFault::new(
                            FaultKind::Arithmetic,
                            "cannot convert it to integer",
                        ));
                    }
                    _ => return Err(not_a_number("a number is required", value)),
                };
                self.integer(digits)
            }
            'o' | 'x' | 'X' => match value.as_int() {
                Some(n) => self.integer(Digits::integer(n, kind, self.is_alternate)),
                None => Err(not_a_number("an integer is required", value)),
            },
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                let Some(x) = value.as_float() else {
                    return Err(not_a_number("must be real number", value));
                };
                let precision = self.precision.unwrap_or(6);
                let digits = Digits::float(x, kind, precision, self.is_alternate)?;
                self.pad_number(&digits, x.is_finite())
            }
            other => Err(TemplateFault::value_error(format!(
                "unsupported format character '{other}'"
            ))),
        }
    }

    fn integer(&self, mut digits: Digits) -> Res<String> {
        if let Some(precision) = self.precision {
            digits.whole = padded(&digits.whole, precision as i128, '0', PadSide::Left)?;
        }
        self.pad_number(&digits, true)
    }

    fn pad(&self, text: &str) -> Res<String> {
        let side = if self.is_left {
            PadSide::Right
        } else {
            PadSide::Left
        };
        padded(text, self.width, ' ', side)
    }

    fn pad_number(&self, digits: &Digits, is_finite: bool) -> Res<String> {
        let of_positive = match (self.has_sign, self.has_space) {
            (true, _) => "+",
            (false, true) => " ",
            _ => "",
        };
        let head = format!("{}{}", digits.sign(of_positive), digits.prefix);
        let number = format!("{}{}", digits.whole, digits.rest);
        if self.has_zeros && !self.is_left && is_finite {
            let width = self.width - head.len() as i128;
            return Ok(head + &padded(&number, width, '0', PadSide::Left)?);
        }
        self.pad(&(head + &number))
    }
}

fn not_a_number(what: &str, value: &Value) -> TemplateFault {
    if value.is_undefined() {
        return value.undefined_fault();
    }
    TemplateFault::type_error(format!("{what}, not {}", value.type_name()))
}

fn character(value: &Value) -> Res<String> {
    if let Value::Str(text) = value
        && text.text.chars().count() == 1
    {
        return Ok(text.text.to_string());
    }
    let code = value
        .as_int()
        .ok_or_else(|| TemplateFault::type_error("%c requires int or char"))?;
    let code = u32::try_from(code).ok().and_then(char::from_u32);
    let c = code.ok_or_else(|| {
        TemplateFault::new(FaultKind::Arithmetic, "%c arg not in range(0x110000)")
    })?;
    Ok(c.to_string())
}
