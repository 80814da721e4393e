//! The program container: the file format of a compiled program.
//!
//! All integers are little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `MILLNPU\0` |
//! | 4 | version, [`VERSION`] |
//! | 8 | length of the body |
//! | 32 | SHA-256 of all the other bytes, in order: the content hash |
//! | … | body |
//!
//! The body is: target and name (`u16` length and UTF-8 each); `u16` number of slots, and for each
//! its name, a byte for the element type (its position in [`Element::ALL`]), a byte for the role
//! (static 0, input 1, intermediate 2, output 3), a byte for the number of dimensions, and a `u64`
//! a dimension; `u64` length of the payload and the payload. Only the target knows the meaning of the payload.

use crate::{Element, Role, Slot};
use sha2::{Digest, Sha256};
use std::collections::HashSet;

/// Version that is written and read.
pub const VERSION: u32 = 1;

/// Dimensions that a slot may have.
pub const MAX_RANK: usize = 8;

const MAGIC: [u8; 8] = *b"MILLNPU\0";
const HEADER_BYTES: usize = 8 + 4 + 8 + 32;
const ROLES: [Role; 4] = [Role::Static, Role::Input, Role::Intermediate, Role::Output];

/// SHA-256 of a program's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    /// The hash of several byte strings, each with its length, so that the boundaries between them count.
    pub fn of(parts: &[&[u8]]) -> ContentHash {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        ContentHash(hash.finalize().into())
    }

    /// Parses the hash that [`Display`](std::fmt::Display) wrote.
    pub fn from_hex(text: &str) -> Option<ContentHash> {
        let mut hash = [0; 32];
        if text.len() != 64 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
        }
        Some(ContentHash(hash))
    }
}

impl std::fmt::Display for ContentHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ContentHash({self})")
    }
}

/// Why bytes are not a container, or a program cannot be put into one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerError {
    /// Bytes without the signature of a container.
    #[error("not a program container: it does not begin with `MILLNPU`")]
    Magic,
    /// Another version of the format.
    #[error("container version {found}; this reader knows version {VERSION}")]
    Version {
        /// The version found.
        found: u32,
    },
    /// The bytes end too early.
    #[error(
        "the container ends within the {field} at byte {offset}: {need} bytes needed, {have} left"
    )]
    Truncated {
        /// The field.
        field: &'static str,
        /// Where it begins.
        offset: usize,
        /// Bytes it needs.
        need: u64,
        /// Bytes there are.
        have: u64,
    },
    /// Bytes that belong to nothing.
    #[error("{count} bytes follow the container's end at byte {offset}")]
    Trailing {
        /// Where the container ends.
        offset: usize,
        /// How many follow.
        count: usize,
    },
    /// The content differs from the bytes that were hashed.
    #[error("the content hash is {found}, the header says {expected}")]
    Hash {
        /// The hash in the header.
        expected: ContentHash,
        /// The hash of the bytes.
        found: ContentHash,
    },
    /// A field that is not UTF-8.
    #[error("the {field} at byte {offset} is not UTF-8")]
    Text {
        /// The field.
        field: &'static str,
        /// Where it begins.
        offset: usize,
    },
    /// A code without meaning.
    #[error("{field} {found} at byte {offset} has no meaning")]
    Code {
        /// The field.
        field: &'static str,
        /// Where it is.
        offset: usize,
        /// The value.
        found: u8,
    },
    /// A number beyond the limits of the format.
    #[error("{field}: {found}; at most {limit} fit")]
    Limit {
        /// The field.
        field: &'static str,
        /// The limit.
        limit: usize,
        /// The value.
        found: usize,
    },
    /// Two slots with one name.
    #[error("two slots are named `{0}`")]
    SlotName(String),
    /// A slot whose size is not a representable number.
    #[error("slot `{0}` has more than 2⁶⁴ bytes")]
    SlotSize(String),
}

/// A compiled program: target, name, argument list, payload, and the hash of it all. Valid by
/// construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    target: String,
    name: String,
    slots: Vec<Slot>,
    payload: Vec<u8>,
    hash: ContentHash,
}

impl Container {
    /// Puts a program into a container.
    ///
    /// # Errors
    /// [`ContainerError::Limit`], [`SlotName`](ContainerError::SlotName) or
    /// [`SlotSize`](ContainerError::SlotSize).
    pub fn new(
        target: &str,
        name: &str,
        slots: Vec<Slot>,
        payload: Vec<u8>,
    ) -> Result<Container, ContainerError> {
        let limit = |field, found: usize, limit: usize| match found > limit {
            true => Err(ContainerError::Limit {
                field,
                limit,
                found,
            }),
            false => Ok(()),
        };
        let u16_max = usize::from(u16::MAX);
        limit("bytes of the target's name", target.len(), u16_max)?;
        limit("bytes of the name", name.len(), u16_max)?;
        limit("number of slots", slots.len(), u16_max)?;
        let mut names = HashSet::new();
        for slot in &slots {
            limit("bytes of a slot's name", slot.name.len(), u16_max)?;
            limit("dimensions of a slot", slot.shape.len(), MAX_RANK)?;
            if !names.insert(&slot.name) {
                return Err(ContainerError::SlotName(slot.name.clone()));
            }
            if slot.size_bytes().is_none() {
                return Err(ContainerError::SlotSize(slot.name.clone()));
            }
        }
        let mut container = Container {
            target: target.to_owned(),
            name: name.to_owned(),
            slots,
            payload,
            hash: ContentHash([0; 32]),
        };
        container.hash = container.computed_hash(&container.body());
        Ok(container)
    }

