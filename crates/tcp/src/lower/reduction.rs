//! One product cut in two ways where a row of its weight is too long, or for a comparison of speed. *Slice* spreads a
//! row over a ring of slices, which adds partial sums on their way around. *Split* multiplies parts of a row one after
//! the other and adds their results in further passes of the vector engine, in f32.
//!
//! Models are lowered with slice; `report::reductions` gives the reason.

use super::builder::{Builder, Lane, ax, fetch, list, vector};
use super::linear::{HbmLinear, ResultTile};
use super::ops::{Op, OpKind, Role};
use super::rows::{ActivationRows, Width};
use super::{LowerError, Target, TcpLowerOptions, TcpLowering};
use crate::program::{Stage, VectorOp, VectorOperand, View};
use crate::{Element, Machine};
use millrace_npu::Role as Slot;

/// Where partial sums of a row meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Around a ring of so many slices.
    Slice(u64),
    /// In so many passes over parts of the row.
    Split(u64),
}

/// `y[s_q, N] = x[s_q, K] · w[N, K]ᵀ`: slots `x` `[s_q, K]` bf16, `w` `[N, K]` as stored, its `w_scale` where rows have
/// one, `y` bf16, all row-major.
///
/// # Errors
/// [`LowerError`]: parts that do not divide K, registers or data memory that are too small.
pub fn product(
    machine: &Machine,
    options: TcpLowerOptions,
    [n_tokens, k, n]: [u64; 3],
    by: Reduction,
) -> Result<TcpLowering, LowerError> {
    let op = Op {
        kind: OpKind::Product(Role::Other),
        sizes: vec![n_tokens, k, n],
        norm_eps: 0.0,
        attention_scale: 1.0,
        weights: options.weights,
    };
    let (parts, ring) = match by {
        Reduction::Slice(ring) => (1, ring),
        Reduction::Split(parts) => (parts, 1),
    };
    if parts == 0 || !k.is_multiple_of(parts) {
        return Err(LowerError::Size {
            what: "the row length of a weight".to_owned(),
            found: k,
            expected: format!("a multiple of its {parts} parts"),
        });
    }
    let dims = op.dims()?;
    let target = Target {
        machine,
        dims: &dims,
        options,
        call: op.call(),
    };
    let mut b = Builder::bare(target, "product")?;
    for (axis, size) in [("s_q", n_tokens), ("P", parts), ("K", k / parts), ("N", n)] {
        b.axis(axis, size)?;
    }
    let width = Width::new(&[("K", k / parts)]);
    let row = list([ax("P"), ax("K")]);
    let all = list([ax("B"), ax("s_q"), row.clone()]);
    let x = b.hbm("x", Element::Bf16, Slot::Input, all)?;
    let mut w = b.linear(
        "w",
        options.weights,
        (Width::new(&[("N", n)]), &width),
        ax("N"),
    )?;
    b.relay(w.tensor, list([ax("N"), row]));
    w.ring = Some(ring);
    if parts > 1 {
        w.result = Element::F32;
    }
    let layout = list([ax("B"), ax("s_q"), ax("N")]);
    let y = b.hbm("y", Element::Bf16, Slot::Output, layout)?;
    let mut sums: Vec<ResultTile> = Vec::new();
    for part in 0..parts {
        w.part = Some(("P".to_owned(), part));
        let is_last = part + 1 == parts;
        sums = b.with_part(sums, (x, &w, part), is_last.then_some(y))?;
    }
    Ok(b.lowered())
}

impl Builder<'_> {
    /// Sums so far, and a further part of the rows. Tile by tile its products are computed, added where there are sums,
    /// and stored where it is the last.
    fn with_part(
        &mut self,
        sums: Vec<ResultTile>,
        (x, w, part): (usize, &HbmLinear, u64),
        y: Option<usize>,
    ) -> Result<Vec<ResultTile>, LowerError> {
        let rows: ActivationRows = self.rows("x", Element::Bf16, &w.k)?;
        let from = View::of(x).from("P", part);
        self.copy("load", Lane::Others, from, View::of(rows.tensor));
        let factor = self.factor_of(&rows, w.weights)?;
        let w = HbmLinear {
            of_tokens: factor.of_tokens,
            ..w.clone()
        };
        let held = self.hold_for(&factor.rows, &w)?;
        let cut = self.cut(&w)?;
        let (mut before, mut tiles) = (sums.into_iter(), Vec::new());
        for number in 0..cut.n_tiles {
            for product in self.tile(&factor.rows, held, &w, &cut, number)? {
                let sum = match before.next() {
                    Some(sum) => self.add_tiles(sum, &product, y.is_some())?,
                    None => product,
                };
                let Some(y) = y else {
                    tiles.push(sum);
                    continue;
                };
                self.copy("store", Lane::Others, View::of(sum.tensor), sum.view_of(y));
                self.retire(sum.tensor);
            }
        }
        self.retire(rows.tensor);
        if factor.rows.tensor != rows.tensor {
            self.retire(factor.rows.tensor);
        }
        Ok(tiles)
    }

    /// The second pass: a sum so far and a product of one more part, in f32; the last as bf16.
    fn add_tiles(
        &mut self,
        sum: ResultTile,
        product: &ResultTile,
        is_last: bool,
    ) -> Result<ResultTile, LowerError> {
        let element = if is_last { Element::Bf16 } else { Element::F32 };
        let out = self.dm("sum", element, &sum.spread, sum.layout.clone())?;
        let from = View::of(sum.tensor);
        let mut stages = Vec::from(fetch(from, None, sum.time.clone(), sum.packet.clone()));
        if let Some(Stage::Fetch { with, .. }) = stages.first_mut() {
            *with = Some(View::of(product.tensor));
        }
        stages.push(vector(VectorOp::Add, VectorOperand::Second));
        if is_last {
            stages.push(Stage::Cast { to: element });
        }
        stages.push(Stage::Commit { to: View::of(out) });
        self.main("add", stages);
        self.retire(sum.tensor);
        self.retire(product.tensor);
        Ok(ResultTile { tensor: out, ..sum })
    }

    /// Changes the layout of a tensor in HBM.
    fn relay(&mut self, tensor: usize, to: crate::axes::Mapping) {
        if let crate::program::Place::Hbm { layout, .. } = &mut self.program.tensors[tensor].place {
            *layout = to;
        }
    }
}
