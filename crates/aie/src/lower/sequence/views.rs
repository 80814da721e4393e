//! Parts of the sequence's arguments, and other names of them.
//!
//! As mlir-aie follows them to the argument: each op adds to the distance from its begin. How a transfer walks from there
//! stands in the transfer.

use super::Sequence;
use crate::design;
use crate::syntax::{Attribute, MemRefType, Op, SyntaxError};

/// Meaning of a name: an argument from a byte on, and the layout of its elements.
#[derive(Clone, Debug)]
pub(in crate::lower) struct ArgumentView {
    pub(in crate::lower) argument: usize,
    pub(in crate::lower) offset_bytes: u64,
    pub(in crate::lower) of: MemRefType,
    /// From one element of a dimension to the next, in elements.
    strides: Vec<u64>,
}

impl Sequence<'_> {
    /// The argument of a name, or the part of one.
    pub(in crate::lower) fn argument(
        &self,
        op: &Op,
        name: &str,
    ) -> Result<ArgumentView, SyntaxError> {
        if let Some(view) = self.views.get(name) {
            return Ok(view.clone());
        }
        let mut arguments = self.design.arguments.iter().enumerate();
        let found = arguments.find(|row| row.1.name == name);
        let found = found.map(|(argument, row)| ArgumentView {
            argument,
            offset_bytes: 0,
            of: row.of.clone(),
            strides: row_major(&row.of),
        });
        found.ok_or_else(|| op.error(format!("%{name} is no argument of the sequence")))
    }

    /// Remembers a view of an argument.
    pub(super) fn view(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let mut view = self.argument(op, op.operand(0)?)?;
        let to = op.types.last().and_then(|of| of.memref()).cloned();
        let step = match op.name.as_str() {
            "memref.subview" => {
                let step = self.subview(op, &mut view, to.as_ref())?;
                view.of = to.unwrap_or(view.of);
                step
            }
            "memref.reinterpret_cast" => {
                let [offset] = self.naturals(op, "offsets")?[..] else {
                    return Err(op.error("it has one offset"));
                };
                let step = offset.checked_mul(view.of.element_bytes());
                view.of = to.unwrap_or(view.of);
                view.strides = self.naturals(op, "strides")?;
                step
            }
            // The distance is in bytes.
            "memref.view" => {
                let [offset] = self.naturals(op, "offsets")?[..] else {
                    return Err(op.error("it has one distance"));
                };
                view.of = to.unwrap_or(view.of);
                view.strides = row_major(&view.of);
                Some(offset)
            }
            _ => {
                let of = to.unwrap_or_else(|| view.of.clone());
                if of.shape.len() != view.of.shape.len() {
                    if view.strides != row_major(&view.of) {
                        return Err(op.error("another shape of elements that do not lie in a row"));
                    }
                    view.strides = row_major(&of);
                }
                view.of = of;
                Some(0)
            }
        };
        let offset = step.and_then(|step| view.offset_bytes.checked_add(step));
        let bytes = self.design.arguments[view.argument].bytes;
        view.offset_bytes = offset.filter(|&offset| offset < bytes).ok_or_else(|| {
            op.error(format!(
                "it begins beyond the {bytes} bytes of its argument"
            ))
        })?;
        if let Some(result) = op.results.first() {
            self.views.insert(result.clone(), view);
        }
        Ok(())
    }

    /// Bytes that a part begins later than its whole; the whole gets the strides of the part.
    fn subview(
        &self,
        op: &Op,
        view: &mut ArgumentView,
        to: Option<&MemRefType>,
    ) -> Result<Option<u64>, SyntaxError> {
        let [offsets, sizes, steps] =
            ["offsets", "sizes", "strides"].map(|name| self.naturals(op, name));
        let (offsets, sizes, steps) = (offsets?, sizes?, steps?);
        let n = view.strides.len();
        if [offsets.len(), sizes.len(), steps.len()] != [n; 3] {
            return Err(op.error(format!("offsets, sizes and strides of {n} dimensions")));
        }
        let mut rows = offsets.iter().zip(&view.strides);
        let elements = rows.try_fold(0u64, |sum, (offset, stride)| {
            sum.checked_add(offset.checked_mul(*stride)?)
        });
        // A type of fewer dimensions leaves out those of one element.
        let mut n_dropped = n.saturating_sub(to.map_or(n, |to| to.shape.len()));
        let mut strides = Vec::new();
        for ((size, step), stride) in sizes.iter().zip(&steps).zip(&view.strides) {
            if *size == 1 && n_dropped > 0 {
                n_dropped -= 1;
                continue;
            }
            strides.push(stride.saturating_mul(*step));
        }
        view.strides = strides;
        Ok(elements.and_then(|elements| elements.checked_mul(view.of.element_bytes())))
    }

    /// Numbers of a list from 0 on, constants among them.
    fn naturals(&self, op: &Op, name: &str) -> Result<Vec<u64>, SyntaxError> {
        let Attribute::Array(all) = op.need(name)? else {
            return Err(op.error(format!("`{name}` is no list")));
        };
        let one = |value| {
            let number = design::number(self.design, op, value, &self.constants)?;
            u64::try_from(number).map_err(|_| op.error(format!("`{name}` has {number}")))
        };
        all.iter().map(one).collect()
    }
}

/// Strides of elements that lie one behind the other; sizes that are not given count as one.
fn row_major(of: &MemRefType) -> Vec<u64> {
    let mut strides = Vec::new();
    let mut stride = 1u64;
    for size in of.shape.iter().rev() {
        strides.push(stride);
        stride = stride.saturating_mul(size.unwrap_or(1));
    }
    strides.reverse();
    strides
}
