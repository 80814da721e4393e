//! Passes of the vector engine that blocks and ops share.

use crate::Element;
use crate::lower::LowerError;
use crate::lower::builder::{Builder, fetch, vector};
use crate::lower::linear::ResultTile;
use crate::lower::rows::ActivationRows;
use crate::program::{Stage, VectorOp, VectorOperand, View};

impl Builder<'_> {
    /// `gate · sigmoid(gate) · up · scale` in the place of a tile of products.
    pub(in crate::lower) fn silu(
        &mut self,
        gate: &ResultTile,
        up: usize,
        element: Element,
        scale: f32,
    ) -> Result<usize, LowerError> {
        let out = self.dm("active", element, &gate.spread, gate.layout.clone())?;
        let (time, packet) = (gate.time.clone(), gate.packet.clone());
        let mut stages = vec![
            Stage::Fetch {
                view: View::of(gate.tensor),
                with: Some(View::of(up)),
                cast: Some(Element::F32),
                time: time.clone(),
                packet: packet.clone(),
            },
            Stage::Collect { time, packet },
            Stage::Stash,
            vector(VectorOp::Sigmoid, VectorOperand::None),
            vector(VectorOp::Mul0, VectorOperand::Stash),
            vector(VectorOp::Mul1, VectorOperand::Second),
        ];
        if scale != 1.0 {
            stages.push(vector(VectorOp::Div, VectorOperand::Constant(1.0 / scale)));
        }
        stages.extend([
            Stage::Cast { to: element },
            Stage::Commit { to: View::of(out) },
        ]);
        self.main("silu", stages);
        Ok(out)
    }

    /// Rows times a constant, as another element.
    pub(in crate::lower) fn scale_rows(
        &mut self,
        x: &ActivationRows,
        out: &ActivationRows,
        scale: f32,
    ) {
        let (time, packet) = self.eights(x);
        let mut stages = Vec::from(fetch(View::of(x.tensor), Some(Element::F32), time, packet));
        stages.extend([
            vector(VectorOp::Mul0, VectorOperand::Constant(scale)),
            Stage::Cast { to: out.element },
            Stage::Commit {
                to: View::of(out.tensor),
            },
        ]);
        self.main("factor", stages);
    }
}
