//! Types.

use std::fmt;

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    /// Whole numbers of so many bits; the sign decides how bytes are shown.
    Integer {
        bits: u32,
        is_unsigned: bool,
    },
    Index,
    Bf16,
    F16,
    F32,
    F64,
    MemRef(Box<MemRefType>),
    /// A value of many elements, which no memory holds.
    Tensor(Box<MemRefType>),
    Vector(Vec<u64>, Box<Type>),
    /// Any other, by its text.
    Other(String),
}

/// A memref's type; strides count elements.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MemRefType {
    /// `None` for `?`.
    pub(crate) shape: Vec<Option<u64>>,
    pub(crate) element: Type,
}

/// Deepest nesting of types.
const MOST_DEPTH: u32 = 4;
/// Elements of a memref or vector, at most.
const MOST_ELEMENTS: u64 = 1 << 32;

impl Type {
    /// Bytes of an element in memory; `None` for a type without memory.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        match self {
            Type::Integer { bits: 1, .. } => Some(1),
            Type::Integer { bits, .. } if [8, 16, 32, 64].contains(bits) => {
                Some(u64::from(*bits / 8))
            }
            Type::Bf16 | Type::F16 => Some(2),
            Type::Index | Type::F32 => Some(4),
            Type::F64 => Some(8),
            _ => None,
        }
    }

    pub(crate) fn is_float(&self) -> bool {
        matches!(self, Type::Bf16 | Type::F16 | Type::F32 | Type::F64)
    }

    /// The memref of it, or of an object FIFO's elements.
    pub(crate) fn memref(&self) -> Option<&MemRefType> {
        match self {
            Type::MemRef(memref) => Some(memref),
            _ => None,
        }
    }

    /// Shape and elements of a memref or a tensor.
    pub(crate) fn shaped(&self) -> Option<&MemRefType> {
        match self {
            Type::MemRef(of) | Type::Tensor(of) => Some(of),
            _ => None,
        }
    }

    /// The type of a text, as in `memref<4x8xi32>`.
    pub(crate) fn read(text: &str) -> Result<Type, String> {
        Type::read_within(text, 0)
    }

    fn read_within(text: &str, depth: u32) -> Result<Type, String> {
        if depth > MOST_DEPTH {
            return Err("types too deep within one another".to_owned());
        }
        let text = text.trim();
        if let Some(inner) = between(text, "memref<") {
            return memref(inner, depth).map(|memref| Type::MemRef(Box::new(memref)));
        }
        // A tensor of other elements is like any unknown type.
        if let Some(inner) = between(text, "tensor<")
            && let Ok(of) = memref(inner, depth)
        {
            return Ok(Type::Tensor(Box::new(of)));
        }
        if let Some(inner) = between(text, "vector<") {
            let memref = memref(inner, depth)?;
            let shape: Option<Vec<u64>> = memref.shape.into_iter().collect();
            let shape = shape.ok_or_else(|| format!("`{text}` has no fixed size"))?;
            return Ok(Type::Vector(shape, Box::new(memref.element)));
        }
        for name in ["!aie.objectfifo<", "!aie.objectfifosubview<"] {
            if let Some(inner) = between(text, name) {
                return Type::read_within(inner, depth + 1);
            }
        }
        Ok(match text {
            "index" => Type::Index,
            "bf16" => Type::Bf16,
            "f16" => Type::F16,
            "f32" => Type::F32,
            "f64" => Type::F64,
            _ => match integer(text) {
                Some((bits, is_unsigned)) => Type::Integer { bits, is_unsigned },
                None => Type::Other(text.to_owned()),
            },
        })
    }
}

fn between<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.strip_prefix(name)?.strip_suffix('>')
}

fn integer(text: &str) -> Option<(u32, bool)> {
    let (is_unsigned, bits) = match text.strip_prefix("ui") {
        Some(bits) => (true, bits),
        None => (
            false,
            text.strip_prefix("si").or_else(|| text.strip_prefix('i'))?,
        ),
    };
    let bits: u32 = bits.parse().ok()?;
    (1..=64).contains(&bits).then_some((bits, is_unsigned))
}

/// The text between the angle brackets of a memref.
fn memref(inner: &str, depth: u32) -> Result<MemRefType, String> {
    // The op that makes the view gives the layout; a memory space changes nothing here.
    let (body, layout) = match inner.split_once(',') {
        Some((body, layout)) => (body.trim(), layout.trim()),
        None => (inner.trim(), ""),
    };
    let known = layout.is_empty()
        || layout.starts_with("strided<")
        || layout.starts_with("affine_map<")
        || layout.starts_with('#')
        || layout
            .split_whitespace()
            .all(|word| word.parse::<i64>().is_ok())
        || layout.ends_with(": i32");
    if !known {
        return Err(format!("the layout `{layout}` is not known"));
    }
    let mut shape = Vec::new();
    let mut rest = body;
    let mut elements = 1u64;
    while let Some((dimension, after)) = rest.split_once('x') {
        let dimension = dimension.trim();
        let size = match dimension {
            "?" => None,
            _ => match dimension.parse::<u64>() {
                Ok(size) => Some(size),
                // The element's own name has an `x`.
                Err(_) => break,
            },
        };
        elements = elements.saturating_mul(size.unwrap_or(1));
        shape.push(size);
        rest = after;
    }
    if elements > MOST_ELEMENTS || shape.len() > 16 {
        return Err(format!("`{body}` is larger than any memory here"));
    }
    let element = Type::read_within(rest, depth + 1)?;
    if element.size_bytes().is_none() {
        return Err(format!("elements of type `{rest}` are not known"));
    }
    Ok(MemRefType { shape, element })
}

impl MemRefType {
    /// So many words in a row.
    pub(crate) fn words(n: u64) -> MemRefType {
        MemRefType {
            shape: vec![Some(n)],
            element: Type::Integer {
                bits: 32,
                is_unsigned: false,
            },
        }
    }

    /// Elements; `None` where a size is not fixed.
    pub(crate) fn elements(&self) -> Option<u64> {
        self.shape.iter().copied().product()
    }

    /// Its text as a type of that name.
    fn named(&self, name: &str) -> String {
        let size = |size: &Option<u64>| size.map_or_else(|| "?x".to_owned(), |n| format!("{n}x"));
        let shape: String = self.shape.iter().map(size).collect();
        format!("{name}<{shape}{}>", self.element)
    }

    pub(crate) fn element_bytes(&self) -> u64 {
        self.element.size_bytes().unwrap_or(1)
    }

    pub(crate) fn bytes(&self) -> Option<u64> {
        Some(self.elements()? * self.element_bytes())
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Integer { bits, is_unsigned } => {
                write!(f, "{}i{bits}", if *is_unsigned { "u" } else { "" })
            }
            Type::Index => f.write_str("index"),
            Type::Bf16 => f.write_str("bf16"),
            Type::F16 => f.write_str("f16"),
            Type::F32 => f.write_str("f32"),
            Type::F64 => f.write_str("f64"),
            Type::MemRef(of) => write!(f, "{of}"),
            Type::Tensor(of) => write!(f, "{}", of.named("tensor")),
            Type::Vector(shape, element) => {
                f.write_str("vector<")?;
                shape.iter().try_for_each(|size| write!(f, "{size}x"))?;
                write!(f, "{element}>")
            }
            Type::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for MemRefType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named("memref"))
    }
}
