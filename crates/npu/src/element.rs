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
}

impl Element {
    /// Every element type, in order of size.
    pub const ALL: [Element; 6] = [
        Element::U8,
        Element::I8,
        Element::I16,
        Element::Bf16,
        Element::I32,
        Element::F32,
    ];

    /// Bytes of one element.
    pub const fn size_bytes(self) -> u64 {
        match self {
            Element::U8 | Element::I8 => 1,
            Element::I16 | Element::Bf16 => 2,
            Element::I32 | Element::F32 => 4,
        }
    }

    /// The name used in text: `u8`, `i8`, `i16`, `bf16`, `i32`, `f32`.
    pub const fn name(self) -> &'static str {
        match self {
            Element::U8 => "u8",
            Element::I8 => "i8",
            Element::I16 => "i16",
            Element::Bf16 => "bf16",
            Element::I32 => "i32",
            Element::F32 => "f32",
        }
    }

    /// The type of that [`name`](Element::name).
    pub fn from_name(name: &str) -> Option<Element> {
        Element::ALL
            .into_iter()
            .find(|element| element.name() == name)
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
    fn names_parse_back() {
        for element in Element::ALL {
            assert_eq!(Element::from_name(element.name()), Some(element));
        }
        assert_eq!(Element::from_name("f64"), None);
    }
}
