//! The end of a product: sums over a ring, scales of rows and tokens, and the result in data memory.

use super::{HbmLinear, LinearSplit};
use crate::Element;
use crate::axes::Mapping;
use crate::lower::LowerError;
use crate::lower::builder::{Builder, Lane, list, vector};
use crate::program::{ReduceOp, Stage, TensorSharding, VectorOp, VectorOperand, View};

impl Builder<'_> {
    /// Scales of a tile's rows, in vector registers.
    pub(super) fn row_scale(
        &mut self,
        linear: &HbmLinear,
        out: &TensorSharding,
        own: &Mapping,
        name: &str,
        start: u64,
    ) -> Result<Option<usize>, LowerError> {
        let Some(scale) = linear.scale else {
            return Ok(None);
        };
        let (time, packet) = (own.clone(), Mapping::one().pad(2));
        let layout = list([time.clone(), packet.clone()]);
        let in_dm = self.dm("scale", Element::F32, out, layout.clone())?;
        let from = View::of(scale).from(name, start);
        self.copy("load_s", Lane::Others, from, View::of(in_dm));
        let held = self.vrf("scale_v", out, layout, 0)?;
        self.registers(in_dm, held, time, packet);
        self.retire(in_dm);
        Ok(Some(held))
    }

    /// Sums over the ring, scales, and the result in data memory.
    pub(super) fn finish(
        &mut self,
        mut stages: Vec<Stage>,
        linear: &HbmLinear,
        cut: &LinearSplit,
        (out, scale): (&TensorSharding, Option<usize>),
        y: usize,
    ) -> Result<(), LowerError> {
        if cut.r > 1 {
            stages.push(Stage::Ring {
                op: ReduceOp::Add,
                slice: out.slice.clone(),
            });
        }
        if linear.weights.factor() == Element::I8 {
            stages.push(vector(VectorOp::FixedToFloat, VectorOperand::None));
        }
        if let Some(scale) = scale {
            stages.push(vector(VectorOp::Mul0, VectorOperand::Vrf(scale)));
        }
        if let Some(of_tokens) = linear.of_tokens {
            let held = self.token_scale(of_tokens)?;
            stages.push(vector(VectorOp::Mul1, VectorOperand::Vrf(held)));
        }
        let to = self.program.tensors[y].element;
        if to != Element::F32 {
            stages.push(Stage::Cast { to });
        }
        stages.push(Stage::Commit { to: View::of(y) });
        self.main("product", stages);
        Ok(())
    }
}
