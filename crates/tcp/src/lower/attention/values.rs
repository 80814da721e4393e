//! Values, weighted and summed over keys.

use super::{AttentionSplit, Cache};
use crate::Element;
use crate::axes::Mapping;
use crate::lower::LowerError;
use crate::lower::builder::{Builder, Lane, ax, copies, fetch, inner, list, outer, padded, vector};
use crate::program::{LaneMode, ReduceOp, Stage, VectorOp, VectorOperand, View};

/// Sums in flight of a lane when values are summed.
const VALUE_SLOTS: u64 = 4;

impl Builder<'_> {
    /// Values weighted and summed, where all keys are one part.
    pub(super) fn weighted_sum(
        &mut self,
        cut: &AttentionSplit,
        cache: Cache,
        weights: usize,
        sequence: u64,
    ) -> Result<usize, LowerError> {
        if cut.n_chunks == 1 {
            let layout = list([self.queries(cut), ax("G"), ax("d_k")]);
            let out = self.dm("weighted", Element::Bf16, &cut.by_head(), layout)?;
            self.value_chunk(cut, cache, (weights, out), (sequence, 0, 0))?;
            return Ok(out);
        }
        let total = self.weighted_onto(cut, cache, (weights, None), (sequence, 0))?;
        self.narrowed_sum(cut, Some(total))
    }

    /// Values of a part that begins at key `base`, weighted and added to the sums of earlier parts, chunk by chunk; in
    /// f32.
    pub(super) fn weighted_onto(
        &mut self,
        cut: &AttentionSplit,
        cache: Cache,
        (weights, before): (usize, Option<usize>),
        (sequence, base): (u64, u64),
    ) -> Result<usize, LowerError> {
        let at = cut.by_head();
        let layout = list([self.queries(cut), ax("G"), ax("d_k")]);
        let (time, packet) = self.value_order(cut);
        let mut total = before;
        for chunk in 0..cut.n_chunks {
            let part = self.dm("partial", Element::F32, &at, layout.clone())?;
            self.value_chunk(cut, cache, (weights, part), (sequence, base, chunk))?;
            let Some(sum) = total else {
                total = Some(part);
                continue;
            };
            let next = self.dm("partial", Element::F32, &at, layout.clone())?;
            let stages = vec![
                Stage::Fetch {
                    view: View::of(sum),
                    with: Some(View::of(part)),
                    cast: None,
                    time: time.clone(),
                    packet: packet.clone(),
                },
                Stage::Collect {
                    time: time.clone(),
                    packet: packet.clone(),
                },
                vector(VectorOp::Add, VectorOperand::Second),
                Stage::Commit { to: View::of(next) },
            ];
            self.main("split_add", stages);
            self.retire(sum);
            self.retire(part);
            total = Some(next);
        }
        total.ok_or_else(|| LowerError::Unsupported("attention to no keys".to_owned()))
    }

    /// The sums of all keys in bf16.
    pub(super) fn narrowed_sum(
        &mut self,
        cut: &AttentionSplit,
        total: Option<usize>,
    ) -> Result<usize, LowerError> {
        let Some(total) = total else {
            return Err(LowerError::Unsupported("attention to no keys".to_owned()));
        };
        let layout = list([self.queries(cut), ax("G"), ax("d_k")]);
        let (time, packet) = self.value_order(cut);
        let out = self.dm("weighted", Element::Bf16, &cut.by_head(), layout)?;
        let mut stages = Vec::from(fetch(View::of(total), None, time, packet));
        stages.extend([
            Stage::Cast { to: Element::Bf16 },
            Stage::Commit { to: View::of(out) },
        ]);
        self.main("narrow", stages);
        self.retire(total);
        Ok(out)
    }

    /// Order in which sums of values stream.
    fn value_order(&self, cut: &AttentionSplit) -> (Mapping, Mapping) {
        let time = list([self.queries(cut), ax("G"), ax("d_k").over(8)]);
        (time, ax("d_k").modulo(8))
    }

    fn value_chunk(
        &mut self,
        cut: &AttentionSplit,
        cache: Cache,
        (weights, out): (usize, usize),
        (sequence, base, chunk): (u64, u64, u64),
    ) -> Result<(), LowerError> {
        let keys = cut.keys(self.target.call.n_keys);
        let at = cut.by_key(&keys, cut.chunk);
        let own = inner(&keys, cut.chunk, cut.own);
        let first = base + chunk * cut.chunk;
        let layout = list([own.clone(), ax("d_k")]);
        let (v, lane) =
            self.load_chunk(("load_v", cache.values), &at, layout, (sequence, first))?;
        let layout = list([self.queries(cut), own.clone()]);
        let half = self.target.machine.trf_lane_bytes / 2;
        let lanes = (self.lanes(), layout.clone());
        let held = self.trf_at("p_t", Element::Bf16, &at, lanes, half)?;
        let heads = padded(ax("G"), self.target.dims.n_groups, 8);
        let from = View::of(weights).from("s_k", chunk * cut.chunk);
        let mut stages = Vec::from(fetch(from, None, layout, heads));
        stages.push(Stage::ToRegisters { tensor: held });
        self.sub("hold_p", stages);
        let stages = self.value_stages(cut, own, (v, held), out);
        self.main("weighted", stages);
        if lane == Lane::Others {
            self.retire(v);
        }
        Ok(())
    }

    /// A chunk of values past the weights that are held, summed over keys into `out`.
    fn value_stages(
        &self,
        cut: &AttentionSplit,
        own: Mapping,
        (v, held): (usize, usize),
        out: usize,
    ) -> Vec<Stage> {
        let d = self.target.dims.head_dim;
        let (queries, value) = (self.queries(cut), ax("d_k"));
        let packet = if d.is_multiple_of(32) { 32 } else { 16 };
        let blocks = outer(&value, d, packet);
        let part = inner(&value, d, packet);
        let few = cut.queries.min(VALUE_SLOTS);
        let n_outer = cut.queries / few;
        let (high, low) = (
            outer(&queries, cut.queries, few),
            inner(&queries, cut.queries, few),
        );
        let time = list([
            copies(n_outer),
            blocks.clone(),
            own.clone(),
            outer(&part, packet, 16),
        ]);
        let mut stages = Vec::from(fetch(View::of(v), None, time, inner(&value, d, 16)));
        let left = list([high.clone(), blocks.clone(), low.clone()]);
        stages.extend([
            Stage::Outer {
                trf: held,
                time: list([high.clone(), blocks.clone(), own, low.clone()]),
                packet: part.clone(),
            },
            Stage::Packet {
                packet: part.clone(),
            },
            Stage::Time { time: left },
            Stage::Lane {
                mode: LaneMode::Sequential,
                time: list([high, blocks, low, ax("G"), outer(&part, packet, 8)]),
                packet: inner(&value, d, 8),
            },
        ]);
        if cut.ring > 1 {
            stages.push(Stage::Ring {
                op: ReduceOp::Add,
                slice: cut.by_head().slice,
            });
        }
        if self.program.tensors[out].element == Element::Bf16 {
            stages.push(Stage::Cast { to: Element::Bf16 });
        }
        stages.push(Stage::Commit { to: View::of(out) });
        stages
    }
}
