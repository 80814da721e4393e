//! Ops of memory and of vectors.

use super::CoreCompiler;
use crate::core::code::Instruction as I;
use crate::core::value::{CoreValue, Number};
use crate::syntax::{AffineExpression, MemRefType, Op, SyntaxError, Type};
use std::rc::Rc;

/// Elements of a vector, at most.
const MOST_LANES: u64 = 4096;

impl CoreCompiler<'_> {
    /// As [`CoreCompiler::compute_into`], but into a new slot, which it returns.
    pub(super) fn computed(
        &mut self,
        name: &str,
        number: Number,
        from: Vec<usize>,
    ) -> Result<usize, SyntaxError> {
        let to = self.slot();
        self.compute_into(to, name, number, from)?;
        Ok(to)
    }

    pub(super) fn memory(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let to_type = op.types.last().and_then(Type::memref);
        match op.name.as_str() {
            "memref.load" | "affine.load" => {
                let (from, indices) = (self.operand(op, 0)?, self.indices(op, 1)?);
                let to = self.target(op);
                self.push(I::Load(to, from, indices))
            }
            "memref.store" | "affine.store" => {
                let (value, into) = (self.operand(op, 0)?, self.operand(op, 1)?);
                let indices = self.indices(op, 2)?;
                self.push(I::Store(value, into, indices))
            }
            "memref.alloc" | "memref.alloca" => {
                let (shape, number) = shape(op, to_type)?;
                let to = self.target(op);
                self.push(I::Allocate(to, shape, number, None))
            }
            "memref.get_global" => {
                let name = op.text("name")?;
                let global = self.design.globals.get(name);
                let global =
                    global.ok_or_else(|| op.error(format!("there is no global @{name}")))?;
                let (shape, number) = shape(op, Some(&global.of))?;
                let bytes = global.bytes.clone().map(Rc::new);
                let to = self.target(op);
                self.push(I::Allocate(to, shape, number, bytes))
            }
            "memref.dealloc" => Ok(()),
            "memref.assume_alignment" if op.results.is_empty() => Ok(()),
            "memref.copy" => {
                let (from, into) = (self.operand(op, 0)?, self.operand(op, 1)?);
                self.push(I::CopyView(from, into))
            }
            "memref.dim" => {
                let (of, index) = (self.operand(op, 0)?, self.operand(op, 1)?);
                let to = self.target(op);
                self.push(I::Dimension(to, of, index))
            }
            "memref.cast" | "memref.assume_alignment" => {
                let from = self.operand(op, 0)?;
                let to = self.target(op);
                self.push(I::Copy(vec![(from, to)]))
            }
            "memref.collapse_shape" | "memref.expand_shape" => {
                let (shape, _) = shape(op, to_type)?;
                let from = self.operand(op, 0)?;
                let to = self.target(op);
                self.push(I::Reshape(to, from, shape))
            }
            _ => self.view(op),
        }
    }

    /// A view at other offsets, sizes and strides.
    fn view(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let is_cast = op.name == "memref.reinterpret_cast";
        let from = self.operand(op, 0)?;
        let terms = [
            self.terms(op, "offsets")?,
            self.terms(op, "sizes")?,
            self.terms(op, "strides")?,
        ];
        if op.operands.len() > 1 {
            return Err(op.error("offsets among the operands are not known here"));
        }
        let to = self.target(op);
        self.push(I::View(to, from, terms, is_cast))
    }

    pub(super) fn vector(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let size = |of: Option<&Type>| match of {
            Some(Type::Vector(shape, _)) if shape.len() == 1 && shape[0] <= MOST_LANES => {
                Ok(shape[0] as usize)
            }
            _ => Err(op.error("vectors of one dimension are known")),
        };
        match op.name.as_str() {
            "vector.load" | "vector.transfer_read" => {
                let n = size(op.types.last())?;
                if op.get("permutation_map").is_some() {
                    return Err(op.error("a permutation is not known"));
                }
                let (from, indices) = (self.operand(op, 0)?, self.terms(op, "indices")?);
                let to = self.target(op);
                self.push(I::LoadVector(to, from, indices, n))
            }
            "vector.store" | "vector.transfer_write" => {
                if op.get("permutation_map").is_some() {
                    return Err(op.error("a permutation is not known"));
                }
                let (value, into) = (self.operand(op, 0)?, self.operand(op, 1)?);
                let indices = self.terms(op, "indices")?;
                self.push(I::StoreVector(value, into, indices))
            }
            "vector.broadcast" | "vector.splat" => {
                let n = size(op.types.last())?;
                let from = self.operand(op, 0)?;
                let to = self.target(op);
                self.push(I::Splat(to, from, n))
            }
            "vector.reduction" => {
                let kind = op.text("kind")?.to_owned();
                let number = op.types.first().and_then(Number::of);
                let number = number.ok_or_else(|| op.error("a type that is not known"))?;
                if op.operands.len() != 1 {
                    return Err(op.error("a reduction that begins with a value is not known"));
                }
                let from = self.operand(op, 0)?;
                let to = self.target(op);
                self.push(I::Reduce(to, from, kind, number))
            }
            "vector.extract" => {
                let from = self.operand(op, 0)?;
                let position = self.terms(op, "position")?;
                let to = self.target(op);
                self.push(I::Extract(to, from, position))
            }
            _ => self.lanes(op),
        }
    }

    /// Compiles ops that move elements of vectors.
    fn lanes(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let elements = |of: Option<&Type>| match of {
            Some(Type::Vector(shape, _)) => {
                let n = shape.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
                n.filter(|&n| n <= MOST_LANES)
            }
            _ => None,
        };
        let first = self.operand(op, 0)?;
        match op.name.as_str() {
            // Elements are contiguous in every shape.
            "vector.shape_cast" => {
                if elements(op.types.first()).is_none()
                    || elements(op.types.first()) != elements(op.types.last())
                {
                    return Err(op.error("its types have not the same elements"));
                }
                let to = self.target(op);
                self.push(I::Copy(vec![(first, to)]))
            }
            "vector.bitcast" => {
                let numbers = [op.types.first(), op.types.last()].map(|of| of.and_then(Number::of));
                let [Some(from), Some(into)] = numbers else {
                    return Err(op.error("a type that is not known"));
                };
                let bytes = |of, number: Number| Some(elements(of)? * number.bytes() as u64);
                let (old, new) = (op.types.first(), op.types.last());
                if bytes(old, from).is_none() || bytes(old, from) != bytes(new, into) {
                    return Err(op.error("its types have not the same bits"));
                }
                let to = self.target(op);
                self.push(I::Bitcast(to, first, (from, into)))
            }
            "vector.insert" => {
                let into = self.operand(op, 1)?;
                let position = self.terms(op, "position")?;
                let to = self.target(op);
                self.push(I::Insert(to, (first, into), position))
            }
            "vector.shuffle" => {
                let second = self.operand(op, 1)?;
                let mask = op.need("mask")?.integers().unwrap_or_default();
                let mask: Result<Vec<usize>, _> = mask.into_iter().map(usize::try_from).collect();
                let mask = mask.map_err(|_| op.error("a negative number of an element"))?;
                if mask.is_empty() || mask.len() as u64 > MOST_LANES {
                    return Err(op.error("its mask is no list of elements"));
                }
                let to = self.target(op);
                self.push(I::Shuffle(to, (first, second), mask))
            }
            _ => Err(op.error("it does not stand in a core's program")),
        }
    }
}

