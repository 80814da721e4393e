//! Products with weights, and the gate of a feed-forward in the place of its products.

use super::rowwise::halves;
use super::{ChainSplit, Weaver};
use crate::Element;
use crate::axes::Mapping;
use crate::lower::builder::{Lane, ax, list};
use crate::lower::chain::{ChainOperand, Link, SlotOf};
use crate::lower::linear::{Factor, HbmLinear, ResidentTokens, ResultTile};
use crate::lower::ops::{Op, OpKernel, OpKind, Role, width_of};
use crate::lower::rows::{ActivationRows, Width};
use crate::lower::{LowerError, Weights};
use crate::program::View;

impl Weaver<'_> {
    /// Whether the next op that takes a value rotates it.
    fn is_rotated(&self, value: usize) -> bool {
        let mut takers = self.chain.links.iter();
        let taker = takers.find(|link| link.takes.contains(&ChainOperand::Value(value)));
        let kind = taker.map(|link| link.op.kind);
        matches!(kind, Some(OpKind::RotateQueries | OpKind::RotateKeys))
    }

    /// Axes of a product's result, and their order in HBM. Heads that are rotated have the first elements of all pairs,
    /// then the second ones.
    fn result_width(&self, i: usize, role: Role) -> (Width, Mapping) {
        let (op, (_, to)) = (self.op(i), role.axes());
        let width = width_of(op, to);
        if !matches!(role, Role::Queries | Role::Keys) || !self.is_rotated(self.gives(i)) {
            let order = width.mapping.clone();
            return (width, order);
        }
        let heads = width_of(op, &to[..to.len() - 1]);
        let order = list([heads.mapping.clone(), ax("f"), ax("d_k_prime")]);
        (halves(&heads, op.size("d_k") / 2), order)
    }

    fn gives(&self, i: usize) -> usize {
        self.chain.links[i].gives
    }

    fn weight(
        &mut self,
        i: usize,
        (n, k): (Width, &Width),
        order: Mapping,
    ) -> Result<HbmLinear, LowerError> {
        let link = &self.chain.links[i];
        let name = format!("{}_w", link.name);
        let w = self.b.linear(&name, link.op.weights, (n, k), order)?;
        let n_slots = 1 + usize::from(w.scale.is_some());
        let operands = link.takes.iter().skip(1).take(n_slots);
        self.slots.extend(operands.map(|own| SlotOf::Takes(*own)));
        Ok(w)
    }

    /// A value in the form that a product takes.
    fn factor(
        &mut self,
        value: usize,
        rows: &ActivationRows,
        weights: Weights,
    ) -> Result<Factor, LowerError> {
        if weights.factor() == rows.element {
            return self.b.factor_of(rows, weights);
        }
        if let Some(known) = self.factors.get(&value) {
            return Ok(known.clone());
        }
        let factor = self.b.factor_of(rows, weights)?;
        self.factors.insert(value, factor.clone());
        Ok(factor)
    }

    /// Tokens in registers, where they are held: filled once for the products of one value that are cut alike.
    fn hold(
        &mut self,
        value: usize,
        rows: &ActivationRows,
        w: &HbmLinear,
    ) -> Result<Option<ResidentTokens>, LowerError> {
        if !self.b.is_held() {
            return Ok(None);
        }
        let cut = self.b.cut(w)?;
        let key = (value, rows.element, cut.r);
        if let Some((_, held)) = self.held.filter(|(known, _)| *known == key) {
            return Ok(Some(held));
        }
        let held = self.b.hold(rows, &cut)?;
        self.held = Some((key, held));
        Ok(Some(held))
    }

    pub(super) fn product(&mut self, i: usize, role: Role) -> Result<ChainSplit, LowerError> {
        let (op, (from, to)) = (self.op(i), role.axes());
        if self.is_rotated(self.gives(i)) {
            self.rotated_axes(op.size("d_k") / 2)?;
        }
        let k = width_of(op, from);
        let (n, order) = self.result_width(i, role);
        let x = self.taken_value(i, 0)?;
        let rows = self.value(x, &k, k.mapping.clone())?;
        let Factor { rows, of_tokens } = self.factor(x, &rows, op.weights)?;
        let mut w = self.weight(i, (n.clone(), &k), order.clone())?;
        w.of_tokens = of_tokens;
        if role == Role::Head {
            w.result = Element::F32;
        }
        let held = self.hold(x, &rows, &w)?;
        let cut = self.b.cut(&w)?;
        let (rest, y) = self.places(i, w.result, (&n, order))?;
        for number in 0..cut.n_tiles {
            for tile in self.b.tile(&rows, held, &w, &cut, number)? {
                self.put(&tile, tile.tensor, rest.as_ref(), y);
                self.b.retire(tile.tensor);
            }
        }
        let levels = self.b.levels(&w)?;
        self.note_product(i, (from, to), &levels);
        Ok(product_cut(op, cut.r, cut.n_tiles))
    }

    /// Destinations of tiles of a result: at rest, HBM, or both.
    fn places(
        &mut self,
        i: usize,
        element: Element,
        (width, order): (&Width, Mapping),
    ) -> Result<(Option<ActivationRows>, Option<usize>), LowerError> {
        let value = self.gives(i);
        let y = match self.is_given_out(value) {
            true => Some(self.result(i, element, order)?),
            false => None,
        };
        if !self.is_taken(value) {
            return Ok((None, y));
        }
        let rest = self.b.rows(self.chain.links[i].name, element, width)?;
        self.at.insert(value, rest.clone());
        Ok((Some(rest), y))
    }

    fn put(
        &mut self,
        tile: &ResultTile,
        tensor: usize,
        rest: Option<&ActivationRows>,
        y: Option<usize>,
    ) {
        let to = [("rest", rest.map(|rows| rows.tensor)), ("store", y)];
        for (stem, to) in to.into_iter().filter_map(|(stem, to)| Some((stem, to?))) {
            let (from, to) = (View::of(tensor), tile.view_of(to));
            self.b.copy(stem, Lane::Others, from, to);
        }
    }

    fn note_product(&mut self, i: usize, (from, to): (&[&str], &[&str]), levels: &str) {
        let input = [&["B", "s_q"], from].concat();
        let weight = [from, to].concat();
        let output = [&["B", "s_q"], to].concat();
        let kernel = OpKernel::of(self.op(i).kind).name;
        self.b
            .note_einsum(kernel, &[&input, &weight], &output, levels);
    }

    /// Whether an op is the gate of a feed-forward whose up projection and activation follow it at once, and nothing
    /// else takes the two products.
    pub(super) fn is_gated(&self, i: usize) -> bool {
        let Some([gate, up, both]) = self.chain.links.get(i..i + 3) else {
            return false;
        };
        let is_up = |link: &Link| link.op.kind == OpKind::Product(Role::Up);
        let takes = [gate.gives, up.gives].map(ChainOperand::Value);
        let once = |value| self.uses.get(&value) == Some(&1) && !self.chain.leaves.contains(&value);
        is_up(gate)
            && is_up(up)
            && gate.op == up.op
            && gate.takes.first() == up.takes.first()
            && both.op.kind == OpKind::Gate
            && both.takes == takes
            && once(gate.gives)
            && once(up.gives)
    }

    /// Gate, up and activation tile by tile, in the place of the products.
    pub(super) fn gated(&mut self, i: usize) -> Result<(), LowerError> {
        let op = self.op(i);
        let (k, n) = (width_of(op, &["D"]), width_of(op, &["F"]));
        let x = self.taken_value(i, 0)?;
        let rows = self.value(x, &k, ax("D"))?;
        let Factor { rows, of_tokens } = self.factor(x, &rows, op.weights)?;
        let weights = [i, i + 1].map(|link| self.weight(link, (n.clone(), &k), ax("F")));
        let [w_gate, w_up] = weights;
        let (mut w_gate, mut w_up) = (w_gate?, w_up?);
        (w_gate.of_tokens, w_up.of_tokens) = (of_tokens, of_tokens);
        let held = self.hold(x, &rows, &w_gate)?;
        let cut = self.b.cut(&w_gate)?;
        let mut shown = [None; 2];
        if self.chain.shows {
            for (link, y) in shown.iter_mut().enumerate() {
                *y = Some(self.result(i + link, Element::Bf16, ax("F"))?);
            }
        }
        let (rest, y) = self.places(i + 2, Element::Bf16, (&n, ax("F")))?;
        for number in 0..cut.n_tiles {
            self.enter(i)?;
            let gates = self.b.tile(&rows, held, &w_gate, &cut, number)?;
            self.enter(i + 1)?;
            let ups = self.b.tile(&rows, held, &w_up, &cut, number)?;
            self.enter(i + 2)?;
            for (gate, up) in gates.iter().zip(&ups) {
                let active = self.b.silu(gate, up.tensor, Element::Bf16, 1.0)?;
                self.put(gate, gate.tensor, None, shown[0]);
                self.put(up, up.tensor, None, shown[1]);
                self.put(gate, active, rest.as_ref(), y);
                for tensor in [gate.tensor, up.tensor, active] {
                    self.b.retire(tensor);
                }
            }
        }
        let levels = self.b.levels(&w_gate)?;
        for link in [i, i + 1] {
            self.note_product(link, (&["D"], &["F"]), &levels);
            self.links[link].notes.append(&mut self.b.notes);
            self.links[link].cut = product_cut(op, cut.r, cut.n_tiles);
        }
        let expression = "gate × sigmoid(gate) × up over [B, s_q, F]";
        let levels = "1 pass, interleaved fetch, where the products lie";
        self.b
            .note("SiLU × up", expression, "vector engine", levels);
        self.links[i + 2].notes.append(&mut self.b.notes);
        Ok(())
    }
}

/// How a product is cut, and the bits in which its weights are stored.
pub(in crate::lower) fn product_cut(op: &Op, ring: u64, n_tiles: u64) -> ChainSplit {
    let bits = op.weights.stored().bits();
    vec![("ring", ring), ("tiles", n_tiles), ("bits", bits)]
}
