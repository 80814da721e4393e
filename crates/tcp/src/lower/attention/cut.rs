//! How attention is cut into sequences, queries and keys.

use crate::Element;
use crate::axes::Mapping;
use crate::lower::LowerError;
use crate::lower::builder::{Builder, ax, copies, digit, filled, inner, list, outer, spread};
use crate::program::TensorSharding;

/// Queries of a sequence that are held at once.
const MAX_QUERIES: u64 = 16;

/// How attention is cut, with the mappings that follow.
pub(super) struct AttentionSplit {
    /// Sequences at a time.
    pub batch: u64,
    /// Queries at a time.
    pub queries: u64,
    /// Keys whose scores are in data memory at a time, and the number of such parts.
    pub part: u64,
    pub n_parts: u64,
    /// Keys of a chunk, and chunks of a part.
    pub chunk: u64,
    pub n_chunks: u64,
    /// Keys of a slice in a chunk.
    pub own: u64,
    /// Slices that share a head's keys.
    pub ring: u64,
    /// Heads over clusters and slices; the same with copies instead of heads.
    pub heads: TensorSharding,
    pub no_heads: TensorSharding,
}

/// Parts of attention that are held at once, in numbers; as in [`AttentionSplit`].
struct AttentionCounts {
    batch: u64,
    queries: u64,
    part: u64,
    chunk: u64,
    ring: u64,
    /// Clusters that heads are spread over.
    clusters: u64,
}

impl AttentionSplit {
    /// Keys of a chunk.
    pub(super) fn keys(&self, n_keys: u64) -> Mapping {
        match self.chunk == n_keys {
            true => ax("s_k"),
            false => ax("s_k").resize(self.chunk),
        }
    }

    /// Keys of a part.
    pub(super) fn part_keys(&self) -> Mapping {
        match self.n_parts {
            1 => ax("s_k"),
            _ => ax("s_k").resize(self.part),
        }
    }

    /// Order in which a part's scores stream: query after query.
    pub(super) fn by_query(&self, queries: &Mapping) -> Mapping {
        let keys = self.part_keys();
        let chunks = digit(&keys, self.part, self.chunk, self.n_chunks);
        let own = inner(&keys, self.part, self.own);
        list([queries.clone(), chunks, own])
    }

    /// Heads, and keys over the ring.
    pub(super) fn by_key(&self, keys: &Mapping, size: u64) -> TensorSharding {
        let ring = digit(keys, size, self.own, self.ring);
        spread(
            self.heads.cluster.clone(),
            list([self.heads.slice.clone(), ring]),
        )
    }

    /// Heads, and copies over the ring.
    pub(super) fn by_head(&self) -> TensorSharding {
        let slice = list([self.heads.slice.clone(), copies(self.ring)]);
        spread(self.heads.cluster.clone(), slice)
    }
}

impl Builder<'_> {
    pub(super) fn attention_cut(&self) -> Result<AttentionSplit, LowerError> {
        self.check_attention()?;
        let counts = self.attention_counts();
        let (heads, no_heads) = self.head_shardings(&counts);
        let AttentionCounts {
            batch,
            queries,
            part,
            chunk,
            ring,
            ..
        } = counts;
        Ok(AttentionSplit {
            batch,
            queries,
            part,
            n_parts: self.target.call.n_keys / part,
            chunk,
            n_chunks: part / chunk,
            own: chunk / ring,
            ring,
            heads,
            no_heads,
        })
    }

    fn check_attention(&self) -> Result<(), LowerError> {
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
        Ok(())
    }

    /// How much of attention the chip holds at a time.
    fn attention_counts(&self) -> AttentionCounts {
        let (call, dims, machine) = (self.target.call, self.target.dims, self.target.machine);
        let heads = dims.n_kv_heads;
        let mut batch = call.batch;
        // Heads of the sequences of one round have a slice each, and at least half of their keys fit.
        while batch > 1 && (batch * heads > machine.chip_slices() / 2 || !batch.is_power_of_two()) {
            batch /= 2;
        }
        let pairs = batch * heads;
        // Padding over slices is outside of heads, so that clusters can go on where slices end.
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
        let mut part = call.n_keys;
        while part > ring && queries * row / (call.n_keys / part) > machine.dm_bytes / 2 {
            part /= 2;
        }
        AttentionCounts {
            batch,
            queries,
            part,
            chunk: chunk.min(part),
            ring,
            clusters,
        }
    }

    /// Heads of a round over clusters and slices, and copies in their place.
    fn head_shardings(&self, counts: &AttentionCounts) -> (TensorSharding, TensorSharding) {
        let machine = self.target.machine;
        let AttentionCounts {
            batch, clusters, ..
        } = *counts;
        let heads = self.target.dims.n_kv_heads;
        let pairs = batch * heads;
        let per = pairs / clusters;
        let sequences = match batch == self.target.call.batch {
            true => ax("B"),
            false => ax("B").resize(batch),
        };
        let both = list([sequences.clone(), ax("h_kv")]);
        let slots = machine.slices / counts.ring;
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
        (spread(cluster, slice), spread(no_cluster, no_slice))
    }

    /// How attention is cut: slices that share a head's keys, chunks of keys, queries at a time.
    pub(in crate::lower) fn attention_sizes(&self) -> Result<Vec<(&'static str, u64)>, LowerError> {
        let cut = self.attention_cut()?;
        let sizes = [
            ("ring", cut.ring),
            ("chunks", cut.n_chunks),
            ("queries", cut.queries),
            ("parts", cut.n_parts),
        ];
        Ok(sizes.to_vec())
    }

    /// Where attention's sums meet, in words.
    pub(in crate::lower) fn attention_levels(&self) -> Result<(String, String), LowerError> {
        let cut = self.attention_cut()?;
        let d = self.target.dims.head_dim;
        let packet = if d.is_multiple_of(32) { 32 } else { 16 };
        let ring = match cut.ring {
            1 => String::new(),
            r => format!(" → slice (ring of {r})"),
        };
        let chunks = match cut.n_chunks {
            1 => String::new(),
            n => format!(" → split ({n} chunks)"),
        };
        let split = match cut.n_parts {
            1 => chunks,
            n => format!("{chunks} → running ({n} parts)"),
        };
        let scores = format!("reduce: packet ({packet}) → time ({})", d / packet);
        let sums = format!("reduce: time ({}){ring}{split}", cut.own);
        Ok((scores, sums))
    }
}
