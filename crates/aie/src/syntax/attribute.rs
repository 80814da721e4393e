//! Values of attributes.

use super::{AffineExpression, Type};
use std::collections::BTreeMap;

/// An attribute's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Attribute {
    /// Present, without a value.
    Unit,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Symbol(String),
    /// A bare word, such as `MM2S`.
    Word(String),
    /// A value of the code, where some ops take a number or a value.
    Value(String),
    Array(Vec<Attribute>),
    Fields(BTreeMap<String, Attribute>),
    Dense(Box<Dense>),
    Type(Type),
    /// A number that follows from values.
    Affine(AffineExpression),
    /// One that no op here looks at.
    Other,
}

/// Numbers of a `dense` attribute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dense {
    /// A single number is the value of all elements.
    pub(crate) numbers: Vec<Attribute>,
    pub(crate) of: Type,
}

impl Attribute {
    pub(crate) fn integer(&self) -> Option<i64> {
        match self {
            Attribute::Integer(value) => Some(*value),
            Attribute::Bool(value) => Some(i64::from(*value)),
            _ => None,
        }
    }

    pub(crate) fn integers(&self) -> Option<Vec<i64>> {
        match self {
            Attribute::Array(all) => all.iter().map(Attribute::integer).collect(),
            _ => None,
        }
    }

    /// A field of a structure such as `<size = 4, stride = 1>`.
    pub(crate) fn field(&self, name: &str) -> Option<&Attribute> {
        match self {
            Attribute::Fields(fields) => fields.get(name),
            _ => None,
        }
    }
}

impl Dense {
    /// The bytes of all elements of a type. The type's text may be elsewhere.
    pub(crate) fn bytes(&self, of: &Type) -> Result<Vec<u8>, String> {
        let (element, count) = match of {
            Type::MemRef(of) => (&of.element, of.elements()),
            Type::Vector(shape, element) => (&**element, Some(shape.iter().product())),
            other => return Err(format!("`dense` of `{other}`")),
        };
        let count = count.ok_or("`dense` of a size that is not fixed")? as usize;
        let n = self.numbers.len();
        if n != 1 && n != count {
            return Err(format!("`dense` has {n} numbers for {count} elements"));
        }
        let mut bytes = Vec::new();
        for number in self.numbers.iter().cycle().take(count) {
            element_bytes(element, number, &mut bytes)?;
        }
        Ok(bytes)
    }
}

/// Appends the bytes of a number as an element.
fn element_bytes(element: &Type, number: &Attribute, to: &mut Vec<u8>) -> Result<(), String> {
    let float = match number {
        Attribute::Float(value) => *value,
        other => other.integer().ok_or("`dense` of what is no number")? as f64,
    };
    let whole = number.integer();
    match element {
        Type::F32 => to.extend((float as f32).to_le_bytes()),
        Type::F64 => to.extend(float.to_le_bytes()),
        Type::Bf16 => to.extend(half::bf16::from_f64(float).to_le_bytes()),
        Type::F16 => to.extend(half::f16::from_f64(float).to_le_bytes()),
        other => {
            let whole = whole.ok_or("a number with a point among whole numbers")?;
            let n = other.size_bytes().ok_or("elements without a size")? as usize;
            to.extend(&whole.to_le_bytes()[..n.min(8)]);
        }
    }
    Ok(())
}
