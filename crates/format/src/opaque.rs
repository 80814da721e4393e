//! Element types that checkpoints carry and this program does not decode.
//!
//! A tensor of such a type can be listed, and copied where its size is known. A caller that needs
//! its numbers gets [`crate::Error::UnsupportedType`].

use std::fmt;

/// A type whose elements are not decoded.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpaqueType {
    name: Name,
    /// ggml's number, in GGUF files.
    ggml_id: Option<u32>,
    /// Elements and bytes of a block; `None` where the size is unknown.
    block: Option<(usize, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Known(&'static str),
    /// The name in the file; empty for a mere number.
    Unknown(Label),
}

/// The beginning of a name that is not in any table.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Label {
    bytes: [u8; Label::MAX_BYTES],
    len: u8,
}

impl Label {
    const MAX_BYTES: usize = 15;

    fn new(text: &str) -> Label {
        let len = text.floor_char_boundary(Label::MAX_BYTES);
        let mut bytes = [0; Label::MAX_BYTES];
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Label {
            bytes,
            len: len as u8,
        }
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl OpaqueType {
    /// A type of ggml's table: `elems` elements take `bytes` bytes.
    pub(crate) const fn ggml(
        name: &'static str,
        id: u32,
        block: Option<(usize, usize)>,
    ) -> OpaqueType {
        OpaqueType {
            name: Name::Known(name),
            ggml_id: Some(id),
            block,
        }
    }

    /// A number that ggml's table does not have.
    pub(crate) fn unknown_ggml(id: u32) -> OpaqueType {
        OpaqueType {
            name: Name::Unknown(Label::new("")),
            ggml_id: Some(id),
            block: None,
        }
    }

    /// A type that safetensors defines.
    pub(crate) const fn safetensors(name: &'static str, block: (usize, usize)) -> OpaqueType {
        OpaqueType {
            name: Name::Known(name),
            ggml_id: None,
            block: Some(block),
        }
    }

    /// A name that safetensors does not define.
    pub(crate) fn unknown_safetensors(name: &str) -> OpaqueType {
        OpaqueType {
            name: Name::Unknown(Label::new(name)),
            ggml_id: None,
            block: None,
        }
    }

    /// The format's name of the type, `unknown` where it has none.
    pub fn name(self) -> &'static str {
        match self.name {
            Name::Known(name) => name,
            Name::Unknown(_) => "unknown",
        }
    }

    /// Whether the format defines the bytes of a tensor.
    pub fn is_sized(self) -> bool {
        self.block.is_some()
    }

    /// Bytes of `n_elems` elements; `None` if they are not whole blocks, overflow, or are of unknown size.
    pub fn size_bytes(self, n_elems: usize) -> Option<usize> {
        let (elems, bytes) = self.block?;
        if !n_elems.is_multiple_of(elems) {
            return None;
        }
        (n_elems / elems).checked_mul(bytes)
    }

    /// Elements of a block, 1 where the size is unknown.
    pub(crate) fn block_elems(self) -> usize {
        self.block.map_or(1, |(elems, _)| elems)
    }

    pub(crate) fn ggml_id(self) -> Option<u32> {
        self.ggml_id
    }
}

impl fmt::Display for OpaqueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name, self.ggml_id) {
            (Name::Known(name), Some(id)) => write!(f, "{name} (ggml type {id})"),
            (Name::Known(name), None) => f.write_str(name),
            // ik_llama.cpp numbers its own types from 133 on, their interleaved kinds from 202 and 337 on.
            (Name::Unknown(_), Some(id @ 133..400)) => {
                write!(f, "number {id}, a type of ik_llama.cpp")
            }
            (Name::Unknown(_), Some(id)) => write!(f, "number {id}, unknown to this program"),
            (Name::Unknown(label), None) => {
                write!(f, "{:?}, unknown to this program", label.text())
            }
        }
    }
}

impl fmt::Debug for OpaqueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpaqueType({self})")
    }
}
