//! Rotary embedding as a contraction with 2 × 2 matrices, looked up by position.

use super::LowerError;
use super::builder::{Builder, Lane, ax, copies, fetch, filler, inner, list, outer, spread};
use super::rows::{ActivationRows, Width};
use crate::Element;
use crate::axes::Mapping;
use crate::program::{LaneMode, Side, Stage, TensorSharding, View};

/// Matrices of all tokens, looked up, in data memory and registers.
pub(super) struct Table {
    pub tensor: usize,
    /// The rows of a table for the tokens; without it, the table has exactly those rows.
    pub position: Option<usize>,
}

impl Builder<'_> {
    /// Rotates every head of `x`, whose width ends in `d_k_prime, f`; the result's ends in `r, d_k_prime`.
    pub(super) fn rotate(
        &mut self,
        stem: &str,
        x: &ActivationRows,
        heads: &Width,
        table: &Table,
    ) -> Result<ActivationRows, LowerError> {
        let pairs = self.target.dims.head_dim / 2;
        let (p, f, r) = (ax("d_k_prime"), ax("f"), ax("r"));
        // Pairs in a slice, where columns are spread over slices; all of several heads otherwise.
        let own_heads = match self.is_held() {
            true if x.per <= 2 * pairs => 1,
            true => x.per / (2 * pairs),
            false => heads.size(),
        };
        let own_pairs = (x.per / 2).min(pairs);
        let own_p = inner(&p, pairs, own_pairs);
        let flit = own_pairs.min(8);
        let (t, held) = self.hold_rotations(x, own_pairs, table)?;
        let own_head = inner(&heads.mapping, heads.size(), own_heads);
        let blocks = outer(&own_p, own_pairs, flit);
        let time = list([self.own_tokens(), own_head, blocks]);
        let packet = list([inner(&p, pairs, flit), f, filler(8 / flit)]);
        let from = View::of(x.tensor);
        let mut stages = Vec::from(fetch(from, None, time.clone(), packet.clone()));
        let rotated = list([time, r.clone()]);
        let left = list([inner(&p, pairs, flit), filler(8 / flit)]);
        let out = self.rotated(stem, x, heads, (own_heads, own_pairs))?;
        stages.extend([
            Stage::Outer {
                trf: held,
                time: rotated.clone(),
                packet,
            },
            Stage::Packet {
                packet: left.clone(),
            },
            Stage::Time {
                time: rotated.clone(),
            },
            Stage::Lane {
                mode: LaneMode::Sequential,
                time: rotated,
                packet: left,
            },
            Stage::Cast { to: Element::Bf16 },
            Stage::Commit {
                to: View::of(out.tensor),
            },
        ]);
        self.main("rotate", stages);
        self.retire(t);
        Ok(out)
    }

    /// Matrices of a slice's pairs, in data memory and in registers.
    fn hold_rotations(
        &mut self,
        x: &ActivationRows,
        own_pairs: u64,
        table: &Table,
    ) -> Result<(usize, usize), LowerError> {
        let machine = self.target.machine;
        let pairs = self.target.dims.head_dim / 2;
        let (p, f, r) = (ax("d_k_prime"), ax("f"), ax("r"));
        let at = match self.is_held() {
            true => {
                let slices = machine.slices / (pairs / own_pairs);
                let slice = list([copies(slices), outer(&p, pairs, own_pairs)]);
                spread(copies(machine.clusters), slice)
            }
            false => x.spread.clone(),
        };
        let own_p = inner(&p, pairs, own_pairs);
        let layout = list([self.own_tokens(), own_p.clone(), f.clone(), r.clone()]);
        let t = self.dm("t_rope", Element::Bf16, &at, layout.clone())?;
        let both = (View::of(table.tensor), View::of(t));
        match table.position {
            Some(position) => self.indexed("look_up", both, (Side::From, "s_max", position)),
            None => self.copy("load_t", Lane::Others, both.0, both.1),
        }
        let held = self.trf("t_rope_t", Element::Bf16, &at, Mapping::one(), layout)?;
        let flit = own_pairs.min(4);
        let time = list([
            self.own_tokens(),
            outer(&own_p, own_pairs, flit),
            Mapping::one(),
        ]);
        let packet = list([inner(&p, pairs, flit), f, r]);
        let mut fill = Vec::from(fetch(View::of(t), None, time, packet));
        fill.push(Stage::ToRegisters { tensor: held });
        self.sub("hold_t", fill);
        Ok((t, held))
    }

    /// Room for rotated heads, in the slices of `x`.
    fn rotated(
        &mut self,
        stem: &str,
        x: &ActivationRows,
        heads: &Width,
        (own_heads, own_pairs): (u64, u64),
    ) -> Result<ActivationRows, LowerError> {
        let pairs = self.target.dims.head_dim / 2;
        let own_p = inner(&ax("d_k_prime"), pairs, own_pairs);
        let layout = list([
            self.own_tokens(),
            inner(&heads.mapping, heads.size(), own_heads),
            ax("r"),
            own_p,
        ]);
        let spread: TensorSharding = x.spread.clone();
        let tensor = self.dm(stem, Element::Bf16, &spread, layout)?;
        let mut axes = heads.axes.clone();
        axes.extend([("r".to_owned(), 2), ("d_k_prime".to_owned(), pairs)]);
        let names: Vec<(&str, u64)> = axes.iter().map(|(n, s)| (n.as_str(), *s)).collect();
        Ok(ActivationRows {
            tensor,
            width: Width::new(&names),
            spread,
            per: x.per,
            element: Element::Bf16,
        })
    }
}
