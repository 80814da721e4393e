//! Vector stages, casts, and the end of a stream.

use super::{FlowResult, Walker, axes_broken, stream};
use crate::Element;
use crate::axes::DigitLayout;
use crate::program::{Place, Tensor, VectorOp, VectorOperand, View};
use crate::verify::Rule;

impl Walker<'_> {
    pub(super) fn vector(&mut self, op: VectorOp, operand: &VectorOperand) -> FlowResult<()> {
        let float = !matches!(op, VectorOp::FixedToFloat);
        let from = if float { Element::F32 } else { Element::I32 };
        if self.stream.element != from {
            let (word, found) = (op.word(), self.stream.element);
            return Err((
                Rule::Elements,
                format!("{word} works on {from}, the stream is {found}"),
            ));
        }
        let unary = matches!(
            op,
            VectorOp::FixedToFloat
                | VectorOp::Exp
                | VectorOp::Sqrt
                | VectorOp::Sigmoid
                | VectorOp::FloatToFixed
        );
        if unary != matches!(operand, VectorOperand::None) {
            let count = if unary { "no operand" } else { "an operand" };
            return Err((Rule::Operand, format!("{} takes {count}", op.word())));
        }
        if let VectorOperand::Vrf(tensor) = operand {
            self.vrf_operand(*tensor)?;
        }
        self.stream.element = match op {
            VectorOp::FixedToFloat => Element::F32,
            VectorOp::FloatToFixed => Element::I32,
            _ => Element::F32,
        };
        Ok(())
    }

    /// An operand in the vector register file has the stream's layout, or copies, and no axis that the stream lacks.
    fn vrf_operand(&self, number: usize) -> FlowResult<()> {
        let in_vrf = |place: &Place| matches!(place, Place::Vrf { .. });
        let tensor = self.tensor(number, in_vrf, "the vector register file")?;
        let bad = |message: String| Err((Rule::Operand, message));
        if tensor.element != Element::F32 {
            return bad(format!("`{}` is {}, not f32", tensor.name, tensor.element));
        }
        let spread = tensor.spread().ok_or((Rule::Place, String::new()))?;
        for (own, other) in [
            (&spread.cluster, &self.stream.cluster),
            (&spread.slice, &self.stream.slice),
        ] {
            let merged = self.layout(own)?.merge(other);
            if merged.map(|m| m.canonical()) != Some(other.canonical()) {
                return bad(format!(
                    "`{}` lies in other slices than the stream",
                    tensor.name
                ));
            }
        }
        let stream = self.stream.shape(self.axes).map_err(axes_broken)?;
        let own = tensor.shape(self.axes).map_err(axes_broken)?;
        match own.iter().all(|axis| stream.contains(axis)) {
            true => Ok(()),
            false => bad(format!(
                "`{}` is {}, the stream {}",
                tensor.name,
                stream::shape_text(&own, self.axes),
                stream::shape_text(&stream, self.axes)
            )),
        }
    }

    /// Conversions of the cast engine. Source: the book, computing-tensors/cast-engine.
    pub(super) fn cast(&mut self, to: Element) -> FlowResult<()> {
        use Element::{Bf16, E4m3, F32, I4, I8, I32};
        let from = self.stream.element;
        if ![(I32, I4), (I32, I8), (F32, E4m3), (F32, Bf16)].contains(&(from, to)) {
            return Err((
                Rule::Elements,
                format!("cast does not turn {from} into {to}"),
            ));
        }
        self.stream.element = to;
        Ok(())
    }

    pub(super) fn commit(&mut self, to: &View) -> FlowResult<()> {
        let in_dm = |place: &Place| matches!(place, Place::Dm { .. });
        let tensor = self.tensor(to.tensor, in_dm, "data memory")?;
        self.arrives(tensor, false, &to.renames)
    }

    pub(super) fn registers(&mut self, number: usize) -> FlowResult<()> {
        let in_registers = |place: &Place| matches!(place, Place::Trf { .. } | Place::Vrf { .. });
        let tensor = self.tensor(number, in_registers, "a register file")?;
        self.arrives(tensor, true, &[])
    }

    /// Whether the stream fits its destination: its element, its slices, and its values.
    fn arrives(
        &self,
        tensor: &Tensor,
        whole: bool,
        renames: &[(String, String)],
    ) -> FlowResult<()> {
        let name = &tensor.name;
        let s = &self.stream;
        self.reduced_in(&[&s.cluster, &s.slice, &s.lane, &s.time, &s.packet])?;
        if tensor.element != self.stream.element {
            let message = format!(
                "`{name}` is {}, the stream {}",
                tensor.element, self.stream.element
            );
            return Err((Rule::Elements, message));
        }
        let spread = tensor.spread().ok_or((Rule::Place, String::new()))?;
        let rename = |layout| stream::renamed(layout, renames, self.axes).map_err(axes_broken);
        let cluster = rename(self.layout(&spread.cluster)?)?;
        let slice = rename(self.layout(&spread.slice)?)?;
        let same = |a: &DigitLayout, b: &DigitLayout| a.canonical() == b.canonical();
        if !same(&cluster, &self.stream.cluster) || !same(&slice, &self.stream.slice) {
            let message =
                format!("`{name}` lies in other slices than the stream that is written to it");
            return Err((Rule::Values, message));
        }
        let found = self.stream.shape(self.axes).map_err(axes_broken)?;
        let held = tensor.shape(self.axes).map_err(axes_broken)?;
        let held = stream::renamed_shape(held, renames, self.axes).map_err(axes_broken)?;
        let fits = |&(axis, extent): &(usize, u64)| {
            held.iter().any(|&(a, held)| a == axis && extent <= held)
        };
        match (whole && held == found) || (!whole && found.iter().all(fits)) {
            true => Ok(()),
            false => Err(self.lost(&found, &held)),
        }
    }
}
