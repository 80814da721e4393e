//! Element types of buffers and streams.

use serde::{Deserialize, Serialize};

/// The type of one element in a buffer, a channel or a tile's memory. Little-endian everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// Unsigned byte; also raw bytes of a packed format (Q4NX blocks).
    U8,
    /// Signed byte.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Brain float: the upper half of an IEEE binary32.
    Bf16,
    /// Signed 32-bit integer.
    I32,
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// 8-bit float with 4 bits of exponent and 3 of mantissa, without infinities (OCP E4M3).
    F8E4m3,
    /// Signed 4-bit integer, two in a byte, the first in the low half.
    I4,
}

impl Element {
    /// Every element type, in the order of their codes: new ones are appended.
    pub const ALL: [Element; 9] = [
        Element::U8,
        Element::I8,
        Element::I16,
        Element::Bf16,
        Element::I32,
        Element::F32,
        Element::F16,
        Element::F8E4m3,
        Element::I4,
    ];

    /// Bits of one element.
    pub const fn size_bits(self) -> u64 {
        match self {
            Element::I4 => 4,
            Element::U8 | Element::I8 | Element::F8E4m3 => 8,
            Element::I16 | Element::Bf16 | Element::F16 => 16,
            Element::I32 | Element::F32 => 32,
        }
    }

    /// Bytes that one element needs by itself; for many, use [`size_bits`](Element::size_bits).
    pub const fn size_bytes(self) -> u64 {
        self.size_bits().div_ceil(8)
    }

    /// The name used in text: `u8`, `i8`, `i16`, `bf16`, `i32`, `f32`, `f16`, `f8e4m3`, `i4`.
    pub const fn name(self) -> &'static str {
        match self {
            Element::U8 => "u8",
            Element::I8 => "i8",
            Element::I16 => "i16",
            Element::Bf16 => "bf16",
            Element::I32 => "i32",
            Element::F32 => "f32",
            Element::F16 => "f16",
            Element::F8E4m3 => "f8e4m3",
            Element::I4 => "i4",
        }
    }

    /// Binary digits of a float's significand, with the implicit one; `None` for integers.
    pub const fn precision(self) -> Option<u32> {
        match self {
            Element::F8E4m3 => Some(4),
            Element::Bf16 => Some(8),
            Element::F16 => Some(11),
            Element::F32 => Some(24),
            Element::U8 | Element::I8 | Element::I16 | Element::I32 | Element::I4 => None,
        }
    }

    /// Decodes the number of one element; `None` for other than [`size_bytes`](Element::size_bytes) bytes. For two
    /// 4-bit integers, the first.
    pub fn number(self, bytes: &[u8]) -> Option<f64> {
        Some(match (self, bytes) {
            (Element::U8, &[a]) => f64::from(a),
            (Element::I8, &[a]) => f64::from(a.cast_signed()),
            (Element::I4, &[a]) => f64::from((a << 4).cast_signed() >> 4),
            (Element::F8E4m3, &[a]) => float(u32::from(a), 4, 3),
            (Element::I16, &[a, b]) => f64::from(i16::from_le_bytes([a, b])),
            (Element::Bf16, &[a, b]) => f64::from(f32::from_le_bytes([0, 0, a, b])),
            (Element::F16, &[a, b]) => float(u32::from(u16::from_le_bytes([a, b])), 5, 10),
            (Element::I32, &[a, b, c, d]) => f64::from(i32::from_le_bytes([a, b, c, d])),
            (Element::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
            _ => return None,
        })
    }

    /// The type of that [`name`](Element::name).
    pub fn from_name(name: &str) -> Option<Element> {
        Element::ALL
            .into_iter()
            .find(|element| element.name() == name)
    }
}

/// A float of so many bits of exponent and of mantissa. Four bits of exponent have no infinities: all
/// ones is a number unless the mantissa is all ones too.
fn float(bits: u32, n_exponent: u32, n_mantissa: u32) -> f64 {
    let mantissa = bits & ((1 << n_mantissa) - 1);
    let exponent = bits >> n_mantissa & ((1 << n_exponent) - 1);
    let sign = if bits >> (n_exponent + n_mantissa) & 1 == 1 {
        -1.0
    } else {
        1.0
    };
    let bias = (1 << (n_exponent - 1)) - 1;
    let scaled = |significand: u32, exponent: i32| {
        f64::from(significand) * f64::from(exponent - n_mantissa.cast_signed()).exp2()
    };
    let is_last = exponent == (1 << n_exponent) - 1;
    let is_nan = match n_exponent {
        4 => is_last && mantissa == (1 << n_mantissa) - 1,
        _ => is_last && mantissa != 0,
    };
    sign * match exponent {
        _ if is_nan => f64::NAN,
        _ if is_last && n_exponent > 4 => f64::INFINITY,
        0 => scaled(mantissa, 1 - bias),
        _ => scaled(mantissa | 1 << n_mantissa, exponent.cast_signed() - bias),
    }
}

impl std::fmt::Display for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Element;

    #[test]
    fn bytes_are_numbers() {
        for (element, bytes, number) in [
            (Element::I4, &[0xf8][..], -8.0),
            (Element::F8E4m3, &[0x38], 1.0),
            (Element::F8E4m3, &[0x7e], 448.0),
            (Element::F8E4m3, &[0x81], -1.0 / 512.0),
            (Element::F16, &[0x00, 0x3c], 1.0),
            (Element::F16, &[0xff, 0x7b], 65504.0),
            (Element::F16, &[0x01, 0x80], -(2.0_f64.powi(-24))),
            (Element::F16, &[0x00, 0xfc], f64::NEG_INFINITY),
            (Element::Bf16, &[0x80, 0x3f], 1.0),
            (Element::I16, &[0xff, 0xff], -1.0),
        ] {
            assert_eq!(element.number(bytes), Some(number), "{element} {bytes:?}");
        }
        assert!(Element::F8E4m3.number(&[0x7f]).unwrap().is_nan());
        assert!(Element::F16.number(&[0x01, 0x7c]).unwrap().is_nan());
        assert_eq!(Element::F32.number(&[0, 0]), None);
    }

    #[test]
    fn names_parse_back() {
        for element in Element::ALL {
            assert_eq!(Element::from_name(element.name()), Some(element));
        }
        assert_eq!(Element::from_name("f64"), None);
    }
}
