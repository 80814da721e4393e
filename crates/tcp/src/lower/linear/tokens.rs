//! Activations in eight bits with a scale a token.

use crate::Element;
use crate::axes::Mapping;
use crate::lower::builder::{Builder, Lane, copies, fetch, list, spread, vector};
use crate::lower::rows::ActivationRows;
use crate::lower::{LARGEST_I8, LowerError, Weights};
use crate::program::{ReduceOp, Stage, TensorSharding, VectorOp, VectorOperand, View};

/// Added to the square of the largest activation, so that a token of zeros has a scale: far below the square of
/// any number that matters beside it.
const TINY: f32 = 1e-36;

/// Activations in the form that a product takes.
#[derive(Clone, Debug)]
pub(in crate::lower) struct Factor {
    pub rows: ActivationRows,
    /// A scale a token in data memory, in all slices.
    pub of_tokens: Option<usize>,
}

impl Builder<'_> {
    /// Rows as factors of such weights; bf16 rows stay unchanged.
    pub(in crate::lower) fn factor_of(
        &mut self,
        x: &ActivationRows,
        weights: Weights,
    ) -> Result<Factor, LowerError> {
        if weights.factor() == x.element {
            return Ok(Factor {
                rows: x.clone(),
                of_tokens: None,
            });
        }
        if weights.factor() == Element::I8 {
            return self.quantised(x);
        }
        let rows = self.rows("factor", weights.factor(), &x.width)?;
        self.scale_rows(x, &rows, weights.activation_scale());
        Ok(Factor {
            rows,
            of_tokens: None,
        })
    }

    /// `round(x · 127 / max∣x∣)` over each token's row, and `max∣x∣ / 127`. The largest magnitude is the root of
    /// the largest square: a square of a bf16 number is exact in f32.
    fn quantised(&mut self, x: &ActivationRows) -> Result<Factor, LowerError> {
        let machine = self.target.machine;
        let one = self.scalar_spread(x);
        let scalars = list([self.own_tokens(), Mapping::one().pad(8)]);
        let peaks = self.dm("peaks", Element::F32, &one, scalars.clone())?;
        let (time, packet) = self.eights(x);
        let in_f32 = Some(Element::F32);
        let mut stages = Vec::from(fetch(
            View::of(x.tensor),
            in_f32,
            time.clone(),
            packet.clone(),
        ));
        stages.push(vector(VectorOp::Mul0, VectorOperand::Stream));
        stages.push(Stage::Reduce {
            op: ReduceOp::Max,
            time: self.own_tokens(),
            packet: Mapping::one().pad(8),
        });
        if self.is_held() {
            stages.push(Stage::Ring {
                op: ReduceOp::Max,
                slice: copies(machine.slices),
            });
        }
        stages.push(Stage::Commit {
            to: View::of(peaks),
        });
        self.main("peaks", stages);
        let lift = self.of_peaks("lift", (peaks, &one), VectorOp::DivBy)?;
        let step = self.of_peaks("step", (peaks, &one), VectorOp::Div)?;
        let held = self.vrf("lift_v", &one, scalars, machine.vrf_bytes - 1024)?;
        self.registers(lift, held, self.own_tokens(), Mapping::one().pad(8));
        let rows = self.rows("factor", Element::I8, &x.width)?;
        let mut stages = Vec::from(fetch(View::of(x.tensor), in_f32, time, packet));
        stages.extend([
            vector(VectorOp::Mul0, VectorOperand::Vrf(held)),
            vector(VectorOp::FloatToFixed, VectorOperand::None),
            Stage::Cast { to: Element::I8 },
            Stage::Commit {
                to: View::of(rows.tensor),
            },
        ]);
        self.main("quantise", stages);
        let everywhere = spread(copies(machine.clusters), copies(machine.slices));
        let layout = list([self.tokens(), Mapping::one().pad(2)]);
        let of_tokens = self.dm("token_scale", Element::F32, &everywhere, layout)?;
        self.copy("spread", Lane::Others, View::of(step), View::of(of_tokens));
        for tensor in [peaks, lift, step] {
            self.retire(tensor);
        }
        Ok(Factor {
            rows,
            of_tokens: Some(of_tokens),
        })
    }

    /// The root of each token's largest square, divided by 127, or 127 by it.
    fn of_peaks(
        &mut self,
        stem: &str,
        (peaks, at): (usize, &TensorSharding),
        op: VectorOp,
    ) -> Result<usize, LowerError> {
        let packet = Mapping::one().pad(8);
        let layout = list([self.own_tokens(), packet.clone()]);
        let out = self.dm(stem, Element::F32, at, layout)?;
        let mut stages = Vec::from(fetch(View::of(peaks), None, self.own_tokens(), packet));
        stages.extend([
            vector(VectorOp::Add, VectorOperand::Constant(TINY)),
            vector(VectorOp::Sqrt, VectorOperand::None),
            vector(op, VectorOperand::Constant(LARGEST_I8)),
            Stage::Commit { to: View::of(out) },
        ]);
        self.main(stem, stages);
        Ok(out)
    }

    /// Scales of all tokens in vector registers, where a product's results are.
    pub(super) fn token_scale(&mut self, from: usize) -> Result<usize, LowerError> {
        let machine = self.target.machine;
        let at = spread(copies(machine.clusters), copies(machine.slices));
        let (time, packet) = (self.tokens(), Mapping::one().pad(2));
        let layout = list([time.clone(), packet.clone()]);
        let held = self.vrf("token_v", &at, layout, machine.vrf_bytes / 2)?;
        self.registers(from, held, time, packet);
        Ok(held)
    }
}