impl CoreCompiler<'_> {
    /// A vector of 512 bits to the next core, or from the one before.
    pub(super) fn cascade(&mut self, op: &Op) -> Result<(), SyntaxError> {
        const CASCADE_BYTES: u64 = 64;
        let number = match op.types.first() {
            Some(Type::Vector(shape, element)) => Number::in_memory(element)
                .filter(|n| shape.iter().product::<u64>() == CASCADE_BYTES / n.bytes() as u64),
            _ => None,
        };
        let number = number.ok_or_else(|| op.error("the cascade takes vectors of 512 bits"))?;
        let own = self.tile();
        let (sends, receives) = (
            self.design.cascades.iter().any(|row| row.0 == own),
            self.design.cascades.iter().any(|row| row.1 == own),
        );
        if op.name == "aie.put_cascade" {
            if !sends {
                return Err(op.error(format!("no `aie.cascade_flow` leads from {own}")));
            }
            let from = self.operand(op, 0)?;
            return self.push(I::PutCascade(from, number));
        }
        if !receives {
            return Err(op.error(format!("no `aie.cascade_flow` leads to {own}")));
        }
        let to = self.target(op);
        self.push(I::GetCascade(to, number))
    }
}

/// Sizes and elements of a memref of fixed size.
fn shape(op: &Op, of: Option<&MemRefType>) -> Result<(Vec<u64>, Number), SyntaxError> {
    let of = of.ok_or_else(|| op.error("its type is no memref"))?;
    let shape: Option<Vec<u64>> = of.shape.iter().copied().collect();
    let shape = shape.ok_or_else(|| op.error("a size that is not fixed"))?;
    let number = Number::in_memory(&of.element);
    let number = number.ok_or_else(|| op.error("elements of an unknown type"))?;
    Ok((shape, number))
}

impl CoreCompiler<'_> {
    /// The slot of an affine expression's value.
    pub(in crate::core) fn affine(
        &mut self,
        op: &Op,
        of: &AffineExpression,
    ) -> Result<usize, SyntaxError> {
        let number = Number::Integer(64);
        match of {
            AffineExpression::Value(name) => self.use_name(op, name),
            AffineExpression::Constant(value) => {
                let to = self.slot();
                self.push(I::Constant(to, CoreValue::Integer(*value)))?;
                Ok(to)
            }
            AffineExpression::Of(name, both) => {
                let from = vec![self.affine(op, &both[0])?, self.affine(op, &both[1])?];
                self.computed(name, number, from)
            }
        }
    }
}
