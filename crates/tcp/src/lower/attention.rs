//! Attention over the cache: scores, softmax, weighted sum. Each slice holds some keys of a head of keys and
//! values; the query heads that share it are lanes.
//!
//! Whole rows of scores stay in data memory, so softmax subtracts the true largest: the more keys, the fewer
//! queries at a time. Keys and values come in chunks where a slice does not hold all of its own.

mod values;

use super::LowerError;
use super::builder::{
    Builder, Lane, ax, copies, digit, fetch, filled, inner, list, outer, padded, spread, vector,
};
use super::rows::{Rows, Width};
use crate::Element;
use crate::axes::Mapping;
use crate::program::{LaneMode, Operand, ReduceOp, Spread, Stage, Topology, VectorOp, View};

/// Queries of a sequence that are held at once.
const MAX_QUERIES: u64 = 16;

/// Caches and mask in HBM.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    pub keys: usize,
    pub values: usize,
    pub mask: usize,
}

/// How attention is cut, and the mappings that follow.
struct Cut {
    /// Sequences at a time.
    batch: u64,
    /// Queries at a time.
    queries: u64,
    /// Keys of a chunk, and chunks.
    chunk: u64,
    n_chunks: u64,
    /// Keys of a slice in a chunk.
    own: u64,
    /// Slices that share a head's keys.
    ring: u64,
    /// Heads over clusters and slices; the same with copies instead of heads.
    heads: Spread,
    no_heads: Spread,
}

impl Cut {
    fn keys(&self, n_keys: u64) -> Mapping {
        match self.n_chunks {
            1 => ax("s_k"),
            _ => ax("s_k").resize(self.chunk.min(n_keys)),
        }
    }

    /// Heads, and keys over the ring.
    fn by_key(&self, keys: &Mapping, size: u64) -> Spread {
        let ring = digit(keys, size, self.own, self.ring);
        spread(
            self.heads.cluster.clone(),
            list([self.heads.slice.clone(), ring]),
        )
    }

    /// Heads, and copies over the ring.
    fn by_head(&self) -> Spread {
        let slice = list([self.heads.slice.clone(), copies(self.ring)]);
        spread(self.heads.cluster.clone(), slice)
    }
}

