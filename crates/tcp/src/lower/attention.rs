//! Attention over the cache: scores, softmax, weighted sum. Each slice holds some keys of a head of keys and
//! values; the query heads that share it are lanes.
//!
//! Whole rows of scores stay in data memory, so softmax subtracts the true largest: the more keys, the fewer
//! queries at a time. Keys and values come in chunks where a slice does not hold all of its own. Where not even one
//! query's scores fit, keys come in parts, and softmax keeps a running maximum (`parts`).

mod cut;
mod parts;
mod values;

use super::LowerError;
use super::builder::{Builder, Lane, ax, digit, fetch, inner, list, outer, padded, spread, vector};
use super::rows::{ActivationRows, Width};
use crate::Element;
use crate::axes::Mapping;
use crate::program::{
    LaneMode, ReduceOp, Stage, TensorSharding, Topology, VectorOp, VectorOperand, View,
};
use cut::AttentionSplit;

/// Caches and mask in HBM.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    pub keys: usize,
    pub values: usize,
    pub mask: usize,
}

impl Builder<'_> {
    /// Attention of all queries: `q` rotated, width `h_kv, G, r, d_k_prime`.
    pub(super) fn attend(
        &mut self,
        q: &ActivationRows,
        cache: Cache,
    ) -> Result<ActivationRows, LowerError> {
        let dims = self.target.dims;
        let width = Width::new(&[
            ("h_kv", dims.n_kv_heads),
            ("G", dims.n_groups),
            ("d_k", dims.head_dim),
        ]);
        let out = self.rows("attended", Element::Bf16, &width)?;
        let cut = self.attention_cut()?;
        let call = self.target.call;
        for sequence in (0..call.batch).step_by(cut.batch as usize) {
            let spread_q = self.spread_queries(q, &cut, sequence)?;
            for query in (0..call.n_tokens).step_by(cut.queries as usize) {
                let o = self.attend_tile(spread_q, &cut, cache, (sequence, query))?;
                let to = View::of(out.tensor).from("B", sequence).from("s_q", query);
                self.copy("rest", Lane::Others, View::of(o), to);
                self.retire(o);
            }
            self.retire(spread_q);
        }
        Ok(out)
    }

    /// Width of all query heads of a key head, over the ring: mapping and size.
    fn query_width(&self) -> (Mapping, u64) {
        let dims = self.target.dims;
        let mapping = list([ax("G"), ax("r"), ax("d_k_prime")]);
        (mapping, dims.n_groups * dims.head_dim)
    }

    fn spread_queries(
        &mut self,
        q: &ActivationRows,
        cut: &AttentionSplit,
        sequence: u64,
    ) -> Result<usize, LowerError> {
        let (width, n) = self.query_width();
        let per = n / cut.ring;
        let slice = list([cut.heads.slice.clone(), outer(&width, n, per)]);
        let at = spread(cut.heads.cluster.clone(), slice);
        let layout = list([ax("s_q"), inner(&width, n, per)]);
        let tensor = self.dm("queries", Element::Bf16, &at, layout)?;
        let from = View::of(q.tensor).from("B", sequence);
        self.copy("queries", Lane::Others, from, View::of(tensor));
        Ok(tensor)
    }

    /// Queries of a tile as an axis.
    fn queries(&self, cut: &AttentionSplit) -> Mapping {
        match cut.queries == self.target.call.n_tokens {
            true => ax("s_q"),
            false => ax("s_q").resize(cut.queries),
        }
    }

    fn lanes(&self) -> Mapping {
        let groups = self.target.dims.n_groups;
        padded(ax("G"), groups, groups.next_power_of_two())
    }

    fn hold_queries(
        &mut self,
        spread_q: usize,
        cut: &AttentionSplit,
        query: u64,
    ) -> Result<usize, LowerError> {
        let (width, n) = self.query_width();
        let (per, queries) = (n / cut.ring, self.queries(cut));
        let layout = list([queries.clone(), ax("r"), ax("d_k_prime")]);
        let held = self.trf("q_t", Element::Bf16, &cut.by_head(), self.lanes(), layout)?;
        let flit = per.min(16);
        let packet = inner(&width, n, flit);
        let part = inner(&width, n, per);
        let after = list([queries.clone(), outer(&width, n, flit)]);
        // The main context fills registers four times as fast as the sub context. The sub context meanwhile brings the
        // softmax's scalars.
        self.main(
            "hold_q",
            vec![
                Stage::Fetch {
                    view: View::of(spread_q).from("s_q", query),
                    with: None,
                    cast: None,
                    time: list([queries, outer(&part, per, flit)]),
                    packet: packet.clone(),
                },
                Stage::Switch {
                    topology: Topology::CustomBroadcast,
                    slice: cut.by_head().slice,
                    time: after.clone(),
                },
                Stage::Collect {
                    time: after,
                    packet,
                },
                Stage::ToRegisters { tensor: held },
            ],
        );
        Ok(held)
    }

    fn attend_tile(
        &mut self,
        spread_q: usize,
        cut: &AttentionSplit,
        cache: Cache,
        (sequence, query): (u64, u64),
    ) -> Result<usize, LowerError> {
        if cut.n_parts > 1 {
            return self.attend_parts(spread_q, cut, cache, (sequence, query));
        }
        let scores = self.scores(spread_q, cut, cache, (sequence, query, 0))?;
        let time = cut.by_query(&self.queries(cut));
        let largest = self.over_keys(cut, scores, ReduceOp::Max, &time, &[])?;
        let held = self.per_query(cut, "largest_v", largest, 0)?;
        let sums = self.exponentials(cut, (scores, held), &time)?;
        let below = self.target.machine.vrf_bytes / 2;
        let total = self.per_query(cut, "sums_v", sums, below)?;
        let weights = self.normalised(cut, scores, (held, total))?;
        self.retire(largest);
        self.retire(scores);
        self.retire(sums);
        let out = self.weighted_sum(cut, cache, weights, sequence)?;
        self.retire(weights);
        Ok(out)
    }

    /// Scores of a tile of queries with the keys of a part, which begins at key `base`.
    fn scores(
        &mut self,
        spread_q: usize,
        cut: &AttentionSplit,
        cache: Cache,
        (sequence, query, base): (u64, u64, u64),
    ) -> Result<usize, LowerError> {
        let keys = cut.part_keys();
        let by_key = cut.by_key(&keys, cut.part);
        let chunks = digit(&keys, cut.part, cut.chunk, cut.n_chunks);
        let own = inner(&keys, cut.part, cut.own);
        let heads = padded(ax("G"), self.target.dims.n_groups, 8);
        let layout = list([chunks, own, self.queries(cut), heads]);
        let scores = self.dm("scores", Element::F32, &by_key, layout)?;
        let held = self.hold_queries(spread_q, cut, query)?;
        for chunk in 0..cut.n_chunks {
            let at = (sequence, query, base, chunk);
            self.score_chunk(cut, cache, (held, scores), at)?;
        }
        Ok(scores)
    }

    /// A value of each query, in vector registers from that byte on.
    fn per_query(
        &mut self,
        cut: &AttentionSplit,
        stem: &str,
        from: usize,
        address: u64,
    ) -> Result<usize, LowerError> {
        let queries = self.queries(cut);
        let heads = padded(ax("G"), self.target.dims.n_groups, 8);
        let layout = list([queries.clone(), heads.clone()]);
        let held = self.vrf(stem, &cut.by_head(), layout, address)?;
        self.registers(from, held, queries, heads);
        Ok(held)
    }

    /// Probabilities of a part's keys: `exp(score - largest) / total`.
    fn normalised(
        &mut self,
        cut: &AttentionSplit,
        scores: usize,
        (largest, total): (usize, usize),
    ) -> Result<usize, LowerError> {
        let keys = cut.part_keys();
        let by_key = cut.by_key(&keys, cut.part);
        let chunks = digit(&keys, cut.part, cut.chunk, cut.n_chunks);
        let own = inner(&keys, cut.part, cut.own);
        let queries = self.queries(cut);
        let heads = padded(ax("G"), self.target.dims.n_groups, 8);
        let time = cut.by_query(&queries);
        let layout = list([chunks, queries, own, heads.clone()]);
        let weights = self.dm("weights", Element::Bf16, &by_key, layout)?;
        let mut stages = Vec::from(fetch(View::of(scores), None, time, heads));
        stages.extend([
            vector(VectorOp::Sub, VectorOperand::Vrf(largest)),
            vector(VectorOp::Exp, VectorOperand::None),
            vector(VectorOp::Div, VectorOperand::Vrf(total)),
            Stage::Cast { to: Element::Bf16 },
            Stage::Commit {
                to: View::of(weights),
            },
        ]);
        self.main("weights", stages);
        Ok(weights)
    }

    /// Room for a chunk of keys or values, and the lane of the moves that bring it. Where data memory has room, the
    /// chunk is outside the region of weights, so that weights are read meanwhile. Otherwise it takes that region and
    /// its lane.
    fn chunk_room(
        &mut self,
        at: &TensorSharding,
        layout: Mapping,
    ) -> Result<(usize, Lane), LowerError> {
        if self.is_apart
            && let Ok(tensor) = self.dm("cached", Element::Bf16, at, layout.clone())
        {
            return Ok((tensor, Lane::Others));
        }
        Ok((self.weights(Element::Bf16, at, layout)?, Lane::Weights))
    }

    /// Loads a chunk of keys or values from the cache, from key `first` on. Gives its tensor and the lane of the move.
    fn load_chunk(
        &mut self,
        (name, cache): (&str, usize),
        at: &TensorSharding,
        layout: Mapping,
        (sequence, first): (u64, u64),
    ) -> Result<(usize, Lane), LowerError> {
        let (tensor, lane) = self.chunk_room(at, layout)?;
        let from = View::of(cache).from("B", sequence).from("s_max", first);
        let from = from.named("s_max", "s_k");
        self.copy(name, lane, from, View::of(tensor));
        Ok((tensor, lane))
    }

    /// Scores of a chunk of keys, scaled and masked.
    fn score_chunk(
        &mut self,
        cut: &AttentionSplit,
        cache: Cache,
        (held, scores): (usize, usize),
        (sequence, query, base, chunk): (u64, u64, u64, u64),
    ) -> Result<(), LowerError> {
        let (dims, n_keys) = (self.target.dims, self.target.call.n_keys);
        let keys = cut.keys(n_keys);
        let at = cut.by_key(&keys, cut.chunk);
        let own = inner(&keys, cut.chunk, cut.own);
        let queries = self.queries(cut);
        let (row, d) = (list([ax("r"), ax("d_k_prime")]), dims.head_dim);
        let first = base + chunk * cut.chunk;
        let layout = list([own.clone(), row.clone()]);
        let (k, lane) = self.load_chunk(("load_k", cache.keys), &at, layout, (sequence, first))?;
        let mask = self.mask_chunk(cut, cache.mask, (sequence, query, first))?;
        let packet = if d.is_multiple_of(32) { 32 } else { 16 };
        let flit = 16;
        let mut stages = Vec::from(fetch(
            View::of(k),
            None,
            list([own.clone(), outer(&row, d, flit)]),
            inner(&row, d, flit),
        ));
        let time = list([own.clone(), queries.clone()]);
        let lanes = padded(ax("G"), dims.n_groups, 8);
        stages.extend([
            Stage::Outer {
                trf: held,
                time: list([own, outer(&row, d, packet), queries]),
                packet: inner(&row, d, packet),
            },
            Stage::Packet {
                packet: Mapping::one(),
            },
            Stage::Time { time: time.clone() },
            Stage::Lane {
                mode: LaneMode::Interleaved,
                time,
                packet: lanes,
            },
            vector(
                VectorOp::Mul0,
                VectorOperand::Constant(dims.attention_scale),
            ),
            vector(VectorOp::Add, VectorOperand::Vrf(mask)),
            Stage::Commit {
                to: View::of(scores).from("s_k", chunk * cut.chunk),
            },
        ]);
        self.main("scores", stages);
        if lane == Lane::Others {
            self.retire(k);
        }
        Ok(())
    }

    /// The mask of a chunk in registers: added to scores, 0 where a key is seen.
    fn mask_chunk(
        &mut self,
        cut: &AttentionSplit,
        mask: usize,
        (sequence, query, first): (u64, u64, u64),
    ) -> Result<usize, LowerError> {
        let keys = cut.keys(self.target.call.n_keys);
        let ring = digit(&keys, cut.chunk, cut.own, cut.ring);
        let slice = list([cut.no_heads.slice.clone(), ring]);
        let at = spread(cut.no_heads.cluster.clone(), slice);
        let own = inner(&keys, cut.chunk, cut.own);
        let queries = self.queries(cut);
        let layout = list([queries.clone(), own.clone()]);
        let in_dm = self.dm("mask", Element::F32, &at, layout.clone())?;
        let from = View::of(mask).from("B", sequence).from("s_q", query);
        self.copy(
            "mask",
            Lane::Others,
            from.from("s_k", first),
            View::of(in_dm),
        );
        let held = self.vrf("mask_v", &at, layout, 0)?;
        let flit = cut.own.min(8);
        let time = list([queries, outer(&own, cut.own, flit)]);
        self.registers(in_dm, held, time, inner(&keys, cut.chunk, flit));
        self.retire(in_dm);
        Ok(held)
    }

    /// Sums over keys of `exp(score - largest)`.
    fn exponentials(
        &mut self,
        cut: &AttentionSplit,
        (scores, largest): (usize, usize),
        time: &Mapping,
    ) -> Result<usize, LowerError> {
        let less = vector(VectorOp::Sub, VectorOperand::Vrf(largest));
        let first = [less, vector(VectorOp::Exp, VectorOperand::None)];
        self.over_keys(cut, scores, ReduceOp::Add, time, &first)
    }

    /// One value a query from all of its keys, after some vector stages.
    fn over_keys(
        &mut self,
        cut: &AttentionSplit,
        from: usize,
        op: ReduceOp,
        time: &Mapping,
        first: &[Stage],
    ) -> Result<usize, LowerError> {
        let (queries, at) = (self.queries(cut), cut.by_head());
        let heads = padded(ax("G"), self.target.dims.n_groups, 8);
        let out = self.dm(
            "reduced",
            Element::F32,
            &at,
            list([queries.clone(), heads.clone()]),
        )?;
        let stored = self.program.tensors[from].element;
        let cast = (stored != Element::F32).then_some(Element::F32);
        let mut stages = Vec::from(fetch(View::of(from), cast, time.clone(), heads.clone()));
        stages.extend_from_slice(first);
        stages.push(Stage::Reduce {
            op,
            time: queries,
            packet: heads,
        });
        if cut.ring > 1 {
            stages.push(Stage::Ring {
                op,
                slice: at.slice,
            });
        }
        stages.push(Stage::Commit { to: View::of(out) });
        self.main("over_keys", stages);
        Ok(out)
    }
}