    /// The target that can run it.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The argument list.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The target's own encoding of the program.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The hash of everything above and the format's version.
    pub fn content_hash(&self) -> ContentHash {
        self.hash
    }

    /// The bytes of the container.
    pub fn encode(&self) -> Vec<u8> {
        let body = self.body();
        let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
        out.extend(prefix(body.len()));
        out.extend(self.hash.0);
        out.extend(body);
        out
    }

    /// Reads a container. Allocates no more than a small multiple of the bytes.
    ///
    /// # Errors
    /// [`ContainerError`]: the fault and its place.
    pub fn decode(bytes: &[u8]) -> Result<Container, ContainerError> {
        let mut reader = ContainerReader { bytes, at: 0 };
        let magic_len = MAGIC.len().min(bytes.len());
        if bytes[..magic_len] != MAGIC[..magic_len] {
            return Err(ContainerError::Magic);
        }
        reader.take("magic", MAGIC.len() as u64)?;
        let found = u32::from_le_bytes(reader.array("version")?);
        if found != VERSION {
            return Err(ContainerError::Version { found });
        }
        let body_len = u64::from_le_bytes(reader.array("length")?);
        let expected = ContentHash(reader.array("content hash")?);
        let body = reader.take("body", body_len)?;
        if reader.at < bytes.len() {
            return Err(ContainerError::Trailing {
                offset: reader.at,
                count: bytes.len() - reader.at,
            });
        }
        let mut body = ContainerReader {
            bytes: &bytes[..HEADER_BYTES + body.len()],
            at: HEADER_BYTES,
        };
        let container = body.container()?;
        match container.hash == expected {
            true => Ok(container),
            false => Err(ContainerError::Hash {
                expected,
                found: container.hash,
            }),
        }
    }

    fn computed_hash(&self, body: &[u8]) -> ContentHash {
        let mut hash = Sha256::new();
        hash.update(prefix(body.len()));
        hash.update(body);
        ContentHash(hash.finalize().into())
    }

    fn body(&self) -> Vec<u8> {
        // Lengths were checked by `new`.
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend((text.len() as u16).to_le_bytes());
            out.extend(text.as_bytes());
        };
        let mut out = Vec::with_capacity(self.payload.len() + 64 * (self.slots.len() + 1));
        text(&mut out, &self.target);
        text(&mut out, &self.name);
        out.extend((self.slots.len() as u16).to_le_bytes());
        for slot in &self.slots {
            text(&mut out, &slot.name);
            let element = Element::ALL.iter().position(|&e| e == slot.element);
            let role = ROLES.iter().position(|&r| r == slot.role);
            out.push(element.unwrap_or(0) as u8);
            out.push(role.unwrap_or(0) as u8);
            out.push(slot.shape.len() as u8);
            for dim in &slot.shape {
                out.extend(dim.to_le_bytes());
            }
        }
        out.extend((self.payload.len() as u64).to_le_bytes());
        out.extend(&self.payload);
        out
    }
}

/// The header before the hash.
fn prefix(body_len: usize) -> [u8; 20] {
    let mut out = [0; 20];
    out[..8].copy_from_slice(&MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..].copy_from_slice(&(body_len as u64).to_le_bytes());
    out
}

struct ContainerReader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> ContainerReader<'b> {
    fn take(&mut self, field: &'static str, need: u64) -> Result<&'b [u8], ContainerError> {
        let rest = &self.bytes[self.at..];
        let have = rest.len() as u64;
        if need > have {
            return Err(ContainerError::Truncated {
                field,
                offset: self.at,
                need,
                have,
            });
        }
        let taken = &rest[..need as usize];
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ContainerError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(field, N as u64)?);
        Ok(array)
    }

    fn text(&mut self, field: &'static str) -> Result<String, ContainerError> {
        let len = u16::from_le_bytes(self.array(field)?);
        let offset = self.at;
        let bytes = self.take(field, u64::from(len))?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(ContainerError::Text { field, offset }),
        }
    }

    fn code<T: Copy>(&mut self, field: &'static str, table: &[T]) -> Result<T, ContainerError> {
        let offset = self.at;
        let [found] = self.array(field)?;
        let value = table.get(usize::from(found)).copied();
        value.ok_or(ContainerError::Code {
            field,
            offset,
            found,
        })
    }

    fn container(&mut self) -> Result<Container, ContainerError> {
        let target = self.text("target")?;
        let name = self.text("name")?;
        let n_slots = u16::from_le_bytes(self.array("number of slots")?);
        let mut slots = Vec::new();
        for _ in 0..n_slots {
            let name = self.text("slot name")?;
            let element = self.code("element type", &Element::ALL)?;
            let role = self.code("role", &ROLES)?;
            let [rank] = self.array("number of dimensions")?;
            let mut shape = Vec::new();
            for _ in 0..rank {
                shape.push(u64::from_le_bytes(self.array("dimension")?));
            }
            slots.push(Slot {
                name,
                element,
                shape,
                role,
            });
        }
        let len = u64::from_le_bytes(self.array("payload length")?);
        let payload = self.take("payload", len)?.to_vec();
        if self.at < self.bytes.len() {
            return Err(ContainerError::Trailing {
                offset: self.at,
                count: self.bytes.len() - self.at,
            });
        }
        Container::new(&target, &name, slots, payload)
    }
}

#[cfg(test)]
mod tests;
