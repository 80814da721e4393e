//! Tensors: values that ops take and give, without a memory.
//!
//! Each op copies the tensors that it takes into memory of its own, works there as on memrefs, and gives the result as a
//! new value. A compiler that puts tensors into memories may leave copies out, and must leave the values as they are.

use super::CoreCompiler;
use crate::core::code::Instruction as I;
use crate::core::value::Number;
use crate::syntax::{Op, SyntaxError, Type};

impl CoreCompiler<'_> {
    /// Memory of an op's own for values of a type.
    pub(super) fn scratch(&mut self, op: &Op, of: &Type) -> Result<usize, SyntaxError> {
        let shaped = of.shaped();
        let shape: Option<Vec<u64>> = shaped.and_then(|of| of.shape.iter().copied().collect());
        let number = shaped.and_then(|of| Number::in_memory(&of.element));
        let (Some(shape), Some(number)) = (shape, number) else {
            return Err(op.error(format!("{of} has no fixed size")));
        };
        let to = self.slot();
        self.push(I::Scratch(to, shape, number))?;
        Ok(to)
    }

    /// A tensor in memory of the op's own.
    pub(super) fn put(&mut self, op: &Op, tensor: usize, of: &Type) -> Result<usize, SyntaxError> {
        let view = self.scratch(op, of)?;
        self.push(I::PutTensor(tensor, view))?;
        Ok(view)
    }

    pub(super) fn tensor(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let of = |i: usize| op.types.get(i).ok_or_else(|| op.error("it has no type"));
        let last = of(op.types.len().saturating_sub(1))?;
        match op.name.as_str() {
            "bufferization.to_tensor" => {
                let view = self.operand(op, 0)?;
                let to = self.target(op);
                self.push(I::TakeTensor(to, view))
            }
            "bufferization.to_buffer" | "bufferization.to_memref" => {
                let tensor = self.operand(op, 0)?;
                let view = self.put(op, tensor, last)?;
                let to = self.target(op);
                self.push(I::Copy(vec![(view, to)]))
            }
            "bufferization.materialize_in_destination" => {
                let (tensor, into) = (self.operand(op, 0)?, self.operand(op, 1)?);
                if op.results.is_empty() && of(1)?.memref().is_some() {
                    return self.push(I::PutTensor(tensor, into));
                }
                let to = self.target(op);
                self.push(I::Copy(vec![(tensor, to)]))
            }
            "bufferization.alloc_tensor" | "tensor.empty" if op.operands.is_empty() => {
                let view = self.scratch(op, last)?;
                let to = self.target(op);
                self.push(I::TakeTensor(to, view))
            }
            "tensor.extract" => {
                let tensor = self.operand(op, 0)?;
                let view = self.put(op, tensor, last)?;
                let indices = self.terms(op, "indices")?;
                let to = self.target(op);
                self.push(I::Load(to, view, indices))
            }
            "tensor.insert" => {
                let (value, tensor) = (self.operand(op, 0)?, self.operand(op, 1)?);
                let view = self.put(op, tensor, last)?;
                let indices = self.terms(op, "indices")?;
                self.push(I::Store(value, view, indices))?;
                let to = self.target(op);
                self.push(I::TakeTensor(to, view))
            }
            "tensor.cast" | "tensor.collapse_shape" | "tensor.expand_shape" => {
                let elements = |of: &Type| of.shaped().and_then(|of| of.elements());
                if elements(of(0)?) != elements(last) || elements(last).is_none() {
                    return Err(op.error("its types have not the same elements"));
                }
                let tensor = self.operand(op, 0)?;
                let to = self.target(op);
                self.push(I::Copy(vec![(tensor, to)]))
            }
            _ => Err(op.error("it does not stand in a core's program")),
        }
    }

    /// Operands of a `linalg` op, each tensor in memory of the op's own.
    pub(super) fn linalg_views(&mut self, op: &Op) -> Result<Vec<usize>, SyntaxError> {
        let has = |is: fn(&Type) -> bool| op.types.iter().any(is);
        if has(is_tensor) && has(|of| matches!(of, Type::MemRef(_))) {
            return Err(op.error("its operands are tensors and memrefs; one kind is known"));
        }
        let mut views = self.operands(op)?;
        for (view, of) in views.iter_mut().zip(&op.types) {
            if is_tensor(of) {
                *view = self.put(op, *view, of)?;
            }
        }
        Ok(views)
    }

    /// Gives the results of a `linalg` op on tensors, one for each output.
    pub(super) fn linalg_results(&mut self, op: &Op, outputs: &[usize]) -> Result<(), SyntaxError> {
        let wanted = if op.types.iter().any(is_tensor) {
            outputs.len()
        } else {
            0
        };
        if op.results.len() != wanted {
            let n = op.results.len();
            return Err(op.error(format!(
                "{n} results; on tensors it gives one for each output, on memrefs none"
            )));
        }
        for (result, &view) in op.results.iter().zip(outputs) {
            let to = self.bind(result);
            self.push(I::TakeTensor(to, view))?;
        }
        Ok(())
    }
}

fn is_tensor(of: &Type) -> bool {
    matches!(of, Type::Tensor(_))
}
