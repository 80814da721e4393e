//! Activations at rest, and passes of the vector engine over them row by row.

use super::LowerError;
use super::builder::{
    Builder, Lane, ax, copies, fetch, filled, inner, list, outer, spread, vector,
};
use crate::Element;
use crate::axes::Mapping;
use crate::program::{ReduceOp, Stage, TensorSharding, VectorOp, VectorOperand, View};

/// A factor of several axes, and its size: the width of an activation.
#[derive(Clone, Debug)]
pub(super) struct Width {
    /// The axes as one product.
    pub mapping: Mapping,
    /// Names and sizes, the outermost first.
    pub axes: Vec<(String, u64)>,
}

impl Width {
    pub(super) fn new(axes: &[(&str, u64)]) -> Width {
        let own = |&(name, size): &(&str, u64)| (name.to_owned(), size);
        Width {
            mapping: Mapping::product(axes.iter().map(|(name, _)| ax(name))),
            axes: axes.iter().map(own).collect(),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.axes.iter().map(|(_, size)| size).product()
    }
}

/// Activations of all tokens at rest: in both clusters, spread over the slices by columns or by tokens.
#[derive(Clone, Debug)]
pub(super) struct ActivationRows {
    pub tensor: usize,
    pub width: Width,
    pub spread: TensorSharding,
    /// Columns in a slice, where columns are spread.
    pub per: u64,
    pub element: Element,
}

/// Bytes of vector registers for a part of a norm's weight.
const NORM_PART: u64 = 1024;

impl Builder<'_> {
    /// How a width of all tokens rests: its spread, and columns in a slice.
    pub(super) fn resting(&self, width: &Width) -> Result<(TensorSharding, u64), LowerError> {
        let machine = self.target.machine;
        let (slices, n) = (machine.slices, width.size());
        let cluster = copies(machine.clusters);
        if self.is_held() {
            // Whole vectors of eight, as few as the slices allow.
            let fits = |per: &u64| n.is_multiple_of(*per) && n / per <= slices;
            let per = (1..=n / 8).map(|i| 8 * i).find(fits);
            let per = per.ok_or_else(|| LowerError::Size {
                what: "the width of an activation".into(),
                found: n,
                expected: "a multiple of 8".into(),
            })?;
            let slice = outer(&width.mapping, n, per);
            return Ok((spread(cluster, filled(slice, n / per, slices)), per));
        }
        let tokens = self.n_tokens();
        let per = tokens.div_ceil(slices).next_power_of_two();
        let slice = outer(&self.tokens(), tokens, per);
        Ok((
            spread(cluster, filled(slice, tokens.div_ceil(per), slices)),
            n,
        ))
    }

    /// Room for activations.
    pub(super) fn rows(
        &mut self,
        stem: &str,
        element: Element,
        width: &Width,
    ) -> Result<ActivationRows, LowerError> {
        let (spread, per) = self.resting(width)?;
        let layout = list([self.own_tokens(), inner(&width.mapping, width.size(), per)]);
        let tensor = self.dm(stem, element, &spread, layout)?;
        Ok(ActivationRows {
            tensor,
            width: width.clone(),
            spread,
            per,
            element,
        })
    }

    /// Tokens of one slice.
    pub(super) fn own_tokens(&self) -> Mapping {
        let tokens = self.n_tokens();
        match self.is_held() {
            true => self.tokens(),
            false => inner(
                &self.tokens(),
                tokens,
                tokens
                    .div_ceil(self.target.machine.slices)
                    .next_power_of_two(),
            ),
        }
    }

    /// Order in which a slice's part streams in vectors of eight.
    pub(super) fn eights(&self, rows: &ActivationRows) -> (Mapping, Mapping) {
        let n = rows.width.size();
        let part = inner(&rows.width.mapping, n, rows.per);
        let time = list([self.own_tokens(), outer(&part, rows.per, 8)]);
        (time, inner(&rows.width.mapping, n, 8))
    }

    /// Reads a tensor from HBM to rest.
    pub(super) fn load_rows(&mut self, from: usize, rows: &ActivationRows) {
        self.copy("load", Lane::Others, View::of(from), View::of(rows.tensor));
    }

    /// The place of one number of each token at rest: in all slices where columns are spread over them, beside its
    /// token where tokens are.
    pub(super) fn scalar_spread(&self, x: &ActivationRows) -> TensorSharding {
        TensorSharding {
            cluster: x.spread.cluster.clone(),
            slice: match self.is_held() {
                true => copies(self.target.machine.slices),
                false => x.spread.slice.clone(),
            },
        }
    }