impl Builder<'_> {
    fn attention_cut(&self) -> Result<Cut, LowerError> {
        let (call, dims, machine) = (self.target.call, self.target.dims, self.target.machine);
        let size = |what: &str, found: u64, expected: &str| LowerError::Size {
            what: what.to_owned(),
            found,
            expected: expected.to_owned(),
        };
        if dims.n_groups > machine.lanes {
            let what = "the number of query heads that share a key head";
            return Err(size(what, dims.n_groups, "at most 8: they are lanes"));
        }
        if !call.n_keys.is_power_of_two() || call.n_keys < 64 {
            return Err(size(
                "the bucket of keys",
                call.n_keys,
                "a power of two from 64",
            ));
        }
        let heads = dims.n_kv_heads;
        let mut batch = call.batch;
        // Heads of the sequences of one round have a slice each, and at least half of their keys fit.
        while batch > 1 && (batch * heads > machine.chip_slices() / 2 || !batch.is_power_of_two()) {
            batch /= 2;
        }
        let pairs = batch * heads;
        // Padding over slices lies outside of heads, so that clusters can go on where slices end.
        let halves =
            pairs.is_multiple_of(machine.clusters) && (pairs / machine.clusters).is_power_of_two();
        let clusters = if halves { machine.clusters } else { 1 };
        let per = pairs / clusters;
        let vectors = dims.n_groups * dims.head_dim / 8;
        let ring = (machine.slices / per.next_power_of_two()).min(call.n_keys / 8);
        let ring = ring.min(1 << vectors.ilog2());
        let row = Element::Bf16.bytes(dims.head_dim);
        let mut chunk = call.n_keys;
        // Registers hold the mask and the weights of a slice's keys.
        while chunk / ring * row > self.weight_bytes() || chunk / ring > 128 {
            chunk /= 2;
        }
        // Scores of whole rows stay in half of data memory, with the weights that they become.
        let mut queries = call.n_tokens.min(MAX_QUERIES);
        let row = call.n_keys / ring * 8 * (Element::F32.bytes(1) + Element::Bf16.bytes(1));
        while queries.is_multiple_of(2) && queries * row > machine.dm_bytes / 2 {
            queries /= 2;
        }
        let sequences = match batch == call.batch {
            true => ax("B"),
            false => ax("B").resize(batch),
        };
        let both = list([sequences.clone(), ax("h_kv")]);
        let slots = machine.slices / ring;
        let cluster = match clusters {
            1 => copies(machine.clusters),
            _ => outer(&both, pairs, per),
        };
        let slice = filled(inner(&both, pairs, per), per, slots);
        let by_sequence = clusters > 1 && batch > 1;
        let no_cluster = match by_sequence {
            true => outer(&sequences, batch, batch / clusters),
            false => copies(machine.clusters),
        };
        let own_sequences = inner(
            &sequences,
            batch,
            batch / if by_sequence { clusters } else { 1 },
        );
        let no_slice = match batch {
            1 => copies(slots),
            _ => filled(list([own_sequences, copies(heads)]), per, slots),
        };
        Ok(Cut {
            batch,
            queries,
            chunk,
            n_chunks: call.n_keys / chunk,
            own: chunk / ring,
            ring,
            heads: spread(cluster, slice),
            no_heads: spread(no_cluster, no_slice),
        })
    }

    /// Attention of all queries: `q` rotated, width `h_kv, G, r, d_k_prime`.
    pub(super) fn attend(&mut self, q: &Rows, cache: Cache) -> Result<Rows, LowerError> {
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

    /// What all query heads of a key head hold, over the ring.
    fn query_width(&self) -> (Mapping, u64) {
        let dims = self.target.dims;
        let mapping = list([ax("G"), ax("r"), ax("d_k_prime")]);
        (mapping, dims.n_groups * dims.head_dim)
    }

    fn spread_queries(&mut self, q: &Rows, cut: &Cut, sequence: u64) -> Result<usize, LowerError> {
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
    fn queries(&self, cut: &Cut) -> Mapping {
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
        cut: &Cut,
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
        // The main context fills registers four times as fast as the sub context, which has the softmax's
        // scalars to bring meanwhile.
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
        cut: &Cut,
        cache: Cache,
        (sequence, query): (u64, u64),
    ) -> Result<usize, LowerError> {
        let n_keys = self.target.call.n_keys;
        let by_key = cut.by_key(&ax("s_k"), n_keys);
        let chunks = digit(&ax("s_k"), n_keys, cut.chunk, cut.n_chunks);
        let own = inner(&ax("s_k"), n_keys, cut.own);
        let queries = self.queries(cut);
        let heads = padded(ax("G"), self.target.dims.n_groups, 8);
        let layout = list([chunks.clone(), own.clone(), queries.clone(), heads.clone()]);
        let scores = self.dm("scores", Element::F32, &by_key, layout)?;
        let held = self.hold_queries(spread_q, cut, query)?;
        for chunk in 0..cut.n_chunks {
            self.score_chunk(cut, cache, held, scores, (sequence, query, chunk))?;
        }
        let time = list([queries.clone(), chunks.clone(), own.clone()]);
        let scalars = list([queries.clone(), heads.clone()]);
        let largest = self.over_keys(cut, scores, ReduceOp::Max, &time, &[])?;
        let held = self.vrf("largest_v", &cut.by_head(), scalars.clone(), 0)?;
        self.registers(largest, held, queries.clone(), heads.clone());
        let sums = self.exponentials(cut, (scores, held), &time)?;
        let below = self.target.machine.vrf_bytes / 2;
        let total = self.vrf("sums_v", &cut.by_head(), scalars, below)?;
        self.registers(sums, total, queries.clone(), heads.clone());
        let layout = list([chunks, queries, own, heads.clone()]);
        let weights = self.dm("weights", Element::Bf16, &by_key, layout)?;
        let mut stages = Vec::from(fetch(View::of(scores), None, time, heads));
        stages.extend([
            vector(VectorOp::Sub, Operand::Vrf(held)),
            vector(VectorOp::Exp, Operand::None),
            vector(VectorOp::Div, Operand::Vrf(total)),
            Stage::Cast { to: Element::Bf16 },
            Stage::Commit {
                to: View::of(weights),
            },
        ]);
        self.main("weights", stages);
        self.retire(largest);
        self.retire(scores);
        self.retire(sums);
        let out = self.weighted_sum(cut, cache, weights, sequence)?;
        self.retire(weights);
        Ok(out)
    }

    /// Scores of a chunk of keys, scaled and masked.
    fn score_chunk(
        &mut self,
        cut: &Cut,
        cache: Cache,
        held: usize,
        scores: usize,
        (sequence, query, chunk): (u64, u64, u64),
    ) -> Result<(), LowerError> {
        let (dims, n_keys) = (self.target.dims, self.target.call.n_keys);
        let keys = cut.keys(n_keys);
        let at = cut.by_key(&keys, cut.chunk);
        let own = inner(&keys, cut.chunk, cut.own);
        let queries = self.queries(cut);
        let (row, d) = (list([ax("r"), ax("d_k_prime")]), dims.head_dim);
        let k = self.weights(Element::Bf16, &at, list([own.clone(), row.clone()]))?;
        let first = chunk * cut.chunk;
        let from = View::of(cache.keys)
            .from("B", sequence)
            .from("s_max", first);
        let from = from.named("s_max", "s_k");
        self.copy("load_k", Lane::Weights, from, View::of(k));
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
            vector(VectorOp::Mul0, Operand::Constant(dims.attention_scale)),
            vector(VectorOp::Add, Operand::Vrf(mask)),
            Stage::Commit {
                to: View::of(scores).from("s_k", first),
            },
        ]);
        self.main("scores", stages);
        Ok(())
    }

    /// The mask of a chunk in registers: added to scores, 0 where a key is seen.
    fn mask_chunk(
        &mut self,
        cut: &Cut,
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
        cut: &Cut,
        (scores, largest): (usize, usize),
        time: &Mapping,
    ) -> Result<usize, LowerError> {
        let less = vector(VectorOp::Sub, Operand::Vrf(largest));
        let first = [less, vector(VectorOp::Exp, Operand::None)];
        self.over_keys(cut, scores, ReduceOp::Add, time, &first)
    }

    /// One value a query from all of its keys, after some vector stages.
    fn over_keys(
        &mut self,
        cut: &Cut,
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

    /// How attention is cut: slices that share a head's keys, chunks of keys, queries at a time.
    pub(super) fn attention_sizes(&self) -> Result<Vec<(&'static str, u64)>, LowerError> {
        let cut = self.attention_cut()?;
        let sizes = [
            ("ring", cut.ring),
            ("chunks", cut.n_chunks),
            ("queries", cut.queries),
        ];
        Ok(sizes.to_vec())
    }

    /// Where attention's sums meet, in words.
    pub(super) fn attention_levels(&self) -> Result<(String, String), LowerError> {
        let cut = self.attention_cut()?;
        let d = self.target.dims.head_dim;
        let packet = if d.is_multiple_of(32) { 32 } else { 16 };
        let ring = match cut.ring {
            1 => String::new(),
            r => format!(" → slice (ring of {r})"),
        };
        let split = match cut.n_chunks {
            1 => String::new(),
            n => format!(" → split ({n} chunks)"),
        };
        let scores = format!("reduce: packet ({packet}) → time ({})", d / packet);
        let sums = format!("reduce: time ({}){ring}{split}", cut.own);
        Ok((scores, sums))
    }
}
