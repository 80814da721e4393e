//! Element types: how many fit into a byte, and the conversion of values to bits and back.

use half::bf16;
use std::fmt;

/// The type of one element of a tensor. Little-endian; with two [`I4`](Element::I4) in a byte, the first is the low
/// half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// Signed 4-bit integer.
    I4,
    /// Signed byte.
    I8,
    /// OCP 8-bit float E4M3: no infinities, largest value 448.
    E4m3,
    /// Brain float.
    Bf16,
    /// Signed 32-bit integer.
    I32,
    /// IEEE binary32.
    F32,
}

impl Element {
    /// Every type.
    pub const ALL: [Element; 6] = [
        Element::I4,
        Element::I8,
        Element::E4m3,
        Element::Bf16,
        Element::I32,
        Element::F32,
    ];

    /// Bits of one element.
    pub const fn bits(self) -> u64 {
        match self {
            Element::I4 => 4,
            Element::I8 | Element::E4m3 => 8,
            Element::Bf16 => 16,
            Element::I32 | Element::F32 => 32,
        }
    }

    /// Bytes of `n` elements, the last one whole.
    pub const fn bytes(self, n: u64) -> u64 {
        n.saturating_mul(self.bits()).div_ceil(8)
    }

    /// The vendor's name: `i4`, `i8`, `f8e4m3`, `bf16`, `i32`, `f32`.
    pub const fn name(self) -> &'static str {
        match self {
            Element::I4 => "i4",
            Element::I8 => "i8",
            Element::E4m3 => "f8e4m3",
            Element::Bf16 => "bf16",
            Element::I32 => "i32",
            Element::F32 => "f32",
        }
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<Element> {
        Element::ALL.into_iter().find(|e| e.name() == name)
    }

    /// Whether it holds whole numbers.
    pub const fn is_integer(self) -> bool {
        matches!(self, Element::I4 | Element::I8 | Element::I32)
    }

    /// The type in the container's slots; types that it lacks are bytes.
    pub const fn slot(self) -> millrace_npu::Element {
        match self {
            Element::I4 | Element::E4m3 => millrace_npu::Element::U8,
            Element::I8 => millrace_npu::Element::I8,
            Element::Bf16 => millrace_npu::Element::Bf16,
            Element::I32 => millrace_npu::Element::I32,
            Element::F32 => millrace_npu::Element::F32,
        }
    }

    /// The nearest value of the type, ties to even; integers and E4M3 saturate.
    pub fn round(self, value: f32) -> f32 {
        let integer = |min: f32, max: f32| value.round_ties_even().clamp(min, max);
        match self {
            Element::I4 => integer(-8.0, 7.0),
            Element::I8 => integer(-128.0, 127.0),
            Element::E4m3 => from_e4m3(to_e4m3(value)),
            Element::Bf16 => bf16::from_f32(value).to_f32(),
            Element::I32 => integer(i32::MIN as f32, i32::MAX as f32),
            Element::F32 => value,
        }
    }