    /// `x / sqrt(mean(x²) + eps) · weight`, times `scale`, as `element`. `weight` is f32 in HBM.
    pub(super) fn norm(
        &mut self,
        x: &ActivationRows,
        weight: usize,
        element: Element,
        scale: f32,
    ) -> Result<ActivationRows, LowerError> {
        let machine = self.target.machine;
        let eps = self.target.dims.norm_eps;
        let d = x.width.size();
        let one = self.scalar_spread(x);
        let scalars = list([self.own_tokens(), Mapping::one().pad(8)]);
        let sums = self.dm("squares", Element::F32, &one, scalars.clone())?;
        let (time, packet) = self.eights(x);
        let mut stages = Vec::from(fetch(View::of(x.tensor), Some(Element::F32), time, packet));
        stages.push(vector(VectorOp::Mul0, VectorOperand::Stream));
        stages.push(Stage::Reduce {
            op: ReduceOp::Add,
            time: self.own_tokens(),
            packet: Mapping::one().pad(8),
        });
        if self.is_held() {
            let slice = copies(machine.slices);
            stages.push(Stage::Ring {
                op: ReduceOp::Add,
                slice,
            });
        }
        stages.push(Stage::Commit { to: View::of(sums) });
        self.main("squares", stages);
        let inverse = self.dm("inverse", Element::F32, &one, scalars.clone())?;
        let mut stages = Vec::from(fetch(
            View::of(sums),
            None,
            self.own_tokens(),
            Mapping::one().pad(8),
        ));
        stages.extend([
            vector(VectorOp::Mul0, VectorOperand::Constant(1.0 / d as f32)),
            vector(VectorOp::Add, VectorOperand::Constant(eps)),
            vector(VectorOp::Sqrt, VectorOperand::None),
            vector(VectorOp::DivBy, VectorOperand::Constant(scale)),
            Stage::Commit {
                to: View::of(inverse),
            },
        ]);
        self.main("inverse", stages);
        let held = self.vrf("inverse_v", &one, scalars, machine.vrf_bytes - 1024)?;
        self.registers(inverse, held, self.own_tokens(), Mapping::one().pad(8));
        let out = self.scaled_rows(x, weight, held, element)?;
        self.retire(sums);
        self.retire(inverse);
        Ok(out)
    }

    /// Fills vector registers from data memory of the same mapping.
    pub(super) fn registers(&mut self, from: usize, to: usize, time: Mapping, packet: Mapping) {
        let mut stages = Vec::from(fetch(View::of(from), None, time, packet));
        stages.push(Stage::ToRegisters { tensor: to });
        self.sub("hold", stages);
    }

    /// Rows times each token's value in registers, times a weight a column.
    fn scaled_rows(
        &mut self,
        x: &ActivationRows,
        weight: usize,
        held: usize,
        element: Element,
    ) -> Result<ActivationRows, LowerError> {
        let out = self.rows("normed", element, &x.width)?;
        let name = x.width.axes[0].0.clone();
        // In one slice all columns of a part; a part is the whole slice where columns are spread.
        let part = match self.is_held() {
            true => x.per,
            false => (1..=x.per / 8)
                .map(|i| x.per / i)
                .find(|part| *part <= NORM_PART && x.per.is_multiple_of(*part) && part % 8 == 0)
                .unwrap_or(8),
        };
        let spread = TensorSharding {
            cluster: x.spread.cluster.clone(),
            slice: match self.is_held() {
                true => x.spread.slice.clone(),
                false => copies(self.target.machine.slices),
            },
        };
        for first in (0..x.per).step_by(part as usize) {
            let column = match self.is_held() {
                true => inner(&x.width.mapping, x.width.size(), part),
                false if part == x.per => x.width.mapping.clone(),
                false => ax(&name).resize(part),
            };
            let in_dm = self.dm("gain", Element::F32, &spread, column.clone())?;
            let from = View::of(weight).from(&name, first);
            self.copy("gain", Lane::Others, from, View::of(in_dm));
            let gain = self.vrf("gain_v", &spread, column.clone(), 0)?;
            let (time, packet) = (column.clone().over(8), column.clone().modulo(8));
            let (time, packet) = match part {
                8 => (Mapping::one(), column),
                _ => (time, packet),
            };
            self.registers(in_dm, gain, time.clone(), packet.clone());
            let time = list([self.own_tokens(), time]);
            let view = View::of(x.tensor).from(&name, first);
            let mut stages = Vec::from(fetch(view, Some(Element::F32), time, packet));
            stages.extend([
                vector(VectorOp::Mul0, VectorOperand::Vrf(held)),
                vector(VectorOp::Mul1, VectorOperand::Vrf(gain)),
                Stage::Cast { to: element },
                Stage::Commit {
                    to: View::of(out.tensor).from(&name, first),
                },
            ]);
            self.main("scale", stages);
            self.retire(in_dm);
        }
        Ok(out)
    }

    /// The sum of two activations of one mapping.
    pub(super) fn add_rows(
        &mut self,
        a: &ActivationRows,
        b: &ActivationRows,
    ) -> Result<ActivationRows, LowerError> {
        let out = self.rows("sum", Element::Bf16, &a.width)?;
        let (time, packet) = self.eights(a);
        let stages = vec![
            Stage::Fetch {
                view: View::of(a.tensor),
                with: Some(View::of(b.tensor)),
                cast: Some(Element::F32),
                time: time.clone(),
                packet: packet.clone(),
            },
            Stage::Collect { time, packet },
            vector(VectorOp::Add, VectorOperand::Second),
            Stage::Cast { to: Element::Bf16 },
            Stage::Commit {
                to: View::of(out.tensor),
            },
        ];
        self.main("add", stages);
        Ok(out)
    }
}
