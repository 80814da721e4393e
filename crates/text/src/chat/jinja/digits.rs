//! Digits of numbers: common code of `%` and `format`.

use super::fault::{self, Res};

/// A number's sign, digits and the part behind them, to be padded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digits {
    pub(crate) is_negative: bool,
    /// `0x` and the like.
    pub(crate) prefix: &'static str,
    pub(crate) whole: String,
    /// The point, the fraction, the exponent.
    pub(crate) rest: String,
}

impl Digits {
    /// An integer in a base.
    pub(crate) fn integer(n: i128, kind: char, with_prefix: bool) -> Digits {
        let size = n.unsigned_abs();
        let (whole, prefix) = match kind {
            'b' => (format!("{size:b}"), "0b"),
            'o' => (format!("{size:o}"), "0o"),
            'x' => (format!("{size:x}"), "0x"),
            'X' => (format!("{size:X}"), "0X"),
            _ => (size.to_string(), ""),
        };
        Digits {
            is_negative: n < 0,
            prefix: if with_prefix { prefix } else { "" },
            whole,
            rest: String::new(),
        }
    }

    /// A float in the format `e`, `f` or `g` with a number of digits. An alternative form keeps zeros and the point.
    pub(crate) fn float(x: f64, kind: char, precision: usize, is_alternate: bool) -> Res<Digits> {
        fault::width(precision as i128)?;
        let is_negative = x.is_sign_negative() && !x.is_nan();
        let size = x.abs();
        let is_upper = kind.is_ascii_uppercase();
        let mut text = if size.is_nan() {
            "nan".to_owned()
        } else if size.is_infinite() {
            "inf".to_owned()
        } else {
            match kind.to_ascii_lowercase() {
                'f' => fixed(size, precision, is_alternate),
                'e' => scientific(size, precision, is_alternate),
                _ => general(size, precision.max(1), is_alternate),
            }
        };
        if is_upper {
            text.make_ascii_uppercase();
        }
        Ok(Digits::split(text, is_negative))
    }

    /// A number that is already written.
    pub(crate) fn split(text: String, is_negative: bool) -> Digits {
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        // Infinities and NaN have no digits.
        let end = if end == 0 { text.len() } else { end };
        Digits {
            is_negative,
            prefix: "",
            rest: text[end..].to_owned(),
            whole: text[..end].to_owned(),
        }
    }

    /// The sign that is shown.
    pub(crate) fn sign(&self, of_positive: &'static str) -> &'static str {
        match self.is_negative {
            true => "-",
            false => of_positive,
        }
    }
}

fn fixed(x: f64, precision: usize, is_alternate: bool) -> String {
    let point = if is_alternate && precision == 0 {
        "."
    } else {
        ""
    };
    format!("{x:.precision$}{point}")
}

fn scientific(x: f64, precision: usize, is_alternate: bool) -> String {
    let text = format!("{x:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    let point = if is_alternate && precision == 0 {
        "."
    } else {
        ""
    };
    format!("{digits}{point}e{sign}{exponent:0>2}")
}

/// The power of ten of a number that is rounded to a number of digits.
fn exponent(x: f64, precision: usize) -> i32 {
    let text = format!("{x:.*e}", precision - 1);
    text.split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0)
}

fn general(x: f64, precision: usize, is_alternate: bool) -> String {
    let power = exponent(x, precision);
    let is_scientific = power < -4 || power >= precision as i32;
    let text = match is_scientific {
        true => scientific(x, precision - 1, is_alternate),
        false => fixed(
            x,
            (precision as i32 - 1 - power).max(0) as usize,
            is_alternate,
        ),
    };
    match is_alternate {
        true => text,
        false => without_zeros(&text),
    }
}

/// A number without zeros at the end of its fraction.
fn without_zeros(text: &str) -> String {
    let (digits, exponent) = match text.find('e') {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    };
    format!("{digits}{exponent}")
}

/// `format(x, ".N")` without a kind: as `g`, but a fixed point has a digit behind it.
pub(crate) fn shortest(x: f64, precision: usize) -> Res<Digits> {
    let size = x.abs();
    if !size.is_finite() {
        return Digits::float(x, 'g', precision, false);
    }
    fault::width(precision as i128)?;
    let precision = precision.max(1);
    let power = exponent(size, precision);
    let text = if power < -4 || power >= precision as i32 - 1 {
        without_zeros(&scientific(size, precision - 1, false))
    } else {
        let text = without_zeros(&fixed(
            size,
            (precision as i32 - 1 - power).max(0) as usize,
            false,
        ));
        match text.contains('.') {
            true => text,
            false => format!("{text}.0"),
        }
    };
    Ok(Digits::split(text, x.is_sign_negative() && !x.is_nan()))
}