    /// The values in bytes, `n` of them from element `start`.
    ///
    /// # Panics
    /// Where the bytes end before.
    pub fn decode(self, bytes: &[u8], start: usize, out: &mut [f32]) {
        let n = out.len();
        match self {
            Element::I4 => {
                for (i, out) in (start..).zip(out) {
                    let code = (bytes[i / 2] >> (4 * (i % 2))) & 15;
                    *out = f32::from(((code << 4) as i8) >> 4);
                }
            }
            Element::I8 => {
                for (out, &byte) in out.iter_mut().zip(&bytes[start..start + n]) {
                    *out = f32::from(byte as i8);
                }
            }
            Element::E4m3 => {
                let table = e4m3_table();
                for (out, &byte) in out.iter_mut().zip(&bytes[start..start + n]) {
                    *out = table[usize::from(byte)];
                }
            }
            Element::Bf16 => {
                let bytes = &bytes[2 * start..2 * (start + n)];
                for (out, pair) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *out = f32::from_bits(u32::from(u16::from_le_bytes(*pair)) << 16);
                }
            }
            Element::I32 => {
                let bytes = &bytes[4 * start..4 * (start + n)];
                for (out, word) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *out = i32::from_le_bytes(*word) as f32;
                }
            }
            Element::F32 => {
                let bytes = &bytes[4 * start..4 * (start + n)];
                for (out, word) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *out = f32::from_le_bytes(*word);
                }
            }
        }
    }

    /// Writes one value as element `at`, rounded as [`round`](Element::round) does.
    ///
    /// # Panics
    /// Where the bytes end before.
    pub fn encode(self, value: f32, bytes: &mut [u8], at: usize) {
        match self {
            Element::I4 => {
                let code = (self.round(value) as i8 as u8) & 15;
                let shift = 4 * (at % 2);
                bytes[at / 2] = (bytes[at / 2] & !(15 << shift)) | (code << shift);
            }
            Element::I8 => bytes[at] = self.round(value) as i8 as u8,
            Element::E4m3 => bytes[at] = to_e4m3(value),
            Element::Bf16 => {
                let word = bf16::from_f32(value).to_le_bytes();
                bytes[2 * at..2 * at + 2].copy_from_slice(&word);
            }
            Element::I32 => {
                bytes[4 * at..4 * at + 4].copy_from_slice(&(value as i32).to_le_bytes());
            }
            Element::F32 => bytes[4 * at..4 * at + 4].copy_from_slice(&value.to_le_bytes()),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The value of an E4M3 code: sign, four bits of exponent with bias 7, three of mantissa; all ones is
/// not a number. Source: OCP 8-bit Floating Point Specification, revision 1.0, section 5.
pub(crate) fn from_e4m3(code: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let size = match (exponent, code & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * (-9f32).exp2(),
        _ => (1.0 + mantissa / 8.0) * ((exponent - 7) as f32).exp2(),
    };
    if code & 0x80 == 0 { size } else { -size }
}

/// Values of all E4M3 codes.
fn e4m3_table() -> &'static [f32; 256] {
    static TABLE: std::sync::OnceLock<[f32; 256]> = std::sync::OnceLock::new();
    TABLE.get_or_init(|| std::array::from_fn(|code| from_e4m3(code as u8)))
}

/// The nearest E4M3 code, ties to even; beyond 448 it saturates, as the cast to narrower types is
/// assumed to do.
pub(crate) fn to_e4m3(value: f32) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let size = value.abs();
    if value.is_nan() {
        return 0x7f;
    }
    if size >= 464.0 {
        return sign | 0x7e;
    }
    // Steps of a binade are an eighth of it; below 2^-6 they stay at 2^-9.
    let exponent = (size.to_bits() >> 23) as i32 - 127;
    let exponent = exponent.max(-6);
    let steps = (size * ((3 - exponent) as f32).exp2()).round_ties_even() as u32;
    let code = match exponent {
        -6 => steps,
        _ => ((exponent + 6) as u32 * 8) + steps,
    };
    sign | (code.min(0x7e) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e4m3_is_that_of_the_specification() {
        assert_eq!(from_e4m3(0x7e), 448.0);
        assert_eq!(from_e4m3(0x08), 2f32.powi(-6));
        assert_eq!(from_e4m3(0x01), 2f32.powi(-9));
        assert!(from_e4m3(0xff).is_nan());
        for code in (0..=255u8).filter(|code| code & 0x7f != 0x7f) {
            assert_eq!(to_e4m3(from_e4m3(code)), code, "{code:#x}");
        }
        assert_eq!(to_e4m3(1e9), 0x7e);
        assert_eq!(to_e4m3(f32::NEG_INFINITY), 0xfe);
    }

    #[test]
    fn rounding_finds_the_nearest_code() {
        let values: Vec<f32> = (0..0x7fu8).map(from_e4m3).collect();
        for i in 0..20_000 {
            let value = (i as f32 - 10_000.0) * 0.046 + 0.0007 * i as f32;
            let found = Element::E4m3.round(value).abs();
            let best = values.iter().map(|v| (v - value.abs()).abs());
            let best = best.fold(f32::INFINITY, f32::min);
            assert_eq!((found - value.abs()).abs(), best, "{value}");
        }
        // Between 1 and 1.125 the even mantissa wins.
        assert_eq!(Element::E4m3.round(1.0625), 1.0);
        assert_eq!(Element::E4m3.round(1.1875), 1.25);
    }

    #[test]
    fn bytes_come_back() {
        for element in Element::ALL {
            let values = [1.0, -2.0, 7.0, -8.0, 0.0, 3.0, -1.0];
            let mut bytes = vec![0; element.bytes(7) as usize];
            for (at, &value) in values.iter().enumerate() {
                element.encode(value, &mut bytes, at);
            }
            let mut found = [0.0; 5];
            element.decode(&bytes, 2, &mut found);
            assert_eq!(found, values[2..], "{element}");
            assert_eq!(Element::from_name(element.name()), Some(element));
        }
    }
}
