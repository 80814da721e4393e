//! Values of a core's program.

use crate::syntax::Type;
use std::rc::Rc;

/// How numbers of a type are computed and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// So many bits, in two's complement.
    Integer(u32),
    Bf16,
    F16,
    F32,
    F64,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CoreValue {
    Integer(i64),
    Float(f64),
    View(MemoryView),
    /// Objects of a FIFO.
    Objects(Vec<MemoryView>),
    Vector(Vec<CoreValue>),
    /// Elements of a tensor in row order.
    Tensor(Rc<Vec<CoreValue>>),
}

/// Elements in a memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MemoryView {
    pub(crate) base: Base,
    /// In elements.
    pub(crate) offset: i64,
    pub(crate) sizes: Vec<i64>,
    pub(crate) strides: Vec<i64>,
    pub(crate) number: Number,
}

/// The memory of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// An address as the core sees it.
    Core(u32),
    /// A block of the program's own.
    Own(usize),
}

impl Number {
    /// Type of the elements of a type; a vector's is that of its elements.
    pub(crate) fn of(of: &Type) -> Option<Number> {
        Some(match of {
            Type::Integer { bits, .. } => Number::Integer(*bits),
            Type::Index => Number::Integer(64),
            Type::Bf16 => Number::Bf16,
            Type::F16 => Number::F16,
            Type::F32 => Number::F32,
            Type::F64 => Number::F64,
            Type::Vector(_, element) => Number::of(element)?,
            Type::MemRef(of) => Number::in_memory(&of.element)?,
            // Ops on whole tensors are those of `linalg` alone.
            Type::Tensor(_) | Type::Other(_) => return None,
        })
    }

    /// Type of elements in memory, where an index takes a word.
    pub(crate) fn in_memory(of: &Type) -> Option<Number> {
        match of {
            Type::Index => Some(Number::Integer(32)),
            of => Number::of(of),
        }
    }

    /// Bytes in memory.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Number::Integer(bits) => (bits.div_ceil(8) as usize).next_power_of_two(),
            Number::Bf16 | Number::F16 => 2,
            Number::F32 => 4,
            Number::F64 => 8,
        }
    }

    /// A whole number wrapped to so many bits.
    pub(crate) fn wrap(self, value: i64) -> i64 {
        match self {
            Number::Integer(bits @ 1..=63) => value << (64 - bits) >> (64 - bits),
            _ => value,
        }
    }

    /// The same without its sign.
    pub(crate) fn unsigned(self, value: i64) -> u64 {
        match self {
            Number::Integer(bits @ 1..=63) => value as u64 & ((1 << bits) - 1),
            _ => value as u64,
        }
    }

    /// A result, rounded to the type. This is correct for sums, products and quotients of two numbers of up to 32 bits:
    /// 64 bits hold more than twice their digits.
    pub(crate) fn round(self, value: f64) -> f64 {
        match self {
            Number::Bf16 => half::bf16::from_f64(value).into(),
            Number::F16 => half::f16::from_f64(value).into(),
            Number::F32 => f64::from(value as f32),
            _ => value,
        }
    }

    /// The value of bytes.
    pub(crate) fn read(self, bytes: &[u8]) -> CoreValue {
        let mut raw = [0u8; 8];
        let n = bytes.len().min(8);
        raw[..n].copy_from_slice(&bytes[..n]);
        let bits = u64::from_le_bytes(raw);
        match self {
            Number::Integer(1) => CoreValue::Integer((bits & 1) as i64),
            Number::Integer(_) => CoreValue::Integer(self.wrap(bits as i64)),
            Number::Bf16 => CoreValue::Float(half::bf16::from_bits(bits as u16).into()),
            Number::F16 => CoreValue::Float(half::f16::from_bits(bits as u16).into()),
            Number::F32 => CoreValue::Float(f32::from_bits(bits as u32).into()),
            Number::F64 => CoreValue::Float(f64::from_bits(bits)),
        }
    }

    /// The bytes of a value; the first [`bytes`](Number::bytes) count.
    pub(crate) fn write(self, value: &CoreValue) -> Result<[u8; 8], String> {
        let bits = match (self, value) {
            (Number::Integer(_), CoreValue::Integer(value)) => *value as u64,
            (Number::Bf16, CoreValue::Float(value)) => {
                half::bf16::from_f64(*value).to_bits().into()
            }
            (Number::F16, CoreValue::Float(value)) => half::f16::from_f64(*value).to_bits().into(),
            (Number::F32, CoreValue::Float(value)) => (*value as f32).to_bits().into(),
            (Number::F64, CoreValue::Float(value)) => value.to_bits(),
            _ => return Err(format!("a value of another type is written as {self:?}")),
        };
        Ok(bits.to_le_bytes())
    }
}

impl CoreValue {
    pub(crate) fn integer(&self) -> Result<i64, String> {
        match self {
            CoreValue::Integer(value) => Ok(*value),
            _ => Err("a whole number is needed".to_owned()),
        }
    }

    pub(crate) fn float(&self) -> Result<f64, String> {
        match self {
            CoreValue::Float(value) => Ok(*value),
            _ => Err("a number with a point is needed".to_owned()),
        }
    }

    /// A memref; of a FIFO's objects the first.
    pub(crate) fn view(&self) -> Result<&MemoryView, String> {
        match self {
            CoreValue::View(view) => Ok(view),
            CoreValue::Objects(all) => all.first().ok_or_else(|| "no object is held".to_owned()),
            _ => Err("a memref is needed".to_owned()),
        }
    }
}

impl MemoryView {
    /// All elements of a shape, the last dimension innermost.
    pub(crate) fn whole(base: Base, sizes: &[u64], number: Number) -> MemoryView {
        let sizes: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
        let mut strides = vec![1; sizes.len()];
        for d in (1..sizes.len()).rev() {
            strides[d - 1] = strides[d] * sizes[d];
        }
        MemoryView {
            base,
            offset: 0,
            sizes,
            strides,
            number,
        }
    }

    pub(crate) fn n_elements(&self) -> i64 {
        self.sizes
            .iter()
            .fold(1i64, |product, &size| product.saturating_mul(size))
    }

    /// The position of an element, which must be within.
    pub(crate) fn position(&self, indices: &[i64]) -> Result<i64, String> {
        if indices.len() != self.sizes.len() {
            return Err(format!(
                "{} indices for {} dimensions",
                indices.len(),
                self.sizes.len()
            ));
        }
        let mut position = self.offset;
        for ((&index, &size), &stride) in indices.iter().zip(&self.sizes).zip(&self.strides) {
            if !(0..size).contains(&index) {
                return Err(format!("index {index} of a dimension of {size}"));
            }
            position = position.saturating_add(index.saturating_mul(stride));
        }
        Ok(position)
    }

    /// The position of the i-th element in row order, which is within.
    pub(crate) fn nth(&self, mut i: i64) -> i64 {
        let mut position = self.offset;
        for (&size, &stride) in self.sizes.iter().zip(&self.strides).rev() {
            position = position.saturating_add((i % size.max(1)).saturating_mul(stride));
            i /= size.max(1);
        }
        position
    }

    /// Whether its elements are contiguous.
    pub(crate) fn is_dense(&self) -> bool {
        let mut expected = 1;
        for (&size, &stride) in self.sizes.iter().zip(&self.strides).rev() {
            if size != 1 && stride != expected {
                return false;
            }
            expected = i64::saturating_mul(expected, size);
        }
        true
    }
}
